"""Fragment loads, stores and products of wmma (PTX ISA 9.1, Warp Level Matrix Instructions:
wmma.load, wmma.store, wmma.mma).

Every row (or column, as the layout says) of a tile in memory starts at a multiple of the size of
the fragment, so base address and stride in bytes must be multiples of it ("Matrix Storage for
WMMA").  PTX leaves open which lane holds what; see :mod:`ptxsim.matrix.layouts`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..matrix import Fragment, Shape, parse_shape, wmma_fragment, wmma_registers
from ..types import SCALAR_TYPES
from ._mma_forms import ELEMENT_BITS
from .matrix_multiply import multiply_step, product
from .protocol import Array, Registers, Step
from .record import Form, Mods, instruction
from .warp_matrix import MatrixCollective, reject, whole_warps

__all__: list[str] = []

_SECTION = "Warp Level Matrix Instructions: "
_SHAPES = "shape:{m16n16k16 m32n8k16 m8n32k16}"
_SPACE = "space?:{global shared shared::cta@7.8}"
_LAYOUT = "layout:{row col}"


def _register_count(use: str, m: Mods) -> int:
    """Registers of a fragment, for the shapes that are executed and the others."""
    shape = parse_shape(m.shape)
    if shape[2] == 16:
        return wmma_registers(use, shape, m.type)
    rows, columns, k = shape
    if use in "cd":
        return rows * columns // 32
    extent = rows if use == "a" else columns
    bits = ELEMENT_BITS[m.type]
    return extent * k * bits // (32 * max(bits, 32))


def _register_type(m: Mods) -> str:
    """f16, and factors but f64 and eight-bit integers, are bits; the others have their type."""
    if m.type == "f16":
        return "f16x2"
    if m.type in ("f32", "s32", "f64"):
        return m.type
    return "b32" if m.type in ("bf16", "tf32") else "u32"


class _Transfer(MatrixCollective):
    """A tile between memory and a fragment."""

    traps: ClassVar[tuple[str, ...]] = (
        "wmma-precondition", "misaligned", "oob", "uninit-global", "collective-divergence",
    )  # fmt: skip

    def register(self, m: Mods) -> str:
        return _register_type(m)

    def number(self, m: Mods) -> int:
        return _register_count(m.use, m)


def _transfer_forms(prefix: str, operands: str, accumulator: str, factors: bool) -> tuple[Form, ...]:
    def line(shape: str, type_: str, layout: str = _LAYOUT, use: str = accumulator) -> str:
        return f"use:{{{use}}} sync aligned {layout} {shape} {_SPACE} type:{{{type_}}}"

    def other(shape: str, type_: str, floor: str, layout: str = _LAYOUT, use: str = accumulator) -> Form:
        return Form(
            line(f"shape:{{{shape}}}", type_, layout, use), operands, floor=floor,
            unsupported=f"{prefix} of {shape.replace(' ', ' and ')} tiles is not modelled",
        )  # fmt: skip

    out = [
        Form(line(_SHAPES, "f16 f32 s32@6.3+sm_72"), operands, floor="6.0+sm_70"),
        other("m16n16k8", "f32", "7.0+sm_80"),
        other("m8n8k4", "f64", "7.0+sm_80"),
        other("m8n8k32 m8n8k128", "s32", "6.3+sm_75"),
    ]
    if factors:
        types = "f16 bf16@7.0+sm_80 s8@6.3+sm_72 u8@6.3+sm_72"
        out += [
            Form(line(_SHAPES, types, use="a b"), operands, floor="6.0+sm_70"),
            other("m16n16k8", "tf32", "7.0+sm_80", use="a b"),
            other("m8n8k4", "f64", "7.0+sm_80", use="a b"),
        ]
        for use, layout in (("a", "layout:{row}"), ("b", "layout:{col}")):
            out += [
                other("m8n8k32", "s4 u4", "6.3+sm_75", layout, use),
                other("m8n8k128", "b1", "6.3+sm_75", layout, use),
            ]
    return tuple(out)

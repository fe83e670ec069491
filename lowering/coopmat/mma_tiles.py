"""How the fragments of mma.sync lie in memory, register by register (PTX ISA 9.1, Matrix Fragments
for mma).

They are those of wmma on sm_80, where wmma itself is made of ``mma.sync``, with each element held
once.  Lane ``4 * g + t`` holds elements at an offset in ``g`` and ``t`` from those of lane 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ptxsim.errors import UsageError
from ptxsim.matrix import Shape, wmma_bits, wmma_fragment

from .vocabulary import Fragment

__all__ = ["ACCUMULATORS", "FACTORS", "Spread", "register_type", "spread"]

Array: TypeAlias = NDArray[np.intp]

#: Component types of A and B by shape; those of one group can be multiplied with each other.
FACTORS: dict[Shape, tuple[tuple[str, ...], ...]] = {
    (16, 16, 16): (("f16",), ("bf16",), ("s8", "u8")),
    (32, 8, 16): (("f16",), ("bf16",), ("s8", "u8")),
    (8, 32, 16): (("f16",), ("bf16",), ("s8", "u8")),
    (16, 16, 8): (("tf32",),),
    (8, 8, 4): (("f64",),),
    (8, 8, 32): (("s4", "u4"),),
    (8, 8, 128): (("b1",),),
}

#: Types of an accumulator by the first type of a group.
ACCUMULATORS = {
    "f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "f64": ("f64",),
    "s8": ("s32", "u32"), "s4": ("s32", "u32"), "b1": ("s32", "u32"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spread:
    """The registers of a fragment on the lines of its memory: rows, or columns for ``col``.

    The elements of a register follow one another in the direction of ``t``.
    """

    #: bits of an element
    bits: int
    #: elements of a register
    per: int
    #: whether ``t`` counts along a line and ``g`` across the lines, or the other way
    along: bool
    #: elements from one ``t`` to the next; one ``g`` is always one element
    step: int
    #: line and position of the first element of each register in lane 0
    places: tuple[tuple[int, int], ...]

    @property
    def matrix(self) -> bool:
        """Whether each register is an 8x8 matrix of ldmatrix, transposed if not along."""
        return self.step * self.bits == 32 if self.along else self.bits == 16

    @property
    def paired(self) -> bool:
        """Whether registers 2i and 2i + 1 follow one another in memory."""
        return self.along and self.step == 2 * self.per

    @property
    def access(self) -> int:
        """Bytes of the widest access of one lane."""
        return (self.step if self.along else 1) * self.bits // 8

    def place(self, register: int, element: int) -> tuple[int, int]:
        """Line and position of an element of a register in lane 0."""
        line, position = self.places[register]
        return (line, position + element) if self.along else (line + element, position)


@cache
def spread(fragment: Fragment, layout: str) -> Spread:
    """The registers of a fragment in a layout; UsageError where there is none."""
    shape = (fragment.shape.m, fragment.shape.n, fragment.shape.k)
    if fragment.component not in _components(fragment.use, shape):
        raise UsageError(f"mma.sync has no fragment {fragment}")
    only = {"a": "row", "b": "col"}.get(fragment.use, layout)
    if fragment.component in ("s4", "u4", "b1") and layout != only:
        raise UsageError(f"{fragment} has the layout {only}, not {layout}")
    # a sum of u32 is held as one of s32, and accumulators C and D alike
    type_ = "s32" if fragment.component == "u32" else fragment.component
    use = "c" if fragment.use == "accumulator" else fragment.use
    held = wmma_fragment(use, shape, type_, 80, layout)
    lines, positions = (held.row, held.column)[:: 1 if layout == "row" else -1]
    bits = wmma_bits(type_)
    per = max(32 // bits, 1)
    origin = [(int(x), int(y)) for x, y in zip(lines[0], positions[0], strict=True)]
    out = Spread(
        bits, per,
        along=bool(lines[4, 0] != lines[0, 0]),
        step=int(max(lines[1, 0] - lines[0, 0], positions[1, 0] - positions[0, 0])),
        places=tuple(dict.fromkeys(origin[::per])),
    )  # fmt: skip
    _check(out, lines, positions)
    return out


def _components(use: str, shape: Shape) -> tuple[str, ...]:
    groups = FACTORS.get(shape, ())
    if use != "accumulator":
        return sum(groups, ())
    return sum((ACCUMULATORS[group[0]] for group in groups), ())


def _check(spread: Spread, lines: Array, positions: Array) -> None:
    """That the places tell where every element of every lane lies."""
    lane = np.arange(32)
    g, t = lane >> 2, spread.step * (lane & 3)
    for j in range(lines.shape[1]):
        # repeated registers are whole copies of the first ones
        register = j // spread.per % len(spread.places)
        line, position = spread.place(register, j % spread.per)
        across, along = (g, t) if spread.along else (t, g)
        assert np.array_equal(lines[:, j], line + across), "lines are affine in g and t"
        assert np.array_equal(positions[:, j], position + along), "positions are affine in g and t"


def register_type(component: str) -> str:
    """The type of the registers that hold a component type."""
    return component if component in ("f32", "f64") else "b32"

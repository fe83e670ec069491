"""Fundamental types, and the width classes in which their bit patterns are kept.

PTX ISA 9.1, Types: "Fundamental Types", "Alternate Floating-Point Data Formats", "Packed Data
Types".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["SCALAR_TYPES", "STATE_SPACES", "ScalarType", "bits_dtype", "scalar_type"]


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A type token: its ``kind`` letter and its width in ``bits``.

    ``kind`` is ``b`` untyped, ``u`` unsigned, ``s`` signed, ``f`` float, ``p`` predicate,
    ``a`` alternate or packed float (an instruction type; such values live in ``b`` registers),
    ``o`` opaque (texture, sampler and surface references).
    """

    name: str
    kind: str
    bits: int

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return max(1, self.bits // 8)

    @property
    def signed(self) -> bool:
        return self.kind == "s"

    def __str__(self) -> str:
        return "." + self.name


def _table() -> dict[str, ScalarType]:
    out: dict[str, ScalarType] = {}
    for kind, widths in {
        "b": (8, 16, 32, 64, 128),
        "u": (8, 16, 32, 64),
        "s": (8, 16, 32, 64),
    }.items():
        for width in widths:
            out[f"{kind}{width}"] = ScalarType(f"{kind}{width}", kind, width)
    for width in (16, 32, 64):
        out[f"f{width}"] = ScalarType(f"f{width}", "f", width)
    out["f16x2"] = ScalarType("f16x2", "f", 32)
    out["pred"] = ScalarType("pred", "p", 1)
    alternate = {
        "bf16": 16, "bf16x2": 32, "tf32": 32, "f32x2": 64, "u16x2": 32, "s16x2": 32, "u8x4": 32,
        "s8x4": 32, "e4m3": 8, "e5m2": 8, "e4m3x2": 16, "e5m2x2": 16, "e4m3x4": 32, "e5m2x4": 32,
        "e2m1": 4, "e2m3": 6, "e3m2": 6, "e2m1x2": 8, "e2m3x2": 16, "e3m2x2": 16, "e2m1x4": 16,
        "e2m3x4": 32, "e3m2x4": 32, "ue8m0": 8, "ue8m0x2": 16, "ue4m3": 8, "s2f6x2": 16,
        "b1": 1, "u4": 4, "s4": 4, "u2": 2, "s2": 2,
    }  # fmt: skip
    for name, width in alternate.items():
        out[name] = ScalarType(name, "a", width)
    for name in ("texref", "samplerref", "surfref"):
        out[name] = ScalarType(name, "o", 64)
    return out


SCALAR_TYPES: dict[str, ScalarType] = _table()

STATE_SPACES = ("reg", "sreg", "const", "global", "local", "param", "shared", "tex")


def scalar_type(name: str) -> ScalarType:
    """The type of a token without its dot; KeyError for an unknown one."""
    return SCALAR_TYPES[name]


_DTYPES = {
    1: np.dtype(np.bool_),
    8: np.dtype(np.uint8),
    16: np.dtype(np.uint16),
    32: np.dtype(np.uint32),
    64: np.dtype(np.uint64),
    128: np.dtype(np.uint64),
}


def bits_dtype(bits: int) -> np.dtype[np.generic]:
    """The NumPy type that holds a register of ``bits`` bits.

    Predicates are bool; 128-bit values are two rows of uint64, low word first.
    """
    return _DTYPES[bits]

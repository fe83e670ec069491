"""Floating-point formats as data.

PTX ISA 9.1, Types: "Fundamental Types" and "Alternate Floating-Point Data Formats".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "BF16",
    "E2M1",
    "E2M3",
    "E3M2",
    "E4M3",
    "E5M2",
    "F16",
    "F32",
    "F64",
    "FORMATS",
    "TF32",
    "UE4M3",
    "UE8M0",
    "Bits",
    "Format",
    "IntegerRounding",
    "Mask",
    "Rounding",
]

Bits: TypeAlias = npt.NDArray[Any]
"""Bit patterns of stated width, one per lane, in an unsigned dtype."""

Mask: TypeAlias = npt.NDArray[np.bool_]
"""One truth value per lane."""

Rounding: TypeAlias = Literal["rn", "rz", "rm", "rp", "rna", "rs"]
"""PTX rounding modifiers of results: nearest even, to zero, down, up, nearest away, stochastic."""

IntegerRounding: TypeAlias = Literal["rni", "rzi", "rmi", "rpi"]
"""PTX rounding modifiers to an integral value."""


@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating-point format: its fields, its specials, and the register that holds it.

    ``infinity`` and ``nan`` are patterns without sign, or None when the format has no such value;
    ``largest`` is the largest finite pattern.  A value sits ``padding`` bits above the low end of
    its register (tf32 keeps the layout of f32).
    """

    name: str
    width: int
    exponent_bits: int
    mantissa_bits: int
    bias: int
    infinity: int | None
    nan: int | None
    largest: int
    signed: bool = True
    padding: int = 0

    @property
    def dtype(self) -> np.dtype[Any]:
        """The unsigned NumPy type that holds one value."""
        return np.dtype(f"u{max(1, self.width // 8)}")

    @property
    def sign(self) -> int:
        """The sign bit as a pattern, zero for formats without sign."""
        return 1 << (self.exponent_bits + self.mantissa_bits) if self.signed else 0

    @property
    def one(self) -> int:
        """The pattern of 1.0."""
        return self.bias << self.mantissa_bits

    @property
    def smallest_normal(self) -> int:
        """The pattern of the smallest normal number."""
        return 1 << self.mantissa_bits

    def __str__(self) -> str:
        return "." + self.name


# The canonical NaN of f32 is what ptxas folds for arithmetic, that of f16 and bf16 what it folds
# for cvt; the manual gives none for f64, where all ones follows the same pattern.
F16 = Format("f16", 16, 5, 10, 15, 0x7C00, 0x7FFF, 0x7BFF)
BF16 = Format("bf16", 16, 8, 7, 127, 0x7F80, 0x7FFF, 0x7F7F)
TF32 = Format("tf32", 32, 8, 10, 127, 0x3FC00, 0x3FFFF, 0x3FBFF, padding=13)
F32 = Format("f32", 32, 8, 23, 127, 0x7F80_0000, 0x7FFF_FFFF, 0x7F7F_FFFF)
F64 = Format(
    "f64",
    64,
    11,
    52,
    1023,
    0x7FF0_0000_0000_0000,
    0x7FFF_FFFF_FFFF_FFFF,
    0x7FEF_FFFF_FFFF_FFFF,
)
E4M3 = Format("e4m3", 8, 4, 3, 7, None, 0x7F, 0x7E)
E5M2 = Format("e5m2", 8, 5, 2, 15, 0x7C, 0x7F, 0x7B)
E2M1 = Format("e2m1", 4, 2, 1, 1, None, None, 0x7)
E2M3 = Format("e2m3", 6, 2, 3, 1, None, None, 0x1F)
E3M2 = Format("e3m2", 6, 3, 2, 3, None, None, 0x1F)
UE8M0 = Format("ue8m0", 8, 8, 0, 127, None, 0xFF, 0xFE, signed=False)
UE4M3 = Format("ue4m3", 8, 4, 3, 7, None, 0x7F, 0x7E, signed=False)

FORMATS: dict[str, Format] = {
    f.name: f for f in (F16, BF16, TF32, F32, F64, E4M3, E5M2, E2M1, E2M3, E3M2, UE8M0, UE4M3)
}
"""Every format by its PTX token."""

"""Element types of buffers and scalars on the command line, and how NumPy holds them.

PTX ISA 9.1, Types: "Fundamental Types" and "Alternate Floating-Point Data Formats".  NumPy has no
bf16, e4m3 and e5m2: such elements are their bit patterns, in uint16 and uint8 arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..numerics.formats import FORMATS, Format

__all__ = ["ELEMENT_TYPES", "ElementType", "decode", "encode", "ordinals", "patterns"]

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class ElementType:
    """A type token: its kind letter (``u s b f``), its NumPy type, and its float format."""

    token: str
    kind: str
    dtype: np.dtype[Any]
    format: Format | None = None

    @property
    def size(self) -> int:
        """Bytes of one element."""
        return int(self.dtype.itemsize)

    @property
    def wide(self) -> np.dtype[Any]:
        """The 64-bit integers in which integer expressions of this type are worked out."""
        return np.dtype(np.uint64 if self.token in ("u64", "b64") else np.int64)

    @property
    def native(self) -> bool:
        """Whether NumPy has this type; otherwise an array holds bit patterns."""
        return self.format is None or self.dtype.kind == "f"

    def __str__(self) -> str:
        return self.token


def _table() -> dict[str, ElementType]:
    out: dict[str, ElementType] = {}
    for kind, code in (("u", "u"), ("s", "i"), ("b", "u")):
        for size in (1, 2, 4, 8):
            token = f"{kind}{8 * size}"
            out[token] = ElementType(token, kind, np.dtype(f"{code}{size}"))
    for token, name in (
        ("f16", "f2"), ("bf16", "u2"), ("f32", "f4"), ("f64", "f8"), ("e4m3", "u1"), ("e5m2", "u1"),
    ):  # fmt: skip
        out[token] = ElementType(token, "f", np.dtype(name), FORMATS[token])
    return out


ELEMENT_TYPES: dict[str, ElementType] = _table()
"""Every element type by its token."""


def encode(values: Array, type_: ElementType) -> Array:
    """Numbers (int64, uint64 or float64) as elements of a type.

    Integer types keep the low bits of an integer and drop the fraction of a float; floats are
    rounded to nearest even once, as ``cvt.rn`` does (e4m3 and e5m2 saturate, as its
    ``.satfinite`` does).  ValueError, with the reason, for a number that has no such element.
    """
    if type_.format is None:
        if values.dtype.kind != "f":
            return values.astype(type_.dtype)
        if type_.kind == "b":
            raise ValueError(f"{type_} holds bits: give integers, or use a float type")
        return _integers(values).astype(type_.dtype)
    if type_.native and values.dtype.kind != "f":
        values = values.astype(np.float64)
    with np.errstate(all="ignore"):
        if type_.native:
            return values.astype(type_.dtype)
        return _rounded(values.astype(np.float64), type_.format).astype(type_.dtype)


def _integers(values: Array) -> Array:
    """Floats without their fractions, as int64, or as uint64 if one needs it."""
    whole = np.trunc(values)
    if not np.isfinite(whole).all():
        raise ValueError("inf and nan are no integers")
    if whole.size and (whole.max() >= 2.0**64 or whole.min() < -(2.0**63)):
        raise ValueError("a number is beyond 64-bit integers")
    large = whole >= 2.0**63
    if not large.any():
        return whole.astype(np.int64)
    low = np.where(large, 0.0, whole).astype(np.int64).astype(np.uint64)
    return np.where(large, np.where(large, whole, 0.0).astype(np.uint64), low)


def _rounded(values: Array, fmt: Format) -> Array:
    """Patterns of the nearest numbers of a format, ties to even, from float64 in one rounding."""
    size = np.abs(values)
    infinite = np.isinf(size)
    finite = np.where(np.isfinite(size), size, 0.0)
    lowest = 1 - fmt.bias
    # frexp gives zero the exponent of one
    exponent = np.where(finite == 0, lowest, np.maximum(np.frexp(finite)[1] - 1, lowest))
    # The scaled number is below 2^(m+1), so that the shift is exact and one rounding happens here.
    # A sum that carries out of the mantissa moves on to the next exponent by itself.
    steps = np.rint(np.ldexp(finite, fmt.mantissa_bits - exponent)).astype(np.int64)
    bits = steps + ((exponent.astype(np.int64) - lowest) << fmt.mantissa_bits)
    saturating = fmt.width == 8
    over = fmt.largest if saturating or fmt.infinity is None else fmt.infinity
    bits = np.where(infinite | (bits > fmt.largest), over, bits)
    bits = np.where(np.isnan(values), fmt.nan or 0, bits)
    return np.where(np.signbit(values) & ~np.isnan(values), bits | fmt.sign, bits)


def decode(elements: Array, type_: ElementType) -> Array:
    """The numbers that elements stand for: int64, uint64 or float64."""
    if type_.format is None:
        return elements.astype(type_.wide)
    if type_.native:
        return elements.astype(np.float64)
    fmt = type_.format
    bits = elements.astype(np.int64)
    field = bits & (fmt.sign - 1)
    exponent = field >> fmt.mantissa_bits
    fraction = field & ((1 << fmt.mantissa_bits) - 1)
    mantissa = np.where(exponent > 0, fraction + (1 << fmt.mantissa_bits), fraction)
    value = np.ldexp(
        mantissa.astype(np.float64), np.maximum(exponent, 1) - fmt.bias - fmt.mantissa_bits
    )
    if fmt.infinity is not None:
        value = np.where(field == fmt.infinity, np.inf, value)
        value = np.where(field > fmt.infinity, np.nan, value)
    else:
        value = np.where(field == fmt.nan, np.nan, value)
    return np.where(bits & fmt.sign, -value, value)


def patterns(elements: Array) -> Array:
    """The bit patterns of elements, in an unsigned type of the same size."""
    return np.ascontiguousarray(elements).view(f"u{elements.dtype.itemsize}")


def ordinals(bits: Array, fmt: Format) -> list[int]:
    """Places of float patterns on one line: neighbours differ by 1, both zeros are at 0."""
    return [-(b & (fmt.sign - 1)) if b & fmt.sign else b for b in (int(b) for b in bits)]

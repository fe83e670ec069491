"""Element types of buffers and scalars given on the command line or in a file header.

PTX ISA 9.1, Types: "Fundamental Types" and "Alternate Floating-Point Data Formats".  NumPy has no
type for bf16, e4m3 and e5m2; their arrays hold bit patterns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..numerics.formats import FORMATS, Format

__all__ = ["ELEMENT_TYPES", "ElementType", "decode", "encode", "ulp_distance"]

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class ElementType:
    """A type token, the NumPy type that stores it, and its float format if it is a float."""

    name: str
    dtype: np.dtype[Any]
    fmt: Format | None = None

    @property
    def bits(self) -> int:
        """Width in bits."""
        return self.dtype.itemsize * 8

    @property
    def is_float(self) -> bool:
        """Whether values are floating-point numbers."""
        return self.fmt is not None

    @property
    def wide(self) -> np.dtype[Any]:
        """The 64-bit integer type in which integer expressions of this type are computed."""
        return np.dtype("u8" if self.bits == 64 and self.name[0] != "s" else "i8")


def _table() -> dict[str, ElementType]:
    out = {}
    for bits in (8, 16, 32, 64):
        for kind in "usb":
            out[f"{kind}{bits}"] = ElementType(
                f"{kind}{bits}", np.dtype(("i" if kind == "s" else "u") + str(bits // 8))
            )
    for name, code in (("f16", "f2"), ("f32", "f4"), ("f64", "f8")):
        out[name] = ElementType(name, np.dtype(code), FORMATS[name])
    for name, code in (("bf16", "u2"), ("e4m3", "u1"), ("e5m2", "u1")):
        out[name] = ElementType(name, np.dtype(code), FORMATS[name])
    return out


#: Every type of SPEC by its token.
ELEMENT_TYPES: dict[str, ElementType] = _table()


def encode(values: Array, type_: ElementType) -> Array:
    """Numbers as stored elements: integers wrap, floats round to nearest even.

    A value beyond the largest of e4m3 or e5m2 becomes that largest, as ``cvt.satfinite`` does.
    """
    if type_.fmt is None:
        return values.astype(type_.dtype)
    with np.errstate(over="ignore"):
        if type_.dtype.kind == "f":
            return values.astype(np.float64).astype(type_.dtype)
    return _pack(values.astype(np.float64), type_.fmt).astype(type_.dtype)


def _pack(values: Array, fmt: Format) -> Array:
    m = fmt.mantissa_bits
    size = np.where(np.isfinite(values), np.abs(values), 0.0)
    exponent = np.maximum(np.frexp(size)[1].astype(np.int64) - 1, 1 - fmt.bias)
    exponent = np.where(size == 0, 1 - fmt.bias, exponent)
    # scaling by a power of two is exact here, so rint is the only rounding
    quotient = np.rint(np.ldexp(size, m - exponent)).astype(np.int64)
    bits = ((exponent + fmt.bias - 1) << m) + quotient
    saturates = fmt.width == 8 or fmt.infinity is None
    top = fmt.largest if saturates else fmt.infinity
    bits = np.where((bits > fmt.largest) | np.isinf(values), top, bits)
    bits = bits | np.where(np.signbit(values), fmt.sign, 0)
    return np.where(np.isnan(values), fmt.nan, bits)


def decode(stored: Array, type_: ElementType) -> Array:
    """Stored elements as numbers: floats as float64, integers as they are."""
    if type_.fmt is None:
        return stored
    if type_.dtype.kind == "f":
        return stored.astype(np.float64)
    fmt = type_.fmt
    bits = stored.astype(np.int64)
    size = bits & (fmt.sign - 1)
    exponent = size >> fmt.mantissa_bits
    fraction = size & ((1 << fmt.mantissa_bits) - 1)
    mantissa = np.where(exponent > 0, fraction + (1 << fmt.mantissa_bits), fraction)
    value = np.ldexp(
        mantissa.astype(np.float64), np.maximum(exponent, 1) - fmt.bias - fmt.mantissa_bits
    )
    value = np.where(size > fmt.largest, np.nan, value)
    if fmt.infinity is not None:
        value = np.where(size == fmt.infinity, np.inf, value)
    return np.where(bits & fmt.sign != 0, -value, value)


def ulp_distance(a: Any, b: Any, type_: ElementType) -> int | None:
    """How many representable numbers lie between two stored floats; None if one is NaN."""
    if type_.fmt is None:
        return None
    pair = np.array([a, b], type_.dtype)
    if np.isnan(decode(pair, type_)).any():
        return None
    sign = type_.fmt.sign
    patterns = [int(p) for p in pair.view(f"u{type_.dtype.itemsize}")]
    first, second = (-(p - sign) if p & sign else p for p in patterns)
    return abs(first - second)

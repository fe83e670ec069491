"""Views of bit patterns as NumPy floats, and what is common to all results: NaN, .ftz, .sat."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ._elementwise import any_lane, select
from .formats import BF16, F16, F32, F64, Bits, Format, Mask

__all__ = [
    "Floats",
    "canonical",
    "finish",
    "flush",
    "image_bits",
    "is_nan",
    "ordered_image",
    "pack_half",
    "relu",
    "saturate",
    "widen_half",
]

U16 = np.uint16
U32 = np.uint32
U64 = np.uint64
Floats = npt.NDArray[Any]

_FLOAT = {F32: np.float32, F64: np.float64}


def is_nan(a: Bits, fmt: Format) -> Mask:
    """Lanes that hold a NaN."""
    unsigned = a.dtype.type
    mask: Mask = (a & unsigned(fmt.sign - 1)) > unsigned(fmt.infinity or 0)
    return mask


def flush(a: Bits, fmt: Format) -> Bits:
    """Subnormal numbers as zeros of their sign (ISA .ftz)."""
    unsigned = a.dtype.type
    # Twice the magnitude minus one puts zero out of the way: only true subnormals pay.
    twice = a << unsigned(1)
    twice -= unsigned(1)
    subnormal = twice < unsigned(2 * fmt.smallest_normal - 1)
    if any_lane(subnormal):
        return select(subnormal, a & unsigned(fmt.sign), a)
    return a


def canonical(value: Floats, fmt: Format) -> Bits:
    """The patterns of f32 or f64 results, every NaN the canonical one."""
    nan = np.isnan(value)
    bits: Bits = value.view(fmt.dtype)
    return select(nan, fmt.dtype.type(fmt.nan or 0), bits) if any_lane(nan) else bits


def saturate(value: Floats) -> Floats:
    """Values clamped to [0, 1], NaN and minus zero as +0 (ISA .sat)."""
    unit = value.dtype.type
    # The sum first: it makes NaNs quiet, and fmax treats signalling ones as the platform likes.
    result: Floats = np.minimum(np.fmax(value + unit(0), unit(0)), unit(1))
    return result


def relu(value: Floats) -> Floats:
    """Negative values and minus zero as +0; NaN stays (ISA .relu)."""
    zero = value.dtype.type(0)
    result: Floats = np.maximum(value, zero) + zero
    return result


def finish(value: Floats, fmt: Format, ftz: bool, sat: bool) -> Bits:
    """f32 or f64 results as patterns, with .ftz (of the rounded result), .sat and NaN applied."""
    if sat:
        value = saturate(value)
    bits = canonical(value, fmt)
    return flush(bits, fmt) if ftz else bits


def widen_half(a: Bits, fmt: Format) -> npt.NDArray[np.float32]:
    """f16 or bf16 patterns as float32 values; exact."""
    if fmt is F16:
        return a.view(np.float16).astype(np.float32)
    value: npt.NDArray[np.float32] = (a.astype(U32) << U32(16)).view(np.float32)
    return value


def pack_half(value: Floats, fmt: Format) -> Bits:
    """Values rounded to nearest f16 (from float32 or float64) or bf16 (from float32)."""
    nan = np.isnan(value)
    if fmt is F16:
        bits: Bits = value.astype(np.float16).view(U16)
    else:
        wide = value.view(U32)
        odd = (wide >> U32(16)) & U32(1)
        bits = ((wide + (odd + U32(0x7FFF))) >> U32(16)).astype(U16)
    return select(nan, U16(fmt.nan or 0), bits) if any_lane(nan) else bits


def ordered_image(a: Bits, fmt: Format) -> Floats:
    """NumPy floats that compare like the numbers of ``fmt``; NaN stays NaN.

    The 16-bit patterns become the top half of an f32, which keeps their order.
    """
    if fmt is F16 or fmt is BF16:
        wide = a.astype(U32) << U32(16)
        if fmt is F16:
            wide |= is_nan(a, fmt) * U32(F32.nan or 0)
        return wide.view(np.float32)
    return a.view(_FLOAT[fmt])


def image_bits(image: Floats, fmt: Format) -> Bits:
    """The patterns whose images these are; for 16-bit NaNs only that they are NaN."""
    bits: Bits = image.view(f"u{image.dtype.itemsize}")
    if bits.dtype == fmt.dtype:
        return bits
    return (bits >> U32(16)).astype(U16)

"""Exact values of patterns of any format, and rules that hold for results of any format."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ._elementwise import select
from ._images import widen_half
from .formats import BF16, F16, F32, F64, TF32, UE8M0, Bits, Format

__all__ = ["clamp_unit", "to_double", "to_single"]

U32 = np.uint32
Singles = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


def to_single(a: Bits, fmt: Format) -> Singles:
    """Patterns of any format but f64 as float32 values; exact.

    Narrow formats pass through the exponent of f32: the fields are put in place and the difference
    of the biases is multiplied in, which normalises subnormal numbers as well.
    """
    if fmt is F32 or fmt is TF32:
        return a.view(np.float32)
    if fmt is F16 or fmt is BF16:
        return widen_half(a, fmt)
    if fmt is UE8M0:
        return _power(a)
    bits = a.astype(U32)
    magnitude = bits & U32((1 << (fmt.exponent_bits + fmt.mantissa_bits)) - 1)
    scale = np.float32(2.0 ** (F32.bias - fmt.bias))
    value = (magnitude << U32(F32.mantissa_bits - fmt.mantissa_bits)).view(np.float32) * scale
    raw = value.view(U32)
    if fmt.infinity is not None:
        raw = select(magnitude == U32(fmt.infinity), U32(F32.infinity or 0), raw)
        raw = select(magnitude > U32(fmt.infinity), U32(F32.nan or 0), raw)
    elif fmt.nan is not None:
        raw = select(magnitude == U32(fmt.nan), U32(F32.nan or 0), raw)
    negative = ((bits & U32(fmt.sign)) != 0) * U32(F32.sign)
    result: Singles = (raw | negative).view(np.float32)
    return result


def _power(a: Bits) -> Singles:
    """ue8m0: two to the biased exponent; the lowest one is a subnormal f32, all ones is NaN."""
    raw = a.astype(U32) << U32(F32.mantissa_bits)
    raw = raw | ((raw == 0) * U32(1 << (F32.mantissa_bits - 1)))
    result: Singles = select(raw == U32(F32.infinity or 0), U32(F32.nan or 0), raw).view(np.float32)
    return result


def to_double(a: Bits, fmt: Format) -> Doubles:
    """Patterns of any format as float64 values; exact."""
    if fmt is F64:
        return a.view(np.float64)
    return to_single(a, fmt).astype(np.float64)


def clamp_unit(a: Bits, fmt: Format) -> Bits:
    """Patterns clamped to [0, 1], NaN and minus zero as +0 (ISA .sat)."""
    unsigned = a.dtype.type
    one = unsigned(fmt.one << fmt.padding)
    infinity = unsigned((fmt.infinity or 0) << fmt.padding)
    # Above infinity lie the NaNs and every negative number.
    result: Bits = np.minimum(a, one) * (a <= infinity)
    return result

"""Signs, minimum and maximum, comparison and tests of f16, bf16, f32 and f64 patterns.

PTX ISA 9.1: "Floating Point Instructions", "Half Precision Floating Point Instructions" (abs, neg,
min, max, copysign, testp), and "Comparison and Selection Instructions", "Operators".
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from ._elementwise import any_lane, select
from ._images import flush, image_bits, is_nan, ordered_image
from .formats import F32, F64, Bits, Format, Mask

__all__ = [
    "Comparison",
    "NumberClass",
    "abs_",
    "compare",
    "copysign",
    "max_",
    "min_",
    "neg",
    "rank",
    "ranked",
    "testp",
]

Comparison: TypeAlias = Literal[
    "eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"
]
"""Comparison operators of floats; the second group is true when an operand is NaN."""

NumberClass: TypeAlias = Literal[
    "finite", "infinite", "number", "notanumber", "normal", "subnormal"
]
"""What testp can ask."""


def neg(a: Bits, *, fmt: Format, ftz: bool = False, keep_nan: bool = False) -> Bits:
    """``-a`` (ISA neg).

    The manual leaves NaN open.  ptxas folds it to the canonical NaN for single f16 and bf16, and
    turns the sign bit otherwise: the packed forms ask for that with ``keep_nan``.
    """
    if ftz:
        a = flush(a, fmt)
    turned: Bits = a ^ fmt.dtype.type(fmt.sign)
    return turned if keep_nan else _quiet_half(turned, fmt)


def abs_(a: Bits, *, fmt: Format, ftz: bool = False, keep_nan: bool = False) -> Bits:
    """The magnitude of ``a`` (ISA abs); NaN as in :func:`neg`."""
    if ftz:
        a = flush(a, fmt)
    magnitude: Bits = a & fmt.dtype.type(fmt.sign - 1)
    return magnitude if keep_nan else _quiet_half(magnitude, fmt)


def _quiet_half(a: Bits, fmt: Format) -> Bits:
    if fmt is F32 or fmt is F64:
        return a
    nan = is_nan(a, fmt)
    return select(nan, fmt.dtype.type(fmt.nan or 0), a) if any_lane(nan) else a


def copysign(a: Bits, b: Bits, *, fmt: Format) -> Bits:
    """The value of ``b`` with the sign of ``a`` (ISA copysign: C has them the other way round)."""
    sign = fmt.dtype.type(fmt.sign)
    result: Bits = (a & sign) | (b & ~sign)
    return result


def min_(
    a: Bits,
    b: Bits,
    *,
    fmt: Format,
    ftz: bool = False,
    nan: bool = False,
    xorsign_abs: bool = False,
) -> Bits:
    """The lesser operand (ISA min): -0 is below +0, a single NaN loses unless ``.NaN``."""
    return _extreme(a, b, fmt, False, ftz, nan, xorsign_abs)


def max_(
    a: Bits,
    b: Bits,
    *,
    fmt: Format,
    ftz: bool = False,
    nan: bool = False,
    xorsign_abs: bool = False,
) -> Bits:
    """The greater operand (ISA max): -0 is below +0, a single NaN loses unless ``.NaN``."""
    return _extreme(a, b, fmt, True, ftz, nan, xorsign_abs)


def _extreme(
    a: Bits, b: Bits, fmt: Format, greatest: bool, ftz: bool, nan: bool, xorsign_abs: bool
) -> Bits:
    if ftz:
        a, b = flush(a, fmt), flush(b, fmt)
    if xorsign_abs:
        sign = fmt.dtype.type(fmt.sign)
        signs = (a ^ b) & sign
        a, b = a & ~sign, b & ~sign
    x, y = ordered_image(a, fmt), ordered_image(b, fmt)
    value = np.maximum(x, y) if greatest else np.minimum(x, y)
    bits = image_bits(value, fmt)
    same = x == y
    if any_lane(same & (value == 0)):
        # Equal operands differ at most in the sign of zero.
        bits = select(same, (a & b) if greatest else (a | b), bits)
    bad = np.isnan(value)
    if any_lane(bad):
        if not nan:  # fmin and fmax would treat signalling NaNs as the platform likes
            bits = select(np.isnan(x), b, select(np.isnan(y), a, bits))
            bad = np.isnan(x) & np.isnan(y)
        bits = select(bad, fmt.dtype.type(fmt.nan or 0), bits)
    return bits | (signs * ~bad) if xorsign_abs else bits


def rank(a: Bits, *, lowest_nan: bool) -> Bits:
    """Unsigned numbers in the order of f32 patterns, -0 below +0; NaN below or above all."""
    sign = np.uint32(F32.sign)
    turned = a ^ ((a >> np.uint32(31)) * np.uint32(0x7FFF_FFFF) | sign)
    end = np.uint32(0 if lowest_nan else 0xFFFF_FFFF)
    return select(is_nan(a, F32), end, turned)


def ranked(number: Bits) -> Bits:
    """The f32 pattern of a number of :func:`rank`; every NaN the canonical one."""
    sign = np.uint32(F32.sign)
    bits = number ^ ((~number >> np.uint32(31)) * np.uint32(0x7FFF_FFFF) | sign)
    return select(is_nan(bits, F32), np.uint32(F32.nan or 0), bits)


def compare(op: Comparison, a: Bits, b: Bits, *, fmt: Format, ftz: bool = False) -> Mask:
    """The truth of ``a op b`` (ISA set and setp): +0 equals -0, plain ``ne`` is false with NaN."""
    if ftz:
        a, b = flush(a, fmt), flush(b, fmt)
    x, y = ordered_image(a, fmt), ordered_image(b, fmt)
    result: Mask
    match op:
        case "eq":
            result = x == y
        case "ne":
            result = (x < y) | (x > y)
        case "lt":
            result = x < y
        case "le":
            result = x <= y
        case "gt":
            result = x > y
        case "ge":
            result = x >= y
        case "equ":
            result = ~((x < y) | (x > y))
        case "neu":
            result = x != y
        case "ltu":
            result = ~(x >= y)
        case "leu":
            result = ~(x > y)
        case "gtu":
            result = ~(x <= y)
        case "geu":
            result = ~(x < y)
        case "num":
            result = ~(np.isnan(x) | np.isnan(y))
        case "nan":
            result = np.isnan(x) | np.isnan(y)
    return result


def testp(kind: NumberClass, a: Bits, *, fmt: Format) -> Mask:
    """Whether ``a`` is of a class (ISA testp): zero counts as normal."""
    unsigned = fmt.dtype.type
    magnitude = a & unsigned(fmt.sign - 1)
    infinity = unsigned(fmt.infinity or 0)
    smallest = unsigned(fmt.smallest_normal)
    result: Mask
    match kind:
        case "finite":
            result = magnitude < infinity
        case "infinite":
            result = magnitude == infinity
        case "number":
            result = magnitude <= infinity
        case "notanumber":
            result = magnitude > infinity
        case "normal":
            result = (magnitude < infinity) & ((magnitude >= smallest) | (magnitude == 0))
        case "subnormal":
            result = (magnitude < smallest) & (magnitude != 0)
    return result

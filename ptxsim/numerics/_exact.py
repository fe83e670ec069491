"""Exact floating-point steps in integer arithmetic: unpack, fused product and sum, round, pack.

These are the general paths.  They cost some hundred integer operations and serve the rare
roundings, the narrow formats and the lanes that a fast path cannot decide.  A finite magnitude is
held as ``significand * 2**(exponent - 63)`` with the top bit of the 64-bit significand set, or as
significand zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ._elementwise import select
from .formats import F64, Bits, Format, Mask, Rounding

__all__ = ["Unpacked", "narrow", "normalize", "product_sum", "round_pack", "unpack"]

U64 = np.uint64
I64 = np.int64
_ONE = U64(1)
_FRACTION = U64((1 << 52) - 1)
_HIDDEN = U64(1 << 52)
_MAGNITUDE = U64((1 << 63) - 1)
_LOW = U64(0xFFFF_FFFF)
_HALF_WORD = U64(32)
_ZERO_EXPONENT = I64(-6000)
"""An exponent below every product, so that a zero never decides an alignment."""


@dataclass(frozen=True, slots=True)
class Unpacked:
    """Sign (0 or 1), normalised significand and exponent of finite numbers."""

    sign: Bits
    significand: Bits
    exponent: Bits


def leading_zeros(a: Bits) -> Bits:
    """Number of zero bits above the top bit of 64-bit patterns; 64 for zero."""
    for distance in (1, 2, 4, 8, 16, 32):
        a = a | (a >> U64(distance))
    return np.bitwise_count(~a).astype(U64)


def normalize(sign: Bits, magnitude: Bits) -> Unpacked:
    """The integer ``magnitude`` with its top bit moved to bit 63."""
    shift = leading_zeros(magnitude)
    return Unpacked(sign, magnitude << shift, I64(63) - shift.astype(I64))


def unpack(a: Bits) -> Unpacked:
    """Finite f64 patterns; the answer for infinities and NaNs means nothing."""
    field = (a & _MAGNITUDE) >> U64(52)
    fraction = a & _FRACTION
    normal = (field != 0) * _HIDDEN
    raw = normalize(a >> U64(63), fraction | normal)
    exponent = np.maximum(field.astype(I64), I64(1)) + raw.exponent - I64(1023 + 52)
    zero = (raw.significand == 0).astype(I64)
    return Unpacked(raw.sign, raw.significand, exponent + zero * _ZERO_EXPONENT)


def round_pack(
    a: Unpacked,
    fmt: Format,
    rounding: Rounding,
    *,
    saturate: bool = False,
    random: Bits | None = None,
    random_bits: int = 0,
) -> Bits:
    """Round to ``fmt`` and pack (ISA rounding modifiers), as uint64 patterns.

    With ``saturate`` a magnitude beyond the largest finite one becomes that one; otherwise it
    becomes infinity where the rounding says so.  ``random`` holds the bits of ``.rs``.  The lowest
    significand bit may stand for everything below it.
    """
    mantissa = fmt.mantissa_bits
    biased = a.exponent + I64(fmt.bias)
    below = np.maximum(I64(1) - biased, I64(0))
    # One bit of headroom keeps every shift below 64; the lost bit stays as a sticky bit.
    significand = (a.significand >> _ONE) | (a.significand & _ONE)
    deeper = np.maximum(below - I64(mantissa + 1), I64(0))
    if rounding == "rs":  # random bits reach further down than a sticky bit tells
        significand = significand >> np.minimum(deeper, I64(63)).astype(U64)
    else:
        significand = select(deeper != 0, (significand != 0).astype(U64), significand)
    shift = (I64(62 - mantissa) + np.minimum(below, I64(mantissa + 1))).astype(U64)
    kept = significand >> shift
    rest = significand & ((_ONE << shift) - _ONE)
    up = _increment(a.sign, kept, rest, shift, rounding, random, random_bits)
    field = np.clip(biased, I64(1), I64(1 << fmt.exponent_bits) + I64(1)) - I64(1)
    magnitude = (field.astype(U64) << U64(mantissa)) * (a.significand != 0) + kept + up
    magnitude = _overflow(a.sign, magnitude, fmt, rounding, saturate)
    return magnitude | (a.sign * U64(fmt.sign))


def _increment(
    sign: Bits,
    kept: Bits,
    rest: Bits,
    shift: Bits,
    rounding: Rounding,
    random: Bits | None,
    random_bits: int,
) -> Bits:
    """One where the magnitude is rounded up, as uint64."""
    up: Mask
    if rounding == "rz":
        up = np.zeros(1, np.bool_)
    elif rounding == "rp":
        up = (rest != 0) & (sign == 0)
    elif rounding == "rm":
        up = (rest != 0) & (sign != 0)
    elif rounding == "rs":
        assert random is not None and random_bits > 0
        top = rest >> (shift - U64(random_bits))
        up = (top + random.astype(U64)) >= U64(1 << random_bits)
    else:
        half = _ONE << (shift - _ONE)
        tie_up = np.ones(1, np.bool_) if rounding == "rna" else (kept & _ONE) != 0
        up = (rest > half) | ((rest == half) & tie_up)
    return up.astype(U64)


def _overflow(sign: Bits, magnitude: Bits, fmt: Format, rounding: Rounding, saturate: bool) -> Bits:
    """Magnitudes beyond the largest finite one, replaced as the rounding says."""
    largest = U64(fmt.largest)
    if saturate or fmt.infinity is None or rounding == "rz":
        return np.minimum(magnitude, largest)
    infinity = U64(fmt.infinity)
    magnitude = np.minimum(magnitude, infinity)
    if rounding in ("rm", "rp"):
        toward_infinity = (sign != 0) if rounding == "rm" else (sign == 0)
        return select((magnitude == infinity) & ~toward_infinity, largest, magnitude)
    return magnitude


def narrow(
    a: Bits,
    fmt: Format,
    rounding: Rounding,
    *,
    saturate: bool = False,
    random: Bits | None = None,
    random_bits: int = 0,
) -> Bits:
    """f64 patterns rounded to ``fmt``, as uint64 patterns; infinities and NaNs included.

    NaN becomes the canonical NaN, or the largest number where the format has none.
    """
    mag = a & _MAGNITUDE
    infinity = U64(F64.infinity or 0)
    # An infinity unpacks as 2**1024, beyond every narrower format; only its rounding is exact.
    finite = round_pack(
        unpack(a), fmt, rounding, saturate=saturate, random=random, random_bits=random_bits
    )
    top = U64(fmt.largest if saturate or fmt.infinity is None else fmt.infinity)
    signed_top = top | ((a >> U64(63)) * U64(fmt.sign))
    out = select(mag == infinity, signed_top, finite)
    return select(mag > infinity, U64(fmt.largest if fmt.nan is None else fmt.nan), out)


def _multiply(a: Bits, b: Bits) -> tuple[Bits, Bits]:
    """The 128-bit product of 64-bit patterns, high word first."""
    al, ah, bl, bh = a & _LOW, a >> _HALF_WORD, b & _LOW, b >> _HALF_WORD
    low = al * bl
    middle = ah * bl + (low >> _HALF_WORD)
    cross = al * bh + (middle & _LOW)
    high = ah * bh + (middle >> _HALF_WORD) + (cross >> _HALF_WORD)
    return high, (cross << _HALF_WORD) | (low & _LOW)


def _shift_right(high: Bits, low: Bits, by: Bits) -> tuple[Bits, Bits]:
    """128-bit right shift by 0 to 127; bits shifted out are kept as a sticky lowest bit.

    NumPy shifts by 64 and more give zero, and a negative distance wraps to such a one.
    """
    over, under = by - U64(64), U64(64) - by
    h = high >> by
    lo = (low >> by) | (high << under) | (high >> over)
    back_high = (h << by) | (lo >> under) | (lo << over)
    lost = ((lo << by) != low) | (back_high != high)
    return h, lo | lost.astype(U64)


def product_sum(a: Bits, b: Bits, c: Bits) -> Unpacked:
    """``a * b + c`` of finite f64 patterns before any rounding, lowest bit sticky.

    The sign of an exact zero is meaningless here: it depends on the rounding.
    """
    x, y, z = unpack(a), unpack(b), unpack(c)
    # Significands of 63 bits: the product has 125 or 126 bits, the addend is put 127 bits high.
    p_high, p_low = _multiply(x.significand >> _ONE, y.significand >> _ONE)
    c_high = (z.significand >> _ONE) + np.zeros_like(p_high)
    c_low = np.zeros_like(c_high)
    p_scale = x.exponent + y.exponent - I64(124)
    c_scale = z.exponent - I64(126)
    return _add_aligned(x.sign ^ y.sign, (p_high, p_low), p_scale, z.sign, (c_high, c_low), c_scale)


def _add_aligned(
    p_sign: Bits,
    p: tuple[Bits, Bits],
    p_scale: Bits,
    c_sign: Bits,
    c: tuple[Bits, Bits],
    c_scale: Bits,
) -> Unpacked:
    """Signed sum of two 127-bit integers with scales, normalised.

    The operand of the smaller scale is shifted right.  It loses bits only when it is so much
    smaller that at most one bit cancels, so a sticky bit decides every rounding.
    """
    distance = c_scale - p_scale
    limit = I64(127)
    p_high, p_low = _shift_right(*p, np.clip(distance, I64(0), limit).astype(U64))
    c_high, c_low = _shift_right(*c, np.clip(-distance, I64(0), limit).astype(U64))
    scale = np.maximum(p_scale, c_scale)
    differ = (p_sign ^ c_sign) != 0
    p_less = (p_high < c_high) | ((p_high == c_high) & (p_low < c_low))
    # p + c, or the larger minus the smaller: negating the smaller makes both one addition.
    big_high, big_low = select(p_less, c_high, p_high), select(p_less, c_low, p_low)
    small_high, small_low = select(p_less, p_high, c_high), select(p_less, p_low, c_low)
    mask = U64(0) - differ.astype(U64)
    negated_low = (small_low ^ mask) + differ
    negated_high = (small_high ^ mask) + (differ & (small_low == 0))
    low = big_low + negated_low
    high = big_high + negated_high + (low < big_low)
    sign = select(p_less, c_sign, p_sign)
    return _normalize_pair(sign, high, low, scale)


def _normalize_pair(sign: Bits, high: Bits, low: Bits, scale: Bits) -> Unpacked:
    """A 128-bit integer times ``2**scale`` as a 64-bit significand with a sticky bit."""
    empty = high == 0
    top = select(empty, low, high)
    rest = low * ~empty
    shift = leading_zeros(top)
    significand = (top << shift) | (rest >> (U64(64) - shift))
    significand = significand | ((rest << shift) != 0)
    exponent = scale + I64(127) - shift.astype(I64) - empty * I64(64)
    return Unpacked(sign, significand, exponent)

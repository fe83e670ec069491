"""Arithmetic of f64: NumPy rounds to nearest; the rest is built on exact integer arithmetic."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ._elementwise import any_lane, select
from ._exact import Unpacked, product_sum, round_pack
from .formats import F64, Bits, Mask, Rounding

__all__ = ["fused", "quotient", "root"]

U64 = np.uint64
Floats = npt.NDArray[np.float64]

_SIGN = U64(1 << 63)
_MAGNITUDE = U64((1 << 63) - 1)
_INFINITY = U64(F64.infinity or 0)
# Factors whose product and its error stay normal, and addends that no step can overflow.
_FACTOR_LOW = U64((1023 - 480) << 52)
_FACTOR_RANGE = U64(960 << 52)
_ADDEND_HIGH = U64((1023 + 1000) << 52)
_SPLIT = np.float64((1 << 27) + 1)


def fused(a: Bits, b: Bits, c: Bits, rounding: Rounding) -> Floats:
    """``a * b + c`` of f64 patterns, rounded once."""
    if rounding != "rn":
        return _exact_fused(a, b, c, rounding)
    easy = _moderate(a) & _moderate(b) & ((c & _MAGNITUDE) <= _ADDEND_HIGH)
    fast = _fast_fused(a.view(np.float64), b.view(np.float64), c.view(np.float64))
    if any_lane(~easy):
        exact = _exact_fused(a, b, c, rounding)
        fast = select(easy, fast.view(U64), exact.view(U64)).view(np.float64)
    return fast


def _moderate(a: Bits) -> Mask:
    """Zeros, and magnitudes in the range where the fast path is exact."""
    magnitude = a & _MAGNITUDE
    mask: Mask = ((magnitude - _FACTOR_LOW) <= _FACTOR_RANGE) | (magnitude == 0)
    return mask


def _fast_fused(a: Floats, b: Floats, c: Floats) -> Floats:
    """Product and sums without error, the small parts rounded to odd, then one rounding.

    After Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008.
    """
    high, low = _two_product(a, b)
    total_high, total_low = _two_sum(c, low)
    value, rest = _two_sum(high, total_high)
    tail, error = _two_sum(total_low, rest)
    toward_zero = ((error < 0) & (tail > 0)) | ((error > 0) & (tail < 0))
    odd = (tail.view(U64) - toward_zero) | (error != 0)
    result: Floats = value + odd.view(np.float64)
    zero = result == 0
    if any_lane(zero):  # an exact zero has the sign of the plain sum
        plain = high + c
        result = select(zero, plain.view(U64), result.view(U64)).view(np.float64)
    return result


def _two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """The rounded sum and its error."""
    total = a + b
    part = total - a
    error = total - part
    np.subtract(a, error, out=error)
    error += b - part
    return total, error


def _two_product(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """The rounded product and its error, by splitting the factors into halves (Dekker)."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _split(a), _split(b)
    error = a_high * b_high
    error -= product
    error += a_high * b_low
    error += a_low * b_high
    error += a_low * b_low
    return product, error


def _split(a: Floats) -> tuple[Floats, Floats]:
    """Two numbers of at most 26 bits whose sum is ``a``."""
    scaled = a * _SPLIT
    high = scaled - (scaled - a)
    return high, a - high


def _finite(a: Bits) -> Mask:
    mask: Mask = (a & _MAGNITUDE) < _INFINITY
    return mask


def _exact_fused(a: Bits, b: Bits, c: Bits, rounding: Rounding) -> Floats:
    """``a * b + c`` by integer arithmetic, for every input and rounding."""
    parts = product_sum(a, b, c)
    bits = round_pack(parts, F64, rounding)
    signs = ((a ^ b) | c) if rounding == "rm" else ((a ^ b) & c)
    bits = select(parts.significand == 0, signs & _SIGN, bits)
    factors = _finite(a) & _finite(b)
    x, y, z = a.view(np.float64), b.view(np.float64), c.view(np.float64)
    # Finite factors may not overflow and meet an infinite addend of the other sign.
    special = select(factors, z.view(U64), (x * y + z).view(U64))
    return select(factors & _finite(c), bits, special).view(np.float64)


def quotient(a: Bits, b: Bits, rounding: Rounding) -> Floats:
    """``a / b`` of f64 patterns."""
    nearest: Floats = a.view(np.float64) / b.view(np.float64)
    if rounding == "rn":
        return nearest
    bits = nearest.view(U64)
    residual = product_sum(bits ^ _SIGN, b, a)
    negative = (residual.sign ^ (b >> U64(63))) != 0
    overflown = ~_finite(bits)
    inexact = _finite(a) & _finite(b) & ((b & _MAGNITUDE) != 0)
    inexact &= (residual.significand != 0) | overflown
    below = select(overflown, bits < _SIGN, negative)
    return _step(bits, inexact & below, inexact & ~below, rounding)


def root(a: Bits, rounding: Rounding) -> Floats:
    """The square root of f64 patterns."""
    nearest: Floats = np.sqrt(a.view(np.float64))
    if rounding == "rn":
        return nearest
    bits = nearest.view(U64)
    residual: Unpacked = product_sum(bits ^ _SIGN, bits, a)
    inexact = _finite(bits) & (residual.significand != 0)
    below = residual.sign != 0
    return _step(bits, inexact & below, inexact & ~below, rounding)


def _step(nearest: Bits, below: Mask, above: Mask, rounding: Rounding) -> Floats:
    """Move a result rounded to nearest where the exact value lies ``below`` or ``above`` it."""
    negative = nearest >= _SIGN
    if rounding == "rz":
        smaller = (above & negative) | (below & ~negative)
        return (nearest - smaller).view(np.float64)
    wrong = below if rounding == "rm" else above
    grow = negative if rounding == "rm" else ~negative
    return (nearest + (wrong & grow) - (wrong & ~grow)).view(np.float64)

"""Arithmetic of f32 carried out in NumPy's float64, rounded once.

A float64 has more than twice the bits of an f32, so products are exact and quotients and roots
never come near enough to a rounding boundary of f32 to be rounded twice wrongly.  Sums can be:
they are rounded to odd first, after which any narrower rounding is right.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ._elementwise import any_lane, select
from .formats import Mask, Rounding

__all__ = ["fused", "odd_single", "odd_sum", "rounded", "total"]

U32 = np.uint32
U64 = np.uint64
Floats = npt.NDArray[Any]

_TIE = U32(1 << 31)
_SIGN = U32(1 << 31)
_ONE = U32(1)
_SMALLEST_TWICE = U32(0x0100_0000)


def odd_sum(p: Floats, c: Floats) -> Floats:
    """The float64 sum rounded to odd: truncated, lowest bit set when inexact.

    Infinities and NaNs pass.  Operands must be values and products of f32, so that no step
    overflows and no product of error and sum underflows.
    """
    plain = p + c
    part = plain - p
    error = (p - (plain - part)) + (c - part)
    # Comparisons, because the error of an infinite sum is NaN.
    toward_zero, inexact = error * plain < 0, (error < 0) | (error > 0)
    bits = (plain.view(U64) - toward_zero) | inexact
    result: Floats = bits.view(np.float64)
    return result


def rounded(exact: Floats, rounding: Rounding) -> npt.NDArray[np.float32]:
    """float64 values narrowed to float32 with a directed or nearest rounding."""
    nearest = exact.astype(np.float32)
    if rounding == "rn":
        return nearest
    bits = nearest.view(U32)
    wide = nearest.astype(np.float64)
    sign = bits >= _SIGN
    if rounding == "rz":
        stepped = bits - (np.abs(exact) < np.abs(wide))
    else:
        wrong = exact < wide if rounding == "rm" else exact > wide
        grow = sign if rounding == "rm" else ~sign
        stepped = bits + (wrong & grow) - (wrong & ~grow)
    result: npt.NDArray[np.float32] = stepped.view(np.float32)
    return result


def odd_single(exact: Floats) -> npt.NDArray[np.float32]:
    """float64 values rounded to odd in float32, from which bf16 is rounded rightly."""
    cut = rounded(exact, "rz")
    odd: npt.NDArray[np.float32] = (cut.view(U32) | (cut != exact)).view(np.float32)
    return odd


def total(a: Floats, b: Floats, rounding: Rounding) -> npt.NDArray[np.float32]:
    """``a + b`` of float32 values with a directed rounding."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    exact = odd_sum(x, y)
    return rounded(signed_zero_sum(exact, x, y) if rounding == "rm" else exact, rounding)


def fused(a: Floats, b: Floats, c: Floats, rounding: Rounding) -> npt.NDArray[np.float32]:
    """``a * b + c`` of float32 values, rounded once."""
    product, addend = _product(a, b), c.astype(np.float64)
    if rounding != "rn":
        exact = odd_sum(product, addend)
        if rounding == "rm":
            exact = signed_zero_sum(exact, product, addend)
        return rounded(exact, rounding)
    plain = product + addend
    result: npt.NDArray[np.float32] = plain.astype(np.float32)
    if any_lane(_undecided(plain, result)):
        result = odd_sum(product, addend).astype(np.float32)
    return result


def _product(a: Floats, b: Floats) -> Floats:
    """The exact product of float32 values; the work is done in place when shapes allow."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    if len(x) < len(y):
        x, y = y, x
    x *= y
    return x


def _undecided(plain: Floats, result: npt.NDArray[np.float32]) -> Mask:
    """Lanes where the error of ``plain`` may decide how it rounds to float32.

    For normal results these are the ties, seen in the 29 bits below an f32; for a subnormal result
    (or the smallest normal one, which may come from below) the boundary lies elsewhere.
    """
    low = plain.view(U64).astype(U32)  # 29 bits lie below an f32; three more are shifted out
    low <<= U32(3)
    mask: Mask = low == _TIE
    twice = result.view(U32) << _ONE
    twice -= _ONE
    mask |= twice < _SMALLEST_TWICE
    return mask


def signed_zero_sum(exact: Floats, p: Floats, c: Floats) -> Floats:
    """``exact = p + c`` with the sign that rounding down gives a zero: minus unless both are +0."""
    negative = (p.view(U64) | c.view(U64)) & U64(1 << 63)
    result: Floats = select(exact == 0, negative, exact.view(U64)).view(np.float64)
    return result

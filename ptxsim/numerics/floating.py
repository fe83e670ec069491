"""Floating-point arithmetic, comparison and tests on bit patterns of f16, bf16, f32 and f64.

PTX ISA 9.1, "Floating Point Instructions", "Half Precision Floating Point Instructions" and
"Comparison and Selection Instructions".  Every function is exact to the last bit.  A NaN result of
arithmetic is the canonical NaN of the format.  ``.ftz`` reads subnormal operands as signed zeros
and flushes subnormal rounded results; ``.sat`` makes -0 and NaN +0.
"""

from __future__ import annotations

import numpy as np

from . import _double, _single
from ._images import Floats, canonical, finish, flush, pack_half, saturate, widen_half
from ._images import relu as relu_value
from .comparison import abs_, compare, copysign, max_, min_, neg, testp
from .formats import F16, F32, F64, Bits, Format, Rounding

__all__ = [
    "abs_",
    "add",
    "compare",
    "copysign",
    "div",
    "fma",
    "max_",
    "min_",
    "mul",
    "neg",
    "rcp",
    "sqrt",
    "sub",
    "testp",
]

_ONE64 = np.full(1, F64.one, np.uint64)
_SIGN64 = np.uint64(F64.sign)


def add(
    a: Bits,
    b: Bits,
    *,
    fmt: Format,
    rounding: Rounding = "rn",
    ftz: bool = False,
    sat: bool = False,
) -> Bits:
    """``a + b`` (ISA add); f16 and bf16 round to nearest only."""
    if ftz:
        a, b = flush(a, fmt), flush(b, fmt)
    if fmt is F32:
        x, y = a.view(np.float32), b.view(np.float32)
        return finish(x + y if rounding == "rn" else _single.total(x, y, rounding), fmt, ftz, sat)
    if fmt is F64:
        if rounding == "rn":
            return finish(a.view(np.float64) + b.view(np.float64), fmt, False, sat)
        return finish(_double.fused(a, _ONE64, b, rounding), fmt, False, sat)
    return _finish_half(widen_half(a, fmt) + widen_half(b, fmt), fmt, ftz, sat)


def sub(
    a: Bits,
    b: Bits,
    *,
    fmt: Format,
    rounding: Rounding = "rn",
    ftz: bool = False,
    sat: bool = False,
) -> Bits:
    """``a - b`` (ISA sub): the sum with the sign of ``b`` turned, NaNs being canonical anyway."""
    if fmt is F32 and rounding == "rn" and not ftz:
        return finish(a.view(np.float32) - b.view(np.float32), fmt, False, sat)
    return add(a, b ^ fmt.dtype.type(fmt.sign), fmt=fmt, rounding=rounding, ftz=ftz, sat=sat)


def mul(
    a: Bits,
    b: Bits,
    *,
    fmt: Format,
    rounding: Rounding = "rn",
    ftz: bool = False,
    sat: bool = False,
) -> Bits:
    """``a * b`` (ISA mul); f16 and bf16 round to nearest only."""
    if ftz:
        a, b = flush(a, fmt), flush(b, fmt)
    if fmt is F32:
        x, y = a.view(np.float32), b.view(np.float32)
        if rounding == "rn":
            return finish(x * y, fmt, ftz, sat)
        exact = x.astype(np.float64) * y
        return finish(_single.rounded(exact, rounding), fmt, ftz, sat)
    if fmt is F64:
        if rounding == "rn":
            return finish(a.view(np.float64) * b.view(np.float64), fmt, False, sat)
        zero = (a ^ b) & _SIGN64
        return finish(_double.fused(a, b, zero, rounding), fmt, False, sat)
    x, y = widen_half(a, fmt), widen_half(b, fmt)
    if fmt is F16:  # 22 bits: exact in float32
        return _finish_half(x * y, fmt, ftz, sat)
    return _finish_half(_single.odd_single(x.astype(np.float64) * y), fmt, ftz, sat)


def fma(
    a: Bits,
    b: Bits,
    c: Bits,
    *,
    fmt: Format,
    rounding: Rounding = "rn",
    ftz: bool = False,
    sat: bool = False,
    relu: bool = False,
) -> Bits:
    """``a * b + c`` with one rounding (ISA fma, mad of floats); f16 and bf16 to nearest only."""
    if ftz:
        a, b, c = flush(a, fmt), flush(b, fmt), flush(c, fmt)
    if fmt is F32:
        x, y, z = a.view(np.float32), b.view(np.float32), c.view(np.float32)
        return finish(_single.fused(x, y, z, rounding), fmt, ftz, sat)
    if fmt is F64:
        return finish(_double.fused(a, b, c, rounding), fmt, False, sat)
    product = widen_half(a, fmt).astype(np.float64) * widen_half(b, fmt)
    addend = widen_half(c, fmt).astype(np.float64)
    # f16: where this sum is inexact in float64, neither operand lets it lie near a tie of f16.
    exact = product + addend if fmt is F16 else _single.odd_sum(product, addend)
    value = exact if fmt is F16 else _single.odd_single(exact)
    return _finish_half(value, fmt, ftz, sat, relu)


def _finish_half(value: Floats, fmt: Format, ftz: bool, sat: bool, to_relu: bool = False) -> Bits:
    """Round a wider value to f16 or bf16; clamping commutes with rounding."""
    if sat:
        value = saturate(value)
    if to_relu:
        value = relu_value(value)
    bits = pack_half(value, fmt)
    return flush(bits, fmt) if ftz else bits


def div(
    a: Bits,
    b: Bits,
    *,
    fmt: Format,
    rounding: Rounding = "rn",
    ftz: bool = False,
) -> Bits:
    """``a / b`` of f32 or f64, IEEE 754 (ISA div with a rounding)."""
    if fmt is F64:
        return canonical(_double.quotient(a, b, rounding), fmt)
    if ftz:
        a, b = flush(a, fmt), flush(b, fmt)
    x, y = a.view(np.float32), b.view(np.float32)
    if rounding == "rn":
        return finish(x / y, fmt, ftz, False)
    return finish(_single.rounded(x.astype(np.float64) / y, rounding), fmt, ftz, False)


def rcp(a: Bits, *, fmt: Format, rounding: Rounding = "rn", ftz: bool = False) -> Bits:
    """``1 / a`` of f32 or f64, IEEE 754 (ISA rcp with a rounding)."""
    one = np.full(1, fmt.one, fmt.dtype)
    return div(one, a, fmt=fmt, rounding=rounding, ftz=ftz)


def sqrt(a: Bits, *, fmt: Format, rounding: Rounding = "rn", ftz: bool = False) -> Bits:
    """The square root of f32 or f64, IEEE 754 (ISA sqrt with a rounding)."""
    if fmt is F64:
        return canonical(_double.root(a, rounding), fmt)
    if ftz:
        a = flush(a, fmt)
    x = a.view(np.float32)
    if rounding == "rn":
        return finish(np.sqrt(x), fmt, ftz, False)
    return finish(_single.rounded(np.sqrt(x.astype(np.float64)), rounding), fmt, ftz, False)

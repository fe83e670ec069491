"""The documented approximations: results here are rounded from float64 and marked approximate.

PTX ISA 9.1, "Floating Point Instructions" and "Half Precision Floating Point Instructions": rcp,
rsqrt, sqrt, sin, cos, lg2, ex2, tanh with .approx, div.approx, div.full.  Machines differ from
these results within the bounds of the manual; special operands give exactly what its tables say.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from . import _single
from ._elementwise import any_lane, select
from ._images import Floats, canonical, finish, flush, is_nan, pack_half, widen_half
from .formats import BF16, F16, F32, F64, Bits, Format

__all__ = [
    "cos",
    "cos_of_turns",
    "div_approx",
    "div_full",
    "ex2",
    "lg2",
    "rcp",
    "rcp_gross",
    "rsqrt",
    "rsqrt_gross",
    "sin",
    "sin_of_turns",
    "sqrt",
    "tanh",
]

U32 = np.uint32
U64 = np.uint64
_LOW_WORD = U64(0xFFFF_FFFF)
_GROSS_NAN = U64(0x7FFF_FFFF_0000_0000)


def _through_double(function: Callable[[Floats], Floats], a: Bits, fmt: Format, ftz: bool) -> Bits:
    """Evaluate in float64 and round once to ``fmt``."""
    if ftz:
        a = flush(a, fmt)
    if fmt is F64:
        return canonical(function(a.view(np.float64)), fmt)
    if fmt is F32:
        exact = function(a.view(np.float32).astype(np.float64))
        return finish(exact.astype(np.float32), fmt, ftz, False)
    exact = function(widen_half(a, fmt).astype(np.float64))
    bits = pack_half(exact if fmt is F16 else _single.odd_single(exact), fmt)
    return flush(bits, fmt) if ftz else bits


def _reciprocal(x: Floats) -> Floats:
    result: Floats = 1.0 / x
    return result


def _reciprocal_root(x: Floats) -> Floats:
    result: Floats = 1.0 / np.sqrt(x)
    return result


def rcp(a: Bits, *, ftz: bool = False) -> Bits:
    """``1 / a`` (ISA rcp.approx.f32)."""
    return _through_double(_reciprocal, a, F32, ftz)


def rsqrt(a: Bits, *, fmt: Format = F32, ftz: bool = False) -> Bits:
    """``1 / sqrt(a)`` (ISA rsqrt.approx.f32, rsqrt.approx.f64)."""
    return _through_double(_reciprocal_root, a, fmt, ftz)


def sqrt(a: Bits, *, ftz: bool = False) -> Bits:
    """The square root (ISA sqrt.approx.f32)."""
    return _through_double(np.sqrt, a, F32, ftz)


def sin(a: Bits, *, ftz: bool = False) -> Bits:
    """The sine of radians (ISA sin.approx.f32)."""
    return _through_double(np.sin, a, F32, ftz)


def cos(a: Bits, *, ftz: bool = False) -> Bits:
    """The cosine of radians (ISA cos.approx.f32)."""
    return _through_double(np.cos, a, F32, ftz)


def sin_of_turns(a: Bits) -> Bits:
    """The sine of turns, ``sin(2 pi a)`` (ISA 9.5 sin.approx.ftz.2pi.f32).

    Zeros at half turns have the sign of the operand.
    """
    return _through_double(_sine_of_turns, a, F32, True)


def cos_of_turns(a: Bits) -> Bits:
    """The cosine of turns, ``cos(2 pi a)`` (ISA 9.5 cos.approx.ftz.2pi.f32); zeros are +0."""
    return _through_double(lambda x: _of_quarters(x, 1) + 0.0, a, F32, True)


def _sine_of_turns(x: Floats) -> Floats:
    sine = _of_quarters(x, 0)
    result: Floats = np.where(sine == 0, np.copysign(0.0, x), sine)
    return result


def _of_quarters(x: Floats, ahead: int) -> Floats:
    """The sine of ``x`` turns and ``ahead`` quarters; the nearest quarter is taken off exactly."""
    turn = x - np.rint(x)
    quarter = np.rint(4 * turn)
    rest = (2 * np.pi) * (turn - quarter / 4)
    odd = (quarter + ahead) % 2 != 0
    value = np.where(odd, np.cos(rest), np.sin(rest))
    result: Floats = np.where((quarter + ahead) % 4 >= 2, -value, value)
    return result


def lg2(a: Bits, *, ftz: bool = False) -> Bits:
    """The binary logarithm (ISA lg2.approx.f32); both zeros give minus infinity."""
    return _through_double(np.log2, a, F32, ftz)


def ex2(a: Bits, *, fmt: Format = F32, ftz: bool = False) -> Bits:
    """Two to the power ``a`` (ISA ex2.approx for f32, f16 and bf16; bf16 always flushes)."""
    return _through_double(np.exp2, a, fmt, ftz or fmt is BF16)


def tanh(a: Bits, *, fmt: Format = F32) -> Bits:
    """The hyperbolic tangent (ISA tanh.approx for f32, f16 and bf16); subnormals pass."""
    return _through_double(np.tanh, a, fmt, False)


def div_full(a: Bits, b: Bits, *, ftz: bool = False) -> Bits:
    """``a / b`` over the full range (ISA div.full.f32)."""
    if ftz:
        a, b = flush(a, F32), flush(b, F32)
    return finish(a.view(np.float32) / b.view(np.float32), F32, ftz, False)


def div_approx(a: Bits, b: Bits, *, ftz: bool = False) -> Bits:
    """``a * (1/b)`` (ISA div.approx.f32).

    Beyond 2**126 the reciprocal of ``b`` vanishes: infinite ``a`` gives NaN, others a zero.
    """
    quotient = div_full(a, b, ftz=ftz)
    magnitude = b & U32(F32.sign - 1)
    threshold = U32((127 + 126) << 23)
    vanishing = (magnitude > threshold) & (magnitude < U32(F32.infinity or 0))
    if any_lane(vanishing):
        zero = (b & U32(F32.sign)).view(np.float32)
        product = canonical(a.view(np.float32) * zero, F32)
        return select(vanishing, product, quotient)
    return quotient


def rcp_gross(a: Bits) -> Bits:
    """``1 / a`` from and to the upper 32 bits (ISA rcp.approx.ftz.f64)."""
    return _gross(_reciprocal, a)


def rsqrt_gross(a: Bits) -> Bits:
    """``1 / sqrt(a)`` from and to the upper 32 bits (ISA rsqrt.approx.ftz.f64)."""
    return _gross(_reciprocal_root, a)


def _gross(function: Callable[[Floats], Floats], a: Bits) -> Bits:
    # A NaN is recognised before the cut: its payload may lie in the low word alone.
    nan = is_nan(a, F64)
    cut = flush(a & ~_LOW_WORD, F64)
    bits = flush(function(cut.view(np.float64)).view(U64) & ~_LOW_WORD, F64)
    return select(nan | is_nan(bits, F64), _GROSS_NAN, bits)

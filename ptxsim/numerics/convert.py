"""Conversions between integers and floats of all widths.

PTX ISA 9.1, "Data Movement and Conversion Instructions: cvt" and "Type Conversion".  Packed forms
are in :mod:`ptxsim.numerics.convert_packed`.  Integer results have the width of the destination
type; extending them to a wider register is for the caller.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from . import _single
from ._elementwise import any_lane, select
from ._exact import narrow, normalize, round_pack
from ._images import (
    Floats,
    canonical,
    finish,
    flush,
    is_nan,
    pack_half,
    relu,
    saturate,
    widen_half,
)
from .formats import (
    BF16,
    F16,
    F32,
    F64,
    TF32,
    UE8M0,
    Bits,
    Format,
    IntegerRounding,
    Rounding,
)

__all__ = [
    "float_to_float",
    "float_to_int",
    "from_double",
    "int_to_float",
    "int_to_int",
    "round_to_integral",
    "to_double",
]

U32 = np.uint32
U64 = np.uint64
I64 = np.int64
_WIDENED_NAN = U64(0x7FFF_FFFF_E000_0000)
"""What ptxas folds for cvt.f64 of a NaN: the canonical f32 NaN, widened."""

_INTEGRAL: dict[IntegerRounding, Callable[[Floats], Floats]] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}


def int_to_int(
    a: Bits,
    *,
    from_width: int,
    from_signed: bool,
    to_width: int,
    to_signed: bool,
    sat: bool = False,
) -> Bits:
    """Integers cut or extended, or with .sat clamped to the destination range (ISA cvt).

    >>> int(int_to_int(np.array([0xFF], np.uint8), from_width=8, from_signed=True,
    ...                to_width=16, to_signed=False, sat=True)[0])
    0
    """
    source = np.dtype(f"{'i' if from_signed else 'u'}{from_width // 8}")
    target = np.dtype(f"u{to_width // 8}")
    value = a.view(source)
    if sat:
        low = -(1 << (to_width - 1)) if to_signed else 0
        high = (1 << (to_width - to_signed)) - 1
        own = np.iinfo(source)
        value = np.clip(value, source.type(max(low, own.min)), source.type(min(high, own.max)))
    return value.astype(target, copy=False)


def int_to_float(
    a: Bits,
    *,
    width: int,
    signed: bool,
    fmt: Format,
    rounding: Rounding = "rn",
    sat: bool = False,
) -> Bits:
    """Integers as floats, the exact value rounded (ISA cvt); .sat clamps to [0, 1]."""
    source = np.dtype(f"{'i' if signed else 'u'}{width // 8}")
    value = a.view(source)
    if sat:
        value = np.clip(value, source.type(0), source.type(1))
    if rounding == "rn" and (fmt is F32 or fmt is F64):
        real: Bits = value.astype(np.float32 if fmt is F32 else np.float64).view(fmt.dtype)
        return real
    if width < 64:
        return from_double(value.astype(np.float64), fmt, rounding, saturated=False)
    bits = value.view(U64)
    sign = (bits >> U64(63)) if signed else np.zeros_like(bits)
    magnitude = (bits ^ (U64(0) - sign)) + sign
    return round_pack(normalize(sign, magnitude), fmt, rounding).astype(fmt.dtype)


def float_to_int(
    a: Bits,
    *,
    fmt: Format,
    width: int,
    signed: bool,
    rounding: IntegerRounding,
    ftz: bool = False,
) -> Bits:
    """Floats rounded to integers and clamped to the destination range (ISA cvt).

    NaN gives 0, but the top bit alone when the source is f64 or the destination has 64 bits.
    """
    if ftz and fmt is F32:
        a = flush(a, fmt)
    integral = _INTEGRAL[rounding]
    if fmt is F32 and width == 32:
        whole = integral(a.view(np.float32))
        inside = (np.abs(whole) if signed else whole) < np.float32(2.0**31)
        if not signed:
            inside &= whole >= 0
        if not any_lane(~inside):
            quick: Bits = whole.astype(np.int32).view(U32)
            return quick
    value = integral(to_double(a, fmt))
    nan = np.isnan(value)
    bits = _clamped(value, nan, width, signed)
    special = 1 << (width - 1) if fmt is F64 or width == 64 else 0
    result = select(nan, U64(special), bits)
    return result.astype(f"u{width // 8}", copy=False)


def _clamped(value: Floats, nan: Bits, width: int, signed: bool) -> Bits:
    """Integral float64 values clamped and as two's complement in 64 bits; NaN as any number."""
    value = (value.view(U64) * ~nan).view(np.float64)
    low = -(2.0 ** (width - 1)) if signed else 0.0
    if width < 64:
        high = 2.0 ** (width - signed) - 1.0
        return np.clip(value, low, high).astype(I64).view(U64)
    limit = 2.0 ** (64 - signed)
    value = np.maximum(value, low)
    over = value >= limit
    # NumPy converts only to signed numbers portably: the upper half of u64 is moved down first.
    upper = (value >= 2.0**63) & ~over
    reduced = (value - upper * 2.0**63) * ~over
    bits = np.nan_to_num(reduced, copy=False).astype(I64).view(U64) + upper * U64(1 << 63)
    return select(over, U64((1 << (64 - signed)) - 1), bits)


def to_double(a: Bits, fmt: Format) -> Floats:
    """The numbers of any format as float64; exact, NaN stays NaN."""
    if fmt is F64:
        return a.view(np.float64)
    if fmt is F32 or fmt is TF32:
        return a.view(np.float32).astype(np.float64)
    if fmt is F16:
        return a.view(np.float16).astype(np.float64)
    if fmt is BF16:
        return widen_half(a, fmt).astype(np.float64)
    wide = a.astype(U64)
    magnitude = wide & U64((1 << (fmt.exponent_bits + fmt.mantissa_bits)) - 1)
    if fmt is UE8M0:
        bits = (magnitude + U64(1023 - fmt.bias)) << U64(52)
    else:
        # As a number of the f64 exponent range, then scaled back: subnormals come out right.
        raw = (magnitude << U64(52 - fmt.mantissa_bits)).view(np.float64)
        bits = (raw * 2.0 ** (1023 - fmt.bias)).view(U64)
        bits = bits | ((wide & U64(fmt.sign)) * U64((1 << 63) // max(fmt.sign, 1)))
    if fmt.infinity is not None:
        infinite = magnitude == U64(fmt.infinity)
        bits = select(infinite, (bits & U64(F64.sign)) | U64(F64.infinity or 0), bits)
    if fmt.nan is not None:
        lowest_nan = fmt.nan if fmt.infinity is None else fmt.infinity + 1
        bits = select(magnitude >= U64(lowest_nan), _WIDENED_NAN, bits)
    value: Floats = bits.view(np.float64)
    return value


def float_to_float(
    a: Bits,
    *,
    source: Format,
    target: Format,
    rounding: Rounding = "rn",
    ftz: bool = False,
    sat: bool = False,
    satfinite: bool = False,
    relu: bool = False,
    random: Bits | None = None,
    random_bits: int = 0,
) -> Bits:
    """Floats of one format as another (ISA cvt); widening is exact.

    ``ftz`` flushes f32 operands and results, ``satfinite`` makes magnitudes beyond the largest
    finite one that one, ``random`` holds the bits added below the result by rounding ``rs``.
    """
    if ftz and source is F32:
        a = flush(a, source)
    if source is target and not (sat or relu):
        return a
    if target is TF32 and rounding == "rna":
        return _tf32_nearest_away(a, satfinite)
    plain = rounding == "rn" and not (satfinite or sat or relu)
    if plain and source is F32 and (target is F16 or target is BF16):
        return pack_half(a.view(np.float32), target)
    if plain and target is F32 and (source is F16 or source is BF16):
        widened = canonical(widen_half(a, source), target)
        return flush(widened, target) if ftz else widened
    value = _clamp(to_double(a, source), sat, relu)
    bits = from_double(value, target, rounding, satfinite, random, random_bits)
    return flush(bits, target) if ftz and target is F32 else bits


def _clamp(value: Floats, sat: bool, to_relu: bool) -> Floats:
    """Clamping before the rounding: both bounds are numbers of every format."""
    if sat:
        return saturate(value)
    return relu(value) if to_relu else value


def from_double(
    value: Floats,
    fmt: Format,
    rounding: Rounding,
    saturated: bool,
    random: Bits | None = None,
    random_bits: int = 0,
) -> Bits:
    """Round float64 values to a format and pack them as they lie in a register."""
    if fmt is F64:
        nan = np.isnan(value)
        bits: Bits = value.view(U64)
        return select(nan, _WIDENED_NAN, bits) if any_lane(nan) else bits
    if fmt is UE8M0:
        return _power_of_two(value.view(U64), rounding, saturated)
    if fmt is F32 and rounding != "rs":
        return canonical(_single.rounded(value, rounding), fmt)
    if fmt is F16 and rounding == "rn" and not saturated:
        return pack_half(value, fmt)
    narrowed = narrow(
        value.view(U64),
        fmt,
        rounding,
        saturate=saturated,
        random=random,
        random_bits=random_bits,
    )
    return (narrowed << U64(fmt.padding)).astype(fmt.dtype)


def _power_of_two(a: Bits, rounding: Rounding, saturated: bool) -> Bits:
    """Magnitudes of f64 patterns as ue8m0: exponents only, rounded down (.rz) or up (.rp).

    Zero becomes the smallest power; without saturation an overflow carries into the NaN.
    """
    magnitude = a & U64(F64.sign - 1)
    exponent = (magnitude >> U64(52)).astype(I64) - I64(1023 - UE8M0.bias)
    if rounding == "rp":
        exponent = exponent + ((magnitude & U64((1 << 52) - 1)) != 0)
    exponent = np.clip(exponent, I64(0), I64(UE8M0.largest if saturated else UE8M0.nan or 0))
    bits = exponent.astype(np.uint8)
    return select(is_nan(a, F64), np.uint8(UE8M0.nan or 0), bits)


def _tf32_nearest_away(a: Bits, satfinite: bool) -> Bits:
    """cvt.rna.tf32.f32 as machines do it: infinity and NaN are only cut, so a NaN may vanish."""
    infinity, cut = U32(F32.infinity or 0), U32(0xFFFF_E000)
    finite = (a & infinity) != infinity
    bits: Bits = (a + finite * U32(0x1000)) & cut
    if satfinite:
        bits = bits - ((bits & infinity) == infinity) * U32(0x2000)
    return bits


def round_to_integral(
    a: Bits,
    *,
    fmt: Format,
    rounding: IntegerRounding,
    ftz: bool = False,
    sat: bool = False,
) -> Bits:
    """Floats rounded to integral floats of the same format (ISA cvt with integer rounding)."""
    if ftz and fmt is F32:
        a = flush(a, fmt)
    integral = _INTEGRAL[rounding]
    if fmt is F32 or fmt is F64:
        return finish(integral(a.view(np.float32 if fmt is F32 else np.float64)), fmt, ftz, sat)
    value = integral(widen_half(a, fmt))
    return pack_half(saturate(value) if sat else value, fmt)

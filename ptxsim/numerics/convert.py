"""Conversions between integers and floating-point formats (ISA cvt), exact to the last bit.

PTX ISA 9.1, "Data Movement and Conversion Instructions": cvt; "Rounding Modifiers".  Integers are
patterns of 8, 16, 32 or 64 bits in the unsigned dtype of that width.  NaN becomes the canonical NaN
of the destination.  The forms with two and four elements are in :mod:`.packed`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from . import _single
from ._elementwise import any_lane, select
from ._exact import narrow, normalize, round_pack
from ._images import canonical, flush, pack_half
from ._values import clamp_unit, to_double, to_single
from .formats import BF16, F16, F32, F64, Bits, Format, IntegerRounding, Rounding

__all__ = [
    "float_to_float",
    "float_to_int",
    "int_to_float",
    "int_to_int",
    "pack_saturated",
    "round_integral",
]

U32 = np.uint32
U64 = np.uint64
Numbers = npt.NDArray[Any]

_TO_INTEGRAL: dict[IntegerRounding, np.ufunc] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}


def _dtype(width: int, signed: bool) -> np.dtype[Any]:
    return np.dtype(f"{'i' if signed else 'u'}{width // 8}")


def _limits(width: int, signed: bool) -> tuple[int, int]:
    if signed:
        return -(1 << (width - 1)), (1 << (width - 1)) - 1
    return 0, (1 << width) - 1


def int_to_int(
    a: Bits, *, src_width: int, src_signed: bool, width: int, signed: bool, sat: bool = False
) -> Bits:
    """An integer cut or extended by its own sign, or clamped to the destination (ISA cvt, .sat)."""
    number = a.view(_dtype(src_width, src_signed))
    if sat:
        low, high = _limits(width, signed)
        own_low, own_high = _limits(src_width, src_signed)
        unit = number.dtype.type
        if low > own_low:
            number = np.maximum(number, unit(low))
        if high < own_high:
            number = np.minimum(number, unit(high))
    return number.astype(_dtype(width, False))


def pack_saturated(a: Bits, b: Bits, c: Bits | None = None, *, width: int, signed: bool) -> Bits:
    """Two s32 clamped and packed, ``b`` lowest (ISA cvt.pack.sat).

    With ``c`` its low bits are shifted above the two fields.
    """
    out: Bits | None = None if c is None else c << U32(2 * width)
    for number, shift in ((a, width), (b, 0)):
        low, high = _limits(width, signed)
        clamped = np.clip(number.view(np.int32), np.int32(low), np.int32(high)).view(U32)
        field = (clamped & U32((1 << width) - 1)) << U32(shift)
        out = field if out is None else out | field
    assert out is not None
    return out


def int_to_float(
    a: Bits,
    *,
    width: int,
    signed: bool,
    fmt: Format,
    rounding: Rounding = "rn",
    sat: bool = False,
) -> Bits:
    """An integer rounded to f16, bf16, f32 or f64 (ISA cvt); .sat clamps to [0, 1]."""
    number = a.view(_dtype(width, signed))
    out = _rounded_number(number, width, fmt, rounding)
    return clamp_unit(out, fmt) if sat else out


def _rounded_number(number: Numbers, width: int, fmt: Format, rounding: Rounding) -> Bits:
    if fmt is F64 and (width < 64 or rounding == "rn"):
        return number.astype(np.float64).view(U64)
    if fmt is F32 and rounding == "rn":
        return number.astype(np.float32).view(U32)
    if fmt is F32 and width < 64:
        return _single.rounded(number.astype(np.float64), rounding).view(U32)
    if fmt is F16 and width < 64 and rounding == "rn":
        return number.astype(np.float64).astype(np.float16).view(np.uint16)
    wide = number.astype(U64)  # two's complement for negative numbers
    negative = (number < 0).astype(U64)
    parts = normalize(negative, (wide ^ (U64(0) - negative)) + negative)
    return round_pack(parts, fmt, rounding).astype(fmt.dtype)


def float_to_int(
    a: Bits,
    *,
    fmt: Format,
    width: int,
    signed: bool,
    rounding: IntegerRounding,
    ftz: bool = False,
) -> Bits:
    """A float rounded to an integer and clamped to its range (ISA cvt; .sat changes nothing).

    NaN gives the top bit alone for an f64 source or a 64-bit destination, else zero.
    """
    if ftz and fmt is F32:
        a = flush(a, fmt)
    value = to_double(a, fmt)
    nan = np.isnan(value)
    whole = _TO_INTEGRAL[rounding](value)
    out = _clamped_long(whole, signed) if width == 64 else _clamped(whole, width, signed)
    if any_lane(nan):
        top = 1 << (width - 1) if fmt is F64 or width == 64 else 0
        out = select(nan, out.dtype.type(top), out)
    return out


def _clamped(whole: Numbers, width: int, signed: bool) -> Bits:
    """Integral float64 values as patterns of at most 32 bits; NaN means nothing."""
    low, high = _limits(width, signed)
    inside = np.fmin(np.fmax(whole, np.float64(low)), np.float64(high))
    return inside.astype(np.int64).astype(_dtype(width, False))


def _clamped_long(whole: Numbers, signed: bool) -> Bits:
    """Integral float64 values as patterns of 64 bits; NaN means nothing."""
    low, high = _limits(64, signed)
    beyond = whole > np.float64(high)  # the limit itself is no float64: it rounds to the next one
    beyond |= whole == np.float64(high)
    inside = np.fmax(whole * ~beyond, np.float64(low))
    out = inside.astype(_dtype(64, signed)).view(U64)
    return select(beyond, U64(high), out) if any_lane(beyond) else out


def round_integral(
    a: Bits,
    *,
    fmt: Format,
    rounding: IntegerRounding,
    ftz: bool = False,
    sat: bool = False,
) -> Bits:
    """A float rounded to an integral value of its own format (ISA cvt with .rni and the like)."""
    if ftz and fmt is F32:
        a = flush(a, fmt)
    if fmt is F32 or fmt is F64:
        native = a.view(np.float32 if fmt is F32 else np.float64)
        out = canonical(_TO_INTEGRAL[rounding](native), fmt)
    else:
        out = pack_half(_TO_INTEGRAL[rounding](to_single(a, fmt)), fmt)
    return clamp_unit(out, fmt) if sat else out


def float_to_float(
    a: Bits,
    *,
    src: Format,
    dst: Format,
    rounding: Rounding = "rn",
    ftz: bool = False,
    sat: bool = False,
    satfinite: bool = False,
    relu: bool = False,
    random: Bits | None = None,
    random_bits: int = 0,
) -> Bits:
    """A float in another format (ISA cvt), or in its own with .ftz, .sat or .relu.

    Where no rounding is needed, ``rounding`` has no effect.  ``random`` holds the ``random_bits``
    low bits that .rs adds to the bits rounded away.
    """
    if ftz and src is F32:
        a = flush(a, src)
    exact = rounding == "rn" and not satfinite
    if exact and src is not F64 and dst in (F16, BF16, F32, F64):
        out = _quick(a, src, dst, relu)
    elif src is F64 and dst is F32 and not satfinite and not relu:
        out = canonical(_single.rounded(a.view(np.float64), rounding), dst)
    elif src is F64 and dst is F16 and exact and not relu:
        out = pack_half(a.view(np.float64), dst)
    else:
        wide = to_double(a, src)
        wide = np.maximum(wide, 0.0) + 0.0 if relu else wide
        out = narrow(
            wide.view(U64),
            dst,
            rounding,
            saturate=satfinite,
            random=random,
            random_bits=random_bits,
        ).astype(dst.dtype)
        out = out << dst.dtype.type(dst.padding) if dst.padding else out
    if ftz and dst is F32:
        out = flush(out, dst)
    return clamp_unit(out, dst) if sat else out


def _quick(a: Bits, src: Format, dst: Format, relu: bool) -> Bits:
    """Every conversion to nearest that float32 holds on the way."""
    value = to_single(a, src)
    if relu:
        value = np.maximum(value, np.float32(0)) + np.float32(0)
    if dst is F64:
        return canonical(value.astype(np.float64), dst)
    return canonical(value, dst) if dst is F32 else pack_half(value, dst)

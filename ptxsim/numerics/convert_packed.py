"""Conversions to and from packed narrow floats, and cvt.pack.

PTX ISA 9.1, "Data Movement and Conversion Instructions: cvt, cvt.pack": of two sources the first
lands in the upper element; an element of six bits sits in the low bits of its byte.
"""

from __future__ import annotations

import numpy as np

from ._images import Floats, relu
from .convert import float_to_float, from_double, to_double
from .formats import BF16, F16, F32, UE8M0, Bits, Format, Rounding
from .half import high_half, low_half

__all__ = [
    "cvt_pack",
    "from_fixed_pair",
    "narrow_pair",
    "pack_pair",
    "pack_quad",
    "to_fixed_pair",
    "widen_pair",
    "widen_scaled",
]

U32 = np.uint32
#: The value of the lowest bit of s2f6, a two's complement byte.
_FIXED_UNIT = 2.0**-6


def pack_pair(
    a: Bits,
    b: Bits,
    *,
    target: Format,
    rounding: Rounding = "rn",
    source: Format = F32,
    satfinite: bool = False,
    relu: bool = False,
    ftz: bool = False,
    random: Bits | None = None,
) -> Bits:
    """Two floats as one packed register, ``a`` in the upper element (ISA cvt to a .x2 type).

    Saturation is mandatory for the formats of 8, 6 and 4 bits other than ue8m0 and always applied.
    ``random`` are the random bits of .rs for f16x2 (13 bits each: 28..16 and 12..0) and bf16x2
    (16 bits each); they are as many as the conversion drops.
    """
    count = F32.mantissa_bits - target.mantissa_bits
    parts = []
    for value, shift in ((a, 16), (b, 0)):
        bits = None
        if random is not None:
            bits = (random >> U32(shift)) & U32((1 << count) - 1)
        parts.append(
            float_to_float(
                value,
                source=source,
                target=target,
                rounding=rounding,
                ftz=ftz,
                satfinite=satfinite or _always_saturates(target),
                relu=relu,
                random=bits,
                random_bits=count,
            )
        )
    return _join(parts[0], parts[1], target)


def pack_quad(
    a: Bits, b: Bits, e: Bits, f: Bits, random: Bits, *, target: Format, relu: bool = False
) -> Bits:
    """Four f32 as four elements, ``a`` uppermost, stochastically rounded (ISA cvt.rs to .x4).

    Sixteen random bits serve ``a`` and ``b``, the other sixteen ``e`` and ``f``: the halves of
    ``random``, for e2m1 its odd and its even bytes.  The manual shows only in a picture how two
    elements divide them; here both use all sixteen, added to the highest of the bits they drop.
    """
    high, low = random >> U32(16), random & U32(0xFFFF)
    if target.width == 4:
        high, low = (
            (high & U32(0xFF00)) | (low >> U32(8)),
            (high & U32(0xFF)) << U32(8) | (low & U32(0xFF)),
        )
    step = _element_shift(target)
    whole = np.dtype(f"u{4 * step // 8}")
    out: Bits = np.zeros(1, whole)
    for position, (value, bits) in enumerate(((f, low), (e, low), (b, high), (a, high))):
        element = float_to_float(
            value, source=F32, target=target, rounding="rs", satfinite=True, relu=relu,
            random=bits, random_bits=16,
        )  # fmt: skip
        out = out | (element.astype(whole) << whole.type(position * step))
    return out


def _always_saturates(target: Format) -> bool:
    return target.width <= 8 and target is not UE8M0


def _element_shift(fmt: Format) -> int:
    """The position of the upper element: 6-bit elements take a byte each."""
    return 8 if fmt.width == 6 else fmt.width


def _join(upper: Bits, lower: Bits, fmt: Format) -> Bits:
    shift = _element_shift(fmt)
    whole = np.dtype(f"u{2 * shift // 8}")
    result: Bits = (upper.astype(whole) << whole.type(shift)) | lower.astype(whole)
    return result


def narrow_pair(
    a: Bits,
    *,
    source: Format,
    target: Format,
    rounding: Rounding = "rn",
    satfinite: bool = False,
    relu: bool = False,
) -> Bits:
    """f16x2 or bf16x2 as a pair of a narrower format, halves in place (ISA cvt)."""
    return pack_pair(
        high_half(a),
        low_half(a),
        target=target,
        rounding=rounding,
        source=source,
        satfinite=satfinite,
        relu=relu,
    )


def widen_pair(a: Bits, *, source: Format, target: Format = F16, relu: bool = False) -> Bits:
    """A pair of narrow floats as f16x2 or bf16x2, elements in place (ISA cvt)."""
    assert target is F16 or target is BF16
    shift = _element_shift(source)
    mask = a.dtype.type((1 << source.width) - 1)
    upper, lower = (
        float_to_float(part.astype(source.dtype), source=source, target=target, relu=relu)
        for part in ((a >> a.dtype.type(shift)) & mask, a & mask)
    )
    return _join(upper, lower, target)


def _scales(scale: Bits | None) -> tuple[Floats | float, Floats | float]:
    """The factors of the upper and the lower element; one where none are given."""
    if scale is None:
        return 1.0, 1.0
    upper, lower = high_half(scale), low_half(scale)
    return to_double(upper, UE8M0), to_double(lower, UE8M0)


def _bf16_pair(
    upper: Floats, lower: Floats, scale: Bits | None, satfinite: bool, to_relu: bool
) -> Bits:
    """Two exact values times their factors as bf16x2, rounded to nearest."""
    parts = []
    for value, factor in zip((upper, lower), _scales(scale), strict=True):
        product = value * factor
        parts.append(from_double(relu(product) if to_relu else product, BF16, "rn", satfinite))
    return _join(parts[0], parts[1], BF16)


def widen_scaled(
    a: Bits,
    scale: Bits | None = None,
    *,
    source: Format,
    satfinite: bool = False,
    relu: bool = False,
) -> Bits:
    """A pair of narrow floats as bf16x2, times ue8m0 factors (ISA cvt .scaled::n2::ue8m0)."""
    shift = _element_shift(source)
    mask = a.dtype.type((1 << source.width) - 1)
    upper, lower = (
        to_double(part.astype(source.dtype), source)
        for part in ((a >> a.dtype.type(shift)) & mask, a & mask)
    )
    return _bf16_pair(upper, lower, scale, satfinite, relu)


def from_fixed_pair(
    a: Bits, scale: Bits | None = None, *, satfinite: bool = False, relu: bool = False
) -> Bits:
    """s2f6x2 as bf16x2, times ue8m0 factors (ISA cvt.bf16x2.s2f6x2)."""
    upper, lower = (
        part.view(np.int8).astype(np.float64) * _FIXED_UNIT for part in (high_half(a), low_half(a))
    )
    return _bf16_pair(upper, lower, scale, satfinite, relu)


def to_fixed_pair(
    a: Bits, b: Bits, scale: Bits | None = None, *, source: Format = F32, relu: bool = False
) -> Bits:
    """Two floats divided by ue8m0 factors as s2f6x2, ``a`` above (ISA cvt.s2f6x2.f32).

    Rounded to nearest even and clamped to [-2, 127/64]; a NaN becomes the largest number.
    """
    low = 0.0 if relu else -128.0
    parts = []
    for bits, factor in zip((a, b), _scales(scale), strict=True):
        units = np.rint(to_double(bits, source) / factor / _FIXED_UNIT)
        clamped = np.clip(np.where(np.isnan(units), 127.0, units), low, 127.0)
        parts.append(clamped.astype(np.int8).view(np.uint8))
    return _join(parts[0], parts[1], UE8M0)


def cvt_pack(a: Bits, b: Bits, c: Bits | None = None, *, width: int, signed: bool) -> Bits:
    """Two s32 clamped to ``width`` bits, ``b`` lowest, ``c`` above (ISA cvt.pack.sat).

    >>> a, b, c = (np.array([v], np.uint32) for v in (300, 5, 0xABCD))
    >>> hex(cvt_pack(a, b, c, width=8, signed=False)[0])
    '0xabcdff05'
    """
    low = np.int32(-(1 << (width - 1)) if signed else 0)
    high = np.int32((1 << (width - signed)) - 1)
    mask = U32((1 << width) - 1)
    upper = np.clip(a.view(np.int32), low, high).view(U32) & mask
    lower = np.clip(b.view(np.int32), low, high).view(U32) & mask
    result: Bits = (upper << U32(width)) | lower
    if c is not None and width < 16:
        result = result | (c << U32(2 * width))
    return result

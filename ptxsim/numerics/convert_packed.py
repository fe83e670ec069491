"""Conversions to and from packed narrow floats, and cvt.pack.

PTX ISA 9.1, "Data Movement and Conversion Instructions: cvt, cvt.pack": of two sources the first
lands in the upper element; an element of six bits sits in the low bits of its byte.
"""

from __future__ import annotations

import numpy as np

from .convert import float_to_float
from .formats import BF16, F16, F32, UE8M0, Bits, Format, Rounding
from .half import high_half, low_half

__all__ = ["cvt_pack", "narrow_pair", "pack_pair", "widen_pair"]

U32 = np.uint32


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
    (16 bits each).
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

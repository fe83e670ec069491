"""Packed floats: f16x2, bf16x2 and f32x2 as two independent elements of one register.

PTX ISA 9.1, "Packed Data Types": element 0 is the low half.  The arithmetic of one element is in
:mod:`ptxsim.numerics.floating`; f16 operands of the mixed f32 instructions are widened exactly
with :func:`ptxsim.numerics.convert.float_to_float` first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .comparison import Comparison, compare
from .formats import Bits, Format, Mask

__all__ = ["compare_halves", "each_half", "high_half", "join_halves", "low_half"]


def each_half(function: Callable[..., Bits], *operands: Bits, **modifiers: Any) -> Bits:
    """Apply an elementwise function to both halves of packed registers.

    >>> from ptxsim.numerics import floating, formats
    >>> a = np.array([0x3C004000], np.uint32)  # 1.0, 2.0
    >>> hex(each_half(floating.add, a, a, fmt=formats.F16)[0])
    '0x40004400'
    """
    whole = operands[0].dtype
    half = np.dtype(f"u{whole.itemsize // 2}")
    parts = [np.ascontiguousarray(o).view(half).reshape(*o.shape, 2) for o in operands]
    result = np.ascontiguousarray(function(*parts, **modifiers))
    packed: Bits = result.view(whole)[..., 0]
    return packed


def low_half(a: Bits) -> Bits:
    """Element 0 of a packed register."""
    return a.astype(f"u{a.dtype.itemsize // 2}")


def high_half(a: Bits) -> Bits:
    """Element 1 of a packed register."""
    size = a.dtype.itemsize
    result: Bits = (a >> a.dtype.type(4 * size)).astype(f"u{size // 2}")
    return result


def join_halves(low: Bits, high: Bits) -> Bits:
    """Two elements as one register of twice the width."""
    whole = np.dtype(f"u{2 * low.dtype.itemsize}")
    shift = whole.type(8 * low.dtype.itemsize)
    result: Bits = low.astype(whole) | (high.astype(whole) << shift)
    return result


def compare_halves(
    op: Comparison, a: Bits, b: Bits, *, fmt: Format, ftz: bool = False
) -> tuple[Mask, Mask]:
    """``a op b`` of the low and of the high halves (ISA setp.f16x2: p is low, q is high)."""
    low = compare(op, low_half(a), low_half(b), fmt=fmt, ftz=ftz)
    high = compare(op, high_half(a), high_half(b), fmt=fmt, ftz=ftz)
    return low, high

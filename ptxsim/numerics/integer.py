"""Integer arithmetic and comparison on bit patterns of a stated width.

PTX ISA 9.1: "Integer Arithmetic Instructions", "Extended-Precision Integer Arithmetic
Instructions" and the integer operators of "Comparison and Selection Instructions".

Every operand is an array of the unsigned dtype of its width and every result is one too, so that
plain operators wrap as the ISA wants; signedness is an argument and becomes a view where needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import numpy as np

from ._elementwise import any_lane, select
from .bits import extend, fill_with_sign, signed_view, unsigned
from .formats import Bits, Mask

__all__ = [
    "COMPARISONS",
    "IntegerComparison",
    "abs_",
    "add",
    "add_carry",
    "add_sat",
    "compare",
    "div",
    "dp2a",
    "dp4a",
    "mad24_hi_sat",
    "mad_hi_carry",
    "mad_hi_sat",
    "mad_lo_carry",
    "max_",
    "min_",
    "mul24",
    "mul_hi",
    "mul_lo",
    "mul_wide",
    "neg",
    "relu",
    "rem",
    "sad",
    "sub",
    "sub_borrow",
    "sub_sat",
]

IntegerComparison: TypeAlias = Literal["eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs"]
"""Comparison operators of integers; the last four are unsigned whatever ``signed`` says."""

COMPARISONS: Final[dict[str, Callable[[Bits, Bits], Mask]]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_UNSIGNED: Final = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def add(a: Bits, b: Bits, *, width: int) -> Bits:
    """``a + b``, wrapped (ISA add).

    >>> add(np.array([0xFFFF], np.uint16), np.array([2], np.uint16), width=16)
    array([1], dtype=uint16)
    """
    total: Bits = a + b
    return total


def sub(a: Bits, b: Bits, *, width: int) -> Bits:
    """``a - b``, wrapped (ISA sub)."""
    difference: Bits = a - b
    return difference


def add_sat(a: Bits, b: Bits, *, width: int, signed: bool) -> Bits:
    """``a + b``, clamped to the range of the type (ISA add.sat)."""
    total: Bits = a + b
    if not signed:
        full: Bits = total | (total < a) * unsigned(width).type((1 << width) - 1)
        return full
    overflow = _is_negative((a ^ total) & (b ^ total), width)
    return select(overflow, _limit_beyond(a, width), total) if any_lane(overflow) else total


def sub_sat(a: Bits, b: Bits, *, width: int, signed: bool) -> Bits:
    """``a - b``, clamped to the range of the type (ISA sub.sat)."""
    difference: Bits = a - b
    if not signed:
        clamped: Bits = difference * (a >= b)
        return clamped
    overflow = _is_negative((a ^ b) & (a ^ difference), width)
    if not any_lane(overflow):
        return difference
    return select(overflow, _limit_beyond(a, width), difference)


def _is_negative(a: Bits, width: int) -> Mask:
    mask: Mask = a >= unsigned(width).type(1 << (width - 1))
    return mask


def _limit_beyond(a: Bits, width: int) -> Bits:
    """The end of the signed range on the side of ``a``: an overflowing sum has run past it."""
    limit: Bits = fill_with_sign(a, width=width) ^ unsigned(width).type((1 << (width - 1)) - 1)
    return limit


def mul_lo(a: Bits, b: Bits, *, width: int) -> Bits:
    """The low half of ``a * b`` (ISA mul.lo); the same for both signednesses."""
    product: Bits = a * b
    return product


def mul_wide(a: Bits, b: Bits, *, width: int, signed: bool) -> Bits:
    """The whole product, twice as wide as the operands of 8, 16 or 32 bits (ISA mul.wide)."""
    a = extend(a, from_width=width, to_width=2 * width, signed=signed)
    b = extend(b, from_width=width, to_width=2 * width, signed=signed)
    product: Bits = a * b
    return product


def mul_hi(a: Bits, b: Bits, *, width: int, signed: bool) -> Bits:
    """The high half of ``a * b`` (ISA mul.hi)."""
    if width == 64:
        return _mul_hi_64(a, b, signed=signed)
    wide = mul_wide(a, b, width=width, signed=signed)
    high: Bits = (wide >> unsigned(2 * width).type(width)).astype(unsigned(width))
    return high


def _mul_hi_64(a: Bits, b: Bits, *, signed: bool) -> Bits:
    """By halves of 32 bits; no sum below exceeds 64 bits."""
    half, low_word = np.uint64(32), np.uint64(0xFFFFFFFF)
    a_low, a_high = a & low_word, a >> half
    b_low, b_high = b & low_word, b >> half
    middle = a_high * b_low + ((a_low * b_low) >> half)
    other = a_low * b_high + (middle & low_word)
    high: Bits = a_high * b_high + (middle >> half) + (other >> half)
    if not signed:
        return high
    # A negative operand is its pattern minus 2**64.
    signed_high: Bits = high - (fill_with_sign(a, width=64) & b) - (fill_with_sign(b, width=64) & a)
    return signed_high


def mul24(a: Bits, b: Bits, *, signed: bool, high: bool) -> Bits:
    """Bits 31..0, or with ``high`` 47..16, of the product of 24-bit operands (ISA mul24).

    The operands are the low 24 bits of 32-bit words, signed from bit 23.
    """
    wide = mul_wide(_low_24(a, signed=signed), _low_24(b, signed=signed), width=32, signed=signed)
    return (wide >> np.uint64(16) if high else wide).astype(np.uint32)


def _low_24(a: Bits, *, signed: bool) -> Bits:
    if not signed:
        masked: Bits = a & np.uint32(0xFFFFFF)
        return masked
    extended: Bits = signed_view(a << np.uint32(8), 32) >> np.int32(8)
    return extended.view(np.uint32)


def mad_hi_sat(a: Bits, b: Bits, c: Bits) -> Bits:
    """The high half of the signed 32-bit product plus ``c``, clamped (ISA mad.hi.sat.s32)."""
    return add_sat(mul_hi(a, b, width=32, signed=True), c, width=32, signed=True)


def mad24_hi_sat(a: Bits, b: Bits, c: Bits) -> Bits:
    """Bits 47..16 of the signed 24-bit product plus ``c``, clamped (ISA mad24.hi.sat.s32)."""
    return add_sat(mul24(a, b, signed=True, high=True), c, width=32, signed=True)


def sad(a: Bits, b: Bits, c: Bits, *, width: int, signed: bool) -> Bits:
    """``c + |a - b|``, compared by the type, wrapped (ISA sad)."""
    larger = max_(a, b, width=width, signed=signed)
    smaller = min_(a, b, width=width, signed=signed)
    total: Bits = c + (larger - smaller)
    return total


def div(a: Bits, b: Bits, *, width: int, signed: bool) -> Bits:
    """``a / b``, rounded toward zero (ISA div).

    The ISA leaves division by zero open: all ones here. Most-negative by -1 wraps.
    """
    zero = b == 0
    divisor = b + zero if any_lane(zero) else b
    if not signed:
        quotient: Bits = a // divisor
    else:
        magnitude = abs_(a, width=width) // abs_(divisor, width=width)
        sign = fill_with_sign(a ^ divisor, width=width)
        quotient = (magnitude ^ sign) - sign
    if divisor is b:
        return quotient
    return select(zero, unsigned(width).type((1 << width) - 1), quotient)


def rem(a: Bits, b: Bits, *, width: int, signed: bool) -> Bits:
    """The remainder of :func:`div`, with the sign of ``a`` (ISA rem); by zero it is ``a``."""
    zero = b == 0
    divisor = b + zero if any_lane(zero) else b
    if not signed:
        remainder: Bits = a % divisor
    else:
        magnitude = abs_(a, width=width) % abs_(divisor, width=width)
        sign = fill_with_sign(a, width=width)
        remainder = (magnitude ^ sign) - sign
    return remainder if divisor is b else select(zero, a, remainder)


def abs_(a: Bits, *, width: int) -> Bits:
    """The magnitude of a signed ``a`` (ISA abs); the most negative value stays."""
    return np.abs(signed_view(a, width)).view(unsigned(width))


def neg(a: Bits, *, width: int) -> Bits:
    """``-a``, wrapped (ISA neg)."""
    return np.negative(a)


def min_(a: Bits, b: Bits, *, width: int, signed: bool) -> Bits:
    """The smaller of two values (ISA min)."""
    if not signed:
        return np.minimum(a, b)
    return np.minimum(signed_view(a, width), signed_view(b, width)).view(unsigned(width))


def max_(a: Bits, b: Bits, *, width: int, signed: bool) -> Bits:
    """The larger of two values (ISA max)."""
    if not signed:
        return np.maximum(a, b)
    return np.maximum(signed_view(a, width), signed_view(b, width)).view(unsigned(width))


def relu(a: Bits, *, width: int) -> Bits:
    """A signed ``a`` with zero for negative values (ISA min.relu, max.relu)."""
    return max_(a, unsigned(width).type(0), width=width, signed=True)


def add_carry(a: Bits, b: Bits, carry: Mask | None = None, *, width: int) -> tuple[Bits, Mask]:
    """``a + b + carry`` and the carry out (ISA add.cc, addc).

    >>> ones = np.array([0xFFFFFFFF], np.uint32)
    >>> add_carry(ones, ones, np.array([True]), width=32)
    (array([4294967295], dtype=uint32), array([ True]))
    """
    partial: Bits = a + b
    overflow: Mask = partial < a
    if carry is None:
        return partial, overflow
    total: Bits = partial + carry
    return total, overflow | (total < partial)


def sub_borrow(a: Bits, b: Bits, borrow: Mask | None = None, *, width: int) -> tuple[Bits, Mask]:
    """``a - (b + borrow)`` and the borrow out (ISA sub.cc, subc)."""
    partial: Bits = a - b
    underflow: Mask = a < b
    if borrow is None:
        return partial, underflow
    difference: Bits = partial - borrow
    return difference, underflow | (partial < difference)


def mad_lo_carry(
    a: Bits, b: Bits, c: Bits, carry: Mask | None = None, *, width: int
) -> tuple[Bits, Mask]:
    """Low half of ``a * b``, plus ``c`` and carry, and the carry of that sum (mad.lo.cc, madc)."""
    return add_carry(mul_lo(a, b, width=width), c, carry, width=width)


def mad_hi_carry(
    a: Bits, b: Bits, c: Bits, carry: Mask | None = None, *, width: int, signed: bool
) -> tuple[Bits, Mask]:
    """High half of ``a * b``, plus ``c`` and carry, and the carry of that sum (mad.hi.cc, madc)."""
    return add_carry(mul_hi(a, b, width=width, signed=signed), c, carry, width=width)


def dp4a(a: Bits, b: Bits, c: Bits, *, a_signed: bool, b_signed: bool) -> Bits:
    """``c`` plus the dot product of the four bytes of ``a`` and ``b``, wrapped (ISA dp4a)."""
    total = c
    for index in range(4):
        a_byte = _part(a, index, 8, signed=a_signed)
        total = total + a_byte * _part(b, index, 8, signed=b_signed)
    return total


def dp2a(a: Bits, b: Bits, c: Bits, *, a_signed: bool, b_signed: bool, high: bool) -> Bits:
    """``c`` plus the dot product of the halves of ``a`` and two bytes of ``b`` (ISA dp2a).

    The bytes are the lower two, or with ``high`` (dp2a.hi) the upper two; the sum wraps.
    """
    total = c
    for index in range(2):
        half = _part(a, index, 16, signed=a_signed)
        total = total + half * _part(b, index + 2 * high, 8, signed=b_signed)
    return total


def _part(a: Bits, index: int, part_width: int, *, signed: bool) -> Bits:
    """Part ``index`` of a 32-bit word, extended to 32 bits."""
    lifted: Bits = a << np.uint32(32 - part_width * (index + 1))
    if not signed:
        part: Bits = lifted >> np.uint32(32 - part_width)
        return part
    extended: Bits = signed_view(lifted, 32) >> np.int32(32 - part_width)
    return extended.view(np.uint32)


def compare(op: IntegerComparison, a: Bits, b: Bits, *, width: int, signed: bool) -> Mask:
    """Whether ``a op b`` holds (ISA setp, set on integers; "Operators").

    >>> minus_one, zero = np.array([0xFFFF], np.uint16), np.array([0], np.uint16)
    >>> compare("lt", minus_one, zero, width=16, signed=True)
    array([ True])
    """
    if op in _UNSIGNED:
        return COMPARISONS[_UNSIGNED[op]](a, b)
    if signed:
        a, b = signed_view(a, width), signed_view(b, width)
    return COMPARISONS[op](a, b)

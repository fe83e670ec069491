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

_COMPARISONS: Final[dict[str, Callable[[Bits, Bits], Mask]]] = {
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

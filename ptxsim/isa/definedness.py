"""How undefined bits of sources become undefined bits of results: rules for pure instructions.

A rule is a function of the source values and of masks of the same shape that are one where a bit
is undefined; it gives the masks of the results.  What a rule calls defined is the same whatever
the undefined bits hold.  An instruction without a rule takes the cautious one of the binder: any
undefined source bit makes all of its results undefined, in the lanes that have it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from ..types import bits_dtype
from .protocol import Array, BoolArray

__all__ = [
    "Rule",
    "bitwise",
    "compared_integers",
    "compared_whole",
    "conjunction",
    "disjunction",
    "either",
    "elements",
    "everywhere",
    "from_low_bits",
    "low_product",
    "moved",
    "nowhere",
    "pair",
    "selected",
    "touched",
    "unless_zero",
    "zero_test",
]

Rule: TypeAlias = Callable[[Sequence[Array], Sequence[Array]], Any]


def touched(masks: Sequence[Array]) -> BoolArray:
    """In which lanes any of the masks has a bit set."""
    out: BoolArray = np.zeros(1, bool)
    for mask in masks:
        lanes = mask != 0
        out = out | (lanes.any(axis=0) if lanes.ndim > 1 else lanes)
    return out


def everywhere(lanes: BoolArray, bits: int) -> Array:
    """The mask of a register of ``bits`` bits that is undefined as a whole in some lanes."""
    if bits == 1:
        return lanes
    dtype: Any = bits_dtype(bits)
    full: Array = lanes * dtype.type((1 << min(bits, 64)) - 1)
    return np.stack([full, full]) if bits == 128 else full


def moved(function: Callable[..., Any], data: int | None = None) -> Rule:
    """Bits that only move, as masks do: the first ``data`` sources (default all).

    The others say where to; undefined bits in them make everything undefined.
    """

    def rule(values: Sequence[Array], unknown: Sequence[Array]) -> Any:
        n = len(values) if data is None else data
        out = function(*unknown[:n], *values[n:])
        lost = touched(unknown[n:])
        if not lost.any():
            return out
        return out | everywhere(lost, 8 * out.dtype.itemsize)

    return rule


def bitwise(
    function: Callable[..., Any], data: int | None = None, alike: Sequence[int] | None = None
) -> Rule:
    """A function of single bits: a result bit is undefined if undefined source bits change it.

    Sources that are one register (``alike``) change together.
    """

    def rule(values: Sequence[Array], unknown: Sequence[Array]) -> Any:
        n = len(values) if data is None else data
        rest = values[n:]
        now = function(*values[:n], *rest)
        out = now ^ now
        first = range(n) if alike is None else alike[:n]
        marked = [first[i] == i and bool(unknown[i].any()) for i in range(n)]
        for flips in product(*((False, True) if m else (False,) for m in marked)):
            if not any(flips):
                continue
            other = [values[i] ^ unknown[i] if flips[first[i]] else values[i] for i in range(n)]
            out = out | (function(*other, *rest) ^ now)
        return out

    return rule


def conjunction(values: Sequence[Array], unknown: Sequence[Array]) -> Any:
    """and: a bit is defined if both are, or if one is surely zero."""
    (a, b), (mask_a, mask_b) = values, unknown
    return (mask_a | mask_b) & (a | mask_a) & (b | mask_b)


def disjunction(values: Sequence[Array], unknown: Sequence[Array]) -> Any:
    """or: a bit is defined if both are, or if one is surely one."""
    (a, b), (mask_a, mask_b) = values, unknown
    return (mask_a | mask_b) & (~a | mask_a) & (~b | mask_b)


def either(values: Sequence[Array], unknown: Sequence[Array]) -> Any:
    """xor, not: a bit is defined if all are."""
    return unknown[0] | unknown[1] if len(unknown) > 1 else unknown[0]


def from_low_bits(values: Sequence[Array], unknown: Sequence[Array]) -> Any:
    """Sums and low products: all is undefined from the lowest undefined bit upwards."""
    mask = unknown[0]
    for u in unknown[1:]:
        mask = mask | u
    return mask | (~mask + mask.dtype.type(1))


def nowhere(values: Sequence[Array], unknown: Sequence[Array]) -> Any:
    """A result that is the same whatever the sources hold."""
    return np.zeros_like(unknown[0][..., :1])


def low_product(width: int) -> Rule:
    """A product (and a third source added to it) to ``width`` bits.

    An undefined bit changes it by multiples of that bit times the lowest bit that may be set in
    the other factor; by nothing if that is surely zero.
    """
    dtype: Any = bits_dtype(width)

    def rule(values: Sequence[Array], unknown: Sequence[Array]) -> Any:
        lost = [_lowest(u.astype(dtype)) for u in unknown[:2]]
        may = [_lowest((v | u).astype(dtype)) for v, u in zip(values[:2], unknown[:2], strict=True)]
        return from_low_bits(values, [lost[0] * may[1], lost[1] * may[0], *unknown[2:]])

    return rule


def _lowest(mask: Array) -> Array:
    """The lowest one bit of each."""
    bit: Array = mask & (~mask + mask.dtype.type(1))
    return bit


def unless_zero(values: Sequence[Array], unknown: Sequence[Array]) -> Any:
    """A part of a product (and a third source added to it): defined if a factor is surely zero."""
    (a, b), (mask_a, mask_b) = values[:2], unknown[:2]
    lost = ((mask_a | mask_b) != 0) & ((a | mask_a) != 0) & ((b | mask_b) != 0)
    return from_low_bits(values, [everywhere(lost, 8 * a.dtype.itemsize), *unknown[2:]])


def selected(values: Sequence[Array], unknown: Sequence[Array]) -> Any:
    """selp: of an undefined selector only bits in which both sides agree are defined."""
    a, b, chooser = values
    mask_a, mask_b, lost = unknown
    every = a.dtype.type((1 << 8 * a.dtype.itemsize) - 1)
    out = np.where(chooser, mask_a, mask_b)
    if lost.any():
        out = out | ((mask_a | mask_b | (a ^ b)) & (lost * every))
    return out


# --- elements -------------------------------------------------------------------------------------


def elements(count: int, bits: int) -> Rule:
    """Packed sources of ``count`` elements, a result of as many in ``bits`` bits.

    An element of the result is undefined where that element of a source has an undefined bit.
    """
    each = bits // count
    dtype = bits_dtype(max(bits, 8))

    def rule(values: Sequence[Array], unknown: Sequence[Array]) -> Array:
        out = np.zeros(1, dtype)
        for k in range(count):
            lost = np.zeros(1, bool)
            for u in unknown:
                part = 8 * u.dtype.itemsize // count
                one = u.dtype.type(((1 << part) - 1) << (part * k))
                lost = lost | ((u & one) != 0)
            out = out | (lost * dtype.type(((1 << each) - 1) << (each * k)))
        return out

    return rule


def pair(bits: int, keeps: bool = False) -> Rule:
    """Two numbers into the elements of ``bits`` bits, the first above the second.

    With ``keeps`` a third source is shifted in above them (cvt.pack).
    """

    def rule(values: Sequence[Array], unknown: Sequence[Array]) -> Array:
        upper, lower = touched(unknown[:1]), touched(unknown[1:2])
        dtype: Any = bits_dtype(32 if keeps else max(2 * bits, 8))
        one = dtype.type((1 << bits) - 1)
        out: Array = (upper * (one << dtype.type(bits))) | (lower * one)
        if len(unknown) > 2:
            out = out | (unknown[2] << dtype.type(2 * bits))
        return out

    return rule


# --- comparisons ----------------------------------------------------------------------------------


def zero_test(value: Array, unknown: Array) -> BoolArray:
    """Where it is undefined whether a value is zero: no bit that is surely one decides it."""
    undecided: BoolArray = (unknown != 0) & ((value & ~unknown) == 0)
    return undecided


def compared_whole(values: Sequence[Array], unknown: Sequence[Array]) -> BoolArray:
    """Where a comparison of floats is undefined."""
    return touched(unknown[:2])


def compared_integers(
    compare: Callable[[Array, Array], BoolArray], equality: bool, signed: bool
) -> Callable[[Sequence[Array], Sequence[Array]], BoolArray]:
    """Where a comparison of integers depends on undefined bits."""

    def equal(values: Sequence[Array], unknown: Sequence[Array]) -> BoolArray:
        return zero_test(values[0] ^ values[1], unknown[0] | unknown[1])

    def extreme(value: Array, unknown: Array, high: bool) -> Array:
        sign = value.dtype.type(1 << 8 * value.dtype.itemsize - 1 if signed else 0)
        ordered_ = value ^ sign
        out: Array = (ordered_ | unknown if high else ordered_ & ~unknown) ^ sign
        return out

    def ordered(values: Sequence[Array], unknown: Sequence[Array]) -> BoolArray:
        a, b = values[:2]
        one = compare(extreme(a, unknown[0], False), extreme(b, unknown[1], True))
        other = compare(extreme(a, unknown[0], True), extreme(b, unknown[1], False))
        return one ^ other

    return equal if equality else ordered

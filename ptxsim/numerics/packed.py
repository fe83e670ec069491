"""Packed integers: 16x2 and 8x4 elements of 32-bit words, without carries between them.

PTX ISA 9.1: "Packed Integer Data Types" and the packed forms of add, sub, min and max in "Integer
Arithmetic Instructions". Element 0 is the lowest part of the word;
``width`` is the width of an element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from . import integer
from .bits import unsigned
from .formats import Bits

__all__ = ["add", "each_element", "join", "max_", "min_", "neg", "relu", "split", "sub"]

_LITTLE_ENDIAN: Final[dict[int, np.dtype[Any]]] = {w: np.dtype(f"<u{w // 8}") for w in (8, 16, 32)}


def split(a: Bits, *, width: int) -> list[Bits]:
    """The elements of 32-bit words, lowest first, each an array of its own dtype.

    >>> split(np.array([0x00010002], np.uint32), width=16)
    [array([2], dtype=uint16), array([1], dtype=uint16)]
    """
    dtype = unsigned(width)
    return [(a >> np.uint32(shift)).astype(dtype) for shift in range(0, 32, width)]


def join(elements: Sequence[Bits], *, width: int) -> Bits:
    """32-bit words of the given elements, lowest first: the inverse of :func:`split`."""
    words: Bits = elements[0].astype(np.uint32)
    for index, element in enumerate(elements[1:], start=1):
        words = words | (element.astype(np.uint32) << np.uint32(index * width))
    return words


def each_element(function: Callable[..., Bits], *words: Bits, width: int) -> Bits:
    """Apply an elementwise function to all elements of 32-bit words at once.

    >>> each_element(np.invert, np.array([0x00FF00FF], np.uint32), width=16)
    array([4278255360], dtype=uint32)
    """
    shape = np.broadcast_shapes(*(w.shape for w in words))
    element = _LITTLE_ENDIAN[width]
    views = []
    for word in words:
        # A word that is the same in all lanes is spread first: broadcasting the short rows of
        # elements instead takes twenty times as long.
        whole = np.ascontiguousarray(np.broadcast_to(word, shape), _LITTLE_ENDIAN[32])
        views.append(whole.view(element))
    result: Bits = np.ascontiguousarray(function(*views), element).view(_LITTLE_ENDIAN[32])
    return result


def add(a: Bits, b: Bits, *, width: int, signed: bool = False, sat: bool = False) -> Bits:
    """Per element ``a + b``, wrapped or clamped (ISA add.u16x2 and such).

    >>> a = np.array([0x0001FFFF], np.uint32)
    >>> [hex(x) for x in add(a, a, width=16)]
    ['0x2fffe']
    """
    operation: Callable[..., Bits] = integer.add
    if sat:
        operation = partial(integer.add_sat, signed=signed)
    return _apply(operation, a, b, width)


def sub(a: Bits, b: Bits, *, width: int, signed: bool = False, sat: bool = False) -> Bits:
    """Per element ``a - b``, wrapped or clamped (ISA sub.u16x2 and such)."""
    operation: Callable[..., Bits] = integer.sub
    if sat:
        operation = partial(integer.sub_sat, signed=signed)
    return _apply(operation, a, b, width)


def min_(a: Bits, b: Bits, *, width: int, signed: bool, relu: bool = False) -> Bits:
    """Per element the smaller, with ``relu`` at least 0 (ISA min.u16x2, min.relu.s16x2)."""
    operation = _not_negative(integer.min_) if relu else integer.min_
    return _apply(partial(operation, signed=signed), a, b, width)


def max_(a: Bits, b: Bits, *, width: int, signed: bool, relu: bool = False) -> Bits:
    """Per element the larger, with ``relu`` at least 0 (ISA max.u16x2, max.relu.s16x2)."""
    operation = _not_negative(integer.max_) if relu else integer.max_
    return _apply(partial(operation, signed=signed), a, b, width)


def _not_negative(function: Callable[..., Bits]) -> Callable[..., Bits]:
    def clamped(a: Bits, b: Bits, *, width: int, signed: bool) -> Bits:
        return integer.relu(function(a, b, width=width, signed=signed), width=width)

    return clamped


def relu(a: Bits, *, width: int) -> Bits:
    """Per element zero for negative values (ISA min.relu.s16x2, max.relu.s16x2)."""
    return each_element(partial(integer.relu, width=width), a, width=width)


def neg(a: Bits, *, width: int) -> Bits:
    """Per element ``-a``, wrapped (ISA neg on packed types)."""
    return each_element(partial(integer.neg, width=width), a, width=width)


def _apply(operation: Callable[..., Bits], a: Bits, b: Bits, width: int) -> Bits:
    function = partial(operation, width=width)
    return each_element(function, a, b, width=width)

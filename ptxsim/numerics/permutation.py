"""Bitwise functions of three words, and byte permutes.

PTX ISA 9.1: "Logic and Shift Instructions: lop3" and "Data Movement and Conversion Instructions:
prmt".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, Literal, TypeAlias

import numpy as np

from ._elementwise import any_lane
from .formats import Bits

__all__ = ["PrmtMode", "lop3", "prmt"]

PrmtMode: TypeAlias = Literal["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]
"""The named modes of prmt."""

_U32: Final = np.uint32

_PairFunction: TypeAlias = Callable[[Bits, Bits], Bits]

_PAIRS: Final[tuple[tuple[int, _PairFunction], ...]] = (
    (1, lambda x, y: x ^ x),
    (2, lambda x, y: ~(x | y)),
    (2, lambda x, y: ~x & y),
    (1, lambda x, y: ~x),
    (2, lambda x, y: x & ~y),
    (1, lambda x, y: ~y),
    (1, lambda x, y: x ^ y),
    (2, lambda x, y: ~(x & y)),
    (1, lambda x, y: x & y),
    (2, lambda x, y: ~(x ^ y)),
    (0, lambda x, y: y),
    (2, lambda x, y: ~x | y),
    (0, lambda x, y: x),
    (2, lambda x, y: x | ~y),
    (1, lambda x, y: x | y),
    (2, lambda x, y: x | ~x),
)
"""Cost in operations, and formula, of the function of two bits whose table is the index.

Bit ``2 * x + y`` of the index is the value at ``(x, y)``.
"""


def lop3(a: Bits, b: Bits, c: Bits, *, lut: int) -> Bits:
    """The bitwise function of three words whose table is ``lut`` (ISA lop3, immLut).

    Bit ``4 * a + 2 * b + c`` of ``lut`` is the value at ``(a, b, c)``; higher bits are ignored,
    as ptxas does.

    >>> word = np.array([0b1100], np.uint32)
    >>> lop3(word, ~word, word, lut=0xCA)  # a ? b : c
    array([0], dtype=uint32)
    """
    pivot, low, difference = _decompose(lut & 0xFF)
    words = (a, b, c)
    v = words[pivot]
    x, y = words[:pivot] + words[pivot + 1 :]
    base = _PAIRS[low][1](x, y)
    if difference == 0:
        return base
    if difference == 15:
        # The two halves are complements.
        return v ^ base if low else v
    selected: Bits = v & _PAIRS[difference][1](x, y)
    return base ^ selected if low else selected


@lru_cache(maxsize=256)
def _decompose(lut: int) -> tuple[int, int, int]:
    """Write ``lut`` as ``low ^ (pivot & difference)`` with the cheapest choice of pivot word.

    ``low`` and ``difference`` are tables of the other two words, in their order.
    """
    plans = []
    for pivot, weight in enumerate((4, 2, 1)):
        others = [w for w in (4, 2, 1) if w != weight]
        low = high = 0
        for index in range(4):
            place = (index >> 1) * others[0] + (index & 1) * others[1]
            low |= (lut >> place & 1) << index
            high |= (lut >> (place + weight) & 1) << index
        plans.append((_cost(low, low ^ high), pivot, low, low ^ high))
    _, pivot, low, difference = min(plans)
    return pivot, low, difference


def _cost(low: int, difference: int) -> int:
    if difference == 0:
        return _PAIRS[low][0]
    joined = 0 if low == 0 else 1 + _PAIRS[low][0]
    return joined if difference == 15 else joined + 1 + _PAIRS[difference][0]


def _selector_table(byte: Callable[[int, int], int]) -> np.uint64:
    """The selectors of a mode for its four controls, 16 bits each; ``byte(control, position)``."""
    table = 0
    for control in range(4):
        for position in range(4):
            table |= byte(control, position) % 8 << (16 * control + 4 * position)
    return np.uint64(table)


_SELECTORS: Final[dict[PrmtMode, np.uint64]] = {
    "f4e": _selector_table(lambda control, position: control + position),
    "b4e": _selector_table(lambda control, position: control - position),
    "rc8": _selector_table(lambda control, position: control),
    "ecl": _selector_table(max),
    "ecr": _selector_table(min),
    "rc16": _selector_table(lambda control, position: control % 2 * 2 + position % 2),
}


def prmt(a: Bits, b: Bits, c: Bits, *, mode: PrmtMode | None = None) -> Bits:
    """Four bytes picked from the eight of ``b:a`` (ISA prmt).

    Without a mode nibble ``i`` of ``c`` picks byte ``i`` of the result, and its top bit replaces
    the byte by copies of its sign; with one, the two low bits of ``c`` choose the arrangement.

    >>> low, high = np.array([0x03020100], np.uint32), np.array([0x07060504], np.uint32)
    >>> [hex(x) for x in prmt(low, high, np.array([0x7531], np.uint32))]
    ['0x7050301']
    """
    selector = c
    if mode is not None:
        control = (c & _U32(3)).astype(np.uint64)
        selector = (_SELECTORS[mode] >> (control << np.uint64(4))).astype(_U32)
    signs = mode is None and any_lane((c & _U32(0x8888)) != 0)
    difference = a ^ b
    result = _pick(a, difference, selector, signs=signs)
    for position in (1, 2, 3):
        byte = _pick(a, difference, selector >> _U32(4 * position), signs=signs)
        result = result | (byte << _U32(8 * position))
    return result


def _pick(a: Bits, difference: Bits, selector: Bits, *, signs: bool) -> Bits:
    """The byte of ``b:a`` chosen by the low nibble of the selector, in the low bits of a word."""
    word = a ^ (difference * ((selector >> _U32(2)) & _U32(1)))
    byte: Bits = (word >> ((selector & _U32(3)) << _U32(3))) & _U32(0xFF)
    if not signs:
        return byte
    spread = (byte >> _U32(7)) * _U32(0xFF)
    chosen: Bits = byte ^ ((byte ^ spread) * ((selector >> _U32(3)) & _U32(1)))
    return chosen

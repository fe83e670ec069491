"""The fragments of wmma by target, as the CUDA 12.9 and 13.0 assemblers lay them out.

PTX leaves open which lane holds what.  The maps were read from the code that the assemblers make
for loads and stores of sm_70, 72, 75, 80, 90, 100 and 120; other targets get the map of the nearest
one.  A fragment may hold an element more than once.  In the formulas ``l`` is the lane,
``g = l >> 2``, ``t = l & 3``, and ``j`` is the element counted over all registers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

from .fragments import Array, Fragment, fragment
from .layouts import Shape

__all__ = ["MAPPED_TARGETS", "wmma_bits", "wmma_fragment", "wmma_registers"]

#: Lane and element to row and column.
Where: TypeAlias = Callable[[Array, Array], tuple[Array, Array]]

#: The target numbers whose map was read from machine code.
MAPPED_TARGETS = frozenset((70, 72, 75, 80, 90, 100, 120))

_BITS = {
    "f64": 64, "f32": 32, "s32": 32, "tf32": 32, "f16": 16, "bf16": 16, "s8": 8, "u8": 8,
    "s4": 4, "u4": 4, "b1": 1,
}  # fmt: skip


def wmma_bits(type_: str) -> int:
    """Bits of an element."""
    return _BITS[type_]


def wmma_registers(use: str, shape: Shape, type_: str) -> int:
    """Registers of a lane in a wmma fragment of ``use`` a, b, c or d.

    >>> wmma_registers("a", (16, 16, 16), "f16"), wmma_registers("a", (8, 32, 16), "bf16")
    (8, 2)
    """
    m, n, k = shape
    if use in "cd":
        return m * n // (64 if type_ == "f16" else 32)
    if type_ == "f16":
        return 8  # whole tiles of 8, 16 or 32 rows: the smaller ones are held more than once
    bits = _BITS[type_]
    return (m if use == "a" else n) * k * bits // (32 * max(bits, 32))


@cache
def wmma_fragment(use: str, shape: Shape, type_: str, target: int, layout: str) -> Fragment:
    """The fragment ``use`` (a, b, c, d) of a wmma shape on a target number.

    ``layout`` is the one that a fragment was loaded with; it matters below sm_75 only.
    """
    bits = _BITS[type_]
    count = wmma_registers(use, shape, type_) * max(bits, 32) // bits
    m, n, k = shape
    if use in "cd":
        where = _accumulator(shape, type_, target)
        return fragment(m, n, count, where, bits)
    where = _factor(use, shape, type_, target, layout)
    return fragment(m, k, count, where, bits) if use == "a" else fragment(k, n, count, where, bits)


def _turned(where: Where) -> Where:
    def turned(lane: Array, j: Array) -> tuple[Array, Array]:
        column, row = where(lane, j)
        return row, column

    return turned


# --- A and B --------------------------------------------------------------------------------------


def _factor(use: str, shape: Shape, type_: str, target: int, layout: str) -> Where:
    if target < 75 and type_ == "f16":
        by_line = layout == ("row" if use == "a" else "col")
        return _volta_factor(use, shape, by_line)
    extent = shape[0] if use == "a" else shape[1]
    bits = _BITS[type_]
    if bits == 16:
        inner = _halves(use, extent)
    elif bits == 8:
        # register i, byte b is row g + 8*i, column 4*t + b
        inner = _columns(4)
    elif type_ == "tf32":
        inner = _tf32(use)
    else:  # m8n8k4 of f64, m8n8k32, m8n8k128: one register of consecutive elements
        inner = _columns(max(32 // bits, 1))
    return inner if use == "a" else _turned(inner)


def _columns(per: int) -> Where:
    """A as rows ``g + 8*r`` with ``per`` consecutive columns a lane and register."""
    return lambda lane, j: ((lane >> 2) + 8 * (j // per), per * (lane & 3) + j % per)


def _tf32(use: str) -> Where:
    """A: row ``g + 8*(j & 1)``, column ``t + 4*(j >> 1)``; B's registers count the other way."""

    def where(lane: Array, j: Array) -> tuple[Array, Array]:
        outer, inner = (j & 1, j >> 1) if use == "a" else (j >> 1, j & 1)
        return (lane >> 2) + 8 * outer, (lane & 3) + 4 * inner

    return where


def _halves(use: str, extent: int) -> Where:
    """Sixteen-bit A, and B with row and column exchanged, of 8, 16 or 32 rows."""

    def where(lane: Array, j: Array) -> tuple[Array, Array]:
        g, pair = lane >> 2, 2 * (lane & 3) + (j & 1)
        low, middle = (j >> 1) & 1, (j >> 2) & 1
        if extent == 8:
            return g, pair + 8 * low
        if extent == 32:
            return g + 8 * low + 16 * (j >> 3), pair + 8 * middle
        outer, inner = (low, middle) if use == "a" else (middle, low)
        return g + 8 * outer, pair + 8 * inner

    return where


def _volta_offsets(shape: Shape) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """Offsets of rows and of columns that bits 2, 3 and 4 of the lane choose."""

    def rows(lane: Array) -> Array:
        h2, h3, h4 = (lane >> 2) & 1, (lane >> 3) & 1, lane >> 4
        offset: Array = 4 * h4 + {16: 8 * h2, 32: 8 * h2 + 16 * h3, 8: 0 * h2}[shape[0]]
        return offset

    def columns(lane: Array) -> Array:
        h2, h3 = (lane >> 2) & 1, (lane >> 3) & 1
        return {16: 8 * h3, 8: 0 * h3, 32: 8 * h2 + 16 * h3}[shape[1]]

    return rows, columns


def _volta_factor(use: str, shape: Shape, by_line: bool) -> Where:
    """A loaded by rows or columns, B by columns or rows, with sixteen elements a lane."""
    rows, columns = _volta_offsets(shape)

    def where(lane: Array, j: Array) -> tuple[Array, Array]:
        q = lane & 3
        first = rows(lane) if use == "a" else columns(lane) + 4 * (lane >> 4)
        return (q + first, j) if by_line else (first + (j & 3), q + 4 * (j >> 2))

    return where if use == "a" else _turned(where)


# --- C and D --------------------------------------------------------------------------------------


def _accumulator(shape: Shape, type_: str, target: int) -> Where:
    if target < 75 and type_ in ("f16", "f32"):
        return _volta_accumulator(shape, type_)

    def where(lane: Array, j: Array) -> tuple[Array, Array]:
        g, pair = lane >> 2, 2 * (lane & 3) + (j & 1)
        if shape[:2] == (16, 16):
            return g + 8 * ((j >> 1) & 1), pair + 8 * (j >> 2)
        if shape[:2] == (8, 32):
            if type_ == "s32" and target < 80:
                return g, pair + 8 * (j >> 1)
            return pair, g + 8 * (j >> 1)  # computed as the transposed product
        return g + 8 * (j >> 1), pair

    return where


def _volta_accumulator(shape: Shape, type_: str) -> Where:
    rows, columns = _volta_offsets(shape)

    def where(lane: Array, j: Array) -> tuple[Array, Array]:
        if type_ == "f16":
            return (lane & 3) + rows(lane), columns(lane) + j
        row = (lane & 1) + 2 * ((j >> 1) & 1) + rows(lane)
        return row, 2 * ((lane >> 1) & 1) + (j & 1) + 4 * (j >> 2) + columns(lane)

    return where

"""The fragments of mma, ldmatrix, stmatrix and wmma.

In the formulas ``l`` is the lane, ``g = l >> 2`` and ``t = l & 3``; ``r`` is the register and ``e``
the element in it.  PTX leaves the fragments of wmma open; ours are those that ptxas uses for sm_75
and later, where sixteen-bit fragments may hold an element more than once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

from .fragments import Array, Fragment, fragment

__all__ = [
    "Shape",
    "mma_a",
    "mma_b",
    "mma_c",
    "parse_shape",
    "row_fragment",
    "wmma_fragment",
    "wmma_registers",
]

#: Rows of A and D, columns of B and D, and the extent that is summed over.
Shape: TypeAlias = tuple[int, int, int]

#: Lane and element to row and column.
Where: TypeAlias = Callable[[Array, Array], tuple[Array, Array]]


def parse_shape(word: str) -> Shape:
    """The extents in a shape modifier.

    >>> parse_shape("m16n8k16")
    (16, 8, 16)
    """
    m, _, rest = word.removeprefix("m").partition("n")
    n, _, k = rest.partition("k")
    return int(m), int(n), int(k)


@cache
def mma_a(rows: int, k: int, bits: int) -> Fragment:
    """A of a dense mma: ``row = g + 8*(r & 1), k = per*t + e + 4*per*(r >> 1)`` for 16 rows."""
    per = 32 // bits

    def where(lane: Array, element: Array) -> tuple[Array, Array]:
        g, t = lane >> 2, lane & 3
        r, e = element // per, element % per
        half, step = (r & 1, r >> 1) if rows == 16 else (0 * r, r)
        return g + 8 * half, per * t + e + 4 * per * step

    return fragment(rows, k, rows * k // 32, where, bits)


@cache
def mma_b(k: int, bits: int) -> Fragment:
    """B of a dense mma: ``k = per*t + e + 4*per*r, column = g``."""
    per = 32 // bits

    def where(lane: Array, element: Array) -> tuple[Array, Array]:
        r, e = element // per, element % per
        return per * (lane & 3) + e + 4 * per * r, lane >> 2

    return fragment(k, 8, 8 * k // 32, where, bits)


@cache
def mma_c(rows: int, bits: int) -> Fragment:
    """C and D of a dense mma: ``row = g + 8*(i >> 1), column = 2*t + (i & 1)``."""

    def where(lane: Array, element: Array) -> tuple[Array, Array]:
        return (lane >> 2) + 8 * (element >> 1), 2 * (lane & 3) + (element & 1)

    return fragment(rows, 8, rows * 8 // 32, where, bits)


@cache
def row_fragment(transposed: bool) -> Fragment:
    """One 8x8 matrix of ldmatrix: row ``g``, columns ``2t`` and ``2t + 1``, or the transpose."""

    def where(lane: Array, element: Array) -> tuple[Array, Array]:
        g, pair = lane >> 2, 2 * (lane & 3) + element
        return (pair, g) if transposed else (g, pair)

    return fragment(8, 8, 2, where, 16)


# --- wmma -----------------------------------------------------------------------------------------


def wmma_registers(use: str, shape: Shape, type_: str) -> int:
    """Registers of a lane in a wmma fragment of ``use`` a, b, c or d.

    >>> wmma_registers("a", (16, 16, 16), "f16"), wmma_registers("a", (8, 32, 16), "bf16")
    (8, 2)
    """
    m, n, k = shape
    if use in "cd":
        return m * n // 64 if type_ == "f16" else m * n // 32
    if type_ == "f16":
        return 8
    extent = m if use == "a" else n
    return extent * k * (16 if type_ == "bf16" else 8) // (32 * 32)


@cache
def wmma_fragment(use: str, shape: Shape, type_: str) -> Fragment:
    """The fragment ``use`` (a, b, c, d) of a wmma shape for f16, bf16, s8, u8, f32 or s32."""
    bits = {"f16": 16, "bf16": 16, "s8": 8, "u8": 8, "f32": 32, "s32": 32}[type_]
    count = wmma_registers(use, shape, type_) * 32 // bits
    m, n, k = shape
    if use in "cd":
        return fragment(m, n, count, _wmma_c(shape), bits)
    extent = m if use == "a" else n
    inner = _wmma_bytes if bits == 8 else _wmma_halves(use, extent)
    if use == "a":
        return fragment(m, k, count, inner, bits)

    def turned(lane: Array, element: Array) -> tuple[Array, Array]:
        column, row = inner(lane, element)
        return row, column

    return fragment(k, n, count, turned, bits)


def _wmma_c(shape: Shape) -> Where:
    def where(lane: Array, j: Array) -> tuple[Array, Array]:
        g, pair = lane >> 2, 2 * (lane & 3) + (j & 1)
        if shape == (16, 16, 16):
            return g + 8 * ((j >> 1) & 1), pair + 8 * (j >> 2)
        if shape == (32, 8, 16):
            return g + 8 * (j >> 1), pair
        # m8n32k16 is computed as the transposed product
        return pair, g + 8 * (j >> 1)

    return where


def _wmma_bytes(lane: Array, element: Array) -> tuple[Array, Array]:
    """Eight-bit A: register ``i``, byte ``b`` is row ``g + 8*i``, column ``4*t + b``."""
    return (lane >> 2) + 8 * (element >> 2), 4 * (lane & 3) + (element & 3)


def _wmma_halves(use: str, extent: int) -> Where:
    """Sixteen-bit A, and B with row and column exchanged, of 8, 16 or 32 rows."""

    def where(lane: Array, element: Array) -> tuple[Array, Array]:
        g, pair = lane >> 2, 2 * (lane & 3) + (element & 1)
        low, middle = (element >> 1) & 1, (element >> 2) & 1
        if extent == 8:
            return g, pair + 8 * low
        if extent == 32:
            return g + 8 * low + 16 * (element >> 3), pair + 8 * middle
        outer, inner = (low, middle) if use == "a" else (middle, low)
        return g + 8 * outer, pair + 8 * inner

    return where

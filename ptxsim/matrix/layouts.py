"""The fragments of mma, ldmatrix, stmatrix and movmatrix (PTX ISA 9.1, Warp Level Matrix
Instructions).

In the formulas ``l`` is the lane, ``g = l >> 2`` and ``t = l & 3``; ``r`` is the register, ``e``
the element in it and ``i`` the element counted over all registers.
"""

from __future__ import annotations

from functools import cache
from typing import TypeAlias

from .fragments import Array, Fragment, fragment

__all__ = [
    "Shape",
    "byte_fragment",
    "mma_a",
    "mma_b",
    "mma_c",
    "parse_shape",
    "quad_a",
    "quad_b",
    "quad_c",
    "row_fragment",
    "store_fragment",
    "tall_fragment",
]

#: Rows of A and D, columns of B and D, and the extent that is summed over.
Shape: TypeAlias = tuple[int, int, int]


def parse_shape(word: str) -> Shape:
    """The extents in a shape modifier.

    >>> parse_shape("m16n8k16")
    (16, 8, 16)
    """
    m, _, rest = word.removeprefix("m").partition("n")
    n, _, k = rest.partition("k")
    return int(m), int(n), int(k)


# --- mma ------------------------------------------------------------------------------------------


@cache
def mma_a(rows: int, k: int, bits: int) -> Fragment:
    """A of mma: ``row = g + 8*(r & 1), k = per*t + e + 4*per*(r >> 1)`` for 16 rows.

    For mma.sp the columns are the stored elements.
    """
    per = max(bits, 32) // bits

    def where(lane: Array, element: Array) -> tuple[Array, Array]:
        g, t = lane >> 2, lane & 3
        r, e = element // per, element % per
        half, step = (r & 1, r >> 1) if rows == 16 else (0 * r, r)
        return g + 8 * half, per * t + e + 4 * per * step

    return fragment(rows, k, rows * k // 32, where, bits)


@cache
def mma_b(k: int, bits: int) -> Fragment:
    """B of mma: ``k = per*t + e + 4*per*r, column = g``."""
    per = max(bits, 32) // bits

    def where(lane: Array, element: Array) -> tuple[Array, Array]:
        r, e = element // per, element % per
        return per * (lane & 3) + e + 4 * per * r, lane >> 2

    return fragment(k, 8, 8 * k // 32, where, bits)


@cache
def mma_c(rows: int, bits: int) -> Fragment:
    """C and D of mma: ``row = g + 8*(i >> 1), column = 2*t + (i & 1)``."""

    def where(lane: Array, element: Array) -> tuple[Array, Array]:
        return (lane >> 2) + 8 * (element >> 1), 2 * (lane & 3) + (element & 1)

    return fragment(rows, 8, rows * 8 // 32, where, bits)


# --- mma.m8n8k4 of f16: four products, one for each pair of quads ---------------------------------


@cache
def quad_a(layout: str) -> Fragment:
    """A of the four products of mma.m8n8k4 with f16, one below the other.

    Product ``q`` is that of lanes ``4*q..4*q+3`` and ``16+4*q..16+4*q+3``; with ``u = l & 3`` and
    ``h = l >> 4``, row ``u + 4*h`` and k ``i`` for ``.row``, row ``i + 4*h`` and k ``u`` for
    ``.col``.
    """

    def where(lane: Array, i: Array) -> tuple[Array, Array]:
        q, u, h = (lane >> 2) & 3, lane & 3, lane >> 4
        row, k = (u, i) if layout == "row" else (i, u)
        return 8 * q + row + 4 * h, k

    return fragment(32, 4, 4, where, 16)


@cache
def quad_b(layout: str) -> Fragment:
    """B of the four products: k ``u`` and column ``i + 4*h`` for ``.row``, else exchanged."""

    def where(lane: Array, i: Array) -> tuple[Array, Array]:
        q, u, h = (lane >> 2) & 3, lane & 3, lane >> 4
        k, column = (u, i) if layout == "row" else (i, u)
        return 4 * q + k, column + 4 * h

    return fragment(16, 8, 4, where, 16)


@cache
def quad_c(bits: int) -> Fragment:
    """C and D of the four products: a row a lane for f16, 2 x 2 blocks of a pair for f32."""

    def where(lane: Array, i: Array) -> tuple[Array, Array]:
        q, u, h = (lane >> 2) & 3, lane & 3, lane >> 4
        if bits == 16:
            return 8 * q + u + 4 * h, i
        return 8 * q + (u & 1) + (i & 2) + 4 * h, (i & 4) + (u & 2) + (i & 1)

    return fragment(32, 8, 8, where, bits)


# --- ldmatrix, stmatrix, movmatrix ----------------------------------------------------------------


@cache
def row_fragment(transposed: bool) -> Fragment:
    """One 8x8 matrix of b16: row ``g``, columns ``2t`` and ``2t + 1``, or the transpose."""

    def where(lane: Array, element: Array) -> tuple[Array, Array]:
        g, pair = lane >> 2, 2 * (lane & 3) + element
        return (pair, g) if transposed else (g, pair)

    return fragment(8, 8, 2, where, 16)


@cache
def byte_fragment() -> Fragment:
    """One 8x16 matrix of bytes of ldmatrix: row ``g``, columns ``4t..4t+3``."""
    return fragment(8, 16, 4, lambda lane, j: (lane >> 2, 4 * (lane & 3) + j), 8)


@cache
def tall_fragment() -> Fragment:
    """One 16x16 matrix of bytes of ldmatrix.trans: rows ``4t..4t+3``, columns ``g`` and ``g+8``.

    Row and column are those of memory; the second register has the second column.
    """

    def where(lane: Array, i: Array) -> tuple[Array, Array]:
        return 4 * (lane & 3) + (i & 3), (lane >> 2) + 8 * (i >> 2)

    return fragment(16, 16, 8, where, 8)


@cache
def store_fragment() -> Fragment:
    """One matrix of bytes of stmatrix.trans, 8 rows of 16 in memory.

    Byte ``j`` is row ``2t + (j & 1)``, column ``g + 8*(j >> 1)``.
    """

    def where(lane: Array, j: Array) -> tuple[Array, Array]:
        return 2 * (lane & 3) + (j & 1), (lane >> 2) + 8 * (j >> 1)

    return fragment(8, 16, 4, where, 8)

"""Metadata of sparse and scales of block-scaled mma: which lane and bits say what.

PTX ISA 9.1, mma.sp (Sparse matrix storage, Matrix fragments for multiply-accumulate operation using
mma.sp) and mma (Block Scaling).  ``g = lane >> 2`` and ``t = lane & 3``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from .fragments import Array

__all__ = ["Sparsity", "scale_bytes", "scale_lanes", "selectors", "sparsity"]

_ROW = np.arange(16)[:, None]


@dataclass(frozen=True, eq=False)
class Sparsity:
    """How A of an mma.sp is compressed, and where its metadata lies.

    Of each chunk of ``chunk`` columns ``kept`` are stored, in units of ``unit`` neighbours; a
    four-bit entry names the two units.  ``lane`` and ``shift`` [16, chunks] say which lane's
    metadata register holds the entry of a chunk of a row, and at which bit.
    """

    chunk: int
    kept: int
    unit: int
    lane: Array
    shift: Array

    def entries(self, metadata: Array) -> Array:
        """The entries [W, 16, chunks] in metadata registers [W, 32]."""
        words: Array = metadata[:, self.lane]
        return words >> self.shift.astype(np.uint32) & np.uint32(15)

    def columns(self, entries: Array) -> Array:
        """The column of each stored element: [W, 16, stored] from entries [W, 16, chunks]."""
        positions = np.stack([entries & 3, entries >> 2], axis=-1).astype(np.intp)
        if self.chunk == 2:  # the entries 0100 and 1110 name columns 0 and 1
            positions = (positions[..., :1] == 2).astype(np.intp)
        within = positions[..., None] * self.unit + np.arange(self.unit)
        within = within.reshape(*entries.shape, self.kept)
        first = np.arange(entries.shape[-1]) * self.chunk
        return (first[:, None] + within).reshape(*entries.shape[:-1], -1)

    def legal(self, ordered: bool) -> frozenset[int]:
        """The entries that have a meaning; ``ordered`` wants ascending positions."""
        if self.chunk == 2:
            return frozenset((0b0100, 0b1110))
        pairs = ((low, high) for low in range(4) for high in range(4))
        return frozenset(
            low | high << 2 for low, high in pairs if (low < high if ordered else low != high)
        )

    def expand(self, stored: Array, columns: Array, k: int) -> tuple[Array, Array]:
        """Stored elements [W, 16, k/2] as a tile [W, 16, k] with zeros, and where they are."""
        tile = np.zeros((*stored.shape[:2], k), stored.dtype)
        present = np.zeros(tile.shape, bool)
        np.put_along_axis(tile, columns, stored, axis=2)
        np.put_along_axis(present, columns, np.True_, axis=2)
        return tile, present


def selectors(k: int, bits: int) -> int:
    """How many sparsity selectors mma.sp of this extent and element width has.

    >>> selectors(16, 16), selectors(16, 32), selectors(64, 8)
    (4, 2, 1)
    """
    return 4 // (k * bits // {32: 256, 16: 256, 8: 128, 4: 128}[bits])


@cache
def sparsity(k: int, bits: int, selector: int) -> Sparsity:
    """The compression of A for m16n8k``k`` with elements of ``bits`` in their registers.

    32 bits are tf32.  ``selector`` below :func:`selectors` picks the lanes that hold metadata.
    The place of rows in the words of 16-bit and tf32 forms is that of CUTLASS' reorder tool.
    """
    chunk, kept, unit = {32: (2, 1, 1), 4: (8, 4, 2)}.get(bits, (4, 2, 1))
    j = np.arange(k // chunk)[None, :]
    lower, quad = _ROW // 8, 4 * (_ROW % 8)
    if len(j[0]) == 4:  # all of a row in one half word of lane t = selector
        lane, shift = quad + selector + 0 * j, 16 * lower + 4 * j
    elif len(j[0]) == 8 and bits >= 16:  # half a row in a half word of lanes 2*selector and + 1
        lane, shift = quad + 2 * selector + j // 4, 16 * lower + 4 * (j % 4)
    elif len(j[0]) == 8:  # a row in a word
        lane, shift = quad + 2 * selector + lower + 0 * j, 4 * j + 0 * lower
    else:  # half a row in a word of any lane
        lane, shift = quad + lower + 2 * (j // 8), 4 * (j % 8) + 0 * lower
    return Sparsity(chunk, kept, unit, lane, shift)


def scale_lanes(use: str, thread: Array) -> Array:
    """The lanes that give the scales of A [W, 16] or B [W, 8], for thread ids [W]."""
    line = np.arange(16 if use == "a" else 8)
    first = 4 * (line % 8) + (line // 8 if use == "a" else 0)
    return first + (2 if use == "a" else 1) * thread[:, None].astype(np.intp)


def scale_bytes(words: Array, first: Array, count: int) -> Array:
    """``count`` bytes of words [W, lines] from byte ``first`` [W] on: [W, lines, count]."""
    at: Array = first[:, None, None].astype(np.uint32) + np.arange(count, dtype=np.uint32)
    return (words[:, :, None] >> np.uint32(8) * at).astype(np.uint8)

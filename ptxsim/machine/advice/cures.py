"""What would make requests cheaper: padding that parts banks, and how far lanes are apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...isa.protocol import Array, BoolArray
from .requests import WORD, Requests, wavefronts

__all__ = ["Padding", "Pattern", "padding", "stride"]

#: Bytes of padding that are tried.
_MOST = 128
#: Different distances of lanes; those of a warp that walks rows are fewer.
_DISTANCES = 128

#: The addresses of a warp's lanes from some place on, and which of them count.
Pattern = tuple[Array, BoolArray]
#: How far apart rows are in bytes, and how much farther they should be.
Padding = tuple[int, int]


def padding(patterns: Sequence[Pattern], size: int, align: int = WORD) -> Padding | None:
    """The smallest padding of rows with which none of the patterns has a conflict.

    It is a multiple of ``align``, so that other accesses to the rows stay aligned.

    Rows are the longest ones for which that works.  Where the tile begins is not known: the
    padding must work for a row that begins at any column, unless the accesses to each row lie in
    half of it.  None if no padding does.
    """
    step = max(size, align, WORD)
    more = np.arange(step, _MOST + 1, step)
    for pitch in _pitches(patterns[0]):
        free = np.ones(len(more), bool)
        for column in _columns(patterns, pitch, size):
            for pattern in patterns:
                free &= _free(pattern, pitch, column, more, size)
            if not free.any():
                break
        else:
            return pitch, int(more[free.argmax()])
    return None


def _pitches(pattern: Pattern) -> Iterator[int]:
    """Distances of lanes, the longest first."""
    at, acting = pattern
    places = np.unique(at[acting])
    apart = np.unique(places[:, None] - places[None, :])
    apart = apart[apart > 0]
    if len(apart) <= _DISTANCES:
        yield from apart[::-1].tolist()


def _columns(patterns: Sequence[Pattern], pitch: int, size: int) -> Iterator[int]:
    """Where in its row the first access may be."""
    yield 0
    reach = max(int(((at - at[acting].min()) % pitch)[acting].max()) for at, acting in patterns)
    if reach + size > max(pitch // 2, size):
        yield from range(size, pitch, size)


def _free(pattern: Pattern, pitch: int, column: int, more: Array, size: int) -> BoolArray:
    """With which padding a pattern has no conflict."""
    at, acting = pattern
    row = np.where(acting, (at - at[acting].min() + column) // pitch, 0)
    moved = at + more[:, None] * row
    both = np.broadcast_to(acting, moved.shape)
    result = wavefronts(Requests(moved, both, np.arange(len(more)), size))
    free: BoolArray = result.needed == result.best
    return free


def stride(at: Array, acting: BoolArray) -> int | None:
    """The distance in bytes from each lane to the next, if it is one and the same."""
    apart = np.unique(np.diff(at[acting]))
    return int(apart[0]) if len(apart) == 1 else None

"""What the memory instructions of warps ask of shared and global memory.

One warp that executes one instruction makes one request.  Shared memory has 32 banks of 4 bytes;
up to 128 bytes are served together, so accesses of 8 bytes go by half warps, those of 16 bytes
and the rows of ldmatrix by quarters.  Each such phase takes as many wavefronts as the fullest bank
has different words; lanes with the same word share it.  Global memory moves in sectors of 32 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...isa.protocol import Array, BoolArray

if TYPE_CHECKING:
    from ..access import Place
    from ..group import Group

__all__ = [
    "BANKS",
    "SECTOR",
    "WORD",
    "Requests",
    "Wavefronts",
    "arrange",
    "bank_words",
    "by_warp",
    "sectors",
    "wavefronts",
]

BANKS = 32
#: Bytes of a bank, and of a sector of global memory.
WORD = 4
SECTOR = 32
#: Bytes of shared memory that are served together.
_TOGETHER = BANKS * WORD


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of one instruction: byte addresses [W, 32], ``size`` bytes from each.

    ``acting`` [W, 32] are the lanes that take part, None for all; the addresses of the others
    repeat one that counts.  ``warps`` are numbers of the wave's warps.
    """

    at: Array
    acting: BoolArray | None
    warps: Array
    size: int

    @property
    def alike(self) -> bool:
        """Whether all are the first one moved by some distance."""
        if self.acting is not None and not (self.acting == self.acting[0]).all():
            return False
        moved = self.at - self.at[:, :1]
        return bool((moved == moved[0]).all())


@dataclass(frozen=True, slots=True)
class Wavefronts:
    """For each request its wavefronts, the fewest of such a request, and its fullest bank."""

    needed: Array
    best: Array
    ways: Array


def arrange(group: Group, place: Place, size: int) -> Requests:
    """The requests of an access."""
    if place.lanes is None and group.warps().complete:
        at = np.broadcast_to(place.at, (group.n,)).reshape(-1, 32)
        return Requests(at, None, group.warps().warp_ids, size)
    lanes = group.lanes if place.lanes is None else group.lanes[place.lanes]
    return by_warp(lanes, place.at, size)


def by_warp(lanes: Array, at: Array, size: int) -> Requests:
    """The requests of these lanes of a wave, which are in order."""
    warp = lanes >> 5
    first = np.ones(len(warp), bool)
    np.not_equal(warp[1:], warp[:-1], out=first[1:])
    row = np.cumsum(first) - 1
    at = np.broadcast_to(at, lanes.shape)
    acting = np.zeros((int(row[-1]) + 1, 32), bool)
    acting[row, lanes & 31] = True
    table = np.repeat(at[first], 32).reshape(-1, 32)
    table[row, lanes & 31] = at
    return Requests(table, None if acting.all() else acting, warp[first], size)


def wavefronts(requests: Requests) -> Wavefronts:
    """How shared memory serves requests, each access aligned to its size."""
    count = len(requests.at)
    # moving all words by one distance turns the banks and leaves the fullest as full
    apart = requests.at[:, 0] - requests.at[0, 0]
    once = count > 1 and not (apart % WORD).any() and requests.alike
    rows = slice(0, 1) if once else slice(None)
    filled = bank_words(requests, rows).max(axis=2)
    needed, best, ways = filled.sum(axis=1), (filled > 0).sum(axis=1), filled.max(axis=1)
    if once:
        needed, best, ways = (np.broadcast_to(v, (count,)) for v in (needed, best, ways))
    return Wavefronts(needed, best, ways)


def bank_words(requests: Requests, rows: slice = slice(None)) -> Array:
    """How many different words each bank is asked for: [W, phases, 32] of some of the requests."""
    lanes = min(max(_TOGETHER // requests.size, 1), 32)
    words = requests.at[rows].reshape(-1, lanes) // WORD
    acting = None if requests.acting is None else requests.acting[rows].reshape(-1, lanes)
    each = max(requests.size // WORD, 1)
    if each > 1:
        words = (words[:, :, None] + np.arange(each)).reshape(len(words), -1)
        acting = None if acting is None else np.repeat(acting, each, axis=1)
    if acting is not None:
        words = np.where(acting, words, -1)
    ordered = np.sort(words, axis=1)
    row, place = np.nonzero(_new(ordered) & (ordered >= 0))
    bank = ordered[row, place] % BANKS
    counts = np.bincount(row * BANKS + bank, minlength=len(words) * BANKS)
    return counts.reshape(-1, 32 // lanes, BANKS)


def sectors(requests: Requests) -> tuple[Array, Array]:
    """For each request the sectors it moves, and how few could hold the bytes it asks for.

    Accesses are aligned to their size, at most a sector, so each lies in one.
    """
    at, count = requests.at, len(requests.at)
    once = count > 1 and not ((at[:, 0] - at[0, 0]) % SECTOR).any() and requests.alike
    rows = slice(0, 1) if once else slice(None)
    at = at[rows]
    if requests.acting is not None:
        at = np.where(requests.acting[rows], at, -1)
    ordered = np.sort(at, axis=1)
    inside = ordered >= 0
    moved = (_new(ordered // SECTOR) & inside).sum(axis=1)
    octets = (_new(ordered) & inside).sum(axis=1) * requests.size
    best = -(-octets // SECTOR)
    if once:
        return np.broadcast_to(moved, (count,)), np.broadcast_to(best, (count,))
    return moved, best


def _new(ordered: Array) -> BoolArray:
    """Which values of sorted rows differ from the one before."""
    new = np.ones(ordered.shape, bool)
    np.not_equal(ordered[:, 1:], ordered[:, :-1], out=new[:, 1:])
    return new

"""Stores of threads that ended instead of coming to a barrier, read by others behind it.

A barrier does not wait for threads that have ended, and the ISA does not say that it orders what
they stored.  GPUs finish the stores of a warp before it counts as ended, so this is advice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ...isa.protocol import Array, BoolArray, Site

if TYPE_CHECKING:
    from ..wave import Wave

__all__ = ["Leavers", "Reads"]

#: Accesses of lanes that are kept in the hope of a barrier; of more the oldest are forgotten.
_MOST = 1 << 20


@dataclass(frozen=True, slots=True)
class _Stored:
    """A store: its lanes of the wave, byte places, size, and how many events came before it."""

    space: str
    lanes: Array
    at: Array
    size: int
    site: Site
    time: int


@dataclass(frozen=True, slots=True)
class _Left:
    """Bytes of a space that ended lanes stored, in order of their places; one entry for each."""

    at: Array
    lanes: Array
    sites: Array


@dataclass(frozen=True, slots=True)
class Reads:
    """Lanes that read at places what the ``writers`` had stored by the instruction ``first``."""

    first: Site
    lanes: Array
    places: Array
    writers: Array


class Leavers:
    """What ended lanes of a wave stored after the last time that they gave order to others."""

    def __init__(self) -> None:
        self._stored: list[_Stored] = []
        self._kept = 0
        self._now = 0
        self._left: dict[str, _Left] = {}

    def begin(self, wave: Wave) -> None:
        """A wave begins; nothing of the last one can be behind a barrier of this one."""
        self._stored.clear()
        self._left.clear()
        self._kept = 0
        #: when each lane last gave order away, by :attr:`_now`
        self._gave = np.full(wave.size, -1, np.int64)
        self._gone: BoolArray = np.zeros(wave.size, bool)
        self._any_gone = False

    def gives(self, lanes: Array) -> None:
        """Lanes let others know what they did: a barrier, a release, a fence."""
        self._now += 1
        self._gave[lanes] = self._now

    def exited(self, lanes: Array) -> None:
        """Lanes have ended."""
        self._gone[lanes] = True
        self._any_gone = True

    def stores(self, space: str, lanes: Array, at: Array, size: int, site: Site) -> None:
        """Lanes store to these places; what others left there is gone."""
        left = self._left.get(space)
        if left is not None:
            stays = np.ones(len(left.at), bool)
            for k in range(size):
                stays &= ~np.isin(left.at, at + k)
            self._left[space] = _Left(left.at[stays], left.lanes[stays], left.sites[stays])
        at = np.broadcast_to(at, lanes.shape).copy()
        self._stored.append(_Stored(space, lanes, at, size, site, self._now))
        self._kept += len(lanes)
        while self._kept > _MOST:
            self._kept -= len(self._stored.pop(0).lanes)

    def opened(self, wave: Wave, ctas: Array) -> None:
        """A barrier of all threads that are left opens in these CTAs."""
        here = np.zeros(len(wave.ctas), bool)
        here[ctas] = True
        stored, self._stored, self._kept = self._stored, [], 0
        for one in stored:
            inside = here[wave.cta_of(one.lanes)]
            if self._any_gone:
                loose = inside & self._gone[one.lanes] & (self._gave[one.lanes] <= one.time)
                if loose.any():
                    self._leave(one, loose)
            if not inside.all():
                rest = replace(one, lanes=one.lanes[~inside], at=one.at[~inside])
                self._stored.append(rest)
                self._kept += len(rest.lanes)

    def _leave(self, one: _Stored, loose: BoolArray) -> None:
        """Bytes that ended lanes stored are now behind a barrier."""
        at = (one.at[loose][:, None] + np.arange(one.size)).ravel()
        lanes = np.repeat(one.lanes[loose], one.size)
        sites = np.full(len(at), one.site, object)
        old = self._left.get(one.space)
        if old is not None:  # of two stores to a byte the later one is kept
            stays = ~np.isin(old.at, at)
            at = np.concatenate([old.at[stays], at])
            lanes = np.concatenate([old.lanes[stays], lanes])
            sites = np.concatenate([old.sites[stays], sites])
        at, first = np.unique(at, return_index=True)
        self._left[one.space] = _Left(at, lanes[first], sites[first])

    def loads(self, wave: Wave, space: str, lanes: Array, at: Array, size: int) -> list[Reads]:
        """Lanes read: those that read what ended lanes of their CTA left."""
        left = self._left.get(space)
        if left is None or not len(left.at):
            return []
        at = np.broadcast_to(at, lanes.shape)
        entry = np.minimum(np.searchsorted(left.at, at), len(left.at) - 1)
        inside = (left.at[entry] >= at) & (left.at[entry] < at + size)
        writer = left.lanes[entry]
        inside &= (writer != lanes) & (wave.cta_of(writer) == wave.cta_of(lanes))
        found = []
        for first in {id(s): s for s in left.sites[entry[inside]]}.values():
            chosen = inside & (left.sites[entry] == first)
            found.append(Reads(first, lanes[chosen], left.at[entry[chosen]], writer[chosen]))
        return found

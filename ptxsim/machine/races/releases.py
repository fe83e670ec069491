"""Clocks that were released to one place, one after the other.

Whoever reads the k-th of a chain of atomics knows what the ones before it released.  The clocks are
only ever appended; what the first k of them know is found by bisection, so a lane that acquires
them keeps the chain and the number, and no clocks are put together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import TypeVar

from .clocks import Clock, Moment, Track, joined

__all__ = ["Chain"]

#: So many clocks are put together at once; of more the chain itself is kept.
_FEW = 4

K = TypeVar("K")


class Chain(Track):
    """Released clocks in the order of the chain."""

    def __init__(self) -> None:
        self.count = 0
        self.closed = False
        #: what is not yet looked into: a moment, and the lane that released it
        self._new: list[tuple[Moment, int]] = []
        #: by lane of the wave: what it released last
        self._last: dict[int, Moment] = {}
        self._few: list[Clock] = []
        #: numbers of clocks, and the times that they were the first to know
        self._warps: dict[int, tuple[list[int], list[int]]] = {}
        self._lanes: dict[int, tuple[list[int], list[int]]] = {}
        self._tracks: dict[Track, tuple[list[int], list[int]]] = {}
        #: what the clocks up to a number know of asynchronous copies
        self._copies: tuple[list[int], list[Clock]] = ([], [])
        self._indexed = 0

    def append(self, moment: Moment, lane: int) -> None:
        """A lane of the wave releases what it knew at a moment."""
        if self._last.get(lane) is not moment:
            self._last[lane] = moment
            self._new.append((moment, lane))
            self.count += 1

    def clock(self, count: int) -> Clock:
        """What the first clocks know."""
        if count <= _FEW:
            self._index()
            return self._few[count - 1]
        if self.closed:
            return self.flat(count)
        return self._with_copies(Clock(tracks={self: count}), count)

    def _with_copies(self, clock: Clock, count: int) -> Clock:
        self._index()
        k = bisect_left(self._copies[0], count)
        return (joined((clock, self._copies[1][k - 1])) if k else None) or clock

    def _index(self) -> None:
        new, self._new = self._new, []
        for moment, lane in new:
            self._put(moment.clock(lane))

    def _put(self, clock: Clock) -> None:
        number = self._indexed
        self._indexed += 1
        if number < _FEW:
            whole = joined((*self._few[-1:], clock))
            assert whole is not None
            self._few.append(whole)
        _enter(self._warps, clock.warps, number)
        _enter(self._lanes, clock.lanes, number)
        for track, count in clock.tracks.items():
            if track is not self:
                _enter(self._tracks, {track: count}, number)
        if clock.groups:
            copies = Clock(groups=clock.groups)
            whole = joined((*self._copies[1][-1:], copies))
            assert whole is not None
            self._copies[0].append(number)
            self._copies[1].append(whole)

    def own(self, lane: int, count: int) -> int:
        if self._new:
            self._index()
        return max(_at(self._warps, lane >> 5, count), _at(self._lanes, lane, count))

    def others(self, count: int) -> list[tuple[Track, int]]:
        if self._new:
            self._index()
        found = [(track, _at(self._tracks, track, count)) for track in self._tracks]
        return [(track, number) for track, number in found if number > 0]

    def flat(self, count: int) -> Clock:
        self._index()
        warps, lanes = self._warps, self._lanes
        clock = Clock(
            {key: time for key in warps if (time := _at(warps, key, count)) >= 0},
            {key: time for key in lanes if (time := _at(lanes, key, count)) >= 0},
            tracks=dict(self.others(count)),
        )
        return self._with_copies(clock, count)


def _enter(
    index: dict[K, tuple[list[int], list[int]]], given: Mapping[K, int], number: int
) -> None:
    for key, time in given.items():
        found = index.get(key)
        if found is None:
            index[key] = [number], [time]
        elif found[1][-1] < time:
            found[0].append(number)
            found[1].append(time)


def _at(index: dict[K, tuple[list[int], list[int]]], key: K, count: int) -> int:
    """The newest time that one of the first clocks knows, or -1."""
    found = index.get(key)
    if found is None:
        return -1
    k = bisect_left(found[0], count)
    return found[1][k - 1] if k else -1

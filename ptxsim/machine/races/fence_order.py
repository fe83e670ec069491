"""Pairs of accesses that only the order of fence.sc can order (PTX ISA 9.1, Fence-SC).

Each run has one order of all fence.sc, which agrees with causality but is otherwise free.  Two
accesses p and q are ordered in *some* run where p comes before a fence F1, a fence F2 comes before
q, the two are morally strong with each other, and F2 does not come before F1.  That does not depend
on the run at hand, so it is decided from what lanes knew at the time of fences and accesses, when
the launch has ended and all fences are there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import numpy as np

from ...isa.protocol import Array
from .past import Past

__all__ = ["FenceOrder", "Pairs"]

#: Different pairs of accesses of two instructions that are told apart; more are not excused.
_PAIRS = 1 << 18
#: After so many pairs equal ones are put together for the first time.
_FIRST = 1 << 12
#: Pairs of fences that are tried to excuse one pair of accesses; more do not excuse it.
_TRIES = 1 << 18

#: A global lane and a time of its warp.
_Event: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Fence:
    lane: int
    time: int
    #: of gpu scope or wider
    wide: bool


@dataclass(slots=True)
class _Fences:
    """The times of the fence.sc of a lane: of all, and of those of gpu scope or wider."""

    all: list[int] = field(default_factory=list)
    wide: list[int] = field(default_factory=list)

    def of(self, lane: int, all_: int, wide: int) -> Iterator[_Fence]:
        """The fences at these positions; one that stands for both is wide."""
        if 0 <= wide < len(self.wide):
            yield _Fence(lane, self.wide[wide], True)
            if 0 <= all_ < len(self.all) and self.all[all_] == self.wide[wide]:
                return
        if 0 <= all_ < len(self.all):
            yield _Fence(lane, self.all[all_], False)


class Pairs:
    """Unordered accesses of two instructions: lane and time of the one and of the other."""

    def __init__(self) -> None:
        self._parts: list[Array] = []
        self._count = 0
        self._compact = _FIRST
        #: there were too many
        self.many = False

    def add(self, owner: Array, time: Array, lanes: Array, times: Array) -> None:
        if self.many:
            return
        self._parts.append(np.stack([owner, time, lanes, times], axis=1))
        self._count += len(owner)
        if self._count > self._compact:
            self._count = len(self.different())
            self._compact = max(_FIRST, 2 * self._count)
            if self._count > _PAIRS:
                self.many = True
                self._parts.clear()

    def different(self) -> Array:
        """Each pair once [pair, 4]."""
        self._parts = [np.unique(np.concatenate(self._parts), axis=0)]
        return self._parts[0]


class _Found:
    """What an iterator yields, kept so that it can be gone through again."""

    def __init__(self, more: Iterator[_Fence]) -> None:
        self._more = more
        self._kept: list[_Fence] = []

    def __iter__(self) -> Iterator[_Fence]:
        yield from self._kept
        for fence in self._more:
            self._kept.append(fence)
            yield fence


class FenceOrder:
    """The fence.sc of a launch."""

    def __init__(self, past: Past) -> None:
        self.past = past
        self._per = past.per
        self._steps: list[tuple[Array, Array, bool]] = []
        self._ends: list[tuple[Array, Array]] = []
        #: by CTA and global lane
        self._by_cta: dict[int, dict[int, _Fences]] = {}
        self._before: dict[_Event, _Found] = {}
        self._after: dict[_Event, _Found] = {}

    def add(self, lanes: Array, times: Array, wide: bool) -> None:
        """Global lanes fence at times of their warps."""
        self._steps.append((lanes, times, wide))

    def ended(self, lanes: Array, times: Array) -> None:
        """Global lanes have ended at times of their warps."""
        if self._steps or self._by_cta:
            self._ends.append((lanes, times))

    def settle(self) -> None:
        """All fences are there."""
        for lanes, times, wide in self._steps:
            for lane, time in zip(lanes.tolist(), times.tolist(), strict=True):
                fences = self._by_cta.setdefault(lane // self._per, {}).setdefault(lane, _Fences())
                fences.all.append(time)
                if wide:
                    fences.wide.append(time)
        for lanes, times in self._ends:
            for lane, time in zip(lanes.tolist(), times.tolist(), strict=True):
                if lane in self._by_cta.get(lane // self._per, {}):
                    self.past.ended[lane] = time
        self._steps.clear()
        self._ends.clear()

    def excuses(self, pairs: Pairs) -> bool:
        """Whether each of these pairs is ordered in some run."""
        if pairs.many:
            return False
        rows: list[tuple[int, int, int, int]] = pairs.different().tolist()
        return all(self.excused((a, t), (b, u)) for a, t, b, u in rows)

    def excused(self, one: _Event, other: _Event) -> bool:
        """Whether two unordered accesses are ordered in some run."""
        return self._forward(one, other) or self._forward(other, one)

    def _forward(self, p: _Event, q: _Event) -> bool:
        """Whether some run has p before q."""
        if q not in self._before:
            self._before[q] = _Found(self._preceding(q))
        if p not in self._after:
            self._after[p] = _Found(self._following(p))
        left = _TRIES
        for second in self._before[q]:
            for first in self._after[p]:
                if self._free(first, second):
                    return True
                left -= 1
                if not left:
                    return False
        return False

    def _free(self, first: _Fence, second: _Fence) -> bool:
        """Whether the fences are morally strong and some run has the first before the second."""
        near = first.lane // self._per == second.lane // self._per
        if not (near or (first.wide and second.wide)):
            return False
        if first.lane == second.lane:
            return first.time < second.time
        return self.past.bound(first.lane, first.time, second.lane) < second.time

    def _preceding(self, q: _Event) -> Iterator[_Fence]:
        """The last fences of each lane that come before an access."""
        lane, when = q
        for other, fences in self._lanes(lane):
            bound = self.past.bound(lane, when, other)
            last = (bisect_right(times, bound) - 1 for times in (fences.all, fences.wide))
            yield from fences.of(other, *last)

    def _following(self, p: _Event) -> Iterator[_Fence]:
        """The first fences of each lane that come after an access."""
        lane, when = p
        for other, fences in self._lanes(lane):
            if lane == other:
                first = [bisect_left(times, when) for times in (fences.all, fences.wide)]
            elif self.past.bound(other, fences.all[-1], lane) < when:
                continue
            else:
                bound = partial(self._bound, other, lane)
                first = [bisect_left(t, when, key=bound) for t in (fences.all, fences.wide)]
            yield from fences.of(other, *first)

    def _bound(self, lane: int, owner: int, when: int) -> int:
        return self.past.bound(lane, when, owner)

    def _lanes(self, lane: int) -> Iterator[tuple[int, _Fences]]:
        """The lanes that fence: itself, the others of its CTA, those of other CTAs."""
        mine = lane // self._per
        here = self._by_cta.get(mine, {})
        if lane in here:
            yield lane, here[lane]
        for other, fences in here.items():
            if other != lane:
                yield other, fences
        for cta, there in self._by_cta.items():
            if cta != mine:
                yield from there.items()

"""What mbarriers and bulk copies order (PTX ISA 9.1, mbarrier; Memory Consistency Model: Proxies).

A phase of an mbarrier collects the clocks of those who arrive in it, the cp.async groups that will
arrive when they land, and the bulk copies whose bytes it counts.  Whoever sees the phase complete
knows all of it, and what earlier phases had.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from ...isa.order import MemoryOrder
from ...isa.protocol import Array, BoolArray
from .clocks import Clock, Knowledge, joined
from .sync import Synchronisation

if TYPE_CHECKING:
    from ..bulk_copies import BulkCopy

__all__ = ["BulkParts", "Phases", "ProxyFences"]

#: More than any number of a group.
_NEVER = np.iinfo(np.int64).max


class Phases:
    """The mbarriers of a wave, by their place in its shared memory."""

    def __init__(self, know: Knowledge, sync: Synchronisation) -> None:
        self.know, self.sync = know, sync
        self._at: dict[int, dict[int, Clock]] = {}
        #: the asynchronous threads of the bulk copies that signal the objects
        self._threads: dict[int, int] = {}

    def initialised(self, barrier: Array) -> None:
        """New objects: their phases begin anew."""
        for place in map(int, np.unique(barrier)):
            self._at[place] = {}
            self._threads.pop(place, None)

    def thread(self, place: int, new: Callable[[], int]) -> int:
        """The asynchronous thread of the copies that signal an object, a ``new`` one for the first.

        Its groups are the phases.
        """
        if place not in self._threads:
            self._threads[place] = new()
        return self._threads[place]

    def give(self, place: int, phase: int, clock: Clock | None) -> None:
        """Who sees the phase complete knows this clock."""
        if clock is None:
            return
        phases = self._at.setdefault(place, {})
        whole = joined((phases.get(phase), clock))
        assert whole is not None
        phases[phase] = whole

    def arrived(self, lanes: Array, barrier: Array, phase: Array, order: MemoryOrder) -> None:
        """Lanes arrive; a relaxed arrival gives what a fence before it released."""
        for place, number, some in _together(barrier, phase, lanes):
            if order.release:
                self.give(place, number, self.know.clock_of_all(some))
            else:
                for lane in map(int, some):
                    self.give(place, number, self.sync.fenced(lane))
        if order.release:
            self.know.tick(lanes)

    def passed(self, lanes: Array, barrier: Array, phase: Array, order: MemoryOrder) -> None:
        """Lanes have seen a phase complete; a relaxed wait is for a fence to take."""
        if order.acquire:
            self.know.turn(lanes)
        for place, number, some in _together(barrier, phase, lanes):
            phases = self._at.get(place, {})
            clocks = [c for n, c in phases.items() if n <= number]
            thread = self._threads.get(place)
            if thread is not None and all(c.groups.get(thread, 0) <= number for c in clocks):
                clocks.append(Clock(groups={thread: number + 1}))
            clock = joined(clocks)
            if clock is None:
                continue
            phases = {n: c for n, c in phases.items() if n > number}
            self._at[place] = phases | {number: clock}
            if order.acquire:
                self.know.learn(some, clock)
            else:
                for lane in map(int, some):
                    self.sync.seen(lane, ("shared", place), clock)


def _together(barrier: Array, phase: Array, lanes: Array) -> Iterable[tuple[int, int, Array]]:
    """The lanes by place and phase."""
    keys = np.stack([barrier, phase])
    for place, number in np.unique(keys, axis=1).T:
        some = (barrier == place) & (phase == number)
        yield int(place), int(number), lanes[some]


class BulkParts:
    """The reading and the writing part of each bulk copy of a launch, under numbers of their own.

    A part belongs to a group of an asynchronous thread: one for all copies that signal an mbarrier
    object, whose groups are its phases; or two of the lane that issued it, since wait_group.read
    waits for the reading parts alone.  Whoever knows a group complete knows the ones before.
    """

    def __init__(self) -> None:
        #: by part: asynchronous thread, and group in it
        self._parts: Array = np.zeros((2, 64), np.int64)
        self._count = 1
        #: by lane: the asynchronous threads of what it reads and writes
        self._lanes: dict[int, tuple[int, int]] = {}
        self._threads = 0

    def begin(self, know: Knowledge, phases: Phases) -> None:
        """A new wave; the parts of earlier ones stay."""
        self.know, self.phases = know, phases
        #: copies that have not landed, with their parts
        self._flying: dict[int, tuple[BulkCopy, slice]] = {}

    def _thread(self) -> int:
        self._threads -= 1
        return self._threads

    def issued(self, copy: BulkCopy) -> tuple[int, int]:
        """A new copy: the numbers of its source and target part."""
        parts = slice(self._count, self._count + 2)
        self._count += 2
        if self._count > self._parts.shape[1]:
            self._parts = np.concatenate([self._parts, np.zeros_like(self._parts)], axis=1)
        if copy.mbarrier is not None:
            # nobody sees it complete before it has landed, which says in which phase it counts
            self._parts[0, parts] = self.phases.thread(copy.mbarrier, self._thread)
            self._parts[1, parts] = _NEVER
            self._flying[id(copy)] = copy, parts
        else:
            self._parts[0, parts] = self._of_lane(int(self.know.globally(np.array([copy.lane]))[0]))
            self._parts[1, parts] = copy.group
        return parts.start, parts.start + 1

    def _of_lane(self, lane: int) -> tuple[int, int]:
        if lane not in self._lanes:
            self._lanes[lane] = self._thread(), self._thread()
        return self._lanes[lane]

    def landed(self, copy: BulkCopy) -> None:
        """A copy has completed its bytes in a phase of its mbarrier."""
        found = self._flying.pop(id(copy), None)
        if found is not None:
            self._parts[1, found[1]] = copy.phase

    def waited(self, lane: int, limit: int, read: bool) -> None:
        """The lane has waited for its groups below ``limit``; ``read``: for their sources only."""
        threads = self._lanes.get(int(self.know.globally(np.array([lane]))[0]))
        if threads is not None and limit > 0:
            done = dict.fromkeys(threads[:1] if read else threads, limit)
            self.know.acquire(lane, Clock(groups=done))

    def unknown(self, part: Array, lanes: Array) -> BoolArray:
        """Which parts the lanes of the wave do not know to be complete."""
        threads, groups = self._parts[:, part]
        out: BoolArray = np.ones(len(part), bool)
        pairs = zip(threads.tolist(), groups.tolist(), self.know.extra[lanes], strict=True)
        for k, (thread, group, clock) in enumerate(pairs):
            out[k] = clock is None or group >= clock.groups.get(thread, 0)
        return out


class ProxyFences:
    """fence.proxy.async: which writes through the generic proxy bulk copies may see."""

    def __init__(self) -> None:
        #: times of the fences, by global lane
        self._own: dict[int, list[int]] = {}
        #: by CTA and global lane: the times of fences, and what the lane knew
        self._all: dict[int, dict[int, tuple[list[int], list[Clock]]]] = {}

    def begin(self, know: Knowledge) -> None:
        """A new wave; what was fenced in earlier ones stays so."""
        self.know = know

    def fence(self, lanes: Array) -> None:
        """Lanes fence; what they write later is not covered."""
        owners = self.know.globally(lanes)
        times = self.know.times(lanes)
        for owner, time in zip(owners.tolist(), times.tolist(), strict=True):
            self._own.setdefault(owner, []).append(time)
        for k in np.flatnonzero(self._different(lanes)):
            owner = int(owners[k])
            by_lane = self._all.setdefault(owner // self.know.per, {})
            when, clocks = by_lane.setdefault(owner, ([], []))
            when.append(int(times[k]))
            clocks.append(self.know.clock(int(lanes[k])))
        self.know.tick(lanes)

    def _different(self, lanes: Array) -> BoolArray:
        """The first of lanes of a warp that know the same; what they write themselves apart."""
        out = np.ones(len(lanes), bool)
        warps, clocks = lanes >> 5, self.know.extra[lanes]
        out[1:] = (warps[1:] != warps[:-1]) | (clocks[1:] != clocks[:-1])
        if self.know.partial:
            out |= np.isin(warps, list(self.know.partial))
        return out

    def missing(self, owner: Array, time: Array, lane: int, copies: bool = False) -> BoolArray:
        """Which generic writes, known to ``lane``, no proxy fence on the way to it covers.

        Those of ``copies`` of cp.async that an mbarrier tells of have a number in place of a time.
        """
        out: BoolArray = np.zeros(len(owner), bool)
        seen: dict[tuple[int, int], bool] = {}
        for k, key in enumerate(zip(map(int, owner), map(int, time), strict=True)):
            if key not in seen:
                seen[key] = not self._covered(*key, lane, copies)
            out[k] = seen[key]
        return out

    def _covered(self, owner: int, time: int, lane: int, copies: bool) -> bool:
        """Of the fences of one lane that cover a write, the first is the one to be known most."""
        own = [] if copies else self._own.get(owner, [])
        at = bisect_left(own, time)
        if at < len(own) and self._known(owner, own[at], lane):
            return True

        def covers(clock: Clock) -> bool:
            return clock.groups.get(owner, 0) > time if copies else clock.knows(owner, time)

        per = self.know.per
        here = int(self.know.globally(np.array([lane]))[0]) // per
        for cta in {here, owner // per}:
            for fencer, (when, clocks) in self._all.get(cta, {}).items():
                at = bisect_left(clocks, True, key=covers)
                if at < len(when) and self._known(fencer, when[at], lane):
                    return True
        return False

    def _known(self, owner: int, time: int, lane: int) -> bool:
        one = np.array([owner]), np.array([time]), np.array([lane])
        return not self.know.unknown(*one)[0]

"""What mbarriers and bulk copies order (PTX ISA 9.1, mbarrier; Memory Consistency Model: Proxies).

A phase of an mbarrier collects the clocks of those who arrive in it, the cp.async groups that will
arrive when they land, and the bulk copies whose bytes it counts.  Whoever sees the phase complete
knows all of it, and what earlier phases had.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ...isa.order import MemoryOrder
from ...isa.protocol import Array, BoolArray
from .clocks import Clock, Knowledge, joined
from .sync import Synchronisation

__all__ = ["BulkParts", "Phases", "ProxyFences"]

#: Proxy fences that are remembered for each CTA, the newest.
_FENCES = 256


class Phases:
    """The mbarriers of a wave, by their place in its shared memory."""

    def __init__(self, know: Knowledge, sync: Synchronisation) -> None:
        self.know, self.sync = know, sync
        self._at: dict[int, dict[int, Clock]] = {}

    def initialised(self, barrier: Array) -> None:
        """New objects: their phases begin anew."""
        for place in np.unique(barrier):
            self._at[int(place)] = {}

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
            clock = joined(c for n, c in phases.items() if n <= number)
            if clock is None:
                continue
            phases[number] = clock
            for old in [n for n in phases if n < number]:
                del phases[old]
            for lane in map(int, some):
                if order.acquire:
                    self.know.acquire(lane, clock)
                else:
                    self.sync.seen(lane, ("shared", place), clock)


def _together(barrier: Array, phase: Array, lanes: Array) -> Iterable[tuple[int, int, Array]]:
    """The lanes by place and phase."""
    keys = np.stack([barrier, phase])
    for place, number in np.unique(keys, axis=1).T:
        some = (barrier == place) & (phase == number)
        yield int(place), int(number), lanes[some]


@dataclass(slots=True)
class _Bulk:
    """A bulk copy in flight: the numbers of its two parts, and its group."""

    source: int
    target: int
    group: int | None


class BulkParts:
    """Numbers of the reading and the writing part of each bulk copy, and who waits for them."""

    def __init__(self, know: Knowledge, phases: Phases, first: int = 1) -> None:
        self.know, self.phases = know, phases
        #: the next number; those of earlier waves are not used again
        self.next = first
        self._grouped: dict[int, list[_Bulk]] = {}

    def issued(
        self, lane: int, mbarrier: int | None, phase: int | None, group: int | None
    ) -> tuple[int, int]:
        """A new copy: the numbers of its source and target part."""
        new = _Bulk(self.next, self.next + 1, group)
        self.next += 2
        if mbarrier is not None and phase is not None:
            both = frozenset((new.source, new.target))
            self.phases.give(mbarrier, phase, Clock(bulk=both))
        else:
            self._grouped.setdefault(lane, []).append(new)
        return new.source, new.target

    def waited(self, lane: int, limit: int, read: bool) -> None:
        """The lane has waited for its groups below ``limit``; ``read``: for their sources only."""
        done = [b for b in self._grouped.get(lane, ()) if b.group is not None and b.group < limit]
        parts = {b.source for b in done} | (set() if read else {b.target for b in done})
        if parts:
            self.know.acquire(lane, Clock(bulk=frozenset(parts)))
        if not read:
            self._grouped[lane] = [b for b in self._grouped.get(lane, ()) if b not in done]

    def unknown(self, part: Array, lanes: Array) -> BoolArray:
        """Which parts the lanes of the wave do not know to be complete."""
        out: BoolArray = np.ones(len(part), bool)
        for k, (number, lane) in enumerate(zip(part, lanes, strict=True)):
            clock = self.know.extra[lane]
            out[k] = clock is None or int(number) not in clock.bulk
        return out


class ProxyFences:
    """fence.proxy.async: which writes through the generic proxy bulk copies may see."""

    def __init__(self, know: Knowledge) -> None:
        self.know = know
        self._own: dict[int, list[int]] = {}
        #: by CTA of the wave
        self._all: dict[int, list[tuple[int, int, Clock]]] = {}

    def fence(self, lanes: Array) -> None:
        """Lanes fence; what they write later is not covered."""
        for lane in map(int, lanes):
            self._own.setdefault(lane, []).append(int(self.know.times(np.array([lane]))[0]))
        first = lanes[np.r_[True, lanes[1:] >> 5 != lanes[:-1] >> 5]] if len(lanes) else lanes
        for lane in map(int, first):
            time = int(self.know.times(np.array([lane]))[0])
            kept = self._all.setdefault(lane // self.know.per, [])
            kept.append((lane, time, self.know.clock(lane)))
            del kept[:-_FENCES]
        self.know.tick(lanes)

    def missing(self, owner: Array, time: Array, lane: int) -> BoolArray:
        """Which generic writes, known to ``lane``, no proxy fence on the way to it covers."""
        out: BoolArray = np.zeros(len(owner), bool)
        seen: dict[tuple[int, int], bool] = {}
        for k, key in enumerate(zip(map(int, owner), map(int, time), strict=True)):
            if key not in seen:
                seen[key] = not self._covered(*key, lane)
            out[k] = seen[key]
        return out

    def _covered(self, owner: int, time: int, lane: int) -> bool:
        base = int(self.know.globally(np.array([lane]))[0]) - lane
        for when in self._own.get(owner - base, ()):
            if when >= time and self._known(owner, when, lane):
                return True
        per = self.know.per
        return any(
            clock.knows(owner, time) and self._known(fencer + base, when, lane)
            for cta in {lane // per, (owner - base) // per}
            for fencer, when, clock in self._all.get(cta, ())
        )

    def _known(self, owner: int, time: int, lane: int) -> bool:
        one = np.array([owner]), np.array([time]), np.array([lane])
        return not self.know.unknown(*one)[0]

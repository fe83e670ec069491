"""Release and acquire patterns (PTX ISA 9.1, Memory Consistency Model).

A location that is used to synchronise has *entries*: clocks that were released to it, each with the
scope in which it may be taken, and who released it.  Atomics carry them on, other writes replace
them.  Lanes keep what a fence covers until they write (``_fenced``), and what they have read until
a fence takes it (``_seen``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ...isa.order import SCOPES, MemoryOrder
from ...isa.protocol import Array, BoolArray
from .clocks import Clock, Knowledge, joined

__all__ = ["Synchronisation"]

#: Memory and byte offset; shared memory of different CTAs has different offsets.
Location: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A released clock: who released it, and the narrowest scope that carried it."""

    clock: Clock
    lane: int
    cta: int
    scope: int


class Synchronisation:
    """The synchronising locations of a launch, and the fences of the lanes of a wave."""

    def __init__(self) -> None:
        self._at: dict[Location, tuple[_Entry, ...]] = {}
        #: by lane and scope
        self._fenced: dict[int, dict[int, Clock]] = {}
        self._seen: dict[int, dict[Location, tuple[_Entry, ...]]] = {}
        #: what the fence.sc so far cover in the order of this run, by the CTA that they are in (for
        #: those of a wider scope also by -1), and what each lane had of it
        self._sequences: dict[int, Clock | None] = {}
        self._sequential: dict[int, Clock] = {}
        self._taken: dict[tuple[int, int, int], Clock] = {}
        self.know: Knowledge | None = None

    def begin(self, know: Knowledge) -> None:
        """A new wave."""
        self.know = know
        self._fenced.clear()
        self._seen.clear()
        self._sequential.clear()
        self._taken.clear()
        for where in [w for w in self._at if w[0] == "shared"]:  # of CTAs that have ended
            del self._at[where]

    @property
    def idle(self) -> bool:
        """Whether a relaxed access has nothing to do."""
        return not self._at and not self._fenced

    def _cta(self, lane: int) -> int:
        assert self.know is not None
        return int(self.know.ctas[lane // self.know.per])

    # --- fences ---------------------------------------------------------------------------------

    def fence(self, lanes: Array, order: MemoryOrder) -> None:
        """A fence of these lanes: first it acquires, then it releases."""
        know = self.know
        assert know is not None
        scope = SCOPES.index(order.scope)
        if order.acquire and self._seen:
            for lane in map(int, lanes):
                for entries in self._seen.get(lane, {}).values():
                    self._take(lane, entries, scope)
        if order.sequential:
            self._in_order(lanes, scope)
        if order.release:
            for lane in map(int, lanes):
                self._fenced.setdefault(lane, {})[scope] = know.clock(lane)
            know.tick(lanes)

    def _in_order(self, lanes: Array, scope: int) -> None:
        """The next fence.sc of these lanes: after those whose scopes include each other."""
        know = self.know
        assert know is not None
        ctas = know.ctas[lanes // know.per]
        for cta in map(int, np.unique(ctas)):
            members = lanes[ctas == cta]
            places = (cta, -1) if scope >= SCOPES.index("gpu") else (cta,)
            known = [self._sequences.get(p) for p in places]
            clock = joined((*known, know.clock_of_all(members)))
            assert clock is not None
            self._sequences.update(dict.fromkeys(places, clock))
            self._sequential.update(dict.fromkeys(map(int, members), clock))

    def _take(self, lane: int, entries: tuple[_Entry, ...], scope: int) -> None:
        assert self.know is not None
        cta = self._cta(lane)
        for e in entries:
            if e.cta == cta or min(e.scope, scope) >= SCOPES.index("gpu"):
                key = lane, e.cta, e.scope
                if self._taken.get(key) is not e.clock:  # a lane that spins takes it once
                    self._taken[key] = e.clock
                    self.know.acquire(lane, e.clock)

    def in_sequence(self, owner: Array, time: Array, lanes: Array) -> BoolArray:
        """Which accesses the order in which this run executed fence.sc puts before the lanes.

        Another run may have the other order (PTX ISA 9.1, Memory Consistency Model: Fence-SC).
        """
        out: BoolArray = np.zeros(len(owner), bool)
        if self._sequential:
            for k, lane in enumerate(map(int, lanes)):
                clock = self._sequential.get(lane)
                out[k] = clock is not None and clock.knows(int(owner[k]), int(time[k]))
        return out

    def fenced(self, lane: int) -> Clock | None:
        """What the last release fence of a lane covers."""
        return joined(self._fenced.get(lane, {}).values())

    def seen(self, lane: int, where: Location, clock: Clock) -> None:
        """A lane has read a clock that its next acquire fence takes."""
        entry = _Entry(clock, -1, self._cta(lane), len(SCOPES) - 1)
        self._seen.setdefault(lane, {})[where] = (entry,)

    # --- accesses -------------------------------------------------------------------------------

    def read(self, space: str, at: Array, lanes: Array, order: MemoryOrder) -> None:
        """Strong reads of these byte offsets."""
        if not self._at and not (order.acquire and self._seen):
            return
        for place, lane in zip(map(int, at), map(int, lanes), strict=True):
            self._read((space, place), lane, order)

    def _read(self, where: Location, lane: int, order: MemoryOrder) -> None:
        scope = SCOPES.index(order.scope)
        found = self._at.get(where, ())
        before = self._seen.get(lane, {}).get(where, ())
        if order.acquire:
            self._take(lane, (*found, *before), scope)
        elif found and order.reads:
            kept = tuple({_narrowed(e, scope): None for e in found} | dict.fromkeys(before))
            self._seen.setdefault(lane, {})[where] = kept

    def write(self, space: str, at: Array, lanes: Array, order: MemoryOrder) -> None:
        """Strong writes; the last one to a place stays."""
        if self.idle and not order.release:
            return
        clocks = self._released(lanes, order)
        for place, lane in zip(map(int, at), map(int, lanes), strict=True):
            self._write((space, place), lane, order, clocks.get(lane))

    def _write(self, where: Location, lane: int, order: MemoryOrder, clock: Clock | None) -> None:
        mine = self._given(lane, order, clock)
        # a later write of the thread that released to the place continues its pattern
        assert self.know is not None
        me = int(self.know.globally(np.array([lane]))[0])
        mine += tuple(e for e in self._at.get(where, ()) if e.lane == me)
        self._set(where, mine)

    def atomic(self, space: str, at: Array, lanes: Array, order: MemoryOrder) -> None:
        """Atomics, one lane after the other: they read, and carry on what they read from.

        The caller lets time advance when it has recorded the accesses.
        """
        if self.idle and not order.release and not (order.acquire and self._seen):
            return
        assert self.know is not None
        for place, lane in zip(map(int, at), map(int, lanes), strict=True):
            where = (space, place)
            self._read(where, lane, order)
            scope = SCOPES.index(order.scope)
            mine = self._given(lane, order, self.know.clock(lane) if order.release else None)
            chain = tuple(_narrowed(e, scope) for e in self._at.get(where, ()))
            self._set(where, tuple(replace(e, lane=-1) for e in (*chain, *mine)))

    def overwritten(self, space: str, at: Array) -> None:
        """Weak writes end the patterns of their places."""
        if self._at:
            for place in np.unique(at):
                self._at.pop((space, int(place)), None)

    def _released(self, lanes: Array, order: MemoryOrder) -> dict[int, Clock]:
        if not order.release:
            return {}
        assert self.know is not None
        clocks = {int(lane): self.know.clock(int(lane)) for lane in lanes}
        self.know.tick(lanes)
        return clocks

    def _given(self, lane: int, order: MemoryOrder, clock: Clock | None) -> tuple[_Entry, ...]:
        """What a write of the lane releases: by itself, or by the fence before it."""
        assert self.know is not None
        scope = SCOPES.index(order.scope)
        me = int(self.know.globally(np.array([lane]))[0])
        out = [] if clock is None else [_Entry(clock, me, self._cta(lane), scope)]
        for fence, covered in self._fenced.get(lane, {}).items():
            out.append(_Entry(covered, me, self._cta(lane), min(scope, fence)))
        return tuple(out)

    def _set(self, where: Location, entries: tuple[_Entry, ...]) -> None:
        if entries:
            together: dict[tuple[int, int, int], _Entry] = {}
            for e in entries:
                old = together.get((e.lane, e.cta, e.scope))
                if old is not None:
                    clock = joined((old.clock, e.clock))
                    assert clock is not None
                    e = _Entry(clock, e.lane, e.cta, e.scope)
                together[e.lane, e.cta, e.scope] = e
            self._at[where] = tuple(together.values())
        else:
            self._at.pop(where, None)


def _narrowed(e: _Entry, scope: int) -> _Entry:
    return e if scope >= e.scope else _Entry(e.clock, e.lane, e.cta, scope)

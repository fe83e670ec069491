"""Release and acquire patterns (PTX ISA 9.1, Memory Consistency Model).

A place that is used to synchronise has chains of what was released to it (:class:`.Chain`), one for
all and one for each CTA, which holds what was released to that CTA only as well.  Atomics carry the
chains on, other writes begin new ones.  Lanes keep what a fence covers until they write, and what
they have read until a fence takes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from ...isa.order import SCOPES, MemoryOrder
from ...isa.protocol import Array
from .clocks import Clock, Knowledge, Moment
from .releases import Chain

__all__ = ["Synchronisation"]

#: Memory and byte offset; shared memory of different CTAs has different offsets.
Location: TypeAlias = tuple[str, int]
#: A chain and how many of its clocks were there.
_Part: TypeAlias = tuple[Chain, int]

_GPU = SCOPES.index("gpu")


@dataclass(slots=True)
class _Place:
    """The chains of a location, and who wrote to it last: its CTA, and if in a wide scope."""

    cta: int
    wide: bool
    all: Chain = field(default_factory=Chain)
    near: dict[int, Chain] = field(default_factory=dict)

    def links(self, cta: int, wide: bool) -> bool:
        """Whether an access is morally strong with the last write."""
        return cta == self.cta or (wide and self.wide)

    def close(self) -> None:
        self.all.closed = True
        for chain in self.near.values():
            chain.closed = True


@dataclass(slots=True)
class _Seen:
    """What a lane has read of a location: what was released to all, and to its CTA."""

    all: dict[Chain, int] = field(default_factory=dict)
    near: dict[Chain, int] = field(default_factory=dict)
    #: by a wait on an mbarrier
    clock: Clock | None = None


@dataclass(slots=True)
class _Own:
    """The last releases of a lane to a location: of any scope, and to all."""

    near: Moment
    all: Moment | None


class Synchronisation:
    """The synchronising locations of a launch, and the fences of the lanes of a wave."""

    def __init__(self) -> None:
        self._at: dict[Location, _Place] = {}
        #: by location and global lane: a later write of the lane continues these patterns
        self._own: dict[Location, dict[int, _Own]] = {}
        #: by lane of the wave
        self._seen: dict[int, dict[Location, _Seen]] = {}
        self._taken: dict[int, dict[Chain, int]] = {}

    def begin(self, know: Knowledge) -> None:
        """A new wave."""
        self.know = know
        size = len(know.ctas) * know.per
        #: the last release fence of each lane, of any scope and of gpu scope or wider
        self._near: Array = np.full(size, None, object)
        self._wide: Array = np.full(size, None, object)
        self._fenced = np.zeros(size, bool)
        self._any = False
        self._seen.clear()
        self._taken.clear()
        for places in (self._at, self._own):  # shared memory of CTAs that have ended
            for where in [w for w in places if w[0] == "shared"]:
                del places[where]

    # --- fences ---------------------------------------------------------------------------------

    def fence(self, lanes: Array, order: MemoryOrder) -> None:
        """A fence of these lanes: first it acquires, then it releases."""
        if not len(lanes):
            return
        wide = SCOPES.index(order.scope) >= _GPU
        if order.acquire and self._seen:
            self.know.turn(lanes)
            for lane in lanes.tolist():
                found = self._seen.get(lane)
                if found:
                    for where in list(found):
                        self._take_seen(lane, found, where, wide)
        if order.release:
            moment = Moment(self.know, lanes)
            self._near[lanes] = moment
            if wide:
                self._wide[lanes] = moment
            self._fenced[lanes] = self._any = True
            self.know.tick(lanes)

    def _take_seen(
        self, lane: int, found: dict[Location, _Seen], where: Location, wide: bool
    ) -> None:
        """A lane acquires what it has read of a location before."""
        seen = found[where]
        self._take(lane, seen.near.items())
        seen.near.clear()
        self.know.acquire(lane, seen.clock)
        seen.clock = None
        if wide:
            self._take(lane, seen.all.items())
            del found[where]

    def _take(self, lane: int, parts: Iterable[_Part]) -> None:
        taken = self._taken.setdefault(lane, {})
        for chain, count in parts:
            if taken.get(chain, 0) < count:  # a lane that spins takes it once
                taken[chain] = count
                self.know.acquire(lane, chain.clock(count))

    def fenced(self, lane: int) -> Clock | None:
        """What the last release fence of a lane covers."""
        moment = self._near[lane]
        return None if moment is None else moment.clock(lane)

    def seen(self, lane: int, where: Location, clock: Clock) -> None:
        """A lane has read a clock that its next acquire fence takes."""
        self._seen.setdefault(lane, {}).setdefault(where, _Seen()).clock = clock

    # --- accesses -------------------------------------------------------------------------------

    def read(self, space: str, at: Array, lanes: Array, order: MemoryOrder) -> None:
        """Strong reads of these byte offsets."""
        if not self._at and not (order.acquire and self._seen):
            return
        if order.acquire:
            self.know.turn(lanes)
        wide = SCOPES.index(order.scope) >= _GPU
        ctas = self.know.ctas[lanes // self.know.per].tolist()
        for where, lane, cta in zip(at.tolist(), lanes.tolist(), ctas, strict=True):
            self._read((space, where), lane, cta, wide, order)

    def _read(self, where: Location, lane: int, cta: int, wide: bool, order: MemoryOrder) -> None:
        place = self._at.get(where)
        if place is not None and (order.acquire or order.reads) and place.links(cta, wide):
            seen = self._seen.setdefault(lane, {}).setdefault(where, _Seen())
            if place.all.count:
                seen.all[place.all] = place.all.count
            near = place.near.get(cta)
            if near is not None:
                seen.near[near] = near.count
        if order.acquire:
            found = self._seen.get(lane, {})
            if where in found:
                self._take_seen(lane, found, where, wide)

    def write(self, space: str, at: Array, lanes: Array, order: MemoryOrder) -> None:
        """Strong writes; the last one to a place stays."""
        if order.release or self._any or self._at or self._own:
            self._write(space, at, lanes, order, carries=False)

    def atomic(self, space: str, at: Array, lanes: Array, order: MemoryOrder) -> None:
        """Atomics, one lane after the other: they read, and carry on what they read from.

        The caller lets time advance when it has recorded the accesses.
        """
        if order.acquire and order.release:
            self.know.turn(lanes)
            for k in range(len(lanes)):  # what one releases the next acquires
                self._acquire_one(space, at, lanes, order, k)
                one = slice(k, k + 1)
                self._write(space, at[one], lanes[one], order, carries=True)
            return
        if order.acquire and (self._at or self._seen):
            self.know.turn(lanes)
        if order.release or self._at or self._seen or self._some_fenced(lanes):
            self._write(space, at, lanes, order, carries=True)

    def _some_fenced(self, lanes: Array) -> bool:
        return self._any and bool(self._fenced[lanes].any())

    def _acquire_one(self, space: str, at: Array, lanes: Array, order: MemoryOrder, k: int) -> None:
        wide = SCOPES.index(order.scope) >= _GPU
        lane = int(lanes[k])
        cta = int(self.know.ctas[lane // self.know.per])
        self._read((space, int(at[k])), lane, cta, wide, order)

    def overwritten(self, space: str, at: Array) -> None:
        """Weak writes end the patterns of their places."""
        if self._at:
            for place in np.unique(at):
                self._end((space, int(place)))

    def _end(self, where: Location) -> None:
        place = self._at.pop(where, None)
        if place is not None:
            place.close()

    def _write(
        self, space: str, at: Array, lanes: Array, order: MemoryOrder, carries: bool
    ) -> None:
        """Writes by lanes, in this order; those that carry on what was there have read it."""
        know = self.know
        wide = SCOPES.index(order.scope) >= _GPU
        moment = Moment(know, lanes) if order.release and len(lanes) else None
        reads = carries and not (order.acquire and order.release)
        rows = zip(
            at.tolist(), lanes.tolist(), know.ctas[lanes // know.per].tolist(),
            self._near[lanes], self._wide[lanes], strict=True,
        )  # fmt: skip
        for offset, lane, cta, near, all_ in rows:
            where = (space, offset)
            if reads:
                self._read(where, lane, cta, wide, order)
            if moment is not None:
                near, all_ = moment, moment if wide else all_
            if moment is not None or where in self._own:
                near, all_ = self._continued(where, lane, near, all_, moment, wide)
            self._put(where, lane, cta, wide, near, all_, carries)
        if moment is not None and not carries:
            know.tick(lanes)

    def _continued(
        self, where: Location, lane: int, near: Moment | None, all_: Moment | None,
        moment: Moment | None, wide: bool,
    ) -> tuple[Moment | None, Moment | None]:  # fmt: skip
        """What a write gives that goes on with earlier releases of its lane to the place."""
        know = self.know
        me = int(know.first[lane // know.per]) + lane % know.per
        own = self._own.setdefault(where, {})
        before = own.get(me)
        if before is not None:
            near = _later(near, before.near)
            all_ = _later(all_, before.all)
        if moment is not None:
            own[me] = _Own(moment, moment if wide else before.all if before else None)
        return near, all_

    def _put(
        self, where: Location, lane: int, cta: int, wide: bool, near: Moment | None,
        all_: Moment | None, carries: bool,
    ) -> None:  # fmt: skip
        """A write: the chains of the place go on or begin anew."""
        place = self._at.get(where)
        if place is not None and not (carries and place.links(cta, wide)):
            self._end(where)
            place = None
        if place is None:
            if near is None:
                return
            place = self._at[where] = _Place(cta, wide)
        place.cta, place.wide = cta, wide
        if near is not None:
            place.near.setdefault(cta, Chain()).append(near, lane)
        if all_ is not None:
            place.all.append(all_, lane)


def _later(one: Moment | None, other: Moment | None) -> Moment | None:
    if one is None or other is None:
        return one if other is None else other
    return one if one.number > other.number else other

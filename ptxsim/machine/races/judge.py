"""Compares accesses with what is recorded of earlier ones, and records them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...isa.order import FRAGMENT, SCOPES
from ...isa.protocol import Array, BoolArray
from .accesses import Conflict, New, Taken
from .clocks import Knowledge
from .copies import AsyncGroups
from .phases import BulkParts, ProxyFences
from .reports import Reports
from .shadow import (
    ASYNC,
    ATOMIC,
    BULK,
    KIND_BITS,
    LANE_BITS,
    STRONG,
    WRITTEN,
    Fields,
    Shadow,
    Slot,
    fields,
    raw_times,
)
from .sync import Synchronisation

__all__ = ["Judge"]

_GPU = SCOPES.index("gpu")
#: So many lanes at one place are kept one by one.
_MANY = 512


class Judge:
    """The comparing part of the race checker, for one wave.

    ``exact`` keeps all unordered accesses, for programs that order single lanes or warps.
    """

    def __init__(
        self,
        reports: Reports,
        know: Knowledge,
        sync: Synchronisation,
        copies: AsyncGroups,
        bulk: BulkParts,
        proxy: ProxyFences,
        exact: bool,
    ) -> None:
        self.reports = reports
        self.wave = reports.wave
        self.know, self.sync = know, sync
        self.copies, self.bulk, self.proxy = copies, bulk, proxy
        self.exact = exact

    def read(self, shadow: Shadow, index: Array, new: New) -> None:
        """Check reads against the writes that are recorded, and record them."""
        for part in shadow.parts:
            self.against(part, part.writes, index, new, old_writes=True)
            if part.more:
                self._against_more(part, index, new)
        mine = shadow.part(new.kind in (STRONG, ATOMIC))
        keep = self.unknown_of(mine, mine.reads, index, new)
        mine.read = True
        self.add(mine, mine.reads, index, new, keep)

    def write(self, shadow: Shadow, index: Array, new: New) -> None:
        """Check writes against all that is recorded and against each other, and record them."""
        twice = shadow.repeated(index)
        if twice is not None:
            self._together(shadow, index, new, twice)
        strong = new.kind in (STRONG, ATOMIC)
        mine = shadow.part(strong)
        stays = self._against_all(shadow, index, new)
        keep = stays[strong if len(stays) > 1 else 0]
        if strong or twice is not None or keep[0].any() or keep[1].any():
            self.add(mine, mine.writes, index, new, keep)
            mine.second = True
        else:
            mine.writes[0].put(index, new.records, new.number)
            if mine.second:
                mine.writes[1].clear(index)
        if not strong:
            shadow.forget(index, *stays[1:])

    def write_async(self, shadow: Shadow, index: Array, new: New) -> None:
        """The same for the writes of asynchronous copies, which have no order among themselves."""
        twice = shadow.repeated(index)
        if twice is not None:
            at = np.flatnonzero(twice)
            old = fields(new.records[shadow.last(index)[at]])
            taken = Taken(old.lane, old.time, old.kind)
            self.reports.race(Conflict(new, at, index[at] << shadow.shift, new.site, taken))
        self._against_all(shadow, index, new)
        shadow.writes[0].put(index, new.records, new.number)
        if shadow.second:
            shadow.writes[1].clear(index)
        shadow.forget(index)

    def _against_all(
        self, shadow: Shadow, index: Array, new: New
    ) -> list[tuple[BoolArray, BoolArray]]:
        """Compare with reads and writes; which writes of each part stay in their slots."""
        stays = []
        for part in shadow.parts:
            stays.append(self.against(part, part.writes, index, new, old_writes=True))
            if part.read:
                self.against(part, part.reads, index, new, old_writes=False)
            if part.more:
                self._against_more(part, index, new)
        return stays

    def against(
        self, shadow: Shadow, slots: list[Slot], index: Array, new: New, old_writes: bool
    ) -> tuple[BoolArray, BoolArray]:
        """Report races with recorded accesses; which of them stay in their slots."""
        out = []
        for number, slot in enumerate(slots):
            if number and not shadow.second and old_writes:
                out.append(np.zeros(len(index), bool))
                continue
            old = slot.records[index]
            unknown = self._unknown(old, new)
            if unknown.any():
                at = np.flatnonzero(unknown)
                stays = self._conflict(
                    shadow, index[at], old[at], slot.sites[index[at]], new, at, old_writes
                )
                unknown[at] = stays
            out.append(unknown)
        return out[0], out[1]

    def unknown_of(
        self, shadow: Shadow, slots: list[Slot], index: Array, new: New
    ) -> tuple[BoolArray, BoolArray]:
        one, two = (self._unknown(s.records[index], new) for s in slots)
        return one, two

    def _unknown(self, old: Array, new: New) -> BoolArray:
        """Which recorded accesses the new ones do not come after; empty records are known."""
        out = np.zeros(len(old), bool)
        if not old.any():
            return out
        if new.space == "shared" and int(raw_times(old).max()) < int(self.know.ce.min()):
            return out
        at = np.flatnonzero(old)
        f = fields(old[at])
        lanes = self._askers(f, new, at)
        timed = f.kind < ASYNC
        if timed.all():
            out[at] = self.know.unknown(f.lane, f.time, lanes)
            return out
        some = np.flatnonzero(timed)
        out[at[some]] = self.know.unknown(f.lane[some], f.time[some], lanes[some])
        rest = np.flatnonzero(f.kind == ASYNC)
        out[at[rest]] = self.copies.unknown(f.lane[rest], f.time[rest], lanes[rest])
        rest = np.flatnonzero(f.kind == BULK)
        out[at[rest]] = self.bulk.unknown(f.time[rest], lanes[rest])
        return out

    def _askers(self, f: Fields, new: New, at: Array) -> Array:
        """The lanes that must know of old accesses.

        What a matrix instruction accesses belongs to all lanes of the warp: where the own lane
        would know by itself, another one is asked.
        """
        lanes = new.lanes[at]
        if new.matrix or f.matrix.any():
            own = (f.lane == self.know.globally(lanes)) & _crosses(f, new)
            lanes = np.where(own, lanes ^ 1, lanes)
        return lanes

    def _conflict(
        self,
        shadow: Shadow,
        index: Array,
        old: Array,
        sites: Array,
        new: New,
        at: Array,
        old_writes: bool,
    ) -> BoolArray:
        """Judge unordered pairs; true where the old record must be kept beside the new one."""
        f = fields(old)
        strong = self._morally_strong(f, new, at)
        race = ~strong
        same = np.zeros(len(old), bool)
        if old_writes and new.writes and new.value is not None and race.any():
            stores = (f.kind <= STRONG) & race
            same = stores & self._equal(new, index, at, shadow)
        bad = race & ~same
        excused = np.zeros(len(old), bool)
        timed = np.flatnonzero(bad & (f.kind < ASYNC))
        excused[timed] = self.sync.in_sequence(f.lane[timed], f.time[timed], new.lanes[at[timed]])
        for flags, report in (
            (bad & ~excused, self.reports.race),
            (bad & excused, self.reports.excused),
            (same, self.reports.same_value),
        ):
            for number in np.unique(sites[flags]):
                chosen = flags & (sites == number)
                taken = Taken(f.lane[chosen], f.time[chosen], f.kind[chosen])
                places = index[chosen] << shadow.shift
                first = self.reports.sites[int(number)]
                report(Conflict(new, at[chosen], places, first, taken, old_writes))
        return strong | same

    def _morally_strong(self, f: Any, new: New, at: Array) -> BoolArray:
        if new.kind not in (STRONG, ATOMIC):
            return np.zeros(len(f.lane), bool)
        per = self.know.per
        near = f.lane // per == self.know.globally(new.lanes[at]) // per
        far = (f.scope >= _GPU) & (new.scope >= _GPU)
        whole = (f.size == new.size) | ((f.kind == ATOMIC) & (new.kind == ATOMIC))
        out: BoolArray = ((f.kind == STRONG) | (f.kind == ATOMIC)) & (near | far) & whole
        return out

    def _equal(self, new: New, index: Array, at: Array, shadow: Shadow) -> BoolArray:
        """Whether a write leaves the bytes as they are."""
        memory = self.wave.shared if new.space == "shared" else self.wave.memory.bytes
        assert new.value is not None
        width = 1 << shadow.shift
        places = (index << shadow.shift)[:, None] + np.arange(width)
        out: BoolArray = (memory[places] == new.value[at]).all(axis=1)
        return out

    def _together(self, shadow: Shadow, index: Array, new: New, twice: BoolArray) -> None:
        """Lanes of one step that write the same granule: all are unordered with each other."""
        at = np.flatnonzero(twice)
        last = shadow.last(index)[at]
        if new.kind in (STRONG, ATOMIC):
            per = self.know.per
            mine, theirs = (self.know.globally(new.lanes[k]) // per for k in (at, last))
            at = at[mine != theirs] if new.scope < _GPU else at[:0]
            last = shadow.last(index)[at]
        bad, same = at, at[:0]
        if new.value is not None:
            equal = (new.value[at] == new.value[last]).all(axis=1)
            bad, same = at[~equal], at[equal]
        old = fields(new.records[shadow.last(index)])
        for chosen, report in ((bad, self.reports.race), (same, self.reports.same_value)):
            if len(chosen):
                taken = Taken(old.lane[chosen], old.time[chosen], old.kind[chosen])
                places = index[chosen] << shadow.shift
                report(Conflict(new, chosen, places, new.site, taken, together=True))

    def add(
        self,
        shadow: Shadow,
        slots: list[Slot],
        index: Array,
        new: New,
        keep: tuple[BoolArray, BoolArray],
    ) -> None:
        if self.exact:
            self._keep_all(shadow, slots, index, new, keep)
        shadow.add(slots, index, new.records, new.number, keep)

    def _keep_all(
        self,
        shadow: Shadow,
        slots: list[Slot],
        index: Array,
        new: New,
        keep: tuple[BoolArray, BoolArray],
    ) -> None:
        """Put into the list what the two slots will not hold.

        A newer access of a lane stands for an older one of the same kind, scope and size.  Of very
        many lanes that name one place the first and the last of each warp are kept.
        """
        writes = slots is shadow.writes
        for slot, stays in zip(slots, keep, strict=True):
            for k in np.flatnonzero(stays):
                at = int(index[k])
                self._list(shadow, at, writes, int(slot.records[at]), int(slot.sites[at]))
        twice = shadow.repeated(index)
        if twice is not None:
            some = np.flatnonzero(twice)
            if len(some) > _MANY:
                warp = new.lanes[some] >> 5
                edge = np.r_[True, warp[1:] != warp[:-1]] | np.r_[warp[1:] != warp[:-1], True]
                some = some[edge]
            for k in some:
                self._list(shadow, int(index[k]), writes, int(new.records[k]), new.number)

    @staticmethod
    def _list(shadow: Shadow, at: int, writes: bool, record: int, site: int) -> None:
        key = (writes, record >> LANE_BITS, record & KIND_BITS)
        shadow.more.setdefault(at, {})[key] = record, site

    def _against_more(self, shadow: Shadow, index: Array, new: New) -> None:
        """The same comparison with the records in the lists, all at once."""
        at: list[int] = []
        found: list[tuple[int, int, bool]] = []
        known: dict[int, list[tuple[int, int, bool]]] = {}
        for k, granule in enumerate(map(int, index)):
            if granule not in known:
                known[granule] = self._listed(shadow, granule, new)
            entries = known[granule]
            at += [k] * len(entries)
            found += entries
        if not found:
            return
        position = np.array(at)
        old = np.array([f[0] for f in found], np.uint64)
        sites, writes = np.array([f[1] for f in found]), np.array([f[2] for f in found])
        one = replace(
            new, lanes=new.lanes[position], records=new.records[position],
            value=None if new.value is None else new.value[position],
        )  # fmt: skip
        unknown = self._unknown(old, one)
        for old_writes in (True, False):
            some = np.flatnonzero(unknown & (writes == old_writes))
            if len(some):
                places = index[position[some]]
                self._conflict(shadow, places, old[some], sites[some], one, some, old_writes)

    def _listed(self, shadow: Shadow, granule: int, new: New) -> list[tuple[int, int, bool]]:
        """The entries of a place that can conflict with an access, whoever makes it."""
        out = []
        for (writes, _, _), (record, site) in shadow.more.get(granule, {}).items():
            if not (writes or new.writes):
                continue
            f = fields(np.array([record], np.uint64))
            strong = f.kind[0] in (STRONG, ATOMIC) and new.kind in (STRONG, ATOMIC)
            if strong and f.scope[0] >= _GPU and new.scope >= _GPU and f.size[0] == new.size:
                continue  # morally strong with everybody
            out.append((record, site, writes))
        return out

    def unfenced(self, shadow: Shadow, index: Array, new: New) -> None:
        """Writes through the generic proxy that a bulk copy comes after, but no proxy fence."""
        for part in shadow.parts:
            self._unfenced(part, index, new)

    def _unfenced(self, shadow: Shadow, index: Array, new: New) -> None:
        old = shadow.writes[0].records[index]
        at = np.flatnonzero((old != 0) & ~self._unknown(old, new))
        if not len(at):
            return
        f = fields(old[at])
        generic = np.flatnonzero(f.kind < ASYNC)
        lane = int(new.lanes[0])
        bad = generic[self.proxy.missing(f.lane[generic], f.time[generic], lane)]
        sites = shadow.writes[0].sites[index[at]]
        for number in np.unique(sites[bad]):
            chosen = bad[sites[bad] == number]
            first = self.reports.sites[int(number)]
            taken = Taken(f.lane[chosen], f.time[chosen], f.kind[chosen])
            places = index[at[chosen]] << shadow.shift
            self.reports.unfenced(Conflict(new, at[chosen], places, first, taken))

    def not_coherent(self, shadow: Shadow, index: Array, new: New) -> None:
        """Loads by the read-only path of what the kernel has written."""
        for part in shadow.parts:
            old = part.writes[0]
            at = np.flatnonzero(old.records[index])
            if not len(at):
                continue
            first = self.reports.sites[int(old.sites[index[at[0]]])]
            self.reports.not_coherent(Conflict(new, at, index[at] << shadow.shift, first, None))


def _crosses(f: Fields, new: New) -> BoolArray:
    """Which old accesses of a lane and its new one may be of different lanes of the warp.

    One of the two is by a matrix instruction; or it writes what the other one reads.  Two of
    wmma share their layout.  Of other pairs of two matrix instructions the later one waits for the
    data of the earlier, so that these are silent where the address is of the same lane.
    """
    if not new.matrix:
        return np.asarray(f.matrix != 0)
    read = (f.matrix & WRITTEN != 0) & (not new.writes)
    same = (f.matrix & FRAGMENT != 0) & (new.matrix == FRAGMENT)
    out: BoolArray = (f.matrix == 0) | (read & ~same)
    return out

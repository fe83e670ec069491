"""Compares accesses with what is recorded of earlier ones, and records them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from ...isa.order import FRAGMENT, SCOPES
from ...isa.protocol import Array, BoolArray
from .accesses import Conflict, New, Taken
from .clocks import Knowledge
from .copies import AsyncGroups
from .entries import Entries, add_lane, add_warp, single
from .phases import BulkParts, ProxyFences
from .reports import Reports
from .scan import Traits
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
    manner,
    raw_times,
)

__all__ = ["Judge"]

_GPU = SCOPES.index("gpu")
#: Of so many lanes of one step all pairs are looked at.
_MANY = 512
#: So many accesses in a list, at most, to which are added those that come before a newer one.
_ORDERED = 32
#: The same of steps of more than _MANY lanes; the oldest come after the fewest fence.sc.
_OLDEST = 2
#: In longer lists an access stands for all older ones of its lane.
_VIEWS = 256
_ALL = 1 << 30
#: So many pairs of accesses are compared at once.
_PAIRS = 1 << 16
#: Beyond, not all lanes of the steps of many are compared.
_VERY_MANY = 1 << 23

#: An access in a list: its record, the number of its instruction, and whether it writes.
_Listed: TypeAlias = tuple[int, int, bool]


@dataclass(frozen=True, slots=True)
class _Stay:
    """Records of accesses that are listed, if the lists of their places have less than ``most``."""

    shadow: Shadow
    at: Array
    records: Array
    sites: Array
    writes: bool
    most: int


class Judge:
    """The comparing part of the race checker, for one wave.

    It keeps all unordered accesses for programs that order ``parts``; those too that fence.sc order
    otherwise than newer ones for ``sequential`` programs.
    """

    def __init__(
        self,
        reports: Reports,
        know: Knowledge,
        copies: AsyncGroups,
        bulk: BulkParts,
        proxy: ProxyFences,
        traits: Traits,
    ) -> None:
        self.reports = reports
        self.wave = reports.wave
        self.know = know
        self.copies, self.bulk, self.proxy = copies, bulk, proxy
        self.exact, self.sequential, self.mixed = traits.parts, traits.sequential, traits.mixed
        #: records that stay although the write at hand takes their place
        self._stay: list[_Stay] = []
        #: the last accesses, if they were atomics of which nothing was said
        self._last: tuple[Shadow, Array, New] | None = None

    def read(self, shadow: Shadow, index: Array, new: New) -> None:
        """Check reads against the writes that are recorded, and record them."""
        self._last = None
        for part in shadow.parts:
            self.against(part, part.writes, index, new, old_writes=True)
            if part.more:
                self._against_more(part, index, new)
        mine = shadow.part(new.strong)
        keep = self.unknown_of(mine, mine.reads, index, new)
        mine.read = True
        if self.sequential:
            for slot, stays in zip(mine.reads, keep, strict=True):
                old = slot.records[index]
                known = (old != 0) & ~stays
                self._other_fences(mine, index, old, slot.sites[index], known, new, False)
        self.add(mine, mine.reads, index, new, keep)
        self._stays()

    def write(self, shadow: Shadow, index: Array, new: New) -> None:
        """Check writes against all that is recorded and against each other, and record them."""
        if self._again(shadow, index, new):
            return
        said = self.reports.said
        twice = shadow.repeated(index)
        if twice is not None:
            self._together(shadow, index, new, twice)
        strong = new.strong
        mine = shadow.part(strong)
        stays = self._against_all(shadow, index, new)
        keep = stays[strong if len(stays) > 1 else 0]
        if not strong:
            shadow.forget(index, *stays[1:])
        if strong or twice is not None or keep[0].any() or keep[1].any():
            self.add(mine, mine.writes, index, new, keep)
            mine.second = True
        else:
            mine.writes[0].put(index, new.records, new.number)
            if mine.second:
                mine.writes[1].clear(index)
        self._stays()
        quiet = new.kind == ATOMIC and said == self.reports.said
        self._last = (shadow, index, new) if quiet else None

    def _again(self, shadow: Shadow, index: Array, new: New) -> bool:
        """Whether these are the same atomics as the last accesses, as of lanes that spin."""
        if self._last is None or new.kind != ATOMIC:
            return False
        where, at, old = self._last
        return (
            where is shadow
            and old.number == new.number
            and np.array_equal(at, index)
            and np.array_equal(old.records, new.records)
        )

    def write_async(self, shadow: Shadow, index: Array, new: New) -> None:
        """The same for the writes of asynchronous copies, which have no order among themselves."""
        self._last = None
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
        self._stays()

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
            if self.sequential and new.writes:
                known = (old != 0) & ~unknown
                sites = slot.sites[index]
                self._other_fences(shadow, index, old, sites, known, new, old_writes)
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
        timed = (f.kind <= ATOMIC) & (new.kind <= ATOMIC)
        open_ = bad & timed if self.sequential else np.zeros(len(old), bool)
        stay = (open_ | same) if self.exact and new.writes else open_[:0]
        if stay.any():
            _, once = np.unique(
                np.stack([index[stay].astype(np.uint64), old[stay]]), axis=1, return_index=True
            )
            kept = np.flatnonzero(stay)[once]
            self._stay.append(_Stay(shadow, index[kept], old[kept], sites[kept], old_writes, _ALL))
        for flags, report in (
            (bad & ~open_, self.reports.race),
            (open_, self.reports.open),
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
        if not new.strong:
            return np.zeros(len(f.lane), bool)
        if new.kind == BULK:  # of one proxy only
            return np.asarray((f.kind == BULK) & (f.scope >= _GPU))
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
        strong = new.strong
        if strong and new.scope >= _GPU:
            return
        at, other = self._pairs(shadow, index, twice)
        if strong:
            per = self.know.per
            mine, theirs = (self.know.globally(new.lanes[k]) // per for k in (at, other))
            at, other = at[mine != theirs], other[mine != theirs]
        same = np.zeros(len(at), bool)
        if new.value is not None:
            same = (new.value[at] == new.value[other]).all(axis=1)
        old = fields(new.records[other])
        race = self.reports.open if self.sequential and new.kind <= ATOMIC else self.reports.race
        for chosen, report in ((~same, race), (same, self.reports.same_value)):
            if chosen.any():
                taken = Taken(old.lane[chosen], old.time[chosen], old.kind[chosen])
                places = index[at[chosen]] << shadow.shift
                report(Conflict(new, at[chosen], places, new.site, taken, together=True))

    def _pairs(self, shadow: Shadow, index: Array, twice: BoolArray) -> tuple[Array, Array]:
        """Lanes of one step at one granule: each with the last; of few lanes, if fence.sc may order
        them, all pairs.
        """
        at = np.flatnonzero(twice)
        last = shadow.last(index)
        if not self.sequential or len(at) > _MANY:
            return at, last[at]
        order = np.argsort(last, kind="stable")
        pairs = [(at, last[at])]
        for far in range(1, len(order)):
            one, two = order[:-far], order[far:]
            here = last[one] == last[two]
            if not here.any():
                break
            pairs.append((one[here], two[here]))
        every = np.unique(np.concatenate([np.stack(p) for p in pairs], axis=1), axis=1)
        return every[0], every[1]

    def add(
        self,
        shadow: Shadow,
        slots: list[Slot],
        index: Array,
        new: New,
        keep: tuple[BoolArray, BoolArray],
    ) -> None:
        if self.mixed and new.strong:
            keep = self._keep_others(shadow, slots, index, new, keep)
        if self.exact:
            self._keep_all(shadow, slots, index, new, keep)
            shadow.put(slots, index, new.records, new.number)
            return
        if self.copies.any and not new.writes:
            self._keep_copies(shadow, slots, index, new, keep)
        shadow.add(slots, index, new.records, new.number, keep)

    def _keep_others(
        self,
        shadow: Shadow,
        slots: list[Slot],
        index: Array,
        new: New,
        keep: tuple[BoolArray, BoolArray],
    ) -> tuple[BoolArray, BoolArray]:
        """Put into the list old accesses that are morally strong with others than the new ones.

        What races with one of those need not race with the new one, though it comes after.  The
        others, if they ``keep`` their slots, do so still.
        """
        cta = self.know.globally(new.lanes) // self.know.per
        left = []
        for slot, stays in zip(slots, keep, strict=True):
            old = slot.records[index]
            how = (old ^ new.records) & np.uint64(KIND_BITS)
            away = (old >> np.uint64(LANE_BITS)).astype(np.int64) // self.know.per != cta
            differs = (old != 0) & ((how != 0) | away)
            self._list(shadow, index[differs], new.writes, old[differs], slot.sites[index[differs]])
            left.append(stays & ~differs)
        return left[0], left[1]

    def _keep_copies(
        self,
        shadow: Shadow,
        slots: list[Slot],
        index: Array,
        new: New,
        keep: tuple[BoolArray, BoolArray],
    ) -> None:
        """Put into the list the reads by cp.async of which the two slots may not tell.

        Each is complete when its own thread waits for it, so any may be the last one; not so where
        another CTA reads the place too, because no write comes after the reads of both.
        """
        copies = new.kind == ASYNC
        cta = self.know.globally(new.lanes) // self.know.per
        for slot, stays in zip(slots, keep, strict=True):
            some = np.flatnonzero(stays)
            old, sites = slot.records[index[some]], slot.sites[index[some]]
            f = fields(old)
            near = f.lane // self.know.per == cta[some]
            if copies:
                self._list_new(shadow, index, new, some[near])
            near &= f.kind == ASYNC
            self._list(shadow, index[some[near]], False, old[near], sites[near])
        twice = shadow.repeated(index) if copies else None
        if twice is not None:
            some = np.flatnonzero(twice)
            self._list_new(shadow, index, new, some[cta[some] == cta[shadow.last(index)[some]]])

    def _list_new(self, shadow: Shadow, index: Array, new: New, some: Array) -> None:
        sites = np.full(len(some), new.number)
        self._list(shadow, index[some], new.writes, new.records[some], sites)

    def _keep_all(
        self,
        shadow: Shadow,
        slots: list[Slot],
        index: Array,
        new: New,
        keep: tuple[BoolArray, BoolArray],
    ) -> None:
        """Put into the list what stays beside the new accesses, which take the two slots."""
        writes = slots is shadow.writes
        for slot, stays in zip(slots, keep, strict=True):
            some = np.flatnonzero(stays)
            places = index[some]
            self._list(shadow, places, writes, slot.records[places], slot.sites[places])
        twice = shadow.repeated(index)
        if twice is not None:
            self._list_step(shadow, index, new, np.flatnonzero(twice))

    def _list_step(self, shadow: Shadow, index: Array, new: New, some: Array) -> None:
        """Put accesses of one step into the lists, those of a warp to one place together."""
        places, records = index[some], new.records[some]
        shadow.listed[places] = True
        views = self._views(records)
        lanes = (records >> np.uint64(LANE_BITS)).astype(np.int64)
        warps = lanes >> 5
        bounds = [a[1:] != a[:-1] for a in (places, warps, views)]
        first = np.flatnonzero(np.r_[True, bounds[0] | bounds[1] | bounds[2]])
        masks = np.bitwise_or.reduceat(np.int64(1) << (lanes & 31), first)
        records = records[first] & ~np.uint64(31 << LANE_BITS)
        rows = zip(
            places[first].tolist(), records.tolist(), masks.tolist(), views[first].tolist(),
            strict=True,
        )  # fmt: skip
        for place, record, mask, view in rows:
            kept = shadow.more.setdefault(place, {})
            how = _how(kept, record, view)
            add_warp(kept, new.writes, record, new.number, how, LANE_BITS, mask)

    def _views(self, records: Array) -> Array:
        """Numbers that tell apart accesses of a lane that come after other fence.sc."""
        if not self.sequential:
            return np.zeros(len(records), np.int64)
        f = fields(records)
        return self.know.view(f.lane, f.time)

    def _list(
        self,
        shadow: Shadow,
        at: Array,
        writes: bool,
        records: Array,
        sites: Array,
        most: int = _ALL,
    ) -> None:
        """Put records into the lists of their places, while these have less than so many.

        The newest of a lane stands for all of the same kind, scope and size that it made.
        """
        if not len(at):
            return
        views = self._views(records)
        shadow.listed[at] = True
        rows = zip(at.tolist(), records.tolist(), sites.tolist(), views.tolist(), strict=True)
        for place, record, site, view in rows:
            kept = shadow.more.setdefault(place, {})
            if len(kept) < most:
                add_lane(kept, writes, record, site, _how(kept, record, view), LANE_BITS)

    def _other_fences(
        self,
        shadow: Shadow,
        index: Array,
        old: Array,
        sites: Array,
        known: BoolArray,
        new: New,
        writes: bool,
    ) -> None:
        """Of what comes before the new accesses that stays after which other fence.sc come.

        What is unordered with the old access is so with the new one, but fence.sc that order it
        with the new one in some run need not order it with the old one.
        """
        if not self.know.any_since:
            return
        f = fields(old)
        differ = known & (f.kind <= ATOMIC)
        at = np.flatnonzero(differ)
        at = at[self.know.differently(f.lane[at], f.time[at], new.lanes[at])]
        if len(at):
            most = _ORDERED if len(at) <= _MANY else _OLDEST
            self._stay.append(_Stay(shadow, index[at], old[at], sites[at], writes, most))

    def _stays(self) -> None:
        """What stays is listed, now that the access at hand has taken its place."""
        for s in self._stay:
            self._list(s.shadow, s.at, s.writes, s.records, s.sites, s.most)
        self._stay.clear()

    def _against_more(self, shadow: Shadow, index: Array, new: New) -> None:
        """The same comparison with the records in the lists, many at once."""
        accesses: dict[int, list[int]] = {}
        some = np.flatnonzero(shadow.listed[index])
        for k, granule in zip(some.tolist(), index[some].tolist(), strict=True):
            accesses.setdefault(granule, []).append(k)
        at: list[int] = []
        found: list[_Listed] = []
        for granule, here in accesses.items():
            entries = self._listed(shadow, granule, new, len(here))
            if len(here) * len(entries) > _PAIRS:
                self._against_many(shadow, index, new, np.array(here), entries)
                continue
            for k in here:
                at += [k] * len(entries)
                found += entries
            if len(at) > _PAIRS:
                self._against_pairs(shadow, index, new, np.array(at), *_columns(found))
                at, found = [], []
        if found:
            self._against_pairs(shadow, index, new, np.array(at), *_columns(found))

    def _against_many(
        self, shadow: Shadow, index: Array, new: New, here: Array, entries: list[_Listed]
    ) -> None:
        """Many accesses to a place with a long list.

        An instruction of which some accesses race need not be looked at further, unless the end of
        the launch decides which pairs do.
        """
        old, sites, writes = _columns(entries)
        left = np.arange(len(old))
        while len(left):
            rows, left = np.split(left, [max(_PAIRS // len(here), 1)])
            columns = [np.repeat(c[rows], len(here)) for c in (old, sites, writes)]
            position = np.tile(here, len(rows))
            races = self._against_pairs(shadow, index, new, position, *columns)
            if self.sequential or not races.any():
                continue
            racing = races.reshape(len(rows), -1).any(axis=1)
            for k in rows[racing]:
                left = left[(sites[left] != sites[k]) | (writes[left] != writes[k])]

    def _against_pairs(
        self,
        shadow: Shadow,
        index: Array,
        new: New,
        position: Array,
        old: Array,
        sites: Array,
        writes: Array,
    ) -> BoolArray:
        """Pairs of new accesses, by their positions, and old ones; which of them race."""
        one = replace(
            new, lanes=new.lanes[position], records=new.records[position],
            value=None if new.value is None else new.value[position],
        )  # fmt: skip
        unknown = self._unknown(old, one)
        races = unknown.copy()
        if self.sequential and new.writes:
            for old_writes in (True, False):
                before = ~unknown & (writes == old_writes)
                places = index[position]
                self._other_fences(shadow, places, old, sites, before, one, old_writes)
        for old_writes in (True, False):
            some = np.flatnonzero(unknown & (writes == old_writes))
            if len(some):
                places = index[position[some]]
                races[some] = ~self._conflict(
                    shadow, places, old[some], sites[some], one, some, old_writes
                )
        return races

    def _listed(self, shadow: Shadow, granule: int, new: New, count: int) -> list[_Listed]:
        """What is listed of a place and can conflict with so many accesses, whoever makes them.

        Of very many, the first and the last lane of each warp.
        """
        kept = shadow.more.get(granule, {})
        ends = 32 * len(kept) * count > _VERY_MANY
        free: set[int] = set()
        if new.kind in (STRONG, ATOMIC):
            free = {how for how in {how for _, _, how in kept} if self._never_races(how, new)}
            if len(free) == 1 and all(how in free for _, _, how in kept):
                return []
        return [
            (record, site, writes)
            for (writes, _, how), entry in kept.items()
            if how not in free and (writes or new.writes)
            for record, site in single(entry, LANE_BITS, ends)
        ]

    @staticmethod
    def _never_races(how: int, new: New) -> bool:
        """Whether accesses made in this way are morally strong with the new ones, whoever they are
        by.
        """
        kind, scope, size = manner(how)
        strong = kind in (STRONG, ATOMIC) and new.kind in (STRONG, ATOMIC)
        return strong and scope >= _GPU and new.scope >= _GPU and size == new.size

    def unfenced(self, shadow: Shadow, index: Array, new: New) -> None:
        """Writes through the generic proxy that a bulk copy comes after, but no proxy fence."""
        for part in shadow.parts:
            self._unfenced(part, index, new)

    def _unfenced(self, shadow: Shadow, index: Array, new: New) -> None:
        at, old, sites = shadow.all_writes(index)
        known = np.flatnonzero(~self._unknown(old, replace(new, lanes=new.lanes[at])))
        f = fields(old[known])
        lane, copied = int(new.lanes[0]), f.kind == ASYNC
        when = f.time.copy()  # a copy of cp.async writes when its thread has waited, if it does
        when[copied] = self.copies.times(f.lane[copied], f.time[copied])
        timed = np.flatnonzero((f.kind < ASYNC) | (copied & (when > 0)))
        apart = np.flatnonzero(copied & (when == 0))
        bad = np.r_[
            timed[self.proxy.missing(f.lane[timed], when[timed], lane)],
            apart[self.proxy.missing(f.lane[apart], f.time[apart], lane, copies=True)],
        ]
        numbers = sites[known[bad]]
        for number in np.unique(numbers):
            chosen = bad[numbers == number]
            where = at[known[chosen]]
            first = self.reports.sites[int(number)]
            taken = Taken(f.lane[chosen], f.time[chosen], f.kind[chosen])
            places = index[where] << shadow.shift
            self.reports.unfenced(Conflict(new, where, places, first, taken))

    def not_coherent(self, shadow: Shadow, index: Array, new: New) -> None:
        """Loads by the read-only path of what the kernel has written."""
        for part in shadow.parts:
            old = part.writes[0]
            at = np.flatnonzero(old.records[index])
            if not len(at):
                continue
            first = self.reports.sites[int(old.sites[index[at[0]]])]
            self.reports.not_coherent(Conflict(new, at, index[at] << shadow.shift, first, None))


def _how(kept: Entries, record: int, view: int) -> int:
    """How an access to be listed was made, and what fence.sc it comes after."""
    seen = view << KIND_BITS.bit_length() if len(kept) < _VIEWS else 0
    return record & KIND_BITS | seen


def _columns(found: list[_Listed]) -> tuple[Array, Array, Array]:
    old = np.array([f[0] for f in found], np.uint64)
    return old, np.array([f[1] for f in found]), np.array([f[2] for f in found], bool)


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

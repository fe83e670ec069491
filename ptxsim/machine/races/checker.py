"""Finds data races by happens-before (PTX ISA 9.1, Memory Consistency Model: Data-race).

Two accesses to one byte race if one writes, no chain of synchronisation orders them, and they are
not strong accesses whose scopes hold each other.  What counts is the order that the program makes,
not the order in which this run happened to execute, so the verdict is the same on every schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...diagnostics import Severity
from ...isa.order import SCOPES, MemoryOrder
from ...isa.protocol import Array, BoolArray, Site
from ..watch import Watch
from .clocks import Clock, Knowledge
from .copies import AsyncGroups
from .phases import BulkParts, Phases, ProxyFences
from .shadow import ASYNC, ATOMIC, BULK, STRONG, WEAK, Shadow, Slot, fields, pack, raw_times
from .sync import Synchronisation

if TYPE_CHECKING:
    from ..access import Access, Place
    from ..group import Group
    from ..wave import Wave

__all__ = ["RaceChecker"]

_GPU = SCOPES.index("gpu")
_LOG = {1: 0, 2: 1, 4: 2, 8: 3, 16: 3}
#: Reports of one pair that are made at once; the rest is counted and said at the end.
_REPORTS = 4


@dataclass(slots=True)
class _New:
    """The accesses of one step to one granule each: who, when and how."""

    space: str
    lanes: Array
    records: Array
    site: Site
    number: int
    kind: int
    scope: int
    size: int
    writes: bool
    #: bytes about to be written [lanes, granule], for writes whose value is known
    value: Array | None = None


@dataclass(slots=True)
class _Pair:
    """What was reported for two instructions: how often more."""

    first: Site
    second: Site
    class_: str
    shown: int = 0
    silent: int = 0
    severity: Severity = Severity.ERROR


class RaceChecker(Watch):
    """Listens to a launch; ``exact`` is for programs that order single lanes or warps.

    Loads that are ``unwatched`` are not looked at.
    """

    def __init__(
        self, exact: bool = False, unwatched: frozenset[tuple[int, int]] = frozenset()
    ) -> None:
        self.exact = exact
        #: line and column of loads from memory that the kernel does not write
        self.unwatched = unwatched
        self._skipped: dict[int, bool] = {}
        self.sync = Synchronisation()
        self.sites: list[Site] = []
        self._numbers: dict[int, int] = {}
        self._pairs: dict[tuple[int, int, str], _Pair] = {}
        self._global: Shadow | None = None
        #: the last barrier of each CTA, and of each warp, of the wave
        self._barriers: dict[int, tuple[int, Site]] = {}
        self._meetings: dict[int, tuple[int, Site]] = {}
        self._events = 0

    # --- waves ----------------------------------------------------------------------------------

    def wave_began(self, wave: Wave) -> None:
        self.wave = wave
        self.know = Knowledge(wave.ctas, wave.lanes_per_cta)
        self.copies = AsyncGroups(self.know)
        self.sync.begin(self.know)
        self.phases = Phases(self.know, self.sync)
        self.bulk = BulkParts(self.know, self.phases)
        self.proxy = ProxyFences(self.know)
        self._barriers.clear()
        self._meetings.clear()
        self._arrived: dict[int, list[_Arrived]] = {}
        self._shared = Shadow(len(wave.shared), wave.lanes_per_cta, self.exact)

    def wave_ended(self, wave: Wave) -> None:
        """Say how often pairs were seen that are not reported one by one."""
        for pair in self._pairs.values():
            if pair.silent:
                wave.count_more(
                    pair.class_, pair.second, pair.silent, other_line=pair.first.line,
                    severity=pair.severity,
                )  # fmt: skip
                pair.silent = 0

    def _memory(self, access: Access, place: Place) -> tuple[str, Shadow] | None:
        if place.space == "shared":
            return "shared", self._shared
        if place.space == "local" or access.space in ("const", "param"):
            return None
        return "global", self._shadow("global")

    def _number(self, site: Site) -> int:
        number = self._numbers.get(id(site))
        if number is None:
            number = self._numbers[id(site)] = len(self.sites)
            self.sites.append(site)
        return number

    # --- accesses -------------------------------------------------------------------------------

    def load(self, group: Group, access: Access, place: Place) -> None:
        skipped = self._skipped.get(id(access.site))
        if skipped is None:
            span = access.site.span  # type: ignore[attr-defined]
            skipped = (span.line, span.column) in self.unwatched
            self._skipped[id(access.site)] = skipped
        if skipped:
            return
        found = self._memory(access, place)
        if found is None:
            return
        space, shadow = found
        lanes, order = _lanes(group, place), access.site.order
        at = place.at
        if len(at) == 1 and len(lanes) > 2 and not self.exact and not order.strong:
            if not any(s.records[at >> shadow.shift].any() for s in shadow.writes):
                lanes = lanes[[0, -1]]  # readers of one place: the farthest apart matter
        for k, new in self._elements(space, shadow, access, lanes, writes=False):
            index = (at >> shadow.shift) + k
            if len(index) != len(lanes):
                index = np.broadcast_to(index, lanes.shape)
            self._against(shadow, shadow.writes, index, new, old_writes=True)
            if not order.coherent:
                self._not_coherent(shadow, index, new)
            keep = self._unknown_of(shadow, shadow.reads, index, new)
            shadow.read = True
            self._add(shadow, shadow.reads, index, new, keep)
        if order.strong:
            self.sync.read(space, np.broadcast_to(at, lanes.shape), lanes, order)

    def store(self, group: Group, access: Access, place: Place, words: Sequence[Array]) -> None:
        found = self._memory(access, place)
        if found is None:
            return
        space, shadow = found
        lanes, order = _lanes(group, place), access.site.order
        at = np.broadcast_to(place.at, lanes.shape)
        word = words[0].dtype.itemsize
        for k, new in self._elements(space, shadow, access, lanes, writes=True):
            index = (at >> shadow.shift) + k
            part, offset = divmod(k << shadow.shift, word)
            new.value = _octets(words[part], len(lanes), offset, 1 << shadow.shift)
            self._write(shadow, index, new)
        if order.strong:
            step = -1 if self.wave.reversed else 1
            self.sync.write(space, at[::step], lanes[::step], order)
        else:
            self.sync.overwritten(space, at)

    def atomic(self, group: Group, access: Access, place: Place) -> None:
        found = self._memory(access, place)
        if found is None:
            return
        space, shadow = found
        lanes = _lanes(group, place)
        at = np.broadcast_to(place.at, lanes.shape)
        for k, new in self._elements(space, shadow, access, lanes, writes=True):
            self._write(shadow, (at >> shadow.shift) + k, new)
        step = -1 if self.wave.reversed else 1  # the order in which the lanes are served
        self.sync.atomic(space, at[::step], lanes[::step], access.site.order)

    def _elements(
        self, space: str, shadow: Shadow, access: Access, lanes: Array, writes: bool
    ) -> list[tuple[int, _New]]:
        """One entry for each granule of the access."""
        size = min(access.size, 8)
        shadow.refine(_LOG[size])
        order = access.site.order
        kind = ATOMIC if order.atomic else STRONG if order.strong else WEAK
        scope = SCOPES.index(order.scope) if order.strong else 0
        log = _LOG[size]
        owner = self.know.globally(lanes)
        records = pack(owner, self.know.times(lanes), kind, scope, log)
        number = self._number(access.site)
        new = _New(space, lanes, records, access.site, number, kind, scope, log, writes)
        return [(k, new) for k in range(access.total >> shadow.shift)]

    def _write(self, shadow: Shadow, index: Array, new: _New) -> None:
        """Check writes against all that is recorded and against each other, and record them."""
        twice = shadow.repeated(index)
        if twice is not None:
            self._together(shadow, index, new, twice)
        keep = self._against(shadow, shadow.writes, index, new, old_writes=True)
        if shadow.read:
            self._against(shadow, shadow.reads, index, new, old_writes=False)
        if shadow.more:
            self._against_more(shadow, index, new)
        if new.kind in (STRONG, ATOMIC):
            self._add(shadow, shadow.writes, index, new, keep)
            shadow.second = True
            return
        if twice is not None or keep[0].any() or keep[1].any():
            self._add(shadow, shadow.writes, index, new, keep)
            shadow.second = True
        else:
            shadow.writes[0].put(index, new.records, new.number)
            if shadow.second:
                shadow.writes[1].clear(index)
        if shadow.read:
            for slot in shadow.reads:
                slot.clear(index)
        if shadow.more:
            for at in np.unique(index):
                shadow.more.pop(int(at), None)

    # --- comparing ------------------------------------------------------------------------------

    def _against(
        self, shadow: Shadow, slots: list[Slot], index: Array, new: _New, old_writes: bool
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

    def _unknown_of(
        self, shadow: Shadow, slots: list[Slot], index: Array, new: _New
    ) -> tuple[BoolArray, BoolArray]:
        one, two = (self._unknown(s.records[index], new) for s in slots)
        return one, two

    def _unknown(self, old: Array, new: _New) -> BoolArray:
        """Which recorded accesses the new ones do not come after; empty records are known."""
        out = np.zeros(len(old), bool)
        if not old.any():
            return out
        if new.space == "shared" and int(raw_times(old).max()) < int(self.know.ce.min()):
            return out
        at = np.flatnonzero(old)
        f = fields(old[at])
        lanes = new.lanes[at]
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

    def _conflict(
        self,
        shadow: Shadow,
        index: Array,
        old: Array,
        sites: Array,
        new: _New,
        at: Array,
        old_writes: bool,
    ) -> BoolArray:
        """Judge unordered pairs; true where the old record must be kept beside the new one."""
        f = fields(old)
        strong = self._morally_strong(f, new, at)
        race = ~strong
        same = np.zeros(len(old), bool)
        if old_writes and new.writes and new.value is not None and race.any():
            weak = (f.kind == WEAK) & race
            same = weak & self._equal(new, index, at, shadow)
        for number in np.unique(sites[race & ~same]):
            chosen = race & ~same & (sites == number)
            self._report(new, index, at, f, chosen, self.sites[int(number)], old_writes, shadow)
        for number in np.unique(sites[same]):
            chosen = same & (sites == number)
            self._report_same(new, index, at, f, chosen, self.sites[int(number)], shadow)
        return strong | same

    def _morally_strong(self, f: Any, new: _New, at: Array) -> BoolArray:
        if new.kind not in (STRONG, ATOMIC):
            return np.zeros(len(f.lane), bool)
        per = self.know.per
        near = f.lane // per == self.know.globally(new.lanes[at]) // per
        far = (f.scope >= _GPU) & (new.scope >= _GPU)
        whole = (f.size == new.size) | ((f.kind == ATOMIC) & (new.kind == ATOMIC))
        out: BoolArray = ((f.kind == STRONG) | (f.kind == ATOMIC)) & (near | far) & whole
        return out

    def _equal(self, new: _New, index: Array, at: Array, shadow: Shadow) -> BoolArray:
        """Whether a write leaves the bytes as they are."""
        memory = self.wave.shared if new.space == "shared" else self.wave.memory.bytes
        assert new.value is not None
        width = 1 << shadow.shift
        places = (index << shadow.shift)[:, None] + np.arange(width)
        out: BoolArray = (memory[places] == new.value[at]).all(axis=1)
        return out

    def _together(self, shadow: Shadow, index: Array, new: _New, twice: BoolArray) -> None:
        """Lanes of one step that write the same granule: all are unordered with each other."""
        at = np.flatnonzero(twice)
        last = shadow.last(index)[at]
        if new.kind in (STRONG, ATOMIC):
            per = self.know.per
            apart = self.know.globally(new.lanes[at]) // per != (
                self.know.globally(new.lanes[last]) // per
            )
            at = at[apart] if new.scope < _GPU else at[:0]
            bad, same = at, at[:0]
        else:
            assert new.value is not None
            equal = (new.value[at] == new.value[last]).all(axis=1)
            bad, same = at[~equal], at[equal]
        old = fields(new.records[shadow.last(index)])
        for chosen, report in ((bad, self._report), (same, self._report_same)):
            if len(chosen):
                part = _Taken(old.lane[chosen], old.time[chosen], old.kind[chosen])
                every = np.ones(len(chosen), bool)
                if report == self._report:
                    self._report(new, index[chosen], chosen, part, every, new.site, True, shadow)
                else:
                    self._report_same(new, index[chosen], chosen, part, every, new.site, shadow)

    # --- many readers ---------------------------------------------------------------------------

    def _add(
        self,
        shadow: Shadow,
        slots: list[Slot],
        index: Array,
        new: _New,
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
        new: _New,
        keep: tuple[BoolArray, BoolArray],
    ) -> None:
        """Put into the list what the two slots will not hold."""
        writes = slots is shadow.writes
        for slot, stays in zip(slots, keep, strict=True):
            for k in np.flatnonzero(stays):
                entry = (writes, int(slot.records[index[k]]), int(slot.sites[index[k]]))
                self._list(shadow, int(index[k]), entry)
        twice = shadow.repeated(index)
        if twice is not None:
            for k in np.flatnonzero(twice):
                entry = (writes, int(new.records[k]), new.number)
                self._list(shadow, int(index[k]), entry)

    @staticmethod
    def _list(shadow: Shadow, at: int, entry: tuple[bool, int, int]) -> None:
        kept = shadow.more.setdefault(at, [])
        if entry not in kept:
            kept.append(entry)

    def _against_more(self, shadow: Shadow, index: Array, new: _New) -> None:
        """The same comparison with the records in the list."""
        for k, granule in enumerate(map(int, index)):
            for writes, record, number in shadow.more.get(granule, ()):
                if not (writes or new.writes):
                    continue
                old = np.array([record], np.uint64)
                one = _New(
                    new.space, new.lanes[k : k + 1], new.records[k : k + 1], new.site, new.number,
                    new.kind, new.scope, new.size, new.writes,
                    None if new.value is None else new.value[k : k + 1],
                )  # fmt: skip
                if self._unknown(old, one).any():
                    self._conflict(
                        shadow, index[k : k + 1], old, np.array([number]), one, np.zeros(1, int),
                        writes,
                    )  # fmt: skip

    # --- reports --------------------------------------------------------------------------------

    def _not_coherent(self, shadow: Shadow, index: Array, new: _New) -> None:
        old = shadow.writes[0]
        written = old.records[index] != 0
        if not written.any():
            return
        k = int(np.flatnonzero(written)[0])
        first = self.sites[int(old.sites[index[k]])]
        self._say(
            "nc-coherence", new, index, np.flatnonzero(written), first, None, shadow,
            f"'{new.site.text}' reads by the non-coherent path what the kernel writes at line"
            f" {first.line}",
            "load it without .nc: the read-only path may hold older data",
        )  # fmt: skip

    def _report(
        self,
        new: _New,
        index: Array,
        at: Array,
        f: Any,
        chosen: BoolArray,
        first: Site,
        old_writes: bool,
        shadow: Shadow,
    ) -> None:
        pending = (self.copies.pending(f.lane, f.time, f.kind) | (f.kind == BULK)) & chosen
        if pending.any() or (new.kind >= ASYNC and (f.kind[chosen] >= ASYNC).any()):
            class_ = "async-race"
            done = "read" if new.writes and not old_writes else "complete"
            message = (
                f"'{new.site.text}' {'writes' if new.writes else 'reads'} what an asynchronous copy"
                f" of line {first.line} may not have {done} yet"
            )
            cure = self.copies.cure(f.lane, f.time, f.kind, pending)
        else:
            class_ = f"race-{new.space}"
            old = "write" if old_writes else "read"
            message = (
                f"{'write' if new.writes else 'read'} by '{new.site.text}' is not ordered with the"
                f" {old} by '{first.text}' at line {first.line}"
            )
            cure = self._cure(new, f, chosen, at)
        other = _Taken(f.lane[chosen], f.time[chosen], f.kind[chosen])
        self._say(class_, new, index[chosen], at[chosen], first, other, shadow, message, cure)

    def _report_same(
        self,
        new: _New,
        index: Array,
        at: Array,
        f: Any,
        chosen: BoolArray,
        first: Site,
        shadow: Shadow,
    ) -> None:
        other = _Taken(f.lane[chosen], f.time[chosen], f.kind[chosen])
        self._say(
            "same-value-write", new, index[chosen], at[chosen], first, other, shadow,
            f"threads write the same value by '{new.site.text}' and line {first.line}, in no order",
            "let one thread write, or use a relaxed store",
            Severity.WARNING,
        )  # fmt: skip

    def _cure(self, new: _New, f: Any, chosen: BoolArray, at: Array) -> str:
        per = self.know.per
        mine = self.know.globally(new.lanes[at[chosen]])
        theirs = f.lane[chosen]
        if (mine // per != theirs // per).any():
            return (
                "order the CTAs: a release at gpu scope after the first access, an acquire before"
                " the second, or an atomic"
            )
        if (mine >> 5 == theirs >> 5).all():
            return "put 'bar.warp.sync' between the two accesses"
        return "put a barrier (bar.sync) between the two accesses"

    def _say(
        self,
        class_: str,
        new: _New,
        index: Array,
        at: Array,
        first: Site,
        other: _Taken | None,
        shadow: Shadow,
        message: str,
        cure: str,
        severity: Severity = Severity.ERROR,
    ) -> None:
        one, two = sorted((self._number(first), new.number))
        pair = self._pairs.get((one, two, class_))
        if pair is None:
            pair = _Pair(first, new.site, class_, severity=severity)
            self._pairs[one, two, class_] = pair
        if pair.shown >= _REPORTS:
            pair.silent += len(at)
            return
        pair.shown += 1
        place = int(index[0]) << shadow.shift
        base = self.wave.memory.base
        if new.space == "shared":
            place -= int(new.lanes[at[0]]) // self.know.per * self.wave.shared_stride
            base = 0
        more: dict[str, Any] = {}
        if other is not None:
            theirs = other.lane[0]
            cta = int(theirs) // self.know.per
            x, y, z = (int(v[0]) for v in self.wave.geometry.ctaid(np.array([cta])))
            warp = int(theirs) % self.know.per >> 5
            same = other.lane[other.lane >> 5 == theirs >> 5]
            more = {
                "other_cta": (x, y, z), "other_warp": warp,
                "other_lanes": tuple(sorted({int(lane) & 31 for lane in same})),
            }  # fmt: skip
            more |= self._last_order(int(new.lanes[at[0]]), int(theirs))
        site, line = (new.site, first.line)
        if pair.second is not new.site:  # seen the other way round before
            site, line = pair.second, pair.first.line
        self.wave.report(
            class_, message, site, new.lanes[at], help=cure, other_line=line,
            address=base + place, space=new.space, severity=severity, size=1 << new.size, **more,
        )  # fmt: skip

    def _last_order(self, lane: int, other: int) -> dict[str, Any]:
        """Where a lane of the wave and a global lane were last brought into order."""
        mine = int(self.know.globally(np.array([lane]))[0])
        found = []
        if mine // self.know.per == other // self.know.per:
            found.append(self._barriers.get(lane // self.know.per))
            if mine >> 5 == other >> 5:
                found.append(self._meetings.get(lane >> 5))
        known = [f for f in found if f is not None]
        if not known:
            return {"ordering": "nothing since the start of the kernel orders them"}
        _, site = max(known, key=lambda f: f[0])
        return {
            "ordering": f"last ordered by '{site.text}' at line {site.line}",
            "ordering_line": site.line,
        }

    # --- barriers and fences --------------------------------------------------------------------

    def barrier_arrived(
        self, wave: Wave, barrier: int, lanes: Array, waits: bool, site: Site
    ) -> None:
        arrived = _Arrived(lanes, waits, site)
        if not waits:
            for warp in np.unique(lanes >> 5):
                cta, inside = divmod(int(warp), self.know.warps)
                arrived.gives.append((cta, self.know.snapshot(cta, inside)))
        self._arrived.setdefault(barrier, []).append(arrived)

    def barrier_opened(self, wave: Wave, barrier: int, ctas: Array) -> None:
        arrived = self._arrived.pop(barrier, [])
        per = self.know.per
        waits = np.zeros(wave.size, bool)
        gives: dict[int, list[Any]] = {}
        kept: list[_Arrived] = []
        opened = np.zeros(len(wave.ctas), bool)
        opened[ctas] = True
        for a in arrived:
            here = opened[a.lanes // per]
            if not here.all():
                rest = _Arrived(a.lanes[~here], a.waits, a.site)
                rest.gives = [(cta, given) for cta, given in a.gives if not opened[cta]]
                kept.append(rest)
            if a.waits:
                waits[a.lanes[here]] = True
            for cta in np.unique(a.lanes[here] // per):
                self._events += 1
                self._barriers[int(cta)] = self._events, a.site
            for cta, given in a.gives:
                if opened[cta]:
                    gives.setdefault(cta, []).append(given)
        if kept:
            self._arrived[barrier] = kept
        left: Array = (wave.alive & ~waits).reshape(len(wave.ctas), -1)
        missing = np.asarray(left.any(axis=1))
        whole = ctas[~missing[ctas]]
        if len(whole):
            self.know.meet(whole)
        warps = np.asarray(waits.reshape(len(wave.ctas), -1, 32).any(axis=2))
        for cta in map(int, ctas[missing[ctas]]):
            self.know.meet_some(cta, np.flatnonzero(warps[cta]), gives.get(cta, ()))

    def warp_synced(self, group: Group, members: BoolArray) -> None:
        w = group.warps()
        live = w.live_bits
        bits = (members.astype(np.uint64) << np.arange(32, dtype=np.uint64)).sum(axis=2)
        whole = ((bits == live[:, None]) | ~w.present).all(axis=1) & (w.present_bits == live)
        for k, warp in enumerate(map(int, w.warp_ids)):
            self.know.meet_lanes(warp, members[k], bool(whole[k]))
            if whole[k] and group.block.site is not None:
                self._events += 1
                self._meetings[warp] = self._events, group.block.site

    def fence(self, wave: Wave, lanes: Array, order: MemoryOrder, site: Site) -> None:
        self.sync.fence(lanes, order)

    # --- asynchronous copies --------------------------------------------------------------------

    def copy_issued(
        self, wave: Wave, lanes: Array, target: Array, source: Array, size: int, copied: Array,
        group: Array, site: Site,
    ) -> None:  # fmt: skip
        owner = self.know.globally(lanes)
        records = pack(owner, group, ASYNC, 0, 2)
        number = self._number(site)
        self.copies.issued(lanes, group)
        for k in range(size >> self._shared.shift):
            new = _New("shared", lanes, records, site, number, ASYNC, 0, 2, True)
            index = (target >> self._shared.shift) + k
            self._write_async(self._shared, index, new)
        self._source(lanes, source, copied, records, site, number)

    def _source(
        self, lanes: Array, source: Array, copied: Array, records: Array, site: Site, number: int
    ) -> None:
        """The bytes that are read, in granules of global memory."""
        shadow = self._shadow("global")
        for k in range(int(copied.max(initial=0)) + 3 >> shadow.shift):
            reads = np.flatnonzero(copied > k << shadow.shift)
            if not len(reads):
                break
            new = _New("global", lanes[reads], records[reads], site, number, ASYNC, 0, 2, False)
            index = (source[reads] >> shadow.shift) + k
            self._against(shadow, shadow.writes, index, new, old_writes=True)
            keep = self._unknown_of(shadow, shadow.reads, index, new)
            shadow.read = True
            self._add(shadow, shadow.reads, index, new, keep)

    def _write_async(self, shadow: Shadow, index: Array, new: _New) -> None:
        twice = shadow.repeated(index)
        if twice is not None:
            at = np.flatnonzero(twice)
            old = fields(new.records[shadow.last(index)[at]])
            self._report(new, index[at], at, old, np.ones(len(at), bool), new.site, True, shadow)
        self._against(shadow, shadow.writes, index, new, old_writes=True)
        if shadow.read:
            self._against(shadow, shadow.reads, index, new, old_writes=False)
            for slot in shadow.reads:
                slot.clear(index)
        if shadow.more:
            self._against_more(shadow, index, new)
            for at in np.unique(index):
                shadow.more.pop(int(at), None)
        shadow.writes[0].put(index, new.records, new.number)
        if shadow.second:
            shadow.writes[1].clear(index)

    def copies_waited(self, wave: Wave, lanes: Array, limit: Array, site: Site) -> None:
        self.copies.waited(lanes, limit, self.know.times(lanes))

    def copies_signal(self, wave: Wave, lanes: Array, limit: Array, barrier: Array) -> None:
        owner = self.know.globally(lanes)
        barriers = wave.service("mbarriers")
        for k, place in enumerate(map(int, barrier)):
            clock = Clock(groups={int(owner[k]): int(limit[k])})
            self.phases.give(place, barriers.phase(place), clock)

    def copies_committed(self, wave: Wave, lanes: Array, group: Array, site: Site) -> None:
        self.copies.committed(lanes, group)

    # --- mbarriers and bulk copies --------------------------------------------------------------

    def mbarrier_initialised(self, wave: Wave, lanes: Array, barrier: Array, site: Site) -> None:
        self.phases.initialised(barrier)
        for index, new in self._object(lanes, barrier, site, writes=True):
            self._write(self._shared, index, new)

    def mbarrier_arrived(
        self, wave: Wave, lanes: Array, barrier: Array, phase: Array, order: MemoryOrder, site: Site
    ) -> None:
        self._uses(lanes, barrier, site)
        self.phases.arrived(lanes, barrier, phase, order)

    def mbarrier_passed(
        self, wave: Wave, lanes: Array, barrier: Array, phase: Array, order: MemoryOrder, site: Site
    ) -> None:
        self._uses(lanes, barrier, site)
        self.phases.passed(lanes, barrier, phase, order)

    def _object(
        self, lanes: Array, barrier: Array, site: Site, writes: bool
    ) -> list[tuple[Array, _New]]:
        """The eight bytes of mbarriers as granules."""
        shift = self._shared.shift
        records = pack(self.know.globally(lanes), self.know.times(lanes), WEAK, 0, 3)
        number = self._number(site)
        new = _New("shared", lanes, records, site, number, WEAK, 0, 3, writes)
        return [((barrier >> shift) + k, new) for k in range(8 >> shift)]

    def _uses(self, lanes: Array, barrier: Array, site: Site) -> None:
        """An object is used: its init must come before."""
        for index, new in self._object(lanes, barrier, site, writes=False)[:1]:
            self._against(self._shared, self._shared.writes, index, new, old_writes=True)

    def bulk_issued(self, wave: Wave, copy: Any, site: Site) -> None:
        parts = self.bulk.issued(copy.lane, copy.mbarrier, copy.phase, copy.group)
        number = self._number(site)
        for space, start, part, writes in (
            (copy.source_space, copy.source, parts[0], False),
            (copy.target_space, copy.target, parts[1], True),
        ):
            shadow = self._shadow(space)
            index = np.arange(start >> shadow.shift, start + copy.size >> shadow.shift)
            lanes = np.full(len(index), copy.lane)
            records = pack(self.know.globally(lanes), part, BULK, 0, 2)
            new = _New(space, lanes, records, site, number, BULK, 0, 2, writes)
            self._unfenced(shadow, index, new)
            if writes:
                self._write_async(shadow, index, new)
            else:
                self._against(shadow, shadow.writes, index, new, old_writes=True)
                keep = self._unknown_of(shadow, shadow.reads, index, new)
                shadow.read = True
                self._add(shadow, shadow.reads, index, new, keep)

    def bulk_waited(self, wave: Wave, lane: int, limit: int, read: bool, site: Site) -> None:
        self.bulk.waited(lane, limit, read)

    def proxy_fence(self, wave: Wave, lanes: Array, kind: str, site: Site) -> None:
        if kind.startswith("async"):
            self.proxy.fence(lanes)

    def _shadow(self, space: str) -> Shadow:
        if space == "shared":
            return self._shared
        size = len(self.wave.memory.bytes)
        if self._global is None:
            self._global = Shadow(size, self.wave.lanes_per_cta, self.exact)
        self._global.grow(size)
        return self._global

    def _unfenced(self, shadow: Shadow, index: Array, new: _New) -> None:
        """Writes through the generic proxy that a bulk copy comes after, but no proxy fence."""
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
            first = self.sites[int(number)]
            verb = "writes over" if new.writes else "reads"
            other = _Taken(f.lane[chosen], f.time[chosen], f.kind[chosen])
            self._say(
                "proxy-fence", new, index[at[chosen]], at[chosen], first, other, shadow,
                f"'{new.site.text}' {verb} through the async proxy what '{first.text}' wrote through"
                f" the generic proxy at line {first.line}, with no proxy fence between",
                "put 'fence.proxy.async' after the write, before the barrier that the copy waits for",
            )  # fmt: skip


@dataclass(slots=True)
class _Arrived:
    """Lanes at a barrier; ``gives`` are snapshots of warps that do not wait, with their CTA."""

    lanes: Array
    waits: bool
    site: Site
    gives: list[tuple[int, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Taken:
    """Owner, time and kind of some records."""

    lane: Array
    time: Array
    kind: Array


def _lanes(group: Group, place: Place) -> Array:
    return group.lanes if place.lanes is None else group.lanes[place.lanes]


def _octets(word: Array, count: int, offset: int, width: int) -> Array:
    """Bytes ``offset`` to ``offset + width`` of each lane's word: [count, width]."""
    if len(word) != count:
        word = np.broadcast_to(word, (count,))
    whole = np.ascontiguousarray(word).view(np.uint8).reshape(count, -1)
    return whole[:, offset : offset + width]

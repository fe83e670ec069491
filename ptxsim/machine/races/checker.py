"""Finds data races by happens-before (PTX ISA 9.1, Memory Consistency Model: Data-race).

Two accesses to one byte race if one writes, no chain of synchronisation orders them, and they are
not strong accesses whose scopes hold each other.  What counts is the order that the program makes,
not the order in which this run happened to execute, so the verdict is the same on every schedule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...isa.order import SCOPES, MemoryOrder
from ...isa.protocol import Array, BoolArray, Site
from ..watch import Watch
from .accesses import New
from .clocks import Clock, Knowledge
from .copies import AsyncGroups
from .fence_order import FenceOrder
from .judge import Judge
from .past import Past
from .phases import BulkParts, Phases, ProxyFences
from .reports import Reports
from .scan import Traits
from .shadow import ASYNC, ATOMIC, BULK, STRONG, WEAK, WRITTEN, Shadow, pack
from .sync import Synchronisation

if TYPE_CHECKING:
    from ..access import Access, Place
    from ..group import Group
    from ..wave import Wave

__all__ = ["RaceChecker"]

_GPU = SCOPES.index("gpu")
_NO_TRAITS = Traits()
_LOG = {1: 0, 2: 1, 4: 2, 8: 3, 16: 3}


class RaceChecker(Watch):
    """Listens to a launch of a module with these traits.

    Loads that are ``unwatched`` are not looked at.
    """

    def __init__(
        self, of: Traits = _NO_TRAITS, unwatched: frozenset[tuple[int, int]] = frozenset()
    ) -> None:
        self.traits = of
        #: line and column of loads from memory that the kernel does not write
        self.unwatched = unwatched
        self._skipped: dict[int, bool] = {}
        self._fences: FenceOrder | None = None
        self.sync = Synchronisation()
        self.reports = Reports()
        self._global: Shadow | None = None
        self.bulk = BulkParts()
        self.proxy = ProxyFences()
        #: by wait instruction: whether there were copies, and whether it waited for one
        self._waits: dict[int, tuple[bool, bool]] = {}

    # --- waves ----------------------------------------------------------------------------------

    def wave_began(self, wave: Wave) -> None:
        self.wave = wave
        if self.traits.sequential and self._fences is None:
            self._fences = FenceOrder(Past(wave.lanes_per_cta))
        past = None if self._fences is None else self._fences.past
        self.know = Knowledge(wave.ctas, wave.lanes_per_cta, past)
        #: the lanes that each warp began with, as bits
        self._lanes = wave.live_bits.copy()
        self.copies = AsyncGroups(self.know)
        self.sync.begin(self.know)
        self.phases = Phases(self.know, self.sync)
        self.bulk.begin(self.know, self.phases)
        self.proxy.begin(self.know)
        self.reports.begin(wave, self.know, self.copies)
        self.judge = Judge(self.reports, self.know, self.copies, self.bulk, self.proxy, self.traits)
        self._arrived: dict[int, list[_Arrived]] = {}
        #: by barrier and CTA: the last use by some warps of the CTA
        self._used: dict[tuple[int, int], _Use] = {}
        self._shared = Shadow(len(wave.shared), wave.lanes_per_cta, self.traits.parts)

    def wave_ended(self, wave: Wave) -> None:
        for number, (pending, useful) in self.copies.waits.items():
            before = self._waits.get(number, (False, False))
            self._waits[number] = (before[0] or pending, before[1] or useful)
        self.reports.finish()
        if self._global is not None and self.copies.any:
            self._global.settle(self.copies.times)

    def launch_ended(self) -> None:
        for number, (pending, useful) in self._waits.items():
            if pending and not useful:
                self.reports.idle_wait(number)
        if self._fences is not None:
            self.reports.decide(self._fences)

    def exited(self, wave: Wave, lanes: Array) -> None:
        for number, some in self.copies.left(lanes).items():
            self.reports.never_waited(number, some)
        if self._fences is not None:
            self._fences.ended(self.know.globally(lanes), self.know.times(lanes))

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
        if order.strong:  # what it acquires orders the access itself
            for where in _vector(access, np.broadcast_to(at, lanes.shape)):
                self.sync.read(space, where, lanes, order)
        if len(at) == 1 and len(lanes) > 2 and not self.traits.parts and not order.strong:
            if not any(s.records[at >> p.shift].any() for p in shadow.parts for s in p.writes):
                lanes = lanes[[0, -1]]  # readers of one place: the farthest apart matter
        for k, new in self._elements(space, shadow, access, lanes, writes=False):
            index = (at >> shadow.shift) + k
            if len(index) != len(lanes):
                index = np.broadcast_to(index, lanes.shape)
            self.judge.read(shadow, index, new)
            if not order.coherent:
                self.judge.not_coherent(shadow, index, new)

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
            self.judge.write(shadow, index, new)
        step = -1 if self.wave.reversed else 1
        for where in _vector(access, at):
            if order.strong:
                self.sync.write(space, where[::step], lanes[::step], order)
            else:
                self.sync.overwritten(space, where)

    def atomic(self, group: Group, access: Access, place: Place) -> None:
        found = self._memory(access, place)
        if found is None:
            return
        space, shadow = found
        lanes = _lanes(group, place)
        at = np.broadcast_to(place.at, lanes.shape)
        step = -1 if self.wave.reversed else 1  # the order in which the lanes are served
        for where in _vector(access, at):
            self.sync.atomic(space, where[::step], lanes[::step], access.site.order)
        for k, new in self._elements(space, shadow, access, lanes, writes=True):
            self.judge.write(shadow, (at >> shadow.shift) + k, new)
        if access.site.order.release:
            self.know.tick(lanes)

    def _elements(
        self, space: str, shadow: Shadow, access: Access, lanes: Array, writes: bool
    ) -> list[tuple[int, New]]:
        """One entry for each granule of the access."""
        size = min(access.size, 8)
        shadow.refine(_LOG[size])
        order = access.site.order
        kind = ATOMIC if order.atomic else STRONG if order.strong else WEAK
        scope = SCOPES.index(order.scope) if order.strong else 0
        log = _LOG[size]
        owner = self.know.globally(lanes)
        matrix = order.matrix | (WRITTEN if writes and order.matrix else 0)
        records = pack(owner, self.know.times(lanes), kind, scope, log, matrix)
        number = self.reports.number(access.site)
        new = New(
            space, lanes, records, access.site, number, kind, scope, log, writes, order.matrix
        )  # fmt: skip
        return [(k, new) for k in range(access.total >> shadow.shift)]

    def barrier_arrived(
        self, wave: Wave, barrier: int, lanes: Array, count: int | None, waits: bool, site: Site
    ) -> None:
        arrived = _Arrived(lanes, waits, count is None or count == wave.lanes_per_cta, site)
        if not arrived.full:
            self._follows(barrier, lanes, site)
        if not waits:
            for warp in np.unique(lanes >> 5):
                cta, inside = divmod(int(warp), self.know.warps)
                some = self._giving(barrier, int(warp), lanes)
                arrived.gives.append((cta, self.know.snapshot(cta, inside, some)))
        self._arrived.setdefault(barrier, []).append(arrived)

    def _giving(self, barrier: int, warp: int, lanes: Array) -> Array | None:
        """Of the lanes of a warp those for which it arrives now; None for all.

        Lanes that have ended count with those that arrive after them.
        """
        every = np.arange(warp * 32, warp * 32 + 32)
        before = [a.lanes for a in self._arrived.get(barrier, ())]
        now = np.isin(every, lanes) | ~self.wave.alive[every]
        some = every[now & ~np.isin(every, np.concatenate([*before, every[:0]]))]
        return None if len(some) == 32 else some

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
                rest = _Arrived(a.lanes[~here], a.waits, a.full, a.site)
                rest.gives = [(cta, given) for cta, given in a.gives if not opened[cta]]
                kept.append(rest)
            if a.waits:
                waits[a.lanes[here]] = True
            for cta in np.unique(a.lanes[here] // per):
                self.reports.barrier(int(cta), a.site)
            for cta, given in a.gives:
                if opened[cta]:
                    gives.setdefault(cta, []).append(given)
        if kept:
            self._arrived[barrier] = kept
        full = all(a.full and a.waits for a in arrived)
        left: Array = (wave.alive & ~waits).reshape(len(wave.ctas), -1)
        missing = np.asarray(left.any(axis=1)) | (not full)
        whole = ctas[~missing[ctas]]
        if len(whole):
            self.know.meet(whole)
        warps = np.asarray(waits.reshape(len(wave.ctas), -1, 32).any(axis=2))
        for cta in map(int, ctas[missing[ctas]]):
            waiting = np.flatnonzero(warps[cta])
            self.know.meet_some(cta, waiting, gives.get(cta, ()))
            lanes = cta * per + waiting * 32
            marks = self.know.globally(lanes), self.know.times(lanes)
            last = next(a.site for a in reversed(arrived) if (a.lanes // per == cta).any())
            self._used[barrier, cta] = _Use(last, lanes >> 5, *marks)

    def _follows(self, barrier: int, lanes: Array, site: Site) -> None:
        """A barrier of some warps is used again only by who knows that its last use is over."""
        for warp in map(int, np.unique(lanes >> 5)):
            use = self._used.get((barrier, warp // self.know.warps))
            if use is None or not len(use.warps) or warp in use.warps:
                continue
            mine = lanes[lanes >> 5 == warp]
            who = np.full(len(use.owners), int(mine[0]))
            if self.know.unknown(use.owners, use.times, who).all():
                self.reports.mixed(barrier, site, use.site, mine)

    def warp_synced(self, group: Group, members: BoolArray) -> None:
        w = group.warps()
        bits = (members.astype(np.uint32) << np.arange(32, dtype=np.uint32)).sum(axis=2)
        # lanes that have exited meet others only where the mask names them
        strange = (self._lanes[w.warp_ids, None] & ~bits) != 0
        whole = ~(strange & w.present).any(axis=1) & (w.present_bits == w.live_bits)
        for k, warp in enumerate(map(int, w.warp_ids)):
            self.know.meet_lanes(warp, members[k], bool(whole[k]))
            if whole[k] and group.block.site is not None:
                self.reports.meeting(warp, group.block.site)

    def fence(self, wave: Wave, lanes: Array, order: MemoryOrder, site: Site) -> None:
        self.sync.fence(lanes, order)
        if order.sequential and self._fences is not None and len(lanes):
            wide = SCOPES.index(order.scope) >= _GPU
            self._fences.add(self.know.globally(lanes), self.know.times(lanes) - 1, wide)
            self.know.fenced(lanes)

    def copy_issued(
        self, wave: Wave, lanes: Array, target: Array, source: Array, size: int, copied: Array,
        group: Array, site: Site,
    ) -> None:  # fmt: skip
        owner = self.know.globally(lanes)
        number = self.reports.number(site)
        records = pack(owner, self.copies.issued(lanes, group, number), ASYNC, 0, 2)
        for k in range(size >> self._shared.shift):
            new = New("shared", lanes, records, site, number, ASYNC, 0, 2, True)
            index = (target >> self._shared.shift) + k
            self.judge.write_async(self._shared, index, new)
        self._source(lanes, source, copied, records, site, number)

    def _source(
        self, lanes: Array, source: Array, copied: Array, records: Array, site: Site, number: int
    ) -> None:
        """The bytes that are read, in granules of global memory."""
        shadow = self._shadow("global")
        part = int(np.bitwise_or.reduce(copied)) & 3
        if part:  # some end within a word, whose other bytes are not read
            shadow.refine(_trailing_zeros(part))
        for k in range(int(copied.max(initial=0)) + 3 >> shadow.shift):
            reads = np.flatnonzero(copied > k << shadow.shift)
            if not len(reads):
                break
            new = New("global", lanes[reads], records[reads], site, number, ASYNC, 0, 2, False)
            index = (source[reads] >> shadow.shift) + k
            self.judge.read(shadow, index, new)

    def copies_waited(self, wave: Wave, lanes: Array, limit: Array, site: Site) -> None:
        number = self.reports.number(site)
        self.copies.waited(lanes, limit, self.know.times(lanes), number)

    def copies_signal(self, wave: Wave, lanes: Array, limit: Array, barrier: Array) -> None:
        self.copies.signalled(lanes)

    def copies_arrived(
        self, wave: Wave, lanes: Array, barrier: int, phase: Array, issued: int
    ) -> None:
        for number in np.unique(phase):
            some = self.know.globally(lanes[phase == number]).tolist()
            self.phases.give(barrier, int(number), Clock(groups=dict.fromkeys(some, issued)))

    def copies_committed(self, wave: Wave, lanes: Array, group: Array, site: Site) -> None:
        self.copies.committed(lanes, group)

    def mbarrier_initialised(self, wave: Wave, lanes: Array, barrier: Array, site: Site) -> None:
        self.phases.initialised(barrier)
        for index, new in self._object(lanes, barrier, site, writes=True):
            self.judge.write(self._shared, index, new)

    def mbarrier_invalidated(self, wave: Wave, lanes: Array, barrier: Array, site: Site) -> None:
        for index, new in self._object(lanes, barrier, site, writes=True):
            self.judge.write(self._shared, index, new)

    def mbarrier_arrived(
        self, wave: Wave, lanes: Array, barrier: Array, phase: Array, order: MemoryOrder, site: Site
    ) -> None:
        self._uses(lanes, barrier, site, order.release)
        self.phases.arrived(lanes, barrier, phase, order)

    def mbarrier_passed(
        self, wave: Wave, lanes: Array, barrier: Array, phase: Array, order: MemoryOrder, site: Site
    ) -> None:
        self._uses(lanes, barrier, site, True)
        self.phases.passed(lanes, barrier, phase, order)

    def _object(
        self, lanes: Array, barrier: Array, site: Site, writes: bool
    ) -> list[tuple[Array, New]]:
        """The eight bytes of mbarriers as granules; a use of one is a strong access."""
        shift, kind = self._shared.shift, WEAK if writes else STRONG
        records = pack(self.know.globally(lanes), self.know.times(lanes), kind, 0, 3)
        number = self.reports.number(site)
        new = New("shared", lanes, records, site, number, kind, 0, 3, writes)
        return [((barrier >> shift) + k, new) for k in range(8 >> shift)]

    def _uses(self, lanes: Array, barrier: Array, site: Site, ordered: bool) -> None:
        """An object is used: its init must come before, its end after a use that gives order."""
        index, new = self._object(lanes, barrier, site, writes=False)[0]
        if self.traits.ends and ordered:
            self.judge.read(self._shared, index, new)
        else:
            self.judge.against(self._shared, self._shared.writes, index, new, old_writes=True)

    def bulk_issued(self, wave: Wave, copy: Any, site: Site) -> None:
        parts = self.bulk.issued(copy)
        number = self.reports.number(site)
        source, target = copy.source, copy.target
        left, right = copy.ignored
        for space, start, end, part, writes in (
            (copy.source_space, source + left, source + copy.size - right, parts[0], False),
            (copy.target_space, target, target + copy.size, parts[1], True),
        ):
            shadow = self._shadow(space)
            shadow.refine(min(_trailing_zeros(start | end), 2))
            index = np.arange(start >> shadow.shift, end >> shadow.shift)
            lanes = np.full(len(index), copy.lane)
            scope = _GPU if writes and copy.reduction is not None else 0
            records = pack(self.know.globally(lanes), part, BULK, scope, 2)
            new = New(space, lanes, records, site, number, BULK, scope, 2, writes)
            self.judge.unfenced(shadow, index, new)
            if new.strong:  # each element is reduced by itself, relaxed at gpu scope
                self.judge.write(shadow, index, new)
            elif writes:
                self.judge.write_async(shadow, index, new)
            else:
                self.judge.read(shadow, index, new)

    def bulk_landed(self, wave: Wave, copy: Any) -> None:
        self.bulk.landed(copy)

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
            self._global = Shadow(size, self.wave.lanes_per_cta, self.traits.parts)
        self._global.grow(size)
        return self._global

    def _memory(self, access: Access, place: Place) -> tuple[str, Shadow] | None:
        if place.space == "shared":
            return "shared", self._shared
        if place.space == "local" or access.space in ("const", "param"):
            return None
        return "global", self._shadow("global")


@dataclass(frozen=True, slots=True)
class _Use:
    """A barrier of some warps has opened: who waited, and a lane and time of each behind it."""

    site: Site
    warps: Array
    owners: Array
    times: Array


@dataclass(slots=True)
class _Arrived:
    """Lanes at a barrier; ``gives`` are snapshots of warps that do not wait, with their CTA."""

    lanes: Array
    waits: bool
    #: of all warps of the CTA
    full: bool
    site: Site
    gives: list[tuple[int, Any]] = field(default_factory=list)


def _vector(access: Access, at: Array) -> Iterator[Array]:
    """Where each element of a vector is: each synchronises by itself."""
    return (at + element * access.size for element in range(access.count))


def _trailing_zeros(address: int) -> int:
    return (address & -address).bit_length() - 1


def _lanes(group: Group, place: Place) -> Array:
    return group.lanes if place.lanes is None else group.lanes[place.lanes]


def _octets(word: Array, count: int, offset: int, width: int) -> Array:
    """Bytes ``offset`` to ``offset + width`` of each lane's word: [count, width]."""
    if len(word) != count:
        word = np.broadcast_to(word, (count,))
    whole = np.ascontiguousarray(word).view(np.uint8).reshape(count, -1)
    return whole[:, offset : offset + width]

"""Happens-before by the definition: full vector clocks, the whole history, every pair compared.

This decides whether a mutant that the tool finds nothing in has an effect at all.  It shares with
the race checker the events that the machine tells, and nothing else: each thread has a vector with
the newest time of every other thread that it knows (PTX ISA 9.1, Memory Consistency Model:
Causality order), accesses are never forgotten, and after the launch all pairs on each byte are
compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxsim.isa.order import SCOPES, MemoryOrder
from ptxsim.isa.protocol import Array, BoolArray, Site
from ptxsim.machine.watch import Watch
from tests.mutation_pairs import NEVER, Clock, Event, Fence, Unordered, unordered_pairs

if TYPE_CHECKING:
    from ptxsim.machine.access import Access, Place
    from ptxsim.machine.group import Group
    from ptxsim.machine.wave import Wave

__all__ = ["History"]

_GPU = SCOPES.index("gpu")
_SPACES = {"shared": 1 << 60, "global": 2 << 60}


@dataclass(slots=True)
class _Released:
    clock: Clock
    thread: int
    scope: int


class History(Watch):
    """Listens to one launch."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._versions: list[Clock] = []
        self._fences: list[Fence] = []
        self._variables: dict[int, list[_Released]] = {}
        self._tokens = 0
        self._sequence = 0
        self._wave_number = -1
        self._time: Array = np.zeros(0, np.int64)

    # --- clocks ---------------------------------------------------------------------------------

    def wave_began(self, wave: Wave) -> None:
        self._wave = wave
        self._wave_number += 1
        self.per = wave.lanes_per_cta
        if not len(self._time):
            threads = wave.geometry.ctas * self.per
            self._time = np.ones(threads, np.int64)
            self._version = np.zeros(threads, np.int64)
            self._digest = np.zeros(threads, np.uint64)
            self._versions.append(Clock(np.zeros(threads, np.int64), frozenset()))
        self._flying: dict[int, list[tuple[Event, int, int]]] = {}
        self._bulk: dict[int, list[tuple[int, int, int]]] = {}
        self._arrived: dict[int, list[tuple[Array, list[tuple[int, Clock]]]]] = {}
        self._phases: dict[int, dict[int, list[Clock]]] = {}
        self._fenced: dict[int, _Released] = {}
        self._seen: dict[int, dict[int, list[_Released]]] = {}
        self._gone = np.zeros(len(self._time), bool)

    def _threads(self, lanes: Array) -> Array:
        ctas = np.asarray(self._wave.ctas, np.int64)
        out: Array = ctas[lanes // self.per] * self.per + lanes % self.per
        return out

    def _give(self, thread: int) -> Clock:
        """All that a thread knows, itself up to now; what it does later is not part of it."""
        known = self._versions[self._version[thread]]
        times = known.times.copy()
        times[thread] = self._time[thread]
        self._time[thread] += 1
        return Clock(times, known.done)

    def _take(self, threads: Sequence[int] | Array, clocks: Iterable[Clock]) -> None:
        """Threads learn clocks."""
        new = list(clocks)
        if not new:
            return
        for version in np.unique(self._version[threads]):
            same = [t for t in threads if self._version[t] == version]
            old = self._versions[version]
            times = np.maximum.reduce([old.times, *(c.times for c in new)])
            self._versions.append(Clock(times, old.done.union(*(c.done for c in new))))
            self._version[same] = len(self._versions) - 1

    def _meet(self, waits: Array, gives: Array, more: Iterable[Clock]) -> None:
        """``waits`` learn what ``gives`` (themselves among them) know."""
        everyone = [self._versions[v] for v in np.unique(self._version[gives])]
        whole = [*everyone, *more]
        times = np.maximum.reduce([c.times for c in whole])
        times[gives] = np.maximum(times[gives], self._time[gives])
        self._versions.append(Clock(times, frozenset().union(*(c.done for c in whole))))
        self._version[waits] = len(self._versions) - 1
        self._time[gives] += 1

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence

    # --- accesses -------------------------------------------------------------------------------

    def _key(self, space: str, at: Array) -> Array:
        base = self._wave_number * len(self._wave.shared) if space == "shared" else 0
        return np.asarray(at, np.int64) + (_SPACES[space] >> 4) + base

    def _log(
        self, lanes: Array, key: Array, size: int, site: Site, writes: bool, *,
        order: MemoryOrder | None = None, values: Array | None = None, hidden: bool = False,
    ) -> Event:  # fmt: skip
        threads, issued = self._threads(lanes), self._next()
        strong = order is not None and order.strong
        event = Event(
            threads, self._time[threads].copy(), self._version[threads].copy(), issued,
            np.full(len(threads), issued), key, size, int(site.line), writes,
            SCOPES.index(order.scope) if strong and order else -1,
            order is not None and order.atomic, values=values,
        )  # fmt: skip
        self._events.append(event)
        if hidden:
            return event
        mixed = key.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(size * 2 + writes)
        if values is not None:
            for column in values.T:
                mixed = mixed * np.uint64(31) + column
        self._digest[threads] = self._digest[threads] * np.uint64(0x100000001B3) ^ mixed
        return event

    def _accessed(
        self, group: Group, access: Access, place: Place, writes: bool,
        words: Sequence[Array] | None = None,
    ) -> tuple[Array, Array] | None:  # fmt: skip
        if place.space == "local" or access.space in ("const", "param"):
            return None
        space = "shared" if place.space == "shared" else "global"
        lanes = group.lanes if place.lanes is None else group.lanes[place.lanes]
        key = self._key(space, np.broadcast_to(place.at, lanes.shape))
        size = min(access.size, 8)
        for k in range(access.total // size):
            values = None
            if words is not None:
                word = np.ascontiguousarray(np.broadcast_to(words[k], lanes.shape))
                values = word.view(np.uint8).reshape(len(lanes), -1)
            order = access.site.order
            self._log(lanes, key + k * size, size, access.site, writes, order=order, values=values)
        return lanes, key

    def load(self, group: Group, access: Access, place: Place) -> None:
        found = self._accessed(group, access, place, False)
        if found is not None and access.site.order.strong:
            for thread, key in zip(
                self._threads(found[0]).tolist(), found[1].tolist(), strict=True
            ):
                self._read(thread, key, access.site.order)

    def store(self, group: Group, access: Access, place: Place, words: Sequence[Array]) -> None:
        found = self._accessed(group, access, place, True, words)
        if found is None:
            return
        order = access.site.order
        for thread, key in self._in_turn(*found):
            if not order.strong:
                self._variables.pop(key, None)
                continue
            own = [e for e in self._variables.get(key, ()) if e.thread == thread]
            self._variables[key] = [*self._released(thread, order), *own]

    def atomic(self, group: Group, access: Access, place: Place) -> None:
        found = self._accessed(group, access, place, True)
        if found is None:
            return
        order = access.site.order
        scope = SCOPES.index(order.scope)
        for thread, key in self._in_turn(*found):
            self._read(thread, key, order)
            chain = [
                _Released(e.clock, e.thread, min(e.scope, scope))
                for e in self._variables.get(key, ())
            ]
            self._variables[key] = [*chain, *self._released(thread, order)]

    def _in_turn(self, lanes: Array, keys: Array) -> Iterable[tuple[int, int]]:
        step = -1 if self._wave.reversed else 1
        return zip(self._threads(lanes[::step]).tolist(), keys[::step].tolist(), strict=True)

    # --- release and acquire patterns -----------------------------------------------------------

    def _released(self, thread: int, order: MemoryOrder) -> list[_Released]:
        scope = SCOPES.index(order.scope)
        out = [_Released(self._give(thread), thread, scope)] if order.release else []
        fenced = self._fenced.get(thread)
        if fenced is not None:
            out.append(_Released(fenced.clock, thread, min(scope, fenced.scope)))
        return out

    def _read(self, thread: int, key: int, order: MemoryOrder) -> None:
        scope = SCOPES.index(order.scope)
        found = [
            _Released(e.clock, e.thread, min(e.scope, scope)) for e in self._variables.get(key, ())
        ]
        if order.acquire:
            self._acquire(thread, found, scope)
            self._acquire(thread, self._seen.get(thread, {}).get(key, []), scope)
        elif order.reads and found:
            self._seen.setdefault(thread, {}).setdefault(key, []).extend(found)

    def _acquire(self, thread: int, entries: Iterable[_Released], scope: int) -> None:
        holds = [
            e.clock
            for e in entries
            if e.thread // self.per == thread // self.per or min(e.scope, scope) >= _GPU
        ]
        self._take([thread], holds)

    def fence(self, wave: Wave, lanes: Array, order: MemoryOrder, site: Site) -> None:
        scope = SCOPES.index(order.scope)
        for thread in self._threads(lanes).tolist():
            if order.acquire:
                for entries in self._seen.get(thread, {}).values():
                    self._acquire(thread, entries, scope)
            if order.release:
                self._fenced[thread] = _Released(self._give(thread), thread, scope)

    def proxy_fence(self, wave: Wave, lanes: Array, kind: str, site: Site) -> None:
        now = self._next()
        for t in self._threads(lanes).tolist():
            self._fences.append(Fence(t, now, int(self._time[t]), int(self._version[t])))

    # --- barriers -------------------------------------------------------------------------------

    def barrier_arrived(
        self, wave: Wave, barrier: int, lanes: Array, count: int | None, waits: bool, site: Site
    ) -> None:
        given = [] if waits else [(t, self._give(t)) for t in self._threads(lanes).tolist()]
        here = lanes if waits else lanes[:0]
        self._arrived.setdefault(barrier, []).append((here, given))

    def barrier_opened(self, wave: Wave, barrier: int, ctas: Array) -> None:
        arrived = self._arrived.pop(barrier, [])
        for cta in ctas.tolist():
            number = int(wave.ctas[cta])
            lanes = np.concatenate([a[a // self.per == cta] for a, _ in arrived])
            more = [c for _, given in arrived for t, c in given if t // self.per == number]
            waits = self._threads(lanes)
            # stores of threads that have ended count as ordered: a choice of the race checker
            gone = np.flatnonzero(self._gone[number * self.per : (number + 1) * self.per])
            if len(waits):
                self._meet(waits, np.union1d(waits, gone + number * self.per), more)
        opened = set(ctas.tolist())
        numbers = {int(wave.ctas[c]) for c in opened}
        for lanes, given in arrived:
            left = lanes[~np.isin(lanes // self.per, list(opened))]
            rest = [(t, c) for t, c in given if t // self.per not in numbers]
            if len(left) or rest:
                self._arrived.setdefault(barrier, []).append((left, rest))

    def warp_synced(self, group: Group, members: BoolArray) -> None:
        for k, warp in enumerate(group.warps().warp_ids.tolist()):
            rows = np.unique(members[k][members[k].any(axis=1)], axis=0)
            for row in rows:
                threads = self._threads(warp * 32 + np.flatnonzero(row))
                self._meet(threads, threads, ())

    def exited(self, wave: Wave, lanes: Array) -> None:
        self._gone[self._threads(lanes)] = True

    # --- asynchronous work ----------------------------------------------------------------------

    def _token(self) -> int:
        self._tokens += 1
        return self._tokens

    def _start(self, event: Event) -> None:
        """The accesses of an event are complete at no time that is known yet."""
        event.done = np.full(len(event.thread), NEVER)
        event.time = np.full(len(event.thread), NEVER)
        event.token = np.zeros(len(event.thread), np.int64)

    def copy_issued(
        self, wave: Wave, lanes: Array, target: Array, source: Array, size: int, copied: Array,
        group: Array, site: Site,
    ) -> None:  # fmt: skip
        events = [(self._log(lanes, self._key("shared", target), size, site, True), lanes, group)]
        for count in np.unique(copied[copied > 0]).tolist():
            some = copied == count
            key = self._key("global", source[some])
            event = self._log(lanes[some], key, count, site, False)
            events.append((event, lanes[some], group[some]))
        for event, who, groups in events:
            self._start(event)
            for k, (lane, number) in enumerate(zip(who.tolist(), groups.tolist(), strict=True)):
                self._flying.setdefault(lane, []).append((event, k, number))

    def copies_waited(self, wave: Wave, lanes: Array, limit: Array, site: Site) -> None:
        now = self._next()
        for lane, below in zip(lanes.tolist(), limit.tolist(), strict=True):
            flying = self._flying.get(lane, [])
            for event, k, number in flying:
                if number < below:
                    event.done[k] = now
                    event.time[k] = self._time[event.thread[k]]
            self._flying[lane] = [f for f in flying if f[2] >= below]

    def copies_signal(self, wave: Wave, lanes: Array, limit: Array, barrier: Array) -> None:
        nothing = np.zeros(len(self._time), np.int64)
        for lane, below, place in zip(
            lanes.tolist(), limit.tolist(), barrier.tolist(), strict=True
        ):
            for event, k, number in self._flying.get(lane, ()):
                if number < below and event.token is not None:
                    event.token[k] = event.token[k] or self._token()
                    phase = wave.service("mbarriers").phase(place)
                    clock = Clock(nothing, frozenset((int(event.token[k]),)))
                    self._phases.setdefault(place, {}).setdefault(phase, []).append(clock)

    def bulk_issued(self, wave: Wave, copy: Any, site: Site) -> None:
        lane = np.array([copy.lane])
        parts = []
        for space, start, writes in (
            (copy.source_space, copy.source, False), (copy.target_space, copy.target, True),
        ):  # fmt: skip
            event = self._log(lane, self._key(space, np.array([start])), copy.size, site, writes)
            self._start(event)
            event.proxy = True
            assert event.token is not None
            event.token[0] = self._token()
            parts.append(self._tokens)
        if copy.mbarrier is None:
            self._bulk.setdefault(copy.lane, []).append((copy.group, parts[0], parts[1]))
            return
        clock = Clock(np.zeros(len(self._time), np.int64), frozenset(parts))
        self._phases.setdefault(copy.mbarrier, {}).setdefault(copy.phase, []).append(clock)

    def bulk_waited(self, wave: Wave, lane: int, limit: int, read: bool, site: Site) -> None:
        done = [b for b in self._bulk.get(lane, ()) if b[0] < limit]
        parts = frozenset(part for b in done for part in (b[1:2] if read else b[1:]))
        if parts:
            clock = Clock(np.zeros(len(self._time), np.int64), parts)
            self._take(self._threads(np.array([lane])), [clock])

    # --- mbarriers ------------------------------------------------------------------------------

    def mbarrier_initialised(self, wave: Wave, lanes: Array, barrier: Array, site: Site) -> None:
        for place in np.unique(barrier).tolist():
            self._phases[place] = {}
        self._log(lanes, self._key("shared", barrier), 8, site, True)

    def _used(self, lanes: Array, barrier: Array, site: Site) -> None:
        # hidden: how often a loop of waits turns is no part of what a kernel does
        self._log(lanes, self._key("shared", barrier), 8, site, False, hidden=True)

    def mbarrier_arrived(
        self, wave: Wave, lanes: Array, barrier: Array, phase: Array, order: MemoryOrder, site: Site
    ) -> None:
        self._used(lanes, barrier, site)
        who = zip(self._threads(lanes).tolist(), barrier.tolist(), phase.tolist(), strict=True)
        for thread, place, number in who:
            given = self._phases.setdefault(place, {}).setdefault(number, [])
            if order.release:
                given.append(self._give(thread))
            elif thread in self._fenced:
                given.append(self._fenced[thread].clock)

    def mbarrier_passed(
        self, wave: Wave, lanes: Array, barrier: Array, phase: Array, order: MemoryOrder, site: Site
    ) -> None:
        self._used(lanes, barrier, site)
        for place, number in {*zip(barrier.tolist(), phase.tolist(), strict=True)}:
            some = self._threads(lanes[(barrier == place) & (phase == number)])
            phases = self._phases.get(place, {})
            clocks = [c for n, given in phases.items() if n <= number for c in given]
            if order.acquire:
                self._take(some, clocks)
                continue
            for thread in some.tolist():
                entries = [_Released(c, thread, len(SCOPES) - 1) for c in clocks]
                self._seen.setdefault(thread, {}).setdefault(-1 - place, []).extend(entries)

    # --- the answer -----------------------------------------------------------------------------

    def digest(self) -> int:
        """A number for the accesses of all threads: places, sizes, kinds, values stored."""
        return hash(self._digest.tobytes())

    def unordered(self) -> set[Unordered]:
        """All pairs of lines with accesses to one byte that conflict and that nothing orders."""
        return unordered_pairs(self._events, self._versions, self._fences, self.per)

"""A slow model of races: a full vector clock for every thread, all accesses of every byte kept.

It decides from a recorded launch which instructions race, by the rules of PTX ISA 9.1, Memory
Consistency Model, and shares no code with the checker: no slots, no clocks of warps, and patterns
of release and acquire found from the writes that a read observed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ptxsim.isa.order import MemoryOrder

from .race_events import Event

__all__ = ["Model", "Race", "lines_of"]

Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
#: space, CTA that owns it (-1 for global), 8-byte block
Block: TypeAlias = tuple[str, int, int]
_WIDE = ("gpu", "sys")


@dataclass(frozen=True, slots=True)
class Race:
    """Two instructions race: at which event it showed, and in which block of memory."""

    class_: str
    lines: frozenset[int]
    event: int
    block: Block
    #: the overlap holds equal bytes throughout (same-value-write only)
    whole: bool = True
    #: later ordered writes stand over the older access, and these do not race themselves
    hidden: bool = False
    #: fence.sc order the two in some run
    excused: bool = False


@dataclass(slots=True)
class _Accesses:
    """What the lanes of one event do to one block: columns by lane."""

    threads: Ints
    clocks: Ints
    starts: Ints
    size: int
    line: int
    order: MemoryOrder
    writes: bool
    event: int
    #: bytes written [lane, size], of stores; and those that were there
    values: Any = None
    before: Any = None
    #: group of each lane's asynchronous copy
    groups: Ints | None = None
    #: bytes that an ordered write has replaced since [lane, 8]
    covered: Any = None
    #: what the lanes knew [lane, thread]
    knew: Any = None


@dataclass(slots=True)
class _Write:
    """A strong write to a place that synchronises: what its patterns release."""

    thread: int
    order: MemoryOrder
    #: first operations of release patterns: scope and clock
    heads: list[tuple[str, Ints]]
    before: _Write | None = None


@dataclass(slots=True)
class _Thread:
    """Fences that a thread has passed, and what it observed without acquiring it."""

    fences: list[tuple[str, Ints]] = field(default_factory=list)
    seen: list[tuple[Any, str, int, Ints]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Fence:
    """A fence.sc: who, when, in which scope, and what was known."""

    thread: int
    clock: int
    scope: str
    knew: Ints


class Model:
    """Takes events in the order of the run; ``races`` are those of all of them."""

    def __init__(self, ctas: int, per_cta: int) -> None:
        self.per = per_cta
        count = ctas * per_cta
        #: clock[a, b]: newest event of thread b that thread a knows
        self.clock: Ints = np.zeros((count, count), np.int64)
        np.fill_diagonal(self.clock, 1)
        self.history: dict[Block, list[_Accesses]] = {}
        self.races: list[Race] = []
        self._arrived: dict[tuple[int, int], list[tuple[Ints, bool, Ints]]] = {}
        self._last: dict[tuple[str, int, int], _Write] = {}
        #: release operations of a thread at a place: a later write of it there continues them
        self._released: dict[tuple[int, tuple[str, int, int]], list[tuple[str, Ints]]] = {}
        self._threads = [_Thread() for _ in range(count)]
        #: clock of a thread when it had waited for one of its groups
        self._done: dict[tuple[int, int], int] = {}
        self._waited = np.zeros(count, np.int64)
        #: by CTA, place and phase of an mbarrier: what its arrivals gave
        self._phases: dict[tuple[int, int, int], Ints] = {}
        self._event = 0
        self._fences: list[_Fence] = []
        #: for each race the accesses, and which of the newer and older ones
        self._pairs: list[tuple[_Accesses, _Accesses, Bools]] = []

    def run(self, events: Iterable[Event]) -> Model:
        for number, event in enumerate(events):
            self._event = number
            getattr(self, "on_" + event.kind)(event)
        self._excuse()
        return self

    def _excuse(self) -> None:
        """Tell races that some order of the fence.sc hides from others.

        The order agrees with causality but is otherwise free: a fence F may come before G if both
        are morally strong and G does not come before F in causality order.
        """
        fences = self._fences
        free = np.array(
            [[self._may_precede(f, g) for g in fences] for f in fences], bool
        ).reshape(len(fences), len(fences)).astype(np.int64)  # fmt: skip
        out = []
        for race, (old, new, pairs) in zip(self.races, self._pairs, strict=True):
            forward = self._before(old) @ free @ self._after(new)
            back = self._before(new) @ free @ self._after(old)
            excused = (forward.T > 0) | (back > 0)
            if not race.class_.startswith("race-"):
                out.append(race)
                continue
            for flag, some in ((False, pairs & ~excused), (True, pairs & excused)):
                if some.any():
                    hidden = race.hidden if flag else _hidden(old, new, some)
                    out.append(replace(race, excused=flag, hidden=hidden))
        self.races = out

    def _may_precede(self, f: _Fence, g: _Fence) -> bool:
        strong = self.within(f.scope, f.thread, g.thread) and self.within(
            g.scope, g.thread, f.thread
        )
        return strong and bool(f.knew[g.thread] < g.clock)

    def _before(self, a: _Accesses) -> Ints:
        """Which fences each access comes before [access, fence]."""
        rows = [f.knew[a.threads] >= a.clocks for f in self._fences]
        return np.array(rows, np.int64).reshape(len(rows), len(a.threads)).T

    def _after(self, a: _Accesses) -> Ints:
        """Which fences come before each access [fence, access]."""
        rows = [a.knew[:, f.thread] >= f.clock for f in self._fences]
        return np.array(rows, np.int64).reshape(len(rows), len(a.threads))

    def _tick(self, threads: Ints) -> None:
        self.clock[threads, threads] += 1

    # --- barriers -------------------------------------------------------------------------------

    def on_arrived(self, e: Event) -> None:
        for cta in np.unique(e.threads // self.per):
            here = e.threads[e.threads // self.per == cta]
            entry = (here, e.waits, self.clock[here].max(axis=0))
            self._arrived.setdefault((int(cta), e.barrier), []).append(entry)
            self._tick(here)

    def on_opened(self, e: Event) -> None:
        for cta in map(int, e.threads):
            arrived = self._arrived.pop((cta, e.barrier), [])
            whole = np.max([given for _, _, given in arrived], axis=0)
            for threads, waits, _ in arrived:
                if self.takes(waits):
                    self.clock[threads] = np.maximum(self.clock[threads], whole)

    def takes(self, waits: bool) -> bool:
        """bar.arrive gives order and takes none."""
        return waits

    def on_warp(self, e: Event) -> None:
        before = self.clock.copy()
        for thread, members in zip(map(int, e.threads), e.members, strict=True):
            others = (thread & ~31) + np.flatnonzero(members)
            self.clock[thread] = before[others].max(axis=0)
        self._tick(e.threads)

    # --- mbarriers ------------------------------------------------------------------------------

    def on_gave(self, e: Event) -> None:
        """Arrivals, all of which release."""
        for thread, place, phase in zip(e.threads, e.places, e.groups, strict=True):
            key = int(thread // self.per), int(place), int(phase)
            given = self._phases.setdefault(key, np.zeros_like(self.clock[0]))
            np.maximum(given, self.clock[thread], out=given)
        self._tick(e.threads)

    def on_took(self, e: Event) -> None:
        """Waits that were true, all of which acquire: of this phase and those before it."""
        for thread, place, phase in zip(e.threads, e.places, e.groups, strict=True):
            for number in range(int(phase) + 1):
                given = self._phases.get((int(thread // self.per), int(place), number))
                if given is not None:
                    self._learn(int(thread), given)

    # --- fences ---------------------------------------------------------------------------------

    def on_fence(self, e: Event) -> None:
        for thread in map(int, e.threads):
            state = self._threads[thread]
            if e.order.acquire:
                for _, scope, releaser, clock in state.seen:
                    if self.within(e.order.scope, thread, releaser) and self.within(
                        scope, releaser, thread
                    ):
                        self._learn(thread, clock)
            if e.order.sequential:
                now = self.clock[thread].copy()
                self._fences.append(_Fence(thread, int(now[thread]), e.order.scope, now))
            if e.order.release:
                state.fences.append((e.order.scope, self.clock[thread].copy()))
        self._tick(e.threads)

    def within(self, scope: str, thread: int, other: int) -> bool:
        """Whether the scope of an operation of a thread holds another thread."""
        return scope in _WIDE or thread // self.per == other // self.per

    def _learn(self, thread: int, clock: Ints) -> None:
        np.maximum(self.clock[thread], clock, out=self.clock[thread])

    # --- accesses -------------------------------------------------------------------------------

    def on_load(self, e: Event) -> None:
        """A read that acquires comes itself after what it acquires."""
        if e.order.strong:
            for one in _elements_of(e):
                for k in range(len(e.threads)):
                    self._read(one, k)
        self._access(e, writes=False)

    def on_store(self, e: Event) -> None:
        self._access(e, writes=True)
        for one in _elements_of(e):
            for k in e.served:
                where = self._where(one, k)
                if e.order.strong:
                    self._last[where] = self._write(one, k, self._last.get(where), carries=False)
                else:
                    self._last.pop(where, None)

    def on_atomic(self, e: Event) -> None:
        if e.order.acquire:
            for k in e.served:
                one = slice(k, k + 1)
                single = replace(e, threads=e.threads[one], places=e.places[one], served=(0,))
                self._read(single, 0)
                self._access(single, writes=True)
                where = self._where(e, k)
                self._last[where] = self._write(single, 0, self._last.get(where), carries=True)
            return
        self._access(e, writes=True)
        for k in e.served:
            where = self._where(e, k)
            before = self._last.get(where)
            if e.order.reads:
                self._read(e, k)
            self._last[where] = self._write(e, k, before, carries=True)

    def _where(self, e: Event, k: int) -> tuple[str, int, int]:
        return e.space, self._owner(e, int(e.threads[k])), int(e.places[k])

    def _owner(self, e: Event, thread: int) -> int:
        return thread // self.per if e.space == "shared" else -1

    def _read(self, e: Event, k: int) -> None:
        """Observe a write and all whose chain of atomics it carries on; acquire from them."""
        thread, where = int(e.threads[k]), self._where(e, k)
        state = self._threads[thread]
        write = self._last.get(where)
        reader: tuple[MemoryOrder, int] = (e.order, thread)
        while write is not None:
            one, other = reader
            if not (
                self.within(write.order.scope, write.thread, other)
                and self.within(one.scope, other, write.thread)
            ):
                break
            for scope, clock in write.heads:
                state.seen.append((where, scope, write.thread, clock))
            reader, write = (write.order, write.thread), write.before
        if e.order.acquire:
            for place, scope, releaser, clock in state.seen:
                if (
                    place == where
                    and self.within(scope, releaser, thread)
                    and self.within(e.order.scope, thread, releaser)
                ):
                    self._learn(thread, clock)

    def _write(self, e: Event, k: int, last: _Write | None, carries: bool) -> _Write:
        """The release patterns that a strong write ends."""
        thread = int(e.threads[k])
        own = self._released.setdefault((thread, self._where(e, k)), [])
        if e.order.release:
            own.append((e.order.scope, self.clock[thread].copy()))
            self._tick(e.threads[k : k + 1])
        heads = own + self._threads[thread].fences
        return _Write(thread, e.order, heads, last if carries else None)

    def _access(self, e: Event, writes: bool) -> None:
        """Compare an access, element by element, with all before it and with its own lanes."""
        for element in range(e.count):
            starts = e.places + element * e.size
            values = before = None
            if e.values is not None:
                part = slice(element * e.size, (element + 1) * e.size)
                values, before = e.values[:, part], e.before[:, part]
            self._elements(e, e.threads, starts, e.size, e.space, writes, values, before, None)
        self._tick(e.threads)

    def _elements(
        self, e: Event, threads: Ints, starts: Ints, size: int, space: str, writes: bool,
        values: Any, before: Any, groups: Ints | None,
    ) -> None:  # fmt: skip
        owners = threads // self.per if space == "shared" else np.full(len(threads), -1)
        for owner, block in sorted(set(zip(owners.tolist(), (starts >> 3).tolist(), strict=True))):
            at = np.flatnonzero((owners == owner) & (starts >> 3 == block))
            new = _Accesses(
                threads[at], self.clock[threads[at], threads[at]], starts[at] & 7, size, e.line,
                e.order, writes, self._event, None if values is None else values[at],
                None if before is None else before[at], None if groups is None else groups[at],
                np.zeros((len(at), 8), bool), self.clock[threads[at]],
            )  # fmt: skip
            key = (space, owner, block)
            kept = self.history.setdefault(key, [])
            for old in kept:
                if old.writes or new.writes:
                    self._compare(key, old, new)
            if new.writes and len(at) > 1:
                self._compare(key, new, new)
            if new.writes:
                for old in kept:
                    self._cover(old, new)
            kept.append(new)

    def _cover(self, old: _Accesses, new: _Accesses) -> None:
        over = self._known(old, new)[:, :, None] & _bytes(new)[:, None, :]
        old.covered |= over.any(axis=0)

    # --- pairs ----------------------------------------------------------------------------------

    def _compare(self, key: Block, old: _Accesses, new: _Accesses) -> None:
        n, o = new.starts[:, None], old.starts[None, :]
        unordered: Bools = (n < o + old.size) & (o < n + new.size) & ~self._known(old, new)
        if old is new:
            unordered &= new.threads[:, None] > new.threads[None, :]
        if new.order.strong and old.order.strong:
            unordered &= ~self._morally_strong(old, new)
        if not unordered.any():
            return
        lines = frozenset((old.line, new.line))
        hidden = _hidden(old, new, unordered)
        if old.groups is not None or new.groups is not None:
            self._found("async-race", lines, key, (old, new, unordered), hidden=hidden)
            return
        if old.values is None or new.values is None:
            self._found(f"race-{key[0]}", lines, key, (old, new, unordered), hidden=hidden)
            return
        self._by_value(key, lines, old, new, unordered)

    def _by_value(
        self, key: Block, lines: frozenset[int], old: _Accesses, new: _Accesses, pairs: Bools
    ) -> None:
        """Two stores race where their bytes differ; equal ones are advice."""
        mine, theirs = _canvas(new, new.values), _canvas(old, old.values)
        written = (mine[:, None, :] >= 0) & (theirs[None, :, :] >= 0) & pairs[:, :, None]
        there = theirs[None, :, :] if old is new else _canvas(new, new.before)[:, None, :]
        same = (mine[:, None, :] == there) | ~written
        differ = not same.all()
        equal = bool((written & same).any())
        whole = bool((same.all(axis=2) & pairs).any())
        if differ:
            unlike = pairs & ~same.all(axis=2)
            hidden = _hidden(old, new, unlike)
            self._found(f"race-{key[0]}", lines, key, (old, new, unlike), hidden=hidden)
        if equal:
            self._found("same-value-write", lines, key, (old, new, pairs), whole)

    def _found(
        self, class_: str, lines: frozenset[int], key: Block,
        pairs: tuple[_Accesses, _Accesses, Bools], whole: bool = True, hidden: bool = False,
    ) -> None:  # fmt: skip
        self._pairs.append(pairs)
        self.races.append(Race(class_, lines, self._event, key, whole, hidden))

    def _known(self, old: _Accesses, new: _Accesses) -> Bools:
        """Which old accesses the new threads come after."""
        clocks = old.clocks
        if old.groups is not None:
            never = np.iinfo(np.int64).max
            keys = zip(old.threads.tolist(), old.groups.tolist(), strict=True)
            clocks = np.array([self._done.get(k, never) for k in keys], np.int64)
        known: Bools = self.clock[new.threads][:, old.threads] >= clocks[None, :]
        return known

    def _morally_strong(self, old: _Accesses, new: _Accesses) -> Bools:
        both = old.order.atomic and new.order.atomic
        same = (new.starts[:, None] == old.starts[None, :]) & (new.size == old.size)
        near: Bools = new.threads[:, None] // self.per == old.threads[None, :] // self.per
        if self.within(old.order.scope, 0, self.per) and self.within(new.order.scope, 0, self.per):
            near = np.ones_like(near)
        exempt: Bools = near & (same | both)
        return exempt

    # --- asynchronous copies --------------------------------------------------------------------

    def on_copy(self, e: Event) -> None:
        """Reads and writes of cp.async: they come after what their thread knows at the issue."""
        for k in range(0, e.size, 4):
            self._elements(
                e, e.threads, e.places + k, 4, "shared", True, None, None, e.groups
            )  # fmt: skip
            self._elements(
                e, e.threads, e.sources + k, 4, "global", False, None, None, e.groups
            )  # fmt: skip
        self._tick(e.threads)

    def on_waited(self, e: Event) -> None:
        for thread, limit in zip(map(int, e.threads), map(int, e.groups), strict=True):
            now = int(self.clock[thread, thread])
            for group in range(int(self._waited[thread]), limit):
                self._done[thread, group] = now
            self._waited[thread] = max(self._waited[thread], limit)
        self._tick(e.threads)


def _elements_of(e: Event) -> list[Event]:
    """The elements of a vector, each of which synchronises by itself."""
    return [replace(e, places=e.places + k * e.size) for k in range(e.count)]


def _bytes(a: _Accesses) -> Bools:
    """Which bytes of the block each lane accesses [lane, 8]."""
    at = np.arange(8)
    out: Bools = (at >= a.starts[:, None]) & (at < a.starts[:, None] + a.size)
    return out


def _hidden(old: _Accesses, new: _Accesses, pairs: Bools) -> bool:
    """Whether ordered writes that may leave the same value stand over all bytes of the pairs."""
    if new.values is None:
        return False
    both = _bytes(new)[:, None, :] & (_bytes(old) & ~old.covered)[None, :, :]
    return not (both & pairs[:, :, None]).any()


def _canvas(a: _Accesses, values: Any) -> Ints:
    """Bytes by their place in the block [lane, 8]; -1 where the lane writes none."""
    out = np.full((len(a.threads), 8), -1, np.int64)
    for k in range(a.size):
        out[np.arange(len(a.threads)), a.starts + k] = values[:, k]
    return out


def lines_of(races: Sequence[Race]) -> set[tuple[str, frozenset[int]]]:
    """The pairs of instructions with their class."""
    return {(r.class_, r.lines) for r in races}

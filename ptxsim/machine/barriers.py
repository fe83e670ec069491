"""CTA barriers 0 to 15 (PTX ISA 9.1, bar, barrier).

A warp counts when all its lanes that have not exited have arrived; it counts 32 threads.  A
barrier without a thread count opens when every live lane of the CTA has arrived.  Exited threads
are not waited for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..isa.protocol import Array, BoolArray, Site
from .arrival import Arrival
from .group import Group

if TYPE_CHECKING:
    from .scheduler import Scheduler

__all__ = ["Barriers"]


@dataclass
class _State:
    here: BoolArray
    predicate: BoolArray
    #: by CTA: threads that it opens for, -1 for all, 0 while none has come
    expected: Array
    #: by CTA: bar.red has come, or bar.sync and bar.arrive
    reduces: BoolArray
    parked: list[tuple[Group, Arrival]] = field(default_factory=list)
    site: Site | None = None


class Barriers:
    """All barriers of a wave."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.wave = scheduler.wave
        self._states: dict[int, _State] = {}

    @property
    def waiting(self) -> bool:
        """Whether any lane waits at a barrier."""
        return any(s.parked for s in self._states.values())

    def parked(self) -> list[tuple[Group, Arrival]]:
        """All waiting groups."""
        return [p for s in self._states.values() for p in s.parked]

    def come(self, barrier: int, cta: int) -> int:
        """How many threads of a CTA of the wave have arrived since the barrier last opened."""
        here = self._states[barrier].here.reshape(-1, self.wave.lanes_per_cta)
        return int(np.count_nonzero(here[cta]))

    def arrive(self, group: Group, a: Arrival) -> Group | None:
        """The group executes a barrier; returns it if all its lanes may go on."""
        wave = self.wave
        if not 0 <= a.barrier < 16:
            group.finding(
                "barrier-args",
                f"barrier {a.barrier} does not exist (0 to 15)",
                a.site,
                help="keep the number of the barrier below 16",
                fatal=True,
            )
        if a.count is not None and (a.count % 32 or a.count <= 0):
            group.finding(
                "barrier-args",
                f"the thread count {a.count} is not a positive multiple of the warp size, 32",
                a.site,
                help="barriers count whole warps: round the count up to the next multiple of 32",
                fatal=True,
            )
        state = self._states.get(a.barrier)
        if wave.watch is not None:
            wave.watch.barrier_arrived(wave, a.barrier, group.lanes, a.count, a.waits, a.site)
        alone = group.n == int(wave.live_count.sum()) and (state is None or not state.here.any())
        if alone and (a.count is None or a.count == wave.lanes_per_cta) and a.waits:
            if a.reduce and a.write and a.predicate is not None:
                flags = np.zeros(wave.size, bool)
                flags[group.lanes] = a.predicate
                a.write(group, self._reduced(a.reduce, flags, wave.alive)[group.cta])
            if wave.watch is not None:
                wave.watch.barrier_opened(wave, a.barrier, np.flatnonzero(wave.live_count))
            return self.scheduler.jump(group, a.after)
        if state is None:
            state = self._states[a.barrier] = _State(
                np.zeros(wave.size, bool), np.zeros(wave.size, bool),
                np.zeros(len(wave.ctas), np.int64), np.zeros(len(wave.ctas), bool),
            )  # fmt: skip
        self._join(state, group, a)
        if a.waits:
            state.parked.append((group, a))
            self._open(state, a.barrier)
            return None
        self._open(state, a.barrier)
        return self.scheduler.jump(group, a.after)

    def lanes_left(self) -> None:
        """Lanes have exited: barriers may open that waited only for them."""
        for barrier, state in self._states.items():
            if state.parked:
                self._open(state, barrier)

    # --- state ----------------------------------------------------------------------------------

    def _join(self, state: _State, group: Group, a: Arrival) -> None:
        again = state.here[group.lanes]
        if again.any():
            group.finding(
                "barrier-args",
                f"arrives at barrier {a.barrier} a second time before it has opened",
                a.site,
                again,
                help="wait for the barrier (bar.sync) between two arrivals of a thread",
                fatal=True,
            )
        ctas = np.unique(group.cta)
        expected = -1 if a.count is None else a.count
        before = state.expected[ctas]
        wrong = before[(before != 0) & (before != expected)]
        if a.count in (None, self.wave.lanes_per_cta):
            # all threads, by their number or without
            wrong = wrong[(wrong != -1) & (wrong != self.wave.lanes_per_cta)]
        if len(wrong):
            first = state.site
            assert first is not None
            group.finding(
                "barrier-args",
                f"barrier {a.barrier} is used with another thread count at line {first.line}:"
                f" {_threads(int(wrong[0]))} there, {_threads(expected)} here",
                a.site,
                help="give each group a barrier of its own, or all of them the same count",
                other_line=first.line,
                other_column=first.column,
                fatal=True,
            )
        if ((before != 0) & (state.reduces[ctas] != bool(a.reduce))).any():
            first = state.site
            assert first is not None
            group.finding(
                "barrier-args",
                f"'{a.site.text}' meets '{first.text}' of line {first.line} at barrier"
                f" {a.barrier}: bar.red does not mix with bar.sync and bar.arrive",
                a.site,
                help="let all threads of the barrier execute bar.red, or none",
                other_line=first.line,
                other_column=first.column,
                fatal=True,
            )
        state.reduces[ctas] = bool(a.reduce)
        state.expected[ctas] = np.where(before > 0, before, expected)
        state.site = a.site
        state.here[group.lanes] = True
        if a.predicate is not None:
            state.predicate[group.lanes] = a.predicate

    def _open(self, state: _State, barrier: int) -> None:
        wave = self.wave
        per_cta = (len(wave.ctas), wave.lanes_per_cta)
        here = state.here.reshape(per_cta)
        missing = wave.alive.reshape(per_cta) & ~here
        warps_missing = missing.reshape(len(wave.ctas), -1, 32).any(axis=2)
        warps_here = here.reshape(len(wave.ctas), -1, 32).any(axis=2) & ~warps_missing
        threads = 32 * warps_here.sum(axis=1)
        begun = state.expected != 0
        complete = begun & (
            np.where(state.expected > 0, threads >= state.expected, ~missing.any(axis=1))
            | ~missing.any(axis=1) & here.any(axis=1) & (state.expected < 0)
        )
        if not complete.any():
            return
        crowded = (state.expected > 0) & (threads > state.expected)
        if crowded.any():
            cta = int(np.flatnonzero(crowded)[0])
            lanes = cta * wave.lanes_per_cta + np.flatnonzero(here[cta])
            wave.report(
                "barrier-args",
                f"{threads[cta]} threads arrive at barrier {barrier}, which opens for"
                f" {state.expected[cta]}: it is used by two groups of warps at once",
                state.site,
                lanes,
                help="give each group a barrier of its own, or all of them the whole count",
                fatal=True,
            )
        if wave.watch is not None:
            wave.watch.barrier_opened(wave, barrier, np.flatnonzero(complete))
        results: dict[str, Array] = {}
        parked, state.parked = state.parked, []
        freed: list[tuple[Group, Arrival]] = []
        for group, a in parked:
            go = complete[group.cta]
            if go.all():
                freed.append((group, a))
            elif go.any():
                live = a.after.live
                freed.append((group.subset(np.flatnonzero(go), live), a))
                state.parked.append((group.subset(np.flatnonzero(~go), live), a))
            else:
                state.parked.append((group, a))
        for group, a in freed:
            if a.reduce and a.write:
                if a.reduce not in results:
                    results[a.reduce] = self._reduced(a.reduce, state.predicate, state.here)
                a.write(group, results[a.reduce][group.cta])
        here[complete] = False
        state.predicate.reshape(per_cta)[complete] = False
        state.expected[complete] = 0
        for group, a in freed:
            rest = self.scheduler.jump(group, a.after)
            if rest is not None:
                self.scheduler.push(rest)

    def _reduced(self, operation: str, flags: BoolArray, here: BoolArray) -> Array:
        """The result per CTA: uint32 for popc, bool for and, or."""
        shape = (len(self.wave.ctas), -1)
        flags, here = flags.reshape(shape), here.reshape(shape)
        counted = np.count_nonzero(flags & here, axis=1)
        result: Array
        if operation == "popc":
            result = np.asarray(counted, np.uint32)
        elif operation == "and":
            result = np.asarray(counted == np.count_nonzero(here, axis=1))
        else:
            result = np.asarray(counted != 0)
        return result


def _threads(expected: int) -> str:
    return "all threads" if expected < 0 else str(expected)

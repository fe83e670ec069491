"""Asynchronous copies of cp.async: queued at issue, landed when they are waited for.

Copies may land at any time between issue and the wait that completes their group; landing late
(the default) and landing at once are the two ends (PTX ISA 9.1, Data Movement and Conversion:
Asynchronous copy).  Groups are numbered per thread in commit order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..isa.protocol import Array, BoolArray, Site

if TYPE_CHECKING:
    from .mbarriers import Party
    from .wave import Wave

__all__ = ["AsyncCopies"]


@dataclass(slots=True)
class _Batch:
    """One cp.async of many lanes: per lane its group number, or -1 when it has landed."""

    lanes: Array
    group: Array
    target: Array
    source: Array
    size: int
    copied: Array
    #: how many cp.async were issued before it
    number: int


@dataclass(slots=True)
class _Signal:
    """One cp.async.mbarrier.arrive: of the copies of its lanes with a number below ``number``."""

    lanes: Array
    place: Array
    number: int
    site: Site


class AsyncCopies:
    """The copies in flight of one wave."""

    def __init__(self, early: bool = False) -> None:
        self.early = early
        self._batches: list[_Batch] = []
        self._signals: list[_Signal] = []
        self._issued = 0
        self._committed: Array | None = None

    def _counts(self, wave: Any) -> Array:
        if self._committed is None:
            self._committed = np.zeros(wave.size, np.int64)
        return self._committed

    def issue(
        self,
        wave: Any,
        lanes: Array,
        target: Array,
        source: Array,
        size: int,
        copied: Array,
        site: Site,
    ) -> None:
        """Queue copies: checked byte offsets of shared target and arena source.

        ``copied`` is how many of the ``size`` bytes are read; the rest is zero.
        """
        groups = self._counts(wave)[lanes]
        if wave.watch is not None:
            wave.watch.copy_issued(wave, lanes, target, source, size, copied, groups, site)
        batch = _Batch(lanes, groups, target, source, size, copied, self._issued)
        self._issued += 1
        if self.early:
            self._land(wave, batch, np.ones(len(lanes), bool))
        else:
            self._batches.append(batch)

    def commit(self, wave: Any, lanes: Array, site: Site) -> None:
        """Close the current group of these lanes."""
        if wave.watch is not None:
            wave.watch.copies_committed(wave, lanes, self._counts(wave)[lanes], site)
        self._counts(wave)[lanes] += 1

    def wait(self, wave: Any, lanes: Array, pending: int, site: Site) -> None:
        """Land all but the ``pending`` newest committed groups of these lanes."""
        self._wait(wave, lanes, self._counts(wave)[lanes] - pending, site)

    def wait_all(self, wave: Any, lanes: Array, site: Site) -> None:
        """Land every copy of these lanes; what was not committed is now (cp.async.wait_all)."""
        counts = self._counts(wave)
        counts[lanes] += 1
        self._wait(wave, lanes, counts[lanes], site)

    def _wait(self, wave: Any, lanes: Array, limit: Array, site: Site) -> None:
        if wave.watch is not None:
            wave.watch.copies_waited(wave, lanes, limit, site)
        if self._batches:
            waiting = np.full(wave.size, -1, np.int64)
            waiting[lanes] = limit
            self._land_where(wave, waiting)

    def _land_where(self, wave: Any, limit: Array) -> None:
        """Land the copies whose group number is below the limit of their lane."""
        kept = []
        for batch in self._batches:
            now = (batch.group >= 0) & (batch.group < limit[batch.lanes])
            if now.any():
                self._land(wave, batch, now)
                batch.group = np.where(now, -1, batch.group)
            if (batch.group >= 0).any():
                kept.append(batch)
        self._batches = kept

    # --- arrivals at mbarriers ------------------------------------------------------------------

    def signal(self, who: Party, raises: bool) -> None:
        """cp.async.mbarrier.arrive: each lane arrives when its copies so far have landed.

        ``raises``: the object then has one arrival more to wait for, from now on.
        """
        wave = who.wave
        if wave.watch is not None:
            limit = self._counts(wave)[who.lanes] + 1
            wave.watch.copies_signal(wave, who.lanes, limit, who.at)
        if raises:
            wave.service("mbarriers").raise_pending(who)
        self._signals.append(_Signal(who.lanes, who.at, self._issued, who.site))
        if self.early:
            self.finish(wave)

    def deliver(self, wave: Wave, place: int) -> bool:
        """Let the oldest signals of the mbarrier at ``place`` arrive; whether there were any."""
        for signal in self._signals:
            chosen = signal.place == place
            if chosen.any():
                self._arrive(wave, signal, chosen)
                self._signals = [s for s in self._signals if len(s.lanes)]
                return True
        return False

    def _arrive(self, wave: Wave, signal: _Signal, chosen: BoolArray) -> None:
        lanes, place = signal.lanes[chosen], int(signal.place[chosen][0])
        here = np.zeros(wave.size, bool)
        here[lanes] = True
        for batch in self._batches:
            now = (batch.group >= 0) & here[batch.lanes]
            if batch.number < signal.number and now.any():
                self._land(wave, batch, now)
                batch.group = np.where(now, -1, batch.group)
        self._batches = [b for b in self._batches if (b.group >= 0).any()]
        signal.lanes, signal.place = signal.lanes[~chosen], signal.place[~chosen]
        phases = wave.service("mbarriers").arrive_for_copies(wave, place, lanes, signal.site)
        if wave.watch is not None:
            wave.watch.copies_arrived(wave, lanes, place, phases, signal.number)

    def finish(self, wave: Wave) -> None:
        """Let all signals arrive whose mbarriers are still there."""
        for signal in self._signals:
            for place in np.unique(signal.place):
                if wave.service("mbarriers").phase(int(place)) >= 0:
                    self._arrive(wave, signal, signal.place == place)
        self._signals = []

    def _land(self, wave: Any, batch: _Batch, now: Array) -> None:
        target, source = batch.target[now], batch.source[now]
        copied = batch.copied[now]
        memory = wave.memory
        memory.version += 1
        for k in range(batch.size):
            reads = copied > k
            value = np.zeros(len(target), np.uint8)
            value[reads] = memory.bytes[source[reads] + k]
            wave.shared[target + k] = value
            wave.mark_copied(target + k, source + k, reads)

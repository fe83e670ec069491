"""Asynchronous copies of cp.async: queued at issue, landed when they are waited for.

Copies may land at any time between issue and the wait that completes their group; landing late
(the default) and landing at once are the two ends (PTX ISA 9.1, Data Movement and Conversion:
Asynchronous copy).  Groups are numbered per thread in commit order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..isa.protocol import Array, Site

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


class AsyncCopies:
    """The copies in flight of one wave."""

    def __init__(self, early: bool = False) -> None:
        self.early = early
        self._batches: list[_Batch] = []
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
        batch = _Batch(lanes, groups, target, source, size, copied)
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
            if wave.shared_written is not None:
                wave.shared_written[1][target + k] = 255

"""What becomes of the asynchronous copies of cp.async, their groups, and who comes to barriers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from ...isa.protocol import Array, BoolArray, Site
from ..watch import Watch
from .activity import Activity, warps_in

if TYPE_CHECKING:
    from ..group import Group
    from ..wave import Wave

__all__ = ["CopyCounts"]

_EVENTS = (
    "cp.async", "cp.async.full", "cp.async.partial", "cp.async.zero_filled", "cp.async.skipped",
    "cp.async.commit_group", "cp.async.commit_group.empty", "cp.async.wait_all",
    "cp.async.pending_at_exit", "barrier",
)  # fmt: skip


class CopyCounts(Watch):
    """Counts copies by outcome, commits, waits by how many groups may pend, and arrivals.

    A warp counts once for each outcome that it has lanes of.  A group pends at exit if it has a
    copy and the thread neither waited for it nor let it arrive at an mbarrier.
    """

    def __init__(self, activity: Activity) -> None:
        self._activity = activity
        self._counts: Counter[str] = Counter()
        for event in _EVENTS:
            self._counts[f"{event}.threads"] = self._counts[f"{event}.warps"] = 0
        self._counts["cp.async.bytes_read"] = self._counts["cp.async.bytes_zeroed"] = 0
        self._copies: set[int] = set()
        self._start(0)

    def _start(self, lanes: int) -> None:
        """By lane: the groups closed so far, the number of the newest with a copy, the first not
        waited for; and whether groups pended when it ended."""
        self._closed = np.zeros(lanes, np.int64)
        self._newest = np.full(lanes, -1, np.int64)
        self._done = np.zeros(lanes, np.int64)
        self._pending = np.zeros(lanes, bool)

    def _add(self, event: str, lanes: Array) -> None:
        self._counts[f"{event}.threads"] += len(lanes)
        self._counts[f"{event}.warps"] += warps_in(lanes)

    def wave_began(self, wave: Wave) -> None:
        self._copies = {id(c.site) for c in wave.program.counted if c.opcode == "cp.async"}
        self._start(wave.size)

    def wave_ended(self, wave: Wave) -> None:
        self._add("cp.async.pending_at_exit", np.flatnonzero(self._pending))

    def executed(self, group: Group, mask: BoolArray | None, site: Site) -> None:
        if id(site) not in self._copies:
            return
        self._counts["cp.async.warps"] += self._activity.warps_of(group)
        if mask is None:
            self._counts["cp.async.threads"] += group.n
            return
        self._counts["cp.async.threads"] += int(np.count_nonzero(mask))
        off = ~mask if group.active is None else group.active & ~mask
        self._add("cp.async.skipped", group.lanes[off])

    def copy_issued(
        self, wave: Wave, lanes: Array, target: Array, source: Array, size: int, copied: Array,
        group: Array, site: Site,
    ) -> None:  # fmt: skip
        self._newest[lanes] = group
        full, none = copied == size, copied == 0
        self._add("cp.async.full", lanes[full])
        self._add("cp.async.zero_filled", lanes[none])
        self._add("cp.async.partial", lanes[~(full | none)])
        read = int(copied.sum(dtype=np.int64))
        self._counts["cp.async.bytes_read"] += read
        self._counts["cp.async.bytes_zeroed"] += size * len(lanes) - read

    def copies_committed(self, wave: Wave, lanes: Array, group: Array, site: Site) -> None:
        self._closed[lanes] = group + 1
        self._add("cp.async.commit_group", lanes)
        self._add("cp.async.commit_group.empty", lanes[self._newest[lanes] != group])

    def copies_waited(self, wave: Wave, lanes: Array, limit: Array, site: Site) -> None:
        # wait_all closes a group and waits for that as well
        may_pend = int((self._closed[lanes] - limit)[0])
        if may_pend < 0:
            self._closed[lanes] = limit
            self._add("cp.async.wait_all", lanes)
        else:
            self._add(f"cp.async.wait_group.{may_pend}", lanes)
        self._done[lanes] = np.maximum(self._done[lanes], limit)

    def copies_signal(self, wave: Wave, lanes: Array, limit: Array, barrier: Array) -> None:
        self._done[lanes] = np.maximum(self._done[lanes], limit)

    def exited(self, wave: Wave, lanes: Array) -> None:
        self._pending[lanes] = self._newest[lanes] >= self._done[lanes]

    def barrier_arrived(
        self, wave: Wave, barrier: int, lanes: Array, count: int | None, waits: bool, site: Site
    ) -> None:
        self._add("barrier", lanes)

    def counters(self) -> dict[str, int]:
        """``cp.async.full.threads`` and so on; a wait_group has a row for each number it names."""
        return dict(self._counts)

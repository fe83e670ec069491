"""When the asynchronous copies of cp.async are complete, and for whom.

A copy belongs to a group of its thread.  When the thread has waited for the group, the copy counts
as an access that the thread made at that time; before, nobody knows it, its own thread included.
An mbarrier tells of all copies that its thread had issued when it asked for the arrival, whatever
their groups: those are named by the numbers of their issues.
"""

from __future__ import annotations

import numpy as np

from ...isa.protocol import Array, BoolArray
from .clocks import Knowledge
from .shadow import ASYNC, BULK

__all__ = ["AsyncGroups"]


class AsyncGroups:
    """The groups of the lanes of a wave."""

    def __init__(self, know: Knowledge) -> None:
        self.know = know
        size = len(know.ctas) * know.per
        #: time of the warp at which a lane had waited for a group; 0 if it has not
        self._done: Array = np.zeros((4, size), np.int32)
        #: by number of an issue: the group if it is the same for all lanes, or -1
        self._group: Array = np.zeros(64, np.int64)
        self._groups: dict[int, Array] = {}
        self._count = 0
        self._limit: Array = np.zeros(size, np.int64)
        self._committed: Array = np.zeros(size, np.int64)
        self._order = np.argsort(know.ctas)
        #: whether there was a copy
        self.any = False
        #: the newest group with a copy, and the instruction of the copy; -1 without one
        self._newest: Array = np.full(size, -1, np.int64)
        self._site: Array = np.full(size, -1, np.int64)
        #: by wait instruction: whether there were copies, and whether it waited for one
        self.waits: dict[int, tuple[bool, bool]] = {}

    def issued(self, lanes: Array, group: Array, site: int) -> int:
        """Copies of these groups were issued by an instruction; the number of the issue."""
        self.any = True
        self._reserve(int(group.max(initial=0)))
        self._newest[lanes] = group
        self._site[lanes] = site
        number = self._count
        self._count += 1
        if number == len(self._group):
            self._group = np.concatenate([self._group, np.zeros_like(self._group)])
        self._group[number] = group[0]
        if (group != group[0]).any():
            self._group[number] = -1
            self._groups[number] = np.zeros(len(self._site), np.int32)
            self._groups[number][lanes] = group
        return number

    def signalled(self, lanes: Array) -> None:
        """An mbarrier will tell of the copies so far: no wait of the thread is needed."""
        self._newest[lanes] = -1

    def left(self, lanes: Array) -> dict[int, Array]:
        """Lanes that have never waited for their newest copies, by the instruction of these."""
        open_ = lanes[self._newest[lanes] >= self._limit[lanes]]
        sites = self._site[open_]
        return {int(s): open_[sites == s] for s in np.unique(sites)}

    def committed(self, lanes: Array, group: Array) -> None:
        """Groups were closed."""
        self._committed[lanes] = group + 1

    def waited(self, lanes: Array, limit: Array, time: Array, site: int) -> None:
        """All groups below ``limit`` are complete."""
        pending = self._newest[lanes] >= self._limit[lanes]
        useful = pending & (limit > self._limit[lanes])
        before = self.waits.get(site, (False, False))
        self.waits[site] = (before[0] or bool(pending.any()), before[1] or bool(useful.any()))
        self._committed[lanes] = np.maximum(self._committed[lanes], limit)
        begin = self._limit[lanes]
        high = int(limit.max(initial=0))
        low = int(begin.min(initial=high))
        self._reserve(high)
        for group in range(low, high):
            now = (begin <= group) & (group < limit)
            self._done[group, lanes[now]] = time[now]
        self._limit[lanes] = np.maximum(begin, limit)

    def _reserve(self, group: int) -> None:
        while len(self._done) <= group:
            self._done = np.concatenate([self._done, np.zeros_like(self._done)])

    def _here(self, owner: Array) -> tuple[Array, BoolArray]:
        """Lanes of the wave from global ones, and which of them are of the wave."""
        ctas = self.know.ctas[self._order]
        cta = owner // self.know.per
        at = np.minimum(np.searchsorted(ctas, cta), len(ctas) - 1)
        here: BoolArray = ctas[at] == cta
        return self._order[at] * self.know.per + owner % self.know.per, here

    def _of(self, lanes: Array, number: Array) -> Array:
        """The groups of lanes of the wave at issues."""
        out: Array = self._group[number]
        for k in np.flatnonzero(out < 0):
            out[k] = self._groups[int(number[k])][lanes[k]]
        return out

    def times(self, owner: Array, number: Array) -> Array:
        """When global lanes had waited for what they issued, by their warps' times; 0 if never."""
        lanes, here = self._here(owner)
        out: Array = np.zeros(len(owner), np.int64)
        out[here] = self._done[self._of(lanes[here], number[here]), lanes[here]]
        return out

    def unknown(self, owner: Array, number: Array, lanes: Array) -> BoolArray:
        """Which copies the lanes of the wave do not know to be complete."""
        done = self.times(owner, number)
        out: BoolArray = np.asarray(done == 0)
        after = np.flatnonzero(~out)
        if len(after):
            out[after] = self.know.unknown(owner[after], done[after], lanes[after])
        left = np.flatnonzero(out)
        if self.know.any_extra and len(left):
            for k in left:
                clock = self.know.extra[lanes[k]]
                if clock is not None and number[k] < clock.groups.get(int(owner[k]), 0):
                    out[k] = False
        return out

    def cure(self, owner: Array, number: Array, kind: Array, again: bool) -> str | None:
        """What to wait for, with the count that is right; ``again``: before another copy.

        None where all copies are complete for their own threads.
        """
        some = np.flatnonzero(kind == ASYNC)
        some = some[self.times(owner[some], number[some]) == 0][:1]
        lanes, here = self._here(owner[some])
        if not here.any():
            if again:
                return "wait for the copies of a place before the next ones to it are issued"
            if len(some) or (kind == BULK).any():
                return "order the access after a wait for the copy has returned"
            return None
        newer = int(self._committed[lanes[0]]) - int(self._of(lanes, number[some])[0]) - 1
        if newer < 0:
            return "close the group with cp.async.commit_group and wait for it before the access"
        return (
            f"wait with cp.async.wait_group {newer} or less before the access: {newer} newer groups"
            " were committed since"
        )

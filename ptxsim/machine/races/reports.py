"""What is said of races: one finding for each pair of instructions, with both parties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...diagnostics import Severity
from ...isa.protocol import Array, Site
from .accesses import Conflict
from .clocks import Knowledge
from .copies import AsyncGroups
from .fence_order import FenceOrder, Pairs
from .shadow import LANDED, fields

if TYPE_CHECKING:
    from ..wave import Wave

__all__ = ["Reports"]

#: Reports of one pair that are made at once; the rest is counted and said at the end.
_REPORTS = 4


@dataclass(slots=True)
class _Pair:
    """What was reported for two instructions: how often more."""

    first: Site
    second: Site
    class_: str
    shown: int = 0
    silent: int = 0
    severity: Severity = Severity.ERROR


class Reports:
    """The pairs of a launch, the numbers of its instructions, and the last barriers of a wave."""

    def __init__(self) -> None:
        self.sites: list[Site] = []
        self._numbers: dict[int, int] = {}
        self._pairs: dict[tuple[int, int, str, str], _Pair] = {}
        #: the last barrier of each CTA, and of each warp, of the wave
        self._barriers: dict[int, tuple[int, Site]] = {}
        self._meetings: dict[int, tuple[int, Site]] = {}
        self._events = 0
        #: how many conflicts there were
        self.said = 0
        #: by pair and class: accesses that the order of fence.sc may order
        self._open: dict[tuple[int, int, str], Pairs] = {}

    def begin(self, wave: Wave, know: Knowledge, copies: AsyncGroups) -> None:
        """A new wave."""
        self.wave, self.know, self.copies = wave, know, copies
        self._barriers.clear()
        self._meetings.clear()

    def finish(self) -> None:
        """Say how often pairs were seen that were not reported one by one."""
        for pair in self._pairs.values():
            if pair.silent:
                self.wave.count_more(
                    pair.class_, pair.second, pair.silent, other_line=pair.first.line,
                    severity=pair.severity,
                )  # fmt: skip
                pair.silent = 0

    def barrier(self, cta: int, site: Site) -> None:
        """The warps of a CTA of the wave, or some of them, met."""
        self._events += 1
        self._barriers[cta] = self._events, site

    def meeting(self, warp: int, site: Site) -> None:
        """The lanes of a warp of the wave met."""
        self._events += 1
        self._meetings[warp] = self._events, site

    def number(self, site: Site) -> int:
        number = self._numbers.get(id(site))
        if number is None:
            number = self._numbers[id(site)] = len(self.sites)
            self.sites.append(site)
        return number

    def open(self, c: Conflict) -> None:
        """A race that some order of fence.sc may hide; :meth:`decide` finds out."""
        assert c.old is not None
        self.race(c, Severity.WARNING)
        one, two = sorted((self.number(c.first), c.new.number))
        pairs = self._open.setdefault((one, two, f"race-{c.new.space}"), Pairs())
        lanes = self.know.globally(c.new.lanes[c.at])
        pairs.add(c.old.lane, c.old.time, lanes, fields(c.new.records[c.at]).time)

    def decide(self, fences: FenceOrder) -> None:
        """All fence.sc of the launch are known: races that no order of them hides are errors."""
        if self._open:
            fences.settle()
        for (one, two, class_), pairs in self._open.items():
            if not fences.excuses(pairs):
                pair = self._pairs[one, two, class_, Severity.WARNING.value]
                self.wave.count_more(
                    class_, pair.second, 0, other_line=pair.first.line, severity=Severity.ERROR
                )
        self._open.clear()

    def race(self, c: Conflict, severity: Severity = Severity.ERROR) -> None:
        """Two accesses that nothing orders.

        It is one of an asynchronous copy if one of them is such a copy: this run may have done
        either of the two first, and what the copy does when is not for the run to say.
        """
        assert c.old is not None
        if c.old.kind[0] >= LANDED:
            self._copied(c, severity)
        elif c.new.kind >= LANDED:
            self._copies(c, severity)
        else:
            self._plain(c, severity)

    def _copied(self, c: Conflict, severity: Severity) -> None:
        """An access to what an earlier copy reads or writes."""
        assert c.old is not None
        new, old = c.new, c.old
        verb = "writes" if new.writes else "reads"
        done = "read" if new.writes and not c.old_writes else "completed"
        cure = self.copies.cure(old.lane, old.time, old.kind, new.kind >= LANDED)
        self.say(
            "async-race", c,
            f"'{new.site.text}' {verb} what an asynchronous copy of line {c.first.line} may not"
            f" have {done} yet",
            cure or self._cure(c), severity,
        )  # fmt: skip

    def _copies(self, c: Conflict, severity: Severity) -> None:
        """A copy of or to what another instruction has accessed."""
        new, first = c.new, c.first
        verb, old = ("writes" if w else "reads" for w in (new.writes, c.old_writes))
        self.say(
            "async-race", c,
            f"the asynchronous copy of '{new.site.text}' {verb} what '{first.text}' at line"
            f" {first.line} {old}, in no order",
            self._cure(c), severity,
        )  # fmt: skip

    def _plain(self, c: Conflict, severity: Severity) -> None:
        new, first = c.new, c.first
        verb = "writes" if new.writes else "reads"
        old = "write" if c.old_writes else "read"
        self.say(
            f"race-{new.space}", c,
            f"{verb[:-1]} by '{new.site.text}' is not ordered with the {old} by '{first.text}' at"
            f" line {first.line}",
            self._cure(c), severity,
        )  # fmt: skip

    def same_value(self, c: Conflict) -> None:
        """Unordered writes of the same bits."""
        self.say(
            "same-value-write", c,
            f"threads write the same value by '{c.new.site.text}' and line {c.first.line}, in no"
            " order",
            "let one thread write, or use a relaxed store",
            Severity.WARNING,
        )  # fmt: skip

    def not_coherent(self, c: Conflict) -> None:
        """A load by the read-only path of what the kernel writes."""
        self.say(
            "nc-coherence", c,
            f"'{c.new.site.text}' reads by the non-coherent path what the kernel writes at line"
            f" {c.first.line}",
            "load it without .nc: the read-only path may hold older data",
        )  # fmt: skip

    def unfenced(self, c: Conflict) -> None:
        """A bulk copy of what was written through the generic proxy, without a proxy fence."""
        verb = "writes over" if c.new.writes else "reads"
        self.say(
            "proxy-fence", c,
            f"'{c.new.site.text}' {verb} through the async proxy what '{c.first.text}' wrote"
            f" through the generic proxy at line {c.first.line}, with no proxy fence between",
            "put 'fence.proxy.async' after the write, before the barrier that the copy waits for",
        )  # fmt: skip

    def never_waited(self, number: int, lanes: Array) -> None:
        """Lanes end with copies in flight."""
        site = self.sites[number]
        self.wave.report(
            "unwaited-copy",
            f"threads end without having waited for the copies of '{site.text}'",
            site, lanes, severity=Severity.WARNING,
            help="end with cp.async.wait_all, so that no copy writes what another CTA may use",
        )  # fmt: skip

    def mixed(self, barrier: int, site: Site, before: Site, lanes: Array) -> None:
        """Two groups of warps use one barrier, in no order."""
        self.wave.report(
            "barrier-args",
            f"barrier {barrier} is used by two groups of warps: nothing orders '{site.text}' after"
            f" its last use at line {before.line}, so that the groups can mix",
            site, lanes, other_line=before.line, help="give each group a barrier of its own",
        )  # fmt: skip

    def idle_wait(self, number: int) -> None:
        """A wait that never waited for a copy although some were in flight."""
        site = self.sites[number]
        self.wave.report(
            "idle-wait",
            f"'{site.text}' waited for no copy, though copies were in flight whenever it ran",
            site, self.wave.all_lanes[:1], severity=Severity.ADVICE,
            help="close the group with cp.async.commit_group before it, or let fewer groups pend",
        )  # fmt: skip

    def _cure(self, c: Conflict) -> str:
        assert c.old is not None
        if c.together:
            return "let one lane write, give each a place of its own, or use an atomic"
        mine = self.know.globally(c.new.lanes[c.at])
        theirs = c.old.lane
        per = self.know.per
        if (mine // per != theirs // per).any():
            return (
                "order the CTAs: a release at gpu scope after the first access, an acquire before"
                " the second, or an atomic"
            )
        if (mine >> 5 == theirs >> 5).all():
            return "put 'bar.warp.sync' between the two accesses"
        return "put a barrier (bar.sync) between the two accesses"

    def say(
        self,
        class_: str,
        c: Conflict,
        message: str,
        cure: str,
        severity: Severity = Severity.ERROR,
    ) -> None:
        """Report a conflict; of many of one pair and class the first few, then their number."""
        self.said += 1
        new = c.new
        one, two = sorted((self.number(c.first), new.number))
        key = (one, two, class_, severity.value)
        pair = self._pairs.get(key)
        if pair is None:
            pair = _Pair(c.first, new.site, class_, severity=severity)
            self._pairs[key] = pair
        if pair.shown >= _REPORTS:
            pair.silent += len(c.at)
            return
        pair.shown += 1
        lanes = new.lanes[c.at]
        address = c.places + self.wave.memory.base
        if new.space == "shared":
            address = c.places - lanes // self.know.per * self.wave.shared_stride
        # the pair may have been seen the other way round before
        self.wave.report(
            class_, message, pair.second, lanes, help=cure, other_line=pair.first.line,
            address=int(address[0]), space=new.space, severity=severity, size=1 << new.size,
            **self._other(c),
        )  # fmt: skip

    def _other(self, c: Conflict) -> dict[str, Any]:
        """The other party, and where both were last ordered."""
        if c.old is None:
            return {}
        theirs = int(c.old.lane[0])
        per = self.know.per
        x, y, z = (int(v[0]) for v in self.wave.geometry.ctaid(np.array([theirs // per])))
        same = c.old.lane[c.old.lane >> 5 == theirs >> 5]
        return {
            "other_cta": (x, y, z),
            "other_warp": theirs % per >> 5,
            "other_lanes": tuple(sorted({int(lane) & 31 for lane in same})),
            **self._last_order(int(c.new.lanes[c.at[0]]), theirs),
        }

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

"""The mbarrier objects of a wave (PTX ISA 9.1, Parallel Synchronization: mbarrier).

The state of an object is kept here, under its byte offset in the wave's shared memory; the 64 bits
in memory, which are opaque to programs, follow it.  Asynchronous copies that signal an object land
as late as allowed: when a wait on it would otherwise fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..diagnostics import Severity
from ..isa.mbarrier import COUNT_LIMIT, pack_state, phase_of, serial_of
from ..isa.protocol import Array, BoolArray, Site
from . import access
from .access import Access, Place
from .watch import Watch

if TYPE_CHECKING:
    from .group import Group
    from .wave import Wave

__all__ = ["Mbarrier", "MbarrierAccess", "Mbarriers", "Party"]

#: States know phases modulo this.
_PHASES = 1 << 22

_HELP = "mbarrier.init makes an object, of which a barrier must tell the other threads"

_UNSEEN = "each phase needs a wait that returns true before the arrivals of the next"


@dataclass(slots=True)
class Mbarrier:
    """One object: where it is, which init made it, and its counts."""

    place: int
    serial: int
    site: Site
    expected: int
    pending: int
    phase: int = 0
    tx: int = 0
    #: the newest phase that a wait has seen complete
    observed: int = -1

    def __str__(self) -> str:
        return (
            f"phase {self.phase}, {self.pending} of {self.expected} arrivals pending,"
            f" tx-count {self.tx}"
        )


@dataclass(slots=True)
class Party:
    """Lanes that act on objects, the place of each, and where they are on the axis of a group."""

    wave: Wave
    #: the length of the lane axis of their group
    n: int
    lanes: Array
    at: Array
    mask: BoolArray | None
    site: Site

    def values(self, g: Group, value: Array) -> Array:
        """An operand for each acting lane; counts become int64."""
        value = g.full(value)
        value = value if self.mask is None else value[self.mask]
        return value.astype(np.int64) if value.dtype == np.uint32 else value

    def spread(self, value: Array) -> Array:
        """Values of the acting lanes on the lane axis of the group."""
        if self.mask is None:
            return value
        out = np.zeros(self.n, value.dtype)
        out[self.mask] = value
        return out

    def fail(self, message: str, index: Array | None = None, help: str | None = None) -> None:
        """Report lanes (positions ``index``) that do what is undefined, and end the launch."""
        lanes = self.lanes if index is None else self.lanes[index]
        self.wave.report("mbarrier", message, self.site, lanes, help=help, fatal=True)


class Mbarriers:
    """All mbarrier objects of a wave."""

    def __init__(self) -> None:
        self.live: dict[int, Mbarrier] = {}
        self._made = 0
        #: for each lane the place that its last wait failed on, or -1; and the number of its site
        self._failed: Array | None = None
        self._sites: dict[int, tuple[int, Site]] = {}

    # --- finding objects ------------------------------------------------------------------------

    def locate(
        self, group: Group, space: str, address: Array, mask: BoolArray | None, site: Site
    ) -> Party | None:
        """Check the addresses of an instruction's objects; None when no lane acts."""
        lanes = group.acting(mask)
        if not len(lanes):
            return None
        found = access.places(group, Access(space, 8, 1, site), address, mask)
        at = np.empty(len(lanes), np.int64)
        for p in found:
            if p.space != "shared":
                wrong = lanes if p.lanes is None else group.lanes[p.lanes]
                group.wave.report(
                    "mbarrier", "the generic address of the mbarrier is not in shared memory", site,
                    wrong, help="mbarrier objects are in shared memory", fatal=True,
                )  # fmt: skip
        if len(found) == 1:
            at[:] = found[0].at
        return Party(group.wave, group.n, lanes, at, mask, site)

    def _each(self, who: Party) -> Iterator[tuple[int, Array]]:
        """Each place with the positions of its lanes, in the order in which they act."""
        order = np.arange(len(who.lanes))
        if who.wave.reversed:
            order = order[::-1]
        at = who.at[order]
        if (at == at[0]).all():
            yield int(at[0]), order
            return
        places, which = np.unique(at, return_inverse=True)
        by_place = np.argsort(which, kind="stable")
        ends = np.cumsum(np.bincount(which))
        for place, index in zip(places, np.split(by_place, ends[:-1]), strict=True):
            yield int(place), order[index]

    def _object(self, place: int, who: Party, index: Array) -> Mbarrier:
        found = self.live.get(place)
        if found is None:
            who.fail(f"there is no mbarrier at {self._where(place, who)}", index, _HELP)
            raise AssertionError
        return found

    def _where(self, place: int, who: Party) -> str:
        return f"shared address {place % who.wave.shared_stride:#x}"

    def require(self, who: Party) -> None:
        """There must be an object at each place."""
        for place, index in self._each(who):
            self._object(place, who, index)

    def phase(self, place: int) -> int:
        """The current phase of an object; -1 where there is none."""
        found = self.live.get(place)
        return -1 if found is None else found.phase

    def overlaps(self, at: Array, size: int) -> BoolArray:
        """Which accesses of ``size`` bytes at these places touch a live object."""
        if not self.live:
            return np.zeros(at.shape, bool)
        objects = np.fromiter(sorted(self.live), np.int64)
        following = np.searchsorted(objects, at - 7)
        inside = following < len(objects)
        touched: BoolArray = inside & (objects[following * inside] < at + size)
        return touched

    # --- init and inval -------------------------------------------------------------------------

    def init(self, who: Party, counts: Array) -> None:
        """mbarrier.init with a count for each lane."""
        bad = (counts < 1) | (counts > COUNT_LIMIT)
        if bad.any():
            value = int(counts[bad][0])
            who.fail(f"the count of an mbarrier is from 1 to {COUNT_LIMIT}, not {value}", bad)
        for place, index in self._each(who):
            known = self.live.get(place)
            if known is not None or len(index) > 1:
                where = f"of line {known.site.line} " if known else ""
                who.fail(
                    f"initialises the mbarrier {where}at {self._where(place, who)} again while it"
                    " is live",
                    index,
                    "let one thread initialise it, and end it with mbarrier.inval before that",
                )
            count = int(counts[index[0]])
            self._made += 1
            made = self.live[place] = Mbarrier(place, self._made, who.site, count, count)
            self._write(who.wave, made)
        wave = who.wave
        if wave.watch is not None:
            wave.watch.mbarrier_initialised(wave, who.lanes, who.at, who.site)

    def invalidate(self, who: Party) -> None:
        """mbarrier.inval."""
        wave = who.wave
        for place, index in self._each(who):
            self._object(place, who, index)
            if len(index) > 1:
                who.fail("several lanes invalidate the same mbarrier", index)
            if wave.service("bulk_copies").in_flight_to(place):
                who.fail("invalidates an mbarrier that a bulk copy still signals", index)
            del self.live[place]
        if wave.watch is not None:
            wave.watch.mbarrier_invalidated(wave, who.lanes, who.at, who.site)

    # --- counting -------------------------------------------------------------------------------

    def arrive(
        self,
        who: Party,
        counts: Array | None,
        expected: Array | None,
        drops: bool,
        no_complete: bool,
    ) -> Array:
        """mbarrier.arrive and arrive_drop, in lane order; the state that each lane found.

        ``counts`` defaults to one each, ``expected`` (bytes) to none.
        """
        n = len(who.lanes)
        counts = np.ones(n, np.int64) if counts is None else counts
        expected = np.zeros(n, np.int64) if expected is None else expected
        bad = (counts < 1) | (counts > COUNT_LIMIT)
        if bad.any():
            who.fail(f"an arrival counts from 1 to {COUNT_LIMIT}, not {int(counts[bad][0])}", bad)
        states, phases = np.zeros(n, np.uint64), np.zeros(n, np.int64)
        for place, index in self._each(who):
            b = self._object(place, who, index)
            early = index[:0] if b.phase <= b.observed + 1 else index
            while len(index):
                ended, before = self._count(b, who, index, counts[index], expected[index])
                done = index[:ended] if ended else index
                states[done] = pack_state(b.phase, before, b.serial)
                phases[done] = b.phase
                if drops:
                    self._drop(b, who, done, int(counts[done].sum()))
                if ended:
                    if no_complete:
                        who.fail(f"an arrival with .noComplete completes {b}", done[-1:])
                    self._complete(b)
                index = index[len(done) :]
            self._write(who.wave, b)
            if len(early):
                phase = int(phases[early[0]])
                message = f"arrives in phase {phase} of an mbarrier, but no wait has seen phase"
                self._advise(b, who, early, f"{message} {phase - 1} complete", _UNSEEN)
        wave = who.wave
        if wave.watch is not None:
            wave.watch.mbarrier_arrived(
                wave, who.lanes, who.at, phases, who.site.order, who.site
            )  # fmt: skip
        return states

    def expect(self, who: Party, sizes: Array) -> None:
        """mbarrier.expect_tx, and complete_tx with negative sizes."""
        for place, index in self._each(who):
            b = self._object(place, who, index)
            self._add(b, who, index, np.zeros(len(index), np.int64), sizes[index])

    def _add(self, b: Mbarrier, who: Party, index: Array, counts: Array, sizes: Array) -> Array:
        """Count arrivals and bytes; the phase in which each counts."""
        phases: list[int] = []
        while len(index):
            done, _ = self._count(b, who, index, counts, sizes)
            phases += [b.phase] * (done or len(index))
            if not done:
                break
            self._complete(b)
            index, counts, sizes = index[done:], counts[done:], sizes[done:]
        self._write(who.wave, b)
        return np.array(phases, np.int64)

    def _count(
        self, b: Mbarrier, who: Party, index: Array, counts: Array, sizes: Array
    ) -> tuple[int, Array]:
        """Count arrivals and bytes up to the completion of the phase.

        How many lanes that took, 0 if the phase goes on; and what was pending before each.
        """
        pending = b.pending - np.cumsum(counts)
        tx = b.tx + np.cumsum(sizes)
        ends = np.flatnonzero((pending == 0) & (tx == 0))
        taken = int(ends[0]) + 1 if len(ends) else len(index)
        bad = np.flatnonzero(pending[:taken] < 0)
        if len(bad):
            who.fail(
                f"more arrivals than the mbarrier expects: {b}; initialised at line {b.site.line}",
                index[bad], "the count of mbarrier.init is the number of arrivals of a phase",
            )  # fmt: skip
        bad = np.flatnonzero(np.abs(tx[:taken]) > COUNT_LIMIT)
        if len(bad):
            who.fail(
                f"the tx-count of an mbarrier goes to {int(tx[bad[0]])}, beyond +-{COUNT_LIMIT}",
                index[bad],
            )  # fmt: skip
        before = pending[:taken] + counts[:taken]
        b.pending, b.tx = int(pending[taken - 1]), int(tx[taken - 1])
        return (taken if len(ends) else 0), before

    def _drop(self, b: Mbarrier, who: Party, index: Array, count: int) -> None:
        if count > b.expected:
            who.fail(f"drops {count} arrivals, but the mbarrier expects {b.expected}", index)
        b.expected -= count

    def _complete(self, b: Mbarrier) -> None:
        b.phase += 1
        b.pending = b.expected

    def _advise(
        self, b: Mbarrier, who: Party, index: Array, message: str, help: str | None = None
    ) -> None:
        lanes = who.lanes[index]
        who.wave.report(
            "mbarrier", message, who.site, lanes, help=help, severity=Severity.ADVICE,
            other_line=b.site.line,
        )  # fmt: skip

    def _write(self, wave: Wave, b: Mbarrier) -> None:
        """Let memory follow: opaque bits, but defined ones."""
        wave.memory.version += 1
        at = b.place >> 3
        wave.shared_views[8][at] = pack_state(b.phase, np.array(b.pending), b.serial)
        if wave.shared_written is not None:
            wave.shared_written[8][at] = ~np.uint64(0)

    # --- asynchronous signals -------------------------------------------------------------------

    def raise_pending(self, who: Party) -> None:
        """One more arrival is pending for each lane (cp.async.mbarrier.arrive)."""
        for place, index in self._each(who):
            b = self._object(place, who, index)
            b.pending += len(index)
            if b.pending > COUNT_LIMIT:
                who.fail(f"more than {COUNT_LIMIT} arrivals are pending", index)
            self._write(who.wave, b)

    def arrive_for_copies(self, wave: Wave, place: int, lanes: Array, site: Site) -> Array:
        """The copies of these lanes have landed: each arrives, in which phase is told."""
        who = Party(wave, len(lanes), lanes, np.full(len(lanes), place), None, site)
        index = np.arange(len(lanes))
        b = self._object(place, who, index)
        zeros = np.zeros(len(lanes), np.int64)
        return self._add(b, who, index, zeros + 1, zeros)

    def complete_bytes(self, wave: Wave, place: int, size: int, lane: int, site: Site) -> int:
        """A bulk copy of ``size`` bytes has landed; the phase in which it counts."""
        who = Party(wave, 1, np.array([lane]), np.array([place]), None, site)
        b = self._object(place, who, np.array([0]))
        return int(self._add(b, who, np.array([0]), np.array([0]), np.array([-size]))[0])

    # --- waits ----------------------------------------------------------------------------------

    def test_parity(self, who: Party, parity: Array) -> BoolArray:
        """For each lane, whether the newest complete phase has this parity."""

        def complete(b: Mbarrier, index: Array) -> BoolArray:
            odd = parity[index] > 1
            if odd.any():
                given = int(parity[index][odd][0])
                message = f"the phase parity {given} is neither 0 nor 1; its bit 0 counts"
                self._advise(b, who, index[odd], message)
            result: BoolArray = ((b.phase ^ parity[index]) & 1) != 0
            return result

        return self._test(who, complete)

    def test_state(self, who: Party, state: Array) -> BoolArray:
        """For each lane, whether the phase of its state is complete."""

        def complete(b: Mbarrier, index: Array) -> BoolArray:
            own = state[index]
            foreign = serial_of(own) != b.serial & COUNT_LIMIT
            if foreign.any():
                who.fail("the state is not one of this mbarrier", index[foreign])
            behind = (b.phase - phase_of(own)) & (_PHASES - 1)
            stale = behind > 1
            if stale.any():
                who.fail(
                    f"the state is of phase {int(phase_of(own)[stale][0])}, the mbarrier in phase"
                    f" {b.phase}: only the current and the one before can be asked for",
                    index[stale],
                )
            result: BoolArray = behind == 1
            return result

        return self._test(who, complete)

    def _test(self, who: Party, complete: Callable[[Mbarrier, Array], BoolArray]) -> BoolArray:
        wave = who.wave
        passed, phases = np.zeros(len(who.lanes), bool), np.zeros(len(who.lanes), np.int64)
        for place, index in self._each(who):
            b = self._object(place, who, index)
            done = complete(b, index)
            while not done.all() and self._deliver(wave, place):
                done = complete(b, index)
            passed[index], phases[index] = done, b.phase - 1
            if done.any() and b.observed < b.phase - 1:
                b.observed = b.phase - 1
                wave.service("bulk_copies").observed(place, b.observed)
        self._remember(who, passed)
        if wave.watch is not None and passed.any():
            wave.watch.mbarrier_passed(
                wave, who.lanes[passed], who.at[passed], phases[passed], who.site.order, who.site
            )
        return passed

    def _deliver(self, wave: Wave, place: int) -> bool:
        """Let one more asynchronous operation that signals the object land, if there is one."""
        return bool(
            wave.service("async_copies").deliver(wave, place)
            or wave.service("bulk_copies").deliver(wave, place)
        )

    # --- what went wrong ------------------------------------------------------------------------

    def _remember(self, who: Party, passed: BoolArray) -> None:
        if self._failed is None:
            self._failed = np.full((2, who.wave.size), -1, np.int64)
        number = self._sites.setdefault(id(who.site), (len(self._sites), who.site))[0]
        self._failed[0, who.lanes] = np.where(passed, -1, who.at)
        self._failed[1, who.lanes] = number

    def waited_for(self, lanes: Array) -> tuple[Mbarrier, Site, Array] | None:
        """The object that the last wait of the first of these lanes failed on, where that was, and
        which lanes it was."""
        if self._failed is None:
            return None
        waiting = lanes[self._failed[0, lanes] >= 0]
        if not len(waiting):
            return None
        place, number = self._failed[:, waiting[0]]
        found = self.live.get(int(place))
        if found is None:
            return None
        same = waiting[(self._failed[:, waiting] == self._failed[:, waiting[:1]]).all(axis=0)]
        return found, [site for _, site in self._sites.values()][int(number)], same

    def finish(self, wave: Wave) -> None:
        """At the end of the CTAs, when every copy has landed: no bytes may be awaited."""
        for b in self.live.values():
            if b.tx:
                cta = b.place // wave.shared_stride
                wave.report(
                    "async-race",
                    f"the CTA ends while bytes of an mbarrier are outstanding: {b}",
                    b.site,
                    np.array([cta * wave.lanes_per_cta]),
                    help="the bytes of expect_tx are those of the copies that signal the mbarrier",
                )


class MbarrierAccess(Watch):
    """Finds plain accesses to live objects."""

    def load(self, group: Group, access: Access, place: Place) -> None:
        self._check(group, access, place)

    def store(self, group: Group, access: Access, place: Place, words: Sequence[Array]) -> None:
        self._check(group, access, place)

    def atomic(self, group: Group, access: Access, place: Place) -> None:
        self._check(group, access, place)

    def _check(self, group: Group, access: Access, place: Place) -> None:
        if place.space != "shared":
            return
        touched = group.service("mbarriers").overlaps(place.at, access.total)
        if not touched.any():
            return
        lanes = group.lanes if place.lanes is None else group.lanes[place.lanes]
        group.wave.report(
            "mbarrier", "accesses the memory of a live mbarrier", access.site,
            lanes if len(touched) == 1 else lanes[touched],
            help="only mbarrier instructions may access it until mbarrier.inval", fatal=True,
        )  # fmt: skip

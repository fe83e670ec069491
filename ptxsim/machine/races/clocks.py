"""What each lane of a wave knows of the others, as far as order in memory goes.

Every warp has a time, which advances after each event by which one of its lanes gives order away.
An access is recorded with its lane and the time of its warp.  A lane knows it

- if it is its own;
- by ``ce``: the CTA's last barrier of all warps set all times to that value, so what is older is
  known to the whole CTA;
- by ``full`` or ``partial``: what all lanes, or this lane, of the own warp know of its lanes;
- by ``rows``: what all lanes of a warp know of another warp of the CTA;
- by ``extra``: clocks that single lanes acquired (:class:`Clock`).

Dense clocks of all threads by all threads are never built.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...isa.protocol import Array, BoolArray

if TYPE_CHECKING:
    from .past import Past

__all__ = ["EMPTY", "Clock", "Knowledge", "Moment", "Track", "joined"]


class Track(ABC):
    """Clocks that were released one after the other; a clock may hold the first so many of them."""

    #: nothing is released to it any more
    closed = False

    @abstractmethod
    def own(self, lane: int, count: int) -> int:
        """The newest time of a global lane that is known to the first clocks, or -1."""

    @abstractmethod
    def others(self, count: int) -> list[tuple[Track, int]]:
        """Other tracks that the first clocks hold, with how much of them."""

    @abstractmethod
    def flat(self, count: int) -> Clock:
        """The first clocks put together."""


@dataclass(frozen=True, slots=True, eq=False)
class Clock:
    """What some lane knows: newest times by global warp (all its lanes) and by global lane.

    ``groups`` has the first group that is not known to be complete, by asynchronous thread: the
    copies of cp.async of a global lane are one under its number, and each issue is a group; the
    threads of bulk copies are below 0.  ``tracks`` holds so many of the clocks of tracks.
    """

    warps: Mapping[int, int] = field(default_factory=dict)
    lanes: Mapping[int, int] = field(default_factory=dict)
    groups: Mapping[int, int] = field(default_factory=dict)
    tracks: Mapping[Track, int] = field(default_factory=dict)

    def knows(self, lane: int, time: int) -> bool:
        """Whether an access of a global lane at a time of its warp is known."""
        if time <= self.warps.get(lane >> 5, -1) or time <= self.lanes.get(lane, -1):
            return True
        return bool(self.tracks) and time <= self.newest(lane, time)

    def newest(self, lane: int, enough: int = 1 << 30) -> int:
        """The newest time up to which accesses of a global lane are known, or -1.

        One that is not older than ``enough`` will do.
        """
        best = max(self.warps.get(lane >> 5, -1), self.lanes.get(lane, -1))
        todo = list(self.tracks.items())
        looked: dict[Track, int] = {}
        while todo:
            track, count = todo.pop()
            if looked.get(track, 0) < count:
                looked[track] = count
                best = max(best, track.own(lane, count))
                if best >= enough:
                    break
                todo += track.others(count)
        return best


EMPTY = Clock()


def joined(clocks: Iterable[Clock | None]) -> Clock | None:
    """The least clock that knows all that these know; None if there is none."""
    different = list({id(c): c for c in clocks if c is not None}.values())
    if len(different) <= 1:
        return different[0] if different else None
    parts: tuple[dict[Any, int], ...] = ({}, {}, {}, {})
    while different:
        c = different.pop()
        tracks = c.tracks
        if any(track.closed for track in tracks):
            different += [track.flat(count) for track, count in tracks.items() if track.closed]
            tracks = {track: count for track, count in tracks.items() if not track.closed}
        given_: tuple[Mapping[Any, int], ...] = (c.warps, c.lanes, c.groups, tracks)
        for out, given in zip(parts, given_, strict=True):
            for key, time in given.items():
                if out.get(key, -1) < time:
                    out[key] = time
    warps, lanes, groups, held = parts
    return Clock(warps, lanes, groups, held)


class _State:
    """What lanes of a wave know at one time, in parts; from it come clocks."""

    #: the first lane of the wave that this covers
    low = 0
    first: Array
    per: int
    warps: int
    time: Array
    ce: Array
    full: Array
    rows: Array | None
    partial: dict[int, Array]
    extra: Array | None

    def clock(self, lane: int) -> Clock:
        """All that a lane of the wave knows, its own accesses included."""
        cta, inside = divmod(lane - self.low, self.per)
        warp = inside >> 5
        base = int(self.first[cta])
        lanes = {base + inside: int(self.time[cta, warp])}
        row = self.partial.get(lane >> 5)
        if row is not None:
            start = base + (inside & ~31)
            for j in np.flatnonzero(row[lane & 31] > self.full[cta, warp]):
                lanes.setdefault(start + int(j), int(row[lane & 31, j]))
        mine = Clock(self.of_warp(cta, warp), lanes)
        more = None if self.extra is None else self.extra[lane - self.low]
        return joined((mine, more)) or mine

    def of_warp(self, cta: int, warp: int) -> dict[int, int]:
        """What all lanes of a warp know of the warps of its CTA."""
        first = int(self.first[cta]) >> 5
        before = int(self.ce[cta]) - 1
        known = {first + j: before for j in range(self.warps)} if before > 0 else {}
        if self.rows is not None:
            for j in np.flatnonzero(self.rows[cta, warp] > before):
                known[first + int(j)] = int(self.rows[cta, warp, j])
        if self.full[cta, warp] > before:
            known[first + warp] = int(self.full[cta, warp])
        return known


class Moment(_State):
    """What some lanes of a wave knew at one time, kept until somebody asks."""

    def __init__(self, know: Knowledge, lanes: Array) -> None:
        low, high = int(lanes.min()) // know.per, int(lanes.max()) // know.per + 1
        ctas = slice(low, high)
        self.low = low * know.per
        self.per, self.warps = know.per, know.warps
        self.first = know.first[ctas]
        self.time, self.ce = know.time[ctas].copy(), know.ce[ctas].copy()
        self.full = know.full[ctas].copy()
        self.rows = None if know.rows is None else know.rows[ctas].copy()
        self.partial = dict(know.partial)
        self.extra = know.extra[self.low : high * know.per].copy() if know.any_extra else None
        #: counts the moments of a wave
        self.number = know.moments = know.moments + 1
        self._warps: dict[tuple[int, int], dict[int, int]] = {}
        self._clocks: dict[int, Clock] = {}

    def clock(self, lane: int) -> Clock:
        found = self._clocks.get(lane)
        if found is None:
            found = self._clocks[lane] = super().clock(lane)
        return found

    def of_warp(self, cta: int, warp: int) -> dict[int, int]:
        found = self._warps.get((cta, warp))
        if found is None:
            found = self._warps[cta, warp] = super().of_warp(cta, warp)
        return found


class Knowledge(_State):
    """The clocks of one wave; lanes are counted in the wave, clocks hold global ones.

    Changes are told to a ``past`` where there is one.
    """

    def __init__(self, ctas: Array, lanes_per_cta: int, past: Past | None = None) -> None:
        self.past = past
        self.ctas = ctas
        self.per = lanes_per_cta
        self.warps = lanes_per_cta >> 5
        count = len(ctas)
        self.first = np.asarray(ctas, np.int64) * lanes_per_cta
        #: time of each warp [cta, warp]; 0 is before everything
        self.time = np.ones((count, self.warps), np.int64)
        self.ce = np.ones(count, np.int64)
        self.full = np.zeros((count, self.warps), np.int64)
        #: [cta, warp, other warp], there once a barrier of some warps was used
        self.rows: Array | None = None
        #: by warp of the wave: [lane, other lane], there once a partial mask was used
        self.partial: dict[int, Array] = {}
        #: by lane of the wave; None for most
        self.extra: Array = np.full(count * lanes_per_cta, None, object)
        self.any_extra = False
        self.moments = 0
        #: with a past, by lane: the time since which it knows the same fence.sc; by CTA: whether
        #: its lanes may know different ones, and when they last came to know the same
        self.since: Array = np.zeros(count * lanes_per_cta, np.int64)
        self.differ: BoolArray = np.zeros(count, bool)
        self._since_met: Array = np.zeros(count, np.int64)
        self.any_since = False
        self._same = bool(np.all(np.diff(ctas) == 1)) if count > 1 else True

    # --- names ----------------------------------------------------------------------------------

    def globally(self, lanes: Array) -> Array:
        """Global lanes of lanes of the wave."""
        if self._same:
            moved: Array = lanes + self.first[0]
            return moved
        offsets = self.first - np.arange(len(self.ctas)) * self.per
        out: Array = lanes + offsets[lanes // self.per]
        return out

    def locally(self, owner: Array) -> tuple[Array, BoolArray]:
        """Lanes of the wave from global ones (0 for others), and which are of the wave."""
        if self._same:
            lanes = owner - self.first[0]
            inside: BoolArray = (lanes >= 0) & (lanes < len(self.since))
            return np.where(inside, lanes, 0), inside
        order = np.argsort(self.ctas)
        cta = owner // self.per
        at = np.minimum(np.searchsorted(self.ctas[order], cta), len(order) - 1)
        here: BoolArray = self.ctas[order][at] == cta
        return np.where(here, order[at] * self.per + owner % self.per, 0), here

    def times(self, lanes: Array) -> Array:
        """The time of the warp of each lane."""
        out: Array = self.time.reshape(-1)[lanes >> 5]
        return out

    # --- queries --------------------------------------------------------------------------------

    def unknown(self, owner: Array, time: Array, lanes: Array) -> BoolArray:
        """Which accesses of global lanes at times of their warps the lanes do not know."""
        cta = lanes // self.per
        inside = owner - self.first[cta]
        own_cta = (inside >= 0) & (inside < self.per)
        same = own_cta & (inside == lanes - cta * self.per)
        known = same | (own_cta & (time < self.ce[cta]))
        left = np.flatnonzero(own_cta & ~known)
        if len(left):
            known[left] = self._in_cta(inside[left], time[left], lanes[left], cta[left])
        if self.any_extra:
            left = np.flatnonzero(~known)
            if len(left):
                known[left] = self._by_extra(owner[left], time[left], lanes[left])
        out: BoolArray = ~known
        return out

    def _in_cta(self, inside: Array, time: Array, lanes: Array, cta: Array) -> BoolArray:
        """The same for other lanes of the own CTA, by number within it."""
        warp, theirs = (lanes - cta * self.per) >> 5, inside >> 5
        known: BoolArray = (warp == theirs) & (time <= self.full[cta, warp])
        if self.rows is not None:
            known |= (warp != theirs) & (time <= self.rows[cta, warp, theirs])
        if self.partial:
            for k in np.flatnonzero(~known & (warp == theirs)):
                row = self.partial.get(int(lanes[k]) >> 5)
                if row is not None:
                    known[k] = time[k] <= row[int(lanes[k]) & 31, int(inside[k]) & 31]
        return known

    def _by_extra(self, owner: Array, time: Array, lanes: Array) -> BoolArray:
        clocks = self.extra[lanes]
        known = np.zeros(len(lanes), bool)
        for k, clock in enumerate(clocks):
            if clock is not None:
                known[k] = clock.knows(int(owner[k]), int(time[k]))
        return known

    def clock_of_all(self, lanes: Array) -> Clock:
        """What lanes of the wave know together; whole warps count as such."""
        parts: list[Clock] = []
        for warp in np.unique(lanes >> 5):
            mine = lanes[lanes >> 5 == warp]
            clock = self.clock(int(mine[0]))
            base = int(self.globally(mine[:1])[0]) & ~31
            now = int(self.time.reshape(-1)[warp])
            if len(mine) == 32:
                parts.append(joined((clock, Clock({base >> 5: now}))) or clock)
            else:
                given = {base + (int(lane) & 31): now for lane in mine}
                parts.append(joined((clock, Clock({}, given))) or clock)
            if int(warp) in self.partial:
                parts += [self.clock(int(lane)) for lane in mine[1:]]
            elif self.any_extra:
                parts += [c for c in self.extra[mine[1:]] if c is not None]
        whole = joined(parts)
        return EMPTY if whole is None else whole

    # --- events ---------------------------------------------------------------------------------

    def tick(self, lanes: Array) -> None:
        """The warps of these lanes have given order away."""
        self.time.reshape(-1)[np.unique(lanes >> 5)] += 1

    def turn(self, lanes: Array) -> None:
        """What these lanes acquire next is new for what they do next only."""
        if self.past is not None:
            self.tick(lanes)

    def fenced(self, lanes: Array) -> None:
        """After a fence.sc of these lanes."""
        self._learned(lanes, self.times(lanes))

    def _learned(self, lanes: Array | int, times: Array | int) -> None:
        """From these times on lanes know other fence.sc than before, and maybe than others."""
        self.since[lanes] = times
        self.differ[lanes // self.per] = self.any_since = True

    def view(self, owner: Array, time: Array) -> Array:
        """Numbers for accesses; those of one lane with one number come after the same fence.sc."""
        lanes, here = self.locally(owner)
        since = self.since[lanes]
        out: Array = np.where(here & (time >= since), since, -time)
        return out

    def differently(self, owner: Array, time: Array, lanes: Array) -> BoolArray:
        """Which accesses may come after other fence.sc than what lanes of the wave do next."""
        theirs, here = self.locally(owner)
        since, mine = self.since[theirs], self.since[lanes]
        cta = lanes // self.per
        met = (theirs // self.per == cta) & (mine == self._since_met[cta])
        same = here & (time >= since) & (since == mine) & ((theirs == lanes) | met | (mine == 0))
        out: BoolArray = ~same
        return out

    def acquire(self, lane: int, clock: Clock | None) -> None:
        """A lane of the wave learns a clock."""
        if clock is None:
            return
        whole = joined((self.extra[lane], clock))
        assert whole is not None
        self.extra[lane] = whole
        self.any_extra = True
        self._acquired(lane, whole)

    def _acquired(self, lane: int, whole: Clock) -> None:
        if self.past is not None:
            cta, inside = divmod(lane, self.per)
            time = int(self.time[cta, inside >> 5])
            self.past.acquired(int(self.first[cta]) + inside, time, whole)
            self._learned(lane, time)

    def learn(self, lanes: Array, clock: Clock) -> None:
        """Lanes of the wave learn one clock; those that knew the same do so afterwards."""
        before = self.extra[lanes]
        learned = {id(old): joined((old, clock)) or clock for old in before}
        for lane, old in zip(lanes.tolist(), before, strict=True):
            self.extra[lane] = learned[id(old)]
            self._acquired(lane, learned[id(old)])
        self.any_extra = self.any_extra or len(lanes) > 0

    def meet(self, ctas: Array) -> None:
        """A barrier of all lanes of these CTAs."""
        now = self.time[ctas].max(axis=1) + 1
        self.time[ctas] = now[:, None]
        self.ce[ctas] = now
        if self.past is None and not self.any_extra:
            return
        for cta, time in zip(map(int, ctas), map(int, now), strict=True):
            if self.past is not None:
                self.past.met(int(self.ctas[cta]), time)
                if self.differ[cta]:
                    self.differ[cta] = False
                    self._since_met[cta] = time
                    self.since[cta * self.per : (cta + 1) * self.per] = time
            if not self.any_extra:
                continue
            whole = self._share(np.arange(cta * self.per, (cta + 1) * self.per))
            if whole is not None and self.past is not None:
                self.past.shared(int(self.ctas[cta]), time, whole)

    def _share(self, lanes: Array) -> Clock | None:
        """Lanes learn all that one of them acquired."""
        whole = joined(self.extra[lanes])
        if whole is not None:
            fill = np.empty(1, object)
            fill[0] = whole
            self.extra[lanes] = fill
        return whole

    def materialise(self) -> Array:
        """The rows, with what barriers of all warps gave put in."""
        if self.rows is None:
            self.rows = np.zeros((len(self.ctas), self.warps, self.warps), np.int64)
        np.maximum(self.rows, (self.ce - 1)[:, None, None], out=self.rows)
        return self.rows

    def meet_some(
        self, cta: int, waits: Array, gives: Iterable[tuple[Array, int, int, Clock | None]]
    ) -> None:
        """A barrier of some warps of a CTA: ``waits`` (warps) learn from each other and ``gives``.

        A giver is a snapshot: its row, warp, time and extra clock when it arrived.
        """
        rows = self.materialise()
        learned = rows[cta, waits].max(axis=0) if len(waits) else np.zeros(self.warps, np.int64)
        np.maximum.at(learned, waits, self.time[cta, waits])
        extras: list[Clock | None] = []
        for row, warp, time, extra in gives:
            np.maximum(learned, row, out=learned)
            learned[warp] = max(int(learned[warp]), time)
            extras.append(extra)
        rows[cta, waits] = np.maximum(rows[cta, waits], learned)
        self.full[cta, waits] = self.time[cta, waits]
        self.time[cta, waits] += 1
        if self.past is not None:
            self._tell(cta, waits)
        lanes = (cta * self.per + waits[:, None] * 32 + np.arange(32)).reshape(-1)
        if self.any_extra or any(e is not None for e in extras):
            whole = joined([*self.extra[lanes], *extras])
            if whole is not None:
                self.learn(lanes, whole)

    def _tell(self, cta: int, waits: Array) -> None:
        assert self.past is not None and self.rows is not None
        first = int(self.first[cta]) >> 5
        for warp in map(int, waits):
            time = int(self.time[cta, warp])
            self.past.synced(first + warp, time - 1)
            self.past.learned(first + warp, time, self.rows[cta, warp])
        if self.differ[cta]:
            lanes = cta * self.per + waits[:, None] * 32 + np.arange(32)
            self.since[lanes] = self.time[cta, waits][:, None]

    def snapshot(
        self, cta: int, warp: int, some: Array | None = None
    ) -> tuple[Array, int, int, Clock | None]:
        """What a warp, or ``some`` of its lanes, gives when it arrives without waiting.

        Its time advances.
        """
        rows = self.materialise()
        row = rows[cta, warp].copy()
        time = int(self.time[cta, warp])
        lanes = cta * self.per + warp * 32 + np.arange(32)
        extra = joined(self.extra[lanes]) if self.any_extra else None
        if some is not None:
            time, extra = 0, self.clock_of_all(some)
        self.time[cta, warp] += 1
        return row, warp, time, extra

    def meet_lanes(self, warp: int, members: BoolArray, whole: bool) -> None:
        """bar.warp.sync in a warp of the wave: ``members`` [32, 32]; ``whole``: all its lanes."""
        cta, inside = divmod(warp, self.warps)
        now = int(self.time[cta, inside])
        lanes = warp * 32 + np.arange(32)
        past, place = self.past, (int(self.first[cta]) >> 5) + inside
        if whole:
            self.full[cta, inside] = now
            shared = self._share(lanes) if self.any_extra else None
            if past is not None:
                past.synced(place, now)
                if shared is not None:
                    past.passed_on(place, now + 1, shared)
        else:
            old = self._partial(warp, cta, inside)
            new = old.copy()
            for i in np.flatnonzero(members.any(axis=1)):
                some = np.flatnonzero(members[i])
                np.maximum(new[i], old[some].max(axis=0), out=new[i])
                new[i, some] = now
            self.partial[warp] = new
            if past is not None:
                past.mixed(place, now + 1, new)
            if self.any_extra:
                before = self.extra[lanes].copy()
                for i in np.flatnonzero(members.any(axis=1)):
                    learned = joined(before[members[i]])
                    self.extra[lanes[i]] = learned
                    if past is not None and learned is not None:
                        past.acquired(place * 32 + int(i), now + 1, learned)
        self.time[cta, inside] = now + 1
        if past is not None and self.differ[cta]:
            self.since[lanes] = now + 1

    def _partial(self, warp: int, cta: int, inside: int) -> Array:
        known = self.partial.get(warp)
        floor = max(int(self.full[cta, inside]), int(self.ce[cta]) - 1)
        if known is None:
            known = np.zeros((32, 32), np.int64)
        out: Array = np.maximum(known, floor)
        return out

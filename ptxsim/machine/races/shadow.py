"""Records of accesses: for every granule of a memory the last writes and reads that still matter.

A record is 64 bits: the global lane, the time of its warp, how it was made, its scope and size.  An
asynchronous record has the number of its issue or copy in place of a time, and is marked so that no
comparison of times takes it for known.  A granule is the smallest element that the program accesses
in the memory, so every access covers whole granules.

Two slots keep reads, and two keep writes that are unordered with each other (atomics, equal
values), as far apart as possible: of unordered accesses the ones farthest apart suffice to find
every later race where warps meet as wholes.  What this does not hold for is kept in a list: all
others in programs that order single lanes or warps, what cp.async reads, and strong accesses of
several scopes or sizes, which differ in what they race with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...isa.protocol import Array, BoolArray
from .entries import Entries, add_lane, single

__all__ = [
    "ASYNC",
    "ATOMIC",
    "BULK",
    "KIND_BITS",
    "LANDED",
    "LANE_BITS",
    "MAX_LANES",
    "STRONG",
    "WEAK",
    "WRITTEN",
    "Fields",
    "Shadow",
    "fields",
    "manner",
    "pack",
]

#: How a record was made.  LANDED is a copy of cp.async in an earlier wave, with the time at which
#: its thread had waited for it.
WEAK, STRONG, ATOMIC, LANDED, ASYNC, BULK = range(6)

_LANE, _TIME, _KIND, _SCOPE = 36, 12, 9, 7
#: Where the lane of a record begins, and the bits that say how it was made.
LANE_BITS, KIND_BITS = _LANE, (1 << _TIME) - 1
_TIME_MASK = np.uint64((1 << 24) - 1)
#: In the place of the time: this record is of an issue of cp.async or a bulk copy.
_MARK = 1 << 23
MAX_LANES = 1 << 28
#: Set in the ``matrix`` of a record of a write.
WRITTEN = 4


def pack(
    lane: Array, time: Array | int, kind: int, scope: int = 0, size: int = 0, matrix: int = 0
) -> Array:
    """Records of global lanes; ``size`` is the logarithm of the bytes of the element.

    ``matrix`` is what ``MemoryOrder.matrix`` says, together with WRITTEN if it is a write.
    """
    time = np.minimum(time, _MARK - 1) | (_MARK if kind >= ASYNC else 0)
    low = kind << _KIND | scope << _SCOPE | size << 4 | matrix << 1 | 1
    out: Array = (
        (lane.astype(np.uint64) << np.uint64(_LANE))
        | (np.asarray(time).astype(np.uint64) << np.uint64(_TIME))
        | np.uint64(low)
    )
    return out


@dataclass(frozen=True, slots=True)
class Fields:
    """The parts of records."""

    lane: Array
    time: Array
    kind: Array
    scope: Array
    size: Array
    matrix: Array


def fields(records: Array) -> Fields:
    """Take records apart; an asynchronous one has its number as time."""
    time = ((records >> np.uint64(_TIME)) & _TIME_MASK).astype(np.int64)
    kind = ((records >> np.uint64(_KIND)) & np.uint64(7)).astype(np.int64)
    return Fields(
        (records >> np.uint64(_LANE)).astype(np.int64),
        np.where(kind >= ASYNC, time & (_MARK - 1), time),
        kind,
        ((records >> np.uint64(_SCOPE)) & np.uint64(3)).astype(np.int64),
        ((records >> np.uint64(4)) & np.uint64(7)).astype(np.int64),
        ((records >> np.uint64(1)) & np.uint64(7)).astype(np.int64),
    )


def _settled(kept: Entries, done: Callable[[Array, Array], Array]) -> Entries:
    out: Entries = {}
    for (writes, lane, how), entry in kept.items():
        if entry[0] >> _KIND & 7 != ASYNC:
            out[writes, lane, how] = entry
            continue
        for record, site in single(entry, _LANE):
            f = fields(np.array([record], np.uint64))
            when = done(f.lane, f.time)
            if when[0]:
                record = int(pack(f.lane, when, LANDED, 0, 2)[0])
            add_lane(out, writes, record, site, record & KIND_BITS, _LANE)
    return out


def manner(how: int) -> tuple[int, int, int]:
    """Kind, scope and size, from the low bits of a record."""
    return how >> _KIND & 7, how >> _SCOPE & 3, how >> 4 & 7


def raw_times(records: Array) -> Array:
    """The times, or more than any time for asynchronous records; 0 for empty ones."""
    out: Array = (records >> np.uint64(_TIME)) & _TIME_MASK
    return out


class Slot:
    """A record and the number of its instruction, for every granule."""

    def __init__(self, size: int) -> None:
        self.records = np.zeros(size, np.uint64)
        self.sites = np.zeros(size, np.uint32)

    def put(self, at: Array, records: Array, site: Array | int) -> None:
        self.records[at] = records
        self.sites[at] = site

    def clear(self, at: Array) -> None:
        self.records[at] = 0


class Shadow:
    """The records of one memory: slots of two writes and two reads.

    Strong accesses have records of their own, since they stand over no weak one: a strong access
    by another thread may race with the weak one alone.
    """

    def __init__(self, size: int, per_cta: int, exact: bool) -> None:
        #: logarithm of the bytes of a granule
        self.shift = 2
        self.per = per_cta
        self.exact = exact
        self.size = 0
        self.writes: list[Slot] = []
        self.reads: list[Slot] = []
        self._scratch: Array = np.zeros(0, np.uint64)
        #: whether the second slot of writes, or any of reads, was ever used
        self.second = False
        self.read = False
        #: further accesses by granule: records and instructions, of each lane the newest of a kind
        self.more: dict[int, Entries] = {}
        #: which granules have any
        self.listed: BoolArray = np.zeros(0, bool)
        self._strong: Shadow | None = None
        self.grow(size)

    @property
    def parts(self) -> list[Shadow]:
        """The records of weak accesses, and those of strong ones if there were any."""
        return [self] if self._strong is None else [self, self._strong]

    def part(self, strong: bool) -> Shadow:
        """Where an access is recorded."""
        if not strong:
            return self
        if self._strong is None:
            self._strong = Shadow((self.size - 1) << self.shift, self.per, self.exact)
            self._strong.refine(self.shift)
            self._strong.grow((self.size - 1) << self.shift)
        return self._strong

    def forget(self, at: Array, stays: tuple[BoolArray, BoolArray] | None = None) -> None:
        """A weak write stands over all other accesses to its places.

        Strong writes ``stay`` that are unordered with it and left the same value.
        """
        for slot in self.reads if self.read else ():
            slot.clear(at)
        if self.more:
            for place in np.unique(at[self.listed[at]]).tolist():
                del self.more[place]
            self.listed[at] = False
        if self._strong is not None:
            for number, slot in enumerate(self._strong.writes):
                slot.clear(at if stays is None else at[~stays[number]])
            self._strong.forget(at)

    def all_writes(self, index: Array) -> tuple[Array, Array, Array]:
        """The records of writes to these granules: position in ``index``, record, instruction."""
        parts = []
        for slot in self.writes if self.second else self.writes[:1]:
            at = np.flatnonzero(slot.records[index])
            parts.append((at, slot.records[index[at]], slot.sites[index[at]]))
        for k in np.flatnonzero(self.listed[index]) if self.more else ():
            kept = self.more.get(int(index[k]), {})
            found = [one for key, entry in kept.items() if key[0] for one in single(entry, _LANE)]
            if found:
                records, sites = np.array(found, np.uint64).T
                parts.append((np.full(len(found), k), records, sites.astype(np.uint32)))
        at, records, sites = (np.concatenate(part) for part in zip(*parts, strict=True))
        return at, records, sites

    def settle(self, done: Callable[[Array, Array], Array]) -> None:
        """A wave has ended: its copies count as accesses at the times when they were waited for.

        Those that were not waited for (0) stay as they are.
        """
        for slot in (*self.writes, *self.reads):
            kinds = (slot.records >> np.uint64(_KIND)) & np.uint64(7)
            at = np.flatnonzero(kinds == ASYNC)
            if len(at):
                f = fields(slot.records[at])
                times = done(f.lane, f.time)
                slot.records[at[times > 0]] = pack(f.lane, times, LANDED, 0, 2)[times > 0]
        for place, kept in self.more.items():
            self.more[place] = _settled(kept, done)

    def grow(self, size: int) -> None:
        """Cover ``size`` bytes."""
        count = (size >> self.shift) + 1
        if count <= self.size:
            return
        for slots in (self.writes, self.reads):
            old = list(slots)
            slots[:] = [Slot(count), Slot(count)]
            for was, now in zip(old, slots, strict=False):
                now.records[: self.size] = was.records
                now.sites[: self.size] = was.sites
        self._scratch = np.zeros(count, np.uint64)
        self.listed = np.concatenate([self.listed, np.zeros(count - self.size, bool)])
        self.size = count
        if self._strong is not None:
            self._strong.grow(size)

    def refine(self, shift: int) -> None:
        """Make granules smaller; a record of a word was one of each of its bytes."""
        if shift >= self.shift:
            return
        times = 1 << (self.shift - shift)
        for slot in (*self.writes, *self.reads):
            slot.records = np.repeat(slot.records, times)
            slot.sites = np.repeat(slot.sites, times)
        self.more = {
            at * times + k: dict(kept) for at, kept in self.more.items() for k in range(times)
        }
        self.listed = np.repeat(self.listed, times)
        self.size *= times
        self._scratch = np.zeros(self.size, np.uint64)
        self.shift = shift
        if self._strong is not None:
            self._strong.refine(shift)

    @staticmethod
    def put(slots: list[Slot], at: Array, records: Array, site: int) -> None:
        """Put the first and the last of the accesses to each granule into two slots."""
        slots[0].put(at, records, site)
        slots[1].put(at[::-1], records[::-1], site)

    def add(
        self, slots: list[Slot], at: Array, records: Array, site: int, keep: tuple[Array, Array]
    ) -> None:
        """Put accesses into two slots whose old records stay where ``keep`` says so.

        Of the old ones that stay and the first and last new ones of each granule, those two are
        kept that are farthest apart.
        """
        if not (keep[0].any() or keep[1].any()):
            self.put(slots, at, records, site)
            return
        olds = [(s.records[at], s.sites[at]) for s in slots]
        stays = [self._any(at, k) for k in keep]
        self.put(slots, at, records, site)
        new = [(s.records[at], np.full(len(at), site, np.uint32)) for s in slots]
        choices = [
            (np.where(stay, r, np.uint64(0)), s) for (r, s), stay in zip(olds, stays, strict=True)
        ] + new
        best = np.full(len(at), -2.0)
        chosen = [np.zeros(len(at), np.int64), np.zeros(len(at), np.int64)]
        for i in range(4):
            for j in range(i + 1, 4):
                far = self._distance(choices[i][0], choices[j][0])
                better = far > best
                best = np.where(better, far, best)
                chosen[0] = np.where(better, i, chosen[0])
                chosen[1] = np.where(better, j, chosen[1])
        every = np.stack([c[0] for c in choices]), np.stack([c[1] for c in choices])
        column = np.arange(len(at))
        for slot, which in zip(slots, chosen, strict=True):
            slot.put(at, every[0][which, column], every[1][which, column])

    def _any(self, at: Array, flags: Array) -> BoolArray:
        """For each access whether the flag of any access to its granule is set."""
        scratch = self._scratch
        scratch[at] = 0
        scratch[at[flags]] = 1
        out: BoolArray = scratch[at] != 0
        return out

    def repeated(self, at: Array) -> BoolArray | None:
        """Which accesses are not the last of this step to their granule; None if none."""
        if len(at) < 2 or bool((at[1:] > at[:-1]).all()):
            return None
        scratch = self._scratch
        number = np.arange(len(at), dtype=np.uint64)
        scratch[at] = number
        out: BoolArray = scratch[at] != number
        return out if out.any() else None

    def last(self, at: Array) -> Array:
        """After :meth:`repeated`: the number of the last access of this step to each granule."""
        out: Array = self._scratch[at].astype(np.int64)
        return out

    def _distance(self, a: Array, b: Array) -> Array:
        """3 for other CTAs, 2 other warps, 1 other lanes, 0 the same; less where one is empty."""
        one, two = (np.asarray(x >> np.uint64(_LANE), np.int64) for x in (a, b))
        far = one // self.per != two // self.per
        out: Array = (one != two).astype(np.int64) + (one >> 5 != two >> 5) + far
        return np.where((a == 0) | (b == 0), -1 + ((a != 0) | (b != 0)) * 0.5, out)

"""Bulk copies and reductions: queued at issue, landed when they are waited for.

A copy into shared memory completes bytes of an mbarrier; one into global memory belongs to a bulk
group of its thread.  Both may land at any time between issue and the wait that sees them complete
(PTX ISA 9.1, Data Movement and Conversion: Bulk copy; the source is read at an unspecified time in
between).  Landing late (the default) and at once are the two ends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ..isa.protocol import Array, BoolArray, Site
from . import access
from .access import Access

if TYPE_CHECKING:
    from .group import Group
    from .wave import Wave

__all__ = ["BulkCopies", "BulkCopy", "Reduction"]

_ALIGN = 16
#: What a byte holds whose value is indeterminate.
_POISON = 0xDE


#: What becomes of each element, a function of old and source bits; and its size in bytes.
Reduction: TypeAlias = "tuple[Callable[[Array, Array], Array], int]"


@dataclass(slots=True)
class BulkCopy:
    """One bulk copy of one lane.

    ``source`` and ``target`` are byte offsets: into the wave's shared memory, or into the arena
    for global memory, as ``direction`` says (``global->shared``, ``shared->global``,
    ``shared->shared``).  ``mbarrier`` is the place of the object that it signals, in the phase
    ``phase``; ``group`` the number of the bulk group that it belongs to.
    """

    lane: int
    cta: int
    direction: str
    source: int
    target: int
    size: int
    mbarrier: int | None
    phase: int | None
    group: int | None
    site: Site
    reduction: Reduction | None = None
    #: how many bytes at either end become indeterminate, whatever the source has there
    ignored: tuple[int, int] = (0, 0)
    #: the source, once it has been read, and its shadow bytes: which bits are defined
    data: Array | None = None
    shadow: Array | None = None
    landed: bool = False

    @property
    def source_space(self) -> str:
        return self.direction.partition("->")[0]

    @property
    def target_space(self) -> str:
        return self.direction.partition("->")[2]


class BulkCopies:
    """The bulk copies of one wave."""

    def __init__(self, early: bool = False) -> None:
        self.early = early
        #: copies that have not landed, those that signal by mbarrier place, the others by lane
        self._signalling: dict[int, list[BulkCopy]] = {}
        self._grouped: dict[int, list[BulkCopy]] = {}
        #: those of them that have read their source, the first ones of each lane
        self._begun: dict[int, list[BulkCopy]] = {}
        #: copies that nobody has seen complete, or read, in the same way
        self._unseen: dict[int, list[BulkCopy]] = {}
        self._unread: dict[int, list[BulkCopy]] = {}
        self._committed: Array | None = None

    def _counts(self, wave: Wave) -> Array:
        if self._committed is None:
            self._committed = np.zeros(wave.size, np.int64)
        return self._committed

    # --- issue ----------------------------------------------------------------------------------

    def issue(
        self,
        group: Group,
        direction: str,
        target: Array,
        source: Array,
        size: Array,
        mbarrier: Array | None,
        mask: BoolArray | None,
        site: Site,
        reduction: Reduction | None = None,
        ignored: Sequence[Array] = (),
    ) -> None:
        """Check and queue a copy for each acting lane; addresses are in the spaces' own terms.

        ``ignored`` says how many bytes at the begin and at the end of the source do not matter,
        and may be outside of every allocation.
        """
        lanes = group.acting(mask)
        if not len(lanes):
            return
        wave = group.wave
        barriers = np.full(len(lanes), -1, np.int64)
        if mbarrier is not None:
            who = wave.service("mbarriers").locate(group, "shared", mbarrier, mask, site)
            wave.service("mbarriers").require(who)
            barriers = who.at
        sizes = group.full(size) if mask is None else group.full(size)[mask]
        _check_sizes(wave, lanes, sizes, site)
        from_, _, to = direction.partition("->")
        targets, sources = np.zeros(len(lanes), np.int64), np.zeros(len(lanes), np.int64)
        positions = np.arange(group.n) if mask is None else np.flatnonzero(mask)
        edges = np.zeros((2, len(lanes)), np.int64)
        for edge, value in zip(edges, ignored, strict=False):
            edge[:] = group.full(value) if mask is None else group.full(value)[mask]
        _check_ignored(wave, lanes, edges, site)
        kinds = (sizes.astype(np.int64) << 8) + (edges[0] << 4) + edges[1]
        for kind in np.unique(kinds[sizes > 0]).tolist():
            chosen = kinds == kind
            part = np.zeros(group.n, bool)
            part[positions[chosen]] = True
            n, ends = kind >> 8, (kind >> 4 & 15, kind & 15)
            sources[chosen] = _place(group, from_, n, source, part, False, site, ends)
            targets[chosen] = _place(group, to, n, target, part, True, site)
        numbers = self._counts(wave)[lanes]
        order = np.flatnonzero(sizes > 0)
        for k in order[::-1] if wave.reversed else order:
            lane, place = int(lanes[k]), int(barriers[k])
            signals = mbarrier is not None
            copy = BulkCopy(
                lane, lane // wave.lanes_per_cta, direction, int(sources[k]), int(targets[k]),
                int(sizes[k]), place if signals else None,
                wave.service("mbarriers").phase(place) if signals else None,
                None if signals else int(numbers[k]), site, reduction,
                (int(edges[0, k]), int(edges[1, k])),
            )  # fmt: skip
            self._start(wave, copy)

    def _start(self, wave: Wave, copy: BulkCopy) -> None:
        if wave.watch is not None:
            wave.watch.bulk_issued(wave, copy, copy.site)
        signals = copy.mbarrier is not None
        key = copy.lane if copy.mbarrier is None else copy.mbarrier
        (self._unseen if signals else self._unread).setdefault(key, []).append(copy)
        if self.early:
            self._land(wave, copy)
        else:
            (self._signalling if signals else self._grouped).setdefault(key, []).append(copy)

    # --- groups ---------------------------------------------------------------------------------

    def commit(self, wave: Wave, lanes: Array, site: Site) -> None:
        """cp.async.bulk.commit_group."""
        counts = self._counts(wave)
        if wave.watch is not None:
            for lane in lanes:
                wave.watch.bulk_committed(wave, int(lane), int(counts[lane]), site)
        counts[lanes] += 1

    def wait(self, wave: Wave, lanes: Array, pending: int, read: bool, site: Site) -> None:
        """cp.async.bulk.wait_group: all but the ``pending`` newest groups of these lanes."""
        limits = self._counts(wave)[lanes] - pending
        if self._unread or self._begun or self._grouped:
            for lane, limit in zip(lanes.tolist(), limits.tolist(), strict=True):
                self._wait(wave, lane, limit, read)
        if wave.watch is not None:
            for lane, limit in zip(lanes, limits, strict=True):
                wave.watch.bulk_waited(wave, int(lane), int(limit), read, site)

    def _wait(self, wave: Wave, lane: int, limit: int, read: bool) -> None:
        if lane in self._unread:
            _keep(self._unread, lane, lambda copy: (copy.group or 0) >= limit)
        if not read:
            for queues in (self._begun, self._grouped):
                for copy in _taken(queues, lane, limit):
                    self._land(wave, copy)
            return
        for copy in _taken(self._grouped, lane, limit):
            _read(wave, copy)
            self._begun.setdefault(lane, []).append(copy)

    # --- landing --------------------------------------------------------------------------------

    def deliver(self, wave: Wave, place: int) -> bool:
        """Land the oldest copy that signals the mbarrier at ``place``; whether there was one."""
        queue = self._signalling.get(place)
        if not queue:
            return False
        self._land(wave, queue.pop(0))
        return True

    def land_all(self, wave: Wave) -> bool:
        """Land whatever is in flight; whether anything was."""
        some = False
        for queues in (self._signalling, self._begun, self._grouped):
            for queue in queues.values():
                some = some or bool(queue)
                while queue:
                    self._land(wave, queue.pop(0))
        self._begun.clear()
        self._grouped.clear()
        return some

    def _land(self, wave: Wave, copy: BulkCopy) -> None:
        _read(wave, copy)
        _write(wave, copy)
        copy.landed = True
        if copy.mbarrier is not None:
            copy.phase = wave.service("mbarriers").complete_bytes(
                wave, copy.mbarrier, copy.size, copy.lane, copy.site
            )
        if wave.watch is not None:
            wave.watch.bulk_landed(wave, copy)

    # --- what has been seen ---------------------------------------------------------------------

    def observed(self, place: int, phase: int) -> None:
        """A wait has seen the phase of the mbarrier at ``place`` complete."""
        if place in self._unseen:
            _keep(self._unseen, place, lambda copy: not copy.landed or (copy.phase or 0) > phase)

    def in_flight_to(self, place: int) -> bool:
        """Whether a copy that signals the mbarrier at ``place`` was not seen complete."""
        return place in self._unseen

    def finish(self, wave: Wave) -> None:
        """At the end of the CTAs: land what is in flight, and report what nobody waited for."""
        unseen = [c for copies in self._unseen.values() for c in copies]
        unread = [c for copies in self._unread.values() for c in copies]
        _report(wave, unseen, "no wait has seen it complete, and its target is shared memory")
        _report(wave, unread, "no wait_group has seen its source read, which is shared memory")
        self.land_all(wave)


def _keep(lists: dict[int, list[BulkCopy]], key: int, stays: Callable[[BulkCopy], bool]) -> None:
    """Drop the copies of one list that do not stay, and the list when it is empty."""
    left = [c for c in lists[key] if stays(c)]
    if left:
        lists[key] = left
    else:
        del lists[key]


def _taken(queues: dict[int, list[BulkCopy]], lane: int, limit: int) -> list[BulkCopy]:
    """Take the copies of groups below ``limit`` out of the queue of a lane."""
    queue = queues.get(lane, [])
    count = bisect_left(queue, limit, key=lambda copy: copy.group or 0)
    taken = queue[:count]
    del queue[:count]
    return taken


def _report(wave: Wave, copies: Iterable[BulkCopy], why: str) -> None:
    by_site: dict[int, list[BulkCopy]] = {}
    for copy in copies:
        by_site.setdefault(id(copy.site), []).append(copy)
    for same in by_site.values():
        wave.report(
            "async-race",
            f"the CTA ends with a bulk copy in flight: {why}",
            same[0].site,
            np.unique([c.lane for c in same]),
            help="wait for the copy before the last thread of the CTA exits",
        )


def _check_sizes(wave: Wave, lanes: Array, sizes: Array, site: Site) -> None:
    bad = sizes % _ALIGN != 0
    if bad.any():
        wave.report(
            "bulk-args",
            f"the size of a bulk copy is a multiple of {_ALIGN}, not {int(sizes[bad][0])}",
            site,
            lanes[bad],
            fatal=True,
        )


def _check_ignored(wave: Wave, lanes: Array, edges: Array, site: Site) -> None:
    bad = edges >= _ALIGN
    if bad.any():
        wave.report(
            "bulk-args",
            f"fewer than {_ALIGN} bytes at an end are ignored, not {int(edges[bad][0])}",
            site,
            lanes[bad.any(axis=0)],
            fatal=True,
        )


def _place(
    group: Group, space: str, size: int, address: Array, part: BoolArray, writes: bool, site: Site,
    ignored: tuple[int, int] = (0, 0),
) -> Array:  # fmt: skip
    """The checked places of the lanes in ``part``; bytes at the ends may be anywhere."""
    what, full = Access(space, size, 1, site, align=_ALIGN), group.full(address)
    left, right = ignored
    if left or right:
        if (full[part] & np.uint64(_ALIGN - 1)).any():
            access.misaligned(group, what, space, full[part], np.flatnonzero(part))
        # no end is a whole chunk, so that some byte must be there
        what = Access(space, max(size - left - right, 1), 1, site, align=1)
        full = full + np.uint64(left)
    (found,) = access.places(group, what, full, part, write=writes)
    return found.at - left


def _bytes(wave: Wave, space: str) -> tuple[Array, Array | None]:
    """The bytes of a space, and their shadow where definedness is followed."""
    if space == "global":
        return wave.memory.bytes, wave.memory.shadow
    return wave.shared, None if wave.shared_written is None else wave.shared_written[1]


def _read(wave: Wave, copy: BulkCopy) -> None:
    if copy.data is not None:
        return
    whole = slice(copy.source, copy.source + copy.size)
    data, shadow = _bytes(wave, copy.source_space)
    copy.data = data[whole].copy()
    if shadow is not None:
        copy.shadow = shadow[whole].copy()
    left, right = copy.ignored
    for edge in (slice(0, left), slice(copy.size - right, None)):
        copy.data[edge] = _POISON
        if copy.shadow is not None:
            copy.shadow[edge] = 0


def _write(wave: Wave, copy: BulkCopy) -> None:
    assert copy.data is not None
    whole = slice(copy.target, copy.target + copy.size)
    data, shadow = _bytes(wave, copy.target_space)
    target = data[whole]
    if copy.reduction is None:
        target[:] = copy.data
    else:
        function, size = copy.reduction
        elements = np.dtype(f"u{size}")
        old = target.view(elements)
        old[:] = function(old.copy(), copy.data.view(elements))
    wave.memory.version += 1
    if shadow is not None:
        _write_shadow(wave, copy, shadow[whole])


def _write_shadow(wave: Wave, copy: BulkCopy, shadow: Array) -> None:
    """Undefined bytes stay undefined; a reduction of one has an undefined result."""
    new = np.uint8(0xFF) if copy.shadow is None else copy.shadow
    shadow[:] = new & shadow if copy.reduction is not None else new
    if (shadow == 0xFF).all():
        return
    if copy.target_space == "shared":
        wave.shared_incomplete()
        return
    allocation = wave.memory.find(copy.target)
    assert allocation is not None
    allocation.maybe_undefined = True

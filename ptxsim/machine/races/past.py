"""What lanes knew at earlier times (see :mod:`.clocks`), kept for the whole launch.

Each change of what a lane knows is kept with the time of its warp from which on it holds, so the
state at any earlier time is found by bisection.  Lanes, warps and CTAs are global ones.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ...isa.protocol import Array
from .clocks import Clock

__all__ = ["Past"]

T = TypeVar("T")


@dataclass(slots=True)
class _Track(Generic[T]):
    """Values, each with the time from which on it holds."""

    times: list[int] = field(default_factory=list)
    values: list[T] = field(default_factory=list)

    def put(self, time: int, value: T) -> None:
        if self.times and self.times[-1] == time:
            self.values[-1] = value
        elif not self.values or self.values[-1] is not value:
            self.times.append(time)
            self.values.append(value)

    def at(self, time: int) -> T | None:
        k = bisect_right(self.times, time)
        return self.values[k - 1] if k else None


class Past:
    """The changes; of what a lane knows only ever more is added."""

    def __init__(self, per_cta: int) -> None:
        self.per = per_cta
        #: times at which lanes ended: who meets later does not learn from them
        self.ended: dict[int, int] = {}
        self._met: dict[int, list[int]] = {}
        self._full: dict[int, list[int]] = {}
        self._rows: dict[int, _Track[Array]] = {}
        self._partial: dict[int, _Track[Array]] = {}
        #: clocks that all lanes of a CTA, all of a warp, and single ones had
        self._of_cta: dict[int, _Track[Clock]] = {}
        self._of_warp: dict[int, _Track[Clock]] = {}
        self._of_lane: dict[int, _Track[Clock]] = {}

    # --- changes --------------------------------------------------------------------------------

    def met(self, cta: int, time: int) -> None:
        """All lanes of a CTA know what is older than this time."""
        self._met.setdefault(cta, []).append(time)

    def synced(self, warp: int, time: int) -> None:
        """All lanes of a warp know of each other what is not newer than this time."""
        self._full.setdefault(warp, []).append(time)

    def learned(self, warp: int, time: int, row: Array) -> None:
        """From a time on all lanes of a warp know of the warps of their CTA up to these times."""
        self._rows.setdefault(warp, _Track()).put(time, row.copy())

    def mixed(self, warp: int, time: int, rows: Array) -> None:
        """From a time on each lane of a warp knows of the others up to these times."""
        self._partial.setdefault(warp, _Track()).put(time, rows)

    def shared(self, cta: int, time: int, clock: Clock) -> None:
        """From a time on all lanes of a CTA know a clock."""
        self._of_cta.setdefault(cta, _Track()).put(time, clock)

    def passed_on(self, warp: int, time: int, clock: Clock) -> None:
        """From a time on all lanes of a warp know a clock."""
        self._of_warp.setdefault(warp, _Track()).put(time, clock)

    def acquired(self, lane: int, time: int, clock: Clock) -> None:
        """From a time on a lane knows a clock."""
        self._of_lane.setdefault(lane, _Track()).put(time, clock)

    # --- questions ------------------------------------------------------------------------------

    def clocks(self, lane: int, when: int) -> list[Clock]:
        """The clocks that a lane knew at a time of its warp, of other lanes."""
        found = (
            (self._of_cta, lane // self.per),
            (self._of_warp, lane >> 5),
            (self._of_lane, lane),
        )
        known = [tracks[key].at(when) for tracks, key in found if key in tracks]
        return [clock for clock in known if clock is not None]

    def bound(self, lane: int, when: int, owner: int) -> int:
        """The newest time of another lane that a lane knew at a time of its warp, or -1.

        Of itself it knows what is older.
        """
        if lane == owner:
            return when - 1
        end = self.ended.get(owner, when)
        warp, other = lane >> 5, owner >> 5
        cta = lane // self.per
        best = -1
        if cta == owner // self.per:
            met = self._met.get(cta, ())
            k = bisect_right(met, min(when, end))
            if k:
                best = met[k - 1] - 1
            if warp == other:
                full = self._full.get(warp, ())
                k = bisect_left(full, min(when, end))
                best = max(best, full[k - 1]) if k else best
                mixed = self._partial[warp].at(when) if warp in self._partial else None
                if mixed is not None:
                    best = max(best, int(mixed[lane & 31, owner & 31]))
            if warp in self._rows and warp != other:
                inside = other % (self.per >> 5)
                rows = self._rows[warp]
                k = bisect_right(rows.times, when)
                if owner in self.ended:
                    k = bisect_left(rows.values, end, 0, k, key=lambda row: int(row[inside]))
                best = max(best, int(rows.values[k - 1][inside])) if k else best
        for clock in self.clocks(lane, when):
            best = max(best, clock.newest(owner))
        return best

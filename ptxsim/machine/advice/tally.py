"""What the requests of one instruction add up to."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...isa.protocol import Array, Site
from .cures import Pattern
from .requests import WORD, Requests, sectors, wavefronts

__all__ = ["Tally", "Worst"]

#: Different patterns of conflicts that are kept of an instruction; with more no cure is looked for.
_MOST_PATTERNS = 16


@dataclass(frozen=True, slots=True)
class Worst:
    """The costliest request: its pattern, from where on it counts, and its warp of the wave."""

    pattern: Pattern
    start: int
    warp: int


@dataclass(slots=True)
class Tally:
    """Requests of ``site`` to a space: what they cost (wavefronts or sectors) and could cost."""

    site: Site
    space: str
    kind: str
    size: int
    requests: int = 0
    cost: int = 0
    best: int = 0
    #: different words that a bank was asked for at once, at most
    ways: int = 0
    worst: Worst | None = None
    patterns: dict[bytes, Pattern] = field(default_factory=dict)
    _worst_excess: int = 0

    @property
    def known(self) -> bool:
        """Whether ``patterns`` has all kinds of request that cost more than they need."""
        return len(self.patterns) <= _MOST_PATTERNS

    def add_shared(self, requests: Requests) -> None:
        """Count requests to shared memory in wavefronts."""
        w = wavefronts(requests)
        self._count(len(w.needed), int(w.needed.sum()), int(w.best.sum()))
        excess = w.needed - w.best
        if not excess.any():
            return
        self.ways = max(self.ways, int(w.ways.max()))
        self._keep_worst(requests, excess)
        rows = np.flatnonzero(excess)
        self._keep_patterns(requests, rows[:1] if requests.alike else rows)

    def add_global(self, requests: Requests) -> None:
        """Count requests to global memory in sectors."""
        moved, best = sectors(requests)
        self._count(len(moved), int(moved.sum()), int(best.sum()))
        excess = moved - best
        if excess.any():
            self._keep_worst(requests, excess)

    def _count(self, requests: int, cost: int, best: int) -> None:
        self.requests += requests
        self.cost += cost
        self.best += best

    def _keep_worst(self, requests: Requests, excess: Array) -> None:
        row = int(excess.argmax())
        if int(excess[row]) <= self._worst_excess:
            return
        self._worst_excess = int(excess[row])
        pattern, start = _pattern(requests, row)
        self.worst = Worst(pattern, start, int(requests.warps[row]))

    def _keep_patterns(self, requests: Requests, rows: Array) -> None:
        for row in rows:
            if not self.known:
                return
            pattern, _ = _pattern(requests, int(row))
            self.patterns[pattern[0].tobytes() + pattern[1].tobytes()] = pattern


def _pattern(requests: Requests, row: int) -> tuple[Pattern, int]:
    """The addresses of a request from its first word on, and where that is."""
    at = requests.at[row]
    acting = np.ones(32, bool) if requests.acting is None else requests.acting[row]
    start = int(at[acting].min()) // WORD * WORD
    return (np.where(acting, at - start, 0), acting), start

"""What to say when every lane waits: who waits where, for which lanes, and where those are."""

from __future__ import annotations

from typing import Any

import numpy as np

from .barriers import Barriers
from .group import Group

__all__ = ["explain"]


def _whereabouts(
    missing: np.ndarray[Any, Any], others: list[tuple[Group, Any]]
) -> tuple[str, int | None]:
    """In words: where the missing lanes stand; and the line of the first place."""
    for group, site in others:
        if np.isin(group.lanes, missing).any() and site is not None:
            return f"at line {site.line} ('{site.text}')", site.line
    return "elsewhere", None


def _ranges(numbers: list[int]) -> str:
    """Ascending numbers in words.

    >>> _ranges([0, 1, 2, 3, 7])
    '0-3,7'
    """
    parts: list[list[int]] = []
    for n in numbers:
        if parts and parts[-1][1] == n - 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def explain(scheduler: Any, waiting: list[Group], barriers: Barriers) -> None:
    """Report the lanes that wait for ever; the first report ends the launch."""
    wave = scheduler.wave
    parked = barriers.parked()
    everyone = [(g, g.block.site) for g in waiting] + [(g, a.site) for g, a in parked]
    waiting = sorted(waiting, key=lambda g: g.block.site.line if g.block.site else 0)
    for group in waiting:
        site = group.block.site
        assert site is not None
        warps = np.unique(group.lanes >> 5)
        lanes_of_warps = (warps[:, None] * 32 + np.arange(32)).reshape(-1)
        alive = lanes_of_warps[wave.alive[lanes_of_warps]]
        missing = np.setdiff1d(alive, group.lanes)
        others = [(g, s) for g, s in everyone if g is not group]
        where, line = _whereabouts(missing, others)
        names = _ranges([int(m) & 31 for m in missing if m >> 5 == warps[0]])
        kind = group.block.waits_as
        if kind == "mask-mismatch":
            message = (
                f"'{site.text}' waits for lanes that its member mask names and that do not come:"
                f" lanes {names} of the warp are {where}"
            )
            cure = "compute the mask where all lanes are together, or name only the lanes that come"
        elif kind == "barrier-divergence":
            message = (
                f"'{site.text}' must be executed by all lanes of a warp together;"
                f" lanes {names} are {where}"
            )
            cure = "move the barrier out of the divergent branch"
        else:
            message = f"'{site.text}' must be executed by the whole warp; lanes {names} are {where}"
            cure = "execute the instruction where the warp is converged"
        wave.report(kind, message, site, group.lanes, help=cure, other_line=line, fatal=True)
    group, arrival = parked[0]
    missing = np.setdiff1d(np.flatnonzero(wave.alive), np.concatenate([g.lanes for g, _ in parked]))
    elsewhere = [a.site for _, a in parked[1:] if a.barrier != arrival.barrier]
    line = elsewhere[0].line if elsewhere else None
    need = "all threads of the CTA" if arrival.count is None else f"{arrival.count} threads"
    more = f"; others wait at line {line}" if line else ""
    wave.report(
        "deadlock",
        f"barrier {arrival.barrier} waits for {need}, but no more threads can come{more}",
        arrival.site,
        group.lanes,
        help="every thread that the barrier counts must execute it",
        other_line=line,
        fatal=True,
        missing=len(missing),
    )

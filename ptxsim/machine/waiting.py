"""What to say when every lane waits: who waits where, for which lanes, and where those are."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..isa.protocol import Array, Site
from .arrival import Arrival
from .barriers import Barriers
from .group import Group
from .mbarriers import Mbarrier
from .wave import Wave

__all__ = ["deadlock", "explain", "land_copies"]


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


def land_copies(wave: Wave) -> bool:
    """Land what is in flight, which no wait may have asked for; whether anything was."""
    return bool(wave.service("bulk_copies").land_all(wave))


def deadlock(
    wave: Wave, later: list[Group], waiting: list[Group], parked: list[tuple[Group, Arrival]]
) -> None:
    """Report loops that can never end; the report ends the launch."""
    barriers = wave.service("mbarriers")
    found: tuple[Mbarrier, Site, Array] | None = None
    stops: list[tuple[Group, Site | None, str]] = []
    for group in later:
        group.compact(group.block.live)
        stuck = barriers.waited_for(group.lanes)
        found = found or stuck
        what = "a loop" if stuck is None else f"the mbarrier at {_offset(wave, stuck[0])}"
        stops.append((group, group.block.site if stuck is None else stuck[1], what))
    stops += [(g, g.block.site, f"'{g.block.site.text}'") for g in waiting if g.block.site]
    stops += [(g, a.site, f"barrier {a.barrier}") for g, a in parked]
    if found is not None:
        _mbarrier_deadlock(wave, found, stops)
    group = later[0]
    others = [site for _, site, _ in stops[1:] if site is not None]
    where = "; ".join(f"others at line {s.line} ('{s.text}')" for s in others[:3])
    wave.report(
        "deadlock",
        "this loop can never end: memory and registers do not change any more"
        + (f"; {where}" if where else ""),
        group.block.site,
        group.lanes,
        help="check who should write what the loop waits for, and whether it still runs",
        other_line=others[0].line if others else None,
        other_column=others[0].column if others else 0,
        fatal=True,
        waiting=_standing(wave, int(group.cta[0]), stops),
    )


def _mbarrier_deadlock(
    wave: Wave,
    found: tuple[Mbarrier, Site, Array],
    stops: list[tuple[Group, Site | None, str]],
) -> None:
    b, site, lanes = found
    message = (
        f"'{site.text}' waits for ever: the mbarrier of line {b.site.line}, at shared address"
        f" {_offset(wave, b)}, is in {b}, and no thread or copy can change that"
    )
    class_, cure = "deadlock", _cure(b)
    if b.phase == 1 and b.observed < 0:
        # had it come before phase 0 was complete, the same wait would have passed at once
        class_ = "mbarrier"
        message += "; no wait has seen phase 0 complete, whose parity is the other one"
        cure = "wait with the parity of the phase whose data is needed: 0 for the first one"
    wave.report(
        class_,
        message,
        site,
        lanes,
        help=cure,
        other_line=b.site.line,
        other_column=b.site.column,
        fatal=True,
        phase=b.phase,
        pending=b.pending,
        expected=b.expected,
        tx_count=b.tx,
        waiting=_standing(wave, int(lanes[0]) // wave.lanes_per_cta, stops),
    )


def _offset(wave: Wave, b: Mbarrier) -> str:
    return f"{b.place % wave.shared_stride:#x}"


def _cure(b: Mbarrier) -> str:
    if b.pending and b.tx <= 0:
        return "a phase needs as many arrivals as mbarrier.init counts; expect_tx alone is not one"
    if b.tx:
        return "the bytes of expect_tx are those of the copies that signal the mbarrier"
    return "compare the phase that the wait asks for with the phases that arrivals complete"


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
    _barrier_deadlock(wave, parked, barriers)


def _barrier_deadlock(wave: Wave, parked: list[tuple[Group, Arrival]], barriers: Barriers) -> None:
    group, arrival = parked[0]
    cta = int(group.cta[0])
    elsewhere = [
        a for g, a in parked[1:] if a.barrier != arrival.barrier and bool((g.cta == cta).any())
    ]
    come = barriers.come(arrival.barrier, cta)
    need = "all threads of the CTA" if arrival.count is None else f"{arrival.count} threads"
    other = ""
    if elsewhere:
        other = f"; others wait for barrier {elsewhere[0].barrier} at line {elsewhere[0].site.line}"
    wave.report(
        "deadlock",
        f"barrier {arrival.barrier} waits for {need}: {come} have come, and no more can{other}",
        arrival.site,
        group.lanes,
        help="every thread that the barrier counts must execute it",
        other_line=elsewhere[0].site.line if elsewhere else None,
        other_column=elsewhere[0].site.column if elsewhere else 0,
        fatal=True,
        waiting=_standing(wave, cta, [(g, a.site, f"barrier {a.barrier}") for g, a in parked]),
    )


def _standing(wave: Wave, cta: int, stops: list[tuple[Group, Site | None, str]]) -> str:
    """Where each warp of a CTA waits, and for what; who has ended comes last.

    As in ``warps 0-1: line 20 (barrier 1); warp 2, lanes 0-15: line 24 (barrier 2)``.
    """
    first = cta * wave.lanes_per_cta
    size = wave.geometry.threads
    parts = []
    for group, site, what in stops:
        lanes = group.lanes[group.cta == cta] - first
        if len(lanes):
            line = f"line {site.line} ({what})" if site is not None else what
            parts.append(f"{_who(lanes, size)}: {line}")
    ended = np.flatnonzero(~wave.alive[first : first + size])
    if len(ended):
        parts.append(f"{_who(ended, size)}: ended")
    return "; ".join(parts)


def _who(threads: Array, size: int) -> str:
    """Threads of a CTA of a size, by warps, and by lanes where those of a warp are parted."""
    whole, parted = [], []
    for warp in np.unique(threads >> 5):
        lanes = threads[threads >> 5 == warp] & 31
        if len(lanes) == min(32, size - 32 * int(warp)):
            whole.append(int(warp))
        else:
            parted.append(f"warp {warp}, lanes {_ranges([int(n) for n in lanes])}")
    if whole:
        parted.insert(0, f"warp{'s' if len(whole) > 1 else ''} {_ranges(whole)}")
    return " and ".join(parted)

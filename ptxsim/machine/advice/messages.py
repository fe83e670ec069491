"""Advice in words, for what costs clearly more than it would have to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from ...isa.protocol import Array, Site
from .activity import Activity
from .barriers import BarrierUse
from .cures import Pattern, padding, stride
from .leavers import Reads
from .requests import SECTOR, Requests, bank_words
from .tally import Tally

if TYPE_CHECKING:
    from ...program import Block
    from ..wave import Geometry, Wave

__all__ = ["Advice", "conflicts", "idle", "inactive", "left", "scattered"]

#: How many times the fewest wavefronts, or sectors, are worth advice.
_WAVEFRONTS = 1.25
_SECTORS = 2.0
#: Below this many requests to global memory how they lie matters little.
_REQUESTS = 4
#: Blocks with few active lanes: the part of the launched lanes that is few, the part of all warp
#: instructions and the number of executions that are many, and how many blocks are shown.
_FEW, _SHARE, _EXECUTIONS, _BLOCKS = 0.25, 0.1, 32, 3


@dataclass(frozen=True, slots=True)
class Advice:
    """One piece of advice; ``more`` is further data of the finding."""

    class_: str
    message: str
    site: Any
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Line:
    """The line of a block that has no instruction of its own to name."""

    line: int


# --- shared memory --------------------------------------------------------------------------------


def conflicts(t: Tally, wave: Wave, widest: Tally) -> Advice | None:
    """Bank conflicts of an instruction, and the padding that removes them.

    ``widest`` has the largest accesses to shared memory, which may be to the same rows.
    """
    if t.cost < _WAVEFRONTS * t.best or t.worst is None:
        return None
    average, best = t.cost / t.requests, t.best / t.requests
    same = abs(average - t.ways * best) < 0.05
    message = (
        f"{'' if same else 'up to '}{t.ways}-way bank conflicts:"
        f" {_amount(average)} wavefronts a request, {_amount(best)} would do"
    )
    pattern = t.worst.pattern
    base = t.worst.warp // wave.geometry.warps * wave.shared_stride
    more = _where(t, wave, t.worst.start - base)
    return Advice(
        "bank-conflict", message, t.site,
        {
            **more, "help": _parted(t, widest), "space": "shared", "ways": t.ways,
            "banks": _histogram(pattern, t.worst.start, t.size),
            "requests": t.requests, "wavefronts": t.cost, "fewest": t.best,
        },
    )  # fmt: skip


def _parted(t: Tally, widest: Tally) -> str:
    patterns = list(t.patterns.values())
    cure = padding(patterns, t.size) if t.known else None
    note = ""
    if cure is not None and cure[0] % widest.size == 0 and cure[1] % widest.size:
        aligned = padding(patterns, t.size, widest.size)
        if aligned is None:
            note = (
                f"; if these are the rows of line {widest.site.line}, its {widest.size} bytes must"
                " stay aligned: swizzle them instead"
            )
        cure = aligned or cure
    if cure is None:
        return "lay the data out so that lanes of one phase reach different banks, or swizzle it"
    pitch, more = cure
    return (
        f"the lanes' rows are {pitch} bytes apart; {pitch + more} bytes apart ({more} of padding"
        f" to a row) this instruction has no conflict{note}"
    )


def _histogram(pattern: Pattern, start: int, size: int) -> str:
    """Different words by bank, as ``0-3:8``, of the phase with the fullest bank."""
    at, acting = pattern
    counts = bank_words(Requests((at + start)[None], acting[None], np.zeros(1, np.int64), size))[0]
    words = [int(n) for n in counts[counts.max(axis=1).argmax()]]
    parts = []
    for number, same in groupby(range(len(words)), lambda bank: words[bank]):
        first, *rest = same
        if number:
            parts.append(f"{first}-{rest[-1]}:{number}" if rest else f"{first}:{number}")
    return " ".join(parts)


# --- global memory --------------------------------------------------------------------------------


def scattered(t: Tally, wave: Wave) -> Advice | None:
    """Accesses of an instruction that move more sectors than they use."""
    if t.cost <= _SECTORS * t.best or t.worst is None or t.requests < _REQUESTS:
        return None
    average, best = t.cost / t.requests, t.best / t.requests
    message = (
        f"{_amount(average)} sectors of {SECTOR} bytes a request,"
        f" {_amount(best)} would hold its bytes"
    )
    apart = stride(*t.worst.pattern)
    if apart is None:
        help_ = "let consecutive lanes access consecutive elements, or go through shared memory"
    else:
        help_ = (
            f"lanes are {abs(apart)} bytes apart and access {t.size} each; let consecutive lanes"
            " access consecutive elements"
        )
    return Advice(
        "uncoalesced", message, t.site,
        {
            **_where(t, wave, t.worst.start + wave.memory.base), "help": help_,
            "space": "global", "requests": t.requests, "sectors": t.cost, "fewest": t.best,
        },
    )  # fmt: skip


def _where(t: Tally, wave: Wave, start: int) -> dict[str, Any]:
    """The lanes of the worst request and their addresses."""
    assert t.worst is not None
    at, acting = t.worst.pattern
    lanes = np.flatnonzero(acting)
    addresses: Array = at[lanes] + start
    return {
        "count": t.requests, "warp": t.worst.warp % wave.geometry.warps,
        "lanes": tuple(int(n) for n in lanes), "addresses": [int(a) for a in addresses],
        "address": int(addresses[0]), "size": t.size,
    }  # fmt: skip


# --- barriers and divergence ----------------------------------------------------------------------


def idle(use: BarrierUse) -> Advice | None:
    """A barrier that never had anything to order."""
    if use.idle < use.opened or not use.opened:
        return None
    times = "once" if use.opened == 1 else f"{use.opened:,} times"
    return Advice(
        "redundant-barrier",
        f"this barrier orders nothing: it opened {times}, and no thread of its CTA had accessed"
        " shared or global memory since the barrier before it",
        use.site,
        {"count": use.opened, "help": "leave it out, if no input makes it needed"},
    )


def left(wave: Wave, site: Site, space: str, reads: Reads) -> Advice:
    """A read of what a thread stored that had ended before the barrier between them."""
    first, place = reads.first, int(reads.places[0])
    start = int(reads.lanes[0]) // wave.lanes_per_cta * wave.shared_stride
    warp = int(reads.writers[0]) >> 5
    writers = np.unique(reads.writers[reads.writers >> 5 == warp])
    return Advice(
        "exited-store",
        f"reads what '{first.text}' at line {first.line} stored in a thread that then ended: the"
        " barrier between them, to which it did not come, need not order its stores",
        site,
        {
            "other_line": first.line,
            "other_column": first.column,
            "other_warp": warp % wave.geometry.warps,
            "other_lanes": tuple(int(lane) & 31 for lane in writers),
            "space": space,
            "address": place - start if space == "shared" else place + wave.memory.base,
            "help": "let threads that have stored come to the barrier (bar.sync or bar.arrive)"
            " before they end",
        },
    )


@dataclass(frozen=True, slots=True)
class _Work:
    """Instructions that few lanes run: their lines, how often warps ran them, and lanes a time."""

    lines: tuple[int, ...]
    warps: int
    lanes: float
    #: the lanes come here, but their guards are false
    guarded: bool

    @property
    def cost(self) -> int:
        """Instructions of warps."""
        return self.warps * len(self.lines)


def inactive(activity: Activity, geometry: Geometry) -> list[Advice]:
    """The stretches that cost most of those that few lanes run."""
    few = _FEW * geometry.threads / geometry.warps
    total = activity.instructions
    found: list[_Work] = []
    for block, warps in activity.warps.items():
        if warps >= _EXECUTIONS:
            found += _little(block, warps, few)
    found = [work for work in found if work.cost >= _SHARE * total]
    found.sort(key=lambda work: (-work.cost, work.lines))
    return [_inactive(work, work.cost / total) for work in found[:_BLOCKS]]


def _little(block: Block, warps: int, few: float) -> Iterator[_Work]:
    """What of a block fewer lanes than ``few`` run: all of it, or instructions with guards."""
    lanes = block.lane_executions / warps
    if lanes < few:
        if block.lines:
            yield _Work(block.lines, warps, lanes, False)
        return
    idle = [use for use in block.guarded if use.works and use.lanes < few * warps]
    if idle:
        lanes = sum(use.lanes for use in idle) / (warps * len(idle))
        yield _Work(tuple(use.line for use in idle), warps, lanes, True)


def _inactive(work: _Work, share: float) -> Advice:
    first, last = min(work.lines), max(work.lines)
    where = f"line {first}" if first == last else f"lines {first} to {last}"
    what = "have a true guard" if work.guarded else "are active"
    return Advice(
        "low-activity",
        f"{where}: {work.lanes:.1f} of 32 lanes {what} on average, in"
        f" {work.cost:,} warp instructions ({share:.0%} of the launch)",
        _Line(first),
        {
            "count": work.warps,
            "help": "give the work of a branch or guard to whole warps, or to all lanes by turns",
        },
    )


def _amount(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")

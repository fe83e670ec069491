"""Compares every pair of accesses to one byte: which conflict and are not ordered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ptxsim.isa.order import SCOPES
from ptxsim.isa.protocol import Array, BoolArray

__all__ = ["NEVER", "Clock", "Event", "Fence", "Unordered", "unordered_pairs"]

#: The time of what is not known to be complete.
NEVER = np.iinfo(np.int64).max
_GPU = SCOPES.index("gpu")


class Unordered(NamedTuple):
    """Two lines with a conflicting pair that nothing orders; ``proxy``: only a fence is missing."""

    kind: str
    line: int
    other_line: int


class Clock(NamedTuple):
    """What a thread knows: a time of each thread, and the asynchronous work that is complete."""

    times: Array
    done: frozenset[int]


class Fence(NamedTuple):
    """A proxy fence of a thread, when it was, and what the thread knew."""

    thread: int
    issued: int
    time: int
    version: int


@dataclass(slots=True)
class Event:
    """Accesses by several threads at once.

    ``issued`` and ``done`` count events of the launch; ``done`` is when an access was complete for
    its own thread, ``time`` the thread's time then.  ``version`` numbers the clock of the thread.
    """

    thread: Array
    time: Array
    version: Array
    issued: int
    done: Array
    key: Array
    size: int
    line: int
    writes: bool
    scope: int = -1
    atomic: bool = False
    proxy: bool = False
    values: Array | None = None
    token: Array | None = None

    def numbers(self) -> Array:
        """The columns of :class:`_Table`, one row for each access."""
        n = len(self.thread)
        value = np.full(n, -1, np.int64)
        if self.values is not None:
            wide = np.zeros((n, 8), np.uint8)
            wide[:, : self.values.shape[1]] = self.values
            value = wide.view(np.int64)[:, 0]
        token = np.zeros(n, np.int64) if self.token is None else self.token
        fixed = (
            self.issued, self.size, self.line, self.writes, self.scope, self.atomic, self.proxy,
            self.values is not None,
        )  # fmt: skip
        same = [np.full(n, int(v), np.int64) for v in fixed]
        return np.stack(
            [self.thread, self.time, self.version, self.done, self.key, value, token, *same]
        )


class _Table:
    """All accesses of a launch as columns."""

    def __init__(self, rows: Array) -> None:
        (
            self.thread, self.time, self.version, self.done, self.key, self.value, self.token,
            self.issued, self.size, self.line, self.writes, self.scope, self.atomic, self.proxy,
            self.valued,
        ) = rows  # fmt: skip


def unordered_pairs(
    events: Sequence[Event], versions: Sequence[Clock], fences: Sequence[Fence], per: int
) -> set[Unordered]:
    """The lines of all conflicting pairs that are not ordered; ``per`` is the threads of a CTA."""
    if not events:
        return set()
    t = _Table(np.concatenate([e.numbers() for e in events], axis=1))
    access, group = _by_byte(t)
    known = np.stack([c.times for c in versions])
    out: set[Unordered] = set()
    for distance in range(1, len(access)):
        near = np.flatnonzero(group[distance:] == group[:-distance])
        if not len(near):
            break
        x, y = access[near], access[near + distance]
        conflict = (t.writes[x] | t.writes[y]) != 0
        x, y = x[conflict], y[conflict]
        race = ~_ordered(t, known, versions, x, y)
        bad = race & ~_strong(t, per, x, y) & ~_same(t, x, y)
        for a, b in {*zip(t.line[x[bad]].tolist(), t.line[y[bad]].tolist(), strict=True)}:
            out.add(Unordered("race", a, b))
        crossing = ~race & (t.proxy[x] == 0) & (t.proxy[y] != 0) & (t.writes[x] != 0)
        for a, b in zip(x[crossing].tolist(), y[crossing].tolist(), strict=True):
            if not any(_passes(t, known, a, b, f) for f in fences):
                out.add(Unordered("proxy", int(t.line[a]), int(t.line[b])))
    return out


def _by_byte(t: _Table) -> tuple[Array, Array]:
    """Accesses in the order of bytes and of time, and the number of the byte of each.

    Bytes that nobody writes are left out; of bytes with the same accesses one stays.
    """
    access = np.repeat(np.arange(len(t.key)), t.size)
    inside = np.arange(len(access)) - np.repeat(np.cumsum(t.size) - t.size, t.size)
    byte = t.key[access] + inside
    order = np.lexsort((t.issued[access], byte))
    access, byte = access[order], byte[order]
    first = np.flatnonzero(np.r_[True, byte[1:] != byte[:-1]])
    name = np.random.default_rng(0).integers(1, 1 << 62, len(t.key))
    written = np.add.reduceat(t.writes[access], first) > 0
    signature = np.add.reduceat(name[access], first)
    _, chosen = np.unique(np.where(written, signature, 0), return_index=True)
    keep = np.zeros(len(first), bool)
    keep[chosen] = True
    keep &= written
    lengths = np.diff(np.r_[first, len(access)])
    rows = np.repeat(keep, lengths)
    number = np.repeat(np.arange(len(first)), lengths)
    return access[rows], number[rows]


def _ordered(t: _Table, known: Array, versions: Sequence[Clock], x: Array, y: Array) -> BoolArray:
    """Whether x, which ran first, comes before y in causality order."""
    reaches = (t.thread[x] == t.thread[y]) | (known[t.version[y], t.thread[x]] >= t.time[x])
    out: BoolArray = (t.done[x] < t.issued[y]) & reaches
    for k in np.flatnonzero(~out & (t.token[x] > 0)):
        out[k] = int(t.token[x[k]]) in versions[t.version[y[k]]].done
    return out


def _strong(t: _Table, per: int, x: Array, y: Array) -> BoolArray:
    """Whether both are strong, of scopes that hold each other, and overlap completely."""
    near = t.thread[x] // per == t.thread[y] // per
    wide = np.minimum(t.scope[x], t.scope[y])
    whole = ((t.size[x] == t.size[y]) & (t.key[x] == t.key[y])) | ((t.atomic[x] & t.atomic[y]) != 0)
    out: BoolArray = (wide >= 0) & (near | (wide >= _GPU)) & whole
    return out


def _same(t: _Table, x: Array, y: Array) -> BoolArray:
    """Whether both write the same: whichever comes last, the bytes are equal."""
    valued = (t.valued[x] & t.valued[y]) != 0
    place = (t.size[x] == t.size[y]) & (t.key[x] == t.key[y])
    out: BoolArray = valued & place & (t.value[x] == t.value[y])
    return out


def _passes(t: _Table, known: Array, x: int, y: int, fence: Fence) -> bool:
    """Whether a proxy fence is on the way from x to y."""
    before = (
        t.issued[x] < fence.issued
        if t.thread[x] == fence.thread
        else known[fence.version, t.thread[x]] >= t.time[x]
    )
    after = (
        fence.issued < t.issued[y]
        if t.thread[y] == fence.thread
        else known[t.version[y], fence.thread] >= fence.time
    )
    return bool(before and after)

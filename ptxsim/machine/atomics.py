"""Atomic operations of many lanes at once.

Lanes that meet at an address are served in the order of the schedule (lane order, or reversed).
They are sorted by address; then the k-th lanes of all addresses are served together, round after
round.  Associative operations on integers use a segmented scan instead when many lanes meet.
Words of 128 bits are rows of two 64-bit words here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..isa.protocol import Array, BoolArray
from .access import Access, Place, arrays, places
from .definedness import follow_atomic, shadows_of

if TYPE_CHECKING:
    from .group import Group

__all__ = ["apply"]

_SCANS = {
    "add": np.add,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "min_u": np.minimum,
    "max_u": np.maximum,
    "min_s": np.minimum,
    "max_s": np.maximum,
}


def apply(
    group: Group,
    access: Access,
    address: Array,
    operation: Callable[..., Array],
    elements: Sequence[Sequence[Array]],
    mask: BoolArray | None,
    scan: str,
) -> list[Array]:
    """The value of each element that each lane saw; zero where ``mask`` is false.

    Lanes cannot meet at different elements: a vector is aligned to its whole size.
    """
    wave = group.wave
    wide = access.size == 16
    if address.shape[0] == 1 and group.n > 1:
        address = np.broadcast_to(address, (group.n,))
    shape, dtype = ((group.n, 2), "u8") if wide else ((group.n,), f"u{access.size}")
    out = [np.zeros(shape, dtype) for _ in elements]
    unknown, group.storing = group.storing or [], None
    group.loaded = None
    for p in places(group, access, address, mask, write=True):
        views = arrays(wave, p.space)
        if wave.checked:
            follow_atomic(group, access, p, unknown, scan)
        elif p.space == "undefined":
            shadows = shadows_of(wave, p.space)
            assert shadows is not None
            shadows[1][p.at[:, None] + np.arange(access.total)] = 0xFF
        if wave.watch is not None:
            wave.watch.atomic(group, access, p)
        view = _pairs(views[8]) if wide else views[access.size]
        for k, operands in enumerate(elements):
            values = [_acting(group.full(v).T, p) for v in operands]
            old = _serve(view, p.at // access.size + k, operation, values, scan, wave.reversed)
            if p.lanes is None:
                out[k] = old
            else:
                out[k][p.lanes] = old
    wave.memory.version += 1
    return [old.T for old in out]


def _pairs(words: Array) -> Array:
    """Memory as words of 128 bits."""
    return words[: len(words) // 2 * 2].reshape(-1, 2)


def _acting(value: Array, p: Place) -> Array:
    return value if p.lanes is None else value[p.lanes]


def _serve(
    view: Array,
    index: Array,
    operation: Callable[..., Array],
    values: list[Array],
    scan: str,
    reverse: bool,
) -> Array:
    n = len(index)
    if reverse:
        index, values = index[::-1], [v[::-1] for v in values]
    order = np.argsort(index, kind="stable")
    at = index[order]
    first = np.empty(n, bool)
    first[0] = True
    np.not_equal(at[1:], at[:-1], out=first[1:])
    values = [v[order] for v in values]
    starts = np.flatnonzero(first)
    if len(starts) == n:
        old = view[at]
        view[at] = operation(old, *values)
    else:
        counts = np.diff(np.append(starts, n))
        rounds = int(counts.max())
        if scan == "exch":
            old = np.empty_like(values[0])
            old[1:] = values[0][:-1]
            old[starts] = view[at[starts]]
            view[at[starts]] = values[0][starts + counts - 1]
        elif scan in _SCANS and rounds > 8:
            old = _scanned(view, at, values[0], first, starts, counts, scan)
        else:
            old = np.empty((n, *view.shape[1:]), view.dtype)
            for k in range(rounds):
                now = starts[counts > k] + k
                seen = view[at[now]]
                old[now] = seen
                view[at[now]] = operation(seen, *(v[now] for v in values))
    out = np.empty_like(old)
    out[order] = old
    result: Array = out[::-1] if reverse else out
    return result


def _scanned(
    view: Array,
    at: Array,
    value: Array,
    first: BoolArray,
    starts: Array,
    counts: Array,
    scan: str,
) -> Array:
    """Exclusive segmented scan by doubling; the memory value enters at each segment's start."""
    ufunc = _SCANS[scan]
    signed = scan.endswith("_s")
    dtype = np.dtype(f"i{value.dtype.itemsize}") if signed else value.dtype
    running = value.view(dtype).copy()
    place = np.arange(len(at)) - np.repeat(starts, counts)
    distance = 1
    longest = int(counts.max())
    while distance < longest:
        inside = place >= distance
        moved = running.copy()
        moved[inside] = ufunc(running[inside], running[np.flatnonzero(inside) - distance])
        running = moved
        distance *= 2
    base = view[at[starts]].view(dtype)
    whole = np.repeat(base, counts)
    totals = ufunc(whole, running)
    old = np.empty_like(totals)
    old[1:] = totals[:-1]
    old[first] = base
    last = starts + counts - 1
    view[at[last]] = totals[last].view(value.dtype)
    seen: Array = old.view(value.dtype)
    return seen

"""Loads and stores of a group of lanes in every state space, with their checks.

An access is checked as a whole before anything is read or written: alignment to the size of all
its elements together, then bounds.  The common case, all lanes in
one allocation, costs a minimum, a maximum and an or-reduction over the addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..isa.protocol import Array, BoolArray, Site
from ..windows import LOCAL_SIZE, LOCAL_WINDOW, SHARED_SIZE, SHARED_WINDOW
from .definedness import gather, report_stored, shadows_of, store_unknown
from .memory import count_bytes, past_end
from .stacks import STACK_FLOOR, STACK_TOP, Stacks

if TYPE_CHECKING:
    from .group import Group
    from .wave import Wave

__all__ = [
    "Access",
    "Place",
    "arrays",
    "discard",
    "load",
    "misaligned",
    "place",
    "place_in",
    "places",
    "store",
]

_SHIFT = {1: 0, 2: 1, 4: 2, 8: 3}
_IN_ARENA = frozenset(("global", "const", "param"))
#: What a discarded word holds: a value that programs hardly store themselves.
_POISON = np.array([0xDEAD_BEEF_DEAD_BEEF], np.uint64)


@dataclass(frozen=True, slots=True)
class Access:
    """What is accessed: ``count`` elements of ``size`` bytes by the instruction ``site``."""

    space: str
    size: int
    count: int
    site: Site
    #: what the address must be a multiple of; 0: the whole access
    align: int = 0

    @property
    def total(self) -> int:
        return self.size * self.count


@dataclass(slots=True)
class Place:
    """Checked addresses: byte offsets into one of the wave's arrays.

    ``at`` is int64, one per acting lane or a single one for all; ``lanes`` are the positions of
    the acting lanes on the group's axis, None for all.
    """

    space: str
    at: Array
    lanes: Array | None


def load(group: Group, access: Access, address: Array, mask: BoolArray | None) -> list[Array]:
    """The elements as bit patterns; where ``mask`` is false they are zero."""
    size = access.size
    out: list[list[Array]] = []
    watch, checked = group.wave.watch, group.wave.checked
    group.loaded = None
    for p in places(group, access, address, mask):
        if watch is not None:
            watch.load(group, access, p)
        if checked:
            gather(group, access, p)
        views = arrays(group.wave, p.space)
        word = min(size, 8)
        index = p.at >> _SHIFT[word]
        view = views[word]
        words = [
            view.take(index + k) if k else view.take(index) for k in range(access.total // word)
        ]
        values = (
            [np.stack(words[k : k + 2]) for k in range(0, len(words), 2)] if size == 16 else words
        )
        if p.lanes is None:
            return values
        if not out:
            shape = (2, group.n) if size == 16 else (group.n,)
            out = [np.zeros(shape, v.dtype) for v in values]  # type: ignore[misc]
        for whole, part in zip(out, values, strict=True):
            whole[..., p.lanes] = part  # type: ignore[call-overload]
    if not out:
        shape = (2, 1) if size == 16 else (1,)
        dtype = np.dtype(f"u{min(size, 8)}")
        return [np.zeros(shape, dtype) for _ in range(access.count)]
    return out  # type: ignore[return-value]


def store(
    group: Group,
    access: Access,
    address: Array,
    values: Sequence[Array],
    mask: BoolArray | None,
) -> None:
    """Store where ``mask`` is true; of lanes that collide the last in lane order wins."""
    wave = group.wave
    size = access.size
    word = min(size, 8)
    unknown = None
    if group.storing is not None:
        unknown = group.storing[: access.count]
        group.storing = group.storing[access.count :] or None
    for p in places(group, access, address, mask, write=True):
        wave.memory.version += 1
        views = arrays(wave, p.space)
        index = p.at >> _SHIFT[word]
        words = [v[k] for v in values for k in (0, 1)] if size == 16 else list(values)
        view = views[word]
        words = [_acting(value, p, group) for value in words]
        if wave.watch is not None:
            wave.watch.store(group, access, p, words)
        for k, value in enumerate(words):
            _put(view, index + k if k else index, value, wave.reversed)
        if p.space != "global":
            _shadow(group, p, index, word, len(words), unknown)
        if unknown is not None and p.space in ("global", "undefined"):
            report_stored(group, p.lanes, unknown, access.site)


def discard(group: Group, access: Access, address: Array, mask: BoolArray | None) -> None:
    """Weak stores of indeterminate values to all words of lines of global memory."""
    found = places(group, access, address, mask, write=True)
    for p in found:
        if p.space in ("shared", "local"):
            group.finding(
                "oob-global",
                f"'{access.site.text}' names {p.space} memory",
                access.site,
                _flags(group, np.ones(1, bool), p.lanes),
                help="give discard an address of global memory",
                fatal=True,
                space="global",
            )
    word = Access("global", access.size, 1, access.site)
    for p in found:
        for k in range(access.count):
            store(group, word, address + np.uint64(k * access.size), [_POISON], mask)
        group.wave.memory.discard(p.at, access.site.line)


def _put(view: Array, at: Array, value: Array, reverse: bool) -> None:
    """Store a word in lane order, or in reverse."""
    if len(at) == 1:
        view[at[0]] = value[0 if reverse else -1]
    elif reverse:
        view[at[::-1]] = value[::-1] if len(value) > 1 else value
    else:
        view[at] = value


def _shadow(
    group: Group, p: Place, index: Array, word: int, count: int, unknown: Sequence[Any] | None
) -> None:
    """The bytes that a store writes are defined, but for the undefined bits that it stores."""
    wave = group.wave
    shadows = shadows_of(wave, p.space)
    if p.space == "shared" and unknown is not None:
        shadows = wave.shared_written
    if shadows is None:
        return
    view = shadows[word]
    whole = view.dtype.type((1 << 8 * word) - 1)
    if unknown is None or p.space == "undefined":
        for k in range(count):
            view[index + k if k else index] = whole
        return
    per = count // len(unknown)
    for k in range(count):
        at = index + k if k else index
        entry = unknown[k // per]
        if entry is None:
            view[at] = whole
            continue
        bits = _acting(entry[0] if per == 1 else entry[0][k % per], p, group)
        _put(view, at, ~bits, wave.reversed)
        store_unknown(group, p, at, word, bits, _acting(entry[1], p, group))


def _acting(value: Array, p: Place, group: Group) -> Array:
    if p.lanes is None or value.shape[-1] == 1:
        return value
    return value[p.lanes]


def arrays(wave: Wave, space: str) -> dict[int, Array]:
    """The views of the memory of a space by word size."""
    if space == "shared":
        return wave.shared_views
    return wave.local_views if space == "local" else wave.memory.views


def places(
    group: Group, access: Access, address: Array, mask: BoolArray | None, write: bool = False
) -> list[Place]:
    """The checked places that the lanes of ``mask`` access, one entry per memory touched."""
    lanes: Array | None = None
    if mask is not None:
        lanes = np.flatnonzero(mask)
        if not len(lanes):
            return []
        if address.shape[0] != 1:
            address = address[lanes]
    if address.dtype != np.uint64:
        address = address.astype(np.uint64)
    space = access.space
    if space == "generic":
        return _generic(group, access, address, lanes, write)
    return [place(group, access, space, address, lanes, write)]


def place_in(group: Group, access: Access, address: Array, mask: BoolArray | None) -> Place:
    """The checked places in one space, a full-length address per lane."""
    (found,) = places(group, access, address, mask, write=access.space == "shared")
    return found


def _generic(
    group: Group, access: Access, address: Array, lanes: Array | None, write: bool
) -> list[Place]:
    low, high = int(address.min()), int(address.max())
    whole = _window(low)
    if whole == _window(high):
        base = {"global": 0, "shared": SHARED_WINDOW, "local": LOCAL_WINDOW}[whole]
        moved = address - np.uint64(base) if base else address
        return [place(group, access, whole, moved, lanes, write)]
    out = []
    positions = np.arange(group.n) if lanes is None else lanes
    address = np.broadcast_to(address, positions.shape)
    in_shared = (address >= SHARED_WINDOW) & (address < SHARED_WINDOW + SHARED_SIZE)
    in_local = (address >= LOCAL_WINDOW) & (address < LOCAL_WINDOW + LOCAL_SIZE)
    for space, chosen, base in (
        ("global", ~in_shared & ~in_local, 0),
        ("shared", in_shared, SHARED_WINDOW),
        ("local", in_local, LOCAL_WINDOW),
    ):
        if chosen.any():
            moved = address[chosen] - np.uint64(base)
            out.append(place(group, access, space, moved, positions[chosen], write))
    return out


def _window(address: int) -> str:
    if SHARED_WINDOW <= address < SHARED_WINDOW + SHARED_SIZE:
        return "shared"
    if LOCAL_WINDOW <= address < LOCAL_WINDOW + LOCAL_SIZE:
        return "local"
    return "global"


def place(
    group: Group, access: Access, space: str, address: Array, lanes: Array | None, write: bool
) -> Place:
    """Check uint64 addresses of one space and turn them into array offsets."""
    total = access.total
    align = access.align or total
    if align > 1:
        low_bits = int(address[0]) if len(address) == 1 else int(np.bitwise_or.reduce(address))
        if low_bits & (align - 1):
            misaligned(group, access, space, address, lanes)
    if space == "shared":
        return _shared(group, access, address, lanes)
    if space == "local":
        return _local(group, access, address, lanes)
    memory = group.wave.memory
    offset = address - np.uint64(memory.base)
    low = int(offset[0]) if len(offset) == 1 else int(offset.min())
    high = low if len(offset) == 1 else int(offset.max())
    allocation = memory.find(low)
    if allocation is None or high + total > allocation.end:
        bad = memory.outside(offset, total)
        if bad.any():
            _out_of_bounds(group, access, space, address, bad, lanes)
        undefined = any(a.maybe_undefined for a in memory.allocations())
        readonly = write and any(
            a.readonly and a.start <= high and low < a.end for a in memory.allocations()
        )
        if readonly:
            _check_readonly(group, access, offset, address, lanes)
    else:
        undefined = allocation.maybe_undefined
        if write and allocation.readonly:
            _check_readonly(group, access, offset, address, lanes)
    return Place("undefined" if undefined else "global", offset.view(np.int64), lanes)


def _shared(group: Group, access: Access, address: Array, lanes: Array | None) -> Place:
    size = group.wave.shared_size
    high = int(address[0]) if len(address) == 1 else int(address.max())
    if high + access.total > size:
        bad = _beyond(address, access.total, size)
        _out_of_bounds(group, access, "shared", address, bad, lanes)
    base = group.shared_base
    if len(base) > 1 and lanes is not None:
        base = base[lanes]
    at = address.view(np.int64)
    if len(base) == 1 and base[0] == 0:
        return Place("shared", at, lanes)
    return Place("shared", at + base, lanes)


def _beyond(address: Array, total: int, size: int) -> BoolArray:
    """Which accesses reach past ``size`` bytes; the end of one may wrap around."""
    out: BoolArray = (address > np.uint64(size)) | (address + np.uint64(total) > np.uint64(size))
    return out


def _local(group: Group, access: Access, address: Array, lanes: Array | None) -> Place:
    if group.wave.stacks is not None:
        return _local_with_stack(group, group.wave.stacks, access, address, lanes)
    size = group.stack + group.routine.frame_size
    high = int(address[0]) if len(address) == 1 else int(address.max())
    if high + access.total > size:
        bad = _beyond(address, access.total, size)
        _out_of_bounds(group, access, "local", address, bad, lanes)
    base = group.local_base
    if lanes is not None:
        base = base[lanes]
    return Place("local", address.view(np.int64) + base, lanes)


def _local_with_stack(
    group: Group, stacks: Stacks, access: Access, address: Array, lanes: Array | None
) -> Place:
    """The same where threads have memory of alloca."""
    who = group.lanes if lanes is None else group.lanes[lanes]
    address = np.broadcast_to(address, who.shape)
    on_stack = address >= STACK_FLOOR
    bad = _beyond(address, access.total, group.stack + group.routine.frame_size)
    bad[on_stack] = stacks.outside(who[on_stack], address[on_stack], access.total)
    if bad.any():
        _out_of_bounds(group, access, "local", address, bad, lanes)
    stride = group.wave.local_stride
    at = address.astype(np.int64) + who * stride
    at[on_stack] += stride - STACK_TOP
    return Place("local", at, lanes)


# --- faults ---------------------------------------------------------------------------------------


def _flags(group: Group, bad: Array, lanes: Array | None) -> BoolArray:
    out = np.zeros(group.n, bool)
    if lanes is None:
        out[:] = bad
    else:
        out[lanes] = bad
    if group.active is not None:
        out &= group.active
    return out


def misaligned(
    group: Group, access: Access, space: str, address: Array, lanes: Array | None
) -> None:
    """The finding that some of these addresses are no multiples of what they must be."""
    align = access.align or access.total
    bad = (address & np.uint64(align - 1)) != 0
    first = int(address[np.flatnonzero(bad)[0]])
    what = f"{access.total}-byte access"
    if access.count > 1:
        what = f"{access.count} x {access.size}-byte access"
    group.finding(
        f"misaligned-{space}",
        f"{what} at {space} address {first:#x}, which is not a multiple of {align}"
        f" (off by {first % align})",
        access.site,
        _flags(group, bad, lanes),
        help=f"the address must be a multiple of {align} bytes",
        fatal=True,
        address=first,
        space=space,
    )


def _out_of_bounds(
    group: Group, access: Access, space: str, address: Array, bad: Array, lanes: Array | None
) -> None:
    first = int(address[np.flatnonzero(bad)[0]])
    cure = "check the index against the extent before the access"
    if space in _IN_ARENA:
        where = group.wave.memory.describe(first, access.total)
    else:
        size = (
            group.wave.shared_size if space == "shared" else group.stack + group.routine.frame_size
        )
        past = past_end(first - size, access.total)
        where = f"{past} of the {count_bytes(size)} of {space} memory"
        stacks = group.wave.stacks
        if space == "local" and stacks is not None and first >= STACK_FLOOR:
            lane = group.lanes[np.flatnonzero(_flags(group, bad, lanes))[0]]
            where = stacks.describe(int(lane), first, access.total)
        elif not size:
            where = f"this launch has no {space} memory"
        if space == "shared" and not size:
            cure = "give the launch dynamic shared memory (--smem, or smem= of the header)"
    group.finding(
        f"oob-{space}",
        f"{access.total}-byte access at {space} address {first:#x}: {where}",
        access.site,
        _flags(group, bad, lanes),
        help=cure,
        fatal=True,
        address=first,
        space=space,
    )


def _check_readonly(
    group: Group, access: Access, offset: Array, address: Array, lanes: Array | None
) -> None:
    for a in group.wave.memory.allocations():
        if not a.readonly:
            continue
        bad = (offset >= np.uint64(a.start)) & (offset < np.uint64(a.end))
        if bad.any():
            first = int(address[np.flatnonzero(bad)[0]])
            group.finding(
                "write-to-readonly",
                f"writes to '{a.name}', which is read-only",
                access.site,
                _flags(group, bad, lanes),
                help="write to a buffer that is not read-only",
                fatal=True,
                address=first,
                space="global",
            )

"""Memory of alloca: a stack in the local memory of each thread.

Its addresses go down from a fixed one, whatever the frames of functions need (PTX ISA 9.1, Stack
Manipulation Instructions); in the stretch of local memory that a lane of the wave has, frames lie
at the low end and this stack at the high end.  Each byte has a state, so that an access past what
alloca gave, or to what was freed, is found; gaps between allocations make sure that one past the
end is no byte of the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..isa.protocol import Array, BoolArray, Site
from .memory import count_bytes, past_end

if TYPE_CHECKING:
    from .group import Group
    from .wave import Wave

__all__ = ["LOCAL_LIMIT", "STACK_FLOOR", "STACK_TOP", "Stacks", "fill"]

#: Bytes of local memory that a thread may have (CUDA: 512 KB).
LOCAL_LIMIT = 1 << 19
#: The address of the stack's upper end, a multiple of the largest alignment that alloca takes, and
#: the lowest that an allocation can have.
STACK_TOP = 1 << 24
STACK_FLOOR = STACK_TOP - LOCAL_LIMIT
#: Bytes between allocations, and the least alignment.
_GAP, _ALIGN = 16, 8
#: States of a byte: allocated; where the stack pointer was after an alloca.
_LIVE, _LEVEL = 1, 2
#: Columns of a matrix of bytes that are filled at a time.
_CHUNK = 1 << 12


class Stacks:
    """The stacks of a wave's lanes; nothing is kept before the first instruction asks for one."""

    def __init__(self) -> None:
        #: by lane of the wave: the stack pointer
        self._pointer: Array = np.zeros(0, np.int64)
        #: by depth of calls and lane: what it was when the function was entered
        self._entered: Array = np.zeros((0, 0), np.int64)
        #: by lane and byte below the top (counted from the low end): the states
        self._states: Array = np.zeros((0, 0), np.uint8)

    def _begin(self, wave: Wave) -> None:
        if wave.stacks is None:
            wave.stacks = self
            self._pointer = np.full(wave.size, STACK_TOP, np.int64)
            self._entered = np.full((1, wave.size), STACK_TOP, np.int64)
            self._states = np.zeros((wave.size, 0), np.uint8)

    # --- instructions ---------------------------------------------------------------------------

    def save(self, group: Group) -> Array:
        """stacksave: the stack pointers, one for all lanes if they are equal."""
        self._begin(group.wave)
        return _short(self._pointer[group.lanes])

    def allocate(
        self, group: Group, size: Array, align: int, mask: BoolArray | None, site: Site
    ) -> Array:
        """alloca: the local addresses of ``size`` undefined bytes."""
        self._begin(group.wave)
        lanes = group.acting(mask)
        if not len(lanes):
            return np.full(1, STACK_TOP, np.int64)
        sizes = group.full(size) if mask is None else group.full(size)[mask]
        frames = group.stack + group.routine.frame_size
        room = STACK_TOP - LOCAL_LIMIT + frames
        wanted = np.minimum(sizes.astype(np.uint64), np.uint64(LOCAL_LIMIT)).astype(np.int64)
        start = (self._pointer[lanes] - _GAP - wanted) & -max(align, _ALIGN)
        if (start < room).any():
            self._overflow(group, start < room, sizes, align, mask, site)
        group.wave.reserve_local(frames, STACK_TOP - int(start.min()), site, lanes)
        self._grow(group.wave.local_stack)
        self._pointer[lanes] = start
        self._set(lanes, start, start + wanted, _LIVE)
        self._states[lanes, self._column(start)] |= np.uint8(_LEVEL)
        group.wave.forget_stack(lanes, start, start + wanted)
        if mask is None:
            return _short(start)
        out = np.full(group.n, STACK_TOP, np.int64)
        out[mask] = start
        return out

    def restore(self, group: Group, pointer: Array, mask: BoolArray | None, site: Site) -> None:
        """stackrestore: free what was allocated since the stack pointer had this value."""
        self._begin(group.wave)
        lanes = group.acting(mask)
        if not len(lanes):
            return
        given = group.full(pointer) if mask is None else group.full(pointer)[mask]
        to = np.minimum(given.astype(np.uint64), np.uint64(STACK_TOP + 1)).astype(np.int64)
        bottom = self._bottom(group.frame.depth if group.frame else 0, lanes)
        inside = (to >= self._pointer[lanes]) & (to < bottom)
        known = to == bottom
        known[inside] = self._states[lanes[inside], self._column(to[inside])] & _LEVEL != 0
        if not known.all():
            self._foreign(group, ~known, given, mask, site)
        self._free(lanes, to)

    # --- calls ----------------------------------------------------------------------------------

    def enter(self, depth: int, lanes: Array) -> None:
        """Lanes enter a function at this depth of calls."""
        while depth >= len(self._entered):
            self._entered = np.concatenate([self._entered, np.full_like(self._entered, STACK_TOP)])
        self._entered[depth, lanes] = self._pointer[lanes]

    def leave(self, depth: int, lanes: Array) -> None:
        """They return: what the function allocated is freed."""
        self._free(lanes, self._bottom(depth, lanes))

    def _bottom(self, depth: int, lanes: Array) -> Array:
        if depth >= len(self._entered):  # entered before anything was allocated
            return np.full(len(lanes), STACK_TOP, np.int64)
        out: Array = self._entered[depth, lanes]
        return out

    # --- memory ---------------------------------------------------------------------------------

    def used(self, lanes: Array) -> int:
        """Bytes of the fullest stack of these lanes."""
        return STACK_TOP - int(self._pointer[lanes].min())

    def outside(self, lanes: Array, address: Array, size: int) -> BoolArray:
        """Which accesses, one for each lane, reach a byte that is not allocated."""
        width = self._states.shape[1]
        begin = self._column(address.astype(np.int64))
        out: BoolArray = (begin < 0) | (begin + size > width)
        lanes, begin = lanes[~out], begin[~out]
        dead = np.zeros(len(lanes), bool)
        for k in range(size):
            dead |= self._states[lanes, begin + k] & _LIVE == 0
        out[~out] = dead
        return out

    def describe(self, lane: int, address: int, size: int) -> str:
        """Where an access of a lane lies that is outside."""
        if address < self._pointer[lane]:
            return "below the stack pointer, in memory that was freed or never allocated"
        at = int(self._column(np.int64(address)))
        live = self._states[lane] & _LIVE != 0
        if at < len(live) and live[at]:
            end = at + int(np.argmin(live[at:]))
        else:
            below = np.flatnonzero(live[:at])
            if not len(below):
                return "in no memory of alloca"
            end = int(below[-1]) + 1
        return f"{past_end(at - end, size)} of memory of alloca"

    def _column(self, address: Any) -> Any:
        return address - (STACK_TOP - self._states.shape[1])

    def _grow(self, width: int) -> None:
        old = self._states
        if width > old.shape[1]:
            self._states = np.zeros((len(old), width), np.uint8)
            self._states[:, width - old.shape[1] :] = old

    def _set(self, lanes: Array, begin: Array, end: Array, state: int) -> None:
        fill(self._states, lanes, self._column(begin), self._column(end), state)

    def _free(self, lanes: Array, to: Array) -> None:
        pointer = self._pointer[lanes]
        if (pointer != to).any():
            self._set(lanes, pointer, to, 0)
            self._pointer[lanes] = to

    # --- faults ---------------------------------------------------------------------------------

    def _overflow(
        self, group: Group, bad: BoolArray, sizes: Array, align: int, mask: BoolArray | None,
        site: Site,
    ) -> None:  # fmt: skip
        first = int(np.flatnonzero(bad)[0])
        lane = group.acting(mask)[first]
        left = int(self._pointer[lane]) - STACK_FLOOR - group.stack - group.routine.frame_size
        group.finding(
            "stack-overflow",
            f"'{site.text}' of {count_bytes(int(sizes[first]))} at a multiple of"
            f" {max(align, _ALIGN)}: of {LOCAL_LIMIT} bytes of local memory the thread has"
            f" {left} left",
            site,
            _spread(group, bad, mask),
            help="allocate less, or free it with stackrestore where it is done with",
            fatal=True,
        )

    def _foreign(
        self, group: Group, bad: BoolArray, given: Array, mask: BoolArray | None, site: Site
    ) -> None:
        group.finding(
            "bad-stackrestore",
            f"'{site.text}' with {int(given[bad][0]):#x}, which is no stack pointer of this call"
            " that is still valid",
            site,
            _spread(group, bad, mask),
            help="restore what stacksave gave in the same function, the newest first",
            fatal=True,
        )


def fill(rows: Array, lanes: Array, begin: Array, end: Array, value: int) -> None:
    """Set a stretch of columns in the row of each lane, which may differ from lane to lane."""
    low, high = int(begin.min()), int(end.max())
    if (begin == low).all() and (end == high).all():
        rows[lanes, low:high] = value
        return
    for at in range(low, high, _CHUNK):
        columns = np.arange(at, min(at + _CHUNK, high))
        part = rows[lanes, at : at + len(columns)]
        part[(columns >= begin[:, None]) & (columns < end[:, None])] = value
        rows[lanes, at : at + len(columns)] = part


def _short(values: Array) -> Array:
    return values[:1] if (values == values[0]).all() else values


def _spread(group: Group, bad: BoolArray, mask: BoolArray | None) -> BoolArray:
    out = np.zeros(group.n, bool)
    out[slice(None) if mask is None else mask] = bad
    return out

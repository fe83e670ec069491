"""Global memory: one arena with guard gaps, a registry of allocations, and definedness.

Addresses of the arena begin at a fixed base, so that an index that overflowed 32 bits or a null
pointer never lands in it.  Constant variables and the kernel parameters lie here too, read-only:
the generic address of each is its address (PTX ISA 9.1, Generic Addressing).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from ..isa.protocol import Array

__all__ = [
    "ARENA",
    "CACHE_LINE",
    "Allocation",
    "GlobalMemory",
    "OutOfMemory",
    "count_bytes",
    "past_end",
]

_GUARD = 256
#: Bytes that discard destroys together.
CACHE_LINE = 128
#: Addresses below come from a null pointer; what is so far from all buffers is near none.
_NULL, _FAR = 1 << 12, 1 << 40
#: Where the arena begins for 32-bit addresses, the lower of its two places.
ARENA = 0x1000_0000


class OutOfMemory(Exception):
    """The memory limit of the simulator is reached."""


@dataclass(slots=True)
class Allocation:
    """A stretch of the arena: ``start`` and ``end`` are offsets into it."""

    start: int
    end: int
    name: str
    readonly: bool = False
    #: some byte may be undefined; loads then look at the shadow bytes
    maybe_undefined: bool = False
    #: global, const or param
    space: str = "global"

    @property
    def size(self) -> int:
        return self.end - self.start


class GlobalMemory:
    """The arena.  ``version`` counts changes, for the scheduler's progress check."""

    def __init__(self, base: int = 0x7000_0000_0000, limit: int = 8 << 30) -> None:
        self.base = base
        self.limit = limit
        self.version = 0
        self._used = _GUARD
        self._allocations: list[Allocation] = []
        self._starts: list[int] = []
        self.bytes: Array = np.zeros(0, np.uint8)
        self.shadow: Array = np.zeros(0, np.uint8)
        self._discarded: Array = np.zeros(0, np.int32)
        self._resize(1 << 16)

    def _resize(self, capacity: int) -> None:
        bytes_ = np.zeros(capacity, np.uint8)
        shadow = np.zeros(capacity, np.uint8)
        bytes_[: len(self.bytes)] = self.bytes
        shadow[: len(self.shadow)] = self.shadow
        self.bytes = bytes_
        self.shadow = shadow
        self._discarded = np.concatenate(
            [self._discarded, np.zeros(capacity // CACHE_LINE - len(self._discarded), np.int32)]
        )
        self.views = {s: bytes_.view(f"u{s}") for s in (1, 2, 4, 8)}
        self.shadow_views = {s: shadow.view(f"u{s}") for s in (1, 2, 4, 8)}

    # --- allocation -----------------------------------------------------------------------------

    def allocate(
        self,
        size: int,
        name: str,
        *,
        align: int = 256,
        readonly: bool = False,
        defined: bool = True,
        space: str = "global",
    ) -> Allocation:
        """A new stretch of ``size`` bytes; its bytes are zero, defined or not."""
        align = max(align, 16)
        start = -(-self._used // align) * align
        end = start + size
        needed = end + _GUARD
        if needed > self.limit:
            raise OutOfMemory(f"{name}: {size} bytes exceed the limit of {self.limit}")
        if needed > len(self.bytes):
            self._resize(max(-(-needed // 4096) * 4096, min(2 * len(self.bytes), self.limit)))
        self._used = -(-needed // _GUARD) * _GUARD
        allocation = Allocation(start, end, name, readonly, not defined, space)
        at = bisect_right(self._starts, start)
        self._starts.insert(at, start)
        self._allocations.insert(at, allocation)
        if defined:
            self.shadow[start:end] = 0xFF
        return allocation

    def release(self, allocation: Allocation) -> None:
        """Take an allocation out of the registry; its addresses are not used again."""
        at = self._starts.index(allocation.start)
        del self._starts[at]
        del self._allocations[at]

    def find(self, offset: int) -> Allocation | None:
        """The allocation that holds an arena offset."""
        at = bisect_right(self._starts, offset) - 1
        if at >= 0 and offset < self._allocations[at].end:
            return self._allocations[at]
        return None

    def address(self, allocation: Allocation) -> int:
        """Its address as kernels see it."""
        return self.base + allocation.start

    def contents(self, allocation: Allocation) -> Array:
        """Its bytes, a view."""
        return self.bytes[allocation.start : allocation.end]

    def definedness(self, allocation: Allocation) -> Array:
        """Its shadow bytes, a view: 0xff defined, 0 not."""
        return self.shadow[allocation.start : allocation.end]

    # --- discarded lines ------------------------------------------------------------------------

    def discard(self, offsets: Array, line: int) -> None:
        """The cache lines at these offsets, all allocated, are undefined until they are written.

        ``line`` is that of the instruction, for :meth:`discarded_at`.
        """
        words = (offsets >> 3)[:, None] + np.arange(CACHE_LINE // 8)
        self.shadow_views[8][words] = 0
        self._discarded[offsets // CACHE_LINE] = line
        starts = np.array(self._starts, np.int64)
        for at in np.unique(np.searchsorted(starts, offsets, side="right")):
            self._allocations[at - 1].maybe_undefined = True

    def discarded_at(self, offset: int) -> int:
        """The line of the discard that an undefined byte is due to; 0 for none."""
        return int(self._discarded[offset // CACHE_LINE])

    # --- checks ---------------------------------------------------------------------------------

    def describe(self, address: int, size: int) -> str:
        """Where an address lies, relative to the nearest allocation."""
        offset = address - self.base
        near: Allocation | None = None
        distance = 0
        for a in self._allocations:
            d = a.start - offset if offset < a.start else max(0, offset + size - a.end)
            if near is None or d < distance:
                near, distance = a, d
        if address < _NULL:
            return "a null pointer" + (f" and {count_bytes(address)}" if address else "")
        if near is None:
            return "no memory is allocated"
        if distance > _FAR:
            return "far from every buffer"
        if offset < near.start:
            where = f"{count_bytes(near.start - offset)} before"
        else:
            where = f"{past_end(offset - near.end, size)} of"
        return f"{where} '{near.name}' ({count_bytes(near.size)})"

    def outside(self, offsets: Array, size: int) -> Array:
        """For each arena offset (uint64): is any of ``size`` bytes unallocated?  bool."""
        starts = np.array(self._starts, np.uint64)
        ends = np.array([a.end for a in self._allocations], np.uint64)
        if not len(starts):
            return np.ones(offsets.shape, bool)
        at = np.searchsorted(starts, offsets, side="right").astype(np.int64) - 1
        inside = at >= 0
        end = ends[np.maximum(at, 0)]
        with np.errstate(over="ignore"):
            last = offsets + np.uint64(size)
        return ~(inside & (offsets < end) & (last <= end) & (last >= offsets))

    def allocations(self) -> tuple[Allocation, ...]:
        """All allocations by address."""
        return tuple(self._allocations)


def count_bytes(number: int) -> str:
    """A number of bytes in words."""
    return f"{number} byte{'' if number == 1 else 's'}"


def past_end(past: int, size: int) -> str:
    """In words where an access of a size lies that begins so many bytes past an end.

    >>> past_end(0, 4), past_end(1, 4)
    ('just past the end', '1 byte past the end')
    >>> past_end(-2, 4), past_end(-3, 4)
    ('its last 2 bytes past the end', 'its last byte past the end')
    """
    if past < 0:
        beyond = past + size
        return f"its last {count_bytes(beyond) if beyond > 1 else 'byte'} past the end"
    return f"{count_bytes(past)} past the end" if past else "just past the end"

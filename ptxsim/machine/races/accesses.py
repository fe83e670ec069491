"""Accesses as the race checker compares them."""

from __future__ import annotations

from dataclasses import dataclass

from ...isa.protocol import Array, Site
from .shadow import ATOMIC, BULK, STRONG

__all__ = ["Conflict", "New", "Taken"]


@dataclass(slots=True)
class New:
    """The accesses of one step to one granule each: who, when and how."""

    space: str
    lanes: Array
    records: Array
    site: Site
    number: int
    kind: int
    scope: int
    size: int
    writes: bool
    #: ``MemoryOrder.matrix`` of its instruction
    matrix: int = 0
    #: bytes about to be written [lanes, granule], for writes whose value is known
    value: Array | None = None

    @property
    def strong(self) -> bool:
        """Whether it may be morally strong with others; of bulk copies reductions are."""
        return self.kind in (STRONG, ATOMIC) or (self.kind == BULK and self.scope > 0)


@dataclass(frozen=True, slots=True)
class Taken:
    """Owner, time and kind of some records."""

    lane: Array
    time: Array
    kind: Array


@dataclass(frozen=True, slots=True)
class Conflict:
    """Accesses of one step and earlier ones of one instruction that they conflict with.

    ``at`` are the positions of the new accesses on their lane axis, ``places`` the bytes, in the
    wave's shared memory or the arena; ``old`` has one entry for each, or is None.
    """

    new: New
    at: Array
    places: Array
    first: Site
    old: Taken | None
    old_writes: bool = True
    #: both are of one step
    together: bool = False

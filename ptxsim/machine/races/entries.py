"""Entries of the lists of further accesses to a place (see :mod:`.shadow`).

An entry is of one lane, or of lanes of a warp that made one step together: then its record names
the first lane of the warp, and a mask the lanes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

__all__ = ["Entries", "Entry", "Key", "add_lane", "add_warp", "single"]

#: Record, number of the instruction, and mask of lanes (0: the lane of the record).
Entry: TypeAlias = tuple[int, int, int]
#: Whether it is a write, the lane or the complement of the warp, and how it was made.
Key: TypeAlias = tuple[bool, int, int]
Entries: TypeAlias = dict[Key, Entry]


def single(entry: Entry, shift: int, ends: bool = False) -> Iterator[tuple[int, int]]:
    """Record and instruction of each lane, or of the first and the last.

    Lanes begin at bit ``shift`` of a record.
    """
    record, site, mask = entry
    if ends:
        mask = mask & -mask | (1 << mask.bit_length() >> 1)
    if not mask:
        yield record, site
    while mask:
        low = mask & -mask
        yield record + (low.bit_length() - 1 << shift), site
        mask ^= low


def add_lane(kept: Entries, writes: bool, record: int, site: int, how: int, shift: int) -> None:
    """The newest of a lane stands for all that it made in this way."""
    key = writes, record >> shift, how
    kept[key] = max(kept.get(key, (0, 0, 0)), (record, site, 0))


def add_warp(
    kept: Entries, writes: bool, record: int, site: int, how: int, shift: int, mask: int
) -> None:
    """The same for lanes of a warp; older ones of other lanes stay by themselves."""
    key = writes, ~(record >> shift + 5), how
    old = kept.get(key)
    if old is not None and old[0] == record:
        mask |= old[2]
    elif old is not None and old[2] & ~mask:
        for before, first in single((old[0], old[1], old[2] & ~mask), shift):
            add_lane(kept, writes, before, first, how, shift)
    kept[key] = record, site, mask

"""How often the instructions with a tag are executed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...isa.protocol import Array, BoolArray, Site
from ..watch import Watch
from .activity import Activity

if TYPE_CHECKING:
    from ...program import Counted
    from ..access import Access, Place
    from ..group import Group
    from ..wave import Wave

__all__ = ["TagCounts"]

#: Instructions whose bytes are counted: those of one access to memory by each thread.
_SIZED = ("ld", "ldu", "st")


class TagCounts(Watch):
    """Counts executions by tag and opcode: threads with a true guard, warps that issue it, bytes.

    The bytes are those that ``ld`` and ``st`` read and write.  Warps are counted whatever the guard
    is, but for a barrier, a call and the like: one with a guard is a branch around it.
    """

    def __init__(self, activity: Activity) -> None:
        self._activity = activity
        self._names: dict[int, str] = {}
        self._sized: set[int] = set()
        self._counted: tuple[Counted, ...] = ()
        self._counts: Counter[str] = Counter()

    def wave_began(self, wave: Wave) -> None:
        if wave.program.counted is self._counted:
            return
        self._counted = wave.program.counted
        for one in self._counted:
            if not one.tag:
                continue
            name = self._names[id(one.site)] = f"tag.{one.tag}.{one.opcode}"
            units = ["threads", "warps"]
            if one.opcode in _SIZED:
                self._sized.add(id(one.site))
                units.append("bytes")
            for unit in units:
                self._counts[f"{name}.{unit}"] += 0

    def executed(self, group: Group, mask: BoolArray | None, site: Site) -> None:
        name = self._names.get(id(site))
        if name is None:
            return
        self._counts[f"{name}.threads"] += group.n if mask is None else int(np.count_nonzero(mask))
        self._counts[f"{name}.warps"] += self._activity.warps_of(group)

    def load(self, group: Group, access: Access, place: Place) -> None:
        if id(access.site) in self._sized:
            lanes = group.n if place.lanes is None else len(place.lanes)
            self._counts[f"{self._names[id(access.site)]}.bytes"] += lanes * access.total

    def store(self, group: Group, access: Access, place: Place, words: Sequence[Array]) -> None:
        self.load(group, access, place)

    def counters(self) -> dict[str, int]:
        """``tag.NAME.OPCODE.threads``, ``.warps`` and ``.bytes`` of every tag in the program."""
        return dict(self._counts)

"""The check that counts what a launch costs and gives advice; it never finds an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...diagnostics import Severity
from ...isa.order import MemoryOrder
from ...isa.protocol import Array, Site
from ..watch import Watch
from . import messages
from .activity import Activity
from .barriers import BarrierUses
from .copy_counts import CopyCounts
from .counters import counters
from .messages import Advice
from .requests import arrange, by_warp
from .tag_counts import TagCounts
from .tally import Tally

if TYPE_CHECKING:
    from ..access import Access, Place
    from ..group import Group
    from ..wave import Wave

__all__ = ["Advisor"]

_GLOBAL = frozenset(("global", "undefined"))
#: Instructions whose accesses the ISA leaves open: the machine's tell nothing about a GPU's.
_OPEN = ("wmma", "st.bulk", "call")
_BARRIERS = ("bar.sync", "bar.cta.sync", "barrier.sync", "barrier.cta.sync")


def _opcode(site: Site) -> str:
    """The instruction without its guard and operands."""
    words = site.text.split()
    return words[1] if words[0].startswith("@") and len(words) > 1 else words[0]


class Advisor(Watch):
    """Counts requests to shared and global memory, idle barriers, and active lanes."""

    def __init__(self) -> None:
        self.tallies: dict[tuple[int, str], Tally | None] = {}
        self.barriers = BarrierUses()
        self.activity = Activity()
        self._tags = TagCounts(self.activity)
        self._copies = CopyCounts(self.activity)
        self._wave: Wave | None = None

    @property
    def watches(self) -> tuple[Watch, ...]:
        """All that has to listen to a launch."""
        return self, self._tags, self._copies

    # --- accesses -------------------------------------------------------------------------------

    def wave_began(self, wave: Wave) -> None:
        self._wave = wave
        self.barriers.begin(wave)
        self.activity.attach(wave.program)

    def load(self, group: Group, access: Access, place: Place) -> None:
        self._access(group, access, place, "load")

    def store(self, group: Group, access: Access, place: Place, words: Sequence[Array]) -> None:
        self._access(group, access, place, "store")

    def atomic(self, group: Group, access: Access, place: Place) -> None:
        self._access(group, access, place, "atomic" if access.site.order.reads else "reduction")

    def _access(self, group: Group, access: Access, place: Place, kind: str) -> None:
        shared = place.space == "shared"
        if not shared and (place.space not in _GLOBAL or access.space in ("const", "param")):
            return
        alone = group.single_cta
        if alone is not None:
            self.barriers.happened(np.array([alone]))
        else:
            self.barriers.happened(group.cta if place.lanes is None else group.cta[place.lanes])
        tally = self._tally(access.site, "shared" if shared else "global", kind, access.total)
        if tally is None:
            return
        if shared:
            place = _rows_only(group, place, tally.site) if tally.kind == "ldmatrix" else place
            tally.add_shared(arrange(group, place, access.total))
        else:
            tally.add_global(arrange(group, place, access.total))

    def copy_issued(
        self, wave: Wave, lanes: Array, target: Array, source: Array, size: int, copied: Array,
        group: Array, site: Site,
    ) -> None:  # fmt: skip
        self._happened(wave, lanes)
        reads = copied > 0
        tally = self._tally(site, "global", "copy", size)
        if tally is not None and reads.any():
            tally.add_global(by_warp(lanes[reads], source[reads], size))

    def _tally(self, site: Site, space: str, kind: str, size: int) -> Tally | None:
        key = (id(site), space)
        if key not in self.tallies:
            opcode = _opcode(site)
            matrix = opcode.partition(".")[0]
            kind = matrix if matrix in ("ldmatrix", "stmatrix") else kind
            known = not opcode.startswith(_OPEN)
            self.tallies[key] = Tally(site, space, kind, size) if known else None
        return self.tallies[key]

    # --- barriers, and what they order ----------------------------------------------------------

    def barrier_arrived(
        self, wave: Wave, barrier: int, lanes: Array, count: int | None, waits: bool, site: Site
    ) -> None:
        self.barriers.arrived(wave, barrier, lanes, waits, site)

    def barrier_opened(self, wave: Wave, barrier: int, ctas: Array) -> None:
        self.barriers.opened(wave, barrier, ctas)

    def _happened(self, wave: Wave, lanes: Array) -> None:
        self.barriers.happened(wave.cta_of(lanes))

    def fence(self, wave: Wave, lanes: Array, order: MemoryOrder, site: Site) -> None:
        self._happened(wave, lanes)

    def proxy_fence(self, wave: Wave, lanes: Array, kind: str, site: Site) -> None:
        self._happened(wave, lanes)

    def copies_waited(self, wave: Wave, lanes: Array, limit: Array, site: Site) -> None:
        self._happened(wave, lanes)

    def copies_signal(self, wave: Wave, lanes: Array, limit: Array, barrier: Array) -> None:
        self._happened(wave, lanes)

    def mbarrier_initialised(self, wave: Wave, lanes: Array, barrier: Array, site: Site) -> None:
        self._happened(wave, lanes)

    def mbarrier_invalidated(self, wave: Wave, lanes: Array, barrier: Array, site: Site) -> None:
        self._happened(wave, lanes)

    def mbarrier_arrived(
        self, wave: Wave, lanes: Array, barrier: Array, phase: Array, order: MemoryOrder, site: Site
    ) -> None:
        self._happened(wave, lanes)

    def mbarrier_passed(
        self, wave: Wave, lanes: Array, barrier: Array, phase: Array, order: MemoryOrder, site: Site
    ) -> None:
        self._happened(wave, lanes)

    def bulk_issued(self, wave: Wave, copy: Any, site: Site) -> None:
        self._happened(wave, np.array([copy.lane]))

    def bulk_waited(self, wave: Wave, lane: int, limit: int, read: bool, site: Site) -> None:
        self._happened(wave, np.array([lane]))

    # --- results --------------------------------------------------------------------------------

    def counters(self) -> dict[str, int]:
        """The counters of the launch, in the order in which they are shown."""
        counted = [t for t in self.tallies.values() if t is not None]
        barriers = sum(use.opened for use in self.barriers.uses.values())
        return {
            "warp_instructions": self.activity.instructions,
            **counters(counted),
            "barriers": barriers,
            **self._copies.counters(),
            **self._tags.counters(),
        }

    def report(self, sink: Callable[..., None]) -> None:
        """Give ``sink`` the advice on a launch that has ended."""
        if self._wave is None:
            return
        for one in self._advice(self._wave):
            sink(one.class_, one.message, one.site, severity=Severity.ADVICE, **one.more)

    def _advice(self, wave: Wave) -> list[Advice]:
        found: list[Advice | None] = []
        for tally in self.tallies.values():
            if tally is not None:
                shared = tally.space == "shared"
                found.append(messages.conflicts(tally, wave) if shared
                             else messages.scattered(tally, wave))  # fmt: skip
        for use in self.barriers.uses.values():
            if _opcode(use.site).startswith(_BARRIERS):
                found.append(messages.idle(use))
        found += messages.inactive(self.activity, wave.geometry)
        return [one for one in found if one is not None]


def _rows_only(group: Group, place: Place, site: Site) -> Place:
    """The rows of ldmatrix.m8n8: on sm_75 lanes that supply none give an address as well."""
    opcode = _opcode(site).split(".")
    if place.lanes is not None or "m8n8" not in opcode or "x4" in opcode:
        return place
    supplies = (group.lanes & 31) < (8 if "x1" in opcode else 16)
    lanes = np.flatnonzero(supplies)
    at = place.at if len(place.at) == 1 else place.at[lanes]
    return type(place)(place.space, at, lanes)

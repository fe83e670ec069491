"""The check that counts what a launch costs and gives advice; it never finds an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...diagnostics import Severity
from ...isa.order import MemoryOrder
from ...isa.protocol import Array, BoolArray, Site
from ..watch import Watch
from . import messages
from .activity import Activity
from .barriers import BarrierUses
from .copy_counts import CopyCounts
from .counters import counters
from .leavers import Leavers
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
_COMMON = _GLOBAL | {"shared"}
#: Instructions whose accesses the ISA leaves open: the machine's tell nothing about a GPU's.
_OPEN = ("wmma", "st.bulk", "discard", "call")
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
        self.leavers = Leavers()
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
        self.leavers.begin(wave)
        self.activity.attach(wave.program)

    def load(self, group: Group, access: Access, place: Place) -> None:
        self._access(group, access, place, "load")
        self._reads(group, access, place)

    def store(self, group: Group, access: Access, place: Place, words: Sequence[Array]) -> None:
        self._access(group, access, place, "store")
        self._writes(group, access, place)

    def atomic(self, group: Group, access: Access, place: Place) -> None:
        self._access(group, access, place, "atomic" if access.site.order.reads else "reduction")
        self._reads(group, access, place)
        self._writes(group, access, place)

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

    # --- stores of threads that have ended --------------------------------------------------------

    def _reads(self, group: Group, access: Access, place: Place) -> None:
        if access.space not in ("const", "param") and place.space in _COMMON:
            lanes = group.lanes if place.lanes is None else group.lanes[place.lanes]
            space = "shared" if place.space == "shared" else "global"
            wave, site = group.wave, access.site
            for reads in self.leavers.loads(wave, space, lanes, place.at, access.total):
                if site.order.strong and reads.first.order.strong:
                    continue  # no race, whatever orders them
                one = messages.left(wave, site, space, reads)
                wave.report(
                    one.class_, one.message, site, reads.lanes, severity=Severity.ADVICE, **one.more
                )

    def _writes(self, group: Group, access: Access, place: Place) -> None:
        if place.space in _COMMON:
            lanes = group.lanes if place.lanes is None else group.lanes[place.lanes]
            space = "shared" if place.space == "shared" else "global"
            if access.site.order.release:  # of what came before, not of itself
                self.leavers.gives(lanes)
            self.leavers.stores(space, lanes, place.at, access.total, access.site)

    def exited(self, wave: Wave, lanes: Array) -> None:
        self.leavers.exited(lanes)

    def warp_synced(self, group: Group, members: BoolArray) -> None:
        self.leavers.gives(group.lanes)

    # --- copies -----------------------------------------------------------------------------------

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
        self.leavers.gives(lanes)

    def barrier_opened(self, wave: Wave, barrier: int, ctas: Array) -> None:
        self.leavers.opened(wave, self.barriers.opened(wave, barrier, ctas))

    def _happened(self, wave: Wave, lanes: Array) -> None:
        self.barriers.happened(wave.cta_of(lanes))

    def fence(self, wave: Wave, lanes: Array, order: MemoryOrder, site: Site) -> None:
        self._happened(wave, lanes)
        self.leavers.gives(lanes)

    def proxy_fence(self, wave: Wave, lanes: Array, kind: str, site: Site) -> None:
        self._happened(wave, lanes)

    def copies_waited(self, wave: Wave, lanes: Array, limit: Array, site: Site) -> None:
        self._happened(wave, lanes)

    def copies_signal(self, wave: Wave, lanes: Array, limit: Array, barrier: Array) -> None:
        self._happened(wave, lanes)
        self.leavers.gives(lanes)

    def mbarrier_initialised(self, wave: Wave, lanes: Array, barrier: Array, site: Site) -> None:
        self._happened(wave, lanes)

    def mbarrier_invalidated(self, wave: Wave, lanes: Array, barrier: Array, site: Site) -> None:
        self._happened(wave, lanes)

    def mbarrier_arrived(
        self, wave: Wave, lanes: Array, barrier: Array, phase: Array, order: MemoryOrder, site: Site
    ) -> None:
        self._happened(wave, lanes)
        self.leavers.gives(lanes)

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
            "thread_instructions_predicated_on": self.activity.predicated_on,
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
        tallies = [t for t in self.tallies.values() if t is not None]
        shared = [t for t in tallies if t.space == "shared" or t.kind == "copy"]
        for tally in tallies:
            if tally.space == "shared":
                widest = max(shared, key=lambda t: t.size)
                found.append(messages.conflicts(tally, wave, widest))
            else:
                found.append(messages.scattered(tally, wave))
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

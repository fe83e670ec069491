"""What checks are told of a wave while it runs.

The machine calls these after it has checked an operation and (for accesses) before it changes
memory.  Without a watch nothing is called.  Lanes are those of the wave (int64, one each), places
are byte offsets: into the wave's shared memory for ``shared``, into the arena for ``global``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..isa.order import MemoryOrder
from ..isa.protocol import Array, BoolArray, Site

if TYPE_CHECKING:
    from .access import Access, Place
    from .group import Group
    from .wave import Wave

__all__ = ["Several", "Watch", "combine"]


class Watch:
    """The events; a check overrides those that it needs."""

    # --- waves ----------------------------------------------------------------------------------

    def wave_began(self, wave: Wave) -> None:
        """A wave of CTAs begins."""

    def wave_ended(self, wave: Wave) -> None:
        """It has ended, or was stopped."""

    def launch_ended(self) -> None:
        """All waves have ended, or the launch was stopped."""

    # --- executions -----------------------------------------------------------------------------

    def executed(self, group: Group, mask: BoolArray | None, site: Site) -> None:
        """One of ``wave.program.counted`` begins; ``mask``: lanes with a true guard, None: all."""

    # --- accesses -------------------------------------------------------------------------------

    def load(self, group: Group, access: Access, place: Place) -> None:
        """Lanes read; the order of the access is ``access.site.order``."""

    def store(self, group: Group, access: Access, place: Place, words: Sequence[Array]) -> None:
        """Lanes write ``words``: an array of the acting lanes for each word of at most 8 bytes."""

    def atomic(self, group: Group, access: Access, place: Place) -> None:
        """Lanes read, operate and write, each as one."""

    # --- barriers and fences --------------------------------------------------------------------

    def barrier_arrived(
        self, wave: Wave, barrier: int, lanes: Array, count: int | None, waits: bool, site: Site
    ) -> None:
        """Lanes arrive at a CTA barrier of ``count`` threads, None for all of the CTA.

        Those that do not wait (bar.arrive) only give order.
        """

    def barrier_opened(self, wave: Wave, barrier: int, ctas: Array) -> None:
        """The barrier opens in these CTAs for all that have arrived since it last did."""

    def warp_synced(self, group: Group, members: BoolArray) -> None:
        """bar.warp.sync: ``members`` is bool [W, 32, 32] of ``group.warps()``, for each lane those
        it synchronises with, itself included."""

    def fence(self, wave: Wave, lanes: Array, order: MemoryOrder, site: Site) -> None:
        """A memory fence."""

    def proxy_fence(self, wave: Wave, lanes: Array, kind: str, site: Site) -> None:
        """A proxy fence: ``async``, ``alias``, ``tensormap``."""

    def exited(self, wave: Wave, lanes: Array) -> None:
        """Lanes have ended."""

    # --- asynchronous copies --------------------------------------------------------------------

    def copy_issued(
        self, wave: Wave, lanes: Array, target: Array, source: Array, size: int, copied: Array,
        group: Array, site: Site,
    ) -> None:  # fmt: skip
        """cp.async: ``size`` bytes to shared ``target``, ``copied`` of them read from ``source``.

        ``group`` is the number of the group that each lane's copy belongs to.
        """

    def copies_committed(self, wave: Wave, lanes: Array, group: Array, site: Site) -> None:
        """cp.async.commit_group: each lane closes the group of this number."""

    def copies_waited(self, wave: Wave, lanes: Array, limit: Array, site: Site) -> None:
        """A wait for all groups with a number below ``limit`` (one for each lane)."""

    def copies_signal(self, wave: Wave, lanes: Array, limit: Array, barrier: Array) -> None:
        """cp.async.mbarrier.arrive: the copies of groups below ``limit`` that have not been waited
        for will arrive at the mbarrier at shared place ``barrier``."""

    def copies_arrived(
        self, wave: Wave, lanes: Array, barrier: int, phase: Array, issued: int
    ) -> None:
        """The first ``issued`` cp.async of the wave, those of these lanes, have landed.

        Each lane arrives for its own at the mbarrier at this place, in the phase of its number.
        """

    # --- mbarriers ------------------------------------------------------------------------------

    def mbarrier_initialised(self, wave: Wave, lanes: Array, barrier: Array, site: Site) -> None:
        """mbarrier.init at these shared places, one for each lane."""

    def mbarrier_invalidated(self, wave: Wave, lanes: Array, barrier: Array, site: Site) -> None:
        """mbarrier.inval."""

    def mbarrier_arrived(
        self, wave: Wave, lanes: Array, barrier: Array, phase: Array, order: MemoryOrder, site: Site
    ) -> None:
        """Lanes arrive in the phase of this number (counted from 0 at the init)."""

    def mbarrier_passed(
        self, wave: Wave, lanes: Array, barrier: Array, phase: Array, order: MemoryOrder, site: Site
    ) -> None:
        """A test or wait was true: the phase of this number is complete for these lanes."""

    # --- bulk copies ----------------------------------------------------------------------------

    def bulk_issued(self, wave: Wave, copy: Any, site: Site) -> None:
        """A bulk copy of one lane was issued (see ``bulk_copies.BulkCopy``)."""

    def bulk_landed(self, wave: Wave, copy: Any) -> None:
        """It has read its source and written its target."""

    def bulk_committed(self, wave: Wave, lane: int, group: int, site: Site) -> None:
        """cp.async.bulk.commit_group."""

    def bulk_waited(self, wave: Wave, lane: int, limit: int, read: bool, site: Site) -> None:
        """cp.async.bulk.wait_group: groups below ``limit`` are complete (``read``: have read)."""


class Several(Watch):
    """Tells each event to all of several checks that want it."""

    def __init__(self, watches: Sequence[Watch]) -> None:
        for name, default in vars(Watch).items():
            if name.startswith("_"):
                continue
            told = [getattr(w, name) for w in watches if getattr(type(w), name) is not default]
            if len(told) == 1:
                setattr(self, name, told[0])
            elif told:
                setattr(self, name, _all(told))


def _all(told: Sequence[Callable[..., None]]) -> Callable[..., None]:
    def tell(*event: Any) -> None:
        for one in told:
            one(*event)

    return tell


def combine(watches: Sequence[Watch]) -> Watch | None:
    """One watch for several; None for none."""
    return Several(watches) if len(watches) > 1 else watches[0] if watches else None

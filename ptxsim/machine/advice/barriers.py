"""CTA barriers between which nothing happened that a barrier could order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...isa.protocol import Array, BoolArray, Site

if TYPE_CHECKING:
    from ..wave import Wave

__all__ = ["BarrierUse", "BarrierUses"]


@dataclass(slots=True)
class BarrierUse:
    """How often the barrier at ``site`` opened for a CTA, and how often it had nothing to order."""

    site: Site
    opened: int = 0
    idle: int = 0


class BarrierUses:
    """The barriers of a launch.

    A barrier orders what its threads did before it.  What they did before an earlier barrier of
    all threads of the CTA is in order already.
    """

    def __init__(self) -> None:
        self.uses: dict[int, BarrierUse] = {}
        self._busy: BoolArray = np.zeros(0, bool)
        self._here: dict[int, BoolArray] = {}
        self._sites: dict[int, dict[int, Site]] = {}

    def begin(self, wave: Wave) -> None:
        """A wave begins: its CTAs have done nothing yet."""
        self._busy = np.zeros(len(wave.ctas), bool)
        self._here.clear()
        self._sites.clear()

    def happened(self, ctas: Array) -> None:
        """Something that a barrier may order: an access, a fence, a wait for copies."""
        self._busy[ctas] = True

    def arrived(self, wave: Wave, barrier: int, lanes: Array, waits: bool, site: Site) -> None:
        """Lanes come to a barrier; those that do not wait for it make it one of some threads."""
        here = self._here.get(barrier)
        if here is None:
            here = self._here[barrier] = np.zeros(wave.size, bool)
        here[lanes] = waits
        self._sites.setdefault(barrier, {})[id(site)] = site

    def opened(self, wave: Wave, barrier: int, ctas: Array) -> Array:
        """The barrier opens in these CTAs; in which of them for all threads that are left."""
        shape = (len(wave.ctas), -1)
        here = self._here[barrier].reshape(shape)
        full = ~(wave.alive.reshape(shape)[ctas] & ~here[ctas]).any(axis=1)
        here[ctas] = False
        idle = int(np.count_nonzero(full & ~self._busy[ctas]))
        for site in self._sites[barrier].values():
            use = self.uses.setdefault(id(site), BarrierUse(site))
            use.opened += len(ctas)
            use.idle += idle
        if len(ctas) == len(wave.ctas) or not here.any():
            del self._sites[barrier]
        self._busy[ctas[full]] = False
        return ctas[full]

"""Records the events of a launch, thread by thread, in the order of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ptxsim.isa.order import WEAK, MemoryOrder
from ptxsim.machine.watch import Watch

__all__ = ["Event", "Recorder"]

Ints: TypeAlias = NDArray[np.int64]


@dataclass(slots=True)
class Event:
    """One event; threads are numbered over the launch, shared places within their CTA."""

    kind: str
    threads: Ints
    line: int = 0
    order: MemoryOrder = WEAK
    space: str = ""
    places: Any = None
    size: int = 0
    count: int = 1
    #: bytes that are stored [thread, byte], and those that were there before
    values: Any = None
    before: Any = None
    #: positions in the order in which colliding lanes take effect
    served: Sequence[int] = ()
    barrier: int = 0
    waits: bool = False
    #: [thread, 32]: lanes that a thread synchronises with
    members: Any = None
    sources: Any = None
    #: number of each thread's group of copies, or the limit of a wait; phases of mbarriers
    groups: Any = None


class Recorder(Watch):
    """Fills ``events``."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def wave_began(self, wave: Any) -> None:
        self.wave = wave

    def _threads(self, lanes: Any) -> Ints:
        per = self.wave.lanes_per_cta
        out: Ints = self.wave.ctas[lanes // per] * per + lanes % per
        return out

    def _access(self, kind: str, group: Any, access: Any, place: Any) -> tuple[Event, Any] | None:
        if place.space == "local" or access.space in ("const", "param"):
            return None
        lanes = group.lanes if place.lanes is None else group.lanes[place.lanes]
        at = np.broadcast_to(place.at, lanes.shape)
        shared = place.space == "shared"
        served = range(len(lanes))
        event = Event(
            kind, self._threads(lanes), access.site.line, access.site.order,
            "shared" if shared else "global", at % self.wave.shared_stride if shared else at.copy(),
            access.size, access.count, served=served[::-1] if self.wave.reversed else served,
        )  # fmt: skip
        self.events.append(event)
        return event, at

    def load(self, group: Any, access: Any, place: Any) -> None:
        self._access("load", group, access, place)

    def store(self, group: Any, access: Any, place: Any, words: Sequence[Any]) -> None:
        found = self._access("store", group, access, place)
        if found is None:
            return
        event, at = found
        count = len(event.threads)
        parts = [
            np.ascontiguousarray(np.broadcast_to(w, (count,))).view(np.uint8).reshape(count, -1)
            for w in words
        ]
        event.values = np.concatenate(parts, axis=1)
        memory = self.wave.shared if event.space == "shared" else self.wave.memory.bytes
        event.before = memory[at[:, None] + np.arange(access.total)]

    def atomic(self, group: Any, access: Any, place: Any) -> None:
        self._access("atomic", group, access, place)

    def barrier_arrived(
        self, wave: Any, barrier: int, lanes: Any, count: Any, waits: bool, site: Any
    ) -> None:
        threads = self._threads(lanes)
        self.events.append(Event("arrived", threads, site.line, barrier=barrier, waits=waits))

    def barrier_opened(self, wave: Any, barrier: int, ctas: Any) -> None:
        self.events.append(Event("opened", wave.ctas[ctas].copy(), barrier=barrier))

    def warp_synced(self, group: Any, members: Any) -> None:
        some = np.argwhere(members.any(axis=2))
        lanes = group.warps().warp_ids[some[:, 0]] * 32 + some[:, 1]
        threads = self._threads(lanes.astype(np.int64))
        self.events.append(Event("warp", threads, members=members[some[:, 0], some[:, 1]]))

    def fence(self, wave: Any, lanes: Any, order: MemoryOrder, site: Any) -> None:
        self.events.append(Event("fence", self._threads(lanes), site.line, order))

    def mbarrier_arrived(
        self, wave: Any, lanes: Any, barrier: Any, phase: Any, order: MemoryOrder, site: Any
    ) -> None:
        self._object("gave", lanes, barrier, phase, order)

    def mbarrier_passed(
        self, wave: Any, lanes: Any, barrier: Any, phase: Any, order: MemoryOrder, site: Any
    ) -> None:
        self._object("took", lanes, barrier, phase, order)

    def _object(self, kind: str, lanes: Any, barrier: Any, phase: Any, order: MemoryOrder) -> None:
        places = barrier % self.wave.shared_stride
        self.events.append(
            Event(kind, self._threads(lanes), order=order, places=places, groups=phase.copy())
        )

    def copy_issued(
        self, wave: Any, lanes: Any, target: Any, source: Any, size: int, copied: Any,
        group: Any, site: Any,
    ) -> None:  # fmt: skip
        self.events.append(
            Event(
                "copy", self._threads(lanes), site.line, space="shared",
                places=target % wave.shared_stride, size=size, sources=source.copy(),
                groups=group.copy(),
            )
        )  # fmt: skip

    def copies_waited(self, wave: Any, lanes: Any, limit: Any, site: Any) -> None:
        self.events.append(Event("waited", self._threads(lanes), site.line, groups=limit.copy()))

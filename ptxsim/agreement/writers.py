"""Who wrote each byte last, and which stores fed which loads: listened to during a launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..machine.watch import Watch

if TYPE_CHECKING:
    from ..isa.protocol import Site
    from ..machine.access import Access, Place
    from ..machine.group import Group
    from ..machine.memory import GlobalMemory
    from ..machine.wave import Wave

__all__ = ["Spot", "Writers", "Written"]

Array = NDArray[Any]
#: An instruction: line and column of its statement.
Spot = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Written:
    """The last writers of the bytes of a buffer: an index into ``spots`` and a thread, or -1."""

    spot: Array
    thread: Array


class Writers(Watch):
    """Keeps the last writer of each byte of global and shared memory.

    ``fed`` holds the pairs (writer, reader) of instructions through which a value went by memory.
    Local memory moves when stacks grow: there every writer feeds every reader.
    """

    def __init__(self) -> None:
        self.spots: list[Spot] = []
        self._numbers: dict[Spot, int] = {}
        self._memory: GlobalMemory | None = None
        self._wave: Wave | None = None
        self._global = np.zeros(0, np.int32)
        self._thread = np.zeros(0, np.int32)
        self._shared = np.zeros(0, np.int32)
        self._fed: dict[int, NDArray[np.bool_]] = {}
        self._local: tuple[set[int], set[int]] = (set(), set())

    # --- what is asked afterwards -----------------------------------------------------------------

    def buffer(self, name: str, size: int) -> Written | None:
        """The last writers of an argument's buffer, None if the launch has none of the name."""
        if self._memory is None:
            return None
        # variables of the module come before the arguments and may have the same names
        found = [
            a for a in self._memory.allocations()
            if a.name == name and a.size == size and a.space == "global"
        ]  # fmt: skip
        if not found:
            return None
        self._grow(found[-1].end)
        part = slice(found[-1].start, found[-1].end)
        return Written(self._global[part] - 1, self._thread[part] - 1)

    @property
    def fed(self) -> set[tuple[Spot, Spot]]:
        """Pairs of the instruction that wrote and the one that read what it wrote."""
        pairs = {
            (self.spots[int(w) - 1], self.spots[reader - 1])
            for reader, row in self._fed.items()
            for w in np.flatnonzero(row)
            if w
        }
        writers, readers = self._local
        pairs |= {(self.spots[w - 1], self.spots[r - 1]) for w in writers for r in readers}
        return pairs

    # --- events -----------------------------------------------------------------------------------

    def wave_began(self, wave: Wave) -> None:
        self._wave, self._memory = wave, wave.memory
        self._shared = np.zeros(len(wave.shared), np.int32)
        self._grow(0)

    def load(self, group: Group, access: Access, place: Place) -> None:
        self._read(self._number(access.site), place.space, place.at, access.total)

    def store(self, group: Group, access: Access, place: Place, words: Sequence[Array]) -> None:
        lanes = group.lanes if place.lanes is None else group.lanes[place.lanes]
        at = np.broadcast_to(place.at, lanes.shape)
        if group.wave.reversed:
            at, lanes = at[::-1], lanes[::-1]
        self._write(self._number(access.site), place.space, at, access.total, lanes)

    def atomic(self, group: Group, access: Access, place: Place) -> None:
        self.load(group, access, place)
        self.store(group, access, place, ())

    def copy_issued(
        self, wave: Wave, lanes: Array, target: Array, source: Array, size: int, copied: Array,
        group: Array, site: Site,
    ) -> None:  # fmt: skip
        number = self._number(site)
        self._read(number, "global", source[copied > 0], int(copied.max(initial=0)))
        self._write(number, "shared", target, size, lanes)

    def bulk_landed(self, wave: Wave, copy: Any) -> None:
        number = self._number(copy.site)
        source, _, target = copy.direction.partition("->")
        self._read(number, source, np.array([copy.source]), copy.size)
        at, lanes = np.array([copy.target]), np.array([copy.lane])
        if copy.reduction is not None:
            self._read(number, target, at, copy.size)
        self._write(number, target, at, copy.size, lanes)

    # --- bookkeeping ------------------------------------------------------------------------------

    def _number(self, site: Site) -> int:
        span = site.span  # type: ignore[attr-defined]
        spot = (span.line, span.column)
        number = self._numbers.get(spot)
        if number is None:
            self.spots.append(spot)
            number = self._numbers[spot] = len(self.spots)
        return number

    def _grow(self, least: int) -> None:
        assert self._memory is not None
        size = max(len(self._memory.bytes), least)
        if size > len(self._global):
            self._global = np.concatenate([self._global, np.zeros(size - len(self._global), "i4")])
            self._thread = np.concatenate([self._thread, np.zeros(size - len(self._thread), "i4")])

    def _bytes(self, at: Array, size: int) -> Array:
        whole: Array = (at[:, None] + np.arange(size)).reshape(-1) if size > 1 else at
        return whole

    def _read(self, reader: int, space: str, at: Array, size: int) -> None:
        if space == "local":
            self._local[1].add(reader)
            return
        if not len(at) or not size:
            return
        last = self._shared if space == "shared" else self._global
        if last is self._global and int(at.max()) + size > len(last):
            return  # never written
        row = self._fed.get(reader)
        if row is None or len(row) <= len(self.spots):
            wider = np.zeros(2 * len(self.spots) + 2, bool)
            if row is not None:
                wider[: len(row)] = row
            row = self._fed[reader] = wider
        row[last[self._bytes(at, size)]] = True

    def _write(self, writer: int, space: str, at: Array, size: int, lanes: Array) -> None:
        if space == "local":
            self._local[0].add(writer)
            return
        if not len(at):
            return
        where = self._bytes(at, size)
        if space == "shared":
            self._shared[where] = writer
            return
        self._grow(int(where.max()) + 1)
        self._global[where] = writer
        self._thread[where] = np.repeat(self._threads(lanes), size) + 1

    def _threads(self, lanes: Array) -> Array:
        """Numbers of threads in the grid, warps padded."""
        assert self._wave is not None
        per = self._wave.lanes_per_cta
        threads: Array = self._wave.ctas[lanes // per] * per + lanes % per
        return threads

"""Memory of the interpreter of loops: what is defined, in flight, and seen by which threads.

Elements are bit patterns in flat arrays, one stretch for each owner (CTA, thread or warp).  A
shared element knows who wrote and read it since the last barrier of its CTA and whether an
asynchronous copy is on its way to it; what PTX leaves undefined there is a :class:`LoopError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .integers import Int
from .loops import Buffer, If, Loop, Node, Program, dump

__all__ = ["MANY", "Array", "Flight", "Global", "Kind", "LoopError", "Mask", "Shared", "Space"]

Array: TypeAlias = NDArray[Any]
Mask: TypeAlias = NDArray[np.bool_]
#: What an error is about: the word that tests look at.
Kind: TypeAlias = str

#: More than one thread, such as the lanes that load a matrix; and no thread at all.
MANY, _NOBODY = -2, -1


class LoopError(Exception):
    """A program does what has no defined result; ``kind`` says what, ``node`` where.

    Kinds: ``undefined``, ``range``, ``misaligned``, ``in-flight``, ``race``, ``divergent`` and
    ``unsupported``.
    """

    def __init__(self, kind: Kind, message: str, node: Node | None = None) -> None:
        where = f" in '{_text(node)}'" if node is not None else ""
        super().__init__(f"{kind}: {message}{where}")
        self.kind, self.node = kind, node


def _text(node: Node) -> str:
    """The first line of a node."""
    whole = Program("", (), (), (node,), (1, 1, 1), (Int(1),) * 3)
    line = dump(whole).splitlines()[1].strip()
    return line.rstrip(":") if isinstance(node, (Loop, If)) else line


class Space:
    """The elements of a buffer, for each of its owners."""

    def __init__(
        self, buffer: Buffer, extents: Sequence[int], strides: Sequence[int], owners: int,
        dtype: np.dtype[Any], size: int | None = None,
    ) -> None:  # fmt: skip
        self.buffer, self.extents, self.strides = buffer, tuple(extents), tuple(strides)
        places = np.zeros((), np.int64)
        for extent, stride in zip(extents, strides, strict=True):
            places = places[..., None] + np.arange(extent) * stride
        needed = int(places.max()) + 1 if places.size else 0
        if places.size and places.min() < 0:
            raise LoopError("range", f"'{buffer}' has elements before its start")
        self.size = needed if size is None else size
        if needed > self.size:
            raise LoopError("range", f"'{buffer}' needs {needed} elements, not {self.size}")
        #: which places of a stretch belong to the buffer; others are padding
        self.inside = np.zeros(self.size, bool)
        self.inside[places.reshape(-1)] = True
        #: patterns of ones are NaN: what is undefined shows
        self.bits = np.full(owners * self.size, np.iinfo(dtype).max, dtype)
        self.defined = np.zeros(owners * self.size, bool)

    def places(self, index: Sequence[Array], alive: Mask, node: Node) -> Array:
        """Where elements are in a stretch; indices of those not alive do not matter."""
        total = np.zeros(alive.shape, np.int64)
        for axis, (i, extent, stride) in enumerate(
            zip(index, self.extents, self.strides, strict=True)
        ):
            wrong = alive & ((i < 0) | (i >= extent))
            if wrong.any():
                found = int(np.broadcast_to(i, wrong.shape)[wrong][0])
                raise LoopError(
                    "range", f"index {found} of axis {axis} of '{self.buffer}' ({extent})", node
                )
            total += i * stride
        return total

    def run(self, start: Array, width: int, alive: Mask, node: Node) -> Array:
        """The places of ``width`` elements in a row from those that were checked."""
        places = start + np.arange(width)
        if width > 1:
            bad = (places < 0) | (places >= self.size)
            bad |= ~self.inside[np.where(bad, 0, places)] if self.size else True
            if (alive & bad).any():
                at = int(places[alive & bad][0])
                raise LoopError("range", f"no element {at} in '{self.buffer}'", node)
        return places

    def flat(self, owner: Array, places: Array) -> Array:
        """Numbers of elements over all owners."""
        flat: Array = owner[:, None] * self.size + places
        return flat

    def read(
        self, owner: Array, thread: Array, places: Array, alive: Mask, node: Node
    ) -> tuple[Array, Mask]:
        """Patterns, and which are defined; those not alive are zero."""
        flat = self.flat(owner, np.where(alive, places, 0))[alive]
        self.reading(flat, np.broadcast_to(thread[:, None], alive.shape)[alive], node)
        bits, defined = np.zeros(alive.shape, self.bits.dtype), np.ones(alive.shape, bool)
        bits[alive], defined[alive] = self.bits[flat], self.defined[flat]
        return bits, defined

    def write(
        self, owner: Array, thread: Array, places: Array, alive: Mask,
        bits: Array, defined: Mask, node: Node,
    ) -> None:  # fmt: skip
        """New patterns of the elements alive."""
        flat = self.flat(owner, places)[alive]
        who = np.broadcast_to(thread[:, None], alive.shape)[alive]
        self.writing(flat, who, bits[alive], defined[alive], node)
        self.bits[flat] = bits[alive]
        self.defined[flat] = defined[alive]

    def reading(self, flat: Array, who: Array, node: Node) -> None:
        """Elements are about to be read by threads."""

    def writing(self, flat: Array, who: Array, bits: Array, defined: Mask, node: Node) -> None:
        """Elements are about to be written by threads."""


class Global(Space):
    """A parameter: all of it is defined, and accesses are counted."""

    def __init__(
        self, buffer: Buffer, extents: Sequence[int], strides: Sequence[int], bits: Array
    ) -> None:
        super().__init__(buffer, extents, strides, 1, bits.dtype, len(bits))
        self.bits[:] = bits
        self.defined[:] = True
        self.reads = np.zeros(self.size, np.int64)
        self.writes = np.zeros(self.size, np.int64)

    def reading(self, flat: Array, who: Array, node: Node) -> None:
        np.add.at(self.reads, flat, 1)

    def writing(self, flat: Array, who: Array, bits: Array, defined: Mask, node: Node) -> None:
        if not defined.all():
            at = int(flat[~defined][0])
            raise LoopError("undefined", f"element {at} of '{self.buffer}' gets no value", node)
        np.add.at(self.writes, flat, 1)
        self.bits[flat] = bits
        if (self.bits[flat] != bits).any():
            at = int(flat[self.bits[flat] != bits][0])
            raise LoopError("race", f"element {at} of '{self.buffer}' gets two values", node)


class Shared(Space):
    """Shared memory of all CTAs.

    ``epochs`` counts the barriers of each CTA; threads are numbered within their CTA, warps that
    load matrices are no single thread.
    """

    def __init__(
        self, buffer: Buffer, extents: Sequence[int], strides: Sequence[int],
        dtype: np.dtype[Any], epochs: Array, checked: bool,
    ) -> None:  # fmt: skip
        super().__init__(buffer, extents, strides, len(epochs), dtype)
        self.epochs, self.checked = epochs, checked
        count = len(self.bits)
        self.flight = np.zeros(count, bool)
        self.writer, self.written = np.full(count, _NOBODY), np.full(count, -1)
        self.reader, self.seen = np.full(count, _NOBODY), np.full(count, -1)

    def _now(self, flat: Array) -> Array:
        now: Array = self.epochs[flat // self.size] if self.size else flat
        return now

    def _refuse(self, kind: Kind, bad: Mask, flat: Array, what: str, node: Node) -> None:
        if bad.any():
            at = int(flat[bad][0])
            place = f"element {at % self.size} of '{self.buffer}' in CTA {at // self.size}"
            raise LoopError(kind, f"{place} {what}", node)

    def reading(self, flat: Array, who: Array, node: Node) -> None:
        if not self.checked:
            return
        self._refuse("in-flight", self.flight[flat], flat, "is read while a copy is on its way to "
                     "it", node)  # fmt: skip
        now = self._now(flat)
        foreign = (self.written[flat] == now) & (self.writer[flat] != who)
        self._refuse("race", foreign, flat, "was written by another thread since the last barrier",
                     node)  # fmt: skip
        several = (self.seen[flat] == now) & (self.reader[flat] != who)
        self.reader[flat], self.seen[flat] = who, now
        several |= self.reader[flat] != who
        self.reader[flat[several]] = MANY

    def writing(self, flat: Array, who: Array, bits: Array, defined: Mask, node: Node) -> None:
        self.overwriting(flat, who, node)
        self.wrote(flat, who)
        if self.checked:
            self._refuse("race", self.writer[flat] != who, flat, "is written by two threads", node)

    def overwriting(self, flat: Array, who: Array, node: Node) -> None:
        """Nobody else may use the elements that threads write now."""
        if not self.checked:
            return
        self._refuse("in-flight", self.flight[flat], flat,
                     "is written while a copy is on its way to it", node)  # fmt: skip
        now = self._now(flat)
        read = (self.seen[flat] == now) & (self.reader[flat] != who)
        self._refuse("race", read, flat, "was read by another thread since the last barrier",
                     node)  # fmt: skip
        foreign = (self.written[flat] == now) & (self.writer[flat] != who)
        self._refuse("race", foreign, flat, "was written by another thread since the last barrier",
                     node)  # fmt: skip

    def wrote(self, flat: Array, who: Array) -> None:
        """Threads have the elements written; others see that after a barrier."""
        self.writer[flat], self.written[flat] = who, self._now(flat)

    def launch(self, flight: Flight) -> None:
        """Copies are on their way."""
        flat, who = flight.elements()
        self.overwriting(flat, who, flight.node)
        if self.checked and len(np.unique(flat)) < len(flat):
            raise LoopError(
                "in-flight", f"two copies are on their way to an element of '{self.buffer}'",
                flight.node,
            )  # fmt: skip
        self.flight[flat] = True

    def land(self, flight: Flight, chosen: Mask) -> None:
        """Threads know that their copies have landed."""
        flat, who = flight.elements(chosen)
        self.flight[flat] = False
        self.wrote(flat, who)


@dataclass(slots=True)
class Flight:
    """Copies of a statement on their way, one for each thread with a lane in the arrays."""

    out: Shared
    cta: Array
    thread: Array
    #: by thread and element: where it goes
    places: Array
    #: the number of the group of each thread
    group: Array
    #: gives the patterns of some of the threads, and which are defined
    source: Callable[[Mask], tuple[Array, Mask]]
    node: Node

    def elements(self, chosen: Mask | None = None) -> tuple[Array, Array]:
        """The elements over all CTAs and their threads."""
        rows = slice(None) if chosen is None else chosen
        flat = self.out.flat(self.cta[rows], self.places[rows])
        who = np.broadcast_to(self.thread[rows][:, None], flat.shape)
        return flat.reshape(-1), who.reshape(-1)

    def store(self, chosen: Mask) -> None:
        """The copied patterns arrive."""
        flat, _ = self.elements(chosen)
        bits, defined = self.source(chosen)
        self.out.bits[flat] = bits.reshape(-1)
        self.out.defined[flat] = defined.reshape(-1)

    def without(self, chosen: Mask) -> Flight:
        """The copies of the other threads."""
        rest = np.flatnonzero(~chosen)

        def source(some: Mask) -> tuple[Array, Mask]:
            every = np.zeros(len(chosen), bool)
            every[rest[some]] = True
            return self.source(every)

        return Flight(
            self.out, self.cta[rest], self.thread[rest], self.places[rest], self.group[rest],
            source, self.node,
        )  # fmt: skip

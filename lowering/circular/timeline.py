"""Timelines of a circular-buffered loop: the reference order, and a judge of any other.

All threads of a CTA execute the same trace of loads, commits, waits, barriers and uses of tiles;
tile t lies in slot t mod S.  :func:`trace` writes the order that the lowering must produce, or one
with a known fault; :func:`faults` finds what is wrong with a trace; :func:`timeline` shows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from .loops import BlockSync, Commit, Wait

__all__ = [
    "REFERENCE",
    "Event",
    "Fault",
    "Kind",
    "Load",
    "Order",
    "Timeline",
    "Use",
    "faults",
    "timeline",
    "trace",
]


@dataclass(frozen=True, slots=True)
class Load:
    """Asynchronous copies of a tile into its slot, or into another one."""

    tile: int
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class Use:
    """All threads read a tile from its slot, or from another one."""

    tile: int
    slot: int | None = None


Event: TypeAlias = Load | Commit | Wait | BlockSync | Use


@dataclass(frozen=True, slots=True)
class Order:
    """An order of the events of an iteration; what is not the default is a fault or a risk."""

    #: the commit of an iteration stands behind its wait and barrier
    commit_last: bool = False
    #: an empty group is committed behind the prolog
    stray_commit: bool = False
    #: groups that each wait leaves pending beyond S - 2
    slack: int = 0
    #: a wait that leaves none pending is spelled wait_all, which covers uncommitted copies as well
    zero_is_all: bool = False
    #: barriers in the loop
    barriers: bool = True
    #: iterations of the last S - 1 tiles
    drain: bool = True
    #: the wait for everything behind the loop
    wait_all: bool = True


REFERENCE = Order()


def trace(depth: int, tiles: int, order: Order = REFERENCE) -> list[Event]:
    """The events of S = ``depth`` slots and T = ``tiles`` tiles.

    >>> trace(2, 1)[:4]
    [Load(tile=0, slot=None), Commit(), Wait(pending=0), BlockSync()]
    """
    prolog, iterations = _parts(depth, tiles, order)
    events = [*prolog, *(event for row in iterations for event in row)]
    return [*events, Wait(None)] if order.wait_all else events


def _parts(depth: int, tiles: int, order: Order) -> tuple[list[Event], list[list[Event]]]:
    """The prolog, and each iteration."""
    prolog = _prolog(depth, tiles, order)
    last = tiles if order.drain else max(tiles - depth + 1, 0)
    return prolog, [_iteration(depth, tiles, order, i) for i in range(last)]


def _prolog(depth: int, tiles: int, order: Order) -> list[Event]:
    if depth < 2:
        raise ValueError(f"a circular buffer has 2 or more slots, not {depth}")
    prolog: list[Event] = []
    for tile in range(depth - 1):
        prolog.extend([Load(tile), Commit()] if tile < tiles else [Commit()])
    prolog.extend([Commit()] if order.stray_commit else [])
    return [*prolog, _wait(depth, order), BlockSync()]


def _wait(depth: int, order: Order) -> Wait:
    pending = depth - 2 + order.slack
    return Wait(None if order.zero_is_all and pending == 0 else pending)


def _iteration(depth: int, tiles: int, order: Order, i: int) -> list[Event]:
    wait = _wait(depth, order)
    row: list[Event] = [Load(i + depth - 1)] if i + depth - 1 < tiles else []
    row.extend([] if order.commit_last else [Commit()])
    row.extend([Use(i), wait, BlockSync()] if order.barriers else [Use(i), wait])
    row.extend([Commit()] if order.commit_last else [])
    return row


# --- the judge ------------------------------------------------------------------------------------


class Kind(Enum):
    """What is wrong with a trace."""

    #: a tile is used before its copies are known to have landed for all threads
    RAW = "RAW"
    #: a slot is overwritten that other threads may still read, or that a copy is on its way to
    WAR = "WAR"
    #: a slot holds another tile than the one to be used
    SLOT = "slot"
    #: a tile is not used once, in ascending order
    USE = "use"
    #: copies are on their way at the end
    PENDING = "pending"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a tile, at the event with that number."""

    kind: Kind
    tile: int
    position: int


@dataclass(slots=True)
class _Slot:
    """The newest load of a slot."""

    tile: int
    #: the number of its group
    group: int
    landed: bool = False
    #: a barrier made it visible to all
    visible: bool = False
    #: it was used and no barrier came since
    used: bool = False


@dataclass(slots=True)
class _Judge:
    depth: int
    committed: int = 0
    slots: dict[int, _Slot] = field(default_factory=dict)
    #: loads in flight whose slot was given to another one
    lost: list[_Slot] = field(default_factory=list)
    uses: int = 0

    def place(self, event: Load | Use) -> int:
        return event.tile % self.depth if event.slot is None else event.slot

    def load(self, event: Load) -> Iterator[Kind]:
        old = self.slots.get(self.place(event))
        if old is not None and (old.used or not old.landed):
            yield Kind.WAR
        if old is not None and not old.landed:
            self.lost.append(old)
        self.slots[self.place(event)] = _Slot(event.tile, self.committed)

    def wait(self, pending: int | None) -> None:
        done = self.committed - pending if pending is not None else self.committed + 1
        for slot in (*self.slots.values(), *self.lost):
            slot.landed |= slot.group < done

    def barrier(self) -> None:
        for slot in self.slots.values():
            slot.visible |= slot.landed
            slot.used = False

    def use(self, event: Use) -> Iterator[Kind]:
        if event.tile != self.uses:
            yield Kind.USE
        self.uses = event.tile + 1
        slot = self.slots.get(self.place(event))
        if slot is None or slot.tile != event.tile:
            yield Kind.SLOT
        elif not slot.visible:
            yield Kind.RAW
        if slot is not None:
            slot.used = True


def faults(events: Sequence[Event], depth: int, tiles: int) -> tuple[Fault, ...]:
    """All faults of a trace in the order of its events; none if it is right.

    Copies land when a wait covers their group, not before; a barrier makes those landed visible
    and says that the uses before it are over.
    """
    judge = _Judge(depth)
    found: list[Fault] = []
    for at, event in enumerate(events):
        kinds: Iterator[Kind] = iter(())
        if isinstance(event, Load):
            kinds = judge.load(event)
        elif isinstance(event, Use):
            kinds = judge.use(event)
        elif isinstance(event, Wait):
            judge.wait(event.pending)
        elif isinstance(event, Commit):
            judge.committed += 1
        else:
            judge.barrier()
        if isinstance(event, (Load, Use)):
            found += [Fault(kind, event.tile, at) for kind in kinds]
    found += [Fault(Kind.USE, tile, len(events)) for tile in range(judge.uses, tiles)]
    left = [s for s in (*judge.slots.values(), *judge.lost) if not s.landed]
    found += [Fault(Kind.PENDING, tile, len(events)) for tile in sorted(s.tile for s in left)]
    return tuple(found)


# --- text -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Timeline:
    """The events of a trace as text.

    ``Lk`` loads tile k (``r``: the residue), ``Cg`` commits group g, ``Wn[g<m]`` leaves n groups
    pending, so that those below m are done, ``B`` is a barrier, ``Mi`` uses tile i and ``-`` stands
    for a load that does not exist.
    """

    prolog: str
    iterations: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join((self.prolog, *self.iterations)) + "\n"


def timeline(
    depth: int, tiles: int, order: Order = REFERENCE, *, peeled: bool = True, rows: int = 1 << 20
) -> Timeline:
    """The prolog and the iterations of :func:`trace`, of which ``rows`` are shown at most.

    >>> print(timeline(3, 1), end="")
    L0r C0; - C1; W1[g<1] B
    - C2 M0 W1[g<2] B
    >>> print(timeline(2, 100, rows=3, peeled=False), end="")
    L0 C0; W0[g<1] B
    L1 C1 M0 W0[g<2] B
    ...
    L99 C99 M98 W0[g<100] B
    - C100 M99 W0[g<101] B
    """
    committed = 0
    steps: list[str] = []
    loaded = False
    for event in _prolog(depth, tiles, order):
        text, committed = _word(event, committed, peeled)
        if isinstance(event, Commit):
            steps.append(f"{steps.pop() if loaded else '-'} {text};")
        else:
            steps.append(text)
        loaded = isinstance(event, Load)
    last = tiles if order.drain else max(tiles - depth + 1, 0)
    lines: list[str] = []
    left_out = range(rows // 2, last - (rows - rows // 2))
    for i in (*range(min(left_out.start, last)), *range(max(left_out.stop, left_out.start), last)):
        if left_out and i == left_out.stop:
            lines.append("...")
        lines.append(_row(_iteration(depth, tiles, order, i), committed + i, peeled))
    return Timeline(" ".join(steps), tuple(lines))


def _row(row: list[Event], committed: int, peeled: bool) -> str:
    """An iteration; each commits one group."""
    words = [] if isinstance(row[0], Load) else ["-"]
    for event in row:
        text, committed = _word(event, committed, peeled)
        words.append(text)
    return " ".join(words)


def _word(event: Event, committed: int, peeled: bool) -> tuple[str, int]:
    """The text of an event, and the groups committed after it."""
    if isinstance(event, Load):
        return f"L{event.tile}{'r' if peeled and not event.tile else ''}", committed
    if isinstance(event, Commit):
        return f"C{committed}", committed + 1
    if isinstance(event, Use):
        return f"M{event.tile}", committed
    if isinstance(event, BlockSync):
        return "B", committed
    if event.pending is None:
        return "W", committed
    return f"W{event.pending}[g<{max(committed - event.pending, 0)}]", committed

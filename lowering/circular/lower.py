"""From a scheduled fusion to a loop nest: inlining, circular buffering and peeling.

A circular-buffered loop of T tiles with S slots becomes a prolog that loads S-1 tiles, a main loop
that loads tile ``i+S-1`` and uses tile ``i``, and a drain that only uses.  Copies are committed
right behind the last load of an iteration and waited for in front of its barrier: then S-2 groups
may be pending in each iteration, and one barrier in each iteration suffices.  Loads of the first
tile are the only ones that a peeled axis tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ptxsim.errors import UsageError

from ..dispatch import Decline, Declined
from .check import check
from .context import Context
from .indexing import Point, reduces
from .integers import Expr, Int, Symbol, expr, maximum, multiple, symbols
from .loops import (
    Block,
    BlockSync,
    Commit,
    Copy,
    If,
    Loop,
    Memory,
    Node,
    Parallel,
    Peel,
    Program,
    Stage,
    Test,
    Wait,
    Why,
    statements,
)
from .peel import Residue, plan
from .statements import Statements
from .tensors import Axis, Copied, Fusion, Split, Tensor

__all__ = ["Scheme", "lower"]

#: Makes the statements of one tile: of a loop, and of a part of a peeled one.
_Body: TypeAlias = Callable[[Expr], list[Node]]
_Part: TypeAlias = Callable[[Expr, Peel], list[Node]]

_THREADS = (Parallel.TIDX, Parallel.TIDY, Parallel.TIDZ)
_BLOCKS = (Parallel.BIDX, Parallel.BIDY, Parallel.BIDZ)


@dataclass(frozen=True, slots=True)
class Scheme:
    """How loops over tiles are lowered.

    ``peel``: the residue tile goes first, in ascending order (``on``) or so that vectors stay
    aligned (``aligned``).  ``fill``: what makes the elements zero that no copy loads: the copies
    (``zfill``), stores before them (``explicit``) or nothing.  ``tail``: the last iterations of a
    circular buffer load nothing (``drain``), or load under a test (``masked``).  ``predicate``: a
    test of the axis is computed for each vector, or once where vectors of a thread have it in
    common.
    """

    peel: Literal["off", "on", "aligned"] = "on"
    fill: Literal["zfill", "explicit", "none"] = "zfill"
    tail: Literal["drain", "masked"] = "drain"
    predicate: Literal["thread", "vector"] = "thread"


def lower(fusion: Fusion, scheme: Scheme = Scheme()) -> Program:
    """The loop nest of a fusion; :class:`Declined` where a peeled axis cannot be peeled.

    :class:`UsageError` for schedules that make no sense.
    """
    check(fusion)
    return _Nest(fusion, scheme).program()


class _Nest:
    def __init__(self, fusion: Fusion, scheme: Scheme) -> None:
        self.fusion = fusion
        self.scheme = scheme
        self.context = Context(fusion.multiples)
        self.sizes = _sizes(fusion)
        for size in self.sizes:
            self.context.size(size)
        self.block = self._threads()
        self.grid = self._ctas()
        for how, count in self.block.items():
            self.context.special(how.value, Int(count))
        for how, blocks in self.grid.items():
            self.context.special(how.value, blocks)
        self.clearing = False
        #: tensors that have their zeros before the loop that loads them, not before each copy
        self.cleared: set[Tensor] = set()
        #: loops around, of any kind, whose body is executed or written out several times
        self.repeats = 0
        #: shared tensors that were loaded
        self.loaded: set[Tensor] = set()
        self.residues: dict[Axis, Residue] = {}
        marked = {a for t in fusion.tensors for a in t.peeled}
        if scheme.peel != "off":
            for axis in sorted(marked, key=str):
                self.residues[axis] = self._peeled(axis)
        self.make = Statements(
            fusion, self.context, self.residues, frozenset(marked), scheme.fill,
            scheme.predicate == "thread", self.block,
        )  # fmt: skip

    def program(self) -> Program:
        nodes: list[Node] = []
        for t in self.fusion.tensors:
            if t.memory is Memory.GLOBAL and t.definition is not None:
                nodes += self.nest(t, 0, Point())
        x, y, z = (self.block.get(how, 1) for how in _THREADS)
        gx, gy, gz = (self.grid.get(how, Int(1)) for how in _BLOCKS)
        return Program(
            self.fusion.name, tuple(self.make.buffers.values()), self.sizes,
            self.context.headed(nodes), (x, y, z), (gx, gy, gz),
        )  # fmt: skip

    def _threads(self) -> dict[Parallel, int]:
        counts: dict[Parallel, int] = {}
        for t in self.fusion.tensors:
            for axis, how in t.parallel.items():
                if how.thread:
                    counts[how] = max(counts.get(how, 1), axis.fixed)
        if math.prod(counts.values()) > 1024:
            raise UsageError(f"{math.prod(counts.values())} threads are more than a CTA can have")
        return counts

    def _ctas(self) -> dict[Parallel, Expr]:
        counts: dict[Parallel, Expr] = {}
        for t in self.fusion.tensors:
            for axis, how in t.parallel.items():
                if how.block and counts.setdefault(how, axis.extent) != axis.extent:
                    raise UsageError(
                        f"{how.value} has {counts[how]} values, but {axis} of {t.name} "
                        f"has {axis.extent}"
                    )
        return counts

    def _peeled(self, axis: Axis) -> Residue:
        aligned = self.scheme.peel == "aligned"
        vector = max((_vector(t) for t in self.fusion.tensors), default=1)
        found = plan(self.fusion, axis, vector=vector, aligned=aligned)
        if isinstance(found, Decline):
            raise Declined(f"{axis} as a peeled axis", {self.scheme.peel: found})
        size = self.context
        whole = math.gcd(multiple(found.extent, size.multiples), found.tile) or found.tile
        rest = size.define(f"{axis}.rest", found.rest, whole)
        tiles = size.define(f"{axis}.tiles", found.tiles)
        kept = rest
        if aligned:
            kept = size.define(f"{axis}.aligned", rest - rest % vector, vector)
        return Residue(found.extent, found.tile, tiles, rest, kept, aligned)

    # --- nests ----------------------------------------------------------------------------------

    def nest(
        self, t: Tensor, depth: int, point: Point, done: frozenset[str] = frozenset()
    ) -> list[Node]:
        """The loops of a tensor from a depth on; ``done`` are producers that are there already."""
        nodes: list[Node] = []
        producers = [p for p in self._inlined(t, depth) if p.name not in done]
        shared = {p for p in producers if p.memory is Memory.SHARED}
        if shared & self.loaded and not self.repeats:
            nodes.append(BlockSync())  # for another nest that has read it
        nodes += self._producers(producers, t, point)
        self.loaded |= shared
        if depth == len(t.leaf):
            return [*nodes, *self._made(t, point)]
        axis = t.leaf[depth]
        if axis in point.values:
            return [*nodes, *self.nest(t, depth + 1, point)]
        first = next((a for a in t.leaf if reduces(t, a)), None)
        if axis == first:
            nodes += self._initial(t, depth, point)
        nodes += self._loops(t, depth, axis, point)
        if shared and self.repeats:
            nodes.append(BlockSync())
        return nodes

    def _made(self, t: Tensor, point: Point) -> list[Node]:
        if self.clearing:
            return [self.make.cleared(t, point)]
        nodes = self.make.statement(t, point)
        if self.scheme.fill != "explicit" or t in self.cleared or t.memory is not Memory.SHARED:
            return nodes
        return [self.make.cleared(t, point), *nodes]

    def _clear(self, axis: Axis, load: _Part, tile: Expr, part: Peel) -> list[Node]:
        """Zeros for a slot, where stores make them: no later tile leaves out more than the first.

        Tiles of an axis that is not peeled have them before each copy.
        """
        if self.scheme.fill != "explicit" or axis not in self.residues:
            return []
        self.clearing = True
        nodes = load(tile, part)
        self.clearing = False
        return nodes

    def _inlined(self, t: Tensor, depth: int) -> Iterator[Tensor]:
        for producer in self.fusion.tensors:
            if producer.at is not None and producer.at[0] is t and producer.at[1] == depth:
                yield producer
            elif producer.at is None and depth == 0 and producer in t.sources:
                if producer.memory is not Memory.GLOBAL:
                    yield producer

    def _produced(self, t: Tensor, consumer: Tensor, point: Point) -> list[Node]:
        position = t.at[1] if t.at is not None else 0
        return self.nest(t, 0, point.only(set(consumer.leaf[:position]) & set(t.leaf)))

    def _producers(self, producers: list[Tensor], t: Tensor, point: Point) -> list[Node]:
        """Tensors that are made in one place; what is in shared memory is there for the others."""
        nodes: list[Node] = []
        loads: list[Node] = []
        pending: set[Tensor] = set()
        for producer in producers:
            if pending & self._read(producer):
                nodes += [*loads, *self._landed(loads), BlockSync()]
                loads, pending = [], set()
            loads += self._produced(producer, t, point)
            if producer.memory is Memory.SHARED:
                pending.add(producer)
        return [*nodes, *loads, *([*self._landed(loads), BlockSync()] if pending else [])]

    def _read(self, t: Tensor) -> set[Tensor]:
        """What a tensor and those inlined in it are computed from."""
        inside = [p for p in self.fusion.tensors if p.at is not None and p.at[0] is t]
        return set(t.sources).union(*map(self._read, inside))

    def _landed(self, nodes: list[Node]) -> list[Node]:
        return [Commit(), Wait(0)] if _asynchronous(nodes) else []

    def _initial(self, t: Tensor, depth: int, point: Point) -> list[Node]:
        """The start of a reduction, in loops over what is not reduced."""
        axes = [a for a in t.leaf[depth:] if not reduces(t, a) and a not in point.values]
        for axis in axes:
            if t.parallel.get(axis) is Parallel.MMA:
                point = point.at(axis, Int(0))
        return self._filled(t, [a for a in axes if a not in point.values], point)

    def _filled(self, t: Tensor, axes: list[Axis], point: Point) -> list[Node]:
        if not axes:
            return [self.make.initial(t, point)]
        axis, rest = axes[0], axes[1:]
        how = t.parallel.get(axis, Parallel.SERIAL)
        if how.thread or how.block:
            return self._filled(t, rest, point.at(axis, self._special(how)))
        var = self.context.name(str(axis))
        with self.context.scope(var, Int(0), axis.extent, serial=False):
            body = self._filled(t, rest, point.at(axis, Symbol(var)))
            return [Loop(var, Int(0), axis.extent, self.context.headed(body), how)]

    # --- loops ----------------------------------------------------------------------------------

    def _loops(self, t: Tensor, depth: int, axis: Axis, point: Point) -> list[Node]:
        how = t.parallel.get(axis, Parallel.SERIAL)
        if how.thread or how.block:
            return self.nest(t, depth + 1, point.at(axis, self._special(how)))
        if how in (Parallel.VECTORIZE, Parallel.MMA):
            return self.nest(t, depth + 1, point.at(axis, Int(0)))
        if how is Parallel.UNROLL:
            return self._unrolled(t, depth, axis, point)
        loaded = [p for p in self._inlined(t, depth + 1) if p.memory is Memory.SHARED]
        if loaded:
            return self._pipeline(t, depth, axis, point, loaded)
        tiles = self._tiles(axis)
        nodes: list[Node] = []
        first: Expr = Int(0)
        part = Peel.NONE
        if axis in self.residues:
            with self._repeated():
                inside = self.nest(t, depth + 1, point.at(axis, Int(0), Peel.RESIDUE))
            nodes += self._where(expr(0) < tiles, inside)
            first, part = Int(1), Peel.STEADY
        return nodes + self._serial(
            axis, first, tiles, Stage.NONE, part,
            lambda i: self.nest(t, depth + 1, point.at(axis, i, part)),
        )  # fmt: skip

    @contextmanager
    def _repeated(self) -> Iterator[None]:
        """The body of a loop: what it has read in shared memory is loaded again."""
        self.repeats += 1
        try:
            yield
        finally:
            self.repeats -= 1

    def _special(self, how: Parallel) -> Expr:
        """The number of the thread or CTA, where there are several."""
        count = self.grid[how] if how.block else Int(self.block[how])
        return Int(0) if count == Int(1) else Symbol(how.value)

    def _tiles(self, axis: Axis) -> Expr:
        return self.residues[axis].tiles if axis in self.residues else axis.extent

    def _unrolled(self, t: Tensor, depth: int, axis: Axis, point: Point) -> list[Node]:
        """An unrolled loop; written out where that takes tests out of a loop around it."""
        var = self.context.name(str(axis))
        state = self.context.state()
        with self._repeated(), self.context.scope(var, Int(0), axis.extent, serial=False):
            body = self.nest(t, depth + 1, point.at(axis, Symbol(var)))
            loop = Loop(var, Int(0), axis.extent, self.context.headed(body), Parallel.UNROLL)
        if var not in self.context.wanted:
            return [loop]
        self.context.restore(state)
        nodes: list[Node] = []
        with self._repeated():
            for i in range(axis.fixed):
                nodes += self.nest(t, depth + 1, point.at(axis, Int(i)))
        return nodes

    def _serial(
        self, axis: Axis, start: Expr, stop: Expr, stage: Stage, part: Peel, body: _Body
    ) -> list[Node]:
        """A serial loop, unless it has no iterations."""
        if self.context.decided(start < stop) is False:
            return []
        var = self.context.name(str(axis))
        with self._repeated(), self.context.scope(var, start, stop, serial=True):
            inside = self.context.headed(body(Symbol(var)))
            return [Loop(var, start, stop, inside, Parallel.SERIAL, stage, part)]

    def _where(self, condition: Expr, nodes: list[Node]) -> list[Node]:
        """Statements under a test that all threads agree on."""
        known = self.context.decided(condition)
        if known is not None or not nodes:
            return nodes if known else []
        return [If((Test(condition, Why.UNIFORM),), tuple(nodes))]

    # --- circular buffers -----------------------------------------------------------------------

    def _pipeline(
        self, t: Tensor, depth: int, axis: Axis, point: Point, loaded: list[Tensor]
    ) -> list[Node]:
        names = frozenset(p.name for p in loaded)
        slots = max(p.slots for p in loaded)
        if {p.slots for p in loaded} != {slots}:
            raise UsageError(f"the tensors loaded in the loop over {axis} differ in their slots")
        peeled = axis in self.residues
        around = self.repeats > 0
        if peeled:
            self.cleared |= set(loaded)

        def load(i: Expr, part: Peel) -> list[Node]:
            inside = point.at(axis, i, part if peeled else Peel.NONE)
            return [n for p in loaded for n in self._produced(p, t, inside)]

        def use(i: Expr, part: Peel) -> list[Node]:
            inside = point.at(axis, i, part if peeled else Peel.NONE)
            return self.nest(t, depth + 1, inside, names)

        if slots == 1:
            return self._single(axis, load, use)
        return self._circular(axis, slots, load, use, loaded, around)

    def _single(self, axis: Axis, load: _Part, use: _Part) -> list[Node]:
        """One slot: load, wait, use."""

        def whole(i: Expr, part: Peel) -> list[Node]:
            clear = self._clear(axis, load, i, part) if part is Peel.RESIDUE else []
            loads = [*clear, *load(i, part)]
            return [*loads, *self._landed(loads), BlockSync(), *use(i, part), BlockSync()]

        tiles = self._tiles(axis)
        if axis not in self.residues:
            return self._serial(axis, Int(0), tiles, Stage.MAIN, Peel.NONE,
                                lambda i: whole(i, Peel.NONE))  # fmt: skip
        self.context.serial += 1
        first = self._where(expr(0) < tiles, whole(Int(0), Peel.RESIDUE))
        self.context.serial -= 1
        return first + self._serial(axis, Int(1), tiles, Stage.MAIN, Peel.STEADY,
                                    lambda i: whole(i, Peel.STEADY))  # fmt: skip

    def _circular(
        self, axis: Axis, slots: int, load: _Part, use: _Part, loaded: list[Tensor], around: bool
    ) -> list[Node]:
        tiles = self._tiles(axis)
        peeled = axis in self.residues
        ahead = slots - 1
        masked = self.scheme.tail == "masked"
        mixed = Peel.MIXED if peeled else Peel.NONE
        copies = any(isinstance(p.definition, Copied) and p.definition.cache for p in loaded)
        commit: list[Node] = [Commit()] if copies else []
        wait: list[Node] = [Wait(slots - 2)] if copies else []
        nodes: list[Node] = []
        # elements of a tile that does not exist fail the tests of what was split into tiles
        outer = isinstance(axis.origin, Split) and axis.origin.part == "outer"
        itself = masked and outer and not peeled
        self.make.beyond = frozenset({axis} if itself else ())
        self.context.serial += 1
        for s in range(ahead):
            part = Peel.STEADY if s else Peel.RESIDUE
            loads = [*self._clear(axis, load, Int(s), part), *load(Int(s), part)]
            # the residue tile has its own test, unless there is no tile at all
            empty = self.context.decided(expr(0) < tiles) is False
            if s > 0 or empty if peeled else not itself:
                loads = self._where(expr(s) < tiles, loads)
            nodes += [*loads, *commit]
        nodes += self._clear(axis, load, Int(ahead), Peel.STEADY)
        self.context.serial -= 1
        nodes += [*wait, BlockSync()]

        def main(i: Expr) -> list[Node]:
            plain = itself or not masked
            loads = load(i + ahead, Peel.STEADY) if plain else self._ahead(i + ahead, tiles, load)
            return [*loads, *commit, *use(i, mixed), *wait, BlockSync()]

        def drain(i: Expr) -> list[Node]:
            return [*commit, *use(i, late), *wait, BlockSync()]

        middle = tiles if masked else maximum(tiles - ahead, 0)
        nodes += self._serial(axis, Int(0), middle, Stage.MAIN, mixed, main)
        if not masked:
            late = Peel.STEADY if peeled and self.context.decided(expr(0) < middle) else mixed
            nodes += self._serial(axis, middle, tiles, Stage.DRAIN, late, drain)
        nodes += [Wait(None)] if copies else []
        return nodes + ([BlockSync()] if around else [])

    def _ahead(self, tile: Expr, tiles: Expr, load: _Part) -> list[Node]:
        """Loads of a tile that may not exist, under a test of that."""
        name = self.context.condition(tile < tiles, Why.UNIFORM)
        self.make.exists = (Test(name, Why.UNIFORM),)
        loads = load(tile, Peel.STEADY)
        self.make.exists = ()
        return loads


def _asynchronous(nodes: list[Node] | Block) -> bool:
    return any(isinstance(n, Copy) and n.cache for n in statements(tuple(nodes)))


def _vector(t: Tensor) -> int:
    if not isinstance(t.definition, Copied):
        return 1
    vectors = [a.fixed for a, how in t.parallel.items() if how is Parallel.VECTORIZE]
    return max(vectors, default=1)


def _sizes(fusion: Fusion) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for t in fusion.tensors:
        for value in (*(a.extent for a in t.roots), *t.strides):
            names.update(dict.fromkeys(symbols(value)))
    ordered = [name for name in fusion.sizes if name in names]
    return tuple(dict.fromkeys([*ordered, *names]))

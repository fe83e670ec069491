"""The meaning of a loop program: it runs in NumPy, all threads of all CTAs statement by statement.

A judge of the passes that rewrite loops, independent of them and of the emitted PTX.  What has no
defined result is a :class:`LoopError`: elements outside of a buffer, undefined elements that reach
global memory, accesses to bytes of copies in flight, accesses of two threads to a shared element
that no barrier separates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

import numpy as np

from ptxsim.targets import parse_target

from .integers import Expr, Int, Select, Symbol
from .interpret_memory import (
    MANY,
    Array,
    Flight,
    Global,
    LoopError,
    Mask,
    Shared,
    Space,
)
from .interpret_values import carrier, encode, operate, parse_instruction, product
from .loops import (
    Access,
    Block,
    BlockSync,
    Buffer,
    Commit,
    Compute,
    Copy,
    Define,
    Fill,
    If,
    LoadMatrix,
    Loop,
    Memory,
    Mma,
    Node,
    Parallel,
    Program,
    StoreMatrix,
    Test,
    Wait,
    Why,
)

__all__ = ["Counts", "Interpretation", "LoopError", "interpret"]

_OUTCOMES = ("full", "partial", "zero_filled", "skipped")
_LANES = 32


@dataclass
class Counts:
    """Executions by threads, as the counters of the simulator have them.

    A test counts where its condition is computed: at the :class:`Define` if that has a purpose, at
    the guard or branch otherwise; constants do not count.  Copies are those of cp.async, fills
    those of shared memory.
    """

    #: by global buffer: how often each element of its array was read and written
    reads: dict[str, Array] = field(default_factory=dict)
    writes: dict[str, Array] = field(default_factory=dict)
    tests: Counter[Why] = field(default_factory=Counter)
    fills: int = 0
    fill_bytes: int = 0
    #: by outcome: full, partial, zero_filled, skipped
    copies: Counter[str] = field(default_factory=Counter)
    bytes_read: int = 0
    bytes_zeroed: int = 0
    commits: int = 0
    empty_commits: int = 0
    #: by the number of groups that may pend, None for wait_all
    waits: Counter[int | None] = field(default_factory=Counter)
    barriers: int = 0
    #: mma instructions by warps
    mmas: int = 0
    pending_at_exit: int = 0

    def counters(self) -> dict[str, int]:
        """Names and values of the simulator's counters of cp.async and barriers by threads."""
        issued = sum(self.copies[o] for o in _OUTCOMES if o != "skipped")
        named = {
            "cp.async": issued,
            **{f"cp.async.{o}": self.copies[o] for o in _OUTCOMES},
            "cp.async.commit_group": self.commits,
            "cp.async.commit_group.empty": self.empty_commits,
            "cp.async.wait_all": self.waits[None],
            "cp.async.pending_at_exit": self.pending_at_exit,
            "barrier": self.barriers,
            **{f"cp.async.wait_group.{n}": c for n, c in self.waits.items() if n is not None},
        }
        bytes_ = {
            "cp.async.bytes_read": self.bytes_read,
            "cp.async.bytes_zeroed": self.bytes_zeroed,
        }
        return {f"{name}.threads": count for name, count in named.items()} | bytes_


@dataclass(frozen=True)
class Interpretation:
    """The arrays after a run, and what was executed."""

    arrays: dict[str, Array]
    counts: Counts


def interpret(
    program: Program,
    arrays: Mapping[str, Array],
    sizes: Mapping[str, int],
    *,
    landing: Literal["early", "late"] = "late",
    target: str = "sm_80",
    checked: bool = True,
) -> Interpretation:
    """Run a program on flat arrays of its global buffers, which stay as they are.

    ``landing``: asynchronous copies land when they are issued, or at the wait that covers them.
    Without ``checked`` races and accesses to copies in flight are no errors; the results of the two
    landings then show them.  ``target`` decides how tensor cores add.
    """
    number = parse_target(target)
    if number is None:
        raise ValueError(f"no target '{target}'")
    if set(sizes) != set(program.sizes):
        raise ValueError(f"sizes are {', '.join(program.sizes)}, not {', '.join(sizes)}")
    machine = _Machine(program, arrays, sizes, landing == "late", checked, number.number)
    machine.run(program.body, np.ones(machine.shape, bool))
    return machine.finish(arrays)


@dataclass(frozen=True, slots=True)
class _Lanes:
    """The threads, or warps, that execute a statement."""

    cta: Array
    #: thread or warp of its CTA
    number: Array
    warps: bool

    @property
    def count(self) -> int:
        return len(self.cta)


class _Machine:
    """All threads in arrays of shape (CTAs, threads of a CTA)."""

    def __init__(
        self, program: Program, arrays: Mapping[str, Array], sizes: Mapping[str, int],
        late: bool, checked: bool, target: int,
    ) -> None:  # fmt: skip
        self.late, self.target = late, target
        self.counts = Counts()
        self.env: dict[str, Any] = {name: np.int64(value) for name, value in sizes.items()}
        #: defined values that are conditions: their tests were counted
        self.known: frozenset[str] = frozenset()
        grid = [int(self.value(e)) for e in program.grid]
        self.block = program.block
        self.shape = (prod(grid), prod(program.block))
        self._number(grid)
        self.epochs = np.zeros(self.shape[0], np.int64)
        self.spaces = {b.name: self._space(b, arrays, checked) for b in program.buffers}
        self.flights: list[Flight] = []
        #: by thread: groups closed, the newest group with a copy, groups that are done
        self.closed = np.zeros(self.shape, np.int64)
        self.newest = np.full(self.shape, -1, np.int64)
        self.done = np.zeros(self.shape, np.int64)
        self.handlers: dict[type, Callable[[Any, Mask], None]] = {
            Loop: self._loop, If: self._if, Define: self._define, Copy: self._copy,
            Fill: self._fill, Compute: self._compute, LoadMatrix: self._load_matrix,
            Mma: self._mma, StoreMatrix: self._store_matrix, Commit: self._commit,
            Wait: self._wait, BlockSync: self._barrier,
        }  # fmt: skip

    def _number(self, grid: list[int]) -> None:
        for axis, names in (
            (0, ("ctaid.x", "ctaid.y", "ctaid.z")),
            (1, ("tid.x", "tid.y", "tid.z")),
        ):
            rest = np.arange(self.shape[axis])
            rest = rest[:, None] if axis == 0 else rest[None, :]
            for name, extent in zip(names, grid if axis == 0 else self.block, strict=True):
                self.env[name] = rest % max(extent, 1)
                rest = rest // max(extent, 1)

    def _space(self, buffer: Buffer, arrays: Mapping[str, Array], checked: bool) -> Space:
        extents = [int(self.value(e)) for e in buffer.extents]
        strides = [int(self.value(s)) for s in buffer.strides]
        dtype = carrier(buffer.dtype)
        if buffer.memory is Memory.GLOBAL:
            array = arrays[buffer.name]
            if array.dtype.itemsize != dtype.itemsize:
                raise ValueError(f"'{buffer}' has elements of {buffer.dtype}, not {array.dtype}")
            return Global(buffer, extents, strides, np.array(array).reshape(-1).view(dtype))
        if buffer.memory is Memory.SHARED:
            return Shared(buffer, extents, strides, dtype, self.epochs, checked)
        owners = prod(self.shape)
        if buffer.fragment is not None:
            if self.block[0] != _LANES:
                raise LoopError("unsupported", f"'{buffer}' needs CTAs of 32 threads in x")
            owners //= _LANES
        return Space(buffer, extents, strides, owners, dtype)

    def finish(self, arrays: Mapping[str, Array]) -> Interpretation:
        """The results."""
        counts, out = self.counts, {}
        counts.pending_at_exit = int((self.newest >= self.done).sum())
        for name, space in self.spaces.items():
            if isinstance(space, Global):
                counts.reads[name], counts.writes[name] = space.reads, space.writes
                out[name] = space.bits.view(arrays[name].dtype).reshape(arrays[name].shape)
        return Interpretation(out, counts)

    # --- values -----------------------------------------------------------------------------------

    def value(self, e: Expr | int) -> Any:
        """An integer expression: a number, or an array that broadcasts to all threads."""
        if isinstance(e, int):
            return np.int64(e)
        if isinstance(e, Int):
            return np.int64(e.value)
        if isinstance(e, Symbol):
            if e.name not in self.env:
                raise LoopError("undefined", f"'{e.name}' has no value")
            return self.env[e.name]
        if isinstance(e, Select):
            test = self.value(e.condition)
            if np.ndim(test) == 0:
                return self.value(e.yes if test else e.no)
            return np.where(test != 0, self.value(e.yes), self.value(e.no))
        left, right = self.value(e.left), self.value(e.right)
        if e.name in ("//", "%") and np.any(right == 0):
            raise LoopError("undefined", f"division by zero in {e}")
        return _OPERATIONS[e.name](left, right)

    def of(self, e: Expr, lanes: _Lanes, node: Node) -> Array:
        """The values for threads, or for warps, whose lanes must have the same."""
        value = np.broadcast_to(self.value(e), self.shape)
        if not lanes.warps:
            return np.asarray(value[lanes.cta, lanes.number])
        rows = value.reshape(self.shape[0], -1, _LANES)[lanes.cta, lanes.number]
        if (rows != rows[:, :1]).any():
            raise LoopError("divergent", f"the lanes of a warp do not agree on {e}", node)
        return np.asarray(rows[:, 0])

    def index(self, access: Access, lanes: _Lanes, node: Node) -> list[Array]:
        """The indices of an access, with an axis for the elements."""
        return [self.of(i, lanes, node)[:, None] for i in access.index]

    def lanes(self, mask: Mask, warps: bool, node: Node) -> _Lanes:
        """Who executes a statement."""
        if not warps:
            return _Lanes(*np.nonzero(mask), False)
        if self.block[0] != _LANES:
            raise LoopError("unsupported", "matrices need CTAs of 32 threads in x", node)
        together = mask.reshape(len(mask), -1, _LANES)
        if (together.any(axis=2) != together.all(axis=2)).any():
            raise LoopError("divergent", "not all lanes of a warp execute this", node)
        return _Lanes(*np.nonzero(together.all(axis=2)), True)

    def owner(self, space: Space, lanes: _Lanes) -> Array:
        """Whose stretch of a buffer threads or warps access."""
        if isinstance(space, Global):
            return np.zeros_like(lanes.cta)
        if isinstance(space, Shared):
            return lanes.cta
        each = self.shape[1] // _LANES if lanes.warps else self.shape[1]
        return lanes.cta * each + lanes.number

    def _read(
        self, space: Space, lanes: _Lanes, places: Array, alive: Mask, node: Node
    ) -> tuple[Array, Mask]:
        who = np.full_like(lanes.cta, MANY) if lanes.warps else lanes.number
        return space.read(self.owner(space, lanes), who, places, alive, node)

    def _write(
        self, space: Space, lanes: _Lanes, places: Array, alive: Mask, bits: Array, defined: Mask,
        node: Node,
    ) -> None:  # fmt: skip
        who = np.full_like(lanes.cta, MANY) if lanes.warps else lanes.number
        space.write(self.owner(space, lanes), who, places, alive, bits, defined, node)

    # --- control ----------------------------------------------------------------------------------

    def run(self, block: Block, mask: Mask) -> None:
        """The statements of a block by the threads of a mask."""
        outer = self.env, self.known
        self.env = dict(self.env)
        for node in block:
            if not mask.any():
                break
            self.handlers[type(node)](node, mask)
        self.env, self.known = outer

    def _loop(self, node: Loop, mask: Mask) -> None:
        start, stop = (np.broadcast_to(self.value(e), self.shape) for e in (node.start, node.stop))
        if node.parallel.thread or node.parallel.block:
            own = np.broadcast_to(self.env[node.parallel.value], self.shape)
            self._iterate(node, own, mask & (start <= own) & (own < stop))
            return
        if node.parallel not in (Parallel.SERIAL, Parallel.UNROLL):
            raise LoopError("unsupported", f"a loop over {node.parallel.value}", node)
        for i in range(int(start[mask].min()), int(stop[mask].max())):
            self._iterate(node, np.int64(i), mask & (start <= i) & (i < stop))

    def _iterate(self, node: Loop, value: Any, mask: Mask) -> None:
        outer, self.env = self.env, self.env | {node.var: value}
        known, self.known = self.known, self.known - {node.var}
        self.run(node.body, mask)
        self.env, self.known = outer, known

    def _if(self, node: If, mask: Mask) -> None:
        inner = self.holds(node.tests, mask)
        if ((inner.any(axis=1)) & (inner != mask).any(axis=1)).any():
            raise LoopError("divergent", "the threads of a CTA do not agree", node)
        self.run(node.body, inner)

    def _define(self, node: Define, mask: Mask) -> None:
        self.env[node.name] = self.value(node.value)
        self.known = self.known - {node.name}
        if node.why is not None:
            self._evaluated(node.value, node.why, mask)
            self.known = self.known | {node.name}

    def _evaluated(self, condition: Expr, why: Why, mask: Mask) -> None:
        """Count a test, unless its condition is a constant or was counted where it was defined."""
        if isinstance(condition, Select):
            condition = condition.condition
        known = isinstance(condition, Symbol) and condition.name in self.known
        if not isinstance(condition, Int) and not known:
            self.counts.tests[why] += int(np.count_nonzero(mask))

    def holds(self, tests: tuple[Test, ...], mask: Mask) -> Mask:
        """The threads for which all tests hold; all of them are evaluated."""
        inner = mask
        for test in tests:
            self._evaluated(test.condition, test.why, mask)
            inner = inner & (np.broadcast_to(self.value(test.condition), self.shape) != 0)
        return inner

    # --- groups and barriers ----------------------------------------------------------------------

    def _commit(self, node: Commit, mask: Mask) -> None:
        self.counts.commits += int(mask.sum())
        self.counts.empty_commits += int((mask & (self.newest < self.closed)).sum())
        self.closed += mask

    def _wait(self, node: Wait, mask: Mask) -> None:
        self.counts.waits[node.pending] += int(mask.sum())
        if node.pending is None:
            self.closed += mask
        limit = self.closed - (node.pending or 0)
        self.done = np.where(mask, np.maximum(self.done, limit), self.done)
        left = []
        for flight in self.flights:
            landed = flight.group < self.done[flight.cta, flight.thread]
            if landed.any():
                if self.late:
                    flight.store(landed)
                flight.out.land(flight, landed)
            if not landed.all():
                left.append(flight.without(landed) if landed.any() else flight)
        self.flights = left

    def _barrier(self, node: BlockSync, mask: Mask) -> None:
        if (mask.any(axis=1) != mask.all(axis=1)).any():
            raise LoopError("divergent", "not all threads of a CTA come to the barrier", node)
        self.counts.barriers += int(mask.sum())
        self.epochs += mask.any(axis=1)

    # --- copies, fills and operations -------------------------------------------------------------

    def _copy(self, node: Copy, mask: Mask) -> None:
        inner = self.holds(node.guard, mask)
        out, source = (self.spaces[a.buffer.name] for a in (node.out, node.source))
        self._check_copy(node, out, source)
        if node.cache:
            self.counts.copies["skipped"] += int(mask.sum() - inner.sum())
        if node.zero is not None:
            self._evaluated(node.zero.live, node.zero.why, mask)
        if not inner.any():
            return
        lanes = self.lanes(inner, False, node)
        alive = np.arange(node.width) < self._live(node, lanes)[:, None]
        places = self._vector(source, node.source, lanes, alive, node)
        everything = np.ones_like(alive)
        to = self._vector(out, node.out, lanes, everything, node)
        if node.cache:
            assert isinstance(out, Shared)
            self._launch(node, out, source, lanes, places, alive, to)
            return
        bits, defined = self._read(source, lanes, places, alive, node)
        self._write(out, lanes, to, everything, bits, defined, node)

    def _check_copy(self, node: Copy, out: Space, source: Space) -> None:
        size = node.width * out.bits.dtype.itemsize
        if out.buffer.fragment is not None or source.buffer.fragment is not None:
            raise LoopError("unsupported", "a copy of a matrix that a warp holds", node)
        if out.bits.dtype != source.bits.dtype:
            raise LoopError("unsupported", "a copy between types", node)
        if not node.cache:
            return
        sizes = {"ca": (4, 8, 16), "cg": (16,)}.get(node.cache, ())
        if not (isinstance(out, Shared) and isinstance(source, Global) and size in sizes):
            raise LoopError("unsupported", f"no cp.async.{node.cache} of {size} bytes", node)

    def _live(self, node: Copy, lanes: _Lanes) -> Array:
        if node.zero is None:
            return np.full(lanes.count, node.width)
        live = self.of(node.zero.live, lanes, node)
        wrong = (live < 0) | (live > node.width)
        if node.zero.whole:
            wrong |= (live != 0) & (live != node.width)
        if wrong.any():
            raise LoopError("range", f"{int(live[wrong][0])} of {node.width} elements live", node)
        return live

    def _vector(
        self, space: Space, access: Access, lanes: _Lanes, alive: Mask, node: Copy | Fill
    ) -> Array:
        """The places of a vector, which must be aligned where any of it is alive."""
        start = space.places(self.index(access, lanes, node), alive[:, :1], node)
        if node.width > 1 and space.buffer.memory is not Memory.LOCAL:
            size = node.width * space.bits.dtype.itemsize
            off = (start % node.width != 0) & alive[:, :1]
            if size & (size - 1) or space.buffer.align % size or off.any():
                raise LoopError("misaligned", f"{size} bytes of '{space.buffer}'", node)
            swizzle = space.buffer.swizzle
            if swizzle is not None and swizzle.chunk % node.width:
                raise LoopError("misaligned", f"{swizzle} parts {node.width} elements", node)
        return space.run(start, node.width, alive, node)

    def _launch(
        self, node: Copy, out: Shared, source: Space, lanes: _Lanes,
        places: Array, alive: Mask, to: Array,
    ) -> None:  # fmt: skip
        live = alive.sum(axis=1)
        for outcome, which in (
            ("full", live == node.width),
            ("partial", (live > 0) & (live < node.width)),
            ("zero_filled", live == 0),
        ):
            self.counts.copies[outcome] += int(which.sum())
        size = out.bits.dtype.itemsize
        self.counts.bytes_read += int(alive.sum()) * size
        self.counts.bytes_zeroed += int((~alive).sum()) * size
        bits, defined = self._read(source, lanes, places, alive, node)

        def late(chosen: Mask) -> tuple[Array, Mask]:
            flat = np.where(alive, places, 0)[chosen]
            kept = alive[chosen]
            now = np.where(kept, source.bits[flat] if source.size else 0, 0)
            return now.astype(source.bits.dtype), np.ones_like(kept)

        def early(chosen: Mask) -> tuple[Array, Mask]:
            return bits[chosen], defined[chosen]

        group = self.closed[lanes.cta, lanes.number]
        flight = Flight(out, lanes.cta, lanes.number, to, group, late if self.late else early, node)
        out.launch(flight)
        self.newest[lanes.cta, lanes.number] = group
        self.flights.append(flight)
        if not self.late:
            flight.store(np.ones(lanes.count, bool))

    def _fill(self, node: Fill, mask: Mask) -> None:
        inner = self.holds(node.guard, mask)
        space = self.spaces[node.out.buffer.name]
        warps = space.buffer.fragment is not None
        lanes = self.lanes(inner, warps, node)
        if not lanes.count:
            return
        if warps:
            places = self._fragment(space, node.out, lanes, node)
        else:
            alive = np.ones((lanes.count, node.width), bool)
            places = self._vector(space, node.out, lanes, alive, node)
        if isinstance(space, Shared):
            self.counts.fills += lanes.count
            self.counts.fill_bytes += lanes.count * node.width * space.bits.dtype.itemsize
        alive = np.ones(places.shape, bool)
        bits = np.full(places.shape, encode(node.value, space.buffer.dtype), space.bits.dtype)
        self._write(space, lanes, places, alive, bits, alive, node)

    def _compute(self, node: Compute, mask: Mask) -> None:
        inner = self.holds(node.guard, mask)
        accesses = (*node.sources, node.out)
        spaces = [self.spaces[a.buffer.name] for a in accesses]
        held = {s.buffer.fragment is not None for s in spaces}
        if len(held) > 1:
            raise LoopError("unsupported", "an operation of matrices and single elements", node)
        lanes = self.lanes(inner, held.pop(), node)
        if not lanes.count:
            return
        places = [
            self._fragment(s, a, lanes, node) if lanes.warps
            else s.places(self.index(a, lanes, node), np.ones((lanes.count, 1), bool), node)
            for s, a in zip(spaces, accesses, strict=True)
        ]  # fmt: skip
        if len({p.shape[1] for p in places}) > 1:
            raise LoopError("unsupported", "an operation of matrices of several shapes", node)
        alive = np.ones(places[0].shape, bool)
        operands, defined = [], alive
        for space, at in zip(spaces[:-1], places, strict=False):
            bits, known = self._read(space, lanes, at, alive, node)
            operands.append(bits)
            defined = defined & known
        types = [s.buffer.dtype for s in spaces]
        try:
            result = operate(node.op, types[-1], types[:-1], operands)
        except ValueError as error:
            raise LoopError("unsupported", str(error), node) from error
        self._write(spaces[-1], lanes, places[-1], alive, result, defined, node)

    # --- matrices ---------------------------------------------------------------------------------

    def _fragment(self, space: Space, access: Access, lanes: _Lanes, node: Node) -> Array:
        """The places of the matrix that warps hold in a fragment buffer, row by row."""
        if space.buffer.fragment is None:
            raise LoopError("unsupported", f"'{space.buffer}' is no matrix of a warp", node)
        if access.index[-2:] != (Int(0), Int(0)):
            raise LoopError("unsupported", f"a part of the matrix '{space.buffer}'", node)
        axes = (len(space.extents) - 2, len(space.extents) - 1)
        alive = np.ones((lanes.count, space.extents[-2] * space.extents[-1]), bool)
        return self._matrix(space, access, lanes, axes, space.extents[-2:], alive, node)

    def _matrix(
        self, space: Space, access: Access, lanes: _Lanes, axes: tuple[int, int],
        shape: tuple[int, ...], alive: Mask, node: Node,
    ) -> Array:  # fmt: skip
        index = self.index(access, lanes, node)
        row, column = np.divmod(np.arange(shape[0] * shape[1]), shape[1])
        index[axes[0]] = index[axes[0]] + row
        index[axes[1]] = index[axes[1]] + column
        return space.places(index, alive, node)

    def _load_matrix(self, node: LoadMatrix, mask: Mask) -> None:
        lanes = self.lanes(mask, True, node)
        out, source = (self.spaces[a.buffer.name] for a in (node.out, node.source))
        if not isinstance(source, Shared) or source.bits.dtype != out.bits.dtype:
            raise LoopError("unsupported", f"a matrix of '{source.buffer}'", node)
        places = self._fragment(out, node.out, lanes, node)
        alive = np.ones(places.shape, bool)
        at = self._matrix(source, node.source, lanes, node.axes, out.extents[-2:], alive, node)
        bits, defined = self._read(source, lanes, at, alive, node)
        self._write(out, lanes, places, alive, bits, defined, node)

    def _store_matrix(self, node: StoreMatrix, mask: Mask) -> None:
        lanes = self.lanes(mask, True, node)
        out, source = (self.spaces[a.buffer.name] for a in (node.out, node.source))
        if not isinstance(out, Global) or source.buffer.dtype != out.buffer.dtype:
            raise LoopError("unsupported", f"a matrix to '{out.buffer}'", node)
        places = self._fragment(source, node.source, lanes, node)
        rows, columns = source.extents[-2:]
        alive = np.ones(places.shape, bool)
        for position, left in zip(
            np.divmod(np.arange(rows * columns), columns), node.left, strict=True
        ):
            if left is not None:
                alive &= position < self.of(left, lanes, node)[:, None]
        at = self._matrix(out, node.out, lanes, node.axes, (rows, columns), alive, node)
        bits, defined = self._read(source, lanes, places, np.ones_like(alive), node)
        self._write(out, lanes, at, alive, bits, defined, node)

    def _mma(self, node: Mma, mask: Mask) -> None:
        lanes = self.lanes(mask, True, node)
        accesses = (node.a, node.b, node.acc)
        spaces = [self.spaces[a.buffer.name] for a in accesses]
        places = [self._fragment(s, a, lanes, node) for s, a in zip(spaces, accesses, strict=True)]
        shapes = [s.extents[-2:] for s in spaces]
        (m, k), (k_b, n), c = shapes
        parts = parse_instruction(node.instruction)
        if k != k_b or c != (m, n) or any(e % p for e, p in zip((m, n, k), parts, strict=True)):
            raise LoopError("unsupported", f"matrices of {m}x{k}, {k_b}x{n} and {c}", node)
        alive = [np.ones(p.shape, bool) for p in places]
        read = [
            self._read(s, lanes, p, a, node) for s, p, a in zip(spaces, places, alive, strict=True)
        ]
        a, b, acc = (r[0].reshape(-1, *s) for r, s in zip(read, shapes, strict=True))
        known_a, known_b, known = (r[1].reshape(-1, *s) for r, s in zip(read, shapes, strict=True))
        types = (spaces[0].buffer.dtype, spaces[1].buffer.dtype, spaces[2].buffer.dtype)
        try:
            result = product(
                a, b, acc, types=types, instruction=node.instruction, target=self.target
            )
        except (ValueError, KeyError) as error:
            raise LoopError("unsupported", str(error), node) from error
        # an element is defined if all of its row, its column and the accumulator are
        known = known & known_a.all(axis=2)[:, :, None] & known_b.all(axis=1)[:, None, :]
        self.counts.mmas += lanes.count * (m // parts[0]) * (n // parts[1]) * (k // parts[2])
        self._write(
            spaces[2], lanes, places[2], alive[2], result.reshape(lanes.count, -1),
            known.reshape(lanes.count, -1), node,
        )  # fmt: skip


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "//": np.floor_divide,
    "%": np.mod,
    "min": np.minimum,
    "max": np.maximum,
    "<": lambda a, b: np.less(a, b).astype(np.int64),
    "==": lambda a, b: np.equal(a, b).astype(np.int64),
    "&": lambda a, b: (np.not_equal(a, 0) & np.not_equal(b, 0)).astype(np.int64),
}

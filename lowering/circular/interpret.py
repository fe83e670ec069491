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
from typing import Any, Literal

import numpy as np

from ptxsim.matrix.layouts import parse_shape
from ptxsim.targets import parse_target

from .integers import Expr, Int, Op, Select, Symbol
from .interpret_memory import Array, Flight, Global, LoopError, Mask, Shared, Space
from .interpret_threads import Lanes, Threads
from .interpret_values import encode, operate, product, tf32_of
from .loops import (
    Block,
    BlockSync,
    Commit,
    Compute,
    Copy,
    Define,
    Fill,
    If,
    LoadMatrix,
    Loop,
    Mma,
    Parallel,
    Program,
    StoreMatrix,
    Test,
    Wait,
    Why,
)

__all__ = ["Counts", "Interpretation", "LoopError", "interpret"]

_OUTCOMES = ("full", "partial", "zero_filled", "skipped")


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


class _Machine(Threads):
    """Runs the statements."""

    def __init__(
        self,
        program: Program,
        arrays: Mapping[str, Array],
        sizes: Mapping[str, int],
        late: bool,
        checked: bool,
        target: int,
    ) -> None:
        super().__init__(program, arrays, sizes, checked)
        self.late, self.target = late, target
        self.counts = Counts()
        #: defined values that are conditions: their tests were counted
        self.known: frozenset[str] = frozenset()
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

    def finish(self, arrays: Mapping[str, Array]) -> Interpretation:
        """The results."""
        counts, out = self.counts, {}
        counts.pending_at_exit = int((self.newest >= self.done).sum())
        for name, space in self.spaces.items():
            if isinstance(space, Global):
                counts.reads[name], counts.writes[name] = space.reads, space.writes
                out[name] = space.bits.view(arrays[name].dtype).reshape(arrays[name].shape)
        return Interpretation(out, counts)

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
        """Count the tests of a condition in the threads of a mask."""
        self.counts.tests[why] += self._tests(condition) * int(np.count_nonzero(mask))

    def _tests(self, condition: Expr) -> int:
        """One, of both sides for ``&``; none if constant, or counted where it was defined."""
        if isinstance(condition, Select):
            return self._tests(condition.condition)
        if isinstance(condition, Op) and condition.name == "&":
            return self._tests(condition.left) + self._tests(condition.right)
        if isinstance(condition, Symbol) and condition.name in self.known:
            return 0
        return 0 if isinstance(condition, Int) else 1

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
        places = self.vector(source, node.source, lanes, alive, node)
        everything = np.ones_like(alive)
        to = self.vector(out, node.out, lanes, everything, node)
        if node.cache:
            assert isinstance(out, Shared)
            self._launch(node, out, source, lanes, places, alive, to)
            return
        bits, defined = self.read(source, lanes, places, alive, node)
        self.write(out, lanes, to, everything, bits, defined, node)

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

    def _live(self, node: Copy, lanes: Lanes) -> Array:
        if node.zero is None:
            return np.full(lanes.count, node.width)
        live = self.of(node.zero.live, lanes, node)
        wrong = (live < 0) | (live > node.width)
        if node.zero.whole:
            wrong |= (live != 0) & (live != node.width)
        if wrong.any():
            raise LoopError("range", f"{int(live[wrong][0])} of {node.width} elements live", node)
        return live

    def _launch(
        self, node: Copy, out: Shared, source: Space, lanes: Lanes,
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
        bits, defined = self.read(source, lanes, places, alive, node)

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
            places = self.fragment(space, node.out, lanes, node)
        else:
            alive = np.ones((lanes.count, node.width), bool)
            places = self.vector(space, node.out, lanes, alive, node)
        if isinstance(space, Shared):
            self.counts.fills += lanes.count
            self.counts.fill_bytes += lanes.count * node.width * space.bits.dtype.itemsize
        alive = np.ones(places.shape, bool)
        bits = np.full(places.shape, encode(node.value, space.buffer.dtype), space.bits.dtype)
        self.write(space, lanes, places, alive, bits, alive, node)

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
            self.fragment(s, a, lanes, node) if lanes.warps
            else s.places(self.index(a, lanes, node), np.ones((lanes.count, 1), bool), node)
            for s, a in zip(spaces, accesses, strict=True)
        ]  # fmt: skip
        if len({p.shape[1] for p in places}) > 1:
            raise LoopError("unsupported", "an operation of matrices of several shapes", node)
        alive = np.ones(places[0].shape, bool)
        operands, defined = [], alive
        for space, at in zip(spaces[:-1], places, strict=False):
            bits, known = self.read(space, lanes, at, alive, node)
            operands.append(bits)
            defined = defined & known
        types = [s.buffer.dtype for s in spaces]
        try:
            result = operate(node.op, types[-1], types[:-1], operands)
        except ValueError as error:
            raise LoopError("unsupported", str(error), node) from error
        self.write(spaces[-1], lanes, places[-1], alive, result, defined, node)

    # --- matrices ---------------------------------------------------------------------------------

    def _load_matrix(self, node: LoadMatrix, mask: Mask) -> None:
        lanes = self.lanes(mask, True, node)
        out, source = (self.spaces[a.buffer.name] for a in (node.out, node.source))
        if not isinstance(source, Shared) or source.bits.dtype != out.bits.dtype:
            raise LoopError("unsupported", f"a matrix of '{source.buffer}'", node)
        places = self.fragment(out, node.out, lanes, node)
        alive = np.ones(places.shape, bool)
        at = self.matrix(source, node.source, lanes, node.axes, out.extents[-2:], alive, node)
        bits, defined = self.read(source, lanes, at, alive, node)
        if (source.buffer.dtype, out.buffer.dtype) == ("f32", "tf32"):
            bits = tf32_of(bits)
        self.write(out, lanes, places, alive, bits, defined, node)

    def _store_matrix(self, node: StoreMatrix, mask: Mask) -> None:
        lanes = self.lanes(mask, True, node)
        out, source = (self.spaces[a.buffer.name] for a in (node.out, node.source))
        if not isinstance(out, Global) or source.buffer.dtype != out.buffer.dtype:
            raise LoopError("unsupported", f"a matrix to '{out.buffer}'", node)
        places = self.fragment(source, node.source, lanes, node)
        rows, columns = source.extents[-2:]
        alive = np.ones(places.shape, bool)
        for position, left in zip(
            np.divmod(np.arange(rows * columns), columns), node.left, strict=True
        ):
            if left is not None:
                alive &= position < self.of(left, lanes, node)[:, None]
        at = self.matrix(out, node.out, lanes, node.axes, (rows, columns), alive, node)
        bits, defined = self.read(source, lanes, places, np.ones_like(alive), node)
        self.write(out, lanes, at, alive, bits, defined, node)

    def _mma(self, node: Mma, mask: Mask) -> None:
        lanes = self.lanes(mask, True, node)
        accesses = (node.a, node.b, node.acc)
        spaces = [self.spaces[a.buffer.name] for a in accesses]
        places = [self.fragment(s, a, lanes, node) for s, a in zip(spaces, accesses, strict=True)]
        shapes = [s.extents[-2:] for s in spaces]
        (m, k), (k_b, n), c = shapes
        parts = parse_shape(node.instruction)
        if k != k_b or c != (m, n) or any(e % p for e, p in zip((m, n, k), parts, strict=True)):
            raise LoopError("unsupported", f"matrices of {m}x{k}, {k_b}x{n} and {c}", node)
        alive = [np.ones(p.shape, bool) for p in places]
        read = [
            self.read(s, lanes, p, a, node) for s, p, a in zip(spaces, places, alive, strict=True)
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
        known = known & np.all(known_a, axis=2, keepdims=True)
        known = known & np.all(known_b, axis=1, keepdims=True)
        self.counts.mmas += lanes.count * (m // parts[0]) * (n // parts[1]) * (k // parts[2])
        self.write(
            spaces[2], lanes, places[2], alive[2], result.reshape(lanes.count, -1),
            known.reshape(lanes.count, -1), node,
        )  # fmt: skip

"""Fusions over tiles of an axis, in the schedules that the lowering must know, and their runs.

Inputs are small integers in f32, so that sums are exact in any order; what lies between their
elements, and outputs before the launch, are NaN.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import ptxsim
from lowering.circular.emit import emit
from lowering.circular.integers import Expr, evaluate
from lowering.circular.interpret import Interpretation, interpret
from lowering.circular.loops import Block, If, Loop, Memory, Node, Parallel, Program
from lowering.circular.lower import Scheme, lower
from lowering.circular.oracle import evaluate as oracle
from lowering.circular.tensors import Fusion, Tensor

Array = NDArray[Any]
Landing = Literal["early", "late"]
LANDINGS: tuple[Landing, ...] = ("early", "late")

DEFAULT = Scheme()
SCHEMES: tuple[Scheme, ...] = tuple(
    Scheme(peel, fill, tail, predicate)  # type: ignore[arg-type]
    for peel, fill, tail, predicate in itertools.product(
        ("off", "on", "aligned"), ("zfill", "explicit"), ("drain", "masked"), ("thread", "vector")
    )
)


def scheme_id(scheme: Scheme) -> str:
    """The name of a scheme in a test's name."""
    return "-".join((scheme.peel, scheme.fill, scheme.tail, scheme.predicate))


# --- fusions --------------------------------------------------------------------------------------


def row_sum(
    m: Expr | int, k: Expr | int, slots: int = 3, *, tile: int = 16, rows: int = 16,
    op: str = "add", vector: int = 1, strides: Sequence[Expr | int] = (), cache: str = "ca",
) -> Fusion:  # fmt: skip
    """nvFuser's PredicatePeeling2: threads sum rows whose tiles come through a circular buffer."""
    fusion = Fusion("row_sum")
    x = fusion.input("x", "f32", {"m": m, "k": k}, strides)
    x_s = fusion.copy("x_s", x, Memory.SHARED, cache)
    acc = fusion.reduce(op, x_s, over=["k"], name="acc")
    y = fusion.output("y", acc)
    for t in (x_s, acc, y):
        t.split("m", rows)
        t.parallelize("m.o", Parallel.BIDX)
        t.parallelize("m.i", Parallel.TIDX)
    for t in (x_s, acc):
        t.split("k", tile)
        t.reorder("m.o", "k.o", "m.i", "k.i")
    if vector > 1:
        x_s.split("k.i", vector)
        x_s.parallelize("k.i.i", Parallel.VECTORIZE)
    x_s.lay_out(acc.axis("m.i"), acc.axis("k.i"))
    acc.inline_at(y, 1)
    x_s.inline_at(acc, 2)
    x_s.circular_buffer(slots)
    acc.peel("k.o")
    return fusion


def copy_of_copy(m: Expr | int, n: int, *, tile: int = 16) -> Fusion:
    """nvFuser's PredicatePeeling1: tiles of rows, one thread for each element of a tile."""
    fusion = Fusion("copies")
    x = fusion.input("x", "f32", {"m": m, "n": n})
    first = fusion.copy("first", x)
    y = fusion.output("y", first)
    for t in (first, y):
        t.split("m", tile)
        t.parallelize("m.i", Parallel.TIDX)
        t.parallelize("n", Parallel.TIDY)
    first.inline_at(y, 3)
    y.peel("m.o")
    return fusion


def doubled(n: Expr | int, slots: int, *, tile: int = 16, outputs: int = 1) -> Fusion:
    """2 * x, written along the axis whose tiles are loaded; several outputs are several nests."""
    fusion = Fusion("doubled")
    x = fusion.input("x", "f32", {"n": n})
    for number in range(outputs):
        mark = str(number) if outputs > 1 else ""
        x_s = fusion.copy(f"x_s{mark}", x, Memory.SHARED, "ca")
        twice = fusion.compute("add", x_s, x_s, name=f"twice{mark}")
        y = fusion.output(f"y{mark}", twice)
        for t in (x_s, twice, y):
            t.split("n", tile)
            t.parallelize("n.i", Parallel.TIDX)
        twice.inline_at(y, 2)
        x_s.inline_at(y, 1)
        x_s.circular_buffer(slots)
        y.peel("n.o")
    return fusion


def two_axes(m: Expr | int, k: Expr | int, slots: int, *, tile: int = 16) -> Fusion:
    """Row sums in one CTA, whose serial tiles of rows are peeled as well as those of columns."""
    fusion = Fusion("two_axes")
    x = fusion.input("x", "f32", {"m": m, "k": k})
    x_s = fusion.copy("x_s", x, Memory.SHARED, "ca")
    acc = fusion.reduce("add", x_s, over=["k"], name="acc")
    y = fusion.output("y", acc)
    for t in (x_s, acc, y):
        t.split("m", tile)
        t.parallelize("m.i", Parallel.TIDX)
    for t in (x_s, acc):
        t.split("k", tile)
        t.reorder("m.o", "k.o", "m.i", "k.i")
    acc.inline_at(y, 1)
    x_s.inline_at(acc, 2)
    x_s.circular_buffer(slots)
    y.peel("m.o")
    acc.peel("k.o")
    return fusion


def merged_sum(
    k1: Expr | int, k2: Expr | int, slots: int, *, tile: int, gap: int = 0, rows: int = 4
) -> Fusion:
    """Sums over two axes at once, whose rows of k2 lie ``gap`` elements apart."""
    fusion = Fusion("merged")
    pitch = k2 + gap
    strides = (k1 * pitch, pitch, 1)
    x = fusion.input("x", "f32", {"m": rows, "k1": k1, "k2": k2}, strides)
    x_s = fusion.copy("x_s", x, Memory.SHARED, "ca")
    acc = fusion.reduce("add", x_s, over=["k1", "k2"], name="acc")
    y = fusion.output("y", acc)
    for t in (x_s, acc):
        t.merge("k1", "k2", "k")
        t.split("k", tile)
        t.reorder("k.o", "m", "k.i")
    for t in (x_s, acc, y):
        t.parallelize("m", Parallel.TIDX)
    x_s.inline_at(acc, 1)
    x_s.circular_buffer(slots)
    acc.peel("k.o")
    return fusion


def crossed_sum(
    k: Expr | int, slots: int, *, batches: Expr | int | None = None, tile: int = 8, rows: int = 8,
    op: str = "add", around: Parallel = Parallel.SERIAL,
) -> Fusion:  # fmt: skip
    """Row sums in one CTA; threads copy columns, so that each reads what others have copied.

    With ``batches`` a loop is around the pipeline: one matrix after another.
    """
    fusion = Fusion("crossed")
    outer = {} if batches is None else {"b": batches}
    x = fusion.input("x", "f32", {**outer, "m": rows, "k": k})
    x_s = fusion.copy("x_s", x, Memory.SHARED, "ca")
    acc = fusion.reduce(op, x_s, over=["k"], name="acc")
    y = fusion.output("y", acc)
    for t in (x_s, acc):
        t.split("k", tile)
    x_s.reorder(*outer, "k.o", "m", "k.i")
    x_s.parallelize("k.i", Parallel.TIDX)
    acc.reorder(*outer, "k.o", "m", "k.i")
    for t in (acc, y):
        t.parallelize("m", Parallel.TIDX)
        if outer and around is not Parallel.SERIAL:
            t.parallelize("b", around)
    acc.inline_at(y, len(outer))
    x_s.inline_at(acc, len(outer) + 1)
    x_s.circular_buffer(slots)
    acc.peel("k.o")
    return fusion


def partitioned_sum(k: Expr | int, part: int, slots: int, *, tile: int = 8) -> Fusion:
    """Split-K: a CTA for each part of the columns, with a sum of its own."""
    fusion = Fusion("partitioned")
    x = fusion.input("x", "f32", {"m": 8, "k": k})
    x_s = fusion.copy("x_s", x, Memory.SHARED, "ca")
    acc = fusion.reduce("add", x_s, over=["k"], name="acc")
    for t in (x_s, acc):
        t.split("k", part)
        t.split("k.i", tile)
        t.reorder("k.o", "k.i.o", "m", "k.i.i")
        t.parallelize("k.o", Parallel.BIDX)
        t.parallelize("m", Parallel.TIDX)
    acc.keep("k.o")
    y = fusion.output("y", acc)
    y.parallelize("k.o", Parallel.BIDX)
    y.parallelize("m", Parallel.TIDX)
    acc.inline_at(y, 1)
    x_s.inline_at(acc, 2)
    x_s.circular_buffer(slots)
    acc.peel("k.i.o")
    return fusion


# --- runs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A lowered fusion with arrays and what it must compute from them."""

    fusion: Fusion
    program: Program
    sizes: dict[str, int]
    arrays: dict[str, Array]

    def places(self, t: Tensor) -> Array:
        """Where the elements of a tensor are in its array."""
        return _places(t, self.sizes)

    def expect(self, arrays: Mapping[str, Array], order: Callable[[int], Sequence[int]]) -> None:
        """The outputs are those of the oracle, and nothing else was written."""
        wanted = oracle(self.fusion, self.arrays, self.sizes, order)
        for t in _outputs(self.fusion):
            got = arrays[t.name]
            places = self.places(t)
            np.testing.assert_array_equal(got[places], wanted[t.name].view(np.float32), t.name)
            rest = np.ones(len(got), bool)
            rest[places] = False
            assert np.isnan(got[rest]).all()


def _outputs(fusion: Fusion) -> list[Tensor]:
    return [t for t in fusion.tensors if t.memory is Memory.GLOBAL and t.definition is not None]


def _places(t: Tensor, sizes: Mapping[str, int]) -> Array:
    places = np.zeros((), np.int64)
    for axis, stride in zip(t.roots, t.strides, strict=True):
        steps = np.arange(evaluate(axis.extent, sizes)) * evaluate(stride, sizes)
        places = places[..., None] + steps
    return places


def case(
    fusion: Fusion, scheme: Scheme = DEFAULT, *, program: Program | None = None, seed: int = 1,
    low: int = -8, high: int = 9, **sizes: int,
) -> Case:  # fmt: skip
    """A fusion, lowered, with random arrays."""
    program = program or lower(fusion, scheme)
    assert set(sizes) == set(program.sizes)
    random = np.random.default_rng(seed)
    arrays = {}
    for t in fusion.tensors:
        if t.memory is Memory.GLOBAL:
            places = _places(t, sizes)
            flat = np.full(int(places.max()) + 1 if places.size else 0, np.nan, np.float32)
            if t.definition is None:
                flat[places] = random.integers(low, high, places.shape)
            arrays[t.name] = flat
    return Case(fusion, program, sizes, arrays)


def interpreted(
    made: Case, order: Callable[[int], Sequence[int]] = range, *, reads: int = 1,
    landings: Sequence[Landing] = LANDINGS,
) -> Interpretation:  # fmt: skip
    """Runs of the loop nest: right results, and each element of the inputs is read so often."""
    for landing in landings:
        done = interpret(made.program, made.arrays, made.sizes, landing=landing)
        made.expect(done.arrays, order)
        for t in made.fusion.tensors:
            if t.memory is Memory.GLOBAL:
                count = done.counts.reads if t.definition is None else done.counts.writes
                times = np.zeros(len(made.arrays[t.name]), np.int64)
                times[made.places(t)] = reads if t.definition is None else 1
                np.testing.assert_array_equal(count[t.name], times, t.name)
        assert done.counts.pending_at_exit == 0
    return done


def launched(made: Case, *, tools: str = "all", schedule: str = "default") -> Launch:
    """A run of the emitted kernel in the simulator; the arrays of the case stay."""
    kernel = emit(made.program)
    arrays = {name: a.copy() for name, a in made.arrays.items()}
    given = [arrays[b.name] for b in made.program.buffers if b.memory is Memory.GLOBAL]
    grid = [evaluate(e, made.sizes) for e in made.program.grid]
    text = kernel.text()
    report = ptxsim.assemble(text)[made.program.name].launch(
        grid=(grid[0], grid[1], grid[2]), block=made.program.block,
        args=[*given, *(np.uint32(made.sizes[s]) for s in made.program.sizes)],
        smem=kernel.dynamic_shared, tools=tools, schedule=schedule,
    )  # fmt: skip
    return Launch(arrays, report, text.splitlines())


@dataclass(frozen=True)
class Launch:
    """Arrays, report and text of an emitted kernel."""

    arrays: dict[str, Array]
    report: ptxsim.Report
    lines: list[str]

    def found(self) -> set[tuple[str, str, str]]:
        """Findings: their class and the opcodes of their two lines."""
        return {
            (f.class_, self._opcode(f.line), self._opcode(f.other_line or 0))
            for f in self.report.findings
        }

    def _opcode(self, line: int) -> str:
        words = self.lines[line - 1].split() if line else []
        return next((w.rstrip(";") for w in words if not w.startswith("@")), "")


def simulated(made: Case, order: Callable[[int], Sequence[int]] = range) -> Launch:
    """A run of the emitted kernel that no tool has anything to say about."""
    done = launched(made)
    assert not done.report.findings, str(done.report.findings[0])
    made.expect(done.arrays, order)
    return done


# --- other programs -------------------------------------------------------------------------------

#: What stands for a statement; None leaves it to the rewriting of its parts.
Change = Callable[[Node], "Sequence[Node] | None"]


def rewritten(program: Program, change: Change) -> Program:
    """The program with statements replaced, the outer ones first."""
    return replace(program, body=_rewritten(program.body, change))


def _rewritten(block: Block, change: Change) -> Block:
    nodes: list[Node] = []
    for node in block:
        new = change(node)
        if new is not None:
            nodes += new
        elif isinstance(node, (Loop, If)):
            nodes.append(replace(node, body=_rewritten(node.body, change)))
        else:
            nodes.append(node)
    return tuple(nodes)

"""Scheduled fusions as loop nests and as kernels: results, reads, and what is tested where.

Results are those of :mod:`lowering.circular.oracle`; that each element of an input is read once,
and each of an output written once, is counted by the interpreter.  Kernels run in the simulator
with all tools, none of which may have anything to say.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from circular_fusions import (
    LANDINGS,
    SCHEMES,
    Case,
    case,
    copy_of_copy,
    crossed_sum,
    doubled,
    interpreted,
    merged_sum,
    partitioned_sum,
    row_sum,
    scheme_id,
    simulated,
    two_axes,
)

from lowering.circular.counts import executions
from lowering.circular.integers import Int, Symbol
from lowering.circular.interpret import interpret
from lowering.circular.loops import (
    Block,
    BlockSync,
    Copy,
    Fill,
    If,
    Loop,
    Memory,
    Parallel,
    Peel,
    Stage,
    Why,
    statements,
)
from lowering.circular.lower import Scheme, lower
from lowering.circular.oracle import visits
from lowering.circular.tensors import Fusion

B, K, M, N = (Symbol(name) for name in "BKMN")
ON, OFF = Scheme("on"), Scheme("off")


def _judged(made: Case) -> Case:
    """A case that the interpreter and the simulator find right."""
    interpreted(made)
    simulated(made)
    return made


def _loops(block: Block) -> list[Loop]:
    found: list[Loop] = []
    for node in block:
        if isinstance(node, Loop):
            found.append(node)
        if isinstance(node, (Loop, If)):
            found += _loops(node.body)
    return found


def _tests(made: Case) -> Counter[Why]:
    return interpreted(made).counts.tests


# --- what upstream tests --------------------------------------------------------------------------


@pytest.mark.parametrize("named", [False, True], ids=["static", "symbolic"])
def test_predicate_peeling_1(named: bool) -> None:
    # 33 rows in tiles of 16, T = 3, r = 1; 16 x 48 threads
    made = case(copy_of_copy(M, 48), M=33) if named else case(copy_of_copy(33, 48))
    assert made.program.block == (16, 48, 1)
    _judged(made)
    steady = [loop for loop in _loops(made.program.body) if loop.peel is Peel.STEADY]
    assert len(steady) == 1
    assert not any(isinstance(n, Copy) and n.guard for n in statements(steady[0].body))


def test_predicate_peeling_2() -> None:
    # K = 45 in tiles of 16, three slots, cp.async.ca of 4 bytes: T = 3, r = 13
    made = _judged(case(row_sum(33, 45)))
    assert made.program.block == (16, 1, 1)
    assert (
        str(made.program)
        == """\
kernel row_sum(x, y)
  global f32 x[33, 45] strides (45, 1)
  shared f32 x_s[3, 16, 16] strides (256, 16, 1)
  local f32 acc[] strides ()
  global f32 y[33] strides (1)
  bound = ctaid.x * 16 + tid.x < 33 (bound)
  acc[] = fill(0, 1)
  for k.i in [0, 16) serial:
    axis = k.i < 13 (axis)
    x_s[0, tid.x, k.i] = cp.async.ca(x[ctaid.x * 16 + tid.x, k.i], 1, \
live (axis & bound ? 1 : 0) (axis))
  commit
  for k.i.1 in [0, 16) serial:
    x_s[1, tid.x, k.i.1] = cp.async.ca(x[ctaid.x * 16 + tid.x, k.i.1 + 13], 1, \
live (bound ? 1 : 0) (bound))
  commit
  wait_group 1
  barrier
  for k.o in [0, 1) serial main mixed:
    for k.i.2 in [0, 16) serial:
      x_s[(k.o + 2) % 3, tid.x, k.i.2] = cp.async.ca(x[ctaid.x * 16 + tid.x, \
(k.o + 1) * 16 + k.i.2 + 13], 1, live (bound ? 1 : 0) (bound))
    commit
    for k.i.3 in [0, 16) serial:
      acc[] = add(acc[], x_s[k.o % 3, tid.x, k.i.3])
    wait_group 1
    barrier
  for k.o.1 in [1, 3) serial drain steady:
    commit
    for k.i.4 in [0, 16) serial:
      acc[] = add(acc[], x_s[k.o.1 % 3, tid.x, k.i.4])
    wait_group 1
    barrier
  wait_all
  y[ctaid.x * 16 + tid.x] = copy(acc[], 1) where bound (bound)
"""
    )


def _staged(
    n: int, slots: int, *, inputs: int = 1, vector: int = 1, unrolled: bool = False,
    cache: str = "ca",
) -> Fusion:  # fmt: skip
    """A sum of inputs by way of circular buffers, 16 threads and 4 elements of each for a tile."""
    fusion = Fusion("staged")
    given = [fusion.input(f"x{i}", "f32", {"n": n}) for i in range(inputs)]
    cached = [fusion.copy(f"s{i}", x, Memory.SHARED, cache) for i, x in enumerate(given)]
    total = fusion.compute("add", *cached, *cached[: 2 - inputs], name="total")
    y = fusion.output("y", total)
    for t in (*cached, total, y):
        t.split("n", 64)
        t.split("n.i", 4)
        t.parallelize("n.i.o", Parallel.TIDX)
        if unrolled:
            t.parallelize("n.i.i", Parallel.UNROLL)
    for t in cached:
        if vector > 1:
            t.parallelize("n.i.i", Parallel.VECTORIZE)
        t.inline_at(y, 1)
        t.circular_buffer(slots)
    total.inline_at(y, 3)
    return fusion


@pytest.mark.parametrize("slots", [2, 3, 5])
@pytest.mark.parametrize(
    "options",
    [
        {}, {"unrolled": True}, {"vector": 4}, {"vector": 4, "cache": "cg"}, {"inputs": 2},
        {"inputs": 2, "vector": 4}, {"cache": ""}, {"cache": "", "vector": 4},
    ],
    ids=["single", "unrolled", "vectors", "bypassing", "two inputs", "two vectors", "no async",
         "no async vectors"],
)  # fmt: skip
def test_circular_buffers_unpeeled(slots: int, options: dict[str, int]) -> None:
    interpreted(case(_staged(244, slots, **options)), landings=["late"])  # type: ignore[arg-type]
    made = case(_staged(256, slots, **options))  # type: ignore[arg-type]
    simulated(made)
    counts = interpreted(made).counts
    # 256 elements are 4 whole tiles: no test at all; groups only if copies are asynchronous
    assert counts.tests[Why.AXIS] == counts.tests[Why.BOUND] == 0
    asynchronous = options.get("cache", "ca") != ""
    assert counts.commits == (16 * (slots - 1 + 4) if asynchronous else 0)
    assert counts.barriers == 16 * (1 + 4)


def test_nested_circular_buffers() -> None:
    # rows of a vector come through an outer buffer, tiles of a matrix through an inner one
    fusion = Fusion("nested")
    scale = fusion.input("scale", "f32", {"m": 6})
    x = fusion.input("x", "f32", {"m": 6, "n": 45})
    scale_s = fusion.copy("scale_s", scale, Memory.SHARED, "ca")
    x_s = fusion.copy("x_s", x, Memory.SHARED, "ca")
    product = fusion.compute("mul", x_s, scale_s, name="product")
    y = fusion.output("y", product)
    for t in (x_s, product, y):
        t.split("n", 16)
        t.parallelize("n.i", Parallel.TIDX)
    product.inline_at(y, 3)
    scale_s.inline_at(y, 1)
    scale_s.circular_buffer(3)
    x_s.inline_at(y, 2)
    x_s.circular_buffer(2)
    y.peel("n.o")
    for scheme in (OFF, ON, Scheme("off", tail="masked"), Scheme("on", "explicit", "masked")):
        made = case(fusion, scheme)
        interpreted(made)
    simulated(made)


# --- all schemes ----------------------------------------------------------------------------------


def _some(step: int, schemes: Sequence[Scheme] = SCHEMES) -> list[Any]:
    """Schemes of which one in so many runs by default, the others with the slow tests."""
    return [
        pytest.param(s, id=scheme_id(s), marks=() if at % step == 0 else pytest.mark.slow)
        for at, s in enumerate(schemes)
    ]


@pytest.mark.parametrize("scheme", _some(3))
def test_schemes(scheme: Scheme) -> None:
    for k in (0, 3, 15):
        made = case(crossed_sum(K, 3, tile=4), scheme, K=k)
        interpreted(made)
    interpreted(case(crossed_sum(7, 3, tile=4), scheme))
    interpreted(case(crossed_sum(K, 3, tile=4, op="max"), scheme, K=7, low=-9, high=-1))
    interpreted(case(crossed_sum(7, 2, tile=4, batches=B), scheme, B=2))
    simulated(made)


@pytest.mark.parametrize("scheme", _some(3))
def test_schemes_with_vectors(scheme: Scheme) -> None:
    # 4 | 44 keeps whole vectors of 16 bytes in all schemes: r = 12
    made = case(row_sum(10, 44, vector=4, cache="cg"), scheme)
    interpreted(made)
    if scheme.tail == "drain":
        simulated(made)


@pytest.mark.parametrize("scheme", _some(3, [s for s in SCHEMES if s.peel != "aligned"]))
def test_schemes_of_outputs_along_the_axis(scheme: Scheme) -> None:
    for n in (0, 3, 13, 16):
        made = case(doubled(N, 3, tile=4), scheme, N=n)
        interpreted(made)
    simulated(made)


@pytest.mark.parametrize("peel", ["off", "on", "aligned"])
@pytest.mark.parametrize("tail", ["drain", "masked"])
@pytest.mark.parametrize("op", ["add", "max"])
def test_nothing_needs_zeros_that_tests_what_it_reads(peel: str, tail: str, op: str) -> None:
    scheme = Scheme(peel, "none", tail)  # type: ignore[arg-type]
    made = _judged(case(crossed_sum(K, 3, op=op), scheme, K=21, low=-9, high=-1))
    copies = [n for n in statements(made.program.body) if isinstance(n, Copy) and n.cache]
    assert all(copy.zero is None for copy in copies)
    assert not any(
        isinstance(n, Fill) and n.out.buffer.memory is Memory.SHARED
        for n in statements(made.program.body)
    )


# --- edge cases -----------------------------------------------------------------------------------


#: Residues of the design (section 6.2) and tiles; every other one by default.
GRID = [
    pytest.param(k, tile, marks=() if (at + tile // 16) % 2 else pytest.mark.slow)
    for tile in (16, 32)
    for at, k in enumerate((0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 45, 48, 63, 64, 65))
]


@pytest.mark.parametrize(("k", "tile"), GRID)
def test_grid_of_residues(k: int, tile: int) -> None:
    named = case(row_sum(M, K, tile=tile, rows=4), M=5, K=k)
    known = case(row_sum(5, k, tile=tile, rows=4))
    for made in (named, known):
        interpreted(made)
    # unpeeled the same
    interpreted(case(row_sum(5, k, tile=tile, rows=4), OFF), landings=["late"])
    if tile == 16 and k in (0, 16, 33):
        simulated(named)
        simulated(known)


def test_empty_axis_b4() -> None:
    # r is 0 and not L: nothing is read, and the result is what the reduction starts from
    for scheme in SCHEMES:
        counts = interpreted(case(crossed_sum(K, 3), scheme, K=0)).counts
        assert counts.reads["x"].size == 0
        assert counts.bytes_read == 0
    made = case(crossed_sum(K, 3, op="max"), K=0)
    assert interpreted(made).arrays["y"].tolist() == [-np.inf] * 8
    simulated(made)


@pytest.mark.parametrize("slots", [3, 4, 6])
def test_fewer_tiles_than_slots_b3_b8(slots: int) -> None:
    # one tile of 16: the prolog has tests of the tiles 1 to S-2, which do not exist
    for k in (1, 15, 16):
        made = _judged(case(row_sum(M, K, slots, rows=4), M=4, K=k))
        assert interpreted(made).counts.tests[Why.UNIFORM] == 4 * (slots - 2)
        known = case(row_sum(4, k, slots, rows=4))
        assert interpreted(known).counts.tests[Why.UNIFORM] == 0
        # a tile that is known not to exist has no code
        assert len(_copies(known)) == 1


def _copies(made: Case) -> list[Copy]:
    return [n for n in statements(made.program.body) if isinstance(n, Copy) and n.cache]


def test_two_peeled_axes() -> None:
    made = _judged(case(two_axes(33, 45, 3)))
    interpreted(case(two_axes(M, K, 3), M=33, K=45))
    for m, k in ((16, 16), (5, 0), (17, 31), (0, 20)):
        interpreted(case(two_axes(M, K, 2), M=m, K=k))
    # residue and steady tiles of rows, with residue, steady and ahead loads of columns each
    sums = [n for n in statements(made.program.body) if getattr(n, "op", "") == "add"]
    assert len(sums) == 4
    tests = {loop.peel for loop in _loops(made.program.body)}
    assert tests == {Peel.NONE, Peel.STEADY, Peel.MIXED}


def test_two_peeled_axes_without_a_buffer_have_four_bodies() -> None:
    fusion = Fusion("tiles")
    x = fusion.input("x", "f32", {"m": 33, "k": 45})
    y = fusion.output("y", x)
    y.split("m", 16)
    y.split("k", 16)
    y.reorder("m.o", "k.o", "m.i", "k.i")
    y.parallelize("m.i", Parallel.TIDX)
    y.parallelize("k.i", Parallel.TIDY)
    y.peel("m.o")
    y.peel("k.o")
    made = _judged(case(fusion))
    guards = [len(n.guard) for n in statements(made.program.body)
              if isinstance(n, Copy)]  # fmt: skip
    # each part of each axis: two tests, one, one and none
    assert guards == [2, 1, 1, 0]


#: Extents, tile and gap, of which two in three run by default.
MERGED = [
    pytest.param(*ks, tile, gap, marks=() if (at + tile // 4 + gap // 3) % 3 else pytest.mark.slow)
    for at, ks in enumerate([(3, 5), (4, 8), (7, 12)]) for tile in (4, 8, 16) for gap in (0, 3)
]  # fmt: skip


@pytest.mark.parametrize(("k1", "k2", "tile", "gap"), MERGED)
def test_merged_axes(k1: int, k2: int, tile: int, gap: int) -> None:
    named = case(merged_sum(B, K, 2, tile=tile, gap=gap), B=k1, K=k2)
    interpreted(named, landings=["late"])
    for scheme in (OFF, Scheme("aligned"), ON):
        known = case(merged_sum(k1, k2, 3, tile=tile, gap=gap), scheme)
        interpreted(known, landings=["early"])
    if tile == 4 and k1 != 7:
        simulated(named)
        simulated(known)
    x = known.program.buffers[0]
    # rows without a gap are one axis of k1 * k2 elements, without any division
    assert len(x.extents) == (2 if gap == 0 else 3)
    assert ("//" in str(known.program)) == (gap > 0)


def test_merged_axes_have_one_test() -> None:
    # k < r alone: 15 elements, T = 4, r = 3; no test of k1 or k2
    made = case(merged_sum(3, 5, 3, tile=4, gap=2))
    counts = interpreted(made).counts
    assert counts.tests == Counter({Why.AXIS: 4 * 4})


@pytest.mark.parametrize("k", [0, 1, 15, 16, 17, 31, 40, 47])
def test_partitions(k: int) -> None:
    # parts of 16 in tiles of 8; the last one may have any number of elements
    for scheme in (ON, OFF):
        named = case(partitioned_sum(K, 16, 3), scheme, K=k) if k else None
        for made in (named, case(partitioned_sum(k, 16, 3), scheme) if k else None):
            if made is not None:
                interpreted(made)
    if named is not None and k in (1, 17, 47):
        simulated(named)


def test_max_of_negative_elements() -> None:
    for scheme in SCHEMES[::5]:
        made = case(row_sum(6, 45, op="max", rows=4), scheme, low=-9, high=-1)
        assert interpreted(made).arrays["y"].max() < 0
    simulated(made)
    # the consumer has a test in the residue tile: zeros would win
    peeled = case(row_sum(4, 45, op="max", rows=4), low=-9, high=-1)
    loops = [loop for loop in _loops(peeled.program.body) if loop.stage is Stage.MAIN]
    assert "where" in str(replace(peeled.program, body=(loops[0],)))


@pytest.mark.parametrize("slots", [2, 3, 5])
def test_outputs_along_a_circular_axis_b5(slots: int) -> None:
    # iteration 0 of the main loop uses the residue tile: elements j, not j - sigma, and j < r
    for n in (3, 16, 20, 45, 90):
        named = case(doubled(N, slots), N=n)
        interpreted(named)
        interpreted(case(doubled(n, slots)))
    simulated(named)
    main = [loop for loop in _loops(named.program.body) if loop.stage is Stage.MAIN]
    assert main[0].peel is Peel.MIXED
    assert "0 < n.o ? (n.o - 1) * 16" in str(replace(named.program, body=(main[0],)))


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_several_nests_over_one_peeled_axis_b7(slots: int) -> None:
    for scheme in (ON, OFF, Scheme("on", "explicit", "masked")):
        for n in (3, 45):
            made = case(doubled(N, slots, outputs=2), scheme, N=n)
            interpreted(made, reads=2)
    simulated(made)


def test_several_nests_without_a_buffer_b7() -> None:
    fusion = Fusion("nests")
    x = fusion.input("x", "f32", {"n": N})
    for name in ("y", "z"):
        fusion.output(name, x)
    for t in fusion.tensors[1:]:
        t.split("n", 16)
        t.parallelize("n.i", Parallel.TIDX)
    # marked once: the axis is one index
    fusion.tensors[1].peel("n.o")
    for n in (0, 5, 16, 45):
        made = case(fusion, N=n)
        interpreted(made, reads=2)
    simulated(made)
    # each nest has a residue of its own and no loop over all tiles
    assert [str(loop.start) for loop in _loops(made.program.body)] == ["1", "1"]
    assert sum(isinstance(n, If) for n in made.program.body) == 2


def test_sums_are_in_ascending_order() -> None:
    # floats whose sum depends on the order: bit-equal to a sequential sum
    random = np.random.default_rng(7)
    for k in (13, 45, 64):
        x = random.standard_normal(4 * k).astype(np.float32)
        total = np.zeros(4, np.float32)
        for column in x.reshape(4, k).T:
            total = total + column
        for scheme in (ON, OFF):
            program = lower(row_sum(4, k, rows=4), scheme)
            done = interpret(program, {"x": x, "y": np.zeros(4, np.float32)}, {})
            assert done.arrays["y"].tolist() == total.tolist()


def test_the_aligned_form_has_the_order_of_the_oracle() -> None:
    random = np.random.default_rng(7)
    fusion = row_sum(4, 45, rows=4, vector=4, strides=(48, 1))
    made = case(fusion, Scheme("aligned"))
    places = made.places(fusion.tensors[0])
    made.arrays["x"][places] = random.standard_normal(places.shape)
    order = visits(45, 16, "aligned", 4)
    assert sorted(k for k in order if k >= 0) == list(range(45))
    assert order != visits(45, 16, "on")
    interpreted(made, lambda count: visits(count, 16, "aligned", 4))
    simulated(made, lambda count: visits(count, 16, "aligned", 4))


@pytest.mark.parametrize("scheme", [ON, OFF, Scheme("aligned")], ids=scheme_id)
def test_symbolic_and_static_sizes_do_the_same(scheme: Scheme) -> None:
    for k in (0, 7, 16, 45):
        runs = [
            interpreted(case(row_sum(K, k, rows=4), scheme, K=5)),
            interpreted(case(row_sum(5, K, rows=4), scheme, K=k)),
            interpreted(case(row_sum(M, K, rows=4), scheme, M=5, K=k)),
        ]
        for run in runs:
            assert run.counts.copies["full"] == 5 * k
            assert run.arrays["y"].tolist() == runs[0].arrays["y"].tolist()


@pytest.mark.parametrize("k", [16, 48])
def test_multiples_of_the_tile_have_no_test_of_the_axis(k: int) -> None:
    for scheme in (ON, OFF, Scheme("aligned"), Scheme("on", tail="masked")):
        made = case(row_sum(6, k, rows=4), scheme)
        assert _tests(made)[Why.AXIS] == 0
        promised = row_sum(6, K, rows=4)
        promised.multiples["K"] = 16
        # a promise does not say that there are elements, so the residue tile is tested: r is L or 0
        peeled = scheme.peel != "off"
        assert (_tests(case(promised, scheme, K=k))[Why.AXIS] > 0) == peeled
    assert not any(why is Why.AXIS for why in _tests(case(row_sum(6, k), ON)))


def test_tests_of_the_axis_are_those_of_one_tile() -> None:
    # 16 positions by 16 threads of 3 CTAs; a thread has one row and tests each position once
    counts = interpreted(case(row_sum(33, 45))).counts
    assert counts.tests[Why.AXIS] == 16 * 48
    # unpeeled only the last tile can be outside, of tiles 0 to 2; main loads one of them
    off = interpreted(case(row_sum(M, K), OFF, M=33, K=45)).counts
    assert off.tests[Why.AXIS] == 3 * 16 * 48


def test_a_serial_loop_around_the_pipeline_b6() -> None:
    for scheme, slots in itertools.product(SCHEMES[1::7], (1, 2, 4)):
        made = case(crossed_sum(K, slots, batches=B), scheme, B=3, K=21)
        # no group is pending at exit, and none from one matrix to the next: the interpreter
        # refuses copies to where others are on their way
        interpreted(made)
    interpreted(case(crossed_sum(K, 3, batches=B), B=5, K=5))
    simulated(made)
    simulated(case(crossed_sum(K, 3, batches=B), Scheme("off", tail="masked"), B=3, K=21))


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_an_unrolled_loop_around_the_pipeline(slots: int) -> None:
    for scheme in (ON, OFF, Scheme("off", "explicit", "masked")):
        made = case(crossed_sum(21, slots, batches=3, around=Parallel.UNROLL), scheme)
        interpreted(made)
    simulated(made)


@pytest.mark.parametrize("gap", [0, 3])
def test_strided_and_expanded_batches(gap: int) -> None:
    # batches with a gap, a permuted order, columns that are not in a row
    step = 1 + gap
    for strides in ((8 * 21 + gap, 21, 1), (21, 63 + gap, 1), (step, 7 * step, 56 * step)):
        fusion = crossed_sum(21, 3, batches=3)
        fusion.tensors[0].strides = tuple(map(Int, strides))
        interpreted(case(fusion))
    # a stride of 0: all read one matrix
    fusion = crossed_sum(21, 3, batches=3)
    fusion.tensors[0].strides = (Int(0), *fusion.tensors[0].strides[1:])
    made = case(fusion)
    interpreted(made, reads=3)
    simulated(made)


def test_other_inputs_are_undefined_and_do_not_matter() -> None:
    # columns behind K and rows behind M are NaN in a padded array; none may reach a result
    for scheme in SCHEMES[::5]:
        made = case(row_sum(M, K, rows=4, strides=(64, 1)), scheme, M=6, K=45)
        assert np.isnan(made.arrays["x"]).sum() == 5 * (64 - 45)
        assert np.isfinite(interpreted(made).arrays["y"]).all()
    simulated(made)


# --- shared memory that is loaded several times ---------------------------------------------------


def _restaged(around: Parallel | None, *, peeled: bool = False) -> Fusion:
    """Tiles by way of one buffer that is no circular one, turned by the threads."""
    fusion = Fusion("restaged")
    x = fusion.input("x", "f32", {"m": 8, "n": 40})
    x_s = fusion.copy("x_s", x, Memory.SHARED, "ca")
    y = fusion.output("y", x_s)
    for t in (x_s, y):
        t.split("n", 16)
        t.split("n.i", 8)
        t.reorder("n.o", "n.i.o", "m", "n.i.i")
    x_s.parallelize("m", Parallel.TIDX)
    y.parallelize("n.i.i", Parallel.TIDX)
    if around is not None:
        y.parallelize("n.i.o", around)
    x_s.inline_at(y, 2)
    if peeled:
        y.peel("n.o")
    return fusion


@pytest.mark.parametrize("peeled", [False, True])
@pytest.mark.parametrize("around", [None, Parallel.UNROLL])
def test_a_barrier_before_the_next_tile(around: Parallel | None, peeled: bool) -> None:
    for fill in ("zfill", "explicit", "none"):
        made = case(_restaged(around, peeled=peeled), Scheme(fill=fill))  # type: ignore[arg-type]
        interpreted(made)
    simulated(made)


def _side_by_side(cache: str, apart: bool) -> Fusion:
    """Rows that others have loaded, read into registers beside the load; or one loop further in."""
    fusion = Fusion("beside")
    x = fusion.input("x", "f32", {"m": 4, "k": 4})
    x_s = fusion.copy("x_s", x, Memory.SHARED, cache)
    near = fusion.copy("near", x_s)
    y = fusion.output("y", fusion.compute("neg", near, name="minus"))
    minus = fusion.tensors[-2]
    x_s.parallelize("k", Parallel.TIDX)
    for t in (near, minus, y):
        t.parallelize("m", Parallel.TIDX)
        t.parallelize("k", Parallel.UNROLL)
    minus.inline_at(y, 0)
    x_s.inline_at(y, 0)
    near.inline_at(*((minus, 2) if apart else (y, 0)))
    return fusion


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("cache", ["", "ca"])
def test_a_load_is_there_for_what_is_read_beside_it(cache: str, apart: bool) -> None:
    _judged(case(_side_by_side(cache, apart)))


def test_a_barrier_before_another_nest_loads_it_again() -> None:
    fusion = Fusion("again")
    x = fusion.input("x", "f32", {"m": 8, "n": 8})
    x_s = fusion.copy("x_s", x, Memory.SHARED, "ca")
    x_s.parallelize("m", Parallel.TIDX)
    for name in ("y", "z"):
        fusion.output(name, x_s).parallelize("n", Parallel.TIDX)
    made = case(fusion)
    interpreted(made, reads=2)
    simulated(made)
    assert sum(isinstance(n, BlockSync) for n in made.program.body) == 3


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_stores_of_zeros_where_only_another_axis_is_peeled(slots: int) -> None:
    # tiles of columns are not peeled: the last one leaves out other elements than those before
    for tail in ("drain", "masked"):
        fusion = two_axes(5, 21, slots, tile=4)
        fusion.tensors[2].peeled.clear()
        made = case(fusion, Scheme("on", "explicit", tail))  # type: ignore[arg-type]
        interpreted(made)
    simulated(made)


# --- threads without a part of a tile -------------------------------------------------------------


def _fewer(op: str) -> Fusion:
    """16 threads copy four rows, which four of them turn, negate or add up."""
    fusion = Fusion("fewer")
    x = fusion.input("x", "f32", {"m": 4, "k": 16})
    x_s = fusion.copy("x_s", x, Memory.SHARED, "ca")
    x_s.parallelize("k", Parallel.TIDX)
    if op == "copy":
        found = fusion.copy("found", x_s)
    elif op == "neg":
        found = fusion.compute("neg", x_s, name="found")
    else:
        found = fusion.reduce(op, x_s, over=["k"], name="found")
    for t in (found, fusion.output("y", found)):
        t.parallelize("m", Parallel.TIDX)
        if "k" in [a.name for a in t.roots]:
            t.parallelize("k", Parallel.UNROLL)
    return fusion


@pytest.mark.parametrize("op", ["copy", "neg", "add", "max"])
def test_threads_without_a_row_leave_shared_memory_alone(op: str) -> None:
    made = _judged(case(_fewer(op), low=-9, high=-1))
    assert made.program.block == (16, 1, 1)


def test_more_threads_copy_than_add() -> None:
    for scheme in SCHEMES[::3]:
        interpreted(case(crossed_sum(K, 3, tile=16, rows=4), scheme, K=45))
        interpreted(case(crossed_sum(K, 3, tile=4, rows=16), scheme, K=13))
    _judged(case(crossed_sum(K, 3, tile=4, rows=16), K=13))


# --- vectors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "k", [1, 3, 13, 45, 48, *(pytest.param(k, marks=pytest.mark.slow) for k in (4, 12, 46, 47))]
)
def test_vectors_that_reach_beyond_the_axis(k: int) -> None:
    # r = 13 of 16 places: the vector from place 12 has one element only
    for scheme in (Scheme("aligned"), OFF, Scheme("aligned", tail="masked"),
                   Scheme("off", tail="masked")):  # fmt: skip
        made = case(row_sum(6, k, rows=4, vector=4, strides=(48, 1)), scheme)
        counts = interpreted(made).counts
        assert counts.bytes_read == 4 * 6 * k
        named = case(row_sum(M, K, rows=4, vector=4, strides=(48, 1)), scheme, M=6, K=k)
        interpreted(named)
    if k in (3, 45):
        simulated(made)
        simulated(named)


# --- counts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES, ids=scheme_id)
@pytest.mark.parametrize("k", [5, 29])
def test_executions_counted_in_the_text_are_those_of_a_run(scheme: Scheme, k: int) -> None:
    made = case(crossed_sum(K, 3), scheme, K=k)
    counts = interpreted(made, landings=["early"]).counts
    found = executions(made.program, made.sizes)
    assert found["axis tests"] == counts.tests[Why.AXIS]
    assert found["uniform tests"] == counts.tests[Why.UNIFORM]
    assert found["bound tests"] == counts.tests[Why.BOUND] == 0
    assert found["fills"] == counts.fills
    # a copy counts whatever its guard is
    assert found["cp.async"] == counts.copies.total()
    assert found["commits"] == counts.commits
    assert found["waits"] == counts.waits.total()
    assert found["barriers"] == counts.barriers
    assert (found["mma"], found["other copies"]) == (0, 8)


# --- all of them ----------------------------------------------------------------------------------

#: Slots, tiles and elements of the residue tile: all slots and numbers of tiles, and all residues.
COVER = [(1 + n % 6, (n + n // 12) % 12, n * 3 % 4) for n in range(48)]
EVERY = list(itertools.product(range(1, 7), range(12), range(4)))


def _extent(tiles: int, rest: int) -> int:
    """The extent with so many tiles of 4, of which one has ``rest`` elements (4 for 0)."""
    return 4 * tiles - (4 - rest) % 4 if tiles else 0


def _small(k: Symbol | int, slots: int, **options: Any) -> Fusion:
    return crossed_sum(k, slots, tile=4, rows=4, **options)


@pytest.mark.parametrize("named", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize(
    "cases", [pytest.param(COVER, id="cover"),
              pytest.param(EVERY, id="every", marks=pytest.mark.slow)],
)  # fmt: skip
def test_slots_tiles_and_residues(cases: list[tuple[int, int, int]], named: bool) -> None:
    for number, (slots, tiles, rest) in enumerate(cases):
        k = _extent(tiles, rest)
        fusion = _small(K if named else k, slots)
        made = case(fusion, **({"K": k} if named else {}))
        counts = interpreted(made, landings=[LANDINGS[number % 2]]).counts
        if slots > 1:
            # the reference order: S-1+T commits and 1+T barriers by each of 4 threads, T*c copies
            assert counts.commits == 4 * (slots - 1 + tiles)
            assert counts.barriers == 4 * (1 + tiles)
            issued = counts.copies["full"] + counts.copies["zero_filled"]
            empty = 1 if tiles == 0 and named else 0
            assert issued == 4 * 4 * (tiles + empty)


@pytest.mark.parametrize(
    "cases", [pytest.param(COVER[::9], id="cover"),
              pytest.param(EVERY, id="every", marks=pytest.mark.slow)],
)  # fmt: skip
def test_slots_tiles_and_residues_as_kernels(cases: list[tuple[int, int, int]]) -> None:
    for slots, tiles, rest in cases:
        simulated(case(_small(K, slots), K=_extent(tiles, rest)))


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES, ids=scheme_id)
def test_every_scheme_with_all_slots_and_tiles(scheme: Scheme) -> None:
    for slots, tiles, rest in EVERY[::3]:
        k = _extent(tiles, rest)
        interpreted(case(_small(K, slots), scheme, K=k))
        interpreted(case(_small(k, slots, batches=2), scheme))
    simulated(case(_small(K, 4, batches=B), scheme, B=2, K=15))

"""The interpreter of loop programs: results, counts, and every way in which a program is wrong.

Expected sums and products come from NumPy on small integers, which are exact in any order; counts
from the formulas of :mod:`lowering.circular.cost`, which have tests of their own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from circular_programs import (
    BOX,
    IN,
    OUT,
    REG,
    TID,
    clamp,
    element,
    fails,
    numbers,
    peeled_sum,
    row_sum,
    run_small,
    tiles,
    traced_sum,
    unpeeled_sum,
    with_body,
)
from numpy.typing import NDArray

from lowering.circular.cost import Problem, Variant, cost
from lowering.circular.integers import Expr, Int, Symbol, select
from lowering.circular.interpret import LoopError, interpret
from lowering.circular.loops import (
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
    Loop,
    Memory,
    Node,
    Parallel,
    Program,
    Wait,
    Why,
    ZeroFill,
)
from lowering.circular.loops import Test as Condition
from lowering.circular.timeline import Kind, Order, faults, trace
from lowering.layout import Swizzle

Array = NDArray[Any]
LANDINGS: tuple[Literal["early", "late"], ...] = ("early", "late")
ZERO, ONE = Int(0), Int(1)


def _sums(arrays: dict[str, Array], m: int, k: int) -> list[float]:
    return arrays["x"].reshape(m, k).sum(axis=1).tolist()


# --- the peeled loop ------------------------------------------------------------------------------


# T = 0; one tile, also with r = L; two; K = 45 as in nvFuser's PredicatePeeling2 (r = 13)
@pytest.mark.parametrize("k", [0, 1, 15, 16, 17, 45, 64])
@pytest.mark.parametrize("depth", [2, 4])
@pytest.mark.parametrize("landing", LANDINGS)
def test_peeled_sums(k: int, depth: int, landing: Literal["early", "late"]) -> None:
    arrays, m = numbers(33, k), 33
    done = interpret(peeled_sum(depth), arrays, {"M": m, "K": k}, landing=landing)
    assert done.arrays["y"].tolist() == _sums(arrays, m, k)
    assert (done.counts.reads["x"] == 1).all()
    assert (done.counts.writes["y"] == 1).all()
    assert not done.counts.reads["y"].any()
    assert not done.counts.writes["x"].any()
    # the callers' arrays stay
    assert arrays["y"].tolist() == [-999] * m


@pytest.mark.parametrize(("k", "depth"), [(0, 3), (45, 2), (45, 3), (16, 4), (65, 4)])
def test_counts_are_those_of_the_formulas(k: int, depth: int) -> None:
    m = 33
    counts = interpret(peeled_sum(depth), numbers(m, k), {"M": m, "K": k}).counts
    matmul = Problem(m, 1, k, tile_k=16, depth=depth, vector=1, tile=(16, 0), threads=16,
                    element_bytes=4)  # fmt: skip
    expected = cost(Variant.P1, matmul)
    number = matmul.tiles
    # every copy of the residue tile has its own condition in this program
    assert counts.tests[Why.AXIS] == expected.axis
    assert counts.tests[Why.UNIFORM] == expected.uniform
    # the bound is not hoisted: at every copy, and once at the store
    assert counts.tests[Why.BOUND] == expected.copies + 48
    assert counts.copies == {
        "full": expected.full, "partial": 0, "zero_filled": expected.masked,
        "skipped": expected.outside,
    }  # fmt: skip
    assert counts.bytes_read == 4 * m * k
    assert counts.bytes_zeroed == 4 * expected.masked
    assert counts.commits == expected.commits
    # the threads of all CTAs have a copy in every tile: CTA 2 has the row 32
    assert counts.empty_commits == (depth - 1 + number - max(number, 1)) * 48
    assert counts.waits == Counter({depth - 2: expected.waits, None: 48})
    assert counts.barriers == expected.barriers
    assert (counts.fills, counts.fill_bytes, counts.pending_at_exit) == (0, 0, 0)


def test_counts_of_the_unpeeled_loop() -> None:
    m, k = 32, 45
    counts = interpret(unpeeled_sum(3), numbers(m, k), {"M": m, "K": k}).counts
    matmul = Problem(m, 1, k, tile_k=16, depth=3, vector=1, tile=(16, 0), threads=16,
                    element_bytes=4)  # fmt: skip
    expected = cost(Variant.U0, matmul)
    # each copy and each fill tests two conditions
    assert counts.tests[Why.AXIS] == 4 * expected.axis
    assert counts.fills == expected.needed_fills
    assert counts.fill_bytes == 4 * expected.needed_fills
    assert counts.copies["full"] == expected.full
    assert counts.copies["skipped"] == expected.masked


def test_names_of_the_simulator() -> None:
    done = interpret(peeled_sum(3), numbers(16, 20), {"M": 16, "K": 20})
    assert done.counts.counters() == {
        "cp.async.threads": 512,
        "cp.async.full.threads": 16 * 20,
        "cp.async.partial.threads": 0,
        "cp.async.zero_filled.threads": 16 * 12,
        "cp.async.skipped.threads": 0,
        "cp.async.commit_group.threads": 4 * 16,
        "cp.async.commit_group.empty.threads": 2 * 16,
        "cp.async.wait_all.threads": 16,
        "cp.async.wait_group.1.threads": 3 * 16,
        "cp.async.pending_at_exit.threads": 0,
        "barrier.threads": 3 * 16,
        "cp.async.bytes_read": 4 * 16 * 20,
        "cp.async.bytes_zeroed": 4 * 16 * 12,
    }


# --- faults of the pipeline -----------------------------------------------------------------------


def test_a_prolog_without_tests_reads_behind_the_end() -> None:
    # tiles 1 .. S-2 do not exist for K <= L (as in nvFuser's prolog, which carries no predicate)
    program = peeled_sum(4, tested=False)
    with pytest.raises(LoopError, match=r"index 16 of axis 1 of 'x' \(16\)"):
        interpret(program, numbers(16, 16), {"M": 16, "K": 16})
    # with T >= S - 1 nothing is missing
    arrays = numbers(16, 48)
    done = interpret(program, arrays, {"M": 16, "K": 48})
    assert done.arrays["y"].tolist() == _sums(arrays, 16, 48)


def test_a_skipping_copy_leaves_the_residue_tile_undefined() -> None:
    # columns 13 to 15 of slot 0 (csarofeen/pytorch PR 1973: the fill vanished)
    program = peeled_sum(3, zero=False)
    with pytest.raises(LoopError, match=r"undefined: element 0 of 'y' gets no value") as caught:
        interpret(program, numbers(16, 45), {"M": 16, "K": 45})
    assert isinstance(caught.value.node, Copy)
    arrays = numbers(16, 48)
    done = interpret(program, arrays, {"M": 16, "K": 48})
    assert done.arrays["y"].tolist() == _sums(arrays, 16, 48)


ORDERS = {
    "reference": Order(),
    "stray commit": Order(stray_commit=True),
    "commit behind the wait": Order(commit_last=True),
    "both": Order(commit_last=True, stray_commit=True),
    "wait for all": Order(commit_last=True, zero_is_all=True),
    "one group more pending": Order(slack=1),
    "no barriers": Order(barriers=False),
    "no wait_all": Order(wait_all=False),
}


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("count", [1, 3, 4])
def test_orders_are_judged_as_by_the_timeline(name: str, depth: int, count: int) -> None:
    events = trace(depth, count, ORDERS[name])
    found = [f for f in faults(events, depth, count) if f.kind in (Kind.RAW, Kind.WAR)]
    program, arrays = traced_sum(events, depth), numbers(16, 16 * count - 3)
    sizes = {"M": 16, "K": 16 * count - 3}
    if not found:
        done = interpret(program, arrays, sizes)
        assert done.arrays["y"].tolist() == _sums(arrays, 16, 16 * count - 3)
        return
    kinds = {}
    for landing in LANDINGS:
        with pytest.raises(LoopError) as caught:
            interpret(program, arrays, sizes, landing=landing)
        kinds[landing] = caught.value.kind
    expected = "race" if name == "no barriers" else "in-flight"
    assert kinds == {"early": expected, "late": expected}


def test_the_landings_differ_where_the_order_is_wrong() -> None:
    # the seed of csarofeen/pytorch PR 1973: three tiles in three slots, a stray commit, the commit
    # behind the wait: exactly the last tile may not have landed when it is added
    arrays, sizes = numbers(16, 45), {"M": 16, "K": 45}
    program = traced_sum(trace(3, 3, Order(commit_last=True, stray_commit=True)), 3)
    early = interpret(program, arrays, sizes, landing="early", checked=False)
    assert early.arrays["y"].tolist() == _sums(arrays, 16, 45)
    with pytest.raises(LoopError, match="undefined"):
        interpret(program, arrays, sizes, landing="late", checked=False)
    # over a slot that holds zeros the sum lacks that tile
    zeros = Fill(Access(tiles(3), (Int(2), Symbol("row"), TID)), 0.0)
    filled = with_body(program, [Loop("row", ZERO, Int(16), (zeros,)), *program.body])
    late = interpret(filled, arrays, sizes, landing="late", checked=False)
    assert late.arrays["y"].tolist() == arrays["x"].reshape(16, 45)[:, :29].sum(axis=1).tolist()
    with pytest.raises(LoopError, match="in-flight"):
        interpret(filled, arrays, sizes, landing="late")


def test_a_missing_drain_leaves_copies_pending() -> None:
    # T = 4, S = 4: the last wait covers tile 1 of the tiles 1 to 3
    program = traced_sum(trace(4, 4, Order(drain=False, wait_all=False)), 4)
    counts = interpret(program, numbers(16, 64), {"M": 16, "K": 64}).counts
    assert counts.pending_at_exit == 16
    covered = traced_sum(trace(4, 4, Order(drain=False)), 4)
    assert interpret(covered, numbers(16, 64), {"M": 16, "K": 64}).counts.pending_at_exit == 0


# --- small programs -------------------------------------------------------------------------------


def _fetch(to: Expr, at: Expr, **how: Any) -> Copy:
    return Copy(Access(BOX, (to,)), element(at), cache="ca", **how)


def _shown(at: Expr, of: Expr) -> Copy:
    return Copy(Access(OUT, (at,)), Access(BOX, (of,)))


DONE: Block = (Wait(None), BlockSync())


def test_vectors_and_partial_copies() -> None:
    # thread t: the first t of 4 elements, the rest zero
    body: Block = (
        _fetch(TID * 4, TID * 4, width=4, zero=ZeroFill(clamp(TID, 4), whole=False)),
        *DONE,
        Copy(Access(OUT, (TID * 4,)), Access(BOX, (TID * 4,)), width=4),
    )
    done = run_small(body)
    assert done.arrays["o"][:16].tolist() == [0, 0, 0, 0, 4, 0, 0, 0, 8, 9, 0, 0, 12, 13, 14, 0]
    assert done.counts.copies == {"zero_filled": 1, "partial": 3, "full": 0, "skipped": 0}
    assert (done.counts.bytes_read, done.counts.bytes_zeroed) == (24, 40)
    assert done.counts.reads["i"].tolist() == [
        int(e % 4 < e // 4) if e < 16 else 0 for e in range(64)
    ]
    assert done.counts.tests == {Why.AXIS: 4}


def test_a_dead_copy_may_point_anywhere() -> None:
    dead = ZeroFill(ZERO, whole=True)
    done = run_small((_fetch(TID, TID + 1000, zero=dead), *DONE, _shown(TID, TID)))
    assert done.arrays["o"][:4].tolist() == [0] * 4
    fails("range", (_fetch(TID, TID + 1000),))
    # a guard that is false does nothing at all
    never = (Condition(TID < 0, Why.AXIS),)
    counts = run_small((_fetch(TID, TID - 1000, guard=never), Commit())).counts
    assert counts.copies["skipped"] == 4
    assert counts.empty_commits == 4


def test_live_elements_are_between_none_and_all() -> None:
    fails("range", (_fetch(TID * 4, TID * 4, width=4, zero=ZeroFill(Int(5), whole=False)),))
    fails("range", (_fetch(TID * 4, TID * 4, width=4, zero=ZeroFill(Int(-1), whole=False)),))
    fails("range", (_fetch(TID * 4, TID * 4, width=4, zero=ZeroFill(Int(2), whole=True)),))


@pytest.mark.parametrize(
    ("to", "at"), [(TID + 61, TID), (TID - 1, TID), (TID, TID + 61), (TID, TID - 1)]
)
def test_indices_outside(to: Expr, at: Expr) -> None:
    fails("range", (_fetch(to, at),))


def test_an_index_may_not_run_into_the_next_row() -> None:
    # element 8 of row 0 lies in memory, but is none of row 0
    read = Copy(Access(REG, (ZERO,)), Access(IN, (ZERO, TID + 5)))
    error = fails("range", (read,))
    assert "index 8 of axis 1 of 'i' (8) in 'r[0] = copy(i[0, tid.x + 5], 1)'" in str(error)


def test_vectors_do_not_run_into_padding() -> None:
    padded = Buffer("i", "f32", Memory.GLOBAL, (Int(7), Int(6)), (Int(8), ONE))
    buffers = (padded, OUT, BOX, REG)
    two = Copy(Access(BOX, (TID * 4,)), Access(padded, (TID, Int(4))), width=2, cache="ca")
    run_small((two, *DONE), buffers=buffers)
    error = fails("range", (replace(two, width=4),), buffers=buffers)
    assert "no element 6 in 'i'" in str(error)
    # what is not read does not matter
    run_small((replace(two, width=4, zero=ZeroFill(Int(2), False)), *DONE), buffers=buffers)


def test_alignment() -> None:
    fails("misaligned", (_fetch(TID * 4, TID * 4 + 2, width=4),))
    fails("misaligned", (_fetch(TID * 4 + 2, TID * 4, width=4),))
    weak = replace(IN, align=8)
    copy = Copy(Access(BOX, (TID * 4,)), Access(weak, (ZERO, ZERO)), width=4, cache="ca")
    fails("misaligned", (copy,), buffers=(weak, OUT, BOX, REG))
    mixed = replace(BOX, swizzle=Swizzle(1, 2, 3))
    copy = Copy(Access(mixed, (TID * 4,)), Access(IN, (ZERO, ZERO)), width=4, cache="ca")
    fails("misaligned", (copy,), buffers=(IN, OUT, mixed, REG))
    kept = replace(BOX, swizzle=Swizzle(2, 2, 3))
    run_small((replace(copy, out=Access(kept, (TID * 4,))), *DONE), buffers=(IN, OUT, kept, REG))


@pytest.mark.parametrize(("cache", "width"), [("cg", 1), ("cg", 2), ("ca", 3), ("ca", 8), ("", 3)])
def test_sizes_of_copies(cache: str, width: int) -> None:
    copy = Copy(Access(BOX, (TID * 8,)), Access(IN, (TID, ZERO)), width=width, cache=cache)
    fails("unsupported" if cache else "misaligned", (copy,))


def test_asynchronous_copies_go_from_global_to_shared_memory() -> None:
    fails("unsupported", (Copy(Access(REG, (ZERO,)), Access(IN, (ZERO, ZERO)), cache="ca"),))
    fails("unsupported", (Copy(Access(BOX, (ZERO,)), Access(REG, (ZERO,)), cache="ca"),))


# --- copies in flight -----------------------------------------------------------------------------


@pytest.mark.parametrize("landing", LANDINGS)
@pytest.mark.parametrize(
    "touch",
    [
        _shown(TID, TID),
        Fill(Access(BOX, (TID,)), 0.0),
        Copy(Access(BOX, (TID,)), element(TID)),
        _fetch(TID, TID),
    ],
    ids=["read", "fill", "write", "copy"],
)
def test_bytes_in_flight_are_not_touched(landing: str, touch: Node) -> None:
    error = fails("in-flight", (_fetch(TID, TID), Commit(), touch), landing=landing)
    assert error.node == touch
    done = run_small((_fetch(TID, TID), Commit(), *DONE, touch, Wait(None)), landing=landing)
    assert done.counts.pending_at_exit == 0


def test_two_copies_of_one_statement_to_one_element() -> None:
    error = fails("in-flight", (_fetch(ZERO, TID),))
    assert "two copies are on their way to an element of 's'" in str(error)


def test_a_fill_beside_the_copy_is_right() -> None:
    # the complement of the copied elements
    live = TID < 2
    body: Block = (
        _fetch(TID, TID, guard=(Condition(live, Why.AXIS),)),
        Fill(Access(BOX, (TID,)), 0.0, guard=(Condition(select(live, 0, 1), Why.AXIS),)),
        *DONE,
        _shown(TID, TID),
    )
    done = run_small(body)
    assert done.arrays["o"][:4].tolist() == [0, 1, 0, 0]
    assert (done.counts.fills, done.counts.fill_bytes) == (2, 8)
    whole: Block = (body[0], Fill(Access(BOX, (TID,)), 0.0), *DONE)
    fails("in-flight", whole)


def test_unchecked_landings_before_or_over_a_later_write() -> None:
    body: Block = (_fetch(TID, TID), Fill(Access(BOX, (TID,)), 50.0), *DONE, _shown(TID, TID))
    for landing, expected in (("early", [50] * 4), ("late", [0, 1, 2, 3])):
        done = run_small(body, landing=landing, checked=False)
        assert done.arrays["o"][:4].tolist() == expected


def test_a_copy_reads_its_source_when_it_lands() -> None:
    # i[t] is overwritten between issue and wait
    body: Block = (
        _fetch(TID, TID), Commit(),
        Fill(Access(REG, (ZERO,)), 50.0),
        Copy(element(TID), Access(REG, (ZERO,))),
        *DONE,
        _shown(TID, TID),
    )  # fmt: skip
    assert run_small(body, landing="early").arrays["o"][:4].tolist() == [0, 1, 2, 3]
    assert run_small(body, landing="late").arrays["o"][:4].tolist() == [50] * 4


def test_a_wait_covers_the_older_groups() -> None:
    body: Block = (
        _fetch(TID, TID), Commit(), _fetch(TID + 4, TID), Commit(), Wait(1), BlockSync(),
        _shown(TID, TID),
    )  # fmt: skip
    done = run_small(body)
    assert done.arrays["o"][:4].tolist() == [0, 1, 2, 3]
    assert done.counts.pending_at_exit == 4
    fails("in-flight", (*body, _shown(TID, TID + 4)))
    # without a commit the copies belong to no group that a wait could cover, but wait_all does
    fails("in-flight", (_fetch(TID, TID), Wait(0), BlockSync(), _shown(TID, TID)))
    run_small((_fetch(TID, TID), *DONE, _shown(TID, TID)))


def test_threads_wait_for_their_own_copies() -> None:
    # threads below 2 wait in the loop, the others do not
    loop = Loop("w", TID, Int(2), (Wait(None),))
    body: Block = (_fetch(TID, TID), Commit(), loop, BlockSync())
    assert run_small(body).counts.pending_at_exit == 2
    fails("in-flight", (*body, _shown(TID, TID)))
    below = Condition(TID < 2, Why.BOUND)
    done = run_small((*body, replace(_shown(TID, TID), guard=(below,))))
    assert done.arrays["o"][:4].tolist() == [0, 1, -1, -1]
    assert done.counts.waits == {None: 3}  # thread 0 twice, thread 1 once
    rest = run_small((*body, Wait(None), BlockSync(), _shown(TID, TID)))
    assert rest.arrays["o"][:4].tolist() == [0, 1, 2, 3]


# --- races ----------------------------------------------------------------------------------------


def _put(at: Expr) -> Fill:
    return Fill(Access(BOX, (at,)), 1.0)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ((_put(TID), _shown(TID, 3 - TID)), "was written by another thread"),
        ((_put(TID), BlockSync(), _shown(TID, 3 - TID), _put(TID)), "was read by another thread"),
        ((_put(TID), _put(3 - TID)), "was written by another thread"),
        ((_put(ZERO),), "is written by two threads"),
        ((_fetch(TID, TID), Wait(None), _shown(TID, 3 - TID)), "was written by another thread"),
        (
            (_put(TID), BlockSync(), _shown(TID, 3 - TID), _fetch(TID, TID)),
            "was read by another thread",
        ),
        ((_put(TID), BlockSync(), _shown(TID, ZERO), _put(TID)), "was read by another thread"),
        ((_put(TID), BlockSync(), _shown(TID, ZERO), _put(3 - TID)), "was read by another thread"),
    ],
    ids=[
        "raw",
        "war",
        "waw",
        "same statement",
        "copy raw",
        "copy war",
        "first of many readers",
        "last of many readers",
    ],
)
def test_races(body: Block, what: str) -> None:
    assert what in str(fails("race", body))


def test_what_a_thread_does_alone_or_behind_a_barrier_is_no_race() -> None:
    run_small((_put(TID), _shown(TID, TID), _put(TID), _shown(TID, TID)))
    run_small((_put(TID), BlockSync(), _shown(TID, 3 - TID), BlockSync(), _put(3 - TID)))
    run_small((_put(TID), BlockSync(), _shown(TID, ZERO), _shown(TID, ZERO)))
    run_small((_fetch(TID, TID), *DONE, _shown(TID, 3 - TID), BlockSync(), _fetch(TID, TID), *DONE))
    # CTAs have their own shared memory
    done = run_small((_put(TID), _shown(Symbol("ctaid.x") * 4 + TID, TID)), ctas=3)
    assert done.arrays["o"][:13].tolist() == [1] * 12 + [-1]


def test_the_barrier_of_a_cta_is_none_of_another() -> None:
    first = If((Condition(Symbol("ctaid.x") < 1, Why.UNIFORM),), (BlockSync(),))
    body: Block = (_put(TID), first, _shown(Symbol("ctaid.x") * 4 + TID, 3 - TID))
    run_small(body)
    assert "in CTA 1" in str(fails("race", body, ctas=2))


def test_one_element_of_global_memory_gets_one_value() -> None:
    put = Copy(Access(OUT, (ZERO,)), element(TID))
    fails("race", (put,))
    same = run_small((Copy(Access(OUT, (ZERO,)), element(ZERO)),))
    assert same.counts.writes["o"][0] == 4


# --- what is undefined ----------------------------------------------------------------------------


def test_undefined_values_may_be_computed_but_not_stored() -> None:
    reg = Access(REG, (ZERO,))
    add = Compute("add", reg, (Access(BOX, (TID,)), element(TID)))
    run_small((add,))
    error = fails("undefined", (add, Copy(Access(OUT, (TID,)), reg)))
    assert isinstance(error.node, Copy)
    # by way of shared memory too
    through: Block = (add, Copy(Access(BOX, (TID,)), reg), _shown(TID, TID))
    fails("undefined", through)
    fails("undefined", (Copy(Access(OUT, (TID,)), Access(REG, (Int(2),))),))
    known = run_small((Fill(Access(BOX, (TID,)), 2.0), add, Copy(Access(OUT, (TID,)), reg)))
    assert known.arrays["o"][:4].tolist() == [2, 3, 4, 5]


def test_names_without_a_value() -> None:
    error = fails("undefined", (_put(Symbol("q")),))
    assert "'q' has no value" in str(error)
    # a definition holds to the end of its block
    inner = Loop("i", ZERO, ONE, (Define("q", Int(1)), _put(Symbol("q") + TID)))
    run_small((inner,))
    fails("undefined", (inner, _put(Symbol("q"))))
    fails("undefined", (_put(TID // (TID - TID + Symbol("zero"))),), sizes=("zero",),
           values={"zero": 0})  # fmt: skip


# --- control --------------------------------------------------------------------------------------


def test_loops_whose_bounds_depend_on_the_cta() -> None:
    cta, i = Symbol("ctaid.x"), Symbol("i")
    # CTA c counts the numbers from c to 3
    acc = Access(REG, (ZERO,))
    body: Block = (
        Fill(acc, 0.0),
        Loop("i", cta, Int(4), (Compute("add", acc, (acc, element(i))), BlockSync())),
        Copy(Access(OUT, (cta * 4 + TID,)), acc),
    )
    done = run_small(body, ctas=5)
    assert done.arrays["o"][:20:4].tolist() == [6, 6, 5, 3, 0]
    assert done.counts.barriers == 4 * (4 + 3 + 2 + 1)


def test_parallel_loops_have_one_iteration_a_thread() -> None:
    store = Copy(Access(OUT, (Symbol("t"),)), element(Symbol("t")))
    done = run_small((Loop("t", ONE, Int(3), (store,), Parallel.TIDX),))
    assert done.arrays["o"][:4].tolist() == [-1, 1, 2, -1]
    fails("unsupported", (Loop("t", ONE, Int(3), (store,), Parallel.MMA),))


def test_threads_and_ctas_are_numbered_x_first() -> None:
    names = [Symbol(f"{n}.{a}") for n in ("ctaid", "tid") for a in "zyx"]
    at: Expr = ZERO
    for name in names:
        at = at * 2 + name
    program = Program(
        "all", (IN, OUT), (), (Copy(Access(OUT, (at,)), element(at)),), (2, 2, 2), (Int(2),) * 3
    )
    arrays = {"i": np.arange(64, dtype=np.float32), "o": np.zeros(64, np.float32)}
    done = interpret(program, arrays, {})
    assert done.arrays["o"].tolist() == list(range(64))


def test_threads_of_a_cta_stay_together() -> None:
    half = (Condition(TID < 2, Why.UNIFORM),)
    fails("divergent", (If(half, (_put(TID),)),))
    fails("divergent", (Loop("i", TID, Int(2), (BlockSync(),)),))
    # CTAs may differ
    first = (Condition(Symbol("ctaid.x") < 1, Why.UNIFORM),)
    counts = run_small((If(first, (_put(TID), BlockSync())),), ctas=2).counts
    assert (counts.fills, counts.barriers, counts.tests) == (4, 4, {Why.UNIFORM: 8})


def test_tests_count_where_they_are_computed() -> None:
    p, guard = Symbol("p"), Condition(Symbol("p"), Why.AXIS)
    body: Block = (
        Define("p", TID < 3, Why.AXIS),
        Fill(Access(BOX, (TID,)), 0.0, guard=(guard,)),
        Fill(Access(BOX, (TID,)), 0.0, guard=(guard, Condition(p & (TID < 2), Why.BOUND))),
        _fetch(TID + 4, TID, zero=ZeroFill(select(p, 1, 0), whole=True)),
    )
    counts = run_small(body).counts
    assert counts.tests == {Why.AXIS: 4, Why.BOUND: 4}
    assert counts.fills == 3 + 2
    assert counts.copies["zero_filled"] == 1
    # constants are no tests
    assert not +run_small(
        (Fill(Access(BOX, (TID,)), 0.0, guard=(Condition(ONE, Why.AXIS),)),)
    ).counts.tests


def test_inactive_threads_do_nothing_in_guarded_statements() -> None:
    nobody = (Condition(TID < 0, Why.BOUND),)
    acc = Access(REG, (ZERO,))
    done = run_small((
        Fill(acc, 0.0, guard=nobody), Compute("neg", acc, (element(TID - 99),), guard=nobody),
        Copy(Access(OUT, (TID - 99,)), acc, guard=nobody),
    ))  # fmt: skip
    assert (done.arrays["o"] == -1).all()


# --- arguments ------------------------------------------------------------------------------------


def test_arguments() -> None:
    arrays, sizes = numbers(16, 16), {"M": 16, "K": 16}
    with pytest.raises(ValueError, match="no target 'sm_81'"):
        interpret(peeled_sum(2), arrays, sizes, target="sm_81")
    with pytest.raises(ValueError, match="sizes are M, K, not M"):
        interpret(peeled_sum(2), arrays, {"M": 16})
    with pytest.raises(ValueError, match="'x' has elements of f32, not float16"):
        interpret(peeled_sum(2), {**arrays, "x": arrays["x"].astype(np.float16)}, sizes)
    with pytest.raises(LoopError, match="'x' needs 256 elements, not 255"):
        interpret(peeled_sum(2), {**arrays, "x": arrays["x"][:-1]}, sizes)


def test_a_grid_without_ctas_does_nothing() -> None:
    done = interpret(peeled_sum(2), numbers(0, 16), {"M": 0, "K": 16})
    assert done.counts.commits == 0


def test_registers_are_undefined_at_first() -> None:
    acc = Buffer("acc", "f32", Memory.LOCAL, (ONE,), (ONE,))
    program = row_sum((), 2)
    body = [n for n in program.body if not isinstance(n, Fill)]
    interpret(program, numbers(16, 16), {"M": 16, "K": 16})
    with pytest.raises(LoopError, match="undefined"):
        interpret(with_body(program, body), numbers(16, 16), {"M": 16, "K": 16})
    assert acc in program.buffers

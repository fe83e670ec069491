"""Loop programs built by hand: sums of rows through a circular buffer, and products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lowering.circular.integers import Expr, Int, Symbol, ceil_div, maximum, minimum, select
from lowering.circular.interpret import Interpretation, LoopError, interpret
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
    Fragment,
    If,
    LoadMatrix,
    Loop,
    Memory,
    Mma,
    Node,
    Parallel,
    Program,
    Stage,
    StoreMatrix,
    Test,
    Wait,
    Why,
    ZeroFill,
)
from lowering.circular.timeline import Event, Load, Use

M, K, T, R, SIGMA = (Symbol(n) for n in ("M", "K", "T", "r", "sigma"))
TID, CTA = Symbol("tid.x"), Symbol("ctaid.x")
ONE, ZERO = Int(1), Int(0)
#: Elements of a tile along the axis that is summed, and rows of a CTA.
L = 16

SOURCE = Buffer("x", "f32", Memory.GLOBAL, (M, K), (K, ONE))
SUMS = Buffer("y", "f32", Memory.GLOBAL, (M,), (ONE,))
ACC = Buffer("acc", "f32", Memory.LOCAL, (ONE,), (ONE,))

DEFINES: Block = (
    Define("T", ceil_div(K, L)),
    Define("r", K - maximum(T - 1, 0) * L),
    Define("sigma", L - R),
)


def tiles(depth: int) -> Buffer:
    """The circular buffer: slots of 16 rows."""
    strides = (Int(L * L), Int(L), ONE)
    return Buffer("tile", "f32", Memory.SHARED, (Int(depth), Int(L), Int(L)), strides)


def load(tile: Buffer, slot: Expr, number: Expr, residue: bool, *, zero: bool = True) -> Block:
    """Thread c copies column c of a tile, row by row; in the residue tile where it exists."""
    row = Symbol("row")
    m = CTA * L + row
    live = TID < R
    column = TID if residue else number * L + TID - SIGMA
    guard = (Test(m < M, Why.BOUND),)
    filled = ZeroFill(select(live, 1, 0), whole=True) if residue and zero else None
    if residue and not zero:
        guard = (*guard, Test(live, Why.AXIS))
    copy = Copy(
        Access(tile, (slot, row, TID)), Access(SOURCE, (m, column)), cache="ca", guard=guard,
        zero=filled,
    )  # fmt: skip
    return (Loop("row", ZERO, Int(L), (copy,), Parallel.UNROLL),)


def use(tile: Buffer, slot: Expr) -> Block:
    """Thread m adds row m of a tile to its sum."""
    k = Symbol("k")
    acc = Access(ACC, (ZERO,))
    add = Compute("add", acc, (acc, Access(tile, (slot, TID, k))))
    return (Loop("k", ZERO, Int(L), (add,), Parallel.UNROLL),)


def store() -> Block:
    """Thread m stores its sum if the row exists."""
    m = CTA * L + TID
    return (Copy(Access(SUMS, (m,)), Access(ACC, (ZERO,)), guard=(Test(m < M, Why.BOUND),)),)


def row_sum(body: Sequence[Node], depth: int, name: str = "row_sum") -> Program:
    """A kernel of 16 threads around loads and uses."""
    whole = (*DEFINES, Fill(Access(ACC, (ZERO,)), 0.0), *body, *store())
    return Program(
        name, (SOURCE, SUMS, tiles(depth), ACC), ("M", "K"), whole, (L, 1, 1),
        (ceil_div(M, L), ONE, ONE),
    )  # fmt: skip


def peeled_sum(depth: int, *, tested: bool = True, zero: bool = True) -> Program:
    """The peeled and circular-buffered loop for any K; without the test that a tile exists."""
    tile, s, i = tiles(depth), Symbol("s"), Symbol("i")
    exists: Block = load(tile, s, s, False)
    if tested:
        exists = (If((Test(s < T, Why.UNIFORM),), exists),)
    wait: Block = (Wait(depth - 2), BlockSync())
    main = maximum(T - (depth - 1), 0)
    ahead = i + (depth - 1)
    body: Block = (
        *load(tile, ZERO, ZERO, True, zero=zero), Commit(),
        Loop("s", ONE, Int(depth - 1), (*exists, Commit()), Parallel.UNROLL, Stage.PROLOG),
        *wait,
        Loop("i", ZERO, main, (
            *load(tile, ahead % depth, ahead, False), Commit(), *use(tile, i % depth), *wait,
        ), stage=Stage.MAIN),
        Loop("i", main, T, (Commit(), *use(tile, i % depth), *wait), stage=Stage.DRAIN),
        Wait(None),
    )  # fmt: skip
    return row_sum(body, depth, "peeled_sum")


def unpeeled_sum(depth: int) -> Program:
    """One loop over all tiles, fills of what the predicated copies leave out, no peeling."""
    tile, i, row = tiles(depth), Symbol("i"), Symbol("row")

    def filled(number: Expr) -> Block:
        m, k = CTA * L + row, number * L + TID
        to = Access(tile, (number % depth, row, TID))
        inside = Test((k < K) & (m < M), Why.AXIS)
        copy = Copy(to, Access(SOURCE, (m, k)), cache="ca", guard=(inside,))
        outside = Test(select((k < K) & (m < M), 0, 1), Why.AXIS)
        fill = Fill(to, 0.0, guard=(outside,))
        return (Loop("row", ZERO, Int(L), (copy, fill), Parallel.UNROLL),)

    wait: Block = (Wait(depth - 2), BlockSync())
    body: Block = (
        Loop("s", ZERO, Int(depth - 1), (*filled(Symbol("s")), Commit())),
        *wait,
        Loop("i", ZERO, T, (
            *filled(i + (depth - 1)), Commit(), *use(tile, i % depth), *wait,
        )),
        Wait(None),
    )  # fmt: skip
    return row_sum(body, depth, "unpeeled_sum")


def traced_sum(events: Sequence[Event], depth: int) -> Program:
    """The straight line of a trace for as many tiles as it has."""
    tile = tiles(depth)
    body: list[Node] = []
    for event in events:
        if isinstance(event, Load):
            body += load(tile, Int(event.tile % depth), Int(event.tile), event.tile == 0)
        elif isinstance(event, Use):
            body += use(tile, Int(event.tile % depth))
        else:
            assert isinstance(event, (Commit, Wait, BlockSync))
            body.append(event)
    return row_sum(body, depth, "traced_sum")


def numbers(m: int, k: int, seed: int = 1) -> dict[str, NDArray[Any]]:
    """Small integers, so that sums are exact in any order, and room for the sums."""
    x = np.random.default_rng(seed).integers(-8, 9, m * k).astype(np.float32)
    return {"x": x, "y": np.full(m, -999, np.float32)}


# --- products of matrices -------------------------------------------------------------------------

N = Symbol("N")


def product(
    dtype: str, out: str, instruction: tuple[int, int, int], *, repeat: tuple[int, int, int],
    store_dtype: str | None = None,
) -> Program:  # fmt: skip
    """D = A * B for one tile of 32 threads: loads by threads, matrices of warps, bounded stores.

    ``repeat``: instructions along m, n and k.  Rows of A and columns of B behind the bounds are
    not copied: what is computed of them is undefined, and is not stored.
    """
    m, n, k = (e * c for e, c in zip(instruction, repeat, strict=True))
    a = Buffer("a", dtype, Memory.GLOBAL, (M, Int(k)), (Int(k), ONE))
    b = Buffer("b", dtype, Memory.GLOBAL, (N, Int(k)), (Int(k), ONE))
    d = Buffer("d", store_dtype or out, Memory.GLOBAL, (M, N), (N, ONE))
    sa = Buffer("sa", dtype, Memory.SHARED, (Int(m), Int(k)), (Int(k), ONE))
    sb = Buffer("sb", dtype, Memory.SHARED, (Int(n), Int(k)), (Int(k), ONE))

    def held(name: str, kind: str, role: str, rows: int, columns: int) -> Buffer:
        extents, strides = (Int(rows), Int(columns)), (Int(columns), ONE)
        fragment = Fragment(role, instruction)
        return Buffer(name, kind, Memory.LOCAL, extents, strides, fragment=fragment)

    fa, fb = held("fa", dtype, "A", m, k), held("fb", dtype, "B", k, n)
    acc = held("acc", out, "C", m, n)
    origin = (ZERO, ZERO)

    def copies(to: Buffer, source: Buffer, rows: int, bound: Expr) -> Loop:
        i, lane = Symbol("i"), Symbol("q")
        # one element a copy and lane: columns in steps of 32
        inner = Loop("q", ZERO, Int(-(-k // 32)), (
            Copy(
                Access(to, (i, lane * 32 + TID)), Access(source, (i, lane * 32 + TID)),
                guard=(Test(i < bound, Why.BOUND), Test(lane * 32 + TID < k, Why.BOUND)),
            ),
        ))  # fmt: skip
        return Loop("i", ZERO, Int(rows), (inner,))

    name = "m{}n{}k{}".format(*instruction)
    tail: tuple[Node, ...] = ()
    result = acc
    if store_dtype is not None:
        result = held("cast", store_dtype, "C", m, n)
        tail = (Compute("cast", Access(result, origin), (Access(acc, origin),)),)
    body: Block = (
        Fill(Access(acc, origin), 0),
        copies(sa, a, m, M),
        copies(sb, b, n, N),
        BlockSync(),
        LoadMatrix(Access(fa, origin), Access(sa, origin), (0, 1)),
        LoadMatrix(Access(fb, origin), Access(sb, origin), (1, 0)),
        Mma(Access(acc, origin), Access(fa, origin), Access(fb, origin), name),
        *tail,
        StoreMatrix(Access(d, origin), Access(result, origin), (0, 1), (M, N)),
    )
    buffers = (a, b, d, sa, sb, fa, fb, acc) + ((result,) if store_dtype is not None else ())
    return Program("product", buffers, ("M", "N"), body, (32, 1, 1), (ONE, ONE, ONE))


def with_body(program: Program, body: Sequence[Node]) -> Program:
    """The same kernel with other statements."""
    return replace(program, body=tuple(body))


def clamp(value: Expr, high: int) -> Expr:
    """A value cut to the range from 0 to a number."""
    return minimum(maximum(value, 0), high)


# --- small programs -------------------------------------------------------------------------------

IN = Buffer("i", "f32", Memory.GLOBAL, (Int(8), Int(8)), (Int(8), ONE))
OUT = Buffer("o", "f32", Memory.GLOBAL, (Int(64),), (ONE,))
BOX = Buffer("s", "f32", Memory.SHARED, (Int(64),), (ONE,))
REG = Buffer("r", "f32", Memory.LOCAL, (Int(4),), (ONE,))


def small(
    body: Block, *, block: tuple[int, int, int] = (4, 1, 1), ctas: int = 1,
    buffers: tuple[Buffer, ...] = (IN, OUT, BOX, REG), sizes: tuple[str, ...] = (),
) -> Program:  # fmt: skip
    """Statements for a few threads, with 64 elements in global and in shared memory."""
    return Program("small", buffers, sizes, body, block, (Int(ctas), ONE, ONE))


def run_small(body: Block, **options: Any) -> Interpretation:
    """A run on the numbers from 0 to 63; options are those of `small` and of `interpret`."""
    arrays = {"i": np.arange(64, dtype=np.float32), "o": np.full(64, -1, np.float32)}
    how = {key: options.pop(key) for key in ("landing", "checked") if key in options}
    sizes = options.pop("values", {})
    return interpret(small(body, **options), arrays, sizes, **how)


def fails(kind: str, body: Block, **options: Any) -> LoopError:
    """The error of a run, which is of that kind."""
    with pytest.raises(LoopError) as caught:
        run_small(body, **options)
    assert caught.value.kind == kind, str(caught.value)
    return caught.value


def element(at: Expr) -> Access:
    """An element of `i` by its number."""
    return Access(IN, (at // 8, at % 8))

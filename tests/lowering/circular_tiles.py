"""Programs of the loop IR written by hand, and what running one gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowering.circular.emit import emit
from lowering.circular.emit_address import SIZES
from lowering.circular.integers import (
    Expr,
    Int,
    Symbol,
    ceil_div,
    evaluate,
    expr,
    maximum,
    select,
)
from lowering.circular.loops import (
    Access,
    Block,
    BlockSync,
    Buffer,
    Commit,
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
from lowering.layout import Swizzle

__all__ = [
    "CTA_X",
    "LANE",
    "WARP",
    "K",
    "M",
    "N",
    "Ran",
    "Tiles",
    "as_stored",
    "at",
    "buffer",
    "global_",
    "launch",
    "local",
    "program",
    "shared",
]

M, N, K = Symbol("M"), Symbol("N"), Symbol("K")
LANE, WARP, CTA_X, CTA_Y = (Symbol(s) for s in ("tid.x", "tid.y", "ctaid.x", "ctaid.y"))


@dataclass
class Ran:
    """The counters of a launch: tagged instructions, and the ends of asynchronous copies."""

    tags: dict[str, int]
    copies: dict[str, int]
    text: str
    #: classes of what the simulator advises
    advice: list[str]


def _strides(extents: Sequence[Expr]) -> tuple[Expr, ...]:
    strides: list[Expr] = [Int(1)]
    for extent in reversed(extents[1:]):
        strides.insert(0, strides[0] * extent)
    return tuple(strides)


def buffer(
    name: str,
    dtype: str,
    memory: Memory,
    extents: Sequence[Expr | int],
    strides: Sequence[Expr | int] | None = None,
    **more: Any,
) -> Buffer:
    """A buffer, with the strides of row-major order unless others are given."""
    sizes = tuple(expr(e) for e in extents)
    given = _strides(sizes) if strides is None else tuple(expr(s) for s in strides)
    return Buffer(name, dtype, memory, sizes, given, **more)


def global_(name: str, dtype: str, *extents: Expr | int, **more: Any) -> Buffer:
    return buffer(name, dtype, Memory.GLOBAL, extents, **more)


def shared(name: str, dtype: str, *extents: int, **more: Any) -> Buffer:
    return buffer(name, dtype, Memory.SHARED, extents, **more)


def local(name: str, dtype: str, *extents: int, fragment: Fragment | None = None) -> Buffer:
    return buffer(name, dtype, Memory.LOCAL, extents, fragment=fragment)


def at(buffer: Buffer, *index: Expr | int) -> Access:
    return Access(buffer, tuple(expr(i) for i in index))


def program(
    buffers: Sequence[Buffer],
    body: Block,
    sizes: str = "",
    block: tuple[int, int, int] = (32, 1, 1),
    grid: Sequence[Expr | int] = (1, 1, 1),
) -> Program:
    x, y, z = (expr(g) for g in grid)
    return Program("kernel", tuple(buffers), tuple(sizes.split()), body, block, (x, y, z))


def launch(
    program: Program,
    args: Sequence[Any],
    target: str = "sm_80",
    tools: str = "all,advice",
    **options: Any,
) -> Ran:
    """Run a program in the simulator, which must find nothing; arrays hold the results."""
    kernel = emit(program, target, **options)
    sizes = args[len(args) - len(program.sizes) :]
    values = dict(zip(program.sizes, sizes, strict=True))
    report = kernel.assemble().kernel().launch(
        grid=[evaluate(g, values) for g in program.grid],
        block=program.block,
        args=list(args), smem=kernel.dynamic_shared, tools=tools,
    )  # fmt: skip
    assert report.verdict == "clean", report.findings
    tags = {n[4:]: c for n, c in report.counters.items() if n.startswith("tag.")}
    copies = {n[9:]: c for n, c in report.counters.items() if n.startswith("cp.async.") and c}
    return Ran(tags, copies, kernel.text(), [f.class_ for f in report.findings])


@dataclass(frozen=True)
class Tiles:
    """A product D = A * B by two warps, one below the other, with a pipeline of ``stages`` tiles.

    A is (M, K) and B (K, N), K contiguous unless ``a_across`` or ``b_across``.  The first tile is
    the residue of K; rows and columns that do not exist are filled with zeros.
    """

    dtype: str = "f16"
    held: str = ""
    shape: tuple[int, int, int] = (16, 8, 16)
    sum_: str = "f32"
    out: str = ""
    stages: int = 2
    cta: tuple[int, int, int] = (32, 16, 32)
    a_across: bool = False
    b_across: bool = False
    swizzle: Swizzle | None = None
    #: the size N as a number, so that stores can be paired
    columns: int = 0
    #: whether the steps of a tile are a loop at run time
    steps: Parallel = Parallel.UNROLL

    @property
    def buffers(self) -> dict[str, Buffer]:
        (_, _, k), (bm, bn, bk), s = self.shape, self.cta, self.stages
        size_m, size_n, size_k = M, self.n, K
        held = self.held or self.dtype
        smem = {"memory": Memory.SHARED, "swizzle": self.swizzle}
        a = (1, size_m) if self.a_across else (size_k, 1)
        b = (size_n, 1) if self.b_across else (1, size_k)
        sa = (bm * bk, 1, bm) if self.a_across else (bm * bk, bk, 1)
        sb = (bn * bk, bn, 1) if self.b_across else (bn * bk, 1, bk)
        return {
            "a": buffer("a", self.dtype, Memory.GLOBAL, (size_m, size_k), a),
            "b": buffer("b", self.dtype, Memory.GLOBAL, (size_k, size_n), b),
            "d": global_("d", self.out or self.sum_, size_m, size_n),
            "sa": buffer("sa", self.dtype, extents=(s, bm, bk), strides=sa, **smem),
            "sb": buffer("sb", self.dtype, extents=(s, bk, bn), strides=sb, **smem),
            "fa": local("fa", held, bm // 2, k, fragment=Fragment("A", self.shape)),
            "fb": local("fb", held, k, bn, fragment=Fragment("B", self.shape)),
            "fc": local("fc", self.sum_, bm // 2, bn, fragment=Fragment("C", self.shape)),
        }

    @property
    def n(self) -> Expr:
        return Int(self.columns) if self.columns else N

    def program(self) -> Program:
        b, (bm, bn, bk), s = self.buffers, self.cta, self.stages
        tiles, i, end = Symbol("T"), Symbol("i"), maximum(Symbol("T") - (self.stages - 1), 0)
        body: list[Node] = [
            Define("T", ceil_div(K, bk)),
            Define("r", K - maximum(tiles - 1, 0) * bk),
            Define("sigma", bk - Symbol("r")),
            Fill(at(b["fc"], 0, 0), 0),
        ]
        for t in range(s - 1):
            loads = self._loads(b, Int(t), Int(t), t == 0)
            body += [If((Test(Int(t) < tiles, Why.UNIFORM),), loads), Commit()]
        after = (Wait(s - 2), BlockSync())
        body += [
            *after,
            Loop("i", Int(0), end, (
                *self._loads(b, (i + (s - 1)) % s, i + (s - 1), False), Commit(),
                *self._use(b, i % s), *after,
            ), stage=Stage.MAIN),
            Loop("i", end, tiles, (Commit(), *self._use(b, i % s), *after), stage=Stage.DRAIN),
            Wait(None),
        ]  # fmt: skip
        row, column = CTA_Y * bm + WARP * (bm // 2), CTA_X * bn
        left = (M - row, self.n - column)
        body.append(StoreMatrix(at(b["d"], row, column), at(b["fc"], 0, 0), (0, 1), left))
        sizes = "M K" if self.columns else "M N K"
        grid = (ceil_div(self.n, bn), ceil_div(M, bm), 1)
        return program(tuple(b.values()), tuple(body), sizes, (32, 2, 1), grid)

    def _loads(self, b: dict[str, Buffer], slot: Expr, tile: Expr, residue: bool) -> Block:
        """Copies of 16 bytes for both operands, by 64 threads."""
        bm, bn, bk = self.cta
        vector = 16 // SIZES[self.dtype]
        nodes: list[Node] = []
        for name, extent, origin, limit, contiguous in (
            ("a", bm, CTA_Y * bm, M, self.a_across), ("b", bn, CTA_X * bn, self.n, self.b_across),
        ):  # fmt: skip
            count = extent * bk // vector
            for first in range(0, count, 64):
                v = WARP * 32 + LANE + first
                line, place = (
                    v // ((extent if contiguous else bk) // vector),
                    v % ((extent if contiguous else bk) // vector),
                )
                k, x = (line, place * vector) if contiguous else (place * vector, line)
                inside = origin + x < limit
                live = inside & (k < Symbol("r")) if residue else inside
                zero = ZeroFill(select(live, vector, 0), True, Why.AXIS if residue else Why.BOUND)
                guard = (Test(v < count, Why.BOUND),) if first + 64 > count else ()
                along = k if residue else tile * bk + k - Symbol("sigma")
                there, here = (origin + x, along), (x, k)
                if name == "b":
                    there, here = there[::-1], here[::-1]
                copy = Copy(
                    at(b["s" + name], slot, *here), at(b[name], *there), vector, "cg", guard, zero
                )
                nodes.append(copy)
        return tuple(nodes)

    def _use(self, b: dict[str, Buffer], slot: Expr) -> Block:
        m, n, k = self.shape
        row, step = WARP * (self.cta[0] // 2), Symbol("kw") * k
        body = (
            LoadMatrix(at(b["fa"], 0, 0), at(b["sa"], slot, row, step), (1, 2)),
            LoadMatrix(at(b["fb"], 0, 0), at(b["sb"], slot, step, 0), (1, 2)),
            Mma(at(b["fc"], 0, 0), at(b["fa"], 0, 0), at(b["fb"], 0, 0), f"m{m}n{n}k{k}"),
        )  # fmt: skip
        return (Loop("kw", Int(0), Int(self.cta[2] // k), body, self.steps),)

    def run(self, m: int, k: int, n: int, target: str = "sm_80", **options: Any) -> Ran:
        """Run it on small integers, whose products every type has, and compare."""
        rng = np.random.default_rng([m, k, n])
        a, b = rng.integers(-4, 5, (m, k)), rng.integers(-4, 5, (k, n))
        d = as_stored(np.zeros((m, n)), self.out or self.sum_)
        args = [
            as_stored(a.T if self.a_across else a, self.dtype),
            as_stored(b if self.b_across else b.T, self.dtype),
            d, m, *(() if self.columns else (n,)), k,
        ]  # fmt: skip
        ran = launch(self.program(), args, target, **options)
        np.testing.assert_array_equal(d, as_stored(a @ b, self.out or self.sum_))
        return ran


def as_stored(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Numbers as a buffer of a type holds them; bf16 as its bits."""
    if dtype == "bf16":
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        return (bits >> 16).astype(np.uint16)
    names = {
        "f16": np.float16,
        "f32": np.float32,
        "tf32": np.float32,
        "s8": np.int8,
        "s32": np.int32,
    }
    return np.ascontiguousarray(values, names[dtype])

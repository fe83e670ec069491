"""Programs of the loop IR as PTX: values, loops, copies, fills and arithmetic of threads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from circular_tiles import (
    CTA_X,
    LANE,
    K,
    M,
    N,
    Ran,
    as_stored,
    at,
    buffer,
    global_,
    launch,
    local,
    program,
    shared,
)
from kernel_judge import judged

from lowering.circular.emit import emit
from lowering.circular.integers import (
    Expr,
    Int,
    Op,
    Symbol,
    ceil_div,
    evaluate,
    maximum,
    minimum,
    select,
)
from lowering.circular.linear import linear
from lowering.circular.loops import (
    Block,
    BlockSync,
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
from lowering.circular.loops import Test as When
from lowering.layout import Swizzle
from ptxsim.errors import UsageError

TILE = Symbol("i")


def body(text: str) -> str:
    """The instructions of a kernel."""
    return text.split("\n\n")[-1]


def opcodes(text: str) -> list[str]:
    """The opcodes of a kernel in order."""
    return re.findall(r"^    (?:@!?%p\d+ )?([a-z][\w.:]*)", body(text), re.MULTILINE)


def staged(zero: ZeroFill | None, guard: tuple[When, ...] = (), cache: str = "cg") -> Program:
    """x to y by way of shared memory, four f32 a thread; y is written whole."""
    x, y = global_("x", "f32", N), global_("y", "f32", ceil_div(N, 128) * 128)
    s, r = shared("s", "f32", 128), local("r", "f32", 4)
    first = CTA_X * 128 + LANE * 4
    return program(
        (x, y, s, r),
        (
            Copy(at(s, LANE * 4), at(x, first), 4, cache, guard, zero),
            Commit(), Wait(0), BlockSync(),
            Copy(at(r, 0), at(s, LANE * 4), 4),
            Copy(at(y, first), at(r, 0), 4),
        ),
        "N", grid=(ceil_div(N, 128), 1, 1),
    )  # fmt: skip


FIRST = CTA_X * 128 + LANE * 4
LIVE = minimum(maximum(N - FIRST, 0), 4)


class TestCopies:
    @pytest.mark.parametrize(
        ("target", "version"),
        [("sm_80", (7, 0)), ("sm_80", (8, 0)), ("sm_90", (8, 3)), ("sm_75", (6, 5))],
    )
    @pytest.mark.parametrize("whole", [False, True])
    def test_zeros_for_what_does_not_exist(
        self, whole: bool, target: str, version: tuple[int, int]
    ) -> None:
        n = 160 if whole else 157
        x, y = np.arange(1, n + 1, dtype=np.float32), np.full(256, np.nan, np.float32)
        ran = launch(staged(ZeroFill(LIVE, whole)), [x, y, n], target, version=version)
        np.testing.assert_array_equal(y, np.concatenate([x, np.zeros(256 - n, np.float32)]))
        if target == "sm_75":  # a test for each of four elements unless all four are alike
            assert ran.copies == {}
            assert ran.tags["axis.setp.threads"] == 64 * (1 if whole else 4)
            return
        # 160 = 40 * 4 elements exist, or 157 = 39 * 4 + 1; the source size needs no comparison
        assert ran.copies["full.threads"] == n // 4
        assert ran.copies.get("partial.threads", 0) == (0 if whole else 1)
        assert ran.copies["zero_filled.threads"] == 64 - 40
        assert ran.tags == (
            {"axis.setp.threads": 64, "axis.setp.warps": 2} if whole else {}
        )  # fmt: skip
        assert ("selp" in ran.text) == (whole and version < (7, 5))

    def test_a_condition_is_the_opposite_of_ignoring_the_source(self) -> None:
        text = emit(staged(ZeroFill(select(FIRST < N, 4, 0), True))).text()
        assert re.search(r"setp.lt.u32 %p0, %r\d+, %r\d+;  // tag: axis", text)
        assert re.search(r"cp.async.cg.shared.global \[%r\d+\], \[%rd\d+\], 16, !%p0;", text)

    def test_a_guard_leaves_memory_as_it_was(self) -> None:
        s, y = shared("s", "f32", 32), global_("y", "f32", 32)
        x, r = global_("x", "f32", N), local("r", "f32", 1)
        code = program(
            (x, y, s, r),
            (
                Fill(at(s, LANE), 7.0),
                Copy(at(s, LANE), at(x, LANE), 1, "ca", (When(LANE < N, Why.AXIS),)),
                Commit(), Wait(None), BlockSync(),
                Copy(at(r, 0), at(s, LANE)), Copy(at(y, LANE), at(r, 0)),
            ),
            "N",
        )  # fmt: skip
        out = np.zeros(32, np.float32)
        ran = launch(code, [np.arange(20, dtype=np.float32), out, 20])
        np.testing.assert_array_equal(out, [*range(20), *[7.0] * 12])
        assert ran.tags == {
            "fill.st.threads": 32, "fill.st.warps": 1, "fill.st.bytes": 128,
            "axis.setp.threads": 32, "axis.setp.warps": 1,
        }  # fmt: skip
        assert ran.copies["full.threads"] == 20
        assert ran.copies["skipped.threads"] == 12

    def test_all_and_nothing_need_no_operand(self) -> None:
        assert ", 16;" in emit(staged(ZeroFill(Int(4), True))).text()
        assert ", 16, 0;" in emit(staged(ZeroFill(Int(0), True))).text()
        assert ", 16, 8;" in emit(staged(ZeroFill(Int(2), False))).text()

    @pytest.mark.parametrize("dtype", ["f32", "f16", "s8", "s32", "bf16"])
    @pytest.mark.parametrize("width", [1, 2, 3, 4, 8])
    def test_widths_and_types(self, dtype: str, width: int) -> None:
        # a row of 8 elements a thread; the way back goes by registers
        x, y = global_("x", dtype, 32, 8), global_("y", dtype, 32, 8)
        s, r = shared("s", dtype, 32, 8), local("r", dtype, 8)
        code = program(
            (x, y, s, r),
            (
                Copy(at(s, LANE, 0), at(x, LANE, 0), width),
                Copy(at(r, 0), at(s, LANE, 0), width),
                Copy(at(y, LANE, 0), at(r, 0), width),
            ),
        )
        values = as_stored(np.arange(256).reshape(32, 8) % 120, dtype)
        out = np.zeros_like(values)
        launch(code, [values, out])
        np.testing.assert_array_equal(out[:, :width], values[:, :width])
        assert not out[:, width:].any()

    def test_vectors_are_as_wide_as_is_known_to_be_aligned(self) -> None:
        def loads(x: Any, *index: Expr | int) -> list[str]:
            s = shared("s", "f32", 64, 8)
            code = program((x, s), (Copy(at(s, LANE, 0), at(x, *index), 4),), "N")
            return [o for o in opcodes(emit(code).text()) if o.startswith("ld.global")]

        assert loads(global_("x", "f32", 32, 8), LANE, 0) == ["ld.global.v4.b32"]
        assert loads(global_("x", "f32", 32, 8), LANE, 2) == ["ld.global.v2.b32"] * 2
        assert loads(global_("x", "f32", 32, 8, align=8), LANE, 0) == ["ld.global.v2.b32"] * 2
        assert loads(global_("x", "f32", 32, 6), LANE, 0) == ["ld.global.v2.b32"] * 2
        assert loads(global_("x", "f32", 32, N), LANE, 0) == ["ld.global.b32"] * 4
        assert loads(global_("x", "f32", 32, N // 4 * 4), LANE, 0) == ["ld.global.v4.b32"]
        assert loads(global_("x", "f32", N), LANE * 4 + 3) == ["ld.global.b32"] * 4

    @pytest.mark.parametrize(("dtype", "width", "first"), [
        pytest.param(d, w, f, marks=() if (i + j + k) % 3 == 0 else pytest.mark.slow)
        for i, d in enumerate(("f16", "f32", "s8"))
        for j, w in enumerate((1, 3, 16)) for k, f in enumerate((0, 3, 8))
    ])  # fmt: skip
    def test_pieces_of_a_swizzle(self, dtype: str, width: int, first: int) -> None:
        # chunks of 16 bytes in rows of 128 bytes; what is longer than a chunk is cut
        columns = 128 // as_stored(np.zeros(1), dtype).itemsize
        swizzle = Swizzle((columns // 8).bit_length() - 1, 3, 3)
        x, y = (global_(n, dtype, 32, columns) for n in "xy")
        s, r = shared("s", dtype, 32, columns, swizzle=swizzle), local("r", dtype, width)
        code = program(
            (x, y, s, r),
            (
                Fill(at(s, LANE, 0), 1, columns),
                Copy(at(s, LANE, first), at(x, LANE, first), width),
                Copy(at(r, 0), at(s, LANE, first), width),
                Copy(at(y, LANE, 0), at(s, LANE, 0), columns),
                Copy(at(y, LANE, first), at(r, 0), width),
            ),
        )
        values = as_stored(np.arange(32 * columns).reshape(32, columns) % 120, dtype)
        out = np.zeros_like(values)
        launch(code, [values, out])
        wanted = as_stored(np.ones_like(values), dtype)
        wanted[:, first : first + width] = values[:, first : first + width]
        np.testing.assert_array_equal(out, wanted)

    def test_into_registers_with_zeros(self) -> None:
        x, y, r = global_("x", "f32", N), global_("y", "f32", 128), local("r", "f32", 4)
        for whole, n in ((True, 64), (False, 61)):
            code = program(
                (x, y, r),
                (
                    Copy(at(r, 0), at(x, LANE * 4), 4, zero=ZeroFill(LIVE, whole)),
                    Copy(at(y, LANE * 4), at(r, 0), 4),
                ),
                "N",
            )
            out = np.full(128, np.nan, np.float32)
            ran = launch(code, [np.arange(n, dtype=np.float32), out, n])
            np.testing.assert_array_equal(out, [*range(n), *[0] * (128 - n)])
            assert ran.tags["axis.setp.threads"] == 32 * (1 if whole else 4)


class TestFills:
    @pytest.mark.parametrize(
        ("dtype", "value", "width", "stores"),
        [
            ("f32", 1.5, 4, 1), ("f32", -2.0, 8, 2), ("f16", 1.5, 8, 1), ("f16", 3.0, 3, 2),
            ("bf16", -0.5, 4, 1), ("s8", -3, 16, 1), ("s8", 5, 7, 3), ("s32", -1, 1, 1),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("memory", ["shared", "global"])
    def test_values(self, dtype: str, value: float, width: int, stores: int, memory: str) -> None:
        y, s = global_("y", dtype, 32, 16), shared("s", dtype, 32, 16)
        filled = y if memory == "global" else s
        nodes: list[Node] = [Fill(at(filled, LANE, 0), value, width)]
        if filled is s:
            nodes.append(Copy(at(y, LANE, 0), at(s, LANE, 0), width))
        out = as_stored(np.zeros((32, 16)), dtype)
        ran = launch(program((y, s), tuple(nodes)), [out])
        wanted = np.zeros((32, 16))
        wanted[:, :width] = value
        np.testing.assert_array_equal(out, as_stored(wanted, dtype))
        assert ran.tags["fill.st.threads"] == 32 * stores
        assert ran.tags["fill.st.bytes"] == 32 * width * out.itemsize

    def test_the_part_that_is_not_loaded(self) -> None:
        s, y = shared("s", "f32", 32), global_("y", "f32", 32)
        unless = (LANE < N).equals(0)
        code = program(
            (s, y),
            (
                Fill(at(s, LANE), 1.0, 1, (When(LANE < N, Why.AXIS),)),
                Fill(at(s, LANE), 2.0, 1, (When(unless, Why.BOUND),)),
                Copy(at(y, LANE), at(s, LANE)),
            ),
            "N",
        )
        out = np.zeros(32, np.float32)
        ran = launch(code, [out, 12])
        np.testing.assert_array_equal(out, [1.0] * 12 + [2.0] * 20)
        assert ran.tags["fill.st.threads"] == 32
        assert ran.tags["axis.setp.threads"] == ran.tags["bound.setp.threads"] == 32

    def test_bf16_has_not_every_number(self) -> None:
        with pytest.raises(UsageError, match=r"bf16 does not have the value 0\.1"):
            emit(program((shared("s", "bf16", 8),), (Fill(at(shared("s", "bf16", 8), 0), 0.1),)))


class TestArithmetic:
    @pytest.mark.parametrize("dtype", ["f32", "f16", "s32"])
    @pytest.mark.parametrize("op", ["add", "sub", "mul", "max", "min"])
    def test_two_sources(self, op: str, dtype: str) -> None:
        a, b, out = (global_(n, dtype, 32) for n in "abc")
        code = program((a, b, out), (Compute(op, at(out, LANE), (at(a, LANE), at(b, LANE))),))
        rng = np.random.default_rng(1)
        x, y = (as_stored(rng.integers(-9, 9, 32), dtype) for _ in range(2))
        z = np.zeros_like(x)
        launch(code, [x, y, z])
        numpy = {
            "add": np.add, "sub": np.subtract, "mul": np.multiply,
            "max": np.maximum, "min": np.minimum,
        }  # fmt: skip
        np.testing.assert_array_equal(z, numpy[op](x, y))

    @pytest.mark.parametrize("dtype", ["f32", "f16", "s32"])
    def test_one_and_three_sources(self, dtype: str) -> None:
        a, out, r = global_("a", dtype, 32), global_("c", dtype, 32), local("r", dtype, 2)
        code = program(
            (a, out, r),
            (
                Compute("neg", at(r, 0), (at(a, LANE),)),
                Compute("fma", at(r, 1), (at(r, 0), at(a, LANE), at(a, LANE))),
                Copy(at(out, LANE), at(r, 1)),
            ),
        )
        x = as_stored(np.arange(-16, 16), dtype)
        z = np.zeros_like(x)
        launch(code, [x, z])
        np.testing.assert_array_equal(z, -x * x + x)

    @pytest.mark.parametrize(
        ("of", "to"),
        [
            ("f32", "f16"), ("f16", "f32"), ("f32", "s32"), ("s32", "f32"), ("s8", "s32"),
            ("s32", "s8"), ("s8", "f16"), ("f32", "bf16"), ("bf16", "f32"), ("bf16", "f16"),
            ("s32", "bf16"), ("f16", "s8"),
        ],
    )  # fmt: skip
    def test_casts(self, of: str, to: str) -> None:
        a, out = global_("a", of, 32), global_("c", to, 32)
        code = program((a, out), (Compute("cast", at(out, LANE), (at(a, LANE),)),))
        z = as_stored(np.zeros(32), to)
        launch(code, [as_stored(np.arange(-16, 16), of), z])
        np.testing.assert_array_equal(z, as_stored(np.arange(-16, 16), to))

    def test_a_guard_holds_for_loads_and_stores(self) -> None:
        a, out = global_("a", "f32", N), global_("c", "f32", 32)
        guard = (When(LANE < N, Why.BOUND),)
        double = Compute("add", at(out, LANE), (at(a, LANE), at(a, LANE)), guard)
        z = np.full(32, -1, np.float32)
        ran = launch(program((a, out), (double,), "N"), [np.arange(5, dtype=np.float32), z, 5])
        np.testing.assert_array_equal(z, [0, 2, 4, 6, 8, *[-1] * 27])
        assert ran.tags == {"bound.setp.threads": 32, "bound.setp.warps": 1}

    def test_vectors_of_a_pointwise_kernel(self) -> None:
        # out = a * a + a, four elements a thread, the number of them a multiple of four
        a, out, r = global_("a", "f32", N), global_("c", "f32", N), local("r", "f32", 8)
        e = Symbol("e")
        square = Compute("fma", at(r, e + 4), (at(r, e), at(r, e), at(r, e)))
        guard = (When(FIRST < N, Why.BOUND),)
        code = program(
            (a, out, r),
            (
                Copy(at(r, 0), at(a, FIRST), 4, guard=guard),
                Loop("e", Int(0), Int(4), (square,), Parallel.UNROLL),
                Copy(at(out, FIRST), at(r, 4), 4, guard=guard),
            ),
            "N", grid=(ceil_div(N, 128), 1, 1),
        )  # fmt: skip
        x = np.arange(200, dtype=np.float32)
        z = np.zeros_like(x)
        ran = launch(code, [x, z, 200], tools="memcheck,racecheck,synccheck,advice")
        np.testing.assert_array_equal(z, x * x + x)
        assert opcodes(ran.text).count("ld.global.v4.f32") == 1
        assert opcodes(ran.text).count("st.global.v4.f32") == 1


def sum_of_rows(
    stages: int, op: str = "add", tile: int = 16, inner: Parallel = Parallel.SERIAL
) -> Program:
    """Sums of K f32 for each of 16 rows a CTA, by copies of single elements."""
    x, y = global_("x", "f32", M, K), global_("y", "f32", M)
    s, r = shared("s", "f32", stages, 16, tile), local("r", "f32", 1)
    row, tiles, j, e = CTA_X * 16 + LANE, Symbol("T"), Symbol("j"), Symbol("e")
    start = 0.0 if op == "add" else float("-inf")

    def load(t: Expr, slot: Expr, residue: bool) -> Block:
        element = j if residue else t * tile + j - Symbol("sigma")
        guard = [When(row < M, Why.BOUND)]
        if residue:
            guard.append(When(j < Symbol("r"), Why.AXIS))
        copy = Copy(at(s, slot, LANE, j), at(x, row, element), 1, "ca", tuple(guard))
        fill = Fill(at(s, slot, LANE, j), start)
        unroll = Parallel.UNROLL
        fills = (Loop("j", Int(0), Int(tile), (fill,), unroll),) if residue else ()
        return (*fills, Loop("j", Int(0), Int(tile), (copy,), unroll))

    use = (
        Loop("e", Int(0), Int(tile), (
            Compute(op, at(r, 0), (at(r, 0), at(s, TILE % stages, LANE, e)),
                    (When(row < M, Why.BOUND),)),
        ), inner),
    )  # fmt: skip
    after = (Wait(max(stages - 2, 0)), BlockSync())
    lead = stages - 1
    nodes: list[Node] = [
        Define("T", ceil_div(K, tile)),
        Define("r", K - maximum(tiles - 1, 0) * tile),
        Define("sigma", tile - Symbol("r")),
        Fill(at(r, 0), start),
    ]
    for t in range(lead):
        first = If((When(Int(t) < tiles, Why.UNIFORM),), load(Int(t), Int(t), t == 0))
        nodes += [first, Commit()]
    nodes += [
        *after,
        Loop("i", Int(0), maximum(tiles - lead, 0),
             (*load(TILE + lead, (TILE + lead) % stages, False), Commit(), *use, *after)),
        Loop("i", maximum(tiles - lead, 0), tiles, (Commit(), *use, *after)),
        Copy(at(y, row), at(r, 0), 1, guard=(When(row < M, Why.BOUND),)),
    ]  # fmt: skip
    grid = (ceil_div(M, 16), 1, 1)
    return program((x, y, s, r), tuple(nodes), "M K", (16, 1, 1), grid)


class TestLoops:
    @pytest.mark.parametrize(("stages", "k"), [
        pytest.param(s, k, marks=() if (s + k) % 3 == 0 else pytest.mark.slow)
        for s in (2, 3, 5) for k in (0, 1, 15, 16, 17, 33, 45, 64)
    ])  # fmt: skip
    def test_reduction(self, stages: int, k: int) -> None:
        x = np.random.default_rng(k).integers(-9, 9, (33, k)).astype(np.float32)
        y = np.full(33, np.nan, np.float32)
        ran = launch(sum_of_rows(stages), [x if k else np.zeros(1, np.float32), y, 33, k])
        np.testing.assert_array_equal(y, x.sum(axis=1))
        # the residue alone tests the axis: 16 elements for each of 3 * 16 threads
        assert ran.tags.get("axis.setp.threads", 0) == (16 * 48 if k else 0)
        assert ran.tags["uniform.setp.threads"] == 48 * (stages - 1)
        assert ran.copies.get("full.threads", 0) == 33 * k

    def test_maximum_with_infinities_where_nothing_is(self) -> None:
        x = -np.arange(1, 33 * 21 + 1, dtype=np.float32).reshape(33, 21)
        y = np.zeros(33, np.float32)
        launch(sum_of_rows(2, "max"), [x, y, 33, 21])
        np.testing.assert_array_equal(y, x.max(axis=1))

    def test_slots_turn_without_divisions(self) -> None:
        text = emit(sum_of_rows(3, inner=Parallel.UNROLL)).text()
        main = text.split("$LOOP_2:")[1].split("bra $LOOP_2")[0]
        assert "rem" not in main
        assert "mul.wide" not in main
        # the slot of the load and that of the use
        assert main.count("setp.eq.s32") == 2
        assert main.count("cp.async.ca") == 16
        # pointers: rows and columns are one, which the 16 copies share
        assert main.count("add.s64") == 1

    @pytest.mark.parametrize(("start", "stop"), [(0, 0), (0, 1), (2, 9), (5, 3)])
    def test_bounds(self, start: int, stop: int) -> None:
        # by constants and by sizes: the sum of 10 * i + j
        for symbolic in (False, True):
            x, y, r = global_("x", "s32", 100), global_("y", "s32", 1), local("r", "s32", 1)
            j = Symbol("j")
            add = Compute("add", at(r, 0), (at(r, 0), at(x, 10 * TILE + j)))
            a, b = (M, N) if symbolic else (Int(start), Int(stop))
            code = program(
                (x, y, r),
                (
                    Fill(at(r, 0), 0),
                    Loop("i", a, b, (Loop("j", Int(1), Int(4), (add,)),)),
                    Copy(at(y, 0), at(r, 0), guard=(When(LANE.equals(0), Why.BOUND),)),
                ),
                "M N" if symbolic else "",
            )
            out = np.zeros(1, np.int32)
            sizes = [start, stop] if symbolic else []
            launch(code, [np.arange(100, dtype=np.int32), out, *sizes])
            assert out[0] == sum(10 * i + j for i in range(start, stop) for j in range(1, 4))

    def test_pointers_of_nested_loops_with_strides_that_are_sizes(self) -> None:
        # the transpose of a box, and backwards along one axis
        i, j, k = (Symbol(s) for s in "ijk")
        x = global_("x", "s32", M, N, K)
        y = buffer("y", "s32", Memory.GLOBAL, (K, N, M), (M * N, M, 1))
        r = local("r", "s32", 1)
        move = (
            Copy(at(r, 0), at(x, i, N - 1 - j, k)),
            Copy(at(y, k, j, i), at(r, 0), guard=(When(LANE.equals(0), Why.BOUND),)),
        )
        code = program(
            (x, y, r),
            (Loop("i", Int(0), M, (Loop("j", Int(0), N, (Loop("k", Int(0), K, move),)),)),),
            "M N K",
        )
        box = np.arange(3 * 4 * 5, dtype=np.int32).reshape(3, 4, 5)
        out = np.zeros((5, 4, 3), np.int32)
        ran = launch(code, [box, out, 3, 4, 5])
        np.testing.assert_array_equal(out, box[:, ::-1].transpose(2, 1, 0))
        inner = ran.text.split("$LOOP_2:")[1]
        assert "mul" not in inner.split("bra")[0]

    def test_loops_that_certainly_run_are_not_tested_first(self) -> None:
        r = local("r", "f32", 1)
        double = (Compute("add", at(r, 0), (at(r, 0), at(r, 0))),)
        code = program((r,), (Loop("i", Int(0), Int(3), double),))
        assert opcodes(emit(code).text()) == [
            "mov.u32", "add.rn.f32", "add.s32", "setp.lt.s32", "bra", "ret",
        ]  # fmt: skip
        code = program((r,), (Loop("i", Int(0), N + 1, double),), "N")
        assert opcodes(emit(code).text()).count("bra") == 1
        code = program((r,), (Loop("i", Int(0), N, double),), "N")
        assert opcodes(emit(code).text()).count("bra") == 2

    def test_axes_of_threads_are_no_loops(self) -> None:
        y = global_("y", "s32", 64)
        code = program(
            (y,),
            (
                Loop("b", Int(0), Int(2), (
                    Loop("t", Int(0), Int(32), (
                        Fill(at(y, Symbol("b") * 32 + Symbol("t")), 5),
                    ), Parallel.TIDX),
                ), Parallel.BIDX),
            ),
            grid=(2, 1, 1),
        )  # fmt: skip
        out = np.zeros(64, np.int32)
        ran = launch(code, [out])
        assert (out == 5).all()
        assert "bra" not in ran.text


class TestTests:
    @staticmethod
    def _stores(*tests: When, before: Block = ()) -> Program:
        y = global_("y", "s32", 32)
        one, two = Fill(at(y, LANE), 1, 1, tests), Fill(at(y, LANE), 2, 1, tests)
        return program((y,), (*before, one, two), "M N")

    def _run(self, code: Program, m: int = 7, n: int = 9) -> tuple[Ran, int]:
        out = np.zeros(32, np.int32)
        ran = launch(code, [out, m, n])
        return ran, int((out == 2).sum())

    def test_each_costs_one(self) -> None:
        ran, live = self._run(self._stores(When(LANE < M, Why.AXIS), When(LANE < N, Why.BOUND)))
        assert live == 7
        assert ran.tags["axis.setp.warps"] == ran.tags["bound.setp.warps"] == 2

    def test_a_defined_condition_costs_one_for_all(self) -> None:
        p = When(Symbol("p"), Why.AXIS)
        before = (Define("p", LANE < M, Why.AXIS),)
        ran, live = self._run(self._stores(p, before=before))
        assert live == 7
        assert ran.tags["axis.setp.warps"] == 1
        ran, live = self._run(self._stores(When(LANE < N, Why.BOUND), p, before=before))
        assert live == 7
        assert ran.tags["axis.setp.warps"] == 1
        assert ran.tags["bound.setp.warps"] == 2
        assert opcodes(ran.text).count("and.pred") == 2

    def test_a_defined_condition_of_copies(self) -> None:
        x, s, y = global_("x", "f32", N), shared("s", "f32", 2, 32), global_("y", "f32", 2, 32)
        live = ZeroFill(select(Symbol("p"), 1, 0), True)
        code = program(
            (x, s, y),
            (
                Define("p", LANE < N, Why.AXIS),
                *(Copy(at(s, n, LANE), at(x, LANE), 1, "ca", (), live) for n in (0, 1)),
                Wait(None),
                *(Copy(at(y, n, LANE), at(s, n, LANE)) for n in (0, 1)),
            ),
            "N",
        )
        out = np.full((2, 32), np.nan, np.float32)
        ran = launch(code, [np.arange(1, 21, dtype=np.float32), out, 20])
        np.testing.assert_array_equal(out, [[*range(1, 21), *[0] * 12]] * 2)
        assert ran.tags == {"axis.setp.threads": 32, "axis.setp.warps": 1}
        assert opcodes(ran.text).count("setp.lt.u32") == 1

    def test_a_defined_condition_as_a_number(self) -> None:
        before = (Define("p", (LANE < M) & (LANE < N), Why.AXIS),)
        chosen = When(select(Symbol("p"), 5, 3) + Symbol("p") > LANE, Why.BOUND)
        ran, live = self._run(self._stores(chosen, before=before))
        assert live == 6
        assert ran.tags["axis.setp.warps"] == 2

    def test_both_and_opposites(self) -> None:
        both = (Int(2) < LANE) & (LANE < M)
        assert self._run(self._stores(When(both, Why.AXIS)))[1] == 4
        assert self._run(self._stores(When(both.equals(0), Why.AXIS)))[1] == 28
        outside = When((LANE < M).equals(0), Why.AXIS)
        ran, live = self._run(self._stores(outside, When(LANE < N, Why.BOUND)))
        assert live == 2
        assert ran.tags["axis.setp.warps"] == 2
        assert self._run(self._stores(When(LANE % 3, Why.AXIS)))[1] == 21

    def test_constants_vanish(self) -> None:
        true, false = When(Int(1), Why.AXIS), When(Int(0), Why.AXIS)
        ran, live = self._run(self._stores(true))
        assert live == 32
        assert "axis" not in str(ran.tags)
        code = self._stores(false, When(LANE < N, Why.BOUND))
        assert opcodes(emit(code).text()) == ["ret"]
        branch = (If((false,), code.body), If((true,), self._stores().body))
        assert "bra" not in emit(program(code.buffers, branch, "M N")).text()

    def test_branches_are_uniform(self) -> None:
        inner = self._stores(When(LANE < N, Why.BOUND)).body
        y = global_("y", "s32", 32)
        both = (When(Int(3) < M, Why.UNIFORM), When(M < N, Why.UNIFORM))
        code = program((y,), (If(both, inner),), "M N")
        ran, live = self._run(code)
        assert live == 9
        assert ran.tags["uniform.setp.warps"] == 2
        assert ran.tags["bound.setp.warps"] == 2
        ran, live = self._run(code, 9, 9)
        assert live == 0
        assert "bound.setp.warps" not in {n for n, c in ran.tags.items() if c}

    def test_indices_beyond_two_to_the_31st(self) -> None:
        # the last CTA has threads beyond the size, which signed numbers would let through
        code = emit(self._stores(When(CTA_X * 128 + LANE < N, Why.BOUND))).text()
        assert "setp.lt.u32" in code
        assert "setp.lt.s32" not in code


def looked_up(e: Expr, *before: Node) -> Program:
    """A kernel that gives ``e`` modulo 4096 for each thread."""
    x, y, r = global_("x", "s32", 4096), global_("y", "s32", 32), local("r", "s32", 1)
    return program(
        (x, y, r), (*before, Copy(at(r, 0), at(x, e % 4096)), Copy(at(y, LANE), at(r, 0))), "M N"
    )


def random_value(rng: np.random.Generator, depth: int) -> Expr:
    """An expression of lane, M and N."""
    if depth == 0:
        leaves = (LANE, M, N, Int(int(rng.integers(-20, 20))))
        return leaves[rng.integers(len(leaves))]
    a, b = random_value(rng, depth - 1), random_value(rng, depth - 1)
    divisor = int(rng.choice([2, 3, 7, 8, 32, -3, -8]))
    kinds = (
        a + b, a - b, a * int(rng.integers(-5, 9)), a // divisor, a % divisor, minimum(a, b),
        maximum(a, b), select(a < b, a, b + 1), (a < b) & a.equals(b + 3).equals(0), a * b % 97,
        a // (M + 1), b % (N + 1),
    )  # fmt: skip
    return kinds[rng.integers(len(kinds))]


class TestValues:
    @pytest.mark.parametrize("seed", range(60))
    def test_random_expressions(self, seed: int) -> None:
        e = random_value(np.random.default_rng(seed), 4)
        out = np.zeros(32, np.int32)
        launch(looked_up(e), [np.arange(4096, dtype=np.int32), out, 11, 25])
        values = [evaluate(e % 4096, {"tid.x": t, "M": 11, "N": 25}) for t in range(32)]
        np.testing.assert_array_equal(out, values)

    @pytest.mark.parametrize("by", [2, 3, 8, 10, -3, -4])
    @pytest.mark.parametrize("name", ["//", "%"])
    def test_rounding_is_towards_minus_infinity(self, name: str, by: int) -> None:
        e = Op(name, LANE - 16, Int(by))
        out = np.zeros(32, np.int32)
        launch(looked_up(e + 100), [np.arange(4096, dtype=np.int32), out, 0, 0])
        values = np.arange(-16, 16)
        np.testing.assert_array_equal(out, 100 + (values // by if name == "//" else values % by))

    def test_the_widest_size(self) -> None:
        # (2**31 - 1 + 31) // 32 needs the 32nd bit of the sum
        out = np.zeros(32, np.int32)
        launch(looked_up((N + 31) // 32), [np.arange(4096, dtype=np.int32), out, 0, 2**31 - 1])
        assert (out == 2**26 % 4096).all()

    def test_offsets_of_more_than_32_bits(self) -> None:
        # 3 * 2**31 elements forward by the product of two sizes and back by another, where sums
        # of 32 bits would not meet again
        x = buffer("x", "s32", Memory.GLOBAL, (M, N, K), (M * N, K, 1))
        y, r = global_("y", "s32", 32), local("r", "s32", 1)
        body_ = (Copy(at(r, 0), at(x, 1, -6, LANE)), Copy(at(y, LANE), at(r, 0)))
        out = np.zeros(32, np.int32)
        launch(
            program((x, y, r), body_, "M N K"),
            [np.arange(32, dtype=np.int32), out, 3 << 15, 1 << 16, 1 << 30],
        )
        np.testing.assert_array_equal(out, np.arange(32))

    def test_far_constants(self) -> None:
        x = buffer("x", "s32", Memory.GLOBAL, (M, N), (1 << 31, 1))
        y, r = global_("y", "s32", 32), local("r", "s32", 1)
        body_ = (Copy(at(r, 0), at(x, 3, LANE - (3 << 31))), Copy(at(y, LANE), at(r, 0)))
        out = np.zeros(32, np.int32)
        launch(program((x, y, r), body_, "M N"), [np.arange(32, dtype=np.int32), out, 4, 32])
        np.testing.assert_array_equal(out, np.arange(32))

    def test_values_stand_outside_of_loops(self) -> None:
        x, r = global_("x", "f32", M, N), local("r", "f32", 1)
        row = (LANE * 3 + M) // 5
        code = program((x, r), (Loop("i", Int(0), N, (Copy(at(r, 0), at(x, row, TILE)),)),), "M N")
        inside = emit(code).text().split("$LOOP_0:")[1]
        assert opcodes("\n\n" + inside) == [
            "ld.global.f32", "add.s64", "add.s32", "setp.lt.s32", "bra", "ret",
        ]  # fmt: skip

    def test_the_same_value_is_computed_once(self) -> None:
        x, y, r = global_("x", "f32", M), global_("y", "f32", M), local("r", "f32", 1)
        index = minimum(LANE * 7 // 3, M - 1)
        code = program((x, y, r), (Copy(at(r, 0), at(x, index)), Copy(at(y, index), at(r, 0))), "M")
        found = opcodes(emit(code).text())
        assert found.count("div.u32") == found.count("min.s32") == 1

    def test_sums(self) -> None:
        s = linear(4 * (M + 2) - N * 3 + M - LANE * M)
        assert s.const == 8
        assert dict(s.terms) == {M: 5, N: -3, LANE * M: -1}


class TestRefusals:
    @pytest.mark.parametrize(
        ("nodes", "match"),
        [
            ((Copy(at(local("r", "f32", 4), LANE), at(shared("s", "f32", 64), 0)),), "registers"),
            ((Copy(at(shared("s", "f32", 64), 0), at(shared("s", "f16", 64), 0)),), "is a cast"),
            ((Copy(at(shared("s", "f32", 64), 0), at(shared("s", "f32", 64), 0), 4, "ca"),),
             "from global to shared"),
            ((Copy(at(global_("x", "f32", 64), 0), at(local("r", "f32", 4), 0),
                   zero=ZeroFill(N, False)),), "zeros are filled in by a copy to"),
            ((Copy(at(shared("s", "f32", 32, strides=(2,)), 0), at(global_("x", "f32", 64), 0), 2,
                   zero=ZeroFill(minimum(N, 1), False)),), "no axis has neighbours"),
            ((Compute("cast", at(local("r", "f32", 4), 0), (at(shared("s", "tf32", 64), 1),)),),
             "no cast from tf32 to f32"),
            ((Fill(at(local("r", "f32", 4), 2), 0.0, 3),), "element 4 is outside of the buffer"),
            ((Loop("i", Int(0), Int(8), (), Parallel.MMA),), "belongs to a matrix instruction"),
            ((Loop("i", Int(0), N, (Fill(at(global_("x", "f32", 64, strides=(TILE,)), 1), 0.0),)),),
             "is not known here"),
            ((Copy(at(shared("s", "f32", 64), 0), at(global_("x", "f32", 64), 0), 2, "cg"),),
             "does not copy 8 bytes"),
            ((Fill(at(shared("s", "f32", 64), Symbol("q")), 0.0),), "'q' is not known"),
            ((Loop("i", Int(0), N, (), Parallel.UNROLL),), "must be constants"),
            ((Compute("pow", at(local("r", "f32", 4), 0), (at(local("r", "f32", 4), 1),) * 2),),
             "no operation pow on f32"),
            ((Compute("add", at(local("r", "f32", 4), 0), ()),), "add has 2 sources"),
            ((Fill(at(shared("s", "f32", 64), LANE // Int(0)), 0.0),), "divides by zero"),
            ((Fill(at(shared("s", "f32", 64), LANE, 1), 0.0),), "has 1 axes"),
            ((Copy(at(shared("s", "f32", 64, swizzle=Swizzle(1, 1, 1)), 0),
                   at(global_("x", "f32", 64), 0), 4, "cg"),), "do not stay together"),
        ],
    )  # fmt: skip
    def test_what_has_no_code(self, nodes: Block, match: str) -> None:
        buffers = (
            global_("x", "f32", 64), shared("s", "f32", 64), local("r", "f32", 4),
        )  # fmt: skip
        with pytest.raises(UsageError, match=match):
            emit(program(buffers, nodes, "N"))

    def test_shared_memory_of_a_size(self) -> None:
        s = buffer("s", "f32", Memory.SHARED, (N,))
        with pytest.raises(UsageError, match="needs constant extents"):
            emit(program((s,), (), "N"))

    def test_a_swizzle_of_global_memory(self) -> None:
        with pytest.raises(UsageError, match="only shared memory has a swizzle"):
            emit(program((global_("x", "f32", 4, swizzle=Swizzle(1, 1, 1)),), ()))

    def test_unknown_types(self) -> None:
        with pytest.raises(UsageError, match="no element has type 'f8'"):
            emit(program((shared("s", "f8", 4),), ()))


@pytest.mark.ptxas
@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90"])
def test_ptxas_takes_it(target: str, tmp_path: Path) -> None:
    programs = [
        staged(ZeroFill(LIVE, True)), staged(ZeroFill(LIVE, False)), sum_of_rows(3),
        looked_up(random_value(np.random.default_rng(5), 4)), sum_of_rows(1, "max"),
    ]  # fmt: skip
    for code in programs:
        assert judged(emit(code, target).text(), tmp_path) == ""
    if target != "sm_90":  # which is newer than this version
        assert judged(emit(programs[0], target, (7, 0)).text(), tmp_path) == ""

"""The oracle of kernels: hand-worked values, every error, and bounds that hold and can fail."""

from __future__ import annotations

import ast
import importlib
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lowering.coopmat.exact import (
    FORMATS,
    Bounded,
    Open,
    Reals,
    add_products,
    arithmetic,
    compare,
    convert,
    integers,
    round_to,
)
from lowering.coopmat.ir import Block, Const, Kernel, Let, Param, Store
from lowering.coopmat.oracle import OracleError, evaluate
from lowering.coopmat.text import parse

Array = NDArray[Any]


def _one(expression: str, type_: str = "int32") -> Any:
    """What one thread stores."""
    kernel = parse(f"kernel k(out: {type_}[]) block(1, 1, 1) {{ out[0] = {expression}; }}")
    out = evaluate(kernel, {"out": np.zeros(1, dtype=type_)}).buffers["out"]
    if isinstance(out, Bounded):
        assert out.bound[0] == 0
        return float(out.nearest()[0])
    return int(out[0])


def _run(body: str, params: str = "out: int32[]", block: str = "32, 1, 1", **arguments: Any) -> Any:
    kernel = parse(f"kernel k({params}) block({block}) {{ {body} }}")
    arguments = arguments or {"out": np.zeros(64, dtype=np.int32)}
    return evaluate(kernel, arguments).buffers["out"]


# --- expressions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("7 / 2", 3),
        ("-7 / 2", -3),  # toward zero, not -4
        ("7 / -2", -3),
        ("-7 % 2", -1),  # the sign of the dividend
        ("7 % -2", 1),
        ("2147483647 + 1", -(2**31)),  # wraps
        ("-2147483648 - 1", 2**31 - 1),
        ("65536 * 65536", 0),
        ("-(-2147483647 - 1)", -(2**31)),  # 2^31 has no positive int32
        ("(-2147483647 - 1) / -1", -(2**31)),
        ("(-2147483647 - 1) % -1", 0),
        ("1 << 31", -(2**31)),
        ("1 << 32", 0),  # PTX clamps the amount to the width
        ("1 << -1", 0),  # an unsigned amount: 2^32 - 1
        ("-8 >> 1", -4),
        ("-8 >> 40", -1),  # sign fill
        ("8 >> -1", 0),
        ("12 & 10", 8),
        ("12 | 10", 14),
        ("12 ^ 10", 6),
        ("~5", -6),
        ("int32(true)", 1),
        ("int32(4294967297i64)", 1),  # the low 32 bits
        ("int32(2147483648i64)", -(2**31)),
        ("int32(-2.75f32)", -2),  # toward zero
        ("int32(3000000000.0f32)", 2**31 - 1),  # clamped
        ("int32(-3000000000.0f64)", -(2**31)),
        ("int32(0.0f32 / 0.0f32)", 0),  # NaN, f32 to a 32-bit integer
        ("int32(0.0f64 / 0.0f64)", -(2**31)),  # NaN, f64: the top bit
        ("int32(7 > 6)", 1),
        ("int32(bool(3))", 1),
        ("int32(bool(0.0f32))", 0),
        ("int32(0.0f32 / 0.0f32 == 0.0f32 / 0.0f32)", 0),
        ("int32(0.0f32 / 0.0f32 != 0.0f32 / 0.0f32)", 1),
        ("int32(0.0f32 / 0.0f32 < 1.0f32)", 0),
        ("int32(!(true && false) || false)", 1),
        ("length(out)", 1),
        ("block_dim_x + grid_dim_y * 2", 3),
    ],
)
def test_int32_expressions(expression: str, expected: int) -> None:
    assert _one(expression) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("9223372036854775807i64 + 1i64", -(2**63)),
        ("4611686018427387904i64 * 2i64", -(2**63)),
        ("1i64 << 63i64", -(2**63)),
        ("1i64 << 64i64", 0),
        ("-1i64 >> 64i64", -1),
        ("-9223372036854775807i64 / 2i64", -(2**62) + 1),
        ("int64(-1)", -1),
        ("int64(0.0f32 / 0.0f32)", -(2**63)),
        ("int64(1.0f32 / 0.0f32)", 2**63 - 1),
        ("int64(-1.0f64 / 0.0f64)", -(2**63)),
        ("int64(9007199254740993.0f64)", 2**53),  # the literal itself is rounded
    ],
)
def test_int64_expressions(expression: str, expected: int) -> None:
    assert _one(expression, "int64") == expected


@pytest.mark.parametrize(
    ("expression", "type_", "expected"),
    [
        # 2^24 + 1 lies between two float32 numbers; the tie goes to the even one.
        ("float32(16777217)", "float32", 2.0**24),
        ("float32(16777219)", "float32", 2.0**24 + 4),
        ("float64(16777217)", "float64", 2.0**24 + 1),
        ("16777216.0f32 + 1.0f32", "float32", 2.0**24),
        ("16777216.0f32 + 3.0f32", "float32", 2.0**24 + 4),
        ("1.0f32 / 3.0f32", "float32", float(np.float32(1) / np.float32(3))),
        ("0.1f32", "float32", 13421773 * 2.0**-27),
        ("float32(0.1f64)", "float32", 13421773 * 2.0**-27),
        ("float64(0.1f32)", "float64", 13421773 * 2.0**-27),
        ("-(3.0f64 - 0.5f64) * 2.0f64", "float64", -5.0),
        ("1.0f32 / 0.0f32", "float32", math.inf),
        ("float32(1.0e300f64)", "float32", math.inf),
        # Each operation rounds: 2^-149 / 2 is a tie between 0 and 2^-149.
        ("1.401298464324817e-45f32 / 2.0f32", "float32", 0.0),
    ],
)
def test_float_expressions(expression: str, type_: str, expected: float) -> None:
    assert _one(expression, type_) == expected


def test_the_other_side_is_evaluated_only_where_it_is_needed() -> None:
    # Lanes from 4 on would read outside of the buffer.
    body = "let i: int32 = thread_idx_x; if i < 4 && a[i] > 0 || i == 9 { out[i] = 1; }"
    a = np.array([1, 0, 5, -1], dtype=np.int32)
    out = _run(body, "out: int32[], a: int32[]", out=np.zeros(32, np.int32), a=a)
    assert np.flatnonzero(out).tolist() == [0, 2, 9]


# --- statements -----------------------------------------------------------------------------------


def test_loops_count_to_their_bound_which_is_evaluated_once() -> None:
    body = "let mut n: int32 = 3; for i = 0 to n { out[i] = n; n = n + 5; }"
    assert _run(body, block="1, 1, 1", out=np.zeros(5, np.int32)).tolist() == [3, 8, 13, 18, 0]


def test_a_loop_may_end_at_the_largest_number_and_be_empty() -> None:
    body = """let mut n: int32 = 0;
    for i = 2147483646 to 2147483647 { n = n + 1; } for i = 1 to 0 { n = 100; } out[0] = n;"""
    assert _run(body, block="1, 1, 1", out=np.zeros(1, np.int32)).tolist() == [2]


def test_lanes_take_their_own_way() -> None:
    # Lane i loops i times, skips odd lanes' stores after a return, and halves the rest.
    body = """let i: int32 = thread_idx_x; let mut sum: int32 = 0;
    for j = 1 to i { sum = sum + j; }
    if i % 2 == 1 { if i > 16 { return; } sum = -sum; } else { sum = sum * 2; }
    let mut n: int32 = i; while n > 1 { n = n / 2; sum = sum + 1000; }
    out[i] = sum;"""
    out = _run(body, out=np.zeros(32, np.int32))
    for i in range(32):
        odd = i * (i + 1) // 2
        expected = (-odd if i % 2 else 2 * odd) + 1000 * (max(i, 1).bit_length() - 1)
        assert out[i] == (0 if i % 2 and i > 16 else expected)


def test_names_end_with_their_block_and_may_hide_others() -> None:
    body = "let x: int32 = 1; { let x: int32 = 2; out[0] = x; } out[1] = x;"
    assert _run(body, block="1, 1, 1", out=np.zeros(2, np.int32)).tolist() == [2, 1]


def test_numbers_of_threads() -> None:
    kernel = parse("""kernel k(out: int32[]) block(4, 3, 2) {
      let t: int32 = thread_idx_x + 4 * (thread_idx_y + 3 * thread_idx_z);
      let c: int32 = block_idx_x + grid_dim_x * (block_idx_y + grid_dim_y * block_idx_z);
      out[c * 24 + t] = c * 24 + t + 1000 * block_dim_z;
    }""")
    out = evaluate(kernel, {"out": np.zeros(24 * 12, np.int32)}, grid=(2, 3, 2)).buffers["out"]
    assert out.tolist() == [n + 2000 for n in range(24 * 12)]


def test_warps_meet_at_barriers() -> None:
    # 3 warps: each thread reads what another warp's thread wrote before the barrier.
    body = """let i: int32 = thread_idx_x; t[i] = i * i; barrier; out[i] = t[95 - i]; barrier;
    if i == 0 { t[0] = 7; } barrier; out[i] = out[i] + t[0];"""
    kernel = parse(f"kernel k(out: int32[]) block(96, 1, 1) {{ shared t: int32[]; {body} }}")
    out = evaluate(kernel, {"out": np.zeros(96, np.int32)}, dynamic=96).buffers["out"]
    assert out.tolist() == [(95 - i) ** 2 + 7 for i in range(96)]


def test_warps_that_ended_are_not_waited_for() -> None:
    body = "if thread_idx_x < 32 { return; } barrier; out[thread_idx_x - 32] = 1;"
    assert _run(body, block="64, 1, 1", out=np.zeros(32, np.int32)).all()


def test_arrays_of_every_space() -> None:
    # Each thread has its own local array; constants are there from the start.
    kernel = parse("""kernel k(out: float32[]) block(64, 1, 1) {
      local own: int32[3]; constant c: float32[] = {1, -2.5, 0.1}; shared s: int64[2];
      own[2] = thread_idx_x; own[0] = own[2] * 2;
      if thread_idx_x == 40 { s[1] = 9i64; }
      barrier;
      let sum: int32 = own[0] + int32(s[1]) + length(c) + length(s);
      out[thread_idx_x] = float32(sum) * c[1];
    }""")
    out = evaluate(kernel, {"out": np.zeros(64, np.float32)}).buffers["out"]
    assert out.nearest().tolist() == [-2.5 * (2 * i + 14) for i in range(64)]


def test_arguments_are_not_modified() -> None:
    given = np.zeros(32, np.int32), np.zeros(32, np.float64)
    body = "out[thread_idx_x] = 1; f[thread_idx_x] = 1.0f64;"
    out = _run(body, "out: int32[], f: float64[]", out=given[0], f=given[1])
    assert out.all()
    assert not given[0].any()
    assert not given[1].any()


def test_scalar_arguments() -> None:
    params = "out: float64[], a: int32, b: int64, c: float32, d: float64, e: bool"
    body = "if e { out[0] = float64(a) + float64(b) + float64(c) + d; }"
    arguments = {"a": np.int32(1), "b": 2**40, "c": 0.1, "d": 3, "e": True}
    out = _run(body, params, "1, 1, 1", out=np.zeros(1), **arguments)
    # 0.1 is rounded to float32 when it is passed; 1 + 2^40, + 0.1f, + 3 are rounded to float64.
    assert out.nearest()[0] == (1.0 + 2.0**40) + float(np.float32(0.1)) + 3.0


# --- errors ---------------------------------------------------------------------------------------

_A, _C = "fragment x: a 16x16x16 s8;", "fragment z: accumulator 16x16x16 s32;"
_LOAD = "load z (accumulator 16x16x16 s32) from out[{}] stride {} row;"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("out[0] = 1 / (thread_idx_x - 3);", "line 1: division by zero (div)"),
        ("out[0] = 1 % 0;", "division by zero (mod)"),
        ("\n\nout[64] = 1;", "line 3: index 64 is outside of 'out', which has 64 elements"),
        ("out[thread_idx_x - 1] = 1;", "index -1 is outside of 'out'"),
        ("out[0] = out[64];", "index 64 is outside of 'out'"),
        ("if true {\nout[64] = 1; }", "line 2: index 64"),
        ("out[thread_idx_x / 2] = thread_idx_x;", "'out' is given different values at once"),
        ("shared s: int32[4]; out[0] = s[3];", "'s[3]' is read before it was written"),
        ("out[0] = x;", "no variable 'x'"),
        ("{ let x: int32 = 1; } out[0] = x;", "no variable 'x'"),
        ("nix[0] = 1;", "no buffer 'nix'"),
        ("out[0] = length(nix);", "no buffer 'nix'"),
        ("local s: int32[4]; out[0] = length(s);", "'s' is a local array and has no length"),
        ("local s: int32[4]; s[4] = 1;", "index 4 is outside of 's', which has 4 elements"),
        ("local s: int32[4]; s[1] = 1; out[0] = s[2];", "'s[2]' is read before it was written"),
        (
            "local s: int32[4]; if thread_idx_x < 3 { s[1] = 1; } out[0] = s[1];",
            "'s[1]' is read before it was written",
        ),
        ("constant s: int32[] = {1}; s[0] = 1;", "'s' is constant and cannot be stored to"),
        ("constant s: int32[] = {2147483648};", "2147483648 is no int32"),
        ("constant s: float16[] = {1};", "'s': no constants of float16"),
        (
            "local s: int32[300];" + _C + _LOAD.format(0, 16).replace("out", "s"),
            "'s' is local: no warp can share its elements",
        ),
        (
            "constant s: int32[] = {1};" + _C + _LOAD.format(0, 0).replace("out", "s"),
            "'s' is constant: no warp can share its elements",
        ),
        ("shared s: uint8[4]; out[0] = s[0];", "elements of 's' are uint8, which only"),
        ("let x: int32 = 1; x = 2;", "'x' cannot be assigned to"),
        ("for i = 0 to 1 { i = 2; }", "'i' cannot be assigned to"),
        ("let x: int32 = 1; let x: int32 = 2;", "variable 'x' is declared twice"),
        ("let x: int64 = 1;", "int64 is needed, not int32"),
        ("let mut x: int32 = 1; x = 2i64;", "int32 is needed, not int64"),
        ("out[0] = 1.5;", "int32 is needed, not float32"),
        ("out[1.5] = 1;", "int32 or int64 is needed, not float32"),
        ("out[0] = 1 + 1i64;", "no add of int32 and int64"),
        ("out[0] = int32(true + false);", "no add of bool"),
        ("out[0] = int32(true < false);", "no lt of bool"),
        ("out[0] = int32(1.0 % 1.0);", "no mod of float32"),
        ("out[0] = int32(1 && true);", "no and of int32"),
        ("out[0] = int32(true && 1);", "no and of bool and int32"),
        ("out[0] = !1;", "no not of int32"),
        ("out[0] = ~true;", "no bitnot of bool"),
        ("out[0] = int32(-true);", "no neg of bool"),
        ("out[0] = 2147483648;", "2147483648 is no int32"),
        ("if 1 { }", "bool is needed, not int32"),
        ("while 1 { }", "bool is needed, not int32"),
        ("for i = 0 to 1i64 { }", "int32 is needed, not int64"),
        ("for i = 0i64 to 1 { }", "int32 is needed, not int64"),
        ("while true { }", "more than 1000 statements were executed"),
        ("for i = 0 to 1000 { }", "more than 1000 statements were executed"),
        ("if thread_idx_x < 8 { barrier; }", "8 of 32 live lanes execute a barrier"),
        ("if thread_idx_x < 8 { barrier warp; }", "8 of 32 live lanes execute a barrier"),
        (_C + "if thread_idx_x < 8 {" + _LOAD.format(0, 1) + "}", "8 of 32 lanes execute a coop"),
        (_C + "if thread_idx_x < 1 { return; }" + _LOAD.format(0, 1), "31 of 32 lanes execute"),
        (_C + _LOAD.format("thread_idx_x", 1), "the index of a cooperative matrix differs"),
        (_C + _LOAD.format(0, "thread_idx_x"), "the stride of a cooperative matrix differs"),
        (_C + _LOAD.format(0, 16), "index 64 is outside of 'out'"),
        (_C + _LOAD.format(8, -1), "index -1 is outside of 'out'"),
        (_C + _LOAD.format(-1, 1), "index -1 is outside of 'out'"),
        (_LOAD.format(0, 1), "no fragment 'z'"),
        ("{" + _C + "}" + _LOAD.format(0, 1), "no fragment 'z'"),
        (_C + _C, "fragment 'z' is declared twice"),
        (_C + _LOAD.format(0, 1).replace("s32", "u32"), "'z' is accumulator 16x16x16 s32 subg"),
        (
            _A + "load x (a 16x16x16 s8) from out[0] stride 1 row;",
            "'out' has int32 elements, which are no s8",
        ),
        (_A + "store x (a 16x16x16 s8) to out[0] stride 1 row;", "only accumulators are stored"),
        (
            _C + "store z (accumulator 16x16x16 s32) to out[0] stride 16 row;",
            "index 64 is outside of 'out'",
        ),
        (
            _C + _A + "z = muladd x, x, z (16x16x16 s8*s8+s32->s32);",
            "fragment 'x' is a 16x16x16 s8 subgroup, not b 16x16x16 s8 subgroup",
        ),
        (
            _C + _A + "fragment y: b 16x16x16 s8; z = muladd x, y, w (16x16x16 s8*s8+s32->s32);",
            "no fragment 'w'",
        ),
    ],
)
def test_errors(body: str, message: str) -> None:
    kernel = parse(f"kernel k(out: int32[]) block(32, 1, 1) {{ {body} }}")
    with pytest.raises(OracleError) as error:
        evaluate(kernel, {"out": np.zeros(64, np.int32)}, steps=1000)
    assert message in str(error.value)


def test_a_store_onto_itself_needs_equal_values() -> None:
    # Stride 0 puts all rows on one; they are equal only in the second run.
    body = (
        _C
        + """load z (accumulator 16x16x16 s32) from a[0] stride 16 row;
    store z (accumulator 16x16x16 s32) to out[0] stride 0 row;"""
    )
    params = "out: int32[], a: int32[]"
    rows = np.tile(np.arange(16, dtype=np.int32), 16)
    out = _run(body, params, out=np.zeros(16, np.int32), a=rows)
    assert out.tolist() == list(range(16))
    rows[17] = 5
    with pytest.raises(OracleError, match="different values at once"):
        _run(body, params, out=np.zeros(16, np.int32), a=rows)


@pytest.mark.parametrize(
    ("config", "fragments"),
    [
        ("16x16x16 u8*u8+u32->u32 saturating", ("u8", "u8", "u32", "u32")),
        ("16x16x16 s8*s8+u32->s32 saturating", ("s8", "s8", "u32", "s32")),
        ("16x16x16 s8*s8+f32->f32", ("s8", "s8", "f32", "f32")),
        ("16x16x16 f16*f16+s32->s32", ("f16", "f16", "s32", "s32")),
        ("16x16x16 f16*bf16+f32->f32", ("f16", "bf16", "f32", "f32")),
        ("16x16x16 f16*f16+f32->f32 saturating", ("f16", "f16", "f32", "f32")),
        ("16x16x16 f16*f16+f32->f32 rz", ("f16", "f16", "f32", "f32")),
        ("16x16x16 s8*s4+s32->s32", ("s8", "s4", "s32", "s32")),
        ("8x8x128 b1*b1+s32->s32", ("b1", "b1", "s32", "s32")),
        ("8x8x4 f64*f64+f64->f64 xor", ("f64", "f64", "f64", "f64")),
        ("16x16x16 f16*f16+f64->f64", ("f16", "f16", "f64", "f64")),
    ],
)
def test_products_without_meaning(config: str, fragments: tuple[str, str, str, str]) -> None:
    shape, (a, b, c, d) = config.split()[0], fragments
    body = f"""fragment x: a {shape} {a}; fragment y: b {shape} {b};
    fragment z: accumulator {shape} {c}; fragment w: accumulator {shape} {d};
    w = muladd x, y, z ({config});"""
    with pytest.raises(OracleError, match="has no meaning"):
        _run(body)


def test_a_partial_warp_cannot_hold_fragments() -> None:
    with pytest.raises(OracleError, match="8 of 32 lanes"):
        _run(_C + _LOAD.format(0, 1), block="40, 1, 1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 1}, "arguments missing: out"),
        ({"out": 0, "n": 1, "m": 2}, "arguments not of the kernel: m"),
        ({"out": np.zeros(4), "n": 1}, "'out' needs a one-dimensional array of int32"),
        ({"out": np.zeros((2, 2), np.int32), "n": 1}, "'out' needs a one-dimensional array"),
        ({"out": [1, 2], "n": 1}, "'out' needs a one-dimensional array"),
        ({"out": np.zeros(4, np.int32), "n": 1.0}, "argument 'n': 1.0 is no int32"),
        ({"out": np.zeros(4, np.int32), "n": True}, "argument 'n': True is no int32"),
        ({"out": np.zeros(4, np.int32), "n": 1 << 31}, "argument 'n': 2147483648 is no int32"),
        ({"out": np.zeros(4, np.int32), "n": "1"}, "argument 'n': a str is no int32"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    kernel = parse("kernel k(out: int32[], n: int32) block(1, 1, 1) { }")
    with pytest.raises(ValueError, match=message):
        evaluate(kernel, arguments)


@pytest.mark.parametrize(
    ("head", "options", "message"),
    [
        ("", {}, "the kernel has no thread block, and none is given"),
        ("block(32, 1, 1)", {"block": (64, 1, 1)}, r"the thread block of the kernel is \(32, 1, 1"),
        ("", {"block": (0, 1, 1)}, "three positive numbers"),
        ("block(32, 1, 1)", {"grid": (1, 0, 1)}, "three positive numbers"),
        ("block(32, 1, 1)", {"dynamic": 4}, "4 elements for a dynamic shared array"),
    ],
)
def test_wrong_launches(head: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate(parse(f"kernel k() {head} {{ }}"), {}, **options)


def test_ill_formed_trees() -> None:
    # What no text can spell: a constant that is not of its type.
    for const, message in (
        (Const(1.5, "int32"), "1.5 is no int32"),
        (Const(1, "bool"), "1 is no bool"),
        (Const(1, "half"), "1 is no half"),
    ):
        kernel = Kernel("k", (), Block((Let("x", const.type, const),)), (), (1, 1, 1))
        with pytest.raises(OracleError, match=message):
            evaluate(kernel, {})
    store = Store("out", Const(0), Const(True, "bool"))
    kernel = Kernel("k", (Param("out", "int32", True),), Block((store,)), (), (1, 1, 1))
    with pytest.raises(OracleError, match="int32 is needed, not bool"):
        evaluate(kernel, {"out": np.zeros(1, np.int32)})


# --- integer matrices -----------------------------------------------------------------------------

_TILE = """kernel tile(a: uint8[], b: uint8[], c: int32[], d: int32[]) block(32, 1, 1) {
  fragment x: a 16x16x16 T; fragment y: b 16x16x16 T;
  fragment z: accumulator 16x16x16 W; fragment w: accumulator 16x16x16 W;
  load x (a 16x16x16 T) from a[0] stride 16 row;
  load y (b 16x16x16 T) from b[0] stride 16 row;
  load z (accumulator 16x16x16 W) from c[0] stride 16 row;
  w = muladd x, y, z (16x16x16 T*T+W->W);
  store w (accumulator 16x16x16 W) to d[0] stride 16 row;
}"""


def _tile(t: int) -> tuple[Array, Array, Array]:
    """Dispatch t of 16: A[i][k] = 16 k + i, B[k][j] = 16 t + j, C = (37 p mod 1009) - 500."""
    i, j = np.arange(16)[:, None], np.arange(16)[None, :]
    return (
        (16 * j + i).astype(np.uint8),
        (16 * t + j + 0 * i).astype(np.uint8),
        ((37 * np.arange(256)) % 1009 - 500).astype(np.int32).reshape(16, 16),
    )


def _dispatch(text: str, t: int) -> Array:
    a, b, c = _tile(t)
    arguments = {"a": a.ravel(), "b": b.ravel(), "c": c.ravel(), "d": np.zeros(256, np.int32)}
    d: Array = evaluate(parse(text), arguments).buffers["d"]
    return d


@pytest.mark.parametrize(("component", "wide"), [("u8", "u32"), ("s8", "s32")])
def test_all_pairs_of_8_bit_operands(component: str, wide: str) -> None:
    text = _TILE.replace("T", component).replace("W", wide)
    pairs: set[tuple[int, int]] = set()
    for t in range(16):
        a, b, c = (m.tolist() for m in _tile(t))
        d = _dispatch(text, t).reshape(16, 16).tolist()
        for i in range(16):
            for j in range(16):
                total = c[i][j]
                for k in range(16):
                    pairs.add((a[i][k], b[k][j]))
                    x, y = a[i][k], b[k][j]
                    if component == "s8":
                        x, y = x - 256 * (x > 127), y - 256 * (y > 127)
                    total += x * y
                assert d[i][j] == total
    assert len(pairs) == 65536


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  load z (accumulator 16x16x16 s32) from c[0] stride 16 row;\n", ""),
        # A Hankel read, not a transpose: (r, c) comes from r + c.
        ("from b[0] stride 16 row", "from b[0] stride 1 row"),
        ("from a[0] stride 16 row", "from a[0] stride 16 col"),
        ("to d[0] stride 16 row", "to d[0] stride 16 col"),
    ],
)
def test_mutated_kernels_differ_on_every_tile(old: str, new: str) -> None:
    text = _TILE.replace("T", "s8").replace("W", "s32")
    mutated = text.replace(old, new)
    assert mutated != text
    for t in range(16):
        assert (_dispatch(mutated, t) != _dispatch(text, t)).any()


def _product(config: str, a: Array, b: Array, c: Array, buffers: tuple[str, str, str, str]) -> Any:
    """d = a * b + c through memory, all in rows without padding but B, which is in columns."""
    shape, types = config.split()[:2]
    first, rest = types.split("*")
    second, rest = rest.split("+")
    third, fourth = rest.split("->")
    m, n, k = (int(x) for x in shape.split("x"))
    text = f"""kernel k(a: {buffers[0]}[], b: {buffers[1]}[], c: {buffers[2]}[], d: {buffers[3]}[])
      block(32, 1, 1) {{
      fragment x: a {shape} {first}; fragment y: b {shape} {second};
      fragment z: accumulator {shape} {third}; fragment w: accumulator {shape} {fourth};
      load x (a {shape} {first}) from a[0] stride {k} row;
      load y (b {shape} {second}) from b[0] stride {k} col;
      load z (accumulator {shape} {third}) from c[0] stride {n} row;
      w = muladd x, y, z ({config});
      store w (accumulator {shape} {fourth}) to d[0] stride {n} row; }}"""
    dtype = {"bfloat16": "uint16"}.get(buffers[3], buffers[3])
    d = np.zeros(m * n, dtype=dtype)
    return evaluate(parse(text), {"a": a, "b": b, "c": c, "d": d}).buffers["d"]


_BYTES = ("uint8", "int8", "int32", "int32")


@pytest.mark.parametrize(
    ("config", "x", "y", "c", "expected"),
    [
        # 16 * 255 * 255 = 1040400; u8 * u8
        ("16x16x16 u8*u8+s32->s32", 255, -1, 5, 1040405),
        # 16 * 255 * -1; mixed signs
        ("16x16x16 u8*s8+s32->s32", 255, -1, 5, -4075),
        ("16x16x16 s8*s8+s32->s32", 255, -1, 5, 21),
        # 2^31 - 1 + 16 wraps, or is clamped once
        ("16x16x16 s8*s8+s32->s32", 1, 1, 2**31 - 1, -(2**31) + 15),
        ("16x16x16 s8*s8+s32->s32 saturating", 1, 1, 2**31 - 1, 2**31 - 1),
        ("16x16x16 s8*s8+s32->s32 saturating", 255, 1, -(2**31), -(2**31)),
        ("16x16x16 s8*s8+s32->s32 saturating", 255, 1, 2**31 - 1, 2**31 - 17),
        # a u32 accumulator has the bits of an s32 one
        ("16x16x16 s8*s8+u32->u32", 1, 1, 2**31 - 1, -(2**31) + 15),
        ("16x16x16 u8*u8+u32->u32", 1, 1, -1, 15),
    ],
)
def test_8_bit_products(config: str, x: int, y: int, c: int, expected: int) -> None:
    a, b = np.full(256, x, np.uint8), np.full(256, y, np.int8)
    d = _product(config, a, b, np.full(256, c, np.int32), _BYTES)
    assert (d == expected).all()


def test_one_clamp_of_the_whole_sum() -> None:
    # 2^31 - 1 + 8 * 127 - 8 * 127: clamped after each product it would be less at the end.
    a = np.tile(np.array([1] * 8 + [255] * 8, dtype=np.uint8), 16)
    b, c = np.full(256, 127, np.int8), np.full(256, 2**31 - 1, np.int32)
    d = _product("16x16x16 s8*s8+s32->s32 saturating", a, b, c, _BYTES)
    assert (d == 2**31 - 1).all()


@pytest.mark.parametrize(("component", "element"), [("u4", "uint4"), ("s4", "int4")])
def test_4_bit_operands_have_the_low_half_first(component: str, element: str) -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.integers(0, 16, (8, 32)) for _ in range(2))  # rows of A, columns of B
    c = rng.integers(-100, 100, 64).astype(np.int32)
    left, right = ((m[:, 0::2] + 16 * m[:, 1::2]).astype(np.uint8).ravel() for m in (a, b))
    elements = (element, element, "int32", "int32")
    d = _product(f"8x8x32 {component}*{component}+s32->s32", left, right, c, elements)
    signed = [np.where(m > 7, m - 16, m) if component == "s4" else m for m in (a, b)]
    assert d.tolist() == (signed[0] @ signed[1].T + c.reshape(8, 8)).ravel().tolist()


@pytest.mark.parametrize("modifier", ["xor", "and"])
def test_1_bit_operands_have_the_lowest_bit_first(modifier: str) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(0, 256, 8 * 16).astype(np.uint8) for _ in range(2))
    c = rng.integers(-100, 100, 64).astype(np.int32)
    elements = ("bit", "bit", "int32", "int32")
    d = _product(f"8x8x128 b1*b1+s32->s32 {modifier}", a, b, c, elements)
    for i in range(8):
        for j in range(8):
            left = int.from_bytes(a[16 * i : 16 * i + 16].tobytes(), "little")
            right = int.from_bytes(b[16 * j : 16 * j + 16].tobytes(), "little")
            met = left ^ right if modifier == "xor" else left & right
            assert d[8 * i + j] == met.bit_count() + c[8 * i + j]


def test_the_order_of_bits_and_halves_in_memory() -> None:
    # 8x8x32, A row 0: element 1 only, in the high half of byte 0; B column 0: elements 1 and 2.
    a, b = np.zeros(128, np.uint8), np.zeros(128, np.uint8)
    a[0], b[0], b[1] = 0x30, 0x50, 0x07
    zero, elements = np.zeros(64, np.int32), ("uint4", "uint4", "int32", "int32")
    d = _product("8x8x32 u4*u4+s32->s32", a, b, zero, elements)
    assert d[0] == 15
    # 8x8x128, loaded from element 9: bit 1 of byte 1 becomes (0, 0).
    text = """kernel k(a: bit[], d: int32[]) block(32, 1, 1) {
      fragment x: a 8x8x128 b1; fragment y: b 8x8x128 b1; fragment z: accumulator 8x8x128 s32;
      load x (a 8x8x128 b1) from a[9] stride 0 row; load y (b 8x8x128 b1) from a[9] stride 0 col;
      z = muladd x, y, z (8x8x128 b1*b1+s32->s32 and);
      store z (accumulator 8x8x128 s32) to d[0] stride 8 row; }"""
    bits = np.zeros(18, np.uint8)
    bits[0], bits[1] = 0xFF, 0x03  # bits 0 to 9; only bit 9 is loaded
    out = evaluate(parse(text), {"a": bits, "d": zero}).buffers["d"]
    assert out.tolist() == [1] * 64


def test_packed_buffers_come_back_unchanged() -> None:
    rng = np.random.default_rng(2)
    given = {n: rng.integers(0, 256, 5).astype(np.uint8) for n in ("a", "b", "c")}
    kernel = parse("kernel k(a: bit[], b: int4[], c: uint4[], d: int32[]) block(1, 1, 1) {"
                   "d[0] = length(a); d[1] = length(b); }")  # fmt: skip
    out = evaluate(kernel, {**given, "d": np.zeros(2, np.int32)}).buffers
    assert all((out[n] == given[n]).all() for n in given)
    assert out["d"].tolist() == [40, 10]


def test_a_fragment_is_zero_where_it_is_declared() -> None:
    # The declaration is executed in each turn of the loop.
    body = """for i = 0 to 1 { fragment z: accumulator 16x16x16 s32;
    if i == 1 { store z (accumulator 16x16x16 s32) to out[0] stride 16 row; }
    load z (accumulator 16x16x16 s32) from out[0] stride 16 row; }"""
    assert not _run(body, out=np.ones(256, np.int32)).any()


# --- floating-point matrices: models of hardware, written here ------------------------------------


def _cut(value: Fraction, name: str, mode: str = "zero") -> Fraction:
    """A real number in a format: nearest even, toward zero, up or down; no overflow."""
    form = FORMATS[name]
    if not value:
        return value
    exponent = math.frexp(value.numerator / value.denominator)[1] - 1
    step = Fraction(2) ** (max(exponent, form.low) - form.digits + 1)
    count = value / step
    ways: dict[str, Callable[[Fraction], int]] = {
        "nearest": round, "zero": math.trunc, "up": math.ceil, "down": math.floor,
    }  # fmt: skip
    return ways[mode](count) * step


def _in_some_order(
    leaves: list[Fraction], result: str, mode: str, tree: bool, rng: Any
) -> Fraction:
    """The sum of the leaves, one addition at a time, each rounded; the result is rounded again."""
    wide = "f64" if result == "f64" else "f32"
    left = [leaves[i] for i in rng.permutation(len(leaves))]
    while len(left) > 1:
        first = left.pop(int(rng.integers(len(left))) if tree else 0)
        second = left.pop(int(rng.integers(len(left))) if tree else 0)
        left.insert(0, _cut(first + second, wide, mode))
    return _cut(left[0], result, mode)


def _decode(value: Fraction, name: str) -> tuple[Fraction, int]:
    """Significand and exponent; a subnormal number keeps the smallest exponent."""
    if not value:
        return value, FORMATS[name].low
    exponent = max(math.frexp(value.numerator / value.denominator)[1] - 1, FORMATS[name].low)
    return value / Fraction(2) ** exponent, exponent


def _tensor_core(
    x: list[Fraction], y: list[Fraction], c: Fraction, types: tuple[str, str, str], length: int,
    places: int,
) -> Fraction:  # fmt: skip
    """Blocks of products, aligned with c at the largest exponent, cut there, added, and rounded."""
    operand, added, result = types
    zero = -133 if result == "f32" else -21
    for start in range(0, len(x), length):
        addends = [_decode(c, added)]
        for u, v in zip(x[start : start + length], y[start : start + length], strict=True):
            (p, e), (q, f) = _decode(u, operand), _decode(v, operand)
            addends.append((p * q, e + f))
        addends = [(s, e if s else zero + 25 - places) for s, e in addends]
        top = max(e for _, e in addends)
        total = sum(math.trunc(s * Fraction(2) ** (places + e - top)) for s, e in addends)
        exact = total * Fraction(2) ** (top - places)
        c, added = _cut(exact, result, "zero" if result == "f32" else "nearest"), result
    return c


def _sum(a: Array, b: Array, c: Array, types: tuple[str, str, str]) -> Reals:
    left, right, start = (Reals.exactly(m) for m in (a, b, c))
    return add_products(left, right, start, *types)


def _numbers(name: str, kind: str, shape: tuple[int, ...], rng: Any) -> Array:
    """Numbers of a format as float64: of a normal distribution, of many sizes, or subnormal."""
    if kind == "normal":
        raw = rng.standard_normal(shape)
    elif kind == "wide":
        low, high = (-26, 4) if name == "f16" else (-30, 30)
        raw = rng.choice([-1, 1], shape) * np.exp2(rng.uniform(low, high, shape))
        raw *= rng.random(shape) > 0.1
    else:
        form = FORMATS[name]
        raw = rng.integers(-40, 41, shape) * 2.0 ** (form.step if name != "f64" else -540)
        raw[0] = 2.0**-12
    rounded = [round_to(Fraction(float(v)), FORMATS[name]) for v in raw.flat]
    return np.array(rounded).reshape(shape)


def _models(types: tuple[str, str, str]) -> list[Callable[..., Fraction]]:
    """Ways to compute an element from its leaves: x, y and c."""

    def ordered(mode: str, tree: bool) -> Callable[..., Fraction]:
        def compute(x: Any, y: Any, c: Any, rng: Any) -> Fraction:
            leaves = [u * v for u, v in zip(x, y, strict=True)] + [c]
            return _in_some_order(leaves, types[2], mode, tree, rng)

        return compute

    def cored(length: int, places: int) -> Callable[..., Fraction]:
        return lambda x, y, c, rng: _tensor_core(x, y, c, types, length, places)

    found = [ordered(m, t) for m in ("nearest", "zero", "up", "down") for t in (False, True)]
    if types[0] != "f64":
        found += [cored(n, f) for n in (4, 8, 16) for f in (23, 24, 25)]
    return found


_CASES = [
    (("f16", "f32", "f32"), 16),
    (("f16", "f16", "f16"), 16),
    (("f16", "f16", "f32"), 16),
    (("f16", "f32", "f16"), 16),
    (("bf16", "f32", "f32"), 16),
    (("tf32", "f32", "f32"), 8),
    (("f64", "f64", "f64"), 4),
]


@pytest.mark.parametrize("kind", ["normal", "wide", "subnormal"])
@pytest.mark.parametrize(("types", "k"), _CASES)
def test_every_order_meets_the_bound(types: tuple[str, str, str], k: int, kind: str) -> None:
    rng = np.random.default_rng(7)
    operand, added, result = types
    a, b = (_numbers(operand, kind, shape, rng) for shape in ((4, k), (k, 4)))
    c = _numbers("f16" if result == "f16" else added, kind, (4, 4), rng)
    if added == "f32" and result == "f16":
        c = c * (1 + 2.0**-20)  # more digits than f16 has
    sums = _sum(a, b, c, types)
    assert np.isfinite(sums.bound).all()
    exact = sums.rationals()
    worst = 0.0
    for model in _models(types):
        for at in np.ndindex(4, 4):
            x, y = ([Fraction(float(v)) for v in vs] for vs in (a[at[0]], b[:, at[1]]))
            start = Fraction(float(c[at]))
            assert exact[at] == sum((u * v for u, v in zip(x, y, strict=True)), start)
            error = abs(model(x, y, start, rng) - exact[at])
            bound = Fraction(float(sums.bound[at]))
            assert error <= bound, (at, float(error), sums.bound[at])
            worst = max(worst, float(error / bound)) if bound else worst
    if kind == "normal":
        assert worst > 1 / 40  # not vacuous: the largest error seen is not far below the bound


def test_a_subnormal_operand_moves_the_cut() -> None:
    # 2^-24 * 2^15 = 2^-9, but its exponent is -14 + 15 = 1: the others are cut at 2^(1 - 23).
    # 15 products of 2^-14 * 2^-9 = 2^-23 are lost; 32 * 2^-23 * 2^-9 would be no bound for that.
    x = [Fraction(2) ** -24] + [Fraction(2) ** -14] * 15
    y = [Fraction(2) ** 15] + [Fraction(2) ** -9] * 15
    types = ("f16", "f32", "f32")
    assert _tensor_core(x, y, Fraction(0), types, 16, 23) == Fraction(2) ** -9
    # One more bit, as in the accumulators of 24 places, keeps them.
    assert _tensor_core(x, y, Fraction(0), types, 16, 24) == Fraction(2) ** -9 + 15 * (
        Fraction(2) ** -23
    )
    a, b = (np.array([[float(v) for v in z]]) for z in (x, y))
    sums = _sum(a, b.T, np.zeros((1, 1)), types)
    lost = 15 * 2.0**-23
    assert 32 * 2.0**-23 * (2.0**-9 + lost) < lost < sums.bound[0, 0]


def test_the_model_of_the_tensor_core_cuts() -> None:
    # With 24 places four products of 2^-24 beside 1 are kept, and the sum is cut to 24 digits.
    one, small = Fraction(1), Fraction(2) ** -12
    types = ("f16", "f32", "f32")
    x = [one] + [small] * 4 + [Fraction(0)] * 3
    assert _tensor_core(x, x, Fraction(0), types, 8, 24) == 1 + Fraction(2) ** -22
    assert _tensor_core(x, x, Fraction(0), types, 8, 23) == 1
    assert _cut(Fraction(-7, 2), "f16", "zero") == Fraction(-7, 2)
    assert _cut(Fraction(2049), "f16", "nearest") == 2048
    assert _cut(Fraction(-2049), "f16", "up") == -2048


def test_the_bound_by_hand() -> None:
    # f16, k = 16, all ones and c = 2^-20: M = 16 + 2^-20, n = 32 * 2^-23, and the smallest term is
    # 64 * 2^-149.
    ones = Reals.exactly(np.ones((16, 16)))
    c = Reals.exactly(np.full((16, 16), 2.0**-20))
    sums = add_products(ones, ones, c, "f16", "f32", "f32")
    n = 32 * 2.0**-23
    expected = n / (1 - n) * (16 + 2.0**-20)
    assert (sums.bound >= expected).all()
    assert (sums.bound <= expected * (1 + 2.0**-28)).all()
    assert sums.rationals()[3, 4] == 16 + Fraction(2) ** -20
    # f16 results: 4 roundings of 2^-10 join (5 with an f32 c), and 2 * 4 * 2^-24.
    for added, roundings in (("f16", 4), ("f32", 5)):
        half = add_products(ones, ones, c, "f16", added, "f16")
        m = n + roundings * 2.0**-10
        # c is subnormal in f16 (below 2^-14), and counts as 2^-14 there.
        size = 16 + (2.0**-14 if added == "f16" else 2.0**-20)
        expected = m / (1 - m) * size + 2 * roundings * 2.0**-24
        assert (np.abs(half.bound / expected - 1) < 2.0**-28).all()


@pytest.mark.parametrize(("types", "limit"), [(t, 2.0 ** FORMATS[t[2]].digits) for t, _ in _CASES])
def test_small_integers_are_exact(types: tuple[str, str, str], limit: float) -> None:
    rng = np.random.default_rng(3)
    size = 8 if types[2] == "f16" else 100
    a, b = (rng.integers(-size, size + 1, (8, 8)).astype(float) for _ in range(2))
    c = rng.integers(-99, 100, (8, 8)).astype(float)
    sums = _sum(a, b, c, types)
    assert sums.exact
    assert (sums.value == a @ b + c).all()
    # In one row the sizes together reach 2^digits: an order may round.
    c[0] = limit
    sums = _sum(a, b, c, types)
    assert sums.bound[0].all()
    assert not sums.bound[1:].any()


# --- what a bounded buffer says -------------------------------------------------------------------


def _random_product(config: str, elements: tuple[str, str, str, str], seed: int = 5) -> Bounded:
    shape, types = config.split()[:2]
    m, n, k = (int(v) for v in shape.split("x"))
    rng = np.random.default_rng(seed)
    operand, added = types.split("*")[0], types.split("+")[1].split("->")[0]
    values = [
        _numbers(name, "normal", (count,), rng)
        for name, count in ((operand, m * k), (operand, n * k), (added, m * n))
    ]
    left, right, start = [
        (v.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        if e == "bfloat16" else v.astype(e)
        for v, e in zip(values, elements[:3], strict=True)
    ]  # fmt: skip
    out = _product(config, left, right, start, elements)
    assert isinstance(out, Bounded)
    a, b = values[0].reshape(m, k), values[1].reshape(n, k)
    # float64 sums are within 2^-45 of these.
    assert np.allclose(out.exact.astype(float), (a @ b.T).ravel() + values[2], rtol=0, atol=2**-45)
    return out


_KERNELS = [
    ("16x16x16 f16*f16+f32->f32", ("float16", "float16", "float32", "float32")),
    ("32x8x16 f16*f16+f16->f16", ("float16", "float16", "float16", "float16")),
    ("8x32x16 bf16*bf16+f32->f32", ("bfloat16", "bfloat16", "float32", "float32")),
    ("16x16x8 tf32*tf32+f32->f32", ("float32", "float32", "float32", "float32")),
    ("8x8x4 f64*f64+f64->f64", ("float64", "float64", "float64", "float64")),
    ("8x8x4 f64*f64+f64->f64 rz", ("float64", "float64", "float64", "float64")),
]


@pytest.mark.parametrize(("config", "elements"), _KERNELS)
def test_a_bound_holds_what_is_near_and_nothing_else(
    config: str, elements: tuple[str, str, str, str]
) -> None:
    out = _random_product(config, elements)
    near = out.nearest()
    assert out.holds(near).all()
    assert near.dtype == elements[3]
    assert not out.anything.any()
    # One step of the format beyond the bound, on either side.
    form = FORMATS[elements[3]]
    for sign in (1, -1):
        edge = [e + sign * Fraction(float(b)) for e, b in zip(out.exact, out.bound, strict=True)]
        beyond = np.array([float(_cut(v, elements[3], "up" if sign > 0 else "down")) for v in edge])
        beyond *= 1 + np.sign(beyond) * sign * form.unit * 2
        assert not out.holds(beyond.astype(elements[3])).any()
        within = np.array([float(_cut(v, elements[3], "down" if sign > 0 else "up")) for v in edge])
        assert out.holds(within.astype(elements[3])).all()
    wrong = near.copy()
    wrong[7] = np.nan
    assert np.flatnonzero(~out.holds(wrong)).tolist() == [7]
    wrong[7] = np.inf
    assert np.flatnonzero(~out.holds(wrong)).tolist() == [7]


def test_holds_wants_the_dtype_of_the_buffer() -> None:
    out = _random_product(*_KERNELS[0])
    with pytest.raises(ValueError, match=r"\(256,\) float32 is needed, not \(256,\) float64"):
        out.holds(out.nearest().astype(float))
    with pytest.raises(ValueError, match="is needed"):
        out.holds(out.nearest()[1:])


def test_bfloat16_comes_and_goes_as_patterns() -> None:
    patterns = np.array([0x3F80, 0xC000, 0x7F80, 0x7FC0, 0x0001, 0x8000], dtype=np.uint16)
    kernel = parse("kernel k(a: bfloat16[]) block(1, 1, 1) { }")
    out = evaluate(kernel, {"a": patterns}).buffers["a"]
    assert (out.nearest() == patterns).all()
    assert out.exact[:2].tolist() == [1, -2]
    assert out.exact[4] == Fraction(2) ** -133
    assert out.holds(patterns).all()
    other = patterns.copy()
    other[3] = 0xFF81  # another NaN
    assert out.holds(other).all()
    other[0] = 0x3F81
    other[2] = 0xFF80
    assert np.flatnonzero(~out.holds(other)).tolist() == [0, 2]


def test_nearest_rounds_once() -> None:
    # 1 + 2^-11 + 2^-60 lies above a tie of f16; by way of float64 it would be the tie.
    exact = np.array([Fraction(1) + Fraction(2) ** -11 + Fraction(2) ** -60], dtype=object)
    out = Bounded("float16", Reals(np.zeros(1), np.array([2.0**-9]), exact))
    assert out.nearest().tolist() == [1 + 2.0**-10]
    assert round_to(Fraction(65519), FORMATS["f16"]) == 65504
    assert round_to(Fraction(-65520), FORMATS["f16"]) == -math.inf
    assert round_to(Fraction(3, 2**25), FORMATS["f16"]) == 2.0**-23  # 1.5 steps: a tie
    assert round_to(Fraction(1, 2**25), FORMATS["f16"]) == 0
    assert round_to(Fraction(1, 2**25) + Fraction(1, 2**90), FORMATS["f16"]) == 2.0**-24


# --- numbers that are not finite ------------------------------------------------------------------


def _row(x: list[float], y: list[float], c: float, types: tuple[str, str, str]) -> Reals:
    a, b = np.array([x]), np.array([y]).T
    return _sum(a, b, np.array([[c]]), types)


@pytest.mark.parametrize(
    ("x", "y", "c", "expected"),
    [
        ([math.inf, 1], [2, 3], 1, math.inf),
        ([math.inf, 1], [-2, 3], 1, -math.inf),
        ([2, 1], [-math.inf, 3], 1, -math.inf),
        ([-math.inf, 1], [-math.inf, 3], 1, math.inf),
        ([math.inf, 1], [0, 3], 1, math.nan),
        ([0.0, 1], [math.inf, 3], 1, math.nan),
        ([math.inf, math.inf], [1, -1], 1, math.nan),
        ([math.inf, 1], [1, 1], -math.inf, math.nan),
        ([1, 1], [1, 1], -math.inf, -math.inf),
        ([math.nan, 1], [0, 1], 1, math.nan),
        ([0, 1], [math.nan, 1], 1, math.nan),
        ([1, 1], [1, 1], math.nan, math.nan),
        ([math.inf, math.nan], [1, 1], 1, math.nan),
    ],
)
@pytest.mark.parametrize("types", [t for t, _ in _CASES])
def test_infinities_and_nan(
    x: list[float], y: list[float], c: float, expected: float, types: tuple[str, str, str]
) -> None:
    sums = _row(x, y, c, types)
    assert sums.bound[0, 0] == 0
    assert np.array_equal(sums.value[0, 0], expected, equal_nan=True)


@pytest.mark.parametrize(
    ("x", "y", "c", "types"),
    [
        # 2^15 * 2 - 2^16 is 0, but in one order 65536 comes first, which f16 does not have.
        ([2.0**15, 2.0**15], [2, -2], 0, ("f16", "f16", "f16")),
        ([2.0**127, 2.0**127], [1, -1], 2.0**127, ("bf16", "f32", "f32")),
        ([2.0**1023, -(2.0**1023)], [2, 2], 0, ("f64", "f64", "f64")),
        ([2.0**1000, 1], [2.0**1000, 2], 0, ("f64", "f64", "f64")),
        # An infinity beside it may meet the opposite one.
        ([2.0**127, 2.0**127, math.inf], [1, 1, 1], 0, ("bf16", "f32", "f32")),
    ],
)
def test_what_may_overflow_may_be_anything(
    x: list[float], y: list[float], c: float, types: tuple[str, str, str]
) -> None:
    sums = _row(x, y, c, types)
    assert sums.unknown.all()
    element = {"f16": "float16", "f32": "float32", "f64": "float64"}[types[2]]
    out = Bounded(element, sums)
    assert out.anything.all()
    assert np.isnan(out.nearest()).all()
    for value in (0.0, 1.0, math.inf, math.nan):
        assert out.holds(np.full((1, 1), value, dtype=element)).all()


def test_what_is_not_known_spreads() -> None:
    unknown = Reals(np.zeros((2, 2)), np.array([[math.inf, 0], [0, 0]]))
    ones = Reals.exactly(np.ones((2, 2)))
    nan = Reals.exactly(np.array([[1, math.nan], [1, 1]]))
    types = ("f16", "f32", "f32")
    assert add_products(unknown, ones, ones, *types).unknown.tolist() == [[1, 1], [0, 0]]
    assert add_products(ones, unknown, ones, *types).unknown.tolist() == [[1, 0], [1, 0]]
    assert add_products(ones, ones, unknown, *types).unknown.tolist() == [[1, 0], [0, 0]]
    # A NaN is sure beside it.
    both = add_products(unknown, nan, ones, *types)
    assert both.unknown.tolist() == [[1, 0], [0, 0]]
    assert np.isnan(both.value).tolist() == [[0, 1], [0, 1]]
    # Infinity times a number whose sign is open.
    open_ = Reals(np.zeros((1, 1)), np.ones((1, 1)), np.array([[Fraction(1, 2)]], dtype=object))
    sure = Reals(np.zeros((1, 1)), np.ones((1, 1)), np.array([[Fraction(-2)]], dtype=object))
    infinite, zero = Reals.exactly(np.full((1, 1), math.inf)), Reals.exactly(np.zeros((1, 1)))
    assert add_products(infinite, open_, zero, *types).unknown.all()
    assert add_products(sure, infinite, zero, *types).value[0, 0] == -math.inf


# --- bounds on their way --------------------------------------------------------------------------


def test_tf32_operands_lose_their_low_bits() -> None:
    # A tf32 number has 10 places: 1 + 2^-11 counts as 1, and -(1 + 2^-10 + 2^-23) as -(1 + 2^-10).
    sums = _row([1 + 2.0**-11, 1], [1, -(1 + 2.0**-10 + 2.0**-23)], 0, ("tf32", "f32", "f32"))
    assert sums.rationals()[0, 0] == -(Fraction(2) ** -10)
    # The smallest numbers of f32 count as zero.
    assert _row([2.0**-137], [2.0**100], 0, ("tf32", "f32", "f32")).value[0, 0] == 0
    assert _row([math.nan], [1], 0, ("tf32", "f32", "f32")).bound[0, 0] == 0


def test_errors_of_operands_join_the_bound() -> None:
    def one(value: float, bound: float) -> Reals:
        centre = np.array([[Fraction(value)]], dtype=object)
        return Reals(np.array([[0.0 if bound else value]]), np.array([[bound]]), centre)

    types = ("f16", "f32", "f32")
    # Small integers, so nothing but the errors: |a| eb + |b| ea + ea eb + ec.
    for a, b, c, expected in (
        (one(0, 0), one(3, 0), one(1, 0.5), 0.5),
        (one(2, 0.25), one(-3, 0), one(0, 0), 0.75),
        (one(2, 0), one(-3, 0.25), one(0, 0), 0.5),
        (one(2, 0.25), one(-3, 0.5), one(1, 0.125), 1 + 0.75 + 0.125 + 0.125),
    ):
        bound = add_products(a, b, c, *types).bound[0, 0]
        assert expected <= bound < expected * 1.001 + 0.15 * (a.bound * b.bound > 0)[0, 0]


def test_products_below_the_smallest_number() -> None:
    # 2.25 * 2^-150 may come out as 0 or as 2^-149 or, up, as 2^-148: no relative bound says so.
    sums = _row([1.5 * 2.0**-75], [1.5 * 2.0**-75], 0, ("bf16", "f32", "f32"))
    out = Bounded("float32", sums)
    for steps in (0, 1, 2):
        assert out.holds(np.full((1, 1), steps * 2.0**-149, np.float32)).all()
    # f16: 2^-24 * 2^-10 is far below 2^-24.
    out = Bounded("float16", _row([2.0**-24], [2.0**-10], 0, ("f16", "f16", "f16")))
    for steps in (0, 1):
        assert out.holds(np.full((1, 1), steps * 2.0**-24, np.float16)).all()


_CHAIN = """kernel chain(a: float32[], b: float32[], c: float32[], t: float32[], e: float32[])
  block(32, 1, 1) {
  fragment x: a 16x16x8 tf32; fragment y: b 16x16x8 tf32; fragment z: accumulator 16x16x8 f32;
  load y (b 16x16x8 tf32) from b[0] stride 16 row;
  load z (accumulator 16x16x8 f32) from c[0] stride 16 row;
  load x (a 16x16x8 tf32) from a[0] stride 8 row;
  z = muladd x, y, z (16x16x8 tf32*tf32+f32->f32);
  store z (accumulator 16x16x8 f32) to t[0] stride 16 row;
  for i = 0 to 1 {
    load x (a 16x16x8 tf32) from t[8 * i] stride 16 row;
    z = muladd x, y, z (16x16x8 tf32*tf32+f32->f32);
  }
  store z (accumulator 16x16x8 f32) to e[0] stride 16 row;
  for j = 0 to 7 {
    let at: int32 = 8 * thread_idx_x + j;
    e[at] = -(e[at] * 0.5f32) - float32(float64(t[at]) / 3.0f64);
  }
}"""


def test_bounds_go_through_chains_memory_and_scalars() -> None:
    rng = np.random.default_rng(11)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((16, 8), (8, 16), (16, 16)))
    zero = np.zeros(256, np.float32)
    given = {"a": a.ravel(), "b": b.ravel(), "c": c.ravel(), "t": zero, "e": zero}
    out = evaluate(parse(_CHAIN), given).buffers
    types = ("tf32", "f32", "f32")

    def drop(m: Array) -> Array:
        return (m.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)

    for model in _models(types)[::3]:  # two orders of additions, three tensor cores

        def multiply(x: Array, y: Array, z: Array, model: Any = model) -> Array:
            d = np.zeros((16, 16), np.float32)
            for i, j in np.ndindex(16, 16):
                left, right = ([Fraction(float(v)) for v in vs] for vs in (x[i], y[:, j]))
                d[i, j] = float(model(left, right, Fraction(float(z[i, j])), rng))
            return d

        t = multiply(drop(a), drop(b), c)
        e = multiply(drop(t[:, :8].copy()), drop(b), t)
        e = multiply(drop(t[:, 8:].copy()), drop(b), e)
        assert out["t"].holds(t.ravel()).all()
        e = -(e * np.float32(0.5)) - (t.astype(np.float64) / 3.0).astype(np.float32)
        assert out["e"].holds(e.ravel()).all()
        far = e + 8 * out["e"].bound.max().astype(np.float32)
        assert not out["e"].holds(far.ravel()).any()
        # What tf32 drops is most of it: 2^-10 of t per product, 16 products.
        errors = [abs(Fraction(float(v)) - x) for v, x in zip(e.flat, out["e"].exact, strict=True)]
        assert max(errors) * 40 > max(out["e"].bound)


@pytest.mark.parametrize("type_", ["float32", "float64"])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div"])
def test_scalar_arithmetic_meets_its_bound(op: str, type_: str) -> None:
    rng = np.random.default_rng(13)
    ask = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}[op]
    count, worst = 300, 0.0
    real = [rng.standard_normal(count) * np.exp2(rng.integers(-9, 9, count)) for _ in range(2)]
    bounds = [np.abs(r) * np.exp2(-rng.uniform(2, 30, count)) * rng.integers(0, 2, count)
              for r in real]  # fmt: skip
    real = [r.astype(type_).astype(float) for r in real]
    x, y = (
        Reals(np.where(b == 0, r, 0), b, np.array([Fraction(float(v)) for v in r], dtype=object))
        for r, b in zip(real, bounds, strict=True)
    )
    result = arithmetic(op, x, y, type_)
    exact = result.rationals()
    for _ in range(6):
        # Computed operands somewhere within their bounds, at the ends more often.
        got = [(r + b * np.clip(rng.uniform(-1.5, 1.5, count), -1, 1) * 0.999).astype(type_)
               for r, b in zip(real, bounds, strict=True)]  # fmt: skip
        got = [np.where(b == 0, r.astype(type_), g) for r, b, g in
               zip(real, bounds, got, strict=True)]  # fmt: skip
        computed = ask(*got)
        for i in range(count):
            error = abs(Fraction(float(computed[i])) - exact[i])
            assert error <= Fraction(float(result.bound[i]))
            if result.bound[i]:
                worst = max(worst, float(error) / result.bound[i])
    assert worst > 0.9
    # Without errors it is IEEE.
    plain = (bounds[0] == 0) & (bounds[1] == 0)
    expected = ask(*(r[plain].astype(type_) for r in real))
    assert (result.bound[plain] == 0).all()
    assert (result.value[plain] == expected).all()


def _near(*numbers: tuple[float, float]) -> Reals:
    """Numbers with bounds."""
    value = np.array([v if not b else 0.0 for v, b in numbers])
    bound = np.array([b for _, b in numbers])
    centre = [Fraction(v) if math.isfinite(v) else None for v, _ in numbers]
    return Reals(value, bound, np.array(centre, dtype=object))


def test_scalar_arithmetic_with_infinities() -> None:
    x = _near((1, 0.5), (1, 0.5), (1, 0.5), (math.inf, 0), (1, math.inf), (1, 0.5))
    y = _near((math.inf, 0), (-math.inf, 0), (math.nan, 0), (2, 0.5), (math.nan, 0), (0.25, 0.5))
    added = arithmetic("add", x, y, "float32")
    expected = [math.inf, -math.inf, math.nan, math.inf, math.nan, 0]
    assert np.array_equal(added.value, expected, equal_nan=True)
    assert (added.bound[:5] == 0).all()
    assert 1 <= added.bound[5] < 1.001
    taken = arithmetic("sub", x, y, "float32")
    expected = [-math.inf, math.inf, math.nan, math.inf, math.nan, 0]
    assert np.array_equal(taken.value, expected, equal_nan=True)
    # The divisor may be zero in the last one; 1 * inf is not followed.
    assert arithmetic("div", x, y, "float32").unknown.tolist() == [1, 1, 0, 1, 0, 1]
    big = _near((3e38, 1e37))
    assert arithmetic("add", big, big, "float32").unknown.all()
    assert not arithmetic("add", big, big, "float64").unknown.any()
    assert convert(_near((1e300, 1.0)), "float32").unknown.all()
    assert convert(_near((1.0, 0.25)), "float32").bound[0] >= 0.25 + 1.25 * 2.0**-24


def test_comparisons_that_the_bound_decides() -> None:
    every = np.ones(1, dtype=bool)
    cases = [
        ((1, 0.25), (2, 0.25), ("ne", "lt", "le")),
        ((2, 0.25), (1, 0.25), ("ne", "gt", "ge")),
        ((1, 0.25), (math.nan, 0), ("ne",)),
        ((1, 0.25), (math.inf, 0), ("ne", "lt", "le")),
        ((1, 0.25), (-math.inf, 0), ("ne", "gt", "ge")),
        ((1, 0), (1, 0), ("eq", "le", "ge")),
    ]
    for x, y, true in cases:
        for op in ("eq", "ne", "lt", "le", "gt", "ge"):
            assert compare(op, _near(x), _near(y), every)[0] == (op in true), (x, y, op)
    # Touching intervals decide le and gt, or ge and lt.
    below, above = _near((1, 0.5)), _near((2, 0.5))
    assert compare("le", below, above, every)[0]
    assert not compare("gt", below, above, every)[0]
    assert compare("ge", above, below, every)[0]
    assert not compare("lt", above, below, every)[0]
    for op in ("eq", "ne", "lt", "ge"):
        with pytest.raises(Open, match="leaves a comparison"):
            compare(op, below, above, every)
    with pytest.raises(Open, match="may be anything"):
        compare("eq", _near((1, math.inf)), below, every)
    # Lanes that do not ask are not answered.
    compare("eq", below, above, ~every)


def test_casts_to_integers_that_the_bound_decides() -> None:
    every = np.ones(1, dtype=bool)
    assert integers(_near((2.5, 0.25)), 32, 0, every).tolist() == [2]
    assert integers(_near((-0.5, 0.25)), 32, 0, every).tolist() == [0]
    assert integers(_near((1e20, 1e10)), 64, 0, every).tolist() == [2**63 - 1]
    with pytest.raises(Open, match="leaves its cast to an integer open"):
        integers(_near((2.0, 0.25)), 32, 0, every)
    with pytest.raises(Open, match="may be anything"):
        integers(_near((2.0, math.inf)), 32, 0, every)
    assert integers(_near((2.0, math.inf)), 32, 0, ~every).tolist() == [0]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("if d[0] > 0.0f32 { }", "line 7: the bound of a value leaves a comparison (gt) open"),
        ("let n: int32 = int32(d[0] + 1.0f32);", "line 7: the bound of a value leaves its cast"),
        ("let b: bool = bool(d[0]);", "leaves a comparison (ne) open"),
        ("let b: bool = d[0] * 0.0f32 == 0.0f32;", "leaves a comparison (eq) open"),
        ("let b: bool = 1.0f32 / d[0] == 1.0f32;", "may be anything is compared (eq)"),
    ],
)
def test_open_questions_are_errors(statement: str, message: str) -> None:
    # 1/3 - 1/3 in f16, with 15 more products that cancel: 0 with a bound.
    text = f"""kernel k(a: float16[], d: float32[]) block(32, 1, 1) {{
      fragment x: a 16x16x16 f16; fragment y: b 16x16x16 f16; fragment z: accumulator 16x16x16 f32;
      load x (a 16x16x16 f16) from a[0] stride 0 row;
      load y (b 16x16x16 f16) from a[16] stride 0 col;
      z = muladd x, y, z (16x16x16 f16*f16+f32->f32);
      store z (accumulator 16x16x16 f32) to d[0] stride 16 row;
      {statement} }}"""
    a = np.concatenate([np.full(16, 1 / 3), np.tile([1 / 3, -1 / 3], 8)]).astype(np.float16)
    with pytest.raises(OracleError) as error:
        evaluate(parse(text), {"a": a, "d": np.zeros(256, np.float32)})
    assert message in str(error.value)


def test_equal_bounds_may_be_stored_onto_each_other() -> None:
    # All rows are the same value with the same bound; stride 0 stores them onto one.
    text = """kernel k(a: float16[], d: float32[]) block(32, 1, 1) {
      fragment x: a 16x16x16 f16; fragment y: b 16x16x16 f16; fragment z: accumulator 16x16x16 f32;
      load x (a 16x16x16 f16) from a[0] stride S row;
      load y (b 16x16x16 f16) from a[0] stride 1 col;
      z = muladd x, y, z (16x16x16 f16*f16+f32->f32);
      store z (accumulator 16x16x16 f32) to d[0] stride 0 row; }"""
    a = np.linspace(0.1, 0.7, 31).astype(np.float16)
    arguments = {"a": a, "d": np.zeros(16, np.float32)}
    assert evaluate(parse(text.replace("S", "0")), arguments).buffers["d"].bound.all()
    with pytest.raises(OracleError, match="different values at once"):
        evaluate(parse(text.replace("S", "1")), arguments)


_GEMM = """kernel gemm(a: float16[], b: float16[], c: float32[], n: int32) block(128, 1, 1) {
  fragment x: a 16x16x16 f16; fragment y: b 16x16x16 f16;
  let warp: int32 = thread_idx_x / 32;
  for j = 0 to n / 16 - 1 {
    fragment z: accumulator 16x16x16 f32;
    for k = 0 to n / 16 - 1 {
      load x (a 16x16x16 f16) from a[warp * 16 * n + k * 16] stride n row;
      load y (b 16x16x16 f16) from b[k * 16 * n + j * 16] stride n row;
      z = muladd x, y, z (16x16x16 f16*f16+f32->f32);
    }
    store z (accumulator 16x16x16 f32) to c[warp * 16 * n + j * 16] stride n row;
  }
}"""


def test_a_product_of_64_by_64() -> None:
    rng = np.random.default_rng(17)
    a, b = (rng.standard_normal((64, 64)).astype(np.float16) for _ in range(2))
    given = {"a": a.ravel(), "b": b.ravel(), "c": np.zeros(4096, np.float32), "n": 64}
    c = evaluate(parse(_GEMM), given).buffers["c"]
    got = np.zeros((64, 64), np.float32)
    for k in range(64):  # one product after the other, in float32
        got += a[:, k, None].astype(np.float32) * b[None, k].astype(np.float32)
    assert c.holds(got.ravel()).all()
    # One product of the 64 left out is seen in almost every element.
    less = got - a[:, 5, None].astype(np.float32) * b[None, 5].astype(np.float32)
    assert c.holds(less.ravel()).mean() < 0.01


@pytest.mark.parametrize("name", ["oracle", "exact"])
def test_the_oracle_knows_nothing_of_ptx(name: str) -> None:
    module = importlib.import_module(f"lowering.coopmat.{name}")
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    imported = {
        n.module if isinstance(n, ast.ImportFrom) else n.names[0].name
        for n in ast.walk(tree)
        if isinstance(n, ast.ImportFrom | ast.Import)
    }
    assert imported <= {
        "__future__", "collections.abc", "dataclasses", "exact", "fractions", "functools", "ir",
        "math", "numpy", "numpy.typing", "typing", "vocabulary",
    }  # fmt: skip

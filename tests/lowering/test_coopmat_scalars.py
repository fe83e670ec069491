"""Scalar statements of kernels: what the lowered text computes is what the oracle says, exactly."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import numpy as np
import pytest
from coopmat_kernels import agree, launch, lower
from coopmat_random import COMPARISONS, RandomKernel
from numpy.typing import NDArray

from lowering.coopmat.ir import INTRINSICS

Array = NDArray[Any]

LANES = 32
_ARITHMETIC = ("+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>")


def _integers(bits: int, seed: int) -> Array:
    """Extremes, small numbers, and random ones of every magnitude."""
    rng, half = random.Random(seed), 1 << bits - 1
    fixed = [0, 1, -1, 2, -2, 31, 32, 33, 63, 64, half - 1, -half, 1 - half, half - 2]
    more = [rng.randrange(-half, half) >> rng.randrange(bits) for _ in range(2 * LANES - 14)]
    return np.array(fixed + more, dtype=f"int{bits}")


def _floats(type_: str, seed: int) -> Array:
    """Specials, the ends of the format, and random numbers of every magnitude."""
    info = np.finfo(type_)
    rng = np.random.default_rng(seed)
    fixed = [
        0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, info.max, -info.max, info.tiny,
        info.smallest_subnormal, -info.smallest_subnormal, 1 + info.eps, 2**31, -(2**31), 2**31 - 1,
        2**63, -(2**63), 0.5, 1.5, -0.5, 2.5, 1 / 3, 2**24 + 1,
    ]  # fmt: skip
    wide = 60 if type_ == "float32" else 500
    more = rng.standard_normal(2 * LANES - len(fixed)) * 2.0 ** rng.integers(
        -wide, wide, 2 * LANES - len(fixed)
    )
    return np.array([*fixed, *more]).astype(type_)


def _threads(params: str, body: str, arguments: dict[str, Any], **options: Any) -> dict[str, Array]:
    """One block of 64 threads; ``i`` is the number of each."""
    text = f"kernel k({params}) {{ let i: int32 = thread_idx_x; {body} }}"
    return agree(text, arguments, block=(2 * LANES, 1, 1), **options)


# --- operators ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("op", [*_ARITHMETIC, *COMPARISONS])
def test_binary_integers(bits: int, op: str) -> None:
    x = _integers(bits, 1)
    for seed in range(2, 7):
        y = np.random.default_rng(seed).permutation(_integers(bits, seed))
        if op in "/%":
            y = np.where(y == 0, 3, y)
        value = f"x[i] {op} y[i]"
        if op in COMPARISONS:
            value = f"int{bits}({value})"
        body = f"out[i] = {value};"
        out = np.zeros(2 * LANES, x.dtype)
        t = f"int{bits}[]"
        _threads(f"x: {t}, y: {t}, out: {t}", body, {"x": x, "y": y.astype(x.dtype), "out": out})


@pytest.mark.parametrize("bits", [32, 64])
def test_division_of_the_least_number(bits: int) -> None:
    """It wraps: the quotient of the least number and -1 is the least number, the rest is 0."""
    least = -(1 << bits - 1)
    t = f"int{bits}"
    x, y = np.full(64, least, t), np.full(64, -1, t)
    body = "out[i] = x[i] / y[i]; rest[i] = x[i] % y[i];"
    found = _threads(
        f"x: {t}[], y: {t}[], out: {t}[], rest: {t}[]", body,
        {"x": x, "y": y, "out": np.zeros(64, t), "rest": np.ones(64, t)},
    )  # fmt: skip
    assert set(found["out"].tolist()) == {least}
    assert set(found["rest"].tolist()) == {0}


@pytest.mark.parametrize("bits", [32, 64])
def test_unary_integers(bits: int) -> None:
    t = f"int{bits}"
    _threads(
        f"x: {t}[], out: {t}[]", "out[i] = -x[i]; out[i + 64] = ~x[i]; out[i + 128] = - - ~-x[i];",
        {"x": _integers(bits, 9), "out": np.zeros(192, t)},
    )  # fmt: skip


@pytest.mark.parametrize("type_", ["float32", "float64"])
def test_floats(type_: str) -> None:
    """One rounding for each operation, no contraction; comparisons with NaN are false but !=."""
    x = _floats(type_, 1)
    body = "".join(f"out[i + {64 * n}] = x[i] {op} y[i];" for n, op in enumerate("+-*/"))
    body += "out[i + 256] = x[i] * y[i] + x[i]; out[i + 320] = -x[i];"
    body += "".join(
        f"flag[i + {64 * n}] = int32(x[i] {op} y[i]);" for n, op in enumerate(COMPARISONS)
    )
    for seed in range(2, 6):
        y = np.random.default_rng(seed).permutation(_floats(type_, seed))
        t = f"{type_}[]"
        _threads(
            f"x: {t}, y: {t}, out: {t}, flag: int32[]", body,
            {"x": x, "y": y, "out": np.zeros(384, type_), "flag": np.zeros(384, np.int32)},
        )  # fmt: skip


def test_negation_keeps_the_sign_of_zero_and_products_are_not_fused() -> None:
    """What the oracle leaves open, zeros of both signs, and a case where fma differs."""
    text = """kernel k(x: float32[], out: float32[]) block(1, 1, 1) {
  out[0] = -x[0]; out[1] = x[1] * x[1] - x[2]; out[2] = 0.0 - x[0];
}"""
    e = np.float32(2.0**-12)
    x = np.array([0, 1 + e, 1 + 2 * e], np.float32)
    out = np.ones(3, np.float32)
    assert launch(lower(text), {"x": x, "out": out}, block=1).clean
    assert np.signbit(out).tolist() == [True, False, False]
    assert out[1] == 0  # fma leaves 2**-24


def test_booleans() -> None:
    body = "let p: bool = x[i] < 2; let q: bool = y[i] < 2; let mut r: bool = p; r = !r;"
    values = ["p && q", "p || q", "!p", "p == q", "p != q", "r", "true && p", "p || false",
              "!(p && !q)", "p && r || q", "bool(x[i])", "bool(int64(y[i]))",
              "p == true"]  # fmt: skip
    body += "".join(f"out[i * 16 + {n}] = int32({v});" for n, v in enumerate(values))
    x = np.arange(64, dtype=np.int32)
    arguments = {"x": x % 4, "y": x // 4 % 4, "out": np.zeros(1024, np.int32)}
    _threads("x: int32[], y: int32[], out: int32[]", body, arguments)


CASTS = list(itertools.product(["int32", "int64", "float32", "float64"], repeat=2))


@pytest.mark.parametrize(("have", "want"), CASTS)
def test_casts(have: str, want: str) -> None:
    x = _floats(have, 3) if have.startswith("float") else _integers(int(have[3:]), 3)
    body = f"out[i] = {want}(x[i]); flag[i] = int32(bool(x[i])); out[i + 64] = {want}(bool(x[i]));"
    _threads(f"x: {have}[], out: {want}[], flag: int32[]", body,
             {"x": x, "out": np.zeros(128, want), "flag": np.zeros(64, np.int32)})  # fmt: skip


def test_constants() -> None:
    body = """i32[0] = 2147483647; i32[1] = -2147483647 - 1; i64[0] = 9223372036854775807i64;
      i64[1] = -9223372036854775807i64 - 1i64; f32[0] = 0.1; f32[1] = 1e38f32; f32[2] = 1e39f32;
      f32[3] = 1e-46f32; f64[0] = 0.1f64; f64[1] = 1e308f64; f32[4] = 0.1 + 0.2;
      f32[5] = 16777217.0;
      i32[2] = 7 / 2 - 7 % 4 * (1 << 30) >> 2; i32[3] = int32(3.99) + int32(-3.99f64);"""
    arguments = {"i32": np.zeros(4, np.int32), "i64": np.zeros(2, np.int64),
                 "f32": np.zeros(6, np.float32), "f64": np.zeros(2)}  # fmt: skip
    params = "i32: int32[], i64: int64[], f32: float32[], f64: float64[]"
    text = f"kernel k({params}) {{ {body} }}"
    found = agree(text, arguments, block=(1, 1, 1))
    assert found["i32"].tolist()[:2] == [2**31 - 1, -(2**31)]
    assert found["f32"].tolist()[:3] == [np.float32(0.1), np.float32(1e38), math.inf]


@pytest.mark.parametrize(("have", "want"), CASTS)
def test_casts_of_constants(have: str, want: str) -> None:
    """A constant has the precision of its own type before it is cast."""
    literals = {
        "int32": ["0", "7", "2147483647", "16777217"],
        "int64": ["0i64", "4294967303i64", "9007199254740993i64"],
        "float32": ["0.0", "0.1", "16777217.0", "2.5", "3e9f32", "1e38f32"],
        "float64": ["0.1f64", "16777217.0f64", "-2.5f64", "1e300f64", "3e9f64"],
    }[have]
    body = "".join(f"out[{n}] = {want}({v});" for n, v in enumerate(literals))
    body += "".join(f"let p{n}: bool = bool({v}); if p{n} {{ out[{n} + 8] = {want}(true); }}"
                    for n, v in enumerate(literals))  # fmt: skip
    agree(f"kernel k(out: {want}[]) {{ {body} }}", {"out": np.zeros(16, want)}, block=(1, 1, 1))


def test_the_least_numbers_can_be_written() -> None:
    text = (
        "kernel k(x: int32[], y: int64[]) { x[0] = -2147483648; y[0] = -9223372036854775808i64; }"
    )
    found = agree(text, {"x": np.zeros(1, np.int32), "y": np.zeros(1, np.int64)}, block=(1, 1, 1))
    assert (found["x"][0], found["y"][0]) == (-(2**31), -(2**63))


def test_intrinsics() -> None:
    """In a grid and a block of three dimensions."""
    values = "".join(f"out[at * 12 + {n}] = {name};" for n, name in enumerate(INTRINSICS))
    text = f"""kernel k(out: int32[]) {{
  let block: int32 = block_idx_x + grid_dim_x * (block_idx_y + grid_dim_y * block_idx_z);
  let thread: int32 = thread_idx_x + block_dim_x * (thread_idx_y + block_dim_y * thread_idx_z);
  let at: int32 = block * block_dim_x * block_dim_y * block_dim_z + thread;
  {values}
}}"""
    agree(text, {"out": np.zeros(12 * 12 * 40, np.int32)}, grid=(2, 3, 2), block=(4, 2, 5))


# --- statements -----------------------------------------------------------------------------------


def _one(body: str, **scalars: Any) -> list[int]:
    """What one thread leaves in ``out``; ``x`` has 10, 11, ..."""
    params = "".join(f", {n}: int32" for n in scalars)
    text = f"kernel k(out: int32[], x: int32[]{params}) {{ {body} }}"
    arguments = {"out": np.zeros(8, np.int32), "x": np.arange(10, 18, dtype=np.int32), **scalars}
    return agree(text, arguments, block=(1, 1, 1))["out"].tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 3, [4, 6]), (3, 3, [1, 3]), (4, 3, [0, 0]), (-2, 1, [4, -2]),
        (2**31 - 3, 2**31 - 1, [3, 2147483642]), (2**31 - 1, 2**31 - 1, [1, 2**31 - 1]),
        (-(2**31), 2 - 2**31, [3, -2147483645]), (2**31 - 1, -(2**31), [0, 0]),
    ],
)  # fmt: skip
def test_for(low: int, high: int, expected: list[int]) -> None:
    """Both bounds are included; the greatest number is no endless loop (sums wrap)."""
    body = (
        "let mut s: int32 = 0; for i = low to high { s = s + i; out[0] = out[0] + 1; } out[1] = s;"
    )
    assert _one(body, low=low, high=high)[:2] == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # constant bounds, also those of the type
        ("for i = 2147483646 to 2147483647 { out[0] = out[0] + 1; }", [2]),
        ("for i = 5 to 4 { out[0] = 1; }", [0]),
        # the bound is computed once
        ("let mut n: int32 = 3; for i = 1 to n { n = n + 1; out[0] = i; }", [3]),
        ("for i = 1 to x[0] - 7 { out[0] = out[0] + i; }", [6]),
        # what a loop counts cannot be seen behind it, a variable of its name can
        ("let i: int32 = 7; for i = 0 to 2 { out[1] = i; } out[0] = i;", [7, 2]),
        ("for i = 0 to 1 { for i = 5 to 6 { out[0] = out[0] + i; } out[1] = out[1] + i; }",
         [22, 1]),
        # a variable of the body is a new one on every iteration
        ("for i = 0 to 3 { let mut v: int32 = 1; v = v + i; out[i] = v; }", [1, 2, 3, 4]),
        ("for i = 0 to 3 { let v: int32 = i * 2; if i == 2 { out[0] = v; } out[1] = v; }", [4, 6]),
        # values are not names: what was read stays
        ("let mut a: int32 = 1; let b: int32 = a; a = 5; out[0] = a; out[1] = b;", [5, 1]),
        ("let mut a: int32 = 1; let mut b: int32 = 2; let t: int32 = a; a = b; b = t; "
         "out[0] = a; out[1] = b;", [2, 1]),
        ("let mut a: int32 = 1; let b: int32 = a + 0; a = a + a; out[0] = a; out[1] = b;", [2, 1]),
        ("let mut a: int32 = 3; a = a - a * a; out[0] = a;", [-6]),
        ("let mut p: bool = true; let q: bool = p; p = false; if q { out[0] = 1; } "
         "if p { out[1] = 1; }", [1, 0]),
        ("let a: int32 = x[0]; x[0] = 99; out[0] = a; out[1] = x[0];", [10, 99]),
        ("let mut i: int32 = 0; for k = 1 to 3 { let j: int32 = i; i = i + k; out[k] = j; } "
         "out[0] = i;", [6, 0, 1, 3]),
        ("let n: int32 = 4; { let n: int32 = n + 1; out[0] = n; } out[1] = n;", [5, 4]),
        ("let mut i: int32 = 0; while i < 5 { i = i + 2; } out[0] = i;", [6]),
        ("let mut i: int32 = 9; while i < 5 { out[1] = 1; i = i + 2; } out[0] = i;", [9, 0]),
        ("let mut i: int32 = 0; while x[i] < 14 { i = i + 1; } out[0] = i;", [4]),
        ("if x[0] == 10 { out[0] = 1; } else { out[0] = 2; }", [1]),
        ("if x[0] != 10 { out[0] = 1; } else { if x[1] == 11 { out[0] = 3; } else { out[0] = 4; }"
         " }", [3]),
        ("if true { out[0] = 1; } if false { out[1] = 1; } else { out[2] = 1; }", [1, 0, 1]),
        ("while false { out[0] = 1; }", [0]),
        # the end in the middle
        ("out[0] = 1; return; out[1] = 1;", [1, 0]),
        ("for i = 0 to 5 { out[0] = i; if i == 3 { return; } } out[1] = 1;", [3, 0]),
        ("let mut i: int32 = 0; while true { i = i + 1; out[0] = i; if i == 4 { return; } }", [4]),
        ("if x[0] == 10 { return; } else { out[0] = 1; } out[1] = 1;", [0, 0]),
        ("{ { return; } } out[0] = 1;", [0]),
        ("{ } if x[0] == 10 { } for i = 0 to 2 { } out[0] = 1;", [1]),
        ("out[0] = length(x) * 10 + length(out);", [88]),
    ],
)  # fmt: skip
def test_statements(body: str, expected: list[int]) -> None:
    found = _one(body)
    assert found[: len(expected)] == expected


def test_lanes_go_their_own_ways() -> None:
    """Loops, branches and ends that differ from lane to lane."""
    body = """
  let mut v: int32 = x[i];
  let mut n: int32 = 0;
  while v != 1 && n < 50 {
    if v % 2 == 0 { v = v / 2; } else { v = 3 * v + 1; }
    n = n + 1;
  }
  out[i] = n;
  if n % 3 == 0 { return; }
  for k = 1 to n % 7 { out[i] = out[i] + k * i; if k == 4 { return; } }
  out[i] = -out[i];"""
    _threads("x: int32[], out: int32[]", body,
             {"x": np.arange(1, 65, dtype=np.int32), "out": np.zeros(64, np.int32)})  # fmt: skip


@pytest.mark.parametrize(
    "condition",
    [
        "i < length(x) && x[i] > 3", "i >= length(x) || x[i] > 3",
        "i < length(x) && (x[i] > 3 && x[x[i] - 4] != 0)", "!(i >= length(x) || x[i] < 2)",
        "i < length(x) && x[i] > 3 || i >= length(x) && y[i - length(x)] > 2",
        "(i < length(x) && x[i] > 3) == (i % 2 == 0)",
    ],
)  # fmt: skip
def test_short_circuits(condition: str) -> None:
    """The right side is not evaluated where the left one decides: it would be out of bounds."""
    x = np.arange(64, dtype=np.int32)
    arguments = {"x": x[:10] % 7, "y": x % 5, "out": np.zeros(128, np.int32)}
    body = f"if {condition} {{ out[i] = 1; }} let p: bool = {condition}; out[i + 64] = int32(p);"
    _threads("x: int32[], y: int32[], out: int32[]", body, arguments)


# --- arrays ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", ["int32", "int64", "float32", "float64"])
def test_arrays(type_: str) -> None:
    """Local, constant, shared and dynamic ones; each thread reads what another has stored."""
    text = f"""kernel k(x: {type_}[], out: {type_}[]) {{
  shared before: uint8[3];
  shared tile: {type_}[64];
  shared open: {type_}[];
  local own: {type_}[5];
  constant table: {type_}[] = {{3, -4, 5}};
  let i: int32 = thread_idx_x;
  own[i % 5] = x[i];
  own[(i + 1) % 5] = x[63 - i];
  tile[i] = own[i % 5] + table[i % 3];
  open[63 - i] = own[(i + 1) % 5] * table[(i + 1) % 3];
  barrier;
  out[i] = tile[(i + 17) % 64] - open[(i * 5) % 64];
  let n: int32 = length(tile) + length(open) * 1000;
  barrier warp;
  out[i + 64] = {type_}(n);
}}"""
    octets = np.dtype(type_).itemsize
    x = np.arange(64).astype(type_) * 3 - 40
    text = text.replace(" + length(open) * 1000", "")  # the oracle has no length of it
    lowered_arguments = {"x": x, "out": np.zeros(128, type_)}
    agree(text.replace("length(tile)", "64"), lowered_arguments, block=(64, 1, 1), dynamic=64,
          smem=64 * octets)  # fmt: skip


def test_lengths_of_arrays() -> None:
    """Of parameters, shared arrays, constants, and of the dynamic array by what a launch gives."""
    text = """kernel k(x: float64[], out: int32[]) {
  shared tile: int64[7];
  shared open: float64[];
  constant table: int32[] = {1, 2, 3};
  out[0] = length(x); out[1] = length(tile); out[2] = length(open); out[3] = length(table);
}"""
    lowered = lower(text, block=(1, 1, 1))
    for count in (0, 1, 100):
        out = np.zeros(4, np.int32)
        report = launch(lowered, {"x": np.zeros(9), "out": out}, block=1, smem=8 * count)
        assert report.clean, report.findings
        assert out.tolist() == [9, 7, count, 3]
    for element, per_octet in (("uint8", 1), ("uint4", 2), ("bit", 8)):
        lowered = lower(f"kernel k(out: int32[]) {{ shared open: {element}[]; "
                        "out[0] = length(open); }}".replace("}}", "}"))  # fmt: skip
        out = np.zeros(1, np.int32)
        assert launch(lowered, {"out": out}, block=1, smem=48).clean
        assert out[0] == 48 * per_octet


def test_scalar_parameters() -> None:
    body = """if flag { out[0] = f64 * 2.0f64; } out[1] = float64(i32) + float64(i64);
      out[2] = float64(f32); out[3] = float64(i64 >> 40i64);"""
    params = "out: float64[], flag: bool, i32: int32, i64: int64, f32: float32, f64: float64"
    for flag in (False, True):
        agree(f"kernel k({params}) {{ {body} }}",
              {"out": np.zeros(4), "flag": flag, "i32": -(2**31), "i64": 2**62 + 1,
               "f32": 0.1, "f64": 1e300}, block=(1, 1, 1))  # fmt: skip


def test_64_bit_indices() -> None:
    body = (
        "let at: int64 = int64(i); out[at] = x[63i64 - at]; out[64i64 + at] = x[at * 5i64 & 63i64];"
    )
    arguments = {"x": np.arange(64, dtype=np.int64) - 40, "out": np.zeros(128, np.int64)}
    _threads("x: int64[], out: int64[]", body, arguments)


# --- random kernels -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seeds", [pytest.param(range(25), id="some"),
              pytest.param(range(100, 500), marks=pytest.mark.slow, id="many")]
)  # fmt: skip
def test_random_kernels(seeds: range) -> None:
    for seed in seeds:
        made = RandomKernel(seed)
        body = " ".join(made.statement(0) for _ in range(8))
        x = np.random.default_rng(seed).integers(-(2**31), 2**31, 64).astype(np.int32)
        x >>= np.arange(64, dtype=np.int32) % 32
        arguments = {"x": x, "out": np.zeros(512, np.int32), "n": seed}
        _threads("x: int32[], out: int32[], n: int32", body, arguments)

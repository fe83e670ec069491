"""Facts of expressions and statements: exact ones for index code, and none that a thread refutes.

The second half runs random kernels thread by thread, with an interpreter of its own, and holds
every value of every thread against the facts.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lowering.coopmat import analysis, parse, ranges
from lowering.coopmat.analysis import (
    Env,
    Fact,
    Launch,
    Spread,
    after,
    assume,
    entry_env,
    fact_of,
    join,
    join_env,
    loop_env,
)
from lowering.coopmat.ir import (
    Assign,
    Binary,
    Block,
    Cast,
    Const,
    Element,
    Expression,
    For,
    If,
    Intrinsic,
    Kernel,
    Length,
    Let,
    Param,
    Return,
    Shared,
    Statement,
    Store,
    Unary,
    Var,
    While,
)
from lowering.coopmat.ranges import Range, exactly, limits, span
from lowering.coopmat.walk import expressions, subexpressions

HEAD = "kernel k(a: int32[], h: float16[], u: uint8[], n: int32, m: int32, w: int64, x: float32)"


def launch_of(kernel: Kernel) -> Launch:
    return Launch(
        kernel.block, {p.name: p for p in kernel.params}, {s.name: s for s in kernel.shared}
    )


def at_end(body: str, block: str = "block(128, 1, 1)") -> Env:
    """What is known after the statements of a kernel, its own variables included."""
    kernel = parse(f"{HEAD} {block} {{ {body} }}")
    launch = launch_of(kernel)
    env = entry_env(kernel, launch)
    for s in kernel.body.statements:
        env = after(s, env, launch)
    return env


def value(text: str, block: str = "block(128, 1, 1)", type_: str = "int32") -> Fact:
    """The fact of an expression."""
    return at_end(f"let v: {type_} = {text};", block)["v"]


def in_body(text: str, block: str = "block(128, 1, 1)") -> Env:
    """What is known at the end of the body of the last statement, which is a loop or a branch."""
    kernel = parse(f"{HEAD} {block} {{ {text} }}")
    launch = launch_of(kernel)
    env = entry_env(kernel, launch)
    *before, last = kernel.body.statements
    for s in before:
        env = after(s, env, launch)
    if isinstance(last, If):
        env, body = assume(last.condition, True, env, launch), last.then
    else:
        assert isinstance(last, For | While)
        env, body = loop_env(last, env, launch), last.body
    for s in body.statements:
        env = after(s, env, launch)
    return env


def shown(fact: Fact) -> tuple[int, int, int, int, str]:
    return fact.low, fact.high, fact.modulus, fact.residue, fact.spread.name


INT = (-(2**31), 2**31 - 1)


# --- expressions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # 128 threads in a row are 4 warps
        ("thread_idx_x / 32", (0, 3, 1, 0, "WARP")),
        ("thread_idx_x >> 5", (0, 3, 1, 0, "WARP")),
        ("thread_idx_x & 96", (0, 96, 32, 0, "WARP")),
        ("thread_idx_x / 64 * 8 + 3", (3, 11, 8, 3, "WARP")),
        ("thread_idx_x", (0, 127, 1, 0, "LANE")),
        ("thread_idx_x % 32", (0, 31, 1, 0, "LANE")),
        ("thread_idx_x / 128", (0, 0, 0, 0, "BLOCK")),
        ("thread_idx_x - thread_idx_x", (0, 0, 0, 0, "BLOCK")),
        ("thread_idx_x * 0", (0, 0, 0, 0, "BLOCK")),
        ("thread_idx_y + block_dim_y", (1, 1, 0, 1, "BLOCK")),
        # pairs of warps take 32 rows each: 0 or 32, and 64 * (0 .. 65534)
        ("thread_idx_x / 32 / 2 * 32 + block_idx_y * 64", (0, 64 * 65534 + 32, 32, 0, "WARP")),
        # no number of rows is known, so that products wrap: only powers of two survive
        ("n * 3", (*INT, 1, 0, "BLOCK")),
        ("n * 12", (INT[0], INT[1] - 3, 4, 0, "BLOCK")),
        ("n / 16 * 16", (INT[0], INT[1] - 15, 16, 0, "BLOCK")),
        ("n / 3 * 3", (-(2**31) + 2, 2**31 - 2, 3, 0, "BLOCK")),
        ("n << 3", (INT[0], INT[1] - 7, 8, 0, "BLOCK")),
        ("n << 32", (0, 0, 0, 0, "BLOCK")),
        ("n >> 40", (-1, 0, 1, 0, "BLOCK")),
        ("n & 15", (0, 15, 1, 0, "BLOCK")),
        ("n & -16", (INT[0], INT[1] - 15, 16, 0, "BLOCK")),
        ("n * 16 | 3", (INT[0] + 3, INT[1] - 12, 16, 3, "BLOCK")),
        ("n * 16 ^ 5", (INT[0] + 5, INT[1] - 10, 16, 5, "BLOCK")),
        ("-(n * 16 + 1)", (INT[0] + 15, INT[1], 16, 15, "BLOCK")),
        ("n % 16", (-15, 15, 1, 0, "BLOCK")),
        ("n * 16 % 48", (-32, 32, 16, 0, "BLOCK")),
        ("n / m", (*INT, 1, 0, "BLOCK")),  # m may be 0
        ("length(h) / 16", (-(2**27), 2**27 - 1, 1, 0, "BLOCK")),
        ("a[0]", (*INT, 1, 0, "OPEN")),
        ("u[0] * 16", (0, 255 * 16, 16, 0, "OPEN")),
        # 2147483647 + 1 wraps once for sure
        ("2147483647 + 1", (INT[0], INT[0], 0, INT[0], "BLOCK")),
        ("(n & 3) + 2147483644 + 4", (INT[0], INT[0] + 3, 1, 0, "BLOCK")),
        ("-7 / 2", (-3, -3, 0, -3, "BLOCK")),
        ("-7 % 2", (-1, -1, 0, -1, "BLOCK")),
        ("-7 >> 1", (-4, -4, 0, -4, "BLOCK")),
    ],
)
def test_value(text: str, expected: tuple[int, int, int, int, str]) -> None:
    assert shown(value(text)) == expected


def test_a_block_of_two_rows_of_warps() -> None:
    # x runs fastest: a warp of (8, 4, 1) is the whole block, one of (32, 4, 1) is one y
    assert value("thread_idx_y", "block(8, 4, 1)").spread is Spread.LANE
    assert shown(value("thread_idx_y * 16", "block(32, 4, 1)")) == (0, 48, 16, 0, "WARP")
    assert value("(thread_idx_x + thread_idx_y * 16) / 32", "block(16, 4, 1)").uniform
    assert value("thread_idx_z", "block(16, 2, 3)").spread is Spread.WARP


@pytest.mark.parametrize(
    ("text", "spread"),
    [
        ("thread_idx_x", Spread.LANE),
        ("thread_idx_y", Spread.OPEN),
        ("thread_idx_z", Spread.OPEN),
        ("thread_idx_x / 32", Spread.OPEN),
        ("thread_idx_x / 16", Spread.LANE),
        ("thread_idx_x >> 5", Spread.OPEN),
        ("thread_idx_x >> 4", Spread.LANE),
        ("thread_idx_x & 96", Spread.OPEN),
        ("96 & thread_idx_x", Spread.OPEN),
        ("thread_idx_x & 97", Spread.LANE),
        ("thread_idx_x & 0", Spread.BLOCK),
        ("thread_idx_x * 0", Spread.BLOCK),
        ("thread_idx_x + n", Spread.LANE),
        ("thread_idx_y * n", Spread.OPEN),
        ("block_idx_x * block_dim_x", Spread.BLOCK),
    ],
)
def test_an_unknown_block(text: str, spread: Spread) -> None:
    assert value(text, "").spread is spread


def test_limits_of_an_unknown_block() -> None:
    # PTX ISA, "Special Registers": at most 1024 x 1024 x 64, and 1024 threads in all
    bounds = {name: (value(name, "").low, value(name, "").high) for name in INTRINSIC_BOUNDS}
    assert bounds == INTRINSIC_BOUNDS
    assert value("thread_idx_x", "").lanes is None


INTRINSIC_BOUNDS = {
    "thread_idx_x": (0, 1023), "thread_idx_y": (0, 1023), "thread_idx_z": (0, 63),
    "block_dim_x": (1, 1024), "block_dim_y": (1, 1024), "block_dim_z": (1, 64),
    "block_idx_x": (0, 2**31 - 2), "block_idx_y": (0, 65534), "block_idx_z": (0, 65534),
    "grid_dim_x": (1, 2**31 - 1), "grid_dim_y": (1, 65535), "grid_dim_z": (1, 65535),
}  # fmt: skip


def test_a_block_of_too_many_threads() -> None:
    with pytest.raises(ValueError, match="at most 1024 threads, not 2048"):
        value("thread_idx_x", "block(64, 32, 1)")


def test_lanes() -> None:
    fact = value("block_idx_y * 128 + thread_idx_x * 2")
    assert fact.lanes is not None and fact.base is not None
    assert fact.lanes.tolist() == list(range(0, 256, 2))
    assert fact.base == Range(0, 65534 * 128, 128, 0)
    assert (fact.low, fact.high, fact.modulus) == (0, 65534 * 128 + 254, 2)
    # the block's part is a multiple of 128, so that the warp is seen through it
    assert shown(value("(block_idx_y * 128 + thread_idx_x) / 32"))[2:] == (1, 0, "WARP")
    assert shown(value("(block_idx_y * 128 + thread_idx_x) % 32")) == (0, 31, 1, 0, "LANE")
    assert shown(value("(block_idx_y * 128 + thread_idx_x) & -32"))[2:] == (32, 0, "WARP")
    assert shown(value("(block_idx_y * 128 | thread_idx_x) >> 5"))[4] == "WARP"
    # a product with the greatest grid wraps: a negative quotient is rounded up, a shift is not
    assert value("(block_idx_x * 128 + thread_idx_x) / 32").spread is Spread.OPEN
    assert value("(block_idx_x * 128 + thread_idx_x) >> 5").spread is Spread.WARP
    # 100 threads of a block are no whole warps
    assert value("(block_idx_y * 100 + thread_idx_x) / 32").spread is Spread.OPEN


def test_comparisons_of_threads_are_exact() -> None:
    fact = value("thread_idx_x < 64 && thread_idx_x >= 32", type_="bool")
    assert fact.spread is Spread.WARP
    values = fact.values()
    assert values is not None and values.tolist() == [int(32 <= t < 64) for t in range(128)]
    assert shown(value("thread_idx_x < 128", type_="bool")) == (1, 1, 0, 1, "BLOCK")
    assert shown(value("n * 16 == 8", type_="bool")) == (0, 0, 0, 0, "BLOCK")
    assert shown(value("!(n < m)", type_="bool")) == (0, 1, 1, 0, "BLOCK")
    assert value("thread_idx_x < n", type_="bool").spread is Spread.LANE


def test_casts() -> None:
    assert shown(value("int64(n) * 12", type_="int64")) == (
        12 * INT[0], 12 * INT[1], 12, 0, "BLOCK",
    )  # fmt: skip
    assert shown(value("int32(w * 12i64)")) == (INT[0], INT[1] - 3, 4, 0, "BLOCK")
    # n + thread_idx_x may wrap for some threads only, block_idx_y + thread_idx_x cannot
    assert value("int64(n + thread_idx_x)", type_="int64").lanes is None
    assert value("int64(block_idx_y + thread_idx_x)", type_="int64").lanes is not None
    fact = value("int64(thread_idx_x / 32)", type_="int64")
    assert (fact.type, fact.spread, fact.high) == ("int64", Spread.WARP, 3)
    assert value("bool(thread_idx_x / 32)", type_="bool").spread is Spread.WARP
    assert value("float32(thread_idx_x)", type_="float32").spread is Spread.LANE
    assert shown(value("int32(x)")) == (*INT, 1, 0, "BLOCK")
    assert value("x < 1.0", type_="bool").spread is Spread.BLOCK


def test_names_and_buffers_must_be_known() -> None:
    launch = Launch(None, {}, {"s": Shared("s", "int8", 4)})
    assert shown(fact_of(Element("s", Const(0)), {}, launch)) == (-128, 127, 1, 0, "OPEN")
    with pytest.raises(KeyError):
        fact_of(Var("n"), {}, launch)
    with pytest.raises(KeyError):
        fact_of(Element("a", Const(0)), {}, launch)


# --- statements -----------------------------------------------------------------------------------


def test_a_condition_tells_a_congruence() -> None:
    assert shown(in_body("if n % 16 == 0 { }")["n"]) == (INT[0], INT[1] - 15, 16, 0, "BLOCK")
    assert shown(in_body("if n & 15 == 4 { }")["n"])[2:4] == (16, 4)
    assert shown(in_body("if n % 16 == 3 { }")["n"]) == (3, 2**31 - 13, 16, 3, "BLOCK")
    assert shown(in_body("if n % 16 == -3 { }")["n"])[1:4] == (-3, 16, 13)
    assert shown(in_body("if n + 1 == 17 { }")["n"])[:2] == (16, 16)
    both = in_body("if n % 16 == 0 && n >= 16 && n < 100 && !(n % 3 != 0) { }")["n"]
    assert shown(both) == (48, 96, 48, 0, "BLOCK")
    either = in_body("if n == 8 || n == 24 { }")["n"]
    assert shown(either) == (8, 24, 16, 8, "BLOCK")
    assert shown(in_body("if n % m == 0 { }")["n"])[2] == 1
    # a sum that may wrap tells nothing of the size, but powers of two remain
    assert shown(in_body("if (n + 8) % 16 == 0 { }")["n"])[2:4] == (16, 8)
    assert shown(in_body("if (n + 8) % 12 == 0 { }")["n"])[2:4] == (4, 0)
    assert shown(in_body("if n + 8 < 16 { }")["n"])[:2] == INT


def test_a_return_leaves_the_rest_of_the_condition() -> None:
    n = at_end("if n % 16 != 0 || n <= 0 { return; }")["n"]
    assert shown(n) == (16, 2**31 - 16, 16, 0, "BLOCK")
    assert shown(at_end("if n < 4 { if m == 0 { return; } } ")["n"])[:2] == INT
    assert shown(at_end("if n > 4 { return; } else { return; }")["n"])[:2] == INT


def test_a_branch_joins() -> None:
    assert shown(at_end("let mut r: int32 = 4; if n < m { r = 20; }")["r"]) == (
        4, 20, 16, 4, "BLOCK",
    )  # fmt: skip
    assert at_end("let mut r: int32 = 4; if a[0] < m { r = 20; }")["r"].spread is Spread.OPEN
    lane = at_end("let mut r: int32 = n; if thread_idx_x < m { r = m; }")["r"]
    assert (lane.spread, lane.lanes) == (Spread.LANE, None)
    # a choice that is known of every thread
    warp = at_end("let mut r: int32 = 0; if thread_idx_x / 32 < 2 { r = 16; }")["r"]
    assert shown(warp) == (0, 16, 16, 0, "WARP")
    values = warp.values()
    assert values is not None and values.tolist() == [16] * 64 + [0] * 64
    # what threads add is the same on both sides, U is not, and not all threads are on one side
    text = "let mut r: int32 = thread_idx_x + n; if {} < m {{ r = thread_idx_x + m; }}"
    assert at_end(text.format("a[0]"))["r"].lanes is None
    assert at_end(text.format("n"))["r"].lanes is not None
    assert at_end("let mut r: int32 = 0; if false { r = thread_idx_x; }")["r"].high == 0
    # the same value on both sides does not depend on the side
    assert at_end("let mut r: int32 = 0; if a[0] < m { r = 1; } else { r = 1; }")["r"].low == 1


def test_names_end_with_their_block() -> None:
    env = at_end("let r: int32 = 1; if n < m { let r: int64 = 2i64; let s: int32 = 3; }")
    assert env["r"].low == 1 and "s" not in env
    assert at_end("let mut r: int32 = 1; { r = 5; let mut r: int32 = 2; r = 3; }")["r"].low == 5
    env = at_end("let i: int32 = 9; for i = 0 to 3 { }")
    assert env["i"].low == 9
    assert "j" not in at_end("for j = 0 to 3 { }")


def test_loops() -> None:
    body = in_body("for i = 0 to n / 16 - 1 { let o: int32 = i * 16 * 64; }")
    assert shown(body["i"]) == (0, 2**27 - 2, 1, 0, "BLOCK")
    assert shown(body["o"])[2:] == (1024, 0, "BLOCK")
    k = at_end("let mut k: int32 = 0; while k < n { k = k + 16; }")["k"]
    assert shown(k)[2:] == (16, 0, "BLOCK")
    k = at_end("let mut k: int32 = 8; while k < 1000 { k = k + 16; }")["k"]
    assert shown(k) == (1000, 1000, 0, 1000, "BLOCK")
    inside = in_body("let mut k: int32 = 8; while k < 1000 { let c: int32 = k; k = k + 16; }")
    assert shown(inside["c"]) == (8, 984, 16, 8, "BLOCK")
    assert shown(in_body("for i = 5 to 5 { }")["i"]) == (5, 5, 0, 5, "BLOCK")
    assert shown(in_body("for i = 5 to 4 { }")["i"])[:2] == INT  # never entered
    assert in_body("for i = 0 to thread_idx_x { }")["i"].spread is Spread.LANE
    assert in_body("for i = thread_idx_x / 32 to 7 { }")["i"].spread is Spread.WARP


def test_loops_keep_what_threads_add() -> None:
    env = at_end("let mut q: int32 = thread_idx_x / 32 * 16; for i = 0 to n { q = q + 64; }")
    assert shown(env["q"])[2:] == (16, 0, "WARP")
    assert env["q"].base is not None and env["q"].base.modulus == 64


@pytest.mark.parametrize(
    ("loop", "spread"),
    [
        ("for i = 0 to n { k = k + 1; }", Spread.BLOCK),
        ("for i = 0 to thread_idx_x / 32 { k = k + 1; }", Spread.WARP),
        ("while k < a[0] { k = k + 1; }", Spread.OPEN),
        ("for i = 0 to thread_idx_x { k = k + 1; }", Spread.LANE),
        ("for i = 0 to n { if thread_idx_x < n { return; } k = k + 1; }", Spread.LANE),
        ("for i = 0 to n { if n < m { return; } k = k + 1; }", Spread.BLOCK),
        ("for i = 0 to n { for j = 0 to a[0] { if n < m { return; } } k = k + 1; }", Spread.OPEN),
    ],
)
def test_iterations_that_threads_do_not_share(loop: str, spread: Spread) -> None:
    assert at_end(f"let mut k: int32 = 0; {loop}")["k"].spread is spread
    assert in_body(f"let mut k: int32 = 0; {loop}")["k"].spread is spread


def test_deep_loops_are_given_up() -> None:
    depth = analysis.MAX_NESTED
    for levels, modulus in ((depth, 16), (depth + 1, 1)):
        text = "k = k + 16;"
        for level in range(levels):
            text = f"for i{level} = 0 to n {{ {text} }}"
        assert at_end(f"let mut k: int32 = 0; {text}")["k"].modulus == modulus


def test_slow_loops_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # the power of two that divides k goes down by one on every round
    text = "let mut k: int32 = 1073741824; while n < m { k = k / 2; }"
    assert shown(at_end(text)["k"])[2:] == (1, 0, "OPEN")
    monkeypatch.setattr(analysis, "MAX_ROUNDS", 40)
    assert shown(at_end(text)["k"])[2:] == (1, 0, "BLOCK")


def test_join() -> None:
    a, b = Fact.of("int32", Range(0, 32, 16, 0)), Fact.of("int32", exactly(40))
    assert shown(join(a, b)) == (0, 40, 8, 0, "BLOCK")
    assert join(a, b, Spread.WARP).spread is Spread.WARP
    joined = join_env({"a": a, "b": b}, {"a": b}, Spread.OPEN)
    assert joined == {"a": join(a, b, Spread.OPEN)}


# --- ranges against their members -----------------------------------------------------------------

EDGES = [0, 1, -1, 2, 3, 5, 7, 16, 31, 32, 33, 64, 96, -16, -32, 2**31 - 1, -(2**31), 2**31 - 16,
         1 << 20, 12345, -12345]  # fmt: skip


def some_range(rng: random.Random, type_: str) -> tuple[Range, list[int]]:
    """A range of a type, and some members with both bounds among them."""
    low, high = limits(type_)
    a = rng.choice([*EDGES, rng.randint(low, high)])
    width = rng.choice([0, 1, 7, 31, 100, 5000, 1 << 31, 1 << 62])
    modulus = rng.choice([1, 1, 2, 3, 4, 12, 16, 32, 1024])
    found = span(a, min(high, a + width), modulus, rng.randrange(modulus)) or exactly(a)
    if found.exact:
        return found, [found.low]
    count = (found.high - found.low) // found.modulus
    steps = [0, count, *(rng.randint(0, count) for _ in range(4))]
    return found, [found.low + s * found.modulus for s in steps]


@pytest.mark.parametrize("seed", range(40))
def test_ranges_hold_every_result(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(300):
        type_ = rng.choice(["int32", "int64"])
        (a, some_a), (b, some_b) = some_range(rng, type_), some_range(rng, type_)
        for op in (*ARITHMETIC, *COMPARISONS):
            if op in COMPARISONS:
                found = ranges.compare(op, a, b)
            else:
                found = ranges.binary(op, type_, a, b, type_)
            assert found.low in found and found.high in found
            for x in some_a:
                for y in some_b:
                    got = concrete(op, type_, x, y, rng.random() < 0.5)
                    assert got in found, (op, type_, a, b, x, y, got, found)
        both = ranges.hull(a, b)
        assert all(x in both for x in some_a + some_b)
        common = ranges.meet(a, b)
        for x in some_a + some_b:
            assert (x in a and x in b) == (common is not None and x in common)


# --- an interpreter, thread by thread -------------------------------------------------------------

ARITHMETIC = ("add", "sub", "mul", "div", "mod", "shl", "shr", "bitand", "bitor", "bitxor")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
INTEGERS = ("int32", "int64")


def wrap(n: int, type_: str) -> int:
    if type_ == "bool":
        return n & 1
    half = 1 << (31 if type_ == "int32" else 63)
    return (n + half) % (2 * half) - half


def concrete(op: str, type_: str, a: Any, b: Any, cut: bool) -> Any:
    """An operation on two values; ``cut`` shift amounts lose their upper 32 bits."""
    match op:
        case "eq" | "ne" | "lt" | "le" | "gt" | "ge":
            return int({"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b,
                        "ge": a >= b}[op])  # fmt: skip
        case "and" | "bitand":
            return a & b
        case "or" | "bitor":
            return a | b
        case "bitxor":
            return a ^ b
        case "add" | "sub" | "mul":
            n = a + b if op == "add" else a - b if op == "sub" else a * b
            return n if type_.startswith("float") else wrap(n, type_)
        case "div" if type_.startswith("float"):
            return a / b if b else math.nan
        case "div" | "mod":
            if b == 0:  # unspecified: anything, from the operands
                return wrap(a * 0x9E3779B97F4A7C15 + 77, type_)
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            return wrap(quotient if op == "div" else a - quotient * b, type_)
    bits = 32 if type_ == "int32" else 64
    amount = b % (1 << 32) if cut or type_ == "int32" else b % (1 << 64)
    if op == "shl":
        return wrap(a << amount, type_) if amount < bits else 0
    return a >> min(amount, bits)


class Ended(Exception):
    """The thread returned, or ran for too long."""


Key = tuple[int, tuple[int, ...]]


@dataclass
class Thread:
    """One thread: it notes the variables at every statement, and the values of its expressions."""

    kernel: Kernel
    intrinsics: dict[str, int]
    arguments: dict[str, Any]
    rng: random.Random
    cut: bool
    steps: int = 150
    iterations: list[int] = field(default_factory=list)
    #: by statement and iteration of the loops around it
    seen: dict[Key, tuple[dict[str, Any], list[Any]]] = field(default_factory=dict)

    def run(self) -> None:
        scope = {n: (TYPES[n], v) for n, v in self.arguments.items() if n in TYPES}
        with suppress(Ended):
            self.block(self.kernel.body, scope)

    def note(self, key: int, scope: dict[str, Any], values: list[Any]) -> None:
        variables = {name: value for name, (_, value) in scope.items()}
        self.seen[key, tuple(self.iterations)] = variables, values

    def block(self, block: Block, scope: dict[str, Any]) -> None:
        hidden: dict[str, Any] = {}
        for s in block.statements:
            if isinstance(s, Let) and s.name not in hidden:
                hidden[s.name] = scope.get(s.name)
            self.statement(s, scope)
        self.note(-id(block), scope, [])
        self.restore(scope, hidden)

    @staticmethod
    def restore(scope: dict[str, Any], hidden: dict[str, Any]) -> None:
        for name, before in hidden.items():
            if before is None:
                scope.pop(name, None)
            else:
                scope[name] = before

    def statement(self, s: Statement, scope: dict[str, Any]) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise Ended
        noted: list[Any] = []
        values = [] if isinstance(s, While) else [
            self.value(e, scope, noted) for e in expressions(s)
        ]  # fmt: skip
        self.note(id(s), scope, noted)
        match s:
            case Let(name, type_):
                scope[name] = type_, values[0][1]
            case Assign(name):
                scope[name] = values[0]
            case If(_, then, other):
                branch = then if values[0][1] else other
                if branch is not None:
                    self.block(branch, scope)
            case For(name, body=body):
                before = scope.get(name)
                for number, i in enumerate(range(values[0][1], values[1][1] + 1)):
                    scope[name] = values[0][0], i
                    self.inside(body, scope, number)
                self.restore(scope, {name: before})
            case While(condition, body):
                number = 0
                while self.value(condition, scope, [])[1]:
                    self.inside(body, scope, number)
                    number += 1
            case Block():
                self.block(s, scope)
            case Return():
                raise Ended
            case _:
                pass

    def inside(self, body: Block, scope: dict[str, Any], number: int) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise Ended
        self.iterations.append(number)
        self.block(body, scope)
        self.iterations.pop()

    def value(self, e: Expression, scope: dict[str, Any], noted: list[Any]) -> tuple[str, Any]:
        """Type and value; all parts are noted in the order of ``subexpressions``."""
        at = len(noted)
        noted.append(None)
        match e:
            case Const(n, type_):
                found = type_, n if type_.startswith("float") else int(n)
            case Var(name):
                found = scope[name]
            case Intrinsic(name):
                found = "int32", self.intrinsics[name]
            case Length(buffer):
                found = "int32", self.arguments[f"length {buffer}"]
            case Element(buffer, index):
                self.value(index, scope, noted)
                found = self.element(buffer)
            case Cast(type_, operand):
                found = type_, cast(*self.value(operand, scope, noted), type_)
            case Unary(op, operand):
                type_, n = self.value(operand, scope, noted)
                result = {"neg": -n, "not": int(not n)}.get(op)
                result = ~n if result is None else result
                found = type_, result if type_.startswith("float") else wrap(result, type_)
            case Binary(op, left, right):
                type_, a = self.value(left, scope, noted)
                _, b = self.value(right, scope, noted)
                result = concrete(op, type_, a, b, self.cut)
                found = "bool" if op in COMPARISONS or op in ("and", "or") else type_, result
        noted[at] = found[1]
        return found

    def element(self, buffer: str) -> tuple[str, Any]:
        """Any value: another thread may have written it."""
        type_ = BUFFERS[buffer]
        if type_ == "float32":
            return type_, self.rng.choice([0.0, 1.5, -2.0, math.nan])
        bits = {"int32": 32, "int64": 64, "uint8": 8}[type_]
        n = self.rng.choice([self.rng.getrandbits(bits), self.rng.getrandbits(3)])
        return ("int32", n) if type_ == "uint8" else (type_, wrap(n, type_))


def cast(source: str, n: Any, type_: str) -> Any:
    if type_.startswith("float"):
        return float(n)
    if type_ == "bool":
        return int(n != 0)
    if source.startswith("float"):
        low, high = limits(type_)
        return 0 if math.isnan(n) else int(max(low, min(high, n)))
    return wrap(n, type_)


TYPES = {"n": "int32", "m": "int32", "w": "int64", "c": "bool", "x": "float32"}
BUFFERS = {"a": "int32", "b": "int64", "u": "uint8", "f": "float32", "s": "int32"}


# --- random kernels -------------------------------------------------------------------------------

BLOCKS = [(32, 1, 1), (64, 1, 1), (96, 1, 1), (8, 4, 1), (16, 4, 1), (32, 2, 1), (4, 4, 4),
          (16, 2, 2)]  # fmt: skip
CONSTANTS = [0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 33, 48, 64, 96, 128, -1, -2, -16, -32, -33,
             2**31 - 1, -(2**31)]  # fmt: skip
INTRINSIC_NAMES = [*["thread_idx_x"] * 3, "thread_idx_y", "thread_idx_z", "block_idx_x",
                   "block_idx_y", "block_dim_x", "block_dim_y", "grid_dim_y"]  # fmt: skip


@dataclass
class Maker:
    """Random statements, fond of index arithmetic."""

    rng: random.Random
    loops: int = 0

    def expression(self, type_: str, scope: Mapping[str, str], depth: int) -> Expression:
        rng = self.rng
        named = [name for name, t in scope.items() if t == type_]
        if depth <= 0 or rng.random() < 0.15:
            return self.leaf(type_, named)
        inner = depth - 1
        if rng.random() < 0.12:
            source = rng.choice(["int32", "int32", "int64", "bool", "float32"])
            return Cast(type_, self.expression(source, scope, inner))
        if type_ == "bool":
            if rng.random() < 0.3:
                op = rng.choice(["and", "or", "bitand", "bitxor"])
                sides = [self.expression("bool", scope, inner) for _ in "lr"]
                return Binary(op, sides[0], sides[1])
            if rng.random() < 0.15:
                return Unary("not", self.expression("bool", scope, inner))
            source = rng.choice(["int32", "int32", "int32", "int64", "float32"])
            left = self.expression(source, scope, inner)
            if rng.random() < 0.3 and source in INTEGERS:
                op = rng.choice(["mod", "bitand", "add", "sub"])
                left = Binary(op, left, self.constant(source))
            return Binary(rng.choice(COMPARISONS), left, self.expression(source, scope, inner))
        if type_ == "float32":
            op = rng.choice(["add", "mul", "div"])
            return Binary(op, self.expression(type_, scope, inner), self.leaf(type_, named))
        if rng.random() < 0.1:
            return Unary(rng.choice(["neg", "bitnot"]), self.expression(type_, scope, inner))
        op = rng.choice([*ARITHMETIC, "add", "mul", "div", "mod", "bitand"])
        left = self.expression(type_, scope, inner)
        if op not in ("add", "sub") and rng.random() < 0.75:
            return Binary(op, left, self.constant(type_))
        return Binary(op, left, self.expression(type_, scope, inner))

    def constant(self, type_: str) -> Const:
        return Const(self.rng.choice(CONSTANTS), type_)

    def leaf(self, type_: str, named: list[str]) -> Expression:
        rng = self.rng
        if named and rng.random() < 0.5:
            return Var(rng.choice(named))
        kind = rng.random()
        if type_ == "bool":
            return Const(rng.random() < 0.5, "bool")
        if type_ == "float32":
            return Element("f", Const(0)) if kind < 0.3 else Const(rng.choice([0.0, 2.5]), type_)
        if type_ == "int64":
            return Element("b", Const(0)) if kind < 0.1 else self.constant(type_)
        if kind < 0.1:
            return Element(rng.choice("aus"), Const(0))
        if kind < 0.15:
            return Length("a")
        return Intrinsic(rng.choice(INTRINSIC_NAMES)) if kind < 0.65 else self.constant(type_)

    def block(self, scope: dict[str, str], fixed: frozenset[str], depth: int) -> Block:
        scope = dict(scope)
        found: list[Statement] = []
        for _ in range(self.rng.randint(1, 5)):
            found += self.statements(scope, fixed, depth)
        if self.rng.random() < 0.05:
            found.append(Return())
        return Block(tuple(found))

    def statements(
        self, scope: dict[str, str], fixed: frozenset[str], depth: int
    ) -> list[Statement]:
        rng = self.rng
        kind = rng.random()
        free = [name for name in scope if name not in fixed]
        if kind < 0.3 or (not free and kind < 0.5):
            name, type_ = rng.choice("pqrst"), rng.choice(["int32", "int32", "int64", "bool"])
            value = self.expression(type_, scope, 3)
            scope[name] = type_
            return [Let(name, type_, value, True)]
        if kind < 0.6 and free:
            name = rng.choice(free)
            return [Assign(name, self.expression(scope[name], scope, 3))]
        if kind < 0.65:
            return [Store("a", Const(0), self.expression("int32", scope, 3))]
        if depth <= 0:
            return []
        if kind < 0.82:
            condition = self.expression("bool", scope, 3)
            other = self.block(scope, fixed, depth - 1) if rng.random() < 0.5 else None
            return [If(condition, self.block(scope, fixed, depth - 1), other)]
        if kind < 0.86:
            return [self.block(scope, fixed, depth - 1)]
        return self.loop(scope, fixed, depth)

    def loop(self, scope: dict[str, str], fixed: frozenset[str], depth: int) -> list[Statement]:
        rng = self.rng
        if rng.random() < 0.5:
            name = rng.choice("ijp")
            low, high = (self.expression("int32", scope, 2) for _ in "lh")
            bounds = [(Const(0), Binary("bitand", high, Const(3))),
                      (low, Binary("add", low, Const(2))), (low, high)]  # fmt: skip
            low, high = rng.choice(bounds)
            body = self.block({**scope, name: "int32"}, fixed | {name}, depth - 1)
            return [For(name, low, high, body)]
        name = rng.choice("kl")
        if rng.random() < 0.3:
            return [While(self.expression("bool", scope, 2), self.block(scope, fixed, depth - 1))]
        inner = self.block({**scope, name: "int32"}, fixed | {name}, depth - 1)
        step = Assign(name, Binary("add", Var(name), Const(rng.choice([1, 4, 16, 64]))))
        start = self.expression("int32", scope, 1)
        scope[name] = "int32"
        bound = Binary("lt", Var(name), self.expression("int32", scope, 2))
        body = Block((*inner.statements, step))
        return [Let(name, "int32", start, True), While(bound, body)]


FACTORS = [2, 3, 4, 8, 16, 32, 32, 64, 64, 128, 96, -2, -16, -32, 31, 7, 5, 1 << 26]


@dataclass
class IndexMaker:
    """Random chains of index arithmetic: parts of the block and of the thread, by constants."""

    rng: random.Random

    def block_part(self) -> Expression:
        part = self.rng.choice([Intrinsic("block_idx_x"), Intrinsic("block_idx_y"), Var("n")])
        return Binary(self.rng.choice(["mul", "mul", "bitand"]), part, self.constant())

    def thread_part(self) -> Expression:
        part: Expression = Intrinsic(f"thread_idx_{self.rng.choice('xxxy')}")
        if self.rng.random() < 0.5:
            part = Binary(self.rng.choice(["mul", "div", "mod", "shr"]), part, self.constant())
        return part

    def constant(self) -> Const:
        return Const(self.rng.choice(FACTORS))

    def chain(self, named: list[str]) -> Expression:
        rng = self.rng
        found: Expression = Var(rng.choice(named)) if named and rng.random() < 0.5 else Binary(
            rng.choice(["add", "add", "sub", "bitor", "bitxor"]),
            self.block_part(), self.thread_part(),
        )  # fmt: skip
        for _ in range(rng.randint(0, 2)):
            op = rng.choice(["div", "mod", "shr", "bitand", "mul", "add", "bitor", "bitxor", "sub"])
            amount = rng.choice([1, 2, 5]) if op == "shr" else self.constant().value
            found = Binary(op, found, Const(amount))
        if rng.random() < 0.1:
            wide = Binary(
                rng.choice(["add", "div", "mul"]), Cast("int64", found), Const(64, "int64")
            )
            found = Cast("int32", wide)
        return found

    def condition(self, named: list[str]) -> Expression:
        rng = self.rng
        kind = rng.random()
        if kind < 0.4:
            return Binary(rng.choice(COMPARISONS), self.thread_part(), self.constant())
        op = rng.choice(["mod", "bitand", "add", "sub"])
        part = Binary(op, Var(rng.choice([*named, "n", "m"])), self.constant())
        return Binary(rng.choice(COMPARISONS), part, Const(rng.choice([0, 0, 1, 4, 16, -4])))

    def block(self) -> Block:
        rng = self.rng
        found: list[Statement] = []
        named: list[str] = []
        for name in "pqrstvyz":
            found.append(Let(name, "int32", self.chain(named), True))
            named.append(name)
            kind = rng.random()
            target = rng.choice(named)
            then = Block((Assign(target, self.chain(named)), Let("o", "int32", self.chain(named))))
            if kind < 0.25:
                other = Block((Assign(target, self.chain(named)),))
                found.append(If(self.condition(named), then, rng.choice([other, None])))
            elif kind < 0.35:
                found.append(If(self.condition(named), Block((Return(),)), None))
            elif kind < 0.45:
                step = Binary("add", Var(target), rng.choice([self.constant(), self.block_part()]))
                found.append(For("i", Const(0), Const(3), Block((Assign(target, step),))))
        return Block(tuple(found))


def random_kernel(rng: random.Random, index: bool = False) -> Kernel:
    params = [Param(n, t) for n, t in TYPES.items()]
    params += [Param(n, t, True) for n, t in BUFFERS.items() if n != "s"]
    body = IndexMaker(rng).block() if index else Maker(rng).block(dict(TYPES), frozenset(TYPES), 3)
    block = rng.choice(BLOCKS)
    return Kernel("k", tuple(params), body, (Shared("s", "int32", 4),), block)


# --- facts against threads ------------------------------------------------------------------------

Point = tuple[Env, list[Fact]]


def points(kernel: Kernel, launch: Launch) -> dict[int, Point]:
    """What is known at every statement, and at the end of every block."""
    found: dict[int, Point] = {}

    def visit(block: Block, env: Env) -> None:
        for s in block.statements:
            parts = [] if isinstance(s, While) else [
                p for e in expressions(s) for p in subexpressions(e)
            ]  # fmt: skip
            found[id(s)] = env, [fact_of(p, env, launch) for p in parts]
            match s:
                case If(condition, then, other):
                    visit(then, assume(condition, True, env, launch))
                    if other is not None:
                        visit(other, assume(condition, False, env, launch))
                case For(body=body) | While(body=body):
                    visit(body, loop_env(s, env, launch))
                case Block():
                    visit(s, env)
                case _:
                    pass
            env = after(s, env, launch)
        found[-id(block)] = env, []  # its end

    visit(kernel.body, entry_env(kernel, launch))
    return found


def threads(kernel: Kernel, rng: random.Random) -> Iterator[list[Thread]]:
    """The threads of two blocks after they have run, a list for each block."""
    assert kernel.block is not None
    x, y, z = kernel.block
    arguments: dict[str, Any] = {"c": rng.getrandbits(1), "x": rng.choice([0.0, -1.5, math.inf])}
    for name in ("n", "m", "w"):
        small = rng.choice([rng.randint(0, 200), rng.randint(-5, 5) * 16, rng.choice(EDGES)])
        arguments[name] = rng.choice([small, wrap(rng.getrandbits(64), TYPES[name])])
    arguments["length a"] = rng.choice([0, 16, 1000, 2**31 - 1])
    cut = rng.random() < 0.5
    for _ in range(2):
        of_block = {
            "block_idx_x": rng.choice([0, 1, 5, 2**31 - 2, rng.randrange(2**31 - 1)]),
            "block_idx_y": rng.choice([0, 1, 65534]),
            "block_dim_x": x, "block_dim_y": y, "block_dim_z": z, "grid_dim_y": 65535,
        }  # fmt: skip
        found = []
        for t in range(x * y * z):
            own = {"thread_idx_x": t % x, "thread_idx_y": t // x % y, "thread_idx_z": t // (x * y)}
            thread = Thread(kernel, of_block | own, arguments, random.Random(rng.random()), cut)
            thread.run()
            found.append(thread)
        yield found


def refuted(fact: Fact, values: Mapping[int, Any]) -> str:
    """What of a fact is wrong about the values of threads that evaluate together; '' if nothing."""
    shown_values = {t: repr(v) for t, v in values.items()}
    if fact.spread is Spread.BLOCK and len(set(shown_values.values())) > 1:
        return "the block does not share it"
    if fact.spread is Spread.WARP:
        warps = defaultdict(set)
        for t, v in shown_values.items():
            warps[t // 32].add(v)
        if any(len(w) > 1 for w in warps.values()):
            return "a warp does not share it"
    if fact.type.startswith("float"):
        return ""
    if any(v not in fact.range for v in values.values()):
        return f"out of {fact.range}"
    if fact.lanes is not None:
        assert fact.base is not None
        parts = {wrap(v - int(fact.lanes[t]), fact.type) for t, v in values.items()}
        if len(parts) > 1 or not parts <= {p for p in parts if p in fact.base}:
            return f"U is {parts}, not one of {fact.base}"
    known = fact.values()
    if known is not None and any(known[t % known.size] != v for t, v in values.items()):
        return "other values"
    return ""


def check(seed: int, index: bool = False) -> int:
    """Hold the facts of a random kernel against its threads; the number of facts with lanes."""
    rng = random.Random(seed)
    kernel = random_kernel(rng, index)
    block = kernel.block if rng.random() < 0.8 else None
    launch = Launch(block, {p.name: p for p in kernel.params}, {a.name: a for a in kernel.arrays})
    known = points(kernel, launch)
    rich = 0
    for block_threads in threads(kernel, rng):
        together: dict[Key, dict[int, tuple[dict[str, Any], list[Any]]]] = defaultdict(dict)
        for number, thread in enumerate(block_threads):
            for key, noted in thread.seen.items():
                together[key][number] = noted
        for (place, iterations), noted in together.items():
            env, facts = known[place]
            first = next(iter(noted.values()))
            assert env.keys() == first[0].keys()
            for name, fact in env.items():
                wrong = refuted(fact, {t: v[name] for t, (v, _) in noted.items()})
                assert not wrong, (seed, name, iterations, fact, wrong)
            for index, fact in enumerate(facts):
                wrong = refuted(fact, {t: v[index] for t, (_, v) in noted.items()})
                assert not wrong, (seed, index, iterations, fact, wrong)
                rich += fact.lanes is not None
    return rich


@pytest.mark.parametrize("seed", range(40))
def test_no_thread_of_a_random_kernel_refutes_a_fact(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize("seed", range(8))
def test_no_thread_of_random_index_code_refutes_a_fact(seed: int) -> None:
    # what threads add must be known often, or nothing is tested
    assert sum(check(n, index=True) for n in range(25 * seed, 25 * seed + 25)) > 300


@settings(max_examples=25, deadline=None)
@given(st.integers(1000, 2**40))
@example(1000)
def test_no_thread_of_any_kernel_refutes_a_fact(seed: int) -> None:
    check(seed)

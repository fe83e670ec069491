"""Cooperative matrices: inputs on which a review found them wrong, and what holds around each."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest
from coopmat_kernels import (
    ALL,
    LOAD,
    MANY,
    STORE,
    At,
    agree,
    launch,
    lower,
    product_arguments,
    product_with,
    refusals,
    stored,
    trap_lines,
    traps,
)

import ptxsim
from lowering.coopmat.api import VIAS, Lowered
from lowering.coopmat.check import check_kernel, operand_layouts
from lowering.coopmat.forms import check_fragment, fragment_floor
from lowering.coopmat.ir import Const, Element, Let, Var
from lowering.coopmat.lets import Lets
from lowering.coopmat.repair import repaired
from lowering.coopmat.text import parse
from lowering.coopmat.vocabulary import Config, Fragment, Shape
from lowering.coopmat.wmma import Wmma


def _codes(text: Any, **options: Any) -> list[str]:
    return [f"{r.code}@{r.line}" for r in refusals(text, **options)]


def _checks(text: str, **options: Any) -> list[str]:
    return [p.check for p in lower(text, **options).planted]


# --- bounds that do not overflow ------------------------------------------------------------------

BYTES = """kernel k(a: uint8[], c: int32[], far: int64, n: int32) block(32, 1, 1) {
  fragment x: a 16x16x16 u8;
  load x (a 16x16x16 u8) from a[far] stride n row;
  c[0] = 5;
}"""
#: From the last multiples of 8 and 256 of int64 down to the first index that is too far.
FAR = [2**63 - 8, 2**63 - 256, 2**63 - 248, 2**62, 2**33, 2**32, 2**32 - 16, 1024 - 248]


def _bytes(lowered: Lowered, **changed: Any) -> tuple[ptxsim.Report, bool]:
    arguments = {"a": np.ones(1024, np.uint8), "c": np.zeros(1, np.int32), "far": 0, "n": 16}
    arguments |= changed
    report = launch(lowered, arguments)
    return report, bool(arguments["c"][0])  # type: ignore[index]


@pytest.mark.parametrize("via", VIAS)
@pytest.mark.parametrize("far", FAR)
def test_an_index_near_the_end_of_int64(far: int, via: str) -> None:
    """``index + span`` would be negative; nothing is read out of bounds."""
    lowered = lower(BYTES, via=via)
    report, done = _bytes(lowered, far=far)
    check = "16 x 16 elements from far, stride n, lie in 'a'"
    assert (*traps(report, lowered.text()), done) == (check, ALL, False)


@pytest.mark.parametrize("via", VIAS)
def test_the_last_index_that_fits(via: str) -> None:
    lowered = lower(BYTES, via=via)
    for far, n in ((0, 16), (1024 - 256, 16), (8, 64), (1024 - 15 * 64 - 16, 64)):
        report, done = _bytes(lowered, far=far, n=n)
        assert report.clean and done
    for far, n in ((1024 - 248, 16), (8, 72), (1024 - 15 * 64 - 8, 64)):
        report, done = _bytes(lowered, far=far, n=n)
        assert traps(report, lowered.text())[0].startswith("16 x 16 elements") and not done


@pytest.mark.parametrize("n", [2**31 - 8, 2**31 - 16, 1 << 30])
def test_a_stride_near_the_end_of_int32(n: int) -> None:
    """15 strides do not fit into 32 bits; nor does an index beside them into 64."""
    lowered = lower(BYTES)
    for far in (0, 8, 2**63 - 8):
        report, done = _bytes(lowered, far=far, n=n)
        assert traps(report, lowered.text())[0].startswith("16 x 16 elements")
        assert not done


@pytest.mark.parametrize(
    ("index", "code"),
    [
        ("4294967296i64", ["R33@3"]), ("9223372036854775800i64", ["R33@3"]),
        ("4294967295i64 * 16i64", ["R33@3"]), ("4294967288i64", []),
        ("(far & 7i64) + 4294967296i64", ["R33@3"]), ("(far & 7i64) + 4294967288i64", []),
    ],
)  # fmt: skip
def test_an_index_larger_than_any_buffer(index: str, code: list[str]) -> None:
    """Lengths are numbers of 32 bits."""
    text = BYTES.replace("a[far]", f"a[{index}]")
    assert _codes(text) == code
    assert all(r.reason == "is larger than any buffer" for r in refusals(text))


BITS = """kernel k(a: bit[], c: int32[]) block(32, 1, 1) {
  fragment x: a 8x8x128 b1;
  load x (a 8x8x128 b1) from a[INDEX] stride 128 row;
  c[0] = 5;
}"""


@pytest.mark.parametrize(
    ("index", "check"),
    [
        # -2147483648
        ("length(a)", "index length(a) is not negative"),
        ("length(a) / 128 * 128", "index length(a) / 128 * 128 is not negative"),
        ("int64(length(a))", "index int64(length(a)) is not negative"),
        # 2147483520 and 2147483392, of which one tile and none is left
        ("length(a) - 128", "8 x 128 elements from length(a) - 128, stride 128, lie in 'a'"),
        ("length(a) - 896", "8 x 128 elements from length(a) - 896, stride 128, lie in 'a'"),
    ],
)
def test_lengths_of_32_bits(index: str, check: str) -> None:
    """2^31 elements: ``length`` is negative, and the bounds are those of the buffer all the same.

    The buffer is said to be so long; no index here comes to its memory."""
    arguments: dict[str, Any] = {"c": np.zeros(256, np.int32), "a": At(0, 1 << 31)}
    text = BITS.replace("INDEX", index).replace("a: bit[], c: int32[]", "c: int32[], a: bit[]")
    lowered = lower(text)
    assert traps(launch(lowered, arguments), lowered.text()) == (check, ALL)
    assert not arguments["c"].any()


@pytest.mark.slow
def test_a_buffer_of_two_to_the_31_elements() -> None:
    """256 MiB: the last tile is read."""
    lowered = lower(BITS.replace("INDEX", "length(a) - 1024"))
    c = np.zeros(1, np.int32)
    assert launch(lowered, {"a": np.zeros(1 << 28, np.uint8), "c": c}).clean
    assert c[0] == 5


# --- lengths --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "tested"),
    [("length(a)", True), ("length(open)", True), ("length(tile) & 256", False),
     ("length(table) * 16", False)],
)  # fmt: skip
def test_checks_of_indices_made_of_lengths(index: str, tested: bool) -> None:
    """What the kernel declares is exact; what a launch brings may have all 32 bits."""
    text = product_with(f"load x (a 16x16x16 f16) from a[{index}] stride 16 row;").replace(
        "shared tile", "constant table: int32[] = {1, 2, 3};\n  shared tile"
    )
    assert any("is not negative" in c for c in _checks(text)) is tested
    assert any(c.startswith("a[") for c in _checks(text)) is tested


@pytest.mark.parametrize(
    ("text", "codes"),
    [("tile[length(tile)]", ["R33@8"]), ("tile[length(tile) - 255]", ["R33@8", "R33@8"]),
     ("tile[length(tile) - 256]", []), ("a[length(table)]", ["R33@8"])],
)  # fmt: skip
def test_lengths_of_arrays_are_exact(text: str, codes: list[str]) -> None:
    kernel = product_with(f"load x (a 16x16x16 f16) from {text} stride 16 row;").replace(
        "  shared open: float16[];", "constant table: int32[] = {1, 2, 3};"
    ).replace("a: float16[]", "a: float16[] align 32")  # fmt: skip
    assert _codes(kernel) == codes


# --- values that are given up ---------------------------------------------------------------------


def _nested(depth: int, inner: str) -> str:
    for k in range(depth):
        inner = f"for i{k} = 0 to 1 {{ {inner} v = v + 16; }}"
    return f"let mut v: int32 = 0; {inner}"


LOAD_V = "load x (a 16x16x16 f16) from a[v] stride 16 row;"


@pytest.mark.parametrize("depth", [1, 3, 4, 5, 6])
def test_nested_loops(depth: int) -> None:
    """Three deep, the values are followed; deeper, they are tested at run time, not refused."""
    lowered = lower(product_with(_nested(depth, LOAD_V) + LOAD))
    checks = [p.check for p in lowered.planted]
    assert ("v is the same in all lanes" in checks) is (depth > 3)
    assert ("a[v] is at a multiple of 32 bytes" in checks) is (depth > 3)
    arguments = product_arguments()
    assert launch(lowered, arguments, smem=1024).clean
    assert stored(arguments)


def test_a_value_given_up_that_differs_between_lanes() -> None:
    """It traps at run time."""
    body = _nested(5, LOAD_V + " if flags[thread_idx_x] != 0 { v = v + 16; }")
    lowered = lower(product_with(body + LOAD))
    arguments = product_arguments()
    assert launch(lowered, arguments, smem=1024).clean
    flags = np.zeros(MANY, np.int32)
    flags[3] = 1
    report = launch(lowered, product_arguments(flags=flags), smem=1024)
    assert traps(report, lowered.text()) == ("v is the same in all lanes", (3,))


CHAIN = "".join(f"let mut v{k}: int32 = 0; " for k in range(30))
SHIFT = "".join(f"v{k} = v{k + 1}; " for k in range(29))


@pytest.mark.parametrize("last", ["n", "16", "flags[0]"])
def test_chains_of_variables(last: str) -> None:
    """Each iteration moves what is known by one variable; rounds come to an end before that."""
    load = "load x (a 16x16x16 f16) from a[v0] stride 16 row;"
    body = f"{CHAIN} for i = 0 to 34 {{ {load} {SHIFT} v29 = {last}; }}"
    lowered = lower(product_with(body))
    assert {"v0 is the same in all lanes", "a[v0] is at a multiple of 32 bytes"} <= {
        p.check for p in lowered.planted
    }
    arguments = product_arguments()
    assert launch(lowered, arguments, smem=1024).clean
    report = launch(lowered, product_arguments(n=8, flags=np.full(MANY, 8)), smem=1024)
    assert report.clean is (last == "16")
    if last != "16":
        assert traps(report, lowered.text())[0] == "a[v0] is at a multiple of 32 bytes"


def test_conditions_given_up() -> None:
    """A branch on such a value is shown to be uniform at run time; one on the lane is refused."""
    load = "if v0 < 5 { " + LOAD + " }"
    lowered = lower(product_with(f"{LOAD} {CHAIN} for i = 0 to 34 {{ {load} {SHIFT} v29 = n; }}"))
    assert "all lanes go the same way" in [p.check for p in lowered.planted]
    arguments = product_arguments()
    assert launch(lowered, arguments, smem=1024).clean
    short = "let mut v: int32 = 0; for i = 0 to 3 { if v < 5 { LOAD } v = thread_idx_x; }"
    assert _codes(product_with(LOAD + short.replace("LOAD", LOAD))) == ["R35@8"]


@pytest.mark.parametrize("first", ["i - i % 32", "i - (i & 31)", "i - i % 64", "i - (i & 63)"])
def test_the_first_thread_of_a_warp(first: str) -> None:
    """The block is not known: tested, for a block of one row; one more dimension traps."""
    load = f"let i: int32 = thread_idx_x; load x (a 16x16x16 f16) from a[({first}) * 16]"
    lowered = lower(product_with(f"{load} stride 16 row;").replace("block(32, 1, 1)", ""))
    full = first.replace("i", "thread_idx_x")
    assert f"({full}) * 16 is the same in all lanes" in [p.check for p in lowered.planted]
    for block in (32, 64, 128):
        arguments = product_arguments()
        assert launch(lowered, arguments, block=block, smem=1024).clean
        assert stored(arguments)
    if "64" not in first and "63" not in first:
        return
    # a row of 96 threads: the second warp starts at 32, whose tile is that of 0
    assert launch(lowered, product_arguments(), block=96, smem=1024).clean


def test_rows_that_are_no_whole_warps() -> None:
    """Two rows of 48: the second warp has the end of one and the start of the other."""
    text = product_with("load x (a 16x16x16 f16) from a[(thread_idx_x - thread_idx_x % 32) * 16]"
                        " stride 16 row;").replace("block(32, 1, 1)", "")  # fmt: skip
    lowered = lower(text)
    report = launch(lowered, product_arguments(), block=(48, 2, 1), smem=1024)
    assert [f.class_ for f in report.findings] == ["trap"]
    check = "(thread_idx_x - thread_idx_x % 32) * 16 is the same in all lanes"
    assert traps(report, lowered.text())[0] == check
    # with the block the kernel knows, the lanes are counted: refused
    assert [r.code for r in refusals(text, block=(48, 2, 1))] == ["R36"]
    assert refusals(text, block=(64, 2, 1)) == ()


@pytest.mark.parametrize(
    "first",
    ["i - i % 16", "i - (i & 15)", "i - i % 33", "i - (i & 30)", "i - n % 32", "i + i % 32"],
)
def test_differences_that_leave_the_lane(first: str) -> None:
    load = f"let i: int32 = thread_idx_x; load x (a 16x16x16 f16) from a[({first}) * 16]"
    text = product_with(f"{load} stride 16 row;").replace("block(32, 1, 1)", "")
    assert _codes(text) == ["R36@8"]


# --- fragments by declaration ---------------------------------------------------------------------

TWO = """kernel k(a: float16[] align 32, b: float16[] align 32, d: float32[] align 32)
    block(32, 1, 1) {
  fragment y: b 16x16x16 f16;
  load y (b 16x16x16 f16) from b[0] stride 16 col;
  {
    fragment x: a 16x16x16 f16;
    fragment z: accumulator 16x16x16 f32;
    load x (a 16x16x16 f16) from a[0] stride 16 row;
    z = muladd x, y, z (16x16x16 f16*f16+f32->f32);
    store z (accumulator 16x16x16 f32) to d[0] stride 16 row;
  }
  {
    fragment x: a 16x16x16 f16;
    fragment z: accumulator 16x16x16 f32;
    load x (a 16x16x16 f16) from a[0] stride 16 col;
    z = muladd x, y, z (16x16x16 f16*f16+f32->f32);
    store z (accumulator 16x16x16 f32) to d[256] stride 16 row;
  }
}
"""


@pytest.mark.parametrize("via", VIAS)
def test_two_declarations_of_a_name_with_two_layouts(via: str) -> None:
    """Siblings, and one inside the other: each product reads A as its own load left it."""
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-8, 9, 256).astype(np.float16) for _ in range(2))
    left, right = a.reshape(16, 16).astype(np.float32), b.reshape(16, 16).T.astype(np.float32)
    inner = TWO.replace("    store z (accumulator 16x16x16 f32) to d[0] stride 16 row;\n  }\n  {\n",
                        "    {\n").replace("d[256]", "e[256]").replace(
        "e[256] stride 16 row;\n  }\n", "d[256] stride 16 row;\n    }\n"
        "    z = muladd x, y, z (16x16x16 f16*f16+f32->f32);\n"
        "    store z (accumulator 16x16x16 f32) to d[0] stride 16 row;\n  }\n")  # fmt: skip
    for text, times in ((TWO, 1), (inner, 2)):
        d = agree(text, {"a": a, "b": b, "d": np.zeros(512, np.float32)}, via=via)["d"]
        assert np.array_equal(d[:256].reshape(16, 16), times * (left @ right))
        assert np.array_equal(d[256:].reshape(16, 16), left.T @ right)
        assert operand_layouts(parse(text)) == ({"y": "col", "x": "row", "x#2": "col"}, [])


def test_one_declaration_with_two_layouts() -> None:
    """R10 where the same fragment is meant, be it loaded in a block inside."""
    outer = TWO.replace("  fragment y: b", "  fragment x: a 16x16x16 f16;\n  fragment y: b", 1)
    both = outer.replace("    fragment x: a 16x16x16 f16;\n", "")
    assert _codes(both) == ["R10@14"]
    # the second block has its own again
    own = outer.replace("    fragment x: a 16x16x16 f16;\n", "", 1)
    assert _codes(own) == []
    assert operand_layouts(parse(own))[0] == {"y": "col", "x": "row", "x#2": "col"}


# --- loads on every way (R19) ---------------------------------------------------------------------

WAYS = [
    ("for i = 0 to 3 { LOAD }", True), ("for i = 0 to 0 { LOAD }", True),
    ("for i = -1 to 0 { LOAD }", False), ("for i = 3 to 0 { LOAD }", False),
    ("for i = 0 to n { LOAD }", False), ("for i = 0 to 1 { if n > 2 { LOAD } }", False),
    ("if n > 3 { return; } else { LOAD }", True), ("if n > 3 { LOAD } else { return; }", True),
    ("if n > 3 { LOAD } else { flags[0] = 1; return; }", True),
    ("if n > 3 { LOAD } else { LOAD }", True), ("if n > 3 { LOAD } else { }", False),
    ("if n > 3 { LOAD }", False), ("if n > 3 { return; } LOAD", True),
    ("while n > 3 { LOAD }", False), ("{ LOAD }", True),
    ("if n > 3 { return; } else { return; }", False),
]  # fmt: skip


@pytest.mark.parametrize(("way", "loaded"), WAYS)
def test_operands_are_loaded_on_every_way(way: str, loaded: bool) -> None:
    """A loop between constants runs; a branch that ends in a return does not come here.  -1 is an
    operation on a constant, not a constant."""
    assert _codes(product_with(way.replace("LOAD", LOAD))) == ([] if loaded else ["R19@10"])
    if loaded:
        lowered = lower(product_with(way.replace("LOAD", LOAD)))
        arguments = product_arguments(n=1 if way.startswith("if n > 3 { return") else 16)
        assert launch(lowered, arguments, smem=1024).clean
        assert stored(arguments)


# --- floors of fragments --------------------------------------------------------------------------

#: Fragments alone, the last target and version that lacks them in wmma, and the first that has them
#: (PTX ISA 9.1, wmma.load, Target ISA Notes and PTX ISA Notes).
ALONE: list[tuple[str, str, str, tuple[int, int] | None]] = [
    ("a 16x16x16 bf16", "sm_75", "sm_80", None), ("b 32x8x16 bf16", "sm_75", "sm_80", None),
    ("a 16x16x8 tf32", "sm_75", "sm_80", None), ("b 16x16x8 tf32", "sm_72", "sm_80", None),
    ("accumulator 16x16x8 f32", "sm_75", "sm_80", None), ("a 8x8x4 f64", "sm_75", "sm_80", None),
    ("accumulator 8x8x4 f64", "sm_75", "sm_80", None), ("a 8x8x32 s4", "sm_72", "sm_75", None),
    ("b 8x8x32 u4", "sm_72", "sm_75", None), ("a 8x8x128 b1", "sm_72", "sm_75", None),
    ("b 8x8x128 b1", "sm_70", "sm_75", None), ("accumulator 8x8x32 s32", "sm_72", "sm_75", None),
    ("accumulator 8x8x128 u32", "sm_72", "sm_75", None),
    ("accumulator 16x16x16 s32", "sm_70", "sm_72", None),
    ("accumulator 32x8x16 u32", "sm_70", "sm_72", None),
]  # fmt: skip


def _alone(fragment: str) -> str:
    return f"kernel k(w: int32[]) {{ fragment v: {fragment}; w[0] = 1; }}"


def _fragment(text: str) -> Fragment:
    use, shape, component = text.split()
    return Fragment(use, Shape(*map(int, shape.split("x"))), component)


@pytest.mark.parametrize("case", ALONE, ids=lambda c: c[0])
def test_fragments_alone_below_their_floor(case: tuple[str, str, str, None]) -> None:
    fragment, below, first, _ = case
    (found,) = refusals(_alone(fragment), target=below)
    component = fragment.split()[2]
    assert (found.code, found.line, found.what) == ("R31", 1, "fragment 'v'")
    assert found.reason == f"{component} needs {first}"
    lower(_alone(fragment), target=first).kernel.assemble()
    assert fragment_floor(_fragment(fragment)).sm == int(first[3:])


@pytest.mark.parametrize(
    ("fragment", "below", "code"),
    [
        ("accumulator 16x16x16 f32", "sm_62", "R12"), ("a 16x16x16 f16", "sm_62", "R12"),
        ("a 16x16x16 s8", "sm_70", "R13"), ("b 8x32x16 u8", "sm_70", "R13"),
    ],
)  # fmt: skip
def test_floors_that_others_say(fragment: str, below: str, code: str) -> None:
    """R31 is not said beside R12 and R13."""
    assert _codes(_alone(fragment), target=below) == [f"{code}@0"]


@pytest.mark.parametrize("case", ALONE, ids=lambda c: c[0])
def test_fragments_alone_by_mma(case: tuple[str, str, str, None]) -> None:
    (found,) = refusals(_alone(case[0]), target="sm_75", via="mma")
    assert (found.code, found.reason) == ("R31", f"{case[0].split()[2]} needs sm_80")
    lower(_alone(case[0]), target="sm_80", via="mma")


def test_a_component_is_refused_once() -> None:
    """At its first line; another component has its own."""
    text = """kernel k(w: int32[]) {
  fragment p: a 16x16x16 bf16;
  fragment q: b 16x16x16 bf16;
  fragment r: b 32x8x16 bf16;
  fragment s: a 16x16x8 tf32;
  fragment t: accumulator 16x16x16 f32;
}"""
    assert _codes(text, target="sm_75") == ["R31@2", "R31@5"]
    assert _codes(text, target="sm_80") == []
    # sm_80 itself is refused for this version, and fragments not once more
    assert _codes(text, target="sm_80", version=(6, 5)) == ["R31@0"]


def test_versions_of_fragments() -> None:
    """wmma of bf16 came with PTX ISA 7.0, b1 with 6.3."""
    text = _alone("a 16x16x16 bf16")
    assert _codes(text, target="sm_75", version=(6, 5)) == ["R31@1"]
    assert _codes(_alone("a 8x8x128 b1"), target="sm_75", version=(6, 3)) == []


def test_a_product_says_it_once() -> None:
    """A config that is refused for its floor: neither its fragments nor the next product again."""
    text = product_with(store="z = muladd x, y, z (16x16x16 f16*f16+f32->f32); " * 3 + STORE)
    assert _codes(text, via="mma", target="sm_75") == ["R31@10"]
    bf16 = text.replace("16x16x16 f16", "16x16x16 bf16").replace("f16*f16", "bf16*bf16").replace(
        "bbf16", "bf16").replace("float16", "bfloat16")  # fmt: skip
    assert _codes(bf16, target="sm_75") == ["R31@10"]
    other = text.replace("f32->f32); z", "f32->f16); z", 1).replace("f32->f32); z", "f32->f16); z")
    assert [c.partition("@")[0] for c in _codes(other, via="mma")].count("R32") == 1


def test_what_declines() -> None:
    config = Config(Shape(16, 16, 16), "bf16", "bf16", "f32", "f32")
    assert Wmma.decline(config, 75, (8, 0)) == ("R31", "bf16 needs sm_80")
    assert Wmma.decline(config, 80, (6, 5)) == ("R31", "bf16 needs PTX ISA 7.0")
    assert Wmma.decline(config, 80, (7, 0)) is None
    for via in VIAS.values():
        assert via.floor(_fragment("a 16x16x16 bf16")).sm == 80


def test_a_kernel_without_fragments_needs_no_target_of_mma() -> None:
    text = "kernel k(w: int32[]) { w[thread_idx_x] = 1; }"
    for target in ("sm_50", "sm_75", "sm_80"):
        mma, wmma = (lower(text, via=via, target=target).text() for via in ("mma", "wmma"))
        assert mma.replace("by mma", "by wmma") == wmma
        ptxsim.assemble(mma)


# --- refusals of fragments ------------------------------------------------------------------------


def test_fragments_are_named() -> None:
    (found,) = refusals(_alone("b 16x16x16 b1"))
    assert found.code == "R2" and "16x16x16" in found.reason  # no division by zero
    assert found.what == "fragment 'v' (b 16x16x16 b1 subgroup)"
    assert check_fragment(_fragment("b 16x16x16 b1"))[0].code == "R2"


@pytest.mark.parametrize("shape", ["16x16x16", "0x0x0", "1x1x1", "8x8x4", "8x8x32", "8x8x128"])
@pytest.mark.parametrize("component", ["f16", "tf32", "f64", "s8", "u4", "b1", "s32", "f32"])
@pytest.mark.parametrize("use", ["a", "b", "accumulator"])
def test_any_fragment_is_judged(use: str, component: str, shape: str) -> None:
    """Loads and stores of what there is not, too: refused by the fragment, in its line alone."""
    element = {"f16": "float16", "f64": "float64", "s8": "int8", "u4": "uint4", "b1": "bit",
               "s32": "int32"}.get(component, "float32")  # fmt: skip
    store = f"store v ({use} {shape} {component}) to a[0] stride 128 row;"
    text = f"""kernel k(a: {element}[]) {{
  fragment v: {use} {shape} {component};
  load v ({use} {shape} {component}) from a[0] stride 128 {"col" if use == "b" else "row"};
  {store if use == "accumulator" else ""}
}}"""
    wrong = check_fragment(_fragment(f"{use} {shape} {component}"))
    for via in VIAS:
        assert _codes(text, via=via) == [f"{r.code}@2" for r in wrong]


def test_one_refusal_for_a_fragment_and_its_products() -> None:
    text = """kernel k(a: float16[], c: float32[]) block(32, 1, 1) {
  fragment x: a 4x4x4 f16;
  fragment y: b 16x16x16 f16;
  fragment z: accumulator 16x16x16 f32;
  load x (a 4x4x4 f16) from a[0] stride 16 row;
  load y (b 16x16x16 f16) from a[0] stride 16 row;
  z = muladd x, y, z (16x16x16 f16*f16+f32->f32);
  z = muladd x, y, z (4x4x4 f16*f16+f32->f32);
  z = muladd x, y, z (4x4x4 f16*f16+f32->f32);
}"""
    (found,) = refusals(text)
    assert (found.code, found.line) == ("R2", 2)
    assert found.what == "fragment 'x' (a 4x4x4 f16 subgroup)"
    # what no declaration says is said of the product
    bare = text.replace("a 4x4x4", "a 16x16x16")
    assert [c for c in _codes(bare) if c.startswith("R2@")] == ["R2@8"] * 3 + ["R2@9"] * 3


# --- mistakes do not hide others ------------------------------------------------------------------

MIXED = """kernel k(a: float16[], w: int32[], q: uint8[], n: int32) block(32, 1, 1) {
  fragment x: a 16x16x16 f16;
  let lane: int32 = thread_idx_x;
  let v: int32 = 1.5;
  w[nope] = 2;
  load x (a 16x16x16 f16) from a[lane] stride 16 row;
  if n { load x (a 16x16x16 f16) from a[0] stride 17 row; }
  load x (a 16x16x16 f16) from a[v * 16] stride v row;
  w[0] = int32(q[0]);
  if lane < 3 { load x (a 16x16x16 f16) from a[0] stride 16 row; }
  while 1.0 { load x (a 16x16x16 f16) from a[-16] stride 16 row; }
  for i = 0.5 to lane { barrier; load x (a 16x16x16 f16) from a[i * 16] stride 16 row; }
  load x (a 16x16x16 f16) from a[1.5] stride 17 row;
  v = 3;
  if lane < w[0] { barrier; }
  load x (a 16x16x16 f16) from nope[lane] stride 16 row;
}
"""


def test_mistakes_and_values_in_one_run() -> None:
    """Bounds that are wrong, an index that is wrong: nothing is said of their values."""
    assert _codes(MIXED) == [
        "R28@4", "R28@5", "R36@6", "R28@7", "R34@7", "R17@9", "R35@10", "R28@11", "R33@11",
        "R28@12", "R28@13", "R28@14", "R38@15", "R21@16",
    ]  # fmt: skip


@pytest.mark.parametrize("line", range(4, 17))
def test_each_mistake_mended_leaves_the_others(line: int) -> None:
    """Without a line, the refusals of all other lines are the same."""
    lines = MIXED.splitlines(keepends=True)
    lines[line - 1] = "\n" if line != 4 else "  let v: int32 = w[1];\n"
    expected = [c for c in _codes(MIXED) if not c.endswith(f"@{line}")]
    assert _codes("".join(lines)) == expected


def test_what_check_kernel_gives() -> None:
    kernel = parse(MIXED)
    checked = check_kernel(kernel, "sm_80", (8, 0), Wmma, (32, 1, 1))
    statements = kernel.body.statements
    assert [s.line for s in statements if id(s) in checked.wrong] == [4, 5, 7, 9, 11, 12, 14]
    assert [s.line for s in statements if id(s) in checked.skipped] == [13, 16]
    assert {r.code for r in checked.refusals} == {"R17", "R21", "R28"}


def test_wrong_statements_stand_for_any_value() -> None:
    kernel = parse(MIXED)
    statements = kernel.body.statements
    wrong = {id(s) for s in statements if s.line in (4, 5, 7, 14)}
    found = repaired(kernel.body, wrong).statements
    assert [s.line for s in found] == [s.line for s in statements if s.line not in (5, 14)]
    let = found[2]
    assert isinstance(let, Let) and let.value == Element("?int32", Const(0))
    assert repaired(kernel.body, frozenset()) is kernel.body


#: Pieces that fit nowhere, or somewhere.
PIECES = [
    "n", "17", "16", "lane", "1.5", "true", "w[0]", "q[0]", "nope", "length(a)", "7i64", "!n",
    "-go", "go", "n < lane", "length(x)", "a[0]", "int64(n)", "float32(n)", "n / 0", "thread_idx_x",
]  # fmt: skip


@pytest.mark.parametrize(
    "seeds",
    [pytest.param(range(300), id="some"),
     pytest.param(range(1000, 4000), marks=pytest.mark.slow, id="many")],
)  # fmt: skip
def test_any_mixture_of_mistakes_is_refused_or_lowered(seeds: range) -> None:
    """Nothing but refusals comes out of it, and a mistake in one line keeps those of the others."""
    met: set[str] = set()
    for seed in seeds:
        rng = random.Random(seed)
        bare = "kernel k(a: float16[], w: int32[], q: uint8[], n: int32) block(32, 1, 1) {\n"
        bare += "  let lane: int32 = thread_idx_x; let mut go: bool = n < 3;\n"
        bare += "  fragment x: a 16x16x16 f16;\n"
        for _ in range(rng.randrange(2, 7)):
            p, q = (rng.choice(PIECES) for _ in range(2))
            load = f"load x (a 16x16x16 f16) from a[{p}] stride {q} row;"
            bare += "  " + rng.choice([
                load, f"if {p} {{ {load} }}", f"while {p} {{ {load} go = {q}; }}",
                f"for i = {p} to {q} {{ {load} }}", f"w[{p}] = {q};", f"n = {p};",
                f"let v: {rng.choice(['int32', 'bool', 'float64'])} = {p};",
                f"go = ({p}) == ({q});",
                f"if {p} {{ return; }}", f"if {p} {{ barrier; }} else {{ w[0] = {q}; }}",
                f"{{ let mut v: int64 = {p}; v = v + ({q}); }}",
                f"nope[{p}] = {q};", f"a[0] = {q};",
            ]) + "\n"  # fmt: skip
        found = {r.code for r in refusals(bare + "}\n")}
        met |= found or {"lowered"}
    assert met >= {"R17", "R21", "R28", "R34", "R35", "R36", "R38"}


# --- checks behind names --------------------------------------------------------------------------


def test_a_let_in_a_loop_is_hoisted() -> None:
    """A variable of one value that does not change in the loop does not keep a check in it."""
    body = "let at0: int32 = at * 2; let at2: int32 = at0 + 8; "
    load = "load x (a 16x16x16 f16) from a[at2] stride n row;"
    lowered = lower(product_with(f"for i = 0 to 3 {{ {body} {load} }}"))
    text = lowered.text().splitlines()
    label = next(k for k, t in enumerate(text, 1) if re.match(r"\$loop_\d+:", t))
    assert all(line < label for line in trap_lines(lowered.text()))
    assert "a[at * 2 + 8] is at a multiple of 32 bytes" in [p.check for p in lowered.planted]
    _fires(lowered, "a[at * 2 + 8] is at a multiple of 32 bytes", {"at": 8}, {"at": 4})
    # what changes stays, whatever it is called
    for change in ("i", "flags[0]", "m"):
        inner = f"let u: int32 = ({change}) * 8; {load.replace('at2', 'u')} m = m + 2;"
        loop = f"let mut m: int32 = 0; for i = 0 to 3 {{ {inner} }}"
        lowered = lower(product_with(loop))
        lines = trap_lines(lowered.text())
        label = next(k for k, t in enumerate(lowered.text().splitlines(), 1) if "$loop" in t)
        assert any(line > label for line in lines), change


def _fires(lowered: Lowered, check: str, bad: dict[str, Any], good: dict[str, Any]) -> None:
    arguments = product_arguments(**bad)
    assert traps(launch(lowered, arguments, smem=1024), lowered.text()) == (check, ALL)
    assert not stored(arguments)
    arguments = product_arguments(**good)
    assert launch(lowered, arguments, smem=1024).clean and stored(arguments)


def test_equal_checks_under_two_names_are_made_once() -> None:
    load = "load x (a 16x16x16 f16) from a[{}] stride {} row;"
    once = _checks(product_with(load.format("at", "n")))
    lets = "let u: int32 = at; let t: int32 = n; let s: int32 = u; "
    twice = _checks(product_with(lets + load.format("s", "t") + load.format("at", "n")))
    assert sorted(twice) == sorted(once)
    assert len(once) == len(set(once)) > 3


#: A name that means something else where the check would stand.
SHADOWS = [
    "let u: int32 = at; { let at: int32 = 8; LOAD }",
    "let u: int32 = at; for at = 3 to 3 { LOAD }",
    "let u: int32 = at; { let mut at: int32 = 16; at = at + 1; LOAD }",
    "let mut m: int32 = at; let u: int32 = m; m = 3; LOAD",
    "let mut m: int32 = at; let u: int32 = m * 1; for i = 0 to 1 { m = m + 1; LOAD }",
    "let mut u: int32 = 0; { let at: int32 = 5; u = at; } u = at; LOAD",
    "let u: int32 = flags[1] + at; barrier; flags[1 + thread_idx_x] = 5; LOAD",
    "let u: int32 = at; { let u2: int32 = u; let u: int32 = u2; LOAD }",
    "for i = 1 to 2 { let u: int32 = at * i - at * (i - 1); LOAD }",
    "let k: int32 = at; { let at: int32 = 3; { let u: int32 = k; LOAD } }",
]


@pytest.mark.parametrize("shadow", SHADOWS)
def test_names_that_are_declared_again(shadow: str) -> None:
    """The index is ``at`` of the launch, whatever the names are."""
    load = "load x (a 16x16x16 f16) from a[u] stride 16 row;"
    lowered = lower(product_with(LOAD + shadow.replace("LOAD", load)))
    for at in (0, 16, 64):
        arguments = product_arguments(at=at)
        assert launch(lowered, arguments, smem=1024).clean, at
    for at in (1, 8, 24):
        report = launch(lowered, product_arguments(at=at), smem=1024)
        assert traps(report, lowered.text())[0].endswith("is at a multiple of 32 bytes")
    report = launch(lowered, product_arguments(at=MANY), smem=1024)
    assert "elements from" in traps(report, lowered.text())[0]


def test_what_lets_stand_for() -> None:
    """Chains are followed; what may change, reads memory, or is large keeps its name."""
    lets = Lets()
    kernel = parse("""kernel k(w: int32[], n: int32) {
  let u: int32 = n * 2; let v: int32 = u + u; let mut m: int32 = v; let t: int32 = m;
  let r: int32 = w[0]; let big: int32 = (v + v) * (v + v) + (v + v) * (v + v); }""")
    for s in kernel.body.statements:
        lets.see(s)
    assert str(lets.plain(Var("v"))) == str(lets.plain(parse(
        "kernel k() { let q: int32 = n * 2 + n * 2; }").body.statements[0].value))  # type: ignore[union-attr] # fmt: skip
    for name in ("m", "t", "r", "big"):
        assert lets.plain(Var(name)) == Var(name)
    inner = lets.inner()
    inner.hide("n")
    assert inner.plain(Var("u")) == Var("u")
    assert lets.plain(Var("u")) != Var("u")


# --- scalars --------------------------------------------------------------------------------------


def test_deep_expressions_of_constants() -> None:
    """Folded from the leaves up, with the value that Python gives."""
    deep = "n"
    for k in range(60):
        deep = f"({deep} + {k})"
    flat = "1"
    for k in range(60):
        flat = f"({flat} * 3 + {k})"
    w = np.zeros(2, np.int32)
    lowered = lower(f"kernel k(w: int32[], n: int32) {{ w[0] = {deep}; w[1] = {flat}; }}")
    assert launch(lowered, {"w": w, "n": 5}, block=1).clean
    value = 1
    for k in range(60):
        value = value * 3 + k
    value = (value + 2**31) % 2**32 - 2**31
    assert w.tolist() == [5 + sum(range(60)), value]
    assert f"{value}" in lowered.text() and "mul" not in lowered.text()


def test_bounds_of_a_loop_are_computed_once() -> None:
    """What the body writes changes neither; the counter starts from what was read before."""
    text = """kernel k(w: int32[], n: int32) {
  let mut m: int32 = n;
  for i = w[0] to m + w[1] { w[2] = w[2] + 1; w[0] = 9; w[1] = 0; m = 0; }
}"""
    out = agree(text.replace("(w: int32[], n: int32)", "(w: int32[], n: int32) block(1, 1, 1)"),
                {"w": np.array([1, 2, 0], np.int32), "n": 3}, block=(1, 1, 1))["w"]  # fmt: skip
    assert out.tolist() == [9, 0, 5]
    assert lower(text).text().count("ld.global.b32") == 3  # of w[0], w[1] and w[2]

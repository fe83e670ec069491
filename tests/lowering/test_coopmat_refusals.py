"""Refusals of cooperative matrices: each code with thing and reason, and its nearest legal twin.

A case is one edit of a legal kernel: the kernel before it is lowered, after it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import pytest
from coopmat_kernels import lower, refusals

import lowering.coopmat.api
from lowering.coopmat.check import accessed_buffers, check_kernel, operand_layouts, sm_number
from lowering.coopmat.ir import Const, FragmentLoad, Kernel, Param, Var
from lowering.coopmat.refusals import REFUSALS, Refused
from lowering.coopmat.text import parse
from lowering.coopmat.wmma import Wmma

#: f16 into f32; the line of a statement is that of this text.
HALF = """kernel k(a: float16[] align 32, b: float16[], c: float32[], w: int32[], q: uint8[],
    n: int32) block(32, 1, 1) {
  shared tile: float16[256];
  local own: int32[4];
  constant table: int32[] = {1, 2};
  fragment x: a 16x16x16 f16;
  fragment y: b 16x16x16 f16;
  fragment z: accumulator 16x16x16 f32;
  let lane: int32 = thread_idx_x;
  load x (a 16x16x16 f16) from a[0] stride 16 row;
  load y (b 16x16x16 f16) from b[0] stride 16 col;
  load z (accumulator 16x16x16 f32) from c[0] stride 16 row;
  z = muladd x, y, z (16x16x16 f16*f16+f32->f32);
  store z (accumulator 16x16x16 f32) to c[0] stride 16 row;
  fragment other: a 16x16x16 f16;
  w[lane] = 2;
}
"""
LOAD_X = "load x (a 16x16x16 f16) from a[0] stride 16 row;"
LOAD_Z = "load z (accumulator 16x16x16 f32) from c[0] stride 16 row;"

#: A product with parts to be filled in: types of A, B, C and the result, shape, rest of config.
PRODUCT = """kernel k(a: EA[], b: EB[], c: EC[], d: ED[]) block(32, 1, 1) {
  fragment x: a SHAPE TA;
  fragment y: b SHAPE TB;
  fragment z: accumulator SHAPE TC;
  fragment r: accumulator SHAPE TD;
  load x (a SHAPE TA) from a[0] stride 128 row;
  load y (b SHAPE TB) from b[0] stride 128 col;
  load z (accumulator SHAPE TC) from c[0] stride 128 row;
  r = muladd x, y, z (SHAPE TA*TB+TC->TDREST);
  store r (accumulator SHAPE TD) to d[0] stride 128 row;
}
"""
_ELEMENTS = {
    "f16": "float16", "bf16": "bfloat16", "tf32": "float32", "f32": "float32", "f64": "float64",
    "u8": "uint8", "s8": "int8", "u4": "uint4", "s4": "int4", "b1": "bit", "u32": "int32",
    "s32": "int32",
}  # fmt: skip


def product(a: str, b: str, c: str, d: str, shape: str = "16x16x16", rest: str = "") -> str:
    """A kernel of one product; its muladd is in line 9."""
    text = PRODUCT.replace("SHAPE", shape).replace("REST", rest)
    for letter, type_ in zip("ABCD", (a, b, c, d), strict=True):
        text = text.replace(f"T{letter}", type_).replace(f"E{letter}[", f"{_ELEMENTS[type_]}[")
    return text


@dataclass(frozen=True)
class Case:
    """One edit, the refusals that it causes as ``code@line``, and what the first of them says."""

    expected: str
    old: str
    new: str
    message: str
    options: dict[str, Any] = field(default_factory=dict)
    base: str = HALF

    def __str__(self) -> str:
        return f"{self.expected.split()[0]}: {self.old[:20]} -> {self.new[:40]}"


def _sites(text: str, **options: Any) -> list[str]:
    return [f"{r.code}@{r.line}" for r in refusals(text, **options)]


OTHER = "fragment other: a 16x16x16 f16;"


def _other(fragment: str) -> tuple[str, str]:
    return OTHER, f"fragment other: {fragment};"


FRAGMENTS = [
    *(
        Case("R1@15", *_other(f"a 16x16x16 f16 {scope}"),
             rf"fragment 'other' \(a 16x16x16 f16 {scope}\): scope {scope}, but .* \(subgroup\)")
        for scope in ("workgroup", "device", "queue-family")
    ),
    *(
        Case("R2@15", *_other(f"a {shape} f16"),
             rf"'other' \(a {shape} f16 subgroup\): shape {shape}, but f16 has 16x16x16, 32x8x16")
        for shape in ("8x8x8", "16x16x8", "16x16x32", "0x0x0", "32x8x8", "16x8x16")
    ),
    Case("R2@15", *_other("a 8x32x16 f16"), "shape 8x32x16, but f16 has 16x16x16$",
         {"faithful": True}),
    *(
        Case("R3@15", *_other(f"{use} 16x16x16 {type_}"),
             rf"'other' \({use} 16x16x16 {type_} subgroup\): no {use.upper()} has components")
        for use, type_ in (("a", "f32"), ("a", "s32"), ("b", "u32"), ("b", "f32"))
    ),
    Case("R3@15", *_other("a 16x16x16 bf16"), "no A has components bf16; there are f16, s8, u8$",
         {"faithful": True}),
    *(
        Case("R4@15", *_other(f"accumulator 16x16x16 {type_}"),
             rf"\(accumulator 16x16x16 {type_} subgroup\): no accumulator has components {type_}")
        for type_ in ("s8", "u8", "bf16", "tf32", "b1", "s4")
    ),
    Case("R4@15", *_other("accumulator 16x16x16 f16"),
         "no accumulator has components f16; there are f32, s32, u32$", {"faithful": True}),
]  # fmt: skip


@pytest.mark.parametrize("case", FRAGMENTS, ids=str)
def test_fragments(case: Case) -> None:
    _refused(case)


@lru_cache(maxsize=64)
def _legal(text: str, faithful: bool) -> None:
    lower(text, faithful=faithful)


@contextmanager
def _no_text() -> Iterator[None]:
    """Any text that is begun is an error."""

    def never(*args: object, **options: object) -> None:
        raise AssertionError("text is written")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lowering.coopmat.api, "Text", never)
        patch.setattr(lowering.coopmat.api, "emit_kernel", never)
        yield


def _refused(case: Case) -> None:
    assert case.base.count(case.old) == 1
    _legal(case.base, "faithful" in case.options)
    text = case.base.replace(case.old, case.new)
    with _no_text(), pytest.raises(Refused) as raised:
        lower(text, **case.options)
    found = raised.value.refusals
    assert [f"{r.code}@{r.line}" for r in found] == case.expected.split(), raised.value
    first = found[0]
    assert re.search(case.message, f"{first.what}: {first.reason}"), first
    # the message of the exception has every code, thing and reason
    assert str(raised.value).startswith("cooperative matrices: ")
    assert all(r.what in str(raised.value) and r.reason in str(raised.value) for r in found)


# --- configs --------------------------------------------------------------------------------------

#: (code, illegal arguments of ``product``, what is said, legal arguments, options)
CONFIGS: list[tuple[str, tuple[str, ...], str, tuple[str, ...], dict[str, Any]]] = [
    ("R5", ("u8", "u8", "u32", "u32", "16x16x16", " saturating"), "limits of s32",
     ("u8", "u8", "s32", "s32", "16x16x16", " saturating"), {}),
    ("R5", ("bf16", "bf16", "f32", "f32", "16x16x16", " saturating"), "bf16 has no .satfinite",
     ("bf16", "bf16", "f32", "f32"), {}),
    ("R5", ("tf32", "tf32", "f32", "f32", "16x16x8", " saturating"), "tf32 has no .satfinite",
     ("tf32", "tf32", "f32", "f32", "16x16x8"), {}),
    ("R5", ("f64", "f64", "f64", "f64", "8x8x4", " saturating"), "f64 has no .satfinite",
     ("f64", "f64", "f64", "f64", "8x8x4"), {}),
    ("R5", ("b1", "b1", "s32", "s32", "8x8x128", " saturating xor"), "bits do not saturate",
     ("b1", "b1", "s32", "s32", "8x8x128", " xor"), {}),
    ("R5", ("s8", "s8", "s32", "s32", "16x16x16", " saturating"), "saturation is not lowered",
     ("s8", "s8", "s32", "s32"), {"faithful": True}),
    ("R5", ("f16", "f16", "f32", "f32", "16x16x16", " saturating"), "saturation is not lowered",
     ("f16", "f16", "f32", "f32"), {"faithful": True}),
    ("R6", ("u8", "s8", "s32", "s32"), "A is u8 and B is s8; wmma wants equal signs",
     ("u8", "u8", "s32", "s32"), {}),
    ("R6", ("s8", "u8", "s32", "s32"), "A is s8 and B is u8", ("s8", "s8", "s32", "s32"),
     {"faithful": True}),
    ("R6", ("s4", "u4", "s32", "s32", "8x8x32"), "A is s4 and B is u4",
     ("s4", "s4", "s32", "s32", "8x8x32"), {}),
    ("R7", ("s8", "s8", "s32", "u32"), "C is s32 and the result is u32",
     ("s8", "s8", "u32", "u32"), {}),
    ("R7", ("u8", "u8", "u32", "s32"), "C is u32 and the result is s32",
     ("u8", "u8", "u32", "u32"), {"faithful": True}),
    ("R8", ("f16", "f16", "s32", "s32"), "f16 accumulates in f16 or f32, not in s32",
     ("f16", "f16", "f16", "f16"), {}),
    ("R8", ("f16", "f16", "f32", "u32"), "not in u32", ("f16", "f16", "f32", "f16"), {}),
    ("R8", ("s8", "s8", "f32", "f32"), "s8 accumulates in s32 or u32, not in f32",
     ("s8", "s8", "s32", "s32"), {"faithful": True}),
    ("R8", ("bf16", "bf16", "f16", "f16"), "bf16 accumulates in f32, not in f16",
     ("bf16", "bf16", "f32", "f32"), {}),
    ("R9", ("f16", "s8", "f32", "f32"), "A is f16 and B is s8, which no product has",
     ("f16", "f16", "f32", "f32"), {}),
    ("R9", ("u8", "f16", "s32", "s32"), "A is u8 and B is f16",
     ("u8", "u8", "s32", "s32"), {"faithful": True}),
    ("R9", ("f16", "bf16", "f32", "f32"), "A is f16 and B is bf16",
     ("bf16", "bf16", "f32", "f32"), {}),
    ("R2", ("tf32", "tf32", "f32", "f32", "16x16x16"), "shape 16x16x16, but tf32 has 16x16x8",
     ("tf32", "tf32", "f32", "f32", "16x16x8"), {}),
    ("R29", ("b1", "b1", "s32", "s32", "8x8x128"), "modifier '', but b1 has xor, and",
     ("b1", "b1", "s32", "s32", "8x8x128", " and"), {}),
    ("R29", ("f16", "f16", "f32", "f32", "16x16x16", " rn"), "modifier 'rn', but f16 has none",
     ("f16", "f16", "f32", "f32"), {}),
    ("R29", ("f64", "f64", "f64", "f64", "8x8x4", " xor"), "but f64 has rn, rz, rm, rp",
     ("f64", "f64", "f64", "f64", "8x8x4", " rz"), {}),
    ("R29", ("s4", "s4", "s32", "s32", "8x8x32", " and"), "modifier 'and', but s4 has none",
     ("s4", "s4", "s32", "s32", "8x8x32"), {}),
]  # fmt: skip


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c[0]}: {' '.join(c[1])}")
def test_configs(config: tuple[str, tuple[str, ...], str, tuple[str, ...], dict[str, Any]]) -> None:
    """The config is refused where it stands, and at no other place unless a fragment is wrong."""
    code, bad, message, good, options = config
    lower(product(*good), **options)
    with _no_text():
        found = refusals(product(*bad), **options)
    where = {r.line for r in found}
    if code == "R2":  # said of the fragments of A and B, and not again of the product
        assert {r.code for r in found} == {"R2"}
        assert where == {2, 3}
    else:
        assert [r.code for r in found] == [code]
        assert where == {9}
        assert found[0].what.startswith("config '")
    assert any(message in r.reason for r in found)


# --- launches, names, buffers ---------------------------------------------------------------------

BLOCK = "block(32, 1, 1)"
BYTES = product("u8", "u8", "s32", "s32")

KERNELS = [
    # targets: no text exists before they are checked
    *(
        Case("R11@0", BLOCK, BLOCK, rf"target '{target}': no target of PTX", {"target": target})
        for target in ("86", "", "sm_999", "sm_86a", "compute_80", "sm_80 ")
    ),
    *(
        Case("R12@0", BLOCK, BLOCK, f"target {target}: cooperative matrices need sm_70",
             {"target": target})
        for target in ("sm_61", "sm_62", "sm_10")
    ),
    Case("R13@0", BLOCK, BLOCK, "target sm_70: factors of 8 bits need sm_72", {"target": "sm_70"},
         base=BYTES),
    # blocks of whole warps
    *(
        Case("R16@0", BLOCK, f"block({shape})", rf"block \({shape}\): {n} threads, but warps of 32")
        for shape, n in (("16, 1, 1", 16), ("33, 1, 1", 33), ("48, 1, 1", 48), ("5, 5, 5", 125))
    ),
    *(
        Case("R16@0", BLOCK, f"block({shape})", rf"{n} threads; a block has 1 to")
        for shape, n in (("0, 1, 1", 0), ("1024, 2, 1", 2048), ("1, 1, 128", 128))
    ),
    # buffers whose elements have no arithmetic
    Case("R17@16", "w[lane] = 2;", "w[lane] = int32(q[lane]);",
         "buffer 'q': uint8 has no arithmetic"),
    Case("R17@16", "w[lane] = 2;", "q[lane] = 2;", "buffer 'q': uint8 has no arithmetic"),
    Case("R17@16 R17@16", "w[lane] = 2;", "if a[0] == b[0] { }", "buffer 'a': float16"),
    # one buffer, two element types
    Case("R18@14", "to c[0]", "to a[0]", "buffer 'a': accessed as float32 here and as float16"),
    # operands that were not loaded
    Case("R19@13", LOAD_X, "", "fragment 'x': used as A, but not loaded on every way"),
    Case("R19@13", LOAD_X, "if n > 2 { " + LOAD_X + " }", "fragment 'x': used as A"),
    Case("R19@13", LOAD_X, "for i = 0 to n { " + LOAD_X + " }", "fragment 'x': used as A"),
    # declarations
    Case("R20@15", *_other("a 16x16x16 f16; fragment z: accumulator 16x16x16 f32"),
         "fragment 'z': declared twice"),
    Case("R21@10", "from a[0]", "from nope[0]", "buffer 'nope': no buffer of the kernel"),
    Case("R21@10", "from a[0]", "from n[0]", "buffer 'n': no buffer of the kernel"),
    Case("R21@16", "w[lane] = 2;", "w[lane] = nope[0];", "buffer 'nope'"),
    Case("R21@16", "w[lane] = 2;", "w[lane] = length(nope);", "buffer 'nope'"),
    Case("R22@10", "from a[0]", "from w[0]", "buffer 'w': elements int32, but f16 needs float16"),
    Case("R22@10", "from a[0]", "from q[0]", "buffer 'q': elements uint8, but f16 needs float16"),
    Case("R23@10", "own: int32[4];", "own: float16[256];",
         "buffer 'own': local memory is a thread's own",
         base=HALF.replace("from a[0]", "from tile[0]").replace("w[lane] = 2;", "")),
    Case("R24@12", "from c[0]", "from table[0]", "buffer 'table': .* global and shared memory only",
         base=HALF.replace("{1, 2}", "{" + ", ".join(["1.0"] * 256) + "}")
         .replace("table: int32", "table: float32")),
    Case("R25@16", "w[lane] = 2;",
         "store nope (accumulator 16x16x16 f32) to c[0] stride 16 row;",
         "fragment 'nope': not declared"),
    Case("R25@13", "z = muladd x", "z = muladd nope", "fragment 'nope': not declared"),
    Case("R25@16", "w[lane] = 2;",
         "{ fragment in: a 16x16x16 f16; } load in (a 16x16x16 f16) from a[0] stride 16 row;",
         "fragment 'in': not declared"),
    Case("R26@16", "w[lane] = 2;", "store x (a 16x16x16 f16) to a[0] stride 16 row;",
         "fragment 'x': a fragment of use a is stored; results are"),
    Case("R26@16", "w[lane] = 2;", "z = muladd x, y, other (16x16x16 f16*f16+f32->f32);",
         "fragment 'other': is a 16x16x16 f16 subgroup, but C of the product is accumulator"),
    # U12: swapped operands
    Case("R26@13 R26@13", "muladd x, y", "muladd y, x",
         "fragment 'y': is b 16x16x16 f16 subgroup, but A of the product is a 16x16x16 f16"),
    Case("R27@10", "load x (a 16x16x16 f16)", "load x (a 32x8x16 f16)",
         "fragment 'x': declared as a 16x16x16 f16 subgroup, here it is a 32x8x16 f16"),
    Case("R27@14", "store z (accumulator 16x16x16 f32)", "store z (accumulator 32x8x16 f32)",
         "fragment 'z': declared as accumulator 16x16x16 f32"),
    Case("R27@10", "load x (a 16x16x16 f16)", "load x (b 16x16x16 f16)", "fragment 'x'"),
    # one operand, both layouts
    Case("R10@16", "w[lane] = 2;", "load x (a 16x16x16 f16) from a[0] stride 16 col;",
         "fragment 'x': loaded as col here and as row before"),
    Case("R10@16", "w[lane] = 2;", "if n > 3 { load y (b 16x16x16 f16) from b[0] stride 16 row; }",
         "fragment 'y': loaded as row here and as col before"),
    # layouts of elements below eight bits
    Case("R30@6", "stride 128 row;\n  load y", "stride 128 col;\n  load y",
         "fragment 'x': layout col, but s4 is loaded as row",
         base=product("s4", "s4", "s32", "s32", "8x8x32")),
    Case("R30@7", "stride 128 col", "stride 128 row",
         "fragment 'y': layout row, but b1 is loaded as col",
         base=product("b1", "b1", "s32", "s32", "8x8x128", " xor")),
]  # fmt: skip


@pytest.mark.parametrize("case", KERNELS, ids=str)
def test_kernels(case: Case) -> None:
    if case.expected == "R23@10":
        case = replace(
            case, old="from tile[0]", new="from own[0]",
            base=case.base.replace(case.old, case.new),
        )  # fmt: skip
    _refused(case)


# --- names and types (R28), arrays (R37), barriers (R38) ------------------------------------------


def _last(new: str, message: str, code: str = "R28") -> Case:
    """A statement in place of the last one."""
    return Case(f"{code}@16", "w[lane] = 2;", new, message)


def _head(old: str, new: str, message: str, code: str = "R28") -> Case:
    """Something else in the head of the kernel."""
    return Case(f"{code}@0", old, new, message)


TILE, TABLE = "shared tile: float16[256];", "constant table: int32[] = {1, 2};"

NAMES = [
    _last("w[lane] = 2.0;", "element of 'w': is float32, but int32 is needed"),
    _last("w[2.0] = 2;", "index of 'w': is float32, but int32 or int64 is needed"),
    _last("let v: int32 = 1.5;", "value of 'v': is float32"),
    _last("nope = 3;", "'nope': not declared"),
    _last("let v: int32 = nope;", "'nope': not declared"),
    _last("{ let v: int32 = 1; } w[v] = 2;", "'v': not declared"),
    _last("for i = 0 to 3 { } w[i] = 2;", "'i': not declared"),
    _last("lane = 3;", "'lane': not mutable"),
    _last("for i = 0 to 3 { i = 2; }", "'i': not mutable"),
    _last("let v: int32 = 1; let v: int32 = 2;", "'v': declared twice in one block"),
    _last("if n { }", "condition: is int32, but bool is needed"),
    _last("while 1.0 { }", "condition: is float32, but bool is needed"),
    _last("for i = 0.5 to n { }", "bound: is float32, but int32 is needed"),
    _last("for i = 0 to 2i64 { }", "bound: is int64, but int32 is needed"),
    _last("w[0] = 1 + 2i64;", "'add' of int32 and int64: both sides must have one type"),
    _last("w[0] = int32(1.5 % 2.0);", "'mod' of float32: it takes int32, int64"),
    _last("let v: float32 = ~1.0;", "'bitnot' of float32: it takes int32, int64"),
    _last("let v: bool = !n;", "'not' of int32: it takes bool"),
    _last("let v: bool = -true;", "'neg' of bool"),
    _last("let v: bool = true < false;", "'lt' of bool"),
    _last("let v: bool = n && n < 2;", "'and' of int32 and bool"),
    _last("w[0] = 2147483648;", "constant 2147483648: does not fit into int32"),
    _last("w[0] = -2147483649;", "constant .*2147483649: does not fit into int32"),
    _last("let v: int64 = 9223372036854775808i64;", "does not fit into int64"),
    _last("table[0] = 1;", "buffer 'table': constants cannot be stored to"),
    _last("w[0] = length(own);", "buffer 'own': no buffer with a length", "R21"),
    _last(LOAD_X.replace("a[0]", "a[1.0]"), "index: is float32, but int32 or int64 is needed"),
    _last(LOAD_X.replace("stride 16", "stride 16i64"), "stride: is int64, but int32 is needed"),
    _head("n: int32)", "n: int32, n: int32)", "'n': declared twice"),
    _head("n: int32)", "n: int32, tile: int32[])", "'tile': declared twice"),
    _head("kernel k(", "kernel _(", "kernel '_': no name that PTX has"),
    _head(TABLE, "constant table: int32[] = {1, 2147483648};", "2147483648 is no int32"),
    _head(TABLE, "constant table: int32[] = {1, 2.5};", "2.5 is no int32"),
    _head(TABLE, "constant table: float16[] = {1};", "no constants of float16"),
    _head(TILE, "shared tile: float16[0];", "'tile': 0 elements", "R37"),
    _head(TILE, "shared tile: float16[99999999999];", "'tile': 99999999999 elements", "R37"),
    _head(TILE, "shared tile: float16[24577];",
          "arrays in shared memory: 49184 bytes, but a kernel has 49152", "R37"),
    _head(TILE, TILE + " shared t2: float32[]; shared t3: float32[];",
          "'t2' and 't3': a kernel has one dynamic array", "R37"),
    _head(TABLE, "constant table: int32[] = {" + ", ".join(["1"] * 16385) + "};",
          "arrays in constant memory: 65540 bytes, but a kernel has 65536", "R37"),
    _head("local own: int32[4];", "local own: int32[0];", "'own': 0 elements", "R37"),
]  # fmt: skip

LANE, WARP = "that depends on the lane", "that depends on the warp"
BARRIERS = [
    _last("if lane < 4 { barrier; }", f"barrier of the block: .*{LANE}", "R38"),
    _last("if lane < 4 { barrier warp; }", f"barrier of the warp: .*{LANE}", "R38"),
    _last("if lane < 4 { } else { barrier; }", LANE, "R38"),
    _last("for i = 0 to lane { barrier; }", LANE, "R38"),
    _last("while lane < 4 { barrier; }", LANE, "R38"),
    _last("while lane < 4 { barrier warp; }", LANE, "R38"),
]


@pytest.mark.parametrize("case", [*NAMES, *BARRIERS], ids=str)
def test_names_types_arrays_barriers(case: Case) -> None:
    _refused(case)


@pytest.mark.parametrize(
    "text",
    [
        "w[lane] = -2147483648;", "let v: int64 = -9223372036854775808i64;",
        "let v: int32 = 1; { let v: float32 = 2.0; }", "let mut v: int32 = 1; v = 2;",
        "w[2i64] = 2;", "w[lane] = int32(3.7);", "w[0] = length(w) + length(tile);",
        "own[1] = table[1]; w[lane] = own[1];", "if n < 4 { barrier; }", "barrier warp;",
        "for i = 0 to n { barrier; }", "while n < 0 { barrier; }",
        LOAD_X.replace("a[0]", "a[0i64]"),
    ],
)  # fmt: skip
def test_legal_statements(text: str) -> None:
    """What stands beside the cases above and is legal."""
    assert refusals(HALF.replace("w[lane] = 2;", text)) == ()


def test_warps_may_part_where_only_a_warp_waits() -> None:
    text = "kernel k(w: int32[]) block(64, 1, 1) { if thread_idx_x / 32 == 0 { barrier BARRIER; } }"
    lower(text.replace("BARRIER", "warp"))
    (found,) = refusals(text.replace("BARRIER", "block"))
    assert found.code == "R38"
    assert WARP in found.reason


def test_names_that_no_text_can_spell() -> None:
    kernel = parse(HALF)
    assert [r.code for r in refusals(replace(kernel, name="a b"))] == ["R28"]
    wrong = Param("é", "int32")
    (found,) = refusals(replace(kernel, params=(*kernel.params, wrong)))
    assert (found.code, found.what) == ("R28", "'é'")
    for param in (Param("v", "int8"), Param("v", "float16"), Param("v", "nope", True)):
        (found,) = refusals(replace(kernel, params=(*kernel.params, param)))
        assert (found.code, found.what) == ("R28", "'v'")
    for align in (0, -1, 3, 2048):
        (found,) = refusals(
            replace(kernel, params=(*kernel.params, Param("v", "int32", True, align)))
        )
        assert "no power of two" in found.reason


# --- indices, strides, lanes (R33 to R36) ---------------------------------------------------------

VALUES = [
    Case("R33@10", "a[0]", "a[1]", r"a\[1\]: lies 2 bytes behind a multiple of 32 bytes; 32 bytes"),
    Case("R33@10", "a[0]", "a[n * 16 + 8]", "lies 16 bytes behind a multiple of 32 bytes"),
    Case("R33@10", "a[0]", "a[n * 32 + 15]", "lies 30 bytes behind"),
    Case("R33@10", "a[0]", "a[-16]", "index -16: is negative"),
    Case("R33@10", "a[0]", "a[0 - 2147483647 - 1]", "is negative"),
    Case("R33@10", "a[0]", "a[-16i64]", "is negative"),
    Case("R33@16", "w[lane] = 2;", "load x (a 16x16x16 f16) from tile[16] stride 16 row;",
         r"tile\[16\]: the tile ends at 272, but 'tile' has 256 elements"),
    Case("R33@16", "w[lane] = 2;", "load x (a 16x16x16 f16) from tile[0] stride 32 row;",
         r"tile\[0\]: the tile ends at 496, but 'tile' has 256 elements"),
    Case("R33@16 R33@16", "w[lane] = 2;", "load x (a 16x16x16 f16) from tile[8] stride 16 row;",
         "lies 16 bytes behind a multiple of 32 bytes"),
    Case("R34@10", "a[0] stride 16", "a[0] stride 17", "stride 17: is no multiple of 16 elements"),
    Case("R34@10", "a[0] stride 16", "a[0] stride 24", r"is no multiple of 16 elements \(32 bytes"),
    Case("R34@10", "a[0] stride 16", "a[0] stride n * 16 + 8", "is no multiple of 16 elements"),
    Case("R34@10", "a[0] stride 16", "a[0] stride 0", "stride 0: is less than a line of 16"),
    Case("R34@10", "a[0] stride 16", "a[0] stride -16", "stride -16: is less than a line of 16"),
    Case("R34@12", "c[0] stride 16 row;\n  z", "c[0] stride 20 row;\n  z",
         r"stride 20: is no multiple of 8 elements \(32 bytes\)"),
    Case("R36@10", "a[0]", "a[lane * 16]", "index thread_idx_x \\* 16: depends on the lane"),
    Case("R36@10", "a[0]", "a[(thread_idx_x + n) * 16]", "depends on the lane"),
    Case("R36@10", "a[0] stride 16", "a[0] stride 16 + thread_idx_x / 16 * 16",
         "stride .*: depends on the lane"),
    Case("R35@16", "w[lane] = 2;", "if lane < 4 { " + LOAD_X + " }",
         "'lane < 4': depends on the lane, and there are cooperative-matrix statements inside"),
    Case("R35@16", "w[lane] = 2;", "if n < 4 { if thread_idx_x != 0 { } else { " + LOAD_X + " } }",
         "'thread_idx_x != 0': depends on the lane"),
    Case("R35@16", "w[lane] = 2;", "while thread_idx_x < 4 { " + LOAD_X + " }",
         "'thread_idx_x < 4': depends on the lane"),
    Case("R35@16", "w[lane] = 2;", "while lane < 4 { " + LOAD_X + " }",
         "'lane < 4': depends on the lane"),
    Case("R35@16", "w[lane] = 2;", "for i = 0 to lane { " + LOAD_X + " }",
         "'lane': depends on the lane"),
    Case("R35@16", "w[lane] = 2;", "for i = lane to 40 { " + LOAD_X + " }",
         "'lane': depends on the lane"),
    Case("R35@16", "w[lane] = 2;", "if lane < 4 { return; } " + LOAD_X,
         "'lane < 4': .* statements later, which lanes that returned do not reach"),
    Case("R35@16", "w[lane] = 2;", "for i = 0 to n { if lane == i { return; } " + LOAD_X + " }",
         "'lane == i': depends on the lane"),
    Case("R35@16", "w[lane] = 2;",
         "for i = 0 to n { " + LOAD_X + " if lane == i { return; } }",
         "'lane == i': depends on the lane"),
]  # fmt: skip


@pytest.mark.parametrize("case", VALUES, ids=str)
def test_values(case: Case) -> None:
    _refused(case)


@pytest.mark.parametrize(
    "new",
    [
        "a[16]", "a[n * 16]", "a[n * 32 + 16]", "a[16i64]", "a[thread_idx_x / 32 * 16]",
        "a[(thread_idx_x + n) / 1 * 0]", "a[block_idx_x * 256]", "a[n]", "a[length(a) - 256]",
    ],
)  # fmt: skip
def test_legal_indices(new: str) -> None:
    assert refusals(HALF.replace("a[0]", new)) == ()


@pytest.mark.parametrize(
    "text",
    [
        "if n < 4 { LOAD }", "if thread_idx_x / 32 == 0 { LOAD }", "while n < 4 { LOAD }",
        "for i = 0 to n { LOAD }", "if n < 3 { return; } LOAD", "LOAD if lane < 4 { return; }",
        "if w[lane] < 4 { LOAD }", "if lane < 4 { w[lane] = 1; } LOAD",
        "load x (a 16x16x16 f16) from tile[0] stride 16 row;",
        "load x (a 16x16x16 f16) from a[0] stride 32 row;",
        "load x (a 16x16x16 f16) from a[0] stride n * 16 row;",
    ],
)  # fmt: skip
def test_legal_accesses(text: str) -> None:
    assert refusals(HALF.replace("w[lane] = 2;", text.replace("LOAD", LOAD_X))) == ()


# --- the functions --------------------------------------------------------------------------------


def test_sm_number() -> None:
    """N31."""
    words = ("sm_86", "sm_90a", "sm_100f", "86", "", "sm_", "sm_90 ", "sm_9x0", "SM_90", "sm_٣")
    assert [sm_number(w) for w in words] == [86, 90, 100, *[None] * 7]


def test_operand_layouts_walks_all_statements() -> None:
    nested = LOAD_X.replace("row", "col")
    text = HALF.replace("w[lane] = 2;", f"if n < 2 {{ }} else {{ for i = 0 to n {{ {nested} }} }}")
    layouts, conflicts = operand_layouts(parse(text))
    assert layouts == {"x": "row", "y": "col"}
    assert [(r.code, r.what, r.line) for r in conflicts] == [("R10", "fragment 'x'", 16)]
    assert operand_layouts(parse(HALF)) == ({"x": "row", "y": "col"}, [])
    # accumulators are no operands: any layout, several of them
    both = HALF.replace("w[lane] = 2;", LOAD_Z.replace("row", "col"))
    assert operand_layouts(parse(both))[1] == []
    lower(both)


def test_accessed_buffers_in_the_order_of_their_first_use() -> None:
    assert accessed_buffers(parse(HALF)) == ["a", "b", "c"]
    text = HALF.replace("w[lane] = 2;", "if n < 2 { load x (a 16x16x16 f16) from tile[0] stride 16"
                        " row; }")  # fmt: skip
    assert accessed_buffers(parse(text)) == ["a", "b", "c", "tile"]


def test_check_kernel_looks_at_every_statement() -> None:
    """R14 and R15: what check_fragment, check_config and operand_layouts refuse."""
    deep = (
        "if n < 2 { } else { while n < 3 { { fragment u: a 16x16x16 f32 workgroup; } } "
        "for i = 0 to 3 { z = muladd x, y, z (16x16x16 f16*f16+f32->f32 rn); "
        "load x (a 16x16x16 f16) from a[0] stride 16 col; } }"
    )
    kernel = parse(HALF.replace("w[lane] = 2;", deep))
    checked = check_kernel(kernel, "sm_80", (8, 0), Wmma, (32, 1, 1))
    assert sorted(r.code for r in checked.refusals) == ["R1", "R10", "R29", "R3"]
    assert checked.wrong == checked.skipped == frozenset()


def test_a_kernel_without_cooperative_matrices_needs_no_target_of_them() -> None:
    text = "kernel k(w: int32[]) block(33, 1, 1) { w[0] = 1; }"
    lower(text, target="sm_50")
    assert [r.code for r in refusals(text, target="86")] == ["R11"]


@pytest.mark.parametrize(
    ("block", "codes"),
    [
        ((16, 1, 1), ["R16"]), ((32, 1, 1), []), ((33, 1, 1), ["R16"]), ((8, 4, 1), []),
        (None, []), ((8, 2, 2), []), ((1024, 1, 1), []), ((1056, 1, 1), ["R16"]),
        ((-32, -1, 1), ["R16"]), ((32, 0, 1), ["R16"]),
    ],
)  # fmt: skip
def test_blocks(block: tuple[int, int, int] | None, codes: list[str]) -> None:
    """N34."""
    text = HALF.replace("block(32, 1, 1)", "")
    assert [r.code for r in refusals(text, block=block)] == codes
    assert [r.code for r in refusals(text, block=block, faithful=True)] == codes


def test_the_control_of_no_text() -> None:
    """N32: what :func:`_refused` shows of each case does not hold for a legal kernel."""
    with _no_text(), pytest.raises(AssertionError, match="text is written"):
        lower(HALF)


# --- floors ---------------------------------------------------------------------------------------

#: Arguments of ``product``, the first target and the first PTX ISA version that have it in wmma, by
#: the assemblers of CUDA 12.9 and 13.0 (tests/data/mma-forms.tsv), and the target below.
FLOORS: list[tuple[tuple[str, ...], str, tuple[int, int], str]] = [
    (("f16", "f16", "f32", "f32"), "sm_70", (6, 3), "sm_62"),
    (("f16", "f16", "f16", "f32", "32x8x16"), "sm_70", (6, 3), "sm_62"),
    (("s8", "s8", "s32", "s32"), "sm_72", (6, 3), "sm_70"),
    (("u8", "u8", "u32", "u32", "8x32x16"), "sm_72", (6, 3), "sm_70"),
    (("s4", "s4", "s32", "s32", "8x8x32"), "sm_75", (6, 3), "sm_72"),
    (("u4", "u4", "s32", "s32", "8x8x32", " saturating"), "sm_75", (6, 3), "sm_72"),
    (("b1", "b1", "s32", "s32", "8x8x128", " xor"), "sm_75", (6, 3), "sm_72"),
    (("b1", "b1", "s32", "s32", "8x8x128", " and"), "sm_80", (7, 1), "sm_75"),
    (("bf16", "bf16", "f32", "f32"), "sm_80", (7, 0), "sm_75"),
    (("tf32", "tf32", "f32", "f32", "16x16x8"), "sm_80", (7, 0), "sm_75"),
    (("f64", "f64", "f64", "f64", "8x8x4"), "sm_80", (7, 0), "sm_75"),
]


@pytest.mark.parametrize("floor", FLOORS, ids=lambda f: " ".join(f[0]))
def test_floors(floor: tuple[tuple[str, ...], str, tuple[int, int], str]) -> None:
    arguments, target, version, below = floor
    text = product(*arguments)
    lower(text, target=target, version=version).kernel.assemble()
    lower(text, target="sm_121a").kernel.assemble()
    (low,) = refusals(text, target=below, version=max(version, (6, 3)))
    code = {"sm_62": "R12", "sm_70": "R13"}.get(below, "R31")
    assert low.code == code
    assert target in low.reason
    earlier = {(6, 3): (6, 2), (7, 0): (6, 5), (7, 1): (7, 0)}[version]
    for old in refusals(text, target=target, version=earlier):
        assert old.code == "R31"
        assert ".".join(map(str, version)) in f"{old.reason}"


def test_an_old_version_is_refused_once() -> None:
    """What every statement of a kernel needs is said once, and not again for each config."""
    (found,) = refusals(HALF, target="sm_70", version=(6, 2))
    assert (found.code, found.line) == ("R31", 0)
    assert "6.2" in found.what


def test_saturating_f16_ended_with_6_4() -> None:
    text = product("f16", "f16", "f32", "f32", "16x16x16", " saturating")
    lower(text, target="sm_75", version=(6, 4)).kernel.assemble()
    (found,) = refusals(text, target="sm_75", version=(6, 5))
    assert (found.code, found.line) == ("R31", 9)
    assert "ended with PTX ISA 6.4" in found.reason


def test_versions_that_do_not_know_the_target() -> None:
    (found,) = refusals(HALF, target="sm_80", version=(6, 5))
    assert (found.code, found.reason) == ("R31", "sm_80 needs a version from 7.0 on")
    (found,) = refusals(HALF, target="sm_90", version=(7, 9))
    assert found.code == "R31"


#: What mma.sync cannot compute, and the nearest that it can.
MMA = [
    (("f16", "f16", "f16", "f32"), "c and gives the result in one type",
     ("f16", "f16", "f32", "f32")),
    (("f16", "f16", "f32", "f16"), "c and gives the result in one type",
     ("f16", "f16", "f16", "f16")),
]  # fmt: skip


@pytest.mark.parametrize("pair", MMA, ids=lambda p: " ".join(p[0]))
def test_what_mma_cannot_compute(pair: tuple[tuple[str, ...], str, tuple[str, ...]]) -> None:
    bad, message, good = pair
    lower(product(*good), via="mma")
    lower(product(*bad), via="wmma")
    (found,) = refusals(product(*bad), via="mma")
    assert (found.code, found.line) == ("R32", 9)
    assert message in found.reason


def test_mma_needs_a_newer_target_and_multiplies_mixed_signs() -> None:
    (found,) = refusals(HALF, via="mma", target="sm_75")
    assert (found.code, found.line) == ("R31", 13)
    mixed = product("s8", "u8", "s32", "s32")
    lower(mixed, via="mma")
    assert [r.code for r in refusals(mixed)] == ["R6"]


# --- many faults ----------------------------------------------------------------------------------

MANY = """kernel k(a: float16[], b: float16[], c: float32[], w: int32[], q: uint8[], n: int32) {
  shared tile: float16[256];
  local own: float16[256];
  constant table: float32[] = {1.0};
  fragment x: a 16x16x16 f16;
  fragment y: b 16x16x16 f16;
  fragment y2: b 16x16x16 f16;
  fragment z: accumulator 16x16x16 f32;
  let lane: int32 = thread_idx_x;
  fragment bad1: a 16x16x16 f16 workgroup;
  fragment bad2: a 8x8x8 f16;
  fragment bad3: b 16x16x16 s32;
  fragment bad4: accumulator 16x16x16 s8;
  fragment z: accumulator 16x16x16 f32;
  load x (a 16x16x16 f16) from a[0] stride 16 row;
  load x (a 16x16x16 f16) from a[0] stride 16 col;
  load y (b 16x16x16 f16) from b[0] stride 16 col;
  load z (accumulator 16x16x16 f32) from c[0] stride 16 row;
  load x (a 32x8x16 f16) from a[0] stride 16 row;
  load x (a 16x16x16 f16) from own[0] stride 16 row;
  load x (a 16x16x16 f16) from w[0] stride 16 row;
  load z (accumulator 16x16x16 f32) from table[0] stride 16 row;
  load nope (a 16x16x16 f16) from a[0] stride 16 row;
  z = muladd x, y2, z (16x16x16 f16*f16+f32->f32);
  z = muladd y, y, z (16x16x16 f16*f16+f32->f32);
  z = muladd x, y, z (16x16x16 f16*f16+f32->f32 rn);
  store x (a 16x16x16 f16) to a[0] stride 16 row;
  store z (accumulator 16x16x16 f32) to b[0] stride 16 row;
  w[0] = int32(q[0]);
}
""".replace("{1.0}", "{" + ", ".join(["1.0"] * 256) + "}")
MANY_FOUND = [
    "R12@0", "R1@10", "R2@11", "R3@12", "R4@13", "R20@14", "R10@16", "R27@19", "R23@20", "R22@21",
    "R24@22", "R25@23", "R19@24", "R26@25", "R29@26", "R26@27", "R18@28", "R17@29",
]  # fmt: skip


def test_all_faults_in_one_run() -> None:
    """Each line has one fault, and none of them causes another refusal."""
    assert _sites(MANY, target="sm_61") == MANY_FOUND
    with_block = MANY.replace("n: int32) {", "n: int32) block(16, 1, 1) {")
    assert sorted(_sites(with_block, target="sm_61")) == sorted([*MANY_FOUND, "R16@0"])


def test_faults_of_values_in_one_run() -> None:
    """What the analysis of values refuses, beside faults that need none."""
    text = HALF.replace("a: float16[]", "h: float16[] align 32, a: float16[]").replace(
        "  w[lane] = 2;",
        """  load x (a 16x16x16 f16) from a[-16] stride 16 row;
  load x (a 16x16x16 f16) from a[0] stride 17 row;
  load x (a 16x16x16 f16) from a[lane] stride 16 row;
  if lane < 4 { barrier; }
  if lane < 4 { load x (a 16x16x16 f16) from a[0] stride 16 row; }
  load x (a 16x16x16 f16) from h[3] stride 16 row;
  load x (a 16x16x16 f16) from a[0] stride 16 col;""",
    )
    expected = ["R33@16", "R34@17", "R36@18", "R38@19", "R35@20", "R33@21", "R10@22"]
    assert _sites(text) == expected


def test_a_refused_config_is_not_compared_with_its_fragments() -> None:
    """That the fragments differ from a config which no product has says nothing more."""
    for config in ("16x16x16 f16*f16+f32->f32 workgroup", "8x8x8 f16*f16+f32->f32",
                   "16x16x16 f16*f16+f32->s32", "16x16x16 f16*s8+f32->f32",
                   "16x16x16 f16*f16+s8->f32"):  # fmt: skip
        text = HALF.replace("16x16x16 f16*f16+f32->f32", config)
        codes = {r.code for r in refusals(text)}
        assert codes <= {"R1", "R2", "R4", "R8", "R9"}, (config, codes)


def test_every_code_has_a_case() -> None:
    """R14 and R15 are other names of R1 to R10 as check_kernel finds them."""
    cases = [*FRAGMENTS, *KERNELS, *NAMES, *BARRIERS, *VALUES]
    covered = {site.partition("@")[0] for c in cases for site in c.expected.split()}
    covered |= {c[0] for c in CONFIGS} | {"R31", "R32"} | {"R14", "R15"}
    assert covered == set(REFUSALS)


def test_constants_of_no_type() -> None:
    """A kernel made of IR can hold what no text spells."""
    kernel: Kernel = parse(HALF)
    before, first = kernel.body.statements[:4], kernel.body.statements[4]
    assert isinstance(first, FragmentLoad)
    after = kernel.body.statements[5:]
    for index in (Const(True), Const(1.5), Const(0, "nope"), Var("é")):
        body = replace(kernel.body, statements=(*before, replace(first, index=index), *after))
        assert [r.code for r in refusals(replace(kernel, body=body))] == ["R28"]

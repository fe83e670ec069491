"""What passes for what in a call; verdicts of ptxas 13.0, for code of no target yet."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

import ptxsim
from ptxsim.diagnostics import Diagnostic, Source
from ptxsim.errors import PtxError
from ptxsim.resolve import resolve
from ptxsim.syntax import parse

_HEAD = """.version {version}
.target {target}
.address_size 64
.global .b32 gv; .global .align 4 .b8 ga[16]; .const .b32 cv; .shared .b32 sv;
{declarations}
.visible .entry k(.param .u32 kp, .param .align 4 .b8 ka[4]) {{
"""
_REGISTERS = """
  .reg .pred %p<4>; .reg .b8 %b<4>; .reg .b16 %h<4>; .reg .u16 %uh<4>; .reg .b32 %r<4>;
  .reg .u32 %u<4>; .reg .s32 %s<4>; .reg .f32 %f<4>; .reg .b64 %rd<4>; .reg .u64 %ud<4>;
  .reg .f64 %fd<4>; .reg .f16 %hf<4>; .reg .f16x2 %hx<4>; .reg .v2 .b32 %v2<2>;
  .reg .v4 .f32 %v4<2>; .local .b32 lv;
"""
_WIDE = "  .reg .b128 %q<2>;\n"
_TAIL = "\n  ret;\n}\n"


def _errors(
    declarations: str, body: str, version: str = "8.3", target: str = "sm_90"
) -> tuple[Diagnostic, ...]:
    head = _HEAD.format(version=version, target=target, declarations=declarations)
    text = head + _REGISTERS + _WIDE * (target == "sm_90") + body + _TAIL
    try:
        return resolve(parse(text), Source("call.ptx", text)).diagnostics
    except PtxError as error:
        return tuple(error.diagnostics)


LITERALS = (
    "1", "-1", "300", "-129", "70000", "-40000", "0x100000000", "-0x80000001",
    "0xFFFFFFFFFFFFFFFF", "1U", "1.0", "-1.0", "0f3F800000", "0d3FF0000000000000", "1+2",
    "1.0+2.0", "1 > 0", "(.u64) 1", "WARP_SZ", "1e300",
)  # fmt: skip

#: Kinds of parameters -> which of the literals pass (a dot) and which do not (an X).
PASSES = {
    "bits": "....................",
    "integer": "..........XXXX.X...X",
    "float": "XXXXXXXXXX....X.XXX.",
    "pair of halves": "XXXXXXXXXXXX.XXXXXXX",
    "none": "XXXXXXXXXXXXXXXXXXXX",
}
FORMALS = {
    **{f".{s} .b{n} a": "bits" for s in ("param", "reg") for n in (8, 16, 32, 64, 128)},
    **{
        f".{s} .{k}{n} a": "integer"
        for s in ("param", "reg") for k in "us" for n in (8, 16, 32, 64)
    },
    **{f".{s} .f{n} a": "float" for s in ("param", "reg") for n in (16, 32, 64)},
    ".reg .f16x2 a": "pair of halves",
    ".reg .pred a": "none",
    ".param .align 4 .b8 a[4]": "none",
    ".param .align 8 .b8 a[8]": "none",
    ".param .align 4 .b32 a[1]": "none",
}  # fmt: skip


@pytest.mark.parametrize("formal", FORMALS)
def test_constants_as_arguments(formal: str) -> None:
    """The kind decides, not the value: what is too large for the parameter is cut off."""
    calls = "\n".join(f"call f, ({literal});" for literal in LITERALS)
    found = _errors(f".func f({formal}) {{ ret; }}", calls)
    assert {d.code for d in found} <= {"PTX111"}
    first = _HEAD.count("\n") + _REGISTERS.count("\n") + 2
    lines = {d.span.line - first for d in found}
    verdicts = "".join("X" if n in lines else "." for n in range(len(LITERALS)))
    assert verdicts == PASSES[FORMALS[formal]]


#: Parameter, literal -> what arrives, from the code that ptxas 13.0 makes.
ARRIVES = [
    ("f32", "1.5", 0x3FC00000), ("f32", "0f3FC00000", 0x3FC00000),
    ("f32", "0d3FF8000000000000", 0x3FC00000), ("f32", "1e300", 0x7F800000),
    ("f64", "1.5", 0x3FF8000000000000), ("f64", "0f3FC00000", 0x3FC00000),
    ("b32", "1.5", 0), ("b32", "0f3F800000", 0x3F800000), ("b32", "0d3FF8000000000000", 0),
    ("b64", "1.5", 0x3FF8000000000000), ("b64", "0f3F800000", 0x3F800000),
    ("u32", "0x123456789", 0x23456789), ("u32", "-40000", 0xFFFF63C0), ("s32", "-1", 0xFFFFFFFF),
    ("s64", "-1", 0xFFFFFFFFFFFFFFFF), ("u64", "WARP_SZ", 32),
]  # fmt: skip


@pytest.mark.parametrize("space", ["param", "reg"])
def test_the_bits_of_constants(space: str) -> None:
    functions, calls = [], []
    for n, (type_, literal, _) in enumerate(ARRIVES):
        value = "a"
        load = ""
        if space == "param":
            value = "%v"
            load = f".reg .{type_} %v; ld.param.{type_} %v, [a];"
        functions.append(
            f".func f{n}(.reg .b64 o, .{space} .{type_} a) {{ {load}"
            f" st.global.{type_} [o], {value}; ret; }}"
        )
        calls.append(f"call f{n}, (%o, {literal}); add.u64 %o, %o, 8;")
    text = (
        ".version 8.3 .target sm_90 .address_size 64\n" + "\n".join(functions)
        + ".visible .entry k(.param .u64 p) { .reg .b64 %o; ld.param.u64 %o, [p];\n"
        + "\n".join(calls) + "ret; }"
    )  # fmt: skip
    out = np.zeros(len(ARRIVES), np.uint64)
    report = ptxsim.assemble(text).kernel().launch(grid=1, block=1, args=[out])
    assert report.findings == ()
    assert [hex(v) for v in out.tolist()] == [hex(v) for *_, v in ARRIVES]


ONE = ".func (.param .b32 r) f(.param .b32 a) { ret; }"
OPEN = ".func f(.param .b32 a, .param .align 4 .b8 va[]) { ret; }"
PROTOTYPE = "p: .callprototype (.param .b32 _) _ (.param .b32 _);\n"

LEGAL = [
    (ONE, "call (%r1), f, (WARP_SZ);"),
    (ONE, "call (_), f, (%hx1);"),
    (".func (.param .b32 r) f(.param .b32 a) { ret; }", "call (1.0), f, (2);"),  # goes nowhere
    # a prototype says more of its parameters than a function may
    ("", "p: .callprototype (.param .u64 .ptr _) _ (.param .u64 .ptr .global .align 8 _);"),
    ("", ".param .f64 x; p: .callprototype _ (.param .v2 .u32 _); call %rd1, (x), p;"),
    (".extern .func f(.param .v2 .u32 a);", ""),
    (OPEN, "call f, (%r1);"),
    (".func f(.param .align 4 .b8 a[]) { ret; }", "call f, ();"),
    # arrays of one size, one of them of bits; the alignment is that of the type at least
    (".func f(.param .align 4 .b8 a[8]) { ret; }", ".param .f32 x[2]; call f, (x);"),
    (".func f(.param .align 2 .b32 a[2]) { ret; }", ".param .align 4 .b8 x[8]; call f, (x);"),
    (".func f(.param .align 1 .b32 a) { ret; }", "call f, (%r1);"),
    # a call through a register may reach an entry, as far as the assembler cares
    (".entry e() { ret; }", "t: .calltargets e; call %rd1, t;"),
]

ILLEGAL = [
    # declarations, body, and the token that is at fault
    (ONE, "call (1), f, (2);", "1"),
    (ONE, "call (%r1), f, (((%r1)));", "%r1"),
    (ONE, "call (%r1), f, ({%r1});", "{%r1}"),
    (ONE, "call (%r1), f, ([%r1]);", "[%r1]"),
    (ONE, "call (%r1), f, (!%p1);", "!%p1"),
    (ONE, "call (%r1), f, (%v20);", "%v20"),
    (ONE, "call (%r1), f, (%v20.x);", "%v20.x"),
    (ONE, "call (%r1), f, (%tid.x);", "%tid.x"),
    (ONE, "call (%r1), f, (%laneid);", "%laneid"),
    (ONE, "call (%r1), f, (_);", "_"),
    (ONE, "call (%r1), f, (gv);", "gv"),
    (ONE, "call (%r1), f, (f);", "f"),
    (ONE, "call (%r1), f, (kp);", "kp"),
    (ONE, "call (%r1), f, (%rd1);", "%rd1"),
    (ONE, "call (%r1), f, (%p1);", "%p1"),
    (ONE, "call (%rd1), f, (%r1);", "%rd1"),
    (ONE, "call (1.5), %rd1, (%r2);", "%rd1"),
    (ONE, "call f, (%r2);", "f"),
    (ONE, "call (%r1), f;", "f"),
    (ONE, "call (%r1), f, (%r2, %r3);", "%r3"),
    (ONE, "call (%r1, %r2), f, (%r3);", "%r2"),
    (ONE, "call (%r1), k, (%r2);", "k"),
    (ONE, "call (%r1), fn, (%r2);", "fn"),
    (OPEN, "call f;", "f"),
    (".func f(.param .align 4 .b8 a[]) { ret; }", "call f;", "f"),
    (".func f(.param .align 4 .u8 a[8]) { ret; }", ".param .align 4 .s8 x[8]; call f, (x);", "x"),
    (".func f(.param .align 4 .b8 a[8]) { ret; }", ".param .align 4 .b8 x[4]; call f, (x);", "x"),
    (".func f(.param .align 4 .b8 a[8]) { ret; }", ".param .align 8 .b8 x[8]; call f, (x);", "x"),
    (".func f(.param .align 4 .b8 a[8]) { ret; }",
     ".param .align 4 .b8 x[2][4]; call f, (x);", "x"),
    (".func f(.param .align 8 .b32 a) { ret; }", "call f, (%r1);", "%r1"),
    (".func f(.param .align 8 .b32 a) { ret; }", ".param .b32 x; call f, (x);", "x"),
    (".func (.param .b32 r) f(.param .b32 a) { call (r), f, (1); ret; }", "", "r"),
    (ONE, PROTOTYPE + "call (%r1), %h1, (%r2), p;", "%h1"),
    (ONE, PROTOTYPE + "call (%r1), %f1, (%r2), p;", "%f1"),
    (ONE, PROTOTYPE + "call (%r1), f, (%r2), p;", "p"),
    (ONE, PROTOTYPE + "call (%r1), %rd1, (%r2), p, p;", "p"),
    (ONE, PROTOTYPE + "call (%r1), %rd1, (%rd2), p;", "%rd2"),
    (ONE, "p: .callprototype _ (.param .f32 _);\ncall %rd1, (1), p;", "1"),
    (ONE, "t: .calltargets f; call (%r1), %rd1, (1, 2), t;", "2"),
]  # fmt: skip

DECLARATIONS = [
    # declarations and body; the fault is not in a call
    (".func f() .noreturn;\n.func f() { exit; }", ""),
    (".func f();\n.func f() .noreturn { exit; }", ""),
    (".func f() .noreturn .noreturn { exit; }", ""),
    (".func f() .abi_preserve 4 { ret; }", ""),  # from PTX ISA 9.0 on
    (".func (.param .b32 r, .param .b32 s) f() { ret; }", ""),
    (".func f(.param .b64 .ptr .global .align 4 a) { ret; }", ""),
    (".func f(.param .f16x2 a) { ret; }", ""),
    (".func f(.param .align 4 .b8 a[2][2]) { ret; }", ""),
    ('.func f() .pragma "nounroll"; { ret; }', ""),
    ("", "p: .callprototype (.param .b32 _) _ () .noreturn;"),
    ("", "p: .callprototype _ (.param .v4 .b64 _);"),
    ("", "p: .callprototype _ (.reg .v2 .pred _);"),
    ("", "p: .callprototype (.param .u32 _, .param .u32 _) _ ();"),
    ("", "p: .callprototype (.reg .u32 _, .param .u32 _) _ ();"),
    ("", "p: .callprototype (.param .b8 _[]) _ ();"),
    ("", "p: .callprototype _ (.param .b8 _[], .param .u32 _);"),
    ("", "p: .callprototype _ (.param .u64 .ptr .param _);"),
    ("", "p: .callprototype _ (.param .u64 .ptr .align 3 _);"),
    ("", "_: .callprototype _ ();"),
    (".func f(.reg .v4 .u64 a) { ret; }", ""),
    (".func f(.param .u32 WARP_SZ) { ret; }", ""),
    ("", "p: .callprototype _ (.local .b32 _);"),
    ("", ".param .f16x2 x;"),
    ("", ".param .b32 x; mov.u64 %rd1, x;"),
    ("", ".param .b32 x; cvta.param.u64 %rd1, x;"),
    (".func (.param .b32 r) f() { .reg .b32 %r1; ld.param.b32 %r1, [r]; ret; }", ""),
    (ONE, "cvta.global.u64 %rd1, f;"),
    (ONE, "isspacep.global %p1, f;"),
    ("", "add.u32 %r1, (%r2), %r3;"),
    ("", "ld.global.b32 %r1, [(%rd1)];"),
]


@pytest.mark.parametrize(("declarations", "body"), LEGAL)
def test_legal(declarations: str, body: str) -> None:
    assert _errors(declarations, body) == ()


@pytest.mark.parametrize(("declarations", "body", "token"), ILLEGAL)
def test_the_token_at_fault(declarations: str, body: str, token: str) -> None:
    found = _errors(declarations, body)
    assert len(found) == 1
    head = _HEAD.format(version="8.3", target="sm_90", declarations=declarations)
    line = (head + _REGISTERS + _WIDE + body + _TAIL).splitlines()[found[0].span.line - 1]
    assert line[found[0].span.column - 1 : found[0].span.end_column - 1] == token


@pytest.mark.parametrize(("declarations", "body"), DECLARATIONS)
def test_around_calls(declarations: str, body: str) -> None:
    assert len(_errors(declarations, body)) == 1


def test_a_constant_in_place_of_a_result_stays() -> None:
    """What the function returns goes nowhere, least of all into the constant."""
    text = """.version 8.3 .target sm_90 .address_size 64
    .func (.reg .b32 r) f() { mov.b32 r, 7; ret; }
    .visible .entry k(.param .u64 p) { .reg .b64 %o; .reg .b32 %r; ld.param.u64 %o, [p];
    call (1.0), f; mov.b32 %r, 1; st.global.b32 [%o], %r; ret; }"""
    out = np.zeros(1, np.uint32)
    ptxsim.assemble(text).kernel().launch(grid=1, block=1, args=[out])
    assert out.tolist() == [1]


def test_a_call_that_reaches_an_entry_is_found_when_it_runs() -> None:
    """It assembles, but an entry is called by the host alone (PTX ISA, call)."""
    text = """.version 8.3 .target sm_90 .address_size 64
    .visible .entry e() { ret; }
    .visible .entry k() { .reg .b64 %a; mov.u64 %a, e;
    t: .calltargets e; call %a, t; ret; }"""
    report = ptxsim.assemble(text).kernel("k").launch(grid=1, block=1, args=[])
    assert [f.class_ for f in report.findings] == ["bad-call"]


_CALLS = Path(__file__).parents[1] / "data" / "verdicts" / "calls.tsv.gz"

_SUM = "the address of a variable with an offset, which ptxas takes for a constant"
_HALF = "half of an address is none"
_PAIR = "a pair of halves is no predicate; ptxas does not look"
#: Bodies that ptxas takes and we do not, by what they contain.
KEPT = {
    "call (1), f;": "no place for a result; ptxas ends in a fault once it makes code",
    "f1+4": "only until code is made", "mov.b16 %h1, ": _HALF, "x+4": _SUM, "kp+4": _SUM,
    "ka+4": _SUM, "lv+4": _SUM, "%hx1": _PAIR, "%p1": _PAIR,
}  # fmt: skip


def _verdicts(step: int) -> tuple[int, list[tuple[str, ...]]]:
    """How many of the recorded cases were tried, and those where we differ."""
    rows = [r.split("\t") for r in gzip.decompress(_CALLS.read_bytes()).decode().splitlines()[1:]]
    wrong = []
    for row in rows[::step]:
        verdict, version, target, *texts = row
        declarations, body = (t.replace("\\n", "\n") for t in texts)
        if (verdict == "legal") == bool(_errors(declarations, body, version, target)):
            wrong.append(tuple(row))
    return len(rows[::step]), wrong


def _unexpected(wrong: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [r for r in wrong if r[0] == "illegal" or not any(k in r[-1] for k in KEPT)]


def test_some_calls() -> None:
    """2,826 calls and declarations around them; every eleventh."""
    tried, wrong = _verdicts(11)
    assert tried == 257
    assert not _unexpected(wrong)


@pytest.mark.slow
def test_all_calls() -> None:
    tried, wrong = _verdicts(1)
    assert tried == 2826
    assert not _unexpected(wrong)
    assert len(wrong) == 31

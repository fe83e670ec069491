"""What the assembler refuses is refused, and what it accepts is accepted.

The tables were judged by ptxas 13.5, the hand-written ones (rejects, lexical/probes) by ptxas 13.0:

* rejects: 514 lines and modules that break one rule each,
* rejects-mutated: 2608 accepted lines that one change made illegal,
* accepted-mutated: 392 that one change left legal,
* modifier-order: 119 lines with two modifiers swapped that stay legal, one per family,
* lexical/directives, lexical/probes: 212 module-level forms, 252 lines.
"""

from __future__ import annotations

import pytest
from line_verdicts import Line, errors, legal, module_errors, rows, wrapped

from ptxsim.diagnostics import Diagnostic

_SYNTAX = {"PTX001", "PTX002", "PTX003", "PTX005", "PTX006"}

#: Classes of the hand-written table -> our codes.
CLASSES = {
    "bad-align": {"PTX006", "PTX109"},
    "bad-immediate": {"PTX106", "PTX107"},  # where the target has no setmaxnreg either
    "bad-vector-width": {"PTX104", "PTX106", "PTX107"},
    "declaration": {"PTX001", "PTX006", "PTX108", "PTX109", "PTX113"},
    "duplicate": {"PTX102"},
    "function-or-directive": {
        *_SYNTAX, "PTX101", "PTX106", "PTX108", "PTX109", "PTX110", "PTX111", "PTX112", "PTX113",
    },
    "illegal-modifier": {"PTX104", "PTX106", "PTX107"},  # cp.async.cg with another size than 16
    "illegal-rounding": {"PTX104"},
    "missing-rounding": {"PTX104"},
    "module-header": {"PTX001", "PTX006", "PTX107", "PTX109"},
    "needs-arch-specific-target": {"PTX107"},
    "operand-type-mismatch": {"PTX104", "PTX106", "PTX110"},
    "predicate": {"PTX001", "PTX105", "PTX106"},
    "ptx-version-too-low": {"PTX104", "PTX107"},
    "sm-too-low": {"PTX107"},
    "special-register": {"PTX101", "PTX106", "PTX108"},
    "state-space": {"PTX101", "PTX104", "PTX106"},
    "syntax": {*_SYNTAX, "PTX105", "PTX106", "PTX111"},
    "undefined-symbol": {"PTX101", "PTX110"},
    "unknown-instruction": {"PTX103", "PTX104"},
    "unknown-modifier": {"PTX104"},
    "write-to-immediate": {"PTX106"},
    "wrong-operand-count": {"PTX105", "PTX111"},
}  # fmt: skip

#: Classes of the assembler's messages about mutated lines -> our codes.  A modifier that is taken
#: for a type, or left out, shows to the assembler as operands of the wrong kind.
MESSAGES = {
    "a mandatory modifier is missing": {"PTX103", "PTX104", "PTX105", "PTX107"},
    "alignment not a legal power of two or too small": {"PTX106"},
    "constraint violated": {"PTX105", "PTX106", "PTX111"},
    "feature needs a higher target": {"PTX104", "PTX105", "PTX107"},
    "illegal use": {"PTX104"},
    "modifier given twice": {"PTX104"},
    "modifier not legal here": {"PTX104"},
    "modifiers exclude each other": {"PTX104"},
    "operand kinds or types do not fit the instruction": {
        "PTX104",
        "PTX105",
        "PTX106",
        "PTX111",
    },
    "other": {"PTX104"},
    "parameter problem": {"PTX111"},
    "predicate operand problem": {"PTX106"},
    "rounding modifier is mandatory": {"PTX104"},
    "scope modifier is mandatory with a memory-order modifier": {"PTX104"},
    "something else expected": {"PTX104", "PTX105", "PTX106"},
    "state space not legal here": {"PTX104"},
    "symbol or label defined twice": {"PTX104"},
    "syntax error near a token": {"PTX001", "PTX104"},
    "type problem": {"PTX104", "PTX105", "PTX106"},
    "type suffix not legal for the instruction": {"PTX103", "PTX104"},
    "unknown mnemonic": {"PTX103", "PTX104"},
    "unknown modifier": {"PTX103", "PTX104"},
    "unknown name": {"PTX106"},
    "vector elements of the wrong kind": {"PTX106"},
    "vector operand has the wrong number of elements": {"PTX103", "PTX106"},
}

_NARROW = "no memory is so small that an address has 16 bits"
_NOT_READ = "a predicate or float is no fragment of integers; the assembler does not look"
_COORDINATE = "a predicate or float is no coordinate or map; the assembler does not look"
_OFFSET = "an offset has as many elements as the geometry; the assembler takes one number too"
#: Where we differ from the assembler, with the reason: legal there, refused here.
KEPT_REFUSALS = {
    "ldu.global.b8 %h1,[%h1];": _NARROW,
    "ld.global.b32 %r1,[%h1+4];": _NARROW,
    "ldu.v2.u8 {%h1,%h2}, [%h1];": _NARROW,
    "st.release.cluster.global.b32 [%h1],%r1;": _NARROW,
    "mbarrier.arrive.shared::cluster.b64 _, [%h1];": _NARROW,
    "atom.release.global.exch.b64 %rd1, [%h2], %rd3;": _NARROW,
    "movmatrix.sync.aligned.m8n8.trans.b16 %r1,%p2;": _NOT_READ,
    "mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32 {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f7},"
    " {%r8,%r9,%r10,%r11};": _NOT_READ,
    "multimem.ld_reduce.max.f16x2 %r1, [%h1];": _NARROW,
    "discard.L2 [%h1], 128;": _NARROW,
    "sured.p.and.2d.b32.zero [sf,{%r20,%p9}],%r1;": _COORDINATE,
    "sured.p.min.3d.b32.clamp [sf,{%r20,%p9,%r22,%r23}],%r1;": _COORDINATE,
    "suld.b.3d.cv.b8.trap %h1,[sf,{%r20,%r21,%p9,%r23}];": _COORDINATE,
    "tex.a1d.v4.f32.s32 {%r1,%r2,%r3,%r4}|%p1, [tx, {%r20,%f21}];": _COORDINATE,
    "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    ".cta_group::1 [%r1], [%p1, {%r2,%r3,%r4,%r5}], [%r6];": _COORDINATE,
    "tex.3d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [tx, {%r20,%r21,%r22,%r23}], 7;": _OFFSET,
    "tex.2d.v4.u32.s32 {%r1,%r2,%r3,%r4}|%p1, [tx, {%r20,%r21}], 7;": _OFFSET,
    "tex.a2d.v4.s32.s32 {%r1,%r2,%r3,%r4}|%p1, [tx, {%r20,%r21,%r22,%r23}], %r9;": _OFFSET,
    "tld4.g.2d.v4.s32.f32 {%r1,%r2,%r3,%r4}, [tx, {%f20,%f21}], 7;": _OFFSET,
    "st.async.weak.mbarrier::complete_tx::bytes.s64 [%rd1], %rd2;": (
        "the completion is told to no barrier; the assembler does not miss it"
    ),
}  # fmt: skip

_LINK = "only a whole program is refused, not a relocatable one"
#: Illegal there, accepted here.
KEPT_ACCEPTANCES = {
    ".func .attribute(.unified(1,2)) f() {ret;}": _LINK,
    ".global .attribute(.unified(1,2)) .b32 x;": _LINK,
    ".global .attribute(.managed,.unified(3,4)) .b32 x;": _LINK,
    "@@DWARF .section .debug_info\n@@DWARF .4byte 5\n@@DWARF .byte 1,2\n@@DWARF .quad 0\n": (
        "debug lines of early compilers are skipped"
    ),
    ".version 9.0\n.target sm_100\n.entry k(){ret;}\n": (
        "legal: the assembler was told to make code for an earlier target"
    ),
    "multimem.red.release.sys.global.add.u64 [%r1], %rd2;": (
        "an address of 32 bits is legal: the assembler's expansion of this instruction is not"
    ),
}

REJECTS = rows("verdicts/rejects.tsv.gz")
MUTATED = rows("verdicts/rejects-mutated.tsv.gz")
ACCEPTED = rows("verdicts/accepted-mutated.tsv.gz")
ORDER = rows("verdicts/modifier-order.tsv.gz")
DIRECTIVES = rows("lexical/directives.tsv")
PROBES = rows("lexical/probes.tsv")


def test_the_tables_are_whole() -> None:
    tables = (REJECTS, MUTATED, ACCEPTED, ORDER, DIRECTIVES, PROBES)
    assert [len(t) for t in tables] == [514, 2608, 392, 119, 212, 252]


def test_rejected_lines() -> None:
    found = [r for r in REJECTS if r["kind"] == "line" and r["class"] != "duplicate"]
    lines = [(r["version"], r["target"], r["text"]) for r in found]
    _judge(lines, [r["class"] for r in found], errors(lines))


def _judge(lines: list[Line], classes: list[str], messages: list[list[Diagnostic]]) -> None:
    """Each line is refused with a code of its class; no message is elsewhere."""
    codes = CLASSES | MESSAGES
    wrong = []
    for (*_, text), class_, found in zip(lines, classes, messages, strict=True):
        got = {d.code for d in found} - {"PTX400"}
        if bool(got) == (text in KEPT_ACCEPTANCES) or not got <= codes[class_]:
            wrong.append((text, class_, sorted(got)))
    assert not wrong


def test_names_declared_twice() -> None:
    """Not in a scope of their own, where they hide what is declared outside."""
    found = [r for r in REJECTS if r["kind"] == "line" and r["class"] == "duplicate"]
    assert len(found) == 8
    for row in found:
        got = module_errors(wrapped([row["text"]], row["version"], row["target"]))
        assert [(d.code, d.span.line) for d in got] == [("PTX102", 14)], row["text"]


@pytest.mark.parametrize("row", [r for r in REJECTS if r["kind"] == "module"],
                         ids=lambda r: r["text"][-60:-18])  # fmt: skip
def test_rejected_module(row: dict[str, str]) -> None:
    got = {d.code for d in module_errors(row["text"])}
    if row["text"] in KEPT_ACCEPTANCES:
        assert not got
    else:
        assert got and got <= CLASSES[row["class"]]


def test_mutated_lines_are_rejected() -> None:
    lines = [(r["version"], r["target"], r["line"]) for r in MUTATED]
    _judge(lines, [r["message_class"] for r in MUTATED], errors(lines))


def test_mutated_lines_are_accepted() -> None:
    lines = [(r["version"], r["target"], r["line"]) for r in ACCEPTED]
    refused = {
        text: found[0].message
        for (*_, text), found in zip(lines, errors(lines), strict=True)
        if not legal(found)
    }
    assert refused.keys() == KEPT_REFUSALS.keys()


def test_swapped_modifiers_are_accepted() -> None:
    """Each at one of the targets that have the instruction, for some are of one alone."""
    left = [r["example_accepted_swap"] for r in ORDER]
    for version, target in (("9.5", "sm_100a"), ("9.5", "sm_90a"), ("6.3", "sm_70")):
        found = errors([(version, target, line) for line in left])
        left = [line for line, d in zip(left, found, strict=True) if not legal(d)]
    assert not left


@pytest.mark.parametrize("row", DIRECTIVES, ids=lambda row: row["text"][:40])
def test_directive(row: dict[str, str]) -> None:
    text = row["text"]
    head = ".version 9.5\n"
    if ".target" not in text:
        head += ".target sm_100a\n.address_size 64\n"
    found = module_errors(("" if ".version" in text else head) + text)
    expected = row["result"] == "accept" or text in KEPT_ACCEPTANCES
    assert legal(found) == expected, found


@pytest.mark.parametrize("row", PROBES, ids=lambda row: row["line"][:40])
def test_lexical_probe(row: dict[str, str]) -> None:
    found = module_errors(wrapped(["{", row["line"], "}"], "9.0", "sm_100a"))
    assert legal(found) == (row["result"] == "accept"), found


def test_every_exception_is_in_a_table() -> None:
    texts = {r["text"] for r in (*REJECTS, *DIRECTIVES)}
    texts |= {r["line"] for r in (*ACCEPTED, *MUTATED)}
    assert texts >= KEPT_REFUSALS.keys() | KEPT_ACCEPTANCES.keys()


def test_a_legal_line_is_not_called_illegal() -> None:
    """The judgement above can fail: a legal line under any class does."""
    for text in ("add.s32 %r1, %r2, %r3;", "add.s32 %r1, %r2;"):
        line = ("9.0", "sm_90", text)
        with pytest.raises(AssertionError, match="add"):
            _judge([line], ["unknown-modifier"], errors([line]))

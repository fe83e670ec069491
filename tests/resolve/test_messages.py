"""Messages about refused instructions: the token at fault, and what would be legal instead."""

from __future__ import annotations

import pytest

import ptxsim

_TEXT = """.version {version}
.target {target}
.address_size 64
.visible .entry k(.param .u64 p)
{{
    .reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .f32 %f<9>; .reg .f64 %fd<4>;
    .reg .b16 %h<4>; .global .b32 gv; .shared .b32 sv;
{line}
    ret;
}}
"""


def _refused(line: str, version: str = "9.0", target: str = "sm_100a") -> ptxsim.Diagnostic:
    with pytest.raises(ptxsim.PtxError) as caught:
        ptxsim.assemble(_TEXT.format(line=line, version=version, target=target))
    (found,) = caught.value.diagnostics
    return found


#: What is written -> the nearest opcode that is legal: a type of the same kind or width first, what
#: is missing added before a word that another form knows is taken for a mistake.
SPELLINGS = {
    "neg.u32 %r1, %r2;": "neg.s32",
    "neg.s4 %r1, %r2;": "neg.s16",
    "add.s31 %r1, %r2, %r3;": "add.s32",
    "add.f33 %f1, %f2, %f3;": "add.f32",
    "add.rnd.f32 %f1, %f2, %f3;": "add.rn.f32",
    "copysign.f16 %h1, %h2, %h3;": "copysign.f32",
    "min.ftz.f64 %fd1, %fd2, %fd3;": "min.ftz.f32",
    "mul.s32 %r1, %r2, %r3;": "mul.lo.s32",
    "cvt.f32.f64 %f1, %fd1;": "cvt.rn.f32.f64",
    "vsub.u32.s32 %r1, %r2, %r3;": "vsub.u32.s32.u32",
    "mov.b32.b32 %r1, 1;": "mov.b32",
    "cp.async.ca.global.shared [%rd1], [%r1], 16;": "cp.async.ca.shared.global",
    "ldmatrix.sync.aligned.m8n8.x3.shared.b16 {%r1}, [%r2];": (
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16"
    ),
    "st.global.v3.f32 [%rd1], {%f1, %f2, %f3};": "st.global.v2.f32",
    "mma.sync.aligned.m16n8k17.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3},"
    " {%r4, %r5}, {%f0, %f1, %f2, %f3};": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "discard.global.b64 [%rd1], 128;": "discard.global.L2",
}


@pytest.mark.parametrize("line", SPELLINGS)
def test_the_nearest_spelling(line: str) -> None:
    found = _refused(line)
    assert (found.code, found.help) == ("PTX104", f"did you mean '{SPELLINGS[line]}'?")


def test_what_is_two_changes_away_has_no_spelling() -> None:
    assert _refused("mad24.s33 %r1, %r2, %r3, %r4;").help is None


@pytest.mark.parametrize("opcode", ["add" + ".s32" * 2_000, "add.s" + "1" * 2_000])
def test_no_spelling_is_looked_for_in_rubbish(opcode: str) -> None:
    """It would take as long as the square of its length."""
    assert _refused(f"{opcode} %r1, %r2, %r3;").help is None


#: What is written -> the token under the caret.
TOKENS = {
    "mov.b32 %r1, %r2, %r3, %r4;": "%r3, %r4",
    "add.s32 %r1, %r2;": "add.s32",
    "add.s31 %r1, %r2, %r3;": ".s31",
    "add.u32 %r1, %rd2, %r3;": "%rd2",
    "barrier.sync 17;": "17",
    "add.s32 %r1, %r2, %tid.x;": "%tid.x",
    "st.global.u32 [sv], 1;": "[sv]",
    "st.global.v2.u32 [%rd1], {%r1, %laneid};": "%laneid",
    "add.u64 %rd1, %rd2, gv;": "gv",
    "setmaxnreg.inc.sync.aligned.u32 23;": "23",
    "cp.async.ca.shared.global [%f1], [%rd1], 4, %r2;": "%f1",
}


@pytest.mark.parametrize("line", TOKENS)
def test_the_token_at_fault(line: str) -> None:
    found = _refused(line).span
    assert line[found.column - 1 : found.end_column - 1] == TOKENS[line]


#: Instruction, version and target -> what has it, and all that it needs.
NEEDS = [
    ("fma.rn.bf16 %h1, %h2, %h3, %h1;", "8.0", "sm_75",
     "'fma.rn.bf16' needs target sm_80 or higher"),
    ("cp.async.wait_all;", "6.0", "sm_70",
     "'cp.async.wait_all' needs PTX ISA version 7.0 or later and target sm_80 or higher"),
    ("mov.u32 %r1, %aggr_smem_size;", "7.0", "sm_80",
     "'mov' with %aggr_smem_size needs PTX ISA version 8.1 or later and target sm_90 or higher"),
    ("atom.global.add.f64 %fd1, [%rd1], %fd2;", "8.0", "sm_50",
     "'atom.global.add.f64' needs target sm_60 or higher"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "version", "target", "text"), NEEDS)
def test_what_a_form_needs(line: str, version: str, target: str, text: str) -> None:
    found = _refused(line, version, target)
    have = f"; this module has PTX ISA version {version} and target {target}"
    assert (found.code, found.message) == ("PTX107", text + have)


def test_one_operand_is_no_plural() -> None:
    assert _refused("bra;").message == "'bra' takes 1 operand (label), 0 given"


@pytest.mark.parametrize(
    ("line", "column", "character"),
    [
        ("// caf\u00e9", 7, "\u00e9"),
        ("/* \u20ac \u20ac */", 4, "\u20ac"),
        (".reg .b32 %\u00fc;", 12, "\u00fc"),
    ],
)
def test_text_beyond_ascii(line: str, column: int, character: str) -> None:
    """PTX ISA 9.1, Source Format; ptxas 13.0 refuses it in comments too."""
    found = _refused(line)
    assert (found.code, found.span.line, found.span.column) == ("PTX002", 8, column)
    assert repr(character) in found.message

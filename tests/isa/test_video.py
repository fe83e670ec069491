"""Video instructions through the machine (PTX ISA 9.1, Video Instructions).

Values are worked by hand from the ISA's rules unless a comment names another origin.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ptxsim

CORPUS = Path(__file__).parents[1] / "corpus"

KERNEL = """
.version 8.5
.target sm_80
.address_size 64
.visible .entry k(.param .u64 words, .param .u64 out)
{{
    .reg .b32 %r<5>;
    .reg .f32 %f<2>;
    .reg .pred %p<2>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [words];
    ld.param.u64 %rd2, [out];
    mov.u32 %r1, 0;
    ld.global.u32 %r2, [%rd1];
    ld.global.u32 %r3, [%rd1+4];
    ld.global.u32 %r4, [%rd1+8];
    {line}
    st.global.u32 [%rd2], %r1;
    ret;
}}
"""


def run(line: str, a: int, b: int, c: int = 0) -> int:
    """The word in %r1 after an instruction on a, b and c in %r2, %r3 and %r4."""
    words = np.array([a, b, c], np.uint32)
    out = np.zeros(1, np.uint32)
    kernel = ptxsim.assemble(KERNEL.format(line=line)).kernel()
    report = kernel.launch(grid=1, block=1, args=[words, out])
    assert report.clean, report
    return int(out[0])


def refused(line: str) -> str:
    """The codes of the errors that an instruction gets."""
    with pytest.raises(ptxsim.PtxError) as caught:
        ptxsim.assemble(KERNEL.format(line=line))
    return " ".join(d.code for d in caught.value.diagnostics)


SCALAR = [
    # parts are extended by their own types: 0xff is -1 or 255
    ("vadd.s32.s32.s32 %r1, %r2.b1, %r3;", 0xFF00, 2, 0, 1),
    ("vadd.u32.u32.u32 %r1, %r2.b1, %r3;", 0xFF00, 2, 0, 257),
    ("vadd.s32.u32.s32 %r1, %r2.h1, %r3.h0;", 0x80000000, 0xFFFF, 0, 0x7FFF),
    ("vadd.s32.s32.s32 %r1, %r2.b3, %r3.b2;", 0x80000000, 0x7F0000, 0, 0xFFFFFFFF),
    # the result has 34 bits before .sat; without .sat the low word counts
    ("vadd.s32.u32.u32.sat %r1, %r2, %r3;", 0xFFFFFFFF, 0xFFFFFFFF, 0, 0x7FFFFFFF),
    ("vadd.u32.u32.u32.sat %r1, %r2, %r3;", 0xFFFFFFFF, 1, 0, 0xFFFFFFFF),
    ("vadd.u32.u32.u32 %r1, %r2, %r3;", 0xFFFFFFFF, 1, 0, 0),
    ("vsub.u32.u32.u32.sat %r1, %r2, %r3;", 1, 2, 0, 0),
    ("vsub.s32.u32.u32 %r1, %r2, %r3.b0;", 1, 0x102, 0, 0xFFFFFFFF),
    ("vabsdiff.u32.s32.u32 %r1, %r2, %r3;", 0xFFFFFFFF, 1, 0, 2),
    ("vmin.s32.s32.u32 %r1, %r2, %r3;", 0xFFFFFFFE, 1, 0, 0xFFFFFFFE),
    ("vmax.s32.s32.u32 %r1, %r2, %r3;", 0xFFFFFFFE, 1, 0, 1),
    # secondary operation: c read by dtype
    ("vadd.u32.u32.u32.add %r1, %r2, %r3, %r4;", 1, 2, 10, 13),
    ("vsub.s32.s32.s32.min %r1, %r2, %r3, %r4;", 5, 3, 0xFFFFFFFF, 0xFFFFFFFF),
    ("vsub.u32.s32.s32.min %r1, %r2, %r3, %r4;", 5, 3, 0xFFFFFFFF, 2),
    ("vabsdiff.u32.u32.u32.max %r1, %r2.b3, %r3.h0, %r4;", 0x05000000, 0xFFFF0003, 1, 2),
    # merge: .sat at the width of the destination part
    ("vadd.u32.u32.u32 %r1.b1, %r2, %r3, %r4;", 0xFF, 2, 0xAABBCCDD, 0xAABB01DD),
    ("vadd.u32.u32.u32.sat %r1.b3, %r2, %r3, %r4;", 0xFF, 2, 0xAABBCCDD, 0xFFBBCCDD),
    ("vsub.s32.u32.u32.sat %r1.h1, %r2, %r3, %r4;", 0, 0x9000, 0xAABBCCDD, 0x8000CCDD),
    ("vmax.u32.u32.u32 %r1.h0, %r2, %r3.b2, %r4;", 1, 0x00770000, 0xAABBCCDD, 0xAABB0077),
    # a c without secondary operation or destination part is accepted and has no effect
    ("vadd.u32.u32.u32 %r1, %r2, %r3, %r4;", 1, 2, 10, 3),
]


@pytest.mark.parametrize(("line", "a", "b", "c", "expected"), SCALAR)
def test_scalar(line: str, a: int, b: int, c: int, expected: int) -> None:
    assert run(line, a, b, c) == expected


SHIFT_AND_SET = [
    # .clamp: counts above 32 act as 32; .wrap: modulo 32
    ("vshl.u32.u32.u32.clamp %r1, %r2, %r3;", 1, 33, 0, 0),
    ("vshl.u32.u32.u32.wrap %r1, %r2, %r3;", 1, 33, 0, 2),
    ("vshr.u32.u32.u32.wrap %r1, %r2, %r3;", 0x80000000, 32, 0, 0x80000000),
    ("vshr.u32.s32.u32.clamp %r1, %r2, %r3;", 0x80000000, 40, 0, 0xFFFFFFFF),
    ("vshr.u32.u32.u32.clamp %r1, %r2, %r3;", 0x80000000, 40, 0, 0),
    # the extended value is shifted: -128 << 1, 0x80 >> 3, and 3 << 31 outgrows the word
    ("vshl.s32.s32.u32.wrap %r1, %r2.b0, %r3.b1;", 0x80, 0x0100, 0, 0xFFFFFF00),
    ("vshr.u32.u32.u32.clamp %r1, %r2.h1, %r3;", 0x00800000, 3, 0, 0x10),
    ("vshl.u32.u32.u32.sat.clamp %r1, %r2, %r3;", 3, 31, 0, 0xFFFFFFFF),
    ("vshl.s32.s32.u32.sat.clamp %r1, %r2, %r3;", 0xFFFFFFFD, 31, 0, 0x80000000),
    ("vshl.u32.u32.u32.wrap.add %r1, %r2, %r3, %r4;", 1, 4, 5, 21),
    ("vshr.u32.u32.u32.clamp.min %r1, %r2, %r3, %r4;", 64, 4, 5, 4),
    ("vshl.u32.u32.u32.clamp %r1.b1, %r2, %r3, %r4;", 1, 4, 0xAABBCCDD, 0xAABB10DD),
    # comparison as extended integers: -1 < 255 although the bytes are equal
    ("vset.s32.u32.lt %r1, %r2.b1, %r3.b0;", 0xFF00, 0xFF, 0, 1),
    ("vset.u32.u32.eq %r1, %r2.b1, %r3.b0;", 0xFF00, 0xFF, 0, 1),
    ("vset.s32.u32.eq %r1, %r2, %r3;", 0xFFFFFFFF, 0xFFFFFFFF, 0, 0),
    ("vset.u32.u32.ge.add %r1, %r2, %r3, %r4;", 7, 7, 41, 42),
    # c and the result are unsigned
    ("vset.s32.s32.lt.max %r1, %r2, %r3, %r4;", 0, 1, 0xFFFFFFFF, 0xFFFFFFFF),
    ("vset.u32.s32.ge %r1.b2, %r2, %r3, %r4;", 1, 0xFFFFFFFF, 0xAABBCCDD, 0xAA01CCDD),
]


@pytest.mark.parametrize(("line", "a", "b", "c", "expected"), SHIFT_AND_SET)
def test_shift_and_set(line: str, a: int, b: int, c: int, expected: int) -> None:
    assert run(line, a, b, c) == expected


VMAD = [
    ("vmad.u32.u32.u32 %r1, %r2, %r3, %r4;", 3, 5, 7, 22),
    ("vmad.u32.u32.u32.po %r1, %r2, %r3, %r4;", 3, 5, 7, 23),
    ("vmad.s32.s32.u32 %r1, %r2.b0, %r3.h1, %r4;", 0xFF, 0x00100000, 20, 4),
    ("vmad.s32.u32.u32 %r1, -%r2, %r3, %r4;", 3, 5, 7, 0xFFFFFFF8),
    ("vmad.s32.u32.u32 %r1, %r2, -%r3.b0, %r4;", 3, 0xFF05, 7, 0xFFFFFFF8),
    ("vmad.s32.u32.u32 %r1, %r2, %r3, -%r4;", 3, 5, 7, 8),
    # two negated factors cancel
    ("vmad.u32.u32.u32 %r1, -%r2.b1, -%r3, %r4;", 0x300, 5, 7, 22),
    # the shift sees all bits: (2**32 - 1)**2 >> 15 is 0x1FFFF_FFFC_0000, -128 >> 7 is -1
    ("vmad.u32.u32.u32.shr15 %r1, %r2, %r3, %r4;", 0xFFFFFFFF, 0xFFFFFFFF, 0, 0xFFFC0000),
    ("vmad.u32.u32.u32.sat.shr15 %r1, %r2, %r3, %r4;", 0xFFFFFFFF, 0xFFFFFFFF, 0, 0xFFFFFFFF),
    ("vmad.s32.s32.u32.shr7 %r1, %r2, %r3, %r4;", 0xFFFFFF80, 1, 0, 0xFFFFFFFF),
    # .sat by the sign of the operands: a negated factor makes the result signed
    ("vmad.u32.u32.u32.sat %r1, -%r2, %r3, %r4;", 0x10000, 0x10000, 0, 0x80000000),
    ("vmad.u32.u32.u32.sat %r1, %r2, %r3, %r4;", 0x10000, 0x10000, 0, 0xFFFFFFFF),
]


@pytest.mark.parametrize(("line", "a", "b", "c", "expected"), VMAD)
def test_vmad(line: str, a: int, b: int, c: int, expected: int) -> None:
    assert run(line, a, b, c) == expected

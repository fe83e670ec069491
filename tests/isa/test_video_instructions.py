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


SIMD = [
    # folded by ptxas (13.0 for sm_80, 13.5 for sm_120a, sm_100a, sm_90a)
    ("vadd2.u32.u32.u32 %r1, %r2, %r3, %r4;", 0x80000000, 0xFFFFFFFF, 0xCA41777D, 0x7FFFFFFF),
    ("vsub2.u32.u32.u32 %r1, %r2, %r3, %r4;", 0x51C81B7B, 0xFFFFFFFE, 0x1733431F, 0x51C91B7D),
    ("vavrg2.u32.u32.u32 %r1, %r2, %r3, %r4;", 0xFFFFFFFF, 0x40, 0x51981496, 0x80008020),
    ("vmin2.u32.u32.u32 %r1, %r2, %r3, %r4;", 0x04EAEC21, 0x5C4A5639, 0x7FFFFFFF, 0x04EA5639),
    ("vmax2.u32.u32.u32 %r1, %r2, %r3, %r4;", 0xAC1A65DA, 0xA6CAB680, 0xFFFFFFFE, 0xAC1AB680),
    ("vadd4.u32.u32.u32 %r1, %r2, %r3, %r4;", 0x64, 0xAAAAAAAA, 0x80000001, 0xAAAAAA0E),
    ("vsub4.u32.u32.u32 %r1, %r2, %r3, %r4;", 0xE12BB1F4, 0xC8254, 0xFFFFFFFE, 0xE11F2FA0),
    # by hand from here on; signed ties go away from zero: (-1 + -2) / 2 is -2, (1 + 2) / 2 is 2
    ("vavrg2.s32.s32.s32 %r1, %r2, %r3, %r4;", 0xFFFF0001, 0xFFFE0002, 0, 0xFFFE0002),
    ("vavrg4.u32.u32.u32 %r1, %r2, %r3, %r4;", 0xFF030200, 0xFF000101, 0, 0xFF020201),
    ("vabsdiff2.u32.s32.s32 %r1, %r2, %r3, %r4;", 0x8000FFFF, 0x7FFF0001, 0, 0xFFFF0002),
    ("vabsdiff4.u32.u32.u32 %r1, %r2, %r3, %r4;", 0x00FF0510, 0xFF000710, 0, 0xFFFF0200),
    ("vmin4.s32.s32.s32 %r1, %r2, %r3, %r4;", 0x80FF017F, 0x7F00FF80, 0, 0x80FFFF80),
    ("vmax4.s32.s32.u32 %r1, %r2, %r3, %r4;", 0x80FF017F, 0x7F00FF80, 0, 0x7F00FF80),
    # .sat by element
    ("vadd2.s32.s32.s32.sat %r1, %r2, %r3, %r4;", 0x7FFF8000, 0x0001FFFF, 0, 0x7FFF8000),
    ("vadd4.u32.u32.u32.sat %r1, %r2, %r3, %r4;", 0xFF80017F, 0x01800102, 0, 0xFFFF0281),
    ("vsub4.u32.u32.u32.sat %r1, %r2, %r3, %r4;", 0x00000105, 0x01000203, 0, 0x00000002),
    # the last digit of a selector is element 0; numbers from 2 (4) on are elements of b
    ("vadd2.u32.u32.u32 %r1, %r2.h01, %r3, %r4;", 0x00010002, 0x00100020, 0, 0x00120021),
    ("vadd2.u32.u32.u32 %r1, %r2.h32, %r3.h23, %r4;", 0x00010002, 0x00100020, 0, 0x00300030),
    ("vsub4.u32.u32.u32 %r1, %r2.b0123, %r3, %r4;", 0x01020304, 0x01010101, 0, 0x03020100),
    ("vadd4.u32.u32.u32 %r1, %r2.b7654, %r3.b3210, %r4;", 0x01020304, 0x10203040, 0, 0x11223344),
    # a mask leaves the other elements of c
    ("vadd2.u32.u32.u32 %r1.h1, %r2, %r3, %r4;", 0x00010002, 0x00100020, 0xAABBCCDD, 0x0011CCDD),
    ("vsub4.u32.u32.u32 %r1.b321, %r2, %r3, %r4;", 0x05050505, 0x01010101, 0xAABBCCDD, 0x040404DD),
    # .add: c plus the exact results of the masked elements
    ("vabsdiff4.u32.u32.u32.add %r1, %r2, %r3, %r4;", 0xFF000510, 0x00FF0710, 7, 519),
    ("vadd4.u32.u32.u32.add %r1.b10, %r2, %r3, %r4;", 0xFFFFFFFF, 0xFFFFFFFF, 1, 1021),
    ("vsub2.s32.s32.s32.add %r1.h1, %r2, %r3, %r4;", 0x00010009, 0x00040000, 1, 0xFFFFFFFE),
    # elements of vset are 1 or 0, and what the mask leaves out comes from c
    ("vset2.u32.u32.lt %r1, %r2, %r3, %r4;", 0x0001FFFF, 0x00020000, 0, 0x00010000),
    ("vset2.s32.s32.lt %r1, %r2, %r3, %r4;", 0x0001FFFF, 0x00020000, 0, 0x00010001),
    ("vset4.u32.u32.eq %r1.b31, %r2, %r3, %r4;", 0x11223344, 0x11003344, 0xAABBCCDD, 0x01BB01DD),
    ("vset4.s32.u32.ge.add %r1, %r2, %r3, %r4;", 0xFF050002, 0xFF050101, 40, 42),
]


@pytest.mark.parametrize(("line", "a", "b", "c", "expected"), SIMD)
def test_simd(line: str, a: int, b: int, c: int, expected: int) -> None:
    assert run(line, a, b, c) == expected


REFUSED = [
    ("vadd8.u32.u32.u32 %r1, %r2, %r3, %r4;", "PTX103"),
    # modifiers: a missing type, a missing mode, a shift count that is signed, .sat with .add
    ("vadd.u32.u32 %r1, %r2, %r3;", "PTX104"),
    ("vshl.u32.u32.u32 %r1, %r2, %r3;", "PTX104"),
    ("vshr.s32.u32.s32.wrap %r1, %r2, %r3;", "PTX104"),
    ("vadd2.u32.u32.u32.sat.add %r1, %r2, %r3, %r4;", "PTX104"),
    ("vset.u32.u32.u32.gt %r1, %r2, %r3;", "PTX104"),
    # operands: a secondary operation and every SIMD form need c
    ("vadd.u32.u32.u32.add %r1, %r2, %r3;", "PTX105"),
    ("vmin4.u32.u32.u32 %r1, %r2, %r3;", "PTX105"),
    ("vadd.u32.u32.u32 %r1, %f1, %r3;", "PTX106"),
    ("vset.u32.u32.gt %p1, %r2, %r3;", "PTX106"),
    ("vadd.u32.u32.u32 %r1, %q2.b0, %r3;", "PTX101"),
    # selectors: a part that a word does not have, a mask out of order or on a scalar, and a
    # selector where the form has none
    ("vadd.u32.u32.u32 %r1, %r2.b4, %r3;", "PTX101"),
    ("vadd.u32.u32.u32 %r1.b10, %r2, %r3, %r4;", "PTX101"),
    ("vadd4.u32.u32.u32 %r1.b01, %r2, %r3, %r4;", "PTX101"),
    ("vadd2.u32.u32.u32 %r1, %r2.b3210, %r3, %r4;", "PTX101"),
    ("vadd2.u32.u32.u32 %r1, %r2.h4, %r3, %r4;", "PTX101"),
    ("vadd.u32.u32.u32 %r1, %r2, %r3, %r4.b0;", "PTX101"),
    ("add.u32 %r1, %r2.b0, %r3;", "PTX101"),
    # a destination part needs c, and excludes a secondary operation
    ("vadd.u32.u32.u32 %r1.b0, %r2, %r3;", "PTX101"),
    ("vadd.u32.u32.u32.add %r1.b0, %r2, %r3, %r4;", "PTX101"),
    # vmad negates the product or c, and nothing with .po
    ("vmad.u32.u32.u32 %r1, -%r2, %r3, -%r4;", "PTX108"),
    ("vmad.u32.u32.u32.po %r1, -%r2, %r3, %r4;", "PTX108"),
    ("vadd.u32.u32.u32 %r1, -%r2, %r3;", "PTX108"),
]


@pytest.mark.parametrize(("line", "code"), REFUSED)
def test_refused(line: str, code: str) -> None:
    assert refused(line) == code


def _halves(word: int) -> list[int]:
    return [word & 0xFFFF, word >> 16]


def _bytes(word: int) -> list[int]:
    return [word >> shift & 0xFF for shift in (0, 8, 16, 24)]


def _signed(value: int, width: int) -> int:
    return value - (value >> (width - 1) << width)


def _join(elements: list[int], width: int) -> int:
    return sum((e & ((1 << width) - 1)) << (i * width) for i, e in enumerate(elements))


def _simd_sum(x: int, y: int) -> int:
    """What the corpus kernel stores in a: __vadd4 + __vsub2 + __vabsdiffu4 + __vmaxs2 + __vminu4
    + __vavgu2 + __vcmpeq4 + __vsetltu2 + __vaddss2 + __sad(x, y, 3) + __vsadu4, in this order."""
    halves = list(zip(_halves(x), _halves(y), strict=True))
    signed = [(_signed(a, 16), _signed(b, 16)) for a, b in halves]
    quads = list(zip(_bytes(x), _bytes(y), strict=True))
    terms = [
        _join([a + b for a, b in quads], 8),
        _join([a - b for a, b in halves], 16),
        _join([abs(a - b) for a, b in quads], 8),
        _join([max(pair) for pair in signed], 16),
        _join([min(pair) for pair in quads], 8),
        _join([(a + b + 1) >> 1 for a, b in halves], 16),
        _join([255 * (a == b) for a, b in quads], 8),
        _join([a < b for a, b in halves], 16),
        _join([min(max(a + b, -32768), 32767) for a, b in signed], 16),
        abs(_signed(x, 32) - _signed(y, 32)) + 3,
        sum(abs(a - b) for a, b in quads),
    ]
    return sum(terms) % 2**32


def _scalar_sum(x: int, y: int) -> int:
    """What it stores in s: __dp4a(x, y, 1) + __dp2a_lo(x, y, 2) + __byte_perm(x, y, 0x5140)
    + __funnelshift_rc(x, y, 9) + __brev(x) + __ffs(y) + __mul24 + __umul24 + __hadd + __rhadd
    + (x > y ? __usad(x, y, 1) : 0), in this order."""
    sx, sy = _signed(x, 32), _signed(y, 32)
    x_bytes, y_bytes = ([_signed(b, 8) for b in _bytes(w)] for w in (x, y))
    terms = [
        sum(a * b for a, b in zip(x_bytes, y_bytes, strict=True)) + 1,
        sum(_signed(h, 16) * b for h, b in zip(_halves(x), y_bytes[:2], strict=True)) + 2,
        _join([x_bytes[0], y_bytes[0], x_bytes[1], y_bytes[1]], 8),
        ((y << 32 | x) >> 9),
        int(f"{x:032b}"[::-1], 2),
        (y & -y).bit_length(),
        _signed(x & 0xFFFFFF, 24) * _signed(y & 0xFFFFFF, 24),
        (x & 0xFFFFFF) * (y & 0xFFFFFF),
        (sx + sy) >> 1,
        (sx + sy + 1) >> 1,
        x - y + 1 if x > y else 0,
    ]
    return sum(terms) % 2**32


def test_corpus_kernel() -> None:
    """CUDA's SIMD intrinsics and their kin, compiled by nvcc 13.0 for sm_80.

    The kernel adds all the values of its intrinsics on x = a[i] and y = a[i + 32].
    """
    module = ptxsim.assemble(CORPUS / "video_simd__sm80.ptx")
    assert not module.diagnostics
    words = np.random.default_rng(5).integers(0, 2**32, 64, dtype=np.uint32)
    words[:4] = [0, 0xFFFFFFFF, 0x80008000, 0x7FFF01FF]
    words[32:36] = [0, 0xFFFFFFFF, 0x8000FFFF, 0x00010100]
    words[36:40] = words[4:8] ^ np.uint32(0xFF00)
    pairs = [(int(x), int(y)) for x, y in zip(words[:32], words[32:], strict=True)]
    sums = np.zeros(32, np.uint32)
    report = module.kernel().launch(grid=1, block=32, args=[words, sums])
    assert report.clean
    assert words[:32].tolist() == [_simd_sum(x, y) for x, y in pairs]
    assert sums.tolist() == [_scalar_sum(x, y) for x, y in pairs]

"""Registers wider than the type, constants of packed halves; verdicts of ptxas 13.0 and 13.5."""

from __future__ import annotations

import numpy as np
import pytest

import ptxsim

_TEXT = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p)
{{
    .reg .b32 %b<4>;
    .reg .u32 %u<4>;
    .reg .f32 %f<4>;
    .reg .b64 %bd<4>;
    .reg .u64 %ud<4>;
    .reg .s64 %sd<4>;
    .reg .f64 %fd<4>;
    .shared .b64 s;
    {line}
    ret;
}}
"""

ACCEPTED = [
    "ld.param.f32 %bd1, [p];",
    "ld.shared.f32 %bd1, [s];",
    "ld.shared.v2.f32 {%bd1, %bd2}, [s];",
    "ldu.global.f32 %bd1, [%bd2];",
    "st.shared.f32 [s], %bd1;",
    "st.volatile.shared.f32 [s], %bd1;",
    "cvt.f64.f32 %fd1, %bd1;",
    "cvt.rn.f16.f32 %b1, %f1;",
    "cvt.f32.f16 %f1, %b1;",
    "cvt.rn.f32.u32 %bd1, %u1;",
    "mul.f16x2 %b1, %b2, %b3;",
    "mov.b32 %b1, 0f3F000000;",
]

REJECTED = [
    "ld.shared.f32 %ud1, [s];",
    "ld.shared.f32 %sd1, [s];",
    "ld.shared.f32 %fd1, [s];",
    "st.shared.f32 [s], %ud1;",
    "mov.f32 %bd1, %f1;",
    "red.global.add.f32 [%bd2], %bd1;",
    "mul.f16x2 %b1, %b2, 0f3F000000;",
    "fma.rn.f16x2 %b1, %b2, 1.0, %b3;",
    "neg.f16x2 %b1, 0d3FF0000000000000;",
]


@pytest.mark.parametrize("line", ACCEPTED)
def test_accepted(line: str) -> None:
    assert ptxsim.assemble(_TEXT.format(line=line)).diagnostics == ()


@pytest.mark.parametrize("line", REJECTED)
def test_rejected(line: str) -> None:
    with pytest.raises(ptxsim.PtxError) as caught:
        ptxsim.assemble(_TEXT.format(line=line))
    assert [d.code for d in caught.value.diagnostics] == ["PTX106"]


def test_a_wider_register_is_filled_with_zeros() -> None:
    """PTX ISA, Operand Size Exceeding Instruction-Type Size: zeros above, low bits as source."""
    body = """.reg .b64 %o;
    ld.param.u64 %o, [p];
    mov.b64 %bd1, -1;
    mov.f32 %f1, 0f3FC00000;
    st.global.f32 [%o], %f1;
    ld.global.f32 %bd1, [%o];
    st.global.b64 [%o], %bd1;
    mov.b32 %b1, -1;
    cvt.rn.f16.f32 %b1, %f1;
    st.global.b32 [%o+8], %b1;
    mov.b64 %bd2, 0x123456783fc00000;
    st.global.f32 [%o+12], %bd2;
    cvt.f64.f32 %fd1, %bd2;
    st.global.f64 [%o+16], %fd1;"""
    out = ptxsim.undefined(3, np.uint64)
    report = ptxsim.assemble(_TEXT.format(line=body)).kernel().launch(grid=1, block=1, args=[out])
    assert report.findings == ()
    # 1.5 is 0x3FC00000 as f32, 0x3E00 as f16, 0x3FF8... as f64
    assert [hex(v) for v in out.tolist()] == [
        "0x3fc00000", "0x3fc0000000003e00", "0x3ff8000000000000",
    ]  # fmt: skip


def test_an_address_with_an_offset_is_a_constant() -> None:
    """As ptxas 13.0 has it, which takes no address without one outside of mov."""
    body = """.reg .b64 %o, %x, %y;
    ld.param.u64 %o, [p];
    mov.u64 %x, s;
    add.u64 %y, %x, s+4;
    sub.u64 %y, %y, %x;
    sub.u64 %y, %y, %x;
    st.global.b64 [%o], %y;"""
    out = np.zeros(1, np.uint64)
    ptxsim.assemble(_TEXT.format(line=body)).kernel().launch(grid=1, block=1, args=[out])
    assert out.tolist() == [4]

"""Lines that random instructions led to, on which we once differed from ptxas 13.0 (sm_100a)."""

from __future__ import annotations

import pytest
from line_verdicts import errors, legal

LEGAL = [
    "cvt.rs.bf16x2.f32 %r6, %f4, %f1, %r1;",
    "setp.gt.and.f16x2 %p0|%p1, %r1, %r2, 1;",
    "setp.gt.and.f16 %p0, %h1, %h2, 1;",
    "set.geu.bf16.f16 %h4, %h1, %h0;",
    "mov.v4.b32 {%f1, %r6, %f7, %r3}, {%r0, %r2, %r2, (2+3)};",
    "mov.b64 %rd1, {%f1, 0f3f800000};",
    "st.v2.f32 [%rd1], {%r1, 1.0};",
    "mbarrier.arrive_drop.noComplete.release.cta.shared.b64 _, [sv+16], 16;",
    "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8x16.b6x16_p32 {%r1, %r0}, [sv+16];",
    # words that may be given twice
    "min.relu.relu.s32 %r4, %r0, %r4;",
    "cvt.rn.satfinite.satfinite.e4m3x2.f32 %h1, %f1, %f2;",
    # the address of a variable with an offset is a constant to arithmetic
    "add.u64 %rd1, %rd2, gv+4;",
    # a narrow source of mixed precision is .bf16 by its bits alone
    "fma.rn.f32.bf16 %f4, 1, %h4, %f1;",
    "{ .reg .u16 %t; sub.f32.bf16 %f4, %t, %f1; }",
    "prefetch.L2::evict_last [gv+16];",
    "barrier.aligned.sync %r0, %r5;",
    "ldu.v2.u64 {_, %rd2}, [gv];",
    # of a vector all, or some
    "atom.global.add.v2.f32 _, [%rd1], {%f1, %f2};",
    "atom.global.add.noftz.v4.f16 {_, %h1, _, _}, [%rd1], {%h1, %h2, %h3, %h4};",
    "setp.eq.s32 %p1, %r1, gv+4;",
]

ILLEGAL = [
    # the random bits lie in a register that is declared untyped
    "cvt.rs.bf16x2.f32 %r6, %f4, %f1, 5;",
    "cvt.rs.bf16x2.f32 %r6, %f4, %f1, %f2;",
    "cvt.rs.satfinite.e4m3x4.f32 %r5, {%f3, %f1, %f2, %f3}, %f4;",
    # no constant predicate beside .bf16
    "setp.gt.and.bf16 %p0, %h1, %h2, 1;",
    "setp.gt.and.bf16x2 %p0, %r1, %r2, 1;",
    "set.geu.f16.bf16 %h4, %h1, %h0;",
    # constants in a group have a type beside registers
    "mov.b64 %rd1, {%f1, -1};",
    "mov.b64 %rd1, {%f1, (2+3)};",
    "mov.v4.b32 {%f1, %r6, %f7, %r3}, {%f0, %f2, %f2, WARP_SZ};",
    "st.v2.b32 [%rd1], {0f3f800000, 1};",
    # types in memory keep their order
    "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b6x16_p32.b8x16 {%r1, %r0}, [sv+16];",
    # words that may not be given twice
    "min.ftz.ftz.f32 %f1, %f2, %f3;",
    "max.xorsign.abs.abs.f32 %f1, %f2, %f3;",
    "fma.rn.f32.f16 %f4, 1, %h4, %f1;",
    "sub.f32.bf16 %f4, 1.0, %f1;",
    "barrier.aligned.arrive %r0, %r5;",
    "ldu.v4.u64 {%rd1, %rd2, %rd3, %rd4}, [gv];",
    "ldu.v2.u64 {_, _}, [gv];",
    "ld.v2.f32 _, [gv];",
    "atom.global.add.v2.f32 {_, _}, [%rd1], {%f1, %f2};",
    "add.u64 %rd1, %rd2, gv;",
    "add.f32 %f1, %f2, gv+4;",
    "cvta.global.u64 %rd1, sv+4;",
]


@pytest.mark.parametrize(("lines", "verdict"), [(LEGAL, True), (ILLEGAL, False)])
def test_verdicts(lines: list[str], verdict: bool) -> None:
    found = errors([("9.0", "sm_100a", line) for line in lines])
    wrong = {
        line: [d.message for d in messages]
        for line, messages in zip(lines, found, strict=True)
        if legal(messages) != verdict
    }
    assert not wrong

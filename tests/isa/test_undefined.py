"""Every case that the PTX ISA leaves undefined, or that programs take for undefined.

Each row names the section of the manual (PTX ISA 9.1) it was checked against, or says that the
manual is silent, and what ptxsim does: a finding, a value, a refusal, a choice of ours that
``docs/choices.md`` explains, or another test that shows it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptxsim

_TESTS = Path(__file__).parents[1]
_CHOICES = _TESTS.parent / "docs" / "choices.md"

_KERNEL = """
.version {version}
.target {target}
.address_size 64
.global .align 16 .b32 initialised[4] = {{7}};
.const .align 16 .b32 constants[4] = {{1, 2, 3, 4}};
.func (.param .b32 r) plain (.param .b32 p)
{{
    .reg .b32 %a;
    ld.param.b32 %a, [p]; st.param.b32 [r], %a; ret;
}}
.visible .entry k(.param .u64 buf, .param .u64 out)
{{
    .shared .align 128 .b8 sh[512];
    .local .align 16 .b8 loc[64];
    .reg .b16 %h<8>; .reg .b32 %r<24>; .reg .f32 %f<8>; .reg .b64 %d<12>; .reg .f64 %e<4>;
    .reg .pred %p<8>; .reg .b128 %q<3>;
    ld.param.u64 %d1, [buf]; ld.param.u64 %d2, [out];
    mov.u32 %r1, %tid.x; mul.wide.u32 %d3, %r1, 4; add.u64 %d4, %d1, %d3; add.u64 %d5, %d2, %d3;
    setp.eq.u32 %p1, %r1, 0; setp.lt.u32 %p2, %r1, 16;
    {body}
    st.global.u32 [%d5], %r2;
    ret;
}}
"""


def _run(body: str, block: int = 32, version: str = "9.0", target: str = "sm_90") -> Any:
    """The report and the words in %r2 of each thread."""
    text = _KERNEL.format(body=body, version=version, target=target)
    if "%q" not in body:
        text = text.replace(".reg .b128 %q<3>;", "")
    buffer, out = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    module = ptxsim.assemble(text)
    report = module.kernel().launch(grid=1, block=block, args=[buffer, out], max_instructions=10**6)
    return report, out[:block].tolist()


@dataclass(frozen=True)
class Finding:
    """A body that leads to a finding of a class."""

    class_: str
    body: str
    block: int = 32
    version: str = "9.0"
    target: str = "sm_90"


@dataclass(frozen=True)
class Value:
    """A body without a finding, and the word that every thread (or each) has in %r2."""

    want: int | list[int]
    body: str
    block: int = 32
    version: str = "9.0"
    target: str = "sm_90"


@dataclass(frozen=True)
class Refused:
    """A body that the assembler of ptxsim refuses, and the code."""

    code: str
    body: str


@dataclass(frozen=True)
class NotExecuted:
    """A legal body with an instruction that ptxsim checks and does not execute."""

    body: str
    version: str = "9.0"
    target: str = "sm_90a"


@dataclass(frozen=True)
class Elsewhere:
    """A test of another file that shows it."""

    test: str


@dataclass(frozen=True)
class Row:
    """One case: what, the section of the manual, what ptxsim does, and whether we chose that."""

    case: str
    section: str
    shown: Finding | Value | Refused | NotExecuted | Elsewhere
    choice: bool = False


SILENT = "the manual is silent"
_I, _F = "9.7.1 Integer Arithmetic Instructions: ", "9.7.3 Floating Point Instructions: "
_C = "9.7.9 Data Movement and Conversion Instructions: "
_P = "9.7.13 Parallel Synchronization and Communication Instructions: "
_W = "9.7.14 Warp Level Matrix Instructions: "
_S = "9.7.17 Stack Manipulation Instructions: "
_FLOW = "9.7.12 Control Flow Instructions: "

ROWS = [
    # --- integers
    Row("div by zero", _I + "div", Finding("undefined-result", "div.u32 %r2, %r1, 0;"), True),
    Row("rem by zero", _I + "rem", Finding("undefined-result", "rem.s32 %r2, %r1, 0;"), True),
    Row("div by zero that nothing uses", _I + "div", Value(5, "div.s32 %r3, %r1, 0;"
            "mov.u32 %r2, 5;")),
    Row("sign of rem", _I + "rem: machine-dependent",
        Value(0xFFFFFFFF, "mov.b32 %r3, -7; rem.s32 %r2, %r3, 2;"), True),
    Row("most negative number by -1", SILENT,
        Value(0x80000000, "mov.b32 %r3, 0x80000000; mov.b32 %r4, -1; div.s32 %r2, %r3, %r4;"
            ""), True),
    Row("abs and neg of the most negative number", SILENT,
        Value(0x80000000, "mov.b32 %r3, 0x80000000; abs.s32 %r4, %r3; neg.s32 %r2, %r4;"), True),
    Row("shl, shr by the width and more", "9.7.8 Logic and Shift Instructions: shl, shr",
        Value(0xFFFFFFFF, "mov.b32 %r3, 0x80000001; mov.b32 %r4, 0x10020; shr.s32 %r2, %r3, %r4;"
              "shl.b32 %r5, %r3, %r4; or.b32 %r2, %r2, %r5;")),
    Row("bfe, bfi of 32 bits beyond 255", _I + "bfe, bfi",
        Value(0x12, "mov.b32 %r3, 0x1234; mov.b32 %r4, 0x108; mov.b32 %r5, 0x108;"
              "bfe.u32 %r2, %r3, %r4, %r5;")),
    Row("bfe, bfi of 64 bits beyond 255", _I + "bfe, bfi; the assembler takes all 32 bits",
        Finding("undefined-result", "mov.b64 %d6, 0x1234; mov.b32 %r4, 0x100; mov.b32 %r5, 8;"
                "bfe.u64 %d6, %d6, %r4, %r5; cvt.u32.u64 %r2, %d6;"), True),
    Row("shf.clamp and shf.wrap", "9.7.8 Logic and Shift Instructions: shf",
        Elsewhere("isa/test_bit_rules.py::test_rules")),
    Row("bmsk, szext by 32 and more", _I + "bmsk, szext",
        Elsewhere("isa/test_bit_rules.py::test_rules")),
    Row("mul24, mad24 with set upper bits", _I + "mul24; silent on them, ptxas folds without",
        Value(6, "mov.b32 %r3, 0xAB000002; mul24.lo.u32 %r2, %r3, 3;"), True),
    Row("16-bit arithmetic", "9.6.1 Machine-Specific Semantics of 16-bit Code",
        Value(0, "mov.b16 %h1, 0xFFFF; add.u16 %h1, %h1, 1; shr.u16 %h1, %h1, 1;"
            "cvt.u32.u16 %r2, %h1;"),
        True),
    Row("fns from a base above 31", _I + "fns",
        Finding("undefined-result", "mov.b32 %r3, 32; fns.b32 %r2, %r1, %r3, 1;"), True),
    Row("fns that finds nothing", _I + "fns",
        Value(0xFFFFFFFF, "mov.b32 %r3, 1; fns.b32 %r2, %r3, 0, 40;")),
    Row("bfind without a bit to find", _I + "bfind",
        Value(0xFFFFFFFF, "mov.b32 %r3, -1; bfind.shiftamt.s32 %r2, %r3;")),
    Row("prmt selector bits, lop3 table", _C + "prmt; 9.7.8 lop3",
        Value(0x30201000 >> 8, "mov.b32 %r3, 0x30201000; mov.b32 %r4, 0xABCD0321; mov.b32 %r5, 0;"
              "prmt.b32 %r2, %r3, %r5, %r4;")),
    # --- floats
    Row("float to int out of range", _C + "cvt",
        Value(0x7FFFFFFF, "mov.f32 %f1, 0f7F000000; cvt.rzi.s32.f32 %r2, %f1;")),
    Row("float to int of NaN", _C + "cvt",
        Value(0x80000000, "mov.f32 %f1, 0f7FC00000; cvt.rni.s32.f32 %r3, %f1;"
            "mov.f64 %e1, 0d7FF8000000000000;"
              "cvt.rni.s32.f64 %r2, %e1; or.b32 %r2, %r2, %r3;")),
    Row("int to a narrower int", "6.5.1 Scalar Conversions; 9.4.1",
        Value(0xFFFFFFFE, "mov.b32 %r3, 0x1FE; cvt.s8.s32 %r2, %r3;")),
    Row("min, max of NaN", _F + "min, max",
        Value(0x3F800000, "mov.f32 %f1, 0f7FC00000; mov.f32 %f2, 0f3F800000; min.f32 %f3, %f1, %f2;"
              "mov.b32 %r2, %f3;")),
    Row("payload of a NaN", _F + "no encoding but for the canonical NaN of two instructions",
        Value(0x7FFFFFFF, "mov.f32 %f1, 0f7FC00001; add.f32 %f2, %f1, %f1; mov.b32 %r2, %f2;"
            ""), True),
    Row("abs, neg of NaN", _F + "abs, neg: an unspecified NaN",
        Elsewhere("isa/test_bit_rules.py::test_rules"), True),
    Row("cvt.f32.bf16 of NaN", _C + "cvt: an unspecified NaN",
        Value(0x7FFFFFFF, "mov.b16 %h1, 0x7FC1; cvt.f32.bf16 %f1, %h1; mov.b32 %r2, %f1;"), True),
    Row("approximate functions", _F + "rcp to tanh; 9.7.4 tanh, ex2",
        Elsewhere("isa/test_approximations.py::test_bounds"), True),
    Row("sin, cos beyond 100 pi", _F + "sin, cos: no bound",
        Elsewhere("isa/test_approximations.py::test_bounds"), True),
    Row("sin, cos of turns (.2pi)", _F + "sin, cos of PTX ISA 9.5",
        Elsewhere("isa/test_approximations.py::TestTurns"), True),
    Row("fma.oob with a NaN operand", "9.7.4 fma; 5.5.3 OOB-NaN fill mode",
        NotExecuted("mov.b16 %h1, 0x7FFF; fma.rn.oob.f16 %h2, %h1, %h1, %h1; mov.u32 %r2, 0;"),
        True),
    Row("mul and add without a rounding may fuse", _F + "add, sub, mul",
        # (1 + 2^-12)^2 - (1 + 2^-11) is 2^-24 if fused, and 0 as two instructions
        Value(0, "mov.f32 %f1, 0f3F800800; mul.f32 %f2, %f1, %f1; mov.f32 %f3, 0f3F801000;"
              "sub.f32 %f2, %f2, %f3; mov.b32 %r2, %f2;"), True),
    Row("mad of floats is fused", _F + "mad",
        Value(0x33800000, "mov.f32 %f1, 0f3F800800; mov.f32 %f3, 0fBF801000;"
              "mad.rn.f32 %f2, %f1, %f1, %f3; mov.b32 %r2, %f2;")),
    # --- operands and memory
    Row("a vector destination that names a register twice", "6.4.3 Vectors as Operands",
        Finding("undefined-result", "ld.global.v2.u32 {%r2, %r2}, [%d1];")),
    Row("memory that was never written", "8.2.6, 5.4.4",
        Finding("uninit-local", "ld.local.u32 %r2, [loc];"), True),
    Row("shared memory that was never written", "8.2.6",
        Finding("uninit-shared", "ld.shared.u32 %r2, [sh];")),
    Row("the rest of a short initialiser", "5.4.4 Initializers",
        Value(7, "ld.global.u32 %r2, [initialised]; ld.global.u32 %r3, [initialised+12];"
            "add.u32 %r2, %r2, %r3;")),
    Row("a register that was never written", SILENT,
        Finding("uninit-register", "add.u32 %r2, %r3, 1;")),
    Row("misaligned access", "6.4.1 Addresses as Operands",
        Finding("misaligned-global", "ld.global.u32 %r2, [%d1+2];")),
    Row("access outside of every allocation", SILENT,
        Finding("oob-global", "ld.global.u32 %r2, [%d1+4096];")),
    Row("generic address in the wrong window", "per instruction", Finding("oob-shared",
        "cvt.u32.u64 %r3, %d1; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r3];")),
    Row("data race", "8.7.1, 8.7.2", Finding("race-global", "st.global.u32 [%d1], %r1;"
            "mov.u32 %r2, 0;")),
    Row("atomics whose scopes do not include each other", _P + "atom",
        Elsewhere("machine/test_races.py::test_pattern")),
    Row("atomics of two sizes that overlap", "8.7.2",
        Value(0, "mov.u32 %r2, 0; @%p1 atom.global.add.u32 %r3, [%d1], 1;"
              "@!%p1 atom.global.add.u64 %d6, [%d1], 1;")),
    Row("atomics and plain stores that overlap", "8.7.2",
        Finding("race-global", "mov.u32 %r2, 0; @%p1 st.global.u64 [%d1], %d1;"
                "@!%p1 red.global.add.u32 [%d1], 1;")),
    Row("packed atomics", _P + "atom: element by element",
        Value(0x40004000, "mov.b32 %r3, 0x3C003C00; @%p1 st.shared.u32 [sh], %r3; bar.sync 0;"
              "@%p1 red.shared.add.noftz.f16x2 [sh], %r3; bar.sync 0; ld.shared.u32 %r2, [sh];")),
    Row("atomic float sums in an open order", _P + "red, atom",
        Elsewhere("machine/test_collectives.py::test_float_atomics_add_in_lane_order"), True),
    Row("atomic min and max of halves with a NaN", _P + "red, atom: silent",
        Value(0x3C007FFF, "mov.b16 %h1, 0x7E00; mov.b16 %h2, 0x3C00; mov.b32 %r3, 0x7E00FC01;"
              "@%p1 st.global.u32 [%d1], %r3; bar.sync 0; @%p1 red.global.max.noftz.v2.f16 [%d1],"
              "{%h1, %h2}; bar.sync 0; ld.global.u32 %r2, [%d1];"), True),
    Row("vector atomics", _P + "atom, red: atomic element by element",
        Elsewhere("isa/test_vector_atomics.py::TestRaces")),
    Row("a vector atomic outside of global memory", _P + "atom, red",
        Finding("oob-global", "mov.f32 %f1, 0f3F800000; mov.u32 %r2, 0;"
                "red.add.v2.f32 [sh], {%f1, %f1};")),
    Row("subnormal numbers of atom.add.f32", _P + "atom: flushed in global memory",
        Value(0, "mov.f32 %f1, 0f00000001; @%p1 st.global.u32 [%d1], 0; bar.sync 0;"
              "@%p1 red.global.add.f32 [%d1], %f1; bar.sync 0; ld.global.u32 %r2, [%d1];")),
    Row("subnormal numbers of atom.add.f32 in shared memory", _P + "atom: kept",
        Value(1, "mov.f32 %f1, 0f00000001; @%p1 st.shared.u32 [sh], 0; bar.sync 0;"
              "@%p1 red.shared.add.f32 [sh], %f1; bar.sync 0; ld.shared.u32 %r2, [sh];")),
    Row("subnormal numbers of atom.add.f32 at generic addresses", _P + "atom: by the window",
        # one lane adds in shared memory, the next in global memory
        Value(1, "mov.f32 %f1, 0f00000001; mov.u64 %d6, sh; cvta.shared.u64 %d6, %d6;"
              "@%p1 st.shared.u32 [sh], 0; @%p1 st.global.u32 [%d1], 0; bar.sync 0;"
              "selp.b64 %d6, %d6, %d1, %p1; setp.lt.u32 %p3, %r1, 2; @%p3 red.add.f32 [%d6], %f1;"
              "bar.sync 0; ld.shared.u32 %r2, [sh]; ld.global.u32 %r3, [%d1];"
              "add.u32 %r2, %r2, %r3;")),
    Row("subnormal numbers of atom.add.f32 of a shared variable", _P + "atom: by the window",
        Value(1, "mov.f32 %f1, 0f00000001; @%p1 st.shared.u32 [sh], 0; bar.sync 0;"
              "@%p1 red.add.f32 [sh], %f1; bar.sync 0; ld.shared.u32 %r2, [sh];")),
    Row("ld.volatile", "8.4 Operation Types", Elsewhere("machine/test_races.py::test_pattern")),
    Row("ld.global.nc of what the kernel writes", _C + "ld.global.nc",
        Finding("nc-coherence", "st.global.u32 [%d4], 1; ld.global.nc.u32 %r2, [%d4];")),
    Row("ldu of an address that differs in the warp", _C + "ldu",
        Value(list(range(32)), "ldu.global.u32 %r2, [%d4];"), True),
    Row("discard, then a read", _C + "discard",
        Finding("uninit-global", "@%p1 discard.global.L2 [%d1], 128; bar.sync 0;"
                "ld.global.u32 %r2, [%d4];")),
    Row("discard of what is not in global memory", _C + "discard",
        Finding("oob-global", "mov.u64 %d6, sh; cvta.shared.u64 %d6, %d6;"
                "discard.L2 [%d6], 128; mov.u32 %r2, 0;")),
    Row("discard of an address that is not aligned", _C + "discard",
        Finding("misaligned-global", "discard.global.L2 [%d1+64], 128; mov.u32 %r2, 0;")),
    Row("cvta.to of an address outside of the space", _C + "cvta",
        Finding("oob-shared", "cvta.to.shared.u64 %d6, %d1; ld.shared.u32 %r2, [%d6];")),
    Row("mapa to a rank outside of the cluster", SILENT,
        NotExecuted("mapa.u64 %d6, %d1, 99; mov.u32 %r2, 0;")),
    Row("reserved shared memory", "10.29 %reserved_smem_offset_begin: ptxsim reserves none",
        Value(0, "mov.u32 %r2, %reserved_smem_offset_end;"), True),
    Row("registers that may change",
        "10.4, 10.8, 10.23 to 10.28: %warpid, %smid, %clock, %pm, %envreg",
        Elsewhere("isa/test_special_registers.py::test_values"), True),
    # --- barriers and warps
    Row("a barrier count that is no multiple of the warp", _P + "bar, barrier",
        Finding("barrier-args", "mov.u32 %r3, 33; bar.sync 1, %r3; mov.u32 %r2, 0;")),
    Row("a barrier id above 15", _P + "bar, barrier",
        Finding("barrier-args", "mov.u32 %r3, 16; bar.sync %r3; mov.u32 %r2, 0;")),
    Row("one barrier with two counts, or .red and .sync at once",
        _P + "bar, barrier: unpredictable",
        Elsewhere("machine/test_barriers.py::test_misuse")),
    Row("a warp that arrives twice", _P + "bar, barrier",
        Finding("barrier-args", "bar.arrive 1, 96; bar.sync 1, 96; mov.u32 %r2, 0;", 64)),
    Row("aligned barriers in divergent code", _P + "bar, barrier",
        Finding("barrier-divergence", "@%p2 bra A; bar.sync 0; bra B; A: bar.sync 0;"
            "B: mov.u32 %r2, 0;")),
    Row("barrier without .aligned in divergent code", _P + "bar, barrier",
        Value(0, "@%p2 bra A; barrier.sync 0; bra B; A: barrier.sync 0; B: mov.u32 %r2, 0;")),
    Row("a barrier with exited threads", _P + "bar; " + _FLOW + "exit",
        Elsewhere("machine/test_barriers.py::test_exited_threads_are_not_waited_for")),
    Row("a lane outside of its own mask",
        _C + "shfl.sync; " + _P + "vote.sync, match.sync, redux.sync",
        Finding("mask-mismatch", "activemask.b32 %r3; vote.sync.ballot.b32 %r2, %p1, 1;")),
    Row("a named lane that has exited", _P + "vote.sync: only others are waited for",
        Value([0] * 16 + [0xFFFF0000] * 16,
              "mov.u32 %r2, 0; @%p2 bra E; setp.ne.u32 %p3, %r1, 99;"
              "vote.sync.ballot.b32 %r2, %p3, -1; bra S; E: exit; S:")),
    Row("bar.warp.sync with an exited lane", _P + "bar.warp.sync: the text names all of the mask",
        Value([0] * 16 + [1] * 16, "@%p2 exit; bar.warp.sync -1; mov.u32 %r2, 1;"), True),
    Row("a named lane that comes with another mask", _P + "vote.sync",
        Finding("mask-mismatch", "selp.b32 %r3, -1, 0xFFFF0000, %p2; bar.warp.sync %r3;"
            "mov.u32 %r2, 0;")),
    Row("lanes of one mask at two instructions below sm_70", _P + "bar.warp.sync",
        Elsewhere("machine/test_control_flow.py::test_syncwarp_in_both_branches_meets"), True),
    Row("shfl from a lane that takes no part", _C + "shfl.sync",
        Elsewhere("machine/test_definedness.py::TestShuffleOfLanesThatAreNotThere")),
    Row("shfl without .sync from sm_70 on", _C + "shfl (deprecated)",
        Elsewhere("isa/test_checked_instructions.py::TestFloorsThatEnd")),
    # --- matrices
    Row("a matrix instruction without all lanes", _W + "ldmatrix, mma, wmma",
        Elsewhere("isa/test_warp_matrix.py::TestLdmatrix")),
    Row("a row of ldmatrix that is not aligned", _W + "ldmatrix",
        Elsewhere("isa/test_warp_matrix.py::TestLdmatrix")),
    Row("an address in a lane that ldmatrix ignores", _W + "ldmatrix",
        Elsewhere("isa/test_warp_matrix.py::TestLdmatrix"), True),
    Row("alignment of wmma", _W + "wmma.load, wmma.store",
        Elsewhere("isa/test_wmma_checks.py::test_alignment")),
    Row("stride of wmma", _W + "wmma.load, wmma.store",
        Elsewhere("isa/test_wmma_checks.py::test_stride_below_the_extent")),
    Row("a wmma fragment as what it is not", _W + "wmma",
        Elsewhere("isa/test_wmma_checks.py::TestWrongUse")),
    Row("order and rounding of mma", _W + "mma",
        Elsewhere("isa/test_tensor_core_vectors.py::"), True),
    Row("metadata of mma.sp", _W + "mma.sp", Elsewhere("isa/test_sparse.py::test_every_entry")),
    Row("a block scale selector", _W + "mma with block scaling",
        Elsewhere("isa/test_sparse.py::test_scale_ids_in_registers")),
    # --- copies
    Row("an access before cp.async is complete", _C + "cp.async",
        Elsewhere("machine/test_race_pipelines.py::TestOneClass")),
    Row("two cp.async to the same bytes", _C + "cp.async",
        Elsewhere("machine/test_races.py::test_pattern")),
    Row("cp.async with src-size above cp-size", _C + "cp.async",
        Finding("copy-size", "mov.u32 %r3, 8; cp.async.ca.shared.global [sh], [%d1], 4, %r3;"
                "cp.async.wait_all; mov.u32 %r2, 0;", 1)),
    Row("cp.async that is not aligned", "6.4.1", Finding("misaligned-global",
        "add.u64 %d6, %d1, 2; cp.async.ca.shared.global [sh], [%d6], 4; cp.async.wait_all;"
            "mov.u32 %r2, 0;", 1)),
    Row("mbarrier objects, counts and phases", _P + "mbarrier",
        Elsewhere("isa/test_mbarrier.py::test_misuse_is_found")),
    Row("a plain access to a live mbarrier", _P + "mbarrier",
        Elsewhere("isa/test_mbarrier.py::test_plain_access_to_a_live_object")),
    Row("mbarrier.try_wait may give up", _P + "mbarrier.try_wait",
        Elsewhere("isa/test_mbarrier.py::test_a_wait_that_nothing_ends"), True),
    Row("size, range and alignment of cp.async.bulk", _C + "cp.async.bulk",
        Elsewhere("isa/test_bulk_copy.py::test_misuse_is_found")),
    Row("generic and async proxy without a fence", _C + "cp.async.bulk; 8.6 Proxies",
        Elsewhere("machine/test_race_pipelines.py::TestOneClass")),
    Row("cp.async.bulk to another CTA", _C + "cp.async.bulk", NotExecuted(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
        " [%r3], [%r4], 16, [%r5]; mov.u32 %r2, 0;")),
    Row("tensor maps", "5.5.3; " + _C + "cp.async.bulk.tensor", NotExecuted(
        "cp.async.bulk.tensor.1d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
        " [%r3], [%d1, {%r4}], [%r5]; mov.u32 %r2, 0;")),
    Row("wgmma", "9.7.15 Asynchronous Warpgroup Level Matrix Instructions",
        NotExecuted("wgmma.fence.sync.aligned; mov.u32 %r2, 0;")),
    Row("tcgen05", "9.7.16 TensorCore 5th Generation Family Instructions", NotExecuted(
        "tcgen05.wait::ld.sync.aligned; mov.u32 %r2, 0;", "9.0", "sm_100a")),
    Row("setmaxnreg", "9.7.19 Miscellaneous Instructions: setmaxnreg",
        # which registers a warp owns is not a matter of the registers of PTX: no effect on values
        Value(7, "setmaxnreg.inc.sync.aligned.u32 64; mov.u32 %r2, 7;", 32, "9.0", "sm_90a")),
    # --- control
    Row("an indirect call that no function fits", _FLOW + "call",
        Elsewhere("machine/test_control_flow.py::test_call_of_a_null_pointer")),
    Row("brx.idx past its list", _FLOW + "brx.idx",
        Elsewhere("machine/test_control_flow.py::test_branch_index_past_the_table")),
    Row("ret and exit in divergent code", _FLOW + "ret, exit",
        Value([0] * 16 + [1] * 16, "@%p2 ret; mov.u32 %r2, 1;")),
    Row(".uni where lanes differ", _FLOW + "bra, call, ret, brx.idx",
        Finding("uni-divergence", "@%p2 bra.uni A; mov.u32 %r2, 2; bra S; A: mov.u32 %r2, 1; S:"),
        True),
    Row("stackrestore of a foreign value", _S + "stackrestore",
        Finding("bad-stackrestore", "mov.u64 %d6, 4096; stackrestore.u64 %d6; mov.u32 %r2, 0;")),
    Row("an access after stackrestore", _S + "alloca",
        Finding("oob-local", "stacksave.u64 %d6; alloca.u64 %d7, 16; st.local.u32 [%d7], 5;"
                "stackrestore.u64 %d6; ld.local.u32 %r2, [%d7];")),
    Row("an access to the memory of alloca after the return", _S + "alloca",
        Elsewhere("isa/test_stack.py::test_a_return_frees")),
    Row("alloca of no bytes", _S + "alloca: may give nothing",
        Value(5, "alloca.u64 %d6, 0; mov.u32 %r2, 5;")),
    Row("an access to no bytes of alloca", _S + "alloca",
        Finding("oob-local", "alloca.u64 %d6, 0; ld.local.b8 %r2, [%d6];")),
    Row("alloca beyond the stack", _S + "alloca",
        Finding("stack-overflow", "alloca.u64 %d6, 524288; mov.u32 %r2, 0;"), True),
    Row("st.param and ld.param of a call under a guard", _C + "ld, st",
        Refused("PTX111", "{ .param .b32 a; .param .b32 b; @%p1 st.param.b32 [a], %r1;"
                "call (b), plain, (a); ld.param.b32 %r2, [b]; }")),
    Row("griddepcontrol", _P + "griddepcontrol",
        # launches here follow each other: all grids before have ended
        Value(3, "griddepcontrol.wait; mov.u32 %r2, 3;"), True),
    Row("nanosleep", "9.7.19 Miscellaneous Instructions: nanosleep",
        Value(3, "nanosleep.u32 100; mov.u32 %r2, 3;"), True),
    Row("trap", "9.7.19 Miscellaneous Instructions: trap",
        Finding("trap", "trap; mov.u32 %r2, 0;")),
    Row("brkpt", "9.7.19 Miscellaneous Instructions: brkpt",
        Finding("trap", "brkpt; mov.u32 %r2, 4;"), True),
    Row("a pragma that nobody knows", "11 Directives: .pragma",
        Value(6, '.pragma "unknown"; mov.u32 %r2, 6;')),
]  # fmt: skip


def _shown(kind: type) -> list[Row]:
    return [row for row in ROWS if isinstance(row.shown, kind)]


def _ids(row: Row) -> str:
    return row.case.replace(" ", "-")


@pytest.mark.parametrize("row", _shown(Finding), ids=_ids)
def test_findings(row: Row) -> None:
    shown: Any = row.shown
    report, _ = _run(shown.body, shown.block, shown.version, shown.target)
    assert shown.class_ in {f.class_ for f in report.findings}, report.findings


@pytest.mark.parametrize("row", _shown(Value), ids=_ids)
def test_values(row: Row) -> None:
    shown: Any = row.shown
    report, words = _run(shown.body, shown.block, shown.version, shown.target)
    assert report.clean, report.findings
    assert words == (shown.want if isinstance(shown.want, list) else [shown.want] * shown.block)


@pytest.mark.parametrize("row", _shown(Refused), ids=_ids)
def test_refusals(row: Row) -> None:
    shown: Any = row.shown
    with pytest.raises(ptxsim.PtxError) as caught:
        _run(shown.body)
    assert shown.code in {d.code for d in caught.value.diagnostics}


@pytest.mark.parametrize("row", _shown(NotExecuted), ids=_ids)
def test_what_is_not_executed(row: Row) -> None:
    shown: Any = row.shown
    report, _ = _run(shown.body, 32, shown.version, shown.target)
    assert "unsupported" in {f.class_ for f in report.findings}, report.findings


@pytest.mark.parametrize("row", _shown(Elsewhere), ids=_ids)
def test_other_tests_exist(row: Row) -> None:
    shown: Any = row.shown
    file, _, name = shown.test.partition("::")
    text = (_TESTS / file).read_text("utf-8")
    assert re.search(rf"^(def|class) {name}", text, re.MULTILINE) or not name


def test_every_row_names_its_section() -> None:
    assert all(
        row.section and (row.section == SILENT or re.search(r"\w", row.section)) for row in ROWS
    )
    assert len({row.case for row in ROWS}) == len(ROWS)


def test_every_choice_is_explained() -> None:
    """docs/choices.md has a line for each choice, and no line for what is none."""
    lines = [line.split("|") for line in _CHOICES.read_text("utf-8").splitlines()]
    cases = [cells[1].strip() for cells in lines if len(cells) == 5][2:]
    assert cases == [row.case for row in ROWS if row.choice]


def test_a_defined_program_has_no_finding() -> None:
    """The findings above come from their rows: the frame by itself is clean."""
    report, words = _run("mov.u32 %r2, 9;")
    assert report.clean and words == [9] * 32

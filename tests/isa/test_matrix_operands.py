"""Odd but legal operands of matrix instructions, and illegal ones; verdicts are ptxas 13.0's."""

from __future__ import annotations

import numpy as np
import pytest
from matrix_kernels import group, run

import ptxsim
from ptxsim import Severity

C = "{%c0,%c1,%c2,%c3}"
HALF = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
TF32 = "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32"
DECLARE = ".reg .u32 %u<8>; .reg .f16x2 %hx<8>; .shared .align 16 .b8 tile[512];"


def verdict(line: str, head: str = ".version 8.5\n.target sm_80\n") -> str:
    """``legal``, or the code of the first diagnostic."""
    text = (
        f"{head}.address_size 64\n.visible .entry k()\n{{\n.reg .b32 %r<64>, %f<64>;"
        f".reg .f32 %c<32>; .reg .b64 %b<4>;\n{DECLARE}\n{line}\nret;\n}}\n"
    )
    try:
        ptxsim.assemble(text)
    except ptxsim.PtxError as error:
        return error.diagnostics[0].code
    return "legal"


class TestRegisterClasses:
    @pytest.mark.parametrize(
        ("register", "expected"),
        [("%f1", "legal"), ("%hx1", "legal"), ("%u1", "PTX106"), ("%c9", "PTX106")],
    )
    def test_f16(self, register: str, expected: str) -> None:
        assert verdict(f"{HALF} {C}, {{{register},{register}}}, {{%f2}}, {C};") == expected
        assert verdict(f"{HALF} {C}, {{%f0,%f1}}, {{{register}}}, {C};") == expected

    @pytest.mark.parametrize(
        ("register", "expected"),
        [("%f1", "legal"), ("%hx1", "PTX106"), ("%u1", "PTX106"), ("%c9", "PTX106")],
    )
    def test_bf16_and_tf32(self, register: str, expected: str) -> None:
        for line in (
            f"{HALF.replace('f16', 'bf16')} {C}, {{{register},{register}}}, {{%f2}}, {C};",
            f"{TF32} {C}, {{%f0,%f1}}, {{{register}}}, {C};",
        ):
            assert verdict(line) == expected

    @pytest.mark.parametrize(
        ("register", "expected"),
        [("%f1", "legal"), ("%u1", "legal"), ("%hx1", "legal"), ("%c9", "PTX106")],
    )
    def test_s8(self, register: str, expected: str) -> None:
        opcode = "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32"
        line = f"{opcode} {{%r0,%r1}}, {{%r2}}, {{{register}}}, {{%r0,%r1}};"
        assert verdict(line) == expected

    def test_mixed_registers_are_untyped_together(self) -> None:
        assert verdict(f"{HALF} {C}, {{%f0,%u1}}, {{%f2}}, {C};") == "legal"
        assert verdict(f"{HALF} {C}, {{%u1,%c9}}, {{%f2}}, {C};") == "PTX106"


class TestShapes:
    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            (f"{HALF} {{%c0,_,%c2,%c3}}, {{%f0,%f1}}, {{%f2}}, {C};", "legal"),
            (f"{HALF} {C}, {{%f0,0}}, {{%f2}}, {C};", "legal"),
            (f"{HALF} {C}, {{%f0,_}}, {{%f2}}, {C};", "PTX106"),
            (f"{HALF} {C}, {{%f0,%f1}}, %f2, {C};", "PTX106"),
            ("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0,_}, [tile];", "legal"),
            ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 %r0, [tile];", "PTX106"),
            ("movmatrix.sync.aligned.m8n8.trans.b16 %r0, 5;", "PTX106"),
            ("mma.sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r0,%r1}, {%r2,%r3},"
             " {%r4,%r5}, {%r6,%r7}, 5, 0;", "PTX106"),
        ],
    )  # fmt: skip
    def test_verdict(self, line: str, expected: str) -> None:
        assert verdict(line) == expected


def load(use: str, buffer: int, registers: str, type_: str = "f16") -> str:
    layout = {"a": "row", "b": "col", "c": "row"}[use]
    opcode = f"wmma.load.{use}.sync.aligned.{layout}.m16n16k16.global.{type_}"
    return f"{opcode} {registers}, [%b{buffer}];\n"


A, B, ACC = group("f", 8), group("f", 8, 8), group("c", 8)
MULTIPLY = "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"


class TestFragments:
    def buffers(self) -> list[np.ndarray]:
        ones = np.ones((16, 16), np.float16)
        return [ones, ones.copy(), np.ones((16, 16), np.float32), np.zeros((16, 16), np.float32)]

    def test_a_constant_first_in_the_group(self) -> None:
        """The registers behind a constant keep their numbers."""
        rest = "{0f40A00000, " + ", ".join(f"%c{i}" for i in range(1, 8)) + "}"
        body = (
            load("a", 0, A)
            + load("b", 1, B)
            + load("c", 2, ACC, "f32")
            + (
                f"{MULTIPLY} {group('c', 8, 8)}, {A}, {B}, {rest};\n"
                f"wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%b3], {group('c', 8, 8)};\n"
            )
        )
        buffers = self.buffers()
        assert not run(body, *buffers).findings
        # 16 products of 1 plus C = 1, or plus 5 where the constant is register 0: element (0, 0)
        assert buffers[3][0, :2].tolist() == [21.0, 17.0]

    def test_a_sink_leaves_the_other_registers_alone(self) -> None:
        body = load("c", 2, "{%c0,_,%c2,%c3,%c4,%c5,%c6,%c7}", "f32") + (
            "mov.f32 %c1, 0f41100000;\n"
            f"wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%b3], {ACC};\n"
        )
        buffers = self.buffers()
        assert not run(body, *buffers).findings
        assert buffers[3][0, :2].tolist() == [1.0, 9.0]

    def test_a_factor_that_only_some_lanes_hold(self) -> None:
        body = (
            load("a", 0, A)
            + load("b", 1, B)
            + load("c", 2, ACC, "f32")
            + (
                "setp.lt.u32 %p0, %t, 16;\n@%p0 mov.b32 %f0, 0;\n"
                f"{MULTIPLY} {ACC}, {A}, {B}, {ACC};\n"
            )
        )
        (finding,) = run(body, *self.buffers()).findings
        assert (finding.class_, finding.lanes) == ("wmma-fragment", tuple(range(16)))

    def test_an_accumulator_may_be_masked(self) -> None:
        body = load("c", 2, ACC, "f32") + (
            "setp.lt.u32 %p0, %t, 16;\n@%p0 mov.f32 %c0, 0f00000000;\n"
            f"wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%b3], {ACC};\n"
        )
        assert not run(body, *self.buffers()).findings

    @pytest.mark.parametrize(
        "line",
        [
            "mad.wide.u32 %d7, %t, 4, %b3; st.f32 [%d7], %c0;",
            "red.global.add.f32 [%b3], %c0;",
            "atom.global.add.f32 %c9, [%b3], %c0;",
        ],
    )
    def test_use_by_lane_is_announced(self, line: str) -> None:
        report = run(load("c", 2, ACC, "f32") + line, *self.buffers())
        assert [(f.class_, f.severity) for f in report.findings] == [
            ("wmma-fragment", Severity.ADVICE)
        ]

    def test_a_store_that_no_lane_executes_is_not(self) -> None:
        body = load("c", 2, ACC, "f32") + "setp.gt.u32 %p0, %t, 99;\n@%p0 st.global.f32 [%b3], %c0;"
        assert not run(body, *self.buffers()).findings

    def test_keeping_a_register_on_the_stack_is_not(self) -> None:
        body = load("c", 2, ACC, "f32") + "cvta.local.u64 %d0, kept;\nst.f32 [%d0], %c0;"
        declare = ".local .align 4 .b8 kept[4];"
        assert not run(body, *self.buffers(), declare=declare).findings

    def test_tile_in_local_memory(self) -> None:
        body = "cvta.local.u64 %d0, kept;\n" + load("a", 0, A).replace(".global", "").replace(
            "%b0", "%d0"
        )
        declare = ".local .align 128 .b8 kept[512];"
        (finding,) = run(body, *self.buffers(), declare=declare).findings
        assert finding.class_ == "wmma-precondition"
        assert "local memory" in finding.message


class TestLanesThatCount:
    def test_metadata_of_lanes_that_are_not_read(self) -> None:
        """Selector 0 of m16n8k32 reads lanes 0 and 1 of each quad (PTX ISA, mma.sp)."""
        body = (
            "".join(f"mov.b32 %f{i}, 0;\n" for i in range(12))
            + "and.b32 %r0, %t, 3;\nsetp.lt.u32 %p0, %r0, {limit};\n"
            "@%p0 mov.b32 %f12, 0x44444444;\n"
            "mma.sp.sync.aligned.m16n8k32.row.col.f16.f16.f16.f16"
            " {%f8,%f9}, {%f0,%f1,%f2,%f3}, {%f4,%f5,%f6,%f7}, {%f10,%f11}, %f12, 0;"
        )
        assert not [
            f for f in run(body.replace("{limit}", "2")).findings if f.severity is Severity.ERROR
        ]
        errors = [
            f for f in run(body.replace("{limit}", "1")).findings if f.severity is Severity.ERROR
        ]
        assert errors[0].class_ == "uninit-register"
        assert "%f12" in errors[0].message

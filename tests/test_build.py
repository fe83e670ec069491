"""The builder: what it writes assembles and runs, what is illegal raises where it is written."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

import ptxsim
from ptxsim import build
from ptxsim.build import Address, Kernel, Negated, Special


def doubled() -> Kernel:
    """y[i] = 2 * x[i] for the first n threads."""
    k = Kernel("doubled", target="sm_80", header=["launch: grid=1 block=64"])
    x, n = k.parameter("x", "u64"), k.parameter("n", "u32")
    base, at = k.register("b64"), k.register("b64")
    tid, count = k.new("mov.u32", "b32", Special("%tid.x")), k.register("b32")
    k.emit("ld.param.u64", base, Address(x))
    k.emit("ld.param.u32", count, Address(n))
    done = k.label("done")
    outside = k.new("setp.ge.u32", "pred", tid, count)
    k.emit("bra", done, guard=outside)
    k.emit("mad.wide.u32", at, tid, 4, base)
    value = k.register("f32")
    k.emit("ld.global.f32", value, Address(at))
    k.emit("mul.f32", value, value, 2.0)
    k.emit("st.global.f32", Address(at), value)
    k.place(done)
    return k


def test_runs() -> None:
    x = np.arange(64, dtype=np.float32)
    report = doubled().assemble().kernel().launch(grid=1, block=64, args=[x, np.uint32(40)])
    assert report.clean
    assert x.tolist() == [2.0 * i if i < 40 else float(i) for i in range(64)]


def test_text() -> None:
    text = doubled().text()
    assert text.startswith("// launch: grid=1 block=64\n.version 8.0\n.target sm_80\n")
    assert "    .reg .b32 %r<2>;\n" in text
    assert "    @%p0 bra $done_0;\n" in text
    assert "    mul.f32 %f0, %f0, 0f40000000;\n" in text


def test_registers_of_two_types_with_one_prefix() -> None:
    k = Kernel("k")
    a, b = k.register("b32"), k.register("u32")
    k.emit("add.u32", b, a, 1)
    assert (a.name, b.name) == ("%r0", "%r1")
    assert ".reg .b32 %r0;" in k.declarations() and ".reg .u32 %r1;" in k.declarations()
    assert k.assemble().entries == ("k",)


def test_group_shared_and_offset() -> None:
    k = Kernel("k", target="sm_90")
    tile = k.shared("tile", 512, 128)
    at = k.new("mov.u32", "b32", tile)
    words = k.registers("b32", 4)
    k.emit("ldmatrix.sync.aligned.m8n8.x4.shared.b16", words, Address(at, 64))
    assert k.body_text().splitlines()[-1].strip() == (
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r0+64];"
    )
    assert "    .shared .align 128 .b8 tile[512];\n" in k.declarations()


class TestRefusals:
    def test_wrong_width(self) -> None:
        k = Kernel("k")
        with pytest.raises(ptxsim.PtxError, match=r"add\.u32: operand a is \.u32 \(32 bits\)"):
            k.emit("add.u32", k.register("b32"), k.register("b64"), 1)

    def test_target_floor(self) -> None:
        k = Kernel("k", target="sm_80")
        with pytest.raises(ptxsim.PtxError, match="needs target sm_90"):
            k.emit(
                "stmatrix.sync.aligned.m8n8.x1.shared.b16",
                Address(k.register("b32")), (k.register("b32"),),
            )  # fmt: skip

    def test_a_refused_instruction_is_not_written(self) -> None:
        k = Kernel("k")
        with pytest.raises(ptxsim.PtxError):
            k.emit("no.such.thing")
        k.emit("bar.sync", 0)
        assert k.body_text() == "    bar.sync 0;\n"

    def test_register_of_another_kernel(self) -> None:
        a, b = Kernel("a"), Kernel("b")
        with pytest.raises(ptxsim.PtxError, match="unknown register"):
            b.emit("add.u32", a.register("b32"), 1, 2)

    @pytest.mark.parametrize("target", ["sm_81", "80", ""])
    def test_unknown_target(self, target: str) -> None:
        with pytest.raises(ptxsim.UsageError, match="unknown target"):
            Kernel("k", target=target)

    def test_unknown_register_type(self) -> None:
        with pytest.raises(ptxsim.UsageError, match="no register has type 'f8'"):
            Kernel("k").register("f8")


def test_example_of_the_module() -> None:
    assert doctest.testmod(build).failed == 0


def test_arrays_of_every_space_and_the_shape_of_the_block() -> None:
    k = Kernel("k", target="sm_80", reqntid=(8, 4, 1))
    x = k.parameter("x", "u64", "global", 32)
    k.shared("fixed", 8, 32, "b16")
    k.shared("free", None, 32, "f32")
    mine = k.local("mine", 4, 8, "b64")
    table = k.constant("table", (7, -1), 4, "s32")
    value = k.new("ld.const.s32", "b32", Address(table, 4))
    k.emit("st.local.b32", Address(mine), value)
    value = k.new("ld.local.b32", "b32", Address(mine))
    at = k.new("ld.param.u64", "b64", Address(x))
    k.emit("st.global.b32", Address(at), value)
    text = k.text()
    assert (
        ".extern .shared .align 32 .f32 free[];\n.const .align 4 .s32 table[2] = {7, -1};" in text
    )
    assert "    .param .u64 .ptr .global .align 32 x\n)\n.reqntid 8, 4, 1\n{" in text
    assert "    .shared .align 32 .b16 fixed[8];\n    .local .align 8 .b64 mine[4];" in text
    entry = k.assemble().kernel()
    out = np.zeros(1, np.int32)
    entry.launch(grid=1, block=(8, 4), args=[out])
    assert out[0] == -1
    # PTX ISA, .reqntid: each dimension must be the one given, not only the product
    with pytest.raises(ptxsim.UsageError, match="requires"):
        entry.launch(grid=1, block=(32, 1), args=[out])
    with pytest.raises(ptxsim.UsageError, match="one dynamic array"):
        k.shared("second", 49 << 10)


def test_lines_that_are_put_later_and_opposites_of_predicates() -> None:
    k = Kernel("k", target="sm_80")
    x = k.new("mov.u32", "b32", 5)
    later: list[str] = []
    with k.writing(later):
        p = k.new("setp.lt.u32", "pred", x, 7)
        k.emit("setp.lt.and.u32", p, x, 9, Negated(p))
    k.emit("add.u32", x, x, 1)
    k.append(later)
    assert [line.strip() for line in k.body_text().splitlines()] == [
        "mov.u32 %r0, 5;", "add.u32 %r0, %r0, 1;", "setp.lt.u32 %p0, %r0, 7;",
        "setp.lt.and.u32 %p0, %r0, 9, !%p0;",
    ]  # fmt: skip

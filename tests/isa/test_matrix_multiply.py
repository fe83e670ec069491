"""mma: against NumPy products of small integers, which every accumulation order gives exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matrix_kernels import group, load_fragment, run, store_fragment, unmodelled
from numpy.typing import NDArray

import ptxsim
from ptxsim.matrix import Fragment, mma_a, mma_b, mma_c, parse_shape

RNG = np.random.default_rng(5)
WARPS = 2


def words(f: Fragment, tiles: NDArray[Any]) -> NDArray[np.uint32]:
    """Registers of [thread, register] that hold tiles [W, rows, columns] of bit patterns."""
    return np.stack(f.scatter(tiles), axis=-1).reshape(-1, f.registers).astype(np.uint32)


def tiles(f: Fragment, registers: NDArray[np.uint32]) -> NDArray[Any]:
    return f.gather(list(np.moveaxis(registers.reshape(-1, 32, f.registers), -1, 0)))


def multiply(
    opcode: str, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]
) -> tuple[NDArray[Any], ptxsim.Report]:
    """D of an mma on stacks of bit patterns, all through memory."""
    rows, _, k = parse_shape(opcode.split(".")[3])
    fa, fb = mma_a(rows, k, 8 * a.dtype.itemsize), mma_b(k, 8 * b.dtype.itemsize)
    fc = mma_c(rows, 8 * c.dtype.itemsize)
    na, nb, nc = fa.registers, fb.registers, fc.registers
    out = np.zeros((32 * len(a), nc), np.uint32)
    body = "\n".join(
        (
            load_fragment(0, "r", na), load_fragment(1, "r", nb, 8), load_fragment(2, "r", nc, 16),
            f"{opcode} {group('r', nc, 24)}, {group('r', na)}, {group('r', nb, 8)},"
            f" {group('r', nc, 16)};",
            store_fragment(3, "r", nc, 24),
        )
    )  # fmt: skip
    report = run(body, words(fa, a), words(fb, b), words(fc, c), out, block=32 * len(a))
    return tiles(fc, out), report


def integers(shape: tuple[int, ...], low: int, high: int) -> NDArray[np.int64]:
    return RNG.integers(low, high, shape)


def f16(x: NDArray[Any]) -> NDArray[np.uint16]:
    return x.astype(np.float16).view(np.uint16)


def bf16(x: NDArray[Any]) -> NDArray[np.uint16]:
    return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def f32(x: NDArray[Any]) -> NDArray[np.uint32]:
    return x.astype(np.float32).view(np.uint32)


class TestFloat:
    @pytest.mark.parametrize("k", [8, 16])
    @pytest.mark.parametrize("factor", ["f16", "bf16"])
    def test_f32_accumulator(self, k: int, factor: str) -> None:
        a, b = integers((WARPS, 16, k), -8, 9), integers((WARPS, k, 8), -8, 9)
        c = integers((WARPS, 16, 8), -100, 101)
        encode = f16 if factor == "f16" else bf16
        opcode = f"mma.sync.aligned.m16n8k{k}.row.col.f32.{factor}.{factor}.f32"
        d, report = multiply(opcode, encode(a), encode(b), f32(c))
        assert not report.findings
        assert d.view(np.float32).tolist() == (a @ b + c).tolist()

    @pytest.mark.parametrize("k", [8, 16])
    def test_f16_accumulator(self, k: int) -> None:
        # |sum| <= 16 * 64 + 100 < 2048: exact in f16
        a, b = integers((WARPS, 16, k), -8, 9), integers((WARPS, k, 8), -8, 9)
        c = integers((WARPS, 16, 8), -100, 101)
        opcode = f"mma.sync.aligned.m16n8k{k}.row.col.f16.f16.f16.f16"
        d, report = multiply(opcode, f16(a), f16(b), f16(c))
        assert not report.findings
        assert d.view(np.float16).tolist() == (a @ b + c).tolist()

    def test_nan_results_are_canonical(self) -> None:
        a, b = np.zeros((1, 16, 8)), np.zeros((1, 8, 8))
        a[0, 0, 0], b[0, 0, :] = np.inf, 0.0  # infinity times zero in row 0
        for accumulator, encode, nan in (("f32", f32, 0x7FFFFFFF), ("f16", f16, 0x7FFF)):
            opcode = f"mma.sync.aligned.m16n8k8.row.col.{accumulator}.f16.f16.{accumulator}"
            d, _ = multiply(opcode, f16(a), f16(b), encode(np.zeros((1, 16, 8))))
            assert set(d[0, 0].tolist()) == {nan}
            assert set(d[0, 1:].reshape(-1).tolist()) == {0}


class TestInteger:
    @pytest.mark.parametrize("shape", ["m8n8k16", "m16n8k16", "m16n8k32"])
    @pytest.mark.parametrize("types", ["s8.s8", "s8.u8", "u8.s8", "u8.u8"])
    def test_against_numpy(self, shape: str, types: str) -> None:
        m, _, k = parse_shape(shape)
        limits = {"s": (-128, 128), "u": (0, 256)}
        a = integers((WARPS, m, k), *limits[types[0]])
        b = integers((WARPS, k, 8), *limits[types[3]])
        c = integers((WARPS, m, 8), -(10**6), 10**6)
        opcode = f"mma.sync.aligned.{shape}.row.col.s32.{types}.s32"
        d, report = multiply(
            opcode, a.astype(np.uint8), b.astype(np.uint8), c.astype(np.int32).view(np.uint32)
        )
        assert not report.findings
        assert d.view(np.int32).tolist() == (a @ b + c).tolist()

    @pytest.mark.parametrize(
        ("satfinite", "high", "low"),
        # 16 * 127 * 127 = 258064 beyond 2**31 - 1, and -258064 - 2032 below -2**31
        [("", -(2**31) + 258063, 2**31 - 16 * 127 * 128), (".satfinite", 2**31 - 1, -(2**31))],
    )
    def test_overflow(self, satfinite: str, high: int, low: int) -> None:
        a = np.full((1, 16, 16), 127, np.int64)
        a[:, 8:] = -128
        b = np.full((1, 16, 8), 127, np.int64)
        c = np.full((1, 16, 8), 2**31 - 1, np.int64)
        c[:, 8:] = -(2**31)
        opcode = f"mma.sync.aligned.m16n8k16.row.col{satfinite}.s32.s8.s8.s32"
        d, _ = multiply(
            opcode, a.astype(np.uint8), b.astype(np.uint8), c.astype(np.int32).view(np.uint32)
        )
        signed = d.view(np.int32)[0]
        assert (set(signed[:8].reshape(-1)), set(signed[8:].reshape(-1))) == ({high}, {low})


class TestChecks:
    LINE = (
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
        " {%c0, %c1, %c2, %c3}, {%f0, %f1}, {%f2}, {%c4, %c5, %c6, %c7};"
    )
    INPUTS = "".join(f"mov.b32 %f{k}, 0;" for k in range(3)) + "".join(
        f"mov.f32 %c{k}, 0f00000000;" for k in range(4, 8)
    )

    def test_undefined_accumulator(self) -> None:
        missing = self.INPUTS.replace("mov.f32 %c6", "mov.f32 %c9")
        (finding,) = run(missing + self.LINE).findings
        assert (finding.class_, "%c6" in finding.message) == ("uninit-register", True)
        assert not run(self.INPUTS + self.LINE).findings

    def test_a_lane_that_left(self) -> None:
        leave = "setp.eq.u32 %p0, %t, 3; @%p0 exit;"
        (finding,) = run(self.INPUTS + leave + self.LINE).findings
        lanes = tuple(k for k in range(32) if k != 3)
        assert (finding.class_, finding.lanes) == ("collective-divergence", lanes)

    @pytest.mark.parametrize(
        ("shape", "layouts"),
        [("m16n8k8", "col.row"), ("m16n8k8", "row.row"), ("m16n8k7", "row.col")],
    )
    def test_illegal_modifiers(self, shape: str, layouts: str) -> None:
        line = self.LINE.replace("m16n8k8.row.col", f"{shape}.{layouts}")
        with pytest.raises(ptxsim.PtxError):
            unmodelled(line, ".reg .f32 %c<8>; .reg .b32 %f<3>;", ".version 8.0\n.target sm_80\n")

    def test_group_of_wrong_length(self) -> None:
        line = self.LINE.replace("m16n8k8", "m16n8k16")
        with pytest.raises(ptxsim.PtxError, match="registers are needed"):
            unmodelled(line, ".reg .f32 %c<8>; .reg .b32 %f<3>;", ".version 8.0\n.target sm_80\n")

"""wmma: load, multiply and store in all layouts, and the run-time preconditions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matrix_kernels import group, run, unmodelled
from numpy.typing import NDArray

import ptxsim
from ptxsim.matrix import parse_shape, wmma_registers

RNG = np.random.default_rng(7)
SHAPES = ["m16n16k16", "m32n8k16", "m8n32k16"]
LAYOUTS = ["row", "col"]
DTYPE: dict[str, Any] = {"f16": np.float16, "f32": np.float32, "s32": np.int32, "s8": np.int8,
                         "u8": np.uint8, "bf16": np.uint16}  # fmt: skip


def stored(tile: NDArray[Any], layout: str, stride: int) -> NDArray[Any]:
    """A tile in memory, its lines ``stride`` elements apart."""
    lines = tile.T if layout == "col" else tile
    out = np.zeros((lines.shape[0], stride), tile.dtype)
    out[:, : lines.shape[1]] = lines
    return out


def encoded(tile: NDArray[Any], type_: str) -> NDArray[Any]:
    if type_ == "bf16":
        return (tile.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return tile.astype(DTYPE[type_])


def multiply(
    shape: str, layouts: tuple[str, str, str, str], factor: str, c_type: str, d_type: str,
    *, limits: tuple[int, int] = (-4, 5), pad: int = 0, space: str = ".global", tail: str = "",
) -> None:  # fmt: skip
    """D = A * B + C through memory against NumPy; ``pad`` elements between lines."""
    m, n, k = parse_shape(shape)
    a, b = RNG.integers(*limits, (m, k)), RNG.integers(*limits, (k, n))
    c = RNG.integers(-50, 51, (m, n))
    la, lb, lc, ld = layouts
    strides = [
        (x.shape[0] if layout == "col" else x.shape[1]) + pad
        for x, layout in ((a, la), (b, lb), (c, lc), (c, ld))
    ]
    memory = [
        stored(encoded(a, factor), la, strides[0]),
        stored(encoded(b, factor), lb, strides[1]),
        stored(encoded(c, c_type), lc, strides[2]),
    ]
    out = np.zeros_like(stored(c.astype(DTYPE[d_type]), ld, strides[3]))
    used = zip("abcd", (factor, factor, c_type, d_type), strict=True)
    na, nb, nc, nd = (wmma_registers(use, (m, n, k), type_) for use, type_ in used)
    prefix_c, prefix_d = ("c" if t == "f32" else "r" for t in (c_type, d_type))
    stride = [f", {s}" if pad else "" for s in strides]
    types = f"{d_type}.{c_type}" if factor == "f16" else f"{d_type}.{factor}.{factor}.{c_type}"
    rc, rd = group(prefix_c, nc), group(prefix_d, nd, 16)
    ra, rb = group("f", na), group("f", nb, 8)
    body = f"""
wmma.load.a.sync.aligned.{la}.{shape}{space}.{factor} {ra}, [%b0]{stride[0]};
wmma.load.b.sync.aligned.{lb}.{shape}{space}.{factor} {rb}, [%b1]{stride[1]};
wmma.load.c.sync.aligned.{lc}.{shape}{space}.{c_type} {rc}, [%b2]{stride[2]};
wmma.mma.sync.aligned.{la}.{lb}.{shape}.{types}{tail} {rd}, {ra}, {rb}, {rc};
wmma.store.d.sync.aligned.{ld}.{shape}{space}.{d_type} [%b3], {rd}{stride[3]};
"""
    report = run(body, *memory, out)
    assert not report.findings
    assert out.tolist() == stored((a @ b + c).astype(DTYPE[d_type]), ld, strides[3]).tolist()


@pytest.mark.parametrize("shape", SHAPES)
class TestProduct:
    @pytest.mark.parametrize("lb", LAYOUTS)
    @pytest.mark.parametrize("la", LAYOUTS)
    def test_f16_layouts(self, shape: str, la: str, lb: str) -> None:
        for lc, ld in (("row", "col"), ("col", "row")):
            multiply(shape, (la, lb, lc, ld), "f16", "f32", "f32")

    @pytest.mark.parametrize("types", [("f16", "f16"), ("f16", "f32"), ("f32", "f16")])
    def test_f16_accumulators(self, shape: str, types: tuple[str, str]) -> None:
        multiply(shape, ("row", "col", "row", "row"), "f16", *types)
        multiply(shape, ("col", "row", "col", "col"), "f16", *types)

    @pytest.mark.parametrize("factor", ["bf16", "s8", "u8"])
    @pytest.mark.parametrize("layouts", [("row", "col"), ("col", "row")])
    def test_other_factors(self, shape: str, factor: str, layouts: tuple[str, str]) -> None:
        accumulator = "f32" if factor == "bf16" else "s32"
        limits = {"bf16": (-4, 5), "s8": (-128, 128), "u8": (0, 256)}[factor]
        multiply(shape, (*layouts, *layouts), factor, accumulator, accumulator, limits=limits)

    def test_stride_and_generic_addresses(self, shape: str) -> None:
        multiply(shape, ("row", "col", "row", "col"), "f16", "f32", "f32", pad=16, space="")


def test_satfinite() -> None:
    a = np.full((16, 16), 127, np.int8)
    c = np.full((16, 16), 2**31 - 1, np.int32)
    body = f"""
wmma.load.a.sync.aligned.row.m16n16k16.s8 {group("f", 2)}, [%b0];
wmma.load.b.sync.aligned.row.m16n16k16.s8 {group("f", 2, 2)}, [%b0];
wmma.load.c.sync.aligned.row.m16n16k16.s32 {group("r", 8)}, [%b1];
wmma.mma.sync.aligned.row.row.m16n16k16.s32.s8.s8.s32.satfinite
  {group("r", 8, 8)}, {group("f", 2)}, {group("f", 2, 2)}, {group("r", 8)};
wmma.store.d.sync.aligned.row.m16n16k16.s32 [%b1], {group("r", 8, 8)};
"""
    assert not run(body, a, c).findings
    assert set(c.reshape(-1).tolist()) == {2**31 - 1}


def test_shared_memory_round_trip() -> None:
    tile = np.arange(256, dtype=np.float32).reshape(16, 16)
    out = np.zeros_like(tile)
    registers = group("c", 8)
    body = f"""
wmma.load.c.sync.aligned.row.m16n16k16.f32 {registers}, [%b0];
mov.u32 %r0, tile;
wmma.store.d.sync.aligned.col.m16n16k16.shared.f32 [%r0], {registers};
bar.warp.sync 0xffffffff;
wmma.load.c.sync.aligned.row.m16n16k16.shared.f32 {registers}, [%r0];
wmma.store.d.sync.aligned.row.m16n16k16.f32 [%b1], {registers};
"""
    declare = ".shared .align 32 .b8 tile[1024];"
    assert not run(body, tile, out, declare=declare).findings
    assert np.array_equal(out, tile.T)


class TestPreconditions:
    """PTX ISA 9.7.14.4.2: base and stride in bytes are multiples of the size of a fragment."""

    def load(self, type_: str, count: int, offset: int, stride: str, setup: str = "") -> Any:
        line = f"{setup} wmma.load.a.sync.aligned.row.m16n16k16.global.{type_}"
        line += f" {group('f', count)}, [%b0+{offset}], {stride};"
        return run(line, np.zeros(4096, np.uint8)).findings

    @pytest.mark.parametrize(
        ("type_", "count", "offset", "stride"),
        [
            ("f16", 8, 16, 16),
            ("f16", 8, 0, 24),
            ("bf16", 4, 8, 16),
            ("s8", 2, 4, 16),
            ("s8", 2, 0, 20),
        ],
    )
    def test_alignment(self, type_: str, count: int, offset: int, stride: int) -> None:
        (finding,) = self.load(type_, count, offset, str(stride))
        assert (finding.class_, finding.count) == ("wmma-precondition", 32)

    @pytest.mark.parametrize(
        ("type_", "count", "offset", "stride"),
        # bf16 needs 16 bytes, eight-bit elements 8
        [("f16", 8, 32, 48), ("bf16", 4, 16, 24), ("s8", 2, 8, 24)],
    )
    def test_aligned(self, type_: str, count: int, offset: int, stride: int) -> None:
        assert not self.load(type_, count, offset, str(stride))

    def test_packed_lines_of_eight_halves(self) -> None:
        line = "wmma.load.a.sync.aligned.col.m8n32k16.global.f16"
        memory = np.zeros(4096, np.uint8)
        assert not run(f"{line} {group('f', 8)}, [%b0];", memory).findings
        assert not run(f"{line} {group('f', 8)}, [%b0], 8;", memory).findings
        (finding,) = run(f"{line} {group('f', 8)}, [%b0], 24;", memory).findings
        assert finding.class_ == "wmma-precondition"

    def test_short_stride(self) -> None:
        (finding,) = self.load("s8", 2, 0, "8")
        assert "less than the 16 elements" in finding.message

    def test_lanes_that_differ(self) -> None:
        setup = "mov.u32 %r1, 16; setp.eq.u32 %p0, %t, 9; @%p0 mov.u32 %r1, 32;"
        (finding,) = self.load("f16", 8, 0, "%r1", setup)
        assert (finding.class_, finding.lanes) == ("wmma-precondition", (9,))

    def test_out_of_bounds(self) -> None:
        # the last row begins at byte 4096 - 16: half of it lies past the buffer
        (finding,) = self.load("f16", 8, 32 * 113, "16")
        assert finding.class_ == "oob-global"

    def test_store(self) -> None:
        out = np.zeros(1024, np.float32)
        clear = "".join(f"mov.f32 %c{k}, 0f00000000;" for k in range(8))
        line = f"wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%b0+16], {group('c', 8)};"
        (finding,) = run(clear + line, out).findings
        assert finding.class_ == "wmma-precondition"


class TestForms:
    DECLARE = ".reg .f32 %c<16>; .reg .b32 %f<16>; .reg .b64 %b; .reg .f64 %e<4>;"

    @pytest.mark.parametrize(
        "line",
        [
            "wmma.load.a.sync.aligned.row.m16n16k8.tf32 {%f0, %f1, %f2, %f3}, [%b];",
            "wmma.load.b.sync.aligned.col.m8n8k128.b1 {%f0}, [%b];",
            "wmma.store.d.sync.aligned.row.m8n8k4.f64 [%b], {%e0, %e1}, 8;",
            "wmma.mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32"
            " {%f0, %f1}, {%f2}, {%f3}, {%f4, %f5};",
        ],
    )
    def test_small_shapes_assemble(self, line: str) -> None:
        codes = unmodelled(line, self.DECLARE, ".version 8.0\n.target sm_80\n")
        assert codes == ()

    @pytest.mark.parametrize(
        "line",
        [
            "wmma.load.a.sync.aligned.col.m8n8k32.s4 {%f0}, [%b];",
            "wmma.load.d.sync.aligned.row.m16n16k16.f32 {%c0}, [%b];",
            "wmma.mma.sync.aligned.row.col.m8n32k16.s32.s8.u8.s32 {%f0}, {%f0}, {%f0}, {%f0};",
            "wmma.load.a.sync.aligned.row.m16n16k16.local.u8 {%f0, %f1}, [%b];",
        ],
    )
    def test_illegal(self, line: str) -> None:
        with pytest.raises(ptxsim.PtxError):
            unmodelled(line, self.DECLARE, ".version 8.0\n.target sm_80\n")

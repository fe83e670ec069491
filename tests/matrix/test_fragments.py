"""Fragment maps against formulas and single facts of the PTX ISA 9.1, section 9.7.14."""

from __future__ import annotations

import numpy as np
import pytest

from ptxsim.matrix import (
    Fragment,
    mma_a,
    mma_b,
    mma_c,
    parse_shape,
    row_fragment,
    wmma_fragment,
    wmma_registers,
)
from ptxsim.matrix.fragments import fragment

WMMA_SHAPES = [(16, 16, 16), (32, 8, 16), (8, 32, 16)]


def held(f: Fragment, lane: int) -> list[tuple[int, int]]:
    return [(int(r), int(c)) for r, c in zip(f.row[lane], f.column[lane], strict=True)]


class TestMma:
    def test_a_m16n8k16_f16(self) -> None:
        # ISA: groupID = lane >> 2; row = groupID for a0,a1,a4,a5, else + 8;
        # col = (threadID_in_group * 2) + (i & 1), + 8 for i >= 4. Lane 5: group 1, thread 1.
        expected = [(1, 2), (1, 3), (9, 2), (9, 3), (1, 10), (1, 11), (9, 10), (9, 11)]
        assert held(mma_a(16, 16, 16), 5) == expected

    def test_a_m16n8k8_f16(self) -> None:
        # ISA: row = groupID for a0,a1 and groupID + 8 for a2,a3; lane 31: group 7, thread 3.
        assert held(mma_a(16, 8, 16), 31) == [(7, 6), (7, 7), (15, 6), (15, 7)]

    def test_b_m16n8k16_f16(self) -> None:
        # ISA: row = threadID * 2 + (i & 1), + 8 for i >= 2; col = groupID; lane 6: 1, 2.
        assert held(mma_b(16, 16), 6) == [(4, 1), (5, 1), (12, 1), (13, 1)]

    def test_a_m16n8k32_s8(self) -> None:
        # ISA: col = threadID * 4 + (i & 3), + 16 for i >= 8; row + 8 for 4 <= i < 8 and i >= 12.
        expected = [
            (r, 4 + c + k) for k in (0, 16) for r in (1, 9) for c in range(4)
        ]  # lane 5: group 1, thread 1
        assert held(mma_a(16, 32, 8), 5) == expected

    def test_a_and_c_m8n8k16_s8(self) -> None:
        # ISA: row = groupID, col = threadID * 4 + i; C: col = threadID * 2 + i.
        assert held(mma_a(8, 16, 8), 9) == [(2, 4), (2, 5), (2, 6), (2, 7)]
        assert held(mma_c(8, 32), 9) == [(2, 2), (2, 3)]

    def test_b_m16n8k32_s8(self) -> None:
        # ISA: row = threadID * 4 + (i & 3), + 16 for i >= 4; col = groupID.
        expected = [(k + r, 3) for k in (8, 24) for r in range(4)]
        assert held(mma_b(32, 8), 14) == expected

    def test_c_m16n8(self) -> None:
        # ISA: row = groupID for c0,c1, + 8 for c2,c3; col = threadID * 2 + (i & 1).
        assert held(mma_c(16, 32), 18) == [(4, 4), (4, 5), (12, 4), (12, 5)]

    @pytest.mark.parametrize(
        ("f", "registers"),
        [
            # Register counts: the table of the ISA section of each shape.
            (mma_a(16, 8, 16), 2), (mma_a(16, 16, 16), 4), (mma_b(8, 16), 1), (mma_b(16, 16), 2),
            (mma_a(8, 16, 8), 1), (mma_a(16, 16, 8), 2), (mma_a(16, 32, 8), 4),
            (mma_b(16, 8), 1), (mma_b(32, 8), 2),
            (mma_c(16, 32), 4), (mma_c(16, 16), 2), (mma_c(8, 32), 2),
        ],
    )  # fmt: skip
    def test_bijection(self, f: Fragment, registers: int) -> None:
        assert f.registers == registers
        assert sorted(f.flat.reshape(-1)) == list(range(f.rows * f.columns))


class TestRows:
    def test_plain_and_transposed(self) -> None:
        # ISA, ldmatrix: lane 6 receives columns 4, 5 of row 1; with .trans rows 4, 5 of column 1.
        assert held(row_fragment(False), 6) == [(1, 4), (1, 5)]
        assert held(row_fragment(True), 6) == [(4, 1), (5, 1)]


class TestWmma:
    @pytest.mark.parametrize("shape", WMMA_SHAPES)
    @pytest.mark.parametrize("type_", ["f16", "bf16", "s8", "u8"])
    @pytest.mark.parametrize("use", ["a", "b"])
    @pytest.mark.parametrize("target", [70, 80])
    def test_every_element_equally_often(
        self, shape: tuple[int, int, int], type_: str, use: str, target: int
    ) -> None:
        f = wmma_fragment(use, shape, type_, target, "row")
        counts = np.bincount(f.flat.reshape(-1), minlength=f.rows * f.columns)
        assert set(counts) == {32 * f.elements // (f.rows * f.columns)}
        assert f.registers == wmma_registers(use, shape, type_)

    @pytest.mark.parametrize("shape", WMMA_SHAPES)
    @pytest.mark.parametrize("type_", ["f16", "f32", "s32"])
    @pytest.mark.parametrize("target", [70, 75, 80])
    def test_accumulator_is_a_bijection(
        self, shape: tuple[int, int, int], type_: str, target: int
    ) -> None:
        f = wmma_fragment("c", shape, type_, target, "")
        assert sorted(f.flat.reshape(-1)) == list(range(256))

    def test_m16n16k16_is_two_mma_tiles(self) -> None:
        # ptxas makes two mma.m16n8k16 of it: A as there, C the left and the right eight columns.
        a = wmma_fragment("a", (16, 16, 16), "bf16", 80, "row")
        assert held(a, 13) == held(mma_a(16, 16, 16), 13)
        left = held(mma_c(16, 32), 13)
        right = [(r, c + 8) for r, c in left]
        assert held(wmma_fragment("c", (16, 16, 16), "f32", 80, ""), 13) == left + right

    def test_register_counts(self) -> None:
        # Table of fragments in the ISA section of wmma: bf16 and eight-bit depend on the shape.
        counts = [
            (wmma_registers("a", s, t), wmma_registers("b", s, t))
            for t in ("f16", "bf16", "s8")
            for s in WMMA_SHAPES
        ]
        assert counts == [
            (8, 8), (8, 8), (8, 8), (4, 4), (8, 2), (2, 8), (2, 2), (4, 1), (1, 4)
        ]  # fmt: skip


class TestFragment:
    def test_gather_inverts_scatter(self) -> None:
        f = mma_a(16, 16, 16)
        tile = np.arange(3 * 256, dtype=np.uint16).reshape(3, 16, 16)
        registers = f.scatter(tile)
        # lane 0 register 0: elements (0, 0) and (0, 1), low half first
        assert [r.shape for r in registers] == [(3, 32)] * 4
        assert int(registers[0][0, 0]) == 0x0001_0000
        assert np.array_equal(f.gather(registers), tile)

    def test_a_map_with_a_hole_is_refused(self) -> None:
        broken = fragment(8, 8, 2, lambda lane, i: (lane >> 2, 0 * lane + i), 16)
        with pytest.raises(AssertionError, match="covers"):
            _ = broken.holder

    def test_shape_words(self) -> None:
        assert parse_shape("m8n32k16") == (8, 32, 16)

"""Where every element of a matrix lies: mma, ldmatrix and stmatrix with elements that are numbers.

The maps are those of PTX ISA 9.1, "Matrix Fragments for mma..." and "ldmatrix", written down again
here or in :mod:`tensor_core_kernels`; nothing is taken from ptxsim.matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensor_core_kernels
from matrix_kernels import group, load_fragment, run, store_fragment
from numpy.typing import NDArray
from tensor_core_kernels import Element, Options, multiply

import ptxsim
from tests.numerics.tensor_core_model import Instruction, parse

RNG = np.random.default_rng(11)
Tiles = NDArray[np.uint64]

# -- mma ---------------------------------------------------------------------------------------

#: The pattern of the number one.
ONE = {
    "f64": 0x3FF0000000000000, "f32": 0x3F800000, "tf32": 0x3F800000, "f16": 0x3C00,
    "bf16": 0x3F80, "e4m3": 0x38, "e5m2": 0x3C, "e3m2": 0x0C, "e2m3": 0x08, "ue8m0": 0x7F,
    "ue4m3": 0x38, "s8": 1, "u8": 1, "s4": 1, "u4": 1, "b1": 1,
}  # fmt: skip


def one(type_: str, k: int) -> int:
    """e2m1 is in bits 5:2 of a byte, or packed (m16n8k64)."""
    return (2 if k == 64 else 8) if type_ == "e2m1" else ONE[type_]


def numbers(values: NDArray[np.int64], type_: str) -> Tiles:
    """Integers as patterns of an accumulator type."""
    if type_ == "s32":
        return values.astype(np.uint64)
    bits = {"f16": np.uint16, "f32": np.uint32, "f64": np.uint64}[type_]
    floats = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[type_]
    return values.astype(floats).view(bits).astype(np.uint64)


def planes(rows: int, columns: int) -> NDArray[np.int64]:
    """Bit ``p`` of the number of each element (row-major): [p, row, column]."""
    count = rows * columns
    number = np.arange(count).reshape(rows, columns)
    bits: NDArray[np.int64] = number >> np.arange((count - 1).bit_length())[:, None, None] & 1
    return bits


def selections(k: int, width: int) -> NDArray[np.int64]:
    """Identity matrices that pick the columns ``width * s + i`` of k: [s, k, i]."""
    steps = -(-k // width)
    wanted = width * np.arange(steps)[:, None, None] + np.arange(width)
    picks: NDArray[np.int64] = (np.arange(k)[None, :, None] == wanted).astype(np.int64)
    return picks


def numbered(spelling: str, use: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Stacks of zeros and ones for A and B.

    One factor has the bits of its elements' numbers, the other picks what D shows of them.
    """
    m, n, k = parse(spelling).shape
    if use == "a":
        bits, picks = planes(m, k), selections(k, n)
        a, b = np.repeat(bits, len(picks), axis=0), np.tile(picks, (len(bits), 1, 1))
    else:
        bits, picks = planes(k, n), selections(k, m).transpose(0, 2, 1)
        a, b = np.tile(picks, (len(bits), 1, 1)), np.repeat(bits, len(picks), axis=0)
    return a, b


def product_of_numbers(
    spelling: str, target: str, use: str, options: Options
) -> tuple[Tiles, Tiles]:
    """D of the instruction, with C = twice the number of its element, and the D expected."""
    i = parse(spelling)
    m, n, k = i.shape
    a, b = numbered(spelling, use)
    c = np.broadcast_to(2 * np.arange(m * n).reshape(m, n), (len(a), m, n))
    scales: dict[str, Tiles] = {}
    if i.scale_type:
        blocks = k // (16 if "block16" in spelling else 32)
        for name, lines in (("scale_a", m), ("scale_b", n)):
            scales[name] = np.full((len(a), lines, blocks), ONE[i.scale_type], np.uint64)
    d = multiply(
        spelling, target,
        (a * one(i.a_type, k)).astype(np.uint64), (b * one(i.b_type, k)).astype(np.uint64),
        numbers(c, i.c_type), options, **scales,
    )  # fmt: skip
    return d, numbers(a @ b + c, i.d_type)


FORMS = [
    *((f"m16n8k{k}.{d}.f16.f16.{d}", "sm_80") for k in (8, 16) for d in ("f16", "f32")),
    *((f"m16n8k{k}.f32.bf16.bf16.f32", "sm_80") for k in (8, 16)),
    *((f"m16n8k{k}.f32.tf32.tf32.f32", "sm_80") for k in (4, 8)),
    ("m8n8k4.f64.f64.f64.f64", "sm_80"),
    *((f"m16n8k{k}.f64.f64.f64.f64", "sm_90") for k in (4, 8, 16)),
    *((f"{s}.s32.{t}.{t}.s32", "sm_80") for s in ("m8n8k16", "m16n8k16", "m16n8k32")
      for t in ("s8", "u8")),
    *((f"{s}.s32.{t}.{t}.s32", "sm_80") for s in ("m8n8k32", "m16n8k32", "m16n8k64")
      for t in ("s4", "u4")),
    *((f"{s}.s32.b1.b1.s32", "sm_80") for s in ("m8n8k128", "m16n8k128", "m16n8k256")),
    *((f"m16n8k{k}.{d}.{a}.{b}.{d}", "sm_89") for k in (16, 32) for d in ("f16", "f32")
      for a, b in (("e4m3", "e5m2"), ("e5m2", "e4m3"))),
    *((f"m16n8k32.kind::f8f6f4.{d}.{a}.{b}.{d}", "sm_120a") for d in ("f16", "f32")
      for a, b in (("e3m2", "e2m1"), ("e2m1", "e2m3"), ("e2m3", "e4m3"))),
    ("m16n8k16.kind::f8f6f4.f32.e5m2.e4m3.f32", "sm_120a"),
    *((f"m16n8k32.kind::mxf8f6f4.block32.f32.{a}.{b}.f32.ue8m0", "sm_120a")
      for a, b in (("e3m2", "e2m1"), ("e2m1", "e5m2"))),
    ("m16n8k64.kind::mxf4.block32.f32.e2m1.e2m1.f32.ue8m0", "sm_120a"),
    ("m16n8k64.kind::mxf4nvf4.block16.f32.e2m1.e2m1.f32.ue4m3", "sm_120a"),
]  # fmt: skip


@pytest.mark.parametrize("use", ["a", "b"])
@pytest.mark.parametrize(("form", "target"), FORMS)
def test_mma(form: str, target: str, use: str) -> None:
    options = Options(bit_operation="and" if ".b1." in form else "")
    d, expected = product_of_numbers(f"mma.sync.{form}", target, use, options)
    assert np.array_equal(d, expected)


@pytest.mark.parametrize("layouts", [(a, b) for a in ("row", "col") for b in ("row", "col")])
@pytest.mark.parametrize("types", ["f16.f16.f16.f16", "f32.f16.f16.f32", "f32.f16.f16.f16"])
def test_quad_pairs(types: str, layouts: tuple[str, str]) -> None:
    # four products a warp: the stack of tiles fills the quad pairs one after the other
    for use in "ab":
        options = Options(layouts)
        d, expected = product_of_numbers(f"mma.sync.m8n8k4.{types}", "sm_70", use, options)
        assert np.array_equal(d, expected)


def test_a_wrong_map_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the two halves of k of A exchanged in the formula, but not in B's, D differs."""
    right = tensor_core_kernels.factor_elements

    def wrong(use: str, i: Instruction, layout: str) -> Iterator[Element]:
        for e in right(use, i, layout):
            yield replace(e, column=e.column ^ 8) if use == "a" else e

    monkeypatch.setattr(tensor_core_kernels, "factor_elements", wrong)
    d, expected = product_of_numbers(
        "mma.sync.m16n8k16.f32.f16.f16.f32", "sm_80", "a", Options()
    )  # fmt: skip
    assert not np.array_equal(d, expected)


@pytest.mark.parametrize(
    ("types", "padding"), [("e2m1.e3m2", (0xC3, 0xC0)), ("e2m3.e2m1", (0xC0, 0xC3))]
)
@pytest.mark.parametrize("kind", ["f8f6f4", "mxf8f6f4"])
def test_padding_around_small_floats(kind: str, types: str, padding: tuple[int, int]) -> None:
    """e2m1 is in bits 5:2 of its byte, the six-bit types in bits 5:0; the others do not count."""
    tail, more = (".ue8m0", ".block32") if kind == "mxf8f6f4" else ("", "")
    spelling = f"mma.sync.m16n8k32.kind::{kind}{more}.f32.{types}.f32{tail}"
    i = parse(spelling)
    a, b = (
        (RNG.integers(0, 2, shape) * one(t, 32) | RNG.integers(0, 256, shape) & bits).astype(
            np.uint64
        )
        for shape, t, bits in zip(((4, 16, 32), (4, 32, 8)), types.split("."), padding, strict=True)
    )
    scales = {
        name: np.full((4, lines, 1), ONE["ue8m0"], np.uint64)
        for name, lines in (("scale_a", 16), ("scale_b", 8))
        if tail
    }
    c = numbers(np.zeros((4, 16, 8), np.int64), "f32")
    d = multiply(spelling, "sm_120a", a, b, c, Options(), **scales)
    ones = [
        ((x & np.uint64(one(t, 32))) != 0).astype(np.int64)
        for x, t in ((a, i.a_type), (b, i.b_type))
    ]
    assert np.array_equal(d, numbers(ones[0] @ ones[1], "f32"))


# -- ldmatrix and stmatrix ---------------------------------------------------------------------

NINETY = ".version 8.0\n.target sm_90\n"
BLACKWELL = ".version 8.7\n.target sm_120a\n"
TILES = ".shared .align 16 .b8 tile[512];\n.shared .align 16 .b8 other[512];"
#: Buffer 0 (32 rows of 16 bytes) to ``tile``, zeros to ``other``; then %r10 and %r11 are the
#: addresses in them that buffer 1 gives each lane: one offset for ``tile``, one for ``other``.
FILL = """
add.u64 %d1, %b0, %mine;
ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%d1];
shl.b32 %r9, %t, 4;
mov.u32 %r8, tile;
add.u32 %r10, %r9, %r8;
st.shared.v4.b32 [%r10], {%r0, %r1, %r2, %r3};
mov.u32 %r7, other;
add.u32 %r9, %r9, %r7;
st.shared.v4.b32 [%r9], {0, 0, 0, 0};
bar.sync 0;
mul.wide.u32 %d1, %t, 8;
add.u64 %d1, %d1, %b1;
ld.global.v2.b32 {%r10, %r11}, [%d1];
add.u32 %r10, %r10, %r8;
add.u32 %r11, %r11, %r7;
"""
#: ``other`` to buffer 2
READ_BACK = """
bar.sync 0;
ld.shared.v4.b32 {%r0, %r1, %r2, %r3}, [%r9];
add.u64 %d1, %b2, %mine;
st.global.v4.b32 [%d1], {%r0, %r1, %r2, %r3};
"""
Bytes = NDArray[np.uint8]


def random_rows() -> Bytes:
    return RNG.integers(0, 256, (32, 16), np.uint8)


def places(*orders: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Offsets of the rows that lanes name, for ``tile`` and for ``other``."""
    pair = orders if len(orders) == 2 else (*orders, np.arange(32))
    return (16 * np.stack(pair, axis=-1)).astype(np.uint32)


def load_line(shape: str, count: int, registers: int, middle: str) -> str:
    opcode = f"ldmatrix.sync.aligned.{shape}.x{count}{middle}"
    return f"{opcode} {group('f', registers)}, [%r10];"


def store_line(shape: str, count: int, middle: str) -> str:
    return f"stmatrix.sync.aligned.{shape}.x{count}{middle} [%r11], {group('f', count)};"


def loaded(
    rows: Bytes, line: str, offsets: NDArray[np.uint32], registers: int, head: str = NINETY
) -> NDArray[np.uint32]:
    """The registers [lane, register] after one ldmatrix, as numbers."""
    out = np.zeros((32, registers), np.uint32)
    body = FILL + line + store_fragment(2, "f", registers)
    report = run(body, rows, offsets, out, declare=TILES, head=head)
    assert not report.findings
    return out


def wide_registers(rows: Bytes, count: int, trans: bool) -> NDArray[np.uint32]:
    """m8n8: half e of register m is M_m[g][2t + e], or with .trans M_m[2t + e][g]."""
    tiles = np.ascontiguousarray(rows).view(np.uint16).reshape(4, 8, 8)
    out = np.zeros((32, count), np.uint32)
    for lane, m, e in np.ndindex(32, count, 2):
        g, t = lane >> 2, lane & 3
        value = tiles[m, 2 * t + e, g] if trans else tiles[m, g, 2 * t + e]
        out[lane, m] |= int(value) << 16 * e
    return out


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_rows_in_any_order(count: int, trans: bool) -> None:
    rows, order = random_rows(), RNG.permutation(32)
    line = load_line("m8n8", count, count, ".trans.shared.b16" if trans else ".shared.b16")
    out = loaded(rows, line, places(order), count)
    assert np.array_equal(out, wide_registers(rows[order], count, trans))
    assert not np.array_equal(out, wide_registers(rows[order], count, not trans))


@pytest.mark.parametrize("stored", ["", ".trans"])
@pytest.mark.parametrize("read", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_round_trip(count: int, read: str, stored: str) -> None:
    """The same form twice restores the rows, two different ones transpose the matrices."""
    rows, out = random_rows(), np.zeros((32, 16), np.uint8)
    order, target = RNG.permutation(32), RNG.permutation(32)
    body = (
        FILL
        + load_line("m8n8", count, count, f"{read}.shared.b16")
        + store_line("m8n8", count, f"{stored}.shared.b16")
        + READ_BACK
    )
    assert not run(body, rows, places(order, target), out, declare=TILES).findings
    tiles = rows[order].view(np.uint16).reshape(4, 8, 8)
    tiles = tiles if read == stored else tiles.transpose(0, 2, 1)
    expected = np.zeros_like(out)
    moved = np.ascontiguousarray(tiles).reshape(32, 8).view(np.uint8)
    expected[target[: 8 * count]] = moved[: 8 * count]
    assert out.tolist() == expected.tolist()


def unpacked(rows: Bytes, packed: str) -> Bytes:
    """A byte for each element: n is bits 4n+3:4n (b4x16_p64) or 6n+5:6n (b6x16_p32) of the row."""
    if not packed:
        return rows
    width = int(packed[2])
    numbers = [int.from_bytes(row.tobytes(), "little") for row in rows]
    mask = (1 << width) - 1
    return np.array([[x >> width * n & mask for n in range(16)] for x in numbers], np.uint8)


PACKED = [".b8x16.b4x16_p64", ".b8x16.b6x16_p32"]


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_m8n16(count: int, packed: str) -> None:
    """Byte j of register m is element 4t + j of row g of matrix m."""
    rows, order = random_rows(), RNG.permutation(32)
    line = load_line("m8n16", count, count, f".shared{packed}")
    out = loaded(rows, line, places(order), count, BLACKWELL)
    tiles = unpacked(rows[order], packed.removeprefix(".b8x16")).reshape(4, 8, 16)
    expected = np.zeros_like(out)
    for lane, m, j in np.ndindex(32, count, 4):
        expected[lane, m] |= int(tiles[m, lane >> 2, 4 * (lane & 3) + j]) << 8 * j
    assert out.tolist() == expected.tolist()


@pytest.mark.parametrize("packed", [".b8", *PACKED])
@pytest.mark.parametrize("count", [1, 2])
def test_ldmatrix_m16n16(count: int, packed: str) -> None:
    """Byte j of registers 2m and 2m + 1 is M_m[4t + j][g] and M_m[4t + j][g + 8]."""
    rows, order = random_rows(), RNG.permutation(32)
    line = load_line("m16n16", count, 2 * count, f".trans.shared{packed}")
    out = loaded(rows, line, places(order), 2 * count, BLACKWELL)
    tiles = unpacked(rows[order], packed.removeprefix(".b8x16").removeprefix(".b8"))
    tiles = tiles.reshape(2, 16, 16)
    expected = np.zeros_like(out)
    for lane, register, j in np.ndindex(32, 2 * count, 4):
        m, column = register >> 1, (lane >> 2) + 8 * (register & 1)
        expected[lane, register] |= int(tiles[m, 4 * (lane & 3) + j, column]) << 8 * j
    assert out.tolist() == expected.tolist()


@pytest.mark.parametrize("count", [1, 2, 4])
def test_stmatrix_m16n8(count: int) -> None:
    """Byte j of register m goes to M_m[2t + (j & 1)][g + 8 (j >> 1)], M_m of 8 rows of 16."""
    registers = RNG.integers(0, 2**32, (32, count), np.uint32)
    target, out = RNG.permutation(32), np.zeros((32, 16), np.uint8)
    body = FILL + load_fragment(3, "f", count) + store_line("m16n8", count, ".trans.shared.b8")
    offsets = places(np.arange(32), target)
    report = run(
        body + READ_BACK, random_rows(), offsets, out, registers, declare=TILES, head=BLACKWELL
    )
    assert not report.findings
    expected = np.zeros_like(out)
    for lane, m, j in np.ndindex(32, count, 4):
        row, column = 2 * (lane & 3) + (j & 1), (lane >> 2) + 8 * (j >> 1)
        expected[target[8 * m + row], column] = int(registers[lane, m]) >> 8 * j & 255
    assert out.tolist() == expected.tolist()


# -- what lanes must supply --------------------------------------------------------------------

TURING = ".version 6.5\n.target sm_75\n"
AMPERE = ".version 7.0\n.target sm_80\n"


def line_number(body: str, needle: str, buffers: int, declare: str = TILES) -> int:
    """The line of the text that :func:`matrix_kernels.run` makes where ``needle`` stands."""
    return 10 + declare.count("\n") + buffers + body[: body.index(needle)].count("\n")


def one_finding(
    body: str, needle: str, *buffers: NDArray[Any], head: str = NINETY, block: int = 32
) -> ptxsim.Finding:
    """The only finding, which must belong to the instruction ``needle``."""
    (finding,) = run(body, *buffers, declare=TILES, head=head, block=block).findings
    assert finding.line == line_number(body, needle, len(buffers))
    return finding


def garbage(count: int, offset: int) -> NDArray[np.uint32]:
    """Row offsets with ``offset`` in the lanes that supply no row of ``count`` matrices."""
    offsets = places(np.arange(32))
    offsets[8 * count :, 0] = offset
    return offsets


class TestOtherLanes:
    """Only the supplying lanes' addresses count, from sm_80 on (PTX ISA, ldmatrix)."""

    @pytest.mark.parametrize("offset", [0x7FFFFFF0, 0x11, 0xFFFFFFF1])
    @pytest.mark.parametrize("count", [1, 2])
    def test_sm_80_ignores_them(self, count: int, offset: int) -> None:
        rows = random_rows()
        line = load_line("m8n8", count, count, ".shared.b16")
        out = loaded(rows, line, garbage(count, offset), count, AMPERE)
        assert np.array_equal(out, wide_registers(rows, count, False))

    @pytest.mark.parametrize(
        ("offset", "class_"),
        [(0x7FFFFFF0, "oob-shared"), (0x11, "misaligned-shared"), (8, "misaligned-shared")],
    )
    @pytest.mark.parametrize("count", [1, 2])
    def test_sm_75_needs_them(self, count: int, offset: int, class_: str) -> None:
        body = FILL + load_line("m8n8", count, count, ".shared.b16")
        finding = one_finding(
            body, "ldmatrix", random_rows(), garbage(count, offset), head=TURING
        )  # fmt: skip
        assert (finding.class_, finding.lanes) == (class_, tuple(range(8 * count, 32)))

    @pytest.mark.parametrize("count", [1, 2])
    def test_sm_75_with_repeated_addresses(self, count: int) -> None:
        rows = random_rows()
        offsets = places(np.arange(32) % (8 * count))
        line = load_line("m8n8", count, count, ".shared.b16")
        out = loaded(rows, line, offsets, count, TURING)
        assert np.array_equal(out, wide_registers(rows, count, False))

    def test_sm_75_x4_uses_all_lanes(self) -> None:
        rows, order = random_rows(), RNG.permutation(32)
        out = loaded(rows, load_line("m8n8", 4, 4, ".shared.b16"), places(order), 4, TURING)
        assert np.array_equal(out, wide_registers(rows[order], 4, False))

    @pytest.mark.parametrize("count", [1, 2])
    def test_stmatrix_ignores_them(self, count: int) -> None:
        rows, out = random_rows(), np.zeros((32, 16), np.uint8)
        offsets = places(np.arange(32))
        offsets[8 * count :, 1] = 0x7FFFFFF1
        body = (
            FILL
            + load_line("m8n8", count, count, ".shared.b16")
            + store_line("m8n8", count, ".shared.b16")
            + READ_BACK
        )
        assert not run(body, rows, offsets, out, declare=TILES).findings
        assert np.array_equal(out[: 8 * count], rows[: 8 * count])
        assert not out[8 * count :].any()


#: ldmatrix and stmatrix of every shape: the line, its matrices' rows, the header.
ROW_LINES = [
    (load_line("m8n8", 4, 4, ".shared.b16"), 8, NINETY),
    (load_line("m8n8", 4, 4, ".trans.shared.b16"), 8, NINETY),
    (load_line("m8n16", 4, 4, ".shared.b8x16.b6x16_p32"), 8, BLACKWELL),
    (load_line("m16n16", 2, 4, ".trans.shared.b8"), 16, BLACKWELL),
    (load_line("m16n16", 2, 4, ".trans.shared.b8x16.b4x16_p64"), 16, BLACKWELL),
    (store_line("m8n8", 4, ".shared.b16"), 8, NINETY),
    (store_line("m16n8", 4, ".trans.shared.b8"), 8, BLACKWELL),
]
LOADS = [line for line in ROW_LINES if line[0].startswith("ld")]
STORES = [line for line in ROW_LINES if line[0].startswith("st")]
#: the host sees what was loaded
USE = "\nadd.u64 %d1, %b0, %mine;\nst.global.v4.b32 [%d1], {%f0, %f1, %f2, %f3};\n"
CLEAR = "".join(f"mov.b32 %f{k}, 0;" for k in range(4)) + "\n"


class TestRows:
    @pytest.mark.parametrize(("line", "height", "head"), ROW_LINES)
    @pytest.mark.parametrize(
        ("offset", "class_"),
        [(168, "misaligned-shared"), (1, "misaligned-shared"), (0x10000, "oob-shared")],
    )
    def test_bad_row(self, line: str, height: int, head: str, offset: int, class_: str) -> None:
        offsets = places(np.arange(32), np.arange(32))
        offsets[21] = offset
        finding = one_finding(FILL + CLEAR + line, line, random_rows(), offsets, head=head)
        assert (finding.class_, finding.lanes) == (class_, (21,))

    @pytest.mark.parametrize(("line", "height", "head"), LOADS)
    def test_row_that_was_never_written(self, line: str, height: int, head: str) -> None:
        # lane 13 does not store its row, which lane 18 names: row 2 of matrix 2, or of 16 rows 1
        store = "st.shared.v4.b32 [%r10]"
        body = FILL.replace(store, f"setp.ne.u32 %p0, %t, 13;\n@%p0 {store}")
        order = np.arange(32)
        order[[13, 18]] = (18, 13)
        finding = one_finding(body + line + USE, line, random_rows(), places(order), head=head)
        assert finding.class_ == "uninit-shared"
        # row 2 of an 8x8 matrix is in the quad of lanes 8 to 11 (ISA figure)
        if ".m8n8." in line and ".trans" not in line:
            assert finding.lanes == (8, 9, 10, 11)
        assert f"row 2 of matrix {18 // height}," in finding.message
        assert "given by lane 18" in finding.message

    @pytest.mark.parametrize(
        ("packed", "used"), [(".b8x16.b4x16_p64", 2), (".b8x16.b6x16_p32", 3), (".b8", 4)]
    )
    def test_padding_of_packed_rows_need_not_be_written(self, packed: str, used: int) -> None:
        line = load_line("m16n16", 2, 4, f".trans.shared{packed}")
        for words in (used, used - 1):
            stores = "".join(f"st.shared.b32 [%r10+{4 * k}], %r{k};\n" for k in range(words))
            body = FILL.replace("st.shared.v4.b32 [%r10], {%r0, %r1, %r2, %r3};\n", stores) + line
            body += USE
            buffers = (random_rows(), places(np.arange(32)))
            findings = run(body, *buffers, declare=TILES, head=BLACKWELL).findings
            classes = [] if words == used else ["uninit-shared"]
            assert [f.class_ for f in findings] == classes

    @pytest.mark.parametrize(("line", "height", "head"), STORES)
    def test_two_rows_at_one_address(self, line: str, height: int, head: str) -> None:
        offsets = places(np.arange(32), np.arange(32))
        offsets[30, 1] = offsets[5, 1]
        values = "mad.lo.u32 %f0, %t, 0x01010101, 0x80808080; mov.b32 %f1, %f0;\n"
        for body, class_ in (
            (FILL + CLEAR + values + line, "race-shared"),
            (FILL + CLEAR + line, "same-value-write"),  # the rows hold the same zeros
        ):
            findings = run(body, random_rows(), offsets, declare=TILES, head=head).findings
            assert {f.line for f in findings} == {line_number(body, line, 2)}
            assert [(f.class_, f.lanes, f.other_lanes) for f in findings] == [(class_, (5,), (30,))]

    @pytest.mark.parametrize(("line", "height", "head"), ROW_LINES)
    def test_generic_address_outside_shared(self, line: str, height: int, head: str) -> None:
        generic = line.replace(".shared", "").replace("[%r10]", "[%d2]").replace("[%r11]", "[%d2]")
        address = "cvt.u64.u32 %d2, %r9;\ncvta.shared.u64 %d2, %d2;\n"
        body = FILL + CLEAR + address
        buffers = (random_rows(), places(np.arange(32)))
        assert not run(body + generic, *buffers, declare=TILES, head=head).findings
        body += "setp.eq.u32 %p0, %t, 9;\n@%p0 mov.u64 %d2, %b0;\n"
        finding = one_finding(body + generic, generic, *buffers, head=head)
        assert (finding.class_, finding.lanes) == ("oob-shared", (9,))


#: Instructions that all lanes of a warp must execute, their inputs being defined.
WHOLE_WARP = [
    *((line, head) for line, _, head in ROW_LINES),
    ("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%f0, %f1}, {%f0, %f1}, {%f2}, {%f2, %f3};",
     NINETY),
    ("mma.sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%f0, %f1}, {%f0, %f1}, {%f2, %f3},"
     " {%f2, %f3}, %r5, 0;", NINETY),
    ("movmatrix.sync.aligned.m8n8.trans.b16 %f0, %f1;", NINETY),
    (f"wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {group('f', 8)}, [%b2];", NINETY),
    (f"wmma.store.d.sync.aligned.row.m16n16k16.global.f16 [%b2], {group('f', 4)};", NINETY),
]  # fmt: skip


class TestWholeWarps:
    READY = FILL + CLEAR + "mov.b32 %r5, 0x44444444;\n"

    def buffers(self) -> list[NDArray[Any]]:
        return [random_rows(), places(np.arange(32)), np.zeros(1024, np.uint8)]

    @pytest.mark.parametrize(("line", "head"), WHOLE_WARP)
    def test_all_lanes(self, line: str, head: str) -> None:
        report = run(self.READY + line, *self.buffers(), declare=TILES, head=head)
        assert [f.class_ for f in report.findings if f.class_ != "rounding-not-established"] == []

    @pytest.mark.parametrize(("line", "head"), WHOLE_WARP)
    def test_lane_that_has_exited(self, line: str, head: str) -> None:
        body = self.READY + "setp.eq.u32 %p0, %t, 12;\n@%p0 exit;\n" + line
        finding = one_finding(body, line, *self.buffers(), head=head)
        others = tuple(lane for lane in range(32) if lane != 12)
        assert (finding.class_, finding.lanes) == ("collective-divergence", others)

    @pytest.mark.parametrize(("line", "head"), WHOLE_WARP)
    def test_lanes_that_do_not_exist(self, line: str, head: str) -> None:
        addresses = "mov.u32 %r10, tile;\nmov.u32 %r11, other;\n"
        body = CLEAR + addresses + "mov.b32 %r5, 0x44444444;\n" + line
        finding = one_finding(body, line, *self.buffers(), head=head, block=16)
        assert (finding.class_, finding.lanes) == ("collective-divergence", tuple(range(16)))

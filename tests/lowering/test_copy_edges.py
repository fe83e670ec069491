"""Copies at the edges of the rule, and inputs that a compiler with the same algebra gets wrong.

Classes T: cases without a test upstream; classes U: defects found upstream (numbers as in the
project's layout specification), each with the input that shows it and what is right.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tile_pairs import Digit, Pair, correct, digits, lowered, moved, roundtrip

from lowering import Decline, Declined, lower_copy
from lowering.layout import (
    Iter,
    LayoutError,
    Swizzle,
    canonicalize,
    parse,
    parse_tile,
    row_major,
    slice_,
)
from ptxsim.build import Address, Kernel, Special

FRAGMENT = "S[(8,4,2,2):(4@laneid,1@laneid,2,1)]"
#: the same over the coordinates (row, column) of an 8x16 tile
ROW_COLUMN = "S[(8,2,4,2):(4@laneid,2,1@laneid,1)]"


def fragment(n: int = 2, pitch: int | None = None, **more: Any) -> Pair:
    """An m8n8 fragment of n words; rows of ``pitch`` elements (8 n without a pad)."""
    row = 8 * n if pitch is None else pitch
    rows = digits((8, 4, "laneid", row), (4, 1, "laneid", 2), (n, 2, "m", 8), (2, 1, "m", 1))
    return Pair(rows, **more)


def reason(pair: Pair, variant: str = "ldstmatrix", **more: object) -> Decline:
    """Why that variant alone does not take the pair."""
    with pytest.raises(Declined) as caught:
        lowered(pair, variant=variant, **more)
    decline = caught.value.declines[variant]
    assert isinstance(decline, Decline)
    return decline


def opcodes(pair: Pair, **more: object) -> list[str]:
    """Mnemonic and shape of what is emitted, proved and modelled."""
    plan = lowered(pair, **more).plan
    assert moved(plan) == dict(pair.bytes())
    return [m.opcode for m in plan.moves]


def matrix(*shapes: str, kind: str = "ldmatrix") -> list[str]:
    """Opcodes of m8n8 moves."""
    return [f"{kind}.sync.aligned.m8n8.{s}.shared.b16" for s in shapes]


class TestT01Widths:
    """Fragment strides with elements that are not 16 bits wide: bytes decide."""

    # by hand: f32 lane 1 starts 2 elements = 8 bytes on, a matrix has it 4 bytes on; f64 16
    @pytest.mark.parametrize(("dtype", "got"), [("f32", 8), ("f64", 16)])
    def test_words_too_far_apart(self, dtype: str, got: int) -> None:
        why = reason(fragment(dtype=dtype))
        assert why.code == "LANEMAP"
        assert dict(why.numbers) == {"word": 0, "warp": 0, "lane": 1, "got": got, "want": 4}
        correct(fragment(dtype=dtype))

    @pytest.mark.parametrize("dtype", ["u8", "e4m3"])
    def test_bytes_of_two_tiles_in_a_word(self, dtype: str) -> None:
        """Word 0 holds bytes 0, 1 of a row and bytes 8, 9."""
        assert reason(fragment(dtype=dtype)).code == "LANEMAP"
        assert opcodes(fragment(dtype=dtype)) == ["ld.shared.u16"] * 2

    @pytest.mark.parametrize("direction", ["ld", "st"])
    @pytest.mark.parametrize("dtype", ["u8", "e4m3", "f32"])
    def test_words_in_order_fit(self, dtype: str, direction: str) -> None:
        per = 4 if dtype != "f32" else 1
        rows = digits((8, 4, "laneid", 16 * per), (4, 1, "laneid", per), (4, per, "m", 4 * per),
                      (per, 1, "m", 1))  # fmt: skip
        pair = Pair(rows, dtype, direction=direction)
        assert opcodes(pair) == matrix("x4", kind=f"{direction}matrix")
        assert reason(pair, faithful=True).code == "DTYPE"

    def test_eight_byte_elements_never_fit(self) -> None:
        for s4, s8 in itertools.product((1, 2, 4), (2, 4, 8)):
            rows = digits((8, 4, "laneid", s8 * 4), (4, 1, "laneid", s4))
            assert reason(Pair(rows, "f64")).code in ("LANEMAP", "RACE")


class TestT02ColumnOffset:
    """Columns of an (8,24) buffer: slices of its layout."""

    @staticmethod
    def sub(column: int) -> str:
        return str(slice_(row_major((8, 24)), (8, 24), ((0, 8), (column, 16))))

    def test_eight_fits(self) -> None:
        done = lower_copy(ROW_COLUMN, self.sub(8))
        assert [m.opcode for m in done.plan.moves] == matrix("x2")
        want = [48 * (t % 8) + 16 * (t // 8 % 2 + 1) for t in range(32)]
        assert done.plan.moves[0].address.tolist() == want
        roundtrip(done)

    def test_four_does_not(self) -> None:
        with pytest.raises(Declined) as caught:
            lower_copy(ROW_COLUMN, self.sub(4), variant="ldstmatrix")
        why = caught.value.declines["ldstmatrix"]
        assert why.code == "ALIGN" and "8 past a multiple of 16" in why.message
        assert dict(why.numbers) == {"word": 0, "warp": 0, "row": 0, "address": 8}
        roundtrip(lower_copy(ROW_COLUMN, self.sub(4)))


class TestT03OwnOffset:
    @pytest.mark.parametrize("direction", ["ld", "st"])
    @pytest.mark.parametrize("faithful", [False, True])
    def test_counted_once(self, faithful: bool, direction: str) -> None:
        pair = fragment(shared_offset=8, direction=direction)
        done = correct(pair, faithful=faithful)
        want = [16 + 32 * (t % 8) + 16 * (t // 8 % 2) for t in range(32)]
        assert done.plan.moves[0].address.tolist() == want


class TestT04WarpStride:
    @staticmethod
    def pair(stride: int, direction: str = "ld") -> Pair:
        rows = digits((4, 32, "tx", stride), (8, 4, "tx", 8), (4, 1, "tx", 2), (2, 1, "m", 1))
        return Pair(rows, scope="cta", threads=128, direction=direction)

    @pytest.mark.parametrize("direction", ["ld", "st"])
    def test_sixty_eight(self, direction: str) -> None:
        why = reason(self.pair(68, direction))
        assert (why.code, why.numbers["warp"], why.numbers["address"]) == ("ALIGN", 1, 136)
        assert opcodes(self.pair(68, direction)) == [f"{direction}.shared.b32"]

    def test_seventy_two(self) -> None:
        assert opcodes(self.pair(72)) == matrix("x1")


class TestT05Pitch:
    def test_pad_of_eight(self) -> None:
        done = correct(fragment(pitch=24))
        assert [m.opcode for m in done.plan.moves] == matrix("x2")
        assert done.proof is not None and done.proof.ways == ((2, 2),)  # no conflicts

    def test_no_pad_has_conflicts(self) -> None:
        proof = correct(fragment()).proof
        assert proof is not None and proof.ways == ((4, 2),)  # gcd(16 / 8, 8) = 2 ways

    def test_pad_of_four(self) -> None:
        why = reason(fragment(pitch=20))
        assert dict(why.numbers) == {"word": 0, "warp": 0, "row": 1, "address": 40}
        assert opcodes(fragment(pitch=20)) == ["ld.shared.b32"] * 2


class TestT06OddCounts:
    # origin: the rule takes one width that divides; ours mixes
    @pytest.mark.parametrize(
        ("halves", "rule", "ours"),
        [
            (6, ["x1"] * 3, ["x2", "x1"]),
            (10, ["x1"] * 5, ["x4", "x1"]),
            (12, ["x2"] * 3, ["x4", "x2"]),
            (14, ["x1"] * 7, ["x4", "x2", "x1"]),
        ],
    )
    @pytest.mark.parametrize("direction", ["ld", "st"])
    def test_widths(self, halves: int, rule: list[str], ours: list[str], direction: str) -> None:
        pair = fragment(halves // 2, direction=direction)
        kind = f"{direction}matrix"
        assert opcodes(pair) == matrix(*ours, kind=kind)
        assert opcodes(pair, faithful=True) == matrix(*rule, kind=kind)
        assert any("x4" in note for note in lowered(pair).plan.notes)


class TestT07Swizzles:
    # origin: table of ways by swizzle and pitch (section "Bank conflicts")
    WAYS = {None: (2, 4, 8, 8), 1: (1, 2, 4, 8), 2: (1, 1, 2, 4), 3: (1, 1, 1, 2)}

    @pytest.mark.parametrize("bits", WAYS, ids=str)
    def test_ways(self, bits: int | None) -> None:
        for pitch, ways in zip((16, 32, 64, 128), self.WAYS[bits], strict=True):
            swizzle = None if bits is None else (3, bits, 3, True)
            done = correct(fragment(2, pitch, swizzle=swizzle))
            assert [m.opcode for m in done.plan.moves] == matrix("x2")
            assert done.proof is not None and done.proof.ways == ((2 * ways, 2),)

    @pytest.mark.parametrize(
        "pitch", [8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 104, 128, 136, 256, 264]
    )
    def test_ways_of_pitches(self, pitch: int) -> None:
        # origin: table: 1 2 1 4 1 2 1 8 1 2 4 1 8 1 8 1 = gcd(pitch / 8, 8)
        proof = lowered(fragment(1, pitch)).proof
        assert proof is not None and proof.ways == ((int(np.gcd(pitch // 8, 8)), 1),)

    @pytest.mark.parametrize(
        ("pitch", "inner", "torn"),
        [(16, True, True), (32, True, True), (64, True, False), (128, True, False),
         (16, False, True), (32, False, True), (64, False, True), (128, False, True)],
    )  # fmt: skip
    def test_small_chunk(self, pitch: int, inner: bool, torn: bool) -> None:
        """Four halves stay together, so rows of eight are torn; by hand: unless all rows start at
        multiples of 64 halves, which moves their chunks by even numbers only."""
        pair = fragment(pitch=pitch, swizzle=(2, 3, 3, inner))
        if not torn:
            assert opcodes(pair) == matrix("x2")
            assert reason(pair, faithful=True).code == "CHUNK"
            return
        assert reason(pair).code in ("ROWBREAK", "PAIR", "LANEMAP", "ALIGN")
        done = correct(pair)
        assert {m.opcode for m in done.plan.moves} <= {"ld.shared.b32", "ld.shared.v2.b32"}

    def test_chunk_of_the_rule(self) -> None:
        """A swizzle of no bits does nothing; the structural rule still minds its chunk."""
        pair = fragment(swizzle=(2, 0, 3, True))
        assert opcodes(pair) == matrix("x2")
        why = reason(pair, faithful=True)
        assert (why.code, dict(why.numbers)) == ("CHUNK", {"chunk": 4})

    @pytest.mark.parametrize("direction", ["ld", "st"])
    @pytest.mark.parametrize("pitch", [16, 32, 64, 128])
    def test_outer_form(self, pitch: int, direction: str) -> None:
        pair = fragment(pitch=pitch, swizzle=(3, 3, 3, False), direction=direction)
        assert opcodes(pair) == matrix("x2", kind=f"{direction}matrix")


class TestT08Warps:
    @pytest.mark.parametrize("direction", ["ld", "st"])
    @pytest.mark.parametrize("warps", [3, 5, 6])
    def test_not_a_power_of_two(self, warps: int, direction: str) -> None:
        rows = digits((warps, 32, "tx", 128), (8, 4, "tx", 16), (4, 1, "tx", 2), (2, 2, "m", 8),
                      (2, 1, "m", 1))  # fmt: skip
        pair = Pair(rows, scope="cta", threads=32 * warps, direction=direction)
        for faithful in (False, True):
            done = correct(pair, faithful=faithful)
            want = [256 * (t // 32) + 32 * (t % 8) + 16 * (t // 8 % 2) for t in range(32 * warps)]
            assert done.plan.moves[0].address.tolist() == want


class TestT09SecondWarpgroup:
    def test_index_is_within_the_warpgroup(self) -> None:
        """Both warpgroups of a CTA run the copy with %tid.x: they load the same."""
        rows = digits((4, 32, "tid_in_wg", 64), (8, 4, "tid_in_wg", 8), (4, 1, "tid_in_wg", 2),
                      (2, 1, "m", 1))  # fmt: skip
        plan = lowered(Pair(rows, scope="warpgroup", threads=128)).plan
        k = Kernel("two", target="sm_90")
        tile = k.shared("tile", 512, 1024)
        out = k.parameter("out", "u64")
        thread, base = k.new("mov.u32", "b32", Special("%tid.x")), k.new("mov.u32", "b32", tile)
        at = k.new("and.b32", "b32", thread, 127)
        k.emit("shl.b32", at, at, 2)
        k.emit("add.u32", at, at, base)
        k.emit("st.shared.b32", Address(at), k.new("and.b32", "b32", thread, 127))
        k.emit("bar.sync", 0)
        words = k.registers("b32", 1)
        plan.emit(k, thread, base, words)
        there = k.new("ld.param.u64", "b64", Address(out))
        k.emit("mad.wide.u32", there, thread, 4, there)
        k.emit("st.global.b32", Address(there), words[0])
        result = np.full(256, -1, np.int32)
        report = k.assemble().kernel().launch(grid=1, block=256, args=[result])
        assert not [f for f in report.findings if f.code.startswith("TRAP")]
        # lane l of warp w has word 4 (l / 4) + l % 4 of the warp's matrix: its own number
        assert result.tolist() == [t % 128 for t in range(256)]


class TestT10RegisterStrides:
    @staticmethod
    def pair(stride: int, offset: int = 0, direction: str = "ld") -> Pair:
        rows = digits((8, 4, "laneid", 16), (4, 1, "laneid", 2), (2, stride, "m", 8),
                      (2, 1, "m", 1))  # fmt: skip
        return Pair(rows, register_offset=offset, direction=direction)

    @pytest.mark.parametrize("direction", ["ld", "st"])
    @pytest.mark.parametrize(("stride", "offset", "word"), [(3, 0, 1), (2, 1, 0)])
    def test_halves_of_words(self, stride: int, offset: int, word: int, direction: str) -> None:
        pair = self.pair(stride, offset, direction)
        why = reason(pair)
        assert (why.code, dict(why.numbers)) == ("PAIR", {"word": word, "lane": 0, "warp": 0})
        assert lowered(pair).plan.variant == "reg"
        correct(pair)

    @pytest.mark.parametrize("direction", ["ld", "st"])
    def test_gap(self, direction: str) -> None:
        for faithful in (False, True):
            done = correct(self.pair(4, direction=direction), faithful=faithful)
            (move,) = done.plan.moves
            assert [p.word for p in move.parts] == [0, 2]

    def test_even_offset(self) -> None:
        (move,) = correct(self.pair(2, 6)).plan.moves
        assert [p.word for p in move.parts] == [3, 4]


class TestT11Broadcast:
    @staticmethod
    def pair(direction: str) -> Pair:
        rows = digits((2, 4, "m", 0), (8, 4, "laneid", 16), (4, 1, "laneid", 2), (2, 2, "m", 8),
                      (2, 1, "m", 1))  # fmt: skip
        return Pair(rows, direction=direction)

    def test_load(self) -> None:
        done = lowered(self.pair("ld"))
        assert [m.opcode for m in done.plan.moves] == matrix("x4")
        assert moved(done.plan) == dict(self.pair("ld").bytes())

    def test_words_of_one_address(self) -> None:
        """f64 twice at one address: two vectors of two words, each word loaded once."""
        pair = Pair(digits((2, 1, "m", 0), (32, 1, "laneid", 1)), "f64")
        plan = lowered(pair).plan
        assert [m.opcode for m in plan.moves] == ["ld.shared.v2.b32"] * 2
        assert moved(plan) == dict(pair.bytes())

    def test_store(self) -> None:
        for variant in ("ldstmatrix", "reg"):
            why = reason(self.pair("st"), variant)
            assert (why.code, dict(why.numbers)) == ("RACE", {"address": 0})

    def test_one_register_twice(self) -> None:
        rows = digits((8, 4, "laneid", 16), (4, 1, "laneid", 2), (2, 0, "m", 8), (2, 1, "m", 1))
        why = reason(Pair(rows))
        assert (why.code, dict(why.numbers)) == ("RACE", {"thread": 0, "slot": 0})


class TestT12Threads:
    def test_axis_outside_the_scope(self) -> None:
        rows = digits((8, 4, "tx", 16), (4, 1, "tx", 2), (2, 2, "m", 8), (2, 1, "m", 1))
        for variant in ("ldstmatrix", "reg"):
            why = reason(Pair(rows), variant)
            assert (why.code, dict(why.numbers)) == ("AXES", {"axes": ("tx",)})

    def test_one_warp_of_a_cta(self) -> None:
        pair = fragment(scope="cta", threads=64)
        why = reason(pair)
        assert (why.code, dict(why.numbers)) == ("COVERAGE", {"used": 32, "threads": 64})
        assert lowered(pair).plan.guard is not None
        correct(pair)

    def test_lanes_beyond_the_warp(self) -> None:
        pair = Pair(digits((64, 1, "laneid", 2), (2, 1, "m", 1)))
        for variant in ("ldstmatrix", "reg"):
            why = reason(pair, variant)
            assert (why.code, dict(why.numbers)) == ("COVERAGE", {"thread": 63, "threads": 32})

    @pytest.mark.parametrize("axis", ["laneid", "wid_in_wg", "tid_in_wg"])
    def test_lanes_beyond_the_warp_of_a_cta(self, axis: str) -> None:
        """A CTA of 256 threads has no lane 32, no warp 4 of a warpgroup, no thread 128 of one."""
        extent, shared = {"laneid": (64, 2), "wid_in_wg": (8, 64), "tid_in_wg": (256, 2)}[axis]
        rows = [(extent, 1, axis, shared), (2, 1, "m", 1)]
        if axis == "wid_in_wg":
            rows.insert(1, (32, 1, "laneid", 2))
        with pytest.raises(Declined):
            lowered(Pair(digits(*rows), scope="cta", threads=64 if axis == "laneid" else 256))

    def test_no_threads_given(self) -> None:
        rows = digits((32, 1, "tx", 2), (2, 1, "m", 1))
        for threads in (0, 48, 2048):
            why = reason(Pair(rows, scope="cta", threads=threads))
            assert (why.code, dict(why.numbers)) == ("SCOPE", {"threads": threads})


class TestT13Architecture:
    @pytest.mark.parametrize(
        ("direction", "target", "need"), [("st", "sm_80", 90), ("st", "sm_89", 90),
                                          ("ld", "sm_70", 75)]
    )  # fmt: skip
    def test_too_old(self, direction: str, target: str, need: int) -> None:
        pair = fragment(direction=direction, target=target)
        for faithful in (False, True):
            why = reason(pair, faithful=faithful)
            have = int(target[3:])
            assert (why.code, dict(why.numbers)) == ("ARCH", {"need": need, "have": have})
        assert opcodes(pair) == [f"{direction}.shared.b32"] * 2

    @pytest.mark.parametrize(("direction", "target"), [("ld", "sm_75"), ("st", "sm_90")])
    def test_first_that_can(self, direction: str, target: str) -> None:
        pair = fragment(direction=direction, target=target)
        assert opcodes(pair) == matrix("x2", kind=f"{direction}matrix")

    def test_before_sm_20(self) -> None:
        with pytest.raises(Declined):
            lowered(fragment(target="sm_12"))


class TestT14Straddle:
    """Slices over two levels equal the elements picked one by one, or are refused."""

    def test_brute_force(self) -> None:
        accepted = refused = 0
        for text, shape in (("S[(2,4):(100,1)]", 8), ("S[(4,2,2):(100,10,1)]", 16),
                            ("S[(3,4):(6,1)]", 12), ("S[(2,3,4):(50,12,3)]", 24)):  # fmt: skip
            layout = parse_tile(text)
            whole = layout.evaluate()["m"]
            for begin in range(shape):
                for length in range(1, shape - begin + 1):
                    try:
                        part = slice_(layout, (shape,), ((begin, length),))
                    except LayoutError:
                        refused += 1
                        continue
                    accepted += 1
                    assert part.evaluate()["m"].tolist() == (whole[begin : begin + length].tolist())
        assert (accepted, refused) == (272, 278)

    def test_a_straddling_column(self) -> None:
        """Columns 4..12 of 8x16 in blocks of eight: two halves of rows, one in each block."""
        layout = parse_tile("S[(8,2,8):(8,64,1)]")
        part = slice_(layout, (8, 16), ((0, 8), (4, 8)))
        assert str(part) == "S[(8,2,4):(8,60,1)] + 4"
        done = lower_copy("S[(8,4,2):(4@laneid,1@laneid,1)]", part)
        assert done.plan.variant == "reg" and done.declines["ldstmatrix"].code != "EXTENTS"
        roundtrip(done)


class TestT15UnusedLanes:
    @pytest.mark.parametrize("direction", ["ld", "st"])
    @pytest.mark.parametrize("n", [1, 2])
    def test_inside_the_tile(self, n: int, direction: str) -> None:
        for faithful in (False, True):
            (move,) = lowered(fragment(n, direction=direction), faithful=faithful).plan.moves
            table = move.address.tolist()
            assert move.suppliers == 8 * n
            assert set(table) == set(table[: 8 * n]) and max(table) + 16 <= 128 * n
            assert table == [table[t % (8 * n)] for t in range(32)]


class TestT16Bytes:
    """Shapes for bytes; origin of targets: ptxas 13.0 accepts them on 100a 100f 103a 110a 120a
    120f 121a and rejects them on plain sm_100, sm_103, sm_120."""

    @staticmethod
    def load(matrices: int, target: str) -> Pair:
        rows = digits((matrices, 8, "m", 256), (8, 4, "laneid", 1), (4, 1, "laneid", 64),
                      (2, 4, "m", 8), (4, 1, "m", 16))  # fmt: skip
        return Pair(rows, "u8", target=target)

    @staticmethod
    def store(matrices: int, target: str) -> Pair:
        rows = digits((matrices, 4, "m", 128), (8, 4, "laneid", 1), (2, 2, "m", 8),
                      (4, 1, "laneid", 32), (2, 1, "m", 16))  # fmt: skip
        return Pair(rows, "u8", target=target, direction="st")

    @pytest.mark.parametrize("target", ["sm_100a", "sm_100f", "sm_103a", "sm_110a", "sm_120a",
                                        "sm_120f", "sm_121a"])  # fmt: skip
    def test_accepted(self, target: str) -> None:
        assert opcodes(self.load(1, target)) == ["ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8"]
        assert opcodes(self.store(1, target)) == ["stmatrix.sync.aligned.m16n8.x1.trans.shared.b8"]

    def test_widths(self) -> None:
        shapes = [o.split(".")[4] for o in opcodes(self.load(3, "sm_100a"))]
        assert shapes == ["x2", "x1"]
        shapes = [o.split(".")[4] for o in opcodes(self.store(7, "sm_120a"))]
        assert shapes == ["x4", "x2", "x1"]

    @pytest.mark.parametrize("target", ["sm_90", "sm_90a", "sm_100", "sm_103", "sm_120"])
    def test_refused(self, target: str) -> None:
        for pair in (self.load(1, target), self.store(1, target)):
            assert reason(pair).code == "ARCH"
            assert opcodes(pair) == [f"{pair.direction}.shared.u8"] * (8 if pair == self.load(
                1, target) else 4)  # fmt: skip

    def test_half_of_a_matrix(self) -> None:
        """Columns 0..7 alone: m16n16 loads both halves."""
        rows = digits((8, 4, "laneid", 1), (4, 1, "laneid", 64), (4, 1, "m", 16))
        why = reason(Pair(rows, "u8", target="sm_100a"))
        assert (why.code, dict(why.numbers)) == ("PAIR", {"word": 0})


class TestT17Narrowed:
    @pytest.mark.parametrize("direction", ["ld", "st"])
    @pytest.mark.parametrize("used", [1, 8, 16])
    def test_some_lanes(self, used: int, direction: str) -> None:
        pair = Pair(digits((used, 1, "laneid", 8), (8, 1, "m", 1)), direction=direction)
        why = reason(pair)
        assert (why.code, dict(why.numbers)) == ("COVERAGE", {"used": used, "threads": 32})
        assert opcodes(pair) == [f"{direction}.shared.v4.b32"]

    def test_different_parts(self) -> None:
        """Threads that hold different slots: no instruction for all of them."""
        pair = Pair(digits((2, 16, "laneid", 64), (16, 1, "laneid", 2), (2, 1, "m", 1)))
        register = "S[(32,2):(1@laneid,1)]"
        assert lower_copy(register, pair.shared_text()).plan.variant in ("ldstmatrix", "reg")
        skewed = "S[(2,16,2):(-17@laneid,1@laneid,1)] + 17@laneid"
        with pytest.raises(Declined):
            lower_copy(skewed, "S[64:1]")


class TestT18Pairing:
    def test_type(self) -> None:
        why = reason(fragment(), dtype="f8")
        assert why.code == "DTYPE" and "f8" in why.message

    def test_extents(self) -> None:
        with pytest.raises(Declined) as caught:
            lower_copy(FRAGMENT, "S[(8,4,2):(16,2,8)]")
        for why in caught.value.declines.values():
            assert (why.code, dict(why.numbers)) == ("EXTENTS", {"register": 128, "shared": 64})

    def test_units_in_other_places(self) -> None:
        done = lower_copy("S[(1,8,4,1,2,2):(7,4@laneid,1@laneid,9,2,1)]",
                          "S[(8,1,4,2,2,1):(16,5,2,8,1,3)]")  # fmt: skip
        assert [m.opcode for m in done.plan.moves] == matrix("x2")
        roundtrip(done)

    def test_words_of_the_request(self) -> None:
        assert reason(fragment(), scope="thread").code == "SCOPE"
        assert reason(fragment(), direction="g2s").code == "SPACES"
        assert reason(fragment(), target="sm_999").code == "TARGET"
        with pytest.raises(ValueError, match="no variant 'tma'; there are: ldstmatrix, reg"):
            lowered(fragment(), variant="tma")

    def test_replicas(self) -> None:
        with pytest.raises(Declined) as caught:
            lower_copy(FRAGMENT + " + R[2:0]", "S[(8,4,2,2):(16,2,8,1)]")
        assert {d.code for d in caught.value.declines.values()} == {"REPLICA"}

    def test_below_the_start(self) -> None:
        down = replace(fragment(), digits=(Digit(8, 4, "laneid", -16), *fragment().digits[1:]))
        assert reason(down).code == "EXTENTS"
        assert opcodes(replace(down, shared_offset=112)) == matrix("x2")

    def test_too_large(self) -> None:
        wide = digits((32, 1, "laneid", 8192), (8, 1, "m", 1))
        why = reason(Pair(wide), "reg")
        assert why.code == "EXTENTS" and "507920 bytes" in why.message


class TestT19Symbolic:
    def test_refused(self) -> None:
        with pytest.raises(LayoutError, match="extent must be an integer, not 'n'"):
            Iter("n", 1)  # type: ignore[arg-type]
        with pytest.raises(LayoutError, match="expected a number, found 'n'"):
            lower_copy("S[(8,4,n,2):(4@laneid,1@laneid,2,1)]", "S[(8,4,2,2):(16,2,8,1)]")


class TestT20Order:
    @pytest.mark.parametrize("trans", [False, True])
    @pytest.mark.parametrize("faithful", [False, True])
    def test_all_orders(self, faithful: bool, trans: bool) -> None:
        """Digits of both sides in any order: one decision, one table."""
        strides = (1, 32, 8, 16) if trans else (16, 2, 8, 1)
        rows = [Digit(d.extent, d.register, d.axis, s)
                for d, s in zip(fragment().digits, strides, strict=True)]  # fmt: skip
        plans = set()
        for order in itertools.permutations(rows):
            pair = Pair(order)
            plan = lowered(pair, faithful=faithful, prove=False).plan
            assert moved(plan) == dict(pair.bytes())
            plans.add(tuple((m.opcode, m.parts, tuple(m.address.tolist())) for m in plan.moves))
        assert len(plans) == 1
        ((move,),) = plans
        assert move[0] == matrix("x2.trans" if trans else "x2")[0]


class TestT21Base:
    @pytest.mark.parametrize(
        ("align", "ours"), [(1, ["u8"] * 8), (2, ["u16"] * 4), (4, ["b32"] * 2), (8, ["b32"] * 2)]
    )
    def test_unaligned_array(self, align: int, ours: list[str]) -> None:
        pair = fragment(align=align)
        why = reason(pair)
        assert (why.code, dict(why.numbers)) == ("ALIGN", {"align": align})
        assert opcodes(pair) == [f"ld.shared.{o}" for o in ours]

    @pytest.mark.parametrize(("align", "vector"), [(4, "b32"), (8, "v2.b32"), (16, "v4.b32")])
    def test_vectors(self, align: int, vector: str) -> None:
        pair = Pair(digits((32, 1, "laneid", 8), (8, 1, "m", 1)), align=align)
        assert set(opcodes(pair)) == {f"ld.shared.{vector}"}

    def test_sixteen_is_enough(self) -> None:
        assert opcodes(fragment(align=16, swizzle=(3, 3, 3, True))) == matrix("x2")

    @pytest.mark.parametrize("align", [0, 3, 48, -16])
    def test_no_alignment(self, align: int) -> None:
        with pytest.raises((Declined, ValueError)):
            lowered(fragment(align=align))


# --- defects upstream -----------------------------------------------------------------------------


class TestDefects:
    @pytest.mark.parametrize("direction", ["ld", "st"])
    @pytest.mark.parametrize("dtype", ["f32", "u8", "e4m3"])
    def test_u1_width_of_elements(self, dtype: str, direction: str) -> None:
        """Upstream sends these to .b16 moves: half of the f32 tile, an overrun of u8 registers."""
        done = correct(fragment(dtype=dtype, direction=direction))
        assert done.plan.variant == "reg"

    @pytest.mark.parametrize(("offset", "variant"), [(8, "ldstmatrix"), (4, "reg")])
    def test_u2_offset_added_twice(self, offset: int, variant: str) -> None:
        """Twice 4 looks aligned; once is not."""
        assert correct(fragment(shared_offset=offset)).plan.variant == variant

    def test_u3_segments_off_sixteen_bytes(self) -> None:
        assert reason(TestT04WarpStride.pair(68)).code == "ALIGN"
        assert reason(fragment(pitch=24, shared_offset=4)).code == "ALIGN"

    @pytest.mark.parametrize("direction", ["ld", "st"])
    @pytest.mark.parametrize(("pitch", "size"), [(12, 8), (10, 4), (9, 2)])
    def test_u4_rows_of_threads(self, pitch: int, size: int, direction: str) -> None:
        """Row t starts at 2 pitch t bytes: 24, 20, 18 are multiples of 8, 4, 2 only."""
        pair = Pair(digits((32, 1, "laneid", pitch), (8, 1, "m", 1)), direction=direction)
        done = correct(pair)
        assert {m.row for m in done.plan.moves} == {size}
        assert all(not (m.address % m.row).any() for m in done.plan.moves)

    @pytest.mark.parametrize("direction", ["ld", "st"])
    def test_u5_register_strides_of_a_vector(self, direction: str) -> None:
        """One vector, but into words 0, 2, 4, 6."""
        rows = digits((32, 1, "laneid", 4), (4, 2, "m", 1))
        (move,) = correct(Pair(rows, "f32", direction=direction)).plan.moves
        assert move.opcode == f"{direction}.shared.v4.b32"
        assert [p.word for p in move.parts] == [0, 2, 4, 6]

    @pytest.mark.parametrize("direction", ["ld", "st"])
    @pytest.mark.parametrize(("stride", "offset"), [(3, 0), (2, 1)])
    def test_u6_halves_rounded_to_words(self, stride: int, offset: int, direction: str) -> None:
        correct(TestT10RegisterStrides.pair(stride, offset, direction))

    def test_u7_straddle_at_the_last_digit(self) -> None:
        """[3,5) of (4,2,2):(100,10,1) is 11, 100; upstream answers 11, 20; ours refuses."""
        layout = parse_tile("S[(4,2,2):(100,10,1)]")
        assert layout.evaluate()["m"][3:5].tolist() == [11, 100]
        with pytest.raises(LayoutError, match="no slice of 2 from 3 on"):
            slice_(layout, (16,), ((3, 2),))

    def test_u8_offsets_of_fused_axes(self) -> None:
        text = "S[(4,32):(1@wid_in_wg,1@laneid)] + 3@laneid + 2@wid_in_wg"
        assert str(canonicalize(parse_tile(text))) == "S[128:1@tid_in_wg] + 67@tid_in_wg"

    def test_u8_in_a_copy(self) -> None:
        """Warps 2 and 3 of a warpgroup, lanes 3..: one thread offset of 67."""
        register = "S[(29,2):(1@laneid,1)] + 3@laneid + 2@wid_in_wg"
        done = lower_copy(register, "S[(29,2):(2,1)]", scope="warpgroup")
        guard = done.plan.guard
        assert guard is not None
        assert np.flatnonzero(guard).tolist() == list(range(67, 96))
        roundtrip(done)

    def test_u9_warpgroups_become_warps(self) -> None:
        layout = parse_tile("S[(2,4):(1@wgid,1@wid_in_wg)]")
        assert str(canonicalize(layout)) == "S[8:1@warpid]"

    def test_u9_in_a_copy(self) -> None:
        register = "S[(2,4,8,4,2):(1@wgid,1@wid_in_wg,4@laneid,1@laneid,1)]"
        done = lower_copy(register, "S[(2,4,8,4,2):(256,64,8,2,1)]", scope="cta", threads=256)
        (move,) = done.plan.moves
        assert move.address.tolist() == [128 * (t // 32) + 16 * (t % 8) for t in range(256)]
        roundtrip(done)

    def test_u10_stmatrix_for_sm_80(self) -> None:
        done = correct(fragment(direction="st", target="sm_80"))
        assert done.declines["ldstmatrix"].code == "ARCH"
        assert "matrix" not in done.kernel().text().split("the copy")[1]

    def test_u11_lanes_without_a_row(self) -> None:
        """Upstream: 136 + 8 halves in a buffer of 128; the last row here starts at half 120."""
        (move,) = lowered(fragment()).plan.moves
        assert int(move.address.max()) == 240

    @pytest.mark.parametrize("direction", ["ld", "st"])
    def test_u12_lanes_without_a_part(self, direction: str) -> None:
        """Lanes 16..31 hold nothing and touch nothing."""
        pair = Pair(digits((16, 1, "laneid", 8), (8, 1, "m", 1)), direction=direction)
        done = correct(pair)
        assert {thread for thread, _ in moved(done.plan)} == set(range(16))
        (line,) = [t for t in done.body().splitlines() if f"{direction}.shared" in t]
        assert line.strip().startswith("@%p")

    def test_u12_halves(self) -> None:
        """Lanes without a part keep their registers: joins of loaded halves are guarded too."""
        done = correct(Pair(digits((16, 1, "laneid", 1), (4, 1, "m", 16))))
        joins = [t for t in done.body().splitlines() if "bfi.b32" in t]
        assert len(joins) == 2 and all(t.strip().startswith("@%p") for t in joins)

    @pytest.mark.parametrize("direction", ["ld", "st"])
    def test_u13_gapped_halves(self, direction: str) -> None:
        """f16 (32,4):(1@l,2): each half in a word of its own; upstream fails to compile it."""
        pair = Pair(digits((32, 1, "laneid", 4), (4, 2, "m", 1)), direction=direction)
        done = correct(pair)
        assert [m.opcode for m in done.plan.moves] == [f"{direction}.shared.u16"] * 4

    @pytest.mark.parametrize("stride", [3, 5, 7])
    def test_u14_thread_strides(self, stride: int) -> None:
        """Thread strides other than 1 are no obstacle for copies by each thread."""
        rows = digits((4, 1, "laneid", 64), (2, 16, "laneid", 256), (4, 4, "laneid", 8),
                      (8, 1, "m", 1))  # fmt: skip
        assert opcodes(Pair(rows)) == ["ld.shared.v4.b32"]
        reversed_lanes = Pair(digits((32, -1, "laneid", stride * 8), (8, 1, "m", 1)))
        done = lower_copy(
            f"{reversed_lanes.register_text()} + 31@laneid", reversed_lanes.shared_text()
        )
        roundtrip(done)
        assert done.plan.moves[0].address.tolist() == [16 * stride * (31 - t) for t in range(32)]


def test_a_hardware_swizzle_by_name() -> None:
    """The modes are what the text form says: 16-byte chunks, one to three bits, distance three."""
    for width, bits in ((32, 1), (64, 2), (128, 3)):
        assert str(Swizzle.hardware(width, 16)) == f"swizzle(3,{bits},3)"
    assert str(parse("swizzle(3,3,3) o S[64:1]")) == "swizzle(3,3,3) o S[64:1]"

"""Copies that a compiler with the same algebra tests: decision, registers, addresses, result.

Origin: the parameters and mnemonics of Apache TVM's ``test_ld_stmatrix.py`` and ``test_reg.py``;
the addresses follow from the rule (section "Lane address" of the project's layout specification),
computed here lane by lane.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from tile_pairs import Digit, Pair, correct, digits, lowered, moved, roundtrip, swizzled

from lowering import Lowered, lower_copy
from lowering.layout import parse_tile

SWIZZLE = (3, 3, 3, True)
_AXIS = {"warp": "laneid", "warpgroup": "tid_in_wg", "cta": "tx"}
_WARPS = {"warp": 1, "warpgroup": 4, "cta": 4}


@dataclass(frozen=True)
class Case:
    """A parameter set of the 36 matrix-move tests."""

    scope: str
    trans: bool
    direction: str
    num: int

    def __str__(self) -> str:
        kind = "trans" if self.trans else "plain"
        return f"{self.scope}-{kind}-{self.direction}-x{self.num}"

    @property
    def warps(self) -> int:
        return _WARPS[self.scope]

    def pair(self, swizzle: bool) -> Pair:
        """Register (8,4,num,2), shared rows of 8 num; four warps in front for the larger scopes."""
        n, axis = self.num, _AXIS[self.scope]
        strides = (1, 16 * n, 8, 8 * n) if self.trans else (8 * n, 2, 8, 1)
        front = [] if self.warps == 1 else [(self.warps, 32, axis, 64 * n)]
        rows = zip((8, 4, n, 2), (4, 1, 2, 1), (axis, axis, "m", "m"), strides, strict=True)
        return Pair(
            digits(*front, *rows), "f16", self.scope, 32 * self.warps, direction=self.direction,
            swizzle=SWIZZLE if swizzle else None,
        )  # fmt: skip

    def opcode(self) -> str:
        kind = "ldmatrix" if self.direction == "ld" else "stmatrix"
        trans = "trans." if self.trans else ""
        return f"{kind}.sync.aligned.m8n8.x{self.num}.{trans}shared.b16"

    def addresses(self, swizzle: bool) -> list[int]:
        """Rows of 8 num halves; matrix g starts 8 g halves into the row (both kinds alike)."""
        out = []
        for warp, lane in itertools.product(range(self.warps), range(32)):
            offset = warp * 64 * self.num + (lane % 8) * 8 * self.num + (lane // 8 % self.num) * 8
            out.append(2 * swizzled(offset, SWIZZLE if swizzle else None))
        return out


CASES = [
    Case(*row)
    for row in itertools.product(("warp", "warpgroup", "cta"), (False, True), ("ld", "st"),
                                 (1, 2, 4))
]  # fmt: skip


class TestMatrixMoves:
    """36 cases, and the same 36 with a 128-byte swizzle around the shared tile."""

    @pytest.mark.parametrize("faithful", [False, True], ids=["complete", "faithful"])
    @pytest.mark.parametrize("swizzle", [False, True], ids=["linear", "swizzle"])
    @pytest.mark.parametrize("case", CASES, ids=str)
    def test_case(self, case: Case, swizzle: bool, faithful: bool) -> None:
        pair = case.pair(swizzle)
        # both rules emit the same, so the proof and the whole kernel of one are enough
        done = lowered(pair, faithful=faithful, prove=not faithful)
        assert done.declines == {} and done.plan.variant == "ldstmatrix"
        (move,) = done.plan.moves
        assert move.opcode == case.opcode()
        assert [p.word for p in move.parts] == list(range(case.num))
        assert move.address.tolist() == case.addresses(swizzle)
        assert done.body().count(case.opcode()) == 1
        assert moved(done.plan) == dict(pair.bytes())
        if not faithful and case.scope != "warpgroup":  # cta has the same tiles
            roundtrip(done)

    def test_there_are_36(self) -> None:
        assert len(CASES) == 36 == len({str(c) for c in CASES})

    def test_the_checks_can_fail(self) -> None:
        """Another table is not the one expected, and the model sees a lane that reads elsewhere."""
        case = CASES[2]
        pair = case.pair(False)
        plan = lowered(pair).plan
        other = plan.moves[0].address.copy()
        other[9] += 16
        wrong = replace(plan, moves=(replace(plan.moves[0], address=other),))
        assert other.tolist() != case.addresses(False)
        assert moved(wrong) != dict(pair.bytes())
        broken = replace(lowered(pair), plan=wrong)
        with pytest.raises(AssertionError):
            roundtrip(broken)


def _multi(front: int) -> Pair:
    """(front,8,2,4,4,2):(16,4@l,8,2,1@l,1) over a bare 128-byte swizzle."""
    extents = (front, 8, 2, 4, 4, 2)
    total = int(np.prod(extents))
    shared = [total // int(np.prod(extents[: n + 1])) for n in range(6)]
    axes = ("m", "laneid", "m", "m", "laneid", "m")
    return Pair(
        digits(*zip(extents, (16, 4, 8, 2, 1, 1), axes, shared, strict=True)), swizzle=SWIZZLE
    )


class TestSeveralIters:
    # origin: the upstream tests state x4 with 8 and with 10 instructions
    @pytest.mark.parametrize(("front", "count"), [(4, 8), (5, 10)])
    @pytest.mark.parametrize("faithful", [False, True], ids=["complete", "faithful"])
    def test_swizzle_multi_iter(self, front: int, count: int, faithful: bool) -> None:
        pair = _multi(front)
        bare = f"swizzle(3,3,3) o S[{128 * front * 4}:1]"
        done = lower_copy(pair.register_text(), bare, faithful=faithful)
        moves = done.plan.moves
        assert {m.opcode for m in moves} == {"ldmatrix.sync.aligned.m8n8.x4.shared.b16"}
        assert len(moves) == count
        assert moved(done.plan) == dict(pair.bytes())
        # tile t of the front digit, half s: row lane % 8 of 64 halves, chunks 4 s .. 4 s + 3
        for move in moves:
            tile, half = divmod(move.parts[0].word // 4, 2)
            assert [p.word for p in move.parts] == list(range(8 * tile + 4 * half, 8 * tile
                                                              + 4 * half + 4))  # fmt: skip
            want = [
                1024 * tile + 128 * (lane % 8) + 16 * ((lane // 8 + 4 * half) ^ (lane % 8))
                for lane in range(32)
            ]
            assert move.address.tolist() == want
        roundtrip(done)

    def test_warpgroup_atom(self) -> None:
        """The 16x256b tensor-memory atom of a warpgroup and a 128-byte swizzled MMA tile."""
        register = "S[(4,2,8,8,4,2):(32@tid_in_wg,2,4@tid_in_wg,4,1@tid_in_wg,1)]"
        shared = "swizzle(3,3,3) o S[4096:1]"
        for faithful in (False, True):
            done = lower_copy(register, shared, dtype="bf16", scope="warpgroup", faithful=faithful)
            assert [m.opcode for m in done.plan.moves] == (
                ["ldmatrix.sync.aligned.m8n8.x4.shared.b16"] * 4
            )
            assert sorted(done.plan.words) == list(range(16))
        strides = (1024, 512, 64, 8, 2, 1)
        axes = ("tid_in_wg", "m", "tid_in_wg", "m", "tid_in_wg", "m")
        own = Pair(
            digits(*zip((4, 2, 8, 8, 4, 2), (32, 2, 4, 4, 1, 1), axes, strides, strict=True)),
            "bf16", "warpgroup", 128, swizzle=SWIZZLE,
        )  # fmt: skip
        assert moved(done.plan) == dict(own.bytes())
        roundtrip(done)


# --- copies by each thread ------------------------------------------------------------------------

_REG = [
    *(("warpgroup", 128, k) for k in (8, 16, 32)),
    *(("warp", 32, k) for k in (8, 16)),
    *(("cta", 256, k) for k in (8, 16)),
]


def _rows(k: int, axis: str, threads: int, pitch: int | None = None) -> tuple[Digit, ...]:
    """Thread t holds row t of k elements."""
    return digits((threads, 1, axis, k if pitch is None else pitch), (k, 1, "m", 1))


class TestRegisterRoundTrips:
    """Rows owned by threads, the tile in shared or in global memory: 42 cases, both ways."""

    @pytest.mark.parametrize("direction", ["ld", "st"])
    @pytest.mark.parametrize("space", ["shared", "global"])
    @pytest.mark.parametrize("dtype", ["f16", "f32", "u8"])
    @pytest.mark.parametrize(("scope", "threads", "k"), _REG)
    def test_rows(
        self, scope: str, threads: int, k: int, dtype: str, space: str, direction: str
    ) -> None:
        width = {"f16": 2, "f32": 4, "u8": 1}[dtype]
        pair = Pair(_rows(k, _AXIS[scope], threads), dtype, scope, threads, direction=direction)
        done = lowered(pair, space=space)
        assert moved(done.plan) == dict(pair.bytes())
        if threads * k <= 512:  # larger ones differ in the length of the kernel around
            roundtrip(done)
        assert done.plan.variant == "reg"
        vector = {16: "v4.b32", 8: "v2.b32"}[min(k * width, 16)]
        assert [m.opcode for m in done.plan.moves] == (
            [f"{direction}.{space}.{vector}"] * max(k * width // 16, 1)
        )
        codes = [d.code for d in done.declines.values()]
        assert codes == (["SPACES"] if space == "global" else ["LANEMAP"])

    def test_gapped_permuted_storage(self) -> None:
        # origin: upstream: storage size 4, span 7, slots 0, 4, 2, 6 in the order of the elements
        pair = Pair(digits((32, 1, "laneid", 4), (2, 2, "m", 2), (2, 4, "m", 1)), "f32")
        register = parse_tile(pair.register_text())
        slots = [slot for thread, slot, _ in pair.elements() if thread == 0]
        assert (register.size("m"), register.span(), slots) == (4, 7, [0, 4, 2, 6])
        done = correct(pair)
        (move,) = done.plan.moves
        assert move.opcode == "ld.shared.v4.b32"
        assert [p.word for p in move.parts] == [0, 4, 2, 6]


# origin: table "Measured outcomes" of the specification; opcodes carry bits where upstream has .u32
_OUTCOMES: list[tuple[str, Pair, str, int]] = [
    ("f16 k=8", Pair(_rows(8, "laneid", 32)), "v4.b32", 1),
    ("f16 k=16", Pair(_rows(16, "laneid", 32)), "v4.b32", 2),
    ("f32 k=8", Pair(_rows(8, "laneid", 32), "f32"), "v4.b32", 2),
    ("f32 k=16", Pair(_rows(16, "laneid", 32), "f32"), "v4.b32", 4),
    ("f64 k=8", Pair(_rows(8, "laneid", 32), "f64"), "v4.b32", 4),
    ("f64 k=16", Pair(_rows(16, "laneid", 32), "f64"), "v4.b32", 8),
    ("u8 k=8", Pair(_rows(8, "laneid", 32), "u8"), "v2.b32", 1),
    ("u8 k=16", Pair(_rows(16, "laneid", 32), "u8"), "v4.b32", 1),
    ("f16 k=6", Pair(_rows(6, "laneid", 32)), "b32", 3),
    ("f16 k=8 column-major", Pair(digits((32, 1, "laneid", 1), (8, 1, "m", 32))), "u16", 8),
    ("f16 k=8 swizzle", Pair(_rows(8, "laneid", 32), swizzle=SWIZZLE), "v4.b32", 1),
    ("f16 k=8 chunk 4", Pair(_rows(8, "laneid", 32), swizzle=(2, 3, 3, True)), "v2.b32", 2),
    ("fragment pitch 20",
     Pair(digits((8, 4, "laneid", 20), (4, 1, "laneid", 2), (2, 2, "m", 8), (2, 1, "m", 1))),
     "b32", 2),
    ("halves swapped",
     Pair(digits((8, 4, "laneid", 16), (4, 1, "laneid", 2), (2, 1, "m", 8), (2, 2, "m", 1))),
     "u16", 4),
    ("lanes transposed",
     Pair(digits((8, 1, "laneid", 16), (4, 8, "laneid", 2), (2, 2, "m", 8), (2, 1, "m", 1))),
     "b32", 2),
    # the three that go wrong upstream: rows at 24, 20 and 18 bytes times the lane
    ("pitch 12", Pair(_rows(8, "laneid", 32, 12)), "v2.b32", 2),
    ("pitch 10", Pair(_rows(8, "laneid", 32, 10)), "b32", 4),
    ("pitch 9", Pair(_rows(8, "laneid", 32, 9)), "u16", 8),
]  # fmt: skip


@pytest.mark.parametrize(
    ("pair", "vector", "rounds"), [row[1:] for row in _OUTCOMES], ids=[row[0] for row in _OUTCOMES]
)
@pytest.mark.parametrize("direction", ["ld", "st"])
def test_outcomes_of_reg(pair: Pair, vector: str, rounds: int, direction: str) -> None:
    pair = replace(pair, direction=direction)
    done = lowered(pair)
    assert moved(done.plan) == dict(pair.bytes())
    assert done.plan.variant == "reg"
    assert [m.opcode for m in done.plan.moves] == [f"{direction}.shared.{vector}"] * rounds


# --- tables of matrix moves -----------------------------------------------------------------------


class TestTypicalLayout:
    """r = (8,4,n,2):(4@l,1@l,2,1), s = (8,4,n,2):(8n,2,8,1)."""

    # origin: table "Order of events for a typical layout"
    FAITHFUL = {
        1: ["x1 0"], 2: ["x2 0 1"], 3: ["x1 0", "x1 1", "x1 2"], 4: ["x4 0 1 2 3"],
        6: ["x2 0 1", "x2 2 3", "x2 4 5"], 8: ["x4 0 1 2 3", "x4 4 5 6 7"],
    }  # fmt: skip
    #: ours mixes widths: n words take n // 4 instructions, and one for each bit of n % 4
    MIXED = {**FAITHFUL, 3: ["x2 0 1", "x1 2"], 6: ["x4 0 1 2 3", "x2 4 5"]}

    @staticmethod
    def pair(n: int) -> Pair:
        return Pair(
            digits((8, 4, "laneid", 8 * n), (4, 1, "laneid", 2), (n, 2, "m", 8), (2, 1, "m", 1))
        )

    @staticmethod
    def told(done: Lowered) -> list[str]:
        return [
            " ".join([m.opcode.split(".")[4], *(str(p.word) for p in m.parts)])
            for m in done.plan.moves
        ]

    @pytest.mark.parametrize("n", FAITHFUL)
    def test_faithful(self, n: int) -> None:
        assert self.told(correct(self.pair(n), faithful=True)) == self.FAITHFUL[n]

    @pytest.mark.parametrize("n", MIXED)
    def test_complete(self, n: int) -> None:
        assert self.told(correct(self.pair(n))) == self.MIXED[n]


def _a(row: int, column: int) -> Pair:
    """The A fragment of m16n8k16 from memory with these strides of row and column."""
    return Pair(
        digits((2, 2, "m", 8 * row), (8, 4, "laneid", row), (2, 4, "m", 8 * column),
               (4, 1, "laneid", 2 * column), (2, 1, "m", column))
    )  # fmt: skip


def _b(k: int, n: int) -> Pair:
    """The B fragment (k x n = 16 x 8): lane 4 n + kpair holds k = 2 kpair + h + 8 i."""
    return Pair(
        digits((2, 2, "m", 8 * k), (4, 1, "laneid", 2 * k), (2, 1, "m", k), (8, 4, "laneid", n))
    )


def _c(row: int, column: int) -> Pair:
    """The C fragment as 16-bit elements."""
    return Pair(
        digits((2, 2, "m", 8 * row), (8, 4, "laneid", row), (4, 1, "laneid", 2 * column),
               (2, 1, "m", column)), direction="st"
    )  # fmt: skip


class TestFragments:
    """Fragments of mma.m16n8k16; origin of mnemonic and offsets: section of that name, measured."""

    @pytest.mark.parametrize("faithful", [False, True], ids=["complete", "faithful"])
    @pytest.mark.parametrize(
        ("pair", "suffix", "name"),
        [
            (_a(16, 1), "x4.shared", "A rows"),
            (_a(1, 16), "x4.trans.shared", "A columns"),
            (_b(8, 1), "x2.trans.shared", "B rows"),
            (_b(1, 16), "x2.shared", "B columns"),
            (_c(72, 1), "x2.shared", "C rows"),
        ],
        ids=lambda v: v if isinstance(v, str) and " " in v else "",
    )
    def test_fragment(self, pair: Pair, suffix: str, name: str, faithful: bool) -> None:
        done = correct(pair, faithful=faithful)
        (move,) = done.plan.moves
        kind = "ldmatrix" if pair.direction == "ld" else "stmatrix"
        assert move.opcode == f"{kind}.sync.aligned.m8n8.{suffix}.b16"
        assert [p.word for p in move.parts] == list(range(len(move.parts)))
        want = [2 * self.OFFSETS[name](lane) for lane in range(32)]
        assert move.address.tolist() == want

    OFFSETS: dict[str, Callable[[int], int]] = {
        "A rows": lambda lane: 16 * (lane % 16) + 8 * (lane // 16),
        "A columns": lambda lane: 128 * (lane // 16) + 16 * (lane % 8) + 8 * (lane // 8 % 2),
        # 8 lane upstream; lanes 16..31 do not count, and repeat the rows of lanes 0..15 here
        "B rows": lambda lane: 8 * (lane % 16),
        "B columns": lambda lane: 16 * (lane % 8) + 8 * (lane // 8 % 2),
        "C rows": lambda lane: 72 * (lane % 16),
    }


# --- worked emissions -----------------------------------------------------------------------------


def _tile(strides: tuple[int, ...], n: int, **more: Any) -> Pair:
    rows = zip((8, 4, n, 2), (4, 1, 2, 1), ("laneid", "laneid", "m", "m"), strides, strict=True)
    return Pair(digits(*rows), **more)


_WG = Pair(
    digits((4, 32, "tid_in_wg", 128), (8, 4, "tid_in_wg", 16), (4, 1, "tid_in_wg", 2),
           (2, 2, "m", 8), (2, 1, "m", 1)), scope="warpgroup", threads=128,
)  # fmt: skip
_CTA = Pair(
    digits((3, 32, "tx", 256), (8, 4, "tx", 32), (4, 1, "tx", 2), (4, 2, "m", 8), (2, 1, "m", 1)),
    scope="cta",
    threads=96,
)

#: name: pair, mnemonic parts, byte offsets of the instructions as functions of (k, g, warp)
WORKED: dict[str, tuple[Pair, str, list[Callable[[int, int, int], int]]]] = {
    "x1": (_tile((8, 2, 8, 1), 1), "ldmatrix x1", [lambda k, g, w: 16 * k]),
    "x2": (_tile((16, 2, 8, 1), 2), "ldmatrix x2", [lambda k, g, w: 32 * k + 16 * (g & 1)]),
    "x4": (_tile((32, 2, 8, 1), 4), "ldmatrix x4", [lambda k, g, w: 64 * k + 16 * g]),
    "x2 trans": (
        _tile((1, 32, 8, 16), 2), "ldmatrix x2.trans", [lambda k, g, w: 32 * k + 16 * (g & 1)],
    ),
    "x4 trans wide": (
        _tile((1, 128, 8, 64), 8), "ldmatrix x4.trans",
        [lambda k, g, w: 128 * k + 16 * g, lambda k, g, w: 128 * k + 16 * g + 64],
    ),
    "outer 2": (
        _tile((64, 2, 8, 1), 8), "ldmatrix x4",
        [lambda k, g, w: 128 * k + 16 * g, lambda k, g, w: 128 * k + 16 * g + 64],
    ),
    "swizzle 128": (
        _tile((64, 2, 8, 1), 8, swizzle=(3, 3, 3, True)), "ldmatrix x4",
        [lambda k, g, w: 128 * k + 16 * (g ^ k), lambda k, g, w: (128 * k + 16 * (g ^ k)) ^ 64],
    ),
    "swizzle 64": (
        _tile((64, 2, 8, 1), 8, swizzle=(3, 2, 3, True)), "ldmatrix x4",
        [lambda k, g, w: 128 * k + 16 * (g ^ (k & 3)),
         lambda k, g, w: 128 * k + 16 * (g ^ (k & 3)) + 64],
    ),
    "swizzle 32": (
        _tile((64, 2, 8, 1), 8, swizzle=(3, 1, 3, True)), "ldmatrix x4",
        [lambda k, g, w: 128 * k + 16 * (g ^ (k & 1)),
         lambda k, g, w: 128 * k + 16 * (g ^ (k & 1)) + 64],
    ),
    "warpgroup x2": (_WG, "ldmatrix x2", [lambda k, g, w: 256 * w + 32 * k + 16 * (g & 1)]),
    "cta x4": (_CTA, "ldmatrix x4", [lambda k, g, w: 512 * w + 64 * k + 16 * g]),
    "st x2": (_c(72, 1), "stmatrix x2", [lambda k, g, w: 144 * (k + 8 * (g & 1))]),
    "st x2 trans": (_c(1, 16), "stmatrix x2.trans", [lambda k, g, w: 32 * k + 16 * (g & 1)]),
}  # fmt: skip


class TestWorked:
    """Origin: table "Worked PTX expectations"; k = lane & 7, g = lane >> 3."""

    @pytest.mark.parametrize("faithful", [False, True], ids=["complete", "faithful"])
    @pytest.mark.parametrize("name", WORKED)
    def test_row(self, name: str, faithful: bool) -> None:
        pair, words, formulas = WORKED[name]
        mnemonic, tail = words.split()
        plan = lowered(pair, faithful=faithful).plan  # the golden files of the rows are run
        moves = plan.moves
        assert moved(plan) == dict(pair.bytes())
        assert [m.opcode for m in moves] == (
            [f"{mnemonic}.sync.aligned.m8n8.{tail}.shared.b16"] * len(formulas)
        )
        for move, formula in zip(moves, formulas, strict=True):
            want = [formula(t % 8, t % 32 // 8, t // 32) for t in range(pair.threads)]
            assert move.address.tolist() == want

    def test_one_base_and_constants(self) -> None:
        """The second instruction reuses the base: an offset, or one xor for a swizzle."""
        body = lowered(WORKED["outer 2"][0]).body()
        assert "+64]" in body and body.count("add.u32") == 1

    def test_swizzled_address_is_flipped(self) -> None:
        body = lowered(WORKED["swizzle 128"][0]).body()
        assert body.count("add.u32") == 2 and body.count("xor.b32") == 2

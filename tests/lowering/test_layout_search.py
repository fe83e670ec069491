"""Search for layouts: the proposals, and that each is what it claims, counted a second time."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from lowering import Copy, lower_copy
from lowering.copy import search
from lowering.copy.plan import Move, wavefronts
from lowering.copy.search import Proposal, register_layouts, repairs, shared_layouts
from lowering.layout import ComposeLayout, LayoutError, TileLayout, parse, parse_tile

X2 = "S[(8,4,2,2):(4@laneid,1@laneid,2,1)]"
X4_TWICE = "S[(8,4,8,2):(4@laneid,1@laneid,2,1)]"
#: operands of mma.m16n8k16 (PTX ISA 9.1, Matrix Fragments for mma.m16n8k16)
A = "S[(2,8,2,4,2):(2,4@laneid,4,1@laneid,1)]"
B = "S[(2,4,2,8):(2,1@laneid,1,4@laneid)]"
WARPGROUP = "S[(4,8,4,4,2):(32@tid_in_wg,4@tid_in_wg,1@tid_in_wg,2,1)]"


def _texts(proposals: tuple[Proposal, ...]) -> list[str]:
    return [f"{p.shared} | {p.describe()}" for p in proposals]


def _counted(proposal: Proposal) -> int:
    """Wavefronts over ideal from the layouts alone: rows of 16 bytes against 8 groups of banks.

    A matrix is what the 32 lanes of a warp hold of one register word; its 8 rows are the distinct
    multiples of 16 that its bytes lie in.
    """
    copy = proposal.plan.copy
    counts = {"laneid": 1, "tid_in_wg": 1, "tx": 1, "warpid": 32, "wid_in_wg": 32}
    where, there = copy.register.evaluate(), copy.shared.evaluate()["m"] * copy.width
    zero = np.zeros(len(there), np.int64)
    thread = sum((n * where.get(axis, zero) for axis, n in counts.items()), zero)
    matrices: dict[tuple[int, int], set[int]] = defaultdict(set)
    for t, slot, address in zip(thread, where["m"], there, strict=True):
        matrices[int(slot) * copy.width // 4, int(t) // 32].add(int(address) // 16)
    over: dict[int, int] = {}
    for (word, _), rows in matrices.items():
        assert len(rows) == 8
        groups = [row % 8 for row in rows]
        ways = max(groups.count(g) for g in groups)
        over[word] = max(over.get(word, 0), ways - 1)
    return sum(over.values())


def _check(proposals: tuple[Proposal, ...]) -> None:
    """Costs are true, ordered, and none is beaten; the copy is proved."""
    assert [p.score for p in proposals] == sorted(p.score for p in proposals)
    for p in proposals:
        copy = p.plan.copy
        assert p.conflicts == _counted(p)
        assert p.instructions == len(p.plan.moves)
        spots = np.unique(copy.shared.evaluate()["m"])
        assert len(spots) == copy.shared.size()
        end = -(-(int(spots.max()) + 1) * copy.width // 16) * 16
        assert p.wasted == end - copy.shared.size() * copy.width
        assert not any(
            other.score != p.score
            and all(a <= b for a, b in zip(other.score, p.score, strict=True))
            for other in proposals
        )
        lowered = lower_copy(
            copy.register, copy.shared, dtype=copy.dtype, scope=copy.scope, target=copy.target,
            direction=copy.direction, threads=copy.threads, variant="ldstmatrix",
        )  # fmt: skip
        assert lowered.proof is not None
        assert sum(have - best for have, best in lowered.proof.ways) == p.conflicts


# --- bank conflicts, by the tables of the search's source -----------------------------------------

#: ways = gcd(p / 8, 8) for a pitch of p halves
PITCHES = {8: 1, 16: 2, 24: 1, 32: 4, 40: 1, 48: 2, 56: 1, 64: 8, 72: 1, 80: 2, 96: 4, 104: 1,
           128: 8, 136: 1, 256: 8, 264: 1}  # fmt: skip
#: ways of a swizzle (0, 32, 64, 128 bytes) at a pitch of 16, 32, 64, 128 halves
SWIZZLES = {0: (2, 4, 8, 8), 1: (1, 2, 4, 8), 2: (1, 1, 2, 4), 3: (1, 1, 1, 2)}


@pytest.mark.parametrize(("pitch", "ways"), PITCHES.items())
def test_ways_of_a_pitch(pitch: int, ways: int) -> None:
    plan = lower_copy(
        "S[(8,4,2):(4@laneid,1@laneid,1)]", f"S[(8,4,2):({pitch},2,1)]", prove=False
    ).plan
    assert [wavefronts(m) for m in plan.moves] == [(ways, 1)]


@pytest.mark.parametrize("bits", SWIZZLES)
def test_ways_of_a_swizzle(bits: int) -> None:
    got = []
    for pitch in (16, 32, 64, 128):
        text = f"swizzle(3,{bits},3) o S[(8,4,2):({pitch},2,1)]"
        (move,) = lower_copy("S[(8,4,2):(4@laneid,1@laneid,1)]", text, prove=False).plan.moves
        got.append(wavefronts(move)[0])
    assert tuple(got) == SWIZZLES[bits]


def test_four_matrices_at_pitch_64_take_32_wavefronts() -> None:
    first = lower_copy(X4_TWICE, "S[(8,4,8,2):(64,2,8,1)]").plan.moves[0]
    assert wavefronts(first) == (32, 4)
    # and the count can be another one: rows side by side
    moved = Move(first.opcode, first.parts, np.arange(32) * 16, 16, 32)
    assert wavefronts(moved) == (4, 4)


# --- shared layouts -------------------------------------------------------------------------------


def test_rows_of_sixteen_halves() -> None:
    proposals = shared_layouts(parse_tile(X2))
    assert _texts(proposals) == [
        "swizzle(3,1,3) o S[(8,4,2,2):(16,2,8,1)] | x2, conflict-free, no padding",
        "S[(8,4,2,2):(24,2,8,1)] | x2, conflict-free, 112 bytes of padding",
        "S[(8,4,2,2):(1,16,64,8)] | x2.trans, conflict-free, no padding",
        "S[(8,4,2,2):(16,2,8,1)] | x2, 2 wavefronts over ideal, no padding",
    ]
    _check(proposals)


def test_pitch_of_twenty_halves_becomes_twenty_four() -> None:
    copy = Copy(parse_tile(X2), parse("S[(8,4,2,2):(20,2,8,1)]"))
    proposals = repairs(copy)
    assert _texts(proposals) == _texts(shared_layouts(parse_tile(X2)))
    padded = next(p for p in proposals if p.swizzle == 0 and not p.conflicts)
    assert str(padded.shared) == "S[(8,4,2,2):(24,2,8,1)]"
    _check(proposals)


def test_a_row_major_tile_of_an_mma_operand() -> None:
    proposals = shared_layouts(parse_tile(A), shape=(16, 16))
    assert _texts(proposals) == [
        "swizzle(3,1,3) o S[(16,16):(16,1)] | x4, conflict-free, no padding",
        "S[(16,16):(24,1)] | x4, conflict-free, 240 bytes of padding",
        "S[(16,16):(16,1)] | x4, 4 wavefronts over ideal, no padding",
    ]
    _check(proposals)


def test_the_swizzle_is_as_wide_as_the_rows() -> None:
    proposals = shared_layouts(parse_tile(X4_TWICE))
    assert str(proposals[0].shared) == "swizzle(3,3,3) o S[(8,4,8,2):(64,2,8,1)]"
    assert proposals[0].score == (2, 0, 0, 0, 3)
    assert proposals[-1].score == (2, 56, 0, 0, 0)  # 8 matrices, 8 ways each
    _check(proposals)


@pytest.mark.parametrize(
    ("register", "options"),
    [
        (WARPGROUP, {"scope": "warpgroup"}),
        (X2, {"direction": "st"}),
        (B, {"shape": (16, 8)}),
        (A, {"dtype": "bf16", "target": "sm_80"}),
        ("S[(8,2,4):(4@laneid,1,1@laneid)]", {"dtype": "f32", "shape": (8, 8)}),
        ("S[(8,4,4,4):(4@laneid,1@laneid,4,1)]", {"dtype": "u8"}),
        ("S[(2,8,4,2,2):(1@warpid,4@laneid,1@laneid,2,1)]", {"scope": "cta", "threads": 64}),
    ],
)
def test_every_proposal_is_what_it_claims(register: str, options: dict[str, object]) -> None:
    proposals = shared_layouts(parse_tile(register), **options)  # type: ignore[arg-type]
    assert proposals and not proposals[0].conflicts
    _check(proposals)


def test_a_transposed_tile_comes_after_one_that_is_not() -> None:
    proposals = shared_layouts(parse_tile(A), shape=(16, 16))
    assert not any(p.moved for p in proposals)
    # B as k x n is conflict-free in rows of 16 bytes, and nothing beats that
    assert _texts(shared_layouts(parse_tile(B), shape=(16, 8))) == [
        "S[(16,8):(8,1)] | x2.trans, conflict-free, no padding"
    ]


def test_no_proposal_where_no_layout_helps() -> None:
    shared = parse("S[(8,4,2,2):(20,2,8,1)]")
    assert repairs(Copy(parse_tile(X2), shared, direction="st", target="sm_80")) == ()
    assert repairs(Copy(parse_tile(X2), shared, dtype="f17")) == ()
    assert repairs(Copy(parse_tile(X2), shared, align=8)) == ()
    doubles = Copy(parse_tile("S[(32,2):(1@laneid,1)]"), parse("S[(32,2):(2,1)]"), dtype="f64")
    assert repairs(doubles) == ()
    partial = Copy(parse_tile("S[(16,8):(1@laneid,1)]"), parse("S[(16,8):(8,1)]"))
    assert repairs(partial) == ()


def test_tiles_beyond_shared_memory_are_not_searched() -> None:
    # 227 KiB hold 116224 halves (PTX targets sm_90); these are 2**49
    huge = "S[(281474976710656,2):({},1)]"
    copy = Copy(parse_tile(huge.format("1@laneid")), parse(huge.format("2")))
    assert repairs(copy) == ()


def test_repairs_without_an_order_in_memory_use_that_of_the_fragment() -> None:
    # all elements at one address: nothing to keep
    proposals = repairs(Copy(parse_tile(X2), parse("S[128:0]")))
    assert _texts(proposals) == _texts(shared_layouts(parse_tile(X2)))


def test_repairs_of_an_order_that_never_fits() -> None:
    # each lane has a row of its own; a fragment's rows are shared by four lanes
    proposals = repairs(Copy(parse_tile("S[(32,8):(1@laneid,1)]"), parse("S[(32,8):(8,1)]")))
    assert [p.score for p in proposals[:2]] == [(1, 0, 1, 0, 2), (1, 0, 1, 112, 0)]
    assert str(proposals[0].shared) == "swizzle(3,2,3) o S[(8,4,4,2):(32,2,8,1)]"
    _check(proposals)


# --- register layouts -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shared", "shape", "family", "expected"),
    [
        ("S[(16,16):(24,1)]", (16, 16), "a", [A]),
        ("S[(16,16):(1,24)]", (16, 16), "a", [A]),
        ("S[(16,8):(8,1)]", (16, 8), "b", [B]),
        ("S[(16,8):(72,1)]", (16, 8), "c", ["S[(2,8,4,2):(2,4@laneid,1@laneid,1)]"]),
    ],
)
def test_fragments_of_a_product(
    shared: str, shape: tuple[int, int], family: str, expected: list[str]
) -> None:
    proposals = register_layouts(parse(shared), shape, family)
    assert [str(p.register) for p in proposals] == expected
    _check(proposals)


def test_all_families_of_a_tile() -> None:
    proposals = register_layouts(parse("S[(16,16):(24,1)]"), (16, 16))
    # two orders of the words, as the rows lie and transposed
    assert len({str(p.register) for p in proposals}) == len(proposals) == 4
    assert {p.describe() for p in proposals} == {
        "x4, conflict-free, 240 bytes of padding",
        "x4.trans, conflict-free, 240 bytes of padding",
    }
    _check(proposals)


@pytest.mark.parametrize(
    ("options", "axis"), [({"scope": "warpgroup"}, "wid_in_wg"),
                          ({"scope": "cta", "threads": 64}, "warpid")],
)  # fmt: skip
def test_warps_share_the_tile(options: dict[str, object], axis: str) -> None:
    shared = parse("swizzle(3,3,3) o S[(64,64):(64,1)]")
    proposals = register_layouts(shared, (64, 64), "a", **options)
    assert len(proposals) == 2  # the warps below each other, and beside each other
    assert all(f"1@{axis}" in str(p.register) and not p.conflicts for p in proposals)
    _check(proposals)


def test_a_tile_that_is_no_multiple_of_a_matrix() -> None:
    assert register_layouts(parse("S[(12,12):(24,1)]"), (12, 12)) == ()
    assert register_layouts(parse("S[(8,8):(8,1)]"), (8, 8), dtype="f64") == ()


def test_wrong_questions() -> None:
    with pytest.raises(LayoutError, match=r"shape \(8, 8\) is not the rows and columns of 128"):
        shared_layouts(parse_tile(X2), shape=(8, 8))
    with pytest.raises(LayoutError, match="does not hold the 256 elements"):
        register_layouts(parse("S[(16,16):(24,1)]"), (8, 8))
    with pytest.raises(ValueError, match="no fragment family 'q'; there are: a, b, c"):
        register_layouts(parse("S[(16,16):(24,1)]"), (16, 16), "q")
    with pytest.raises(ValueError, match="no type 'f17'"):
        shared_layouts(parse_tile(X2), dtype="f17")
    with pytest.raises(ValueError, match="no scope 'block'"):
        register_layouts(parse("S[(16,16):(24,1)]"), (16, 16), scope="block")


# --- the search itself ----------------------------------------------------------------------------


@pytest.mark.parametrize(("register", "shape"), [(X2, (8, 16)), (A, (16, 16)), (B, (16, 8))])
def test_what_is_left_out_is_beaten(
    register: str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Candidates that are not planned, because they cannot win, do not change the answer."""
    quick = _texts(shared_layouts(parse_tile(register), shape=shape))
    monkeypatch.setattr(search._Best, "beats", lambda self, bound: False)
    assert _texts(shared_layouts(parse_tile(register), shape=shape)) == quick


def test_the_second_count_can_differ() -> None:
    """A false claim is noticed by the check of these tests."""
    (*_, worst) = shared_layouts(parse_tile(X2))
    assert isinstance(worst.shared, TileLayout | ComposeLayout)
    false = Proposal(worst.plan, worst.instructions, 0, worst.moved, worst.wasted, worst.swizzle)
    with pytest.raises(AssertionError):
        _check((false,))

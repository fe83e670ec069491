"""The proof of a copy: it holds for what is emitted, and fails for any change of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tile_pairs import Pair, digits, lowered

import lowering.copy.plan as plan_module
from lowering import ProofError
from lowering.address import AddressCode, synthesize
from lowering.copy import Move, Plan, wavefronts
from lowering.copy.plan import Part
from lowering.prove import prove_copy


def fragment(n: int = 2, **more: Any) -> Pair:
    """An m8n8 fragment of n words from rows of 8 n halves."""
    rows = digits((8, 4, "laneid", 8 * n), (4, 1, "laneid", 2), (n, 2, "m", 8), (2, 1, "m", 1))
    return Pair(rows, **more)


def changed(plan: Plan, at: int = 0, **more: Any) -> Plan:
    """The plan with one move changed."""
    moves = list(plan.moves)
    moves[at] = replace(moves[at], **more)
    return replace(plan, moves=tuple(moves))


def moved_by(plan: Plan, thread: int, step: int) -> Plan:
    """The plan with the address of one thread wrong."""
    table = plan.moves[0].address.copy()
    table[thread] += step
    return changed(plan, address=table)


class TestLoad:
    """x2 over a tile of 256 bytes: tag and shared byte are one number. Messages by hand."""

    @pytest.fixture
    def plan(self) -> Plan:
        return lowered(fragment()).plan

    def test_holds(self, plan: Plan) -> None:
        proof = prove_copy(plan)
        assert (proof.runs, proof.bytes, proof.ways) == (1, 256, ((4, 2),))

    # lane 3 gives row 3 of matrix 0 (bytes 96..111), which lanes 12..15 hold; lane 9 row 1 of
    # matrix 1 (bytes 48..63), which lanes 4..7 hold
    @pytest.mark.parametrize(
        ("lane", "told"),
        [
            (3, "byte 0 of register word 0 of thread 12 has tag 128, shared byte 96 has 96"),
            (9, "byte 0 of register word 1 of thread 4 has tag 80, shared byte 48 has 48"),
        ],
    )
    def test_wrong_address(self, plan: Plan, lane: int, told: str) -> None:
        with pytest.raises(ProofError, match=f"^ldstmatrix: {told}$"):
            prove_copy(moved_by(plan, lane, 32))

    def test_swapped_registers(self, plan: Plan) -> None:
        told = "byte 0 of register word 0 of thread 0 has tag 16, shared byte 0 has 0"
        with pytest.raises(ProofError, match=told):
            prove_copy(changed(plan, parts=plan.moves[0].parts[::-1]))

    def test_wrong_trans(self, plan: Plan) -> None:
        opcode = plan.moves[0].opcode.replace("x2.", "x2.trans.")
        told = "byte 2 of register word 0 of thread 0 has tag 32, shared byte 2 has 2"
        with pytest.raises(ProofError, match=told):
            prove_copy(changed(plan, opcode=opcode))

    def test_missing_register(self, plan: Plan) -> None:
        one = changed(
            plan, opcode=plan.moves[0].opcode.replace("x2", "x1"), parts=plan.moves[0].parts[:1]
        )
        with pytest.raises(ProofError, match=r"register word 1 of thread 0 has tag \d+, "):
            prove_copy(one)

    @pytest.mark.parametrize("step", [4, 1 << 16])
    def test_trap(self, plan: Plan, step: int) -> None:
        """A misaligned row, and one outside of the array: the simulator reports them."""
        with pytest.raises(ProofError, match="the probe of ldstmatrix reports"):
            prove_copy(moved_by(plan, 5, step))

    def test_address_that_does_not_count(self, plan: Plan) -> None:
        """Lanes 16..31 of an x2 may name any row."""
        assert prove_copy(moved_by(plan, 20, 32)).bytes == 256

    def test_later_runs_count(self) -> None:
        """In a tile of 1024 bytes, an error of 256 shows in the second byte of the tags only."""
        plan = lowered(fragment(8)).plan
        assert prove_copy(plan).runs == 2
        with pytest.raises(ProofError, match="thread 0 has tag 1, shared byte 0 has 0"):
            prove_copy(moved_by(plan, 0, 256))

    def test_warp_of_many(self) -> None:
        """Thread numbers are those of the scope."""
        rows = digits((4, 32, "tid_in_wg", 64), (8, 4, "tid_in_wg", 8), (4, 1, "tid_in_wg", 2),
                      (2, 1, "m", 1))  # fmt: skip
        plan = lowered(Pair(rows, scope="warpgroup", threads=128)).plan
        with pytest.raises(ProofError, match="register word 0 of thread 64"):
            prove_copy(moved_by(plan, 64, 16))

    def test_byte_zero(self) -> None:
        """A load that does not happen, of shared byte 0 alone."""
        plan = lowered(Pair(digits((1, 1, "laneid", 1)), "u8")).plan
        with pytest.raises(ProofError):
            prove_copy(replace(plan, guard=np.zeros(32, np.int64)))


class TestStore:
    @pytest.fixture
    def plan(self) -> Plan:
        return lowered(fragment(direction="st")).plan

    def test_holds(self, plan: Plan) -> None:
        assert prove_copy(plan).runs == 1

    @pytest.mark.parametrize(
        "change",
        [
            lambda p: changed(p, parts=p.moves[0].parts[::-1]),
            lambda p: changed(p, opcode=p.moves[0].opcode.replace("x2.", "x2.trans.")),
            lambda p: changed(p, address=np.roll(p.moves[0].address, 1)),
        ],
        ids=["registers", "trans", "address"],
    )
    def test_wrong(self, plan: Plan, change: Callable[[Plan], Plan]) -> None:
        with pytest.raises(ProofError, match=r"^ldstmatrix: shared byte \d+ has tag \d+ instead"):
            prove_copy(change(plan))

    def test_names_thread_and_register(self, plan: Plan) -> None:
        with pytest.raises(ProofError, match=r"register word 0 of thread 0"):
            prove_copy(changed(plan, parts=plan.moves[0].parts[::-1]))

    def test_outside_of_the_tile(self) -> None:
        """A store into a pad: bytes that hold no element stay as they were."""
        rows = digits((8, 4, "laneid", 24), (4, 1, "laneid", 2), (2, 2, "m", 8), (2, 1, "m", 1))
        plan = lowered(Pair(rows, direction="st")).plan
        extra = Move("st.shared.b32", (Part(0),), np.full(32, 32), 4)
        with pytest.raises(ProofError, match=r"shared byte 3[2-5] has tag|reports"):
            prove_copy(replace(plan, moves=(*plan.moves, extra)))

    def test_without_its_guard(self) -> None:
        """Lanes 16..31 would store over the row of lane 0."""
        plan = lowered(Pair(digits((16, 1, "laneid", 8), (8, 1, "m", 1)), direction="st")).plan
        prove_copy(plan)
        with pytest.raises(ProofError):
            prove_copy(replace(plan, guard=None))


class TestVectors:
    @pytest.mark.parametrize("direction", ["ld", "st"])
    def test_wrong(self, direction: str) -> None:
        pair = Pair(digits((32, 1, "laneid", 8), (8, 1, "m", 1)), direction=direction)
        plan = lowered(pair).plan
        assert prove_copy(plan).ways == ((4, 4),)
        parts = plan.moves[0].parts
        for other in (moved_by(plan, 7, 16), changed(plan, parts=(parts[1], parts[0], *parts[2:]))):
            # two threads at one place are a race as well, which ends the probe of the code
            with pytest.raises(ProofError, match=r"^reg: |^the probe of reg reports write by"):
                prove_copy(other)

    def test_pieces(self) -> None:
        """The halves of a word exchanged."""
        rows = digits((8, 4, "laneid", 16), (4, 1, "laneid", 2), (2, 1, "m", 8), (2, 2, "m", 1))
        plan = lowered(Pair(rows)).plan
        first, second, *rest = plan.moves
        other = (replace(first, parts=second.parts), replace(second, parts=first.parts), *rest)
        with pytest.raises(ProofError, match="register word 0 of thread 0"):
            prove_copy(replace(plan, moves=other))


class TestEmission:
    """Mistakes not of the plan but of what writes it."""

    def test_wrong_address_code(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def mistaken(table: NDArray[np.int64]) -> AddressCode:
            return synthesize(np.where(table == 16, 0, table))

        plan = lowered(fragment()).plan
        monkeypatch.setattr(plan_module, "synthesize", mistaken)
        with pytest.raises(ProofError, match=r"register word 1 of thread 0 has tag \d+, "):
            prove_copy(plan)

    def test_entry_proves(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """``lower_copy`` proves by itself, unless told not to."""

        def mistaken(table: NDArray[np.int64]) -> AddressCode:
            return synthesize(table[::-1].copy())

        monkeypatch.setattr(plan_module, "synthesize", mistaken)
        for faithful in (False, True):
            with pytest.raises(ProofError):
                lowered(fragment(), faithful=faithful)
        assert lowered(fragment(), prove=False).proof is None


class TestWavefronts:
    def test_by_hand(self) -> None:
        """Eight rows at one bank: eight wavefronts where one is possible."""
        lane = np.arange(32)
        x1 = Move("ldmatrix", (Part(0),), 128 * (lane % 8), 16, 8)
        assert wavefronts(x1) == (8, 1)
        assert wavefronts(replace(x1, address=16 * (lane % 8))) == (1, 1)
        assert wavefronts(replace(x1, address=0 * lane)) == (1, 1)  # one word is one access

    def test_vectors_by_hand(self) -> None:
        """16 bytes of 32 lanes are four phases; four bytes are one, with a stride of 8 eight."""
        lane = np.arange(32)
        parts = tuple(Part(n) for n in range(4))
        assert wavefronts(Move("ld.shared.v4.b32", parts, 16 * lane, 16)) == (4, 4)
        assert wavefronts(Move("ld.shared.b32", parts[:1], 4 * lane, 4)) == (1, 1)
        assert wavefronts(Move("ld.shared.b32", parts[:1], 32 * lane, 4)) == (8, 1)

    def test_proof_measures_what_ran(self) -> None:
        done = lowered(fragment(8, swizzle=(3, 3, 3, True)))
        assert done.proof is not None
        assert done.proof.ways == tuple(wavefronts(m) for m in done.plan.moves) == ((4, 4),) * 2

"""Corners of the copy lowering: broadcasts, large arrays, swizzles of sums, limits."""

from __future__ import annotations

import numpy as np
import pytest

from lowering import Declined, lower_copy, lower_memory_copy
from lowering.copy import Copy, Plan
from lowering.copy.ldstmatrix import MATRIX_MOVES
from lowering.dispatch import Decline
from lowering.layout import parse, parse_tile
from ptxsim.build import Address, Kernel
from ptxsim.errors import PtxError
from ptxsim.targets import TARGETS

X4 = "S[(8,4,4,2):(4@laneid,1@laneid,2,1)]"
A_FRAGMENT = "S[(2,8,2,4,2):(2,4@laneid,4,1@laneid,1)]"


def planned(register: str, shared: str, **options: object) -> Plan | Decline:
    return MATRIX_MOVES.plan(Copy(parse_tile(register), parse(shared), **options))  # type: ignore[arg-type]


class TestBroadcast:
    """Rows at one address: the copy is right (T11), a kernel cannot give dst what src had."""

    SHARED = "S[(8,4,4,2):(0,2,8,1)]"

    def test_the_copy_is_proved(self) -> None:
        lowered = lower_copy(X4, self.SHARED)
        assert lowered.proof is not None
        assert "ldmatrix" in lowered.body()

    def test_the_kernel_is_declined(self) -> None:
        with pytest.raises(Declined, match="shares byte 0 of the tile"):
            lower_copy(X4, self.SHARED).kernel()


@pytest.mark.parametrize(
    ("shared", "most"),
    # fields k = t & 7 and g = t >> 3 & 3 with their factors and the swizzle: at most 9 instructions
    [("swizzle(3,3,3) o S[(16,16):(64,1)] + 64", 9), ("swizzle(3,3,3) o S[(16,16):(96,1)]", 9)],
)
def test_swizzle_of_a_sum_is_applied_once(shared: str, most: int) -> None:
    lowered = lower_copy(A_FRAGMENT, shared)
    (move,) = lowered.plan.moves
    assert lowered.plan.code(move).cost <= most
    assert lowered.body().count("xor.b32") == 1
    lowered.kernel()  # proved as a whole


def test_moves_share_the_offset_before_the_swizzle() -> None:
    body = lower_copy(
        "S[(4,2,8,6,2,4,2):(32@tid_in_wg,2,4@tid_in_wg,8,4,1@tid_in_wg,1)]",
        "swizzle(3,3,3) o S[(64,96):(96,1)]", scope="warpgroup",
    ).body()  # fmt: skip
    assert body.count("ldmatrix") == 6
    assert body.count("mad.lo.u32") + body.count("mul.lo.u32") <= 4


class TestLargeArrays:
    SHARED = "S[(8,4,4,2):(6400,2,8,1)]"  # 89,664 bytes

    def test_beyond_48_kib_the_array_is_dynamic(self) -> None:
        kernel = lower_copy(X4, self.SHARED).kernel()
        text = kernel.text()
        assert ".extern .shared .align 1024 .b8 tile[];" in text
        assert kernel.dynamic_shared == 89_664
        assert "// launch: grid=1 block=32 smem=89664\n" in text

    def test_a_target_with_less(self) -> None:
        with pytest.raises(Declined, match="at most 65536 bytes"):
            lower_copy(X4, self.SHARED, target="sm_75")


class TestLimits:
    def test_register_words(self) -> None:
        with pytest.raises(Declined, match="beyond 255 register words"):
            lower_copy("S[(32,2):(1@laneid,100000000)]", "S[(32,2):(2,1)]")

    def test_global_extent(self) -> None:
        with pytest.raises(Declined, match="the global tile does not fit"):
            lower_memory_copy("S[(2,32):(1073741824,1)]", "S[(2,32):(32,1)]")

    def test_negative_thread(self) -> None:
        with pytest.raises(Declined, match="names thread -31"):
            lower_copy("S[(32,2):(-1@laneid,1)]", "S[(32,2):(2,1)]")

    def test_threads_of_a_warp(self) -> None:
        with pytest.raises(Declined, match="threads are given for the scope cta"):
            lower_copy(X4, "S[(8,4,4,2):(32,2,8,1)]", threads=64)

    def test_faithful_reg(self) -> None:
        with pytest.raises(ValueError, match="faithful is about ldstmatrix"):
            lower_copy(X4, "S[(8,4,4,2):(32,2,8,1)]", faithful=True, variant="reg")


@pytest.mark.parametrize("target", [t for t in TARGETS if int(t[3:].rstrip("af")) >= 75])
def test_byte_shapes_are_used_where_the_assembler_has_them(target: str) -> None:
    kernel = Kernel("k", target=target)
    address, words = kernel.register("b32"), kernel.registers("b32", 4)
    try:
        kernel.emit("ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8", words, Address(address))
        has = True
    except PtxError:
        has = False
    plan = planned(
        "S[(8,4,4,4):(4@laneid,1@laneid,4,1)]",
        "S[(8,4,4,4):(1,64,8,16)]", dtype="u8", target=target,
    )  # fmt: skip
    uses = isinstance(plan, Plan) and ".m16n16." in plan.moves[0].opcode
    assert uses == has
    if not has:
        assert isinstance(plan, Decline)
        assert (plan.code, plan.numbers["need"]) == ("ARCH", "100a")


def test_memory_copy_is_proved() -> None:
    lowered = lower_memory_copy("S[(64,64):(64,1)]", "S[(64,64):(72,1)]")
    assert lowered.proof is not None
    assert lowered.plan.variant == "cp_async"
    assert np.array_equal(lowered.plan.rounds[0].source[:3], [0, 16, 32])

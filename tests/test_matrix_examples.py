"""The warp-level matrix products of examples/: against NumPy and against the exact model."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ptxsim
from tests.numerics.tensor_core_model import dot

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
M, N, K, STEP = 64, 32, 64, 16
# example and what one step of 16 in its loop over k is; nvcc spells the wmma one .f32.f32, the
# types of C and D, f16 being understood
INSTRUCTIONS = {
    "warp_gemm_mma": "mma.sync.m16n8k16.f32.f16.f16.f32",
    "warp_gemm_wmma": "wmma.mma.m16n16k16.f32.f16.f16.f32",
}
ARCHITECTURES = {"sm_80": "Ampere", "sm_90": "Hopper"}
Array = NDArray[Any]

each_example = pytest.mark.parametrize("name", INSTRUCTIONS)
each_target = pytest.mark.parametrize("target", ARCHITECTURES)


def inputs() -> tuple[Array, Array]:
    """A and B as the headers state them: randn(1) and randn(2), rounded to f16."""
    shapes = {1: (M, K), 2: (K, N)}
    a, b = (
        np.random.Generator(np.random.PCG64(seed)).standard_normal(shape).astype(np.float16)
        for seed, shape in shapes.items()
    )
    return a, b


@cache
def simulated(name: str, target: str) -> Array:
    """C of a launch; read only."""
    a, b = inputs()
    c = ptxsim.undefined((M, N), np.float32)
    kernel = ptxsim.assemble(EXAMPLES / f"{name}.ptx", target=target).kernel()
    kernel.launch(grid=1, block=32, args=[a, b, c]).raise_for_findings()
    return c


@cache
def modelled(name: str, target: str) -> Array:
    """C by the exact model: each element a chain of dot products, K / 16 of them."""
    a, b = inputs()
    rows, columns = a.view(np.uint16).tolist(), b.T.copy().view(np.uint16).tolist()

    def element(row: list[int], column: list[int]) -> int:
        c = 0
        for k in range(0, K, STEP):
            part = slice(k, k + STEP)
            c = dot(row[part], column[part], c, INSTRUCTIONS[name], ARCHITECTURES[target])
        return c

    bits = [[element(row, column) for column in columns] for row in rows]
    return np.array(bits, np.uint32).view(np.float32)


def within_bound(c: Array, a: Array, b: Array) -> bool:
    """Whether C is as near to A * B as the fused steps of the matrix unit must bring it.

    One step adds L products and the accumulator, each cut below 2^-F of the power of two at or
    below the largest (a product's exponent is the sum of those of its factors, so never above its
    own), and cuts the sum to 24 bits.  With F >= 23 each of the L + 1 addends loses less than
    2^-23 of the largest addend, and the sum less than 2^-23 of itself.  Let S be the sum of
    |a b| over all k: no exact partial sum is above S, and the computed ones, being cut toward zero,
    are not above the sum of |addends| either, so each of these L + 2 errors is below 2^-23 S.  K
    products take K / L steps: (K / L) (L + 2) 2^-23 S, largest for the smallest L with 16-bit
    factors on these targets, 8.  float64 adds K 2^-52 S to the product it is compared with.
    """
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    magnitude = np.abs(wide_a) @ np.abs(wide_b)
    bound = (K / 8 * (8 + 2) * 2.0**-23 + K * 2.0**-52) * magnitude
    return bool((np.abs(c - wide_a @ wide_b) <= bound).all())


@each_example
@each_target
class TestProduct:
    def test_is_near_the_product_in_float64(self, name: str, target: str) -> None:
        assert within_bound(simulated(name, target), *inputs())

    def test_equals_the_exact_model(self, name: str, target: str) -> None:
        expected = modelled(name, target)
        assert simulated(name, target).tobytes() == expected.tobytes()


@each_example
class TestExpectedFile:
    def test_holds_what_the_exact_model_gives_on_sm_80(self, name: str) -> None:
        stored = np.load(EXAMPLES / f"{name}_c.npy")
        assert stored.dtype == np.float32
        assert stored.tobytes() == modelled(name, "sm_80").tobytes()

    def test_header_states_these_inputs(self, name: str) -> None:
        text = (EXAMPLES / f"{name}.ptx").read_text()
        assert f"a f16[{M * K}] = randn(1)\n" in text
        assert f"b f16[{K * N}] = randn(2)\n" in text


class TestComparisonsCanFail:
    def test_rounding_matters(self) -> None:
        """One rounding at the end, or the widths of another target, gives other bits."""
        a, b = inputs()
        once = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
        ampere, hopper = (modelled("warp_gemm_mma", target) for target in ARCHITECTURES)
        for x, y in ((once, ampere), (once, hopper), (ampere, hopper)):
            assert np.count_nonzero(x != y) > M * N // 2

    def test_bound_sees_a_lost_product(self) -> None:
        a, b = inputs()
        c = (a[:, :-1].astype(np.float64) @ b[:-1].astype(np.float64)).astype(np.float32)
        assert not within_bound(c, a, b)

    def test_bound_sees_an_accumulator_in_f16(self) -> None:
        a, b = inputs()
        c = np.zeros((M, N), np.float16)
        for k in range(K):
            c = c + a[:, k : k + 1] * b[k : k + 1]
        assert not within_bound(c, a, b)

    @pytest.mark.parametrize("stage", [0, 1])
    def test_copies_not_waited_for_are_seen(self, stage: int) -> None:
        """Without one of its two waits the product reads what has not arrived."""
        text = (EXAMPLES / "warp_gemm_mma.ptx").read_text()
        wait = f"cp.async.wait_group {1 - stage};"
        assert text.count(wait) == 1
        a, b = inputs()
        c = ptxsim.undefined((M, N), np.float32)
        kernel = ptxsim.assemble(text.replace(wait, "")).kernel()
        kernel.launch(grid=1, block=32, args=[a, b, c])
        assert c.tobytes() != simulated("warp_gemm_mma", "sm_80").tobytes()

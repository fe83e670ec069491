"""Matrix products on bit patterns; expected values are worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ptxsim.numerics.dot_product import float_product, integer_product
from ptxsim.numerics.formats import BF16, F16, F32, Format


def halves(values: list[float]) -> np.ndarray:  # type: ignore[type-arg]
    return np.array(values, np.float16).view(np.uint16)


class TestFloat:
    def dot(self, a: list[float], b: list[float], c: float, result: Format = F32) -> int:
        accumulator = np.array([[c]], np.float32).view(np.uint32)
        d = float_product(
            halves(a)[None, :], halves(b)[:, None], accumulator,
            factors=F16, accumulator=F32, result=result,
        )  # fmt: skip
        return int(d[0, 0])

    def test_rounded_once(self) -> None:
        # 1 + 2**-24 + 2**-24 = 1 + 2**-23: rounding after each addition would give 1
        small = 2.0**-12
        assert self.dot([1, small, small], [1, small, small], 0.0) == 0x3F800001

    def test_accumulator_comes_last(self) -> None:
        # 2048 + 2**-24 is kept by float64 until 2048 goes again
        assert self.dot([2048, 2.0**-12], [1, 2.0**-12], -2048.0) == 0x33800000

    def test_subnormal_factors_are_kept(self) -> None:
        assert self.dot([2.0**-24], [1], 0.0) == 0x33800000

    @pytest.mark.parametrize(("result", "nan"), [(F32, 0x7FFFFFFF), (F16, 0x7FFF)])
    def test_nan_is_canonical(self, result: Format, nan: int) -> None:
        assert self.dot([np.inf, np.inf], [1, -1], 0.0, result) == nan

    def test_overflow_of_the_result_format(self) -> None:
        assert self.dot([300], [300], 0.0, F16) == 0x7C00

    def test_bf16(self) -> None:
        one = np.full((1, 1), 0x3F80, np.uint16)
        zero = np.zeros((1, 1), np.uint32)
        d = float_product(one, one, zero, factors=BF16, accumulator=F32, result=F32)
        assert d.tolist() == [[0x3F800000]]

    def test_stacks_are_independent(self) -> None:
        a = halves([1, 2, 3, 4, 5, 6]).reshape(3, 1, 2)
        b = halves([1, 1, 1, 2, 2, 2]).reshape(3, 2, 1)
        c = np.zeros((3, 1, 1), np.uint32)
        d = float_product(a, b, c, factors=F16, accumulator=F32, result=F32)
        assert d.view(np.float32).reshape(-1).tolist() == [3.0, 11.0, 22.0]


class TestInteger:
    @pytest.mark.parametrize(
        ("a_signed", "b_signed", "expected"),
        # 0x80 * 0xff: -128 * -1, -128 * 255, 128 * -1, 128 * 255
        [(True, True, 128), (True, False, -32640), (False, True, -128), (False, False, 32640)],
    )
    def test_signs(self, a_signed: bool, b_signed: bool, expected: int) -> None:
        a, b = np.array([[0x80]], np.uint8), np.array([[0xFF]], np.uint8)
        c = np.zeros((1, 1), np.uint32)
        d = integer_product(a, b, c, a_signed=a_signed, b_signed=b_signed, saturate=False)
        assert d.view(np.int32).tolist() == [[expected]]

    @pytest.mark.parametrize(("saturate", "expected"), [(False, 0x7FFFFFFF), (True, 0x80000000)])
    def test_below_the_lowest(self, saturate: bool, expected: int) -> None:
        a, b = np.array([[0xFF]], np.uint8), np.array([[1]], np.uint8)
        c = np.array([[0x80000000]], np.uint32)
        d = integer_product(a, b, c, a_signed=True, b_signed=True, saturate=saturate)
        assert d.tolist() == [[expected]]

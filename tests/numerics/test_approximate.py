"""The approximations: special operands exactly as tabled, ordinary ones within the bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from ptxsim.numerics import approximate
from ptxsim.numerics.formats import BF16, F16, F32, F64

INF, NAN = math.inf, math.nan


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32).view(np.uint32)


def f64(*values: float) -> np.ndarray:
    return np.array(values, np.float64).view(np.uint64)


def ints(a: np.ndarray) -> list[int]:
    return [int(v) for v in a]


def expected(values: list[float]) -> list[int]:
    return [0x7FFFFFFF if math.isnan(v) else ints(f32(v))[0] for v in values]


# PTX ISA 9.1, the tables under each instruction: -inf, -1.0, -0, +0, +inf, NaN.
SPECIALS: dict[str, list[float]] = {
    "rcp": [-0.0, -1.0, -INF, INF, 0.0, NAN],
    "rsqrt": [NAN, NAN, -INF, INF, 0.0, NAN],
    "sqrt": [NAN, NAN, -0.0, 0.0, INF, NAN],
    "sin": [NAN, float(np.float32(math.sin(-1))), -0.0, 0.0, NAN, NAN],
    "cos": [NAN, float(np.float32(math.cos(1))), 1.0, 1.0, NAN, NAN],
    "lg2": [NAN, NAN, -INF, -INF, INF, NAN],
    "ex2": [0.0, 0.5, 1.0, 1.0, INF, NAN],
    "tanh": [-1.0, float(np.float32(math.tanh(-1))), -0.0, 0.0, 1.0, NAN],
}


@pytest.mark.parametrize("name", sorted(SPECIALS))
def test_special_operands(name: str) -> None:
    function: Callable[..., np.ndarray] = getattr(approximate, name)
    operands = f32(-INF, -1.0, -0.0, 0.0, INF, NAN)
    assert ints(function(operands)) == expected(SPECIALS[name])
    if name != "tanh":
        assert ints(function(operands, ftz=True)) == expected(SPECIALS[name])


@pytest.mark.parametrize("name", sorted(set(SPECIALS) - {"tanh"}))
def test_subnormal_operands_act_as_zero_with_ftz(name: str) -> None:
    function: Callable[..., np.ndarray] = getattr(approximate, name)
    tiny = np.array([0x80000001, 0x007FFFFF], np.uint32)
    assert ints(function(tiny, ftz=True)) == expected(SPECIALS[name][2:4])


def test_subnormal_operands_without_ftz() -> None:
    # 2**-149 and its negative.
    a = np.array([1, 0x80000001], np.uint32)
    assert ints(approximate.lg2(a)) == expected([-149.0, NAN])
    assert ints(approximate.rcp(a)) == expected([INF, -INF])
    assert ints(approximate.sqrt(a)) == expected([2.0**-74.5, NAN])
    assert ints(approximate.tanh(a)) == ints(a)
    assert ints(approximate.ex2(f32(-149.0))) == [1]
    assert ints(approximate.ex2(f32(-149.0), ftz=True)) == [0]


@pytest.mark.parametrize("name", sorted(SPECIALS))
def test_within_half_an_ulp_of_python(name: str) -> None:
    exact: dict[str, Callable[[float], float]] = {
        "rcp": lambda x: 1 / x, "rsqrt": lambda x: 1 / math.sqrt(x), "sqrt": math.sqrt,
        "sin": math.sin, "cos": math.cos, "lg2": math.log2, "ex2": lambda x: 2.0**x,
        "tanh": math.tanh,
    }  # fmt: skip
    a = np.random.default_rng(31).uniform(0.01, 6.0, 500).astype(np.float32)
    got = getattr(approximate, name)(a.view(np.uint32)).view(np.float32)
    for x, y in zip(a, got, strict=True):
        want = exact[name](float(x))
        assert abs(float(y) - want) <= 0.5001 * float(np.spacing(np.float32(abs(want))))


def test_half_precision() -> None:
    # 2**0.5 = 1.0110101000001b, tanh(0.5) = 0.46211...
    a = np.array([0x3800, 0x8000, 0xFC00, 0x7C00, 0x7E00, 0x0001], np.uint16)
    assert ints(approximate.ex2(a, fmt=F16)) == [0x3DA8, 0x3C00, 0, 0x7C00, 0x7FFF, 0x3C00]
    assert ints(approximate.tanh(a, fmt=F16)) == [0x3765, 0x8000, 0xBC00, 0x3C00, 0x7FFF, 0x0001]
    b = np.array([0x3F00, 0x8000, 0xFF80, 0x7F80, 0x7FC0, 0x8001, 0xC2FE], np.uint16)
    # The last operand is -127: its result is subnormal and flushed, like subnormal operands.
    assert ints(approximate.ex2(b, fmt=BF16)) == [0x3FB5, 0x3F80, 0, 0x7F80, 0x7FFF, 0x3F80, 0]
    assert ints(approximate.tanh(b[:6], fmt=BF16)) == [
        0x3EED, 0x8000, 0xBF80, 0x3F80, 0x7FFF, 0x8001,
    ]  # fmt: skip


class TestDivision:
    def test_ordinary(self) -> None:
        assert ints(approximate.div_approx(f32(1.0, -7.0), f32(3.0))) == ints(f32(1 / 3, -7 / 3))

    def test_vanishing_reciprocal(self) -> None:
        # PTX ISA 9.1, div.approx.f32: divisors between 2**126 and 2**128.
        a = f32(1.0, -1.0, INF, 1e38, 2.0**126)
        b = f32(2.0**127, 2.0**127, -(2.0**127), -2e38, 2.0**126)
        assert ints(approximate.div_approx(a, b)) == expected([0.0, -0.0, NAN, -0.0, 1.0])
        assert ints(approximate.div_full(a, b))[4] == F32.one
        assert ints(approximate.div_full(a, b))[2] == ints(f32(-INF))[0]

    def test_specials(self) -> None:
        a, b = f32(0.0, 1.0, INF, 1.0, NAN), f32(0.0, -0.0, INF, INF, 1.0)
        want = expected([NAN, -INF, NAN, 0.0, NAN])
        assert ints(approximate.div_approx(a, b)) == want
        assert ints(approximate.div_full(a, b)) == want

    def test_ftz(self) -> None:
        a, b = np.array([0x00400000], np.uint32), f32(2.0**-120)
        assert ints(approximate.div_full(a, b)) == ints(f32(2.0**-7))
        assert ints(approximate.div_full(a, b, ftz=True)) == [0]


class TestGross:
    """rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64: upper words only."""

    def test_rcp(self) -> None:
        a = f64(-INF, -0.0, 0.0, INF, 4.0, 1e-310)
        assert ints(approximate.rcp_gross(a)) == ints(f64(-0.0, -INF, INF, 0.0, 0.25, INF))
        third = ints(approximate.rcp_gross(f64(3.0)))[0]
        assert third == 0x3FD55555_00000000

    def test_rsqrt(self) -> None:
        a = f64(-0.0, 0.0, INF, 4.0)
        assert ints(approximate.rsqrt_gross(a)) == ints(f64(-INF, INF, 0.0, 0.5))

    def test_nan_and_lost_words(self) -> None:
        # A NaN whose payload is in the low word, and a low word that does not count.
        a = np.array([0x7FF00000_00000001, 0x40100000_FFFFFFFF], np.uint64)
        assert ints(approximate.rcp_gross(a)) == [0x7FFFFFFF_00000000, ints(f64(0.25))[0]]
        assert ints(approximate.rsqrt_gross(f64(-1.0))) == [0x7FFFFFFF_00000000]

    def test_subnormal_result_is_flushed(self) -> None:
        assert ints(approximate.rcp_gross(f64(-(2.0**1023)))) == ints(f64(-0.0))


def test_rsqrt_f64_keeps_all_bits() -> None:
    got = approximate.rsqrt(f64(2.0), fmt=F64).view(np.float64)
    assert abs(float(got[0]) - math.sqrt(0.5)) <= 2 * math.ulp(0.5)

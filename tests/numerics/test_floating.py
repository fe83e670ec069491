"""Arithmetic and comparison of floats against exact rational arithmetic."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import rational_model as model

from ptxsim.numerics import floating, half
from ptxsim.numerics.formats import BF16, F16, F32, F64, Format

ALL = (F16, BF16, F32, F64)
ROUNDED = [(fmt, mode) for fmt in (F32, F64) for mode in ("rn", "rz", "rm", "rp")]
EVERY = [*ROUNDED, (F16, "rn"), (BF16, "rn")]
LANES = 3000


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def bits(fmt: Format, *values: int) -> np.ndarray:
    return np.array(values, fmt.dtype)


def ints(a: np.ndarray) -> list[int]:
    return [int(v) for v in a]


def disagreements(got: np.ndarray, want: list[int], *operands: np.ndarray) -> list[str]:
    """The lanes that differ, readable."""
    rows = zip(ints(got), want, *(ints(o) for o in operands), strict=True)
    return [" ".join(f"{v:x}" for v in row) for row in rows if row[0] != row[1]]


def names(case: object) -> str:
    return str(case).removeprefix(".")


class TestRationalModel:
    """The oracle itself, on values known from elsewhere."""

    def test_agrees_with_python_on_f64(self) -> None:
        rng = np.random.default_rng(11)
        a, b = model.patterns(rng, F64, 500), model.patterns(rng, F64, 500)
        for x, y in zip(ints(a), ints(b), strict=True):
            total = struct.unpack("<d", x.to_bytes(8, "little"))[0]
            total += struct.unpack("<d", y.to_bytes(8, "little"))[0]
            want = int.from_bytes(struct.pack("<d", total), "little")
            if not math.isnan(total):
                assert model.add(x, y, F64) == want

    def test_rounds_halves_by_mode(self) -> None:
        # 1 + 2**-11 lies half way between two f16 numbers.
        half_way = 1 + Fraction(1, 2048)
        results = {m: model.round_fraction(half_way, F16, m) for m in ("rn", "rna", "rz", "rp")}
        assert results == {"rn": 0x3C00, "rna": 0x3C01, "rz": 0x3C00, "rp": 0x3C01}

    def test_a_wrong_result_is_noticed(self) -> None:
        one = bits(F32, F32.one)
        assert disagreements(one + np.uint32(1), [F32.one], one)


class AgainstRationals:
    """What the classes below share."""

    def check(
        self, fmt: Format, mode: str, ours: Callable[..., np.ndarray], exact: Callable[..., int],
        *operands: np.ndarray,
    ) -> None:  # fmt: skip
        got = ours(*operands, fmt=fmt, rounding=mode)
        want = [exact(*row, fmt, mode) for row in zip(*(ints(o) for o in operands), strict=True)]
        assert got.dtype == fmt.dtype
        assert disagreements(got, want, *operands) == []

    def operands(self, fmt: Format, seed: int, count: int) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        return [model.patterns(rng, fmt, LANES) for _ in range(count)]


@pytest.mark.parametrize(("fmt", "mode"), EVERY, ids=names)
class TestSumsAndProducts(AgainstRationals):
    def test_add(self, fmt: Format, mode: Any) -> None:
        self.check(fmt, mode, floating.add, model.add, *self.operands(fmt, 1, 2))

    def test_sub(self, fmt: Format, mode: Any) -> None:
        def exact(a: int, b: int, fmt: Format, mode: Any) -> int:
            return model.add(a, b ^ fmt.sign, fmt, mode)

        self.check(fmt, mode, floating.sub, exact, *self.operands(fmt, 2, 2))

    def test_mul(self, fmt: Format, mode: Any) -> None:
        self.check(fmt, mode, floating.mul, model.mul, *self.operands(fmt, 3, 2))

    def test_mul_near_underflow(self, fmt: Format, mode: Any) -> None:
        rng = np.random.default_rng(4)
        a, b, _ = model.hard_fma(rng, fmt, LANES)
        self.check(fmt, mode, floating.mul, model.mul, a, b)

    def test_fma(self, fmt: Format, mode: Any) -> None:
        self.check(fmt, mode, floating.fma, model.fma, *self.operands(fmt, 5, 3))

    def test_fma_at_boundaries(self, fmt: Format, mode: Any) -> None:
        self.check(
            fmt,
            mode,
            floating.fma,
            model.fma,
            *model.hard_fma(np.random.default_rng(6), fmt, LANES),
        )

    def test_every_pair_of_edges(self, fmt: Format, mode: Any) -> None:
        edges = model.edges(fmt)
        a = np.repeat(bits(fmt, *edges), len(edges))
        b = np.tile(bits(fmt, *edges), len(edges))
        self.check(fmt, mode, floating.add, model.add, a, b)
        self.check(fmt, mode, floating.mul, model.mul, a, b)
        c = np.roll(a, 7)
        self.check(fmt, mode, floating.fma, model.fma, a, b, c)


@pytest.mark.parametrize(("fmt", "mode"), ROUNDED, ids=names)
class TestDivisionAndRoot(AgainstRationals):
    def test_div(self, fmt: Format, mode: Any) -> None:
        self.check(fmt, mode, floating.div, model.div, *self.operands(fmt, 7, 2))

    def test_div_edges(self, fmt: Format, mode: Any) -> None:
        edges = model.edges(fmt)
        a, b = np.repeat(bits(fmt, *edges), len(edges)), np.tile(bits(fmt, *edges), len(edges))
        self.check(fmt, mode, floating.div, model.div, a, b)

    def test_exact_quotients(self, fmt: Format, mode: Any) -> None:
        a, b, _ = model.hard_fma(np.random.default_rng(8), fmt, LANES)
        product = floating.mul(a, b, fmt=fmt)
        self.check(fmt, mode, floating.div, model.div, product, b)

    def test_rcp(self, fmt: Format, mode: Any) -> None:
        (a,) = self.operands(fmt, 9, 1)

        def exact(a: int, fmt: Format, mode: Any) -> int:
            return model.div(fmt.one, a, fmt, mode)

        self.check(fmt, mode, floating.rcp, exact, a)

    def test_sqrt(self, fmt: Format, mode: Any) -> None:
        (a,) = self.operands(fmt, 10, 1)
        squares = floating.mul(a, a, fmt=fmt)
        near = squares + np.arange(LANES).astype(fmt.dtype) % fmt.dtype.type(3)
        self.check(fmt, mode, floating.sqrt, model.sqrt, a)
        self.check(fmt, mode, floating.sqrt, model.sqrt, near & fmt.dtype.type(fmt.sign - 1))


class TestTraps:
    """The hard cases are hard: a plausible wrong method fails on them."""

    def test_float64_alone_is_not_enough_for_f32(self) -> None:
        a, b, c = model.hard_fma(np.random.default_rng(6), F32, LANES)
        x, y, z = (v.view(np.float32).astype(np.float64) for v in (a, b, c))
        twice = (x * y + z).astype(np.float32).view(np.uint32)
        wrong = twice != floating.fma(a, b, c, fmt=F32)
        subnormal = (twice & np.uint32(0x7F800000)) == 0
        assert wrong.sum() > 100
        assert (wrong & subnormal).any()

    @pytest.mark.parametrize("fmt", ALL, ids=names)
    def test_two_roundings_are_not_enough(self, fmt: Format) -> None:
        a, b, c = model.hard_fma(np.random.default_rng(6), fmt, LANES)
        twice = floating.add(floating.mul(a, b, fmt=fmt), c, fmt=fmt)
        assert (twice != floating.fma(a, b, c, fmt=fmt)).sum() > 100


class TestBroadcast:
    """A value that is the same in all lanes comes with one lane; arguments stay as they are."""

    @pytest.mark.parametrize(("fmt", "mode"), EVERY, ids=names)
    def test_one_lane_against_many(self, fmt: Format, mode: Any) -> None:
        rng = np.random.default_rng(12)
        a = model.patterns(rng, fmt, 64)
        for one in (bits(fmt, e) for e in model.edges(fmt)):
            full = np.repeat(one, 64)
            kept = a.copy()
            short = floating.fma(one, a, one, fmt=fmt, rounding=mode)
            long = floating.fma(full, a, full, fmt=fmt, rounding=mode)
            assert ints(short) == ints(long)
            assert ints(floating.min_(one, a, fmt=fmt)) == ints(floating.min_(full, a, fmt=fmt))
            assert ints(a) == ints(kept)
            assert floating.add(one, one, fmt=fmt).shape == (1,)


class TestModifiers:
    def test_ftz_reads_and_writes_signed_zero(self) -> None:
        # Smallest normal minus the next one is subnormal; subnormal operands act as zero.
        a, b = bits(F32, 0x00800000, 0x807FFFFF), bits(F32, 0x80800001, 0x80000000)
        assert ints(floating.add(a, b, fmt=F32)) == [0x80000001, 0x807FFFFF]
        assert ints(floating.add(a, b, fmt=F32, ftz=True)) == [0x80000000, 0x80000000]

    def test_ftz_looks_at_the_rounded_result(self) -> None:
        # 0x3f7fffff * 0x00800000 = 2**-126 - 2**-150, a tie that rounds up to a normal number.
        a, b = bits(F32, 0x3F7FFFFF), bits(F32, 0x00800000)
        assert ints(floating.mul(a, b, fmt=F32, ftz=True)) == [0x00800000]
        assert ints(floating.mul(a, b, fmt=F32, ftz=True, rounding="rz")) == [0]

    @pytest.mark.parametrize("fmt", [F16, F32], ids=names)
    def test_sat(self, fmt: Format) -> None:
        assert fmt.nan is not None
        quarter = (fmt.bias - 2) << fmt.mantissa_bits
        values = bits(fmt, fmt.nan, fmt.sign, fmt.sign | fmt.one, fmt.largest, quarter)
        zero = bits(fmt, fmt.sign)
        got = floating.add(values, zero, fmt=fmt, sat=True)
        assert ints(got) == [0, 0, 0, fmt.one, quarter]

    def test_relu(self) -> None:
        one = bits(F16, F16.one)
        values = bits(F16, 0x7E01, 0xBC00, 0x8000, 0x4000, 0xFC00)
        got = floating.fma(values, one, bits(F16, 0x8000), fmt=F16, relu=True)
        assert ints(got) == [0x7FFF, 0, 0, 0x4000, 0]

    @pytest.mark.parametrize("fmt", ALL, ids=names)
    def test_nan_results_are_canonical(self, fmt: Format) -> None:
        assert fmt.infinity is not None
        odd_nan = bits(fmt, fmt.sign | (fmt.infinity + 1))
        infinity, zero = bits(fmt, fmt.infinity), bits(fmt, 0)
        assert ints(floating.add(odd_nan, zero, fmt=fmt)) == [fmt.nan]
        assert ints(floating.mul(infinity, zero, fmt=fmt)) == [fmt.nan]
        assert ints(floating.sub(infinity, infinity, fmt=fmt)) == [fmt.nan]


def extreme(a: int, b: int, fmt: Format, greatest: bool) -> int:
    """min or max by the table of the manual; zeros ordered by sign."""
    x, y = model.decode(a, fmt), model.decode(b, fmt)
    if x == "nan" or y == "nan":
        assert fmt.nan is not None
        return fmt.nan if x == y else (b if x == "nan" else a)

    def key(bits: int) -> int:
        magnitude = bits & (fmt.sign - 1)
        return -magnitude - 1 if bits & fmt.sign else magnitude

    return (max if greatest else min)(a, b, key=key)


@pytest.mark.parametrize("fmt", ALL, ids=names)
class TestExtremes:
    def pairs(self, fmt: Format) -> tuple[np.ndarray, np.ndarray]:
        edges = model.edges(fmt)
        assert fmt.infinity is not None
        edges.append(fmt.infinity + 3)
        rng = np.random.default_rng(13)
        n = len(edges)
        a = np.concatenate([np.repeat(bits(fmt, *edges), n), model.patterns(rng, fmt, 500)])
        b = np.concatenate([np.tile(bits(fmt, *edges), n), model.patterns(rng, fmt, 500)])
        return a, b

    def test_min_max(self, fmt: Format) -> None:
        a, b = self.pairs(fmt)
        for function, greatest in ((floating.min_, False), (floating.max_, True)):
            want = [extreme(x, y, fmt, greatest) for x, y in zip(ints(a), ints(b), strict=True)]
            assert disagreements(function(a, b, fmt=fmt), want, a, b) == []

    def test_nan_modifier(self, fmt: Format) -> None:
        assert fmt.nan is not None
        a, b = bits(fmt, fmt.nan, fmt.one, fmt.one), bits(fmt, fmt.one, fmt.nan, 0)
        assert ints(floating.min_(a, b, fmt=fmt, nan=True)) == [fmt.nan, fmt.nan, 0]
        assert ints(floating.max_(a, b, fmt=fmt, nan=True)) == [fmt.nan, fmt.nan, fmt.one]

    def test_xorsign_abs(self, fmt: Format) -> None:
        # Signs come from the originals, a NaN's sign included; a NaN result stays unsigned.
        assert fmt.nan is not None
        s, one, two = fmt.sign, fmt.one, fmt.one + fmt.smallest_normal
        a = bits(fmt, s | two, s | two, s | fmt.nan, s | fmt.nan)
        b = bits(fmt, one, s | one, one, fmt.nan)
        got = floating.min_(a, b, fmt=fmt, xorsign_abs=True)
        assert ints(got) == [s | one, one, s | one, fmt.nan]
        got = floating.max_(a, b, fmt=fmt, xorsign_abs=True, nan=True)
        assert ints(got) == [s | two, two, fmt.nan, fmt.nan]

    def test_ftz(self, fmt: Format) -> None:
        a, b = bits(fmt, fmt.sign | 1), bits(fmt, fmt.one)
        assert ints(floating.min_(a, b, fmt=fmt, ftz=True)) == [fmt.sign]


@pytest.mark.parametrize("fmt", ALL, ids=names)
def test_compare_by_the_table_of_operators(fmt: Format) -> None:
    """ISA 9.1, "Operators": the u forms add NaN to the truth, ne leaves it out."""
    edges = model.edges(fmt)
    a, b = np.repeat(bits(fmt, *edges), len(edges)), np.tile(bits(fmt, *edges), len(edges))
    relations: dict[Any, Callable[[Fraction, Fraction], bool]] = {
        "eq": lambda x, y: x == y,
        "ne": lambda x, y: x != y,
        "lt": lambda x, y: x < y,
        "le": lambda x, y: x <= y,
        "gt": lambda x, y: x > y,
        "ge": lambda x, y: x >= y,
    }
    pairs = [(ordered(x, fmt), ordered(y, fmt)) for x, y in zip(ints(a), ints(b), strict=True)]
    for op, relation in relations.items():
        want = [x is not None and y is not None and relation(x, y) for x, y in pairs]
        unordered = [x is None or y is None or relation(x, y) for x, y in pairs]
        with_nan: Any = op + "u"
        assert floating.compare(op, a, b, fmt=fmt).tolist() == want
        assert floating.compare(with_nan, a, b, fmt=fmt).tolist() == unordered
    nan = [x is None or y is None for x, y in pairs]
    assert floating.compare("nan", a, b, fmt=fmt).tolist() == nan
    assert floating.compare("num", a, b, fmt=fmt).tolist() == [not n for n in nan]


def ordered(pattern: int, fmt: Format) -> Fraction | None:
    """The number, infinities as numbers beyond all others, None for NaN."""
    value = model.decode(pattern, fmt)
    if isinstance(value, Fraction):
        return value
    return None if value == "nan" else Fraction(10**400 if value == "+inf" else -(10**400))


def test_compare_flushes_with_ftz() -> None:
    a, b = bits(F32, 1), bits(F32, 0x80000000)
    assert floating.compare("gt", a, b, fmt=F32).tolist() == [True]
    assert floating.compare("eq", a, b, fmt=F32, ftz=True).tolist() == [True]


def test_copysign_takes_the_value_of_b() -> None:
    a, b = bits(F32, 0xBF800000, 0x00000000), bits(F32, 0x40000000, 0xC0000000)
    assert ints(floating.copysign(a, b, fmt=F32)) == [0xC0000000, 0x40000000]


class TestPacked:
    def test_halves_do_not_touch_each_other(self) -> None:
        rng = np.random.default_rng(14)
        low = [model.patterns(rng, F16, 200) for _ in range(3)]
        high = [model.patterns(rng, F16, 200) for _ in range(3)]
        packed = [half.join_halves(lo, hi) for lo, hi in zip(low, high, strict=True)]
        got = half.each_half(floating.fma, *packed, fmt=F16)
        assert ints(half.low_half(got)) == ints(floating.fma(*low, fmt=F16))
        assert ints(half.high_half(got)) == ints(floating.fma(*high, fmt=F16))

    def test_one_lane_and_f32x2(self) -> None:
        # (1, 2) * (3, 3) in every lane.
        a = np.array([0x40000000_3F800000] * 3, np.uint64)
        b = np.array([0x40400000_40400000], np.uint64)
        got = half.each_half(floating.mul, a, b, fmt=F32)
        assert ints(got) == [0x40C00000_40400000] * 3

    def test_compare_gives_low_then_high(self) -> None:
        a, b = np.array([0x3C00_4000], np.uint32), np.array([0x4000_3C00], np.uint32)
        low, high = half.compare_halves("gt", a, b, fmt=F16)
        assert (low.tolist(), high.tolist()) == ([True], [False])

"""Conversions against exact rational arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import rational_model as model

from ptxsim.numerics import convert, convert_packed
from ptxsim.numerics.formats import (
    BF16,
    E2M1,
    E2M3,
    E3M2,
    E4M3,
    E5M2,
    F16,
    F32,
    F64,
    FORMATS,
    TF32,
    UE4M3,
    UE8M0,
    Format,
)

LANES = 2000
MODES = ("rn", "rz", "rm", "rp")
NARROW = (E4M3, E5M2, E2M1, E2M3, E3M2)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def bits(fmt: Format, *values: int) -> np.ndarray:
    return np.array(values, fmt.dtype)


def ints(a: np.ndarray) -> list[int]:
    return [int(v) for v in a]


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32).view(np.uint32)


def names(case: object) -> str:
    return str(case).removeprefix(".")


def boundary_values(rng: np.random.Generator, source: Format, target: Format, n: int) -> np.ndarray:
    """Patterns of ``source`` at, and one step beside, the numbers and ties of ``target``."""
    span = target.largest + 2
    out = list(model.edges(source))
    for magnitude in rng.integers(0, span, n):
        low = _unbounded(int(magnitude), target)
        high = _unbounded(int(magnitude) + 1, target)
        value = (low, (low + high) / 2)[int(rng.integers(2))]
        pattern = model.round_fraction(value, source, "rn", saturate=True)
        step = int(rng.integers(-1, 2))
        pattern = min(max(pattern + step, 0), source.infinity or source.largest)
        out.append(pattern | (source.sign if rng.integers(2) else 0))
    return bits(source, *out)


def _unbounded(magnitude: int, fmt: Format) -> Fraction:
    """The number of a pattern as if the format had no infinity and no NaN."""
    exponent, mantissa = divmod(magnitude, fmt.smallest_normal)
    significand = mantissa + (fmt.smallest_normal if exponent else 0)
    return Fraction(significand) * Fraction(2) ** (max(exponent, 1) - fmt.bias - fmt.mantissa_bits)


def exact_conversion(
    pattern: int, source: Format, target: Format, mode: Any, saturate: bool = False
) -> int:
    """One float converted by the model; NaN as the manual says for the target."""
    value = model.decode(pattern, source)
    if value == "nan":
        if target is F64:
            return 0x7FFF_FFFF_E000_0000  # folded by ptxas for cvt.f64.f16 and cvt.f64.f32
        return target.largest if target.nan is None else target.nan
    negative = model.is_negative(pattern, source)
    sign = target.sign if negative else 0
    if isinstance(value, str):
        if saturate or target.infinity is None:
            return sign | target.largest
        return sign | target.infinity
    return model.round_fraction(value, target, mode, negative_zero=negative, saturate=saturate)


PAIRS = [
    (source, target)
    for source in (F64, F32, F16, BF16)
    for target in (F16, BF16, TF32, F32, *NARROW)
    if source is not target
]
WIDENINGS = [
    (source, target)
    for source in FORMATS.values()
    for target in (F16, BF16, F32, F64)
    if source.width <= 16 and source is not target and (source, target) != (BF16, F16)
]


class TestFloatToFloat:
    def check(self, source: Format, target: Format, mode: Any, saturate: bool) -> None:
        rng = np.random.default_rng(21)
        a = np.concatenate(
            [model.patterns(rng, source, LANES), boundary_values(rng, source, target, LANES)]
        )
        got = convert.float_to_float(
            a,
            source=source,
            target=target,
            rounding=mode,
            satfinite=saturate,
        )
        want = [
            exact_conversion(p, source, target, mode, saturate) << target.padding for p in ints(a)
        ]
        assert got.dtype == target.dtype
        rows = zip(ints(a), ints(got), want, strict=True)
        wrong = [f"{p:x}: {g:x}, not {w:x}" for p, g, w in rows if g != w]
        assert wrong == []

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize(("source", "target"), PAIRS, ids=names)
    def test_rounding(self, source: Format, target: Format, mode: Any) -> None:
        self.check(source, target, mode, False)

    @pytest.mark.parametrize(
        ("source", "target"), [(s, t) for s, t in PAIRS if t is not F32], ids=names
    )
    def test_satfinite(self, source: Format, target: Format) -> None:
        self.check(source, target, "rn", True)
        self.check(source, target, "rz", True)


class TestBoundariesAreHard:
    def test_rounding_through_f32_is_noticed(self) -> None:
        rng = np.random.default_rng(21)
        a = boundary_values(rng, F64, F16, LANES)
        once = convert.float_to_float(a, source=F64, target=F16)
        via = convert.float_to_float(a, source=F64, target=F32)
        twice = convert.float_to_float(via, source=F32, target=F16)
        assert (once != twice).sum() > 50


@pytest.mark.parametrize(("source", "target"), WIDENINGS, ids=names)
def test_widening_every_pattern(source: Format, target: Format) -> None:
    width = source.exponent_bits + source.mantissa_bits + source.signed
    a = np.arange(1 << width).astype(source.dtype)
    got = ints(convert.float_to_float(a, source=source, target=target))
    assert got == [exact_conversion(p, source, target, "rn") for p in ints(a)]


def test_known_narrow_values() -> None:
    # PTX ISA 9.1, "Alternate Floating-Point Data Formats": largest numbers of the formats.
    largest = {E4M3: 448.0, E5M2: 57344.0, E2M1: 6.0, E2M3: 7.5, E3M2: 28.0, UE4M3: 448.0}
    for fmt, value in largest.items():
        top = bits(fmt, fmt.largest)
        assert ints(convert.float_to_float(top, source=fmt, target=F32)) == ints(f32(value))
    one = bits(UE8M0, 127, 128, 0xFF)
    assert ints(convert.float_to_float(one, source=UE8M0, target=BF16)) == [0x3F80, 0x4000, 0x7FFF]


class TestIntegers:
    @pytest.mark.parametrize("fmt", [F16, BF16, F32, F64], ids=names)
    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("signed", [False, True])
    @pytest.mark.parametrize("width", [8, 16, 32, 64])
    def test_int_to_float(self, width: int, signed: bool, mode: Any, fmt: Format) -> None:
        a = integers(np.random.default_rng(22), width, fmt)
        got = convert.int_to_float(a, width=width, signed=signed, fmt=fmt, rounding=mode)
        want = [
            model.round_fraction(Fraction(signed_value(v, width) if signed else v), fmt, mode)
            for v in ints(a)
        ]
        assert got.dtype == fmt.dtype
        assert [hex(v) for v, g, w in zip(ints(a), ints(got), want, strict=True) if g != w] == []

    def test_sat_clamps_to_one(self) -> None:
        a = np.array([0, 1, 2, 0xFFFFFFFF], np.uint32)
        got = convert.int_to_float(a, width=32, signed=True, fmt=F32, sat=True)
        assert ints(got) == ints(f32(0, 1, 1, 0))

    @pytest.mark.parametrize("fmt", [F16, BF16, F32, F64], ids=names)
    @pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
    @pytest.mark.parametrize("signed", [False, True])
    @pytest.mark.parametrize("width", [8, 16, 32, 64])
    def test_float_to_int(self, width: int, signed: bool, mode: Any, fmt: Format) -> None:
        rng = np.random.default_rng(23)
        a = np.concatenate([model.patterns(rng, fmt, LANES), near_integers(rng, fmt)])
        got = convert.float_to_int(a, fmt=fmt, width=width, signed=signed, rounding=mode)
        want = [exact_integer(p, fmt, width, signed, mode) for p in ints(a)]
        assert got.dtype == np.dtype(f"u{width // 8}")
        assert [hex(p) for p, g, w in zip(ints(a), ints(got), want, strict=True) if g != w] == []

    @pytest.mark.parametrize(
        ("mode", "want"), [("rni", [-2, 2, 2, 0]), ("rmi", [-3, 1, 2, -1]), ("rpi", [-2, 2, 3, 0])]
    )
    def test_ordinary_values_take_the_short_way(self, mode: Any, want: list[int]) -> None:
        a = f32(-2.5, 1.5, 2.5, -0.25, 2147483520.0)
        got = convert.float_to_int(a, fmt=F32, width=32, signed=True, rounding=mode)
        assert got.view(np.int32).tolist() == [*want, 2147483520]

    def test_ftz_before_rounding(self) -> None:
        got = convert.float_to_int(
            bits(F32, 1), fmt=F32, width=32, signed=True, rounding="rpi", ftz=True
        )
        assert ints(got) == [0]

    @pytest.mark.parametrize("fmt", [F16, F32, F64], ids=names)
    @pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
    def test_integral_floats(self, mode: Any, fmt: Format) -> None:
        rng = np.random.default_rng(24)
        a = np.concatenate([model.patterns(rng, fmt, LANES), near_integers(rng, fmt)])
        got = convert.round_to_integral(a, fmt=fmt, rounding=mode)
        for p, g in zip(ints(a), ints(got), strict=True):
            value = model.decode(p, fmt)
            if isinstance(value, str):
                assert g == (fmt.nan if value == "nan" else p)
            else:
                whole = Fraction(to_integer(value, mode))
                sign = model.is_negative(p, fmt)
                assert g == model.round_fraction(whole, fmt, "rn", negative_zero=sign)

    @pytest.mark.parametrize("to_signed", [False, True])
    @pytest.mark.parametrize("from_signed", [False, True])
    def test_int_to_int(self, from_signed: bool, to_signed: bool) -> None:
        rng = np.random.default_rng(25)
        for from_width in (8, 16, 32, 64):
            a = integers(rng, from_width, F32)
            for to_width in (8, 16, 32, 64):
                low = -(1 << (to_width - 1)) if to_signed else 0
                high = low + (1 << to_width) - 1
                for sat in (False, True):
                    got = convert.int_to_int(
                        a, from_width=from_width, from_signed=from_signed, to_width=to_width,
                        to_signed=to_signed, sat=sat,
                    )  # fmt: skip
                    values = [signed_value(v, from_width) if from_signed else v for v in ints(a)]
                    if sat:
                        values = [min(max(v, low), high) for v in values]
                    assert ints(got) == [v % (1 << to_width) for v in values]


def signed_value(pattern: int, width: int) -> int:
    return pattern - (pattern >> (width - 1) << width)


def integers(rng: np.random.Generator, width: int, fmt: Format) -> np.ndarray:
    """Integers of every length, and those at and beside the ties of ``fmt``."""
    top = (1 << width) - 1
    out = [0, 1, 2, top, top - 1, top >> 1, (top >> 1) + 1]
    for _ in range(600):
        length = int(rng.integers(1, width + 1))
        value = int(rng.integers(0, 1 << 62)) << 2 | int(rng.integers(4))
        value = (value >> (64 - length)) | 1 << (length - 1)
        beyond = length - (fmt.mantissa_bits + 1)
        if beyond > 0 and rng.integers(2):
            value = (value >> beyond << beyond) + (1 << (beyond - 1)) + int(rng.integers(-1, 2))
        out.append(value & top if rng.integers(2) else -value & top)
    return np.array(out, f"u{width // 8}")


def near_integers(rng: np.random.Generator, fmt: Format) -> np.ndarray:
    """Halves, and numbers at and beside powers of two, where the integer ranges end."""
    out = []
    for _ in range(600):
        power = Fraction(2) ** int(rng.integers(0, min(fmt.bias, 66)))
        half = Fraction(int(rng.integers(0, 600)), 2)
        value = (power, half, power - half)[int(rng.integers(3))]
        pattern = model.round_fraction(abs(value), fmt, "rn", saturate=True)
        pattern = max(pattern + int(rng.integers(-1, 2)), 0)
        out.append(pattern | (fmt.sign if rng.integers(2) else 0))
    return bits(fmt, *out)


def to_integer(value: Fraction, mode: Any) -> int:
    """round() of a Fraction takes halves to even."""
    rules: dict[str, Callable[[Fraction], int]] = {
        "rni": round,
        "rzi": math.trunc,
        "rmi": math.floor,
        "rpi": math.ceil,
    }
    return rules[mode](value)


def exact_integer(pattern: int, fmt: Format, width: int, signed: bool, mode: Any) -> int:
    low = -(1 << (width - 1)) if signed else 0
    high = low + (1 << width) - 1
    value = model.decode(pattern, fmt)
    if value == "nan":
        return 1 << (width - 1) if fmt is F64 or width == 64 else 0
    if isinstance(value, str):
        whole = low if value == "-inf" else high
    else:
        whole = min(max(to_integer(value, mode), low), high)
    return whole % (1 << width)


class TestTf32:
    def test_nearest_away_of_finite_values(self) -> None:
        rng = np.random.default_rng(26)
        a = np.concatenate(
            [model.patterns(rng, F32, LANES), boundary_values(rng, F32, TF32, LANES)]
        )
        a = a[(a & np.uint32(0x7F800000)) != 0x7F800000]
        got = ints(convert.float_to_float(a, source=F32, target=TF32, rounding="rna"))
        assert got == [exact_conversion(p, F32, TF32, "rna") << 13 for p in ints(a)]

    def test_specials_are_only_cut(self) -> None:
        # Measured on machines: a NaN with payload in the low 13 bits alone becomes infinity.
        a = bits(F32, 0x7F800000, 0xFF800001, 0x7F7FFFFF, 0x7FC00000)
        got = convert.float_to_float(a, source=F32, target=TF32, rounding="rna")
        assert ints(got) == [0x7F800000, 0xFF800000, 0x7F800000, 0x7FC00000]
        a = bits(F32, 0x7F800000, 0xFF7FFFFF)
        got = convert.float_to_float(a, source=F32, target=TF32, rounding="rna", satfinite=True)
        assert ints(got) == [0x7F7FE000, 0xFF7FE000]


class TestModifiers:
    def test_relu(self) -> None:
        a = f32(-1.0, -0.0, 2.0, math.nan, -math.inf)
        for fmt, two in ((F16, 0x4000), (BF16, 0x4000), (E4M3, 0x40)):
            got = convert.float_to_float(a, source=F32, target=fmt, relu=True)
            assert ints(got) == [0, 0, two, fmt.nan, 0]
        got = convert.float_to_float(a, source=F32, target=E2M1, relu=True)
        assert ints(got) == [0, 0, 0x4, 0x7, 0]  # NaN becomes the largest number

    def test_sat(self) -> None:
        a = f32(-1.0, -0.0, 0.5, 2.0, math.nan)
        got = convert.float_to_float(a, source=F32, target=F16, sat=True)
        assert ints(got) == [0, 0, 0x3800, 0x3C00, 0]
        got = convert.round_to_integral(a, fmt=F32, rounding="rpi", sat=True)
        assert ints(got) == ints(f32(0, 0, 1, 1, 0))

    def test_ftz(self) -> None:
        # A subnormal f32 operand, and an f64 whose f32 result is subnormal.
        a = bits(F32, 0x807FFFFF)
        assert ints(convert.float_to_float(a, source=F32, target=F64, ftz=True)) == [1 << 63]
        a = bits(F64, 0x3800000000000000)
        assert ints(convert.float_to_float(a, source=F64, target=F32)) == [0x00400000]
        assert ints(convert.float_to_float(a, source=F64, target=F32, ftz=True)) == [0]

    def test_stochastic_adds_below(self) -> None:
        # 1 + 3/4 ulp: 1/4 ulp is missing, so random bits of at least a quarter carry.
        a = bits(F32, 0x3F80_1800).repeat(4)
        random = np.array([0, 0x7FF, 0x800, 0x1FFF], np.uint32)
        got = convert.float_to_float(
            a, source=F32, target=F16, rounding="rs", random=random, random_bits=13
        )
        assert ints(got) == [0x3C00, 0x3C00, 0x3C01, 0x3C01]


class TestUe8m0:
    def test_rounding_up_and_down(self) -> None:
        a = f32(1.0, 1.5, 0.0, 2.0**-127, 2.0**-128, 3.0 * 2.0**-128, math.nan)
        down = convert.float_to_float(a, source=F32, target=UE8M0, rounding="rz")
        up = convert.float_to_float(a, source=F32, target=UE8M0, rounding="rp")
        assert ints(down) == [127, 127, 0, 0, 0, 0, 0xFF]
        assert ints(up) == [127, 128, 0, 0, 0, 1, 0xFF]

    def test_overflow(self) -> None:
        # There is no infinity: a magnitude beyond 2**127 carries into the NaN or stays below it.
        a = f32(math.inf, 3.0e38)
        got = convert.float_to_float(a, source=F32, target=UE8M0, rounding="rp", satfinite=True)
        assert ints(got) == [0xFE, 0xFE]
        got = convert.float_to_float(a, source=F32, target=UE8M0, rounding="rp")
        assert ints(got) == [0xFF, 0xFF]


class TestPacked:
    def test_first_source_lands_above(self) -> None:
        a, b = f32(1.0), f32(2.0)
        want = {
            F16: 0x3C00_4000, BF16: 0x3F80_4000, E4M3: 0x3840, E5M2: 0x3C40, E2M1: 0x24,
            E2M3: 0x0810, E3M2: 0x0C10,
        }  # fmt: skip
        widths = {F16: 4, BF16: 4, E2M1: 1}
        for fmt, packed in want.items():
            got = convert_packed.pack_pair(a, b, target=fmt)
            assert (got.dtype.itemsize, ints(got)) == (widths.get(fmt, 2), [packed])
        assert ints(convert_packed.pack_pair(a, b, target=UE8M0, rounding="rz")) == [0x7F80]

    @pytest.mark.parametrize("fmt", NARROW, ids=names)
    def test_there_and_back(self, fmt: Format) -> None:
        values = np.arange(1 << fmt.width, dtype=np.uint32)
        step = 8 if fmt.width >= 6 else 4
        pairs = ((values << np.uint32(step)) | values[::-1]).astype(f"u{step // 4}")
        wide = convert_packed.widen_pair(pairs, source=fmt)
        back = convert_packed.narrow_pair(wide, source=F16, target=fmt)
        nan_free = [model.decode(int(v), fmt) not in ("nan", "+inf", "-inf") for v in values]
        keep = np.array(nan_free) & np.array(nan_free[::-1])
        assert keep.sum() >= len(values) // 2
        assert ints(back[keep]) == ints(pairs[keep])

    def test_saturation_is_mandatory_below_16_bits(self) -> None:
        a, b = f32(1e9), f32(-1e9)
        assert ints(convert_packed.pack_pair(a, b, target=E5M2)) == [0x7BFB]
        assert ints(convert_packed.pack_pair(a, b, target=F16)) == [0x7C00_FC00]
        assert ints(convert_packed.pack_pair(a, b, target=F16, satfinite=True)) == [0x7BFF_FBFF]

    def test_stochastic_pair_shares_the_random_word(self) -> None:
        # bf16x2: bits 31..16 serve a, 15..0 serve b; both lie half a unit above 1.
        a = bits(F32, 0x3F80_8000)
        for word, want in ((0x8000_0000, 0x3F81_3F80), (0x0000_8000, 0x3F80_3F81)):
            random = np.array([word], np.uint32)
            got = convert_packed.pack_pair(a, a, target=BF16, rounding="rs", random=random)
            assert ints(got) == [want]

    def test_cvt_pack(self) -> None:
        a, b = np.array([0x7FFFFFFF], np.uint32), np.array([0xFFFFFFF0], np.uint32)
        c = np.array([0x12345678], np.uint32)
        pack = convert_packed.cvt_pack
        assert ints(pack(a, b, width=16, signed=True)) == [0x7FFF_FFF0]
        assert ints(pack(a, b, width=16, signed=False)) == [0xFFFF_0000]
        assert ints(pack(a, b, c, width=8, signed=True)) == [0x5678_7FF0]
        assert ints(pack(a, b, c, width=4, signed=True)) == [0x3456_7878]
        assert ints(pack(a, b, c, width=2, signed=False)) == [0x2345_678C]

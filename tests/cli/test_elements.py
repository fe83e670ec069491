"""Numbers to elements and back: exact patterns of every type that SPEC knows."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ptxsim.cli.elements import ELEMENT_TYPES, decode, encode, ordinals, patterns
from ptxsim.numerics.formats import BF16, F32


def bits(token: str, *values: float) -> list[int]:
    return [int(b) for b in patterns(encode(np.array(values, np.float64), ELEMENT_TYPES[token]))]


class TestTable:
    def test_tokens(self) -> None:
        integers = {f"{kind}{width}" for kind in "usb" for width in (8, 16, 32, 64)}
        assert set(ELEMENT_TYPES) == integers | {"f16", "bf16", "f32", "f64", "e4m3", "e5m2"}

    @pytest.mark.parametrize(("token", "name"), [("bf16", "uint16"), ("e4m3", "uint8")])
    def test_formats_without_a_numpy_type_are_patterns(self, token: str, name: str) -> None:
        assert ELEMENT_TYPES[token].dtype == np.dtype(name)
        assert not ELEMENT_TYPES[token].native

    def test_only_full_width_unsigned_types_are_computed_unsigned(self) -> None:
        unsigned = {t.token for t in ELEMENT_TYPES.values() if t.wide == np.uint64}
        assert unsigned == {"u64", "b64"}


class TestFloats:
    # The encodings follow from the field widths of PTX ISA 9.1, "Alternate Floating-Point Data
    # Formats": sign, exponent with its bias, mantissa.
    @pytest.mark.parametrize(
        ("token", "value", "expected"),
        [
            ("f16", 1.0, 0x3C00), ("f16", 65504.0, 0x7BFF), ("f16", 65520.0, 0x7C00),
            ("f16", 2.0**-24, 0x0001), ("f16", -0.0, 0x8000),
            ("bf16", 1.0, 0x3F80), ("bf16", -2.5, 0xC020), ("bf16", math.inf, 0x7F80),
            ("bf16", 3.4e38, 0x7F80), ("bf16", 2.0**-133, 0x0001), ("bf16", 2.0**-134, 0x0000),
            ("e4m3", 1.0, 0x38), ("e4m3", 448.0, 0x7E), ("e4m3", -1000.0, 0xFE),
            ("e4m3", math.inf, 0x7E), ("e4m3", 2.0**-9, 0x01), ("e4m3", math.nan, 0x7F),
            ("e5m2", 1.0, 0x3C), ("e5m2", 57344.0, 0x7B), ("e5m2", -1e9, 0xFB),
            ("e5m2", 2.0**-16, 0x01), ("e5m2", math.nan, 0x7F),
            ("f32", 1.0, 0x3F80_0000), ("f64", 1.0, 0x3FF0_0000_0000_0000),
        ],
    )  # fmt: skip
    def test_pattern(self, token: str, value: float, expected: int) -> None:
        assert bits(token, value) == [expected]

    @pytest.mark.parametrize("token", ["f16", "bf16", "f32", "f64", "e4m3", "e5m2"])
    def test_zeros(self, token: str) -> None:
        assert bits(token, 0.0, -0.0) == [0, 1 << 8 * ELEMENT_TYPES[token].size - 1]

    def test_ties_go_to_even(self) -> None:
        # bf16 has 7 mantissa bits: 1 + 2^-8 lies halfway to 1 + 2^-7, 1 + 3 * 2^-8 halfway above
        assert bits("bf16", 1 + 2.0**-8, 1 + 3 * 2.0**-8) == [0x3F80, 0x3F82]
        # e4m3 has 3: 17 lies halfway between 16 and 18, 19 halfway between 18 and 20
        assert bits("e4m3", 17.0, 19.0) == [0x58, 0x5A]

    def test_one_rounding_only(self) -> None:
        # Rounded to f32 first this would be the tie 1 + 2^-8 and end at 1.0.
        assert bits("bf16", 1 + 2.0**-8 + 2.0**-40) == [0x3F81]

    def test_carry_into_the_next_binade(self) -> None:
        assert bits("e5m2", 1.9375) == [0x40]  # 1.75 + 3/4 of a step: to 2.0
        assert bits("bf16", 2.0**-126 * (1 - 2.0**-9)) == [0x0080]  # the smallest normal number

    @pytest.mark.parametrize("token", ["f16", "bf16", "e4m3", "e5m2"])
    def test_every_pattern_comes_back(self, token: str) -> None:
        type_ = ELEMENT_TYPES[token]
        every = np.arange(1 << 8 * type_.size).astype(f"u{type_.size}").view(type_.dtype)
        numbers = decode(every, type_)
        usable = np.isfinite(numbers)
        assert np.array_equal(patterns(encode(numbers, type_))[usable], patterns(every)[usable])

    def test_bf16_agrees_with_the_upper_half_of_f32(self) -> None:
        every = np.arange(1 << 16, dtype=np.uint16)
        with np.errstate(invalid="ignore"):  # signalling NaN
            as_f32 = (every.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        assert np.array_equal(decode(every, ELEMENT_TYPES["bf16"]), as_f32, equal_nan=True)

    def test_specials_of_the_eight_bit_formats(self) -> None:
        # e4m3 has one NaN of each sign and no infinity; e5m2 has both (same section of the ISA)
        e4m3 = decode(np.array([0x7E, 0x7F, 0xFF], np.uint8), ELEMENT_TYPES["e4m3"])
        assert e4m3[0] == 448 and np.isnan(e4m3[1:]).all()
        e5m2 = decode(np.array([0x7B, 0x7C, 0xFC, 0x7D], np.uint8), ELEMENT_TYPES["e5m2"])
        assert list(e5m2[:3]) == [57344, math.inf, -math.inf] and np.isnan(e5m2[3])


class TestIntegers:
    def test_integers_keep_their_low_bits(self) -> None:
        values = np.array([-1, 256, 511], np.int64)
        assert list(encode(values, ELEMENT_TYPES["u8"])) == [255, 0, 255]
        assert list(encode(values, ELEMENT_TYPES["s8"])) == [-1, 0, -1]

    def test_fractions_are_dropped(self) -> None:
        values = np.array([2.9, -2.9], np.float64)
        assert list(encode(values, ELEMENT_TYPES["s32"])) == [2, -2]

    def test_the_upper_half_of_u64(self) -> None:
        values = np.array([2.0**63, 2.0**64 - 2048, 5.0], np.float64)
        expected = [1 << 63, (1 << 64) - 2048, 5]
        assert [int(v) for v in encode(values, ELEMENT_TYPES["u64"])] == expected

    @pytest.mark.parametrize(
        ("token", "value", "reason"),
        [
            ("u32", math.nan, "inf and nan are no integers"),
            ("u32", math.inf, "inf and nan are no integers"),
            ("u64", 2.0**64, "beyond 64-bit integers"),
            ("s64", -(2.0**63) - 2048, "beyond 64-bit integers"),
            ("b32", 1.0, "b32 holds bits"),
        ],
    )
    def test_refusals(self, token: str, value: float, reason: str) -> None:
        with pytest.raises(ValueError, match=reason):
            encode(np.array([value]), ELEMENT_TYPES[token])


class TestOrdinals:
    def test_neighbours_differ_by_one(self) -> None:
        # +-0 are one place; 0x80000001 is the negative number next to zero
        assert ordinals(np.array([0, 0x8000_0000, 1, 0x8000_0001], np.uint32), F32) == [0, 0, 1, -1]

    def test_distance_over_zero(self) -> None:
        first, second = ordinals(np.array([0x0001, 0x8001], np.uint16), BF16)
        assert first - second == 2

"""SPEC expressions: precedence, 64-bit arithmetic, refusals, and bounds on what is not trusted."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from ptxsim import UsageError
from ptxsim.cli.elements import ELEMENT_TYPES
from ptxsim.cli.evaluate import evaluate
from ptxsim.cli.expression import Binary, Number, Unary, parse_expression


def values(text: str, token: str = "s32", count: int = 4, folder: Path = Path()) -> list[float]:
    out = evaluate(parse_expression(text), ELEMENT_TYPES[token], count, folder)
    assert out.dtype == ELEMENT_TYPES[token].dtype
    assert out.shape == (count,)
    result: list[float] = out.tolist()
    return result


class TestWords:
    # iota is 0 1 2 3; all results worked by hand
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("zeros", [0, 0, 0, 0]),
            ("ones", [1, 1, 1, 1]),
            ("iota", [0, 1, 2, 3]),
            ("7", [7, 7, 7, 7]),
            ("0x10", [16, 16, 16, 16]),
            ("full(-3)", [-3, -3, -3, -3]),
            ("np.arange(4) + 1", [1, 2, 3, 4]),
            ("where(iota < 2, iota, -1)", [0, 1, -1, -1]),
            ("abs(iota - 2)", [2, 1, 0, 1]),
            ("minimum(iota, 2)", [0, 1, 2, 2]),
            ("maximum(iota, 2)", [2, 2, 2, 3]),
        ],
    )
    def test_value(self, text: str, expected: list[int]) -> None:
        assert values(text) == expected


class TestOperators:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("iota % 7 - 3", [-3, -2, -1, 0]),
            ("(iota * 3) ^ 1", [1, 2, 7, 8]),
            ("1 + iota * 2", [1, 3, 5, 7]),
            ("iota - 1 - 1", [-2, -1, 0, 1]),
            ("1 | 2 ^ 3 & 1", [3, 3, 3, 3]),
            ("1 << 1 + 1", [4, 4, 4, 4]),
            ("iota == 2", [0, 0, 1, 0]),
            ("iota & 1 == 1", [0, 1, 0, 1]),  # as in Python, & binds tighter than ==
            ("-iota", [0, -1, -2, -3]),
            ("~iota", [-1, -2, -3, -4]),
            ("-8 >> 1", [-4, -4, -4, -4]),
            ("(iota - 3) % 2", [1, 0, 1, 0]),  # the sign of the divisor
        ],
    )
    def test_integers(self, text: str, expected: list[int]) -> None:
        assert values(text) == expected

    def test_tree_of_a_chain_leans_left(self) -> None:
        one, two, three = Number(1), Number(2), Number(3)
        assert parse_expression("1 - 2 - 3") == Binary("-", Binary("-", one, two), three)
        assert parse_expression("1 - (2 - 3)") == Binary("-", one, Binary("-", two, three))
        assert parse_expression("-1 * 2") == Binary("*", Unary("-", one), two)

    def test_unsigned_sixty_four_bits(self) -> None:
        assert values("0xffffffffffffffff >> 60", "u64", 1) == [15]
        assert values("0 - 1", "u64", 1) == [(1 << 64) - 1]
        assert values("0xffffffffffffffff % 10", "u64", 1) == [5]  # 18446744073709551615

    def test_results_wrap_to_the_type(self) -> None:
        assert values("iota * 100", "u8") == [0, 100, 200, 44]
        assert values("iota * 100", "s8") == [0, 100, -56, 44]
        assert values("0x7fffffffffffffff + 1", "s64", 1) == [-(1 << 63)]

    @pytest.mark.parametrize(
        ("text", "token", "expected"),
        [("1 << 63", "u64", 1 << 63), ("1 << 64", "u64", 0), ("1 << 200", "s32", 0),
         ("-1 >> 64", "s32", -1), ("0xffffffffffffffff >> 64", "u64", 0)],
    )  # fmt: skip
    def test_shifts_beyond_the_width(self, text: str, token: str, expected: int) -> None:
        assert values(text, token, 1) == [expected]

    def test_floats(self) -> None:
        assert values("iota / 4", "f32") == [0, 0.25, 0.5, 0.75]
        assert values("iota * 0.5 - 1", "f64") == [-1, -0.5, 0, 0.5]
        assert values("1 / zeros", "f32", 1) == [math.inf]
        assert values("where(iota % 2 == 0, np.nan, iota)", "f32")[1::2] == [1, 3]
        assert math.isnan(values("where(iota % 2 == 0, np.nan, iota)", "f32")[0])

    def test_narrow_floats_are_patterns(self) -> None:
        assert values("iota % 13 - 6", "f16") == [-6, -5, -4, -3]
        assert values("iota - 1", "bf16") == [0xBF80, 0x0000, 0x3F80, 0x4000]
        assert values("iota * 2", "e4m3") == [0x00, 0x40, 0x48, 0x4C]


class TestRandom:
    def test_seed_settles_the_numbers(self) -> None:
        assert values("rand(1)", "f32") == values("rand(1)", "f32")
        assert values("rand(1)", "f32") != values("rand(2)", "f32")
        assert values("randn(7)", "f64") == values("randn(7)", "f64")

    @pytest.mark.parametrize("token", ["f32", "f16", "bf16", "e4m3"])
    def test_rand_stays_below_one(self, token: str) -> None:
        from ptxsim.cli.elements import decode

        type_ = ELEMENT_TYPES[token]
        numbers = decode(evaluate(parse_expression("rand(3)"), type_, 50_000, Path()), type_)
        assert numbers.min() >= 0
        assert numbers.max() < 1

    def test_randint_bounds(self) -> None:
        drawn = values("randint(-2, 3, 5)", "s32", 1000)
        assert set(drawn) == {-2, -1, 0, 1, 2}

    def test_pieces_do_not_change_the_stream(self, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = values("rand(1) + randint(0, 9, 2) + iota", "f64", 100)
        monkeypatch.setattr("ptxsim.cli.evaluate._PIECE", 16)
        assert values("rand(1) + randint(0, 9, 2) + iota", "f64", 100) == whole


class TestFiles:
    def test_bits_of_a_file(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.array([1.5, -0.0], np.float32))
        assert values("@x.npy", "f32", 2, tmp_path) == [1.5, 0.0]
        assert values("@x.npy", "b32", 2, tmp_path) == [0x3FC0_0000, 0x8000_0000]

    def test_arithmetic_on_a_file(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.array([1, 2], np.int64))
        assert values("@x.npy * 10 + iota", "u32", 2, tmp_path) == [10, 21]

    def test_shape_does_not_matter(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.arange(6, dtype=np.uint32).reshape(2, 3))
        assert values("@x.npy", "u32", 6, tmp_path) == [0, 1, 2, 3, 4, 5]

    @pytest.mark.parametrize(
        ("array", "reason"),
        [
            (np.zeros(2, np.float64), "holds float64; f32 needs float32"),
            (np.zeros(3, np.float32), "has 3 elements, 2 are stated"),
            (np.zeros(2, [("a", "f4")]), "not plain numbers"),
        ],
    )
    def test_wrong_contents(self, tmp_path: Path, array: np.ndarray, reason: str) -> None:  # type: ignore[type-arg]
        np.save(tmp_path / "x.npy", array)
        with pytest.raises(UsageError, match=reason):
            values("@x.npy", "f32", 2, tmp_path)

    def test_pickled_objects_are_refused(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.array([{}], object), allow_pickle=True)
        with pytest.raises(UsageError, match=r"cannot read .*x\.npy"):
            values("@x.npy", "f32", 1, tmp_path)

    @pytest.mark.parametrize(
        "data",
        [b"", b"text", b"\x93NUMPY\x01\x00\x76\x00", b"PK\x03\x04zip",
         b"\x93NUMPY\x01\x00\x08\x00{'a': [\n"],
    )  # fmt: skip
    def test_what_is_no_npy_file(self, tmp_path: Path, data: bytes) -> None:
        (tmp_path / "x.npy").write_bytes(data)
        with pytest.raises(UsageError, match=r"cannot read .*x\.npy"):
            values("@x.npy", "f32", 1, tmp_path)

    def test_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"cannot read .*nothing\.npy: No such file"):
            values("@nothing.npy", "f32", 1, tmp_path)


class TestRefusals:
    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("iot", "unknown word 'iot'"),
            ("iota +", "expected a value and found the end"),
            ("(iota", r"expected '\)' and found the end"),
            ("iota iota", "expected an operator and found 'iota'"),
            ("1; 2", "unexpected character ';'"),
            ("__import__('os')", "unknown word|unexpected character"),
            ("iota.__class__", "unknown word 'iota.__class__'"),
            ("rand()", "expected a value"),
            ("rand(1, 2)", r"rand\(\) takes 1 arguments, 2 given"),
            ("rand(iota)", r"rand\(\) takes integers that are written out"),
            ("rand(-1)", "a seed is a number from 0"),
            ("randint(5, 5, 1)", "needs LO < HI"),
            ("arange(3)", "must give 4 elements"),
            ("undef + 1", "undef stands alone"),
            ("iota / 0", "divides an integer by zero"),
            ("iota % (iota - 1)", "divides an integer by zero"),
            ("iota << -1", "negative number of bits"),
            ("0.5 & 1", "'&' needs integers"),
            ("~0.5", "'~' needs integers"),
            ("nan", "nan is no value of s32"),
            ("1 << 0.5", "'<<' needs integers"),
            ("0x10000000000000000", "beyond 64 bits"),
        ],
    )
    def test_reason(self, text: str, reason: str) -> None:
        with pytest.raises(UsageError, match=reason):
            values(text)

    def test_the_column_is_named(self) -> None:
        with pytest.raises(UsageError, match=r"column 8 of 'iota \+ iot'"):
            parse_expression("iota + iot")


class TestBounds:
    @pytest.mark.parametrize(
        "text",
        [
            "(" * 3000 + "1" + ")" * 3000,
            "-" * 3000 + "1",
            "+".join(["1"] * 2000),
            "abs(" * 900 + "1" + ")" * 900,
            "1" * 5000,
            "9" * 4000,
        ],
    )
    def test_too_much_is_refused(self, text: str) -> None:
        with pytest.raises(UsageError):
            values(text)

    @pytest.mark.parametrize("token", ["s32", "u64", "f32", "bf16"])
    @pytest.mark.parametrize("text", ["0x" + "f" * 4000, "9" * 299, "1" + "0" * 299, "1e999"])
    def test_long_numbers_give_a_value_or_a_message(self, text: str, token: str) -> None:
        try:
            values(text, token)
        except UsageError as error:
            assert str(error)

    def test_much_that_is_still_fine(self) -> None:
        assert values("(" * 40 + "iota" + ")" * 40) == [0, 1, 2, 3]
        assert values("+".join(["1"] * 200)) == [200] * 4

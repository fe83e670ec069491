"""Approximate instructions stay within the bounds of the ISA, and special operands are exact."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import approximations
import numpy as np
import pytest
import vector_kernels
from approximations import RANGES, SPECIALS, Range, Special
from form_lines import lines
from scalar_model import LAYOUTS
from vector_kernels import Vector

_PAGE = Path(__file__).parents[2] / "docs" / "approximations.md"
_CLASSES = {"f16": "h", "bf16": "h", "f32": "r", "f64": "d"}


def _names(r: Range) -> str:
    return f"{r.instruction}-{r.high:g}"


@pytest.mark.parametrize("r", RANGES, ids=_names)
def test_bounds(r: Range) -> None:
    error, _, at = approximations.worst(r, 2_000)
    assert error <= approximations.allowed(r), at


@pytest.mark.slow
@pytest.mark.parametrize("r", RANGES, ids=_names)
def test_bounds_over_a_dense_sweep(r: Range) -> None:
    error, _, at = approximations.worst(r, 1 << 20)
    assert error <= approximations.allowed(r), at


@pytest.mark.slow
def test_the_page_is_fresh() -> None:
    assert approximations.page() == _PAGE.read_text("utf-8")


def test_the_page_has_every_range() -> None:
    rows = [line.split("|") for line in _PAGE.read_text("utf-8").splitlines() if "`" in line]
    found = [cells[1].strip(" `") for cells in rows if len(cells) > 5]
    assert found == [r.instruction for r in RANGES]


def test_an_error_beyond_a_bound_is_noticed() -> None:
    """The check can fail: bounds far below half a unit."""
    for r in (RANGES[0], RANGES[6]):
        tight = replace(r, limit=2.0**-40)
        error, _, _ = approximations.worst(tight, 500)
        assert error > approximations.allowed(tight)


def _operands(type_: str) -> list[int]:
    """-inf, -normal, -subnormal, -0 and their mirror images, NaN; -1.5 for the normal number."""
    layout = LAYOUTS[type_]
    assert layout.infinity is not None and layout.nan is not None
    one_and_half = layout.bias << layout.mantissa_bits | 1 << (layout.mantissa_bits - 1)
    s, subnormal = layout.sign, (1 << layout.mantissa_bits) - 1
    return [s | layout.infinity, s | one_and_half, s | subnormal, s, 0, subnormal, layout.infinity,
            layout.infinity + 1]  # fmt: skip


def _result(word: str, operand: int, type_: str) -> int:
    layout = LAYOUTS[type_]
    if word == "id":
        return operand
    if word == "nan":
        # of the gross forms the manual gives the pattern
        return layout.nan or 0
    sign = layout.sign if word[0] == "-" else 0
    one = layout.bias << layout.mantissa_bits
    return sign | {"0": 0, "1": one, "inf": layout.infinity or 0}[word[1:]]


@pytest.mark.parametrize("special", SPECIALS, ids=lambda s: s.instruction)
def test_special_operands(special: Special) -> None:
    type_ = special.instruction.split(".")[-1]
    operands = _operands(type_)
    letter = _CLASSES[type_]
    column = np.array(operands, f"u{approximations._FORMATS[type_] // 8}")
    text = f"{special.instruction} %0, %1;"
    ((got,),) = vector_kernels.run([Vector(text, letter * 2, [column])])
    for word, operand, result in zip(special.results, operands, got.tolist(), strict=True):
        if not word:
            continue
        want = _result(word, operand, type_)
        if word == "nan" and special.instruction.endswith("ftz.f64"):
            want = 0x7FFFFFFF00000000
        assert result == want, f"{special.instruction} {operand:x}: {result:x}, not {want:x}"


def test_packed_halves_are_two_of_them() -> None:
    """The x2 forms give both elements what the scalar forms give them."""
    patterns = np.arange(1 << 16, dtype=np.uint16)
    pairs = patterns.astype(np.uint32) << np.uint32(16) | patterns[::-1]
    for line in ("ex2.approx.f16", "ex2.approx.ftz.bf16", "tanh.approx.f16", "tanh.approx.bf16"):
        (one,), (two,) = vector_kernels.run(
            [
                Vector(f"{line} %0, %1;", "hh", [patterns]),
                Vector(f"{line}x2 %0, %1;", "rr", [pairs]),
            ]
        )
        joined = one.astype(np.uint32) << np.uint32(16) | one[::-1]
        assert (two == joined).all()


def test_results_are_the_same_every_time() -> None:
    r = RANGES[0]
    column = approximations.inputs(r, 500)
    line = Vector(f"{r.instruction} %0, %1;", "rr", [column])
    first, second = vector_kernels.run([line, line])
    assert (first[0] == second[0]).all()


class TestDivision:
    """div.approx of a divisor beyond 2^126: the reciprocal vanishes (ISA, div)."""

    ROWS = [
        # 1 / 2^127, -1 / 2^127, inf / 2^127, 2^126 itself, NaN
        (0x3F800000, 0x7F000000, 0),
        (0xBF800000, 0x7F000000, 0x80000000),
        (0x7F800000, 0x7F000000, 0x7FFFFFFF),
        (0x7E800000, 0x7E800000, 0x3F800000),
        (0x7FC00000, 0x3F800000, 0x7FFFFFFF),
    ]

    def test_rows(self) -> None:
        a, b, want = (np.array(c, np.uint32) for c in zip(*self.ROWS, strict=True))
        ((got,),) = vector_kernels.run([Vector("div.approx.f32 %0, %1, %2;", "rrr", [a, b])])
        assert got.tolist() == want.tolist()


class TestTurns:
    """sin and cos of turns: no text that we know gives a bound, so ours is held."""

    @pytest.mark.parametrize("r", [r for r in RANGES if ".2pi" in r.instruction], ids=_names)
    def test_half_a_unit_below_one(self, r: Range) -> None:
        # results reach 1, and the numbers below it are 2^-24 apart
        error, _, at = approximations.worst(r, 2_000)
        assert error <= 2.0**-25 + 2.0**-50, at

    def test_a_quarter_at_a_time(self) -> None:
        """sin(2 pi n/8) and cos(2 pi n/8): 0, sqrt(1/2) = 3f3504f3, 1; zeros as documented."""
        eighths = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, -1, -4, 8 * 2**20 + 2], np.float32)
        column = (eighths / np.float32(8)).view(np.uint32)
        lines = [Vector(f"{f}.approx.ftz.2pi.f32 %0, %1;", "rr", [column]) for f in ("sin", "cos")]
        (sine,), (cosine,) = vector_kernels.run(lines)
        zero, root, one, minus = 0, 0x3F3504F3, 0x3F800000, 0x80000000
        assert sine.tolist() == [
            zero, root, one, root, zero, minus | root, minus | one, minus | root, zero,
            minus | root, minus | zero, one,
        ]  # fmt: skip
        assert cosine.tolist() == [
            one, root, zero, minus | root, minus | one, minus | root, zero, root, one,
            root, minus | one, zero,
        ]  # fmt: skip


def test_every_approximate_form_is_measured() -> None:
    """No form with .approx or .full that is executed is left out of the table."""
    known = {r.instruction for r in RANGES}
    for name in ("rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh", "div"):
        for line in lines(name):
            opcode = line.text.split(" ")[0]
            if ".approx" in opcode or ".full" in opcode:
                assert opcode.removesuffix("x2") in known, opcode

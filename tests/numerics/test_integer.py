"""Integer arithmetic against a model in plain numbers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from integer_model import agree, clamp, mask, operands, part, signed, value

from ptxsim.numerics import integer, select

WIDTHS = (16, 32, 64)
SIGNS = (False, True)
ORDERS: dict[integer.IntegerComparison, tuple[int, ...]] = {
    "eq": (0,),
    "ne": (-1, 1),
    "lt": (-1,),
    "le": (-1, 0),
    "gt": (1,),
    "ge": (0, 1),
    "lo": (-1,),
    "ls": (-1, 0),
    "hi": (1,),
    "hs": (0, 1),
}
"""What a comparison of three outcomes must be for each operator."""


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    """Wrapping and division by zero are ordinary: NumPy must not complain."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_model_comparison_can_fail() -> None:
    a, b = operands(32, 32)
    with pytest.raises(AssertionError):
        agree(integer.add(a, b, width=32), lambda x, y: x + y + 1, a, b, width=32)
    with pytest.raises(AssertionError):
        agree(a.astype(np.uint64), lambda x: x, a, width=32)


@pytest.mark.parametrize("is_signed", SIGNS)
@pytest.mark.parametrize("width", (8, 16, 32, 64))
class TestTyped:
    """Every width and signedness against plain numbers."""

    def test_saturating(self, width: int, is_signed: bool) -> None:
        a, b = operands(width, width)

        def typed(x: int) -> int:
            return value(x, width, is_signed)

        got = integer.add_sat(a, b, width=width, signed=is_signed)
        agree(got, lambda x, y: clamp(typed(x) + typed(y), width, is_signed), a, b, width=width)
        got = integer.sub_sat(a, b, width=width, signed=is_signed)
        agree(got, lambda x, y: clamp(typed(x) - typed(y), width, is_signed), a, b, width=width)

    def test_mul_hi(self, width: int, is_signed: bool) -> None:
        a, b = operands(width, width)

        def model(x: int, y: int) -> int:
            return value(x, width, is_signed) * value(y, width, is_signed) >> width

        got = integer.mul_hi(a, b, width=width, signed=is_signed)
        agree(got, model, a, b, width=width)

    def test_div_and_rem(self, width: int, is_signed: bool) -> None:
        a, b = operands(width, width)

        def quotient(x: int, y: int) -> int:
            if y == 0:
                return -1
            x, y = value(x, width, is_signed), value(y, width, is_signed)
            return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)

        def remainder(x: int, y: int) -> int:
            return x if y == 0 else x - quotient(x, y) * y

        got = integer.div(a, b, width=width, signed=is_signed)
        agree(got, quotient, a, b, width=width)
        got = integer.rem(a, b, width=width, signed=is_signed)
        agree(got, remainder, a, b, width=width)

    def test_sad_min_max(self, width: int, is_signed: bool) -> None:
        a, b, c = operands(width, width, width)

        def typed(x: int) -> int:
            return value(x, width, is_signed)

        got = integer.sad(a, b, c, width=width, signed=is_signed)
        agree(got, lambda x, y, z: z + abs(typed(x) - typed(y)), a, b, c, width=width)
        got = integer.min_(a, b, width=width, signed=is_signed)
        agree(got, lambda x, y: min(typed(x), typed(y)), a, b, width=width)
        got = integer.max_(a, b, width=width, signed=is_signed)
        agree(got, lambda x, y: max(typed(x), typed(y)), a, b, width=width)

    def test_compare(self, width: int, is_signed: bool) -> None:
        a, b = operands(width, width)
        for op, order in ORDERS.items():
            reading = is_signed and op not in ("lo", "ls", "hi", "hs")

            def model(x: int, y: int, reading: bool = reading, order: Any = order) -> int:
                p, q = value(x, width, reading), value(y, width, reading)
                return ((p > q) - (p < q)) in order

            got = integer.compare(op, a, b, width=width, signed=is_signed)
            agree(got, model, a, b, width=1)


@pytest.mark.parametrize("width", WIDTHS)
class TestWidths:
    """What does not depend on signedness."""

    def test_carries(self, width: int) -> None:
        a, b, carry = operands(width, width, 1)
        total, carry_out = integer.add_carry(a, b, carry, width=width)
        agree(total, lambda x, y, z: x + y + z, a, b, carry, width=width)
        agree(carry_out, lambda x, y, z: (x + y + z) >> width, a, b, carry, width=1)
        difference, borrow_out = integer.sub_borrow(a, b, carry, width=width)
        agree(difference, lambda x, y, z: x - y - z, a, b, carry, width=width)
        agree(borrow_out, lambda x, y, z: x - y - z < 0, a, b, carry, width=1)

    def test_without_carry_in(self, width: int) -> None:
        a, b = operands(width, width)
        agree(integer.add_carry(a, b, width=width)[1], lambda x, y: x + y >> width, a, b, width=1)
        agree(integer.sub_borrow(a, b, width=width)[1], lambda x, y: x < y, a, b, width=1)

    def test_mad_carries(self, width: int) -> None:
        a, b, c, carry = operands(width, width, width, 1)

        def high(x: int, y: int) -> int:
            return (signed(x, width) * signed(y, width) >> width) & mask(width)

        _, out = integer.mad_lo_carry(a, b, c, carry, width=width)
        agree(
            out,
            lambda x, y, z, w: (x * y & mask(width)) + z + w >> width,
            *(a, b, c, carry),
            width=1,
        )
        total, out = integer.mad_hi_carry(a, b, c, carry, width=width, signed=True)
        agree(total, lambda x, y, z, w: high(x, y) + z + w, a, b, c, carry, width=width)
        agree(out, lambda x, y, z, w: high(x, y) + z + w >> width, a, b, c, carry, width=1)

    def test_relu(self, width: int) -> None:
        (a,) = operands(width)
        agree(integer.relu(a, width=width), lambda x: max(signed(x, width), 0), a, width=width)


@pytest.mark.parametrize("b_signed", SIGNS)
@pytest.mark.parametrize("a_signed", SIGNS)
def test_dot_products(a_signed: bool, b_signed: bool) -> None:
    a, b, c = operands(32, 32, 32)

    def four(x: int, y: int, z: int) -> int:
        return z + sum(part(x, i, 8, a_signed) * part(y, i, 8, b_signed) for i in range(4))

    agree(integer.dp4a(a, b, c, a_signed=a_signed, b_signed=b_signed), four, a, b, c, width=32)
    for high in (False, True):

        def two(x: int, y: int, z: int, first: int = 2 * high) -> int:
            products = (
                part(x, i, 16, a_signed) * part(y, first + i, 8, b_signed) for i in range(2)
            )
            return z + sum(products)

        got = integer.dp2a(a, b, c, a_signed=a_signed, b_signed=b_signed, high=high)
        agree(got, two, a, b, c, width=32)


def test_mad_hi_sat() -> None:
    a, b, c = operands(32, 32, 32)

    def model(x: int, y: int, z: int) -> int:
        return clamp((signed(x, 32) * signed(y, 32) >> 32) + signed(z, 32), 32, True)

    agree(integer.mad_hi_sat(a, b, c), model, a, b, c, width=32)


def test_worked_values() -> None:
    def words(*values: int) -> Any:
        return np.array(values, np.uint32)

    # ISA, mul24: bits 47..16 of the 48-bit product; 0x800000 is -2**23 when signed.
    least = words(0x800000)
    assert integer.mul24(least, least, signed=True, high=True).tolist() == [1 << 30]
    assert integer.mul24(least, words(1), signed=True, high=False).tolist() == [0xFF800000]
    # ISA, sub.cc: the flag is a borrow, set when a < b.
    assert integer.sub_borrow(words(1), words(2), width=32)[1].tolist() == [True]
    # Most-negative by -1 wraps, and its magnitude is its own pattern.
    least, minus_one = words(0x80000000), words(0xFFFFFFFF)
    assert integer.div(least, minus_one, width=32, signed=True).tolist() == [0x80000000]
    assert integer.rem(least, minus_one, width=32, signed=True).tolist() == [0]
    assert integer.abs_(least, width=32).tolist() == [0x80000000]


def test_uniform_operands_broadcast() -> None:
    lanes, uniform = np.arange(4, dtype=np.uint32), np.array([3], np.uint32)
    assert integer.mul_hi(lanes, uniform, width=32, signed=True).shape == (4,)
    assert integer.div(uniform, lanes, width=32, signed=True).tolist() == [0xFFFFFFFF, 3, 1, 1]
    assert integer.add_sat(uniform, uniform, width=32, signed=True).shape == (1,)
    assert select(np.array([True]), lanes, uniform).tolist() == [0, 1, 2, 3]


def test_arguments_are_not_changed() -> None:
    a, b, c = operands(32, 32, 32)
    copies = [a.copy(), b.copy(), c.copy()]
    integer.div(a, b, width=32, signed=True)
    integer.add_sat(a, b, width=32, signed=True)
    integer.dp4a(a, b, c, a_signed=True, b_signed=True)
    for array, copy in zip((a, b, c), copies, strict=True):
        np.testing.assert_array_equal(array, copy)

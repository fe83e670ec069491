"""Video instructions: a model in plain numbers, and worked values."""

from __future__ import annotations

import itertools
import math
import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import pytest
from integer_model import agree, clamp, mask, operands, part, signed, value

from ptxsim.numerics import video

SIGNS = (False, True)
TRIPLES = list(itertools.product(SIGNS, SIGNS, SIGNS))
Part = video.Part
PARTS: tuple[Part | None, ...] = (None, "b0", "b3", "h0", "h1")
PARTS_LINED_UP = list(zip(PARTS, (*PARTS[1:], None), strict=True))


def average(x: int, y: int) -> int:
    """Half the sum, halves away from zero."""
    return int(math.copysign((abs(x + y) + 1) // 2, x + y))


OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "absdiff": lambda x, y: abs(x - y),
    "min": min,
    "max": max,
    "lt": operator.lt,
    "ge": operator.ge,
    "ne": operator.ne,
}


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def words(*values: int) -> Any:
    return np.array(values, np.uint32)


def width_of(part_name: Part | None) -> int:
    return 32 if part_name is None else {"b": 8, "h": 16}[part_name[0]]


def read(word: int, part_name: Part | None, is_signed: bool) -> int:
    index = int(part_name[1]) if part_name else 0
    return part(word, index, width_of(part_name), is_signed)


def insert(word: int, bits: int, part_name: Part | None) -> int:
    width = width_of(part_name)
    shift = int(part_name[1]) * width if part_name else 0
    return word & ~(mask(width) << shift) | (bits & mask(width)) << shift


@pytest.mark.parametrize("types", TRIPLES)
@pytest.mark.parametrize("op", OPERATIONS)
def test_scalar(op: str, types: tuple[bool, bool, bool]) -> None:
    a, b, c = operands(32, 32, 32, count=120)
    for (a_part, b_part), d_part, sat in itertools.product(PARTS_LINED_UP, PARTS, SIGNS):

        def result(
            x: int,
            y: int,
            z: int,
            a_part: Part | None = a_part,
            b_part: Part | None = b_part,
            d_part: Part | None = d_part,
            sat: bool = sat,
        ) -> int:
            exact = OPERATIONS[op](read(x, a_part, types[1]), read(y, b_part, types[2]))
            clamped = clamp(exact, width_of(d_part), types[0]) if sat else exact
            return insert(z, clamped, d_part)

        got = video.scalar(
            *(op, a, b, c), signed=types, a_part=a_part, b_part=b_part, d_part=d_part, sat=sat
        )
        agree(got, result, a, b, c, width=32)


@pytest.mark.parametrize("is_signed", SIGNS)
@pytest.mark.parametrize("secondary", ("add", "min", "max"))
def test_secondary_operation(secondary: Literal["add", "min", "max"], is_signed: bool) -> None:
    a, b, c = operands(32, 32, 32)

    def model(x: int, y: int, z: int) -> int:
        first = value((signed(x, 32) + y) & mask(32), 32, is_signed)
        return OPERATIONS[secondary](first, value(z, 32, is_signed))

    types = (is_signed, True, False)
    agree(video.scalar("add", a, b, c, signed=types, secondary=secondary), model, a, b, c, width=32)


@pytest.mark.parametrize("types", [(d, a, False) for d in SIGNS for a in SIGNS])
@pytest.mark.parametrize("sat", SIGNS)
@pytest.mark.parametrize("mode", ("clamp", "wrap"))
@pytest.mark.parametrize("op", ("shl", "shr"))
def test_scalar_shifts(
    op: str, mode: Literal["clamp", "wrap"], sat: bool, types: tuple[bool, bool, bool]
) -> None:
    a, count = operands(32, 32)
    a[:4], count[:4] = [1, 1, mask(32), 0x80000000], [32, 31, 32, 32]
    count[4::2] %= 35

    def model(x: int, n: int) -> int:
        n = n % 32 if mode == "wrap" else min(n, 32)
        x = value(x, 32, types[1])
        exact = x << n if op == "shl" else x >> n
        return clamp(exact, 32, types[0]) if sat else exact

    got = video.scalar(op, a, count, signed=types, mode=mode, sat=sat)
    agree(got, model, a, count, width=32)


VMAD_CHOICES: list[dict[str, Any]] = [
    dict(zip(("negate_product", "negate_c", "plus_one", "shift", "sat"), choice, strict=True))
    for choice in itertools.product(SIGNS, SIGNS, SIGNS, (0, 7, 15), SIGNS)
    if not (choice[2] and (choice[0] or choice[1]))  # .po forbids negation.
]


@pytest.mark.parametrize("a_part", PARTS)
@pytest.mark.parametrize("a_signed", SIGNS)
@pytest.mark.parametrize("b_signed", SIGNS)
def test_vmad(a_part: Part | None, a_signed: bool, b_signed: bool) -> None:
    a, b, c = operands(32, 32, 32, count=120)
    for choice in VMAD_CHOICES:

        def model(x: int, y: int, z: int, choice: dict[str, Any] = choice) -> int:
            is_signed = a_signed or b_signed or choice["negate_product"] or choice["negate_c"]
            total = read(x, a_part, a_signed) * value(y, 32, b_signed)
            if choice["negate_product"]:
                total = -total
            addend = value(z, 32, is_signed)
            total += (-addend if choice["negate_c"] else addend) + choice["plus_one"]
            total >>= choice["shift"]
            return clamp(total, 32, is_signed) if choice["sat"] else total

        got = video.vmad(a, b, c, a_signed=a_signed, b_signed=b_signed, a_part=a_part, **choice)
        agree(got, model, a, b, c, width=32)


@pytest.mark.parametrize("parts", (2, 4))
@pytest.mark.parametrize("types", TRIPLES)
@pytest.mark.parametrize("op", (*OPERATIONS, "avrg"))
def test_simd(op: str, types: tuple[bool, bool, bool], parts: Literal[2, 4]) -> None:
    function = OPERATIONS.get(op, average)
    width = 32 // parts
    a, b, c = operands(32, 32, 32, count=200)
    a_select = (1, 2) if parts == 2 else (0, 7, 2, 5)
    b_select = (3, 0) if parts == 2 else (6, 1, 4, 3)

    def exact(x: int, y: int, i: int) -> int:
        pair = y << 32 | x
        return function(
            part(pair, a_select[i], width, types[1]), part(pair, b_select[i], width, types[2])
        )

    for chosen, sat in itertools.product((None, (0,), tuple(range(1, parts))), SIGNS):
        included = range(parts) if chosen is None else chosen

        def merged(x: int, y: int, z: int, included: Any = included, sat: bool = sat) -> int:
            for i in included:
                element = exact(x, y, i)
                element = clamp(element, width, types[0]) if sat else element
                z = z & ~(mask(width) << i * width) | (element & mask(width)) << i * width
            return z

        options: Any = {"a_select": a_select, "b_select": b_select, "mask": chosen}
        got = video.simd(op, a, b, c, parts=parts, signed=types, sat=sat, **options)
        agree(got, merged, a, b, c, width=32)
        if sat:
            continue

        def summed(x: int, y: int, z: int, included: Any = included) -> int:
            return z + sum(exact(x, y, i) for i in included)

        got = video.simd(op, a, b, c, parts=parts, signed=types, accumulate=True, **options)
        agree(got, summed, a, b, c, width=32)


def test_elements() -> None:
    # ISA, SIMD video: the last digit is element 0.
    assert video.elements("h32") == (2, 3)
    assert video.elements("b3210") == (0, 1, 2, 3)
    assert video.elements("b0") == (0,)


def test_worked_values() -> None:
    zero = words(0)
    # ISA, vavrg: halves round away from zero: (2 + 1) / 2 and (-2 + -1) / 2.
    got = video.simd(
        "avrg", words(0xFFFE0002), words(0xFFFF0001), zero, parts=2, signed=(True, True, True)
    )
    assert got.tolist() == [0xFFFE0002]
    # A sum of absolute differences: |-128 - 127| = 255 is not cut to a byte by .add.
    got = video.simd(
        *("absdiff", words(0x80), words(0x7F), words(1)),
        parts=4,
        signed=(True, True, True),
        accumulate=True,
    )
    assert got.tolist() == [256]
    # vset2 gives 1 for true, not all ones.
    got = video.simd("eq", zero, zero, zero, parts=2, signed=(False, False, False))
    assert got.tolist() == [0x00010001]
    # .sat works at the width of the destination part: 200 + 100 in a signed byte.
    got = video.scalar(
        *("add", words(200), words(100), words(0xAABBCCDD)),
        signed=(True, False, False),
        d_part="b1",
        sat=True,
    )
    assert got.tolist() == [0xAABB7FDD]


def test_model_comparison_can_fail() -> None:
    a, b, c = operands(32, 32, 32)
    got = video.scalar("add", a, b, c, signed=(True, True, True), sat=True)
    with pytest.raises(AssertionError):
        agree(got, lambda x, y, z: x + y, a, b, c, width=32)

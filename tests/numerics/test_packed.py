"""Packed integers: element by element against plain numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from integer_model import agree, clamp, mask, operands, part

from ptxsim.numerics import packed

SIGNS = (False, True)


def per_element(function: Callable[..., int], width: int, is_signed: bool) -> Callable[..., int]:
    """The model of a packed operation: ``function`` on the values of each element."""

    def model(*words: int) -> int:
        result = 0
        for index in range(32 // width):
            values = (part(word, index, width, is_signed) for word in words)
            result |= (function(*values) & mask(width)) << (index * width)
        return result

    return model


@pytest.mark.parametrize("width", (8, 16))
@pytest.mark.parametrize("is_signed", SIGNS)
def test_operations(width: int, is_signed: bool) -> None:
    a, b = operands(32, 32)

    def check(result: npt.NDArray[Any], function: Callable[..., int]) -> None:
        agree(result, per_element(function, width, is_signed), a, b, width=32)

    check(packed.add(a, b, width=width), lambda x, y: x + y)
    check(packed.sub(a, b, width=width), lambda x, y: x - y)
    check(
        packed.add(a, b, width=width, signed=is_signed, sat=True),
        lambda x, y: clamp(x + y, width, is_signed),
    )
    check(
        packed.sub(a, b, width=width, signed=is_signed, sat=True),
        lambda x, y: clamp(x - y, width, is_signed),
    )
    check(packed.min_(a, b, width=width, signed=is_signed), min)
    check(packed.max_(a, b, width=width, signed=is_signed), max)
    if is_signed:
        got = packed.min_(a, b, width=width, signed=True, relu=True)
        check(got, lambda x, y: max(min(x, y), 0))
        check(packed.max_(a, b, width=width, signed=True, relu=True), lambda x, y: max(x, y, 0))


@pytest.mark.parametrize("width", (8, 16))
def test_unary(width: int) -> None:
    (a,) = operands(32)
    got = packed.relu(a, width=width)
    agree(got, per_element(lambda x: max(x, 0), width, True), a, width=32)
    got = packed.neg(a, width=width)
    agree(got, per_element(lambda x: -x, width, True), a, width=32)


def test_carries_stay_in_their_element() -> None:
    # ISA, add.u16x2: 0xffff + 1 in the low half leaves the high half alone.
    a, b = np.array([0x0001FFFF], np.uint32), np.array([0x00010001], np.uint32)
    assert packed.add(a, b, width=16).tolist() == [0x00020000]
    assert packed.add(a, b, width=8).tolist() == [0x0002FF00]
    # The model keeps carries apart too; a plain sum does not pass it.
    with pytest.raises(AssertionError):
        agree(a + b, per_element(lambda x, y: x + y, 16, False), a, b, width=32)


@pytest.mark.parametrize("width", (8, 16))
def test_split_and_join(width: int) -> None:
    (a,) = operands(32)
    elements = packed.split(a, width=width)
    for index, element in enumerate(elements):

        def model(word: int, index: int = index) -> int:
            return part(word, index, width, False)

        agree(element, model, a, width=width)
    np.testing.assert_array_equal(packed.join(elements, width=width), a)


def test_uniform_and_strided_operands() -> None:
    lanes, uniform = np.arange(8, dtype=np.uint32)[::2], np.array([0x00010001], np.uint32)
    wanted = [0x00010001, 0x00010003, 0x00010005, 0x00010007]
    assert packed.add(lanes, uniform, width=16).tolist() == wanted
    assert packed.add(uniform, lanes, width=16).tolist() == wanted
    assert packed.add(uniform, uniform, width=16).tolist() == [0x00020002]
    assert lanes.tolist() == [0, 2, 4, 6]

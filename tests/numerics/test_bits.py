"""Shifts, bit fields and permutes against a model in plain numbers."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pytest
from integer_model import agree, mask, operands, signed, value

from ptxsim.numerics import bits, permutation

MODES: tuple[Literal["clamp", "wrap"], ...] = ("clamp", "wrap")
SIGNS = (False, True)


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    """Shifting by more than the width is ordinary: NumPy must not complain."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def words(*values: int) -> Any:
    return np.array(values, np.uint32)


@pytest.mark.parametrize("width", (16, 32, 64))
@pytest.mark.parametrize("is_signed", SIGNS)
def test_shifts_take_any_count(width: int, is_signed: bool) -> None:
    a, count = operands(width, 32)
    count[:8] = [width - 1, width, width + 1, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 64]

    def right(x: int, n: int) -> int:
        return value(x, width, is_signed) >> min(n, width)

    agree(bits.shl(a, count, width=width), lambda x, n: x << min(n, width), a, count, width=width)
    agree(bits.shr(a, count, width=width, signed=is_signed), right, a, count, width=width)


@pytest.mark.parametrize("mode", MODES)
def test_funnel_shifts(mode: Literal["clamp", "wrap"]) -> None:
    a, b, count = operands(32, 32, 32)

    def amount(n: int) -> int:
        return n % 32 if mode == "wrap" else min(n, 32)

    got = bits.shf(a, b, count, direction="l", mode=mode)
    agree(got, lambda x, y, n: (y << 32 | x) << amount(n) >> 32, a, b, count, width=32)
    got = bits.shf(a, b, count, direction="r", mode=mode)
    agree(got, lambda x, y, n: (y << 32 | x) >> amount(n), a, b, count, width=32)


@pytest.mark.parametrize("width", (32, 64))
@pytest.mark.parametrize("is_signed", SIGNS)
def test_bit_fields(width: int, is_signed: bool) -> None:
    a, b, position, length = operands(width, width, 32, 32, count=1000)
    position[::2] %= width + 2
    length[::2] %= width + 2

    def extract(x: int, pos: int, size: int) -> int:
        pos, size = pos & 255, size & 255
        fill = is_signed and size and x >> min(pos + size - 1, width - 1) & 1
        field = (x >> pos) & mask(size)
        kept = max(0, min(size, width - pos))
        return field | (-1 << kept if fill else 0)

    def insert(x: int, y: int, pos: int, size: int) -> int:
        field = mask(size & 255) << (pos & 255)
        return y & ~field | (x << (pos & 255)) & field

    got = bits.bfe(a, position, length, width=width, signed=is_signed)
    agree(got, extract, a, position, length, width=width)
    got = bits.bfi(a, b, position, length, width=width)
    agree(got, insert, a, b, position, length, width=width)


@pytest.mark.parametrize("width", (16, 32, 64))
def test_counts(width: int) -> None:
    (a,) = operands(width)
    agree(bits.popc(a, width=width), int.bit_count, a, width=32)
    agree(bits.clz(a, width=width), lambda x: width - x.bit_length(), a, width=32)
    agree(bits.cnot(a, width=width), lambda x: x == 0, a, width=width)
    agree(bits.brev(a, width=width), lambda x: int(f"{x:0{width}b}"[::-1], 2), a, width=width)


def find_nth(word: int, base: int, offset: int) -> int:
    offset = signed(offset, 32)
    if offset == 0:
        return base if word >> base & 1 else -1
    places = range(base, 32) if offset > 0 else range(base, -1, -1)
    found = [i for i in places if word >> i & 1]
    return found[abs(offset) - 1] if abs(offset) <= len(found) else -1


def test_find_nth_set() -> None:
    word, base, offset = operands(32, 32, 32, count=2000)
    base %= 32
    offset[::4] %= 20
    offset[1::4] = (0 - offset[1::4] % 20).astype(np.uint32)
    got = bits.fns(word, base, offset)
    agree(got, find_nth, word, base, offset, width=32)
    high = (base + 32).astype(np.uint32)
    assert (bits.fns(word, high, offset) == 0xFFFFFFFF).all()
    assert 0.1 < np.mean(got != 0xFFFFFFFF) < 0.9  # Both outcomes are really met.


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_signed", SIGNS)
def test_extension_and_masks(mode: Literal["clamp", "wrap"], is_signed: bool) -> None:
    a, count = operands(32, 32)
    count[::2] %= 34

    def extend(x: int, n: int) -> int:
        n = n % 32 if mode == "wrap" else min(n, 32)
        return value(x & mask(n), n, is_signed) if n else 0

    def ones(first: int, n: int) -> int:
        if mode == "wrap":
            return mask(n % 32) << first % 32
        return 0 if first >= 32 else mask(min(n, 32)) << first

    agree(bits.szext(a, count, signed=is_signed, mode=mode), extend, a, count, width=32)
    first = count[::-1].copy()
    agree(bits.bmsk(first, count, mode=mode), ones, first, count, width=32)


@pytest.mark.parametrize(
    ("from_width", "to_width"), list(itertools.product((8, 16, 32, 64), (8, 16, 32, 64)))
)
@pytest.mark.parametrize("is_signed", SIGNS)
def test_extend(from_width: int, to_width: int, is_signed: bool) -> None:
    (a,) = operands(from_width)
    got = bits.extend(a, from_width=from_width, to_width=to_width, signed=is_signed)
    agree(got, lambda x: value(x, from_width, is_signed), a, width=to_width)


def test_lop3_has_every_table() -> None:
    # With these three words bit i of the result is bit i of immLut (ISA, lop3: the usual recipe).
    a, b, c = words(0xF0), words(0xCC), words(0xAA)
    for lut in range(256):
        result = permutation.lop3(a, b, c, lut=lut)
        assert result.dtype == np.uint32
        assert result[0] & 0xFF == lut
    assert permutation.lop3(a, b, c, lut=0x1E8)[0] & 0xFF == 0xE8


def generic_prmt(a: int, b: int, selector: int) -> int:
    result = 0
    for i in range(4):
        nibble = selector >> (4 * i)
        byte = (b << 32 | a) >> 8 * (nibble & 7) & 0xFF
        if nibble & 8:
            byte = 0xFF if byte & 0x80 else 0
        result |= byte << 8 * i
    return result


def test_prmt_generic() -> None:
    a, b, c = operands(32, 32, 32, count=2000)
    c |= np.random.default_rng(2).integers(0, 2**32, c.shape, dtype=np.uint32)
    agree(permutation.prmt(a, b, c), generic_prmt, a, b, c, width=32)


# PTX ISA 9.1, prmt, table of the modes: source bytes 3 to 0 of the result for controls 0 to 3.
PRMT_MODES: dict[permutation.PrmtMode, tuple[str, str, str, str]] = {
    "f4e": ("3210", "4321", "5432", "6543"),
    "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"),
    "rc16": ("1010", "3232", "1010", "3232"),
}


@pytest.mark.parametrize("mode", PRMT_MODES)
def test_prmt_modes(mode: permutation.PrmtMode) -> None:
    # High bits of the bytes are set: no mode replicates signs.
    a, b = words(0x83828180), words(0x87868584)
    for control, digits in enumerate(PRMT_MODES[mode]):
        wanted = int("".join(f"8{digit}" for digit in digits), 16)
        got = permutation.prmt(a, b, words(control | 0xFFFFFFF0 | 0x4), mode=mode)
        assert got.tolist() == [wanted]


def test_worked_values() -> None:
    # ISA, bfe: a position beyond the top gives copies of the top bit for signed types.
    far, eight = words(40), words(8)
    assert bits.bfe(words(0x80000000), far, eight, width=32, signed=True).tolist() == [0xFFFFFFFF]
    # ISA, bfind: nothing found is all ones, with .shiftamt too.
    zero = np.zeros(1, np.uint64)
    assert bits.bfind(zero, width=64, signed=False).tolist() == [0xFFFFFFFF]
    assert bits.bfind(zero, width=64, signed=False, shiftamt=True).tolist() == [0xFFFFFFFF]
    assert bits.bfind(words(0xFFFFFFFE), width=32, signed=True, shiftamt=True).tolist() == [31]
    # A funnel shift by 32 (clamped) hands over the other word.
    a, b, full = words(1), words(2), words(77)
    assert bits.shf(a, b, full, direction="l", mode="clamp").tolist() == [1]
    assert bits.shf(a, b, full, direction="r", mode="clamp").tolist() == [2]


def test_uniform_operands_broadcast() -> None:
    lanes, uniform = np.arange(4, dtype=np.uint32), words(3)
    assert bits.shl(uniform, lanes, width=32).tolist() == [3, 6, 12, 24]
    assert bits.bfi(uniform, lanes, uniform, uniform, width=32).tolist() == [24, 25, 26, 27]
    assert permutation.prmt(uniform, uniform, lanes).shape == (4,)
    assert bits.fns(uniform, lanes, uniform).shape == (4,)

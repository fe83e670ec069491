"""Video instructions: scalar forms on parts of words, and the 2- and 4-element SIMD forms.

PTX ISA 9.1: "Video Instructions" (scalar: vadd, vsub, vabsdiff, vmin, vmax, vshl, vshr, vset,
vmad; SIMD: the same names ending in 2 and 4, and vavrg). The operation is an argument; registers
are uint32, and in between values are exact in int64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from ._elementwise import select
from .bits import extend
from .formats import Bits
from .integer import COMPARISONS, add_carry, mul_hi

__all__ = ["Part", "SecondaryOp", "elements", "scalar", "simd", "vmad"]

Part: TypeAlias = Literal["b0", "b1", "b2", "b3", "h0", "h1"]
"""A byte or half of a 32-bit word."""

SecondaryOp: TypeAlias = Literal["add", "min", "max"]
"""What a scalar video instruction does with its result and ``c``."""

Signed: TypeAlias = tuple[bool, bool, bool]
"""Whether dtype, atype and btype are .s32."""

Value: TypeAlias = npt.NDArray[np.int64]

_PART_WIDTH: Final = {"b": 8, "h": 16}


def _add(a: Value, b: Value) -> Value:
    return a + b


def _sub(a: Value, b: Value) -> Value:
    return a - b


def _absdiff(a: Value, b: Value) -> Value:
    difference: Value = np.abs(a - b)
    return difference


def _average(a: Value, b: Value) -> Value:
    """Half the sum, halves rounded away from zero."""
    total = a + b
    rounded: Value = (total + (total >= 0)) >> np.int64(1)
    return rounded


_OPERATIONS: Final[dict[str, Callable[[Value, Value], Value]]] = {
    "add": _add,
    "sub": _sub,
    "absdiff": _absdiff,
    "min": np.minimum,
    "max": np.maximum,
    "avrg": _average,
}


def scalar(
    op: str,
    a: Bits,
    b: Bits,
    c: Bits | None = None,
    *,
    signed: Signed,
    a_part: Part | None = None,
    b_part: Part | None = None,
    d_part: Part | None = None,
    sat: bool = False,
    secondary: SecondaryOp | None = None,
    mode: Literal["clamp", "wrap"] = "clamp",
) -> Bits:
    """A scalar video instruction other than vmad.

    ``op`` is its name without the v, or for vset the comparison (``eq`` to ``ge``; dtype then
    counts as unsigned). ``mode`` is that of shl and shr. With ``d_part`` the result goes into that
    part of ``c``, with ``secondary`` it is combined with ``c``.

    >>> a, b = np.array([0xFF00], np.uint32), np.array([2], np.uint32)
    >>> scalar("add", a, b, signed=(True, True, True), a_part="b1")
    array([1], dtype=uint32)
    """
    left = _extended(a, a_part, signed=signed[1])
    right = _extended(b, b_part, signed=signed[2])
    if op in ("shl", "shr"):
        count = right & np.int64(31) if mode == "wrap" else np.minimum(right, np.int64(32))
        value = _shift_left(left, count) if op == "shl" else left >> count
    else:
        value = _operate(op, left, right)
    if sat:
        width = _PART_WIDTH[d_part[0]] if d_part else 32
        value = _clamp(value, width, signed=signed[0])
    result = _low_word(value)
    if c is None:
        return result
    if secondary is not None:
        return _combine(secondary, result, c, signed=signed[0])
    return _insert(result, c, d_part) if d_part else result


def _operate(op: str, a: Value, b: Value) -> Value:
    if op in COMPARISONS:
        return COMPARISONS[op](a, b).astype(np.int64)
    return _OPERATIONS[op](a, b)


def _extended(a: Bits, part: Part | None, *, signed: bool) -> Value:
    """A word, or a part of it, by its own signedness."""
    if part is None:
        return extend(a, from_width=32, to_width=64, signed=signed).view(np.int64)
    return _element(a, int(part[1]), _PART_WIDTH[part[0]], signed=signed)


def _element(a: Bits, index: int, width: int, *, signed: bool) -> Value:
    cut = (a >> np.uint32(index * width)).astype(f"u{width // 8}")
    return extend(cut, from_width=width, to_width=64, signed=signed).view(np.int64)


def _shift_left(a: Value, count: Value) -> Value:
    """Exact, or when 64 bits do not hold it a value beyond 32 bits with the same low word.

    The 33 bits of ``a`` shifted by up to 31 fit. A last step of 1 makes the low word zero, so all
    that matters there is the side on which it leaves the range.
    """
    first = np.minimum(count, np.int64(31))
    shifted = a << first
    rest = count - first
    limited = np.clip(shifted, np.int64(-(2**62)), np.int64(2**62 - 2**32))
    last: Value = select(rest == 0, shifted, limited) << rest
    return last


def _clamp(value: Value, width: int, *, signed: bool) -> Value:
    low = -(1 << (width - 1)) if signed else 0
    clamped: Value = np.clip(value, np.int64(low), np.int64(low + (1 << width) - 1))
    return clamped


def _low_word(value: Value) -> Bits:
    return value.view(np.uint64).astype(np.uint32)


def _combine(secondary: SecondaryOp, result: Bits, c: Bits, *, signed: bool) -> Bits:
    """The secondary operation, on words read by dtype; the ISA leaves the wider bits open."""
    if secondary == "add":
        total: Bits = result + c
        return total
    operation = _OPERATIONS[secondary]
    return _low_word(
        operation(_extended(result, None, signed=signed), _extended(c, None, signed=signed))
    )


def _insert(result: Bits, c: Bits, part: Part) -> Bits:
    """``c`` with one part replaced by the low bits of the result."""
    width = _PART_WIDTH[part[0]]
    return _replace(c, result, int(part[1]) * width, width)


def _replace(word: Bits, field_bits: Bits, shift: int, width: int) -> Bits:
    """``word`` with ``width`` bits from ``shift`` on replaced by the low bits of another."""
    field = np.uint32(((1 << width) - 1) << shift)
    merged: Bits = (word & ~field) | ((field_bits << np.uint32(shift)) & field)
    return merged


def elements(selector: str) -> tuple[int, ...]:
    """The element numbers of a selector such as ``h32`` or ``b7654``, for element 0 first.

    >>> elements("b7654")
    (4, 5, 6, 7)
    """
    return tuple(int(digit) for digit in reversed(selector[1:]))


def simd(
    op: str,
    a: Bits,
    b: Bits,
    c: Bits,
    *,
    parts: Literal[2, 4],
    signed: Signed,
    a_select: Sequence[int] | None = None,
    b_select: Sequence[int] | None = None,
    mask: Sequence[int] | None = None,
    sat: bool = False,
    accumulate: bool = False,
) -> Bits:
    """A SIMD video instruction on the halves or bytes of words.

    ``op`` is as in :func:`scalar`, or ``avrg``. The selectors number the elements of ``b:a``, for
    element 0 first; ``mask`` names the elements computed, all by default. The others come from
    ``c``, or with ``accumulate`` (.add) the exact results are added to ``c``.

    >>> a, b = np.array([0x00050003], np.uint32), np.array([0x00010001], np.uint32)
    >>> hex(simd("sub", a, b, a, parts=2, signed=(False, False, False))[0])
    '0x40002'
    """
    width = 32 // parts
    a_select = range(parts) if a_select is None else a_select
    b_select = range(parts, 2 * parts) if b_select is None else b_select
    result = c
    for index in range(parts) if mask is None else mask:
        value = _operate(
            op,
            _selected(a, b, a_select[index], parts, signed=signed[1]),
            _selected(a, b, b_select[index], parts, signed=signed[2]),
        )
        if accumulate:
            result = result + _low_word(value)
            continue
        if sat:
            value = _clamp(value, width, signed=signed[0])
        result = _replace(result, _low_word(value), index * width, width)
    return result


def _selected(a: Bits, b: Bits, number: int, parts: int, *, signed: bool) -> Value:
    word = a if number < parts else b
    return _element(word, number % parts, 32 // parts, signed=signed)


def vmad(
    a: Bits,
    b: Bits,
    c: Bits,
    *,
    a_signed: bool,
    b_signed: bool,
    a_part: Part | None = None,
    b_part: Part | None = None,
    negate_product: bool = False,
    negate_c: bool = False,
    plus_one: bool = False,
    shift: Literal[0, 7, 15] = 0,
    sat: bool = False,
) -> Bits:
    """``(+-a * b +- c + plus_one) >> shift``, exact, then clamped or cut to 32 bits (ISA vmad).

    The result, and ``c``, are signed if an operand is or anything is negated.

    >>> word = np.array([3], np.uint32)
    >>> vmad(word, word, word, a_signed=False, b_signed=False, negate_c=True)
    array([6], dtype=uint32)
    """
    signed = a_signed or b_signed or negate_product or negate_c
    left = _extended(a, a_part, signed=a_signed)
    if negate_product:
        left = -left
    addend = _extended(c, None, signed=signed)
    if negate_c:
        addend = -addend
    addend = addend + np.int64(plus_one)
    low, high = _multiply_add(left, _extended(b, b_part, signed=b_signed), addend)
    if shift:
        low = (low >> np.uint64(shift)) | (high << np.int64(64 - shift)).view(np.uint64)
        high = high >> np.int64(shift)
    return _clamp_pair(low, high, signed=signed) if sat else low.astype(np.uint32)


def _multiply_add(a: Value, b: Value, c: Value) -> tuple[Bits, Value]:
    """``a * b + c`` as the low 64 bits and a signed high word."""
    a_bits, b_bits, c_bits = a.view(np.uint64), b.view(np.uint64), c.view(np.uint64)
    low, carry = add_carry(a_bits * b_bits, c_bits, width=64)
    high = mul_hi(a_bits, b_bits, width=64, signed=True).view(np.int64)
    return low, high + (c >> np.int64(63)) + carry


def _clamp_pair(low: Bits, high: Value, *, signed: bool) -> Bits:
    """A 128-bit value clamped to 32 bits."""
    # Beyond 64 bits the side decides; below, the low word holds the value.
    fits = high == (low.view(np.int64) >> np.int64(63))
    far = (high >> np.int64(63)) ^ np.int64(2**63 - 1)
    value = select(fits, low.view(np.int64), far)
    return _low_word(_clamp(value, 32, signed=signed))

"""Shifts, bit fields and counts of bit patterns; what the other integer modules stand on.

PTX ISA 9.1: "Logic and Shift Instructions", the bit-field part of "Integer Arithmetic
Instructions".

NumPy's shift loops take a count of the width or more: zero for unsigned operands and for left
shifts, copies of the sign for signed ones. That is the clamping rule of shl and shr, so no guard is
needed; the tests hold NumPy to it. Counts are arrays of uint32.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np

from ._elementwise import select
from .formats import Bits

__all__ = [
    "bfe",
    "bfi",
    "bfind",
    "bmsk",
    "brev",
    "clz",
    "cnot",
    "extend",
    "fill_with_sign",
    "fns",
    "ones",
    "pack_lanes",
    "popc",
    "shf",
    "shl",
    "shr",
    "signed_view",
    "szext",
    "unsigned",
]

_UNSIGNED: Final = {w: np.dtype(f"u{w // 8}") for w in (8, 16, 32, 64)}
_SIGNED: Final = {w: np.dtype(f"i{w // 8}") for w in (8, 16, 32, 64)}
_U32: Final = np.uint32
_NOT_FOUND: Final = np.uint32(0xFFFFFFFF)


def unsigned(width: int) -> np.dtype[Any]:
    """The dtype that holds patterns of ``width`` bits."""
    return _UNSIGNED[width]


def signed_view(a: Bits, width: int) -> Bits:
    """The same patterns read as two's complement."""
    return a.view(_SIGNED[width])


def extend(a: Bits, *, from_width: int, to_width: int, signed: bool) -> Bits:
    """``a`` widened by its sign or by zeros, or cut to its low bits (integer cvt).

    >>> extend(np.array([0x80], np.uint8), from_width=8, to_width=32, signed=True)
    array([4294967168], dtype=uint32)
    """
    if signed and to_width > from_width:
        return signed_view(a, from_width).astype(_SIGNED[to_width]).view(_UNSIGNED[to_width])
    return a.astype(_UNSIGNED[to_width], copy=False)


def fill_with_sign(a: Bits, *, width: int) -> Bits:
    """All bits equal to the top bit of ``a``."""
    sign: Bits = signed_view(a, width) >> _SIGNED[width].type(width - 1)
    return sign.view(_UNSIGNED[width])


def shl(a: Bits, count: Bits, *, width: int) -> Bits:
    """``a`` shifted left by ``count``, zero from a count of ``width`` on (ISA shl)."""
    if width == 32:
        shifted: Bits = a << count
        return shifted
    if width == 64:
        wide: Bits = a << count.astype(np.uint64)
        return wide
    cut: Bits = a.astype(_U32) << count
    return cut.astype(_UNSIGNED[width])


def shr(a: Bits, count: Bits, *, width: int, signed: bool) -> Bits:
    """``a`` shifted right by ``count``, filled by the sign of a signed type (ISA shr)."""
    working = max(width, 32)
    value = extend(a, from_width=width, to_width=working, signed=signed)
    count = count.astype(_UNSIGNED[working], copy=False)
    if signed:
        # A count of 2**31 or more reads as negative here; NumPy takes that for "too far" as well.
        shifted: Bits = signed_view(value, working) >> signed_view(count, working)
        return extend(shifted.view(value.dtype), from_width=working, to_width=width, signed=False)
    shifted = value >> count
    return extend(shifted, from_width=working, to_width=width, signed=False)


def shf(
    a: Bits, b: Bits, count: Bits, *, direction: Literal["l", "r"], mode: Literal["clamp", "wrap"]
) -> Bits:
    """Funnel shift of the 64-bit value ``b:a``: its high word shifted left, or low word right.

    >>> word = np.array([0x80000001], np.uint32)
    >>> shf(word, word, np.array([1], np.uint32), direction="l", mode="wrap")
    array([3], dtype=uint32)
    """
    count = count & _U32(31) if mode == "wrap" else np.minimum(count, _U32(32))
    rest = _U32(32) - count
    result: Bits = (b << count) | (a >> rest) if direction == "l" else (a >> count) | (b << rest)
    return result


def ones(count: Bits, *, width: int) -> Bits:
    """The low ``count`` bits of a 32- or 64-bit word; all of them from a count of ``width`` on."""
    full = _UNSIGNED[width].type((1 << width) - 1)
    mask: Bits = ~(full << count.astype(_UNSIGNED[width], copy=False))
    return mask


def bfe(a: Bits, position: Bits, length: Bits, *, width: int, signed: bool) -> Bits:
    """The field of ``length`` bits of ``a`` at ``position``, sign- or zero-extended (ISA bfe).

    Position and length are uint32 and count by their low 8 bits for 32 and 64 bits alike, as the
    manual has it; ptxas expands the 64-bit form so that it looks at all 32 bits.
    """
    position = position & _U32(0xFF)
    length = length & _U32(0xFF)
    if not signed:
        field: Bits = shr(a, position, width=width, signed=False) & ones(length, width=width)
        return field
    # Lift the top of the field, at the latest the top of the word, to the top; then shift back.
    end = np.minimum(position + length, _U32(width))
    lift = _U32(width) - end
    lifted = shl(a, lift, width=width)
    extended: Bits = shr(lifted, lift + position, width=width, signed=True) * (length != 0)
    return extended


def bfi(a: Bits, b: Bits, position: Bits, length: Bits, *, width: int) -> Bits:
    """``b`` with its field at ``position`` replaced by the low ``length`` bits of ``a`` (ISA bfi).

    Position and length count by their low 8 bits, as in :func:`bfe`.
    """
    position = position & _U32(0xFF)
    mask = shl(ones(length & _U32(0xFF), width=width), position, width=width)
    inserted: Bits = b ^ ((shl(a, position, width=width) ^ b) & mask)
    return inserted


def pack_lanes(flags: Bits) -> Bits:
    """Flags ``[..., 32]`` as words ``[...]``, lane 0 in bit 0.

    >>> pack_lanes(np.arange(32) % 8 == 0)
    array([16843009], dtype=uint32)
    """
    packed = np.packbits(flags, axis=-1, bitorder="little")
    words: Bits = np.ascontiguousarray(packed).view("<u4")
    return words[..., 0].astype(np.uint32, copy=False)


def popc(a: Bits, *, width: int) -> Bits:
    """The number of set bits, as uint32 (ISA popc)."""
    count: Bits = np.bitwise_count(a).astype(_U32)
    return count


def clz(a: Bits, *, width: int) -> Bits:
    """The number of zeros above the top set bit, as uint32; ``width`` for zero (ISA clz)."""
    smeared = a
    step = 1
    while step < width:
        smeared = smeared | (smeared >> _UNSIGNED[width].type(step))
        step *= 2
    count: Bits = _U32(width) - popc(smeared, width=width)
    return count


def bfind(a: Bits, *, width: int, signed: bool, shiftamt: bool = False) -> Bits:
    """The position of the top bit that differs from the sign, or 0xffffffff (ISA bfind).

    ``shiftamt`` gives the left shift that brings that bit to the top instead.
    """
    leading = clz(a ^ fill_with_sign(a, width=width) if signed else a, width=width)
    found = leading != width
    if shiftamt:
        return select(found, leading, _NOT_FOUND)
    # With nothing found the difference is width - 1 - width: already all ones.
    position: Bits = _U32(width - 1) - leading
    return position


def brev(a: Bits, *, width: int) -> Bits:
    """The bits of ``a`` in reverse order (ISA brev)."""
    dtype = _UNSIGNED[width].type
    result = a
    step = width // 2
    full = (1 << width) - 1
    while step:
        low = dtype(full // ((1 << step) + 1))
        result = ((result >> dtype(step)) & low) | ((result & low) << dtype(step))
        step //= 2
    return result


def cnot(a: Bits, *, width: int) -> Bits:
    """1 where ``a`` is zero, else 0 (ISA cnot)."""
    result: Bits = (a == 0).astype(_UNSIGNED[width])
    return result


def fns(mask: Bits, base: Bits, offset: Bits) -> Bits:
    """The position of the ``offset``-th set bit counted from ``base``, or 0xffffffff (ISA fns).

    ``offset`` is signed: positive counts upwards, negative downwards, both with ``base`` itself
    included; 0 asks for bit ``base`` alone. A base above 31 is undefined; it finds nothing here,
    since no bit is left of the mask shifted so far.
    """
    zero = offset == 0
    down = signed_view(offset, 32) < 0
    # Downwards is upwards in the mirrored word; there base moves to 31 - base.
    word = select(down, brev(mask, width=32), mask)
    start = select(down, _U32(31) - base, base)
    wanted = select(down, _U32(0) - offset, np.maximum(offset, _U32(1)))
    candidates = word & (_NOT_FOUND << start)
    position = _select_bit(candidates, wanted)
    found = popc(candidates, width=32) >= wanted
    found &= ~(zero & (position != start))
    position = select(down, _U32(31) - position, position)
    return select(found, position, _NOT_FOUND)


def _select_bit(word: Bits, rank: Bits) -> Bits:
    """The position of the ``rank``-th set bit (from 1) of ``word``, by halving the interval."""
    position = np.zeros_like(word + rank)
    for step in (16, 8, 4, 2, 1):
        low = (word >> position) & _U32((1 << step) - 1)
        count = popc(low, width=32)
        above = rank > count
        rank = rank - count * above
        position = position + _U32(step) * above
    return position


def szext(a: Bits, count: Bits, *, signed: bool, mode: Literal["clamp", "wrap"]) -> Bits:
    """The low ``count`` bits of ``a``, sign- or zero-extended to 32 bits (ISA szext)."""
    count = count & _U32(31) if mode == "wrap" else np.minimum(count, _U32(32))
    rest = _U32(32) - count
    return shr(a << rest, rest, width=32, signed=signed)


def bmsk(position: Bits, count: Bits, *, mode: Literal["clamp", "wrap"]) -> Bits:
    """``count`` ones from bit ``position`` upwards, cut at bit 31 (ISA bmsk)."""
    if mode == "wrap":
        position = position & _U32(31)
        count = count & _U32(31)
    result: Bits = ones(count, width=32) << position
    return result

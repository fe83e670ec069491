"""Matrix products of the tensor-core instructions: D = A * B + C on stacks of tiles.

The PTX ISA leaves order and rounding of the accumulation of floats open (Warp Level Matrix
Instructions: mma); what machines do is a *fused dot-product-add with truncated alignment*.  A
step takes ``block`` products and the accumulator, aligns all addends to the largest exponent, cuts
each toward zero ``fraction`` bits below it, adds exactly and rounds once.  The blocks of a longer
product are steps in the order of k, each with the rounded result of the one before as accumulator.
Which widths an instruction has on a target is data: :mod:`ptxsim.numerics.tensor_core_rules`.

All of this is exact in float64: products have at most 22 bits, addends after the cut at most
``fraction + 2``, and NaN and infinities of float64 behave as those of the machines do.  Tiles are
stacks of bit patterns: A [W, m, k], B [W, k, n], C and D [W, m, n].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .convert import float_to_float, to_double
from .floating import add, fma
from .formats import F16, F32, F64, TF32, Bits, Format, Rounding
from .tensor_core_rules import Rule

__all__ = ["Scales", "bit_product", "double_product", "float_product", "integer_product"]

Floats: TypeAlias = NDArray[np.float64]
Exponents: TypeAlias = NDArray[np.int16]

_LOWEST, _HIGHEST = -(2**31), 2**31 - 1
#: The exponent of a zero factor: below every sum of two exponents of non-zero factors.
_ZERO = -10_000
#: Elements of the largest temporary array: 1 MiB of float64 stays in the second-level cache.
_CHUNK = 1 << 17


@dataclass(frozen=True, slots=True)
class Scales:
    """Block scales of A and B: patterns [W, m, groups] and [W, groups, n] of ``fmt``."""

    a: Bits
    b: Bits
    fmt: Format


# --- numbers and their exponents ------------------------------------------------------------------


@cache
def _tables(fmt: Format) -> tuple[Floats, Exponents]:
    """Value and exponent of every pattern of a format of at most 16 bits."""
    patterns = np.arange(1 << fmt.width, dtype=fmt.dtype)
    values = to_double(patterns, fmt)
    field = (patterns.astype(np.int64) >> fmt.mantissa_bits) & ((1 << fmt.exponent_bits) - 1)
    return values, _exponents(field, values, fmt)


def _exponents(field: NDArray[Any], values: Floats, fmt: Format) -> Exponents:
    """Unbiased exponents; subnormals keep the smallest one, as they are not normalised."""
    lowest = 1 if fmt.mantissa_bits else 0
    exponent = np.maximum(field, lowest) - fmt.bias
    return np.where(values == 0, _ZERO, exponent).astype(np.int16)


def _decoded(bits: Bits, fmt: Format) -> tuple[Floats, Exponents]:
    """Values and exponents of patterns; bits beside the format in its container do not count."""
    if fmt.width <= 16:
        values, exponents = _tables(fmt)
        pattern = bits if fmt.width >= 8 else bits & ((1 << fmt.width) - 1)
        return values.take(pattern), exponents.take(pattern)
    if fmt is TF32:
        bits = bits & np.uint32(0xFFFF_E000)
    values = to_double(bits, F32)
    return values, _exponents((bits >> np.uint32(23)).astype(np.int32) & 255, values, F32)


def _power(exponent: NDArray[Any]) -> Floats:
    """2.0 ** exponent for exponents of normal float64 numbers."""
    return ((exponent.astype(np.int64) + 1023) << 52).view(np.float64)


# --- the fused step -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Result:
    """How a step rounds: RZ to ``fraction_bits`` in the exponent range of f32, or RN to f16."""

    fmt: Format
    fraction_bits: int

    @property
    def smallest_exponent(self) -> int:
        return 1 - self.fmt.bias

    def rounded(self, total: Floats) -> Floats:
        """The sum as a number of the result format; a result of magnitude zero is +0."""
        if self.fmt is F16:
            return total.astype(np.float16).astype(np.float64) + 0.0
        kept = (total.view(np.int64) & np.int64(-1 << (52 - self.fraction_bits))).view(np.float64)
        tiny = np.abs(total) < 2.0**-126
        if tiny.any():
            step = 2.0 ** (126 + self.fraction_bits)
            kept = np.where(tiny, np.trunc(total * step) / step, kept)
        return np.where(np.abs(kept) >= 2.0**128, np.copysign(np.inf, kept), kept) + 0.0

    def bits(self, value: Floats) -> Bits:
        """Patterns of rounded values."""
        if self.fmt is F16:
            narrow: Any = value.astype(np.float16).view(np.uint16)
        else:
            narrow = value.astype(np.float32).view(np.uint32)
        nan = np.isnan(value)
        if nan.any():
            narrow[nan] = self.fmt.nan
        return narrow  # type: ignore[no-any-return]


def _steps(count: int, block: int) -> Iterator[slice]:
    for first in range(0, count, block):
        yield slice(first, first + block)


def _fused(
    a: tuple[Floats, Exponents],
    b: tuple[Floats, Exponents],
    c: Floats,
    rule: Rule,
    result: _Result,
    c_exponent: int,
    present: NDArray[np.bool_] | None,
) -> Floats:
    """All steps of a product; the axis of k goes first, the others are broadcast."""
    zero_exponent = rule.zero_exponent(result.fmt is F16)
    for part in _steps(len(a[0]), rule.block):
        products = a[0][part] * b[0][part]
        if present is not None:
            products = np.where(present[part], products, 0.0)
        top = (a[1][part] + b[1][part]).max(axis=0)
        field = ((c.view(np.int64) >> 52) & 0x7FF).astype(np.int16) - np.int16(1023)
        own = np.where(c == 0, zero_exponent, np.maximum(field, c_exponent))
        top = np.maximum(np.maximum(top, own), np.int16(zero_exponent))
        products *= _power(rule.fraction - top)
        np.trunc(products, out=products)
        total = products.sum(axis=0) if len(products) > 1 else products[0]
        total += np.trunc(c * _power(rule.fraction - top))
        c = result.rounded(total * _power(top - rule.fraction))
        c_exponent = result.smallest_exponent
    return c


# --- products of floats ---------------------------------------------------------------------------


def float_product(
    a: Bits,
    b: Bits,
    c: Bits,
    *,
    formats: tuple[Format, Format, Format, Format],
    rule: Rule,
    present: NDArray[np.bool_] | None = None,
    scales: Scales | None = None,
) -> Bits:
    """``a @ b + c`` as the machine of ``rule`` computes it; ``formats`` are those of A, B, C, D.

    ``present`` [W, m, k] is false at elements of A that a sparse product skips (they are zero).

    >>> from ptxsim.numerics.tensor_core_rules import float_rule
    >>> one, c = np.full((1, 1, 1), 0x3C00, np.uint16), np.full((1, 1, 1), 0xB380_0000, np.uint32)
    >>> ampere = float_rule("mma", "f16", 80)
    >>> hex(float_product(one, one, c, formats=(F16, F16, F32, F32), rule=ampere)[0, 0, 0])
    '0x3f7fffff'
    """
    if rule.method == "fma":
        return _fma_product(a, b, c, formats)
    accumulator = F32 if F32 in formats[2:] else F16
    result = _Result(accumulator, rule.kept)
    if present is not None and _is_finite(b, formats[1]):
        present = None
    out = np.empty((len(a), a.shape[1], b.shape[2]), accumulator.dtype)
    per_warp = a.shape[1] * a.shape[2] * b.shape[2]
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        for part in _steps(len(a), max(1, _CHUNK // per_warp)):
            tiles = _Tiles(a[part], b[part], c[part], formats, present, scales, part)
            value = _METHODS[rule.method](tiles, rule, result)
            out[part] = tiles.to_stack(result.bits(value))
    if formats[3] is not accumulator:  # wmma with f16 results of an f32 accumulation
        return float_to_float(out, source=accumulator, target=formats[3])
    return out


def _is_finite(bits: Bits, fmt: Format) -> bool:
    return bool(np.isfinite(_decoded(bits, fmt)[0]).all())


class _Tiles:
    """Decoded tiles of some warps with the axis of k first, then m, n and warp in either order.

    Warps go last when there are many, so that the inner loops of NumPy are long.
    """

    def __init__(
        self,
        a: Bits,
        b: Bits,
        c: Bits,
        formats: tuple[Format, ...],
        present: NDArray[np.bool_] | None,
        scales: Scales | None,
        part: slice,
    ) -> None:
        self.warps_last = len(a) >= 16
        self.scales = None
        self.c_format = formats[2]
        value_a, exponent_a = _decoded(a, formats[0])
        value_b, exponent_b = _decoded(b, formats[1])
        self.a = (self._left(value_a), self._left(exponent_a))
        self.b = (self._right(value_b), self._right(exponent_b))
        value_c = to_double(c, formats[2])
        self.c = np.ascontiguousarray(value_c.transpose(1, 2, 0)) if self.warps_last else value_c
        self.present = None if present is None else self._left(present[part])
        if scales is not None:
            left, right = _decoded(scales.a[part], scales.fmt), _decoded(scales.b[part], scales.fmt)
            self.scales = (
                (self._left(left[0]), self._left(left[1])),
                (self._right(right[0]), self._right(right[1])),
            )

    def _left(self, x: NDArray[Any]) -> NDArray[Any]:
        """[W, m, k] as [k, m, 1, W] or [k, W, m, 1]."""
        if self.warps_last:
            return np.ascontiguousarray(x.transpose(2, 1, 0))[:, :, None, :]
        return np.ascontiguousarray(x.transpose(2, 0, 1))[:, :, :, None]

    def _right(self, x: NDArray[Any]) -> NDArray[Any]:
        """[W, k, n] as [k, 1, n, W] or [k, W, 1, n]."""
        if self.warps_last:
            return np.ascontiguousarray(x.transpose(1, 2, 0))[:, None, :, :]
        return np.ascontiguousarray(x.transpose(1, 0, 2))[:, :, None, :]

    def to_stack(self, d: NDArray[Any]) -> NDArray[Any]:
        """A result as [W, m, n]."""
        return d.transpose(2, 0, 1) if self.warps_last else d


def _fused_product(t: _Tiles, rule: Rule, result: _Result) -> Floats:
    a, b = t.a, t.b
    if t.scales is not None:  # one scale for all of k joins the exponents of the factors
        a, b = ((x[0] * s[0], x[1] + s[1]) for x, s in zip((a, b), t.scales, strict=True))
    own = F16 if rule.mixed and t.c_format is F16 else result.fmt
    return _fused(a, b, t.c, rule, result, 1 - own.bias, t.present)


def _halves_product(t: _Tiles, rule: Rule, result: _Result) -> Floats:
    """Low and high halves of the registers in two chained steps, then C by a rounded addition."""
    k = len(t.a[0])
    high = (np.arange(k) // rule.pair) & 1
    total = np.zeros_like(t.c)
    for half in (0, 1):
        at = np.flatnonzero(high == half)
        a, b = (t.a[0][at], t.a[1][at]), (t.b[0][at], t.b[1][at])
        present = None if t.present is None else t.present[at]
        total = _fused(a, b, total, rule, result, result.smallest_exponent, present)
    value = add(result.bits(total), result.bits(t.c), fmt=result.fmt)
    return to_double(value, result.fmt)


def _groups_product(t: _Tiles, rule: Rule, result: _Result) -> Floats:
    """Exact sums of groups, times their scales, then one fused step.

    Only the exponents of the scales count for the alignment (MMA-Sim 2.1.1).
    """
    assert t.scales is not None
    (scale_a, exponent_a), (scale_b, exponent_b) = t.scales
    count = len(t.a[0]) // rule.block
    sums, tops = [], []
    for g, part in enumerate(_steps(len(t.a[0]), rule.block)):
        i = g * len(scale_a) // count
        total = (t.a[0][part] * t.b[0][part]).sum(axis=0)
        zero = (t.a[1][part] + t.b[1][part]).max(axis=0) < _ZERO // 2
        sums.append(total * scale_a[i] * scale_b[i])
        tops.append(np.where(zero, np.int16(_ZERO), exponent_a[i] + exponent_b[i]))
    one = (np.ones_like(sums, dtype=np.float64), np.zeros_like(tops, dtype=np.int16))
    step = Rule("fused", count, rule.fraction, rule.zero, rule.kept)
    terms = (np.stack(sums), np.stack(tops))
    return _fused(terms, one, t.c, step, result, result.smallest_exponent, None)


_METHODS = {"fused": _fused_product, "halves": _halves_product, "groups": _groups_product}


def _fma_product(a: Bits, b: Bits, c: Bits, formats: tuple[Format, ...]) -> Bits:
    """mma.m8n8k4 of f16 where the machine has no such instruction: arithmetic of f32.

    With an f32 result it is ``c + fma(a3, b3, fma(a2, b2, fma(a1, b1, a0*b0 + 0)))``, with an f16
    result ``(c + fma(a1, b1, a0*b0)) + fma(a3, b3, a2*b2)``, rounded to f16 at the end.
    """
    left = float_to_float(a, source=F16, target=F32)
    right = float_to_float(b, source=F16, target=F32)
    start = c if formats[2] is F32 else float_to_float(c, source=F16, target=F32)
    shape = start.shape

    def chain(steps: range) -> Bits:
        total = np.zeros(shape, np.uint32)
        for k in steps:
            x = np.broadcast_to(left[:, :, k, None], shape)
            y = np.broadcast_to(right[:, k, None, :], shape)
            total = fma(x, y, total, fmt=F32)
        return total

    if formats[3] is F32:
        return add(start, chain(range(4)), fmt=F32)
    total = add(add(start, chain(range(2)), fmt=F32), chain(range(2, 4)), fmt=F32)
    return float_to_float(total, source=F32, target=F16)


def double_product(a: Bits, b: Bits, c: Bits, rounding: Rounding = "rn") -> Bits:
    """``a @ b + c`` of f64: a chain of fused multiply-adds in the order of k, from C.

    Each is rounded as told (PTX ISA 9.1, mma and wmma.mma of f64); the order is the machines'.
    """
    total = c
    for k in range(a.shape[2]):
        x = np.broadcast_to(a[:, :, k, None], c.shape)
        y = np.broadcast_to(b[:, k, None, :], c.shape)
        total = fma(x, y, total, fmt=F64, rounding=rounding)
    return total


# --- products of integers -------------------------------------------------------------------------


def integer_product(
    a: Bits, b: Bits, c: Bits, *, a_signed: int, b_signed: int, saturate: bool
) -> Bits:
    """``a @ b + c`` of bytes with a 32-bit accumulator; exact, then wrapped or clamped to s32.

    ``a_signed`` and ``b_signed`` are the widths of signed elements (4, 8), 0 for unsigned ones.

    >>> one, top = np.ones((1, 1, 1), np.uint8), np.full((1, 1, 1), 0x7FFFFFFF, np.uint32)
    >>> hex(integer_product(one, one, top, a_signed=8, b_signed=8, saturate=False)[0, 0, 0])
    '0x80000000'
    """
    # Products have at most 16 bits and there are at most 64 of them, or 128 of eight bits: every
    # partial sum is a number of f32, in any order.
    products = np.matmul(_numbers(a, a_signed), _numbers(b, b_signed))
    total = products.astype(np.int64) + c.view(np.int32)
    if saturate:
        total = np.clip(total, _LOWEST, _HIGHEST)
    bits: Bits = total.astype(np.uint32)
    return bits


def _numbers(bits: Bits, signed: int) -> NDArray[np.float32]:
    if signed == 4:
        bits = (bits ^ np.uint8(8)) - np.uint8(8)
    numbers: Bits = bits.view(np.int8 if signed else np.uint8)
    return numbers.astype(np.float32)


def bit_product(a: Bits, b: Bits, c: Bits, operation: str) -> Bits:
    """C plus the number of ones in ``a xor b`` or ``a and b``; elements are bytes 0 and 1."""
    left, right = a.astype(np.float32), b.astype(np.float32)
    ones = np.matmul(left, right)
    if operation == "xor":
        ones = left.sum(axis=2)[:, :, None] + right.sum(axis=1)[:, None, :] - 2 * ones
    bits: Bits = c + ones.astype(np.uint32)
    return bits

"""Matrix products of the tensor-core instructions: D = A * B + C on stacks of tiles.

Integer products are exact.  For floats the PTX ISA (Warp Level Matrix Instructions: mma) leaves
order and rounding of the accumulation open; here all of it is in one function,
:func:`float_product`.
"""

from __future__ import annotations

import numpy as np

from .convert import float_to_float, to_double
from .formats import F64, Bits, Format

__all__ = ["float_product", "integer_product"]

_LOWEST, _HIGHEST = -(2**31), 2**31 - 1


def float_product(
    a: Bits, b: Bits, c: Bits, *, factors: Format, accumulator: Format, result: Format
) -> Bits:
    """``a @ b + c`` of tiles [..., m, k], [..., k, n] and [..., m, n] of bit patterns.

    Products are exact, they are added in float64 in the order of k, then the accumulator, and the
    sum is rounded once to the result format.  Subnormals are kept; a NaN result is canonical.

    >>> from ptxsim.numerics.formats import F16, F32
    >>> one, zero = np.full((1, 1), 0x3C00, np.uint16), np.zeros((1, 1), np.uint32)
    >>> hex(float_product(one, one, zero, factors=F16, accumulator=F32, result=F32)[0, 0])
    '0x3f800000'
    """
    left, right = to_double(a, factors), to_double(b, factors)
    with np.errstate(invalid="ignore", over="ignore"):
        total = _ordered_product(left, right)
        total += to_double(c, accumulator)
        return float_to_float(total.view(np.uint64), source=F64, target=result)


def _ordered_product(left: Bits, right: Bits) -> Bits:
    """``left @ right`` of stacks, added in the order of k.

    A library product would leave that order to the machine it runs on.  The tiles go last, which
    makes the inner loops of NumPy long.
    """
    stack = left.shape[:-2]
    columns = np.ascontiguousarray(left.reshape(-1, *left.shape[-2:]).transpose(2, 1, 0))
    rows = np.ascontiguousarray(right.reshape(-1, *right.shape[-2:]).transpose(1, 2, 0))
    total = columns[0][:, None, :] * rows[0][None, :, :]
    term = np.empty_like(total)
    for column, row in zip(columns[1:], rows[1:], strict=True):
        np.multiply(column[:, None, :], row[None, :, :], out=term)
        total += term
    m, n, _ = total.shape
    return np.ascontiguousarray(total.transpose(2, 0, 1)).reshape(*stack, m, n)


def integer_product(
    a: Bits, b: Bits, c: Bits, *, a_signed: bool, b_signed: bool, saturate: bool
) -> Bits:
    """``a @ b + c`` of eight-bit tiles with a 32-bit accumulator; exact, then wrapped or clamped.

    >>> one, top = np.ones((1, 1), np.uint8), np.full((1, 1), 0x7FFFFFFF, np.uint32)
    >>> hex(integer_product(one, one, top, a_signed=True, b_signed=True, saturate=False)[0, 0])
    '0x80000000'
    """
    # Sums of eight-bit products are far below 2**53, so float64 holds them in any order.
    products = np.matmul(_numbers(a, a_signed), _numbers(b, b_signed))
    total = products.astype(np.int64) + c.view(np.int32)
    if saturate:
        total = np.clip(total, _LOWEST, _HIGHEST)
    bits: Bits = total.astype(np.uint32)
    return bits


def _numbers(bits: Bits, signed: bool) -> Bits:
    numbers: Bits = bits.view(np.int8 if signed else np.uint8)
    return numbers.astype(np.float64)

"""What the benchmark kernels compute, in NumPy, to the bit.

``mul.f32``, ``add.f32`` and ``div.rn.f32`` round once, as NumPy's float32 does; ``fma.rn.f32``
needs the model here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["bins", "block_sums", "fused_multiply_add", "mandelbrot", "product"]

Floats = NDArray[np.float32]
Operand = Floats | np.float32


def fused_multiply_add(a: Operand, b: Operand, c: Operand) -> Floats:
    """``fma.rn.f32`` of finite values whose result is a normal number.

    The product of two float32 is exact in float64.  The sum is rounded there to odd: where bits
    were lost the last bit is made one, so that the second rounding, to 24 bits, sees that the
    value is not on a tie.  This is right since 53 >= 24 + 2.

    >>> fused_multiply_add(np.float32(1 + 2**-12), np.float32(1 + 2**-12), np.float32(-1))
    np.float32(0.00048834085)
    """
    product = np.multiply(a, b, dtype=np.float64)
    addend = np.asarray(c, np.float64)
    total = product + addend
    # Knuth's TwoSum: the sum is total + lost, exactly
    back = total - product
    lost = (product - (total - back)) + (addend - back)
    even = np.asarray(total).view(np.int64) & 1 == 0
    towards = np.where(lost > 0, np.inf, -np.inf)
    odd = np.where((lost != 0) & even, np.nextafter(total, towards), total)
    return odd.astype(np.float32)[()]


def product(a: Floats, b: Floats) -> Floats:
    """A matrix product, each element one chain of fused multiply-adds in order of k."""
    total = np.zeros((len(a), b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        total = fused_multiply_add(a[:, k : k + 1], b[k : k + 1, :], total)
    return total


def block_sums(x: NDArray[np.int32], threads: int) -> NDArray[np.int32]:
    """The sum modulo 2^32 of each run of ``threads`` elements."""
    sums: NDArray[np.int32] = np.add.reduce(x.reshape(-1, threads), axis=1, dtype=np.int32)
    return sums


def bins(x: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """How often each value of the low eight bits occurs."""
    return np.bincount(x & 255, minlength=256).astype(np.uint32)


def mandelbrot(width: int, height: int, trips: int) -> NDArray[np.int32]:
    """Trip counts over [-2, 1) x [-1.5, 1.5), operation by operation as the kernel has them."""
    f32 = np.float32
    step_x, step_y = (f32(3) * np.arange(size, dtype=f32) / f32(width) for size in (width, height))
    cx, cy = (step_x - f32(2))[None, :], (step_y - f32(1.5))[:, None]
    x, y, xx, yy = (np.zeros((height, width), f32) for _ in range(4))
    count = np.zeros((height, width), np.int32)
    live: Any = np.ones((height, width), bool)
    while live.any():
        new_x = cx + (xx - yy)
        new_y = fused_multiply_add(x + x, y, cy)
        x, y = np.where(live, new_x, x), np.where(live, new_y, y)
        xx, yy = x * x, y * y
        count += live
        live &= (count < trips) & (xx + yy <= f32(4))
    return count

"""The benchmark kernels with their launches, arguments and exact results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ptxsim

from . import reference

__all__ = ["CASES", "KERNELS", "Case", "Launch", "kernel"]

KERNELS = Path(__file__).parent / "kernels"
Array = NDArray[Any]


@dataclass(slots=True)
class Launch:
    """One launch: fresh arguments, the place of the result among them, and what it must hold."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: list[Any]
    result: int
    expect: Callable[[], Array]

    def run(self, kernel: ptxsim.Kernel, **options: Any) -> ptxsim.Report:
        """Launch once; the result is then in ``args[result]``."""
        return kernel.launch(grid=self.grid, block=self.block, args=self.args, **options)

    def matches(self) -> bool:
        """Whether the result has the bits of the reference."""
        return bool(self.args[self.result].tobytes() == self.expect().tobytes())


@dataclass(frozen=True, slots=True)
class Case:
    """A row of the table: an entry of a file under ``kernels`` at one size."""

    name: str
    entry: str
    size: int
    prepare: Callable[[int], Launch] = field(repr=False)
    file: str = "kernels.ptx"


@cache
def _module(file: str) -> ptxsim.Module:
    return ptxsim.assemble(KERNELS / file)


def kernel(case: Case) -> ptxsim.Kernel:
    """The assembled kernel of a case; a file is assembled once in a process."""
    return _module(case.file)[case.entry]


def _vectors(size: int, count: int) -> list[NDArray[np.float32]]:
    rng = np.random.default_rng(size)
    return [rng.standard_normal(size, np.float32) for _ in range(count)]


def vecadd(size: int) -> Launch:
    """z = x + y."""
    x, y = _vectors(size, 2)
    args = [x, y, ptxsim.undefined(size, np.float32), np.int32(size)]
    return Launch((-(-size // 256),), (256,), args, 2, lambda: x + y)


def saxpy(size: int) -> Launch:
    """y = a * x + y, fused."""
    x, y = _vectors(size, 2)
    a, before = np.float32(2.7182817), y.copy()
    args = [x, y, a, np.int32(size)]
    grid = (-(-size // 256),)
    return Launch(grid, (256,), args, 1, lambda: reference.fused_multiply_add(a, x, before))


def sgemm(size: int) -> Launch:
    """c = a @ b, square, ``size`` a multiple of 16."""
    a, b = (v.reshape(size, size) for v in _vectors(size * size, 2))
    args = [a, b, ptxsim.undefined((size, size), np.float32), np.int32(size)]
    tiles = size // 16
    return Launch((tiles, tiles), (16, 16), args, 2, lambda: reference.product(a, b))


def block_reduce(size: int) -> Launch:
    """Sum of each CTA's 256 integers, ``size`` a multiple of 256."""
    x = np.random.default_rng(size).integers(-(1 << 31), 1 << 31, size).astype(np.int32)
    args = [x, ptxsim.undefined(size // 256, np.int32), np.int32(size)]
    return Launch((size // 256,), (256,), args, 1, lambda: reference.block_sums(x, 256))


def histogram(size: int) -> Launch:
    """Counts of the low eight bits; every thread of the at most 64 CTAs walks the input."""
    x = np.random.default_rng(size).integers(0, 1 << 32, size).astype(np.uint32)
    args = [x, np.zeros(256, np.uint32), np.int32(size)]
    grid = min(64, -(-size // 1024))
    return Launch((grid,), (256,), args, 1, lambda: reference.bins(x))


def mandelbrot(size: int) -> Launch:
    """Trip counts of ``size`` x ``size`` points, ``size`` a multiple of 16, at most 256 trips."""
    args = [ptxsim.undefined((size, size), np.int32), np.int32(size), np.int32(256)]
    grid = (size // 16, size // 16)
    return Launch(grid, (16, 16), args, 0, lambda: reference.mandelbrot(size, size, 256))


def matrix_unit(size: int) -> Launch:
    """c = a @ b on the matrix unit, f16 to f32, ``size`` a multiple of 32.

    The elements are small integers: every sum is exact, in any order and on every target.
    """
    a, b = np.random.default_rng(size).integers(-8, 9, (2, size, size))
    result = ptxsim.undefined((size, size), np.float32)
    args = [a.astype(np.float16), b.astype(np.float16), result, np.int32(size)]
    tiles = size // 32
    return Launch((tiles, tiles), (128,), args, 2, lambda: (a @ b).astype(np.float32))


def matrix_tile(depth: int) -> Launch:
    """c = a @ b by one CTA of four warps, 128 x 128, ``depth`` (k) a multiple of 64.

    Exact for the same reason as :func:`matrix_unit`.
    """
    rng = np.random.default_rng(depth)
    a, b = rng.integers(-8, 9, (128, depth)), rng.integers(-8, 9, (depth, 128))
    result = ptxsim.undefined((128, 128), np.float32)
    inputs = [a.astype(np.float16), b.astype(np.float16)]
    args = [*inputs, result, np.uint32(128), np.uint32(depth)]
    return Launch((1,), (128,), args, 2, lambda: (a @ b).astype(np.float32))


CASES = (
    Case("vecadd-1Mi", "vecadd", 1 << 20, vecadd),
    Case("saxpy-1Mi", "saxpy", 1 << 20, saxpy),
    Case("sgemm-naive-128", "sgemm_naive", 128, sgemm),
    Case("sgemm-naive-256", "sgemm_naive", 256, sgemm),
    Case("sgemm-tiled-128", "sgemm_tiled", 128, sgemm),
    Case("sgemm-tiled-256", "sgemm_tiled", 256, sgemm),
    Case("block-reduce-1Mi", "block_reduce", 1 << 20, block_reduce),
    Case("histogram-1Mi", "histogram", 1 << 20, histogram),
    Case("mandelbrot-256", "mandelbrot", 256, mandelbrot),
    Case("gemm-wmma-128", "gemm_wmma", 128, matrix_unit, "gemm_wmma.ptx"),
    Case("gemm-mma-128", "gemm_mma", 128, matrix_unit, "gemm_mma.ptx"),
    Case("gemm-tile-128x128x64", "gemm_tile", 64, matrix_tile, "gemm_tile.ptx"),
)

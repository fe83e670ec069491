"""Scalar integer arithmetic in plain Python numbers, and operands to try it on."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["agree", "clamp", "mask", "operands", "part", "signed", "value"]

_DTYPES = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def mask(width: int) -> int:
    """All ones."""
    return (1 << width) - 1


def signed(pattern: int, width: int) -> int:
    """The two's complement value of a pattern."""
    return pattern - (1 << width) if pattern >> (width - 1) else pattern


def value(pattern: int, width: int, is_signed: bool) -> int:
    """The value of a pattern read by its type."""
    return signed(pattern, width) if is_signed else pattern


def part(pattern: int, index: int, width: int, is_signed: bool) -> int:
    """The value of one part of a word."""
    return value(pattern >> (index * width) & mask(width), width, is_signed)


def clamp(number: int, width: int, is_signed: bool) -> int:
    """The nearest value of the type."""
    low = -(1 << (width - 1)) if is_signed else 0
    return max(low, min(number, low + mask(width)))


def operands(*widths: int, count: int = 400, seed: int = 1) -> list[npt.NDArray[Any]]:
    """One array per width: edge values against edge values, then random words of all lengths."""
    rng = random.Random(seed)
    columns: list[npt.NDArray[Any]] = []
    for width in widths:
        top = 1 << (width - 1)
        edges = [0, 1, 2, 7, 31, 32, 33, mask(width), mask(width) - 1, top, top - 1, top + 1]
        edges = [e & mask(width) for e in edges]
        column = [rng.choice(edges) for _ in range(count // 2)]
        column += [rng.getrandbits(rng.randint(1, width)) for _ in range(count - count // 2)]
        rng.shuffle(column)
        columns.append(np.array(column, _DTYPES[width]))
    return columns


def agree(
    result: npt.NDArray[Any],
    model: Callable[..., int],
    *columns: npt.NDArray[Any],
    width: int,
) -> None:
    """Fail unless the result has the dtype of its width and the model's value in every lane."""
    assert result.dtype == _DTYPES[width]
    for got, *words in zip(result.tolist(), *(c.tolist() for c in columns), strict=True):
        wanted = model(*words) & mask(width)
        assert got == wanted, f"{[hex(w) for w in words]}: {got:#x}, not {wanted:#x}"

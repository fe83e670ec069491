"""Bits of two sides side by side: equal, or as close as approximate instructions allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..numerics.formats import FORMATS
from .taint import Source

__all__ = ["TOLERANT", "close", "numbers"]

Array = NDArray[Any]

#: Types whose numbers may differ a little.
TOLERANT = ("f16", "bf16", "f32", "f64")


def numbers(bits: Array, type_: str) -> NDArray[np.float64]:
    """The numbers that bit patterns of one of :data:`TOLERANT` stand for."""
    if type_ == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    width = FORMATS[type_].width // 8
    found: NDArray[np.float64] = bits.astype(f"u{width}").view(f"f{width}").astype(np.float64)
    return found


def close(
    a: Array, b: Array, type_: str, sources: Sequence[Source], rounds: bool
) -> NDArray[np.bool_]:
    """Whether patterns differ by no more than the approximate ``sources`` may have caused.

    Their tolerances are added up.  One unit in the last place of the type comes on top if
    arithmetic between them and the result rounds (``rounds``), or the type is narrower than f32.
    What an instruction in between makes of a difference, such as a subtraction of numbers that
    are almost equal, is not known: a difference that it makes larger is not close.
    """
    if not sources:
        return np.asarray(a == b)
    with np.errstate(all="ignore"):
        x, y = numbers(a, type_), numbers(b, type_)
        size = np.maximum(np.abs(x), np.abs(y))
        bound = np.zeros(size.shape)
        for source in sources:
            t = source.tolerance
            bound += np.maximum(t.relative * size, t.absolute)
        mantissa = FORMATS[type_].mantissa_bits
        if rounds or mantissa < 23:
            bound += size * 2.0**-mantissa
        near = np.isfinite(x) & np.isfinite(y) & (np.abs(x - y) <= bound)
    return np.asarray(near | (a == b))

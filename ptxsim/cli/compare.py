"""Comparison of buffers with expected bits; a difference is the finding ``mismatch``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..report import FINDING_CODES, Finding
from .elements import ElementType, decode, ordinals, patterns

__all__ = ["Array", "Difference", "compare", "first_difference"]

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first element in which two buffers differ, and how many do (``count`` of ``size``)."""

    index: int
    values: tuple[str, str]
    count: int
    size: int
    #: of floats: their distance in units of the last place
    ulp: int | None

    @property
    def apart(self) -> str:
        """The distance, as the end of a sentence."""
        return "" if self.ulp is None else f", {self.ulp} ulp apart"


def first_difference(one: Array, two: Array, type_: ElementType) -> Difference | None:
    """Where the bits of two buffers differ, or None."""
    one, two = one.reshape(-1), two.reshape(-1)
    a, b = patterns(one), patterns(two)
    different = np.flatnonzero(a != b)
    if not different.size:
        return None
    at = int(different[0])
    return Difference(
        index=at,
        values=(_shown(one[at], a[at], type_), _shown(two[at], b[at], type_)),
        count=int(different.size),
        size=a.size,
        ulp=_ulp(one[at], two[at], type_),
    )


def compare(
    name: str, got: Array, expected: Array, type_: ElementType, origin: str
) -> Finding | None:
    """The finding for a buffer whose bits are not those expected, or None.

    It gives the first element that differs, how many do, both values, and for floats their
    distance in units of the last place.
    """
    found = first_difference(got, expected, type_)
    if found is None:
        return None
    values: dict[str, str | int] = {
        "buffer": name, "index": found.index, "got": found.values[0], "expected": found.values[1],
    }  # fmt: skip
    if found.ulp is not None:
        values["ulp"] = found.ulp
    return Finding(
        class_="mismatch",
        code=FINDING_CODES["mismatch"],
        message=(
            f"{found.count} of {found.size} elements of '{name}' differ from {origin}; the first is"
            f" {name}[{found.index}]: {found.values[0]} instead of {found.values[1]}{found.apart}"
        ),
        line=0,
        count=found.count,
        values=values,
    )


def _shown(element: Any, pattern: Any, type_: ElementType) -> str:
    """A value; for floats with its bits, since equal-looking numbers and NaNs can differ."""
    value = decode(np.array([element], type_.dtype), type_)[0]
    if type_.format is None:
        return str(int(value))
    return f"{float(value):.9g} (0x{int(pattern):0{2 * type_.size}x})"


def _ulp(got: Any, expected: Any, type_: ElementType) -> int | None:
    if type_.format is None:
        return None
    pair = np.array([got, expected], type_.dtype)
    if not np.isfinite(decode(pair, type_)).all():
        return None
    first, second = ordinals(patterns(pair), type_.format)
    return abs(first - second)

"""Comparison of buffers with expected bits; a difference is the finding ``mismatch``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..report import FINDING_CODES, Finding
from .elements import ElementType, decode, ordinals, patterns

__all__ = ["compare", "differs_by_schedule"]

Array = NDArray[Any]


def compare(
    name: str, got: Array, expected: Array, type_: ElementType, origin: str
) -> Finding | None:
    """The finding for a buffer whose bits are not those expected, or None.

    It gives the first element that differs, how many do, both values, and for floats their
    distance in units of the last place.
    """
    a, b = patterns(got.reshape(-1)), patterns(expected.reshape(-1))
    different = np.flatnonzero(a != b)
    if not different.size:
        return None
    first = int(different[0])
    values: dict[str, str | int] = {
        "buffer": name,
        "index": first,
        "got": _shown(got.reshape(-1)[first], a[first], type_),
        "expected": _shown(expected.reshape(-1)[first], b[first], type_),
    }
    distance = _ulp(got.reshape(-1)[first], expected.reshape(-1)[first], type_)
    if distance is not None:
        values["ulp"] = distance
    return Finding(
        class_="mismatch",
        code=FINDING_CODES["mismatch"],
        message=(
            f"{different.size} of {a.size} elements of '{name}' differ from {origin};"
            f" the first is {name}[{first}]: {values['got']} instead of {values['expected']}"
            + (f", {distance} ulp apart" if distance is not None else "")
        ),
        line=0,
        count=int(different.size),
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


def differs_by_schedule(
    name: str, got: Array, base: Array, type_: ElementType, schedule: str
) -> Finding | None:
    """The finding for a buffer whose contents depend on the schedule, or None."""
    found = compare(name, got, base, type_, "the run with the default schedule")
    if found is None:
        return None
    return Finding(
        class_="schedule-dependent",
        code=FINDING_CODES["schedule-dependent"],
        message=f"with --schedule {schedule}, {found.message}",
        line=0,
        count=found.count,
        help="the program relies on an order of threads that nothing enforces",
        values={"schedule": schedule, **found.values},
    )

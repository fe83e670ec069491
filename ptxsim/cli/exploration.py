"""Launches on further schedules: findings that only they have, and buffers that differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from ..diagnostics import Severity
from ..report import FINDING_CODES, Finding, Output, Report
from .compare import Array, first_difference
from .elements import ElementType

__all__ = ["differs_by_schedule", "explore", "further_schedules", "seen_with"]

#: Orders of lanes, warps and copies that a wrong kernel can least bear.
_ADVERSE = ("reverse", "warp-serial", "early-async")


def further_schedules(count: int, first: str = "default") -> list[str]:
    """The schedules behind the first one: adverse orders, then ``count`` random ones.

    >>> further_schedules(2)
    ['reverse', 'warp-serial', 'early-async', 'random:0', 'random:1']
    """
    if not count:
        return []
    every = ("default", *_ADVERSE, *(f"random:{seed}" for seed in range(count)))
    return [schedule for schedule in every if schedule != first]


def explore(
    base: Report,
    first: str,
    schedules: Iterable[str],
    launch: Callable[[str], Report],
    types: Mapping[str, ElementType],
) -> list[Finding]:
    """What further schedules show of a launch that was clean on the ``first``.

    It ends with the first schedule that has an error or leaves a buffer of ``types`` different.
    """
    known = {_place(f) for f in base.findings}
    found: list[Finding] = []
    for schedule in schedules:
        other = launch(schedule)
        for f in other.findings:
            if f.severity is not Severity.ADVICE and _place(f) not in known:
                known.add(_place(f))
                found.append(seen_with(f, schedule))
        if not other.clean:
            return found
        pair = first, schedule
        different = [
            differs_by_schedule(name, base.outputs[name], other.outputs[name], type_, pair)
            for name, type_ in types.items()
        ]
        if any(different):
            return [*found, *(f for f in different if f is not None)]
    return found


def _place(f: Finding) -> tuple[str, int, int | None]:
    return f.class_, f.line, f.other_line


def seen_with(finding: Finding, schedule: str) -> Finding:
    """A finding that says on which schedule it was seen."""
    return replace(
        finding,
        message=f"{finding.message} (seen with --schedule {schedule})",
        values={**finding.values, "schedule": schedule},
    )


def differs_by_schedule(
    name: str, one: Output | Array, two: Output | Array, type_: ElementType, pair: tuple[str, str]
) -> Finding | None:
    """The finding for a buffer that differs between the launches on a pair of schedules, or None.

    Either of the two options ``--schedule`` in its message repeats one of the launches.
    """
    arrays = [v.array if isinstance(v, Output) else v for v in (one, two)]
    found = first_difference(arrays[0], arrays[1], type_)
    if found is None:
        return None
    values: dict[str, str | int] = {
        "buffer": name, "index": found.index,
        "schedule": pair[0], "value": found.values[0],
        "other_schedule": pair[1], "other_value": found.values[1],
    }  # fmt: skip
    if found.ulp is not None:
        values["ulp"] = found.ulp
    return Finding(
        class_="schedule-dependent",
        code=FINDING_CODES["schedule-dependent"],
        message=(
            f"{found.count} of {found.size} elements of '{name}' depend on the schedule; the first"
            f" is {name}[{found.index}]: {found.values[0]} with --schedule {pair[0]},"
            f" {found.values[1]} with --schedule {pair[1]}{found.apart}"
        ),
        line=0,
        count=found.count,
        help="the program relies on an order of threads that nothing enforces",
        values=values,
    )

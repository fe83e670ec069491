"""Kernels whose ``index.tsv`` says what a checker must report, shared by their tests.

Columns: verdict, another verdict that is as right (``also_ok``), the line of the fault and, of a
pair, the other line.  The header of each file says how it is launched and, as ``ref``, what holds
after a correct launch; that condition stands as Python code in the tests.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ptxsim
from ptxsim.cli.header import parse_header

__all__ = ["SCHEDULES", "Condition", "Launched", "Row", "faults", "launch", "rows"]

SCHEDULES = (
    "default", "reverse", "warp-serial", "early-async", *(f"random:{seed}" for seed in range(1, 6)),
)  # fmt: skip

#: What holds of the buffers of a correct launch, which are given by their names.
Condition = Callable[..., Any]

#: Two parties of one fault: which of them the report names second depends on the order of threads.
PAIRS = ("race-shared", "race-global", "async-race")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of ``index.tsv``; a line of 0 means that the kernel has none."""

    path: Path
    verdict: str
    also_ok: str
    line: int
    other_line: int

    @property
    def file(self) -> str:
        return self.path.name

    @property
    def number(self) -> str:
        """What a kernel and its corrected twin may share: conditions are filed under it."""
        return self.file[:3]


@dataclass(frozen=True, slots=True)
class Launched:
    """A launch that ended and what its buffers hold."""

    report: ptxsim.Report
    buffers: Mapping[str, NDArray[Any]]

    def meets(self, condition: Condition) -> bool:
        return bool(np.all(condition(**self.buffers)))


def rows(folder: Path) -> list[Row]:
    """The rows of a folder; a file without a row, or a row without its file, is an error."""
    lines = (folder / "index.tsv").read_text().splitlines()
    found = [
        Row(folder / file, verdict, also_ok, _line(line), _line(other_line))
        for file, verdict, also_ok, line, other_line in _columns(lines)
    ]
    assert sorted(r.path for r in found) == sorted(folder.glob("*.ptx"))
    return found


def _columns(lines: list[str]) -> list[list[str]]:
    names = ("file", "verdict", "also_ok", "line", "other_line")
    return [[row[name] for name in names] for row in csv.DictReader(lines, delimiter="\t")]


def _line(text: str) -> int:
    return 0 if text == "-" else int(text)


def launch(path: Path, schedule: str, text: str | None = None) -> Launched:
    """Launches the kernel of a file (or of a text in its place) as the header says."""
    text = path.read_text() if text is None else text
    header = parse_header(text, path.name, path.parent)
    arguments = {spec.name or "": spec.make() for spec in header.args}
    assert header.launch.grid and header.launch.block
    report = (
        ptxsim.assemble(text, name=path.name)
        .kernel()
        .launch(
            grid=header.launch.grid, block=header.launch.block,
            args=list(arguments.values()), schedule=schedule,
        )
    )  # fmt: skip
    buffers = {n: a for n, a in arguments.items() if isinstance(a, np.ndarray)}
    return Launched(report, buffers)


def faults(row: Row, launched: Launched, schedule: str, *, turned: bool = False) -> list[str]:
    """What a report lacks of what its row says: nothing, if it says all of it.

    On the default schedule the first error names the lines as the row does, or, if ``turned``, the
    other way round; on the others some error of the verdict's class does so in either order.
    """
    report = launched.report
    errors = [f for f in report.findings if f.severity.value == "error"]
    if row.verdict == "clean":
        return [f"{f.class_} at {f.line}" for f in errors]
    if report.verdict != row.verdict:
        # the fault shows in another place then, which no row names
        return [] if report.verdict == row.also_ok else [f"verdict {report.verdict}"]
    wanted = (row.line, row.other_line)
    if schedule == "default":
        wanted = wanted[::-1] if turned else wanted
        found = [(errors[0].line, errors[0].other_line or 0)]
    else:
        found = [(f.line, f.other_line or 0) for f in errors if f.class_ == row.verdict]
        if row.verdict in PAIRS:
            found += [pair[::-1] for pair in found]
    if not row.other_line:
        found = [(line, 0) for line, _ in found]
    return [] if wanted in found else [f"lines {found}"]

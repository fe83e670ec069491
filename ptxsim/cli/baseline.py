"""The baseline: findings of an old code base that are known, so that only new ones count.

The file is JSON.  An entry says which finding by the code of its lines, so that it stays true when
lines move, and how often it occurs; occurrences beyond that are new.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from ..diagnostics import Source
from ..errors import UsageError
from ..report import Finding, LeftOut, Report
from .files import read_text, write_text
from .places import Identity, identity

__all__ = ["Baseline", "read_baseline", "write_baseline"]

#: The version of the file's shape.
_VERSION = 1
_REASON = "in the baseline"


class Baseline:
    """Known findings with the number of places at which each occurs."""

    def __init__(self, known: Counter[Identity]) -> None:
        self.known = known
        self._seen: dict[Identity, list[tuple[int, int | None]]] = {}

    def find(self, finding: Finding, report: Report, source: Source | None) -> LeftOut | None:
        """The finding as one that is known, or None if it is new.

        The same place may come again (in another schedule) and counts once.
        """
        who = identity(finding, report.file, report.entry, source)
        places = self._seen.setdefault(who, [])
        at = (finding.line, finding.other_line)
        if at not in places:
            if len(places) >= self.known[who]:
                return None
            places.append(at)
        return LeftOut(finding, "baseline", _REASON)


def read_baseline(path: str) -> Baseline:
    """The baseline in a file; :class:`UsageError` if it is none."""
    name, text = read_text(path)
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise UsageError(f"{name}: not a baseline: {error}") from None
    if not isinstance(data, dict) or data.get("ptxsim-baseline") != _VERSION:
        raise UsageError(f"{name}: not a baseline of this version (ptxsim-baseline: {_VERSION})")
    entries = data.get("findings")
    if not isinstance(entries, list):
        raise UsageError(f"{name}: 'findings' is a list")
    known: Counter[Identity] = Counter()
    for number, entry in enumerate(entries):
        known[_entry(entry, f"{name}: findings[{number}]")] += _times(entry, name, number)
    return Baseline(known)


def _entry(entry: Any, where: str) -> Identity:
    keys = ("file", "entry", "class", "line", "other_line")
    if not isinstance(entry, dict) or not all(isinstance(entry.get(k), str) for k in keys):
        raise UsageError(f"{where}: has the texts {', '.join(keys)}")
    return Identity(*(entry[k] for k in keys))


def _times(entry: dict[str, Any], name: str, number: int) -> int:
    times = entry.get("times", 1)
    if isinstance(times, bool) or not isinstance(times, int) or times < 1:
        raise UsageError(f"{name}: findings[{number}]: 'times' is a positive number")
    return times


def write_baseline(
    path: str,
    report: Report,
    findings: Iterable[Finding],
    source: Source | None,
    old: Baseline | None = None,
) -> None:
    """Write the findings of a launch, and what ``old`` knows of other files and entries."""
    here = (PurePath(report.file).name, report.entry)
    known: Counter[Identity] = Counter()
    for who, times in (old.known if old else Counter[Identity]()).items():
        if (who.file, who.entry) != here:
            known[who] = times
    known.update(identity(f, report.file, report.entry, source) for f in findings)
    entries = [
        {
            "file": who.file,
            "entry": who.entry,
            "class": who.class_,
            "line": who.text,
            "other_line": who.other_text,
            "times": times,
        }
        for who, times in sorted(known.items())
    ]
    write_text(
        path, json.dumps({"ptxsim-baseline": _VERSION, "findings": entries}, indent=2) + "\n"
    )

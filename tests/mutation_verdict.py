"""Killed, equivalent or missed: the verdict on one mutant, and the table of many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from tests.mutation import MUTATORS, Mutant
from tests.mutation_runs import SCHEDULES, Run, Subject, run

__all__ = ["Verdict", "judge", "table"]


#: These change what is computed; the others, in what order it happens.
DATA = ("shift-offset", "change-multiplier", "drop-guard")


@dataclass(frozen=True, slots=True)
class Verdict:
    """``kind`` is killed, result, equivalent or missed; ``why`` a class or a rule."""

    subject: str
    mutant: Mutant
    kind: str
    why: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.mutant}: {self.kind}: {self.why}"


@cache
def _original(subject: Subject, schedule: str) -> Run:
    return run(subject, subject.text, schedule, history=schedule == "default")


def judge(subject: Subject, mutant: Mutant) -> Verdict:
    """What the tool makes of a mutant, and if nothing, whether there is anything."""
    kind, why = _judge(subject, mutant)
    return Verdict(subject.name, mutant, kind, why)


def _judge(subject: Subject, mutant: Mutant) -> tuple[str, str]:
    original = _original(subject, "default")
    limit = 5_000 + 5 * original.instructions
    runs = {}
    for schedule in SCHEDULES:
        found = runs[schedule] = run(subject, mutant.text, schedule, limit)
        if found.errors and found.errors[0][0] == "static-error":
            return "invalid", f"line {found.errors[0][1]}"
        if found.errors:
            where = "" if schedule == "default" else f" on {schedule}"
            return "killed", found.errors[0][0] + where
        if mutant.mutator in DATA and found.results != original.results:
            return "result", schedule
    for schedule, found in runs.items():
        if found.results != _original(subject, schedule).results:
            return "result", schedule
    seen = run(subject, mutant.text, limit=limit, history=True)
    if seen.unordered:
        return "missed", str(seen.unordered)
    if seen.digest == original.digest:
        return "equivalent", "the same accesses, all ordered"
    return "open", "other accesses, all ordered, with the same results"


def table(verdicts: Iterable[Verdict]) -> str:
    """Counts of each kind by mutator."""
    kinds = ("killed", "result", "equivalent", "open", "missed", "invalid")
    count = Counter((v.mutant.mutator, v.kind) for v in verdicts)
    lines = ["mutator              " + "".join(f"{k:>12}" for k in kinds)]
    for m in (*MUTATORS, None):
        row = [sum(n for (a, b), n in count.items() if b == k and m in (a, None)) for k in kinds]
        if any(row):
            lines.append(f"{m or 'all':21}" + "".join(f"{n:12}" for n in row))
    return "\n".join(lines)

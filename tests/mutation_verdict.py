"""Killed, equivalent or missed: the verdict on one mutant, and the table of many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from tests.mutation import MUTATORS, Mutant
from tests.mutation_runs import SCHEDULES, Found, Run, Subject, run

__all__ = ["DATA", "SAME_ACCESSES", "SAME_RESULTS", "Verdict", "false_alarms", "judge", "table"]


#: These change what is computed; the others, in what order it happens.
DATA = ("shift-offset", "change-multiplier", "drop-guard")

#: The rules by which a mutant is without effect.  Both want the history free of unordered pairs:
#: then nothing can be read but the write that comes last before it in causality order, so that
#: every execution reads and writes what this one did (PTX ISA 9.1, Memory Consistency Model: a
#: program without data races; strong accesses that race by design are run on all schedules).
SAME_ACCESSES = "the same accesses, all ordered"
SAME_RESULTS = "other accesses, all ordered, with the same results"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``kind`` and why: a class, a schedule, or a rule.

    killed: by an error; result: no error, other results; warned: a race that is no error;
    equivalent: without effect by a rule; missed: none of these; invalid: not PTX.
    """

    subject: str
    mutant: Mutant
    kind: str
    why: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.mutant}: {self.kind}: {self.why}"


@cache
def _original(subject: Subject, schedule: str) -> Run:
    return run(subject, subject.text, schedule, history=schedule == "default")


def _limit(subject: Subject, schedule: str) -> int:
    """Instructions after which a loop does not end; a warp at a time issues more of them."""
    return 5_000 + 5 * _original(subject, schedule).instructions


def judge(subject: Subject, mutant: Mutant, tools: str = "all") -> Verdict:
    """What the tool makes of a mutant, and if nothing, whether there is anything."""
    kind, why = _judge(subject, mutant, tools)
    return Verdict(subject.name, mutant, kind, why)


def _judge(subject: Subject, mutant: Mutant, tools: str) -> tuple[str, str]:
    original = _original(subject, "default")
    runs = {}
    for schedule in SCHEDULES:
        limit = _limit(subject, schedule)
        found = runs[schedule] = run(subject, mutant.text, schedule, limit=limit, tools=tools)
        if found.errors and found.errors[0].class_ == "static-error":
            return "invalid", f"line {found.errors[0].line}"
        if found.errors:
            where = "" if schedule == "default" else f" on {schedule}"
            return "killed", found.errors[0].class_ + where
        if mutant.mutator in DATA and found.results != original.results:
            return "result", schedule
    for schedule, found in runs.items():
        if found.results != _original(subject, schedule).results:
            return "result", schedule
    limit = _limit(subject, "default")
    seen = run(subject, mutant.text, limit=limit, history=True, tools=tools)
    if seen.unordered:
        warned = [f for f in seen.others if f.race]
        return ("warned", str(warned)) if warned else ("missed", str(seen.unordered))
    same = seen.digest == original.digest
    return "equivalent", SAME_ACCESSES if same else SAME_RESULTS


def false_alarms(subject: Subject, mutant: Mutant, schedule: str) -> list[Found]:
    """Races that are reported but are pairs in order, or no pairs at all."""
    seen = run(subject, mutant.text, schedule, limit=_limit(subject, schedule), history=True)
    pairs = {pair[1:] for pair in seen.unordered} | {pair[:0:-1] for pair in seen.unordered}
    return [f for f in (*seen.errors, *seen.others) if f.race and f[1:] not in pairs]


def table(verdicts: Iterable[Verdict]) -> str:
    """Counts of each kind by mutator, and how many were killed by each class of finding."""
    verdicts = list(verdicts)
    kinds = ("killed", "result", "equivalent", "warned", "missed", "invalid")
    count = Counter((v.mutant.mutator, v.kind) for v in verdicts)
    lines = ["mutator              " + "".join(f"{k:>12}" for k in kinds)]
    for m in (*MUTATORS, None):
        row = [sum(n for (a, b), n in count.items() if b == k and m in (a, None)) for k in kinds]
        if any(row):
            lines.append(f"{m or 'all':21}" + "".join(f"{n:12}" for n in row))
    classes = Counter(v.why for v in verdicts if v.kind == "killed")
    return "\n".join([*lines, "", *(f"{n:6} {name}" for name, n in classes.most_common())])

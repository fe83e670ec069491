"""Findings that the user wants ignored: ``--suppress``, and comments in the PTX.

A comment ``// ptxsim: ignore[CODE, ...] reason`` speaks of the code on its line; alone on a line it
speaks of the next line with code.  CODE is a code or a class.  A finding with two parties is
ignored at either of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ..diagnostics import Source, did_you_mean
from ..errors import UsageError
from ..report import FINDING_CODES, Finding, LeftOut
from .clean import one_line
from .places import code_of

__all__ = ["Suppression", "Suppressions", "comments", "parse_option"]

_COMMENT = re.compile(r"//\s*ptxsim:\s*ignore\b(?:\s*\[([^\]]*)\])?[:\s]*(.*)$")
_CODE = re.compile(r"PTX\d{3}$")


@dataclass(frozen=True, slots=True)
class Suppression:
    """What is ignored: a code or class on a line, or on lines whose code fits a pattern."""

    name: str
    where: str
    by: str
    line: int | None = None
    pattern: str = "*"
    reason: str = ""

    def matches(self, finding: Finding, source: Source | None) -> bool:
        """Whether it speaks of this finding."""
        if self.name not in (finding.class_, finding.code):
            return False
        if self.line is not None:
            return self.line in (finding.line, finding.other_line)
        if self.pattern == "*":
            return True
        lines = (finding.line, finding.other_line)
        return any(fnmatchcase(code_of(source, line), self.pattern) for line in lines if line)


def _unknown(name: str) -> str | None:
    """What is wrong with a name, or None if a finding can have it."""
    if name in FINDING_CODES or _CODE.match(name):
        return None
    hint = did_you_mean(name, [*FINDING_CODES, *FINDING_CODES.values()])
    return f"'{name}' is no code or class of a finding" + (f"; {hint}" if hint else "")


def parse_option(text: str) -> Suppression:
    """The suppression that ``CODE[:LINE-GLOB]`` means; :class:`UsageError` for an unknown code.

    The pattern describes the whole code of a line, without its comment; ``*`` and ``?`` stand for
    other characters as in the shell, and brackets for themselves, since PTX is full of them.
    """
    name, _, pattern = text.partition(":")
    wrong = _unknown(name.strip())
    if wrong:
        raise UsageError(f"--suppress {one_line(text)}: {wrong}")
    pattern = " ".join(pattern.split()).replace("[", "[[]") or "*"
    return Suppression(name.strip(), f"--suppress {text}", "option", pattern=pattern)


def comments(source: Source) -> tuple[list[Suppression], list[str]]:
    """The suppressions that stand in a text, and what is wrong with comments that mean to be."""
    found: list[Suppression] = []
    wrong: list[str] = []
    for number, line in enumerate(source.lines, 1):
        m = _COMMENT.search(line.rstrip())
        if not m:
            continue
        where = f"{source.name}:{number}"
        names = [n.strip() for n in (m[1] or "").split(",") if n.strip()]
        if not names:
            wrong.append(f"{where}: advice: write ignore[CODE] with what to ignore")
        target = number if line[: m.start()].strip() else _next_code(source, number)
        for name in dict.fromkeys(names):
            problem = _unknown(name)
            if problem:
                wrong.append(f"{where}: advice: {problem}")
            else:
                found.append(Suppression(name, where, "comment", target, reason=m[2].strip()))
    return found, wrong


def _next_code(source: Source, number: int) -> int:
    """The first line with code behind a line, or that line itself if there is none."""
    for later in range(number + 1, len(source.lines) + 1):
        if code_of(source, later):
            return later
    return number


class Suppressions:
    """All suppressions of a run; remembers which of them ever matched."""

    def __init__(self, options: list[Suppression], source: Source) -> None:
        in_text, self._wrong = comments(source)
        self._source = source
        self._all = [*in_text, *options]
        self._used: set[Suppression] = set()

    def find(self, finding: Finding) -> LeftOut | None:
        """Why a finding is ignored, or None."""
        matching = [s for s in self._all if s.matches(finding, self._source)]
        self._used.update(matching)
        if not matching:
            return None
        return LeftOut(finding, matching[0].by, matching[0].reason)

    def advice(self) -> list[str]:
        """A line for each suppression without effect."""
        idle = (s for s in self._all if s not in self._used)
        return [*self._wrong, *(f"{s.where}: advice: no finding {s.name} to ignore" for s in idle)]

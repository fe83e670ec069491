"""CUDA C++ that is launched: NVRTC makes PTX of it, findings go back to its lines."""

from __future__ import annotations

import argparse
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..diagnostics import Diagnostic, Severity, Source, SourcePlace, Span
from ..errors import PtxError, UsageError
from ..report import Finding, FindingLog, Report
from ..targets import TARGETS

if TYPE_CHECKING:
    from ..api import Module
    from ..syntax.line_table import LineTable

__all__ = ["DEFAULT_TARGET", "LineMap", "compile_module", "is_cuda", "messages"]

#: The target of a file that names none.
DEFAULT_TARGET = "sm_80"

Place = tuple[int, int]
_NOWHERE: Place = (0, 0)


def is_cuda(path: str) -> bool:
    """Whether a file is CUDA C++ by its name."""
    return path.endswith((".cu", ".CU"))


def compile_module(
    args: argparse.Namespace, text: str, name: str, folder: Path, target: str | None
) -> tuple[Module, LineMap]:
    """The module that a CUDA C++ text is compiled to, with the way back to the lines of the text.

    :class:`PtxError` with what the compiler says if the text is wrong.
    """
    from ..nvidia import compile_cuda
    from .check import assemble_text
    from .clean import printable

    target = target or DEFAULT_TARGET
    if target not in TARGETS:
        raise UsageError(f"unknown target '{target}'; known: {', '.join(TARGETS)}")
    source = Source(name, text)
    done = compile_cuda(text, name, target, [*args.include, str(folder)], args.define)
    said = messages(done.log, source)
    if done.ptx is None:
        # an error in a form that is not known is shown as it is
        whole = Diagnostic("NVRTC", " ".join(done.log.split()), Span(1, 1, 1, 1))
        raise PtxError([d for d in said if d.severity is Severity.ERROR] or [whole], source)
    if not args.quiet:
        for d in said:
            print(printable(f"{name}:{d.span}: {d.severity.value}: {d.message}"), file=sys.stderr)
    module = assemble_text(done.ptx, f"{name}.ptx", None)
    return module, LineMap(module.lines, name)


# --- what the compiler says ---------------------------------------------------------------------

_SAID = re.compile(
    r"^(?P<file>.+)\((?P<line>\d+)\): (?P<level>catastrophic error|error|warning)"
    r"(?: #(?P<number>\d+)(?:-\w)?)?: (?P<text>.*)$"
)


def messages(log: str, source: Source) -> list[Diagnostic]:
    """The errors and warnings in a log of NVRTC; one about another file names that file itself."""
    out = []
    lines = log.rstrip("\0\n").split("\n")
    for index, line in enumerate(lines):
        m = _SAID.match(line)
        if m is None:
            continue
        error = m["level"] != "warning"
        here = _same(m["file"], source.name)
        span = _span(source, int(m["line"]), lines[index + 1 :]) if here else Span(1, 1, 1, 1)
        text = m["text"] if here else f"{m['file']}:{m['line']}: {m['text']}"
        code = f"NVRTC{m['number'] or ''}"
        out.append(Diagnostic(code, text, span, Severity.ERROR if error else Severity.WARNING))
    return out


def _span(source: Source, line: int, below: list[str]) -> Span:
    """The place that the caret under a message shows, or the line's start."""
    text = source.line(line)
    start = len(text) - len(text.lstrip()) + 1
    if len(below) > 1 and below[1].strip() == "^" and below[0][:2] == "  ":
        start = below[1].index("^") - 1
    return Span(line, start, line, start + 1)


def _same(file: str, name: str) -> bool:
    return os.path.abspath(file) == os.path.abspath(name)


# --- from lines of the PTX to lines of the CUDA C++ ---------------------------------------------


class LineMap:
    """Places of the PTX -> places of the CUDA C++ file ``name``; some belong to none of its lines.

    An instruction that was inlined from another file stands where the call is.
    """

    def __init__(self, table: LineTable, name: str) -> None:
        self._table = table
        self._name = name
        self._main: dict[str, bool] = {}

    def place(self, line: int, column: int = 0) -> Place:
        """The line and column in the CUDA C++, 0 if there is none."""
        for place in self._table.at(line, column):
            if self._is_main(place):
                return place.line, place.column
        return _NOWHERE

    def _is_main(self, place: SourcePlace) -> bool:
        known = self._main.get(place.file)
        if known is None:
            known = self._main[place.file] = _same(place.file, self._name)
        return known

    def line(self, number: int) -> int:
        """The line of the CUDA C++, 0 if there is none."""
        return self.place(number)[0]

    def apply(self, report: Report, name: str) -> Report:
        """The report as one about the CUDA C++; findings that meet there become one."""
        log = FindingLog()
        for finding in report.findings:
            log.add(self.finding(finding))
        profile: dict[int, tuple[int, int]] = {}
        for number, (steps, lanes) in report.profile.items():
            line = self.line(number)
            before = profile.get(line, (0, 0))
            if line:
                profile[line] = (before[0] + steps, before[1] + lanes)
        report.file, report.findings = name, log.findings()
        report.profile = dict(sorted(profile.items()))
        return report

    def finding(self, f: Finding) -> Finding:
        """A finding about the PTX as one about the CUDA C++."""
        line, column = self.place(f.line, f.column)
        other, other_column = self.place(f.other_line or 0, f.other_column)
        ordering = None if f.ordering is None else self._words(f.ordering)
        return replace(
            f,
            line=line,
            column=column,
            other_line=None if f.other_line is None else other,
            other_column=other_column,
            ordering=ordering,
            ordering_line=None if f.ordering_line is None else self.line(f.ordering_line),
            message=self._words(f.message),
            help=None if f.help is None else self._words(f.help),
            source=self._inlined(f.source),
            other_source=self._inlined(f.other_source),
            values={**f.values, **({"ptx_line": f.line} if f.line else {})},
        )

    def _inlined(self, source: tuple[SourcePlace, ...]) -> tuple[SourcePlace, ...]:
        """The places, where they say more than the line of the file does."""
        return () if len(source) == 1 and self._is_main(source[0]) else source

    def _words(self, text: str) -> str:
        """A sentence that names lines; a line without a counterpart stays one of the PTX."""
        return re.sub(r"\bline (\d+)\b", self._word, text)

    def _word(self, match: re.Match[str]) -> str:
        line = self.line(int(match[1]))
        return f"line {line}" if line else f"PTX line {match[1]}"

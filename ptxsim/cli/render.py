"""How findings, diagnostics and buffers are shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..diagnostics import Diagnostic, Source, render
from ..errors import UsageError
from ..report import Finding, Report
from ..syntax.line_table import LineTable
from .clean import one_line, printable
from .color import colored
from .text import annotation, come_from, concise, full, origin, summary

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .elements import ElementType

__all__ = [
    "FORMATS",
    "check_format",
    "diagnostic_finding",
    "diagnostic_json",
    "render_array",
    "render_diagnostics",
    "render_report",
    "render_reports",
    "summary",
]

FORMATS = ("full", "concise", "json", "sarif", "github", "junit", "sanitizer")


def check_format(name: str) -> str:
    """The format of that name; :class:`UsageError` names those that there are."""
    if name not in FORMATS:
        raise UsageError(f"format '{name}' is not available; use one of {', '.join(FORMATS)}")
    return name


def render_report(
    report: Report,
    source: Source | None,
    style: str,
    limit: int = 100,
    quiet: bool = False,
    color: bool = False,
    advice: Sequence[str] = (),
) -> str:
    """The findings of a launch as text in a format; ``limit`` 0 shows all of them.

    Formats for programs (json, sarif, junit) always hold all.  ``advice`` are further lines for
    the summary.
    """
    if style in ("json", "sarif", "junit"):
        return render_reports([(report, source)], style)
    shown = report.findings[: limit or None]
    hidden = len(report.findings) - len(shown)
    plural = "s" if hidden > 1 else ""
    more = [f"{hidden} more finding{plural}; --print-limit 0 shows all"] if hidden else []
    if style == "sanitizer":
        from .sanitizer import render_sanitizer

        return render_sanitizer(report, source, shown, more, quiet)
    blocks = [_finding(f, report.file, source, style) for f in shown]
    if style != "github":
        blocks += more
        if not quiet:
            blocks += [summary(report), *(f"{one_line(text)}" for text in advice)]
    text = "".join(b + "\n" for b in blocks)
    return colored(text) if color and style in ("full", "concise") else text


def render_reports(reports: Sequence[tuple[Report, Source | None]], style: str) -> str:
    """Reports as one document: ``sarif`` or ``junit``, or ``json`` of a single one."""
    if style == "sarif":
        from .sarif import render_sarif

        return render_sarif(reports)
    if style == "junit":
        from .junit import render_junit

        return render_junit(reports)
    ((report, _),) = reports
    return json.dumps(report.to_json(), indent=2) + "\n"


def _finding(f: Finding, name: str, source: Source | None, style: str) -> str:
    if style == "concise":
        return concise(f, name)
    if style == "github":
        title = f"{f.class_} [{f.code}]"
        come = [f"{what}: {where}" for what, where, _ in origin(f.source)]
        text = "\n".join([f.message, *come, *([] if f.help is None else [f"help: {f.help}"])])
        return annotation(f.severity, name, f.line, f.column, title, text)
    return full(f, name, source)


def render_diagnostics(
    items: tuple[Diagnostic, ...], source: Source, style: str, color: bool = False
) -> str:
    """Messages about a text, in the formats full, concise and github."""
    if style == "github":
        lines = [
            annotation(d.severity, source.name, d.span.line, d.span.column, d.code, d.message)
            for d in items
        ]
        return "".join(line + "\n" for line in lines)
    is_full = style == "full"
    table = LineTable(source.text)
    blocks = []
    for d in items:
        blocks.append(printable(render(d, source, full=is_full)))
        if is_full:
            blocks += come_from(table.at(d.span.line, d.span.column))
    text = "".join(block + "\n" for block in blocks)
    return colored(text) if color else text


def diagnostic_finding(d: Diagnostic, lines: LineTable) -> Finding:
    """A message about a text as a finding, for formats that know nothing else."""
    class_ = {"PTX400": "unsupported", "PTX401": "disagreement"}.get(d.code, "static-error")
    at = d.span.line, d.span.column
    return Finding(class_, d.code, d.message, *at, d.severity, help=d.help, source=lines.at(*at))


def diagnostic_json(d: Diagnostic) -> dict[str, Any]:
    """A message about a text as an object of a JSON report."""
    return {
        "code": d.code,
        "severity": d.severity.value,
        "line": d.span.line,
        "column": d.span.column,
        "message": d.message,
        "help": d.help,
        "notes": [text for text, _ in d.notes],
    }


def render_array(name: str, array: NDArray[Any], type_: ElementType, limit: int = 256) -> str:
    """A buffer as text: eight elements a line, each line with the index of its first."""
    from .elements import decode

    values = decode(array.reshape(-1)[:limit], type_)
    words = [f"{v:.9g}" if type_.kind == "f" else str(v) for v in values.tolist()]
    width = max((len(w) for w in words), default=0)
    gutter = len(str(max(len(words) - 1, 0)))
    out = [f"{name} {type_}[{array.size}]"]
    for start in range(0, len(words), 8):
        row = " ".join(w.rjust(width) for w in words[start : start + 8])
        out.append(f"  {start:>{gutter}}: {row}")
    if array.size > limit:
        out.append(f"  ... {array.size - limit} more")
    return "\n".join(out) + "\n"

"""How findings, diagnostics and buffers are shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..diagnostics import Diagnostic, Severity, Source, Span, excerpt, render
from ..errors import UsageError
from ..report import MAX_CTAS, Finding, Report, compress_lanes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .elements import ElementType

__all__ = [
    "FORMATS",
    "check_format",
    "diagnostic_json",
    "render_array",
    "render_diagnostics",
    "render_report",
    "summary",
]

FORMATS = ("full", "concise", "json", "github")

_SEVERITY = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.ADVICE: "notice"}


def check_format(name: str) -> str:
    """The format of that name; :class:`UsageError` names those that there are."""
    if name not in FORMATS:
        raise UsageError(f"format '{name}' is not available; use one of {', '.join(FORMATS)}")
    return name


def render_report(
    report: Report, source: Source | None, style: str, limit: int = 100, quiet: bool = False
) -> str:
    """The findings of a launch as text in a format; ``limit`` 0 shows all of them."""
    if style == "json":
        return json.dumps(report.to_json(), indent=2) + "\n"
    shown = report.findings[: limit or None]
    blocks = [_finding(f, report.file, source, style) for f in shown]
    hidden = len(report.findings) - len(shown)
    if hidden and style != "github":
        blocks.append(f"{hidden} more findings; --print-limit 0 shows all")
    if not quiet and style != "github":
        blocks.append(summary(report))
    return "".join(b + "\n" for b in blocks)


def summary(report: Report) -> str:
    """The verdict in one line."""
    where = f"{report.file}: '{report.entry}' on {report.target}"
    if not report.findings:
        return f"{where}: clean"
    counts = [
        (sum(f.severity is severity for f in report.findings), severity.value)
        for severity in Severity
    ]
    parts = [f"{n} {word}{'s' if n > 1 and word != 'advice' else ''}" for n, word in counts if n]
    return f"{where}: {report.verdict} ({', '.join(parts)})"


def _finding(f: Finding, name: str, source: Source | None, style: str) -> str:
    place = f"{name}:{f.line}:{f.column}" if f.line else name
    if style == "concise":
        return f"{place}: {f.class_}: {f.message} [{f.code}]"
    if style == "github":
        title = f"{f.class_} [{f.code}]"
        text = f.message if f.help is None else f"{f.message}\nhelp: {f.help}"
        return _annotation(f.severity, name, f.line, f.column, title, text)
    out = [f"{place}: {f.severity.value}: {f.class_}: {f.message} [{f.code}]"]
    if source is not None and f.line:
        out += excerpt(source, _statement(source, f.line, f.column))
    where = _whereabouts(f)
    if where:
        out.append(f"  where: {where}")
    if f.values:
        out.append("  values: " + ", ".join(f"{k} = {v}" for k, v in f.values.items()))
    if f.other_line is not None:
        out.append(f"  other: {name}:{f.other_line}")
        if source is not None:
            out += excerpt(source, _statement(source, f.other_line, 0))
    if f.help:
        out.append(f"  help: {f.help}")
    return "\n".join(out)


def _whereabouts(f: Finding) -> str:
    """CTA, warp, lanes and address of the first occurrence, and how many there were."""
    parts = []
    if f.ctas:
        cta = ",".join(map(str, f.ctas[0]))
        others = len(f.ctas) - 1
        more = " or more" if len(f.ctas) == MAX_CTAS else ""
        parts.append(f"cta ({cta})" + (f" and {others}{more} others" if others else ""))
    if f.warp is not None:
        parts.append(f"warp {f.warp}")
    if f.lanes:
        parts.append(f"lane{'s' if len(set(f.lanes)) > 1 else ''} {compress_lanes(f.lanes)}")
    if f.address is not None:
        parts.append(f"{f.space or 'generic'} address {f.address:#x}")
    if f.count > 1:
        parts.append(f"{f.count} occurrences")
    return ", ".join(parts)


def _statement(source: Source, line: int, column: int) -> Span:
    """The instruction that starts in a column of a line, or the first one of the line."""
    text = source.line(line)
    start = column or len(text) - len(text.lstrip()) + 1
    code = text.split("//", 1)[0]
    end = code.find(";", start - 1)
    return Span(line, start, line, (end if end >= 0 else len(code.rstrip())) + 1)


def _annotation(
    severity: Severity, name: str, line: int, column: int, title: str, text: str
) -> str:
    """A workflow command of GitHub Actions, which shows a message at a line of a file."""
    fields = [f"file={_escaped(name)}"]
    if line:
        fields.append(f"line={line}")
    if column:
        fields.append(f"col={column}")
    fields.append(f"title={_escaped(title)}")
    return f"::{_SEVERITY[severity]} {','.join(fields)}::{_escaped_data(text)}"


def _escaped_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escaped(text: str) -> str:
    return _escaped_data(text).replace(":", "%3A").replace(",", "%2C")


def render_diagnostics(items: tuple[Diagnostic, ...], source: Source, style: str) -> str:
    """Messages about a text, in any format but json."""
    if style == "github":
        lines = [
            _annotation(d.severity, source.name, d.span.line, d.span.column, d.code, d.message)
            for d in items
        ]
    else:
        lines = [render(d, source, full=style == "full") for d in items]
    return "".join(line + "\n" for line in lines)


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

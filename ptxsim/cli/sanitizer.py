"""Reports in the layout that users of GPU checkers search: lines start with ``=========``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .._version import __version__
from ..diagnostics import Severity, Source, SourcePlace
from ..report import Finding, Report
from .clean import one_line
from .places import statement
from .text import has_parties, origin, party, place, whereabouts

__all__ = ["render_sanitizer"]

_BAR = "========="


def render_sanitizer(
    report: Report,
    source: Source | None,
    findings: Iterable[Finding],
    more: Iterable[str] = (),
    quiet: bool = False,
) -> str:
    """Some findings, a word on further ones, and unless ``quiet`` who speaks and the totals."""
    head = f"PTXSIM {__version__}: {report.file}"
    if report.entry:
        head += f", entry {report.entry}, target {report.target}"
    lines: list[str] = [] if quiet else [head]
    for f in findings:
        lines += [*_finding(f, report, source), ""]
    lines += more
    if not quiet:
        lines.append(_totals(report))
    return "".join(f"{_BAR} {one_line(line)}".rstrip() + "\n" for line in lines)


def _finding(f: Finding, report: Report, source: Source | None) -> Iterator[str]:
    yield f"{f.severity.value.capitalize()} {f.class_} [{f.code}]: {f.message}"
    yield f"    at {place(f, report.file)}" + (f" in {report.entry}" if report.entry else "")
    yield from _code(source, f.line, f.column)
    yield from _origin(f.source)
    who = whereabouts(f)
    if who:
        yield f"    by {who}"
    if f.address is not None:
        yield f"    address {f.address:#x} in {f.space or 'generic'} memory"
    if f.other_line is not None:
        column = f":{f.other_column}" if f.other_column else ""
        what = "other party" if has_parties(f) else "other line"
        yield f"    {what} at {report.file}:{f.other_line}{column}"
        yield from _code(source, f.other_line, f.other_column)
        yield from _origin(f.other_source)
        other = party(f.other_cta, f.other_warp, f.other_lanes)
        if other:
            yield f"    by {other}"
    if f.ordering:
        yield f"    order: {f.ordering}"
    for name, value in f.values.items():
        yield f"    {name} = {value}"
    if f.count > 1:
        yield f"    {f.count} occurrences"
    if f.help:
        yield f"    cure: {f.help}"


def _code(source: Source | None, line: int | None, column: int) -> Iterator[str]:
    if source is not None and line:
        span = statement(source, line, column)
        code = source.line(line).split("//", 1)[0]
        statement_text = code[span.column - 1 : span.end_column].strip()
        if statement_text:
            yield "        " + statement_text


def _origin(source: tuple[SourcePlace, ...]) -> Iterator[str]:
    for what, where, p in origin(source):
        yield f"    {what} {where}"
        if p.text is not None and p.text.strip():
            yield "        " + p.text.strip()


def _totals(report: Report) -> str:
    counts = {s: sum(f.severity is s for f in report.findings) for s in Severity}
    errors, warnings = counts[Severity.ERROR], counts[Severity.WARNING]
    text = (
        f"ERROR SUMMARY: {errors} error{'s' * (errors != 1)}, "
        f"{warnings} warning{'s' * (warnings != 1)}, {counts[Severity.ADVICE]} advice"
    )
    return text + (f", {len(report.left_out)} not shown" if report.left_out else "")

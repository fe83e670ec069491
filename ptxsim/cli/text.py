"""Findings as text for people: ``full``, ``concise`` and the annotations of GitHub Actions."""

from __future__ import annotations

from collections.abc import Iterator

from ..diagnostics import Severity, Source, SourcePlace, excerpt
from ..report import MAX_CTAS, Finding, Report, compress_lanes
from .clean import one_line, printable
from .places import statement

__all__ = [
    "annotation",
    "come_from",
    "concise",
    "full",
    "has_parties",
    "origin",
    "party",
    "place",
    "summary",
    "whereabouts",
]

_LEVEL = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.ADVICE: "notice"}
_LEFT_OUT = {"baseline": "in the baseline", "comment": "ignored by comments",
             "option": "left out by --suppress"}  # fmt: skip


def summary(report: Report) -> str:
    """The verdict in one line, and in further ones what was left out of it."""
    gpu = "" if report.device is None else f", {report.device['name']}"
    what = f": '{report.entry}' on {report.target}{gpu}" if report.entry else ""
    where = one_line(f"{report.file}{what}")
    counts = [
        (sum(f.severity is severity for f in report.findings), severity.value)
        for severity in Severity
    ]
    parts = [f"{n} {word}{'s' if n > 1 and word != 'advice' else ''}" for n, word in counts if n]
    out = [f"{where}: {report.verdict}" + (f" ({', '.join(parts)})" if parts else "")]
    if report.left_out:
        kinds = ((sum(k.by == by for k in report.left_out), text) for by, text in _LEFT_OUT.items())
        total = len(report.left_out)
        out.append(
            f"{where}: {total} finding{'s' if total > 1 else ''} not shown: "
            + ", ".join(f"{n} {text}" for n, text in kinds if n)
        )
        if report.stopped and report.clean:
            out.append(f"{where}: the launch stopped at one of them; its results are incomplete")
    return "\n".join(out)


def place(finding: Finding, name: str) -> str:
    """``file:line:column`` as far as the finding has them."""
    line = f":{finding.line}{_column(finding.column)}" if finding.line else ""
    return one_line(f"{name}{line}")


def concise(f: Finding, name: str) -> str:
    """A finding in one line."""
    line = f"{place(f, name)}: {f.class_}: {one_line(f.message)} [{f.code}]"
    return line + (f" from {one_line(str(f.source[0]))}" if f.source else "")


def origin(source: tuple[SourcePlace, ...]) -> Iterator[tuple[str, str, SourcePlace]]:
    """The places that an instruction comes from, as (what it is, where, the place)."""
    for number, p in enumerate(source):
        function = f" in {p.function}" if p.function else ""
        yield "inlined at" if number else "source", one_line(f"{p}{function}"), p


def full(f: Finding, name: str, source: Source | None) -> str:
    """A finding with its source, both parties, values and cure."""
    return "\n".join(printable(line) for line in _full(f, name, source))


def _full(f: Finding, name: str, source: Source | None) -> Iterator[str]:
    yield f"{place(f, name)}: {f.severity.value}: {f.class_}: {one_line(f.message)} [{f.code}]"
    yield from _excerpt(source, f.line, f.column)
    yield from come_from(f.source)
    if has_parties(f):
        yield from _parties(f, name, source)
        where = _circumstances(f)
    else:
        where = ", ".join(filter(None, (whereabouts(f), _circumstances(f))))
    if where:
        yield f"  where: {where}"
    if f.values:
        yield one_line("  values: " + ", ".join(f"{k} = {v}" for k, v in f.values.items()))
    if f.other_line is not None and not has_parties(f):
        yield f"  other: {one_line(name)}:{f.other_line}{_column(f.other_column)}"
        yield from _excerpt(source, f.other_line, f.other_column)
        yield from come_from(f.other_source)
    if f.help:
        yield f"  help: {one_line(f.help)}"


def has_parties(f: Finding) -> bool:
    """Whether more is known of the second party than its line."""
    return f.other_line is not None and (
        bool(f.other_lanes) or f.other_warp is not None or f.ordering is not None
    )


def _parties(f: Finding, name: str, source: Source | None) -> Iterator[str]:
    """Who accessed second (the excerpt above), who first, and what orders them up to there."""
    yield f"  second: {whereabouts(f) or 'unknown'}"
    who = party(f.other_cta, f.other_warp, f.other_lanes)
    at = f"{one_line(name)}:{f.other_line}{_column(f.other_column)}"
    yield f"  first: {at}" + (f", {who}" if who else "")
    yield from _excerpt(source, f.other_line, f.other_column)
    yield from come_from(f.other_source)
    if f.ordering:
        yield f"  order: {one_line(f.ordering)}"
        yield from _excerpt(source, f.ordering_line, 0)


def _column(column: int) -> str:
    return f":{column}" if column else ""


def _excerpt(source: Source | None, line: int | None, column: int) -> list[str]:
    return excerpt(source, statement(source, line, column)) if source is not None and line else []


def come_from(source: tuple[SourcePlace, ...]) -> Iterator[str]:
    """The lines of the program that the PTX was compiled from, with their text where it is."""
    for what, where, p in origin(source):
        yield f"  {what}: {where}"
        if p.text is not None:
            yield f"{p.line:>5} | {one_line(p.text.expandtabs(4))}"
            if p.column:
                yield " " * 5 + " | " + " " * len(p.text[: p.column - 1].expandtabs(4)) + "^"


def whereabouts(f: Finding) -> str:
    """CTA, warp and lanes of the first occurrence."""
    others = len(f.ctas) - 1
    more = " or more" if len(f.ctas) == MAX_CTAS else ""
    plural = "s" if others > 1 or more else ""
    tail = f" and {others}{more} other{plural}" if others > 0 else ""
    return party(f.ctas[0] if f.ctas else None, f.warp, f.lanes, tail)


def party(
    cta: tuple[int, int, int] | None, warp: int | None, lanes: tuple[int, ...], tail: str = ""
) -> str:
    """A party of an access; ``tail`` follows the CTA."""
    parts = []
    if cta is not None:
        parts.append(f"cta ({','.join(map(str, cta))}){tail}")
    if warp is not None:
        parts.append(f"warp {warp}")
    if lanes:
        parts.append(f"lane{'s' if len(set(lanes)) > 1 else ''} {compress_lanes(lanes)}")
    return ", ".join(parts)


def _circumstances(f: Finding) -> str:
    """The address, and how often it happened."""
    parts = []
    if f.address is not None:
        parts.append(f"{f.space or 'generic'} address {f.address:#x}")
    if f.count > 1:
        parts.append(f"{f.count} occurrences")
    return ", ".join(parts)


def annotation(severity: Severity, name: str, line: int, column: int, title: str, text: str) -> str:
    """A workflow command of GitHub Actions, which shows a message at a line of a file."""
    fields = [f"file={_escaped(name)}"]
    if line:
        fields.append(f"line={line}")
    if column:
        fields.append(f"col={column}")
    fields.append(f"title={_escaped(title)}")
    return f"::{_LEVEL[severity]} {','.join(fields)}::{_escaped_data(text)}"


def _escaped_data(text: str) -> str:
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return printable(escaped)


def _escaped(text: str) -> str:
    return _escaped_data(text).replace(":", "%3A").replace(",", "%2C")

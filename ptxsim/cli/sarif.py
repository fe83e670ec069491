"""Reports as SARIF 2.1.0, which code hosts and editors read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from .._version import __version__
from ..diagnostics import Severity, Source, SourcePlace
from ..report import FINDING_CODES, Finding, LeftOut, Report
from .places import fingerprints, statement
from .text import has_parties, origin, party, whereabouts

__all__ = ["render_sarif", "sarif_log"]

_LEVEL = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.ADVICE: "note"}
#: A suppression is a comment in the text or lies outside of it.
_KIND = {"comment": "inSource", "option": "external", "baseline": "external"}
_WHY = {"comment": "ignored by a comment", "option": "left out by --suppress",
        "baseline": "known from the baseline"}  # fmt: skip


def render_sarif(reports: Sequence[tuple[Report, Source | None]]) -> str:
    """The log as text."""
    log = json.dumps(sarif_log(reports), ensure_ascii=False)
    # half a surrogate pair (from a name that is no UTF-8) is nothing that JSON can carry
    whole = log.encode("utf-8", "replace").decode("utf-8")
    return json.dumps(json.loads(whole), indent=2) + "\n"


def sarif_log(reports: Sequence[tuple[Report, Source | None]]) -> dict[str, Any]:
    """One run with the results of all reports."""
    codes = dict.fromkeys(FINDING_CODES.values())
    for report, _ in reports:
        codes |= dict.fromkeys(f.code for f in _all(report))
    order = {code: index for index, code in enumerate(codes)}
    files = list(dict.fromkeys(report.file for report, _ in reports))
    results = [r for report, source in reports for r in _results(report, source, order)]
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "ptxsim",
                        "version": __version__,
                        "rules": [_rule(code) for code in codes],
                    }
                },
                "invocations": [{"executionSuccessful": True}],
                "artifacts": [{"location": {"uri": uri_of(file)}} for file in files],
                "columnKind": "unicodeCodePoints",
                "results": results,
            }
        ],
    }


def uri_of(file: str) -> str:
    """The URI reference of a file; bytes that are no UTF-8 stay what they are."""
    path = PurePath(file)
    name = path.as_posix()
    try:
        data = name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        data = name.encode("utf-8", "replace")
    text = quote(data)
    return f"file://{text}" if path.is_absolute() else text


def _rule(code: str) -> dict[str, Any]:
    """What is known of a code, the words of ``ptxsim explain``."""
    from ..explanations import find

    class_ = next((c for c, known in FINDING_CODES.items() if known == code), None)
    rule: dict[str, Any] = {"id": code}
    if class_:
        rule["name"] = "".join(word.capitalize() for word in class_.split("-"))
    explanation = find(code)
    title = explanation.title if explanation else (class_ or code).replace("-", " ")
    rule["shortDescription"] = {"text": title}
    if explanation:
        rule["fullDescription"] = {"text": explanation.meaning}
        rule["help"] = {"text": f"{explanation.meaning}\n\n{explanation.cure}"}
    rule["properties"] = {"tags": ["ptx", *([class_] if class_ else [])]}
    return rule


def _all(report: Report) -> list[Finding]:
    return [*report.findings, *(known.finding for known in report.left_out)]


def _results(report: Report, source: Source | None, order: dict[str, int]) -> list[dict[str, Any]]:
    findings = _all(report)
    reasons: list[LeftOut | None] = [*(None for _ in report.findings), *report.left_out]
    marks = fingerprints(findings, report.file, report.entry, source)
    return [
        _result(f, report, source, order, mark, reason)
        for f, mark, reason in zip(findings, marks, reasons, strict=True)
    ]


def _result(
    f: Finding,
    report: Report,
    source: Source | None,
    order: dict[str, int],
    mark: str,
    left_out: LeftOut | None,
) -> dict[str, Any]:
    location = _location(report.file, source, f.line, f.column)
    if report.entry:
        location["logicalLocations"] = [{"name": report.entry, "kind": "function"}]
    out: dict[str, Any] = {
        "ruleId": f.code,
        "ruleIndex": order[f.code],
        "level": _LEVEL[f.severity],
        "message": {"text": f"{f.message}\n{f.help}" if f.help else f.message},
        "locations": [location],
        "occurrenceCount": max(f.count, 1),
        "partialFingerprints": {"ptxsim/v1": mark},
        "properties": _properties(f),
    }
    related = _related(f, report.file, source)
    if related:
        out["relatedLocations"] = related
    if left_out is not None:
        out["suppressions"] = [
            {
                "kind": _KIND[left_out.by],
                "status": "accepted",
                "justification": left_out.reason or _WHY[left_out.by],
            }
        ]
    return out


def _location(file: str, source: Source | None, line: int | None, column: int) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": uri_of(file)}}
    if line:
        region: dict[str, Any] = {"startLine": line}
        if source is not None:
            span = statement(source, line, column)
            region |= {"startColumn": span.column, "endColumn": span.end_column}
            region["snippet"] = {"text": source.line(line)}
        elif column:
            region["startColumn"] = column
        physical["region"] = region
    return {"physicalLocation": physical}


def _related(f: Finding, file: str, source: Source | None) -> list[dict[str, Any]]:
    """The other party, and the last point at which both were in order."""
    out = []
    if f.other_line:
        who = party(f.other_cta, f.other_warp, f.other_lanes)
        text = "the other party" if has_parties(f) else "the other line"
        text += f": {who}" if who else ""
        place = _location(file, source, f.other_line, f.other_column)
        out.append({"id": 1, "message": {"text": text}, **place})
    if f.ordering and f.ordering_line:
        place = _location(file, source, f.ordering_line, 0)
        out.append({"id": 2, "message": {"text": f.ordering}, **place})
    return out + [_origin(n, text, p) for n, (text, p) in enumerate(_origins(f), 3)]


def _origins(f: Finding) -> Iterator[tuple[str, SourcePlace]]:
    """Where both parties come from in the program that the PTX was compiled from."""
    for source, who in ((f.source, ""), (f.other_source, " of the other party")):
        for what, _, p in origin(source):
            yield what + who + (f": {p.function}" if p.function else ""), p


def _origin(number: int, text: str, p: SourcePlace) -> dict[str, Any]:
    region: dict[str, Any] = {"startLine": p.line}
    if p.column:
        region["startColumn"] = p.column
    if p.text is not None:
        region["snippet"] = {"text": p.text}
    # two slashes in front would name another host
    uri = uri_of("/" + p.file.lstrip("/") if p.file.startswith("/") else p.file)
    physical = {"artifactLocation": {"uri": uri}, "region": region}
    return {"id": number, "message": {"text": text}, "physicalLocation": physical}


def _properties(f: Finding) -> dict[str, Any]:
    known: dict[str, Any] = {
        "class": f.class_,
        "who": whereabouts(f),
        "space": f.space,
        "address": None if f.address is None else f"{f.address:#x}",
        "ordering": f.ordering,
        "values": dict(f.values),
    }
    return {name: value for name, value in known.items() if value not in (None, "", {})}

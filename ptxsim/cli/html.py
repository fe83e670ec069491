"""A launch as one self-contained page: findings, heat of the lines, lanes and banks."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from .._version import __version__
from ..diagnostics import Severity, Source, SourcePlace
from ..report import Finding, Report
from .clean import printable
from .html_maps import bank_map, lane_grid
from .html_style import SCRIPT, STYLE
from .places import statement
from .text import has_parties, origin, party, place, whereabouts

__all__ = ["render_html"]

#: Lines around an excerpt.
_AROUND = 2
#: Lines of the listing; longer texts would make a page that no browser scrolls.
_MOST_LINES = 20000
#: Nothing is loaded from anywhere, whatever a text contains.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def render_html(report: Report, source: Source | None) -> str:
    """The page; it needs no other file and loads none."""
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{_e(report.verdict)}: {_e(report.file)}</title>",
        f"<style>{STYLE}</style></head><body>",
        *_summary(report),
        *_findings(report, source),
        *_left_out(report),
        *_listing(report, source),
        f"<script>{SCRIPT}</script></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _e(text: object) -> str:
    """Text for an element or a quoted attribute."""
    return escape(printable(str(text)))


# --- summary ------------------------------------------------------------------------------------


def _summary(report: Report) -> Iterator[str]:
    worst = "clean" if report.clean else "error"
    yield '<div class="card" id="summary">'
    yield f'<h1>{_e(report.file)} <span class="badge {worst}">{_e(report.verdict)}</span></h1>'
    yield (
        f'<div class="dim">entry <code>{_e(report.entry)}</code> on {_e(report.target)},'
        f" ptxsim {__version__}</div>"
    )
    if report.stopped:
        yield "<div>The launch stopped at a fault; results and counts end there.</div>"
    if report.counters:
        items = (f"<span>{_e(n.replace('_', ' '))} <b>{v:,}</b></span>"
                 for n, v in report.counters.items() if v)  # fmt: skip
        yield f'<div class="counters">{"".join(items)}</div>'
    for name, output in report.outputs.items():
        if output.undefined_bytes:
            yield f"<div>{output.undefined_bytes:,} bytes of {_e(name)} are undefined.</div>"
    yield "</div>"
    if report.printf:
        yield f"<h2>Printed by the kernel</h2><pre>{_e(report.printf)}</pre>"


# --- findings -----------------------------------------------------------------------------------


def _findings(report: Report, source: Source | None) -> Iterator[str]:
    yield f'<h2 id="findings">Findings ({len(report.findings)})</h2>'
    if not report.findings:
        yield '<p class="dim">None.</p>'
    counts = {s: sum(f.severity is s for f in report.findings) for s in Severity}
    if sum(n > 0 for n in counts.values()) > 1:
        buttons = (
            f'<button aria-pressed="true" data-hides=".finding.{s.value}">{s.value} {n}</button>'
            for s, n in counts.items()
            if n
        )
        yield f'<div class="tools">show {"".join(buttons)}</div>'
    for number, finding in enumerate(report.findings, 1):
        yield from _finding(finding, number, report, source)


def _finding(f: Finding, number: int, report: Report, source: Source | None) -> Iterator[str]:
    yield f'<article class="finding {f.severity.value}" id="f{number}">'
    count = f' <span class="dim">{f.count:,} times</span>' if f.count > 1 else ""
    yield (
        f'<header><span class="badge">{f.severity.value}</span> <b>{_e(f.class_)}</b>'
        f' <span class="dim">{_e(f.code)}</span>{count}</header>'
    )
    yield f'<div class="message">{_e(f.message)}</div>'
    two = has_parties(f)
    heading = "second access" if two else ""
    at = place(f, report.file)
    parties = [_party(heading, f.line, f.column, whereabouts(f), source, at, f.source)]
    if f.other_line is not None:
        who = party(f.other_cta, f.other_warp, f.other_lanes)
        at = f"{report.file}:{f.other_line}" + (f":{f.other_column}" if f.other_column else "")
        heading = "first access" if two else "other"
        other = _party(heading, f.other_line, f.other_column, who, source, at, f.other_source)
        parties.insert(0 if two else 1, other)
    yield f'<div class="parties">{"".join(parties)}</div>'
    facts = list(_facts(f))
    if facts:
        yield f"<dl>{''.join(f'<dt>{_e(n)}</dt><dd>{text}</dd>' for n, text in facts)}</dl>"
    yield from _pictures(f, two)
    if f.help:
        yield f'<p class="cure">{_e(f.help)}</p>'
    yield "</article>"


def _party(
    heading: str,
    line: int,
    column: int,
    who: str,
    source: Source | None,
    at: str,
    places: tuple[SourcePlace, ...],
) -> str:
    title = ", ".join(filter(None, (heading, at, who)))
    come = "".join(_origin(places))
    if source is None or not line:
        return f"<div><h3>{_e(title)}</h3>{come}</div>"
    code = _excerpt(source, line, column)
    return f'<div><h3><a href="#L{line}">{_e(title)}</a></h3>{code}{come}</div>'


def _origin(places: tuple[SourcePlace, ...]) -> Iterator[str]:
    """Where the instruction comes from in the program that the PTX was compiled from."""
    for what, where, p in origin(places):
        yield f'<div class="dim">{what} <code>{_e(where)}</code></div>'
        if p.text is not None:
            yield f"<pre><i>{p.line}</i>  {_e(p.text)}</pre>"


def _excerpt(source: Source, line: int, column: int) -> str:
    first, last = max(line - _AROUND, 1), min(line + _AROUND, len(source.lines))
    width = len(str(last))
    rows = []
    for number in range(first, last + 1):
        text = source.line(number)
        shown = _e(text)
        if number == line:
            span = statement(source, line, column)
            a, b = span.column - 1, span.end_column - 1
            shown = f"{_e(text[:a])}<u>{_e(text[a:b])}</u>{_e(text[b:])}"
        row = f"<i>{number:>{width}}</i>  {shown}"
        rows.append(f'<span class="at">{row}</span>' if number == line else row)
    return f"<pre>{chr(10).join(rows)}</pre>"


def _facts(f: Finding) -> Iterator[tuple[str, str]]:
    if f.ordering:
        text = _e(f.ordering)
        yield "order", f'<a href="#L{f.ordering_line}">{text}</a>' if f.ordering_line else text
    if f.address is not None:
        size = f", {f.size} bytes" if f.size else ""
        yield "address", f"<code>{f.address:#x}</code> ({_e(f.space or 'generic')}{size})"
    if f.addresses:
        pairs = zip(f.lanes, f.addresses, strict=False)
        each = ", ".join(f"{lane}: {address:#x}" for lane, address in pairs)
        yield "by lane", f'<code class="dim">{each}</code>'
    for name, value in f.values.items():
        yield name, f"<code>{_e(value)}</code>"


def _pictures(f: Finding, two: bool) -> Iterator[str]:
    grids = []
    if f.other_lanes:
        warp = "" if f.other_warp is None else f" of warp {f.other_warp}"
        grids.append(f"<div><h3>first access: lanes{warp}</h3>{lane_grid(f.other_lanes)}</div>")
    if f.lanes:
        warp = "" if f.warp is None else f" of warp {f.warp}"
        what = "second access: lanes" if two else "lanes"
        grids.append(f"<div><h3>{what}{warp}</h3>{lane_grid(f.lanes, f.addresses)}</div>")
    if grids:
        yield f'<div class="grids">{"".join(grids)}</div>'
    if f.space == "shared" and (f.addresses or f.address is not None):
        yield f"<h3>shared memory: words by bank, with the lanes that access them</h3>{bank_map(f)}"


def _left_out(report: Report) -> Iterator[str]:
    if not report.left_out:
        return
    count = len(report.left_out)
    yield f"<details><summary>{count} finding{'s' * (count != 1)} not shown</summary><ul>"
    for known in report.left_out:
        f = known.finding
        why = known.by + (f": {known.reason}" if known.reason else "")
        yield (
            f"<li>{_e(place(f, report.file))} {_e(f.class_)} [{_e(f.code)}]: {_e(f.message)}"
            f' <span class="dim">({_e(why)})</span></li>'
        )
    yield "</ul></details>"


# --- source -------------------------------------------------------------------------------------


def _listing(report: Report, source: Source | None) -> Iterator[str]:
    if source is None:
        return
    profile = report.profile
    most = max((lanes for _, lanes in profile.values()), default=0)
    widest = max((lanes / steps for steps, lanes in profile.values() if steps), default=0.0)
    marks: dict[int, list[int]] = {}
    for number, f in enumerate(report.findings, 1):
        for line in dict.fromkeys((f.line, f.other_line)):
            if line:
                marks.setdefault(line, []).append(number)
    yield '<h2 id="source">Source</h2><div class="tools">'
    yield (
        '<button aria-pressed="true" data-hides=".listing tr.idle">lines that did not run</button>'
        '<span class="dim">executions: lanes that ran the line. lanes a step: how many ran it at'
        " once; the bar compares with the widest step of the launch and is red where less than"
        " half of its lanes took part.</span></div>"
    )
    yield '<div class="card scroll"><table class="listing"><thead><tr><th class="num">line</th>'
    yield '<th class="num">executions</th><th class="num">lanes a step</th><th></th><th></th>'
    yield "<th>code</th></tr></thead><tbody>"
    for number in range(1, min(len(source.lines), _MOST_LINES) + 1):
        yield _row(number, source.line(number), profile.get(number), most, widest, marks)
    yield "</tbody></table></div>"
    hidden = len(source.lines) - _MOST_LINES
    if hidden > 0:
        yield f'<p class="dim">{hidden:,} more lines</p>'


def _row(
    number: int,
    text: str,
    counts: tuple[int, int] | None,
    most: int,
    widest: float,
    marks: dict[int, list[int]],
) -> str:
    steps, lanes = counts or (0, 0)
    kinds = ["ran" if lanes else "idle", *(["found"] if number in marks else [])]
    links = " ".join(f'<a href="#f{n}">[{n}]</a>' for n in marks.get(number, ()))
    executions = each = bar = ""
    heat = 0.0
    if counts:
        executions = f"{lanes:,}"
        heat = lanes / most if most else 0.0
    if steps:
        share = lanes / steps / widest if widest else 0.0
        each = f"{lanes / steps:,.1f}".removesuffix(".0")
        split = " split" if share < 0.5 else ""
        bar = f'<span class="bar{split}"><i style="width:{100 * share:.0f}%"></i></span>'
    return (
        f'<tr id="L{number}" class="{" ".join(kinds)}" style="--h:{heat:.3f}">'
        f'<td class="num no">{number}</td><td class="num heat">{executions}</td>'
        f'<td class="num">{each}</td><td>{bar}</td><td class="num">{links}</td>'
        f'<td class="code">{_e(text)}</td></tr>'
    )

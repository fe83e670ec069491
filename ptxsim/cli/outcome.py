"""What a command that launched a kernel shows and writes, and its exit code."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from typing import TYPE_CHECKING

from ..diagnostics import Severity, Source
from ..errors import PtxError, UsageError
from ..report import Finding, Report
from ..syntax.line_table import LineTable
from .baseline import write_baseline
from .color import wants_color
from .compare import compare
from .evaluate import load_elements
from .files import save_npy, write_text
from .render import diagnostic_finding, render_array, render_diagnostics, render_report

if TYPE_CHECKING:
    from .known import Known
    from .plan import Plan

__all__ = ["finish", "mismatches", "show_invalid"]


def mismatches(plan: Plan, report: Report) -> list[Finding]:
    """The findings of the buffers that are not what the header or ``--expect`` says."""
    found = []
    for e in plan.expected:
        type_, got = e.binding.spec.type, report.outputs[e.binding.name].array
        try:
            expected = load_elements(e.path, type_, got.size)
        except UsageError as error:
            raise UsageError(f"{e.where}: {error}") from None
        finding = compare(e.binding.name, got, expected, type_, str(e.path))
        if finding is not None:
            found.append(finding)
    return found


def finish(
    args: argparse.Namespace, plan: Plan, known: Known, report: Report, remark: str = ""
) -> int:
    """Write the files that are asked for and show the results, ``remark`` last; the exit code."""
    for binding, path in plan.written if report.outputs else []:
        save_npy(path, report.outputs[binding.name].array)
    if args.write_baseline is not None:
        lasting = known.lasting(report)
        write_baseline(args.write_baseline, report, lasting, known.source, known.baseline)
    _write_documents(args, report, known.source)
    if "-" not in (args.json, args.html):
        _show(args, plan, report, known)
        if args.format in ("full", "concise") and not args.quiet:
            sys.stdout.write(remark)
    warned = any(f.severity is Severity.WARNING for f in report.findings)
    return report.exit_code or (1 if args.strict and warned else 0)


def show_invalid(args: argparse.Namespace, error: PtxError) -> int:
    """Report PTX that does not assemble; the exit code."""
    lines = LineTable(error.source.text)
    report = Report(
        file=error.source.name,
        entry=args.entry or "",
        target=args.target or "",
        findings=tuple(diagnostic_finding(d, lines) for d in error.diagnostics),
    )
    _write_documents(args, report, error.source)
    if "-" in (args.json, args.html):
        return 3
    if args.format in ("json", "sarif", "junit", "sanitizer"):
        sys.stdout.write(render_report(report, error.source, args.format, args.print_limit))
        return 3
    stream = sys.stdout if args.format == "github" else sys.stderr
    color = wants_color(args.color, stream)
    stream.write(render_diagnostics(error.diagnostics, error.source, args.format, color))
    return 3


def _show(args: argparse.Namespace, plan: Plan, report: Report, known: Known) -> None:
    """What the kernel printed, the findings, and the buffers and counters that are asked for."""
    color = wants_color(args.color, sys.stdout)
    write = sys.stdout.write
    if args.format == "github":
        write(_inert(report.printf))
    elif args.format in ("full", "concise", "sanitizer"):
        write(report.printf)
    write(
        render_report(
            report, known.source, args.format, args.print_limit, args.quiet, color,
            known.suppressions.advice(),
        )
    )  # fmt: skip
    if args.format in ("full", "concise"):
        for b in plan.shown if report.outputs else []:
            write(render_array(b.name, report.outputs[b.name].array, b.spec.type))
        if args.stats:
            write(_statistics(report))


def _inert(text: str) -> str:
    """What a kernel printed, in such a way that GitHub Actions obeys nothing in it."""
    if not text:
        return ""
    token = f"ptxsim-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:20]}"
    end = "" if text.endswith("\n") else "\n"
    return f"::stop-commands::{token}\n{text}{end}::{token}::\n"


def _statistics(report: Report) -> str:
    """The counters that are not zero, the first ones always, and their names in profilers."""
    always = ("thread_instructions", "warp_instructions")
    shown = {name: n for name, n in report.counters.items() if n or name in always}
    width = max((len(f"{n:,}") for n in shown.values()), default=0)
    lines = ["counters", *(f"  {n:>{width},} {name}" for name, n in shown.items())]
    named = {alias: name for alias, name in report.aliases.items() if name in shown}
    if named:
        lines.append("by the names of profilers (PTX level: instructions of PTX, not of the GPU)")
        lines += [f"  {shown[name]:>{width},} {alias}" for alias, name in named.items()]
    return "\n".join(lines) + "\n"


def _write_documents(args: argparse.Namespace, report: Report, source: Source) -> None:
    """The reports that go to files of their own."""
    if args.json is not None:
        write_text(args.json, json.dumps(report.to_json(), indent=2) + "\n")
    if args.html is not None:
        from .html import render_html

        write_text(args.html, render_html(report, source))

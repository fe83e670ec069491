"""Reports as JUnit XML: a suite for each file, a test case for each entry."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ..diagnostics import Severity, Source
from ..report import Finding, Report
from .clean import one_line, printable
from .text import concise, full, summary

__all__ = ["render_junit"]


def render_junit(reports: Sequence[tuple[Report, Source | None]]) -> str:
    """The document.  Error findings are failures of their case; PTX that does not assemble and
    instructions that are not modelled are errors of it; the rest is its output."""
    root = Element("testsuites", name="ptxsim")
    totals = {"tests": 0, "failures": 0, "errors": 0}
    for report, source in reports:
        suite = SubElement(root, "testsuite", name=one_line(report.file))
        case = SubElement(
            suite, "testcase",
            classname=one_line(report.file), name=one_line(report.entry) or "assemble",
        )  # fmt: skip
        for f in report.findings:
            if f.severity is Severity.ERROR:
                _fault(case, f, report, source)
        output = SubElement(case, "system-out")
        output.text = _output(report, source)
        # the schemas count cases with a failure, not failures; a case is one or the other
        failed = case.find("failure") is not None
        counts = {
            "tests": 1,
            "failures": int(failed),
            "errors": int(not failed and case.find("error") is not None),
        }
        for name, count in counts.items():
            suite.set(name, str(count))
            totals[name] += count
        suite.set("skipped", "0")
    for name, count in totals.items():
        root.set(name, str(count))
    indent(root)
    return tostring(root, encoding="unicode", xml_declaration=False).join(
        ('<?xml version="1.0" encoding="UTF-8"?>\n', "\n")
    )


def _fault(case: Element, f: Finding, report: Report, source: Source | None) -> None:
    kind = "error" if f.class_ in ("static-error", "unsupported") else "failure"
    fault = SubElement(
        case, kind,
        type=one_line(f.class_), message=concise(f, report.file),
    )  # fmt: skip
    fault.text = full(f, report.file, source)


def _output(report: Report, source: Source | None) -> str:
    lesser = [f for f in report.findings if f.severity is not Severity.ERROR]
    texts = [full(f, report.file, source) for f in lesser]
    if report.printf:
        texts.append(printable(report.printf.rstrip("\n")))
    return "\n".join([*texts, summary(report)])

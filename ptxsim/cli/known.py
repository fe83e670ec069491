"""What a run leaves out of its report: suppressions first, then the baseline."""

from __future__ import annotations

from collections.abc import Iterable

from ..diagnostics import Source
from ..report import Finding, LeftOut, Report
from .baseline import Baseline
from .suppress import Suppressions

__all__ = ["Known"]


class Known:
    """Takes known findings out of reports of one text."""

    def __init__(
        self, source: Source, suppressions: Suppressions, baseline: Baseline | None = None
    ) -> None:
        self.source = source
        self.suppressions = suppressions
        self.baseline = baseline

    def add(self, report: Report, findings: Iterable[Finding]) -> None:
        """Put findings into a report: those that count, and those that are left out."""
        kept: list[Finding] = []
        left: list[LeftOut] = []
        for finding in findings:
            reason = self.suppressions.find(finding)
            if reason is None and self.baseline is not None:
                reason = self.baseline.find(finding, report, self.source)
            if reason is None:
                kept.append(finding)
            else:
                left.append(reason)
        report.findings = (*report.findings, *kept)
        report.left_out = (*report.left_out, *left)

    def apply(self, report: Report) -> Report:
        """The report, whose findings have been divided."""
        findings, report.findings = report.findings, ()
        self.add(report, findings)
        return report

    def lasting(self, report: Report) -> list[Finding]:
        """What a new baseline has to hold: all but what is suppressed."""
        old = (known.finding for known in report.left_out if known.by == "baseline")
        return [*report.findings, *old]

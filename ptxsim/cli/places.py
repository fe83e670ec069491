"""Where in the text a finding stands, for every format, and what stays of it when lines move."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from ..diagnostics import Source, Span
from ..report import Finding

__all__ = ["Identity", "code_of", "fingerprints", "identity", "statement"]


def statement(source: Source, line: int, column: int = 0) -> Span:
    """The instruction that starts in a column of a line, or the first one of the line."""
    text = source.line(line)
    code = text.split("//", 1)[0]
    start = min(column or len(text) - len(text.lstrip()) + 1, len(text) + 1)
    end = code.find(";", start - 1)
    return Span(line, start, line, max((end if end >= 0 else len(code.rstrip())) + 1, start))


def code_of(source: Source | None, line: int | None) -> str:
    """The code of a line: without its comment, with single spaces."""
    if source is None or not line:
        return ""
    return " ".join(source.line(line).split("//", 1)[0].split())


@dataclass(frozen=True, slots=True, order=True)
class Identity:
    """A finding by what it says about which code: it stays the same when lines move.

    ``file`` is the name without folders, so that it does not matter where a run was started.
    """

    file: str
    entry: str
    class_: str
    text: str
    other_text: str


def identity(finding: Finding, file: str, entry: str, source: Source | None) -> Identity:
    """What identifies a finding; one without a line (a result that differs) goes by its buffer."""
    text = code_of(source, finding.line)
    if not finding.line:
        text = str(finding.values.get("buffer", ""))
    other = code_of(source, finding.other_line)
    return Identity(PurePath(file).name, entry, finding.class_, text, other)


def fingerprints(
    findings: Sequence[Finding], file: str, entry: str, source: Source | None
) -> list[str]:
    """A digest for each finding; those of equal code are told apart by their order."""
    seen: dict[Identity, int] = {}
    out = []
    for finding in findings:
        who = identity(finding, file, entry, source)
        seen[who] = seen.get(who, 0) + 1
        parts = (who.file, who.entry, who.class_, who.text, who.other_text, str(seen[who]))
        data = "\0".join(parts).encode("utf-8", "surrogatepass")
        out.append(hashlib.sha256(data).hexdigest()[:32])
    return out

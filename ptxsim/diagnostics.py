"""Places in PTX text, messages about them, and how both are shown.

Every stage of ptxsim speaks through :class:`Diagnostic` values.  They are collected, never printed
or raised one by one; the API edge raises :class:`ptxsim.errors.PtxError` with all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from itertools import islice

__all__ = ["Diagnostic", "Severity", "Source", "SourcePlace", "Span", "did_you_mean", "render"]


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open stretch of text; lines and columns count from 1."""

    line: int
    column: int
    end_line: int
    end_column: int

    def to(self, other: Span) -> Span:
        """The stretch from the start of this span to the end of ``other``."""
        return Span(self.line, self.column, other.end_line, other.end_column)

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


class Severity(Enum):
    """How bad a message is; only errors change the exit code."""

    ERROR = "error"
    WARNING = "warning"
    ADVICE = "advice"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One message about one place of the text.

    ``code`` is stable (``PTX101``); ``notes`` are further lines, each with an optional place;
    ``help`` is the cure, when one is known.
    """

    code: str
    message: str
    span: Span
    severity: Severity = Severity.ERROR
    help: str | None = None
    notes: tuple[tuple[str, Span | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """A text and the name it is shown under."""

    name: str
    text: str
    lines: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", tuple(self.text.split("\n")))

    def line(self, number: int) -> str:
        """Line ``number`` (from 1) without its end, or an empty string beyond the text."""
        return self.lines[number - 1].rstrip("\r") if 0 < number <= len(self.lines) else ""

    def code_of(self, number: int) -> Span:
        """What line ``number`` holds between the spaces around it; at least one column."""
        text = self.line(number)
        words = text.strip()
        column = len(text) - len(text.lstrip()) + 1 if words else 1
        return Span(number, column, number, column + max(len(words), 1))


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """A place of the program that the PTX was compiled from, as ``.loc`` and ``.file`` name it.

    ``function`` is the function that was inlined there, where one was; ``text`` is the line, where
    it is known.  All of it is what the PTX says, and never a reason to open a file.
    """

    file: str
    line: int
    column: int = 0
    function: str = ""
    text: str | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f":{self.column}" if self.column else "")


#: Known words that are compared; a kernel may declare very many registers.
_MOST_COMPARED = 5000


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """A help text that names the closest known words, or None.

    >>> did_you_mean("ad", ["add", "mul"])
    "did you mean 'add'?"
    """
    close = get_close_matches(word, islice(known, _MOST_COMPARED), n=3, cutoff=0.6)
    return f"did you mean {' or '.join(repr(c) for c in close)}?" if close else None


def excerpt(source: Source, span: Span) -> list[str]:
    """The line of ``span`` with a caret line under it."""
    text = source.line(span.line)
    expanded = text.expandtabs(4)
    start = len(text[: span.column - 1].expandtabs(4))
    if span.end_line == span.line:
        end = len(text[: span.end_column - 1].expandtabs(4))
    else:
        end = len(expanded)
    gutter = f"{span.line:>5} | "
    return [gutter + expanded, " " * 5 + " | " + " " * start + "^" + "~" * max(0, end - start - 1)]


def render(diagnostic: Diagnostic, source: Source, full: bool = True) -> str:
    """The message as text: one line (``file:line:col: error: ... [code]``), or with the excerpt."""
    d = diagnostic
    head = f"{source.name}:{d.span}: {d.severity.value}: {d.message} [{d.code}]"
    if not full:
        return head
    out = [head, *excerpt(source, d.span)]
    for text, span in d.notes:
        out.append(f"  note: {text}" if span is None else f"  note: {source.name}:{span}: {text}")
        if span is not None:
            out.extend(excerpt(source, span))
    if d.help:
        out.append(f"  help: {d.help}")
    return "\n".join(out)

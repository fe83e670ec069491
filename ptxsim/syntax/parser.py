"""Text to syntax tree, with every syntax error of the text.

After an error the statement that holds it is blanked out and the text is parsed again, so that
several errors are found in one go; their number, and the work spent on them, are bounded.
"""

from __future__ import annotations

from functools import lru_cache
from threading import Lock
from typing import Any

from lark import Lark
from lark.exceptions import UnexpectedInput

from ..diagnostics import Diagnostic, Source, Span
from ..errors import PtxError
from . import ast
from ._messages import CODES, diagnostic_of, problem_diagnostic
from ._recovery import blanked, without_statement
from .builder import Builder, Misplaced, TooDeep
from .grammar import grammar_text

__all__ = ["CODES", "parse", "parse_statement"]

_MAX_ERRORS = 20
#: Characters parsed again after errors, all together.
_RETRY_CHARACTERS = 2_000_000

#: The builder has state, so one text is parsed at a time.
_LOCK = Lock()


@lru_cache(maxsize=1)
def _parser() -> tuple[Lark, Builder]:
    builder = Builder()
    lark = Lark(
        grammar_text("ptx.lark"),
        parser="lalr",
        lexer="basic",
        start=["start", "instruction"],
        transformer=builder,
        maybe_placeholders=True,
    )
    return lark, builder


def parse(text: str, name: str = "<string>") -> ast.Module:
    """The syntax tree of a module; :class:`ptxsim.PtxError` with every syntax error found.

    >>> parse(".version 8.0 .target sm_80").items[1].targets
    ('sm_80',)
    """
    node = _Attempts(text, name, "start").node()
    assert isinstance(node, ast.Module)
    return node


def parse_statement(text: str) -> ast.Instruction:
    """The syntax node of a single instruction.

    >>> parse_statement("@p add.s32 %r1, %r2, 1;").opcode
    ('add', 's32')
    """
    node = _Attempts(text, "<statement>", "instruction").node()
    assert isinstance(node, ast.Instruction)
    return node


class _Attempts:
    """One text, parsed until nothing wrong is left of it."""

    def __init__(self, text: str, name: str, start: str) -> None:
        self.source = Source(name, text)
        self.start = start
        self.rest = text
        self.budget = _RETRY_CHARACTERS
        self.stopped: list[Diagnostic] = []
        self.broken: dict[tuple[Span, str], Diagnostic] = {}

    def node(self) -> Any:
        """The node of the whole text; PtxError if anything is wrong with it."""
        with _LOCK:
            node = self._parse()
            while node is None and self._shorten():
                node = self._parse()
        if not self.stopped and not self.broken:
            return node
        found = [*self.stopped, *self.broken.values()]
        found.sort(key=lambda d: (d.span.line, d.span.column))
        raise PtxError(found[:_MAX_ERRORS], self.source)

    def _parse(self) -> Any:
        """The node of what is left of the text, or None after an error."""
        lark, builder = _parser()
        try:
            return lark.parse(self.rest, start=self.start)
        except (UnexpectedInput, TooDeep, Misplaced) as error:
            self.stopped.append(diagnostic_of(error, lark, self.rest))
            return None
        finally:
            for problem in builder.problems:
                key = problem.span, problem.message
                self.broken.setdefault(key, problem_diagnostic(problem))
            builder.reset()

    def _shorten(self) -> bool:
        """Blank out the cause of the last error; false when it is time to stop."""
        last = self.stopped[-1]
        self.budget -= len(self.rest)
        unclosed = last.code == "PTX005" and "comment" in last.message
        if len(self.stopped) >= _MAX_ERRORS or self.budget < 0 or unclosed:
            return False
        position = self._offset(last.span.line, last.span.column)
        shorter = self._without_linkage(last) or without_statement(self.rest, position)
        if shorter is None:
            return False
        self.rest = shorter
        return True

    def _without_linkage(self, last: Diagnostic) -> str | None:
        """A misspelt linkage alone is dropped, so that the function behind it is still seen."""
        words = tuple(f"did you mean '.{w}'" for w in ("visible", "extern", "weak", "common"))
        if last.code != "PTX001" or not (last.help or "").startswith(words):
            return None
        begin = self._offset(last.span.line, last.span.column)
        return blanked(self.rest, begin, self._offset(last.span.end_line, last.span.end_column))

    def _offset(self, line: int, column: int) -> int:
        lines = self.source.lines[: line - 1]
        return sum(map(len, lines)) + len(lines) + column - 1

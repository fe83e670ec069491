"""Canonical text that keeps the comments (``ptxsim fmt``).

A comment on a line of its own stays before what follows it; a comment behind code stays behind
it.  One empty line is kept where the text has some.  Preprocessor line marks and the debug lines
of early compilers are treated as comments in column 1.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..diagnostics import Span
from . import ast
from .comments import line_starts, without_comments
from .parser import parse
from .printer import function_head, item_lines, statement_lines

__all__ = ["format_text"]


@dataclass(frozen=True, slots=True)
class _Comment:
    """A comment; ``alone`` is true without code before it on its line."""

    offset: int
    line: int
    text: str
    alone: bool

    @property
    def flush_left(self) -> bool:
        return self.text.startswith(("#", "@@"))


class _Formatter:
    def __init__(self, text: str) -> None:
        self.code, comments = without_comments(text)
        self.starts = line_starts(text)
        self.lines = text.split("\n")
        self.out: list[str] = []
        #: Index in ``out`` of the last line of code.
        self.last_code: int | None = None
        self.comments: deque[_Comment] = deque()
        for offset, word in comments:
            line = bisect_right(self.starts, offset)
            alone = not self.code[self.starts[line - 1] : offset].strip()
            self.comments.append(_Comment(offset, line, word, alone))

    def offset(self, span: Span) -> int:
        return self.starts[span.line - 1] + span.column - 1

    def _gap(self, line: int) -> None:
        """Keep one empty line where the text has one before ``line``."""
        if line < 2 or self.lines[line - 2].strip() or not self.out:
            return
        if self.out[-1] and not self.out[-1].endswith("{"):
            self.out.append("")

    def flush(self, offset: int, indent: str) -> None:
        """The comments before ``offset``."""
        while self.comments and self.comments[0].offset < offset:
            comment = self.comments.popleft()
            if comment.alone or self.last_code is None:
                self._gap(comment.line)
                self.out.append(("" if comment.flush_left else indent) + comment.text)
            else:
                self.out[self.last_code] += "  " + comment.text

    def line(self, text: str, offset: int | None, around: str, gap: bool = True) -> None:
        """A line of code that stood at ``offset``; ``around`` is the indent of comments there."""
        if offset is not None:
            self.flush(offset, around)
            if gap:
                self._gap(bisect_right(self.starts, offset))
        self.last_code = len(self.out)
        self.out.append(text)

    def several(self, texts: Iterable[str], span: Span, around: str) -> None:
        """The lines of a node that is not looked into."""
        for number, text in enumerate(texts):
            self.line(text, None if number else self.offset(span), around)

    def body(self, statements: Iterable[Any], end: Span, indent: str) -> None:
        """The statements of a scope and its closing brace."""
        inner = indent + "\t"
        for node in statements:
            if isinstance(node, ast.Block):
                self.line(inner + "{", self.offset(node.span), inner)
                last = node.span
                closing = Span(last.end_line, last.end_column - 1, last.end_line, last.end_column)
                self.body(node.body, closing, inner)
            else:
                self.several(statement_lines(node, inner), node.span, inner)
        self.line(indent + "}", self.offset(end), inner, gap=False)

    def function(self, node: ast.Function) -> None:
        head = function_head(node)
        if node.body is None:
            head[-1] += ";"
        spans: list[Span | None] = [node.span]
        if node.parameters:
            spans += [p.span for p in node.parameters] + [None]
        spans += [d.span for d in node.directives]
        for number, (text, span) in enumerate(zip(head, spans, strict=True)):
            offset = None if span is None else self.offset(span)
            self.line(text, offset, "\t" if number else "", gap=not number)
        if node.body is not None:
            self.line("{", self._opening(node), "", gap=False)
            self.body(node.body, node.end_span, "")

    def _opening(self, node: ast.Function) -> int:
        last = node.directives[-1].span if node.directives else node.name_span
        return self.code.index("{", self.offset(last))


def format_text(text: str) -> str:
    """The text in canonical layout; :class:`ptxsim.PtxError` if it does not parse."""
    module = parse(text)
    formatter = _Formatter(text)
    for item in module.items:
        if isinstance(item, ast.Function):
            formatter.function(item)
        else:
            formatter.several(item_lines(item), item.span, "")
    formatter.flush(len(text) + 1, "")
    return "\n".join(formatter.out).strip("\n") + "\n" if formatter.out else ""

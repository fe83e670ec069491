"""Canonical text that keeps the comments (``ptxsim fmt``).

A comment on a line of its own stays before the statement that follows it; a comment behind a
statement stays behind it.  Everything before the first directive is kept as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from . import ast
from .parser import parse
from .printer import function_head, item_lines, statement_lines

__all__ = ["format_text"]

_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|[{}]', re.S)


@dataclass(slots=True)
class _Comment:
    line: int
    text: str
    alone: bool


class _Formatter:
    def __init__(self, text: str) -> None:
        self.out: list[str] = []
        self.comments: list[_Comment] = []
        #: (line, column) of every brace that closes a top-level pair
        self.closings: list[tuple[int, int]] = []
        self._scan(text)

    def _scan(self, text: str) -> None:
        depth = 0
        line, begin, last = 1, 0, 0
        for found in _TOKEN.finditer(text):
            word = found.group()
            line += text.count("\n", last, found.start())
            last = found.start()
            begin = text.rfind("\n", 0, found.start()) + 1
            if word == "{":
                depth += 1
            elif word == "}":
                depth -= 1
                if depth == 0:
                    self.closings.append((line, found.start() - begin + 1))
            elif word.startswith(("//", "/*")):
                alone = not text[begin : found.start()].strip()
                self.comments.append(_Comment(line, word, alone))

    def flush(self, line: int, indent: str) -> None:
        """Comments that stand before ``line``."""
        while self.comments and self.comments[0].line < line:
            self.out.append(indent + self.comments.pop(0).text)

    def emit(self, lines: list[str], first: int, last: int, indent: str) -> None:
        """Lines of a node that stood on source lines ``first`` to ``last``."""
        self.flush(first, indent)
        behind = []
        while self.comments and self.comments[0].line <= last and not self.comments[0].alone:
            behind.append(self.comments.pop(0).text)
        self.out += lines
        if behind and self.out:
            self.out[-1] += "  " + " ".join(behind)

    def statement(self, node: Any, indent: str) -> None:
        if isinstance(node, ast.Block):
            self.flush(node.span.line, indent)
            self.out.append(indent + "{")
            for s in node.body:
                self.statement(s, indent + "\t")
            self.out.append(indent + "}")
            return
        at = "" if isinstance(node, ast.Label) else indent
        self.emit(list(statement_lines(node, indent)), node.span.line, node.span.end_line, at)

    def function(self, node: ast.Function) -> None:
        head = function_head(node)
        line, column = node.name_span.line, node.name_span.column
        if node.body is None:
            head[-1] += ";"
            self.emit(head, node.span.line, node.span.end_line, "")
            return
        self.emit(head, node.span.line, node.span.end_line, "")
        self.out.append("{")
        for s in node.body:
            self.statement(s, "\t")
        end = next((c for c in self.closings if c > (line, column)), (1 << 30, 0))
        self.flush(end[0], "\t")
        self.out.append("}")


def format_text(text: str) -> str:
    """The text in canonical layout; :class:`ptxsim.PtxError` if it does not parse."""
    module = parse(text)
    f = _Formatter(text)
    for item in module.items:
        if isinstance(item, ast.Function):
            f.function(item)
        else:
            f.emit(list(item_lines(item)), item.span.line, item.span.end_line, "")
    f.flush(1 << 30, "")
    return "\n".join(f.out) + "\n"

"""Where parsing can go on after an error: the statement around a place of the text.

The scan knows comments, strings, statement ends and scopes, and nothing else of PTX, since the
text it looks at is wrong somewhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["blanked", "statement_at", "without_statement"]

#: White space of PTX; the one of Python is wider.
_WHITE = " \t\r\n\f"

_MARKS = re.compile(r'//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:[^"\\\n]|\\.)*"|[;{}]', re.S)

#: What may stand between the end of a statement and the brace of a nested scope.
_BEFORE_SCOPE = re.compile(
    r"(?>\s+|//[^\n]*|/\*.*?\*/|[\w$%]+[ \t]*:|@[ \t]*!?[ \t]*[\w$%]+"
    r"|\.(?:loc|file)\b[^\n]*|#[^\n]*|@@DWARF[^\n]*)*+\Z",
    re.S,
)
#: A head that is followed by a scope.
_HEAD = re.compile(r"\.(?:entry|func|section)\b|\)[\s\w.,]*\Z")


@dataclass(frozen=True, slots=True)
class Stretch:
    """The offsets of a statement; ``scope`` is true if it ends before a scope that it heads."""

    begin: int
    end: int
    scope: bool


def _opens_scope(text: str, begin: int, brace: int, depth: int) -> bool:
    before = text[begin:brace]
    if _BEFORE_SCOPE.match(before):
        return True
    return depth == 0 and not before.rstrip().endswith(("=", ",")) and bool(_HEAD.search(before))


def statement_at(text: str, position: int) -> Stretch:
    """The statement that holds ``position``."""
    begin = depth = operand_braces = 0
    for found in _MARKS.finditer(text):
        mark, here = found.group(), found.start()
        if mark == ";":
            operand_braces = 0
        elif mark == "}" and operand_braces:
            operand_braces -= 1
            continue
        elif mark == "{":
            if operand_braces or not _opens_scope(text, begin, here, depth):
                operand_braces += 1
                continue
            if begin <= position <= here and text[begin:here].strip(_WHITE):
                return Stretch(begin, here, True)
            depth += 1
        elif mark == "}":
            if begin <= position <= here and text[begin:here].strip(_WHITE):
                return Stretch(begin, here, False)
            depth = max(0, depth - 1)
        else:
            continue
        if position < found.end():
            return Stretch(begin, found.end(), False)
        begin = found.end()
    return Stretch(begin, len(text), False)


def _scope_end(text: str, brace: int) -> int:
    """The offset behind the brace that closes the one at ``brace``."""
    depth = 0
    for found in _MARKS.finditer(text, brace):
        depth += {"{": 1, "}": -1}.get(found.group(), 0)
        if depth == 0:
            return found.end()
    return len(text)


def blanked(text: str, begin: int, end: int) -> str:
    """The text with a stretch replaced by spaces, lines kept."""
    return text[:begin] + re.sub(r"[^\n]", " ", text[begin:end]) + text[end:]


def without_statement(text: str, position: int) -> str | None:
    """The text without the statement at ``position`` and the scope it heads, or None."""
    stretch = statement_at(text, position)
    end = _scope_end(text, stretch.end) if stretch.scope else stretch.end
    if not text[stretch.begin : end].strip(_WHITE):
        return None
    return blanked(text, stretch.begin, end)

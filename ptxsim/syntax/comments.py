"""Comments of a text: the parser drops them, the formatter and the tags of instructions want them.

An instruction has the tag NAME when ``// tag: NAME`` is the comment behind it on its last line.  Of
several instructions on a line it belongs to the last one, which is where the formatter leaves it.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

__all__ = ["TAG_NAME", "instruction_tags", "line_starts", "without_comments"]

#: What begins and does not end takes the rest of its line or text, so that any text is read once.
_TOKEN = re.compile(
    r'"(?:[^"\\\n]|\\.)*+"?|//[^\n]*|/\*.*?(?:\*/|\Z)|^\#[^\n]*|@@DWARF[^\n]*', re.S | re.M
)
#: What a tag may be called.
TAG_NAME = re.compile("[a-z][a-z0-9_.-]*")
#: Another comment may follow on the line, such as one that ignores a finding.
_TAG = re.compile(rf"//[ \t]*tag:[ \t]*({TAG_NAME.pattern})[ \t]*(?=//|$)")


def without_comments(text: str) -> tuple[str, list[tuple[int, str]]]:
    """The text with its comments blanked out, and the comments with their offsets."""
    found: list[tuple[int, str]] = []

    def blank(match: re.Match[str]) -> str:
        word = match.group()
        if word.startswith('"'):
            return word
        found.append((match.start(), word.rstrip("\r")))
        return re.sub(r"[^\n]", " ", word)

    return _TOKEN.sub(blank, text), found


def line_starts(text: str) -> list[int]:
    """The offset of the first character of each line."""
    return [0, *(m.end() for m in re.finditer("\n", text))]


def instruction_tags(text: str, opcodes: Iterable[tuple[int, int]]) -> dict[tuple[int, int], str]:
    """The tags of instructions, each named by the line and column of its opcode.

    >>> instruction_tags("bar.sync 0; ret;  // tag: end", [(1, 1), (1, 13)])
    {(1, 13): 'end'}
    """
    if "tag:" not in text:
        return {}
    code, comments = without_comments(text)
    starts = line_starts(text)
    known = sorted(set(opcodes))
    places = [starts[line - 1] + column - 1 for line, column in known]
    tags = {}
    for offset, comment in comments:
        names = _TAG.findall(comment) if comment.startswith("//") else []
        line_start = starts[bisect_right(starts, offset) - 1]
        at = bisect_left(places, offset) - 1
        if not names or at < 0 or not code[line_start:offset].strip():
            continue
        end = code.find(";", places[at])
        between = code[end + 1 : offset]
        if end >= offset or not (between.strip() or "\n" in between):
            tags[known[at]] = names[-1]
    return tags

"""Colour for reports on a terminal, added to finished text."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import IO

from ..errors import UsageError

__all__ = ["COLORS", "colored", "wants_color"]

COLORS = ("auto", "always", "never")

_RESET = "\x1b[0m"
_BOLD = "\x1b[1m"
_BLUE = "\x1b[34m"
_SEVERITY = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "advice": "\x1b[1;36m"}

_HEAD = re.compile(r"^(?P<place>\S.*?): (?P<severity>error|warning|advice): (?P<rest>.*)$")
_EXCERPT = re.compile(r"^(?P<gutter> *\d+ \| )(?P<text>.*)$")
_CARET = re.compile(r"^(?P<gutter> {6}\| )(?P<text> *\^~*)$")
_LABEL = re.compile(r"^(?P<label>  [a-z]+:)(?P<text> .*)$")


def wants_color(mode: str, stream: IO[str], environment: Mapping[str, str] | None = None) -> bool:
    """Whether output to a stream is coloured: ``auto`` means on a terminal only.

    A variable ``NO_COLOR`` that is not empty turns ``auto`` off (the convention of no-color.org),
    and so does a terminal that is called ``dumb``.
    """
    if mode not in COLORS:
        raise UsageError(f"--color is one of {', '.join(COLORS)}, not '{mode}'")
    if mode != "auto":
        return mode == "always"
    names = os.environ if environment is None else environment
    if names.get("NO_COLOR") or names.get("TERM") == "dumb":
        return False
    return stream.isatty()


def colored(text: str) -> str:
    """A report in the format ``full`` or ``concise`` with colours; its characters stay."""
    severity = "error"
    out = []
    for line in text.split("\n"):
        head = _HEAD.match(line)
        if head:
            severity = head["severity"]
        out.append(_line(line, severity))
    return "\n".join(out)


def _line(line: str, severity: str) -> str:
    if m := _CARET.match(line):
        return f"{_BLUE}{m['gutter']}{_RESET}{_SEVERITY[severity]}{m['text']}{_RESET}"
    if m := _EXCERPT.match(line):
        return f"{_BLUE}{m['gutter']}{_RESET}{m['text']}"
    if m := _LABEL.match(line):
        return f"{_BOLD}{m['label']}{_RESET}{m['text']}"
    if m := _HEAD.match(line):
        word = f"{_SEVERITY[severity]}{severity}{_RESET}"
        return f"{_BOLD}{m['place']}{_RESET}: {word}: {m['rest']}"
    return line

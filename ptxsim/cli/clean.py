"""Text of others made fit for a terminal: no control characters, no hidden direction changes."""

from __future__ import annotations

import re

__all__ = ["one_line", "printable"]

#: Control characters but line feed and tab, separators that some viewers take for line ends,
#: marks that reorder text, and halves of surrogate pairs (from names that are not UTF-8).
_UNFIT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def printable(text: str) -> str:
    """The text with ``?`` for what a terminal could obey instead of show; columns stay.

    >>> printable("a\\x1b[31mb")
    'a?[31mb'
    """
    return _UNFIT.sub("?", text)


def one_line(text: str) -> str:
    """The same for what has to stay on one line, such as a name.

    >>> one_line("a\\nb")
    'a?b'
    """
    return printable(text).replace("\n", "?").replace("\t", " ")

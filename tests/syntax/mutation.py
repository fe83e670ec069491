"""Seeded damage to PTX text, for the fuzz test."""

from __future__ import annotations

import random
import re

__all__ = ["damaged"]

_WORDS = re.compile(r"[\w$%.]+|\s+|.", re.S)
_STUMBLES = [
    "/*",
    '"',
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ";",
    "@",
    "#",
    "::",
    ".",
    "\\",
    "0x",
    "1e",
    "%",
    "/**/",
    "@@DWARF",
    ".visble",
    ".entry",
    ",",
    "|",
    "-",
    "08",
    "-0f3f800000",
]
#: Longer texts are cut to a window of this many characters.
WINDOW = 6000


def damaged(text: str, seed: int) -> str:
    """A window of the text after one to four random edits."""
    chance = random.Random(seed)
    begin = chance.choice((0, chance.randrange(max(1, len(text) - WINDOW))))
    text = text[begin : begin + WINDOW]
    for _ in range(chance.randint(1, 4)):
        text = chance.choice(_EDITS)(text, chance)
    return text


def _place(text: str, chance: random.Random) -> tuple[int, int]:
    begin = chance.randrange(len(text) + 1)
    return begin, min(len(text), begin + chance.randrange(1, 60))


def _flip(text: str, chance: random.Random) -> str:
    begin, _ = _place(text, chance)
    return text[:begin] + chr(chance.randrange(256)) + text[begin + 1 :]


def _delete(text: str, chance: random.Random) -> str:
    begin, end = _place(text, chance)
    return text[:begin] + text[end:]


def _repeat(text: str, chance: random.Random) -> str:
    begin, end = _place(text, chance)
    return text[:end] + text[begin:end] * chance.randint(1, 30) + text[end:]


def _swap(text: str, chance: random.Random) -> str:
    words = _WORDS.findall(text)
    if not words:
        return text
    a, b = chance.randrange(len(words)), chance.randrange(len(words))
    words[a], words[b] = words[b], words[a]
    return "".join(words)


def _truncate(text: str, chance: random.Random) -> str:
    return text[: _place(text, chance)[0]]


def _insert(text: str, chance: random.Random) -> str:
    begin, _ = _place(text, chance)
    return text[:begin] + chance.choice(_STUMBLES) + text[begin:]


_EDITS = (_flip, _delete, _repeat, _swap, _truncate, _insert)

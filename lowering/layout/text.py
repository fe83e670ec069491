"""The text form of layouts: ``parse`` reads what ``str`` prints.

    layout  = [ swizzle "o" ] shard { "+" ( replica | offset ) }
    swizzle = "swizzle" "(" p "," b "," a [ "," ( "inner" | "outer" ) ] ")"
    shard   = "S" "[" extents [ ":" strides ] "]"          strides left out: row-major on m
    replica = "R" "[" extents ":" strides "]"
    extents = number | "(" number { "," number } [ "," ] ")"
    strides = place | "(" place { "," place } [ "," ] ")"
    offset  = place                                        offsets on one axis add
    place   = [ "-" ] number [ "@" axis ]                  without an axis: memory

The text is untrusted: its length, its numbers and its lists are bounded, and every complaint
names the column.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from .axes import MEMORY, axis
from .errors import LayoutError, LayoutTextError
from .swizzle import ComposeLayout, Swizzle
from .tile import MAX_ITERS, MAX_MAGNITUDE, Iter, TileLayout, row_major, sum_offsets

__all__ = ["MAX_TEXT", "parse", "parse_tile"]

#: bound on the characters of a layout text
MAX_TEXT = 16384

_TOKEN = re.compile(r"[ \t\r\n]*(?:([0-9]+)|([A-Za-z_][A-Za-z0-9_]*)|([\[\]():,@+-]))")
_DIGITS = len(str(MAX_MAGNITUDE))
_END = "end of text"
_T = TypeVar("_T")


def parse(text: str) -> TileLayout | ComposeLayout:
    """The layout that the text describes, swizzled or not."""
    reader = _Reader(text)
    swizzle = reader.swizzle() if reader.at("swizzle") else None
    tile = reader.tile()
    reader.take(_END)
    return tile if swizzle is None else ComposeLayout(tile, swizzle)


def parse_tile(text: str) -> TileLayout:
    """The tile layout that the text describes; a swizzle is refused."""
    reader = _Reader(text)
    tile = reader.tile()
    reader.take(_END)
    return tile


class _Reader:
    """Descent over the tokens of one text; the nesting is fixed, so it cannot run away."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise LayoutError(f"layout text must be a string, not {type(text).__name__}")
        if len(text) > MAX_TEXT:
            raise LayoutError(f"layout text of {len(text)} characters, at most {MAX_TEXT}")
        self._text = text
        self._tokens = list(self._scan(text))
        self._next = 0

    def _scan(self, text: str) -> list[tuple[str, int]]:
        """Tokens with their columns, and the end of the text as the last one."""
        tokens = []
        at, end = 0, len(text.rstrip(" \t\r\n"))
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                at += len(text[at:]) - len(text[at:].lstrip(" \t\r\n"))
                raise LayoutTextError(f"unexpected character {text[at]!r}", text, at + 1)
            tokens.append((match[match.lastindex or 0], match.start(match.lastindex or 0) + 1))
            at = match.end()
        return [*tokens, (_END, end + 1)]

    def at(self, token: str) -> bool:
        """Whether that token comes next."""
        return self._tokens[self._next][0] == token

    def take(self, *expected: str) -> str:
        """The next token, which must be one of those."""
        found, column = self._tokens[self._next]
        if found not in expected:
            wanted = " or ".join(e if e == _END else repr(e) for e in expected)
            raise self._wrong(f"expected {wanted}, found {_shown(found)}", column)
        self._next += 1
        return found

    def _wrong(self, message: str, column: int) -> LayoutTextError:
        return LayoutTextError(message, self._text, column)

    def _column(self) -> int:
        return self._tokens[self._next][1]

    def _skip(self, token: str) -> bool:
        """Step over that token if it comes next."""
        if not self.at(token):
            return False
        self._next += 1
        return True

    def swizzle(self) -> Swizzle:
        """``swizzle(p,b,a) o``, up to and including the ``o``."""
        column = self._column()
        self.take("swizzle")
        self.take("(")
        numbers = [self._number()]
        for _ in range(2):
            self.take(",")
            numbers.append(self._number())
        side = self.take("inner", "outer") if self._skip(",") else "inner"
        self.take(")")
        self.take("o")
        p, b, a = numbers
        return self._built(column, lambda: Swizzle(p, b, a, side == "inner"))

    def tile(self) -> TileLayout:
        """A shard and the replicas and offsets added to it."""
        column = self._column()
        self.take("S")
        shard = self._iters(dense=True)
        replica: list[Iter] = []
        offsets: list[tuple[str, int]] = []
        while self._skip("+"):
            if self._skip("R"):
                replica += self._iters(dense=False)
            else:
                value, name = self._place()
                offsets.append((name, value))
        return self._built(column, lambda: TileLayout.of(shard, replica, sum_offsets(offsets)))

    def _iters(self, dense: bool) -> list[Iter]:
        """``[extents:strides]``; with ``dense`` the strides may be left out."""
        column = self._column()
        self.take("[")
        extents = self._list(self._number)
        if dense and self.at("]"):
            self.take("]")
            return self._built(column, lambda: list(row_major(extents).shard))
        self.take(":")
        at = self._column()
        places = self._list(self._place)
        self.take("]")
        if len(places) != len(extents):
            raise self._wrong(f"{len(places)} strides for {len(extents)} extents", at)
        pairs = list(zip(extents, places, strict=True))
        return self._built(column, lambda: [Iter(e, s, name) for e, (s, name) in pairs])

    def _list(self, item: Callable[[], _T]) -> list[_T]:
        """One item, or several in parentheses."""
        if not self._skip("("):
            return [item()]
        items = [item()]
        while self._skip(",") and not self.at(")"):
            if len(items) == MAX_ITERS:
                raise self._wrong(f"more than {MAX_ITERS} entries", self._column())
            items.append(item())
        self.take(")")
        return items

    def _place(self) -> tuple[int, str]:
        """A signed number and the axis it counts on."""
        sign = -1 if self._skip("-") else 1
        value = sign * self._number()
        if not self._skip("@"):
            return value, MEMORY
        name, column = self._tokens[self._next]
        self._built(column, lambda: axis(name))
        self._next += 1
        return value, name

    def _number(self) -> int:
        token, column = self._tokens[self._next]
        if not token.isdecimal():
            raise self._wrong(f"expected a number, found {_shown(token)}", column)
        if len(token) > _DIGITS or int(token) > MAX_MAGNITUDE:
            raise self._wrong(f"number {token[:24]} is larger than {MAX_MAGNITUDE}", column)
        self._next += 1
        return int(token)

    def _built(self, column: int, build: Callable[[], _T]) -> _T:
        """What ``build`` makes; its complaint gets the column."""
        try:
            return build()
        except LayoutError as error:
            raise self._wrong(str(error), column) from None


def _shown(token: str) -> str:
    return token if token == _END else repr(token[:32])

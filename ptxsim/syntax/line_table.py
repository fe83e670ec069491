"""The lines of the program that PTX was compiled from: what ``.loc`` and ``.file`` say.

The table is made of the text, since a typed module keeps no directives, and only when something
is to be said about a line.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from ..diagnostics import SourcePlace
from .comments import line_starts, without_comments

__all__ = ["LineTable"]

_TEXT = r'"(?:[^"\\\n]|\\.)*+"'
_TRIPLE = r"\s+\d{1,18}\s+\d{1,18}\s+\d{1,18}"
_DIRECTIVE = re.compile(
    rf"(?P<file>\.file\s+(?P<number>\d{{1,18}})\s+(?P<name>{_TEXT}))"
    rf"|{_TEXT}?"  # of another directive, or one that does not end
    rf"|\.loc(?P<loc>{_TRIPLE})"
    r"(?:\s*,\s*function_name\s+(?P<label>[\w$%]+)(?:\s*\+\s*(?P<offset>\d{1,9}))?"
    rf"\s*,\s*inlined_at(?P<at>{_TRIPLE}))?"
    r"|(?P<head>\.(?:entry|func)(?![\w.]))"
)
_LABEL = re.compile(r"(?<![\w$%])([\w$%]++)\s*+:")
_BYTES = re.compile(r"\s*\.b8\s+([0-9, \t]+)")
#: Calls that are told of one place; a text can nest as many as it has directives.
_DEEPEST = 32
#: Bytes of a function's name, and of what may stand in front of it behind its label.
_LONGEST = 256
_FARTHEST = 4096

_Numbers = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _Loc:
    """A ``.loc``: file, line and column, the label of the function's name, and the call.

    ``call`` is the index of the ``.loc`` that describes it, ``at`` what ``inlined_at`` says.
    """

    place: _Numbers
    label: str = ""
    offset: int = 0
    at: _Numbers | None = None
    call: int | None = None


class LineTable:
    """Places of a PTX text -> places of the program that it was compiled from."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._names: dict[tuple[str, int], str] = {}

    def at(self, line: int, column: int = 0) -> tuple[SourcePlace, ...]:
        """Where an instruction comes from, by the line and column of its first character.

        The innermost place stands first, and behind it the calls that were inlined around it.
        Nothing is known in front of the first ``.loc`` of a function.  Column 0 is the line's end.
        """
        if not self or not 0 < line <= len(self._starts):
            return ()
        end = self._starts[line] if line < len(self._starts) else len(self._text)
        offset = self._starts[line - 1] + column - 1 if column else end - 1
        index = bisect_right(self._offsets, offset) - 1
        out: list[SourcePlace] = []
        loc = self._locs[index] if index >= 0 else None
        while loc is not None and len(out) < _DEEPEST:
            out.append(self._shown(loc.place, self._name(loc.label, loc.offset)))
            if loc.call is None:
                out += [self._shown(loc.at)] if loc.at else []
                break
            loc = self._locs[loc.call]
        return tuple(place for place in out if place.line)

    def __bool__(self) -> bool:
        return ".loc" in self._text

    def _shown(self, place: _Numbers, function: str = "") -> SourcePlace:
        number, line, column = place
        return SourcePlace(self._files.get(number, f"file {number}"), line, column, function)

    @cached_property
    def _starts(self) -> list[int]:
        return line_starts(self._text)

    @cached_property
    def _code(self) -> str:
        return without_comments(self._text)[0]

    @cached_property
    def _files(self) -> dict[int, str]:
        found = _DIRECTIVE.finditer(self._code)
        return {int(m["number"]): _unescaped(m["name"][1:-1]) for m in found if m["file"]}

    @cached_property
    def _table(self) -> tuple[list[int], list[_Loc | None]]:
        """Offsets in the text, and what holds from each on; nothing at the head of a function."""
        offsets: list[int] = []
        locs: list[_Loc | None] = []
        latest: dict[_Numbers, int] = {}
        for m in _DIRECTIVE.finditer(self._code):
            if not m["loc"] and not m["head"]:
                continue
            loc = _loc(m, latest) if m["loc"] else None
            if loc is not None:
                latest[loc.place] = len(locs)
            offsets.append(m.start())
            locs.append(loc)
        return offsets, locs

    @property
    def _offsets(self) -> list[int]:
        return self._table[0]

    @property
    def _locs(self) -> list[_Loc | None]:
        return self._table[1]

    @cached_property
    def _labels(self) -> dict[str, int]:
        """Label of ``.debug_str`` -> offset behind it."""
        start = re.search(r"\.section\s+\.debug_str\s*\{", self._code)
        if start is None:
            return {}
        end = self._code.find("}", start.end())
        return {m[1]: m.end() for m in _LABEL.finditer(self._code, start.end(), max(end, 0))}

    def _name(self, label: str, offset: int) -> str:
        """The name of a function, none where there is no inlined one."""
        if not label:
            return ""
        if (label, offset) not in self._names:
            self._names[label, offset] = self._bytes_of(label, offset)
        return self._names[label, offset]

    def _bytes_of(self, label: str, offset: int) -> str:
        """A text of the section that holds them: its bytes up to a zero."""
        at = self._labels.get(label)
        if at is None or offset > _FARTHEST:
            return ""
        out = bytearray()
        while len(out) < offset + _LONGEST:
            m = _BYTES.match(self._code, at)
            if m is None:
                break
            at = m.end()
            values = [int(word[:4]) & 255 for word in re.findall(r"\d+", m[1])]
            out += bytes(values)
            if 0 in out[offset:]:
                break
        return bytes(out[offset:]).split(b"\0")[0][:_LONGEST].decode("utf-8", "replace")


def _loc(m: re.Match[str], latest: dict[_Numbers, int]) -> _Loc:
    """The directive; the call is what the last ``.loc`` of its place says."""
    place = _numbers(m["loc"])
    if m["at"] is None:
        return _Loc(place)
    at = _numbers(m["at"])
    return _Loc(place, m["label"], int(m["offset"] or 0), at, latest.get(at))


def _numbers(text: str) -> _Numbers:
    file, line, column = (int(word) for word in text.split())
    return file, line, column


def _unescaped(path: str) -> str:
    r"""A path of ``.file``, where bytes beyond ASCII are octal.

    >>> _unescaped(r"\303\251.cu")
    'é.cu'
    """
    raw = re.sub(
        rb"\\([0-7]{3}|.)",
        lambda m: bytes([int(m[1], 8) & 255]) if len(m[1]) == 3 else m[1],
        path.encode("utf-8", "surrogatepass"),
    )
    return raw.decode("utf-8", "surrogateescape")

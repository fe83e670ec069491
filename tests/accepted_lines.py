"""Lines that the assembler accepts, each with the lowest version and target at which it does.

``data/accepted-lines.tsv.xz`` holds 31,655 instruction lines that ptxas 13.5 took: their family,
the lowest PTX ISA version (at the lowest target) and the lowest target (at PTX ISA 9.5).  Modules
around them are those of ``data/lexical/wrapper.ptx``.
"""

from __future__ import annotations

import lzma
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ptxsim.diagnostics import Source
from ptxsim.errors import PtxError
from ptxsim.resolve import resolve
from ptxsim.syntax import parse
from ptxsim.targets import PTX_VERSIONS, TARGETS

__all__ = ["Line", "Place", "accepted_lines", "lower_target", "lower_version", "verdicts"]

_DATA = Path(__file__).parent / "data"
_WRAPPER = (_DATA / "lexical" / "wrapper.ptx").read_text()
_MARK = "// <insert the line here>"
_WIDE = ".reg .b128 %q<16>;"
#: Lines of one module: of two errors each, fewer than those after which the resolver gives up.
_BATCH = 24
#: The targets that were tried in turn for the lowest one.
_GENERIC = sorted((t for t in TARGETS if t[3:].isdigit()), key=lambda t: int(t[3:]))[4:]
_VERSIONS = sorted(v for v in PTX_VERSIONS if v >= (2, 0))


@dataclass(frozen=True)
class Place:
    """A version and a target, and whether textures and samplers are independent."""

    version: str
    target: str
    mode: str = ""

    def module(self, lines: list[str]) -> tuple[str, int]:
        """A module with the lines, and the number of its line before the first of them."""
        text = _WRAPPER.replace(".version 9.5", f".version {self.version}")
        text = text.replace("sm_100a", self.target)
        if self.mode == "independent":
            text = text.replace(self.target, f"{self.target}, texmode_independent")
            text = text.replace(
                ".global .texref tx;", ".global .texref tx; .global .samplerref smp;"
            )
        before, after = text.replace(_WIDE, "").split(_MARK)
        # 128 bits came with PTX ISA 8.3 and sm_70: declared only where they are used
        blocks = ["{" + _WIDE * ("%q" in line) + line + "}" for line in lines]
        return before + "\n".join(blocks) + after, before.count("\n")


@dataclass(frozen=True)
class Line:
    """An accepted line and the lowest place where it is."""

    family: str
    at: Place
    text: str


@cache
def accepted_lines() -> tuple[Line, ...]:
    """All of them, by family."""
    table = lzma.decompress((_DATA / "accepted-lines.tsv.xz").read_bytes()).decode()
    rows = (row.split("\t") for row in table.rstrip("\n").split("\n")[1:])
    return tuple(
        Line(family, Place(version, target, mode), re.sub(r"\\[nt]", " ", text))
        for family, version, target, mode, text in rows
    )


def lower_version(at: Place) -> Place | None:
    """The same target and the last PTX ISA version before, if that knows the target."""
    known = [v for v in _VERSIONS if TARGETS[at.target] <= v < _number(at.version)]
    return Place("{}.{}".format(*known[-1]), at.target, at.mode) if known else None


def lower_target(at: Place) -> Place | None:
    """The target before at PTX ISA 9.5; the generic one for a specific one."""
    if not at.target[-1].isdigit():
        return Place("9.5", at.target[:-1], at.mode)
    index = _GENERIC.index(at.target)
    return Place("9.5", _GENERIC[index - 1], at.mode) if index else None


def _number(version: str) -> tuple[int, int]:
    major, minor = version.split(".")
    return int(major), int(minor)


def verdicts(asked: list[tuple[str, Place]]) -> list[tuple[str, str]]:
    """For each line and place the code and message of the first diagnostic, or ``legal``."""
    groups = defaultdict(list)
    for index, (_, place) in enumerate(asked):
        groups[place].append(index)
    out = [("legal", "")] * len(asked)
    for place, members in groups.items():
        for begin in range(0, len(members), _BATCH):
            batch = members[begin : begin + _BATCH]
            for index, found in _judged(place, [asked[i][0] for i in batch]):
                out[batch[index]] = found
    return out


def _judged(place: Place, lines: list[str]) -> list[tuple[int, tuple[str, str]]]:
    text, before = place.module(lines)
    try:
        found = resolve(parse(text), Source("lines.ptx", text)).diagnostics
    except PtxError as error:
        if len(lines) > 1:  # a syntax error hides what stands behind it
            return [(i, f) for i, line in enumerate(lines) for _, f in _judged(place, [line])]
        found = tuple(error.diagnostics)
    first: dict[int, tuple[str, str]] = {}
    for d in found:
        index = d.span.line - before - 1
        assert 0 <= index < len(lines), f"{d.message}, in the module around the lines"
        code = "unsupported" if d.code == "PTX400" else d.code
        if first.get(index, ("unsupported",))[0] == "unsupported":
            first[index] = (code, d.message)
    return list(first.items())

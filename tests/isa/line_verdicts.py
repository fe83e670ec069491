"""Our verdicts of many lines, several per module, and the tables that hold the assembler's."""

from __future__ import annotations

import csv
import gzip
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from ptxsim.diagnostics import Diagnostic, Source
from ptxsim.errors import PtxError
from ptxsim.resolve import resolve
from ptxsim.syntax import parse

__all__ = ["Line", "errors", "legal", "module_errors", "rows", "wrapped"]

_DATA = Path(__file__).parents[1] / "data"
_WRAPPER = (_DATA / "lexical" / "wrapper.ptx").read_text()
_MARK = "// <insert the line here>"
#: The line of the first inserted line.
_FIRST = _WRAPPER[: _WRAPPER.index(_MARK)].count("\n") + 1
#: Lines of one module: a run reports so many errors at most.
_BATCH = 45

#: Version, target and text.
Line = tuple[str, str, str]


def rows(name: str) -> list[dict[str, str]]:
    """A table of tests/data, which may be compressed."""
    path = _DATA / name
    data = path.read_bytes()
    text = (gzip.decompress(data) if name.endswith(".gz") else data).decode()
    found = csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    return [{k: _plain(v) for k, v in row.items()} for row in found]


def _plain(cell: str) -> str:
    return re.sub(r"\\([nt\\])", lambda m: {"n": "\n", "t": "\t", "\\": "\\"}[m[1]], cell)


def wrapped(lines: Sequence[str], version: str, target: str) -> str:
    """A module whose kernel holds the lines, for a version and target."""
    text = _WRAPPER.replace(".version 9.5", f".version {version}").replace("sm_100a", target)
    old = tuple(map(int, version.split("."))) < (8, 3) or int(target[3:].rstrip("af")) < 70
    if old:  # registers of 128 bits came with PTX ISA 8.3 and sm_70
        text = text.replace(".reg .b128 %q<16>;", "")
    return text.replace(_MARK, "\n".join(lines))


def module_errors(text: str) -> list[Diagnostic]:
    """The messages about a module, those that say that something is not modelled included."""
    try:
        return list(resolve(parse(text), Source("lines.ptx", text)).diagnostics)
    except PtxError as error:
        return list(error.diagnostics)


def errors(lines: Sequence[Line]) -> list[list[Diagnostic]]:
    """The messages about each line, given with its version and target; lines count from 1.

    Each line is a scope of its own.  Lines that do not parse are judged one by one.
    """
    out: list[list[Diagnostic]] = [[] for _ in lines]
    groups = defaultdict(list)
    for index, (version, target, line) in enumerate(lines):
        alone = "\n" in line or not _parses(line)
        groups[(version, target, index if alone else -1)].append(index)
    for (version, target, _), members in groups.items():
        for begin in range(0, len(members), _BATCH):
            batch = members[begin : begin + _BATCH]
            text = wrapped(["{" + lines[i][2] + "}" for i in batch], version, target)
            for d in module_errors(text):
                at = d.span.line - _FIRST
                out[batch[min(max(at, 0), len(batch) - 1)]].append(d)
    return out


def _parses(line: str) -> bool:
    try:
        parse(f".version 9.5\n.target sm_100a\n.entry k(){{{{{line}}}\nLE: ret;}}")
    except PtxError:
        return False
    return True


def legal(found: Sequence[Diagnostic]) -> bool:
    """Whether the messages call something legal, modelled or not."""
    return all(d.code == "PTX400" for d in found)

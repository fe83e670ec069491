"""The header of a file: comment lines that say how to launch its kernel.

Comment lines before the first directive may hold ``launch:``, ``arg:`` and ``out:``; lines with
other words are comments.  What stands after ``#`` (with a space before it) is ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import UsageError
from .spec import NAME, Spec, parse_header_spec

__all__ = [
    "Expected",
    "Header",
    "Launch",
    "parse_dimensions",
    "parse_header",
    "parse_size",
    "set_launch",
]

Dimensions = tuple[int, int, int]

_LINE = re.compile(r"//\s*(?P<key>launch|arg|out)\s*:(?P<rest>.*)")
_OUT = re.compile(rf"\s*(?P<name>{NAME})\s*=\s*(?P<path>\S.*)", re.ASCII)


@dataclass(slots=True)
class Launch:
    """How a kernel is started, and for which target; None where nothing is said."""

    grid: Dimensions | None = None
    block: Dimensions | None = None
    cluster: Dimensions | None = None
    smem: int | None = None
    entry: str | None = None
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """The bits that a buffer must hold after the launch."""

    name: str
    path: Path
    where: str


@dataclass(slots=True)
class Header:
    """What the header of a file says."""

    launch: Launch = field(default_factory=Launch)
    args: list[Spec] = field(default_factory=list)
    outs: list[Expected] = field(default_factory=list)


def parse_header(text: str, name: str, folder: Path) -> Header:
    """The header of a text; ``folder`` is where its files are looked for.

    >>> parse_header("// launch: grid=2 block=64", "k.ptx", Path()).launch.block
    (64, 1, 1)
    """
    header = Header()
    launched = 0
    for number, line in _comment_lines(text):
        match = _LINE.match(line)
        if match is None:
            continue
        where = f"{name}:{number}"
        rest = re.split(r"\s#", match["rest"], maxsplit=1)[0].strip()
        if match["key"] == "launch":
            if launched:
                raise UsageError(f"{where}: the header has a launch line already, line {launched}")
            launched = number
            header.launch = _launch(rest, where)
        elif match["key"] == "arg":
            spec = parse_header_spec(rest, folder, where)
            if any(spec.name == other.name for other in header.args):
                raise UsageError(f"{where}: argument '{spec.name}' is given twice")
            header.args.append(spec)
        else:
            header.outs.append(_expected(rest, folder, where))
    return header


def _comment_lines(text: str) -> list[tuple[int, str]]:
    """Numbers and texts of the ``//`` lines before the first directive."""
    out = []
    inside = False
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        stripped = line.strip()
        if not inside and stripped.startswith("//"):
            out.append((number, stripped))
            continue
        if not inside and stripped.startswith("/*"):
            inside, stripped = True, stripped[2:]
        if inside:
            end = stripped.find("*/")
            if end < 0:
                continue
            inside, stripped = False, stripped[end + 2 :].strip()
        if stripped:
            break
    return out


def set_launch(launch: Launch, key: str, value: str) -> None:
    """One word of a launch: ``grid``, ``block``, ``cluster``, ``smem``, ``entry`` or ``target``."""
    if key in ("grid", "block", "cluster"):
        setattr(launch, key, parse_dimensions(value, key))
    elif key == "smem":
        launch.smem = parse_size(value, key)
    elif key in ("entry", "target"):
        setattr(launch, key, value)
    else:
        raise UsageError(f"unknown word '{key}'; known: grid, block, cluster, smem, entry, target")


def _launch(text: str, where: str) -> Launch:
    launch = Launch()
    for word in text.split():
        key, equals, value = word.partition("=")
        try:
            if not equals:
                raise UsageError(f"cannot read '{word}'; write grid=X,Y,Z block=X,Y,Z")
            set_launch(launch, key, value)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None
    return launch


def _expected(text: str, folder: Path, where: str) -> Expected:
    match = _OUT.fullmatch(text)
    if match is None:
        raise UsageError(f"{where}: write 'out: NAME = FILE.npy'")
    return Expected(match["name"], folder / match["path"].strip().strip('"'), where)


def parse_dimensions(text: str, what: str) -> Dimensions:
    """One to three positive numbers with commas.

    >>> parse_dimensions("4,2", "grid")
    (4, 2, 1)
    """
    parts = [p.strip() for p in text.split(",")]
    good = all(p.isascii() and p.isdecimal() and len(p) <= 10 for p in parts)
    if not 1 <= len(parts) <= 3 or not good or 0 in map(int, parts):
        raise UsageError(f"{what} is X[,Y[,Z]] with positive numbers, not '{text}'")
    x, y, z = (*map(int, parts), 1, 1)[:3]
    return x, y, z


def parse_size(text: str, what: str) -> int:
    """A number of bytes, or any count that is not negative."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise UsageError(f"{what} is a number that is not negative, not '{text}'")
    return int(text)

"""Texts that several tests of the front end use."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["CORPUS", "FILES", "HEADER", "rows", "wrapped"]

DATA = Path(__file__).parents[1] / "data"
CORPUS = sorted((Path(__file__).parents[1] / "corpus").glob("*.ptx"))
#: Every PTX file of the repository.
FILES = [
    *CORPUS,
    *sorted((Path(__file__).parents[1] / "cases").glob("*.ptx")),
    *sorted((Path(__file__).parents[2] / "examples").glob("*.ptx")),
]
HEADER = ".version 9.5\n.target sm_100a\n.address_size 64\n"
_WRAPPER = (DATA / "lexical" / "wrapper.ptx").read_text()


def _plain(cell: str) -> str:
    return re.sub(r"\\([nt\\])", lambda m: {"n": "\n", "t": "\t", "\\": "\\"}[m[1]], cell)


def rows(name: str) -> list[dict[str, str]]:
    """The rows of a table in tests/data, escapes resolved."""
    head, *lines = (DATA / name).read_text().rstrip("\n").split("\n")
    keys = head.split("\t")
    return [dict(zip(keys, map(_plain, line.split("\t")), strict=True)) for line in lines]


def wrapped(*lines: str) -> str:
    """A module whose kernel holds the lines and declares what they use."""
    return _WRAPPER.replace("// <insert the line here>", "\n".join(lines))

"""What the assembler accepts is parsed; what it calls a syntax error is one here.

The tables were judged by ptxas 13.5 (accepted-lines, directives) and 13.0 (lexical/probes).
"""

from __future__ import annotations

import re

import pytest
from samples import HEADER, rows, wrapped

from ptxsim import assemble
from ptxsim.errors import PtxError
from ptxsim.syntax import parse, to_text
from tests.accepted_lines import accepted_lines

LINES = [line.text for line in accepted_lines()[::21] if line.at.mode == ""]
PROBES = rows("lexical/probes.tsv")
DIRECTIVES = rows("lexical/directives.tsv")
_SYNTAX = "syntax error near a token"

#: Accepted here although the assembler calls them syntax errors, with the reason.
EXCEPTIONS = {
    ".global .bf16 x;": "types that cannot be declared are found when names are resolved",
    ".const .bf16 x;": "types that cannot be declared are found when names are resolved",
    ".entry q(){.reg .bf16 b; .reg .bf16x2 c; ret;}": "the same",
    ".entry q(){.reg .tf32 t; ret;}": "the same",
    "@@DWARF .section .debug_info\n@@DWARF .4byte 5\n@@DWARF .byte 1,2\n@@DWARF .quad 0\n": (
        "debug lines of early compilers are skipped"
    ),
}


def _parses(text: str) -> bool:
    try:
        tree = parse(text)
    except PtxError as error:
        assert error.diagnostics
        return False
    assert parse(to_text(tree)) == tree
    return True


@pytest.mark.parametrize("begin", range(0, len(LINES), 250))
def test_accepted_lines(begin: int) -> None:
    batch = LINES[begin : begin + 250]
    assert _parses(wrapped(*batch)), [line for line in batch if not _parses(wrapped(line))]


@pytest.mark.parametrize("row", PROBES, ids=lambda row: row["line"][:40])
def test_lexical_probe(row: dict[str, str]) -> None:
    if row["result"] == "accept":
        assert _parses(wrapped(row["line"]))
    elif row["message_class"] == _SYNTAX:
        assert not _parses(wrapped(row["line"]))


def _module(text: str) -> str:
    """A row with the head of a module, or in place of its ``.target``."""
    if text.startswith(".target"):
        return re.sub(r"\.target .*", text, HEADER)
    return HEADER + text


@pytest.mark.parametrize("row", DIRECTIVES, ids=lambda row: row["text"][:40])
def test_directive(row: dict[str, str]) -> None:
    text = row["text"]
    if row["result"] == "accept" or text in EXCEPTIONS:
        assert _parses(_module(text))
    elif row["message_or_note"] == _SYNTAX:
        assert not _parses(_module(text))


def test_every_exception_is_in_the_table() -> None:
    rejected = {row["text"] for row in DIRECTIVES if row["message_or_note"] == _SYNTAX}
    assert rejected >= EXCEPTIONS.keys()


@pytest.mark.parametrize("text", [t for t in EXCEPTIONS if not t.startswith("@@DWARF")])
def test_exceptions_are_refused_later(text: str) -> None:
    with pytest.raises(PtxError) as caught:
        assemble(HEADER + text + "\n")
    assert {d.code for d in caught.value.diagnostics} == {"PTX109"}

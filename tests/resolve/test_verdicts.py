"""The resolver calls legal what the assembler accepts, and illegal what it refuses.

The table is a seeded sample of lines that ptxas 13.5 judged.  ``legal-lines.tsv`` holds the lowest
PTX ISA version and target at which it accepted a line, whether ptxsim models it, and (``below``) a
version and target at which it refused it.  Refused lines are in tests/isa/test_rejects.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxsim.diagnostics import Source
from ptxsim.errors import PtxError
from ptxsim.resolve import resolve
from ptxsim.syntax import parse

_DATA = Path(__file__).parents[1] / "data"
_WRAPPER = (_DATA / "lexical" / "wrapper.ptx").read_text()
_B128 = ".reg .b128 %q<16>;"


def _rows(name: str) -> list[list[str]]:
    return [line.split("\t") for line in (_DATA / name).read_text().rstrip("\n").split("\n")[1:]]


LEGAL = _rows("legal-lines.tsv")


def _module(line: str, version: str, target: str) -> str:
    text = _WRAPPER.replace(".version 9.5", f".version {version}").replace("sm_100a", target)
    old = tuple(map(int, version.split("."))) < (8, 3) or int(target[3:].rstrip("af")) < 70
    if old:  # registers of 128 bits came with PTX ISA 8.3 and sm_70
        text = text.replace(_B128, "")
    return text.replace("// <insert the line here>", "{" + line + "}")


def _verdict(line: str, version: str = "9.5", target: str = "sm_100a") -> str:
    """``legal``, ``unsupported`` or the code of the first error."""
    text = _module(line, version, target)
    try:
        found = resolve(parse(text), Source("line.ptx", text)).diagnostics
    except PtxError as error:
        return error.diagnostics[0].code
    errors = [d.code for d in found if d.code != "PTX400"]
    return errors[0] if errors else "unsupported" if found else "legal"


def _batches(table: list[list[str]], size: int = 150) -> list[list[list[str]]]:
    return [table[i : i + size] for i in range(0, len(table), size)]


@pytest.mark.parametrize("batch", _batches(LEGAL), ids=lambda b: b[0][4].split(" ")[0])
def test_legal_at_the_lowest_version_and_target(batch: list[list[str]]) -> None:
    wrong = [
        (line, got)
        for version, target, verdict, _, line in batch
        if (got := _verdict(line, version, target)) != verdict
    ]
    assert not wrong


@pytest.mark.parametrize("batch", _batches(LEGAL), ids=lambda b: b[0][4].split(" ")[0])
def test_refused_below(batch: list[list[str]]) -> None:
    wrong = [
        (line, below, got)
        for *_, below, line in batch
        if below and (got := _verdict(line, *below.split(" "))) != "PTX107"
    ]
    assert not wrong


def test_the_tables_are_not_empty() -> None:
    """Guards the tests above against passing for want of rows."""
    assert len(LEGAL) == 1497
    assert sum(bool(row[3]) for row in LEGAL) > 500
    assert sum(row[2] == "unsupported" for row in LEGAL) < 750


def test_an_illegal_line_is_not_called_legal() -> None:
    """The verdicts can differ: the same instruction, one operand of another width."""
    assert _verdict("add.s32 %r1, %r2, %r3;") == "legal"
    assert _verdict("add.s32 %r1, %rd2, %r3;") == "PTX106"
    assert _verdict("add.s32 %r1, %r2;") == "PTX105"
    assert _verdict("add.s33 %r1, %r2, %r3;") == "PTX104"
    assert _verdict("adt.s32 %r1, %r2, %r3;") == "PTX103"

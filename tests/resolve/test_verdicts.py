"""The resolver calls illegal what the assembler refuses.

``illegal-lines.tsv`` is a seeded sample of lines that ptxas 13.5 (13.0 for the hand-written ones)
refused, each with the code of our diagnostic.  What it accepts is in :mod:`tests.accepted_lines`.
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


ILLEGAL = _rows("illegal-lines.tsv")


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


@pytest.mark.parametrize("batch", _batches(ILLEGAL), ids=lambda b: b[0][3].split(" ")[0])
def test_illegal(batch: list[list[str]]) -> None:
    wrong = [
        (line, got)
        for version, target, code, line in batch
        if (got := _verdict(line, version, target)) != code
    ]
    assert not wrong


def test_the_table_is_not_empty() -> None:
    """Guards the test above against passing for want of rows."""
    assert len(ILLEGAL) == 600


def test_an_illegal_line_is_not_called_legal() -> None:
    """The verdicts can differ: the same instruction, one operand of another width."""
    assert _verdict("add.s32 %r1, %r2, %r3;") == "legal"
    assert _verdict("add.s32 %r1, %rd2, %r3;") == "PTX106"
    assert _verdict("add.s32 %r1, %r2;") == "PTX105"
    assert _verdict("add.s33 %r1, %r2, %r3;") == "PTX104"
    assert _verdict("adt.s32 %r1, %r2, %r3;") == "PTX103"

"""docs/coverage.md is what the records say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ptxsim.cli import main
from ptxsim.isa import registry
from ptxsim.isa.coverage_page import coverage_page

PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"


def test_the_page_is_fresh() -> None:
    written = PAGE.read_text("utf-8")
    assert written == coverage_page(), "run: python -m ptxsim isa --markdown > docs/coverage.md"


def test_the_command_writes_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["isa", "--markdown"]) == 0
    assert capsys.readouterr().out == coverage_page()


def _rows(page: str, head: str) -> list[list[str]]:
    """The cells of the tables with this heading."""
    tables = re.findall(rf"^\| {head} \|.*\n\|.*\n((?:\|.*\n)+)", page, re.M)
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|\n"))]
        for table in tables
        for line in table.strip().split("\n")
    ]


def test_every_record_is_there_once() -> None:
    named = [row[0].strip("`") for row in _rows(coverage_page(), "instruction")]
    known = [record.name for record in registry.records() if record.isa]
    assert sorted(named) == sorted(known)


def test_forms_add_up() -> None:
    """The totals, the rows of instructions and the lists of forms count the same forms."""
    page = coverage_page()
    totals = _rows(page, "family")
    rows = _rows(page, "instruction")
    listed = sum(
        line.rstrip(" \\").split("  //")[0].endswith(";")
        for block in re.findall(r"```text\n(.*?)```", page, re.S)
        for line in block.split("\n")
    )
    executed, checked = (sum(int(row[i]) for row in rows) for i in (2, 3))
    assert totals[-1][2:4] == [str(executed), str(checked)]
    assert listed == executed + checked


@pytest.mark.parametrize(
    ("instruction", "since", "results"),
    [
        # PTX ISA, sections "Floating Point Instructions: ex2", "tanh" and "Warp Level Matrix
        # Instructions: ldmatrix": approximations, and what they need
        ("ex2", "", "approximate"),
        ("tanh", "PTX 7.0, sm_75", "approximate"),
        ("ldmatrix", "PTX 6.5, sm_75", "exact"),
    ],
)
def test_rows(instruction: str, since: str, results: str) -> None:
    (row,) = (r for r in _rows(coverage_page(), "instruction") if r[0] == f"`{instruction}`")
    assert row[4:] == [since, results]


def test_modifiers_name_what_they_need() -> None:
    """``.L2::cache_hint`` of ld needs PTX ISA 7.4 and sm_80 (section "ld")."""
    lines = coverage_page().split("\n")
    at = next(n for n, line in enumerate(lines) if line.startswith("ld[") and ".v4}" in line)
    notes = [line for line in lines[at + 1 : at + 12] if line.startswith("    // ")]
    assert any(".L2::cache_hint" in n and n.endswith("PTX 7.4, sm_80") for n in notes), notes


def test_lines_of_code_end_what_they_open() -> None:
    page = coverage_page()
    assert page.count("```") % 2 == 0
    assert page.count("<details>") == page.count("</details>")

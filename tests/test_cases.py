"""Faulty kernels get their verdict at the marked line; their corrected twins are clean.

``cases/index.tsv`` says for each file what a checker must say: verdict, an alternative, the line.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import ptxsim
from ptxsim.cli.header import parse_header

CASES = Path(__file__).parent / "cases"
ROWS = list(csv.DictReader((CASES / "index.tsv").read_text().splitlines(), delimiter="\t"))
SCHEDULES = ("default", "reverse", "warp-serial", "early-async", "random:7")
RUNNABLE = [r for r in ROWS if r["verdict"] != "static-error"]
STATIC = [r for r in ROWS if r["verdict"] == "static-error"]


def _launch(file: str, schedule: str) -> ptxsim.Report:
    text = (CASES / file).read_text()
    header = parse_header(text, file, CASES)
    args = [spec.make() for spec in header.args]
    launch = header.launch
    assert launch.grid and launch.block
    kernel = ptxsim.assemble(text, name=file).kernel()
    return kernel.launch(grid=launch.grid, block=launch.block, args=args, schedule=schedule)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("row", RUNNABLE, ids=lambda r: r["file"][:-4])
def test_verdict(row: dict[str, str], schedule: str) -> None:
    report = _launch(row["file"], schedule)
    assert report.verdict in (row["verdict"], row["also_ok"])
    if row["verdict"] != "clean":
        lines = {report.findings[0].line, report.findings[0].other_line}
        assert int(row["line"]) in lines
        if schedule == "default":
            assert report.findings[0].line == int(row["line"])


@pytest.mark.parametrize("row", STATIC, ids=lambda r: r["file"][:-4])
def test_static(row: dict[str, str]) -> None:
    with pytest.raises(ptxsim.PtxError) as error:
        ptxsim.assemble((CASES / row["file"]).read_text())
    assert error.value.diagnostics[0].span.line == int(row["line"])


def test_wrong_width_names_operand_and_both_widths() -> None:
    with pytest.raises(ptxsim.PtxError) as error:
        ptxsim.assemble((CASES / "901-static-wrong-width.ptx").read_text())
    message = error.value.diagnostics[0].message
    assert message == (
        "add.u32: operand b is .u32 (32 bits), but '%rd1' is declared .b64 (64 bits)"
    )


def test_missing_feature_points_at_the_target_line() -> None:
    text = (CASES / "903-static-feature-needs-arch.ptx").read_text()
    with pytest.raises(ptxsim.PtxError) as error:
        ptxsim.assemble(text)
    diagnostic = error.value.diagnostics[0]
    assert "needs target sm_80 or higher" in diagnostic.message
    noted = [text.split("\n")[s.line - 1] for _, s in diagnostic.notes if s is not None]
    assert noted == [".target sm_75", ".version 8.0"]

"""Faulty kernels get their verdict at the marked line; their corrected twins are clean.

A verdict must not depend on the order in which threads happen to run: each kernel is launched in
all of them.  ``mismatch`` is the verdict of kernels without any fault but wrong results.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ptxsim
from tests.verdicts import SCHEDULES, Condition, Row, faults, launch, rows

CASES = Path(__file__).parent / "cases"
ROWS = {row.file: row for row in rows(CASES)}
RUNNABLE = [r for r in ROWS.values() if r.verdict not in ("static-error", "mismatch")]
MISMATCHED = [r for r in ROWS.values() if r.verdict == "mismatch"]
CLEAN = [r for r in ROWS.values() if r.verdict == "clean"]
STATIC = [r for r in ROWS.values() if r.verdict == "static-error"]

#: On schedules where the wait for the wrong phase blocks, the fault is a launch that cannot end.
BLOCKS = {"017-mbarrier-wrong-parity.ptx"}

lane = np.arange(32)
tile, part = np.divmod(np.arange(128), 4)
element = 16 * (tile // 4 + 8 * (part & 1)) + 2 * (tile % 4) + 8 * (part >> 1)
partner = np.arange(64) ^ 33

# the `ref` lines of the headers, by the number in the name
CONDITIONS: dict[str, Condition] = {
    "001": lambda out, **_: out == element | ((element + 1) << 16),
    "002": lambda out, **_: out == 0x3C003C00,
    "003": lambda src, out: out == src[:32] + src[32:],
    "004": lambda src, out: out == src[lane ^ 1],
    "005": lambda src, out: out == src[:128].reshape(32, 4)[lane ^ 1].ravel(),
    "006": lambda src, out: out == src.reshape(6, 32, 4).sum(0, dtype=np.uint32)[lane ^ 1].ravel(),
    "007": lambda src, out: out == np.pad(src, (0, 12)),
    "008": lambda src, out: out == src + 1,
    "009": lambda src, out: out == src[lane * 1024],
    "010": lambda out: out == np.where(lane < 16, lane ^ 1, lane),
    "012": lambda out: out == np.where(np.arange(128) < 4, 0, 16),
    "013": lambda src, out: out == src[partner] + 100 * (partner & 1),
    "014": lambda out: out == 16,
    "015": lambda out, **_: out == 16,
    "017": lambda src, out: out == src,
    "018": lambda src, out: out == src,
    "019": lambda src, out: out == src,
    "020": lambda a, b, out: np.array_equal(out, np.minimum(a, b), equal_nan=True),
}


def name(row: Row) -> str:
    return row.path.stem


@pytest.mark.parametrize("schedule", SCHEDULES)
class TestEverySchedule:
    @pytest.mark.parametrize("row", RUNNABLE, ids=name)
    def test_verdict_at_its_lines(self, row: Row, schedule: str) -> None:
        launched = launch(row.path, schedule)
        assert faults(row, launched, schedule) == []
        if launched.report.verdict != row.verdict:
            assert row.file in BLOCKS
        if row.verdict == "clean":
            assert launched.meets(CONDITIONS[row.number])

    @pytest.mark.parametrize("row", MISMATCHED, ids=name)
    def test_wrong_result_without_a_fault(self, row: Row, schedule: str) -> None:
        launched = launch(row.path, schedule)
        assert launched.report.verdict == "clean"
        assert not launched.meets(CONDITIONS[row.number])


def test_numbers_of_kernels() -> None:
    """18 faulty kernels that have a twin, two that have none, three that are not assembled."""
    assert (len(RUNNABLE), len(MISMATCHED), len(STATIC)) == (36, 2, 3)
    assert {r.number for r in CLEAN} == set(CONDITIONS)


@pytest.mark.parametrize("row", CLEAN, ids=name)
def test_condition_can_fail(row: Row) -> None:
    """One wrong bit of the result does not meet the condition."""
    launched = launch(row.path, "default")
    launched.buffers["out"].view(np.uint8)[-1] ^= 1
    assert not launched.meets(CONDITIONS[row.number])


class TestTheChecksCanFail:
    RACE = ROWS["003-block-reduce-no-barrier.ptx"]

    def wrong(self, row: Row, schedule: str = "default", **how: bool) -> list[str]:
        return faults(row, launch(row.path, schedule), schedule, **how)

    def test_another_verdict(self) -> None:
        assert self.wrong(replace(self.RACE, verdict="race-global")) == ["verdict race-shared"]
        assert self.wrong(replace(self.RACE, verdict="clean")) == ["race-shared at 36"]

    def test_another_line(self) -> None:
        assert self.wrong(replace(self.RACE, line=37)) == ["lines [(36, 32)]"]
        assert self.wrong(replace(self.RACE, other_line=33)) == ["lines [(36, 32)]"]

    def test_order_of_the_lines(self) -> None:
        turned = replace(self.RACE, line=32, other_line=36)
        assert self.wrong(turned) == ["lines [(36, 32)]"]
        assert self.wrong(turned, turned=True) == []
        assert self.wrong(turned, "warp-serial") == self.wrong(self.RACE, "warp-serial") == []

    def test_a_pair_that_is_not_there_on_any_schedule(self) -> None:
        wrong = self.wrong(replace(self.RACE, other_line=33), "warp-serial")
        assert wrong == ["lines [(32, 36), (36, 32)]"]


@pytest.mark.parametrize("row", STATIC, ids=name)
def test_static(row: Row) -> None:
    with pytest.raises(ptxsim.PtxError) as error:
        ptxsim.assemble(row.path.read_text())
    assert error.value.diagnostics[0].span.line == row.line


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

"""Small kernels that each ask one question of the memory model (PTX ISA, "Memory Consistency
Model"): what is not ordered is reported on every schedule, what is ordered never.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.verdicts import SCHEDULES, Condition, Row, faults, launch, rows

LITMUS = Path(__file__).parent / "litmus"
ROWS = {row.file: row for row in rows(LITMUS)}
CLEAN = [row for row in ROWS.values() if row.verdict == "clean"]

#: The consumer waits for a phase that is complete already.  Most schedules let it read and arrive
#: once too often before the producer looks: that then waits for ever and never stores what the read
#: would race with.  On those where both of its stores come first, the consumer waits for ever.
BLOCKS = {"234-mbarrier-pipe-stuck-parity.ptx"}

#: Which party comes second is up to the schedule.  Here the consumer gives the buffer back before
#: it reads, and under the default schedule the producer's next store comes first of the two.
TURNED = {"218-named-barrier-early-empty.ptx"}

lane = np.arange(32)
partner = np.arange(64) ^ 33

# the `ref` lines of the headers of clean kernels, by the number in the name
CONDITIONS: dict[str, Condition] = {
    "201": lambda out, **_: out == 42,
    "203": lambda out, **_: out == 42,
    "206": lambda out, **_: out == 42,
    "209": lambda count, **_: count == 4,
    "211": lambda src, out, **_: out == src.sum(),
    "213": lambda out, **_: out == 7 + (np.arange(4) ^ 3),
    "215": lambda cnt: cnt == 4,
    "217": lambda src, out: out == src.reshape(4, 32)[:, ::-1].ravel(),
    "219": lambda src, out: out == src.reshape(4, 64)[:, partner].ravel(),
    "221": lambda src, out: out == src.sum(),
    "223": lambda src, out: out == src[lane ^ 1] + src[0],
    "225": lambda src, out: out == np.bincount(src & 7, minlength=8),
    "227": lambda out, **_: out == 1,
    "229": lambda out: out == np.arange(64, dtype=np.uint8).view(np.uint32),
    "231": lambda src, out: out == src,
    "233": lambda src, out: out == src.reshape(4, 32)[:, ::-1].ravel(),
    "235": lambda src, out: out == src,
    "237": lambda out, **_: out == partner + 5,
    "239": lambda out, **_: out == np.arange(64) + 100,
}


def name(row: Row) -> str:
    return row.path.stem


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("row", ROWS.values(), ids=name)
def test_verdict_at_its_lines(row: Row, schedule: str) -> None:
    launched = launch(row.path, schedule)
    assert faults(row, launched, schedule, turned=row.file in TURNED) == []
    if launched.report.verdict != row.verdict:
        assert row.file in BLOCKS
    if row.verdict == "clean":
        assert launched.meets(CONDITIONS[row.number])


def test_a_schedule_between_the_two_shows_the_race() -> None:
    (file,) = BLOCKS
    row = ROWS[file]
    report = launch(row.path, "random:10").report
    assert (report.verdict, row.verdict) == ("race-shared", "race-shared")
    first = report.findings[0]
    assert {first.line, first.other_line} == {row.line, row.other_line}


def test_numbers_of_kernels() -> None:
    assert (len(ROWS), len(CLEAN)) == (40, 19)
    assert {row.number for row in CLEAN} == set(CONDITIONS)


@pytest.mark.parametrize("row", CLEAN, ids=name)
def test_condition_can_fail(row: Row) -> None:
    """One wrong bit of the result does not meet the condition."""
    launched = launch(row.path, "default")
    result = next(launched.buffers[n] for n in ("out", "count", "cnt") if n in launched.buffers)
    result.view(np.uint8)[-1] ^= 1
    assert not launched.meets(CONDITIONS[row.number])

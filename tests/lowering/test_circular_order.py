"""The order of wait and commit in a circular buffer of three slots, by hand.

csarofeen/pytorch PR 1973 shows a loop that waits first and commits then, which csarofeen/pytorch
PR 2457 reports wrong results of: ``wait_group S - 2`` then leaves the group of the next tile
pending.  An empty group behind the prolog, as that listing has, hides it up to the last tile.
"""

from __future__ import annotations

import numpy as np
import pytest

import ptxsim
from tests.verdicts import SCHEDULES

#: Two warps; each thread copies 16 bytes of a tile, and each warp reads what the other one copied.
KERNEL = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry pipeline(.param .u64 src, .param .u64 dst) .reqntid 64
{
    .reg .b32 %r<20>;
    .reg .b64 %rd<8>;
    .reg .pred %p<3>;
    .shared .align 16 .b8 tiles[3072];

    ld.param.u64 %rd1, [src];
    ld.param.u64 %rd2, [dst];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 16;
    add.u64 %rd1, %rd1, %rd3;
    shl.b32 %r2, %r1, 4;
    xor.b32 %r3, %r2, 512;
    mov.u32 %r4, tiles;
    add.u32 %r2, %r2, %r4;  // where to copy to
    add.u32 %r3, %r3, %r4;  // the row of the other warp
    cp.async.cg.shared.global [%r2], [%rd1], 16;  // tile 0
    cp.async.commit_group;
    cp.async.cg.shared.global [%r2+1024], [%rd1+1024], 16;  // tile 1
    cp.async.commit_group;
    PROLOG
    cp.async.wait_group 1;
    bar.sync 0;
    mov.u32 %r5, 0;
    mov.u32 %r6, 0;
LOOP:
    setp.eq.u32 %p1, %r5, 0;
    @%p1 cp.async.cg.shared.global [%r2+2048], [%rd1+2048], 16;  // tile 2
    FIRST
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r7, %r8, %r9, %r10}, [%r3];  // use
    add.u32 %r6, %r6, %r7;
    add.u32 %r6, %r6, %r8;
    add.u32 %r6, %r6, %r9;
    add.u32 %r6, %r6, %r10;
    cp.async.wait_group 1;
    bar.sync 0;
    LAST
    add.u32 %r3, %r3, 1024;
    add.u32 %r5, %r5, 1;
    setp.lt.u32 %p2, %r5, 3;
    @%p2 bra LOOP;
    cp.async.wait_all;
    mul.wide.u32 %rd4, %r1, 4;
    add.u64 %rd2, %rd2, %rd4;
    st.global.u32 [%rd2], %r6;
    ret;
}
"""
COMMIT = "cp.async.commit_group;"


def launch(schedule: str, **parts: str) -> tuple[ptxsim.Report, bool]:
    """The report, and whether the sums are right."""
    text = KERNEL
    for place in ("PROLOG", "FIRST", "LAST"):
        text = text.replace(f"    {place}\n", f"    {parts.get(place.lower(), '')}\n")
    tiles = np.random.default_rng(1).integers(0, 1 << 32, (3, 64, 4), np.uint32)
    sums = np.zeros(64, np.uint32)
    report = (
        ptxsim.assemble(text)
        .kernel("pipeline")
        .launch(grid=1, block=64, args=[tiles, sums], schedule=schedule)
    )
    # a thread gets a word of each of its warp's matrices of eight rows: row lane / 4, word lane % 4
    halves = tiles.reshape(3, 2, 4, 32)
    expected = halves[:, ::-1].sum(axis=(0, 2), dtype=np.uint32).reshape(64)
    return report, np.array_equal(sums, expected)


def line(comment: str) -> int:
    rows = KERNEL.splitlines()
    return next(n for n, row in enumerate(rows, 1) if row.endswith(f"// {comment}"))


def faults(report: ptxsim.Report) -> list[tuple[str, set[int | None]]]:
    return [(f.class_, {f.line, f.other_line}) for f in report.findings]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_commit_comes_first(schedule: str) -> None:
    report, right = launch(schedule, first=COMMIT)
    assert report.clean and right


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_commit_comes_last(schedule: str) -> None:
    """Tile 1 is the first that is used while it may be on its way; tile 2 is another."""
    report, _ = launch(schedule, last=COMMIT)
    assert ("async-race", {line("tile 1"), line("use")}) in faults(report)
    assert {class_ for class_, _ in faults(report)} == {"async-race"}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_order_of_the_listing(schedule: str) -> None:
    """With the empty group only the last of three tiles is used too early."""
    report, _ = launch(schedule, prolog=COMMIT, last=COMMIT)
    assert faults(report) == [("async-race", {line("tile 2"), line("use")})]


def test_a_late_landing_gives_another_result() -> None:
    """It is no false alarm: copies that land when they must leave the slot unread before."""
    outcomes = {launch(schedule, last=COMMIT)[1] for schedule in SCHEDULES}
    assert False in outcomes

"""What ended threads stored is read behind a barrier: advice, and no race (pattern 17)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .conftest import SCHEDULES

LANES = tuple(range(32))
DECLARE = ".shared .align 4 .b32 s[96];"
#: %r10 is the lane's own word of s, %r11 that of the lane 32 further on; the last warp has %p1
START = """
    mov.u32 %r10, s; mad.lo.u32 %r10, %t, 4, %r10; add.u32 %r11, %r10, 128;
    setp.ge.u32 %p1, %t, {last};
"""
STORE = "    st.shared.u32 [%r10], %t;\n"
LEAVE = "    @%p1 ret;\n"
BARRIER = "    bar.sync 0;\n"
READ = "    ld.shared.u32 %r1, [%r11];\n"


def found(run: Any, body: str, block: int = 64, **options: Any) -> list[Any]:
    """The advice of a launch that the race checker calls clean."""
    report, _ = run(START.format(last=block - 32) + body, block=block, declare=DECLARE,
                    tools="all,advice", **options)  # fmt: skip
    assert report.verdict == "clean"
    return [f for f in report.findings if f.class_ == "exited-store"]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_reader_the_writer_and_the_place(run: Any, schedule: str) -> None:
    # of 96 threads those of warp 2 end; warp 1 reads what they stored, in each of two CTAs
    (one,) = found(run, STORE + LEAVE + BARRIER + "    setp.ge.u32 %p2, %t, 32;\n    @%p2"
                   + READ[3:], block=96, grid=2, schedule=schedule)  # fmt: skip
    assert (one.code, one.severity.value) == ("PTX394", "advice")
    assert one.line == one.other_line + 4
    assert (one.count, one.warp, one.lanes) == (64, 1, LANES)
    assert set(one.ctas) == {(0, 0, 0), (1, 0, 0)}
    assert (one.other_warp, one.other_lanes) == (2, LANES)
    assert (one.space, one.address) == ("shared", 4 * 64)
    assert one.message.startswith("reads what 'st.shared.u32' at line")


def test_global_memory_and_bytes(run: Any) -> None:
    """Thread 32 stores byte 131; lanes read words from byte 124 on, and lane 1 that one."""
    body = "    setp.eq.u32 %p2, %t, 32;\n    @%p2 st.global.u8 [%out+131], %t;\n"
    body += LEAVE + BARRIER + "    ld.global.u32 %r1, [%mine+124];\n"
    (one,) = found(run, body)
    assert (one.count, one.lanes, one.space) == (1, (1,), "global")
    assert (one.other_warp, one.other_lanes) == (1, (0,))


@pytest.mark.parametrize(
    "body",
    [
        # the writers come to the barrier
        STORE + BARRIER + LEAVE + READ,
        STORE + "    @%p1 bar.arrive 0, 64;\n" + LEAVE + "    bar.sync 0, 64;\n" + READ,
        # nobody reads it
        STORE + LEAVE + BARRIER + "    ld.shared.u32 %r1, [%r10];\n",
        # it is overwritten by somebody who is still there
        STORE + LEAVE + BARRIER + "    st.shared.u32 [%r11], 1;\n    bar.warp.sync -1;\n" + READ,
        # release and acquire order it
        STORE + "    bar.warp.sync -1;\n    setp.eq.u32 %p2, %t, 32;\n"
        "    @%p2 st.release.cta.global.u32 [%out], 1;\n" + LEAVE
        + "SPIN: ld.acquire.cta.global.u32 %r2, [%out]; setp.eq.u32 %p3, %r2, 0;\n"
        "    @%p3 bra SPIN;\n" + BARRIER + READ,
        # two strong accesses are no race
        "    st.relaxed.cta.shared.u32 [%r10], %t;\n" + LEAVE + BARRIER
        + "    ld.relaxed.cta.shared.u32 %r1, [%r11];\n",
    ],
)  # fmt: skip
def test_what_is_in_order(run: Any, body: str) -> None:
    assert found(run, body) == []


def test_an_atomic_of_an_ended_thread(run: Any) -> None:
    body = "    st.shared.u32 [%r10], 0;\n" + BARRIER + "    red.shared.add.u32 [%r10], 1;\n"
    assert len(found(run, body + LEAVE + BARRIER + READ)) == 1
    assert found(run, body + BARRIER + LEAVE + READ) == []


def test_the_place_of_another_cta(run: Any) -> None:
    """The barrier of a CTA says nothing of other CTAs: that is a race, and no advice."""
    body = """
    mov.u32 %r2, %ctaid.x; xor.b32 %r2, %r2, 1; mad.wide.u32 %rd1, %r2, 256, %mine;
    st.global.u32 [%rd1], %t;
    @%p1 ret;
    bar.sync 0;
    mov.u32 %r2, %ctaid.x; mad.wide.u32 %rd1, %r2, 256, %mine;
    ld.global.u32 %r1, [%rd1+128];"""
    report, _ = run(START.format(last=32) + body, block=64, grid=2, declare=DECLARE,
                    tools="all,advice")  # fmt: skip
    assert {f.class_ for f in report.findings} == {"race-global"}


def test_before_the_barrier_it_is_a_race(run: Any) -> None:
    report, _ = run(START.format(last=32) + STORE + LEAVE + READ, block=64, declare=DECLARE,
                    tools="all,advice")  # fmt: skip
    assert {f.class_ for f in report.findings} == {"race-shared"}


def test_written_again_and_a_second_barrier(run: Any) -> None:
    """Ended threads are remembered once: what others wrote over them stays in order."""
    # CTA 1 leaves the first barrier to CTA 0 alone, so that stores are kept beyond it
    body = (
        STORE
        + LEAVE
        + """
    mov.u32 %r2, %ctaid.x; setp.eq.u32 %p2, %r2, 1; mov.u32 %r3, 0;
    @!%p2 bra MEET;
LATE: add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, 50; @%p3 bra LATE;
MEET: bar.sync 0;
    st.shared.u32 [%r11], 1;
    bar.sync 0;
"""
        + READ
    )
    for schedule in SCHEDULES:
        assert found(run, body, grid=2, out=np.zeros(128, np.uint32), schedule=schedule) == []

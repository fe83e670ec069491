"""CTA barriers: counts, names, arrive, reductions, exits, misuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .conftest import SCHEDULES

each_schedule = pytest.mark.parametrize("schedule", SCHEDULES)


@each_schedule
def test_barrier_orders_shared_memory(run: Any, schedule: str) -> None:
    body = """
    mov.u32 %r0, s; shl.b32 %r1, %t, 2; add.u32 %r2, %r0, %r1; st.shared.u32 [%r2], %t;
    bar.sync 0;
    sub.u32 %r3, 127, %t; shl.b32 %r3, %r3, 2; add.u32 %r3, %r0, %r3; ld.shared.u32 %r4, [%r3];
    st.global.u32 [%mine], %r4;"""
    report, out = run(body, block=128, declare=".shared .b32 s[128];", schedule=schedule)
    assert report.verdict == "clean"
    assert (out == 127 - np.arange(128)).all()


@each_schedule
def test_producer_arrives_consumer_waits_on_a_named_barrier(run: Any, schedule: str) -> None:
    body = """
    setp.lt.u32 %p1, %t, 32;
    @%p1 bra CONSUMER;
    st.shared.u32 [s], 77;
    bar.arrive 3, 64;
    st.global.u32 [%mine], 1;
    bra END;
CONSUMER: bar.sync 3, 64;
    ld.shared.u32 %r1, [s];
    st.global.u32 [%mine], %r1;
END:"""
    report, out = run(body, block=64, declare=".shared .b32 s[1];", schedule=schedule)
    assert report.verdict == "clean"
    assert out.tolist() == [77] * 32 + [1] * 32


@each_schedule
def test_reductions_over_the_cta(run: Any, schedule: str) -> None:
    body = """
    and.b32 %r1, %t, 3; setp.eq.u32 %p1, %r1, 0;
    bar.red.popc.u32 %r2, 0, %p1;
    bar.red.and.pred %p2, 0, %p1;
    bar.red.or.pred %p3, 0, !%p1;
    selp.u32 %r3, 1000, 0, %p2; selp.u32 %r4, 2000, 0, %p3;
    add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4;
    st.global.u32 [%mine], %r2;"""
    report, out = run(body, block=96, schedule=schedule)
    assert report.verdict == "clean"
    assert (out == 24 + 2000).all()  # popc 24, and false, or true


@each_schedule
def test_exited_threads_are_not_waited_for(run: Any, schedule: str) -> None:
    body = """
    setp.ge.u32 %p1, %t, 40;
    @%p1 exit;
    bar.sync 0;
    st.global.u32 [%mine], 5;"""
    report, out = run(body, block=64, schedule=schedule)
    assert report.verdict == "clean"
    assert out.tolist() == [5] * 40 + [0] * 24


def test_barrier_whose_threads_never_come(run: Any) -> None:
    body = """
    setp.lt.u32 %p1, %t, 32;
    @%p1 bra A;
    bar.sync 1, 64; bra END;
A:  bar.sync 2, 64;
END:"""
    report, _ = run(body, block=64)
    assert report.verdict == "deadlock"
    finding = report.findings[0]
    assert finding.other_line is not None and finding.other_line != finding.line


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("bar.sync %r1;", "does not exist"),
        ("bar.sync 1, %r2;", "multiple of the warp size"),
        ("bar.arrive 1, 96;\n    bar.arrive 1, 96;", "a second time"),
    ],
)
def test_misuse(run: Any, body: str, message: str) -> None:
    """Values in registers: constants like these are refused by the assembler."""
    report, _ = run("    mov.u32 %r1, 16; mov.u32 %r2, 33;\n    " + body, block=64)
    assert report.verdict == "barrier-args"
    assert message in report.findings[0].message


def test_barriers_of_different_ctas_are_independent(run: Any) -> None:
    body = """
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, 0;
LOOP: bar.sync 0; add.u32 %r2, %r2, 1; setp.le.u32 %p1, %r2, %r1; @%p1 bra LOOP;
    mad.lo.u32 %r3, %r1, 32, %t; mul.wide.u32 %rd1, %r3, 4; add.u64 %rd1, %out, %rd1;
    st.global.u32 [%rd1], %r2;"""
    report, out = run(body, grid=5)
    assert report.verdict == "clean"
    assert (out == np.repeat(np.arange(5), 32) + 1).all()


def test_lanes_that_have_branched_away_do_not_arrive(run: Any) -> None:
    # three of sixteen warps leave; a group keeps the places of so few for a while
    body = """
    setp.lt.u32 %p1, %t, 96;
    @%p1 bra END;
    barrier.sync 1, 416;
    setp.ne.u32 %p2, %t, 100;
    barrier.red.popc.u32 %r1, 2, 416, %p2;
    st.global.u32 [%mine], %r1;
END:"""
    report, out = run(body, block=512)
    assert report.verdict == "clean"
    assert out.tolist() == [0] * 96 + [415] * 416

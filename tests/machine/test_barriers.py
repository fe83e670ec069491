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


def test_barriers_that_wait_for_each_other(run: Any) -> None:
    body = """
    setp.lt.u32 %p1, %t, 32;
    @%p1 bra A;
    bar.sync 1, 64; bra END;
A:  bar.sync 2, 64;
END:"""
    report, _ = run(body, block=64)
    (finding,) = report.findings
    here, there = finding.line, finding.other_line
    assert there == here + 1
    assert finding.class_ == "deadlock"
    assert finding.message == (
        "barrier 1 waits for 64 threads: 32 have come, and no more can; others wait for barrier 2"
        f" at line {there}"
    )
    assert finding.values["waiting"] == (
        f"warp 1: line {here} (barrier 1); warp 0: line {there} (barrier 2)"
    )


def test_who_waits_and_who_has_ended(run: Any) -> None:
    """Five warps, the last of 22 threads: two wait, half of a third ends and half comes."""
    body = """
    mov.u32 %r1, 0; setp.eq.u32 %p1, %t, 96; setp.lt.u32 %p2, %t, 80;
    @%p1 exit;
    @!%p2 exit;
    setp.ge.u32 %p3, %t, 64;
    @%p3 bra A;
    bar.sync 1, 96;
A:  @%p3 bar.sync 1, 96;
    bar.sync 2, 160;"""
    report, _ = run(body, block=150)
    (finding,) = report.findings
    assert finding.message == ("barrier 2 waits for 160 threads: 80 have come, and no more can")
    assert finding.values["waiting"] == (
        f"warps 0-1 and warp 2, lanes 0-15: line {finding.line} (barrier 2);"
        " warps 3-4 and warp 2, lanes 16-31: ended"
    )


def test_a_loop_and_a_barrier_that_wait_for_each_other(run: Any) -> None:
    body = """
    setp.lt.u32 %p1, %t, 32;
    @%p1 bra SPIN;
    bar.sync 0;
    st.release.cta.shared.u32 [s], 7;
    bra END;
SPIN: ld.acquire.cta.shared.u32 %r1, [s];
    setp.ne.u32 %p1, %r1, 7;
    @%p1 bra SPIN;
    bar.sync 0;
END:"""
    report, _ = run(body, block=64, declare=".shared .b32 s;", tools="synccheck")
    (finding,) = report.findings
    assert finding.class_ == "deadlock"
    assert finding.other_line == finding.line - 5
    assert finding.values["waiting"] == (
        f"warp 0: line {finding.line} (a loop); warp 1: line {finding.line - 5} (barrier 0)"
    )


class TestCounts:
    """Two pairs of warps at one barrier: the upper one comes first on the default schedule."""

    BODY = """
    setp.lt.u32 %p1, %t, 64;
    @%p1 bra A;
    {}; bra END;
A:  {};
END:"""

    @pytest.mark.parametrize("schedule", SCHEDULES)
    @pytest.mark.parametrize("order", [1, -1])
    def test_all_threads_by_their_number_or_without(
        self, run: Any, schedule: str, order: int
    ) -> None:
        # ISA, bar: without a count all threads of the CTA participate, which here are 128
        body = self.BODY.format(*["bar.sync 1", "bar.sync 1, 128"][::order])
        assert run(body, block=128, schedule=schedule)[0].verdict == "clean"

    @pytest.mark.parametrize("order", [1, -1])
    @pytest.mark.parametrize("counts", [(None, 96), (128, 96), (96, 160)])
    def test_other_counts_differ(
        self, run: Any, counts: tuple[int | None, int], order: int
    ) -> None:
        first, second = counts[::order]
        ways = [f"bar.sync 1{'' if n is None else f', {n}'}" for n in (first, second)]
        report, _ = run(self.BODY.format(*ways), block=128)
        (finding,) = report.findings
        there, here = ("all threads" if n is None else str(n) for n in (first, second))
        assert finding.class_ == "barrier-args"
        assert finding.message == (
            f"barrier 1 is used with another thread count at line {finding.line - 1}:"
            f" {there} there, {here} here"
        )


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


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("other", ["bar.sync 1, 64", "bar.arrive 1, 64"])
def test_reductions_do_not_mix(run: Any, other: str, schedule: str) -> None:
    """ISA, bar: red with sync or arrive on one active barrier is unpredictable."""
    body = """
    setp.lt.u32 %p1, %t, 32;
    @%p1 bra A;
    bar.red.popc.u32 %r1, 1, 64, %p1; bra END;
A:  {};
END:"""
    (finding,) = run(body.format(other), block=64, schedule=schedule)[0].findings
    assert finding.class_ == "barrier-args"
    assert "does not mix" in finding.message
    assert {finding.line, finding.other_line} in ({n, n + 1} for n in range(99))
    red = body.format("bar.red.or.pred %p2, 1, 64, %p1")
    assert run(red, block=64, schedule=schedule)[0].verdict == "clean"


def test_reductions_and_others_by_turns(run: Any) -> None:
    body = """
    setp.lt.u32 %p1, %t, 40;
    bar.sync 0; bar.red.popc.u32 %r1, 0, %p1; bar.sync 0;
    st.global.u32 [%mine], %r1;"""
    report, out = run(body, block=64)
    assert (report.verdict, out.tolist()) == ("clean", [40] * 64)


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

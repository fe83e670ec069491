"""Divergence, loops, calls, waiting: every schedule must give the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .conftest import SCHEDULES

LANES = np.arange(32, dtype=np.uint32)

each_schedule = pytest.mark.parametrize("schedule", SCHEDULES)


@each_schedule
def test_lanes_leave_a_loop_one_by_one(run: Any, schedule: str) -> None:
    """Lane t adds 1 + 2 + ... + t; each leaves after its own number of turns."""
    body = """
    mov.u32 %r1, 0; mov.u32 %r2, 0;
LOOP: setp.ge.u32 %p1, %r1, %t;
    @%p1 bra DONE;
    add.u32 %r1, %r1, 1; add.u32 %r2, %r2, %r1;
    bra LOOP;
DONE: st.global.u32 [%mine], %r2;"""
    report, out = run(body, block=96, schedule=schedule)
    t = np.arange(96, dtype=np.uint32)
    assert report.verdict == "clean"
    assert (out == t * (t + 1) // 2).all()


@each_schedule
def test_both_sides_of_a_branch_meet_again(run: Any, schedule: str) -> None:
    body = """
    and.b32 %r1, %t, 1; setp.eq.u32 %p1, %r1, 0;
    @%p1 bra EVEN;
    mov.u32 %r2, 100; bra JOIN;
EVEN: mov.u32 %r2, 200;
JOIN: activemask.b32 %r3;
    add.u32 %r2, %r2, %t;
    st.global.u32 [%mine], %r2;"""
    report, out = run(body, schedule=schedule)
    assert report.verdict == "clean"
    assert (out == np.where(LANES % 2, 100, 200) + LANES).all()


def test_recursion_of_different_depth(run: Any) -> None:
    """Factorials of tid mod 8 by recursion: lanes return at different depths."""
    before = """
.func (.param .b32 r) fact(.param .b32 n)
{
    .reg .b32 %a, %b; .reg .pred %q;
    ld.param.b32 %a, [n];
    setp.gt.u32 %q, %a, 1;
    @%q bra DEEP;
    st.param.b32 [r], 1;
    ret;
DEEP: sub.u32 %b, %a, 1;
    { .param .b32 x; .param .b32 y;
      st.param.b32 [x], %b;
      call (y), fact, (x);
      ld.param.b32 %b, [y]; }
    mul.lo.u32 %a, %a, %b;
    st.param.b32 [r], %a;
    ret;
}
"""
    body = """
    and.b32 %r1, %t, 7;
    { .param .b32 x; .param .b32 y;
      st.param.b32 [x], %r1;
      call (y), fact, (x);
      ld.param.b32 %r2, [y]; }
    st.global.u32 [%mine], %r2;"""
    report, out = run(body, before=before)
    assert report.verdict == "clean"
    assert out[:8].tolist() == [1, 1, 2, 6, 24, 120, 720, 5040]
    assert (out[8:] == out[:24]).all()


def test_indirect_call_and_jump_table(run: Any) -> None:
    before = """
.func (.reg .b32 r) twice(.reg .b32 a) { add.u32 r, a, a; ret; }
.func (.reg .b32 r) plus1(.reg .b32 a) { add.u32 r, a, 1; ret; }
.global .u64 table[2] = {twice, plus1};
"""
    body = """
    and.b32 %r1, %t, 1;
    mul.wide.u32 %rd1, %r1, 8; mov.u64 %rd2, table; add.u64 %rd2, %rd2, %rd1;
    ld.global.u64 %rd3, [%rd2];
P: .callprototype (.reg .b32 _) _ (.reg .b32 _);
    call (%r2), %rd3, (%t), P;
    rem.u32 %r3, %t, 3;
T: .branchtargets L0, L1, L2;
    brx.idx %r3, T;
L0: add.u32 %r2, %r2, 1000; bra END;
L1: add.u32 %r2, %r2, 2000; bra END;
L2: add.u32 %r2, %r2, 3000;
END: st.global.u32 [%mine], %r2;"""
    report, out = run(body, before=before)
    assert report.verdict == "clean"
    want = np.where(LANES % 2, LANES + 1, 2 * LANES) + 1000 * (LANES % 3 + 1)
    assert (out == want).all()


def test_branch_index_past_the_table(run: Any) -> None:
    body = """
T: .branchtargets L0;
    brx.idx %t, T;
L0: st.global.u32 [%mine], 1;"""
    report, _ = run(body)
    assert report.verdict == "bad-branch-index"
    assert report.findings[0].lanes == tuple(range(1, 32))


_FUNCTIONS = """
.func f() { ret; }
.func g() { ret; }
.func part() { .reg .pred %p; .reg .b32 %i; mov.u32 %i, %laneid; setp.lt.u32 %p, %i, LIMIT;
  @%p ret.uni; ret; }
.global .u64 table[2] = {f, g};
"""
_UNIFORM = {
    "bra": "setp.lt.u32 %p1, %r1, LIMIT; @%p1 bra.uni END;",
    "bra to the contrary": "setp.lt.u32 %p1, %r1, LIMIT; @!%p1 bra.uni END;",
    "call": "setp.lt.u32 %p1, %r1, LIMIT; @%p1 call.uni f, ();",
    "call of a register": "setp.lt.u32 %p1, %r1, LIMIT; selp.u64 %rd1, 8, 0, %p1;"
    "mov.u64 %rd2, table; add.u64 %rd2, %rd2, %rd1; ld.global.u64 %rd3, [%rd2];\n"
    "P: .callprototype _ (); call.uni %rd3, (), P;",
    "ret": "call part, ();",
    "brx.idx": "setp.lt.u32 %p1, %r1, LIMIT; selp.u32 %r2, 1, 0, %p1;\n"
    "T: .branchtargets L0, END; brx.idx.uni %r2, T; L0:",
}


@pytest.mark.parametrize("name", _UNIFORM)
@pytest.mark.parametrize(
    ("limit", "by", "differ"),
    [  # within each warp; warps that differ from each other; nobody; everybody
        (7, "%laneid", True), (32, "%tid.x", False), (0, "%laneid", False), (99, "%tid.x", False),
    ],
)  # fmt: skip
def test_uni(run: Any, name: str, limit: int, by: str, differ: bool) -> None:
    """PTX ISA 9.1, bra, call, ret and brx.idx: the lanes of a warp agree on guard and target."""
    body = f"mov.u32 %r1, {by}; {_UNIFORM[name]}\nEND: st.global.u32 [%mine], 1;"
    before = _FUNCTIONS if by == "%laneid" else _FUNCTIONS.replace("%laneid", by)
    report, out = run(body.replace("LIMIT", str(limit)), before=before.replace("LIMIT", str(limit)))
    assert [f.class_ for f in report.findings] == ["uni-divergence"] * differ
    assert (out == 1).all()  # every lane goes its own way


def test_lanes_that_are_apart_promise_nothing(run: Any) -> None:
    """The promise is about lanes that execute the branch together."""
    body = """
    setp.lt.u32 %p1, %t, 9; @%p1 bra A;
    setp.lt.u32 %p2, %t, 9; @%p2 bra.uni END; bra.uni END;
A:  setp.lt.u32 %p2, %t, 9; @%p2 bra.uni END;
END: st.global.u32 [%mine], 1;"""
    report, _ = run(body)
    assert report.verdict == "clean"


def test_call_of_a_null_pointer(run: Any) -> None:
    body = """
    mov.u64 %rd1, 0;
P: .callprototype _ ();
    call %rd1, (), P;"""
    report, _ = run(body)
    assert report.verdict == "bad-call"


def test_endless_recursion_overflows_the_stack(run: Any) -> None:
    before = ".func f() { .local .b8 big[4096]; call f, (); ret; }\n"
    report, _ = run("    call f, ();", before=before)
    assert report.verdict == "stack-overflow"


@each_schedule
def test_spin_lock_between_lanes_of_a_warp(run: Any, schedule: str) -> None:
    """Independent thread scheduling: the lane that holds the lock gets its turn."""
    body = """
TRY: atom.global.cas.b32 %r1, [%in], 0, 1;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra TRY;
    ld.volatile.global.u32 %r2, [%in+4];
    add.u32 %r2, %r2, 1;
    st.volatile.global.u32 [%in+4], %r2;
    atom.global.exch.b32 %r3, [%in], 0;
    st.global.u32 [%mine], %r2;"""
    data = np.zeros(4, np.uint32)
    report, out = run(body, block=64, data=data, schedule=schedule)
    assert report.verdict == "clean"
    assert data[1] == 64
    assert sorted(out.tolist()) == list(range(1, 65))


def test_waiting_for_a_flag_that_nobody_sets_is_a_deadlock(run: Any) -> None:
    body = """
WAIT: ld.volatile.global.u32 %r1, [%in];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra WAIT;"""
    report, _ = run(body, data=np.zeros(4, np.uint32))
    assert report.verdict == "deadlock"


def test_a_loop_that_counts_for_ever_meets_the_budget(run: Any) -> None:
    body = """
    mov.u32 %r1, 0;
LOOP: add.u32 %r1, %r1, 1;
    bra LOOP;"""
    report, _ = run(body, max_instructions=100_000)
    assert report.verdict == "step-limit"


def test_trap_stops_at_its_line(run: Any) -> None:
    report, _ = run("    setp.eq.u32 %p1, %t, 5;\n    @%p1 trap;\n    st.global.u32 [%mine], 1;")
    assert report.verdict == "trap"
    assert report.findings[0].lanes == (5,)


def test_guarded_instructions_leave_other_lanes_alone(run: Any) -> None:
    body = """
    mov.u32 %r1, 7;
    setp.lt.u32 %p1, %t, 10;
    @%p1 add.u32 %r1, %r1, %t;
    @!%p1 ld.global.u32 %r1, [%in+12];
    st.global.u32 [%mine], %r1;"""
    report, out = run(body)
    assert report.verdict == "clean"
    assert (out == np.where(LANES < 10, 7 + LANES, 3)).all()


@each_schedule
def test_syncwarp_in_both_branches_meets(run: Any, schedule: str) -> None:
    """Lanes of one mask may execute bar.warp.sync at different places (sm_70 and later)."""
    body = """
    setp.lt.u32 %p1, %t, 16;
    @%p1 bra LOW;
    mov.u32 %r1, 1; bar.warp.sync 0xffffffff; bra JOIN;
LOW: mov.u32 %r1, 2; bar.warp.sync 0xffffffff;
JOIN: st.global.u32 [%mine], %r1;"""
    report, out = run(body, schedule=schedule)
    assert report.verdict == "clean"
    assert (out == np.where(LANES < 16, 2, 1)).all()


def test_syncwarp_that_some_lanes_never_reach(run: Any) -> None:
    body = """
    setp.lt.u32 %p1, %t, 16;
    @%p1 bra LOW;
    bar.sync 0; bra JOIN;
LOW: bar.warp.sync 0xffffffff;
JOIN: st.global.u32 [%mine], 1;"""
    report, _ = run(body)
    assert report.verdict in ("mask-mismatch", "barrier-divergence")

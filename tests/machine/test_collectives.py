"""Shuffles, votes, matches, reductions, atomics and asynchronous copies, lane by lane."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .conftest import SCHEDULES

LANES = np.arange(32, dtype=np.uint32)
ALL = "0xffffffff"


def _shuffle(mode: str, lane: int, b: int, c: int) -> int:
    """The source lane by the formulas of the ISA (shfl.sync), one lane at a time."""
    clamp, segment = c & 31, c >> 8 & 31
    highest = (lane & segment) | (clamp & ~segment)
    lowest = lane & segment
    j = {"up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": lowest | (b & ~segment)}[mode]
    valid = j >= highest if mode == "up" else j <= highest
    return j if valid else lane


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("b", [0, 1, 5, 16, 31])
@pytest.mark.parametrize("width", [32, 16, 8])
def test_shuffle(run: Any, mode: str, b: int, width: int) -> None:
    c = (32 - width) << 8 | (0 if mode == "up" else 31)
    body = f"""
    mul.lo.u32 %r1, %t, 10;
    shfl.sync.{mode}.b32 %r2|%p1, %r1, {b}, {c}, {ALL};
    st.global.u32 [%mine], %r2;"""
    report, out = run(body)
    assert report.verdict == "clean"
    assert out.tolist() == [10 * _shuffle(mode, lane, b, c) for lane in range(32)]


def test_shuffle_of_a_subset_reads_only_its_lanes(run: Any) -> None:
    body = """
    setp.ge.u32 %p1, %t, 8;
    @%p1 bra END;
    shfl.sync.idx.b32 %r1, %t, {src}, 31, 0xff;
    st.global.u32 [%mine], %r1;
END:"""
    report, out = run(body.format(src=3))
    assert (report.verdict, out[:8].tolist()) == ("clean", [3] * 8)
    report, _ = run(body.format(src=9))
    assert report.verdict == "mask-mismatch"


def test_votes(run: Any) -> None:
    body = f"""
    setp.gt.u32 %p1, %t, 20;
    vote.sync.ballot.b32 %r1, %p1, {ALL};
    vote.sync.any.pred %p2, %p1, {ALL}; vote.sync.all.pred %p3, !%p1, {ALL};
    vote.sync.uni.pred %p4, %p1, {ALL};
    selp.u32 %r2, 1, 0, %p2; selp.u32 %r3, 2, 0, %p3; selp.u32 %r4, 4, 0, %p4;
    add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3; add.u32 %r1, %r1, %r4;
    st.global.u32 [%mine], %r1;"""
    report, out = run(body)
    assert report.verdict == "clean"
    assert (out == 0xFFE00000 + 1).all()


def test_matches(run: Any) -> None:
    body = f"""
    and.b32 %r1, %t, 3;
    match.any.sync.b32 %r2, %r1, {ALL};
    match.all.sync.b32 %r3|%p1, %r1, {ALL};
    selp.u32 %r3, 1, %r3, %p1;
    add.u32 %r2, %r2, %r3;
    st.global.u32 [%mine], %r2;"""
    report, out = run(body)
    assert report.verdict == "clean"
    assert (out == np.uint32(0x11111111) << (LANES % 4)).all()


@pytest.mark.parametrize(
    ("operation", "expected"),
    [("add.u32", sum(range(32))), ("min.s32", 0), ("max.u32", 31), ("or.b32", 31), ("xor.b32", 0)],
)
def test_redux(run: Any, operation: str, expected: int) -> None:
    report, out = run(
        f"    redux.sync.{operation} %r1, %t, {ALL};\n    st.global.u32 [%mine], %r1;"
    )
    assert report.verdict == "clean"
    assert (out == expected).all()


def test_redux_of_two_masks_in_one_warp(run: Any) -> None:
    body = """
    setp.lt.u32 %p1, %t, 8; selp.b32 %r1, 0xff, 0xffffff00, %p1;
    redux.sync.add.u32 %r2, %t, %r1;
    st.global.u32 [%mine], %r2;"""
    report, out = run(body)
    assert report.verdict == "clean"
    assert out.tolist() == [sum(range(8))] * 8 + [sum(range(8, 32))] * 24


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("operation", "first", "expected"),
    [
        ("add.u32", 5, 5 + sum(range(96))),
        ("min.u32", 50, 0),
        ("max.s32", 0xFFFFFFFF, 95),
        ("or.b32", 128, 255),
        ("xor.b32", 1, 1),
        ("inc.u32", 0, None),
    ],
)
def test_atomics_on_one_word(
    run: Any, schedule: str, operation: str, first: int, expected: int | None
) -> None:
    data = np.array([first, 0], np.uint32)
    body = f"    atom.global.{operation} %r1, [%in], %t;\n    st.global.u32 [%mine], %r1;"
    report, out = run(body, block=96, data=data, schedule=schedule)
    assert report.verdict == "clean"
    if expected is not None:
        assert data[0] == expected
    if operation == "add.u32":
        # whatever the order: each lane saw the sum of the lanes before it
        order = np.argsort(out, kind="stable")
        seen = np.concatenate([[0], np.cumsum(order)])[:-1] + first
        assert (np.sort(out) == np.sort(seen)).all()


def test_compare_and_swap_gives_one_winner(run: Any) -> None:
    data = np.zeros(2, np.uint32)
    body = """
    add.u32 %r2, %t, 1;
    atom.global.cas.b32 %r1, [%in], 0, %r2;
    st.global.u32 [%mine], %r1;"""
    _, out = run(body, data=data)
    assert (data[0], out.tolist()) == (1, [0] + [1] * 31)


def test_float_atomics_add_in_lane_order(run: Any) -> None:
    """f32 addition rounds after every lane: 2^24 + 1 + 1 + ... stays."""
    data = np.array([2.0**24, 0], np.float32)
    run("    atom.global.add.f32 %r1, [%in], 0f3F800000;", data=data)
    assert data[0] == 2.0**24


def test_cp_async_lands_at_its_wait(run: Any) -> None:
    declare = ".shared .align 16 .b32 s[64];"
    body = """
    mov.u32 %r0, s; shl.b32 %r1, %t, 2; add.u32 %r1, %r0, %r1;
    cvt.u64.u32 %rd1, %r1; mul.wide.u32 %rd2, %t, 4; add.u64 %rd2, %in, %rd2;
    st.shared.u32 [%r1], 1000;
    cp.async.ca.shared.global [%r1], [%rd2], 4;
    cp.async.commit_group;
    ld.shared.u32 %r2, [%r1];
    cp.async.wait_group 0;
    ld.shared.u32 %r3, [%r1];
    add.u32 %r3, %r3, %r2;
    st.global.u32 [%mine], %r3;"""
    _, late = run(body, declare=declare)
    _, early = run(body, declare=declare, schedule="early-async")
    assert (late == 1000 + LANES).all()
    assert (early == 2 * LANES).all()


def test_cp_async_fills_with_zeros(run: Any) -> None:
    declare = ".shared .align 16 .b32 s[128];"
    body = """
    mov.u32 %r0, s; shl.b32 %r1, %t, 4; add.u32 %r1, %r0, %r1;
    and.b32 %r2, %t, 3; shl.b32 %r2, %r2, 2;
    cp.async.cg.shared.global [%r1], [%in], 16, %r2;
    cp.async.wait_all;
    ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [%r1];
    add.u32 %r3, %r3, %r4; add.u32 %r3, %r3, %r5; add.u32 %r3, %r3, %r6;
    st.global.u32 [%mine], %r3;"""
    report, out = run(body, declare=declare, data=np.array([1, 10, 100, 1000], np.uint32))
    assert report.verdict == "clean"
    assert out[:4].tolist() == [0, 1, 11, 111]

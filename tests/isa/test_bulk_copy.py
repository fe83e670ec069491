"""Bulk copies and reductions: results at both landing times, groups, misuse, what watches see."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from async_kernels import (
    LANDINGS,
    SCHEDULES,
    WAIT,
    Recorder,
    errors,
    kernel_text,
    launch,
    verdict,
    watched,
)

import ptxsim
from ptxsim.diagnostics import Severity
from ptxsim.machine.bulk_copies import BulkCopy
from ptxsim.machine.launch import Buffer, LaunchRecord, run
from ptxsim.machine.wave import Geometry

each_schedule = pytest.mark.parametrize("schedule", SCHEDULES)
each_landing = pytest.mark.parametrize("schedule", LANDINGS)

_INIT = "@%p7 bra INITED; mbarrier.init.shared.b64 [mb], {}; INITED: bar.sync 0;"
_LOAD = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes"
_STORE = "cp.async.bulk.global.shared::cta.bulk_group"
#: Each thread's word of ``s``.
_WORD = "shl.b32 %r1, %t, 2; mov.u32 %r2, s; add.u32 %r2, %r2, %r1;"
_COMMIT = "cp.async.bulk.commit_group;"


def _fill(value: str) -> str:
    return f"{_WORD} st.shared.u32 [%r2], {value}; fence.proxy.async.shared::cta; bar.sync 0;"


# --- copies into shared memory --------------------------------------------------------------------


@each_schedule
@pytest.mark.parametrize("space", ["shared::cta", "shared::cluster"])
def test_load(space: str, schedule: str) -> None:
    """128 bytes of each of 5 CTAs, announced and counted by an mbarrier."""
    load = _LOAD.replace("shared::cta", space)
    body = f"""
    {_INIT.format(1)} {_WORD}
    mov.u32 %r3, %ctaid.x; mul.wide.u32 %rd1, %r3, 128; add.u64 %rd1, %rd1, %in;
    @!%p7 mbarrier.arrive.expect_tx.shared.b64 _, [mb], 128;
    mov.u32 %r4, s; mov.u32 %r5, mb;
    @!%p7 {load} [%r4], [%rd1], 128, [%r5];
    {WAIT.format("W", 0)}
    ld.shared.u32 %r6, [%r2]; st.global.u32 [%mine], %r6;"""
    report, out = launch(body, grid=5, schedule=schedule)
    assert not errors(report)
    assert out.tolist() == list(range(160))


@each_landing
def test_bytes_may_complete_before_they_are_expected(schedule: str) -> None:
    """The pending arrival holds the phase open while the tx-count is negative."""
    body = f"""
    {_INIT.format(1)}
    mov.u32 %r4, s; @!%p7 {_LOAD} [%r4], [%in], 1024, [mb];
    bar.sync 0;
    @!%p7 mbarrier.arrive.expect_tx.shared.b64 _, [mb], 1024;
    {WAIT.format("W", 0)} {_WORD}
    ld.shared.u32 %r6, [%r2+896]; st.global.u32 [%mine], %r6;"""
    report, out = launch(body, schedule=schedule)
    assert not errors(report)
    assert out.tolist() == list(range(224, 256))


@each_landing
def test_a_copy_for_each_lane_of_its_own_size(schedule: str) -> None:
    """Four lanes copy 0, 16, 32 and 48 bytes and expect them; nothing else is written."""
    body = f"""
    {_INIT.format(4)} {_WORD} st.shared.u32 [%r2], 7777; st.shared.u32 [%r2+128], 7777;
    fence.proxy.async; bar.sync 0;
    setp.gt.u32 %p1, %t, 3; @%p1 bra WAITING;
    shl.b32 %r3, %t, 4; shl.b32 %r4, %t, 6; mov.u32 %r5, s; add.u32 %r5, %r5, %r4;
    cvt.u64.u32 %rd1, %r4; add.u64 %rd1, %rd1, %in;
    mbarrier.arrive.expect_tx.shared.b64 _, [mb], %r3;
    {_LOAD} [%r5], [%rd1], %r3, [mb];
WAITING: {WAIT.format("W", 0)}
    add.u64 %rd2, %mine, 128;
    ld.shared.u32 %r6, [%r2]; st.global.u32 [%mine], %r6;
    ld.shared.u32 %r6, [%r2+128]; st.global.u32 [%rd2], %r6;"""
    report, out = launch(body, out=np.zeros(64, np.uint32), schedule=schedule)
    assert not errors(report)
    words = np.arange(64)
    assert out.tolist() == np.where(words % 16 < words // 16 * 4, words, 7777).tolist()


def test_the_default_lands_as_late_as_allowed() -> None:
    """A program that reads too soon: the early landing shows the bytes, the late one does not."""
    body = f"""
    {_INIT.format(1)} {_WORD} st.shared.u32 [%r2], 7; bar.sync 0; mov.u32 %r4, s;
    @!%p7 mbarrier.arrive.expect_tx.shared.b64 _, [mb], 128;
    @!%p7 {_LOAD} [%r4], [%in], 128, [mb];
    bar.sync 0; ld.shared.u32 %r6, [%r2]; st.global.u32 [%mine], %r6; {WAIT.format("W", 0)}"""
    assert launch(body)[1].tolist() == [7] * 32
    assert launch(body, schedule="early-async")[1].tolist() == list(range(32))


# --- ends that are ignored ------------------------------------------------------------------------

_EDGES = _LOAD + ".ignore_oob"


def _edges(
    left: str, right: str, read: str = "%r2", meanwhile: str = "", **options: Any
) -> tuple[ptxsim.Report, Any]:
    """Threads read words of 128 bytes that were copied from ``%in``, whose ends are ignored."""
    body = f"""
    {_INIT.format(1)} {_WORD} mov.u32 %r4, s; mov.u32 %r5, mb;
    mov.u32 %r7, {left}; mov.u32 %r8, {right};
    @!%p7 mbarrier.arrive.expect_tx.shared.b64 _, [mb], 128;
    @!%p7 {_EDGES} [%r4], [%in], 128, %r7, %r8, [%r5]; {meanwhile}
    {WAIT.format("W", 0)} add.u32 %r9, %r4, 96; min.u32 %r9, %r9, %r2;
    ld.shared.u32 %r6, [{read}]; st.global.u32 [%mine], %r6;"""
    return launch(body, version="9.2", tools="all", **options)


@each_schedule
def test_a_copy_from_behind_the_end_of_a_buffer(schedule: str) -> None:
    """29 words are there, and all 128 bytes complete; only words in front are read."""
    data = np.arange(29, dtype=np.uint32)
    report, out = _edges("0", "12", "%r9", data=data, schedule=schedule)
    assert not errors(report)
    assert out.tolist() == [min(k, 24) for k in range(32)]


@each_schedule
@pytest.mark.parametrize(
    ("left", "right", "byte", "race"),
    [("3", "0", 2, False), ("2", "0", 2, True), ("0", "13", 115, False), ("0", "12", 115, True)],
)
def test_ignored_bytes_are_not_read(
    left: str, right: str, byte: int, race: bool, schedule: str
) -> None:
    """A store to a byte of the source, while the copy is in flight."""
    store = f"@!%p7 st.global.u8 [%in+{byte}], %r4;"
    report, _ = _edges(left, right, "%r4+16", store, schedule=schedule)
    assert [class_ for class_, _ in errors(report)] == ["async-race"] * race


@each_landing
def test_ignored_bytes_are_indeterminate(schedule: str) -> None:
    """Whatever the source has there: 3 bytes of the first word, and the last 3 words and a byte."""
    report, out = _edges("3", "13", schedule=schedule)
    (found,) = [f for f in report.findings if f.severity is Severity.ERROR]
    assert (found.class_, found.lanes) == ("uninit-shared", (0, 28, 29, 30, 31))
    assert out[1:28].tolist() == list(range(1, 28))
    assert not errors(_edges("0", "0", schedule=schedule)[0])


@pytest.mark.parametrize(
    ("left", "right", "class_", "message"),
    [
        ("0", "11", "oob-global", "117-byte access"),
        ("0", "16", "bulk-args", "fewer than 16 bytes at an end are ignored, not 16"),
        ("-1", "0", "bulk-args", "not 4294967295"),
    ],
)
def test_wrong_ends(left: str, right: str, class_: str, message: str) -> None:
    """One byte more of 29 words than is ignored; more than a chunk."""
    report, _ = _edges(left, right, data=np.arange(29, dtype=np.uint32))
    (found,) = errors(report)
    assert found[0] == class_ and message in found[1]


def test_alignment_without_ends() -> None:
    """It is the address of the operand that is aligned (PTX ISA 9.2, cp.async.bulk)."""
    body = f"{_INIT.format(1)} mov.u32 %r4, s; @!%p7 {_EDGES} [%r4], [%in+8], 16, 8, 0, [mb];"
    (found,) = errors(launch(body, version="9.2")[0])
    assert found[0] == "misaligned-global" and "(off by 8)" in found[1]


# --- copies into global memory and groups ---------------------------------------------------------


@each_schedule
def test_store(schedule: str) -> None:
    body = f"""
    mov.u32 %r3, %ctaid.x; mad.lo.u32 %r3, %r3, 32, %t; {_fill("%r3")}
    @%p7 bra END; mov.u32 %r4, s;
    {_STORE} [%mine], [%r4], 128; {_COMMIT} cp.async.bulk.wait_group 0;
END:"""
    report, out = launch(body, grid=4, schedule=schedule)
    assert not errors(report)
    assert out.tolist() == list(range(128))


@each_schedule
def test_store_of_what_another_warp_hands_over(schedule: str) -> None:
    """Warp 0 writes, fences and arrives; a lane of warp 1 waits and stores."""
    body = f"""
    {_INIT.format(32)} {_WORD} setp.ge.u32 %p1, %t, 32; @%p1 bra STORER;
    st.shared.u32 [%r2], %t; fence.proxy.async.shared::cta;
    mbarrier.arrive.shared.b64 _, [mb]; bra END;
STORER: {WAIT.format("W", 0)}
    setp.ne.u32 %p1, %t, 32; @%p1 bra END; mov.u32 %r4, s;
    {_STORE} [%out], [%r4], 128; {_COMMIT} cp.async.bulk.wait_group 0;
END:"""
    report, out = launch(body, block=64, schedule=schedule)
    assert not errors(report)
    assert out[:32].tolist() == list(range(32))


def _groups(wait: str) -> list[int]:
    """Three groups of one store; what is in global memory after ``wait``."""
    stores = "".join(f"{_STORE} [%out+{16 * k}], [%r4], 16; {_COMMIT}" for k in range(3))
    reads = "".join(
        f"ld.volatile.global.u32 %r5, [%out+{16 * k}]; st.global.u32 [%out+{64 + 4 * k}], %r5;"
        for k in range(3)
    )
    body = f"""
    {_fill("5")} @%p7 bra END; mov.u32 %r4, s; {stores} {wait} {reads} cp.async.bulk.wait_group 0;
END:"""
    report, out = launch(body)
    assert not errors(report)
    assert out[[0, 4, 8]].tolist() == [5, 5, 5]
    values: list[int] = out[16:19].tolist()
    return values


def test_groups_complete_in_order() -> None:
    assert _groups("cp.async.bulk.wait_group 0;") == [5, 5, 5]
    assert _groups("cp.async.bulk.wait_group 1;") == [5, 5, 0]
    assert _groups("cp.async.bulk.wait_group 2;") == [5, 0, 0]
    assert _groups("cp.async.bulk.wait_group 3;") == [0, 0, 0]
    assert _groups("") == [0, 0, 0]
    assert _groups("cp.async.bulk.wait_group.read 0;") == [0, 0, 0]


@each_landing
def test_a_source_that_was_read_may_be_overwritten(schedule: str) -> None:
    body = f"""
    {_fill("%t")} mov.u32 %r4, s;
    @!%p7 {_STORE} [%out], [%r4], 128; {_COMMIT} cp.async.bulk.wait_group.read 0;
    bar.sync 0; st.shared.u32 [%r2], 99; cp.async.bulk.wait_group 0;"""
    report, out = launch(body, schedule=schedule)
    assert not errors(report)
    assert out.tolist() == list(range(32))


@each_landing
def test_groups_belong_to_threads(schedule: str) -> None:
    """Each of 8 lanes stores 16 bytes; the wait of lane 0 is for its own group only."""
    body = f"""
    {_fill("%t")} setp.gt.u32 %p1, %t, 7; @%p1 bra END;
    shl.b32 %r3, %t, 4; mov.u32 %r4, s; add.u32 %r4, %r4, %r3; cvt.u64.u32 %rd1, %r3;
    add.u64 %rd1, %out, %rd1;
    {_STORE} [%rd1], [%r4], 16; {_COMMIT}
    @!%p7 cp.async.bulk.wait_group 0;
    ld.volatile.global.u32 %r5, [%rd1]; st.global.u32 [%mine+128], %r5;
    cp.async.bulk.wait_group 0;
END:"""
    report, out = launch(body, out=np.full(64, 1000, np.uint32), schedule=schedule)
    assert not errors(report)
    assert out[:32].tolist() == list(range(32))
    late = [0] + [1000] * 7
    assert out[32:40].tolist() == (late if schedule == "default" else list(range(0, 32, 4)))


def test_a_store_that_nobody_waits_for_lands_and_is_found() -> None:
    body = f"{_fill('%t')} mov.u32 %r4, s; @!%p7 {_STORE} [%out], [%r4], 128;"
    report, out = launch(body)
    assert out.tolist() == list(range(32))
    assert [c for c, _ in errors(report)] == ["async-race"]


@each_landing
def test_a_load_that_nobody_waits_for_is_found(schedule: str) -> None:
    body = f"""
    {_INIT.format(1)} mov.u32 %r4, s;
    @!%p7 mbarrier.arrive.expect_tx.shared.b64 _, [mb], 128;
    @!%p7 {_LOAD} [%r4], [%in], 128, [mb];"""
    report, _ = launch(body, schedule=schedule)
    ((class_, message),) = errors(report)
    assert class_ == "async-race"
    assert "no wait has seen it complete" in message


def test_a_spinning_reader_gets_the_store_in_the_end() -> None:
    """Copies make progress by themselves: a loop on the target ends, though nothing waits."""
    body = f"""
    {_fill("3")} @%p7 bra END; mov.u32 %r4, s; {_STORE} [%out], [%r4], 16; {_COMMIT}
SPIN: ld.volatile.global.u32 %r5, [%out]; setp.ne.u32 %p1, %r5, 3; @%p1 bra SPIN;
    cp.async.bulk.wait_group 0;
END:"""
    report, out = launch(body)
    assert not errors(report)
    assert out[:4].tolist() == [3] * 4


# --- reductions -----------------------------------------------------------------------------------

_REDUCTIONS = [
    ("add", "u32"), ("add", "s32"), ("add", "u64"), ("min", "u32"), ("max", "s32"), ("min", "s64"),
    ("max", "u64"), ("inc", "u32"), ("dec", "u32"), ("and", "b32"), ("or", "b64"), ("xor", "b32"),
]  # fmt: skip


def _reduced(op: str, old: Any, new: Any) -> Any:
    if op == "inc":
        return np.where(old >= new, 0, old + 1)
    if op == "dec":
        return np.where((old == 0) | (old > new), new, old - 1)
    numpy_name = {"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "add": "add",
                  "min": "minimum", "max": "maximum"}[op]  # fmt: skip
    return getattr(np, numpy_name)(old, new)


def _reduce_global(op: str, old: Any, new: Any) -> Any:
    """Load ``new`` by words into shared memory and reduce it into ``old``."""
    body = f"""
    shl.b32 %r1, %t, 2; cvt.u64.u32 %rd0, %r1; add.u64 %rd0, %rd0, %in;
    ld.global.u32 %r9, [%rd0]; {_fill("%r9")} mov.u32 %r4, s;
    @%p7 bra END;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.{op} [%out], [%r4], 128;
    {_COMMIT} cp.async.bulk.wait_group 0;
END:"""
    results = []
    for schedule in LANDINGS:
        words = old.view(np.uint32).copy()
        report, _ = launch(body, out=words, data=new.view(np.uint32), schedule=schedule)
        assert not errors(report)
        results.append(words.view(old.dtype))
    assert (results[0].view(np.uint32) == results[1].view(np.uint32)).all()
    return results[0]


@pytest.mark.parametrize(("op", "type_"), _REDUCTIONS)
def test_integer_reductions(op: str, type_: str) -> None:
    """Against NumPy, on random bits with equal and zero elements among them."""
    rng = np.random.default_rng(5)
    dtype = np.dtype(f"{type_[0].replace('s', 'i').replace('b', 'u')}{int(type_[1:]) // 8}")
    old, new = (rng.integers(0, 256, 128, np.uint8).view(dtype) for _ in range(2))
    new[:4] = old[:4]
    old[1] = 0
    assert (_reduce_global(f"{op}.{type_}", old, new) == _reduced(op, old, new)).all()


def test_float_reductions() -> None:
    """add rounds to nearest even; f32 flushes subnormals, f16 and f64 keep them."""
    old = np.resize(np.array([1.5, -2.25, 1e-40, 3e38], np.float32), 32)
    new = np.resize(np.array([2.0**-24, 2.25, 1e-40, 3e38], np.float32), 32)
    with np.errstate(over="ignore"):
        wanted = np.where(np.abs(old) < 1e-38, np.float32(0), old + new)
    assert (_reduce_global("add.f32", old, new) == wanted).all()
    old64 = np.resize(np.array([1.1, 5e-324]), 16)
    assert (_reduce_global("add.f64", old64, old64) == old64 + old64).all()
    old16 = np.resize(np.array([1.0, 6e-8, 1000.0, -3.0], np.float16), 64)
    new16 = np.resize(np.array([0.5, 6e-8, 0.25, 7.0], np.float16), 64)
    assert (_reduce_global("add.noftz.f16", old16, new16) == old16 + new16).all()
    assert (_reduce_global("min.f16", old16, new16) == np.minimum(old16, new16)).all()


@each_schedule
def test_reductions_of_several_ctas_add_up(schedule: str) -> None:
    body = f"""
    {_fill("%t")} mov.u32 %r4, s; @%p7 bra END;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%out], [%r4], 128;
    {_COMMIT} cp.async.bulk.wait_group 0;
END:"""
    report, out = launch(body, grid=7, out=np.ones(32, np.uint32), schedule=schedule)
    assert not errors(report)
    assert out.tolist() == [1 + 7 * k for k in range(32)]


@each_landing
def test_reduction_within_shared_memory(schedule: str) -> None:
    body = f"""
    {_INIT.format(1)} {_WORD} st.shared.u32 [%r2+512], 1000; {_fill("%t")}
    mov.u32 %r4, s; add.u32 %r5, %r4, 512; mov.u32 %r6, mb;
    @!%p7 mbarrier.arrive.expect_tx.shared.b64 _, [mb], 128;
    @!%p7 cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32
        [%r5], [%r4], 128, [%r6];
    {WAIT.format("W", 0)} ld.shared.u32 %r7, [%r2+512]; st.global.u32 [%mine], %r7;"""
    report, out = launch(body, schedule=schedule)
    assert not errors(report)
    assert out.tolist() == list(range(1000, 1032))


# --- st.bulk and the hint -------------------------------------------------------------------------


def test_st_bulk_clears() -> None:
    """Two lanes clear 24 bytes each, by a shared and by a generic address."""
    body = f"""
    {_fill("77")} setp.gt.u32 %p1, %t, 1; mov.u32 %r3, s; mov.u64 %rd1, s;
    cvta.shared.u64 %rd1, %rd1; mov.u64 %rd2, 24;
    @!%p7 st.bulk.shared::cta [%r3], %rd2, 0; @!%p7 st.bulk.weak [%rd1+64], 16, 0;
    bar.sync 0; ld.shared.u32 %r4, [%r2]; st.global.u32 [%mine], %r4;"""
    report, out = launch(body)
    assert not errors(report)
    assert out.tolist() == [0] * 6 + [77] * 10 + [0] * 4 + [77] * 12


def test_the_prefetch_has_no_effect() -> None:
    body = "cp.async.bulk.prefetch.L2.global [%in], 64; st.global.u32 [%mine], 1;"
    report, out = launch(body)
    assert report.findings == ()
    assert out.tolist() == [1] * 32


# --- misuse ---------------------------------------------------------------------------------------

_ISSUE = "@%p7 bra END; mov.u32 %r4, s; mbarrier.init.shared.b64 [mb], 1; {} \nEND:"
_MISUSE = {
    "size": (
        f"mov.u32 %r3, 40; {_LOAD} [%r4], [%in], %r3, [mb];", "bulk-args",
        "the size of a bulk copy is a multiple of 16, not 40"),
    "store size": (
        f"mov.u32 %r3, 8; {_STORE} [%out], [%r4], %r3;", "bulk-args", "multiple of 16, not 8"),
    "target alignment": (
        f"{_LOAD} [%r4+8], [%in], 16, [mb];", "misaligned-shared", "not a multiple of 16"),
    "source alignment": (
        f"{_LOAD} [%r4], [%in+4], 16, [mb];", "misaligned-global", "not a multiple of 16"),
    "past the source": (
        f"{_LOAD} [%r4], [%in+1008], 32, [mb];", "oob-global", "its last 16 bytes past the end of"),
    "past the target": (
        f"{_LOAD} [%r4+1008], [%in], 32, [mb];", "oob-shared", "32-byte access"),
    "store past the target": (
        f"{_STORE} [%out+112], [%r4], 32;", "oob-global", "32-byte access"),
    "no mbarrier": (
        f"{_LOAD} [%r4], [%in], 16, [mb+8];", "mbarrier", "there is no mbarrier at"),
    "invalidated too soon": (
        f"mbarrier.arrive.expect_tx.shared.b64 _, [mb], 16; {_LOAD} [%r4], [%in], 16, [mb];"
        " mbarrier.inval.shared.b64 [mb];", "mbarrier",
        "invalidates an mbarrier that a bulk copy still signals"),
    "st.bulk size": (
        "mov.u64 %rd1, 12; st.bulk.shared::cta [%r4], %rd1, 0;", "bulk-args",
        "the size is a multiple of 8 up to 16777216, not 12"),
    "st.bulk to global memory": (
        "st.bulk [%out], 16, 0;", "oob-shared", "the generic address is not in shared memory"),
}  # fmt: skip


@each_landing
@pytest.mark.parametrize("case", _MISUSE)
def test_misuse_is_found(case: str, schedule: str) -> None:
    body, class_, message = _MISUSE[case]
    report, _ = launch(_ISSUE.format(body), schedule=schedule)
    (found,) = errors(report)
    assert found[0] == class_
    assert message in found[1]


def test_correct_use_has_no_finding() -> None:
    body = f"{_LOAD} [%r4], [%in+1008], 16, [mb];"
    body += " mbarrier.arrive.expect_tx.shared.b64 _, [mb], 16;" + WAIT.format("W", 0)
    body += " mbarrier.inval.shared.b64 [mb];"
    assert launch(_ISSUE.format(body))[0].findings == ()


def test_bytes_of_a_wrong_count_are_a_deadlock() -> None:
    """Sixteen bytes more are expected than come."""
    body = f"{_LOAD} [%r4], [%in], 128, [mb]; mbarrier.arrive.expect_tx.shared.b64 _, [mb], 144;"
    report, _ = launch(_ISSUE.format(body + WAIT.format("W", 0)))
    (finding,) = report.findings
    assert (finding.class_, finding.values["tx_count"]) == ("deadlock", 16)


@pytest.mark.parametrize(("instruction", "undefined"), [(_STORE, 16), ("", 0)])
def test_undefined_bytes_stay_undefined(instruction: str, undefined: int) -> None:
    """16 of 32 bytes that are copied in are undefined, and so are they when copied out."""
    out = f"{instruction} [%out], [%r4], 32; {_COMMIT} cp.async.bulk.wait_group 0;"
    body = f"""
    @%p7 bra END; mbarrier.init.shared.b64 [mb], 1; mov.u32 %r4, s;
    mbarrier.arrive.expect_tx.shared.b64 _, [mb], 32;
    {_LOAD} [%r4], [%in], 32, [mb]; {WAIT.format("W", 0)}
    {out if instruction else ""}
END:"""
    module = ptxsim.assemble(kernel_text(body)).typed
    defined = np.arange(64) >= 16
    zeros = np.zeros(64, np.uint8)
    buffers = (Buffer("out", zeros.copy()), Buffer("in", zeros, False, defined))
    record = LaunchRecord(module, "k", Geometry((1, 1, 1), (32, 1, 1)), buffers, initcheck=True)
    found: list[str] = []
    outcome = run(record, lambda class_, *rest, **values: found.append(class_))
    assert not found
    assert outcome.undefined(0) == undefined


# --- what watches are told ------------------------------------------------------------------------


def _copies(watch: Recorder) -> list[tuple[Any, ...]]:
    return [e for e in watch.events if e[0].startswith(("bulk_", "proxy_"))]


@pytest.mark.parametrize("early", [False, True])
def test_events_of_a_load(early: bool) -> None:
    body = f"""
    @%p7 bra END; mbarrier.init.shared.b64 [mb+8], 1; mov.u32 %r4, s;
    mbarrier.arrive.expect_tx.shared.b64 _, [mb+8], 32;
    {_LOAD} [%r4+16], [%in+64], 32, [mb+8]; {WAIT.format("W", 0).replace("[mb]", "[mb+8]")}
END:"""
    watch = Recorder()
    assert not watched(body, watch, schedule="early-async" if early else "default")
    (_, issued), (_, landed) = _copies(watch)
    assert isinstance(issued, BulkCopy) and landed is issued
    assert (issued.lane, issued.cta, issued.direction) == (0, 0, "global->shared")
    assert (issued.size, issued.mbarrier, issued.phase, issued.group) == (32, 8, 0, None)
    assert issued.target == 128 + 16  # s begins at its alignment
    assert (issued.source_space, issued.target_space) == ("global", "shared")
    names = [name for name, *_ in watch.events]
    passed = names.index("mbarrier_passed")
    assert names.index("bulk_landed") < passed
    assert (names.index("bulk_landed") == names.index("bulk_issued") + 1) or not early


def test_events_of_groups() -> None:
    """A read wait tells no landing; groups are counted from 0, limits are exclusive."""
    body = f"""
    @%p7 bra END; mov.u32 %r4, s;
    {_STORE} [%out], [%r4], 16; {_COMMIT} {_COMMIT}
    cp.async.bulk.wait_group.read 1; cp.async.bulk.wait_group 0;
END:"""
    watch = Recorder()
    assert not watched(body, watch)
    copy = watch.events[0][1]
    assert (copy.direction, copy.group, copy.mbarrier, copy.phase) == (
        "shared->global",
        0,
        None,
        None,
    )
    assert _copies(watch) == [
        ("bulk_issued", copy), ("bulk_committed", 0, 0), ("bulk_committed", 0, 1),
        ("bulk_waited", 0, 1, True), ("bulk_landed", copy), ("bulk_waited", 0, 2, False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fence", "kind"),
    [
        ("fence.proxy.async", "async"), ("fence.proxy.async.global", "async"),
        ("fence.proxy.async.shared::cta", "async"), ("fence.proxy.alias", "alias"),
        ("membar.proxy.async", "async"), ("membar.proxy.alias", "alias"),
    ],
)  # fmt: skip
def test_event_of_a_proxy_fence(fence: str, kind: str) -> None:
    watch = Recorder()
    assert not watched(f"@!%p7 {fence};", watch)
    assert watch.events == [("proxy_fence", [0], kind)]


def test_the_fence_of_inits_is_no_fence_of_accesses() -> None:
    watch = Recorder()
    assert not watched("fence.mbarrier_init.release.cluster;", watch)
    assert watch.events == []


# --- static forms ---------------------------------------------------------------------------------

_PEER = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"


@pytest.mark.parametrize(
    ("line", "floor", "below", "what"),
    [  # the lowest PTX ISA version and target that ptxas 13.5 takes, and one that it refuses
        (f"{_LOAD} [%r1], [%rd1], %r2, [%r3];", "8.6 sm_90", "8.5 sm_90", "legal"),
        (f"{_LOAD}.L2::cache_hint [%r1], [%rd1], 32, [%r3], %rd2;", "8.6 sm_90", "8.5 sm_90",
         "legal"),
        (f"{_LOAD.replace('cta', 'cluster')} [%r1], [%rd1], %r2, [%r3];", "8.0 sm_90", "9.5 sm_80",
         "legal"),
        (f"{_STORE} [%rd1], [%r1], %r2;", "8.0 sm_90", "7.8 sm_90", "legal"),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 [%rd1], [%r1], %r2;",
         "8.0 sm_90", "9.5 sm_80", "legal"),
        ("cp.async.bulk.wait_group.read 3;", "8.0 sm_90", "9.5 sm_80", "legal"),
        ("st.bulk.weak [%rd1], %rd2, 0;", "8.6 sm_100", "9.5 sm_90", "legal"),
        (f"{_LOAD.replace('cta', 'cluster')}.multicast::cluster [%r1], [%rd1], 16, [%r3], %h1;",
         "8.0 sm_90", "9.5 sm_80", "unsupported"),
        (f"{_PEER} [%r1], [%r2], %r3, [%r4];", "8.0 sm_90", "9.5 sm_80", "unsupported"),
        (f"{_STORE}.cp_mask [%rd1], [%r1], %r2, %h1;", "8.6 sm_100", "9.5 sm_90", "unsupported"),
        (f"{_LOAD}.ignore_oob [%r1], [%rd1], %r2, %r3, %r4, [%r5];", "9.2 sm_90", "9.1 sm_90",
         "legal"),
        ("fence.proxy.tensormap::generic.release.gpu;", "8.3 sm_90", "8.2 sm_90", "unsupported"),
    ],
)  # fmt: skip
def test_floors(line: str, floor: str, below: str, what: str) -> None:
    assert verdict(line, *floor.split(" ")) == what
    assert verdict(line, *below.split(" ")) == "PTX107"


@pytest.mark.parametrize(
    "line",
    [
        f"{_LOAD} [%r1], [%rd1], 40, [%r3];",
        f"{_LOAD} [%r1], [%rd1], %r2;",
        f"{_STORE} [%rd1], [%r1], %r2, [%r3];",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.xor.s32 [%rd1], [%r1], %r2;",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s64 [%rd1], [%r1], %r2;",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.min.f32 [%rd1], [%r1], %r2;",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f16 [%rd1], [%r1], %r2;",
        "st.bulk [%rd1], %rd2, 1;",
        "cp.async.bulk.wait_group %r1;",
        f"{_LOAD}.ignore_oob [%r1], [%rd1], 32, 16, 0, [%r3];",
    ],
)
def test_illegal_lines(line: str) -> None:
    assert verdict(line) in ("PTX104", "PTX105", "PTX106")

"""Mbarrier objects: the state machine against a scalar model, waits, misuse, what watches see."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest
from async_kernels import LANDINGS, SCHEDULES, WAIT, Recorder, errors, launch, verdict, watched

from ptxsim.diagnostics import Severity
from ptxsim.isa.mbarrier import COUNT_LIMIT, pack_state, pending_of, phase_of, serial_of
from ptxsim.isa.order import MemoryOrder
from ptxsim.machine.mbarriers import MbarrierAccess

each_schedule = pytest.mark.parametrize("schedule", SCHEDULES)
each_landing = pytest.mark.parametrize("schedule", LANDINGS)

_INIT = "@%p7 bra INITED; mbarrier.init.shared.b64 [mb], {}; INITED: bar.sync 0;"


# --- the state machine ----------------------------------------------------------------------------


@dataclass
class Model:
    """The table of PTX ISA 9.1, mbarrier: Operations, one operation at a time."""

    expected: int
    pending: int
    phase: int = 0
    tx: int = 0

    def settle(self) -> None:
        if self.pending == 0 and self.tx == 0:
            self.phase += 1
            self.pending = self.expected

    def arrive(self, count: int, size: int, drop: bool) -> int:
        before = self.pending
        self.tx += size
        if drop:
            self.expected -= count
        self.pending -= count
        self.settle()
        return before

    def transact(self, size: int) -> None:
        self.tx += size
        self.settle()


def _random_operations(rng: random.Random) -> tuple[str, list[int]]:
    """A straight program of one thread, and what it stores.

    Each arrival stores the pending count of its state; each round stores the four answers of a
    test by parity 0, by parity 1, by the state of the last arrival, and by try_wait.
    """
    count = rng.randrange(2, 40)
    b = Model(count, count)
    lines = [f"@%p7 bra END; mbarrier.init.shared.b64 [mb], {count};"]
    stored: list[int] = []
    token: int | None = None

    def store(register: str, value: int) -> None:
        lines.append(f"st.global.u32 [%out+{4 * len(stored)}], {register};")
        stored.append(value)

    for _ in range(60):
        kind = rng.choice(
            ["arrive", "arrive", "count", "expect", "drop", "transact", "no_complete"]
        )
        n = 1 if kind in ("arrive", "expect") else rng.randrange(1, max(b.pending, 1) + 1)
        size = rng.choice([0, 16, 128]) if kind == "expect" else 0
        completes = b.pending == n and b.tx + size == 0
        if kind == "transact" or n > b.pending or (kind == "no_complete" and completes):
            size = -b.tx if b.tx and rng.random() < 0.5 else rng.choice([16, 48])
            word = "expect_tx" if size > 0 else "complete_tx"
            lines.append(f"mbarrier.{word}.relaxed.cta.shared::cta.b64 [mb], {abs(size)};")
            b.transact(size)
        else:
            if kind == "drop" and n >= b.expected:
                kind, n = "arrive", 1
            text = {
                "arrive": "mbarrier.arrive.shared.b64 %rd0, [mb];",
                "count": f"mbarrier.arrive.release.cta.shared::cta.b64 %rd0, [mb], {n};",
                "expect": f"mbarrier.arrive.expect_tx.shared.b64 %rd0, [mb], {size};",
                "drop": f"mbarrier.arrive_drop.shared.b64 %rd0, [mb], {n};",
                "no_complete": f"mbarrier.arrive.noComplete.shared.b64 %rd0, [mb], {n};",
            }[kind]
            lines.append(text + " mbarrier.pending_count.b64 %r0, %rd0;")
            token = b.phase
            store("%r0", b.arrive(n, size, kind == "drop"))
        if token is None or b.phase - token > 1:
            continue
        answers = [b.phase % 2 != 0, b.phase % 2 != 1, b.phase > token, b.phase > token]
        for test, answer in zip(
            (
                "test_wait.parity.shared.b64 %p0, [mb], 0",
                "test_wait.parity.acquire.cta.shared.b64 %p0, [mb], 1",
                "test_wait.shared.b64 %p0, [mb], %rd0",
                "try_wait.shared.b64 %p0, [mb], %rd0, 1000",
            ),
            answers,
            strict=True,
        ):
            lines.append(f"mbarrier.{test}; selp.u32 %r1, 1, 0, %p0;")
            store("%r1", int(answer))
    if b.tx:
        word = "complete_tx" if b.tx > 0 else "expect_tx"
        lines.append(f"mbarrier.{word}.shared.b64 [mb], {abs(b.tx)};")
    return "\n".join([*lines, "END:"]), stored


@pytest.mark.parametrize("seed", range(12))
def test_random_operations_follow_the_model(seed: int) -> None:
    body, expected = _random_operations(random.Random(seed))
    report, out = launch(body, out=np.zeros(len(expected), np.uint32))
    assert not errors(report)
    assert out.tolist() == expected


def test_the_model_passes_phases() -> None:
    """Guards the test above: its programs complete phases, drop and move bytes."""
    texts = [_random_operations(random.Random(seed))[0] for seed in range(12)]
    for word in ("arrive_drop", "complete_tx", "expect_tx", "noComplete"):
        assert sum(text.count(word) for text in texts) > 12
    stored = [_random_operations(random.Random(seed))[1] for seed in range(12)]
    assert sum(len(s) for s in stored) > 1000


@each_schedule
def test_many_lanes_arrive_on_one_object(schedule: str) -> None:
    """128 arrivals of lane % 3 + 1 each: the lanes see the partial sums of some order."""
    counts = np.arange(128) % 3 + 1
    total = int(counts.sum())
    body = (
        _INIT.format(total)
        + """
    rem.u32 %r0, %t, 3; add.u32 %r0, %r0, 1;
    mbarrier.arrive.shared.b64 %rd0, [mb], %r0;
    mbarrier.pending_count.b64 %r1, %rd0;
WAIT: mbarrier.test_wait.shared.b64 %p0, [mb], %rd0; @!%p0 bra WAIT;
    st.global.u32 [%mine], %r1;"""
    )
    report, out = launch(body, block=128, schedule=schedule)
    assert not errors(report)
    order = np.argsort(-out.astype(np.int64))
    assert out[order].tolist() == (total - np.cumsum(counts[order]) + counts[order]).tolist()


def test_one_instruction_completes_several_phases() -> None:
    """32 lanes arrive at an object of 8: four phases; each lane's state is of its own phase."""
    body = (
        _INIT.format(8)
        + """
    mbarrier.arrive.shared.b64 %rd0, [mb];
    mbarrier.pending_count.b64 %r1, %rd0;
    shr.u64 %rd1, %rd0, 63; cvt.u32.u64 %r2, %rd1;
    mad.lo.u32 %r1, %r2, 100, %r1;
    st.global.u32 [%mine], %r1;"""
    )
    report, out = launch(body)
    assert not errors(report)
    assert out.tolist() == [8 - i % 8 + 100 * (i // 8 % 2) for i in range(32)]


def test_objects_of_many_ctas_are_apart() -> None:
    body = (
        _INIT.format(64)
        + """
    mov.u64 %rd2, mb; cvta.shared.u64 %rd2, %rd2;
    mbarrier.arrive.b64 %rd0, [%rd2];
    st.shared.u32 [s], 5;
WAIT: mbarrier.test_wait.b64 %p0, [%rd2], %rd0; @!%p0 bra WAIT;
    mov.u32 %r0, %ctaid.x; st.global.u32 [%mine], %r0;"""
    )
    report, out = launch(body, block=64, grid=9)
    assert not errors(report)
    assert out.tolist() == np.repeat(np.arange(9), 64).tolist()


def test_state_fields() -> None:
    """Pending arrivals from the empty to the full count go through a state unharmed."""
    pending = np.array([0, 1, 77, COUNT_LIMIT])
    states = pack_state(5, pending, 9)
    assert pending_of(states).tolist() == pending.tolist()
    assert phase_of(states).tolist() == [5] * 4
    assert serial_of(states).tolist() == [9] * 4
    assert (states >> np.uint64(63)).tolist() == [1] * 4


# --- waits ----------------------------------------------------------------------------------------


@each_schedule
def test_a_ring_of_two_objects_by_parity(schedule: str) -> None:
    """Warp 0 hands eight words of 32 lanes to warp 1; both flip their parity each round."""
    body = """
    @%p7 bra INITED;
    mbarrier.init.shared.b64 [mb], 32; mbarrier.init.shared.b64 [mb+8], 32;
INITED: bar.sync 0;
    and.b32 %r0, %t, 31; shl.b32 %r1, %r0, 2; mov.u32 %r2, s; add.u32 %r2, %r2, %r1;
    mov.u32 %r3, 0; cvt.u64.u32 %rd0, %r1; add.u64 %rd1, %in, %rd0; add.u64 %rd2, %out, %rd0;
    setp.ge.u32 %p1, %t, 32; @%p1 bra TAKE;
GIVE: and.b32 %r4, %r3, 1; xor.b32 %r5, %r4, 1;
EMPTY: mbarrier.try_wait.parity.shared.b64 %p0, [mb+8], %r5; @!%p0 bra EMPTY;
    ld.global.u32 %r6, [%rd1]; st.shared.u32 [%r2], %r6;
    mbarrier.arrive.shared.b64 _, [mb];
    add.u64 %rd1, %rd1, 128; add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 8; @%p2 bra GIVE;
    bra END;
TAKE: and.b32 %r4, %r3, 1;
FULL: mbarrier.try_wait.parity.shared.b64 %p0, [mb], %r4; @!%p0 bra FULL;
    ld.shared.u32 %r6, [%r2]; add.u32 %r6, %r6, 1; st.global.u32 [%rd2], %r6;
    mbarrier.arrive.shared.b64 _, [mb+8];
    add.u64 %rd2, %rd2, 128; add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 8; @%p2 bra TAKE;
END:"""
    report, out = launch(body, block=64, out=np.zeros(256, np.uint32), schedule=schedule)
    assert not errors(report)
    assert out.tolist() == list(range(1, 257))


@each_schedule
def test_a_wait_that_nothing_ends(schedule: str) -> None:
    """Bytes are announced, nobody arrives: the report names the object and its counts."""
    body = (
        _INIT.format(1)
        + """
    @!%p7 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [mb], 128;
    @!%p7 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [mb], 128;
"""
        + WAIT.format("W", 0)
    )
    report, _ = launch(body, schedule=schedule)
    (finding,) = report.findings
    assert finding.class_ == "deadlock"
    assert dict(finding.values) == {
        "phase": 0, "pending": 1, "expected": 1, "tx_count": 0,
        "waiting": f"warp 0: line {finding.line} (the mbarrier at 0x0)",
    }  # fmt: skip
    assert "phase 0, 1 of 1 arrivals pending, tx-count 0" in finding.message
    assert "mbarrier.try_wait" in finding.message
    assert finding.count == 32


def test_missing_bytes_are_a_deadlock() -> None:
    body = _INIT.format(1) + "@!%p7 mbarrier.arrive.expect_tx.shared.b64 _, [mb], 16;"
    report, _ = launch(body + WAIT.format("W", 0))
    (finding,) = report.findings
    assert (finding.class_, finding.values["tx_count"]) == ("deadlock", 16)


def test_waiters_at_a_barrier_are_not_blamed() -> None:
    """Warp 1 is at bar.sync; the deadlock is that of the mbarrier that warp 0 waits for."""
    body = _INIT.format(1) + "setp.ge.u32 %p1, %t, 32; @%p1 bra SYNC;" + WAIT.format("W", 0)
    report, _ = launch(body + "SYNC: bar.sync 0;", block=64)
    (finding,) = report.findings
    assert finding.class_ == "deadlock"
    assert "mbarrier.try_wait" in finding.message
    assert finding.values["waiting"] == (
        f"warp 0: line {finding.line} (the mbarrier at 0x0); warp 1: line {finding.line}"
        " (barrier 0)"
    )


@each_landing
@pytest.mark.parametrize(("noinc", "count"), [("", 1), (".noinc", 33)])
def test_copies_arrive_when_they_have_landed(noinc: str, count: int, schedule: str) -> None:
    """cp.async of 32 lanes; lane 0 arrives besides, and another lane's word is read after it."""
    body = f"""
    {_INIT.format(count)}
    shl.b32 %r1, %t, 2; mov.u32 %r2, s; add.u32 %r2, %r2, %r1;
    cvt.u64.u32 %rd0, %r1; add.u64 %rd1, %in, %rd0;
    cp.async.ca.shared.global [%r2], [%rd1], 4;
    cp.async.mbarrier.arrive{noinc}.shared.b64 [mb];
    @!%p7 mbarrier.arrive.shared.b64 _, [mb];
    {WAIT.format("W", 0)}
    sub.u32 %r3, 124, %r1; mov.u32 %r4, s; add.u32 %r4, %r4, %r3; ld.shared.u32 %r5, [%r4];
    st.global.u32 [%mine], %r5;"""
    report, out = launch(body, data=np.arange(100, 132, dtype=np.uint32), schedule=schedule)
    assert not errors(report)
    assert out.tolist() == list(range(131, 99, -1))


def test_a_later_copy_is_not_awaited() -> None:
    """The arrival is for the copies before it; a later one lands when its group is waited for."""
    body = f"""
    {_INIT.format(32)}
    shl.b32 %r1, %t, 2; mov.u32 %r2, s; add.u32 %r2, %r2, %r1;
    cvt.u64.u32 %rd0, %r1; add.u64 %rd1, %in, %rd0;
    cp.async.ca.shared.global [%r2], [%rd1], 4;
    cp.async.mbarrier.arrive.noinc.shared.b64 [mb];
    cp.async.ca.shared.global [%r2+128], [%rd1], 4;
    {WAIT.format("W", 0)}
    ld.shared.u32 %r5, [%r2]; ld.shared.u32 %r6, [%r2+128];
    cp.async.wait_all; ld.shared.u32 %r7, [%r2+128];
    shl.b32 %r6, %r6, 8; shl.b32 %r7, %r7, 16; or.b32 %r5, %r5, %r6; or.b32 %r5, %r5, %r7;
    st.global.u32 [%mine], %r5;"""
    values = np.arange(100, 132, dtype=np.uint32)
    report, out = launch(body, data=values)
    assert not errors(report)
    assert out.tolist() == (values | values << 16).tolist()


# --- misuse ---------------------------------------------------------------------------------------

_ONE = "@%p7 bra END; mbarrier.init.shared.b64 [mb], 2;\n{}\nEND:"
_MISUSE = {
    "no object": (
        "mbarrier.arrive.shared.b64 _, [mb+8];", "there is no mbarrier at shared address 0x8"),
    "after inval": (
        "mbarrier.inval.shared.b64 [mb]; mbarrier.arrive.shared.b64 _, [mb];",
        "there is no mbarrier at shared address 0x0"),
    "twice": (
        "mbarrier.init.shared.b64 [mb], 2;", "initialises the mbarrier of line 20 at shared"),
    "init of 0": (
        "mov.u32 %r0, 0; mbarrier.init.shared.b64 [mb+8], %r0;",
        "the count of an mbarrier is from 1 to 1048575, not 0"),
    "init of 2^20": (
        "mov.u32 %r0, 0x100000; mbarrier.init.shared.b64 [mb+8], %r0;",
        "the count of an mbarrier is from 1 to 1048575, not 1048576"),
    "arrival of 0": (
        "mov.u32 %r0, 0; mbarrier.arrive.shared.b64 _, [mb], %r0;",
        "an arrival counts from 1 to 1048575, not 0"),
    "too many arrivals": (
        "mbarrier.arrive.shared.b64 _, [mb], 3;", "more arrivals than the mbarrier expects"),
    "bytes missing": (
        "mbarrier.arrive.expect_tx.shared.b64 _, [mb], 16; mbarrier.arrive.shared.b64 _, [mb], 2;",
        "more arrivals than the mbarrier expects: phase 0, 1 of 2 arrivals pending, tx-count 16"),
    "noComplete": (
        "mbarrier.arrive.noComplete.shared.b64 %rd0, [mb], 2;",
        "an arrival with .noComplete completes phase 0"),
    "tx-count": (
        "mov.u32 %r0, 0x100000; mbarrier.expect_tx.relaxed.cta.shared.b64 [mb], %r0;",
        "the tx-count of an mbarrier goes to 1048576"),
    "negative tx-count": (
        "mov.u32 %r0, 0x100000; mbarrier.complete_tx.relaxed.cta.shared.b64 [mb], %r0;",
        "the tx-count of an mbarrier goes to -1048576"),
    "stale state": (
        "mbarrier.arrive.shared.b64 %rd0, [mb];" + 3 * "mbarrier.arrive.shared.b64 _, [mb];"
        " mbarrier.test_wait.shared.b64 %p0, [mb], %rd0;", "the state is of phase 0"),
    "state of another": (
        "mbarrier.init.shared.b64 [mb+8], 1; mbarrier.arrive.shared.b64 %rd0, [mb+8];"
        " mbarrier.test_wait.shared.b64 %p0, [mb], %rd0;", "the state is not one of this mbarrier"),
    "spent": (
        "mbarrier.arrive_drop.shared.b64 _, [mb], 2; mbarrier.arrive.shared.b64 _, [mb];",
        "more arrivals than the mbarrier expects: phase 1, 0 of 0"),
    "generic address": (
        "mbarrier.arrive.b64 _, [%out];", "the generic address of the mbarrier is not in shared"),
}  # fmt: skip


@pytest.mark.parametrize("case", _MISUSE)
def test_misuse_is_found(case: str) -> None:
    body, message = _MISUSE[case]
    report, _ = launch(_ONE.format(body))
    (found,) = errors(report)
    assert found[0] == "mbarrier"
    assert message in found[1]


def test_correct_use_has_no_finding() -> None:
    """The frame of the misuses, used well: nothing is found."""
    body = "mbarrier.arrive.shared.b64 _, [mb], 2; mbarrier.inval.shared.b64 [mb];"
    body += "st.shared.u64 [mb], %out; mbarrier.init.shared.b64 [mb], 1;"
    assert launch(_ONE.format(body))[0].findings == ()


def test_several_lanes_may_not_initialise_one_object() -> None:
    report, _ = launch("mbarrier.init.shared.b64 [mb], 2;")
    (found,) = errors(report)
    assert "while it is live" in found[1]


@pytest.mark.parametrize(
    ("body", "class_"),
    [
        ("mov.u32 %r0, 4; mbarrier.init.shared.b64 [%r0], 1;", "misaligned-shared"),
        ("mov.u32 %r0, 0x8000; mbarrier.init.shared.b64 [%r0], 1;", "oob-shared"),
    ],
)
def test_addresses_are_checked(body: str, class_: str) -> None:
    assert [c for c, _ in errors(launch(_ONE.format(body))[0])] == [class_]


def test_outstanding_bytes_at_the_end() -> None:
    body = "mbarrier.arrive.expect_tx.shared.b64 _, [mb], 16;"
    assert [c for c, _ in errors(launch(_ONE.format(body))[0])] == ["async-race"]


def test_advice() -> None:
    """A parity of 2 counts as 0; an arrival in a phase when nobody saw the one before complete."""
    body = "mov.u32 %r0, 2; mbarrier.test_wait.parity.shared.b64 %p0, [mb], %r0;\n"
    body += 3 * "mbarrier.arrive.shared.b64 _, [mb];"
    report, _ = launch(_ONE.format(body))
    assert [f.severity for f in report.findings] == [Severity.ADVICE] * 2
    assert "2 is neither 0 nor 1" in report.findings[0].message
    assert "no wait has seen phase 0 complete" in report.findings[1].message


# --- what watches are told ------------------------------------------------------------------------


def test_events_of_arrivals_and_waits() -> None:
    """Two lanes arrive, all 32 wait; phases are counted from the init, orders are the defaults."""
    body = """
    @%p7 bra INITED; mbarrier.init.shared.b64 [mb+8], 2; INITED: bar.sync 0;
    setp.gt.u32 %p1, %t, 1;
    @!%p1 mbarrier.arrive.shared.b64 _, [mb+8];
    mbarrier.test_wait.parity.shared.b64 %p0, [mb+8], 0;
    @!%p1 mbarrier.arrive.relaxed.cluster.shared.b64 _, [mb+8];
    @!%p1 mbarrier.try_wait.parity.relaxed.cta.shared.b64 %p0, [mb+8], 0;
    @!%p7 mbarrier.inval.shared.b64 [mb+8];"""
    watch = Recorder()
    assert not watched(body, watch)
    every = list(range(32))
    assert watch.events == [
        ("mbarrier_initialised", [0], [8]),
        ("mbarrier_arrived", [0, 1], [8, 8], [0, 0], MemoryOrder("cta", release=True)),
        ("mbarrier_passed", every, [8] * 32, [0] * 32, MemoryOrder("cta", acquire=True)),
        ("mbarrier_arrived", [0, 1], [8, 8], [1, 1], MemoryOrder("cluster")),
        ("mbarrier_invalidated", [0], [8]),
    ]


def test_a_fresh_object_passes_the_phase_before_the_first() -> None:
    body = _INIT.format(1) + "@!%p7 mbarrier.test_wait.parity.shared.b64 %p0, [mb], 1;"
    watch = Recorder()
    assert not watched(body, watch)
    acquire = MemoryOrder("cta", acquire=True)
    assert watch.events[1:] == [("mbarrier_passed", [0], [0], [-1], acquire)]


def test_events_of_copies_that_signal() -> None:
    """The limit takes in the open group, here the second; the arrival comes as they land."""
    body = (
        _INIT.format(1)
        + """
    @%p7 bra END; mov.u32 %r0, s;
    cp.async.ca.shared.global [%r0], [%in], 4; cp.async.commit_group;
    cp.async.ca.shared.global [%r0+4], [%in], 4;
    cp.async.mbarrier.arrive.shared.b64 [mb];
END:"""
    )
    watch = Recorder()
    assert not watched(body, watch)
    signal, arrival = watch.events[-2:]
    assert signal == ("copies_signal", [0], [2], [0])
    assert arrival == ("copies_arrived", [0], 0, [0], 2)


@pytest.mark.parametrize(
    "access",
    [
        "ld.shared.u32 %r0, [mb+4];", "st.shared.u64 [mb], %rd0;", "st.shared.u8 [mb+7], %r0;",
        "atom.shared.add.u32 %r0, [mb], 1;",
    ],
)  # fmt: skip
def test_plain_access_to_a_live_object(access: str) -> None:
    init = "@%p7 bra END; mov.u64 %rd0, 0; mov.u32 %r0, 0; mbarrier.init.shared.b64 [mb], 1;"
    (found,) = watched(f"{init} {access} END:", MbarrierAccess())
    assert found == ("mbarrier", "accesses the memory of a live mbarrier")
    beside = access.replace("mb", "mb+8")
    assert not watched(f"{init} {beside} END:", MbarrierAccess())
    assert not watched(f"{init} mbarrier.inval.shared.b64 [mb]; {access} END:", MbarrierAccess())


# --- static forms ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "floor", "below"),
    [  # the lowest PTX ISA version and target that ptxas 13.5 takes, and one that it refuses
        ("mbarrier.arrive.shared.b64 %rd1, [%r1];", "7.0 sm_80", "7.0 sm_75"),
        ("mbarrier.arrive.shared.b64 _, [%r1];", "7.1 sm_80", "7.0 sm_80"),
        ("mbarrier.arrive_drop.shared.b64 _, [%r1];", "7.0 sm_80", "7.0 sm_75"),
        ("mbarrier.arrive.shared.b64 %rd1, [%r1], %r2;", "7.8 sm_90", "9.5 sm_80"),
        ("mbarrier.arrive.noComplete.shared.b64 %rd1, [%r1], %r2;", "7.0 sm_80", "7.0 sm_75"),
        ("mbarrier.arrive.noComplete.shared.b64 _, [%r1], %r2;", "7.1 sm_80", "7.0 sm_80"),
        ("mbarrier.arrive.release.cta.shared::cta.b64 _, [%r1];", "8.0 sm_80", "7.8 sm_80"),
        ("mbarrier.arrive.release.cluster.shared.b64 _, [%r1];", "8.0 sm_90", "9.5 sm_80"),
        ("mbarrier.arrive.relaxed.cta.shared.b64 _, [%r1];", "8.6 sm_90", "8.5 sm_90"),
        ("mbarrier.arrive.shared::cluster.b64 _, [%r1];", "8.0 sm_90", "9.5 sm_80"),
        ("mbarrier.test_wait.parity.shared.b64 %p1, [%r1], %r2;", "7.1 sm_80", "7.0 sm_80"),
        ("mbarrier.try_wait.shared.b64 %p1, [%r1], %rd1;", "7.8 sm_90", "9.5 sm_80"),
        ("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r1];", "7.8 sm_80", "7.7 sm_80"),
        ("fence.proxy.async.global;", "8.0 sm_90", "9.5 sm_80"),
        ("fence.proxy.alias;", "7.5 sm_70", "7.4 sm_70"),
    ],
)  # fmt: skip
def test_floors(line: str, floor: str, below: str) -> None:
    assert verdict(line, *floor.split(" ")) == "legal"
    assert verdict(line, *below.split(" ")) == "PTX107"


@pytest.mark.parametrize(
    "line",
    [
        "mbarrier.arrive.shared::cluster.b64 %rd1, [%r1];",  # no state of another CTA's object
        "mbarrier.arrive.cta.b64 %rd1, [%rd2], %r1;",  # a scope without semantics
        "mbarrier.arrive.release.b64 %rd1, [%rd2];",
        "mbarrier.arrive.expect_tx.b64 _, [%rd2];",
        "mbarrier.try_wait.shared::cluster.b64 %p1, [%r1], %rd1;",  # no waits on other CTAs
        "mbarrier.init.shared.b64 [%r1], 0;",
        "mbarrier.init.shared.b64 [%r1], 1048576;",
        "mbarrier.test_wait.parity.b64 %p1, [%rd1], 2;",
        "mbarrier.acquire.cta.shared.b64 %p1, [%r1], %rd1;",
    ],
)  # fmt: skip
def test_illegal_lines(line: str) -> None:
    assert verdict(line) in ("PTX103", "PTX104", "PTX105", "PTX106")

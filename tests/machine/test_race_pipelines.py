"""Long pipelines of copies, one class of race with them, accesses of whole warps, idle waits.

The verdicts follow PTX ISA 9.1: mbarrier, cp.async, cp.async.bulk, their waits, and the warp-level
matrix instructions.  The parties of a race are marked ``//!``; each clean kernel has a twin with a
fault.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ptxsim
from ptxsim.diagnostics import Severity
from ptxsim.machine.races import RaceChecker
from tests.verdicts import SCHEDULES

HEAD = """.version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a)
{
    .reg .pred %p, %q, %zero;
    .reg .b32 %r<9>, %f<9>, %t, %w, %l, %c, %i, %k, %s, %x, %bar, %par;
    .reg .b64 %g, %d, %state;
    .shared .align 128 .b8 tile[4096];
    .shared .align 8 .b64 full[4];
    .shared .align 8 .b64 empty[4];
    ld.param.u64 %g, [a];
    mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; shr.u32 %w, %t, 5; and.b32 %l, %t, 31;
    mov.u32 %s, tile; mov.u32 %bar, full; mov.u32 %i, 0;
    setp.eq.u32 %zero, %t, 0;
"""
#: The classes and lines of errors.
Errors = set[tuple[str, frozenset[int]]]


def run(body: str, **options: Any) -> tuple[ptxsim.Report, frozenset[int]]:
    """The report of a kernel, and its marked lines."""
    text = f"{HEAD}{body}\n    ret;\n}}\n"
    marked = frozenset(n for n, line in enumerate(text.splitlines(), 1) if "//!" in line)
    args = [np.zeros(1024, np.uint32)]
    report = ptxsim.assemble(text).kernel().launch(
        **{"grid": 1, "block": 64, "args": args, **options}
    )  # fmt: skip
    return report, marked


def errors(report: ptxsim.Report) -> Errors:
    return {
        (f.class_, frozenset({f.line, f.other_line or f.line}))
        for f in report.findings
        if f.severity is Severity.ERROR
    }


# --- long pipelines -----------------------------------------------------------------------------

BULK = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes"
#: How warp 0 fills a slot of 128 bytes at %x, and what arrives at the mbarrier of the slot.
FILL = {
    "bulk": (1, f"""
    @%zero mbarrier.arrive.expect_tx.shared.b64 %state, [%r1], 128;
    @%zero {BULK} [%x], [%g], 128, [%r1]; //!"""),
    "cp.async": (32, """
    mad.lo.u32 %r3, %l, 4, %x; mad.wide.u32 %d, %l, 4, %g;
    cp.async.ca.shared.global [%r3], [%d], 4; //!
    cp.async.mbarrier.arrive.noinc.shared.b64 [%r1];"""),
}  # fmt: skip


def mbarriers(kind: str, stages: int, slots: int = 2, waits: int | None = None) -> str:
    """Warp 0 fills slots that warp 1 reads; the reader waits for the first stages alone.

    It gives back only the slots that are filled again.
    """
    count, fill = FILL[kind]
    inits = "".join(
        f"@%zero mbarrier.init.shared.b64 [full+{8 * k}], {count};\n"
        f"@%zero mbarrier.init.shared.b64 [empty+{8 * k}], 32;\n"
        for k in range(slots)
    )
    place = f"""
    rem.u32 %r0, %i, {slots}; div.u32 %par, %i, {slots}; and.b32 %par, %par, 1;
    mov.u32 %r1, full; mad.lo.u32 %r1, %r0, 8, %r1;
    mov.u32 %r2, empty; mad.lo.u32 %r2, %r0, 8, %r2;
    mad.lo.u32 %x, %r0, 128, %s;"""
    return f"""{inits}
    bar.sync 0;
    setp.ne.u32 %p, %w, 0;
    @%p bra READ;
WRITE:{place}
    xor.b32 %par, %par, 1;
FREE: mbarrier.try_wait.parity.shared.b64 %p, [%r2], %par;
    @!%p bra FREE;{fill}
    add.u32 %i, %i, 1;
    setp.lt.u32 %p, %i, {stages};
    @%p bra WRITE;
    bra END;
READ:{place}
    setp.ge.u32 %q, %i, {stages if waits is None else waits};
    @%q bra NOW;
THERE: mbarrier.try_wait.parity.shared.b64 %p, [%r1], %par;
    @!%p bra THERE;
NOW:
    mad.lo.u32 %r3, %l, 4, %x;
    ld.shared.u32 %r4, [%r3]; //!
    add.u32 %i, %i, 1;
    setp.le.u32 %p, %i, {stages - slots};
    @%p mbarrier.arrive.shared.b64 %state, [%r2];
    setp.lt.u32 %p, %i, {stages};
    @%p bra READ;
END:"""


def groups(stages: int, waits: int) -> str:
    """cp.async two stages ahead, by two slots; the wait before the read of the first stages."""
    copy = """
    and.b32 %r0, %k, 1; mad.lo.u32 %x, %r0, 256, %s; mad.lo.u32 %x, %t, 4, %x;
    cp.async.ca.shared.global [%x], [%d], 4;{mark}
    cp.async.commit_group;
    add.u32 %k, %k, 1;"""
    return f"""
    mad.wide.u32 %d, %t, 4, %g; mov.u32 %k, 0;{copy.format(mark="")}
LOOP:{copy.format(mark=" //!")}
    setp.lt.u32 %p, %i, {waits};
    @%p cp.async.wait_group 1;
    bar.sync 0;
    and.b32 %r0, %i, 1; mad.lo.u32 %x, %r0, 256, %s; xor.b32 %r1, %t, 33;
    mad.lo.u32 %x, %r1, 4, %x;
    ld.shared.u32 %r4, [%x]; //!
    bar.sync 0;
    add.u32 %i, %i, 1;
    setp.lt.u32 %p, %i, {stages};
    @%p bra LOOP;
    cp.async.wait_all;"""


def stores(stages: int, waits: int) -> str:
    """Bulk stores of two slots in turn; a slot is written again when it has been read."""
    return f"""
LOOP:
    and.b32 %r0, %i, 1; mad.lo.u32 %x, %r0, 256, %s; mad.lo.u32 %r3, %t, 4, %x;
    setp.lt.and.u32 %p, %i, {waits}, %zero;
    @%p cp.async.bulk.wait_group.read 1;
    bar.sync 0;
    st.shared.u32 [%r3], %t; //!
    fence.proxy.async.shared::cta;
    bar.sync 0;
    mad.wide.u32 %d, %i, 256, %g;
    @%zero cp.async.bulk.global.shared::cta.bulk_group [%d], [%x], 256; //!
    @%zero cp.async.bulk.commit_group;
    add.u32 %i, %i, 1;
    setp.lt.u32 %p, %i, {stages};
    @%p bra LOOP;
    @%zero cp.async.bulk.wait_group 0;"""


class TestPipelines:
    @pytest.mark.parametrize("schedule", ["default", "reverse", "early-async", "random:2"])
    @pytest.mark.parametrize("kind", FILL)
    def test_mbarriers(self, kind: str, schedule: str) -> None:
        report, _ = run(mbarriers(kind, 60), schedule=schedule)
        assert report.clean

    @pytest.mark.parametrize("schedule", SCHEDULES)
    @pytest.mark.parametrize("kind", FILL)
    def test_no_wait_for_the_last_stage(self, kind: str, schedule: str) -> None:
        """The reader knows of 19 stages, the last one in its slot included, but not of this one."""
        report, marked = run(mbarriers(kind, 20, waits=19), schedule=schedule)
        expected: Errors = {("async-race", marked)}
        if kind == "bulk":  # nobody has seen the last copy complete when the CTA ends
            expected.add(("async-race", frozenset({min(marked)})))
        assert errors(report) == expected

    def test_groups(self) -> None:
        report, _ = run(groups(60, waits=60))
        assert report.clean

    @pytest.mark.parametrize("schedule", SCHEDULES)
    def test_groups_without_the_last_wait(self, schedule: str) -> None:
        report, marked = run(groups(20, waits=19), schedule=schedule)
        assert errors(report) == {("async-race", marked)}

    def test_bulk_groups(self) -> None:
        report, _ = run(stores(16, waits=16))
        assert report.clean

    @pytest.mark.parametrize("schedule", SCHEDULES)
    def test_bulk_groups_without_the_last_wait(self, schedule: str) -> None:
        report, marked = run(stores(16, waits=15), schedule=schedule)
        assert errors(report) == {("async-race", marked)}

    @pytest.mark.parametrize("slots", [2, 4])
    @pytest.mark.parametrize("stages", [12, 40])
    @pytest.mark.parametrize("kind", FILL)
    def test_knowledge_does_not_grow_with_the_stages(
        self, kind: str, stages: int, slots: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One number for each mbarrier that bulk copies signal, or for each lane with cp.async."""
        known: list[int] = []
        ended = RaceChecker.wave_ended

        def count(self: RaceChecker, wave: Any) -> None:
            known.extend(len(clock.groups) for clock in self.know.extra[32:64])
            ended(self, wave)

        monkeypatch.setattr(RaceChecker, "wave_ended", count)
        run(mbarriers(kind, stages, slots))
        assert set(known) == {slots if kind == "bulk" else 32}


# --- one class, whichever came first ------------------------------------------------------------

INIT = "@%zero mbarrier.init.shared.b64 [full], 1; bar.sync 0;"
LOAD = f"""
    @%zero mbarrier.arrive.expect_tx.shared.b64 %state, [%bar], 128;
    @%zero {BULK} [%s], [%g], 128, [%bar]; //!"""
SEEN = "W: mbarrier.try_wait.parity.shared.b64 %p, [%bar], 0; @!%p bra W;"
#: By name: what comes first, the copy of thread 0, its wait, and how thread 33 accesses its bytes.
MEETINGS = {
    "bulk load, target read": (INIT, LOAD, f"@!%zero bra NO;\n{SEEN}\nNO:",
        "ld.shared.u32 %r1, [%s+4]; //!"),
    "bulk load, target written": (INIT, LOAD, f"@!%zero bra NO;\n{SEEN}\nNO:",
        "st.shared.u32 [%s+4], %t; //!"),
    "bulk load, source written": (INIT, LOAD, f"@!%zero bra NO;\n{SEEN}\nNO:",
        "st.global.u32 [%g+4], %t; //!"),
    "bulk store, source written": (
        "@%zero st.shared.v4.u32 [%s], {%t, %t, %t, %t}; @%zero fence.proxy.async; bar.sync 0;", """
    @%zero cp.async.bulk.global.shared::cta.bulk_group [%g], [%s], 16; //!
    @%zero cp.async.bulk.commit_group;""", "@%zero cp.async.bulk.wait_group 0;",
        "st.shared.u32 [%s+4], 5; //!"),
    "cp.async, target read": ("bar.sync 0;",
        "@%zero cp.async.cg.shared.global [%s], [%g], 16; //!", "cp.async.wait_all;",
        "ld.shared.u32 %r1, [%s+4]; //!"),
    "cp.async, target written": ("bar.sync 0;",
        "@%zero cp.async.cg.shared.global [%s], [%g], 16; //!", "cp.async.wait_all;",
        "st.shared.u32 [%s+4], %t; //!"),
    "cp.async, source written": ("bar.sync 0;",
        "@%zero cp.async.cg.shared.global [%s], [%g], 16; //!", "cp.async.wait_all;",
        "st.global.u32 [%g+4], %t; //!"),
}  # fmt: skip
#: Who is late: nobody; or the warp of the copy, so that on random schedules the access comes first.
DELAYS = {"any": "%t, 99", "copy": "%w, 0"}


def meeting(name: str, late: str = "any", between: str = "") -> str:
    first, copy, wait, access = MEETINGS[name]
    return f"""{first}
    setp.eq.u32 %p, {DELAYS[late]};
    @!%p bra GO;
SPIN: add.u32 %i, %i, 1;
    setp.lt.u32 %p, %i, 40;
    @%p bra SPIN;
GO:{copy}
    {between.format(wait=wait)}
    setp.ne.u32 %q, %t, 33;
    @%q bra AFTER;
    {access}
AFTER:
    {wait.replace("NO", "YES").replace("W:", "V:").replace("bra W", "bra V")}"""


class TestOneClass:
    @pytest.mark.parametrize("schedule", SCHEDULES)
    @pytest.mark.parametrize("late", DELAYS)
    @pytest.mark.parametrize("name", MEETINGS)
    def test_nothing_orders_the_two(self, name: str, late: str, schedule: str) -> None:
        report, marked = run(meeting(name, late), schedule=schedule)
        assert errors(report) == {("async-race", marked)}

    @pytest.mark.parametrize("schedule", SCHEDULES)
    @pytest.mark.parametrize("name", MEETINGS)
    def test_the_access_comes_after_the_issue(self, name: str, schedule: str) -> None:
        report, marked = run(meeting(name, between="bar.sync 0;"), schedule=schedule)
        assert errors(report) == {("async-race", marked)}

    @pytest.mark.parametrize("schedule", ["default", "early-async", "random:2"])
    @pytest.mark.parametrize("name", MEETINGS)
    def test_the_access_comes_after_the_wait(self, name: str, schedule: str) -> None:
        report, _ = run(meeting(name, between="{wait}\nbar.sync 0;"), schedule=schedule)
        assert report.clean

    @pytest.mark.parametrize(("late", "schedule", "message"), [
        ("copy", "random:1", "the asynchronous copy of 'cp.async.cg.shared.global' writes what"
         " 'ld.shared.u32' at line 26 reads, in no order"),
        ("any", "warp-serial", "'ld.shared.u32' reads what an asynchronous copy of line 22 may not"
         " have completed yet"),
    ], ids=["the access", "the copy"])  # fmt: skip
    def test_text_when_this_comes_first(self, late: str, schedule: str, message: str) -> None:
        report, _ = run(meeting("cp.async, target read", late), schedule=schedule)
        (finding,) = report.findings
        assert finding.message == message
        assert finding.help == "put a barrier (bar.sync) between the two accesses"


# --- accesses of the whole warp -----------------------------------------------------------------

#: Each lane gives the address of a row of 16 bytes.
ROW = "mad.lo.u32 %x, %l, 16, %s;"
STMATRIX = "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%x], {%t, %t, %t, %t}; //!"
LDMATRIX = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%f0, %f1, %f2, %f3}, [%x]; //!"
_F = "{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}"
ZERO = "".join(f"mov.b32 %f{k}, 0;" for k in range(8))
WMMA_STORE = f"wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%s], {_F}; //!"
WMMA_LOAD = f"wmma.load.c.sync.aligned.row.m16n16k16.shared.f32 {_F}, [%s]; //!"
OWN = "ld.shared.u32 %r1, [%x]; //!"
PUT = "st.shared.v4.u32 [%x], {%t, %t, %t, %t}; //!"
#: By name: two accesses of a warp to the same bytes.
WITHIN = {
    "stmatrix, then a row by the lane of its address": (STMATRIX, OWN),
    "a row by the lane of its address, then ldmatrix": (PUT, LDMATRIX),
    "ldmatrix, then a store": (LDMATRIX, PUT),
    "stmatrix, then ldmatrix": (STMATRIX, LDMATRIX),
    "wmma.store, then a load": (WMMA_STORE, OWN),
    "a store, then wmma.load": (PUT, WMMA_LOAD),
}
MATRICES = {"rows": (STMATRIX, LDMATRIX), "fragment": (WMMA_STORE, WMMA_LOAD)}


#: Warp 0 fills 1024 bytes.
BEGIN = f"""{ZERO}
    mad.lo.u32 %x, %l, 32, %s; setp.eq.u32 %p, %w, 0;
    @%p st.shared.v4.u32 [%x], {{0, 0, 0, 0}};
    @%p st.shared.v4.u32 [%x+16], {{0, 0, 0, 0}};
    bar.sync 0;
    {ROW}
"""


class TestWholeWarp:
    @pytest.mark.parametrize("schedule", ["default", "reverse"])
    @pytest.mark.parametrize("name", WITHIN)
    def test_other_lanes_of_the_warp(self, name: str, schedule: str) -> None:
        """Which lane accesses which element is no matter of the address that a lane gives."""
        first, second = WITHIN[name]
        ordered = f"{BEGIN}{first}\nbar.warp.sync 0xffffffff;\n{second}"
        assert run(ordered, block=32, schedule=schedule)[0].clean
        report, marked = run(f"{BEGIN}{first}\n{second}", block=32, schedule=schedule)
        assert errors(report) == {("race-shared", marked)}

    @pytest.mark.parametrize("body", [
        f"{STMATRIX}\n{STMATRIX}",
        f"{LDMATRIX}\n{LDMATRIX.replace('%x', '%s')}\n{OWN}",
        f"{LDMATRIX}\n{STMATRIX.replace('%t, %t, %t, %t', '%f0, %f1, %f2, %f3')}",
        f"{WMMA_STORE}\n{WMMA_LOAD}\n{WMMA_STORE}",
    ], ids=["stmatrix twice", "reads", "there and back", "wmma there and back"])  # fmt: skip
    def test_its_own_accesses_are_in_order(self, body: str) -> None:
        assert run(f"{BEGIN}{body}", block=32)[0].clean

    @pytest.mark.parametrize("schedule", SCHEDULES)
    @pytest.mark.parametrize("kind", MATRICES)
    def test_another_warp(self, kind: str, schedule: str) -> None:
        store, load = MATRICES[kind]

        def body(give: str, take: str) -> str:
            read = f"READ: {take}\n{load}\nEND:"
            return f"{BEGIN}@!%p bra READ;\n{store}\n{give}\nbra END;\n{read}"

        report, marked = run(body("", ""), schedule=schedule)
        assert errors(report) == {("race-shared", marked)}
        assert run(body("bar.arrive 1, 64;", "bar.sync 1, 64;"), schedule=schedule)[0].clean


# --- waits that wait for nothing ----------------------------------------------------------------


def waiting(more: int) -> str:
    """The wait leaves one group in flight; there are two groups in this CTA, else one."""
    return f"""
    mad.lo.u32 %x, %t, 4, %s; mad.wide.u32 %d, %t, 4, %g;
    setp.eq.u32 %p, %c, {more};
    @!%p bra LAST;
    cp.async.ca.shared.global [%x+1024], [%d], 4;
    cp.async.commit_group;
LAST:
    cp.async.ca.shared.global [%x], [%d], 4;
    cp.async.commit_group;
    cp.async.wait_group 1; //!
    cp.async.wait_all;"""


@pytest.mark.parametrize("wave_ctas", [None, 1, 2])
class TestIdleWaits:
    @pytest.mark.parametrize("more", [0, 2])
    def test_a_wait_that_is_of_use_in_one_wave(self, more: int, wave_ctas: int | None) -> None:
        report, _ = run(waiting(more), grid=3, wave_ctas=wave_ctas)
        assert report.findings == ()

    def test_a_wait_that_is_of_no_use_at_all(self, wave_ctas: int | None) -> None:
        report, marked = run(waiting(9), grid=3, wave_ctas=wave_ctas)
        (finding,) = report.findings
        assert (finding.class_, {finding.line}) == ("idle-wait", marked)
        assert (finding.severity, finding.count) == (Severity.ADVICE, 1)

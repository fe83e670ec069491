"""Bulk reductions, proxy fences, and copies that read a part of a word.

The verdicts follow PTX ISA 9.1: cp.reduce.async.bulk, cp.async, and Memory Consistency Model:
Proxies.  The parties of a fault are marked ``//!``; each clean kernel has a twin with a fault.
"""

from __future__ import annotations

import pytest

from tests.verdicts import SCHEDULES

from .test_race_pipelines import errors, run

FILL = "@%zero st.shared.v4.u32 [%s], {%t, %t, %t, %t}; @%zero fence.proxy.async; bar.sync 0;\n"
STORE = "cp.async.bulk.global.shared::cta.bulk_group [{}], [%s], {}; {}\n"
REDUCE = "@%zero cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%g], [%s], 16;"
DONE = "@%zero cp.async.bulk.commit_group; @%zero cp.async.bulk.wait_group 0;\n"
BY_33 = "setp.eq.u32 %p, %t, 33;\n@%p "


def check(body: str, class_: str = "", **options: object) -> None:
    """On every schedule the marked lines are the only fault, or there is none."""
    for schedule in SCHEDULES:
        report, marked = run(body, schedule=schedule, **options)
        assert errors(report) == ({(class_, marked)} if class_ else set()), schedule


class TestReductions:
    """Each element is reduced by itself, relaxed at gpu scope."""

    @pytest.mark.parametrize("wave_ctas", [None, 1])
    def test_by_two_ctas(self, wave_ctas: int | None) -> None:
        check(FILL + REDUCE + DONE, grid=2, wave_ctas=wave_ctas)

    def test_twice_by_one_thread(self) -> None:
        check(f"{FILL}{REDUCE}\n{REDUCE}\n{DONE}")

    def test_and_an_access_that_knows_one_of_them(self) -> None:
        """The reader knows the reduction of its own CTA, not that of the other."""
        body = f"{FILL}{REDUCE} //!\n{DONE}bar.sync 0;\n{BY_33}ld.global.u32 %r1, [%g+4];"
        check(body)
        check(f"{body} //!", "async-race", grid=2)

    def test_and_an_atomic_of_the_generic_proxy(self) -> None:
        """Of different proxies, so not morally strong."""
        body = f"{FILL}{REDUCE} //!\n{DONE}@%zero red.global.add.u32 [%g], 1;"
        check(body)
        check(f"{body} //!", "async-race", grid=2)

    def test_and_a_copy(self) -> None:
        copy = STORE.format("%g", 16, "//!")
        wait = "cp.async.bulk.commit_group; @%p cp.async.bulk.wait_group 0;"
        check(f"{FILL}{REDUCE} //!\n{BY_33}{copy}@%p {wait}\n{DONE}", "async-race")
        check(f"{FILL}{REDUCE}\n{DONE}bar.sync 0;\n{BY_33}{copy}@%p {wait}")


OUT = f"@%zero {STORE}{DONE}"
WAIT = "W: mbarrier.try_wait.parity.shared.b64 %q, [%bar], 0; @!%q bra W;"
TAKEN = (
    """@%zero mbarrier.init.shared.b64 [%bar], 32; bar.sync 0;
    setp.eq.u32 %p, %w, 1; mad.lo.u32 %x, %l, 4, %s; mad.wide.u32 %d, %l, 4, %g;
    @!%p bra TAKE;
    {give}
    bra END;
TAKE: setp.ne.u32 %p, %l, 7;
    @%p bra ON;
"""
    + WAIT
    + """
ON: {fence}
    @%p bra END;
    cp.async.bulk.global.shared::cta.bulk_group [%g+1024], [%s], 128; //!
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
END:"""
)
GIVES = {
    "stores": "st.shared.u32 [%x], %t; //!\nmbarrier.arrive.shared.b64 %state, [%bar];",
    "cp.async": "cp.async.ca.shared.global [%x], [%d], 4; //!\n"
    "cp.async.mbarrier.arrive.noinc.shared.b64 [%bar];",
}


class TestProxyFences:
    @pytest.mark.parametrize("give", GIVES)
    def test_of_a_warp_of_which_one_lane_has_waited(self, give: str) -> None:
        """The fence of lane 7 is on the way, whatever the lanes before it know."""
        check(TAKEN.format(give=GIVES[give], fence="fence.proxy.async.shared::cta;"))
        check(TAKEN.format(give=GIVES[give], fence=""), "proxy-fence")

    @pytest.mark.parametrize("write", ["red.shared.add.u32 [%s], 1;", "st.shared.u32 [%s], 9;"])
    @pytest.mark.parametrize("left", [5, 40])
    def test_one_of_many_writers_does_not_fence(self, write: str, left: int) -> None:
        """Also where its write is neither the first nor the last of the place."""
        writes = f"{FILL}{write} //!\n"
        end = f"fence.proxy.async;\nbar.sync 0;\n{OUT.format('%g', 16, '//!')}"
        check(writes + end)
        check(f"{writes}setp.ne.u32 %p, %t, {left};\n@%p {end}", "proxy-fence")

    @pytest.mark.parametrize(("before", "after", "class_"), [
        ("", "fence.proxy.async;", ""), ("", "bar.sync 0; @%zero fence.proxy.async;", ""),
        ("", "", "proxy-fence"), ("fence.proxy.async;", "", "proxy-fence"),
    ])  # fmt: skip
    def test_of_copies_through_the_generic_proxy(
        self, before: str, after: str, class_: str
    ) -> None:
        """cp.async writes when its thread waits: a fence before that is none."""
        copy = "setp.eq.u32 %p, %w, 0; mad.lo.u32 %x, %l, 4, %s; mad.wide.u32 %d, %l, 4, %g;\n"
        copy += "@%p cp.async.ca.shared.global [%x], [%d], 4; //!\n"
        out = OUT.format("%g+1024", 128, "//!")
        check(f"{copy}{before} cp.async.wait_all; {after} bar.sync 0;\n{out}", class_)


@pytest.mark.parametrize(("byte", "class_"), [(4, "async-race"), (5, ""), (6, ""), (7, "")])
def test_a_copy_that_reads_five_bytes(byte: int, class_: str) -> None:
    copy = "@%zero cp.async.ca.shared.global [%s], [%g], 16, 5; //!\n"
    write = f"mov.u32 %r1, 1; setp.eq.u32 %p, %t, 32;\n@%p st.global.u8 [%g+{byte}], %r1; //!\n"
    check(f"{copy}{write}cp.async.wait_all;", class_)

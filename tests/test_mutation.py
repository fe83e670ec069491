"""Every small change that breaks a correct kernel is reported, or shown to be without effect.

A change that the tool finds nothing in is judged by its history: full vector clocks and every pair
of accesses (``mutation_order``), apart from the race checker.  A seeded sample runs by default.
"""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest

from tests.mutation import Mutant, mutants
from tests.mutation_pairs import Unordered
from tests.mutation_runs import RACES, SCHEDULES, Subject, of_file, run, subjects
from tests.mutation_verdict import DATA, Verdict, false_alarms, judge, table
from tests.verdicts import Row, rows

TESTS = Path(__file__).parent
Change = tuple[Subject, Mutant]

#: Kernel, mutator and line of what is reported as a warning or not at all, and why.
ALLOWED = {
    ("206-mp-volatile-membar-ok", "move-order", 36): (
        "the flag is written before the fence.sc: this run orders the two fence.sc, another may"
        " not, and such a race is a warning"
    ),
}

#: What may be left out, moved changes apart, and why it has no effect: the history found as much.
HARMLESS = {
    ("005-cp-async-wait-count-ok", "drop-wait", 42): "the copies of the last group are not read",
    ("006-cp-async-ring-wait-before-commit-ok", "drop-commit", 38): (
        "tiles 0 and 1 are one group then, and wait_group 1 leaves but the empty one behind it"
    ),
    ("006-cp-async-ring-wait-before-commit-ok", "drop-commit", 40): (
        "tile 1 falls into the empty group: complete after the first turn, and read in the second"
    ),
    ("006-cp-async-ring-wait-before-commit-ok", "later-wait", 42): (
        "tile 0 is the oldest of three groups, all that the first turn reads"
    ),
    ("006-cp-async-ring-wait-before-commit-ok", "drop-wait", 71): (
        "the groups of the last two turns are empty: wait_group 1 has waited for every copy"
    ),
    ("007-cp-async-no-zero-fill-ok", "drop-barrier", 38): "each thread reads its own copies alone",
    ("010-shfl-full-mask-in-branch-ok", "drop-warp-sync", 26): "no two lanes use the same memory",
    ("018-mbarrier-expect-without-arrive-ok", "drop-proxy-fence", 28): (
        "a bulk copy accesses its mbarrier through the generic proxy (ISA 9.1, cp.async.bulk)"
    ),
    **{
        (f"matmul_{name}", "drop-wait", line): "the groups behind the drain loop are empty ones"
        for name, line in (
            ("batched", 156),
            ("small_peel_aligned", 137),
            ("small_peel_off", 154),
            ("two_axes", 149),
        )
    },
    ("tile_gemm", "drop-commit", 97): "the next commit_group closes both groups, wait_all follows",
    ("tile_gemm", "drop-commit", 136): "wait_all commits what is open before it waits",
}


@cache
def changes(data: bool) -> tuple[Change, ...]:
    """All mutants: those that change what is computed, or those that change the order."""
    return tuple(
        (s, m) for s in subjects() for m in mutants(s.text, s.entry) if (m.mutator in DATA) == data
    )


def survivors(verdicts: list[Verdict]) -> list[str]:
    """What must not be: no mutant of order may show by its results alone."""
    out = []
    for v in verdicts:
        fine = ("killed", "equivalent", *(("result",) if v.mutant.mutator in DATA else ()))
        if v.kind not in fine and (v.subject, v.mutant.mutator, v.mutant.line) not in ALLOWED:
            out.append(str(v))
    return out


def judged(chosen: list[Change]) -> list[Verdict]:
    """The verdicts, with their table printed."""
    out = [judge(s, m) for s, m in chosen]
    print(f"\n{table(out)}")
    return out


class TestOriginals:
    @pytest.mark.parametrize("subject", subjects(), ids=lambda s: s.name)
    def test_is_clean(self, subject: Subject) -> None:
        """Nothing is reported, and the history says the same."""
        found = run(subject, subject.text, history=True)
        assert (found.errors, found.unordered) == ((), ())

    def test_names_are_unique(self) -> None:
        names = [s.name for s in subjects()]
        assert len(set(names)) == len(names)


class TestSample:
    """A quarter of the changes of order, one in twenty of the others; small kernels alone."""

    @pytest.mark.parametrize(("data", "count"), [(False, 80), (True, 80)])
    def test_nothing_is_missed(self, data: bool, count: int) -> None:
        small = [c for c in changes(data) if len(c[0].text) < 12_000]
        assert survivors(judged(random.Random(6).sample(small, count))) == []

    def test_no_false_alarm(self) -> None:
        small = [c for c in changes(data=False) if len(c[0].text) < 12_000]
        for subject, mutant in random.Random(7).sample(small, 40):
            assert false_alarms(subject, mutant, "default") == [], str(mutant)


@pytest.mark.slow
class TestAll:
    def test_no_change_of_order_is_missed(self) -> None:
        verdicts = judged(list(changes(data=False)))
        assert survivors(verdicts) == []
        harmless = {
            (v.subject, v.mutant.mutator, v.mutant.line)
            for v in verdicts
            if v.kind == "equivalent" and v.mutant.mutator != "move-order"
        }
        assert harmless == set(HARMLESS)

    def test_no_change_of_data_is_missed(self) -> None:
        assert survivors(judged(list(changes(data=True)))) == []

    @pytest.mark.parametrize("schedule", SCHEDULES)
    def test_no_false_alarm(self, schedule: str) -> None:
        alarms = [(str(m), false_alarms(s, m, schedule)) for s, m in changes(data=False)]
        assert [a for a in alarms if a[1]] == []

    @pytest.mark.parametrize("subject", subjects(), ids=lambda s: s.name)
    @pytest.mark.parametrize("schedule", SCHEDULES[1:])
    def test_originals_are_clean(self, subject: Subject, schedule: str) -> None:
        found = run(subject, subject.text, schedule, history=True)
        assert (found.errors, found.unordered) == ((), ())

    def test_allowed_are_still_there(self) -> None:
        """An entry that is not needed any more is to be taken out."""
        listed = {
            key: judge(s, m).kind
            for s, m in changes(data=False)
            if (key := (s.name, m.mutator, m.line)) in ALLOWED
        }
        assert set(listed) == set(ALLOWED)
        assert not set(listed.values()) & {"equivalent", "killed"}


# Kernels with a race of the class of their row whose launch goes on to its end; the other two of
# those classes (017, 234) end at their mbarrier before the access.
FAULTY = [
    row
    for folder in ("cases", "litmus")
    for row in rows(TESTS / folder)
    if row.verdict in RACES and row.number not in ("017", "234")
]


class TestHistory:
    """What decides about survivors finds the known faults by itself."""

    @pytest.mark.parametrize(
        "schedule",
        ["default", *(pytest.param(s, marks=pytest.mark.slow) for s in SCHEDULES[1:])],
    )
    @pytest.mark.parametrize("row", FAULTY, ids=lambda r: r.file[:-4])
    def test_finds_the_marked_pair(self, row: Row, schedule: str) -> None:
        subject = of_file(row.path)
        found = run(subject, subject.text, schedule, history=True).unordered
        kind = "proxy" if row.verdict == "proxy-fence" else "race"
        pair = (row.line, row.other_line)
        assert {Unordered(kind, *pair), Unordered(kind, *pair[::-1])} & set(found)


class TestJudge:
    def test_a_mutant_without_a_race_checker_is_missed(self) -> None:
        """With the race checker off a lost barrier is missed: the assertions here can fail."""
        subject = of_file(TESTS / "cases" / "004-warp-exchange-no-syncwarp-ok.ptx")
        (lost,) = (m for m in mutants(subject.text) if m.mutator == "drop-warp-sync")
        assert judge(subject, lost).kind == "killed"
        verdict = judge(subject, lost, tools="memcheck")
        assert verdict.kind in ("missed", "result")
        assert survivors([verdict]) == [str(verdict)]


KERNEL = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k()
{
    .reg .b32 %r<3>;
    .reg .pred %p;
    .shared .b32 s[64];
    mov.u32 %r0, %tid.x;
    setp.lt.u32 %p, %r0, 32;
    mad.lo.u32 %r1, %r0, 4, %r2;
    @%p st.shared.v2.u32 [%r1 + 8], {%r0, %r0};
    cp.async.wait_group 1;
    bar.sync 1, 64;
L:  ld.acquire.gpu.shared.u32 %r2, [%r1];
    ret;
}
"""


class TestMutators:
    def test_changes_of_a_small_kernel(self) -> None:
        lines = KERNEL.split("\n")
        changed = [
            (m.mutator, m.line, m.text.split("\n")[m.line - 1].strip()) for m in mutants(KERNEL)
        ]
        assert lines[11].strip().startswith("@%p st")
        assert changed == [
            ("change-multiplier", 11, "mad.lo.u32 %r1, %r0, 8, %r2;"),
            ("shift-offset", 12, "@%p st.shared.v2.u32 [%r1+16], {%r0, %r0};"),
            ("drop-guard", 12, "st.shared.v2.u32 [%r1 + 8], {%r0, %r0};"),
            ("drop-wait", 13, ""),
            ("move-order", 13, ""),
            ("move-order", 13, ""),
            ("later-wait", 13, "cp.async.wait_group 2;"),
            ("drop-barrier", 14, ""),
            ("change-count", 14, "bar.sync 2, 64;"),
            ("change-count", 14, "bar.sync 1, 96;"),
            ("weaker-order", 15, "L:  ld.relaxed.gpu.shared.u32 %r2, [%r1];"),
            ("narrower-scope", 15, "L:  ld.acquire.cta.shared.u32 %r2, [%r1];"),
            ("shift-offset", 15, "L:  ld.acquire.gpu.shared.u32 %r2, [%r1+4];"),
        ]

    def test_a_moved_instruction_stands_on_the_other_side_of_its_neighbour(self) -> None:
        moved = [m.text.split("\n") for m in mutants(KERNEL) if m.mutator == "move-order"]
        assert [lines[11].strip() for lines in moved] == [
            "cp.async.wait_group 1; @%p st.shared.v2.u32 [%r1 + 8], {%r0, %r0};",
            "@%p st.shared.v2.u32 [%r1 + 8], {%r0, %r0};",
        ]
        assert moved[1][13].strip() == "bar.sync 1, 64; cp.async.wait_group 1;"

    def test_a_lost_wait_takes_its_loop_with_it(self) -> None:
        text = (TESTS / "cases" / "018-mbarrier-expect-without-arrive-ok.ptx").read_text()
        (lost,) = (m for m in mutants(text) if m.mutator == "drop-wait")
        rest = lost.text.split("\n")[lost.line - 2 : lost.line + 1]
        assert [line.strip() for line in rest] == ["WAIT:", "", ""]

    def test_lines_keep_their_numbers(self) -> None:
        for subject, mutant in changes(data=False)[::10]:
            assert mutant.text.count("\n") == subject.text.count("\n")

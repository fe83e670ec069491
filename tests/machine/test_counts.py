"""Counters by tag, of asynchronous copies by outcome, of their groups, and of barriers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ptxsim
from ptxsim.build import Kernel
from ptxsim.cli import main
from ptxsim.errors import UsageError
from ptxsim.syntax import format_text
from ptxsim.syntax.comments import instruction_tags

from .conftest import HEAD, SCHEDULES


def tags(report: ptxsim.Report) -> dict[str, int]:
    """The counters of tags, without the common prefix."""
    assert report.verdict == "clean", report.findings
    return {n[4:]: count for n, count in report.counters.items() if n.startswith("tag.")}


def copies(report: ptxsim.Report) -> dict[str, int]:
    """The counters of cp.async that are not zero, without the common prefix."""
    return {n[9:]: k for n, k in report.counters.items() if n.startswith("cp.async.") and k}


class TestTags:
    def test_threads_with_a_true_guard_and_warps_that_issue(self, run: Any) -> None:
        body = """
        setp.lt.u32 %p1, %t, 40;  // tag: axis
        @%p1 st.global.u32 [%mine], 1;  // tag: fill
        @!%p1 st.global.v2.u32 [%rd1], {%t, %t};  // tag: rest"""
        # 70 threads are 3 warps, the last of 6; 40 have a true guard, 30 do not
        body = "mad.wide.u32 %rd1, %t, 8, %out;\n" + body
        report, _ = run(body, block=70, out=np.zeros(140, np.uint32), tools="advice")
        assert tags(report) == {
            "axis.setp.threads": 70, "axis.setp.warps": 3,
            "fill.st.threads": 40, "fill.st.warps": 3, "fill.st.bytes": 160,
            "rest.st.threads": 30, "rest.st.warps": 3, "rest.st.bytes": 240,
        }  # fmt: skip

    def test_an_instruction_that_overwrites_its_guard(self, run: Any) -> None:
        body = """
        setp.lt.u32 %p1, %t, 5;
        @%p1 setp.gt.u32 %p1, %t, 100;  // tag: x"""
        assert tags(run(body, tools="advice")[0]) == {"x.setp.threads": 5, "x.setp.warps": 1}

    @pytest.mark.parametrize("schedule", SCHEDULES)
    @pytest.mark.parametrize("wave_ctas", [None, 1, 2])
    def test_loops_ctas_and_waves(self, run: Any, schedule: str, wave_ctas: int | None) -> None:
        # CTA c runs its loop c + 1 times: 1 + 2 + 3 + 4 + 5 = 15 times 48 threads in 2 warps
        body = """
        mov.u32 %r1, %ctaid.x; mov.u32 %r2, 0;
LOOP:   add.u32 %r2, %r2, 1;  // tag: turn
        setp.le.u32 %p1, %r2, %r1;
        @%p1 bra LOOP;  // tag: turn"""
        options = {"schedule": schedule, "wave_ctas": wave_ctas, "tools": "advice"}
        report, _ = run(body, block=48, grid=5, **options)
        # of the branches the last one of each thread is not taken
        assert tags(report) == {
            "turn.add.threads": 720, "turn.add.warps": 30,
            "turn.bra.threads": 480, "turn.bra.warps": 30,
        }  # fmt: skip

    def test_lanes_that_branch_away(self, run: Any) -> None:
        # 80 + 16 of 512 threads leave: two whole warps, and halves of two more
        body = """
        setp.lt.u32 %p1, %t, 80; setp.ge.u32 %p2, %t, 496; or.pred %p1, %p1, %p2;
        @%p1 bra END;
        add.u32 %r1, %t, 1;  // tag: inner
END:    add.u32 %r1, %t, 1;  // tag: outer"""
        assert tags(run(body, block=512, tools="advice")[0]) == {
            "inner.add.threads": 416, "inner.add.warps": 14,
            "outer.add.threads": 512, "outer.add.warps": 16,
        }  # fmt: skip

    def test_guarded_barriers_and_exits_count_where_the_guard_is_true(self, run: Any) -> None:
        body = """
        setp.lt.u32 %p1, %t, 64; setp.eq.u32 %p2, %t, 7;
        @%p1 bar.sync 1, 64;  // tag: half
        @%p2 exit;  // tag: out"""
        assert tags(run(body, block=96, tools="advice")[0]) == {
            "half.bar.threads": 64, "half.bar.warps": 2, "out.exit.threads": 1, "out.exit.warps": 1,
        }  # fmt: skip

    def test_functions_count_each_call(self, run: Any) -> None:
        before = """.func f (.reg .b32 a) { .reg .b32 %x;
            add.u32 %x, a, 1;  // tag: inner
            ret; }
        .func unused () { .reg .b32 %x; mov.u32 %x, 1;  // tag: never
            ret; }
        """
        body = """
        call f, (%t);
        setp.lt.u32 %p1, %t, 3;
        @%p1 call f, (%t);"""
        found = tags(run(body, before=before, tools="advice")[0])
        assert found == {"inner.add.threads": 35, "inner.add.warps": 2}

    def test_undefined_bits_around(self, run: Any) -> None:
        # blocks have other steps then; the load brings undefined bits up in the middle of one
        body = """
        mov.u32 %r1, %r9;  // tag: before
        ld.shared.u32 %r2, [s];  // tag: load
        add.u32 %r3, %r2, 1;  // tag: after"""
        report, _ = run(body, declare=".shared .b32 s[1];", tools="advice,initcheck")
        assert tags(report) == {
            "before.mov.threads": 32, "before.mov.warps": 1,
            "load.ld.threads": 32, "load.ld.warps": 1, "load.ld.bytes": 128,
            "after.add.threads": 32, "after.add.warps": 1,
        }  # fmt: skip

    def test_instructions_of_a_tag_add_up_and_some_are_never_executed(self, run: Any) -> None:
        body = """
        add.u32 %r1, %t, 1;  // tag: a
        add.s32 %r1, %t, 1;  // tag: a
        bra END;
        sub.u32 %r1, %t, 1;  // tag: a
END:"""
        assert tags(run(body, tools="advice")[0]) == {
            "a.add.threads": 64, "a.add.warps": 2, "a.sub.threads": 0, "a.sub.warps": 0,
        }  # fmt: skip

    def test_no_tags_no_rows_and_no_tool_no_counters(self, run: Any) -> None:
        assert tags(run("add.u32 %r1, %t, 1;  // a tag: x", tools="advice")[0]) == {}
        counters = run("add.u32 %r1, %t, 1;  // tag: x", tools="all")[0].counters
        assert set(counters) == {"thread_instructions", "steps"}

    def test_statistics_and_json(self, tmp_path: Any, capsys: Any) -> None:
        path = tmp_path / "k.ptx"
        path.write_text(
            f"// launch: grid=1 block=32\n{HEAD}.visible .entry k() {{ .reg .pred %p;\n"
            "setp.eq.u32 %p, 1, 1;  // tag: axis\nret; }\n"
        )
        assert main(["run", str(path), "--stats", "--json", str(tmp_path / "r.json")]) == 0
        assert "  32 tag.axis.setp.threads\n" in capsys.readouterr().out
        assert '"tag.axis.setp.threads": 32' in (tmp_path / "r.json").read_text()


class TestText:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("neg.s32 %a, %a; not.b32 %b, %b; // tag: x", {"not": "x"}),
            ("neg.s32 %a,\n  %a;  //tag:x-1.y_2\r", {"neg": "x-1.y_2"}),
            ("neg.s32 %a, // tag: x\n  %a;", {"neg": "x"}),
            ("neg.s32 %a, %a; /* why */ // tag: x // ptxsim: ignore[PTX390]", {"neg": "x"}),
            ("neg.s32 %a, %a; // ptxsim: ignore[PTX390] so // tag: x", {"neg": "x"}),
            ("neg.s32 %a, %a; // tag: x // tag: y", {"neg": "y"}),
            # not behind an instruction, or not of this form
            ("neg.s32 %a, %a;\n// tag: x", {}),
            ("neg.s32 %a, %a;\n/* c */ // tag: x", {}),
            ("neg.s32 %a, %a; L: // tag: x", {}),
            ("{ neg.s32 %a, %a; } // tag: x", {}),
            ("neg.s32 %a, %a; .reg .b32 %c; // tag: x", {}),
            ("neg.s32 %a, %a; // tag: X", {}),
            ("neg.s32 %a, %a; // tag: x y", {}),
            ("neg.s32 %a, %a; // tag:", {}),
            ("neg.s32 %a, %a; // the tag: x", {}),
            ("neg.s32 %a, %a; /* // tag: x */", {}),
        ],
    )
    def test_which_instruction_has_the_tag(self, text: str, expected: dict[str, str]) -> None:
        text = f"{HEAD}.visible .entry k() {{ .reg .b32 %a, %b;\n{text}\nret; }}\n"
        for one in (text, format_text(text)):
            code = ptxsim.assemble(one).typed.functions["k"].instructions
            assert code is not None
            names = {(i.span.line, i.span.column): i.record.name for i in code}
            assert {names[at]: tag for at, tag in instruction_tags(one, names).items()} == expected

    def test_the_builder_writes_tags(self) -> None:
        k = Kernel("k")
        p = k.new("setp.eq.u32", "pred", 1, 1, tag="axis")
        k.emit("bar.sync", 0, tag="sync.1")
        k.emit("mov.u32", k.register("u32"), 7, guard=p)
        report = k.assemble().kernel().launch(grid=1, block=64, tools="advice")
        assert tags(report) == {
            "axis.setp.threads": 64, "axis.setp.warps": 2,
            "sync.1.bar.threads": 64, "sync.1.bar.warps": 2,
        }  # fmt: skip
        for name in ("X", "1a", "a b", "a\n"):
            with pytest.raises(UsageError, match="no name of a tag"):
                k.emit("bar.sync", 0, tag=name)


#: lane t has 16 bytes of shared memory at %r1 and of the input at %rd1
COPY = """mov.u32 %r0, s; mad.lo.u32 %r1, %t, 16, %r0; mad.wide.u32 %rd1, %t, 16, %in;
"""


class TestCopies:
    def run(self, run: Any, body: str, block: int = 32, **options: Any) -> ptxsim.Report:
        options = {"data": np.zeros(4 * block, np.uint32), "tools": "advice", **options}
        declare = f".shared .align 16 .b8 s[{16 * block}];"
        report: ptxsim.Report = run(COPY + body, block=block, declare=declare, **options)[0]
        assert report.verdict == "clean", report.findings
        return report

    @pytest.mark.parametrize("schedule", [*SCHEDULES, "early-async"])
    @pytest.mark.parametrize("wave_ctas", [None, 1])
    def test_outcomes(self, run: Any, schedule: str, wave_ctas: int | None) -> None:
        # threads 0-9 copy all, 10-19 seven bytes, 20-29 none, 30-39 are guarded off
        body = """
        setp.lt.u32 %p1, %t, 30;
        mov.u32 %r3, 16; setp.ge.u32 %p2, %t, 10; setp.ge.u32 %p3, %t, 20;
        @%p2 mov.u32 %r3, 7;
        @%p3 mov.u32 %r3, 0;
        @%p1 cp.async.cg.shared.global [%r1], [%rd1], 16, %r3;  // tag: tile
        cp.async.wait_all;"""
        options = {"schedule": schedule, "wave_ctas": wave_ctas}
        report = self.run(run, body, block=40, grid=3, **options)
        # two warps a CTA: all outcomes with a true guard in the first, none in the second
        assert copies(report) == {
            "threads": 90, "warps": 6,
            "full.threads": 30, "full.warps": 3,
            "partial.threads": 30, "partial.warps": 3,
            "zero_filled.threads": 30, "zero_filled.warps": 3,
            "skipped.threads": 30, "skipped.warps": 6,
            "bytes_read": 3 * (160 + 70), "bytes_zeroed": 3 * (90 + 160),
            "wait_all.threads": 120, "wait_all.warps": 6,
        }  # fmt: skip
        assert tags(report) == {"tile.cp.async.threads": 90, "tile.cp.async.warps": 6}

    def test_ignore_src(self, run: Any) -> None:
        body = """
        setp.lt.u32 %p1, %t, 33;
        cp.async.ca.shared.global [%r1], [%rd1], 8, %p1;
        cp.async.wait_all;"""
        found = copies(self.run(run, body, block=64))
        assert found == {
            "threads": 64, "warps": 2, "full.threads": 31, "full.warps": 1,
            "zero_filled.threads": 33, "zero_filled.warps": 2,
            "bytes_read": 248, "bytes_zeroed": 264, "wait_all.threads": 64, "wait_all.warps": 2,
        }  # fmt: skip

    def test_skipped_by_all_and_by_lanes_that_branched_away(self, run: Any) -> None:
        # a group keeps the places of the 40 of 512 lanes that leave; they skip nothing
        body = """
        setp.lt.u32 %p1, %t, 40; setp.lt.u32 %p2, %t, 50; setp.eq.u32 %p3, 1, 0;
        @%p1 bra END;
        @%p2 cp.async.cg.shared.global [%r1], [%rd1], 16;
        @%p3 cp.async.cg.shared.global [%r1], [%rd1], 16;
        cp.async.wait_all;
END:"""
        assert copies(self.run(run, body, block=512)) == {
            "threads": 10, "warps": 30, "full.threads": 10, "full.warps": 1,
            "skipped.threads": 462 + 472, "skipped.warps": 15 + 15, "bytes_read": 160,
            "wait_all.threads": 472, "wait_all.warps": 15,
        }  # fmt: skip

    def test_groups(self, run: Any) -> None:
        # a three-stage ring: two groups ahead, four turns, of which the last two copy nothing
        body = """
        mov.u32 %r4, 0;
        cp.async.cg.shared.global [%r1], [%rd1], 16; cp.async.commit_group;
        cp.async.commit_group;
LOOP:   cp.async.wait_group 1;
        setp.lt.u32 %p1, %r4, 2;
        @%p1 cp.async.cg.shared.global [%r1], [%rd1], 16;
        cp.async.commit_group;
        add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 4; @%p2 bra LOOP;
        cp.async.wait_group 0;"""
        assert copies(self.run(run, body, block=48, grid=2)) == {
            "threads": 288, "warps": 20, "full.threads": 288, "full.warps": 12,
            "skipped.threads": 192, "skipped.warps": 8, "bytes_read": 288 * 16,
            "commit_group.threads": 6 * 96, "commit_group.warps": 24,
            "commit_group.empty.threads": 3 * 96, "commit_group.empty.warps": 12,
            "wait_group.1.threads": 4 * 96, "wait_group.1.warps": 16,
            "wait_group.0.threads": 96, "wait_group.0.warps": 4,
        }  # fmt: skip

    def test_wait_all_closes_a_group(self, run: Any) -> None:
        copy = "cp.async.cg.shared.global [%r1], [%rd1], 16;"
        body = f"{copy} cp.async.wait_all; cp.async.commit_group; {copy} cp.async.commit_group;"
        found = copies(self.run(run, body + "cp.async.wait_group 2; cp.async.wait_group 0;"))
        assert (found["commit_group.threads"], found["commit_group.empty.threads"]) == (64, 32)
        assert (found["wait_group.2.threads"], found["wait_group.0.threads"]) == (32, 32)
        assert "pending_at_exit.threads" not in found

    @pytest.mark.parametrize(
        ("body", "threads"),
        [
            # who has a copy in a group that no wait covers: 40 of 64 threads, of two warps
            ("@%p1 {copy} cp.async.commit_group;", 40),
            ("@%p1 {copy}", 40),
            ("@%p1 {copy} cp.async.commit_group; cp.async.wait_group 1;", 40),
            ("@%p1 {copy} cp.async.wait_group 0;", 40),
            ("@%p1 {copy} cp.async.commit_group; @%p2 cp.async.wait_group 0;", 30),
            ("@%p1 {copy} cp.async.commit_group; cp.async.commit_group; cp.async.wait_group 1;", 0),
            ("@%p1 {copy} cp.async.wait_all; cp.async.commit_group;", 0),
        ],
    )
    def test_pending_at_exit(self, run: Any, body: str, threads: int) -> None:
        copy = "cp.async.cg.shared.global [%r1], [%rd1], 16;"
        tests = "setp.lt.u32 %p1, %t, 40; setp.lt.u32 %p2, %t, 10; setp.lt.u32 %p3, %t, 20;"
        report = self.run(run, f"{tests} {body.format(copy=copy)} @%p3 exit;", block=64)
        assert report.counters["cp.async.pending_at_exit.threads"] == threads
        assert report.counters["cp.async.pending_at_exit.warps"] == (2 if threads else 0)

    def test_copies_that_arrive_at_an_mbarrier_do_not_pend(self, run: Any) -> None:
        body = """
        setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared.b64 [m], 32;
        bar.sync 0;
        cp.async.cg.shared.global [%r1], [%rd1], 16;
        cp.async.mbarrier.arrive.noinc.shared.b64 [m];
WAIT:   mbarrier.test_wait.parity.shared.b64 %p2, [m], 0; @!%p2 bra WAIT;"""
        # m before s, so that the place of s in the text stays
        body = ".shared .align 8 .b64 m;\n" + body
        found = copies(self.run(run, body))
        assert found == {"threads": 32, "warps": 1, "full.threads": 32, "full.warps": 1,
                         "bytes_read": 512}  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_barriers(run: Any, schedule: str) -> None:
    # three barriers of 40 threads in two CTAs, and one to which the first warp comes
    body = """
    mov.u32 %r1, 0; setp.lt.u32 %p1, %t, 32;
LOOP: bar.sync 0;
    add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 3; @%p2 bra LOOP;
    @%p1 bar.sync 1, 32;"""
    c = run(body, block=40, grid=2, schedule=schedule, tools="advice")[0].counters
    assert (c["barrier.threads"], c["barrier.warps"]) == (3 * 80 + 64, 3 * 4 + 2)
    assert c["barriers"] == 3 * 2 + 2

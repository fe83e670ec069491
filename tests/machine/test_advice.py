"""Advice: wavefronts, sectors, idle barriers and idle lanes, with the counters behind them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptxsim
from ptxsim.cli import main
from ptxsim.machine.advice import Requests, by_warp, sectors, wavefronts
from ptxsim.machine.advice.cures import padding
from ptxsim.machine.launch import LaunchRecord
from ptxsim.report import PROFILER_NAMES, Severity

from .conftest import HEAD, PROLOGUE

LANE = np.arange(32)
#: The line on which the body of a kernel begins.
BODY = (HEAD + PROLOGUE).splitlines().index("{body}") + 1
WAVE = np.zeros(1, np.int64)


def ways(at: Any, size: int) -> tuple[int, int, int]:
    """Wavefronts, fewest wavefronts and fullest bank of one request of all lanes."""
    result = wavefronts(Requests(np.array([at], np.int64), None, WAVE, size))
    return int(result.needed[0]), int(result.best[0]), int(result.ways[0])


class TestWavefronts:
    # the bank of a word is its number modulo 32: lanes of stride s share gcd(s, 32) ways
    @pytest.mark.parametrize(
        ("words", "needed"), [(1, 1), (2, 2), (3, 1), (4, 4), (8, 8), (32, 32), (33, 1), (64, 32)]
    )
    def test_strides_of_words(self, words: int, needed: int) -> None:
        assert ways(4 * words * LANE, 4) == (needed, 1, needed)

    # half a warp of 8 bytes is 128 bytes: two phases at best.  A stride of 16 bytes puts 16 lanes
    # on 8 different pairs of banks, two deep; one of 128 bytes puts all 16 on one pair.
    @pytest.mark.parametrize(
        ("octets", "needed"),
        [(8, (2, 2, 1)), (16, (4, 2, 2)), (128, (32, 2, 16)), (136, (2, 2, 1))],
    )
    def test_eight_bytes_go_by_half_warps(self, octets: int, needed: tuple[int, int, int]) -> None:
        assert ways(octets * LANE, 8) == needed

    # a quarter of 16 bytes is 128 bytes: four phases at best.  Rows of 128 bytes put the 8 lanes
    # of a phase on the same four banks; 144 = 128 + 16 puts each next to the one before.
    @pytest.mark.parametrize(
        ("octets", "needed"),
        [(16, (4, 4, 1)), (32, (8, 4, 2)), (128, (32, 4, 8)), (144, (4, 4, 1))],
    )
    def test_sixteen_bytes_go_by_quarters(self, octets: int, needed: tuple[int, int, int]) -> None:
        assert ways(octets * LANE, 16) == needed

    def test_one_word_for_all_is_a_broadcast(self) -> None:
        assert ways(np.full(32, 400), 4) == (1, 1, 1)

    def test_bytes_of_one_word_are_a_broadcast(self) -> None:
        assert ways(LANE, 1) == (1, 1, 1)  # 8 words
        assert ways(128 * (LANE // 4) + LANE % 4, 1) == (8, 1, 8)  # 8 words of bank 0

    def test_lanes_that_do_not_take_part_do_not_count(self) -> None:
        # lanes 0 and 1 of stride 32 words share a bank, lane 0 alone does not
        both = wavefronts(by_warp(np.array([0, 1]), np.array([0, 128]), 4))
        assert both.needed.tolist() == [2]
        # one lane of 16 bytes is one phase
        one = wavefronts(by_warp(np.array([9]), np.array([128]), 16))
        assert (one.needed.tolist(), one.best.tolist()) == ([1], [1])

    def test_bytes_moved_by_less_than_a_word(self) -> None:
        # 2-byte elements from byte 0: 16 words; from byte 2: 17 words, none in one bank twice
        at = np.array([2 * LANE, 2 * LANE + 2, 130 * LANE], np.int64)
        result = wavefronts(Requests(at, None, np.arange(3), 2))
        # 130 * lane: words 32 * lane + lane // 2, two lanes a bank
        assert result.needed.tolist() == [1, 1, 2]

    def test_requests_moved_by_half_a_word(self) -> None:
        # bytes 2 and 128 are in bank 0 both, bytes 4 and 130 in banks 1 and 0
        at = np.array([[2, 128] * 16, [4, 130] * 16])
        result = wavefronts(Requests(at, None, np.arange(2), 2))
        assert result.needed.tolist() == [2, 1]

    def test_requests_of_other_lanes(self) -> None:
        # both read 16 bytes at 0, lane 31 of the second in a phase of its own
        requests = by_warp(np.array([0, 32, 63]), np.array([0, 0, 0]), 16)
        assert wavefronts(requests).needed.tolist() == [1, 2]


class TestSectors:
    def moved(self, at: Any, size: int) -> tuple[int, int]:
        moved, best = sectors(Requests(np.array([at], np.int64), None, WAVE, size))
        return int(moved[0]), int(best[0])

    def test_consecutive_words(self) -> None:
        assert self.moved(4 * LANE, 4) == (4, 4)

    def test_every_second_word(self) -> None:
        assert self.moved(8 * LANE, 4) == (8, 4)

    def test_sixteen_bytes_off(self) -> None:
        assert self.moved(16 + 4 * LANE, 4) == (5, 4)

    def test_a_sector_for_each_lane(self) -> None:
        assert self.moved(128 * LANE, 4) == (32, 4)

    def test_vectors(self) -> None:
        assert self.moved(16 * LANE, 16) == (16, 16)
        assert self.moved(32 * LANE, 32) == (32, 32)

    def test_one_word_for_all(self) -> None:
        assert self.moved(np.full(32, 400), 4) == (1, 1)


def scalar_wavefronts(at: list[int], acting: list[bool], size: int) -> tuple[int, int, int]:
    """The rule lane by lane, for the comparison below."""
    together = min(128 // size, 32)
    needed = best = most = 0
    for first in range(0, 32, together):
        words = set()
        for lane in range(first, first + together):
            if acting[lane]:
                words |= {(at[lane] + b) // 4 for b in range(size)}
        banks = [sum(w % 32 == bank for w in words) for bank in range(32)]
        needed += max(banks)
        best += bool(words)
        most = max(most, *banks)
    return needed, best, most


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("spread", [8, 64, 4096])
def test_vectorised_as_lane_by_lane(size: int, spread: int) -> None:
    chosen = random.Random(size * spread)
    lanes, at = [], []
    rows: list[tuple[list[int], list[bool]]] = []
    for warp in range(40):
        acting = [chosen.random() < 0.8 for _ in range(32)]
        acting[chosen.randrange(32)] = True
        row = [size * chosen.randrange(spread) for _ in range(32)]
        rows.append((row, acting))
        lanes += [32 * warp + k for k in range(32) if acting[k]]
        at += [row[k] for k in range(32) if acting[k]]
    requests = by_warp(np.array(lanes), np.array(at), size)
    result = wavefronts(requests)
    moved, best = sectors(requests)
    for k, (row, acting) in enumerate(rows):
        found = (result.needed[k], result.best[k], result.ways[k])
        assert found == scalar_wavefronts(row, acting, size)
        used = {a for a, on in zip(row, acting, strict=True) if on}
        assert moved[k] == len({a // 32 for a in used})
        assert best[k] == -(-len(used) * size // 32)


@pytest.mark.parametrize("distance", [4, 32, 128, 2])
def test_requests_that_are_alike_as_each_alone(distance: int) -> None:
    row = 2 * np.random.default_rng(1).integers(0, 500, 32)
    at = row + distance * np.arange(6)[:, None]
    requests = Requests(at, None, np.arange(6), 2)
    assert requests.alike
    result, (moved, _) = wavefronts(requests), sectors(requests)
    for k in range(6):
        alone = Requests(at[k : k + 1], None, WAVE, 2)
        assert result.needed[k] == wavefronts(alone).needed[0]
        assert moved[k] == sectors(alone)[0][0]


# --- launches -------------------------------------------------------------------------------------


def advice(report: ptxsim.Report) -> dict[str, Any]:
    """The advice by class; everything reported must be advice."""
    assert {f.severity for f in report.findings} <= {Severity.ADVICE}
    assert report.verdict == "clean"
    return {f.class_: f for f in report.findings}


def column(pitch: int) -> dict[str, str]:
    """Each lane stores to its row of a tile of rows of ``pitch`` bytes."""
    return {
        "declare": f".shared .align 16 .b8 s[{pitch * 32}];",
        "body": f"mov.u32 %r0, s; mad.lo.u32 %r1, %t, {pitch}, %r0; st.shared.u32 [%r1], %t;",
    }


def test_bank_conflict_and_the_padding_that_removes_it(run: Any) -> None:
    report, _ = run(**column(128), tools="advice")
    found = advice(report)["bank-conflict"]
    assert found.message == "32-way bank conflicts: 32 wavefronts a request, 1 would do"
    assert found.help is not None
    assert "rows are 128 bytes apart; 132 bytes apart (4 of padding" in found.help
    assert (found.code, found.space, found.size) == ("PTX390", "shared", 4)
    assert found.addresses == tuple(128 * LANE)
    assert found.values["banks"] == "0:32"
    assert report.counters["shared_store_requests"] == 1
    assert report.counters["shared_store_wavefronts"] == 32
    assert report.counters["shared_bank_conflicts"] == 31
    assert advice(run(**column(132), tools="advice")[0]) == {}


#: An access to the first 16 bytes.
WIDE = "st.shared.v4.u32 [s], {%t, %t, %t, %t};"


@pytest.mark.parametrize(
    "wide",
    [
        "st.shared.v4.u32 [%r1], {%t, %t, %t, %t};",
        "mad.wide.u32 %rd1, %t, 0, %in; cp.async.cg.shared.global [%r1], [%rd1], 16;"
        " cp.async.wait_all;",
    ],
)
def test_padding_leaves_wide_accesses_aligned(run: Any, wide: str) -> None:
    """A column of words of rows of 128 bytes needs 4 bytes more, which parts no row by 16."""
    given = column(128)
    body = given["body"].replace("st.shared.u32", f"{wide}\n    bar.sync 0; st.shared.u32")
    report, _ = run(body, declare=given["declare"], tools="advice")
    found = {f.line: f for f in report.findings if f.class_ == "bank-conflict"}
    assert found[BODY + 1].help == (
        "the lanes' rows are 128 bytes apart; 132 bytes apart (4 of padding to a row) this"
        f" instruction has no conflict; if these are the rows of line {BODY}, its 16 bytes must"
        " stay aligned: swizzle them instead"
    )


def test_padding_for_a_wide_access_is_taken_where_it_helps(run: Any) -> None:
    """A word of each of 8 rows of 128 bytes: 4 bytes more part them, and so do 16."""
    given = column(128)
    body = given["body"].replace("st.shared", "setp.lt.u32 %p1, %t, 8; {} @%p1 st.shared")
    for wide, end in (("", "132 bytes apart (4 of"), (WIDE, "144 bytes apart (16 of")):
        report, _ = run(body.format(wide), declare=given["declare"], tools="advice,memcheck")
        (found,) = (f for f in report.findings if f.class_ == "bank-conflict")
        assert found.help is not None
        assert found.help.endswith(f"{end} padding to a row) this instruction has no conflict")


def test_more_warps_and_ctas_count_alike(run: Any) -> None:
    body = """
    mov.u32 %r0, s; and.b32 %r2, %t, 31; mad.lo.u32 %r1, %r2, 16, %r0;
    st.shared.u32 [%r1], %t;"""
    report, _ = run(body, declare=".shared .b32 s[128];", block=96, grid=3, tools="advice",
                    out=np.zeros(288, np.uint32))  # fmt: skip
    # stride 4 words: 32 lanes on 8 banks
    found = advice(report)["bank-conflict"]
    assert found.message == "4-way bank conflicts: 4 wavefronts a request, 1 would do"
    assert found.count == 9
    # banks 0, 4, 8, ..., 28
    assert found.values["banks"] == " ".join(f"{bank}:4" for bank in range(0, 32, 4))
    assert report.counters["shared_store_wavefronts"] == 36


@pytest.mark.parametrize(
    ("pitch", "x", "needed", "help_"),
    [
        (16, 4, 4, None),
        (80, 4, 4, None),
        # rows 32 bytes apart: 8 rows over 256 bytes, two deep in each matrix
        (32, 4, 8, "the lanes' rows are 32 bytes apart; 48 bytes apart (16 of padding"),
        (32, 1, 2, "the lanes' rows are 32 bytes apart; 48 bytes apart (16 of padding"),
        (128, 2, 16, "the lanes' rows are 128 bytes apart; 144 bytes apart (16 of padding"),
    ],
)
@pytest.mark.parametrize("opcode", ["ldmatrix", "stmatrix"])
def test_matrix_rows(
    run: Any, pitch: int, x: int, needed: int, help_: str | None, opcode: str
) -> None:
    registers = ", ".join(f"%r{4 + i}" for i in range(x))
    name = f"{opcode}.sync.aligned.m8n8.x{x}.shared.b16"
    operands = f"{{{registers}}}, [%r1]" if opcode == "ldmatrix" else f"[%r1], {{{registers}}}"
    body = f"mov.u32 %r0, s; mad.lo.u32 %r1, %t, {pitch}, %r0; {name} {operands};"
    body = "\n".join(f"mov.u32 %r{4 + i}, 0;" for i in range(4)) + body
    text = ptxsim.assemble(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() {\n"
        f".reg .b32 %r<32>, %t; .shared .align 16 .b8 s[{pitch * 32}];\nmov.u32 %t, %tid.x;\n"
        f"{body}\nret; }}"
    )
    report = text.kernel().launch(grid=1, block=32, tools="advice")
    kind = "load" if opcode == "ldmatrix" else "store"
    assert report.counters[f"{opcode}_requests"] == 1
    assert report.counters[f"shared_{kind}_wavefronts"] == needed
    assert report.counters[f"shared_{kind}_requests"] == 0
    found = advice(report)
    assert set(found) == ({"bank-conflict"} if help_ else set())
    if help_:
        assert help_ in (found["bank-conflict"].help or "")


def test_lanes_that_supply_no_row_do_not_count(run: Any) -> None:
    # on sm_75 they give an address as well; rows of 32 bytes: 8 rows, two deep
    text = """.version 8.0
.target sm_75
.address_size 64
.visible .entry k() {
    .reg .b32 %r<4>; .shared .align 16 .b8 s[1024];
    mov.u32 %r0, %tid.x; mov.u32 %r1, s; mad.lo.u32 %r1, %r0, 32, %r1;
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1];
    ret;
}"""
    report = ptxsim.assemble(text).kernel().launch(grid=1, block=32, tools="advice")
    assert report.counters["shared_load_wavefronts"] == 2
    assert report.counters["shared_bank_conflicts"] == 1


def test_tiles_of_wmma_are_not_counted(run: Any) -> None:
    # which lane accesses what is not documented
    registers = "".join(f"mov.b32 %r{i}, 0;\n" for i in range(4, 12))
    names = ", ".join(f"%r{i}" for i in range(4, 12))
    body = f"""{registers} mov.u32 %r0, s;
    wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%r0], {{{names}}}, 16;"""
    report, _ = run(body, declare=".shared .align 32 .b8 s[1024];", tools="advice")
    assert report.verdict == "clean"
    assert report.counters["shared_wavefronts"] == 0


def test_reductions_and_atomics_are_told_apart(run: Any) -> None:
    body = """
    red.global.add.u32 [%mine], 1; atom.global.add.u32 %r1, [%mine], 1;
    atom.global.add.u32 %r2, [%mine], 1;"""
    c = run(body, tools="advice")[0].counters
    assert (c["global_reduction_requests"], c["global_reduction_sectors"]) == (1, 4)
    assert (c["global_atomic_requests"], c["global_atomic_sectors"]) == (2, 8)


def test_no_padding_is_offered_where_none_helps(run: Any) -> None:
    # lane i at row i * i of 128 bytes: squares have few remainders, and rows 0 and 1 are two of
    # one row for every longer pitch
    body = """
    mul.lo.u32 %r1, %t, %t; mov.u32 %r0, s; mad.lo.u32 %r1, %r1, 128, %r0;
    st.shared.u32 [%r1], %t;"""
    report, _ = run(body, block=16, declare=".shared .b32 s[8192];", tools="advice")
    found = advice(report)["bank-conflict"]
    assert found.message == "16-way bank conflicts: 16 wavefronts a request, 1 would do"
    assert "padding" not in (found.help or "")


def test_shared_atomics_are_requests(run: Any) -> None:
    body = "mov.u32 %r0, s; mad.lo.u32 %r1, %t, 8, %r0; red.shared.add.u32 [%r1], 1;"
    report, _ = run(body, declare=".shared .b32 s[64];", tools="advice")
    assert report.counters["shared_atomic_requests"] == 1
    assert report.counters["shared_atomic_wavefronts"] == 2
    assert "bank-conflict" in advice(report)


@pytest.mark.parametrize(
    ("stride", "offset", "moved", "reported"),
    [(4, 0, 4, False), (8, 0, 8, False), (4, 16, 5, False), (128, 0, 32, True)],
)
def test_sectors_of_a_store(run: Any, stride: int, offset: int, moved: int, reported: bool) -> None:
    body = f"""
    mad.wide.u32 %rd1, %t, {stride}, %out; st.global.u32 [%rd1+{offset}], %t;"""
    report, _ = run(body, block=128, out=np.zeros(128 * 32 + 4, np.uint32), tools="advice")
    assert report.counters["global_store_requests"] == 4
    assert report.counters["global_store_sectors"] == 4 * moved
    found = advice(report)
    assert set(found) == ({"uncoalesced"} if reported else set())
    if reported:
        one = found["uncoalesced"]
        assert one.message == "32 sectors of 32 bytes a request, 4 would hold its bytes"
        assert "lanes are 128 bytes apart and access 4 each" in (one.help or "")


def test_reads_of_cp_async_are_counted_apart(run: Any) -> None:
    body = """
    mov.u32 %r0, s; mad.lo.u32 %r1, %t, 4, %r0; mad.wide.u32 %rd1, %t, 4, %in;
    cp.async.ca.shared.global [%r1], [%rd1], 4; cp.async.wait_all;"""
    report, _ = run(body, declare=".shared .b32 s[32];", tools="advice")
    assert report.counters["global_copy_requests"] == 1
    assert report.counters["global_copy_sectors"] == 4
    assert report.counters["global_load_requests"] == 0


class TestBarriers:
    def found(self, run: Any, body: str, **options: Any) -> list[int]:
        report, _ = run(body, block=64, declare=".shared .b32 s[64];", tools="advice", **options)
        assert report.verdict == "clean"
        return [f.line for f in report.findings if f.class_ == "redundant-barrier"]

    STORE = "mov.u32 %r0, s; mad.lo.u32 %r1, %t, 4, %r0; st.shared.u32 [%r1], %t;\n"

    def test_two_in_a_row(self, run: Any) -> None:
        assert self.found(run, f"{self.STORE} bar.sync 0;\n") == []
        body = f"{self.STORE} bar.sync 0;\n add.u32 %r1, %r1, 4;\n bar.sync 1;"
        report, _ = run(body, block=64, declare=".shared .b32 s[64];", tools="advice")
        (found,) = report.findings
        assert (found.class_, found.code, found.count) == ("redundant-barrier", "PTX392", 1)
        assert found.line == BODY + 3

    def test_an_access_between(self, run: Any) -> None:
        body = f"{self.STORE} bar.sync 0;\n ld.shared.u32 %r2, [s];\n bar.sync 0;"
        assert self.found(run, body) == []

    def test_an_access_by_one_thread_between(self, run: Any) -> None:
        body = f"""{self.STORE} bar.sync 0;
        setp.eq.u32 %p1, %t, 3; @%p1 st.shared.u32 [s], 7;
        bar.sync 0;"""
        assert self.found(run, body) == []

    def test_one_turn_of_a_loop_with_an_access(self, run: Any) -> None:
        body = f"""{self.STORE} bar.sync 0;
        mov.u32 %r5, 0;
LOOP:   setp.eq.u32 %p1, %r5, 2; @%p1 st.shared.u32 [%r1], 1;
        bar.sync 0;
        add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 4; @%p2 bra LOOP;"""
        assert self.found(run, body) == []
        assert len(self.found(run, body.replace("%r5, 2", "%r5, 9"))) == 1

    @pytest.mark.parametrize(
        "between",
        ["membar.cta;", "bar.red.popc.u32 %r3, 0, %p1;", "cp.async.wait_all;", "bar.arrive 2, 64;"],
    )
    def test_what_is_not_certain_is_not_said(self, run: Any, between: str) -> None:
        body = f"{self.STORE} setp.eq.u32 %p1, %t, 0;\n bar.sync 0;\n {between}\n"
        follow = "" if between.startswith(("bar.red", "bar.arrive")) else "bar.sync 0;"
        assert self.found(run, body + follow) == []

    def test_a_barrier_at_which_some_only_arrive_forgets_nothing(self, run: Any) -> None:
        body = f"""{self.STORE}
        setp.lt.u32 %p1, %t, 32; @%p1 bra SOME;
        bar.arrive 1, 64;
        bra JOIN;
SOME:   bar.sync 1, 64;
JOIN:   bar.sync 0;"""
        assert self.found(run, body) == []

    def test_what_was_printed_is_in_order(self, run: Any) -> None:
        body = f"""{self.STORE}
        cvta.global.u64 %rd2, text; mov.u64 %rd3, 0;
        bar.sync 0;
        {{ .param .b64 f; .param .b64 a; .param .b32 r;
        st.param.b64 [f], %rd2; st.param.b64 [a], %rd3; call (r), vprintf, (f, a); }}
        bar.sync 0;"""
        before = """.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.global .align 1 .b8 text[3] = {104, 105, 0};
"""
        report, _ = run(body, before=before, declare=".shared .b32 s[64];", tools="advice")
        assert report.printf == "hi" * 32
        assert advice(report) == {}
        # how the text is read says nothing about a GPU
        assert report.counters["global_load_requests"] == 0

    def test_a_barrier_of_some_threads_forgets_nothing(self, run: Any) -> None:
        body = f"""{self.STORE}
        setp.lt.u32 %p1, %t, 32; @%p1 bra SOME;
        bra JOIN;
SOME:   bar.sync 1, 32;
JOIN:   bar.sync 0;"""
        assert self.found(run, body) == []


def test_few_active_lanes(run: Any) -> None:
    body = """
    and.b32 %r1, %t, 31; setp.ne.u32 %p1, %r1, 0; mov.u32 %r2, 0;
    @%p1 bra END;
LOOP: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 100; @%p2 bra LOOP;
END:"""
    report, _ = run(body, block=64, tools="advice")
    found = advice(report)["low-activity"]
    # 2 warps run the 3 instructions of the loop 100 times, with one lane each
    assert "1.0 of 32 lanes are active on average, in 600 warp instructions" in found.message
    assert found.count == 200
    busy = body.replace("setp.ne.u32 %p1, %r1, 0", "setp.gt.u32 %p1, %r1, 7")
    assert advice(run(busy, block=64, tools="advice")[0]) == {}
    # a CTA of one thread has no lanes to give work to
    assert advice(run(body, block=1, tools="advice")[0]) == {}


class TestPredicatedWork:
    """Instructions whose guards are false in most lanes, in a loop of 64 turns of one warp."""

    BODY = """
    mov.u32 %r2, 0; mov.u32 %r1, 0;
    setp.lt.u32 %p1, %t, 4;
LOOP:
    @%p1 add.u32 %r1, %r1, 1;
    @!%p1 sub.u32 %r1, %r1, 1;
    add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 64;
    @%p2 bra LOOP;"""

    def test_a_guard_that_few_lanes_pass(self, run: Any) -> None:
        report, _ = run(self.BODY, tools="advice")
        found = advice(report)["low-activity"]
        # 4 of the prologue, 3, 64 turns of 5 and ret: 328 instructions of the warp; 64 are the
        # guarded add, which the 4 lower lanes do.  28 lanes do the sub, and a branch is no work
        assert found.message == (
            f"line {BODY + 4}: 4.0 of 32 lanes have a true guard on average, in 64 warp"
            " instructions (20% of the launch)"
        )
        assert found.count == 64
        # 32 lanes do all 328 but for: 28 the add, 4 the sub, and 32 the last branch
        assert report.counters["warp_instructions"] == 328
        assert report.counters["thread_instructions"] == 328 * 32
        off = 64 * (28 + 4) + 32
        assert report.counters["thread_instructions_predicated_on"] == 328 * 32 - off

    def test_a_guard_that_a_quarter_of_the_lanes_pass(self, run: Any) -> None:
        report, _ = run(self.BODY.replace("%t, 4", "%t, 8"), tools="advice")
        assert advice(report) == {}

    def test_lanes_in_divergent_code(self, run: Any) -> None:
        # 8 lanes come to 32 guarded instructions of which 4 lanes do each; the others do nothing
        body = """
        mov.u32 %r1, 0; setp.ge.u32 %p1, %t, 8; setp.lt.u32 %p2, %t, 4;
        @%p1 bra END;
        @%p2 add.u32 %r1, %r1, 1;
END:    st.global.u32 [%mine], %r1;"""
        report, _ = run(body, tools="advice")
        whole = 32 * report.counters["warp_instructions"]
        assert report.counters["thread_instructions"] == whole - (32 - 8)
        # the branch is not taken by 8 lanes, the add done by 4 of 8
        assert report.counters["thread_instructions_predicated_on"] == whole - 24 - 8 - 4


def test_counters_of_a_copy(run: Any) -> None:
    body = """
    mad.wide.u32 %rd1, %t, 4, %in; ld.global.u32 %r1, [%rd1]; st.global.u32 [%mine], %r1;"""
    report, _ = run(body, block=48, tools="advice")
    c = report.counters
    # two warps, the second of 16 lanes; prologue of 4 instructions, 3 of the body, ret
    assert (c["thread_instructions"], c["warp_instructions"]) == (48 * 8, 2 * 8)
    assert (c["global_load_requests"], c["global_load_sectors"]) == (2, 4 + 2)
    assert (c["global_store_requests"], c["global_store_sectors"]) == (2, 4 + 2)
    assert c["shared_wavefronts"] == 0
    assert report.aliases["smsp__inst_executed.sum"] == "warp_instructions"
    assert report.to_json()["aliases"] == dict(PROFILER_NAMES)
    assert set(PROFILER_NAMES.values()) <= set(c)


def test_warps_that_leave_a_loop_early_are_not_counted_in_it(run: Any) -> None:
    # warp w of 16 goes round w + 1 times: 136 turns of 3 instructions, 4 + 2 before and ret
    body = """
    shr.u32 %r1, %t, 5; mov.u32 %r2, 0;
LOOP: add.u32 %r2, %r2, 1; setp.le.u32 %p1, %r2, %r1; @%p1 bra LOOP;"""
    report, _ = run(body, block=512, tools="advice")
    assert report.counters["warp_instructions"] == 136 * 3 + 16 * 7
    assert report.counters["thread_instructions"] == 32 * (136 * 3 + 16 * 7)


def test_counts_do_not_depend_on_the_schedule(run: Any) -> None:
    body = """
    mov.u32 %r0, s; mad.lo.u32 %r1, %t, 8, %r0; st.shared.u32 [%r1], %t; bar.sync 0;
    and.b32 %r2, %t, 3; setp.eq.u32 %p1, %r2, 0; @%p1 ld.shared.u32 %r3, [%r1];
    st.global.u32 [%mine], %r2;"""
    seen = []
    for schedule in ("default", "reverse", "warp-serial"):
        report, _ = run(body, block=128, declare=".shared .b32 s[256];", schedule=schedule,
                        tools="advice")  # fmt: skip
        seen.append({k: v for k, v in report.counters.items() if k != "steps"})
        assert set(advice(report)) == {"bank-conflict"}
    assert seen[0] == seen[1] == seen[2]


class TestStatistics:
    TEXT = f"""// launch: grid=1 block=32
{HEAD}.visible .entry k() {{
    .shared .b8 s[4096];
    .reg .b32 %t, %r;
    mov.u32 %t, %tid.x;
    mov.u32 %r, s;
    mad.lo.u32 %r, %t, 128, %r;
    st.shared.u32 [%r], %t;
    ret;
}}
"""

    def test_text(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "k.ptx"
        path.write_text(self.TEXT)
        assert main(["run", str(path), "--stats", "--strict"]) == 0
        out = capsys.readouterr().out
        assert "advice: bank-conflict: 32-way bank conflicts" in out
        counters = out[out.index("counters\n") :].splitlines()
        # 5 instructions by 32 lanes of one warp; what is zero is not shown
        assert counters == [
            "counters",
            "  160 thread_instructions",
            "    5 steps",
            "    5 warp_instructions",
            "  160 thread_instructions_predicated_on",
            "    1 shared_store_requests",
            "   32 shared_store_wavefronts",
            "   31 shared_store_bank_conflicts",
            "   32 shared_wavefronts",
            "   31 shared_bank_conflicts",
            "by the names of profilers (PTX level: instructions of PTX, not of the GPU)",
            "    5 smsp__inst_executed.sum",
            "  160 smsp__thread_inst_executed.sum",
            "  160 smsp__thread_inst_executed_pred_on.sum",
            "    1 smsp__inst_executed_op_shared_st.sum",
            "   32 l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
            "   32 l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
            "   31 l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
            "   31 l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
        ]

    def test_all_leaves_advice_out(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "k.ptx"
        path.write_text(self.TEXT)
        assert main(["run", str(path)]) == 0
        assert "bank-conflict" not in capsys.readouterr().out
        assert main(["run", str(path), "--tool", "all,advice"]) == 0
        assert "1 advice" in capsys.readouterr().out


class TestOff:
    @pytest.mark.parametrize("tools", ["none", "memcheck,initcheck"])
    def test_nothing_listens(self, run: Any, monkeypatch: pytest.MonkeyPatch, tools: str) -> None:
        records: list[LaunchRecord] = []
        plain = ptxsim.api.run

        def note(record: LaunchRecord, sink: Any) -> Any:
            records.append(record)
            return plain(record, sink)

        monkeypatch.setattr(ptxsim.api, "run", note)
        report, _ = run(**column(128), tools=tools)
        assert [r.watch for r in records] == [None]
        assert report.findings == ()
        assert report.aliases == {}
        assert set(report.counters) == {"thread_instructions", "steps"}

    def test_the_check_above_can_fail(self, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        records: list[LaunchRecord] = []
        plain = ptxsim.api.run
        monkeypatch.setattr(
            ptxsim.api, "run", lambda record, sink: records.append(record) or plain(record, sink)
        )
        run(**column(128), tools="advice")
        assert records[0].watch is not None

    def test_no_advice_on_a_launch_that_stopped(self, run: Any) -> None:
        given = column(128)
        body = given["body"] + " trap;"
        report, _ = run(body, declare=given["declare"], tools="advice")
        assert [f.class_ for f in report.findings] == ["trap"]
        assert report.counters["shared_bank_conflicts"] == 31


class TestPadding:
    ALL = np.ones(32, bool)

    def test_a_column_of_a_tile(self) -> None:
        assert padding([(128 * LANE, self.ALL)], 4) == (128, 4)
        # 8 rows of words: any multiple of 16 that is odd in units of 16 parts them
        eight = LANE < 8
        assert padding([(128 * LANE * eight, eight)], 4) == (128, 4)
        assert padding([(128 * LANE * eight, eight)], 4, 16) == (128, 16)
        assert padding([(128 * LANE, self.ALL)], 4, 16) is None

    def test_rows_that_are_read_whole(self) -> None:
        # ldmatrix.x4 of 16 x 16 halves, rows of 32 bytes: lanes 16 to 31 have the right half
        at = 32 * (LANE % 16) + 16 * (LANE // 16)
        assert padding([(at, self.ALL)], 16) == (32, 16)

    def test_pieces_of_rows(self) -> None:
        # 4 rows of 128 bytes, 8 words of each: 4 ways; 8 words of padding put them side by side
        at = 128 * (LANE // 8) + 4 * (LANE % 8)
        assert padding([(at, self.ALL)], 4) == (128, 32)

    def test_it_must_work_for_all_patterns(self) -> None:
        # a column wants an odd number of words, pieces of 8 words a multiple of 8
        two = [(128 * LANE, self.ALL), (128 * (LANE // 8) + 4 * (LANE % 8), self.ALL)]
        assert padding(two, 4) is None

    @pytest.mark.parametrize("size", [4, 8, 16])
    def test_what_is_offered_is_free_of_conflicts(self, size: int) -> None:
        chosen = random.Random(size)
        offered = 0
        for _ in range(60):
            wide = chosen.choice((1, 2, 4, 8))
            pitch = size * chosen.choice((wide, 2 * wide, 8 * wide, 24, 32))
            at = pitch * (LANE // wide) + size * (LANE % wide)
            found = padding([(at, self.ALL)], size)
            if found is not None:
                offered += 1
                apart, more = found
                needed, best, _ = ways(at + more * (at // apart), size)
                assert needed == best
        assert offered > 20

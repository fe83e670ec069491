"""Unordered accesses that the order of fence.sc may hide: warnings; all others: errors.

The verdicts follow PTX ISA 9.1, Memory Consistency Model: Fence-SC, by hand: a pair is a warning if
the one comes before a fence F, a fence G before the other, F and G are morally strong, and G does
not come before F.  None depends on the schedule, nor on how CTAs are spread over waves.  The lines
of an error are marked ``//!``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import ptxsim
from ptxsim.diagnostics import Severity
from ptxsim.machine.races import fence_order
from ptxsim.machine.races.judge import Judge
from tests.verdicts import SCHEDULES

HEAD = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 g_p)
{
.reg .pred %p, %q;
.reg .b32 %r<4>, %t, %c, %w, %l, %n;
.reg .b64 %g, %null;
ld.param.u64 %g, [g_p];
mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; shr.u32 %w, %t, 5; and.b32 %l, %t, 31;
mov.u32 %r1, 1; mov.u64 %null, 0;
"""
FENCE = "fence.sc.gpu;"
SET = "st.global.u32 [%g], 1;"
GET = "ld.global.u32 %r2, [%g];"
SET_Y = "st.global.u32 [%g+64], 1;"
GET_Y = "ld.global.u32 %r3, [%g+64];"


@dataclass(frozen=True)
class Row:
    """A kernel: an error between the marked lines, or warnings, or nothing."""

    name: str
    body: str
    verdict: str
    grid: int = 2
    block: int = 32


def threads(*what: str, apart: str = "ctas") -> str:
    """Threads of different CTAs, or of different warps of one, that each do something."""
    place, first = ("%c", "%t") if apart == "ctas" else ("%w", "%l")
    text = f"setp.ne.u32 %p, {first}, 0;\n@%p bra END;\n"
    for k in range(len(what)):
        text += f"setp.eq.u32 %p, {place}, {k};\n@%p bra T{k};\n"
    return (
        text
        + "bra END;\n"
        + "".join(f"T{k}:\n{t}\nbra END;\n" for k, t in enumerate(what))
        + "END:"
    )


def marked(text: str) -> str:
    return text + " //!"


def buffering(first: str, second: str, apart: str = "ctas") -> str:
    """Store buffering by weak accesses with a fence in each thread."""
    return threads(f"{SET}\n{first}\n{GET_Y}", f"{SET_Y}\n{second}\n{GET}", apart=apart)


def narrow(first: str, second: str) -> str:
    """The same by two CTAs whose fences do not hold each other."""
    text = buffering(first, second)
    return text.replace(SET, marked(SET)).replace(GET, marked(GET))


SPIN = "SPIN: ld.relaxed.gpu.global.u32 %r1, [%g+128];\nsetp.eq.u32 %q, %r1, 0;\n@%q bra SPIN;\n"
GIVE = "st.relaxed.gpu.global.u32 [%g+128], 1;"
#: Warp 0 stores and warp 1 loads, between what all do.
BETWEEN = f"""{{before}}
setp.ne.u32 %p, %t, 0; setp.ne.u32 %q, %t, 32;
@%p bra NEXT;
{marked(SET)}
NEXT: @%q bra LAST;
{marked(GET)}
LAST: {{after}}"""
#: Thread 37 of CTA 0 stores and thread 0 fences; thread 0 of CTA 1 fences and thread 42 loads.
OTHERS = f"""setp.eq.u32 %p, %c, 1;
@%p bra TAKE;
setp.eq.u32 %p, %t, 37; setp.eq.u32 %q, %t, 0;
@!%p bra ON;
{marked(SET)}
ON: {{first}}
@%q membar.gl;
bra END;
TAKE: setp.eq.u32 %p, %t, 42; setp.eq.u32 %q, %t, 0;
@%q membar.gl;
{{second}}
@!%p bra END;
{marked(GET)}
END:"""


def others(first: str, second: str, error: bool) -> str:
    text = OTHERS.format(first=first, second=second)
    return text if error else text.replace(" //!", "")


SYNC = "bar.sync 0;"
ROWS = [
    Row("store buffering", buffering(FENCE, FENCE), "warning"),
    Row("store buffering, membar", buffering("membar.gl;", "membar.sys;"), "warning"),
    Row("store buffering, fences of the CTA", narrow("fence.sc.cta;", "fence.sc.cta;"), "error"),
    Row("store buffering, one of the CTA", narrow("membar.cta;", FENCE), "error"),
    Row("store buffering, the other", narrow(FENCE, "membar.cta;"), "error"),
    Row("store buffering, fences of other order", narrow(FENCE, "fence.acq_rel.gpu;"), "error"),
    Row("store buffering inside a CTA",
        buffering("membar.cta;", FENCE, "warps"), "warning", grid=1, block=64),
    Row("store buffering, strong accesses", buffering(FENCE, FENCE)
        .replace("st.", "st.relaxed.gpu.").replace("ld.", "ld.relaxed.gpu."), "clean"),
    Row("message passing", threads(
        f"{SET}\n{FENCE}\n{GIVE}", f"{SPIN}{FENCE}\n{GET}"), "clean"),
    Row("message passing, plain flag", threads(
        f"{SET}\n{FENCE}\n{SET_Y}", f"{GET_Y}\n{FENCE}\n{GET}"), "warning"),
    Row("message passing, no flag", threads(f"{SET}\n{FENCE}", f"{FENCE}\n{GET}"), "warning"),
    Row("message passing, no second fence",
        threads(f"{marked(SET)}\n{FENCE}", marked(GET)), "error"),
    Row("message passing, no first fence",
        threads(marked(SET), f"{FENCE}\n{marked(GET)}"), "error"),
    Row("fences on the wrong sides",
        threads(f"{FENCE}\n{marked(SET)}", f"{FENCE}\n{marked(GET)}"), "error"),
    Row("independent reads", threads(
        f"{FENCE}\n{SET}\n{FENCE}", f"{FENCE}\n{SET_Y}\n{FENCE}",
        f"{GET}\n{FENCE}\n{GET_Y}", f"{GET_Y}\n{FENCE}\n{GET}"), "warning", grid=4),
    Row("independent reads of writes without fences", threads(
        marked(SET), f"{FENCE}\n{SET_Y}\n{FENCE}", f"{marked(GET)}\n{FENCE}\n{GET_Y}",
        f"{GET_Y}\n{FENCE}"), "error", grid=4),
    Row("fences in other threads, by barriers", others(SYNC, SYNC, False), "warning", block=64),
    Row("fences in other threads, no first barrier", others("", SYNC, True), "error", block=64),
    Row("fences in other threads, no second barrier", others(SYNC, "", True), "error", block=64),
    Row("fences around, in order by barriers", BETWEEN.format(
        before=f"membar.gl; {SYNC}", after=f"{SYNC} membar.gl;"), "error", grid=1, block=64),
    Row("fences around, in no order", BETWEEN.format(
        before="membar.gl;", after="membar.gl;").replace(" //!", ""), "warning", grid=1, block=64),
    Row("fences in order by a flag", threads(
        f"{FENCE}\n{GIVE}\n{marked(GET)}",
        f"{SPIN}fence.acq_rel.gpu;\n{marked(SET)}\n{FENCE}"), "error"),
    Row("a store before the fence too",
        threads(f"{marked(SET)}\n{FENCE}\n{SET}", f"{marked(GET)}\n{FENCE}"), "error"),
    Row("a load before the fence too",
        threads(f"{marked(GET)}\n{FENCE}\n{GET}", f"{marked(SET)}\n{FENCE}"), "error"),
    Row("a warning does not hide an error", threads(
        f"{marked(SET)}\n{FENCE}", f"{FENCE}\nst.global.u32 [%g], 2;\n{FENCE}",
        f"{marked(GET)}\n{FENCE}"), "error", grid=3),
    Row("lanes of one store", "membar.gl;\nst.global.u32 [%g], %t;\nmembar.gl;", "warning",
        grid=1),
    Row("lanes of one store, no fence after it", f"membar.gl;\n{marked('st.global.u32 [%g], %t;')}",
        "error", grid=1),
    Row("lanes of one store, none for some", "setp.eq.u32 %p, %t, 31;\n@%p membar.gl;\n"
        f"{marked('st.global.u32 [%g], %t;')}\n@!%p membar.gl;", "error", grid=1),
]  # fmt: skip


def launch(row: Row, **options: object) -> tuple[ptxsim.Report, set[int]]:
    text = f"{HEAD}{row.body}\nret;\n}}\n"
    report = ptxsim.assemble(text).kernel().launch(
        grid=row.grid, block=row.block, args=[np.zeros(64, np.uint32)], max_instructions=50_000,
        **options,
    )  # fmt: skip
    return report, {n for n, line in enumerate(text.splitlines(), 1) if "//!" in line}


def check(row: Row, **options: object) -> None:
    report, lines = launch(row, **options)
    found = {f.class_: f.severity for f in report.findings}
    errors = [f for f in report.findings if f.severity is Severity.ERROR]
    if row.verdict == "error":
        assert {f.class_ for f in errors} == {"race-global"}
        assert lines in [{f.line, f.other_line or f.line} for f in errors]
    elif row.verdict == "warning":
        assert found == {"race-global": Severity.WARNING}
    else:
        assert not found


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_verdict(row: Row, schedule: str) -> None:
    check(row, schedule=schedule)


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("a store before the fence too", "_other_fences"),
        ("a warning does not hide an error", "_stays"),
    ],
)
def test_a_lost_access_is_noticed(name: str, lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On some schedule a newer access takes the place of one that makes the error."""
    monkeypatch.setattr(Judge, lost, lambda *_: None)
    (row,) = (r for r in ROWS if r.name == name)
    with pytest.raises(AssertionError):
        for schedule in SCHEDULES:
            check(row, schedule=schedule)


@pytest.mark.parametrize("row", [r for r in ROWS if r.grid > 1], ids=lambda row: row.name)
def test_verdict_over_waves(row: Row) -> None:
    check(row, wave_ctas=1)
    if "SPIN" not in row.body:  # nobody gives the flag before
        check(row, wave_ctas=1, schedule="reverse")


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("end", "class_"),
    [("ld.global.u32 %r2, [%null];", "oob-global"), ("bar.sync 1, 128;", "deadlock")],
)
def test_the_launch_need_not_end_well(end: str, class_: str, schedule: str) -> None:
    """Warp 1 has no fence: an error, also where a fault or a deadlock ends the launch."""
    body = f"""setp.eq.u32 %p, %w, 0; setp.eq.u32 %q, %l, 0;
@!%p bra OTHER;
@%q {marked(SET)}
membar.gl;
bra MEET;
OTHER: @%q {marked(GET)}
MEET: bar.sync 0;
{end}"""
    report, lines = launch(Row("", body, "error", grid=1, block=64), schedule=schedule)
    found = {f.class_: f for f in report.findings if f.severity is Severity.ERROR}
    assert set(found) == {"race-global", class_}
    assert {found["race-global"].line, found["race-global"].other_line} == lines


def test_more_pairs_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """32 lanes load, 32 store: 1024 pairs, and what is not kept is not excused."""
    load, store = "ld.global.u32 %r2, [%g];", "st.global.u32 [%g], 1;"
    body = f"setp.eq.u32 %p, %w, 0;\nmembar.gl;\n@%p {load}\n@!%p {store}\nmembar.gl;"
    row = Row("", body, "warning", grid=1, block=64)
    report, _ = launch(row)
    assert "race-global" not in {f.class_ for f in report.findings if f.severity is Severity.ERROR}
    monkeypatch.setattr(fence_order, "_PAIRS", 15)
    monkeypatch.setattr(fence_order, "_FIRST", 8)
    report, _ = launch(row)
    assert "race-global" in {f.class_ for f in report.findings if f.severity is Severity.ERROR}

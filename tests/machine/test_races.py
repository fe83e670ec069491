"""Patterns of synchronisation and their verdicts, one small kernel each, on several schedules.

The numbers are those of a table of 84 patterns.  Not here yet are 58 to 77 (mbarriers, bulk copies,
wgmma), 79 (tensor maps) and 80 to 82 (clusters).  The lines of a race are marked ``//!``.  The
verdicts follow PTX ISA 9.1, Memory Consistency Model, and the pages of the instructions.  Threads
are of different warps or CTAs unless the row says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pytest

import ptxsim
from ptxsim.diagnostics import Severity

SCHEDULES = ("default", "reverse", "warp-serial", "random:3")

HEAD = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 g_p)
{
.reg .pred %p<8>, %one, %two;
.reg .b16 %h;
.reg .b32 %r<16>, %t, %w, %l, %c, %s, %mine, %a, %k;
.reg .b64 %d<8>, %g, %place;
.shared .align 16 .b8 s[2048];
ld.param.u64 %g, [g_p];
mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; shr.u32 %w, %t, 5; and.b32 %l, %t, 31;
mov.u32 %s, s; mad.lo.u32 %mine, %t, 4, %s; mad.wide.u32 %place, %t, 4, %g;
mov.u32 %k, 0; mov.u32 %r1, 0; mov.u16 %h, 1;
"""


@dataclass(frozen=True)
class Row:
    """A pattern: ``verdict`` is clean, or the class of the race between the marked lines."""

    name: str
    body: str
    verdict: str = "clean"
    grid: int = 1
    block: int = 64
    advice: bool = False


def other(lanes: int) -> str:
    """The address of the word of the thread whose number differs in these bits."""
    return f"xor.b32 %r9, %t, {lanes}; mad.lo.u32 %a, %r9, 4, %s;\n"


def two(first: str, second: str, apart: str = "cta") -> str:
    """Two threads do two things: the first of two CTAs, or of two warps."""
    place, register = ("%t", "%c") if apart == "cta" else ("%l", "%w")
    return f"""
setp.eq.u32 %one, {register}, 0; setp.eq.and.u32 %one, {place}, 0, %one;
setp.eq.u32 %two, {register}, 1; setp.eq.and.u32 %two, {place}, 0, %two;
@%one bra ONE;
@%two bra TWO;
bra END;
ONE:
{first}
bra END;
TWO:
{second}
END:
"""


def spin(load: str, until: int = 1, name: str = "SPIN") -> str:
    """Read a word into %r1 until it is at least this."""
    return f"{name}: {load}\nsetp.lt.u32 %p1, %r1, {until};\n@%p1 bra {name};"


# x is the first word of the buffer, f the 17th
SET = "st.global.u32 [%g], 1; //!"
GET = "ld.global.u32 %r2, [%g]; //!"
F = "[%g+64]"


def passed(send: str, take: str, ctas: bool = True) -> str:
    """x is written, then a flag sent; the flag is taken, then x read."""
    return two(f"{SET}\n{send}", f"{take}\n{GET}", "cta" if ctas else "warp")


RELAXED = f"ld.relaxed.gpu.global.u32 %r1, {F};"
ACQUIRE = f"ld.acquire.gpu.global.u32 %r1, {F};"
FENCE = "fence.acq_rel.gpu;"
GIVE = f"st.relaxed.gpu.global.u32 {F}, 1;"
RELEASE = f"st.release.gpu.global.u32 {F}, 1;"
SHARE = "st.shared.u32 [%mine], %t; //!\n"
LOOK = "ld.shared.u32 %r2, [%a]; //!\n"
PRODUCE = "setp.eq.u32 %p1, %w, 1; mad.lo.u32 %a, %l, 4, %s;\n@%p1 bra TAKE;\n"


def lanes(between: str) -> str:
    """Neighbouring lanes exchange a word."""
    return other(1) + SHARE + between + "\n" + LOOK


COLLECTIVES = {
    "shfl": "shfl.sync.bfly.b32 %r3, %t, 1, 31, -1;",
    "vote": "vote.sync.ballot.b32 %r3, %one, -1;",
    "match": "match.any.sync.b32 %r3, %t, -1;",
    "redux": "redux.sync.add.u32 %r3, %t, -1;",
    "mma": "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d4, %d5}, {%d6}, {%d6}, {%d4, %d5};",
}
HALVES = """setp.lt.u32 %p1, %l, 16; selp.u32 %r3, 0xffff, 0xffff0000, %p1;
bar.warp.sync %r3;
"""
LOOP = """LOOP: and.b32 %r4, %k, {}; mad.lo.u32 %r5, %r4, 256, %mine; mad.lo.u32 %r6, %r4, 256, %a;
st.shared.u32 [%r5], %k; //!
bar.sync 0;
ld.shared.u32 %r2, [%r6]; //!
add.u32 %k, %k, 1; setp.lt.u32 %p1, %k, 4;
@%p1 bra LOOP;
"""
PARTS = """setp.ge.u32 %p1, %t, 64;
@%p1 bra HIGH;
bar.sync 1, 64;
bra ON;
HIGH: bar.sync 2, 64;
ON:
"""
WARPS = [
    Row("1 store, barrier, load", other(32) + SHARE + "bar.sync 0;\n" + LOOK),
    Row("2 no barrier", other(32) + SHARE + LOOK, "race-shared"),
    Row("3 warp sync", lanes("bar.warp.sync 0xffffffff;")),
    Row("4 nothing between lanes", lanes(""), "race-shared"),
    *(
        Row(f"5 {name} between lanes", "setp.eq.u32 %one, %l, 0; mov.b64 %d4, 0; mov.b64 %d5, 0;"
            f" mov.b64 %d6, 0;\n{lanes(text)}", "race-shared")
        for name, text in COLLECTIVES.items()
    ),
    Row("6 exchange inside a mask", lanes(HALVES)),
    Row("7 exchange between masks", other(16) + SHARE + HALVES + LOOK, "race-shared"),
    Row("8 a barrier of half a CTA", other(32) + SHARE + PARTS + LOOK, block=128),
    Row("9 exchange with the other half", other(64) + SHARE + PARTS + LOOK, "race-shared",
        block=128),
    Row("9 a warp that has ended is no part of a named barrier", """setp.eq.u32 %p1, %w, 2;
xor.b32 %r9, %t, 64; mad.lo.u32 %a, %r9, 4, %s;
@!%p1 bra OTHERS;
st.shared.u32 [%mine], %t; //!
bra END;
OTHERS: bar.sync 1, 64;
setp.eq.u32 %p1, %w, 0;
@%p1 ld.shared.u32 %r2, [%a]; //!
END:""", "race-shared", block=96),
    Row("10 arrive, sync", PRODUCE + SHARE + "bar.arrive 1, 64;\nbra END;\nTAKE: bar.sync 1, 64;\n"
        + LOOK + "END:"),
    Row("11 arrive before the store", PRODUCE + "bar.arrive 1, 64;\n" + SHARE
        + "bra END;\nTAKE: bar.sync 1, 64;\n" + LOOK + "END:", "race-shared"),
    Row("12 empty before the last read", PRODUCE + "st.shared.u32 [%mine], %t;\nbar.arrive 1, 64;\n"
        "bar.sync 2, 64;\n" + SHARE + "bra END;\nTAKE: bar.sync 1, 64;\nbar.arrive 2, 64;\n" + LOOK
        + "END:", "race-shared"),
    Row("12 empty after it", PRODUCE + "st.shared.u32 [%mine], %t;\nbar.arrive 1, 64;\n"
        "bar.sync 2, 64;\n" + SHARE + "bra END;\nTAKE: bar.sync 1, 64;\n" + LOOK
        + "bar.arrive 2, 64;\nEND:"),
    Row("13 two buffers, a barrier a round", other(32) + LOOP.format(1)),
    Row("14 one buffer, a barrier a round", other(32) + LOOP.format(0), "race-shared"),
    Row("15 bar.red", other(32) + SHARE + "setp.eq.u32 %p2, %t, 0;\nbar.red.popc.u32 %r3, 0, %p2;\n"
        + LOOK),
    Row("15 barrier.sync", other(32) + SHARE + "barrier.sync 0;\n" + LOOK),
    Row("15 barrier.red", other(32) + SHARE + "setp.eq.u32 %p2, %t, 0;\n"
        "barrier.red.or.pred %p3, 0, %p2;\n" + LOOK),
    Row("17 stores of an exited warp", "setp.eq.u32 %p1, %w, 1;\n" + other(32)
        + "@%p1 st.shared.u32 [%mine], %t;\n@%p1 bra END;\nbar.sync 0;\nld.shared.u32 %r2, [%a];\n"
        "END:"),
]  # fmt: skip

PATTERNS = [
    Row("18 fences", passed(f"{FENCE} {GIVE}", spin(RELAXED) + FENCE)),
    Row("19 fences of the CTA", passed(f"fence.acq_rel.cta; {GIVE}",
        spin(RELAXED) + "fence.acq_rel.cta;"), "race-global"),
    Row("20 flag of the CTA, x", passed(f"{FENCE} {GIVE}".replace("relaxed.gpu", "relaxed.cta"),
        spin(RELAXED.replace("gpu", "cta")) + FENCE), "race-global"),
    Row("20 flag of the CTA, f", passed(f"{FENCE}\nst.relaxed.cta.global.u32 {F}, 1; //!",
        spin(RELAXED.replace("gpu", "cta") + " //!") + FENCE).replace(SET, SET[:-3])
        .replace(GET, GET[:-3]), "race-global"),
    Row("21 no first fence", passed(GIVE, spin(RELAXED) + FENCE), "race-global"),
    Row("21 no second fence", passed(f"{FENCE} {GIVE}", spin(RELAXED)), "race-global"),
    Row("22 release, acquire", passed(RELEASE, spin(ACQUIRE))),
    Row("22 two releases in a row", two(
        f"st.global.u32 [%g+4], 1; {RELEASE} {SET}\nst.release.gpu.global.u32 {F}, 2;",
        spin(ACQUIRE, 2) + GET)),
    Row("22 a fence before the data, a release after", two(
        f"{FENCE}\n{SET}\n{RELEASE}", spin(ACQUIRE) + GET)),
    Row("22 a narrow fence after a wide one", passed(f"{FENCE} fence.acq_rel.cta; {GIVE}",
        spin(ACQUIRE))),
    Row("22 the second word of a released vector", passed(
        "st.release.gpu.global.v2.u32 [%g+64], {%k, 1};", spin(ACQUIRE.replace("64", "68")))),
    Row("22 the second word of an acquired vector", passed(RELEASE.replace("64", "68"),
        spin("ld.acquire.gpu.global.v2.u32 {%r3, %r1}, [%g+64];"))),
    Row("22 a vector of relaxed words", passed("st.relaxed.gpu.global.v2.u32 [%g+64], {%k, 1};",
        spin(ACQUIRE.replace("64", "68"))), "race-global"),
    Row("23 inside a CTA", passed(RELEASE.replace("gpu", "cta"),
        spin(ACQUIRE.replace("gpu", "cta")), False)),
    Row("24 volatile and membar", passed(f"membar.gl; st.volatile.global.u32 {F}, 1;",
        spin(f"ld.volatile.global.u32 %r1, {F};") + "membar.gl;")),
    Row("25 volatile without", passed(f"st.volatile.global.u32 {F}, 1;",
        spin(f"ld.volatile.global.u32 %r1, {F};")), "race-global"),
    Row("26 plain flag", two(f"st.global.u32 [%g], 1; {FENCE}\nst.global.u32 {F}, 1; //!",
        spin(f"ld.global.u32 %r1, {F}; //!") + FENCE), "race-global"),
    Row("27 fence after the loop only", passed(RELEASE, spin(RELAXED) + FENCE)),
    Row("30 red is no acquire", passed(f"{FENCE} {GIVE}",
        f"red.relaxed.gpu.global.add.u32 {F}, 1; {FENCE}"), "race-global"),
    Row("31 fence and red release", passed(f"{FENCE} red.relaxed.gpu.global.add.u32 {F}, 1;",
        spin(ACQUIRE))),
    Row("43 relaxed and relaxed", two("st.relaxed.gpu.global.u32 [%g], 1;",
        "ld.relaxed.gpu.global.u32 %r1, [%g];")),
    Row("44 mixed sizes", two("st.relaxed.gpu.global.u32 [%g], 1; //!",
        "ld.relaxed.gpu.global.u64 %d1, [%g]; //!"), "race-global"),
    Row("45 vectors are several", two("st.relaxed.gpu.global.u32 [%g+4], 1;",
        "ld.relaxed.gpu.global.v2.u32 {%r1, %r2}, [%g];")),
    Row("83 store buffering", two(
        f"st.relaxed.gpu.global.u32 [%g], 1; fence.sc.gpu; {RELAXED}",
        f"{GIVE} fence.sc.gpu; ld.relaxed.gpu.global.u32 %r1, [%g];")),
]  # fmt: skip

LAST = """setp.ne.u32 %p1, %t, 0; mad.wide.u32 %d1, %c, 4, %g;
@%p1 bra END;
st.global.u32 [%d1], 1; //!
{first}
atom.relaxed.gpu.global.add.u32 %r1, [%g+64], 1;
setp.ne.u32 %p1, %r1, 1;
@%p1 bra END;
{second}
xor.b32 %r3, %c, 1; mad.wide.u32 %d1, %r3, 4, %g;
ld.global.u32 %r2, [%d1]; //!
END:"""
LOCK = """setp.ne.u32 %p1, %t, 0;
@%p1 bra END;
GET: atom.{take}.gpu.global.cas.b32 %r1, [%g+64], 0, 1;
setp.ne.u32 %p1, %r1, 0;
@%p1 bra GET;
{count}
{give}
END:"""
COUNT = "ld.global.u32 %r2, [%g]; add.u32 %r2, %r2, 1; //!\nst.global.u32 [%g], %r2; //!"
OPEN = "atom.{}.gpu.global.exch.b32 %r1, [%g+64], 0;"
BLOCK = """setp.eq.u32 %p1, %c, 1; setp.ne.u32 %p2, %t, 0; mad.wide.u32 %d1, %t, 4, %g;
@%p1 bra TAKE;
st.global.u32 [%d1+512], 1; //!
{before}
@%p2 bra END;
fence.acq_rel.gpu; st.relaxed.gpu.global.u32 [%g+64], 1;
bra END;
TAKE: @%p2 bra READ;
SPIN: ld.relaxed.gpu.global.u32 %r1, [%g+64]; setp.eq.u32 %p3, %r1, 0;
@%p3 bra SPIN;
fence.acq_rel.gpu;
READ: bar.sync 0;
ld.global.u32 %r2, [%d1+512]; //!
END:"""
RELAY = """setp.eq.u32 %p1, %c, 1; setp.eq.u32 %p2, %c, 2; setp.ne.u32 %p3, %t, 0;
@%p3 bra END;
@%p1 bra B;
@%p2 bra C;
st.global.u32 [%g], 1; //!
st.release.gpu.global.u32 [%g+64], 1;
bra END;
{middle}
bra END;
C: ld.acquire.gpu.global.u32 %r1, [%g+{flag}]; setp.lt.u32 %p4, %r1, 2;
@%p4 bra C;
ld.global.u32 %r2, [%g]; //!
END:"""
CAS = "B: atom.relaxed.gpu.global.cas.b32 %r1, [%g+64], 1, 2; setp.ne.u32 %p4, %r1, 1;\n@%p4 bra B;"
MIDDLE = """B: ld.relaxed.gpu.global.u32 %r1, [%g+64]; setp.eq.u32 %p4, %r1, 0;
@%p4 bra B;
st.relaxed.gpu.global.u32 [%g+128], 2;"""
READ_FIRST = """setp.eq.u32 %p1, %c, 1; setp.eq.u32 %p2, %t, 32; setp.ne.u32 %p3, %t, 0;
@%p1 bra B;
@!%p3 ld.global.u32 %r2, [%g+64];
bar.sync 0;
@%p2 fence.acq_rel.gpu;
@%p2 st.relaxed.gpu.global.u32 [%g+64], 1;
bra END;
B: @%p3 bra END;
C: ld.relaxed.gpu.global.u32 %r1, [%g+64]; setp.eq.u32 %p4, %r1, 0;
@%p4 bra C;
atom.acquire.gpu.global.or.b32 %r1, [%g+64], 2;
END:"""
GRIDS = [
    Row("22 an acquiring atomic comes after what it acquires", READ_FIRST, grid=2),
    Row("28 relay by an atomic", RELAY.format(middle=CAS, flag=64), grid=3),
    Row("29 relay by a relaxed store", RELAY.format(middle=MIDDLE, flag=128), "race-global", 3),
    Row("32 lock", LOCK.format(take="acquire", count=COUNT, give=OPEN.format("release")), grid=2),
    Row("32 lock, plain release", LOCK.format(take="acquire", count=COUNT,
        give="st.release.gpu.global.b32 [%g+64], 0;"), grid=2),
    Row("33 relaxed lock", LOCK.format(take="relaxed", count=COUNT, give=OPEN.format("relaxed")),
        "race-global", 2),
    Row("34 lock without release", LOCK.format(take="acquire", count=COUNT,
        give="st.relaxed.gpu.global.b32 [%g+64], 0;"), "race-global", 2),
    Row("35 last block", LAST.format(first=FENCE, second=FENCE), grid=2),
    Row("36 no first fence", LAST.format(first="", second=FENCE), "race-global", 2),
    Row("37 no second fence", LAST.format(first=FENCE, second=""), "race-global", 2),
    Row("38 one thread signals for the CTA", BLOCK.format(before="bar.sync 0;"), grid=2),
    Row("39 no barrier before it", BLOCK.format(before=""), "race-global", 2),
    Row("40 reductions", "red.relaxed.gpu.global.add.u32 [%g], 1;", grid=3),
    Row("40 atomics of the default scope", "atom.global.add.u32 %r1, [%g], 1;", grid=3),
    Row("41 reductions of CTA scope", "red.relaxed.cta.global.add.u32 [%g], 1; //!", "race-global",
        2),
    Row("42 atomic and plain load", two("red.relaxed.gpu.global.add.u32 [%g], 1; //!", GET),
        "race-global", 2),
    Row("84 membar on both sides, no flag", two(f"{SET}\nmembar.gl;", f"membar.gl;\n{GET}"),
        "race-global", 2),
]  # fmt: skip

BYTES = [
    Row("46 neighbouring bytes", "cvt.u64.u32 %d1, %t; add.u64 %d1, %d1, %g;\n"
        "st.global.u8 [%d1], %h;"),
    Row("47 byte and word", "setp.eq.u32 %p1, %t, 0; setp.eq.u32 %p2, %t, 32;\n"
        "@%p1 st.shared.u8 [%s+1], %h; //!\n@%p2 st.shared.u32 [%s], %t; //!", "race-shared"),
    Row("48 the same value", "st.shared.u32 [%s], 7; //!\nbar.sync 0;\nld.shared.u32 %r2, [%s];",
        advice=True),
    Row("48 and an unordered read", "st.shared.u32 [%s], 7; //!\nld.shared.u32 %r2, [%s]; //!",
        "race-shared"),
    Row("48 the same value, one of them strong", two("st.relaxed.gpu.global.u32 [%g], 7; //!",
        "st.global.u32 [%g], 7; //!"), grid=2, advice=True),
    Row("49 different values", "st.shared.u32 [%s], %t; //!", "race-shared"),
    Row("50 histogram by load and store", "and.b32 %r3, %t, 3; mad.lo.u32 %a, %r3, 4, %s;\n"
        "ld.shared.u32 %r2, [%a]; add.u32 %r2, %r2, 1; //!\nst.shared.u32 [%a], %r2; //!",
        "race-shared"),
    Row("51 histogram by red", "and.b32 %r3, %t, 3; mad.lo.u32 %a, %r3, 4, %s;\n"
        "st.shared.u32 [%mine], 0;\nbar.sync 0;\nred.shared.add.u32 [%a], 1;\nbar.sync 0;\n"
        "ld.shared.u32 %r2, [%mine];"),
    Row("52 zeroing not separated", "and.b32 %r3, %t, 3; mad.lo.u32 %a, %r3, 4, %s;\n"
        "st.shared.u32 [%mine], 0; //!\nred.shared.add.u32 [%a], 1; //!", "race-shared"),
    Row("78 non-coherent load", other(32) + "mad.wide.u32 %d1, %r9, 4, %g;\n"
        "st.global.u32 [%place], %t; //!\nbar.sync 0;\nld.global.nc.u32 %r2, [%d1]; //!",
        "nc-coherence"),
]  # fmt: skip

COPY = "cp.async.ca.shared.global [%mine], [%place], 4; //!\ncp.async.commit_group;\n"
COPIES = [
    Row("53 own bytes", COPY + "cp.async.wait_group 0;\nld.shared.u32 %r2, [%mine];"),
    Row("53 and others after a barrier", other(32) + COPY + "cp.async.wait_all;\nbar.sync 0;\n"
        + LOOK),
    Row("54 others without a barrier", other(32) + COPY + "cp.async.wait_group 0;\n" + LOOK,
        "race-shared async-race"),
    Row("55 barrier without a wait", other(32) + COPY + "bar.sync 0;\n" + LOOK, "async-race"),
    Row("56 waits for too few groups", COPY + "cp.async.wait_group 1;\n"
        "ld.shared.u32 %r2, [%mine]; //!", "async-race"),
    Row("56 a newer group is in flight", COPY + COPY.replace("%mine", "%mine+1024")
        .replace(" //!", "") + "cp.async.wait_group 1;\nld.shared.u32 %r2, [%mine];"),
    Row("57 source overwritten", COPY + "st.global.u32 [%place], 5; //!\ncp.async.wait_all;",
        "async-race"),
    Row("57 source overwritten after the wait", COPY + "cp.async.wait_all;\n"
        "st.global.u32 [%place], 5;"),
]  # fmt: skip


def alone(lane: int, what: str) -> str:
    return f"setp.eq.u32 %p1, %t, {lane}; @%p1 {what}\n"


def meet(mask: int) -> str:
    """These lanes of the first warp meet."""
    in_ = f"shr.u32 %r3, {mask}, %l; and.b32 %r3, %r3, 1; setp.eq.u32 %p1, %r3, 1;"
    return f"{in_} setp.eq.and.u32 %p1, %w, 0, %p1; @%p1 bar.warp.sync {mask};\n"


NARROW = {
    "read": ("ld.relaxed.cta.global.u32 %r1, [%g];", "ld.relaxed.gpu.global.u32 %r1, [%g];"),
    "write": ("st.relaxed.cta.global.u32 [%g], 1;", "st.relaxed.gpu.global.u32 [%g], %t;"),
    "red": ("red.relaxed.cta.global.add.u32 [%g], 1;", "red.relaxed.gpu.global.add.u32 [%g], 1;"),
}
LONG = ("ld.relaxed.gpu.global.u64 %d1, [%g];", "st.relaxed.gpu.global.u64 [%g], 7;")
SHORT = ("ld.relaxed.gpu.global.u32 %r1, [%g];", "st.relaxed.gpu.global.u32 [%g], 3;")
WIDE_WRITE = "st.relaxed.gpu.global.u32 [%g], 5;"
#: A strong access does not stand for older ones that are morally strong with fewer.
MIXED = [
    *(
        Row(f"20 a {name} of CTA scope, then one of all", two(f"{narrow} //!\n{wide}",
            f"{WIDE_WRITE} //!"), "race-global")
        for name, (narrow, wide) in NARROW.items()
    ),
    *(
        Row(f"20 three {name}s, one of CTA scope", "mad.lo.u32 %t, %c, 96, %t;\n" + "".join(
                alone(k, narrow + " //!" if k == late else wide) for k in (0, 33, 66)
            ) + alone(96, f"{WIDE_WRITE} //!"), "race-global", 2, 96)
        for name, (narrow, wide) in NARROW.items() for late in (0, 33, 66)
    ),
    *(
        Row(f"44 {long.split('.')[0]} of eight bytes, then of four", two(
            f"{long} //!\n{short}", f"{WIDE_WRITE} //!"), "race-global")
        for long, short in zip(LONG, SHORT, strict=True)
    ),
]  # fmt: skip

#: Of three accesses to one place, one is unordered with the next: whichever it is.
THREE = [
    *(
        Row(f"reads by lanes {lanes}",
            "".join(alone(k, "ld.global.u32 %r2, [%g];" + " //!" * (k == 2)) for k in lanes)
            + meet(0b1011) + alone(3, "st.global.u32 [%g], 5; //!"), "race-global")
        for lanes in permutations(range(3))
    ),
    *(
        Row(f"{first} by lanes 0 to 2 but not {left}",
            f"setp.lt.u32 %p1, %t, 3; @%p1 {first} //!\n" + meet(0b1111 - (1 << left))
            + alone(3, f"{second} //!"), "race-shared")
        for left in range(3)
        for first, second in (
            ("ld.shared.u32 %r2, [%s];", "st.shared.u32 [%s], 5;"),
            ("st.shared.u32 [%s], 7;", "ld.shared.u32 %r2, [%s];"),
        )
    ),
    *(
        Row(f"copies by lanes {lanes}, of which one is not waited for",
            "".join(
                alone(k, "cp.async.ca.shared.global [%mine], [%g], 4;" + " //!" * (at == 2))
                + "cp.async.commit_group;\n" * (at > 0)
                for at, k in enumerate(lanes)
            ) + "cp.async.wait_group 1;\nbar.sync 0;\n" + alone(3, "st.global.u32 [%g], 5; //!"),
            "async-race")
        for lanes in permutations(range(3))
    ),
]  # fmt: skip
ROWS = [*WARPS, *PATTERNS, *GRIDS, *BYTES, *COPIES, *MIXED, *THREE]


def launch(row: Row, schedule: str = "default") -> tuple[ptxsim.Report, set[int]]:
    """Run a row; its report and the marked lines."""
    body = row.body
    text = HEAD + body + "\nret;\n}\n"
    grid = 2 if row.grid == 1 and "%one, %c" in body else row.grid
    kernel = ptxsim.assemble(text).kernel()
    report = kernel.launch(
        grid=grid,
        block=row.block,
        args=[np.zeros(1024, np.uint32)],
        schedule=schedule,
        max_instructions=50_000,
    )
    marked = {n for n, line in enumerate(text.splitlines(), 1) if "//!" in line}
    return report, marked


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_pattern(row: Row) -> None:
    for schedule in SCHEDULES:
        report, marked = launch(row, schedule)
        errors = [f for f in report.findings if f.severity is Severity.ERROR]
        if row.verdict == "clean":
            assert not errors, schedule
            assert row.advice == any(f.class_ == "same-value-write" for f in report.findings)
            continue
        assert {f.class_ for f in errors} <= set(row.verdict.split()), schedule
        if row.name.startswith("84"):  # some order of the fences hides it
            errors = [f for f in report.findings if f.severity is Severity.WARNING] or errors
        pairs = [{f.line, f.other_line or f.line} for f in errors]
        assert marked in pairs or (len(pairs) > 1 and set().union(*pairs) == marked), schedule


def test_a_warp_that_goes_one_round_less() -> None:
    """Row 16: its second barrier is the others' first of another number."""
    row = Row("16", "setp.eq.u32 %p1, %w, 0;\nbar.sync 0;\n@!%p1 bra ONCE;\nbar.sync 0;\nONCE:\n"
              "bar.sync 1;")  # fmt: skip
    for schedule in SCHEDULES:
        assert launch(row, schedule)[0].verdict in ("deadlock", "barrier-divergence")


def test_a_finding_counts_all_lanes_that_race() -> None:
    """Ten thousand threads that read what others write are one finding, for each way round."""
    body = "ld.global.u32 %r2, [%g]; //!\nst.global.u32 [%g], %t; //!"
    report, marked = launch(Row("many", body, grid=40, block=256))
    load, store = sorted(marked)
    found = {(f.line, f.other_line): f for f in report.findings}
    assert set(found) <= {(store, load), (store, store), (load, store)}
    assert found[store, load].count >= 40 * 256 - 1
    assert len(found[store, load].ctas) == 8
    assert len(report.findings) <= 3


def test_ten_thousand_lanes_at_one_place() -> None:
    """All that they did is kept, since fence.sc may order them: one finding, and little memory."""
    body = "st.global.u32 [%g], %t; //!\nmembar.gl;\nst.global.u32 [%g], %t; //!"
    report, marked = launch(Row("many", body, grid=40, block=256))
    first, second = sorted(marked)
    found = {(f.line, f.other_line): f.class_ for f in report.findings}
    assert found[first, first] == "race-global"
    assert set(found) <= {(first, first), (second, first), (second, second)}


def _only(name: str) -> ptxsim.Report:
    (row,) = (row for row in ROWS if row.name == name)
    return launch(row)[0]


ALL = tuple(range(32))


def test_text_of_a_race_in_shared_memory() -> None:
    (f,) = _only("2 no barrier").findings
    assert (f.class_, f.code, f.severity) == ("race-shared", "PTX310", Severity.ERROR)
    assert f.message == (
        "read by 'ld.shared.u32' is not ordered with the write by 'st.shared.u32' at line 16"
    )
    assert f.help == "put a barrier (bar.sync) between the two accesses"
    assert (f.line, f.other_line, f.count, f.address, f.space) == (17, 16, 64, 128, "shared")
    assert (f.warp, f.lanes, f.ctas) == (0, ALL, ((0, 0, 0),))
    assert (f.other_warp, f.other_lanes, f.other_cta) == (1, ALL, (0, 0, 0))
    assert f.ordering == "nothing since the start of the kernel orders them"


def test_text_of_a_race_between_lanes() -> None:
    (f,) = _only("4 nothing between lanes").findings
    assert f.help == "put 'bar.warp.sync' between the two accesses"
    assert (f.warp, f.other_warp, f.address) == (0, 0, 4)


def test_text_of_a_race_in_global_memory() -> None:
    (f,) = _only("21 no first fence").findings
    assert (f.class_, f.code) == ("race-global", "PTX311")
    assert f.message == (
        "read by 'ld.global.u32' is not ordered with the write by 'st.global.u32' at line 22"
    )
    assert f.help == (
        "order the CTAs: a release at gpu scope after the first access, an acquire before the"
        " second, or an atomic"
    )
    assert (f.line, f.other_line, f.count, f.space) == (29, 22, 1, "global")
    assert (f.ctas, f.warp, f.lanes) == (((1, 0, 0),), 0, (0,))
    assert (f.other_cta, f.other_warp, f.other_lanes) == ((0, 0, 0), 0, (0,))


def test_text_of_a_race_with_a_copy() -> None:
    (f,) = _only("55 barrier without a wait").findings
    assert f.message == (
        "'ld.shared.u32' reads what an asynchronous copy of line 16 may not have completed yet"
    )
    assert f.help == (
        "wait with cp.async.wait_group 0 or less before the access: 0 newer groups were committed"
        " since"
    )
    assert (f.line, f.other_line, f.count, f.address) == (19, 16, 64, 128)
    assert (f.warp, f.lanes, f.other_warp, f.other_lanes) == (0, ALL, 1, ALL)
    assert (f.ordering, f.ordering_line) == ("last ordered by 'bar.sync' at line 18", 18)


def test_text_of_equal_values() -> None:
    (f,) = _only("48 the same value").findings
    assert (f.class_, f.severity) == ("same-value-write", Severity.WARNING)
    assert f.message == ("threads write the same value by 'st.shared.u32' and line 15, in no order")
    assert f.help == "let one thread write, or use a relaxed store"
    assert (f.line, f.other_line, f.count, f.address) == (15, 15, 63, 0)


def test_text_of_a_load_past_the_coherent_path() -> None:
    (f,) = _only("78 non-coherent load").findings
    assert (f.class_, f.code) == ("nc-coherence", "PTX314")
    assert f.message == (
        "'ld.global.nc.u32' reads by the non-coherent path what the kernel writes at line 17"
    )
    assert f.help == "load it without .nc: the read-only path may hold older data"
    assert (f.line, f.other_line, f.count) == (19, 17, 64)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("barrier", "verdict"), [("1", "barrier-args"), ("%r1", "clean")])
def test_two_groups_at_one_barrier(barrier: str, verdict: str, schedule: str) -> None:
    """Warps 0 and 1, and warps 2 and 3, meet; with one barrier 0 may meet 2."""
    body = f"shr.u32 %r1, %t, 6; add.u32 %r1, %r1, 1;\nbar.sync {barrier}, 64;"
    report, _ = launch(Row("two groups", body, block=128), schedule)
    assert report.verdict == verdict


def test_a_wait_for_bulk_groups_without_a_copy() -> None:
    """A thread that has no bulk copy of its own may wait all the same."""
    text = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k() { cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ret; }
"""
    assert ptxsim.assemble(text).kernel().launch(grid=1, block=32).clean

"""Undefined bits are followed, and reported where they matter: each case with its harmless twin.

The conftest's kernel has ``%t`` = tid and 32 lanes; ``%r20`` is never written, ``%in`` points to
64 words and ``%mine`` to the lane's own word of the output.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ptxsim
from ptxsim.diagnostics import Severity

from .conftest import SCHEDULES

SHARED = ".shared .align 16 .b32 s[64];"
LANES = tuple(range(32))
#: %r10 = address of the lane's own word of s
OWN = "    shl.b32 %r10, %t, 2; mov.u32 %r11, s; add.u32 %r10, %r10, %r11;\n"


def _only(report: ptxsim.Report) -> Any:
    (finding,) = report.findings
    return finding


# --- where it matters -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "use",
    [
        "st.global.u32 [%mine], %r20;",
        "cvt.u64.u32 %rd1, %r20; add.u64 %rd1, %rd1, %in; ld.global.u32 %r1, [%rd1];",
        "add.u32 %r1, %r20, %r11; st.shared.u32 [%r1], 0;",
        "setp.eq.u32 %p1, %r20, 0; @%p1 bra X;\nX:",
        "setp.eq.u32 %p1, %r20, 0; @%p1 mov.u32 %r1, 0;",
        "setp.eq.u32 %p1, %r20, 0; @!%p1 st.shared.u32 [%r11], 0;",
        "and.b32 %r1, %r20, 1; X: .branchtargets A, B; brx.idx %r1, X; A: B:",
        "and.b32 %r1, %r20, 1; bar.sync %r1;",
        "setp.eq.u32 %p1, %r20, 0; bar.red.popc.u32 %r1, 0, %p1;",
        "vote.sync.ballot.b32 %r1, %p5, -1;",
        "match.any.sync.b32 %r1, %r20, -1;",
        "redux.sync.add.u32 %r1, %r20, -1;",
        "shfl.sync.idx.b32 %r1, %t, %r20, 31, -1;",
        "red.global.add.u32 [%mine], %r20;",
        "atom.global.exch.b32 %r1, [%mine], %r20;",
        "atom.global.cas.b32 %r1, [%mine], 0, %r20;",
        "movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r20;",
        "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r1, %r2}, {%r20}, {%t}, {%t, %t};",
        "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r1, %r2}, {%t}, {%r20}, {%t, %t};",
        "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r1, %r2}, {%t}, {%t}, {%t, %r20};",
    ],
)
def test_it_matters_here(run: Any, use: str) -> None:
    report, _ = run("    mov.u32 %r11, s;\n    " + use, declare=SHARED)
    finding = report.findings[0]
    assert (finding.class_, finding.lanes) == ("uninit-register", LANES)
    name = "%p5" if "%p5" in use else "%r20"
    assert f"register {name}" in finding.message or f"on {name}" in finding.message
    # with the register written nothing is left
    clean = "    mov.u32 %r20, 0; setp.eq.u32 %p5, %t, 0;\n    mov.u32 %r11, s;\n    " + use
    assert run(clean, declare=SHARED)[0].verdict == "clean"


@pytest.mark.parametrize(
    "use",
    [
        "add.u32 %r1, %r20, 1; mul.hi.u32 %r2, %r1, %r20;",
        "st.shared.u32 [%r11], %r20;",
        "st.local.u32 [v], %r20;",
        "st.shared.u32 [%r10], %r20; ld.shared.u32 %r1, [%r10];",
        "shfl.sync.bfly.b32 %r1, %r20, 1, 31, -1;",
        "ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%r11];",
        "ld.local.u32 %r1, [v];",
        "red.shared.add.u32 [%r11], %r20;",
        "mov.b64 %rd1, {%r20, %r20};",
        "prefetch.global.L1 [%rd15];",
    ],
)
def test_it_does_not_matter_here(run: Any, use: str) -> None:
    declare = SHARED + ".local .b32 v;"
    assert run(OWN + "    " + use, declare=declare)[0].verdict == "clean"


@pytest.mark.parametrize("guard", ["@%p5", "@!%p5", "@ ! %p5"])
def test_the_column_of_a_guarded_instruction(run: Any, guard: str) -> None:
    """A statement begins at the @ of its guard."""
    finding = _only(run(f"  {guard} st.global.u32 [%mine], %t;")[0])
    assert finding.column == 3


def test_the_line_of_the_use_and_the_lanes(run: Any) -> None:
    body = (
        "    setp.lt.u32 %p1, %t, 4;\n    @%p1 mov.u32 %r20, 1;\n    st.global.u32 [%mine], %r20;"
    )
    finding = _only(run(body)[0])
    assert finding.lanes == tuple(range(4, 32))
    assert finding.other_line is None
    body = body.replace("    st.global", "    @%p1 st.global")
    assert run(body)[0].verdict == "clean"


@pytest.mark.parametrize(
    ("make", "bits"),
    [
        ("mov.u32 %r1, %r20;", None),  # all of them
        ("and.b32 %r1, %r20, 0xf0;", "0x000000f0"),
        ("shl.b32 %r1, %r20, 24;", "0xff000000"),
        ("mov.b32 {%rs1, %rs2}, %r20; mov.u16 %rs1, 0; mov.b32 %r1, {%rs1, %rs2};", "0xffff0000"),
    ],
)
def test_bits_that_are_undefined(run: Any, make: str, bits: str | None) -> None:
    body = f"    .reg .b16 %rs1, %rs2;\n    {make}\n    st.global.u32 [%mine], %r1;"
    finding = _only(run(body)[0])
    assert finding.values.get("undefined_bits") == bits
    assert finding.message == (
        "'st.global.u32' writes what comes from register %r20, which was never written"
    )


def test_bits_of_a_wide_register(run: Any) -> None:
    body = """
    mov.b64 %rd1, {%t, %r20};
    add.u64 %rd1, %rd1, %in;
    ld.global.u32 %r1, [%rd1];"""
    # a sum is undefined from the lowest undefined bit upwards
    assert run(body)[0].findings[0].values["undefined_bits"] == "0xffffffff00000000"


# --- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("space", "place"), [("shared", "%r10"), ("local", "v")])
def test_a_load_is_named_when_its_value_matters(run: Any, space: str, place: str) -> None:
    declare = SHARED + ".local .b32 v;"
    load = OWN + f"    ld.{space}.u32 %r1, [{place}];\n"
    assert run(load, declare=declare)[0].verdict == "clean"
    use = "    add.u32 %r2, %r1, 1;\n    st.global.u32 [%mine], %r2;"
    finding = _only(run(load + use, declare=declare)[0])
    assert (finding.class_, finding.space) == (f"uninit-{space}", space)
    assert (finding.other_line, finding.lanes) == (finding.line + 2, LANES)
    store = f"    st.{space}.u32 [{place}], %t;\n"
    report, out = run(load.replace("    ld", store + "    ld") + use, declare=declare)
    assert (report.verdict, out[5]) == ("clean", 6)


def test_the_address_is_that_of_the_byte(run: Any) -> None:
    body = """
    setp.eq.u32 %p7, %t, 0;
    @%p7 st.shared.u8 [s+4], %t; @%p7 st.shared.u16 [s+6], %t;
    bar.warp.sync -1;
    ld.shared.u32 %r1, [s+4];
    st.global.u32 [%mine], %r1;"""
    assert _only(run(body, declare=SHARED)[0]).address == 5


def test_a_vector_whose_padding_is_not_used(run: Any) -> None:
    body = """
    setp.eq.u32 %p7, %t, 0;
    @%p7 st.shared.v2.u32 [s], {%t, %t};
    bar.warp.sync -1;
    ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [s];
    add.u32 %r1, %r1, %r2;
    st.global.u32 [%mine], %r1;"""
    assert run(body, declare=SHARED)[0].verdict == "clean"
    used = body.replace("%r1, %r1, %r2;", "%r1, %r1, %r3;")
    assert _only(run(used, declare=SHARED)[0]).class_ == "uninit-shared"


def test_bytes_of_a_word(run: Any) -> None:
    body = """
    setp.eq.u32 %p7, %t, 0;
    @%p7 st.shared.u8 [s+1], %t;
    bar.warp.sync -1;
    ld.shared.u32 %r1, [s];
    bfe.u32 %r1, %r1, {}, 8;
    st.global.u32 [%mine], %r1;"""
    assert run(body.format(8), declare=SHARED)[0].verdict == "clean"
    assert run(body.format(9), declare=SHARED)[0].verdict == "uninit-shared"


@pytest.mark.parametrize("space", ["shared", "local"])
def test_undefined_bits_pass_through_memory(run: Any, space: str) -> None:
    """The copy of padding is no finding; its use names the register that it came from."""
    declare = f".{space} .align 8 .b8 v[256];"
    lane = (
        "shl.b32 %r1, %t, 3; mov.u32 %r2, v; add.u32 %r1, %r1, %r2;"
        if space == "shared"
        else ("mov.u32 %r1, v;")
    )
    body = f"""
    {lane}
    st.{space}.v2.u32 [%r1], {{%t, %r20}};
    ld.{space}.u64 %rd1, [%r1];
    mov.b64 {{%r3, %r4}}, %rd1;
    st.global.u32 [%mine], %r3;"""
    report, out = run(body, declare=declare)
    assert (report.verdict, out[7]) == ("clean", 7)
    finding = _only(run(body.replace("[%mine], %r3", "[%mine], %r4"), declare=declare)[0])
    assert (finding.class_, "%r20" in finding.message) == ("uninit-register", True)


def test_written_again_by_a_defined_store(run: Any) -> None:
    body = OWN + "    st.shared.u32 [%r10], %r20;\n    st.shared.u32 [%r10], %t;\n"
    body += "    ld.shared.u32 %r1, [%r10];\n    st.global.u32 [%mine], %r1;"
    assert run(body, declare=SHARED)[0].verdict == "clean"


def test_a_complete_array_becomes_incomplete_again(run: Any) -> None:
    """All of it is written, which is noticed, and then undefined bits are stored."""
    loop = (
        OWN
        + """
    st.shared.u32 [%r10], %t; st.shared.u32 [%r10+128], %t;
    mov.u32 %r1, 0;
AGAIN:
    ld.shared.u32 %r2, [%r10];
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p1, %r1, 40;
    @%p1 bra AGAIN;
    {}
    ld.shared.u32 %r2, [%r10];
    st.global.u32 [%mine], %r2;"""
    )
    assert run(loop.format(""), declare=SHARED)[0].verdict == "clean"
    report, _ = run(loop.format("st.shared.u32 [%r10], %r20;"), declare=SHARED)
    assert _only(report).class_ == "uninit-register"


def test_atomics_of_shared_memory(run: Any) -> None:
    body = """
    {}
    red.shared.add.u32 [s], 1;
    bar.warp.sync -1; ld.shared.u32 %r1, [s];
    st.global.u32 [%mine], %r1;"""
    finding = _only(run(body.format(""), declare=SHARED)[0])
    assert (finding.class_, "red.shared" in finding.message) == ("uninit-shared", False)
    assert finding.other_line == finding.line + 2  # the sum was spoilt by the reduction
    zero = "setp.eq.u32 %p7, %t, 0; @%p7 st.shared.u32 [s], 0; bar.warp.sync -1;"
    assert run(body.format(zero), declare=SHARED)[0].verdict == "clean"
    exchange = body.format("").replace("red.shared.add.u32", "atom.shared.exch.b32 %r2,")
    assert run(exchange, declare=SHARED)[0].verdict == "clean"
    used = exchange.replace("[%mine], %r1", "[%mine], %r2")
    assert _only(run(used, declare=SHARED)[0]).class_ == "uninit-shared"


def test_atomics_of_global_memory(run: Any) -> None:
    out = ptxsim.undefined(32, np.uint32)
    finding = _only(run("    red.global.add.u32 [%mine], 1;", out=out)[0])
    assert (finding.class_, finding.other_line) == ("uninit-global", None)
    out = ptxsim.undefined(32, np.uint32)
    assert run("    atom.global.exch.b32 %r1, [%mine], 1;", out=out)[0].verdict == "clean"


def test_bytes_of_a_buffer(run: Any) -> None:
    body = """
    mad.wide.u32 %rd1, %t, 4, %in;
    ld.global.u32 %r1, [%rd1];
    setp.lt.u32 %p1, %t, 8;
    selp.u32 %r1, 0, %r1, %p1;
    st.global.u32 [%mine], %r1;"""
    finding = _only(run(body, data=ptxsim.undefined(64, np.uint32))[0])
    assert (finding.class_, finding.lanes) == ("uninit-global", tuple(range(8, 32)))
    assert "reads byte 32 of 'in_p', which was never written" in finding.message
    body = body.replace("%t, 8", "%t, 32")
    assert run(body, data=ptxsim.undefined(64, np.uint32))[0].verdict == "clean"


def test_generic_addresses_of_three_spaces(run: Any) -> None:
    """Every third lane reads from one of the spaces; each says where its bits are from."""
    declare = ".shared .b32 s[32]; .local .b32 v[1];"
    body = """
    shl.b32 %r1, %t, 2; cvt.u64.u32 %rd1, %r1;
    mov.u64 %rd2, s; cvta.shared.u64 %rd2, %rd2; add.u64 %rd2, %rd2, %rd1;
    mov.u64 %rd3, v; cvta.local.u64 %rd3, %rd3;
    add.u64 %rd4, %in, %rd1;
    rem.u32 %r2, %t, 3;
    setp.eq.u32 %p1, %r2, 0; setp.eq.u32 %p2, %r2, 1;
    selp.b64 %rd5, %rd2, %rd3, %p2; selp.b64 %rd5, %rd4, %rd5, %p1;
    {}
    ld.u32 %r3, [%rd5];
    st.global.u32 [%mine], %r3;"""
    data = ptxsim.undefined(64, np.uint32)
    report, _ = run(body.format(""), declare=declare, data=data)
    assert {f.class_: f.lanes for f in report.findings} == {
        "uninit-global": LANES[0::3], "uninit-shared": LANES[1::3], "uninit-local": LANES[2::3],
    }  # fmt: skip
    assert {f.class_: f.address for f in report.findings if f.space != "global"} == {
        "uninit-shared": 4, "uninit-local": 0,
    }  # fmt: skip
    data = ptxsim.undefined(64, np.uint32)
    stored = run(body.format("st.u32 [%rd5], %t;"), declare=declare, data=data)[0]
    assert stored.verdict == "clean"
    data = ptxsim.undefined(64, np.uint32)
    report, _ = run(body.format("st.u32 [%rd5], %r20;"), declare=declare, data=data)
    # in global memory the store is told, in the others the use of what was stored
    shared_or_local = tuple(lane for lane in LANES if lane % 3)
    assert {f.line: (f.class_, f.lanes) for f in report.findings} == {
        report.findings[0].line: ("uninit-register", LANES[0::3]),
        report.findings[0].line + 2: ("uninit-register", shared_or_local),
    }


def test_registers_of_128_bits() -> None:
    text = """.version 8.3
.target sm_70
.address_size 64
.visible .entry k(.param .u64 out_p)
{
    .reg .b128 %q<3>; .reg .b64 %d<8>, %out; .shared .align 16 .b8 s[32];
    ld.param.u64 %out, [out_p];
    mov.b64 %d1, 5;
    mov.b128 %q1, {%d1, %d2};
    st.shared.b128 [s], %q1;
    ld.shared.b128 %q2, [s];
    mov.b128 {%d3, %d4}, %q2;
    st.global.b64 [%out], %d3;
}
"""
    for source, classes in ((text, []), (text.replace("%out], %d3", "%out], %d4"), [True])):
        out = np.zeros(1, np.uint64)
        report = ptxsim.assemble(source).kernel().launch(grid=1, block=1, args=[out])
        assert ["%d2" in f.message for f in report.findings] == classes


# --- rules, in words (bit for bit in test_definedness_properties) ---------------------------------

#: %r1 has an undefined high half, %p1 is %t < 32, %p2 is undefined
MIXED = """
    .reg .b16 %h<4>;
    cvt.u16.u32 %h1, %t; mov.b32 %r1, {%h1, %h2};
    setp.lt.u32 %p1, %t, 32; setp.eq.u32 %p2, %r20, 0; mov.u32 %r2, 0;
"""


@pytest.mark.parametrize(
    ("defined", "undefined"),
    [
        ("cvt.u32.u16 %r3, %r1;", "cvt.u32.u8 %r3, %r20;"),
        ("cvt.s32.s16 %r3, %r1;", "mov.b32 %r3, %r1;"),
        ("and.b32 %r3, %r1, 0xffff;", "and.b32 %r3, %r1, 0x1ffff;"),
        ("or.b32 %r3, %r1, 0xffff0000;", "or.b32 %r3, %r1, 0xfffe0000;"),
        ("and.b32 %r3, %r20, %r2;", "and.b32 %r3, %r20, %t;"),
        ("lop3.b32 %r3, %r1, %t, %r20, 0xcc;", "lop3.b32 %r3, %r1, %t, %r20, 0xca;"),
        ("shl.b32 %r3, %r1, 16;", "shl.b32 %r3, %r1, 15;"),
        ("shl.b32 %r3, %r1, 16;", "shl.b32 %r3, %t, %r20;"),
        ("prmt.b32 %r3, %r1, %t, 0x1010;", "prmt.b32 %r3, %r1, %t, 0x1210;"),
        ("bfe.u32 %r3, %r1, 4, 12;", "bfe.u32 %r3, %r1, 4, 13;"),
        ("add.u32 %r3, %r1, 5; cvt.u32.u16 %r3, %r3;", "add.u32 %r3, %r1, 5;"),
        ("selp.b32 %r3, %t, %r20, %p1;", "selp.b32 %r3, %r20, %t, %p1;"),
        ("selp.b32 %r3, %t, %t, %p2;", "selp.b32 %r3, %t, %r2, %p2;"),
        ("slct.b32.s32 %r3, %t, %r20, %r2;", "slct.b32.s32 %r3, %t, %r2, %r1;"),
        ("setp.lt.u32 %p3, %r1, 0; selp.u32 %r3, 1, 0, %p3;",
         "setp.lt.u32 %p3, %r1, 65536; selp.u32 %r3, 1, 0, %p3;"),
        ("mov.b32 {%h3, _}, %r1; cvt.u32.u16 %r3, %h3;",
         "mov.b32 {_, %h3}, %r1; cvt.u32.u16 %r3, %h3;"),
        ("add.f16x2 %r3, %r1, %t; and.b32 %r3, %r3, 0xffff;", "add.f16x2 %r3, %r1, %t;"),
        ("fma.rn.f16x2 %r3, %r1, %r1, %r1; cvt.u32.u16 %r3, %r3;",
         "fma.rn.f16x2 %r3, %r1, %t, %r1; shr.u32 %r3, %r3, 15;"),
        ("cvt.rn.f16x2.f32 %r3, %r1, %t; and.b32 %r3, %r3, 0xffff;",
         "cvt.rn.f16x2.f32 %r3, %r1, %t; shr.u32 %r3, %r3, 16;"),
        ("xor.b32 %r3, %r20, %r20;", "xor.b32 %r3, %r20, %t;"),
        ("xor.b32 %r3, %r20, %r20;", "xor.b32 %r3, %r20, %r21;"),
        ("sub.s32 %r3, %r20, %r20;", "sub.f32 %r3, %r20, %r20;"),
        ("and.b32 %r3, %r1, %r1; cvt.u32.u16 %r3, %r3;", "and.b32 %r3, %r1, %r1;"),
        ("setp.eq.u32 %p3, %r20, %r20; selp.u32 %r3, 1, 0, %p3;",
         "setp.eq.f32 %p3, %r20, %r20; selp.u32 %r3, 1, 0, %p3;"),
        ("setp.ne.and.s32 %p3, %r20, %r20, %p2; selp.u32 %r3, 1, 0, %p3;",
         "setp.eq.and.s32 %p3, %r20, %r20, %p2; selp.u32 %r3, 1, 0, %p3;"),
        ("mul.lo.u32 %r3, %r20, 0;", "mul.lo.u32 %r3, %r20, 2;"),
        ("mul.lo.u32 %r3, %r20, 4; and.b32 %r3, %r3, 3;",
         "mul.lo.u32 %r3, %r20, 2; and.b32 %r3, %r3, 3;"),
        ("mul.hi.u32 %r3, %r20, %r2;", "mul.hi.u32 %r3, %r20, %t;"),
        ("mad.lo.u32 %r3, %r20, 0, %t;", "mad.lo.u32 %r3, 0, %t, %r20;"),
        ("mul.wide.s32 %rd1, %r20, 0; cvt.u32.u64 %r3, %rd1;",
         "mul.wide.s32 %rd1, %r20, 1; cvt.u32.u64 %r3, %rd1;"),
        ("or.b32 %r3, %r20, -1;", "or.b32 %r3, %r20, 0x7fffffff;"),
        ("mov.u32 %r3, %r20; mov.u32 %r3, 1;", "mov.u32 %r3, 1; mov.u32 %r3, %r20;"),
        ("@%p1 mov.u32 %r3, 1;", "@!%p1 mov.u32 %r3, 1;"),
        ("mov.u32 %r3, %r20; @%p1 mov.u32 %r3, 1;", "mov.u32 %r3, 1; @%p1 mov.u32 %r3, %r20;"),
        ("and.pred %p3, %p2, !%p1; selp.u32 %r3, 1, 0, %p3;",
         "and.pred %p3, %p2, %p1; selp.u32 %r3, 1, 0, %p3;"),
    ],
)  # fmt: skip
def test_a_rule_and_its_twin(run: Any, defined: str, undefined: str) -> None:
    store = "\n    st.global.u32 [%mine], %r3;"
    assert run(MIXED + "    " + defined + store)[0].verdict == "clean"
    report, _ = run(MIXED + "    " + undefined + store)
    assert report.verdict == "uninit-register"
    # tid is zero in lane 0, which decides some results
    assert report.findings[0].lanes in (LANES, LANES[1:])


def test_a_wide_store_of_a_narrow_value(run: Any) -> None:
    """Only the low bits of a register are stored."""
    body = MIXED + "    st.global.u16 [%mine], %r1;"
    assert run(body)[0].verdict == "clean"
    assert run(body.replace("u16 [", "u32 ["))[0].verdict == "uninit-register"


# --- control --------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_branches_and_merges(run: Any, schedule: str) -> None:
    """Lanes 0 to 9 define the value in one arm, 10 to 19 in a nested one, the others never."""
    body = """
    setp.lt.u32 %p1, %t, 10; setp.lt.u32 %p2, %t, 20;
    @%p1 bra FIRST;
    @!%p2 bra JOIN;
    mov.u32 %r20, 1;
    bra JOIN;
FIRST:
    mov.u32 %r20, 2;
JOIN:
    xor.b32 %r21, %r20, %t;
    st.global.u32 [%mine], %r21;"""
    finding = _only(run(body, schedule=schedule)[0])
    assert (finding.class_, finding.lanes) == ("uninit-register", tuple(range(20, 32)))
    assert run(body.replace("%t, 20", "%t, 32"), schedule=schedule)[0].verdict == "clean"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_loops(run: Any, schedule: str) -> None:
    """Each lane turns as often as its number says; the value of the first turn is undefined."""
    body = """
    mov.u32 %r1, 0;
LOOP:
    setp.ge.u32 %p1, %r1, %t;
    @%p1 bra DONE;
    mov.u32 %r21, %r20;
    mov.u32 %r20, 7;
    add.u32 %r1, %r1, 1;
    bra LOOP;
DONE:
    setp.lt.u32 %p2, %t, {};
    @%p2 mov.u32 %r21, 0;
    st.global.u32 [%mine], %r21;"""
    finding = _only(run(body.format(1), schedule=schedule)[0])
    assert (finding.class_, finding.lanes) == ("uninit-register", (1,))
    report, out = run(body.format(2), schedule=schedule)
    assert (report.verdict, out[1], out[9]) == ("clean", 0, 7)


def test_switch(run: Any) -> None:
    body = """
    and.b32 %r1, %t, 3;
    T: .branchtargets A, B, C, D;
    brx.idx %r1, T;
A:  mov.u32 %r20, 1; bra END;
B:  bra END;
C:  mov.u32 %r20, 3; bra END;
D:  mov.u32 %r20, %r22;
END:
    st.global.u32 [%mine], %r20;"""
    finding = _only(run(body)[0])  # of two registers, told together
    assert (finding.class_, finding.lanes, finding.count) == (
        "uninit-register", tuple(range(1, 32, 4)), 16,
    )  # fmt: skip


FUNCTIONS = """
.func (.reg .b32 r) pick(.reg .b32 a, .reg .b32 b, .reg .pred p)
{ selp.u32 r, a, b, p; ret; }
.func (.param .b32 r) second(.param .align 8 .b8 v[8])
{ .reg .b32 %x; ld.param.u32 %x, [v+4]; st.param.u32 [r], %x; ret; }
.func (.reg .b32 r) frame()
{ .local .b32 kept; ld.local.u32 r, [kept]; st.local.u32 [kept], 5; ret; }
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_calls_carry_registers(run: Any, schedule: str) -> None:
    body = """
    setp.lt.u32 %p1, %t, {};
    call (%r1), pick, (%t, %r20, %p1);
    mov.u32 %r2, %r20;
    st.global.u32 [%mine], %r1;"""
    report, out = run(body.format(32), before=FUNCTIONS, schedule=schedule)
    assert (report.verdict, out[9]) == ("clean", 9)
    finding = _only(run(body.format(30), before=FUNCTIONS, schedule=schedule)[0])
    assert (finding.class_, finding.lanes) == ("uninit-register", (30, 31))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_result_that_some_lanes_do_not_write(run: Any, schedule: str) -> None:
    before = """.func (.reg .b32 r) f(.reg .b32 a)
{ .reg .pred p; setp.lt.u32 p, a, 8; @p mov.u32 r, a; ret; }
"""
    body = """
    mov.u32 %r1, 0;
    call (%r1), f, (%t);
    {} st.global.u32 [%mine], %r1;"""
    finding = _only(run(body.format(""), before=before, schedule=schedule)[0])
    assert (finding.class_, finding.lanes) == ("uninit-register", tuple(range(8, 32)))
    assert finding.message == (
        "'st.global.u32' writes what comes from register r of 'f', which was never written"
    )
    assert finding.help == "write r on every path through 'f'"
    some = body.format("setp.lt.u32 %p1, %t, 8; @%p1")
    report, out = run(some, before=before, schedule=schedule)
    assert (report.verdict, out[7]) == ("clean", 7)


def test_a_result_of_a_function_that_traps_instead(run: Any) -> None:
    before = """.func (.reg .b32 r) f(.reg .b32 a)
{ .reg .pred p; setp.lt.u32 p, a, 32; @p bra L; trap; L: mov.u32 r, a; ret; }
"""
    body = "    call (%r1), f, (%t);\n    st.global.u32 [%mine], %r1;"
    assert run(body, before=before)[0].verdict == "clean"


@pytest.mark.parametrize(("part", "clean"), [(0, False), (4, True)])
def test_calls_carry_parameters(run: Any, part: int, clean: bool) -> None:
    body = f"""
    {{ .param .align 8 .b8 a[8]; .param .b32 x;
    st.param.b32 [a+{part}], %t;
    call (x), second, (a);
    ld.param.b32 %r1, [x]; }}
    st.global.u32 [%mine], %r1;"""
    report, out = run(body, before=FUNCTIONS)
    if clean:
        assert (report.verdict, out[9]) == ("clean", 9)
    else:
        assert _only(report).class_ == "uninit-local"
        assert "(a parameter), which was never written" in _only(report).message
    stored = body.replace(f"[a+{part}], %t", "[a+4], %r20")
    assert _only(run(stored, before=FUNCTIONS)[0]).class_ == "uninit-register"


def test_the_frame_of_a_second_call_is_undefined_again(run: Any) -> None:
    body = "    call (%r1), frame, ();\n    call (%r1), frame, ();\n    st.global.u32 [%mine], %r1;"
    assert _only(run(body, before=FUNCTIONS)[0]).class_ == "uninit-local"


def test_an_undefined_function_pointer(run: Any) -> None:
    """It is told before the call ends the launch."""
    body = """
    P: .callprototype (.reg .b32 _) _ ();
    mov.u64 %rd2, frame;
    {} mov.u64 %rd1, %rd2;
    call (%r1), %rd1, (), P;"""
    before = FUNCTIONS.replace("ld.local.u32 r, [kept];", "mov.u32 r, 1;")
    assert run(body.format(""), before=before)[0].verdict == "clean"
    lost = body.format("setp.lt.u32 %p1, %t, 32; @!%p1")
    report, _ = run(lost, before=before)
    assert report.findings[0].class_ == "uninit-register"


def test_arguments_of_built_in_functions(run: Any) -> None:
    before = """.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.global .align 1 .b8 text[3] = {37, 100, 0};
"""
    body = """
    .local .align 8 .b8 v[8];
    {}
    mov.u64 %rd1, v; cvta.local.u64 %rd1, %rd1;
    mov.u64 %rd2, text; cvta.global.u64 %rd2, %rd2;
    {{ .param .b64 f; .param .b64 a; .param .b32 x;
    st.param.b64 [f], %rd2; st.param.b64 [a], %rd1;
    call (x), vprintf, (f, a); }}"""
    report, _ = run(body.format("st.local.u32 [v], %t;"), before=before)
    assert (report.verdict, report.printf[:3]) == ("clean", "012")
    assert _only(run(body.format(""), before=before)[0]).class_ == "uninit-local"
    stored = run(body.format("st.local.u32 [v], %r20;"), before=before)[0]
    assert _only(stored).class_ == "uninit-register"
    lost = body.format("").replace("[a], %rd1", "[a], %rd9")
    assert run(lost, before=before)[0].findings[0].class_ == "uninit-register"


# --- warps ----------------------------------------------------------------------------------------


def test_a_shuffle_takes_undefined_bits_along(run: Any) -> None:
    body = """
    setp.lt.u32 %p1, %t, 31;
    @%p1 mov.u32 %r20, %t;
    shfl.sync.down.b32 %r20|%p2, %r20, 1, 31, -1;
    {} st.global.u32 [%mine], %r20;"""
    finding = _only(run(body.format(""))[0])
    assert (finding.class_, finding.lanes) == ("uninit-register", (30, 31))
    assert run(body.format("setp.lt.u32 %p3, %t, 30; @%p3"))[0].verdict == "clean"


class TestShuffleOfLanesThatAreNotThere:
    """ISA, shfl.sync: what is read of a lane outside of the mask, or of one that has exited, is
    undefined; a kernel that does not use it is right."""

    #: a sum over 8 lanes: lanes 4 to 7 read the lanes 8 to 11 in the first step, and so on
    TREE = """
    setp.ge.u32 %p1, %t, 8;
    @%p1 bra END;
    mov.u32 %r1, %t;
    shfl.sync.down.b32 %r2, %r1, 4, 31, 0xff; add.u32 %r1, %r1, %r2;
    shfl.sync.down.b32 %r2, %r1, 2, 31, 0xff; add.u32 %r1, %r1, %r2;
    shfl.sync.down.b32 %r2, %r1, 1, 31, 0xff; add.u32 %r1, %r1, %r2;
    setp.eq.u32 %p2, %t, 0;
    {} st.global.u32 [%mine], %r1;
END:"""

    @pytest.mark.parametrize("schedule", SCHEDULES)
    def test_a_sum_of_which_one_lane_is_used(self, run: Any, schedule: str) -> None:
        report, out = run(self.TREE.format("@%p2"), schedule=schedule)
        assert (report.verdict, out[0]) == ("clean", 28)

    def test_a_sum_that_all_lanes_store(self, run: Any) -> None:
        report, _ = run(self.TREE.format(""))
        # 4 to 7 read 8 to 11 in the first step; 2 and 3 read 4 and 5 in the second, 1 reads 2 in
        # the last, and 0 reads each lane before it is lost
        found = {f.line: f for f in report.findings}
        assert {f.class_ for f in found.values()} == {"mask-mismatch"}
        lanes = sorted(lane for f in found.values() for lane in f.lanes)
        assert lanes == [1, 2, 3, 4, 5, 6, 7]
        first = found[min(found)]
        assert first.message == (
            "lane 4 reads lane 8, which does not take part in 'shfl.sync.down.b32';"
            f" 'st.global.u32' at line {first.other_line} uses the value"
        )
        assert first.other_line == first.line + 4

    def test_groups_that_come_at_once(self, run: Any) -> None:
        """Both halves execute one instruction with masks of their own; lane 15 reads lane 16."""
        body = """
    setp.lt.u32 %p1, %t, 16;
    selp.b32 %r1, 0xffff, 0xffff0000, %p1;
    shfl.sync.down.b32 %r2, %t, 1, 31, %r1;
    and.b32 %r3, %t, 15; setp.lt.u32 %p2, %r3, 15;
    {} st.global.u32 [%mine], %r2;"""
        assert run(body.format("@%p2"))[0].verdict == "clean"
        finding = _only(run(body.format(""))[0])
        assert (finding.class_, finding.lanes) == ("mask-mismatch", (15,))

    def test_lanes_that_have_exited(self, run: Any) -> None:
        body = """
    setp.ge.u32 %p1, %t, 24;
    @%p1 exit;
    shfl.sync.down.b32 %r1, %t, 8, 31, -1;
    setp.lt.u32 %p2, %t, 16;
    {} st.global.u32 [%mine], %r1;"""
        report, out = run(body.format("@%p2"))
        assert (report.verdict, out[:16].tolist()) == ("clean", list(range(8, 24)))
        finding = _only(run(body.format(""))[0])
        assert (finding.class_, finding.lanes) == ("mask-mismatch", tuple(range(16, 24)))

    def test_the_value_is_passed_on(self, run: Any) -> None:
        """Lane 7 reads lane 8; lane 0 reads that value of lane 7, and memory takes it along."""
        body = (
            OWN
            + """
    setp.ge.u32 %p1, %t, 8;
    @%p1 bra END;
    shfl.sync.down.b32 %r1, %t, 1, 31, 0xff;
    shfl.sync.idx.b32 %r1, %r1, 7, 31, 0xff;
    st.shared.u32 [%r10], %r1;
    ld.shared.u32 %r2, [%r10];
    st.global.u32 [%mine], %r2;
END:"""
        )
        finding = _only(run(body, declare=SHARED)[0])
        assert (finding.class_, finding.count) == ("mask-mismatch", 8)
        assert finding.message.startswith("lane 7 reads lane 8, which does not take part")
        assert finding.other_line == finding.line + 4

    def test_without_undefined_bits_it_is_a_warning(self, run: Any) -> None:
        report, _ = run(self.TREE.format("@%p2"), tools="synccheck")
        assert report.verdict == "clean"
        assert {f.severity for f in report.findings} == {Severity.WARNING}
        # the readers of the three steps: 4 to 7, 6 and 7, 7
        assert [(f.class_, f.lanes, f.other_line) for f in report.findings] == [
            ("mask-mismatch", (4, 5, 6, 7), None),
            ("mask-mismatch", (6, 7), None),
            ("mask-mismatch", (7,), None),
        ]


def test_copies_of_undefined_bytes(run: Any) -> None:
    body = (
        OWN
        + """
    mad.wide.u32 %rd1, %t, 4, %in;
    cp.async.ca.shared.global [%r10], [%rd1], 4{};
    cp.async.wait_all;
    ld.shared.u32 %r1, [%r10];
    {} st.global.u32 [%mine], %r1;"""
    )
    data = np.arange(64, dtype=np.uint32)
    assert run(body.format("", ""), declare=SHARED, data=data)[0].verdict == "clean"
    for early in ("default", "early-async"):
        options: dict[str, Any] = {"declare": SHARED, "schedule": early}
        lost = run(body.format("", ""), data=ptxsim.undefined(64, np.uint32), **options)[0]
        assert _only(lost).class_ == "uninit-shared"
        # copied, but not used; and bytes behind the source size are zero
        unused = body.format("", "setp.gt.u32 %p3, %t, 99; @%p3")
        assert not run(unused, data=ptxsim.undefined(64, np.uint32), **options)[0].findings
        filled = body.format(", 0", "")
        assert not run(filled, data=ptxsim.undefined(64, np.uint32), **options)[0].findings


# --- the tool -------------------------------------------------------------------------------------


def test_without_the_tool(run: Any) -> None:
    body = """
    ld.shared.u32 %r1, [s];
    add.u32 %r1, %r1, %r20;
    st.global.u32 [%mine], %r1;"""
    for tools in ("none", "memcheck,racecheck"):
        assert run(body, declare=SHARED, tools=tools)[0].verdict == "clean"
    report, _ = run(body, declare=SHARED, tools="initcheck")
    assert report.verdict == "uninit-shared"

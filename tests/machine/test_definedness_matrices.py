"""Undefined bits in fragments: matrix instructions, and what they read from memory."""

from __future__ import annotations

from typing import Any

import pytest

TILE = ".shared .align 32 .b8 s[1024]; .reg .f32 %c<16>; .reg .b32 %f<16>;"
ROW = "    shl.b32 %r10, %t, 4; mov.u32 %r11, s; add.u32 %r10, %r10, %r11;\n"
ZERO = "    mov.f32 %c0, 0f00000000; mov.f32 %c1, %c0; mov.f32 %c2, %c0; mov.f32 %c3, %c0;\n"
LOAD = "    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%f0, %f1, %f2, %f3}, [%r10];\n"
PRODUCT = (
    "    mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%c0, %c1, %c2, %c3},"
    " {%f0, %f1}, {%f2}, {%c0, %c1, %c2, %c3};"
)


def _only(report: Any) -> Any:
    (finding,) = report.findings
    return finding


def _stored(rows: int) -> str:
    """The first rows of 16 bytes are written."""
    store = "@%p1 st.shared.v4.b32 [%r10], {%t, %t, %t, %t};"
    return f"{ROW}    setp.lt.u32 %p1, %t, {rows};\n    {store}\n    bar.warp.sync -1;\n"


def test_rows_that_nothing_reads(run: Any) -> None:
    """Matrices 0 to 2 are read; matrix 3, rows 24 to 31, is not."""
    assert run(_stored(24) + ZERO + LOAD + PRODUCT, declare=TILE)[0].verdict == "clean"
    finding = _only(run(_stored(23) + ZERO + LOAD + PRODUCT, declare=TILE)[0])
    assert (finding.class_, finding.lanes) == ("uninit-shared", (28, 29, 30, 31))
    assert (finding.other_line, finding.address) == (finding.line + 1, 23 * 16)
    assert "row 7 of matrix 2, given by lane 23" in finding.message


def test_an_accumulator_that_is_also_the_result(run: Any) -> None:
    lost = ZERO.replace("mov.f32 %c2, %c0;", "")
    finding = _only(run(_stored(32) + lost + LOAD + PRODUCT, declare=TILE)[0])
    assert (finding.class_, "%c2" in finding.message) == ("uninit-register", True)


def test_an_address_that_is_also_a_result(run: Any) -> None:
    """Row addresses of lanes from 8 on do not count for one matrix."""
    line = "    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r12}, [%r12];\n"
    move = "    setp.lt.u32 %p2, %t, N;\n    @%p2 mov.u32 %r12, %r10;\n"
    use = "    st.global.u32 [%mine], %r12;"
    body = _stored(32) + move + line + use
    assert run(body.replace("N;", "8;"), declare=TILE)[0].verdict == "clean"
    finding = _only(run(body.replace("N;", "7;"), declare=TILE)[0])
    assert (finding.class_, finding.lanes) == ("uninit-register", (7,))


def test_a_defined_tile_replaces_undefined_registers(run: Any) -> None:
    body = _stored(32) + "    mov.u32 %f0, %r20;\n" + LOAD + "    st.global.u32 [%mine], %f0;"
    assert run(body, declare=TILE)[0].verdict == "clean"


A = ", ".join(f"%f{k}" for k in range(8))
C = ", ".join(f"%r{k}" for k in range(1, 5))
B = ", ".join(f"%f{k}" for k in range(8, 16))
WMMA = f"""
    wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {{{A}}}, [s], 16;
    wmma.load.b.sync.aligned.row.m16n16k16.shared.f16 {{{B}}}, [s], 16;
    wmma.mma.sync.aligned.row.row.m16n16k16.f16.f16 {{{C}}}, {{{A}}}, {{{B}}}, {{{C}}};
"""
CLEAR = "".join(f"    mov.b32 %r{k}, 0;\n" for k in range(1, 5))


@pytest.mark.parametrize("rows", [32, 31])
def test_wmma(run: Any, rows: int) -> None:
    body = _stored(rows) + CLEAR + WMMA
    report, _ = run(body, declare=TILE)
    if rows == 32:
        assert report.verdict == "clean"
    else:
        assert {f.class_ for f in report.findings} == {"uninit-shared"}
        assert {f.line for f in report.findings} == {
            n for n, line in enumerate(_text(body), 1) if "wmma.load" in line
        }


def _text(body: str) -> list[str]:
    """The lines of the whole file: the body stands behind 13 others (see conftest)."""
    return [""] * 13 + body.split("\n")


def test_wmma_through_shared_memory(run: Any) -> None:
    """A fragment is stored and loaded again; what the host gets names the first load."""
    copy = f"""
    wmma.load.c.sync.aligned.row.m16n16k16.shared.f16 {{{C}}}, [s], 16;
    wmma.store.d.sync.aligned.row.m16n16k16.shared.f16 [s+512], {{{C}}}, 16;
    bar.warp.sync -1; ld.shared.u32 %r5, [s+N];
    st.global.u32 [%mine], %r5;"""
    assert run(_stored(31) + copy.replace("N", "512"), declare=TILE)[0].verdict == "clean"
    finding = _only(run(_stored(31) + copy.replace("N", "1008"), declare=TILE)[0])
    assert finding.class_ == "uninit-shared"
    assert finding.other_line == finding.line + 3


def test_a_wmma_accumulator_that_is_also_the_result(run: Any) -> None:
    """Registers that were never written hold no fragment, which has a class of its own."""
    lost = CLEAR.replace("    mov.b32 %r3, 0;\n", "")
    finding = _only(run(_stored(32) + lost + WMMA, declare=TILE)[0])
    assert finding.class_ == "wmma-fragment"
    assert "%r3 was never loaded" in finding.message

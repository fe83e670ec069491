"""Races and order across waves and arrays: what lives longer than the CTAs of one wave."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ptxsim
from ptxsim.diagnostics import Severity

HEAD = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b)
{
    .reg .pred %p, %q, %zero;
    .reg .b32 %r<9>, %t, %c, %s, %u;
    .reg .b64 %rd<9>;
    .shared .align 16 .b8 tile[256];
    .shared .align 8 .b64 bar;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    cvta.to.global.u64 %rd1, %rd1;
    cvta.to.global.u64 %rd2, %rd2;
    mov.u32 %t, %tid.x;
    mov.u32 %c, %ctaid.x;
    mov.u32 %s, tile;
    setp.eq.u32 %zero, %t, 0;
"""


def run(body: str, args: list[Any] | None = None, **options: Any) -> ptxsim.Report:
    args = [np.zeros(64, np.uint32), np.zeros(64, np.uint32)] if args is None else args
    kernel = ptxsim.assemble(f"{HEAD}{body}\n    ret;\n}}\n").kernel()
    return kernel.launch(**{"grid": 1, "block": 32, "args": args, **options})


def errors(report: ptxsim.Report) -> set[str]:
    return {f.class_ for f in report.findings if f.severity is Severity.ERROR}


def test_an_array_passed_twice_is_one_buffer() -> None:
    x = np.zeros(64, np.uint32)
    body = "st.global.u32 [%rd1], 7; ld.global.u32 %r1, [%rd2]; st.global.u32 [%rd1+4], %r1;"
    assert run(body, [x, x], block=1).clean
    assert x[:2].tolist() == [7, 7]
    report = run(body.replace("ld.global", "ld.global.nc"), [x, x], block=1)
    assert errors(report) == {"nc-coherence"}


def test_arrays_that_overlap_are_refused() -> None:
    x = np.zeros(64, np.uint32)
    with pytest.raises(ptxsim.UsageError, match="'a' and 'b' overlap"):
        run("", [x[:32], x[16:48]])


@pytest.mark.parametrize("wave_ctas", [None, 1])
def test_order_by_shared_memory_stays_in_its_cta(wave_ctas: int | None) -> None:
    """CTA 1 uses the same place of its own shared memory; it has acquired nothing from CTA 0."""
    body = """
    setp.eq.u32 %p, %c, 0;
    setp.ne.u32 %q, %t, 0;
    @%q bra END;
    @!%p bra OTHER;
    st.global.u32 [%rd1], 1;
    fence.acq_rel.gpu;
    atom.shared.exch.b32 %r1, [%s], 1;
    bra END;
OTHER:
    atom.shared.add.u32 %r1, [%s], 0;
    fence.acq_rel.gpu;
    ld.global.u32 %r2, [%rd1];
END:"""
    assert errors(run(body, grid=2, wave_ctas=wave_ctas)) == {"race-global"}


@pytest.mark.parametrize("wave_ctas", [None, 1])
def test_copies_of_an_earlier_wave_are_complete(wave_ctas: int | None) -> None:
    body = """
    setp.eq.u32 %p, %c, 0;
    setp.ne.u32 %q, %t, 0;
    @%q bra END;
    @!%p bra OTHER;
    cp.async.ca.shared.global [%s], [%rd1], 4;
    cp.async.wait_all;
    st.release.gpu.global.u32 [%rd2], 1;
    bra END;
OTHER:
    ld.acquire.gpu.global.u32 %r1, [%rd2];
    setp.eq.u32 %p, %r1, 0;
    @%p bra OTHER;
    st.global.u32 [%rd1], 5;
END:"""
    assert run(body, grid=2, wave_ctas=wave_ctas).clean
    report = run(body.replace("st.release", "st.relaxed"), grid=2, wave_ctas=wave_ctas)
    assert errors(report) == {"async-race"}


@pytest.mark.parametrize("wave_ctas", [None, 1])
def test_copies_of_an_earlier_wave_that_nobody_waited_for(wave_ctas: int | None) -> None:
    """CTA 1 knows of the issue only: the copy may read its source as late as it likes."""
    body = """
    setp.eq.u32 %p, %c, 0;
    setp.ne.u32 %q, %t, 0;
    @%q bra END;
    @!%p bra OTHER;
    cp.async.ca.shared.global [%s], [%rd1], 4;
    st.release.gpu.global.u32 [%rd2], 1;
    bra END;
OTHER:
    ld.acquire.gpu.global.u32 %r1, [%rd2];
    setp.eq.u32 %p, %r1, 0;
    @%p bra OTHER;
    st.global.u32 [%rd1], 5;
END:"""
    assert errors(run(body, grid=2, wave_ctas=wave_ctas)) == {"async-race"}
    waited = body.replace("st.release", "cp.async.wait_all; st.release")
    assert run(waited, grid=2, wave_ctas=wave_ctas).clean


@pytest.mark.parametrize("wave_ctas", [None, 1])
def test_an_mbarrier_of_an_earlier_wave_tells_of_copies(wave_ctas: int | None) -> None:
    """The thread of CTA 0 sees its copy complete at an mbarrier, and tells CTA 1 by a flag."""
    body = """
    mov.u32 %u, bar;
    setp.eq.u32 %p, %c, 0;
    setp.ne.u32 %q, %t, 0;
    @%q bra END;
    @!%p bra OTHER;
    mbarrier.init.shared.b64 [%u], 1;
    cp.async.ca.shared.global [%s], [%rd1], 4;
    cp.async.mbarrier.arrive.noinc.shared.b64 [%u];
{}
    st.release.gpu.global.u32 [%rd2], 1;
    bra END;
OTHER:
    ld.acquire.gpu.global.u32 %r1, [%rd2];
    setp.eq.u32 %p, %r1, 0;
    @%p bra OTHER;
    st.global.u32 [%rd1], 5;
END:"""
    wait = "W: mbarrier.test_wait.parity.shared.b64 %q, [%u], 0; @!%q bra W;"
    assert run(body.format(wait), grid=2, wave_ctas=wave_ctas).clean
    assert errors(run(body.format(""), grid=2, wave_ctas=wave_ctas)) == {"async-race"}


STORE = """
    @%zero st.shared.v4.u32 [%s], {%t, %t, %t, %t};
    mul.wide.u32 %rd3, %c, 16;
    add.s64 %rd3, %rd1, %rd3;
    bar.sync 0;
    @%zero fence.proxy.async;
    @%zero cp.async.bulk.global.shared::cta.bulk_group [%rd3], [%s], 16;
    @%zero cp.async.bulk.commit_group;
    @%zero cp.async.bulk.wait_group 0;"""


def test_proxy_fences_of_many_ctas() -> None:
    """More CTAs fence in one step than fences are remembered for one CTA."""
    args = [np.zeros(4 * 600, np.uint32), np.zeros(1, np.uint32)]
    assert run(STORE, args, grid=600).clean
    without = run(STORE.replace("@%zero fence.proxy.async;", ""), args, grid=600)
    assert errors(without) == {"proxy-fence"}


@pytest.mark.parametrize("wave_ctas", [None, 1])
def test_bulk_copies_of_different_waves_are_different(wave_ctas: int | None) -> None:
    """CTA 1 has waited for a copy of its own, which says nothing of the one of CTA 0."""
    once = "@%zero st.shared.v4.u32 [%s], {%t, %t, %t, %t}; bar.sync 0; @%zero fence.proxy.async;"
    copy = """
    @%zero cp.async.bulk.global.shared::cta.bulk_group [{}], [%s], 16;
    @%zero cp.async.bulk.commit_group;
    @%zero cp.async.bulk.wait_group 0;"""
    other, last = (copy.format(target) for target in ("%rd2", "%rd1"))
    body = f"{once} setp.eq.u32 %p, %c, 0; @%p bra LAST;{other}\nLAST:{last}"
    assert errors(run(body, grid=2, wave_ctas=wave_ctas)) == {"async-race"}


def test_an_error_is_said_after_many_warnings() -> None:
    """In seven rounds some order of fence.sc hides the race; in the last no fence follows."""
    report = run(
        """
    setp.ne.u32 %q, %t, 0;
    @%q bra END;
    setp.eq.u32 %p, %c, 1;
    @%p bra READ;
    mov.u32 %r1, 0;
WRITE:
    mad.wide.u32 %rd3, %r1, 4, %rd1;
    st.global.u32 [%rd3], 1;
    setp.lt.u32 %p, %r1, 7;
    @%p membar.gl;
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p, %r1, 8;
    @%p bra WRITE;
    bra END;
READ:
    mov.u32 %r1, 0;
NEXT:
    membar.gl;
    mad.wide.u32 %rd3, %r1, 4, %rd1;
    ld.global.u32 %r2, [%rd3];
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p, %r1, 8;
    @%p bra NEXT;
END:""",
        grid=2, wave_ctas=1,
    )  # fmt: skip
    assert errors(report) == {"race-global"}


def test_invalidation_is_a_write() -> None:
    body = """
    mov.u32 %u, bar;
    @%zero mbarrier.init.shared.b64 [%u], 1;
    bar.sync 0;
    mbarrier.test_wait.parity.shared.b64 %p, [%u], 1;
    {}
    @%zero mbarrier.inval.shared.b64 [%u];
    {}
    setp.eq.u32 %q, %t, 33;
    @%q st.shared.u32 [bar], %t;"""
    assert run(body.format("bar.sync 0;", "bar.sync 0;"), block=64).clean
    assert errors(run(body.format("bar.sync 0;", ""), block=64)) == {"race-shared"}


def test_more_instructions_than_sixteen_bits() -> None:
    assert run("st.shared.u32 [%s], 0;\n" * 65_600, block=1).clean


def test_lanes_of_one_store_cannot_be_ordered_by_a_barrier() -> None:
    (f,) = run("st.global.u32 [%rd1], %t;").findings
    assert f.class_ == "race-global"
    assert f.help == "let one lane write, give each a place of its own, or use an atomic"


@pytest.mark.parametrize("lanes", [8, 32])
def test_a_lock_taken_by_many_lanes(lanes: int) -> None:
    body = """
TAKE:
    atom.acquire.gpu.global.cas.b32 %r1, [%rd1], 0, 1;
    setp.ne.u32 %p, %r1, 0;
    @%p bra TAKE;
    ld.global.u32 %r2, [%rd2];
    add.u32 %r2, %r2, 1;
    st.global.u32 [%rd2], %r2;
    st.{}.gpu.global.u32 [%rd1], 0;"""
    args = [np.zeros(1, np.uint32), np.zeros(1, np.uint32)]
    assert run(body.format("release"), args, block=lanes).clean
    assert args[1][0] == lanes
    assert errors(run(body.format("relaxed"), block=lanes)) == {"race-global"}


def test_an_address_put_together_from_loaded_halves_may_point_anywhere() -> None:
    """The address of ``b`` goes through shared memory in halves; lane 1 reads lane 0's word."""
    body = """
    mov.b64 {%r1, %r2}, %rd2;
    @%zero st.shared.u32 [%s], %r1;
    @%zero st.shared.u32 [%s+4], %r2;
    bar.sync 0;
    ld.shared.u32 %r3, [%s];
    ld.shared.u32 %r4, [%s+4];
    mov.b64 %rd3, {%r3, %r4};
    setp.lt.u32 %p, %t, 99;
    selp.b64 %rd4, %rd3, %rd1, %p;
    @%zero st.global.u32 [%rd4], 1;
    setp.eq.u32 %q, %t, 1;
    @%q ld.global.u32 %r5, [%rd2];"""
    assert errors(run(body)) == {"race-global"}


def test_more_threads_than_records_can_name() -> None:
    with pytest.raises(ptxsim.UsageError, match="268435456 threads"):
        run("", grid=(1 << 23) + 1, block=32)

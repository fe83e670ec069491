"""discard.L2 (PTX ISA 9.1, Data Movement: discard): a weak write of indeterminate values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ptxsim

SCHEDULES = ("default", "reverse", "warp-serial", "random:1")
each_schedule = pytest.mark.parametrize("schedule", SCHEDULES)

_KERNEL = """\
.version 8.0
.target sm_80
.address_size 64
.const .align 128 .b8 fixed[128];
.visible .entry k(.param .u64 data_p, .param .u64 out_p)
{{
    .reg .pred %p<4>; .reg .b32 %r<8>, %t; .reg .b64 %d<8>, %data, %out, %word, %mine;
    .shared .align 128 .b8 s[128];
    .local .align 128 .b8 l[128];
    ld.param.u64 %data, [data_p]; ld.param.u64 %out, [out_p];
    mov.u32 %t, %tid.x; mad.wide.u32 %word, %t, 4, %data; mad.wide.u32 %mine, %t, 4, %out;
    setp.ne.u32 %p1, %t, 0;
    {body}
    ret;
}}
"""
_LINE = "@!%p1 discard.global.L2 [%data], 128; bar.sync 0;"
_READ = "ld.global.u32 %r1, [%word]; st.global.u32 [%mine], %r1;"


def _run(body: str, block: int = 64, **options: Any) -> tuple[ptxsim.Report, Any, Any]:
    """The report, the data (64 words: two lines) and the output."""
    data, out = np.arange(64, dtype=np.uint32), np.zeros(block, np.uint32)
    kernel = ptxsim.assemble(_KERNEL.format(body=body)).kernel()
    report = kernel.launch(grid=1, block=block, args=[data, out], **options)
    return report, data, out


def _found(body: str, **options: Any) -> list[tuple[str, tuple[int, ...]]]:
    return [(f.class_, f.lanes) for f in _run(body, **options)[0].findings]


@each_schedule
def test_a_later_use_is_found(schedule: str) -> None:
    """The first warp reads the line, the second one the next line."""
    report, _, out = _run(_LINE + _READ, schedule=schedule)
    (one,) = report.findings
    assert (one.class_, one.warp, one.lanes) == ("uninit-global", 0, tuple(range(32)))
    assert "byte 0 of 'data_p', which the discard at line 13 destroyed" in one.message
    assert out[32:].tolist() == list(range(32, 64))


def test_what_is_written_again_is_defined() -> None:
    """Half of the line: the other half is still undefined, and what it held is gone."""
    body = _LINE + "setp.lt.u32 %p2, %t, 16; @%p2 st.global.u32 [%word], 7;"
    report, data, out = _run(f"{body} @%p2 bra R; exit; R: {_READ}")
    assert report.clean
    assert out[:16].tolist() == [7] * 16 and data[:16].tolist() == [7] * 16
    assert report.outputs["data_p"].undefined_bytes == 64
    assert not set(data[16:32].tolist()) & set(range(64))
    assert data[32:].tolist() == list(range(32, 64))


def test_a_use_that_does_not_matter() -> None:
    assert _run(_LINE + "ld.global.u32 %r1, [%word]; mul.lo.u32 %r1, %r1, 0;")[0].clean


def test_a_line_for_each_lane() -> None:
    body = "setp.lt.u32 %p2, %t, 2; mad.wide.u32 %d1, %t, 128, %data; @%p2 discard.L2 [%d1], 128;"
    report, _, _ = _run(body)
    assert report.clean
    assert report.outputs["data_p"].undefined_bytes == 256


def test_without_initcheck_the_data_is_gone() -> None:
    report, _, out = _run(_LINE + _READ, tools="none")
    assert report.clean
    assert not set(out[:32].tolist()) & set(range(64))


@pytest.mark.parametrize(
    ("body", "class_"),
    [
        ("discard.global.L2 [%data+64], 128;", "misaligned-global"),
        ("discard.global.L2 [%data+256], 128;", "oob-global"),
        ("discard.L2 [%data+1024], 128;", "oob-global"),
        ("mov.u64 %d1, s; cvta.shared.u64 %d1, %d1; discard.L2 [%d1], 128;", "oob-global"),
        ("mov.u64 %d1, l; cvta.local.u64 %d1, %d1; discard.L2 [%d1], 128;", "oob-global"),
        ("mov.u64 %d1, fixed; cvta.const.u64 %d1, %d1; discard.L2 [%d1], 128;",
         "write-to-readonly"),
        ("discard.L2 [%d1], 128;", "uninit-register"),
    ],
)  # fmt: skip
def test_misuse(body: str, class_: str) -> None:
    """Under a guard, so that it is known which lane did it."""
    guarded = body.replace("discard", "@!%p1 discard")
    assert (class_, (0,)) in _found(guarded)
    assert _run(body.replace("discard", "@%p1 discard"), block=1)[0].clean


@pytest.mark.parametrize("space", ["shared", "local"])
def test_the_wrong_memory_is_named(space: str) -> None:
    body = f"mov.u64 %d1, {space[0]}; cvta.{space}.u64 %d1, %d1; discard.L2 [%d1], 128;"
    (one,) = _run(body, block=1)[0].findings
    assert one.message == f"'discard.L2' names {space} memory"


def test_a_read_only_buffer() -> None:
    data = np.arange(64, dtype=np.uint32)
    data.flags.writeable = False
    kernel = ptxsim.assemble(_KERNEL.format(body=_LINE)).kernel()
    report = kernel.launch(grid=1, block=64, args=[data, np.zeros(64, np.uint32)])
    assert report.verdict == "write-to-readonly"


@each_schedule
def test_races(schedule: str) -> None:
    """With a read, a write and another discard; a barrier between them orders them."""
    other = "setp.eq.u32 %p2, %t, 40; mov.u32 %r1, 5;"
    line = "@!%p1 discard.global.L2 [%data], 128;"
    for use in ("ld.global.u32 %r2, [%data+124];", "st.global.u32 [%data+64], %r1;"):
        assert "race-global" in {c for c, _ in _found(f"{other} {line} @%p2 {use}")}
        assert _run(f"{other} {line} bar.sync 0; @%p2 {use}", schedule=schedule)[0].clean
    assert _run(f"{other} {line} @%p2 ld.global.u32 %r2, [%data+128];", schedule=schedule)[0].clean
    both = f"{other} {line} @%p2 discard.global.L2 [%data], 128;"
    assert {c for c, _ in _found(both, schedule=schedule)} == {"same-value-write"}


def test_it_is_no_store_that_is_counted() -> None:
    report, _, _ = _run(_LINE, tools="all,advice")
    assert report.counters["global_store_requests"] == 0
    assert report.counters["warp_instructions"] > 0

"""redux.sync of f32 against a model of single numbers (PTX ISA 9.1, redux.sync).

The manual: +0 is above -0; a NaN does not count, or makes the result NaN with .NaN; the result is
the canonical NaN if nothing else is left; .abs reduces magnitudes.
"""

from __future__ import annotations

import math
import struct
from itertools import product
from typing import Any

import numpy as np
import pytest

import ptxsim

_KERNEL = """
.version 8.6
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 values, .param .u64 masks, .param .u64 out)
{{
    .reg .f32 %f<4>; .reg .b32 %r<4>; .reg .b64 %d<5>; .reg .pred %p<2>;
    ld.param.u64 %d1, [values]; ld.param.u64 %d2, [masks]; ld.param.u64 %d3, [out];
    mov.u32 %r1, %tid.x; mul.wide.u32 %d4, %r1, 4;
    add.u64 %d1, %d1, %d4; add.u64 %d2, %d2, %d4; add.u64 %d3, %d3, %d4;
    ld.global.f32 %f1, [%d1]; ld.global.u32 %r2, [%d2];
    {body}
    st.global.f32 [%d3], %f2;
    ret;
}}
"""
FORMS = [
    "".join(words) for words in product((".min", ".max"), ("", ".abs"), ("", ".NaN"))
]  # fmt: skip
_NAN = 0x7FFFFFFF
#: zeros, subnormals, ones, the largest, infinities, quiet and signalling NaNs of both signs
EDGES = [
    0, 0x80000000, 1, 0x80000001, 0x007FFFFF, 0x3F800000, 0xBF800000, 0x7F7FFFFF, 0xFF7FFFFF,
    0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001, 0xFFFFFFFF,
]  # fmt: skip


def _number(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def expected(form: str, patterns: list[int]) -> int:
    """The result for the patterns of the lanes that take part."""
    if ".abs" in form:
        patterns = [bits & 0x7FFFFFFF for bits in patterns]
    numbers = [bits for bits in patterns if not math.isnan(_number(bits))]
    if not numbers or (".NaN" in form and len(numbers) < len(patterns)):
        return _NAN
    choose = min if ".min" in form else max
    return choose(numbers, key=lambda b: (_number(b), math.copysign(1.0, _number(b))))


def _launch(form: str, values: Any, masks: Any, before: str = "") -> tuple[Any, list[int]]:
    body = f"{before} redux.sync{form}.f32 %f2, %f1, %r2;"
    out = np.zeros(len(values), np.uint32)
    kernel = ptxsim.assemble(_KERNEL.format(body=body)).kernel()
    report = kernel.launch(grid=1, block=len(values), args=[values, masks, out])
    return report, out.tolist()


def _of_masks(form: str, values: list[int], masks: list[int]) -> list[int]:
    """The result in each lane of some warps, by the mask that it gives."""
    out = []
    for lane, mask in enumerate(masks):
        first = lane - lane % 32
        out.append(expected(form, [values[first + k] for k in range(32) if mask >> k & 1]))
    return out


@pytest.mark.parametrize("form", FORMS)
class TestAgainstTheModel:
    def test_whole_warps(self, form: str) -> None:
        rng = np.random.default_rng(1)
        values = rng.integers(0, 2**32, (32, 32), dtype=np.uint32)
        for warp, share in enumerate(np.linspace(0, 1, 32)):  # from no edge to edges alone
            edges = rng.random(32) < share
            values[warp, edges] = rng.choice(np.array(EDGES, np.uint32), int(edges.sum()))
        flat = values.ravel()
        masks = np.full(len(flat), 0xFFFFFFFF, np.uint32)
        report, got = _launch(form, flat, masks)
        assert report.clean
        assert got == _of_masks(form, flat.tolist(), masks.tolist())

    def test_two_of_every_kind(self, form: str) -> None:
        """All pairs of edges: pairs of lanes reduce by themselves."""
        pairs = list(product(EDGES, EDGES))
        pairs += [(0, 0)] * (-len(pairs) % 16)
        values = np.array(pairs, np.uint32).ravel()
        lanes = np.arange(len(values))
        masks = (3 << (lanes % 32 & ~1)).astype(np.uint32)
        report, got = _launch(form, values, masks)
        assert report.clean
        assert got == [expected(form, list(pair)) for pair in pairs for _ in range(2)]

    def test_exited_lanes_do_not_count(self, form: str) -> None:
        values = np.array([0xFF800000, 0x7F800000, 0xFFC00000, *[0x3F800000] * 29], np.uint32)
        masks = np.full(32, 0xFFFFFFFF, np.uint32)
        report, got = _launch(form, values, masks, "setp.lt.u32 %p1, %r1, 3; @%p1 exit;")
        assert report.clean
        assert got == [0] * 3 + [0x3F800000] * 29


@pytest.mark.parametrize(
    ("form", "values", "want"),
    [
        # hand-worked from the sentences of the manual
        (".min", [0, 0x80000000], 0x80000000),
        (".max", [0, 0x80000000], 0),
        (".min.abs", [0x80000000, 0x80000000], 0),
        (".max.abs", [0xC0000000, 0x3F800000], 0x40000000),
        (".min", [0xFFC00000, 0x7F800000], 0x7F800000),
        (".max", [0x7FC00000, 0xFF800000], 0xFF800000),
        (".min.NaN", [0xFFC00000, 0xFF800000], _NAN),
        (".max.NaN", [0x7F800001, 0x7F800000], _NAN),
        (".max", [0xFFFFFFFF, 0x7F800001], _NAN),
        (".min.abs", [0xFF800001, 0xFF800000], 0x7F800000),
        (".min", [1, 0x3F800000], 1),  # a subnormal number stays
    ],
)
def test_hand_worked(form: str, values: list[int], want: int) -> None:
    assert expected(form, values) == want
    report, got = _launch(form, np.array(values * 16, np.uint32), np.full(32, -1).astype(np.uint32))
    assert report.clean and got == [want] * 32


def test_constants_and_guards() -> None:
    values, masks = np.zeros(32, np.uint32), np.full(32, 0xFFFF, np.uint32)
    body = "setp.lt.u32 %p1, %r1, 16; mov.f32 %f2, 0f40400000; @%p1 redux.sync.max.f32 %f2,"
    kernel = ptxsim.assemble(_KERNEL.format(body=f"{body} %f1, 65535;")).kernel()
    out = np.zeros(32, np.uint32)
    assert kernel.launch(grid=1, block=32, args=[values, masks, out]).clean
    assert out.tolist() == [0] * 16 + [0x40400000] * 16


def test_an_undefined_operand_is_found() -> None:
    values, masks = np.zeros(32, np.uint32), np.full(32, 0xFFFFFFFF, np.uint32)
    body = "redux.sync.min.NaN.f32 %f2, %f3, %r2;"
    kernel = ptxsim.assemble(_KERNEL.format(body=body)).kernel()
    report = kernel.launch(grid=1, block=32, args=[values, masks, np.zeros(32, np.uint32)])
    assert report.verdict == "uninit-register"


def test_lanes_outside_of_the_mask_are_found() -> None:
    values, masks = np.zeros(32, np.uint32), np.full(32, 0xFFFF, np.uint32)
    assert _launch(".min", values, masks)[0].verdict == "mask-mismatch"


def test_a_wrong_result_is_noticed() -> None:
    """The comparison can fail: max is not min."""
    values = np.array(EDGES * 2 + [0, 0], np.uint32)
    masks = np.full(32, 0xFFFFFFFF, np.uint32)
    _, got = _launch(".min", values, masks)
    assert got != _of_masks(".max", values.tolist(), masks.tolist())

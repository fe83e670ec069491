"""Atomics of vectors: each element by itself, the address by the whole (PTX ISA 9.1, atom, red)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import scalar_model as model
from scalar_model import LAYOUTS

import ptxsim

_HEAD = """
.version 8.1
.target sm_90
.address_size 64
.visible .entry k(.param .u64 memory, .param .u64 places, .param .u64 values, .param .u64 seen)
{
    .reg .b16 %h<20>; .reg .b32 %r<20>; .reg .f32 %f<20>; .reg .b64 %d<12>; .reg .pred %p<4>;
    .reg .b16 %q<20>; .reg .b32 %s<20>; .reg .f32 %g<20>;
    .shared .align 16 .b8 sh[64];
    ld.param.u64 %d1, [memory]; ld.param.u64 %d2, [places];
    ld.param.u64 %d3, [values]; ld.param.u64 %d4, [seen];
    mov.u32 %r16, %ctaid.x; mov.u32 %r17, %ntid.x; mov.u32 %r18, %tid.x;
    mad.lo.u32 %r0, %r16, %r17, %r18;
"""
#: type: its registers (of operands, of results), bytes of a register, elements in it, its layout
TYPES = {
    "f16": ("h", "q", 2, 1, "f16"),
    "bf16": ("h", "q", 2, 1, "bf16"),
    "f16x2": ("r", "s", 4, 2, "f16"),
    "bf16x2": ("r", "s", 4, 2, "bf16"),
    "f32": ("f", "g", 4, 1, "f32"),
}


def _forms() -> Iterator[tuple[str, int, str]]:
    """Operation with its modifiers, registers, type: the table of the manual."""
    yield from (("add", n, "f32") for n in (2, 4))
    for op, n, packed in product(("add", "min", "max"), (2, 4, 8), ("f16", "bf16")):
        yield f"{op}.noftz", n, packed
        if n < 8:
            yield f"{op}.noftz", n, packed + "x2"


FORMS = list(_forms())
THREADS, PLACES = 96, 7


def _group(letter: str, count: int) -> str:
    return "{" + ", ".join(f"%{letter}{n}" for n in range(1, count + 1)) + "}"


def _text(name: str, op: str, count: int, type_: str) -> str:
    """Every thread applies its values to the place that it is given, and keeps what it saw."""
    source, result, size, _, _ = TYPES[type_]
    total = size * count
    body = [_HEAD, f"mul.wide.u32 %d5, %r0, 4; mul.wide.u32 %d6, %r0, {total};"]
    body.append(
        "add.u64 %d2, %d2, %d5; add.u64 %d3, %d3, %d6; add.u64 %d4, %d4, %d6;"
        f"ld.global.u32 %r15, [%d2]; mad.wide.u32 %d7, %r15, {total}, %d1;"
    )
    kind = {"h": "b16", "r": "b32", "f": "f32"}[source]
    for n in range(count):
        body.append(f"ld.global.{kind} %{source}{n + 1}, [%d3+{size * n}];")
    to = f"{_group(result, count)}, " if name == "atom" else ""
    body.append(f"{name}.global.{op}.v{count}.{type_} {to}[%d7], {_group(source, count)};")
    if name == "atom":
        for n in range(count):
            body.append(f"st.global.{kind} [%d4+{size * n}], %{result}{n + 1};")
    return "\n".join([*body, "ret; }"])


def _less(a: int, b: int, layout: model.Layout) -> bool:
    """In the order of numbers, -0 below +0; neither is a NaN."""
    keys = [-(v & ~layout.sign) - 1 if v & layout.sign else v for v in (a, b)]
    return keys[0] < keys[1]


def apply(op: str, old: int, b: int, layout: model.Layout) -> int:
    """The new pattern of an element."""
    x, y = model.number(old, layout), model.number(b, layout)
    if op == "add.noftz":
        return model.pattern(model.add(x, y, "rn"), layout)
    if op == "add":  # of f32: subnormal numbers are flushed in global memory
        x, y = (model.number(model.flush(v, layout), layout) for v in (old, b))
        return model.flush(model.pattern(model.add(x, y, "rn"), layout), layout)
    if x.special == "nan" or y.special == "nan":
        both = x.special == y.special
        return (layout.nan or 0) if both else b if x.special == "nan" else old
    first = _less(old, b, layout)
    return old if first == op.startswith("min") else b


def _patterns(rng: np.random.Generator, layout: model.Layout, shape: tuple[int, ...]) -> Any:
    """Numbers of few exponents, so that sums round, with a share of edges."""
    bits = layout.exponent_bits + layout.mantissa_bits + 1
    dtype = np.uint16 if bits == 16 else np.uint32
    fraction = rng.integers(0, 1 << layout.mantissa_bits, shape)
    exponent = rng.integers(layout.bias - 3, layout.bias + 3, shape)
    sign = rng.integers(0, 2, shape) << (bits - 1)
    number = sign | exponent << layout.mantissa_bits | fraction
    s, infinity = layout.sign, layout.infinity or 0
    edges = [0, s, 1, s | 1, (1 << layout.mantissa_bits) - 1, layout.largest, infinity,
             s | infinity, infinity + 1, layout.nan or 0]  # fmt: skip
    edge = rng.choice(np.array(edges), shape)
    return np.where(rng.random(shape) < 0.2, edge, number).astype(dtype)


def _launch(text: str, arrays: list[Any], grid: int = 1, block: int = THREADS, **more: Any) -> Any:
    kernel = ptxsim.assemble(text).kernel()
    return kernel.launch(grid=grid, block=block, args=arrays, **more)


def _inputs(count: int, type_: str, seed: int = 1) -> tuple[model.Layout, list[Any]]:
    _, _, _, inside, name = TYPES[type_]
    layout, rng = LAYOUTS[name], np.random.default_rng(seed)
    memory = _patterns(rng, layout, (PLACES, count * inside))
    values = _patterns(rng, layout, (THREADS, count * inside))
    places = rng.integers(0, PLACES, THREADS).astype(np.uint32)
    return layout, [memory, places, values, np.zeros_like(values)]


@pytest.mark.parametrize("schedule", ["default", "reverse"])
@pytest.mark.parametrize(("op", "count", "type_"), FORMS)
def test_lanes_that_meet_are_served_in_order(
    op: str, count: int, type_: str, schedule: str
) -> None:
    """Memory and what each lane saw, against one lane after the other by exact integers."""
    layout, (memory, places, values, seen) = _inputs(count, type_)
    want, saw = memory.tolist(), seen.tolist()
    lanes = range(THREADS)
    if schedule == "reverse":
        lanes = range(THREADS - 1, -1, -1)
    for lane in lanes:
        row = want[int(places[lane])]
        saw[lane] = list(row)
        row[:] = [apply(op, o, b, layout) for o, b in zip(row, values[lane].tolist(), strict=True)]
    before = memory.copy()
    text = _text("atom", op, count, type_)
    assert _launch(text, [memory, places, values, seen], schedule=schedule).clean
    assert memory.tolist() == want
    assert seen.tolist() == saw
    assert _launch(
        _text("red", op, count, type_), [before, places, values, seen], schedule=schedule
    ).clean
    assert before.tolist() == want


def test_a_wrong_order_is_noticed() -> None:
    """The comparison can fail: the sums of the two orders differ."""
    _, arrays = _inputs(4, "f16")
    other = [arrays[0].copy(), *arrays[1:]]
    _launch(_text("red", "add.noftz", 4, "f16"), arrays)
    _launch(_text("red", "add.noftz", 4, "f16"), other, schedule="reverse")
    assert arrays[0].tolist() != other[0].tolist()


def _small(body: str, memory: Any, grid: int = 1, block: int = 32, **more: Any) -> Any:
    empty = np.zeros(256, np.uint32)
    text = f"{_HEAD} {body} ret; }}"
    return _launch(text, [memory, empty, empty.copy(), empty.copy()], grid, block, **more)


_ONES = "mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f40000000;"


class TestAddresses:
    @pytest.mark.parametrize(
        ("form", "align"),
        [("v2.f16", 4), ("v8.bf16", 16), ("v4.f16x2", 16), ("v2.bf16x2", 8)],
    )
    def test_the_whole_vector_is_aligned(self, form: str, align: int) -> None:
        count = int(form[1])
        group = _group("r" if "x2" in form else "h", count)
        names = "".join(f"mov.b{'32 %r' if 'x2' in form else '16 %h'}{n}, 0;" for n in range(1, 9))
        line = f"{names} red.global.max.noftz.{form} [%d1+AT], {group};"
        memory = np.zeros(64, np.uint32)
        assert _small(line.replace("AT", str(align)), memory).clean
        report = _small(line.replace("AT", str(align // 2)), memory)
        (finding,) = report.findings
        assert finding.class_ == "misaligned-global"
        assert f"which is not a multiple of {align}" in finding.message

    def test_nothing_is_written_out_of_bounds(self) -> None:
        """The second lane's vector ends past the buffer: neither lane writes."""
        memory = np.zeros(3, np.float32)
        body = f"{_ONES} mad.wide.u32 %d7, %r0, 8, %d1; red.global.add.v2.f32 [%d7], {{%f1, %f2}};"
        report = _small(body, memory, block=2)
        (finding,) = report.findings
        assert (finding.class_, finding.lanes) == ("oob-global", (1,))
        assert "8-byte access" in finding.message
        assert memory.tolist() == [0, 0, 0]

    def test_generic_addresses(self) -> None:
        memory = np.zeros(4, np.float32)
        assert _small(f"{_ONES} red.add.v2.f32 [%d1+8], {{%f1, %f2}};", memory, block=3).clean
        assert memory.tolist() == [0, 0, 3, 6]
        body = f"{_ONES} mov.u64 %d8, sh; cvta.shared.u64 %d8, %d8; setp.lt.u32 %p1, %r0, 2;"
        body += "selp.b64 %d8, %d8, %d1, %p1;"
        report = _small(f"{body} red.add.v2.f32 [%d8], {{%f1, %f2}};", memory)
        (finding,) = report.findings
        assert (finding.class_, finding.lanes) == ("oob-global", (0, 1))
        assert "is not in global memory" in finding.message
        guarded = f"{body} @!%p1 red.add.v2.f32 [%d8], {{%f1, %f2}};"
        assert _small(guarded, memory).clean

    def test_a_shared_variable_is_not_global_memory(self) -> None:
        report = _small(f"{_ONES} red.add.v2.f32 [sh], {{%f1, %f2}};", np.zeros(4, np.float32))
        assert report.verdict == "oob-global"


class TestOperands:
    def test_sinks_and_constants(self) -> None:
        memory = np.array([1, 2, 3, 4], np.float32)
        body = "atom.global.add.v4.f32 {_, %f1, _, %f2}, [%d1], {1.0, 2.0, 3.0, 4.0};"
        body += "st.global.v2.f32 [%d4], {%f1, %f2};"
        seen = np.zeros(2, np.float32)
        text = f"{_HEAD} {body} ret; }}"
        assert _launch(text, [memory, seen.copy(), seen.copy(), seen], block=1).clean
        assert memory.tolist() == [2, 4, 6, 8] and seen.tolist() == [2, 4]

    def test_results_may_be_the_operands(self) -> None:
        memory = np.array([1, 2], np.float32)
        body = f"{_ONES} atom.global.add.v2.f32 {{%f2, %f1}}, [%d1], {{%f1, %f2}};"
        body += "st.global.v2.f32 [%d4], {%f1, %f2};"
        seen = np.zeros(2, np.float32)
        text = f"{_HEAD} {body} ret; }}"
        assert _launch(text, [memory, seen.copy(), seen.copy(), seen], block=1).clean
        assert memory.tolist() == [2, 4] and seen.tolist() == [2, 1]

    def test_a_false_guard_does_nothing(self) -> None:
        memory = np.zeros(2, np.float32)
        body = f"{_ONES} setp.lt.u32 %p1, %r0, 5; @%p1 atom.global.add.v2.f32 {{%f3, %f4}}, [%d1],"
        assert _small(f"{body} {{%f1, %f2}};", memory).clean
        assert memory.tolist() == [5, 10]

    def test_a_register_named_twice(self) -> None:
        body = "atom.global.add.v2.f32 {%f3, %f3}, [%d1], {1.0, 2.0}; st.global.f32 [%d4], %f3;"
        report = _small(body, np.zeros(2, np.float32), block=1)
        assert report.verdict == "undefined-result"

    def test_one_request_a_warp(self) -> None:
        body = f"{_ONES} mad.wide.u32 %d7, %r0, 8, %d1; red.global.add.v2.f32 [%d7], {{%f1, %f2}};"
        counters = _small(body, np.zeros(64, np.float32), tools="advice").counters
        # 32 lanes of 8 bytes lie in 8 sectors of 32
        assert counters["global_reduction_requests"] == 1
        assert counters["global_reduction_sectors"] == 8


class TestUndefinedBits:
    def test_of_an_operand(self) -> None:
        report = _small("red.global.add.v2.f32 [%d1], {1.0, %f9};", np.zeros(2, np.float32))
        assert report.verdict == "uninit-register"
        assert "%f9" in report.findings[0].message

    def test_of_what_was_there(self) -> None:
        memory = ptxsim.undefined(4, np.uint32)
        body = "st.global.f32 [%d1], 0f00000000; {} red.global.add.v2.f32 [%d1], {{1.0, 2.0}};"
        report = _small(body.format(""), memory, block=1)
        (finding,) = report.findings
        assert finding.class_ == "uninit-global" and "byte 4 of 'memory'" in finding.message
        memory = ptxsim.undefined(4, np.uint32)
        assert _small(body.format("st.global.f32 [%d1+4], 0f00000000;"), memory, block=1).clean

    def test_all_elements_are_written(self) -> None:
        """After the finding the words are defined, and only they."""
        memory = ptxsim.undefined(4, np.uint32)
        body = "red.global.add.v2.f32 [%d1], {1.0, 2.0}; ld.global.v4.f32 {%f1, %f2, %f3, %f4},"
        body += " [%d1]; st.global.v4.f32 [%d4], {%f1, %f2, %f3, %f4};"
        report = _small(body, memory, block=1)
        assert [f.class_ for f in report.findings] == ["uninit-global"] * 2
        assert ["byte 0 of" in f.message or "byte 8 of" in f.message for f in report.findings]
        assert memory.view(np.float32).tolist()[:2] == [1, 2]


_RED = "red.{}.global.add.v2.f32 [%d1], {{%f1, %f2}};"
_BY = "setp.eq.u32 %p1, %r16, 0; setp.eq.u32 %p2, %r16, 1;"


class TestRaces:
    """Two CTAs of one thread."""

    def _verdict(self, body: str) -> str:
        memory = np.zeros(4, np.float32)
        return str(_small(f"{_ONES} {_BY} {body}", memory, grid=2, block=1).verdict)

    def test_atomics_do_not_race(self) -> None:
        assert self._verdict(_RED.format("relaxed")) == "clean"
        other = "@%p2 red.global.add.f32 [%d1+4], %f1;"
        assert self._verdict(f"@%p1 {_RED.format('relaxed')} {other}") == "clean"

    def test_scopes_that_do_not_include_each_other(self) -> None:
        assert self._verdict(_RED.format("relaxed.cta")) == "race-global"

    @pytest.mark.parametrize(
        ("offset", "verdict"), [(0, "race-global"), (4, "race-global"), (8, "clean")]
    )
    def test_a_store_to_an_element(self, offset: int, verdict: str) -> None:
        store = f"@%p2 st.global.f32 [%d1+{offset}], %f1;"
        assert self._verdict(f"@%p1 {_RED.format('relaxed')} {store}") == verdict

    @pytest.mark.parametrize("offset", [8, 12])
    @pytest.mark.parametrize(
        ("how", "verdict"), [("release.gpu", "clean"), ("relaxed.gpu", "race-global")]
    )
    def test_each_element_releases(self, offset: int, how: str, verdict: str) -> None:
        """What was stored before the reduction is read behind an acquire of either element."""
        line = f"red.{how}.global.add.v2.f32 [%d1+8], {{%f1, %f2}};"
        body = f"""@%p1 bra GIVE; L: ld.acquire.gpu.global.f32 %f3, [%d1+{offset}];
        setp.eq.f32 %p3, %f3, 0f00000000; @%p3 bra L; ld.global.f32 %f4, [%d1]; bra END;
        GIVE: st.global.f32 [%d1], %f1; {line} END:"""
        assert self._verdict(body) == verdict

    @pytest.mark.parametrize("offset", [8, 12])
    def test_each_element_acquires(self, offset: int) -> None:
        line = "atom.acquire.gpu.global.add.v2.f32 {%f3, %f4}, [%d1+8], {0f00000000, 0f00000000};"
        seen = "%f3" if offset == 8 else "%f4"
        body = f"""@%p1 bra GIVE; L: {line}
        setp.eq.f32 %p3, {seen}, 0f00000000; @%p3 bra L; ld.global.f32 %f5, [%d1]; bra END;
        GIVE: st.global.f32 [%d1], %f1; red.release.gpu.global.add.f32 [%d1+{offset}], %f1; END:"""
        assert self._verdict(body) == "clean"

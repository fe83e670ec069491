"""mma.sp against dense products of the decompressed A, and what metadata and scales may say.

Where stored elements and metadata lie is written down again here from PTX ISA 9.1, mma.sp; which
bits of a word belong to which row is that of CUTLASS' reorder tool.  Nothing is taken from
ptxsim.matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tensor_core_kernels import (
    Element,
    Options,
    accumulator_elements,
    entry,
    gather,
    group,
    move,
    register_type,
    scale_words,
    scatter,
)

import ptxsim
from ptxsim.diagnostics import Severity
from tests.numerics.tensor_core_model import Instruction

RNG = np.random.default_rng(17)
Integers = NDArray[np.int64]
Words = NDArray[Any]

#: Patterns of 0, 1, 2, -1 and -2
VALUES = {
    "f16": (0, 0x3C00, 0x4000, 0xBC00, 0xC000), "bf16": (0, 0x3F80, 0x4000, 0xBF80, 0xC000),
    "tf32": (0, 0x3F800000, 0x40000000, 0xBF800000, 0xC0000000),
    "e4m3": (0, 0x38, 0x40, 0xB8, 0xC0), "e5m2": (0, 0x3C, 0x40, 0xBC, 0xC0),
    "e3m2": (0, 0x0C, 0x10, 0x2C, 0x30), "e2m3": (0, 0x08, 0x10, 0x28, 0x30),
    "e2m1": (0, 0x2, 0x4, 0xA, 0xC), "s8": (0, 1, 2, 0xFF, 0xFE), "s4": (0, 1, 2, 0xF, 0xE),
}  # fmt: skip
INTEGERS = {"s8": (-128, 128), "u8": (0, 256), "s4": (-8, 8), "u4": (0, 16)}
#: Infinity
INFINITE = {"f16": 0x7C00, "bf16": 0x7F80, "tf32": 0x7F800000, "e5m2": 0x7C}
SCALES = {"ue8m0": {0.5: 126, 1: 127, 2: 128, 4: 129}, "ue4m3": {0.5: 0x30, 1: 0x38, 2: 0x40}}


@dataclass(frozen=True, slots=True)
class Form:
    """An mma.sp of m16n8k``k`` with ``bits`` of a register for an element of A and B."""

    k: int
    bits: int
    a: str
    b: str
    accumulator: str
    target: str = "80"
    middle: str = ""
    scale: str = ""
    scales: int = 0

    def __str__(self) -> str:
        return f"k{self.k}{self.middle}.{self.accumulator}.{self.a}.{self.b}.{self.scale}"

    @property
    def chunk(self) -> int:
        """Columns that one metadata entry describes."""
        return {32: 2, 4: 8}.get(self.bits, 4)

    @property
    def selectors(self) -> int:
        """How many selectors there are: each lane of a quad, each pair, or all."""
        return {(16, 16): 4, (32, 8): 4, (8, 64): 1, (4, 128): 1}.get((self.bits, self.k), 2)

    @property
    def header(self) -> str:
        """Version and target."""
        number = int(self.target.rstrip("af"))
        return f".version {'9.1' if number >= 100 else '8.7'}\n.target sm_{self.target}\n"

    @property
    def exact(self) -> bool:
        """Whether the bits of every result are defined."""
        return self.accumulator == "s32"


def plain_forms() -> Iterator[Form]:
    """The forms that mma.sp has with and without ::ordered_metadata."""
    for k in (16, 32):
        for d in ("f16", "f32"):
            yield Form(k, 16, "f16", "f16", d)
        yield Form(k, 16, "bf16", "bf16", "f32")
    for k in (8, 16):
        yield Form(k, 32, "tf32", "tf32", "f32")
    for bits, extents, types in ((8, (32, 64), "su"), (4, (64, 128), "su")):
        for k in extents:
            for a in types:
                for b in types:
                    yield Form(k, bits, f"{a}{bits}", f"{b}{bits}", "s32")
    for a in ("e4m3", "e5m2"):
        for b in ("e4m3", "e5m2"):
            yield Form(64, 8, a, b, "f32", "89")


def ordered_forms() -> Iterator[Form]:
    """The forms with ::ordered_metadata alone."""
    yield Form(64, 8, "e4m3", "e5m2", "f16", "120a")
    small = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
    for n, a in enumerate(small):
        b = small[(n + 2) % 5]
        for d in ("f32", "f16"):
            yield Form(64, 8, a, b, d, "120a", ".kind::f8f6f4")
        yield Form(64, 8, a, b, "f32", "120a", ".kind::mxf8f6f4.block_scale", "ue8m0", 1)
    yield Form(64, 8, "e4m3", "e5m2", "f32", "100a", ".kind::f8f6f4")
    for kind, count, scale in (
        ("mxf4", 2, "ue8m0"), ("mxf4nvf4", 2, "ue8m0"), ("mxf4nvf4", 4, "ue4m3"),
        ("mxf4nvf4", 4, "ue8m0"),
    ):  # fmt: skip
        middle = f".kind::{kind}.block_scale.scale_vec::{count}X"
        yield Form(128, 4, "e2m1", "e2m1", "f32", "120a", middle, scale, count)


PLAIN = list(plain_forms())
ORDERED = list(ordered_forms())

# -- fragments and metadata --------------------------------------------------------------------


def factor(use: str, k: int, bits: int) -> list[Element]:
    """A with k stored elements in a row, or B: the formulas of the dense instructions."""
    per = 32 // bits
    high = 2 if use == "a" else 1
    out = []
    for lane, register, e in np.ndindex(32, high * k * bits // 128, per):
        g, t = lane >> 2, lane & 3
        line = g + 8 * (register % high)
        depth = per * t + e + 4 * per * (register // high)
        row, column = (line, depth) if use == "a" else (depth, line)
        out.append(Element(0, lane, register, e * bits, row, column))
    return out


def metadata(form: Form, entries: Integers, selector: int) -> Words:
    """Entries [W, 16, chunks] as words [W, lane, 1]; lanes that supply none hold zeros.

    Zero is an entry without meaning: reading one would be a finding.
    """
    chunks = form.k // form.chunk
    out = np.zeros((len(entries), 32, 1), np.uint32)
    for lane in range(32):
        g, t = lane >> 2, lane & 3
        if chunks == 16:  # all lanes: one row, half of k
            parts = [(g + 8 * (t & 1), 8 * (t >> 1), 8, 0)]
        elif form.bits <= 8:  # a pair of lanes: one row each
            parts = [(g + 8 * (t & 1), 0, 8, 0)] if t >> 1 == selector else []
        elif chunks == 8:  # a pair of lanes: half of k of two rows
            first = 4 * (t & 1)
            parts = [(g, first, 4, 0), (g + 8, first, 4, 16)] if t >> 1 == selector else []
        else:  # one lane: two rows
            parts = [(g, 0, 4, 0), (g + 8, 0, 4, 16)] if t == selector else []
        for row, first, count, shift in parts:
            for j in range(count):
                entry_bits = entries[:, row, first + j].astype(np.uint32)
                out[:, lane, 0] |= entry_bits << np.uint32(shift + 4 * j)
    return out


def legal_entries(form: Form, ordered: bool) -> list[int]:
    """Two positions in one entry, the low bits for the first stored element."""
    if form.chunk == 2:
        return [0b0100, 0b1110]
    if ordered:
        return [0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110]
    return [e for e in range(16) if e & 3 != e >> 2]


def columns(form: Form, entries: Integers) -> Integers:
    """The column of each stored element, [W, 16, k / 2]."""
    out = np.zeros((len(entries), 16, form.k // 2), np.int64)
    kept, unit = form.chunk // 2, 2 if form.bits == 4 else 1
    for j in range(form.k // form.chunk):
        for i in range(kept):
            if form.chunk == 2:
                within = (entries[:, :, j] & 3) // 2
            else:
                within = unit * (entries[:, :, j] >> 2 * (i // unit) & 3) + i % unit
            out[:, :, kept * j + i] = form.chunk * j + within
    return out


def decompressed(form: Form, stored: Integers, entries: Integers) -> Integers:
    """A with zeros where nothing is stored."""
    out = np.zeros((len(stored), 16, form.k), np.int64)
    np.put_along_axis(out, columns(form, entries), stored, axis=2)
    return out


def patterns(values: Integers, type_: str, bits: int) -> NDArray[np.uint64]:
    """Small integers as bits of an element in its register."""
    if type_ in INTEGERS:
        return (values & ((1 << bits) - 1)).astype(np.uint64)
    index = np.where(values < 0, np.where(values == -1, 3, 4), values)
    found = np.array(VALUES[type_], np.uint64)[index]
    return found << np.uint64(2) if type_ == "e2m1" and bits == 8 else found


# -- kernels -----------------------------------------------------------------------------------


def opcode(form: Form, ordered: bool) -> str:
    """The spelling."""
    d = form.accumulator
    name = "mma.sp::ordered_metadata" if ordered else "mma.sp"
    tail = f".{form.scale}" if form.scale else ""
    shape = f"m16n8k{form.k}.row.col{form.middle}"
    return f"{name}.sync.aligned.{shape}.{d}.{form.a}.{form.b}.{d}{tail}"


def numbers(values: NDArray[Any], type_: str) -> NDArray[np.uint64]:
    """Accumulators as patterns."""
    if type_ == "s32":
        return values.astype(np.int32).view(np.uint32).astype(np.uint64)
    floats, bits = (np.float16, np.uint16) if type_ == "f16" else (np.float32, np.uint32)
    return values.astype(floats).view(bits).astype(np.uint64)


def run(
    form: Form,
    a: NDArray[np.uint64],
    b: NDArray[np.uint64],
    c: NDArray[np.uint64],
    e: Words,
    selector: int = 0,
    ordered: bool = False,
    scales: tuple[Words, Words] | None = None,
    ids: tuple[str, str] = ("{0, 0}", "{0, 0}"),
) -> tuple[NDArray[np.uint64], ptxsim.Report, int]:
    """D [W, 16, 8], the report, and the line of the instruction; all operands are patterns."""
    shaped = Instruction("mma", (16, 8, form.k), "", "", "", "", "", "")
    of_c = list(accumulator_elements(form.accumulator, shaped))
    words = [
        scatter(factor("a", form.k // 2, form.bits), a, "b32"),
        scatter(factor("b", form.k, form.bits), b, "b32"),
        scatter(of_c, c, form.accumulator),
        e,
        *(scales or ()),
    ]
    words.append(np.zeros_like(words[2]))
    uses = [*"abce", *("xy" if scales else ""), "d"]
    counts = {use: w.shape[-1] for use, w in zip(uses, words, strict=True)}
    kinds = {use: register_type(form.accumulator) for use in "cd"}
    declare = [f".reg {kinds.get(u, '.b32')} %{u}<{counts[u]}>;" for u in uses]
    lines = [x for n, u in enumerate(uses[:-1]) for x in move("ld", u, n, counts[u], 4)]
    operands = [*(group(u, counts[u]) for u in "dabc"), "%e0", str(selector)]
    if scales:
        operands += ["%x0", ids[0], "%y0", ids[1]]
    lines.append(f"{opcode(form, ordered)} {', '.join(operands)}; // here")
    lines += move("st", "d", len(uses) - 1, counts["d"], 4)
    text = entry(form.header + ".address_size 64\n", declare, len(uses), lines)
    report = ptxsim.assemble(text).kernel().launch(grid=len(a), block=32, args=words)
    line = 1 + text[: text.index("// here")].count("\n")
    return gather(of_c, words[-1], form.accumulator, c.shape), report, line


def tiles(form: Form, warps: int) -> tuple[Integers, Integers, Integers]:
    """Stored A, B and C of small integers."""
    low_a, high_a = INTEGERS.get(form.a, (-2, 3))
    low_b, high_b = INTEGERS.get(form.b, (-2, 3))
    return (
        RNG.integers(low_a, high_a, (warps, 16, form.k // 2)),
        RNG.integers(low_b, high_b, (warps, form.k, 8)),
        RNG.integers(-50, 51, (warps, 16, 8)),
    )


def check_product(form: Form, selector: int, ordered: bool, warps: int = 4) -> None:
    """D of random operands and metadata is that of the dense product."""
    a, b, c = tiles(form, warps)
    legal = legal_entries(form, ordered or bool(form.middle))
    entries = RNG.choice(legal, (warps, 16, form.k // form.chunk))
    scales = None
    ids = ["{0, 0}", "{0, 0}"]
    weights = [np.ones((warps, n, max(form.scales, 1))) for n in (16, 8)]
    if form.scales:
        known = SCALES[form.scale]
        weights = [RNG.choice(list(known), x.shape) for x in weights]
        words = []
        byte = int(RNG.choice({1: [0, 1, 2, 3], 2: [0, 2], 4: [0]}[form.scales]))
        options = Options(byte=byte, thread_a=int(RNG.integers(2)), thread_b=int(RNG.integers(4)))
        for use, weight in zip("ab", weights, strict=True):
            codes = np.vectorize(known.get)(weight).astype(np.uint64)
            words.append(scale_words(codes, use, options))
        scales = (words[0], words[1])
        ids = [f"{{{byte}, {options.thread_a}}}", f"{{{byte}, {options.thread_b}}}"]
    d, report, line = run(
        form, patterns(a, form.a, form.bits), patterns(b, form.b, form.bits),
        numbers(c, form.accumulator), metadata(form, entries, selector), selector, ordered,
        scales, (ids[0], ids[1]),
    )  # fmt: skip
    dense, size = decompressed(form, a, entries), form.k // weights[0].shape[2]
    block_a = dense * np.repeat(weights[0], size, axis=2)
    block_b = b * np.repeat(weights[1], size, axis=2).transpose(0, 2, 1)
    assert np.array_equal(d, numbers(block_a @ block_b + c, form.accumulator))
    check_advice(form, report, line)


def check_advice(form: Form, report: ptxsim.Report, line: int) -> None:
    """Floats have the advice, once, that no evidence tells how they are rounded."""
    found = [(f.class_, f.code, f.severity, f.line) for f in report.findings]
    advice = ("rounding-not-established", "PTX380", Severity.ADVICE, line)
    assert found == ([] if form.exact else [advice])
    assert report.clean


SELECTED = [(form, f) for form in PLAIN for f in range(form.selectors)]


@pytest.mark.parametrize(("form", "selector"), SELECTED, ids=str)
def test_product(form: Form, selector: int) -> None:
    check_product(form, selector, ordered=False)


@pytest.mark.parametrize(("form", "selector"), SELECTED, ids=str)
def test_ordered_product(form: Form, selector: int) -> None:
    check_product(form, selector, ordered=True, warps=2)


@pytest.mark.parametrize("form", ORDERED, ids=str)
def test_product_of_ordered_forms(form: Form) -> None:
    check_product(form, 0, ordered=True, warps=3)


@pytest.mark.parametrize("form", [f for f in PLAIN if f.exact], ids=str)
def test_other_metadata_is_seen(form: Form) -> None:
    """One entry with its positions exchanged changes D, so the products above prove the maps."""
    a, b, c = tiles(form, 1)
    a[:, 11, :4], b[:] = np.array([1, 2, 3, 4]), np.arange(form.k)[:, None] % 8
    entries = np.full((1, 16, form.k // form.chunk), 0b1000)
    bits_a, bits_b = patterns(a, form.a, form.bits), patterns(b, form.b, form.bits)
    results = []
    for pick in (0b1000, 0b0010):
        entries[0, 11, 0] = pick
        results.append(run(form, bits_a, bits_b, numbers(c, "s32"), metadata(form, entries, 0))[0])
    changed = (results[0] != results[1]).any(axis=(0, 2))
    assert np.flatnonzero(changed).tolist() == [11]


@pytest.mark.slow
@pytest.mark.parametrize("form", [*PLAIN, *ORDERED], ids=str)
def test_many_products(form: Form) -> None:
    for ordered in (True,) if form in ORDERED else (False, True):
        for selector in range(form.selectors):
            check_product(form, selector, ordered, warps=64)


# -- metadata ----------------------------------------------------------------------------------

FLOATS = [f for f in PLAIN if f.b in INFINITE and f.a in VALUES and f.accumulator == "f32"]


@pytest.mark.parametrize("form", FLOATS, ids=str)
def test_infinity_where_a_has_no_element(form: Form) -> None:
    """Skipped elements of B are not multiplied by zero, which would give NaN."""
    a, b, c = tiles(form, 1)
    pick = legal_entries(form, True)[0]  # columns 0 and 1 of 4, or 0 of 2: the same in all rows
    entries = np.full((1, 16, form.k // form.chunk), pick)
    used = np.zeros(form.k, bool)
    used[columns(form, entries)[0, 0]] = True
    bits_b = patterns(b, form.b, form.bits)
    bits_b[:, ~used] = INFINITE[form.b]
    bits_a, bits_c = patterns(a, form.a, form.bits), numbers(c, "f32")
    d, report, line = run(form, bits_a, bits_b, bits_c, metadata(form, entries, 0))
    expected = decompressed(form, a, entries) @ b + c
    assert np.array_equal(d, numbers(expected, "f32"))
    check_advice(form, report, line)
    # an infinity where A has an element is not skipped
    kept = int(np.flatnonzero(used)[0])
    bits_b[0, kept, 5] = INFINITE[form.b]
    a[:, :, 0] = 1
    d, _, _ = run(form, patterns(a, form.a, form.bits), bits_b, bits_c, metadata(form, entries, 0))
    assert set(d[0, :, 5].tolist()) == {0x7F800000}
    assert not np.isinf(np.delete(d, 5, axis=2).astype(np.uint32).view(np.float32)).any()


def metadata_finding(form: Form, entries: Integers, ordered: bool) -> ptxsim.Finding | None:
    """The finding of class sparse-metadata at the instruction, None if there is none."""
    a, b, c = tiles(form, len(entries))
    scales = None
    if form.scales:
        ones = np.full((len(entries), 16, form.scales), SCALES[form.scale][1], np.uint64)
        scales = (scale_words(ones, "a", Options()), scale_words(ones[:, :8], "b", Options()))
    _, report, line = run(
        form, patterns(a, form.a, form.bits), patterns(b, form.b, form.bits),
        numbers(c, form.accumulator), metadata(form, entries, 0), 0, ordered, scales,
    )  # fmt: skip
    found = [f for f in report.findings if f.class_ != "rounding-not-established"]
    if not found:
        return None
    (finding,) = found
    assert (finding.class_, finding.code, finding.line) == ("sparse-metadata", "PTX329", line)
    assert finding.severity is Severity.ERROR
    return finding


def names_of(form: Form, row: int, chunk: int) -> str:
    """How a message names an entry's place in A."""
    return f"of row {row}, columns {chunk * form.chunk} to {chunk * form.chunk + form.chunk - 1} of"


ONE_OF_EACH = {(f.k, f.bits): f for f in PLAIN}


@pytest.mark.parametrize("form", ONE_OF_EACH.values(), ids=str)
@pytest.mark.parametrize("ordered", [False, True])
def test_every_entry(form: Form, ordered: bool) -> None:
    """Legal entries at any place; each other one at a random place of legal metadata."""
    legal = legal_entries(form, ordered)
    shape = (1, 16, form.k // form.chunk)
    every = np.stack([np.full(shape[1:], value) for value in legal])
    assert metadata_finding(form, every, ordered) is None
    for value in set(range(16)) - set(legal):
        row, chunk = int(RNG.integers(16)), int(RNG.integers(shape[2]))
        entries = RNG.choice(legal, shape)
        right = metadata(form, entries, 0)
        entries[0, row, chunk] = value
        finding = metadata_finding(form, entries, ordered)
        assert finding is not None
        assert f"entry {value:#06b} {names_of(form, row, chunk)}" in finding.message
        lanes = np.flatnonzero((metadata(form, entries, 0) != right).any(axis=2)[0])
        assert list(finding.lanes) == lanes.tolist()


@pytest.mark.parametrize("form", [f for f in ORDERED if f.middle], ids=str)
def test_float_kinds_are_ordered(form: Form) -> None:
    entries = np.full((1, 16, form.k // form.chunk), 0b1110)
    assert metadata_finding(form, entries, True) is None
    entries[0, 9, 3] = 0b0001  # descending: legal in mma.sp only
    finding = metadata_finding(form, entries, True)
    assert finding is not None
    assert names_of(form, 9, 3) in finding.message
    assert "in ascending order" in str(finding.help)


def codes(line: str, declare: str, head: str) -> list[str]:
    """The codes of the errors of one instruction."""
    text = f"{head}.address_size 64\n.visible .entry k()\n{{\n{declare}\n{line}\nret;\n}}\n"
    try:
        ptxsim.assemble(text)
    except ptxsim.PtxError as error:
        return [d.code for d in error.diagnostics]
    return []


def instruction(form: Form, selector: int, ordered: bool, ids: tuple[str, str]) -> str:
    """One instruction over registers %r, and %c for accumulators."""
    accumulators = group("c" if form.accumulator == "f32" else "r", 4)
    if form.accumulator == "f16":
        accumulators = group("r", 2)
    factors = group("r", form.k * form.bits // 128)
    operands = [accumulators, factors, factors, accumulators, "%r0", str(selector)]
    if form.scales:
        operands += ["%r1", ids[0], "%r2", ids[1]]
    return f"{opcode(form, ordered)} {', '.join(operands)};"


DECLARE = ".reg .b32 %r<8>; .reg .f32 %c<4>;"


@pytest.mark.parametrize("form", [*ONE_OF_EACH.values(), *ORDERED], ids=str)
def test_constant_selector(form: Form) -> None:
    ids = ("{0, 0}", "{0, 0}")
    for selector in range(6):
        line = instruction(form, selector, form in ORDERED, ids)
        found = codes(line, DECLARE, form.header)
        assert bool(found) == (selector >= form.selectors), (selector, found)


# -- scale selectors ---------------------------------------------------------------------------

SCALED = [f for f in ORDERED if f.scales and f.a in ("e4m3", "e2m1")]


#: The block-scaled kinds of mma, and how many scales a row has
DENSE = (
    ("m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e2m1.f32.ue8m0", 1),
    ("m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0", 2),
    ("m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", 4),
)
BYTES = {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)}


def scaled_lines(ids_a: str, ids_b: str) -> Iterator[tuple[int, str]]:
    """How many scales, and the instruction, for each block-scaled kind, dense and sparse."""
    for spelling, count in DENSE:
        operands = "{%c0, %c1, %c2, %c3}, {%r0, %r1, %r2, %r3}, {%r0, %r1}, {%c0, %c1, %c2, %c3}"
        scales = f"%r4, {ids_a}, %r5, {ids_b}"
        yield count, f"mma.sync.aligned.{spelling} {operands}, {scales};"
    for form in SCALED:
        yield form.scales, instruction(form, 0, True, (ids_a, ids_b))


HEAD = ".version 9.1\n.target sm_120a\n"


@pytest.mark.parametrize("use", ["a", "b"])
def test_constant_scale_ids(use: str) -> None:
    """Byte ids are multiples of the number of scales, thread ids 0, 1 for A and 0 to 3 for B."""
    for byte, thread in ((0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (0, 1), (0, 2), (0, 3), (0, 4)):
        pair = f"{{{byte}, {thread}}}"
        ids = (pair, "{0, 0}") if use == "a" else ("{0, 0}", pair)
        for scales, line in scaled_lines(*ids):
            legal = byte in BYTES[scales] and thread < (2 if use == "a" else 4)
            assert bool(codes(line, DECLARE, HEAD)) == (not legal), line


def scale_findings(line: str, setup: str) -> list[ptxsim.Finding]:
    """The findings of one instruction whose registers are all defined."""
    text = (
        f"{HEAD}.address_size 64\n.visible .entry k()\n{{\n{DECLARE}\n"
        ".reg .b16 %h<4>; .reg .pred %p; .reg .b32 %t;\nmov.u32 %t, %tid.x;\n"
        + "".join(f"mov.b32 %r{n}, 0x44444444;\n" for n in range(8))
        + "".join(f"mov.f32 %c{n}, 0f00000000;\n" for n in range(4))
        + "".join(f"mov.b16 %h{n}, 0;\n" for n in range(4))
        + f"{setup}\n{line} // here\nret;\n}}\n"
    )
    report = ptxsim.assemble(text).kernel().launch(grid=1, block=32, args=[])
    at = 1 + text[: text.index("// here")].count("\n")
    assert all(f.line == at for f in report.findings)
    return [f for f in report.findings if f.class_ != "rounding-not-established"]


@pytest.mark.parametrize("register", range(4))
def test_scale_ids_in_registers(register: int) -> None:
    word = "byte" if register % 2 == 0 else "thread"
    for scales, line in scaled_lines("{%h0, %h1}", "{%h2, %h3}"):
        legal = BYTES[scales] if word == "byte" else range(2 if register < 2 else 4)
        for value in (1, 2, 3, 4, 256):
            findings = scale_findings(line, f"mov.b16 %h{register}, {value};")
            assert (not findings) == (value in legal)
            for finding in findings:
                assert (finding.class_, finding.code) == ("scale-selector", "PTX362")
                use = "AB"[register // 2]
                assert f"{word} id {value} of scale {use} in" in finding.message
                assert finding.lanes == tuple(range(32))


def test_scale_ids_that_differ_between_lanes() -> None:
    for register in (1, 3):  # thread ids 0 and 1 are both legal
        setup = f"setp.eq.u32 %p, %t, 21;\n@%p mov.b16 %h{register}, 1;"
        for _, line in scaled_lines("{%h0, %h1}", "{%h2, %h3}"):
            (finding,) = scale_findings(line, setup)
            assert (finding.class_, finding.lanes) == ("scale-selector", (21,))
            assert not scale_findings(line, setup.replace("@%p ", ""))


# -- rounding that is not established ----------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "advised"),
    [("75", False), ("80", False), ("86", False), ("89", False), ("90", False), ("100a", False),
     ("120a", False), ("88", True), ("103a", True), ("110a", True), ("121a", True)],
)  # fmt: skip
@pytest.mark.parametrize("types", ["f16", "s8"])
def test_dense_products(target: str, advised: bool, types: str) -> None:
    """Only machines that were measured, or whose model was confirmed, have established bits."""
    shape = {"f16": "m16n8k8", "s8": "m8n8k16"}[types]
    d = "f32" if types == "f16" else "s32"
    count, a = (4, 2) if types == "f16" else (2, 1)
    c = group("c" if types == "f16" else "r", count)
    line = f"mma.sync.aligned.{shape}.row.col.{d}.{types}.{types}.{d}"
    line += f" {c}, {group('r', a)}, {{%r3}}, {c};"
    text = (
        f".version 9.1\n.target sm_{target}\n.address_size 64\n.visible .entry k()\n{{\n"
        f"{DECLARE}\n"
        + "".join(f"mov.b32 %r{n}, 0;\n" for n in range(4))
        + "".join(f"mov.f32 %c{n}, 0f00000000;\n" for n in range(4))
        + f"{line}\n{line}\nret;\n}}\n"
    )
    report = ptxsim.assemble(text).kernel().launch(grid=2, block=64, args=[])
    found = [(f.class_, f.code, f.severity) for f in report.findings]
    advice = ("rounding-not-established", "PTX380", Severity.ADVICE)
    assert found == [advice] * (2 if advised and types == "f16" else 0)  # once an instruction
    assert report.clean

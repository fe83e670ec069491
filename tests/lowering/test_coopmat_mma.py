"""Cooperative matrices by mma.sync: the same bits as wmma, and integers as in plain arithmetic."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_judge import judged
from numpy.typing import NDArray

import ptxsim
from lowering.coopmat.mma import Mma
from lowering.coopmat.via import Tile
from lowering.coopmat.vocabulary import COMPONENTS, Config, Fragment, Shape
from ptxsim import UsageError
from ptxsim.build import Address, Kernel, Register, Special
from ptxsim.matrix import wmma_fragment, wmma_registers

Bytes = NDArray[np.uint8]

LARGE = (Shape(16, 16, 16), Shape(32, 8, 16), Shape(8, 32, 16))
NIBBLES, BITS = Shape(8, 8, 32), Shape(8, 8, 128)

#: All that wmma computes on sm_80 with equal types of c and result (PTX ISA 9.1, wmma.mma).
WMMA = [
    *(Config(s, "f16", "f16", t, t) for s in LARGE for t in ("f16", "f32")),
    *(Config(s, "bf16", "bf16", "f32", "f32") for s in LARGE),
    *(
        Config(s, t, t, "s32", "s32", saturating)
        for s, types in (*((s, ("s8", "u8")) for s in LARGE), (NIBBLES, ("s4", "u4")))
        for t in types
        for saturating in (False, True)
    ),
    Config(Shape(16, 16, 8), "tf32", "tf32", "f32", "f32"),
    *(
        Config(Shape(8, 8, 4), "f64", "f64", "f64", "f64", modifier=r)
        for r in ("", "rn", "rz", "rm", "rp")
    ),
    *(Config(BITS, "b1", "b1", "s32", "s32", modifier=m) for m in ("xor", "and")),
]

#: What mma has beyond: factors of different signs, and sums of u32 by the same instructions.
MIXED = [
    *(
        Config(s, a, b, "s32", "s32", saturating)
        for s, types in (*((s, ("s8", "u8")) for s in LARGE), (NIBBLES, ("s4", "u4")))
        for a, b in itertools.permutations(types)
        for saturating in (False, True)
    ),
    *(Config(s, "u8", "u8", "u32", "u32") for s in LARGE),
    Config(NIBBLES, "u4", "u4", "u32", "u32"),
]

#: Layouts of A, B, C and the result.
LAYOUTS = list(itertools.product(("row", "col"), repeat=4))
PACKED = [x for x in LAYOUTS if x[:2] == ("row", "col")]


@dataclass(frozen=True)
class Case:
    """One kernel: loads, a product and a store."""

    config: Config
    layouts: tuple[str, ...]
    space: str
    constant: bool
    #: bytes of which a stride is a multiple; wmma needs 32 for some fragments
    align: int = 32

    def __str__(self) -> str:
        words = (str(self.config).replace(" ", "-"), "".join(x[0] for x in self.layouts))
        return "-".join((*words, self.space, "constant" if self.constant else "register"))

    def stride(self, at: int) -> int:
        """Elements from one line to the next, more than a line has."""
        fragment, layout = self.config.fragments()[at], self.layouts[at]
        line = fragment.columns if layout == "row" else fragment.rows
        per = self.align * 8 // COMPONENTS[fragment.component][0]
        return (line // per + 1) * per

    def size(self, at: int) -> int:
        """Bytes of a matrix, filled up for the copy to shared memory."""
        fragment, layout = self.config.fragments()[at], self.layouts[at]
        lines = fragment.rows if layout == "row" else fragment.columns
        count = lines * self.stride(at) * COMPONENTS[fragment.component][0] // 8
        return -(-count // 512) * 512


# --- kernels --------------------------------------------------------------------------------------


def kernel(case: Case, way: str, target: str = "sm_80", version: Any = None) -> Kernel:
    """The kernel of a case by ``mma`` or ``wmma``."""
    k = Kernel("product", target=target, version=version)
    pointers = [k.parameter(x, "u64") for x in "abcd"]
    numbers = [k.parameter(f"stride_{x}", "u32") for x in "abcd"]
    outer = [k.new("ld.param.u64", "b64", Address(p)) for p in pointers]
    strides: list[Register | int] = [case.stride(n) for n in range(4)]
    if not case.constant:
        strides = [k.new("ld.param.u32", "b32", Address(p)) for p in numbers]
    inner = outer
    if case.space == "shared":
        arrays = [k.shared(f"tile_{x}", case.size(n), 32) for n, x in enumerate("abcd")]
        inner = [k.new("mov.u64", "b64", x) for x in arrays]
        for n in range(4):
            copy(k, case.size(n), ("global", outer[n]), ("shared", inner[n]))
        k.emit("bar.sync", 0)
    tiles = [
        Tile(f, layout, case.space, address, stride)
        for f, layout, address, stride in zip(
            case.config.fragments(), case.layouts, inner, strides, strict=True
        )
    ]
    (by_mma if way == "mma" else by_wmma)(k, case.config, tiles)
    if case.space == "shared":
        k.emit("bar.sync", 0)
        copy(k, case.size(3), ("shared", inner[3]), ("global", outer[3]))
    return k


def copy(k: Kernel, size: int, source: tuple[str, Register], target: tuple[str, Register]) -> None:
    """Copy bytes by all lanes."""
    lane = k.new("mov.u32", "b32", Special("%laneid"))
    near, far = (k.new("mad.wide.u32", "b64", lane, 16, x[1]) for x in (source, target))
    words = k.registers("b32", 4)
    for at in range(0, size, 512):
        k.emit(f"ld.{source[0]}.v4.b32", words, Address(near, at))
        k.emit(f"st.{target[0]}.v4.b32", Address(far, at), words)


def by_mma(k: Kernel, config: Config, tiles: Sequence[Tile]) -> None:
    via = Mma(k, int(k.target[3:].rstrip("af")))
    a, b, c, d = (k.registers(*Mma.registers(t.fragment)) for t in tiles)
    for tile, registers in zip(tiles[:3], (a, b, c), strict=True):
        via.load(tile, registers)
    via.muladd(config, (tiles[0].layout, tiles[1].layout), d, a, b, c)
    via.store(tiles[3], d)


def by_wmma(k: Kernel, config: Config, tiles: Sequence[Tile]) -> None:
    s = config.shape
    shape = f"m{s.m}n{s.n}k{s.k}"
    groups = []
    for use, tile in zip("abcd", tiles, strict=True):
        type_ = tile.fragment.component
        count = wmma_registers(use, (s.m, s.n, s.k), type_)
        groups.append(k.registers(type_ if type_ in ("f32", "f64") else "b32", count))
        if use != "d":
            k.emit(
                f"wmma.load.{use}.sync.aligned.{tile.layout}.{shape}.{tile.space}.{type_}",
                groups[-1], Address(tile.address), tile.stride,
            )  # fmt: skip
    types = [config.result, config.c] if config.a == "f16" else [config.result, config.a, config.b]
    types += [] if config.a == "f16" else [config.c]
    head = f"wmma.mma{f'.{config.modifier}.popc' * (config.a == 'b1')}.sync.aligned"
    head += f".{tiles[0].layout}.{tiles[1].layout}.{shape}"
    if config.a == "f64" and config.modifier:
        head += f".{config.modifier}"
    tail = ".satfinite" * config.saturating
    a, b, c, d = groups
    k.emit(f"{head}.{'.'.join(types)}{tail}", d, a, b, c)
    k.emit(
        f"wmma.store.d.sync.aligned.{tiles[3].layout}.{shape}.{tiles[3].space}.{config.result}",
        Address(tiles[3].address), d, tiles[3].stride,
    )  # fmt: skip


def run(text: str, case: Case, matrices: Sequence[Bytes]) -> Bytes:
    """The bytes of the result."""
    out = matrices[3].copy()
    arguments = [*matrices[:3], out, *(case.stride(n) for n in range(4))]
    report = ptxsim.assemble(text).kernel().launch(grid=1, block=32, args=arguments)
    assert report.clean, report.findings
    return out


# --- data -----------------------------------------------------------------------------------------

#: Bits of the sign, of one, and of some values that follow rules of their own: infinity, a quiet
#: and a signalling NaN, the least and the greatest subnormal, -0 (IEEE 754; bfloat16 and tf32 are
#: cut from binary32).
SPECIAL: dict[str, tuple[str, list[int]]] = {
    "f16": ("<u2", [0x7C00, 0xFC00, 0x7E01, 0x7D00, 0x0001, 0x03FF, 0x8000]),
    "bf16": ("<u2", [0x7F80, 0xFF80, 0x7FC1, 0x7F81, 0x0001, 0x007F, 0x8000]),
    "f32": ("<u4", [0x7F800000, 0xFF800000, 0x7FC00001, 0x7F800001, 1, 0x007FFFFF, 1 << 31]),
    "f64": ("<u8", [0x7FF << 52, 0xFFF << 52, 0xFFF8 << 48, (0x7FF << 52) + 1, 1, 1 << 63]),
}
SPECIAL["tf32"] = SPECIAL["f32"]


def filled(component: str, size: int, rng: np.random.Generator) -> Bytes:
    """Random bytes, or floats near one with some special values among them."""
    if component not in SPECIAL:
        return rng.integers(0, 256, size, np.uint8)
    word, special = SPECIAL[component]
    count = size // np.dtype(word).itemsize
    values = rng.standard_normal(count)
    if component == "bf16":
        bits = (values.astype("<f4").view("<u4") >> 16).astype("<u2")
    elif component == "tf32":
        bits = values.astype("<f4").view("<u4") & np.uint32(0xFFFFE000)
    else:
        bits = values.astype("<f" + word[2]).view(word)
    for value in special:
        bits[rng.integers(0, count)] = value
    return bits.view(np.uint8)


def matrices(case: Case, seed: int = 0) -> list[Bytes]:
    rng = np.random.default_rng(seed)
    out = [filled(f.component, case.size(n), rng) for n, f in enumerate(case.config.fragments())]
    if case.config.saturating:  # sums near both ends
        c = out[2].view("<i4")
        c[:] = np.where(c < 0, -(1 << 31), (1 << 31) - 1) + (c & 4095) * np.where(c < 0, 1, -1)
    return out


def elements(case: Case, at: int, given: Bytes) -> NDArray[np.int64]:
    """A matrix of integers."""
    fragment, layout = case.config.fragments()[at], case.layouts[at]
    bits = COMPONENTS[fragment.component][0]
    if bits == 4:
        flat = np.stack([given & 15, given >> 4], axis=-1).reshape(-1).astype(np.int64)
    else:
        flat = given.view(f"<u{bits // 8}").astype(np.int64)
    if fragment.component.startswith("s"):
        flat -= (flat >> (bits - 1)) << bits
    rows, columns = fragment.rows, fragment.columns
    lines, length = (rows, columns) if layout == "row" else (columns, rows)
    stride = case.stride(at)
    matrix = flat[: lines * stride].reshape(lines, stride)[:, :length]
    return matrix if layout == "row" else matrix.T


def expected(case: Case, given: Sequence[Bytes]) -> NDArray[np.int64]:
    """The result in plain arithmetic; low 32 bits, or the nearest s32."""
    a, b, c = (elements(case, n, given[n]) for n in range(3))
    total = a @ b + c
    if case.config.saturating:
        return np.clip(total, -(1 << 31), (1 << 31) - 1)
    bits = total & 0xFFFFFFFF
    return bits - ((bits >> 31) << 32) if case.config.result == "s32" else bits


# --- results --------------------------------------------------------------------------------------


def cases(configs: Sequence[Config], some: bool) -> Iterator[Case]:
    """All kernels, or some that hold each layout, space and kind of stride for every config."""
    for number, config in enumerate(configs):
        packed = config.a in ("s4", "u4", "b1")
        layouts = PACKED if packed else LAYOUTS
        kinds = list(itertools.product(("global", "shared"), (False, True)))
        if not some:
            yield from (Case(config, x, *kind) for x in layouts for kind in kinds)
            continue
        # A and B in all pairs, and both layouts of C and of the result
        chosen = PACKED if packed else [LAYOUTS[n] for n in (0, 7, 9, 14)]
        for n, x in enumerate(chosen):
            yield Case(config, x, *kinds[(n + number) % 4])


SOME_WMMA, SOME_MIXED = (list(cases(configs, True)) for configs in (WMMA, MIXED))
ALL_WMMA, ALL_MIXED = (list(cases(configs, False)) for configs in (WMMA, MIXED))


def same_as_wmma(case: Case, text: str) -> bool:
    """Whether a kernel gives the bits of the one that is written with wmma."""
    given = matrices(case)
    want = run(kernel(case, "wmma").text(), case, given)
    assert not np.array_equal(want, given[3])
    return np.array_equal(run(text, case, given), want)


def same_as_integers(case: Case, text: str) -> bool:
    """Whether a kernel gives what plain arithmetic does."""
    given = matrices(case)
    return np.array_equal(elements(case, 3, run(text, case, given)), expected(case, given))


@pytest.mark.parametrize("case", SOME_WMMA, ids=str)
def test_same_bits_as_wmma(case: Case) -> None:
    assert same_as_wmma(case, kernel(case, "mma").text())


@pytest.mark.slow
@pytest.mark.parametrize("case", ALL_WMMA, ids=str)
def test_same_bits_as_wmma_in_all_layouts(case: Case) -> None:
    assert same_as_wmma(case, kernel(case, "mma").text())


@pytest.mark.parametrize("case", SOME_MIXED, ids=str)
def test_integers(case: Case) -> None:
    assert same_as_integers(case, kernel(case, "mma").text())


@pytest.mark.slow
@pytest.mark.parametrize("case", ALL_MIXED, ids=str)
def test_integers_in_all_layouts(case: Case) -> None:
    assert same_as_integers(case, kernel(case, "mma").text())


# Both checks fail for a kernel with one small error.
HALVES = Case(WMMA[0], ("row", "row", "col", "row"), "shared", constant=True)
TURNED = Case(MIXED[4 * 2], ("row", "col", "row", "row"), "global", constant=True)
CLAMPED = Case(MIXED[1], ("col", "col", "row", "row"), "global", constant=True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"\.x4\.trans\.", ".x4."),
        (r"(\.x4\.shared\.b16 \{%r\d+), (%r\d+), (%r\d+)", r"\1, \3, \2"),
        (r"(mad\.wide\.s32 %rd\d+, %r\d+), 64", r"\1, 32"),
        (r"\+528\]", "+512]"),
        (r"(mma\.sync.* \{)(%r\d+), (%r\d+)(\};)", r"\1\3, \2\4"),
    ],
)
def test_an_error_is_seen_against_wmma(old: str, new: str) -> None:
    text = kernel(HALVES, "mma").text()
    changed = re.sub(old, new, text)
    assert same_as_wmma(HALVES, text) and changed != text
    assert not same_as_wmma(HALVES, changed)


@pytest.mark.parametrize(
    ("case", "old", "new"),
    [
        (TURNED, r"\.(.8)\.(.8)\.s32 ", r".\2.\1.s32 "),
        (CLAMPED, r"\.satfinite", ""),
        (CLAMPED, r", 21520;", ", 4180;"),  # 0x5410 and 0x1054
    ],
)
def test_an_error_is_seen_against_integers(case: Case, old: str, new: str) -> None:
    text = kernel(case, "mma").text()
    changed = re.sub(old, new, text)
    assert same_as_integers(case, text) and changed != text
    assert not same_as_integers(case, changed)


# --- fragments ------------------------------------------------------------------------------------

FRAGMENTS = list(dict.fromkeys(f for c in (*WMMA, *MIXED) for f in c.fragments()))
PLACES = [
    (f, layout, space)
    for f in FRAGMENTS
    for layout in ("row", "col")
    for space in ("global", "shared")
    if f.component not in ("s4", "u4", "b1") or (f.use, layout) in (("a", "row"), ("b", "col"))
]
#: bytes of the array with the matrix
SIZE = 8192


@dataclass(frozen=True)
class Move:
    """A load of a fragment, whose registers go to an array by lane, or a store from there."""

    fragment: Fragment
    layout: str
    space: str
    store: bool
    stride: int
    constant: bool
    #: bytes from the start of the array to element (0, 0)
    start: int

    def kernel(self) -> Kernel:
        k = Kernel("move")
        memory, lanes = (k.parameter(x, "u64") for x in ("memory", "lanes"))
        number = k.parameter("stride", "u32")
        base, dump = (k.new("ld.param.u64", "b64", Address(p)) for p in (memory, lanes))
        inner = base
        if self.space == "shared":
            inner = k.new("mov.u64", "b64", k.shared("tile", SIZE, 32))
            copy(k, SIZE, ("global", base), ("shared", inner))
            k.emit("bar.sync", 0)
        via = Mma(k, 80)
        stride: Register | int = self.stride
        if not self.constant:
            stride = k.new("ld.param.u32", "b32", Address(number))
        at = k.new("add.s64", "b64", inner, self.start)
        tile = Tile(self.fragment, self.layout, self.space, at, stride)
        type_, count = Mma.registers(self.fragment)
        registers = k.registers(type_, count)
        lane = k.new("mov.u32", "b32", Special("%laneid"))
        size = 8 if type_ == "f64" else 4
        dump = k.new("mad.wide.u32", "b64", lane, size * count, dump)
        if not self.store:
            via.load(tile, registers)
        for n, register in enumerate(registers):
            where, kind = Address(dump, n * size), f"global.{type_}"
            k.emit(
                *(
                    (f"ld.{kind}", register, where)
                    if self.store
                    else (f"st.{kind}", where, register)
                )
            )
        if self.store:
            via.store(tile, registers)
            if self.space == "shared":
                k.emit("bar.sync", 0)
                copy(k, SIZE, ("shared", inner), ("global", base))
        return k

    def places(self) -> NDArray[np.intp]:
        """The byte of the array that each byte of the registers is, by lane."""
        f, s = self.fragment, self.fragment.shape
        bits = COMPONENTS[f.component][0]
        type_ = "s32" if f.component == "u32" else f.component
        held = wmma_fragment({"accumulator": "c"}.get(f.use, f.use), (s.m, s.n, s.k), type_, 80, "")
        kind, count = Mma.registers(f)
        # once each: wmma's registers of f16 start with one copy
        first = slice(0, count * (64 if kind == "f64" else 32) // bits, max(8 // bits, 1))
        row, column = held.row[:, first], held.column[:, first]
        line, position = (row, column) if self.layout == "row" else (column, row)
        at = self.start + (line * self.stride + position) * bits // 8
        return (at[:, :, None] + np.arange(max(bits // 8, 1))).reshape(32, -1)

    def run(self, memory: Bytes, lanes: Bytes) -> Any:
        return (
            self.kernel()
            .assemble()
            .kernel()
            .launch(grid=1, block=32, args=[memory, lanes, np.int32(self.stride)])
        )


def odd_stride(fragment: Fragment, layout: str, align: int) -> int:
    """A stride longer than a line, of an odd number of times the alignment."""
    bits = COMPONENTS[fragment.component][0]
    line = (fragment.columns if layout == "row" else fragment.rows) * bits // 8
    times = line // align + 1
    return (times + 1 - times % 2) * align * 8 // bits


def check_move(move: Move) -> None:
    """The right bytes move, and no others change."""
    rng = np.random.default_rng(7)
    places = move.places()
    memory = rng.integers(0, 256, SIZE, np.uint8)
    lanes = rng.integers(0, 256, places.size, np.uint8)
    before, given = memory.copy(), lanes.copy()
    report = move.run(memory, lanes)
    assert report.clean, report.findings
    if move.store:
        before[places] = given.reshape(places.shape)
    assert np.array_equal(memory, before)
    assert np.array_equal(lanes.reshape(places.shape), memory[places])


def moves() -> Iterator[Move]:
    """Every load and store with the least alignment that is needed."""
    for fragment, layout, space in PLACES:
        for store in (False, True)[: 1 + (fragment.use == "accumulator")]:
            align = Mma.alignment(fragment, layout, space, store)
            stride = odd_stride(fragment, layout, align)
            for constant in (False, True):
                yield Move(fragment, layout, space, store, stride, constant, align)


MOVES = list(moves())


def name(move: Move) -> str:
    words = ("store" if move.store else "load", str(move.fragment).replace(" ", "-"), move.layout)
    return "-".join((*words, move.space, "constant" if move.constant else "register"))


@pytest.mark.slow
@pytest.mark.parametrize("move", MOVES, ids=name)
def test_moves(move: Move) -> None:
    check_move(move)


@pytest.mark.parametrize("move", MOVES[::5], ids=name)
def test_some_moves(move: Move) -> None:
    check_move(move)


def misaligned(move: Move) -> bool:
    classes = {f.class_ for f in move.run(*(np.zeros(SIZE, np.uint8) for _ in range(2))).findings}
    assert classes <= {f"misaligned-{move.space}"}
    return bool(classes)


#: One of each fragment, layout, space and direction that needs an alignment at all.
ALIGNED = [m for m in MOVES if m.constant and m.start > 1]


def check_alignment(move: Move) -> None:
    """Half of it is not enough, neither of the address nor, if it is whole elements, the stride."""
    half = move.start // 2
    bits = COMPONENTS[move.fragment.component][0]
    assert not misaligned(move)
    assert misaligned(replace(move, start=half))
    if 8 * half >= bits:
        assert misaligned(replace(move, stride=move.stride + 8 * half // bits))


@pytest.mark.slow
@pytest.mark.parametrize("move", ALIGNED, ids=name)
def test_the_alignment_is_needed(move: Move) -> None:
    check_alignment(move)


@pytest.mark.parametrize("move", ALIGNED[::9], ids=name)
def test_some_alignment_is_needed(move: Move) -> None:
    check_alignment(move)


# --- code -----------------------------------------------------------------------------------------


def written(
    fragment: Fragment, layout: str, space: str, stride: int | None, store: bool = False
) -> list[str]:
    """The opcodes of a load or store; the stride is in a register if none is given."""
    k = Kernel("count")
    via = Mma(k, 80)
    address, lines = k.register("b64"), k.register("b32")
    registers = k.registers(*Mma.registers(fragment))
    before = len(k.body_text().splitlines())
    tile = Tile(fragment, layout, space, address, lines if stride is None else stride)
    (via.store if store else via.load)(tile, registers)
    return [line.split()[0] for line in k.body_text().splitlines()[before:]]


X16, X32, X8 = LARGE
ACC = "accumulator"


@pytest.mark.parametrize(
    ("fragment", "layout", "space", "access", "others"),
    [
        (Fragment("a", X16, "f16"), "row", "shared", {"ldmatrix.x4.b16": 1}, 4),
        (Fragment("a", X16, "f16"), "col", "shared", {"ldmatrix.x4.trans.b16": 1}, 4),
        (Fragment("b", X16, "bf16"), "row", "shared", {"ldmatrix.x4.trans.b16": 1}, 4),
        (Fragment("b", X16, "f16"), "col", "shared", {"ldmatrix.x4.b16": 1}, 4),
        (Fragment("a", X32, "f16"), "row", "shared", {"ldmatrix.x4.b16": 2}, 1),
        (Fragment("a", X32, "f16"), "col", "shared", {"ldmatrix.x4.trans.b16": 2}, 4),
        (Fragment("b", X32, "f16"), "col", "shared", {"ldmatrix.x2.b16": 1}, 5),
        (Fragment("b", X32, "f16"), "row", "shared", {"ldmatrix.x2.trans.b16": 1}, 2),
        (Fragment("b", X8, "f16"), "row", "shared", {"ldmatrix.x4.trans.b16": 2}, 4),
        (Fragment(ACC, X16, "f16"), "row", "shared", {"ldmatrix.x4.b16": 1}, 4),
        (Fragment("a", X16, "s8"), "row", "shared", {"ldmatrix.x2.b16": 1}, 2),
        (Fragment("a", X32, "s8"), "row", "shared", {"ldmatrix.x4.b16": 1}, 1),
        (Fragment("b", X32, "u8"), "col", "shared", {"ldmatrix.x1.b16": 1}, 2),
        (Fragment("a", X16, "s8"), "col", "shared", {"ld.u8": 8}, 2 + 6),
        (Fragment("a", Shape(16, 16, 8), "tf32"), "row", "shared", {"ldmatrix.x4.b16": 1}, 4),
        (Fragment("b", Shape(16, 16, 8), "tf32"), "col", "shared", {"ldmatrix.x4.b16": 1}, 4),
        (Fragment("b", Shape(16, 16, 8), "tf32"), "row", "shared", {"ld.b32": 4}, 2),
        (Fragment("a", NIBBLES, "u4"), "row", "shared", {"ldmatrix.x1.b16": 1}, 2),
        (Fragment("b", BITS, "b1"), "col", "shared", {"ldmatrix.x1.b16": 1}, 2),
        (Fragment("a", X16, "f16"), "row", "global", {"ld.b32": 4}, 2),
        (Fragment("a", X16, "f16"), "col", "global", {"ld.b16": 8}, 2 + 4),
        (Fragment("a", X16, "s8"), "row", "global", {"ld.b32": 2}, 2),
        (Fragment(ACC, X16, "f32"), "row", "global", {"ld.v2.f32": 4}, 2),
        (Fragment(ACC, X16, "s32"), "row", "shared", {"ld.v2.b32": 4}, 2),
        (Fragment(ACC, X16, "f32"), "col", "global", {"ld.f32": 8}, 2),
        (Fragment(ACC, X8, "f32"), "row", "global", {"ld.f32": 8}, 2),
        (Fragment(ACC, X8, "f32"), "col", "global", {"ld.v2.f32": 4}, 2),
        (Fragment("a", Shape(8, 8, 4), "f64"), "row", "global", {"ld.f64": 1}, 2),
        (Fragment(ACC, Shape(8, 8, 4), "f64"), "row", "global", {"ld.v2.f64": 1}, 2),
    ],
)
def test_instructions_of_a_load(
    fragment: Fragment, layout: str, space: str, access: dict[str, int], others: int
) -> None:
    """Counted by hand: accesses, then all other instructions, with a constant stride."""
    opcodes = written(fragment, layout, space, 32 * 16)
    found = Counter(
        re.sub(r"\.(sync\.aligned\.m8n8|shared|global)", "", x)
        for x in opcodes
        if x.startswith("ld")
    )
    assert found == access
    assert len(opcodes) - found.total() == others


@pytest.mark.parametrize(
    ("layout", "access", "others"),
    [("row", {"st.global.v2.f32": 4}, 4), ("col", {"st.global.f32": 8}, 6)],
)
def test_instructions_of_a_store(layout: str, access: dict[str, int], others: int) -> None:
    """A stride in a register costs a shift for the line, and an address for each line but one:
    one more line (g + 8) by rows, three (2t + 1, and both eight on) by columns."""
    opcodes = written(Fragment(ACC, X16, "f32"), layout, "global", None, store=True)
    found = Counter(x for x in opcodes if x.startswith("st."))
    assert found == access
    assert len(opcodes) - found.total() == others


def test_a_stride_in_a_register_costs_one_shift_for_matrices() -> None:
    opcodes = written(Fragment("a", X32, "f16"), "row", "shared", None)
    assert opcodes[:2] == ["shl.b32", "mad.wide.s32"]
    assert all(x.startswith("ldmatrix") for x in opcodes[2:]) and len(opcodes) == 4


# --- strides --------------------------------------------------------------------------------------


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(
    ("space", "layout"), [("shared", "row"), ("global", "row"), ("global", "col")]
)
def test_a_stride_can_be_negative(space: str, layout: str, constant: bool) -> None:
    """The last line comes first: line n of 16 starts 64 * (15 - n) bytes on."""
    check_move(Move(Fragment("a", X16, "f16"), layout, space, False, -32, constant, 64 * 15))


@pytest.mark.parametrize("bits", [16, 4])
@pytest.mark.parametrize("space", ["shared", "global"])
def test_a_large_constant_goes_through_a_register(
    space: str, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where offsets would need more than 32 bits; the limit is lowered, as memory is small."""
    monkeypatch.setattr("lowering.coopmat.mma._MAX_STRIDE", 1000)
    fragment = Fragment("a", X16, "f16") if bits == 16 else Fragment("a", NIBBLES, "s4")
    move = Move(fragment, "row", space, False, 64, True, 16)
    check_move(move)
    assert "mov.b32 %r" in move.kernel().text()


def test_the_largest_stride_gives_legal_offsets() -> None:
    """As long as 64 strides stay below 2^31 bytes, twice what the lines of a tile need."""
    largest = (1 << 31) // 64 - 16
    for stride, moved in ((largest // 2, False), (largest // 2 + 8, True)):
        opcodes = written(Fragment("b", X8, "f16"), "col", "global", stride)
        assert ("mov.b32" in opcodes) == moved


@pytest.mark.parametrize(
    ("component", "shape", "stride", "told"),
    [
        ("s4", NIBBLES, 33, "a stride of 33 elements of 4 bits is no whole bytes"),
        ("b1", BITS, 129, "a stride of 129 elements of 1 bits is no whole bytes"),
        ("s8", X16, 1 << 31, "a stride of 2147483648 elements does not fit in 32 bits"),
    ],
)
def test_strides_that_cannot_be(component: str, shape: Shape, stride: int, told: str) -> None:
    with pytest.raises(UsageError, match=f"^{told}$"):
        written(Fragment("a", shape, component), "row", "global", stride)


# --- refusals -------------------------------------------------------------------------------------

GOOD = Config(X16, "f16", "f16", "f32", "f32")
BYTE = Config(X16, "s8", "u8", "s32", "s32", saturating=True)


@pytest.mark.parametrize(
    "config", [*WMMA, *MIXED, replace(BYTE, saturating=False, c="u32")], ids=str
)
def test_takes(config: Config) -> None:
    assert Mma.decline(config, 80, (7, 1)) is None


SCOPE = "mma.sync multiplies in a subgroup, not in the scope workgroup"
SHAPE = "no product by mma.sync has the shape 16x8x16"
PAIR = "mma.sync does not multiply f16 by f16 in the shape 16x16x8"
MIX = "mma.sync takes c and gives the result in one type, not c in f16 and the result in f32"
FINITE = "a product of {} has no .satfinite; only integers of 8 and 4 bits have it"
CLAMP = "a saturating sum is s32; .satfinite does not clamp to u32"
SUM = "mma.sync does not accumulate bf16 * bf16 in f16"


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (replace(GOOD, scope="workgroup"), SCOPE),
        (replace(GOOD, shape=Shape(16, 8, 16)), SHAPE),
        (replace(GOOD, shape=Shape(16, 16, 8)), PAIR),
        (replace(GOOD, b="bf16"), "mma.sync does not multiply f16 by bf16 in the shape 16x16x16"),
        (replace(GOOD, c="s32"), "mma.sync does not accumulate f16 * f16 in s32"),
        (replace(GOOD, a="bf16", b="bf16", c="f16"), SUM),
        (replace(GOOD, c="f16"), MIX),
        (replace(GOOD, saturating=True), FINITE.format("f16")),
        (replace(WMMA[-1], saturating=True), FINITE.format("b1")),
        (replace(BYTE, c="u32", result="u32"), CLAMP),
        (replace(BYTE, c="u32"), CLAMP),
        (replace(GOOD, modifier="rn"), "a product of f16 has no modifier rn"),
        (replace(WMMA[-3], modifier="xor"), "a product of f64 has no modifier xor"),
        (replace(WMMA[-1], modifier=""), "a product of b1 needs the modifier xor or and"),
    ],
)
def test_declines(config: Config, told: str) -> None:
    assert Mma.decline(config, 90, (8, 0)) == ("R32", told)


def test_says_what_it_can() -> None:
    """Every stride must be aligned, and signs may differ (MIXED above)."""
    assert not Mma.packs and Mma.mixes


def test_declines_targets_and_versions() -> None:
    """Floors of the tables of ptxsim.isa: 7.0 and sm_80, and 7.1 for and."""
    old = "mma.sync of these shapes needs sm_80, the target is sm_75"
    assert Mma.decline(GOOD, 75, (8, 0)) == ("R31", old)
    newer = "mma.sync of 16x16x16 needs PTX ISA 7.0, not 6.5"
    assert Mma.decline(GOOD, 80, (6, 5)) == ("R31", newer)
    assert Mma.decline(GOOD, 80, (7, 0)) is Mma.decline(WMMA[-2], 80, (7, 0)) is None
    told = "mma.sync with the modifier and needs PTX ISA 7.1, not 7.0"
    assert Mma.decline(WMMA[-1], 80, (7, 0)) == ("R31", told)
    with pytest.raises(UsageError, match=f"^{old}$"):
        Mma(Kernel("old", target="sm_75"), 75)


@pytest.mark.parametrize("config", [GOOD, WMMA[-2], WMMA[-1], MIXED[0], WMMA[-8]], ids=str)
def test_the_least_version_is_enough(config: Config) -> None:
    """The builder checks every instruction against its floor."""
    version = (7, 1) if config.modifier == "and" else (7, 0)
    case = Case(config, ("row", "col", "row", "row"), "shared", constant=True)
    assert ".version 7." in kernel(case, "mma", version=version).text()


def test_fragments_that_are_none() -> None:
    with pytest.raises(UsageError, match=r"^mma.sync has no fragment a 16x16x16 f32 subgroup$"):
        Mma.registers(Fragment("a", X16, "f32"))
    with pytest.raises(UsageError, match=r"^mma.sync has no fragment b 8x8x8 f16 subgroup$"):
        Mma.alignment(Fragment("b", Shape(8, 8, 8), "f16"), "row", "global", False)
    with pytest.raises(UsageError, match=r"^b 8x8x32 s4 subgroup has the layout col, not row$"):
        written(Fragment("b", NIBBLES, "s4"), "row", "global", 64)
    with pytest.raises(UsageError, match=r"^an accumulator is stored, not a 16x16x16 f16 subgr"):
        written(Fragment("a", X16, "f16"), "row", "global", 64, store=True)


@pytest.mark.parametrize(
    ("fragment", "expected"),
    [
        (Fragment("a", X16, "f16"), ("b32", 4)),
        (Fragment("b", X32, "f16"), ("b32", 2)),
        (Fragment("a", X32, "bf16"), ("b32", 8)),
        (Fragment("a", X8, "s8"), ("b32", 1)),
        (Fragment("b", X8, "u8"), ("b32", 4)),
        (Fragment("b", Shape(16, 16, 8), "tf32"), ("b32", 4)),
        (Fragment("a", Shape(8, 8, 4), "f64"), ("f64", 1)),
        (Fragment("b", BITS, "b1"), ("b32", 1)),
        (Fragment(ACC, X16, "f16"), ("b32", 4)),
        (Fragment(ACC, X16, "f32"), ("f32", 8)),
        (Fragment(ACC, X32, "u32"), ("b32", 8)),
        (Fragment(ACC, NIBBLES, "s32"), ("b32", 2)),
        (Fragment(ACC, Shape(8, 8, 4), "f64"), ("f64", 2)),
    ],
)  # fmt: skip
def test_registers(fragment: Fragment, expected: tuple[str, int]) -> None:
    """Elements of the matrix over 32 lanes, in registers of 32 or 64 bits."""
    assert Mma.registers(fragment) == expected


# --- ptxas ----------------------------------------------------------------------------------------


ASSEMBLED = [
    Case(c, ("row", "col", "row", "row"), "shared" if n % 2 else "global", constant=n % 3 == 0)
    for n, c in enumerate((*WMMA, *MIXED))
]


@pytest.mark.ptxas
@pytest.mark.parametrize("case", ASSEMBLED[::6], ids=str)
def test_ptxas_takes_some(case: Case, tmp_path: Path) -> None:
    assert judged(kernel(case, "mma").text(), tmp_path) == ""


@pytest.mark.slow
@pytest.mark.ptxas
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
@pytest.mark.parametrize("case", ASSEMBLED, ids=str)
def test_ptxas_takes(case: Case, target: str, tmp_path: Path) -> None:
    assert judged(kernel(case, "mma", target).text(), tmp_path) == ""


@pytest.mark.ptxas
def test_ptxas_refuses_an_error(tmp_path: Path) -> None:
    text = kernel(ASSEMBLED[0], "mma").text()
    assert "error" in judged(text.replace(".row.col.f16.", ".row.row.f16."), tmp_path)

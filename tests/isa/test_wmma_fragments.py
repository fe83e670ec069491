"""wmma on every target: exact products in all forms, and which lane holds which element.

Fragment maps are formulas written down again here, as they were read from the code that the CUDA
assemblers make; nothing is taken from ptxsim.matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from matrix_kernels import group, run
from numpy.typing import NDArray

import ptxsim
from ptxsim.diagnostics import Severity

RNG = np.random.default_rng(13)
LARGE = ("m16n16k16", "m32n8k16", "m8n32k16")
LAYOUTS = ("row", "col")
BITS = {
    "f64": 64, "f32": 32, "s32": 32, "tf32": 32, "f16": 16, "bf16": 16, "s8": 8, "u8": 8,
    "s4": 4, "u4": 4, "b1": 1,
}  # fmt: skip
#: Registers of A and B by the table of PTX ISA 9.1, "Matrix Fragments for WMMA".
FACTOR_REGISTERS = {
    "f16": {"m16n16k16": (8, 8), "m32n8k16": (8, 8), "m8n32k16": (8, 8)},
    "bf16": {"m16n16k16": (4, 4), "m32n8k16": (8, 2), "m8n32k16": (2, 8)},
    "s8": {"m16n16k16": (2, 2), "m32n8k16": (4, 1), "m8n32k16": (1, 4)},
    "tf32": {"m16n16k8": (4, 4)}, "f64": {"m8n8k4": (1, 1)}, "s4": {"m8n8k32": (1, 1)},
    "b1": {"m8n8k128": (1, 1)},
}  # fmt: skip
FACTOR_REGISTERS |= {"u8": FACTOR_REGISTERS["s8"], "u4": FACTOR_REGISTERS["s4"]}


def extents(shape: str) -> tuple[int, int, int]:
    """m, n and k of a shape."""
    m, rest = shape[1:].split("n")
    n, k = rest.split("k")
    return int(m), int(n), int(k)


def registers(use: str, shape: str, type_: str) -> int:
    """How many registers a fragment has."""
    if use in "ab":
        return FACTOR_REGISTERS[type_][shape]["ab".index(use)]
    m, n, _ = extents(shape)
    return m * n // (64 if type_ == "f16" else 32)


def header(target: str) -> str:
    """A PTX version that knows the target."""
    number = int(target.rstrip("af"))
    version = "9.0" if number >= 100 else "8.0" if number >= 80 else "6.5"
    return f".version {version}\n.target sm_{target}\n"


# -- elements and tiles in memory --------------------------------------------------------------


def encoded(tile: NDArray[Any], type_: str) -> NDArray[Any]:
    """Integers as patterns, an item for each element."""
    if type_ in ("f32", "tf32", "f64", "f16"):
        floats = {"f16": np.float16, "f64": np.float64}.get(type_, np.float32)
        unsigned = {"f16": np.uint16, "f64": np.uint64}.get(type_, np.uint32)
        return tile.astype(floats).view(unsigned)
    if type_ == "bf16":
        return (tile.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if type_ == "s32":
        return tile.astype(np.int32).view(np.uint32)
    return (tile & ((1 << BITS[type_]) - 1)).astype(np.uint8)


def packed(lines: NDArray[Any], type_: str) -> NDArray[np.uint8]:
    """Lines of patterns as bytes; elements below eight bits from the low bits upward."""
    width = BITS[type_]
    if width >= 8:
        return np.ascontiguousarray(lines).view(np.uint8)
    bits = lines[..., None] >> np.arange(width, dtype=np.uint8) & 1
    octets = np.packbits(bits.reshape(len(lines), -1), axis=-1, bitorder="little")
    return np.ascontiguousarray(octets)


def in_memory(tile: NDArray[Any], type_: str, layout: str, stride: int) -> NDArray[np.uint8]:
    """A tile of integers as the bytes of its lines, ``stride`` elements apart; gaps are zero."""
    lines = tile.T if layout == "col" else tile
    padded = np.zeros((lines.shape[0], stride), np.int64)
    padded[:, : lines.shape[1]] = lines
    return packed(encoded(padded, type_), type_)


@dataclass(frozen=True, slots=True)
class Form:
    """One wmma.mma: shape, types of A and B, C, D, and what follows the opcode."""

    shape: str
    factor: str
    c: str
    d: str
    first: int
    head: str = ""
    tail: str = ""

    @property
    def name(self) -> str:
        """The id of the test."""
        return f"{self.shape}.{self.d}.{self.factor}.{self.c}{self.head}{self.tail}"

    @property
    def layouts(self) -> list[tuple[str, str]]:
        """The legal pairs of layouts."""
        return [("row", "col")] if BITS[self.factor] < 8 else list(product(LAYOUTS, LAYOUTS))


def forms() -> Iterator[Form]:
    """Every accepted form with the first target that has it (measured with the assemblers)."""
    for shape in LARGE:
        for c, d in product(("f16", "f32"), ("f16", "f32")):
            yield Form(shape, "f16", c, d, 70)
        yield Form(shape, "bf16", "f32", "f32", 80)
        for factor, finite in product(("s8", "u8"), ("", ".satfinite")):
            yield Form(shape, factor, "s32", "s32", 72, tail=finite)
    yield Form("m16n16k8", "tf32", "f32", "f32", 80)
    for rounding in ("", ".rn", ".rz", ".rm", ".rp"):
        yield Form("m8n8k4", "f64", "f64", "f64", 80, head=rounding)
    for factor, finite in product(("s4", "u4"), ("", ".satfinite")):
        yield Form("m8n8k32", factor, "s32", "s32", 75, tail=finite)
    yield Form("m8n8k128", "b1", "s32", "s32", 75, head=".xor.popc")
    yield Form("m8n8k128", "b1", "s32", "s32", 80, head=".and.popc")


LIMITS = {"s8": (-128, 128), "u8": (0, 256), "s4": (-8, 8), "u4": (0, 16), "b1": (0, 2)}
SPACES = (".global", ".shared", "")
STRIDES = ("", "packed", "wide")


def expected(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any], head: str) -> NDArray[Any]:
    """A * B + C of integers; .xor.popc counts the bits that differ."""
    terms = a[:, :, None] ^ b[None] if "xor" in head else a[:, :, None] * b[None]
    total: NDArray[Any] = terms.sum(axis=1) + c
    return total


def product_body(
    form: Form, layouts: tuple[str, ...], strides: list[int], space: str, sizes: list[int]
) -> tuple[str, str]:
    """The instructions and declarations of one product over buffers 0 to 3."""
    la, lb = layouts[:2]
    types = dict(zip("abcd", (form.factor, form.factor, form.c, form.d), strict=True))
    kinds = {"f32": ".f32", "f64": ".f64"}
    declare, lines, copies, back = [], [], [], []
    groups = {}
    for n, use in enumerate("abcd"):
        count = registers(use, form.shape, types[use])
        declare.append(f".reg {kinds.get(types[use], '.b32')} %w{use}<{count}>;")
        groups[use] = group(f"w{use}", count)
        where = f"%b{n}"
        if space != ".global":
            declare.append(f".shared .align 32 .b8 s{use}[{sizes[n]}];\n.reg .b64 %s{use};")
            copies.append(copy_bytes(f"s{use}", n, sizes[n], "in"))
            copies.append(f"mov.u64 %s{use}, s{use};")
            if not space:
                copies.append(f"cvta.shared.u64 %s{use}, %s{use};")
            where = f"%s{use}"
        layout = layouts[n]
        tail = f"sync.aligned.{layout}.{form.shape}{space}.{types[use]}"
        step = f", {strides[n]}" if strides else ""
        if use == "d":
            factors = "" if form.factor == "f16" else f".{form.factor}.{form.factor}"
            rounding = form.head if form.factor == "f64" else ""
            operation = form.head if form.factor == "b1" else ""
            opcode = f"wmma.mma{operation}.sync.aligned.{la}.{lb}.{form.shape}{rounding}"
            opcode += f".{form.d}{factors}.{form.c}{form.tail}"
            lines.append(f"{opcode} {', '.join(groups[u] for u in 'dabc')};")
            lines.append(f"wmma.store.d.{tail} [{where}], {groups[use]}{step};")
            if space != ".global":
                back.append("bar.sync 0;\n" + copy_bytes("sd", n, sizes[n], "out"))
        else:
            lines.append(f"wmma.load.{use}.{tail} {groups[use]}, [{where}]{step};")
    return "\n".join([*copies, "bar.sync 0;", *lines, *back]), "\n".join(declare)


def copy_bytes(variable: str, buffer: int, size: int, direction: str) -> str:
    """Copy a buffer to a shared variable or back, four bytes at a time by all lanes."""
    loads = ("ld.global.b32 %r2, [%d1];", "st.shared.b32 [%r1], %r2;")
    stores = ("ld.shared.b32 %r2, [%r1];", "st.global.b32 [%d1], %r2;")
    name = f"{direction}_{variable}"
    return "\n".join(
        (
            f"mov.u32 %r1, {variable};\nmad.lo.u32 %r1, %t, 4, %r1;",
            f"mad.wide.u32 %d1, %t, 4, %b{buffer};\nmov.u32 %r3, %t;",
            f"{name}: setp.lt.u32 %p1, %r3, {size // 4};",
            *(f"@%p1 {x}" for x in (loads if direction == "in" else stores)),
            "add.u32 %r1, %r1, 128;\nadd.u64 %d1, %d1, 128;\nadd.u32 %r3, %r3, 32;",
            f"setp.lt.u32 %p2, %r3, {size // 4};\n@%p2 bra {name};",
        )
    )


def multiply(
    form: Form, target: str, layouts: tuple[str, ...], space: str = ".global", stride: str = ""
) -> None:
    """One product against NumPy, without stride operand or with ``packed`` or ``wide`` lines."""
    m, n, k = extents(form.shape)
    low, high = LIMITS.get(form.factor, (-4, 5))
    tiles = {"a": RNG.integers(low, high, (m, k)), "b": RNG.integers(low, high, (k, n))}
    tiles["c"] = RNG.integers(-50, 51, (m, n))
    tiles["d"] = np.zeros((m, n), np.int64)
    types = (form.factor, form.factor, form.c, form.d)
    memory, strides = [], []
    for (tile, type_), layout in zip(zip(tiles.values(), types, strict=True), layouts, strict=True):
        length = tile.shape[0] if layout == "col" else tile.shape[1]
        # from line to line more than a line has, and 32 bytes or more in every type
        wide = max(2 * length, 256 // BITS[type_])
        strides.append(wide if stride == "wide" else length)
        memory.append(in_memory(tile, type_, layout, strides[-1]))
    sizes = [x.size for x in memory]
    body, declare = product_body(form, layouts, strides if stride else [], space, sizes)
    report = run(body, *memory, declare=declare, head=header(target))
    # no measured results of f16 on sm_72; integers and f64 are exact by definition
    advice = ["rounding-not-established"] * (form.factor == "f16" and target == "72")
    assert [f.class_ for f in report.findings] == advice
    d = expected(tiles["a"], tiles["b"], tiles["c"], form.head)
    right = in_memory(d, form.d, layouts[3], strides[3])
    if form.head == ".rm":  # a sum of zero is -0
        assert memory[3].view(np.float64).tolist() == right.view(np.float64).tolist()
    else:
        assert np.array_equal(memory[3], right)


TARGETS = ("70", "72", "75", "80", "90", "120")
CASES = [
    pytest.param(form, target, i, id=f"{form.name}-sm_{target}")
    for i, (form, target) in enumerate(product(forms(), TARGETS))
    if int(target) >= form.first
]


@pytest.mark.parametrize(("form", "target", "number"), CASES)
def test_product(form: Form, target: str, number: int) -> None:
    """Each form on each target, with layouts, space and stride that go round."""
    pair = form.layouts[number % len(form.layouts)]
    rest = (LAYOUTS[number // 2 % 2], LAYOUTS[number // 3 % 2])
    multiply(form, target, (*pair, *rest), SPACES[number % 3], STRIDES[number // 3 % 3])


@pytest.mark.slow
@pytest.mark.parametrize(("form", "target", "number"), CASES)
def test_every_combination(form: Form, target: str, number: int) -> None:
    choices = product(form.layouts, LAYOUTS, LAYOUTS)
    for i, (pair, lc, ld) in enumerate(choices, number):
        multiply(form, target, (*pair, lc, ld), SPACES[i % 3], STRIDES[i // 3 % 3])


# -- which lane holds what ---------------------------------------------------------------------


def holds(
    use: str, shape: str, type_: str, target: int, layout: str, place: tuple[int, int, int]
) -> tuple[int, int]:
    """Row and column of element e of register i of lane l, ``place`` being (l, i, e)."""
    lane, i, e = place
    g, t = lane >> 2, lane & 3
    if target < 75 and (type_ == "f16" or (use == "c" and type_ == "f32")):
        return volta(use, shape, type_, layout, lane, 2 * i + e if type_ == "f16" else i)
    if use == "c":
        j = 2 * i + e if type_ == "f16" else i
        return accumulator(shape, type_, target, g, t, j)
    if type_ in ("f16", "bf16"):
        return half_factor(use, shape, g, 2 * t + e, i)
    per = max(32 // BITS[type_], 1)
    line, depth = g + 8 * i, per * t + e
    if type_ == "tf32":
        line, depth = (g + 8 * (i & 1), t + 4 * (i >> 1)) if use == "a" else (
            g + 8 * (i >> 1), t + 4 * (i & 1))  # fmt: skip
    return (line, depth) if use == "a" else (depth, line)


def half_factor(use: str, shape: str, g: int, pair: int, i: int) -> tuple[int, int]:
    """A and B of f16 and bf16 from sm_75 on; registers beyond the tile repeat it."""
    low, middle, high = i & 1, i >> 1 & 1, i >> 2
    rows = extents(shape)["ab".index(use)]
    if rows == 8:
        line, depth = g, pair + 8 * low
    elif rows == 32:
        line, depth = g + 8 * low + 16 * high, pair + 8 * middle
    elif use == "a":
        line, depth = g + 8 * low, pair + 8 * middle
    else:
        line, depth = g + 8 * middle, pair + 8 * low
    return (line, depth) if use == "a" else (depth, line)


def accumulator(shape: str, type_: str, target: int, g: int, t: int, j: int) -> tuple[int, int]:
    """C and D from sm_75 on."""
    pair = 2 * t + (j & 1)
    if shape.startswith("m16n16"):
        return g + 8 * (j >> 1 & 1), pair + 8 * (j >> 2)
    if shape == "m8n32k16":
        if type_ == "s32" and target < 80:
            return g, pair + 8 * (j >> 1)
        return pair, g + 8 * (j >> 1)
    return g + 8 * (j >> 1), pair


def volta(use: str, shape: str, type_: str, layout: str, lane: int, j: int) -> tuple[int, int]:
    """sm_70: A and B of f16 depend on the layout they are loaded with."""
    q, h2, h3, h4 = lane & 3, lane >> 2 & 1, lane >> 3 & 1, lane >> 4
    row = 4 * h4 + {"m16n16k16": 8 * h2, "m32n8k16": 8 * h2 + 16 * h3, "m8n32k16": 0}[shape]
    column = {"m16n16k16": 8 * h3, "m32n8k16": 0, "m8n32k16": 8 * h2 + 16 * h3}[shape]
    if use == "c" and type_ == "f16":
        return q + row, column + j
    if use == "c":
        down = (lane & 1) + 2 * (j >> 1 & 1)
        return down + row, 2 * (lane >> 1 & 1) + (j & 1) + 4 * (j >> 2) + column
    if use == "a":
        return (q + row, j) if layout == "row" else (row + (j & 3), q + 4 * (j >> 2))
    column += 4 * h4
    return (j, q + column) if layout == "col" else (q + 4 * (j >> 2), column + (j & 3))


def tile_of(use: str, shape: str) -> tuple[int, int]:
    """Rows and columns of A, B, or C and D."""
    m, n, k = extents(shape)
    return {"a": (m, k), "b": (k, n)}.get(use, (m, n))


@dataclass(frozen=True, slots=True)
class Fragment:
    """A fragment on a target, with its registers in a kernel."""

    use: str
    shape: str
    type: str
    target: str
    layout: str

    def __str__(self) -> str:
        return f"{self.use}.{self.layout}.{self.shape}.{self.type}-sm_{self.target}"

    @property
    def count(self) -> int:
        """Registers of a lane."""
        return registers(self.use, self.shape, self.type)

    def words(self, tile: NDArray[Any]) -> NDArray[Any]:
        """Registers [lane, register] of a tile of bit patterns, by formula."""
        width = BITS[self.type]
        wide = np.uint64 if width == 64 else np.uint32
        out = np.zeros((32, self.count), wide)
        target = int(self.target.rstrip("af"))
        for place in np.ndindex(32, self.count, max(32 // width, 1)):
            row, column = holds(self.use, self.shape, self.type, target, self.layout, place)
            lane, i, e = place
            out[lane, i] |= wide(int(tile[row, column]) << width * e)
        return out

    def planes(self) -> list[NDArray[Any]]:
        """The number of each element (row-major), in as many pieces as fit an element."""
        rows, columns = tile_of(self.use, self.shape)
        number, width = np.arange(rows * columns).reshape(rows, columns), BITS[self.type]
        dtype = {64: np.uint64, 32: np.uint32, 16: np.uint16}.get(width, np.uint8)
        count = -(-(rows * columns - 1).bit_length() // width)
        mask = (1 << min(width, 16)) - 1
        return [(number >> width * p & mask).astype(dtype) for p in range(count)]

    def stored(self, tile: NDArray[Any]) -> NDArray[np.uint8]:
        """The tile in memory."""
        return packed(tile.T if self.layout == "col" else tile, self.type)

    def registers(self, opcode: str, buffer: int) -> str:
        """Load (``ld``) or store all registers of the lane from or to a buffer."""
        size = 8 if BITS[self.type] == 64 else 4
        lines = [f"mad.wide.u32 %d1, %t, {size * self.count}, %b{buffer};"]
        for k in range(self.count):
            place, register = f"[%d1+{size * k}]", f"%w{k}"
            pair = f"{register}, {place}" if opcode == "ld" else f"{place}, {register}"
            lines.append(f"{opcode}.global.b{8 * size} {pair};")
        return "\n".join(lines)

    @property
    def declare(self) -> str:
        """The registers %w."""
        return f".reg {({'f32': '.f32', 'f64': '.f64'}).get(self.type, '.b32')} %w<{self.count}>;"

    def transfer(self, operation: str, buffer: int) -> str:
        """A wmma.load or wmma.store of the registers."""
        use = "d" if operation == "store" else self.use
        opcode = (
            f"wmma.{operation}.{use}.sync.aligned.{self.layout}.{self.shape}.global.{self.type}"
        )
        where, registers = f"[%b{buffer}]", group("w", self.count)
        operands = f"{registers}, {where}" if operation == "load" else f"{where}, {registers}"
        return f"{opcode} {operands};"


def fragments() -> Iterator[Fragment]:
    """A, B and C of every type on every target whose map is known."""
    for target in ("70", "72", "75", "80", "90", "100", "120"):
        number = int(target)
        for shape, layout in product(LARGE, LAYOUTS):
            for use, type_ in product("ab", ("f16", "bf16", "s8", "u8")):
                if number >= {"f16": 70, "bf16": 80}.get(type_, 72):
                    yield Fragment(use, shape, type_, target, layout)
            for type_ in ("f16", "f32", "s32"):
                # m8n32k16 of s32 differs between sm_75 and sm_80, and is not known for sm_72
                if type_ != "s32" or number >= (75 if shape == "m8n32k16" else 72):
                    yield Fragment("c", shape, type_, target, layout)
        for layout in LAYOUTS if number >= 80 else ():
            yield from (Fragment(u, "m16n16k8", "tf32", target, layout) for u in "ab")
            yield Fragment("c", "m16n16k8", "f32", target, layout)
            yield from (Fragment(u, "m8n8k4", "f64", target, layout) for u in "abc")
        if number >= 75:
            for shape, types in (("m8n8k32", ("s4", "u4")), ("m8n8k128", ("b1",))):
                for type_ in types:
                    yield Fragment("a", shape, type_, target, "row")
                    yield Fragment("b", shape, type_, target, "col")
                yield Fragment("c", shape, "s32", target, "row")


def measured(f: Fragment) -> bool:
    """Whether the map was read from machine code; elsewhere it is that of sm_70, 75 or 80."""
    return (
        f.target in ("70", "75", "80")
        or (f.shape == "m16n16k16" and f.type != "u8")
        or (f.shape, f.type, f.use) == ("m8n32k16", "s32", "c")
    )


#: Maps that were not measured are those of relatives, and belong to the slow tests.
FRAGMENTS = [
    pytest.param(f, id=str(f), marks=[] if measured(f) else [pytest.mark.slow]) for f in fragments()
]
ACCUMULATORS = [
    pytest.param(f, id=str(f), marks=[] if measured(f) else [pytest.mark.slow])
    for f in fragments()
    if f.use == "c"
]


def held(fragment: Fragment, tile: NDArray[Any]) -> tuple[NDArray[Any], ptxsim.Report]:
    """The registers [lane, register] after wmma.load."""
    out = np.zeros((32, fragment.count), np.uint64 if BITS[fragment.type] == 64 else np.uint32)
    body = f"{fragment.transfer('load', 0)}\n{fragment.registers('st', 1)}"
    memory = fragment.stored(tile)
    report = run(body, memory, out, declare=fragment.declare, head=header(fragment.target))
    return out, report


@pytest.mark.parametrize("fragment", FRAGMENTS)
def test_lanes_of_a_load(fragment: Fragment) -> None:
    for tile in fragment.planes():
        out, report = held(fragment, tile)
        assert out.tolist() == fragment.words(tile).tolist()
        assert report.clean
        assert {(f.class_, f.severity) for f in report.findings} == {
            ("wmma-fragment", Severity.ADVICE)
        }


@pytest.mark.parametrize("fragment", ACCUMULATORS)
def test_lanes_of_a_store(fragment: Fragment) -> None:
    """Registers filled lane by lane, which wmma.store lays out as wmma.load does."""
    for tile in fragment.planes():
        out = np.zeros_like(fragment.stored(tile))
        body = f"{fragment.registers('ld', 0)}\n{fragment.transfer('store', 1)}"
        words = fragment.words(tile)
        assert not run(
            body, words, out, declare=fragment.declare, head=header(fragment.target)
        ).findings
        assert np.array_equal(out, fragment.stored(tile))


@pytest.mark.parametrize("target", ["86", "87", "89", "103", "121"])
def test_lanes_on_targets_whose_map_is_not_known(target: str) -> None:
    fragment = Fragment("c", "m16n16k16", "f32", target, "row")
    (tile,) = fragment.planes()
    out, report = held(fragment, tile)
    assert out.tolist() == fragment.words(tile).tolist()
    assert report.clean
    assert {f.severity for f in report.findings} == {Severity.WARNING}
    assert all(f"the map of sm_{target} is not known" in f.message for f in report.findings)


def test_maps_differ() -> None:
    """The tests can tell a map from another one: targets, layouts of sm_70, and types."""
    a, c = ("a", "m16n16k16", "f16"), ("c", "m16n16k16", "f32")
    wide = ("c", "m8n32k16", "s32")
    pairs = [
        (Fragment(*a, "70", "row"), Fragment(*a, "75", "row")),
        (Fragment(*a, "70", "row"), Fragment(*a, "70", "col")),
        (Fragment(*wide, "75", "row"), Fragment(*wide, "80", "row")),
        (Fragment(*c, "70", "row"), Fragment(*c, "80", "row")),
    ]
    for one, other in pairs:
        (tile,) = one.planes()
        assert held(one, tile)[0].tolist() != held(other, tile)[0].tolist()

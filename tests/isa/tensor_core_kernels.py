"""Kernels of one mma or wmma instruction, with register fragments built by formula on the host.

The fragment formulas are those of PTX ISA, "Matrix Fragments for mma..." written down again here;
nothing is shared with ptxsim.  Every CTA is one warp that holds one tile product (four with
m8n8k4 of f16, whose quad pairs are independent).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ptxsim
from tests.numerics.tensor_core_model import Instruction, parse

__all__ = ["Options", "multiply"]

Tiles = NDArray[np.uint64]
Words = NDArray[Any]
_WIDTHS = {"f64": 64, "f32": 32, "s32": 32, "tf32": 32, "f16": 16, "bf16": 16, "s4": 4, "u4": 4}
_WIDTHS["b1"] = 1
_BIT_TYPES = {16: np.uint16, 32: np.uint32, 64: np.uint64}


@dataclass(frozen=True, slots=True)
class Options:
    """Modifiers of an instruction, and where its scale factors lie."""

    layouts: tuple[str, str] = ("row", "col")
    satfinite: bool = False
    bit_operation: str = ""
    rounding: str = ""
    byte: int = 0
    thread_a: int = 0
    thread_b: int = 0


@dataclass(frozen=True, slots=True)
class Element:
    """Where one element of a tile lies: warp-wide product, lane, register, bit offset."""

    product: int
    lane: int
    register: int
    offset: int
    row: int
    column: int


def width_of(type_: str, k: int) -> int:
    """Bits that an element takes in a register; e2m1 has a byte container except with k = 64."""
    return 4 if type_ == "e2m1" and k == 64 else _WIDTHS.get(type_, 8)


def factor_elements(use: str, i: Instruction, layout: str) -> Iterator[Element]:
    """The fragment of A (row, k) or of B (k, column)."""
    rows, _, k = i.shape
    if is_quad_pair(i):
        yield from quad_factor(use, layout)
        return
    width = width_of(i.a_type if use == "a" else i.b_type, k)
    per = max(32 // width, 1)
    quad = 4 * per  # columns of k that one register covers across four lanes
    high = 2 if use == "a" and rows == 16 else 1
    for lane in range(32):
        g, t = lane >> 2, lane & 3
        for register in range(high * k // quad):
            for e in range(per):
                line = g + 8 * (register % high)
                depth = per * t + e + quad * (register // high)
                row, column = (line, depth) if use == "a" else (depth, line)
                yield Element(0, lane, register, e * width, row, column)


def quad_factor(use: str, layout: str) -> Iterator[Element]:
    """A and B of m8n8k4 f16: two registers of four elements along one line of the layout."""
    for lane in range(32):
        u, h, q = lane & 3, lane >> 4, lane >> 2 & 3
        for e in range(4):
            along = (u + 4 * h, e) if (use == "a") == (layout == "row") else (e + 4 * h, u)
            line, depth = along
            row, column = (line, depth) if use == "a" else (depth, line)
            yield Element(q, lane, e >> 1, 16 * (e & 1), row, column)


def accumulator_elements(type_: str, i: Instruction) -> Iterator[Element]:
    """The fragment of C or D."""
    width = width_of(type_, 0)
    per = max(32 // width, 1)
    quad = is_quad_pair(i)
    for lane in range(32):
        g, t, u, h = lane >> 2, lane & 3, lane & 3, lane >> 4
        for e in range(8 if quad else i.shape[0] // 4):
            if quad and type_ == "f16":
                row, column = u + 4 * h, e
            elif quad:
                row, column = (u & 1) + (e & 2) + 4 * h, (e & 4) + (u & 2) + (e & 1)
            else:
                row, column = g + 8 * (e >> 1), 2 * t + (e & 1)
            product = g & 3 if quad else 0
            yield Element(product, lane, e // per, width * (e % per), row, column)


def is_quad_pair(i: Instruction) -> bool:
    """mma.m8n8k4 with f16 factors."""
    return i.shape == (8, 8, 4) and i.a_type == "f16"


def word_type(type_: str) -> Any:
    """The NumPy type of one register."""
    return np.uint64 if type_ == "f64" else np.uint32


def scatter(elements: list[Element], tiles: Tiles, type_: str) -> Words:
    """Tiles as registers [warp, lane, register]."""
    products = 1 + max(e.product for e in elements)
    registers = 1 + max(e.register for e in elements)
    warps = -(-len(tiles) // products)
    padded = np.zeros((warps * products, *tiles.shape[1:]), np.uint64)
    padded[: len(tiles)] = tiles
    words = np.zeros((warps, 32, registers), np.uint64)
    for e in elements:
        values = padded[e.product :: products, e.row, e.column]
        words[:, e.lane, e.register] |= values << np.uint64(e.offset)
    return words.astype(word_type(type_))


def gather(elements: list[Element], words: Words, type_: str, shape: tuple[int, ...]) -> Tiles:
    """The inverse of :func:`scatter`; ``shape`` is that of the tiles."""
    products = 1 + max(e.product for e in elements)
    out = np.zeros((len(words) * products, *shape[1:]), np.uint64)
    mask = np.uint64((1 << width_of(type_, 0)) - 1)
    wide = words.astype(np.uint64)
    for e in elements:
        values = wide[:, e.lane, e.register] >> np.uint64(e.offset) & mask
        out[e.product :: products, e.row, e.column] = values
    return out[: shape[0]]


# -- kernel text -------------------------------------------------------------------------------


def header(spelling: str, target: str) -> str:
    """The lowest common PTX version that knows the target and the instruction."""
    number = int("".join(c for c in target if c.isdigit()))
    narrow = ("e4m3", "e5m2")
    version = "9.0" if number >= 100 else "8.7" if any(t in spelling for t in narrow) else "8.0"
    if number < 80:
        version = "6.5"
    return f".version {version}\n.target {target}\n.address_size 64\n"


def group(prefix: str, count: int) -> str:
    """A brace group of registers."""
    return "{" + ", ".join(f"%{prefix}{n}" for n in range(count)) + "}"


def register_type(type_: str) -> str:
    """The PTX type of the registers that carry elements of a type."""
    return f".{type_}" if type_ in ("f32", "f64") else ".b32"


def move(opcode: str, prefix: str, buffer: int, count: int, size: int) -> list[str]:
    """Copy the ``count`` registers of this lane from or to a buffer [CTA, lane, register]."""
    lines = [f"mad.wide.u32 %address, %place, {count * size}, %buffer{buffer};"]
    for n in range(count):
        place, register = f"[%address+{n * size}]", f"%{prefix}{n}"
        operands = f"{register}, {place}" if opcode == "ld" else f"{place}, {register}"
        lines.append(f"{opcode}.global.b{8 * size} {operands};")
    return lines


def entry(head: str, declarations: list[str], buffers: int, lines: list[str]) -> str:
    """A kernel over ``buffers`` pointers; %place is the lane's number in the grid."""
    parameters = ", ".join(f".param .u64 p{n}" for n in range(buffers))
    start = [f"ld.param.u64 %buffer{n}, [p{n}];" for n in range(buffers)]
    start += [
        "mov.u32 %place, %ctaid.x;", "mov.u32 %lane, %tid.x;",
        "mad.lo.u32 %place, %place, 32, %lane;",
    ]  # fmt: skip
    registers = [
        f".reg .b64 %buffer<{buffers}>, %address;",
        ".reg .b32 %place, %lane;",
        *declarations,
    ]
    body = "\n".join([*registers, *start, *lines, "ret;"])
    return f"{head}.visible .entry k({parameters})\n{{\n{body}\n}}\n"


def launch(text: str, grid: int, arguments: list[Words]) -> None:
    """Run a kernel of one-warp CTAs; it must be free of findings."""
    report = ptxsim.assemble(text).kernel().launch(grid=grid, block=32, args=arguments)
    assert not report.findings, report.findings


def mma_opcode(spelling: str, i: Instruction, options: Options) -> str:
    """The PTX spelling of an mma.sync; scale blocks of 16 and 32 are vectors of k / 16 or / 32."""
    m, n, k = i.shape
    parts = ["mma.sync.aligned", f"m{m}n{n}k{k}", *options.layouts]
    parts += [options.rounding] if options.rounding else []
    parts += ["satfinite"] if options.satfinite else []
    parts += [f"kind::{i.kind}"] if i.kind else []
    if i.scale_type:
        vector = k // (16 if "block16" in spelling else 32)
        parts += ["block_scale", f"scale_vec::{vector}X"]
    parts += [i.d_type, i.a_type, i.b_type, i.c_type]
    parts += [i.scale_type] if i.scale_type else []
    parts += [options.bit_operation, "popc"] if options.bit_operation else []
    return ".".join(parts)


def multiply(
    spelling: str,
    target: str,
    a: Tiles,
    b: Tiles,
    c: Tiles,
    options: Options = Options(),
    scale_a: Tiles | None = None,
    scale_b: Tiles | None = None,
) -> Tiles:
    """D [tile, row, column] of stacks A [tile, m, k], B [tile, k, n], C [tile, m, n] of patterns.

    Scale factors are [tile, row or column, block of k].
    """
    i = parse(spelling)
    if i.family == "wmma":
        return wmma(i, target, a, b, c, options)
    maps = {
        "a": list(factor_elements("a", i, options.layouts[0])),
        "b": list(factor_elements("b", i, options.layouts[1])),
        "c": list(accumulator_elements(i.c_type, i)),
        "d": list(accumulator_elements(i.d_type, i)),
    }
    types = {"a": i.a_type, "b": i.b_type, "c": i.c_type, "d": i.d_type}
    words = {u: scatter(maps[u], x, types[u]) for u, x in (("a", a), ("b", b), ("c", c))}
    words["d"] = np.full_like(scatter(maps["d"], c, i.d_type), 0xDEADBEEF)
    counts = {use: x.shape[-1] for use, x in words.items()}
    sizes = {use: x.dtype.itemsize for use, x in words.items()}
    declare = [f".reg {register_type(types[u])} %{u}<{counts[u]}>;" for u in "abcd"]
    lines = [x for n, u in enumerate("abc") for x in move("ld", u, n, counts[u], sizes[u])]
    operands = [group(use, counts[use]) for use in "dabc"]
    arguments = [words["a"], words["b"], words["c"], words["d"]]
    if scale_a is not None and scale_b is not None:
        arguments += [scale_words(x, u, options) for x, u in ((scale_a, "a"), (scale_b, "b"))]
        declare.append(".reg .b32 %s<1>, %u<1>;")
        lines += [*move("ld", "s", 4, 1, 4), *move("ld", "u", 5, 1, 4)]
        operands += ["%s0", f"{{{options.byte}, {options.thread_a}}}"]
        operands += ["%u0", f"{{{options.byte}, {options.thread_b}}}"]
    lines.append(f"{mma_opcode(spelling, i, options)} {', '.join(operands)};")
    lines += move("st", "d", 3, counts["d"], sizes["d"])
    text = entry(header(spelling, target), declare, len(arguments), lines)
    launch(text, len(words["a"]), arguments)
    return gather(maps["d"], words["d"], i.d_type, c.shape)


def scale_words(scales: Tiles, use: str, options: Options) -> Words:
    """The scale register of every lane; lanes and bytes that nobody reads hold 0x55."""
    words = np.full((len(scales), 32, 1), 0x55555555, np.uint32)
    for line in range(scales.shape[1]):
        g = line & 7
        lane = 4 * g + (2 * options.thread_a + (line >> 3) if use == "a" else options.thread_b)
        for block in range(scales.shape[2]):
            shift = np.uint32(8 * (options.byte + block))
            words[:, lane, 0] &= ~(np.uint32(0xFF) << shift)
            words[:, lane, 0] |= scales[:, line, block].astype(np.uint32) << shift
    return words


def wmma(i: Instruction, target: str, a: Tiles, b: Tiles, c: Tiles, options: Options) -> Tiles:
    """The product through wmma.load, wmma.mma and wmma.store on global memory."""
    m, n, k = i.shape
    shape = f"m{m}n{n}k{k}"
    types = {"a": i.a_type, "b": i.b_type, "c": i.c_type, "d": i.d_type}
    layouts = {"a": options.layouts[0], "b": options.layouts[1], "c": "row", "d": "row"}
    counts = {"a": 8 if i.a_type == "f16" else 4, "c": 8 if i.c_type == "f32" else 4}
    counts |= {"b": counts["a"], "d": 8 if i.d_type == "f32" else 4}
    tiles = {"a": a, "b": b, "c": c, "d": np.full_like(c, 0xBEEF)}
    stored = {}
    declare, lines = [], []
    for number, use in enumerate("abcd"):
        order = tiles[use] if layouts[use] == "row" else tiles[use].transpose(0, 2, 1)
        kind = _BIT_TYPES[width_of(types[use], 0)]
        stored[use] = np.ascontiguousarray(order.astype(kind))
        size = stored[use][0].nbytes
        declare.append(f".reg {register_type(types[use])} %{use}<{counts[use]}>;")
        address = [
            "mov.u32 %place, %ctaid.x;", f"mad.wide.u32 %address, %place, {size}, %buffer{number};"
        ]  # fmt: skip
        tail = f"sync.aligned.{layouts[use]}.{shape}.global.{types[use]}"
        registers, stride = group(use, counts[use]), order.shape[2]
        if use == "d":
            product = [*options.layouts, shape, i.d_type]
            product += [] if i.a_type == "f16" else [i.a_type, i.b_type]
            opcode = ".".join(["wmma.mma.sync.aligned", *product, i.c_type])
            lines.append(f"{opcode} {', '.join(group(u, counts[u]) for u in 'dabc')};")
            lines += [*address, f"wmma.store.d.{tail} [%address], {registers}, {stride};"]
        else:
            lines += [*address, f"wmma.load.{use}.{tail} {registers}, [%address], {stride};"]
    text = entry(header(i.a_type, target), declare, 4, lines)
    launch(text, len(a), list(stored.values()))
    return stored["d"].astype(np.uint64)

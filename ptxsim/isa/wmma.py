"""Fragment loads, stores and products of wmma (PTX ISA 9.1, Warp Level Matrix Instructions:
wmma.load, wmma.store, wmma.mma).

Every row (or column, as the layout says) of a tile in memory starts at a multiple of the size of
the fragment, so base address and stride in bytes must be multiples of it ("Matrix Storage for
WMMA").  PTX leaves open which lane holds what; see :mod:`ptxsim.matrix.layouts`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..matrix import Fragment, Shape, parse_shape, wmma_fragment, wmma_registers
from ._mma_forms import BOTH_LAYOUTS, ELEMENT_BITS
from .matrix_multiply import multiply_step, product
from .protocol import Array, Registers, Step
from .record import Form, Mods, instruction
from .warp_matrix import MatrixCollective, reject, whole_warps

__all__: list[str] = []

_SECTION = "Warp Level Matrix Instructions: "
_SHAPES = "shape:{m16n16k16 m32n8k16 m8n32k16}"
_SPACE = "space?:{global shared shared::cta@7.8}"
_LAYOUT = "layout:{row col}"


def _register_count(use: str, m: Mods) -> int:
    """Registers of a fragment, for the shapes that are executed and the others."""
    shape = parse_shape(m.shape)
    if shape[2] == 16:
        return wmma_registers(use, shape, m.type)
    rows, columns, k = shape
    if use in "cd":
        return rows * columns // 32
    extent = rows if use == "a" else columns
    bits = ELEMENT_BITS[m.type]
    return extent * k * bits // (32 * max(bits, 32))


def _register_type(m: Mods) -> str:
    """f16, and factors but f64 and eight-bit integers, are bits; the others have their type."""
    if m.type == "f16":
        return "f16x2"
    if m.type in ("f32", "s32", "f64"):
        return str(m.type)
    return "b32" if m.type in ("bf16", "tf32") else "u32"


class _Transfer(MatrixCollective):
    """A tile between memory and a fragment."""

    traps: ClassVar[tuple[str, ...]] = (
        "wmma-precondition", "misaligned", "oob", "uninit-global", "collective-divergence",
    )  # fmt: skip

    def register(self, m: Mods) -> str:
        return _register_type(m)

    def number(self, m: Mods) -> int:
        return _register_count(m.use, m)


def _transfer_forms(
    prefix: str, operands: str, accumulator: str, factors: bool
) -> tuple[Form, ...]:
    def line(shape: str, type_: str, layout: str = _LAYOUT, use: str = accumulator) -> str:
        return f"use:{{{use}}} sync aligned {layout} {shape} {_SPACE} type:{{{type_}}}"

    def other(
        shape: str, type_: str, floor: str, layout: str = _LAYOUT, use: str = accumulator
    ) -> Form:
        return Form(
            line(f"shape:{{{shape}}}", type_, layout, use), operands, floor=floor,
            unsupported=f"{prefix} of {shape.replace(' ', ' and ')} tiles is not modelled",
        )  # fmt: skip

    out = [
        Form(line(_SHAPES, "f16 f32 s32@6.3+sm_72"), operands),
        other("m16n16k8", "f32", "7.0+sm_80"),
        other("m8n8k4", "f64", "7.0+sm_80"),
        other("m8n8k32 m8n8k128", "s32", "6.3+sm_75"),
    ]
    if factors:
        types = "f16 bf16@7.0+sm_80 s8@6.3+sm_72 u8@6.3+sm_72"
        out += [
            Form(line(_SHAPES, types, use="a b"), operands),
            other("m16n16k8", "tf32", "7.0+sm_80", use="a b"),
            other("m8n8k4", "f64", "7.0+sm_80", use="a b"),
        ]
        for use, layout in (("a", "layout:{row}"), ("b", "layout:{col}")):
            out += [
                other("m8n8k32", "s4 u4", "6.3+sm_75", layout, use),
                other("m8n8k128", "b1", "6.3+sm_75", layout, use),
            ]
    return tuple(out)


class _Storage:
    """How a tile lies in memory, cut into one chunk of consecutive elements a lane.

    ``lines`` are the rows of the tile, or its columns for the layout ``col``.  A chunk is never
    longer than a line, and its size divides the alignment that every line must have.
    """

    def __init__(self, fragment: Fragment, layout: str) -> None:
        self.size = fragment.element_bits // 8
        self.transposed = layout == "col"
        self.tile = (fragment.rows, fragment.columns)
        self.lines, self.length = self.tile[::-1] if self.transposed else self.tile
        self.alignment = fragment.registers * 4
        elements = self.lines * self.length // 32
        first = np.arange(32, dtype=np.uint64) * np.uint64(elements)
        self.line, self.within = np.divmod(first, np.uint64(self.length))
        chunk = elements * self.size
        self.word = min(chunk, 8)
        self.words = chunk // self.word
        self.element = np.dtype(f"<u{self.size}")

    def addresses(self, base: Array, stride: Array) -> Array:
        """Where the chunk of each lane starts: [W, 32] from base and stride as uint64 [W, 32]."""
        at: Array = base + (self.line * stride + self.within) * np.uint64(self.size)
        return at

    def to_tile(self, words: Array) -> Array:
        """Chunks [W, 32, words] as a tile [W, rows, columns]."""
        flat = np.ascontiguousarray(words).view(self.element)
        tile = flat.reshape(-1, self.lines, self.length)
        return tile.transpose(0, 2, 1) if self.transposed else tile

    def to_words(self, tile: Array) -> Array:
        """The inverse of :meth:`to_tile`."""
        lines = np.ascontiguousarray(tile.transpose(0, 2, 1) if self.transposed else tile)
        return lines.reshape(len(tile), 32, -1).view(np.dtype(f"<u{self.word}"))


def _located(b: Any, storage: _Storage) -> Any:
    """A function to the addresses of the chunks, with the run-time preconditions checked."""
    address = b.address("p")
    place = b.source("stride") if b.has("stride") else -1
    default = np.array([storage.length], np.uint64)
    site = b.site

    def chunks(r: Registers, g: Any, w: Any) -> Array:
        base = address(r, g).astype(np.uint64)
        stride = r[place].astype(np.uint64) if place >= 0 else default
        _check_preconditions(g, w, storage, base, stride, site)
        at: Array = w.collect(storage.addresses(w.spread(base), w.spread(stride)))
        return at

    return chunks


def _check_preconditions(
    g: Any, w: Any, storage: _Storage, base: Array, stride: Array, site: Any
) -> None:
    """PTX ISA, Matrix Storage for WMMA, and the rules of wmma.load and wmma.store."""
    align = np.uint64(storage.alignment)
    low = np.uint64(storage.alignment - 1)
    step = stride * np.uint64(storage.size)
    # Eight f16 elements a line are half a fragment.  That packed stride is the ISA's own default,
    # so it cannot be meant to break the rule.
    packed = stride == np.uint64(storage.length)
    for bad, what, value in (
        ((base & low) != 0, "base address {:#x}", base),
        (((step & low) != 0) & ~packed, "stride of {} bytes", step),
    ):
        if bad.any():
            first = value[np.flatnonzero(bad)[0]]
            reject(
                g, site, "wmma-precondition",
                f"{what.format(int(first))} is not a multiple of {align}, the size of a fragment"
                f" of '{site.text}'",
                g.full(bad), f"start each row or column of the tile at a multiple of {align} bytes",
            )  # fmt: skip
    short = stride < np.uint64(storage.length)
    if short.any():
        reject(
            g, site, "wmma-precondition",
            f"stride of {int(stride[np.flatnonzero(short)[0]])} elements is less than the"
            f" {storage.length} elements of a line of the tile",
            g.full(short), f"use a stride of at least {storage.length} elements",
        )  # fmt: skip
    for value, what in ((base, "base addresses"), (stride, "strides")):
        if len(value) > 1:
            lanes = w.spread(value)
            differs = w.collect(lanes != lanes[:, :1])
            reject(
                g, site, "wmma-precondition",
                f"lanes of one warp give different {what} to '{site.text}'",
                differs, "give the same address and stride in all lanes of the warp",
            )  # fmt: skip


def _fragment(m: Mods) -> Fragment:
    return wmma_fragment(m.use, parse_shape(m.shape), m.type)


@instruction("wmma.load", isa=_SECTION + "wmma.load", floor="6.3+sm_70")
class WmmaLoad(_Transfer):
    """Load a fragment of A, B or C."""

    forms = _transfer_forms("wmma.load", "=r.register*number, [p], stride.u32?", "c", True)

    def bind(self, b: Any) -> Step:
        fragment = _fragment(b.mods)
        storage = _Storage(fragment, b.mods.layout)
        chunks = _located(b, storage)
        space = b.space("p", b.mods.space)
        writes = b.writes("r")
        site = b.site

        def step(r: Registers, g: Any) -> None:
            w = whole_warps(g, site)
            loaded = g.load(space, chunks(r, g, w), storage.word, storage.words, None, site)
            words = np.stack([w.spread(value) for value in loaded], axis=-1)
            registers = fragment.scatter(storage.to_tile(words))
            for write, register in zip(writes, registers, strict=True):
                write(r, w.collect(register), None)

        return step


@instruction("wmma.store", isa=_SECTION + "wmma.store", floor="6.3+sm_70")
class WmmaStore(_Transfer):
    """Store a fragment of D."""

    forms = _transfer_forms("wmma.store", "[p], b.register*number, stride.u32?", "d", False)

    def bind(self, b: Any) -> Step:
        fragment = _fragment(b.mods)
        storage = _Storage(fragment, b.mods.layout)
        chunks = _located(b, storage)
        space = b.space("p", b.mods.space)
        sources = b.sources("b")
        site = b.site

        def step(r: Registers, g: Any) -> None:
            w = whole_warps(g, site)
            at = chunks(r, g, w)
            words = storage.to_words(fragment.gather([w.spread(r[s]) for s in sources]))
            values = [w.collect(words[..., k]) for k in range(storage.words)]
            g.store(space, at, storage.word, values, None, site)

        return step


# --- products -------------------------------------------------------------------------------------


def _product_forms() -> tuple[Form, ...]:
    operands = "=d.d_register*d_count, a.factor_register*a_count, b.factor_register*b_count"
    operands += ", c.c_register*c_count"

    def line(shape: str, types: str, head: str = "", tail: str = "") -> str:
        return f"{head} sync aligned {BOTH_LAYOUTS} {shape} {types} {tail}"

    def same(d: str, factor: str) -> str:
        return f"dtype:{{{d}}} atype:{{{factor}}} btype:{{{factor}}} ctype:{{{d}}}"

    def other(text: str, floor: str, what: str) -> Form:
        return Form(text, operands, floor=floor, unsupported=f"wmma.mma {what} is not modelled")

    halves = "dtype:{f16 f32} ctype:{f16 f32}"
    return (
        Form(line(_SHAPES, halves), operands),
        Form(line(_SHAPES, same("f32", "bf16")), operands, floor="7.0+sm_80"),
        *(
            Form(
                line(_SHAPES, same("s32", t), tail="satfinite?"),
                operands, floor="6.3+sm_72",
            )
            for t in ("s8", "u8")
        ),
        other(line("shape:{m16n16k8}", same("f32", "tf32")), "7.0+sm_80", "of tf32"),
        other(
            line("shape:{m8n8k4} rnd?:{rn rz rm rp}", same("f64", "f64")),
            "7.0+sm_80", "of f64",
        ),
        *(
            other(
                line("shape:{m8n8k32}", same("s32", t), tail="satfinite?"),
                "6.3+sm_75", "of s4 and u4",
            )
            for t in ("s4", "u4")
        ),
        other(
            line("shape:{m8n8k128}", same("s32", "b1"), "op:{xor and@7.1+sm_80} popc"),
            "6.3+sm_75", "of b1",
        ),
    )  # fmt: skip


@instruction("wmma.mma", isa=_SECTION + "wmma.mma", floor="6.3+sm_70")
class WmmaMma(MatrixCollective):
    """D = A * B + C of fragments; the opcode names the layouts A and B were loaded with."""

    forms = _product_forms()

    def check(self, m: Mods) -> str | None:
        """Elements below eight bits are loaded in ``.row.col`` only."""
        if m.shape in ("m8n8k32", "m8n8k128") and (m.alayout, m.blayout) != ("row", "col"):
            return f"the layouts .{m.alayout}.{m.blayout} are not legal here; use .row.col"
        return None

    def factor_register(self, m: Mods) -> str:
        return _register_type(_part(m, m.atype or "f16"))

    def d_register(self, m: Mods) -> str:
        return _register_type(_part(m, m.dtype))

    def c_register(self, m: Mods) -> str:
        return _register_type(_part(m, m.ctype))

    def a_count(self, m: Mods) -> int:
        return _register_count("a", _part(m, m.atype or "f16"))

    def b_count(self, m: Mods) -> int:
        return _register_count("b", _part(m, m.atype or "f16"))

    def c_count(self, m: Mods) -> int:
        return _register_count("c", _part(m, m.ctype))

    def d_count(self, m: Mods) -> int:
        return _register_count("d", _part(m, m.dtype))

    def bind(self, b: Any) -> Step:
        m = b.mods
        shape: Shape = parse_shape(m.shape)
        factor = m.atype or "f16"
        fragments = (
            wmma_fragment("a", shape, factor),
            wmma_fragment("b", shape, factor),
            wmma_fragment("c", shape, m.ctype),
            wmma_fragment("d", shape, m.dtype),
        )
        f = product(factor, factor, m.ctype, m.dtype, bool(m.satfinite))
        return multiply_step(b, fragments, f)


def _part(m: Mods, type_: str) -> Mods:
    """The modifiers that describe the fragment of one operand."""
    return Mods({"shape": m.shape, "type": type_})

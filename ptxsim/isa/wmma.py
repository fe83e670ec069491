"""Fragment loads, stores and products of wmma (PTX ISA 9.1, Warp Level Matrix Instructions:
wmma.load, wmma.store, wmma.mma).

Every row (or column, as the layout says) of a tile in memory starts at a multiple of the size of
the fragment, so base address and stride in bytes must be multiples of it ("Matrix Storage for
WMMA"), except for the packed stride.  PTX leaves open which lane holds what; see
:mod:`ptxsim.matrix.wmma_layouts`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from ..matrix import (
    Fragment,
    pack_elements,
    parse_shape,
    unpack_elements,
    wmma_fragment,
    wmma_registers,
)
from ..targets import Target
from ._mma_forms import BOTH_LAYOUTS
from .fragment_tags import Held, fragment_reader, fragment_writer
from .matrix_multiply import Arithmetic, multiply_step
from .order import FRAGMENT, MemoryOrder
from .protocol import Array, Registers, Step, Unknown, no_effect
from .record import Form, Mods, instruction
from .warp_matrix import MatrixCollective, first_origin, reject, whole_warps

__all__: list[str] = []

_SECTION = "Warp Level Matrix Instructions: "
_LARGE = "m16n16k16 m32n8k16 m8n32k16"
_SPACE = "space?:{global shared shared::cta@7.8}"
_LAYOUT = "layout:{row col}"
#: PTX ISA 6.0 spells wmma without .aligned, and 6.3 wants it
_OLD = (("m16n16k16", "6.0-6.2+sm_70"), ("m32n8k16 m8n32k16", "6.1-6.2+sm_70"))


def _register_type(m: Mods) -> str:
    """f16, and factors but f64 and eight-bit integers, are bits; the others have their type."""
    if m.type == "f16":
        return "f16x2"
    if m.type in ("f32", "s32", "f64"):
        return str(m.type)
    return "bf16x2" if m.type in ("bf16", "tf32") else "u32"


class _Transfer(MatrixCollective):
    """A tile between memory and a fragment."""

    fragment_operands = ("r", "b")
    traps: ClassVar[tuple[str, ...]] = (
        "wmma-precondition", "wmma-fragment", "misaligned", "oob", "uninit-global",
        "collective-divergence",
    )  # fmt: skip

    def check(self, m: Mods) -> str | None:
        """Elements below eight bits lie in rows of A and columns of B."""
        wanted = {"a": "row", "b": "col"}.get(m.use, m.layout)
        if m.type in ("s4", "u4", "b1") and m.layout != wanted:
            return f"matrix {m.use} of .{m.type} has the layout .{wanted}, not .{m.layout}"
        return None

    def memory_order(self, m: Mods) -> MemoryOrder:
        """Which lane accesses which element of a tile is unspecified."""
        return MemoryOrder(matrix=FRAGMENT)

    def register(self, m: Mods) -> str:
        return _register_type(m)

    def number(self, m: Mods) -> int:
        return wmma_registers(m.use, parse_shape(m.shape), m.type)

    def fragments(self, m: Mods, target: Target) -> tuple[tuple[str, Fragment], ...]:
        return ((m.use, _fragment(m.use, m.shape, m.type, target, m.layout)),)


def _transfer_forms(operands: str, use: str, factors: bool) -> tuple[Form, ...]:
    def form(shape: str, type_: str, floor: str, uses: str = use) -> Form:
        line = f"use!:{{{uses}}} sync aligned {_LAYOUT} shape:{{{shape}}} {_SPACE} type:{{{type_}}}"
        return Form(line, operands, floor=floor)

    out = [
        form(_LARGE, "f16 f32 s32@6.3+sm_72", "6.3+sm_70"),
        form("m16n16k8", "f32", "7.0+sm_80"),
        form("m8n8k4", "f64", "7.0+sm_80"),
        form("m8n8k32 m8n8k128", "s32", "6.3+sm_75"),
    ]
    every = f"{use} a b" if factors else use
    for shape, floor in _OLD:
        for uses, types in (("a b", "f16"), (use, "f16 f32")):
            if uses in every:
                line = f"use!:{{{uses}}} sync {_LAYOUT} shape:{{{shape}}} {_SPACE} type:{{{types}}}"
                out.append(Form(line, operands, floor=floor))
    if factors:
        types = "f16 bf16@7.0+sm_80 s8@6.3+sm_72 u8@6.3+sm_72"
        out += [
            form(_LARGE, types, "6.3+sm_70", uses="a b"),
            form("m16n16k8", "tf32", "7.0+sm_80", uses="a b"),
            form("m8n8k4", "f64", "7.0+sm_80", uses="a b"),
        ]
        out += [
            form("m8n8k32", "s4 u4", "6.3+sm_75", uses="a b"),
            form("m8n8k128", "b1", "6.3+sm_75", uses="a b"),
        ]
    return tuple(out)


def _fragment(use: str, shape: str, type_: str, target: Target, layout: str) -> Fragment:
    return wmma_fragment(use, parse_shape(shape), type_, target.number, layout)


# --- tiles in memory ------------------------------------------------------------------------------


class _Storage:
    """How a tile lies in memory, cut into one chunk of consecutive elements a lane.

    ``lines`` are the rows of the tile, or its columns for the layout ``col``.  A chunk is never
    longer than a line, and its size divides the alignment that every line must have; with the
    weaker ``rule`` of the CUDA C++ guide it is accessed in pieces of at most 16 bytes.
    """

    def __init__(self, fragment: Fragment, layout: str, rule: str) -> None:
        self.bits = fragment.element_bits
        self.transposed = layout == "col"
        self.tile = (fragment.rows, fragment.columns)
        self.lines, self.length = self.tile[::-1] if self.transposed else self.tile
        self.alignment = fragment.registers * fragment.register_bits // 8
        elements = self.lines * self.length // 32
        first = np.arange(32, dtype=np.uint64) * np.uint64(elements)
        self.line, self.within = np.divmod(first, np.uint64(self.length))
        chunk = elements * self.bits // 8
        self.word = min(chunk, 8)
        self.words = chunk // self.word
        self.piece = self.words if rule == "ptx" else min(self.words, 16 // self.word)

    def pieces(self, at: Array) -> Iterator[tuple[int, Array]]:
        """The first word of each piece of the chunks at ``at``, and the piece's addresses."""
        for first in range(0, self.words, self.piece):
            yield first, at + at.dtype.type(first * self.word)

    def octets(self, elements: Array) -> Array:
        """A number of elements (uint64) in bytes."""
        if self.bits >= 8:
            return elements * np.uint64(self.bits // 8)
        return elements // np.uint64(8 // self.bits)

    def addresses(self, base: Array, stride: Array) -> Array:
        """Where the chunk of each lane starts: [W, 32] from base and stride as uint64 [W, 32]."""
        return base + self.octets(self.line * stride + self.within)

    def to_tile(self, words: Array) -> Array:
        """Chunks [W, 32, words] as a tile [W, rows, columns]."""
        flat = unpack_elements(np.ascontiguousarray(words), self.bits)
        tile = flat.reshape(-1, self.lines, self.length)
        return tile.transpose(0, 2, 1) if self.transposed else tile

    def to_words(self, tile: Array) -> Array:
        """The inverse of :meth:`to_tile`."""
        lines = np.ascontiguousarray(tile.transpose(0, 2, 1) if self.transposed else tile)
        return pack_elements(lines.reshape(len(tile), 32, -1), self.bits, 8 * self.word)


def _located(b: Any, storage: _Storage) -> Any:
    """A function to the addresses of the chunks, with the run-time preconditions checked."""
    address = b.address("p")
    place = b.source("stride") if b.has("stride") else -1
    default = np.array([storage.length], np.uint64)
    check = _precondition(storage, b.wmma_rule, b.site)
    generic = b.space("p", b.mods.space) == "generic"
    site = b.site

    def chunks(r: Registers, g: Any, w: Any) -> Array:
        base = address(r, g).astype(np.uint64)
        stride = r[place].astype(np.uint64) if place >= 0 else default
        if generic:
            reject(
                g, site, "wmma-precondition",
                f"'{site.text}' accesses local memory", g.full(g.in_window("local", base)),
                "a tile is in global or shared memory",
            )  # fmt: skip
        check(g, w, base, stride)
        at: Array = w.collect(storage.addresses(w.spread(base), w.spread(stride)))
        return at

    return chunks


def _precondition(storage: _Storage, rule: str, site: Any) -> Any:
    """The check of PTX ISA, Matrix Storage for WMMA, or of the CUDA C++ guide's wmma chapter.

    The ISA wants every row or column at a multiple of the fragment's size, the guide the tile at a
    multiple of 32 bytes and the stride one of 16 bytes.
    """
    if rule == "cuda":
        aligns, by = (32, 16), "the rule of the CUDA C++ guide"
    else:
        aligns, by = (storage.alignment,) * 2, "the size of a fragment (rule of the PTX ISA)"

    def check(g: Any, w: Any, base: Array, stride: Array) -> None:
        step = storage.octets(stride)
        whole = stride * np.uint64(storage.bits) == step * np.uint64(8)
        # Lines that are shorter than a fragment: the packed stride is the ISA's own default, so
        # it cannot be meant to break the rule.
        packed = (stride == np.uint64(storage.length)) & (rule == "ptx")
        for bad, what, value, align in (
            ((base & np.uint64(aligns[0] - 1)) != 0, "base address {:#x}", base, aligns[0]),
            (
                (((step & np.uint64(aligns[1] - 1)) != 0) | ~whole) & ~packed,
                "stride of {} bytes",
                step,
                aligns[1],
            ),
        ):
            if bad.any():
                first = int(value[np.flatnonzero(bad)[0]])
                reject(
                    g, site, "wmma-precondition",
                    f"{what.format(first)} is not a multiple of {align}, {by}, in '{site.text}'",
                    g.full(bad),
                    f"start each row or column of the tile at a multiple of {align} bytes",
                    rule=rule,
                )  # fmt: skip
        _check_uniform(g, w, storage, base, stride, site)

    return check


def _check_uniform(
    g: Any, w: Any, storage: _Storage, base: Array, stride: Array, site: Any
) -> None:
    """The stride covers a line, and all lanes agree (PTX ISA, wmma.load and wmma.store)."""
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


@instruction("wmma.load", isa=_SECTION + "wmma.load", floor="6.0+sm_70")
class WmmaLoad(_Transfer):
    """Load a fragment of A, B or C."""

    receives = "r"

    def definedness(self, b: Any) -> Step | None:
        """The step marks the registers by itself."""
        return no_effect

    forms = _transfer_forms("=~r.register*number, [p], stride.u32?", "c", True)

    def bind(self, b: Any) -> Step:
        m = b.mods
        fragment = _fragment(m.use, m.shape, m.type, b.target, m.layout)
        storage = _Storage(fragment, m.layout, b.wmma_rule)
        chunks = _located(b, storage)
        space = b.space("p", m.space)
        writes, marks = b.writes("r"), b.marks("r")
        held = fragment_writer(b, "r", Held.of(m.use, m.shape, m.type, m.layout))
        site = b.site

        def step(r: Registers, g: Any) -> None:
            w = whole_warps(g, site)
            words: list[Array] = []
            lost: list[Unknown | None] = []
            for _, at in storage.pieces(chunks(r, g, w)):
                words += g.load(space, at, storage.word, storage.piece, None, site)
                lost += g.take_loaded() or [None] * storage.piece
            for write, register in zip(writes, registers(w, words), strict=True):
                write(r, register, None)
            held(r)
            if not any(lost):
                if g.undefined:
                    for mark in marks:
                        mark(g, None, None)
            else:
                origin = first_origin(g, lost)
                zero = np.zeros(1, words[0].dtype)
                masks = [zero if unknown is None else unknown[0] for unknown in lost]
                for mark, bits in zip(marks, registers(w, masks), strict=True):
                    mark(g, (bits, origin), None)

        def registers(w: Any, words: list[Array]) -> list[Array]:
            chunk = np.stack([w.spread(word) for word in words], axis=-1)
            return [w.collect(part) for part in fragment.scatter(storage.to_tile(chunk))]

        return step


@instruction("wmma.store", isa=_SECTION + "wmma.store", floor="6.0+sm_70")
class WmmaStore(_Transfer):
    """Store a fragment of D."""

    forms = _transfer_forms("[p], b.register*number, stride.u32?", "d", False)

    def definedness(self, b: Any) -> Step | None:
        """Undefined bits of what was loaded go to memory with the rest."""
        m = b.mods
        fragment = _fragment(m.use, m.shape, m.type, b.target, m.layout)
        storage = _Storage(fragment, m.layout, b.wmma_rule)
        carry = b.unknown("b")

        def step(r: Registers, g: Any) -> None:
            found = carry(r, g)
            if found is None:
                return
            zero = np.zeros(1, f"u{fragment.register_bits // 8}")
            masks = [zero if u is None else u[0] * g.from_memory(u[1]) for u in found]
            if not any(mask.any() for mask in masks):
                return
            origin = first_origin(g, found)
            words = _tile_words(g.warps(), fragment, storage, masks)
            g.storing = [(word, origin) for word in words]

        return step

    def bind(self, b: Any) -> Step:
        m = b.mods
        fragment = _fragment(m.use, m.shape, m.type, b.target, m.layout)
        storage = _Storage(fragment, m.layout, b.wmma_rule)
        chunks = _located(b, storage)
        space = b.space("p", m.space)
        sources = b.sources("b")
        check = fragment_reader(b, "b", Held.of("d", m.shape, m.type), observes=False)
        site = b.site

        def step(r: Registers, g: Any) -> None:
            w = whole_warps(g, site)
            check(r, g)
            at = chunks(r, g, w)
            values = _tile_words(w, fragment, storage, [r[s] for s in sources])
            for first, piece in storage.pieces(at):
                some = values[first : first + storage.piece]
                g.store(space, piece, storage.word, some, None, site)

        return step


def _tile_words(
    w: Any, fragment: Fragment, storage: _Storage, registers: list[Array]
) -> list[Array]:
    """The words of each lane's chunk of the tile that registers hold."""
    words = storage.to_words(fragment.gather([w.spread(v) for v in registers]))
    return [w.collect(words[..., k]) for k in range(storage.words)]


# --- products -------------------------------------------------------------------------------------


def _product_forms() -> tuple[Form, ...]:
    operands = "=d.d_register*d_count, a.factor_register*a_count, b.factor_register*b_count"
    operands += ", c.c_register*c_count"

    def form(shape: str, types: str, floor: str, head: str = "", aligned: str = "aligned") -> Form:
        line = f"{head} sync {aligned} {BOTH_LAYOUTS} shape:{{{shape}}} {types}"
        return Form(line, operands, floor=floor)

    def same(d: str, factor: str, tail: str = "") -> str:
        return f"dtype:{{{d}}} atype:{{{factor}}} btype:{{{factor}}} ctype:{{{d}}} {tail}"

    halves = "dtype:{f16 f32} ctype:{f16 f32}"
    finite = halves + " satfinite"
    return (
        form(_LARGE, halves, "6.3+sm_70"),
        form(_LARGE, finite, "6.3-6.4+sm_70"),
        *(
            form(shape, types, floor, aligned="")
            for shape, floor in _OLD
            for types in (halves, finite)
        ),
        form(_LARGE, same("f32", "bf16"), "7.0+sm_80"),
        *(form(_LARGE, same("s32", t, "satfinite?"), "6.3+sm_72") for t in ("s8", "u8")),
        form("m16n16k8", same("f32", "tf32"), "7.0+sm_80"),
        form("m8n8k4", "rnd?:{rn rz rm rp} " + same("f64", "f64"), "7.0+sm_80"),
        *(form("m8n8k32", same("s32", t, "satfinite?"), "6.3+sm_75") for t in ("s4", "u4")),
        form("m8n8k128", same("s32", "b1"), "6.3+sm_75", "op:{xor and@7.1+sm_80} popc"),
    )


@instruction("wmma.mma", isa=_SECTION + "wmma.mma", floor="6.0+sm_70")
class WmmaMma(MatrixCollective):
    """D = A * B + C of fragments; the opcode names the layouts A and B were loaded with."""

    forms = _product_forms()
    fragment_operands = ("a", "b", "c", "d")
    traps = ("wmma-fragment", "collective-divergence", "rounding-not-established")

    def check(self, m: Mods) -> str | None:
        """Elements below eight bits are loaded in ``.row.col`` only."""
        if m.shape in ("m8n8k32", "m8n8k128") and (m.alayout, m.blayout) != ("row", "col"):
            return f"the layouts .{m.alayout}.{m.blayout} are not legal here; use .row.col"
        return None

    def factor_register(self, m: Mods) -> str:
        return _register_type(Mods({"type": _factor(m)}))

    def d_register(self, m: Mods) -> str:
        return _register_type(Mods({"type": m.dtype}))

    def c_register(self, m: Mods) -> str:
        return _register_type(Mods({"type": m.ctype}))

    def a_count(self, m: Mods) -> int:
        return wmma_registers("a", parse_shape(m.shape), _factor(m))

    def b_count(self, m: Mods) -> int:
        return wmma_registers("b", parse_shape(m.shape), _factor(m))

    def c_count(self, m: Mods) -> int:
        return wmma_registers("c", parse_shape(m.shape), m.ctype)

    def d_count(self, m: Mods) -> int:
        return wmma_registers("d", parse_shape(m.shape), m.dtype)

    def fragments(self, m: Mods, target: Target) -> tuple[tuple[str, Fragment], ...]:
        factor = _factor(m)
        return (
            ("a", _fragment("a", m.shape, factor, target, m.alayout)),
            ("b", _fragment("b", m.shape, factor, target, m.blayout)),
            ("c", _fragment("c", m.shape, m.ctype, target, "")),
            ("d", _fragment("d", m.shape, m.dtype, target, "")),
        )

    def bind(self, b: Any) -> Step:
        m = b.mods
        factor = _factor(m)
        checks = [
            fragment_reader(b, "a", Held.of("a", m.shape, factor, m.alayout)),
            fragment_reader(b, "b", Held.of("b", m.shape, factor, m.blayout)),
            fragment_reader(b, "c", Held.of("c", m.shape, m.ctype)),
        ]
        held = fragment_writer(b, "d", Held.of("d", m.shape, m.dtype))
        a, bb, c, d = (fragment for _, fragment in self.fragments(m, b.target))
        arithmetic = Arithmetic("wmma", (factor, factor, m.ctype, m.dtype), b.target, m)
        multiply = multiply_step(b, (a, bb, c, d), arithmetic)

        def step(r: Registers, g: Any) -> None:
            for check in checks:
                check(r, g)
            multiply(r, g)
            held(r)

        return step


def _factor(m: Mods) -> str:
    """The type of A and B, which the forms of f16 do not spell."""
    return m.atype or "f16"

"""Matrix multiply-accumulate (PTX ISA 9.1, Warp Level Matrix Instructions: mma, mma.sp)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..diagnostics import Severity
from ..matrix import (
    Fragment,
    mma_a,
    mma_b,
    mma_c,
    parse_shape,
    quad_a,
    quad_b,
    quad_c,
    scale_bytes,
    scale_lanes,
    selectors,
    sparsity,
)
from ..numerics.formats import FORMATS, Format
from ..numerics.tensor_core import (
    Scales,
    bit_product,
    double_product,
    float_product,
    integer_product,
)
from ..numerics.tensor_core_rules import float_rule
from ..targets import Target
from ._mma_forms import dense_forms, element_bits, ordered_forms, sparse_forms
from .protocol import Array, BoolArray, Registers, Step
from .record import Mods, instruction
from .warp_matrix import MatrixCollective, reject, whole_warps

__all__ = ["Arithmetic", "multiply_step"]

_SECTION = "Warp Level Matrix Instructions: "

Fragments = tuple[Fragment, Fragment, Fragment, Fragment]


# --- arithmetic -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """What a multiply-accumulate computes; ``instruction`` names it in the table of rules.

    ``types`` are those of A, B, C and D.
    """

    instruction: str
    types: tuple[str, str, str, str]
    target: Target
    mods: Mods

    @property
    def established(self) -> bool:
        """Whether the bits of the result are known: by the ISA, or by evidence for the target."""
        if self.types[3] in ("s32", "f64"):
            return True
        return bool(float_rule(self.instruction, self.types[0], self.target.number).evidence)

    def product(
        self,
        a: Array,
        b: Array,
        c: Array,
        present: BoolArray | None = None,
        scales: Scales | None = None,
    ) -> Array:
        """D [W, m, n] of tiles A [W, m, k], B [W, k, n] and C, all as bit patterns."""
        type_a, type_b, _, type_d = self.types
        m = self.mods
        if type_a == "b1":
            return bit_product(a, b, c, m.op)
        if type_d == "s32":
            return integer_product(
                a, b, c, a_signed=_signed(type_a), b_signed=_signed(type_b),
                saturate=bool(m.satfinite),
            )  # fmt: skip
        if type_d == "f64":
            return double_product(a, b, c, m.rnd or "rn")
        in_bytes = element_bits(m) == 8 if m.kind else False
        formats = tuple(FORMATS[t] for t in self.types)
        d = float_product(
            _aligned(a, type_a, in_bytes), _aligned(b, type_b, in_bytes), c,
            formats=(formats[0], formats[1], formats[2], formats[3]),
            rule=float_rule(self.instruction, type_a, self.target.number),
            present=present, scales=scales,
        )  # fmt: skip
        return _finite(d, formats[3]) if m.satfinite else d


def _signed(type_: str) -> int:
    return int(type_[1:]) if type_[0] == "s" else 0


def _aligned(bits: Array, type_: str, in_bytes: bool) -> Array:
    """e2m1 sits in bits 5:2 of a byte (PTX ISA 9.1, mma)."""
    return bits >> np.uint8(2) & np.uint8(15) if in_bytes and type_ == "e2m1" else bits


def _finite(d: Array, fmt: Format) -> Array:
    """Infinities as the largest number and NaN as +0: wmma of floats with .satfinite."""
    sign = d.dtype.type(fmt.sign)
    magnitude = d & ~sign
    d = np.where(magnitude == fmt.infinity, (d & sign) | d.dtype.type(fmt.largest), d)
    return np.where(magnitude > d.dtype.type(fmt.infinity or 0), d.dtype.type(0), d)


def _advise(b: Any, arithmetic: Arithmetic) -> Callable[[Any], None]:
    """Says once a launch that the rounding of this instruction is not established."""
    if arithmetic.established:
        return lambda g: None
    told: list[bool] = []
    site, target = b.site, arithmetic.target

    def advise(g: Any) -> None:
        if not told:
            told.append(True)
            g.finding(
                "rounding-not-established",
                f"no evidence how {target} rounds '{site.text}'; the results are those of the"
                " nearest machine that is known",
                site,
                help="do not rely on the last bits, or compare with this GPU",
                severity=Severity.ADVICE,
            )

    return advise


# --- steps ----------------------------------------------------------------------------------------


def multiply_step(
    b: Any,
    fragments: Fragments,
    arithmetic: Arithmetic,
    *,
    stacked: int = 1,
    expand: Callable[..., tuple[Array, BoolArray]] | None = None,
    scaling: Callable[..., Scales] | None = None,
) -> Step:
    """The step ``d = a * b + c`` for fragments of whole tiles.

    A fragment holds ``stacked`` independent tiles one below the other.  ``expand`` turns the stored
    elements of a sparse A into a tile, ``scaling`` gives block scales.
    """
    fragment_a, fragment_b, fragment_c, fragment_d = fragments
    places_a, places_b, places_c = b.sources("a"), b.sources("b"), b.sources("c")
    writes = b.writes("d")
    advise = _advise(b, arithmetic)
    site = b.site

    def tiles(fragment: Fragment, places: list[int], r: Registers, w: Any) -> Array:
        tile = fragment.gather([w.spread(r[s]) for s in places])
        return tile.reshape(-1, fragment.rows // stacked, fragment.columns)

    def step(r: Registers, g: Any) -> None:
        w = whole_warps(g, site)
        advise(g)
        a, present = tiles(fragment_a, places_a, r, w), None
        if expand is not None:
            a, present = expand(r, g, w, a)
        d = arithmetic.product(
            a,
            tiles(fragment_b, places_b, r, w),
            tiles(fragment_c, places_c, r, w),
            present,
            None if scaling is None else scaling(r, g, w),
        )
        d = d.reshape(-1, fragment_d.rows, fragment_d.columns)
        for write, register in zip(writes, fragment_d.scatter(d), strict=True):
            write(r, w.collect(register), None)

    return step


def _expansion(b: Any, k: int, ordered: bool) -> Callable[..., tuple[Array, BoolArray]]:
    """A function from stored elements to the whole tile of A and where it has elements."""
    pattern = sparsity(k, element_bits(b.mods), b.constant("f"))
    ordered = ordered or bool(b.mods.kind)
    legal = np.array([e in pattern.legal(ordered) for e in range(16)])
    place = b.source("e")
    check = b.observer("e")
    read = np.zeros(32, bool)
    read[pattern.lane] = True
    site = b.site

    def expand(r: Registers, g: Any, w: Any, stored: Array) -> tuple[Array, BoolArray]:
        if g.undefined:
            check(r, g, w.collect(np.broadcast_to(read, w.present.shape)))
        entries = pattern.entries(np.broadcast_to(w.spread(r[place]), w.present.shape))
        wrong = ~legal[entries]
        if wrong.any():
            warp, row, chunk = (int(i[0]) for i in np.nonzero(wrong))
            lanes = np.zeros((len(entries), 32), bool)
            at = np.nonzero(wrong)
            lanes[at[0], pattern.lane[at[1], at[2]]] = True
            reject(
                g, site, "sparse-metadata",
                f"metadata entry {int(entries[warp, row, chunk]):#06b} of row {row},"
                f" columns {chunk * pattern.chunk} to {(chunk + 1) * pattern.chunk - 1} of A has"
                f" no meaning in '{site.text}'",
                w.collect(lanes), _metadata_help(pattern.chunk, ordered),
            )  # fmt: skip
        return pattern.expand(stored, pattern.columns(entries), k)

    return expand


def _metadata_help(chunk: int, ordered: bool) -> str:
    if chunk == 2:
        return "an entry is 0b0100 for the first or 0b1110 for the second element"
    which = "in ascending order" if ordered else "that differ"
    return f"an entry holds two positions of two bits {which}, the low bits for the first"


def _scaling(b: Any) -> Callable[[Registers, Any, Any], Scales]:
    """A function to the block scales of A and B."""
    m = b.mods
    count = _scale_count(m)
    fmt = FORMATS[m.stype]
    places = {use: (b.source(f"scale_{use}"), *b.sources(f"ids_{use}")) for use in ("a", "b")}
    checks = {use: b.observer(f"scale_{use}") for use in ("a", "b")}
    site = b.site

    def lines(use: str, r: Registers, g: Any, w: Any) -> Array:
        scale, *ids = places[use]
        values = []
        for i, place in enumerate(ids):
            own = np.broadcast_to(w.spread(r[place]), w.present.shape)
            legal = _legal_ids(use, i, count)
            bad = ~np.isin(own, legal) | (own != own[:, :1])
            reject(
                g, site, "scale-selector",
                f"{('byte', 'thread')[i]} id {int(own[bad][0]) if bad.any() else 0} of scale"
                f" {use.upper()} in '{site.text}' is out of range or not the same in all lanes",
                w.collect(bad), f"give one of {', '.join(map(str, legal))} in all lanes",
            )  # fmt: skip
            values.append(own[:, 0])
        words = np.broadcast_to(w.spread(r[scale]), w.present.shape)
        given = scale_lanes(use, values[1])
        read = np.zeros(words.shape, bool)
        np.put_along_axis(read, given, np.True_, axis=1)
        if g.undefined:
            checks[use](r, g, w.collect(read))
        chosen = np.take_along_axis(words, given, axis=1)
        return scale_bytes(chosen, values[0], count)

    def scales(r: Registers, g: Any, w: Any) -> Scales:
        return Scales(lines("a", r, g, w), lines("b", r, g, w).transpose(0, 2, 1), fmt)

    return scales


def _scale_count(m: Mods) -> int:
    """Scales of a row of A: 1X for mxf8f6f4, 2X for mxf4 unless told otherwise."""
    if m.vector:
        return int(m.vector[-2])
    return 1 if m.kind == "kind::mxf8f6f4" else 2


def _legal_ids(use: str, index: int, count: int) -> tuple[int, ...]:
    """Byte ids (index 0) are multiples of the number of bytes, thread ids 0, 1 or 0 to 3."""
    if index == 0:
        return {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)}[count]
    return (0, 1) if use == "a" else (0, 1, 2, 3)


# --- records --------------------------------------------------------------------------------------


class _Mma(MatrixCollective):
    """Register types and counts, which follow from shape and element types."""

    checks_lanes = ("e", "scale_a", "scale_b")
    #: A holds this part of its elements (sparse: half)
    kept = 1
    #: the name in the table of arithmetic rules
    rule = "mma"

    def check(self, m: Mods) -> str | None:
        """Only m8n8k4 of f16 takes other layouts than ``.row.col``; k16 has no small types."""
        small = {m.atype, m.btype} & {"e3m2", "e2m3", "e2m1"}
        if m.shape == "m16n8k16" and small:
            return f"the shape .m16n8k16 has no type .{min(small)}; use .m16n8k32"
        if (m.alayout, m.blayout) != ("row", "col") and not _quads(m):
            return f"the layouts .{m.alayout}.{m.blayout} are not legal here; use .row.col"
        return None

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """Selectors and ids have the ranges that the assembler checks; metadata is a register."""
        if name == "e":
            return "the metadata is given in a register"
        if name == "f":
            count = selectors(parse_shape(m.shape)[2], element_bits(m))
            return (
                None if value < count else f"sparsity selectors are 0 to {count - 1}, not {value}"
            )
        if name.startswith("ids_"):
            use, index = name[4], int(name[-2])
            legal = _legal_ids(use, index, _scale_count(m))
            if value not in legal:
                words = " or ".join(map(str, legal))
                return f"the {('byte', 'thread')[index]} id is {words}, not {value}"
        return None

    def a_register(self, m: Mods) -> str:
        """The register class of A and B; the sparse forms take any but for f16 (measured)."""
        if m.atype == "f16":
            return "f16x2"
        if m.atype in ("f64", "b1") or self.kept == 2 or m.atype[0] == "e":
            return "f64" if m.atype == "f64" else "b32"
        if m.atype[0] in "su":
            return "u32"
        return "bf16x2"

    def d_register(self, m: Mods) -> str:
        return "f16x2" if m.dtype == "f16" else m.dtype

    def c_register(self, m: Mods) -> str:
        return "f16x2" if m.ctype == "f16" else m.ctype

    def a_count(self, m: Mods) -> int:
        return self._fragments(m)[0].registers

    def b_count(self, m: Mods) -> int:
        return self._fragments(m)[1].registers

    def c_count(self, m: Mods) -> int:
        return self._fragments(m)[2].registers

    def d_count(self, m: Mods) -> int:
        return self._fragments(m)[3].registers

    def _fragments(self, m: Mods) -> Fragments:
        if _quads(m):
            c, d = (quad_c(16 if t == "f16" else 32) for t in (m.ctype, m.dtype))
            return quad_a(m.alayout), quad_b(m.blayout), c, d
        rows, _, k = parse_shape(m.shape)
        bits = element_bits(m)
        c, d = (mma_c(rows, {"f16": 16, "f64": 64}.get(t, 32)) for t in (m.ctype, m.dtype))
        return mma_a(rows, k // self.kept, bits), mma_b(k, bits), c, d

    def fragments(self, m: Mods, target: Target) -> tuple[tuple[str, Fragment], ...]:
        return tuple(zip("abcd", self._fragments(m), strict=True))

    def arithmetic(self, b: Any) -> Arithmetic:
        """The arithmetic of one instruction."""
        m = b.mods
        name = "mma.m8n8k4" if _quads(m) else ".".join(filter(None, (self.rule, m.kind)))
        return Arithmetic(name, (m.atype, m.btype, m.ctype, m.dtype), b.target, m)


def _quads(m: Mods) -> bool:
    """Whether four products are computed at once."""
    return bool(m.shape == "m8n8k4" and m.atype == "f16")


@instruction("mma", isa=_SECTION + "mma", floor="6.4+sm_70")
class Mma(_Mma):
    """D = A * B + C on one tile a warp."""

    forms = dense_forms()
    traps = ("collective-divergence", "scale-selector", "rounding-not-established")

    def bind(self, b: Any) -> Step:
        return multiply_step(
            b, self._fragments(b.mods), self.arithmetic(b), stacked=4 if _quads(b.mods) else 1,
            scaling=_scaling(b) if b.has("scale_a") else None,
        )  # fmt: skip


class _Sparse(_Mma):
    kept = 2
    rule = "mma.sp"
    ordered = False
    traps = ("collective-divergence", "sparse-metadata", "scale-selector",
             "rounding-not-established")  # fmt: skip

    def bind(self, b: Any) -> Step:
        return multiply_step(
            b, self._fragments(b.mods), self.arithmetic(b),
            expand=_expansion(b, parse_shape(b.mods.shape)[2], self.ordered),
            scaling=_scaling(b) if b.has("scale_a") else None,
        )  # fmt: skip


@instruction("mma.sp", isa=_SECTION + "mma.sp", floor="7.1+sm_80")
class MmaSparse(_Sparse):
    """D = A * B + C with half of the elements of A."""

    forms = sparse_forms()


@instruction("mma.sp::ordered_metadata", isa=_SECTION + "mma.sp", floor="8.5+sm_80")
class MmaSparseOrdered(_Sparse):
    """D = A * B + C with half of the elements of A, positions in metadata ascending."""

    ordered = True
    forms = (*sparse_forms(), *ordered_forms())

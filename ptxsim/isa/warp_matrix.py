"""Matrix movement within a warp (PTX ISA 9.1, Warp Level Matrix Instructions: ldmatrix, stmatrix,
movmatrix).

A matrix of 8 x 8 sixteen-bit elements is eight rows of 16 bytes; lane ``8*m + j`` supplies the
address of row ``j`` of matrix ``m``, and the other lanes supply none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from ..matrix import (
    Fragment,
    byte_fragment,
    row_fragment,
    store_fragment,
    tall_fragment,
)
from ..targets import Target
from .order import ROWS, MemoryOrder
from .parallel_synchronization import WarpCollective
from .protocol import Array, BoolArray, Registers, Step, no_effect
from .record import Form, Instruction, Mods, instruction

__all__ = ["MatrixCollective", "first_origin", "reject", "whole_warps"]

_SECTION = "Warp Level Matrix Instructions: "

_SPACE = "space?:{shared shared::cta@7.8}"
_BLACKWELL = "8.6+sm_100a/sm_100f/sm_103a/sm_103f/sm_107a/sm_107f/sm_110a/sm_110f" + (
    "/sm_120a/sm_120f/sm_121a/sm_121f"
)
_LANE = np.arange(32)[None, :]
_EACH_BYTE = np.uint64(0x0101_0101_0101_0101)


class MatrixCollective(Instruction):
    """A ``.sync.aligned`` matrix instruction: all 32 lanes of the warp execute it."""

    collective = True
    waits_as = "collective-divergence"
    needs_defined = True
    traps: ClassVar[tuple[str, ...]] = ("collective-divergence",)

    def lane_matters(self, m: Mods) -> bool:
        return not self.fragment_operands

    def gate(self, b: Any) -> Any:
        return WarpCollective().gate(b)


def whole_warps(g: Any, site: Any) -> Any:
    """The group by warp; a warp with missing lanes has no defined result, which is a finding."""
    w = g.warps()
    if not w.present.all():
        partial = w.present & ~w.present.all(axis=1, keepdims=True)
        warp = int(np.flatnonzero(partial.any(axis=1))[0])
        missing = int(np.flatnonzero(~w.present[warp])[0])
        g.finding(
            "collective-divergence",
            f"'{site.text}' is executed by {int(w.present[warp].sum())} lanes of a warp; lane"
            f" {missing} did not execute it (branched around it, exited, or was not launched)",
            site,
            w.collect(partial),
            help="launch whole warps, and let all lanes come to the instruction together",
            fatal=True,
        )
    return w


def reject(
    g: Any, site: Any, class_: str, message: str, lanes: BoolArray, help_: str, **values: Any
) -> None:
    """Report ``lanes`` (over the lane axis) as a fatal finding, if there are any."""
    if lanes.any():
        g.finding(class_, message, site, lanes, help=help_, fatal=True, **values)


# --- rows in shared memory ------------------------------------------------------------------------


class _Rows(MatrixCollective):
    """What ldmatrix and stmatrix share: the rows of the supplying lanes."""

    traps: ClassVar[tuple[str, ...]] = (
        "misaligned", "oob", "uninit-register", "collective-divergence",
    )  # fmt: skip
    # Lanes that supply no row may have an undefined address, so the record checks by itself.
    needs_defined = False

    def memory_order(self, m: Mods) -> MemoryOrder:
        """A row goes to or comes from other lanes than the one that gives its address."""
        return MemoryOrder(matrix=ROWS)

    def fragments(self, m: Mods, target: Target) -> tuple[tuple[str, Fragment], ...]:
        fragment = _fragment(m)
        return tuple((f"matrix {i}", fragment) for i in range(int(m.num[1:])))


def _fragment(m: Mods) -> Fragment:
    """One matrix of ldmatrix or stmatrix, as it lies in memory."""
    if m.shape == "m8n8":
        return row_fragment(bool(m.trans))
    if m.shape == "m16n16":
        return tall_fragment()
    return byte_fragment() if m.shape == "m8n16" else store_fragment()


def _row_addresses(
    b: Any, count: int, every_lane: bool = False
) -> Callable[[Registers, Any, Any], tuple[Array, Any]]:
    """A function to all addresses and the mask of the lanes that supply the ``count`` rows.

    With ``every_lane`` the addresses of the others must be valid too.
    """
    address = b.address("p")
    check = b.observer("p")
    generic = b.space("p", b.mods.space) == "generic"
    site = b.site
    supplies = count > _LANE

    def rows(r: Registers, g: Any, w: Any) -> tuple[Array, Any]:
        at = g.full(address(r, g))
        supplier = w.collect(np.broadcast_to(supplies, w.present.shape))
        if g.undefined:
            check(r, g, None if every_lane else supplier)
        if generic:
            outside = ~g.in_window("shared", at.astype(np.uint64))
            outside &= supplier | every_lane
            reject(
                g, site, "oob-shared", f"a row address of '{site.text}' is not in shared memory",
                outside, "give the generic address of a shared variable",
            )  # fmt: skip
        return at, None if count == 32 else supplier

    return rows


def first_origin(g: Any, found: list[Any]) -> Array:
    """Where the undefined bits of some registers came from: one origin for all lanes."""
    for unknown in found:
        if unknown is not None and unknown[0].any():
            at = np.flatnonzero(g.full(unknown[0]))[0]
            return np.array([g.full(unknown[1])[at]], np.int32)
    return np.zeros(1, np.int32)


def _check_rows(
    g: Any, w: Any, at: Array, lanes: Any, per_matrix: int, every_lane: bool, site: Any
) -> None:
    """Rows are 16 bytes at multiples of 16 (PTX ISA 9.1, ldmatrix, stmatrix)."""
    low = at.astype(np.uint64) & np.uint64(15)
    bad = (low != 0) if lanes is None or every_lane else (low != 0) & lanes
    if not bad.any():
        return
    warp, lane = (int(i) for i in np.argwhere(w.spread(bad))[0])
    address = int(w.spread(at)[warp, lane])
    used = lanes is None or bool(w.spread(lanes)[warp, lane])
    what = (
        f"row {lane % per_matrix} of matrix {lane // per_matrix} of '{site.text}'"
        if used else f"lane {lane}, whose address '{site.text}' does not use but sm_75 wants valid,"
    )  # fmt: skip
    g.finding(
        "misaligned-shared",
        f"{what} has shared address {address:#x}, given by lane {lane}, which is not a multiple of"
        f" 16 (off by {address % 16})",
        site,
        bad,
        help="start each row at a multiple of 16 bytes" if used
        else "let the other lanes repeat the addresses of the low ones",
        fatal=True,
        address=address,
        space="shared",
    )  # fmt: skip


@instruction("ldmatrix", isa=_SECTION + "ldmatrix", floor="6.5+sm_75")
class Ldmatrix(_Rows):
    """Load one, two or four matrices from shared memory into fragments."""

    receives = "r"
    traps = (*_Rows.traps, "uninit-shared")

    forms = (
        Form(
            f"sync aligned shape:{{m8n8}} num:{{x1 x2 x4}} trans? {_SPACE} type:{{b16}}",
            "=~r.b32*registers, [p]",
        ),
        Form(
            f"sync aligned shape:{{m16n16}} num:{{x1 x2}} trans {_SPACE} type:{{b8}}",
            "=~r.b32*registers, [p]",
            floor=_BLACKWELL,
        ),
        Form(
            f"sync aligned shape:{{m16n16}} num:{{x1 x2}} trans {_SPACE} type:{{b8x16}}"
            " packed:{b6x16_p32 b4x16_p64}",
            "=~r.b32*registers, [p]",
            floor=_BLACKWELL,
        ),
        Form(
            f"sync aligned shape:{{m8n16}} num:{{x1 x2 x4}} {_SPACE} type:{{b8x16}}"
            " packed:{b6x16_p32 b4x16_p64}",
            "=~r.b32*registers, [p]",
            floor=_BLACKWELL,
        ),
    )

    def registers(self, m: Mods) -> int:
        return int(m.num[1:]) * _fragment(m).registers

    def definedness(self, b: Any) -> Step | None:
        """The step looks at the addresses and marks the registers by itself."""
        return no_effect

    def bind(self, b: Any) -> Step:
        m = b.mods
        fragment = _fragment(m)
        count = int(m.num[1:])
        lines = count * fragment.rows
        packed = int(m.packed[1]) if m.packed else 0
        writes, marks = b.writes("r"), b.marks("r")
        # on sm_75 and below the lanes that supply no row need valid addresses too
        every_lane = b.target.number <= 75
        rows = _row_addresses(b, lines, every_lane)
        space = b.space("p", m.space)
        site = b.site

        def step(r: Registers, g: Any) -> None:
            w = whole_warps(g, site)
            at, mask = rows(r, g, w)
            _check_rows(g, w, at, mask, fragment.rows, every_lane, site)
            halves = g.load(space, at, 8, 2, None if every_lane else mask, site)
            for write, value in zip(writes, registers(g, w, halves), strict=True):
                write(r, value, None)
            lost = g.take_loaded()
            if lost is not None:
                _mark_rows(g, w, lost, registers, marks, fragment.rows, site)
            elif g.undefined:
                for mark in marks:
                    mark(g, None, None)

        def registers(g: Any, w: Any, halves: list[Array], packed: int = packed) -> list[Array]:
            """The registers of the two halves of the rows, or of masks of their bits."""
            row = np.stack([w.spread(g.full(h)) for h in halves], axis=-1)[:, :lines]
            octets = np.ascontiguousarray(row).view(np.uint8)
            if packed:
                octets = _unpacked(octets, packed)
            tiles = octets.view(f"<u{fragment.element_bits // 8}")
            parts = fragment.scatter(tiles.reshape(-1, fragment.rows, fragment.columns))
            values = np.stack(parts).reshape(len(parts), -1, count, 32)
            pairs = [divmod(k, fragment.registers) for k in range(len(writes))]
            return [w.collect(values[register, :, matrix]) for matrix, register in pairs]

        return step


def _mark_rows(
    g: Any, w: Any, lost: Any, registers: Any, marks: Any, per_matrix: int, site: Any
) -> None:
    """Undefined bits of rows go to the registers that receive them."""
    halves = [np.zeros(1, np.uint64) if part is None else part[0] for part in lost]
    origin = first_origin(g, lost)
    parts = registers(g, w, halves)
    # rows of bytes that name their lane: each register then says whose row its bytes are of
    names = w.collect(np.broadcast_to(_LANE.astype(np.uint64) * _EACH_BYTE, w.present.shape))
    given = registers(g, w, [names, names], 0)
    rows = np.full(g.n, -1)
    for bits, lanes in zip(reversed(parts), reversed(given), strict=True):
        lowest = np.bitwise_count((bits & (~bits + np.uint32(1))) - np.uint32(1)) & 24
        rows = np.where(bits != 0, (lanes >> lowest.astype(np.uint32)) & np.uint32(0xFF), rows)

    def describe(lane: int) -> str:
        return f"row {lane % per_matrix} of matrix {lane // per_matrix}, given by lane {lane}"

    g.describe_origin(int(origin[0]), site, rows, describe)
    for mark, bits in zip(marks, parts, strict=True):
        mark(g, (bits, origin), None)


def _unpacked(octets: Array, bits: int) -> Array:
    """Rows of 16 packed elements of 4 or 6 bits, [..., 16] bytes, with a byte for each element."""
    single = np.unpackbits(octets, axis=-1, bitorder="little")[..., : 16 * bits]
    return np.packbits(single.reshape(*single.shape[:-1], 16, bits), axis=-1, bitorder="little")[
        ..., 0
    ]


@instruction("stmatrix", isa=_SECTION + "stmatrix", floor="7.8+sm_90")
class Stmatrix(_Rows):
    """Store one, two or four matrices from fragments to shared memory."""

    forms = (
        Form(
            f"sync aligned shape:{{m8n8}} num:{{x1 x2 x4}} trans? {_SPACE} type:{{b16}}",
            "[p], b.b32*num",
        ),
        Form(
            f"sync aligned shape:{{m16n8}} num:{{x1 x2 x4}} trans {_SPACE} type:{{b8}}",
            "[p], b.b32*num",
            floor=_BLACKWELL,
        ),
    )

    def definedness(self, b: Any) -> Step | None:
        """Undefined bits go to memory with the rest."""
        carry = b.unknown("b")
        lines, fragment = 8 * int(b.mods.num[1:]), _fragment(b.mods)

        def step(r: Registers, g: Any) -> None:
            found = carry(r, g)
            if found is None:
                return
            masks = [np.zeros(1, np.uint32) if u is None else u[0] for u in found]
            origin = first_origin(g, found)
            rows = _row_halves(g.warps(), fragment, lines, masks)
            g.storing = [(half, origin) for half in rows]

        return step

    def bind(self, b: Any) -> Step:
        m = b.mods
        lines = 8 * int(m.num[1:])
        fragment = _fragment(m)
        sources = b.sources("b")
        rows = _row_addresses(b, lines)
        space = b.space("p", m.space)
        site = b.site

        def step(r: Registers, g: Any) -> None:
            w = whole_warps(g, site)
            at, mask = rows(r, g, w)
            _check_rows(g, w, at, mask, 8, False, site)
            values = _row_halves(w, fragment, lines, [r[s] for s in sources])
            g.store(space, at, 8, values, mask, site)

        return step


def _row_halves(w: Any, fragment: Fragment, lines: int, registers: list[Array]) -> list[Array]:
    """The two halves of the rows of fragments, by the lane that supplies the row."""
    tiles = np.stack([fragment.gather([w.spread(v)]) for v in registers], axis=1)
    row = np.ascontiguousarray(tiles).reshape(len(tiles), lines, -1).view(np.uint64)
    whole = np.zeros((row.shape[0], 32, 2), np.uint64)
    whole[:, :lines] = row
    return [w.collect(whole[..., k]) for k in (0, 1)]


@instruction("movmatrix", isa=_SECTION + "movmatrix", floor="7.8+sm_75")
class Movmatrix(MatrixCollective):
    """Transpose an 8x8 matrix across the registers of a warp."""

    forms = (Form("sync aligned shape:{m8n8} trans type:{b16}", "=d.b32, a.b32"),)

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """A matrix is in registers."""
        return "the matrix is given in a register"

    def fragments(self, m: Mods, target: Target) -> tuple[tuple[str, Fragment], ...]:
        return (("a", row_fragment(False)), ("d", row_fragment(True)))

    def bind(self, b: Any) -> Step:
        source, write = b.source("a"), b.write("d")
        site = b.site

        def step(r: Registers, g: Any) -> None:
            w = whole_warps(g, site)
            tile = row_fragment(False).gather([w.spread(r[source])])
            (register,) = row_fragment(True).scatter(tile)
            write(r, w.collect(register), None)

        return step

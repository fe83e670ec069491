"""Matrix movement within a warp (PTX ISA 9.1, Warp Level Matrix Instructions: ldmatrix, stmatrix,
movmatrix).

A matrix of 8 x 8 sixteen-bit elements is eight rows of 16 bytes; lane ``8*m + j`` supplies the
address of row ``j`` of matrix ``m``, and the other lanes supply none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from ..matrix import row_fragment
from .parallel_synchronization import WarpCollective
from .protocol import Array, BoolArray, Registers, Step
from .record import Form, Instruction, Mods, instruction

__all__ = ["MatrixCollective", "reject", "whole_warps"]

_SECTION = "Warp Level Matrix Instructions: "

_SPACE = "space?:{shared shared::cta@7.8}"
_BLACKWELL = "8.6+sm_100a/sm_100f/sm_103a/sm_103f/sm_107a/sm_107f/sm_110a/sm_110f" + (
    "/sm_120a/sm_120f/sm_121a/sm_121f"
)
_LANE = np.arange(32)[None, :]


class MatrixCollective(Instruction):
    """A ``.sync.aligned`` matrix instruction: all 32 lanes of the warp execute it."""

    collective = True
    waits_as = "collective-divergence"
    needs_defined = True
    traps: ClassVar[tuple[str, ...]] = ("collective-divergence",)

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
            f" {missing} has exited or does not exist",
            site,
            w.collect(partial),
            help="launch whole warps, and let no lane exit before the instruction",
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

    traps = ("misaligned", "oob", "collective-divergence")
    # Lanes that supply no row may have an undefined address, so the record checks by itself.
    needs_defined = False


def _row_addresses(b: Any, count: int) -> Callable[[Registers, Any, Any], tuple[Array, Any]]:
    """A function to the address of every lane and the mask of the lanes that supply a row."""
    address = b.address("p")
    check = _definedness(b, [getattr(b.operand("p").base, "index", -1)])
    generic = b.space("p", b.mods.space) == "generic"
    site = b.site
    supplies = 8 * count > _LANE

    def rows(r: Registers, g: Any, w: Any) -> tuple[Array, Any]:
        at = g.full(address(r, g))
        supplier = w.collect(np.broadcast_to(supplies, w.present.shape))
        check(r, g, supplier)
        if generic:
            outside = ~g.in_window("shared", at.astype(np.uint64)) & supplier
            reject(
                g, site, "oob-shared", f"a row address of '{site.text}' is not in shared memory",
                outside, "give the generic address of a shared variable",
            )  # fmt: skip
        return at, None if count == 4 else supplier

    return rows


def _definedness(b: Any, registers: list[int]) -> Callable[[Registers, Any, Any], None]:
    """A check that registers are defined in the lanes of a mask (None: in all)."""
    flags = [b.places.shadows[s] for s in registers if s in b.places.shadows]
    site = b.site

    def check(r: Registers, g: Any, lanes: Any) -> None:
        for flag in flags:
            bad = g.full(r[flag])
            bad = bad if lanes is None else bad & lanes
            if bad.any():
                g.finding(
                    "uninit-register",
                    f"'{site.text}' uses a register that was never written",
                    site,
                    bad,
                    help="write the register on every path that leads here",
                )

    return check


@instruction("ldmatrix", isa=_SECTION + "ldmatrix", floor="6.5+sm_75")
class Ldmatrix(_Rows):
    """Load one, two or four 8x8 matrices from shared memory into fragments."""

    forms = (
        Form(
            f"sync aligned shape:{{m8n8}} num:{{x1 x2 x4}} trans? {_SPACE} type:{{b16}}",
            "=r.b32*num, [p]",
        ),
        Form(
            f"sync aligned shape:{{m16n16}} num:{{x1 x2}} trans {_SPACE} type:{{b8}}",
            "=r.b32*registers, [p]",
            floor=_BLACKWELL, unsupported="ldmatrix of b8 is not modelled",
        ),
        Form(
            f"sync aligned shape:{{m16n16}} num:{{x1 x2}} trans {_SPACE} type:{{b8x16}}"
            " packed:{b6x16_p32 b4x16_p64}",
            "=r.b32*registers, [p]",
            floor=_BLACKWELL, unsupported="ldmatrix of packed b8x16 is not modelled",
        ),
        Form(
            f"sync aligned shape:{{m8n16}} num:{{x1 x2 x4}} {_SPACE} type:{{b8x16}}"
            " packed:{b6x16_p32 b4x16_p64}",
            "=r.b32*num, [p]",
            floor=_BLACKWELL, unsupported="ldmatrix of packed b8x16 is not modelled",
        ),
    )  # fmt: skip

    def registers(self, m: Mods) -> int:
        """A 16x16 matrix of bytes fills two registers."""
        return 2 * int(m.num[1:])

    def bind(self, b: Any) -> Step:
        count = int(b.mods.num[1:])
        fragment = row_fragment(bool(b.mods.trans))
        writes = b.writes("r")
        rows = _row_addresses(b, count)
        space = b.space("p", b.mods.space)
        site = b.site

        def step(r: Registers, g: Any) -> None:
            w = whole_warps(g, site)
            at, mask = rows(r, g, w)
            halves = g.load(space, at, 8, 2, mask, site)
            row = np.stack([w.spread(g.full(h)) for h in halves], axis=-1)[:, : 8 * count]
            tiles = np.ascontiguousarray(row).view(np.uint16).reshape(-1, 8, 8)
            (register,) = fragment.scatter(tiles)
            for k, write in enumerate(writes):
                write(r, w.collect(register[k::count]), None)

        return step


@instruction("stmatrix", isa=_SECTION + "stmatrix", floor="7.8+sm_90")
class Stmatrix(_Rows):
    """Store one, two or four 8x8 matrices from fragments to shared memory."""

    forms = (
        Form(
            f"sync aligned shape:{{m8n8}} num:{{x1 x2 x4}} trans? {_SPACE} type:{{b16}}",
            "[p], b.b32*num",
        ),
        Form(
            f"sync aligned shape:{{m16n8}} num:{{x1 x2 x4}} trans {_SPACE} type:{{b8}}",
            "[p], b.b32*num",
            floor=_BLACKWELL, unsupported="stmatrix of b8 is not modelled",
        ),
    )  # fmt: skip

    def bind(self, b: Any) -> Step:
        count = int(b.mods.num[1:])
        fragment = row_fragment(bool(b.mods.trans))
        sources = b.sources("b")
        check = _definedness(b, sources)
        rows = _row_addresses(b, count)
        space = b.space("p", b.mods.space)
        site = b.site

        def step(r: Registers, g: Any) -> None:
            w = whole_warps(g, site)
            check(r, g, None)
            at, mask = rows(r, g, w)
            tiles = np.stack([fragment.gather([w.spread(r[s])]) for s in sources], axis=1)
            row = tiles.reshape(-1, 8 * count, 8).view(np.uint64)
            whole = np.zeros((row.shape[0], 32, 2), np.uint64)
            whole[:, : 8 * count] = row
            values = [w.collect(whole[..., k]) for k in (0, 1)]
            g.store(space, at, 8, values, mask, site)

        return step


@instruction("movmatrix", isa=_SECTION + "movmatrix", floor="7.8+sm_75")
class Movmatrix(MatrixCollective):
    """Transpose an 8x8 matrix across the registers of a warp."""

    forms = (Form("sync aligned shape:{m8n8} trans type:{b16}", "=d.b32, a.b32"),)

    def bind(self, b: Any) -> Step:
        source, write = b.source("a"), b.write("d")
        site = b.site

        def step(r: Registers, g: Any) -> None:
            w = whole_warps(g, site)
            tile = row_fragment(False).gather([w.spread(r[source])])
            (register,) = row_fragment(True).scatter(tile)
            write(r, w.collect(register), None)

        return step

"""Matrix movement within a warp (PTX ISA 9.1, Warp Level Matrix Instructions: ldmatrix, stmatrix,
movmatrix).

A matrix of 8 x 8 sixteen-bit elements is eight rows of 16 bytes; lane ``8*m + j`` supplies the
address of row ``j`` of matrix ``m``, and the other lanes supply none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..matrix import row_fragment
from .parallel_synchronization import WarpCollective
from .protocol import Array, BoolArray, Registers, Step
from .record import Form, Mods, instruction

__all__ = ["MatrixCollective", "reject_defects", "whole_warps"]

_SECTION = "Warp Level Matrix Instructions: "

_SPACE = "space?:{shared shared::cta@7.8}"
_BLACKWELL = "8.6+sm_100a/sm_100f/sm_103a/sm_103f/sm_107a/sm_107f/sm_110a/sm_110f" + (
    "/sm_120a/sm_120f/sm_121a/sm_121f"
)
_LANE = np.arange(32)[None, :]


class MatrixCollective(WarpCollective):
    """A ``.sync.aligned`` matrix instruction: all 32 lanes of the warp execute it."""

    needs_defined = True


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


def reject_defects(
    g: Any, site: Any, class_: str, message: str, lanes: BoolArray, help_: str, **values: Any
) -> None:
    """Report ``lanes`` (over the lane axis) as a fatal finding, if there are any."""
    if lanes.any():
        g.finding(class_, message, site, lanes, help=help_, fatal=True, **values)


# --- rows in shared memory ---------------------------------------------------------------------------


class _Rows(MatrixCollective):
    """What ldmatrix and stmatrix share: the rows of the supplying lanes."""

    traps = ("misaligned", "oob", "collective-divergence")
    # The addresses of lanes that supply no row may be undefined: checked by the record itself.
    needs_defined = False


def _row_addresses(b: Any, count: int) -> Callable[[Registers, Any, Any], tuple[Array, Any]]:
    """A function to the address of every lane and the mask of the lanes that supply a row."""
    address = b.address("p")
    undefined = [b.places.shadows[s] for s in b.read_registers() if s in b.places.shadows]
    if b.has("b"):
        undefined = undefined[:0]
    generic = b.space("p", b.mods.space) == "generic"
    site = b.site
    supplies = _LANE < 8 * count

    def rows(r: Registers, g: Any, w: Any) -> tuple[Array, Any]:
        at = g.full(address(r, g))
        supplier = w.collect(np.broadcast_to(supplies, w.present.shape))
        for flag in undefined:
            bad = g.full(r[flag]) & supplier
            if bad.any():
                g.finding(
                    "uninit-register",
                    f"'{site.text}' takes a row address from a register that was never written",
                    site,
                    bad,
                    help="write the address in the lanes that supply a row",
                )
        if generic:
            outside = ~g.in_window("shared", at) & supplier
            reject_defects(
                g, site, "oob-shared", f"a row address of '{site.text}' is not in shared memory",
                outside, "use the address of a shared variable, or cvta.shared of one",
            )  # fmt: skip
        return at, None if count == 4 else supplier

    return rows

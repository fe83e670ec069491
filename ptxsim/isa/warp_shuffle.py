"""Register shuffles within a warp (PTX ISA 9.1, Data Movement: shfl.sync, shfl)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..diagnostics import Severity
from .parallel_synchronization import MaskedCollective
from .protocol import Array, BoolArray, Registers, Step
from .record import Form, Instruction, Mods, instruction

__all__: list[str] = []

_SECTION = "Data Movement and Conversion Instructions: "

_LANES = np.arange(32, dtype=np.int32)[None, :]


def _sources(mode: str, b: Array, c: Array) -> tuple[Array, BoolArray]:
    """Source lane and validity for each lane; ``b`` and ``c`` are uint32 [..., 32]."""
    offset = (b & np.uint32(31)).astype(np.int32)
    clamp = (c & np.uint32(31)).astype(np.int32)
    segment = ((c >> np.uint32(8)) & np.uint32(31)).astype(np.int32)
    highest = (_LANES & segment) | (clamp & ~segment)
    lowest = _LANES & segment
    if mode == "up":
        lane = _LANES - offset
        valid = lane >= highest
    elif mode == "down":
        lane = _LANES + offset
        valid = lane <= highest
    elif mode == "bfly":
        lane = _LANES ^ offset
        valid = lane <= highest
    else:
        lane = lowest | (offset & ~segment)
        valid = lane <= highest
    return np.where(valid, lane, _LANES), valid


class _Shuffle(Instruction):
    collective = True
    needs_defined = True
    propagates = ("a",)
    loses = True

    def lane_matters(self, m: Mods) -> bool:
        return True

    def definedness(self, b: Any) -> Step | None:
        """Undefined bits come along from the lane that is read."""
        mode = b.mods.mode
        carry, lane_operand, clamp = b.unknown("a"), b.source("b"), b.source("c")
        (mark,), mark_p = b.marks("d"), b.mark_second("d")

        def step(r: Registers, g: Any) -> None:
            found = carry(r, g)
            new = None
            if found is not None:
                w = g.warps()
                source, _ = _sources(mode, w.spread(r[lane_operand]), w.spread(r[clamp]))
                source = np.broadcast_to(source, w.present.shape)
                bits, origin = (
                    w.collect(np.take_along_axis(w.spread(g.full(part)), source, axis=1))
                    for part in found[0]
                )
                new = (bits, origin)
            mark(g, new, None)
            mark_p(g, None, None)

        return step

    def bind(self, b: Any) -> Step:
        mode = b.mods.mode
        a, lane_operand, clamp = b.source("a"), b.source("b"), b.source("c")
        write, write_p = b.write("d"), b.write_second("d")
        (mark,) = b.marks("d")
        site = b.site
        masked = b.has("mask")
        member = b.source("mask") if masked else -1

        def step(r: Registers, g: Any) -> None:
            w = g.warps()
            value = w.spread(r[a])
            source, valid = _sources(mode, w.spread(r[lane_operand]), w.spread(r[clamp]))
            source = np.broadcast_to(source, w.present.shape)
            result = np.take_along_axis(value, source, axis=1)
            write(r, w.collect(result), None)
            write_p(r, w.collect(valid), None)
            if masked:
                # the mask of the lane that reads: several groups may come at once
                members = w.spread(r[member])
                absent = (members >> source.astype(np.uint32)) & np.uint32(1) == 0
            else:
                absent = np.zeros(source.shape, bool)
            if not w.present.all():
                absent = (absent | ~np.take_along_axis(w.present, source, axis=1)) & w.present
            if absent.any():
                _lose(g, w.collect(absent), w.collect(source), mark, site)

        return step


def _lose(g: Any, lanes: BoolArray, source: Array, mark: Any, site: Any) -> None:
    """What lanes take from a lane that is not here is undefined: reported where it matters.

    Where undefined bits are not followed, nobody knows whether it does: a warning.
    """
    unknown = g.absent(lanes, source, site)
    if unknown is not None:
        mark(g, unknown, lanes)
        return
    first = int(np.flatnonzero(lanes)[0])
    g.finding(
        "mask-mismatch",
        f"lane {g.lanes[first] & 31} reads lane {source[first]}, which does not take part in"
        f" '{site.text}'",
        site,
        lanes,
        help="name the source lane in the member mask and let it execute the instruction; with"
        " initcheck only values that are used are reported",
        severity=Severity.WARNING,
    )


_MODES = "mode:{up down bfly idx} type:{b32}"


@instruction("shfl.sync", isa=_SECTION + "shfl.sync", floor="6.0+sm_30")
class ShflSync(_Shuffle, MaskedCollective):
    """Exchange registers between the lanes of a mask."""

    forms = (Form(_MODES, "=d.type|p, a.type, b.b32, c.b32, mask.u32"),)


@instruction("shfl", isa=_SECTION + "shfl (deprecated)", floor="3.0-6.3:70+sm_30")
class Shfl(_Shuffle):
    """The form without a mask (up to sm_6x)."""

    forms = (Form(_MODES, "=d.type|p, a.type, b.b32, c.b32"),)

    def gate(self, b: Any) -> Any:
        return lambda r, g: None

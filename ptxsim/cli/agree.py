"""Buffers of the simulator against those of a GPU, or a recording: the finding of a difference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..agreement import Provenance, Shape
from ..agreement.recording import Reference, digest
from ..agreement.taint import Source
from ..agreement.values import TOLERANT, close
from ..report import FINDING_CODES, Finding
from .compare import compare
from .elements import ElementType, patterns

__all__ = ["CLASS", "differences", "place_of"]

Array = NDArray[Any]
CLASS = "hardware-mismatch"


def differences(
    shown: str,
    parameter: str,
    type_: ElementType,
    got: Array,
    reference: Reference,
    provenance: Provenance,
    shape: Shape,
    origin: str,
) -> tuple[Finding | None, int]:
    """The finding of a buffer, if it differs, and how many elements differ as much as they may.

    ``parameter`` is the name that the kernel has for what is ``shown`` under its own name.

    Elements that approximate instructions have led to may differ within their tolerances; all
    others must be equal bit for bit.
    """
    want = reference.over(got)
    a, b = patterns(got.reshape(-1)), patterns(want.reshape(-1))
    different = np.flatnonzero(a != b)
    size = got.nbytes
    masks = provenance.masks(parameter, size, different, type_.size)
    allowed = _allowed(a[different], b[different], masks, type_, provenance)
    left = got.reshape(-1).copy()
    left[different[allowed]] = want.reshape(-1)[different[allowed]]
    finding = compare(shown, left, want.reshape(-1), type_, origin)
    if finding is None:
        return _unsampled(shown, parameter, got, reference, provenance, origin), int(allowed.sum())
    at = int(finding.values["index"])
    spot, thread = provenance.writer(parameter, size, at * type_.size, type_.size)
    sources = provenance.reached_by(masks[int(np.searchsorted(different, at))])
    cta, warp, lane = place_of(thread, shape)
    return (
        replace(
            finding,
            class_=CLASS,
            code=FINDING_CODES[CLASS],
            message=finding.message.replace("instead of", "on the simulator instead of", 1),
            line=spot[0] if spot else 0,
            column=spot[1] if spot else 0,
            help=_help(sources, type_, spot is not None),
            ctas=() if thread < 0 else (cta,),
            warp=None if thread < 0 else warp,
            lanes=() if thread < 0 else (lane,),
        ),
        int(allowed.sum()),
    )


def place_of(thread: int, shape: Shape) -> tuple[tuple[int, int, int], int, int]:
    """CTA, warp and lane of a thread by its number, warps padded to 32 lanes."""
    x, y, z = shape.block
    per = -(-x * y * z // 32) * 32
    cta, within = divmod(max(thread, 0), per)
    gx, gy, _ = shape.grid
    return (cta % gx, cta // gx % gy, cta // (gx * gy)), within // 32, within % 32


def _allowed(
    a: Array, b: Array, masks: list[int], type_: ElementType, provenance: Provenance
) -> NDArray[np.bool_]:
    out = np.zeros(len(a), bool)
    if type_.token not in TOLERANT:
        return out
    kinds = np.array(masks, object)
    for mask in set(masks) - {0}:
        here = np.flatnonzero(kinds == mask)
        sources = provenance.reached_by(mask)
        out[here] = close(a[here], b[here], type_.token, sources, provenance.rounds(mask))
    return out


def _unsampled(
    shown: str,
    parameter: str,
    got: Array,
    reference: Reference,
    provenance: Provenance,
    origin: str,
) -> Finding | None:
    """The finding of a buffer that differs somewhere, but at no place that is known."""
    if reference.places is None:
        return None
    if digest(got.tobytes()) == reference.sha256:
        return None
    every = np.arange(got.size, dtype=np.int64)
    if any(provenance.masks(parameter, got.nbytes, every, got.itemsize)):
        return None  # elements may differ a little, and then the hash says nothing
    return Finding(
        class_=CLASS,
        code=FINDING_CODES[CLASS],
        message=f"'{shown}' differs from {origin}, in none of the {len(reference.places)}"
        " elements that it holds: only the hash of all elements is different",
        line=0,
        values={"buffer": shown},
    )


def _help(sources: tuple[Source, ...], type_: ElementType, stored: bool) -> str:
    if not stored:
        return "no instruction has stored the element on the simulator"
    if not sources:
        return "no approximate instruction leads to it: the bits must be equal"
    shown = ", ".join(f"{s.text} (line {s.spot[0]})" for s in sources[:4])
    more = f" and {len(sources) - 4} more" if len(sources) > 4 else ""
    if type_.token not in TOLERANT:
        return f"it comes from {shown}{more}, but as {type_} it has no tolerance"
    return (
        f"it comes from {shown}{more}, and is further off than their tolerances add up to; what"
        " arithmetic in between makes larger is not counted"
    )

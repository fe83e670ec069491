"""The decision of a lowered copy as text: layouts, addresses, proof, bank conflicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ..dispatch import Decline
from ..layout import ComposeLayout
from .api import Lowered
from .faithful import Fit, structure
from .plan import Move, Plan, wavefronts
from .problem import Copy, Placement
from .search import Proposal, repairs

__all__ = ["advice", "explain", "head"]

#: How many proposals are shown.
_SHOWN = 4

_SEGMENTS = ("warps", "rows", "pairs", "outer", "matrices", "halves")


def explain(lowered: Lowered) -> str:
    """Why a copy became the instructions that it became."""
    plan = lowered.plan
    copy = plan.copy
    out = [head(plan), "", *_pairs([("register", copy.register), ("shared", copy.shared)])]
    out += ["", *_structure(plan), "", *_instructions(lowered)]
    out += [f"  {note}" for note in plan.notes]
    out += ["", _proof(lowered)]
    out += _declines(lowered.declines)
    text = "\n".join(out) + "\n"
    if "ldstmatrix" in lowered.declines:
        text += advice(copy, "shared layouts that ldstmatrix would take:")
    elif plan.variant == "ldstmatrix" and _conflicts(_ways(lowered)):
        text += advice(copy, "shared layouts without bank conflicts:", free=True)
    return text


def advice(copy: Copy, heading: str = "these shared layouts would fit:", free: bool = False) -> str:
    """Shared layouts that matrix instructions would take, or nothing if there are none.

    ``free`` leaves out those with bank conflicts.
    """
    found = [p for p in repairs(copy) if not free or not p.conflicts]
    if not found:
        return ""
    shown = found[:_SHOWN]
    width = max(len(str(p.shared)) for p in shown)
    return "\n".join(["", heading, *(_proposal(p, width) for p in shown)]) + "\n"


def _proposal(proposal: Proposal, width: int) -> str:
    return f"  {str(proposal.shared).ljust(width)}  {proposal.describe()}"


def head(plan: Plan) -> str:
    """What is copied, by whom, for which target."""
    copy = plan.copy
    way = "shared memory to registers" if copy.direction == "ld" else "registers to shared memory"
    scope = f"{copy.scope} of {copy.thread_count} threads"
    return (
        f"{plan.variant}: {copy.register.size()} elements of {copy.dtype}, {way}, {scope},"
        f" {copy.target}"
    )


def _pairs(rows: Sequence[tuple[str, object]]) -> Iterator[str]:
    yield from (f"  {name.ljust(8)}  {value}" for name, value in rows)


# --- structure ------------------------------------------------------------------------------------


def _structure(plan: Plan) -> Iterator[str]:
    """Both layouts regrouped by the digits of a matrix instruction, the row pitch, and trans."""
    if plan.variant != "ldstmatrix":
        yield "each thread moves its own registers"
        return
    found = structure(plan.copy) if plan.copy.width == 2 else None
    if isinstance(found, Fit):
        digits = ", ".join(f"{n} {e}" for n, e in zip(_SEGMENTS, found.shape, strict=True))
        yield f"regrouped by {digits}"
        yield from _pairs([("register", found.register), ("shared", found.shared)])
        composed = isinstance(plan.copy.shared, ComposeLayout)
        swizzled = ", before the swizzle" if composed else ""
        yield f"row pitch p = {found.pitch} elements = {2 * found.pitch} bytes{swizzled}"
    else:
        why = f" ({found.message})" if isinstance(found, Decline) else ""
        yield f"no common structure of both layouts{why}: each register word is its own matrix"
        pitches = {p for move in plan.moves for p in _pitches(move)}
        if len(pitches) == 1:
            yield f"row pitch p = {pitches.pop()} bytes"
        else:
            yield "rows have no one pitch"
    trans = {".trans." in move.opcode for move in plan.moves}
    yield "trans: " + ("yes and no" if len(trans) > 1 else "yes" if True in trans else "no")


def _pitches(move: Move) -> set[int]:
    """The distances of neighbouring rows, in bytes."""
    matrices = move.address.reshape(-1, 32)[:, : move.suppliers].reshape(-1, 8)
    return set(np.unique(np.diff(matrices, axis=1)).tolist())


# --- instructions ---------------------------------------------------------------------------------


def _instructions(lowered: Lowered) -> Iterator[str]:
    plan = lowered.plan
    name = "lane" if plan.copy.scope == "warp" else "thread"
    count = len(plan.moves)
    yield f"{count} instruction{'s' * (count > 1)} a warp, byte address by {name} t:"
    number = len(str(count))
    for i, (move, ways) in enumerate(zip(plan.moves, _ways(lowered), strict=True)):
        yield f"  {i + 1:>{number}}. {move.opcode}  {_registers(move)}"
        margin = " " * (number + 4)
        yield f"{margin}{_address(plan, i)}"
        yield f"{margin}{_banks(move, *ways)}"


def _registers(move: Move) -> str:
    """The register words of an instruction, with the bits of those that it moves in part."""
    parts = [
        f"r{p.word}" if p.bits == 32 else f"r{p.word}[{p.low + p.bits - 1}:{p.low}]"
        for p in move.parts
    ]
    return "{" + ", ".join(parts) + "}"


def _address(plan: Plan, index: int) -> str:
    """The address of a thread as a formula, or as that of an earlier instruction and a constant."""
    table = plan.moves[index].address
    for earlier, move in enumerate(plan.moves[:index]):
        added, flipped = table - move.address, table ^ move.address
        if (added == added[0]).all():
            return f"address {earlier + 1} {'+-'[int(added[0] < 0)]} {abs(int(added[0]))}"
        if (flipped == flipped[0]).all():
            return f"address {earlier + 1} ^ {int(flipped[0])}"
    return plan.code(plan.moves[index]).describe("t")


def _banks(move: Move, have: int, ideal: int) -> str:
    words = move.opcode.split(".")
    size = next((w for w in words if w in ("x1", "x2", "x4")), "")
    what = f"{size}: {len(move.parts)} matri{'x' if len(move.parts) == 1 else 'ces'}, " * bool(size)
    if ".m16n16." in move.opcode:
        what = f"{size}: {len(move.parts) // 2} matrices of 16x16 bytes, "
    conflict = "" if have == ideal else f" ({have / ideal:.3g}-way bank conflict)"
    return f"{what}{have} wavefront{'s' * (have > 1)}, ideal {ideal}{conflict}"


def _ways(lowered: Lowered) -> Sequence[tuple[int, int]]:
    """Wavefronts and the fewest possible: of the run that proved the copy, or of the plan."""
    if lowered.proof is not None and lowered.proof.ways:
        return lowered.proof.ways
    return [wavefronts(move) for move in lowered.plan.moves]


def _conflicts(ways: Sequence[tuple[int, int]]) -> bool:
    return any(have > ideal for have, ideal in ways)


# --- proof and declines ---------------------------------------------------------------------------


def _proof(lowered: Lowered) -> str:
    placement: Placement = lowered.plan.placement
    size = f"shared array of {placement.shared_bytes} bytes, {placement.words} register words"
    if lowered.proof is None:
        return f"not proved; {size}"
    runs = lowered.proof.runs
    return f"proved by {runs} simulated run{'s' * (runs > 1)} with tagged bytes; {size}"


def _declines(declines: Mapping[str, Decline]) -> Iterator[str]:
    if declines:
        yield ""
        yield "declined:"
    for name, reason in declines.items():
        yield f"  {name}  {reason.code}: {reason.message}"
        if reason.help:
            yield f"  {' ' * len(name)}  {reason.help}"

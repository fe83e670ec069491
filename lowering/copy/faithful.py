"""Copies by ldmatrix and stmatrix under TVM's rule, so that decisions can be compared with TVM's.

The rule asks for a structure of both layouts instead of testing the map: all register words of a
copy move with one width (four, two or one matrices), one row pitch and one transposition, the
widest that fits.  What it accepts is also tested by the complete rule, because the structure alone
lets through misaligned rows and elements of other widths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..dispatch import Decline
from ..layout import (
    ComposeLayout,
    Iter,
    LayoutError,
    TileLayout,
    axis,
    canonicalize,
    group,
    permute_by_groups,
    permute_dims,
)
from .ldstmatrix import MATRIX_MOVES
from .plan import Move, Part, Plan
from .problem import Copy, Table

__all__ = ["FAITHFUL_MOVES", "FaithfulMoves", "Fit", "structure"]


@dataclass(frozen=True, slots=True)
class Fit:
    """A structure that fits: both layouts grouped by (warp, 8, 4, outer, matrices, 2)."""

    register: TileLayout
    shared: TileLayout
    shape: tuple[int, ...]
    trans: bool
    pitch: int


class FaithfulMoves:
    """The variant ``ldstmatrix`` under TVM's rule."""

    name = "ldstmatrix"
    priority = 10

    def plan(self, problem: Copy) -> Plan | Decline:
        """One width for the whole copy: four matrices, two or one."""
        complete = MATRIX_MOVES.plan(problem)
        if isinstance(complete, Decline):
            return complete
        if problem.width != 2:
            return Decline(
                "DTYPE", f"the rule is for elements of 16 bits, {problem.dtype} has"
                f" {8 * problem.width}", "leave out faithful", {"bits": 8 * problem.width},
            )  # fmt: skip
        fit = structure(problem)
        if isinstance(fit, Decline):
            return fit
        return Plan(self.name, problem, complete.placement, tuple(_moves(problem, fit)))


FAITHFUL_MOVES = FaithfulMoves()


def structure(copy: Copy) -> Fit | Decline:
    """The decision of the rule: the first width of 4, 2, 1 whose structure fits."""
    shared = copy.shared
    if isinstance(shared, ComposeLayout):
        if shared.swizzle.chunk < 8:
            return Decline(
                "CHUNK", f"the swizzle keeps {shared.swizzle.chunk} elements together, a row has 8",
                numbers={"chunk": shared.swizzle.chunk},
            )  # fmt: skip
        shared = shared.strip((copy.register.size(),))
    register, shared = canonicalize(copy.register), canonicalize(shared)
    threads = {i.axis for i in register.shard if axis(i.axis).kind == "thread"}
    if len(threads) != 1 or not threads <= {"laneid", "tid_in_wg", "tx"}:
        return Decline(
            "AXES", f"the register tile has thread axes {', '.join(sorted(threads)) or 'none'}",
            "the rule wants one of laneid, tid_in_wg, tx",
        )  # fmt: skip
    try:
        register, shared = _ordered(register, shared)
    except LayoutError as error:
        return Decline("GROUP", f"the shared tile has no such digits: {error}")
    total = _extent(register, threads)
    slots = register.size() // total
    if total % 32 or slots % 2:
        return Decline("COVERAGE", f"{total} threads with {slots} elements each")
    pairs = [(register, shared)]
    alternative = _sorted_alternative(register, shared, total, slots)
    if alternative is not None:
        pairs.insert(0, alternative)
    reason: Decline | None = None
    for matrices in (4, 2, 1):
        if slots % (2 * matrices):
            continue
        for pair in pairs:
            found = _fit(*pair, total, slots, matrices)
            if isinstance(found, Fit):
                return found
            reason = found
    return reason or Decline("PAIR", f"{slots} elements of a thread are no whole words")


def _ordered(register: TileLayout, shared: TileLayout) -> tuple[TileLayout, TileLayout]:
    """Both in the order thread first, then register stride descending (in lockstep)."""
    grouped, separators = group(shared, register.extents)
    order = sorted(
        range(len(register.shard)),
        key=lambda n: (register.shard[n].axis == "m", -register.shard[n].stride),
    )
    return (
        canonicalize(permute_dims(register, order)),
        canonicalize(permute_by_groups(grouped, separators, order)),
    )


def _extent(register: TileLayout, threads: set[str]) -> int:
    return int(np.prod([i.extent for i in register.shard if i.axis in threads]))


def _sorted_alternative(
    register: TileLayout, shared: TileLayout, total: int, slots: int
) -> tuple[TileLayout, TileLayout] | None:
    """The pair with a thread's tiles in the order of descending shared stride, if that differs."""
    shape = (total // 32, 8, 4, slots // 2, 2)
    try:
        s, s_ends = group(shared, shape)
        r, r_ends = group(register, shape)
        s_tiles = s.shard[s_ends[3] : s_ends[4]]
        pieces, ends = group(
            TileLayout(r.shard[r_ends[3] : r_ends[4]]), [i.extent for i in s_tiles]
        )
    except LayoutError:
        return None
    order = sorted(range(len(s_tiles)), key=lambda n: -s_tiles[n].stride)
    if order == list(range(len(s_tiles))):
        return None
    r_tiles = [i for n in order for i in pieces.shard[ends[n] : ends[n + 1]]]
    rebuilt_r = (*r.shard[: r_ends[3]], *r_tiles, *r.shard[r_ends[4] :])
    rebuilt_s = (*s.shard[: s_ends[3]], *(s_tiles[n] for n in order), *s.shard[s_ends[4] :])
    return (
        TileLayout(rebuilt_r, register.replica, register.offset),
        TileLayout(rebuilt_s, shared.replica, shared.offset),
    )


def _fit(
    register: TileLayout, shared: TileLayout, total: int, slots: int, matrices: int
) -> Fit | Decline:
    """Whether the six segments of both layouts have the strides of a matrix instruction."""
    shape = (total // 32, 8, 4, slots // (2 * matrices), matrices, 2)
    try:
        r, r_ends = group(register, shape)
        s, s_ends = group(shared, shape)
    except LayoutError as error:
        return Decline("GROUP", str(error))
    rs = [_real(r.shard[a:b]) for a, b in pairwise(r_ends)]
    ss = [_real(s.shard[a:b]) for a, b in pairwise(s_ends)]
    if total > 32 and [i.stride for i in rs[0]] != [32]:
        return Decline("LANEMAP", "warps do not count in steps of 32 threads")
    for segment, stride, what in ((1, 4, "rows"), (2, 1, "columns"), (5, 1, "halves")):
        if [i.stride for i in rs[segment]] != [stride]:
            return Decline("LANEMAP", f"the {what} of the register tile have not stride {stride}")
    if any(len(ss[segment]) != 1 for segment in (1, 2, 5)):
        return Decline("ROWBREAK", "rows, columns or halves of the shared tile are not one digit")
    if any(i.stride % 8 for i in ss[3]):
        return Decline("ALIGN", "a tile of the shared side is not at a multiple of 8 elements")
    if matrices > 1 and any(i.stride <= 0 or i.stride % 8 for i in ss[4]):
        return Decline("ALIGN", f"the {matrices} matrices are not at multiples of 8 elements")
    s8, s4, s2 = (ss[n][0].stride for n in (1, 2, 5))
    if s4 == 2 and s2 == 1 and s8 > 0 and s8 % 8 == 0:
        return Fit(r, s, shape, False, s8)
    if s8 == 1 and s2 > 0 and s2 % 8 == 0 and s4 == 2 * s2:
        return Fit(r, s, shape, True, s2)
    return Decline(
        "ROWBREAK", f"strides of rows, columns and halves are {s8}, {s4}, {s2}",
        "(8n, 2, 1) as they lie, (1, 16n, 8n) transposed", {"strides": (s8, s4, s2)},
    )  # fmt: skip


def _real(iters: Sequence[Iter]) -> list[Iter]:
    return [i for i in iters if i.extent > 1]


def _moves(copy: Copy, fit: Fit) -> list[Move]:
    """One instruction for each outer tile, its lanes' addresses in the order of the rule."""
    warps, _, _, outer, matrices, _ = fit.shape
    swizzle = copy.shared.swizzle if isinstance(copy.shared, ComposeLayout) else None
    zero = np.zeros(fit.shape, np.int64)
    offsets = fit.shared.evaluate(fit.shape).get("m", zero)[:, 0, 0, :, :, 0]
    slots = fit.register.evaluate(fit.shape).get("m", zero)[0, 0, 0, :, :, 0]
    lane = np.arange(32)
    name = "ldmatrix" if copy.direction == "ld" else "stmatrix"
    trans = "trans." if fit.trans else ""
    opcode = f"{name}.sync.aligned.m8n8.x{matrices}.{trans}shared.b16"
    out = []
    for tile in range(outer):
        order = np.argsort(slots[tile], kind="stable")  # registers of an instruction ascend
        rows: Table = offsets[:, tile][:, order[lane // 8 % matrices]] + lane % 8 * fit.pitch
        if swizzle is not None:
            rows = swizzle.apply_array(rows)
        parts = tuple(Part(int(s) // 2) for s in slots[tile][order])
        out.append(Move(opcode, parts, (2 * rows).reshape(-1), 16, 8 * matrices))
    assert warps * 32 == len(out[0].address)
    return out

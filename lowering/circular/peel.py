"""Predicate peeling: the residue tile of a split axis goes first, the others need no predicate.

An axis of X elements is split into ``T = ceilDiv(X, L)`` tiles of L.  The first tile takes the
``r`` elements that do not fill a tile (L if all do, 0 of an empty axis), so tile ``i >= 1`` starts
at ``i*L - (L - r)`` and is whole.  The tiles are consecutive intervals from 0 to X: each element is
visited once, in ascending order.

The *aligned* form moves tiles by a multiple of the vector width only: tile 0 takes the elements
below ``r' = r - r % V``, and what is left from the end of the axis.  Each element is visited once
still, but not in order.

The idea is nvFuser's (csarofeen/pytorch pull request 1973), after CUTLASS' predicated iterators;
``r = 0`` of an empty axis, the test of prolog tiles and the aligned form are not theirs.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..dispatch import Decline
from .integers import Expr, Int, Symbol, ceil_div, expr, maximum, minimum, multiple, select
from .loops import Memory, Parallel, Peel
from .tensors import Axis, Fusion, Merge, Split, Tensor

__all__ = ["Residue", "plan", "residue"]


@dataclass(frozen=True, slots=True)
class Residue:
    """The numbers of a peeled split; expressions of the sizes, or names of them."""

    #: elements, L
    extent: Expr
    tile: int
    #: T, r, and r' (r itself if not aligned): tile i >= 1 starts at (i-1)*L + r'
    tiles: Expr
    rest: Expr
    whole: Expr
    aligned: bool

    @property
    def tail(self) -> Expr:
        """Where the last tile began before the shift: ``(T-1)*L``."""
        return maximum(self.tiles - 1, 0) * self.tile

    def source(self, tile: Expr, place: Expr, part: Peel) -> Expr:
        """The element at a place of a tile."""
        if part is Peel.RESIDUE:
            if self.aligned:
                return select(place < self.whole, place, self.tail + place)
            return place
        steady = (tile - 1) * self.tile + place + self.whole
        if part is Peel.STEADY:
            return steady
        return select(expr(0) < tile, steady, self.source(tile, place, Peel.RESIDUE))

    def limit(self, tile: Expr, part: Peel) -> Expr | None:
        """How many places of a tile there are; None for all."""
        if part is Peel.STEADY:
            return None
        if part is Peel.RESIDUE:
            return self.rest
        return select(expr(0) < tile, self.tile, self.rest)


def residue(extent: Expr, tile: int, vector: int, aligned: bool) -> Residue:
    """The numbers of a split of an axis into tiles."""
    rest = minimum(extent, (extent + (tile - 1)) % tile + 1)
    if isinstance(extent, Int) and extent.value == 0:
        rest = Int(0)
    whole = rest - rest % vector if aligned else rest
    return Residue(extent, tile, ceil_div(extent, tile), rest, whole, aligned)


def plan(
    fusion: Fusion, outer: Axis, *, vector: int = 1, aligned: bool = False
) -> Residue | Decline:
    """The numbers of a peeled split, or why it is not peeled.

    ``vector``: elements of the widest copy along the axis, for the aligned form.
    """
    origin = outer.origin
    if not isinstance(origin, Split):
        return Decline("no-split", f"{outer} is made by no split: no inner tile has the residue")
    if origin.part != "outer":
        return Decline("inner", f"{outer} is the inner part of a split, whose extent is constant")
    if not any(outer in tensor.leaf for tensor in fusion.tensors):
        return Decline(
            "no-loop", f"{outer} was split or merged after it was peeled: it has no loop"
        )
    for tensor in fusion.tensors:
        how = tensor.parallel.get(outer, Parallel.SERIAL)
        if how is not Parallel.SERIAL:
            return Decline(
                "parallel", f"{outer} is {how.value} in {tensor.name}: no tile is the first one"
            )
    extent = _extent(fusion, origin)
    if isinstance(extent, Decline):
        return extent
    if not any(_has(tensor, root) for tensor in fusion.tensors for root in _roots(outer)):
        return Decline("broadcast", f"no tensor in global memory has {outer}: nothing is tested")
    if aligned and origin.factor % vector:
        return Decline("vector", f"tiles of {origin.factor} are not made of vectors of {vector}")
    written = [t for t in fusion.tensors if t.memory is Memory.GLOBAL and t.definition is not None]
    if aligned and any(root in t.roots for t in written for root in _roots(outer)):
        return Decline(
            "order", f"the output has {outer}: only a reduction may take its elements in any order"
        )
    return residue(extent, origin.factor, vector, aligned)


def _extent(fusion: Fusion, split: Split) -> Expr | Decline:
    """The extent of what is split, as far as it lies inside its root."""
    source = split.source
    origin = source.origin
    if origin is None or isinstance(origin, Merge):
        rough = next((a for a in _above(source) if isinstance(a.origin, Split)), None)
        if rough is None:
            return source.extent
        return Decline("merged-split", f"{source} is merged from {rough}, a part of a split")
    if multiple(origin.source.extent, fusion.multiples) % origin.factor == 0:
        return source.extent
    partition = Axis(
        f"{origin.source}.o",
        ceil_div(origin.source.extent, origin.factor),
        Split(origin.source, origin.factor, "outer"),
    )
    blocks = {t.parallel.get(partition) for t in fusion.tensors} - {None}
    block = blocks.pop() if len(blocks) == 1 else None
    if (
        origin.part == "inner" and origin.source.origin is None and block is not None
        and block.block and origin.factor % split.factor == 0
    ):  # fmt: skip
        first = Symbol(block.value) * origin.factor
        return minimum(maximum(origin.source.extent - first, 0), origin.factor)
    return Decline(
        "split", f"{source} is a part of {origin.source} that {origin.factor} may not divide: "
        "its own test would remain in each tile",
    )  # fmt: skip


def _above(axis: Axis) -> list[Axis]:
    """An axis and all that it was made from."""
    if isinstance(axis.origin, Split):
        return [axis, *_above(axis.origin.source)]
    if isinstance(axis.origin, Merge):
        return [axis, *_above(axis.origin.outer), *_above(axis.origin.inner)]
    return [axis]


def _roots(axis: Axis) -> list[Axis]:
    return [a for a in _above(axis) if a.origin is None]


def _has(tensor: Tensor, root: Axis) -> bool:
    return tensor.memory is Memory.GLOBAL and root in tensor.roots

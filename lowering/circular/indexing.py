"""Values of axes: from loops back to root indices, with the shift of peeled splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ptxsim.errors import UsageError

from .integers import Expr, Int, ceil_div
from .loops import Peel
from .peel import Residue
from .tensors import Axis, Became, Merge, Split, Tensor

__all__ = ["Point", "ancestors", "derivation", "index", "reduces"]


@dataclass(frozen=True)
class Point:
    """Where a statement stands: the values of the axes of its loops, and parts of peeled loops."""

    values: Mapping[Axis, Expr] = field(default_factory=dict)
    parts: Mapping[Axis, Peel] = field(default_factory=dict)

    def at(self, axis: Axis, value: Expr, part: Peel = Peel.NONE) -> Point:
        """The point inside a loop over an axis."""
        parts = {**self.parts, axis: part} if part is not Peel.NONE else self.parts
        return replace(self, values={**self.values, axis: value}, parts=parts)

    def only(self, axes: set[Axis]) -> Point:
        """The point as a producer sees it that shares these loops."""
        return Point(
            {a: v for a, v in self.values.items() if a in axes},
            {a: p for a, p in self.parts.items() if a in axes},
        )


def derivation(tensor: Tensor) -> dict[Axis, Became]:
    """How the axes of a tensor that are no leaves became leaves."""
    key = (*tensor.roots, *tensor.leaf)
    if tensor.derived is None or tensor.derived[0] != key:
        tensor.derived = key, _derived(tensor)
    return tensor.derived[1]


def _derived(tensor: Tensor) -> dict[Axis, Became]:
    became: dict[Axis, Became] = {}
    pending = list(tensor.leaf)
    seen = set(tensor.roots)
    while pending:
        axis = pending.pop()
        if axis in seen:
            continue
        seen.add(axis)
        if isinstance(axis.origin, Split):
            source, factor = axis.origin.source, axis.origin.factor
            became[source] = _parts(source, factor)
            pending.append(source)
        elif isinstance(axis.origin, Merge):
            became[axis.origin.outer] = (axis, True)
            became[axis.origin.inner] = (axis, False)
            pending += [axis.origin.outer, axis.origin.inner]
    return became


def _parts(source: Axis, factor: int) -> tuple[Axis, Axis]:
    outer = Axis(f"{source}.o", ceil_div(source.extent, factor), Split(source, factor, "outer"))
    return outer, Axis(f"{source}.i", Int(factor), Split(source, factor, "inner"))


def index(tensor: Tensor, axis: Axis, point: Point, residues: Mapping[Axis, Residue]) -> Expr:
    """The value of an axis of a tensor at a point of its nest."""
    if axis in point.values:
        return point.values[axis]
    became = derivation(tensor).get(axis)
    if became is None:
        raise UsageError(
            f"the loops of {tensor.name} do not give a value of {axis}: split its axes alike"
        )
    first, second = became
    if isinstance(second, bool):
        merged = index(tensor, first, point, residues)
        assert isinstance(first.origin, Merge)
        inner = first.origin.inner.extent
        return merged // inner if second else merged % inner
    tile = index(tensor, first, point, residues)
    place = index(tensor, second, point, residues)
    part = point.parts.get(first, Peel.NONE)
    if part is not Peel.NONE:
        return residues[first].source(tile, place, part)
    return tile * second.fixed + place


def reduces(tensor: Tensor, axis: Axis) -> bool:
    """Whether a tensor sums over an axis."""
    if axis in tensor.roots:
        return False
    if axis in tensor.reduced:
        return True
    return any(reduces(tensor, source) for source in _sources(axis))


def ancestors(axis: Axis) -> Iterator[Axis]:
    """What an axis was made from, by splits and merges, without itself."""
    for source in _sources(axis):
        yield source
        yield from ancestors(source)


def _sources(axis: Axis) -> Iterator[Axis]:
    if isinstance(axis.origin, Split):
        yield axis.origin.source
    elif isinstance(axis.origin, Merge):
        yield from (axis.origin.outer, axis.origin.inner)

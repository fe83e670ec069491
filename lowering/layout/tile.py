"""Layouts of tiles: affine maps from a logical index to lanes, warps and memory offsets."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .axes import AXES, MEMORY, axis
from .errors import LayoutError

__all__ = [
    "MAX_ELEMENTS",
    "MAX_ITERS",
    "MAX_MAGNITUDE",
    "Iter",
    "TileLayout",
    "check_extents",
    "row_major",
    "sum_offsets",
]

#: bound on every extent, stride and offset
MAX_MAGNITUDE = 2**48
#: bound on the iters of a shard or a replica
MAX_ITERS = 64
#: bound on the elements that are evaluated at once
MAX_ELEMENTS = 2**24


def _integer(value: int, what: str, least: int) -> int:
    """The value as a plain int; symbolic, fractional and oversized values are refused."""
    try:
        number = operator.index(value)
    except TypeError:
        raise LayoutError(f"{what} must be an integer, not {str(value)[:32]!r}") from None
    if isinstance(value, bool):
        raise LayoutError(f"{what} must be an integer, not {value}")
    if not least <= number <= MAX_MAGNITUDE:
        raise LayoutError(f"{what} must lie in {least}..{MAX_MAGNITUDE}, not {number}")
    return number


def check_extents(extents: Iterable[int], what: str = "extent") -> tuple[int, ...]:
    """The extents as a tuple of positive integers."""
    return tuple(_integer(e, what, 1) for e in extents)


@dataclass(frozen=True, slots=True)
class Iter:
    """A digit that runs over ``0..extent-1`` and adds ``digit * stride`` to its axis."""

    extent: int
    stride: int
    axis: str = MEMORY

    def __post_init__(self) -> None:
        axis(self.axis)
        object.__setattr__(self, "extent", _integer(self.extent, "extent", 1))
        object.__setattr__(self, "stride", _integer(self.stride, "stride", -MAX_MAGNITUDE))

    def __str__(self) -> str:
        return f"{self.extent}:{_on_axis(self.stride, self.axis)}"


@dataclass(frozen=True, slots=True)
class TileLayout:
    """A map from the logical index of a tile to a set of physical coordinates.

    ``shard`` splits the index into digits, slowest first; ``replica`` repeats every element;
    ``offset`` shifts all of them. The text form (``str``) is what ``parse`` reads.
    """

    shard: tuple[Iter, ...]
    replica: tuple[Iter, ...] = ()
    offset: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        for name, iters in (("shard", self.shard), ("replica", self.replica)):
            if not isinstance(iters, tuple) or not all(isinstance(i, Iter) for i in iters):
                raise LayoutError(f"the {name} must be a tuple of iters")
            if len(iters) > MAX_ITERS:
                raise LayoutError(f"{len(iters)} iters in the {name}, at most {MAX_ITERS}")
        if not self.shard:
            raise LayoutError("a layout needs at least one iter")
        terms = [
            (axis(name).name, _integer(value, "offset", -MAX_MAGNITUDE))
            for name, value in self.offset
        ]
        if len({name for name, _ in terms}) < len(terms):
            raise LayoutError(f"an axis has two offsets: {terms}")
        object.__setattr__(self, "offset", tuple(sorted(terms)))

    @classmethod
    def of(
        cls,
        shard: Iterable[Iter],
        replica: Iterable[Iter] = (),
        offset: Mapping[str, int] | None = None,
    ) -> TileLayout:
        """A layout from any iterables, and the offset from a mapping."""
        return cls(tuple(shard), tuple(replica), tuple((offset or {}).items()))

    def __str__(self) -> str:
        parts = [f"S[{_iters_text(self.shard)}]"]
        if self.replica:
            parts.append(f"R[{_iters_text(self.replica)}]")
        parts += [_on_axis(value, name) for name, value in self.offset]
        return " + ".join(parts)

    @property
    def extents(self) -> tuple[int, ...]:
        """The extents of the shard, slowest first."""
        return tuple(i.extent for i in self.shard)

    @property
    def axes(self) -> tuple[str, ...]:
        """Every axis that the layout mentions, in the order of the axis table."""
        iters = (i.axis for i in self.shard + self.replica)
        used = {*iters, *(name for name, _ in self.offset)}
        return tuple(name for name in AXES if name in used)

    def size(self, axis: str | None = None) -> int:
        """Elements of the tile, or the part of that product that lies on one axis."""
        _known(axis)
        return math.prod(i.extent for i in self.shard if axis in (None, i.axis))

    def span(self, axis: str | None = None) -> int:
        """One more than the highest coordinate on an axis, replicas included (memory if None)."""
        _known(axis)
        name = axis or MEMORY
        reach = sum(
            (i.extent - 1) * max(i.stride, 0) for i in self.shard + self.replica if i.axis == name
        )
        return 1 + reach + dict(self.offset).get(name, 0)

    def apply(
        self, coordinate: int | Sequence[int], shape: Sequence[int] | None = None
    ) -> dict[str, int]:
        """Physical coordinate of one element, by axis, without replicas.

        The coordinate is a flat index, or one index for each entry of ``shape`` (of the shard's
        extents if no shape is given). It may lie outside of the shape: nothing wraps in the
        first digit, so an index runs on linearly there. Where the iters can be grouped by the
        shape, every index does so inside its own group; else the flattened index does.
        """
        if isinstance(coordinate, Sequence):
            digits, iters = self._digits(coordinate, shape)
        elif shape is not None:
            raise LayoutError(f"coordinate {coordinate} needs one index for each of {shape}")
        else:
            digits, iters = _split(operator.index(coordinate), self.extents), self.shard
        result = dict.fromkeys(self.axes, 0) | dict(self.offset)
        for digit, it in zip(digits, iters, strict=True):
            result[it.axis] += digit * it.stride
        return result

    def _digits(
        self, coordinate: Sequence[int], shape: Sequence[int] | None
    ) -> tuple[Sequence[int], tuple[Iter, ...]]:
        wanted = self.extents if shape is None else check_extents(shape, "shape entry")
        if len(coordinate) != len(wanted):
            raise LayoutError(
                f"coordinate {tuple(coordinate)} has {len(coordinate)} indices, "
                f"shape {wanted} has {len(wanted)}"
            )
        if math.prod(wanted) != self.size():
            raise LayoutError(f"shape {wanted} does not hold the {self.size()} elements of {self}")
        coordinate = tuple(operator.index(c) for c in coordinate)
        if shape is None:
            return coordinate, self.shard
        try:
            grouped = split_by(self.shard, wanted)
        except LayoutError:
            flat = 0
            for index, extent in zip(coordinate, wanted, strict=True):
                flat = flat * extent + index
            return _split(flat, self.extents), self.shard
        digits: list[int] = []
        for index, group in zip(coordinate, grouped, strict=True):
            digits += _split(index, [i.extent for i in group])
        return digits, tuple(itertools.chain.from_iterable(grouped))

    def images(
        self, coordinate: int | Sequence[int], shape: Sequence[int] | None = None
    ) -> tuple[dict[str, int], ...]:
        """Every physical coordinate that holds one element: ``apply`` with all replicas."""
        copies = math.prod(i.extent for i in self.replica)
        if copies > MAX_ELEMENTS:
            raise LayoutError(f"{copies} replicas, at most {MAX_ELEMENTS} are listed")
        base = self.apply(coordinate, shape)
        found = []
        for digits in itertools.product(*(range(i.extent) for i in self.replica)):
            image = dict(base)
            for digit, it in zip(digits, self.replica, strict=True):
                image[it.axis] += digit * it.stride
            found.append(image)
        return tuple(found)

    def evaluate(self, shape: Sequence[int] | None = None) -> dict[str, NDArray[np.int64]]:
        """``apply`` over the whole tile: an array for each axis, of that shape, or flat."""
        size = self.size()
        if size > MAX_ELEMENTS:
            raise LayoutError(f"{size} elements, at most {MAX_ELEMENTS} are evaluated at once")
        wanted = (size,) if shape is None else check_extents(shape, "shape entry")
        if math.prod(wanted) != size:
            raise LayoutError(f"shape {wanted} does not hold the {size} elements of {self}")
        start = dict(self.offset)
        reach = sum((i.extent - 1) * abs(i.stride) for i in self.shard)
        if reach + max(map(abs, start.values()), default=0) >= 2**63:
            raise LayoutError(f"coordinates up to {reach} do not fit into 64 bits")
        result = {name: np.full(self.extents, start.get(name, 0), np.int64) for name in self.axes}
        for position, it in enumerate(self.shard):
            ramp = np.arange(it.extent, dtype=np.int64) * it.stride
            result[it.axis] += ramp.reshape(-1, *[1] * (len(self.shard) - position - 1))
        return {name: values.reshape(wanted) for name, values in result.items()}


def split_by(iters: Sequence[Iter], shape: Sequence[int]) -> list[tuple[Iter, ...]]:
    """Split iters so that every shape entry owns a run of them; ``group`` says how."""
    groups: list[tuple[Iter, ...]] = []
    run: list[Iter] = []
    product = 1
    for it in iters:
        extent = it.extent
        product *= extent
        while len(groups) < len(shape) and product % shape[len(groups)] == 0:
            wanted = shape[len(groups)]
            inner = product // wanted
            if extent % inner:
                raise LayoutError(
                    f"cannot group by {tuple(shape)}: entry {len(groups)} ({wanted}) leaves "
                    f"{inner} of {product}, which does not divide the extent of iter {it}"
                )
            groups.append((*run, Iter(extent // inner, it.stride * inner, it.axis)))
            run, extent, product = [], inner, inner
        if extent == 1:
            continue
        if len(groups) == len(shape):
            raise LayoutError(f"cannot group by {tuple(shape)}: iter {it} is left over")
        run.append(Iter(extent, it.stride, it.axis))
    if len(groups) < len(shape):
        raise LayoutError(
            f"cannot group by {tuple(shape)}: entry {len(groups)} ({shape[len(groups)]}) "
            f"does not divide the {product} elements left for it"
        )
    return groups


def row_major(extents: Sequence[int]) -> TileLayout:
    """The layout of a dense row-major array in memory."""
    sizes = check_extents(extents)
    strides = itertools.accumulate(reversed(sizes[1:]), operator.mul, initial=1)
    return TileLayout.of(
        Iter(e, s) for e, s in zip(sizes, reversed(list(strides)), strict=bool(sizes))
    )


def sum_offsets(terms: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Offsets by axis; terms on the same axis add."""
    total: dict[str, int] = {}
    for name, value in terms:
        total[name] = total.get(name, 0) + value
    return total


def _split(index: int, extents: Sequence[int]) -> list[int]:
    """Digits of an index, slowest first; the first one takes whatever is left."""
    digits = []
    for extent in reversed(extents[1:]):
        index, digit = divmod(index, extent)
        digits.append(digit)
    return [index, *reversed(digits)]


def _known(name: str | None) -> None:
    if name is not None:
        axis(name)


def _on_axis(value: int, name: str) -> str:
    return str(value) if name == MEMORY else f"{value}@{name}"


def _iters_text(iters: Sequence[Iter]) -> str:
    if len(iters) == 1:
        return str(iters[0])
    extents = ",".join(str(i.extent) for i in iters)
    strides = ",".join(_on_axis(i.stride, i.axis) for i in iters)
    return f"({extents}):({strides})"

"""Operations on tile layouts: grouping, canonical form, permutation, slices, composition.

Every operation is pure. One that may have no result raises ``LayoutError``.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from itertools import chain

from .axes import AXES, MEMORY, fused_axis, scope_pair
from .errors import LayoutError
from .tile import Iter, TileLayout, check_extents, split_by, sum_offsets

__all__ = [
    "canonicalize",
    "direct_sum",
    "group",
    "group_many",
    "pack",
    "permute_by_groups",
    "permute_dims",
    "slice_",
    "storage",
    "tile",
    "unpack",
]


def group(layout: TileLayout, shape: Sequence[int]) -> tuple[TileLayout, tuple[int, ...]]:
    """Split the iters so that every shape entry owns a run of them.

    Answers the refined layout and the separators: entry ``d`` owns the iters
    ``separators[d] .. separators[d+1]-1``. A group closes as soon as the running product of
    extents is a multiple of its entry. Iters are only split: never reordered, never merged. A
    shape entry 1 gets an iter of extent 1 whose stride means nothing.
    """
    groups = split_by(layout.shard, check_extents(shape, "shape entry"))
    separators = itertools.accumulate((len(g) for g in groups), initial=0)
    refined = TileLayout(tuple(chain.from_iterable(groups)), layout.replica, layout.offset)
    return refined, tuple(separators)


def group_many(
    layout: TileLayout, shapes: Sequence[Sequence[int]]
) -> tuple[TileLayout, tuple[tuple[int, ...], ...]]:
    """Split the iters once so that they serve several shapes; separators for each shape.

    The boundaries of a shape are its running products. Boundaries of all shapes and of the
    layout are merged; one that repeats inside a shape keeps a unit iter for each repetition.
    """
    wanted = [check_extents(shape, "shape entry") for shape in shapes]
    if not wanted or not all(wanted):
        raise LayoutError("group_many needs at least one shape, and no empty one")
    size = layout.size()
    bounds = [_boundaries(extents) for extents in (*wanted, layout.extents)]
    for extents, products in zip(wanted, bounds, strict=False):
        if products[-1] != size:
            raise LayoutError(f"shape {extents} has {products[-1]} elements, the layout {size}")
    repeats = Counter[int]()
    for products in bounds:
        repeats |= Counter(products)
    merged = sorted(repeats.elements())
    for low, high in itertools.pairwise(merged):
        if high % low:
            raise LayoutError(f"no common grouping: boundary {low} does not divide boundary {high}")
    places = [_positions(products, merged) for products in bounds]
    shard = []
    for it, (first, last) in zip(layout.shard, itertools.pairwise(places.pop()), strict=True):
        for at in range(first, last):
            stride = it.stride * (merged[last] // merged[at + 1])
            shard.append(Iter(merged[at + 1] // merged[at], stride, it.axis))
    return TileLayout(tuple(shard), layout.replica, layout.offset), tuple(places)


def _boundaries(extents: Sequence[int]) -> tuple[int, ...]:
    """Running products of the extents, from 1 on."""
    return tuple(itertools.accumulate(extents, int.__mul__, initial=1))


def _positions(boundaries: Sequence[int], merged: Sequence[int]) -> tuple[int, ...]:
    """Index of each boundary among the merged ones; the n-th repetition takes the n-th copy."""
    seen = Counter[int]()
    places = []
    for value in boundaries:
        places.append(merged.index(value) + seen[value])
        seen[value] += 1
    places[-1] = len(merged) - 1
    return tuple(places)


def canonicalize(layout: TileLayout, fuse_scopes: bool = True) -> TileLayout:
    """The normal form: no unit iters, no zero offsets, fused axes, neighbours merged.

    With ``fuse_scopes`` the thread axes are renamed to the one axis that counts the same units
    over the whole scope: ``laneid`` with ``warpid`` becomes ``tx`` (warp times 32 plus lane).
    Offsets that meet on one axis add. Iters are never reordered; replicas are sorted.
    """
    shard = _without_units(layout.shard) or (Iter(1, 1, layout.shard[0].axis),)
    replica = _without_units(layout.replica)
    offset = {name: value for name, value in layout.offset if value}
    if fuse_scopes:
        used = {*(i.axis for i in shard + replica), *offset}
        pair = scope_pair(used)
        shard = tuple(_fused(i, pair) for i in shard)
        replica = tuple(_fused(i, pair) for i in replica)
        offset = sum_offsets(
            (name, value * factor)
            for old, value in offset.items()
            for name, factor in [fused_axis(old, pair)]
        )
    if len(shard) == 1 and shard[0].extent == 1:
        shard = (Iter(1, 1, shard[0].axis),)
    return TileLayout.of(
        _merge_neighbours(shard),
        sorted(replica, key=lambda i: (i.axis, i.extent, i.stride)),
        {name: value for name, value in offset.items() if value},
    )


def _without_units(iters: Sequence[Iter]) -> tuple[Iter, ...]:
    return tuple(i for i in iters if i.extent > 1)


def _fused(it: Iter, pair: tuple[str, str] | None) -> Iter:
    name, factor = fused_axis(it.axis, pair)
    return Iter(it.extent, it.stride * factor, name)


def _merge_neighbours(iters: Sequence[Iter]) -> list[Iter]:
    """Merge an iter with the next when together they are one even ramp."""
    merged = [iters[0]]
    for it in iters[1:]:
        last = merged[-1]
        if last.axis == it.axis and last.stride == it.extent * it.stride:
            merged[-1] = Iter(last.extent * it.extent, it.stride, it.axis)
        else:
            merged.append(it)
    return merged


def permute_dims(layout: TileLayout, order: Sequence[int]) -> TileLayout:
    """Reorder the iters: iter ``i`` of the result is iter ``order[i]``.

    This changes the logical order of the elements: both sides of a copy need the same.
    """
    return permute_by_groups(layout, range(len(layout.shard) + 1), order)


def permute_by_groups(
    layout: TileLayout, separators: Sequence[int], order: Sequence[int]
) -> TileLayout:
    """Reorder whole groups of iters: group ``i`` of the result is group ``order[i]``."""
    count = len(layout.shard)
    bounds = tuple(separators)
    if bounds[:1] != (0,) or bounds[-1] != count or bounds != tuple(sorted(bounds)):
        raise LayoutError(f"separators {bounds} do not partition {count} iters")
    if sorted(order) != list(range(len(bounds) - 1)):
        raise LayoutError(f"{tuple(order)} is not a permutation of {len(bounds) - 1} groups")
    moved = chain.from_iterable(layout.shard[bounds[i] : bounds[i + 1]] for i in order)
    return TileLayout(tuple(moved), layout.replica, layout.offset)


def slice_(
    layout: TileLayout,
    shape: Sequence[int],
    region: Sequence[tuple[int, int]],
    fuse_scopes: bool = True,
) -> TileLayout:
    """The layout of a rectangular region, given as (begin, length) for each entry of the shape.

    The layout is made canonical first (so thread axes may be renamed). A region that cuts
    through the digits of an iter in a way that no list of iters describes has no slice.
    """
    canonical = canonicalize(layout, fuse_scopes)
    wanted = check_extents(shape, "shape entry")
    if len(region) != len(wanted):
        raise LayoutError(f"region {tuple(region)} does not have {len(wanted)} dimensions")
    iters: list[Iter] = []
    offset = list(canonical.offset)
    for dim, (run, extent) in enumerate(
        zip(split_by(canonical.shard, wanted), wanted, strict=True)
    ):
        begin, length = region[dim]
        if begin < 0 or length < 1 or begin + length > extent:
            raise LayoutError(
                f"dimension {dim}: {length} elements from {begin} on do not lie in 0..{extent - 1}"
            )
        run = tuple(_merge_neighbours(_without_units(run) or run[:1]))
        digits = _digits(begin, run)
        iters += _slice_run(run, digits, length, dim, begin)
        offset += [(i.axis, d * i.stride) for i, d in zip(run, digits, strict=True) if d]
    return TileLayout.of(iters, canonical.replica, sum_offsets(offset))


def _digits(begin: int, run: Sequence[Iter]) -> list[int]:
    digits = []
    for it in reversed(run):
        begin, digit = divmod(begin, it.extent)
        digits.append(digit)
    return digits[::-1]


def _slice_run(
    run: Sequence[Iter], digits: Sequence[int], length: int, dim: int, begin: int
) -> list[Iter]:
    """Iters of one sliced dimension; ``digits`` are those of its first element."""
    at, left = len(run) - 1, length
    if at == 0:
        return [Iter(length, run[0].stride, run[0].axis)]
    while at >= 0 and digits[at] == 0 and left % run[at].extent == 0:
        left //= run[at].extent
        at -= 1
    peeled = list(run[at + 1 :])
    if at < 0:
        return peeled
    pivot, digit = run[at], digits[at]
    if digit + left <= pivot.extent:
        return [Iter(left, pivot.stride, pivot.axis), *peeled]
    half, odd = divmod(left, 2)
    outer = run[at - 1] if at else pivot
    # Half of the rows end this turn of the pivot, half begin the next one. That next turn must
    # exist: at its last digit the outer iter carries, and the step is another one.
    fits = not odd and digit + half == pivot.extent and outer.axis == pivot.axis
    if at and fits and digits[at - 1] + 1 < outer.extent:
        step = outer.stride - digit * pivot.stride
        return [Iter(2, step, pivot.axis), Iter(half, pivot.stride, pivot.axis), *peeled]
    raise LayoutError(
        f"dimension {dim}: no slice of {length} from {begin} on: {left} steps of iter {pivot} "
        f"from digit {digit} on leave its extent {pivot.extent}"
    )


def tile(
    inner: TileLayout,
    outer: TileLayout,
    outer_shape: Sequence[int],
    inner_shape: Sequence[int],
    fuse_scopes: bool = True,
) -> TileLayout:
    """Copies of ``inner`` placed by ``outer``, in canonical form.

    Coordinate ``d`` is the outer one times ``inner_shape[d]`` plus the inner one. Strides of
    the outer layout count whole inner tiles: they are scaled by the inner span of their axis.
    """
    inner, outer = canonicalize(inner, fuse_scopes), canonicalize(outer, fuse_scopes)
    scaled = (Iter(i.extent, i.stride * inner.span(i.axis), i.axis) for i in outer.shard)
    spread = TileLayout(tuple(scaled), outer.replica, outer.offset)
    return canonicalize(_interleave(inner, spread, outer_shape, inner_shape), fuse_scopes)


def direct_sum(
    right: TileLayout,
    left: TileLayout,
    left_shape: Sequence[int],
    right_shape: Sequence[int],
    fuse_scopes: bool = True,
) -> TileLayout:
    """The sum of two maps in canonical form: like ``tile``, with the strides as they stand.

    Coordinate ``d`` is the left one times ``right_shape[d]`` plus the right one.
    """
    right, left = canonicalize(right, fuse_scopes), canonicalize(left, fuse_scopes)
    return canonicalize(_interleave(right, left, left_shape, right_shape), fuse_scopes)


def _interleave(
    inner: TileLayout, outer: TileLayout, outer_shape: Sequence[int], inner_shape: Sequence[int]
) -> TileLayout:
    """For each dimension the outer iters, then the inner ones; replicas join, offsets add."""
    if len(outer_shape) != len(inner_shape):
        raise LayoutError(
            f"shapes {tuple(outer_shape)} and {tuple(inner_shape)} differ in their dimensions"
        )
    outer_runs = split_by(outer.shard, check_extents(outer_shape, "shape entry"))
    inner_runs = split_by(inner.shard, check_extents(inner_shape, "shape entry"))
    pairs = zip(outer_runs, inner_runs, strict=True)
    return TileLayout.of(
        chain.from_iterable(run for pair in pairs for run in pair),
        inner.replica + outer.replica,
        sum_offsets(inner.offset + outer.offset),
    )


def unpack(layout: TileLayout, count: int) -> TileLayout:
    """Every element becomes ``count`` neighbours in memory; who holds it stays the same."""
    (count,) = check_extents([count], "count")
    return TileLayout.of(
        (*(_scaled(i, count) for i in layout.shard), Iter(count, 1)),
        (_scaled(i, count) for i in layout.replica),
        {n: v if AXES[n].is_thread else v * count for n, v in layout.offset},
    )


def pack(layout: TileLayout, count: int) -> TileLayout:
    """``count`` neighbours in memory become one element: the inverse of ``unpack``."""
    (count,) = check_extents([count], "count")
    last = layout.shard[-1]
    if last.axis != MEMORY or last.stride != 1 or last.extent % count:
        raise LayoutError(f"the last iter {last} does not hold runs of {count} elements")
    return TileLayout.of(
        (*(_divided(i, count) for i in layout.shard[:-1]), Iter(last.extent // count, 1)),
        (_divided(i, count) for i in layout.replica),
        {n: v if AXES[n].is_thread else _quotient(v, count, "offset") for n, v in layout.offset},
    )


def _scaled(it: Iter, count: int) -> Iter:
    return it if AXES[it.axis].is_thread else Iter(it.extent, it.stride * count, it.axis)


def _divided(it: Iter, count: int) -> Iter:
    if AXES[it.axis].is_thread:
        return it
    return Iter(it.extent, _quotient(it.stride, count, f"stride of iter {it}"), it.axis)


def _quotient(value: int, count: int, what: str) -> int:
    if value % count:
        raise LayoutError(f"cannot pack {count} elements: {what} is {value}, not a multiple")
    return value // count


def storage(layout: TileLayout) -> TileLayout:
    """What one thread holds: the layout without its thread axes."""
    memory = [i for i in layout.shard if not AXES[i.axis].is_thread]
    return TileLayout.of(
        memory or [Iter(1, 1)],
        (i for i in layout.replica if not AXES[i.axis].is_thread),
        {n: v for n, v in layout.offset if not AXES[n].is_thread},
    )

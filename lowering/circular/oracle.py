"""What a fusion computes, tensor by tensor, without any schedule: the oracle of the lowering.

Only the order of a reduction is left to the caller, since sums of floats depend on it: the places
of tiles in the order in which they are added up (:func:`visits`), -1 where a place has no element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .integers import evaluate as value_of
from .interpret_values import carrier, encode, operate, product, tf32_of
from .loops import Memory
from .tensors import IDENTITY, Axis, Copied, Fusion, Joined, Mma, Pointwise, Split, Tensor

__all__ = ["Order", "evaluate", "visits"]

Bits: TypeAlias = NDArray[Any]
#: The elements of an axis of some extent, in the order in which they are added up.
Order: TypeAlias = Callable[[int], Sequence[int]]


def visits(extent: int, tile: int, peel: str, vector: int = 1) -> list[int]:
    """The elements at the places of all tiles, in order; -1 where there is none.

    >>> visits(5, 4, "off")
    [0, 1, 2, 3, 4, -1, -1, -1]
    >>> visits(5, 4, "on")
    [0, -1, -1, -1, 1, 2, 3, 4]
    >>> visits(7, 4, "aligned", 2)
    [0, 1, 6, -1, 2, 3, 4, 5]
    """
    tiles = -(-extent // tile)
    if peel == "off":
        return [k if k < extent else -1 for k in range(tiles * tile)]
    if tiles == 0:
        return []
    rest = extent - (tiles - 1) * tile
    first = rest - rest % vector if peel == "aligned" else rest
    residue = [j if j < first else (tiles - 1) * tile + j if j < rest else -1 for j in range(tile)]
    return residue + [first + k for k in range((tiles - 1) * tile)]


def evaluate(
    fusion: Fusion, arrays: Mapping[str, Bits], sizes: Mapping[str, int],
    order: Order = range, target: int = 80,
) -> dict[str, Bits]:  # fmt: skip
    """The outputs of a fusion as arrays over their axes, from flat arrays of its inputs.

    Elements are bit patterns where NumPy has no type for them (bf16).
    """
    found: dict[str, Bits] = {}
    for t in fusion.tensors:
        if t.definition is None:
            found[t.name] = _gathered(t, arrays[t.name], sizes)
        else:
            found[t.name] = _computed(t, found, sizes, order, target)
    return {
        t.name: found[t.name]
        for t in fusion.tensors
        if t.memory is Memory.GLOBAL and t.definition is not None
    }


def _extents(axes: Sequence[Axis], sizes: Mapping[str, int]) -> list[int]:
    return [value_of(axis.extent, sizes) for axis in axes]


def _gathered(t: Tensor, flat: Bits, sizes: Mapping[str, int]) -> Bits:
    places = np.zeros(_extents(t.roots, sizes), np.int64)
    for i, stride in enumerate(t.strides):
        shape = [-1 if j == i else 1 for j in range(len(t.roots))]
        places += np.arange(places.shape[i]).reshape(shape) * value_of(stride, sizes)
    return flat.view(carrier(t.dtype))[places]


def _aligned(value: Bits, axes: Sequence[Axis], wanted: Sequence[Axis]) -> Bits:
    """An array over axes as one over other axes, of extent 1 where it lacks one."""
    order = [axes.index(a) for a in wanted if a in axes]
    moved = value.transpose(order)
    return moved[tuple(slice(None) if a in axes else None for a in wanted)]


def _computed(
    t: Tensor, found: Mapping[str, Bits], sizes: Mapping[str, int], order: Order, target: int
) -> Bits:
    made = t.definition
    assert made is not None
    sources = [found[s.name] for s in t.sources]
    if isinstance(made, Copied):
        value = _aligned(sources[0], made.source.roots, t.roots)
        return tf32_of(value) if (made.source.dtype, t.dtype) == ("f32", "tf32") else value
    types = [s.dtype for s in t.sources]
    if isinstance(made, Pointwise):
        shape = _extents(t.roots, sizes)
        whole = [
            np.broadcast_to(_aligned(v, s.roots, t.roots), shape)
            for v, s in zip(sources, t.sources, strict=True)
        ]
        return operate(made.op, t.dtype, types, whole)
    return _reduced(t, made, sources, sizes, order, target)


def _reduced(
    t: Tensor, made: Joined | Mma, sources: list[Bits], sizes: Mapping[str, int], order: Order,
    target: int,
) -> Bits:  # fmt: skip
    """A reduction; a kept part of the reduced axis has one result for each of its values."""
    kept = tuple(a for a in t.roots if a.origin is None)
    axes = (*kept, *t.reduced)
    total = int(np.prod(_extents(t.reduced, sizes)))
    whole = [_aligned(v, s.roots, axes) for v, s in zip(sources, t.sources, strict=True)]
    flat = [v.reshape(*v.shape[: len(kept)], total) for v in whole]
    parts = [a for a in t.roots if a.origin is not None]
    if not parts:
        return _summed(t, made, flat, list(order(total)), _extents(kept, sizes), target)
    origin = parts[0].origin
    assert isinstance(origin, Split)
    results = []
    for first in range(0, total, origin.factor):
        count = min(origin.factor, total - first)
        places = [k if k < 0 else k + first for k in order(count)]
        results.append(_summed(t, made, flat, places, _extents(kept, sizes), target))
    return np.stack(results)


def _summed(
    t: Tensor, made: Joined | Mma, sources: list[Bits], places: list[int], shape: list[int],
    target: int,
) -> Bits:  # fmt: skip
    if isinstance(made, Mma):
        return _product(t, made, sources, places, shape, target)
    acc = np.full(shape, encode(IDENTITY[made.op], t.dtype))
    types = [t.dtype] * 3
    for k in places:
        if k < 0 and made.op != "add":
            continue
        terms = [
            np.broadcast_to(s[..., k], shape) if k >= 0 else np.zeros_like(acc) for s in sources
        ]
        if len(terms) == 2:
            acc = operate("fma", t.dtype, types, [*terms, acc])
        else:
            acc = operate(made.op, t.dtype, types[:2], [acc, *terms])
    return acc


def _product(
    t: Tensor, made: Mma, sources: list[Bits], places: list[int], shape: list[int], target: int
) -> Bits:
    """a[.., m, 1, k] and b[.., 1, n, k]: the last two kept axes are those of a matrix."""
    rows, columns = shape[-2:]
    batches = int(np.prod(shape[:-2]))
    chosen = np.array(places, np.int64)
    padded = [np.where(chosen >= 0, s[..., np.maximum(chosen, 0)], 0) if len(places)
              else s[..., :0] for s in sources]  # fmt: skip
    kinds = [s.dtype for s in sources]
    a, b = (p.astype(kind) for p, kind in zip(padded, kinds, strict=True))
    left = np.broadcast_to(a, (*shape[:-2], rows, 1, len(places))).reshape(batches, rows, -1)
    right = np.broadcast_to(b, (*shape[:-2], 1, columns, len(places))).reshape(
        batches, columns, len(places)
    )
    acc = np.zeros((batches, rows, columns), carrier(t.dtype))
    types = (made.a.dtype, made.b.dtype, t.dtype)
    if len(places):
        left = left.reshape(batches, rows, len(places))
        acc = product(left, right.transpose(0, 2, 1), acc, types=types,
                      instruction=made.instruction, target=target)  # fmt: skip
    return acc.reshape(shape)

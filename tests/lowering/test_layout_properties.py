"""The layout algebra against plain enumeration, on random layouts from fixed seeds.

The model below knows nothing of the algebra: it walks the digits of a layout with nested loops
and adds up, replicas included. Each operation is compared with its definition on that model.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from lowering.layout import (
    ComposeLayout,
    Iter,
    LayoutError,
    Swizzle,
    TileLayout,
    canonicalize,
    direct_sum,
    group,
    group_many,
    pack,
    parse,
    permute_by_groups,
    permute_dims,
    slice_,
    storage,
    tile,
    unpack,
)

#: one physical coordinate, zeros left out, and all copies of one element
Place = frozenset[tuple[str, int]]
Copies = tuple[Place, ...]

COUNTS = pytest.mark.parametrize("count", [150, pytest.param(5000, marks=pytest.mark.slow)])

#: thread axes that may stand together, and the axis that canonical form puts in their place
FUSED = {
    frozenset({"laneid", "wid_in_wg"}): "tid_in_wg",
    frozenset({"laneid", "wid_in_wg", "wgid"}): "tx",
    frozenset({"laneid", "warpid"}): "tx",
    frozenset({"tid_in_wg", "wgid"}): "tx",
    frozenset({"wid_in_wg", "wgid"}): "warpid",
}
#: threads, or warps for ``warpid``, that one step of an axis stands for
UNITS = {
    "tid_in_wg": {"laneid": 1, "wid_in_wg": 32},
    "tx": {"laneid": 1, "wid_in_wg": 32, "warpid": 32, "tid_in_wg": 1, "wgid": 128},
    "warpid": {"wid_in_wg": 1, "wgid": 4},
}
ALONE = ({"laneid"}, {"tid_in_wg"}, {"tx"}, {"warpid"}, {"tx", "bx"}, {"cbx", "cby"}, set())
FAMILIES = [sorted(f) for f in (*FUSED, *ALONE)]


def _place(total: dict[str, int]) -> Place:
    return frozenset((name, value) for name, value in total.items() if value)


def _sums(iters: Sequence[Iter], start: dict[str, int]) -> Iterator[dict[str, int]]:
    for digits in itertools.product(*(range(i.extent) for i in iters)):
        total = dict(start)
        for digit, it in zip(digits, iters, strict=True):
            total[it.axis] = total.get(it.axis, 0) + digit * it.stride
        yield total


def enumerate_map(layout: TileLayout) -> list[Copies]:
    """All copies of every element, in logical order."""
    result = []
    for base in _sums(layout.shard, dict(layout.offset)):
        copies = (_place(copy) for copy in _sums(layout.replica, base))
        result.append(tuple(sorted(copies, key=sorted)))
    return result


def rename(elements: list[Copies], target: str | None) -> list[Copies]:
    """The map with its thread axes counted in units of one fused axis."""
    if target is None:
        return elements
    units = UNITS[target]

    def one(place: Place) -> Place:
        total: dict[str, int] = {}
        for name, value in place:
            new, factor = (target, units[name]) if name in units else (name, 1)
            total[new] = total.get(new, 0) + value * factor
        return _place(total)

    return [tuple(sorted(map(one, copies), key=sorted)) for copies in elements]


def thread_axes(layout: TileLayout) -> frozenset[str]:
    """The thread axes that matter to the map."""
    shard = [i.axis for i in layout.shard if i.extent > 1] or [layout.shard[0].axis]
    copies = [i.axis for i in layout.replica if i.extent > 1]
    moved = [name for name, value in layout.offset if value]
    return frozenset({*shard, *copies, *moved} - {"m"})


def fused_target(layout: TileLayout) -> str | None:
    """The axis that canonical form of a well-formed layout counts threads or warps on."""
    return FUSED.get(thread_axes(layout))


def random_layout(
    rng: random.Random, axes: Sequence[str] | None = None, limit: int = 600, least: int = -6
) -> TileLayout:
    """A small layout; its thread axes may stand together unless they are given."""
    names = ["m", "m", *(rng.choice(FAMILIES) if axes is None else axes)]
    shard, size = [], 1
    for _ in range(rng.randint(1, 5)):
        extent = rng.choice([1, 2, 2, 2, 3, 4, 4, 5, 6, 8])
        if size * extent <= limit:
            size *= extent
            shard.append(Iter(extent, rng.choice([0, 1, 1, 2, 4, 8, 3]), rng.choice(names)))
    shard = _chain_some(rng, shard or [Iter(1, 3)])
    replica = [
        Iter(rng.choice([1, 2, 3]), rng.randint(least, 9), rng.choice(names))
        for _ in range(rng.choice([0, 0, 0, 1, 2]))
    ]
    offset = {n: rng.randint(least, 9) for n in set(names) if rng.random() < 0.3}
    return TileLayout.of(shard, replica, offset)


def _chain_some(rng: random.Random, shard: list[Iter]) -> list[Iter]:
    """Make some neighbours one even ramp, so that merging and slicing have work to do."""
    for at in range(len(shard) - 2, -1, -1):
        after = shard[at + 1]
        if rng.random() < 0.5:
            shard[at] = Iter(shard[at].extent, after.extent * after.stride, after.axis)
    return shard


def random_shape(rng: random.Random, extents: Sequence[int]) -> tuple[int, ...]:
    """A shape of the same size: extents split and joined, so that many of them group."""
    primes: list[int] = []
    for extent in extents:
        rest = extent
        for prime in (2, 3, 5):
            while rest % prime == 0:
                primes.append(prime)
                rest //= prime
    if rng.random() < 0.3:
        rng.shuffle(primes)
    shape = [1]
    for prime in primes:
        if rng.random() < 0.5:
            shape.append(1)
        shape[-1] *= prime
    if rng.random() < 0.2:
        shape.insert(rng.randrange(len(shape) + 1), 1)
    return tuple(shape)


def can_split(extents: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether each boundary of the shape cuts an iter evenly or falls between two."""
    inner = 1
    blocks = []
    for extent in reversed(extents):
        blocks.append((inner, inner * extent))
        inner *= extent
    bound = 1
    for extent in reversed(shape):
        bound *= extent
        for low, high in blocks:
            if low < bound < high and (bound % low or high % bound):
                return False
    return True


@COUNTS
def test_evaluation(count: int) -> None:
    rng = random.Random(1)
    for _ in range(count):
        layout = random_layout(rng)
        expected = enumerate_map(layout)
        images = [layout.images(x) for x in range(layout.size())]
        assert [tuple(sorted(map(_place, i), key=sorted)) for i in images] == expected
        arrays = layout.evaluate()
        for x in range(layout.size()):
            assert layout.apply(x) == {name: int(a[x]) for name, a in arrays.items()}
        assert tuple(arrays) == layout.axes


@COUNTS
def test_evaluation_outside_of_the_tile(count: int) -> None:
    rng = random.Random(2)
    for _ in range(count):
        layout = random_layout(rng)
        x = rng.randint(-2 * layout.size(), 3 * layout.size())
        total = dict(layout.offset)
        for k, it in enumerate(layout.shard):
            digit = x // math.prod(layout.extents[k + 1 :])
            total[it.axis] = total.get(it.axis, 0) + (digit % it.extent if k else digit) * it.stride
        assert _place(layout.apply(x)) == _place(total)
        # with a shape, each group of a groupable layout does the same on its own
        shape = random_shape(rng, layout.extents)
        if not can_split(layout.extents, shape):
            continue
        refined, seps = group(layout, shape)
        coordinate = [rng.randint(-2 * e, 3 * e) for e in shape]
        total = dict(layout.offset)
        for d, index in enumerate(coordinate):
            part = TileLayout(refined.shard[seps[d] : seps[d + 1]])
            for name, value in part.apply(index).items():
                total[name] = total.get(name, 0) + value
        assert _place(layout.apply(coordinate, shape)) == _place(total)


@COUNTS
def test_any_shape_flattens_inside_of_the_tile(count: int) -> None:
    rng = random.Random(3)
    for _ in range(count):
        layout = random_layout(rng)
        shape = random_shape(rng, layout.extents)
        coordinate = [rng.randrange(e) for e in shape]
        flat = int(np.ravel_multi_index(coordinate, shape))
        assert layout.apply(coordinate, shape) == layout.apply(flat)
        for name, values in layout.evaluate(shape).items():
            assert values.shape == shape
            assert values[tuple(coordinate)] == layout.apply(flat)[name]


@COUNTS
def test_size_and_span(count: int) -> None:
    rng = random.Random(4)
    for _ in range(count):
        layout = random_layout(rng, least=0)
        elements = enumerate_map(layout)
        assert layout.size() == len(elements)
        for name in layout.axes:
            assert layout.span(name) == 1 + max(dict(p).get(name, 0) for c in elements for p in c)


@COUNTS
def test_canonicalize_keeps_the_map_up_to_renaming(count: int) -> None:
    rng = random.Random(5)
    for _ in range(count):
        layout = random_layout(rng)
        if thread_axes(layout) == {"laneid", "wgid"}:
            with pytest.raises(LayoutError, match="the chain of scopes is broken"):
                canonicalize(layout)
            continue
        canonical = canonicalize(layout)
        target = fused_target(layout)
        copies = math.prod(i.extent for i in layout.replica)
        assert len(enumerate_map(canonical)[0]) == copies
        assert enumerate_map(canonical) == rename(enumerate_map(layout), target)
        assert target is None or not set(canonical.axes) & (set(UNITS[target]) - {target})
        assert canonicalize(canonical) == canonical
        plain = canonicalize(layout, fuse_scopes=False)
        assert enumerate_map(plain) == enumerate_map(layout)
        for a, b in itertools.pairwise(canonical.shard):
            assert a.extent > 1 and b.extent > 1
            assert a.axis != b.axis or a.stride != b.extent * b.stride


def test_every_mix_of_thread_axes_is_fused_or_refused() -> None:
    names = ("laneid", "wid_in_wg", "tid_in_wg", "warpid", "wgid", "tx")
    well_formed = {*FUSED, *(frozenset({n}) for n in names)}
    for k in range(1, len(names) + 1):
        for mix in itertools.combinations(names, k):
            layout = TileLayout.of(Iter(2, 1, n) for n in mix)
            if frozenset(mix) in well_formed:
                target = FUSED.get(frozenset(mix))
                assert enumerate_map(canonicalize(layout)) == rename(enumerate_map(layout), target)
            else:
                with pytest.raises(LayoutError):
                    canonicalize(layout)


@COUNTS
def test_group_keeps_the_map_and_declines_only_what_cannot_be_split(count: int) -> None:
    rng = random.Random(6)
    done = 0
    for _ in range(count):
        layout = random_layout(rng)
        shape = random_shape(rng, layout.extents)
        if not can_split(layout.extents, shape):
            with pytest.raises(LayoutError, match="cannot group by"):
                group(layout, shape)
            continue
        done += 1
        refined, seps = group(layout, shape)
        assert enumerate_map(refined) == enumerate_map(layout)
        assert (seps[0], seps[-1], len(seps)) == (0, len(refined.shard), len(shape) + 1)
        products = [math.prod(refined.extents[a:b]) for a, b in itertools.pairwise(seps)]
        assert products == list(shape)
    assert count // 2 < done < count


@COUNTS
def test_group_many_serves_every_shape(count: int) -> None:
    rng = random.Random(7)
    done = 0
    for _ in range(count):
        layout = random_layout(rng)
        shapes = [random_shape(rng, layout.extents) for _ in range(rng.randint(1, 3))]
        pairs = itertools.permutations([layout.extents, *shapes], 2)
        if not all(can_split(a, b) for a, b in pairs):
            with pytest.raises(LayoutError, match="no common grouping"):
                group_many(layout, shapes)
            continue
        done += 1
        refined, all_seps = group_many(layout, shapes)
        assert enumerate_map(refined) == enumerate_map(layout)
        for shape, seps in zip(shapes, all_seps, strict=True):
            assert (seps[0], seps[-1]) == (0, len(refined.shard))
            products = [math.prod(refined.extents[a:b]) for a, b in itertools.pairwise(seps)]
            assert products == list(shape)
            assert all(a < b for a, b in itertools.pairwise(seps))
    assert count // 3 < done < count


@COUNTS
def test_permutations_relabel_the_digits(count: int) -> None:
    rng = random.Random(8)
    for _ in range(count):
        layout = random_layout(rng)
        n = len(layout.shard)
        cuts = sorted(rng.sample(range(1, n), rng.randint(0, n - 1)))
        seps = (0, *cuts, n)
        order = rng.sample(range(len(seps) - 1), len(seps) - 1)
        moved = permute_by_groups(layout, seps, order)
        positions = [p for g in order for p in range(seps[g], seps[g + 1])]
        assert permute_dims(layout, positions) == moved
        elements = np.arange(layout.size()).reshape(layout.extents).transpose(positions)
        before = enumerate_map(layout)
        assert enumerate_map(moved) == [before[x] for x in elements.reshape(-1)]


def random_region(rng: random.Random, shape: Sequence[int]) -> list[tuple[int, int]]:
    region = []
    for extent in shape:
        length = rng.randint(1, extent)
        step = rng.choice([1, length])
        region.append((rng.randrange(0, extent - length + 1, step), length))
    return region


def restricted(
    layout: TileLayout, shape: Sequence[int], region: Sequence[tuple[int, int]]
) -> list[Copies]:
    """The elements of a region, in logical order."""
    box = tuple(slice(b, b + n) for b, n in region)
    inside = np.arange(layout.size()).reshape(shape)[box].reshape(-1)
    elements = rename(enumerate_map(layout), fused_target(layout))
    return [elements[x] for x in inside]


@COUNTS
def test_slice_is_the_restricted_map(count: int) -> None:
    rng = random.Random(9)
    done = 0
    for _ in range(count):
        layout = random_layout(rng)
        shape = random_shape(rng, layout.extents)
        region = random_region(rng, shape)
        try:
            sliced = slice_(layout, shape, region)
        except LayoutError:
            continue
        done += 1
        assert sliced.size() == math.prod(n for _, n in region)
        assert enumerate_map(sliced) == restricted(layout, shape, region)
    assert done > count // 3


@COUNTS
def test_slice_of_one_dimension_across_the_digits(count: int) -> None:
    # dense coverage of the straddle: every region of two and three digits on memory
    rng = random.Random(10)
    done = straddles = 0
    for _ in range(count // 10):
        extents = [rng.randint(2, 4) for _ in range(rng.randint(2, 3))]
        layout = TileLayout.of(Iter(e, rng.randint(1, 100)) for e in extents)
        size = layout.size()
        for begin in range(size):
            for length in range(1, size - begin + 1):
                try:
                    sliced = slice_(layout, (size,), [(begin, length)])
                except LayoutError:
                    continue
                done += 1
                steps = {i.stride for i in layout.shard}
                straddles += any(i.stride not in steps for i in sliced.shard)
                assert enumerate_map(sliced) == restricted(layout, (size,), [(begin, length)])
    assert done > count
    assert straddles > count // 10


def test_the_comparison_of_slices_can_fail() -> None:
    # the wrong answer that another implementation gives: 11,20 for elements 3 and 4
    layout = TileLayout((Iter(4, 100), Iter(2, 10), Iter(2, 1)))
    right = restricted(layout, (16,), [(3, 2)])
    assert right == [(frozenset({("m", 11)}),), (frozenset({("m", 100)}),)]
    assert enumerate_map(TileLayout((Iter(2, 9),), (), (("m", 11),))) != right


def composed(
    inner: TileLayout,
    outer: TileLayout,
    shapes: tuple[Sequence[int], Sequence[int]],
    factor: Callable[[str], int],
) -> list[Copies]:
    """Definition of tile and direct sum: outer digits times a factor, plus the inner ones."""
    outer_shape, inner_shape = shapes
    order = np.arange(outer.size() * inner.size()).reshape(*outer_shape, *inner_shape)
    rank = len(outer_shape)
    order = order.transpose([x for d in range(rank) for x in (d, rank + d)])
    outer_sums = list(_sums(outer.shard, {}))
    inner_sums = list(_sums(inner.shard, {}))
    shifts = [dict(s) for s in _sums([*inner.replica, *outer.replica], {})]
    result = []
    for pair in order.reshape(-1):
        o, i = divmod(int(pair), inner.size())
        copies = []
        for shift in shifts:
            total = dict(shift)
            terms = [(n, v * factor(n)) for n, v in outer_sums[o].items()]
            terms += [*inner_sums[i].items(), *inner.offset, *outer.offset]
            for name, value in terms:
                total[name] = total.get(name, 0) + value
            copies.append(_place(total))
        result.append(tuple(sorted(copies, key=sorted)))
    return result


@COUNTS
def test_tile_and_direct_sum_by_definition(count: int) -> None:
    rng = random.Random(11)
    done = 0
    for _ in range(count):
        inner = random_layout(rng, ["laneid"], limit=16, least=0)
        outer = random_layout(rng, ["warpid"], limit=16, least=0)
        inner_shape = random_shape(rng, inner.extents)
        outer_shape = random_shape(rng, outer.extents)
        rank = max(len(inner_shape), len(outer_shape))
        shapes = tuple(s + (1,) * (rank - len(s)) for s in (outer_shape, inner_shape))
        elements = enumerate_map(inner)

        def span(name: str, found: list[Copies] = elements) -> int:
            return 1 + max(dict(p).get(name, 0) for c in found for p in c)

        try:
            tiled = tile(inner, outer, *shapes, fuse_scopes=False)
        except LayoutError as error:
            assert "cannot group" in str(error)
            continue
        done += 1
        assert enumerate_map(tiled) == composed(inner, outer, shapes, span)
        assert tile(inner, outer, *shapes) == canonicalize(tiled)
        summed = direct_sum(inner, outer, *shapes, fuse_scopes=False)
        assert enumerate_map(summed) == composed(inner, outer, shapes, lambda _: 1)
        assert direct_sum(inner, outer, *shapes) == canonicalize(summed)
    assert done > count // 2


@COUNTS
def test_unpack_pack_and_storage(count: int) -> None:
    rng = random.Random(12)
    for _ in range(count):
        layout = random_layout(rng)
        width = rng.choice([1, 2, 3, 4])
        wide = unpack(layout, width)
        expected = []
        for copies in enumerate_map(layout):
            for part in range(width):
                places = ({"m": 0} | dict(p) for p in copies)
                moved = (_place(p | {"m": p["m"] * width + part}) for p in places)
                expected.append(tuple(sorted(moved, key=sorted)))
        assert enumerate_map(wide) == expected
        assert enumerate_map(pack(wide, width)) == enumerate_map(layout)
        slots = {dict(p).get("m", 0) for c in enumerate_map(layout) for p in c}
        assert slots == {dict(p).get("m", 0) for c in enumerate_map(storage(layout)) for p in c}


def swizzled_bits(offset: int, swizzle: Swizzle) -> int:
    """The swizzle bit by bit."""
    bits = [offset >> k & 1 for k in range(60)]
    moved = list(bits)
    for k in range(swizzle.b):
        low, high = swizzle.p + k, swizzle.p + swizzle.a + k
        if swizzle.inner:
            moved[low] = bits[low] ^ bits[high]
        else:
            moved[high] = bits[high] ^ bits[low]
    return sum(bit << k for k, bit in enumerate(moved))


@pytest.mark.parametrize("inner", [True, False])
def test_swizzles_bit_by_bit(inner: bool) -> None:
    for p, a in itertools.product(range(5), range(5)):
        for b in range(a + 1):
            swizzle = Swizzle(p, b, a, inner)
            offsets = np.arange(min(2 * swizzle.period, 4096), dtype=np.int64)
            moved = swizzle.apply_array(offsets)
            assert moved.tolist() == [swizzled_bits(int(x), swizzle) for x in offsets]
            assert moved.tolist() == [swizzle.apply(int(x)) for x in offsets]
            assert (swizzle.apply_array(moved) == offsets).all()
            first = moved[: swizzle.period]
            assert len(set(first.tolist())) == len(first)
            assert (
                moved.reshape(-1, swizzle.chunk) % swizzle.chunk == offsets[: swizzle.chunk]
            ).all()
            nibbles = swizzle.apply_array(offsets >> 2) * 4 + offsets % 4
            assert (swizzle.in_bytes(32).apply_array(offsets) == nibbles).all()


@COUNTS
def test_text_round_trip(count: int) -> None:
    rng = random.Random(13)
    for _ in range(count):
        layout: TileLayout | ComposeLayout = random_layout(rng)
        if rng.random() < 0.3:
            a = rng.randint(0, 4)
            swizzle = Swizzle(rng.randint(0, 4), rng.randint(0, a), a, rng.random() < 0.7)
            layout = ComposeLayout(layout, swizzle)  # type: ignore[arg-type]
        assert parse(str(layout)) == layout


@COUNTS
def test_damaged_text_is_parsed_or_refused(count: int) -> None:
    rng = random.Random(14)
    for _ in range(count):
        text = list(str(random_layout(rng)))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(text))
            text[at : at + rng.randint(0, 2)] = rng.choice(
                ["", "(", ")", "[", "]", ",", ":", "@", "+", "-", "9", "R", "o", " ", "\0", "²"]
            )
            text = text or ["S"]
        try:
            layout = parse("".join(text))
        except LayoutError:
            continue
        assert parse(str(layout)) == layout

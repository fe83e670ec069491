"""Peeling: the numbers of a residue tile, that tiles cover an axis once, and why it is declined."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from circular_fusions import doubled, partitioned_sum, row_sum

from lowering.circular.integers import Expr, Int, Symbol, evaluate
from lowering.circular.loops import Parallel, Peel
from lowering.circular.lower import Scheme, lower
from lowering.circular.oracle import visits
from lowering.circular.peel import Residue, plan, residue
from lowering.circular.tensors import Axis, Fusion
from lowering.dispatch import Decline, Declined

X = Symbol("X")
TILE, PLACE = Symbol("i"), Symbol("j")

#: Extents and tiles: all ends of tiles up to three of them, and some primes.
_ENDS = [(n * t + d, t) for t in (1, 2, 3, 7, 8, 16, 32, 40) for n in range(4) for d in (-1, 0, 1)]
SAMPLE = sorted({(x, t) for x, t in _ENDS if x >= 0})
SAMPLE += [(x, t) for x in (97, 199, 200) for t in (5, 13, 16)]
EVERY = [(x, tile) for x in range(201) for tile in range(1, 41)]

SMALL = pytest.param(SAMPLE, id="sample")
LARGE = pytest.param(EVERY, id="every", marks=pytest.mark.slow)


class _Numbers:
    """The numbers of a residue whose extent is a symbol, by evaluation."""

    def __init__(self, made: Residue) -> None:
        self.made = made

    def of(self, value: Expr, **values: int) -> int:
        return evaluate(value, values)

    def places(self, x: int, mixed: bool = False) -> Iterator[tuple[int, int, int]]:
        """Tile, place and element, in the order of the loops; places without one are left out."""
        made = self.made
        for i in range(self.of(made.tiles, X=x)):
            part = Peel.MIXED if mixed else Peel.STEADY if i else Peel.RESIDUE
            limit = made.limit(TILE, part)
            count = made.tile if limit is None else self.of(limit, X=x, i=i)
            source = made.source(TILE, PLACE, part)
            for j in range(count):
                yield i, j, self.of(source, X=x, i=i, j=j)


# --- numbers --------------------------------------------------------------------------------------


# X, L, T, r
@pytest.mark.parametrize(
    ("x", "tile", "tiles", "rest"),
    [
        (0, 16, 0, 0),  # not L: an empty axis has no elements (B4)
        (1, 16, 1, 1), (15, 16, 1, 15), (16, 16, 1, 16), (17, 16, 2, 1),
        (48, 16, 3, 16), (33, 16, 3, 1),  # PredicatePeeling1
        (45, 16, 3, 13),  # PredicatePeeling2
        (248, 32, 8, 24), (248, 64, 4, 56), (2048, 64, 32, 64),  # AmpereMatmul and its kin
        (1000, 32, 32, 8),  # the cost table
    ],
)  # fmt: skip
def test_numbers_of_the_table(x: int, tile: int, tiles: int, rest: int) -> None:
    fixed = residue(Int(x), tile, 1, aligned=False)
    assert (fixed.tiles, fixed.rest, fixed.whole) == (Int(tiles), Int(rest), Int(rest))
    named = residue(X, tile, 1, aligned=False)
    assert evaluate(named.tiles, {"X": x}) == tiles
    assert evaluate(named.rest, {"X": x}) == rest


@pytest.mark.parametrize("pairs", [SMALL, LARGE])
def test_numbers_are_those_of_the_formulas(pairs: list[tuple[int, int]]) -> None:
    for x, tile in pairs:
        made = residue(X, tile, 1, aligned=False)
        tiles = -(-x // tile)
        # r = X - max(T-1, 0) * L: the definition in the proof of coverage
        assert evaluate(made.tiles, {"X": x}) == tiles
        assert evaluate(made.rest, {"X": x}) == x - max(tiles - 1, 0) * tile
        assert residue(Int(x), tile, 1, aligned=False).rest == Int(evaluate(made.rest, {"X": x}))


@pytest.mark.parametrize("mixed", [False, True], ids=["parts", "mixed"])
@pytest.mark.parametrize("pairs", [SMALL, LARGE])
def test_tiles_cover_the_axis_once_in_order(pairs: list[tuple[int, int]], mixed: bool) -> None:
    for x, tile in pairs:
        numbers = _Numbers(residue(X, tile, 1, aligned=False))
        visited = list(numbers.places(x, mixed))
        assert [e for _, _, e in visited] == list(range(x)), (x, tile)
        # all tiles but the first are whole, and no place lies outside of its tile
        counts = [sum(i == t for i, _, _ in visited) for t in range(1, -(-x // tile))]
        assert counts == [tile] * len(counts)
        assert all(j < tile for _, j, _ in visited)


def test_the_oracle_visits_the_same_places() -> None:
    for x, tile in SAMPLE:
        for vector in (1, 2, 4, 8):
            if tile % vector:
                continue
            numbers = _Numbers(residue(X, tile, vector, aligned=True))
            wanted = [-1] * (-(-x // tile) * tile)
            for i, j, e in numbers.places(x):
                wanted[i * tile + j] = e
            assert visits(x, tile, "aligned", vector) == wanted
            if vector == 1:
                assert visits(x, tile, "on") == wanted


@pytest.mark.parametrize("mixed", [False, True], ids=["parts", "mixed"])
@pytest.mark.parametrize("pairs", [SMALL, LARGE])
def test_aligned_tiles_cover_the_axis_once(pairs: list[tuple[int, int]], mixed: bool) -> None:
    for x, tile in pairs:
        for vector in (v for v in (2, 4, 8) if tile % v == 0):
            numbers = _Numbers(residue(X, tile, vector, aligned=True))
            visited = list(numbers.places(x, mixed))
            assert sorted(e for _, _, e in visited) == list(range(x)), (x, tile, vector)
            # vectors begin at multiples of their width and are consecutive
            for _, j, e in visited:
                if j % vector == 0:
                    first = e
                    assert first % vector == 0
                assert e == first + j % vector


def test_aligned_is_plain_where_vectors_divide_the_residue() -> None:
    for x in (8, 24, 40, 72):
        aligned, plain = (_Numbers(residue(X, 16, 8, a)) for a in (True, False))
        assert list(aligned.places(x)) == list(plain.places(x))


def test_example_of_the_aligned_form() -> None:
    # X = 1003, L = 32, V = 8: T = 32, r = 11, r' = 8; places 8 to 10 of tile 0 come from the end
    numbers = _Numbers(residue(X, 32, 8, aligned=True))
    assert evaluate(numbers.made.whole, {"X": 1003}) == 8
    visited = list(numbers.places(1003))
    assert visited[:11] == [
        *[(0, j, j) for j in range(8)], (0, 8, 1000), (0, 9, 1001), (0, 10, 1002),
    ]  # fmt: skip
    assert visited[11] == (1, 0, 8)
    assert visited[-1] == (31, 31, 999)


def test_a_wrong_residue_is_noticed() -> None:
    # upstream's X + L - ceilDiv(X, L) * L is L at X = 0: the check of coverage must see that (B4)
    right = residue(X, 16, 1, aligned=False)
    wrong = X + 16 - right.tiles * 16
    assert evaluate(wrong, {"X": 0}) == 16
    made = Residue(X, 16, right.tiles, wrong, wrong, aligned=False)
    for x in (1, 16, 45):
        assert [e for _, _, e in _Numbers(made).places(x)] == list(range(x))
    steady = Residue(X, 16, right.tiles, right.rest - 1, right.rest - 1, aligned=False)
    assert [e for _, _, e in _Numbers(steady).places(45)] != list(range(45))


# --- merged axes and partitions -------------------------------------------------------------------


@pytest.mark.parametrize(
    "shapes",
    [
        pytest.param([(3, 5), (4, 8), (7, 12), (1, 9), (5, 1), (0, 4), (4, 0)], id="sample"),
        pytest.param([(a, b) for a in range(7) for b in range(14)], id="every",
                     marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_merged_axes_are_covered_once(shapes: list[tuple[int, int]]) -> None:
    for k1, k2 in shapes:
        for tile in (1, 2, 4, 8, 16):
            for vector in (1, 2, 4):
                if tile % vector:
                    continue
                numbers = _Numbers(residue(X, tile, vector, aligned=vector > 1))
                found = [divmod(e, k2) for _, _, e in numbers.places(k1 * k2)]
                # the merge is a bijection: both root indices are in range, each pair once
                assert sorted(found) == [(a, b) for a in range(k1) for b in range(k2)]


@pytest.mark.parametrize("count", [pytest.param(range(0, 80, 7), id="sample"),
                                   pytest.param(range(80), id="every",
                                                marks=pytest.mark.slow)])  # fmt: skip
def test_partitions_are_peeled_one_by_one(count: range) -> None:
    for part in (16, 24):
        fusion = partitioned_sum(X, part, 3, tile=8)
        acc = fusion.tensors[2]
        found = plan(fusion, acc.axis("k.i.o"))
        assert isinstance(found, Residue)
        for k in count:
            elements = []
            for block in range(-(-k // part)):
                # X_p = clamp(K - k_p, 0, K_p)
                mine = evaluate(found.extent, {"X": k, "ctaid.x": block})
                assert mine == max(0, min(k - block * part, part))
                made = _Numbers(residue(X, 8, 1, aligned=False))
                elements += [block * part + e for _, _, e in made.places(mine)]
            assert elements == list(range(k))


# --- verdicts -------------------------------------------------------------------------------------

# The conditions of nvFuser's pass (U) and further situations (P): U5 (a factor that is no number)
# is no int, and `split` takes ints only; U7 (loops that compute addresses) and U9 (branches before
# the pass) do not exist here; U8, P8: every loop over a peeled axis is peeled, test_circular_lower
# has it; U10: explicit fills are made once for each slot only where the axis is peeled,
# test_circular_lower has it; U11: the refusals in test_circular_schedule; U12: several axes may be
# marked; P3 (halos, gathers, partial splits), P9 (uses of the index as a value) and scans of P10
# cannot be written as fusions.


def _axes(k: Expr | int = X) -> tuple[Fusion, Axis]:
    fusion = row_sum(33, k)
    return fusion, fusion.tensors[2].axis("k.o")


def _code(fusion: Fusion, axis: Axis, **options: object) -> str:
    found = plan(fusion, axis, **options)  # type: ignore[arg-type]
    assert isinstance(found, Decline)
    return str(found)


def test_a_parallel_axis_has_no_first_tile() -> None:  # U1
    fusion = row_sum(33, X)
    assert _code(fusion, fusion.tensors[3].axis("m.o")) == (
        "parallel: m.o is ctaid.x in x_s: no tile is the first one"
    )
    unrolled, axis = _axes(45)
    unrolled.tensors[2].parallelize(axis, Parallel.UNROLL)
    assert _code(unrolled, axis) == "parallel: k.o is unroll in acc: no tile is the first one"


def test_an_axis_that_is_not_split_has_no_residue() -> None:  # U2
    fusion = Fusion("root")
    x = fusion.input("x", "f32", {"n": X, "m": 4})
    y = fusion.output("y", x)
    assert _code(fusion, y.axis("n")) == (
        "no-split: n is made by no split: no inner tile has the residue"
    )
    merged = y.merge("n", "m", "all")
    assert _code(fusion, merged).startswith("no-split: all is made by no split")


def test_the_inner_part_of_a_split_is_constant() -> None:  # U3
    fusion, _ = _axes()
    assert _code(fusion, fusion.tensors[2].axis("k.i")) == (
        "inner: k.i is the inner part of a split, whose extent is constant"
    )


def test_merged_roots_are_peeled() -> None:  # U4 upstream; P1
    fusion = Fusion("merged")
    x = fusion.input("x", "f32", {"a": 3, "b": 5})
    y = fusion.output("y", x)
    y.merge("a", "b", "k")
    outer, _ = y.split("k", 4)
    found = plan(fusion, outer)
    assert isinstance(found, Residue)
    # 15 elements: T = 4, r = 3
    assert (found.extent, found.tiles, found.rest) == (Int(15), Int(4), Int(3))


def test_an_axis_must_have_a_loop() -> None:  # U6
    fusion, axis = _axes()
    for t in fusion.tensors[1:3]:
        t.split("k.o", 2)
    assert _code(fusion, axis) == (
        "no-loop: k.o was split or merged after it was peeled: it has no loop"
    )
    with pytest.raises(Declined, match=r"no-loop: k\.o was split or merged"):
        lower(fusion)
    # nothing is wrong with the schedule itself
    assert "k.o.o" in str(lower(fusion, Scheme("off")))


def test_parts_of_a_split_that_divides_are_peeled() -> None:  # P1
    fusion = Fusion("twice", multiples={"X": 4})
    x = fusion.input("x", "f32", {"n": X})
    y = fusion.output("y", x)
    y.split("n", 4)
    outer, _ = y.split("n.o", 16)
    found = plan(fusion, outer)
    assert isinstance(found, Residue)
    # X/4 columns of 4
    assert evaluate(found.tiles, {"X": 4 * 33}) == 3
    assert evaluate(found.rest, {"X": 4 * 33}) == 1


def test_parts_of_a_split_that_may_not_divide_are_not() -> None:  # P2
    fusion = Fusion("twice")
    x = fusion.input("x", "f32", {"n": X})
    y = fusion.output("y", x)
    y.split("n", 4)
    outer, _ = y.split("n.o", 16)
    text = _code(fusion, outer)
    assert text == (
        "split: n.o is a part of n that 4 may not divide: its own test would remain in each tile"
    )
    inner = Fusion("inner")
    z = inner.output("z", inner.input("x", "f32", {"n": X}))
    z.split("n", 32)
    assert _code(inner, z.split("n.i", 8)[0]).startswith("split: n.i is a part of n that 32 may")


def test_merged_parts_of_splits_are_not_peeled() -> None:  # P2
    fusion = Fusion("parts")
    x = fusion.input("x", "f32", {"m": 8, "n": X})
    y = fusion.output("y", x)
    y.split("n", 4)
    y.merge("m", "n.o", "all")
    outer, _ = y.split("all", 16)
    assert _code(fusion, outer) == ("merged-split: all is merged from n.o, a part of a split")


def test_sizes_may_be_named_or_known() -> None:  # P4, P5
    named = plan(*_axes())
    assert isinstance(named, Residue)
    assert str(named.tiles) == "(X + 15) // 16"
    assert str(named.rest) == "min(X, (X + 15) % 16 + 1)"
    known = plan(*_axes(48))
    assert isinstance(known, Residue)
    assert (known.tiles, known.rest) == (Int(3), Int(16))


def test_an_axis_of_no_tensor_in_memory_is_not_tested() -> None:  # P7
    fusion, _ = _axes()
    alone = Fusion("other")
    other = alone.copy("l", fusion.tensors[0])
    outer, _ = other.split("k", 16)
    assert _code(alone, outer) == (
        "broadcast: no tensor in global memory has k.o: nothing is tested"
    )


def test_outputs_keep_their_order() -> None:  # P10
    fusion = doubled(X, 3)
    axis = fusion.tensors[-1].axis("n.o")
    assert isinstance(plan(fusion, axis), Residue)
    assert _code(fusion, axis, vector=4, aligned=True) == (
        "order: the output has n.o: only a reduction may take its elements in any order"
    )


def test_aligned_tiles_are_made_of_vectors() -> None:  # P11
    fusion, axis = _axes()
    assert isinstance(plan(fusion, axis, vector=8, aligned=True), Residue)
    assert _code(fusion, axis, vector=3, aligned=True) == (
        "vector: tiles of 16 are not made of vectors of 3"
    )


def test_partitions_must_be_made_of_tiles_and_be_ctas() -> None:  # P12
    rough = partitioned_sum(X, 20, 3, tile=8)
    assert _code(rough, rough.tensors[2].axis("k.i.o")).startswith("split: k.i is a part of k")
    serial = partitioned_sum(X, 16, 3, tile=8)
    for t in serial.tensors:
        t.parallel = {a: p for a, p in t.parallel.items() if not p.block}
    assert _code(serial, serial.tensors[2].axis("k.i.o")).startswith("split: k.i is a part of k")


def test_vectors_that_do_not_survive_the_shift_are_declined() -> None:  # P11, section 4.2
    # e = 4, V = 4: K = 44 has r = 12 and keeps 16 bytes; K = 45 has r = 13 and does not
    lower(row_sum(16, 44, vector=4, cache="cg"))
    with pytest.raises(Declined, match="vectors of 16 bytes of x may be misaligned"):
        lower(row_sum(16, 45, vector=4, strides=(48, 1)))
    lower(row_sum(16, 45, vector=4, strides=(48, 1)), Scheme("aligned"))
    lower(row_sum(16, 45, vector=4, strides=(48, 1)), Scheme("off"))


def test_stores_of_zeros_cannot_complete_a_vector() -> None:
    with pytest.raises(Declined, match="straddle: vectors of 4 elements may reach beyond 13"):
        lower(row_sum(16, 45, vector=4, strides=(48, 1)), Scheme("aligned", "explicit"))

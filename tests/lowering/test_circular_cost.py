"""The cost formulas of the variants: the reckoning for M = N = 128, K = 1000, L = 32, one CTA.

The expected numbers were worked out by hand from what each variant executes: T = 32 tiles of which
the first has r = 8 elements, 1024 copies of 8 f16 a tile by 128 threads.  ``P0`` is nvFuser's
peeled predicate (csarofeen/pytorch PR 1973), ``U1`` its zero-filling copy (PRs 2484 and 2485).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from lowering.circular.cost import Problem, Variant, cost, table

REFERENCE = Problem(128, 128, 1000, tile_k=32, depth=3, vector=8, static_mn=True)


def test_the_tiles_of_the_reference() -> None:
    assert (REFERENCE.ctas, REFERENCE.tiles, REFERENCE.residue) == (1, 32, 8)
    assert REFERENCE.copies == 1024  # (128 + 128) * 32 / 8


# (variant, axis, uniform of all 128 threads, fills, their bytes, copies, masked or zero-filled)
ROWS = [
    (Variant.U0, 34816, 0, 34816, 557056, 34816, 2816),
    (Variant.U1, 34816, 0, 0, 0, 34816, 2816),
    (Variant.P0, 1024, 32 * 128, 3072, 49152, 34816, 2816),
    (Variant.P1, 1024, 1 * 128, 0, 0, 32768, 768),
    (Variant.P2, 128, 1 * 128, 0, 0, 32768, 768),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].value)
def test_the_rows_of_the_table(row: tuple[Variant, int, int, int, int, int, int]) -> None:
    variant, *expected = row
    c = cost(variant, REFERENCE)
    assert [c.axis, c.uniform, c.fills, c.fill_bytes, c.copies, c.masked] == expected
    assert c.full == 32000  # 1000 * 256 / 8
    assert (c.partial, c.outside, c.bound) == (0, 0, 0)
    assert (c.commits, c.waits, c.barriers) == (34 * 128, 33 * 128, 33 * 128)


def test_a_known_number_of_tiles_needs_no_uniform_test() -> None:
    known = replace(REFERENCE, static_k=True)
    assert cost(Variant.P1, known).uniform == cost(Variant.P2, known).uniform == 0
    assert cost(Variant.P1, known).axis == 1024
    # a multiple of L: the first tile is as full as the others
    assert cost(Variant.P1, replace(known, k=1024)).axis == 0
    assert cost(Variant.P1, replace(REFERENCE, k=1024)).axis == 1024


def test_ratios_of_the_schemes() -> None:
    u0, p1, p2 = (cost(s, REFERENCE) for s in (Variant.U0, Variant.P1, Variant.P2))
    assert (u0.axis // p1.axis, u0.axis // p2.axis) == (34, 272)
    assert round(100 * (1 - p1.copies / u0.copies), 1) == 5.9


def test_fills_of_what_no_copy_writes() -> None:
    needed = {s: cost(s, REFERENCE).needed_fills for s in Variant}
    assert needed == {
        Variant.U0: 2816, Variant.U1: 0, Variant.P0: 768, Variant.P1: 0, Variant.P2: 0,
    }  # fmt: skip


@pytest.mark.parametrize(("depth", "unpeeled", "fills"), [(2, 33792, 2048), (4, 35840, 4096)])
def test_other_depths(depth: int, unpeeled: int, fills: int) -> None:
    problem = replace(REFERENCE, depth=depth)
    for variant in (Variant.U0, Variant.U1):
        c = cost(variant, problem)
        assert (c.axis, c.copies) == (unpeeled, unpeeled)
    assert cost(Variant.U0, problem).fills == unpeeled
    assert cost(Variant.P0, problem).fills == fills
    assert cost(Variant.P0, problem).copies == unpeeled
    for variant in (Variant.P1, Variant.P2):
        c = cost(variant, problem)
        assert (c.copies, c.masked, c.uniform) == (32768, 768, (depth - 2) * 128)
        assert (c.commits, c.waits) == ((depth - 1 + 32) * 128, 33 * 128)


def test_narrow_vectors() -> None:
    problem = replace(REFERENCE, vector=2)
    assert problem.copies == 4096
    u0 = cost(Variant.U0, problem)
    assert (u0.axis, u0.fills, u0.copies, u0.masked) == (139264, 139264, 139264, 4 * 2816)
    assert u0.fill_bytes == 557056  # as many bytes in smaller pieces
    p0, p1, p2 = (cost(s, problem) for s in (Variant.P0, Variant.P1, Variant.P2))
    assert (p0.axis, p0.fills) == (4096, 4 * 3072)
    assert (p1.axis, p1.copies, p1.masked) == (4096, 4 * 32768, 4 * 768)
    assert (p2.axis, p2.copies, p2.masked) == (128, 4 * 32768, 4 * 768)


def test_predicates_of_a_row_of_the_first_listing() -> None:
    # no pipeline, one element a copy: 32 predicates a tile and row, with 32 tiles
    row = replace(REFERENCE, m=1, n=1, tile=(1, 0), depth=1, vector=1, threads=32)
    assert cost(Variant.U1, row).axis == 1024
    assert cost(Variant.P1, row).axis == 32


def test_bounds_of_rows_and_columns_are_tested_once() -> None:
    for variant in Variant:
        assert cost(variant, replace(REFERENCE, static_mn=False)).bound == 1024
        assert cost(variant, replace(REFERENCE, m=100)).bound == 1024


def test_rows_and_columns_outside() -> None:
    # M = 130: 2 CTAs; A has 130 rows, B is copied twice.  N = 100 of 128 columns exist.
    problem = replace(REFERENCE, m=130, n=100)
    assert (problem.ctas, problem.lines) == (2, 130 + 2 * 100)
    c = cost(Variant.P1, problem)
    assert c.copies == 2 * 32768
    assert (c.full, c.masked) == (330 * 1000 // 8, 330 * (32 - 8) // 8)
    assert c.outside == 32 * 4 * (2 * 256 - 330)  # tiles, vectors of a row, rows


def test_vectors_that_straddle_the_end() -> None:
    # K = 1001: r = 9, one full vector, one with a single element, two empty ones
    c = cost(Variant.P1, replace(REFERENCE, k=1001))
    assert (c.full, c.partial, c.masked) == ((31 * 4 + 1) * 256, 256, 2 * 256)


@pytest.mark.parametrize("k", [0, 1, 16, 31, 32, 33, 64])
@pytest.mark.parametrize("depth", [2, 3, 6])
def test_few_tiles(k: int, depth: int) -> None:
    tiles = {0: 0, 1: 1, 16: 1, 31: 1, 32: 1, 33: 2, 64: 2}[k]
    c = cost(Variant.P1, replace(REFERENCE, k=k, depth=depth))
    # the residue tile is copied (as zeros) even if there is nothing in it
    assert c.copies == max(tiles, 1) * 1024
    assert c.full + c.partial + c.masked == c.copies
    assert c.commits == (depth - 1 + tiles) * 128
    assert cost(Variant.U1, replace(REFERENCE, k=k, depth=depth)).copies == (
        (tiles + depth - 1) * 1024
    )


def test_the_table() -> None:
    lines = table(REFERENCE).splitlines()
    assert lines[0].split()[:4] == ["variant", "axis", "uniform", "bound"]
    assert lines[1].split()[:7] == ["U0", "34816", "0", "0", "34816", "557056", "2816"]
    assert len({len(line) for line in lines}) == 1
    assert [line.split()[0] for line in lines[1:]] == ["U0", "U1", "P0", "P1", "P2"]
    assert len(table(REFERENCE, [Variant.P2]).splitlines()) == 2

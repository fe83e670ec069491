"""The costs of the variants as the simulator counts them in the lowered kernels.

M = N = 128, one CTA of 128 threads; both operands lie with K contiguous.  The literal numbers were
worked out by hand: T = ceil(1000 / 32) = 32 tiles, the first of r = 8 elements, of
nv = (128 + 128) * 32 / V copies each.
"""

from __future__ import annotations

import runpy
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from matmul_runs import operands

import ptxsim
from lowering.circular import Matmul, lower_matmul
from lowering.circular.cost import SCHEMES, Cost, Problem, Variant, cost, measured

EXAMPLE = runpy.run_path(str(Path(__file__).parent.parent.parent / "examples" / "matmul_cost.py"))


def product(variant: Variant, depth: int = 3, vector: int = 8, k: int = 1000) -> Matmul:
    """P0 tests each iteration, so that its number must be known; the others are given K.

    Rows of 1008 elements have vectors of 8, those of 1002 vectors of 2.
    """
    row = {8: 1008, 2: 1002}[vector]
    static = variant is Variant.P0
    return Matmul(
        128, 128, k, layout="NT", stages=depth, strides={"a": (row, 1), "b": (row, 1)},
        symbolic=frozenset("" if static else "k"), multiples={"k": 8}, scheme=SCHEMES[variant],
    )  # fmt: skip


@cache
def in_the_example(variant: Variant) -> dict[str, int]:
    """Three slots, vectors of 8 and K = 1000; its results are compared with NumPy's."""
    found: dict[str, int] = EXAMPLE["count"](EXAMPLE["product"](variant))
    return found


@cache
def counted(variant: Variant, depth: int, vector: int, k: int = 1000) -> dict[str, int]:
    if (depth, vector, k) == (3, 8, 1000):
        return in_the_example(variant)
    spec = product(variant, depth, vector, k)
    lowered = lower_matmul(spec)
    arrays = operands(spec, 1)
    c = np.zeros(128 * 128, np.float32)
    report = ptxsim.assemble(lowered.text()).kernel("matmul").launch(
        grid=1, block=(32, 2, 2), smem=lowered.kernel.dynamic_shared, tools="advice",
        args=[arrays["a"], arrays["b"], c, *map(np.uint32, lowered.sizes.values())],
    )  # fmt: skip
    assert report.counters["cp.async.pending_at_exit.threads"] == 0
    assert report.counters["cp.async.wait_all.threads"] == 128
    return measured(report.counters)


def formula(variant: Variant, depth: int, vector: int, k: int = 1000) -> Cost:
    static = variant is Variant.P0
    return cost(variant, Problem(128, 128, k, 32, depth, vector, static_mn=True, static_k=static))


#: Variant, slots and K; those of 8 tiles, the first of 8 elements, are as good as those of 32
CASES = [(v, 3, 1000) for v in Variant] + [(v, s, 232) for s in (2, 4) for v in Variant]
NARROW = [(v, 3, 2) for v in Variant]


def agrees(variant: Variant, depth: int, vector: int, k: int = 1000) -> None:
    expected = formula(variant, depth, vector, k)
    assert expected.outside == 0
    found = counted(variant, depth, vector, k)
    assert found == {name: getattr(expected, name) for name in found}


@pytest.mark.parametrize(("variant", "depth", "k"), CASES)
def test_formulas(variant: Variant, depth: int, k: int) -> None:
    agrees(variant, depth, 8, k)


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "depth", "vector"), NARROW)
def test_narrow_vectors(variant: Variant, depth: int, vector: int) -> None:
    agrees(variant, depth, vector)


@pytest.mark.parametrize("variant", Variant)
@pytest.mark.parametrize("k", [8, pytest.param(32, marks=pytest.mark.slow), 72])
def test_few_tiles(variant: Variant, k: int) -> None:
    """Up to S - 1 tiles; where it is known that there is one alone, P0 makes no pipeline."""
    if variant is not Variant.P0 or k == 72:
        agrees(variant, 4, 8, k)


# variant: axis, uniform of 128 threads, fills, their bytes, copies, masked or zero-filled
TABLE = {
    Variant.U0: (34816, 0, 34816, 557056, 34816, 2816),
    Variant.U1: (34816, 0, 0, 0, 34816, 2816),
    Variant.P0: (1024, 32 * 128, 3072, 49152, 34816, 2816),
    Variant.P1: (1024, 128, 0, 0, 32768, 768),
    Variant.P2: (128, 128, 0, 0, 32768, 768),
}


@pytest.mark.parametrize("variant", Variant)
def test_the_table(variant: Variant) -> None:
    found = counted(variant, 3, 8)
    names = ("axis", "uniform", "fills", "fill_bytes", "copies", "masked")
    assert tuple(found[name] for name in names) == TABLE[variant]
    assert (found["full"], found["partial"]) == (32000, 0)
    assert [found[n] // 128 for n in ("commits", "waits", "barriers")] == [34, 33, 33]


# axis tests, fills and copies of other depths
DEPTHS = {
    (Variant.U0, 2): (33792, 33792, 33792), (Variant.U0, 4): (35840, 35840, 35840),
    (Variant.P0, 2): (1024, 2048, 33792), (Variant.P0, 4): (1024, 4096, 35840),
    (Variant.P2, 2): (128, 0, 32768), (Variant.P2, 4): (128, 0, 32768),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "depth"), DEPTHS)
def test_other_depths(variant: Variant, depth: int) -> None:
    found = counted(variant, depth, 8)
    assert tuple(found[n] for n in ("axis", "fills", "copies")) == DEPTHS[variant, depth]


def test_the_example(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It says of each of its numbers that the formula has the same; the launches were made."""
    main = EXAMPLE["main"]
    known = {SCHEMES[variant]: in_the_example(variant) for variant in Variant}
    monkeypatch.setitem(main.__globals__, "count", lambda spec: known[spec.scheme])
    main()
    lines = capsys.readouterr().out.splitlines()
    rows = {words[0]: words[1:] for words in map(str.split, lines[1:6])}
    for variant, (axis, uniform, fills, size, copies, masked) in TABLE.items():
        expected = [axis, uniform, fills, size, copies, masked]
        assert rows[variant.value] == [*map(str, expected), "equal"]
    assert lines[6:] == ["U0 -> P2: 272 times fewer tests, 5.9 % fewer copies, no fills"]

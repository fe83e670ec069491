"""What peeling saves: executions counted by the simulator beside the formulas.

c = a @ b with M = N = 128 and K = 1000 in f16, one CTA of 128 threads, three slots of 32 columns.
U0 and U1 have one loop over all tiles with a test at each copy (U0 stores zeros first, the copies
of U1 fill with zeros themselves).  P0, P1 and P2 load the residue tile first, alone with a test: P0
stores zeros, P1 tests for each vector and P2 once a thread.
"""

from __future__ import annotations

import numpy as np

import ptxsim
from lowering.circular import Matmul, lower_matmul
from lowering.circular.cost import SCHEMES, Problem, Variant, cost, measured

COLUMNS = ("axis", "uniform", "fills", "fill_bytes", "copies", "masked")


def product(variant: Variant) -> Matmul:
    """P0 has one test in each iteration, as many as its K says; the others are given K."""
    static = variant is Variant.P0
    return Matmul(
        128, 128, 1000, layout="NT", symbolic=frozenset("" if static else "k"),
        multiples={"k": 8}, scheme=SCHEMES[variant],
    )  # fmt: skip


def count(spec: Matmul) -> dict[str, int]:
    """The executions of one launch, whose result must be that of NumPy."""
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, (128, 1000)).astype(np.float16) for _ in "ab")
    c = np.zeros((128, 128), np.float32)
    lowered = lower_matmul(spec)
    report = ptxsim.assemble(lowered.text()).kernel("matmul").launch(
        grid=1, block=lowered.program.block, smem=lowered.kernel.dynamic_shared,
        args=[a, b, c, *map(np.uint32, lowered.sizes.values())], tools="advice",
    )  # fmt: skip
    # sums of small integers are exact in any order
    assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)
    return measured(report.counters)


def main() -> None:
    """Print the table, and whether the formulas say the same."""
    print("  ", *(name.replace("_", " ").rjust(10) for name in COLUMNS))
    found = {}
    for variant in Variant:
        static = variant is Variant.P0
        problem = Problem(128, 128, 1000, 32, 3, 8, static_k=static, static_mn=True)
        expected = cost(variant, problem)
        counts = found[variant] = count(product(variant))
        same = all(counts[name] == getattr(expected, name) for name in counts)
        row = (str(counts[name]).rjust(10) for name in COLUMNS)
        print(variant.value, *row, "equal" if same else "DIFFERENT")
    first, last = found[Variant.U0], found[Variant.P2]
    fewer = 100 * (1 - last["copies"] / first["copies"])
    fills = last["fills"] or "no"
    print(
        f"U0 -> P2: {first['axis'] // last['axis']} times fewer tests, {fewer:.1f} % fewer copies,"
        f" {fills} fills"
    )


if __name__ == "__main__":
    main()

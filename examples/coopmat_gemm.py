"""A tiled product of 64 x 64 x 64 over four warps, from the IR of cooperative matrices.

``coopmat_gemm_f16.coop`` and ``coopmat_gemm_s8.coop`` are lowered twice, to wmma and to ldmatrix
with mma.sync; both give the same bits, and the oracle, which knows no PTX, agrees: exactly for
integers, within the bound of any order of additions for floats.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowering.coopmat import Kernel, evaluate, lower_coopmat, parse

HERE = Path(__file__).parent
N = 64


def run(kernel: Kernel, via: str, a: NDArray[Any], b: NDArray[Any], d: NDArray[Any]) -> None:
    """Lower the kernel and launch it; every buffer is passed with its length."""
    lowered = lower_coopmat(kernel, target="sm_90", via=via)
    arguments = [x for array in (a, b, d) for x in (array, np.uint32(array.size))]
    report = lowered.kernel.assemble().kernel().launch(grid=1, block=128, args=arguments)
    report.raise_for_findings()
    tests, proved = len(lowered.planted), sum(len(x.proved) for x in lowered.accesses)
    print(f"{kernel.name} by {via}: {tests} tests at run time, {proved} proved needless")


def main() -> None:
    """Both kernels, both ways."""
    rng = np.random.default_rng(0)
    for name, dtype, result in (("f16", np.float16, np.float32), ("s8", np.int8, np.int32)):
        kernel = parse((HERE / f"coopmat_gemm_{name}.coop").read_text())
        a, b = (
            (rng.integers(-128, 128, (N, N)) / (1 if name == "s8" else 64)).astype(dtype)
            for _ in "ab"
        )
        d = {via: np.zeros((N, N), result) for via in ("wmma", "mma")}
        for via, array in d.items():
            run(kernel, via, a, b, array)  # b holds the columns of B one after the other
        assert (d["wmma"].view(np.uint32) == d["mma"].view(np.uint32)).all()
        exact = evaluate(
            kernel, {"a": a.ravel(), "b": b.ravel(), "d": np.zeros(N * N, result)}
        ).buffers["d"]
        if name == "s8":
            assert (exact == d["wmma"].reshape(-1)).all()
            assert (d["wmma"] == a.astype(np.int32) @ b.astype(np.int32).T).all()
        else:
            assert exact.holds(d["wmma"].reshape(-1)).all()
        print(f"{kernel.name}: both agree with each other and with the oracle")


if __name__ == "__main__":
    main()

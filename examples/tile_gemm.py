"""A tile kernel made of lowered copies: global to shared, ldmatrix, mma, stmatrix, back to global.

D = A * B for one warp with A of 64 x 64, B of 64 x 32, all f16 and row-major.  The shared tiles are
padded by eight elements a row, so that no bank conflict is left; the copies are chosen and proved
by ``lowering``.  Each prints what was chosen.
"""

from __future__ import annotations

import numpy as np

from lowering import lower_copy, lower_memory_copy
from lowering.copy import MemoryPlan, Plan
from ptxsim.build import Address, Kernel, Register, Special

M, N, K, PAD = 64, 32, 64, 8


def fragment(register: str, shared: str, direction: str) -> Plan:
    """A proved copy between a fragment and its shared tile, by ldmatrix or stmatrix."""
    lowered = lower_copy(register, shared, direction=direction, variant="ldstmatrix")
    assert lowered.proof is not None
    moves, ways = lowered.plan.moves, lowered.proof.ways
    print(f"{len(moves):2} x {moves[0].opcode}, {sum(w for w, _ in ways)} wavefronts")
    return lowered.plan


def staging(rows: int, columns: int, direction: str) -> MemoryPlan:
    """A proved copy of a row-major tile between global memory and padded shared memory."""
    plan = lower_memory_copy(
        f"S[({rows},{columns}):({columns},1)]", f"S[({rows},{columns}):({columns + PAD},1)]",
        direction=direction, target="sm_90", threads=32,
    ).plan  # fmt: skip
    print(f"{len(plan.rounds):2} x {plan.variant} of {plan.chunk} bytes a thread")
    return plan


def build() -> Kernel:
    """The kernel: parameters a, b, d."""
    k = Kernel("tile_gemm", target="sm_90", header=["launch: grid=1 block=32"])
    pointers = {name: k.parameter(name, "u64") for name in "abd"}
    tiles = {
        name: k.shared(f"{name}_tile", 2 * rows * (columns + PAD), 128)
        for name, rows, columns in (("a", M, K), ("b", K, N), ("d", M, N))
    }
    lane = k.new("mov.u32", "b32", Special("%tid.x"))
    at = {name: k.new("ld.param.u64", "b64", Address(p)) for name, p in pointers.items()}
    base = {name: k.new("mov.u32", "b32", tile) for name, tile in tiles.items()}

    k.comment("A and B to shared memory")
    staging(M, K, "g2s").emit(k, lane, base["a"], at["a"])
    staging(K, N, "g2s").emit(k, lane, base["b"], at["b"])
    k.emit("cp.async.wait_all")
    k.emit("bar.sync", 0)

    k.comment("fragments of A and B")
    # element (m, k) of A: tile of 16 x 16, half of 8 rows and of 8 columns, lane, pair
    a = fragment(
        f"S[({M // 16},2,8,{K // 16},2,4,2):({K // 2},2,4@laneid,8,4,1@laneid,1)]",
        f"S[({M},{K}):({K + PAD},1)]", "ld",
    )  # fmt: skip
    # element (k, n) of B: tile of 16 x 8, half of 8 rows, lane, pair; then column
    b = fragment(
        f"S[({K // 16},2,4,2,{N // 8},8):({N // 2},2,1@laneid,1,4,4@laneid)]",
        f"S[({K},{N}):({N + PAD},1)]", "ld",
    )  # fmt: skip
    words_a = k.registers("b32", a.placement.words)
    words_b = k.registers("b32", b.placement.words)
    a.emit(k, lane, base["a"], words_a)
    b.emit(k, lane, base["b"], words_b)

    k.comment("D = A * B")
    words_d = []
    for row in range(M // 16):
        for column in range(N // 8):
            words_d += product(k, row, column, words_a, words_b)

    k.comment("D to shared memory and to global memory")
    d = fragment(
        f"S[({M // 16},2,8,{N // 8},4,2):({N // 2},2,4@laneid,4,1@laneid,1)]",
        f"S[({M},{N}):({N + PAD},1)]", "st",
    )  # fmt: skip
    d.emit(k, lane, base["d"], words_d)
    k.emit("bar.sync", 0)
    staging(M, N, "s2g").emit(k, lane, base["d"], at["d"])
    return k


def product(
    k: Kernel, row: int, column: int, a: tuple[Register, ...], b: tuple[Register, ...]
) -> list[Register]:
    """One 16 x 8 tile of D as two registers of f16 pairs."""
    total = tuple(k.new("mov.f32", "f32", 0.0) for _ in range(4))
    for step in range(K // 16):
        first = (row * (K // 16) + step) * 4
        second = (step * (N // 8) + column) * 2
        k.emit(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
            total, a[first : first + 4], b[second : second + 2], total,
        )  # fmt: skip
    return [k.new("cvt.rn.f16x2.f32", "b32", total[i + 1], total[i]) for i in (0, 2)]


def main() -> None:
    """Build, run, compare with NumPy."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((M, K), (K, N)))
    d = np.zeros((M, N), np.float16)
    report = build().assemble().kernel().launch(grid=1, block=32, args=[a, b, d])
    report.raise_for_findings()
    print("equal" if np.array_equal(d, (a.astype(int) @ b).astype(np.float16)) else "different")


if __name__ == "__main__":
    main()

"""The speed of one matrix instruction, in units of a NumPy addition over as many products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ptxsim

from .cases import KERNELS

__all__ = ["AIM_US", "INSTRUCTIONS", "Instruction", "Timed", "launch", "time_instruction"]

#: Warps at the instruction at a time: 128 CTAs of 8 in one wave.
WARPS, CTAS = 1024, 128
#: Instructions of one turn of the kernels' loop.
PER_TURN = 4
#: Microseconds per tile to be at or below.  MMA-Sim 2.1.1, a bit-exact model in NumPy, takes about
#: 0.26 ms for a tile of m16n8k16 in batches; this is a fifth of it.
AIM_US = 260 / 5

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Instruction:
    """A matrix instruction: its entry, the products of a tile, the ratio to stay below."""

    name: str
    entry: str
    products: int
    bound: float
    fragments: Callable[[np.random.Generator], Array]
    result: type


@dataclass(frozen=True, slots=True)
class Timed:
    """Times of one instruction and of ``numpy.add`` over an int64 for each of its products."""

    name: str
    milliseconds: float
    add_milliseconds: float
    bound: float

    @property
    def ratio(self) -> float:
        """The instruction's time in additions."""
        return self.milliseconds / self.add_milliseconds

    @property
    def us_per_tile(self) -> float:
        """Microseconds for the tile of one warp."""
        return self.milliseconds * 1000 / WARPS


def _f16(rng: np.random.Generator) -> Array:
    return rng.standard_normal(WARPS * 32 * 16).astype(np.float16)


def _s8(rng: np.random.Generator) -> Array:
    return rng.integers(-128, 128, WARPS * 32 * 32).astype(np.int8)


INSTRUCTIONS = (
    Instruction("m16n8k16 f16->f32", "mma_f16", 16 * 8 * 16, 30, _f16, np.float32),
    Instruction("m16n8k32 s8->s32", "mma_s8", 16 * 8 * 32, 10, _s8, np.int32),
)


def launch(kernel: ptxsim.Kernel, instruction: Instruction, turns: int) -> float:
    """Seconds of a launch of all warps in one wave with ``turns`` turns of the loop."""
    fragments = instruction.fragments(np.random.default_rng(0))
    out = ptxsim.undefined(WARPS * 32 * 4, instruction.result)
    start = perf_counter()
    report = kernel.launch(
        grid=CTAS, block=WARPS // CTAS * 32, args=[fragments, out, np.uint32(turns)],
        wave_ctas=CTAS,
    )  # fmt: skip
    seconds = perf_counter() - start
    report.raise_for_findings()
    return seconds


def time_instruction(instruction: Instruction, repeat: int, turns: int = 5) -> Timed:
    """Time an instruction: what ``turns`` turns take beyond one, shared among their instructions.

    Launches and additions alternate, so that both see the same machine; the best of each counts.
    """
    kernel = ptxsim.assemble(KERNELS / "tensor_unit.ptx")[instruction.entry]
    x, y = np.random.default_rng(1).integers(0, 1 << 40, (2, WARPS, instruction.products))
    out = np.empty_like(x)
    launch(kernel, instruction, 1)
    few, many, adds = [], [], []
    for _ in range(repeat):
        few.append(launch(kernel, instruction, 1))
        many.append(launch(kernel, instruction, 1 + turns))
        for _ in range(5):
            start = perf_counter()
            np.add(x, y, out=out)
            adds.append(perf_counter() - start)
    seconds = (min(many) - min(few)) / (turns * PER_TURN)
    return Timed(instruction.name, 1000 * seconds, 1000 * min(adds), instruction.bound)

"""The two sides of a comparison: the simulator, which also says where results come from, and a GPU.

A side is a function of a kernel, its arguments and the shape of the launch that changes the arrays
among the arguments in place, as :meth:`ptxsim.Kernel.launch` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api import Kernel
from ..machine.watch import Watch
from ..machine.wave import Geometry
from ..report import Report
from .taint import Source, approximate_sources, spot_of, spread
from .writers import Spot, Writers

__all__ = ["Backend", "Provenance", "Shape", "gpu", "simulate", "simulator"]

Dimensions = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a launch, and what else both sides must know of it."""

    grid: Dimensions
    block: Dimensions
    cluster: Dimensions | None = None
    smem: int = 0
    #: for the simulator: its tools, schedule and limits, as ``Kernel.launch`` names them
    options: dict[str, Any] = field(default_factory=dict)
    #: for a GPU: what else its launch is given
    device: dict[str, Any] = field(default_factory=dict)

    @property
    def threads(self) -> int:
        """Threads of the grid."""
        x, y, z = (g * b for g, b in zip(self.grid, self.block, strict=True))
        return x * y * z


Backend = Callable[[Kernel, Sequence[Any], Shape], Report]


def gpu(kernel: Kernel, args: Sequence[Any], shape: Shape) -> Report:
    """Launch on the GPU."""
    return kernel.launch(
        grid=shape.grid, block=shape.block, args=args, cluster=shape.cluster, smem=shape.smem,
        backend="gpu", **shape.device,
    )  # fmt: skip


def simulator(kernel: Kernel, args: Sequence[Any], shape: Shape) -> Report:
    """Launch on the simulator."""
    return kernel.launch(
        grid=shape.grid, block=shape.block, args=args, cluster=shape.cluster, smem=shape.smem,
        **shape.options,
    )  # fmt: skip


class Provenance:
    """Of each byte that a launch stored: by which instruction, and what approximations reach it."""

    def __init__(self, kernel: Kernel, writers: Writers) -> None:
        module = kernel.module.typed
        self._writers = writers
        self.sources = approximate_sources(module, kernel.name)
        bits: dict[Spot, int] = {}
        for n, source in enumerate(self.sources):
            bits[source.spot] = bits.get(source.spot, 0) | 1 << n
        self._masks = spread(module, kernel.name, bits, writers.fed) if bits else {}
        self._rounding = 0
        for f in module.functions.values():
            for i in f.instructions or ():
                if spot_of(i) not in bits and i.mods.get("type", "").startswith(("f", "bf")):
                    if i.record.name not in ("mov", "ld", "st", "selp", "shfl"):
                        self._rounding |= self._masks.get(spot_of(i), 0)

    def writer(self, buffer: str, size: int, at: int, width: int) -> tuple[Spot | None, int]:
        """The instruction that stored the element of ``width`` bytes at ``at``, and its thread."""
        written = self._writers.buffer(buffer, size)
        if written is None:
            return None, -1
        spots = written.spot[at : at + width]
        if not (spots >= 0).any():
            return None, -1
        first = int(np.flatnonzero(spots >= 0)[0])
        return self._writers.spots[spots[first]], int(written.thread[at + first])

    def spots(self, buffer: str, size: int) -> set[Spot]:
        """The instructions that stored something that is in a buffer at the end."""
        written = self._writers.buffer(buffer, size)
        numbers = np.unique(written.spot) if written is not None else np.zeros(0, int)
        return {self._writers.spots[n] for n in numbers.tolist() if n >= 0}

    def masks(self, buffer: str, size: int, elements: NDArray[np.int64], width: int) -> list[int]:
        """For each of the elements the approximate sources that reach it, as bits."""
        written = self._writers.buffer(buffer, size)
        if written is None or not self._masks:
            return [0] * len(elements)
        table = [*(self._masks.get(spot, 0) for spot in self._writers.spots), 0]
        rows = written.spot.reshape(-1, width)[elements]
        kinds, which = np.unique(rows, axis=0, return_inverse=True)
        found = []
        for kind in kinds:
            mask = 0
            for spot in kind:
                mask |= table[spot]
            found.append(mask)
        return [found[k] for k in which.reshape(-1)]

    def reached_by(self, mask: int) -> tuple[Source, ...]:
        """The sources of a mask."""
        return tuple(s for n, s in enumerate(self.sources) if mask >> n & 1)

    def rounds(self, mask: int) -> bool:
        """Whether arithmetic that rounds lies between these sources and what is stored."""
        return bool(self._rounding & mask)

    def mask_of(self, spot: Spot) -> int:
        """The sources that reach what an instruction writes."""
        return self._masks.get(spot, 0)

    @property
    def fed(self) -> set[tuple[Spot, Spot]]:
        """Pairs of instructions between which a value went through memory."""
        return self._writers.fed


class _Watched(Kernel):
    """A kernel whose launch one more check listens to."""

    def __init__(self, kernel: Kernel, watch: Watch) -> None:
        super().__init__(kernel.module, kernel._function)
        self._watch = watch

    def _checks(self, chosen: set[str], args: Sequence[Any], geometry: Geometry) -> list[Watch]:
        return [*super()._checks(chosen, args, geometry), self._watch]


def simulate(kernel: Kernel, args: Sequence[Any], shape: Shape) -> tuple[Report, Provenance]:
    """Launch on the simulator; where each stored byte comes from."""
    writers = Writers()
    report = simulator(_Watched(kernel, writers), args, shape)
    return report, Provenance(kernel, writers)

"""Two launches of a text that stores registers, and how to judge what they stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api import Kernel, assemble
from ..diagnostics import Severity
from ..errors import UsageError
from ..resolve.typed import Register
from .backends import Backend, Shape, simulate, simulator
from .taint import outside_sources, spot_of, spread
from .values import TOLERANT, close
from .writers import Spot

__all__ = ["LIMIT", "Judge", "MakeArguments", "Records", "run_pair"]

Array = NDArray[Any]
#: Fresh arguments for one launch: arrays are changed in place.
MakeArguments = Callable[[], Sequence[Any]]
#: Bytes that the records of all threads may take.
LIMIT = 64 << 20


@dataclass(frozen=True, slots=True)
class Records:
    """What both sides stored: one row a thread.  ``undefined`` are lines that stored what is not
    defined, which no machine needs to share."""

    simulator: Array
    device: Array
    undefined: frozenset[int]


def run_pair(
    kernel: Kernel, text: str, stride: int, make: MakeArguments, shape: Shape, backend: Backend
) -> Records:
    """Launch a text that stores ``stride`` bytes for each thread, on both sides."""
    if shape.threads * stride > LIMIT:
        raise UsageError(
            f"{shape.threads} threads with {stride} bytes of registers each are more than"
            f" {LIMIT >> 20} MiB: launch fewer"
        )
    other = assemble(text, kernel.module.target, kernel.source.name).kernel(kernel.name)
    # all other findings are those of the kernel as it was
    quiet = replace(shape, options={**shape.options, "tools": "initcheck"})
    out, undefined = [], frozenset[int]()
    for side in (simulator, backend):
        log = np.zeros(shape.threads * stride, np.uint8)
        report = side(other, [*make(), log], quiet)
        errors = [f for f in report.findings if f.severity is Severity.ERROR]
        vague = [f for f in errors if side is simulator and f.class_ == "uninit-register"]
        if len(vague) < len(errors) or report.stopped:
            first = next((f.message for f in errors if f not in vague), "it was stopped")
            raise UsageError(f"the launch that stores registers failed: {first}")
        undefined |= {f.line for f in vague}
        out.append(log.reshape(shape.threads, stride))
    return Records(out[0], out[1], undefined)


class Judge:
    """Which registers two correct machines must agree on, and how closely."""

    def __init__(self, kernel: Kernel, make: MakeArguments, shape: Shape) -> None:
        args = make()
        self.report, self.provenance = simulate(kernel, args, shape)
        pointers = frozenset(
            p.name for p, a in zip(kernel.params, args, strict=True)
            if isinstance(a, np.ndarray) and a.shape
        )  # fmt: skip
        module = kernel.module.typed
        fixed = dict.fromkeys(outside_sources(module, kernel.name, pointers, orders=False), 1)
        self._places = spread(module, kernel.name, fixed, self.provenance.fed)
        outside = dict.fromkeys(outside_sources(module, kernel.name, pointers), 1)
        self._outside = spread(module, kernel.name, outside, self.provenance.fed)
        #: whether which way a thread goes may depend on what machines need not agree on
        self.ways_open = any(
            self._outside.get(spot, 0) or self.provenance.mask_of(spot)
            for spot in _choices(kernel)
        )  # fmt: skip

    def holds_outside(self, buffer: str, size: int) -> bool:
        """Whether a buffer holds addresses, clocks or places of threads, or what comes of them."""
        return any(self._places.get(spot, 0) for spot in self.provenance.spots(buffer, size))

    def comparable(self, register: Register, spots: Sequence[Spot]) -> bool:
        """Whether a register, as these instructions write it, must agree at all."""
        if any(self._outside.get(spot, 0) for spot in spots):
            return False
        tainted = any(self.provenance.mask_of(spot) for spot in spots)
        return register.type.name in TOLERANT or not tainted

    def agree(self, a: Array, b: Array, register: Register, spots: Sequence[Spot]) -> Array:
        """Whether values (uint64 pairs, last axis) of a comparable register agree."""
        equal: Array = (a == b).all(axis=-1)
        mask = 0
        for spot in spots:
            mask |= self.provenance.mask_of(spot)
        if not mask or equal.all():
            return equal
        sources = self.provenance.reached_by(mask)
        rounds = self.provenance.rounds(mask)
        return equal | close(a[..., 0], b[..., 0], register.type.name, sources, rounds)


def _choices(kernel: Kernel) -> list[Spot]:
    """The instructions that write predicates, or indices of branches."""
    module = kernel.module.typed
    found = []
    for f in module.functions.values():
        for i in f.instructions or ():
            for spec in i.form.operands:
                value = i.operands.get(spec.name)
                if spec.written and isinstance(value, Register) and value.type.kind == "p":
                    found.append(spot_of(i))
            if i.record.name in ("brx.idx", "brx"):
                found.append(spot_of(i))
    return found

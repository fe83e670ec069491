"""All registers of all threads at a line, or at the end, compared between the two sides."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from ..api import Kernel
from ..program.binder import registers_of
from ..resolve.typed import CallOperand, Register, TypedFunction
from .backends import Backend, Shape
from .instrument import HEAD, SLOT, dumped
from .pair import Judge, MakeArguments, run_pair
from .taint import spot_of
from .writers import Spot

__all__ = ["StateDifference", "compare_states"]


@dataclass(frozen=True, slots=True)
class StateDifference:
    """A register that differs: in how many threads, and in the first of them.

    ``register`` is empty where a thread came to the place more often on one side.
    """

    register: str
    count: int
    thread: int
    simulator: int
    device: int


def compare_states(
    kernel: Kernel,
    make: MakeArguments,
    shape: Shape,
    backend: Backend,
    line: int | None = None,
) -> list[StateDifference]:
    """The registers that differ before a line is executed the last time, or at the end if None."""
    judge = Judge(kernel, make, shape)
    dump = dumped(kernel.module.typed, kernel.name, line)
    pair = run_pair(kernel, dump.text, dump.stride, make, shape, backend)
    a, b = pair.simulator, pair.device
    found = []
    counts, others = (side[:, :4].copy().view(np.uint32)[:, 0] for side in (a, b))
    different = counts != others
    if different.any() and not judge.ways_open:
        first = int(different.argmax())
        found.append(
            StateDifference("", int(different.sum()), first, int(counts[first]), int(others[first]))
        )
    writers = _writers(kernel.module.typed.functions[kernel.name])
    for n, register in enumerate(dump.registers):
        spots = writers[register.index]
        if not judge.comparable(register, spots):
            continue
        part = slice(HEAD + SLOT * n, HEAD + SLOT * (n + 1))
        x, y = (side[:, part].copy().view(np.uint64) for side in (a, b))
        wrong = ~judge.agree(x, y, register, spots) & ~different
        if wrong.any():
            first = int(wrong.argmax())
            values = [int(v[first, 0]) | int(v[first, 1]) << 64 for v in (x, y)]
            found.append(StateDifference(register.name, int(wrong.sum()), first, *values))
    return found


def _writers(function: TypedFunction) -> dict[int, list[Spot]]:
    found: dict[int, list[Spot]] = defaultdict(list)
    for i in function.instructions or ():
        for spec in i.form.operands:
            value = i.operands.get(spec.name)
            if isinstance(value, CallOperand):
                for r in value.results:
                    if isinstance(r, Register):
                        found[r.index].append(spot_of(i))
            elif spec.written:
                for register in registers_of(value):
                    found[register].append(spot_of(i))
    return found

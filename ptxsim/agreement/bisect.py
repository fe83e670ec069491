"""The first instruction, in the order in which a thread runs, whose result differs.

Nothing has to be searched for: each thread writes down the results of its instructions one after
the other, on both sides, and the traces are compared.  A long run is looked at window by window.
Results that correct machines need not share are left out: addresses, clocks, what depends on the
order of threads, undefined bits, and integers that approximate instructions have led to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..api import Kernel
from ..errors import UsageError
from ..resolve.typed import Register
from .backends import Backend, Shape
from .instrument import ENTRY, HEAD, Point, Traced, traced
from .pair import LIMIT, Array, Judge, MakeArguments, Records, run_pair
from .taint import spot_of

__all__ = ["Parting", "first_parting"]

#: Windows that are looked at before a run is given up.
MAX_WINDOWS = 64


@dataclass(frozen=True, slots=True)
class Parting:
    """Where the two sides part: the instruction and register, the thread, and both values.

    ``register`` is None where a thread goes another way: then the instruction is the last one that
    both have executed (line 0 if there is none).
    """

    line: int
    column: int
    text: str
    register: Register | None
    thread: int
    step: int
    simulator: int
    device: int


def first_parting(
    kernel: Kernel,
    make: MakeArguments,
    shape: Shape,
    backend: Backend,
    *,
    capacity: int | None = None,
) -> Parting | None:
    """Where the simulator and another side part first, None if they never do.

    Of threads that part after as many steps the one with the lowest number is named.
    """
    judge = Judge(kernel, make, shape)
    most = (LIMIT // shape.threads - HEAD) // ENTRY
    if most < 1:
        raise UsageError(f"{shape.threads} threads are too many to follow: launch fewer")
    capacity = min(most, capacity or 4096)
    lost = np.zeros(shape.threads, bool)
    for window in range(MAX_WINDOWS):
        start = window * capacity
        trace = traced(kernel.module.typed, kernel.name, start, capacity)
        pair = run_pair(kernel, trace.text, trace.stride, make, shape, backend)
        found = _compare(trace, pair, judge, lost, start)
        if found is not None:
            return found
        longest = max(
            int(side[:, :4].copy().view(np.uint32).max()) for side in (pair.simulator, pair.device)
        )
        if longest <= start + capacity:
            return None
    raise UsageError(f"no difference in the first {MAX_WINDOWS * capacity} results of each thread")


def _compare(trace: Traced, pair: Records, judge: Judge, lost: Array, start: int) -> Parting | None:
    shape = (len(pair.simulator), trace.capacity, ENTRY // 8)
    a, b = (
        side[:, HEAD:].copy().view(np.uint64).reshape(shape)
        for side in (pair.simulator, pair.device)
    )
    ids, others = a[..., 0] & 0xFFFFFFFF, b[..., 0] & 0xFFFFFFFF
    apart = ids != others
    differs = np.zeros(apart.shape, bool)
    for number, point in enumerate(trace.points, 1):
        spots = (spot_of(point.instruction),)
        if spots[0][0] in pair.undefined or not judge.comparable(point.register, spots):
            continue
        here = np.nonzero((ids == number) & ~apart)
        if len(here[0]):
            x, y = a[..., 2:][here], b[..., 2:][here]
            differs[here] = ~judge.agree(x, y, point.register, spots)
    # behind a step at which a thread goes another way its traces cannot be compared
    first_apart = np.where(apart.any(1), apart.argmax(1), trace.capacity)
    differs &= np.arange(trace.capacity) < first_apart[:, None]
    if not judge.ways_open:
        rows = np.flatnonzero(first_apart < trace.capacity)
        differs[rows, first_apart[rows]] = True
    differs[lost] = False
    lost |= first_apart < trace.capacity
    if not differs.any():
        return None
    steps = np.where(differs.any(1), differs.argmax(1), trace.capacity)
    thread = int(steps.argmin())
    step = int(steps[thread])
    number = int(ids[thread, step])
    if apart[thread, step]:
        before = int(ids[thread, step - 1]) if step else 0
        return _parting(
            trace, before, None, thread, start + step, number, int(others[thread, step])
        )
    point = trace.points[number - 1]
    values = [int(side[thread, step, 2]) | int(side[thread, step, 3]) << 64 for side in (a, b)]
    return _parting(trace, number, point.register, thread, start + step, *values)


def _parting(
    trace: Traced,
    number: int,
    register: Register | None,
    thread: int,
    step: int,
    simulator: int,
    device: int,
) -> Parting:
    if number == 0:
        return Parting(0, 0, "", None, thread, step, simulator, device)
    point: Point = trace.points[number - 1]
    line, column = spot_of(point.instruction)
    return Parting(line, column, point.instruction.text, register, thread, step, simulator, device)

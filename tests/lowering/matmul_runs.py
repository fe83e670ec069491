"""Lowered matrix products on the simulator, beside what the oracle says of the same data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ptxsim
from lowering.circular import DTYPES, Lowered, Matmul, lower_matmul, schedule
from lowering.circular.integers import evaluate as value_of
from lowering.circular.matmul import width
from lowering.circular.oracle import evaluate, visits
from lowering.circular.tensors import Tensor
from ptxsim.diagnostics import Severity

__all__ = ["TILES", "Bits", "Run", "elements", "expected", "operands", "run"]

Bits = NDArray[Any]

#: What lies where no element does: NaN, or the most negative byte.
POISON = {"f16": 0x7E01, "bf16": 0x7FC1, "tf32": 0x7FC00001, "f32": 0x7FC00001, "s8": 0x80}
CARRIERS = {
    "f16": np.uint16,
    "bf16": np.uint16,
    "tf32": np.uint32,
    "f32": np.uint32,
    "s8": np.uint8,
}
#: Marks what a kernel must leave alone in its output.
UNTOUCHED = 0xA5A5A5A5
#: Tiles of a few instructions, with two warps along M and two along N.
TILES = {
    "f16": (32, 32, 16), "bf16": (32, 32, 16), "tf32": (32, 32, 16), "f32": (32, 32, 16),
    "s8": (32, 32, 32),
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """A launch: what it reported, its result, and the result of the oracle."""

    lowered: Lowered
    report: ptxsim.Report
    result: Bits
    expected: Bits

    @property
    def equal(self) -> bool:
        """Whether the result is that of the oracle, bit for bit, and nothing else was written."""
        return np.array_equal(self.result, self.expected)

    @property
    def faults(self) -> list[str]:
        """What is wrong: nothing, for a kernel that is right."""
        found = [f.class_ for f in self.report.findings if f.severity is not Severity.ADVICE]
        return found if self.equal else [*found, "another result"]


def run(
    spec: Matmul, seed: int = 1, *, schedule: str = "default", tools: str = "all", slack: int = 0,
    lowered: Lowered | None = None, change: Callable[[str], str] = str,
) -> Run:  # fmt: skip
    """Launch a product once on random operands, with ``slack`` elements of poison behind them.

    ``lowered`` is a kernel for sizes other than those of the launch; ``change`` edits its text.
    """
    lowered = lowered or lower_matmul(spec)
    arrays = operands(spec, seed, slack)
    result = np.full(_span(spec, "c"), UNTOUCHED, np.uint32)
    kernel = ptxsim.assemble(change(lowered.text())).kernel("matmul")
    sizes = {name: spec.number(name.lower()) for name in lowered.program.sizes}
    report = kernel.launch(
        grid=[value_of(count, sizes) for count in lowered.program.grid],
        block=lowered.program.block,
        args=[arrays["a"], arrays["b"], result, *map(np.uint32, sizes.values())],
        smem=lowered.kernel.dynamic_shared, tools=tools, schedule=schedule,
    )  # fmt: skip
    return Run(lowered, report, result, expected(spec, arrays))


def operands(spec: Matmul, seed: int, slack: int = 0) -> dict[str, Bits]:
    """Random elements, and poison between them and behind the last one."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for operand in "ab":
        carrier = CARRIERS[spec.dtype]
        flat = np.full(_span(spec, operand) + slack, POISON[spec.dtype], carrier)
        places = _places(spec, operand)
        flat[places] = elements(spec.dtype, rng, places.shape)
        arrays[operand] = flat
    return arrays


def elements(dtype: str, rng: np.random.Generator, shape: Sequence[int]) -> Bits:
    """Normally distributed numbers, or all bytes alike, as bits."""
    if dtype == "s8":
        return rng.integers(0, 256, shape).astype(np.uint8)
    values = rng.standard_normal(shape).astype(np.float32)
    if dtype == "f16":
        return values.astype(np.float16).view(np.uint16)
    bits = values.view(np.uint32)
    return (bits >> 16).astype(np.uint16) if dtype == "bf16" else bits


def expected(spec: Matmul, arrays: dict[str, Bits]) -> Bits:
    """The buffer ``c`` as the oracle leaves it."""
    vector = max(width(spec, "a"), width(spec, "b"), 1)

    def order(extent: int) -> list[int]:
        return visits(extent, spec.tile[2], spec.scheme.peel, vector)

    fusion = schedule(spec)
    target = int("".join(c for c in spec.target if c.isdigit()))
    found = evaluate(fusion, arrays, _sizes(spec), order, target)["c"]
    flat = np.full(_span(spec, "c"), UNTOUCHED, np.uint32)
    flat[_places(spec, "c")] = found.view(np.uint32)
    return flat


def _sizes(spec: Matmul) -> dict[str, int]:
    return {letter.upper(): spec.number(letter) for letter in spec.symbolic}


def _tensor(spec: Matmul, operand: str) -> Tensor:
    return next(t for t in schedule(spec).tensors if t.name == operand)


def _places(spec: Matmul, operand: str) -> NDArray[np.int64]:
    """Where the elements of a buffer lie, over its axes."""
    t, sizes = _tensor(spec, operand), _sizes(spec)
    extents = [value_of(axis.extent, sizes) for axis in t.roots]
    places = np.zeros(extents, np.int64)
    for axis, (extent, stride) in enumerate(zip(extents, t.strides, strict=True)):
        shape = [extent if i == axis else 1 for i in range(len(extents))]
        places += np.arange(extent).reshape(shape) * value_of(stride, sizes)
    return places


def _span(spec: Matmul, operand: str) -> int:
    places = _places(spec, operand)
    return int(places.max()) + 1 if places.size else 1


# a type whose accumulator is not four bytes would need another carrier of results
assert {kept for _, kept, _ in DTYPES.values()} == {"f32", "s32"}

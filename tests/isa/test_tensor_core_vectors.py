"""mma.sync and wmma through real PTX against the tensor-core test vectors, bit for bit.

The file has 77 248 expected elements of D. The 56 256 of mma.sync and wmma.mma are run here, on
every architecture that the file names for them; wgmma and tcgen05 need other kernels.  The default
run takes one matrix per instruction and architecture, and every probe.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
import tensor_core_kernels
from numpy.typing import NDArray
from tensor_core_kernels import Options, accumulator_elements, factor_elements, multiply, scatter

from tests.numerics.tensor_core_model import parse
from tests.numerics.tensor_core_vectors import Matrix, Probe, matrices, outputs, probes, targets

FAMILIES = ("mma.sync.", "wmma.mma.")
PLAIN_K = {"f16": 8, "bf16": 8, "tf32": 4, "e4m3": 32, "e5m2": 32, "f64": 4}
FREE_LAYOUTS = [(a, b) for a in ("row", "col") for b in ("row", "col")]


@dataclass(frozen=True, slots=True)
class Case:
    """One instruction on one architecture, with all its matrices and the D expected of each."""

    op: str
    architecture: str
    satfinite: bool
    bit_operation: str
    entries: tuple[tuple[Matrix, NDArray[np.uint64]], ...]

    @property
    def name(self) -> str:
        """The id of the test."""
        tail = "-satfinite" if self.satfinite else f"-{self.bit_operation}".rstrip("-")
        return f"{self.op}-{self.architecture}{tail}"

    @property
    def layouts(self) -> list[tuple[str, str]]:
        """row.col, or every pair where the instruction has a choice."""
        free = self.op.startswith(("wmma", "mma.sync.m8n8k4")) and "f64" not in self.op
        return FREE_LAYOUTS if free else [("row", "col")]


def target_of(op: str, architecture: str) -> str:
    """The first target of the architecture; kinds need the architecture-specific one."""
    if "kind::" in op:
        return "sm_120a"
    return targets()["Ampere" if architecture == "all" else architecture]


def cases() -> list[Case]:
    """The cases of the file, in its order."""
    found = defaultdict(list)
    for m in matrices():
        if not m.op.startswith(FAMILIES):
            continue
        for result in m.results:
            expected = np.array(result.d, np.uint64)
            for architecture in result.architectures:
                key = (m.op, architecture, result.satfinite, result.bit_operation)
                found[key].append((m, expected))
    return [Case(*key, tuple(entries)) for key, entries in found.items()]


CASES = cases()


def check(
    case: Case,
    entries: tuple[tuple[Matrix, NDArray[np.uint64]], ...],
    options: Options,
) -> list[str]:
    """The matrices whose D differs, with the number of differing elements."""
    a, b, c = (np.array([getattr(m, use) for m, _ in entries], np.uint64) for use in "abc")
    scaled = bool(entries[0][0].scale_a)
    scales = [np.array([getattr(m, f"scale_{u}") for m, _ in entries], np.uint64) for u in "ab"]
    options = replace(options, satfinite=case.satfinite, bit_operation=case.bit_operation)
    d = multiply(
        case.op, target_of(case.op, case.architecture), a, b, c, options,
        *(scales if scaled else ()),
    )  # fmt: skip
    return [
        f"{m.id}: {np.count_nonzero(got != expected)} elements"
        for got, (m, expected) in zip(d, entries, strict=True)
        if (got != expected).any()
    ]


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.name for case in CASES])
def test_sample(number: int) -> None:
    case = CASES[number]
    # the modes of the inputs take turns, so do the layouts
    entry = case.entries[number % len(case.entries)]
    options = Options(case.layouts[number % len(case.layouts)])
    # five copies of a tile meet every quad pair of m8n8k4
    copies = 5 if case.op.startswith("mma.sync.m8n8k4") else 1
    assert check(case, (entry,) * copies, options) == []


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_all_matrices(case: Case) -> None:
    for layouts in case.layouts:
        assert check(case, case.entries, Options(layouts)) == []


SCALED = [case for case in CASES if case.entries[0][0].scale_a]


@pytest.mark.parametrize("case", SCALED, ids=lambda case: case.name)
def test_scales_from_other_lanes_and_bytes(case: Case) -> None:
    # byte-id: any for one scale, 0 or 2 for two, 0 for four (PTX ISA, "Block Scaling")
    bytes_ = {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)}[len(case.entries[0][0].scale_a[0])]
    for byte, (thread_a, thread_b) in product(bytes_, ((0, 1), (1, 2), (1, 3))):
        options = Options(byte=byte, thread_a=thread_a, thread_b=thread_b)
        assert check(case, case.entries, options) == []


def probe_op(probe: Probe, architecture: str) -> str:
    """The smallest mma.sync of the probe's types that holds its k indices."""
    t, c = probe.a_type, probe.c_type
    if t == "f64" or (t == "f16" and architecture == "Volta"):
        return f"mma.sync.m8n8k4.{c}.{t}.{t}.{c}"
    k = PLAIN_K[t] if probe.k <= PLAIN_K[t] else 2 * PLAIN_K[t]
    return f"mma.sync.m16n8k{k}.{c}.{t}.{t}.{c}"


def probe_groups() -> dict[tuple[str, str], list[Probe]]:
    """Probes that share a launch; those of wgmma alone are not run."""
    found = defaultdict(list)
    for probe in probes():
        for architecture in probe.d:
            if architecture != "Hopper(wgmma)":
                found[probe_op(probe, architecture), architecture].append(probe)
    return found


GROUPS = probe_groups()


@pytest.mark.parametrize(("op", "architecture"), GROUPS, ids=str)
def test_probes(op: str, architecture: str) -> None:
    group = GROUPS[op, architecture]
    m, n, k = parse(op).shape
    a, b, c = (np.zeros((len(group), *s), np.uint64) for s in ((m, k), (k, n), (m, n)))
    for number, probe in enumerate(group):
        a[number, 0], b[number, :, 0] = probe.factors(k)
        c[number, 0, 0] = probe.c
    d = multiply(op, target_of(op, architecture), a, b, c)[:, 0, 0]
    got = {probe.id: f"{int(x):x}" for probe, x in zip(group, d, strict=True)}
    assert got == {probe.id: f"{probe.d[architecture]:x}" for probe in group}


def test_outputs_that_are_run() -> None:
    run = sum(count for op, count in outputs() if op.startswith(FAMILIES))
    # the rest are wgmma (35 x 512) and tcgen05 (6 x 512) tiles
    assert run == 77_248 - 41 * 512 == 56_256
    assert {probe.id for group in GROUPS.values() for probe in group} == {p.id for p in probes()}


@pytest.mark.parametrize("op", sorted({case.op for case in CASES if case.op.startswith("mma")}))
def test_host_fragments_are_bijections(op: str) -> None:
    i = parse(op)
    m, n, k = i.shape
    for layouts in FREE_LAYOUTS:
        for elements, rows, columns in (
            (factor_elements("a", i, layouts[0]), m, k),
            (factor_elements("b", i, layouts[1]), k, n),
            (accumulator_elements(i.d_type, i), m, n),
        ):
            places = list(elements)
            products = 1 + max(e.product for e in places)
            assert len({(e.product, e.row, e.column) for e in places}) == len(places)
            assert len({(e.lane, e.register, e.offset) for e in places}) == len(places)
            assert len(places) == products * rows * columns


def test_host_fragment_of_the_commonest_shape() -> None:
    # a_i of m16n8k16: row = g + 8 * (i >> 1 & 1), k = 2t + (i & 1) + 8 * (i >> 2); lane 6 has
    # g = 1, t = 2, so its register 1 (elements 2, 3) is row 9, k 4 and 5
    i = parse("mma.sync.m16n8k16.f32.f16.f16.f32")
    tile = np.arange(256, dtype=np.uint64).reshape(1, 16, 16)
    words = scatter(list(factor_elements("a", i, "row")), tile, "f16")
    assert int(words[0, 6, 1]) == (9 * 16 + 5) << 16 | (9 * 16 + 4)


def test_the_comparison_can_fail() -> None:
    case = next(c for c in CASES if c.op == "mma.sync.m16n8k32.s32.s8.s8.s32")
    m, expected = case.entries[0]
    wrong = expected.copy()
    wrong[3, 5] ^= 1
    assert check(case, ((m, wrong),), Options()) == [f"{m.id}: 1 elements"]


def test_findings_fail_a_launch() -> None:
    text = tensor_core_kernels.entry(
        tensor_core_kernels.header("", "sm_80"), [], 1,
        ["ld.global.b32 %lane, [%buffer0+4096];"],
    )  # fmt: skip
    with pytest.raises(AssertionError, match="oob-global"):
        tensor_core_kernels.launch(text, 1, [np.zeros(4, np.uint32)])

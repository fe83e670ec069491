"""Correct kernels run with every tool, in several orders of threads, without an error or a warning.

They are the examples, the golden kernels of the lowerings, the benchmarks at a small size, and
what compilers made.  Each kind has a faulty twin that is reported, so that silence means something.
"""

from __future__ import annotations

import runpy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptxsim
from benchmarks.cases import KERNELS, Case, kernel
from benchmarks.tensor_unit import INSTRUCTIONS, Instruction
from tests.test_benchmarks import ENTRIES, SMALL
from tests.test_corpus import CASES, CORPUS
from tests.verdicts import launch

ROOT = Path(__file__).resolve().parent.parent
#: The one example that shows a fault.
FAULTY = "guard_off_by_one"
EXAMPLES = [p for p in sorted((ROOT / "examples").glob("*.ptx")) if p.stem != FAULTY]
#: Those of cooperative matrices have no launch; tests/lowering/test_coopmat_products.py runs them.
#: The long ones are products of 128 x 128 x 1000, of which there are small ones of the same kinds.
GOLDEN = [
    p
    for p in sorted((ROOT / "tests" / "lowering" / "golden").glob("*.ptx"))
    if "// launch:" in (text := p.read_text()) and len(text) < 30_000
]
#: Compiled kernels whose sources order all accesses that differ.
COMPILED = [name for name, c in CASES.items() if not c.races]
#: Those in which threads with copies of a value all store it to one place, which is a warning:
#: "o[0] = g.size()" by the whole block, and a layout that holds each element in several threads.
COPIES = {"coop_groups__sm90a", "triton_scan_sort__sm80"}

each_schedule = pytest.mark.parametrize(
    "schedule", ["default", "reverse", "warp-serial", "random:1"]
)


def alarms(report: ptxsim.Report) -> list[tuple[str, int, int | None]]:
    """Class and lines of the errors and warnings of a report; advice is neither."""
    return [
        (f.class_, f.line, f.other_line) for f in report.findings if f.severity.value != "advice"
    ]


@cache
def tile_gemm() -> ptxsim.Kernel:
    """The kernel of lowered copies that an example builds."""
    module = runpy.run_path(str(ROOT / "examples" / "tile_gemm.py"))
    built: ptxsim.Kernel = module["build"]().assemble().kernel()
    return built


@each_schedule
class TestSilence:
    @pytest.mark.parametrize("path", [*EXAMPLES, *GOLDEN], ids=lambda p: p.stem)
    def test_example_or_golden_kernel(self, path: Path, schedule: str) -> None:
        assert alarms(launch(path, schedule).report) == []

    def test_lowered_matrix_product(self, schedule: str) -> None:
        # 64 x 64 by 64 x 32, the sizes of the example
        a, b = np.ones((64, 64), np.float16), np.ones((64, 32), np.float16)
        d = ptxsim.undefined((64, 32), np.float16)
        report = tile_gemm().launch(grid=1, block=32, args=[a, b, d], schedule=schedule)
        assert alarms(report) == []
        assert (d == 64).all()

    @pytest.mark.parametrize("case", ENTRIES, ids=lambda c: c.entry)
    def test_benchmark(self, case: Case, schedule: str) -> None:
        prepared = case.prepare(SMALL[case.entry])
        assert alarms(prepared.run(kernel(case), schedule=schedule)) == []

    @pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=lambda i: i.entry)
    def test_tensor_unit(self, instruction: Instruction, schedule: str) -> None:
        entry = ptxsim.assemble(KERNELS / "tensor_unit.ptx")[instruction.entry]
        fragments = instruction.fragments(np.random.default_rng(0))
        args: list[Any] = [fragments, ptxsim.undefined(128, instruction.result), np.uint32(1)]
        assert alarms(entry.launch(grid=1, block=32, args=args, schedule=schedule)) == []

    @pytest.mark.parametrize("name", COMPILED)
    def test_compiled_kernel(self, name: str, schedule: str) -> None:
        c = CASES[name]
        args, _ = c.make()
        entry = ptxsim.assemble(CORPUS / c.file).kernel(c.entry)
        report = entry.launch(grid=c.grid, block=c.block, args=args, smem=c.smem, schedule=schedule)
        wanted = {"same-value-write"} if name in COPIES else set()
        assert {class_ for class_, _, _ in alarms(report)} == wanted


def test_all_are_there() -> None:
    assert (len(EXAMPLES), len(GOLDEN) > 15, len(COMPILED) > 35) == (7, True, True)


class TestFaultyTwins:
    """The same kernels without one of the instructions that make them correct."""

    @each_schedule
    @pytest.mark.parametrize(
        ("file", "without", "classes"),
        [
            ("examples/reduce.ptx", "bar.sync", {"race-shared"}),
            ("examples/histogram.ptx", "bar.sync", {"race-shared"}),
            ("examples/warp_gemm_mma.ptx", "cp.async.wait_group 1;", {"async-race"}),
            ("tests/lowering/golden/copy_cta_x4.ptx", "bar.sync", {"race-shared"}),
            ("tests/lowering/golden/copy_x4.ptx", "bar.sync", {"race-shared"}),
        ],
    )
    def test_removed(self, file: str, without: str, classes: set[str], schedule: str) -> None:
        path = ROOT / file
        text = path.read_text()
        assert without in text
        report = launch(path, schedule, text.replace(without, "// " + without)).report
        assert {class_ for class_, _, _ in alarms(report)} == classes

"""Runs a kernel and its mutants: what the tool reports, what they compute, what they do."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import ptxsim
from benchmarks.cases import CASES, KERNELS
from ptxsim.cli.header import parse_header
from ptxsim.machine.watch import Watch
from tests.mutation_order import History
from tests.mutation_pairs import Unordered

__all__ = ["RACES", "SCHEDULES", "Found", "Run", "Subject", "of_file", "run", "subjects"]

TESTS = Path(__file__).parent
EXAMPLES = TESTS.parent / "examples"
#: a fault shows on one of these, or it is judged by what the accesses of the first one order
SCHEDULES = ("default", "reverse", "warp-serial", "early-async", "random:1", "random:2")
#: classes whose findings name two accesses
RACES = ("race-shared", "race-global", "async-race", "proxy-fence")
#: sizes of the benchmark kernels: more than one CTA where the kernel allows it, and a short run
SMALL = {
    "vecadd": 300, "saxpy": 300, "sgemm_naive": 32, "sgemm_tiled": 32, "block_reduce": 512,
    "histogram": 2000, "mandelbrot": 16, "gemm_wmma": 64, "gemm_mma": 64, "gemm_tile": 128,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Subject:
    """A correct kernel and how to launch it; ``arguments`` makes fresh ones."""

    name: str
    text: str
    entry: str | None
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: Callable[[], list[Any]] = field(compare=False)
    smem: int = 0


class Found(NamedTuple):
    """A finding: its class and its lines, 0 for none."""

    class_: str
    line: int
    other_line: int = 0

    @property
    def race(self) -> bool:
        """Whether it is a pair of accesses that are not ordered."""
        return self.class_ in RACES and self.other_line > 0


@dataclass(frozen=True, slots=True)
class Run:
    """One launch: its errors and other findings, its results, and its history if asked for."""

    errors: tuple[Found, ...]
    others: tuple[Found, ...]
    results: bytes
    instructions: int
    unordered: tuple[Unordered, ...] = ()
    digest: int = 0


class _Watched(ptxsim.Kernel):
    """A kernel whose launches tell one more listener of what happens."""

    listener: Watch | None = None

    def _checks(self, chosen: set[str], *launch: Any) -> list[Watch]:
        listening = [] if self.listener is None else [self.listener]
        return [*super()._checks(chosen, *launch), *listening]


def run(
    subject: Subject, text: str, schedule: str = "default", *, limit: int | None = None,
    history: bool = False, tools: str = "all",
) -> Run:  # fmt: skip
    """Assemble and launch a text in the place of a subject's; invalid PTX is an error too."""
    try:
        module = ptxsim.assemble(text, name=subject.name)
    except ptxsim.PtxError as error:
        lines = tuple(Found("static-error", d.span.line) for d in error.diagnostics)
        return Run(lines, (), b"", 0)
    plain = module.kernel(subject.entry)
    kernel = _Watched(module, module.typed.functions[plain.name])
    listener = History() if history else None
    kernel.listener = listener
    args = subject.arguments()
    report = kernel.launch(
        grid=subject.grid, block=subject.block, args=args, smem=subject.smem, schedule=schedule,
        max_instructions=limit, tools=tools,
    )  # fmt: skip
    results = b"".join(a.tobytes() for a in args if isinstance(a, np.ndarray))
    undefined = str([o.undefined_bytes for o in report.outputs.values()]).encode()
    return Run(
        _found(report, errors=True), _found(report, errors=False), results + undefined,
        report.counters["steps"],
        () if listener is None else tuple(sorted(listener.unordered())),
        0 if listener is None else listener.digest(),
    )  # fmt: skip


def _found(report: ptxsim.Report, errors: bool) -> tuple[Found, ...]:
    return tuple(
        Found(f.class_, f.line, f.other_line or 0)
        for f in report.findings
        if (f.severity.value == "error") == errors
    )


@cache
def subjects() -> tuple[Subject, ...]:
    """All correct kernels that come with a launch."""
    files = [
        *sorted((TESTS / "cases").glob("*-ok.ptx")),
        *sorted((TESTS / "litmus").glob("*-ok.ptx")),
        *(p for p in sorted(EXAMPLES.glob("*.ptx")) if p.name != "guard_off_by_one.ptx"),
        # those of cooperative matrices have no launch of their own
        *(p for p in sorted((TESTS / "lowering" / "golden").glob("*.ptx")) if _launched(p)),
    ]
    return (*(of_file(p) for p in files), *_of_benchmarks(), _lowered_product())


def _launched(path: Path) -> bool:
    """Whether a golden kernel has a launch; of long ones there are short ones of the same kind."""
    text = path.read_text()
    return "\n// launch:" in "\n" + text and len(text) < 9_000


def of_file(path: Path) -> Subject:
    text = path.read_text()
    header = parse_header(text, path.name, path.parent)
    launch = header.launch
    assert launch.grid and launch.block
    return Subject(
        path.stem, text, launch.entry, launch.grid, launch.block,
        lambda: [spec.make() for spec in header.args], launch.smem or 0,
    )  # fmt: skip


def _of_benchmarks() -> list[Subject]:
    out = []
    for case in {case.entry: case for case in CASES}.values():
        size = SMALL[case.entry]
        sample = case.prepare(size)
        text = _only((KERNELS / case.file).read_text(), case.entry)

        def arguments(prepare: Any = case.prepare, size: int = size) -> list[Any]:
            return list(prepare(size).args)

        out.append(
            Subject(
                f"benchmark-{case.entry}", text, case.entry, sample.grid, sample.block, arguments
            )
        )
    return out


def _lowered_product() -> Subject:
    """The matrix product of examples/tile_gemm.py, whose copies the lowering makes."""
    module = runpy.run_path(str(EXAMPLES / "tile_gemm.py"))
    m, n, k = (int(module[name]) for name in "MNK")

    def arguments() -> list[Any]:
        rng = np.random.default_rng(0)
        shapes = ((m, k), (k, n))
        a, b = (rng.integers(-4, 5, shape).astype(np.float16) for shape in shapes)
        return [a, b, ptxsim.undefined((m, n), np.float16)]

    return Subject("tile_gemm", module["build"]().text(), None, (1,), (32,), arguments)


def _only(text: str, entry: str) -> str:
    """A module with the text of its other entries blanked, for the sake of time."""
    parts = re.split(r"(?m)^(?=(?:\.visible )?\.entry )", text)
    kept = [parts[0]]
    for part in parts[1:]:
        name = re.match(r"(?:\.visible )?\.entry (\w+)", part)
        assert name is not None
        kept.append(part if name[1] == entry else "\n" * part.count("\n"))
    return "".join(kept)

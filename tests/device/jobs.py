"""What the hardware suite launches: every job is a recording that has no answers yet.

Only outputs that do not depend on the order of threads, on addresses or on clocks are asked for.
"""

from __future__ import annotations

import contextlib
import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import ptxsim
from ptxsim.agreement import Backend, Shape, simulator
from ptxsim.agreement.pair import Judge
from ptxsim.agreement.recording import (
    Device,
    RecordedArgument,
    RecordedOutput,
    Recording,
    device_of,
    digest,
    output_of,
)
from ptxsim.api import Kernel, _argument
from ptxsim.cli.elements import ELEMENT_TYPES
from ptxsim.cli.header import parse_header
from ptxsim.cli.replay import arguments_of

__all__ = [
    "Job",
    "captured",
    "clean_files",
    "file_job",
    "file_jobs",
    "job_of",
    "run_job",
    "settled",
]

ROOT = Path(__file__).parents[2]
NOBODY = Device("", (), "")
#: Bytes of the buffers, and threads, of a launch that is taken over from a test; and how many
#: launches of one text are.
_MOST_BYTES, _MOST_THREADS, _PER_TEXT = 1 << 18, 1 << 16, 3
_TOKENS = {"f2": "f16", "f4": "f32", "f8": "f64"}


@dataclass(frozen=True, slots=True)
class Job:
    """A launch to be made: its name is unique in its group."""

    group: str
    name: str
    recording: Recording
    #: CTAs wait for each other: all must run at the same time
    cooperative: bool = False


def job_of(
    group: str,
    name: str,
    kernel: Kernel,
    args: Sequence[Any],
    shape: Shape,
    *,
    types: Sequence[str | None] | None = None,
    cooperative: bool = False,
) -> Job:
    """A job for a launch; ``types`` are those of buffers that NumPy has no type for."""
    recorded = []
    for n, (p, value) in enumerate(zip(kernel.params, args, strict=True)):
        if isinstance(value, np.ndarray) and value.shape and p.count is None:
            code = f"{value.dtype.kind}{value.dtype.itemsize}"
            kind = {"u": "u", "i": "s", "b": "u"}.get(value.dtype.kind, "")
            type_ = (types[n] if types else None) or _TOKENS.get(code)
            type_ = type_ or f"{kind}{8 * value.dtype.itemsize}"
            assert type_ in ELEMENT_TYPES, type_
            data, count = value.tobytes(), value.size
        else:
            found = _argument(p, value)
            assert isinstance(found, bytes)
            type_, data, count = "b8", found, None
        recorded.append(RecordedArgument(p.name, type_, count, None, data, digest(data)))
    text = kernel.source.text
    recording = Recording(
        kernel.name, kernel.module.target, digest(text), shape.grid, shape.block, shape.cluster,
        shape.smem, tuple(recorded), {}, NOBODY, "", text,
    )  # fmt: skip
    return Job(group, name, recording, cooperative)


def launch_job(
    job: Job, backend: Backend, isolate: bool = False, **options: Any
) -> tuple[ptxsim.Report, list[Any]]:
    """Launch on some machine; its report and the arguments afterwards.

    A process of its own for each launch (``isolate``) takes most of the time of a small one.
    """
    r = job.recording
    kernel = ptxsim.assemble(r.ptx or "", r.target, job.name).kernel(r.entry)
    args = arguments_of(r)
    device = {"isolate": isolate} | ({"cooperative": True} if job.cooperative else {})
    shape = Shape(r.grid, r.block, r.cluster, r.smem, {"tools": "none", **options}, device)
    return backend(kernel, args, shape), args


def settled(job: Job) -> Job | None:
    """The job with the outputs that a correct machine must give, None if there are none.

    What the simulator changes is an output; it must come out the same on other schedules, and hold
    no address and no reading of a clock.
    """
    r = job.recording
    kernel = ptxsim.assemble(r.ptx or "", r.target, job.name).kernel(r.entry)
    judge = Judge(kernel, lambda: arguments_of(r), Shape(r.grid, r.block, r.cluster, r.smem))
    if not judge.report.clean:
        return None
    runs = []
    for schedule in ("default", "reverse", "random:1"):
        report, args = launch_job(job, simulator, schedule=schedule)
        if not report.clean:
            return None
        runs.append([None if isinstance(a, bytes) else a.tobytes() for a in args])
    outputs: dict[str, RecordedOutput] = {}
    for a, before, *after in zip(r.arguments, arguments_of(r), *runs, strict=True):
        if a.count is None or after[0] == before.tobytes() or len(set(after)) > 1:
            continue
        if not judge.holds_outside(a.name, len(after[0])):
            outputs[a.name] = output_of(a.type, np.frombuffer(after[0], before.dtype))
    return replace(job, recording=replace(r, outputs=outputs)) if outputs else None


def run_job(job: Job, backend: Backend, date: str) -> Recording:
    """The recording of a settled job; :class:`ptxsim.UsageError` if the machine cannot run it."""
    try:
        report, args = launch_job(job, backend)
    except ptxsim.UsageError as error:
        if "isolate=True" not in str(error):
            raise
        # an earlier launch has cost this process its context
        report, args = launch_job(job, backend, isolate=True)
    if not report.clean:
        raise ptxsim.UsageError(f"{report.verdict}: {report.findings[0].message}")
    r = job.recording
    outputs = {
        a.name: output_of(a.type, value)
        for a, value in zip(r.arguments, args, strict=True) if a.name in r.outputs
    }  # fmt: skip
    return replace(r, outputs=outputs, device=device_of(report), date=date)


# --- where jobs come from -------------------------------------------------------------------------


def clean_files() -> Iterator[tuple[str, Path]]:
    """Kernels in files that are correct, each with its group."""
    for folder in ("cases", "litmus"):
        table = (ROOT / "tests" / folder / "index.tsv").read_text().splitlines()
        for row in csv.DictReader(table, delimiter="\t"):
            if row["verdict"] == "clean":
                yield folder, ROOT / "tests" / folder / row["file"]
    for path in sorted((ROOT / "examples").glob("*.ptx")):
        yield "examples", path
    for path in sorted((ROOT / "tests" / "lowering" / "golden").glob("*.ptx")):
        yield "golden", path


def file_job(group: str, path: Path) -> Job | None:
    """The job of a kernel in a file whose header says how it is launched; None without that."""
    text = path.read_text()
    header = parse_header(text, path.name, path.parent)
    grid, block = header.launch.grid, header.launch.block
    if grid is None or block is None:
        return None  # goldens of cooperative matrices: their tests launch them
    kernel = ptxsim.assemble(text, name=path.name).kernel(header.launch.entry)
    shape = Shape(grid, block, header.launch.cluster, header.launch.smem or 0)
    types = [spec.type.token if spec.count else None for spec in header.args]
    return job_of(
        group, path.stem, kernel, [s.make() for s in header.args], shape, types=types,
        cooperative=group == "litmus" and grid != (1, 1, 1),
    )  # fmt: skip


def file_jobs() -> Iterator[Job]:
    """The jobs of all these files."""
    found = (file_job(group, path) for group, path in clean_files())
    return (job for job in found if job is not None)


@contextlib.contextmanager
def captured(group: str, most: int = _MOST_BYTES) -> Iterator[list[Job]]:
    """The launches that are made meanwhile as jobs, each once and of each text a few.

    Those with more than ``most`` bytes of buffers are left out.  All are made as well: what the
    caller does with the results stays as it is.
    """
    jobs: list[Job] = []
    known: set[str] = set()
    texts: Counter[str] = Counter()
    plain = Kernel.launch

    def launch(self: Kernel, **options: Any) -> ptxsim.Report:
        before = [a.copy() if isinstance(a, np.ndarray) else a for a in options.get("args", ())]
        first = {id(a) for a in options.get("args", ()) if isinstance(a, np.ndarray)}
        arrays = [a for a in options.get("args", ()) if isinstance(a, np.ndarray)]
        report = plain(self, **options)
        if report.clean and not report.stopped and len(first) == len(arrays):
            job = _taken(group, self, before, options, most)
            text = self.source.text
            if job is not None and job.name not in known and texts[text] < _PER_TEXT:
                known.add(job.name)
                texts[text] += 1
                jobs.append(job)
        return report

    with mock.patch.object(Kernel, "launch", launch):
        yield jobs


def _taken(
    group: str, kernel: Kernel, args: list[Any], options: dict[str, Any], most: int
) -> Job | None:
    sizes = sum(a.nbytes for a in args if isinstance(a, np.ndarray))
    block, grid = (_triple(options[name]) for name in ("block", "grid"))
    threads = int(np.prod([*block, *grid]))
    arrays = [a for a in args if isinstance(a, np.ndarray) and a.shape]
    plain = all(a.dtype.kind in "uifb" and a.dtype.itemsize <= 8 for a in arrays)
    if sizes > most or threads > _MOST_THREADS or not plain:
        return None
    cluster = options.get("cluster")
    shape = Shape(
        grid, block, None if cluster is None else _triple(cluster), options.get("smem", 0)
    )
    try:
        job = job_of(group, "", kernel, args, shape)
    except (AssertionError, ptxsim.UsageError):
        return None
    key = [kernel.source.text, kernel.name, grid, block, cluster, shape.smem]
    key += [a.sha256 for a in job.recording.arguments]
    return replace(job, name=digest(repr(key))[:16])


def _triple(value: Any) -> tuple[int, int, int]:
    parts = (value,) if isinstance(value, int | np.integer) else tuple(value)
    x, y, z = (*(int(p) for p in parts), 1, 1)[:3]
    return x, y, z

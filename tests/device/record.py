"""The hardware suite: everything that can be asked of a GPU, in one go, as recordings.

    python -m tests.device.record prepare JOBS              needs no GPU
    python -m tests.device.record run JOBS tests/device/recorded --seconds 600

``prepare`` collects the launches and sorts out, on the simulator, which outputs a machine must
give.  ``run`` makes the launches on a GPU and writes what comes out below a folder with the GPU's
name.  It can be stopped and started again: what is recorded is kept, files are written whole or not
at all.  ``--backend sim`` is a rehearsal.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ptxsim
from ptxsim.agreement import Backend, gpu, simulator
from ptxsim.agreement.recording import Recording, from_json, to_json
from ptxsim.cli.files import write_text
from tests.device.instructions import instruction_jobs
from tests.device.jobs import ROOT, Job, captured, file_jobs, run_job, settled
from tests.device.sweeps import ALL_MANTISSAS, SWEEPS, answer_to_json, ask

__all__ = ["GROUPS", "main", "read_entries"]

#: Tests whose launches are taken over, by group: instructions that are no functions of operands,
#: kernels that compilers made, the tensor cores, and cooperative matrices.
TESTS: Mapping[str, tuple[str, ...]] = {
    "tensor-cores": ("tests/isa/test_tensor_core_vectors.py",),
    "matrices": ("tests/isa/test_matrix_multiply.py", "tests/isa/test_warp_matrix.py",
                 "tests/isa/test_wmma.py", "tests/isa/test_sparse.py"),
    "copies": ("tests/isa/test_bulk_copy.py", "tests/isa/test_mbarrier.py"),
    "video": ("tests/isa/test_video_instructions.py",),
    "warps": ("tests/machine/test_collectives.py", "tests/machine/test_control_flow.py",
              "tests/machine/test_barriers.py"),
    "corpus": ("tests/test_corpus.py",),
    "cooperative": ("tests/lowering/test_coopmat_products.py",),
}  # fmt: skip

#: Seconds between two writes of a file.
_WRITE_EVERY = 20.0


def _of_tests(group: str) -> Iterator[Job]:
    # products of large matrices say no more than those of small ones, and take ten times the space
    with captured(group, 1 << 15 if group == "cooperative" else 1 << 18) as jobs:
        pytest.main(
            ["-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT), "--no-header", "--no-summary",
             *(str(ROOT / path) for path in TESTS[group])]
        )  # fmt: skip
    yield from jobs


def _of_files(group: str) -> Iterator[Job]:
    return (job for job in file_jobs() if job.group == group)


GROUPS: Mapping[str, Callable[[], Iterable[Job]]] = {
    "cases": lambda: _of_files("cases"),
    "litmus": lambda: _of_files("litmus"),
    "examples": lambda: _of_files("examples"),
    "golden": lambda: _of_files("golden"),
    "instructions": instruction_jobs,
    **{group: (lambda group=group: _of_tests(group)) for group in TESTS},
}


# --- files ----------------------------------------------------------------------------------------


def entry_of(job: Job, recording: Recording) -> dict[str, Any]:
    return {"job": job.name, "cooperative": job.cooperative, "recording": to_json(recording)}


def read_entries(path: Path) -> list[dict[str, Any]]:
    """The lines of a file, each an object with a ``job``; none if there is no file."""
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            tree = json.loads(line)
        except ValueError as error:
            raise ptxsim.UsageError(f"{path}:{number}: no JSON: {error}") from None
        if not isinstance(tree, dict) or not isinstance(tree.get("job"), str):
            raise ptxsim.UsageError(f"{path}:{number}: an object with a job is expected")
        found.append(tree)
    return found


def _read_jobs(folder: Path, group: str) -> Iterator[Job]:
    path = folder / f"{group}.jsonl"
    for tree in read_entries(path):
        recording = from_json(tree.get("recording"), f"{path}: {tree['job']}")
        yield Job(group, tree["job"], recording, tree.get("cooperative") is True)


class _Book:
    """The entries of one file, written from time to time, always whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries = {tree["job"]: tree for tree in read_entries(path)}
        self._written = time.monotonic()
        self._changed = False

    def add(self, tree: dict[str, Any]) -> None:
        self.entries[tree["job"]] = tree
        self._changed = True
        if time.monotonic() - self._written > _WRITE_EVERY:
            self.write()

    def write(self) -> None:
        if self._changed:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lines = (json.dumps(tree, sort_keys=True) for tree in self.entries.values())
            write_text(str(self.path), "".join(f"{line}\n" for line in lines))
        self._written, self._changed = time.monotonic(), False


# --- the two steps --------------------------------------------------------------------------------


def prepare(folder: Path, groups: Iterable[str], limit: int | None) -> dict[str, int]:
    """Write the jobs of each group; their numbers."""
    numbers = {}
    for group in groups:
        book = _Book(folder / f"{group}.jsonl")
        before, book.entries = book.entries, {}
        for n, job in enumerate(GROUPS[group]()):
            if limit is not None and n >= limit:
                break
            old = before.get(job.name)
            if old is not None and old["recording"]["ptx_sha256"] == job.recording.ptx_sha256:
                book.add(old)
                continue
            ready = settled(job)
            if ready is not None:
                book.add(entry_of(ready, replace(ready.recording, date="")))
        book.write()
        numbers[group] = len(book.entries)
        print(f"{group}: {numbers[group]} jobs", flush=True)
    return numbers


def record(
    jobs: Path,
    out: Path,
    groups: Iterable[str],
    backend: Backend,
    seconds: float,
    limit: int | None = None,
    sweep_count: int | None = None,
) -> list[str]:
    """Launch what is not recorded yet; what could not be, with the reason."""
    deadline = time.monotonic() + seconds
    date = datetime.date.today().isoformat()
    failed: list[str] = []
    for group in groups:
        book = _Book(out / f"{group}.jsonl")
        try:
            for name, make in _to_do(jobs, group, backend, date, limit, sweep_count):
                if name in book.entries:
                    continue
                if time.monotonic() > deadline:
                    failed.append(f"{group}/{name}: the time is over; start again to go on")
                    return failed
                try:
                    book.add(make())
                except (ptxsim.PtxError, ptxsim.UsageError) as error:
                    failed.append(f"{group}/{name}: {str(error).splitlines()[0]}")
        finally:
            book.write()
        print(f"{group}: {len(book.entries)} recorded", flush=True)
    return failed


def _to_do(
    jobs: Path, group: str, backend: Backend, date: str, limit: int | None, count: int | None
) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    if group == "sweeps":
        for sweep in SWEEPS[:limit]:
            yield (
                sweep.name,
                lambda sweep=sweep: {
                    "job": sweep.name,
                    **answer_to_json(ask(sweep, backend, date, count or ALL_MANTISSAS)),
                },
            )
        return
    for n, job in enumerate(_read_jobs(jobs, group)):
        if limit is not None and n >= limit:
            return
        yield job.name, lambda job=job: entry_of(job, run_job(job, backend, date))


def device_folder(backend: str) -> str:
    """The name of the folder for the recordings of this machine's GPU."""
    if backend == "sim":
        return "simulator"
    text = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }"
    report = ptxsim.assemble(text).kernel().launch(grid=1, block=1, backend="gpu")
    told = report.to_json()["device"]
    capability = "".join(map(str, told["compute_capability"]))
    return re.sub(r"[^a-z0-9]+", "-", f"sm{capability}-{told['name']}".lower()).strip("-")


def main(argv: list[str] | None = None) -> int:
    """Run the script: 0 done, 1 something is not recorded, 2 wrong use."""
    parser = argparse.ArgumentParser(prog="record", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("step", choices=("prepare", "run"))
    parser.add_argument("jobs", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--only", action="append", metavar="GROUP", choices=[*GROUPS, "sweeps"])
    parser.add_argument("--limit", type=int, help="jobs of each group")
    parser.add_argument("--backend", choices=("gpu", "sim"), default="gpu")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--sweep-count", type=int, help="mantissas of a sweep; all by default")
    args = parser.parse_args(argv)
    groups = args.only or [*GROUPS, "sweeps"]
    try:
        if args.step == "prepare":
            prepare(args.jobs, [g for g in groups if g != "sweeps"], args.limit)
            return 0
        if args.out is None:
            print("record: run needs a folder for the recordings", file=sys.stderr)
            return 2
        backend = simulator if args.backend == "sim" else gpu
        out = args.out / device_folder(args.backend)
        failed = record(args.jobs, out, groups, backend, args.seconds, args.limit, args.sweep_count)
    except ptxsim.UsageError as error:
        print(f"record: {error}", file=sys.stderr)
        return 2
    for line in failed:
        print(f"not recorded: {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Each family of launches on the simulator and on a real GPU; skipped, with the reason, without.

The launches are those of the hardware suite (``record.py``), a few of each family.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import ptxsim
from ptxsim.agreement import Backend, gpu, simulator
from ptxsim.cli.replay import replay
from ptxsim.device import probe
from tests.device.instructions import instruction_jobs, instruction_names
from tests.device.jobs import ROOT, Job, clean_files, file_job, run_job, settled
from tests.device.record import GROUPS, TESTS
from tests.device.sides import bits_changed
from tests.device.sweeps import SWEEPS, Sweep, ask, compare

FOUND = probe()

needs_gpu = [
    pytest.mark.device,
    pytest.mark.skipif(not FOUND.available, reason=f"no GPU: {FOUND.reason}"),
]
#: Launches of a group of tests that are made here; the script makes all.
MOST = 32


def asked(jobs: Iterable[Job | None], backend: Backend) -> tuple[list[str], list[str]]:
    """What a machine answers differently, and why it could not make some of the launches."""
    different, unable = [], []
    for job in jobs:
        ready = None if job is None else settled(job)
        if ready is None:
            continue
        try:
            recording = run_job(ready, backend, "2026-01-02")
        except (ptxsim.PtxError, ptxsim.UsageError) as error:
            unable.append(f"{ready.name}: {str(error).splitlines()[0]}")
            continue
        errors = (f for f in replay(recording, ready.name).findings if f.severity.value == "error")
        different += [f"{ready.name}: {f.message}" for f in errors]
    return different, unable


def agree(jobs: Iterable[Job | None]) -> None:
    """Fail on differences; skip where the GPU can make none of the launches that it was asked."""
    different, unable = asked(jobs, gpu)
    assert not different
    # what another architecture has is no fault; a launch that only fails here is one
    faults = [line for line in unable if "cannot run" not in line]
    assert not faults
    if unable:
        pytest.skip("; ".join(unable))


def _files() -> list[Any]:
    return [pytest.param(g, p, id=f"{g}-{p.stem}", marks=needs_gpu) for g, p in clean_files()]


@pytest.mark.parametrize(("group", "path"), _files())
def test_kernels_in_files(group: str, path: Path) -> None:
    agree([file_job(group, path)])


@pytest.mark.parametrize("name", [pytest.param(n, marks=needs_gpu) for n in instruction_names()])
def test_instructions_that_compute(name: str) -> None:
    agree(instruction_jobs(2, frozenset([name])))


@pytest.mark.parametrize("group", [pytest.param(g, marks=needs_gpu) for g in TESTS])
def test_launches_of_other_tests(group: str) -> None:
    agree(islice(GROUPS[group](), MOST))


@pytest.mark.parametrize("sweep", [pytest.param(s, id=s.name, marks=needs_gpu) for s in SWEEPS])
def test_approximate_functions(sweep: Sweep) -> None:
    assert compare(ask(sweep, gpu, "2026-01-02", 1 << 12)) == 0


class TestWithoutAGpu:
    """The same comparison with the simulator in the place of a GPU."""

    def jobs(self) -> list[Job | None]:
        return [file_job("examples", ROOT / "examples" / "saxpy.ptx")]

    def test_agreement(self) -> None:
        assert asked(self.jobs(), simulator) == ([], [])

    def test_it_can_fail(self) -> None:
        def change(bits: Any) -> None:
            bits[3] ^= 1

        (message,), unable = asked(self.jobs(), bits_changed(1, change))
        assert message.startswith("saxpy: 1 of 1000 elements of 'y") and not unable

    def test_what_cannot_run_is_told(self) -> None:
        def refuses(*_: Any) -> ptxsim.Report:
            raise ptxsim.UsageError("the PTX is for sm_90a, which X cannot run")

        assert asked(self.jobs(), refuses) == (
            [], ["saxpy: the PTX is for sm_90a, which X cannot run"],
        )  # fmt: skip

    def test_every_group_of_the_script_is_asked(self) -> None:
        files = {group for group, _ in clean_files()}
        assert files | set(TESTS) | {"instructions"} == set(GROUPS)

"""Measuring: the best of several times, the calibration loop, peak memory, subprocesses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np

import ptxsim

from .cases import KERNELS, Case, kernel

__all__ = ["Measured", "best", "calibrate", "command", "large_text", "measure", "parse_rate"]

ROOT = Path(__file__).resolve().parent.parent
LANES, ROUNDS = 1 << 14, 200


@dataclass(frozen=True, slots=True)
class Measured:
    """A case as measured, with all checks and with none; ``peak_mib`` is None where the system does
    not tell."""

    name: str
    thread_instructions: int
    seconds: float
    unchecked_seconds: float
    peak_mib: float | None
    exact: bool


def best(action: Callable[[], object], repeat: int) -> float:
    """The shortest of ``repeat`` runs, in seconds."""
    times = []
    for _ in range(repeat):
        start = perf_counter()
        action()
        times.append(perf_counter() - start)
    return min(times)


def calibrate() -> float:
    """Element operations per second of a fixed NumPy loop: load, multiply, add, select, store.

    The unit in which the simulator's speed can be compared between machines.
    """
    rng = np.random.default_rng(0)
    memory = rng.random(LANES, np.float32)
    index = rng.permutation(LANES)
    row, mask = np.empty(LANES, np.float32), index % 3 == 0

    def loop() -> None:
        for _ in range(ROUNDS):
            np.take(memory, index, out=row)
            np.multiply(row, np.float32(0.5), out=row)
            np.add(row, np.float32(0.25), out=row)
            np.copyto(row, np.float32(1), where=mask)
            memory[index] = row

    loop()
    return 5 * ROUNDS * LANES / best(loop, 5)


def measure(case: Case, repeat: int) -> Measured:
    """Run a case once to warm up and ``repeat`` times for the clock, each with fresh arguments."""
    launch = case.prepare(case.size)
    counted = launch.run(kernel(case)).counters["thread_instructions"]
    exact = launch.matches()
    _reset_peak()
    seconds: dict[str, list[float]] = {"none": [], "all": []}
    for _ in range(repeat):
        for tools, times in seconds.items():
            fresh = case.prepare(case.size)
            times.append(best(lambda f=fresh, t=tools: f.run(kernel(case), tools=t), 1))  # type: ignore[misc]
    return Measured(
        case.name, counted, min(seconds["all"]), min(seconds["none"]), _peak_mib(), exact
    )


def _reset_peak() -> None:
    """Let Linux forget the peak of the process so far; elsewhere there is no peak to read."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _peak_mib() -> float | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return None


def large_text(least: int) -> str:
    """A valid module of at least ``least`` characters: the kernels again and again, renamed."""
    text = (KERNELS / "kernels.ptx").read_text()
    head, entry, body = text.partition(".visible .entry ")
    parts = (entry + body).split(entry)[1:]
    copies = [head]
    size, number = len(head), 0
    while size < least:
        for part in parts:
            name, rest = part.split("(", 1)
            copies.append(f"{entry}{name}_{number}({rest}")
            size += len(copies[-1])
        number += 1
    return "".join(copies)


def parse_rate(least: int = 300 << 10, repeat: int = 2) -> tuple[int, float, float]:
    """Characters of a large module, and the seconds to parse and to assemble it."""
    from ptxsim.syntax import parse

    text = large_text(least)
    ptxsim.assemble((KERNELS / "kernels.ptx").read_text())
    return (
        len(text),
        best(lambda: parse(text, "large.ptx"), repeat),
        best(lambda: ptxsim.assemble(text), repeat),
    )


def command(words: list[str], repeat: int) -> float:
    """Seconds of ``python -m ptxsim WORDS`` as a process of its own."""
    argv = [sys.executable, "-m", "ptxsim", *words]

    def start() -> None:
        subprocess.run(argv, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)

    start()
    return best(start, repeat)

"""Programs of the loop IR written by hand, and what running one gives."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import ptxsim
from lowering.circular.emit import emit
from lowering.circular.integers import Expr, Int, Symbol, evaluate, expr
from lowering.circular.loops import Access, Block, Buffer, Fragment, Memory, Program

__all__ = ["Ran", "buffer", "global_", "launch", "local", "ptxas_errors", "shared", "symbols"]


@dataclass
class Ran:
    """The counters of a launch: tagged instructions, and the ends of asynchronous copies."""

    tags: dict[str, int]
    copies: dict[str, int]
    text: str


def symbols(names: str) -> tuple[Symbol, ...]:
    return tuple(Symbol(n) for n in names.split())


def _strides(extents: Sequence[Expr]) -> tuple[Expr, ...]:
    strides: list[Expr] = [Int(1)]
    for extent in reversed(extents[1:]):
        strides.insert(0, strides[0] * extent)
    return tuple(strides)


def buffer(
    name: str,
    dtype: str,
    memory: Memory,
    extents: Sequence[Expr | int],
    strides: Sequence[Expr | int] | None = None,
    **more: Any,
) -> Buffer:
    """A buffer, with the strides of row-major order unless others are given."""
    sizes = tuple(expr(e) for e in extents)
    given = _strides(sizes) if strides is None else tuple(expr(s) for s in strides)
    return Buffer(name, dtype, memory, sizes, given, **more)


def global_(name: str, dtype: str, *extents: Expr | int, **more: Any) -> Buffer:
    return buffer(name, dtype, Memory.GLOBAL, extents, **more)


def shared(name: str, dtype: str, *extents: int, **more: Any) -> Buffer:
    return buffer(name, dtype, Memory.SHARED, extents, **more)


def local(name: str, dtype: str, *extents: int, fragment: Fragment | None = None) -> Buffer:
    return buffer(name, dtype, Memory.LOCAL, extents, fragment=fragment)


def at(buffer: Buffer, *index: Expr | int) -> Access:
    return Access(buffer, tuple(expr(i) for i in index))


def program(
    buffers: Sequence[Buffer],
    body: Block,
    sizes: str = "",
    block: tuple[int, int, int] = (32, 1, 1),
    grid: Sequence[Expr | int] = (1, 1, 1),
) -> Program:
    x, y, z = (expr(g) for g in grid)
    return Program("kernel", tuple(buffers), tuple(sizes.split()), body, block, (x, y, z))


def launch(
    program: Program, args: Sequence[Any], target: str = "sm_80", tools: str = "all,advice", **options: Any
) -> Ran:
    """Run a program in the simulator, which must find nothing; arrays hold the results."""
    kernel = emit(program, target, **options)
    sizes = args[len(args) - len(program.sizes) :]
    values = dict(zip(program.sizes, sizes, strict=True))
    report = kernel.assemble().kernel().launch(
        grid=[evaluate(g, values) for g in program.grid],
        block=math.prod(program.block) and program.block,
        args=list(args), smem=kernel.dynamic_shared, tools=tools,
    )  # fmt: skip
    assert report.verdict == "clean", report.findings
    tags = {n[4:]: c for n, c in report.counters.items() if n.startswith("tag.")}
    copies = {n[9:]: c for n, c in report.counters.items() if n.startswith("cp.async.") and c}
    return Ran(tags, copies, kernel.text())


def ptxas_errors(text: str, target: str, folder: Path) -> str:
    """What ptxas says against a kernel."""
    ptxas = shutil.which("ptxas")
    if ptxas is None:
        pytest.skip("ptxas is not on PATH")
    path = folder / "kernel.ptx"
    path.write_text(text)
    command = [ptxas, f"-arch={target}", "-o", str(folder / "kernel.cubin"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if f"'{target}' is not defined" in done.stderr:
        pytest.skip(f"this ptxas does not know {target}")
    return done.stderr if done.returncode else ""

"""Kernels of cooperative matrices from text: lower, launch, without traps, against the oracle.

Buffers of a launch lie at fixed addresses, the first at :data:`ARENA`.  :class:`At` passes a
pointer into a buffer of an earlier parameter, at any distance from an aligned address.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ptxsim
from lowering.coopmat.api import Lowered, lower_coopmat
from lowering.coopmat.exact import Bounded
from lowering.coopmat.ir import Kernel
from lowering.coopmat.oracle import evaluate
from lowering.coopmat.refusals import Refusal, Refused
from lowering.coopmat.text import parse

__all__ = [
    "ALL",
    "ARENA",
    "LOAD",
    "MANY",
    "PRODUCT",
    "STORE",
    "At",
    "agree",
    "launch",
    "lower",
    "product_arguments",
    "product_with",
    "refusals",
    "stored",
    "trap_lines",
    "traps",
    "without_traps",
]

Array = NDArray[Any]

#: Where the simulator places the first buffer of a launch.
ARENA = 0x7000_0000_0100

_SCALARS = {
    "int32": np.int32, "int64": np.int64, "float32": np.float32, "float64": np.float64,
    "bool": np.uint8,
}  # fmt: skip


@dataclass(frozen=True)
class At:
    """A pointer ``offset`` bytes into the first buffer, said to have ``length`` elements."""

    offset: int
    length: int


def lower(text: str | Kernel, **options: Any) -> Lowered:
    """The kernel of a text, lowered."""
    return lower_coopmat(parse(text) if isinstance(text, str) else text, **options)


def refusals(text: str | Kernel, **options: Any) -> tuple[Refusal, ...]:
    """Why a kernel is not lowered; none if it is."""
    try:
        lower(text, **options)
    except Refused as refused:
        return refused.refusals
    return ()


def launch(
    lowered: Lowered,
    arguments: Mapping[str, Any],
    *,
    grid: int | tuple[int, ...] = 1,
    block: int | tuple[int, ...] = 32,
    smem: int = 0,
    ptx: str | None = None,
    **options: Any,
) -> ptxsim.Report:
    """Run a lowered kernel, or other PTX for it; arrays hold the results afterwards."""
    args: list[Any] = []
    for p in lowered.source.params:
        value = arguments[p.name]
        if not p.buffer:
            args.append(_SCALARS[p.type](value))
        elif isinstance(value, At):
            args += [np.uint64(ARENA + value.offset), np.uint32(value.length)]
        else:
            per_byte = {"uint4": 2, "int4": 2, "bit": 8}.get(p.type, 1)
            args += [value, np.uint32(value.size * per_byte)]
    kernel = _assembled(lowered.text() if ptx is None else ptx)
    return kernel.launch(grid=grid, block=block, args=args, smem=smem, **options)


@lru_cache(maxsize=64)
def _assembled(ptx: str) -> ptxsim.Kernel:
    return ptxsim.assemble(ptx).kernel()


_TRAP = re.compile(r"^\s*(@!?%\w+ )?trap;$")


def trap_lines(ptx: str) -> list[int]:
    """The numbers of the lines that trap."""
    return [n for n, line in enumerate(ptx.splitlines(), 1) if _TRAP.match(line)]


def without_traps(ptx: str) -> str:
    """The same text without the instructions that trap."""
    return "\n".join(line for line in ptx.splitlines() if not _TRAP.match(line)) + "\n"


def traps(report: ptxsim.Report, ptx: str) -> tuple[str, tuple[int, ...]]:
    """What the only finding of a launch tested, by the comment before it, and the lanes."""
    assert [f.class_ for f in report.findings] == ["trap"], report.findings
    (finding,) = report.findings
    assert finding.line in trap_lines(ptx)
    before = ptx.splitlines()[: finding.line]
    comment = next(t for t in reversed(before) if t.strip().startswith("// trap unless "))
    return comment.strip().removeprefix("// trap unless "), finding.lanes


def agree(
    text: str | Kernel,
    arguments: Mapping[str, Any],
    *,
    grid: tuple[int, int, int] = (1, 1, 1),
    block: tuple[int, int, int] = (32, 1, 1),
    dynamic: int = 0,
    smem: int = 0,
    **options: Any,
) -> dict[str, Array]:
    """Lower and run a kernel; the buffers afterwards, which are those of the oracle."""
    lowered = lower(text, block=block, **options)
    source = lowered.source
    expected = evaluate(source, arguments, grid=grid, dynamic=dynamic).buffers
    found = {n: v.copy() if isinstance(v, np.ndarray) else v for n, v in arguments.items()}
    report = launch(lowered, found, grid=grid, block=block, smem=smem)
    assert report.clean, report.findings
    for name, value in expected.items():
        if isinstance(value, Bounded):
            held = value.holds(found[name])
            assert held.all(), (name, np.flatnonzero(~held)[:8], found[name][~held][:8])
        else:
            np.testing.assert_array_equal(found[name], value, err_msg=name)
    return {name: found[name] for name in expected}


# --- one product ----------------------------------------------------------------------------------

ALL = tuple(range(32))
#: Elements of the arrays here: far more than any tile.
MANY = 4096

#: ``back`` is the memory that pointers of :class:`At` lead into.
PRODUCT = """kernel k(back: uint8[], a: float16[], b: float16[], c: float32[], flags: int32[],
         at: int32, n: int32, far: int64) block(32, 1, 1) {
  shared tile: float16[512];
  shared open: float16[];
  fragment x: a 16x16x16 f16;
  fragment y: b 16x16x16 f16;
  fragment z: accumulator 16x16x16 f32;
  load x (a 16x16x16 f16) from a[0] stride 16 row;
  load y (b 16x16x16 f16) from b[0] stride 16 col;
  z = muladd x, y, z (16x16x16 f16*f16+f32->f32);
  store z (accumulator 16x16x16 f32) to c[0] stride 16 row;
}
"""
LOAD = "load x (a 16x16x16 f16) from a[0] stride 16 row;"
STORE = "store z (accumulator 16x16x16 f32) to c[0] stride 16 row;"


def product_with(load: str = LOAD, store: str = STORE) -> str:
    """The product with other statements in place of its first load and its store."""
    return PRODUCT.replace(LOAD, load).replace(STORE, store)


def product_arguments(**changed: Any) -> dict[str, Any]:
    """Arguments of a launch that stores 16 everywhere in the tile of ``c``."""
    half = np.ones(MANY, np.float16)
    back = half.view(np.uint8).copy()
    return {
        "back": back, "a": half.copy(), "b": half.copy(), "c": np.full(MANY, -1, np.float32),
        "flags": np.zeros(MANY, np.int32), "at": 0, "n": 16, "far": 0, **changed,
    }  # fmt: skip


def stored(arguments: dict[str, Any]) -> bool:
    """Whether a launch has changed ``c``, or what it points to."""
    c, back = arguments["c"], arguments["back"]
    if isinstance(c, At):
        return bool((back != np.ones(MANY, np.float16).view(np.uint8)).any())
    return bool((c != -1).any())

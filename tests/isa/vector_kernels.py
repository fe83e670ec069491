"""Runs single instructions on columns of operands: one kernel an instruction, one thread a row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import ptxsim

__all__ = ["Vector", "run", "run_one"]

Column = npt.NDArray[Any]

#: register class: type of the register, of memory, and of the array
_CLASSES = {
    "p": ("pred", "u8", np.uint8),
    "b": ("b8", "b8", np.uint8),
    "h": ("b16", "b16", np.uint16),
    "r": ("b32", "b32", np.uint32),
    "f": ("f32", "f32", np.uint32),
    "d": ("b64", "b64", np.uint64),
    "q": ("b128", "b128", np.dtype("u8, u8")),
}

_HEAD = ".version {version}\n.target {target}\n.address_size 64\n"


@dataclass(frozen=True)
class Vector:
    """Instructions with numbered operands, their register classes, and the rows.

    ``line`` is text like ``add.u16 %0, %1, %2;`` where operand ``n`` has the class
    ``classes[n]`` (p predicate, b h r d q words of 8 to 128 bits, f single): the first ``results``
    of them are results, the others are read from ``columns`` in this order.
    """

    line: str
    classes: Sequence[str]
    columns: Sequence[Column]
    results: int = 1

    @property
    def rows(self) -> int:
        return len(self.columns[0])


def _entry(name: str, vector: Vector) -> str:
    count = len(vector.classes)
    params = ", ".join(f".param .u64 a{n}" for n in range(count))
    out = [
        f".visible .entry {name}(.param .u32 rows, {params})",
        "{",
        ".reg .b32 %tid, %base, %rows; .reg .b64 %a, %i; .reg .pred %out; .reg .b16 %byte;",
    ]
    out += [f".reg .{_CLASSES[c][0]} %x{n};" for n, c in enumerate(vector.classes)]
    out += [
        "mov.u32 %base, %ctaid.x; mov.u32 %tid, %ntid.x; mul.lo.u32 %base, %base, %tid;",
        "mov.u32 %tid, %tid.x; add.u32 %tid, %tid, %base; ld.param.u32 %rows, [rows];",
        "setp.ge.u32 %out, %tid, %rows; @%out ret;",
    ]
    for n, letter in enumerate(vector.classes):
        register, memory, dtype = _CLASSES[letter]
        if n < vector.results:
            continue
        out.append(_address(n, np.dtype(dtype).itemsize))
        if register == "pred":
            out.append(f"ld.global.u8 %byte, [%a]; setp.ne.u16 %x{n}, %byte, 0;")
        else:
            out.append(f"ld.global.{memory} %x{n}, [%a];")
    out.append(re.sub(r"%(\d+)", r"%x\1", vector.line))
    for n in range(vector.results):
        register, memory, dtype = _CLASSES[vector.classes[n]]
        out.append(_address(n, np.dtype(dtype).itemsize))
        if register == "pred":
            out.append(f"selp.u16 %byte, 1, 0, %x{n}; st.global.u8 [%a], %byte;")
        else:
            out.append(f"st.global.{memory} [%a], %x{n};")
    return "\n".join([*out, "ret;", "}", ""])


def _address(n: int, size: int) -> str:
    return f"ld.param.u64 %a, [a{n}]; mul.wide.u32 %i, %tid, {size}; add.u64 %a, %a, %i;"


def run(
    vectors: Sequence[Vector], version: str = "9.5", target: str = "sm_100a"
) -> list[tuple[Column, ...]]:
    """The result columns of each vector; all are kernels of one module."""
    text = _HEAD.format(version=version, target=target)
    text += "".join(_entry(f"k{n}", v) for n, v in enumerate(vectors))
    module = ptxsim.assemble(text)
    missing = [d for d in module.diagnostics if d.code == "PTX400"]
    assert not missing, [d.message for d in missing]
    return [_launch(module.kernel(f"k{n}"), v) for n, v in enumerate(vectors)]


def _launch(kernel: ptxsim.Kernel, vector: Vector) -> tuple[Column, ...]:
    dtypes = [np.dtype(_CLASSES[c][2]) for c in vector.classes]
    results = [np.zeros(vector.rows, t) for t in dtypes[: vector.results]]
    sources = [np.ascontiguousarray(c) for c in vector.columns]
    assert [s.dtype for s in sources] == dtypes[vector.results :]
    # 128-bit words travel as pairs of 64-bit ones
    arguments = [a.view(np.uint64) if a.dtype.names else a for a in (*results, *sources)]
    block = min(vector.rows, 1024)
    grid = -(-vector.rows // block)
    report = kernel.launch(grid=grid, block=block, args=[np.uint32(vector.rows), *arguments])
    assert report.clean, (vector.line, report)
    return tuple(results)


def run_one(line: str, classes: str, *columns: Column, results: int = 1) -> Any:
    """The result column (a tuple of several) of one instruction."""
    (out,) = run([Vector(line, classes.split(","), columns, results)])
    return out[0] if results == 1 else out

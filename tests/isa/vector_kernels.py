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

_BLOCK = 1024
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
    #: the class of the one finding that the rows lead to
    finding: str = ""

    @property
    def rows(self) -> int:
        return len(self.columns[0])


def _entry(name: str, vector: Vector) -> str:
    """A thread's record has a slot of 8 bytes (16 with b128) for each operand, results first."""
    slot = _slot(vector)
    out = [f".visible .entry {name}(.param .u64 records) {{"]
    out += [f".reg .{_CLASSES[c][0]} %x{n};" for n, c in enumerate(vector.classes)]
    out.append(
        ".reg .b32 %t, %c; .reg .b64 %a; .reg .b16 %y; ld.param.u64 %a, [records];"
        f"mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; mad.lo.u32 %t, %c, {_BLOCK}, %t;"
        f"mad.wide.u32 %a, %t, {slot * len(vector.classes)}, %a;"
    )
    for n, letter in enumerate(vector.classes[vector.results :], vector.results):
        if letter == "p":
            out.append(f"ld.global.u8 %y, [%a+{slot * n}]; setp.ne.u16 %x{n}, %y, 0;")
        else:
            out.append(f"ld.global.{_CLASSES[letter][1]} %x{n}, [%a+{slot * n}];")
    out.append(re.sub(r"%(\d+)", r"%x\1", vector.line))
    for n, letter in enumerate(vector.classes[: vector.results]):
        if letter == "p":
            out.append(f"selp.u16 %y, 1, 0, %x{n}; st.global.u8 [%a+{slot * n}], %y;")
        else:
            out.append(f"st.global.{_CLASSES[letter][1]} [%a+{slot * n}], %x{n};")
    return "\n".join([*out, "ret; }", ""])


def _slot(vector: Vector) -> int:
    return 16 if "q" in vector.classes else 8


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
    assert [c.dtype for c in vector.columns] == dtypes[vector.results :]
    rows, slot = vector.rows, _slot(vector)
    block = min(rows, _BLOCK)
    grid = -(-rows // block)
    records = np.zeros((grid * block, len(dtypes), slot), np.uint8)
    for n, column in enumerate(vector.columns, vector.results):
        bytes_ = np.ascontiguousarray(column).view(np.uint8).reshape(rows, -1)
        records[:rows, n, : bytes_.shape[1]] = bytes_
        records[rows:, n] = records[0, n]  # threads beyond the rows repeat the first
    report = kernel.launch(grid=grid, block=block, args=[records.view(np.uint64)])
    found = {f.class_ for f in report.findings}
    assert found == ({vector.finding} if vector.finding else set()), (vector.line, report)
    return tuple(
        np.ascontiguousarray(records[:rows, n, : dtype.itemsize]).view(dtype)[:, 0]
        for n, dtype in enumerate(dtypes[: vector.results])
    )


def run_one(line: str, classes: str, *columns: Column, results: int = 1, finding: str = "") -> Any:
    """The result column (a tuple of several) of one instruction."""
    (out,) = run([Vector(line, classes.split(","), columns, results, finding)])
    return out[0] if results == 1 else out

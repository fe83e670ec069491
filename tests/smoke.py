"""Launches any kernel with small plausible arguments, to see whether it runs to its end.

The results mean nothing: what counts is that nothing but findings comes of a launch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

import ptxsim
from ptxsim.api import Kernel, Module, Parameter
from ptxsim.machine.races import provenance
from ptxsim.report import Report

#: Bytes of the buffer behind each pointer.
BUFFER = 1 << 16
#: What integers are: element counts and strides, so that loops end soon and indices stay inside.
SIZE = 16
#: Executed instructions after which a launch is given up; none in the corpus needs as many.
LIMIT = 4_000_000


def smoke(module: Module) -> Iterator[tuple[str, Report]]:
    """Launch every entry of a module; each entry with its report."""
    for name in module.entries:
        yield name, launch(module.kernel(name))


def launch(kernel: Kernel) -> Report:
    """One launch of two CTAs (one cluster, where the kernel wants a larger one)."""
    directives = kernel._function.directives
    required, most = directives.get("reqntid"), directives.get("maxntid")
    block = tuple(required) if required else (min(64, math.prod(most)) if most else 32)
    cluster = directives.get("reqnctapercluster")
    grid = tuple(cluster) if cluster and math.prod(cluster) > 1 else 2
    pointers = _pointers(kernel)
    args = [_argument(p, p.name in pointers) for p in kernel.params]
    return kernel.launch(
        grid=grid, block=block, args=args, smem=dynamic(kernel), max_instructions=LIMIT
    )


def dynamic(kernel: Kernel) -> int:
    """Dynamic shared memory: 16 KiB, where the static part leaves room."""
    static = kernel.module.typed.shared_layout(kernel.name).size(0)
    return max(0, min(16 << 10, (48 << 10) - static))


def _pointers(kernel: Kernel) -> set[str]:
    """The parameters that addresses are computed from; all wide ones where that is not known."""
    known = provenance(kernel._function)
    roots = known.written.union(*known.loads.values())
    wide = {p.name for p in kernel.params if p.size == 8 and p.count is None}
    return wide if "?" in roots else {p.name for p in kernel.params if p.pointer} | (wide & roots)


def _argument(parameter: Parameter, pointer: bool) -> Any:
    if pointer:
        return np.zeros(BUFFER, np.uint8)
    if parameter.count is not None or parameter.type not in ptxsim.api._PYTHON_TYPES:
        return bytes(parameter.size)
    return 1.0 if parameter.type.startswith("f") else SIZE

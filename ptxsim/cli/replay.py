"""A recording that holds its own text and inputs, launched again on the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..agreement import Shape, simulate
from ..agreement.recording import Recording
from ..api import assemble
from ..errors import UsageError
from ..report import Report
from .agree import differences
from .elements import ELEMENT_TYPES

__all__ = ["arguments_of", "replay"]


def arguments_of(recording: Recording) -> list[Any]:
    """Fresh arguments; :class:`UsageError` if an initial value is not kept as bytes."""
    found: list[Any] = []
    for a in recording.arguments:
        if a.data is None:
            raise UsageError(f"'{a.name}' is recorded as words: compare with ptxsim diff --replay")
        if a.count is None:
            found.append(a.data)
        else:
            found.append(np.frombuffer(a.data, ELEMENT_TYPES[a.type].dtype).copy())
    return found


def replay(recording: Recording, name: str) -> Report:
    """The report of a launch on the simulator, with a finding for each output that differs."""
    if recording.ptx is None:
        raise UsageError(f"{name}: the recording holds no PTX: use ptxsim diff --replay")
    kernel = assemble(recording.ptx, recording.target, name).kernel(recording.entry)
    r = recording
    shape = Shape(r.grid, r.block, r.cluster, r.smem)
    arguments = arguments_of(r)
    if len(arguments) != len(kernel.params):
        raise UsageError(f"{name}: {len(kernel.params)} arguments are needed")
    report, provenance = simulate(kernel, arguments, shape)
    if not report.clean:
        return report
    origin = f"the recording of {r.device.name}"
    found = []
    for p, a, value in zip(kernel.params, r.arguments, arguments, strict=True):
        if a.name not in r.outputs:
            continue
        finding, _ = differences(
            a.name, p.name, ELEMENT_TYPES[a.type], value, r.reference(a.name), provenance, shape,
            origin,
        )  # fmt: skip
        if finding is not None:
            found.append(finding)
    report.findings = (*report.findings, *found)
    return report

"""Launches on a GPU, by the CUDA driver.  Nothing of CUDA is imported before it is needed."""

from __future__ import annotations

from ..errors import UsageError
from .bindings import load
from .execute import execute
from .isolate import execute_isolated
from .probe import DeviceInfo, Probe, probe
from .request import DeviceBuffer, Request, Result

__all__ = ["DeviceBuffer", "DeviceInfo", "Probe", "Request", "Result", "launch", "probe"]


def launch(request: Request, isolate: bool = True) -> Result:
    """Carry out a launch on a GPU, in a process of its own or in this one.

    :class:`UsageError` where there is no GPU, or where it cannot make the launch.
    """
    found = probe()
    if not found.available:
        raise UsageError(f"no GPU: {found.reason}")
    result = execute_isolated(request) if isolate else execute(load(), request)
    if result.refusal:
        raise UsageError(result.refusal)
    return result

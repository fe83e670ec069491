"""ptxsim: a PTX assembler and simulator-backed verifier.

>>> import ptxsim
>>> head = ".version 8.0\\n.target sm_80\\n.address_size 64\\n"
>>> module = ptxsim.assemble(head + ".entry k() { ret; }")
>>> module.entries
('k',)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._version import __version__
from .diagnostics import Diagnostic, Severity, Span
from .errors import FindingsError, InternalError, PtxError, PtxsimError, UsageError

if TYPE_CHECKING:
    from .api import Kernel, Module, assemble, undefined
    from .core import Device, LaunchConfig, ObjectCode, launch
    from .report import Finding, Report

__all__ = [
    "Device",
    "Diagnostic",
    "Finding",
    "FindingsError",
    "InternalError",
    "Kernel",
    "LaunchConfig",
    "Module",
    "ObjectCode",
    "PtxError",
    "PtxsimError",
    "Report",
    "Severity",
    "Span",
    "UsageError",
    "__version__",
    "assemble",
    "launch",
    "undefined",
]

_LAZY = {
    "Kernel": "api", "Module": "api", "assemble": "api", "undefined": "api",
    "Finding": "report", "Report": "report", "Device": "core", "LaunchConfig": "core",
    "ObjectCode": "core", "launch": "core",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Load what needs NumPy or the parser when it is first used (start-up time)."""
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""The exceptions that ptxsim raises at its edges."""

from __future__ import annotations

from collections.abc import Sequence

from .diagnostics import Diagnostic, Source, render

__all__ = ["FindingsError", "InternalError", "PtxError", "PtxsimError", "UsageError"]


class PtxsimError(Exception):
    """Base of everything that ptxsim raises on purpose."""


class UsageError(PtxsimError):
    """A call, command line or file header that cannot be carried out (exit code 2)."""


class PtxError(PtxsimError):
    """The PTX text is invalid; ``diagnostics`` holds every message (exit code 3)."""

    def __init__(self, diagnostics: Sequence[Diagnostic], source: Source) -> None:
        self.diagnostics = tuple(diagnostics)
        self.source = source
        super().__init__("\n".join(render(d, source) for d in self.diagnostics))


class FindingsError(PtxsimError):
    """Raised by ``report.raise_for_findings()`` when a run was not clean."""


class InternalError(PtxsimError):
    """A bug of ptxsim itself; please report it with the input that led here."""

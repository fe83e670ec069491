"""PTX into code by the assembler of the driver; its log as diagnostics on the lines of the text."""

from __future__ import annotations

import re
from typing import Any

from ..diagnostics import Diagnostic, Source, Span
from ..nvidia.assembler import parse_messages
from .bindings import Driver, DriverError

__all__ = ["CODES", "Refused", "jit_diagnostics", "load_module"]

CODES = {"PTX190": "the assembler of the GPU's driver refuses the PTX"}

#: Errors of loading that are about the text itself.
_ABOUT_TEXT = ("CUDA_ERROR_INVALID_PTX", "CUDA_ERROR_INVALID_IMAGE", "CUDA_ERROR_INVALID_SOURCE",
               "CUDA_ERROR_NOT_FOUND")  # fmt: skip
#: ... and about what this driver and GPU can take.
_ABOUT_MACHINE = {
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "the GPU cannot run code for this target",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "the driver is older than the PTX version of the text",
    "CUDA_ERROR_JIT_COMPILER_NOT_FOUND": "the driver has no PTX assembler",
}

_LOG_BYTES = 1 << 16


class Refused(Exception):
    """The driver cannot load the text: ``diagnostics`` if it says where, else only a reason."""

    def __init__(self, reason: str, diagnostics: tuple[Diagnostic, ...] = ()) -> None:
        self.reason = reason
        self.diagnostics = diagnostics
        super().__init__(reason)


def load_module(driver: Driver, text: str) -> Any:
    """The module of a PTX text; :class:`Refused` with what the driver says about it."""
    log = bytearray(_LOG_BYTES)
    names = ("CU_JIT_ERROR_LOG_BUFFER", "CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES")
    options = [driver.constant("CUjit_option", name) for name in names]
    image = text.encode() + b"\0"
    try:
        return driver.call("cuModuleLoadDataEx", image, len(options), options, [log, len(log)])
    except DriverError as error:
        said = bytes(log).split(b"\0")[0].decode("utf-8", "replace")
        raise _refused(error, said, text) from None


def _refused(error: DriverError, said: str, text: str) -> Refused:
    if error.name in _ABOUT_MACHINE:
        words = " ".join(said.split())
        reason = f"{_ABOUT_MACHINE[error.name]} ({error.name})"
        return Refused(f"{reason}: {words}" if words else reason)
    if error.name not in _ABOUT_TEXT:
        return Refused(f"the driver cannot load the module: {error}")
    found = jit_diagnostics(said, text)
    if not found:
        note = f"the driver refuses the module without a reason ({error.name})"
        found = (Diagnostic("PTX190", note, Span(1, 1, 1, 1)),)
    return Refused(f"the driver refuses the module ({error.name})", found)


def jit_diagnostics(log: str, text: str) -> tuple[Diagnostic, ...]:
    """The errors of an assembler's log; each covers the line that it names.

    >>> jit_diagnostics("ptxas application ptx input, line 2; error   : No.", "a\\n  b")[0].span
    Span(line=2, column=3, end_line=2, end_column=4)
    """
    source = Source("", text)
    return tuple(
        Diagnostic("PTX190", m.text, source.code_of(m.line or _line_of(m.text, source)))
        for m in parse_messages(log)
    )


def _line_of(message: str, source: Source) -> int:
    """The first line with the name that a message without a line speaks of, else 1."""
    name = re.search(r"'([^']+)'", message)
    if name is None:
        return 1
    word = re.compile(rf"(?<![\w$%]){re.escape(name[1])}(?![\w$])")
    return next((n for n, line in enumerate(source.lines, 1) if word.search(line)), 1)

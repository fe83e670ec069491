"""NVRTC, the compiler of CUDA C++ to PTX, through cuda-python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError
from .assembler import INSTALL

__all__ = ["Compiled", "compile_cuda"]


@dataclass(frozen=True, slots=True)
class Compiled:
    """What the compiler made of a text: PTX, or None after errors, and what it said."""

    ptx: str | None
    log: str


def compile_cuda(
    text: str,
    name: str,
    target: str,
    include: Sequence[str] = (),
    define: Sequence[str] = (),
) -> Compiled:
    """Compile CUDA C++ for a target, with the lines of the text in the PTX.

    :class:`UsageError` if there is no compiler or it does not know the target.
    """
    nvrtc = _library()
    if "\0" in text:
        raise UsageError(f"cannot compile {name}: it holds a NUL character")
    options = [f"--gpu-architecture={target.replace('sm_', 'compute_')}", "--generate-line-info"]
    options += [f"--include-path={folder}" for folder in (*include, *_headers())]
    options += [f"--define-macro={word}" for word in define]
    created, program = nvrtc.nvrtcCreateProgram(text.encode(), name.encode(), 0, [], [])
    _check(nvrtc, created)
    try:
        (status,) = nvrtc.nvrtcCompileProgram(
            program, len(options), [word.encode() for word in options]
        )
        log = _text(nvrtc, program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
        if status == nvrtc.nvrtcResult.NVRTC_ERROR_COMPILATION:
            return Compiled(None, log)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            said = " ".join(log.split()) or status.name
            raise UsageError(f"NVRTC cannot compile {name} for {target}: {said}")
        ptx = _text(nvrtc, program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
        return Compiled(ptx, log)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _library() -> Any:
    """The bindings, once the library behind them answers."""
    try:
        from cuda.bindings import nvrtc

        # a library that is missing shows at the first call
        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError, OSError):
        raise UsageError(f"CUDA C++ needs NVRTC, which is not here; {INSTALL}") from None
    return nvrtc


def _headers() -> list[str]:
    """The folder of CUDA's own headers (``cuda_fp16.h``), which NVRTC does not bring along."""
    try:
        from cuda.pathfinder import find_nvidia_header_directory
    except ImportError:
        return []
    folder = find_nvidia_header_directory("cudart")
    return [] if folder is None else [folder]


def _text(nvrtc: Any, program: Any, size: Any, get: Any) -> str:
    status, length = size(program)
    _check(nvrtc, status)
    # the bindings write into the bytes that they are given
    data = bytes(length)
    _check(nvrtc, *get(program, data))
    return data.decode("utf-8", "replace").rstrip("\0")


def _check(nvrtc: Any, status: Any) -> None:
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise UsageError(f"NVRTC: {status.name}")

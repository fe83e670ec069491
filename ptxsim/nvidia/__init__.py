"""NVIDIA's assembler and its CUDA C++ compiler, which need no GPU; both are optional.

``ptxas`` is asked as a program; nvJitLink and NVRTC are libraries that cuda-python loads.  Nothing
of cuda-python is imported before it is needed.
"""

from __future__ import annotations

from .assembler import Assembler, Message, Verdict, find_assembler, retarget, target_of
from .nvrtc import Compiled, compile_cuda

__all__ = [
    "Assembler",
    "Compiled",
    "Message",
    "Verdict",
    "compile_cuda",
    "find_assembler",
    "retarget",
    "target_of",
]

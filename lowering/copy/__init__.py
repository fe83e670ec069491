"""Copies of tiles: registers to and from shared memory, global memory to and from shared memory."""

from __future__ import annotations

from .api import COPY_VARIANTS, Lowered, LoweredMemory, lower_copy, lower_memory_copy
from .kernel import copy_kernel
from .memory import MEMORY_VARIANTS, MemoryCopy, MemoryPlan
from .plan import Move, Part, Plan, wavefronts
from .problem import DTYPES, SCOPES, Copy

__all__ = [
    "COPY_VARIANTS",
    "DTYPES",
    "MEMORY_VARIANTS",
    "SCOPES",
    "Copy",
    "Lowered",
    "LoweredMemory",
    "MemoryCopy",
    "MemoryPlan",
    "Move",
    "Part",
    "Plan",
    "copy_kernel",
    "lower_copy",
    "lower_memory_copy",
    "wavefronts",
]

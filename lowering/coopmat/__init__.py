"""Cooperative matrices: a kernel IR, its text form, an oracle, and its lowering to wmma and mma."""

from __future__ import annotations

from .api import VIAS, Lowered, lower_coopmat
from .builder import KernelBuilder
from .ir import Kernel
from .oracle import evaluate
from .refusals import REFUSALS, Refusal, Refused
from .text import TextError, parse, to_text
from .vocabulary import Config, Fragment, Shape

__all__ = [
    "REFUSALS",
    "VIAS",
    "Config",
    "Fragment",
    "Kernel",
    "KernelBuilder",
    "Lowered",
    "Refusal",
    "Refused",
    "Shape",
    "TextError",
    "evaluate",
    "lower_coopmat",
    "parse",
    "to_text",
]

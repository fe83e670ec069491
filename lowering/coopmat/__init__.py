"""Cooperative matrices: the kernel IR, its words and its text form."""

from __future__ import annotations

from .ir import Kernel
from .text import TextError, parse, to_text
from .vocabulary import Config, Fragment, Shape

__all__ = ["Config", "Fragment", "Kernel", "Shape", "TextError", "parse", "to_text"]

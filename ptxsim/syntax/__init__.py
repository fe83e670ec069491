"""The front end: PTX text to syntax tree and back.

``parse`` is imported when first used, so that start-up does not pay for the parser generator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .grammar import grammar_text
from .printer import to_text

if TYPE_CHECKING:
    from .formatter import format_text
    from .parser import parse, parse_statement

__all__ = ["format_text", "grammar_text", "parse", "parse_statement", "to_text"]


def __getattr__(name: str) -> Any:
    if name in ("parse", "parse_statement"):
        from . import parser

        return getattr(parser, name)
    if name == "format_text":
        from .formatter import format_text

        return format_text
    raise AttributeError(name)

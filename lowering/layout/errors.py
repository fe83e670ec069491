"""The one exception of the layout algebra.

An operation that may have no result (no slice, no grouping) raises ``LayoutError`` with the
numbers that stand in the way; it never answers ``None``.
"""

from __future__ import annotations

__all__ = ["LayoutError", "LayoutTextError"]


class LayoutError(ValueError):
    """A layout that is ill-formed, or an operation that has no result for it."""


class LayoutTextError(LayoutError):
    """Layout text that does not parse; ``column`` counts from 1."""

    def __init__(self, message: str, text: str, column: int) -> None:
        self.column = column
        start = max(0, column - 61)
        excerpt = "".join(c if c.isprintable() else "?" for c in text[start : start + 80])
        pointer = " " * (column - 1 - start) + "^"
        super().__init__(f"layout text, column {column}: {message}\n  {excerpt}\n  {pointer}")

"""A syntax tree as indented text, for ``ptxsim dump --stage=ast``."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

__all__ = ["tree_text"]


def tree_text(node: Any) -> str:
    """One line a node: its class, place and plain fields; its parts indented below.

    >>> from ptxsim.syntax.ast import Name, Unary
    >>> print(tree_text(Unary("-", Name("a"))), end="")
    Unary operator='-'
      operand: Name text='a'
    """
    lines: list[str] = []
    stack: list[tuple[int, str, Any]] = [(0, "", node)]
    while stack:
        depth, label, item = stack.pop()
        if not is_dataclass(item):
            lines.append("  " * depth + label + repr(item))
            continue
        words, parts = [], []
        for f in fields(item):
            value = getattr(item, f.name)
            if "span" in f.name or value is None or value == ():
                continue
            if is_dataclass(value):
                parts.append((depth + 1, f"{f.name}: ", value))
            elif isinstance(value, tuple) and any(is_dataclass(v) for v in value):
                parts += [(depth + 1, f"{f.name}: ", v) for v in value]
            else:
                words.append(f"{f.name}={value!r}")
        span = getattr(item, "span", None)
        place = f" @{span}" if span is not None and span.line else ""
        lines.append("  " * depth + " ".join([label + type(item).__name__ + place, *words]))
        stack += reversed(parts)
    return "".join(line + "\n" for line in lines)

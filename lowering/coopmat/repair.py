"""Kernels with mistakes, made fit to be judged further: what is wrong stands for any value."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from .ir import (
    SCALARS,
    Assign,
    Block,
    Const,
    Element,
    For,
    If,
    Let,
    Shared,
    Statement,
    Store,
    While,
)

__all__ = ["ANY_VALUE", "repaired"]

#: Arrays whose elements may be anything; no kernel can name them.
ANY_VALUE = tuple(Shared(f"?{type_}", type_, 1) for type_ in SCALARS)


def _any(type_: str) -> Element:
    return Element(f"?{type_ if type_ in SCALARS else 'int32'}", Const(0))


def repaired(block: Block, wrong: Container[int]) -> Block:
    """A block whose statements of the identities ``wrong`` have values that may be anything.

    Without any, statements keep their identities.
    """
    if not wrong:
        return block
    return replace(block, statements=tuple(r for s in block.statements for r in _repair(s, wrong)))


def _repair(s: Statement, wrong: Container[int]) -> list[Statement]:
    bad = id(s) in wrong
    match s:
        case Let(_, type_):
            known = type_ if type_ in SCALARS else "int32"
            return [replace(s, type=known, value=_any(known))] if bad else [s]
        case Assign() | Store():
            return [] if bad else [s]
        case If(condition, then, other):
            other = None if other is None else repaired(other, wrong)
            condition = _any("bool") if bad else condition
            return [replace(s, condition=condition, then=repaired(then, wrong), other=other)]
        case While(condition, body):
            condition = _any("bool") if bad else condition
            return [replace(s, condition=condition, body=repaired(body, wrong))]
        case For(_, low, high, body):
            low, high = (_any("int32"), _any("int32")) if bad else (low, high)
            return [replace(s, low=low, high=high, body=repaired(body, wrong))]
        case Block():
            return [repaired(s, wrong)]
        case _:
            return [s]

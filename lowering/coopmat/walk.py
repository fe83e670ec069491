"""Walks over the kernel IR: the parts of a statement, and the names that it reads and writes."""

from __future__ import annotations

from collections.abc import Iterator

from .ir import (
    Assign,
    Binary,
    Block,
    Cast,
    Element,
    Expression,
    For,
    FragmentDecl,
    FragmentLoad,
    FragmentStore,
    If,
    Let,
    MulAdd,
    Return,
    Statement,
    Store,
    Unary,
    Var,
    While,
)

__all__ = [
    "CooperativeMatrix",
    "assigned",
    "blocks",
    "expressions",
    "is_cooperative",
    "names",
    "reads_memory",
    "returns",
    "statements",
    "subexpressions",
]

#: The statements that all lanes of a warp execute together.
CooperativeMatrix = FragmentLoad | FragmentStore | MulAdd


def blocks(statement: Statement) -> tuple[Block, ...]:
    """The blocks directly inside a statement."""
    match statement:
        case If(_, then, other):
            return (then,) if other is None else (then, other)
        case For(_, _, _, body) | While(_, body):
            return (body,)
        case Block():
            return (statement,)
        case _:
            return ()


def statements(block: Block) -> Iterator[Statement]:
    """All statements of a block at every depth, in the order of the text."""
    for statement in block.statements:
        yield statement
        for inner in blocks(statement):
            yield from statements(inner)


def expressions(statement: Statement) -> tuple[Expression, ...]:
    """The expressions directly in a statement."""
    match statement:
        case Let(_, _, value) | Assign(_, value):
            return (value,)
        case Store(_, index, value):
            return (index, value)
        case If(condition) | While(condition):
            return (condition,)
        case For(_, low, high):
            return (low, high)
        case FragmentLoad(_, _, _, index, stride) | FragmentStore(_, _, _, index, stride):
            return (index, stride)
        case _:
            return ()


def subexpressions(expression: Expression) -> Iterator[Expression]:
    """An expression and all its parts, itself first."""
    yield expression
    match expression:
        case Binary(_, left, right):
            yield from subexpressions(left)
            yield from subexpressions(right)
        case Unary(_, operand) | Cast(_, operand) | Element(_, operand):
            yield from subexpressions(operand)
        case _:
            pass


def names(expression: Expression) -> frozenset[str]:
    """The variables that an expression reads."""
    return frozenset(e.name for e in subexpressions(expression) if isinstance(e, Var))


def reads_memory(expression: Expression) -> bool:
    """Whether an element of a buffer is read, which another thread may change."""
    return any(isinstance(e, Element) for e in subexpressions(expression))


def assigned(block: Block) -> frozenset[str]:
    """The variables that statements of a block may give a new value, loop variables included."""
    return frozenset(s.name for s in statements(block) if isinstance(s, Assign | For | Let))


def is_cooperative(statement: Statement) -> bool:
    """Whether a statement is one of cooperative matrices, declarations not counted."""
    return isinstance(statement, CooperativeMatrix)


def returns(block: Block) -> bool:
    """Whether a thread may end in a block."""
    return any(isinstance(s, Return) for s in statements(block))


def uses_fragments(block: Block) -> bool:
    """Whether a block has statements of cooperative matrices, declarations included."""
    return any(is_cooperative(s) or isinstance(s, FragmentDecl) for s in statements(block))

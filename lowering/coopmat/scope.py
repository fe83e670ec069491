"""Types of the expressions of the kernel IR, and the names that they can use."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from .ir import (
    BINARY,
    INTRINSICS,
    SCALARS,
    UNARY,
    Binary,
    Cast,
    Const,
    Element,
    Intrinsic,
    Kernel,
    Length,
    Local,
    Unary,
    Var,
)

__all__ = ["TypeErrors", "Types", "type_of"]

_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_INTEGERS = ("int32", "int64")
_MAX_DEPTH = 200
#: Larger numbers have no float64.
_MAX_FLOAT = int(sys.float_info.max)


class TypeErrors(Exception):
    """What is wrong in an expression: codes of refusals, things and reasons."""

    def __init__(self, *found: tuple[str, str, str]) -> None:
        self.found = found
        super().__init__("; ".join(f"{what}: {reason}" for _, what, reason in found))


def _wrong(what: str, reason: str) -> TypeErrors:
    return TypeErrors(("R28", what, reason))


@dataclass
class Types:
    """The variables in scope, innermost block last, and the buffers."""

    buffers: dict[str, str]
    lengths: frozenset[str]
    scopes: list[dict[str, tuple[str, bool]]] = field(default_factory=list)

    @classmethod
    def of(cls, kernel: Kernel) -> Types:
        """What the statements of a kernel see at first."""
        buffers = {p.name: p.type for p in kernel.params if p.buffer}
        buffers |= {a.name: a.element for a in kernel.arrays}
        lengths = [x.name for x in (*kernel.params, *kernel.arrays) if x.name in buffers]
        local = [a.name for a in kernel.arrays if isinstance(a, Local)]
        scalars = {p.name: (p.type, False) for p in kernel.params if not p.buffer}
        return cls(buffers, frozenset(lengths) - frozenset(local), [scalars])

    def push(self) -> None:
        """Enter a block."""
        self.scopes.append({})

    def pop(self) -> None:
        """Leave a block."""
        self.scopes.pop()

    def declare(self, name: str, type_: str, mutable: bool) -> bool:
        """A new variable; False if the block has one of this name."""
        new = name not in self.scopes[-1]
        self.scopes[-1][name] = (type_, mutable)
        return new

    def find(self, name: str) -> tuple[str, bool] | None:
        """Type of a variable, and whether it can be assigned to."""
        return next((s[name] for s in reversed(self.scopes) if name in s), None)

    def element(self, buffer: str) -> str:
        """The type of an element of a buffer that is read or written by itself."""
        if buffer not in self.buffers:
            raise TypeErrors(("R21", f"buffer '{buffer}'", "no buffer of the kernel has the name"))
        element = self.buffers[buffer]
        if element not in SCALARS:
            reason = f"{element} has no arithmetic; only cooperative matrices load and store it"
            raise TypeErrors(("R17", f"buffer '{buffer}'", reason))
        return element


def type_of(expression: object, types: Types, depth: int = 0) -> str:
    """The type of an expression; :class:`TypeErrors` says what is wrong."""
    if depth > _MAX_DEPTH:
        raise _wrong("expression", f"nested deeper than {_MAX_DEPTH} levels")

    def inner(e: object) -> str:
        return type_of(e, types, depth + 1)

    match expression:
        case Const(value, type_):
            return _constant(value, type_)
        case Var(name):
            found = types.find(name)
            if found is None:
                raise _wrong(f"'{name}'", "not declared")
            return found[0]
        case Intrinsic(name):
            if name not in INTRINSICS:
                raise _wrong(f"'{name}'", f"no intrinsic; there are {', '.join(INTRINSICS)}")
            return "int32"
        case Length(buffer):
            if buffer not in types.lengths:
                raise TypeErrors(("R21", f"buffer '{buffer}'", "no buffer with a length"))
            return "int32"
        case Element(buffer, index):
            if inner(index) not in _INTEGERS:
                raise _wrong(f"index of '{buffer}'", "must be int32 or int64")
            return types.element(buffer)
        case Cast(type_, operand):
            if type_ not in SCALARS:
                raise _wrong(f"cast to {type_}", f"no such type; there are {', '.join(SCALARS)}")
            inner(operand)
            return type_
        case Unary(op, operand):
            return _unary(op, inner(operand))
        case Binary(op, left, right):
            return _binary(op, *_both(left, right, inner))
    raise _wrong(f"{type(expression).__name__}", "no expression")


def _both(left: object, right: object, inner: Callable[[object], str]) -> list[str]:
    """The types of both sides; what is wrong in either is said together."""
    found: list[tuple[str, str, str]] = []
    types = []
    for side in (left, right):
        try:
            types.append(inner(side))
        except TypeErrors as errors:
            found += errors.found
    if found:
        raise TypeErrors(*found)
    return types


def _constant(value: int | float | bool, type_: str) -> str:
    bits = {"int32": 32, "int64": 64}.get(type_)
    if type_.startswith("float"):
        fits = isinstance(value, int | float) and not isinstance(value, bool)
    else:
        fits = isinstance(value, int) and (type_ == "bool") == isinstance(value, bool)
    if type_ not in SCALARS or not fits:
        raise _wrong(f"constant {value!r}", f"is no {type_}")
    if not bits and type_ != "bool" and abs(value) > _MAX_FLOAT:
        raise _wrong(f"constant {str(value)[:24]}", f"does not fit into {type_}")
    if bits and not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise _wrong(f"constant {value}", f"does not fit into {type_}")
    return type_


def _unary(op: str, operand: str) -> str:
    allowed = {"neg": SCALARS[:4], "not": ("bool",), "bitnot": _INTEGERS}.get(op)
    if allowed is None:
        raise _wrong(f"operator '{op}'", f"there is none; there are {', '.join(UNARY)}")
    if operand not in allowed:
        raise _wrong(f"'{op}' of {operand}", f"it takes {', '.join(allowed)}")
    return operand


def _binary(op: str, left: str, right: str) -> str:
    if op not in BINARY:
        raise _wrong(f"operator '{op}'", f"there is none; there are {', '.join(BINARY)}")
    if left != right:
        raise _wrong(f"'{op}' of {left} and {right}", "both sides must have one type")
    allowed: tuple[str, ...] = SCALARS[:4]
    if op in ("and", "or"):
        allowed = ("bool",)
    elif op in ("eq", "ne"):
        allowed = SCALARS
    elif op in ("mod", "shl", "shr", "bitand", "bitor", "bitxor"):
        allowed = _INTEGERS
    if left not in allowed:
        raise _wrong(f"'{op}' of {left}", f"it takes {', '.join(allowed)}")
    return "bool" if op in _COMPARISONS else left

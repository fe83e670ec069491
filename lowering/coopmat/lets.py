"""Variables of one value, replaced by the expressions that they were given.

Two checks are the same, and a check can move before a loop, where their operands are the same
values, whatever names the kernel gave to them on the way.
"""

from __future__ import annotations

from dataclasses import replace

from .ir import Binary, Cast, Expression, Let, Statement, Unary, Var
from .walk import names, reads_memory, subexpressions

__all__ = ["Lets"]

#: Expressions larger than this stay under their name.
_MAX_SIZE = 32


class Lets:
    """The variables of one value that are in scope, and what each stands for."""

    def __init__(self, known: dict[str, Expression] | None = None) -> None:
        self._known: dict[str, Expression] = dict(known or {})
        self._mutable: set[str] = set()

    def inner(self) -> Lets:
        """The same for a block inside."""
        new = Lets(self._known)
        new._mutable = set(self._mutable)
        return new

    def hide(self, name: str) -> None:
        """A new variable of this name: what uses an old one of the name cannot be written here."""
        self._mutable.discard(name)
        self._known = {n: e for n, e in self._known.items() if n != name and name not in names(e)}

    def see(self, s: Statement) -> None:
        """A statement of the block has been executed."""
        if not isinstance(s, Let):
            return
        value = self.plain(s.value)
        self.hide(s.name)
        if s.mutable:
            self._mutable.add(s.name)
        elif not (
            reads_memory(value)
            or names(value) & (self._mutable | {s.name})
            or sum(1 for _ in subexpressions(value)) > _MAX_SIZE
        ):
            self._known[s.name] = value

    def plain(self, e: Expression) -> Expression:
        """An expression with what the variables stand for."""
        match e:
            case Var(name):
                return self._known.get(name, e)
            case Binary(_, left, right):
                return replace(e, left=self.plain(left), right=self.plain(right))
            case Unary(_, operand) | Cast(_, operand):
                return replace(e, operand=self.plain(operand))
            case _:
                return e

"""Sums of multiples of values: what an integer expression is where it is linear."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from .integers import Expr, Int, Op

__all__ = ["Linear", "linear"]


@dataclass(frozen=True)
class Linear:
    """``const`` and the sum of ``factor * atom``; an atom is an expression that is not linear."""

    const: int = 0
    terms: tuple[tuple[Expr, int], ...] = ()

    @cached_property
    def key(self) -> tuple[int, frozenset[tuple[Expr, int]]]:
        """What is the same for equal sums, whatever their order."""
        return self.const, frozenset(self.terms)

    def __add__(self, other: Linear) -> Linear:
        return _sum(self.const + other.const, (*self.terms, *other.terms))

    def __mul__(self, factor: int) -> Linear:
        return _sum(self.const * factor, ((a, f * factor) for a, f in self.terms))

    def plus(self, const: int) -> Linear:
        """The sum with a constant added."""
        return Linear(self.const + const, self.terms)

    def where(self, keep: Callable[[Expr], bool]) -> Linear:
        """The terms of some atoms, without the constant."""
        return Linear(0, tuple((a, f) for a, f in self.terms if keep(a)))

    def factor(self, atom: Expr) -> int:
        """How often an atom is in the sum."""
        return sum(f for a, f in self.terms if a == atom)


def _sum(const: int, terms: Iterable[tuple[Expr, int]]) -> Linear:
    total: dict[Expr, int] = {}
    for atom, factor in terms:
        total[atom] = total.get(atom, 0) + factor
    return Linear(const, tuple((a, f) for a, f in total.items() if f))


def linear(e: Expr) -> Linear:
    """An expression as a sum.

    >>> from .integers import Symbol
    >>> print(linear(4 * (Symbol("i") + 2) - Symbol("n")).const)
    8
    """
    if isinstance(e, Int):
        return Linear(e.value)
    if isinstance(e, Op) and e.name in ("+", "-", "*"):
        left, right = linear(e.left), linear(e.right)
        if e.name == "+":
            return left + right
        if e.name == "-":
            return left + right * -1
        for a, b in ((left, right), (right, left)):
            if not b.terms:
                return a * b.const
    return Linear(0, ((e, 1),))

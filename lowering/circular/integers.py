"""Integer expressions over named values: symbolic extents, indices and predicates of loops.

Built with the functions of this module or with operators, which fold constants.  Division rounds
towards minus infinity, as in NumPy; comparisons and ``&`` give 0 or 1.

>>> k = Symbol("K")
>>> tiles = ceil_div(k, 32)
>>> print(tiles)
(K + 31) // 32
>>> evaluate(tiles, {"K": 65})
3
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, Union

__all__ = [
    "Expr",
    "Int",
    "Op",
    "Range",
    "Select",
    "Symbol",
    "bounds",
    "ceil_div",
    "evaluate",
    "expr",
    "maximum",
    "minimum",
    "multiple",
    "select",
    "substitute",
    "symbols",
]

Expr: TypeAlias = Union["Int", "Symbol", "Op", "Select"]

_OPS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "min": min,
    "max": max,
    "<": lambda a, b: int(a < b),
    "==": lambda a, b: int(a == b),
    "&": lambda a, b: int(bool(a) and bool(b)),
}
_STRENGTH = {"&": 1, "<": 2, "==": 2, "+": 3, "-": 3, "*": 4, "//": 4, "%": 4}


class _Operators:
    """The operators of expressions."""

    __slots__ = ()

    def __add__(self, other: Expr | int) -> Expr:
        return _fold("+", self, other)

    def __radd__(self, other: int) -> Expr:
        return _fold("+", other, self)

    def __sub__(self, other: Expr | int) -> Expr:
        return _fold("-", self, other)

    def __rsub__(self, other: int) -> Expr:
        return _fold("-", other, self)

    def __mul__(self, other: Expr | int) -> Expr:
        return _fold("*", self, other)

    def __rmul__(self, other: int) -> Expr:
        return _fold("*", other, self)

    def __floordiv__(self, other: Expr | int) -> Expr:
        return _fold("//", self, other)

    def __mod__(self, other: Expr | int) -> Expr:
        return _fold("%", self, other)

    def __lt__(self, other: Expr | int) -> Expr:
        return _fold("<", self, other)

    def __and__(self, other: Expr | int) -> Expr:
        return _fold("&", self, other)

    def equals(self, other: Expr | int) -> Expr:
        """1 where both have the same value."""
        return _fold("==", self, other)


@dataclass(frozen=True, slots=True)
class Int(_Operators):
    """A constant."""

    value: int

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Symbol(_Operators):
    """A named value: a size that the launch gives, a loop variable, a special register."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Op(_Operators):
    """An operation; ``name`` is one of ``+ - * // % min max < == &``."""

    name: str
    left: Expr
    right: Expr

    def __str__(self) -> str:
        if self.name in ("min", "max"):
            return f"{self.name}({self.left}, {self.right})"
        mine = _STRENGTH[self.name]
        left, right = _wrapped(self.left, mine), _wrapped(self.right, mine + 1)
        return f"{left} {self.name} {right}"


@dataclass(frozen=True, slots=True)
class Select(_Operators):
    """``yes`` where the condition is not 0, else ``no``."""

    condition: Expr
    yes: Expr
    no: Expr

    def __str__(self) -> str:
        return f"({self.condition} ? {self.yes} : {self.no})"


def _wrapped(e: Expr, strength: int) -> str:
    if isinstance(e, Op) and _STRENGTH.get(e.name, 9) < strength:
        return f"({e})"
    return str(e)


def expr(value: Expr | int) -> Expr:
    """An expression of a number or expression."""
    return Int(value) if isinstance(value, int) else value


def _fold(name: str, a: object, b: object) -> Expr:
    """An operation, simplified where one side is a constant that decides."""
    left, right = expr(a), expr(b)  # type: ignore[arg-type]
    if isinstance(left, Int) and isinstance(right, Int) and not _undefined(name, right):
        return Int(_OPS[name](left.value, right.value))
    simple = _simple(name, left, right)
    if simple is not None:
        return simple
    return Op(name, left, right)


def _undefined(name: str, right: Int) -> bool:
    return name in ("//", "%") and right.value == 0


def _simple(name: str, left: Expr, right: Expr) -> Expr | None:
    if name in ("+", "-") and right == Int(0):
        return left
    if name == "+" and left == Int(0):
        return right
    if name in ("+", "*", "min", "max") and isinstance(left, Int):
        return _fold(name, right, left)
    if name == "-" and left == right:
        return Int(0)
    if name == "*" and Int(0) in (left, right):
        return Int(0)
    if name in ("*", "&") and left == Int(1):
        return right
    if name in ("*", "//", "&") and right == Int(1):
        return left
    if name == "%" and right == Int(1):
        return Int(0)
    if name in ("min", "max", "&") and left == right:
        return left
    if name == "&" and Int(0) in (left, right):
        return Int(0)
    if name in ("//", "%") and isinstance(right, Int) and right.value > 0:
        return _divided(name, left, right.value)
    if name in ("+", "-") and isinstance(right, Int) and isinstance(left, Op):
        sign = 1 if name == "+" else -1
        if left.name in ("+", "-") and isinstance(left.right, Int):
            inner = left.right.value if left.name == "+" else -left.right.value
            total = inner + sign * right.value
            return left.left + total if total >= 0 else left.left - -total
    return None


def _divided(name: str, left: Expr, by: int) -> Expr | None:
    """The quotient or remainder of a sum of which a term is a multiple of the divisor."""
    if not isinstance(left, Op):
        return None
    if left.name == "*" and isinstance(left.right, Int) and left.right.value % by == 0:
        return left.left * (left.right.value // by) if name == "//" else Int(0)
    if left.name == "+":
        for term, rest in ((left.left, left.right), (left.right, left.left)):
            whole = _whole(term, by)
            if whole is not None:
                return whole + rest // by if name == "//" else rest % by
    return None


def _whole(term: Expr, by: int) -> Expr | None:
    """A multiple of a number, divided by it; None if that is not seen."""
    if isinstance(term, Int):
        return Int(term.value // by) if term.value % by == 0 else None
    if isinstance(term, Op) and term.name == "*" and isinstance(term.right, Int):
        return term.left * (term.right.value // by) if term.right.value % by == 0 else None
    return None


def minimum(a: Expr | int, b: Expr | int) -> Expr:
    """The smaller of two values."""
    return _fold("min", a, b)


def maximum(a: Expr | int, b: Expr | int) -> Expr:
    """The greater of two values."""
    return _fold("max", a, b)


def ceil_div(a: Expr | int, b: Expr | int) -> Expr:
    """The quotient rounded up, for a positive divisor."""
    return (expr(a) + expr(b) - 1) // b


def select(condition: Expr | int, yes: Expr | int, no: Expr | int) -> Expr:
    """One of two values."""
    test, a, b = expr(condition), expr(yes), expr(no)
    if isinstance(test, Int):
        return a if test.value else b
    return a if a == b else Select(test, a, b)


def evaluate(e: Expr | int, values: Mapping[str, int]) -> int:
    """The value of an expression; :class:`KeyError` for a symbol without a value."""
    if isinstance(e, int):
        return e
    if isinstance(e, Int):
        return e.value
    if isinstance(e, Symbol):
        return values[e.name]
    if isinstance(e, Select):
        return evaluate(e.yes if evaluate(e.condition, values) else e.no, values)
    return _OPS[e.name](evaluate(e.left, values), evaluate(e.right, values))


def substitute(e: Expr, values: Mapping[str, Expr | int]) -> Expr:
    """The expression with some symbols replaced."""
    if isinstance(e, Int):
        return e
    if isinstance(e, Symbol):
        return expr(values.get(e.name, e))
    if isinstance(e, Select):
        parts = (substitute(p, values) for p in (e.condition, e.yes, e.no))
        return select(*parts)
    return _fold(e.name, substitute(e.left, values), substitute(e.right, values))


def symbols(e: Expr) -> Iterator[str]:
    """The names in an expression, each as often as it stands there."""
    if isinstance(e, Symbol):
        yield e.name
    elif isinstance(e, Op):
        yield from symbols(e.left)
        yield from symbols(e.right)
    elif isinstance(e, Select):
        for part in (e.condition, e.yes, e.no):
            yield from symbols(part)


def multiple(e: Expr, known: Mapping[str, int]) -> int:
    """A number that divides an expression, 0 if it is always 0."""
    if isinstance(e, Int):
        return abs(e.value)
    if isinstance(e, Symbol):
        return known.get(e.name, 1)
    if isinstance(e, Select):
        return math.gcd(multiple(e.yes, known), multiple(e.no, known))
    left, right = multiple(e.left, known), multiple(e.right, known)
    if e.name == "*":
        return left * right
    if e.name in ("+", "-", "min", "max", "%"):
        return math.gcd(left, right)
    if e.name == "//" and isinstance(e.right, Int) and left % e.right.value == 0:
        return left // e.right.value
    return 1


#: Least and greatest value; None where there is no bound.
Range: TypeAlias = tuple[int | None, int | None]


def bounds(e: Expr, ranges: Mapping[str, Range]) -> Range:
    """Bounds of an expression whose symbols lie in ``ranges``; those without one are open."""
    if isinstance(e, Int):
        return e.value, e.value
    if isinstance(e, Symbol):
        return ranges.get(e.name, (None, None))
    if isinstance(e, Select):
        return _hull(bounds(e.yes, ranges), bounds(e.no, ranges))
    a, b = bounds(e.left, ranges), bounds(e.right, ranges)
    return _RULES[e.name](a, b)


def _hull(a: Range, b: Range) -> Range:
    low = None if a[0] is None or b[0] is None else min(a[0], b[0])
    high = None if a[1] is None or b[1] is None else max(a[1], b[1])
    return low, high


def _sum(a: Range, b: Range) -> Range:
    low = None if a[0] is None or b[0] is None else a[0] + b[0]
    high = None if a[1] is None or b[1] is None else a[1] + b[1]
    return low, high


def _negated(a: Range) -> Range:
    return None if a[1] is None else -a[1], None if a[0] is None else -a[0]


def _product(a: Range, b: Range) -> Range:
    if a[0] is not None and b[0] is not None and min(a[0], b[0]) >= 0:
        high = None if a[1] is None or b[1] is None else a[1] * b[1]
        return a[0] * b[0], high
    if a[0] is None or a[1] is None or b[0] is None or b[1] is None:
        return None, None
    corners = [x * y for x in (a[0], a[1]) for y in (b[0], b[1])]
    return min(corners), max(corners)


def _quotient(a: Range, b: Range) -> Range:
    if b[0] is None or b[0] != b[1] or b[0] <= 0:
        return (0, a[1]) if a[0] is not None and a[0] >= 0 and (b[0] or 0) > 0 else (None, None)
    low = None if a[0] is None else a[0] // b[0]
    high = None if a[1] is None else a[1] // b[0]
    return low, high


def _remainder(a: Range, b: Range) -> Range:
    if b[0] is None or b[0] <= 0:
        return None, None
    if None not in a and b[0] == b[1] and a[0] // b[0] == a[1] // b[0]:  # type: ignore[operator]
        return a[0] % b[0], a[1] % b[0]  # type: ignore[operator]
    return 0, None if b[1] is None else b[1] - 1


def _least(a: Range, b: Range) -> Range:
    highs = [h for h in (a[1], b[1]) if h is not None]
    low = None if a[0] is None or b[0] is None else min(a[0], b[0])
    return low, min(highs) if highs else None


def _greatest(a: Range, b: Range) -> Range:
    low, high = _least(_negated(a), _negated(b))
    return _negated((low, high))


def _less(a: Range, b: Range) -> Range:
    if a[1] is not None and b[0] is not None and a[1] < b[0]:
        return 1, 1
    if a[0] is not None and b[1] is not None and a[0] >= b[1]:
        return 0, 0
    return 0, 1


def _both(a: Range, b: Range) -> Range:
    if a == (1, 1) and b == (1, 1):
        return 1, 1
    return (0, 0) if (0, 0) in (a, b) else (0, 1)


_RULES: dict[str, Callable[[Range, Range], Range]] = {
    "+": _sum,
    "-": lambda a, b: _sum(a, _negated(b)),
    "*": _product,
    "//": _quotient,
    "%": _remainder,
    "min": _least,
    "max": _greatest,
    "<": _less,
    "==": lambda a, b: (1, 1) if a == b and a[0] == a[1] is not None else (0, 1),
    "&": _both,
}

"""What is known while a loop nest is built: ranges of values, and where conditions are computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from .integers import Expr, Int, Range, Symbol, bounds, multiple, symbols
from .loops import Block, Define, Node, Why

__all__ = ["Context"]


@dataclass
class _Scope:
    """A block of statements that starts with definitions; ``names`` are new in it."""

    names: set[str]
    head: list[Define] = field(default_factory=list)
    known: dict[tuple[Expr, Why], str] = field(default_factory=dict)


class Context:
    """Names of values, and the scopes from the kernel to the innermost loop."""

    def __init__(self, multiples: dict[str, int]) -> None:
        self.ranges: dict[str, Range] = {}
        self.multiples = dict(multiples)
        self._scopes = [_Scope(set())]
        self._used: dict[str, int] = {}
        #: variables of unrolled loops on which conditions depend that no serial loop changes
        self.wanted: set[str] = set()
        self.serial = 0

    def name(self, text: str) -> str:
        """A name that is new."""
        count = self._used.get(text, 0)
        self._used[text] = count + 1
        return f"{text}.{count}" if count else text

    def size(self, name: str) -> None:
        """A size that the launch gives; like all sizes it is below 2**31."""
        self.ranges[name] = (0, (1 << 31) - 1)
        self._scopes[0].names.add(name)

    def special(self, name: str, count: Expr) -> Symbol:
        """The number of a thread or CTA."""
        high = self.range(count)[1]
        self.ranges[name] = (0, None if high is None else max(high - 1, 0))
        self._scopes[0].names.add(name)
        return Symbol(name)

    def define(self, text: str, value: Expr, factor: int = 1) -> Expr:
        """A value of the whole kernel by name; ``factor`` divides it."""
        if isinstance(value, Int):
            return value
        name = self.name(text)
        self.ranges[name] = bounds(value, self.ranges)
        self.multiples[name] = factor
        self._scopes[0].names.add(name)
        self._scopes[0].head.append(Define(name, value))
        return Symbol(name)

    def range(self, value: Expr) -> Range:
        """Bounds of a value."""
        return bounds(value, self.ranges)

    def divides(self, number: int, value: Expr) -> bool:
        """Whether a number divides a value, whatever the sizes are."""
        return multiple(value, self.multiples) % number == 0

    def decided(self, condition: Expr) -> bool | None:
        """Whether a condition holds, where that is the same for all values."""
        low, high = bounds(condition, self.ranges)
        if low is not None and low >= 1:
            return True
        return False if high == 0 else None

    @contextmanager
    def scope(self, var: str, low: Expr, high: Expr, serial: bool) -> Iterator[None]:
        """The body of a loop over [low, high)."""
        first, last = self.range(low)[0], self.range(high)[1]
        self.ranges[var] = (first, None if last is None else last - 1)
        self._scopes.append(_Scope({var}))
        self.serial += serial
        try:
            yield
        finally:
            self.serial -= serial
            self._scopes.pop()

    def headed(self, nodes: list[Node]) -> Block:
        """The block of the innermost scope: its definitions, then statements."""
        return (*self._scopes[-1].head, *nodes)

    def condition(self, value: Expr, why: Why) -> Symbol:
        """A condition that is computed once, in the outermost block that can compute it."""
        needed = set(symbols(value))
        depth = max((d for d, s in enumerate(self._scopes) if s.names & needed), default=0)
        scope = self._scopes[depth]
        if self.serial:
            self.wanted |= scope.names
        name = scope.known.get((value, why))
        if name is None:
            name = scope.known[value, why] = self.name(f"{why.value}")
            self.ranges[name] = (0, 1)
            scope.names.add(name)
            scope.head.append(Define(name, value, why))
        return Symbol(name)

    def state(self) -> list[tuple[int, set[str], dict[tuple[Expr, Why], str]]]:
        """What :meth:`restore` needs to forget later conditions."""
        return [(len(s.head), set(s.names), dict(s.known)) for s in self._scopes]

    def restore(self, state: list[tuple[int, set[str], dict[tuple[Expr, Why], str]]]) -> None:
        """Forget the conditions since a state was taken."""
        for scope, (length, names, known) in zip(self._scopes, state, strict=True):
            del scope.head[length:]
            scope.names, scope.known = names, known

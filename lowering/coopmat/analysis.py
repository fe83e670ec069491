"""Which facts hold where: from statement to statement, through branches and around loops.

An environment maps the variables in scope to facts.  It speaks of the threads that come to a point;
where no thread comes, it may say anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from .assume import assume, assumed
from .expressions import Env, converted, fact_of
from .facts import Fact, Launch, Spread, join, widened
from .ir import (
    Assign,
    Block,
    For,
    If,
    Kernel,
    Let,
    Return,
    Statement,
    While,
)
from .ranges import WIDTHS, Range, exactly, limits, span
from .walk import blocks, returns

__all__ = [
    "MAX_NESTED",
    "MAX_ROUNDS",
    "Env",
    "Fact",
    "Launch",
    "Spread",
    "after",
    "assume",
    "entry_env",
    "fact_of",
    "join",
    "join_env",
    "loop_env",
]

#: Rounds around a loop: bounds that still move after the first few go to the end of their type, and
#: what moves even then is given up.
MAX_ROUNDS = 24
_EXACT_ROUNDS = 3
#: Loops inside loops that are followed round by round; what deeper ones assign is given up at once,
#: because every round of a loop takes all rounds of the loops in it.
MAX_NESTED = 3


def entry_env(kernel: Kernel, launch: Launch) -> Env:
    """What is known where a kernel begins: scalar parameters have any value, one for all."""
    return {p.name: Fact.of(p.type) for p in kernel.params if not p.buffer}


def join_env(a: Env, b: Env, chosen: Spread = Spread.BLOCK) -> Env:
    """What holds in one or the other of two environments; ``chosen`` tells who is in the same."""
    return {name: join(a[name], b[name], chosen) for name in a if name in b}


def after(statement: Statement, env: Env, launch: Launch) -> Env:
    """What is known after a statement."""
    found = _Flow(launch).after(statement, env)
    return env if found is None else found


def loop_env(loop: For | While, env: Env, launch: Launch) -> Env:
    """What is known where the body of a loop begins, on every iteration; ``env`` is before it.

    The bounds of a ``for`` are computed once, before it, and it ends after its upper bound.
    """
    return _Flow(launch).entered(loop, env)


def _targets(block: Block) -> frozenset[str]:
    """The variables from outside a block that it assigns."""
    own: set[str] = set()
    found: set[str] = set()
    for s in block.statements:
        match s:
            case Assign(name):
                found |= {name} - own
            case Let(name):
                own.add(name)
            case _:
                hidden = own | {s.name} if isinstance(s, For) else own
                for inner in blocks(s):
                    found |= _targets(inner) - hidden
    return frozenset(found)


def _with(env: Env, name: str, fact: Fact) -> Env:
    return {**env, name: fact}


def _restored(env: Env, before: Env, name: str) -> Env:
    """An environment where a name is again what it was outside a scope, if it was anything."""
    if name in before:
        return _with(env, name, before[name])
    return {n: fact for n, fact in env.items() if n != name}


@dataclass(slots=True)
class _Flow:
    """A walk over statements; ``None`` instead of an environment where no thread comes."""

    launch: Launch
    #: the worst spread of the conditions around a place, within the innermost loop
    path: Spread = Spread.BLOCK
    #: the worst of these over the returns met
    left: Spread = Spread.BLOCK
    #: loops around a place
    nested: int = 0

    def after(self, statement: Statement, env: Env) -> Env | None:
        """What is known after a statement."""
        match statement:
            case Let(name, type_, value):
                return _with(env, name, converted(fact_of(value, env, self.launch), type_))
            case Assign(name, value):
                fact = fact_of(value, env, self.launch)
                return _with(env, name, converted(fact, env[name].type))
            case Return():
                self.left = max(self.left, self.path)
                return None
            case Block(statements):
                return self._block(statements, env)
            case If():
                return self._if(statement, env)
            case For() | While():
                return self._loop(statement, env)
            case _:
                return env

    def _block(self, statements: Iterable[Statement], env: Env) -> Env | None:
        outer: dict[str, Env] = {}
        for s in statements:
            if isinstance(s, Let):
                outer.setdefault(s.name, env)
            found = self.after(s, env)
            if found is None:
                return None
            env = found
        for name, before in outer.items():
            env = _restored(env, before, name)
        return env

    # --- branches ---------------------------------------------------------------------------------

    def _if(self, s: If, env: Env) -> Env | None:
        condition = fact_of(s.condition, env, self.launch)
        around, self.path = self.path, max(self.path, condition.spread)
        then = assumed(s.condition, True, env, self.launch)
        other = assumed(s.condition, False, env, self.launch)
        then = then if then is None else self.after(s.then, then)
        if other is not None and s.other is not None:
            other = self.after(s.other, other)
        self.path = around
        if then is None or other is None:
            return other if then is None else then
        changed = _targets(s.then) | (_targets(s.other) if s.other else frozenset())
        choice = {name: _choice(condition, then[name], other[name]) for name in changed}
        return {**env, **choice}

    # --- loops ------------------------------------------------------------------------------------

    def entered(self, loop: For | While, env: Env) -> Env:
        """What is known where the body begins."""
        head, trip = self._head(loop, env)
        found = self._begun(loop, head, env, trip)
        if found is not None:
            return found
        if isinstance(loop, While):
            return head
        return _with(head, loop.name, Fact.of(fact_of(loop.low, env, self.launch).type))

    def _begun(self, loop: For | While, head: Env, before: Env, trip: Spread) -> Env | None:
        """What is known where the body begins, from what is known before the test."""
        if isinstance(loop, While):
            return assumed(loop.condition, True, head, self.launch)
        low, high = (fact_of(e, before, self.launch) for e in (loop.low, loop.high))
        if low.low > high.high:
            return None
        fact = Fact.of(low.type, _counted(low.range, high.range), trip)
        if loop.name in _targets(loop.body) or low.type != high.type:
            fact = Fact.of(low.type, None, Spread.LANE)
        return _with(head, loop.name, fact)

    def _trip(self, loop: For | While, head: Env, before: Env) -> Spread:
        """Who makes the same number of iterations, returns in the body aside."""
        if isinstance(loop, While):
            return fact_of(loop.condition, head, self.launch).spread
        return max(fact_of(e, before, self.launch).spread for e in (loop.low, loop.high))

    def _loop(self, loop: For | While, env: Env) -> Env | None:
        head, _ = self._head(loop, env)
        if isinstance(loop, While):
            return assumed(loop.condition, False, head, self.launch)
        return head

    def _round(self, loop: For | While, head: Env, env: Env, trip: Spread) -> tuple[Env, Spread]:
        """What one more iteration adds to what is known before the test, and who makes it."""
        path, left = self.path, self.left
        trip = max(trip, self._trip(loop, head, env))
        self.path, self.left = Spread.BLOCK, Spread.BLOCK
        self.nested += 1
        inside = self._begun(loop, head, env, trip)
        end = None if inside is None else self.after(loop.body, inside)
        trip = max(trip, self.left)
        self.path = path
        self.nested -= 1
        self.left = max(left, self.left, path, trip) if returns(loop.body) else left
        changed = {}
        for name in _changed(loop, env):
            fact = env[name] if end is None else join(env[name], end[name])
            changed[name] = widened(fact, trip)
        return {**env, **changed}, trip

    def _head(self, loop: For | While, env: Env) -> tuple[Env, Spread]:
        """What is known before the test on every iteration, and who makes the same number."""
        targets = _changed(loop, env)
        head, trip = env, Spread.BLOCK
        for number in range(MAX_ROUNDS if self.nested < MAX_NESTED else 0):
            found, trip_then = self._round(loop, head, env, trip)
            grown = {
                name: _grown(head[name], found[name], number >= _EXACT_ROUNDS) for name in targets
            }
            if trip_then == trip and all(grown[name] == head[name] for name in targets):
                return self._tightened(loop, head, env, trip), trip
            head, trip = {**env, **grown}, trip_then
        top = {name: Fact.of(env[name].type, None, Spread.OPEN) for name in targets}
        self.left = max(self.left, Spread.OPEN) if returns(loop.body) else self.left
        return {**env, **top}, Spread.OPEN

    def _tightened(self, loop: For | While, head: Env, env: Env, trip: Spread) -> Env:
        """One more round without widening, if what it finds holds on every iteration too."""
        found, _ = self._round(loop, head, env, trip)
        again, trip_then = self._round(loop, found, env, trip)
        names = _changed(loop, env)
        holds = trip_then == trip and all(_implies(again[name], found[name]) for name in names)
        return found if holds else head


def _changed(loop: For | While, env: Env) -> frozenset[str]:
    """The variables from outside a loop that its body assigns."""
    own = {loop.name} if isinstance(loop, For) else set()
    return (_targets(loop.body) & env.keys()) - own


def _counted(low: Range, high: Range) -> Range:
    """The numbers that a ``for`` counts through, if there are any."""
    return exactly(low.low) if low.low == high.high else Range(low.low, high.high)


def _grown(old: Fact, new: Fact, widen: bool) -> Fact:
    """What holds in both; bounds that move go to the end of the type."""
    fact = join(old, new)
    if not widen or old.type not in WIDTHS:
        return fact
    base = fact.base
    if base is not None and old.base is not None:
        base = _stretched(old.base, base, old.type)
    return replace(fact, range=_stretched(old.range, fact.range, old.type), base=base)


def _stretched(old: Range, new: Range, type_: str) -> Range:
    """The new range, with the bounds that differ moved as far as the type goes."""
    low, high = limits(type_)
    low = new.low if new.low == old.low else low
    high = new.high if new.high == old.high else high
    return span(low, high, new.modulus, new.residue) or new


def _implies(a: Fact, b: Fact) -> bool:
    """Whether everything that ``b`` says follows from ``a``."""
    if not a.range.within(b.range) or a.spread > b.spread:
        return False
    if b.lanes is None:
        return True
    if a.lanes is None or a.base is None or b.base is None:
        return False
    return np.array_equal(a.lanes, b.lanes) and a.base.within(b.base)


def _choice(condition: Fact, then: Fact, other: Fact) -> Fact:
    """The value of a variable after a branch."""
    fact = join(then, other, condition.spread)
    picks, left, right = condition.values(), then.values(), other.values()
    if fact.range.exact or picks is None or left is None or right is None:
        return fact
    return Fact.per_thread(
        fact.type, exactly(0), np.atleast_1d(np.where(picks != 0, left, right)), fact.range
    )

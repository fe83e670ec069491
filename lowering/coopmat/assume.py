"""What a condition that holds, or does not, tells of the variables in it."""

from __future__ import annotations

from math import gcd

from . import ranges
from .expressions import Env, fact_of
from .facts import Launch, narrowed
from .ir import Binary, Cast, Expression, Unary, Var
from .ranges import WIDTHS, Range, exactly, fit, hull, of_type, span

__all__ = ["assume", "assumed"]

_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
_MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


def assume(condition: Expression, truth: bool, env: Env, launch: Launch) -> Env:
    """What is known of the variables where a condition holds, or where it does not."""
    found = assumed(condition, truth, env, launch)
    return env if found is None else found


def assumed(condition: Expression, truth: bool, env: Env, launch: Launch) -> Env | None:
    """As :func:`assume`; None where no thread comes."""
    fact = fact_of(condition, env, launch)
    if fact.type == "bool" and fact.range.exact and bool(fact.low) is not truth:
        return None
    match condition:
        case Unary("not", operand):
            return assumed(operand, not truth, env, launch)
        case Binary("and" | "or" as op, left, right):
            return _junction(op == "and", left, right, truth, env, launch)
        case Binary(op, left, right) if op in _OPPOSITE:
            return _compared(op if truth else _OPPOSITE[op], left, right, env, launch)
        case _ if fact.type == "bool":
            return _constrained(condition, exactly(int(truth)), env, launch)
    return env


def _junction(
    conjunction: bool, left: Expression, right: Expression, truth: bool, env: Env, launch: Launch
) -> Env | None:
    """Both operands have the truth, or at least one of them has it."""
    first = assumed(left, truth, env, launch)
    if conjunction is truth:
        return None if first is None else assumed(right, truth, first, launch)
    second = assumed(right, truth, env, launch)
    if first is None or second is None:
        return second if first is None else first
    found = dict(env)
    for name, fact in env.items():
        if fact.type in WIDTHS:
            both = narrowed(fact, hull(first[name].range, second[name].range))
            found[name] = fact if both is None else both
    return found


def _compared(op: str, left: Expression, right: Expression, env: Env, launch: Launch) -> Env | None:
    """A comparison that holds."""
    for one, word, other in ((left, op, right), (right, _MIRRORED[op], left)):
        a, b = fact_of(one, env, launch), fact_of(other, env, launch)
        if a.type != b.type or a.type not in WIDTHS:
            return env
        allowed = _allowed(word, a.range, b.range)
        if allowed is None:
            return None
        found = _constrained(one, allowed, env, launch)
        if found is None:
            return None
        env = found
    return env


def _allowed(op: str, a: Range, b: Range) -> Range | None:
    """The values of ``a`` for which a comparison with a value of ``b`` can hold."""
    match op:
        case "eq":
            return b
        case "lt":
            return span(a.low, b.high - 1)
        case "le":
            return span(a.low, b.high)
        case "gt":
            return span(b.low + 1, a.high)
        case "ge":
            return span(b.low, a.high)
    if not b.exact:
        return a
    low = a.low + (a.low == b.low)
    return span(low, a.high - (a.high == b.low))


def _constrained(e: Expression, allowed: Range, env: Env, launch: Launch) -> Env | None:
    """What follows from the value of an expression being in a range."""
    match e:
        case Var(name) if name in env:
            found = narrowed(env[name], allowed)
            return None if found is None else {**env, name: found}
        case Cast(type_, operand):
            type_of = fact_of(operand, env, launch).type
            if type_of in WIDTHS and WIDTHS[type_of] <= WIDTHS.get(type_, 0):
                return _constrained(operand, allowed, env, launch)
        case Binary("add" | "sub" as op, left, right):
            return _moved(op, left, right, allowed, env, launch)
        case Binary("mod", left, right):
            divisor = fact_of(right, env, launch)
            if divisor.type in WIDTHS and divisor.range.exact and divisor.low:
                return _constrained(left, _dividend(divisor.low, allowed), env, launch)
        case Binary("bitand", left, right):
            for one, other in ((left, right), (right, left)):
                mask = fact_of(other, env, launch)
                if mask.type in WIDTHS and mask.range.exact and allowed.exact:
                    low_bits = ~mask.low & (mask.low + 1)  # one more than the ones at the end
                    return _constrained(one, _any(low_bits, allowed.residue), env, launch)
    return env


def _any(modulus: int, residue: int) -> Range:
    """All numbers of a congruence."""
    low, high = ranges.limits("int64")
    found = span(low, high, modulus, residue) if modulus else None
    return of_type("int64") if found is None else found


def _moved(
    op: str, left: Expression, right: Expression, allowed: Range, env: Env, launch: Launch
) -> Env | None:
    """``x + c`` or ``c + x`` or ``x - c`` in a range."""
    sides = ((left, right), (right, left)) if op == "add" else ((left, right),)
    for one, other in sides:
        x, c = fact_of(one, env, launch), fact_of(other, env, launch)
        if x.type != c.type or x.type not in ("int32", "int64") or not c.range.exact:
            continue
        offset = c.low if op == "add" else -c.low
        low, high = ranges.limits(x.type)
        modulus = allowed.modulus
        if x.low + offset < low or x.high + offset > high:
            if allowed.exact:
                return _constrained(one, fit(exactly(allowed.low - offset), x.type), env, launch)
            modulus = gcd(modulus, 1 << WIDTHS[x.type])  # the sum may have wrapped
            return _constrained(one, _any(modulus, allowed.residue - offset), env, launch)
        found = span(allowed.low - offset, allowed.high - offset, modulus, allowed.residue - offset)
        return None if found is None else _constrained(one, found, env, launch)
    return env


def _dividend(divisor: int, rest: Range) -> Range:
    """The numbers that leave ``rest`` in a division toward zero."""
    modulus = gcd(abs(divisor), rest.modulus)
    found = _any(modulus, rest.residue)
    low = 1 if rest.low > 0 else found.low
    high = -1 if rest.high < 0 else found.high
    return span(low, high, found.modulus, found.residue) or found

"""The fact of an expression, from the facts of its variables and what is known of the launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from . import ranges
from .facts import (
    Fact,
    Launch,
    Spread,
    Vector,
    element_range,
    exact_sum,
    split,
    wrapped,
)
from .ir import (
    ELEMENTS,
    Binary,
    Cast,
    Const,
    Element,
    Expression,
    Intrinsic,
    Length,
    Unary,
    Var,
)
from .ranges import WIDTHS, Range, exactly, fit

__all__ = ["Env", "converted", "fact_of"]

#: What is known of the variables in scope; never changed in place.
Env: TypeAlias = Mapping[str, Fact]

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
#: Greatest extents of a thread block and of a grid (PTX ISA, "Special Registers": %ntid, %nctaid)
_BLOCK_LIMITS = (1024, 1024, 64)
_GRID_LIMITS = (2**31 - 1, 65535, 65535)


def fact_of(expression: Expression, env: Env, launch: Launch) -> Fact:
    """What is known of an expression's value; KeyError for a name that is not in scope."""
    match expression:
        case Const(value, type_):
            return Fact.of(type_, fit(exactly(int(value)), type_) if type_ in WIDTHS else None)
        case Var(name):
            return env[name]
        case Intrinsic(name):
            return _intrinsic(name, launch)
        case Length(buffer):
            # the length of a parameter may have all 32 bits
            known = getattr(launch.arrays.get(buffer), "size", None)
            return Fact.of("int32", None if known is None else exactly(known))
        case Element(buffer):
            return _element(launch.element(buffer))
        case Cast(type_, operand):
            return converted(fact_of(operand, env, launch), type_)
        case Unary(op, operand):
            return _unary(op, fact_of(operand, env, launch))
        case Binary("sub", left, Binary("mod" | "bitand" as op, inner, Const(n)) as rest) if (
            left == inner and int(n) % 32 == (0 if op == "mod" else 31) and n
        ):
            # the first thread of a whole number of warps
            fact = _binary("sub", fact_of(left, env, launch), fact_of(rest, env, launch))
            return replace(fact, spread=min(fact.spread, Spread.OPEN))
        case Binary(op, left, right):
            return _binary(op, fact_of(left, env, launch), fact_of(right, env, launch))


def _element(element: str) -> Fact:
    if element in ("int32", "int64", "bool"):  # bool: what stands for any condition
        return Fact.of(element, None, Spread.OPEN)
    if element in ("float64", "float32", "float16", "bfloat16"):
        return Fact.of("float64" if element == "float64" else "float32", None, Spread.OPEN)
    if element not in ELEMENTS:
        raise ValueError(f"there are no elements of type {element}")
    return Fact.of("int32", element_range(element), Spread.OPEN)


def _intrinsic(name: str, launch: Launch) -> Fact:
    kind, axis = name[:-2], "xyz".index(name[-1])
    if kind == "block_idx":
        return Fact.of("int32", Range(0, _GRID_LIMITS[axis] - 1))
    if kind == "grid_dim":
        return Fact.of("int32", Range(1, _GRID_LIMITS[axis]))
    if launch.block is not None:
        if kind == "block_dim":
            return Fact.of("int32", exactly(launch.block[axis]))
        threads = launch.threads(axis)
        assert threads is not None
        return Fact.per_thread("int32", exactly(0), threads)
    most = _BLOCK_LIMITS[axis]
    if kind == "block_dim":
        return Fact.of("int32", Range(1, most))
    return Fact.of("int32", Range(0, most - 1), Spread.OPEN if axis else Spread.LANE)


def converted(fact: Fact, type_: str) -> Fact:
    """What a cast to a type makes of a value: integers wrap, other than 0 is true."""
    if fact.type == type_:
        return fact
    if fact.type not in WIDTHS or type_ not in WIDTHS:
        return Fact.of(type_, None, fact.spread)
    if type_ == "bool":
        return _binary("ne", fact, Fact.of(fact.type, exactly(0)))
    range_ = fit(fact.range, type_)
    parts = split(fact)
    if fact.lanes is None or parts is None:
        return Fact.of(type_, range_, fact.spread)
    if (values := fact.values()) is not None:
        return Fact.per_thread(type_, exactly(0), wrapped(values, type_), range_)
    if WIDTHS[type_] > WIDTHS[fact.type] and not exact_sum(*parts, fact.type):
        return Fact.of(type_, range_, fact.spread)
    return Fact.per_thread(type_, parts[0], wrapped(parts[1], type_), range_)


def _unary(op: str, fact: Fact) -> Fact:
    if op == "not":
        return _binary("eq", fact, Fact.of(fact.type, exactly(0)))
    if fact.type not in ("int32", "int64"):
        return Fact.of(fact.type, None, fact.spread)
    # -x is 0 - x, and ~x is -1 - x
    return _binary("sub", Fact.of(fact.type, exactly(0 if op == "neg" else -1)), fact)


def _common(a: Fact, b: Fact) -> tuple[Fact, Fact]:
    """Two values in one type: the wider one, floats before integers."""
    if a.type == b.type:
        return a, b
    order = ("bool", "int32", "int64", "float32", "float64")
    type_ = max(a.type, b.type, key=order.index)
    return converted(a, type_), converted(b, type_)


def _binary(op: str, a: Fact, b: Fact) -> Fact:
    if op not in ("shl", "shr"):
        a, b = _common(a, b)
    spread = _spread(op, a, b)
    truth = op in COMPARISONS or op in ("and", "or")
    type_ = "bool" if truth else a.type
    if a.type not in WIDTHS or b.type not in WIDTHS:
        return Fact.of(type_, None, spread)
    if a.type == "bool" and not truth:
        return _of_truths(op, a, b, spread)
    if op in ("and", "or"):
        a, b = converted(a, "bool"), converted(b, "bool")
        range_ = _junction(op, a.range, b.range)
    elif truth:
        range_ = ranges.compare(op, a.range, b.range)
    else:
        range_ = ranges.binary(op, type_, a.range, b.range, b.type)
    if range_.exact:
        return Fact.of(type_, range_)
    parts = _lanes(op, type_, a, b)
    if parts is None:
        return Fact.of(type_, range_, spread)
    base, lanes = parts
    return Fact.per_thread(type_, base, lanes, range_)


def _junction(op: str, a: Range, b: Range) -> Range:
    choose = min if op == "and" else max
    low, high = choose(a.low, b.low), choose(a.high, b.high)
    return exactly(low) if low == high else Range(low, high)


def _of_truths(op: str, a: Fact, b: Fact, spread: Spread) -> Fact:
    """``bitand``, ``bitor`` and ``bitxor`` of bools; other operators have no meaning there."""
    same = {"bitand": "and", "bitor": "or", "bitxor": "ne"}.get(op)
    return Fact.of("bool", None, spread) if same is None else _binary(same, a, b)


def _spread(op: str, a: Fact, b: Fact) -> Spread:
    """Who shares a result: the lane drops out where a whole warp comes to one value."""
    if a.spread is Spread.LANE and b.type in WIDTHS and b.range.exact:
        n = b.low
        if (
            (op == "div" and n and n % 32 == 0)
            or (op == "shr" and n >= 5)
            or (op == "bitand" and n % 32 == 0)
        ):
            return Spread.OPEN
    if op == "bitand" and b.spread is Spread.LANE and a.type in WIDTHS and a.range.exact:
        if a.low % 32 == 0:
            return Spread.OPEN
    return max(a.spread, b.spread)


# --- per thread -----------------------------------------------------------------------------------


def _lanes(op: str, type_: str, a: Fact, b: Fact) -> tuple[Range, Vector] | None:
    """U and what each thread adds, of a result that is not the same for all threads."""
    if a.lanes is None and b.lanes is None:
        return None
    left, right = a.values(), b.values()
    if left is not None and right is not None:
        found = _computed(op, type_, left, right, b.type)
        return None if found is None else (exactly(0), found)
    parts, others = split(a), split(b)
    if parts is None or others is None:
        return None
    if op in ("add", "sub"):
        base = ranges.binary(op, type_, parts[0], others[0])
        lanes = parts[1] + others[1] if op == "add" else parts[1] - others[1]
        return base, wrapped(lanes, type_)
    if op in ("mul", "bitand", "bitor", "bitxor") and a.range.exact:
        a, b, parts, others = b, a, others, parts
    if op == "mul" and b.range.exact:
        base = ranges.binary(op, type_, parts[0], b.range)
        return base, wrapped(parts[1] * np.int64(b.low), type_)
    if op in ("bitor", "bitxor"):
        return _beside(op, parts, others)
    return _by_constant(op, type_, a, parts, b) if b.range.exact else None


def _by_constant(
    op: str, type_: str, a: Fact, parts: tuple[Range, Vector], b: Fact
) -> tuple[Range, Vector] | None:
    """A quotient, remainder, shift or mask of ``U + lanes`` where U fits the constant."""
    base, lanes = parts
    n = b.low
    match op:
        case "shl" if 0 <= n < WIDTHS[type_]:
            factor = exactly(1 << n)
            return ranges.binary("mul", type_, base, factor), wrapped(lanes << n, type_)
        case "bitand":
            return _masked(base, lanes, n)
        case "shr" if 0 <= n < WIDTHS[type_] and exact_sum(base, lanes, type_):
            return _divided(base, lanes, 1 << n, type_)
        case "div" if n > 0 and a.low >= 0 and exact_sum(base, lanes, type_):
            return _divided(base, lanes, n, type_)
        case "mod" if n and a.low >= 0 and exact_sum(base, lanes, type_):
            rest = base.rest(abs(n))
            if rest is None or not _small(lanes, n):
                return None
            return exactly(0), (lanes + rest) % abs(n)
    return None


def _divided(base: Range, lanes: Vector, n: int, type_: str) -> tuple[Range, Vector] | None:
    """``(U + lanes) / n``, rounded down: the part of U that n divides, and the rest."""
    rest = base.rest(n)
    if rest is None or not _small(lanes, n):
        return None
    whole = Range(base.low // n, base.high // n, base.modulus // n, base.residue // n)
    if whole.low == whole.high:
        whole = exactly(whole.low)
    return whole, (lanes + rest) // n


def _small(lanes: Vector, n: int) -> bool:
    """Whether what threads add and a number less than ``n`` have a sum in int64."""
    most = 1 << 62
    return abs(n) < most and -most < int(lanes.min()) and int(lanes.max()) < most


def _masked(base: Range, lanes: Vector, mask: int) -> tuple[Range, Vector] | None:
    """``(U + lanes) & mask`` where the bits that vary are known of U, or the mask spares the rest.

    From bit k on the mask is all zeros or all ones, and 2^k divides U but for a known rest.
    """
    k = (mask if mask >= 0 else ~mask).bit_length()
    rest = base.rest(1 << k) if k < 62 else None
    if rest is None:
        return None
    part = (lanes + rest) & mask
    if mask >= 0:
        return exactly(0), part
    return _less(base, rest), part


def _less(base: Range, n: int) -> Range:
    residue = base.residue - n
    return Range(base.low - n, base.high - n, base.modulus, residue if base.exact else
                 residue % base.modulus)  # fmt: skip


def _beside(
    op: str, parts: tuple[Range, Vector], others: tuple[Range, Vector]
) -> tuple[Range, Vector] | None:
    """``|`` or ``^`` of ``U + lanes`` and known low bits: above them, U stays."""
    if parts[0].exact:
        parts, others = others, parts
    (base, lanes), (other, low) = parts, others
    if not other.exact:
        return None
    bits = low + other.low
    k = int(bits.max()).bit_length()
    rest = base.rest(1 << k) if k < 62 else None
    if rest is None or bits.min() < 0:
        return None
    part = lanes + rest
    return _less(base, rest), part | bits if op == "bitor" else part ^ bits


def _computed(op: str, type_: str, a: Vector, b: Vector, amounts: str) -> Vector | None:
    """The result of every thread; None where one is unspecified."""
    a, b = np.broadcast_arrays(a, b)
    found: Vector
    with np.errstate(all="ignore"):
        match op:
            case "add":
                found = a + b
            case "sub":
                found = a - b
            case "mul":
                found = a * b
            case "div" | "mod":
                if not b.all():
                    return None
                quotient = a // b
                rest = a - quotient * b
                quotient = quotient + ((rest != 0) & ((a < 0) != (b < 0)))
                found = quotient if op == "div" else a - quotient * b
            case "shl" | "shr":
                return _shifted(op, type_, a, b, amounts)
            case "bitand" | "and":
                found = a & b
            case "bitor" | "or":
                found = a | b
            case "bitxor":
                found = a ^ b
            case _:
                return _compared(op, a, b).astype(np.int64)
    return wrapped(found, type_)


def _shifted(op: str, type_: str, a: Vector, b: Vector, amounts: str) -> Vector | None:
    width = WIDTHS[type_]
    if amounts == "int64" and (b.min() < 0 or b.max() >= 1 << 32):
        return None
    beyond = (b < 0) | (b >= width)
    amount = np.where(beyond, 63, b)
    if op == "shr":
        return np.right_shift(a, amount)
    return wrapped(np.where(beyond, 0, np.left_shift(a, amount)), type_)


def _compared(op: str, a: Vector, b: Vector) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    match op:
        case "eq":
            return np.equal(a, b)
        case "ne":
            return np.not_equal(a, b)
        case "lt":
            return np.less(a, b)
        case "le":
            return np.less_equal(a, b)
        case "gt":
            return np.greater(a, b)
        case _:
            return np.greater_equal(a, b)

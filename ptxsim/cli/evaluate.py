"""Evaluation of SPEC expressions into arrays of elements.

Work goes in pieces of a fixed size: memory beyond the buffer itself stays bounded, and numbers
drawn at random do not depend on how much of a buffer is looked at.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from .elements import ElementType, encode
from .expression import Binary, Call, File, Node, Number, Unary, Word
from .files import load_npy

__all__ = ["MAX_BYTES", "evaluate", "load_elements"]

Array = NDArray[Any]

#: Bytes of one buffer beyond which SPEC refuses to make it.
MAX_BYTES = 2 << 30

_PIECE = 1 << 20

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul,
}  # fmt: skip
_BITWISE: dict[str, Callable[[Any, Any], Any]] = {
    "&": operator.and_, "|": operator.or_, "^": operator.xor,
}  # fmt: skip
_CHOICES: dict[str, Callable[[Any, Any], Any]] = {"minimum": np.minimum, "maximum": np.maximum}


def evaluate(node: Node, type_: ElementType, count: int, folder: Path) -> Array:
    """``count`` elements of a type; files are found from ``folder``.

    :class:`UsageError` for an expression that has no value of this type.
    """
    if isinstance(node, File):
        return load_elements(folder / node.path, type_, count)
    context = _Context(type_, count, folder, {})
    out = np.zeros(count, type_.dtype)
    with np.errstate(all="ignore"):
        for start in range(0, count, _PIECE):
            stop = min(start + _PIECE, count)
            value = _value(node, context, start, stop)
            if value.dtype == np.bool_:
                value = value.astype(np.int64)
            try:
                out[start:stop] = encode(np.broadcast_to(value, (stop - start,)), type_)
            except ValueError as error:
                raise UsageError(str(error)) from None
    return out


@dataclass
class _Context:
    """What evaluation knows; ``state`` keeps generators and files by node, over the pieces."""

    type: ElementType
    count: int
    folder: Path
    state: dict[int, Any]

    def kept(self, node: Node, make: Callable[[], Any]) -> Any:
        if id(node) not in self.state:
            self.state[id(node)] = make()
        return self.state[id(node)]


def _value(node: Node, c: _Context, start: int, stop: int) -> Array:
    if isinstance(node, Number):
        return _number(node.value, c)
    if isinstance(node, Word):
        return _word(node.name, c, start, stop)
    if isinstance(node, File):
        array = c.kept(node, lambda: load_npy(c.folder / node.path))
        _check_length(node.path, array, c.count)
        return _widened(array.reshape(-1)[start:stop], c, node.path)
    if isinstance(node, Unary):
        return _unary(node.operator, _plain(_value(node.operand, c, start, stop), c))
    if isinstance(node, Binary):
        left = _plain(_value(node.left, c, start, stop), c)
        right = _plain(_value(node.right, c, start, stop), c)
        return _binary(node.operator, left, right, c)
    return _call(node, c, start, stop)


def _number(value: float, c: _Context) -> Array:
    if isinstance(value, float):
        return np.array(value, np.float64)
    wide = c.type.wide
    if c.type.kind == "f":
        wide = np.dtype(np.int64)
        if value > np.iinfo(wide).max:
            return np.array(float(value), np.float64)
    if value >= 1 << 64:
        raise UsageError(f"{value} is beyond 64 bits")
    return np.array(value, np.uint64).astype(wide)


def _word(name: str, c: _Context, start: int, stop: int) -> Array:
    if name == "iota":
        return np.arange(start, stop, dtype=c.type.wide)
    if name in ("zeros", "ones"):
        return np.array(int(name == "ones"), c.type.wide)
    if name in ("nan", "inf"):
        if c.type.kind != "f":
            raise UsageError(f"{name} is no value of {c.type}")
        return np.array(float(name), np.float64)
    raise UsageError("undef stands alone: it has no value to compute with")


def _plain(value: Array, c: _Context) -> Array:
    """The value with truth values as 0 and 1."""
    return value.astype(c.type.wide) if value.dtype == np.bool_ else value


def _unary(sign: str, value: Array) -> Array:
    if sign == "~":
        _need_integers(sign, value)
        return np.invert(value)
    return np.negative(value) if sign == "-" else value


def _binary(sign: str, left: Array, right: Array, c: _Context) -> Array:
    if sign in _COMPARISONS:
        return np.asarray(_COMPARISONS[sign](left, right))
    if sign in _ARITHMETIC:
        return np.asarray(_ARITHMETIC[sign](left, right))
    if sign in _BITWISE:
        _need_integers(sign, left, right)
        return np.asarray(_BITWISE[sign](left, right))
    if sign in ("<<", ">>"):
        _need_integers(sign, left, right)
        return _shift(sign, left, right)
    floats = left.dtype.kind == "f" or right.dtype.kind == "f"
    if sign == "/" and (floats or c.type.kind == "f"):
        return np.asarray(np.true_divide(left, right))
    if not floats and not right.all():
        raise UsageError(f"'{sign}' divides an integer by zero")
    return np.asarray(np.floor_divide(left, right) if sign == "/" else np.remainder(left, right))


def _need_integers(sign: str, *values: Array) -> None:
    if any(v.dtype.kind == "f" for v in values):
        raise UsageError(f"'{sign}' needs integers on both sides")


def _shift(sign: str, left: Array, right: Array) -> Array:
    if (right < 0).any():
        raise UsageError(f"'{sign}' by a negative number of bits")
    small = np.minimum(right, 63)
    if sign == ">>":
        shifted = np.right_shift(left, small)
        # an arithmetic shift by 63 already gives what longer ones give
        return shifted if left.dtype.kind == "i" else np.where(right > 63, 0, shifted)
    return np.where(right > 63, left.dtype.type(0), np.left_shift(left, small))


def _call(node: Call, c: _Context, start: int, stop: int) -> Array:
    name, length = node.name, stop - start
    if name == "randint":
        low, high, seed = (_literal(a, name) for a in node.arguments)
        if not low < high:
            raise UsageError(f"randint(LO,HI,SEED) needs LO < HI, not {low} and {high}")
        if low < -(1 << 63) or high > 1 << 63:
            raise UsageError("randint() takes bounds of at most 64 bits")
        draw = c.kept(node, lambda: _generator(seed))
        return np.asarray(draw.integers(low, high, length, np.int64)).astype(c.type.wide)
    if name in ("rand", "randn"):
        seed = _literal(node.arguments[0], name)
        draw = c.kept(node, lambda: _generator(seed))
        return _uniform(draw, length, c) if name == "rand" else draw.standard_normal(length)
    if name == "arange":
        if _literal(node.arguments[0], name) != c.count:
            raise UsageError(f"arange() must give {c.count} elements, as many as the buffer has")
        return _word("iota", c, start, stop)
    values = [_plain(_value(a, c, start, stop), c) for a in node.arguments]
    if name == "where":
        return np.where(values[0] != 0, values[1], values[2])
    if name == "abs":
        return np.abs(values[0])
    if name == "full":
        if values[0].ndim:
            raise UsageError("full(V) takes one number")
        return values[0]
    return np.asarray(_CHOICES[name](values[0], values[1]))


def _uniform(draw: np.random.Generator, length: int, c: _Context) -> Array:
    """Uniform in [0, 1) on a grid that the type holds exactly, so that none rounds up to 1."""
    bits = 53 if c.type.format is None else c.type.format.mantissa_bits + 1
    return np.floor(draw.random(length) * 2.0**bits) * 2.0**-bits


def _generator(seed: int) -> np.random.Generator:
    if not 0 <= seed < 1 << 64:
        raise UsageError(f"a seed is a number from 0 to 2^64 - 1, not {seed}")
    return np.random.Generator(np.random.PCG64(seed))


def _literal(node: Node, name: str) -> int:
    if isinstance(node, Number) and isinstance(node.value, int):
        return node.value
    if isinstance(node, Unary) and node.operator == "-":
        return -_literal(node.operand, name)
    raise UsageError(f"{name}() takes integers that are written out")


def load_elements(path: Path, type_: ElementType, count: int) -> Array:
    """The elements of a file as they are; its type must be the one stated."""
    array = load_npy(path)
    same = array.dtype == type_.dtype
    if type_.kind == "b":
        same = array.dtype.kind in "iuf" and array.dtype.itemsize == type_.size
    if not same:
        needed = f"{type_.size}-byte elements" if type_.kind == "b" else str(type_.dtype)
        raise UsageError(f"{path} holds {array.dtype}; {type_} needs {needed}")
    _check_length(str(path), array, count)
    return np.array(array, order="C").reshape(-1).view(type_.dtype)


def _check_length(path: str, array: Array, count: int) -> None:
    if array.size != count:
        raise UsageError(f"{path} has {array.size} elements, {count} are stated")


def _widened(part: Array, c: _Context, path: str) -> Array:
    """Elements of a file as numbers to compute with."""
    if part.dtype.kind == "f":
        return part.astype(np.float64)
    if part.dtype.kind not in "iub":
        raise UsageError(f"{path} holds {part.dtype}, which is no number type")
    return part.astype(c.type.wide)

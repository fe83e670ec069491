"""Address functions of the thread, found as short integer code.

A copy knows, for each thread, which byte it must touch: a table over the thread index.  A table is
turned into code bit by bit.  If setting one bit of the index always adds the same number, it is a
term of a sum; if it always flips the same bits, a term of an exclusive or (a swizzle); if neither,
the two halves of the table are computed and one is selected.  Neighbouring bits whose terms double
are one multiplication.  Every table has such code, so no layout is refused for its addresses.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ptxsim.build import Kernel, Register

from .layout import Swizzle

__all__ = ["AddressCode", "Emitter", "swizzled", "synthesize"]

Table: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class _Constant:
    value: int

    @property
    def cost(self) -> int:
        return 0

    def evaluate(self, index: Table) -> Table:
        return np.full(index.shape, self.value, np.int64)


@dataclass(frozen=True)
class _Step:
    """``rest + factor * field`` or ``rest ^ factor * field`` of bits ``low..low+width-1``."""

    rest: _Node
    exclusive: bool
    factor: int
    low: int
    width: int

    @cached_property
    def cost(self) -> int:
        free = self.low == 0 and isinstance(self.rest, _Constant) and self.rest.value == 0
        return self.rest.cost + 1 + (not free)

    def evaluate(self, index: Table) -> Table:
        term = ((index >> self.low) & ((1 << self.width) - 1)) * self.factor
        rest = self.rest.evaluate(index)
        return rest ^ term if self.exclusive else rest + term


@dataclass(frozen=True)
class _Select:
    """One of two functions, by a bit of the index."""

    bit: int
    one: _Node
    zero: _Node

    @cached_property
    def cost(self) -> int:
        return self.one.cost + self.zero.cost + 3

    def evaluate(self, index: Table) -> Table:
        chosen = (index >> self.bit) & 1 == 1
        return np.where(chosen, self.one.evaluate(index), self.zero.evaluate(index))


@dataclass(frozen=True)
class _Swizzled:
    """A swizzle of bytes applied to another function (:class:`lowering.layout.Swizzle`)."""

    linear: _Node
    swizzle: Swizzle

    @cached_property
    def cost(self) -> int:
        return self.linear.cost + 3

    def evaluate(self, index: Table) -> Table:
        return self.swizzle.apply_array(self.linear.evaluate(index))


_Node: TypeAlias = "_Constant | _Step | _Select | _Swizzled"


@dataclass(frozen=True)
class AddressCode:
    """Code for a table over thread indices ``0 .. len-1``; ``cost`` is its integer instructions."""

    node: _Node
    size: int

    @property
    def cost(self) -> int:
        """How many instructions it takes, the base not counted."""
        return self.node.cost

    def table(self) -> Table:
        """What the code computes for each index."""
        return self.node.evaluate(np.arange(self.size, dtype=np.int64))

    def describe(self, index: str = "t") -> str:
        """The code as a formula of the index."""
        return _formula(self.node, index)


def synthesize(table: Table, swizzle: Swizzle | None = None) -> AddressCode:
    """The shortest code found for a table of non-negative numbers.

    With a ``swizzle`` of bytes also code that computes the offsets before it and applies it.

    >>> t = np.arange(32)
    >>> synthesize(32 * (t & 7) + 16 * (t >> 3 & 1)).describe("lane")
    '32*(lane & 7) + 16*(lane >> 3 & 1)'
    """
    table = np.asarray(table, np.int64)
    bits = list(range(max(len(table) - 1, 0).bit_length()))
    index = np.arange(len(table), dtype=np.int64)
    orders = [bits, bits[::-1], bits[3:] + bits[:3], bits[5:] + bits[:5]]
    nodes = [_node(index, table, order) for order in orders]
    if swizzle is not None:  # its own inverse
        linear = swizzle.apply_array(table)
        nodes += [_Swizzled(_node(index, linear, order), swizzle) for order in orders]
    best = min(nodes, key=lambda n: n.cost)
    code = AddressCode(best, len(table))
    assert np.array_equal(code.table(), table), "address code reproduces its table"
    return code


def _node(index: Table, table: Table, order: list[int]) -> _Node:
    """Code for the entries ``table`` at ``index``; ``order`` has the bits, the last one first."""
    if (table == table[0]).all():
        return _Constant(int(table[0]))
    *rest, bit = order
    on = (index >> bit) & 1 == 1
    if not on.any():
        return _node(index, table, rest)
    if on.all():
        return _node(index, table, rest)
    position = {int(i): k for k, i in enumerate(index[~on])}
    pairs = [(k, position.get(int(i) & ~(1 << bit), -1)) for k, i in enumerate(index[on])]
    known = [(a, b) for a, b in pairs if b >= 0]
    high, low = table[on], table[~on]
    upper = np.array([a for a, _ in known], np.intp)
    lower = np.array([b for _, b in known], np.intp)
    complete = len(known) == len(pairs)
    if complete:
        added = high[upper] - low[lower]
        if (added == added[0]).all() and added[0] >= 0:
            return _joined(_node(index[~on], low, rest), False, int(added[0]), bit)
        flipped = high[upper] ^ low[lower]
        if (flipped == flipped[0]).all():
            return _joined(_node(index[~on], low, rest), True, int(flipped[0]), bit)
    return _Select(bit, _node(index[on], high, rest), _node(index[~on], low, rest))


def _joined(rest: _Node, exclusive: bool, factor: int, bit: int) -> _Node:
    """``rest`` with one more bit; a term of the neighbouring bit that doubles grows instead."""
    if factor == 0:
        return rest
    whole = factor & (factor - 1) == 0
    if isinstance(rest, _Step) and (rest.exclusive == exclusive) and (whole or not exclusive):
        if rest.low == bit + 1 and rest.factor == 2 * factor:
            return _Step(rest.rest, exclusive, factor, bit, rest.width + 1)
        if rest.low + rest.width == bit and factor == rest.factor << rest.width:
            return _Step(rest.rest, exclusive, rest.factor, rest.low, rest.width + 1)
    return _Step(rest, exclusive, factor, bit, 1)


def _formula(node: _Node, index: str) -> str:
    match node:
        case _Constant(value):
            return str(value)
        case _Step(rest, exclusive, factor, low, width):
            shifted = f"{index} >> {low}" if low else index
            term = f"{factor}*({shifted} & {(1 << width) - 1})"
            if isinstance(rest, _Constant) and rest.value == 0:
                return term
            left = _formula(rest, index)
            if exclusive:
                return f"({left}) ^ {term}"
            return (
                f"{left} + {term}"
                if not (isinstance(rest, _Step) and rest.exclusive)
                else (f"({left}) + {term}")
            )
        case _Swizzled(linear, swizzle):
            return f"{swizzle}({_formula(linear, index)})"
        case _Select(bit, one, zero):
            return f"({_formula(one, index)} if {index} >> {bit} & 1 else {_formula(zero, index)})"


def swizzled(k: Kernel, offset: Register, swizzle: Swizzle) -> Register:
    """A byte offset after a swizzle of bytes: some of its bits flipped by others."""
    mask = ((1 << swizzle.b) - 1) << swizzle.p
    if swizzle.inner:
        moved = k.new("and.b32", "b32", k.new("shr.u32", "b32", offset, swizzle.a), mask)
    else:
        moved = k.new("shl.b32", "b32", k.new("and.b32", "b32", offset, mask), swizzle.a)
    return k.new("xor.b32", "b32", offset, moved)


# --- emission -------------------------------------------------------------------------------------


class Emitter:
    """Writes address code into a kernel; fields of the index are computed once."""

    def __init__(self, kernel: Kernel, index: Register) -> None:
        self.kernel = kernel
        self.index = index
        self._fields: dict[tuple[int, int], Register] = {}
        self._bits: dict[int, Register] = {}
        self._known: dict[_Node, Register] = {}

    def value(self, code: AddressCode) -> Register:
        """A register with what the code computes."""
        return self._emit(code.node)

    def _emit(self, node: _Node) -> Register:
        if node not in self._known:
            self._known[node] = self._written(node)
        return self._known[node]

    def _written(self, node: _Node) -> Register:
        k = self.kernel
        match node:
            case _Constant(value):
                return k.new("mov.u32", "b32", value)
            case _Step(rest, exclusive, factor, low, width):
                zero = isinstance(rest, _Constant) and rest.value == 0
                field = self._field(low, width)
                if not exclusive and not zero:
                    addend = rest.value if isinstance(rest, _Constant) else self._emit(rest)
                    return k.new("mad.lo.u32", "b32", field, factor, addend)
                if factor & (factor - 1) == 0:
                    shift = factor.bit_length() - 1
                    term = k.new("shl.b32", "b32", field, shift) if shift else field
                else:
                    term = k.new("mul.lo.u32", "b32", field, factor)
                return term if zero else k.new("xor.b32", "b32", self._emit(rest), term)
            case _Swizzled(linear, swizzle):
                return swizzled(k, self._emit(linear), swizzle)
            case _Select(bit, one, zero_):
                values = (self._emit(one), self._emit(zero_))
                return k.new("selp.b32", "b32", *values, self._bit(bit))

    def _field(self, low: int, width: int) -> Register:
        key = (low, width)
        if key not in self._fields:
            k = self.kernel
            if low == 0:
                self._fields[key] = k.new("and.b32", "b32", self.index, (1 << width) - 1)
            else:
                self._fields[key] = k.new("bfe.u32", "b32", self.index, low, width)
        return self._fields[key]

    def _bit(self, bit: int) -> Register:
        if bit not in self._bits:
            k = self.kernel
            self._bits[bit] = k.new("setp.ne.u32", "pred", self._field(bit, 1), 0)
        return self._bits[bit]

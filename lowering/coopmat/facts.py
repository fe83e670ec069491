"""What is known of the values of expressions before a kernel runs: range, congruence, uniformity.

A fact holds for every thread that evaluates an expression.  That a value is the same for several
threads is said of those that evaluate it together, in the same iteration of the loops around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from math import gcd

import numpy as np
from numpy.typing import NDArray

from . import ranges
from .ir import ELEMENTS, Array, Param
from .ranges import WIDTHS, Range, exactly, fit, hull, limits, meet, of_type

__all__ = ["MAX_THREADS", "WARP", "Fact", "Launch", "Spread", "Vector", "join", "narrowed"]

WARP = 32
#: Threads of a thread block, at most.
MAX_THREADS = 1024

Vector = NDArray[np.int64]


class Spread(IntEnum):
    """Which threads are known to have the same value; a greater one says less."""

    #: all of a thread block
    BLOCK = 0
    #: all lanes of a warp
    WARP = 1
    #: not provable
    OPEN = 2
    #: it depends on the lane
    LANE = 3


@dataclass(frozen=True)
class Launch:
    """What is known of a launch: its thread block, and the buffers."""

    block: tuple[int, int, int] | None
    params: Mapping[str, Param]
    arrays: Mapping[str, Array]

    def element(self, buffer: str) -> str:
        """The type of a buffer's elements; KeyError without such a buffer."""
        array = self.arrays.get(buffer)
        return array.element if array is not None else self.params[buffer].type

    def threads(self, axis: int) -> Vector | None:
        """The thread index along an axis of every thread, x fastest, if the block is known."""
        if self.block is None:
            return None
        x, y, z = self.block
        if x * y * z > MAX_THREADS:
            raise ValueError(f"a thread block has at most {MAX_THREADS} threads, not {x * y * z}")
        numbers = np.arange(x * y * z, dtype=np.int64)
        found: Vector = (numbers, numbers // x, numbers // (x * y))[axis] % self.block[axis]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Fact:
    """What is known of a value of a type.

    With ``lanes``, a value is ``U + lanes[thread]`` in the arithmetic of its type, with one number
    U of ``base`` for the thread block; threads are numbered x fastest, then y, then z.  A value
    that all threads of a block share has no ``lanes``.  Of a float only ``spread`` is known.
    """

    type: str
    range: Range
    spread: Spread
    lanes: Vector | None = None
    base: Range | None = None

    @property
    def low(self) -> int:
        """The least value that it can have."""
        return self.range.low

    @property
    def high(self) -> int:
        """The greatest value that it can have."""
        return self.range.high

    @property
    def modulus(self) -> int:
        """``value = residue (mod modulus)``; 0 if the value is known."""
        return self.range.modulus

    @property
    def residue(self) -> int:
        """See :attr:`modulus`."""
        return self.range.residue

    @property
    def uniform(self) -> bool:
        """Whether all lanes of a warp have the same value."""
        return self.spread <= Spread.WARP

    def divisible(self, by: int) -> bool:
        """Whether every value is a multiple of a positive number."""
        return self.range.rest(by) == 0

    def values(self) -> Vector | None:
        """The value of every thread, if it depends on nothing else; of length 1 for a constant."""
        if self.type not in WIDTHS:
            return None
        if self.range.exact:
            return np.array([self.low], dtype=np.int64)
        if self.lanes is None or self.base is None or not self.base.exact:
            return None
        return wrapped(self.lanes + np.int64(self.base.low), self.type)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fact):
            return NotImplemented
        if (self.lanes is None) != (other.lanes is None):
            return False
        same = (self.type, self.range, self.spread, self.base)
        if same != (other.type, other.range, other.spread, other.base):
            return False
        return self.lanes is None or bool(np.array_equal(self.lanes, other.lanes))  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return hash((self.type, self.range, self.spread, self.base))

    # --- making facts -----------------------------------------------------------------------------

    @classmethod
    def of(cls, type_: str, range_: Range | None = None, spread: Spread = Spread.BLOCK) -> Fact:
        """A value of a type in a range; without one it is any."""
        if type_ not in WIDTHS:
            return cls(type_, _NOTHING, spread)
        range_ = of_type(type_) if range_ is None else range_
        return cls(type_, range_, Spread.BLOCK if range_.exact else spread)

    @classmethod
    def per_thread(
        cls, type_: str, base: Range, lanes: Vector, range_: Range | None = None
    ) -> Fact:
        """A value ``U + lanes[thread]``, with U of ``base``, that is known to be in a range."""
        range_ = of_type(type_) if range_ is None else range_
        # U is made the value of the first thread, so that equal facts look alike
        base = fit(_sum(base, int(lanes[0])), type_)
        lanes = wrapped(lanes - lanes[0], type_)
        if not lanes.any():
            return cls.of(type_, meet(range_, base) or range_)
        found = _reach(base, lanes, type_)
        range_ = meet(range_, found) or range_  # nothing in both: no thread comes here
        if range_.exact:
            return cls.of(type_, range_)
        return cls(type_, range_, _variation(lanes), lanes, base)


#: The range of a float, which says nothing.
_NOTHING = of_type("int64")


def _sum(r: Range, n: int) -> Range:
    return Range(r.low + n, r.high + n, r.modulus, r.residue + n if r.exact else
                 (r.residue + n) % r.modulus)  # fmt: skip


def wrapped(values: Vector, type_: str) -> Vector:
    """Numbers in the arithmetic of a type."""
    if type_ == "int64":
        return values
    if type_ == "bool":
        return values & 1
    return values.astype(np.int32).astype(np.int64)


def _reach(base: Range, lanes: Vector, type_: str) -> Range:
    """The values that ``U + lanes`` can have."""
    if base.exact:
        values = wrapped(lanes + np.int64(base.low), type_)
        low, high = int(values.min()), int(values.max())
        return Range(low, high, _step(values), low % _step(values)) if low < high else exactly(low)
    modulus = gcd(base.modulus, _step(lanes))
    residue = base.residue % modulus
    if not exact_sum(base, lanes, type_):
        modulus = gcd(modulus, 1 << WIDTHS[type_])
        return ranges.span(*limits(type_), modulus, residue) or of_type(type_)
    low, high = base.low + int(lanes.min()), base.high + int(lanes.max())
    return Range(low, high, modulus, residue)


def exact_sum(base: Range, lanes: Vector, type_: str) -> bool:
    """Whether ``U + lanes`` never wraps."""
    low, high = limits(type_)
    return base.low + int(lanes.min()) >= low and base.high + int(lanes.max()) <= high


def _step(values: Vector) -> int:
    """The greatest number of which all differences are multiples; numbers that differ."""
    if int(values.max()) - int(values.min()) >= 1 << 62:  # a difference would not fit int64
        return 1
    return int(np.gcd.reduce(values - values[0]))


def _variation(lanes: Vector) -> Spread:
    """Whether numbers that are not all equal differ within a warp."""
    first = lanes[np.arange(lanes.size) // WARP * WARP]
    return Spread.WARP if np.array_equal(first, lanes) else Spread.LANE


def split(fact: Fact) -> tuple[Range, Vector] | None:
    """U and what each thread adds, if that is known; a single 0 if no thread adds anything."""
    if fact.lanes is not None and fact.base is not None:
        return fact.base, fact.lanes
    if fact.spread is Spread.BLOCK and fact.type in WIDTHS:
        return fact.range, np.zeros(1, dtype=np.int64)
    return None


def narrowed(fact: Fact, range_: Range) -> Fact | None:
    """A fact of which more is known; None if no value remains.

    U is kept as it was: that of threads that are not here need not be in the range.
    """
    if fact.type not in WIDTHS:
        return fact
    found = meet(fact.range, range_)
    if found is None:
        return None
    if found.exact:
        return Fact.of(fact.type, found)
    return Fact(fact.type, found, fact.spread, fact.lanes, fact.base)


def widened(fact: Fact, spread: Spread) -> Fact:
    """A fact of a value that threads outside ``spread`` may have got elsewhere."""
    if spread is Spread.BLOCK:
        return fact
    return Fact.of(fact.type, fact.range, max(fact.spread, spread))


def join(a: Fact, b: Fact, chosen: Spread = Spread.BLOCK) -> Fact:
    """The value of ``a`` or of ``b``; ``chosen`` tells who makes the same choice."""
    if a.type not in WIDTHS:
        return Fact.of(a.type, None, max(a.spread, b.spread, chosen))
    found = hull(a.range, b.range)
    if found.exact:
        return Fact.of(a.type, found)
    if chosen is Spread.BLOCK and a.lanes is not None and b.lanes is not None:
        if a.base is not None and b.base is not None and np.array_equal(a.lanes, b.lanes):
            return Fact(a.type, found, max(a.spread, b.spread), a.lanes, hull(a.base, b.base))
    return Fact.of(a.type, found, max(a.spread, b.spread, chosen))


def element_range(element: str) -> Range:
    """The values of a buffer's integer elements."""
    if element in WIDTHS:
        return of_type(element)
    bits = ELEMENTS[element]
    if element in ("bit", "uint4", "uint8"):
        return Range(0, (1 << bits) - 1)
    return Range(-1 << (bits - 1), (1 << (bits - 1)) - 1)

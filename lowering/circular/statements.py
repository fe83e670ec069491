"""Statements of a nest: what they access, which tests guard them, and what zeros are needed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ptxsim.errors import UsageError
from ptxsim.matrix.layouts import parse_shape
from ptxsim.types import SCALAR_TYPES

from ..dispatch import Decline, Declined
from .context import Context
from .indexing import Point, ancestors, derivation, index, reduces
from .integers import Expr, Int, Symbol, expr, maximum, minimum, select
from .loops import (
    Access,
    Buffer,
    Compute,
    Copy,
    Fill,
    Fragment,
    LoadMatrix,
    Memory,
    Mma,
    Node,
    Parallel,
    Peel,
    StoreMatrix,
    Test,
    Why,
    ZeroFill,
)
from .peel import Residue
from .tensors import IDENTITY, Axis, Copied, Fusion, Joined, Merge, Pointwise, Split, Tensor
from .tensors import Mma as Product

__all__ = ["Statements", "size_of"]


def size_of(dtype: str) -> int:
    """Bytes of an element in memory; tf32 lies there as f32."""
    return 4 if dtype == "tf32" else SCALAR_TYPES[dtype].size


@dataclass(frozen=True)
class _Limit:
    """One test of an element: ``value < limit``."""

    value: Expr
    limit: Expr
    why: Why
    #: what the value is that of
    axis: Axis | None = None


class Statements:
    """Makes the statements of a fusion; ``fill`` says how unloaded elements become zero."""

    def __init__(
        self, fusion: Fusion, context: Context, residues: Mapping[Axis, Residue],
        axes: frozenset[Axis], fill: str, thread: bool, block: Mapping[Parallel, int],
    ) -> None:  # fmt: skip
        self.fusion = fusion
        self.context = context
        self.residues = residues
        #: the outer axes of splits whose tests are counted as those of the axis
        self.axes = axes
        self.fill = fill
        self.thread = thread
        self.block = block
        self.buffers = {t: self._buffer(t) for t in fusion.tensors}
        #: a test that all copies to circular buffers have besides
        self.exists: tuple[Test, ...] = ()
        #: outer axes of splits whose tiles are also loaded where there are none any more
        self.beyond: frozenset[Axis] = frozenset()

    # --- memory ---------------------------------------------------------------------------------

    def _buffer(self, t: Tensor) -> Buffer:
        if t.memory is Memory.GLOBAL:
            return self._global(t)
        axes = self.layout(t)
        extents = [axis.fixed for axis in axes]
        rows = [*extents[:-1], extents[-1] + t.pad] if extents else []
        strides = [math.prod(rows[i + 1 :]) for i in range(len(rows))]
        fragment = self._fragment(t)
        if t.memory is Memory.SHARED and self.pipeline(t) is not None:
            unit = max(16 // size_of(t.dtype), _period(t))
            slot = -(-math.prod(rows) // unit) * unit
            extents, strides = [t.slots, *extents], [slot, *strides]
        return Buffer(
            t.name, t.dtype, t.memory, tuple(map(Int, extents)), tuple(map(Int, strides)),
            align=16 if t.swizzle is None else max(16, _period(t) * size_of(t.dtype)),
            swizzle=t.swizzle, fragment=fragment,
        )  # fmt: skip

    def pipeline(self, t: Tensor) -> Axis | None:
        """The serial loop whose iterations a circular tensor is loaded for."""
        if t.slots == 1 or t.at is None:
            return None
        consumer, position = t.at
        axis = consumer.leaf[position - 1] if position else None
        if axis is None or consumer.parallel.get(axis, Parallel.SERIAL) is not Parallel.SERIAL:
            raise UsageError(f"{t.name} is circular, but no serial loop is around it")
        return axis

    def layout(self, t: Tensor) -> tuple[Axis, ...]:
        """The axes of a tensor in shared memory or registers."""
        if t.layout is not None:
            return t.layout
        shared = set(t.at[0].leaf[: t.at[1]]) if t.at is not None else set()
        own = [a for a in t.leaf if a not in shared and not reduces(t, a)]
        found = []
        for axis in own:
            how = t.parallel.get(axis, Parallel.SERIAL)
            if how.block or (how.thread and t.memory is Memory.LOCAL):
                continue
            found.append(axis)
        return tuple(found)

    def _fragment(self, t: Tensor) -> Fragment | None:
        if Parallel.MMA not in t.parallel.values():
            return None
        for product in self.fusion.tensors:
            made = product.definition
            if isinstance(made, Product) and t in (made.a, made.b, product):
                role = "C" if t is product else "A" if t is made.a else "B"
                return Fragment(role, parse_shape(made.instruction))
        raise UsageError(f"{t.name} has axes of a matrix instruction, but is no operand of one")

    def _global(self, t: Tensor) -> Buffer:
        """Root axes that lie behind each other and are merged somewhere are one."""
        extents: list[Expr] = []
        strides: list[Expr] = []
        for axis in self._places(t):
            extents.append(axis.extent)
            strides.append(self._stride(t, axis))
        return Buffer(t.name, t.dtype, Memory.GLOBAL, tuple(extents), tuple(strides), align=t.align)

    def _places(self, t: Tensor) -> list[Axis]:
        places: list[Axis] = []
        for root in t.roots:
            merged = self._merged(places[-1], root) if places else None
            if merged is not None:
                inner = self._stride(t, root)
                if self._stride(t, places[-1]) == root.extent * inner:
                    places[-1] = merged
                    continue
            places.append(root)
        return places

    def _merged(self, outer: Axis, inner: Axis) -> Axis | None:
        for t in self.fusion.tensors:
            for leaf in t.leaf:
                for axis in (leaf, *ancestors(leaf)):
                    if axis.origin == Merge(outer, inner):
                        return axis
        return None

    def _stride(self, t: Tensor, axis: Axis) -> Expr:
        if axis in t.roots:
            return t.strides[t.roots.index(axis)]
        assert isinstance(axis.origin, Merge)
        return self._stride(t, axis.origin.inner)

    # --- indices --------------------------------------------------------------------------------

    def value(self, t: Tensor, axis: Axis, point: Point) -> Expr:
        """The value of an axis; a merged one is put together where it is not known."""
        try:
            return index(t, axis, point, self.residues)
        except UsageError:
            if not isinstance(axis.origin, Merge):
                raise
            outer, inner = axis.origin.outer, axis.origin.inner
            return self.value(t, outer, point) * inner.extent + self.value(t, inner, point)

    def access(self, t: Tensor, by: Tensor, point: Point) -> Access:
        """The element of a tensor that another one's statement reads or writes."""
        buffer = self.buffers[t]
        if t.memory is Memory.GLOBAL:
            return Access(buffer, tuple(self.value(by, a, point) for a in self._places(t)))
        found = [self.value(by, axis, point) for axis in self.layout(t)]
        tiles = self.pipeline(t) if t.memory is Memory.SHARED else None
        if tiles is not None:
            found.insert(0, self.value(by, tiles, point) % t.slots)
        return Access(buffer, tuple(found))

    # --- tests ----------------------------------------------------------------------------------

    def limits(self, t: Tensor, point: Point) -> Iterator[_Limit]:
        """The tests that an element of a tensor's domain must pass, without the provable ones."""
        yield from self._elements(t, point)
        yield from self._threads(t)

    def _elements(self, t: Tensor, point: Point) -> Iterator[_Limit]:
        """The tests that an element exists."""
        became = derivation(t)
        implied = {a for outer in point.parts for a in ancestors(outer)}
        for source, (outer, inner) in became.items():
            if isinstance(inner, bool) or (source in t.roots and outer in t.roots):
                continue
            part = point.parts.get(outer, Peel.NONE)
            if part is not Peel.NONE:
                limit = self.residues[outer].limit(self.value(t, outer, point), part)
                if limit is not None:
                    yield from self._limit(t, self.value(t, inner, point), limit, Why.AXIS, inner)
                continue
            whole = self.context.divides(inner.fixed, source.extent) and outer not in self.beyond
            if source in implied or whole:
                continue
            mine = self.axes & {outer, *self._within(t, source)}
            why = Why.AXIS if mine else Why.BOUND
            yield from self._limit(t, self.value(t, source, point), source.extent, why, source)

    def _within(self, t: Tensor, source: Axis) -> set[Axis]:
        """The axes that were made from one."""
        made = set()
        for leaf in t.leaf:
            for axis in (leaf, *ancestors(leaf)):
                if source in ancestors(axis):
                    made.add(axis)
        return made

    def _threads(self, t: Tensor) -> Iterator[_Limit]:
        """The tests that a thread has an element; where none is its own the first one has it."""
        for how, count in self.block.items():
            axis = next((a for a, p in t.parallel.items() if p is how), None)
            if axis is not None:
                yield from self._limit(t, Symbol(how.value), axis.extent, Why.BOUND, axis)
            elif t.memory is not Memory.LOCAL and count > 1:
                yield from self._limit(t, Symbol(how.value), Int(1), Why.BOUND, None)

    def _limit(
        self, t: Tensor, value: Expr, limit: Expr, why: Why, axis: Axis | None
    ) -> Iterator[_Limit]:
        """A test, unless all elements, of a vector too, are known to pass it."""
        found = _Limit(value, limit, why, axis)
        width, vector = _width(t)
        last = width - 1 if self._along(found, vector) and not self._whole(found, width) else 0
        if self.context.decided(value + last < limit) is not True:
            yield found

    def condition(self, value: Expr, why: Why) -> Expr:
        """A condition, computed elsewhere if it is one of bounds or all of a thread are one."""
        if self.context.decided(value) is not None or (why is Why.AXIS and not self.thread):
            return value
        return self.context.condition(value, why)

    def guard(self, limits: Iterator[_Limit]) -> tuple[Test, ...]:
        """Tests of a statement of one element, or of a vector that exists as a whole."""
        return tuple(Test(self.condition(m.value < m.limit, m.why), m.why) for m in limits)

    # --- statements -----------------------------------------------------------------------------

    def statement(self, t: Tensor, point: Point) -> list[Node]:
        """What computes an element, vector or matrix of a tensor."""
        made = t.definition
        if isinstance(made, Copied):
            return [self._copied(t, made, point)]
        assert isinstance(made, (Pointwise, Joined, Product))
        out = self.access(t, t, point)
        sources = tuple(self.access(s, t, point) for s in t.sources)
        if isinstance(made, Product):
            if not all(map(self.zeroed, t.sources)):
                raise UsageError(f"{t.name} needs zeros where its operands have no elements")
            return [Mma(out, sources[0], sources[1], made.instruction)]
        direct = any(s.memory is Memory.GLOBAL for s in t.sources)
        if isinstance(made, Pointwise):
            guard = self.guard(self.limits(t, point) if direct else self._present(t))
            return [Compute(made.op, out, sources, guard)]
        safe = made.op == "add" and all(map(self.zeroed, t.sources))
        summed = self._summed(t, point, direct) if direct or not safe else self._present(t)
        guard = self.guard(summed)
        if len(sources) == 2:
            return [Compute("fma", out, (*sources, out), guard)]
        return [Compute(made.op, out, (out, *sources), guard)]

    def _present(self, t: Tensor) -> Iterator[_Limit]:
        """The tests of a statement in shared memory: some threads may have no part of a tile."""
        if Memory.SHARED in (t.memory, *(s.memory for s in t.sources)):
            yield from self._threads(t)

    def _summed(self, t: Tensor, point: Point, direct: bool) -> Iterator[_Limit]:
        """The tests of a reduction; without reads of global memory those of reduced axes do."""
        if direct:
            yield from self.limits(t, point)
            return
        for limit in self._elements(t, point):
            if limit.axis is not None and reduces(t, limit.axis):
                yield limit
        yield from self._present(t)

    def zeroed(self, t: Tensor) -> bool:
        """Whether a tensor has zeros where its tile has no elements."""
        if not isinstance(t.definition, Copied) or t.memory is Memory.GLOBAL:
            return False
        if t.memory is Memory.SHARED:
            return self.fill != "none"
        return self.zeroed(t.definition.source)

    def initial(self, t: Tensor, point: Point) -> Fill:
        """What a reduction starts from, in one element or in the whole matrix."""
        made = t.definition
        value = IDENTITY[made.op] if isinstance(made, Joined) else 0
        out = self.access(t, t, point)
        if isinstance(value, float) and t.dtype not in ("f32", "f16", "bf16", "f64"):
            info = np.iinfo(t.dtype.replace("s", "int"))
            value = int(info.min if value < 0 else info.max)
        return Fill(out, value)

    def cleared(self, t: Tensor, point: Point) -> Fill:
        """Zeros for a vector of a shared tensor, whether it will be loaded or not."""
        guard = self.guard(m for m in self.limits(t, point) if self._inside(t, m))
        return Fill(self.access(t, t, point), 0, _width(t)[0], guard)

    def _inside(self, t: Tensor, limit: _Limit) -> bool:
        """Whether a limit is one of the tile: of threads or vectors that have no part of it."""
        if limit.axis is None:
            return True
        tile = set(self.layout(t)) & {limit.axis, *ancestors(limit.axis)}
        return limit.limit == limit.axis.extent and bool(tile)

    def _copied(self, t: Tensor, made: Copied, point: Point) -> Node:
        s = made.source
        out, source = self.access(t, t, point), self.access(s, t, point)
        if self.buffers[t].fragment is not None:
            return LoadMatrix(out, source, self._matrix(t, s))
        if self.buffers[s].fragment is not None:
            return self._stored(t, s, out, source, point)
        width, vector = _width(t)
        if width > 1:
            self._check_vector(t, vector, (out, source), width)
        if Memory.GLOBAL not in (t.memory, s.memory):
            return Copy(out, source, width, guard=self.guard(self._present(t)))
        limits = list(self.limits(t, point))
        if t.memory is Memory.SHARED and self.fill == "zfill":
            # threads that have no part of the tile must not write zeros beside it
            inside = [m for m in limits if self._inside(t, m)]
            zero = self._zero([m for m in limits if m not in inside], vector, width)
            guard = (*self.exists, *self.guard(iter(inside)))
            return Copy(out, source, width, made.cache, guard, zero)
        for limit in limits:
            self._check_whole(t, limit, vector, width)
        guard = (*self.exists, *self.guard(iter(limits)))
        return Copy(out, source, width, made.cache, guard)

    def _zero(self, limits: list[_Limit], vector: Axis | None, width: int) -> ZeroFill | None:
        """Zeros instead of the elements that do not exist."""
        if not limits:
            return None
        live: Expr = Int(width)
        conditions: list[Expr] = []
        whole = True
        for limit in limits:
            if self._along(limit, vector) and not self._whole(limit, width):
                whole = False
                live = minimum(live, maximum(limit.limit - limit.value, 0))
            else:
                conditions.append(self.condition(limit.value < limit.limit, limit.why))
        if conditions:
            every = conditions[0]
            for condition in conditions[1:]:
                every = every & condition
            live = select(every, live, 0)
        why = Why.AXIS if any(m.why is Why.AXIS for m in limits) else Why.BOUND
        return ZeroFill(live, whole, why)

    def _along(self, limit: _Limit, vector: Axis | None) -> bool:
        """Whether a vector can reach across a limit."""
        return vector is not None and limit.axis in (vector, *ancestors(vector))

    def _whole(self, limit: _Limit, width: int) -> bool:
        context = self.context
        return context.divides(width, limit.limit) and context.divides(width, limit.value)

    def _check_whole(self, t: Tensor, limit: _Limit, vector: Axis | None, width: int) -> None:
        if self._along(limit, vector) and not self._whole(limit, width):
            raise Declined(f"the copy to {t.name}", {"vector": Decline(
                "straddle", f"vectors of {width} elements may reach beyond {limit.limit}",
                "take zero-filling copies or narrower ones",
            )})  # fmt: skip

    def _check_vector(
        self, t: Tensor, vector: Axis | None, accesses: tuple[Access, ...], width: int
    ) -> None:
        """A vector is contiguous and aligned on both sides."""
        for access in accesses:
            buffer = access.buffer
            if buffer.memory is Memory.LOCAL:
                continue
            size = width * size_of(buffer.dtype)
            reason = None
            if buffer.strides[-1] != Int(1) or not self._last(t, vector, buffer, width):
                reason = Decline("stride", f"{width} elements of {buffer.name} are not in a row")
            elif buffer.align % size or not self.context.divides(width, access.offset):
                reason = Decline(
                    "misaligned", f"vectors of {size} bytes of {buffer.name} may be misaligned",
                    "narrower vectors, the aligned form, or a promise on sizes or strides",
                )  # fmt: skip
            if reason is not None:
                raise Declined(f"the copy to {t.name}", {f"{size} bytes": reason})

    def _last(self, t: Tensor, vector: Axis | None, buffer: Buffer, width: int) -> bool:
        """Whether the elements of a vector are those of the last axis of a buffer."""
        owner = next(o for o, b in self.buffers.items() if b is buffer)
        places = self._places(owner) if owner.memory is Memory.GLOBAL else self.layout(owner)
        axis = vector
        while axis is not None and axis != places[-1]:
            origin = axis.origin
            if isinstance(origin, Split):
                axis = origin.source if origin.part == "inner" else None
            elif isinstance(origin, Merge) and origin.inner in places:
                # vectors that begin at multiples of their width stay in a row of whole vectors
                whole = self.context.divides(width, origin.inner.extent)
                axis = origin.inner if whole else None
            else:
                axis = self._inner_of(t, axis)
        return axis is not None

    def _inner_of(self, t: Tensor, root: Axis) -> Axis | None:
        """What a root is the inner part of, or the inner part of a merged axis."""
        for leaf in t.leaf:
            for axis in (leaf, *ancestors(leaf)):
                if isinstance(axis.origin, Merge) and axis.origin.inner == root:
                    return axis
        return None

    def _matrix(self, t: Tensor, other: Tensor) -> tuple[int, int]:
        """Which axes of another tensor the rows and columns of a fragment are."""
        places = self._places(other) if other.memory is Memory.GLOBAL else list(self.layout(other))
        shift = self.buffers[other].strides.__len__() - len(places)
        found = []
        for axis in [a for a in self.layout(t) if t.parallel.get(a) is Parallel.MMA]:
            above = (axis, *ancestors(axis))
            found.append(next(i for i, place in enumerate(places) if place in above) + shift)
        return found[0], found[1]

    def _stored(
        self, t: Tensor, s: Tensor, out: Access, source: Access, point: Point
    ) -> StoreMatrix:
        axes = self._matrix(s, t)
        left: list[Expr | None] = []
        for place in axes:
            root = self._places(t)[place]
            whole = next(a for a in t.leaf if t.parallel.get(a) is Parallel.MMA
                         and root in (a, *ancestors(a)))  # fmt: skip
            limit = root.extent - out.index[place]
            fits = self.context.decided(expr(whole.fixed - 1) < limit)
            left.append(None if fits else limit)
        return StoreMatrix(out, source, axes, (left[0], left[1]))


def _width(t: Tensor) -> tuple[int, Axis | None]:
    vector = next((a for a, how in t.parallel.items() if how is Parallel.VECTORIZE), None)
    return (vector.fixed, vector) if vector is not None else (1, None)


def _period(t: Tensor) -> int:
    """Elements after which a swizzle repeats."""
    swizzle = t.swizzle
    return 1 << (swizzle.p + swizzle.b + swizzle.a) if swizzle is not None else 1

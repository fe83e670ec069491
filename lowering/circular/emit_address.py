"""Addresses of elements: pointers of 64 bits into global, of 32 bits into shared memory.

A pointer into a global tensor that a loop moves by the same distance every time is carried: it is
set before the loop and advanced at its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import gcd
from typing import TypeAlias

from ptxsim.build import Address, Kernel, Register, Variable
from ptxsim.errors import UsageError

from ..address import Emitter as LaneCode
from ..address import Table, swizzled, synthesize
from ..layout import Swizzle
from .emit_values import Values
from .integers import Expr, Int, Op, Symbol
from .linear import Linear, linear
from .loops import Access, Buffer, Memory

__all__ = ["SIZES", "Addresses", "element_size"]

#: Bytes of an element.
SIZES = {"f32": 4, "tf32": 4, "s32": 4, "u32": 4, "f16": 2, "bf16": 2, "s8": 1, "u8": 1}

_MAX = (1 << 31) - 1

#: An offset in elements: for each stride, what is multiplied by it.
_Strided: TypeAlias = "dict[Expr, Linear]"


def element_size(buffer: Buffer) -> int:
    """Bytes of an element of a buffer."""
    if buffer.dtype not in SIZES:
        raise UsageError(
            f"{buffer}: no element has type '{buffer.dtype}'; known: {', '.join(SIZES)}"
        )
    return SIZES[buffer.dtype]


@dataclass(frozen=True)
class _Place:
    """Where a shared buffer lies: its array, and its bytes from there."""

    array: Variable
    offset: int
    base: Symbol


class Addresses:
    """The addresses of one kernel."""

    def __init__(self, k: Kernel, values: Values) -> None:
        self._k, self._values = k, values
        self._parameters: dict[str, Variable] = {}
        self._places: dict[str, _Place] = {}
        self._tables: dict[bytes, Symbol] = {}
        self._lanes: LaneCode | None = None

    # --- declarations ---------------------------------------------------------------------------

    def declare(self, buffers: Iterable[Buffer]) -> None:
        """The parameters of global buffers, and arrays for the shared ones."""
        shared = []
        for buffer in buffers:
            element_size(buffer)
            if buffer.swizzle is not None and buffer.memory is not Memory.SHARED:
                raise UsageError(f"{buffer}: only shared memory has a swizzle")
            if buffer.memory is Memory.GLOBAL:
                parameter = self._k.parameter(buffer.name, "u64", "global", buffer.align)
                self._parameters[buffer.name] = parameter
            elif buffer.memory is Memory.SHARED:
                shared.append(buffer)
        self._share(shared)

    def _share(self, buffers: list[Buffer]) -> None:
        sizes = [_shared_size(b) for b in buffers]
        ends = 0
        offsets = []
        for buffer, size in zip(buffers, sizes, strict=True):
            offsets.append(-(-ends // _align(buffer)) * _align(buffer))
            ends = offsets[-1] + size
        array = None
        if ends > 48 << 10:
            array = self._k.shared("smem", ends, max(map(_align, buffers)))
        for buffer, size, offset in zip(buffers, sizes, offsets, strict=True):
            own = array or self._k.shared(buffer.name, size, _align(buffer))
            base = self._values.address(own)
            self._places[buffer.name] = _Place(own, offset if array else 0, base)

    # --- facts ----------------------------------------------------------------------------------

    def alignment(self, access: Access) -> int:
        """A number of bytes that the address is certainly a multiple of."""
        buffer, size = access.buffer, element_size(access.buffer)
        found = _align(buffer) if buffer.memory is Memory.SHARED else buffer.align
        for index, stride in zip(access.index, buffer.strides, strict=True):
            values = self._values
            found = gcd(found, values.multiple(index) * values.multiple(stride) * size)
        if buffer.swizzle is not None:
            found = gcd(found, buffer.swizzle.chunk * size)
        return found

    def address(self, access: Access) -> Address:
        """The address of an element in memory."""
        if access.buffer.memory is Memory.GLOBAL:
            return self._global(access)
        return self.shared(access.buffer, self.shared_offset(access))

    # --- global memory --------------------------------------------------------------------------

    def _global(self, access: Access) -> Address:
        buffer, size = access.buffer, element_size(access.buffer)
        parts: _Strided = {}
        offset = 0
        for index, stride in zip(access.index, buffer.strides, strict=True):
            if self._values.depth(stride):
                raise UsageError(f"{buffer}: the stride {stride} varies")
            total = linear(index)
            if isinstance(stride, Int):
                offset += total.const * stride.value * size
                total = Linear(0, total.terms)
            if stride == Int(0) or total == Linear():
                continue
            parts[stride] = parts[stride] + total if stride in parts else total
        low = offset if -(1 << 31) <= offset <= _MAX else 0
        pointer = self._pointer(buffer, {s: t for s, t in parts.items() if t != Linear()})
        if low != offset:
            far = self._k.new("mov.b64", "b64", offset)
            pointer = self._k.new("add.s64", "b64", pointer, far)
        return Address(pointer, low)

    def _pointer(self, buffer: Buffer, parts: _Strided) -> Register:
        key = (buffer.name, frozenset((s, t.key) for s, t in parts.items()))
        depths = [self._values.depth(a) for t in parts.values() for a, _ in t.terms]
        depth = max(depths, default=0)
        return self._values.once(key, depth, lambda: self._pointed(buffer, parts, depth))

    def _pointed(self, buffer: Buffer, parts: _Strided, depth: int) -> Register:
        """A pointer from one that lies further out."""
        fixed = {s: t.const for s, t in parts.items() if t.const}
        if fixed:
            return self._beside(buffer, parts, fixed, depth)
        if depth:
            return self._varying(buffer, parts, depth)
        if parts:  # rows first: several columns may start from them
            *_, last = sorted(parts, key=lambda s: isinstance(s, Int))
            before = self._pointer(buffer, {s: t for s, t in parts.items() if s != last})
            return self._added(before, {last: parts[last]}, element_size(buffer))
        k = self._k
        given = k.new("ld.param.u64", "b64", Address(self._parameters[buffer.name]))
        return k.new("cvta.to.global.u64", "b64", given)

    def _beside(
        self, buffer: Buffer, parts: _Strided, fixed: Mapping[Expr, int], depth: int
    ) -> Register:
        """A pointer a constant number of strides from another.

        It is counted from the one before, so that rows at equal distances need one distance and
        their pointers live shortly.
        """
        first = _nonzero({s: Linear(0, t.terms) for s, t in parts.items()})
        start = self._pointer(buffer, first)
        known = self._values.scopes[depth].pointers
        before, pointer = known.get(start, ({}, start))
        for stride in dict.fromkeys((*fixed, *before)):
            count = fixed.get(stride, 0) - before.get(stride, 0)
            if count:
                distance = self._times(stride, count * element_size(buffer))
                pointer = self._k.new("add.s64", "b64", pointer, distance)
        known[start] = (fixed, pointer)
        return pointer

    def _varying(self, buffer: Buffer, parts: _Strided, depth: int) -> Register:
        values, size = self._values, element_size(buffer)
        loop = values.scopes[depth]
        own = {s: t.where(lambda a: values.depth(a) == depth) for s, t in parts.items()}
        here = _nonzero({s: t.where(lambda a: a != loop.var) for s, t in own.items()})
        if here:
            rest = {s: t + here[s] * -1 if s in here else t for s, t in parts.items()}
            return self._added(self._pointer(buffer, _nonzero(rest)), here, size)
        var = loop.var
        assert var is not None, "only loops have variables"
        steps = {s: Linear(t.factor(var)) for s, t in parts.items() if t.factor(var)}
        first = {
            s: t + (Linear(0, ((var, -1),)) + linear(loop.start)) * t.factor(var)
            for s, t in parts.items()
        }
        before = self._pointer(buffer, self._whole(first))
        step = self._distance(steps, size)
        with self._k.writing(values.scopes[depth - 1].lines):
            pointer = self._k.new("mov.b64", "b64", before)
            if offset := self._offset(first, size):
                self._k.emit("add.s64", pointer, pointer, self._wide(offset))
        with self._k.writing(loop.advance):
            self._k.emit("add.s64", pointer, pointer, step)
        return pointer

    @staticmethod
    def _whole(parts: _Strided) -> _Strided:
        """The parts without constants of constant strides."""
        return _nonzero(
            {s: Linear(0, t.terms) if isinstance(s, Int) else t for s, t in parts.items()}
        )

    @staticmethod
    def _offset(parts: _Strided, size: int) -> int:
        """The bytes of constants of constant strides."""
        return sum(t.const * s.value * size for s, t in parts.items() if isinstance(s, Int))

    def _distance(self, steps: _Strided, size: int) -> Register | int:
        """Bytes for constants, in 64 bits."""
        total = self._offset(steps, size)
        symbolic: _Strided = {s: t for s, t in steps.items() if not isinstance(s, Int)}
        if not symbolic:
            return self._wide(total)
        key = ("distance", size, total, frozenset((s, t.key) for s, t in symbolic.items()))
        return self._values.once(key, 0, lambda: self._summed(symbolic, size, total))

    def _summed(self, steps: _Strided, size: int, total: int) -> Register:
        k = self._k
        sum_: Register | None = None
        for stride, step in steps.items():
            term = self._times(stride, step.const * size)
            sum_ = term if sum_ is None else k.new("add.s64", "b64", sum_, term)
        assert sum_ is not None
        return k.new("add.s64", "b64", sum_, self._wide(total)) if total else sum_

    def _wide(self, number: int) -> Register | int:
        if -(1 << 31) <= number <= _MAX:
            return number
        return self._values.once(
            ("wide", number), 0, lambda: self._k.new("mov.b64", "b64", number)
        )  # fmt: skip

    def _times(self, stride: Expr, factor: int) -> Register:
        """A multiple of a stride in 64 bits."""
        key = ("multiple", stride, factor)
        return self._values.once(key, 0, lambda: self._multiplied(stride, factor))

    def _multiplied(self, stride: Expr, factor: int) -> Register:
        k = self._k
        if self._narrow(stride) and -(1 << 31) <= factor <= _MAX:
            return k.new("mul.wide.s32", "b64", self._values.register(stride), factor)
        return k.new("mul.lo.s64", "b64", self._long(stride), self._wide(factor))

    def _narrow(self, e: Expr) -> bool:
        """Whether a value certainly fits in 32 bits."""
        low, high = self._values.bounds(e)
        return low is not None and high is not None and low >= -(1 << 31) and high <= _MAX

    def _long(self, e: Expr) -> Register:
        """A value in 64 bits."""
        return self._values.once(("long", e), self._values.depth(e), lambda: self._longer(e))

    def _longer(self, e: Expr) -> Register:
        k, values = self._k, self._values
        if isinstance(e, Op) and not self._narrow(e):
            if e.name == "*" and self._narrow(e.left) and self._narrow(e.right):
                left, right = values.register(e.left), values.value(e.right)
                return k.new("mul.wide.s32", "b64", left, right)
            word = {"*": "mul.lo.s64", "+": "add.s64", "-": "sub.s64"}.get(e.name)
            if word is not None:
                return k.new(word, "b64", self._long(e.left), self._long(e.right))
        return k.new("cvt.s64.s32", "b64", values.register(e))

    def _added(self, pointer: Register, parts: _Strided, size: int) -> Register:
        """A pointer moved on by elements."""
        k, values = self._k, self._values
        for stride, total in parts.items():
            value = values.total(total)
            if isinstance(stride, Int) and abs(stride.value * size) <= _MAX:
                pointer = k.new("mad.wide.s32", "b64", value, stride.value * size, pointer)
            elif size == 1 and self._narrow(stride):
                factor = values.register(stride)
                pointer = k.new("mad.wide.s32", "b64", value, factor, pointer)
            else:
                pointer = k.new("add.s64", "b64", pointer, self._product(total, stride, size))
        return pointer

    def _product(self, total: Linear, stride: Expr, size: int) -> Register:
        """The bytes of so many strides."""
        key = ("product", total.key, stride, size)
        depth = max(self._values.depth(a) for a, _ in total.terms)
        return self._values.once(key, depth, lambda: self._multiple(total, stride, size))

    def _multiple(self, total: Linear, stride: Expr, size: int) -> Register:
        k, value = self._k, self._values.total(total)
        if self._narrow(stride):
            product = k.new("mul.wide.s32", "b64", value, self._values.register(stride))
        else:
            index = k.new("cvt.s64.s32", "b64", value)
            product = k.new("mul.lo.s64", "b64", index, self._long(stride))
        return k.new("shl.b64", "b64", product, size.bit_length() - 1) if size > 1 else product

    # --- shared memory --------------------------------------------------------------------------

    def shared_offset(self, access: Access) -> Linear:
        """Bytes from the start of a shared buffer, before a swizzle."""
        size = element_size(access.buffer)
        total = Linear()
        for index, stride in zip(access.index, access.buffer.strides, strict=True):
            assert isinstance(stride, Int), "shared buffers have constant strides"
            total = total + linear(index) * (stride.value * size)
        return total

    def shared(self, buffer: Buffer, offset: Linear) -> Address:
        """The address of a byte of a shared buffer."""
        if buffer.swizzle is not None:
            offset = self.swizzled(offset, _byte_swizzle(buffer))
        place = self._places[buffer.name]
        const = offset.const + place.offset
        if not offset.terms:
            return Address(place.array, const)
        sum_ = self._values.total(Linear(0, ((place.base, 1), *offset.terms)))
        assert isinstance(sum_, Register)
        return Address(sum_, const)

    def swizzled(self, offset: Linear, swizzle: Swizzle) -> Linear:
        """Bytes after a swizzle; terms that are multiples of its period are added behind it."""
        outer = Linear(0, tuple(t for t in offset.terms if t[1] % swizzle.period == 0))
        inner = Linear(0, tuple(t for t in offset.terms if t[1] % swizzle.period))
        low = offset.const % swizzle.period
        outer = outer.plus(offset.const - low)
        if not inner.terms:
            return outer.plus(swizzle.apply(low))
        values = self._values
        inner = inner.plus(low)
        depth = max(values.depth(a) for a, _ in inner.terms)

        def permuted() -> Register:
            register = values.total(inner)
            assert isinstance(register, Register)
            return swizzled(self._k, register, swizzle)

        key = ("swizzled", inner.key, swizzle)
        register = values.once(key, depth, permuted)
        symbol = values.symbol_of(register, depth)
        return outer + Linear(0, ((symbol, 1),))

    def matrix_rows(self, buffer: Buffer, base: Linear, table: Table) -> Address:
        """The address of a byte in each lane, ``table`` bytes from ``base`` before a swizzle."""
        if buffer.swizzle is None:
            return self.shared(buffer, base + self._lane_offset(table, None))
        swizzle = _byte_swizzle(buffer)
        if any(f % swizzle.period for _, f in base.terms):
            return self.shared(buffer, base + self._lane_offset(table, None))
        low = base.const % swizzle.period
        after = swizzle.apply_array(table + low)
        place = self._places[buffer.name]
        whole = base.plus(-low) + self._lane_offset(after, swizzle)
        if not whole.terms:
            return Address(place.array, whole.const + place.offset)
        sum_ = self._values.total(Linear(0, ((place.base, 1), *whole.terms)))
        assert isinstance(sum_, Register)
        return Address(sum_, whole.const + place.offset)

    def _lane_offset(self, table: Table, swizzle: Swizzle | None) -> Linear:
        """A table over the lanes as a value; tables that differ by a constant are one."""
        # a table whose lowest entry is 0 has the same code, and a swizzle of it too where the
        # constant is a multiple of the period
        least = int(table.min())
        if swizzle is not None:
            least -= least % swizzle.period
        table = table - least
        if not table.any():
            return Linear(least)
        key = table.tobytes()
        if key not in self._tables:
            with self._k.writing(self._values.scopes[0].lines):
                if self._lanes is None:
                    lane = self._values.register(Symbol("tid.x"))
                    self._lanes = LaneCode(self._k, lane)
                register = self._lanes.value(synthesize(table, swizzle))
            self._tables[key] = self._values.hold("rows", register, 0)
        return Linear(least, ((self._tables[key], 1),))


# --- buffers --------------------------------------------------------------------------------------


def _align(buffer: Buffer) -> int:
    """The alignment of a shared array in bytes."""
    return max(16, buffer.align)


def _byte_swizzle(buffer: Buffer) -> Swizzle:
    assert buffer.swizzle is not None
    return buffer.swizzle.in_bytes(8 * element_size(buffer))


def _shared_size(buffer: Buffer) -> int:
    """Bytes of a shared buffer."""
    size = 1
    for extent, stride in zip(buffer.extents, buffer.strides, strict=True):
        if not (isinstance(extent, Int) and isinstance(stride, Int)):
            raise UsageError(f"the shared buffer {buffer} needs constant extents and strides")
        size += (extent.value - 1) * stride.value
    size *= element_size(buffer)
    if buffer.swizzle is None:
        return size
    period = _byte_swizzle(buffer).period
    first = buffer.strides[0]
    assert isinstance(first, Int)
    if len(buffer.strides) > 2 and first.value * element_size(buffer) % period:
        raise UsageError(
            f"the slots of {buffer} are no multiples of {period} bytes, the period of its swizzle"
        )
    return -(-size // period) * period


def _nonzero(parts: Mapping[Expr, Linear]) -> _Strided:
    return {s: t for s, t in parts.items() if t != Linear()}

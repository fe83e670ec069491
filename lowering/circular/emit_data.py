"""Copies, fills and arithmetic of single threads."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ptxsim.build import Address, Kernel, Negated, Operand, Register
from ptxsim.errors import UsageError
from ptxsim.targets import parse_target

from .emit_address import SIZES, Addresses, element_size
from .emit_values import Values
from .integers import Expr, Int, Op, Select
from .linear import linear
from .loops import Access, Compute, Copy, Fill, Memory, Test, ZeroFill

__all__ = ["Data", "converted", "number_bits"]

#: The first PTX ISA version in which cp.async can ignore its source.
_IGNORES = (7, 5)

#: Instructions by operation and type; those of integers wrap around.
_FLOATS = {
    "add": "add.rn", "sub": "sub.rn", "mul": "mul.rn", "fma": "fma.rn",
    "max": "max", "min": "min", "neg": "neg",
}  # fmt: skip
_INTEGERS = {
    "add": "add", "sub": "sub", "mul": "mul.lo", "fma": "mad.lo",
    "max": "max", "min": "min", "neg": "neg",
}  # fmt: skip
_SOURCES = {"neg": 1, "cast": 1, "exp2": 1, "fma": 3}


class Data:
    """Statements on elements, in one kernel."""

    def __init__(self, k: Kernel, values: Values, addresses: Addresses) -> None:
        target = parse_target(k.target)
        assert target is not None and k.version is not None
        self._k, self._values, self._addresses = k, values, addresses
        self._async = target.number >= 80
        self._ignores = k.version >= _IGNORES
        self._locals: dict[tuple[str, int], Register] = {}

    # --- conditions -----------------------------------------------------------------------------

    def guard(self, tests: Sequence[Test]) -> Register | bool | None:
        """The predicate of tests; None where all hold, False where one never does."""
        if any(t.condition == Int(0) for t in tests):
            return False
        former: Register | None = None
        for test in tests:
            if not isinstance(test.condition, Int):
                former = self._values.predicate(test.condition, test.why.value, former)
        return former

    # --- copies ---------------------------------------------------------------------------------

    def copy(self, node: Copy) -> None:
        """Write a copy."""
        out, source = node.out.buffer, node.source.buffer
        if out.dtype != source.dtype:
            raise UsageError(f"a copy of {source.dtype} to {out.dtype} is a cast: {node.out}")
        if node.cache and (out.memory, source.memory) != (Memory.SHARED, Memory.GLOBAL):
            raise UsageError(f"cp.async copies from global to shared memory, not to {node.out}")
        swizzle = out.swizzle
        if node.cache and swizzle is not None and node.width > swizzle.chunk:
            raise UsageError(f"{node.width} elements do not stay together in {swizzle}: {node.out}")
        guard = self.guard(node.guard)
        if guard is False or node.width == 0:
            return
        assert not isinstance(guard, bool)
        if node.cache and self._async:
            self._copy_async(node, guard)
        elif Memory.LOCAL in (out.memory, source.memory):
            self._copy_registers(node, guard)
        else:
            self._copy_memory(node, guard)

    def _copy_async(self, node: Copy, guard: Register | None) -> None:
        size = element_size(node.out.buffer)
        bytes_ = node.width * size
        legal = (16,) if node.cache == "cg" else (4, 8, 16)
        if node.cache not in ("ca", "cg") or bytes_ not in legal:
            raise UsageError(f"cp.async.{node.cache} does not copy {bytes_} bytes: {node.out}")
        operands: list[Operand] = [bytes_]
        if node.zero is not None:
            operands += self._source_size(node, node.zero, size)
        self._k.emit(
            f"cp.async.{node.cache}.shared.global",
            self._addresses.address(node.out), self._addresses.address(node.source), *operands,
            guard=guard,
        )  # fmt: skip

    def _source_size(self, node: Copy, zero: ZeroFill, size: int) -> list[Operand]:
        """The operand of cp.async that says how much is read; none where that is all."""
        live = self._live(zero, node.width)
        if isinstance(live, Int):
            return [] if live.value >= node.width else [max(live.value, 0) * size]
        if zero.whole:
            some = self._values.predicate(_any(live), zero.why.value)
            if self._ignores:
                return [Negated(some)]
            return [self._k.new("selp.b32", "b32", node.width * size, 0, some)]
        return [self._values.register(live * size)]

    def _live(self, zero: ZeroFill, width: int) -> Expr:
        """How many elements are read, certainly from 0 to the width."""
        low, high = self._values.bounds(zero.live)
        live = zero.live
        if zero.whole:
            return live
        if low is None or low < 0:
            live = Op("max", live, Int(0))
        return Op("min", live, Int(width)) if high is None or high > width else live

    def _copy_memory(self, node: Copy, guard: Register | None) -> None:
        """From memory to memory, through registers as wide as both sides allow."""
        size = element_size(node.out.buffer)
        align = min(16, self._alignment(node.out), self._alignment(node.source))
        if node.cache:
            align = 16  # whoever chose a cp.async knows that its addresses are multiples
        zero = None if node.zero is None else self._live(node.zero, node.width)
        if zero is None or (isinstance(zero, Int) and zero.value >= node.width):
            self._move(node, guard, align, None)
        elif node.zero is not None and node.zero.whole:
            some = self._values.predicate(_any(zero), node.zero.why.value)
            both = some
            if guard is not None:
                both = self._k.new("and.pred", "pred", some, guard)
            self._move(node, guard, align, both)
        else:
            assert node.zero is not None
            for n in range(node.width):
                exists = self._values.predicate(Op("<", Int(n), zero), node.zero.why.value)
                if guard is not None:
                    exists = self._k.new("and.pred", "pred", exists, guard)
                one = Copy(_at(node.out, n), _at(node.source, n))
                self._move(one, guard, size, exists)

    def _move(self, node: Copy, guard: Register | None, align: int, live: Register | None) -> None:
        """Loads where something is live, and stores of that or of zeros."""
        k = self._k
        size = element_size(node.out.buffer)
        source, out = self._places(node.source), self._places(node.out)
        for offset, bytes_ in _chunks(node.width * size, align):
            suffix, type_, count = _words(bytes_)
            words = k.registers(type_, count)
            if live is not None:
                for word in words:
                    k.emit(f"mov.{'b16' if type_ == 'b16' else 'b32'}", word, 0)
            value = words if count > 1 else words[0]
            load = f"ld.{node.source.buffer.memory.value}{suffix}"
            store = f"st.{node.out.buffer.memory.value}{suffix}"
            k.emit(load, value, source(offset), guard=guard if live is None else live)
            k.emit(store, out(offset), value, guard=guard)

    def _copy_registers(self, node: Copy, guard: Register | None) -> None:
        k = self._k
        if node.zero is not None:
            self._zero_registers(node, node.zero, guard)
            return
        if node.out.buffer.memory is node.source.buffer.memory:
            for n in range(node.width):
                to, of = self.local(node.out, n), self.local(node.source, n)
                k.emit(_moved(to.type), to, of, guard=guard)
            return
        loads = node.out.buffer.memory is Memory.LOCAL
        inner, memory = (node.out, node.source) if loads else (node.source, node.out)
        self._transfer(memory, inner, node.width, guard, loads)

    def _zero_registers(self, node: Copy, zero: ZeroFill, guard: Register | None) -> None:
        """Zeros in the registers, and loads of the elements that exist."""
        if node.out.buffer.memory is not Memory.LOCAL:
            raise UsageError(
                f"zeros are filled in by a copy to registers or shared memory: {node.out}"
            )
        live = self._live(zero, node.width)
        if isinstance(live, Int) and live.value >= node.width:
            self._copy_registers(Copy(node.out, node.source, node.width), guard)
            return
        whole = self._values.predicate(_any(live), zero.why.value) if zero.whole else None
        for n in range(node.width):
            register = self.local(node.out, n)
            self._k.emit(_moved(register.type), register, _immediate(0, register), guard=guard)
        step = node.width if zero.whole else 1
        for n in range(0, node.width, step):
            exists = whole
            if exists is None:
                exists = self._values.predicate(Op("<", Int(n), live), zero.why.value)
            if guard is not None:
                exists = self._k.new("and.pred", "pred", exists, guard)
            self._copy_registers(Copy(_at(node.out, n), _at(node.source, n), step), exists)

    def _transfer(
        self, memory: Access, inner: Access, width: int, guard: Register | None, loads: bool
    ) -> None:
        """Registers from or to memory, up to four elements or 16 bytes at a time."""
        size = element_size(memory.buffer)
        align = max(min(self._alignment(memory), 4 * size, 16), size)
        place = self._places(memory)
        for offset, bytes_ in _chunks(width * size, align):
            count = bytes_ // size
            registers = tuple(self.local(inner, offset // size + n) for n in range(count))
            value = registers if count > 1 else registers[0]
            vector = f".v{count}" if count > 1 else ""
            type_ = _memory_type(memory.buffer.dtype)
            opcode = f"{'ld' if loads else 'st'}.{memory.buffer.memory.value}{vector}.{type_}"
            at = place(offset)
            self._k.emit(opcode, *((value, at) if loads else (at, value)), guard=guard)

    def _places(self, access: Access) -> Callable[[int], Address]:
        """The address so many bytes on, of elements in a row."""
        first = self._addresses.address(access)
        swizzle, size = access.buffer.swizzle, element_size(access.buffer)
        chunk = None if swizzle is None else swizzle.chunk * size
        if chunk is not None and self._addresses.alignment(access) % chunk:
            chunk = 0  # the neighbours may be in another chunk

        def place(offset: int) -> Address:
            if chunk is None or offset < max(chunk, 1):
                return Address(first.base, first.offset + offset)
            return self._addresses.address(_at(access, offset // size))

        return place

    def _alignment(self, access: Access) -> int:
        """The greatest power of two that an address is certainly a multiple of."""
        found = self._addresses.alignment(access)
        return found & -found if found else 16

    # --- registers ------------------------------------------------------------------------------

    def local(self, access: Access, further: int = 0) -> Register:
        """The register of an element of a local buffer."""
        offset = linear(access.offset)
        if offset.terms:
            raise UsageError(f"{access}: registers have no addresses; the index must be a constant")
        if access.buffer.fragment is not None:
            raise UsageError(f"{access}: a warp holds the matrix, no thread its elements")
        key = (access.buffer.name, offset.const + further)
        if key not in self._locals:
            ends = [
                e.value * s.value if isinstance(e, Int) and isinstance(s, Int) else 0
                for e, s in zip(access.buffer.extents, access.buffer.strides, strict=True)
            ]
            if not 0 <= key[1] < max(ends, default=1):
                raise UsageError(f"{access}: element {key[1]} is outside of the buffer")
            self._locals[key] = self._k.register(_register_type(access.buffer.dtype))
        return self._locals[key]

    # --- fills ----------------------------------------------------------------------------------

    def fill(self, node: Fill) -> None:
        """Write a fill of elements."""
        guard = self.guard(node.guard)
        if guard is False:
            return
        assert not isinstance(guard, bool)
        k, dtype = self._k, node.out.buffer.dtype
        bits = number_bits(node.value, dtype)
        if node.out.buffer.memory is Memory.LOCAL:
            for n in range(node.width):
                register = self.local(node.out, n)
                k.emit(_moved(register.type), register, _immediate(bits, register), guard=guard)
            return
        size = SIZES[dtype]
        align = min(16, self._alignment(node.out))
        place = self._places(node.out)
        for offset, bytes_ in _chunks(node.width * size, align):
            suffix, _, count = _words(bytes_)
            word = bits
            for step in range(size, min(bytes_, 4), size):
                word |= bits << 8 * step
            value: Operand = (word,) * count if count > 1 else word
            space = node.out.buffer.memory.value
            k.emit(f"st.{space}{suffix}", place(offset), value, guard=guard, tag="fill")

    # --- arithmetic -----------------------------------------------------------------------------

    def compute(self, node: Compute) -> None:
        """Write an operation on elements."""
        if len(node.sources) != _SOURCES.get(node.op, 2):
            raise UsageError(f"{node.op} has {_SOURCES.get(node.op, 2)} sources: {node.out}")
        guard = self.guard(node.guard)
        if guard is False:
            return
        assert not isinstance(guard, bool)
        dtype = node.out.buffer.dtype
        sources = tuple(converted(self._k, *self._read(s, guard), dtype) for s in node.sources)
        local = node.out.buffer.memory is Memory.LOCAL
        out = self.local(node.out) if local else self._k.register(_register_type(dtype))
        opcode = _moved(out.type) if node.op == "cast" else _opcode(node.op, dtype)
        self._k.emit(opcode, out, *sources, guard=guard)
        if not local:
            space, type_ = node.out.buffer.memory.value, _memory_type(dtype)
            address = self._addresses.address(node.out)
            self._k.emit(f"st.{space}.{type_}", address, out, guard=guard)

    def _read(self, access: Access, guard: Register | None) -> tuple[Register, str]:
        """A register with an element, and the type of that."""
        dtype = access.buffer.dtype
        if access.buffer.memory is Memory.LOCAL:
            return self.local(access), dtype
        register = self._k.register(_register_type(dtype))
        opcode = f"ld.{access.buffer.memory.value}.{_memory_type(dtype)}"
        self._k.emit(opcode, register, self._addresses.address(access), guard=guard)
        return register, dtype


# --- types ----------------------------------------------------------------------------------------


def _register_type(dtype: str) -> str:
    return "f32" if dtype == "f32" else "b32" if SIZES[dtype] == 4 else "b16"


def _memory_type(dtype: str) -> str:
    """The type of a load or store; bytes are extended to their registers."""
    return dtype if dtype in ("f32", "s8", "u8") else f"b{8 * SIZES[dtype]}"


def _moved(type_: str) -> str:
    return f"mov.{type_}"


def number_bits(value: float | int, dtype: str) -> int:
    """The bits of a number in a type; it must be one that the type has."""
    size = SIZES[dtype]
    if dtype in ("f32", "tf32", "bf16"):
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
        if dtype == "bf16":
            if bits & 0xFFFF:
                raise UsageError(f"bf16 does not have the value {value}")
            bits >>= 16
        return int(bits)
    if dtype == "f16":
        return int(np.float16(value).view(np.uint16))
    return int(value) & ((1 << 8 * size) - 1)


def _immediate(bits: int, register: Register) -> Operand:
    if register.type == "f32":
        return float(struct.unpack("<f", struct.pack("<I", bits))[0])
    return bits


def converted(k: Kernel, register: Register, of: str, to: str) -> Register:
    """A value in another type: rounded to the nearest, integers cut off."""
    if of == to:
        return register
    floats = ("f32", "f16", "bf16")
    if of not in SIZES or to not in SIZES or "tf32" in (of, to):
        raise UsageError(f"there is no cast from {of} to {to}")
    rounding = ""
    if to in floats and (of not in floats or SIZES[to] < SIZES[of]):
        rounding = ".rn"
    elif of in floats and to not in floats:
        rounding = ".rzi"
    if of in floats and to in floats and SIZES[of] == SIZES[to]:
        return converted(k, converted(k, register, of, "f32"), "f32", to)
    if "bf16" in (of, to) and not {of, to} <= set(floats):
        return converted(k, converted(k, register, of, "f32"), "f32", to)
    if (of, to) == ("bf16", "f32"):  # an instruction for it has sm_90
        return k.new("mov.b32", "f32", (k.new("mov.b16", "b16", 0), register))
    return k.new(f"cvt{rounding}.{to}.{of}", _register_type(to), register)


def _opcode(op: str, dtype: str) -> str:
    if op == "exp2" and dtype == "f32":
        return "ex2.approx.f32"
    table = _FLOATS if dtype in ("f32", "f16", "bf16") else _INTEGERS
    if op not in table or dtype not in ("f32", "f16", "bf16", "s32"):
        raise UsageError(f"there is no operation {op} on {dtype}")
    return f"{table[op]}.{dtype}"


# --- pieces ---------------------------------------------------------------------------------------


def _any(live: Expr) -> Expr:
    """The condition that something is live, without the limits of the number."""
    if isinstance(live, Select) and live.no == Int(0):
        return live.condition
    if isinstance(live, Op) and live.name in ("min", "max"):
        limit = live.right
        if isinstance(limit, Int) and (limit.value > 0) == (live.name == "min"):
            return _any(live.left)
    if isinstance(live, Op) and live.name == "*" and isinstance(live.right, Int):
        if live.right.value > 0:
            return _any(live.left)
    if isinstance(live, Op) and live.name == "-":
        return Op("<", live.right, live.left)
    return Op("<", Int(0), live)


def _at(access: Access, further: int) -> Access:
    """The element so many places on along the axis with neighbours."""
    if not further:
        return access
    unit = [n for n, s in enumerate(access.buffer.strides) if s == Int(1)]
    if not unit:
        raise UsageError(f"{access}: no axis has neighbours in a row")
    index = list(access.index)
    index[unit[-1]] = index[unit[-1]] + further
    return Access(access.buffer, tuple(index))


def _chunks(bytes_: int, align: int) -> Iterator[tuple[int, int]]:
    """Offset and bytes of accesses that are as wide as their alignment allows."""
    offset = 0
    while offset < bytes_:
        size = min(align, 16)
        while offset % size or offset + size > bytes_:
            size >>= 1
        yield offset, size
        offset += size


def _words(bytes_: int) -> tuple[str, str, int]:
    """Suffix of the opcode, type and number of registers for so many bytes."""
    count = max(bytes_ // 4, 1)
    vector = f".v{count}" if count > 1 else ""
    unit = min(bytes_, 4)
    type_ = "b32" if unit == 4 else "b16"
    return f"{vector}.{'u8' if unit == 1 else f'b{8 * unit}'}", type_, count

"""Scalar expressions of the kernel IR as PTX: every operator is one or two instructions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxsim.build import Address, Kernel, Operand, Register, Special

from .expressions import fact_of
from .facts import Launch
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
from .walk import reads_memory

__all__ = ["Buffer", "Scalars", "Value", "real_value"]

#: Register class and instruction type of each type of the IR.
_REGISTER = {"int32": "b32", "int64": "b64", "float32": "f32", "float64": "f64", "bool": "pred"}
_TYPE = {"int32": "s32", "int64": "s64", "float32": "f32", "float64": "f64"}
_COMPARE = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
_SPECIAL = {"thread_idx": "tid", "block_idx": "ctaid", "block_dim": "ntid", "grid_dim": "nctaid"}


@dataclass(frozen=True, slots=True)
class Value:
    """What an expression is: a register or a constant, and its type."""

    operand: Register | int | float
    type: str


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer of the kernel: where it starts, and how many elements it has."""

    space: str
    element: str
    base: Register
    length: Register | int

    @property
    def bits(self) -> int:
        """Bits of an element."""
        return ELEMENTS[self.element]


def real_value(value: int | float, type_: str) -> float:
    """A number as a float of its type; what is too large for float32 is infinite."""
    with np.errstate(over="ignore"):
        return float(np.float32(value)) if type_ == "float32" else float(value)


class Scalars:
    """Expressions of one kernel that is being written."""

    def __init__(self, k: Kernel, launch: Launch) -> None:
        self.k, self.launch = k, launch
        self.buffers: dict[str, Buffer] = {}
        self.intrinsics: dict[str, Register] = {}
        self.scopes: list[dict[str, Value]] = [{}]
        #: expressions whose values are at hand
        self.known: dict[Expression, Value] = {}

    # --- names ----------------------------------------------------------------------------------

    def find(self, name: str) -> Value:
        """The variable that a name means here."""
        return next(s[name] for s in reversed(self.scopes) if name in s)

    def register(self, type_: str) -> Register:
        """A new register for a value of a type of the IR."""
        return self.k.register(_REGISTER[type_])

    def move(self, target: Register, value: Value) -> None:
        """``target = value``."""
        if value.type == "bool" and isinstance(value.operand, int):
            self.k.emit("setp.ne.u32", target, int(value.operand), 0)
        elif target != value.operand:
            self.k.emit(f"mov.{_REGISTER[value.type]}", target, self.operand(value))

    def intrinsic(self, name: str) -> None:
        """Read what a thread asks about itself, once for the kernel."""
        what, axis = name.rsplit("_", 1)
        special = Special(f"%{_SPECIAL[what]}.{axis}")
        self.intrinsics[name] = self.k.new("mov.u32", "b32", special)

    # --- expressions ----------------------------------------------------------------------------

    def expr(self, e: Expression, into: Register | None = None) -> Value:
        """Write an expression; the result is in ``into`` only if it took an instruction."""
        known = self.known.get(e) if self.known else None
        if known is not None:
            return known
        match e:
            case Const(value, type_):
                return Value(int(value) if type_ == "bool" else value, type_)
            case Var(name):
                return self.find(name)
            case Intrinsic(name):
                return self._folded(e) or Value(self.intrinsics[name], "int32")
            case Length(buffer):
                return Value(self.buffers[buffer].length, "int32")
            case Element(buffer, index):
                return self._element(buffer, index, into)
            case Cast(type_, operand):
                a = self.expr(operand)
                return self._folded(Cast(type_, _constant(a)), a) or self._cast(type_, a, into)
            case Unary(op, operand):
                a = self.expr(operand)
                return self._folded(Unary(op, _constant(a)), a) or self._unary(op, a, into)
            case Binary("and" | "or" as op, left, right) if reads_memory(right):
                return self._short_circuit(op, left, right)
            case Binary(op, left, right):
                a, b = self.expr(left), self.expr(right)
                both = Binary(op, _constant(a), _constant(b))
                return self._folded(both, a, b) or self._binary(op, a, b, into)
        raise AssertionError(e)

    def _folded(self, e: Expression, *operands: Value) -> Value | None:
        """The value of an operation on integers that are known, if it is known too."""
        if any(isinstance(v.operand, Register | float) for v in operands):
            return None
        fact = fact_of(e, {}, self.launch)
        if fact.type not in ("int32", "int64", "bool") or fact.modulus or fact.lanes is not None:
            return None
        return Value(fact.residue, fact.type)

    def _emit(self, type_: str, opcode: str, into: Register | None, *sources: Operand) -> Value:
        target = into or self.register(type_)
        self.k.emit(opcode, target, *sources)
        return Value(target, type_)

    def operand(self, value: Value) -> Operand:
        """A value where an instruction wants one; constant predicates take a register."""
        if value.type == "bool" and not isinstance(value.operand, Register):
            target = self.register("bool")
            self.move(target, value)
            return target
        if value.type.startswith("float") and not isinstance(value.operand, Register):
            return real_value(value.operand, value.type)
        return value.operand

    def _unary(self, op: str, value: Value, into: Register | None) -> Value:
        opcode = {
            "neg": f"neg.{_TYPE.get(value.type)}",
            "not": "not.pred",
            "bitnot": f"not.{_REGISTER[value.type]}",
        }[op]
        return self._emit(value.type, opcode, into, self.operand(value))

    def _binary(self, op: str, left: Value, right: Value, into: Register | None) -> Value:
        type_ = left.type
        a, b = self.operand(left), self.operand(right)
        if type_ == "bool":
            return self._logic(op, a, b, into)
        kind, bits = _TYPE[type_], _REGISTER[type_]
        real = type_.startswith("float")
        if op in _COMPARE:
            # a comparison with NaN is false, except that NaN differs from everything
            word = "neu" if op == "ne" and real else _COMPARE[op]
            return self._emit("bool", f"setp.{word}.{kind}", into, a, b)
        if op in ("shl", "shr"):
            if type_ == "int64":
                b = self._amount(right)
            return self._emit(type_, f"shl.{bits}" if op == "shl" else f"shr.{kind}", into, a, b)
        if op.startswith("bit"):
            return self._emit(type_, f"{op[3:]}.{bits}", into, a, b)
        if op == "mul" and not real:
            return self._emit(type_, f"mul.lo.{kind}", into, a, b)
        # .rn keeps an addition and a product from being contracted to fma
        word = {"mod": "rem"}.get(op, op) + (".rn" if real else "")
        return self._emit(type_, f"{word}.{kind}", into, a, b)

    def _amount(self, value: Value) -> Operand:
        """A 64-bit amount of a shift as 32 bits: 64 and more are all alike."""
        if isinstance(value.operand, int):
            return min(value.operand & (1 << 64) - 1, 64)
        at_most = self.k.new("min.u64", "b64", value.operand, 64)
        return self.k.new("cvt.u32.u64", "b32", at_most)

    def _logic(self, op: str, a: Operand, b: Operand, into: Register | None) -> Value:
        if op in ("and", "or"):
            return self._emit("bool", f"{op}.pred", into, a, b)
        if op == "ne":
            return self._emit("bool", "xor.pred", into, a, b)
        assert op == "eq"
        differ = self.k.new("xor.pred", "pred", a, b)
        return self._emit("bool", "not.pred", into, differ)

    def _short_circuit(self, op: str, left: Expression, right: Expression) -> Value:
        """The right side reads memory, so only threads that need it may evaluate it."""
        result, done = self.register("bool"), self.k.label("known")
        self.move(result, self.expr(left, result))
        self.k.emit("bra", done, guard=result, unless=op == "and")
        self.move(result, self.expr(right, result))
        self.k.place(done)
        return Value(result, "bool")

    def _cast(self, type_: str, value: Value, into: Register | None) -> Value:
        have = value.type
        if have == type_:
            return value
        a = self.operand(value)
        if type_ == "bool":
            word = "neu" if have.startswith("float") else "ne"
            zero: Operand = 0.0 if have.startswith("float") else 0
            return self._emit("bool", f"setp.{word}.{_TYPE[have]}", into, a, zero)
        kind = _TYPE[type_]
        if have == "bool":
            real = type_.startswith("float")
            return self._emit(
                type_, f"selp.{kind}", into, *((1.0, 0.0) if real else (1, 0)), a
            )  # fmt: skip
        rounding = ""
        if have.startswith("float") and type_.startswith("int"):
            rounding = ".rzi"
        elif type_.startswith("float") and have != "float32":
            rounding = ".rn"
        return self._emit(type_, f"cvt{rounding}.{kind}.{_TYPE[have]}", into, a)

    # --- memory ---------------------------------------------------------------------------------

    def address(self, name: str, index: Expression) -> Register:
        """The address of an element as 64 bits; the index is widened with its sign."""
        buffer, value = self.buffers[name], self.expr(index)
        at, bits = value.operand, buffer.bits
        if isinstance(at, int):
            offset = (at * bits // 8 + (1 << 63)) % (1 << 64) - (1 << 63)
            return self.k.new("add.s64", "b64", buffer.base, offset) if offset else buffer.base
        assert isinstance(at, Register)
        if bits >= 8:
            opcode = "mad.wide.s32" if value.type == "int32" else "mad.lo.s64"
            return self.k.new(opcode, "b64", at, bits // 8, buffer.base)
        wide = self.wide(value)
        octets = self.k.new("shr.s64", "b64", wide, (8 // bits).bit_length() - 1)
        return self.k.new("add.s64", "b64", buffer.base, octets)

    def wide(self, value: Value) -> Register | int:
        """An integer as 64 bits."""
        if isinstance(value.operand, Register) and value.type == "int32":
            return self.k.new("cvt.s64.s32", "b64", value.operand)
        assert not isinstance(value.operand, float)
        return value.operand

    def _element(self, name: str, index: Expression, into: Register | None) -> Value:
        buffer = self.buffers[name]
        at = self.address(name, index)
        kind = _REGISTER[buffer.element]
        return self._emit(buffer.element, f"ld.{buffer.space}.{kind}", into, Address(at))

    def store(self, name: str, index: Expression, value: Expression) -> None:
        """Write the store of an element."""
        buffer = self.buffers[name]
        at = self.address(name, index)
        stored = self.expr(value)
        source = stored.operand
        if not isinstance(source, Register):
            source = self.register(buffer.element)
            self.move(source, stored)
        self.k.emit(f"st.{buffer.space}.{_REGISTER[buffer.element]}", Address(at), source)


def _constant(value: Value) -> Const:
    """A value as a constant; what is in a register has no value here, and counts as 0."""
    known = not isinstance(value.operand, Register)
    number = value.operand if known else 0
    assert not isinstance(number, Register)
    return Const(bool(number) if value.type == "bool" else number, value.type)

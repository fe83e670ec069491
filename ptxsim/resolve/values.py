"""Values: registers, special registers, constants and addresses as what an operand's type takes.

Register typing (PTX ISA 9.1, Operand Size Exceeding Instruction-Type Size; Type Information for
Instructions and Operands): sizes must agree, except where a form says that a wider register is
legal; ``.bN`` matches everything of its size, signed and unsigned mix freely, float and integer
types do not.
"""

from __future__ import annotations

import struct

from ..diagnostics import Span, did_you_mean
from ..isa.record import OperandSpec
from ..isa.special_registers import SPECIAL_REGISTERS
from ..syntax import ast
from ..types import SCALAR_TYPES, ScalarType
from .constants import ConstantError, FloatValue, IntValue, evaluate
from .scope import Scope, VectorRegister
from .typed import (
    Constant,
    FunctionRef,
    Negated,
    OperandValue,
    Register,
    RegisterGroup,
    Sink,
    SpecialRegister,
    Symbol,
    SymbolAddress,
)

__all__ = ["Mismatch", "group", "immediate", "integer", "named", "single_bits", "value"]

_COMPONENTS = {"x": 0, "y": 1, "z": 2, "w": 3, "r": 0, "g": 1, "b": 2, "a": 3}

#: The vector special registers whose components are also read as 16 bits.
_ONCE_OF_16_BITS = ("tid", "ntid", "ctaid", "nctaid")

_NAMES = (ast.Name, ast.Member)
_LISTS = (ast.Vector, ast.Address, ast.Subscript, ast.Pair, ast.Group)


class Mismatch(Exception):
    """An operand does not fit; ``score`` is how many fitted before it."""

    def __init__(
        self,
        message: str,
        span: Span,
        score: float = 0,
        code: str = "PTX106",
        help: str | None = None,
        notes: tuple[tuple[str, Span | None], ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.score = score
        self.code = code
        self.help = help
        self.notes = notes


def value(spec: OperandSpec, type_: ScalarType, operand: ast.Operand, scope: Scope) -> OperandValue:
    """A register, special register, constant or address as an operand of a type."""
    if type_.kind == "o":
        return _reference(spec, type_, operand, scope)
    if isinstance(operand, _NAMES):
        name = operand.text if isinstance(operand, ast.Name) else f"{operand.base}.{operand.field}"
        if name == "_":
            if not spec.sink:
                raise Mismatch(f"the sink '_' is not legal as operand {spec.name}", operand.span)
            return Sink()
        found = named(operand, scope)
        if isinstance(found, Register):
            if spec.constant:
                raise Mismatch(f"operand {spec.name} must be a constant", operand.span)
            _check_register(spec, type_, found, operand.span)
            if spec.untyped and found.type.kind != "b":
                raise Mismatch(
                    f"operand {spec.name} is a register declared .b{type_.bits}, '{found.name}' is"
                    f" {found.type}",
                    operand.span,
                )
            return found
        if spec.written:
            raise Mismatch(f"'{name}' is not a register and cannot be written", operand.span)
        if isinstance(found, SpecialRegister):
            return _special(spec, type_, found, operand.span)
        if isinstance(found, Symbol):
            return _symbol_value(spec, type_, found, 0, operand.span)
        if isinstance(found, FunctionRef):
            if type_.bits not in (32, 64):
                raise Mismatch(f"function '{found.name}' in a {type_} operand", operand.span)
            return found
        if isinstance(found, VectorRegister):
            raise Mismatch(f"'{name}' is a vector; name a component such as {name}.x", operand.span)
        if name != "WARP_SZ":
            raise Mismatch(f"'{name}' is not a value", operand.span)
    if isinstance(operand, ast.Unary) and operand.operator == "!" and spec.negatable:
        inner = operand.operand
        if isinstance(inner, ast.Name):
            found = named(inner, scope)
            if isinstance(found, Register):
                _check_register(spec, type_, found, operand.span)
                return Negated(found)
    if isinstance(operand, ast.Binary) and operand.operator == "+":
        symbol, offset = symbol_offset(operand, scope)
        if symbol is not None:
            return _symbol_value(spec, type_, symbol, offset, operand.span)
    if isinstance(operand, _LISTS):
        kinds = {"Vector": "a brace group", "Address": "an address", "Subscript": "an address",
                 "Pair": "a pair", "Group": "a parenthesised list"}  # fmt: skip
        what = kinds[type(operand).__name__]
        raise Mismatch(f"{what} is not legal as operand {spec.name}", operand.span)
    if spec.written:
        raise Mismatch(f"operand {spec.name} is a destination; a constant is not", operand.span)
    if spec.untyped:
        raise Mismatch(f"operand {spec.name} is a register, not a constant", operand.span)
    return immediate(type_, operand)


def named(
    operand: ast.Name | ast.Member, scope: Scope
) -> Register | SpecialRegister | Symbol | FunctionRef | VectorRegister | object:
    """What a name or component stands for; None for a constant by name."""
    if isinstance(operand, ast.Member):
        entity = scope.find(operand.base)
        if isinstance(entity, VectorRegister):
            index = _COMPONENTS[operand.field]
            if index >= len(entity.elements):
                raise Mismatch(f"'{entity.name}' has no component .{operand.field}", operand.span)
            return entity.elements[index]
        name = f"{operand.base}.{'xyzw'[_COMPONENTS[operand.field]]}"
        special = SPECIAL_REGISTERS.get(name[1:]) if name.startswith("%") else None
        if special:
            return SpecialRegister(name[1:], special[0])
        name = f"{operand.base}.{operand.field}"
        raise Mismatch(f"unknown register '{name}'", operand.span, code="PTX101")
    entity = scope.find(operand.text)
    if entity is not None:
        return entity
    if operand.text.startswith("%"):
        special = SPECIAL_REGISTERS.get(operand.text[1:])
        if special:
            return SpecialRegister(operand.text[1:], special[0])
    if operand.text == "WARP_SZ":
        return None
    what = "register" if operand.text.startswith("%") else "symbol"
    raise Mismatch(
        f"unknown {what} '{operand.text}'",
        operand.span,
        code="PTX101",
        help=did_you_mean(operand.text, scope),
    )


def _check_register(spec: OperandSpec, type_: ScalarType, register: Register, span: Span) -> None:
    have = register.type
    if type_.kind == "p" or have.kind == "p":
        if type_.kind != have.kind:
            raise Mismatch(
                f"operand {spec.name} needs a {type_} register, '{register.name}' is {have}", span
            )
        return
    fits = have.bits == type_.bits or (type_.bits < 8 and have.bits == 8)
    if spec.relaxed and have.bits > type_.bits:
        # a float may lie in a wider untyped register, an alternate or packed one may not (measured)
        fits = type_.kind in "bus" or (type_.kind == "f" and have.kind == "b")
    if not fits:
        raise Mismatch(
            f"operand {spec.name} is {type_} ({type_.bits} bits), but '{register.name}' is declared"
            f" {have} ({have.bits} bits)",
            span,
            help=f"convert with cvt, or use a {type_.bits}-bit register",
        )
    if have.kind == "b" or type_.kind == "b":
        return
    if have.name == "f16x2" and type_.name[0] in "us" and spec.type != type_.name:
        return  # where a modifier gives an integer type it counts as .b32 (measured)
    integers = "us"
    if (type_.kind in integers) == (have.kind in integers) and (
        type_.kind in integers or have.name == type_.name
    ):
        return
    raise Mismatch(
        f"operand {spec.name} is {type_}, but '{register.name}' is declared {have}",
        span,
        help=f"declare '{register.name}' as .b{have.bits} to use it with both",
    )


def _symbol_value(
    spec: OperandSpec, type_: ScalarType, symbol: Symbol, offset: int, span: Span
) -> SymbolAddress:
    if type_.bits not in (32, 64) or type_.kind == "f":
        raise Mismatch(f"the address of '{symbol.name}' does not fit a {type_} operand", span)
    return SymbolAddress(symbol, offset)


def symbol_offset(node: ast.Operand, scope: Scope) -> tuple[Symbol | None, int]:
    if isinstance(node, ast.Name):
        entity = scope.find(node.text)
        return (entity, 0) if isinstance(entity, Symbol) else (None, 0)
    if isinstance(node, ast.Binary) and node.operator == "+":
        symbol, offset = symbol_offset(node.left, scope)
        if symbol is not None:
            return symbol, offset + integer(node.right)
    return None, 0


def integer(node: ast.Operand) -> int:
    """The value of an integer constant expression."""
    value = evaluate(node)
    if isinstance(value, FloatValue):
        raise ConstantError("an integer constant is expected here", node.span)
    return value.value


def _reference(
    spec: OperandSpec, type_: ScalarType, operand: ast.Operand, scope: Scope
) -> OperandValue:
    """A texture, sampler or surface: a variable of that type, or a register that holds its handle.

    PTX ISA 9.1, Texture, Sampler and Surface Types.
    """
    if isinstance(operand, _NAMES):
        found = named(operand, scope)
        if isinstance(found, Symbol) and found.type.name == type_.name:
            return SymbolAddress(found)
        if isinstance(found, Register) and found.type.bits == 64 and found.type.kind in "bus":
            return found
    raise Mismatch(f"operand {spec.name} is a {type_} variable or a 64-bit register", operand.span)


def group(
    spec: OperandSpec, types: tuple[ScalarType, ...], operand: ast.Operand, scope: Scope
) -> RegisterGroup:
    """A brace group, or the vector that stands for one."""
    count, type_ = len(types), types[0]
    elements: tuple[ast.Operand, ...]
    if isinstance(operand, ast.Name):
        entity = scope.find(operand.text)
        if isinstance(entity, VectorRegister):
            if len(entity.elements) != count:
                raise Mismatch(
                    f"'{entity.name}' has {len(entity.elements)} elements, {count} are needed",
                    operand.span,
                )
            for type_, register in zip(types, entity.elements, strict=True):
                _check_register(spec, type_, register, operand.span)
            return RegisterGroup(entity.elements)
        vector = operand.text[0] == "%" and f"{operand.text[1:]}.x" in SPECIAL_REGISTERS
        if vector and not spec.written:
            return _special_vector(spec, types, operand)
    if isinstance(operand, ast.Vector):
        elements = operand.elements
    else:
        many = f"{count} registers" if count > 1 else "one register"
        raise Mismatch(f"a group of {many} {{...}} is expected", operand.span)
    if len(elements) != count:
        raise Mismatch(
            f"{count} registers are needed in the group, {len(elements)} given", operand.span
        )
    try:
        return _elements(spec, types, elements, operand.span, scope)
    except Mismatch as error:  # the form is more likely meant than one without a group
        error.score += 0.5
        raise


def _special_vector(
    spec: OperandSpec, types: tuple[ScalarType, ...], operand: ast.Name
) -> RegisterGroup:
    """A whole vector special register, as ``%tid``."""
    components = [SpecialRegister(f"{operand.text[1:]}.{c}", 32) for c in "xyzw"]
    if len(types) != len(components):
        raise Mismatch(f"'{operand.text}' has 4 elements, {len(types)} are needed", operand.span)
    return RegisterGroup(
        tuple(_special(spec, t, r, operand.span) for r, t in zip(components, types, strict=True))
    )


def _special(
    spec: OperandSpec, type_: ScalarType, found: SpecialRegister, span: Span
) -> SpecialRegister:
    """A special register read as a type (measured).

    Of the 32-bit ones only those of a launch, which had 16 bits before PTX ISA 2.0, are read as 16
    bits; whether an instruction reads a part of a 64-bit one is for :mod:`.rules`.
    """
    if type_.kind == "f":
        raise Mismatch(f"special register '%{found.name}' in a {type_} operand", span)
    if found.width == 64 and type_.bits in (16, 32):
        return SpecialRegister(found.name, 32)
    halved = type_.bits == 16 and (spec.relaxed or found.name[:-2] in _ONCE_OF_16_BITS)
    if found.width > type_.bits and not halved:
        raise Mismatch(
            f"'%{found.name}' has {found.width} bits, a {type_} operand is expected", span
        )
    return found


def _elements(
    spec: OperandSpec,
    types: tuple[ScalarType, ...],
    elements: tuple[ast.Operand, ...],
    span: Span,
    scope: Scope,
) -> RegisterGroup:
    if all(isinstance(e, ast.Name) and e.text == "_" for e in elements):
        raise Mismatch("every element of the group is the sink '_'", span)
    joined = types
    if len(set(types)) == 1:
        joined = (_joined(types[0], elements, scope),) * len(types)
    values = []
    # beside registers of pairs of halves a constant is a pattern of bits (measured)
    pairs = joined[0].name in ("f16x2", "bf16x2") and not spec.written
    mixed = any(isinstance(e, ast.Name) for e in elements)
    for declared, type_, element in zip(types, joined, elements, strict=True):
        wanted = declared if _is_float(element) else type_
        if pairs and mixed and isinstance(element, ast.IntLiteral):
            wanted = SCALAR_TYPES["b32"]
        found = value(spec, wanted, element, scope)
        if not isinstance(found, Register | Constant | Sink | SpecialRegister):
            raise Mismatch("an address cannot be an element of a group", element.span)
        if isinstance(found, SpecialRegister):
            width = SPECIAL_REGISTERS[found.name][0]
            if width > type_.bits:  # a part of one is read alone or in a whole vector
                raise Mismatch(f"'%{found.name}' has {width} bits, not {type_.bits}", element.span)
        values.append(found)
    return RegisterGroup(tuple(values))


def _joined(type_: ScalarType, elements: tuple[ast.Operand, ...], scope: Scope) -> ScalarType:
    """The type that a group is checked against: its elements have a type together (measured).

    They have one width, and no float stands beside another type.  Untyped and typed, or signed and
    unsigned, are untyped together.
    """
    first: Register | None = None
    names: list[str] = []
    for element in elements:
        register = scope.find(element.text) if isinstance(element, ast.Name) else None
        if isinstance(register, Register):
            first = first or register
            if register.type.bits != first.type.bits:
                raise Mismatch(
                    f"'{first.name}' and '{register.name}' differ in width: the registers of a"
                    " group have one",
                    element.span,
                )
            name = register.type.name
        else:
            name = _kind_of_constant(element, type_)
            if not name:
                continue
        if names and not _may_neighbour(names[-1], name):
            raise Mismatch(
                "this element and the one before it differ: one is float, the other is not",
                element.span,
                help="declare the registers untyped: .b16, .b32, .b64",
            )
        names.append(name)
    if len(set(names)) < 2 or first is None or first.type.bits != type_.bits or type_.kind == "p":
        return type_
    return SCALAR_TYPES[f"b{type_.bits}"]


def _kind_of_constant(node: ast.Operand, type_: ScalarType) -> str:
    """The type that a constant counts for beside registers, empty for what is no constant."""
    try:
        value = evaluate(node)
    except ConstantError:
        return ""
    return "s0" if isinstance(value, IntValue) else f"f{type_.bits}"


def _is_float(node: ast.Operand) -> bool:
    inner = node.operand if isinstance(node, ast.Unary) else node
    return isinstance(inner, ast.FloatLiteral)


def _may_neighbour(a: str, b: str) -> bool:
    return a == b or "b" in (a[0], b[0]) or (a[0] in "us" and b[0] in "us")


def immediate(type_: ScalarType, operand: ast.Operand) -> Constant:
    """A constant as the bits of a type."""
    value = evaluate(operand)
    if isinstance(value, IntValue):
        if type_.kind == "f":
            raise Mismatch(f"an integer constant is not legal for a {type_} operand", operand.span)
        if type_.kind == "a":
            raise Mismatch(f"a constant is not legal for a {type_} operand", operand.span)
        if type_.kind == "p":
            return Constant(int(value.value != 0), 1)
        return Constant(value.value & ((1 << type_.bits) - 1), type_.bits)
    whole = type_.bits in (32, 64) and type_.kind not in "uspa" and type_.name != "f16x2"
    if not whole:
        raise Mismatch(f"a float constant is not legal for a {type_} operand", operand.span)
    if type_.kind == "b" and (type_.bits == 32) == (value.single_bits is None):
        found = "single" if type_.bits == 64 else "double"
        raise Mismatch(f"a {found} constant is not legal for a {type_} operand", operand.span)
    if type_.bits == 64:
        return Constant(struct.unpack("<Q", struct.pack("<d", value.value))[0], 64)
    return Constant(single_bits(value), 32)


def single_bits(value: FloatValue) -> int:
    """The constant as an f32 pattern, rounded to nearest even."""
    if value.single_bits is not None:
        return value.single_bits
    try:
        return int(struct.unpack("<I", struct.pack("<f", value.value))[0])
    except OverflowError:
        return 0x7F800000 if value.value > 0 else 0xFF800000

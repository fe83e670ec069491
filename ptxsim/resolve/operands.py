"""Operands: from syntax to typed values, judged by a form's operand list.

Register typing (PTX ISA 9.1, Operand Size Exceeding Instruction-Type Size; Type Information for
Instructions and Operands): sizes must agree, except where a form says that a wider register is
legal; ``.bN`` matches everything of its size, signed and unsigned mix freely, float and integer
types do not.
"""

from __future__ import annotations

import struct

from ..diagnostics import Span, did_you_mean
from ..isa.record import Form, Instruction, Mods, OperandSpec
from ..isa.special_registers import SPECIAL_REGISTERS
from ..syntax import ast
from ..types import SCALAR_TYPES, ScalarType
from .constants import ConstantError, FloatValue, IntValue, evaluate
from .scope import CallTable, Scope, VectorRegister
from .typed import (
    AddressOperand,
    CallOperand,
    Constant,
    FunctionRef,
    LabelRef,
    LabelTable,
    Negated,
    OperandValue,
    PredicatePair,
    PrototypeRef,
    Register,
    RegisterGroup,
    Sink,
    SpecialRegister,
    Symbol,
    SymbolAddress,
)

__all__ = ["CARRY_FLAG", "Mismatch", "bind_operands"]

#: The name under which a function's carry flag is declared; no text can spell it.
CARRY_FLAG = "CC.CF"

_COMPONENTS = {"x": 0, "y": 1, "z": 2, "w": 3, "r": 0, "g": 1, "b": 2, "a": 3}


class Mismatch(Exception):
    """An operand does not fit; ``score`` is how many fitted before it."""

    def __init__(
        self,
        message: str,
        span: Span,
        score: float = 0,
        code: str = "PTX106",
        help: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.score = score
        self.code = code
        self.help = help


def bind_operands(
    record: Instruction, form: Form, m: Mods, node: ast.Instruction, scope: Scope
) -> dict[str, OperandValue]:
    """Typed operands by name, or :class:`Mismatch` for the first that does not fit."""
    specs = form.operands
    if len(specs) == 1 and specs[0].name == "call":
        return {"call": _call(node, scope)}
    given = node.operands
    hidden = [s for s in specs if s.hidden]
    if hidden:
        specs = tuple(s for s in specs if not s.hidden)
    specs = tuple(s for s in specs if not s.needs or m[s.needs])
    required = sum(not s.optional for s in specs)
    if not required <= len(given) <= len(specs):
        wanted = str(required) if required == len(specs) else f"{required} to {len(specs)}"
        names = ", ".join(s.name for s in specs)
        raise Mismatch(
            f"'{'.'.join(node.opcode)}' takes {wanted} operands ({names}), {len(given)} given",
            node.span,
            code="PTX105",
        )
    out: dict[str, OperandValue] = {}
    skip = len(specs) - len(given)
    rest = list(given)
    for spec in specs:
        if spec.optional and skip:
            skip -= 1
            continue
        operand = rest.pop(0)
        try:
            _bind(record, spec, m, operand, scope, out)
        except Mismatch as error:
            error.score += len(out)
            raise
        except ConstantError as error:
            raise Mismatch(error.message, error.span, len(out), "PTX108") from None
    for spec in hidden:
        flag = scope.find(CARRY_FLAG)
        assert isinstance(flag, Register)
        out[spec.name] = flag
    return out


def _bind(
    record: Instruction,
    spec: OperandSpec,
    m: Mods,
    operand: ast.Operand,
    scope: Scope,
    out: dict[str, OperandValue],
) -> None:
    if spec.kind == "address":
        out[spec.name] = _address(operand, scope)
        return
    if spec.kind == "raw":
        out[spec.name] = _raw(spec.name, operand, scope)
        return
    if spec.kind == "parts":
        _bind_parts(record, spec, m, operand, scope, out)
        return
    types = record.types_of(spec.type, m)
    count = record.count_of(spec.count, m)
    type_ = types[0]
    if count and len(types) == 1:
        types = types * count
    if spec.padded:
        types = _padded(types, operand)
    several = count or len(types) > 1
    if spec.pair and isinstance(operand, ast.Pair):
        first: OperandValue
        if several:
            first = _group(spec, types, operand.first, scope)
        else:
            first = _value(spec, type_, operand.first, scope)
        second = _value(_PREDICATE, _PRED, operand.second, scope)
        assert isinstance(first, Register | Sink | RegisterGroup)
        assert isinstance(second, Register | Sink)
        if isinstance(second, Sink):
            if several or spec.paired:
                raise Mismatch("the sink '_' is not legal as the predicate here", operand.span)
            if isinstance(first, Sink):
                raise Mismatch("both destinations are the sink '_'", operand.span)
        out[spec.name] = PredicatePair(first, second)
        return
    if spec.paired:
        raise Mismatch(f"operand {spec.name} is a pair '{spec.name}|p'", operand.span)
    if several:
        out[spec.name] = _group(spec, types, operand, scope)
        return
    if isinstance(operand, ast.Vector) and len(operand.elements) == 1:
        operand = operand.elements[0]
    if spec.count and isinstance(operand, ast.Name) and operand.text == "_":
        raise Mismatch("the sink '_' is legal only as an element of a group", operand.span)
    out[spec.name] = _value(spec, type_, operand, scope)


_PRED = ScalarType("pred", "p", 1)
_PREDICATE = OperandSpec("p", "value", "pred", written=True, read=False, sink=True)


def _bind_parts(
    record: Instruction,
    spec: OperandSpec,
    m: Mods,
    operand: ast.Operand,
    scope: Scope,
    out: dict[str, OperandValue],
) -> None:
    """The operands between one pair of brackets, each under its own name."""
    if not isinstance(operand, ast.Address):
        raise Mismatch("an address [...] is expected here", operand.span)
    specs = spec.parts
    if len(operand.parts) < len(specs):
        specs = tuple(s for s in specs if not s.optional)
    if len(operand.parts) != len(specs):
        names = ", ".join(s.name for s in specs)
        raise Mismatch(f"[{names}] is expected here", operand.span)
    for part, given in zip(specs, operand.parts, strict=True):
        if part.kind == "address" or part.pointer:
            if len(specs) > 1 and isinstance(given, ast.Binary):
                raise Mismatch("no offset is legal here", given.span)
            out[part.name] = address = _address_part(given, scope)
            if part.pointer:
                _check_pointer(part, record.type_of(part.type, m), address, given.span)
        else:
            _bind(record, part, m, given, scope, out)


def _check_pointer(
    spec: OperandSpec, type_: ScalarType, address: AddressOperand, span: Span
) -> None:
    base = address.base
    if isinstance(base, Register) and base.type.bits == type_.bits:
        return
    raise Mismatch(f"operand {spec.name} is an address in a {type_.bits}-bit register", span)


def _padded(types: tuple[ScalarType, ...], operand: ast.Operand) -> tuple[ScalarType, ...]:
    """The types of as many elements as are given: coordinates of any geometry may be a .v4.

    PTX ISA 9.1, tex.
    """
    given = len(operand.elements) if isinstance(operand, ast.Vector) else 0
    extra = given - len(types) if given in (2, 4) else 0
    return types + types[-1:] * max(extra, 0)


def _reference(
    spec: OperandSpec, type_: ScalarType, operand: ast.Operand, scope: Scope
) -> OperandValue:
    """A texture, sampler or surface: a variable of that type, or a register that holds its handle.

    PTX ISA 9.1, Texture, Sampler and Surface Types.
    """
    if isinstance(operand, ast.Name | ast.Member):
        found = _named(operand, scope)
        if isinstance(found, Symbol) and found.type.name == type_.name:
            return SymbolAddress(found)
        if isinstance(found, Register) and found.type.bits == 64 and found.type.kind in "bus":
            return found
    raise Mismatch(f"operand {spec.name} is a {type_} variable or a 64-bit register", operand.span)


def _group(
    spec: OperandSpec, types: tuple[ScalarType, ...], operand: ast.Operand, scope: Scope
) -> RegisterGroup:
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
        special = [SPECIAL_REGISTERS.get(f"{operand.text[1:]}.{c}") for c in "xyzw"[:count]]
        if not spec.written and operand.text[0] == "%" and None not in special:
            return RegisterGroup(
                tuple(
                    SpecialRegister(f"{operand.text[1:]}.{c}", found[0])
                    for c, found in zip("xyzw", special, strict=False)
                    if found
                )
            )
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
        value = _value(spec, wanted, element, scope)
        if not isinstance(value, Register | Constant | Sink | SpecialRegister):
            raise Mismatch("an address cannot be an element of a group", element.span)
        values.append(value)
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
        elif isinstance(element, ast.IntLiteral):
            name = "s0"
        else:
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


def _is_float(node: ast.Operand) -> bool:
    inner = node.operand if isinstance(node, ast.Unary) else node
    return isinstance(inner, ast.FloatLiteral)


def _may_neighbour(a: str, b: str) -> bool:
    return a == b or "b" in (a[0], b[0]) or (a[0] in "us" and b[0] in "us")


def _value(
    spec: OperandSpec, type_: ScalarType, operand: ast.Operand, scope: Scope
) -> OperandValue:
    if type_.kind == "o":
        return _reference(spec, type_, operand, scope)
    if isinstance(operand, ast.Name | ast.Member):
        name = operand.text if isinstance(operand, ast.Name) else f"{operand.base}.{operand.field}"
        if name == "_":
            if not spec.sink:
                raise Mismatch(f"the sink '_' is not legal as operand {spec.name}", operand.span)
            return Sink()
        found = _named(operand, scope)
        if isinstance(found, Register):
            if spec.constant:
                raise Mismatch(f"operand {spec.name} must be a constant", operand.span)
            _check_register(spec, type_, found, operand.span)
            return found
        if spec.written:
            raise Mismatch(f"'{name}' is not a register and cannot be written", operand.span)
        if isinstance(found, SpecialRegister):
            if type_.kind == "f":
                raise Mismatch(
                    f"special register '%{found.name}' in a {type_} operand", operand.span
                )
            if found.width > type_.bits and not (found.width == 32 and type_.bits == 16):
                if found.width == 64 and type_.bits == 32:
                    return SpecialRegister(found.name, 32)
                raise Mismatch(
                    f"'%{found.name}' has {found.width} bits, a {type_} operand is expected",
                    operand.span,
                )
            return found
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
            found = _named(inner, scope)
            if isinstance(found, Register):
                _check_register(spec, type_, found, operand.span)
                return Negated(found)
    if isinstance(operand, ast.Binary) and operand.operator == "+":
        symbol, offset = _symbol_offset(operand, scope)
        if symbol is not None:
            return _symbol_value(spec, type_, symbol, offset, operand.span)
    if isinstance(operand, ast.Vector | ast.Address | ast.Subscript | ast.Pair | ast.Group):
        kinds = {"Vector": "a brace group", "Address": "an address", "Subscript": "an address",
                 "Pair": "a pair", "Group": "a parenthesised list"}  # fmt: skip
        what = kinds[type(operand).__name__]
        raise Mismatch(f"{what} is not legal as operand {spec.name}", operand.span)
    if spec.written:
        raise Mismatch(f"operand {spec.name} is a destination; a constant is not", operand.span)
    return _immediate(type_, operand)


def _named(
    operand: ast.Name | ast.Member, scope: Scope
) -> Register | SpecialRegister | Symbol | FunctionRef | VectorRegister | object:
    if isinstance(operand, ast.Member):
        entity = scope.find(operand.base)
        if isinstance(entity, VectorRegister):
            index = _COMPONENTS[operand.field]
            if index >= len(entity.elements):
                raise Mismatch(f"'{entity.name}' has no component .{operand.field}", operand.span)
            return entity.elements[index]
        name = f"{operand.base}.{operand.field}"
        special = SPECIAL_REGISTERS.get(name[1:]) if name.startswith("%") else None
        if special:
            return SpecialRegister(name[1:], special[0])
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


def _symbol_offset(node: ast.Operand, scope: Scope) -> tuple[Symbol | None, int]:
    if isinstance(node, ast.Name):
        entity = scope.find(node.text)
        return (entity, 0) if isinstance(entity, Symbol) else (None, 0)
    if isinstance(node, ast.Binary) and node.operator == "+":
        symbol, offset = _symbol_offset(node.left, scope)
        if symbol is not None:
            return symbol, offset + _integer(node.right)
    return None, 0


def _integer(node: ast.Operand) -> int:
    value = evaluate(node)
    if isinstance(value, FloatValue):
        raise ConstantError("an integer constant is expected here", node.span)
    return value.value


def _immediate(type_: ScalarType, operand: ast.Operand) -> Constant:
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


def _address(operand: ast.Operand, scope: Scope) -> AddressOperand:
    if isinstance(operand, ast.Subscript):
        entity = scope.find(operand.symbol)
        if not isinstance(entity, Symbol):
            raise Mismatch(f"unknown variable '{operand.symbol}'", operand.span, code="PTX101")
        index = _address_part_or_none(operand.index, scope)
        if index is not None and isinstance(index.base, Register):
            return AddressOperand(index.base, index.offset, entity)
        return AddressOperand(entity, _integer(operand.index))
    if not isinstance(operand, ast.Address):
        raise Mismatch("an address [...] is expected here", operand.span)
    if len(operand.parts) != 1:
        raise Mismatch("an address with one part is expected here", operand.span)
    return _address_part(operand.parts[0], scope)


def _address_part(part: ast.Operand, scope: Scope) -> AddressOperand:
    if isinstance(part, ast.Name | ast.Member):
        found = _named(part, scope)
        if isinstance(found, Register):
            if found.type.bits not in (32, 64) or found.type.kind == "f":
                raise Mismatch(
                    f"an address needs a 32- or 64-bit integer register, '{found.name}' is"
                    f" {found.type}",
                    part.span,
                )
            return AddressOperand(found)
        if isinstance(found, Symbol):
            return AddressOperand(found)
        if isinstance(part, ast.Name) and part.text != "WARP_SZ":
            raise Mismatch(f"'{part.text}' is not an address", part.span)
    if isinstance(part, ast.Subscript):
        return _address(part, scope)
    if isinstance(part, ast.Binary) and part.operator == "+":
        base = _address_part_or_none(part.left, scope)
        if base is not None:
            return AddressOperand(base.base, base.offset + _signed32(_integer(part.right)))
    return AddressOperand(None, _integer(part))


def _address_part_or_none(part: ast.Operand, scope: Scope) -> AddressOperand | None:
    if isinstance(part, ast.Name | ast.Member | ast.Subscript):
        return _address_part(part, scope)
    if isinstance(part, ast.Binary) and part.operator == "+":
        return _address_part_or_none(part.left, scope) and _address_part(part, scope)
    return None


def _signed32(value: int) -> int:
    """Immediate offsets are signed 32-bit numbers (PTX ISA 9.1, Addresses as Operands)."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _raw(kind: str, operand: ast.Operand, scope: Scope) -> OperandValue:
    if kind == "sink":
        if isinstance(operand, ast.Name) and operand.text == "_":
            return Sink()
        raise Mismatch("only the sink '_' is legal as the result here", operand.span)
    if not isinstance(operand, ast.Name):
        raise Mismatch(f"a {kind} name is expected here", operand.span)
    entity = scope.find(operand.text)
    wanted = {"label": LabelRef, "targets": LabelTable}[kind]
    if not isinstance(entity, wanted):
        names = [n for n in scope if isinstance(scope.find(n), wanted)]
        raise Mismatch(
            f"unknown label '{operand.text}'"
            if kind == "label"
            else f"unknown list '{operand.text}'",
            operand.span,
            code="PTX110",
            help=did_you_mean(operand.text, names),
        )
    assert isinstance(entity, LabelRef | LabelTable)
    return entity


def _call(node: ast.Instruction, scope: Scope) -> CallOperand:
    rest = list(node.operands)
    results: tuple[ast.Operand, ...] = ()
    if rest and isinstance(rest[0], ast.Group):
        results = rest[0].elements
        del rest[0]
    if not rest or not isinstance(rest[0], ast.Name):
        raise Mismatch("the function to call is missing", node.span, code="PTX111")
    callee_node = rest.pop(0)
    assert isinstance(callee_node, ast.Name)
    callee = scope.find(callee_node.text)
    arguments: tuple[ast.Operand, ...] = ()
    if rest and isinstance(rest[0], ast.Group):
        arguments = rest[0].elements
        del rest[0]
    candidates: tuple[str, ...] | None = None
    prototype: PrototypeRef | None = None
    if rest:
        last = rest.pop(0)
        table = scope.find(last.text) if isinstance(last, ast.Name) else None
        if not isinstance(table, CallTable | PrototypeRef):
            raise Mismatch("a .callprototype or .calltargets name is expected", last.span)
        if isinstance(table, CallTable):
            candidates = table.targets
        else:
            prototype = table
    elif isinstance(callee, Register):
        raise Mismatch(
            "an indirect call needs a .callprototype or .calltargets name", node.span, code="PTX111"
        )
    if rest:
        raise Mismatch("too many operands for call", node.span, code="PTX105")
    if not isinstance(callee, FunctionRef | Register):
        raise Mismatch(f"unknown function '{callee_node.text}'", callee_node.span, code="PTX101")
    return CallOperand(
        callee,
        tuple(_call_item(r, scope, True) for r in results),  # type: ignore[misc]
        tuple(_call_item(a, scope, False) for a in arguments),  # type: ignore[misc]
        candidates,
        prototype,
    )


def _call_item(
    operand: ast.Operand, scope: Scope, result: bool
) -> Register | Symbol | Sink | Constant:
    if isinstance(operand, ast.Name):
        if operand.text == "_" and result:
            return Sink()
        found = _named(operand, scope)
        if isinstance(found, Register | Symbol):
            return found
        raise Mismatch(f"'{operand.text}' cannot be passed to a call", operand.span, code="PTX111")
    value = evaluate(operand)
    if isinstance(value, FloatValue):
        bits = value.single_bits
        if bits is not None:
            return Constant(bits, 32)
        return Constant(struct.unpack("<Q", struct.pack("<d", value.value))[0], 64)
    return Constant(value.value & ((1 << 64) - 1), 64)

"""Rules about chosen operands that no operand alone can break.

They hold when a form has been found: where special registers are legal, which space an address is
in, and which constants an instruction takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..isa.record import Form, Instruction, Mods, Pure
from ..isa.special_registers import SPECIAL_REGISTERS
from ..targets import ANY, Floor
from ..types import SCALAR_TYPES
from .typed import (
    AddressOperand,
    CallOperand,
    Constant,
    FunctionRef,
    OperandValue,
    PredicatePair,
    Register,
    RegisterGroup,
    SpecialRegister,
    Symbol,
    SymbolAddress,
)

__all__ = ["broken_rule", "operand_floors"]

#: References in registers, in the unified mode of textures (measured).
_HANDLES = Floor.parse("3.1")

#: Addresses of functions and indirect calls (measured).
_FUNCTIONS = Floor.parse("2.1")
_ENTRIES = Floor.parse("3.1+sm_35")

#: The instructions that read special registers (PTX ISA, Special Registers; measured).
_READS_SPECIAL = frozenset({"mov", "cvt"})


#: Fragments that are not given as constants alone (measured).
_NOT_CONSTANT = {
    **dict.fromkeys(("mma", "mma.sp", "mma.sp::ordered_metadata", "wmma.mma"), ("a", "b")),
    "stmatrix": ("b",),
}


def broken_rule(
    record: Instruction, form: Form, m: Mods, operands: Mapping[str, OperandValue]
) -> tuple[str, str] | None:
    """The name of an operand that the instruction does not take and the reason, or None."""
    for name, value in operands.items():
        reason = None
        if isinstance(value, SpecialRegister):
            reason = _special(record, m, value)
        elif isinstance(value, AddressOperand):
            reason = _space(record, m, value)
        elif isinstance(value, Constant):
            reason = record.check_constant(name, value.bits, m)
        elif isinstance(value, SymbolAddress) and not _is_reference(form, name):
            reason = _variable(record, m, name, value)
        elif isinstance(value, FunctionRef) and _names_space(record, m):
            reason = f"'{value.name}' is a function, which is in no state space"
        elif isinstance(value, RegisterGroup):
            broken = _elements(record, m, name, value)
            if broken is not None:
                return broken
        if reason is not None:
            return name, reason
    return None


def _variable(record: Instruction, m: Mods, name: str, value: SymbolAddress) -> str | None:
    """The address of a variable as a value.

    That of a parameter or result of a call cannot be taken.  With an offset, the address is a
    constant like others to arithmetic (measured).
    """
    symbol = value.symbol
    reason = record.check_symbol(name, symbol.space, m)
    constant = value.offset != 0 and isinstance(record, Pure) and record.name != "cvta"
    if reason is not None and not constant:
        return reason
    if symbol.space == "param" and not symbol.role:
        return f"the address of '{symbol.name}', a parameter of a call, cannot be taken"
    return None


def _names_space(record: Instruction, m: Mods) -> bool:
    """Whether an operand is an address in a state space."""
    return record.name == "isspacep" or (record.name == "cvta" and not m.to)


def _is_reference(form: Form, name: str) -> bool:
    """Whether an operand is a texture, sampler or surface."""
    return any(
        part.name == name and part.type in SCALAR_TYPES and SCALAR_TYPES[part.type].kind == "o"
        for spec in form.operands
        for part in spec.parts
    )


def _elements(
    record: Instruction, m: Mods, name: str, group: RegisterGroup
) -> tuple[str, str] | None:
    """Constants in a brace group are checked as operands ``name[0]``, ``name[1]``, ..."""
    if name in _NOT_CONSTANT.get(record.name, ()) and all(
        isinstance(e, Constant) and e.width == 32 for e in group.elements
    ):
        return name, "a fragment is not made of constants alone"
    for index, element in enumerate(group.elements):
        at = f"{name}[{index}]"
        if isinstance(element, Constant):
            reason = record.check_constant(at, element.bits, m)
            if reason is not None:
                return at, reason
        if isinstance(element, SpecialRegister) and record.name != "mov":
            return at, f"special register '%{element.name}' is only legal in mov; copy it first"
    return None


def operand_floors(
    form: Form, operands: Mapping[str, OperandValue], independent: bool
) -> Iterator[tuple[str, Floor]]:
    """The floors that the operands as they are written bring, each with what brings it.

    ``independent`` says that textures and samplers are independent (``texmode_independent``).
    """
    for spec in form.operands:
        value = operands.get(spec.name)
        if spec.pair_floor is not ANY and isinstance(value, PredicatePair):
            yield "a predicate destination", spec.pair_floor
        if spec.kind == "parts" and isinstance(value, Register) and not independent:
            yield "a handle in a register", _HANDLES
    for value in operands.values():
        if isinstance(value, FunctionRef):
            yield "the address of a function", _ENTRIES if value.entry else _FUNCTIONS
        if isinstance(value, CallOperand) and isinstance(value.callee, Register):
            yield "a callee in a register", _FUNCTIONS
        elements = value.elements if isinstance(value, RegisterGroup) else (value,)
        for element in elements:
            if isinstance(element, SpecialRegister):
                yield f"%{element.name}", SPECIAL_REGISTERS[element.name][1]


def _special(record: Instruction, m: Mods, register: SpecialRegister) -> str | None:
    if record.name not in _READS_SPECIAL:
        return f"special register '%{register.name}' is only legal in mov; copy it first"
    declared = SPECIAL_REGISTERS[register.name][0]
    if record.name == "cvt":
        if declared == 1 or SCALAR_TYPES[m.dtype].kind not in "us":
            return f"'%{register.name}' is not converted to {m.dtype}; copy it first"
        read, narrower = m.atype, SCALAR_TYPES[m.atype].bits < declared
    else:  # %gridid was a 32-bit register before PTX ISA 3.0 and is still read as one
        read, narrower = m.type, declared == 32 or register.name == "gridid"
    bits = 1 if read == "pred" else SCALAR_TYPES[read].bits
    if bits == declared or (bits < declared and narrower):
        return None
    return f"'%{register.name}' has {declared} bits, but the instruction reads {read}"


def _space(record: Instruction, m: Mods, address: AddressOperand) -> str | None:
    """A variable that an instruction names is in the space that its modifiers name.

    Generic addresses of constants and parameters are made by cvta alone, and a number is an
    address only in local memory (measured).
    """
    symbol = address.base if isinstance(address.base, Symbol) else address.symbol
    wanted = m.space.partition("::")[0]
    if address.base is None and symbol is None and wanted != "local":
        return "a constant address is legal for .local only"
    if symbol is not None and not wanted and symbol.space in ("const", "param"):
        return f"'{symbol.name}' is in .{symbol.space}: add .{symbol.space} to '{record.name}'"
    if symbol is not None and symbol.role == "input" and record.name == "st":
        return f"'{symbol.name}' is an input parameter, which cannot be written"
    if symbol is not None and symbol.role == "result" and record.name == "ld":
        return f"'{symbol.name}' is the result of this function, which cannot be read"
    if symbol is None or not wanted or symbol.space.partition("::")[0] == wanted:
        return None
    return f"'{symbol.name}' is in .{symbol.space}, but the instruction accesses .{m.space}"

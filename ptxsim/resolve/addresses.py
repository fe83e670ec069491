"""Addresses: a register or a variable, and an offset (PTX ISA 9.1, Addresses as Operands)."""

from __future__ import annotations

from ..diagnostics import Span
from ..isa.record import OperandSpec
from ..syntax import ast
from ..types import ScalarType
from .scope import Scope
from .typed import AddressOperand, Register, Symbol
from .values import Mismatch, integer, named

__all__ = ["address", "address_part", "check_pointer"]

_NAMES = (ast.Name, ast.Member)


def address(operand: ast.Operand, scope: Scope) -> AddressOperand:
    """The address that an operand in brackets, or ``variable[index]``, stands for."""
    if isinstance(operand, ast.Subscript):
        entity = scope.find(operand.symbol)
        if not isinstance(entity, Symbol):
            raise Mismatch(f"unknown variable '{operand.symbol}'", operand.span, code="PTX101")
        index = _address_part_or_none(operand.index, scope)
        if index is not None and isinstance(index.base, Register):
            return AddressOperand(index.base, index.offset, entity)
        return AddressOperand(entity, integer(operand.index))
    if not isinstance(operand, ast.Address):
        raise Mismatch("an address [...] is expected here", operand.span)
    if len(operand.parts) != 1:
        raise Mismatch("an address with one part is expected here", operand.span)
    return address_part(operand.parts[0], scope)


def address_part(part: ast.Operand, scope: Scope) -> AddressOperand:
    """The address that stands between brackets, alone or as one of several parts."""
    if isinstance(part, _NAMES):
        found = named(part, scope)
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
        return address(part, scope)
    if isinstance(part, ast.Binary) and part.operator == "+":
        base = _address_part_or_none(part.left, scope)
        if base is not None:
            return AddressOperand(base.base, base.offset + _signed32(integer(part.right)))
    return AddressOperand(None, integer(part))


def _address_part_or_none(part: ast.Operand, scope: Scope) -> AddressOperand | None:
    if isinstance(part, ast.Name | ast.Member | ast.Subscript):
        return address_part(part, scope)
    if isinstance(part, ast.Binary) and part.operator == "+":
        return _address_part_or_none(part.left, scope) and address_part(part, scope)
    return None


def _signed32(value: int) -> int:
    """Immediate offsets are signed 32-bit numbers (PTX ISA 9.1, Addresses as Operands)."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def check_pointer(
    spec: OperandSpec, type_: ScalarType, address: AddressOperand, span: Span
) -> None:
    """Refuse an address that is not in a register of the width of a type."""
    base = address.base
    if isinstance(base, Register) and base.type.bits == type_.bits:
        return
    raise Mismatch(f"operand {spec.name} is an address in a {type_.bits}-bit register", span)

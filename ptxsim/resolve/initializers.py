"""Initialisers of global and constant variables as bytes and relocations.

Lists may be nested and short (the rest is zero); addresses of variables and functions become
relocations that the loader fills in (PTX ISA 9.1, Initializers).
"""

from __future__ import annotations

import struct
from math import prod

from ..diagnostics import Span, did_you_mean
from ..syntax import ast
from ..types import ScalarType
from .constants import ConstantError, FloatValue, evaluate
from .scope import Scope
from .typed import FunctionRef, Relocation, Symbol

__all__ = ["initial_bytes"]

_MAX_BYTES = 1 << 28


def initial_bytes(
    node: ast.Initializer,
    type_: ScalarType,
    extents: tuple[int | None, ...],
    vector: int,
    scope: Scope,
) -> tuple[bytes, tuple[Relocation, ...], int]:
    """The bytes, the relocations and the number of elements (settling an open first extent).

    ``vector`` is how many components an element has, 0 for a scalar: a list of their own.
    """
    rows = len(node.elements) if isinstance(node, ast.InitializerList) else 1
    shape = [rows if extent is None else extent for extent in extents]
    total = prod(shape)
    if vector:
        shape.append(vector)
    if prod(shape) * type_.size > _MAX_BYTES:
        raise ConstantError("the initialised variable is too large", node.span)
    out = bytearray(prod(shape) * type_.size)
    relocations: list[Relocation] = []
    _fill(node, type_, shape, 0, out, relocations, scope)
    return bytes(out), tuple(relocations), total


def _fill(
    node: ast.Initializer,
    type_: ScalarType,
    shape: list[int],
    at: int,
    out: bytearray,
    relocations: list[Relocation],
    scope: Scope,
) -> None:
    """A list for each extent, scalars innermost; what a list leaves out is zero."""
    if not shape:
        if isinstance(node, ast.InitializerList):
            raise ConstantError("a scalar is initialised without braces", node.span)
        _element(node, type_, at, out, relocations, scope)
        return
    if not isinstance(node, ast.InitializerList):
        raise ConstantError("a list {...} of values is expected here", node.span)
    size = prod(shape[1:]) * type_.size
    for index, element in enumerate(node.elements):
        if index == shape[0]:
            raise ConstantError("more values than the array has elements", element.span)
        _fill(element, type_, shape[1:], at + index * size, out, relocations, scope)


def _element(
    node: ast.Expression | ast.FieldInitializer,
    type_: ScalarType,
    at: int,
    out: bytearray,
    relocations: list[Relocation],
    scope: Scope,
) -> None:
    if isinstance(node, ast.FieldInitializer):
        raise ConstantError("only textures, samplers and surfaces have fields", node.span)
    size = type_.size
    address = _address(node, scope)
    if address is not None:
        name, addend, shift, width = address
        # measured: unsigned words alone, and single bytes of an address
        if type_.name not in ("u32", "u64") and not (width == 1 and type_.name == "u8"):
            raise ConstantError(f"an address does not fit a {type_} element", node.span)
        relocations.append(Relocation(at, min(size, width), name, addend, shift))
        return
    value = evaluate(node)
    if type_.name == "f16" or (type_.name == "f16x2" and isinstance(value, FloatValue)):
        raise ConstantError(f"a {type_} element takes no float; use .b16 or .b32", node.span)
    if type_.kind == "f":
        if not isinstance(value, FloatValue):
            raise ConstantError(f"a float constant is expected for {type_}", node.span)
        out[at : at + size] = _float_bytes(value, type_, node.span)
        return
    if isinstance(value, FloatValue):
        if type_.kind != "b":
            raise ConstantError(f"an integer constant is expected for {type_}", node.span)
        out[at : at + size] = _float_bytes(value, type_, node.span)
        return
    out[at : at + size] = (value.value & ((1 << (8 * size)) - 1)).to_bytes(size, "little")


def _float_bytes(value: FloatValue, type_: ScalarType, span: Span) -> bytes:
    if type_.bits == 64:
        return struct.pack("<d", value.value)
    if type_.bits == 32:
        if value.single_bits is not None:
            return struct.pack("<I", value.single_bits)
        try:
            return struct.pack("<f", value.value)
        except OverflowError:
            return struct.pack("<f", float("inf") if value.value > 0 else float("-inf"))
    if type_.bits == 16:
        try:
            return struct.pack("<e", value.value)
        except OverflowError:
            return struct.pack("<e", float("inf") if value.value > 0 else float("-inf"))
    raise ConstantError(f"a float constant does not fit {type_}", span)


def _address(node: ast.Expression, scope: Scope) -> tuple[str, int, int, int] | None:
    """Symbol, addend, shift and width in bytes if the element is an address."""
    if isinstance(node, ast.Binary) and node.operator == "+":
        left = _address(node.left, scope)
        if left is not None:
            if isinstance(scope.find(left[0]), FunctionRef):
                raise ConstantError("the address of a function takes no offset", node.span)
            value = evaluate(node.right)
            if isinstance(value, FloatValue):
                raise ConstantError("an offset is an integer", node.span)
            return left[0], left[1] + value.value, left[2], left[3]
        return None
    if isinstance(node, ast.Name):
        return (*_symbol(node.text, node, scope), 0, 8) if node.text != "WARP_SZ" else None
    if isinstance(node, ast.MaskedSymbol):
        name, addend = _symbol(node.symbol, node, scope)
        if node.function == "generic":
            if isinstance(scope.find(node.symbol), FunctionRef):
                raise ConstantError("generic() takes a variable", node.span)
            return name, addend, 0, 8
        mask = int(node.function, 0)
        shift = (mask & -mask).bit_length() - 1 if mask else 0
        if mask == 0 or mask != 0xFF << shift or shift % 8:
            raise ConstantError("a byte mask selects one byte, such as 0xff00", node.span)
        return name, addend, shift, 1
    return None


def _symbol(name: str, node: ast.Expression, scope: Scope) -> tuple[str, int]:
    entity = scope.find(name)
    if isinstance(entity, Symbol) and entity.space not in ("global", "const"):
        raise ConstantError(
            f"'{name}' is a .{entity.space} variable: only addresses of .global and .const"
            " variables and of functions are constant",
            node.span,
        )
    if isinstance(entity, Symbol | FunctionRef):
        return entity.name, 0
    hint = did_you_mean(name, scope)
    raise ConstantError(f"unknown symbol '{name}'" + (f" ({hint})" if hint else ""), node.span)

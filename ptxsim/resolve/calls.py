"""The operands of a call, and whether they are what a function takes.

PTX ISA 9.1, call; Function Declarations.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence

from ..diagnostics import Span
from ..syntax import ast
from ..types import ScalarType
from .constants import FloatValue, evaluate
from .declarations import described
from .scope import CallTable, Scope
from .typed import (
    CallOperand,
    Constant,
    FunctionRef,
    PrototypeRef,
    Register,
    Sink,
    Symbol,
    TypedFunction,
)
from .values import Mismatch, named

__all__ = ["bind_call", "call_fault"]


def bind_call(node: ast.Instruction, scope: Scope) -> CallOperand:
    """Callee, results and arguments, and what an indirect call may reach."""
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
        found = named(operand, scope)
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


Formal = Symbol | Register


def call_fault(
    call: CallOperand, functions: Mapping[str, TypedFunction], aliases: Mapping[str, str]
) -> tuple[str, Span | None] | None:
    """What does not fit a callee or prototype, and where that is declared; or None."""
    for name, results, parameters, span in _callees(call, functions, aliases):
        if name in functions and functions[name].kind == "entry":
            return f"'{name}' is an .entry, which only the host calls", span
        for what, given, declared in (
            ("arguments", call.arguments, parameters),
            ("results", call.results, results),
        ):
            why = _list_fault(name, what, given, declared)
            if why is not None:
                return why, span
    return None


def _callees(
    call: CallOperand, functions: Mapping[str, TypedFunction], aliases: Mapping[str, str]
) -> Iterator[tuple[str, Sequence[Formal], Sequence[Formal], Span | None]]:
    """Name, results, parameters and place of what a call may reach, as far as known."""
    if call.prototype is not None:
        yield call.prototype.name, call.prototype.results, call.prototype.parameters, None
    direct = (call.callee.name,) if isinstance(call.callee, FunctionRef) else ()
    for callee in direct or call.candidates or ():
        name = aliases.get(callee, callee)
        function = functions.get(name)
        if function is not None:
            yield name, function.results, function.parameters, function.span


def _list_fault(
    name: str, what: str, given: Sequence[object], declared: Sequence[Formal]
) -> str | None:
    last = declared[-1] if declared else None
    open_array = isinstance(last, Symbol) and last.count == 0
    left_out = open_array and len(given) == len(declared) - 1 > 0
    if len(given) != len(declared) and not left_out:
        return f"'{name}' has {len(declared)} {what}, the call names {len(given)}"
    faults = (_argument_fault(f, a) for f, a in zip(declared, given, strict=False))
    return next((f for f in faults if f is not None), None)


def _argument_fault(formal: Symbol | Register, actual: object) -> str | None:
    """Why an argument or a place for a result does not fit the formal parameter, or None."""
    if isinstance(actual, Symbol) and actual.space != "param":
        return f"'{actual.name}' is in .{actual.space}; only .param variables and registers pass"
    if not isinstance(actual, Symbol | Register):
        return None
    formal_count = formal.count if isinstance(formal, Symbol) else None
    actual_count = actual.count if isinstance(actual, Symbol) else None
    fits = _types_fit(formal.type, actual.type)
    open_array = formal_count == 0 and actual_count is not None
    if not fits or (formal_count != actual_count and not open_array):
        return f"'{actual.name}' is {described(actual)}, '{formal.name}' is {described(formal)}"
    if not isinstance(formal, Symbol) or not isinstance(actual, Symbol) or formal_count is None:
        return None
    if formal.align == actual.align:
        return None
    return f"'{actual.name}' has .align {actual.align}, '{formal.name}' {formal.align}"


def _types_fit(a: ScalarType, b: ScalarType) -> bool:
    if a.bits != b.bits or (a.kind == "p") != (b.kind == "p"):
        return False
    return "b" in (a.kind, b.kind) or a.name == b.name or (a.kind in "us" and b.kind in "us")

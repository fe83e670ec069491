"""The operands of a call, and whether they are what a function takes.

PTX ISA 9.1, call; Function Declarations.  What passes for what is as ptxas has it (measured).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..diagnostics import Span, did_you_mean
from ..syntax import ast
from ..types import ScalarType
from .constants import ConstantError, FloatValue, IntValue, evaluate
from .declarations import described
from .scope import CallTable, Scope, VectorRegister
from .typed import (
    CallOperand,
    Constant,
    FunctionRef,
    PrototypeRef,
    Register,
    Sink,
    SpecialRegister,
    Symbol,
    TypedFunction,
)
from .values import Mismatch, named, single_bits

__all__ = ["bind_call"]

_Formal = Symbol | Register

#: What stands in an argument list or a list of results, before it is held against a function.
_Given = Register | Symbol | Sink | IntValue | FloatValue

_Functions = Mapping[str, TypedFunction]


class _CallFault(Mismatch):
    """What is wrong with a call."""

    def __init__(
        self, message: str, span: Span, declared: Span | None = None, help: str | None = None
    ) -> None:
        notes = (("declared here", declared),) if declared else ()
        super().__init__(message, span, code="PTX111", help=help, notes=notes)


@dataclass(frozen=True, slots=True)
class _Callee:
    """A function that a call may reach, or the prototype of those that it may."""

    name: str
    results: Sequence[_Formal]
    parameters: Sequence[_Formal]
    span: Span | None


def bind_call(
    node: ast.Instruction, scope: Scope, functions: _Functions, aliases: Mapping[str, str]
) -> CallOperand:
    """Callee, results and arguments, and what an indirect call may reach."""
    rest = list(node.operands)
    results = rest.pop(0) if rest and isinstance(rest[0], ast.Group) else None
    if not rest or not isinstance(rest[0], ast.Name):
        raise _CallFault("the function to call is missing", node.span)
    place = rest.pop(0)
    assert isinstance(place, ast.Name)
    arguments = rest.pop(0) if rest and isinstance(rest[0], ast.Group) else None
    callee = _callee(place, scope)
    candidates, prototype = _reach(callee, place, rest, scope)
    callees = list(_callees(callee, candidates, prototype, functions, aliases))
    given, taken = _listed(arguments), _listed(results)
    passed = [_given(a, scope, "an argument") for a in given]
    received = [_given(r, scope, "a result") for r in taken]
    for c in callees:
        function = functions.get(c.name)
        if isinstance(callee, FunctionRef) and function is not None and function.kind == "entry":
            raise _CallFault(
                f"'{c.name}' is an .entry, which only the host calls", place.span, c.span
            )
        if not _leaves_out_array(c, len(given), arguments is not None):
            _check_count(c, "argument", given, len(c.parameters), place.span)
        _check_count(c, "result", taken, len(c.results), place.span)
        _check(c, c.parameters, passed, given)
        _check(c, c.results, received, taken)
    formals = callees[0].parameters if callees else ()
    types = [*(p.type for p in formals), *(None for _ in passed[len(formals) :])]
    return CallOperand(
        callee,
        tuple(Sink() if isinstance(r, IntValue | FloatValue) else r for r in received),
        tuple(_argument(a, type_) for a, type_ in zip(passed, types, strict=False)),
        candidates,
        prototype,
    )


def _listed(operand: ast.Operand | None) -> tuple[ast.Operand, ...]:
    return operand.elements if isinstance(operand, ast.Group) else ()


# --- what a call may reach ------------------------------------------------------------------------


def _callee(place: ast.Name, scope: Scope) -> FunctionRef | Register:
    callee = scope.find(place.text)
    if isinstance(callee, FunctionRef):
        return callee
    if isinstance(callee, Register):
        if callee.type.bits in (32, 64) and callee.type.kind in "bus":
            return callee
        raise _CallFault(
            f"the address of a function has 32 or 64 bits, '{callee.name}' is {callee.type}",
            place.span,
        )
    names = [n for n in scope if isinstance(scope.find(n), FunctionRef)]
    raise Mismatch(
        f"unknown function '{place.text}'", place.span, code="PTX101",
        help=did_you_mean(place.text, names),
    )  # fmt: skip


def _reach(
    callee: FunctionRef | Register, place: ast.Name, rest: list[ast.Operand], scope: Scope
) -> tuple[tuple[str, ...] | None, PrototypeRef | None]:
    """The list of functions or the prototype that stands last in an indirect call."""
    if not rest:
        if isinstance(callee, Register):
            raise _CallFault(
                "an indirect call needs a .callprototype or .calltargets name", place.span
            )
        return None, None
    last = rest[0]
    table = scope.find(last.text) if isinstance(last, ast.Name) else None
    if not isinstance(table, CallTable | PrototypeRef):
        raise _CallFault("a .callprototype or .calltargets name is expected", last.span)
    if len(rest) > 1:
        raise _CallFault("too many operands for call", rest[1].span)
    if isinstance(callee, FunctionRef):
        raise _CallFault(
            f"'{table.name}' is for calls through a register; '{callee.name}' is called by name",
            last.span,
        )
    if isinstance(table, CallTable):
        return table.targets, None
    return None, table


def _callees(
    callee: FunctionRef | Register,
    candidates: tuple[str, ...] | None,
    prototype: PrototypeRef | None,
    functions: _Functions,
    aliases: Mapping[str, str],
) -> Iterator[_Callee]:
    """What a call may reach, as far as known."""
    if prototype is not None:
        yield _Callee(prototype.name, prototype.results, prototype.parameters, None)
    direct = (callee.name,) if isinstance(callee, FunctionRef) else ()
    for name in direct or candidates or ():
        name = aliases.get(name, name)
        function = functions.get(name)
        if function is not None:
            yield _Callee(name, function.results, function.parameters, function.span)


# --- arguments and results ------------------------------------------------------------------------


def _given(node: ast.Operand, scope: Scope, what: str) -> _Given:
    if isinstance(node, ast.Name) and node.text == "_":
        if what == "a result":
            return Sink()
        raise _CallFault("the sink '_' is not legal as an argument", node.span)
    if isinstance(node, ast.Name) and node.text != "WARP_SZ":
        return _passable(named(node, scope), node.span, what)
    if isinstance(node, ast.Member):
        raise _CallFault("a component is not passed; mov it to a register first", node.span)
    try:
        constant = evaluate(node)
    except ConstantError:
        raise _CallFault(
            f"{what} is a register, a .param variable or a constant", node.span
        ) from None
    if what == "a result" and isinstance(constant, IntValue):  # a float is the sink (measured)
        raise _CallFault("a result is a register or a .param variable", node.span)
    return constant


def _passable(found: object, span: Span, what: str) -> Register | Symbol:
    """A register, or a variable that was declared for calls."""
    if isinstance(found, Register):
        return found
    if isinstance(found, Symbol):
        if found.space != "param":
            raise _CallFault(
                f"'{found.name}' is in .{found.space}; only .param variables and registers pass",
                span,
                help="pass its address in a register" if what == "an argument" else None,
            )
        if found.role:
            which = "result" if found.role == "result" else "parameter"
            raise _CallFault(
                f"'{found.name}' is a {which} of this function, which is not passed on",
                span, help="use a register",
            )  # fmt: skip
        return found
    if isinstance(found, VectorRegister):
        raise _CallFault(f"'{found.name}' is a vector; pass its components one by one", span)
    if isinstance(found, SpecialRegister):
        raise _CallFault(f"'%{found.name}' is a special register; copy it first", span)
    raise _CallFault(f"{what} is a register, a .param variable or a constant", span)


def _check_count(
    callee: _Callee, what: str, given: Sequence[ast.Operand], count: int, at: Span
) -> None:
    if len(given) == count:
        return
    span = given[count].span if len(given) > count else at
    many = f"{count} {what}" + ("" if count == 1 else "s")
    raise _CallFault(f"'{callee.name}' has {many}, the call names {len(given)}", span, callee.span)


def _check(
    callee: _Callee,
    formals: Sequence[_Formal],
    actuals: Sequence[_Given],
    nodes: Sequence[ast.Operand],
) -> None:
    """Each actual parameter fits the formal one; the last may have been left out."""
    for formal, actual, node in zip(formals, actuals, nodes, strict=False):
        fault = _fault(formal, actual)
        if fault is not None:
            raise _CallFault(fault, node.span, callee.span)


def _leaves_out_array(callee: _Callee, given: int, listed: bool) -> bool:
    """An array of open extent, the last parameter, may be left out of a list (measured)."""
    last = callee.parameters[-1] if callee.parameters else None
    open_ = isinstance(last, Symbol) and last.count == 0
    return open_ and listed and given == len(callee.parameters) - 1


def _fault(formal: _Formal, actual: _Given) -> str | None:
    """Why an argument or a place for a result does not fit the formal parameter, or None."""
    if isinstance(actual, Sink):
        return None
    if isinstance(actual, IntValue | FloatValue):
        return _constant_fault(formal, actual)
    a, b = _shape(formal), _shape(actual)
    fits = _arrays_fit(formal, actual) if a or b else _types_fit(formal.type, actual.type)
    if not fits:
        return f"'{actual.name}' is {described(actual)}, '{formal.name}' is {described(formal)}"
    if _alignment(formal) != _alignment(actual):
        return (
            f"'{actual.name}' has .align {_alignment(actual)}, '{formal.name}' {_alignment(formal)}"
        )
    return None


def _shape(p: _Formal) -> bool:
    """Whether it is an array."""
    return isinstance(p, Symbol) and p.count is not None


def _constant_fault(formal: _Formal, value: IntValue | FloatValue) -> str | None:
    """An integer passes for an integer of any width, a float for a float; both for bits."""
    type_ = formal.type
    whole = isinstance(value, IntValue)
    legal = type_.kind in ("bus" if whole else "bf") and not _shape(formal)
    if type_.name == "f16x2":
        legal = isinstance(value, FloatValue) and value.single_bits is not None
    if legal:
        return None
    return f"{'an integer' if whole else 'a float'} is not {described(formal)} ('{formal.name}')"


def _argument(actual: _Given, type_: ScalarType | None) -> Register | Symbol | Constant:
    """A constant becomes the bits of its parameter: lower ones if it has fewer, zeros above.

    Only an .f32 parameter converts a float; of any other it takes the pattern of the literal, 32
    bits of a ``0f`` and 64 of others (measured in code of ptxas 13.0).
    """
    if isinstance(actual, Register | Symbol):
        return actual
    assert not isinstance(actual, Sink)
    width = 64 if type_ is None else type_.bits
    if isinstance(actual, IntValue):
        bits = actual.value & ((1 << 64) - 1)
    elif type_ is not None and type_.name == "f32":
        bits = single_bits(actual)
    elif actual.single_bits is not None:
        bits = actual.single_bits
    else:
        bits = int(struct.unpack("<Q", struct.pack("<d", actual.value))[0])
    return Constant(bits & ((1 << width) - 1), width)


def _arrays_fit(formal: _Formal, actual: _Formal) -> bool:
    """Arrays of one size pass for each other if one is untyped or both are of one type."""
    if not isinstance(formal, Symbol) or not isinstance(actual, Symbol):
        return False
    if formal.count is None or actual.count is None or actual.nested:
        return False
    if "f16x2" in (formal.type.name, actual.type.name):
        return False
    same = formal.type == actual.type or "b" in (formal.type.kind, actual.type.kind)
    return same and (formal.count == 0 or formal.size == actual.size)


def _types_fit(a: ScalarType, b: ScalarType) -> bool:
    if a.bits != b.bits or (a.kind == "p") != (b.kind == "p"):
        return False
    if "b" in (a.kind, b.kind) or "f16x2" in (a.name, b.name) or a.name == b.name:
        return True
    return a.kind in "us" and b.kind in "us"


def _alignment(p: _Formal) -> int:
    """The alignment of a parameter, which is that of its type at least."""
    return p.type.size if isinstance(p, Register) else max(p.align, p.type.size)

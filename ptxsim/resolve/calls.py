"""Whether a call gives what a function takes (PTX ISA 9.1, call; Function Declarations)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..diagnostics import Span
from ..types import ScalarType
from .declarations import described
from .typed import CallOperand, FunctionRef, Register, Symbol, TypedFunction

__all__ = ["call_fault"]

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

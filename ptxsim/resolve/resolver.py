"""From a syntax tree to a typed module: the parts of a module in their order."""

from __future__ import annotations

from ..diagnostics import Diagnostic, Source, Span
from ..syntax import ast
from .aliases import alias_fault
from .declarations import section_faults
from .functions import Functions
from .header import read_header
from .state import ModuleState
from .typed import TypedModule
from .variables import Variables

__all__ = ["CODES", "resolve"]

CODES = {
    "PTX101": "unknown symbol",
    "PTX102": "name declared twice",
    "PTX103": "unknown instruction",
    "PTX104": "illegal or missing modifier",
    "PTX105": "wrong number of operands",
    "PTX106": "operand of the wrong kind or type",
    "PTX107": "needs another PTX ISA version or target",
    "PTX108": "bad constant expression",
    "PTX109": "bad declaration",
    "PTX110": "unknown label",
    "PTX111": "bad call",
    "PTX112": "declarations disagree",
    "PTX113": "limit exceeded",
    "PTX400": "legal PTX that ptxsim does not model",
}


def resolve(module: ast.Module, source: Source, target: str | None = None) -> TypedModule:
    """Type a module.  Errors and ``unsupported`` notes are in ``diagnostics`` of the result.

    ``target`` replaces the one of the ``.target`` directive.
    """
    state = ModuleState(source)
    _ascii(state)
    read_header(module, state, target)
    variables = Variables(state)
    functions = Functions(state, variables)
    for item in module.items:
        match item:
            case ast.VariableDeclaration():
                variables.of_module(item)
            case ast.Function():
                functions.read(item)
            case ast.AliasDirective():
                _alias(item, state)
            case ast.Section():
                state.report(section_faults(item))
    return TypedModule(
        state.source,
        state.version,
        state.target,
        state.address_size,
        state.functions,
        state.aliases,
        state.variables,
        state.shared.size,
        state.dynamic_align,
        tuple(sorted(state.log.items, key=_place) + state.unsupported),
    )


def _ascii(state: ModuleState) -> None:
    """PTX is ASCII, its comments too (PTX ISA 9.1, Source Format; measured)."""
    if state.source.text.isascii():
        return
    for number, line in enumerate(state.source.lines, 1):
        if not line.isascii():
            at = next(k for k, c in enumerate(line, 1) if not c.isascii())
            state.log.error(
                "PTX002", f"PTX is ASCII, in comments too: {line[at - 1]!r} is not",
                Span(number, at, number, at + 1), "write it in ASCII",
            )  # fmt: skip


def _alias(item: ast.AliasDirective, state: ModuleState) -> None:
    fault = alias_fault(
        item.name, item.target, state.functions, state.aliases, state.version, state.target
    )
    bound = [w for w in state.linkage.get(item.target, ()) if w in ("weak", "extern")]
    if fault is None and bound:  # which function it is shows only when modules are linked
        fault = "PTX102", f"'{item.target}' is .{bound[0]} and has no aliases", None
    if fault is None:
        state.aliases[item.name] = item.target
        return
    code, message, hint = fault
    state.log.error(code, message, item.span, hint)


def _place(d: Diagnostic) -> tuple[int, int]:
    return d.span.line, d.span.column

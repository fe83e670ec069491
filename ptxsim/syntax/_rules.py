"""What is illegal by syntax although the grammar, being generic, takes it.

PTX ISA 9.1, "Constant Expressions", "Operands: Addresses and Variables", "Performance-Tuning
Directives"; each rule was confirmed with ptxas.  A rule returns None or what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..diagnostics import Span, did_you_mean
from . import ast

__all__ = [
    "FUNCTION_DIRECTIVES",
    "Problem",
    "declaration_problems",
    "function_problems",
    "head_directive_problem",
    "module_problems",
    "name_problem",
    "operand_problem",
    "parenthesis_problem",
    "section_problem",
]


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken rule."""

    message: str
    span: Span
    help: str | None = None


#: Directive between head and body -> kinds of function that take it, least and most values.
FUNCTION_DIRECTIVES: dict[str, tuple[str, int, int]] = {
    "maxntid": ("entry", 1, 3),
    "reqntid": ("entry", 1, 3),
    "maxnreg": ("entry", 1, 1),
    "minnctapersm": ("entry", 1, 1),
    "maxnctapersm": ("entry", 1, 1),
    "reqnctapercluster": ("entry", 1, 3),
    "explicitcluster": ("entry", 0, 0),
    "maxclusterrank": ("entry", 1, 1),
    "blocksareclusters": ("entry", 0, 0),
    "language": ("entry", 1, 1),
    "noreturn": ("func", 0, 0),
    "abi_preserve": ("func", 1, 1),
    "abi_preserve_control": ("func", 1, 1),
}

_RESERVED = {
    "_": "'_' is the sink and no name",
    "WARP_SZ": "'WARP_SZ' is a constant of PTX and cannot be declared",
}


def name_problem(name: str, span: Span) -> Problem | None:
    """A name that cannot be declared."""
    message = _RESERVED.get(name)
    return Problem(message, span) if message else None


# --- operands -------------------------------------------------------------------------------------


def _names(node: Any) -> Iterator[Any]:
    """The symbols and registers of an expression, from left to right."""
    match node:
        case ast.Name(text):
            if text != "WARP_SZ":
                yield node
        case ast.Member() | ast.MaskedSymbol():
            yield node
        case ast.Unary(_, operand) | ast.Cast(_, operand):
            yield from _names(operand)
        case ast.Binary(_, left, right):
            yield from _names(left)
            yield from _names(right)
        case ast.Conditional(condition, yes, no):
            for part in (condition, yes, no):
                yield from _names(part)


def operand_problem(node: Any) -> Problem | None:
    """A symbol or register where only constants may stand: ``[r-4]``, ``8+gv``, ``[r+s]``."""
    match node:
        case ast.Binary("+", left, right):
            found = next(_names(right), None)
            if found is None:
                return operand_problem(left)
            return Problem(
                "only a constant may stand behind '+'",
                found.span,
                "a symbol or register comes first, a constant offset follows",
            )
        case ast.Binary(operator, left, right):
            found = next(_names(node), None)
            if found is None:
                return None
            return Problem(
                f"'{operator}' cannot be applied to a symbol or register",
                found.span,
                "write a negative offset as '+-4'" if operator == "-" else None,
            )
        case ast.Conditional() | ast.Cast():
            found = next(_names(node), None)
            return None if found is None else Problem("a constant is needed here", found.span)
        case ast.Address(parts):
            return next((p for p in map(operand_problem, parts) if p is not None), None)
        case ast.Subscript(_, index):
            return operand_problem(index)
    return None


def parenthesis_problem(node: Any) -> Problem | None:
    """A symbol or register between parentheses: ``(%r1)``, ``[(sym+4)]``."""
    found = next(_names(node), None)
    if found is None:
        return None
    return Problem("only constants may stand in parentheses", found.span, "leave them out")


# --- declarations ---------------------------------------------------------------------------------


def _count_problem(node: Any, what: str) -> Problem | None:
    """``what`` has to be a non-negative integer constant; anything else that is seen here."""
    if isinstance(node, ast.FloatLiteral) or (isinstance(node, ast.Unary) and node.operator == "-"):
        return Problem(f"{what} is a positive integer", node.span)
    found = next(_names(node), None)
    if found is not None:
        return Problem(f"{what} is a constant", found.span)
    if isinstance(node, ast.IntLiteral | ast.Name):  # the name is WARP_SZ
        return None
    return Problem(f"{what} is one number, not an expression", node.span)


def _linkage_problem(node: ast.VariableDeclaration | ast.Function) -> Problem | None:
    if len(node.linkage) < 2:
        return None
    first, second = node.linkage[:2]
    if first == second:
        return Problem(f"'.{first}' is given twice", node.span)
    return Problem(f"'.{first}' and '.{second}' exclude each other", node.span)


def declaration_problems(node: ast.VariableDeclaration) -> Iterator[Problem]:
    """What is wrong with a declaration of variables."""
    if node.space == "sreg":
        yield Problem("special registers are predefined and cannot be declared", node.span)
    if node.align is not None:
        problem = _count_problem(node.align, "an alignment")
        if problem is not None:
            yield problem
    problem = _linkage_problem(node)
    if problem is not None:
        yield problem
    if node.vector == 8:
        yield Problem("a variable is a vector of two or four", node.span)
    for variable in node.variables:
        yield from _variable_problems(variable)


def _variable_problems(variable: ast.Variable) -> Iterator[Problem]:
    problem = name_problem(variable.name, variable.span)
    if problem is not None:
        yield problem
    for index, extent in enumerate(variable.extents):
        if extent is None:
            problem = Problem("only the first array size may be left out", variable.span)
            problem = problem if index else None
        else:
            problem = _count_problem(extent, "an array size")
        if problem is not None:
            yield problem
    if variable.count is not None and (variable.extents or variable.initializer is not None):
        kind = "arrays" if variable.extents else "initialised"
        yield Problem(f"numbered variables cannot be {kind}", variable.span)


# --- functions ------------------------------------------------------------------------------------


def head_directive_problem(directive: ast.FunctionDirective, kind: str) -> Problem | None:
    """A directive that does not belong behind the head of an ``entry``, ``func`` or prototype."""
    name, span = directive.name, directive.span
    if name == "pragma":
        return None
    known = FUNCTION_DIRECTIVES.get(name)
    if known is None:
        here = [f".{n}" for n, (k, _, _) in FUNCTION_DIRECTIVES.items() if k == kind]
        message = f"'.{name}' is no directive of a function"
        return Problem(message, span, did_you_mean(f".{name}", here))
    owner, least, most = known
    if owner != kind:
        return Problem(f"'.{name}' belongs to an '.{owner}'", span)
    if not least <= len(directive.values) <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        return Problem(f"'.{name}' takes {wanted} values, not {len(directive.values)}", span)
    for value in directive.values:
        problem = None if isinstance(value, str) else _count_problem(value, f"a '.{name}' value")
        if problem is not None:
            return problem
    return None


def _parameter_problem(node: ast.Parameter) -> Problem | None:
    """What is wrong with a parameter of an ``entry`` or ``func``."""
    if node.space == "reg" and node.extents:
        return Problem("an array cannot be a register", node.span)
    return None


def function_problems(node: ast.Function) -> Iterator[Problem]:
    """What is wrong with the head of a function."""
    problem = name_problem(node.name, node.name_span)
    if problem is not None:
        yield problem
    problem = _linkage_problem(node)
    if problem is not None:
        yield problem
    if node.kind == "entry" and node.results:
        yield Problem("an '.entry' returns nothing", node.results[0].span)
    for parameter in (*node.results, *node.parameters):
        problem = _parameter_problem(parameter)
        if problem is not None:
            yield problem
    for directive in node.directives:
        problem = head_directive_problem(directive, node.kind)
        if problem is not None:
            yield problem


def section_problem(type_: str, values: Sequence[Any], span: Span) -> Problem | None:
    """What is wrong with a line of data of a ``.section``."""
    if type_ not in ("b8", "b16", "b32", "b64"):
        return Problem(f"'.{type_}' is no type of debug data", span)
    if len(values) > 1:
        found = next((name for value in values for name in _names(value)), None)
        if found is not None:
            return Problem("an address stands alone on its line", found.span)
    return None


def module_problems(items: tuple[ast.Item, ...]) -> Iterator[Problem]:
    """What is wrong with the sequence of items of a module."""
    seen: set[object] = set()
    head = True
    for item in items:
        key: object = type(item)
        if isinstance(item, ast.FileDirective):
            key = item.index
            if key in seen:
                yield Problem(f"file {key} is already given above", item.span)
            elif item.index >> 32:
                yield Problem(f"the number {key} of a file exceeds 32 bits", item.span)
        elif isinstance(item, ast.VersionDirective | ast.AddressSizeDirective) and key in seen:
            yield Problem("this directive is already given above", item.span)
        elif isinstance(item, ast.TargetDirective | ast.AddressSizeDirective) and not head:
            yield Problem("this directive belongs to the head of the module", item.span)
        elif isinstance(item, ast.LocDirective):
            yield Problem("'.loc' is legal inside of a function only", item.span)
        seen.add(key)
        head = head and isinstance(item, ast.VersionDirective | ast.TargetDirective)

"""Syntax tree to text.  ``parse(to_text(t))`` equals ``t``."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from math import isfinite
from typing import Any

from . import ast

__all__ = ["expression_text", "statement_text", "to_text"]

_PRECEDENCE = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, "<=": 7, ">": 7, ">=": 7,
    "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}  # fmt: skip
_UNARY = 11


def to_text(node: ast.Module) -> str:
    """The module as PTX text, laid out the way compilers do."""
    return "".join(line + "\n" for item in node.items for line in item_lines(item))


# --- expressions and operands ---------------------------------------------------------------------


def expression_text(node: Any, outer: int = 0) -> str:
    """An expression or operand; ``outer`` is the precedence around it."""
    match node:
        case ast.Name(text):
            return text
        case ast.Member(base, field):
            return f"{base}.{field}"
        case ast.IntLiteral(value, unsigned):
            return node.text or f"{value}{'U' if unsigned else ''}"
        case ast.FloatLiteral():
            return node.text or _float_text(node)
        case ast.Unary(operator, operand):
            inner = expression_text(operand, _UNARY)
            if operator == "-" and isinstance(operand, ast.FloatLiteral):
                inner = f"({inner})" if inner[1:2] in tuple("fFdD") else inner
            space = " " if inner[0] in "+-" else ""
            text = f"{operator}{space}{inner}"
            return f"({text})" if outer > _UNARY else text
        case ast.Binary(operator, left, right):
            level = _PRECEDENCE[operator]
            a, b = expression_text(left, level), expression_text(right, level + 1)
            tight = operator == "+" and isinstance(left, ast.Name | ast.Member) and outer == 0
            text = f"{a}+{b}" if tight else f"{a} {operator} {b}"
            return f"({text})" if outer > level else text
        case ast.Conditional(condition, yes, no):
            text = (
                f"{expression_text(condition, 1)} ? {expression_text(yes)} : {expression_text(no)}"
            )
            return f"({text})" if outer else text
        case ast.Cast(type_, operand):
            text = f"(.{type_}) {expression_text(operand, _UNARY)}"
            return f"({text})" if outer > _UNARY else text
        case ast.MaskedSymbol(function, symbol):
            return f"{function}({symbol})"
        case ast.Vector(elements):
            return "{" + _list(elements) + "}"
        case ast.Address(parts):
            return "[" + _list(parts) + "]"
        case ast.Subscript(symbol, index):
            return f"{symbol}[{expression_text(index)}]"
        case ast.Pair(first, second):
            return f"{expression_text(first, 4)}|{expression_text(second, 4)}"
        case ast.Group(elements):
            return "(" + _list(elements) + ")"
    raise AssertionError(node)


def _float_text(node: ast.FloatLiteral) -> str:
    """A spelling for a literal that was made and not parsed."""
    if node.kind != "decimal":
        return f"{node.kind}{node.bits:0{8 if node.kind == '0f' else 16}X}"
    value = struct.unpack("<d", struct.pack("<Q", node.bits))[0]
    return repr(value) if isfinite(value) and node.bits >> 63 == 0 else f"0d{node.bits:016X}"


def _list(nodes: Iterable[Any]) -> str:
    return ", ".join(expression_text(n) for n in nodes)


# --- statements -----------------------------------------------------------------------------------


def statement_text(node: ast.Instruction) -> str:
    """One instruction on one line, without indentation."""
    guard = ""
    if node.guard is not None:
        guard = f"@{'!' if node.guard.negated else ''}{node.guard.register} "
    opcode = ".".join(node.opcode)
    operands = _list(node.operands)
    return f"{guard}{opcode} {operands};" if operands else f"{guard}{opcode};"


def statement_lines(node: Any, indent: str = "\t") -> Iterator[str]:
    """The lines of a statement of a body."""
    match node:
        case ast.Instruction():
            yield indent + statement_text(node)
        case ast.Label(name):
            yield f"{name}:"
        case ast.Block(body):
            yield indent + "{"
            for s in body:
                yield from statement_lines(s, indent + "\t")
            yield indent + "}"
        case ast.VariableDeclaration():
            yield indent + declaration_text(node)
        case ast.BranchTargets(name, targets):
            yield f"{name}: .branchtargets {', '.join(targets)};"
        case ast.CallTargets(name, targets):
            yield f"{name}: .calltargets {', '.join(targets)};"
        case ast.Prototype():
            yield _prototype_text(node)
        case _:
            for line in item_lines(node):
                yield indent + line


# --- declarations ---------------------------------------------------------------------------------


def _initializer(node: Any) -> str:
    if isinstance(node, ast.FieldInitializer):
        return f"{node.field} = {expression_text(node.value)}"
    if isinstance(node, ast.InitializerList):
        return "{" + ", ".join(_initializer(e) for e in node.elements) + "}"
    return expression_text(node)


def _extents(extents: Iterable[Any]) -> str:
    return "".join("[" + ("" if e is None else expression_text(e)) + "]" for e in extents)


def _qualifiers(node: ast.VariableDeclaration | ast.Parameter) -> str:
    out = ""
    if node.attributes:
        out += f" .attribute({', '.join('.' + a for a in node.attributes)})"
    if node.align is not None:
        out += f" .align {expression_text(node.align)}"
    if node.vector is not None:
        out += f" .v{node.vector}"
    return out


def declaration_text(node: ast.VariableDeclaration) -> str:
    """A variable declaration on one line."""
    linkage = "".join(f".{word} " for word in node.linkage)
    names = []
    for v in node.variables:
        text = v.name + (f"<{v.count}>" if v.count is not None else "") + _extents(v.extents)
        if v.initializer is not None:
            text += " = " + _initializer(v.initializer)
        names.append(text)
    return f"{linkage}.{node.space}{_qualifiers(node)} .{node.type} {', '.join(names)};"


def _parameter(p: ast.Parameter) -> str:
    out = f".{p.space}{_qualifiers(p)} .{p.type}"
    if p.pointer:
        out += " .ptr" + (f" .{p.pointer_space}" if p.pointer_space else "")
        if p.pointer_align is not None:
            out += f" .align {expression_text(p.pointer_align)}"
    count = f"<{p.count}>" if p.count is not None else ""
    return f"{out} {p.name}{count}{_extents(p.extents)}"


def _parameters(parameters: tuple[ast.Parameter, ...]) -> str:
    return "(" + ", ".join(_parameter(p) for p in parameters) + ")"


def _directive(d: ast.FunctionDirective) -> str:
    if d.name == "pragma":
        return ".pragma " + ", ".join(f'"{v}"' for v in d.values) + ";"
    values = ", ".join(v if isinstance(v, str) else expression_text(v) for v in d.values)
    return f".{d.name} {values}".rstrip()


def _prototype_text(node: ast.Prototype) -> str:
    results = _parameters(node.results) + " " if node.results else ""
    directives = "".join(" " + _directive(d) for d in node.directives)
    parameters = _parameters(node.parameters)
    return f"{node.label}: .callprototype {results}{node.name} {parameters}{directives};"


def function_head(node: ast.Function) -> list[str]:
    """The lines of a function before its body."""
    linkage = "".join(f".{word} " for word in node.linkage)
    results = _parameters(node.results) + " " if node.results else ""
    attributes = ", ".join("." + a for a in node.attributes)
    attributes = f".attribute({attributes}) " if attributes else ""
    head = f"{linkage}.{node.kind} {attributes}{results}{node.name}"
    if not node.parameters:
        lines = [head + "()"]
    else:
        last = len(node.parameters) - 1
        lines = [head + "("]
        lines += [
            f"\t{_parameter(p)}" + ("," if n < last else "") for n, p in enumerate(node.parameters)
        ]
        lines.append(")")
    lines += [_directive(d) for d in node.directives]
    return lines


def item_lines(node: Any) -> Iterator[str]:
    """The lines of an item of a module."""
    match node:
        case ast.VersionDirective(major, minor):
            yield f".version {major}.{minor}"
        case ast.TargetDirective(targets):
            yield f".target {', '.join(targets)}"
        case ast.AddressSizeDirective(size):
            yield f".address_size {size}"
        case ast.FileDirective(index, path, timestamp, size):
            extra = "".join(f", {n}" for n in (timestamp, size) if n is not None)
            yield f'.file {index} "{path}"{extra}'
        case ast.LocDirective():
            yield _loc(node)
        case ast.PragmaDirective(texts):
            yield ".pragma " + ", ".join(f'"{t}"' for t in texts) + ";"
        case ast.AliasDirective(name, target):
            yield f".alias {name}, {target};"
        case ast.Section():
            yield from _section(node)
        case ast.VariableDeclaration():
            yield declaration_text(node)
        case ast.Prototype():
            yield _prototype_text(node)
        case ast.Function():
            head = function_head(node)
            if node.body is None:
                head[-1] += ";"
                yield from head
                return
            yield from head
            yield "{"
            for s in node.body:
                yield from statement_lines(s)
            yield "}"
        case _:
            raise AssertionError(node)


def _loc(node: ast.LocDirective) -> str:
    out = f".loc {node.file} {node.line} {node.column}"
    if node.function is not None and node.inlined_at is not None:
        offset = f"+{node.function_offset}" if node.function_offset else ""
        out += f", function_name {node.function}{offset}, inlined_at"
        out += " {} {} {}".format(*node.inlined_at)
    return out


def _section(node: ast.Section) -> Iterator[str]:
    yield f".section {node.name}"
    yield "{"
    for item in node.items:
        if isinstance(item, ast.Label):
            yield f"{item.name}:"
        else:
            yield f"\t.{item.type} {_list(item.values)}"
    yield "}"

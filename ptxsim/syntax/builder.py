"""From the parser's reductions to syntax nodes, while the text is parsed."""

from __future__ import annotations

import struct
from typing import Any

from lark import Token, Transformer, v_args

from ..diagnostics import Span
from . import ast
from ._rules import (
    Problem,
    declaration_problems,
    function_problems,
    head_directive_problem,
    module_problems,
    name_problem,
    operand_problem,
    parenthesis_problem,
    section_problem,
)

__all__ = ["Builder", "Misplaced", "TooDeep"]

#: Nesting of expressions, brackets and scopes beyond which text is refused.
MAX_DEPTH = 128

#: Characters of a number beyond which it is refused.
MAX_LITERAL = 80

_MEMBER_FIELDS = frozenset("xyzwrgba")


class TooDeep(Exception):
    """The text nests deeper than any sensible program does."""

    def __init__(self, span: Span) -> None:
        super().__init__(str(span))
        self.span = span


class _Group:
    """A parenthesised list whose meaning (expression or call list) is not settled yet."""

    __slots__ = ("elements", "span")

    def __init__(self, elements: tuple[Any, ...], span: Span) -> None:
        self.elements = elements
        self.span = span


def _at(token: Token) -> Span:
    return Span(token.line, token.column, token.end_line, token.end_column)  # type: ignore[arg-type]


def _present(items: Any) -> list[Any]:
    return [i for i in items if i is not None]


def _bounded(token: Token) -> str:
    """The text of a number that is not absurdly long."""
    if len(token.value) > MAX_LITERAL:
        raise Misplaced(_at(token), f"a number of {len(token.value)} characters")
    return token.value  # type: ignore[no-any-return]


def _number(token: Token) -> int:
    return integer_value(token)[0]


def integer_value(token: Token) -> tuple[int, bool]:
    """The value of an integer literal and whether it has the suffix U."""
    text = _bounded(token)
    unsigned = text.endswith("U")
    digits = text[:-1] if unsigned else text
    if len(digits) > 1 and digits[0] == "0" and digits[1] not in "xXbB":
        return int(digits, 8), unsigned
    return int(digits, 0), unsigned


@v_args(inline=True)
class Builder(Transformer):  # type: ignore[type-arg]
    """Makes one node for each reduction.

    ``depths`` holds how deep nested nodes are, and the nodes, so that the identity of a dropped
    node is not taken for that of a new one.  ``problems`` collects broken rules that do not
    hinder the parse.
    """

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[Problem] = []
        self.depths: dict[int, tuple[int, Any]] = {}
        self._names: dict[str, str] = {}
        self._opcodes: dict[str, tuple[str, ...]] = {}

    def reset(self) -> None:
        """Forget what was noted about the last text."""
        self.problems = []
        self.depths.clear()

    def _word(self, token: Token) -> str:
        return self._names.setdefault(token.value, token.value)

    def _note(self, problem: Problem | None) -> None:
        if problem is not None:
            self.problems.append(problem)

    def _number_alone(self, value: Any) -> Any:
        """A number where no expression may stand, not even parentheses."""
        if isinstance(value, _Group):
            self.problems.append(Problem("a number stands here without parentheses", value.span))
        return self._plain(value)

    def _deeper(self, node: Any, *children: Any) -> Any:
        depth = 1
        for child in children:
            known = self.depths.get(id(child))
            if known is not None and known[0] >= depth:
                depth = known[0] + 1
        if depth > MAX_DEPTH:
            raise TooDeep(node.span)
        self.depths[id(node)] = (depth, node)
        return node

    # --- expressions and operands ---------------------------------------------------------------

    def name(self, token: Token) -> ast.Name:
        return ast.Name(self._word(token), _at(token))

    def member(self, token: Token) -> Any:
        base, _, field = token.value.rpartition(".")
        if "." not in base and "::" not in token.value and field in _MEMBER_FIELDS:
            return ast.Member(base, field, _at(token))
        return ast.Name(token.value, _at(token))

    def integer(self, token: Token) -> ast.IntLiteral:
        value, unsigned = integer_value(token)
        return ast.IntLiteral(value, unsigned, token.value, _at(token))

    def decimal(self, token: Token) -> ast.FloatLiteral:
        bits = struct.unpack("<Q", struct.pack("<d", float(_bounded(token))))[0]
        return ast.FloatLiteral(bits, "decimal", token.value, _at(token))

    def hex_float(self, token: Token) -> ast.FloatLiteral:
        kind = "0" + token.value[1].lower()
        return ast.FloatLiteral(int(token.value[2:], 16), kind, token.value, _at(token))

    def group(self, opening: Token, *elements: Any) -> _Group:
        items = tuple(_present(elements[:-1]))
        group = _Group(items, _at(opening).to(_at(elements[-1])))
        self._deeper(group, *items)
        return group

    def _plain(self, node: Any) -> Any:
        """A parenthesised expression stands for what is in the parentheses."""
        if not isinstance(node, _Group):
            return node
        while isinstance(node, _Group):
            if len(node.elements) != 1:
                raise Misplaced(node.span, "a parenthesised list is only legal in a call")
            node = node.elements[0]
            if isinstance(node, ast.Vector | ast.Address | ast.Pair):
                self.problems.append(Problem("this cannot stand in parentheses", node.span))
        problem = parenthesis_problem(node)
        if problem is not None:
            self.problems.append(problem)
        return node

    def unary(self, operator: Token, operand: Any) -> ast.Unary:
        if operator == "-" and isinstance(operand, ast.FloatLiteral) and operand.kind != "decimal":
            self.problems.append(
                Problem(
                    "'-' cannot stand before a hexadecimal float",
                    _at(operator).to(operand.span),
                    "set the sign bit of the number, or use parentheses",
                )
            )
        operand = self._plain(operand)
        node = ast.Unary(operator.value, operand, _at(operator).to(operand.span))
        return self._deeper(node, operand)  # type: ignore[no-any-return]

    def binary(self, left: Any, operator: Token, right: Any) -> ast.Binary:
        left, right = self._plain(left), self._plain(right)
        node = ast.Binary(operator.value, left, right, left.span.to(right.span))
        return self._deeper(node, left, right)  # type: ignore[no-any-return]

    def conditional(self, condition: Any, yes: Any, no: Any) -> ast.Conditional:
        condition, yes, no = self._plain(condition), self._plain(yes), self._plain(no)
        node = ast.Conditional(condition, yes, no, condition.span.to(no.span))
        return self._deeper(node, condition, yes, no)  # type: ignore[no-any-return]

    def cast(self, type_: Token, operand: Any) -> ast.Cast:
        operand = self._plain(operand)
        node = ast.Cast(type_.value[1:], operand, _at(type_).to(operand.span))
        return self._deeper(node, operand)  # type: ignore[no-any-return]

    def subscript(self, symbol: Token, index: Any, closing: Token) -> ast.Subscript:
        index = self._plain(index)
        node = ast.Subscript(symbol.value, index, _at(symbol).to(_at(closing)))
        return self._deeper(node, index)  # type: ignore[no-any-return]

    def masked(self, function: Token, symbol: Token, closing: Token) -> ast.MaskedSymbol:
        return ast.MaskedSymbol(function.value, symbol.value, _at(function).to(_at(closing)))

    def vector(self, opening: Token, *elements: Any) -> ast.Vector:
        items = tuple([self._plain(e) for e in elements[:-1]])
        node = ast.Vector(items, _at(opening).to(_at(elements[-1])))
        return self._deeper(node, *items)  # type: ignore[no-any-return]

    def address(self, opening: Token, *parts: Any) -> ast.Address:
        items = tuple([self._plain(p) for p in parts[:-1]])
        node = ast.Address(items, _at(opening).to(_at(parts[-1])))
        return self._deeper(node, *items)  # type: ignore[no-any-return]

    def pair(self, first: Any, second: Any) -> ast.Pair:
        second = self._plain(second)
        return ast.Pair(first, second, first.span.to(second.span))

    def _operand(self, node: Any, call: bool) -> Any:
        if isinstance(node, _Group):
            if call:
                return ast.Group(tuple(self._plain(e) for e in node.elements), node.span)
            return self._plain(node)
        if isinstance(node, ast.Binary) and node.operator == "|":
            sides = (node.left, node.right)
            if any(isinstance(s, ast.Name | ast.Member) for s in sides):
                return ast.Pair(node.left, node.right, node.span)
        return node

    # --- statements -----------------------------------------------------------------------------

    def guard(self, at: Token, bang: Token | None, name: Token) -> ast.Guard:
        return ast.Guard(self._word(name), bang is not None, _at(at).to(_at(name)))

    def opcode(self, first: Token, *rest: Token) -> tuple[tuple[str, ...], Span]:
        text = first.value + "".join(t.value for t in rest)
        parts = self._opcodes.get(text)
        if parts is None:
            parts = self._opcodes[text] = tuple(text.split("."))
        span = _at(first)
        return parts, span.to(_at(rest[-1])) if rest else span

    def instruction(
        self, guard: ast.Guard | None, opcode: tuple[tuple[str, ...], Span], *operands: Any
    ) -> ast.Instruction:
        parts, span = opcode
        call = parts[0] == "call"
        items = tuple([self._operand(o, call) for o in operands if o is not None])
        for item in items:
            problem = operand_problem(item)
            if problem is not None:
                self.problems.append(problem)
        start = guard.span if guard is not None else span
        whole = start.to(items[-1].span) if items else start.to(span)
        node = ast.Instruction(parts, items, guard, whole, span)
        return self._deeper(node, *items)  # type: ignore[no-any-return]

    def label(self, name: Token) -> ast.Label:
        self._note(name_problem(name.value, _at(name)))
        return ast.Label(name.value, _at(name))

    def block(self, opening: Token, *body: Any) -> ast.Block:
        items = tuple(_present(body[:-1]))
        node = ast.Block(items, _at(opening).to(_at(body[-1])))
        return self._deeper(node, *items)  # type: ignore[no-any-return]

    def table_entry(self, name: Token, count: Token | None) -> str:
        return name.value if count is None else f"{name.value}<{_number(count)}>"

    def branch_targets(self, name: Token, *targets: str) -> ast.BranchTargets:
        self._note(name_problem(name.value, _at(name)))
        return ast.BranchTargets(name.value, targets, _at(name))

    def call_targets(self, name: Token, *targets: Token) -> ast.CallTargets:
        self._note(name_problem(name.value, _at(name)))
        return ast.CallTargets(name.value, tuple(t.value for t in targets), _at(name))

    def loc_function(self, *items: Token | None) -> tuple[str, int, tuple[int, int, int]]:
        word, label, *rest = items
        offset = rest.pop(0)
        inlined, file, line, column = rest
        assert word and label and inlined and file and line and column
        if word.value != "function_name" or inlined.value != "inlined_at":
            raise Misplaced(
                _at(word), "'function_name LABEL, inlined_at FILE LINE COLUMN' expected"
            )
        place = (_number(file), _number(line), _number(column))
        return label.value, _number(offset) if offset else 0, place

    def loc(self, file: Token, line: Token, column: Token, extra: Any) -> ast.LocDirective:
        name, offset, place = extra if extra is not None else (None, 0, None)
        span = _at(file).to(_at(column))
        numbers = (_number(file), _number(line), _number(column))
        return ast.LocDirective(*numbers, name, offset, place, span)

    def pragma(self, *texts: Token) -> ast.PragmaDirective:
        return ast.PragmaDirective(
            tuple(t.value[1:-1] for t in texts), _at(texts[0]).to(_at(texts[-1]))
        )

    # --- declarations ---------------------------------------------------------------------------

    def type(self, token: Token) -> Token:
        return token

    def linkages(self, *tokens: Token) -> tuple[Token, ...]:
        return tokens

    def align(self, value: Any) -> tuple[str, Any]:
        return "align", self._number_alone(value)

    def vector_width(self, token: Token) -> tuple[str, int]:
        return "vector", int(token.value[2:])

    def attribute(self, name: Token, *values: Any) -> str:
        from .printer import expression_text

        given = [expression_text(self._plain(v)) for v in values if v is not None]
        text: str = name.value[1:]
        return text + (f"({', '.join(given)})" if given else "")

    def attributes(self, *texts: str) -> tuple[str, tuple[str, ...]]:
        return "attributes", texts

    def extent(self, value: Any) -> tuple[str, Any]:
        return "extent", None if value is None else self._number_alone(value)

    def field_initializer(self, field: Token, value: Any) -> ast.FieldInitializer:
        span = _at(field).to(value.span)
        return ast.FieldInitializer(field.value, self._plain(value), span)

    def initializer_list(self, *elements: Any) -> ast.InitializerList:
        items = tuple(self._plain(e) for e in elements if e is not None)
        span = items[0].span.to(items[-1].span) if items else Span(1, 1, 1, 1)
        node = ast.InitializerList(items, span)
        return self._deeper(node, *items)  # type: ignore[no-any-return]

    def variable(self, name: Token, count: Token | None, *rest: Any) -> ast.Variable:
        extents = tuple(i[1] for i in rest if isinstance(i, tuple))
        last = rest[-1] if rest else None
        initializer = None if isinstance(last, tuple) or last is None else self._plain(last)
        number = None if count is None else _number(count)
        return ast.Variable(self._word(name), number, extents, initializer, _at(name))

    def declaration(
        self, linkage: tuple[Token, ...], space: Token, *rest: Any
    ) -> ast.VariableDeclaration:
        pairs = [i for i in rest if isinstance(i, tuple)]
        qualifiers: dict[str, Any] = dict(pairs)
        type_ = next(i for i in rest if isinstance(i, Token))
        if any(kind == "vector" for kind, _ in pairs[:-1]):
            self.problems.append(Problem("the type stands behind a vector width", _at(type_)))
        variables = tuple(i for i in rest if isinstance(i, ast.Variable))
        node = ast.VariableDeclaration(
            space.value[1:],
            type_.value[1:],
            variables,
            tuple(t.value[1:] for t in linkage),
            qualifiers.get("align"),
            qualifiers.get("vector"),
            qualifiers.get("attributes", ()),
            _at(linkage[0] if linkage else space).to(variables[-1].span),
        )
        self.problems.extend(declaration_problems(node))
        return node

    def item_declaration(self, node: ast.VariableDeclaration) -> ast.VariableDeclaration:
        return node

    # --- functions ------------------------------------------------------------------------------

    def count(self, number: Token) -> int:
        return _number(number)

    def pointer(self, space: Token | None, align: Any) -> tuple[str, Any]:
        return "pointer", (space and space.value[1:], None if align is None else self._plain(align))

    def parameter(self, space: Token, *rest: Any) -> ast.Parameter:
        pairs = [i for i in rest if isinstance(i, tuple)]
        qualifiers: dict[str, Any] = {k: v for k, v in pairs if k != "extent"}
        type_, name = (i for i in rest if isinstance(i, Token))
        if name != "_":
            self._note(name_problem(name.value, _at(name)))
        pointer = qualifiers.get("pointer")
        return ast.Parameter(
            name.value,
            space.value[1:],
            type_.value[1:],
            qualifiers.get("align"),
            qualifiers.get("vector"),
            tuple(v for k, v in pairs if k == "extent"),
            pointer is not None,
            pointer[0] if pointer else None,
            pointer[1] if pointer else None,
            qualifiers.get("attributes", ()),
            _at(space).to(_at(name)),
            next((i for i in rest if isinstance(i, int)), None),
        )

    def parameter_list(self, *parameters: Any) -> tuple[ast.Parameter, ...]:
        return tuple(_present(parameters))

    def function_directive(self, name: Token, *values: Any) -> ast.FunctionDirective:
        given = tuple(self._number_alone(v) for v in values if v is not None)
        return ast.FunctionDirective(name.value[1:], given, _at(name))

    def function_pragma(self, *texts: Token) -> ast.FunctionDirective:
        return ast.FunctionDirective("pragma", tuple(t.value[1:-1] for t in texts), _at(texts[0]))

    def no_body(self, end: Token) -> tuple[None, Span]:
        return None, _at(end)

    def body(self, opening: Token, *statements: Any) -> tuple[tuple[Any, ...], Span]:
        return tuple(_present(statements[:-1])), _at(statements[-1])

    def function(self, linkage: tuple[Token, ...], kind: Token, *rest: Any) -> ast.Function:
        attributes, results, name, parameters, *directives, (body, end) = rest
        start = _at(linkage[0] if linkage else kind)
        node = ast.Function(
            kind.value[1:],
            name.value,
            results or (),
            parameters or (),
            tuple(t.value[1:] for t in linkage),
            tuple(directives),
            body,
            start.to(_at(name)),
            _at(name),
            attributes[1] if attributes else (),
            end,
        )
        self.problems.extend(function_problems(node))
        return node

    def labelled_prototype(self, label: Token, *rest: Any) -> ast.Prototype:
        results, name, parameters, *directives = rest
        self._note(name_problem(label.value, _at(label)))
        if name.value != "_":
            message = "the function of a prototype is written '_'"
            self.problems.append(Problem(message, _at(name)))
        for directive in directives:
            problem = head_directive_problem(directive, "func")
            if problem is not None:
                self.problems.append(problem)
        return ast.Prototype(
            label.value, name.value, results or (), parameters or (), tuple(directives), _at(label)
        )

    # --- module ---------------------------------------------------------------------------------

    def version(self, number: Token) -> ast.VersionDirective:
        major, _, minor = number.value.partition(".")
        if not (major.isdigit() and minor.isdigit() and len(number.value) < 8):
            raise Misplaced(_at(number), "a version such as 9.0 is expected")
        return ast.VersionDirective(int(major), int(minor), _at(number))

    def target(self, *names: Token) -> ast.TargetDirective:
        span = _at(names[0]).to(_at(names[-1]))
        return ast.TargetDirective(tuple(n.value for n in names), span)

    def address_size(self, size: Token) -> ast.AddressSizeDirective:
        return ast.AddressSizeDirective(_number(size), _at(size))

    def file(
        self, index: Token, path: Token, time: Token | None, size: Token | None
    ) -> ast.FileDirective:
        return ast.FileDirective(
            _number(index),
            path.value[1:-1],
            _number(time) if time is not None else None,
            _number(size) if size is not None else None,
            _at(index).to(_at(path)),
        )

    def alias(self, name: Token, target: Token) -> ast.AliasDirective:
        return ast.AliasDirective(name.value, target.value, _at(name).to(_at(target)))

    def section_reference(self, name: Token, plus: Token | None, offset: Token | None) -> Any:
        node = ast.Name(name.value, _at(name))
        if plus is None or offset is None:
            return node
        return ast.Binary("+", node, self.integer(offset), _at(name).to(_at(offset)))

    def section_data(self, type_: Token, *values: Any) -> ast.SectionData:
        given = tuple(self._plain(v) for v in values)
        self._note(section_problem(type_.value[1:], given, _at(type_)))
        return ast.SectionData(type_.value[1:], given, _at(type_))

    def section(self, name: Token, *items: Any) -> ast.Section:
        return ast.Section(name.value, tuple(_present(items)), _at(name))

    def start(self, *items: Any) -> ast.Module:
        kept = tuple(_present(items))
        self.problems.extend(module_problems(kept))
        return ast.Module(kept, kept[0].span.to(kept[-1].span) if kept else Span(1, 1, 1, 1))


class Misplaced(Exception):
    """A construct that the grammar takes and that is illegal where it stands."""

    def __init__(self, span: Span, message: str) -> None:
        super().__init__(message)
        self.span = span
        self.message = message

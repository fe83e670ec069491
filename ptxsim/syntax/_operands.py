"""Reductions of expressions and operands to nodes: the lower half of the builder."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from lark import Token, Transformer, v_args

from ..diagnostics import Span
from . import ast
from ._rules import Problem

__all__ = ["MAX_DEPTH", "MAX_LITERAL", "OperandBuilder", "TooDeep", "at", "present"]

#: Nesting of expressions, brackets and scopes beyond which text is refused.
MAX_DEPTH = 128

#: Characters of a number beyond which it is refused; 64 binary digits fit well.
MAX_LITERAL = 80

_MEMBER_FIELDS = frozenset("xyzwrgba")
_LISTS = (ast.Vector, ast.Address, ast.Pair)


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


def at(token: Token) -> Span:
    """The stretch of text that a token covers."""
    return Span(token.line, token.column, token.end_line, token.end_column)  # type: ignore[arg-type]


def present(items: Iterable[Any]) -> tuple[Any, ...]:
    """The items without the placeholders of what was left out."""
    return tuple([i for i in items if i is not None])


@v_args(inline=True)
class OperandBuilder(Transformer):  # type: ignore[type-arg]
    """Makes one node for each reduction.

    ``problems`` collects broken rules that do not hinder the parse.  The depth table holds its
    nodes, so that the identity of a dropped node is never taken for that of a new one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[Problem] = []
        self._depths: dict[int, tuple[int, Any]] = {}
        self._words: dict[str, str] = {}
        self._opcodes: dict[str, tuple[str, ...]] = {}

    def reset(self) -> None:
        """Forget everything about the last text."""
        self.problems = []
        self._depths.clear()
        self._words.clear()
        self._opcodes.clear()

    def _refuse(self, message: str, span: Span, help: str | None = None) -> None:
        self.problems.append(Problem(message, span, help))

    def _judge(self, problems: Iterable[Problem | None]) -> None:
        self.problems.extend(p for p in problems if p is not None)

    def _word(self, token: Token) -> str:
        return self._words.setdefault(token.value, token.value)

    def _deeper(self, node: Any, *children: Any) -> Any:
        depth = 0
        for child in children:
            known = self._depths.get(id(child))
            if known is not None and known[0] > depth:
                depth = known[0]
        if depth >= MAX_DEPTH:
            raise TooDeep(node.span)
        self._depths[id(node)] = (depth + 1, node)
        return node

    # --- numbers --------------------------------------------------------------------------------

    def _integer(self, token: Token) -> tuple[int, bool]:
        """The value of an integer literal and whether it has the suffix U."""
        text = token.value
        if len(text) > MAX_LITERAL:
            self._refuse(f"a number of {len(text)} characters", at(token))
            return 0, False
        unsigned = text.endswith("U")
        digits = text[:-1] if unsigned else text
        if len(digits) > 1 and digits[0] == "0" and digits[1] not in "xXbB":
            return int(digits, 8), unsigned
        return int(digits, 0), unsigned

    def _number(self, token: Token) -> int:
        return self._integer(token)[0]

    def integer(self, token: Token) -> ast.IntLiteral:
        value, unsigned = self._integer(token)
        return ast.IntLiteral(value, unsigned, self._word(token), at(token))

    def decimal(self, token: Token) -> ast.FloatLiteral:
        if len(token.value) > MAX_LITERAL:
            self._refuse(f"a number of {len(token.value)} characters", at(token))
            return ast.FloatLiteral(0, "decimal", "0.0", at(token))
        bits = struct.unpack("<Q", struct.pack("<d", float(token.value)))[0]
        return ast.FloatLiteral(bits, "decimal", self._word(token), at(token))

    def hex_float(self, token: Token) -> ast.FloatLiteral:
        kind = "0" + token.value[1].lower()
        return ast.FloatLiteral(int(token.value[2:], 16), kind, self._word(token), at(token))

    # --- expressions ----------------------------------------------------------------------------

    def name(self, token: Token) -> ast.Name:
        return ast.Name(self._word(token), at(token))

    def member(self, token: Token) -> Any:
        base, _, field = token.value.rpartition(".")
        if "." not in base and "::" not in token.value and field in _MEMBER_FIELDS:
            return ast.Member(self._words.setdefault(base, base), field, at(token))
        return ast.Name(self._word(token), at(token))

    def group(self, opening: Token, *elements: Any) -> _Group:
        items = present(elements[:-1])
        group = _Group(items, at(opening).to(at(elements[-1])))
        self._deeper(group, *items)
        return group

    def _plain(self, node: Any) -> Any:
        """A parenthesised expression stands for what is in the parentheses."""
        while isinstance(node, _Group):
            if len(node.elements) != 1:
                self._refuse("a parenthesised list is legal in a call only", node.span)
                return node.elements[0] if node.elements else ast.Name("_", node.span)
            node = node.elements[0]
            if isinstance(node, _LISTS):
                self._refuse("this cannot stand in parentheses", node.span)
        return node

    def unary(self, operator: Token, operand: Any) -> ast.Unary:
        if operator == "-" and isinstance(operand, ast.FloatLiteral) and operand.kind != "decimal":
            self._refuse(
                "'-' cannot stand before a hexadecimal float",
                at(operator).to(operand.span),
                "set the sign bit of the number, or use parentheses",
            )
        operand = self._plain(operand)
        node = ast.Unary(operator.value, operand, at(operator).to(operand.span))
        return self._deeper(node, operand)  # type: ignore[no-any-return]

    def binary(self, left: Any, operator: Token, right: Any) -> ast.Binary:
        span = left.span.to(right.span)
        left, right = self._plain(left), self._plain(right)
        node = ast.Binary(operator.value, left, right, span)
        return self._deeper(node, left, right)  # type: ignore[no-any-return]

    def conditional(self, condition: Any, yes: Any, no: Any) -> ast.Conditional:
        span = condition.span.to(no.span)
        condition, yes, no = self._plain(condition), self._plain(yes), self._plain(no)
        node = ast.Conditional(condition, yes, no, span)
        return self._deeper(node, condition, yes, no)  # type: ignore[no-any-return]

    def cast(self, opening: Token, type_: Token, operand: Any) -> ast.Cast:
        span = at(opening).to(operand.span)
        operand = self._plain(operand)
        node = ast.Cast(type_.value[1:], operand, span)
        return self._deeper(node, operand)  # type: ignore[no-any-return]

    def subscript(self, symbol: Token, index: Any, closing: Token) -> ast.Subscript:
        index = self._plain(index)
        node = ast.Subscript(self._word(symbol), index, at(symbol).to(at(closing)))
        return self._deeper(node, index)  # type: ignore[no-any-return]

    def masked(self, function: Token, symbol: Token, closing: Token) -> ast.MaskedSymbol:
        span = at(function).to(at(closing))
        return ast.MaskedSymbol(function.value, self._word(symbol), span)

    # --- operands -------------------------------------------------------------------------------

    def vector(self, opening: Token, *elements: Any) -> ast.Vector:
        items = tuple([self._plain(e) for e in elements[:-1]])
        node = ast.Vector(items, at(opening).to(at(elements[-1])))
        return self._deeper(node, *items)  # type: ignore[no-any-return]

    def address(self, opening: Token, *parts: Any) -> ast.Address:
        items = tuple([self._plain(p) for p in parts[:-1]])
        node = ast.Address(items, at(opening).to(at(parts[-1])))
        return self._deeper(node, *items)  # type: ignore[no-any-return]

    def pair(self, first: Any, second: Any) -> ast.Pair:
        second = self._plain(second)
        return ast.Pair(first, second, first.span.to(second.span))

    def _operand(self, node: Any, call: bool) -> Any:
        if isinstance(node, _Group):
            if call:
                return ast.Group(tuple([self._plain(e) for e in node.elements]), node.span)
            return self._plain(node)
        if isinstance(node, ast.Binary) and node.operator == "|":
            sides = (node.left, node.right)
            if any(isinstance(s, ast.Name | ast.Member) for s in sides):
                return ast.Pair(node.left, node.right, node.span)
        return node

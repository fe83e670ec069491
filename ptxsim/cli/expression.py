"""The expressions of SPEC: a small parser and its evaluation over NumPy arrays.

Text from a file is not trusted: the parser bounds length, depth and size, knows only the words
below, and evaluation goes piece by piece, so that its memory does not depend on the buffer.

Integers are computed in 64 bits and wrap: unsigned for u64 and b64, signed for all other types.
``/`` rounds down in integer types and is exact division in float types; ``%`` has the sign of the
divisor.  Numbers with a fraction are float64; ``u`` and ``s`` types drop the fraction of a result,
``b`` types refuse it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TypeAlias

from ..errors import UsageError

__all__ = ["Binary", "Call", "File", "Node", "Number", "Unary", "Word", "parse_expression"]

_MAX_LENGTH = 4096
_MAX_DEPTH = 50
_MAX_NODES = 500
_MAX_DIGITS = 300


@dataclass(frozen=True, slots=True)
class Number:
    """A literal; ``at`` is its column in the expression, from 0."""

    value: int | float
    at: int = field(compare=False, default=0)


@dataclass(frozen=True, slots=True)
class Word:
    """``zeros``, ``ones``, ``iota``, ``undef``, ``nan`` or ``inf``."""

    name: str
    at: int = field(compare=False, default=0)


@dataclass(frozen=True, slots=True)
class File:
    """``@FILE.npy``."""

    path: str
    at: int = field(compare=False, default=0)


@dataclass(frozen=True, slots=True)
class Call:
    """A function with its arguments."""

    name: str
    arguments: tuple[Node, ...]
    at: int = field(compare=False, default=0)


@dataclass(frozen=True, slots=True)
class Unary:
    """``-x``, ``+x`` or ``~x``."""

    operator: str
    operand: Node
    at: int = field(compare=False, default=0)


@dataclass(frozen=True, slots=True)
class Binary:
    """Two operands and their operator."""

    operator: str
    left: Node
    right: Node
    at: int = field(compare=False, default=0)


Node: TypeAlias = Number | Word | File | Call | Unary | Binary

WORDS = ("zeros", "ones", "iota", "undef", "nan", "inf")

#: The functions and how many arguments they take.
FUNCTIONS = {
    "rand": 1, "randn": 1, "randint": 3, "full": 1, "where": 3, "arange": 1, "abs": 1,
    "minimum": 2, "maximum": 2,
}  # fmt: skip

#: Binary operators by precedence, loosest first (as in Python and NumPy).
_LEVELS = (
    ("==", "!=", "<", "<=", ">", ">="), ("|",), ("^",), ("&",), ("<<", ">>"), ("+", "-"),
    ("*", "/", "%"),
)  # fmt: skip

_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<hex>0[xX][0-9a-fA-F]+)
      | (?P<float>(\d+\.\d*|\.\d+)([eE][+-]?\d+)?|\d+[eE][+-]?\d+)
      | (?P<int>\d+)
      | (?P<word>[A-Za-z_][\w.]*)
      | (?P<file>@("[^"]*"|[^\s()"]+))
      | (?P<operator><<|>>|<=|>=|==|!=|[-+*/%^&|~()<>,])""",
    re.VERBOSE | re.ASCII,
)


def parse_expression(text: str) -> Node:
    """The tree of an expression; :class:`UsageError` says what is wrong and in which column."""
    if len(text) > _MAX_LENGTH:
        raise UsageError(f"the expression has {len(text)} characters; at most {_MAX_LENGTH}")
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)
        self.position = 0
        self.nodes = 0
        self.depth = 0

    @property
    def kind(self) -> str:
        return self.tokens[self.position][0]

    @property
    def word(self) -> str:
        return self.tokens[self.position][1]

    @property
    def at(self) -> int:
        return self.tokens[self.position][2]

    def fail(self, message: str, at: int | None = None) -> UsageError:
        column = (self.at if at is None else at) + 1
        return UsageError(f"{message} (column {column} of '{self.text.strip()}')")

    def take(self) -> str:
        word = self.word
        self.position += 1
        return word

    def expect(self, word: str) -> None:
        if self.word != word or self.kind == "end":
            raise self.fail(f"expected '{word}' and found {self.found()}")
        self.position += 1

    def found(self) -> str:
        return "the end" if self.kind == "end" else f"'{self.word}'"

    def made(self, node: Node) -> Node:
        self.nodes += 1
        if self.nodes > _MAX_NODES:
            raise self.fail(f"the expression has more than {_MAX_NODES} parts")
        return node

    def whole(self) -> Node:
        node = self.binary(0)
        if self.kind != "end":
            raise self.fail(f"expected an operator and found {self.found()}")
        return node

    def binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self.unary()
        node = self.binary(level + 1)
        while self.kind == "operator" and self.word in _LEVELS[level]:
            at = self.at
            operator = self.take()
            node = self.made(Binary(operator, node, self.binary(level + 1), at))
        return node

    def unary(self) -> Node:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.fail(f"the expression is nested more than {_MAX_DEPTH} deep")
        at = self.at
        if self.kind == "operator" and self.word in ("-", "+", "~"):
            node = self.made(Unary(self.take(), self.unary(), at))
        else:
            node = self.made(self.primary())
        self.depth -= 1
        return node

    def primary(self) -> Node:
        at, kind = self.at, self.kind
        if kind in ("hex", "int"):
            if len(self.word) > _MAX_DIGITS:
                raise self.fail(f"the number has more than {_MAX_DIGITS} digits")
            return Number(int(self.take(), 16 if kind == "hex" else 10), at)
        if kind == "float":
            return Number(float(self.take()), at)
        if kind == "file":
            return File(self.take()[1:].strip('"'), at)
        if kind == "word":
            return self.named(at)
        if self.word == "(":
            self.take()
            node = self.binary(0)
            self.expect(")")
            return node
        raise self.fail(f"expected a value and found {self.found()}")

    def named(self, at: int) -> Node:
        name = self.take().removeprefix("np.")
        if name in WORDS:
            return Word(name, at)
        if name not in FUNCTIONS:
            known = ", ".join([*WORDS, *(f"{f}()" for f in FUNCTIONS), "@FILE.npy"])
            raise self.fail(f"unknown word '{name}'; known: {known}", at)
        self.expect("(")
        arguments = [self.binary(0)]
        while self.word == "," and self.kind != "end":
            self.take()
            arguments.append(self.binary(0))
        self.expect(")")
        if len(arguments) != FUNCTIONS[name]:
            raise self.fail(
                f"{name}() takes {FUNCTIONS[name]} arguments, {len(arguments)} given", at
            )
        return Call(name, tuple(arguments), at)


def _tokens(text: str) -> list[tuple[str, str, int]]:
    out: list[tuple[str, str, int]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise UsageError(
                f"unexpected character {text[position]!r} (column {position + 1} of '{text}')"
            )
        kind = match.lastgroup or ""
        if kind != "space":
            out.append((kind, match.group(), position))
        position = match.end()
    return [*out, ("end", "", len(text))]

"""What is said about a syntax error, in PTX words instead of those of the parser generator."""

from __future__ import annotations

import re
from collections.abc import Iterable

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from ..diagnostics import Diagnostic, Span, did_you_mean
from ._rules import FUNCTION_DIRECTIVES, Problem
from .builder import Misplaced, TooDeep

__all__ = ["CODES", "diagnostic_of", "problem_diagnostic"]

CODES: dict[str, str] = {
    "PTX001": "unexpected word or symbol",
    "PTX002": "character or number that PTX does not know",
    "PTX003": "unexpected end of the text",
    "PTX004": "nested too deeply",
    "PTX005": "unterminated comment or string",
    "PTX006": "construct that is illegal where it stands",
}

_DIRECTIVES = [
    ".version",
    ".target",
    ".address_size",
    ".file",
    ".loc",
    ".pragma",
    ".section",
    ".alias",
    ".extern",
    ".visible",
    ".weak",
    ".common",
    ".entry",
    ".func",
    ".reg",
    ".sreg",
    ".const",
    ".global",
    ".local",
    ".param",
    ".shared",
    ".tex",
    ".align",
    ".attribute",
    ".branchtargets",
    ".calltargets",
    ".callprototype",
    ".ptr",
    ".v2",
    ".v4",
] + [f".{name}" for name in FUNCTION_DIRECTIVES]

_WORDS = {
    "NAME": "a name", "DOTNAME": "an instruction", "DOTTED": "a type or modifier",
    "INT": "an integer", "FLOAT": "a number", "HEXFLOAT": "a number", "STRING": "a string",
    "SPACE": "a state space", "LINKAGE": "a linkage directive", "FUNCTION": "'.entry' or '.func'",
    "VECTOR": "'.v2' or '.v4'", "$END": "the end of the text", "EQUALITY": "'=='",
    "RELATION": "'<='", "SHIFT": "'<<'",
}  # fmt: skip

_OPERATORS = frozenset(
    [
        "OROR",
        "ANDAND",
        "PIPE",
        "CARET",
        "AMPERSAND",
        "EQUALITY",
        "RELATION",
        "LESS",
        "GREATER",
        "SHIFT",
        "PLUS",
        "MINUS",
        "STAR",
        "SLASH",
        "PERCENT",
        "QMARK",
    ]
)
_VALUE_STARTS = frozenset(["NAME", "INT", "FLOAT", "HEXFLOAT", "LPAR"])
_VALUE_WORDS = _VALUE_STARTS | frozenset(["DOTNAME", "PLUS", "MINUS", "TILDE", "BANG"])
_MODULE_STARTS = frozenset(["VERSION", "TARGET", "ADDRESS_SIZE", "FUNCTION"])
_MODULE_WORDS = _MODULE_STARTS | frozenset(
    ["FILE", "LOC", "PRAGMA", "SECTION", "ALIAS", "LINKAGE", "SPACE", "NAME", "$END"]
)
_STATEMENT_STARTS = frozenset(["NAME", "DOTNAME", "AT", "LBRACE", "SPACE", "LOC"])
_STATEMENT_WORDS = _STATEMENT_STARTS | frozenset(["FILE", "PRAGMA", "LINKAGE"])
#: Set of starts -> the words it stands for and what it is called.
_FAMILIES = (
    (_STATEMENT_STARTS, _STATEMENT_WORDS, "a statement"),
    (_MODULE_STARTS, _MODULE_WORDS, "a directive of the module"),
)


def problem_diagnostic(problem: Problem) -> Diagnostic:
    """A broken rule as a message."""
    return Diagnostic("PTX006", problem.message, problem.span, help=problem.help)


def diagnostic_of(
    error: UnexpectedInput | TooDeep | Misplaced, lark: Lark, text: str
) -> Diagnostic:
    """The message for what stopped the parser."""
    if isinstance(error, TooDeep):
        return Diagnostic("PTX004", "the text is nested too deeply here", error.span)
    if isinstance(error, Misplaced):
        return Diagnostic("PTX006", error.message, error.span)
    if isinstance(error, UnexpectedCharacters):
        return _character(error, text)
    if isinstance(error, UnexpectedToken) and error.token.type != "$END":
        return _token(error, lark, text)
    lines = text.rstrip().split("\n")
    column = len(lines[-1]) + 1
    expected = error.accepts if isinstance(error, UnexpectedToken) else None
    return Diagnostic(
        "PTX003",
        f"the text ends too early; {_expected(expected or (), lark)}",
        Span(len(lines), column, len(lines), column + 1),
    )


def _character(error: UnexpectedCharacters, text: str) -> Diagnostic:
    position = error.pos_in_stream or 0
    at = Span(error.line, error.column, error.line, error.column + 1)
    if text.startswith('"', position):
        return Diagnostic("PTX005", "this string is not closed on its line", at)
    character = text[position]
    number = re.match(r"\d[\w.$]{0,60}", text[position : position + 64])
    if number:
        return Diagnostic(
            "PTX002",
            f"'{number.group()}' is not a number of PTX",
            Span(at.line, at.column, at.line, at.column + len(number.group())),
            help="numbers are decimal, 0x hexadecimal, 0b binary, 0 octal, with suffix U; "
            "floats such as 1.0, 1e3, 0f3F800000",
        )
    helps = {
        "'": "PTX has no character literals; write the code as a number",
        "#": "lines of the preprocessor begin with '#' in column 1",
        ".": "no space may follow the dot",
    }
    message = f"the character {character!r} cannot stand here"
    return Diagnostic("PTX002", message, at, help=helps.get(character))


def _token(error: UnexpectedToken, lark: Lark, text: str) -> Diagnostic:
    token = error.token
    span = Span(token.line or 1, token.column or 1, token.end_line or 1, token.end_column or 2)
    position = token.start_pos or 0
    if text.startswith("/*", position) or (token == "*" and text[position - 1 : position] == "/"):
        back = 0 if token.value != "*" else 1
        opening = Span(span.line, span.column - back, span.line, span.column - back + 2)
        return Diagnostic("PTX005", "this comment is not closed by '*/'", opening)
    expected = set(error.accepts or error.expected)
    previous = error.token_history[-1] if error.token_history else None
    after = f" after '{_short(previous)}'" if isinstance(previous, Token) and previous else ""
    return Diagnostic(
        "PTX001",
        f"unexpected '{_short(token)}'{after}; {_expected(expected, lark)}",
        span,
        help=_help(token, expected, text, lark),
    )


def _short(word: str) -> str:
    return word if len(word) <= 40 else word[:37] + "..."


def _help(token: Token, expected: set[str], text: str, lark: Lark) -> str | None:
    if token.type == "DOTTED" and len(token) < 40:
        known = [d for d in _DIRECTIVES if _fits(d, expected, lark)]
        return did_you_mean(token.value, known) or did_you_mean(token.value, _DIRECTIVES)
    position = token.start_pos or 0
    line_start = text.rfind("\n", 0, position) + 1
    if "SEMICOLON" in expected and line_start and not text[line_start:position].strip():
        return "is a ';' missing at the end of the statement before?"
    return None


def _fits(word: str, expected: set[str], lark: Lark) -> bool:
    for name in expected - {"$END", "DOTTED"}:
        if re.fullmatch(lark.get_terminal(name).pattern.to_regexp(), word):
            return True
    return "DOTTED" in expected and word[1:] in FUNCTION_DIRECTIVES and "LBRACE" in expected


def _expected(names: Iterable[str], lark: Lark) -> str:
    """What could stand at a place, in PTX words."""
    left = set(names)
    words: set[str] = set()
    for starts, members, word in _FAMILIES:
        if starts <= left:
            left -= members
            words.add(word)
    if len(_OPERATORS & left) > 8:
        left -= _OPERATORS
    if left >= _VALUE_STARTS:
        words.add("an operand" if "LSQB" in left else "a constant expression")
        left -= _VALUE_WORDS | ({"LBRACE", "LSQB"} if "LSQB" in left else set())
    for name in left:
        words.add(_WORDS.get(name) or f"'{lark.get_terminal(name).pattern.value}'")
    ordered = sorted(words, key=lambda word: (word.startswith("'."), word))
    if not ordered:
        return "nothing may follow here"
    if len(ordered) > 7:
        ordered = [*ordered[:6], "..."]
    if len(ordered) == 1:
        return f"expected {ordered[0]}"
    return f"expected {', '.join(ordered[:-1])} or {ordered[-1]}"

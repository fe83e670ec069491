"""Text to syntax tree, with every syntax error of the text.

After an error the statement that holds it is blanked out and the text is parsed again, so that
several errors are found in one go; their number, and the work spent on them, are bounded.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedToken

from ..diagnostics import Diagnostic, Source, Span, did_you_mean
from ..errors import PtxError
from . import ast
from .builder import Builder, Misplaced, TooDeep
from .grammar import grammar_text

__all__ = ["CODES", "parse", "parse_statement"]

CODES = {
    "PTX001": "unexpected word or symbol",
    "PTX002": "character that PTX does not know",
    "PTX003": "unexpected end of the text",
    "PTX004": "nested too deeply",
    "PTX005": "unterminated comment or string",
    "PTX006": "construct that is illegal where it stands",
}

_MAX_ERRORS = 20
#: Bytes parsed again after errors, all together.
_RETRY_BYTES = 2_000_000

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
    ".const",
    ".global",
    ".local",
    ".param",
    ".shared",
    ".align",
    ".attribute",
    ".branchtargets",
    ".calltargets",
    ".callprototype",
    ".maxntid",
    ".reqntid",
    ".maxnreg",
    ".minnctapersm",
    ".reqnctapercluster",
    ".explicitcluster",
    ".maxclusterrank",
    ".blocksareclusters",
    ".noreturn",
    ".ptr",
]

_WORDS = {
    "NAME": "a name", "DOTNAME": "an instruction", "DOTTED": "a type or modifier", "INT": "an integer",
    "FLOAT": "a number", "HEXFLOAT": "a number", "STRING": "a string", "SPACE": "a state space",
    "LINKAGE": "a linkage directive", "FUNCTION": "'.entry' or '.func'", "VECTOR": "'.v2' or '.v4'",
    "COMMA": "','", "SEMICOLON": "';'", "COLON": "':'", "LPAR": "'('", "RPAR": "')'", "LBRACE": "'{'",
    "RBRACE": "'}'", "LSQB": "'['", "RSQB": "']'", "EQUAL": "'='", "AT": "'@'", "LESSTHAN": "'<'",
    "LESS": "'<'", "GREATER": "'>'", "MORETHAN": "'>'", "$END": "the end of the text",
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
_OPERAND_STARTS = frozenset(["NAME", "DOTNAME", "INT", "FLOAT", "HEXFLOAT", "LPAR"])


@lru_cache(maxsize=2)
def _parser(start: str) -> tuple[Lark, Builder]:
    builder = Builder()
    lark = Lark(
        grammar_text(), parser="lalr", lexer="basic", start=start, transformer=builder,
        maybe_placeholders=True,
    )  # fmt: skip
    return lark, builder


def parse(text: str, name: str = "<string>") -> ast.Module:
    """The syntax tree of a module; :class:`ptxsim.PtxError` with every syntax error found."""
    node = _parse(text, name, "start")
    assert isinstance(node, ast.Module)
    return node


def parse_statement(text: str) -> ast.Instruction:
    """The syntax node of a single instruction such as ``add.s32 %r1, %r2, 1;``."""
    node = _parse(text, "<statement>", "instruction")
    assert isinstance(node, ast.Instruction)
    return node


def _parse(text: str, name: str, start: str) -> Any:
    lark, builder = _parser(start)
    diagnostics: list[Diagnostic] = []
    rest = text
    budget = _RETRY_BYTES
    while True:
        builder.reset()
        try:
            node = lark.parse(rest)
        except (UnexpectedCharacters, UnexpectedToken, UnexpectedEOF, TooDeep, Misplaced) as error:
            diagnostic = _diagnostic(error, lark, rest)
            diagnostics.append(diagnostic)
            budget -= len(rest)
            shorter = _without_statement(rest, diagnostic.span)
            if shorter is None or len(diagnostics) >= _MAX_ERRORS or budget < 0:
                break
            rest = shorter
        else:
            if not diagnostics:
                return node
            break
        finally:
            builder.reset()
    raise PtxError(diagnostics, Source(name, text))


# --- messages ---------------------------------------------------------------------------------------


def _diagnostic(error: Exception, lark: Lark, text: str) -> Diagnostic:
    if isinstance(error, TooDeep):
        return Diagnostic("PTX004", "the text is nested too deeply here", error.span)
    if isinstance(error, Misplaced):
        return Diagnostic("PTX006", error.message, error.span)
    if isinstance(error, UnexpectedToken) and error.token.type != "$END":
        return _unexpected_token(error, lark)
    if isinstance(error, UnexpectedCharacters):
        return _unexpected_character(error, text)
    lines = text.rstrip().split("\n")
    at = Span(len(lines), len(lines[-1]) + 1, len(lines), len(lines[-1]) + 2)
    accepts = getattr(error, "accepts", None) or getattr(error, "expected", None) or ()
    return Diagnostic("PTX003", f"the text ends too early; {_expected(accepts, lark)}", at)


def _unexpected_character(error: UnexpectedCharacters, text: str) -> Diagnostic:
    at = Span(error.line, error.column, error.line, error.column + 1)
    position = error.pos_in_stream or 0
    if text.startswith("/*", position):
        return Diagnostic("PTX005", "this comment is not closed by '*/'", at)
    if text.startswith('"', position):
        return Diagnostic("PTX005", "this string is not closed on its line", at)
    character = text[position : position + 1]
    following = re.match(r"[\w.]+", text[position : position + 40])
    shown = following.group() if following and character.isdigit() else character
    if character.isdigit():
        return Diagnostic(
            "PTX002",
            f"'{shown}' is not a number of PTX",
            at,
            help="numbers are decimal, 0x hexadecimal, 0b binary, 0 octal, with suffix U; "
            "floats such as 1.0, 1e3, 0f3F800000",
        )
    return Diagnostic("PTX002", f"the character {character!r} is not known to PTX", at)


def _unexpected_token(error: UnexpectedToken, lark: Lark) -> Diagnostic:
    token = error.token
    span = Span(token.line or 1, token.column or 1, token.end_line or 1, token.end_column or 2)
    expected = set(error.accepts or error.expected)
    hint = None
    if token.type in ("DOTTED", "DOTNAME"):
        known = [d for d in _DIRECTIVES if _terminal_matches(d, expected, lark)] or _DIRECTIVES
        hint = did_you_mean(token.value, known)
    previous = getattr(error, "token_history", None)
    after = f" after '{previous[-1]}'" if previous and isinstance(previous[-1], Token) else ""
    return Diagnostic(
        "PTX001", f"unexpected '{token}'{after}; {_expected(expected, lark)}", span, help=hint
    )


def _terminal_matches(word: str, expected: set[str], lark: Lark) -> bool:
    for name in expected:
        if name == "$END":
            continue
        try:
            pattern = lark.get_terminal(name).pattern.to_regexp()
        except KeyError:
            continue
        if re.fullmatch(pattern, word):
            return True
    return False


def _expected(names: Any, lark: Lark) -> str:
    """What could stand here, in PTX words."""
    left = set(names)
    words: list[str] = []
    if len(_OPERATORS & left) > 8:
        left -= _OPERATORS
    if left >= _OPERAND_STARTS:
        left -= _OPERAND_STARTS | {"PLUS", "MINUS", "TILDE", "BANG", "LBRACE", "LSQB"}
        words.append("an operand")
    for name in sorted(left):
        if name in _WORDS:
            words.append(_WORDS[name])
            continue
        try:
            pattern = lark.get_terminal(name).pattern
        except KeyError:
            continue
        words.append(f"'{pattern.value}'")
    words = sorted(set(words), key=lambda w: (w.startswith("'."), w))
    if not words:
        return "nothing may follow here"
    if len(words) > 7:
        words = [*words[:6], "..."]
    return "expected " + (
        words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]
    )


# --- going on after an error ------------------------------------------------------------------------

_BOUNDARY = re.compile(r"[;{}]|//[^\n]*|/\*.*?\*/", re.S)


def _without_statement(text: str, span: Span) -> str | None:
    """The text with the statement around ``span`` blanked out, or None if nothing is left of it."""
    lines = text.split("\n")
    position = sum(len(line) + 1 for line in lines[: span.line - 1]) + span.column - 1
    if position >= len(text):
        return None
    begin = 0
    for found in _BOUNDARY.finditer(text[max(0, position - 4000) : position]):
        if found.group() in ";{}":
            begin = found.end()
    begin += max(0, position - 4000)
    end = len(text)
    for found in _BOUNDARY.finditer(text, position):
        if found.group() == ";":
            end = found.end()
            break
        if found.group() in "{}":
            end = found.start() if found.start() > position else found.end()
            break
    blank = re.sub(r"[^\n]", " ", text[begin:end])
    if not blank or blank == text[begin:end]:
        return None
    return text[:begin] + blank + text[end:]

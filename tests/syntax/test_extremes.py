"""Texts at the edge: empty, odd characters, line ends, very long lines, the deepest nesting."""

from __future__ import annotations

import pytest
from samples import HEADER

import ptxsim
from ptxsim.errors import PtxError
from ptxsim.resolve.constants import IntValue, evaluate
from ptxsim.syntax import ast, format_text, parse, to_text
from ptxsim.syntax.builder import MAX_DEPTH

KERNEL = HEADER + ".entry k()\n{\n%s\n}\n"
MEGABYTE = 1_000_000


def _places(text: str) -> list[tuple[str, int, int]]:
    with pytest.raises(PtxError) as caught:
        parse(text)
    return [(d.code, d.span.line, d.span.column) for d in caught.value.diagnostics]


@pytest.mark.parametrize("text", ["", "\n\n", " \t", "// only a comment", "/* */"])
def test_text_without_a_token(text: str) -> None:
    tree = parse(text)
    assert tree == ast.Module(())
    assert to_text(tree) == ""


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("\0", (1, 1)),
        ("\ufeff" + HEADER, (1, 1)),  # a byte-order mark
        (HEADER + "\0", (4, 1)),
        (KERNEL % "ret\0;", (6, 4)),
        (KERNEL % "mov.b32 a, \u00e9;", (6, 12)),
        (KERNEL % "ret;\u2028", (6, 5)),  # no line end for PTX, so the line number stays
        (KERNEL % "ret;\x0b", (6, 5)),
    ],
)
def test_characters_outside_of_ptx(text: str, place: tuple[int, int]) -> None:
    assert _places(text) == [("PTX002", *place)]


def test_lines_may_end_in_carriage_return_and_newline() -> None:
    text = KERNEL % "ret; // note\nexit;"
    other = text.replace("\n", "\r\n")
    assert parse(other) == parse(text)
    assert _places(other.replace("exit", "x y z")) == [("PTX001", 7, 5)]
    assert parse(format_text(other)) == parse(text)


# --- very long lines: one error, found without going over the line again and again ----------------


@pytest.mark.parametrize(
    ("line", "code", "column"),
    [
        # No statement begins with any of these.
        ("(" * MEGABYTE, "PTX001", 1),
        ("[" * MEGABYTE, "PTX001", 1),
        ("-" * MEGABYTE, "PTX001", 1),
        ("." * MEGABYTE, "PTX002", 1),
        ("0" * MEGABYTE, "PTX001", 1),
        # Within "/*/*/" the first "*/" closes; the last pair opens a comment for good.
        ("/* " * (MEGABYTE // 3), "PTX005", 1),
        ('"' + "\\" * MEGABYTE, "PTX005", 1),
    ],
    ids=["(", "[", "-", ".", "0", "comments", "backslashes"],
)
def test_long_line(line: str, code: str, column: int) -> None:
    assert _places(KERNEL % line) == [(code, 6, column)]


def test_slashes_and_stars() -> None:
    """``/*/*/*/...``: each ``/*/*/`` is a whole comment, and what is left decides."""
    assert parse(KERNEL % ("/*/*/" * 100_000)) == parse(KERNEL % "")
    assert _places(KERNEL % ("/*/*/" * 1000 + "/*"))[0] == ("PTX005", 6, 5001)


# --- the deepest nesting that is taken survives every later stage ---------------------------------


def _deepest(form: str) -> tuple[str, int]:
    """The largest text of a nesting form that parses, and how often it nests."""
    low, high = 1, 4 * MAX_DEPTH
    while high - low > 1:
        middle = (low + high) // 2
        try:
            parse(HEADER + _nested(form, middle))
        except PtxError:
            high = middle
        else:
            low = middle
    return HEADER + _nested(form, low), low


def _nested(form: str, times: int) -> str:
    return {
        "parentheses": ".global .b64 x = " + "(" * times + "1" + ")" * times + ";",
        "minus": ".global .b64 x = " + "- " * times + "1;",
        "sum": ".global .b64 x = " + "1+" * times + "1;",
        "conditional": ".global .b64 x = " + "1?1:" * times + "1;",
        "lists": ".global .b64 x = " + "{" * times + "1" + "}" * times + ";",
        "vectors": ".entry k() { mov.b32 a, " + "{" * times + "a" + "}" * times + "; }",
        "addresses": ".entry k() { ld.b32 a, " + "[" * times + "a" + "]" * times + "; }",
        "scopes": ".entry k() { " + "{" * times + "ret;" + "}" * times + " }",
    }[form]


@pytest.mark.parametrize(
    "form",
    ["parentheses", "minus", "sum", "conditional", "lists", "vectors", "addresses", "scopes"],
)
def test_deepest_nesting(form: str) -> None:
    text, times = _deepest(form)
    assert MAX_DEPTH // 4 <= times <= MAX_DEPTH
    tree = parse(text)
    assert parse(to_text(tree)) == tree
    assert parse(format_text(text)) == tree
    assert hash(tree) == hash(parse(text))
    assert repr(tree)
    try:
        ptxsim.assemble(text)
    except PtxError as error:
        assert error.diagnostics  # refused for what it says, not for its depth
    one_more = HEADER + _nested(form, times + 1)
    assert [code for code, _, _ in _places(one_more)][:1] == ["PTX004"]


@pytest.mark.parametrize(("form", "value"), [("minus", None), ("sum", None), ("conditional", 1)])
def test_deepest_expression_has_a_value(form: str, value: int | None) -> None:
    text, times = _deepest(form)
    declaration = parse(text).items[-1]
    assert isinstance(declaration, ast.VariableDeclaration)
    node = declaration.variables[0].initializer
    assert node is not None
    assert not isinstance(node, ast.InitializerList | ast.FieldInitializer)
    expected = {"minus": (-1) ** times, "sum": times + 1, "conditional": 1}[form]
    assert value in (None, expected)
    assert evaluate(node) == IntValue(expected)


# --- numbers that would cost much work are refused or cut off ------------------------------------


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        (
            ".entry k() { .reg .b32 %r<99999999>; ret; }",
            ["'%r<99999999>' declares no sensible number"],
        ),
        (".entry k() { T: .branchtargets L<99999999>; ret; }", ["unknown label 'L0'"]),
        (".global .b8 x[65536][30000] = {{1}, {2}};", ["the initialised variable is too large"]),
        (".global .b32 x[2][3][1000000000];", ["the array is too large"]),
        (
            ".entry k() { .reg .b32 %r<100000>; mov.b32 %q1, %r1; mov.b32 %q2, %r1; ret; }",
            [f"mov.b32: unknown register '%q{n}'" for n in (1, 2)],
        ),
    ],
    ids=["registers", "labels", "bytes", "elements", "suggestions"],
)
def test_costly_numbers(text: str, messages: list[str]) -> None:
    with pytest.raises(PtxError) as caught:
        ptxsim.assemble(HEADER + text + "\n")
    assert [d.message for d in caught.value.diagnostics] == messages

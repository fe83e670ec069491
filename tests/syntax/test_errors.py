"""Syntax errors: code, exact place, words, several in one file, bounded work."""

from __future__ import annotations

import pytest
from samples import HEADER

from ptxsim.diagnostics import Diagnostic
from ptxsim.errors import PtxError
from ptxsim.syntax import parse, parse_statement, to_text
from ptxsim.syntax.parser import CODES

KERNEL = HEADER + ".entry k()\n{\n%s\n}\n"


def _errors(text: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(PtxError) as caught:
        parse(text)
    return caught.value.diagnostics


def _marked(text: str, d: Diagnostic) -> str:
    """The text under the carets."""
    assert d.span.line == d.span.end_line
    return text.split("\n")[d.span.line - 1][d.span.column - 1 : d.span.end_column - 1]


# Each text holds exactly one error; the third entry is what the carets must stand under.
@pytest.mark.parametrize(
    ("body", "code", "marked"),
    [
        ("add.s32 %r1, %r2 %r3;", "PTX001", "%r3"),
        ("add.s32 %r1,%r2,%r3;;", "PTX001", ";"),
        ("@%p1 @%p2 exit;", "PTX001", "@"),
        ("L 10: exit;", "PTX001", ":"),
        ("mov.b32 %r1, 'A';", "PTX002", "'"),
        ("add. s32 %r1,%r2,%r3;", "PTX002", "."),
        ('.pragma "nounroll;', "PTX005", '"'),
    ],
)
def test_one_error_in_a_body(body: str, code: str, marked: str) -> None:
    text = KERNEL % body
    (d,) = _errors(text)
    assert (d.code, d.span.line, _marked(text, d)) == (code, 6, marked)


def test_all_errors_of_a_file() -> None:
    text = KERNEL % "add.s32 a b;\nret;\nmov.b32 c, 09;\n{ ld.b32 d, [; }\nbra L\nadd.s32 a, b, c;"
    text += ".globl .b32 x;\n.global .b32 y = 1 +;\n"
    places = [(d.span.line, d.span.column, d.code) for d in _errors(text)]
    assert places == [
        (6, 11, "PTX001"),
        (8, 12, "PTX002"),
        (9, 14, "PTX001"),
        (11, 1, "PTX001"),
        (13, 1, "PTX001"),
        (14, 21, "PTX001"),
    ]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (".visble .entry k() { ret; }", "'.visible'"),
        (".entri k() { ret; }", "'.entry'"),
        (".globl .b32 x;", "'.global'"),
        (".entry k() { T: .branchtarget A; }", "'.branchtargets'"),
        (".adress_size 64", "'.address_size'"),
    ],
)
def test_did_you_mean(text: str, meant: str) -> None:
    help_ = _errors(".version 8.0\n.target sm_80\n" + text)[0].help
    assert help_ is not None
    assert help_.startswith(f"did you mean {meant}")


@pytest.mark.parametrize("text", [".version", ".entry k() {", ".entry k(", ".global .b32 x ="])
def test_end_of_text(text: str) -> None:
    d = _errors(text)[-1]
    assert d.code == "PTX003"
    assert (d.span.line, d.span.column) == (1, len(text) + 1)


# --- bounds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "mov.b32 a, " + "(" * 1000 + "1" + ")" * 1000 + ";",
        "mov.b32 a, " + "-" * 1000 + "1;",
        "mov.b32 a, " + "1+" * 1000 + "1;",
        "{" * 1000 + "}" * 1000,
        "mov.b32 a, " + "(" * 100_000,
        "{" * 50_000,
    ],
    ids=["parentheses", "unary", "binary", "scopes", "open (", "open {"],
)
def test_nesting_is_bounded(body: str) -> None:
    code = "PTX001" if body.endswith("(") else "PTX003" if body.endswith("{") else "PTX004"
    assert code in {d.code for d in _errors(KERNEL % body)}


def test_deepest_legal_nesting_can_be_printed_and_compared() -> None:
    tree = parse(KERNEL % ("{" * 60 + "mov.b32 a, " + "-(" * 60 + "1" + ")" * 60 + ";" + "}" * 60))
    assert parse(to_text(tree)) == tree


def test_parse_statement_takes_exactly_one() -> None:
    for text in ("add.s32 a, b; ret;", "", "L:", "add.s32 a, b"):
        with pytest.raises(PtxError):
            parse_statement(text)


def test_codes_are_described() -> None:
    assert list(CODES) == [f"PTX{n:03}" for n in range(1, len(CODES) + 1)]
    assert all(CODES.values())

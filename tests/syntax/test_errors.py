"""Syntax errors: code, exact place, words, several in one file, bounded work."""

from __future__ import annotations

import pytest
from samples import HEADER

from ptxsim.diagnostics import Diagnostic, render
from ptxsim.errors import PtxError
from ptxsim.syntax import ast, parse, parse_statement, to_text
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
        ("ld.global.v2.b32 {%r1,,%r2}, [%rd1];", "PTX001", ","),
        ("add.s32 %r1,%r2,%r3;;", "PTX001", ";"),
        ("@%p1 @%p2 exit;", "PTX001", "@"),
        ("@!%p1{ exit; }", "PTX001", "{"),
        ("L 10: exit;", "PTX001", ":"),
        ("mov.b32 %r1, 08;", "PTX002", "08"),
        ("mov.b32 %r1, 12u;", "PTX002", "12u"),
        ("mov.f32 %f1, 1.0f;", "PTX002", "1.0f"),
        ("mov.b32 %r1, 'A';", "PTX002", "'"),
        ("add. s32 %r1,%r2,%r3;", "PTX002", "."),
        ('.pragma "nounroll;', "PTX005", '"'),
        ("mov.f32 %f1, -0f3f800000;", "PTX006", "-0f3f800000"),
        ("ld.global.b32 %r1, [%rd1-4];", "PTX006", "%rd1"),
        ("ld.global.b32 %r1, [%rd1+%r2];", "PTX006", "%r2"),
        ("mov.b64 %rd1, 8+gv;", "PTX006", "gv"),
        ("setp.eq.s32 %p1||%p2, %r1, %r2;", "PTX006", "%p1"),
        ("mov.b32 %r1, (1, 2);", "PTX006", "(1, 2)"),
        ("mov.b32 %r1, " + "7" * 81 + ";", "PTX006", "7" * 81),
        (".reg .b32 _;", "PTX006", "_"),
        (".reg .b32 WARP_SZ;", "PTX006", "WARP_SZ"),
        ("P: .callprototype _ () .nortrn;", "PTX006", ".nortrn"),
        ("P: .callprototype (.param .b32 r) fn (.param .b32 a);", "PTX006", "fn"),
    ],
)
def test_one_error_in_a_body(body: str, code: str, marked: str) -> None:
    text = KERNEL % body
    (d,) = _errors(text)
    assert (d.code, d.span.line, _marked(text, d)) == (code, 6, marked)


@pytest.mark.parametrize(
    ("item", "marked"),
    [
        (".entry q() .minreg 24 {ret;}", ".minreg"),
        (".func f() .maxnreg 32 {ret;}", ".maxnreg"),
        (".entry q() .maxntid {ret;}", ".maxntid"),
        (".entry q() .maxnreg x {ret;}", "x"),
        (".entry (.param .b32 r) q(){ret;}", ".param .b32 r"),
        (".visible .visible .entry q(){ret;}", ".visible .visible .entry q"),
        (".func _(){ret;}", "_"),
        (".global .b32 x[1.5];", "1.5"),
        (".global .align -4 .b32 x;", "-4"),
        (".address_size 64", "64"),
        (".loc 1 2 3", "1 2 3"),
        (".sreg .b32 q;", ".sreg .b32 q"),
    ],
)
def test_one_error_in_a_module(item: str, marked: str) -> None:
    text = HEADER + item
    (d,) = _errors(text)
    assert (d.code, _marked(text, d)) == ("PTX006", marked)


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


def test_an_error_does_not_hide_or_invent_others() -> None:
    """A misspelt linkage costs one message; the body behind it is still read."""
    text = HEADER + ".visble .entry k()\n{\n add.s32 a b;\n ret;\n}\n.entry ok() { ret; }\n"
    assert [(d.span.line, d.span.column) for d in _errors(text)] == [(4, 1), (6, 12)]


def test_words_are_those_of_ptx() -> None:
    """No name of a terminal, no regular expression."""
    for body in ("add.s32 %r1 %r2;", "ld.b32 [;", ".reg b32 x;", "call (a,;", "}", "{", ".x y;"):
        for d in _errors(KERNEL % body):
            assert not any(w in d.message for w in ("__", "RBRACE", "NAME", "[^", "$END"))
    (d,) = _errors(KERNEL % "add.s32 %r1, %r2 %r3;")
    assert d.message == "unexpected '%r3'; expected ',' or ';'"


def test_rendered_with_a_caret() -> None:
    with pytest.raises(PtxError) as caught:
        parse(".version 8.0\n.target sm_80\n.address_size 64\n.globl .b32 x;\n", "k.ptx")
    shown = render(caught.value.diagnostics[0], caught.value.source)
    assert shown.split("\n") == [
        "k.ptx:4:1: error: unexpected '.globl'; expected a directive of the module [PTX001]",
        "    4 | .globl .b32 x;",
        "      | ^~~~~~",
        "  help: did you mean '.global' or '.local' or '.loc'?",
    ]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (".visble .entry k() { ret; }", "'.visible'"),
        (".entri k() { ret; }", "'.entry'"),
        (".globl .b32 x;", "'.global'"),
        (".entry k() .maxnitd 32 { ret; }", "'.maxntid'"),
        (".entry k() { T: .branchtarget A; }", "'.branchtargets'"),
        (".adress_size 64", "'.address_size'"),
    ],
)
def test_did_you_mean(text: str, meant: str) -> None:
    help_ = _errors(".version 8.0\n.target sm_80\n" + text)[0].help
    assert help_ is not None
    assert help_.startswith(f"did you mean {meant}")


def test_missing_semicolon_is_suspected() -> None:
    (d,) = _errors(KERNEL % "bra L\nadd.s32 %r1, %r2, %r3;")
    assert d.help == "is a ';' missing at the end of the statement before?"


@pytest.mark.parametrize("text", ["/* abc", ".entry k() { ret; } /*", "mov.b32 a, 5 /* x;\n\n"])
def test_unterminated_comment(text: str) -> None:
    last = _errors(HEADER + text)[-1] if not text.startswith("mov") else _errors(KERNEL % text)[-1]
    assert last.code == "PTX005"
    assert "comment" in last.message


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
        "mov.b32 a, " + "g[" * 1000 + "1" + "]" * 1000 + ";",
        "{" * 1000 + "}" * 1000,
        "mov.b32 a, " + "(" * 100_000,
        "{" * 50_000,
    ],
    ids=["parentheses", "unary", "binary", "subscripts", "scopes", "open (", "open {"],
)
def test_nesting_is_bounded(body: str) -> None:
    code = "PTX001" if body.endswith("(") else "PTX003" if body.endswith("{") else "PTX004"
    assert code in {d.code for d in _errors(KERNEL % body)}


def test_deepest_legal_nesting_can_be_printed_and_compared() -> None:
    tree = parse(KERNEL % ("{" * 60 + "mov.b32 a, " + "-(" * 60 + "1" + ")" * 60 + ";" + "}" * 60))
    assert parse(to_text(tree)) == tree


def test_depth_does_not_add_up_over_a_file() -> None:
    """Nodes that are dropped on the way must not leave their depth behind."""
    tree = parse(KERNEL % ("call (x), f, (((7+1)+2));\n" * 3000))
    function = tree.items[-1]
    assert isinstance(function, ast.Function)
    assert function.body is not None
    assert len(function.body) == 3000


@pytest.mark.parametrize(
    "text",
    [
        ".entry k() { .loc 0x1 2 3\n ret; }",
        ".entry k() { .loc 1U 2 3\n ret; }",
        '.file 0x1 "a"',
        ".entry k() { T: .branchtargets A<017>; ret; }",
    ],
)
def test_any_integer_spelling_in_directives(text: str) -> None:
    tree = parse(text)
    assert parse(to_text(tree)) == tree


def test_overlong_numbers_are_refused_everywhere() -> None:
    digits = "9" * 5000
    for text in (
        f".version {digits}.0",
        f'.file {digits} "a"',
        f".global .b64 x = {digits};",
        f".global .f64 x = {digits}.0;",
        f".global .b32 x<{digits}>;",
    ):
        (d,) = _errors(text)
        assert d.code == "PTX006"


def test_parse_statement_takes_exactly_one() -> None:
    for text in ("add.s32 a, b; ret;", "", "L:", "add.s32 a, b"):
        with pytest.raises(PtxError):
            parse_statement(text)


def test_codes_are_described() -> None:
    assert list(CODES) == [f"PTX{n:03}" for n in range(1, len(CODES) + 1)]
    assert all(CODES.values())

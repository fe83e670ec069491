"""Text to tree to text: nothing gets lost, and the printed form is a fixed point."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import FILES, HEADER

from ptxsim.syntax import ast, parse, parse_statement, to_text
from ptxsim.syntax.printer import statement_text


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_file(path: Path) -> None:
    tree = parse(path.read_text(), path.name)
    text = to_text(tree)
    again = parse(text)
    assert again == tree
    assert to_text(again) == text


def test_trees_that_differ_are_unequal() -> None:
    """The comparison above can fail: one digit, one modifier, one operand order."""
    text = HEADER + ".entry k() { .reg .b32 %r<4>; add.s32 %r1, %r2, 16; ret; }"
    for old, new in (("16", "17"), ("add.s32", "add.u32"), ("%r1, %r2", "%r2, %r1")):
        assert parse(text.replace(old, new)) != parse(text)


# --- generated expressions ------------------------------------------------------------------------

_LEAVES = st.one_of(
    st.integers(0, 2**64 - 1).map(lambda n: ast.IntLiteral(n, False, str(n))),
    st.integers(0, 2**64 - 1).map(lambda n: ast.IntLiteral(n, True, f"{n:#x}U")),
    st.just(ast.Name("WARP_SZ")),
)
_BINARY = [
    "*",
    "/",
    "%",
    "+",
    "-",
    "<<",
    ">>",
    "<",
    "<=",
    ">",
    ">=",
    "==",
    "!=",
    "&",
    "^",
    "|",
    "&&",
    "||",
]


def _larger(parts: st.SearchStrategy[ast.Expression]) -> st.SearchStrategy[ast.Expression]:
    return st.one_of(
        st.builds(ast.Unary, st.sampled_from("+-~!"), parts),
        st.builds(ast.Binary, st.sampled_from(_BINARY), parts, parts),
        st.builds(ast.Conditional, parts, parts, parts),
        st.builds(ast.Cast, st.sampled_from(("s64", "u64")), parts),
    )


_EXPRESSIONS = st.recursive(_LEAVES, _larger, max_leaves=12)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(_EXPRESSIONS)
def test_generated_initialisers(value: ast.Expression) -> None:
    """Precedence and parentheses: every tree of constant operators survives printing."""
    variable = ast.Variable("x", None, (), value)
    module = ast.Module((ast.VariableDeclaration("global", "b64", (variable,)),))
    assert parse(to_text(module)) == module


# Worked by hand from the precedence of C, which PTX takes over ("Constant Expressions").
@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("1+2*3", "1+(2*3)"),
        ("1-2-3", "(1-2)-3"),
        ("1<<2+3", "1<<(2+3)"),
        ("1|2^3&4", "1|(2^(3&4))"),
        ("1==2<3", "1==(2<3)"),
        ("1&&2||3", "(1&&2)||3"),
        ("1?2:3?4:5", "1?2:(3?4:5)"),
        ("-1*~2", "(-1)*(~2)"),
        ("(.s64)1+2", "((.s64)1)+2"),
    ],
)
def test_precedence(text: str, same: str) -> None:
    def tree(t: str) -> ast.Module:
        return parse(f".global .b64 x = {t};")

    assert tree(text) == tree(same)
    assert tree(text) != tree("0")


# --- statements -----------------------------------------------------------------------------------


def test_a_statement_in_detail() -> None:
    node = parse_statement("@!%p1 ld.global.L2::128B.v2.b32 {%r1, _}, [%rd1+-8];")
    assert node == ast.Instruction(
        ("ld", "global", "L2::128B", "v2", "b32"),
        (
            ast.Vector((ast.Name("%r1"), ast.Name("_"))),
            ast.Address(
                (
                    ast.Binary(
                        "+",
                        ast.Name("%rd1"),
                        ast.Unary("-", ast.IntLiteral(8, False)),
                    ),
                )
            ),
        ),
        ast.Guard("%p1", True),
    )
    assert node.mnemonic == "ld"


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("add .s32 %r1,%r2,%r3;", "add.s32 %r1, %r2, %r3;"),
        ("setp.eq.s32 %p1|%p2,%r1,%r2;", "setp.eq.s32 %p1|%p2, %r1, %r2;"),
        ("call (%r1),f,(%r2,%r3),P;", "call (%r1), f, (%r2, %r3), P;"),
        ("tex.2d.v4.s32.f32 {a,b,c,d},[t,{x,y}];", "tex.2d.v4.s32.f32 {a, b, c, d}, [t, {x, y}];"),
        ("mov.u32 %r1,%tid.x;", "mov.u32 %r1, %tid.x;"),
        ("add.s32%r1,%r2,%r3;", "add.s32 %r1, %r2, %r3;"),
        ("ld.shared.b32 %r1,sv[%r2+4];", "ld.shared.b32 %r1, sv[%r2+4];"),
        ("mov.b32 mov,add;", "mov.b32 mov, add;"),
        ("ret;", "ret;"),
    ],
)
def test_layout_of_a_statement(text: str, printed: str) -> None:
    assert statement_text(parse_statement(text)) == printed


# Bits from IEEE 754: 1.5 is 3FF8000000000000 in binary64; 0f and 0d literals are bits themselves.
@pytest.mark.parametrize(
    ("literal", "kind", "bits"),
    [
        ("1.5", "decimal", 0x3FF8000000000000),
        (".5", "decimal", 0x3FE0000000000000),
        ("5.", "decimal", 0x4014000000000000),
        ("1e3", "decimal", 0x408F400000000000),
        ("0F3F800000", "0f", 0x3F800000),
        ("0d3ff0000000000000", "0d", 0x3FF0000000000000),
    ],
)
def test_floats(literal: str, kind: str, bits: int) -> None:
    operand = parse_statement(f"mov.f64 %fd1, {literal};").operands[1]
    assert operand == ast.FloatLiteral(bits, kind)


@pytest.mark.parametrize(
    ("literal", "value", "unsigned"),
    [
        ("0x1F", 31, False),
        ("0b101U", 5, True),
        ("0777U", 511, True),
        ("0", 0, False),
        ("1U", 1, True),
    ],
)
def test_integers(literal: str, value: int, unsigned: bool) -> None:
    operand = parse_statement(f"mov.b32 %r1, {literal};").operands[1]
    assert operand == ast.IntLiteral(value, unsigned)

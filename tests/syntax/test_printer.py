"""Nodes that were made, not parsed, print as text that means them."""

from __future__ import annotations

import pytest

from ptxsim.syntax import ast, parse, to_text
from ptxsim.syntax.printer import expression_text


# 0x3FF8000000000000 is 1.5 in binary64 and 0x3F800000 is 1.0 in binary32 (IEEE 754).
@pytest.mark.parametrize(
    ("node", "text"),
    [
        (ast.IntLiteral(5, False), "5"),
        (ast.IntLiteral(5, True), "5U"),
        (ast.FloatLiteral(0x3F800000, "0f"), "0f3F800000"),
        (ast.FloatLiteral(0x3FF0000000000000, "0d"), "0d3FF0000000000000"),
        (ast.FloatLiteral(0x3FF8000000000000, "decimal"), "1.5"),
        (ast.FloatLiteral(0x7FF0000000000000, "decimal"), "0d7FF0000000000000"),
        (ast.Unary("-", ast.FloatLiteral(0x3F800000, "0f")), "-(0f3F800000)"),
        (ast.Unary("-", ast.Unary("-", ast.IntLiteral(1, False))), "- -1"),
        (ast.Binary("+", ast.Name("gv"), ast.IntLiteral(8, False)), "gv+8"),
    ],
)
def test_made_expressions(node: ast.Expression, text: str) -> None:
    assert expression_text(node) == text


@pytest.mark.parametrize(
    "text",
    [
        ".global .texref t = {width = 5};",
        ".func f(.param .b32 x<4>);",
        ".func .attribute(.unified(1, 2)) f()\n{\n\tret;\n}",
        ".visible .entry k(\n\t.param .u64 .ptr .global .align 16 p\n)\n"
        ".maxntid 16, 16\n{\n\tret;\n}",
    ],
)
def test_printed_as_written(text: str) -> None:
    printed = to_text(parse(text))
    assert parse(printed) == parse(text)
    assert "".join(printed.split()) == "".join(text.split())

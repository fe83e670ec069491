"""The text form of the kernel IR: it reads what it prints, and says where a text is wrong."""

from __future__ import annotations

import random

import pytest

from lowering.coopmat import TextError, parse, to_text
from lowering.coopmat.ir import (
    BINARY,
    Binary,
    Block,
    Cast,
    Const,
    Element,
    Expression,
    For,
    FragmentDecl,
    If,
    Intrinsic,
    Kernel,
    Length,
    Let,
    Unary,
    Var,
)
from lowering.coopmat.text import expression_text

EXAMPLE = """\
kernel gemm(a: float16[], b: float16[], c: float32[], n: int32) block(32, 1, 1) {
  shared tile: float16[256];
  shared dynamic: float32[];
  local mine: float32[8];
  constant table: int32[] = {1, -2, 3};
  fragment x: a 16x16x16 f16 subgroup;
  fragment sum: accumulator 16x16x16 f32 subgroup;
  let base: int32 = block_idx_x * 256 - (n - 3) / 2;
  let mut go: bool = true && !(n < 4) || n & 3 == 2;
  for i = 0 to n / 16 - 1 {
    load x (a 16x16x16 f16 subgroup) from a[base + i * 16] stride n row;
    sum = muladd x, y, sum (16x16x16 f16*f16+f32->f32 subgroup);
    if i == 3 {
      tile[i] = float32(i) * 2.5f32;
    } else {
      barrier;
    }
  }
  while go {
    go = false;
  }
  barrier warp;
  store sum (accumulator 16x16x16 f32 subgroup) to c[base] stride n col;
  return;
}
"""


def test_prints_what_it_read() -> None:
    assert to_text(parse(EXAMPLE)) == EXAMPLE


def test_scope_may_be_left_out_and_comments_are_skipped() -> None:
    short = EXAMPLE.replace(" subgroup", "").replace("{\n", "{  # a comment\n")
    assert parse(short) == parse(EXAMPLE)


def _expression(rng: random.Random, depth: int) -> Expression:
    kind = rng.randrange(9) if depth else rng.randrange(4)
    match kind:
        case 0:
            return Const(rng.randrange(100))
        case 1:
            return Var(rng.choice("xyz"))
        case 2:
            return Const(rng.randrange(1000) / 8, rng.choice(["float32", "float64"]))
        case 3:
            return rng.choice([Intrinsic("thread_idx_x"), Length("a"), Const(7, "int64")])
        case 4:
            return Unary(rng.choice(["neg", "not", "bitnot"]), _expression(rng, depth - 1))
        case 5:
            return Cast("int64", _expression(rng, depth - 1))
        case 6:
            return Element("a", _expression(rng, depth - 1))
    return Binary(rng.choice(BINARY), _expression(rng, depth - 1), _expression(rng, depth - 1))


def test_random_expressions_read_back() -> None:
    rng = random.Random(5)
    for _ in range(300):
        e = _expression(rng, 5)
        kernel = Kernel("k", (), Block((Let("x", "int32", e), If(e, Block(), None))))
        assert parse(to_text(kernel)) == kernel, expression_text(e)


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        ("float16[256]", "float17[256]", (2, 16), "no element type 'float17'"),
        ("a 16x16x16 f16 subgroup;", "a 16x16x16 f17;", (6, 26), "no component 'f17'"),
        ("stride n row", "stride n diagonal", (11, 69), "no layout 'diagonal'"),
        ("return;", "return", (25, 1), "'}' is not expected here"),
        ("n: int32)", "n: int32", (1, 64), "'block(32,' is not expected here"),
    ],
)
def test_errors_have_their_place(old: str, new: str, place: tuple[int, int], message: str) -> None:
    with pytest.raises(TextError) as error:
        parse(EXAMPLE.replace(old, new))
    assert message in str(error.value)
    assert (error.value.line, error.value.column) == place


def test_depth_and_length_are_bounded() -> None:
    deep = "kernel k() { let x: int32 = " + "(" * 5000 + "1" + ")" * 5000 + "; }"
    with pytest.raises(TextError, match="nested deeper than 100"):
        parse(deep)
    with pytest.raises(TextError, match="at most"):
        parse(" " * (1 << 21))


def test_statements_know_their_lines() -> None:
    body = parse(EXAMPLE).body.statements
    assert [s.line for s in body] == [6, 7, 8, 9, 10, 19, 22, 23, 24]
    loop = body[4]
    assert isinstance(loop, For)
    assert [s.line for s in loop.body.statements] == [11, 12, 13]


def test_alignment_of_a_buffer_and_modifiers_of_a_config() -> None:
    text = """\
kernel k(a: bit[] align 32, n: int32) {
  d = muladd a, b, c (8x8x128 b1*b1+s32->s32 xor subgroup);
  d = muladd a, b, c (8x8x4 f64*f64+f64->f64 rz subgroup);
  d = muladd a, b, c (8x8x32 s4*s4+s32->s32 saturating subgroup);
}
"""
    kernel = parse(text)
    assert to_text(kernel) == text
    assert kernel.params[0].align == 32
    with pytest.raises(TextError, match="line 1, column 25: align 24: a power of two"):
        parse("kernel k(a: bit[] align 24) {}")
    with pytest.raises(TextError, match="'n' is no buffer and has no alignment"):
        parse("kernel k(n: int32 align 4) {}")


def test_a_minus_needs_no_spaces_and_every_scope_can_be_written() -> None:
    text = "kernel k(n: int32) { let m: int32 = n-1; fragment x: a 16x16x16 f16 queue-family; }"
    let, fragment = parse(text).body.statements
    assert let == Let("m", "int32", Binary("sub", Var("n"), Const(1)))
    assert isinstance(fragment, FragmentDecl) and fragment.fragment.scope == "queue-family"

"""The builder of kernels: it makes the IR that a text gives, and refuses what cannot be meant."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lowering.coopmat.builder import BuildError, KernelBuilder
from lowering.coopmat.ir import BINARY, INTRINSICS, Binary, Const, Intrinsic, Let, Unary
from lowering.coopmat.text import parse, to_text
from lowering.coopmat.vocabulary import Config, Shape
from lowering.coopmat.walk import expressions, statements, subexpressions

TEXT = """\
kernel all(a: float16[] align 32, out: float32[], i8: uint8[], w: int64[], n: int32, x: float64)
    block(32, 2, 1) {
  shared tile: float32[256];
  shared rest: int32[];
  local own: float64[4];
  constant table: float32[] = {1, -2.5};
  fragment p: a 16x16x16 f16;
  fragment q: b 16x16x16 f16;
  fragment sum: accumulator 16x16x16 f32;
  let mut go: bool = true;
  let big: int64 = 1i64 + w[0] * 3i64;
  let mut v: int32 = -7 / 2 - thread_idx_x % n;
  for i = 0 to n / 16 - 1 {
    load p (a 16x16x16 f16) from a[i * 16] stride n row;
    load q (b 16x16x16 f16) from a[16 * i] stride 16 col;
    sum = muladd p, q, sum (16x16x16 f16*f16+f32->f32);
  }
  for j = 0 to int32(big) {
    w[j] = ~int64(j) << 2i64 >> 1i64;
    own[j] = float64(table[1]);
  }
  if v < 3 && (n >= 1 || !go) {
    out[v] = float32(v) * 2.5f32 / out[0] + 1.0f32;
  } else {
    if x > 0.5f64 {
      return;
    }
    rest[0] = (v & 1 | v ^ 2) + length(i8) + 5;
  }
  while go {
    go = v != 4 || v <= 5;
    v = 1 - v;
    {
      let v: int32 = block_dim_y;
      tile[v] = -out[v];
    }
  }
  barrier;
  barrier warp;
  store sum (accumulator 16x16x16 f32) to out[0] stride 16 col;
  if v == 1 {
    v = 8 % v;
  }
}
"""


def _all() -> KernelBuilder:
    k = KernelBuilder("all", block=(32, 2, 1))
    a, out = k.buffer("a", "float16", align=32), k.buffer("out", "float32")
    i8, w = k.buffer("i8", "uint8"), k.buffer("w", "int64")
    n, x = k.scalar("n", "int32"), k.scalar("x", "float64")
    tile, rest = k.shared("tile", "float32", 256), k.shared("rest", "int32")
    own, table = k.local("own", "float64", 4), k.constants("table", "float32", (1, -2.5))
    p = k.fragment("p", "a", "16x16x16", "f16")
    q = k.fragment("q", "b", (16, 16, 16), "f16")
    sums = k.fragment("sum", "accumulator", Shape(16, 16, 16), "f32")
    go = k.let("go", "bool", True, mutable=True)
    big = k.let("big", "int64", 1 + w[0] * 3)
    v = k.let("v", "int32", k.constant(-7) // 2 - k.thread_idx_x % n, mutable=True)
    with k.loop("i", 0, n // 16 - 1) as i:
        k.load(p, a, i * 16, n)
        k.load(q, a, 16 * i, 16, "col")
        k.muladd(sums, p, q, sums)
    with k.loop("j", 0, big.cast("int32")) as j:
        w[j] = ~j.cast("int64") << 2 >> 1
        own[j] = table[1].cast("float64")
    with k.when((v < 3).and_((n >= 1).or_(go.not_()))):
        out[v] = v.cast("float32") * 2.5 / out[0] + 1
    with k.otherwise():
        with k.when(x > 0.5):
            k.return_()
        rest[0] = (((v & 1) | v) ^ 2) + k.length(i8) + 5
    with k.while_(go):
        k.assign(go, (v != 4).or_(v <= 5))
        k.assign(v, 1 - v)
        with k.block():
            inner = k.let("v", "int32", k.block_dim_y)
            tile[inner] = -out[inner]
    k.barrier()
    k.barrier("warp")
    k.store(sums, out, 0, 16, "col")
    with k.when(v == 1):
        k.assign(v, 8 % v)
    return k


def test_builds_what_the_text_says() -> None:
    assert _all().kernel() == parse(TEXT)


def test_the_text_has_everything_in_it() -> None:
    kernel = parse(TEXT)
    parts = [e for s in statements(kernel.body) for o in expressions(s) for e in subexpressions(o)]
    assert {e.op for e in parts if isinstance(e, Binary)} == set(BINARY)
    assert {e.op for e in parts if isinstance(e, Unary)} == {"neg", "not", "bitnot"}
    kinds = {type(s).__name__ for s in statements(kernel.body)}
    assert len(kinds) == 13  # all members of Statement
    assert {type(e).__name__ for e in parts} == {
        "Const", "Var", "Binary", "Unary", "Cast", "Element", "Length", "Intrinsic",
    }  # fmt: skip


def test_one_changed_statement_is_another_kernel() -> None:
    k = _all()
    k.barrier()
    assert k.kernel() != parse(TEXT)


def test_lengths() -> None:
    k = KernelBuilder("k")
    n = k.length(k.shared("s", "int32")) + k.length(k.constants("c", "int32", (1,)))
    k.let("n", "int32", n)
    text = "shared s: int32[]; constant c: int32[] = {1}; let n: int32 = length(s) + length(c);"
    assert k.kernel() == parse(f"kernel k() {{ {text} }}")


def test_intrinsics() -> None:
    k = KernelBuilder("k")
    for name in INTRINSICS:
        assert getattr(k, name).expression == Intrinsic(name)
        assert getattr(k, name).type == "int32"


def test_reflected_operators_keep_their_order() -> None:
    k = KernelBuilder("k")
    x = k.thread_idx_x
    shown = {
        "r0": 9 - x, "r1": 9 // x, "r2": 9 % x, "r3": 9 << x, "r4": 9 >> x, "r5": 9 & x,
        "r6": 9 | x, "r7": 9 ^ x, "r8": 9 + x, "r9": 9 * x,
    }  # fmt: skip
    for name, value in shown.items():
        k.let(name, "int32", value)
    texts = [f"let r{i}: int32 = 9 {op} thread_idx_x;" for i, op in enumerate(_OPERATORS)]
    assert k.kernel() == parse("kernel k() {" + " ".join(texts) + "}")


_OPERATORS = ("-", "/", "%", "<<", ">>", "&", "|", "^", "+", "*")


@pytest.mark.parametrize(
    ("value", "type_", "text"),
    [
        (7, "int32", "7"),
        (-7, "int32", "-7"),
        (-7, "int64", "-7i64"),
        (True, "bool", "true"),
        (0.5, "float32", "0.5f32"),
        (-0.5, "float64", "-0.5f64"),
        (-0.0, "float64", "-0.0f64"),
        (2, "float32", "2.0f32"),
        # The least number has no literal: its size is out of the range.
        (-(2**31), "int32", "-2147483647 - 1"),
        (-(2**63), "int64", "-9223372036854775807i64 - 1i64"),
    ],
)
def test_constants(value: int | float, type_: str, text: str) -> None:
    k = KernelBuilder("k")
    k.let("x", type_, value)
    assert k.kernel() == parse(f"kernel k() {{ let x: {type_} = {text}; }}")
    assert parse(to_text(k.kernel())) == k.kernel()


def test_numbers_have_a_type_of_their_own() -> None:
    k = KernelBuilder("k")
    assert k.constant(3).expression == Const(3)
    assert k.constant(3, "int64").expression == Const(3, "int64")
    assert k.constant(0.25).expression == Const(0.25, "float32")
    assert k.constant(False).expression == Const(False, "bool")
    assert (k.constant(3) == 3).type == "bool"


def test_config_of_a_product() -> None:
    shape = Shape(16, 16, 16)
    k = KernelBuilder("k")
    a, b = k.fragment("a", "a", shape, "s8"), k.fragment("b", "b", shape, "s8")
    c = k.fragment("c", "accumulator", shape, "s32")
    k.muladd(c, a, b, c, Config(shape, "s8", "s8", "s32", "s32", saturating=True))
    k.muladd(c, a, b, c)
    configs = [s.config for s in k.kernel().body.statements if hasattr(s, "config")]
    assert [str(x) for x in configs] == [
        "16x16x16 s8*s8+s32->s32 saturating subgroup",
        "16x16x16 s8*s8+s32->s32 subgroup",
    ]


# --- refusals ---


def _unclosed(k: KernelBuilder) -> None:
    with k.block():
        k.kernel()


def _otherwise_after_statement(k: KernelBuilder) -> None:
    with k.when(True):
        pass
    k.barrier()
    k.otherwise()


def _second_otherwise(k: KernelBuilder) -> None:
    with k.when(True):
        pass
    with k.otherwise():
        pass
    k.otherwise()


def _forgotten_with(k: KernelBuilder) -> None:
    k.when(True)
    k.barrier()


def _out_of_scope(k: KernelBuilder) -> None:
    with k.block():
        x = k.let("x", "int32", 1)
    k.let("y", "int32", x)


def _fragment_out_of_scope(k: KernelBuilder) -> None:
    with k.block():
        x = k.fragment("x", "accumulator", "16x16x16", "f32")
    k.store(x, k.buffer("o", "float32"), 0, 16)


def _immutable(k: KernelBuilder) -> None:
    k.let("x", "int32", 1, mutable=True)
    with k.block():
        k.assign(k.let("x", "int32", 1), 2)


def _swapped(k: KernelBuilder) -> None:
    a, b = k.fragment("x", "a", "16x16x16", "f16"), k.fragment("y", "b", "16x16x16", "f16")
    c = k.fragment("z", "accumulator", "16x16x16", "f32")
    k.muladd(c, b, a, c)


def _chained(k: KernelBuilder) -> None:
    assert 0 < k.thread_idx_x < 3


def _set(k: KernelBuilder, element: str, value: object) -> None:
    k.buffer("t", element)[0] = value  # type: ignore[assignment]


def _set_constant(k: KernelBuilder) -> None:
    k.constants("x", "int32", (1,))[0] = 2


def _load_local(k: KernelBuilder) -> None:
    k.load(k.fragment("x", "a", "16x16x16", "f16"), k.local("t", "float16", 256), 0, 16)


def _store_operand(k: KernelBuilder) -> None:
    x = k.fragment("x", "a", "16x16x16", "f16")
    k.store(x, k.buffer("o", "float16"), 0, 16)


_REFUSALS: list[tuple[Callable[[KernelBuilder], object], str]] = [
    (_unclosed, "'block' is still open"),
    (lambda k: k.otherwise(), "otherwise needs a when directly before it"),
    (_otherwise_after_statement, "otherwise needs a when directly before it"),
    (_second_otherwise, "otherwise needs a when directly before it"),
    (_forgotten_with, r"'when' was not entered: write 'with k.when\(...\):'"),
    (lambda k: (k.loop("i", 0, 1), k.kernel()), "'loop i' was not entered"),
    (_out_of_scope, "no variable 'x' here: its block has ended"),
    (_fragment_out_of_scope, "no fragment 'x' here: its block has ended"),
    (_immutable, "'x' is not mutable here"),
    (lambda k: k.assign(k.thread_idx_x, 1), "only variables are assigned to"),
    (_swapped, "'y' is b 16x16x16 f16 subgroup, not a 16x16x16 f16 subgroup"),
    (_chained, "an expression has no truth value"),
    (lambda k: bool(k.thread_idx_x), "use k.when"),
    (lambda k: k.thread_idx_x + k.constant(1, "int64"), "add of int32 and int64: cast one"),
    (lambda k: k.thread_idx_x + 1.5, "add of int32: 1.5 is no constant of type int32"),
    (lambda k: k.thread_idx_x + "1", "'1' is no expression and no number"),
    (lambda k: k.thread_idx_x / 2, "/ of integers: write //"),
    (lambda k: k.constant(1.5) % 2, "mod of float32: int32 or int64 is needed"),
    (lambda k: (k.thread_idx_x).and_(k.thread_idx_y), "and of int32: bool is needed"),
    (lambda k: ~k.constant(1.5), "bitnot of float32"),
    (lambda k: k.let("x", "int32", k.constant(True)), "int32 is needed, not bool"),
    (lambda k: k.let("x", "int33", 1), "no type 'int33'; known: int32, int64"),
    (lambda k: k.let("x", "int32", 1 << 31), "2147483648 is out of the range of int32"),
    (lambda k: k.let("x", "float32", float("inf")), "inf has no text form"),
    (lambda k: k.when(k.thread_idx_x), "bool is needed, not int32"),
    (lambda k: k.loop("i", 0, 1.5), "1.5 is no constant of type int32"),
    (lambda k: [k.let("x", "int32", 1) for _ in range(2)], "'x' is declared twice"),
    (lambda k: [k.buffer("x", "int32") for _ in range(2)], "'x' is declared twice"),
    (lambda k: k.buffer("x", "float17"), "no element type 'float17'"),
    (lambda k: k.buffer("x", "int32", align=3), "align 3: a power of two"),
    (lambda k: k.buffer("x", "float16")[0], "elements of 'x' are float16, which only"),
    (lambda k: k.buffer("x", "int32")[k.constant(1.5)], "int32 or int64 is needed, not float32"),
    (lambda k: k.length(k.local("x", "int32", 4)), "'x' is a local array and has no length"),
    (lambda k: k.local("x", "int32", 0), "local array 'x' has 0 elements"),
    (lambda k: k.constants("x", "int32", ()), "constants 'x' have no elements"),
    (lambda k: k.constants("x", "int32", (1, 2.5)), "2.5 is no constant of type int32"),
    (lambda k: k.constants("x", "float16", (1,)), "no element type of constants 'float16'"),
    (_set_constant, "'x' is constant and cannot be stored to"),
    (_load_local, "'t' is local: no warp can share its elements"),
    (lambda k: k.loop("i", k.constant(0, "int64"), 1), "int32 is needed, not int64"),
    (lambda k: k.shared("x", "int32", 0), "shared array 'x' has 0 elements"),
    (lambda k: _set(k, "int32", 1.5), "1.5 is no constant of type int32"),
    (lambda k: k.fragment("x", "c", "16x16x16", "f16"), "no use 'c'"),
    (lambda k: k.fragment("x", "a", "16x16", "f16"), "no shape '16x16'"),
    (lambda k: k.fragment("x", "a", "16x16x16", "f17"), "no component 'f17'"),
    (_store_operand, "only accumulators are stored"),
    (lambda k: k.barrier("grid"), "no barrier 'grid'"),
]


@pytest.mark.parametrize(("build", "message"), _REFUSALS)
def test_refusals(build: Callable[[KernelBuilder], object], message: str) -> None:
    with pytest.raises(BuildError, match=message):
        build(KernelBuilder("k"))


def test_arrays_cannot_be_iterated() -> None:
    with pytest.raises(TypeError, match="not iterable"):
        list(KernelBuilder("k").buffer("x", "int32"))  # type: ignore[call-overload]


def test_an_error_inside_a_block_closes_it() -> None:
    k = KernelBuilder("k")
    with pytest.raises(ZeroDivisionError), k.block():
        k.let("x", "int32", 1 // 0)
    k.barrier()
    assert k.kernel() == parse("kernel k() { barrier; }")


def test_names_of_a_block_end_with_it() -> None:
    k = KernelBuilder("k")
    for _ in range(2):
        with k.block():
            k.let("x", "int32", 1)
    blocks = k.kernel().body.statements
    assert len(blocks) == 2
    assert blocks[0] == blocks[1]
    assert isinstance(next(statements(k.kernel().body)), type(blocks[0]))
    assert [type(s) for s in statements(k.kernel().body)].count(Let) == 2

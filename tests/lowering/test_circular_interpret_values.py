"""The interpreter of loop programs: operations on elements, products of matrices that warps hold.

Operations have hand-worked results; products of small integers are exact, those of other numbers
are the tensor-core arithmetic of :mod:`ptxsim.numerics.tensor_core`, instruction by instruction.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from circular_programs import (
    BOX,
    IN,
    OUT,
    REG,
    TID,
    element,
    fails,
    product,
    run_small,
    with_body,
)
from numpy.typing import NDArray

from lowering.circular.integers import Int, Symbol
from lowering.circular.interpret import LoopError, interpret
from lowering.circular.loops import (
    Access,
    Block,
    BlockSync,
    Buffer,
    Compute,
    Copy,
    Fill,
    Fragment,
    LoadMatrix,
    Memory,
    Mma,
    Program,
    StoreMatrix,
    Why,
)
from lowering.circular.loops import Test as Condition
from ptxsim.numerics.formats import F16, F32
from ptxsim.numerics.tensor_core import float_product
from ptxsim.numerics.tensor_core_rules import float_rule

Array = NDArray[Any]
ZERO, ONE = Int(0), Int(1)


# --- operations -----------------------------------------------------------------------------------


def _operated(op: str, dtype: str, out: str, values: list[Array], result: Any) -> Array:
    """The result of an operation on one element of each array."""
    sources = [Buffer(f"v{i}", dtype, Memory.GLOBAL, (ONE,), (ONE,)) for i in range(len(values))]
    target = Buffer("out", out, Memory.GLOBAL, (ONE,), (ONE,))
    node = Compute(op, Access(target, (ZERO,)), tuple(Access(s, (ZERO,)) for s in sources))
    arrays = {s.name: v for s, v in zip(sources, values, strict=True)}
    program = Program("op", (*sources, target), (), (node,), (1, 1, 1), (ONE,) * 3)
    return interpret(program, {**arrays, "out": np.zeros(1, result)}, {}).arrays["out"]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
@pytest.mark.parametrize(
    ("op", "values", "expected"),
    [
        ("add", (3, -5), -2),
        ("sub", (3, -5), 8),
        ("mul", (3, -5), -15),
        ("max", (3, -5), 3),
        ("min", (3, -5), -5),
        ("fma", (3, -5, 7), -8),
        ("neg", (3,), -3),
    ],
)
def test_operations(op: str, values: tuple[int, ...], expected: int, dtype: Any) -> None:
    name = {"float32": "f32", "float16": "f16", "int32": "s32"}[np.dtype(dtype).name]
    out = _operated(op, name, name, [np.array([v], dtype) for v in values], dtype)
    assert out.tolist() == [expected]


@pytest.mark.parametrize(
    ("source", "value", "target", "expected"),
    [
        ("f32", np.float32(1 + 2**-11), "f16", np.float16(1.0)),  # a tie goes to even
        ("f16", np.float16(0.5), "f32", np.float32(0.5)),
        ("f32", np.float32(-2.7), "s32", np.int32(-2)),  # towards zero
        ("s32", np.int32(2**24 + 1), "f32", np.float32(2**24)),
        ("s8", np.int8(-3), "s32", np.int32(-3)),
        ("f32", np.float32(1.0), "bf16", np.uint16(0x3F80)),
        ("s32", np.int32(7), "s32", np.int32(7)),
    ],
)
def test_casts(source: str, value: Any, target: str, expected: Any) -> None:
    out = _operated("cast", source, target, [np.array([value])], expected.dtype)
    assert out.tolist() == [expected]


def test_integers_wrap_and_floats_are_fused() -> None:
    top = np.array([2**31 - 1], np.int32)
    assert _operated("add", "s32", "s32", [top, top], np.int32).tolist() == [-2]
    tiny = np.array([1 + 2**-12], np.float32)
    out = _operated("fma", "f32", "f32", [tiny, tiny, -np.ones(1, np.float32)], np.float32)
    assert out.tolist() == [2**-11 + 2**-24]  # the product is not rounded


def test_operations_that_do_not_exist() -> None:
    one = np.ones(1, np.float32)
    for op, count in (("median", 2), ("add", 3), ("neg", 2)):
        with pytest.raises(LoopError, match="unsupported"):
            _operated(op, "f32", "f32", [one] * count, np.float32)
    with pytest.raises(LoopError, match="add of f32, f32 has no result of s32"):
        _operated("add", "f32", "s32", [one, one], np.int32)


# --- matrices -------------------------------------------------------------------------------------


def _halves(rows: int, columns: int, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float16)


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_products_of_halves_are_those_of_the_tensor_core(target: str) -> None:
    program = product("f16", "f32", (16, 8, 16), repeat=(2, 2, 2))
    a, b = _halves(32, 32, 1), _halves(16, 32, 2)
    arrays = {"a": a, "b": b, "d": np.zeros((32, 16), np.float32)}
    done = interpret(program, arrays, {"M": 32, "N": 16}, target=target)
    rule = float_rule("mma", "f16", int(target[3:]))
    bits = np.zeros((1, 32, 16), np.uint32)
    for k in (slice(0, 16), slice(16, 32)):
        bits = float_product(
            np.ascontiguousarray(a[None, :, k]).view(np.uint16),
            np.ascontiguousarray(b.T[None, k]).view(np.uint16),
            bits, formats=(F16, F16, F32, F32), rule=rule,
        )  # fmt: skip
    assert done.arrays["d"].view(np.uint32).tolist() == bits[0].tolist()
    assert done.counts.mmas == 8
    # and they are close to the exact products
    exact = a.astype(np.float64) @ b.T.astype(np.float64)
    assert np.abs(done.arrays["d"] - exact).max() < 1e-4


@pytest.mark.parametrize(
    ("dtype", "array", "out", "shape"),
    [
        ("f16", np.float16, "f16", (16, 8, 8)),
        ("tf32", np.float32, "f32", (16, 8, 8)),
        ("tf32", np.float32, "f32", (16, 8, 4)),
        ("s8", np.int8, "s32", (16, 8, 32)),
        ("u8", np.uint8, "s32", (16, 8, 32)),
    ],
)
def test_products_of_small_integers(
    dtype: str, array: Any, out: str, shape: tuple[int, int, int]
) -> None:
    program = product(dtype, out, shape, repeat=(1, 1, 2))
    low = 0 if dtype == "u8" else -3
    draw = np.random.default_rng(3)
    a = draw.integers(low, 4, (16, 2 * shape[2])).astype(array)
    b = draw.integers(low, 4, (8, 2 * shape[2])).astype(array)
    result = {"f16": np.float16, "f32": np.float32, "s32": np.int32}[out]
    arrays = {"a": a, "b": b, "d": np.zeros((16, 8), result)}
    done = interpret(program, arrays, {"M": 16, "N": 8})
    assert done.arrays["d"].tolist() == (a.astype(np.int64) @ b.T.astype(np.int64)).tolist()


def test_bf16_as_patterns() -> None:
    program = product("bf16", "f32", (16, 8, 16), repeat=(1, 1, 1))
    one = np.full((16, 16), 0x3F80, np.uint16)
    arrays = {"a": one, "b": one[:8], "d": np.zeros((16, 8), np.float32)}
    assert (interpret(program, arrays, {"M": 16, "N": 8}).arrays["d"] == 16).all()


@pytest.mark.parametrize(("m", "n"), [(16, 8), (13, 5), (1, 1), (16, 5), (13, 8)])
def test_rows_and_columns_outside_are_undefined_and_not_stored(m: int, n: int) -> None:
    program = product("f16", "f32", (16, 8, 16), repeat=(1, 1, 1), store_dtype="f16")
    a, b = _halves(m, 16, 4).round(), _halves(n, 16, 5).round()
    arrays = {"a": a, "b": b, "d": np.full((m, n), 99, np.float16)}
    done = interpret(program, arrays, {"M": m, "N": n})
    assert done.arrays["d"].tolist() == (a @ b.T).tolist()
    assert (done.counts.writes["d"] == 1).all()
    # stored without bounds: behind the end, or the undefined rows if there is room
    *body, store = program.body
    assert isinstance(store, StoreMatrix)
    free = with_body(program, [*body, replace(store, left=(None, None))])
    if (m, n) == (16, 8):
        interpret(free, arrays, {"M": m, "N": n})
        return
    with pytest.raises(LoopError, match="range"):
        interpret(free, arrays, {"M": m, "N": n})
    # undefined rows and undefined columns are found each
    roomy = replace(store.out.buffer, extents=(Int(16), Int(8)), strides=(Int(8), ONE))
    wide = replace(store, out=Access(roomy, (ZERO, ZERO)), left=(None, None))
    buffers = tuple(roomy if b_.name == "d" else b_ for b_ in program.buffers)
    grown = replace(program, body=(*body, wide), buffers=buffers)
    with pytest.raises(LoopError, match="undefined"):
        interpret(grown, {**arrays, "d": np.zeros((16, 8), np.float16)}, {"M": m, "N": n})


def test_matrices_are_loaded_behind_a_barrier_and_without_copies_in_flight() -> None:
    program = product("f16", "f32", (16, 8, 16), repeat=(1, 1, 1))
    arrays = {"a": _halves(16, 16, 6), "b": _halves(8, 16, 7), "d": np.zeros((16, 8), np.float32)}
    sizes = {"M": 16, "N": 8}
    bare = with_body(program, [n for n in program.body if not isinstance(n, BlockSync)])
    with pytest.raises(LoopError, match="race") as caught:
        interpret(bare, arrays, sizes)
    assert isinstance(caught.value.node, LoadMatrix)
    # a thread may not overwrite what a matrix was loaded from
    shared = next(b for b in program.buffers if b.name == "sa")
    late = Fill(Access(shared, (ZERO, TID)), 0.0, guard=(Condition(TID < 16, Why.BOUND),))
    with pytest.raises(LoopError, match="was read by another thread"):
        interpret(with_body(program, [*program.body, late]), arrays, sizes)
    interpret(with_body(program, [*program.body, BlockSync(), late]), arrays, sizes)


def _frag(name: str, dtype: str, rows: int, columns: int) -> Buffer:
    fragment = Fragment("C", (16, 8, 16))
    extents, strides = (Int(rows), Int(columns)), (Int(columns), ONE)
    return Buffer(name, dtype, Memory.LOCAL, extents, strides, fragment=fragment)


def test_statements_on_matrices_are_of_whole_warps() -> None:
    c = _frag("c", "f32", 16, 8)
    fill, buffers = Fill(Access(c, (ZERO, ZERO)), 1.0), (IN, OUT, BOX, REG, c)
    run_small((fill,), block=(32, 1, 1), buffers=buffers)
    half = (Condition(TID < 16, Why.BOUND),)
    fails("divergent", (replace(fill, guard=half),), block=(32, 1, 1), buffers=buffers)
    fails("unsupported", (fill,), block=(16, 2, 1), buffers=buffers)
    part = Fill(Access(c, (ONE, ZERO)), 1.0)
    fails("unsupported", (part,), block=(32, 1, 1), buffers=buffers)
    load = LoadMatrix(Access(c, (ZERO, ZERO)), Access(BOX, (TID,)), (0, 0))
    fails("divergent", (load,), block=(32, 1, 1), buffers=buffers)
    mixed = Compute("add", Access(c, (ZERO, ZERO)), (element(ZERO), Access(c, (ZERO, ZERO))))
    fails("unsupported", (mixed,), block=(32, 1, 1), buffers=buffers)
    out = Copy(Access(OUT, (ZERO,)), Access(c, (ZERO, ZERO)))
    fails("unsupported", (out,), block=(32, 1, 1), buffers=buffers)


def test_warps_have_their_own_matrices() -> None:
    c, cta, warp = _frag("c", "f32", 16, 8), Symbol("ctaid.x"), Symbol("tid.y")
    extents, strides = (Int(6), Int(16), Int(8)), (Int(128), Int(8), ONE)
    target = Buffer("o", "f32", Memory.GLOBAL, extents, strides)
    second = Condition(warp.equals(1), Why.BOUND)
    last = Condition(cta.equals(2) & warp.equals(1), Why.BOUND)
    held = Access(c, (ZERO, ZERO))
    body: Block = (
        Fill(held, 1.0),
        Fill(held, 2.0, guard=(second,)),
        Fill(held, 3.0, guard=(last,)),
        StoreMatrix(Access(target, (cta * 2 + warp, ZERO, ZERO)), held, (1, 2)),
    )
    program = Program("many", (target, c), (), body, (32, 2, 1), (Int(3), ONE, ONE))
    done = interpret(program, {"o": np.zeros(6 * 128, np.float32)}, {})
    assert done.arrays["o"][::128].tolist() == [1, 2, 1, 2, 1, 3]
    assert done.arrays["o"].sum() == 128 * 10
    assert done.counts.fills == 0  # registers


def test_products_of_matrices_that_do_not_fit() -> None:
    program = product("f16", "f32", (16, 8, 16), repeat=(1, 1, 1))
    arrays = {"a": _halves(16, 16, 6), "b": _halves(8, 16, 7), "d": np.zeros((16, 8), np.float32)}
    for instruction in ("m16n8k32", "m32n8k16"):
        body = [
            replace(n, instruction=instruction) if isinstance(n, Mma) else n for n in program.body
        ]
        with pytest.raises(LoopError, match="unsupported"):
            interpret(with_body(program, body), arrays, {"M": 16, "N": 8})
    with pytest.raises(LoopError, match="no arithmetic of mma with f16 on sm_70"):
        interpret(program, arrays, {"M": 16, "N": 8}, target="sm_70")

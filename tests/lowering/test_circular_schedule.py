"""The verbs of a schedule: what they do to the axes of a tensor, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from circular_fusions import row_sum

from lowering.circular.check import check
from lowering.circular.indexing import Point, ancestors, derivation, index, reduces
from lowering.circular.integers import Int, Symbol, ceil_div
from lowering.circular.loops import Memory, Parallel
from lowering.circular.lower import Scheme, lower
from lowering.circular.tensors import Axis, Fusion, Merge, Split, Tensor
from lowering.layout import Swizzle
from ptxsim.errors import UsageError

M, K = Symbol("M"), Symbol("K")


def _pair() -> tuple[Fusion, Tensor, Tensor]:
    """x[m, k] and a copy of it."""
    fusion = Fusion("pair")
    x = fusion.input("x", "f32", {"m": M, "k": 40})
    return fusion, x, fusion.output("y", x)


def _names(t: Tensor) -> list[str]:
    return [a.name for a in t.leaf]


# --- verbs ----------------------------------------------------------------------------------------


def test_split_makes_an_outer_and_an_inner_axis() -> None:
    _, _, y = _pair()
    outer, inner = y.split("m", 16)
    assert _names(y) == ["m.o", "m.i", "k"]
    # ceilDiv(M, 16) tiles of 16
    assert outer.extent == ceil_div(M, 16)
    assert inner.extent == Int(16)
    assert outer.origin == Split(y.roots[0], 16, "outer")
    assert inner.origin == Split(y.roots[0], 16, "inner")
    # the axes of another tensor that is split alike are the same ones
    _, _, other = _pair()
    assert other.split("m", 16) == (outer, inner)
    # a constant extent has a constant number of tiles: ceilDiv(40, 16) = 3
    assert y.split("k", 16)[0].extent == Int(3)


def test_a_split_axis_can_be_split_again() -> None:
    _, _, y = _pair()
    y.split("k", 16)
    y.split("k.i", 4)
    assert _names(y) == ["m", "k.o", "k.i.o", "k.i.i"]
    assert [a.extent for a in y.leaf[1:]] == [Int(3), Int(4), Int(4)]
    assert [a.name for a in ancestors(y.leaf[3])] == ["k.i", "k"]


def test_merge_makes_one_axis_of_two() -> None:
    _, _, y = _pair()
    merged = y.merge("m", "k")
    assert _names(y) == ["m*k"]
    assert merged.extent == M * 40
    assert merged.origin == Merge(*y.roots)
    assert {a.name for a in ancestors(merged)} == {"m", "k"}
    _, _, named = _pair()
    assert named.merge("m", "k", "all").name == "all"


def test_values_of_roots_come_from_those_of_leaves() -> None:
    _, _, y = _pair()
    y.merge("m", "k", "all")
    outer, inner = y.split("all", 8)
    point = Point().at(outer, Symbol("i")).at(inner, Symbol("j"))
    whole = Symbol("i") * 8 + Symbol("j")
    # outer = merged div extent(inner), inner = merged mod extent(inner)
    assert index(y, y.roots[0], point, {}) == whole // 40
    assert index(y, y.roots[1], point, {}) == whole % 40
    assert set(derivation(y)) == {*y.roots, *ancestors(outer)}
    with pytest.raises(UsageError, match=r"the loops of y do not give a value of z: split its"):
        index(y, Axis("z", Int(4)), point, {})


def test_reorder() -> None:
    _, _, y = _pair()
    y.split("k", 8)
    y.reorder("k.o", "m", "k.i")
    assert _names(y) == ["k.o", "m", "k.i"]
    assert [a.name for a in y.roots] == ["m", "k"]


def test_parallelize() -> None:
    _, _, y = _pair()
    y.parallelize("k", Parallel.TIDX)
    y.parallelize("k", Parallel.TIDX)
    y.parallelize("m", Parallel.BIDY)
    assert str(y) == "y[m, k] = copy(x); leaf (m ctaid.y, k tid.x)"
    y.parallelize("k", Parallel.TIDZ)
    assert y.parallel[y.leaf[1]] is Parallel.TIDZ
    assert [p for p in Parallel if p.thread] == [Parallel.TIDX, Parallel.TIDY, Parallel.TIDZ]
    assert [p for p in Parallel if p.block] == [Parallel.BIDX, Parallel.BIDY, Parallel.BIDZ]


def test_the_other_verbs_leave_their_marks() -> None:
    fusion = row_sum(M, K)
    _, x_s, acc, y = fusion.tensors
    assert acc.at == (y, 1)
    assert x_s.at == (acc, 2)
    assert x_s.slots == 3
    assert [a.name for a in acc.peeled] == ["k.o"]
    swizzle = Swizzle(2, 0, 2)
    x_s.lay_out(acc.axis("k.i"), acc.axis("m.i"), pad=4, swizzle=swizzle)
    assert [a.name for a in x_s.layout or ()] == ["k.i", "m.i"]
    assert (x_s.pad, x_s.swizzle) == (4, swizzle)
    # upstream keeps the last call only
    acc.peel("m.o")
    assert [a.name for a in acc.peeled] == ["k.o", "m.o"]


def test_a_padded_layout_has_longer_rows() -> None:
    fusion = row_sum(33, 45)
    _, x_s, acc, _ = fusion.tensors
    x_s.lay_out(acc.axis("k.i"), acc.axis("m.i"), pad=4)
    buffer = next(b for b in lower(fusion).buffers if b.name == "x_s")
    # rows of 16 + 4 elements; a slot of 16 of them
    assert [str(e) for e in buffer.extents] == ["3", "16", "16"]
    assert [str(e) for e in buffer.strides] == ["320", "20", "1"]


def test_a_kept_part_of_a_reduced_axis_has_results_of_its_own() -> None:
    fusion = Fusion("parts")
    x = fusion.input("x", "f32", {"m": 8, "k": K})
    acc = fusion.reduce("add", x, over=["k"], name="acc")
    acc.split("k", 16)
    assert all(reduces(acc, acc.axis(a)) for a in ("k.o", "k.i"))
    acc.keep("k.o")
    assert [a.name for a in acc.roots] == ["k.o", "m"]
    assert not reduces(acc, acc.axis("k.o"))
    assert reduces(acc, acc.axis("k.i"))
    y = fusion.output("y", acc)
    assert [a.name for a in y.roots] == ["k.o", "m"]
    # dense, row-major: ceilDiv(K, 16) rows of 8
    assert y.strides == (Int(8), Int(1))


# --- fusions --------------------------------------------------------------------------------------


def test_text_of_tensors() -> None:
    fusion = row_sum(M, K)
    cached = "x_s[m, k] = cp.async.ca(x); leaf (m.o ctaid.x, k.o, m.i tid.x, k.i)"
    assert [str(t) for t in fusion.tensors] == [
        "x[m, k]; leaf (m, k)",
        cached,
        "acc[m] = add(x_s) over k; leaf (m.o ctaid.x, k.o, m.i tid.x, k.i)",
        "y[m] = copy(acc); leaf (m.o ctaid.x, m.i tid.x)",
    ]
    product = fusion.mma(fusion.tensors[0], fusion.tensors[1], ["k"], "m16n8k16", "f32", "d")
    assert str(product) == "d[m] = m16n8k16(x, x_s) over k; leaf (m, k)"


def test_axes_of_one_name_are_one_index() -> None:
    fusion = Fusion("outer")
    a = fusion.input("a", "f32", {"m": M})
    b = fusion.input("b", "f32", {"n": 8})
    product = fusion.compute("mul", a, b)
    assert [r.name for r in product.roots] == ["m", "n"]
    assert product.name == "mul2"
    assert product.sources == (a, b)
    assert fusion.reduce("max", product, over=["m"]).roots == b.roots
    assert a.sources == ()


def test_strides_are_dense_unless_given() -> None:
    fusion = Fusion("strides")
    x = fusion.input("x", "f32", {"b": 3, "m": M, "k": K})
    assert [str(s) for s in x.strides] == ["K * M", "K", "1"]
    gap = fusion.input("gap", "f32", {"m": M, "k": 8}, (12, 1))
    assert gap.strides == (Int(12), Int(1))
    turned = fusion.output("y", gap, order=["k", "m"])
    assert [r.name for r in turned.roots] == ["k", "m"]
    assert turned.strides == (M, Int(1))


# --- refusals -------------------------------------------------------------------------------------


def _of(verb: Callable[[Tensor], object]) -> Callable[[], object]:
    return lambda: verb(_pair()[2])


def _parallel(*given: tuple[str, Parallel]) -> Tensor:
    y = _pair()[2]
    for axis, how in given:
        y.parallelize(axis, how)
    return y


def _input(**extents: int) -> Fusion:
    fusion = Fusion("inputs")
    fusion.input("x", "f32", extents)
    return fusion


def _clash() -> object:
    fusion = _input(m=4)
    return fusion.compute("add", fusion.tensors[0], fusion.input("z", "f32", {"m": 5}))


@pytest.mark.parametrize(
    ("verb", "message"),
    [
        (_of(lambda y: y.axis("z")), "y has no leaf axis z: m, k"),
        (_of(lambda y: y.split("z", 4)), "y has no leaf axis z: m, k"),
        (_of(lambda y: y.split("k", 0)), "cannot split k by 0"),
        (lambda: _parallel(("k", Parallel.TIDX)).split("k", 8), "k is tid.x and cannot be split"),
        (lambda: _parallel(("k", Parallel.TIDX)).merge("m", "k"),
         "k is tid.x and cannot be merged"),
        (_of(lambda y: y.merge("k", "m")), "k and m are no neighbours in y; reorder first"),
        (_of(lambda y: y.reorder("m")), "reorder of y must name each of m, k once"),
        (_of(lambda y: y.reorder("m", "m")), "reorder of y must name each of m, k once"),
        (_of(lambda y: y.parallelize("m", Parallel.TIDX)),
         "axis m has the extent M; it must be a number here"),
        (_of(lambda y: y.parallelize("m", Parallel.VECTORIZE)),
         "axis m has the extent M; it must be a number here"),
        (lambda: _parallel(("m", Parallel.BIDX), ("k", Parallel.BIDX)),
         "y has two axes on ctaid.x; merge them"),
        (_of(lambda y: [y.split("k", 4), y.parallelize("k.i", Parallel.VECTORIZE),
                        y.parallelize("k.o", Parallel.VECTORIZE)]),
         "y has two axes on vectorize; merge them"),
        (_of(lambda y: y.circular_buffer(7)), "a circular buffer has 1 to 6 slots, not 7"),
        (_of(lambda y: y.circular_buffer(0)), "a circular buffer has 1 to 6 slots, not 0"),
        (_of(lambda y: y.circular_buffer(2)), "y is no copy in shared memory: it has no slots"),
        (_of(lambda y: y.keep("z")), "y has no leaf axis z: m, k"),
        (_of(lambda y: y.peel("z")), "y has no leaf axis z: m, k"),
        (lambda: _input(m=4).input("x", "f32", {}), "two tensors are named x"),
        (lambda: Fusion("f").input("x", "f32", {"m": 4, "k": 4}, [1]), "2 axes have 1 strides"),
        (_clash, "axis m has the extents 4 and 5"),
        (lambda: (f := _input(m=4)).reduce("add", f.tensors[0], over=["k", "a"]),
         "no axis a, k to reduce over"),
        (lambda: (f := _input(m=4)).reduce("sub", f.tensors[0], over=["m"]),
         "no reduction 'sub'; there are: add, mul, max, min"),
        (lambda: (f := _input(m=4)).copy("l", f.tensors[0], Memory.LOCAL, "ca"),
         "cp.async copies from global to shared memory"),
        (lambda: (f := _input(m=4)).compute("neg", f.tensors[0]).parallelize(
            "m", Parallel.VECTORIZE), "neg1 is no copy: only copies move vectors"),
    ],
)  # fmt: skip
def test_a_verb_refuses(verb: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        verb()
    assert str(caught.value) == message


def _summed(change: Callable[[Tensor, Tensor, Tensor], object]) -> Fusion:
    fusion = row_sum(33, 45)
    x_s, acc, y = fusion.tensors[1:]
    change(x_s, acc, y)
    return fusion


def _not_inlined(x_s: Tensor, acc: Tensor, y: Tensor) -> None:
    x_s.at = None


def _across_threads() -> Fusion:
    fusion = _input(m=4, k=8)
    acc = fusion.reduce("add", fusion.tensors[0], over=["k"], name="acc")
    acc.parallelize("k", Parallel.TIDX)
    fusion.output("y", acc)
    return fusion


def _half_reduced() -> Fusion:
    fusion = _input(m=4, k=8)
    acc = fusion.reduce("add", fusion.tensors[0], over=["k"], name="acc")
    acc.merge("m", "k", "mk")
    acc.split("mk", 8)
    fusion.output("y", acc)
    return fusion


def _foreign(memory: Memory, how: Parallel) -> Fusion:
    fusion = _input(m=4, k=8)
    cached = fusion.copy("c", fusion.tensors[0], memory)
    cached.parallelize("m", how)
    fusion.output("y", cached).parallelize("k", Parallel.TIDX)
    return fusion


def _too_many() -> Fusion:
    fusion = _input(m=64, k=32)
    y = fusion.output("y", fusion.tensors[0])
    y.parallelize("m", Parallel.TIDX)
    y.parallelize("k", Parallel.TIDY)
    return fusion


def _other_grid() -> Fusion:
    fusion = _input(m=4, k=8)
    for name, axis in (("y", "m"), ("z", "k")):
        fusion.output(name, fusion.tensors[0]).parallelize(axis, Parallel.BIDX)
    return fusion


def _slots_differ() -> Fusion:
    fusion = _input(n=45)
    cached = [fusion.copy(n, fusion.tensors[0], Memory.SHARED, "ca") for n in ("a", "b")]
    both = fusion.compute("add", *cached, name="both")
    y = fusion.output("y", both)
    for t in (*cached, both, y):
        t.split("n", 16)
        t.parallelize("n.i", Parallel.TIDX)
    for t, slots in zip(cached, (2, 3), strict=True):
        t.inline_at(y, 1)
        t.circular_buffer(slots)
    both.inline_at(y, 2)
    return fusion


def _read_outside(deep: bool) -> Fusion:
    """c is computed in the loop of y, but read before it (by d, for y) or in the loop of z."""
    fusion = Fusion("outside")
    c = fusion.copy("c", fusion.input("x", "f32", {"n": 8}))
    read = fusion.copy("d", c) if deep else c
    y = fusion.output("y", read)
    if not deep:
        fusion.output("z", c)
    c.inline_at(y, 1)
    return fusion


@pytest.mark.parametrize(
    ("fusion", "message"),
    [
        (_summed(_not_inlined), "x_s is circular, but is not inlined into a loop"),
        (_summed(lambda x_s, acc, y: x_s.inline_at(acc, 0)),
         "x_s is circular, but no serial loop is around it"),
        (_summed(lambda x_s, acc, y: x_s.inline_at(acc, 3)),
         "x_s is circular, but no serial loop is around it"),
        (_summed(lambda x_s, acc, y: acc.parallelize("k.o", Parallel.UNROLL)),
         "x_s is circular, but no serial loop is around it"),
        (_summed(lambda x_s, acc, y: x_s.inline_at(acc, 5)),
         "x_s is inlined at 5, but acc has 4 loops"),
        (_summed(lambda x_s, acc, y: x_s.inline_at(acc, -1)),
         "x_s is inlined at -1, but acc has 4 loops"),
        (_summed(lambda x_s, acc, y: y.inline_at(acc, 1)),
         "y is in global memory and cannot be inlined"),
        (_across_threads(),
         "acc is reduced over k, which cannot be tid.x: keep it, or make it serial"),
        (_half_reduced(), "acc is reduced over only one part of the merged axis mk"),
        (_foreign(Memory.LOCAL, Parallel.TIDY), "m is tid.y in c, but not in y, which reads it"),
        (_foreign(Memory.SHARED, Parallel.BIDX), "m is ctaid.x in c, but not in y, which reads it"),
        (_too_many(), "2048 threads are more than a CTA can have"),
        (_other_grid(), "ctaid.x has 4 values, but k of z has 8"),
        (_slots_differ(), "the tensors loaded in the loop over n.o differ in their slots"),
        (_read_outside(deep=True),
         "c is inlined at 1 of y, but d, which reads it, is outside of those loops"),
        (_read_outside(deep=False),
         "c is inlined at 1 of y, but z, which reads it, is outside of those loops"),
    ],
)  # fmt: skip
def test_a_schedule_is_refused(fusion: Fusion, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        lower(fusion, Scheme("off"))
    assert str(caught.value) == message


def test_shared_memory_may_be_read_by_other_threads() -> None:
    check(_foreign(Memory.SHARED, Parallel.TIDY))

"""Lowered matrix products on the simulator: bit for bit those of the oracle, without a finding.

Operands are random; what lies between and behind their elements is NaN (or the most negative byte),
and buffers end where their last element does, so that a read outside is reported.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matmul_runs import TILES, Run, run

from lowering.circular import DTYPES, Matmul, Scheme, lower_matmul

LAYOUTS = ("NN", "NT", "TN", "TT")
PEELS = ("off", "on", "aligned")
SCHEDULES = ("default", "early-async")
SIZES = (77, 80, 5, 64, 33)


def one_in(step: int, *values: Sequence[Any]) -> list[Any]:
    """Combinations of which every so many run by default, the others with the slow tests."""
    return [
        pytest.param(*case, marks=() if at % step == 0 else pytest.mark.slow)
        for at, case in enumerate(itertools.product(*values))
    ]


def scheme(peel: str, **more: str) -> Scheme:
    return Scheme(peel, **more)  # type: ignore[arg-type]


def small(dtype: str, k: int | tuple[int, int], peel: str = "on", **more: object) -> Matmul:
    """A product of 45 x 38 elements in four CTAs of four warps: ragged along both."""
    options = {"tile": TILES[dtype], "dtype": dtype, "layout": "NT", **more}
    return Matmul(45, 38, k, scheme=scheme(peel), **options)  # type: ignore[arg-type]


# --- everything with everything -------------------------------------------------------------------

#: dtype, layout, peel, symbolic, stages
ALL = list(itertools.product(DTYPES, LAYOUTS, PEELS, (False, True), range(1, 7)))


def sample() -> list[tuple[str, str, str, bool, int]]:
    """Two of the 36 combinations for each type and layout."""
    found = []
    for i, (dtype, layout) in enumerate(itertools.product(DTYPES, LAYOUTS)):
        for j in (2 * i, 2 * i + 1):
            found.append((dtype, layout, PEELS[(j + j // 6) % 3], (j + j // 4) % 2 == 1, 1 + j % 6))
    return found


def everything(dtype: str, layout: str, peel: str, symbolic: bool, stages: int, k: int) -> Matmul:
    letters = frozenset("mnk" if symbolic else "")
    return small(dtype, k, peel, layout=layout, symbolic=letters, stages=stages)


def named(case: Sequence[object]) -> str:
    return "-".join(map(str, case))


def test_the_sample_covers_pairs() -> None:
    """Each two values occur together, but for those of the sizes and the number of stages."""
    for columns in itertools.combinations(range(5), 2):
        pairs = {tuple(row[c] for c in columns) for row in ALL}
        covered = {tuple(row[c] for c in columns) for row in sample()}
        assert covered == pairs, columns


@pytest.mark.parametrize(
    "at", range(len(sample())), ids=lambda at: "-".join(map(str, sample()[at]))
)
def test_sample(at: int) -> None:
    """Two CTAs instead of four, for the sake of time."""
    spec = replace(everything(*sample()[at], SIZES[at % 5]), n=23)
    assert run(spec, at, schedule=SCHEDULES[at // 2 % 2]).faults == []


@pytest.mark.slow
@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("case", ALL, ids=lambda case: named(case))
def test_all(case: tuple[str, str, str, bool, int], k: int) -> None:
    for schedule in SCHEDULES:
        assert run(everything(*case, k), k, schedule=schedule).faults == []


# --- shapes of nvFuser's tests --------------------------------------------------------------------

UPSTREAM = {
    **{f"AmpereMatmul {at}": Matmul(504, 136, 248, stages=4, layout=at) for at in LAYOUTS},
    "Gmem 3": Matmul(504, 136, 248, stages=3, layout="TN"),
    "LargeLoad": Matmul(504, 136, 248, (128, 128, 64), stages=3, layout="NT"),
    "TileCheck 4": Matmul(504, 136, 248, (64, 128, 32), (2, 2), 4, layout="TT"),
    "TileCheck 6": Matmul(504, 136, 248, (96, 128, 32), (3, 2), 4, layout="NT"),
    "TileCheck 8": Matmul(504, 136, 248, (128, 128, 32), (4, 2), 4, layout="TN"),
    "LargeK": Matmul(504, 136, 2048, (128, 128, 64), stages=3, layout="NT"),
    "segmenter": Matmul(128, 256, 512, layout="NT"),
    "segmenter, long": Matmul(504, 136, 2048, layout="NT"),
    **{f"Turing {at}": Matmul(504, 136, 248, layout=at, target="sm_75") for at in LAYOUTS},
    "Volta": Matmul(264, 136, 248, layout="NT", target="sm_75"),
}
#: K = 88 for a batch of 3 x 5, and K = 120.
SHORT = {
    "strided batch": Matmul(40, 24, 88, (32, 32, 32), layout="NT", batch=15),
    "cross warp": Matmul(72, 40, 120, (64, 32, 32), layout="NT"),
    "Turing": Matmul(72, 40, 120, (64, 32, 32), layout="NT", target="sm_75"),
}


@pytest.mark.slow
@pytest.mark.parametrize("peel", PEELS)
@pytest.mark.parametrize("name", UPSTREAM)
def test_upstream(name: str, peel: str) -> None:
    assert run(with_peel(UPSTREAM[name], peel)).faults == []


@pytest.mark.parametrize(("name", "peel"), one_in(4, SHORT, PEELS))
def test_upstream_short(name: str, peel: str) -> None:
    assert run(with_peel(SHORT[name], peel)).faults == []


def with_peel(spec: Matmul, peel: str) -> Matmul:
    return replace(spec, scheme=scheme(peel))


def test_four_warps_and_three_stages() -> None:
    spec = Matmul(256, 256, 256)
    assert (spec.tile, spec.warps, spec.stages) == ((128, 128, 32), (2, 2), 3)
    assert run(spec).faults == []


def test_without_cp_async_there_is_none() -> None:
    text = lower_matmul(SHORT["Turing"]).text()
    assert "cp.async" not in text and "mma.sync.aligned.m16n8k8" in text


# --- few elements of K ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "peel", "symbolic"), one_in(5, ["f16", "f32", "s8"], PEELS, ["", "k", "mnk"])
)
def test_no_k(dtype: str, peel: str, symbolic: str) -> None:
    """K = 0: a result of zeros (whose bits the oracle says as well), and no read."""
    spec = small(dtype, 0, peel, symbolic=frozenset(symbolic))
    done = run(spec, tools="all,advice")
    assert done.faults == [] and not done.result.any() and done.result.size == 45 * 38
    counters = done.report.counters
    assert counters["global_load_sectors"] == counters["global_copy_sectors"] == 0


@pytest.mark.parametrize(("stages", "peel"), one_in(4, [3, 4, 6], PEELS))
def test_fewer_tiles_than_slots(stages: int, peel: str) -> None:
    """Up to one tile; each element is read once by each CTA that needs it, and nothing else."""
    strides = {"a": (16, 1), "b": (16, 1)}
    spec = small("f16", 16, peel, stages=stages, strides=strides, symbolic=frozenset("k"))
    lowered = lower_matmul(spec)
    for k in (1, 7, 8, 9, 16):
        done = run(replace(spec, k=k), k, tools="all,advice", lowered=lowered)
        assert done.faults == []
        if done.report.counters["cp.async.threads"]:
            assert done.report.counters["cp.async.bytes_read"] == 2 * k * 2 * (45 + 38)


@pytest.mark.parametrize(("tile_k", "peel"), one_in(5, [16, 32], PEELS))
def test_residues(tile_k: int, peel: str) -> None:
    """One kernel for all K, whose rows are 72 apart: the residue is known at the launch."""
    wide = {"a": (72, 1), "b": (72, 1)}
    spec = small("f16", 64, peel, tile=(32, 32, tile_k), strides=wide, symbolic=frozenset("k"))
    lowered = lower_matmul(spec)
    for k in (0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 45, 48, 63, 64, 65)[peel == "off" :: 2]:
        assert run(replace(spec, k=k), k, lowered=lowered).faults == []


@pytest.mark.slow
@pytest.mark.parametrize("peel", PEELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_k(dtype: str, peel: str) -> None:
    spec = Matmul(64, 64, 130, (64, 64, 32), dtype=dtype, layout="NT", scheme=scheme(peel))
    symbolic = replace(spec, symbolic=frozenset("k"), strides={"a": (144, 1), "b": (144, 1)})
    lowered = lower_matmul(symbolic)
    for k in range(1, 131):
        assert run(replace(spec, k=k), k).faults == [], k
        assert run(replace(symbolic, k=k), k, lowered=lowered).faults == [], k


# --- vectors --------------------------------------------------------------------------------------


# K: bytes of a copy that plain peeling leaves, of f16 and with rows of 1008
NARROW = {1001: 2, 1002: 4, 1003: 2, 1004: 8, 1005: 2, 1006: 4, 1007: 2}


@pytest.mark.parametrize("k", one_in(4, [1001, 1002, 1003, 1005, 1004, 1006, 1007]))
def test_k_of_no_whole_vectors(k: int) -> None:
    """The aligned form keeps 16 bytes; the plain one says what it lost and why."""
    padded = {"a": (1008, 1), "b": (1008, 1)}
    spec = Matmul(32, 32, k, (32, 32, 32), layout="NT", strides=padded)
    aligned = run(with_peel(spec, "aligned"), slack=64)
    assert aligned.faults == []
    assert copies(aligned) == {"cp.async.cg 16"}
    assert "copies of" not in aligned.lowered.explain()
    plain = run(spec, slack=64)
    assert plain.faults == []
    size = NARROW[k]
    assert copies(plain) == ({f"cp.async.ca {size}"} if size > 2 else set())
    kind = "cp.async" if size > 2 else "loads and stores"
    assert (
        f"copies of a move {size} bytes and are {kind}: the tiles behind the residue begin at "
        "multiples of no more; --peel aligned moves 16 bytes\n"
    ) in plain.lowered.explain()


def copies(done: Run) -> set[str]:
    """The cp.async of a kernel and their sizes."""
    text = done.lowered.text()
    return {" ".join(m) for m in re.findall(r"(cp\.async\.c[ag])\.\S+ .*\], (\d+)", text)}


@pytest.mark.parametrize(("dtype", "peel"), one_in(4, ["f16", "bf16", "f32", "tf32"], PEELS))
def test_nan_is_around_the_operands(dtype: str, peel: str) -> None:
    """NaN in the columns behind K and in all rows behind M and N."""
    padded = {"a": (88, 1), "b": (88, 1), "c": (40, 1)}
    done = run(small(dtype, 77, peel, strides=padded), slack=64 * 88)
    assert done.faults == []
    rows = np.pad(done.result, (0, 2)).reshape(45, 40).view(np.float32)
    assert not np.isnan(rows[:, :38]).any()


# --- batches --------------------------------------------------------------------------------------

# strides of a[batch, 45, 80] and b[batch, 38, 80]
BATCHES = {
    "dense": {},
    "gap": {"a": (45 * 88 + 24, 88, 1), "b": (38 * 80 + 8, 80, 1), "c": (45 * 40 + 3, 40, 1)},
    "permuted": {"a": (80, 3 * 80, 1), "b": (80, 3 * 80, 1), "c": (38, 3 * 38, 1)},
    "expanded": {"a": (0, 80, 1)},
    "strided": {"a": (45 * 80 * 2, 80 * 2, 2), "b": (38 * 160, 160, 2)},
    "odd": {"a": (45 * 81, 81, 1), "b": (38 * 81, 81, 1)},
}


@pytest.mark.parametrize(("dtype", "name"), one_in(4, ["f16", "f32", "s8"], BATCHES))
def test_batches(dtype: str, name: str) -> None:
    peel = PEELS[(len(name) + len(dtype)) % 3]
    spec = small(dtype, 80, peel, batch=3, strides=BATCHES[name])
    done = run(spec, schedule="early-async")
    assert done.faults == []
    if name == "strided":
        assert copies(done) == ({"cp.async.ca 4"} if dtype == "f32" else set())


@pytest.mark.parametrize("batch", one_in(2, [5, 4, 2, 3]))
def test_batches_one_after_the_other(batch: int) -> None:
    """One pipeline is entered again and again, each time with nothing on its way."""
    peel = PEELS[batch % 3]
    spec = small("f16", 72, peel, batch=batch, batch_loop="serial", stages=1 + batch)
    for k in (72, 0):
        done = run(replace(spec, k=k), tools="all,advice")
        assert done.faults == []
        counters = done.report.counters
        assert counters["cp.async.wait_all.threads"] == 4 * 128 * batch
        assert counters["cp.async.pending_at_exit.threads"] == 0


# --- parts of K -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "ks", "gap", "peel"), one_in(13, DTYPES, [(3, 5), (4, 8), (7, 12)], [0, 8], PEELS)
)
def test_two_axes_are_summed_over(dtype: str, ks: tuple[int, int], gap: int, peel: str) -> None:
    row = ks[1] + gap
    strides = {"a": (ks[0] * row, row, 1), "b": (ks[0] * row, row, 1)} if gap else {}
    depths = {"f32": (4, 8, 16), "tf32": (8, 16), "s8": (32,)}.get(dtype, (16,))
    for at, depth in enumerate(depths):
        spec = small(dtype, ks, peel, tile=(32, 32, depth), strides=strides, stages=2 + at)
        assert run(spec, at).faults == [], depth


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_axes_in_all_layouts(layout: str) -> None:
    assert run(small("f16", (7, 12), "on", layout=layout)).faults == []


@pytest.mark.parametrize(("parts", "peel"), one_in(5, [2, 3, 5], PEELS))
def test_parts_of_k(parts: int, peel: str) -> None:
    """Partial results along a leading axis of c, as many as whole tiles of K allow."""
    for k in (40, 144):
        spec = small("s8", k, peel, split_k=parts)
        done = run(spec)
        assert done.faults == []
        whole = run(small("s8", k, peel)).result.view(np.int32)
        tiles = -(-k // 32)
        made = -(-tiles // -(-tiles // parts))
        assert done.result.size == made * 45 * 38
        assert np.array_equal(done.result.view(np.int32).reshape(made, -1).sum(axis=0), whole)
    assert run(small("f16", 100, peel, split_k=parts, symbolic=frozenset("k"))).faults == []


# --- other schemes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fill", "tail", "predicate"),
    one_in(3, ["zfill", "explicit"], ["drain", "masked"], ["thread", "vector"]),
)
def test_schemes(fill: str, tail: str, predicate: str) -> None:
    for at, peel in enumerate(("off", "on")):
        how = scheme(peel, fill=fill, tail=tail, predicate=predicate)
        for k in ((0, 40), (8, 104))[at]:
            spec = replace(small("f16", k, stages=3 + at, symbolic=frozenset("k")), scheme=how)
            assert run(replace(spec, multiples={"k": 8}), k).faults == [], (peel, k)


# --- that a fault is found ------------------------------------------------------------------------


def faulty(change: tuple[str, str], k: int = 104) -> list[str]:
    """What is found after a change of the text of a clean kernel; the pattern must occur."""
    spec = small("f16", k, strides={"a": (104, 1), "b": (104, 1)})
    assert run(spec).faults == []

    def changed(text: str) -> str:
        text, count = re.subn(change[0], change[1], text, flags=re.MULTILINE)
        assert count
        return text

    return sorted(set(run(spec, change=changed).faults))


def test_a_late_wait_is_found() -> None:
    assert "async-race" in faulty((r"wait_group 1", "wait_group 2"))


def test_a_missing_barrier_is_found() -> None:
    assert {"async-race", "race-shared"} & set(faulty((r"^\s*bar\.sync 0;$", "")))


def test_a_missing_drain_is_found() -> None:
    """The seven tiles end one too early."""
    assert faulty((r"(mov\.u32 %r\d+, )5(;\n\$LOOP_2)", r"\g<1>6\2")) == ["another result"]


def test_missing_zeros_are_found() -> None:
    """Without its predicate the residue copy reads on into the next row."""
    assert faulty((r", 16, !%p\d+;", ", 16;")) != []


def test_another_operand_is_found() -> None:
    spec = small("s8", 64)
    done = run(spec, change=lambda text: text.replace("[b];", "[a];"))
    assert not done.equal

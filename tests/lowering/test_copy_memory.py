"""Copies between global and shared memory: chunks, their order, proofs and declines.

A pair of ``tile_pairs`` whose digits all lie on ``m`` is a global tile (as its register side) and a
shared tile.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tile_pairs import WIDTH, Digit, Pair, swizzled

from lowering import Decline, Declined, ProofError
from lowering.copy import MEMORY_VARIANTS, MemoryCopy, MemoryPlan
from lowering.copy.memory import Round
from lowering.dispatch import choose
from lowering.layout import parse, parse_tile
from lowering.prove import prove_memory_copy
from ptxsim.build import Address, Kernel, Special

CP_ASYNC, VEC, FALLBACK = MEMORY_VARIANTS


def tile(*rows: tuple[int, int, int], **more: Any) -> Pair:
    """Digits of (extent, global stride, shared stride)."""
    return Pair(tuple(Digit(e, far, "m", near) for e, far, near in rows), **more)


def copy_of(pair: Pair, **more: Any) -> MemoryCopy:
    """The pair as a copy between memories."""
    far, near = parse_tile(pair.register_text()), parse(pair.shared_text())
    return MemoryCopy(far, near, pair.dtype, align=pair.align, **more)


def planned(pair: Pair, variant: Any = VEC, **more: Any) -> MemoryPlan:
    """The plan of one variant; it is proved, and moves the right bytes."""
    plan = variant.plan(copy_of(pair, **more))
    assert isinstance(plan, MemoryPlan), plan
    proof = prove_memory_copy(plan)
    assert proof.bytes == len(list(pair.bytes()))
    assert carried(plan) == sorted((far, near) for (_, far), near in pair.bytes())
    return plan


def refused(pair: Pair, variant: Any, **more: Any) -> Decline:
    """Why a variant declines."""
    decline = variant.plan(copy_of(pair, **more))
    assert isinstance(decline, Decline)
    return decline


def carried(plan: MemoryPlan) -> list[tuple[int, int]]:
    """Global and shared byte of everything that the rounds move, sorted."""
    out = []
    for r in plan.rounds:
        for far, near in zip(r.source[: r.active], r.target[: r.active], strict=True):
            assert far % plan.chunk == near % plan.chunk == 0
            out += [(int(far) + b, int(near) + b) for b in range(plan.chunk)]
    return sorted(out)


def opcodes(plan: MemoryPlan) -> list[str]:
    """The memory instructions of a plan, in order."""
    k = Kernel("k", target=plan.copy.target)
    array, pointer = k.shared("tile", 1 << 15, 1024), k.register("b64")
    thread, base = k.new("mov.u32", "b32", Special("%tid.x")), k.new("mov.u32", "b32", array)
    plan.emit(k, thread, base, pointer)
    words = (line.split() for line in k.body_text().splitlines())
    named = (w[1] if w[0].startswith("@") else w[0] for w in words)
    return [o for o in named if o.startswith(("ld.", "st.", "cp."))]


ROWS = tile((32, 64, 64), (64, 1, 1))


class TestChunks:
    """The widest chunk that is contiguous and aligned on both sides."""

    # by hand: a pitch of 72 halves is 144 bytes = 16 * 9; 68: 136 = 8 * 17; 66: 132 = 4 * 33
    @pytest.mark.parametrize(("pitch", "chunk"), [(64, 16), (72, 16), (68, 8), (66, 4)])
    @pytest.mark.parametrize("side", ["global", "shared"])
    def test_pitch(self, pitch: int, chunk: int, side: str) -> None:
        far, near = (pitch, 64) if side == "global" else (64, pitch)
        pair = tile((16, far, near), (64, 1, 1))
        for variant in (CP_ASYNC, VEC):
            assert planned(pair, variant).chunk == chunk

    def test_odd_pitch(self) -> None:
        """65 halves: chunks of two bytes, which cp.async has not."""
        pair = tile((16, 65, 64), (64, 1, 1))
        assert planned(pair, VEC).chunk == 2
        why = refused(pair, CP_ASYNC)
        assert (why.code, dict(why.numbers)) == ("CHUNK", {"chunks": (16, 8, 4)})

    @pytest.mark.parametrize(("align", "chunk"), [(2, 2), (4, 4), (8, 8), (16, 16), (1024, 16)])
    def test_alignment_of_the_arrays(self, align: int, chunk: int) -> None:
        assert planned(replace(ROWS, align=align), VEC).chunk == chunk
        plan = planned(ROWS, VEC, global_align=min(align, 256))
        assert plan.chunk == chunk

    @pytest.mark.parametrize(("offset", "chunk"), [(1, 2), (2, 4), (4, 8), (8, 16)])
    def test_offsets(self, offset: int, chunk: int) -> None:
        pair = tile((16, 64, 64), (64, 1, 1))
        assert planned(replace(pair, shared_offset=offset)).chunk == chunk
        assert planned(replace(pair, register_offset=offset)).chunk == chunk

    @pytest.mark.parametrize(("dtype", "widest"), [("u8", 1), ("f16", 2), ("f32", 4), ("f64", 8)])
    def test_fallback_moves_elements(self, dtype: str, widest: int) -> None:
        plan = planned(tile((8, 16, 16), (16, 1, 1), dtype=dtype), FALLBACK, threads=64)
        assert (plan.chunk, len(plan.rounds)) == (widest, 2)

    def test_f64_at_four_bytes(self) -> None:
        pair = tile((8, 16, 16), (16, 1, 1), dtype="f64", align=4)
        assert planned(pair, FALLBACK).chunk == 4 == planned(pair, VEC).chunk


class TestPermutedAndSwizzled:
    def test_transposed(self) -> None:
        """Columns of shared memory: nothing but elements is contiguous on both sides."""
        pair = tile((64, 64, 1), (64, 1, 64))
        assert refused(pair, CP_ASYNC).code == "CHUNK"
        assert planned(pair).chunk == 2

    def test_blocks(self) -> None:
        """64 columns in eight packed blocks of eight: rows of 16 bytes stay together."""
        assert planned(tile((64, 64, 8), (8, 8, 512), (8, 1, 1)), CP_ASYNC).chunk == 16

    # the chunk of the swizzle in elements of two bytes: 8, 4, 2, 1
    @pytest.mark.parametrize(("p", "chunk"), [(3, 16), (2, 8), (1, 4), (0, 2)])
    @pytest.mark.parametrize("inner", [True, False])
    def test_swizzles(self, p: int, chunk: int, inner: bool) -> None:
        pair = replace(ROWS, swizzle=(p, 3, 3, inner))
        assert planned(pair).chunk == chunk
        assert (refused(pair, CP_ASYNC).code if chunk < 4 else planned(pair, CP_ASYNC).chunk) == (
            "CHUNK" if chunk < 4 else chunk
        )

    def test_swizzled_addresses(self) -> None:
        """Thread t moves chunk t of its rows to 16 (t ^ row % 8)."""
        plan = planned(replace(ROWS, swizzle=(3, 3, 3, True)), CP_ASYNC, threads=64)
        first = plan.rounds[0]
        assert first.source.tolist() == [16 * t for t in range(64)]
        assert first.target.tolist() == [
            128 * (t // 8) + 16 * ((t % 8) ^ (t // 8)) for t in range(64)
        ]
        assert first.target.tolist() == [2 * swizzled(8 * t, (3, 3, 3, True)) for t in range(64)]


class TestOrder:
    def test_neighbours_access_neighbours(self) -> None:
        """Whatever the order of the digits, chunks are taken by global address."""
        pair = tile((64, 1, 1), (8, 64, 64))
        plan = planned(pair, CP_ASYNC, threads=32)
        addresses = [int(a) for r in plan.rounds for a in r.source]
        assert addresses == [16 * n for n in range(64)]

    def test_partial_round(self) -> None:
        """50 chunks by 32 threads: 32, then 18; the others are guarded and name no new address."""
        plan = planned(tile((10, 20, 24), (20, 1, 1)), CP_ASYNC, threads=32)
        assert (plan.chunk, [r.active for r in plan.rounds]) == (8, [32, 18])
        last = plan.rounds[1]
        assert set(last.source[18:].tolist()) == {int(last.source[17])}

    def test_fewer_chunks_than_threads(self) -> None:
        plan = planned(tile((7, 3, 3), (3, 1, 1), dtype="u8"), FALLBACK, threads=128)
        assert [r.active for r in plan.rounds] == [21]

    def test_u8(self) -> None:
        plan = planned(tile((16, 16, 16), (16, 1, 1), dtype="u8"), CP_ASYNC, threads=32)
        assert (plan.chunk, [r.active for r in plan.rounds]) == (16, [16])


class TestEmission:
    @pytest.mark.parametrize(("align", "word"), [(16, "cg"), (8, "ca"), (4, "ca")])
    def test_cp_async(self, align: int, word: str) -> None:
        """Level .cg takes 16 bytes only."""
        plan = planned(tile((8, 64, 64), (64, 1, 1), align=align), CP_ASYNC, threads=64)
        copies = [f"cp.async.{word}.shared.global"] * (16 // align)  # 1024 bytes, 64 threads
        assert opcodes(plan) == [*copies, "cp.async.commit_group;"]

    @pytest.mark.parametrize(
        ("align", "suffix"), [(16, "v4.b32"), (8, "v2.b32"), (4, "b32"), (2, "u16")]
    )
    @pytest.mark.parametrize("direction", ["g2s", "s2g"])
    def test_vectors(self, align: int, suffix: str, direction: str) -> None:
        plan = planned(tile((8, 8, 8), (8, 1, 1), align=align), direction=direction, threads=64)
        first, second = ("global", "shared") if direction == "g2s" else ("shared", "global")
        assert opcodes(plan) == [f"ld.{first}.{suffix}", f"st.{second}.{suffix}"]

    def test_bytes(self) -> None:
        plan = planned(tile((8, 8, 8), (8, 1, 1), dtype="u8", align=1), FALLBACK, threads=64)
        assert opcodes(plan) == ["ld.global.u8", "st.shared.u8"]


class TestChoice:
    @staticmethod
    def chosen(pair: Pair, **more: Any) -> tuple[str, dict[str, str]]:
        plan, declines = choose(copy_of(pair, **more), MEMORY_VARIANTS, "the copy")
        return plan.variant, {name: d.code for name, d in declines.items()}

    def test_order(self) -> None:
        assert self.chosen(ROWS) == ("cp_async", {})
        assert self.chosen(ROWS, direction="s2g") == ("vec", {"cp_async": "SPACES"})
        assert self.chosen(ROWS, target="sm_75") == ("vec", {"cp_async": "ARCH"})
        odd = tile((7, 3, 3), (3, 1, 1), dtype="u8")
        assert self.chosen(odd) == ("fallback", {"cp_async": "CHUNK", "vec": "CHUNK"})

    def test_architecture(self) -> None:
        why = refused(ROWS, CP_ASYNC, target="sm_75")
        assert (why.code, dict(why.numbers)) == ("ARCH", {"need": 80, "have": 75})

    @pytest.mark.parametrize(
        ("pair", "more", "code"),
        [
            (tile((8, 8, 8), dtype="f16"), {"direction": "ld"}, "SPACES"),
            (tile((8, 8, 8)), {"target": "sm_1"}, "TARGET"),
            (tile((8, 8, 8)), {"threads": 48}, "SCOPE"),
            (tile((8, 8, 8)), {"threads": 0}, "SCOPE"),
            (tile((8, 8, 0)), {}, "RACE"),
            (tile((8, 0, 8)), {"direction": "s2g"}, "RACE"),
            (tile((8, -8, 8)), {}, "EXTENTS"),
            (tile((8, 8, 65536)), {}, "EXTENTS"),
        ],
        ids=lambda v: v if isinstance(v, str) else "",
    )
    def test_refusals(self, pair: Pair, more: dict[str, Any], code: str) -> None:
        with pytest.raises(Declined) as caught:
            choose(copy_of(pair, **more), MEMORY_VARIANTS, "the copy")
        assert {d.code for d in caught.value.declines.values()} == {code}

    def test_layouts_that_are_no_memory(self) -> None:
        good, other = parse_tile("S[(32,2):(2,1)]"), parse_tile("S[(32,2):(1@laneid,1)]")
        for far, near in ((good, other), (other, good)):
            for variant in MEMORY_VARIANTS:
                why = variant.plan(MemoryCopy(far, near))
                assert isinstance(why, Decline) and why.code == "AXES"
        twice = parse_tile("S[(32,2):(2,1)] + R[2:64]")
        why = VEC.plan(MemoryCopy(good, twice))
        assert isinstance(why, Decline) and why.code == "REPLICA"
        why = VEC.plan(MemoryCopy(good, parse_tile("S[32:1]")))
        assert isinstance(why, Decline) and why.code == "EXTENTS"
        why = VEC.plan(MemoryCopy(good, good, "f8"))
        assert isinstance(why, Decline) and why.code == "DTYPE"

    def test_broadcast_source(self) -> None:
        """One row of 16 halves into 16 rows: 32 chunks of 16 bytes."""
        assert planned(tile((16, 0, 16), (16, 1, 1)), CP_ASYNC).chunk == 16

    def test_broadcast_source_is_right(self) -> None:
        planned(tile((16, 0, 16), (16, 1, 1)), FALLBACK)

    @pytest.mark.parametrize("align", [0, 3, 48])
    def test_no_alignment(self, align: int) -> None:
        with pytest.raises((Declined, ValueError)):
            prove_memory_copy(
                choose(copy_of(replace(ROWS, align=align)), MEMORY_VARIANTS, "the copy")[0]
            )


class TestUse:
    """A copy in a kernel of its own, apart from the probe."""

    @pytest.mark.parametrize("variant", MEMORY_VARIANTS, ids=lambda v: v.name)
    def test_in_and_out(self, variant: Any) -> None:
        """Global to swizzled shared memory by a variant, back by vectors: the tile is unchanged."""
        pair = replace(ROWS, swizzle=(3, 3, 3, True))
        there, back = planned(pair, variant), planned(pair, VEC, direction="s2g")
        k = Kernel("twice", target="sm_80")
        array = k.shared("tile", 4096, 1024)
        names = k.parameter("src", "u64"), k.parameter("dst", "u64")
        thread, base = k.new("mov.u32", "b32", Special("%tid.x")), k.new("mov.u32", "b32", array)
        src, dst = (k.new("ld.param.u64", "b64", Address(n)) for n in names)
        there.emit(k, thread, base, src)
        if variant is CP_ASYNC:
            k.emit("cp.async.wait_group", 0)
        k.emit("bar.sync", 0)
        back.emit(k, thread, base, dst)
        given = np.arange(2048, dtype=np.uint16) * np.uint16(40503)
        result = np.zeros(2048, np.uint16)
        report = k.assemble().kernel().launch(grid=1, block=128, args=[given, result])
        assert report.clean
        assert np.array_equal(given, result)


class TestProofCanFail:
    @staticmethod
    def broken(plan: MemoryPlan, **more: Any) -> MemoryPlan:
        first, *rest = plan.rounds
        return replace(plan, rounds=(replace(first, **more), *rest))

    @pytest.mark.parametrize("variant", MEMORY_VARIANTS, ids=lambda v: v.name)
    def test_wrong_places(self, variant: Any) -> None:
        plan = planned(ROWS, variant)
        first: Round = plan.rounds[0]
        swapped = first.target.copy()
        swapped[[0, 1]] = swapped[[1, 0]]
        for other in (
            self.broken(plan, target=swapped),
            self.broken(plan, source=first.target[::-1]),
        ):
            with pytest.raises(ProofError, match=f"{plan.variant}: byte [0-9]+ has tag"):
                prove_memory_copy(other)

    def test_a_thread_less(self) -> None:
        plan = planned(ROWS)
        with pytest.raises(ProofError):
            prove_memory_copy(self.broken(plan, active=127))

    def test_outside(self) -> None:
        plan = planned(ROWS)
        moved = plan.rounds[0].target.copy()
        moved[3] = 1 << 15
        with pytest.raises(ProofError, match="reports"):
            prove_memory_copy(self.broken(plan, target=moved))


def draw(rng: random.Random) -> tuple[Pair, dict[str, Any]]:
    """A row-major global tile, maybe padded, and a shared tile in any order, pads and swizzles."""
    dtype = rng.choice(["u8", "f16", "f16", "f32", "f64"])
    extents = [rng.choice([1, 2, 3, 4, 8, 16]) for _ in range(rng.choice([1, 2, 3]))]
    pads = [rng.choice([0, 0, 0, 1, 4, 8]) for _ in extents]
    far, near, stride = [0] * len(extents), [0] * len(extents), 1
    for at in reversed(range(len(extents))):
        far[at], stride = stride, stride * extents[at] + pads[at]
    order = list(range(len(extents)))
    if rng.random() < 0.4:
        rng.shuffle(order)
    stride = 1
    for at in reversed(order):
        near[at], stride = stride, stride * extents[at] + rng.choice([0, 0, 0, 1, 4, 8])
    swizzle = None
    if rng.random() < 0.3:
        swizzle = (rng.choice([0, 2, 3, 4]), rng.randint(0, 3), 3, rng.random() < 0.7)
    pair = tile(
        *zip(extents, far, near, strict=True), dtype=dtype, swizzle=swizzle,
        align=rng.choice([16, 1024, max(8, WIDTH[dtype])]),
        shared_offset=rng.choice([0, 0, 0, 1, 8]), register_offset=rng.choice([0, 0, 0, 2, 8]),
    )  # fmt: skip
    more = {"threads": rng.choice([32, 96, 128]), "direction": rng.choice(["g2s", "s2g"])}
    return pair, more


def widest(pair: Pair, sizes: tuple[int, ...], align: int) -> int:
    """The widest chunk size that cuts the tile into runs on both sides, by trying; 0 if none."""
    near = {far: place for (_, far), place in pair.bytes()}
    for size in sizes:
        starts = [far for far in near if far % size == 0]
        cut = all(
            near.get(far + b) == near[far] + b and near[far] % size == 0
            for far in starts for b in range(size)
        )  # fmt: skip
        if cut and len(starts) * size == len(near) and align % size == 0:
            return size
    return 0


def survey(count: int, seed: int) -> Counter[str]:
    """Draw, compare the chunk with the widest there is, prove, and count."""
    rng = random.Random(seed)
    seen: Counter[str] = Counter()
    for number in range(count):
        pair, more = draw(rng)
        told = f"pair {number} of seed {seed}: {pair} {more}"
        for variant in MEMORY_VARIANTS:
            best = widest(pair, tuple(variant.chunks), pair.align)
            plan = variant.plan(copy_of(pair, **more))
            if variant is CP_ASYNC and more["direction"] == "s2g":
                assert isinstance(plan, Decline) and plan.code == "SPACES", told
                continue
            if variant is FALLBACK:
                best = min(best, WIDTH[pair.dtype])
            seen[f"{variant.name} {best}"] += 1
            assert (plan.chunk if isinstance(plan, MemoryPlan) else 0) == best, told
            if isinstance(plan, MemoryPlan):
                planned(pair, variant, **more)
    return seen


def test_random() -> None:
    seen = survey(25, 3)
    assert dict(seen) == {
        "cp_async 0": 6, "cp_async 16": 3, "cp_async 4": 3, "cp_async 8": 2,
        "vec 0": 3, "vec 16": 4, "vec 2": 10, "vec 4": 3, "vec 8": 5,
        "fallback 1": 3, "fallback 2": 12, "fallback 4": 7, "fallback 8": 3,
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_random_at_length(seed: int) -> None:
    assert survey(500, 100 + seed).total() > 1000


def test_widest_can_say_no() -> None:
    assert widest(ROWS, (16, 8, 4), 16) == 16
    assert widest(ROWS, (16, 8, 4), 8) == 8
    assert widest(tile((4, 64, 1), (64, 1, 4)), (16, 8, 4), 16) == 0

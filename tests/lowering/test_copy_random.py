"""Random pairs of tiles: no decline without cause, no acceptance without fit, no wrong byte.

The generator mixes permuted and split digits, pads, offsets, swizzles, element widths and scopes.
What decides is ``fits`` of ``tile_pairs``, which tries the instructions themselves.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tile_pairs import Digit, Pair, digits, fits, lowered, matrix_bytes, moved

from lowering import Decline, Declined

_AXES = {"warp": ("laneid",), "warpgroup": ("tid_in_wg",), "cta": ("tx",)}
_PER_WORD = {"u8": 4, "f16": 2, "f32": 1, "f64": 1}


def draw(rng: random.Random) -> Pair:
    """A pair near a matrix move: one that is, in about half of the cases with a change or two."""
    dtype = rng.choice(["u8", "f16", "f16", "f16", "f32", "f64"])
    scope = rng.choice(["warp", "warp", "warpgroup", "cta"])
    warps = {"warp": 1, "warpgroup": 4, "cta": rng.choice([1, 2, 3])}[scope]
    trans = dtype == "f16" and rng.random() < 0.5
    pair = Pair(
        _tile(rng, dtype, _AXES[scope][0], warps, trans), dtype, scope, 32 * warps,
        direction=rng.choice(["ld", "st"]), target=rng.choice(["sm_90"] * 6 + ["sm_80", "sm_70"]),
    )  # fmt: skip
    if rng.random() < 0.3:
        pair = replace(pair, swizzle=(rng.choice([2, 3, 3, 3, 4]), rng.randint(0, 3), 3,
                                      rng.random() < 0.8))  # fmt: skip
    for _ in range(rng.choice([0, 0, 1, 2])):
        pair = rng.choice(_CHANGES)(pair, rng)
    return replace(pair, digits=_shuffled(pair.digits, rng))


def _tile(rng: random.Random, dtype: str, axis: str, warps: int, trans: bool) -> tuple[Digit, ...]:
    """Words of a warp, side by side or below each other, with rows of 16 bytes and a pad."""
    per, row = _PER_WORD[dtype], 16 // {"u8": 1, "f16": 2, "f32": 4, "f64": 8}[dtype]
    wide, tall = rng.choice([1, 2, 3, 4]), rng.choice([1, 1, 2])
    pitch = row * (wide + rng.choice([0, 0, 1, 4])) + rng.choice([0, 0, 0, 0, row // 2])
    words = [per, per * wide]
    if rng.random() < 0.3:
        words = [per * tall, per]
    grid = [(wide, words[0], "m", row), (tall, words[1], "m", 8 * pitch)]
    if trans:
        inner = [(8, 4, axis, 1), (4, 1, axis, 2 * pitch), (2, 1, "m", pitch)]
    else:
        inner = [(8, 4, axis, pitch), (4, 1, axis, per), (per, 1, "m", 1)]
    front = (warps, 32, axis, 8 * tall * pitch + rng.choice([0, 0, row, row // 2]))
    return tuple(d for d in digits(front, *grid, *inner) if d.extent > 1)


def _shuffled(rows: tuple[Digit, ...], rng: random.Random) -> tuple[Digit, ...]:
    """The digits in another order, some of them split in two."""
    out = []
    for d in rows:
        if d.extent in (4, 8) and rng.random() < 0.3:
            out += [Digit(d.extent // 2, 2 * d.register, d.axis, 2 * d.shared),
                    Digit(2, d.register, d.axis, d.shared)]  # fmt: skip
        else:
            out.append(d)
    if rng.random() < 0.5:
        rng.shuffle(out)
    return tuple(out)


def _changed(pair: Pair, at: int, **more: Any) -> Pair:
    rows = list(pair.digits)
    rows[at] = replace(rows[at], **more)
    return replace(pair, digits=tuple(rows))


def _register_stride(pair: Pair, rng: random.Random) -> Pair:
    at = rng.randrange(len(pair.digits))
    return _changed(pair, at, register=rng.choice([1, 2, 3, 4, 8]))


def _shared_stride(pair: Pair, rng: random.Random) -> Pair:
    at = rng.randrange(len(pair.digits))
    old = pair.digits[at].shared
    return _changed(pair, at, shared=rng.choice([0, old + 1, old + 4, 2 * old, old + 8, 8 * old]))


def _swapped(pair: Pair, rng: random.Random) -> Pair:
    a, b = rng.sample(range(len(pair.digits)), 2)
    first, second = pair.digits[a].shared, pair.digits[b].shared
    return _changed(_changed(pair, a, shared=second), b, shared=first)


def _register_offset(pair: Pair, rng: random.Random) -> Pair:
    return replace(pair, register_offset=rng.choice([1, 2, 4]))


def _shared_offset(pair: Pair, rng: random.Random) -> Pair:
    return replace(pair, shared_offset=rng.choice([1, 4, 8, 16, 24]))


def _extent(pair: Pair, rng: random.Random) -> Pair:
    at = rng.randrange(len(pair.digits))
    return _changed(pair, at, extent=max(1, pair.digits[at].extent + rng.choice([-1, -2, 1])))


def _align(pair: Pair, rng: random.Random) -> Pair:
    return replace(pair, align=rng.choice([2, 8, 16, 128]))


_CHANGES: list[Callable[[Pair, random.Random], Pair]] = [
    _register_stride, _shared_stride, _shared_stride, _swapped, _register_offset, _shared_offset,
    _shared_offset, _extent, _align,
]  # fmt: skip


def sound(pair: Pair) -> bool:
    """Whether the pair is a copy at all: threads exist, no slot and no written byte twice."""
    rows = list(pair.elements())
    slots = {(thread, slot) for thread, slot, _ in rows}
    unique = len({offset for _, _, offset in rows}) == len(rows)
    return (
        all(0 <= thread < pair.threads and slot >= 0 for thread, slot, _ in rows)
        and len(slots) == len(rows)
        and (unique or pair.direction == "ld")
    )


def decided(pair: Pair, variant: str, faithful: bool = False, prove: bool = False) -> str:
    """ "accepted", or the code of the decline; what is accepted moves the right bytes."""
    try:
        done = lowered(pair, variant=variant, faithful=faithful, prove=prove)
    except Declined as caught:
        decline = caught.declines[variant]
        assert isinstance(decline, Decline) and decline.message
        return decline.code
    assert moved(done.plan) == dict(pair.bytes())
    assert (done.proof is not None) == prove
    return "accepted"


def survey(count: int, seed: int, prove: bool) -> Counter[str]:
    """Draw pairs, check each decision, and count what happened."""
    rng = random.Random(seed)
    seen: Counter[str] = Counter()
    for number in range(count):
        pair = draw(rng)
        told = f"pair {number} of seed {seed}: {pair}"
        right = sound(pair)
        complete = decided(pair, "ldstmatrix", prove=prove)
        assert (complete == "accepted") == (right and fits(pair)), told
        rule = decided(pair, "ldstmatrix", faithful=True, prove=prove and number % 4 == 0)
        assert rule != "accepted" or complete == "accepted", told
        other = decided(pair, "reg", prove=prove and number % 2 == 0)
        # by each thread, all copies can be done, but for threads with different slots
        assert other in (("accepted", "COVERAGE") if right else ("RACE", "COVERAGE", "EXTENTS"))
        if other == "COVERAGE" and right:
            assert uneven(pair), told
        seen += Counter([f"complete {complete}", f"rule {rule == 'accepted'}", f"reg {other}"])
    return seen


def uneven(pair: Pair) -> bool:
    """Whether threads that hold something hold different slots."""
    held: dict[int, set[int]] = {}
    for thread, slot, _ in pair.elements():
        held.setdefault(thread, set()).add(slot)
    return len({frozenset(slots) for slots in held.values()}) > 1


def test_hundreds() -> None:
    seen = survey(220, 7, prove=True)
    assert dict(seen) == {
        "complete accepted": 61, "complete ALIGN": 41, "complete ARCH": 30,
        "complete COVERAGE": 17, "complete LANEMAP": 40, "complete PAIR": 7, "complete RACE": 24,
        "rule True": 33, "rule False": 187,
        "reg accepted": 188, "reg COVERAGE": 8, "reg RACE": 24,
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_thousands(seed: int) -> None:
    """12 000 pairs, all proved."""
    seen = survey(1000, 1000 + seed, prove=True)
    assert seen["complete accepted"] > 250 and seen["rule True"] > 150


class TestTheJudgeCanFail:
    """The model and the brute-force test see one wrong byte, row or lane."""

    @staticmethod
    def pair(**more: Any) -> Pair:
        rows = digits((8, 4, "laneid", 16), (4, 1, "laneid", 2), (2, 2, "m", 8), (2, 1, "m", 1))
        return Pair(rows, **more)

    def test_fits(self) -> None:
        assert fits(self.pair())
        for at, stride in ((0, 20), (0, 17), (1, 4), (2, 9), (3, 2)):
            assert not fits(_changed(self.pair(), at, shared=stride)), (at, stride)
        assert not fits(self.pair(shared_offset=4))
        assert not fits(self.pair(register_offset=1))
        assert not fits(replace(self.pair(), target="sm_70"))
        assert not fits(replace(self.pair(), align=8))

    def test_sound(self) -> None:
        assert sound(self.pair())
        assert not sound(_changed(self.pair(), 2, register=1))
        assert not sound(_changed(self.pair(), 0, register=5))
        twice = _changed(self.pair(), 2, shared=0)
        assert sound(twice) and not sound(replace(twice, direction="st"))

    def test_model_of_the_instruction(self) -> None:
        """By hand: lane 9 of a transposed load has column 2 of rows 2 and 3."""
        rows = [100 * i for i in range(32)]
        loaded = {(lane, byte): at for lane, _, byte, at in matrix_bytes("m8n8", True, 1, rows)}
        assert [loaded[9, b] for b in range(4)] == [204, 205, 304, 305]
        plain = {(lane, byte): at for lane, _, byte, at in matrix_bytes("m8n8", False, 1, rows)}
        assert [plain[9, b] for b in range(4)] == [204, 205, 206, 207]

    def test_wrong_tables(self) -> None:
        pair = self.pair()
        plan = lowered(pair).plan
        for lane in (0, 7, 15):
            table = plan.moves[0].address.copy()
            table[lane] += 32
            other = replace(plan, moves=(replace(plan.moves[0], address=table),))
            assert moved(other) != dict(pair.bytes())
        table = plan.moves[0].address.copy()
        table[20] += 32  # its address does not count in an x2
        other = replace(plan, moves=(replace(plan.moves[0], address=table),))
        assert moved(other) == dict(pair.bytes())

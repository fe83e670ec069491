"""Random bit patterns through real PTX against the independent model of the tensor cores.

A tile is drawn in one of several styles, since uniform patterns hardly ever meet subnormals,
cancellation or an overflow that truncation would hide; a batch of tiles is one launch, and the
model computes some elements of each D.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tensor_core_kernels import Options, is_quad_pair, multiply, width_of

from tests.numerics.tensor_core_model import FORMATS, decode, dot, parse
from tests.numerics.tensor_core_vectors import targets

TILES = 12
EXAMPLES = 5
OUTPUTS = 12
STYLES = ("raw", "special", "near", "tiny", "large", "cancel")
Bits = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Pair:
    """An instruction on an architecture."""

    spelling: str
    architecture: str
    options: Options = Options()

    @property
    def target(self) -> str:
        """The target the kernel is written for."""
        return "sm_120a" if "kind::" in self.spelling else targets()[self.architecture]

    def __str__(self) -> str:
        tail = self.options.rounding or ("satfinite" if self.options.satfinite else "")
        return "-".join(filter(None, (self.spelling, self.architecture, tail)))


def fields(type_: str, container: int) -> tuple[int, int, int]:
    """(bit of the lowest fraction bit, fraction bits, exponent bits) within a container."""
    fmt = FORMATS[type_]
    if type_ == "tf32":
        return 0, 23, 8
    return (2 if type_ == "e2m1" and container == 8 else 0), fmt.fraction_bits, fmt.exponent_bits


def patterns(rng: np.random.Generator, shape: tuple[int, ...], type_: str, k: int,
             style: str) -> Bits:  # fmt: skip
    """Elements of one type; the style limits the exponent, padding bits stay random."""
    width = width_of(type_, k)
    raw = rng.integers(0, 2**64, shape, np.uint64) >> np.uint64(64 - width)
    if type_ not in FORMATS or style == "raw":
        return raw
    low, fraction, size = fields(type_, width)
    top = (1 << size) - 1
    if style == "special":
        # zeros, the smallest and the largest patterns, infinities and NaNs of both signs
        ends = np.array([0, 1, (top << fraction) - 1, top << fraction, (top << fraction) + 1,
                         (1 << fraction) - 1], np.uint64) << np.uint64(low)  # fmt: skip
        sign = rng.integers(0, 2, shape, np.uint64) << np.uint64(low + fraction + size)
        return np.where(rng.random(shape) < 0.1, rng.choice(ends, shape) | sign, raw)
    middle = top // 2
    span = min(3, middle)
    first, last = {
        "near": (middle - span, middle + span),
        "cancel": (middle - 1, middle + 1),
        "tiny": (0, span),
        "large": (top - 1 - span, top - 1),
    }[style]
    exponent = rng.integers(first, last + 1, shape, np.uint64) << np.uint64(low + fraction)
    keep = np.uint64(((1 << width) - 1) ^ (top << (low + fraction)))
    return raw & keep | exponent


def negate(bits: Bits, type_: str, k: int) -> Bits:
    """The same magnitudes with the other sign."""
    low, fraction, size = fields(type_, width_of(type_, k))
    return bits ^ (np.uint64(1) << np.uint64(low + fraction + size))


def tile(pair: Pair, seed: int, style: str) -> tuple[Bits, Bits, Bits]:
    """A, B and C of one product."""
    i = parse(pair.spelling)
    m, n, k = i.shape
    rng = np.random.default_rng([seed, STYLES.index(style)])
    a = patterns(rng, (m, k), i.a_type, k, style)
    b = patterns(rng, (k, n), i.b_type, k, style)
    c = patterns(rng, (m, n), i.c_type, 0, style)
    if i.a_type in FORMATS:
        if style == "cancel":  # products in pairs that cancel, up to one changed element a row
            a[:, 1::2], b[1::2] = negate(a[:, ::2], i.a_type, k), b[::2]
            place = rng.integers(0, k, m)
            a[np.arange(m), place] = patterns(rng, (m,), i.a_type, k, "tiny")
        # a few zero rows of B and of C leave single addends alone
        b[rng.random(k) < rng.choice([0, 0.5])] = 0
        c[rng.random((m, n)) < 0.3] = 0
    return a, b, c


def scale_tile(pair: Pair, seed: int, lines: int) -> Bits:
    """Scale factors [row or column, block]; moderate ones, and any pattern in one of 16."""
    i = parse(pair.spelling)
    blocks = i.shape[2] // (16 if "block16" in pair.spelling else 32)
    rng = np.random.default_rng([seed, lines])
    middle, span = (0x38, 0x20) if i.scale_type == "ue4m3" else (127, 6)
    usual = rng.integers(middle - span, middle + span, (lines, blocks), np.uint64)
    anything = rng.integers(0, 256, (lines, blocks), np.uint64)
    return np.where(rng.random((lines, blocks)) < 1 / 16, anything, usual)


def agree(got: int, expected: int, type_: str) -> bool:
    """Equal bits; the payload of an f64 NaN is nowhere stated."""
    if type_ == "f64" and decode(expected, type_).kind == "nan":
        return decode(got, type_).kind == "nan"
    return got == expected


def disagreements(pair: Pair, drawn: list[tuple[int, str]]) -> list[str]:
    """Elements of D on which ptxsim and the model differ."""
    i = parse(pair.spelling)
    m, n, _ = i.shape
    tiles = [tile(pair, *draw) for draw in drawn]
    a, b, c = (np.stack(parts) for parts in zip(*tiles, strict=True))
    scales = [np.stack([scale_tile(pair, seed, lines) for seed, _ in drawn]) for lines in (m, n)]
    scaled = tuple(scales) if i.scale_type else ()
    d = multiply(pair.spelling, pair.target, a, b, c, pair.options, *scaled)
    found = []
    for t, draw in enumerate(drawn):
        rng = np.random.default_rng(draw[0])
        places = zip(rng.integers(0, m, OUTPUTS), rng.integers(0, n, OUTPUTS), strict=True)
        for row, column in places:
            expected = dot(
                a[t, row].tolist(), b[t, :, column].tolist(), int(c[t, row, column]),
                pair.spelling, pair.architecture,
                scale_a=scales[0][t, row].tolist() if scaled else (),
                scale_b=scales[1][t, column].tolist() if scaled else (),
                satfinite=pair.options.satfinite,
                bit_operation="and" if pair.options.bit_operation == "and" else "xor",
                rounding=pair.options.rounding or "rn",
            )  # fmt: skip
            if not agree(int(d[t, row, column]), expected, i.d_type):
                place = f"{draw} [{row}][{column}]"
                found.append(f"{place}: {int(d[t, row, column]):x}, model {expected:x}")
    return found


PAIRS = [
    Pair("mma.sync.m16n8k16.f32.f16.f16.f32", "Ampere"),
    Pair("mma.sync.m16n8k16.f32.f16.f16.f32", "Hopper"),
    Pair("mma.sync.m16n8k16.f16.f16.f16.f16", "Ada Lovelace"),
    Pair("mma.sync.m16n8k16.f16.f16.f16.f16", "Blackwell"),
    Pair("mma.sync.m16n8k8.f32.f16.f16.f32", "Turing"),
    Pair("mma.sync.m8n8k4.f32.f16.f16.f16", "Volta", Options(("col", "row"))),
    Pair("mma.sync.m8n8k4.f16.f16.f16.f16", "Turing", Options(("row", "row"))),
    Pair("mma.sync.m8n8k4.f16.f16.f16.f16", "Ampere", Options(("col", "col"))),
    Pair("mma.sync.m8n8k4.f32.f16.f16.f32", "Hopper"),
    Pair("mma.sync.m8n8k4.f32.f16.f16.f16", "Ada Lovelace"),
    Pair("mma.sync.m16n8k16.f32.bf16.bf16.f32", "Ampere"),
    Pair("mma.sync.m16n8k16.f32.bf16.bf16.f32", "RTX Blackwell"),
    Pair("mma.sync.m16n8k8.f32.tf32.tf32.f32", "Ada Lovelace"),
    Pair("mma.sync.m16n8k8.f32.tf32.tf32.f32", "Blackwell"),
    Pair("mma.sync.m16n8k32.f32.e4m3.e5m2.f32", "Ada Lovelace"),
    Pair("mma.sync.m16n8k32.f32.e4m3.e5m2.f32", "Hopper"),
    Pair("mma.sync.m16n8k32.f16.e5m2.e4m3.f16", "Hopper"),
    Pair("mma.sync.m16n8k16.f16.e4m3.e4m3.f16", "Ada Lovelace"),
    Pair("mma.sync.m16n8k32.f32.e5m2.e5m2.f32", "RTX Blackwell"),
    Pair("mma.sync.m16n8k32.kind::f8f6f4.f32.e3m2.e2m1.f32", "RTX Blackwell"),
    Pair("mma.sync.m16n8k32.kind::f8f6f4.f16.e5m2.e2m3.f16", "RTX Blackwell"),
    Pair("mma.sync.m16n8k32.kind::mxf8f6f4.block32.f32.e5m2.e2m1.f32.ue8m0", "RTX Blackwell"),
    Pair("mma.sync.m16n8k64.kind::mxf4.block32.f32.e2m1.e2m1.f32.ue8m0", "RTX Blackwell"),
    Pair("mma.sync.m16n8k64.kind::mxf4nvf4.block16.f32.e2m1.e2m1.f32.ue4m3", "RTX Blackwell"),
    Pair("wmma.mma.m16n16k16.f32.f16.f16.f32", "Volta"),
    Pair("wmma.mma.m16n16k16.f32.f16.f16.f16", "Volta", Options(("col", "row"))),
    Pair("wmma.mma.m16n16k16.f32.f16.f16.f16", "Hopper", Options(("row", "row"))),
    Pair("wmma.mma.m16n16k16.f16.f16.f16.f32", "Ampere"),
    Pair("wmma.mma.m16n16k16.f16.f16.f16.f16", "Turing", Options(("col", "col"))),
    Pair("wmma.mma.m16n16k16.f32.bf16.bf16.f32", "Hopper"),
    Pair("wmma.mma.m16n16k8.f32.tf32.tf32.f32", "Hopper"),
    Pair("mma.sync.m8n8k4.f64.f64.f64.f64", "Ampere"),
    Pair("mma.sync.m8n8k4.f64.f64.f64.f64", "Ampere", Options(rounding="rz")),
    Pair("mma.sync.m16n8k8.f64.f64.f64.f64", "Hopper", Options(rounding="rm")),
    Pair("mma.sync.m16n8k16.f64.f64.f64.f64", "Hopper", Options(rounding="rp")),
    Pair("mma.sync.m16n8k32.s32.u8.s8.s32", "Ampere", Options(satfinite=True)),
    Pair("mma.sync.m16n8k64.s32.s4.u4.s32", "Hopper"),
    Pair("mma.sync.m16n8k256.s32.b1.b1.s32", "Ampere", Options(bit_operation="and")),
]


def draws_from(seed: int) -> list[tuple[int, str]]:
    """The tiles of one launch, every style equally often."""
    return [(seed + n, STYLES[n % len(STYLES)]) for n in range(TILES)]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_random_tiles(pair: Pair) -> None:
    # the message names the seed and style of each differing tile: shrinking would add nothing
    @settings(
        max_examples=EXAMPLES, derandomize=True, deadline=None, database=None,
        phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow],
    )  # fmt: skip
    @given(st.integers(0, 2**32 - 1))
    def batch(seed: int) -> None:
        assert disagreements(pair, draws_from(seed)) == []

    batch()


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_many_random_tiles(pair: Pair) -> None:
    for first in range(10):
        drawn = [(100 * first + n, STYLES[n % len(STYLES)]) for n in range(48)]
        assert disagreements(pair, drawn) == []


def test_styles_reach_the_hard_inputs() -> None:
    # over the f16 accumulator: subnormal factors, exact zeros, infinities from finite operands
    pair = Pair("mma.sync.m16n8k16.f16.f16.f16.f16", "Ampere")
    kinds: set[tuple[str, bool]] = set()
    for style in STYLES:
        for seed in range(20):
            a, b, c = tile(pair, seed, style)
            for row in range(4):
                operands = a[row].tolist(), b[:, row].tolist(), int(c[row, row])
                d = decode(dot(*operands, pair.spelling, "Ampere"), "f16")
                finite = style in ("near", "tiny", "large", "cancel")
                kinds.add((d.kind, finite))
                if d.kind == "finite":
                    kinds.add(("zero" if not d.significand else "normal", finite))
    assert {("inf", True), ("zero", True), ("normal", True), ("nan", False)} <= kinds


def test_the_comparison_can_fail() -> None:
    # Ampere's tile under the parameters of Hopper
    ampere = Pair("mma.sync.m16n8k16.f32.f16.f16.f32", "Ampere")
    draws = [(n, "near") for n in range(TILES)]
    assert disagreements(ampere, draws) == []

    class Mislabelled(Pair):
        """Compiled for Ampere, compared with Hopper."""

        @property
        def target(self) -> str:
            return "sm_80"

    assert disagreements(Mislabelled(ampere.spelling, "Hopper"), draws) != []


def test_quad_pairs_hold_different_tiles() -> None:
    assert is_quad_pair(parse("mma.sync.m8n8k4.f16.f16.f16.f16"))
    assert not is_quad_pair(parse("mma.sync.m8n8k4.f64.f64.f64.f64"))

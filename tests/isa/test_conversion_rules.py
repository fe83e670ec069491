"""Every cvt and cvt.pack of every rounding and saturation, through PTX, against exact numbers.

By default a source type gets some hundred operands for each conversion; the slow test takes all
patterns of sources of 16 bits and less, and fifty thousand of wider ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import conversion_model
import numpy as np
import pytest
import rational_model
import scalar_model as model
import vector_kernels
from form_lines import Line, lines
from scalar_model import LAYOUTS
from vector_kernels import Vector

from ptxsim.numerics.formats import FORMATS

_DTYPES: dict[str, Any] = {"b": np.uint8, "h": np.uint16, "r": np.uint32, "d": np.uint64}


def _by_sources() -> dict[tuple[str, ...], list[Line]]:
    out: dict[tuple[str, ...], list[Line]] = defaultdict(list)
    for line in lines("cvt"):
        out[tuple(t.name for t in line.types[line.results :])].append(line)
    return dict(out)


GROUPS = _by_sources()


def _ties(name: str, count: int, rng: np.random.Generator) -> list[int]:
    """Patterns of a float type at and beside what narrower formats can hold, and their ties."""
    layout, out = LAYOUTS[name], []
    targets = [
        t for t in LAYOUTS.values() if t.mantissa_bits < layout.mantissa_bits and not t.padding
    ]
    for _ in range(count if targets else 0):
        target = targets[int(rng.integers(len(targets)))]
        x = model.number(int(rng.integers(target.largest + 1)), target)
        if rng.integers(2):
            x = x._replace(integer=2 * x.integer + 1, exponent=x.exponent - 1)
        bits = max(model.pattern(x, layout, saturate=True) + int(rng.integers(-1, 2)), 0)
        out.append(bits | (layout.sign if rng.integers(2) else 0))
    return out


def _column(type_name: str, rng: np.random.Generator, rows: int) -> np.ndarray:
    """Patterns of one source: edges, ties, numbers near integers, random ones."""
    name = conversion_model.element(type_name)
    if type_name.endswith("x2"):
        width = {"f16": 16, "bf16": 16, "e2m1": 4}.get(name, 8)
        high, low = (_elements(name, rng, rows).astype(np.uint64) for _ in range(2))
        word = {16: np.uint32, 8: np.uint16, 4: np.uint8}[width]
        return (high << np.uint64(width) | low).astype(word)
    return _elements(name, rng, rows)


def _elements(name: str, rng: np.random.Generator, rows: int) -> np.ndarray:
    if name not in FORMATS or name == "ue8m0":
        width = 8 if not name[1:].isdigit() else int(name[1:])
        shift = rng.integers(0, width, rows).astype(np.uint64)
        words = rng.integers(0, 2**64, rows, dtype=np.uint64) >> np.uint64(64 - width) >> shift
        edges = [
            0,
            1,
            2,
            (1 << width) - 1,
            (1 << width) - 2,
            1 << (width - 1),
            (1 << (width - 1)) - 1,
        ]
        words[: len(edges)] = edges
        if width > 12:  # just beside ties of the formats' significands
            middle = slice(len(edges), rows // 2)
            beyond = rng.integers(0, width - 8, rows).astype(np.uint64)[middle]
            half = np.uint64(1) << beyond
            near = rng.integers(-1, 2, rows).astype(np.uint64)[middle]
            words[middle] = (words[middle] << (beyond + np.uint64(1)) | half) + near
            words &= np.uint64((1 << width) - 1)
        return words.astype(f"u{width // 8}")
    out = rational_model.patterns(rng, FORMATS[name], rows)
    ties = _ties(name, rows // 3, rng)
    out[: len(ties)] = ties
    whole = _near_integers(name, min(rows // 4, 2000), rng)
    out[len(ties) : len(ties) + len(whole)] = whole
    return out


def _near_integers(name: str, count: int, rng: np.random.Generator) -> list[int]:
    layout, out = LAYOUTS[name], []
    for _ in range(count if layout.mantissa_bits >= 7 else 0):
        length = int(rng.integers(1, 66))
        integer = int(rng.integers(0, 4)) + (1 << length) - 2
        x = model.Number(0, max(integer, 0), -1 if rng.integers(2) else 0)
        bits = max(model.pattern(x, layout, saturate=True) + int(rng.integers(-1, 2)), 0)
        out.append(bits | (layout.sign if rng.integers(2) else 0))
    return out


def _columns(types: Sequence[str], rng: np.random.Generator, rows: int) -> list[np.ndarray]:
    return [_column(t, rng, rows) for t in types]


def _whole(types: Sequence[str]) -> list[np.ndarray] | None:
    """All patterns of a single source of at most 16 bits; of pairs, all of one element."""
    if len(types) != 1:
        return None
    bits = {"f16": 16, "bf16": 16, "u16": 16, "s16": 16, "u8": 8, "s8": 8}.get(types[0])
    name = conversion_model.element(types[0])
    if types[0].endswith("x2"):
        width = {"f16": 16, "bf16": 16, "e2m1": 4}.get(name, 8)
        one = np.arange(1 << width, dtype=np.uint64)
        if width == 8:
            one = np.arange(1 << 16, dtype=np.uint64)
            return [one.astype(np.uint16)]
        both = one << np.uint64(width) | one[::-1]
        return [both.astype({16: np.uint32, 4: np.uint8}[width])]
    return None if bits is None else [np.arange(1 << bits).astype(f"u{bits // 8}")]


def _check(types: tuple[str, ...], columns: list[np.ndarray], expect: Any) -> None:
    group = GROUPS[types]
    rows = list(zip(*(c.tolist() for c in columns), strict=True))
    for start in range(0, len(group), 40):
        part = group[start : start + 40]
        vector = _joined(part, columns)
        (results,) = vector_kernels.run([vector], target="sm_103a")
        for line, got in zip(part, results, strict=True):
            wrong = [
                f"{line.text} {' '.join(f'{v:x}' for v in row)}: {g:x}, not {w:x}"
                for row, g in zip(rows, got.tolist(), strict=True)
                if g != (w := expect(line.mods, row))
            ]
            assert not wrong, wrong[:10]


def _joined(part: list[Line], columns: list[np.ndarray]) -> Vector:
    """One kernel for several conversions of the same sources."""
    count = len(part)
    texts = []
    for n, line in enumerate(part):
        text = line.text
        for k in reversed(range(1, len(line.classes))):
            text = text.replace(f"%{k}", f"%S{count + k - 1}")
        texts.append(text.replace("%0", f"%{n}").replace("%S", "%"))
    classes = [line.classes[0] for line in part] + list(part[0].classes[1:])
    return Vector(" ".join(texts), classes, columns, results=count)


_IDS = ["-".join(types) for types in GROUPS]


@pytest.mark.parametrize("types", GROUPS, ids=_IDS)
def test_conversions(types: tuple[str, ...]) -> None:
    columns = _columns(types, np.random.default_rng(1), 150)
    _check(types, columns, conversion_model.convert)


@pytest.mark.slow
@pytest.mark.parametrize("types", GROUPS, ids=_IDS)
def test_conversions_at_length(types: tuple[str, ...]) -> None:
    whole = _whole(types)
    columns = whole or _columns(types, np.random.default_rng(2), 50_000)
    _check(types, columns, conversion_model.convert)


def test_cvt_pack() -> None:
    rng = np.random.default_rng(3)
    vectors, group = [], list(lines("cvt.pack"))
    for line in group:
        edges = np.array([0, 1, 2, 3, 7, 8, 127, 128, 255, 256, 32767, 65535, 65536], np.int64)
        a, b = (np.where(rng.integers(2, size=300), rng.choice(edges, 300), 0) for _ in range(2))
        a, b = (v * rng.choice([1, -1], 300) for v in (a, b))
        c = rng.integers(0, 2**32, 300)
        columns = [v.astype(np.int32).view(np.uint32) for v in (a, b)] + [c.astype(np.uint32)]
        vectors.append(Vector(line.text, line.classes, columns[: len(line.classes) - 1]))
    assert len(group) == 8
    for line, vector, (got,) in zip(group, vectors, vector_kernels.run(vectors), strict=True):
        rows = zip(*(c.tolist() for c in vector.columns), strict=True)
        assert got.tolist() == [conversion_model.pack_integers(line.mods, row) for row in rows]


def test_a_wrong_rule_is_noticed() -> None:
    """The check can fail: a model whose results are one off."""
    columns = _columns(("f16",), np.random.default_rng(4), 50)
    with pytest.raises(AssertionError):
        _check(("f16",), columns, lambda m, row: conversion_model.convert(m, row) ^ 1)


class TestByHand:
    """Values that no random operand shows to be right: where bits lie."""

    def run(self, line: str, classes: str, *values: int) -> int:
        letters = classes.split(",")[1:]
        columns = [np.array([v], _DTYPES[k]) for v, k in zip(values, letters, strict=True)]
        (out,) = vector_kernels.run([Vector(line, classes.split(","), columns)], target="sm_103a")
        return int(out[0][0])

    def test_stochastic_halves(self) -> None:
        # 1 + 1/2 ulp: carries with random bits of a half and more; a has bits 28..16, b 12..0
        line, half = "cvt.rs.f16x2.f32 %0, %1, %2, %3;", 0x3F801000
        assert self.run(line, "r,r,r,r", half, half, 0x10000FFF) == 0x3C013C00
        assert self.run(line, "r,r,r,r", half, half, 0xEFFF1000) == 0x3C003C01

    def test_stochastic_bytes(self) -> None:
        # 1 + 1/2 ulp of e4m3; bits 31..16 serve a and b, 15..0 e and f
        line = "cvt.rs.satfinite.e4m3x4.f32 %0, {%1, %2, %3, %4}, %5;"
        half = 0x3F880000
        assert self.run(line, "r,r,r,r,r,r", half, 0, half, half, 0x80000000) == 0x39003838
        assert self.run(line, "r,r,r,r,r,r", half, 0, half, half, 0x7FFF8000) == 0x38003939

    def test_stochastic_nibbles(self) -> None:
        # 1.25 is half way between 1 and 1.5; bytes 3 and 1 serve a and b, bytes 2 and 0 e and f
        line = "cvt.rs.satfinite.e2m1x4.f32 %0, {%1, %2, %3, %4}, %5;"
        half = 0x3FA00000
        assert self.run(line, "h,r,r,r,r,r", half, half, half, half, 0x80000000) == 0x3322
        assert self.run(line, "h,r,r,r,r,r", half, half, half, half, 0x7FFF7FFF) == 0x2233
        assert self.run(line, "h,r,r,r,r,r", half, half, half, half, 0x00800000) == 0x2233

    def test_fixed_point(self) -> None:
        # 1.5 and -0.25 are 96 and -16 of 64; over 2 and over 1/2 they are 48 and -32
        line = "cvt.rn.satfinite.s2f6x2.f32 %0, %1, %2;"
        assert self.run(line, "h,r,r", 0x3FC00000, 0xBE800000) == 0x60F0
        line = "cvt.rn.satfinite.scaled::n2::ue8m0.s2f6x2.f32 %0, %1, %2, %3;"
        assert self.run(line, "h,r,r,h", 0x3FC00000, 0xBE800000, 0x807E) == 0x30E0
        line = "cvt.rn.scaled::n2::ue8m0.bf16x2.s2f6x2 %0, %1, %2;"
        assert self.run(line, "r,h,h", 0x30E0, 0x807E) == 0x3FC0BE80
        # beyond [-2, 127/64]; NaN is the largest number
        line = "cvt.rn.satfinite.s2f6x2.f32 %0, %1, %2;"
        assert self.run(line, "h,r,r", 0x7FC00000, 0xC0800000) == 0x7F80

    def test_scaled_bytes(self) -> None:
        # e4m3 1.5 and 448 times 4 and 1/2
        line = "cvt.rn.scaled::n2::ue8m0.bf16x2.e4m3x2 %0, %1, %2;"
        assert self.run(line, "r,h,h", 0x3C7E, 0x817E) == 0x40C04360

    def test_a_signalling_nan_saturates_to_zero(self) -> None:
        # PTX ISA 9.1, cvt: .sat makes every NaN +0; these have the quiet bit clear
        assert self.run("cvt.sat.f32.f16 %0, %1;", "r,h", 0xFD1A) == 0
        assert self.run("cvt.sat.f64.f16 %0, %1;", "d,h", 0x7C3D) == 0
        assert self.run("cvt.rz.sat.f16.f64 %0, %1;", "h,d", 0x7FF0000000000001) == 0

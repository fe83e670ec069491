"""Reader of the tensor-core test vectors: probes (single dot products) and whole matrices.

The file records its own encoding, seed and the source of every expected value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

__all__ = ["Matrix", "Probe", "Result", "matrices", "outputs", "probes", "targets"]

_PATH = Path(__file__).parents[1] / "data" / "tensorcore-vectors.json"
_DIGITS = {"f64": 16, "f32": 8, "tf32": 8, "s32": 8, "f16": 4, "bf16": 4, "s4": 1, "u4": 1}
Tile = list[list[int]]


@dataclass(frozen=True, slots=True)
class Probe:
    """One dot product; unnamed k positions are +0."""

    id: str
    a_type: str
    c_type: str
    a: dict[int, int]
    b: dict[int, int]
    c: int
    d: dict[str, int]

    @property
    def k(self) -> int:
        """One more than the largest k index."""
        return max(self.a) + 1

    def factors(self, k: int) -> tuple[list[int], list[int]]:
        """The k elements of A and of B."""
        return [self.a.get(i, 0) for i in range(k)], [self.b.get(i, 0) for i in range(k)]


@dataclass(frozen=True, slots=True)
class Result:
    """One expected D, with the architectures that produce it."""

    architectures: tuple[str, ...]
    d: Tile
    satfinite: bool = False
    bit_operation: str = ""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A tile product: A is m x k, B is k x n, C and D are m x n, all of bit patterns."""

    id: str
    op: str
    mode: str
    types: tuple[str, str, str, str]
    a: Tile
    b: Tile
    c: Tile
    results: tuple[Result, ...]
    scale_a: Tile = field(default_factory=list)  # [row][block of k]
    scale_b: Tile = field(default_factory=list)  # [column][block of k]


@lru_cache(maxsize=1)
def _file() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(_PATH.read_text())
    return data


def targets() -> dict[str, str]:
    """The first target of every architecture."""
    return {name: names[0] for name, names in _file()["arch"].items()}


@lru_cache(maxsize=1)
def probes() -> tuple[Probe, ...]:
    """All probes."""
    return tuple(map(_probe, _file()["probes"]))


def _probe(entry: dict[str, Any]) -> Probe:
    a, b = ({int(k): int(x, 16) for k, x in entry[name].items()} for name in "ab")
    d = {arch: int(group["hex"], 16) for group in entry["d"] for arch in group["arch"]}
    return Probe(entry["id"], entry["a_type"], entry["c_type"], a, b, int(entry["c"], 16), d)


@lru_cache(maxsize=1)
def matrices() -> tuple[Matrix, ...]:
    """All whole matrices."""
    return tuple(map(_matrix, _file()["matrices"]))


def outputs() -> Iterator[tuple[str, int]]:
    """(op, number of expected elements of D) of every expected matrix."""
    for m in matrices():
        for result in m.results:
            yield m.op, sum(map(len, result.d))


def _matrix(entry: dict[str, Any]) -> Matrix:
    d_type, a_type, b_type, c_type = types = tuple(entry["types"])
    rows, columns, k = entry["m"], entry["n"], entry["k"]
    if a_type == "b1":  # 32-bit words, element i of a word = bit i; B column by column
        a = _tile(_bits(entry["A"]), k)
        b = _transposed(_tile(_bits(entry["B"]), k))
    else:
        a = _tile(_elements(entry["A"], a_type, k), k)
        b = _tile(_elements(entry["B"], b_type, k), columns)
        if b_type == "e2m1" and k == 64:
            b = _halves(entry["B"], columns)
    results = tuple(
        Result(
            tuple(d["arch"]), _tile(_elements(d["hex"], d_type, k), columns),
            d.get("satfinite", False), d.get("bitop", "").removesuffix(".popc"),
        )
        for d in entry["D"]
    )  # fmt: skip
    scales_a = _elements(entry.get("scale_A", ""), "ue8m0", k)
    scale_a = _tile(scales_a, len(scales_a) // rows or 1)
    scale_b = _transposed(_tile(_elements(entry.get("scale_B", ""), "ue8m0", k), columns))
    c = _tile(_elements(entry["C"], c_type, k), columns)
    return Matrix(
        entry["id"], entry["op"], entry["mode"], types, a, b, c, results, scale_a, scale_b
    )


def _elements(digits: str, type_: str, k: int) -> list[int]:
    """Fixed-width numbers; e2m1 has one digit in the k64 forms, a byte container in the others."""
    width = 1 if type_ == "e2m1" and k == 64 else _DIGITS.get(type_, 2)
    return [int(digits[i : i + width], 16) for i in range(0, len(digits), width)]


def _halves(digits: str, columns: int) -> Tile:
    """B of bytes that hold two rows of one column, the high half first."""
    pairs = _tile(_elements(digits, "u8", 0), columns)
    return [[x >> shift & 15 for x in line] for line in pairs for shift in (4, 0)]


def _bits(digits: str) -> list[int]:
    return [w >> i & 1 for w in _elements(digits, "s32", 0) for i in range(32)]


def _tile(flat: list[int], columns: int) -> Tile:
    return [flat[i : i + columns] for i in range(0, len(flat), columns)]


def _transposed(tile: Tile) -> Tile:
    return [list(line) for line in zip(*tile, strict=True)]

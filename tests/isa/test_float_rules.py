"""Floating-point arithmetic of every format and modifier, through PTX, against exact numbers.

By default each instruction of a type gets ten thousand operands, shared by its modifiers; the slow
test gives it a million.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
import rational_model
import scalar_model as model
import vector_kernels
from scalar_model import LAYOUTS, Layout
from vector_kernels import Vector

from ptxsim.numerics.formats import FORMATS

MODES = ("rn", "rz", "rm", "rp")
_OPERATIONS: dict[str, tuple[int, Callable[..., model.Number]]] = {
    "add": (2, model.add),
    "sub": (2, model.sub),
    "mul": (2, model.mul),
    "fma": (3, model.fma),
    "mad": (3, model.fma),
    "div": (2, model.div),
    "rcp": (1, lambda x, mode: model.div(model.ONE, x, mode)),
    "sqrt": (1, model.sqrt),
}


@dataclass(frozen=True)
class Case:
    """One instruction: its name and modifiers, the types of result and sources, and the rows."""

    operation: str
    modifiers: tuple[str, ...]
    types: tuple[str, ...]

    @property
    def text(self) -> str:
        return ".".join((self.operation, *self.modifiers, *self.types))

    @property
    def result(self) -> str:
        return self.types[0].removesuffix("x2")

    @property
    def sources(self) -> list[str]:
        """The element type of each source: mixed precision has an f32 addend."""
        count = _OPERATIONS[self.operation][0]
        if len(self.types) == 1:
            return [self.result] * count
        return [self.types[1]] * (count - 1) + [self.result]

    @property
    def packed(self) -> bool:
        return self.types[0].endswith("x2")

    @property
    def mode(self) -> str:
        return next((m for m in self.modifiers if m in MODES), "rn")


def _variants(*groups: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """One word of each group; a word may hold several modifiers, or none."""
    for words in product(*groups):
        yield tuple(w for word in words for w in word.split(".") if w)


def _group(operation: str, types: str, *groups: tuple[str, ...]) -> tuple[Case, ...]:
    return tuple(Case(operation, m, tuple(types.split("."))) for m in _variants(*groups))


_FTZ = ("", "ftz")
_FTZ_SAT = ("", "ftz", "sat", "ftz.sat")
_RN = ("", "rn")

GROUPS: list[tuple[Case, ...]] = [
    *(_group(o, "f32", ("", *MODES), _FTZ_SAT) for o in ("add", "sub", "mul")),
    *(_group(o, "f32", MODES, _FTZ_SAT) for o in ("fma", "mad")),
    *(_group(o, "f32", MODES, _FTZ) for o in ("div", "rcp", "sqrt")),
    *(_group(o, "f64", ("", *MODES)) for o in ("add", "sub", "mul")),
    *(_group(o, "f64", MODES) for o in ("fma", "mad", "div", "rcp", "sqrt")),
    *(_group(o, "f32x2", ("", *MODES), _FTZ) for o in ("add", "sub", "mul")),
    _group("fma", "f32x2", MODES, _FTZ),
    *(_group(o, t, _RN, _FTZ_SAT) for o in ("add", "sub", "mul") for t in ("f16", "f16x2")),
    *(_group("fma", t, ("rn",), (*_FTZ_SAT, "relu", "ftz.relu")) for t in ("f16", "f16x2")),
    *(_group(o, t, _RN) for o in ("add", "sub", "mul") for t in ("bf16", "bf16x2")),
    *(_group("fma", t, ("rn",), ("", "relu")) for t in ("bf16", "bf16x2")),
    *(
        _group(o, f"f32.{t}", ("", *MODES), ("", "sat"))
        for o in ("add", "sub")
        for t in ("f16", "bf16")
    ),
    *(_group("fma", f"f32.{t}", MODES, ("", "sat")) for t in ("f16", "bf16")),
]

_CLASS = {"f16": "h", "bf16": "h", "f32": "r", "f64": "d"}
_TWICE = {"h": "r", "r": "d"}


def _line(case: Case) -> tuple[str, list[str]]:
    """Operands and their register classes."""
    classes = [_CLASS[t] for t in (case.result, *case.sources)]
    if case.packed:
        classes = [_TWICE[c] for c in classes]
    operands = ", ".join(f"%{n}" for n in range(len(classes)))
    return f"{case.text} {operands};", classes


def expected(case: Case, layouts: tuple[Layout, list[Layout]], row: tuple[int, ...]) -> int:
    """The pattern that one row of elements gives."""
    to, of = layouts
    if "ftz" in case.modifiers:
        row = tuple(model.flush(v, s) for v, s in zip(row, of, strict=True))
    numbers = [model.number(v, s) for v, s in zip(row, of, strict=True)]
    exact = _OPERATIONS[case.operation][1](*numbers, case.mode)
    bits = model.pattern(exact, to, case.mode)
    if "ftz" in case.modifiers:
        bits = model.flush(bits, to)
    for how in ("sat", "relu"):
        if how in case.modifiers:
            bits = model.clamp(bits, to, how)
    return bits


def _operands(case: Case, rng: np.random.Generator, rows: int) -> list[np.ndarray]:
    """Random and edge elements; for the same formats a share at and beside rounding ties."""
    columns = [rational_model.patterns(rng, FORMATS[t], rows) for t in case.sources]
    share = min(rows // 4, 3_000)
    if len(set(case.sources)) == 1 and len(columns) > 1:
        hard = rational_model.hard_fma(rng, FORMATS[case.sources[0]], share)
        for column, values in zip(columns, hard, strict=False):
            column[:share] = values
    return columns


def _check(group: tuple[Case, ...], rows: int, seed: int) -> None:
    """All the cases of a group on ``rows`` rows of elements together."""
    rng = np.random.default_rng(seed)
    each = -(-rows // len(group))
    each += each % 2
    elements = [_operands(case, rng, each) for case in group]
    vectors = []
    for case, columns in zip(group, elements, strict=True):
        line, classes = _line(case)
        words = [c.view(f"u{2 * c.itemsize}") if case.packed else c for c in columns]
        vectors.append(Vector(line, classes, words))
    for case, columns, (got,) in zip(group, elements, vector_kernels.run(vectors), strict=True):
        layouts = LAYOUTS[case.result], [LAYOUTS[t] for t in case.sources]
        if case.packed:
            got = got.view(f"u{got.itemsize // 2}")
        inputs = list(zip(*(c.tolist() for c in columns), strict=True))
        wrong = [
            f"{case.text} {' '.join(f'{v:x}' for v in row)}: {g:x}, not {w:x}"
            for row, g in zip(inputs, got.tolist(), strict=True)
            if g != (w := expected(case, layouts, row))
        ]
        assert not wrong, wrong[:10]


def _names(group: tuple[Case, ...]) -> str:
    return ".".join((group[0].operation, *group[0].types))


@pytest.mark.parametrize("group", GROUPS, ids=_names)
def test_arithmetic(group: tuple[Case, ...]) -> None:
    _check(group, 4_000 if len(group) > 1 else 1_000, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS, ids=_names)
def test_arithmetic_at_length(group: tuple[Case, ...]) -> None:
    _check(group, 1_000_000, seed=2)


def test_a_wrong_bit_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: a model that rounds to zero where the instruction rounds to nearest."""
    wrong: dict[str, Any] = {"mode": property(lambda self: "rz")}
    monkeypatch.setattr(Case, "mode", wrong["mode"])
    with pytest.raises(AssertionError):
        _check(_group("add", "f32", ("rn",)), 400, seed=3)


class TestTheModel:
    """The integer model against the one of Fractions, which shares nothing with it."""

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
    def test_arithmetic(self, name: str, mode: str) -> None:
        rng = np.random.default_rng(4)
        fmt, layout = FORMATS[name], LAYOUTS[name]
        rows = 150
        columns = [rational_model.patterns(rng, fmt, rows) for _ in range(3)]
        hard = rational_model.hard_fma(rng, fmt, rows)
        for a, b, c in zip(
            *(np.concatenate([x, y]).tolist() for x, y in zip(columns, hard, strict=True)),
            strict=True,
        ):
            x, y, z = (model.number(v, layout) for v in (a, b, c))
            for ours, theirs in (
                (model.fma(x, y, z, mode), rational_model.fma(a, b, c, fmt, mode)),
                (model.add(x, y, mode), rational_model.add(a, b, fmt, mode)),
                (model.mul(x, y, mode), rational_model.mul(a, b, fmt, mode)),
                (model.div(x, y, mode), rational_model.div(a, b, fmt, mode)),
                (model.sqrt(x, mode), rational_model.sqrt(a, fmt, mode)),
            ):
                assert model.pattern(ours, layout, mode) == theirs

    @pytest.mark.parametrize("mode", [*MODES, "rna"])
    @pytest.mark.parametrize("name", sorted(set(LAYOUTS) - {"f64", "tf32"}))
    def test_rounding_to_every_format(self, name: str, mode: str) -> None:
        rng = np.random.default_rng(5)
        fmt, layout, source = FORMATS[name], LAYOUTS[name], LAYOUTS["f64"]
        for bits in rational_model.patterns(rng, FORMATS["f64"], 400).tolist():
            value = rational_model.decode(bits, FORMATS["f64"])
            if not isinstance(value, str):
                negative = rational_model.is_negative(bits, FORMATS["f64"])
                want = rational_model.round_fraction(value, fmt, mode, negative_zero=negative)
                assert model.pattern(model.number(bits, source), layout, mode) == want

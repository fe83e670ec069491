"""Floating-point arithmetic of every format and modifier, through PTX, against exact numbers.

By default each instruction of a type gets ten thousand operands, shared by its modifiers; the slow
test gives a million to each of the modifiers.
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

import ptxsim
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
    *(_group("fma", t, ("rn",), ("oob", "oob.relu")) for t in ("f16", "f16x2", "bf16", "bf16x2")),
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
    if "oob" in case.modifiers:  # executed where no operand is a NaN
        columns = [_without_nan(c, LAYOUTS[t]) for c, t in zip(columns, case.sources, strict=True)]
    return columns


def _without_nan(column: np.ndarray, layout: Layout) -> np.ndarray:
    """Every NaN as a number of the same fraction."""
    exponents = column.dtype.type(((1 << layout.exponent_bits) - 1) << layout.mantissa_bits)
    nan = (column & column.dtype.type(layout.sign - 1)) > exponents
    return np.where(nan, column & ~exponents, column)


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
    _check(group, 10_000, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for group in GROUPS for c in group], ids=lambda c: c.text)
def test_arithmetic_at_length(case: Case) -> None:
    for part in range(10):
        _check((case,), 100_000, seed=100 + part)


def test_a_wrong_bit_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: a model that rounds to zero where the instruction rounds to nearest."""
    wrong: dict[str, Any] = {"mode": property(lambda self: "rz")}
    monkeypatch.setattr(Case, "mode", wrong["mode"])
    with pytest.raises(AssertionError):
        _check(_group("add", "f32", ("rn",)), 400, seed=3)


class TestOutOfBounds:
    """fma.oob makes +0 of a NaN that PTX names and does not encode: any NaN ends the launch."""

    TEXT = """.version 8.1
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p) {{
.reg .b64 %d<3>; .reg .b32 %r<6>; .reg .pred %p;
ld.param.u64 %d1, [p]; mov.u32 %r1, %tid.x; mad.wide.u32 %d1, %r1, 4, %d1;
ld.global.u32 %r2, [%d1]; mov.b32 %r3, {one}; mov.b32 %r4, {one}; setp.ne.u32 %p, %r1, 3;
{guard} fma.rn.oob.{type} %r2, {operands};
st.global.u32 [%d1], %r2; ret; }}"""

    def _run(self, type_: str, value: int, operands: str = "%r2, %r3, %r4", guard: str = "") -> Any:
        one = "0x3C003C00" if "bf" not in type_ else "0x3F803F80"
        text = self.TEXT.format(type=type_, one=one, operands=operands, guard=guard)
        data = np.full(8, int(one, 16), np.uint32)
        data[3] = value
        module = ptxsim.assemble(text)
        assert not module.diagnostics
        return module.kernel().launch(grid=1, block=8, args=[data]), data

    @pytest.mark.parametrize("operands", ["%r2, %r3, %r4", "%r3, %r2, %r4", "%r3, %r4, %r2"])
    @pytest.mark.parametrize(
        ("type_", "value"),
        [
            # a NaN of either sign in either half, quiet and not
            ("f16x2", 0x00007C01), ("f16x2", 0xFC010000), ("f16x2", 0x7FFF3C00),
            ("relu.f16x2", 0x00007FF7), ("bf16x2", 0xFF810000), ("relu.bf16x2", 0x00007F81),
        ],
    )  # fmt: skip
    def test_a_nan_is_not_executed(self, type_: str, value: int, operands: str) -> None:
        report, data = self._run(type_, value, operands)
        (finding,) = report.findings
        assert (finding.class_, finding.lanes, finding.line) == ("unsupported", (3,), 8)
        assert report.exit_code == 4
        assert f"'fma.rn.oob.{type_}' meets a NaN" in finding.message
        assert data[3] == value  # nothing behind it is executed

    def test_a_lane_that_does_not_execute_it(self) -> None:
        report, data = self._run("f16x2", 0x7C01, guard="@%p")
        # 1 * 1 + 1 = 2
        assert report.clean and data.tolist() == [0x40004000] * 3 + [0x7C01] + [0x40004000] * 4

    @pytest.mark.parametrize(
        ("type_", "value", "want"),
        [
            # infinities are no NaN: inf * 1 + 1 and -inf * 1 + 1, which .relu makes +0
            ("f16x2", 0x7C00FC00, 0x7C00FC00),
            ("relu.f16x2", 0x7C00FC00, 0x7C000000),
            ("bf16x2", 0x7F80FF80, 0x7F80FF80),
            # a word that is a NaN of f16 is a number of bf16: 0x7C00 is 2^121
            ("bf16x2", 0x7C017C00, 0x7C017C00),
        ],
    )
    def test_infinities(self, type_: str, value: int, want: int) -> None:
        report, data = self._run(type_, value)
        assert report.clean and data[3] == want


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

"""Every result that ptxas folds at compile time, through real PTX.

``tests/data/folded-vectors.tsv`` holds what NVIDIA's assembler (ptxas 12.9 to 13.5) computed for
11815 instructions with constant operands.  What it folded exactly, we give bit for bit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import vector_kernels
from vector_kernels import Vector

_DATA = Path(__file__).parents[1] / "data" / "folded-vectors.tsv"
_DTYPES = {"p": np.uint8, "h": np.uint16, "r": np.uint32, "d": np.uint64}
_NAN_LIMIT = {"h": 0x7C00, "r": 0x7F800000, "d": 0x7FF0 << 48}
_GROUP = re.compile(r"\{[^}]*\}|[^,]+")


@dataclass(frozen=True)
class Case:
    """Operands, results, and whether they bind: ``exact``, ``nan``, ``approx`` or ``hint``."""

    operands: tuple[int, ...]
    results: tuple[int, ...]
    kind: str


@dataclass(frozen=True)
class Folded:
    """One instruction and its cases; operand groups have their registers in braces."""

    instruction: str
    operands: tuple[str, ...]
    cases: tuple[Case, ...]

    @property
    def classes(self) -> str:
        """The register classes, results first."""
        return "".join(re.findall("[phrd]", ",".join(self.operands)))

    @property
    def results(self) -> int:
        return len(re.findall("[phrd]", self.operands[0]))

    @property
    def line(self) -> str:
        numbers = iter(range(len(self.classes)))
        operands = re.sub("[phrd]", lambda _: f"%{next(numbers)}", ", ".join(self.operands))
        return f"{self.instruction} {operands};"

    def vector(self) -> Vector:
        columns = zip(*(c.operands for c in self.cases), strict=True)
        classes = self.classes
        return Vector(
            self.line,
            classes,
            [
                np.array(c, _DTYPES[k])
                for c, k in zip(columns, classes[self.results :], strict=True)
            ],
            self.results,
        )


def _words(text: str) -> tuple[int, ...]:
    return tuple(int(word, 16) for word in text.split(","))


def _case(text: str) -> Case:
    operands, result = text.split(">")
    bits, _, kind = result.partition("~")
    return Case(_words(operands), _words(bits), kind or "exact")


@cache
def _table() -> list[Folded]:
    rows = [r.split("\t") for r in _DATA.read_text().splitlines() if not r.startswith("#")]
    return [
        Folded(name, tuple(_GROUP.findall(groups)), tuple(map(_case, cases.split(" "))))
        for name, groups, cases in rows
    ]


def _agrees(got: int, want: int, kind: str, letter: str) -> bool:
    if kind == "nan" and letter in _NAN_LIMIT:
        sign = np.dtype(_DTYPES[letter]).itemsize * 8 - 1
        return got & ((1 << sign) - 1) > _NAN_LIMIT[letter]
    if kind == "approx":
        return abs(got - want) <= 2  # the widest bound of the instructions that fold, in ulps
    return got == want


def _differences(folded: Folded, results: tuple[np.ndarray, ...]) -> list[str]:
    out = []
    for case, *got in zip(folded.cases, *(r.tolist() for r in results), strict=True):
        letters = folded.classes
        pairs = zip(got, case.results, letters, strict=False)
        if not all(_agrees(g, w, case.kind, letter) for g, w, letter in pairs):
            shown = ",".join(f"{o:x}" for o in case.operands)
            out.append(f"{folded.instruction} {shown}: {got}, ptxas {case.results} {case.kind}")
    return out


def _defined(folded: Folded) -> Folded:
    """Without the cases of fns whose base is above 31: the ISA gives them no result."""
    if not folded.instruction.startswith("fns"):
        return folded
    return replace(folded, cases=tuple(c for c in folded.cases if c.operands[1] <= 31))


def _batches() -> list[list[Folded]]:
    table = [_defined(f) for f in _table()]
    return [table[i : i + 60] for i in range(0, len(table), 60)]


@pytest.mark.parametrize("batch", _batches(), ids=lambda b: b[0].instruction)
def test_agrees_with_ptxas(batch: list[Folded]) -> None:
    results = vector_kernels.run([f.vector() for f in batch])
    wrong = [d for f, r in zip(batch, results, strict=True) for d in _differences(f, r)]
    assert not wrong


def test_the_table_is_whole() -> None:
    """Guards the test above against passing for want of rows."""
    kinds = [c.kind for f in _table() for c in f.cases]
    assert {k: kinds.count(k) for k in set(kinds)} == {
        "exact": 11369, "hint": 90, "approx": 324, "nan": 32,
    }  # fmt: skip


def test_a_wrong_result_is_noticed() -> None:
    """One bit more is a difference for an exact row, and no NaN is one for a NaN row."""
    first = _table()[0]
    results = vector_kernels.run([first.vector()])[0]
    assert not _differences(first, results)
    assert len(_differences(first, (results[0] ^ np.uint16(1),))) == len(first.cases)
    assert not _agrees(0x3F800000, 0x7FFFFFFF, "nan", "r")
    assert _agrees(0x7FC00000, 0x7FFFFFFF, "nan", "r")


#: Where the assembler folds something else than the manual says, or than itself in another release.
DISAGREEMENTS = [
    # bfe and bfi of 64 bits: the manual takes position and length from the low 8 bits, ptxas'
    # expansion from all 32.  The manual decides.
    ("bfe.s64 %0, %1, %2, %3;", "d,d,r,r", (0x56DE9A2AF8, 0x80000000, 0x1F), 0xFFFFFFFFDE9A2AF8),
    ("bfi.b64 %0, %1, %2, %3, %4;", "d,d,d,r,r", (0xFF, 0x8AC9, 0x80000000, 0xFFFFFFFF), 0xFF),
    ("bfi.b64 %0, %1, %2, %3, %4;", "d,d,d,r,r", (0x1F, 0x16D8322CE137F, 0x100, 0xFF), 0x1F),
    # fns from a base above 31 is undefined; ptxas folds this to 0, its eleven other ones as we do
    ("fns.b32 %0, %1, %2, %3;", "r,r,r,r", (0x442F2E33, 0x40, 0x80000000), 0xFFFFFFFF),
    # NaN: a host cast keeps the payload, a machine gives the canonical NaN
    ("cvt.rn.f32.f64 %0, %1;", "r,d", (0x7FF8 << 48,), 0x7FFFFFFF),
    ("cvt.rn.ftz.f32.f64 %0, %1;", "r,d", ((0x7FF0 << 48) + 1,), 0x7FFFFFFF),
    # 13.0 takes the most negative number for one that is at least zero, 13.5 does not
    ("slct.s32.s32 %0, %1, %2, %3;", "r,r,r,r", (0x791A6FB, 1, 0x80000000), 1),
    # a tie, which 12.9 and 13.5 round to the odd neighbour
    ("add.rn.ftz.f32 %0, %1, %2;", "r,r,r", (0xCB35E7F8, 0x40200000), 0xCB35E7F6),
]


#: Operands that the manual gives no result, or the assembler another: a finding besides.
_OPEN = ("bf", "fns")


@pytest.mark.parametrize(("line", "classes", "operands", "want"), DISAGREEMENTS)
def test_where_the_assembler_is_wrong(
    line: str, classes: str, operands: tuple[int, ...], want: int
) -> None:
    letters = classes.split(",")[1:]
    columns = [np.array([o], _DTYPES[k]) for o, k in zip(operands, letters, strict=True)]
    found = "undefined-result" if line.startswith(_OPEN) else ""
    assert vector_kernels.run_one(line, classes, *columns, finding=found).tolist() == [want]

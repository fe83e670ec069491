"""Integer, bit, comparison, selection, video and move instructions, through PTX, by plain rules.

Every modifier list of every form runs.  By default rows are few and of ``set`` and ``setp`` a
seeded choice; the slow test runs all with many rows.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import rational_model
import vector_kernels
from bit_model import RULES
from form_lines import Line, lines
from vector_kernels import Vector

from ptxsim.numerics.formats import FORMATS
from ptxsim.types import ScalarType
from tests.accepted_lines import Place, verdicts

#: float arithmetic has a test of its own
ARITHMETIC = {"add", "sub", "mul", "mad", "div"}
#: a choice of these is enough by default
_MANY = {"set": 300, "setp": 200}
_DTYPES: dict[str, Any] = {
    "b": np.uint8,
    "p": np.uint8,
    "h": np.uint16,
    "r": np.uint32,
    "d": np.uint64,
}


def is_float(line: Line) -> bool:
    return any(t.kind == "f" or t.name.startswith(("bf", "f")) for t in line.types)


def _lines(name: str, seed: int, whole: bool) -> list[Line]:
    rng = random.Random(seed)
    found = [
        line
        for line in lines(name, rng)
        if not (name in ARITHMETIC and is_float(line)) and "q" not in line.classes
    ]
    if not whole and name in _MANY:
        found = rng.sample(found, _MANY[name])
    return found


def _column(type_: ScalarType, rng: np.random.Generator, rows: int) -> np.ndarray:
    if type_.kind == "p":
        return rng.integers(0, 2, rows).astype(np.uint8)
    name = type_.name.removesuffix("x2")
    if name in FORMATS:
        parts = [rational_model.patterns(rng, FORMATS[name], rows) for _ in range(2)]
        if not type_.name.endswith("x2"):
            return parts[0]
        return np.stack(parts, axis=1).reshape(-1).view(f"u{2 * parts[0].itemsize}")
    width = type_.bits
    raw = rng.integers(0, 2**64, rows, dtype=np.uint64) >> np.uint64(64 - width)
    lengths = rng.integers(0, width, rows).astype(np.uint64)
    top = 1 << (width - 1)
    edges = [0, 1, 2, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 257, top, top - 1,
             top + 1, 2 * top - 1, 2 * top - 2, 0x80000000 % (2 * top)]  # fmt: skip
    table = np.array([e % (2 * top) for e in edges], np.uint64)
    kind = rng.integers(0, 4, rows)
    words = np.choose(kind, [raw, raw >> lengths, rng.choice(table, rows), rng.choice(table, rows)])
    return words.astype(_DTYPES[{8: "b", 16: "h", 32: "r", 64: "d"}[width]])


#: sources that must not have every value: (mnemonic, source) -> what makes them right
_BOUNDS: dict[tuple[str, int], Any] = {
    ("div", 1): lambda c: c + (c == 0).astype(c.dtype),
    ("rem", 1): lambda c: c + (c == 0).astype(c.dtype),
    ("fns", 1): lambda c: c & np.uint32(31),
    ("bfe", 1): lambda c: c & np.uint32(255),
    ("bfe", 2): lambda c: c & np.uint32(255),
    ("bfi", 2): lambda c: c & np.uint32(255),
    ("bfi", 3): lambda c: c & np.uint32(255),
}


def _columns(line: Line, rng: np.random.Generator, rows: int) -> list[np.ndarray]:
    columns = [_column(type_, rng, rows) for type_ in line.types[line.results :]]
    if len(columns) > 1 and columns[0].dtype == columns[1].dtype:  # equal operands are rare
        columns[1][: rows // 8] = columns[0][: rows // 8]
    for n, column in enumerate(columns):
        bound = _BOUNDS.get((line.record.name, n))
        # of 32 bits the fields of bfe and bfi have one meaning
        if bound and not (line.record.name in ("bfe", "bfi") and line.types[0].bits == 32):
            columns[n] = bound(column)
    if line.carries:
        columns.append(rng.integers(0, 2, rows).astype(np.uint32))
    return columns


def _joined(part: list[Line], columns: list[np.ndarray]) -> tuple[Vector, list[int]]:
    """One kernel for several lines with the same sources, and where the results of each begin."""
    texts, classes, begins = [], [], []
    total = sum(line.results + line.carries for line in part)
    for line in part:
        begins.append(len(classes))
        numbers = {n: len(classes) + n for n in range(line.results)}
        numbers.update(
            {n: total + n - line.results for n in range(line.results, len(line.classes))}
        )
        text = re.sub(r"%(\d+)", lambda found, n=numbers: f"%{n[int(found[1])]}", line.text)  # type: ignore[misc]
        classes += line.classes[: line.results]
        if line.carries:
            flag = len(classes)
            classes.append("r")
            given = total + len(line.classes) - line.results
            text = f"add.cc.u32 %{flag}, %{given}, -1; {text} addc.u32 %{flag}, 0, 0;"
        texts.append(text)
    sources = [*part[0].classes[part[0].results :], *(["r"] if part[0].carries else [])]
    return Vector(" ".join(texts), classes + sources, columns, results=total), begins


def _wanted(line: Line, row: tuple[int, ...]) -> list[int]:
    values = [v ^ 1 if n + line.results in line.negated else v for n, v in enumerate(row)]
    results = RULES[line.record.name](line.words, values)
    widths = [t.bits for t in line.types[: line.results]] + [1] * line.carries
    return [int(r) & ((1 << w) - 1) for r, w in zip(results, widths, strict=False)]


def _same(line: Line, got: list[int], want: list[int]) -> bool:
    """neg, and abs of all but f64, give some NaN for a NaN."""
    if got == want:
        return True
    name = line.types[0].name
    if line.record.name not in ("abs", "neg") or name not in ("f16", "bf16", "f32", "f64"):
        return False
    if line.record.name == "abs" and name == "f64":
        return False
    width = line.types[0].bits
    limit = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0 << 48}[name]
    mask = (1 << (width - 1)) - 1
    return got[0] & mask > limit and want[0] & mask > limit


def _check(names: tuple[str, ...], rows: int, whole: bool, seed: int = 1) -> None:
    groups: dict[Any, list[Line]] = defaultdict(list)
    for name in names:
        for line in _lines(name, seed, whole):
            bound = name if any(key[0] == name for key in _BOUNDS) else ""
            types = tuple((t.name, t.bits) for t in line.types[line.results :])
            groups[bound, types, line.carries].append(line)
    rng = np.random.default_rng(seed)
    jobs = []
    for found in groups.values():
        for start in range(0, len(found), 40):
            part = found[start : start + 40]
            columns = _columns(part[0], rng, rows)
            vector, begins = _joined(part, columns)
            jobs.append((part, begins, vector))
    # packed bytes are of this family only
    answers = vector_kernels.run([job[2] for job in jobs], target="sm_120a")
    for (part, begins, vector), results in zip(jobs, answers, strict=True):
        inputs = list(zip(*(c.tolist() for c in vector.columns), strict=True))
        for line, begin in zip(part, begins, strict=True):
            own = results[begin : begin + line.results + line.carries]
            outputs = zip(*(r.tolist() for r in own), strict=True)
            for row, got in zip(inputs, map(list, outputs), strict=True):
                want = _wanted(line, row)
                assert _same(line, got, want), (
                    f"{line.text} {[hex(v) for v in row]}: {[hex(g) for g in got]},"
                    f" not {[hex(w) for w in want]}"
                )


FAMILIES = [
    ("add", "sub", "addc", "subc", "mul", "mad", "madc", "mul24", "mad24", "sad", "div", "rem"),
    ("dp4a", "dp2a", "abs", "neg", "min", "max", "copysign", "testp"),
    ("set",),
    ("setp",),
    ("selp", "slct", "mov"),
    ("popc", "clz", "bfind", "fns", "brev", "bfe", "bfi", "szext", "bmsk", "cnot"),
    ("and", "or", "xor", "not", "shl", "shr", "shf", "lop3", "prmt"),
    ("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vset", "vmad"),
    tuple(
        f"v{o}{n}" for o in ("add", "sub", "avrg", "absdiff", "min", "max", "set") for n in (2, 4)
    ),
]


@pytest.mark.parametrize("names", FAMILIES, ids=lambda names: names[0])
def test_rules(names: tuple[str, ...]) -> None:
    _check(names, rows=24, whole=False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize("names", FAMILIES, ids=lambda names: names[0])
def test_rules_at_length(names: tuple[str, ...], seed: int) -> None:
    _check(names, rows=4_000, whole=True, seed=seed)


WIDE = [
    # PTX ISA 9.2, "mov": the first element is the lowest
    ("mov.b128 %0, %1;", "q,q", [(1, 2)], [(1, 2)]),
    ("mov.b128 %0, {%1, %2};", "q,d,d", [3, 4], [(3, 4)]),
    ("mov.b128 {%0, %1}, %2;", "d,d,q", [(5, 6)], [5, 6]),
    ("mov.b128 %0, {%1, %2, %3, %4};", "q,r,r,r,r", [1, 2, 3, 4], [(1 | 2 << 32, 3 | 4 << 32)]),
    ("mov.b128 {%0, %1, %2, %3}, %4;", "r,r,r,r,q", [(1 | 2 << 32, 3 | 4 << 32)], [1, 2, 3, 4]),
    ("mov.b128 {_, %0}, %1;", "d,q", [(7, 8)], [8]),
]


@pytest.mark.parametrize(("line", "classes", "given", "want"), WIDE)
def test_moves_of_128_bits(line: str, classes: str, given: list[Any], want: list[Any]) -> None:
    letters = classes.split(",")
    pair = np.dtype("u8, u8")
    columns = [
        np.array([v], pair if k == "q" else _DTYPES[k])
        for v, k in zip(given, letters[len(want) :], strict=True)
    ]
    ((results),) = vector_kernels.run([Vector(line, letters, columns, len(want))])
    assert [r.tolist()[0] for r in results] == want


@pytest.mark.parametrize(
    ("line", "version", "target", "code"),
    [
        # PTX ISA 9.2, "add", "sub", "neg", "min": version 9.2, sm_120f or higher in its family
        ("add.s8x4.sat %r1, %r2, %r3;", "9.2", "sm_120a", "legal"),  # an example of the page
        ("add.sat.u32 %r1, %r2, %r3;", "9.2", "sm_121a", "legal"),
        ("add.sat.u32 %r1, %r2, %r3;", "9.1", "sm_120a", "PTX107"),
        ("add.sat.u16x2 %r1, %r2, %r3;", "9.2", "sm_120", "PTX107"),
        ("neg.s8x4 %r1, %r2;", "9.2", "sm_120f", "legal"),
        ("neg.s8x4 %r1, %r2;", "9.2", "sm_100a", "PTX107"),
        ("min.relu.s8x4 %r1, %r2, %r3;", "9.1", "sm_120a", "PTX107"),
        ("sub.u16x2 %r1, %r2, %r3;", "9.2", "sm_120a", "PTX104"),
        ("add.sat.u64 %rd1, %rd2, %rd3;", "9.2", "sm_120a", "PTX104"),
        ("min.relu.u8x4 %r1, %r2, %r3;", "9.2", "sm_120a", "PTX104"),
    ],
)
def test_floors_of_packed_bytes(line: str, version: str, target: str, code: str) -> None:
    assert verdicts([(line, Place(version, target))])[0][0] == code


def test_every_rule_is_in_a_family() -> None:
    assert sorted(name for names in FAMILIES for name in names) == sorted(RULES)


def test_a_wrong_rule_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: a rule whose result is one off."""
    right = RULES["popc"]
    monkeypatch.setitem(RULES, "popc", lambda m, v: (right(m, v)[0] + 1,))
    with pytest.raises(AssertionError, match="popc"):
        _check(("popc",), rows=4, whole=False)

"""The approximate instructions: what PTX allows them, and how far our results are from the truth.

As a program it prints the page ``docs/approximations.md``::

    PYTHONPATH=.:tests/isa python tests/isa/approximations.py > docs/approximations.md

The truth is float64 of the host's mathematical library, or float64 with a correction by exact
integers where the result itself is a float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import vector_kernels
from scalar_model import LAYOUTS
from vector_kernels import Vector

__all__ = ["RANGES", "SPECIALS", "Range", "Special", "allowed", "inputs", "page", "worst"]

Floats = npt.NDArray[np.float64]
Function = Callable[..., Floats]

_PI = math.pi
_FORMATS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}


def _reciprocal(x: Floats) -> Floats:
    result: Floats = 1.0 / x
    return result


def _sine_of_turns(x: Floats) -> Floats:
    """The sine of turns, of which whole ones fall away exactly."""
    result: Floats = np.sin(2 * _PI * np.fmod(x, 1.0))
    return result


def _cosine_of_turns(x: Floats) -> Floats:
    result: Floats = np.cos(2 * _PI * np.fmod(x, 1.0))
    return result


def _root(x: Floats) -> Floats:
    result: Floats = 1.0 / np.sqrt(x)
    return result


@dataclass(frozen=True)
class Range:
    """One bound of the manual: an instruction, its operands, the measure and the limit.

    ``measure`` is ``ulp`` (of the exact value), ``relative`` or ``absolute``.  ``limit`` is None
    where the manual gives no number.  Operands have magnitudes from ``low`` to ``high``, and both
    signs unless ``positive``.
    """

    instruction: str
    function: Function
    measure: str
    limit: float | None
    section: str
    low: float
    high: float
    positive: bool = False
    note: str = ""

    @property
    def type(self) -> str:
        return self.instruction.split(".")[-1].removesuffix("x2")

    @property
    def operands(self) -> int:
        return 2 if self.instruction.startswith("div") else 1

    @property
    def ftz(self) -> bool:
        return "ftz" in self.instruction


_INF = math.inf
_TINY, _HUGE = 2.0**-149, 2.0**128
_F = "Floating Point Instructions: "
_H = "Half Precision Floating Point Instructions: "


def _both(name: str, *rest: Any, **more: Any) -> list[Range]:
    """With and without .ftz."""
    return [Range(f"{name}.approx{f}.f32", *rest, **more) for f in ("", ".ftz")]


def _divide(a: Floats, b: Floats) -> Floats:
    result: Floats = a / b
    return result


RANGES: list[Range] = [
    *_both("rcp", _reciprocal, "ulp", 1, _F + "rcp", _TINY, _HUGE),
    *_both("sqrt", np.sqrt, "relative", 2**-23, _F + "sqrt", _TINY, _HUGE, True),
    *_both("rsqrt", _root, "relative", 2**-22.9, _F + "rsqrt", _TINY, _HUGE, True),
    *_both("sin", np.sin, "absolute", 2**-20.5, _F + "sin", 0, 2 * _PI),
    *_both("sin", np.sin, "absolute", 2**-14.7, _F + "sin", 2 * _PI, 100 * _PI),
    *_both("sin", np.sin, "absolute", None, _F + "sin", 100 * _PI, 2.0**40),
    *_both("cos", np.cos, "absolute", 2**-20.5, _F + "cos", 0, 2 * _PI),
    *_both("cos", np.cos, "absolute", 2**-14.7, _F + "cos", 2 * _PI, 100 * _PI),
    *_both("cos", np.cos, "absolute", None, _F + "cos", 100 * _PI, 2.0**40),
    *(
        Range(f"{name}.approx.ftz.2pi.f32", turns, "absolute", None, _F + name, low, high,
              note="turns")
        for name, turns in (("sin", _sine_of_turns), ("cos", _cosine_of_turns))
        for low, high in ((0, 1), (1, 2.0**40))
    ),
    *_both("lg2", np.log2, "absolute", 2**-22, _F + "lg2", 0.5, 2.0, True),
    *_both("lg2", np.log2, "relative", 2**-22, _F + "lg2", _TINY, 0.5, True),
    *_both("lg2", np.log2, "relative", 2**-22, _F + "lg2", 2.0, _HUGE, True),
    *_both("ex2", np.exp2, "ulp", 2, _F + "ex2", 0, 151.0),
    Range("tanh.approx.f32", np.tanh, "relative", 2**-11, _F + "tanh", _TINY, _HUGE),
    *(
        Range(f"div.{how}{f}.f32", _divide, "ulp", 2, _F + "div", low, high)
        for how, low, high in (("approx", 2.0**-126, 2.0**126), ("full", _TINY, _HUGE))
        for f in ("", ".ftz")
    ),
    Range("rcp.approx.ftz.f64", _reciprocal, "relative", None, _F + "rcp.approx.ftz.f64",
          2.0**-1022, 2.0**1022, note="from and to the upper words"),
    Range("rsqrt.approx.ftz.f64", _root, "relative", None, _F + "rsqrt.approx.ftz.f64",
          2.0**-1022, 2.0**1023, True, note="from and to the upper words"),
    Range("rsqrt.approx.f64", _root, "relative", None, _F + "rsqrt", 2.0**-1022, 2.0**1023, True),
    Range("ex2.approx.f16", np.exp2, "relative", 2**-9.9, _H + "ex2", 0, 14.0,
          note="results below the normal numbers are within half of their unit"),
    Range("ex2.approx.ftz.bf16", np.exp2, "relative", 2**-7, _H + "ex2", 0, 126.0),
    Range("tanh.approx.f16", np.tanh, "absolute", 2**-10.987, _H + "tanh", 0, 65504.0),
    Range("tanh.approx.bf16", np.tanh, "absolute", 2**-8, _H + "tanh", 0, 2.0**127),
]  # fmt: skip


@dataclass(frozen=True)
class Special:
    """What the manual's table of an instruction says of its special operands.

    ``results`` are for -inf, -normal, -subnormal, -0, +0, +subnormal, +inf and NaN in this order;
    ``""`` where the table has no entry, ``id`` for the operand itself.
    """

    instruction: str
    results: tuple[str, ...]


_ZERO_FROM = ("-0", "", "-inf", "-inf", "+inf", "+inf", "+0", "nan")

SPECIALS: list[Special] = [
    Special("rcp.approx.f32", ("-0", "", "", "-inf", "+inf", "", "+0", "nan")),
    Special("rcp.approx.ftz.f32", _ZERO_FROM),
    Special("rcp.approx.ftz.f64", _ZERO_FROM),
    Special("sqrt.approx.f32", ("nan", "nan", "nan", "-0", "+0", "", "+inf", "nan")),
    Special("sqrt.approx.ftz.f32", ("nan", "nan", "-0", "-0", "+0", "+0", "+inf", "nan")),
    Special("rsqrt.approx.f32", ("nan", "nan", "nan", "-inf", "+inf", "", "+0", "nan")),
    Special("rsqrt.approx.ftz.f32", ("nan", "nan", "-inf", "-inf", "+inf", "+inf", "+0", "nan")),
    Special("rsqrt.approx.f64", ("nan", "nan", "nan", "-inf", "+inf", "", "+0", "nan")),
    Special("rsqrt.approx.ftz.f64", ("nan", "nan", "-inf", "-inf", "+inf", "+inf", "+0", "nan")),
    Special("sin.approx.f32", ("nan", "", "", "-0", "+0", "", "nan", "nan")),
    Special("sin.approx.ftz.f32", ("nan", "", "-0", "-0", "+0", "+0", "nan", "nan")),
    Special("cos.approx.f32", ("nan", "", "+1", "+1", "+1", "+1", "nan", "nan")),
    Special("cos.approx.ftz.f32", ("nan", "", "+1", "+1", "+1", "+1", "nan", "nan")),
    # with .2pi the tables of sin and cos as they are
    Special("sin.approx.ftz.2pi.f32", ("nan", "", "-0", "-0", "+0", "+0", "nan", "nan")),
    Special("cos.approx.ftz.2pi.f32", ("nan", "", "+1", "+1", "+1", "+1", "nan", "nan")),
    Special("lg2.approx.f32", ("nan", "nan", "nan", "-inf", "-inf", "", "+inf", "nan")),
    Special("lg2.approx.ftz.f32", ("nan", "nan", "-inf", "-inf", "-inf", "-inf", "+inf", "nan")),
    Special("ex2.approx.f32", ("+0", "", "+1", "+1", "+1", "+1", "+inf", "nan")),
    Special("ex2.approx.ftz.f32", ("+0", "", "+1", "+1", "+1", "+1", "+inf", "nan")),
    Special("ex2.approx.f16", ("+0", "", "+1", "+1", "+1", "+1", "+inf", "nan")),
    Special("ex2.approx.ftz.bf16", ("+0", "", "+1", "+1", "+1", "+1", "+inf", "nan")),
    Special("tanh.approx.f32", ("-1", "", "id", "-0", "+0", "id", "+1", "nan")),
    Special("tanh.approx.f16", ("-1", "", "id", "-0", "+0", "id", "+1", "nan")),
    Special("tanh.approx.bf16", ("-1", "", "id", "-0", "+0", "id", "+1", "nan")),
]

# --- patterns and values --------------------------------------------------------------------------


def values(bits: npt.NDArray[Any], type_: str) -> Floats:
    """Patterns as float64."""
    if type_ == "bf16":
        bits, type_ = bits.astype(np.uint32) << np.uint32(16), "f32"
    return bits.view(f"f{_FORMATS[type_] // 8}").astype(np.float64)


def _pattern(value: float, type_: str) -> int:
    """The pattern of a positive number, rounded down."""
    if type_ == "f64":
        return int(np.float64(min(value, 1.7e308)).view(np.uint64))
    largest = LAYOUTS[type_].largest
    low, high = 0, largest
    while low < high:  # patterns of positive numbers are in their order
        middle = (low + high + 1) // 2
        one = np.array([middle], f"u{_FORMATS[type_] // 8}")
        low, high = (middle, high) if values(one, type_)[0] <= value else (low, middle - 1)
    return low


def inputs(r: Range, count: int) -> npt.NDArray[Any]:
    """About ``count`` patterns spread evenly over a range, both ends among them."""
    first, last = _pattern(r.low, r.type), _pattern(r.high, r.type)
    span = last - first
    step = max(1, span // count) | 1
    dtype = f"u{_FORMATS[r.type] // 8}"
    steps = np.arange(min(count, span // step + 1), dtype=np.uint64)
    bits = (np.uint64(first) + steps * np.uint64(step)).astype(dtype)
    bits = np.append(bits, np.array([last], dtype))
    if r.positive:
        return bits
    sign = np.dtype(dtype).type(LAYOUTS[r.type].sign)
    return np.concatenate([bits, bits | sign])


# --- errors ---------------------------------------------------------------------------------------


def _unit(exact: Floats, type_: str) -> Floats:
    """The distance of two numbers of a format at an exact value."""
    layout = LAYOUTS[type_]
    _, exponent = np.frexp(np.abs(exact))
    lowest = np.maximum(exponent - 1, layout.lowest)
    return np.ldexp(1.0, lowest - layout.mantissa_bits)


def _flushed(x: Floats, r: Range) -> Floats:
    """Subnormals as zero where the instruction does so."""
    limit = 2.0 ** LAYOUTS[r.type].lowest
    return np.where(np.abs(x) < limit, np.copysign(0.0, x), x) if r.ftz else x


def _truth(r: Range, sources: list[Floats]) -> Floats:
    with np.errstate(all="ignore"):
        return _flushed(r.function(*(_flushed(s, r) for s in sources)), r)


def errors(r: Range, columns: list[npt.NDArray[Any]]) -> Floats:
    """The error of each row, in the unit of the range's measure; NaN where the truth is no number.

    A result beyond the largest number counts by what it is rounded to.
    """
    letters = {"f16": "h", "bf16": "h", "f32": "r", "f64": "d"}[r.type]
    text = f"{r.instruction} " + ", ".join(f"%{n}" for n in range(len(columns) + 1)) + ";"
    ((got,),) = vector_kernels.run([Vector(text, letters * (len(columns) + 1), columns)])
    exact = _truth(r, [values(c, r.type) for c in columns])
    result = values(got, r.type)
    finite = np.isfinite(exact) & np.isfinite(result)
    with np.errstate(all="ignore"):
        distance = np.abs(result - exact)
        if r.type == "f64" and r.limit is None and "ftz" not in r.instruction:
            distance = _exact_distance(columns[0], result)
        if r.measure == "ulp":
            error = distance / _unit(exact, r.type)
        elif r.measure == "relative":
            error = distance / np.abs(exact)
        else:
            error = distance
    error = np.where((exact == 0) & (result == 0), 0.0, error)
    top = values(np.array([LAYOUTS[r.type].largest], got.dtype), r.type)[0]
    overflown = (np.abs(exact) > top) & ~np.isfinite(result)
    return np.where(overflown, 0.0, np.where(finite, error, np.nan))


def _exact_distance(bits: npt.NDArray[Any], result: Floats) -> Floats:
    """How far results are from reciprocal square roots, by exact integers: |1 - x r r| / 2."""
    out = []
    for x, y in zip(values(bits, "f64").tolist(), result.tolist(), strict=True):
        rest = abs(1 - Fraction(x) * Fraction(y) * Fraction(y)) / 2
        out.append(float(rest) * y)
    return np.array(out)


def worst(r: Range, count: int) -> tuple[float, int, str]:
    """The largest error over a range, how many rows were tried, and an operand that has it."""
    columns = [inputs(r, count)]
    if r.operands == 2:
        rng = np.random.default_rng(1)
        whole = Range(r.instruction, r.function, "ulp", 2, "", _TINY, _HUGE)
        columns.insert(0, rng.permutation(inputs(whole, len(columns[0])))[: len(columns[0])])
        columns[0] = np.resize(columns[0], len(columns[1]))
    elif r.type == "f64" and not r.ftz:
        columns = [columns[0][:: max(1, len(columns[0]) // 20_000)]]
    found = errors(r, columns)
    at = int(np.nanargmax(found))
    return float(found[at]), len(found), ", ".join(f"{int(c[at]):#x}" for c in columns)


def allowed(r: Range) -> float:
    """The limit, or infinity where there is none."""
    return math.inf if r.limit is None else r.limit


# --- the page -------------------------------------------------------------------------------------

_HEAD = """\
# Approximate instructions

What the PTX ISA calls approximate is computed here in float64 by the host's library and rounded
once to the type of the result. Machines use tables and differ from this within the bounds of the
manual, so such results are compared with a tolerance. Special operands give exactly what the
manual's tables say. The errors were measured over {rows} operands spread evenly over the patterns
of each range, against float64 (the exact value where the result is a float64 itself);
`tests/isa/approximations.py` prints this page, and a test holds its figures.

| instruction | magnitude of the operand | bound of the ISA | largest error found | section |
|---|---|---|---|---|
"""


def _number(x: float) -> str:
    """A power of two where it is one, else three digits."""
    if x == 0:
        return "0"
    power = math.log2(x)
    if x < 0.01:
        return f"2^{power:.2f}".removesuffix("0").removesuffix(".0")
    return f"{x:.3g}"


def _end(x: float) -> str:
    pis = {2 * _PI: "2π", 100 * _PI: "100π"}
    if x in pis:
        return pis[x]
    power = math.log2(x) if x else 0
    return f"2^{power:.0f}" if x and power == int(power) and abs(power) > 3 else f"{x:g}"


def page(count: int = 1 << 20) -> str:
    """The table of all ranges."""
    lines, rows = [], 0
    for r in RANGES:
        error, tried, _ = worst(r, count)
        rows += tried
        unit = {"ulp": " ulp", "relative": " relative", "absolute": ""}[r.measure]
        limit = "none" if r.limit is None else _number(r.limit) + unit
        note = f" ({r.note})" if r.note else ""
        lines.append(
            f"| `{r.instruction}` | {_end(r.low)} to {_end(r.high)}{note} | {limit} |"
            f" {_number(error)}{unit} | {r.section} |"
        )
    return _HEAD.format(rows=f"{rows:,}") + "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")

"""Real numbers with an error bound, and the multiply-accumulate of matrices on them.

What a GPU computes with floating-point cooperative matrices is not one value: the order of the
additions and the cut of each are open.  So a value is known as an exact real number (a rational)
and a bound on how far the computed value may be from it.  NumPy and rationals only; nothing here
knows PTX.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .vocabulary import COMPONENTS, Config

__all__ = [
    "FORMATS",
    "Bounded",
    "Format",
    "Open",
    "OracleError",
    "Reals",
    "add_products",
    "arithmetic",
    "compare",
    "convert",
    "decode_floats",
    "encode_floats",
    "integers",
    "interpret",
    "multiply",
    "round_to",
]

Array = NDArray[Any]

#: Rounds a float64 upper bound up: more than the errors of the few operations that made it.
_UP = 1 + 2.0**-30
_TINY = 2.0**-1074


@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating-point format: bits of the significand, exponents of normal numbers."""

    digits: int
    low: int
    high: int

    @property
    def step(self) -> int:
        """The exponent of the smallest subnormal number."""
        return self.low - self.digits + 1

    @property
    def unit(self) -> float:
        """The largest relative error of a rounding in any direction."""
        return 2.0 ** (1 - self.digits)

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return math.ldexp(2 - 2.0 ** (1 - self.digits), self.high)


FORMATS = {
    "f16": Format(11, -14, 15), "bf16": Format(8, -126, 127), "tf32": Format(11, -126, 127),
    "f32": Format(24, -126, 127), "f64": Format(53, -1022, 1023),
    "float16": Format(11, -14, 15), "bfloat16": Format(8, -126, 127),
    "float32": Format(24, -126, 127), "float64": Format(53, -1022, 1023),
}  # fmt: skip


class OracleError(ValueError):
    """A kernel that has no meaning, or none for these arguments."""


class Open(OracleError):
    """A question that the bound of a value leaves open."""


def round_to(value: Fraction, target: Format) -> float:
    """The number of a format nearest to a real one, ties to even; infinity above the largest.

    >>> round_to(Fraction(2049), FORMATS["f16"])
    2048.0
    """
    if not value:
        return 0.0
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1
    step = max(exponent, target.low) - target.digits + 1
    count = round(size / Fraction(2) ** step)
    if count * Fraction(2) ** step > Fraction(target.largest):
        return math.copysign(math.inf, value)
    return math.copysign(math.ldexp(count, step), value)


@dataclass(frozen=True, slots=True, eq=False)
class Reals:
    """An array of numbers known up to a bound.

    Bound 0: the computed number is exactly ``value``, which may be infinite or NaN.  A positive
    finite bound: it is within the bound of the rational in ``centre``.  An infinite bound: nothing
    is known of it.  ``centre`` is None where no element has a positive finite bound.
    """

    value: Array
    bound: Array
    centre: Array | None = None

    @classmethod
    def exactly(cls, value: Array) -> Reals:
        """Numbers without error."""
        with np.errstate(invalid="ignore"):  # a signalling NaN
            values = np.asarray(value, dtype=np.float64)
        return cls(values, np.zeros(values.shape))

    @property
    def exact(self) -> bool:
        """Whether no element has an error."""
        return not self.bound.any()

    @property
    def unknown(self) -> Array:
        """Where nothing is known."""
        return np.isinf(self.bound)

    @property
    def finite(self) -> Array:
        """Where the number is known to be finite."""
        return np.isfinite(self.bound) & ((self.bound > 0) | np.isfinite(self.value))

    def __getitem__(self, index: Any) -> Reals:
        centre = None if self.centre is None else self.centre[index]
        return Reals(self.value[index], self.bound[index], centre)

    def updated(self, index: Any, new: Reals) -> Reals:
        """A copy with new elements at an index."""
        value, bound = self.value.copy(), self.bound.copy()
        value[index], bound[index] = new.value, new.bound
        centre = self.centre
        if centre is not None or new.centre is not None:
            centre = self._centres().copy()
            centre[index] = new._centres()
        return Reals(value, bound, centre)

    def put(self, index: Any, new: Reals) -> Reals:
        """Like :meth:`updated`, in place where that is possible."""
        if self.centre is None and new.centre is not None:
            return self.updated(index, new)
        self.value[index], self.bound[index] = new.value, new.bound
        if self.centre is not None:
            self.centre[index] = new._centres()
        return self

    def _centres(self) -> Array:
        if self.centre is None:
            return np.full(self.value.shape, None, dtype=object)
        return self.centre

    def rationals(self) -> Array:
        """The exact real numbers; 0 where the number is not finite or not known."""
        out = np.empty(self.value.shape, dtype=object)
        finite, centres = self.finite, self._centres()
        for at in np.ndindex(self.value.shape):
            if not finite[at]:
                out[at] = Fraction(0)
            elif self.bound[at]:
                out[at] = centres[at]
            else:
                out[at] = Fraction(float(self.value[at]))
        return out

    def magnitude(self) -> Array:
        """An upper bound of the absolute values; 0 where the number is not finite or not known."""
        finite = self.finite
        size = np.where(finite & (self.bound == 0), np.abs(self.value), 0.0)
        if self.centre is not None:
            for at in np.argwhere(finite & (self.bound > 0)):
                place = tuple(at)
                size[place] = _above(abs(self.centre[place])) + self.bound[place] * _UP
        return size


def _above(size: Fraction) -> float:
    """A float64 not below a rational that is not negative."""
    try:
        near = float(size)
    except OverflowError:
        return math.inf
    return near * _UP + _TINY if size else 0.0


def _bounded(centre: Any, bound: Array, limit: Format) -> Reals:
    """Rationals with bounds; unknown where the format may overflow."""
    value = np.zeros(centre.shape)
    for at in np.ndindex(centre.shape):
        if bound[at] == 0:
            value[at] = float(centre[at])
        elif _above(abs(centre[at])) + bound[at] > limit.largest:
            bound[at] = math.inf
    return Reals(value, bound, centre if (np.isfinite(bound) & (bound > 0)).any() else None)


# --- one operation at a time ----------------------------------------------------------------------

_IEEE: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
}  # fmt: skip


def arithmetic(op: str, x: Reals, y: Reals, type_: str) -> Reals:
    """``add``, ``sub``, ``mul`` or ``div`` in float32 or float64.

    Numbers without error get one IEEE rounding to nearest even.  With errors the result is the
    exact one of the centres; its bound is the error that the operands bring (first line) plus one
    rounding of the computed result, of at most a unit of its size or of the smallest subnormal:

        add, sub: bx + by    mul: |x| by + |y| bx + bx by    div: (bx + |x / y| by) / (|y| - by)
    """
    with np.errstate(all="ignore"):
        native = _IEEE[op](x.value.astype(type_), y.value.astype(type_)).astype(np.float64)
    result = Reals.exactly(native)
    loose = (x.bound > 0) | (y.bound > 0)
    if loose.any():
        result = result.updated(loose, _loose(op, x[loose], y[loose], FORMATS[type_]))
    return result


def _loose(op: str, x: Reals, y: Reals, form: Format) -> Reals:
    centres, bounds = np.full(x.value.shape, Fraction(0), dtype=object), np.zeros(x.value.shape)
    special = np.zeros(x.value.shape)
    left, right, known = x.rationals(), y.rationals(), x.finite & y.finite
    for at in range(len(left)):
        if known[at]:
            centres[at], bounds[at] = _one(op, left[at], right[at], x.bound[at], y.bound[at])
            size = _above(abs(centres[at])) + bounds[at]
            bounds[at] = (bounds[at] + size * form.unit) * _UP + 4 * 2.0**form.step
            continue
        outer = [v.value[at] for v in (x, y) if v.bound[at] == 0 and not np.isfinite(v.value[at])]
        if any(np.isnan(v) for v in outer):
            special[at] = math.nan
        elif outer and op in ("add", "sub") and not (x.unknown | y.unknown)[at]:
            special[at] = -outer[0] if op == "sub" and x.finite[at] else outer[0]
        else:
            bounds[at] = math.inf
    result = _bounded(centres, bounds, form)
    return Reals(np.where(special != 0, special, result.value), result.bound, result.centre)


def _one(op: str, x: Fraction, y: Fraction, bx: float, by: float) -> tuple[Fraction, float]:
    match op:
        case "add":
            return x + y, bx + by
        case "sub":
            return x - y, bx + by
        case "mul":
            return x * y, _above(abs(x)) * by + _above(abs(y)) * bx + bx * by
    room = abs(y) - Fraction(float(by))
    if room <= 0:
        return Fraction(0), math.inf
    quotient = x / y
    brought = (Fraction(float(bx)) + abs(quotient) * Fraction(float(by))) / room
    # The centre stays a dyadic number: the quotient is cut at 2^-80 of its size.
    places = 80 + quotient.denominator.bit_length() - quotient.numerator.bit_length()
    near = Fraction(round(quotient * Fraction(2) ** places)) / Fraction(2) ** places
    return near, _above(brought + abs(quotient - near))


def compare(op: str, x: Reals, y: Reals, active: Array) -> Array:
    """``eq``, ``ne``, ``lt``, ``le``, ``gt`` or ``ge``, of which all but ``ne`` are false of a NaN.

    Raises :class:`Open` where a bound leaves the answer open in an active lane.
    """
    ask: Callable[[Any, Any], Any] = getattr(np, _COMPARED[op])
    with np.errstate(all="ignore"):
        result: Array = ask(x.value, y.value)
    for (at,) in np.argwhere(active & ((x.bound > 0) | (y.bound > 0))):
        first, second = _interval(x, at), _interval(y, at)
        if first is None or second is None:
            raise Open(f"a value that may be anything is compared ({op})")
        if first[0] != first[0] or second[0] != second[0]:  # a NaN
            result[at] = op == "ne"
            continue
        below, above = first[1] < second[0], second[1] < first[0]
        touching = first[1] == second[0], second[1] == first[0]
        if below or above:
            result[at] = op == "ne" or op in (("lt", "le") if below else ("gt", "ge"))
        elif touching[0] and op in ("le", "gt"):
            result[at] = op == "le"
        elif touching[1] and op in ("ge", "lt"):
            result[at] = op == "ge"
        else:
            raise Open(f"the bound of a value leaves a comparison ({op}) open")
    return result


_COMPARED = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal",
}  # fmt: skip


def _interval(x: Reals, at: int) -> tuple[Any, Any] | None:
    """The least and the largest that an element may be; both NaN for a NaN, None if not known."""
    bound = float(x.bound[at])
    if math.isinf(bound):
        return None
    if bound == 0:
        value = float(x.value[at])
        exact = Fraction(value) if math.isfinite(value) else value
        return exact, exact
    centre = x._centres()[at]
    return centre - Fraction(bound), centre + Fraction(bound)


def convert(x: Reals, target: str) -> Reals:
    """float32 or float64 from the other one; the rounding to float32 is to nearest even."""
    with np.errstate(all="ignore"):
        result = Reals.exactly(x.value.astype(target).astype(np.float64))
    loose = x.bound > 0
    if not loose.any():
        return result
    form = FORMATS[target]
    bound = x.bound[loose].copy()
    if target == "float32":
        bound = (bound + (x[loose].magnitude() + bound) * form.unit) * _UP + 2.0**form.step
    return result.updated(loose, _bounded(x[loose].rationals(), bound, form))


def integers(x: Reals, bits: int, nan: int, active: Array) -> Array:
    """Signed integers: cut toward zero, clamped to the range; a NaN gives ``nan``."""
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    out = np.zeros(x.value.shape, dtype=f"int{bits}")
    for (at,) in np.argwhere(active):
        interval = _interval(x, at)
        if interval is None:
            raise Open("a value that may be anything is cast to an integer")
        ends = {_cut(end, low, high, nan) for end in interval}
        if len(ends) > 1:
            raise Open("the bound of a value leaves its cast to an integer open")
        out[at] = ends.pop()
    return out


def _cut(value: Any, low: int, high: int, nan: int) -> int:
    if isinstance(value, float):  # infinite or NaN
        return nan if math.isnan(value) else (high if value > 0 else low)
    cut: int = math.trunc(value)
    return max(low, min(high, cut))


# --- multiply-accumulate --------------------------------------------------------------------------


def add_products(a: Reals, b: Reals, c: Reals, operand: str, added: str, result: str) -> Reals:
    """``a @ b + c`` with a bound that every order of the additions meets.

    ``operand``, ``added`` and ``result`` are components: f16, bf16 or tf32 with f32 or f16, or f64.

    Let k products and c be the k + 1 leaves of any tree whose inner nodes add two or more children
    at once, as a tensor core does: all children are aligned to the one with the largest exponent,
    2^E, each is cut (or rounded) there to F >= 23 places, they are added exactly, and the sum is
    rounded or cut to 24 digits.  With u = 2^-23 and j children, j - 1 of them lose at most u 2^E
    each, because the one with the largest exponent loses nothing, and the sum loses at most u of
    its size.  That is at most j u per node, relative to the sum of the sizes of the children, and
    j <= 2 (j - 1).  By induction from the leaves the root is within

        ((1 + u)^(2k) - 1) M  <=  g M,    g = 2ku / (1 - 2ku),

    of the exact sum, where M is the sum of the sizes of all leaves.  One addition after the other
    in f32 is such a tree, with or without guard digits, and in f64 (u = 2^-52, the products may be
    rounded as well) too.

    Refinements.  The exponent of a product is the sum of those of its factors, and a subnormal
    factor counts with the smallest normal exponent, so that is its least size in M; so is it for c.
    A zero counts with some small exponent, and small results are subnormal: each of the 2k events
    may lose 2^-149 more (2^-42 with an f16 result, 2^-1074 in f64), doubled for the factor
    (1 + u)^(2k).  With an f16 result the nodes that add c are rounded to f16 too, in any direction:
    at most every four products, and once more where c is f32, which may be narrowed first.  So R
    roundings of unit w = 2^-10 join: n = 2ku + Rw, g = n / (1 - n), and R
    of the smallest subnormal.

    Errors of the operands: a product is off by at most |a| eb + |b| ea + ea eb; M is taken of the
    sizes with their errors, and the sum D of these errors and that of c is added: g M + D.
    The low 13 bits of tf32 operands are dropped; of one with an error that is an error too.  (A
    signalling NaN that has only such bits stays a NaN here; a tensor core takes it for infinity.)

    Nothing is lost where all leaves are multiples of some q, itself a number of the result's
    format, and M < 2^24 q (2^11 q for f16, 2^53 q for f64): then the bound is D.  The sign of a
    zero is not followed: it is +0.  Where M and the bound exceed the largest number of the result,
    some order may overflow: nothing is known.  Infinities and NaN follow the algebra without order:
    any NaN, infinity times zero, and infinities of both signs give NaN.
    """
    if operand == "tf32":
        a, b = _drop_low_bits(a), _drop_low_bits(b)
    form, k = FORMATS[result], a.value.shape[1]
    left, shift_left = _scaled(a)
    right, shift_right = _scaled(b)
    start, shift_start = _scaled(c)
    shift = max(shift_left + shift_right, shift_start)
    products = (left @ right) * (1 << (shift - shift_left - shift_right))
    total = products + start * (1 << (shift - shift_start))
    with np.errstate(all="ignore"):
        size_a, size_b, size_c = _size(a, operand), _size(b, operand), _size(c, added)
        error_a, error_b = _known(a.bound), _known(b.bound)
        mass = (size_a @ size_b + size_c) * _UP
        brought = (size_a @ error_b + error_a @ size_b + _known(c.bound)) * _UP
        growth, floor = _growth(k, added, result)
        bound = (growth * (mass + brought) + brought) * _UP + floor
        quantum = min(_quantum(left, shift_left) + _quantum(right, shift_right),
                      _quantum(start, shift_start))  # fmt: skip
        lossless = mass < 2.0**form.digits * 2.0 ** max(min(quantum, 900), -1074)
    if quantum >= form.step:
        bound = np.where(lossless & (brought == 0), 0.0, bound)
    bound = np.where(mass + bound > form.largest, math.inf, bound)
    scale = Fraction(1, 1 << shift)
    centre = np.empty(total.shape, dtype=object)
    for at in np.ndindex(total.shape):
        centre[at] = total[at] * scale
    sums = _bounded(centre, bound, form)
    if a.finite.all() and b.finite.all() and c.finite.all():
        return sums
    return _with_specials(sums, a, b, c)


def _growth(k: int, added: str, result: str) -> tuple[float, float]:
    """The relative part of the bound, and the absolute one."""
    unit, step = (2.0**-52, 2.0**-1074) if result == "f64" else (2.0**-23, 2.0**-149)
    n, roundings = 2 * k * unit, 0
    if result == "f16":
        step = 2.0**-42
        roundings = -(-k // 4) + (added == "f32")
        n += roundings * FORMATS["f16"].unit
    return n / (1 - n) * _UP, 4 * k * step + 2 * roundings * 2.0 ** FORMATS["f16"].step


def _scaled(x: Reals) -> tuple[Array, int]:
    """Integers and a shift: the real numbers are ``integers / 2**shift``."""
    ratios = [r.as_integer_ratio() for r in x.rationals().flat]
    shift = max((d.bit_length() - 1 for _, d in ratios), default=0)
    out = np.empty(len(ratios), dtype=object)
    out[:] = [n << (shift - d.bit_length() + 1) for n, d in ratios]
    return out.reshape(x.value.shape), shift


def _quantum(scaled: Array, shift: int) -> int:
    """The exponent of the largest power of two that divides all numbers."""
    union = reduce(lambda left, right: left | right, (abs(n) for n in scaled.flat), 0)
    return int((union & -union).bit_length()) - 1 - shift if union else 1 << 20


def _size(x: Reals, component: str) -> Array:
    """Upper bounds of the sizes; those that are not zero count as normal numbers at least."""
    size = x.magnitude()
    if component == "f64":
        return size
    return np.where(size > 0, np.maximum(size, 2.0 ** FORMATS[component].low), 0.0)


def _known(bound: Array) -> Array:
    return np.where(np.isinf(bound), 0.0, bound)


def _drop_low_bits(x: Reals) -> Reals:
    """tf32 from f32 words; a NaN stays one."""
    with np.errstate(all="ignore"):
        words = x.value.astype(np.float32)
    cut = (words.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    value = np.where(np.isnan(words), np.nan, cut.astype(np.float64))
    bound = x.bound
    if not x.exact:
        lost = (x.magnitude() * FORMATS["tf32"].unit + 2.0 ** FORMATS["tf32"].step) * _UP
        bound = np.where(bound > 0, bound + lost, bound)
    return Reals(value, bound, x.centre)


def _with_specials(sums: Reals, a: Reals, b: Reals, c: Reals) -> Reals:
    """The sums of the finite parts, and what operands that are not finite make of them."""
    signs_a, signs_b, signs_c = _signs(a), _signs(b), _signs(c)
    nan, unknown = signs_c["nan"], signs_c["unknown"]
    positive, negative = signs_c["inf+"], signs_c["inf-"]
    for swapped in (False, True):

        def pair(x: str, y: str, swapped: bool = swapped) -> Array:
            """Whether a product has a factor in ``x``, of B if swapped, and the other in ``y``."""
            return _meet(signs_a[y], signs_b[x]) if swapped else _meet(signs_a[x], signs_b[y])

        nan = nan | pair("nan", "any") | pair("inf+", "zero") | pair("inf-", "zero")
        positive = positive | pair("inf+", "+") | pair("inf-", "-")
        negative = negative | pair("inf+", "-") | pair("inf-", "+")
        unknown = unknown | pair("inf+", "open") | pair("inf-", "open") | pair("unknown", "any")
    nan = nan | (positive & negative)
    infinite = (positive | negative) & ~nan
    value = np.where(nan, math.nan, np.where(infinite, np.where(positive, math.inf, -math.inf),
                                             sums.value))  # fmt: skip
    # Where finite parts alone may overflow or something is unknown, an infinity may meet another.
    unknown = ~nan & (unknown | sums.unknown)
    bound = np.where(nan | infinite, 0.0, sums.bound)
    bound = np.where(unknown, math.inf, bound)
    return Reals(np.where(unknown, 0.0, value), bound, sums.centre)


def _meet(left: Array, right: Array) -> Array:
    """Whether some product has its left factor in one set and its right factor in another."""
    return (left.astype(np.int64) @ right.astype(np.int64)) > 0


def _signs(x: Reals) -> dict[str, Array]:
    """The elements by sign, as far as it is known; infinite ones count as signed too."""
    plus, minus = (x.value > 0) & (x.bound == 0), (x.value < 0) & (x.bound == 0)
    open_ = np.zeros(x.value.shape, dtype=bool)
    if x.centre is not None:
        for at in np.argwhere((x.bound > 0) & ~x.unknown):
            place = tuple(at)
            sure = abs(x.centre[place]) > Fraction(float(x.bound[place]))
            plus[place], minus[place] = sure and x.centre[place] > 0, sure and x.centre[place] < 0
            open_[place] = not sure
    infinite = np.isinf(x.value) & (x.bound == 0)
    return {
        "+": plus, "-": minus, "open": open_, "zero": (x.value == 0) & (x.bound == 0),
        "inf+": infinite & plus, "inf-": infinite & minus, "unknown": x.unknown,
        "nan": np.isnan(x.value) & (x.bound == 0), "any": np.ones(x.value.shape, dtype=bool),
    }  # fmt: skip


# --- configs --------------------------------------------------------------------------------------


def interpret(component: str, data: Array) -> Array:
    """Integers in the range of a component that have the low bits of ``data``."""
    bits = COMPONENTS[component][0]
    low = data.astype(np.int64) & ((1 << bits) - 1)
    if component.startswith("s"):
        return np.where(low >> (bits - 1), low - (1 << bits), low)
    return low


def multiply(config: Config, a: Any, b: Any, c: Any) -> Any:
    """``a @ b + c`` of a config: int64 arrays in the range of the components, or :class:`Reals`."""
    kinds = {config.a, config.b}, {config.c, config.result}
    if kinds[1] <= {"s32", "u32"}:
        if kinds[0] <= {"u8", "s8"} or kinds[0] <= {"u4", "s4"}:
            if not config.modifier:
                return _integer_sum(config, a @ b + c)
        elif kinds[0] == {"b1"} and config.modifier in ("xor", "and") and not config.saturating:
            meet = np.bitwise_xor if config.modifier == "xor" else np.bitwise_and
            return _integer_sum(config, meet(a[:, :, None], b[None, :, :]).sum(axis=1) + c)
    elif not config.saturating:
        double = kinds == ({"f64"}, {"f64"}) and config.modifier in ("", "rn", "rz", "rm", "rp")
        single = len(kinds[0]) == 1 and kinds[0] <= {"f16", "bf16", "tf32"}
        if double or (single and kinds[1] <= {"f32", "f16"} and not config.modifier):
            return add_products(a, b, c, config.a, config.c, config.result)
    raise OracleError(f"a product {config} has no meaning")


def _integer_sum(config: Config, exact: Array) -> Array:
    if not config.saturating:
        return interpret(config.result, exact)
    if "u32" in (config.c, config.result):
        raise OracleError(f"a product {config} has no meaning: it clamps to signed numbers")
    return np.clip(exact, -(1 << 31), (1 << 31) - 1)


# --- arrays of a buffer ---------------------------------------------------------------------------


def decode_floats(element: str, array: Array) -> Reals:
    """The numbers of a buffer's array; bfloat16 comes as bit patterns."""
    if element == "bfloat16":
        return Reals.exactly((array.astype(np.uint32) << np.uint32(16)).view(np.float32))
    return Reals.exactly(array)


def encode_floats(element: str, values: Array) -> Array:
    """The array of a buffer with numbers of its format."""
    with np.errstate(all="ignore"):
        if element == "bfloat16":
            words = values.astype(np.float32).view(np.uint32)
            return np.asarray(words >> np.uint32(16), dtype=np.uint16)
        return np.asarray(values.astype(element))


@dataclass(frozen=True, slots=True, eq=False)
class Bounded:
    """What is known of a buffer of floating-point elements."""

    element: str
    reals: Reals

    @property
    def exact(self) -> Array:
        """The exact real values, as rationals; 0 where a value is not finite or not known."""
        return self.reals.rationals()

    @property
    def bound(self) -> Array:
        """How far each element may be from its exact value; infinite if nothing is known."""
        return self.reals.bound.copy()

    @property
    def anything(self) -> Array:
        """Where every value is allowed, because an order of the additions may overflow."""
        return self.reals.unknown

    def nearest(self) -> Array:
        """The numbers of the format nearest to the exact values; NaN where nothing is known."""
        values = self.reals.value.copy()
        values[self.reals.unknown] = math.nan
        exact = self.reals.rationals()
        for at in np.argwhere((self.reals.bound > 0) & ~self.reals.unknown):
            place = tuple(at)
            values[place] = round_to(exact[place], FORMATS[self.element])
        return encode_floats(self.element, values)

    def holds(self, array: Array) -> NDArray[np.bool_]:
        """Where a computed array, of the buffer's dtype, lies within the bound.

        NaN matches NaN of any payload, and zeros of both signs match.
        """
        expected = encode_floats(self.element, np.zeros(0)).dtype
        if array.dtype != expected or array.shape != self.reals.value.shape:
            raise ValueError(
                f"an array of {self.reals.value.shape} {expected} is needed, "
                f"not {array.shape} {array.dtype}"
            )
        got = decode_floats(self.element, array).value
        sure = self.reals.bound == 0
        held: NDArray[np.bool_] = self.reals.unknown | (
            sure & ((got == self.reals.value) | (np.isnan(got) & np.isnan(self.reals.value)))
        )
        exact = self.reals.rationals()
        for at in np.argwhere(~sure & ~self.reals.unknown & np.isfinite(got)):
            place = tuple(at)
            distance = abs(Fraction(float(got[place])) - exact[place])
            held[place] = distance <= Fraction(float(self.reals.bound[place]))
        return held

"""An independent model of scalar floating point: one number at a time, in Python integers.

A number is its sign, an integer and a power of two: ``(-1)**sign * integer * 2**exponent``, exact.
Results are rounded once.  Nothing is shared with ptxsim; :mod:`rational_model` (Fractions) checks
this model in turn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

__all__ = [
    "LAYOUTS",
    "Layout",
    "Number",
    "add",
    "clamp",
    "div",
    "flush",
    "fma",
    "integral",
    "magnitude_less",
    "mul",
    "number",
    "pattern",
    "sqrt",
    "sub",
]


@dataclass(frozen=True)
class Layout:
    """A binary format: field widths, bias, specials (patterns without sign), largest number."""

    exponent_bits: int
    mantissa_bits: int
    bias: int
    largest: int
    infinity: int | None
    nan: int | None
    signed: bool = True
    padding: int = 0

    @property
    def sign(self) -> int:
        return 1 << (self.exponent_bits + self.mantissa_bits) if self.signed else 0

    @property
    def lowest(self) -> int:
        """The exponent of the smallest normal number."""
        return 1 - self.bias


def _ieee(exponent_bits: int, mantissa_bits: int, padding: int = 0) -> Layout:
    infinity = ((1 << exponent_bits) - 1) << mantissa_bits
    nan = infinity | ((1 << mantissa_bits) - 1)  # the canonical NaN: all ones but the sign
    bias = (1 << (exponent_bits - 1)) - 1
    return Layout(exponent_bits, mantissa_bits, bias, infinity - 1, infinity, nan, True, padding)


#: PTX ISA 9.1, "Fundamental Types" and "Alternate Floating-Point Data Formats"
LAYOUTS = {
    "f16": _ieee(5, 10),
    "bf16": _ieee(8, 7),
    "tf32": _ieee(8, 10, padding=13),
    "f32": _ieee(8, 23),
    "f64": _ieee(11, 52),
    "e5m2": _ieee(5, 2),
    "e4m3": Layout(4, 3, 7, 0x7E, None, 0x7F),
    "e2m1": Layout(2, 1, 1, 0x07, None, None),
    "e2m3": Layout(2, 3, 1, 0x1F, None, None),
    "e3m2": Layout(3, 2, 3, 0x1F, None, None),
}


class Number(NamedTuple):
    """A finite number, or with ``special`` ``inf`` or ``nan``."""

    sign: int
    integer: int
    exponent: int
    special: str = ""


NAN = Number(0, 0, 0, "nan")


def number(bits: int, layout: Layout) -> Number:
    """What a pattern stands for."""
    bits >>= layout.padding
    sign = 1 if bits & layout.sign else 0
    magnitude = bits & ~layout.sign
    if layout.infinity is not None:
        if magnitude == layout.infinity:
            return Number(sign, 0, 0, "inf")
        if magnitude > layout.infinity:
            return Number(sign, 0, 0, "nan")
    elif layout.nan is not None and magnitude == layout.nan:
        return Number(sign, 0, 0, "nan")
    field = magnitude >> layout.mantissa_bits
    fraction = magnitude & ((1 << layout.mantissa_bits) - 1)
    if field:
        fraction |= 1 << layout.mantissa_bits
    return Number(sign, fraction, max(field, 1) - layout.bias - layout.mantissa_bits)


def pattern(
    x: Number,
    layout: Layout,
    mode: str = "rn",
    *,
    saturate: bool = False,
    random: tuple[int, int] = (0, 0),
) -> int:
    """The pattern of a number rounded to a format.

    ``saturate`` turns what is beyond the largest number, infinities too, into that number.
    ``random`` is the word of ``.rs`` and how many bits it has; they are added to as many of the
    highest bits that are dropped.
    """
    sign = layout.sign if x.sign else 0
    if x.special == "nan":
        return (layout.largest if layout.nan is None else layout.nan) << layout.padding
    overflown = layout.largest if saturate or layout.infinity is None else layout.infinity
    if x.special == "inf":
        return (sign | overflown) << layout.padding
    if x.integer == 0:
        return sign << layout.padding
    top = max(x.exponent + x.integer.bit_length() - 1, layout.lowest)
    dropped = top - layout.mantissa_bits - x.exponent
    if dropped <= 0:
        kept = x.integer << -dropped
    else:
        kept = x.integer >> dropped
        rest = x.integer & ((1 << dropped) - 1)
        kept += _rounds_up(rest, dropped, kept & 1, x.sign, mode, random)
    magnitude = ((top - layout.lowest) << layout.mantissa_bits) + kept
    if magnitude > layout.largest:
        inward = mode == "rz" or mode == ("rp" if x.sign else "rm")
        magnitude = layout.largest if inward else overflown
    return (sign | magnitude) << layout.padding


def _rounds_up(
    rest: int, dropped: int, odd: int, sign: int, mode: str, random: tuple[int, int]
) -> bool:
    half = 1 << (dropped - 1)
    if mode == "rn":
        return rest > half or (rest == half and odd == 1)
    if mode == "rna":
        return rest >= half
    if mode == "rs":
        word, count = random
        # both brought to one scale: the random word below the kept bits
        scale = max(dropped, count)
        truncated = rest << (scale - dropped) >> (scale - count)
        return truncated + word >= 1 << count
    return mode == ("rm" if sign else "rp") and rest > 0


def flush(bits: int, layout: Layout) -> int:
    """A subnormal pattern as the zero of its sign (.ftz)."""
    magnitude = bits & ~layout.sign
    return bits & layout.sign if magnitude < 1 << layout.mantissa_bits else bits


def clamp(bits: int, layout: Layout, how: str) -> int:
    """``.sat``: to [0, 1], NaN to zero; ``.relu``: no negative number, NaN canonical."""
    special = number(bits, layout).special
    if special == "nan":
        return 0 if how == "sat" else layout.nan or 0
    if bits & layout.sign:
        return 0
    one = layout.bias << layout.mantissa_bits
    return min(bits, one) if how == "sat" else bits


def fma(x: Number, y: Number, z: Number, mode: str) -> Number:
    """``x * y + z``, exact; the mode decides the sign of a zero from nothing."""
    sign = x.sign ^ y.sign
    if "nan" in (x.special, y.special, z.special):
        return NAN
    if x.special or y.special:
        zero = (not x.special and x.integer == 0) or (not y.special and y.integer == 0)
        if zero or (z.special and z.sign != sign):
            return NAN
        return Number(sign, 0, 0, "inf")
    if z.special:
        return z
    exponent = min(x.exponent + y.exponent, z.exponent)
    product = x.integer * y.integer << (x.exponent + y.exponent - exponent)
    addend = z.integer << (z.exponent - exponent)
    total = (-product if sign else product) + (-addend if z.sign else addend)
    if total == 0:
        both = sign == z.sign
        return Number(sign if both else int(mode == "rm"), 0, 0)
    return Number(int(total < 0), abs(total), exponent)


ONE = Number(0, 1, 0)


def add(x: Number, y: Number, mode: str) -> Number:
    return fma(x, ONE, y, mode)


def sub(x: Number, y: Number, mode: str) -> Number:
    return fma(x, ONE, y._replace(sign=1 - y.sign), mode)


def mul(x: Number, y: Number, mode: str) -> Number:
    return fma(x, y, Number(x.sign ^ y.sign, 0, 0), mode)


#: more bits than any format has, so that a further one can stand for all the rest
_GUARD = 70


def _with_rest(sign: int, integer: int, exponent: int, rest: bool) -> Number:
    return Number(sign, integer << 1 | rest, exponent - 1)


def div(x: Number, y: Number, mode: str) -> Number:
    """``x / y`` to more bits than any format has, the last one for what is lost."""
    sign = x.sign ^ y.sign
    if "nan" in (x.special, y.special) or (x.special and y.special):
        return NAN
    if x.special:
        return Number(sign, 0, 0, "inf")
    if y.special:
        return Number(sign, 0, 0)
    if y.integer == 0:
        return NAN if x.integer == 0 else Number(sign, 0, 0, "inf")
    more = _GUARD + y.integer.bit_length()
    quotient, rest = divmod(x.integer << more, y.integer)
    return _with_rest(sign, quotient, x.exponent - y.exponent - more, rest != 0)


def sqrt(x: Number, mode: str) -> Number:
    """The square root, likewise."""
    if x.special == "nan" or (x.sign and (x.special or x.integer)):
        return NAN
    if x.special or x.integer == 0:
        return x
    more = 2 * _GUARD + (x.exponent & 1)
    scaled = x.integer << more
    root = math.isqrt(scaled)
    return _with_rest(0, root, (x.exponent - more) // 2, root * root != scaled)


def integral(x: Number, mode: str) -> int:
    """A finite number rounded to an integer by ``rni``, ``rzi``, ``rmi`` or ``rpi``."""
    if x.exponent >= 0:
        whole = x.integer << x.exponent
    else:
        dropped = -x.exponent
        whole = x.integer >> dropped
        rest = x.integer & ((1 << dropped) - 1)
        whole += _rounds_up(rest, dropped, whole & 1, x.sign, mode[:2], (0, 0))
    return -whole if x.sign else whole


def magnitude_less(a: int, b: int, layout: Layout) -> bool:
    """Whether ``a`` is below ``b``, both no NaN; -0 is below +0."""

    def key(bits: int) -> int:
        magnitude = bits & ~layout.sign
        return -magnitude - 1 if bits & layout.sign else magnitude

    return key(a) < key(b)

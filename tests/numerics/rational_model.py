"""An independent scalar model of binary floating point on Python integers and fractions.

Nothing here is shared with ptxsim.numerics except the format records.  Values are a Fraction, or
one of the strings ``nan``, ``+inf`` and ``-inf``; the sign of zero is carried by the caller.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ptxsim.numerics.formats import Format

__all__ = [
    "add",
    "decode",
    "div",
    "edges",
    "fma",
    "hard_fma",
    "is_negative",
    "mul",
    "patterns",
    "round_fraction",
    "sqrt",
]

Value = Fraction | str


def is_negative(bits: int, fmt: Format) -> bool:
    """The sign bit."""
    return bool(fmt.sign and bits & fmt.sign)


def decode(bits: int, fmt: Format) -> Value:
    """The number that a pattern stands for."""
    magnitude = bits & ~fmt.sign
    if fmt.nan is not None and (
        magnitude > fmt.infinity if fmt.infinity is not None else magnitude == fmt.nan
    ):
        return "nan"
    negative = is_negative(bits, fmt)
    if magnitude == fmt.infinity:
        return "-inf" if negative else "+inf"
    exponent, mantissa = magnitude >> fmt.mantissa_bits, magnitude & (fmt.smallest_normal - 1)
    if exponent or fmt.mantissa_bits == 0:
        mantissa += fmt.smallest_normal
    else:
        exponent = 1
    value = Fraction(mantissa) * Fraction(2) ** (exponent - fmt.bias - fmt.mantissa_bits)
    return -value if negative else value


def floor_log2(value: Fraction) -> int:
    """The largest e with 2**e <= value."""
    e = value.numerator.bit_length() - value.denominator.bit_length()
    return e if Fraction(2) ** e <= value else e - 1


def round_fraction(
    value: Fraction,
    fmt: Format,
    mode: str,
    *,
    negative_zero: bool = False,
    saturate: bool = False,
) -> int:
    """The pattern of ``value`` rounded to ``fmt``."""
    negative = value < 0 or (value == 0 and negative_zero)
    sign = fmt.sign if negative else 0
    if value == 0:
        return sign
    lowest = 1 - fmt.bias
    e = max(floor_log2(abs(value)), lowest)
    scaled = abs(value) / Fraction(2) ** (e - fmt.mantissa_bits)
    n = scaled.numerator // scaled.denominator
    rest = scaled - n
    half = Fraction(1, 2)
    if mode == "rn":
        n += rest > half or (rest == half and n % 2 == 1)
    elif mode == "rna":
        n += rest >= half
    elif mode == ("rm" if negative else "rp"):
        n += rest > 0
    magnitude = ((e - lowest) << fmt.mantissa_bits) + n
    if magnitude > fmt.largest:
        finite = mode == "rz" or mode == ("rp" if negative else "rm")
        if saturate or finite or fmt.infinity is None:
            return sign | fmt.largest
        return sign | fmt.infinity
    return sign | magnitude


def _infinity(negative: bool, fmt: Format) -> int:
    assert fmt.infinity is not None
    return fmt.infinity | (fmt.sign if negative else 0)


def _nan(fmt: Format) -> int:
    assert fmt.nan is not None
    return fmt.nan


def fma(a: int, b: int, c: int, fmt: Format, mode: str = "rn") -> int:
    """IEEE fusedMultiplyAdd."""
    x, y, z = decode(a, fmt), decode(b, fmt), decode(c, fmt)
    product_sign = is_negative(a, fmt) != is_negative(b, fmt)
    c_sign = is_negative(c, fmt)
    if "nan" in (x, y, z):
        return _nan(fmt)
    if isinstance(x, str) or isinstance(y, str):
        if x == 0 or y == 0 or (isinstance(z, str) and c_sign != product_sign):
            return _nan(fmt)
        return _infinity(product_sign, fmt)
    if isinstance(z, str):
        return _infinity(c_sign, fmt)
    both_or_any = (product_sign or c_sign) if mode == "rm" else (product_sign and c_sign)
    return round_fraction(x * y + z, fmt, mode, negative_zero=both_or_any)


def add(a: int, b: int, fmt: Format, mode: str = "rn") -> int:
    """IEEE addition."""
    return fma(a, fmt.one, b, fmt, mode)


def mul(a: int, b: int, fmt: Format, mode: str = "rn") -> int:
    """IEEE multiplication."""
    sign = fmt.sign if is_negative(a, fmt) != is_negative(b, fmt) else 0
    return fma(a, b, sign, fmt, mode)


def div(a: int, b: int, fmt: Format, mode: str = "rn") -> int:
    """IEEE division."""
    x, y = decode(a, fmt), decode(b, fmt)
    negative = is_negative(a, fmt) != is_negative(b, fmt)
    if "nan" in (x, y) or (isinstance(x, str) and isinstance(y, str)) or (x == 0 and y == 0):
        return _nan(fmt)
    if isinstance(x, str) or y == 0:
        return _infinity(negative, fmt)
    if isinstance(y, str):
        return fmt.sign if negative else 0
    return round_fraction(x / y, fmt, mode, negative_zero=negative)


def sqrt(a: int, fmt: Format, mode: str = "rn") -> int:
    """IEEE square root: the integer root with 200 bits, and half a unit when it is inexact."""
    x = decode(a, fmt)
    if x == 0 or x == "+inf":
        return a
    if isinstance(x, str) or x < 0:
        return _nan(fmt)
    shift = 2 * (1400 + fmt.mantissa_bits)
    scaled = (x.numerator << shift) // x.denominator
    root = math.isqrt(scaled)
    inexact = root * root != scaled
    return round_fraction(Fraction(2 * root + inexact, 2 << (shift // 2)), fmt, mode)


def edges(fmt: Format) -> list[int]:
    """Zero, one, the ends of the subnormal, normal and special ranges, with both signs."""
    near = [
        0, 1, 2, 3, fmt.smallest_normal - 1, fmt.smallest_normal, fmt.smallest_normal + 1,
        fmt.one - 1, fmt.one, fmt.one + 1, fmt.one + (fmt.smallest_normal >> 1),
        fmt.one + fmt.smallest_normal, fmt.largest - 1, fmt.largest,
    ]  # fmt: skip
    if fmt.infinity is not None:
        near += [fmt.infinity, fmt.infinity + 1]
    if fmt.nan is not None:
        near.append(fmt.nan)
    return near + [fmt.sign | n for n in near]


def patterns(rng: np.random.Generator, fmt: Format, n: int) -> np.ndarray:
    """Random patterns: all bits, exponents near one, short mantissas, tiny numbers, and edges."""
    width = fmt.exponent_bits + fmt.mantissa_bits + (1 if fmt.signed else 0)
    top = (1 << width) - 1
    raw = rng.integers(0, top, n, dtype=np.uint64, endpoint=True)
    sign = raw & np.uint64(fmt.sign)
    mantissa = raw & np.uint64(fmt.smallest_normal - 1)
    close = rng.integers(fmt.bias - 3, fmt.bias + 3, n).astype(np.uint64)
    normal = sign | (close << np.uint64(fmt.mantissa_bits)) | mantissa
    cut = np.uint64(fmt.mantissa_bits * 2 // 3)
    short = (normal >> cut) << cut
    tiny = sign | mantissa >> rng.integers(0, fmt.mantissa_bits + 1, n).astype(np.uint64)
    table = np.array(edges(fmt), np.uint64)
    edge = table[rng.integers(0, len(table), n)]
    kind = rng.integers(0, 8, n)
    choices: Sequence[np.ndarray] = (raw, raw, normal, normal, normal, short, tiny, edge)
    return np.choose(kind, choices).astype(fmt.dtype)


def hard_fma(
    rng: np.random.Generator, fmt: Format, n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Operands of fma whose exact result sits at or beside a rounding boundary, or cancels.

    The factors multiply to an odd number of one bit more than the format has (or a few more, for
    boundaries among subnormal results); the addend is zero, tiny, the rounded product negated, or
    of like size.
    """
    makers = (_tie_product, _tie_product, _below_half)
    rows = [makers[int(k)](rng, fmt) for k in rng.integers(0, len(makers), n)]
    columns = np.array(rows, dtype=fmt.dtype).T
    a, b, c = (np.ascontiguousarray(column) for column in columns)
    return a, b, c


def _tie_product(rng: np.random.Generator, fmt: Format) -> tuple[int, int, int]:
    p = fmt.mantissa_bits + 1
    lowest = 1 - fmt.bias - fmt.mantissa_bits
    kind = int(rng.integers(0, 6))
    first = int(rng.integers(1, p))
    x = int(rng.integers(1 << (first - 1), 1 << first)) | 1
    y = int(rng.integers(1 << (p - first), 2 << (p - first))) | 1
    scale = int(rng.integers(lowest - p - 2, lowest)) if kind == 5 else int(rng.integers(-8, 9))
    a = round_fraction(Fraction(x) * Fraction(2) ** (scale // 2), fmt, "rz")
    b = round_fraction(Fraction(y) * Fraction(2) ** (scale - scale // 2), fmt, "rz")
    exact = Fraction(x * y) * Fraction(2) ** scale
    sign = -1 if rng.integers(2) else 1
    if kind == 0:
        c = Fraction(0)
    elif kind in (1, 5):
        c = sign * Fraction(2) ** max(scale - int(rng.integers(0, 3 * p)), lowest)
    elif kind == 2:
        c = sign * Fraction(2) ** lowest
    elif kind == 3:
        c = -exact
    else:
        c = sign * exact * Fraction(int(rng.integers(1, 1 << p)), 1 << int(rng.integers(0, p)))
    return a, b, round_fraction(c, fmt, "rn")


def _below_half(rng: np.random.Generator, fmt: Format) -> tuple[int, int, int]:
    """A product just below half a unit of the addend: (1 + u)(1 - u) = 1 - u * u."""
    lowest = 1 - fmt.bias - fmt.mantissa_bits
    c = int(rng.integers(fmt.smallest_normal // 2, 4 * fmt.smallest_normal))
    if rng.integers(2):  # addends of ordinary size, where the exponents allow such factors
        c += (fmt.one >> 1) & ~(fmt.smallest_normal - 1)
    field = max(c >> fmt.mantissa_bits, 1)
    scale = field - 1 + lowest - 1
    u = Fraction(int(rng.integers(0, 4)), fmt.smallest_normal)
    a = round_fraction((1 + u) * Fraction(2) ** (scale // 2), fmt, "rn")
    b = round_fraction((1 - u) * Fraction(2) ** (scale - scale // 2), fmt, "rn")
    sign = fmt.sign if rng.integers(2) else 0
    return a | (fmt.sign if rng.integers(2) else 0), b, c | sign

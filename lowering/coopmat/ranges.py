"""Ranges of whole numbers: bounds and a congruence, and what integer operations make of them.

Every operation takes in all results that values of its operands can have.  Operations on numbers
without a width come first; :func:`fit` brings a result into a type, where int32 and int64 wrap.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

__all__ = [
    "WIDTHS",
    "Range",
    "binary",
    "compare",
    "exactly",
    "fit",
    "hull",
    "limits",
    "meet",
    "of_type",
    "shift_amounts",
    "span",
]

#: Bits of the types whose values are ranges.
WIDTHS: dict[str, int] = {"int32": 32, "int64": 64, "bool": 1}


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers of ``low .. high`` that are ``residue`` modulo ``modulus``.

    A modulus of 0 is one number.  Bounds are members: :func:`span` makes them so.
    """

    low: int
    high: int
    modulus: int = 1
    residue: int = 0

    @property
    def exact(self) -> bool:
        """Whether it is one number."""
        return self.modulus == 0

    @property
    def step(self) -> int:
        """The greatest divisor that all members are known to have; 0 if all are 0."""
        return gcd(self.modulus, self.residue)

    def rest(self, divisor: int) -> int | None:
        """What members leave modulo a positive divisor, if all leave the same."""
        if self.modulus % divisor:
            return None
        return self.residue % divisor

    def within(self, other: Range) -> bool:
        """Whether all members are members of another range."""
        if self.low < other.low or self.high > other.high:
            return False
        if other.exact:
            return self.exact
        return (
            self.modulus % other.modulus == 0
            and (self.residue - other.residue) % (other.modulus) == 0
        )

    def __contains__(self, value: int) -> bool:
        if not self.low <= value <= self.high:
            return False
        return self.exact or value % self.modulus == self.residue


def exactly(value: int) -> Range:
    """One number."""
    return Range(value, value, 0, value)


def _known(low: int, high: int, modulus: int = 1, residue: int = 0) -> Range:
    """A range that is known to have members, bounds brought in to the congruence."""
    found = span(low, high, modulus, residue)
    return Range(low, high) if found is None else found


def span(low: int, high: int, modulus: int = 1, residue: int = 0) -> Range | None:
    """The members between two bounds, which need not be members; None without any."""
    if modulus == 0:
        return exactly(residue) if low <= residue <= high else None
    residue %= modulus
    low += (residue - low) % modulus
    high -= (high - residue) % modulus
    if low > high:
        return None
    return exactly(low) if low == high else Range(low, high, modulus, residue)


def limits(type_: str) -> tuple[int, int]:
    """The least and the greatest value of a type."""
    if type_ == "bool":
        return 0, 1
    half = 1 << (WIDTHS[type_] - 1)
    return -half, half - 1


def of_type(type_: str) -> Range:
    """All values of a type."""
    return Range(*limits(type_))


def fit(r: Range, type_: str) -> Range:
    """What numbers become in a type: they wrap, and only powers of two divide both."""
    low, high = limits(type_)
    width = WIDTHS[type_]
    turns = (r.low - low) >> width
    if turns == (r.high - low) >> width:
        return _add(r, exactly(-turns << width))
    modulus = gcd(r.modulus, 1 << width)
    return _known(low, high, modulus, r.residue)


def meet(a: Range, b: Range) -> Range | None:
    """The numbers in both; None if no number is."""
    low, high = max(a.low, b.low), min(a.high, b.high)
    common = gcd(a.modulus, b.modulus)
    if (a.residue - b.residue) % common if common else a.residue != b.residue:
        return None
    if a.exact or b.exact:
        return span(low, high, 0, a.residue if a.exact else b.residue)
    # a.residue + a.modulus * x = b.residue (mod b.modulus)
    step = b.modulus // common
    x = (b.residue - a.residue) // common * pow(a.modulus // common, -1, step) % step
    return span(low, high, a.modulus * step, a.residue + a.modulus * x)


def hull(a: Range, b: Range) -> Range:
    """The least range with the numbers of both."""
    modulus = gcd(a.modulus, b.modulus, a.residue - b.residue)
    return _known(min(a.low, b.low), max(a.high, b.high), modulus, a.residue)


# --- arithmetic without a width -------------------------------------------------------------------


def _add(a: Range, b: Range) -> Range:
    modulus = gcd(a.modulus, b.modulus)
    return _known(a.low + b.low, a.high + b.high, modulus, a.residue + b.residue)


def _neg(a: Range) -> Range:
    return _known(-a.high, -a.low, a.modulus, -a.residue)


def _mul(a: Range, b: Range) -> Range:
    corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    modulus = gcd(a.modulus * b.modulus, a.modulus * b.residue, b.modulus * a.residue)
    return _known(min(corners), max(corners), modulus, a.residue * b.residue)


def _truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _div(a: Range, b: Range) -> Range | None:
    """Division toward zero; None if the divisor may be 0."""
    if 0 in b:
        return None
    signs = ((b.low, min(b.high, -1)), (max(b.low, 1), b.high))
    divisors = [d for low, high in signs if low <= high for d in (low, high)]
    corners = [_truncated(x, d) for x in (a.low, a.high) for d in divisors]
    modulus = residue = 1
    if b.exact:
        size = abs(b.low)
        # an exact quotient, or one that is rounded down because nothing is negative
        if a.modulus % size == 0 and (a.residue % size == 0 or a.low >= 0):
            modulus, residue = a.modulus // size, a.residue // size
            residue = residue if b.low > 0 else -residue
    return _known(min(corners), max(corners), modulus, residue)


def _mod(a: Range, b: Range) -> Range | None:
    """What division toward zero leaves, of the sign of ``a``; None if the divisor may be 0."""
    if 0 in b:
        return None
    least = min(abs(b.low), abs(b.high)) if b.low * b.high > 0 else 1
    if -least < a.low and a.high < least:
        return a
    most = max(abs(b.low), abs(b.high)) - 1
    low = 0 if a.low >= 0 else max(a.low, -most)
    high = 0 if a.high <= 0 else min(a.high, most)
    modulus, residue = gcd(a.modulus, b.step), a.residue
    if b.exact and (rest := a.rest(abs(b.low))) is not None and (rest == 0 or a.low >= 0):
        modulus, residue = 0, rest
    return _known(low, high, modulus, residue)


# --- shifts ---------------------------------------------------------------------------------------


def shift_amounts(amount: Range, type_: str, width: int) -> tuple[int, int]:
    """The least and greatest amount of a shift, at most ``width``, which shifts everything out.

    PTX takes an unsigned 32-bit amount.  Of an int64 beyond that nothing is said, so that it may
    be cut to 32 bits.
    """
    if amount.low >= 0 and amount.high < 1 << 32:
        return min(amount.low, width), min(amount.high, width)
    if type_ == "int32" and amount.high < 0:
        return width, width
    return 0, width


def _shl(a: Range, b: Range, type_: str, amount_type: str) -> Range:
    low, high = shift_amounts(b, amount_type, WIDTHS[type_])
    if low == high:
        return _mul(a, exactly(1 << low))
    corners = [x << s for x in (a.low, a.high) for s in (low, high)]
    return _known(min(corners), max(corners), a.step << low, 0)


def _shr(a: Range, b: Range, type_: str, amount_type: str) -> Range:
    low, high = shift_amounts(b, amount_type, WIDTHS[type_])
    corners = [x >> s for x in (a.low, a.high) for s in (low, high)]
    modulus = residue = 1
    if low == high and a.rest(1 << low) is not None:
        modulus, residue = a.modulus >> low, a.residue >> low
    return _known(min(corners), max(corners), modulus, residue)


# --- bits -----------------------------------------------------------------------------------------


def _bits(a: Range, width: int) -> tuple[int, int]:
    """The bits that are known of all members, and their values."""
    every = (1 << width) - 1
    known = every if a.exact else (a.modulus & -a.modulus) - 1
    known &= every
    value = a.residue & known
    if a.low >= 0:
        above = every & ~((1 << a.high.bit_length()) - 1)
        known, value = known | above, value & ~above
    return known, value


def _bitwise(op: str, a: Range, b: Range, width: int) -> Range:
    """``bitand``, ``bitor`` or ``bitxor``: bit by bit what is known."""
    for one, other in ((a, b), (b, a)):
        if one.exact and one.low == (-1 if op == "bitand" else 0):
            return other
        if op == "bitand" and one.exact and other.low >= 0:
            ones = (1 << other.high.bit_length()) - 1
            if one.low & ones == ones:
                return other
    (known_a, a_bits), (known_b, b_bits) = _bits(a, width), _bits(b, width)
    both = known_a & known_b
    match op:
        case "bitand":
            value = a_bits & b_bits
            known = both | (known_a & ~a_bits) | (known_b & ~b_bits)
        case "bitor":
            value = a_bits | b_bits
            known = both | a_bits | b_bits
        case _:
            value = (a_bits ^ b_bits) & both
            known = both
    run = ~known & (known + 1)  # the lowest bit that is not known
    size = max(max(n, ~n).bit_length() for n in (a.low, a.high, b.low, b.high))
    low, high = -1 << size, (1 << size) - 1
    sign = 1 << (width - 1)
    if known & sign:
        fill = -sign if value & sign else 0
        low = max(low, fill + (value & ~sign))
        high = min(high, fill + ((value | ~known) & (sign - 1)))
    if op == "bitand":
        nonnegative = [r.high for r in (a, b) if r.low >= 0]
        high = min([high, *nonnegative])
    return _known(low, high, run, value)


# --- in a type ------------------------------------------------------------------------------------


def binary(op: str, type_: str, a: Range, b: Range, amount_type: str = "int32") -> Range:
    """What an operation other than a comparison makes of two values of int32 or int64."""
    found: Range | None
    match op:
        case "add":
            found = _add(a, b)
        case "sub":
            found = _add(a, _neg(b))
        case "mul":
            found = _mul(a, b)
        case "div":
            found = _div(a, b)
        case "mod":
            found = _mod(a, b)
        case "shl":
            found = _shl(a, b, type_, amount_type)
        case "shr":
            found = _shr(a, b, type_, amount_type)
        case _:
            found = _bitwise(op, a, b, WIDTHS[type_])
    # a quotient by 0 is unspecified
    return of_type(type_) if found is None else fit(found, type_)


def compare(op: str, a: Range, b: Range) -> Range:
    """The truth of a comparison: 0, 1 or both."""
    match op:
        case "eq" | "ne":
            always = a.exact and a == b
            never = meet(a, b) is None
            if op == "ne":
                always, never = never, always
        case "lt":
            always, never = a.high < b.low, a.low >= b.high
        case "le":
            always, never = a.high <= b.low, a.low > b.high
        case "gt":
            always, never = a.low > b.high, a.high <= b.low
        case _:
            always, never = a.low >= b.high, a.high < b.low
    return Range(0, 1) if not (always or never) else exactly(int(always))

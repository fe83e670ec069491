"""Exact model of tensor-core arithmetic: Python integers and fractions, one dot product at a time.

Nothing is shared with ptxsim.  The PTX manual leaves order, rounding and subnormals of the
floating-point forms open ("Multiply-and-Accumulate Instruction: mma"); this is the model of the
machines: every addend of a block is cut to a common fixed point, summed exactly, rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

__all__ = [
    "FORMATS",
    "Format",
    "Instruction",
    "Number",
    "convert",
    "decode",
    "dot",
    "fused_step",
    "ieee_add",
    "ieee_fma",
    "parse",
]


@dataclass(frozen=True, slots=True)
class Format:
    """A binary format; ``specials`` says which patterns of the top exponent are not numbers."""

    exponent_bits: int
    fraction_bits: int
    bias: int
    specials: Literal["ieee", "top", "none"] = "ieee"

    @property
    def width(self) -> int:
        """Bits of a pattern, the sign included."""
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def top(self) -> int:
        """The exponent field of all ones."""
        return (1 << self.exponent_bits) - 1


FORMATS = {
    "f64": Format(11, 52, 1023),
    "f32": Format(8, 23, 127),
    "f16": Format(5, 10, 15),
    "bf16": Format(8, 7, 127),
    "tf32": Format(8, 10, 127),
    "e5m2": Format(5, 2, 15),
    "e4m3": Format(4, 3, 7, "top"),
    "e3m2": Format(3, 2, 3, "none"),
    "e2m3": Format(2, 3, 1, "none"),
    "e2m1": Format(2, 1, 1, "none"),
}
NAN = {"f64": 0x7FF8 << 48, "f32": 0x7FFFFFFF, "f16": 0x7FFF}
"""The results of invalid operations; no source fixes the payload of f64."""


@dataclass(frozen=True, slots=True)
class Number:
    """(-1)**negative * significand * 2**(exponent - fraction); an infinity has significand 0."""

    kind: Literal["finite", "inf", "nan"]
    negative: bool = False
    significand: int = 0
    exponent: int = 0
    fraction: int = 0

    @property
    def signed(self) -> int:
        """The significand with its sign."""
        return -self.significand if self.negative else self.significand

    @property
    def value(self) -> Fraction:
        """The exact value of a finite number."""
        return Fraction(self.signed) * Fraction(2) ** (self.exponent - self.fraction)


@lru_cache(maxsize=1 << 20)
def decode(bits: int, type_: str) -> Number:
    """The number a pattern stands for; a subnormal keeps the smallest exponent, not normalised."""
    if type_ == "ue8m0":
        return Number("nan") if bits & 0xFF == 0xFF else Number("finite", False, 1, bits - 127, 0)
    if type_ == "ue4m3":  # the sign bit of a scale is ignored
        return decode(bits & 0x7F, "e4m3")
    if type_ == "tf32":  # a 32-bit register whose low 13 bits the unit cuts off
        bits >>= 13
    fmt = FORMATS[type_]
    negative = bool(bits >> (fmt.width - 1) & 1)
    field = bits >> fmt.fraction_bits & fmt.top
    low = bits & ((1 << fmt.fraction_bits) - 1)
    if field == fmt.top and fmt.specials == "ieee":
        return Number("nan", negative) if low else Number("inf", negative)
    if field == fmt.top and fmt.specials == "top" and low == (1 << fmt.fraction_bits) - 1:
        return Number("nan", negative)
    hidden = 1 << fmt.fraction_bits if field else 0
    exponent = max(field, 1) - fmt.bias
    return Number("finite", negative, hidden | low, exponent, fmt.fraction_bits)


def _pack(negative: bool, units: int, quantum: int, type_: str) -> int:
    """Bits of units * 2**quantum, which the format represents or which overflows to infinity."""
    fmt = FORMATS[type_]
    sign = int(negative) << (fmt.width - 1)
    if not units:
        return sign
    while units.bit_length() <= fmt.fraction_bits and quantum > 1 - fmt.bias - fmt.fraction_bits:
        units, quantum = units << 1, quantum - 1
    field = quantum + fmt.fraction_bits + fmt.bias
    if field >= fmt.top:
        return sign | fmt.top << fmt.fraction_bits
    if units >> fmt.fraction_bits == 0:
        return sign | units
    return sign | (field << fmt.fraction_bits) + (units - (1 << fmt.fraction_bits))


def _round(value: Fraction, precision: int, smallest: int, mode: str) -> tuple[int, int]:
    """A magnitude as (units, quantum): ``precision`` bits, quantum no lower than 2**smallest.

    ``mode`` is n (nearest, ties to even), z (toward zero) or u (away from zero).
    """
    if not value:
        return 0, smallest
    size = value.numerator.bit_length() - value.denominator.bit_length()
    if value < Fraction(2) ** size:
        size -= 1
    quantum = max(size - precision + 1, smallest)
    scaled = value / Fraction(2) ** quantum
    units = scaled.numerator // scaled.denominator
    rest = scaled - units
    if (mode == "u" and rest) or (mode == "n" and (rest, units & 1) > (Fraction(1, 2), 0)):
        units += 1
    if units.bit_length() > precision:
        units, quantum = units >> 1, quantum + 1
    return units, quantum


# -- IEEE arithmetic, one rounding -------------------------------------------------------------

_TOWARD = {"rn": "nn", "rz": "zz", "rm": "zu", "rp": "uz"}
"""How a magnitude is rounded for a positive and for a negative value."""


def _ieee_round(value: Fraction, type_: str, rounding: str) -> int:
    fmt = FORMATS[type_]
    negative = value < 0
    mode = _TOWARD[rounding][negative]
    smallest = 1 - fmt.bias - fmt.fraction_bits
    units, quantum = _round(abs(value), fmt.fraction_bits + 1, smallest, mode)
    bits = _pack(negative, units, quantum, type_)
    if mode == "z" and decode(bits, type_).kind == "inf":
        return bits - 1  # the largest finite magnitude
    return bits


def ieee_fma(x: Number, y: Number, z: Number, type_: str, rounding: str = "rn") -> int:
    """x * y + z of any input formats, rounded once to ``type_``."""
    negative = x.negative != y.negative
    if "nan" in (x.kind, y.kind, z.kind):
        return NAN[type_]
    if "inf" in (x.kind, y.kind):
        zero = any(v.kind == "finite" and not v.significand for v in (x, y))
        if zero or (z.kind == "inf" and z.negative != negative):
            return NAN[type_]
        return _infinity(negative, type_)
    if z.kind == "inf":
        return _infinity(z.negative, type_)
    product, addend = x.value * y.value, z.value
    if product + addend:
        return _ieee_round(product + addend, type_, rounding)
    # a zero sum: the common sign of two zeros, otherwise + (- when rounding down)
    if not product and negative == z.negative:
        return _pack(negative, 0, 0, type_)
    return _pack(rounding == "rm", 0, 0, type_)


def ieee_add(x: Number, y: Number, type_: str) -> int:
    """x + y rounded to nearest even."""
    return ieee_fma(x, decode(0x3F800000, "f32"), y, type_)


def _infinity(negative: bool, type_: str) -> int:
    fmt = FORMATS[type_]
    return int(negative) << (fmt.width - 1) | fmt.top << fmt.fraction_bits


def convert(bits: int, source: str, target: str) -> int:
    """cvt.rn between formats; every NaN becomes the canonical one."""
    number = decode(bits, source)
    if number.kind == "nan":
        return NAN[target]
    if number.kind == "inf":
        return _infinity(number.negative, target)
    if not number.significand:
        return _pack(number.negative, 0, 0, target)
    return _ieee_round(number.value, target, "rn")


# -- the fused step ----------------------------------------------------------------------------

_OUTPUT = {  # rule: (type, significant bits, exponent of the smallest step, mode)
    "RZ-FP32": ("f32", 24, -149, "z"),
    "RZ-E8M13": ("f32", 14, -139, "z"),
    "RNE-FP16": ("f16", 11, -24, "n"),
}


@dataclass(frozen=True, slots=True)
class Term:
    """An addend significand * 2**(exponent - fraction); an empty one takes the zero exponent."""

    signed: int
    exponent: int
    fraction: int
    empty: bool


def _accumulate(terms: Sequence[Term], fraction_bits: int, zero_exponent: int, rule: str) -> int:
    """Align to the largest exponent, cut toward zero at ``fraction_bits``, add, round once."""
    exponents = [zero_exponent if t.empty else t.exponent for t in terms]
    largest = max(exponents)
    total = 0
    for t in terms:
        shift = fraction_bits + t.exponent - largest - t.fraction
        size = abs(t.signed)
        cut = size << shift if shift >= 0 else size >> -shift
        total += -cut if t.signed < 0 else cut
    type_, precision, smallest, mode = _OUTPUT[rule]
    exact = Fraction(abs(total)) * Fraction(2) ** (largest - fraction_bits)
    units, quantum = _round(exact, precision, smallest, mode)
    return _pack(total < 0 and units != 0, units, quantum, type_)


def _special(pairs: Sequence[tuple[Number, Number]], c: Number, type_: str) -> int | None:
    """The result when an operand is NaN or infinite, else None."""
    signs = set()
    for x, y in pairs:
        kinds = (x.kind, y.kind)
        if "nan" in kinds:
            return NAN[type_]
        if "inf" in kinds:
            if any(v.kind == "finite" and not v.significand for v in (x, y)):
                return NAN[type_]
            signs.add(x.negative != y.negative)
    if c.kind == "nan":
        return NAN[type_]
    if c.kind == "inf":
        signs.add(c.negative)
    if len(signs) == 2:
        return NAN[type_]
    return _infinity(signs.pop(), type_) if signs else None


def fused_step(
    a_bits: Sequence[int],
    b_bits: Sequence[int],
    c_bits: int,
    *,
    a_type: str,
    b_type: str,
    c_type: str,
    fraction_bits: int,
    zero_exponent: int,
    rounding: str,
    scale: tuple[Number, Number] | None = None,
) -> int:
    """One block: the products and the accumulator in a common fixed point, rounded once.

    ``scale`` adds its two exponents to that of every product (ue8m0 block scaling).
    """
    pairs = [(decode(x, a_type), decode(y, b_type)) for x, y in zip(a_bits, b_bits, strict=True)]
    c = decode(c_bits, c_type)
    type_ = _OUTPUT[rounding][0]
    if scale and "nan" in (scale[0].kind, scale[1].kind):
        return NAN[type_]
    special = _special(pairs, c, type_)
    if special is not None:
        return special
    extra = scale[0].exponent + scale[1].exponent if scale else 0
    terms = [
        Term(
            x.signed * y.signed, x.exponent + y.exponent + extra, x.fraction + y.fraction,
            not (x.significand and y.significand),
        )
        for x, y in pairs
    ]  # fmt: skip
    terms.append(Term(c.signed, c.exponent, c.fraction, not c.significand))
    return _accumulate(terms, fraction_bits, zero_exponent, rounding)


def _grouped_step(
    a_bits: Sequence[int],
    b_bits: Sequence[int],
    c_bits: int,
    scales: Sequence[tuple[Number, Number]],
) -> int:
    """e2m1 with scales: groups of 16 summed exactly, then scaled, then one step of F = 35."""
    c = decode(c_bits, "f32")
    if any("nan" in (x.kind, y.kind) for x, y in scales) or c.kind == "nan":
        return NAN["f32"]
    if c.kind == "inf":
        return _infinity(c.negative, "f32")
    terms = []
    for index, (x, y) in enumerate(scales):
        part = slice(16 * index, 16 * index + 16)
        pairs = [
            (decode(u, "e2m1"), decode(v, "e2m1"))
            for u, v in zip(a_bits[part], b_bits[part], strict=True)
        ]
        quarters = sum((u.value * v.value for u, v in pairs), Fraction(0)) * 4
        some = any(u.significand and v.significand for u, v in pairs)
        significand = int(quarters) * x.significand * y.significand
        empty = not (some and x.significand and y.significand)
        terms.append(Term(significand, x.exponent + y.exponent, 2 + x.fraction + y.fraction, empty))
    terms.append(Term(c.signed, c.exponent, c.fraction, not c.significand))
    return _accumulate(terms, 35, -139, "RZ-FP32")


# -- instructions ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Instruction:
    """The parts of a spelling such as ``mma.sync.m16n8k16.f32.f16.f16.f32``."""

    family: str
    shape: tuple[int, int, int]
    kind: str
    d_type: str
    a_type: str
    b_type: str
    c_type: str
    scale_type: str


def parse(spelling: str) -> Instruction:
    """Split a spelling; wgmma and tcgen05 name no accumulator type, it is that of D."""
    parts = spelling.split(".")
    shape = next(p for p in parts if p[0] == "m" and p[1].isdigit())
    kind = next((p.removeprefix("kind::") for p in parts if p.startswith("kind::")), "")
    rest = parts[parts.index(shape) + 1 :]
    types = [p for p in rest if not p.startswith(("kind::", "block", "scale_vec::"))]
    if len(types) == 3:
        types.append(types[0])
    scale_type = types[4] if len(types) == 5 else ""
    m, rest_of_shape = shape[1:].split("n")
    n, k = rest_of_shape.split("k")
    size = (int(m), int(n), int(k))
    d_type, a_type, b_type, c_type = types[:4]
    return Instruction(parts[0], size, kind, d_type, a_type, b_type, c_type, scale_type)


_FRACTION = {"Volta": 23, "Turing": 24, "Ampere": 24, "Ada Lovelace": 24}
_BLOCK_BYTES = {"Volta": 8, "Turing": 16, "Ampere": 16, "Ada Lovelace": 16}
_FP8 = ("e4m3", "e5m2")
_BYTES = {"f16": 2, "bf16": 2, "tf32": 4}
_INTEGERS = {"s8": 8, "u8": 8, "s4": 4, "u4": 4}


def _blocks(i: Instruction, architecture: str) -> tuple[int, int]:
    """(F, L) of an instruction that the tensor core executes as fused steps."""
    container = _BYTES.get(i.a_type, 1)
    if i.family in ("wgmma", "tcgen05"):
        narrow = i.family == "wgmma" and i.a_type in _FP8
        return (13 if narrow else 25), 32 // container
    if i.shape == (8, 8, 4):  # HMMA.884, also on Turing
        return 23, 4
    if i.a_type == "tf32" and i.family == "wmma":  # HMMA.1684 on every target
        return _FRACTION.get(architecture, 25), 4
    if i.a_type in _FP8 and architecture == "Ada Lovelace":
        return 13, 16
    return _FRACTION.get(architecture, 25), _BLOCK_BYTES.get(architecture, 32) // container


def _chain(
    a: Sequence[int], b: Sequence[int], c: int, i: Instruction, architecture: str,
    scale: tuple[Number, Number] | None = None,
) -> int:  # fmt: skip
    """Fused steps over ascending k, each rounded to the type of the accumulator."""
    fraction_bits, length = _blocks(i, architecture)
    # HMMA.884, and with it Volta's range, is what m8n8k4 uses on Turing
    old = architecture == "Volta" or i.shape == (8, 8, 4)
    zero_exponent = (-19 if i.d_type == "f16" else -131) - (0 if old else fraction_bits - 23)
    if fraction_bits == 13:  # the narrow unit floors where the wide one of its chip does
        zero_exponent = {"Ada Lovelace": -132, "Hopper": -133}[architecture]
        zero_exponent += 112 if i.d_type == "f16" else 0
    rounding = "RNE-FP16" if i.d_type == "f16" else "RZ-FP32"
    if rounding == "RZ-FP32" and fraction_bits == 13:
        rounding = "RZ-E8M13"
    c_type = i.c_type
    for first in range(0, len(a), length):
        block = slice(first, first + length)
        c = fused_step(
            a[block], b[block], c, a_type=i.a_type, b_type=i.b_type, c_type=c_type,
            fraction_bits=fraction_bits, zero_exponent=zero_exponent, rounding=rounding,
            scale=scale,
        )  # fmt: skip
        c_type = i.d_type
    return c


def _fp8_by_halves(
    a: Sequence[int], b: Sequence[int], c: int, i: Instruction, architecture: str
) -> int:
    """fp8 mma of Hopper and Blackwell: two f16 products, the bytes 0, 1 of each register first.

    The accumulator starts at zero; c joins in one ordinary addition at the end.
    """
    d = i.d_type
    half = Instruction("mma", (16, 8, len(a) // 2), "", d, "f16", "f16", d, "")
    total = 0
    for low in (0, 2):
        ks = [k for k in range(len(a)) if k & 2 == low]
        wide_a = [convert(a[k], i.a_type, "f16") for k in ks]
        wide_b = [convert(b[k], i.b_type, "f16") for k in ks]
        total = _chain(wide_a, wide_b, total, half, architecture)
    return ieee_add(decode(total, d), decode(c, d), d)


def _scalar_chain(a: Sequence[int], b: Sequence[int], c: int, i: Instruction) -> int:
    """m8n8k4 f16 from Ampere on: ordinary f32 arithmetic to nearest even."""
    x = [decode(v, "f16") for v in a]
    y = [decode(v, "f16") for v in b]
    addend = decode(c, i.c_type)
    if i.d_type == "f32":
        total = 0
        for u, v in zip(x, y, strict=True):
            total = ieee_fma(u, v, decode(total, "f32"), "f32")
        return ieee_add(addend, decode(total, "f32"), "f32")
    halves = []
    for k in (0, 2):
        # a product alone is a sum with the zero of its own sign
        nothing = Number("finite", x[k].negative != y[k].negative)
        first = ieee_fma(x[k], y[k], nothing, "f32")
        halves.append(ieee_fma(x[k + 1], y[k + 1], decode(first, "f32"), "f32"))
    total = ieee_add(addend, decode(halves[0], "f32"), "f32")
    return convert(ieee_add(decode(total, "f32"), decode(halves[1], "f32"), "f32"), "f32", "f16")


def _integer(bits: int, type_: str) -> int:
    width = _INTEGERS.get(type_, 32)
    signed = type_[0] == "s" and bits >> (width - 1)
    return bits - (1 << width) if signed else bits


def _integer_dot(
    a: Sequence[int], b: Sequence[int], c: int, i: Instruction, satfinite: bool
) -> int:
    pairs = zip(a, b, strict=True)
    total = sum(_integer(x, i.a_type) * _integer(y, i.b_type) for x, y in pairs)
    total += _integer(c, "s32")
    if satfinite:
        total = min(max(total, -(1 << 31)), (1 << 31) - 1)
    return total & 0xFFFFFFFF


def _element(bits: int, type_: str, kind: str) -> int:
    """The pattern in a byte container: e2m1 in bits 5:2, six-bit types in bits 5:0."""
    if kind not in ("f8f6f4", "mxf8f6f4") or type_ in _FP8:
        return bits
    return bits >> 2 & 0xF if type_ == "e2m1" else bits & 0x3F


def dot(
    a_bits: Sequence[int],
    b_bits: Sequence[int],
    c_bits: int,
    instruction: str,
    architecture: str,
    *,
    scale_a: Sequence[int] = (),
    scale_b: Sequence[int] = (),
    satfinite: bool = False,
    bit_operation: Literal["xor", "and"] = "xor",
    rounding: str = "rn",
) -> int:
    """One element of D.  Elements are as they lie in a register; b1 elements are single bits."""
    i = parse(instruction)
    a = [_element(x, i.a_type, i.kind) for x in a_bits]
    b = [_element(x, i.b_type, i.kind) for x in b_bits]
    if i.a_type == "b1":
        count = sum(x ^ y if bit_operation == "xor" else x & y for x, y in zip(a, b, strict=True))
        return (c_bits + count) & 0xFFFFFFFF
    if i.a_type in _INTEGERS:
        return _integer_dot(a, b, c_bits, i, satfinite)
    if i.a_type == "f64":
        for x, y in zip(a, b, strict=True):
            numbers = decode(x, "f64"), decode(y, "f64"), decode(c_bits, "f64")
            c_bits = ieee_fma(*numbers, "f64", rounding)
        return c_bits
    if i.scale_type:
        scales = [
            (decode(x, i.scale_type), decode(y, i.scale_type))
            for x, y in zip(scale_a, scale_b, strict=True)
        ]
        if i.kind == "mxf8f6f4":
            return _chain(a, b, c_bits, i, architecture, scales[0])
        repeat = 4 // len(scales)
        return _grouped_step(a, b, c_bits, [s for s in scales for _ in range(repeat)])
    if i.family == "wmma":
        return _wmma_dot(a, b, c_bits, i, architecture)
    if i.family == "mma" and not i.kind and i.a_type in _FP8:
        if architecture in ("Hopper", "Blackwell"):
            return _fp8_by_halves(a, b, c_bits, i, architecture)
    if i.shape == (8, 8, 4) and architecture not in ("Volta", "Turing"):
        return _scalar_chain(a, b, c_bits, i)
    return _chain(a, b, c_bits, i, architecture)


def _wmma_dot(a: Sequence[int], b: Sequence[int], c: int, i: Instruction, architecture: str) -> int:
    """f16 accumulators that differ in type: the sum is f32 when either of C and D is."""
    if i.c_type == i.d_type:
        return _chain(a, b, c, i, architecture)
    wide = Instruction(i.family, i.shape, "", "f32", i.a_type, i.b_type, i.c_type, "")
    if i.c_type == "f16" and architecture != "Volta":  # widened before the first step
        c = convert(c, "f16", "f32")
        wide = Instruction(i.family, i.shape, "", "f32", i.a_type, i.b_type, "f32", "")
    total = _chain(a, b, c, wide, architecture)
    return total if i.d_type == "f32" else convert(total, "f32", "f16")

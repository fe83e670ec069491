"""The rules of cvt and cvt.pack on single patterns, beside :mod:`scalar_model`.

PTX ISA 9.2, "Data Movement and Conversion Instructions: cvt, cvt.pack".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import scalar_model as model
from scalar_model import LAYOUTS, Number

__all__ = ["convert", "element", "pack_integers"]

Mods = Mapping[str, str]


def element(name: str) -> str:
    """The type of one element."""
    return name[:-2] if name.endswith(("x2", "x4")) else name


def _is_integer(name: str) -> bool:
    return name[0] in "us" and name[1:].isdigit()


def _signed(bits: int, width: int) -> int:
    return bits - (bits >> (width - 1) << width)


def _limit(value: int, name: str) -> int:
    width = int(name[1:])
    low = -(1 << (width - 1)) if name[0] == "s" else 0
    return min(max(value, low), low + (1 << width) - 1)


def convert(m: Mods, sources: Sequence[int]) -> int:
    """The result of one cvt: its type is in ``dtype``, that of the sources in ``atype``."""
    to, of = m["dtype"], m["atype"]
    if _is_integer(of):
        return _from_integer(m, sources[0])
    if _is_integer(to):
        return _to_integer(m, sources[0])
    if to.endswith("x4"):
        return _quad(m, sources)
    if to.endswith("x2"):
        return _pair(m, sources)
    return _float(m, sources[0], to, of)


def _from_integer(m: Mods, bits: int) -> int:
    to, of = m["dtype"], m["atype"]
    width = int(of[1:])
    value = _signed(bits, width) if of[0] == "s" else bits
    if _is_integer(to):
        return (_limit(value, to) if m.get("sat") else value) & ((1 << int(to[1:])) - 1)
    out = model.pattern(Number(int(value < 0), abs(value), 0), LAYOUTS[to], m["rnd"])
    return model.clamp(out, LAYOUTS[to], "sat") if m.get("sat") else out


def _to_integer(m: Mods, bits: int) -> int:
    to, of = m["dtype"], m["atype"]
    width = int(to[1:])
    x = model.number(_flushed(m, bits, of), LAYOUTS[of])
    if x.special == "nan":
        return 1 << (width - 1) if of == "f64" or width == 64 else 0
    if x.special == "inf":
        whole = -(1 << 2000) if x.sign else 1 << 2000
    else:
        whole = model.integral(x, m["irnd"])
    return _limit(whole, to) & ((1 << width) - 1)


def _flushed(m: Mods, bits: int, name: str) -> int:
    return model.flush(bits, LAYOUTS[name]) if m.get("ftz") and name == "f32" else bits


def _float(
    m: Mods,
    bits: int,
    to: str,
    of: str,
    random: tuple[int, int] = (0, 0),
    factor: Number = model.ONE,
) -> int:
    """One float as another, after a factor that is a power of two."""
    target = LAYOUTS[to]
    bits = _flushed(m, bits, of)
    if to == of and not (m.get("sat") or m.get("irnd")):
        return bits  # a copy, NaNs too
    if m.get("rnd") == "rna":
        return _nearest_away(m, bits)
    x = model.mul(model.number(bits, LAYOUTS[of]), factor, "rn")
    if m.get("irnd") and not x.special:
        whole = model.integral(x, m["irnd"])
        x = Number(x.sign, abs(whole), 0)
    saturate = bool(m.get("satfinite")) or target.infinity is None or element(to) == "e5m2"
    mode = m.get("rnd") or "rn"
    out = model.pattern(x, target, mode, saturate=saturate, random=random)
    if x.special == "nan" and to == "f64" and of != "f64":
        out = 0x7FFFFFFFE0000000  # ptxas folds the canonical NaN of f32, widened
    if to == "f32" and m.get("ftz"):
        out = model.flush(out, target)
    if m.get("sat"):
        return model.clamp(out, target, "sat")
    if m.get("relu") and x.special != "nan":
        return 0 if x.sign else out
    return out


def _nearest_away(m: Mods, bits: int) -> int:
    """cvt.rna.tf32: measured on machines, infinity and NaN are only cut."""
    special = bits & 0x7F800000 == 0x7F800000
    if special:
        out = bits & 0xFFFFE000
    else:
        out = model.pattern(model.number(bits, LAYOUTS["f32"]), LAYOUTS["tf32"], "rna")
    if m.get("satfinite") and out & 0x7F800000 == 0x7F800000:
        out -= 0x2000
    return out


def _scale(bits: int) -> Number:
    """A factor of type ue8m0."""
    return model.NAN if bits == 0xFF else Number(0, 1, bits - 127)


def _power(m: Mods, bits: int, of: str) -> int:
    """The magnitude as a ue8m0: the power of two below it (rz) or above it (rp)."""
    x = model.number(bits, LAYOUTS[of])
    if x.special == "nan":
        return 0xFF
    if x.special == "inf":
        return 0xFE if m.get("satfinite") else 0xFF
    if x.integer == 0:
        return 0
    exponent = x.exponent + x.integer.bit_length() - 1
    exact = x.integer & (x.integer - 1) == 0
    if m["rnd"] == "rp" and not exact:
        exponent += 1
    return min(max(exponent + 127, 0), 0xFE if m.get("satfinite") else 0xFF)


def _fixed(m: Mods, bits: int, of: str, factor: Number) -> int:
    """A float over a factor as s2f6: a byte of 64ths; NaN as the largest."""
    x = model.div(model.number(bits, LAYOUTS[of]), factor, "rn")
    if x.special == "nan":
        return 0x7F
    if x.special == "inf":
        units = -(1 << 60) if x.sign else 1 << 60
    else:
        units = model.integral(x._replace(exponent=x.exponent + 6), "rni")
    units = min(max(units, 0 if m.get("relu") else -128), 127)
    return units & 0xFF


def _from_fixed(m: Mods, bits: int, factor: Number) -> int:
    value = _signed(bits, 8)
    x = model.mul(Number(int(value < 0), abs(value), -6), factor, "rn")
    out = model.pattern(x, LAYOUTS["bf16"], "rn", saturate=bool(m.get("satfinite")))
    return 0 if m.get("relu") and x.sign and x.special != "nan" else out


def _widths(name: str) -> tuple[int, int]:
    """Bits of an element and the distance of two in a register."""
    layout = LAYOUTS.get(name)
    bits = 8 if layout is None else layout.exponent_bits + layout.mantissa_bits + 1
    return bits, 8 if bits == 6 else bits


def _pair(m: Mods, sources: Sequence[int]) -> int:
    to, of = element(m["dtype"]), element(m["atype"])
    rest = list(sources)
    random = rest.pop() if m["rnd"] == "rs" else 0
    scales = rest.pop() if m.get("scaled") else 0x7F7F
    if m["atype"].endswith("x2"):
        bits, step = _widths(of)
        rest = [rest[0] >> step & ((1 << bits) - 1), rest[0] & ((1 << bits) - 1)]
    out = 0
    count = 13 if to == "f16" else 16
    for index, bits in enumerate(rest):  # the upper element first
        factor = _scale(scales >> (8 - 8 * index) & 0xFF)
        word = random >> (16 - 16 * index) & ((1 << count) - 1)
        if to == "ue8m0":
            one = _power(m, bits, of)
        elif of == "ue8m0":
            one = 0x7FFF if bits == 0xFF else model.pattern(_scale(bits), LAYOUTS[to], "rn")
        elif to == "s2f6":
            one = _fixed(m, bits, of, factor)
        elif of == "s2f6":
            one = _from_fixed(m, bits, factor)
        else:
            one = _float(m, bits, to, of, (word, count), factor)
        out = out << _widths(to)[1] | one
    return out


def _quad(m: Mods, sources: Sequence[int]) -> int:
    """Sixteen random bits for a and b, sixteen for e and f; each pair uses all of its own."""
    *values, random = sources
    to = element(m["dtype"])
    if to == "e2m1":
        high = (random >> 24 & 0xFF) << 8 | random >> 8 & 0xFF
        low = (random >> 16 & 0xFF) << 8 | random & 0xFF
    else:
        high, low = random >> 16, random & 0xFFFF
    out = 0
    for bits, word in zip(values, (high, high, low, low), strict=True):
        out = out << _widths(to)[1] | _float(m, bits, to, "f32", (word, 16))
    return out


def pack_integers(m: Mods, sources: Sequence[int]) -> int:
    """cvt.pack: b lowest, a above it, c above both."""
    width = int(m["ctype"][1:])
    mask = (1 << width) - 1
    a, b = (_limit(_signed(v, 32), m["ctype"]) & mask for v in sources[:2])
    out = a << width | b
    if len(sources) > 2:
        out |= sources[2] << (2 * width)
    return out & 0xFFFFFFFF

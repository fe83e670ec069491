"""Conversions (PTX ISA 9.1, Data Movement and Conversion Instructions: cvt, cvt.pack)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..numerics import convert, convert_packed
from ..numerics.formats import BF16, F32, FORMATS
from ..numerics.half import high_half, low_half
from ..types import SCALAR_TYPES
from .definedness import Rule, elements, moved, pair
from .record import Form, Mods, Pure, instruction

__all__: list[str] = []

_SECTION = "Data Movement and Conversion Instructions: "

_INTS = "u8 s8 u16 s16 u32 s32 u64 s64"
_ROUND_FLOAT = "{rn rz rm rp}"
_ROUND_INT = "{rni rzi rmi rpi}"
_OPERANDS = "=^d.dtype, ^a.atype"
#: Where an alternate or a packed format takes part no register is wider than its type (measured).
_EXACT = "=d.dtype, a.atype"
#: family- and architecture-specific targets that have the narrow formats
_NARROW = "sm_100a/sm_100f/sm_103a/sm_107a/sm_110a/sm_110f/sm_120a/sm_120f/sm_121a"


#: and those that have the fixed-point type s2f6
_FIXED = "9.1+sm_100a/sm_103a/sm_107a/sm_110a/sm_120a/sm_121a"
#: targets that have stochastic rounding
_STOCHASTIC = "8.7+sm_100a/sm_103a/sm_107a"


@instruction("cvt", isa=_SECTION + "cvt")
class Cvt(Pure):
    """Convert between integer and float types."""

    forms = (
        Form(f"sat? dtype:{{{_INTS}}} atype:{{{_INTS}}}", _OPERANDS),
        Form(f"rnd:{_ROUND_FLOAT} ftz? sat? dtype:{{f32 f64}} atype:{{{_INTS}}}", _OPERANDS),
        Form(f"rnd:{_ROUND_FLOAT} sat? dtype:{{f16}} atype:{{{_INTS}}}", _OPERANDS),
        Form(f"rnd:{_ROUND_FLOAT} dtype:{{bf16}} atype:{{{_INTS}}}", _EXACT, floor="7.8+sm_90"),
        Form(f"irnd:{_ROUND_INT} ftz? sat? dtype:{{{_INTS}}} atype:{{f32 f64 f16}}", _OPERANDS),
        Form(
            f"irnd:{_ROUND_INT} dtype:{{u16 u32 u64 s16 s32 s64}} atype:{{bf16}}",
            _EXACT,
            floor="7.8+sm_90",
        ),
        Form("ftz? sat? dtype:{f32} atype:{f32}", _OPERANDS),
        Form("sat? dtype:{f64} atype:{f64}", _OPERANDS),
        Form("sat? dtype:{f16} atype:{f16}", _OPERANDS),
        Form(f"irnd:{_ROUND_INT} ftz? sat? dtype:{{f32}} atype:{{f32}}", _OPERANDS),
        Form(f"irnd:{_ROUND_INT} sat? dtype:{{f64}} atype:{{f64}}", _OPERANDS),
        Form(f"irnd:{_ROUND_INT} ftz? sat? dtype:{{f16}} atype:{{f16}}", _OPERANDS),
        Form(f"irnd:{_ROUND_INT} dtype:{{bf16}} atype:{{bf16}}", _EXACT, floor="7.8+sm_90"),
        Form("ftz? sat? dtype:{f64} atype:{f32}", _OPERANDS),
        Form("sat? dtype:{f64} atype:{f16}", _OPERANDS),
        Form("ftz? sat? dtype:{f32} atype:{f16}", _OPERANDS),
        Form(f"rnd:{_ROUND_FLOAT} ftz? sat? dtype:{{f32}} atype:{{f64}}", _OPERANDS),
        Form(f"rnd:{_ROUND_FLOAT} ftz? sat? dtype:{{f16}} atype:{{f32 f64}}", _OPERANDS),
        # ptxas 13.0 takes a rounding of what is exact from bf16, and from no other format.
        Form(f"rnd?:{_ROUND_FLOAT} dtype:{{f32}} atype:{{bf16}}", _EXACT, floor="7.1+sm_80"),
        Form(f"rnd?:{_ROUND_FLOAT} ftz dtype:{{f32}} atype:{{bf16}}", _EXACT, floor="7.8+sm_90"),
        Form("dtype:{bf16} atype:{bf16}", _EXACT, floor="7.8+sm_90"),
        Form(f"rnd?:{_ROUND_FLOAT} dtype:{{f64}} atype:{{bf16}}", _EXACT, floor="7.8+sm_90"),
        Form(f"rnd:{_ROUND_FLOAT} dtype:{{bf16}} atype:{{f64 f16}}", _EXACT, floor="7.8+sm_90"),
        Form(f"rnd:{_ROUND_FLOAT} dtype:{{f16}} atype:{{bf16}}", _EXACT, floor="7.8+sm_90"),
        Form("rnd:{rn rz} relu dtype:{f16} atype:{f32}", _OPERANDS, floor="7.0+sm_80"),
        Form("rnd:{rn rz} relu dtype:{bf16} atype:{f32}", _EXACT, floor="7.0+sm_80"),
        Form("rnd:{rn rz rm rp} ftz? dtype:{bf16} atype:{f32}", _EXACT, floor="7.0+sm_80"),
        Form("rnd:{rn rz} satfinite dtype:{f16} atype:{f32}", _OPERANDS, floor="8.1+sm_70"),
        Form("rnd:{rn rz} relu satfinite dtype:{f16} atype:{f32}", _OPERANDS, floor="8.1+sm_80"),
        Form("rnd:{rn rz} relu? satfinite dtype:{bf16} atype:{f32}", _EXACT, floor="8.1+sm_80"),
        Form(
            "rnd:{rna} satfinite?:{satfinite@8.1} dtype:{tf32} atype:{f32}",
            _EXACT,
            floor="7.0+sm_80",
        ),
        Form("rnd:{rn rz} relu? dtype:{tf32} atype:{f32}", _EXACT, floor="7.8+sm_90"),
        Form("rnd:{rn rz} satfinite relu? dtype:{tf32} atype:{f32}", _EXACT, floor="8.6+sm_100"),
    )

    def check(self, m: Mods) -> str | None:
        """.ftz goes with f32; between integers .sat needs a result type that cannot hold every
        source (measured)."""
        if m.ftz and "f32" not in (m.dtype, m.atype):
            return ".ftz is legal only from or to f32"
        d, a = SCALAR_TYPES[m.dtype], SCALAR_TYPES[m.atype]
        if not m.sat or d.kind not in "us" or a.kind not in "us":
            return None
        if d.signed == a.signed:
            holds = d.bits >= a.bits
        else:
            holds = d.signed and d.bits > a.bits
        return f".sat is not legal: {d} holds every {a}" if holds else None

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        to, of = SCALAR_TYPES[m.dtype], SCALAR_TYPES[m.atype]
        to_int, of_int = to.kind in "us", of.kind in "us"
        if to_int and of_int:
            return partial(
                convert.int_to_int, from_width=of.bits, from_signed=of.signed, to_width=to.bits,
                to_signed=to.signed, sat=bool(m.sat),
            )  # fmt: skip
        if of_int:
            return partial(
                convert.int_to_float, width=of.bits, signed=of.signed, fmt=FORMATS[m.dtype],
                rounding=m.rnd, sat=bool(m.sat),
            )  # fmt: skip
        if to_int:
            return partial(
                convert.float_to_int, fmt=FORMATS[m.atype], width=to.bits, signed=to.signed,
                rounding=m.irnd, ftz=bool(m.ftz),
            )  # fmt: skip
        if m.irnd:
            return partial(
                convert.round_to_integral, fmt=FORMATS[m.atype], rounding=m.irnd, ftz=bool(m.ftz),
                sat=bool(m.sat),
            )  # fmt: skip
        return partial(
            convert.float_to_float, source=FORMATS[m.atype], target=FORMATS[m.dtype],
            rounding=m.rnd or "rn", ftz=bool(m.ftz), sat=bool(m.sat), satfinite=bool(m.satfinite),
            relu=bool(m.relu),
        )  # fmt: skip

    def undefined_bits(self, m: Mods) -> Rule | None:
        """Integers are cut or extended."""
        integers = SCALAR_TYPES[m.dtype].kind in "us" and SCALAR_TYPES[m.atype].kind in "us"
        return moved(self.evaluate(m)) if integers and not m.sat else None


def _element(name: str) -> str:
    return name[:-2] if name.endswith(("x2", "x4")) else name


@instruction("cvt", isa=_SECTION + "cvt")
class CvtPackPair(Pure):
    """Two f32 into one packed register: a in the upper element."""

    _TWO = "=^d.dtype, a.atype, b.atype"
    forms = (
        Form("rnd:{rn rz} relu? dtype:{f16x2 bf16x2} atype:{f32}", _TWO, floor="7.0+sm_80"),
        Form(
            "rnd:{rn rz} relu? satfinite dtype:{f16x2 bf16x2} atype:{f32}", _TWO, floor="8.1+sm_80"
        ),
        Form(
            "rnd:{rn} satfinite relu? dtype:{e4m3x2 e5m2x2} atype:{f32}", _TWO, floor="8.1+sm_89"
        ),
        Form(
            "rnd:{rn} satfinite relu? dtype:{e2m1x2 e2m3x2 e3m2x2} atype:{f32}",
            "=d.dtype, a.atype, b.atype",
            floor=f"8.6+{_NARROW}",
        ),
        Form("rnd:{rz rp} satfinite? dtype:{ue8m0x2} atype:{f32}", _TWO, floor=f"8.6+{_NARROW}"),
        Form(
            "rnd:{rs} relu? satfinite? dtype:{f16x2 bf16x2} atype:{f32}", _TWO + ", 'r.b32",
            floor=_STOCHASTIC,
        ),
    )  # fmt: skip

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        pack = partial(
            convert_packed.pack_pair, target=FORMATS[_element(m.dtype)], rounding=m.rnd,
            satfinite=bool(m.satfinite), relu=bool(m.relu),
        )  # fmt: skip
        if m.rnd == "rs":
            return lambda a, b, random: pack(a, b, random=random)
        return pack

    def undefined_bits(self, m: Mods) -> Rule | None:
        return None if m.rnd == "rs" else pair(SCALAR_TYPES[m.dtype].bits // 2)


@instruction("cvt", isa=_SECTION + "cvt", floor=_STOCHASTIC)
class CvtPackQuad(Pure):
    """Four f32 into one packed register, stochastically rounded: a in the uppermost element."""

    forms = (
        Form(
            "rnd:{rs} relu? satfinite dtype:{e4m3x4 e5m2x4 e2m3x4 e3m2x4 e2m1x4} atype:{f32}",
            "=^d.dtype, a.atype*4, 'r.b32",
        ),
    )

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(
            convert_packed.pack_quad, target=FORMATS[_element(m.dtype)], relu=bool(m.relu)
        )


@instruction("cvt", isa=_SECTION + "cvt")
class CvtNarrowPair(Pure):
    """A packed pair of halves into a packed pair of a narrow format."""

    forms = (
        Form(
            "rnd:{rn} satfinite relu? dtype:{e4m3x2 e5m2x2} atype:{f16x2}", _EXACT,
            floor="8.1+sm_89",
        ),
        Form(
            "rnd:{rn} satfinite relu? dtype:{e4m3x2 e5m2x2} atype:{bf16x2}", _EXACT,
            floor=f"9.1+{_NARROW}",
        ),
        Form(
            "rnd:{rn} satfinite relu? dtype:{e2m1x2 e2m3x2 e3m2x2} atype:{f16x2 bf16x2}", _EXACT,
            floor=f"9.1+{_NARROW}",
        ),
        Form(
            "rnd:{rz rp} satfinite? dtype:{ue8m0x2} atype:{bf16x2}", _EXACT,
            floor=f"8.6+{_NARROW}",
        ),
    )  # fmt: skip

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(
            convert_packed.narrow_pair, source=FORMATS[_element(m.atype)],
            target=FORMATS[_element(m.dtype)], rounding=m.rnd, satfinite=bool(m.satfinite),
            relu=bool(m.relu),
        )  # fmt: skip

    def undefined_bits(self, m: Mods) -> Rule | None:
        return elements(2, SCALAR_TYPES[m.dtype].bits)


@instruction("cvt", isa=_SECTION + "cvt")
class CvtWidenPair(Pure):
    """A packed pair of a narrow format into a packed pair of halves."""

    forms = (
        Form("rnd:{rn} relu? dtype:{f16x2} atype:{e4m3x2 e5m2x2}", _EXACT, floor="8.1+sm_89"),
        Form(
            "rnd:{rn} relu? dtype:{f16x2} atype:{e2m1x2 e2m3x2 e3m2x2}", _EXACT,
            floor=f"8.6+{_NARROW}",
        ),
        Form("rnd:{rn} dtype:{bf16x2} atype:{ue8m0x2}", _EXACT, floor=f"8.6+{_NARROW}"),
    )  # fmt: skip

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(
            convert_packed.widen_pair, source=FORMATS[_element(m.atype)],
            target=FORMATS[_element(m.dtype)], relu=bool(m.relu),
        )  # fmt: skip

    def undefined_bits(self, m: Mods) -> Rule | None:
        return elements(2, SCALAR_TYPES[m.dtype].bits)


_SCALED = "scaled?:{scaled::n2::ue8m0}"


def _factor(of_pair: Rule, scaled: bool) -> Rule | None:
    """The rule of a pair of elements; a factor is an operand of its own, for which none is kept."""
    return None if scaled else of_pair


@instruction("cvt", isa=_SECTION + "cvt")
class CvtWidenScaled(Pure):
    """A packed pair of a narrow format into bf16x2, times factors of type ue8m0."""

    _HEAD = f"rnd:{{rn}} relu? satfinite? {_SCALED} dtype:{{bf16x2}}"
    _ONE = "=d.dtype, a.atype, s.b16?scaled"
    forms = (
        Form(f"{_HEAD} atype:{{e4m3x2 e5m2x2 e2m1x2 e2m3x2 e3m2x2}}", _ONE, floor=f"9.2+{_NARROW}"),
        Form(f"{_HEAD} atype:{{s2f6x2}}", _ONE, floor=_FIXED),
    )

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        modifiers: dict[str, Any] = {"satfinite": bool(m.satfinite), "relu": bool(m.relu)}
        if m.atype == "s2f6x2":
            return partial(convert_packed.from_fixed_pair, **modifiers)
        source = FORMATS[_element(m.atype)]
        return partial(convert_packed.widen_scaled, source=source, **modifiers)

    def undefined_bits(self, m: Mods) -> Rule | None:
        return _factor(elements(2, 32), bool(m.scaled))


@instruction("cvt", isa=_SECTION + "cvt", floor=_FIXED)
class CvtFixedPair(Pure):
    """Two floats, divided by factors of type ue8m0, into a pair of the fixed-point type s2f6."""

    _HEAD = f"rnd:{{rn}} satfinite relu? {_SCALED} dtype:{{s2f6x2}}"
    forms = (
        Form(f"{_HEAD} atype:{{f32}}", "=d.dtype, a.atype, b.atype, s.b16?scaled"),
        Form(f"{_HEAD} atype:{{bf16x2}}", "=d.dtype, a.atype, s.b16?scaled"),
    )

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        if m.atype == "f32":
            return partial(convert_packed.to_fixed_pair, source=F32, relu=bool(m.relu))
        convert_pair = partial(convert_packed.to_fixed_pair, source=BF16, relu=bool(m.relu))
        return lambda a, *scale: convert_pair(high_half(a), low_half(a), *scale)

    def undefined_bits(self, m: Mods) -> Rule | None:
        return _factor(pair(8) if m.atype == "f32" else elements(2, 16), bool(m.scaled))


@instruction("cvt.pack", isa=_SECTION + "cvt.pack", floor="6.5+sm_72")
class CvtPack(Pure):
    """Clamp two integers and pack them; b in the low bits."""

    forms = (
        Form("sat ctype:{u16 s16} type:{s32}", "=d.u32, a.type, b.type"),
        Form("sat ctype:{u8 s8} type:{s32} c32:{b32}", "=d.u32, a.type, b.type, c.b32"),
        Form(
            "sat ctype:{u4 s4 u2 s2} type:{s32} c32:{b32}",
            "=d.u32, a.type, b.type, c.b32",
            floor="6.5+sm_75",
        ),
    )

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        width, signed = SCALAR_TYPES[m.ctype].bits, m.ctype[0] == "s"
        return partial(convert_packed.cvt_pack, width=width, signed=signed)

    def undefined_bits(self, m: Mods) -> Rule | None:
        return pair(SCALAR_TYPES[m.ctype].bits, keeps=True)

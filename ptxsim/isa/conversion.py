"""Conversions (PTX ISA 9.1, Data Movement and Conversion Instructions: cvt, cvt.pack)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..numerics import convert, convert_packed
from ..numerics.formats import FORMATS, Format
from ..types import SCALAR_TYPES
from .definedness import Rule, elements, moved, pair
from .record import Form, Mods, Pure, instruction

__all__: list[str] = []

_SECTION = "Data Movement and Conversion Instructions: "

_INTS = "u8 s8 u16 s16 u32 s32 u64 s64"
_ROUND_FLOAT = "{rn rz rm rp}"
_ROUND_INT = "{rni rzi rmi rpi}"
_OPERANDS = "=^d.dtype, ^a.atype"
#: between formats of which one is no type of registers
_EXACT = "=d.dtype, a.atype"
#: family- and architecture-specific targets that have the narrow formats
_NARROW = "sm_100a/sm_100f/sm_103a/sm_107a/sm_110a/sm_110f/sm_120a/sm_120f/sm_121a"


def _format(name: str) -> Format:
    for fmt in FORMATS.values() if isinstance(FORMATS, dict) else FORMATS:
        if fmt.name == name:
            return fmt
    raise KeyError(name)


@instruction("cvt", isa=_SECTION + "cvt")
class Cvt(Pure):
    """Convert between integer and float types."""

    forms = (
        Form(f"sat? dtype:{{{_INTS}}} atype:{{{_INTS}}}", _OPERANDS),
        Form(f"rnd:{_ROUND_FLOAT} ftz? sat? dtype:{{f32 f64}} atype:{{{_INTS}}}", _OPERANDS),
        Form(f"rnd:{_ROUND_FLOAT} sat? dtype:{{f16}} atype:{{{_INTS}}}", _OPERANDS),
        Form(f"rnd:{_ROUND_FLOAT} dtype:{{bf16}} atype:{{{_INTS}}}", _OPERANDS, floor="7.8+sm_90"),
        Form(f"irnd:{_ROUND_INT} ftz? sat? dtype:{{{_INTS}}} atype:{{f32 f64 f16}}", _OPERANDS),
        Form(
            f"irnd:{_ROUND_INT} dtype:{{u16 u32 u64 s16 s32 s64}} atype:{{bf16}}",
            _OPERANDS,
            floor="7.8+sm_90",
        ),
        Form("ftz? sat? dtype:{f32} atype:{f32}", _OPERANDS),
        Form("sat? dtype:{f64} atype:{f64}", _OPERANDS),
        Form("sat? dtype:{f16} atype:{f16}", _OPERANDS),
        Form(f"irnd:{_ROUND_INT} ftz? sat? dtype:{{f32}} atype:{{f32}}", _OPERANDS),
        Form(f"irnd:{_ROUND_INT} sat? dtype:{{f64}} atype:{{f64}}", _OPERANDS),
        Form(f"irnd:{_ROUND_INT} ftz? sat? dtype:{{f16}} atype:{{f16}}", _OPERANDS),
        Form(f"irnd:{_ROUND_INT} dtype:{{bf16}} atype:{{bf16}}", _OPERANDS, floor="7.8+sm_90"),
        Form("ftz? sat? dtype:{f64} atype:{f32}", _OPERANDS),
        Form("sat? dtype:{f64} atype:{f16}", _OPERANDS),
        Form("ftz? sat? dtype:{f32} atype:{f16}", _OPERANDS),
        Form(f"rnd:{_ROUND_FLOAT} ftz? sat? dtype:{{f32}} atype:{{f64}}", _OPERANDS),
        Form(f"rnd:{_ROUND_FLOAT} ftz? sat? dtype:{{f16}} atype:{{f32 f64}}", _OPERANDS),
        Form("dtype:{f32} atype:{bf16}", _OPERANDS, floor="7.1+sm_80"),
        Form("ftz dtype:{f32} atype:{bf16}", _OPERANDS, floor="7.8+sm_90"),
        Form("dtype:{bf16} atype:{bf16}", _OPERANDS, floor="7.8+sm_90"),
        Form("dtype:{f64} atype:{bf16}", _OPERANDS, floor="7.8+sm_90"),
        Form(f"rnd:{_ROUND_FLOAT} dtype:{{bf16}} atype:{{f64 f16}}", _OPERANDS, floor="7.8+sm_90"),
        Form(f"rnd:{_ROUND_FLOAT} dtype:{{f16}} atype:{{bf16}}", _OPERANDS, floor="7.8+sm_90"),
        Form("rnd:{rn rz} relu dtype:{bf16 f16} atype:{f32}", _OPERANDS, floor="7.0+sm_80"),
        Form("rnd:{rn rz rm rp} ftz? dtype:{bf16} atype:{f32}", _OPERANDS, floor="7.0+sm_80"),
        Form(
            "rnd:{rn rz} relu? satfinite dtype:{bf16 f16} atype:{f32}", _OPERANDS, floor="8.1+sm_80"
        ),
        Form(
            "rnd:{rna} satfinite?:{satfinite@8.1} dtype:{tf32} atype:{f32}",
            _OPERANDS,
            floor="7.0+sm_80",
        ),
        Form("rnd:{rn rz} relu? dtype:{tf32} atype:{f32}", _OPERANDS, floor="7.8+sm_90"),
        Form("rnd:{rn rz} satfinite relu? dtype:{tf32} atype:{f32}", _OPERANDS, floor="8.6+sm_100"),
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
                convert.int_to_float, width=of.bits, signed=of.signed, fmt=_format(m.dtype),
                rounding=m.rnd, sat=bool(m.sat),
            )  # fmt: skip
        if to_int:
            return partial(
                convert.float_to_int, fmt=_format(m.atype), width=to.bits, signed=to.signed,
                rounding=m.irnd, ftz=bool(m.ftz),
            )  # fmt: skip
        if m.irnd:
            return partial(
                convert.round_to_integral, fmt=_format(m.atype), rounding=m.irnd, ftz=bool(m.ftz),
                sat=bool(m.sat),
            )  # fmt: skip
        return partial(
            convert.float_to_float, source=_format(m.atype), target=_format(m.dtype),
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
            "rnd:{rn} satfinite relu? dtype:{e2m1x2 e2m3x2 e3m2x2} atype:{f32}", _TWO,
            floor=f"8.6+{_NARROW}",
        ),
        Form("rnd:{rz rp} satfinite? dtype:{ue8m0x2} atype:{f32}", _TWO, floor=f"8.6+{_NARROW}"),
        Form(
            "rnd:{rs} relu? satfinite? dtype:{f16x2 bf16x2} atype:{f32}", _TWO + ", r.b32",
            floor="8.7+sm_100a/sm_103a/sm_107a", unsupported="cvt.rs is not modelled",
        ),
    )  # fmt: skip

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(
            convert_packed.pack_pair, target=_format(_element(m.dtype)), rounding=m.rnd,
            satfinite=bool(m.satfinite), relu=bool(m.relu),
        )  # fmt: skip

    def undefined_bits(self, m: Mods) -> Rule | None:
        return pair(SCALAR_TYPES[m.dtype].bits // 2)


@instruction("cvt", isa=_SECTION + "cvt")
class CvtNarrowPair(Pure):
    """A packed pair of halves into a packed pair of a narrow format."""

    forms = (
        Form(
            "rnd:{rn} satfinite relu? dtype:{e4m3x2 e5m2x2} atype:{f16x2}", _OPERANDS,
            floor="8.1+sm_89",
        ),
        Form(
            "rnd:{rn} satfinite relu? dtype:{e4m3x2 e5m2x2} atype:{bf16x2}", _OPERANDS,
            floor=f"9.1+{_NARROW}",
        ),
        Form(
            "rnd:{rn} satfinite relu? dtype:{e2m1x2 e2m3x2 e3m2x2} atype:{f16x2 bf16x2}", _OPERANDS,
            floor=f"9.1+{_NARROW}",
        ),
        Form(
            "rnd:{rz rp} satfinite? dtype:{ue8m0x2} atype:{bf16x2}", _OPERANDS,
            floor=f"8.6+{_NARROW}",
        ),
    )  # fmt: skip

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(
            convert_packed.narrow_pair, source=_format(_element(m.atype)),
            target=_format(_element(m.dtype)), rounding=m.rnd, satfinite=bool(m.satfinite),
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
            convert_packed.widen_pair, source=_format(_element(m.atype)),
            target=_format(_element(m.dtype)), relu=bool(m.relu),
        )  # fmt: skip

    def undefined_bits(self, m: Mods) -> Rule | None:
        return elements(2, SCALAR_TYPES[m.dtype].bits)


@instruction("cvt", isa=_SECTION + "cvt")
class CvtNotModelled(Pure):
    """Narrow forms that are legal and not modelled yet."""

    _SCALED = "scaled?:{scaled::n2::ue8m0}"
    forms = tuple(
        Form(modifiers, operands, floor=floor, unsupported="this form of cvt is not modelled")
        for modifiers, operands, floor in (
            (
                f"rnd:{{rn}} relu? satfinite? {_SCALED} dtype:{{bf16x2}}"
                " atype:{e4m3x2 e5m2x2 e2m1x2 e2m3x2 e3m2x2 s2f6x2}",
                "=^d.dtype, ^a.source, s.b16?",
                f"9.1+{_NARROW}",
            ),
            (
                f"rnd:{{rn}} satfinite relu? {_SCALED} dtype:{{s2f6x2}} atype:{{f32}}",
                "=^d.b16, a.atype, b.atype, s.b16?",
                f"9.1+{_NARROW}",
            ),
            (
                f"rnd:{{rn}} satfinite relu? {_SCALED} dtype:{{s2f6x2}} atype:{{bf16x2}}",
                "=^d.b16, a.atype, s.b16?",
                f"9.1+{_NARROW}",
            ),
            (
                "rnd:{rs} relu? satfinite dtype:{e4m3x4 e5m2x4 e2m3x4 e3m2x4 e2m1x4} atype:{f32}",
                "=^d.dtype, a.atype*4, r.b32",
                "8.7+sm_100a/sm_103a/sm_107a",
            ),
        )
    )

    def source(self, m: Mods) -> str:
        """e2m1x2 has 8 bits, the other pairs 16."""
        return "b8" if m.atype == "e2m1x2" else "b16"

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        raise AssertionError("never bound")


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
            unsupported="cvt.pack to 4 and 2 bits is not modelled",
        ),
    )

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        narrow = SCALAR_TYPES[m.ctype]
        return partial(convert_packed.cvt_pack, width=narrow.bits, signed=narrow.signed)

    def undefined_bits(self, m: Mods) -> Rule | None:
        return pair(SCALAR_TYPES[m.ctype].bits, keeps=True)

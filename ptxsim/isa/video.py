"""Video instructions (PTX ISA 9.1, Video Instructions), scalar and SIMD.

The part selectors and signs of operands are modifiers here: ``m.a_part`` is ``b0`` for ``%r1.b0``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from ..numerics import video
from .record import Form, Mods, Pure, instruction

__all__: list[str] = []

_S = "Scalar Video Instructions: "
_V = "SIMD Video Instructions: "
_SIMPLE = _S + "vadd, vsub, vabsdiff, vmin, vmax"
_PAIRED = _V + "vadd2, vsub2, vavrg2, vabsdiff2, vmin2, vmax2"
_QUADS = _V + "vadd4, vsub4, vavrg4, vabsdiff4, vmin4, vmax4"

_32 = "{u32 s32}"
_TYPES = f"dtype:{_32} atype:{_32} btype:{_32}"
_COMPARISON = "cmp:{eq ne lt le gt ge}"
_SECONDARY = "op2:{add min max}"
_SOURCES = "a.atype:part, b.btype:part"


def _signed(m: Mods) -> tuple[bool, bool, bool]:
    """Signedness of the three types; vset has no dtype, its result is unsigned."""
    return m.dtype == "s32", m.atype == "s32", m.btype == "s32"


def _word(modifier: str) -> Any:
    """A modifier of a closed set, None where it is absent."""
    return modifier or None


def _parts(m: Mods) -> dict[str, Any]:
    return {"a_part": _word(m.a_part), "b_part": _word(m.b_part)}


def _scalar_forms(modifiers: str, d: str) -> tuple[Form, ...]:
    """Plain, with a secondary operation, and with the result merged into a part of c.

    ptxas accepts a c in the plain form too; nothing there uses it.
    """
    return (
        Form(modifiers, f"=d.{d}, {_SOURCES}, c.{d}?"),
        Form(f"{modifiers} {_SECONDARY}", f"=d.{d}, {_SOURCES}, c.{d}"),
        Form(modifiers, f"=d.{d}:part, {_SOURCES}, c.{d}"),
    )


class _Scalar(Pure):
    """A scalar video instruction; its operation is its name without the v."""

    forms = _scalar_forms(f"{_TYPES} sat?", "dtype")

    def operation(self, m: Mods) -> str:
        return self.name[1:]

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(
            video.scalar,
            self.operation(m),
            signed=_signed(m),
            d_part=_word(m.d_part),
            sat=bool(m.sat),
            secondary=_word(m.op2),
            mode=_word(m.mode) or "clamp",
            **_parts(m),
        )


@instruction("vadd", isa=_SIMPLE, floor="2.0+sm_20")
class Vadd(_Scalar):
    """Sum of two words or parts, exact before ``.sat`` and the secondary operation."""


@instruction("vsub", isa=_SIMPLE, floor="2.0+sm_20")
class Vsub(_Scalar):
    """Difference of two words or parts."""


@instruction("vabsdiff", isa=_SIMPLE, floor="2.0+sm_20")
class Vabsdiff(_Scalar):
    """Absolute difference of two words or parts."""


@instruction("vmin", isa=_SIMPLE, floor="2.0+sm_20")
class Vmin(_Scalar):
    """Lesser of two words or parts, each read by its own type."""


@instruction("vmax", isa=_SIMPLE, floor="2.0+sm_20")
class Vmax(_Scalar):
    """Greater of two words or parts, each read by its own type."""


class _Shift(_Scalar):
    forms = _scalar_forms(
        f"dtype:{_32} atype:{_32} btype:{{u32}} sat? mode:{{clamp wrap}}", "dtype"
    )


@instruction("vshl", isa=_S + "vshl, vshr", floor="2.0+sm_20")
class Vshl(_Shift):
    """Shift of a word or part to the left, by at most 32 or modulo 32."""


@instruction("vshr", isa=_S + "vshl, vshr", floor="2.0+sm_20")
class Vshr(_Shift):
    """Shift of a word or part to the right, filled by the sign of atype."""


@instruction("vset", isa=_S + "vset", floor="2.0+sm_20")
class Vset(_Scalar):
    """Comparison of two words or parts, as 1 or 0."""

    forms = _scalar_forms(f"atype:{_32} btype:{_32} {_COMPARISON}", "u32")

    def operation(self, m: Mods) -> str:
        return str(m.cmp)


@instruction("vmad", isa=_S + "vmad", floor="2.0+sm_20")
class Vmad(Pure):
    """Product of two words or parts plus c, shifted right by 0, 7 or 15.

    The ISA's table of operand combinations negates the product or c, not both, and neither with
    ``.po``.
    """

    _modifiers = f"{_TYPES} sat? scale?:{{shr7 shr15}}"
    forms = (
        Form(f"{_modifiers} po?", "=d.dtype, a.atype:part, b.btype:part, c.dtype"),
        Form(_modifiers, "=d.dtype, -a.atype:part, -b.btype:part, c.dtype"),
        Form(_modifiers, "=d.dtype, a.atype:part, b.btype:part, -c.dtype"),
    )

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        shifts: dict[str, Literal[0, 7, 15]] = {"": 0, "shr7": 7, "shr15": 15}
        return partial(
            video.vmad,
            a_signed=m.atype == "s32",
            b_signed=m.btype == "s32",
            negate_product=m.a_sign != m.b_sign,
            negate_c=bool(m.c_sign),
            plus_one=bool(m.po),
            shift=shifts[m.scale],
            sat=bool(m.sat),
            **_parts(m),
        )


class _Simd(Pure):
    """A SIMD video instruction; its operation is its name without the v and the digit."""

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """Every source is a register (measured)."""
        return "SIMD video instructions take no constants"

    def operation(self, m: Mods) -> str:
        return self.name[1:-1]

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(
            video.simd,
            self.operation(m),
            parts=2 if self.name.endswith("2") else 4,
            signed=_signed(m),
            a_select=_elements(m.a_part),
            b_select=_elements(m.b_part),
            mask=_elements(m.d_part),
            sat=bool(m.sat),
            accumulate=bool(m.add),
        )


def _elements(selector: str) -> tuple[int, ...] | None:
    return video.elements(selector) if selector else None


_HALVES = "=d.{d}:half_mask, a.atype:halves, b.btype:halves, c.{d}"
_BYTES = "=d.{d}:byte_mask, a.atype:bytes, b.btype:bytes, c.{d}"


class _Pairs(_Simd):
    forms = (
        Form(f"{_TYPES} sat?", _HALVES.format(d="dtype")),
        Form(f"{_TYPES} add", _HALVES.format(d="dtype")),
    )


class _Quads(_Simd):
    forms = (
        Form(f"{_TYPES} sat?", _BYTES.format(d="dtype")),
        Form(f"{_TYPES} add", _BYTES.format(d="dtype")),
    )


@instruction("vadd2", isa=_PAIRED, floor="3.0+sm_30")
class Vadd2(_Pairs):
    """Sums of halves."""


@instruction("vsub2", isa=_PAIRED, floor="3.0+sm_30")
class Vsub2(_Pairs):
    """Differences of halves."""


@instruction("vavrg2", isa=_PAIRED, floor="3.0+sm_30")
class Vavrg2(_Pairs):
    """Averages of halves, ties away from zero."""


@instruction("vabsdiff2", isa=_PAIRED, floor="3.0+sm_30")
class Vabsdiff2(_Pairs):
    """Absolute differences of halves."""


@instruction("vmin2", isa=_PAIRED, floor="3.0+sm_30")
class Vmin2(_Pairs):
    """Lesser of halves."""


@instruction("vmax2", isa=_PAIRED, floor="3.0+sm_30")
class Vmax2(_Pairs):
    """Greater of halves."""


@instruction("vadd4", isa=_QUADS, floor="3.0+sm_30")
class Vadd4(_Quads):
    """Sums of bytes."""


@instruction("vsub4", isa=_QUADS, floor="3.0+sm_30")
class Vsub4(_Quads):
    """Differences of bytes."""


@instruction("vavrg4", isa=_QUADS, floor="3.0+sm_30")
class Vavrg4(_Quads):
    """Averages of bytes, ties away from zero."""


@instruction("vabsdiff4", isa=_QUADS, floor="3.0+sm_30")
class Vabsdiff4(_Quads):
    """Absolute differences of bytes."""


@instruction("vmin4", isa=_QUADS, floor="3.0+sm_30")
class Vmin4(_Quads):
    """Lesser of bytes."""


@instruction("vmax4", isa=_QUADS, floor="3.0+sm_30")
class Vmax4(_Quads):
    """Greater of bytes."""


class _SimdSet(_Simd):
    def operation(self, m: Mods) -> str:
        return str(m.cmp)


_SET = f"atype:{_32} btype:{_32} {_COMPARISON} add?"


@instruction("vset2", isa=_V + "vset2", floor="3.0+sm_30")
class Vset2(_SimdSet):
    """Comparisons of halves, each as 1 or 0."""

    forms = (Form(_SET, _HALVES.format(d="u32")),)


@instruction("vset4", isa=_V + "vset4", floor="3.0+sm_30")
class Vset4(_SimdSet):
    """Comparisons of bytes, each as 1 or 0."""

    forms = (Form(_SET, _BYTES.format(d="u32")),)

"""Integer arithmetic (PTX ISA 9.1, Integer Arithmetic; Extended-Precision Integer Arithmetic)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..numerics import bits, integer, packed
from ..types import SCALAR_TYPES
from .definedness import (
    Rule,
    either,
    everywhere,
    from_low_bits,
    low_product,
    moved,
    nowhere,
    touched,
    unless_zero,
)
from .partial import Partial
from .protocol import Array, BoolArray
from .record import Form, Mods, Pure, instruction

__all__: list[str] = []

_I = "Integer Arithmetic Instructions: "
_X = "Extended-Precision Integer Arithmetic Instructions: "

_INTS = "{u16 u32 u64 s16 s32 s64}"
_TWO = "=d.type, a.type, b.type"
_THREE = "=d.type, a.type, b.type, c.type"


def _width(m: Mods) -> int:
    return SCALAR_TYPES[m.type].bits


def _sign(m: Mods) -> dict[str, Any]:
    t = SCALAR_TYPES[m.type]
    return {"width": t.bits, "signed": t.signed}


def _packed(m: Mods) -> dict[str, Any]:
    """Width and signedness of the elements of a packed type."""
    return {"width": {"2": 16, "4": 8}[m.type[-1]], "signed": m.type[0] == "s"}


#: Packed bytes and more of .sat (PTX ISA 9.2, add: sm_120f or higher in the same family).
_BYTES = "9.2+sm_120a/sm_120f/sm_121a"

_ADD_SUB = (Form(f"type:{_INTS}", _TWO), Form("sat type:{s32}", _TWO))


@instruction("add", isa=_I + "add")
class Add(Pure):
    """Add; wraps, or clamps with ``.sat``."""

    forms = (*_ADD_SUB, Form("sat type:{u32}", _TWO, floor=_BYTES))

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(integer.add_sat, **_sign(m)) if m.sat else np.add

    def undefined_bits(self, m: Mods) -> Rule | None:
        return None if m.sat else from_low_bits


@instruction("sub", isa=_I + "sub")
class Sub(Pure):
    """Subtract; wraps, or clamps with ``.sat``."""

    forms = _ADD_SUB

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(integer.sub_sat, width=32, signed=True) if m.sat else np.subtract

    def undefined_bits(self, m: Mods) -> Rule | None:
        return None if m.sat else from_low_bits

    def undefined_bits_alike(self, m: Mods, alike: tuple[int, ...]) -> Rule | None:
        return nowhere


@instruction("add", isa=_I + "add")
class AddPacked(Pure):
    """Add the halves or bytes of words; each wraps, or clamps with ``.sat``."""

    forms = (
        Form("type:{u16x2 s16x2}", _TWO, floor="8.0+sm_90"),
        Form("sat type:{u16x2 s16x2}", _TWO, floor=_BYTES),
        Form("sat? type:{u8x4 s8x4}", _TWO, floor=_BYTES),
    )

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(packed.add, sat=bool(m.sat), **_packed(m))


@instruction("sub", isa=_I + "sub")
class SubPacked(Pure):
    """Subtract the bytes of words; each wraps, or clamps with ``.sat``."""

    forms = (Form("sat? type:{u8x4 s8x4}", _TWO, floor=_BYTES),)

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(packed.sub, sat=bool(m.sat), **_packed(m))

    def undefined_bits_alike(self, m: Mods, alike: tuple[int, ...]) -> Rule | None:
        return nowhere


@instruction("mul", isa=_I + "mul")
class Mul(Pure):
    """Low or high half of the product."""

    forms = (Form(f"half!:{{lo hi}} type:{_INTS}", _TWO),)

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        if m.half == "lo":
            return np.multiply
        return partial(integer.mul_hi, **_sign(m))

    def undefined_bits(self, m: Mods) -> Rule | None:
        return low_product(_width(m)) if m.half == "lo" else unless_zero


class _Wide(Pure):
    def wide_type(self, m: Mods) -> str:
        return f"{m.type[0]}{2 * _width(m)}"

    def undefined_bits(self, m: Mods) -> Rule | None:
        return low_product(2 * _width(m))


@instruction("mul", isa=_I + "mul")
class MulWide(_Wide):
    """The whole product, in twice the width."""

    forms = (Form("wide! type:{u16 u32 s16 s32}", "=d.wide_type, a.type, b.type"),)

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(integer.mul_wide, **_sign(m))


@instruction("mad", isa=_I + "mad")
class Mad(Pure):
    """Low or high half of the product plus c."""

    forms = (
        Form(f"half!:{{lo hi}} type:{_INTS}", _THREE),
        Form("half!:{hi} sat type:{s32}", _THREE),
    )

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        if m.sat:
            return integer.mad_hi_sat
        if m.half == "lo":
            return _mad_lo
        sign = _sign(m)
        return lambda a, b, c: integer.mul_hi(a, b, **sign) + c

    def undefined_bits(self, m: Mods) -> Rule | None:
        if m.sat:
            return None
        return low_product(_width(m)) if m.half == "lo" else unless_zero


def _mad_lo(a: Array, b: Array, c: Array) -> Array:
    result: Array = a * b + c
    return result


@instruction("mad", isa=_I + "mad")
class MadWide(_Wide):
    """The whole product plus c of twice the width."""

    forms = (Form("wide! type:{u16 u32 s16 s32}", "=d.wide_type, a.type, b.type, c.wide_type"),)

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        sign = _sign(m)
        return lambda a, b, c: integer.mul_wide(a, b, **sign) + c


@instruction("mul24", isa=_I + "mul24")
class Mul24(Pure):
    """Product of the low 24 bits."""

    forms = (Form("half!:{lo hi} type:{u32 s32}", _TWO),)

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(integer.mul24, signed=m.type == "s32", high=m.half == "hi")

    def undefined_bits(self, m: Mods) -> Rule | None:
        return _of_low_24(low_product(32) if m.half == "lo" else unless_zero)


def _of_low_24(rule: Rule) -> Rule:
    """A rule for factors of which only the low 24 bits count."""
    low = np.uint32(0xFFFFFF)

    def of_low_24(values: Sequence[Array], unknown: Sequence[Array]) -> Any:
        factors, masks = [v & low for v in values[:2]], [u & low for u in unknown[:2]]
        return rule([*factors, *values[2:]], [*masks, *unknown[2:]])

    return of_low_24


@instruction("mad24", isa=_I + "mad24")
class Mad24(Pure):
    """Product of the low 24 bits plus c."""

    forms = (
        Form("half!:{lo hi} type:{u32 s32}", _THREE),
        Form("half!:{hi} sat type:{s32}", _THREE),
    )

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        if m.sat:
            return integer.mad24_hi_sat
        product = partial(integer.mul24, signed=m.type == "s32", high=m.half == "hi")
        return lambda a, b, c: product(a, b) + c

    def undefined_bits(self, m: Mods) -> Rule | None:
        if m.sat:
            return None
        return _of_low_24(low_product(32) if m.half == "lo" else unless_zero)


class _Signed(Pure):
    """An operation of width and signedness."""

    forms: tuple[Form, ...] = (Form(f"type:{_INTS}", _TWO),)
    function: Callable[..., Any]

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(type(self).function, **_sign(m))


@instruction("sad", isa=_I + "sad")
class Sad(_Signed):
    """c + |a - b|."""

    forms = (Form(f"type:{_INTS}", _THREE),)
    function = integer.sad

    def undefined_bits_alike(self, m: Mods, alike: tuple[int, ...]) -> Rule | None:
        """The distance of a register from itself is zero."""
        return _third if alike[1] == 0 else None


def _third(values: Sequence[Array], unknown: Sequence[Array]) -> Array:
    return unknown[2]


class _Quotient(Partial, _Signed):
    fault = "divides by zero, which has no result in PTX"
    deciding = ("b",)

    def unspecified(self, m: Mods) -> Callable[..., BoolArray]:
        return _is_zero


def _is_zero(divisor: Array) -> BoolArray:
    zero: BoolArray = divisor == 0
    return zero


@instruction("div", isa=_I + "div")
class Div(_Quotient):
    """Quotient toward zero; by zero unspecified (all ones)."""

    function = integer.div


@instruction("rem", isa=_I + "rem")
class Rem(_Quotient):
    """Remainder with the sign of the dividend; by zero unspecified (the dividend)."""

    function = integer.rem


class _Extreme(Pure):
    forms = (
        Form(f"type:{_INTS}", _TWO),
        Form("relu type:{s32}", _TWO, floor="8.0+sm_90"),
        Form("type:{u16x2}", _TWO, floor="8.0+sm_90"),
        Form("relu? type:{s16x2}", _TWO, floor="8.0+sm_90"),
        Form("type:{u8x4}", _TWO, floor=_BYTES),
        Form("relu? type:{s8x4}", _TWO, floor=_BYTES),
    )
    function: Callable[..., Any]
    elements: Callable[..., Any]

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        if m.type.endswith(("x2", "x4")):
            return partial(type(self).elements, relu=bool(m.relu), **_packed(m))
        function = partial(type(self).function, **_sign(m))
        if m.relu:
            return lambda a, b: integer.relu(function(a, b), width=32)
        return function

    def undefined_bits_alike(self, m: Mods, alike: tuple[int, ...]) -> Rule | None:
        """The smaller and the larger of a register and itself are that register."""
        return self.undefined_bits(m) if m.relu else either


@instruction("min", isa=_I + "min")
class Min(_Extreme):
    """The smaller."""

    function = integer.min_
    elements = packed.min_


@instruction("max", isa=_I + "max")
class Max(_Extreme):
    """The larger."""

    function = integer.max_
    elements = packed.max_


class _Unary(Pure):
    forms: tuple[Form, ...] = (Form("type:{s16 s32 s64}", "=d.type, a.type"),)
    function: Callable[..., Any]

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(type(self).function, width=_width(m))


@instruction("abs", isa=_I + "abs")
class Abs(_Unary):
    """Magnitude; the most negative number stays."""

    function = integer.abs_


@instruction("neg", isa=_I + "neg")
class Neg(_Unary):
    """Negate; the most negative number stays."""

    function = integer.neg

    def undefined_bits(self, m: Mods) -> Rule | None:
        return from_low_bits


@instruction("neg", isa=_I + "neg", floor=_BYTES)
class NegPacked(Pure):
    """Negate the bytes of a word; the most negative number stays."""

    forms = (Form("type:{s8x4}", "=d.type, a.type"),)

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(packed.neg, width=8)


class _Count(Pure):
    """A result of type u32 whatever the operand."""

    forms: tuple[Form, ...] = (Form("type:{b32 b64}", "=d.u32, a.type", floor="2.0+sm_20"),)
    function: Callable[..., Any]

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(type(self).function, width=_width(m))


@instruction("popc", isa=_I + "popc")
class Popc(_Count):
    """Number of one bits."""

    function = bits.popc


@instruction("clz", isa=_I + "clz")
class Clz(_Count):
    """Number of leading zero bits."""

    function = bits.clz


@instruction("bfind", isa=_I + "bfind", floor="2.0+sm_20")
class Bfind(Pure):
    """Position of the top bit that differs from the sign; all ones if none."""

    forms = (Form("shiftamt? type:{u32 u64 s32 s64}", "=d.u32, a.type"),)

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(bits.bfind, **_sign(m), shiftamt=bool(m.shiftamt))


@instruction("fns", isa=_I + "fns", floor="6.0+sm_30")
class Fns(Partial):
    """Position of the n-th set bit from a base."""

    fault = "counts from a base above 31, which has no result in PTX"
    deciding = ("base",)

    forms = (Form("type:{b32}", "=d.b32, mask.b32, base.b32, offset.b32"),)

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return bits.fns

    def unspecified(self, m: Mods) -> Callable[..., BoolArray]:
        return _beyond_word


def _beyond_word(base: Array) -> BoolArray:
    beyond: BoolArray = base > np.uint32(31)
    return beyond


@instruction("brev", isa=_I + "brev", floor="2.0+sm_20")
class Brev(_Unary):
    """Bits in reverse order."""

    forms = (Form("type:{b32 b64}", "=d.type, a.type"),)
    function = bits.brev

    def undefined_bits(self, m: Mods) -> Rule | None:
        return moved(self.evaluate(m))


def _byte(value: int) -> str | None:
    return None if value < 256 else f"a position or length is from 0 to 255, not {value}"


class _Field(Partial):
    """Position and length count with their low 8 bits.

    That is the manual's rule.  The assembler's expansion of the 64-bit forms looks at all 32 bits
    (measured), so where that makes a difference a program has no result to rely on.
    """

    fault = "has a position or length above 255, which machines take in two ways"

    def unspecified(self, m: Mods) -> Callable[..., BoolArray] | None:
        if _width(m) != 64:
            return None
        evaluate, limit = self.evaluate(m), np.uint32(255)

        def differs(*sources: Array) -> BoolArray:
            *words, position, length = sources
            beyond: BoolArray = (position | length) > limit
            if not beyond.any():
                return beyond
            other = evaluate(*words, np.minimum(position, limit), np.minimum(length, limit))
            unlike: BoolArray = evaluate(*sources) != other
            return unlike

        return differs


@instruction("bfe", isa=_I + "bfe", floor="2.0+sm_20")
class Bfe(_Field):
    """Extract a bit field."""

    deciding = ("a", "b", "c")

    forms = (Form("type:{u32 u64 s32 s64}", "=d.type, a.type, b.u32, c.u32"),)

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """Position and length are bytes (PTX ISA, bfe)."""
        return _byte(value) if name in ("b", "c") else None

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(bits.bfe, **_sign(m))

    def undefined_bits(self, m: Mods) -> Rule | None:
        return moved(self.evaluate(m), 1)


@instruction("bfi", isa=_I + "bfi", floor="2.0+sm_20")
class Bfi(_Field):
    """Insert a bit field."""

    result = "f"
    deciding = ("a", "b", "c", "d")

    forms = (Form("type:{b32 b64}", "=f.type, a.type, b.type, c.u32, d.u32"),)

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """Position and length are bytes (PTX ISA, bfi)."""
        return _byte(value) if name in ("c", "d") else None

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(bits.bfi, width=_width(m))

    def undefined_bits(self, m: Mods) -> Rule | None:
        return moved(self.evaluate(m), 2)


@instruction("szext", isa=_I + "szext", floor="7.6+sm_70")
class Szext(Pure):
    """Extend the low bits of a number."""

    forms = (Form("mode:{clamp wrap} type:{u32 s32}", "=d.type, a.type, b.u32"),)

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(bits.szext, signed=m.type == "s32", mode=m.mode)

    def undefined_bits(self, m: Mods) -> Rule | None:
        return moved(self.evaluate(m), 1)


@instruction("bmsk", isa=_I + "bmsk", floor="7.6+sm_70")
class Bmsk(Pure):
    """A mask of ones from a position."""

    forms = (Form("mode:{clamp wrap} type:{b32}", "=d.u32, a.u32, b.u32"),)

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(bits.bmsk, mode=m.mode)


@instruction("dp4a", isa=_I + "dp4a", floor="5.0+sm_61")
class Dp4a(Pure):
    """Four-way byte dot product."""

    forms = (Form("atype:{u32 s32} btype:{u32 s32}", "=d.u32, a.atype, b.btype, c.u32"),)

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(integer.dp4a, a_signed=m.atype == "s32", b_signed=m.btype == "s32")


@instruction("dp2a", isa=_I + "dp2a", floor="5.0+sm_61")
class Dp2a(Pure):
    """Two-way dot product of halves and bytes."""

    forms = (
        Form("half!:{lo hi} atype:{u32 s32} btype:{u32 s32}", "=d.u32, a.atype, b.btype, c.u32"),
    )

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(
            integer.dp2a, a_signed=m.atype == "s32", b_signed=m.btype == "s32", high=m.half == "hi"
        )


# --- carry chains ---------------------------------------------------------------------------------

_CC_TYPES = "type:{u32 s32 u64@4.3 s64@4.3}"


def _borrowed(width: int, with_flag: bool) -> Rule:
    """A register less itself and the borrow: only the borrow counts."""

    def rule(values: Sequence[Array], unknown: Sequence[Array]) -> Any:
        lost = touched(unknown[2:])
        difference = everywhere(lost, width)
        return (difference, lost) if with_flag else difference

    return rule


class _Carry(Pure):
    """add, sub and their readers of the carry flag; sub keeps the borrow."""

    function: Callable[..., Any]

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        function = partial(type(self).function, width=_width(m))
        if m.cc:
            return function
        return lambda a, b, flag: function(a, b, flag)[0]


@instruction("add", isa=_X + "add.cc")
class AddCc(_Carry):
    """Add and set the carry."""

    forms = (Form(f"cc {_CC_TYPES}", _TWO + ", =$cc.pred"),)
    function = integer.add_carry


@instruction("sub", isa=_X + "sub.cc")
class SubCc(_Carry):
    """Subtract and set the borrow."""

    forms = (Form(f"cc {_CC_TYPES}", _TWO + ", =$cc.pred"),)
    function = integer.sub_borrow

    def undefined_bits_alike(self, m: Mods, alike: tuple[int, ...]) -> Rule | None:
        return _borrowed(_width(m), bool(m.cc))


_READERS = (
    Form(f"cc {_CC_TYPES}", _TWO + ", +$cc.pred"),
    Form("type:{u32 s32 u64 s64}", _TWO + ", $cc.pred"),
)


@instruction("addc", isa=_X + "addc")
class Addc(_Carry):
    """Add with the carry."""

    forms = _READERS
    function = integer.add_carry


@instruction("subc", isa=_X + "subc")
class Subc(_Carry):
    """Subtract with the borrow."""

    forms = _READERS
    function = integer.sub_borrow

    def undefined_bits_alike(self, m: Mods, alike: tuple[int, ...]) -> Rule | None:
        return _borrowed(_width(m), bool(m.cc))


class _MadCarry(Pure):
    def evaluate(self, m: Mods) -> Callable[..., Any]:
        width = _width(m)
        if m.half == "lo":
            function = partial(integer.mad_lo_carry, width=width)
        else:
            function = partial(integer.mad_hi_carry, **_sign(m))
        if m.cc:
            return function
        return lambda a, b, c, flag: function(a, b, c, flag)[0]


@instruction("mad", isa=_X + "mad.cc", floor="3.0+sm_20")
class MadCc(_MadCarry):
    """Multiply, add and set the carry."""

    forms = (Form(f"half!:{{lo hi}} cc {_CC_TYPES}", _THREE + ", =$cc.pred"),)


@instruction("madc", isa=_X + "madc", floor="3.0+sm_20")
class Madc(_MadCarry):
    """Multiply, add with the carry."""

    forms = (
        Form(f"half!:{{lo hi}} cc {_CC_TYPES}", _THREE + ", +$cc.pred"),
        Form("half!:{lo hi} type:{u32 s32 u64 s64}", _THREE + ", $cc.pred"),
    )

"""Logic, shifts and permutes (PTX ISA 9.1, Logic and Shift Instructions; prmt)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..numerics import bits, permutation
from ..types import SCALAR_TYPES
from .definedness import Rule, bitwise, conjunction, disjunction, either, moved, zero_test
from .protocol import Array
from .record import Form, Mods, Pure, instruction

__all__: list[str] = []

_L = "Logic and Shift Instructions: "


class _Logic(Pure):
    forms: tuple[Form, ...] = (
        Form("type:{b16 b32 b64}", "=d.type, a.type, b.type"),
        Form("type:{pred}", "=d.type, !a.type, !b.type"),
    )
    function: Callable[..., Any]
    rule: Rule = staticmethod(either)

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return type(self).function

    def undefined_bits(self, m: Mods) -> Rule | None:
        return type(self).rule

    def undefined_bits_alike(self, m: Mods, alike: tuple[int, ...]) -> Rule | None:
        return bitwise(self.evaluate(m), alike=alike)


@instruction("and", isa=_L + "and")
class And(_Logic):
    """Bitwise and."""

    function = np.bitwise_and
    rule = staticmethod(conjunction)


@instruction("or", isa=_L + "or")
class Or(_Logic):
    """Bitwise or."""

    function = np.bitwise_or
    rule = staticmethod(disjunction)


@instruction("xor", isa=_L + "xor")
class Xor(_Logic):
    """Bitwise exclusive or."""

    function = np.bitwise_xor


@instruction("not", isa=_L + "not")
class Not(_Logic):
    """Bitwise complement."""

    forms = (
        Form("type:{b16 b32 b64}", "=d.type, a.type"),
        Form("type:{pred}", "=d.type, !a.type"),
    )
    function = np.bitwise_not


@instruction("cnot", isa=_L + "cnot")
class Cnot(Pure):
    """1 if zero, else 0."""

    forms = (Form("type:{b16 b32 b64}", "=d.type, a.type"),)

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(bits.cnot, width=SCALAR_TYPES[m.type].bits)


@instruction("shl", isa=_L + "shl")
class Shl(Pure):
    """Shift left; counts from the width on give zero."""

    forms = (Form("type:{b16 b32 b64}", "=d.type, a.type, b.u32"),)

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(bits.shl, width=SCALAR_TYPES[m.type].bits)

    def undefined_bits(self, m: Mods) -> Rule | None:
        return moved(self.evaluate(m), 1)


@instruction("shr", isa=_L + "shr")
class Shr(Pure):
    """Shift right, filling with zeros or the sign."""

    forms = (Form("type:{b16 b32 b64 u16 u32 u64 s16 s32 s64}", "=d.type, a.type, b.u32"),)

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        t = SCALAR_TYPES[m.type]
        return partial(bits.shr, width=t.bits, signed=t.signed)

    def undefined_bits(self, m: Mods) -> Rule | None:
        return moved(self.evaluate(m), 1)


@instruction("shf", isa=_L + "shf", floor="3.1+sm_32")
class Shf(Pure):
    """Funnel shift of two words."""

    forms = (
        Form("direction!:{l r} mode:{clamp wrap} type:{b32}", "=d.type, a.type, b.type, c.u32"),
    )

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(bits.shf, direction=m.direction, mode=m.mode)

    def undefined_bits(self, m: Mods) -> Rule | None:
        return moved(self.evaluate(m), 2)


@instruction("lop3", isa=_L + "lop3", floor="4.3+sm_50")
class Lop3(Pure):
    """Any logic function of three words, by its truth table."""

    forms = (
        Form("type:{b32}", "=d.type, a.type, b.type, c.type, #lut.u32"),
        Form(
            "bool:{or and} type:{b32}", "=~d.type|p!, a.type, b.type, c.type, #lut.u32, !q.pred",
            floor="8.2+sm_70",
        ),
    )  # fmt: skip

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        tables: dict[int, Callable[..., Any]] = {}

        def lop3(a: Array, b: Array, c: Array, lut: Array, *q: Array) -> Any:
            number = int(lut[0]) & 0xFF
            if number not in tables:
                tables[number] = partial(permutation.lop3, lut=number)
            d = tables[number](a, b, c)
            if not q:
                return d
            p = d != 0
            return d, (p | q[0]) if m.bool == "or" else (p & q[0])

        return lop3

    def undefined_bits(self, m: Mods) -> Rule | None:
        return self.undefined_bits_alike(m, (0, 1, 2))

    def undefined_bits_alike(self, m: Mods, alike: tuple[int, ...]) -> Rule | None:
        evaluate = self.evaluate(m)

        def rule(values: Sequence[Array], unknown: Sequence[Array]) -> Any:
            d = bitwise(lambda *v: evaluate(*v[:4]), 3, alike)(values[:4], unknown[:4])
            if not m.bool:
                return d
            value, q = evaluate(*values[:4]), values[4]
            test = value != 0, zero_test(value, d)
            combine = np.logical_or if m.bool == "or" else np.logical_and
            return d, bitwise(combine)((test[0], q), (test[1], unknown[4]))

        return rule


@instruction("prmt", isa="Data Movement and Conversion Instructions: prmt", floor="2.0+sm_20")
class Prmt(Pure):
    """Pick bytes of two words."""

    forms = (Form("type:{b32} mode?:{f4e b4e rc8 ecl ecr rc16}", "=d.type, a.type, b.type, c.b32"),)

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(permutation.prmt, mode=m.mode or None)

    def undefined_bits(self, m: Mods) -> Rule | None:
        """Bits of the selector that choose nothing may be undefined."""
        used = np.uint32(3 if m.mode else 0xFFFF)
        rule = moved(self.evaluate(m), 2)
        return lambda values, unknown: rule(values, (*unknown[:2], unknown[2] & used))

"""Comparison and selection (PTX ISA 9.1, Comparison and Selection Instructions)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..numerics import comparison, integer, select
from ..numerics.formats import F32
from ..numerics.half import compare_halves
from ..types import SCALAR_TYPES, bits_dtype
from .definedness import (
    Rule,
    bitwise,
    compared_integers,
    compared_whole,
    everywhere,
    selected,
    touched,
)
from .floating_point import format_of
from .protocol import Array, BoolArray
from .record import Form, Mods, Pure, instruction

__all__: list[str] = []

_SECTION = "Comparison and Selection Instructions: "

_FLOAT_OPS = "{eq ne lt le gt ge equ neu ltu leu gtu geu num nan}"


def _comparison(m: Mods) -> Callable[[Array, Array], BoolArray]:
    type_ = SCALAR_TYPES[m.type]
    if type_.kind in ("f", "a"):
        return partial(comparison.compare, m.cmp, fmt=format_of(m.type), ftz=bool(m.ftz))
    return partial(integer.compare, m.cmp, width=type_.bits, signed=type_.signed)


_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}


#: comparisons of floats that have one outcome for any number, or NaN, and itself
_SETTLED = ("ne", "lt", "gt", "equ", "leu", "geu")


def _undecided(
    m: Mods, alike: tuple[int, ...]
) -> Callable[[Sequence[Array], Sequence[Array]], BoolArray]:
    """Where the outcome of a comparison depends on undefined bits."""
    type_ = SCALAR_TYPES[m.type]
    floats, one = type_.kind in ("f", "a"), alike[:2] == (0, 0)
    if one and (not floats or m.cmp in _SETTLED):
        return lambda values, unknown: np.zeros(1, bool)
    if floats:
        return compared_whole
    return compared_integers(_comparison(m), m.cmp in ("eq", "ne"), type_.signed)


def _combined(
    t: BoolArray, undecided: BoolArray, m: Mods, values: Sequence[Array], unknown: Sequence[Array]
) -> BoolArray:
    """Where a comparison is undefined after its boolean operation with the third source."""
    if not m.bool:
        return undecided
    combined: BoolArray = bitwise(_COMBINE[m.bool])((t, values[2]), (undecided, unknown[2]))
    return combined


class _Setp(Pure):
    def evaluate(self, m: Mods) -> Callable[..., Any]:
        compare = _comparison(m)
        combine = _COMBINE.get(m.bool)

        def setp(a: Array, b: Array, *c: Array) -> tuple[BoolArray, BoolArray]:
            t = compare(a, b)
            if combine is None:
                return t, ~t
            return combine(t, c[0]), combine(~t, c[0])

        if m.type in ("f16", "bf16"):
            return lambda *sources: setp(*sources)[0]
        return setp

    def undefined_bits(self, m: Mods) -> Rule | None:
        return self.undefined_bits_alike(m, ())

    def undefined_bits_alike(self, m: Mods, alike: tuple[int, ...]) -> Rule | None:
        compare, undecided = _comparison(m), _undecided(m, alike)

        def rule(values: Sequence[Array], unknown: Sequence[Array]) -> Any:
            t, lost = compare(*values[:2]), undecided(values, unknown)
            return tuple(_combined(side, lost, m, values, unknown) for side in (t, ~t))

        return rule


def _setp_forms() -> tuple[Form, ...]:
    out = []
    for with_bool in (False, True):
        boolean = "bool:{and or xor}" if with_bool else ""
        tail = ", !c.pred" if with_bool else ""
        operands = "=~p.pred|p, a.type, b.type" + tail
        # Scalar half precision has one result (measured); packed halves have two.
        single = operands.replace("|p", "", 1)
        out += [
            Form(f"cmp:{{eq ne}} {boolean} type:{{b16 b32 b64}}", operands),
            Form(f"cmp:{{eq ne lt le gt ge lo ls hi hs}} {boolean} type:{{u16 u32 u64}}", operands),
            Form(f"cmp:{{eq ne lt le gt ge}} {boolean} type:{{s16 s32 s64}}", operands),
            Form(f"cmp:{_FLOAT_OPS} {boolean} ftz? type:{{f32}}", operands),
            Form(f"cmp:{_FLOAT_OPS} {boolean} type:{{f64}}", operands),
            Form(f"cmp:{_FLOAT_OPS} {boolean} ftz? type:{{f16}}", single, floor="4.2+sm_53"),
            Form(f"cmp:{_FLOAT_OPS} {boolean} type:{{bf16}}", single, floor="7.8+sm_90"),
        ]
    return tuple(out)


#: the bits of the low and the high half
_HALVES = (np.uint32(0xFFFF), np.uint32(0xFFFF0000))


def _no_constant_beside_bf16(name: str, m: Mods) -> str | None:
    """The predicate that is combined may be a constant, but not beside .bf16 (measured)."""
    if name == "c" and m.type.startswith("bf16"):
        return f"a predicate register is expected beside .{m.type}"
    return None


@instruction("setp", isa=_SECTION + "setp")
class Setp(_Setp):
    """Compare and set predicates: p = t op c, q = (not t) op c."""

    forms = _setp_forms()

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        return _no_constant_beside_bf16(name, m)


@instruction("setp", isa="Half Precision Comparison Instructions: setp")
class SetpPacked(Pure):
    """Compare both halves: p from the low halves, q from the high halves."""

    forms = tuple(
        Form(
            f"cmp:{_FLOAT_OPS} {'bool:{and or xor}' if tail else ''} {types}",
            "=~p.pred|p, a.type, b.type" + tail,
            floor=floor,
        )
        for tail in ("", ", !c.pred")
        for types, floor in (("ftz? type:{f16x2}", "4.2+sm_53"), ("type:{bf16x2}", "7.8+sm_90"))
    )

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        return _no_constant_beside_bf16(name, m)

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        combine = _COMBINE.get(m.bool)
        compare = partial(compare_halves, m.cmp, fmt=format_of(m.type), ftz=bool(m.ftz))

        def setp(a: Array, b: Array, *c: Array) -> tuple[BoolArray, ...]:
            low, high = compare(a, b)
            if combine is None:
                return low, high
            return combine(low, c[0]), combine(high, c[0])

        return setp

    def undefined_bits(self, m: Mods) -> Rule | None:
        compare = partial(compare_halves, m.cmp, fmt=format_of(m.type), ftz=bool(m.ftz))

        def rule(values: Sequence[Array], unknown: Sequence[Array]) -> Any:
            sides = compare(*values[:2])
            return tuple(
                _combined(t, touched([u & half for u in unknown[:2]]), m, values, unknown)
                for t, half in zip(sides, _HALVES, strict=True)
            )

        return rule


_TRUE = {"u32": 0xFFFFFFFF, "s32": 0xFFFFFFFF, "u16": 0xFFFF, "s16": 0xFFFF, "f32": 0x3F800000,
         "f16": 0x3C00, "bf16": 0x3F80}  # fmt: skip


_SET_TYPES = "{u32 s32 f32 f16@4.2+sm_53 bf16@7.8+sm_90}"


@instruction("set", isa=_SECTION + "set")
class Set(Pure):
    """Compare and set a register: all ones (or 1.0) for true, zero for false."""

    forms = tuple(
        Form(f"cmp:{operators} {boolean} ftz? {types}", "=d.dtype, a.type, b.type" + tail)
        for boolean, tail in (("", ""), ("bool:{and or xor}", ", !c.pred"))
        for operators, types in (
            ("{eq ne}", f"dtype:{_SET_TYPES} type:{{b16 b32 b64}}"),
            ("{eq ne lt le gt ge lo ls hi hs}", f"dtype:{_SET_TYPES} type:{{u16 u32 u64}}"),
            ("{eq ne lt le gt ge}", f"dtype:{_SET_TYPES} type:{{s16 s32 s64}}"),
            (_FLOAT_OPS, f"dtype:{_SET_TYPES} type:{{f32 f64}}"),
            (
                _FLOAT_OPS,
                "dtype:{f16 bf16@7.8+sm_90 u16@6.5 s16@6.5 u32@6.5 s32@6.5}"
                " type:{f16@4.2+sm_53 bf16@7.8+sm_90}",
            ),
        )
    )

    def check(self, m: Mods) -> str | None:
        if m.ftz and m.type not in ("f32", "f16"):
            return ".ftz needs f32 or f16 sources"
        if m.ftz and m.dtype == "bf16":
            return ".ftz is not legal with a result of .bf16"
        if (m.dtype, m.type) == ("f16", "bf16"):
            return "a comparison of .bf16 has no result of .f16"
        return None

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        compare = _comparison(m)
        combine = _COMBINE.get(m.bool)
        dtype = bits_dtype(SCALAR_TYPES[m.dtype].bits)
        true = dtype.type(_TRUE[m.dtype])

        def set_(a: Array, b: Array, *c: Array) -> Array:
            t = compare(a, b)
            if combine is not None:
                t = combine(t, c[0])
            result: Array = t.astype(dtype) * true
            return result

        return set_

    def undefined_bits(self, m: Mods) -> Rule | None:
        return self.undefined_bits_alike(m, ())

    def undefined_bits_alike(self, m: Mods, alike: tuple[int, ...]) -> Rule | None:
        compare, undecided = _comparison(m), _undecided(m, alike)
        bits = SCALAR_TYPES[m.dtype].bits

        def rule(values: Sequence[Array], unknown: Sequence[Array]) -> Any:
            t, lost = compare(*values[:2]), undecided(values, unknown)
            return everywhere(_combined(t, lost, m, values, unknown), bits)

        return rule


@instruction("set", isa="Half Precision Comparison Instructions: set")
class SetPacked(Pure):
    """Compare both halves and set both halves of the result."""

    forms = tuple(
        Form(f"cmp:{_FLOAT_OPS} {'bool:{and or xor}' if tail else ''} {types}",
             "=d.dtype, a.type, b.type" + tail, floor=floor)
        for tail in ("", ", !c.pred")
        for types, floor in (
            ("ftz? dtype:{f16x2 u32@6.5 s32@6.5} type:{f16x2}", "4.2+sm_53"),
            ("dtype:{bf16x2 u32 s32} type:{bf16x2}", "7.8+sm_90"),
        )
    )  # fmt: skip

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        combine = _COMBINE.get(m.bool)
        compare = partial(compare_halves, m.cmp, fmt=format_of(m.type), ftz=bool(m.ftz))
        true = np.uint32({"f16x2": 0x3C00, "bf16x2": 0x3F80}.get(m.dtype, 0xFFFF))

        def set_(a: Array, b: Array, *c: Array) -> Array:
            low, high = compare(a, b)
            if combine is not None:
                low, high = combine(low, c[0]), combine(high, c[0])
            return low.astype(np.uint32) * true | (high.astype(np.uint32) * true) << np.uint32(16)

        return set_

    def undefined_bits(self, m: Mods) -> Rule | None:
        compare = partial(compare_halves, m.cmp, fmt=format_of(m.type), ftz=bool(m.ftz))

        def rule(values: Sequence[Array], unknown: Sequence[Array]) -> Any:
            sides = compare(*values[:2])
            out = np.zeros(1, np.uint32)
            for t, half in zip(sides, _HALVES, strict=True):
                lost = touched([u & half for u in unknown[:2]])
                out = out | (_combined(t, lost, m, values, unknown) * half)
            return out

        return rule


_SELECTABLE = "type:{b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64}"


@instruction("selp", isa=_SECTION + "selp")
class Selp(Pure):
    """a if the predicate is true, else b; no conversion."""

    forms = (Form(_SELECTABLE, "=d.type, a.type, b.type, !c.pred"),)

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        def selp(a: Array, b: Array, c: BoolArray) -> Array:
            if c.shape[0] == 1:
                return a if c[0] else b
            return select(c, a, b)

        return selp

    def undefined_bits(self, m: Mods) -> Rule | None:
        return selected


@instruction("slct", isa=_SECTION + "slct")
class Slct(Pure):
    """a if c is at least zero, else b; a NaN selects b."""

    forms = (
        Form(f"{_SELECTABLE} ctype:{{s32}}", "=d.type, a.type, b.type, c.ctype"),
        Form(f"ftz? {_SELECTABLE} ctype:{{f32}}", "=d.type, a.type, b.type, c.ctype"),
    )

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        zero = np.zeros(1, np.uint32)
        if m.ctype == "s32":
            return lambda a, b, c: select(c.view(np.int32) >= 0, a, b)
        at_least = partial(comparison.compare, "ge", fmt=F32, ftz=bool(m.ftz))
        return lambda a, b, c: select(at_least(c, zero), a, b)

    def undefined_bits(self, m: Mods) -> Rule | None:
        """Only the sign of an integer chooses."""
        choose = self.evaluate(m)
        decides = np.uint32(1 << 31 if m.ctype == "s32" else 0xFFFFFFFF)

        def rule(values: Sequence[Array], unknown: Sequence[Array]) -> Any:
            a, b, c = values
            side = choose(np.ones(1, np.uint8), np.zeros(1, np.uint8), c) != 0
            return selected((a, b, side), (*unknown[:2], (unknown[2] & decides) != 0))

        return rule

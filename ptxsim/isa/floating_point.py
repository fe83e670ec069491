"""Floating-point arithmetic (PTX ISA 9.1, Floating Point Instructions; Half Precision; Mixed)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np

from ..numerics import approximate, comparison, floating
from ..numerics.convert import float_to_float
from ..numerics.formats import BF16, F16, F32, F64, Format
from ..numerics.half import each_half
from .protocol import Array, Binder, BoolArray, Registers, Step
from .record import Form, Mods, Pure, Tolerance, instruction

__all__ = ["format_of", "lanewise"]

_F = "Floating Point Instructions: "

_FORMATS: dict[str, Format] = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}

#: halves: (types, floor) of the f16 forms and of the bf16 forms
_HALVES = "type:{f16 f16x2}"
_BHALVES = "type:{bf16 bf16x2}"


_MAGNITUDE = np.uint32(0x7FFFFFFF)


def format_of(type_: str) -> Format:
    """The format of one element of a float type."""
    return _FORMATS[type_.removesuffix("x2")]


def lanewise(function: Callable[..., Any], type_: str, **modifiers: Any) -> Callable[..., Any]:
    """The function for a type: as it is, or on both halves of a packed one."""
    modifiers["fmt"] = format_of(type_)
    if type_.endswith("x2"):
        return partial(each_half, function, **modifiers)
    return partial(function, **modifiers)


class _Arithmetic(Pure):
    function: Callable[..., Any]

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        modifiers: dict[str, Any] = {"rounding": m.rnd or "rn"}
        if m.ftz:
            modifiers["ftz"] = True
        if m.sat:
            modifiers["sat"] = True
        if m.relu:
            modifiers["relu"] = True
        return lanewise(type(self).function, m.type, **modifiers)


def _binary_forms() -> tuple[Form, ...]:
    operands = "=d.type, a.type, b.type"
    return (
        Form("rnd?:{rn rz rm rp} ftz? sat? type:{f32}", operands),
        Form("rnd?:{rn rz rm rp} type:{f64}", operands),
        Form(f"rnd?:{{rn}} ftz? sat? {_HALVES}", operands, floor="4.2+sm_53"),
        Form(f"rnd?:{{rn}} {_BHALVES}", operands, floor="7.8+sm_90"),
        Form("rnd?:{rn rz rm rp} ftz? type:{f32x2}", operands, floor="8.6+sm_100"),
    )


@instruction("add", isa=_F + "add")
class AddFloat(_Arithmetic):
    """Add."""

    forms = _binary_forms()
    function = floating.add


@instruction("sub", isa=_F + "sub")
class SubFloat(_Arithmetic):
    """Subtract."""

    forms = _binary_forms()
    function = floating.sub


@instruction("mul", isa=_F + "mul")
class MulFloat(_Arithmetic):
    """Multiply."""

    forms = _binary_forms()
    function = floating.mul


class _Mixed(Pure):
    def half(self, m: Mods) -> str:
        """What a narrow source may be: for bf16, integers of 16 bits (measured)."""
        return "u16" if m.atype == "bf16" else "f16"


class _MixedAddend(_Mixed):
    """``d = a op c`` with a of f16 or bf16 and c of f32, one rounding."""

    forms = (
        Form(
            "rnd?:{rn rz rm rp} sat? ftype:{f32} atype:{f16 bf16}", "=d.ftype, a.half, c.ftype",
            floor="8.6+sm_100",
        ),
    )  # fmt: skip
    function: Callable[..., Any]

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        operate = partial(type(self).function, fmt=F32, rounding=m.rnd or "rn", sat=bool(m.sat))
        widen = partial(float_to_float, source=format_of(m.atype), target=F32)
        return lambda a, c: operate(widen(a), c)


@instruction("add", isa="Mixed Precision Floating Point Instructions: add")
class AddMixed(_MixedAddend):
    """Add a half to a single."""

    function = floating.add


@instruction("sub", isa="Mixed Precision Floating Point Instructions: sub")
class SubMixed(_MixedAddend):
    """Subtract a single from a half."""

    function = floating.sub


@instruction("fma", isa="Mixed Precision Floating Point Instructions: fma")
class FmaMixed(_Mixed):
    """Multiply two halves, add a single: one rounding."""

    forms = (
        Form(
            "rnd:{rn rz rm rp} sat? ftype:{f32} atype:{f16 bf16}",
            "=d.ftype, a.half, b.half, c.ftype", floor="8.6+sm_100",
        ),
    )  # fmt: skip

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        fused = partial(floating.fma, fmt=F32, rounding=m.rnd, sat=bool(m.sat))
        widen = partial(float_to_float, source=format_of(m.atype), target=F32)
        return lambda a, b, c: fused(widen(a), widen(b), c)


_FMA_OPERANDS = "=d.type, a.type, b.type, c.type"


@instruction("fma", isa=_F + "fma")
class Fma(_Arithmetic):
    """Fused multiply-add: one rounding."""

    forms = (
        Form("rnd:{rn rz rm rp} ftz? sat? type:{f32}", _FMA_OPERANDS, floor="2.0+sm_20"),
        Form("rnd:{rn rz rm rp} type:{f64}", _FMA_OPERANDS),
        Form(f"rnd:{{rn}} ftz? sat? {_HALVES}", _FMA_OPERANDS, floor="4.2+sm_53"),
        Form(f"rnd:{{rn}} ftz? relu {_HALVES}", _FMA_OPERANDS, floor="7.0+sm_80"),
        Form(f"rnd:{{rn}} relu? {_BHALVES}", _FMA_OPERANDS, floor="7.0+sm_80"),
        Form(
            "rnd:{rn} oob relu? type:{f16 f16x2 bf16 bf16x2}", _FMA_OPERANDS, floor="8.1+sm_90",
        ),
        Form("rnd:{rn rz rm rp} ftz? type:{f32x2}", _FMA_OPERANDS, floor="8.6+sm_100"),
    )  # fmt: skip
    traps = ("unsupported",)
    function = floating.fma

    def bind(self, b: Binder) -> Step:
        step = super().bind(b)
        return _unless_nan(b, step) if b.mods.oob else step


def _unless_nan(b: Binder, step: Step) -> Step:
    """The step, which a NaN operand ends: PTX does not say which NaN is the one out of bounds."""
    places = [b.source(name) for name in ("a", "b", "c")]
    fmt, packed = format_of(b.mods.type), b.mods.type.endswith("x2")
    guard, site = b.guard(), b.site

    nan_half = partial(comparison.testp, "notanumber", fmt=fmt)

    def nan(value: Array) -> BoolArray:
        found: BoolArray = nan_half(value.astype(np.uint16))
        if packed:
            found = found | nan_half((value >> np.uint32(16)).astype(np.uint16))
        return found

    def checked_step(r: Registers, g: Any) -> None:
        bad = nan(r[places[0]]) | nan(r[places[1]]) | nan(r[places[2]])
        if bad.any():
            mask = g.mask(guard(r))
            bad = np.broadcast_to(bad, (g.n,)) & (True if mask is None else mask)
        if bad.any():
            g.finding(
                "unsupported",
                f"'{site.text}' meets a NaN; which NaN is 'OOB NaN' is not documented",
                site, bad, fatal=True,
            )  # fmt: skip
        step(r, g)

    return checked_step


@instruction("mad", isa=_F + "mad")
class MadFloat(_Arithmetic):
    """The same as fma for these types."""

    forms = (
        Form("rnd:{rn rz rm rp} ftz? sat? type:{f32}", _FMA_OPERANDS, floor="2.0+sm_20"),
        Form("rnd:{rn rz rm rp} type:{f64}", _FMA_OPERANDS),
    )
    function = floating.fma


# --- division and roots ---------------------------------------------------------------------------


@instruction("div", isa=_F + "div")
class DivFloat(Pure):
    """Divide: IEEE, or within 2 ulp (``.approx``, ``.full``)."""

    forms = (
        Form("how:{approx} ftz? type:{f32}", "=d.type, a.type, b.type"),
        Form("how!:{full} ftz? type:{f32}", "=d.type, a.type, b.type"),
        Form("rnd:{rn rz rm rp} ftz? type:{f32}", "=d.type, a.type, b.type", floor="2.0+sm_20"),
        Form("rnd:{rn rz rm rp} type:{f64}", "=d.type, a.type, b.type"),
    )

    def tolerance(self, m: Mods) -> Tolerance | None:
        return Tolerance.ulp(2) if m.how else None

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        if m.how == "approx":
            return partial(approximate.div_approx, ftz=bool(m.ftz))
        if m.how == "full":
            return partial(approximate.div_full, ftz=bool(m.ftz))
        return partial(floating.div, fmt=format_of(m.type), rounding=m.rnd, ftz=bool(m.ftz))


class _Root(Pure):
    forms = (
        Form("approx ftz? type:{f32}", "=d.type, a.type"),
        Form("rnd:{rn rz rm rp} ftz? type:{f32}", "=d.type, a.type", floor="2.0+sm_20"),
        Form("rnd:{rn rz rm rp} type:{f64}", "=d.type, a.type"),
    )
    near: Callable[..., Any]
    exact: Callable[..., Any]
    bound: Tolerance

    def tolerance(self, m: Mods) -> Tolerance | None:
        return self.bound if m.approx else None

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        if m.approx:
            return partial(type(self).near, ftz=bool(m.ftz))
        return partial(type(self).exact, fmt=format_of(m.type), rounding=m.rnd, ftz=bool(m.ftz))


@instruction("rcp", isa=_F + "rcp")
class Rcp(_Root):
    """Reciprocal: IEEE or within 1 ulp."""

    near = approximate.rcp
    exact = floating.rcp
    bound = Tolerance.ulp(1)


@instruction("sqrt", isa=_F + "sqrt")
class Sqrt(_Root):
    """Square root: IEEE or approximate."""

    near = approximate.sqrt
    exact = floating.sqrt
    bound = Tolerance.of(relative=2**-23)


#: The ISA states no bound: two units of the 20 bits that are kept.
_GROSS = Tolerance(relative=2**-19)


@instruction("rcp", isa=_F + "rcp.approx.ftz.f64", floor="2.1+sm_20")
class RcpGross(Pure):
    """Gross reciprocal of a double from its upper 32 bits."""

    forms = (Form("approx ftz type:{f64}", "=d.type, a.type"),)
    approximate = True

    def tolerance(self, m: Mods) -> Tolerance | None:
        return _GROSS

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return approximate.rcp_gross


@instruction("rsqrt", isa=_F + "rsqrt.approx.ftz.f64", floor="4.0+sm_20")
class RsqrtGross(Pure):
    """Gross reciprocal square root of a double from its upper 32 bits."""

    forms = (Form("approx ftz type:{f64}", "=d.type, a.type"),)
    approximate = True

    def tolerance(self, m: Mods) -> Tolerance | None:
        return _GROSS

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return approximate.rsqrt_gross


class _Approximate(Pure):
    approximate = True
    function: Callable[..., Any]
    bound: Tolerance

    def tolerance(self, m: Mods) -> Tolerance | None:
        return self.bound

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        if m.type == "f32":
            return partial(type(self).function, ftz=bool(m.ftz))
        return lanewise(type(self).function, m.type)


_APPROX32 = Form("approx ftz? type:{f32}", "=d.type, a.type")
_TURNS = Form("approx ftz turns:{2pi} type:{f32}", "=d.type, a.type", floor="9.5")


@instruction("rsqrt", isa=_F + "rsqrt")
class Rsqrt(_Approximate):
    """Reciprocal square root."""

    forms = (_APPROX32, Form("approx type:{f64}", "=d.type, a.type"))
    function = approximate.rsqrt
    bound = Tolerance.of(relative=2**-22.9)

    def tolerance(self, m: Mods) -> Tolerance | None:
        # The f64 form is a sequence of the compiler without a stated bound; four ulp are ours.
        return Tolerance(relative=2**-50) if m.type == "f64" else self.bound


class _Trigonometric(_Approximate):
    """Of an angle in radians or, with ``.2pi``, in turns."""

    forms = (_APPROX32, _TURNS)
    # In [-2 pi, 2 pi]; beyond, the ISA allows more (2^-14.7 to 100 pi): a difference here.  The
    # texts that we know give no bound for turns; that of one turn is ours.
    bound = Tolerance.of(absolute=2**-20.5)
    of_turns: Callable[..., Any]

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return type(self).of_turns if m.turns else super().evaluate(m)


@instruction("sin", isa=_F + "sin")
class Sin(_Trigonometric):
    """Sine."""

    function = approximate.sin
    of_turns = approximate.sin_of_turns


@instruction("cos", isa=_F + "cos")
class Cos(_Trigonometric):
    """Cosine."""

    function = approximate.cos
    of_turns = approximate.cos_of_turns


@instruction("lg2", isa=_F + "lg2")
class Lg2(_Approximate):
    """Logarithm to base 2."""

    forms = (_APPROX32,)
    function = approximate.lg2
    # absolute in (0.5, 2), where the result is below 1, and relative elsewhere
    bound = Tolerance.of(relative=2**-22, absolute=2**-22)


@instruction("ex2", isa=_F + "ex2")
class Ex2(_Approximate):
    """Power of 2."""

    forms = (
        _APPROX32,
        Form("approx type:{f16 f16x2}", "=d.type, a.type", floor="7.0+sm_75"),
        Form("approx ftz type:{bf16 bf16x2}", "=d.type, a.type", floor="7.8+sm_90"),
    )
    function = approximate.ex2
    bound = Tolerance.ulp(2)

    def tolerance(self, m: Mods) -> Tolerance | None:
        if m.type == "f32":
            return self.bound
        half = m.type.startswith("f16")
        return (
            Tolerance.of(relative=2**-9.9, bits=10)
            if half
            else Tolerance.of(relative=2**-7, bits=7)
        )


@instruction("tanh", isa=_F + "tanh", floor="7.0+sm_75")
class Tanh(Pure):
    """Hyperbolic tangent."""

    forms = (
        Form("approx type:{f32 f16 f16x2}", "=d.type, a.type"),
        Form("approx type:{bf16 bf16x2}", "=d.type, a.type", floor="7.8+sm_90"),
    )
    approximate = True

    def tolerance(self, m: Mods) -> Tolerance | None:
        if m.type == "f32":
            return Tolerance.of(relative=2**-11)
        half = m.type.startswith("f16")
        return (
            Tolerance.of(absolute=2**-10.987, bits=10)
            if half
            else Tolerance.of(absolute=2**-8, bits=7)
        )

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return lanewise(approximate.tanh, m.type)


# --- sign and selection ---------------------------------------------------------------------------


class _Sign(Pure):
    function: Callable[..., Any]

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        # on a packed NaN only the sign bit changes, as ptxas folds it
        keep = {"keep_nan": True} if m.type.endswith("x2") else {}
        return lanewise(type(self).function, m.type, ftz=bool(m.ftz), **keep)


def _sign_forms(half_floor: str) -> tuple[Form, ...]:
    return (
        Form("ftz? type:{f32}", "=d.type, a.type"),
        Form("type:{f64}", "=d.type, a.type"),
        Form(f"ftz? {_HALVES}", "=d.type, a.type", floor=half_floor),
        Form(_BHALVES, "=d.type, a.type", floor="7.0+sm_80"),
    )


@instruction("abs", isa=_F + "abs")
class AbsFloat(_Sign):
    """Magnitude."""

    forms = _sign_forms("6.5+sm_53")
    function = comparison.abs_


@instruction("neg", isa=_F + "neg")
class NegFloat(_Sign):
    """Negate."""

    forms = _sign_forms("6.0+sm_53")
    function = comparison.neg


class _Extreme(Pure):
    forms = (
        Form("ftz? type:{f32}", "=d.type, a.type, b.type"),
        Form("ftz? NaN type:{f32}", "=d.type, a.type, b.type", floor="7.0+sm_80"),
        Form("ftz? NaN? xorsign abs type:{f32}", "=d.type, a.type, b.type", floor="7.2+sm_86"),
        Form(
            "ftz? NaN? abs? type:{f32}", "=d.type, a.type, b.type, c.type", floor="8.8+sm_100",
        ),
        Form("type:{f64}", "=d.type, a.type, b.type"),
        Form(f"ftz? NaN? {_HALVES}", "=d.type, a.type, b.type", floor="7.0+sm_80"),
        Form(f"NaN? {_BHALVES}", "=d.type, a.type, b.type", floor="7.0+sm_80"),
        Form(
            f"ftz? NaN? xorsign abs {_HALVES}", "=d.type, a.type, b.type", floor="7.2+sm_86"
        ),
        Form(f"NaN? xorsign abs {_BHALVES}", "=d.type, a.type, b.type", floor="7.2+sm_86"),
    )  # fmt: skip
    function: Callable[..., Any]

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        two = lanewise(
            type(self).function, m.type, ftz=bool(m.ftz), nan=bool(m.NaN),
            xorsign_abs=bool(m.xorsign),
        )  # fmt: skip
        if m.xorsign or m.type != "f32":
            return two

        def of_all(a: Array, b: Array, *c: Array) -> Array:
            sources = [np.bitwise_and(v, _MAGNITUDE) for v in (a, b, *c)] if m.abs else (a, b, *c)
            result: Array = reduce(two, sources)
            return result

        return of_all


@instruction("min", isa=_F + "min")
class MinFloat(_Extreme):
    """The smaller; a NaN loses unless ``.NaN`` is given."""

    function = comparison.min_


@instruction("max", isa=_F + "max")
class MaxFloat(_Extreme):
    """The larger; a NaN loses unless ``.NaN`` is given."""

    function = comparison.max_


@instruction("copysign", isa=_F + "copysign", floor="2.0+sm_20")
class Copysign(Pure):
    """The magnitude of b with the sign of a."""

    forms = (Form("type:{f32 f64}", "=d.type, a.type, b.type"),)

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(comparison.copysign, fmt=format_of(m.type))


@instruction("testp", isa=_F + "testp", floor="2.0+sm_20")
class Testp(Pure):
    """Whether a number is of a class."""

    forms = (
        Form(
            "kind:{finite infinite number notanumber normal subnormal} type:{f32 f64}",
            "=p.pred, a.type",
        ),
    )

    def evaluate(self, m: Mods) -> Callable[..., Any]:
        return partial(comparison.testp, m.kind, fmt=format_of(m.type))

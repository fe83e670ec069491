"""Which fragments and configs PTX has, and how it spells them (PTX ISA 9.1, Warp Level Matrix
Instructions: wmma; floors measured with the assemblers of CUDA 12.9 and 13.0).

``faithful`` keeps to what the seed lowers: 16x16x16, f16 to f32, and 8 bits to 32 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from .refusals import Refusal
from .vocabulary import COMPONENTS, Config, Fragment, Shape

__all__ = [
    "ELEMENT_OF",
    "SHAPES",
    "check_config",
    "check_fragment",
    "elt_name",
    "elt_of",
    "floor",
    "fragment_floor",
    "is_8bit",
    "is_int32",
    "layout_suffix",
    "min_sm",
    "min_sm_int8",
    "ptx_type",
    "shape_16",
]

#: The targets from which there are cooperative matrices, and those with 8-bit factors.
min_sm = 70
min_sm_int8 = 72
shape_16 = Shape(16, 16, 16)

_LARGE = (shape_16, Shape(32, 8, 16), Shape(8, 32, 16))
#: The shapes of each component of A and B.
SHAPES: dict[str, tuple[Shape, ...]] = {
    "f16": _LARGE, "bf16": _LARGE, "s8": _LARGE, "u8": _LARGE, "tf32": (Shape(16, 16, 8),),
    "f64": (Shape(8, 8, 4),), "s4": (Shape(8, 8, 32),), "u4": (Shape(8, 8, 32),),
    "b1": (Shape(8, 8, 128),),
}  # fmt: skip
#: The components of C and the result that go with those of A and B.
_ACCUMULATORS: dict[str, tuple[str, ...]] = {
    "f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "f64": ("f64",),
    "s8": ("s32", "u32"), "u8": ("s32", "u32"), "s4": ("s32", "u32"), "u4": ("s32", "u32"),
    "b1": ("s32", "u32"),
}  # fmt: skip
#: Families whose members can stand together as A and B, as far as their signs agree.
_FAMILY = {"s8": "8-bit", "u8": "8-bit", "s4": "4-bit", "u4": "4-bit"}
_MODIFIERS = {"b1": ("xor", "and"), "f64": ("", "rn", "rz", "rm", "rp")}
_FAITHFUL_FACTORS = ("f16", "s8", "u8")
_FAITHFUL_ACCUMULATORS = ("f32", "s32", "u32")

#: The element of memory of each component.
ELEMENT_OF: dict[str, str] = {
    "f16": "float16", "bf16": "bfloat16", "tf32": "float32", "f32": "float32", "f64": "float64",
    "u8": "uint8", "s8": "uint8", "u4": "uint4", "s4": "uint4", "b1": "bit", "u32": "int32",
    "s32": "int32",
}  # fmt: skip
#: Other names of the same elements, for buffers whose values are signed.
_ALIASES = {"int8": "uint8", "int4": "uint4"}


def is_8bit(component: str) -> bool:
    """Whether a component is u8 or s8."""
    return component in ("u8", "s8")


def is_int32(component: str) -> bool:
    """Whether a component is u32 or s32."""
    return component in ("u32", "s32")


def elt_of(fragment: Fragment) -> tuple[str, int]:
    """The element type of a fragment in memory, and its bits."""
    return ELEMENT_OF[fragment.component], COMPONENTS[fragment.component][0]


def elt_name(element: str) -> str:
    """An element type as a word of messages; ``int8`` and ``int4`` are stored as the unsigned."""
    return _ALIASES.get(element, element)


def ptx_type(component: str) -> str:
    """A component as PTX spells it; the accumulators of integers are s32 there."""
    return "s32" if component == "u32" else component


def layout_suffix(layout: str) -> str:
    """A layout as PTX spells it."""
    return {"row": "row", "col": "col"}[layout]


def check_fragment(fragment: Fragment, faithful: bool = False) -> list[Refusal]:
    """Why a fragment cannot be lowered (R1 to R4); total over the type."""
    f, what, out = fragment, f"fragment '{fragment}'", []
    if f.scope != "subgroup":
        out.append(
            Refusal(
                "R1", what, f"scope {f.scope}, but the instructions work on one warp (subgroup)"
            )
        )
    if f.use == "accumulator":
        known: tuple[str, ...] = ("f16", "f32", "f64", "s32", "u32")
        known = _FAITHFUL_ACCUMULATORS if faithful else known
        if f.component not in known:
            reason = f"no accumulator has components {f.component}; there are {', '.join(known)}"
            return [*out, Refusal("R4", what, reason)]
        factors = [a for a, accumulators in _ACCUMULATORS.items() if f.component in accumulators]
    else:
        known = _FAITHFUL_FACTORS if faithful else tuple(SHAPES)
        if f.component not in known:
            reason = f"no {f.use.upper()} has components {f.component}; there are"
            return [*out, Refusal("R3", what, f"{reason} {', '.join(known)}")]
        factors = [f.component]
    shapes = list(dict.fromkeys(s for a in factors for s in SHAPES[a]))
    if faithful:
        shapes = [shape_16]
    if f.shape not in shapes:
        have = ", ".join(map(str, shapes))
        out.append(Refusal("R2", what, f"shape {f.shape}, but {f.component} has {have}"))
    return out


def check_config(config: Config, faithful: bool = False, mixed: bool = False) -> list[Refusal]:
    """Why a config cannot be lowered (R1 to R9, R29); ``mixed``: A and B may differ in sign."""
    out = [r for f in dict.fromkeys(config.fragments()) for r in check_fragment(f, faithful)]
    if out:
        return out
    c, what = config, f"config '{config}'"

    def add(code: str, reason: str) -> None:
        out.append(Refusal(code, what, reason))

    if _FAMILY.get(c.a, c.a) != _FAMILY.get(c.b, c.b):
        add("R9", f"A is {c.a} and B is {c.b}, which no product has")
        return out
    if c.a != c.b and not mixed:
        add("R6", f"A is {c.a} and B is {c.b}; wmma wants equal signs (mma.sync does not)")
    allowed = _ACCUMULATORS[c.a]
    wrong = [x for x in dict.fromkeys((c.c, c.result)) if x not in allowed]
    if wrong:
        add("R8", f"{c.a} accumulates in {' or '.join(allowed)}, not in {' and '.join(wrong)}")
    elif c.c != c.result and (COMPONENTS[c.c][1] or faithful):
        add("R7", f"C is {c.c} and the result is {c.result}; they must be the same")
    elif c.shape not in SHAPES[c.a]:
        have = ", ".join(map(str, SHAPES[c.a]))
        add("R2", f"shape {c.shape}, but {c.a} has {have}")
    if c.saturating:
        reason = _saturation(c, faithful)
        if reason:
            add("R5", reason)
    modifiers = _MODIFIERS.get(c.a, ("",))
    if c.modifier not in modifiers:
        have = ", ".join(m for m in modifiers if m) or "none"
        add("R29", f"modifier '{c.modifier}', but {c.a} has {have}")
    return out


def _saturation(c: Config, faithful: bool) -> str:
    if faithful:
        return "saturation is not lowered"
    if c.a == "b1":
        return "counts of bits do not saturate"
    if c.result == "u32":
        return "PTX saturates at the limits of s32, which are not those of u32"
    if c.a not in ("f16", "s8", "u8", "s4", "u4"):
        return f"{c.a} has no .satfinite"
    return ""


@dataclass(frozen=True, slots=True)
class Floor:
    """The first target number and the PTX ISA versions, both included, of a config in wmma."""

    sm: int
    since: tuple[int, int]
    until: tuple[int, int] = (99, 0)


def fragment_floor(fragment: Fragment) -> Floor:
    """From where on wmma has a fragment that :func:`check_fragment` lets pass."""
    component, k = fragment.component, fragment.shape.k
    if component == "f16" or (component == "f32" and k == 16):
        return Floor(min_sm, (6, 3))
    if is_8bit(component) or (is_int32(component) and k == 16):
        return Floor(min_sm_int8, (6, 3))
    small = component in ("s4", "u4", "b1") or is_int32(component)
    return Floor(75, (6, 3)) if small else Floor(80, (7, 0))


def floor(config: Config) -> Floor:
    """From where on wmma has a config that :func:`check_config` lets pass."""
    if config.a == "f16":
        return Floor(min_sm, (6, 3), (6, 4) if config.saturating else (99, 0))
    if is_8bit(config.a):
        return Floor(min_sm_int8, (6, 3))
    if config.modifier == "and":
        return Floor(80, (7, 1))
    return Floor(75, (6, 3)) if config.a in ("s4", "u4", "b1") else Floor(80, (7, 0))

"""Surfaces (PTX ISA 9.1, Surface Instructions): checked, not executed.

Floors were measured.
"""

from __future__ import annotations

from ..types import SCALAR_TYPES
from .record import Form, Instruction, Mods, instruction

__all__: list[str] = []

_SECTION = "Surface Instructions: "

#: The elements of a coordinate vector by geometry, the layer of an array among them; a single one
#: needs no braces.
_COORDINATES = {"1d": 0, "2d": 2, "3d": 4, "a1d": 2, "a2d": 4}
_GEOMETRY = "geom:{1d 2d 3d@3.0 a1d@3.0 a2d@3.0}"
_CLAMP = "clamp:{trap clamp zero}"
_SURFACE = "[surface.surfref %c.s32*coordinates]"
_BYTES = "vec?:{v2 v4} type:{b8 b16 b32 b64}"
_LARGEST = 128


class _Surface(Instruction):
    unsupported = "surfaces are not modelled"

    def coordinates(self, m: Mods) -> int:
        """How many elements a coordinate vector has."""
        return _COORDINATES[m.geom]

    def check(self, m: Mods) -> str | None:
        """An access has at most 128 bits."""
        if m.vec and SCALAR_TYPES[m.type].bits * int(m.vec[1:]) > _LARGEST:
            return f".{m.vec}.{m.type} has more than {_LARGEST} bits"
        return None


@instruction("suld.b", isa=_SECTION + "suld", floor="2.0")
class SuldB(_Surface):
    """Load bytes of a surface."""

    forms = (
        Form(f"{_GEOMETRY} cop?:{{ca cg cs cv}} {_BYTES} {_CLAMP}", f"=^~d.type*vec, {_SURFACE}"),
    )


@instruction("sust.b", isa=_SECTION + "sust", floor="2.0")
class SustB(_Surface):
    """Store bytes in a surface."""

    forms = (
        Form(f"{_GEOMETRY} cop?:{{wb cg cs wt}} {_BYTES} {_CLAMP}", f"{_SURFACE}, ^b.type*vec"),
    )


@instruction("sust.p", isa=_SECTION + "sust", floor="2.0")
class SustP(_Surface):
    """Store formatted elements in a surface."""

    forms = (
        Form(
            "geom:{1d 2d 3d@3.0 a1d@4.1+sm_30 a2d@4.1+sm_30} cop?:{wb cg cs wt} vec?:{v2 v4}"
            f" type:{{b32}} {_CLAMP}",
            f"{_SURFACE}, ^b.type*vec",
        ),
    )


def _reductions(*operations: str) -> tuple[Form, ...]:
    return tuple(
        Form(f"{what} geom:{{1d 2d 3d@3.0}} {_CLAMP}", f"{_SURFACE}, ^b.type")
        for what in operations
    )


@instruction("sured.b", isa=_SECTION + "sured", floor="2.0")
class SuredB(_Surface):
    """Combine an element of a surface, addressed by bytes, with a value."""

    forms = _reductions(
        "op:{add} type:{u32 s32 u64}",
        "op:{min max} type:{u32 s32 u64@8.1+sm_50 s64@8.1+sm_50}",
        "op:{and or} type:{b32}",
    )


@instruction("sured.p", isa=_SECTION + "sured", floor="2.0")
class SuredP(_Surface):
    """Combine an element of a surface, addressed by samples, with a value."""

    forms = _reductions("op:{add and or} type:{b32}", "op:{min max} type:{b32 b64@8.1+sm_50}")


@instruction("suq", isa=_SECTION + "suq", floor="2.0")
class Suq(Instruction):
    """Ask for an attribute of a surface."""

    unsupported = "surfaces are not modelled"
    forms = (
        Form(
            "query:{width height depth channel_data_type@2.1 channel_order@2.1 array_size@4.1"
            " memory_layout@4.2} type:{b32}",
            "=d.type, [a.surfref]",
        ),
    )

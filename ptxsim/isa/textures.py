"""Textures (PTX ISA 9.1, Texture Instructions): checked, not executed.

A coordinate vector has the layer of an array or the sample first, as an integer, then the
coordinates in the type that the instruction names.  The depth to compare with is a float in any
register of its width.  Floors were measured.
"""

from __future__ import annotations

from ..targets import Floor
from .record import Form, Instruction, Mods, instruction

__all__: list[str] = []

_SECTION = "Texture Instructions: "

#: The elements of a coordinate vector by geometry: ``c`` a coordinate, ``u`` a layer, ``s`` a
#: sample.
_COORDINATES = {
    "1d": "c", "2d": "cc", "3d": "cccc", "a1d": "uc", "a2d": "uccc", "cube": "cccc",
    "acube": "uccc", "2dms": "sccc", "a2dms": "uscc",
}  # fmt: skip
#: The elements of an offset or a gradient by geometry.
_EXTENT = {
    "1d": 1, "2d": 2, "3d": 4, "a1d": 1, "a2d": 2, "cube": 4, "acube": 4, "2dms": 2, "a2dms": 2,
}  # fmt: skip

_FLAT = "1d 2d a1d@2.3 a2d@2.3"
_VOLUME = "3d"
_CUBES = "cube@3.0 acube@3.0"
_SAMPLES = "2dms@3.2+sm_30 a2dms@3.2+sm_30"
_TYPES = "vec:{v2 v4} dtype:{u32 s32 f32 f16@4.2+sm_53 f16x2@4.2+sm_53}"
_FETCH = "=~d.dtype*vec|p@7.1+sm_60, [tex.texref smp.samplerref? %c.coordinates]"
_TAIL_FLOOR = "4.3+sm_30"
_CUBE_GRADIENT = Floor.parse("4.3")


class _Fetch(Instruction):
    unsupported = "textures are not modelled"

    def coordinates(self, m: Mods) -> str:
        """The types of a coordinate vector."""
        types = {"c": m.ctype, "u": "u32", "s": "s32"}
        return " ".join(types[letter] for letter in _COORDINATES[m.geom])

    def extent(self, m: Mods) -> int:
        """How many elements a gradient has."""
        return _EXTENT[m.geom]

    def offsets(self, m: Mods) -> int:
        """How many elements an offset has; a single one needs no braces."""
        return _EXTENT[m.geom] if _EXTENT[m.geom] > 1 else 0


def _tails(level: str) -> list[tuple[str, str, str, str]]:
    """The optional operands: their text, the geometries and coordinates with them, and a floor."""
    samples = "" if level in ("level", "grad") else _SAMPLES
    offset, depth = ", %offset.s32*offsets", ", depth.b32"
    return [
        ("", f"{_FLAT} {_VOLUME} {_CUBES} {samples}", "s32 f32", ""),
        (offset, f"{_FLAT} {_VOLUME} {samples}", "s32 f32", _TAIL_FLOOR),
        (depth, f"{_FLAT} {_CUBES}", "f32", _TAIL_FLOOR),
        (offset + depth, _FLAT, "f32", _TAIL_FLOOR),
    ]


def _levels() -> list[tuple[str, str, str]]:
    """How the level of detail is chosen: a name, its modifier and its operands."""
    return [
        ("", "mip?:{base@3.1}", ""),
        ("level", "mip:{level@3.1}", ", lod.ctype"),
        ("grad", "mip:{grad@3.1}", ", dpdx.f32*extent, dpdy.f32*extent"),
    ]


@instruction("tex", isa=_SECTION + "tex")
class Tex(_Fetch):
    """Fetch four elements, or four packed as halves, of a texture at a coordinate."""

    forms = tuple(
        Form(
            f"{modifier} geom:{{{geometries}}} {_TYPES} ctype:{{{types}}}",
            _FETCH + operands + tail, floor=floor,
        )
        for name, modifier, operands in _levels()
        for tail, geometries, types, floor in _tails(name)
    )  # fmt: skip

    def check(self, m: Mods) -> str | None:
        """Halves in pairs come as .v2, all else as .v4; some geometries fix the coordinates."""
        if (m.vec == "v2") != (m.dtype == "f16x2"):
            return f".{m.dtype} needs .{'v2' if m.dtype == 'f16x2' else 'v4'}"
        if m.geom.endswith("cube") and m.ctype != "f32":
            return f".{m.geom} needs coordinates in f32"
        if m.geom.endswith("ms") and m.ctype != "s32":
            return f".{m.geom} needs coordinates in s32"
        return None

    def combined_floor(self, m: Mods) -> tuple[str, Floor] | None:
        """Gradients on cubes came later."""
        return ("grad", _CUBE_GRADIENT) if m.mip == "grad" and "cube" in m.geom else None


@instruction("tld4", isa=_SECTION + "tld4", floor="2.2")
class Tld4(_Fetch):
    """Fetch one component of the four texels around a coordinate."""

    forms = tuple(
        Form(
            f"comp:{{r g b a}} geom:{{{geometries}}} vec:{{v4}} dtype:{{u32 s32 f32}}"
            " ctype:{f32}",
            _FETCH + tail, floor=floor,
        )
        for tail, geometries, floor in (
            ("", f"2d a2d@{_TAIL_FLOOR} cube@{_TAIL_FLOOR} acube@{_TAIL_FLOOR}", ""),
            (", %offset.s32*offsets", "2d a2d", _TAIL_FLOOR),
            (", depth.b32", "2d a2d cube acube", _TAIL_FLOOR),
            (", %offset.s32*offsets, depth.b32", "2d a2d", _TAIL_FLOOR),
        )
    )  # fmt: skip


@instruction("txq", isa=_SECTION + "txq", floor="2.0")
class Txq(Instruction):
    """Ask for an attribute of a texture or of a sampler."""

    unsupported = "textures are not modelled"
    forms = (
        Form(
            "query:{width height depth normalized_coords channel_data_type@2.1 channel_order@2.1"
            " array_size@4.1 num_mipmap_levels@4.1 num_samples@4.1+sm_30} type:{b32}",
            "=d.type, [a.texref]",
        ),
        Form(
            "level query:{width height depth} type:{b32}", "=d.type, [a.texref], lod.s32",
            floor=_TAIL_FLOOR,
        ),
        *(
            Form(
                "query:{filter_mode addr_mode_0 addr_mode_1 addr_mode_2} type:{b32}",
                f"=d.type, [a.{where}]",
            )
            for where in ("texref", "samplerref")
        ),
        Form("query:{force_unnormalized_coords@2.2} type:{b32}", "=d.type, [a.samplerref]"),
    )  # fmt: skip


@instruction("istypep", isa=_SECTION + "istypep", floor="4.0+sm_30")
class Istypep(Instruction):
    """Whether a handle is one of a texture, a sampler or a surface."""

    unsupported = "textures are not modelled"
    forms = (Form("kind:{texref samplerref surfref}", "=p.pred, a.b64"),)

"""The syntax lines of mma and mma.sp (PTX ISA 9.1, Warp Level Matrix Instructions: mma, mma.sp).

Floors were measured with the assemblers of CUDA 12.9, 13.0 and 13.4.
"""

from __future__ import annotations

from .record import Form, Mods

__all__ = ["BOTH_LAYOUTS", "dense_forms", "element_bits", "ordered_forms", "sparse_forms"]

#: Width of an element as it lies in a register; floats below eight bits sit in bytes.
_ELEMENT_BITS = {
    "f64": 64, "tf32": 32, "f16": 16, "bf16": 16, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8,
    "e3m2": 8, "e2m3": 8, "e2m1": 8, "s4": 4, "u4": 4, "b1": 1,
}  # fmt: skip

_OPERANDS = (
    "=~d.d_register*d_count, a.a_register*a_count, b.a_register*b_count, c.c_register*c_count"
)
_SPARSE = _OPERANDS + ", e.u32, #f.u32"
_SCALES = ", scale_a.b32, ids_a.u16*2, scale_b.b32, ids_b.u16*2"

#: The order of the two words tells A from B, so each slot must know both.
BOTH_LAYOUTS = "alayout:{row col} blayout:{row col}"

_FP8 = "{e4m3 e5m2}"
_SMALL = "{e4m3 e5m2 e3m2 e2m3 e2m1}"
_ONLY_120 = "sm_120a/sm_120f/sm_121a"
_ONLY_100 = "sm_100a/sm_100f/sm_110a/sm_110f/" + _ONLY_120
#: The types of kind::f8f6f4, of which only those of eight bits exist beside sm_120 and sm_121
_KIND = "{e4m3 e5m2 " + " ".join(f"{t}@8.7+{_ONLY_120}" for t in ("e3m2", "e2m3", "e2m1")) + "}"


def element_bits(m: Mods) -> int:
    """Bits of an element of A and B in its register; the mxf4 kinds pack e2m1 densely."""
    return 4 if m.kind.startswith("kind::mxf4") else _ELEMENT_BITS[m.atype]


def _types(d: str, a: str, b: str = "", c: str = "") -> str:
    return f"dtype:{d} atype:{a} btype:{b or a} ctype:{c or d}"


def _line(shape: str, types: str, middle: str = "", tail: str = "") -> str:
    return f"sync aligned shape:{{{shape}}} {BOTH_LAYOUTS} {middle} {types} {tail}"


def _form(line: str, floor: str, operands: str = _OPERANDS) -> Form:
    return Form(line, operands, floor=floor)


def dense_forms() -> tuple[Form, ...]:
    """All forms of mma."""
    quad = f"sync aligned shape:{{m8n8k4}} {BOTH_LAYOUTS} "
    s8, s4 = _types("{s32}", "{s8 u8}"), _types("{s32}", "{s4 u4}")
    bits = "op:{xor and@7.1+sm_80} popc"
    out = [
        *(
            _form(_line("m16n8k8 m16n8k16@7.0+sm_80", _types(d, "{f16}")), "6.5+sm_75")
            for d in ("{f16}", "{f32}")
        ),
        _form(quad + _types("{f16}", "{f16}"), "6.4+sm_70"),
        _form(quad + _types("{f32}", "{f16}", c="{f16 f32}"), "6.4+sm_70"),
        _form(_line("m16n8k8 m16n8k16", _types("{f32}", "{bf16}")), "7.0+sm_80"),
        _form(_line("m16n8k4 m16n8k8", _types("{f32}", "{tf32}")), "7.0+sm_80"),
        _form(
            _line(
                "m8n8k4 m16n8k4@7.8+sm_90 m16n8k8@7.8+sm_90 m16n8k16@7.8+sm_90",
                _types("{f64}", "{f64}"), "rnd?:{rn rz rm rp}",
            ),
            "7.0+sm_80",
        ),
        _form(
            _line("m8n8k16 m16n8k16@7.0+sm_80 m16n8k32@7.0+sm_80", s8, "satfinite?"), "6.5+sm_75"
        ),
        _form(
            _line("m8n8k32 m16n8k32@7.0+sm_80 m16n8k64@7.0+sm_80", s4, "satfinite?"), "6.5+sm_75"
        ),
        _form(
            _line(
                "m8n8k128 m16n8k128@7.0+sm_80 m16n8k256@7.0+sm_80", _types("{s32}", "{b1}"),
                tail=bits,
            ),
            "7.0+sm_75",
        ),
    ]  # fmt: skip
    for d, floor in (("{f32}", "8.4+sm_89"), ("{f16}", "8.7+sm_89")):
        eight, kind = _types(d, _FP8), "kind:{kind::f8f6f4}"
        out += [
            _form(_line("m16n8k16@8.7 m16n8k32", eight), floor),
            _form(
                _line("m16n8k16@8.7 m16n8k32", _types(d, _KIND), kind),
                ("8.6+" if d == "{f32}" else "8.7+") + _ONLY_100,
            ),
        ]
    out += [
        _form(line, floor, _OPERANDS + _SCALES)
        for line, floor in _scaled("m16n8k32", "m16n8k64", _ONLY_120)
    ]
    return tuple(out)


def _scaled(bytes_shape: str, packed_shape: str, packed_only: str) -> list[tuple[str, str]]:
    """The lines with block scaling and their floors."""
    packed, rest, only = _types("{f32}", "{e2m1}"), _types("{f32}", _SMALL), "8.7+" + packed_only
    lines = (
        (bytes_shape, rest, "mxf8f6f4", "vector?:{scale_vec::1X}", "ue8m0", "8.7+" + _ONLY_120),
        (packed_shape, packed, "mxf4", "vector?:{scale_vec::2X}", "ue8m0", only),
        (packed_shape, packed, "mxf4nvf4", "vector:{scale_vec::2X}", "ue8m0", only),
        (packed_shape, packed, "mxf4nvf4", "vector:{scale_vec::4X}", "ue4m3", only),
        (packed_shape, packed, "mxf4nvf4", "vector:{scale_vec::4X}", "ue8m0", "9.1+sm_120a"),
    )
    out = []
    for shape, types, kind, vector, scale, floor in lines:
        middle = f"kind:{{kind::{kind}}} block_scale {vector}"
        out.append((_line(shape, types, middle, f"stype:{{{scale}}}"), floor))
    return out


def sparse_forms() -> tuple[Form, ...]:
    """All forms of mma.sp."""
    base = "7.1+sm_80"
    lines = [
        *((_line("m16n8k16 m16n8k32", _types(d, "{f16}")), base) for d in ("{f16}", "{f32}")),
        (_line("m16n8k16 m16n8k32", _types("{f32}", "{bf16}")), base),
        (_line("m16n8k8 m16n8k16", _types("{f32}", "{tf32}")), base),
        (_line("m16n8k32 m16n8k64", _types("{s32}", "{s8 u8}"), "satfinite?"), base),
        (_line("m16n8k64 m16n8k128", _types("{s32}", "{s4 u4}"), "satfinite?"), base),
        (_line("m16n8k64", _types("{f32}", _FP8)), "8.4+sm_89"),
    ]
    return tuple(_form(line, floor, _SPARSE) for line, floor in lines)


def ordered_forms() -> tuple[Form, ...]:
    """What mma.sp has with ``::ordered_metadata`` alone."""
    kind = "kind:{kind::f8f6f4}"
    out = [
        _form(_line("m16n8k64", _types("{f16}", _FP8)), "8.7+" + _ONLY_120, _SPARSE),
        _form(_line("m16n8k64", _types("{f32}", _KIND), kind), "8.6+" + _ONLY_100, _SPARSE),
        _form(_line("m16n8k64", _types("{f16}", _SMALL), kind), "8.7+" + _ONLY_120, _SPARSE),
    ]
    out += [
        _form(line, floor, _SPARSE + _SCALES)
        for line, floor in _scaled("m16n8k64", "m16n8k128", "sm_120a/sm_121a")
    ]
    return tuple(out)

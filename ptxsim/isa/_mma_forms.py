"""The syntax lines of mma and mma.sp (PTX ISA 9.1, Warp Level Matrix Instructions: mma, mma.sp).

Forms that ptxsim executes have no ``unsupported`` reason; all others are legal PTX that it knows
by name only.  Floors were measured with the assembler of CUDA 13.
"""

from __future__ import annotations

from .record import Form, Mods

__all__ = ["BOTH_LAYOUTS", "ELEMENT_BITS", "dense_forms", "element_bits", "sparse_forms"]

#: Width of an element as it lies in a register; floats below eight bits sit in bytes.
ELEMENT_BITS = {
    "f64": 64, "tf32": 32, "f16": 16, "bf16": 16, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8,
    "e3m2": 8, "e2m3": 8, "e2m1": 8, "s4": 4, "u4": 4, "b1": 1,
}  # fmt: skip

_OPERANDS = (
    "=d.d_register*d_count, a.a_register*a_count, b.a_register*b_count, c.c_register*c_count"
)
_SPARSE = _OPERANDS + ", e.b32, #f.u32"
_SCALES = ", scale_a.b32, ids_a.u16*2, scale_b.b32, ids_b.u16*2"

#: The order of the two words tells A from B, so each slot must know both.
BOTH_LAYOUTS = "alayout:{row col} blayout:{row col}"

_FP8 = "{e4m3 e5m2}"
_SMALL = "{e4m3 e5m2 e3m2 e2m3 e2m1}"
_ONLY_120 = "sm_120a/sm_120f/sm_121a"
_ONLY_100 = "sm_100a/sm_110a/" + _ONLY_120


def element_bits(m: Mods) -> int:
    """Bits of an element of A and B in its register; the mxf4 kinds pack e2m1 densely."""
    return 4 if m.kind.startswith("kind::mxf4") else ELEMENT_BITS[m.atype]


def _types(d: str, a: str, b: str, c: str) -> str:
    return f"dtype:{d} atype:{a} btype:{b} ctype:{c}"


def _line(shape: str, types: str, middle: str = "", tail: str = "") -> str:
    return f"sync aligned shape:{{{shape}}} {BOTH_LAYOUTS} {middle} {types} {tail}"


def dense_forms() -> tuple[Form, ...]:
    """All forms of mma."""
    executed = [
        *(
            Form(
                _line("m16n8k8 m16n8k16@7.0+sm_80", _types(d, "{f16}", "{f16}", d)),
                _OPERANDS, floor="6.5+sm_75",
            )
            for d in ("{f16}", "{f32}")
        ),
        Form(
            _line("m16n8k8 m16n8k16", _types("{f32}", "{bf16}", "{bf16}", "{f32}")),
            _OPERANDS, floor="7.0+sm_80",
        ),
        Form(
            _line(
                "m8n8k16 m16n8k16@7.0+sm_80 m16n8k32@7.0+sm_80",
                _types("{s32}", "{s8 u8}", "{s8 u8}", "{s32}"), "satfinite?",
            ),
            _OPERANDS, floor="6.5+sm_75",
        ),
    ]  # fmt: skip
    return (*executed, *_dense_unsupported())


def _dense_unsupported() -> list[Form]:
    def form(line: str, floor: str, what: str, operands: str = _OPERANDS) -> Form:
        return Form(line, operands, floor=floor, unsupported=f"mma {what} is not modelled")

    rounding = "rnd?:{rn rz rm rp}"
    f64 = _types("{f64}", "{f64}", "{f64}", "{f64}")
    s4 = _types("{s32}", "{s4 u4}", "{s4 u4}", "{s32}")
    b1 = _types("{s32}", "{b1}", "{b1}", "{s32}")
    quad = f"sync aligned shape:{{m8n8k4}} {BOTH_LAYOUTS} "
    out = [
        form(quad + _types("{f16}", "{f16}", "{f16}", "{f16}"), "6.4+sm_70", "m8n8k4"),
        form(quad + _types("{f32}", "{f16}", "{f16}", "{f16 f32}"), "6.4+sm_70", "m8n8k4"),
        form(
            _line("m16n8k4 m16n8k8", _types("{f32}", "{tf32}", "{tf32}", "{f32}")),
            "7.0+sm_80", "of tf32",
        ),
        form(
            _line("m8n8k4 m16n8k4@7.8+sm_90 m16n8k8@7.8+sm_90 m16n8k16@7.8+sm_90", f64, rounding),
            "7.0+sm_80", "of f64",
        ),
        form(
            _line("m8n8k32 m16n8k32@7.0+sm_80 m16n8k64@7.0+sm_80", s4, "satfinite?"),
            "6.5+sm_75", "of s4 and u4",
        ),
        form(
            _line(
                "m8n8k128 m16n8k128@7.0+sm_80 m16n8k256@7.0+sm_80", b1,
                tail="op:{xor and@7.1+sm_80} popc",
            ),
            "7.0+sm_75", "of b1",
        ),
    ]  # fmt: skip
    for d, floor in (("f32", "8.4+sm_89"), ("f16", "8.7+sm_89")):
        acc = f"{{{d}}}"
        eight, small = _types(acc, _FP8, _FP8, acc), _types(acc, _SMALL, _SMALL, acc)
        out += [
            form(_line("m16n8k16@8.7 m16n8k32", eight), floor, "of e4m3 and e5m2"),
            form(
                _line("m16n8k16@8.7 m16n8k32", eight, "kind:{kind::f8f6f4}"),
                ("8.6+" if d == "f32" else "8.7+") + _ONLY_100, "kind::f8f6f4",
            ),
            form(
                _line("m16n8k16 m16n8k32", small, "kind:{kind::f8f6f4}"),
                "8.7+" + _ONLY_120, "kind::f8f6f4",
            ),
        ]  # fmt: skip
    out += [
        form(line, floor, "with block scaling", _OPERANDS + _SCALES)
        for line, floor in _scaled("m16n8k32", "m16n8k64")
    ]
    return out


def _scaled(bytes_shape: str, packed_shape: str) -> list[tuple[str, str]]:
    """The lines with block scaling and their floors."""
    packed = _types("{f32}", "{e2m1}", "{e2m1}", "{f32}")
    rest = _types("{f32}", _SMALL, _SMALL, "{f32}")
    only = "8.7+" + _ONLY_120
    return [
        (
            _line(
                bytes_shape, rest,
                "kind:{kind::mxf8f6f4} block_scale vector?:{scale_vec::1X}", "stype:{ue8m0}",
            ),
            only,
        ),
        (
            _line(
                packed_shape, packed,
                "kind:{kind::mxf4} block_scale vector?:{scale_vec::2X}", "stype:{ue8m0}",
            ),
            only,
        ),
        (
            _line(
                packed_shape, packed,
                "kind:{kind::mxf4nvf4} block_scale vector:{scale_vec::2X}", "stype:{ue8m0}",
            ),
            only,
        ),
        (
            _line(
                packed_shape, packed,
                "kind:{kind::mxf4nvf4} block_scale vector:{scale_vec::4X}",
                "stype:{ue4m3 ue8m0@9.1}",
            ),
            only,
        ),
    ]  # fmt: skip


def sparse_forms() -> tuple[Form, ...]:
    """All forms of mma.sp; the qualifier ``::ordered_metadata`` is part of the mnemonic."""

    def form(line: str, floor: str, operands: str = _SPARSE) -> Form:
        return Form(line, operands, floor=floor, unsupported="mma.sp is not modelled")

    base = "7.1+sm_80"
    out = [
        *(
            form(_line("m16n8k16 m16n8k32", _types(d, "{f16}", "{f16}", d)), base)
            for d in ("{f16}", "{f32}")
        ),
        form(_line("m16n8k16 m16n8k32", _types("{f32}", "{bf16}", "{bf16}", "{f32}")), base),
        form(_line("m16n8k8 m16n8k16", _types("{f32}", "{tf32}", "{tf32}", "{f32}")), base),
        *(
            form(_line(shapes, _types("{s32}", pair, pair, "{s32}"), "satfinite?"), base)
            for shapes, pair in (
                ("m16n8k32 m16n8k64", "{s8 u8}"),
                ("m16n8k64 m16n8k128", "{s4 u4}"),
            )
        ),
        form(_line("m16n8k64", _types("{f32}", _FP8, _FP8, "{f32}")), "8.4+sm_89"),
        form(_line("m16n8k64", _types("{f16}", _FP8, _FP8, "{f16}")), "8.7+" + _ONLY_120),
        form(
            _line("m16n8k64", _types("{f32}", _FP8, _FP8, "{f32}"), "kind:{kind::f8f6f4}"),
            "8.6+" + _ONLY_100,
        ),
        *(
            form(
                _line("m16n8k64", _types(d, _SMALL, _SMALL, d), "kind:{kind::f8f6f4}"),
                "8.7+" + _ONLY_120,
            )
            for d in ("{f16}", "{f32}")
        ),
    ]
    out += [
        form(line, floor, _SPARSE + _SCALES) for line, floor in _scaled("m16n8k64", "m16n8k128")
    ]
    return tuple(out)

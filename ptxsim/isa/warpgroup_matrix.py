"""Matrix products of a warpgroup (PTX ISA 9.1, wgmma): checked, not executed.

Floors and the legal constants were measured.
"""

from __future__ import annotations

from .record import Form, Instruction, Mods, instruction

__all__: list[str] = []

_SECTION = "Asynchronous Warpgroup Level Matrix Instructions: "

_ALL = tuple(range(8, 257, 8))
#: Products of integers and bits have fewer shapes.
_FEW = (8, 16, 24, *range(32, 257, 16))

_FP8 = "{e4m3 e5m2}"
_SCALES = ", #scale_a.s32, #scale_b.s32"

#: The columns, K, the types, what follows them, and the operands behind the scale of D; the last
#: says whether A and B may be transposed.
_LINES = (
    (_ALL, 16, "dtype:{f16 f32} atype:{f16} btype:{f16}", "", _SCALES, True),
    (_ALL, 16, "dtype:{f32} atype:{bf16} btype:{bf16}", "", _SCALES, True),
    (_ALL, 8, "dtype:{f32} atype:{tf32} btype:{tf32}", "", _SCALES, False),
    (_ALL, 32, f"dtype:{{f16 f32}} atype:{_FP8} btype:{_FP8}", "", _SCALES, False),
    (_FEW, 32, "dtype:{s32} atype:{s8} btype:{s8}", "satfinite?", "", False),
    (_FEW, 32, "dtype:{s32} atype:{u8} btype:{u8}", "satfinite?", "", False),
    (_FEW, 32, "dtype:{s32} atype:{s8@8.4} btype:{u8}", "satfinite?", "", False),
    (_FEW, 32, "dtype:{s32} atype:{u8@8.4} btype:{s8}", "satfinite?", "", False),
    (_FEW, 256, "dtype:{s32} atype:{b1} btype:{b1}", "op:{and} popc", "", False),
)


def _forms(sparse: bool) -> tuple[Form, ...]:
    out = []
    for columns, k, types, tail, scales, transposable in _LINES:
        if sparse and k == 256:
            continue
        shapes = " ".join(f"m64n{n}k{2 * k if sparse else k}" for n in columns)
        line = f"{'sp ' * sparse}sync aligned? shape:{{{shapes}}} {types} {tail}"
        metadata = ", metadata.b32, #select.u32" * sparse
        for a, transposed in (
            ("a.u64", ", #trans_a.u32, #trans_b.u32"),
            ("a.u32*a_count", ", #trans_b.u32"),
        ):
            operands = f"+d.d_register*d_count, {a}, b.u64{metadata}, !scale_d.pred{scales}"
            out.append(Form(line, operands + transposed * transposable, floor="8.2" * sparse))
    return tuple(out)


class _Wgmma(Instruction):
    unsupported = "wgmma is not modelled"


@instruction("wgmma.mma_async", isa=_SECTION + "wgmma.mma_async", floor="8.0+sm_90a")
class WgmmaMmaAsync(_Wgmma):
    """D = A * B + D over a warpgroup; A in registers or, like B, in shared memory."""

    forms = (*_forms(False), *_forms(True))

    def d_register(self, m: Mods) -> str:
        """The type of the registers of D; halves come in pairs."""
        return {"f16": "f16x2", "f32": "f32", "s32": "s32"}[m.dtype]

    def d_count(self, m: Mods) -> int:
        """A warpgroup has 128 lanes, and D 64 rows."""
        columns = int(m.shape[4:].partition("k")[0])
        return columns // 4 if m.dtype == "f16" else columns // 2

    def a_count(self, m: Mods) -> int:
        """A lane holds 16 bytes of A whatever the type."""
        return 4

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """Scales are 1 or -1, transpositions 0 or 1, and so are the selectors of metadata."""
        if name in ("scale_a", "scale_b") and value not in (1, 0xFFFFFFFF):
            return "a scale is 1 or -1"
        if name in ("trans_a", "trans_b") and value > 1:
            return f"0 or 1 is expected, not {value}"
        if name == "select":
            highest = 1 if m.atype in ("f16", "bf16", "tf32") else 0
            return f"0 to {highest} is expected, not {value}" if value > highest else None
        return None


@instruction("wgmma.fence", isa=_SECTION + "wgmma.fence", floor="8.0+sm_90a")
class WgmmaFence(_Wgmma):
    """Order accesses to registers and memory before the products that follow."""

    forms = (Form("sync aligned?", ""),)


@instruction("wgmma.commit_group", isa=_SECTION + "wgmma.commit_group", floor="8.0+sm_90a")
class WgmmaCommitGroup(_Wgmma):
    """Close the group of the products issued so far."""

    forms = (Form("sync aligned?", ""),)


@instruction("wgmma.wait_group", isa=_SECTION + "wgmma.wait_group", floor="8.0+sm_90a")
class WgmmaWaitGroup(_Wgmma):
    """Wait until at most n of the newest groups are pending."""

    forms = (Form("sync aligned?", "#n.u32"),)

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """The number is not negative."""
        return "a number of groups is not negative" if value >> 31 else None

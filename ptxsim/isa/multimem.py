"""Memory of several devices at one address (PTX ISA 9.1, multimem): checked, not executed.

Floors and the legal combinations were measured.
"""

from __future__ import annotations

from ..types import SCALAR_TYPES
from .record import Form, Instruction, Mods, instruction

__all__: list[str] = []

_SECTION = "Data Movement and Conversion Instructions: "
_SCOPE = "scope?:{cta cluster gpu sys} space?:{global}"
_LARGEST = 128

#: Eight-bit floats are not portable.
_EIGHT = "@8.6+sm_100a/sm_100f/sm_110a/sm_110f/sm_120a/sm_120f"
_FOURS = f"e4m3x4{_EIGHT} e5m2x4{_EIGHT}"
_ELEMENTS = f"e4m3{_EIGHT} e5m2{_EIGHT} e4m3x2{_EIGHT} e5m2x2{_EIGHT} {_FOURS}"
_HALVES, _PAIRS = "f16 bf16", "f16x2 bf16x2"
_VECTOR = "vec:{v2 v4 v8}"

#: The operations on integers.
_INTEGERS = (
    "op:{and or xor} type:{b32 b64}",
    "op:{add} type:{u32 s32 u64}",
    "op:{min max} type:{u32 s32 u64 s64}",
)


class _Multimem(Instruction):
    unsupported = "multimem addresses are not modelled"

    def check(self, m: Mods) -> str | None:
        """A scope goes with an order; a vector has up to 128 bits, and 32 at least."""
        if m.sem in ("", "weak") and m.scope:
            return f".{m.scope} needs .relaxed or an order"
        if m.sem not in ("", "weak") and not m.scope:
            return f".{m.sem} needs a scope"
        if m.vec:
            bits = SCALAR_TYPES[m.type].bits * int(m.vec[1:])
            if not 32 <= bits <= _LARGEST:
                return f".{m.vec}.{m.type} has {bits} bits, 32 to {_LARGEST} are legal"
        return None


@instruction("multimem.ld_reduce", isa=_SECTION + "multimem.ld_reduce", floor="8.1+sm_90")
class MultimemLdReduce(_Multimem):
    """Load from all devices and combine what was read."""

    forms = tuple(
        Form(
            f"sem?:{{weak relaxed acquire}} {_SCOPE} {what}",
            f"=d.type{'*vec' * ('vec' in what)}, [a]", floor=floor,
        )
        for what, floor in (
            *((line, "") for line in _INTEGERS),
            (f"op:{{add}} type:{{f32 f64 {_PAIRS} {_FOURS}}}", ""),
            (f"op:{{min max}} type:{{{_PAIRS} {_FOURS}}}", ""),
            (f"op:{{add}} acc::f32 type:{{{_PAIRS}}}", "8.2"),
            (f"op:{{add}} acc::f16 type:{{{_FOURS}}}", ""),
            (f"op:{{add}} {_VECTOR} type:{{f32 {_HALVES} {_PAIRS} {_ELEMENTS}}}", ""),
            (f"op:{{min max}} {_VECTOR} type:{{{_HALVES} {_PAIRS} {_ELEMENTS}}}", ""),
            (f"op:{{add}} acc::f32 {_VECTOR} type:{{{_HALVES} {_PAIRS}}}", "8.2"),
            (f"op:{{add}} acc::f16 {_VECTOR} type:{{{_ELEMENTS}}}", ""),
        )
    )  # fmt: skip


@instruction("multimem.st", isa=_SECTION + "multimem.st", floor="8.1+sm_90")
class MultimemSt(_Multimem):
    """Store on all devices."""

    forms = (
        Form(
            f"sem?:{{weak relaxed release}} {_SCOPE}"
            f" type:{{b32 b64 u32 u64 s32 s64 f32 f64 {_PAIRS} {_FOURS}}}",
            "[a], b.type",
        ),
        Form(
            f"sem?:{{weak relaxed release}} {_SCOPE} {_VECTOR}"
            f" type:{{f32 {_HALVES} {_PAIRS} {_ELEMENTS}}}",
            "[a], b.type*vec",
        ),
    )


@instruction("multimem.red", isa=_SECTION + "multimem.red", floor="8.1+sm_90")
class MultimemRed(_Multimem):
    """Combine with memory on all devices."""

    forms = (
        *(
            Form(f"sem?:{{relaxed release}} {_SCOPE} {what}", "[a], b.type")
            for what in (*_INTEGERS, f"op:{{add}} type:{{f32 f64 {_PAIRS}}}")
        ),
        Form(
            f"sem?:{{relaxed release}} {_SCOPE} op:{{add}} {_VECTOR}"
            f" type:{{f32 {_HALVES} {_PAIRS}}}",
            "[a], b.type*vec",
        ),
    )


# --- bulk copies ----------------------------------------------------------------------------------


class _Bulk(Instruction):
    unsupported = "multimem addresses are not modelled"

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """Sizes are multiples of 16 (PTX ISA 9.1, multimem.cp.async.bulk)."""
        return f"a size is a multiple of 16, not {value}" if name == "n" and value % 16 else None


_STORE = "to:{global} from:{shared::cta} bulk_group"


@instruction("multimem.cp.async.bulk", isa=_SECTION + "multimem.cp.async.bulk", floor="9.1+sm_90")
class MultimemCpAsyncBulk(_Bulk):
    """Copy shared memory to all devices."""

    forms = (
        Form(_STORE, "[d], [a], n.u32"),
        Form(f"{_STORE} cp_mask", "[d], [a], n.u32, bytes.u16", floor="9.1+sm_100"),
    )


@instruction(
    "multimem.cp.reduce.async.bulk",
    isa=_SECTION + "multimem.cp.reduce.async.bulk",
    floor="9.1+sm_90",
)
class MultimemCpReduceAsyncBulk(_Bulk):
    """Combine shared memory with memory on all devices."""

    forms = tuple(
        Form(f"{_STORE} {what}", "[d], [a], n.u32")
        for what in (
            "op:{and or xor} type:{b32 b64}", "op:{add} type:{u32 s32 u64 f32 f64}",
            "op:{add} noftz type:{f16 bf16}", "op:{inc dec} type:{u32}",
            "op:{min max} type:{u32 s32 u64 s64 f16 bf16}",
        )
    )  # fmt: skip

"""Fifth-generation tensor cores and tensor memory (PTX ISA 9.1, tcgen05): checked, not executed.

Floors and the legal combinations were measured.
"""

from __future__ import annotations

from itertools import product

from ..targets import Floor
from .record import Form, Instruction, Mods, instruction

__all__: list[str] = []

_SECTION = "TensorCore 5th Generation Family Instructions: "

_FAMILIES = "sm_100a/sm_100f/sm_110a/sm_110f"
_EXACT = "sm_100a/sm_103a/sm_107a/sm_110a"
_INTEGERS = "sm_100a/sm_110a"
_BASE = f"8.6+{_FAMILIES}"
_SYNC = "sync aligned"
_GROUP = "cta_group:{cta_group::1 cta_group::2}"

#: Registers of one repetition by shape; a load or store has at most 128.
_REGISTERS = {"16x64b": 1, "16x128b": 2, "16x256b": 4, "32x32b": 1, "16x32bx2": 1}
_LIMIT = 128
_SHAPES = "shape:{16x64b 16x128b 16x256b 32x32b}"
_HALVES = "shape:{16x32bx2}"
_REPETITIONS = "num:{x1 x2 x4 x8 x16 x32 x64 x128}"


class _Tcgen05(Instruction):
    unsupported = "tcgen05 is not modelled"


# --- allocation -----------------------------------------------------------------------------------


@instruction("tcgen05.alloc", isa=_SECTION + "tcgen05.alloc", floor=_BASE)
class Tcgen05Alloc(_Tcgen05):
    """Allocate columns of tensor memory; their address is written to shared memory."""

    forms = (Form(f"{_GROUP} {_SYNC} space?:{{shared::cta}} b32", "[a], columns.u32"),)

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """A power of two from 32 to 512."""
        legal = value & (value - 1) == 0 and 32 <= value <= 512
        return None if legal else f"a power of two from 32 to 512 is expected, not {value}"


@instruction("tcgen05.dealloc", isa=_SECTION + "tcgen05.dealloc", floor=_BASE)
class Tcgen05Dealloc(_Tcgen05):
    """Free columns of tensor memory."""

    forms = (Form(f"{_GROUP} {_SYNC} b32", "a.u32, columns.u32"),)

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """Columns are counted by 32."""
        if name == "columns" and value % 32:
            return f"a multiple of 32 is expected, not {value}"
        return None


@instruction(
    "tcgen05.relinquish_alloc_permit",
    isa=_SECTION + "tcgen05.relinquish_alloc_permit",
    floor=_BASE,
)
class Tcgen05RelinquishAllocPermit(_Tcgen05):
    """Give up the right to allocate tensor memory."""

    forms = (Form(f"{_GROUP} {_SYNC}", ""),)


# --- loads, stores, copies ------------------------------------------------------------------------


class _Access(_Tcgen05):
    def registers(self, m: Mods) -> int:
        """How many registers a lane gives or takes."""
        return _REGISTERS[m.shape] * int(m.num[1:])

    def check(self, m: Mods) -> str | None:
        """A lane gives or takes at most 128 registers."""
        if self.registers(m) > _LIMIT:
            return f".{m.num} is not legal with .{m.shape}: more than {_LIMIT} registers"
        return None

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """What is stored lies in registers."""
        return "a register is expected" if name.startswith("r[") else None


@instruction("tcgen05.ld", isa=_SECTION + "tcgen05.ld", floor=_BASE)
class Tcgen05Ld(_Access):
    """Load a part of tensor memory into the registers of a warp."""

    forms = (
        Form(f"{_SYNC} {_SHAPES} {_REPETITIONS} pack::16b? b32", "=r.b32*registers, [&a.b32]"),
        Form(
            f"{_SYNC} {_HALVES} {_REPETITIONS} pack::16b? b32",
            "=r.b32*registers, [&a.b32], #half.u32",
        ),
    )


@instruction(
    "tcgen05.ld",
    isa=_SECTION + "tcgen05.ld",
    floor="8.8+sm_103a/sm_103f/sm_110a/sm_110f",
)
class Tcgen05LdRed(_Access):
    """Load a part of tensor memory, and the least or greatest of what a lane loads."""

    _OPERANDS = "=r.b32*registers, =extreme.b32, [&a.b32]"
    forms = tuple(
        Form(f"red {_SYNC} {shape} num:{{x2 x4 x8 x16 x32 x64 x128}} {how}", operands)
        for (shape, operands), how in product(
            (("shape:{32x32b}", _OPERANDS), (_HALVES, _OPERANDS + ", #half.u32")),
            ("op:{min max} abs? NaN? type:{f32}", "op:{min max} type:{u32 s32}"),
        )
    )


@instruction("tcgen05.st", isa=_SECTION + "tcgen05.st", floor=_BASE)
class Tcgen05St(_Access):
    """Store the registers of a warp in tensor memory."""

    forms = (
        Form(f"{_SYNC} {_SHAPES} {_REPETITIONS} unpack::16b? b32", "[&a.b32], r.b32*registers"),
        Form(
            f"{_SYNC} {_HALVES} {_REPETITIONS} unpack::16b? b32",
            "[&a.b32], #half.u32, r.b32*registers",
        ),
    )


@instruction("tcgen05.cp", isa=_SECTION + "tcgen05.cp", floor=_BASE)
class Tcgen05Cp(_Tcgen05):
    """Copy from shared memory, which a descriptor describes, to tensor memory."""

    forms = tuple(
        Form(f"{_GROUP} {shape} {format_}", "[&a.b32], descriptor.u64")
        for shape, format_ in product(
            (
                "shape:{128x256b 4x256b 128x128b}",
                "shape:{64x128b} multicast:{warpx2::02_13 warpx2::01_23}",
                "shape:{32x128b} multicast:{warpx4}",
            ),
            ("", "b8x16 source:{b6x16_p32 b4x16_p64}"),
        )
    )


@instruction("tcgen05.shift", isa=_SECTION + "tcgen05.shift", floor=f"8.6+{_EXACT}")
class Tcgen05Shift(_Tcgen05):
    """Shift the rows of a matrix in tensor memory down by one."""

    forms = (Form(f"{_GROUP} down", "[&a.b32]"),)


# --- products -------------------------------------------------------------------------------------

_SPARSE_BLOCKS = Floor.parse(f"8.8+{_EXACT}")
_PLAIN = f"kind:{{kind::f16 kind::tf32 kind::f8f6f4 kind::i8@8.6+{_INTEGERS}}}"
_COLLECTOR = "collector?:{" + " ".join(
    f"collector::a::{op}" for op in ("fill", "use", "lastuse", "discard")
) + "}"  # fmt: skip
_SHIFTED = "ashift collector?:{collector::a::lastuse collector::a::discard}"
_COLLECTORS_OF_B = " ".join(
    f"collector::b{buffer}::{op}"
    for buffer in range(4)
    for op in ("fill", "use", "lastuse", "discard")
)
#: Where A lies: described in shared memory, or in tensor memory.
_DESCRIBED, _IN_TENSOR_MEMORY = "a.u64", "[&a.b32]"
_INPUTS = "[&d.b32], {}, b.u64, [&metadata.b32]?sp, instruction.u32"

#: Kinds with block scaling, how scales are laid out, and the floor.
_BLOCKS = (
    ("kind::mxf8f6f4", "vector:{scale_vec::1X}", f"8.6+{_EXACT}"),
    ("kind::mxf4", "vector:{scale_vec::2X}", f"8.6+{_EXACT}"),
    ("kind::mxf4nvf4", "vector:{scale_vec::2X scale_vec::4X}", f"8.7+{_EXACT}"),
    ("kind::mxf8f6f4 kind::mxf4", "vector?:{block32}", f"8.8+{_FAMILIES}"),
    ("kind::mxf4nvf4", "vector:{block16 block32}", f"8.8+{_FAMILIES}"),
)


def _plain_forms() -> list[Form]:
    out = []
    for lanes in ("", ", lanes.b32*lane_count"):
        operands = _INPUTS + lanes + ", !enable.pred"
        for a, modifiers in (
            (_DESCRIBED, _COLLECTOR), (_IN_TENSOR_MEMORY, _COLLECTOR),
            (_IN_TENSOR_MEMORY, _SHIFTED),
        ):  # fmt: skip
            line = f"sp? {_GROUP} {_PLAIN} {modifiers}"
            out.append(Form(line, operands.format(a)))
            scaled = line.replace(_PLAIN, "kind:{kind::f16 kind::tf32}")
            out.append(
                Form(scaled, operands.format(a) + ", #scale.u32", floor="8.6+sm_100a/sm_100f")
            )
    return out


def _block_forms() -> list[Form]:
    return [
        Form(
            f"sp? {_GROUP} kind:{{{kinds}}} block_scale {vector} {_COLLECTOR}",
            _INPUTS.format(a) + ", [&scale_a.b32], [&scale_b.b32], !enable.pred",
            floor=floor,
        )
        for kinds, vector, floor in _BLOCKS
        for a in (_DESCRIBED, _IN_TENSOR_MEMORY)
    ]


def _stationary_forms() -> list[Form]:
    """Products whose B stays in a collector buffer."""
    return [
        Form(
            f"ws sp? cta_group:{{cta_group::1}} {_PLAIN} collector?:{{{_COLLECTORS_OF_B}}}",
            _INPUTS.format(a) + ", !enable.pred, zero_columns.u64?",
        )
        for a in (_DESCRIBED, _IN_TENSOR_MEMORY)
    ]


@instruction("tcgen05.mma", isa=_SECTION + "tcgen05.mma", floor=_BASE)
class Tcgen05Mma(_Tcgen05):
    """D = A * B + D in tensor memory; A in tensor memory or, like B, in shared memory."""

    forms = (*_plain_forms(), *_block_forms(), *_stationary_forms())

    def lane_count(self, m: Mods) -> int:
        """The mask of output lanes has 128 bits for each CTA."""
        return 4 if m.cta_group == "cta_group::1" else 8

    def combined_floor(self, m: Mods) -> tuple[str, Floor] | None:
        """Sparse products of four-bit floats are not portable."""
        four = m.kind in ("kind::mxf4", "kind::mxf4nvf4") and not m.vector.startswith("scale_vec")
        return (f"sp.{m.kind}", _SPARSE_BLOCKS) if m.sp and four else None

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """D is scaled by a power of two up to 2^15; the mask of lanes lies in registers."""
        if name == "scale" and value > 15:
            return f"0 to 15 is expected, not {value}"
        return "a register is expected" if name.startswith("lanes") else None


# --- synchronization ------------------------------------------------------------------------------


@instruction("tcgen05.commit", isa=_SECTION + "tcgen05.commit", floor=_BASE)
class Tcgen05Commit(_Tcgen05):
    """Arrive at an mbarrier when the operations issued so far are complete."""

    _LINE = f"{_GROUP} mbarrier::arrive::one space?:{{shared::cluster}}"
    forms = (
        Form(f"{_LINE} b64", "[mbar]"),
        Form(f"{_LINE} multicast::cluster b64", "[mbar], ctas.u16"),
    )

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """The mask of CTAs lies in a register."""
        return "a register is expected"


class _Bare(_Tcgen05):
    forms = (Form("", ""),)


@instruction("tcgen05.wait::ld", isa=_SECTION + "tcgen05.wait", floor=_BASE)
class Tcgen05WaitLd(_Tcgen05):
    """Wait for the thread's loads of tensor memory."""

    forms = (Form(_SYNC, ""),)


@instruction("tcgen05.wait::st", isa=_SECTION + "tcgen05.wait", floor=_BASE)
class Tcgen05WaitSt(_Tcgen05):
    """Wait for the thread's stores to tensor memory."""

    forms = (Form(_SYNC, ""),)


@instruction("tcgen05.fence::before_thread_sync", isa=_SECTION + "tcgen05.fence", floor=_BASE)
class Tcgen05FenceBefore(_Bare):
    """Order what was issued before a synchronization of threads."""


@instruction("tcgen05.fence::after_thread_sync", isa=_SECTION + "tcgen05.fence", floor=_BASE)
class Tcgen05FenceAfter(_Bare):
    """Order what will be issued after a synchronization of threads."""

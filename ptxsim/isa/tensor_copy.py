"""Copies of tensors and their maps (PTX ISA 9.1, cp.async.bulk.tensor, tensormap): checked only.

Nothing here is executed.  Floors and the legal combinations were measured.
"""

from __future__ import annotations

from typing import Final

from .record import Form, Instruction, Mods, instruction

__all__: list[str] = []

_SECTION = "Data Movement and Conversion Instructions: "

_FAMILIES = "8.6+sm_100a/sm_100f/sm_110a/sm_110f"
_ANY_RANK, _IMAGE_RANK = "dims:{1d 2d 3d 4d 5d}", "dims:{3d 4d 5d}"
_HINT = "hint?:{L2::cache_hint}"
_CACHE = ", cache.b64?hint"
_TENSOR = "[tensor c.s32*coordinates]"
_OFFSETS = ", offsets.u16*offset_count"
_WIDE_IMAGE = "mode:{im2col::w im2col::w::128}"


class _TensorCopy(Instruction):
    unsupported = "tensor maps are not modelled"

    def coordinates(self, m: Mods) -> int:
        """One for each dimension; four rows and a column where rows are gathered or scattered."""
        return 5 if m.mode in ("tile::gather4", "tile::scatter4") else int(m.dims[0])

    def offset_count(self, m: Mods) -> int:
        """Offsets in an image: one for each of its dimensions, or two along its width."""
        return int(m.dims[0]) - 2 if m.mode == "im2col" else 2


def _modes(gather_floor: str) -> list[tuple[str, str, str]]:
    """How a tensor is read: the modifiers, offsets in an image, and the floor."""
    return [
        (f"{_ANY_RANK} mode?:{{tile}}", "", ""),
        ("dims:{2d} mode:{tile::gather4}", "", gather_floor),
        (f"{_IMAGE_RANK} mode:{{im2col}}", _OFFSETS, ""),
        (f"{_IMAGE_RANK} {_WIDE_IMAGE}", _OFFSETS, _FAMILIES),
    ]


#: How a tensor is written.
_WRITES = (
    (f"{_ANY_RANK} mode?:{{tile}}", ""),
    (f"{_IMAGE_RANK} mode:{{im2col_no_offs}}", ""),
    ("dims:{2d} mode:{tile::scatter4}", _FAMILIES),
)


def _loads(target: str, multicast: str, operand: str, gather_floor: str) -> tuple[Form, ...]:
    groups = f"group?:{{cta_group::1@{_FAMILIES} cta_group::2@{_FAMILIES}}}"
    return tuple(
        Form(
            f"{mode} to:{{{target}}} from:{{global}} mbarrier::complete_tx::bytes {multicast}"
            f" {groups} {_HINT}",
            f"[d], {_TENSOR}, [mbar]{offsets}{operand}{_CACHE}",
            floor=floor,
        )
        for mode, offsets, floor in _modes(gather_floor)
    )


@instruction("cp.async.bulk.tensor", isa=_SECTION + "cp.async.bulk.tensor", floor="8.0+sm_90")
class CpAsyncBulkTensor(_TensorCopy):
    """Copy a part of a tensor between global and shared memory."""

    forms = (
        *_loads("shared::cluster", "multicast::cluster?", ", ctas.u16?multicast__cluster",
                _FAMILIES),
        *_loads("shared::cta@8.6", "", "", "8.6+sm_100"),
        *(
            Form(
                f"{mode} to:{{global}} from:{{shared::cta}} bulk_group {_HINT}",
                f"{_TENSOR}, [a]{_CACHE}", floor=floor,
            )
            for mode, floor in _WRITES
        ),
    )  # fmt: skip


@instruction(
    "cp.reduce.async.bulk.tensor",
    isa=_SECTION + "cp.reduce.async.bulk.tensor",
    floor="8.0+sm_90",
)
class CpReduceAsyncBulkTensor(_TensorCopy):
    """Combine a part of a tensor with shared memory."""

    forms = tuple(
        Form(
            f"{mode} to:{{global}} from:{{shared::cta}} op:{{add min max inc dec and or xor}}"
            f" bulk_group {_HINT}",
            f"{_TENSOR}, [a]{_CACHE}", floor=floor,
        )
        for mode, floor in _WRITES
    )  # fmt: skip


@instruction(
    "cp.async.bulk.prefetch.tensor",
    isa=_SECTION + "cp.async.bulk.prefetch.tensor",
    floor="8.0+sm_90",
)
class CpAsyncBulkPrefetchTensor(_TensorCopy):
    """A hint that a part of a tensor will be read."""

    forms = tuple(
        Form(f"{mode} L2 space:{{global}} {_HINT}", f"{_TENSOR}{offsets}{_CACHE}", floor=floor)
        for mode, offsets, floor in _modes(_FAMILIES)
    )


# --- tensor maps ----------------------------------------------------------------------------------

_MAPS = "sm_90a/sm_100a/sm_100f/sm_110a/sm_110f/sm_120a/sm_120f"
_SPACE = "space?:{global shared::cta} b1024"

#: The highest value of a field whose values are numbered.
_HIGHEST: Final = {
    "elemtype": 15, "interleave_layout": 2, "swizzle_mode": 4, "swizzle_atomicity": 3,
    "fill_mode": 1,
}  # fmt: skip
_LAST_DIMENSION = 4


@instruction("tensormap.replace", isa=_SECTION + "tensormap.replace", floor=f"8.3+{_MAPS}")
class TensormapReplace(Instruction):
    """Change one field of a tensor map."""

    unsupported = "tensor maps are not modelled"
    forms = (
        Form(f"tile field:{{global_address}} {_SPACE} type:{{b64}}", "[a], value.type"),
        Form(f"tile field:{{rank}} {_SPACE} type:{{b32}}", "[a], value.type"),
        Form(f"tile field:{{global_stride}} {_SPACE} type:{{b64}}", "[a], #ord.u32, value.type"),
        Form(
            f"tile field:{{box_dim global_dim element_stride}} {_SPACE} type:{{b32}}",
            "[a], #ord.u32, value.u32",
        ),
        Form(
            "tile field:{elemtype interleave_layout swizzle_mode fill_mode"
            f" swizzle_atomicity@8.6+{_MAPS.replace('sm_90a/', '')}}} {_SPACE} type:{{b32}}",
            "[a], #number.type",
        ),
    )

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """Dimensions are counted from 0 to 4, and each numbered field has so many values."""
        highest = {"ord": _LAST_DIMENSION, "number": _HIGHEST.get(m.field, 0)}.get(name)
        if highest is not None and value > highest:
            return f"0 to {highest} is expected, not {value}"
        return None


@instruction(
    "tensormap.query.alloc_class_large", isa=_SECTION + "tensormap.query", floor=f"9.5+{_MAPS}"
)
class TensormapQueryAllocClassLarge(Instruction):
    """Whether a tensor map is of memory of the large allocation class."""

    unsupported = "tensor maps are not modelled"
    forms = (Form(_SPACE, "=p.pred, [a]"),)


@instruction(
    "tensormap.cp_fenceproxy",
    isa="Parallel Synchronization and Communication Instructions: tensormap.cp_fenceproxy",
    floor="8.3+sm_90",
)
class TensormapCpFenceproxy(Instruction):
    """Copy a tensor map and release it to the accesses that use it."""

    unsupported = "tensor maps are not modelled"
    forms = (
        Form(
            "to:{global} from:{shared::cta} tensormap::generic sem:{release}"
            " scope:{cta cluster gpu sys} sync aligned",
            "[d], [a], #size.u32",
        ),
    )

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """A tensor map has 128 bytes."""
        return None if value == 128 else f"the size is 128, not {value}"

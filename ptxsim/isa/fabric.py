"""Asynchronous operations over a fabric (PTX ISA 9.5, fabric): checked, not executed.

The forms and floors are those that ptxas 13.5 takes.
"""

from __future__ import annotations

from .record import Form, Instruction, instruction

__all__: list[str] = []

_SECTION = "Data Movement and Conversion Instructions: "
_FLOOR = "9.3+sm_100"
_ORDER = "sem:{relaxed} scope:{sys}"
_HEAD = "async space:{shared::cta}"
_BY_BYTES = "mbarrier::complete_tx::bytes mbarrier::report::fabric"
_BY_16 = "mbarrier::complete_tx::16B mbarrier::report::fabric"
_ACCUMULATE = "9.3+sm_100a/sm_100f/sm_110a/sm_110f/sm_120a/sm_120f"
#: What the other side is: a number and an address there, and a counter where arrivals count.
_REMOTE, _COUNTED = "[remote.b32 {}]", "[remote.b32 {} counter]"

_INTEGERS = (
    "op:{and or xor} type:{b32 b64}",
    "op:{add} type:{u32 u64}",
    "op:{min max} type:{u32 s32 u64 s64}",
)


class _Fabric(Instruction):
    unsupported = "fabric is not modelled"


@instruction("fabric.submit", isa=_SECTION + "fabric.submit", floor=_FLOOR)
class FabricSubmit(_Fabric):
    """Submit the operations so far."""

    forms = (Form("op_restrict::fetching?", ""), Form("commit_group", "", floor="9.5"))


@instruction("fabric.wait", isa=_SECTION + "fabric.wait", floor=_FLOOR)
class FabricWait(_Fabric):
    """Wait for the reads of what was submitted, all or all but the newest n."""

    forms = (
        Form("sync_restrict::reads", "#n.u32?"),
        Form("sync_restrict::read", "#n.u32", floor="9.5"),
    )


@instruction("fabric.try_put", isa=_SECTION + "fabric.try_put", floor=_FLOOR)
class FabricTryPut(_Fabric):
    """Copy shared memory to another device."""

    forms = tuple(
        Form(
            f"{_HEAD} {_BY_16} {counted} {mask} {_ORDER} type:{{b128}}",
            f"{remote.format('d')}, [a], n.u32, [mbar]{', bytes.u16' * bool(mask)}",
        )
        for counted, remote in (("", _REMOTE), ("counted::bytes", _COUNTED))
        for mask in ("", "cp_mask")
    )


@instruction("fabric.try_get", isa=_SECTION + "fabric.try_get", floor=_FLOOR)
class FabricTryGet(_Fabric):
    """Copy memory of another device to shared memory."""

    forms = (
        Form(
            f"{_HEAD} {_BY_BYTES} {_ORDER} type:{{b128}}",
            f"[d], {_REMOTE.format('a')}, n.u32, [mbar]",
        ),
    )


@instruction("fabric.try_red", isa=_SECTION + "fabric.try_red", floor=_FLOOR)
class FabricTryRed(_Fabric):
    """Combine shared memory with memory of another device."""

    forms = tuple(
        Form(
            f"{_HEAD} {_BY_16} {counted} {_ORDER} {what}",
            f"{remote.format('d')}, [a], n.u32, [mbar]",
        )
        for counted, remote in (("", _REMOTE), ("counted::bytes", _COUNTED))
        for what in (*_INTEGERS, "op:{add} type:{f16 bf16 f32 f64}", "op:{min max} type:{f16 bf16}")
    )


@instruction("fabric.try_pullred", isa=_SECTION + "fabric.try_pullred", floor=_FLOOR)
class FabricTryPullred(_Fabric):
    """Combine what several devices hold, and copy it to shared memory."""

    forms = tuple(
        Form(
            f"multimem {_HEAD} {_BY_BYTES} {_ORDER} {what} sync",
            f"[d], {_REMOTE.format('a')}, n.u32, [mbar], mask.b32",
        )
        for what in (
            *_INTEGERS,
            "op:{add} type:{f16 bf16 f32}",
            f"op:{{add}} accumulate:{{acc::f32@{_ACCUMULATE}}} type:{{f16 bf16}}",
        )
    )

"""Which order a module makes: between whole warps and CTAs or less, and by fence.sc."""

from __future__ import annotations

from collections.abc import Iterable

from ...resolve.typed import Constant, TypedInstruction, TypedModule

__all__ = ["fences_in_order", "orders_parts"]

_PARTIAL = (
    "mbarrier.",
    "cp.async.mbarrier",
    "cp.async.bulk",
    "cp.reduce.async.bulk",
    "fence",
    "membar",
)


def orders_parts(module: TypedModule) -> bool:
    """Whether some instruction orders fewer threads than whole warps meeting at CTA barriers."""
    return any(map(_orders_part, _instructions(module)))


def fences_in_order(module: TypedModule) -> bool:
    """Whether some instruction is a fence.sc, or membar, which is one."""
    return any(i.record.memory_order(i.mods).sequential for i in _instructions(module))


def _instructions(module: TypedModule) -> Iterable[TypedInstruction]:
    for function in module.functions.values():
        yield from function.instructions or ()


def _orders_part(i: TypedInstruction) -> bool:
    name = i.record.name
    if name == "bar.warp.sync":
        mask = i.operands.get("mask")
        return not (isinstance(mask, Constant) and mask.bits & 0xFFFFFFFF == 0xFFFFFFFF)
    if name in ("bar", "barrier"):
        return "b" in i.operands
    order = i.record.memory_order(i.mods)
    return order.acquire or order.release or name.startswith(_PARTIAL)

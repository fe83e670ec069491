"""Which order a module makes: between whole warps and CTAs or less, and by fence.sc."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...resolve.typed import Constant, TypedInstruction, TypedModule
from ...types import SCALAR_TYPES

__all__ = ["Traits", "traits"]

_PARTIAL = (
    "mbarrier.",
    "cp.async.mbarrier",
    "cp.async.bulk",
    "cp.reduce.async.bulk",
    "fence",
    "membar",
)


@dataclass(frozen=True, slots=True)
class Traits:
    """What decides how much of the past of a place must be kept."""

    #: some instruction orders fewer threads than whole warps meeting at CTA barriers
    parts: bool = False
    #: some instruction is a fence.sc, or membar, which is one
    sequential: bool = False
    #: two strong accesses may differ in what they are morally strong with
    mixed: bool = False
    #: some mbarrier object ends before its CTA does
    ends: bool = False


def traits(module: TypedModule) -> Traits:
    """Look through all instructions."""
    code = list(_instructions(module))
    return Traits(
        any(map(_orders_part, code)),
        any(i.record.memory_order(i.mods).sequential for i in code),
        _mixes(code),
        any(i.record.name == "mbarrier.inval" for i in code),
    )


def _mixes(code: Iterable[TypedInstruction]) -> bool:
    """Strong accesses are alike if of one size, and of scope gpu or wider or in shared memory."""
    sizes = set()
    for i in code:
        order, type_ = i.record.memory_order(i.mods), i.mods.type
        if not order.strong or not type_:
            continue
        sizes.add((SCALAR_TYPES[type_].bits, type_.endswith("x2")))
        near = order.scope in ("cta", "cluster") and not i.mods.space.startswith("shared")
        if near or len(sizes) > 1:
            return True
    return False


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

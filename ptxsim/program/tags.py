"""Tags of registers that hold wmma fragments, through the instructions that know nothing of them.

The wmma records write and read tags (:mod:`ptxsim.isa.fragment_tags`).  A copy takes the tag along,
any other result has none, and an instruction for which it matters which lane holds an element says
that PTX leaves this open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..diagnostics import Severity
from ..isa.fragment_tags import describe_tag
from ..isa.protocol import Array, Registers, Step
from ..matrix import MAPPED_TARGETS
from ..numerics import select
from ..resolve.typed import AddressOperand, Register, TypedInstruction
from .binder import InstructionBinder, registers_of

__all__ = ["bind_tags", "tagged_registers"]

_NONE = np.array([0], np.int32)


def tagged_registers(code: Iterable[TypedInstruction]) -> set[int]:
    """The registers that fragments may be in: operands of wmma, and what is copied from or to."""
    found: set[int] = set()
    copies = []
    for i in code:
        for name in i.record.fragment_operands:
            found.update(registers_of(i.operands.get(name)))
        pair = _copied(i)
        if pair is not None:
            copies.append(pair)
    if not found:
        return found
    grew = True
    while grew:
        before = len(found)
        for target, source in copies:
            if target in found or source in found:
                found.update((target, source))
        grew = len(found) > before
    return found


def _copied(i: TypedInstruction) -> tuple[int, int] | None:
    """The registers that an instruction copies to and from, if that is all it does."""
    if not i.record.copies:
        return None
    target, source = i.operands.get("d"), i.operands.get("a")
    if isinstance(target, Register) and isinstance(source, Register):
        return target.index, source.index
    return None


def bind_tags(b: InstructionBinder, written: set[int]) -> None:
    """Add to a bound instruction what it does to the tags of registers."""
    tags = b.places.tags
    record = b.instruction.record
    if record.lane_matters(b.mods):
        _announce(b, [tags[r] for r in b.read_registers() if r in tags])
    if record.fragment_operands:
        return
    places = [tags[r] for r in sorted(written) if r in tags]
    if not places:
        return
    pair = _copied(b.instruction)
    source = tags.get(pair[1], -1) if pair else -1
    step = _retag(places, source, b.guard())
    (b.before if record.control else b.after).append(step)


def _retag(places: list[int], source: int, guard: Callable[[Registers], Array | None]) -> Step:
    def step(r: Registers, g: Any) -> None:
        tag = _NONE if source < 0 else r[source]
        p = guard(r)
        for place in places:
            r[place] = tag if p is None else select(p, tag, r[place])

    return step


def _outside_the_stack(b: InstructionBinder) -> Callable[[Registers, Any], Array]:
    """Where a store does not go to local memory, in which a register is only kept."""
    everywhere = np.array([True])
    if not b.has("a") or not isinstance(b.operand("a"), AddressOperand):
        return lambda r, g: everywhere
    space = b.space("a", b.mods.space)
    if space != "generic":
        outside = np.array([space not in ("local", "param")])
        return lambda r, g: outside
    address = b.address("a")
    return lambda r, g: ~g.in_window("local", address(r, g).astype(np.uint64))


def _announce(b: InstructionBinder, places: list[int]) -> None:
    """Say once a launch and instruction that the lanes of a fragment's elements are open in PTX."""
    if not places:
        return
    site, target = b.site, b.target
    known = target.number in MAPPED_TARGETS
    told: list[bool] = []
    guard = b.guard()
    elsewhere = _outside_the_stack(b)

    def check(r: Registers, g: Any) -> None:
        if told:
            return
        acting = g.mask(guard(r))
        for place in places:
            tag = r[place]
            if not tag.any():
                continue
            holds = g.full(tag != 0) & elsewhere(r, g)
            if acting is not None:
                holds &= acting
            held = np.flatnonzero(holds)
            if len(held) == 0:
                continue
            told.append(True)
            what = describe_tag(int(g.full(tag)[held[0]]))
            follows = (
                f"the map of {target} is used" if known
                else f"the map of {target} is not known, that of its nearest relative is used"
            )  # fmt: skip
            g.finding(
                "wmma-fragment",
                f"'{site.text}' uses {what} by lane; PTX leaves open which lane holds which"
                f" element: {follows}",
                site,
                holds,
                help="store the fragment with wmma.store and read its elements from memory",
                severity=Severity.ADVICE if known else Severity.WARNING,
            )
            return

    b.before.append(check)

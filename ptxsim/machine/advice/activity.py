"""How many warps and lanes run each block of a program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...isa.protocol import Array, BoolArray, Registers

if TYPE_CHECKING:
    from ...program import Block, Program
    from ..group import Group

__all__ = ["Activity", "warps_in"]


#: Groups whose count of warps is kept.
_MOST_GROUPS = 64


def warps_in(lanes: Array) -> int:
    """The warps of lanes, which are in order."""
    return 1 + int(np.count_nonzero(np.diff(lanes >> 5))) if len(lanes) else 0


class Activity:
    """Counts the warps that run a block; lanes and executions the scheduler counts by itself."""

    def __init__(self) -> None:
        self.warps: dict[Block, int] = {}
        self._groups: dict[int, tuple[Array, BoolArray | None, int]] = {}
        self._program: Program | None = None

    def attach(self, program: Program) -> None:
        """Count from now on: the transfer that ends each block says that it ran."""
        self._groups.clear()
        if program is self._program:
            return
        self._program = program
        for routine in {id(r): r for r in program.routines.values()}.values():
            for block in routine.blocks:
                self._count(block)

    def _count(self, block: Block) -> None:
        inner = block.transfer
        if inner is None:
            return
        self.warps[block] = 0

        def transfer(r: Registers, group: Any) -> Any:
            self.warps[block] += self.warps_of(group)
            return inner(r, group)

        block.transfer = transfer

    def warps_of(self, group: Group) -> int:
        """The warps that lanes of the group are of."""
        known = self._groups.get(id(group))
        if known is not None and known[0] is group.lanes and known[1] is group.active:
            return known[2]
        lanes = group.lanes if group.active is None else group.lanes[group.active]
        count = warps_in(lanes)
        if len(self._groups) >= _MOST_GROUPS:
            self._groups.clear()
        self._groups[id(group)] = (group.lanes, group.active, count)
        return count

    @property
    def instructions(self) -> int:
        """PTX instructions that warps have executed, whatever their guards were."""
        return sum(block.length * count for block, count in self.warps.items())

    @property
    def predicated_on(self) -> int:
        """Instructions that lanes have executed with a true guard, or without any."""
        every = sum(block.length * block.lane_executions for block in self.warps)
        return every - sum(b.lane_executions - use.lanes for b in self.warps for use in b.guarded)

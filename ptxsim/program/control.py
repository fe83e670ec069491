"""What a control instruction may ask for when it is bound (:class:`ControlBinder`)."""

from __future__ import annotations

from dataclasses import dataclass

from ..resolve.typed import CallOperand, Constant, LabelRef, LabelTable, Register, Symbol
from .binder import InstructionBinder, Places
from .model import Block

__all__ = ["Argument", "CallPlan", "ControlBinder"]


@dataclass(frozen=True, slots=True)
class Argument:
    """A value that crosses a call: a register place, or a stretch of the caller's frame."""

    place: int = -1
    offset: int = -1
    size: int = 0


@dataclass(frozen=True, slots=True)
class CallPlan:
    """A bound call; ``target`` is a function name, or the register place of an address."""

    target: str | int
    arguments: tuple[Argument, ...]
    results: tuple[Argument, ...]
    candidates: tuple[str, ...] | None
    after: Block


class ControlBinder(InstructionBinder):
    """Binds the instruction that ends a block."""

    def __init__(
        self,
        places: Places,
        instruction: object,
        next_block: Block | None,
        blocks_at: dict[int, Block],
    ) -> None:
        super().__init__(places, instruction)  # type: ignore[arg-type]
        self._next = next_block
        self._blocks_at = blocks_at
        #: blocks that control may reach from here; filled as they are asked for
        self.successors: list[Block] = []

    def next(self) -> Block | None:
        """The block that follows in the text; None at the end of the body."""
        if self._next is not None:
            self.successors.append(self._next)
        return self._next

    def label(self, name: str) -> Block:
        """The block at a label operand."""
        value = self.operand(name)
        assert isinstance(value, LabelRef)
        block = self._blocks_at[value.index]
        self.successors.append(block)
        return block

    def labels(self, name: str) -> list[Block]:
        """The blocks of a ``.branchtargets`` list."""
        value = self.operand(name)
        assert isinstance(value, LabelTable)
        blocks = [self._blocks_at[t.index] for t in value.targets]
        self.successors.extend(blocks)
        return blocks

    def call(self) -> CallPlan:
        """The plan of a call."""
        value = self.operand("call")
        assert isinstance(value, CallOperand)
        after = self.next()
        assert after is not None
        target = value.callee.index if isinstance(value.callee, Register) else value.callee.name
        return CallPlan(
            target,
            tuple(self._crossing(a) for a in value.arguments),
            tuple(self._crossing(a) for a in value.results),
            value.candidates,
            after,
        )

    def _crossing(self, value: object) -> Argument:
        match value:
            case Register():
                return Argument(place=value.index)
            case Symbol():
                return Argument(offset=value.offset, size=value.size)
            case Constant(bits, width):
                return Argument(place=self.places.constant(bits, width))
        return Argument()

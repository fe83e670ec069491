"""The compiled program: routines of blocks of steps, bound to places in a register file.

Nothing here refers to syntax or to typed modules, except sites, which name the instruction for
messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..diagnostics import Span
from ..isa.order import WEAK, MemoryOrder
from ..isa.protocol import BoolArray, Registers, Step, Unknown
from ..resolve.typed import SharedLayout
from ..targets import Target
from .definedness import CheckedSteps, Origins

__all__ = [
    "Block",
    "Counted",
    "Gate",
    "InstructionSite",
    "Link",
    "Program",
    "Routine",
    "Transfer",
]

#: Ends a block: moves the group (or parts of it) on; returns the group that goes on at once.
Transfer = Callable[[Registers, Any], Any]
#: Which lanes may pass a collective now: None for all.
Gate = Callable[[Registers, Any], "BoolArray | None"]


@dataclass(frozen=True, slots=True)
class InstructionSite:
    """An instruction as messages name it."""

    text: str
    span: Span
    routine: str
    #: how it takes part in the memory model
    order: MemoryOrder = WEAK

    @property
    def line(self) -> int:
        return self.span.line

    @property
    def column(self) -> int:
        return self.span.column


@dataclass(frozen=True, slots=True)
class Link:
    """Addresses that the loader chose, and what else of a launch the code depends on."""

    variables: Mapping[str, int]
    functions: Mapping[str, int]
    parameters: int
    shared: SharedLayout
    target: Target
    wmma_rule: str = "ptx"
    #: a check listens (:class:`ptxsim.machine.watch.Watch`)
    watched: bool = False
    #: undefined bits are followed
    initcheck: bool = False
    #: blocks count the lanes whose guards are true
    counts_guards: bool = False
    #: tags of instructions by line and column of the opcode; None: no execution is counted
    tags: Mapping[tuple[int, int], str] | None = None


@dataclass(frozen=True, slots=True)
class Counted:
    """An instruction whose executions are counted; ``opcode`` is the name of its record."""

    site: InstructionSite
    opcode: str
    #: empty: it has none
    tag: str


@dataclass(slots=True)
class GuardUse:
    """A guarded instruction: how many lanes have executed it with a true guard."""

    line: int
    #: it is no branch, which has done its work when the guard is false as well
    works: bool
    lanes: int = 0


class Block:
    """A stretch of steps that all lanes of a group run together."""

    def __init__(self, index: int) -> None:
        self.index = index
        #: place in the routine's order; lanes at a lower one go first
        self.order = 0
        self.steps: tuple[Step, ...] = ()
        #: the same with what they do to undefined bits, where those are followed
        self.checked: CheckedSteps | None = None
        self.transfer: Transfer | None = None
        self.gate: Gate | None = None
        self.site: InstructionSite | None = None
        #: the finding class when lanes wait at the gate for ever
        self.waits_as = ""
        #: lanes that wait at blocks of the same name may meet
        self.meets = ""
        self.successors: tuple[int, ...] = ()
        #: register places to carry along when lanes arrive here
        self.live: tuple[int, ...] = ()
        #: PTX instructions in the block
        self.length = 0
        #: their lines
        self.lines: tuple[int, ...] = ()
        #: its guarded instructions, where those are counted
        self.guarded: list[GuardUse] = []
        #: the block can be part of a wait loop: it reads what other threads may write
        self.waits = False
        self.executions = 0
        self.lane_executions = 0


@dataclass
class Routine:
    """An entry or a function."""

    name: str
    index: int
    blocks: list[Block]
    #: initial register file
    template: Registers
    frame_size: int
    #: offset and size of the result and the parameters within the frame, or register places
    results: tuple[tuple[int, int] | int, ...]
    parameters: tuple[tuple[int, int] | int, ...]
    #: the registers that may be read before they are written: all of their bits are undefined
    undefined: Mapping[int, Unknown] = field(default_factory=dict)


@dataclass
class Program:
    """All that a launch of one entry runs."""

    entry: Routine
    routines: Mapping[str, Routine]
    #: function address -> routine
    by_address: Mapping[int, Routine | str]
    shared: SharedLayout
    #: where undefined bits come from, in a program that is compiled to look at them
    origins: Origins | None = None
    #: instructions that tell each execution (:meth:`ptxsim.machine.watch.Watch.executed`)
    counted: tuple[Counted, ...] = ()

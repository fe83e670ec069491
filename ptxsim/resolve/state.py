"""What the parts of a resolve run share, and the function that is being read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ..diagnostics import Diagnostic, Source, Span
from ..targets import Target
from .declarations import Fault
from .scope import Log, Scope
from .typed import Register, Symbol, TypedFunction, TypedInstruction

__all__ = ["MAX_REGISTERS", "Area", "Body", "ModuleState"]

#: Registers of one function, and names of one range, beyond which a declaration is refused.
MAX_REGISTERS = 1 << 17


@dataclass
class Area:
    """A memory area that is laid out front to back."""

    size: int = 0
    align: int = 1

    def place(self, symbol: Symbol) -> Symbol:
        """The symbol at the next offset that its alignment allows."""
        offset = -(-self.size // symbol.align) * symbol.align
        self.size = offset + symbol.size
        self.align = max(self.align, symbol.align)
        return replace(symbol, offset=offset)


@dataclass
class Body:
    """State while the body of one function is read."""

    registers: list[Register] = field(default_factory=list)
    frame: Area = field(default_factory=Area)
    #: the name of the entry, empty for a function, whose shared variables all entries share
    entry: str = ""
    shared: Area = field(default_factory=Area)
    instructions: list[TypedInstruction] = field(default_factory=list)
    unsupported: dict[int, Diagnostic] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)


class ModuleState:
    """What is known of a module so far: its header, its names and what is wrong with it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.log = Log()
        self.unsupported: list[Diagnostic] = []
        self.version = (1, 0)
        self.version_span = self.target_span = Span(1, 1, 1, 1)
        self.target = Target(20)
        self.target_options: tuple[str, ...] = ()
        self.address_size = 32
        self.top = Scope()
        self.functions: dict[str, TypedFunction] = {}
        #: the linkage of functions where they were declared first
        self.linkage: dict[str, tuple[str, ...]] = {}
        self.aliases: dict[str, str] = {}
        self.variables: dict[str, Symbol] = {}
        #: the shared variables of the module and of functions
        self.shared = Area()
        self.dynamic_align = 16

    @property
    def independent_textures(self) -> bool:
        """Whether textures and samplers are independent of each other."""
        return "texmode_independent" in self.target_options

    def report(self, faults: Iterable[Fault]) -> None:
        """Log what is wrong with a declaration."""
        for f in faults:
            self.log.error(f.code, f.message, f.span, f.help)

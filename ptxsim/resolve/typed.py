"""What resolve makes of a module: symbols bound, forms chosen, operands typed.

Spans are kept; syntax nodes are not.  Everything here is data, so that any later stage, a dump or
a test can read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ..diagnostics import Diagnostic, Source, Span
from ..isa.record import Form, Instruction, Mods
from ..targets import Target
from ..types import ScalarType

__all__ = [
    "AddressOperand",
    "CallOperand",
    "Constant",
    "FunctionRef",
    "LabelRef",
    "LabelTable",
    "Negated",
    "OperandValue",
    "PredicatePair",
    "PrototypeRef",
    "Register",
    "RegisterGroup",
    "Relocation",
    "SharedLayout",
    "Sink",
    "SpecialRegister",
    "Symbol",
    "SymbolAddress",
    "TypedFunction",
    "TypedInstruction",
    "TypedModule",
]


@dataclass(frozen=True, slots=True)
class Register:
    """A declared register; ``index`` counts within its function."""

    name: str
    index: int
    type: ScalarType


@dataclass(frozen=True, slots=True)
class Constant:
    """An immediate as the bit pattern of its operand's type."""

    bits: int
    width: int


@dataclass(frozen=True, slots=True)
class SpecialRegister:
    """``%tid.x`` and its kin; ``name`` has no percent sign, ``width`` is 32 or 64 bits."""

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Relocation:
    """A place in an initialiser that holds an address: ``size`` bytes at ``offset``.

    ``shift`` is the bit position of the byte mask forms (``0xff00(sym)``: bits 8 to 15).
    """

    offset: int
    size: int
    symbol: str
    addend: int = 0
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable in an addressable state space.

    ``offset`` is its place in the shared, local or parameter area that resolve laid out; global
    and constant variables are placed when the module is loaded.  A shared variable of an entry
    names it in ``entry``: the shared areas of entries overlay each other.  ``size`` is 0 for an
    array of unknown extent (dynamic shared memory).
    """

    name: str
    space: str
    type: ScalarType
    size: int
    align: int
    offset: int = 0
    data: bytes | None = None
    relocations: tuple[Relocation, ...] = ()
    external: bool = False
    pointer: bool = False
    #: ``input`` or ``result`` of the function itself; other .param variables are those of calls
    role: str = ""
    count: int | None = None
    #: an array of arrays
    nested: bool = False
    entry: str = ""
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SymbolAddress:
    """The address of a variable plus ``offset`` bytes, used as a value."""

    symbol: Symbol
    offset: int = 0


@dataclass(frozen=True, slots=True)
class FunctionRef:
    """A function or entry by name, used as a value or a callee."""

    name: str
    entry: bool = False


@dataclass(frozen=True, slots=True)
class Sink:
    """The bit bucket ``_``."""


@dataclass(frozen=True, slots=True)
class RegisterGroup:
    """``{a, b, ...}``."""

    elements: tuple[Register | Constant | Sink | SpecialRegister, ...]


@dataclass(frozen=True, slots=True)
class PredicatePair:
    """``d|p``: either part may be the sink; the first may be a group."""

    first: Register | RegisterGroup | Sink
    second: Register | Sink


@dataclass(frozen=True, slots=True)
class Negated:
    """``!p`` as a source operand."""

    register: Register


@dataclass(frozen=True, slots=True)
class AddressOperand:
    """``[base + offset]``; ``base`` is None for an absolute address.

    ``symbol`` is the variable of ``sym[register]``, whose address is added too.
    """

    base: Register | Symbol | None
    offset: int = 0
    symbol: Symbol | None = None


@dataclass(frozen=True, slots=True)
class LabelRef:
    """A branch target as an index into the function's instructions."""

    name: str
    index: int


@dataclass(frozen=True, slots=True)
class LabelTable:
    """The targets of a ``.branchtargets`` list."""

    name: str
    targets: tuple[LabelRef, ...]


@dataclass(frozen=True, slots=True)
class PrototypeRef:
    """A ``.callprototype``: the results and parameters of an indirect callee."""

    name: str
    results: tuple[Symbol | Register, ...]
    parameters: tuple[Symbol | Register, ...]


@dataclass(frozen=True, slots=True)
class CallOperand:
    """All operands of a call.

    ``callee`` is a function name or, for an indirect call, a register; ``results`` and
    ``arguments`` are registers, constants or parameter-space variables.  ``prototype`` is what an
    indirect call names last: name, results and parameters.
    """

    callee: FunctionRef | Register
    results: tuple[Register | Symbol | Sink, ...]
    arguments: tuple[Register | Symbol | Constant, ...]
    candidates: tuple[str, ...] | None = None
    prototype: PrototypeRef | None = None


OperandValue: TypeAlias = (
    "Register | Constant | SpecialRegister | SymbolAddress | FunctionRef | Sink | RegisterGroup"
    " | PredicatePair | Negated | AddressOperand | LabelRef | LabelTable | CallOperand"
)


@dataclass(frozen=True, slots=True)
class TypedInstruction:
    """An instruction with its record, form, modifiers and operands by name."""

    record: Instruction
    form: Form
    mods: Mods
    operands: Mapping[str, OperandValue]
    guard: Register | None
    guard_negated: bool
    text: str
    span: Span
    opcode_span: Span


@dataclass(frozen=True, slots=True)
class TypedFunction:
    """An entry or function whose body, if any, is a flat list of instructions."""

    name: str
    kind: str
    results: tuple[Symbol | Register, ...]
    parameters: tuple[Symbol | Register, ...]
    registers: tuple[Register, ...]
    instructions: tuple[TypedInstruction, ...] | None
    labels: Mapping[str, int]
    frame_size: int
    parameter_size: int
    directives: Mapping[str, tuple[int, ...]]
    span: Span
    #: bytes and alignment of the shared area that belongs to this entry alone
    shared_size: int = 0
    shared_align: int = 1
    #: Instructions of this body that cannot run, by the index they would have had.
    unsupported: Mapping[int, Diagnostic] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """Offsets in a CTA's shared memory: the entry's own area, its end, the dynamic part."""

    entry: int
    static_end: int
    dynamic: int

    def size(self, dynamic: int) -> int:
        """Bytes of a CTA that asks for ``dynamic`` bytes of dynamic shared memory."""
        return self.dynamic + dynamic if dynamic else self.static_end


def _aligned(offset: int, align: int) -> int:
    return -(-offset // align) * align


@dataclass(frozen=True, slots=True)
class TypedModule:
    """A whole module after resolve."""

    source: Source
    version: tuple[int, int]
    target: Target
    address_size: int
    functions: Mapping[str, TypedFunction]
    aliases: Mapping[str, str]
    variables: Mapping[str, Symbol]
    #: bytes of shared variables of the module and of functions
    shared_size: int
    #: alignment of dynamic shared memory
    dynamic_align: int
    diagnostics: tuple[Diagnostic, ...]

    def shared_layout(self, entry: str) -> SharedLayout:
        """Where the shared memory of a CTA that runs ``entry`` begins and ends."""
        own = self.functions[entry]
        start = _aligned(self.shared_size, own.shared_align)
        end = start + own.shared_size
        return SharedLayout(start, end, _aligned(end, self.dynamic_align))

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of the kernels with a body, in text order."""
        return tuple(
            f.name
            for f in self.functions.values()
            if f.kind == "entry" and f.instructions is not None
        )

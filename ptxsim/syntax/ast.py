"""The syntax tree of a PTX module: frozen nodes, each with the span it came from.

Spans do not take part in comparison, so that a printed and re-parsed tree equals the first one.
Names, types and numbers are kept as the text has them; nothing here knows which are legal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from ..diagnostics import Span

__all__ = [
    "NOWHERE",
    "Address",
    "AddressSizeDirective",
    "AliasDirective",
    "Binary",
    "Block",
    "BranchTargets",
    "CallTargets",
    "Cast",
    "Conditional",
    "Expression",
    "FieldInitializer",
    "FileDirective",
    "FloatLiteral",
    "Function",
    "FunctionDirective",
    "Group",
    "Guard",
    "Initializer",
    "InitializerList",
    "Instruction",
    "IntLiteral",
    "Item",
    "Label",
    "LocDirective",
    "MaskedSymbol",
    "Member",
    "Module",
    "Name",
    "Operand",
    "Pair",
    "Parameter",
    "PragmaDirective",
    "Prototype",
    "Section",
    "SectionData",
    "Statement",
    "Subscript",
    "TargetDirective",
    "Unary",
    "Variable",
    "VariableDeclaration",
    "Vector",
    "VersionDirective",
]


#: The span of nodes that were made and not parsed.
NOWHERE = Span(0, 0, 0, 0)


def _span() -> Span:
    return field(compare=False, repr=False, default=NOWHERE)


# --- expressions and operands ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Name:
    """A register, variable, label, function, special register, or the sink ``_``."""

    text: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Member:
    """A component ``base.x``; ``field`` is one of x y z w r g b a."""

    base: str
    field: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class IntLiteral:
    """An integer constant; ``text`` is the spelling, ``unsigned`` is true for a suffix ``U``."""

    value: int
    unsigned: bool
    text: str = field(compare=False, default="")
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class FloatLiteral:
    """A float constant: ``kind`` is ``decimal`` (f64 bits), ``0f`` (f32 bits) or ``0d`` (f64)."""

    bits: int
    kind: str
    text: str = field(compare=False, default="")
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Unary:
    """``+ - ~ !`` before an expression; ``!p`` as an operand is a negated predicate."""

    operator: str
    operand: Expression
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Binary:
    """``left operator right``; ``symbol + 8`` is one too."""

    operator: str
    left: Expression
    right: Expression
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Conditional:
    """``condition ? yes : no``."""

    condition: Expression
    yes: Expression
    no: Expression
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Cast:
    """``(.s64) operand`` or ``(.u64) operand``; ``type`` has no dot."""

    type: str
    operand: Expression
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class MaskedSymbol:
    """An initialiser ``generic(sym)`` (``function == "generic"``) or ``0xff(sym)``."""

    function: str
    symbol: str
    span: Span = _span()


Expression: TypeAlias = (
    "Name | Member | IntLiteral | FloatLiteral | Unary | Binary | Conditional | Cast | MaskedSymbol"
)


@dataclass(frozen=True, slots=True)
class Vector:
    """``{a, b, ...}``."""

    elements: tuple[Operand, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Address:
    """``[a]``, ``[a+8]``, or several parts as in ``[tensor, {x, y}]``."""

    parts: tuple[Operand, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Subscript:
    """``sym[index]`` as an operand, the same address as ``[sym+index]``."""

    symbol: str
    index: Expression
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Pair:
    """Two destinations ``d|p``."""

    first: Operand
    second: Operand
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Group:
    """A parenthesised list ``(a, b)``: return values or arguments of a call."""

    elements: tuple[Operand, ...]
    span: Span = _span()


Operand: TypeAlias = "Expression | Vector | Address | Subscript | Pair | Group"


# --- statements -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Guard:
    """``@p`` or ``@!p``; the span begins at the ``@``."""

    register: str
    negated: bool
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Instruction:
    """``@guard mnemonic.modifiers operands;``: ``opcode`` is the dotted text split at the dots.

    ``opcode[0]`` is the mnemonic; ``::`` stays inside its part (``shared::cta``).
    ``opcode_span`` covers the dotted text, ``span`` the whole statement.
    """

    opcode: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Guard | None
    span: Span = _span()
    opcode_span: Span = _span()

    @property
    def mnemonic(self) -> str:
        return self.opcode[0]


@dataclass(frozen=True, slots=True)
class Label:
    """``name:``."""

    name: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Block:
    """A nested scope ``{ ... }``."""

    body: tuple[Statement, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class BranchTargets:
    """``name: .branchtargets L0, L1;``; a target ``L<3>`` is kept as written."""

    name: str
    targets: tuple[str, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class CallTargets:
    """``name: .calltargets f, g;``."""

    name: str
    targets: tuple[str, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class LocDirective:
    """``.loc file line column [, function_name label[+offset], inlined_at file line column]``."""

    file: int
    line: int
    column: int
    function: str | None = None
    function_offset: int = 0
    inlined_at: tuple[int, int, int] | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class PragmaDirective:
    """``.pragma "text", ...;``."""

    texts: tuple[str, ...]
    span: Span = _span()


# --- declarations ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InitializerList:
    """``{ ... }`` in an initialiser, possibly nested."""

    elements: tuple[Initializer, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class FieldInitializer:
    """``field = value`` in the initialiser of a texture, sampler or surface reference."""

    field: str
    value: Expression
    span: Span = _span()


Initializer: TypeAlias = "Expression | InitializerList | FieldInitializer"


@dataclass(frozen=True, slots=True)
class Variable:
    """One name of a declaration.

    ``count`` is N of ``name<N>``; ``extents`` the array sizes, None for an empty one.
    """

    name: str
    count: int | None = None
    extents: tuple[Expression | None, ...] = ()
    initializer: Initializer | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class VariableDeclaration:
    """``[linkage] .space [.attribute(...)] [.align N] [.vN] .type names;``.

    ``space`` and ``type`` have no dot; ``linkage`` lists ``extern visible weak common`` without
    dots, in order; ``attributes`` are texts such as ``managed`` or ``unified(1, 2)``.
    """

    space: str
    type: str
    variables: tuple[Variable, ...]
    linkage: tuple[str, ...] = ()
    align: Expression | None = None
    vector: int | None = None
    attributes: tuple[str, ...] = ()
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Parameter:
    """One formal parameter of an entry, a function or a prototype.

    ``space`` is ``param`` or ``reg``; ``pointer`` is true for ``.ptr``, with ``pointer_space``
    and ``pointer_align`` when given. The name is ``_`` where a prototype leaves it out;
    ``count`` is N of ``name<N>``.
    """

    name: str
    space: str
    type: str
    align: Expression | None = None
    vector: int | None = None
    extents: tuple[Expression | None, ...] = ()
    pointer: bool = False
    pointer_space: str | None = None
    pointer_align: Expression | None = None
    attributes: tuple[str, ...] = ()
    span: Span = _span()
    count: int | None = None


@dataclass(frozen=True, slots=True)
class FunctionDirective:
    """A directive between the head of a function and its body.

    ``.maxntid 16, 16`` is ``("maxntid", (16, 16))``; ``.pragma "s"`` keeps its texts.
    """

    name: str
    values: tuple[Expression | str, ...] = ()
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Function:
    """``.entry`` (``kind == "entry"``) or ``.func``; ``body`` is None for a mere declaration.

    ``span`` ends with the name; ``end_span`` is the closing brace, or the ``;`` of a declaration.
    """

    kind: str
    name: str
    results: tuple[Parameter, ...]
    parameters: tuple[Parameter, ...]
    linkage: tuple[str, ...]
    directives: tuple[FunctionDirective, ...]
    body: tuple[Statement, ...] | None
    span: Span = _span()
    name_span: Span = _span()
    attributes: tuple[str, ...] = ()
    end_span: Span = _span()


@dataclass(frozen=True, slots=True)
class Prototype:
    """``label: .callprototype (results) _ (parameters) directives;``."""

    label: str
    name: str
    results: tuple[Parameter, ...]
    parameters: tuple[Parameter, ...]
    directives: tuple[FunctionDirective, ...] = ()
    span: Span = _span()


# --- module level ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VersionDirective:
    """``.version major.minor``."""

    major: int
    minor: int
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class TargetDirective:
    """``.target sm_80, debug``."""

    targets: tuple[str, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class AddressSizeDirective:
    """``.address_size 64``."""

    size: int
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class FileDirective:
    """``.file 1 "path"[, timestamp[, size]]``."""

    index: int
    path: str
    timestamp: int | None = None
    size: int | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class AliasDirective:
    """``.alias name, target;``."""

    name: str
    target: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class SectionData:
    """``.b8 v, v, ...`` inside a section."""

    type: str
    values: tuple[Expression, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Section:
    """``.section .name { ... }``, debug information kept as written."""

    name: str
    items: tuple[Label | SectionData, ...]
    span: Span = _span()


Statement: TypeAlias = (
    "Instruction | Label | Block | VariableDeclaration | BranchTargets | CallTargets | Prototype"
    " | LocDirective | PragmaDirective"
)

Item: TypeAlias = (
    "VersionDirective | TargetDirective | AddressSizeDirective | VariableDeclaration | Function"
    " | AliasDirective | FileDirective | PragmaDirective | Section | LocDirective | Prototype"
)


@dataclass(frozen=True, slots=True)
class Module:
    """A whole translation unit."""

    items: tuple[Item, ...]
    span: Span = _span()

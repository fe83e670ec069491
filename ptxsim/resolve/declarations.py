"""What declarations and directives may not say, as the assembler has it (measured).

PTX ISA 9.1, Variables; Directives.  Each function yields faults; nothing here knows of scopes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..diagnostics import Span
from ..isa.special_registers import is_special_register
from ..syntax import ast
from ..targets import Floor, Target, lacking
from ..types import SCALAR_TYPES, ScalarType
from .constants import ConstantError, IntValue, evaluate
from .typed import Register, Symbol, TypedFunction

__all__ = [
    "MAX_CONST",
    "MAX_SHARED",
    "Fault",
    "described",
    "directive_faults",
    "header_faults",
    "parameter_faults",
    "parameter_limit",
    "prototype_fault",
    "prototype_faults",
    "reserved_faults",
    "section_faults",
    "type_faults",
    "variable_faults",
]

#: Bytes of a module's .const variables, and of the static shared memory of an entry on any target.
MAX_CONST, MAX_SHARED = 65536, 49152


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a declaration, and where."""

    message: str
    span: Span
    code: str = "PTX109"
    help: str | None = None


# --- the module -----------------------------------------------------------------------------------


def header_faults(
    module: ast.Module, options: Sequence[str], target: Target, address_size: int, span: Span
) -> Iterator[Fault]:
    """The options of ``.target`` and ``.address_size`` against the target and the module."""
    if "debug" in options and not any(isinstance(i, ast.Section) for i in module.items):
        yield Fault("the module has no debug sections, which the option 'debug' asks for", span)
    if "map_f64_to_f32" in options and target.number >= 20:
        yield Fault(f"'map_f64_to_f32' ends before sm_20, the target is {target}", span)
    if {"texmode_unified", "texmode_independent"} <= set(options):
        yield Fault("'texmode_unified' and 'texmode_independent' exclude each other", span)
    for item in module.items:
        if isinstance(item, ast.AddressSizeDirective) and item.size == 32 and target.number >= 90:
            yield Fault(
                f"32-bit addresses end before sm_90, the target is {target}", item.span, "PTX107"
            )


_WIDTHS = {"b8": 8, "b16": 16}


def section_faults(section: ast.Section) -> Iterator[Fault]:
    """Values of a section that its type does not hold."""
    for item in section.items:
        if not isinstance(item, ast.SectionData) or item.type not in _WIDTHS:
            continue
        bits = _WIDTHS[item.type]
        for node in item.values:
            try:
                value = evaluate(node)
            except ConstantError:
                continue  # a label or the name of a section
            if isinstance(value, IntValue) and not -(1 << (bits - 1)) <= value.value < 1 << bits:
                yield Fault(f"{value.value} does not fit .{item.type}", node.span, "PTX108")


# --- names and types ------------------------------------------------------------------------------


def reserved_faults(name: str, span: Span) -> Iterator[Fault]:
    """A name of the module: those of special registers are taken, on any target (measured).

    Inside a function a declaration hides the special register.
    """
    if is_special_register(name):
        yield Fault(f"'{name}' is a special register, declared in every module", span, "PTX102")


_WIDE = Floor.parse("8.3+sm_70")


def type_faults(
    type_: str, array: bool, version: tuple[int, int], target: Target, span: Span
) -> Iterator[Fault]:
    """The floor of a type; that of .b128 is one of scalars, not of arrays (measured)."""
    needs = _WIDE.unmet(version, target) if type_ == "b128" and not array else None
    if needs:
        yield Fault(lacking(".b128", needs, version, target), span, "PTX107")


def _vector_faults(type_: str, width: int | None, span: Span) -> Iterator[Fault]:
    """A vector of predicates, or of too many bits."""
    if width and type_ == "pred":
        yield Fault(_NO_PREDICATE, span)
    if width and type_ in SCALAR_TYPES and SCALAR_TYPES[type_].bits * width > 128:
        yield Fault(f"a vector has at most 128 bits, .v{width} .{type_} has more", span)


_NO_PREDICATE = ".pred variables are scalar and live in .reg only"

# --- variables ------------------------------------------------------------------------------------


def variable_faults(
    d: ast.VariableDeclaration, v: ast.Variable, type_: ScalarType, inside: bool, independent: bool
) -> Iterator[Fault]:
    """A variable of a module or, if ``inside``, of a function."""
    if inside and d.linkage:
        yield Fault(f".{d.linkage[0]} is for variables of the module", d.span)
    if "common" in d.linkage and d.space != "global":
        yield Fault(f".common variables are .global, not .{d.space}", d.span)
    if "extern" in d.linkage and v.initializer is not None:
        yield Fault(f"'{v.name}' is .extern: its value is set where it is defined", v.span)
    if d.space == "param" and d.vector:
        yield Fault("a .param variable is no vector; declare an array of bytes", d.span)
    if d.space == "param" and type_.name == "f16x2" and not v.extents:
        yield Fault(_NO_PAIR, d.span, help="declare it .b32")
    if d.space == "tex":
        yield Fault(".tex ended with PTX ISA 1.5", d.span, help="declare a .global .texref")
    if type_.kind == "p" and d.space != "reg":
        yield Fault(_NO_PREDICATE, d.span)
    yield from _vector_faults(d.type, d.vector, d.span)
    if d.space == "reg" and (v.extents or v.initializer is not None):
        what = "an array" if v.extents else "an initial value"
        yield Fault(
            f"a register has no such thing as {what}",
            v.span,
            help=f"'{v.name}<N>' declares N registers" if v.extents else None,
        )
    if "extern" not in d.linkage:
        yield from _no_elements(v)
    if type_.kind == "o":
        yield from _opaque_faults(d, v, type_, inside, independent)
    for attribute in d.attributes:
        name = attribute.partition("(")[0]
        if name not in ("managed", "unified"):
            yield Fault(f"unknown attribute '.{name}'", d.span, help="'.managed' or '.unified'")
        elif name == "managed" and d.space != "global":
            yield Fault(f".managed variables are .global, not .{d.space}", d.span)


def _no_elements(v: ast.Variable) -> Iterator[Fault]:
    for extent in v.extents:
        if isinstance(extent, ast.IntLiteral) and extent.value == 0:
            yield Fault(f"'{v.name}' has no elements", extent.span)


def _opaque_faults(
    d: ast.VariableDeclaration, v: ast.Variable, type_: ScalarType, inside: bool, independent: bool
) -> Iterator[Fault]:
    """Textures, samplers and surfaces (PTX ISA, Texture, Sampler and Surface Types)."""
    if inside or d.space != "global":
        yield Fault(f"{type_} variables are .global variables of the module", d.span)
    if type_.name == "samplerref" and not independent:
        yield Fault(_NO_SAMPLER, d.span)
    if v.initializer is None or v.extents:
        return
    fields = v.initializer.elements if isinstance(v.initializer, ast.InitializerList) else ()
    if not fields or not all(isinstance(f, ast.FieldInitializer) for f in fields):
        yield Fault(f"a {type_} is initialised by named fields", v.initializer.span, "PTX108")


_NO_PAIR = ".f16x2 variables do not lie in .param"
_NO_SAMPLER = ".samplerref needs the .target option 'texmode_independent'"

# --- functions ------------------------------------------------------------------------------------


def parameter_limit(version: tuple[int, int], target: Target) -> int:
    """Bytes of the parameters of an entry (PTX ISA, Kernel Function Parameters; measured)."""
    if version < (1, 5):
        return 256
    return 32764 if version >= (8, 1) and target.number >= 70 else 4352


def _result_faults(results: Sequence[ast.Parameter]) -> Iterator[Fault]:
    """The formal results of a function or a prototype."""
    variables = [p for p in results if p.space == "param"]
    if variables and len(results) > 1:
        yield Fault("of several results each is a register", variables[0].span)


def _extent_faults(p: ast.Parameter, last: bool, kind: str) -> Iterator[Fault]:
    """An array of an open extent, which only the ``last`` parameter of a function may be."""
    if any(_is_empty(e) for e in p.extents) and (kind == "entry" or not last):
        which = "of an .entry has" if kind == "entry" else "before the last has"
        yield Fault(f"a parameter {which} a known number of elements", p.span)


def _formal_faults(p: ast.Parameter, vectors: bool, pointers: bool) -> Iterator[Fault]:
    """A formal parameter or result, where variables may be ``vectors`` or marked ``.ptr``."""
    if p.space not in ("param", "reg"):
        yield Fault(f"a parameter is in .param or .reg, not in .{p.space}", p.span)
    if p.space == "param" and p.vector and not vectors:
        yield Fault("a .param variable is no vector; pass an array of bytes", p.span)
    yield from _vector_faults(p.type, p.vector, p.span)
    if len(p.extents) > 1:
        yield Fault("a parameter is an array of one dimension", p.span)
    if p.pointer and not pointers:
        yield Fault(".ptr describes parameters of an .entry", p.span)
    align = p.pointer_align
    if isinstance(align, ast.IntLiteral) and (align.value < 1 or align.value & align.value - 1):
        yield Fault(f".align {align.value} is not a power of two", align.span)
    if p.pointer_space not in _POINTED:
        yield Fault(f"a parameter cannot point into .{p.pointer_space}", p.span)


def prototype_faults(
    node: ast.Prototype, values: Directives, version: tuple[int, int], target: Target
) -> Iterator[Fault]:
    """What a ``.callprototype`` may not say."""
    yield from _result_faults(node.results)
    for p in node.results + node.parameters:
        yield from _formal_faults(p, vectors=True, pointers=True)
        last = bool(node.parameters) and p is node.parameters[-1]
        yield from _extent_faults(p, last, "prototype")
    yield from _callee_faults(node, values, version, target)


def parameter_faults(node: ast.Function, independent: bool) -> Iterator[Fault]:
    """The formal parameters of a function or entry."""
    yield from _result_faults(node.results)
    vectors = node.kind == "func" and node.body is None
    for p in node.results + node.parameters:
        yield from _formal_faults(p, vectors, node.kind == "entry")
        if p.space == "reg" and node.kind == "entry":
            yield Fault("the parameters of an .entry are .param variables", p.span)
        if p.space == "param" and p.type == "pred":
            yield Fault(_NO_PREDICATE, p.span)
        if p.space == "param" and p.type == "f16x2" and not p.extents:
            yield Fault(_NO_PAIR, p.span, help="declare it .b32")
        unnamed = [q for q in node.parameters if q.name == "_"]
        if p.name == "_" and (node.kind == "func" or p is not unnamed[0]):
            yield Fault("only one parameter of an .entry may be '_'", p.span)
        if p.type in ("texref", "samplerref", "surfref") and node.kind == "func":
            yield Fault(f".{p.type} parameters are those of an .entry", p.span)
        if p.type == "samplerref" and not independent:
            yield Fault(_NO_SAMPLER, p.span)
        last = bool(node.parameters) and p is node.parameters[-1]
        yield from _extent_faults(p, last, node.kind)


#: The state spaces that a pointer parameter may be said to point into.
_POINTED = (None, "const", "global", "local", "shared")


def _is_empty(extent: ast.Expression | None) -> bool:
    return extent is None or (isinstance(extent, ast.IntLiteral) and extent.value == 0)


#: The values of directives by their names.
Directives = Mapping[str, tuple[int, ...]]

_POSITIVE = ("maxntid", "reqntid", "maxnreg", "minnctapersm")
_EXCLUSIVE = (("reqntid", "maxntid"), ("reqnctapercluster", "maxclusterrank"))
_FLOORS = {
    **dict.fromkeys(
        ("reqnctapercluster", "explicitcluster", "maxclusterrank"), Floor.parse("7.8+sm_90")
    ),
    "noreturn": Floor.parse("6.4+sm_30"),
    "abi_preserve": Floor.parse("9.0+sm_80"),
    "abi_preserve_control": Floor.parse("9.0+sm_80"),
}

#: The control registers that a function may be told to preserve (measured).
_MAX_PRESERVED_CONTROL = 11


def _callee_faults(
    node: ast.Function | ast.Prototype,
    values: Directives,
    version: tuple[int, int],
    target: Target,
) -> Iterator[Fault]:
    """The directives that a function and a prototype share, and the floors of all."""
    seen: set[str] = set()
    for d in node.directives:
        if d.name in ("noreturn", "abi_preserve", "abi_preserve_control") and d.name in seen:
            yield Fault(f".{d.name} is given twice", d.span)
        seen.add(d.name)
        if d.name == "noreturn" and node.results:
            yield Fault("a function with a result returns", d.span)
        if d.name == "pragma" and not (isinstance(node, ast.Function) and node.kind == "entry"):
            yield Fault("only the head of an .entry has a .pragma", d.span, "PTX006")
        if d.name.startswith("abi_") and not isinstance(d.values[0], ast.IntLiteral):
            yield Fault(f".{d.name} takes a number", d.span)
        if d.name == "abi_preserve_control" and values[d.name][0] > _MAX_PRESERVED_CONTROL:
            yield Fault(f"a function preserves at most {_MAX_PRESERVED_CONTROL} of these", d.span)
        needs = _FLOORS[d.name].unmet(version, target) if d.name in _FLOORS else None
        if needs:
            yield Fault(lacking(f".{d.name}", needs, version, target), d.span, "PTX107")


def directive_faults(
    node: ast.Function, values: Directives, version: tuple[int, int], target: Target
) -> Iterator[Fault]:
    """The directives of an entry or function (PTX ISA, Performance-Tuning Directives)."""
    yield from _callee_faults(node, values, version, target)
    for d in node.directives:
        if d.name in _POSITIVE and 0 in values[d.name]:
            yield Fault(f".{d.name} is above zero", d.span)
        if d.name == "maxnctapersm":
            yield Fault(
                ".maxnctapersm ended with PTX ISA 2.1", d.span, help="use .minnctapersm instead"
            )
        for pair in _EXCLUSIVE:
            if d.name == pair[0] and pair[1] in values:
                yield Fault(f".{pair[0]} and .{pair[1]} exclude each other", d.span)
        if d.name == "blocksareclusters" and not {"reqntid", "reqnctapercluster"} <= set(values):
            yield Fault(".blocksareclusters needs .reqntid and .reqnctapercluster", d.span)


def prototype_fault(old: TypedFunction, new: TypedFunction) -> str | None:
    """What differs between two declarations of one function, or None."""
    if old.kind != new.kind:
        return f"it is declared as .{old.kind} before"
    if ("noreturn" in old.directives) != ("noreturn" in new.directives):
        where = "where it is declared first" if "noreturn" in old.directives else "here"
        return f"it is .noreturn only {where}"
    for what, a, b in (
        ("results", old.results, new.results),
        ("parameters", old.parameters, new.parameters),
    ):
        if len(a) != len(b):
            return f"it has {len(a)} {what} where it is declared first, {len(b)} here"
        for x, y in zip(a, b, strict=True):
            if _shape(x) != _shape(y):
                return f"'{y.name}' is {described(y)}, but {described(x)} where declared first"
    return None


def _shape(p: Symbol | Register) -> tuple[object, ...]:
    if isinstance(p, Register):
        return "reg", p.type.name
    return p.space, p.type.name, p.count, p.align


def described(p: Symbol | Register) -> str:
    """A formal or actual parameter as it is declared."""
    if isinstance(p, Register):
        return f".reg {p.type}"
    extent = "" if p.count is None else f"[{p.count}]"
    return f".param .align {p.align} {p.type}{extent}"

"""A typed module as text, for ``ptxsim dump --stage=module``."""

from __future__ import annotations

from .typed import (
    AddressOperand,
    CallOperand,
    Constant,
    FunctionRef,
    LabelRef,
    LabelTable,
    Negated,
    PredicatePair,
    Register,
    RegisterGroup,
    Sink,
    SpecialRegister,
    Symbol,
    SymbolAddress,
    TypedFunction,
    TypedModule,
)

__all__ = ["dump_module", "operand_text"]


def operand_text(value: object) -> str:
    """An operand with what resolve knows of it."""
    match value:
        case Register(name, _, type_):
            return f"{name}:{type_.name}"
        case Negated(register):
            return f"!{register.name}:pred"
        case Constant(bits, width):
            return f"{bits:#x}:b{width}"
        case SpecialRegister(name, width):
            return f"%{name}:b{width}"
        case SymbolAddress(symbol, offset):
            return f"&{symbol.name}+{offset} ({symbol.space})"
        case AddressOperand(base, offset):
            name = "" if base is None else base.name
            return f"[{name}+{offset}]"
        case RegisterGroup(elements):
            return "{" + ", ".join(operand_text(e) for e in elements) + "}"
        case PredicatePair(first, second):
            return f"{operand_text(first)}|{operand_text(second)}"
        case LabelRef(name, index):
            return f"{name} -> {index}"
        case LabelTable(name, targets):
            return f"{name}: " + ", ".join(operand_text(t) for t in targets)
        case FunctionRef(name):
            return f"{name}()"
        case Sink():
            return "_"
        case Symbol(name):
            return name
        case CallOperand(callee, results, arguments):
            give = ", ".join(operand_text(a) for a in arguments)
            take = ", ".join(operand_text(r) for r in results)
            return f"({take}) {operand_text(callee)} ({give})"
    return repr(value)


def _symbol(s: Symbol) -> str:
    init = f", {len(s.data)} bytes of data" if s.data is not None else ""
    return f"  .{s.space} {s.name}: .{s.type.name}, {s.size} bytes, align {s.align}{init}"


def _function(f: TypedFunction) -> list[str]:
    lines = [f"{f.kind} {f.name}: {len(f.registers)} registers, {f.frame_size} bytes of frame"]
    for p in (*f.results, *f.parameters):
        if isinstance(p, Symbol):
            lines.append(f"  parameter {p.name}: .{p.type.name} at {p.offset}, {p.size} bytes")
        else:
            lines.append(f"  parameter {p.name}: .{p.type.name} in a register")
    names = {index: name.split("@")[0] for name, index in f.labels.items()}
    for at, i in enumerate(f.instructions or ()):
        if at in names:
            lines.append(f" {names[at]}:")
        guard = f"@{'!' if i.guard_negated else ''}{i.guard.name} " if i.guard else ""
        operands = ", ".join(f"{n}={operand_text(v)}" for n, v in i.operands.items())
        lines.append(f"  {at:4} line {i.span.line:<5} {guard}{i.text} {operands}")
    return lines


def dump_module(module: TypedModule) -> str:
    """The whole module."""
    major, minor = module.version
    lines = [
        f"PTX ISA {major}.{minor}, target {module.target}, {module.address_size}-bit addresses,"
        f" {module.shared_size} bytes of static shared memory"
    ]
    lines += [_symbol(s) for s in module.variables.values()]
    for f in module.functions.values():
        lines += _function(f)
    return "\n".join(lines) + "\n"

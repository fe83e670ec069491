"""Which loads read memory that the kernel cannot write, so that no race with them is possible.

A flow-insensitive walk over the entry: every register gets the parameters and variables that its
value may be computed from.  Addresses that are loaded from memory may point anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...resolve.typed import (
    AddressOperand,
    CallOperand,
    Negated,
    PredicatePair,
    Register,
    RegisterGroup,
    Symbol,
    SymbolAddress,
    TypedFunction,
    TypedInstruction,
)

__all__ = ["Place", "Provenance", "provenance"]

#: Line and column of an instruction.
Place = tuple[int, int]
#: The root of an address that may be any.
ANYWHERE = "?"
#: The value has bits that were loaded from memory: an index, or part of an address.
LOADED = "#"
#: What can put an address together from parts.
_PACKING = ("or", "shl", "shf", "prmt", "bfi", "lop3")
_READERS = ("ld", "ldu", "ldmatrix", "wmma.load", "prefetch", "prefetchu", "cp.async", "isspacep",
            "cvta", "applypriority", "createpolicy", "mov")  # fmt: skip


@dataclass(slots=True)
class Provenance:
    """The roots of what is loaded from, by instruction, and the roots of all that is written to."""

    loads: dict[Place, frozenset[str]] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)

    def unwritten(self, same: Mapping[str, str]) -> frozenset[Place]:
        """The loads that need no watching; ``same`` names the first argument of each array."""
        written = {same.get(root, root) for root in self.written}
        if ANYWHERE in written:
            return frozenset()
        return frozenset(
            place
            for place, roots in self.loads.items()
            if roots and not {same.get(r, r) for r in roots} & {*written, ANYWHERE}
        )


def provenance(function: TypedFunction) -> Provenance:
    """Walk an entry until nothing changes."""
    out = Provenance()
    code = function.instructions or ()
    if any(isinstance(v, CallOperand) for i in code for v in i.operands.values()):
        out.written.add(ANYWHERE)
        return out
    pointers = {
        p.name for p in function.parameters if isinstance(p, Symbol) and (p.size == 8 or p.count)
    }
    roots: dict[int, frozenset[str]] = {}
    changed = True
    while changed:
        changed = False
        for i in code:
            new = _result(i, roots, pointers)
            for register in _written(i):
                old = roots.get(register, frozenset())
                if not new <= old:
                    roots[register] = old | new
                    changed = True
    for i in code:
        _accesses(i, roots, pointers, out)
    return out


def _accesses(
    i: TypedInstruction, roots: Mapping[int, frozenset[str]], pointers: set[str], out: Provenance
) -> None:
    if i.mods.space.startswith(("shared", "local", "param", "const")):
        return
    for name, value in i.operands.items():
        if not isinstance(value, AddressOperand):
            continue
        found = _address(value, roots, pointers) - {LOADED}
        if i.record.name in _READERS:
            if not (i.record.name == "cp.async" and name == "d"):
                out.loads[i.span.line, i.span.column] = found
        else:
            out.written |= found or {ANYWHERE}


def _address(
    a: AddressOperand, roots: Mapping[int, frozenset[str]], pointers: set[str]
) -> frozenset[str]:
    out: frozenset[str] = frozenset()
    for part in (a.base, a.symbol):
        if isinstance(part, Register):
            out |= roots.get(part.index, frozenset())
        elif isinstance(part, Symbol):
            out |= {part.name}
    return out


def _result(
    i: TypedInstruction, roots: Mapping[int, frozenset[str]], pointers: set[str]
) -> frozenset[str]:
    """The roots of what an instruction writes to registers."""
    loads = [v for v in i.operands.values() if isinstance(v, AddressOperand)]
    if loads:
        if i.mods.space.startswith("param") and isinstance(loads[0].base, Symbol):
            return frozenset((loads[0].base.name,)) & pointers
        wide = any(r.type.bits >= 64 for v in _destinations(i) for r in _registers(v))
        return frozenset((ANYWHERE if wide else LOADED,))
    out: frozenset[str] = frozenset()
    for name, value in i.operands.items():
        if isinstance(value, SymbolAddress):
            out |= {value.symbol.name}
        elif name not in _written_names(i):
            for register in _registers(value):
                out |= roots.get(register.index, frozenset())
    if LOADED in out and _packs(i):
        out |= {ANYWHERE}
    return out


def _packs(i: TypedInstruction) -> bool:
    """Whether the halves of an address may come together here."""
    grouped = any(isinstance(v, RegisterGroup) for v in i.operands.values())
    wide = any(r.type.bits >= 64 for v in _destinations(i) for r in _registers(v))
    return wide and (grouped or i.record.name in _PACKING)


def _written_names(i: TypedInstruction) -> set[str]:
    return {s.name for s in i.form.operands if s.written}


def _destinations(i: TypedInstruction) -> Iterable[object]:
    return [i.operands[n] for n in _written_names(i) if n in i.operands]


def _written(i: TypedInstruction) -> list[int]:
    return [r.index for v in _destinations(i) for r in _registers(v)]


def _registers(value: object) -> list[Register]:
    match value:
        case Register():
            return [value]
        case Negated(register):
            return [register]
        case RegisterGroup(elements):
            return [e for e in elements if isinstance(e, Register)]
        case PredicatePair(first, second):
            return [r for r in (first, second) if isinstance(r, Register)]
    return []

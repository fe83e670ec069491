"""Which registers hold a value on every way to an instruction."""

from __future__ import annotations

from ..program.binder import registers_of
from ..resolve.typed import (
    CallOperand,
    LabelRef,
    LabelTable,
    Register,
    TypedFunction,
    TypedInstruction,
)

__all__ = ["assigned_before"]


def assigned_before(function: TypedFunction) -> list[frozenset[int]]:
    """For each instruction, and for the end: the registers that were surely written before it.

    An instruction under a guard is no sure write.  What cannot be reached has all registers.
    """
    code = function.instructions or ()
    every = frozenset(r.index for r in function.registers)
    state: list[frozenset[int]] = [every] * (len(code) + 1)
    given = (*function.parameters, *function.results)
    state[0] = frozenset(r.index for r in given if isinstance(r, Register))
    work = [0]
    reached = {0}
    while work:
        at = work.pop()
        if at == len(code):
            continue
        after = state[at] | _written(code[at])
        i = code[at]
        following = []
        for value in i.operands.values():
            if isinstance(value, LabelRef):
                following.append(value.index)
            elif isinstance(value, LabelTable):
                following += [t.index for t in value.targets]
        if not i.record.control or i.guard is not None or i.record.falls_through(i.mods):
            following.append(at + 1)
        for target in following:
            merged = state[target] & after
            if merged != state[target] or target not in reached:
                state[target] = merged
                reached.add(target)
                work.append(target)
    return state


def _written(i: TypedInstruction) -> frozenset[int]:
    if i.guard is not None:
        return frozenset()
    found: list[int] = []
    for spec in i.form.operands:
        value = i.operands.get(spec.name)
        if isinstance(value, CallOperand):
            found += [r.index for r in value.results if isinstance(r, Register)]
        elif spec.written:
            found += registers_of(value)
    return frozenset(found)

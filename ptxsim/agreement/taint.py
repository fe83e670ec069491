"""Which instructions a value passes through on its way from some of them: a flow of data.

Registers are followed along the control flow, calls from arguments to results.  Through memory the
pairs of store and load that a launch has shown are followed, which is exact for that launch.  What
is not followed: addresses (which value is loaded, not what it is) and branches (which instructions
run).  A value that a comparison of approximate numbers has chosen is therefore no approximation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..isa.record import Tolerance
from ..program import reachable_functions
from ..program.binder import registers_of
from ..resolve.typed import (
    AddressOperand,
    CallOperand,
    FunctionRef,
    LabelRef,
    LabelTable,
    Register,
    SpecialRegister,
    Symbol,
    SymbolAddress,
    TypedFunction,
    TypedInstruction,
    TypedModule,
)
from .writers import Spot

__all__ = ["Source", "approximate_sources", "outside_sources", "spot_of", "spread"]

State = dict[int, int]

#: Special registers that say the same on every machine.
_SAME = ("tid", "ntid", "ctaid", "nctaid", "laneid", "lanemask", "cluster", "ncluster", "is_")


def spot_of(i: TypedInstruction) -> Spot:
    """The place of an instruction, as sites name it."""
    return i.span.line, i.span.column


@dataclass(frozen=True, slots=True)
class Source:
    """An approximate instruction that can be reached, and its tolerance."""

    spot: Spot
    text: str
    tolerance: Tolerance


def approximate_sources(module: TypedModule, entry: str) -> list[Source]:
    """The approximate instructions of an entry and of what it may call, by their forms."""
    found = []
    for i in _instructions(module, entry):
        tolerance = i.record.tolerance(i.mods)
        if tolerance is not None:
            found.append(Source(spot_of(i), i.text, tolerance))
    return found


def outside_sources(
    module: TypedModule, entry: str, pointers: frozenset[str], orders: bool = True
) -> set[Spot]:
    """Instructions whose results two correct machines need not share.

    Addresses, clocks and places of threads, and (with ``orders``) what depends on the order of
    threads: atomics and strong loads.  ``pointers`` are the parameters that hold addresses.
    """
    return {
        spot_of(i) for i in _instructions(module, entry)
        if _is_outside(i, pointers) or (orders and i.record.waits(i.mods))
    }  # fmt: skip


def _is_outside(i: TypedInstruction, pointers: frozenset[str]) -> bool:
    if i.record.name in ("cvta", "mapa", "activemask", "getctarank"):
        return True
    for spec in i.form.operands:
        value = i.operands.get(spec.name)
        if isinstance(value, SymbolAddress | FunctionRef | Symbol):
            return True
        if isinstance(value, SpecialRegister) and not value.name.startswith(_SAME):
            return True
        if isinstance(value, AddressOperand) and isinstance(value.base, Symbol):
            if value.base.space == "param" and value.base.name in pointers:
                return True
    return False


def _instructions(module: TypedModule, entry: str) -> Iterable[TypedInstruction]:
    for name in reachable_functions(module, entry):
        yield from module.functions[name].instructions or ()


def spread(
    module: TypedModule,
    entry: str,
    sources: Mapping[Spot, int],
    fed: Iterable[tuple[Spot, Spot]],
) -> dict[Spot, int]:
    """For each instruction the sources, as bits, that reach what it writes."""
    return _Spread(module, entry, sources, fed).run()


class _Spread:
    def __init__(
        self,
        module: TypedModule,
        entry: str,
        sources: Mapping[Spot, int],
        fed: Iterable[tuple[Spot, Spot]],
    ) -> None:
        self.module = module
        names = reachable_functions(module, entry)
        self.functions = {
            n: module.functions[n] for n in names if module.functions[n].instructions is not None
        }
        self.sources = sources
        self.writers: dict[Spot, list[Spot]] = defaultdict(list)
        for writer, reader in fed:
            self.writers[reader].append(writer)
        self.masks: dict[Spot, int] = {}
        self.leaders = {n: _leaders(f) for n, f in self.functions.items()}
        #: registers where a block begins
        self.states: dict[tuple[str, int], State] = {(n, 0): {} for n in self.functions}
        self.results: dict[tuple[str, int], int] = {}
        self.changed = True

    def run(self) -> dict[Spot, int]:
        while self.changed:
            self.changed = False
            for name, function in self.functions.items():
                for leader in sorted(self.leaders[name]):
                    if (name, leader) in self.states:
                        self._block(name, function, leader)
        return self.masks

    def _block(self, name: str, function: TypedFunction, leader: int) -> None:
        state = dict(self.states[name, leader])
        code = function.instructions or ()
        at = leader
        while at < len(code):
            i = code[at]
            self._step(i, state)
            at += 1
            if i.record.control:
                for target in _targets(i):
                    self._merge(name, target, state)
                if not (i.guard is not None or i.record.falls_through(i.mods)):
                    self._return(name, function, state)
                    return
            if at in self.leaders[name]:
                self._merge(name, at, state)
                return
        self._return(name, function, state)

    def _merge(self, name: str, at: int, state: State) -> None:
        new = (name, at) not in self.states
        old = self.states.setdefault((name, at), {})
        for register, mask in state.items():
            if mask & ~old.get(register, 0):
                old[register] = old.get(register, 0) | mask
                new = True
        self.changed |= new

    def _return(self, name: str, function: TypedFunction, state: State) -> None:
        for position, r in enumerate(function.results):
            if isinstance(r, Register):
                self._add_result(name, position, state.get(r.index, 0))

    def _add_result(self, name: str, position: int, mask: int) -> None:
        old = self.results.get((name, position), 0)
        if mask & ~old:
            self.results[name, position] = old | mask
            self.changed = True

    def _step(self, i: TypedInstruction, state: State) -> None:
        spot = spot_of(i)
        mask = self.sources.get(spot, 0)
        for writer in self.writers.get(spot, ()):
            mask |= self.masks.get(writer, 0)
        written: list[int] = []
        for spec in i.form.operands:
            value = i.operands.get(spec.name)
            if isinstance(value, CallOperand):
                mask |= self._call(value, state, mask)
                continue
            if spec.kind == "address":
                continue
            registers = registers_of(value)
            if spec.read:
                for register in registers:
                    mask |= state.get(register, 0)
            if spec.written:
                written += registers
        for register in written:
            old = state.get(register, 0) if i.guard is not None else 0
            state[register] = old | mask
        if mask & ~self.masks.get(spot, 0):
            self.masks[spot] = self.masks.get(spot, 0) | mask
            self.changed = True

    def _call(self, call: CallOperand, state: State, mask: int) -> int:
        """Arguments go to the callees' parameters, their results come back."""
        if isinstance(call.callee, FunctionRef):
            names = [self.module.aliases.get(call.callee.name, call.callee.name)]
        else:
            names = list(call.candidates or self.functions)
        out = 0
        for name in names:
            callee = self.functions.get(name)
            if callee is None:
                continue
            given = {
                p.index: state.get(a.index, 0)
                for p, a in zip(callee.parameters, call.arguments, strict=False)
                if isinstance(p, Register) and isinstance(a, Register)
            }
            self._merge(name, 0, given)
            for position, result in enumerate(call.results):
                got = self.results.get((name, position), 0)
                out |= got
                if isinstance(result, Register):
                    state[result.index] = state.get(result.index, 0) | got | mask
        return out


def _targets(i: TypedInstruction) -> Iterable[int]:
    for value in i.operands.values():
        if isinstance(value, LabelRef):
            yield value.index
        elif isinstance(value, LabelTable):
            yield from (t.index for t in value.targets)


def _leaders(function: TypedFunction) -> set[int]:
    code = function.instructions or ()
    found = {0}
    for at, i in enumerate(code):
        if i.record.control:
            found.add(at + 1)
        found.update(_targets(i))
    return {at for at in found if at <= len(code)}

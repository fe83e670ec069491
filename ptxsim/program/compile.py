"""From a typed module to a program: blocks, bound steps, live registers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from ..isa.protocol import Registers, Step, Unknown
from ..resolve.typed import (
    CallOperand,
    FunctionRef,
    LabelRef,
    LabelTable,
    Register,
    Symbol,
    TypedFunction,
    TypedInstruction,
    TypedModule,
)
from .binder import InstructionBinder, Places, registers_of
from .control import ControlBinder
from .definedness import (
    CheckedSteps,
    Origins,
    bind_definedness,
    bind_guard,
    bind_receipt,
    bind_repeated,
)
from .flow import Node, block_order, liveness, maybe_undefined
from .model import Block, Counted, GuardUse, InstructionSite, Link, Program, Routine
from .tags import bind_tags, tagged_registers

__all__ = ["compile_program", "reachable_functions"]


def reachable_functions(module: TypedModule, entry: str) -> list[str]:
    """The entry and every function that may be called from it, by name, entry first.

    The address of a function counts as a use, in code and in the initialiser of a variable.
    """
    seen = [entry]
    names = set(module.functions)
    tables = {
        r.symbol for v in module.variables.values() for r in v.relocations if r.symbol in names
    }
    indirect = False
    for name in seen:
        function = module.functions[name]
        for i in function.instructions or ():
            for value in i.operands.values():
                found: Iterable[str] = ()
                if isinstance(value, FunctionRef):
                    found = (value.name,)
                elif isinstance(value, CallOperand):
                    if isinstance(value.callee, FunctionRef):
                        found = (value.callee.name,)
                    else:
                        indirect = True
                        found = value.candidates or ()
                for callee in found:
                    callee = module.aliases.get(callee, callee)
                    if callee in names and callee not in seen:
                        seen.append(callee)
        if indirect and name == seen[-1]:
            seen.extend(t for t in sorted(tables) if t not in seen)
    return seen


def compile_program(module: TypedModule, entry: str, link: Link) -> Program:
    """The program of one entry."""
    routines: dict[str, Routine] = {}
    counted: list[Counted] = []
    origins = Origins() if link.initcheck else None
    by_address: dict[int, Routine | str] = {}
    for index, name in enumerate(reachable_functions(module, entry)):
        function = module.functions[name]
        if function.instructions is None:
            if name in link.functions:
                by_address[link.functions[name]] = name
            continue
        routine = _Compiler(function, link, index, origins, counted).run()
        routines[name] = routine
        if name in link.functions and function.kind == "func":  # only the host calls entries
            by_address[link.functions[name]] = routine
    for alias, target in module.aliases.items():
        if target in routines:
            routines[alias] = routines[target]
    return Program(routines[entry], routines, by_address, link.shared, origins, tuple(counted))


class _Compiler:
    def __init__(
        self,
        function: TypedFunction,
        link: Link,
        index: int,
        origins: Origins | None,
        counted: list[Counted],
    ) -> None:
        #: tags of instructions, None if none is counted; and those that are
        self.tags = link.tags
        self.counted = counted
        self.function = function
        self.origins = origins
        self.index = index
        self.places = Places(function, link)
        assert function.instructions is not None
        self.code = function.instructions
        self.blocks: list[Block] = []
        self.blocks_at: dict[int, Block] = {}
        #: per block: the range of instructions, and whether it is the test of a guard
        self.ranges: list[tuple[int, int, bool]] = []

    def run(self) -> Routine:
        self._cut()
        nodes = [self._nodes(*self.ranges[b.index]) for b in self.blocks]
        succ = [self._successors(b) for b in self.blocks]
        defined = 0
        for p in self.function.parameters:
            if isinstance(p, Register):
                defined |= 1 << p.index
        results = [r.index for r in self.function.results if isinstance(r, Register)]
        for register in sorted(tagged_registers(self.code)):
            self.places.tag(register)
        for register in results:
            for b, block_nodes in enumerate(nodes):
                if not succ[b]:
                    block_nodes.append(Node(1 << register, 0, 0))
        undefined = {}
        if self.origins is not None:
            undefined = self._undefined(nodes, succ, defined, self.origins)
        for block in self.blocks:
            self._bind(block)
        live = liveness(nodes, succ)
        order = block_order(succ)
        for position, b in enumerate(order):
            self.blocks[b].order = position
        tags = self.places.tags
        for block in self.blocks:
            registers = _bits(live[block.index])
            block.live = (*registers, *(tags[r] for r in registers if r in tags))
            if block.checked is not None:
                block.checked.live = frozenset(registers)
            block.successors = tuple(succ[block.index])
        return Routine(
            self.function.name,
            self.index,
            self.blocks,
            self.places.template,
            -(-self.function.frame_size // 16) * 16,
            tuple(_slot(p) for p in self.function.results),
            tuple(_slot(p) for p in self.function.parameters),
            undefined,
        )

    def _undefined(
        self, nodes: list[list[Node]], succ: list[list[int]], defined: int, origins: Origins
    ) -> dict[int, Unknown]:
        every = (1 << len(self.function.registers)) - 1
        names = {r.index: r.name for r in self.function.registers}
        return {
            register: (
                ~self.places.template[register],
                np.array([origins.register(names[register], self.function.name)], np.int32),
            )
            for register in _bits(maybe_undefined(nodes, succ, defined, every))
        }

    # --- blocks ---------------------------------------------------------------------------------

    def _cut(self) -> None:
        """Cut the body into blocks: at labels, behind control, before collectives.

        A guarded control or collective instruction gets a block of its own behind a test of the
        guard, so that it itself is always executed by all lanes that come to it.
        """
        code = self.code
        starts = {0}
        for i in code:
            for value in i.operands.values():
                if isinstance(value, LabelRef):
                    starts.add(value.index)
                elif isinstance(value, LabelTable):
                    starts.update(t.index for t in value.targets)
        at = 0
        while at <= len(code):
            begin = at
            while at < len(code):
                i = code[at]
                apart = i.record.collective or (i.record.control and _tests_guard(i))
                if at > begin and (at in starts or apart):
                    break
                if _tests_guard(i) and at == begin:
                    self._add(begin, begin, True)
                at += 1
                if i.record.control or _tests_guard(i):
                    break
            self._add(begin, at, False)
            if at >= len(code):
                break
        if (self.code and self.code[-1].record.control) or any(s == len(code) for s in starts):
            if len(code) not in self.blocks_at:
                self._add(len(code), len(code), False)

    def _add(self, begin: int, end: int, test: bool) -> None:
        block = Block(len(self.blocks))
        self.blocks.append(block)
        self.ranges.append((begin, end, test))
        self.blocks_at.setdefault(begin, block)

    def _following(self, block: Block) -> Block | None:
        index = block.index + 1
        return self.blocks[index] if index < len(self.blocks) else None

    def _last(self, block: Block) -> TypedInstruction | None:
        begin, end, test = self.ranges[block.index]
        if test or begin == end:
            return None
        last = self.code[end - 1]
        return last if last.record.control else None

    def _successors(self, block: Block) -> list[int]:
        _, _, test = self.ranges[block.index]
        following = self._following(block)
        if test:
            assert following is not None
            skip = self._after(following)
            return [following.index] + ([skip.index] if skip else [])
        last = self._last(block)
        if last is None:
            return [following.index] if following else []
        out = []
        for value in last.operands.values():
            if isinstance(value, LabelRef):
                out.append(self.blocks_at[value.index].index)
            elif isinstance(value, LabelTable):
                out.extend(self.blocks_at[t.index].index for t in value.targets)
        falls = last.record.falls_through(last.mods) or (
            last.guard is not None and not _tests_guard(last)
        )
        if falls and following is not None:
            out.append(following.index)
        return list(dict.fromkeys(out))

    def _after(self, block: Block) -> Block | None:
        """The block behind a guarded instruction that stands at the start of ``block``."""
        begin, _, _ = self.ranges[block.index]
        return self.blocks_at.get(begin + 1) if begin + 1 <= len(self.code) else None

    # --- binding --------------------------------------------------------------------------------

    def _nodes(self, begin: int, end: int, test: bool) -> list[Node]:
        if test:
            guard = self.code[begin].guard
            assert guard is not None
            return [Node(1 << guard.index, 0, 0)]
        return [_node(i) for i in self.code[begin:end]]

    def _bind(self, block: Block) -> None:
        begin, end, test = self.ranges[block.index]
        if test:
            self._bind_test(block, begin)
            return
        last = self._last(block)
        steps = _Steps(self.origins is not None)
        stop = end - 1 if last is not None else end
        for at in range(begin, stop):
            i = self.code[at]
            binder = InstructionBinder(self.places, _unguarded(i) if _tests_guard(i) else i)
            step = i.record.bind(binder)
            self._count_guard(block, binder)
            if i.record.collective and at == begin:
                block.gate = i.record.gate(binder)
                block.site = binder.site
                block.waits_as = i.record.waits_as
                block.meets = i.record.meets
            self._bind_tags(binder, i)
            self._count(binder)
            steps.add(binder, step)
            block.waits = block.waits or i.record.waits(i.mods)
        block.length = end - begin
        block.lines = tuple(i.span.line for i in self.code[begin:end])
        following = self._following(block)
        if last is None:
            if following is None:
                block.transfer = _finish
            else:
                block.transfer = _jump(following)
        else:
            i = _unguarded(last) if _tests_guard(last) else last
            control = ControlBinder(self.places, i, following, self.blocks_at)
            block.transfer = last.record.transfer(control)
            if last.record.collective:
                block.gate = last.record.gate(control)
                block.waits_as = last.record.waits_as
            self._bind_tags(control, i)
            self._count(control)
            self._count_guard(block, control)
            steps.add(control, last.record.promise(control))
            block.site = block.site or control.site
            block.waits = block.waits or last.record.waits(last.mods)
        block.steps, block.checked = steps.finish()
        if block.site is None and end > begin:
            first = self.code[begin]
            block.site = InstructionSite(first.text, first.span, self.function.name)

    def _count_guard(self, block: Block, binder: InstructionBinder) -> None:
        """Count the lanes whose guards are true, if that is wanted."""
        i = binder.instruction
        if i.guard is None or not self.places.link.counts_guards:
            return
        use = GuardUse(i.span.line, not i.record.control)
        block.guarded.append(use)
        guard = binder.guard()

        def count(r: Registers, g: Any) -> None:
            mask = g.mask(guard(r))
            use.lanes += g.n if mask is None else int(np.count_nonzero(mask))

        binder.before.insert(0, count)

    def _bind_tags(self, binder: InstructionBinder, i: TypedInstruction) -> None:
        if self.places.tags:
            bind_tags(binder, set(_bits(_node(i).writes)))

    def _count(self, b: InstructionBinder) -> None:
        """Let an instruction that is counted tell each execution, before it changes its guard."""
        i = b.instruction
        if self.tags is None:
            return
        tag = self.tags.get((i.span.line, i.span.column), "")
        if not tag and not i.record.counts_guard:
            return
        guard, site = b.guard(), b.site
        self.counted.append(Counted(site, i.record.name, tag))

        def count(r: Registers, g: Any) -> None:
            g.watch.executed(g, g.mask(guard(r)), site)

        b.before.append(count)

    def _bind_test(self, block: Block, at: int) -> None:
        i = self.code[at]
        guard = i.guard
        assert guard is not None
        following = self._following(block)
        assert following is not None
        skip = self._after(following)
        place = guard.index
        negated = i.guard_negated
        block.site = InstructionSite(i.text, i.span, self.function.name)
        binder = InstructionBinder(self.places, i)
        steps = _Steps(self.origins is not None)
        steps.observe_guard(binder, i.record.promise(binder))
        block.steps, block.checked = steps.finish()

        def transfer(r: Registers, g: Any) -> Any:
            p = r[place]
            return g.branch(~p if negated else p, following, skip)

        block.transfer = transfer


class _Steps:
    """Collects the steps of a block, also with what they do to undefined bits."""

    def __init__(self, checked: bool) -> None:
        self.checked = checked
        self.steps: list[Step] = []
        self.tracked: list[Step] = []
        self._stretches: list[tuple[tuple[Step, ...], int]] = []
        self._cut = 0

    def add(self, b: InstructionBinder, step: Step | None) -> None:
        """An instruction; one whose transfer acts behind the steps may have none."""
        record = b.instruction.record
        middle = [] if step is None else [step]
        if not self.checked:
            self.steps += [*b.before, *middle, *b.after]
            return
        before = list(b.before)
        effects, results = bind_definedness(b)
        effects = [*b.before[len(before) :], *effects]
        twice = bind_repeated(b)
        after = [*b.after, *([bind_receipt(b)] if record.receives else ()), *twice]
        self.steps += [*before, *middle, *after]
        self.tracked += [*before, *effects, *middle, *results, *after]
        if record.receives or record.loses or twice:
            self._stretch()

    def observe_guard(self, b: InstructionBinder, promise: Step | None) -> None:
        """The test of a guard, whose branch acts behind the steps."""
        if self.checked:
            self.tracked.append(bind_guard(b))
        if promise is not None:
            self.steps.append(promise)
            self.tracked.append(promise)

    def _stretch(self) -> None:
        self._stretches.append((tuple(self.steps[self._cut :]), len(self.tracked)))
        self._cut = len(self.steps)

    def finish(self) -> tuple[tuple[Step, ...], CheckedSteps | None]:
        """The plain steps, and both kinds."""
        if not self.checked:
            return tuple(self.steps), None
        self._stretch()
        return tuple(self.steps), CheckedSteps(self._stretches, tuple(self.tracked))


def _tests_guard(i: TypedInstruction) -> bool:
    """Whether the guard becomes a branch around the instruction."""
    if i.guard is None:
        return False
    return i.record.collective or (i.record.control and not i.record.reads_guard)


def _unguarded(i: TypedInstruction) -> TypedInstruction:
    return replace(i, guard=None, guard_negated=False)


def _node(i: TypedInstruction) -> Node:
    reads = writes = 0
    for spec in i.form.operands:
        value = i.operands.get(spec.name)
        if isinstance(value, CallOperand):
            for a in (*value.arguments, value.callee):
                for register in registers_of(a):
                    reads |= 1 << register
            for result in value.results:
                for register in registers_of(result):
                    writes |= 1 << register
            continue
        for register in registers_of(value):
            if spec.kind != "value" or spec.read:
                reads |= 1 << register
            if spec.written:
                writes |= 1 << register
    kills = writes
    if i.guard is not None and not _tests_guard(i):
        reads |= (1 << i.guard.index) | writes
        kills = 0
    return Node(reads, writes, kills)


def _bits(mask: int) -> list[int]:
    out = []
    while mask:
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return out


def _slot(p: Symbol | Register) -> tuple[int, int] | int:
    return p.index if isinstance(p, Register) else (p.offset, p.size)


def _jump(block: Block) -> Any:
    return lambda r, g: g.jump(block)


def _finish(r: Registers, g: Any) -> Any:
    return g.ret()

"""From an instruction's syntax to a record, a form, modifiers and typed operands."""

from __future__ import annotations

from collections.abc import Iterable

from ..diagnostics import Diagnostic, did_you_mean
from ..isa.record import STAND_IN, Form, FormMismatch, Instruction, Mods, registry
from ..isa.special_registers import SPECIAL_REGISTERS
from ..syntax import ast
from ..targets import Floor, lacking
from ..types import SCALAR_TYPES
from .advice import forms_note, modifier_span, nearest_spelling
from .calls import bind_call
from .operands import OperandList
from .rules import broken_rule, operand_floors
from .scope import Scope
from .selectors import detach_selectors, has_selectors
from .state import Body, ModuleState
from .typed import (
    AddressOperand,
    Constant,
    LabelRef,
    OperandValue,
    Register,
    Symbol,
    SymbolAddress,
    TypedInstruction,
)
from .values import Mismatch

__all__ = ["Instructions"]

#: What an instruction needs and has not: the words that bring it, and the version or target.
_Need = tuple[str, str]

#: Operands that break no rule, and operands that need no version or target, if there are no others.
_REGISTERS_ALONE = {Register}
_NEED_NOTHING = {Register, Constant, AddressOperand, SymbolAddress, LabelRef}


class _Candidate:
    """A form that the modifiers of an opcode fit, and what follows from these alone."""

    __slots__ = ("form", "m", "need", "operands", "record", "selectors")

    def __init__(self, record: Instruction, form: Form, m: Mods, need: _Need | None) -> None:
        self.record = record
        self.form = form
        self.m = m
        self.need = need
        self.operands = OperandList(record, form, m)
        self.selectors = has_selectors(form)


class Instructions:
    """Types the instructions of one module."""

    def __init__(self, state: ModuleState) -> None:
        self.state = state
        self.log = state.log
        #: by opcode: the instructions of a module are much alike
        self.known: dict[tuple[str, ...], tuple[str, list[_Candidate]]] = {}

    def add(self, node: ast.Instruction, scope: Scope, body: Body) -> None:
        """Type an instruction and append it to the body, or log why it is not legal."""
        guard = self._guard(node.guard, scope, body) if node.guard is not None else None
        known = self.known.get(node.opcode) or self._candidates(node)
        if known is None:
            return
        text, candidates = known
        chosen = self._choose(node, candidates, scope)
        if chosen is None:
            return
        candidate, operands = chosen
        record, form = candidate.record, candidate.form
        if form.unsupported:
            self._not_modelled(node, body, form.unsupported)
            return
        if guard is not None and _is_of_a_call(operands.get("a")):
            self.log.error(
                "PTX111", f"'{record.name}' of a parameter of a call cannot have a guard", node.span
            )
            return
        negated = node.guard is not None and node.guard.negated
        body.instructions.append(
            TypedInstruction(
                record, form, candidate.m, operands, guard, negated, text, node.span,
                node.opcode_span,
            )
        )  # fmt: skip

    def _guard(self, guard: ast.Guard, scope: Scope, body: Body) -> Register | None:
        entity = scope.find(guard.register)
        if isinstance(entity, Register) and entity.type.kind == "p":
            return entity
        special = SPECIAL_REGISTERS.get(guard.register[1:])
        if entity is None and special and special[0] == 1 and guard.register[0] == "%":
            return self._special_guard(guard, scope, body)
        if entity is None:
            scope.unknown(guard.register, guard.span, self.log, "predicate")
        else:
            self.log.error(
                "PTX106", f"the guard '{guard.register}' is not a .pred register", guard.span
            )
        return None

    def _special_guard(self, guard: ast.Guard, scope: Scope, body: Body) -> Register:
        """``@%is_explicit_cluster``: a register that no text names, set by a mov before."""
        copy = Register(f"@{guard.register}", len(body.registers), SCALAR_TYPES["pred"])
        body.registers.append(copy)
        inner = Scope(scope)
        inner.names[copy.name] = copy
        operands = (ast.Name(copy.name, guard.span), ast.Name(guard.register, guard.span))
        move = ast.Instruction(("mov", "pred"), operands, None, guard.span, guard.span)
        self.add(move, inner, body)
        return copy

    def _candidates(self, node: ast.Instruction) -> tuple[str, list[_Candidate]] | None:
        """The text and all forms that the modifiers fit, or a message for the best miss."""
        opcode = registry.canonical(node.opcode)
        name = registry.mnemonic(opcode)
        if name is None:
            names = registry.names()
            family = any(known.startswith(f"{opcode[0]}.") for known in names)
            text = ".".join(opcode[: 1 + family])
            self.log.error(
                "PTX103", f"unknown instruction '{text}'", node.opcode_span,
                did_you_mean(".".join(opcode[:2]), names) or did_you_mean(opcode[0], names),
            )  # fmt: skip
            return None
        words = opcode[name.count(".") + 1 :]
        text = ".".join(node.opcode)
        found: list[_Candidate] = []
        best: FormMismatch | None = None
        for record in registry[name]:
            for form in record.forms:
                try:
                    m = form.match(words)
                except FormMismatch as error:
                    if best is None or error.score > best.score:
                        best = error
                    continue
                reason = record.check(m)
                if reason is None:
                    found.append(self._candidate(record, form, m, text))
                else:
                    best = FormMismatch(reason, 99)
        if not found:
            assert best is not None
            spelling = nearest_spelling(name, words)
            self.log.error(
                "PTX104",
                f"{name}: {best}",
                modifier_span(self.state.source, node.opcode_span, node.opcode, best.word),
                f"did you mean '{spelling}'?" if spelling else None,
                notes=((forms_note(name, words, None), None),),
            )
            return None
        self.known[node.opcode] = known = text, found
        return known

    def _candidate(self, record: Instruction, form: Form, m: Mods, text: str) -> _Candidate:
        checks = [(f"'{record.name}'", record.floor)]
        combined = record.combined_floor(m)
        for word, floor in (*form.floors(m), *((combined,) if combined is not None else ())):
            checks.append((f"'{record.name}' with .{word}" if word else f"'{text}'", floor))
        return _Candidate(record, form, m, self._need(checks))

    def _need(self, floors: Iterable[tuple[str, Floor]]) -> _Need | None:
        """The first floor that version and target do not meet: what has it, and what it needs."""
        for what, floor in floors:
            needs = floor.unmet(self.state.version, self.state.target)
            if needs:
                return what, needs
        return None

    def _choose(
        self, node: ast.Instruction, candidates: list[_Candidate], scope: Scope
    ) -> tuple[_Candidate, dict[str, OperandValue]] | None:
        """The first candidate that takes the operands, or a message for the best miss."""
        best: Mismatch | None = None
        need: _Need | None = None
        for candidate in candidates:
            plain = node
            if candidate.selectors:
                candidate, plain = self._detached(candidate, node)
            try:
                operands = self._bound(candidate, plain, scope)
            except Mismatch as error:
                if best is None or error.score > best.score:
                    best = error
                continue
            kinds = {v.__class__ for v in operands.values()}
            needed = candidate.need
            if needed is None and (candidate.operands.has_parts or not kinds <= _NEED_NOTHING):
                needed = self._operand_need(candidate, operands)
            if needed is not None:
                need = need or needed
                continue
            if kinds <= _REGISTERS_ALONE:
                return candidate, operands
            broken = broken_rule(candidate.record, candidate.form, candidate.m, operands)
            if broken is None:
                return candidate, operands
            at = candidate.operands.span_of(broken[0], plain)
            best = Mismatch(f"operand {broken[0]}: {broken[1]}", at, len(operands))
        if need is not None:
            self._too_low(need, node)
        else:
            assert best is not None
            self._misfit(best, candidates[0], node)
        return None

    def _bound(
        self, candidate: _Candidate, node: ast.Instruction, scope: Scope
    ) -> dict[str, OperandValue]:
        if not candidate.operands.is_call:
            return candidate.operands.bind(node, scope)
        return {"call": bind_call(node, scope, self.state.functions, self.state.aliases)}

    def _detached(
        self, candidate: _Candidate, node: ast.Instruction
    ) -> tuple[_Candidate, ast.Instruction]:
        """The operands without selectors and signs, which are modifiers of a candidate."""
        m, plain = detach_selectors(candidate.form, candidate.m, node)
        if plain is node:
            return candidate, node
        return _Candidate(candidate.record, candidate.form, m, candidate.need), plain

    def _operand_need(
        self, candidate: _Candidate, operands: dict[str, OperandValue]
    ) -> _Need | None:
        floors = operand_floors(candidate.form, operands, self.state.independent_textures)
        name = candidate.record.name
        return self._need((f"'{name}' with {what}", floor) for what, floor in floors)

    def _too_low(self, need: _Need, node: ast.Instruction) -> None:
        what, needs = need
        state = self.state
        self.log.error(
            "PTX107",
            lacking(what, needs, state.version, state.target),
            node.opcode_span,
            notes=(
                ("the target is set here", state.target_span),
                ("the PTX ISA version is set here", state.version_span),
            ),
        )

    def _misfit(self, best: Mismatch, candidate: _Candidate, node: ast.Instruction) -> None:
        text = best.message
        if best.code not in ("PTX105", "PTX111"):
            text = f"{'.'.join(node.opcode)}: {text}"
        notes = best.notes
        if best.code in ("PTX105", "PTX106"):
            given = [word for word in candidate.m.values() if word]
            notes = ((forms_note(candidate.record.name, given, len(node.operands)), None),)
        self.log.error(best.code, text, best.span, best.help, notes)

    def _not_modelled(self, node: ast.Instruction, body: Body, reason: str) -> None:
        d = Diagnostic("PTX400", reason, node.opcode_span)
        self.state.unsupported.append(d)
        body.unsupported[len(body.instructions)] = d
        record = registry[STAND_IN][0]
        form = record.forms[0]
        body.instructions.append(
            TypedInstruction(
                record, form, Mods({}), {}, None, False, ".".join(node.opcode), node.span,
                node.opcode_span,
            )
        )  # fmt: skip


def _is_of_a_call(address: object) -> bool:
    """Whether an address is that of a parameter or result of a call."""
    if not isinstance(address, AddressOperand) or not isinstance(address.base, Symbol):
        return False
    return address.base.space == "param" and not address.base.role

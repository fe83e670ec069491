"""From an instruction's syntax to a record, a form, modifiers and typed operands."""

from __future__ import annotations

from collections.abc import Iterable

from ..diagnostics import Diagnostic, Span, did_you_mean
from ..isa.record import STAND_IN, Form, FormMismatch, Instruction, Mods, registry
from ..syntax import ast
from ..targets import Floor
from .advice import forms_note, modifier_span, nearest_spelling
from .calls import call_fault
from .operands import Mismatch, bind_operands
from .rules import broken_rule, operand_floors
from .scope import Scope
from .selectors import detach_selectors
from .state import Body, ModuleState
from .typed import CallOperand, Register, TypedInstruction

__all__ = ["Instructions"]


class Instructions:
    """Types the instructions of one module."""

    def __init__(self, state: ModuleState) -> None:
        self.state = state
        self.log = state.log
        self.known: dict[tuple[str, ...], list[tuple[Instruction, Form, Mods]]] = {}

    def add(self, node: ast.Instruction, scope: Scope, body: Body) -> None:
        """Type an instruction and append it to the body, or log why it is not legal."""
        guard: Register | None = None
        if node.guard is not None:
            entity = scope.find(node.guard.register)
            if isinstance(entity, Register) and entity.type.kind == "p":
                guard = entity
            elif entity is None:
                scope.unknown(node.guard.register, node.guard.span, self.log, "predicate")
            else:
                self.log.error(
                    "PTX106", f"the guard '{node.guard.register}' is not a .pred register",
                    node.guard.span,
                )  # fmt: skip
        chosen = self._choose(node, scope, body)
        if chosen is None:
            return
        record, form, m, operands = chosen
        call = operands.get("call")
        if isinstance(call, CallOperand):
            fault = call_fault(call, self.state.functions, self.state.aliases)
            if fault is not None:
                notes = (("declared here", fault[1]),) if fault[1] else ()
                self.log.error("PTX111", fault[0], node.span, notes=notes)
                return
        if guard is not None and body.of_a_call(operands.get("a")):
            self.log.error(
                "PTX111", f"'{record.name}' of a parameter of a call cannot have a guard", node.span
            )
            return
        body.instructions.append(
            TypedInstruction(
                record,
                form,
                m,
                operands,
                guard,
                bool(node.guard and node.guard.negated),
                ".".join(node.opcode),
                node.span,
                node.opcode_span,
            )
        )

    def _candidates(self, node: ast.Instruction) -> list[tuple[Instruction, Form, Mods]] | None:
        """All forms whose modifiers fit, with a message for the best miss if there is none."""
        opcode = node.opcode
        if opcode in self.known:
            return self.known[opcode]
        opcode = registry.canonical(opcode)
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
        found: list[tuple[Instruction, Form, Mods]] = []
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
                    found.append((record, form, m))
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
        self.known[node.opcode] = found
        return found

    def _choose(self, node: ast.Instruction, scope: Scope, body: Body):  # type: ignore[no-untyped-def]
        candidates = self._candidates(node)
        if candidates is None:
            return None
        best: Mismatch | None = None
        floor_problem = None
        for record, form, words in candidates:
            m, plain = detach_selectors(form, words, node)
            try:
                operands = bind_operands(record, form, m, plain, scope)
            except Mismatch as error:
                if best is None or error.score > best.score:
                    best = error
                continue
            problem = self._floor(record, form, m) or self._unmet(
                record, operand_floors(form, operands, self.state.independent_textures)
            )
            if problem is not None:
                floor_problem = floor_problem or problem
                continue
            broken = broken_rule(record, form, m, operands)
            if broken is not None:
                best = Mismatch(f"operand {broken[0]}: {broken[1]}", node.span, len(operands))
                continue
            if form.unsupported:
                return self._not_modelled(node, body, form.unsupported)
            return record, form, m, operands
        if floor_problem is not None:
            what, needs = floor_problem
            self.log.error(
                "PTX107",
                f"{what} needs {needs}; this module has PTX ISA version"
                f" {self.state.version[0]}.{self.state.version[1]} and target {self.state.target}",
                node.opcode_span,
                notes=(
                    ("the target is set here", self.state.target_span),
                    ("the PTX ISA version is set here", self.state.version_span),
                ),
            )
            return None
        assert best is not None
        text = best.message if best.code == "PTX105" else f"{'.'.join(node.opcode)}: {best.message}"
        forms: tuple[tuple[str, Span | None], ...] = ()
        if best.code in ("PTX105", "PTX106"):
            record, _, m = candidates[0]
            given = [word for word in m.values() if word]
            forms = ((forms_note(record.name, given, len(node.operands)), None),)
        self.log.error(best.code, text, best.span, best.help, forms)
        return None

    def _floor(self, record: Instruction, form: Form, m: Mods) -> tuple[str, str] | None:
        checks = [("", record.floor), *form.floors(m)]
        combined = record.combined_floor(m)
        if combined is not None:
            checks.append(combined)
        return self._unmet(record, ((f".{word}" if word else "", f) for word, f in checks))

    def _unmet(
        self, record: Instruction, floors: Iterable[tuple[str, Floor]]
    ) -> tuple[str, str] | None:
        """The first floor that version and target do not meet: what has it, and what it needs."""
        for what, floor in floors:
            needs = floor.unmet(self.state.version, self.state.target)
            if needs:
                return (f"'{record.name}'" if not what else f"'{record.name}' with {what}"), needs
        return None

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
        return

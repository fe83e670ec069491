"""Legal instructions drawn from the records."""

from __future__ import annotations

import random
from collections.abc import Iterator

import ptxsim.isa  # noqa: F401  (fills the registry)
from ptxsim.isa.record import Form, FormMismatch, Instruction, Mods, OperandSpec, registry
from ptxsim.types import ScalarType

__all__ = ["Shape", "records_matching", "sample_text", "sample_words", "shapes"]

#: What tells two operand lists apart: for each operand its kind, how many registers, and whether
#: it is a predicate or how many bits it has.
Shape = tuple[tuple[str, int, int], ...]


def sample_words(
    record: Instruction, form: Form, rng: random.Random, tries: int
) -> Iterator[tuple[tuple[str, ...], Mods]]:
    """Modifier words in ISA order that the form takes and the record's check allows."""
    seen = set()
    for _ in range(tries):
        picked = [
            "" if slot.optional and rng.random() < 0.5 else rng.choice(slot.domain)
            for slot in form.slots
        ]
        words = tuple(word for word in picked if word)
        try:
            m = form.match(words)
        except FormMismatch:  # a word that two slots know went to the other
            continue
        if words not in seen and record.check(m) is None:
            seen.add(words)
            yield words, m


def records_matching(name: str, words: tuple[str, ...]) -> Iterator[tuple[Instruction, Form, Mods]]:
    """Every form under a mnemonic whose modifiers fit."""
    for record in registry[name]:
        for form in record.forms:
            try:
                m = form.match(words)
            except FormMismatch:
                continue
            if record.check(m) is None:
                yield record, form, m


def _specs(form: Form, m: Mods) -> list[OperandSpec]:
    return [s for s in form.operands if not s.hidden and (not s.needs or m[s.needs])]


def shapes(record: Instruction, form: Form, m: Mods) -> set[Shape]:
    """The operand lists that a form takes: all of them, then with optional ones left out."""
    specs = _specs(form, m)
    optional = [s for s in specs if s.optional]
    out = set()
    for left_out in range(len(optional) + 1):
        gone = optional[:left_out]
        out.add(tuple(_shape(record, s, m) for s in specs if s not in gone))
    return out


def _shape(record: Instruction, spec: OperandSpec, m: Mods) -> tuple[str, int, int]:
    if spec.kind == "parts":
        inner = "".join(kind for kind, _, _ in (_shape(record, p, m) for p in spec.parts))
        return f"[{inner}]", len(spec.parts), 0
    if spec.kind != "value":
        return spec.kind, 0, 0
    types = record.types_of(spec.type, m)
    bits = 0 if types[0].kind == "p" else types[0].bits
    kind = "value" + spec.selector + ("-" if spec.signable else "")
    count = record.count_of(spec.count, m) or (len(types) if len(types) > 1 else 0)
    return kind + types[0].name * (types[0].kind == "o"), count, bits


def _register(type_: ScalarType, number: int, relaxed: bool) -> str:
    if type_.kind == "p":
        return f"%p{number}"
    if type_.name in ("f32", "f64"):
        return f"%{'f' if type_.bits == 32 else 'fd'}{number}"
    width = {8: "h" if relaxed else "b", 16: "h", 32: "r", 64: "rd", 128: "q"}.get(
        max(type_.bits, 8)
    )
    return f"%{width}{number}"


#: Constants to try where an operand must be one; the last is -1.
_CONSTANTS = (16, 0, 1, 8, 24, 32, 128, 0xFFFFFFFF)
_VARIABLES = {"texref": "tx", "surfref": "sf"}


class _Numbers:
    """Registers that have not been named yet."""

    def __init__(self) -> None:
        self.next = 1

    def register(self, type_: ScalarType, relaxed: bool) -> str:
        self.next += 1
        limit = 15 if type_.bits in (1, 8, 128) else 79
        return _register(type_, (self.next - 1) % limit, relaxed)


def sample_text(record: Instruction, form: Form, words: tuple[str, ...], m: Mods) -> str | None:
    """The instruction as text, or None when an operand is not one that can be made up."""
    numbers = _Numbers()
    operands = [_operand(record, spec, m, numbers) for spec in _specs(form, m)]
    if any(o is None for o in operands):
        return None
    return ".".join((record.name, *words)) + " " + ", ".join(o for o in operands if o) + ";"


def _operand(record: Instruction, spec: OperandSpec, m: Mods, numbers: _Numbers) -> str | None:
    if spec.kind == "parts":
        parts = [_operand(record, p, m, numbers) for p in spec.parts if not p.optional]
        return None if None in parts else f"[{', '.join(p.strip('[]') for p in parts if p)}]"
    if spec.kind == "address":
        return "[%r1]" if m.space.startswith("shared") else "[%rd1]"
    if spec.kind == "raw" or spec.selector:
        return None
    if spec.constant:
        return _constant(record, spec, m)
    types = record.types_of(spec.type, m)
    if types[0].kind == "o":
        return _VARIABLES.get(types[0].name)
    count = record.count_of(spec.count, m)
    if count and len(types) == 1:
        types *= count
    names = [numbers.register(type_, spec.relaxed) for type_ in types]
    text = "{" + ", ".join(names) + "}" if count or len(types) > 1 else names[0]
    return f"{text}|%p9" if spec.pair else text


def _constant(record: Instruction, spec: OperandSpec, m: Mods) -> str | None:
    for value in _CONSTANTS:
        if record.check_constant(spec.name, value, m) is None:
            return str(value - (1 << 32) if value >> 31 else value)
    return None

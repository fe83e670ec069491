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
    if spec.kind != "value":
        return spec.kind, 0, 0
    type_ = record.type_of(spec.type, m)
    bits = 0 if type_.kind == "p" else type_.bits
    kind = "value" + spec.selector + ("-" if spec.signable else "")
    return kind, record.count_of(spec.count, m), bits


def _register(type_: ScalarType, number: int, relaxed: bool) -> str:
    if type_.kind == "p":
        return f"%p{number}"
    if type_.name in ("f32", "f64"):
        return f"%{'f' if type_.bits == 32 else 'fd'}{number}"
    width = {8: "h" if relaxed else "b", 16: "h", 32: "r", 64: "rd", 128: "q"}.get(
        max(type_.bits, 8)
    )
    return f"%{width}{number}"


def sample_text(record: Instruction, form: Form, words: tuple[str, ...], m: Mods) -> str | None:
    """The instruction as text, or None when an operand is not one that can be made up."""
    operands = []
    number = 1
    for spec in _specs(form, m):
        if spec.kind == "raw" or spec.constant or spec.selector:
            return None
        if spec.kind == "address":
            operands.append("[%r1]" if m.space.startswith("shared") else "[%rd1]")
            continue
        type_ = record.type_of(spec.type, m)
        count = record.count_of(spec.count, m)
        names = [_register(type_, number + i, spec.relaxed) for i in range(count or 1)]
        number += len(names)
        if spec.pair:
            operands.append(f"{names[0]}|%p9")
            continue
        operands.append("{" + ", ".join(names) + "}" if count else names[0])
    return ".".join((record.name, *words)) + " " + ", ".join(operands) + ";"

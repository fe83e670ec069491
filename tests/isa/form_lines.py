"""Every modifier list of a record's forms, and lines of PTX with numbered operands for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import ptxsim.isa  # noqa: F401  (fills the registry)
from ptxsim.isa.record import Form, FormMismatch, Instruction, Mods, registry
from ptxsim.types import ScalarType

__all__ = ["Line", "lines"]

_CLASSES = {1: "p", 8: "b", 16: "h", 32: "r", 64: "d", 128: "q"}


@dataclass(frozen=True)
class Line:
    """One modifier list of a form: the text, and the classes and types of its operands.

    ``text`` has the operands ``%0``, ``%1`` ... in PTX order; the first ``results`` are results.
    """

    record: Instruction
    form: Form
    mods: Mods
    text: str
    classes: tuple[str, ...]
    types: tuple[ScalarType, ...]
    results: int


def _mods(record: Instruction, form: Form) -> Iterator[tuple[tuple[str, ...], Mods]]:
    choices = [(*slot.domain, "") if slot.optional else slot.domain for slot in form.slots]
    for picked in product(*choices):
        words = tuple(word for word in picked if word)
        try:
            m = form.match(words)
        except FormMismatch:
            continue
        if record.check(m) is None and words == tuple(m[s.name] for s in form.slots if m[s.name]):
            yield words, m


def lines(name: str, *, second: bool = False) -> Iterator[Line]:
    """All lines of a mnemonic that is executed; ``second`` asks for the predicate of a pair."""
    for record in registry[name]:
        for form in record.forms:
            if form.unsupported:
                continue
            for words, m in _mods(record, form):
                yield _line(record, form, words, m, second)


def _line(record: Instruction, form: Form, words: tuple[str, ...], m: Mods, second: bool) -> Line:
    classes: list[str] = []
    types: list[ScalarType] = []
    operands = []
    results = 0

    def one(type_: ScalarType) -> str:
        classes.append("p" if type_.kind == "p" else _CLASSES[max(type_.bits, 8)])
        types.append(type_)
        return f"%{len(classes) - 1}"

    for spec in form.operands:
        if spec.hidden or (spec.needs and not m[spec.needs]):
            continue
        type_ = record.type_of(spec.type, m)
        count = record.count_of(spec.count, m)
        parts = [one(type_) for _ in range(count or 1)]
        if spec.written:
            results += len(parts)
        if spec.pair and second:
            parts[0] += "|" + one(ScalarType("pred", "p", 1))
            results += 1
        operands.append("{" + ", ".join(parts) + "}" if count else parts[0])
    text = ".".join((record.name, *words)) + " " + ", ".join(operands) + ";"
    return Line(record, form, m, text, tuple(classes), tuple(types), results)

"""Every modifier list of a record's forms, and lines of PTX with numbered operands for them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import ptxsim.isa  # noqa: F401  (fills the registry)
from ptxsim.isa.record import Form, FormMismatch, Instruction, Mods, OperandSpec, registry
from ptxsim.types import ScalarType

__all__ = ["Line", "lines"]

_CLASSES = {1: "p", 8: "b", 16: "h", 32: "r", 64: "d", 128: "q"}
_PREDICATE = ScalarType("pred", "p", 1)


@dataclass(frozen=True)
class Line:
    """One modifier list of a form: the text, and the classes and types of its operands.

    ``text`` has the operands ``%0``, ``%1`` ... in PTX order; the first ``results`` are results.
    ``words`` holds the modifiers, and the constants, selectors and signs that stand in the text.
    ``negated`` are the sources (as numbers in ``text``) that are negated predicates.
    """

    record: Instruction
    form: Form
    mods: Mods
    words: dict[str, str]
    text: str
    classes: tuple[str, ...]
    types: tuple[ScalarType, ...]
    results: int
    negated: tuple[int, ...]

    @property
    def carries(self) -> bool:
        """Whether the carry flag takes part."""
        return any(spec.hidden for spec in self.form.operands)


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


def lines(name: str, rng: random.Random | None = None) -> Iterator[Line]:
    """All lines of a mnemonic that is executed.

    ``rng`` draws what is no modifier: part selectors, signs, negations, constants, and whether a
    second destination stands.
    """
    for record in registry[name]:
        for form in record.forms:
            if not form.unsupported:
                for words, m in _mods(record, form):
                    yield _Builder(record, form, m, rng or random.Random(1)).line(words)


def _selector(kind: str, rng: random.Random) -> str:
    if kind == "part":
        return rng.choice(["b0", "b1", "b2", "b3", "h0", "h1"])
    if kind == "halves":
        return "h" + "".join(rng.choice("0123") for _ in range(2))
    if kind == "bytes":
        return "b" + "".join(rng.choice("01234567") for _ in range(4))
    digits = "10" if kind == "half_mask" else "3210"
    chosen = [d for d in digits if rng.random() < 0.6] or [rng.choice(digits)]
    return ("h" if kind == "half_mask" else "b") + "".join(chosen)


class _Builder:
    def __init__(self, record: Instruction, form: Form, m: Mods, rng: random.Random) -> None:
        self.record, self.form, self.m, self.rng = record, form, m, rng
        self.classes: list[str] = []
        self.types: list[ScalarType] = []
        self.words = dict(m)
        self.results = 0
        self.negated: list[int] = []

    def _one(self, type_: ScalarType) -> str:
        self.classes.append("p" if type_.kind == "p" else _CLASSES[max(type_.bits, 8)])
        self.types.append(type_)
        return f"%{len(self.classes) - 1}"

    def _operand(self, spec: OperandSpec) -> str:
        m, rng = self.m, self.rng
        if spec.constant:
            value = rng.randrange(256)
            self.words[spec.name] = str(value)
            return str(value)
        type_ = self.record.type_of(spec.type, m)
        count = self.record.count_of(spec.count, m)
        parts = [self._one(type_) for _ in range(count or 1)]
        if spec.written:
            self.results += len(parts)
        if spec.pair and (spec.sink or rng.random() < 0.8):
            parts[0] += "|" + self._one(_PREDICATE)
            self.results += 1
        # a destination part is a form of its own, which must have its selector
        wanted = spec.written and spec.selector == "part"
        if spec.selector and (wanted or rng.random() < 0.6):
            word = _selector(spec.selector, rng)
            self.words[f"{spec.name}_part"] = word
            parts[0] += f".{word}"
        if spec.signable and rng.random() < 0.5:
            self.words[f"{spec.name}_sign"] = "-"
            parts[0] = "-" + parts[0]
        if spec.negatable and rng.random() < 0.5:
            self.negated.append(len(self.classes) - 1)
            parts[0] = "!" + parts[0]
        return "{" + ", ".join(parts) + "}" if count else parts[0]

    def line(self, words: tuple[str, ...]) -> Line:
        specs = [s for s in self.form.operands if not s.hidden]
        operands = [self._operand(s) for s in specs if not s.needs or self.m[s.needs]]
        text = ".".join((self.record.name, *words)) + " " + ", ".join(operands) + ";"
        self.words["results"] = str(self.results)
        return Line(
            self.record, self.form, self.m, self.words, text, tuple(self.classes),
            tuple(self.types), self.results, tuple(self.negated),
        )  # fmt: skip

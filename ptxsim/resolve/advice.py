"""What a refused instruction might have been: its forms, and the nearest legal spelling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from ..diagnostics import Source, Span
from ..isa.record import Form, FormMismatch, Instruction, OperandSpec, registry
from ..types import SCALAR_TYPES

__all__ = ["forms_note", "modifier_span", "nearest_spelling", "syntax_line"]

#: Forms that a note shows.
_SHOWN = 4


def syntax_line(name: str, form: Form) -> str:
    """A form as the ISA writes it: optional parts in braces, choices with bars.

    >>> syntax_line("shf", registry["shf"][0].forms[0])
    'shf.l|r.clamp|wrap.b32 d, a, b, c'
    """
    words = []
    for slot in form.slots:
        text = "." + "|".join(slot.domain)
        words.append("{" + text + "}" if slot.optional else text)
    operands = ", ".join(_operand(s) for s in form.operands if not s.hidden)
    return f"{name}{''.join(words)} {operands}".rstrip()


def _operand(spec: OperandSpec) -> str:
    if spec.kind == "parts":
        return "[" + ", ".join(_operand(part) for part in spec.parts) + "]"
    text = f"[{spec.name}]" if spec.kind == "address" else spec.name
    if spec.count:
        text = "{" + text + ", ...}"
    if spec.pair:
        text += "|p" if spec.paired else "{|p}"
    return "{" + text + "}" if spec.optional or spec.needs else text


def forms_note(name: str, words: Sequence[str], operands: int | None) -> str:
    """The forms of a mnemonic that are closest to what is written, one per line."""
    lines: list[tuple[int, int, str]] = []
    for record in registry[name]:
        for form in record.forms:
            known = sum(any(w in s.domain for s in form.slots) for w in words)
            shown = sum(not s.hidden for s in form.operands)
            far = 0 if operands is None else abs(shown - operands)
            lines.append((far - 2 * known, len(lines), syntax_line(name, form)))
    best = list(dict.fromkeys(line for *_, line in sorted(lines)))
    more = f"\n    and {len(best) - _SHOWN} more" if len(best) > _SHOWN else ""
    return f"the forms of {name}:" + "".join(f"\n    {line}" for line in best[:_SHOWN]) + more


def modifier_span(source: Source, span: Span, opcode: Sequence[str], word: str | None) -> Span:
    """The place of a modifier within an opcode, or the opcode where it is not written plainly."""
    if word is None or word not in opcode or span.line != span.end_line:
        return span
    text = source.line(span.line)[span.column - 1 : span.end_column - 1]
    if text != ".".join(opcode):
        return span
    at = len(opcode) - 1 - list(reversed(opcode)).index(word)
    start = span.column + len(".".join(opcode[:at]))
    return Span(span.line, start, span.line, start + len(word) + 1)


def nearest_spelling(name: str, words: Sequence[str]) -> str | None:
    """An opcode that is legal and one modifier away, the first that is found."""
    scored = sorted(_forms(name, words), key=lambda found: -found[0])
    for _, record, form in scored[:_SHOWN]:
        for changed in _changes(form, tuple(words)):
            if _legal(record, form, changed):
                return ".".join((name, *changed))
    return None


def _forms(name: str, words: Sequence[str]) -> Iterator[tuple[int, Instruction, Form]]:
    for record in registry[name]:
        for form in record.forms:
            yield sum(any(w in s.domain for s in form.slots) for w in words), record, form


def _changes(form: Form, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """A word added, another in its place, or one left out; those of a form alone."""
    domains = [w for slot in form.slots for w in slot.domain]
    missing = [s for s in form.slots if not s.optional and not set(s.domain) & set(words)]
    for slot in missing:
        for word in slot.domain:
            at = next((n for n, w in enumerate(words) if _after(form, slot.name, w)), len(words))
            yield (*words[:at], word, *words[at:])
    for at, old in enumerate(words):
        near = get_close_matches(old, domains, n=3)
        if old in SCALAR_TYPES:
            near += [w for w in domains if w in SCALAR_TYPES]
        for word in near:
            yield (*words[:at], word, *words[at + 1 :])
        yield (*words[:at], *words[at + 1 :])
    for at in range(len(words) - 1):
        yield (*words[:at], words[at + 1], words[at], *words[at + 2 :])


def _after(form: Form, slot: str, word: str) -> bool:
    """Whether a word belongs behind a slot."""
    names = [s.name for s in form.slots]
    places = [n for n, s in enumerate(form.slots) if word in s.domain]
    return bool(places) and places[0] > names.index(slot)


def _legal(record: Instruction, form: Form, words: tuple[str, ...]) -> bool:
    try:
        return record.check(form.match(words)) is None
    except FormMismatch:
        return False

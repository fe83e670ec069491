"""What a refused instruction might have been: its forms, and the nearest legal spelling."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher, get_close_matches

from ..diagnostics import Source, Span
from ..isa.record import Form, FormMismatch, Instruction, OperandSpec, registry
from ..types import SCALAR_TYPES

__all__ = ["forms_note", "modifier_span", "nearest_spelling", "syntax_line"]

#: Forms that a note shows.
_SHOWN = 4

#: Modifiers, and characters of one, beyond which no spelling is looked for.
_MOST, _LONGEST = 24, 48


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
    lines: list[tuple[float, int, str]] = []
    for record in registry[name]:
        for form in record.forms:
            known = _nearness(form, words)
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
    """The opcode that is legal and one modifier away, at the least cost."""
    if len(words) > _MOST or any(len(w) > _LONGEST for w in words):
        return None  # no slip of a pen
    best: tuple[float, tuple[str, ...]] | None = None
    slots = [slot for record in registry[name] for form in record.forms for slot in form.slots]
    known = {w for slot in slots for w in slot.domain}
    for record in registry[name]:
        for form in record.forms:
            elsewhere = _ELSEWHERE * bool(form.floor.only or record.floor.only)
            for change, changed in _changes(form, tuple(words), known):
                cost = change + elsewhere
                if (best is None or cost < best[0]) and _legal(record, form, changed):
                    best = cost, changed
    return None if best is None else ".".join((name, *best[1]))


def _nearness(form: Form, words: Sequence[str]) -> float:
    """How many of the words a form knows; one that is close to a word of its counts half."""
    domain = {w for slot in form.slots for w in slot.domain}
    return sum(1.0 if w in domain else 0.5 * bool(get_close_matches(w, domain, 1)) for w in words)


#: What it costs to put two words in order, to add one that is missing, to leave one out, and to
#: put one in the place of another that does not resemble it; and what is added where another
#: form of the instruction has the word that goes.
_SWAP, _ADD, _LEAVE_OUT, _REPLACE, _KNOWN = 0.4, 0.6, 0.7, 0.8, 0.6

#: And what is added for a form that few targets have.
_ELSEWHERE = 0.3


def _changes(
    form: Form, words: tuple[str, ...], known: set[str]
) -> Iterator[tuple[float, tuple[str, ...]]]:
    """What one change of a form's words makes, with its cost; ``known`` are those of all forms."""
    for at in range(len(words) - 1):
        cost = _SWAP + _KNOWN * {words[at], words[at + 1]}.issubset(SCALAR_TYPES)
        yield cost, (*words[:at], words[at + 1], words[at], *words[at + 2 :])
    missing = [s for s in form.slots if not s.optional and not set(s.domain) & set(words)]
    for slot in missing:
        for word in slot.domain:
            at = next((n for n, w in enumerate(words) if _after(form, slot.name, w)), len(words))
            yield _ADD, (*words[:at], word, *words[at:])
    domains = list(dict.fromkeys(w for slot in form.slots for w in slot.domain))
    types = [n for n, w in enumerate(words) if w in SCALAR_TYPES]
    if types:  # one type too few, though its word stands for another
        for word in (w for w in domains if w in SCALAR_TYPES):
            yield _ADD, (*words[: types[-1] + 1], word, *words[types[-1] + 1 :])
    for at, old in enumerate(words):
        more = _KNOWN if old in known else 0.0
        near = dict.fromkeys((w for slot in missing for w in slot.domain), _REPLACE)
        near |= {
            w: 1 - SequenceMatcher(None, old, w).ratio()
            for w in (*_one_off(old, domains), *get_close_matches(old, domains, n=3))
        }
        near |= {w: c for w in domains if (c := _unlikeness(old, w)) is not None}
        for word, cost in near.items():
            yield cost + more, (*words[:at], word, *words[at + 1 :])
        yield _LEAVE_OUT + more, (*words[:at], *words[at + 1 :])


def _one_off(word: str, domain: Iterable[str]) -> list[str]:
    """The words that differ from one in one character."""
    return [
        w
        for w in domain
        if len(w) == len(word) > 1 and sum(a != b for a, b in zip(w, word, strict=True)) == 1
    ]


_TYPE = re.compile(r"(?P<kind>[a-z]+)(?P<bits>[0-9]{1,4})(?P<rest>\w*)")
_INTEGER = frozenset("bus")


def _unlikeness(a: str, b: str) -> float | None:
    """How far apart the names of two types are, of which one need not exist: width, then kind.

    >>> _unlikeness("u32", "s32") < _unlikeness("u32", "f32") < _unlikeness("u32", "s16")
    True
    """
    x, y = _TYPE.fullmatch(a), _TYPE.fullmatch(b)
    if x is None or y is None or b not in SCALAR_TYPES:
        return None
    wider = abs(math.log2(max(int(x["bits"]), 1) / int(y["bits"])))
    kind = 0.0 if x["kind"] == y["kind"] else 0.05
    if (x["kind"] in _INTEGER) != (y["kind"] in _INTEGER):
        kind = 0.1
    return 0.1 + kind + min(0.2, 0.11 * wider) + 0.05 * (x["rest"] != y["rest"])


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

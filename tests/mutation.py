"""Small changes that break correct kernels: one barrier, wait, index or predicate at a time.

A change is made in the text at the span of an instruction, so that lines keep their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ptxsim.diagnostics import Span
from ptxsim.syntax import parse
from ptxsim.syntax.ast import Block, Function, Instruction, Statement

__all__ = ["MUTATORS", "Mutant", "mutants"]

#: mnemonics whose deletion takes order away, and the name of the mutator
_ORDERS = {
    "bar": "drop-barrier", "barrier": "drop-barrier", "bar.warp": "drop-warp-sync",
    "fence": "drop-fence", "membar": "drop-fence", "fence.proxy": "drop-proxy-fence",
    "cp.async.wait": "drop-wait", "cp.async.bulk.wait": "drop-wait",
    "cp.async.commit": "drop-commit", "cp.async.bulk.commit": "drop-commit",
    "cp.async.mbarrier": "drop-arrive", "mbarrier.arrive": "drop-arrive",
    "mbarrier.arrive_drop": "drop-arrive", "mbarrier.expect": "drop-arrive",
    "mbarrier.test": "drop-wait", "mbarrier.try": "drop-wait", "mbarrier.init": "drop-init",
}  # fmt: skip
MUTATORS = (
    "drop-barrier", "drop-warp-sync", "drop-fence", "drop-proxy-fence", "drop-wait", "drop-commit",
    "drop-arrive", "drop-init", "move-order", "later-wait", "change-count", "weaker-order",
    "narrower-scope", "shift-offset", "change-multiplier", "drop-guard",
)  # fmt: skip
_DATA = ("ld", "ldu", "st", "atom", "red", "ldmatrix", "stmatrix", "wmma", "cp")
_LEAVES = ("bra", "brx", "ret", "exit", "call")
_BYTES = re.compile(r"[a-z]+(\d+)(x2)?")
_OFFSET = re.compile(r"\[([^\[\]]*?)(?:\s*\+\s*(-?\d+))?\s*\]")
_LAST_NUMBER = re.compile(r"(.*,\s*)(\d+)((?:\s*,\s*[%\w$]+)?\s*;?)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A kernel's text with one change: ``what`` is the new text of the instruction at ``line``."""

    mutator: str
    line: int
    before: str
    what: str
    text: str

    def __str__(self) -> str:
        return f"{self.mutator}: line {self.line}: {self.before!r} -> {self.what!r}"


@dataclass(frozen=True, slots=True)
class _Edit:
    mutator: str
    spans: tuple[Span, ...]
    #: the new texts of the first spans; the others become blank
    new: tuple[str, ...]


class _Text:
    """A text in which spans are replaced."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0]
        for line in text.split("\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)

    def _range(self, span: Span) -> slice:
        begin = self._starts[span.line - 1] + span.column - 1
        return slice(begin, self._starts[span.end_line - 1] + span.end_column - 1)

    def of(self, span: Span) -> str:
        return self.text[self._range(span)]

    def whole(self, i: Instruction) -> Span:
        """The span of an instruction with the ``@`` of its guard and its semicolon."""
        begin, end = i.span.column, i.span.end_column
        if i.guard is not None:
            line = self.text[self._starts[i.span.line - 1] :]
            begin = line.rfind("@", 0, begin) + 1
        rest = self.text[self._starts[i.span.end_line - 1] + end - 1 :]
        end += rest.index(";") + 1
        return Span(i.span.line, begin, i.span.end_line, end)

    def between(self, first: Span, second: Span) -> str:
        return self.text[self._range(first).stop : self._range(second).start]

    def edited(self, edit: _Edit) -> str:
        out = self.text
        for number, span in sorted(enumerate(edit.spans), key=lambda e: -self._range(e[1]).start):
            where = self._range(span)
            lines = "\n" * out[where].count("\n")
            new = edit.new[number] if number < len(edit.new) else ""
            out = out[: where.start] + new + lines * (not new.count("\n")) + out[where.stop :]
        return out


def mutants(text: str, entry: str | None = None) -> Iterator[Mutant]:
    """Every change of every instruction of the entries of a module (or of one of them)."""
    source = _Text(text)
    for item in parse(text).items:
        if not isinstance(item, Function) or item.body is None:
            continue
        if entry not in (None, item.name) and item.kind == "entry":
            continue
        code = list(_instructions(item.body))
        seen = {_words(text)}  # two that stand side by side change places in two ways
        for at, i in enumerate(code):
            for edit in _edits(source, code, at):
                new = source.edited(edit)
                if _words(new) in seen:
                    continue
                seen.add(_words(new))
                before = _words(source.of(source.whole(i)))
                what = _words(" ".join(edit.new))
                yield Mutant(edit.mutator, i.span.line, before, what, new)


def _words(text: str) -> str:
    return " ".join(text.split())


def _instructions(body: Sequence[Statement]) -> Iterator[Instruction]:
    for s in body:
        if isinstance(s, Block):
            yield from _instructions(s.body)
        elif isinstance(s, Instruction):
            yield s


def _edits(source: _Text, code: list[Instruction], at: int) -> Iterator[_Edit]:
    i = code[at]
    span = source.whole(i)
    text = source.of(span)
    mutator = _order(i)
    if mutator is not None:
        loop = _loop(source, code, at)
        yield _Edit(mutator, (span, *loop), ())
        if not loop:
            yield from _moves(source, code, at)
    for name, change in _CHANGES:
        for new in change(i, text):
            if new != text:
                yield _Edit(name, (span,), (new,))


def _moves(source: _Text, code: list[Instruction], at: int) -> Iterator[_Edit]:
    """An ordering instruction before the access that precedes it, or after the one that follows."""
    span = source.whole(code[at])
    text = source.of(span)
    for step in (-1, 1):
        where, last = at + step, span
        while 0 <= where < len(code):
            near = source.whole(code[where])
            gap = source.between(*((near, last) if step < 0 else (last, near)))
            if code[where].mnemonic in _LEAVES or ":" in re.sub(r"//.*|::", "", gap):
                break  # a branch or a label: the instruction may run more or less often
            if code[where].mnemonic in _DATA or _order(code[where]):
                other = source.of(near)
                both = f"{text} {other}" if step < 0 else f"{other} {text}"
                yield _Edit("move-order", (near, span), (both,))
                break
            where, last = where + step, near


def _order(i: Instruction) -> str | None:
    """The mutator that deletes this instruction, if it makes order."""
    parts = [p.partition("_")[0] for p in i.opcode]
    for length in (4, 3, 2, 1):
        name = ".".join(parts[:length])
        if ".".join(i.opcode[:2]) == "mbarrier.arrive_drop":
            return _ORDERS["mbarrier.arrive_drop"]
        if name in _ORDERS and len(parts) >= length:
            return _ORDERS[name]
    return None


def _loop(source: _Text, code: list[Instruction], at: int) -> tuple[Span, ...]:
    """The branch back of a wait: without the wait its predicate would have no value."""
    i = code[at]
    if i.mnemonic != "mbarrier" or not i.opcode[1].startswith(("test", "try")):
        return ()
    written = source.of(i.span)
    following = code[at + 1 : at + 2]
    return tuple(
        source.whole(n)
        for n in following
        if n.mnemonic == "bra" and n.guard is not None and n.guard.register in written
    )


# --- changes of one instruction -------------------------------------------------------------------


def _later_wait(i: Instruction, text: str) -> Iterator[str]:
    """Wait for one group less."""
    if any(part.startswith("wait_group") for part in i.opcode):
        yield re.sub(r"(\d+)(\s*;?)$", lambda m: f"{int(m[1]) + 1}{m[2]}", text)


def _change_count(i: Instruction, text: str) -> Iterator[str]:
    """Another number of threads or arrivals, another parity, another barrier."""
    named = i.mnemonic in ("bar", "barrier") and "warp" not in i.opcode and len(i.operands) > 1
    if named or i.mnemonic == "mbarrier":
        for m in re.finditer(r"(?<=[,\s])\d+\b", text):
            parity = "parity" in i.opcode
            number = int(m[0])
            new = 1 - number if parity else number + (32 if number >= 64 else 1)
            yield f"{text[: m.start()]}{new}{text[m.end() :]}"


def _weaker_order(i: Instruction, text: str) -> Iterator[str]:
    if i.mnemonic != "fence":
        yield re.sub(r"\.(acquire|release|acq_rel)\b", ".relaxed", text, count=1)


def _narrower_scope(i: Instruction, text: str) -> Iterator[str]:
    if i.mnemonic == "membar":
        yield re.sub(r"membar\.(gl|sys)\b", "membar.cta", text)
    elif i.mnemonic in ("fence", "ld", "st", "atom", "red"):
        yield re.sub(r"\.(gpu|sys|cluster)\b", ".cta", text, count=1)


def _shift_offset(i: Instruction, text: str) -> Iterator[str]:
    """One address of the instruction one access further on."""
    if i.mnemonic not in _DATA or "param" in i.opcode:
        return
    size = _size(i, text)
    for m in _OFFSET.finditer(text):
        yield f"{text[: m.start()]}[{m[1]}+{int(m[2] or 0) + size}]{text[m.end() :]}"


def _size(i: Instruction, text: str) -> int:
    """Bytes that keep the alignment of the access."""
    if i.mnemonic in ("cp", "ldmatrix", "stmatrix"):
        copied = re.search(r"\],\s*(4|8|16)\b", text)
        return int(copied[1]) if copied and "bulk" not in i.opcode else 16
    if i.mnemonic == "wmma":
        return 32
    found = _BYTES.fullmatch(i.opcode[-1])
    size = max(1, int(found[1]) * (2 if found[2] else 1) // 8) if found else 4
    vector = {"v2": 2, "v4": 4}
    return size * next((n for part, n in vector.items() if part in i.opcode), 1)


def _change_multiplier(i: Instruction, text: str) -> Iterator[str]:
    """Another factor, shift count or step of an integer computation."""
    if i.mnemonic not in ("mul", "mad", "shl", "add") or i.opcode[-1][0] not in "usb":
        return
    found = _LAST_NUMBER.fullmatch(text)
    if found is not None:
        number = int(found[2])
        changed = {"shl": number + 1, "add": number + 4}.get(i.mnemonic, 2 * number or 1)
        yield f"{found[1]}{changed}{found[3]}"


def _drop_guard(i: Instruction, text: str) -> Iterator[str]:
    if i.guard is not None:
        yield re.sub(r"^@\s*!?\s*[%$\w]+\s*", "", text)


_CHANGES: tuple[tuple[str, Callable[[Instruction, str], Iterator[str]]], ...] = (
    ("later-wait", _later_wait),
    ("change-count", _change_count),
    ("weaker-order", _weaker_order),
    ("narrower-scope", _narrower_scope),
    ("shift-offset", _shift_offset),
    ("change-multiplier", _change_multiplier),
    ("drop-guard", _drop_guard),
)

"""PTX text that also stores what its registers hold, for comparing two machines step by step.

Everything is put on the lines that are there already, so that lines keep their numbers.  Each
thread has a record of its own in one more buffer, the last parameter:

* a trace holds, one after the other, the results of the instructions that the thread has executed,
* a state holds all registers at a line, or where the thread ends: the last time it came there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import UsageError
from ..program.binder import registers_of
from ..resolve.typed import CallOperand, Register, TypedFunction, TypedInstruction, TypedModule
from ..syntax import ast, parse
from ..syntax.comments import line_starts, without_comments
from .assigned import assigned_before

__all__ = ["ENTRY", "HEAD", "PARAMETER", "SLOT", "Dumped", "Point", "Traced", "dumped", "traced"]

#: The parameter that is added, and what all names of ours begin with.
PARAMETER = "ptxsim_log"
_OWN = "%ptxsim_"
#: Bytes before the first entry of a record, of an entry of a state, and of one of a trace.
HEAD, SLOT, ENTRY = 16, 16, 32

Scope = dict[str, Register]

_DECLARATIONS = (
    ".reg .b64 {o}log, {o}at, {o}low, {o}high; .reg .b32 {o}n, {o}i, {o}v, {o}w;"
    " .reg .pred {o}p, {o}q;"
)
#: The thread's number in the grid, x fastest, and the place of its record.
_THREAD = (
    "mov.u32 {o}i, %ctaid.z; mov.u32 {o}v, %nctaid.y; mov.u32 {o}w, %ctaid.y;"
    " mad.lo.u32 {o}i, {o}i, {o}v, {o}w;"
    " mov.u32 {o}v, %nctaid.x; mov.u32 {o}w, %ctaid.x; mad.lo.u32 {o}i, {o}i, {o}v, {o}w;"
    " mov.u32 {o}v, %ntid.z; mov.u32 {o}w, %tid.z; mad.lo.u32 {o}i, {o}i, {o}v, {o}w;"
    " mov.u32 {o}v, %ntid.y; mov.u32 {o}w, %tid.y; mad.lo.u32 {o}i, {o}i, {o}v, {o}w;"
    " mov.u32 {o}v, %ntid.x; mov.u32 {o}w, %tid.x; mad.lo.u32 {o}i, {o}i, {o}v, {o}w;"
    " ld.param.u64 {o}log, [{parameter}]; cvta.to.global.u64 {o}log, {o}log;"
    " mad.wide.u32 {o}log, {o}i, {stride}, {o}log; mov.u32 {o}n, 0;"
)


@dataclass(frozen=True, slots=True)
class Point:
    """A result that a trace has: the instruction, and the register that it writes."""

    instruction: TypedInstruction
    register: Register


@dataclass(frozen=True, slots=True)
class Traced:
    """A text with a trace; a record has :data:`HEAD` bytes and ``capacity`` entries.

    The first word of a record is the number of steps of the thread, the first word of an entry is
    the number of its point and one more; its value begins at byte 16.
    """

    text: str
    points: tuple[Point, ...]
    capacity: int
    stride: int


@dataclass(frozen=True, slots=True)
class Dumped:
    """A text with a state; the first word of a record counts how often the thread came there."""

    text: str
    registers: tuple[Register, ...]
    stride: int


def traced(module: TypedModule, entry: str, start: int, capacity: int) -> Traced:
    """The text with a trace of the steps ``start`` to ``start + capacity`` of each thread."""
    edit = _Edit(module, entry)
    points: list[Point] = []
    for i in edit.code:
        results = list(_results(i, edit.function))
        if i.guard is not None and i.guard in results:
            continue  # it is not known afterwards whether the instruction was executed
        if i.record.control and not any(isinstance(v, CallOperand) for v in i.operands.values()):
            continue
        words = []
        for register in results:
            words.append(_log(len(points), register, i, start, capacity))
            points.append(Point(i, register))
        edit.after(i, " ".join(words))
    stride = HEAD + ENTRY * capacity
    return Traced(edit.finish(stride), tuple(points), capacity, stride)


def dumped(module: TypedModule, entry: str, line: int | None = None) -> Dumped:
    """The text with the state before the first instruction of a line, or at the end if None.

    Only registers that are written on every way to the place are stored: what others hold is up to
    the machine.
    """
    edit = _Edit(module, entry)
    if line is None:
        places = [at for at, i in enumerate(edit.code) if i.record.name in ("ret", "exit")]
    else:
        places = [at for at, i in enumerate(edit.code) if i.span.line == line][:1]
        if not places:
            raise UsageError(f"line {line} has no instruction of '{entry}'")
    falls = line is None and not (edit.code and edit.code[-1].record.control)
    known = assigned_before(edit.function)
    visible = [_visible(edit, edit.code[at]) for at in places]
    if falls:
        visible.append(_visible(edit, None))
    ends = [*places, len(edit.code)] if falls else places
    registers = [
        r for r in edit.function.registers
        if all(r in seen for seen in visible) and all(r.index in known[at] for at in ends)
    ]  # fmt: skip
    store = _store_state(registers)
    for at in places:
        edit.before(edit.code[at], store)
    if falls:
        edit.at_end(store)
    stride = HEAD + SLOT * len(registers)
    return Dumped(edit.finish(stride), tuple(registers), stride)


def _results(i: TypedInstruction, function: TypedFunction) -> Iterator[Register]:
    seen: set[int] = set()
    for spec in i.form.operands:
        value = i.operands.get(spec.name)
        found: list[int] = []
        if isinstance(value, CallOperand):
            found = [r.index for r in value.results if isinstance(r, Register)]
        elif spec.kind == "value" and spec.written and not spec.hidden:
            found = registers_of(value)
        for index in found:
            if index not in seen:
                seen.add(index)
                yield function.registers[index]


def _log(number: int, r: Register, i: TypedInstruction, start: int, capacity: int) -> str:
    """Append a result to the trace, if the instruction was executed and the step is wanted."""
    guard = "" if i.guard is None else f"@{'!' if i.guard_negated else ''}{i.guard.name} "
    also = ""
    if i.guard is not None:
        sense = "not.pred {o}q, {g}; and.pred {o}p, {o}p, {o}q;"
        plain = "and.pred {o}p, {o}p, {g};"
        also = " " + (sense if i.guard_negated else plain).replace("{g}", i.guard.name)
    store = _store(r, "{o}at", HEAD + 16, "@{o}p ")
    text = (
        f"sub.u32 {{o}}v, {{o}}n, {start}; setp.lt.u32 {{o}}p, {{o}}v, {capacity};{also}"
        f" mad.wide.u32 {{o}}at, {{o}}v, {ENTRY}, {{o}}log; mov.u32 {{o}}w, {number + 1};"
        f" @{{o}}p st.global.b32 [{{o}}at+{HEAD}], {{o}}w; {store}"
        f" {guard}add.u32 {{o}}n, {{o}}n, 1; {guard}st.global.b32 [{{o}}log], {{o}}n;"
    )
    return text.replace("{o}", _OWN)


def _store(r: Register, base: str, offset: int, guard: str = "") -> str:
    """The store of a register's bits; predicates become 0 or 1."""
    if r.type.kind == "p":
        return f"selp.b32 {{o}}w, 1, 0, {r.name}; {guard}st.global.b32 [{base}+{offset}], {{o}}w;"
    if r.type.bits == 128:
        return (
            f"mov.b128 {{{{o}}low, {{o}}high}}, {r.name};"
            f" {guard}st.global.b64 [{base}+{offset}], {{o}}low;"
            f" {guard}st.global.b64 [{base}+{offset + 8}], {{o}}high;"
        )
    return f"{guard}st.global.b{r.type.bits} [{base}+{offset}], {r.name};"


def _store_state(registers: list[Register]) -> str:
    words = ["add.u32 {o}n, {o}n, 1; st.global.b32 [{o}log], {o}n;"]
    words += [_store(r, "{o}log", HEAD + SLOT * k) for k, r in enumerate(registers)]
    return " ".join(words).replace("{o}", _OWN)


def _visible(edit: _Edit, i: TypedInstruction | None) -> set[Register]:
    """The registers that a statement, or one at the end, can name: of all scopes around it."""
    by_name: dict[str, list[Register]] = {}
    for r in edit.function.registers:
        by_name.setdefault(r.name, []).append(r)

    def walk(body: tuple[ast.Statement, ...], outer: Scope | None) -> Scope | None:
        scope = dict(outer or {})
        for node in body:
            if isinstance(node, ast.VariableDeclaration) and node.space == "reg":
                # the registers of a name are numbered in the order of their declarations
                scope.update((n, by_name[n].pop(0)) for n in _declared(node) if by_name.get(n))
            elif isinstance(node, ast.Block):
                found = walk(node.body, scope)
                if found is not None:
                    return found
            elif isinstance(node, ast.Instruction) and i is not None and node.span == i.span:
                return scope
        return scope if i is None and outer is None else None

    return set((walk(edit.node.body or (), None) or {}).values())


def _declared(d: ast.VariableDeclaration) -> Iterator[str]:
    for v in d.variables:
        stems = [f"{v.name}{k}" for k in range(v.count)] if v.count is not None else [v.name]
        parts = [f".{c}" for c in "xyzw"[: d.vector]] if d.vector else [""]
        yield from (stem + part for stem in stems for part in parts)


class _Edit:
    """Insertions into the text of an entry."""

    def __init__(self, module: TypedModule, entry: str) -> None:
        if module.address_size != 64:
            raise UsageError("registers are stored for modules with .address_size 64 only")
        self.text = module.source.text
        if _OWN in self.text or PARAMETER in self.text:
            raise UsageError(f"the text uses names of ours: {_OWN}..., {PARAMETER}")
        self.function = module.functions[entry]
        self.code = self.function.instructions or ()
        self.node = next(
            n for n in parse(self.text, module.source.name).items
            if isinstance(n, ast.Function) and n.name == entry and n.body is not None
        )  # fmt: skip
        self._blank, _ = without_comments(self.text)
        self._starts = line_starts(self.text)
        self._inserted: list[tuple[int, str]] = []

    def _offset(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column - 1

    def before(self, i: TypedInstruction, words: str) -> None:
        """Put text before a statement."""
        self._inserted.append((self._offset(i.span.line, i.span.column), words + " "))

    def after(self, i: TypedInstruction, words: str) -> None:
        """Put text behind a statement."""
        if words:
            begin = self._offset(i.opcode_span.end_line, i.opcode_span.end_column)
            self._inserted.append((self._blank.index(";", begin) + 1, " " + words))

    def at_end(self, words: str) -> None:
        """Put text before the closing brace."""
        span = self.node.end_span
        self._inserted.append((self._offset(span.line, span.column), words + " "))

    def finish(self, stride: int) -> str:
        """The text with the parameter, the declarations and all that was put in."""
        opening = self._parameter()
        words = f" {_DECLARATIONS} {_THREAD}".replace("{o}", _OWN)
        words = words.replace("{parameter}", PARAMETER).replace("{stride}", str(stride))
        self._inserted.append((opening + 1, words))
        pieces, last = [], 0
        for at, words in sorted(self._inserted, key=lambda pair: pair[0]):
            pieces += [self.text[last:at], words]
            last = at
        return "".join([*pieces, self.text[last:]])

    def _parameter(self) -> int:
        """Add the parameter; the offset of the brace that opens the body."""
        declared = f".param .u64 {PARAMETER}"
        span = self.node.name_span
        at = self._offset(span.end_line, span.end_column)
        if self.node.parameters:
            span = self.node.parameters[-1].span
            at = self._offset(span.end_line, span.end_column)
            self._inserted.append((at, f", {declared}"))
        elif found := re.compile(r"\s*\(").match(self._blank, at):
            at = found.end()
            self._inserted.append((at, declared))
        else:
            self._inserted.append((at, f"({declared})"))
        return self._blank.index("{", at)

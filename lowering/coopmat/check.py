"""Checks of a kernel before anything is emitted: fragments, configs, layouts, target, names, types.

They find everything that needs no knowledge of values, all of it in one run; what a value decides
(addresses, strides, divergence) is in :mod:`.preconditions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ptxsim.targets import PTX_VERSIONS, TARGETS, parse_target

from .forms import check_config, check_fragment, elt_name, elt_of, is_8bit, min_sm, min_sm_int8
from .ir import (
    ELEMENTS,
    INTRINSICS,
    SCALARS,
    Array,
    Assign,
    Block,
    Const,
    Constant,
    For,
    FragmentDecl,
    FragmentLoad,
    FragmentStore,
    If,
    Kernel,
    Let,
    Local,
    MulAdd,
    Param,
    Return,
    Shared,
    Statement,
    Store,
    While,
)
from .refusals import Refusal
from .scope import TypeErrors, Types, type_of
from .text import KEYWORDS
from .via import Via
from .vocabulary import LAYOUTS, Fragment
from .walk import blocks, statements

__all__ = [
    "Checked",
    "DeclaredNames",
    "accessed_buffers",
    "check_kernel",
    "operand_layouts",
    "sm_number",
]

_NAME = re.compile(r"[A-Za-z]\w*|_\w+", re.ASCII)
#: Bytes of static shared memory and of constant memory that a kernel can have.
_MAX_STATIC, _MAX_CONSTANT = 48 << 10, 64 << 10
_MAX_ELEMENTS = 1 << 28
#: Bytes of parameters before PTX ISA 8.1 and since.
_MAX_PARAMETERS = (4352, 32764)
#: Refusals of an access after which its address means nothing.
_UNKNOWABLE = frozenset(("R1", "R2", "R3", "R4", "R21", "R27", "R28", "R30"))
_OF_FRAGMENTS = frozenset(("R1", "R2", "R3", "R4"))
#: The first PTX ISA whose spelling of matrix instructions is emitted.
_FIRST = (6, 3)


def sm_number(text: str) -> int | None:
    """The number of a target, letters behind it left out; None for what is no target.

    >>> sm_number("sm_86"), sm_number("sm_90a"), sm_number("86")
    (86, 90, None)
    """
    found = re.fullmatch(r"sm_([0-9]+)[a-z]*", text, re.ASCII)
    return int(found[1]) if found else None


def accessed_buffers(kernel: Kernel) -> list[str]:
    """The buffers that fragments are loaded from or stored to, in the order of their first use."""
    found = (s for s in statements(kernel.body) if isinstance(s, FragmentLoad | FragmentStore))
    return list(dict.fromkeys(s.buffer for s in found))


class DeclaredNames:
    """A name for each declaration of a fragment: its own, with a number if others have it too."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def new(self, name: str) -> str:
        """The next declaration of a name, in the order of the text."""
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"


def operand_layouts(kernel: Kernel) -> tuple[dict[str, str], list[Refusal]]:
    """The layout of every fragment of A and B that is loaded, and the conflicts (R10).

    Keys are the names that :class:`DeclaredNames` gives to the declarations.
    """
    layouts: dict[str, str] = {}
    conflicts: list[Refusal] = []
    _layouts(kernel.body, {}, DeclaredNames(), layouts, conflicts)
    return layouts, conflicts


def _layouts(
    block: Block,
    scope: dict[str, str],
    names: DeclaredNames,
    layouts: dict[str, str],
    conflicts: list[Refusal],
) -> None:
    scope = dict(scope)
    for s in block.statements:
        if isinstance(s, FragmentDecl):
            scope[s.name] = names.new(s.name)
        if isinstance(s, FragmentLoad) and s.fragment.use != "accumulator":
            first = layouts.setdefault(scope.get(s.name, s.name), s.layout)
            if first != s.layout:
                reason = f"loaded as {s.layout} here and as {first} before"
                cure = "declare a second fragment"
                conflicts.append(Refusal("R10", f"fragment '{s.name}'", reason, s.line, cure))
        for inner in blocks(s):
            _layouts(inner, scope, names, layouts, conflicts)


@dataclass(frozen=True, slots=True)
class Checked:
    """Refusals of a kernel; identities of scalar statements that are wrong, and of accesses."""

    refusals: list[Refusal]
    wrong: frozenset[int]
    skipped: frozenset[int]


def check_kernel(
    kernel: Kernel,
    target: str,
    version: tuple[int, int],
    via: type[Via],
    block: tuple[int, int, int] | None = None,
    faithful: bool = False,
) -> Checked:
    """All refusals of a kernel that need no values, in the order of its lines."""
    out = list(_launch(kernel, target, version, block))
    out += _declarations(kernel, version)
    walk = _Walk(kernel, via, faithful, sm_number(target), version)
    walk.run()
    out += walk.out
    if not {r.code for r in out} & {"R11", "R12", "R13", "R31"}:
        out += walk.floors()
    out += operand_layouts(kernel)[1]
    ordered = sorted(out, key=lambda r: r.line)
    return Checked(ordered, frozenset(walk.wrong), frozenset(walk.skipped))


def _launch(
    kernel: Kernel, target: str, version: tuple[int, int], block: tuple[int, int, int] | None
) -> Iterator[Refusal]:
    """R11 to R13 and R16, which matter to kernels with cooperative matrices only."""
    used = list(_components(kernel))
    number = sm_number(target)
    if number is None or parse_target(target) is None:
        known = ", ".join(TARGETS)
        yield Refusal("R11", f"target '{target}'", f"no target of PTX; there are {known}")
        return
    text = ".".join(map(str, version))
    if version not in PTX_VERSIONS:
        newest = ".".join(map(str, max(PTX_VERSIONS)))
        yield Refusal("R31", f"PTX ISA {text}", f"no such version; the newest is {newest}")
    elif version < TARGETS[target]:
        least = ".".join(map(str, TARGETS[target]))
        yield Refusal("R31", f"PTX ISA {text}", f"{target} needs a version from {least} on")
    if block is not None:
        yield from _block(block, bool(used))
    if not used:
        return
    if number < min_sm:
        yield Refusal("R12", f"target {target}", f"cooperative matrices need sm_{min_sm}")
    elif number < min_sm_int8 and any(is_8bit(c) for c in used):
        what = f"target {target}"
        yield Refusal("R13", what, f"factors of 8 bits need sm_{min_sm_int8}")
    if version < _FIRST:
        yield Refusal("R31", f"PTX ISA {text}", "matrix instructions are emitted for 6.3 and later")


def _block(block: tuple[int, int, int], cooperative: bool) -> Iterator[Refusal]:
    what, threads = f"block {block}", block[0] * block[1] * block[2]
    if min(block) < 1 or threads > 1024 or block[2] > 64:
        reason = f"{threads} threads; a block has 1 to 1024, and 64 at most in z"
        yield Refusal("R16", what, reason)
    elif cooperative and threads % 32:
        yield Refusal("R16", what, f"{threads} threads, but warps of 32 work together")


def _components(kernel: Kernel) -> Iterator[str]:
    for s in statements(kernel.body):
        match s:
            case FragmentDecl(_, f) | FragmentLoad(_, f) | FragmentStore(_, f):
                yield f.component
            case MulAdd(config=c):
                yield from (c.a, c.b, c.c, c.result)
            case _:
                pass


def _name_reason(name: str) -> str:
    """Why something cannot have a name; empty if it can."""
    if not _NAME.fullmatch(name):
        return "no name that PTX has"
    if name in KEYWORDS:
        return "the text form of kernels has this word"
    return "an intrinsic has the name" if name in INTRINSICS else ""


def _declarations(kernel: Kernel, version: tuple[int, int]) -> Iterator[Refusal]:
    """Names, types and extents of parameters and arrays."""
    if not _NAME.fullmatch(kernel.name) or kernel.name == "WARP_SZ":
        yield Refusal("R28", f"kernel '{kernel.name}'", "no name that PTX has")
    if kernel.name in ("true", "false"):
        yield Refusal("R28", f"kernel '{kernel.name}'", "the text form of kernels has this word")
    for a in kernel.arrays:
        if kernel.name in (f"shared_{a.name}", f"constant_{a.name}"):
            yield Refusal("R28", f"kernel '{kernel.name}'", f"the array '{a.name}' has this name")
    seen: set[str] = set()
    for thing in (*kernel.params, *kernel.arrays):
        what = f"'{thing.name}'"
        reason = _name_reason(thing.name)
        if reason:
            yield Refusal("R28", what, reason)
        if thing.name in seen:
            yield Refusal("R28", what, "declared twice")
        seen.add(thing.name)
        match thing:
            case Param(_, type_, buffer):
                known = tuple(ELEMENTS) if buffer else SCALARS
                align = thing.align
                if align < 1 or align & (align - 1) or align > 1024:
                    reason = f"align {align} is no power of two, 1 to 1024"
                    yield Refusal("R28", what, reason)
            case Shared(_, type_) | Local(_, type_) | Constant(_, type_):
                known = tuple(ELEMENTS)
        if type_ not in known:
            yield Refusal("R28", what, f"no type {type_} here; there are {', '.join(known)}")
    size = sum(12 if p.buffer else ELEMENTS.get(p.type, 8) // 8 for p in kernel.params)
    most = _MAX_PARAMETERS[version >= (8, 1)]
    if size > most:
        yield Refusal("R37", "parameters", f"{size} bytes, but a kernel has {most}")
    yield from _extents(kernel.arrays)


def _extents(arrays: tuple[Array, ...]) -> Iterator[Refusal]:
    dynamic = [a.name for a in arrays if isinstance(a, Shared) and a.size is None]
    if len(dynamic) > 1:
        names = " and ".join(f"'{n}'" for n in dynamic)
        yield Refusal("R37", names, "a kernel has one dynamic array in shared memory")
    totals = {"shared": 0, "constant": 0}
    for a in arrays:
        if a.size is None:
            continue
        if not 0 < a.size <= _MAX_ELEMENTS:
            yield Refusal("R37", f"'{a.name}'", f"{a.size} elements")
            return
        used = -(-a.size * ELEMENTS.get(a.element, 8) // 8)
        if isinstance(a, Shared):  # each starts at a multiple of 32 bytes at most
            totals["shared"] += -(-used // 32) * 32
        elif isinstance(a, Constant):
            totals["constant"] += used
            if a.element not in SCALARS:
                yield Refusal("R28", f"'{a.name}'", f"no constants of {a.element} can be written")
            else:
                yield from _constants(a)
    for space, limit in (("shared", _MAX_STATIC), ("constant", _MAX_CONSTANT)):
        if totals[space] > limit:
            reason = f"{totals[space]} bytes, but a kernel has {limit}"
            yield Refusal("R37", f"arrays in {space} memory", reason)


def _constants(a: Constant) -> Iterator[Refusal]:
    for value in a.values:
        try:
            type_of(Const(value, a.element), Types({}, frozenset()))
        except TypeErrors:
            yield Refusal("R28", f"'{a.name}'", f"{str(value)[:24]} is no {a.element}")


class _Walk:
    """One walk over the statements, with the names that each can see."""

    def __init__(
        self,
        kernel: Kernel,
        via: type[Via],
        faithful: bool,
        number: int | None,
        version: tuple[int, int],
    ) -> None:
        self.kernel, self.via, self.faithful = kernel, via, faithful
        self.number, self.version = number, version
        self.out: list[Refusal] = []
        self.buffers: dict[str, Param | Array] = {
            p.name: p for p in (*kernel.params, *kernel.arrays) if not _scalar(p)
        }
        self.types = Types.of(kernel)
        #: fragments that statements see, innermost block last
        self.fragments: list[dict[str, Fragment]] = []
        #: fragments of A and B that every path has loaded, by declaration
        self.loaded: set[tuple[int, str]] = set()
        self.line = 0
        self.current: Statement | None = None
        self.wrong: set[int] = set()
        self.skipped: set[int] = set()
        #: all fragments, with the line and name of the first of each kind
        self.seen: dict[Fragment, tuple[int, str]] = {}
        self.said: set[tuple[str, str]] = set()

    def add(self, code: str, what: str, reason: str, help: str = "") -> None:
        self.out.append(Refusal(code, what, reason, self.line, help))
        if isinstance(self.current, FragmentLoad | FragmentStore):
            if code in _UNKNOWABLE:
                self.skipped.add(id(self.current))
        elif code in ("R17", "R21", "R28") and self.current is not None:
            self.wrong.add(id(self.current))

    def floors(self) -> list[Refusal]:
        """Fragments that the target or the version does not have, each component once."""
        out: dict[str, Refusal] = {}
        for f, (line, name) in self.seen.items():
            needs = self.via.floor(f)
            reason = ""
            if self.number is not None and self.number < needs.sm:
                reason = f"{f.component} needs sm_{needs.sm}"
            elif self.version < needs.since:
                reason = f"{f.component} needs PTX ISA {needs.since[0]}.{needs.since[1]}"
            if reason:
                refusal = Refusal("R31", f"fragment '{name}'", reason, line)
                out.setdefault(f.component, refusal)
        return list(out.values())

    def run(self) -> None:
        needs = self._needs()
        for name, kinds in needs.items():
            if len(kinds) > 1:
                (first, _), (second, line) = list(kinds.items())[:2]
                self.line = line
                self.add("R18", f"buffer '{name}'", f"accessed as {second} here and as {first} too")
        self.needs = needs
        self.block(self.kernel.body)

    def _needs(self) -> dict[str, dict[str, int]]:
        """The element types that each buffer is accessed as, with the first line of each."""
        needs: dict[str, dict[str, int]] = {}
        for s in statements(self.kernel.body):
            if isinstance(s, FragmentLoad | FragmentStore):
                needs.setdefault(s.buffer, {}).setdefault(elt_of(s.fragment)[0], s.line)
        return needs

    # --- statements -----------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        self.fragments.append({})
        self.types.push()
        for s in block.statements:
            self.statement(s)
        self.types.pop()
        depth = len(self.fragments)
        self.loaded = {key for key in self.loaded if key[0] < depth}
        self.fragments.pop()

    def statement(self, s: Statement) -> None:
        self.line, self.current = s.line, s
        match s:
            case FragmentDecl():
                self.declare(s)
            case FragmentLoad() | FragmentStore():
                self.access(s)
            case MulAdd():
                self.muladd(s)
            case _:
                self.scalars(s)
        if not blocks(s):
            return
        before = set(self.loaded)
        after = []
        for inner in blocks(s):
            self.loaded = set(before)
            if isinstance(s, For):
                self.types.push()
                self.types.declare(s.name, "int32", False)
            self.block(inner)
            if isinstance(s, For):
                self.types.pop()
            after.append(self.loaded)
        self.loaded = self._behind(s, before, after)

    @staticmethod
    def _behind(
        s: Statement, before: set[tuple[int, str]], after: list[set[tuple[int, str]]]
    ) -> set[tuple[int, str]]:
        """What every way through a statement with blocks has loaded."""
        match s:
            case If(_, then, other):
                ways = [after[0], before if other is None else after[1]]
                ends = [_ends(then), other is not None and _ends(other)]
                left = [way for way, end in zip(ways, ends, strict=True) if not end]
                return set.intersection(*left) if left else before
            case For(_, Const(low), Const(high)) if low <= high:
                return after[0]
            case Block():
                return after[0]
            case _:  # a loop that may not run
                return before

    def scalars(self, s: Statement) -> None:
        """Types and names of statements without fragments."""
        match s:
            case Let(name, type_, value, mutable):
                self.expect(value, type_, f"value of '{name}'")
                self.name(name)
                if not self.types.declare(name, type_, mutable):
                    self.add("R28", f"'{name}'", "declared twice in one block")
            case Assign(name, value):
                known = self.types.find(name)
                if known is None:
                    self.add("R28", f"'{name}'", "not declared")
                    self.type_of(value)
                else:
                    if not known[1]:
                        self.add("R28", f"'{name}'", "not mutable")
                    self.expect(value, known[0], f"value of '{name}'")
            case Store(buffer, index, value):
                self.integer(index, f"index of '{buffer}'")
                found = self.buffers.get(buffer)
                if isinstance(found, Constant):
                    self.add("R28", f"buffer '{buffer}'", "constants cannot be stored to")
                element = self.element(buffer)
                if element is None:
                    self.type_of(value)
                else:
                    self.expect(value, element, f"element of '{buffer}'")
            case If(condition) | While(condition):
                self.expect(condition, "bool", "condition")
            case For(name, low, high):
                self.name(name)
                self.expect(low, "int32", "bound")
                self.expect(high, "int32", "bound")
            case _:
                pass

    def name(self, name: str) -> None:
        """The name of a variable or a fragment."""
        reason = _name_reason(name)
        if reason:
            self.add("R28", f"'{name}'", reason)

    def element(self, buffer: str) -> str | None:
        """The type of an element that a statement reads or writes by itself."""
        try:
            return self.types.element(buffer)
        except TypeErrors as errors:
            self.take(errors)
            return None

    def take(self, errors: TypeErrors) -> None:
        for code, what, reason in errors.found:
            self.add(code, what, reason)

    def type_of(self, expression: object) -> str | None:
        try:
            return type_of(expression, self.types)
        except TypeErrors as errors:
            self.take(errors)
            return None

    def expect(self, expression: object, type_: str, what: str) -> None:
        found = self.type_of(expression)
        if found is not None and found != type_:
            self.add("R28", what, f"is {found}, but {type_} is needed")

    def integer(self, expression: object, what: str) -> None:
        found = self.type_of(expression)
        if found is not None and found not in ("int32", "int64"):
            self.add("R28", what, f"is {found}, but int32 or int64 is needed")

    # --- fragments ------------------------------------------------------------------------------

    def find(self, name: str) -> tuple[int, Fragment] | None:
        """The fragment of a name, and the depth of the block that declares it."""
        for depth in range(len(self.fragments), 0, -1):
            if name in self.fragments[depth - 1]:
                return depth, self.fragments[depth - 1][name]
        return None

    def fragment(self, name: str, f: Fragment) -> bool:
        """R1 to R4; whether there is such a fragment."""
        found = check_fragment(f, self.faithful)
        for r in found:
            self.add(r.code, f"fragment '{name}' ({f})", r.reason)
        if not found:
            self.seen.setdefault(f, (self.line, name))
        return not found

    def declare(self, s: FragmentDecl) -> None:
        self.name(s.name)
        self.fragment(s.name, s.fragment)
        scope = self.fragments[-1]
        if s.name in scope:
            self.add("R20", f"fragment '{s.name}'", "declared twice in one block")
        scope[s.name] = s.fragment
        self.loaded.discard((len(self.fragments), s.name))

    def access(self, s: FragmentLoad | FragmentStore) -> None:
        found = self.find(s.name)
        what = f"fragment '{s.name}'"
        if found is None:
            self.add("R25", what, "not declared")
            self.fragment(s.name, s.fragment)
        elif found[1] != s.fragment:
            self.add("R27", what, f"declared as {found[1]}, here it is {s.fragment}")
        elif check_fragment(s.fragment, self.faithful):
            self.skipped.add(id(s))  # said where it is declared
        if isinstance(s, FragmentStore) and s.fragment.use != "accumulator":
            self.add("R26", what, f"a fragment of use {s.fragment.use} is stored; results are")
        if s.layout not in LAYOUTS:
            self.add("R28", what, f"no layout '{s.layout}'")
        wanted = {"a": "row", "b": "col"}.get(s.fragment.use, s.layout)
        if elt_of(s.fragment)[1] < 8 and s.layout != wanted:
            reason = f"layout {s.layout}, but {s.fragment.component} is loaded as {wanted}"
            self.add("R30", what, reason)
        if found is not None and isinstance(s, FragmentLoad):
            self.loaded.add((found[0], s.name))
        self.buffer(s, agrees=found is None or found[1] == s.fragment)
        self.integer(s.index, "index")
        self.expect(s.stride, "int32", "stride")

    def buffer(self, s: FragmentLoad | FragmentStore, agrees: bool) -> None:
        """R21 to R24: what a fragment may be loaded from or stored to."""
        buffer, what = self.buffers.get(s.buffer), f"buffer '{s.buffer}'"
        if buffer is None:
            self.add("R21", what, "no buffer of the kernel has the name")
            return
        if isinstance(buffer, Local):
            self.add("R23", what, "local memory is a thread's own, a tile belongs to a warp")
        if isinstance(buffer, Constant):
            self.add("R24", what, "matrix instructions reach global and shared memory only")
        have = elt_name(buffer.type if isinstance(buffer, Param) else buffer.element)
        need = elt_of(s.fragment)[0]
        if agrees and have != need and len(self.needs[s.buffer]) == 1:
            self.add("R22", what, f"elements {have}, but {s.fragment.component} needs {need}")

    def muladd(self, s: MulAdd) -> None:
        roles = list(zip((s.a, s.b, s.c, s.target), s.config.fragments(), "ABCD", strict=True))
        found = {name: self.find(name) for name, _, _ in roles}
        refused = check_config(s.config, self.faithful, self.via.mixes)
        declared = any(f and check_fragment(f[1], self.faithful) for f in found.values())
        for r in refused:
            if not (declared and r.code in _OF_FRAGMENTS):  # said where it is declared
                self.add(r.code, r.what, r.reason)
        if not refused:
            self.decline(s)
        for name, want, role in roles:
            known = found[name]
            if known is None:
                self.add("R25", f"fragment '{name}'", "not declared")
            elif refused or check_fragment(known[1], self.faithful):
                continue
            elif known[1] != want:
                reason = f"is {known[1]}, but {role} of the product is {want}"
                self.add("R26", f"fragment '{name}'", reason)
            elif role in "AB" and (known[0], name) not in self.loaded:
                reason = f"used as {role}, but not loaded on every way to here"
                self.add("R19", f"fragment '{name}'", reason)

    def decline(self, s: MulAdd) -> None:
        """R31 and R32, where the target and the version are not refused as a whole."""
        number, version = self.number, self.version
        if number is None or number < min_sm or version < _FIRST or version not in PTX_VERSIONS:
            return
        if number < min_sm_int8 and is_8bit(s.config.a):
            return
        declined = self.via.decline(s.config, number, version)
        if declined is not None and declined not in self.said:
            self.said.add(declined)
            self.add(declined[0], f"config '{s.config}'", declined[1])


def _ends(block: Block) -> bool:
    """Whether no thread comes out of a block."""
    return bool(block.statements) and isinstance(block.statements[-1], Return)


def _scalar(thing: Param | Array) -> bool:
    return isinstance(thing, Param) and not thing.buffer

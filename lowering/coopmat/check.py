"""Checks of a kernel before anything is emitted: fragments, configs, layouts, target, names, types.

They find everything that needs no knowledge of values, all of it in one run; what a value decides
(addresses, strides, divergence) is in :mod:`.preconditions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ptxsim.targets import PTX_VERSIONS, TARGETS, parse_target

from .forms import check_config, check_fragment, elt_name, elt_of, is_8bit, min_sm, min_sm_int8
from .ir import (
    ELEMENTS,
    SCALARS,
    Array,
    Assign,
    Block,
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
    Shared,
    Statement,
    Store,
    While,
)
from .refusals import Refusal
from .scope import TypeErrors, Types, type_of
from .via import Via
from .vocabulary import LAYOUTS, Fragment
from .walk import blocks, statements

__all__ = ["accessed_buffers", "check_kernel", "operand_layouts", "sm_number"]

_NAME = re.compile(r"[A-Za-z]\w*|_\w+", re.ASCII)
#: Bytes of static shared memory and of constant memory that a kernel can have.
_MAX_STATIC, _MAX_CONSTANT = 48 << 10, 64 << 10
_MAX_ELEMENTS = 1 << 28
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


def operand_layouts(kernel: Kernel) -> tuple[dict[str, str], list[Refusal]]:
    """The layout of every fragment of A and B that is loaded, by name, and the conflicts (R10)."""
    layouts: dict[str, str] = {}
    conflicts = []
    for s in statements(kernel.body):
        if not isinstance(s, FragmentLoad) or s.fragment.use == "accumulator":
            continue
        first = layouts.setdefault(s.name, s.layout)
        if first != s.layout:
            reason = f"loaded as {s.layout} here and as {first} before"
            cure = "declare a second fragment"
            conflicts.append(Refusal("R10", f"fragment '{s.name}'", reason, s.line, cure))
    return layouts, conflicts


def check_kernel(
    kernel: Kernel,
    target: str,
    version: tuple[int, int],
    via: type[Via],
    block: tuple[int, int, int] | None = None,
    faithful: bool = False,
) -> list[Refusal]:
    """All refusals of a kernel that need no values, in the order of its lines."""
    out = list(_launch(kernel, target, version, block))
    out += _declarations(kernel)
    number = sm_number(target)
    walk = _Walk(kernel, via, faithful, number, version)
    walk.run()
    out += walk.out
    out += operand_layouts(kernel)[1]
    return sorted(out, key=lambda r: r.line)


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


def _declarations(kernel: Kernel) -> Iterator[Refusal]:
    """Names, types and extents of parameters and arrays."""
    if not _NAME.fullmatch(kernel.name):
        yield Refusal("R28", f"kernel '{kernel.name}'", "no name that PTX has")
    seen: set[str] = set()
    for thing in (*kernel.params, *kernel.arrays):
        what = f"'{thing.name}'"
        if not _NAME.fullmatch(thing.name):
            yield Refusal("R28", what, "no name that PTX has")
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
            elif a.element.startswith("int"):
                yield from _constants(a)
    for space, limit in (("shared", _MAX_STATIC), ("constant", _MAX_CONSTANT)):
        if totals[space] > limit:
            reason = f"{totals[space]} bytes, but a kernel has {limit}"
            yield Refusal("R37", f"arrays in {space} memory", reason)


def _constants(a: Constant) -> Iterator[Refusal]:
    bits = ELEMENTS[a.element]
    for value in a.values:
        if not isinstance(value, int) or not -(1 << bits - 1) <= value < 1 << bits - 1:
            yield Refusal("R28", f"'{a.name}'", f"{value} is no {a.element}")


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

    def add(self, code: str, what: str, reason: str, help: str = "") -> None:
        self.out.append(Refusal(code, what, reason, self.line, help))

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
        self.line = s.line
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
        if isinstance(s, If) and s.other is not None:
            self.loaded = after[0] & after[1]
        elif isinstance(s, Block):
            self.loaded = after[0]
        else:  # a branch that may not be taken, a loop that may not run
            self.loaded = before

    def scalars(self, s: Statement) -> None:
        """Types and names of statements without fragments."""
        match s:
            case Let(name, type_, value, mutable):
                self.expect(value, type_, f"value of '{name}'")
                if not _NAME.fullmatch(name):
                    self.add("R28", f"'{name}'", "no name that PTX has")
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
            case For(_, low, high):
                self.expect(low, "int32", "bound")
                self.expect(high, "int32", "bound")
            case _:
                pass

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

    def fragment(self, f: Fragment) -> None:
        for r in check_fragment(f, self.faithful):
            self.add(r.code, r.what, r.reason)

    def declare(self, s: FragmentDecl) -> None:
        self.fragment(s.fragment)
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
            self.fragment(s.fragment)
        elif found[1] != s.fragment:
            self.add("R27", what, f"declared as {found[1]}, here it is {s.fragment}")
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
        what = f"config '{s.config}'"
        refused = check_config(s.config, self.faithful, self.via.mixes)
        for r in refused:
            self.add(r.code, r.what, r.reason)
        if not refused and self.number is not None and self.number >= min_sm:
            said = (
                self.version < _FIRST
                or self.version not in PTX_VERSIONS
                or (  # by R31, or by R13
                    self.number < min_sm_int8 and is_8bit(s.config.a)
                )
            )
            if not said:
                reason = self.via.decline(s.config, self.number, self.version)
                code = "R31" if "needs" in reason or "ended" in reason else "R32"
                if reason:
                    self.add(code, what, reason)
        a, b, c, d = s.config.fragments()
        for name, want, role in ((s.a, a, "A"), (s.b, b, "B"), (s.c, c, "C"), (s.target, d, "D")):
            found = self.find(name)
            if found is None:
                self.add("R25", f"fragment '{name}'", "not declared")
            elif refused:
                continue
            elif found[1] != want:
                reason = f"is {found[1]}, but {role} of the product is {want}"
                self.add("R26", f"fragment '{name}'", reason)
            elif role in "AB" and (found[0], name) not in self.loaded:
                reason = f"used as {role}, but not loaded on every way to here"
                self.add("R19", f"fragment '{name}'", reason)


def _scalar(thing: Param | Array) -> bool:
    return isinstance(thing, Param) and not thing.buffer

"""A builder of PTX kernels: typed registers, labels, and every instruction checked when written.

What it makes is legal by the same records that assemble PTX text; an instruction that is not raises
:class:`ptxsim.PtxError` at the call that writes it.

>>> k = Kernel("twice", target="sm_80")
>>> p = k.parameter("x", "u64")
>>> at, v = k.register("b64"), k.register("f32")
>>> k.emit("ld.param.u64", at, Address(p))
>>> k.emit("ld.global.f32", v, Address(at, 4))
>>> k.emit("add.f32", v, v, v)
>>> k.emit("st.global.f32", Address(at, 4), v)
>>> print(k.text().splitlines()[-3].strip())
st.global.f32 [%rd0+4], %f0;
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from .errors import UsageError
from .resolve import InstructionChecker
from .syntax import parse_statement
from .syntax.comments import TAG_NAME
from .syntax.printer import statement_text
from .targets import PTX_VERSIONS, TARGETS, parse_target
from .types import SCALAR_TYPES

if TYPE_CHECKING:
    from .api import Module

__all__ = [
    "Address",
    "Kernel",
    "Label",
    "Negated",
    "Operand",
    "Register",
    "Special",
    "Variable",
]

#: Register prefixes by type, as compilers choose them.
_PREFIX = {
    "pred": "p", "b8": "b", "b16": "h", "b32": "r", "b64": "rd", "b128": "rq", "f16": "h",
    "f32": "f", "f64": "fd", "u16": "h", "s16": "h", "u32": "r", "s32": "r", "u64": "rd",
    "s64": "rd", "f16x2": "r",
}  # fmt: skip


#: Bytes of static shared memory that a kernel can have.
_MAX_STATIC = 48 << 10


@dataclass(frozen=True, slots=True)
class Register:
    """A register of the kernel."""

    name: str
    type: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable or parameter of the kernel; as an operand it is its address."""

    name: str
    space: str
    type: str
    #: elements; 0 for dynamic shared memory, whose extent the launch chooses
    count: int
    align: int
    #: initial values, in constant memory
    values: tuple[int | float, ...] = ()

    def __str__(self) -> str:
        return self.name

    @property
    def size(self) -> int:
        """Bytes."""
        return self.count * SCALAR_TYPES[self.type].size

    @property
    def dynamic(self) -> bool:
        """Whether it is dynamic shared memory."""
        return self.space == "shared" and not 0 < self.size <= _MAX_STATIC


@dataclass(frozen=True, slots=True)
class Label:
    """A place in the kernel to branch to."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Negated:
    """The opposite of a predicate, where an operand may be that."""

    predicate: Register

    def __str__(self) -> str:
        return f"!{self.predicate}"


@dataclass(frozen=True, slots=True)
class Special:
    """A special register, such as ``%tid.x``."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Address:
    """``[base+offset]``; the offset is in bytes."""

    base: Register | Variable
    offset: int = 0

    def __str__(self) -> str:
        return f"[{self.base}+{self.offset}]" if self.offset else f"[{self.base}]"


Operand: TypeAlias = (
    "Register | Negated | Variable | Label | Special | Address | int | float | tuple[Operand, ...]"
)


@dataclass
class Kernel:
    """One entry; ``version`` defaults to PTX ISA 8.0 or the one that introduced the target."""

    name: str
    target: str = "sm_80"
    version: tuple[int, int] | None = None
    #: comment lines before the first directive, without the slashes
    header: list[str] = field(default_factory=list)
    #: threads of a CTA in x, y and z, where the kernel is right for these alone
    reqntid: tuple[int, int, int] | None = None

    def __post_init__(self) -> None:
        target = parse_target(self.target)
        if target is None:
            raise UsageError(f"unknown target '{self.target}'; known: {', '.join(TARGETS)}")
        if self.version is None:
            self.version = max((8, 0), TARGETS[self.target])
        if self.version not in PTX_VERSIONS:
            raise UsageError(f"PTX ISA version {self.version[0]}.{self.version[1]} does not exist")
        self._checker = InstructionChecker(self.version, target, 64)
        self._counts: dict[str, int] = {}
        #: the numbers of the registers of each type
        self._declared: dict[str, list[int]] = {}
        self._parameters: list[tuple[Variable, str]] = []
        self._arrays: list[Variable] = []
        self._body: list[str] = []
        self._labels = 0

    # --- names ----------------------------------------------------------------------------------

    def parameter(self, name: str, type_: str, pointer: str = "", align: int = 0) -> Variable:
        """Declare the next parameter; ``pointer`` is the space that it points to (``.ptr``).

        ``align`` is the promised alignment of the address it points to, in bytes.
        """
        variable = Variable(name, "param", type_, 1, SCALAR_TYPES[type_].size)
        attribute = f" .ptr .{pointer}" if pointer else ""
        attribute += f" .align {align}" if pointer and align else ""
        self._parameters.append((variable, attribute))
        self._checker.variable(name, "param", type_, 1, variable.align)
        return variable

    def shared(self, name: str, count: int | None, align: int = 16, type_: str = "b8") -> Variable:
        """Declare an array in shared memory: static up to 48 KiB, else dynamic.

        Without a ``count`` the launch chooses the size; with one it must give
        :attr:`dynamic_shared` bytes.  A kernel has one dynamic array at most.
        """
        variable = Variable(name, "shared", type_, count or 0, align)
        if variable.dynamic and any(v.dynamic for v in self._arrays):
            raise UsageError("a kernel has one dynamic array in shared memory")
        return self._array(variable)

    def local(self, name: str, count: int, align: int, type_: str = "b8") -> Variable:
        """Declare an array that each thread has for itself."""
        return self._array(Variable(name, "local", type_, count, align))

    def constant(
        self, name: str, values: tuple[int | float, ...], align: int, type_: str
    ) -> Variable:
        """Declare an array in constant memory with its values."""
        return self._array(Variable(name, "const", type_, len(values), align, values))

    def _array(self, variable: Variable) -> Variable:
        v = variable
        self._arrays.append(v)
        self._checker.variable(v.name, v.space, v.type, v.count, v.align)
        return v

    @property
    def dynamic_shared(self) -> int:
        """Bytes of dynamic shared memory that a launch must give, as far as they are known."""
        return sum(v.size for v in self._arrays if v.dynamic)

    def register(self, type_: str) -> Register:
        """A new register."""
        if type_ not in _PREFIX:
            raise UsageError(f"no register has type '{type_}'; known: {', '.join(_PREFIX)}")
        prefix = _PREFIX[type_]
        number = self._counts.get(prefix, 0)
        self._counts[prefix] = number + 1
        register = Register(f"%{prefix}{number}", type_)
        self._declared.setdefault(type_, []).append(number)
        self._checker.register(register.name, type_)
        return register

    def registers(self, type_: str, count: int) -> tuple[Register, ...]:
        """``count`` new registers."""
        return tuple(self.register(type_) for _ in range(count))

    def label(self, prefix: str = "L") -> Label:
        """A new label; :meth:`place` puts it."""
        label = Label(f"${prefix}_{self._labels}")
        self._labels += 1
        self._checker.label(label.name)
        return label

    # --- body -----------------------------------------------------------------------------------

    def place(self, label: Label) -> None:
        """Put a label here."""
        self._body.append(f"{label}:")

    @contextmanager
    def writing(self, lines: list[str]) -> Iterator[None]:
        """Collect what is written meanwhile in ``lines``; :meth:`append` puts them."""
        before, self._body = self._body, lines
        try:
            yield
        finally:
            self._body = before

    def append(self, lines: Sequence[str]) -> None:
        """Put lines here that were collected."""
        self._body += lines

    def comment(self, text: str) -> None:
        """Put a comment line here."""
        self._body += [f"    // {line}" for line in text.splitlines()]

    def emit(
        self,
        opcode: str,
        *operands: Operand,
        guard: Register | None = None,
        unless: bool = False,
        tag: str = "",
    ) -> None:
        """Write an instruction; ``guard`` is its predicate, negated with ``unless``.

        Executions of an instruction with a ``tag`` are counted (tool ``advice``).
        """
        if tag and not TAG_NAME.fullmatch(tag):
            raise UsageError(f"'{tag}' is no name of a tag: [a-z][a-z0-9_.-]*")
        words = ", ".join(_text(o, opcode) for o in operands)
        prefix = "" if guard is None else f"@{'!' if unless else ''}{guard} "
        text = f"{prefix}{opcode} {words};" if words else f"{prefix}{opcode};"
        node = parse_statement(text)
        self._checker.check(node, text)
        comment = f"  // tag: {tag}" if tag else ""
        self._body.append(f"    {statement_text(node)}{comment}")

    def new(self, opcode: str, type_: str, *operands: Operand, tag: str = "") -> Register:
        """Write an instruction whose first operand is a new register, and return that."""
        register = self.register(type_)
        self.emit(opcode, register, *operands, tag=tag)
        return register

    # --- results --------------------------------------------------------------------------------

    def body_text(self) -> str:
        """The instructions alone."""
        return "\n".join(self._body) + "\n"

    def declarations(self) -> str:
        """The declarations of registers, and of arrays in shared and local memory."""
        lines = []
        for type_, numbers in self._declared.items():
            prefix = _PREFIX[type_]
            if len(numbers) == self._counts[prefix]:  # no other type shares the prefix
                lines.append(f"    .reg .{type_} %{prefix}<{len(numbers)}>;")
                continue
            names = [f"%{prefix}{n}" for n in numbers]
            lines += [
                f"    .reg .{type_} {', '.join(names[i : i + 12])};"
                for i in range(0, len(names), 12)
            ]
        lines += [
            f"    .{v.space} .align {v.align} .{v.type} {v.name}[{v.count}];"
            for v in self._arrays
            if v.space != "const" and not v.dynamic
        ]
        return "\n".join(lines) + "\n" if lines else ""

    def text(self) -> str:
        """The whole module."""
        assert self.version is not None
        parameters = ",\n".join(f"    .param .{p.type}{a} {p.name}" for p, a in self._parameters)
        head = "".join(f"// {line}\n" for line in self.header)
        arrays = "".join(_module_array(v) for v in self._arrays)
        threads = ""
        if self.reqntid is not None:
            threads = f".reqntid {', '.join(map(str, self.reqntid))}\n"
        return (
            f"{head}.version {self.version[0]}.{self.version[1]}\n.target {self.target}\n"
            f".address_size 64\n\n{arrays}.visible .entry {self.name}(\n{parameters}\n)\n"
            f"{threads}{{\n"
            f"{self.declarations()}\n{self.body_text()}    ret;\n}}\n"
        )

    def assemble(self) -> Module:
        """The assembled module."""
        from .api import assemble

        return assemble(self.text(), name=f"{self.name}.ptx")


def _module_array(v: Variable) -> str:
    """The declaration of an array outside of the kernel, or nothing."""
    if v.dynamic:
        return f".extern .shared .align {v.align} .{v.type} {v.name}[];\n"
    if v.space == "const":
        values = ", ".join(_text(x, f".{v.type}") for x in v.values)
        return f".const .align {v.align} .{v.type} {v.name}[{v.count}] = {{{values}}};\n"
    return ""


def _text(operand: Operand, opcode: str) -> str:
    if isinstance(operand, tuple):
        return "{" + ", ".join(_text(o, opcode) for o in operand) + "}"
    if isinstance(operand, bool):
        raise UsageError(f"{operand} is no operand of {opcode}; give an integer")
    if isinstance(operand, float):
        if ".f64" in opcode:
            return f"0d{struct.unpack('<Q', struct.pack('<d', operand))[0]:016X}"
        return f"0f{struct.unpack('<I', struct.pack('<f', operand))[0]:08X}"
    return str(operand)

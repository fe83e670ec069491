"""Names: what each stands for, scope by scope (PTX ISA 9.1, Identifiers; Variables)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..diagnostics import Diagnostic, Span, did_you_mean
from .typed import FunctionRef, LabelRef, LabelTable, PrototypeRef, Register, Symbol

__all__ = ["CallTable", "Entity", "Log", "Scope", "VectorRegister"]


@dataclass(frozen=True, slots=True)
class VectorRegister:
    """A ``.v2`` or ``.v4`` register: its components in order x y z w."""

    name: str
    elements: tuple[Register, ...]


@dataclass(frozen=True, slots=True)
class CallTable:
    """A ``.calltargets`` list."""

    name: str
    targets: tuple[str, ...]


Entity = (
    Register
    | VectorRegister
    | Symbol
    | FunctionRef
    | LabelRef
    | LabelTable
    | PrototypeRef
    | CallTable
)


@dataclass
class Log:
    """Diagnostics of a resolve run, up to a limit."""

    limit: int = 50
    items: list[Diagnostic] = field(default_factory=list)

    def error(
        self,
        code: str,
        message: str,
        span: Span,
        help: str | None = None,
        notes: tuple[tuple[str, Span | None], ...] = (),
    ) -> None:
        """Add an error."""
        if len(self.items) < self.limit:
            self.items.append(Diagnostic(code, message, span, help=help, notes=notes))


class Scope:
    """A nested name space; inner names hide outer ones."""

    def __init__(self, parent: Scope | None = None) -> None:
        self.parent = parent
        self.names: dict[str, Entity] = {}
        #: the ``name`` of each range ``name<count>``
        self.ranges: set[str] = set()

    def find(self, name: str) -> Entity | None:
        """What the name stands for, seen from here."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return None

    def __iter__(self) -> Iterator[str]:
        scope: Scope | None = self
        while scope is not None:
            yield from scope.names
            scope = scope.parent

    def declare(self, name: str, entity: Entity, span: Span, log: Log) -> None:
        """Add a name; a second declaration in the same scope is an error, told once for a range."""
        if name in self.names:
            if log.items and log.items[-1].span == span and log.items[-1].code == "PTX102":
                return
            log.error("PTX102", f"'{name}' is already declared in this scope", span)
            return
        self.names[name] = entity

    def declare_range(self, stem: str, span: Span, log: Log) -> None:
        """Note a range ``stem<count>``, whose names are declared one by one; it may be empty."""
        if stem in self.ranges:
            log.error("PTX102", f"'{stem}<>' is already declared in this scope", span)
        self.ranges.add(stem)

    def unknown(self, name: str, span: Span, log: Log, what: str = "symbol") -> None:
        """Report a name that nothing declares."""
        log.error("PTX101", f"unknown {what} '{name}'", span, help=did_you_mean(name, self))

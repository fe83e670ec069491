"""Choosing among the variants of a lowering, and saying why one was not chosen.

A variant plans a problem or declines it with a reason that names the numbers that decided.  They
are tried by priority, highest first, then by name; when all decline the error is the whole table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

__all__ = ["Decline", "Declined", "Variant", "choose"]

P = TypeVar("P", contravariant=True)
R = TypeVar("R", covariant=True)
Q = TypeVar("Q")
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Decline:
    """Why a variant does not apply: a stable code, a sentence, the numbers, and a cure."""

    code: str
    message: str
    help: str = ""
    numbers: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" + (f" ({self.help})" if self.help else "")


class Variant(Protocol[P, R]):
    """One way to lower a problem."""

    @property
    def name(self) -> str: ...

    @property
    def priority(self) -> int: ...

    def plan(self, problem: P) -> R | Decline:
        """What would be emitted, or the reason why nothing is."""


class Declined(Exception, Generic[Q]):
    """No variant applies; ``declines`` has the reason of each by name."""

    def __init__(self, what: str, declines: Mapping[str, Decline]) -> None:
        self.declines = dict(declines)
        width = max(map(len, declines), default=0)
        rows = [f"  {name.ljust(width)}  {reason}" for name, reason in declines.items()]
        super().__init__("\n".join([f"no variant lowers {what}:", *rows]))


def choose(
    problem: Q, variants: Sequence[Variant[Q, S]], what: str, only: str | None = None
) -> tuple[S, dict[str, Decline]]:
    """The plan of the first variant that applies, and the declines before it.

    ``only`` names the one variant to try.  :class:`Declined` if none applies.
    """
    ordered = sorted(variants, key=lambda v: (-v.priority, v.name))
    if only is not None:
        ordered = [v for v in ordered if v.name == only]
        if not ordered:
            known = ", ".join(sorted(v.name for v in variants))
            raise ValueError(f"no variant '{only}'; there are: {known}")
    declines: dict[str, Decline] = {}
    for variant in ordered:
        plan = variant.plan(problem)
        if not isinstance(plan, Decline):
            return plan, declines
        declines[variant.name] = plan
    raise Declined(what, declines)

"""A barrier instruction as a group executes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..isa.protocol import Array, Site
from ..program import Block

__all__ = ["Arrival"]


@dataclass(frozen=True, slots=True)
class Arrival:
    """One barrier instruction as executed by a group.

    ``count`` is the number of threads, None for all of the CTA.  ``reduce`` names popc, and, or
    for ``bar.red``, ``predicate`` is its source, and ``write`` stores the result.
    """

    barrier: int
    count: int | None
    waits: bool
    after: Block
    site: Site
    reduce: str = ""
    predicate: Array | None = None
    write: Callable[[Any, Array], None] | None = None

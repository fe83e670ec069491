"""What a set of matrix instructions must answer so that cooperative matrices can be lowered to it.

There are two: ``wmma`` and ``mma``.  An object of either class belongs to one kernel that is being
built and writes its instructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from ptxsim.build import Register

from .forms import Floor
from .vocabulary import Config, Fragment

__all__ = ["Tile", "Via"]


@dataclass(frozen=True, slots=True)
class Tile:
    """A fragment's elements in memory: (0, 0) at ``address``, lines ``stride`` elements apart."""

    fragment: Fragment
    layout: str
    #: ``global`` or ``shared``
    space: str
    #: a b64 register, for shared memory too
    address: Register
    #: a b32 register, or a constant
    stride: Register | int


class Via(Protocol):
    """One set of instructions, writing into one kernel."""

    name: ClassVar[str]
    #: whether lines without gaps are allowed even where they are shorter than the alignment
    packs: ClassVar[bool]
    #: whether A and B may differ in sign
    mixes: ClassVar[bool]

    @classmethod
    def floor(cls, fragment: Fragment) -> Floor:
        """From where on there is a fragment that :func:`check_fragment` lets pass."""

    @classmethod
    def decline(
        cls, config: Config, target: int, version: tuple[int, int]
    ) -> tuple[str, str] | None:
        """The code of a refusal and the reason why a config cannot be computed on a target number,
        or None."""

    @classmethod
    def registers(cls, fragment: Fragment) -> tuple[str, int]:
        """Type and number of the registers that hold a fragment in each lane."""

    @classmethod
    def alignment(cls, fragment: Fragment, layout: str, space: str, store: bool) -> int:
        """Bytes of which the address and the stride must be multiples, by the PTX ISA."""

    def load(self, tile: Tile, registers: Sequence[Register]) -> None:
        """Write the load of a fragment."""

    def store(self, tile: Tile, registers: Sequence[Register]) -> None:
        """Write the store of an accumulator."""

    def muladd(
        self,
        config: Config,
        layouts: tuple[str, str],
        d: Sequence[Register],
        a: Sequence[Register],
        b: Sequence[Register],
        c: Sequence[Register],
    ) -> None:
        """Write ``d = a * b + c``; ``layouts`` are those that A and B were loaded with."""

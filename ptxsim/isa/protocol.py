"""What an instruction may ask for when it is bound, and of the lanes that run it.

The machine implements both protocols; records see nothing else of it.

Values are NumPy arrays of unsigned bit patterns whose last axis is the lane.  An array of length
1 on that axis holds one value for all lanes.  No array is ever changed after it was handed over:
a register is written by putting another array in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..targets import Target
from .order import MemoryOrder
from .record import Mods

__all__ = [
    "Array",
    "Binder",
    "BoolArray",
    "Lanes",
    "Registers",
    "Site",
    "Step",
    "Unknown",
    "WarpView",
    "no_effect",
]

Array: TypeAlias = NDArray[Any]
BoolArray: TypeAlias = NDArray[np.bool_]
#: The register file of a group of lanes: one array a register.
Registers: TypeAlias = "list[Array]"


#: The undefined bits of a register, as a mask of its shape, and by lane where they came from.
Unknown: TypeAlias = "tuple[Array, Array]"


class Site(Protocol):
    """The instruction that acts, for messages; and its order in the memory model."""

    @property
    def text(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...
    @property
    def order(self) -> MemoryOrder: ...


class WarpView(Protocol):
    """The lanes of a group arranged as ``[warp, 32]``."""

    #: bool [W, 32]: the lane is here now
    present: BoolArray
    #: uint32 [W]: bit mask of the lanes here now
    present_bits: Array
    #: uint32 [W]: the same, with lanes that wait at another instruction of the same name
    met_bits: Array
    #: uint32 [W]: bit mask of the lanes of the warp that have not exited
    live_bits: Array

    def spread(self, value: Array) -> Array:
        """A lane value as [..., W, 32]; places without a lane are unspecified."""

    def collect(self, value: Array) -> Array:
        """The inverse: [..., W, 32] to lanes."""


class Lanes(Protocol):
    """A group of lanes that stand at the same instruction."""

    #: length of the lane axis; may count lanes that have left (see ``mask``)
    n: int
    #: the undefined bits of registers that have any, where those are followed
    undefined: dict[int, Unknown]
    #: the undefined bits of what is stored next, for each element
    storing: list[Unknown | None] | None

    @property
    def watch(self) -> Any:
        """What a check wants to be told (:class:`ptxsim.machine.watch.Watch`), or None."""

    def mask(self, guard: Array | None) -> BoolArray | None:
        """Which lanes act: None for all; ``guard`` is a predicate value."""

    def full(self, value: Array) -> Array:
        """The value with its lane axis at full length."""

    def special(self, name: str) -> Array:
        """A special register."""

    def load(
        self, space: str, address: Array, size: int, count: int, mask: BoolArray | None, site: Site
    ) -> list[Array]:
        """``count`` consecutive elements of ``size`` bytes as bit patterns (16: two uint64 rows).

        Where ``mask`` is false the elements are unspecified.  Misalignment of the whole access
        and bounds are checked; ``space`` may be ``generic``.  Undefined bits of what was read are
        left for :meth:`take_loaded`.
        """

    def store(
        self,
        space: str,
        address: Array,
        size: int,
        values: Sequence[Array],
        mask: BoolArray | None,
        site: Site,
    ) -> None:
        """Store consecutive elements of ``size`` bytes; the counterpart of ``load``."""

    def discard(self, space: str, address: Array, mask: BoolArray | None, site: Site) -> None:
        """Make cache lines of global memory undefined until they are written again."""

    def atomic(
        self,
        space: str,
        address: Array,
        size: int,
        operation: Callable[..., Array],
        elements: Sequence[Sequence[Array]],
        mask: BoolArray | None,
        site: Site,
        scan: str = "",
    ) -> list[Array]:
        """Apply ``new = operation(old, *operands)`` lane after lane; the values each lane saw.

        ``elements`` has the operands of consecutive elements of ``size`` bytes, each of which is
        accessed atomically by itself; alignment and bounds are those of all of them.  ``scan``
        names an associative operation (``add``, ``min_u``, ...) for which colliding lanes may be
        combined; without it they are served in rounds.
        """

    def warps(self) -> WarpView:
        """The lanes arranged by warp."""

    def finding(
        self,
        class_: str,
        message: str,
        site: Site,
        lanes: BoolArray | None = None,
        *,
        help: str | None = None,
        fatal: bool = False,
        **values: Any,
    ) -> None:
        """Report; ``lanes`` is a mask over the lane axis; ``fatal`` ends the launch (a trap)."""

    def mark(self, place: int, unknown: Unknown | None, mask: BoolArray | None) -> None:
        """A register was written in the lanes of a mask: these of its bits are undefined now."""

    def observe(self, unknown: Unknown, mask: BoolArray | None, site: Site, name: str = "") -> None:
        """Undefined bits of the register ``name`` matter: a finding in the lanes of a mask."""

    def from_memory(self, origin: Array) -> BoolArray:
        """For origins of undefined bits: whether they were loaded."""

    def describe_origin(
        self, number: int, site: Site, lanes: Array, describe: Callable[[int], str]
    ) -> None:
        """Say which lane of the warp gave ``site`` the address that a lane's undefined bits are
        from (-1: none are), and what lies there."""

    def absent(self, lanes: BoolArray, given: Array, site: Site) -> Unknown | None:
        """The undefined bits (of 32) of values that lanes take from lanes of their warp which do
        not take part; None where undefined bits are not followed."""

    def undefined_result(
        self, lanes: BoolArray, bits: int, site: Site, fault: str
    ) -> Unknown | None:
        """The undefined bits (all of ``bits``) of results that the ISA does not define; None where
        undefined bits are not followed."""

    def take_loaded(self) -> list[Unknown | None] | None:
        """The undefined bits of the elements of the last load; None if it read none."""

    def service(self, name: str) -> Any:
        """A part of the machine by name: ``async_copies``, ``bulk_copies``, ``mbarriers``, ..."""


Step: TypeAlias = Callable[[Registers, Any], None]


def no_effect(r: Registers, g: Any) -> None:
    """The step of an instruction that changes no value: a hint, or an order."""


class Binder(Protocol):
    """Binds one instruction of a program to places in the register file."""

    @property
    def mods(self) -> Mods:
        """The modifiers."""

    @property
    def site(self) -> Site:
        """The instruction, for messages."""

    @property
    def target(self) -> Target:
        """The target of the module."""

    @property
    def watched(self) -> bool:
        """Whether a check listens; steps then tell ``g.watch`` what it cannot see."""

    @property
    def wmma_rule(self) -> str:
        """Whose alignment rule wmma loads and stores have: ``ptx`` or ``cuda``."""

    def source(self, name: str, width: int | None = None) -> int:
        """The place of a source operand; constants and special registers get places of their own.

        ``width`` asks for a bit pattern of another width (truncated or zero-extended).
        """

    def sources(self, name: str) -> list[int]:
        """The places of the elements of a brace group (or of a plain operand)."""

    def has(self, name: str) -> bool:
        """Whether an optional operand is there."""

    def constant(self, name: str) -> int:
        """The value of an operand that is a constant."""

    def guard(self) -> Callable[[Registers], Array | None]:
        """Reads the guard (negation applied); None for an instruction without one."""

    def pure(self, function: Callable[..., Any]) -> Step:
        """A step for a function of the sources, in operand order, to the destinations."""

    def address(self, name: str) -> Callable[[Registers, Any], Array]:
        """Reads the address of an address operand, offset added."""

    def unknown(self, name: str) -> Callable[[Registers, Any], list[Unknown | None] | None]:
        """Reads the undefined bits of the elements of a source; None if there are none."""

    def marks(self, name: str) -> list[Callable[[Any, Unknown | None, BoolArray | None], None]]:
        """Say which bits of the elements of a destination are undefined in the lanes of a mask."""

    def mark_second(self, name: str) -> Callable[[Any, Unknown | None, BoolArray | None], None]:
        """The same for the predicate of a pair."""

    def observer(self, name: str) -> Callable[[Registers, Any, BoolArray | None], None]:
        """A check that an operand has no undefined bits in the lanes of a mask (None: all)."""

    def register_names(self, name: str) -> list[str]:
        """The names of the elements of an operand, empty for those that are no registers."""

    def write(self, name: str) -> Callable[[Registers, Array, BoolArray | None], None]:
        """Writes a plain destination where a mask is true (None: all lanes)."""

    def writes(self, name: str) -> list[Callable[[Registers, Array, BoolArray | None], None]]:
        """The same for the elements of a brace group."""

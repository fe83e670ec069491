"""Pure instructions whose result the ISA leaves undefined for some values of their sources."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from .protocol import Binder, BoolArray, Registers, Step
from .record import Mods, Pure

__all__ = ["Partial"]


class Partial(Pure):
    """A pure instruction that has no result for some sources.

    The value there is a choice of ours, and undefined: a finding where it comes to matter.
    """

    loses = True
    traps = ("undefined-result",)
    #: The sources that decide, in the order in which ``unspecified`` takes them.
    deciding: ClassVar[tuple[str, ...]] = ("a", "b")
    #: The destination.
    result: ClassVar[str] = "d"
    #: What is wrong with such sources, as the end of a sentence about the instruction.
    fault: ClassVar[str]

    @abstractmethod
    def unspecified(self, m: Mods) -> Callable[..., BoolArray] | None:
        """The function of the deciding sources to where the result is undefined, None: nowhere."""

    def bind(self, b: Binder) -> Step:
        step = super().bind(b)
        where = self.unspecified(b.mods)
        if where is None:
            return step
        places = [b.source(name) for name in self.deciding]
        (mark,) = b.marks(self.result)
        bits = self.type_of("type", b.mods).bits
        guard, site, fault = b.guard(), b.site, self.fault

        def lose(r: Registers, g: Any, lanes: BoolArray) -> None:
            mask = g.mask(guard(r))
            if mask is not None:
                lanes = lanes & mask
            if lanes.any():
                unknown = g.undefined_result(lanes, bits, site, fault)
                if unknown is not None:
                    mark(g, unknown, lanes)

        def partial_step(r: Registers, g: Any) -> None:
            lost = where(*(r[p] for p in places))
            step(r, g)
            if lost.any():
                lose(r, g, np.broadcast_to(lost, (g.n,)))

        return partial_step

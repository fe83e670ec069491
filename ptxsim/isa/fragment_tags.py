"""Which wmma fragment a register holds: a tag beside the register, lane by lane.

PTX ISA 9.1, Warp Level Matrix Instructions (wmma): fragments are opaque, and the result is defined
only when a fragment is used with the shape, use, type and layout it was loaded with.  A tag says
which register of which fragment a lane holds; 0 stands for any other value (a constant that fills
an accumulator, a scaled accumulator), which may be used anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .protocol import Array, Registers

__all__ = ["Held", "describe_tag", "fragment_reader", "fragment_writer"]

_SIZE = 16  # registers of the largest fragment, rounded up


@dataclass(frozen=True, slots=True)
class Held:
    """A fragment: use a, b or c (which C and D share), shape, element type, layout of A or B."""

    use: str
    shape: str
    type: str
    layout: str

    @staticmethod
    def of(use: str, shape: str, type_: str, layout: str = "") -> Held:
        """The fragment of an operand; the accumulator's does not depend on a layout."""
        return Held(use, shape, type_, layout) if use in "ab" else Held("c", shape, type_, "")

    def __str__(self) -> str:
        name = "accumulator" if self.use == "c" else f"matrix {self.use}"
        return f"{name} .{self.shape}.{self.type}" + (f".{self.layout}" if self.layout else "")


_NUMBERS: dict[Held, int] = {}


def _first_tag(held: Held) -> int:
    """The tag of the first register of a fragment; the others follow."""
    return _SIZE * (1 + _NUMBERS.setdefault(held, len(_NUMBERS)))


def describe_tag(tag: int) -> str:
    """What a tag other than 0 says, for messages."""
    number, register = divmod(tag, _SIZE)
    return f"register {register} of the fragment {list(_NUMBERS)[number - 1]}"


def fragment_writer(b: Any, name: str, held: Held) -> Callable[[Registers], None]:
    """A function that tags the registers of operand ``name`` as holding a fragment."""
    first = _first_tag(held)
    tags = [(p, np.array([first + i], np.int32)) for i, p in enumerate(b.tags(name)) if p >= 0]

    def write(r: Registers) -> None:
        for place, tag in tags:
            r[place] = tag

    return write


def fragment_reader(
    b: Any, name: str, held: Held, observes: bool = True
) -> Callable[[Registers, Any], None]:
    """A check that the registers of operand ``name`` hold a fragment or plain values.

    If it ``observes`` them, undefined bits of what was loaded matter too.
    """
    first = _first_tag(held)
    places = b.tags(name)
    names = b.register_names(name)
    unknown = b.unknown(name)
    site = b.site

    def report(g: Any, bad: Array, message: str, help_: str) -> None:
        g.finding("wmma-fragment", message, site, g.full(bad), help=help_)

    def check(r: Registers, g: Any) -> None:
        for i, entry in enumerate(unknown(r, g) or () if g.undefined else ()):
            if entry is None:
                continue
            loaded = g.full(g.from_memory(entry[1]))
            never = g.full(entry[0] != 0) & ~loaded
            if never.any():
                report(
                    g, never,
                    f"'{site.text}' reads {held}, but {names[i]} was never loaded in these lanes",
                    "load the fragment, or fill all its registers, on every path that leads here",
                )  # fmt: skip
            if observes:
                g.observe(entry, loaded, site, names[i])
        for i, place in enumerate(places):
            if place < 0:
                continue
            tag = r[place]
            bad = (tag != 0) & (tag != first + i)
            if bad.any():
                holds = describe_tag(int(tag[np.flatnonzero(bad)[0]]))
                report(
                    g, bad,
                    f"'{site.text}' reads {names[i]} as register {i} of the fragment {held}, but it"
                    f" holds {holds}",
                    "use a fragment with the shape, use, type and layout it was loaded with",
                )  # fmt: skip
            elif held.use != "c" and len(tag) > 1:
                _check_whole(r, g, i, tag)

    def _check_whole(r: Registers, g: Any, i: int, tag: Array) -> None:
        """A and B are loaded by all lanes of a warp or by none (a constant tile)."""
        w = g.warps()
        lanes = w.spread(tag != 0)
        missing = ~lanes & lanes.any(axis=1, keepdims=True)
        if missing.any():
            report(
                g, w.collect(missing),
                f"'{site.text}' reads {held}, but {names[i]} holds another value in these lanes",
                "load the fragment in all lanes of the warp",
            )  # fmt: skip

    return check

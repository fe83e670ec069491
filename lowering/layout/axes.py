"""The axes that a layout may place elements on: lanes, warps, threads, CTAs, and memory.

A thread axis counts units of its *subscope* inside its *scope*: ``laneid`` counts threads inside
a warp. A memory axis has neither. Axis names are closed: an unknown one is refused.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType

from .errors import LayoutError

__all__ = ["AXES", "MEMORY", "Axis", "axis", "fused_axis", "scope_pair"]

#: the axis of a stride that names none
MEMORY = "m"

#: scopes from the smallest unit to the largest
_SCOPES = ("thread", "warp", "warpgroup", "cta", "cluster", "grid")

#: axes other tile languages know, of machines or memories that are not modelled here
_FOREIGN = frozenset({"P", "F", "Bank", "TLane", "TCol"})


@dataclass(frozen=True, slots=True)
class Axis:
    """A physical coordinate.

    ``extent`` is its fixed range inside the scope (32 lanes in a warp); an axis inside a CTA has
    a range that depends on the launch instead: the CTA's threads divided by ``threads_per_unit``.
    """

    name: str
    kind: str
    scope: str | None = None
    subscope: str | None = None
    extent: int | None = None
    threads_per_unit: int | None = None

    @property
    def is_thread(self) -> bool:
        """Whether the axis says *who* holds an element, not where it lies in memory."""
        return self.kind == "thread"

    def range(self, cta_threads: int | None = None) -> int | None:
        """Number of units inside one scope; None where the launch decides and is not given."""
        if self.extent is not None or self.threads_per_unit is None or cta_threads is None:
            return self.extent
        return -(-cta_threads // self.threads_per_unit)


def _thread(
    name: str, scope: str, subscope: str, extent: int | None = None, per: int | None = None
) -> Axis:
    return Axis(name, "thread", scope, subscope, extent, per)


_TABLE = (
    _thread("laneid", "warp", "thread", extent=32),
    _thread("wid_in_wg", "warpgroup", "warp", extent=4),
    _thread("tid_in_wg", "warpgroup", "thread", extent=128),
    _thread("warpid", "cta", "warp", per=32),
    _thread("wgid", "cta", "warpgroup", per=128),
    _thread("tx", "cta", "thread", per=1),
    *(_thread(name, "cluster", "cta") for name in ("cbx", "cby", "cbz")),
    *(_thread(name, "grid", "cta") for name in ("bx", "by", "bz")),
    Axis(MEMORY, "memory"),
)

#: every known axis by name
AXES = MappingProxyType({a.name: a for a in _TABLE})

#: (axis, subscope, scope) of a layout -> axis after fusion, factor on strides and offsets
_FUSION = MappingProxyType(
    {
        ("laneid", "thread", "warpgroup"): ("tid_in_wg", 1),
        ("wid_in_wg", "thread", "warpgroup"): ("tid_in_wg", 32),
        ("laneid", "thread", "cta"): ("tx", 1),
        ("wid_in_wg", "thread", "cta"): ("tx", 32),
        ("warpid", "thread", "cta"): ("tx", 32),
        ("tid_in_wg", "thread", "cta"): ("tx", 1),
        ("wgid", "thread", "cta"): ("tx", 128),
        ("wid_in_wg", "warp", "cta"): ("warpid", 1),
        ("wgid", "warp", "cta"): ("warpid", 4),
    }
)


def axis(name: str) -> Axis:
    """The axis of that name; a name that is not in the table is refused with a suggestion."""
    found = AXES.get(name) if isinstance(name, str) else None
    if found is not None:
        return found
    shown = repr(name)[:42]
    if name in _FOREIGN:
        raise LayoutError(f"axis {shown} belongs to a memory that is not modelled")
    near = difflib.get_close_matches(str(name)[:32], AXES, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(AXES)}"
    raise LayoutError(f"unknown axis {shown}{hint}")


def scope_pair(names: Iterable[str]) -> tuple[str, str] | None:
    """Innermost subscope and outermost scope of the thread axes; None without a thread axis.

    The axes must form one chain of "counts inside of" links: ``laneid`` (threads of a warp) goes
    with ``warpid`` (warps of a CTA), but not with ``tid_in_wg`` (threads of a warpgroup).
    """
    above: dict[str, tuple[str, str]] = {}
    for name in sorted(set(names), key=list(AXES).index):
        entry = AXES[name]
        if entry.scope is None or entry.subscope is None:
            continue
        scope, other = above.setdefault(entry.subscope, (entry.scope, name))
        if scope != entry.scope:
            raise LayoutError(
                f"{other!r} counts {entry.subscope}s of a {scope} and {name!r} those of a "
                f"{entry.scope}: one layout cannot use both"
            )
    if not above:
        return None
    inner = outer = min(above, key=_SCOPES.index)
    while outer in above:
        outer = above.pop(outer)[0]
    for subscope, (_, name) in above.items():
        raise LayoutError(
            f"thread axis {name!r} counts {subscope}s, but the other thread axes lead only from "
            f"{inner} to {outer}: the chain of scopes is broken"
        )
    return inner, outer


def fused_axis(name: str, pair: tuple[str, str] | None) -> tuple[str, int]:
    """The axis that stands for ``name`` in a layout of that scope pair, and the stride factor."""
    return (name, 1) if pair is None else _FUSION.get((name, *pair), (name, 1))

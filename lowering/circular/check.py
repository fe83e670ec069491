"""Schedules that make no sense: what the verbs cannot see, since it is about several tensors."""

from __future__ import annotations

from ptxsim.errors import UsageError

from .indexing import ancestors, reduces
from .loops import Memory, Parallel
from .tensors import Fusion, Merge, Tensor

__all__ = ["check"]


def check(fusion: Fusion) -> None:
    """:class:`UsageError` for a schedule that cannot be lowered to what the fusion computes."""
    for t in fusion.tensors:
        _inlined(t)
        _reduction(t)
        for source in t.sources:
            _owners(t, source)
            _inside(t, source)


def _inlined(t: Tensor) -> None:
    if t.slots > 1 and t.at is None:
        raise UsageError(f"{t.name} is circular, but is not inlined into a loop")
    if t.at is None:
        return
    consumer, position = t.at
    if t.memory is Memory.GLOBAL:
        raise UsageError(f"{t.name} is in global memory and cannot be inlined")
    if not 0 <= position <= len(consumer.leaf):
        raise UsageError(
            f"{t.name} is inlined at {position}, but {consumer.name} has {len(consumer.leaf)} loops"
        )


def _reduction(t: Tensor) -> None:
    """Threads and CTAs have sums of their own, which nothing adds up."""
    for axis in t.leaf:
        how = t.parallel.get(axis, Parallel.SERIAL)
        if (how.thread or how.block) and reduces(t, axis):
            raise UsageError(
                f"{t.name} is reduced over {axis}, which cannot be {how.value}: keep it, or make "
                "it serial"
            )
        for made in (axis, *ancestors(axis)):
            origin = made.origin
            if isinstance(origin, Merge) and reduces(t, origin.outer) != reduces(t, origin.inner):
                raise UsageError(
                    f"{t.name} is reduced over only one part of the merged axis {made}"
                )


def _owners(t: Tensor, source: Tensor) -> None:
    """What a thread has in registers, and a CTA in shared memory, only they can read."""
    if source.memory is Memory.GLOBAL:
        return
    for axis, how in source.parallel.items():
        private = how.block or (how.thread and source.memory is Memory.LOCAL)
        if private and axis in source.leaf and t.parallel.get(axis) is not how:
            raise UsageError(
                f"{axis} is {how.value} in {source.name}, but not in {t.name}, which reads it"
            )


def _inside(t: Tensor, source: Tensor) -> None:
    """A tensor that is inlined has its value in the loops around it, and nowhere else."""
    if source.at is None:
        return
    consumer, position = source.at
    reader, depth = t, position
    while reader is not consumer and reader.at is not None:
        depth = min(depth, reader.at[1])
        reader = reader.at[0]
    if reader is not consumer or depth < position:
        raise UsageError(
            f"{source.name} is inlined at {position} of {consumer.name}, but {t.name}, which reads "
            "it, is outside of those loops"
        )

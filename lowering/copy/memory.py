"""Copies between global and shared memory by the threads of a CTA: asynchronous, vectors, scalar.

The tile is cut into chunks that are contiguous and aligned on both sides, the chunks are ordered by
global address, and thread ``t`` moves chunk ``t + round * threads``, so that neighbours access
neighbouring chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ptxsim.build import Kernel, Register
from ptxsim.targets import TARGETS, Target, parse_target

from ..address import Emitter
from ..dispatch import Decline
from ..layout import ComposeLayout, TileLayout
from .plan import placed
from .problem import DTYPES, MAX_ELEMENTS, MAX_GLOBAL, MIN_TARGET, Table, shared_limit

__all__ = ["MEMORY_VARIANTS", "MemoryCopy", "MemoryPlan", "Round"]


@dataclass(frozen=True)
class MemoryCopy:
    """A copy from global to shared memory (``g2s``) or back (``s2g``) by ``threads`` threads.

    ``global_align`` and ``align`` are the alignments in bytes of both arrays.
    """

    global_: TileLayout
    shared: TileLayout | ComposeLayout
    dtype: str = "f16"
    direction: str = "g2s"
    target: str = "sm_80"
    threads: int = 128
    global_align: int = 16
    align: int = 1024

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return DTYPES[self.dtype] // 8

    @property
    def parsed_target(self) -> Target:
        """The target as number and suffix."""
        target = parse_target(self.target)
        assert target is not None
        return target

    def offsets(self) -> tuple[Table, Table] | Decline:
        """The byte offsets of all elements in global and in shared memory, or what is wrong."""
        wrong = _wrong(self)
        if wrong is not None:
            return wrong
        zero = np.zeros(self.global_.size(), np.int64)
        source, target = (
            layout.evaluate().get("m", zero) * self.width for layout in (self.global_, self.shared)
        )
        for side, offsets, most in (
            ("global", source, MAX_GLOBAL),
            ("shared", target, shared_limit(self.parsed_target)),
        ):
            if offsets.min() < 0 or offsets.max() + self.width > most:
                return Decline(
                    "EXTENTS", f"the {side} tile does not fit into {most} bytes from its start"
                )
        written = target if self.direction == "g2s" else source
        if len(np.unique(written)) != len(written):
            return Decline("RACE", "two elements are written to one address")
        return source, target


def _wrong(copy: MemoryCopy) -> Decline | None:
    if copy.dtype not in DTYPES:
        return Decline("DTYPE", f"no type '{copy.dtype}'", f"known: {', '.join(DTYPES)}")
    if copy.direction not in ("g2s", "s2g"):
        return Decline("SPACES", f"the direction is g2s or s2g, not '{copy.direction}'")
    if copy.target not in TARGETS:
        return Decline("TARGET", f"no target '{copy.target}'", f"known: {', '.join(TARGETS)}")
    if copy.parsed_target.number < MIN_TARGET:
        return Decline("TARGET", f"code is made for sm_{MIN_TARGET} and later, not {copy.target}")
    for align in (copy.align, copy.global_align):
        if align < 1 or align & (align - 1):
            return Decline("ALIGN", f"an alignment is a power of two, not {align}")
    if copy.threads % 32 or not 32 <= copy.threads <= 1024:
        return Decline("SCOPE", f"a CTA of {copy.threads} threads is not made of whole warps")
    sizes = copy.global_.size(), copy.shared.size()
    if sizes[0] != sizes[1] or sizes[0] > MAX_ELEMENTS:
        return Decline(
            "EXTENTS", f"the global tile has {sizes[0]} elements, the shared tile {sizes[1]}",
            f"copy tiles of one size, at most {MAX_ELEMENTS}",
        )  # fmt: skip
    tile = copy.shared.tile if isinstance(copy.shared, ComposeLayout) else copy.shared
    for side, layout in (("global", copy.global_), ("shared", tile)):
        if layout.replica:
            return Decline("REPLICA", f"the {side} layout is replicated")
        if set(layout.axes) - {"m"}:
            return Decline("AXES", f"the {side} layout has an axis other than m")
    return None


@dataclass(frozen=True)
class Round:
    """What each thread moves at once: byte offsets on both sides; the first ``active`` threads."""

    source: Table
    target: Table
    active: int


@dataclass(frozen=True)
class MemoryPlan:
    """A variant's plan: rounds of chunks of ``chunk`` bytes."""

    variant: str
    copy: MemoryCopy
    chunk: int
    rounds: tuple[Round, ...]

    def emit(self, k: Kernel, thread: Register, base: Register, pointer: Register) -> None:
        """Write the copy; ``base`` is the shared address, ``pointer`` the global one.

        Asynchronous copies are committed; waiting for them is left to the caller.
        """
        emitter = Emitter(k, thread)
        for r in self.rounds:
            guard = None
            if r.active < self.copy.threads:
                guard = k.new("setp.lt.u32", "pred", thread, r.active)
            there = placed(k, emitter, pointer, r.source)
            here = placed(k, emitter, base, r.target)
            if self.variant == "cp_async":
                level = "cg" if self.chunk == 16 else "ca"
                k.emit(f"cp.async.{level}.shared.global", here, there, self.chunk, guard=guard)
                continue
            opcode, registers = self._vector(k)
            pair = (there, here) if self.copy.direction == "g2s" else (here, there)
            spaces = ("global", "shared") if self.copy.direction == "g2s" else ("shared", "global")
            held = registers[0] if len(registers) == 1 else tuple(registers)
            k.emit(f"ld.{spaces[0]}{opcode}", held, pair[0], guard=guard)
            k.emit(f"st.{spaces[1]}{opcode}", pair[1], held, guard=guard)
        if self.variant == "cp_async":
            k.emit("cp.async.commit_group")

    def _vector(self, k: Kernel) -> tuple[str, Sequence[Register]]:
        if self.chunk >= 4:
            count = self.chunk // 4
            return {1: ".b32", 2: ".v2.b32", 4: ".v4.b32"}[count], k.registers("b32", count)
        return f".u{8 * self.chunk}", k.registers("b32", 1)


@dataclass(frozen=True)
class _Variant:
    name: str
    priority: int
    chunks: tuple[int, ...]

    def plan(self, problem: MemoryCopy) -> MemoryPlan | Decline:
        """The widest chunk of this variant that both layouts allow."""
        offsets = problem.offsets()
        if isinstance(offsets, Decline):
            return offsets
        if self.name == "cp_async":
            if problem.direction != "g2s":
                return Decline("SPACES", "cp.async copies from global to shared memory only")
            if problem.parsed_target.number < 80:
                return Decline(
                    "ARCH", f"cp.async needs sm_80, the target is {problem.target}",
                    numbers={"need": 80, "have": problem.parsed_target.number},
                )  # fmt: skip
        for chunk in self.chunks:
            if self.name == "fallback" and chunk > problem.width:
                continue
            starts = _chunks(problem, *offsets, chunk)
            if starts is not None:
                return MemoryPlan(self.name, problem, chunk, _rounds(problem, *starts))
        return Decline(
            "CHUNK",
            f"no chunk of {self.chunks[-1]} bytes or more is contiguous and aligned on both sides",
            "pad rows to multiples of 16 bytes, or raise the alignments",
            {"chunks": self.chunks},
        )  # fmt: skip


#: The variants for copies between memories.
MEMORY_VARIANTS = (
    _Variant("cp_async", 20, (16, 8, 4)),
    _Variant("vec", 10, (16, 8, 4, 2)),
    _Variant("fallback", 0, (8, 4, 2, 1)),
)


def _chunks(
    copy: MemoryCopy, source: Table, target: Table, chunk: int
) -> tuple[Table, Table] | None:
    """The starts of all chunks by global address, or None if the tile has no such chunks."""
    if copy.global_align % chunk or copy.align % chunk:
        return None
    within = np.arange(copy.width)
    far = (source[:, None] + within).reshape(-1)
    near = (target[:, None] + within).reshape(-1)
    if len(far) % chunk:
        return None
    order = np.argsort(near if copy.direction == "g2s" else far)  # no byte is written twice
    step = np.arange(chunk)
    starts = []
    for side in (far[order].reshape(-1, chunk), near[order].reshape(-1, chunk)):
        if (side[:, 0] % chunk).any() or (side != side[:, :1] + step).any():
            return None
        starts.append(side[:, 0])
    coalesced = np.lexsort((starts[1], starts[0]))
    return starts[0][coalesced], starts[1][coalesced]


def _rounds(copy: MemoryCopy, source: Table, target: Table) -> tuple[Round, ...]:
    out = []
    for first in range(0, len(source), copy.threads):
        active = min(copy.threads, len(source) - first)
        last = np.minimum(np.arange(first, first + copy.threads), len(source) - 1)
        out.append(Round(source[last], target[last], active))
    return tuple(out)

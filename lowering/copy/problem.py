"""A copy between a register tile and a shared-memory tile, and where each of its bytes is.

Both tiles have a layout over one logical index space.  All questions are answered on the table of
the whole tile: which thread and register slot, and which shared address, element ``x`` has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ptxsim.targets import TARGETS, Target, parse_target

from ..dispatch import Decline
from ..layout import ComposeLayout, Swizzle, TileLayout, axis

__all__ = ["DTYPES", "SCOPES", "Copy", "Placement", "Table", "place", "shared_limit"]

Table: TypeAlias = NDArray[np.int64]

#: Bits of an element by type token.
DTYPES = {
    "u8": 8, "s8": 8, "b8": 8, "e4m3": 8, "e5m2": 8, "u16": 16, "s16": 16, "b16": 16, "f16": 16,
    "bf16": 16, "u32": 32, "s32": 32, "b32": 32, "f32": 32, "tf32": 32, "u64": 64, "s64": 64,
    "b64": 64, "f64": 64,
}  # fmt: skip

#: Threads of a scope (0: given by the copy) and the thread axes that count within it, each with the
#: threads that one step is.
SCOPES: dict[str, tuple[int, dict[str, int]]] = {
    "warp": (32, {"laneid": 1}),
    "warpgroup": (128, {"laneid": 1, "wid_in_wg": 32, "tid_in_wg": 1}),
    "cta": (0, {"laneid": 1, "wid_in_wg": 32, "tid_in_wg": 1, "warpid": 32, "wgid": 128, "tx": 1}),
}

#: The lowest target number with the integer instructions of address code.
MIN_TARGET = 20

#: The largest tile, in elements.
MAX_ELEMENTS = 1 << 20
#: KiB of shared memory that a CTA can have, from each target number on (CUDA C++ guide, Compute
#: Capabilities).
_SHARED_KIB = {0: 48, 70: 96, 75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 120: 99}
#: The largest alignment of an array, in bytes.
MAX_ALIGN = 1 << 16
#: The most register words of a thread.
MAX_WORDS = 255
#: The largest extent of a tile in global memory, in bytes.
MAX_GLOBAL = 1 << 28


def shared_limit(target: Target) -> int:
    """Bytes of shared memory that a CTA can have; beyond 48 KiB it is dynamic."""
    return _SHARED_KIB[max(n for n in _SHARED_KIB if n <= target.number)] << 10


@dataclass(frozen=True)
class Copy:
    """What to copy: ``ld`` from memory to registers, or ``st`` the other way.

    ``shared`` is the layout of the memory tile, which may also be in ``global`` memory (``space``).
    ``threads`` is the size of the CTA for the scope ``cta``; ``align`` is the alignment in bytes of
    the array in memory, which the layout counts from.
    """

    register: TileLayout
    shared: TileLayout | ComposeLayout
    dtype: str = "f16"
    scope: str = "warp"
    direction: str = "ld"
    target: str = "sm_90"
    threads: int = 0
    align: int = 1024
    space: str = "shared"

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return DTYPES[self.dtype] // 8

    @property
    def byte_swizzle(self) -> Swizzle | None:
        """The swizzle of the memory tile, on byte offsets."""
        if not isinstance(self.shared, ComposeLayout):
            return None
        return self.shared.swizzle.in_bytes(8 * self.width)

    @property
    def thread_count(self) -> int:
        """Threads that take part."""
        return SCOPES[self.scope][0] or self.threads

    @property
    def parsed_target(self) -> Target:
        """The target as number and suffix."""
        target = parse_target(self.target)
        assert target is not None
        return target

    @cached_property
    def placement(self) -> Placement | Decline:
        """Where everything is, or why the copy makes no sense."""
        return place(self)


@dataclass(frozen=True)
class Placement:
    """Element ``x`` is in ``slot[x]`` of ``thread[x]`` and ``offset[x]`` bytes into shared memory.

    ``threads`` are the threads that hold anything, ascending.  ``shared_bytes`` is the extent of
    the shared array.
    """

    thread: Table
    slot: Table
    offset: Table
    threads: Table
    words: int
    shared_bytes: int

    def bytes(self, width: int) -> tuple[Table, Table, Table]:
        """Thread, byte within the thread's registers, and shared byte, for every byte."""
        lane = np.repeat(self.thread, width)
        within = np.tile(np.arange(width), len(self.slot))
        return (
            lane,
            np.repeat(self.slot * width, width) + within,
            (np.repeat(self.offset, width) + within),
        )


def place(copy: Copy) -> Placement | Decline:
    """Evaluate both layouts; a :class:`Decline` says what is wrong with the pair."""
    for check in (_check_words, _check_layouts):
        wrong = check(copy)
        if wrong is not None:
            return wrong
    register = copy.register.evaluate()
    shared = copy.shared.evaluate()
    count = copy.register.size()
    zero = np.zeros(count, np.int64)
    thread = zero
    for name, per in SCOPES[copy.scope][1].items():
        thread = thread + per * register.get(name, zero)
    slot = register.get("m", zero)
    offset = shared.get("m", zero) * copy.width
    total = copy.thread_count
    if thread.max() >= total or thread.min() < 0:
        bad = int(thread.min() if thread.min() < 0 else thread.max())
        return Decline(
            "COVERAGE", f"the register layout names thread {bad}, but the {copy.scope} has {total}",
            "count threads of the scope from 0", {"thread": bad, "threads": total},
        )  # fmt: skip
    for name in SCOPES[copy.scope][1]:
        units, extent = register.get(name, zero), axis(name).range(total)
        if extent is not None and not 0 <= int(units.min()) <= int(units.max()) < extent:
            return Decline(
                "COVERAGE", f"the register layout reaches {name} {int(units.max())} of {extent}",
                "count with an axis of the scope", {"axis": name, "extent": extent},
            )  # fmt: skip
    if slot.min() < 0 or offset.min() < 0:
        return Decline("EXTENTS", "a layout reaches below the start of its storage")
    if (slot.max() + 1) * copy.width > 4 * MAX_WORDS:
        return Decline(
            "EXTENTS", f"slot {int(slot.max())} of a thread is beyond {MAX_WORDS} register words",
            "spread the tile over more threads", {"slot": int(slot.max()), "words": MAX_WORDS},
        )  # fmt: skip
    most = shared_limit(copy.parsed_target) if copy.space == "shared" else MAX_GLOBAL
    if offset.max() + copy.width > most:
        return Decline(
            "EXTENTS", f"the {copy.space} tile spans {int(offset.max()) + copy.width} bytes",
            f"at most {most} bytes are addressed",
        )  # fmt: skip
    clash = _clash(copy, thread, slot, offset)
    if clash is not None:
        return clash
    return Placement(
        thread, slot, offset, np.unique(thread), -(-int(slot.max() + 1) * copy.width // 4),
        -(-int(offset.max() + copy.width) // 16) * 16,
    )  # fmt: skip


def _check_words(copy: Copy) -> Decline | None:
    if copy.dtype not in DTYPES:
        return Decline("DTYPE", f"no type '{copy.dtype}'", f"known: {', '.join(DTYPES)}")
    if copy.scope not in SCOPES:
        return Decline("SCOPE", f"no scope '{copy.scope}'", f"known: {', '.join(SCOPES)}")
    if copy.direction not in ("ld", "st"):
        return Decline("SPACES", f"the direction is ld or st, not '{copy.direction}'")
    if copy.space not in ("shared", "global"):
        return Decline("SPACES", f"the tile is in shared or global memory, not '{copy.space}'")
    if copy.target not in TARGETS:
        return Decline("TARGET", f"no target '{copy.target}'", f"known: {', '.join(TARGETS)}")
    if copy.parsed_target.number < MIN_TARGET:
        return Decline(
            "TARGET", f"code is made for sm_{MIN_TARGET} and later, not {copy.target}",
            numbers={"need": MIN_TARGET, "have": copy.parsed_target.number},
        )  # fmt: skip
    if not 1 <= copy.align <= MAX_ALIGN or copy.align & (copy.align - 1):
        return Decline(
            "ALIGN", f"an alignment is a power of two up to {MAX_ALIGN}, not {copy.align}",
            numbers={"align": copy.align},
        )  # fmt: skip
    total = copy.thread_count
    if copy.threads and copy.scope != "cta":
        return Decline("SCOPE", f"threads are given for the scope cta, not for {copy.scope}")
    if total % 32 or not 32 <= total <= 1024:
        return Decline(
            "SCOPE", f"a CTA of {total} threads is not made of whole warps",
            "give 32 to 1024 threads, a multiple of 32", {"threads": total},
        )  # fmt: skip
    return None


def _check_layouts(copy: Copy) -> Decline | None:
    register, shared = copy.register, copy.shared
    if register.size() != shared.size():
        return Decline(
            "EXTENTS",
            f"the register tile has {register.size()} elements, the shared tile {shared.size()}",
            "copy tiles of one size", {"register": register.size(), "shared": shared.size()},
        )  # fmt: skip
    if register.size() > MAX_ELEMENTS:
        return Decline("EXTENTS", f"tiles have at most {MAX_ELEMENTS} elements")
    tile = shared.tile if isinstance(shared, ComposeLayout) else shared
    for side, layout in (("register", register), ("shared", tile)):
        if layout.replica:
            return Decline("REPLICA", f"the {side} layout is replicated", numbers={"side": side})
    counted = SCOPES[copy.scope][1]
    axes = {i.axis for i in register.shard} | {axis for axis, _ in register.offset}
    others = sorted(axes - set(counted) - {"m"})
    if others:
        return Decline(
            "AXES", f"axis {', '.join(others)} does not count within a {copy.scope}",
            f"use {', '.join(counted)}", {"axes": tuple(others)},
        )  # fmt: skip
    memory = {i.axis for i in tile.shard} | {axis for axis, _ in tile.offset}
    if memory - {"m"}:
        return Decline(
            "AXES", f"the shared layout has axis {', '.join(sorted(memory - {'m'}))}",
            "a memory tile has only m", {"axes": tuple(sorted(memory - {"m"}))},
        )  # fmt: skip
    return None


def _clash(copy: Copy, thread: Table, slot: Table, offset: Table) -> Decline | None:
    """Two elements in one register slot, or (of a store) at one address."""
    key = thread * (int(slot.max()) + 1) + slot
    if len(np.unique(key)) != len(key):
        x = _first_repeat(key)
        return Decline(
            "RACE", f"two elements have slot {int(slot[x])} of thread {int(thread[x])}",
            numbers={"thread": int(thread[x]), "slot": int(slot[x])},
        )  # fmt: skip
    if copy.direction == "st" and len(np.unique(offset)) != len(offset):
        x = _first_repeat(offset)
        return Decline(
            "RACE", f"two elements are stored at shared byte {int(offset[x])}",
            "give every element a place of its own", {"address": int(offset[x])},
        )  # fmt: skip
    return None


def _first_repeat(key: Table) -> int:
    _, first = np.unique(key, return_index=True)
    return int(np.setdiff1d(np.arange(len(key)), first)[0])

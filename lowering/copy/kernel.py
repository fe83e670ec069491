"""Whole kernels around a copy: one that stages a tile from and to global memory, and a probe.

``copy_kernel`` has the buffers ``src`` and ``dst`` with the tile in logical row-major order.
``src`` is staged element by element into the side that the copy reads, the copy runs, and the other
side is written element by element to ``dst``, which then equals ``src``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ptxsim.build import Address, Kernel, Register, Special, Variable

from ..address import Emitter, synthesize
from ..dispatch import Decline, Declined
from .plan import Plan, placed
from .problem import Copy, Placement, Table

__all__ = ["copy_kernel", "new_kernel", "thread_index", "tile_base"]

_GLOBAL_TYPE = {1: "u8", 2: "u16", 4: "b32", 8: "b64"}


def thread_index(k: Kernel) -> Register:
    """The thread within the CTA, which is the thread within the scope: kernels have one scope."""
    return k.new("mov.u32", "b32", Special("%tid.x"))


def new_kernel(plan: Plan, name: str, header: list[str]) -> tuple[Kernel, Variable]:
    """An empty kernel for the target of a plan, and its shared array or global buffer."""
    k = Kernel(name, target=plan.copy.target, header=header)
    if plan.copy.space == "global":
        return k, k.parameter("tile", "u64")
    return k, k.shared("tile", plan.placement.shared_bytes, plan.copy.align)


def tile_base(k: Kernel, tile: Variable) -> Register:
    """The address of the tile: 32 bits in shared memory, 64 in global memory."""
    if tile.space == "param":
        return k.new("ld.param.u64", "b64", Address(tile))
    return k.new("mov.u32", "b32", tile)


def copy_kernel(plan: Plan, name: str = "tile_copy") -> Kernel:
    """The copy with staging, and a header that tells ``ptxsim run`` how to launch it.

    :class:`lowering.Declined` for a tile of which two elements share a place: ``dst`` could not
    equal ``src``.
    """
    copy = plan.copy
    places, first = np.unique(plan.placement.offset, return_index=True)
    if len(places) < copy.register.size():
        x = int(np.setdiff1d(np.arange(copy.register.size()), first)[0])
        raise Declined(
            "a whole kernel",
            {
                "kernel": Decline(
                    "RACE", f"element {x} shares byte {int(plan.placement.offset[x])} of the tile"
                    " with another one, so that dst could not equal src",
                    "print the copy alone (--body-only)", {"element": x},
                )
            },
        )  # fmt: skip
    count = copy.register.size()
    token = {1: "b8", 2: "b16", 4: "b32", 8: "b64"}[copy.width]
    header = [
        f"{plan.variant}: {copy.dtype} tile, {copy.direction}, scope {copy.scope}",
        f"register {copy.register}",
        f"{copy.space.ljust(8)} {copy.shared}",
        f"launch: grid=1 block={copy.thread_count}",
        *_scratch(plan),
        f"arg:    src {token}[{count}] = {_tags(copy)}",
        f"arg:    dst {token}[{count}] = undef",
    ]
    k, tile = new_kernel(plan, name, header)
    if k.dynamic_shared:
        k.header[3] += f" smem={k.dynamic_shared}"
    staging = _Staging(k, plan, tile)
    words = k.registers("b32", plan.placement.words)
    if copy.direction == "ld":
        staging.fill_shared()
        k.emit("bar.sync", 0)
        k.comment(f"the copy: {plan.variant}")
        plan.emit(k, staging.thread, staging.base, words)
        k.comment("registers to dst")
        staging.registers_to_global(words)
    else:
        staging.global_to_registers(words)
        k.comment(f"the copy: {plan.variant}")
        plan.emit(k, staging.thread, staging.base, words)
        k.emit("bar.sync", 0)
        k.comment(f"{copy.space} memory to dst")
        staging.drain_shared()
    return k


def _scratch(plan: Plan) -> list[str]:
    """The buffer of a tile in global memory."""
    if plan.copy.space == "shared":
        return []
    return [f"arg:    tile b8[{plan.placement.shared_bytes}] = undef"]


def _tags(copy: Copy) -> str:
    """An initial value with as many different elements as the type has."""
    return "iota" if copy.width > 1 else "iota % 251"


class _Staging:
    """Element-by-element movement between the buffers and both sides of a copy."""

    def __init__(self, k: Kernel, plan: Plan, tile: Variable) -> None:
        self.k, self.plan = k, plan
        copy, placement = plan.copy, plan.placement
        self.copy: Copy = copy
        self.placement: Placement = placement
        self.src, self.dst = k.parameter("src", "u64"), k.parameter("dst", "u64")
        self.thread = thread_index(k)
        self.base = tile_base(k, tile)
        self.space = copy.space
        self._emitter = Emitter(k, self.thread)
        self._pointers: dict[str, Register] = {}

    def _pointer(self, parameter: Variable) -> Register:
        if parameter.name not in self._pointers:
            self._pointers[parameter.name] = self.k.new("ld.param.u64", "b64", Address(parameter))
        return self._pointers[parameter.name]

    def _global(self, parameter: Variable, offsets: Table) -> Address:
        """The address of a byte offset that depends on the thread."""
        return placed(self.k, self._emitter, self._pointer(parameter), offsets)

    def _element(self) -> tuple[str, str]:
        """The type of a global or shared access to one element, and of its register."""
        return _GLOBAL_TYPE[self.copy.width], "b64" if self.copy.width == 8 else "b32"

    def _rounds(self) -> list[tuple[Table, NDArray[np.bool_]]]:
        """Element numbers of each round with the threads that have one."""
        total, count = self.copy.thread_count, self.copy.register.size()
        thread = np.arange(total)
        return [
            (np.minimum(thread + first, count - 1), thread + first < count)
            for first in range(0, count, total)
        ]

    def _guard(self, active: NDArray[np.bool_]) -> Register | None:
        if active.all():
            return None
        count = int(active.sum())  # the first ones
        return self.k.new("setp.lt.u32", "pred", self.thread, count)

    def fill_shared(self) -> None:
        """src to the shared tile."""
        self.k.comment(f"src to {self.space} memory")
        type_, held = self._element()
        for x, active in self._rounds():
            guard = self._guard(active)
            value = self.k.register(held)
            self.k.emit(
                f"ld.global.{type_}", value, self._global(self.src, x * self.copy.width),
                guard=guard,
            )  # fmt: skip
            at = self._shared(x)
            self.k.emit(f"st.{self.space}.{type_}", at, value, guard=guard)

    def drain_shared(self) -> None:
        """The shared tile to dst."""
        type_, held = self._element()
        for x, active in self._rounds():
            guard = self._guard(active)
            value = self.k.register(held)
            self.k.emit(f"ld.{self.space}.{type_}", value, self._shared(x), guard=guard)
            self.k.emit(
                f"st.global.{type_}", self._global(self.dst, x * self.copy.width), value,
                guard=guard,
            )  # fmt: skip

    def _shared(self, x: Table) -> Address:
        return placed(self.k, self._emitter, self.base, self.placement.offset[x])

    # --- registers ------------------------------------------------------------------------------

    def _slots(self) -> list[tuple[int, Table, Register | None]]:
        """Each slot with the element of each thread, and the predicate of threads that have it."""
        placement, total = self.placement, self.copy.thread_count
        element = np.full((total, int(placement.slot.max()) + 1), -1, np.int64)
        element[placement.thread, placement.slot] = np.arange(len(placement.slot))
        out = []
        for slot in range(element.shape[1]):
            own = element[:, slot]
            if (own < 0).all():
                continue
            guard = None
            if (own < 0).any():
                has = self._emitter.value(synthesize((own >= 0).astype(np.int64)))
                guard = self.k.new("setp.ne.u32", "pred", has, 0)
            out.append((slot, np.where(own < 0, own.max(), own), guard))
        return out

    def registers_to_global(self, words: tuple[Register, ...]) -> None:
        """Each register slot to its element of dst."""
        k, width = self.k, self.copy.width
        type_, _ = self._element()
        for slot, x, guard in self._slots():
            word, low = divmod(slot * width, 4)
            value = words[word]
            if width == 8:
                value = k.new("mov.b64", "b64", (words[word], words[word + 1]))
            elif low:
                value = k.new("shr.u32", "b32", value, 8 * low)
            k.emit(f"st.global.{type_}", self._global(self.dst, x * width), value, guard=guard)

    def global_to_registers(self, words: tuple[Register, ...]) -> None:
        """Each element of src to its register slot."""
        k, width = self.k, self.copy.width
        k.comment("src to registers")
        for word in words:
            k.emit("mov.b32", word, 0)
        type_, held = self._element()
        for slot, x, guard in self._slots():
            at, low = divmod(slot * width, 4)
            value = words[at] if width == 4 else k.register(held)
            k.emit(f"ld.global.{type_}", value, self._global(self.src, x * width), guard=guard)
            if width == 8:
                k.emit("mov.b64", (words[at], words[at + 1]), value)
            elif width < 4:
                k.emit("bfi.b32", words[at], value, words[at], 8 * low, 8 * width)

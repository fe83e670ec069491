"""A group of lanes that stand at the same place, with their registers.

A group owns its register file: a list of arrays, each as long as the group's lane axis or of
length 1 when all lanes hold the same value.  No lane of the wave is in two groups.  Lanes that
leave a group by a branch take copies of the registers that are live where they go; the group may
keep their places on the lane axis (``active`` is then false there) until enough have left that
moving the rest together is cheaper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..isa.definedness import everywhere
from ..isa.protocol import Array, BoolArray, Registers, Site, Unknown
from ..numerics.bits import pack_lanes
from ..windows import LOCAL_SIZE, LOCAL_WINDOW, SHARED_SIZE, SHARED_WINDOW
from . import access, calls, definedness
from .access import Access
from .arrival import Arrival
from .memory import CACHE_LINE

if TYPE_CHECKING:
    from ..program import Block, CallPlan, Routine
    from .scheduler import Scheduler
    from .watch import Watch
    from .wave import Wave

__all__ = ["Frame", "Group", "WarpArrangement", "take_registers"]


class Frame:
    """A caller that waits for its callee: where to return to, and its registers by position."""

    __slots__ = (
        "chain", "depth", "parent", "parent_position", "plan", "r", "routine", "stack", "undefined",
    )  # fmt: skip

    def __init__(
        self,
        routine: Routine,
        plan: CallPlan,
        r: Registers,
        parent: Frame | None,
        parent_position: Array | None,
        chain: int,
        stack: int,
        undefined: dict[int, Unknown],
    ) -> None:
        self.routine = routine
        self.plan = plan
        self.r = r
        self.parent = parent
        #: index of each of this frame's lanes in the parent's arrays; None: the same places
        self.parent_position = parent_position
        #: identifies the chain of return places; frames of one chain can be merged
        self.chain = chain
        self.depth: int = 1 if parent is None else parent.depth + 1
        #: the local-memory offset of the caller's frame
        self.stack = stack
        #: the undefined bits of its registers
        self.undefined = undefined


def take_registers(r: Registers, at: Array, live: Sequence[int]) -> Registers:
    """The register file of the lanes at positions ``at``; only live places are carried over."""
    new = list(r)
    for slot in live:
        value = r[slot]
        if value.shape[-1] != 1:
            new[slot] = value.take(at, axis=-1)
    return new


class Group:
    """Implements :class:`ptxsim.isa.protocol.Lanes`."""

    def __init__(
        self,
        wave: Wave,
        routine: Routine,
        block: Block,
        r: Registers,
        lanes: Array,
        partition: int = 0,
    ) -> None:
        self.wave = wave
        self.routine = routine
        self.block = block
        self.r = r
        self.lanes = lanes
        self.n = len(lanes)
        self.active: BoolArray | None = None
        self.n_active = self.n
        self.frame: Frame | None = None
        self.position: Array | None = None
        self.stack = 0
        self.partition = partition
        self.turns = 0
        self.seen: tuple[Any, ...] | None = None
        #: the undefined bits of registers that have any
        self.undefined: dict[int, Unknown] = {}
        #: those of what the next store writes, one entry for each element, and the last load read
        self.storing: list[Unknown | None] | None = None
        self.loaded: list[Unknown | None] | None = None

    # --- lanes ----------------------------------------------------------------------------------

    def mask(self, guard: Array | None) -> BoolArray | None:
        if guard is None:
            return self.active
        if guard.shape[0] == 1:
            if guard[0]:
                return self.active
            return np.zeros(self.n, bool)
        if self.active is None:
            return None if guard.all() else guard
        return guard & self.active

    def full(self, value: Array) -> Array:
        if value.shape[-1] == self.n:
            return value
        return np.broadcast_to(value, (*value.shape[:-1], self.n))

    def special(self, name: str) -> Array:
        value = self.wave.special(name, self)
        if value.shape[0] == 1 or (self.lanes is self.wave.all_lanes and len(value) == self.n):
            return value
        return value[self.lanes]

    def forget(self) -> None:
        """Drop what was derived from ``lanes``."""
        for name in ("cta", "single_cta", "shared_base", "_warps"):
            self.__dict__.pop(name, None)

    @cached_property
    def cta(self) -> Array:
        """The CTA of each lane, counted within the wave."""
        return self.wave.cta_of(self.lanes)

    @cached_property
    def single_cta(self) -> int | None:
        """The CTA, if all lanes are of one."""
        first, last = self.lanes[0], self.lanes[-1]
        per = self.wave.lanes_per_cta
        return int(first) // per if int(first) // per == int(last) // per else None

    @cached_property
    def shared_base(self) -> Array:
        """Where the shared memory of each lane's CTA begins in the wave's array; int64."""
        stride = self.wave.shared_stride
        if self.single_cta is not None:
            return np.array([self.single_cta * stride], np.int64)
        return self.cta * stride

    @property
    def local_base(self) -> Array:
        """Where the local memory of each lane begins in the wave's array; int64.

        Not kept: the stride grows with the call stack.
        """
        return self.lanes * self.wave.local_stride

    @cached_property
    def _warps(self) -> WarpArrangement:
        return WarpArrangement(self)

    def warps(self) -> WarpArrangement:
        return self._warps

    def in_window(self, space: str, address: Array) -> BoolArray:
        """Whether generic addresses (uint64) lie in a state space (isspacep)."""
        memory = self.wave.memory
        if space == "shared":
            return (address >= SHARED_WINDOW) & (address < SHARED_WINDOW + SHARED_SIZE)
        if space == "local":
            return (address >= LOCAL_WINDOW) & (address < LOCAL_WINDOW + LOCAL_SIZE)
        inside = np.zeros(address.shape, bool)
        for a in memory.allocations():
            if a.space == space and space != "global":
                begin = memory.address(a)
                inside |= (address >= begin) & (address < begin + a.size)
        if space != "global":
            return inside
        shared, local = self.in_window("shared", address), self.in_window("local", address)
        return ~(shared | local | self.in_window("const", address))

    # --- memory ---------------------------------------------------------------------------------

    def load(
        self, space: str, address: Array, size: int, count: int, mask: BoolArray | None, site: Site
    ) -> list[Array]:
        return access.load(self, Access(space, size, count, site), address, mask)

    def store(
        self,
        space: str,
        address: Array,
        size: int,
        values: Sequence[Array],
        mask: BoolArray | None,
        site: Site,
    ) -> None:
        access.store(self, Access(space, size, len(values), site), address, values, mask)

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
        from . import atomics

        access_ = Access(space, size, len(elements), site)
        return atomics.apply(self, access_, address, operation, elements, mask, scan)

    def discard(self, space: str, address: Array, mask: BoolArray | None, site: Site) -> None:
        """Destroy cache lines of global memory (discard)."""
        access.discard(self, Access(space, 8, CACHE_LINE // 8, site), address, mask)

    def acting(self, mask: BoolArray | None) -> Array:
        """The lanes of the wave for which a mask is true."""
        return self.lanes if mask is None else self.lanes[mask]

    def copy_async(
        self,
        target: Array,
        source: Array,
        size: int,
        copied: Array,
        mask: BoolArray | None,
        site: Site,
    ) -> None:
        """Queue copies of ``size`` bytes from global to shared memory (cp.async).

        ``copied`` of them are read, the rest is zero.
        """
        lanes = self.acting(mask)
        if not len(lanes):
            return
        to = access.place_in(self, Access("shared", size, 1, site), self.full(target), mask)
        count = self.full(copied) if mask is None else self.full(copied)[mask]
        reads = count > 0
        at = np.zeros(len(lanes), np.int64)
        if reads.any():
            for n in np.unique(count[reads]):
                chosen = count == n
                part = np.zeros(self.n, bool)
                part[np.arange(self.n) if mask is None else np.flatnonzero(mask)] = chosen
                what = Access("global", int(n), 1, site, align=size)
                at[chosen] = access.place_in(self, what, self.full(source), part).at
        self.service("async_copies").issue(self.wave, lanes, to.at, at, size, count, site)

    # --- undefined bits -------------------------------------------------------------------------

    def mark(self, place: int, unknown: Unknown | None, mask: BoolArray | None) -> None:
        """A register is written in the lanes of a mask: these of its bits are undefined now."""
        now = definedness.marked(self.undefined.get(place), unknown, mask, self.r[place])
        if now is None:
            self.undefined.pop(place, None)
        else:
            self.undefined[place] = now

    def observe(self, unknown: Unknown, mask: BoolArray | None, site: Site, name: str = "") -> None:
        """Undefined bits matter in the lanes of a mask: a finding if there are any."""
        definedness.observe(self, [(unknown, name)], mask, site)

    def observe_all(
        self, found: Sequence[tuple[Unknown, str]], mask: BoolArray | None, site: Site
    ) -> None:
        """The same for several registers of an instruction, by name."""
        definedness.observe(self, found, mask, site)

    def from_memory(self, origin: Array) -> BoolArray:
        """For origins of undefined bits: whether they were loaded."""
        loaded: BoolArray = np.array([o.site is not None for o in self.wave.origins.known])[origin]
        return loaded

    def describe_origin(
        self, number: int, site: Site, lanes: Array, describe: Callable[[int], str]
    ) -> None:
        """Say which lane of the warp gave ``site`` the address that a lane's undefined bits are
        from (-1: none are), and what lies there."""
        origin = self.wave.origins.known[number]
        if origin.site is not site:
            return
        origin.give(self.lanes, lanes, self.wave.size)
        origin.describe = describe

    def absent(self, lanes: BoolArray, given: Array, site: Site) -> Unknown | None:
        """The undefined bits of values that lanes take from lanes which do not take part."""
        if not self.wave.checked:
            return None
        number = self.wave.origins.absent(site)
        self.wave.origins.known[number].give(self.lanes[lanes], given[lanes], self.wave.size)
        bits = np.where(lanes, np.uint32(0xFFFFFFFF), np.uint32(0))
        return bits, np.array([number], np.int32)

    def undefined_result(
        self, lanes: BoolArray, bits: int, site: Site, fault: str
    ) -> Unknown | None:
        """The undefined bits of results that the ISA does not define."""
        if not self.wave.checked:
            return None
        number = self.wave.origins.result(site, fault)
        return everywhere(lanes, bits), np.array([number], np.int32)

    def take_loaded(self) -> list[Unknown | None] | None:
        """The undefined bits of what the last load read; None if there were none."""
        found, self.loaded = self.loaded, None
        return found

    # --- reports --------------------------------------------------------------------------------

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
        at = self.lanes if lanes is None else self.lanes[np.broadcast_to(lanes, (self.n,))]
        if self.active is not None and lanes is None:
            at = self.lanes[self.active]
        self.wave.report(class_, message, site, at, help=help, fatal=fatal, **values)

    def disagreeing(self, value: Array) -> BoolArray | None:
        """The lanes of warps whose lanes here differ in a value; None without any."""
        if value.shape[-1] == 1:
            return None
        at = np.arange(self.n) if self.active is None else np.flatnonzero(self.active)
        value, warp = value[at], self.lanes[at] >> 5
        first = np.flatnonzero(np.r_[True, warp[1:] != warp[:-1]])
        differ = np.minimum.reduceat(value, first) != np.maximum.reduceat(value, first)
        if not differ.any():
            return None
        out = np.zeros(self.n, bool)
        out[at] = np.repeat(differ, np.diff(np.r_[first, len(at)]))
        return out

    def service(self, name: str) -> Any:
        return self.wave.service(name)

    @property
    def watch(self) -> Watch | None:
        return self.wave.watch

    @property
    def _scheduler(self) -> Scheduler:
        scheduler: Scheduler = self.wave.scheduler
        return scheduler

    # --- control --------------------------------------------------------------------------------

    def jump(self, block: Block) -> Group | None:
        return self._scheduler.jump(self, block)

    def branch(self, taken: Array, yes: Block, no: Block | None) -> Group | None:
        return self._scheduler.branch(self, taken, yes, no)

    def switch(self, index: Array, blocks: list[Block]) -> Group | None:
        return self._scheduler.switch(self, index, blocks)

    def arrive(
        self,
        barrier: int,
        count: int | None,
        waits: bool,
        after: Block,
        site: Site,
        reduce: str,
        predicate: Array | None,
        write: Callable[[Group, Array], None] | None,
    ) -> Group | None:
        arrival = Arrival(barrier, count, waits, after, site, reduce, predicate, write)
        return self._scheduler.barriers.arrive(self, arrival)

    def split_by(self, keys: list[Array]) -> None:
        """Do the transfer of this block in parts in which all these values are uniform."""
        table = np.stack([self.full(k).astype(np.uint64) for k in keys])
        _, part = np.unique(table, axis=1, return_inverse=True)
        part = part.reshape(-1)
        assert self.block.transfer is not None
        for k in range(int(part.max()) + 1):
            at = part == k if self.active is None else (part == k) & self.active
            if at.any():
                alone = self.subset(np.flatnonzero(at), range(len(self.r)))
                rest = self.block.transfer(alone.r, alone)
                if rest is not None:
                    self._scheduler.push(rest)

    def call(self, plan: CallPlan, site: Site) -> Group | None:
        return calls.call(self._scheduler, self, plan, site)

    def ret(self) -> Group | None:
        return self._scheduler.ret(self)

    def exit(self) -> None:
        self._scheduler.exit(self)

    # --- moving lanes ---------------------------------------------------------------------------

    def subset(self, at: Array, live: Sequence[int]) -> Group:
        """A new group of the lanes at positions ``at`` with copies of the live registers."""
        new = Group(
            self.wave, self.routine, self.block, take_registers(self.r, at, live), self.lanes[at],
            self.partition,
        )  # fmt: skip
        new.frame = self.frame
        new.stack = self.stack
        if self.undefined:
            new.undefined = definedness.take_unknown(self.undefined, at, live)
        if self.frame is not None:
            new.position = at if self.position is None else self.position[at]
        return new

    def compact(self, live: Sequence[int]) -> None:
        """Give up the places of lanes that have left."""
        if self.active is None:
            return
        at = np.flatnonzero(self.active)
        self.r = take_registers(self.r, at, live)
        if self.undefined:
            self.undefined = definedness.take_unknown(self.undefined, at, live)
        self.lanes = self.lanes[at]
        if self.frame is not None:
            self.position = at if self.position is None else self.position[at]
        self.n = self.n_active = len(at)
        self.active = None
        self.forget()

    def drop(self, leaving: BoolArray, live: Sequence[int]) -> None:
        """Lanes leave; their places go at once only when few lanes stay."""
        stay = ~leaving if self.active is None else self.active & ~leaving
        self.active = stay
        self.n_active = int(np.count_nonzero(stay))
        if self.n_active * 2 <= self.n or self.n <= 256:
            self.compact(live)


class WarpArrangement:
    """The lanes of a group as ``[warp, 32]`` (see :class:`ptxsim.isa.protocol.WarpView`)."""

    def __init__(self, group: Group) -> None:
        assert group.active is None
        lanes = group.lanes
        warp = lanes >> 5
        first = np.empty(len(warp), bool)
        first[0] = True
        np.not_equal(warp[1:], warp[:-1], out=first[1:])
        self.warp_ids = warp[first]
        self.count = len(self.warp_ids)
        self.complete = len(lanes) == 32 * self.count
        if self.complete:
            self.present = np.ones((self.count, 32), bool)
            self.present_bits = np.full(self.count, 0xFFFFFFFF, np.uint32)
        else:
            self._at = (np.cumsum(first) - 1) * 32 + (lanes & 31)
            flat = np.zeros(32 * self.count, bool)
            flat[self._at] = True
            self.present = flat.reshape(-1, 32)
            self.present_bits = pack_lanes(self.present)
        self.met_bits = self.present_bits
        self._live = group.wave.live_bits
        self._n = group.n

    @property
    def live_bits(self) -> Array:
        bits: Array = self._live[self.warp_ids]
        return bits

    def spread(self, value: Array) -> Array:
        if value.shape[-1] == 1 and self._n != 1:
            return np.broadcast_to(value[..., None], (*value.shape[:-1], self.count, 32))
        if self.complete:
            return value.reshape(*value.shape[:-1], self.count, 32)
        flat = np.zeros((*value.shape[:-1], 32 * self.count), value.dtype)
        flat[..., self._at] = value
        return flat.reshape(*value.shape[:-1], self.count, 32)

    def collect(self, value: Array) -> Array:
        full = np.broadcast_to(value, (*value.shape[:-2], self.count, 32))
        flat = full.reshape(*value.shape[:-2], 32 * self.count)
        return flat if self.complete else flat[..., self._at]

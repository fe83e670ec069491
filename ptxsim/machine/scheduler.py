"""Picks which lanes run next.

Lanes that stand at the same block with the same callers form one group.  Of all ready groups the
one that is deepest in calls and earliest in its routine's block order runs next, so that lanes
wait where paths meet again.  A group that takes many turns of a loop while others are ready is put
behind them, so that a lane that spins cannot starve the one it waits for.

Lanes at a collective wait until the lanes that it names have come; lanes at a barrier until their
CTA has.  When nothing is ready but lanes wait, that is a fault, named by what they wait for.
"""

from __future__ import annotations

import random
from heapq import heappop, heappush

import numpy as np

from ..isa.protocol import Array, BoolArray, Registers, Unknown
from ..numerics.bits import pack_lanes
from ..program import Block, CallPlan, Routine
from . import calls
from .barriers import Barriers
from .definedness import merge_unknown, take_unknown
from .faults import Stop
from .group import Frame, Group, take_registers
from .waiting import deadlock, explain, land_copies
from .wave import Wave

__all__ = ["Limits", "Scheduler"]

#: turns of a loop before others get their chance: loops that may wait for others, other loops
_WAIT_TURNS, _TURNS = 32, 4096

Key = tuple[int, int, int, int]


class Limits:
    """The step budget of a launch, shared by its waves."""

    def __init__(self, instructions: int) -> None:
        self.left = instructions


class Scheduler:
    """Runs the groups of one wave to their end."""

    def __init__(
        self,
        wave: Wave,
        limits: Limits,
        group_type: type[Group] = Group,
        shuffle: random.Random | None = None,
    ) -> None:
        self.wave = wave
        wave.scheduler = self
        self.limits = limits
        self.group_type = group_type
        self.shuffle = shuffle
        self.barriers = Barriers(self)
        self._ready: dict[Key, list[Group]] = {}
        self._heap: list[tuple[tuple[int, ...], Key]] = []
        self._later: list[Group] = []
        self._waiting: dict[Key, Group] = {}
        self._chains: dict[tuple[int, int, int], int] = {}

    # --- the loop -------------------------------------------------------------------------------

    def run(self, groups: list[Group]) -> None:
        """Run until every lane has exited; a fault raises :class:`Stop`."""
        for first in groups:
            self.push(first)
        group: Group | None = None
        while True:
            if group is None:
                group = self._pop()
                if group is None:
                    if self._unblock():
                        continue
                    return
            elif self._heap and (self.shuffle or self._priority(group) >= self._heap[0][0]):
                self.push(group)
                group = self._pop()
                assert group is not None
            block = group.block
            if block.gate is not None:
                group = self._pass_gate(group, block)
                if group is None:
                    continue
            r = group.r
            if block.checked is not None:
                block.checked.run(r, group)
            else:
                for step in block.steps:
                    step(r, group)
            block.executions += 1
            block.lane_executions += group.n_active
            self.limits.left -= block.length
            if self.limits.left < 0:
                self._over_budget(group)
            assert block.transfer is not None
            group = block.transfer(r, group)

    def _priority(self, group: Group) -> tuple[int, ...]:
        depth = group.frame.depth if group.frame else 0
        return (group.partition, -depth, group.routine.index, group.block.order)

    def _key(self, group: Group) -> Key:
        chain = group.frame.chain if group.frame else 0
        return (group.partition, chain, group.routine.index, group.block.index)

    def push(self, group: Group) -> None:
        """Make a group ready at its block."""
        key = self._key(group)
        at = self._ready.get(key)
        if at is not None:
            at.append(group)
            return
        self._ready[key] = [group]
        priority = self._priority(group)
        if self.shuffle is not None:
            priority = (self.shuffle.randrange(1 << 30), *priority)
        heappush(self._heap, (priority, key))

    def _pop(self) -> Group | None:
        if not self._heap:
            if not self._later:
                return None
            later, self._later = self._later, []
            if self._stuck(later) and not land_copies(self.wave):
                deadlock(self.wave, later, list(self._waiting.values()), self.barriers.parked())
            for group in later:
                self.push(group)
        _, key = heappop(self._heap)
        groups = self._ready.pop(key)
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            groups.append(waiting)
        return groups[0] if len(groups) == 1 else self.merge(groups)

    # --- moves of groups ------------------------------------------------------------------------

    def jump(self, group: Group, block: Block) -> Group | None:
        """All lanes go to ``block``."""
        if block.order <= group.block.order:
            group.turns += 1
            limit = _WAIT_TURNS if group.block.waits or block.waits else _TURNS
            if group.turns % limit == 0 and (self._heap or self._later or self._loops_alone(group)):
                group.block = block
                self._later.append(group)
                return None
        group.block = block
        return group

    def _loops_alone(self, group: Group) -> bool:
        return bool(self._waiting) or self.barriers.waiting or group.turns >= _TURNS

    def branch(self, group: Group, taken: Array, yes: Block, no: Block | None) -> Group | None:
        """Lanes for which ``taken`` is true go to ``yes``, the others to ``no`` (None: return)."""
        if taken.shape[0] == 1:
            return self._to(group, yes if taken[0] else no)
        if group.active is not None:
            taken = taken & group.active
        count = int(np.count_nonzero(taken))
        if count == group.n_active:
            return self._to(group, yes)
        if count == 0:
            return self._to(group, no)
        few = count * 2 <= group.n_active
        leaving = taken if few else ~taken
        if not few and group.active is not None:
            leaving = leaving & group.active
        goes, stays = (yes, no) if few else (no, yes)
        live = goes.live if goes is not None else ()
        other = group.subset(np.flatnonzero(leaving), live)
        group.drop(leaving, stays.live if stays is not None else ())
        self._send(other, goes)
        return self._to(group, stays)

    def _to(self, group: Group, block: Block | None) -> Group | None:
        return self.ret(group) if block is None else self.jump(group, block)

    def _send(self, group: Group, block: Block | None) -> None:
        rest = self._to(group, block)
        if rest is not None:
            self.push(rest)

    def switch(self, group: Group, index: Array, blocks: list[Block]) -> Group | None:
        """Each lane goes to the block that its index names."""
        index = group.full(index)
        choices = np.unique(index if group.active is None else index[group.active])
        for choice in choices[1:]:
            self._leave(group, index == choice, blocks[int(choice)])
            index = index if len(index) == group.n else group.full(index)
        if len(choices) > 1:
            group.compact(blocks[int(choices[0])].live)
        return self.jump(group, blocks[int(choices[0])])

    def _leave(self, group: Group, at: BoolArray, block: Block) -> None:
        if group.active is not None:
            at = at & group.active
        other = group.subset(np.flatnonzero(at), block.live)
        stay = ~at if group.active is None else group.active & ~at
        group.active = stay
        group.n_active = int(np.count_nonzero(stay))
        self._send(other, block)

    def exit(self, group: Group) -> None:
        """All lanes of the group end."""
        lanes = group.lanes if group.active is None else group.lanes[group.active]
        if self.wave.watch is not None:
            self.wave.watch.exited(self.wave, lanes)
        self.wave.retire(lanes)
        self.barriers.lanes_left()
        for waiting in self._waiting.values():
            self.push(waiting)
        self._waiting.clear()

    # --- calls ----------------------------------------------------------------------------------

    def call(
        self,
        group: Group,
        routine: Routine,
        plan: CallPlan,
        r: Registers,
        stack: int,
        undefined: dict[int, Unknown],
    ) -> Group | None:
        """Enter ``routine`` with register file ``r``; the caller goes on at ``plan.after``."""
        parent = group.frame
        key = (parent.chain if parent else 0, group.routine.index, plan.after.index)
        chain = self._chains.setdefault(key, len(self._chains) + 1)
        group.frame = Frame(
            group.routine, plan, group.r, parent, group.position, chain, group.stack,
            group.undefined,
        )  # fmt: skip
        group.position = None
        if self.wave.stacks is not None:
            self.wave.stacks.enter(group.frame.depth, group.lanes)
        group.routine = routine
        group.r = r
        group.undefined = undefined
        group.stack = stack
        group.block = routine.blocks[0]
        return group

    def ret(self, group: Group) -> Group | None:
        """Return to the caller, or end the thread in an entry."""
        frame = group.frame
        if frame is None:
            self.exit(group)
            return None
        callee, top = group.routine, group.stack
        results = [p for p in callee.results if isinstance(p, int)]
        group.compact(results)
        if self.wave.stacks is not None:
            self.wave.stacks.leave(frame.depth, group.lanes)
        values = [group.r[p] if isinstance(p, int) else None for p in callee.results]
        unknown = [group.undefined.get(p) if isinstance(p, int) else None for p in callee.results]
        if group.position is None:
            group.r = list(frame.r)
            group.undefined = dict(frame.undefined)
            group.position = frame.parent_position
        else:
            live = frame.plan.after.live
            group.r = take_registers(frame.r, group.position, live)
            group.undefined = take_unknown(frame.undefined, group.position, live)
            if frame.parent is None:
                group.position = None
            elif frame.parent_position is not None:
                group.position = frame.parent_position[group.position]
        group.routine = frame.routine
        group.frame = frame.parent
        group.stack = frame.stack
        group.block = frame.plan.after
        calls.copy_results(group, frame.plan, callee, top, values, unknown)
        return group

    # --- merging --------------------------------------------------------------------------------

    def merge(self, groups: list[Group]) -> Group:
        """One group of the lanes of all, which stand at the same block with equal callers."""
        first = groups[0]
        live = first.block.live
        for g in groups:
            g.compact(live)
        lanes = np.concatenate([g.lanes for g in groups])
        order = np.argsort(lanes, kind="stable")
        lanes = lanes[order]
        if len(lanes) == len(self.wave.all_lanes):
            lanes = self.wave.all_lanes
        sizes = [g.n for g in groups]
        r = _merge_registers([g.r for g in groups], sizes, live, order)
        new = self.group_type(self.wave, first.routine, first.block, r, lanes, first.partition)
        new.undefined = merge_unknown([g.undefined for g in groups], sizes, live, order)
        new.stack = first.stack
        new.turns = min(g.turns for g in groups)
        new.frame, new.position = _merge_frames(
            [(g.frame, g.position) for g in groups], sizes, order
        )
        return new

    # --- waiting --------------------------------------------------------------------------------

    def _pass_gate(self, group: Group, block: Block) -> Group | None:
        group.compact(block.live)
        assert block.gate is not None
        waiting = self._waiting.pop(self._key(group), None)
        if waiting is not None:
            group = self.merge([waiting, group])
        ready = block.gate(group.r, group)
        if ready is None:
            return group
        if not ready.any():
            self._wait(group)
            return None
        rest = group.subset(np.flatnonzero(~ready), block.live)
        self._wait(rest)
        return group.subset(np.flatnonzero(ready), block.live)

    def _wait(self, group: Group) -> None:
        self._waiting[self._key(group)] = group

    def _unblock(self) -> bool:
        """Nothing is ready: done, or lanes wait for ever."""
        if not self._waiting and not self.barriers.waiting:
            return False
        if self._meet():
            return True
        explain(self, list(self._waiting.values()), self.barriers)
        raise Stop

    def _meet(self) -> bool:
        """Let lanes pass that wait for each other at different places, where that is legal."""
        names = {g.block.meets for g in self._waiting.values() if g.block.meets}
        for name in names:
            groups = [g for g in self._waiting.values() if g.block.meets == name]
            here = np.zeros(self.wave.size, bool)
            for g in groups:
                here[g.lanes] = True
            together = pack_lanes(here.reshape(-1, 32))
            passed = False
            for g in groups:
                g.warps().met_bits = together[g.warps().warp_ids]
                assert g.block.gate is not None
                ready = g.block.gate(g.r, g)
                at = np.arange(g.n) if ready is None else np.flatnonzero(ready)
                if not len(at):
                    continue
                passed = True
                del self._waiting[self._key(g)]
                if len(at) < g.n and ready is not None:
                    self._wait(g.subset(np.flatnonzero(~ready), g.block.live))
                block = g.block
                go = g.subset(at, block.live)
                assert block.transfer is not None
                if block.checked is not None:
                    block.checked.run(go.r, go)
                else:
                    for step in block.steps:
                        step(go.r, go)
                block.executions += 1
                block.lane_executions += go.n
                rest = block.transfer(go.r, go)
                if rest is not None:
                    self.push(rest)
            if passed:
                return True
        return False

    def _stuck(self, later: list[Group]) -> bool:
        """Whether all these loops came back to the same state with memory unchanged."""
        version = self.wave.memory.version
        stuck = True
        for group in later:
            block = group.block
            values = tuple(group.r[s] for s in block.live)
            seen = group.seen
            now = (block, version, group.n_active, values)
            if (
                seen is None
                or seen[0] is not block
                or seen[1] != version
                or seen[2] != group.n_active
                or not all(_same(a, b) for a, b in zip(seen[3], values, strict=True))
            ):
                stuck = False
            group.seen = now
        return stuck

    def _over_budget(self, group: Group) -> None:
        group.compact(())
        self.wave.report(
            "step-limit",
            "the launch ran more instructions than --max-instructions allows",
            group.block.site,
            group.lanes,
            help="raise the limit, or look for a loop that does not end",
            fatal=True,
        )

    # --- results of a run -----------------------------------------------------------------------

    def start(self, partitions: list[Array] | None = None) -> list[Group]:
        """The first groups: all lanes, or one group for each list of lanes."""
        entry = self.wave.program.entry
        self.wave.reserve_local(entry.frame_size, 0, None, self.wave.all_lanes)
        parts = [self.wave.all_lanes] if partitions is None else partitions
        groups = [
            self.group_type(
                self.wave, entry, entry.blocks[0], list(entry.template), lanes,
                0 if partitions is None else number,
            )
            for number, lanes in enumerate(parts)
        ]  # fmt: skip
        for group in groups:
            group.undefined = dict(entry.undefined)
        return groups


def _same(a: Array, b: Array) -> bool:
    return a is b or (a.shape == b.shape and bool(np.array_equal(a, b)))


def _merge_registers(
    files: list[Registers], sizes: list[int], slots: tuple[int, ...], order: Array
) -> Registers:
    new = list(files[0])
    for slot in slots:
        values = [r[slot] for r in files]
        first = values[0]
        if all(v is first for v in values) and first.shape[-1] == 1:
            continue
        if all(v.shape[-1] == 1 and np.array_equal(v, first) for v in values):
            continue
        parts = [
            v if v.shape[-1] == n else np.broadcast_to(v, (*v.shape[:-1], n))
            for v, n in zip(values, sizes, strict=True)
        ]
        new[slot] = np.concatenate(parts, axis=-1).take(order, axis=-1)
    return new


def _merge_frames(
    items: list[tuple[Frame | None, Array | None]], sizes: list[int], order: Array
) -> tuple[Frame | None, Array | None]:
    """Frames of one chain as one frame; positions follow ``order``."""
    first = items[0][0]
    if first is None:
        return None, None
    positions = [np.arange(n) if p is None else p for (_, p), n in zip(items, sizes, strict=True)]
    if all(f is first for f, _ in items):
        at = np.concatenate(positions).take(order)
        return first, at
    levels: list[tuple[Frame, Registers, dict[int, Unknown]]] = []
    current: list[tuple[Frame | None, Array]]
    current = [(f, p) for (f, _), p in zip(items, positions, strict=True)]
    parent: Frame | None = None
    parent_position: Array | None = None
    while True:
        head = current[0][0]
        assert head is not None
        if all(f is head for f, _ in current):
            parent = head
            parent_position = np.concatenate([p for _, p in current]).take(order)
            break
        live = head.plan.after.live
        files, unknown = [], []
        for f, p in current:
            assert f is not None
            files.append(take_registers(f.r, p, live))
            unknown.append(take_unknown(f.undefined, p, live))
        levels.append(
            (
                head,
                _merge_registers(files, sizes, live, order),
                merge_unknown(unknown, sizes, live, order),
            )
        )
        above: list[tuple[Frame | None, Array]] = []
        for f, p in current:
            assert f is not None
            above.append((f.parent, p if f.parent_position is None else f.parent_position[p]))
        if head.parent is None:
            break
        current = above
    frame = parent
    position = parent_position
    for head, r, undefined in reversed(levels):
        frame = Frame(
            head.routine, head.plan, r, frame, position, head.chain, head.stack, undefined
        )
        position = None
    return frame, position

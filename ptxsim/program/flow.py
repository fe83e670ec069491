"""Control flow of one function: blocks, their order, live registers, undefined registers.

Registers are numbered places; sets of them are Python integers used as bit masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Node", "block_order", "liveness", "maybe_undefined"]


@dataclass(slots=True)
class Node:
    """One instruction for the analyses: masks of registers, and where control may go.

    ``kills`` are registers that are surely written; a guarded write is in ``writes`` only and the
    old value is then in ``reads``.
    """

    reads: int
    writes: int
    kills: int


def block_order(successors: Sequence[Sequence[int]], entry: int = 0) -> list[int]:
    """Blocks so that each comes after its predecessors, every loop in one stretch.

    The weak topological order of Bourdoncle (Efficient chaotic iteration strategies with
    widenings, 1993), without the brackets: strongly connected components in topological order,
    each ordered again without its head.  Lanes that leave a loop wait behind it, so they meet.
    """
    order: list[int] = []
    work: list[tuple[list[int], int]] = [(list(_reachable(successors, entry)), entry)]
    while work:
        nodes, head = work.pop()
        allowed = set(nodes)
        components = _components(successors, nodes, allowed, head)
        if len(components) == 1 and len(components[0]) > 1 and set(components[0]) == allowed:
            order.append(head)
            rest = [n for n in nodes if n != head]
            inner = _split(successors, rest)
            work.extend(reversed(inner))
            continue
        parts: list[tuple[list[int], int]] = []
        for component in components:
            parts.append((component, _head(successors, component, allowed, head)))
        if all(len(c) == 1 for c in components):
            order.extend(c[0] for c in components)
        else:
            work.extend(reversed(parts))
    return order


def _split(successors: Sequence[Sequence[int]], nodes: list[int]) -> list[tuple[list[int], int]]:
    allowed = set(nodes)
    out = []
    for component in _components(successors, nodes, allowed, nodes[0] if nodes else 0):
        out.append((component, _head(successors, component, allowed, component[0])))
    return out


def _head(
    successors: Sequence[Sequence[int]], component: list[int], allowed: set[int], entry: int
) -> int:
    if entry in component:
        return entry
    inside = set(component)
    for n in sorted(allowed - inside):
        for s in successors[n]:
            if s in inside:
                return s
    return min(component)


def _reachable(successors: Sequence[Sequence[int]], entry: int) -> list[int]:
    seen = {entry}
    stack = [entry]
    while stack:
        for s in successors[stack.pop()]:
            if s not in seen:
                seen.add(s)
                stack.append(s)
    return sorted(seen)


def _components(
    successors: Sequence[Sequence[int]], nodes: list[int], allowed: set[int], first: int
) -> list[list[int]]:
    """Strongly connected components in topological order (Tarjan, iterative)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    out: list[list[int]] = []
    roots = ([first] if first in allowed else []) + nodes
    for root in roots:
        if root in index:
            continue
        work = [(root, iter(successors[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for s in rest:
                if s not in allowed:
                    continue
                if s not in index:
                    index[s] = low[s] = len(index)
                    stack.append(s)
                    on_stack.add(s)
                    work.append((s, iter(successors[s])))
                    break
                if s in on_stack:
                    low[node] = min(low[node], index[s])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    component = []
                    while True:
                        s = stack.pop()
                        on_stack.discard(s)
                        component.append(s)
                        if s == node:
                            break
                    out.append(sorted(component))
    out.reverse()
    return out


def liveness(blocks: Sequence[Sequence[Node]], successors: Sequence[Sequence[int]]) -> list[int]:
    """For each block the registers that are live where it begins."""
    gen = []
    kill = []
    for nodes in blocks:
        g = k = 0
        for node in nodes:
            g |= node.reads & ~k
            k |= node.kills
        gen.append(g)
        kill.append(k)
    live = [0] * len(blocks)
    predecessors: list[list[int]] = [[] for _ in blocks]
    for b, targets in enumerate(successors):
        for t in targets:
            predecessors[t].append(b)
    work = list(range(len(blocks)))
    queued = [True] * len(blocks)
    while work:
        b = work.pop()
        queued[b] = False
        out = 0
        for t in successors[b]:
            out |= live[t]
        new = gen[b] | (out & ~kill[b])
        if new != live[b]:
            live[b] = new
            for p in predecessors[b]:
                if not queued[p]:
                    queued[p] = True
                    work.append(p)
    return live


def maybe_undefined(
    blocks: Sequence[Sequence[Node]], successors: Sequence[Sequence[int]], defined: int, every: int
) -> int:
    """Registers that some path reads before they were surely written.

    ``defined`` are the registers that hold values when the function is entered.
    """
    before = [every] * len(blocks)
    before[0] = defined
    kills = [0] * len(blocks)
    for b, nodes in enumerate(blocks):
        for node in nodes:
            kills[b] |= node.kills
    predecessors: list[list[int]] = [[] for _ in blocks]
    for b, targets in enumerate(successors):
        for t in targets:
            predecessors[t].append(b)
    work = list(range(len(blocks)))[::-1]
    while work:
        b = work.pop()
        after = before[b] | kills[b]
        for t in successors[b]:
            new = before[t] & after
            if new != before[t]:
                before[t] = new
                work.append(t)
    found = 0
    for b, nodes in enumerate(blocks):
        have = before[b]
        for node in nodes:
            found |= node.reads & ~have
            have |= node.kills
    return found

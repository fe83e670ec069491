"""Copies by loads and stores of each thread, as wide as layout and alignment allow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..dispatch import Decline
from .fit import byte_map
from .plan import Move, Part, Plan
from .problem import Copy, Table

__all__ = ["REGISTER_MOVES", "RegisterMoves"]


class RegisterMoves:
    """The variant ``reg``: vectors of 128 bits down to single bytes."""

    name = "reg"
    priority = 5

    def plan(self, problem: Copy) -> Plan | Decline:
        """Pieces of words that are contiguous in every thread, chained to vectors."""
        placement = problem.placement
        if isinstance(placement, Decline):
            return placement
        addresses = byte_map(problem, placement).reshape(problem.thread_count, -1, 4)
        used = placement.threads
        own = addresses[used]
        filled = np.asarray((own >= 0).all(axis=0))
        assert ((own >= 0) == filled).all(), "threads and slots of a layout are a product"
        pieces = _pieces(own, filled, problem.align)
        moves = tuple(
            _move(problem, chain, addresses, used) for chain in _chains(own, pieces, problem.align)
        )
        guard = None
        if len(used) < problem.thread_count:
            guard = np.zeros(problem.thread_count, np.int64)
            guard[used] = 1
        return Plan(self.name, problem, placement, moves, guard=guard)


REGISTER_MOVES = RegisterMoves()


def _pieces(own: Table, filled: NDArray[np.bool_], align: int) -> list[Part]:
    """The widest parts of each word that are contiguous and aligned in all threads."""
    out = []
    for word in range(own.shape[1]):
        at = 0
        while at < 4:
            if not filled[word, at]:
                at += 1
                continue
            size = next(
                s for s in (4, 2, 1)
                if at % s == 0 and align % s == 0 and _contiguous(own[:, word, at : at + s], s)
            )  # fmt: skip
            out.append(Part(word, 8 * at, 8 * size))
            at += size
    return out


def _contiguous(addresses: Table, size: int) -> bool:
    first = addresses[:, :1]
    whole = (addresses >= 0).all() and (addresses == first + np.arange(size)).all()
    return bool(whole and (first % size == 0).all())


def _chains(own: Table, pieces: list[Part], align: int) -> list[list[Part]]:
    """Words that follow each other in memory, in all threads, as vectors of four and two."""
    start = {p: own[:, p.word, p.low // 8] for p in pieces}
    whole = [p for p in pieces if p.bits == 32]
    follows: dict[Part, Part] = {}
    by_first: dict[int, list[Part]] = {}
    for p in whole:
        by_first.setdefault(int(start[p][0]), []).append(p)
    for p in whole:
        for after in by_first.get(int(start[p][0]) + 4, []):
            if np.array_equal(start[after], start[p] + 4):
                follows[p] = after
                by_first[int(start[p][0]) + 4].remove(after)  # each word moves once
                break
    heads = [p for p in whole if p not in set(follows.values())]
    out: list[list[Part]] = [[p] for p in pieces if p.bits < 32]
    for head in heads:
        chain = [head]
        while chain[-1] in follows:
            chain.append(follows[chain[-1]])
        out += _vectors(chain, start, align)
    return sorted(out, key=lambda c: (c[0].word, c[0].low))


def _vectors(chain: list[Part], start: dict[Part, Table], align: int) -> list[list[Part]]:
    out = []
    at = 0
    while at < len(chain):
        for size in (4, 2, 1):
            fits = at + size <= len(chain) and align % (4 * size) == 0
            if fits and not (start[chain[at]] % (4 * size)).any():
                out.append(chain[at : at + size])
                at += size
                break
    return out


def _move(copy: Copy, parts: list[Part], addresses: Table, used: Table) -> Move:
    first = parts[0]
    table = addresses[:, first.word, first.low // 8]
    table = np.where(table < 0, table[used[0]], table)
    bits = first.bits
    vector = {1: "", 2: ".v2", 4: ".v4"}[len(parts)]
    kind = f"b{bits}" if bits >= 32 else f"u{bits}"
    opcode = f"{copy.direction}.{copy.space}{vector}.{kind}"
    return Move(opcode, tuple(parts), table, len(parts) * bits // 8)

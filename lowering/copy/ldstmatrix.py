"""Copies by ldmatrix and stmatrix: the complete variant, which takes all that hardware can do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..address import synthesize
from ..dispatch import Decline
from ..layout import Swizzle
from .fit import Word, byte_map, fit_word
from .plan import Move, Part, Plan
from .problem import Copy, Placement, Table

__all__ = ["MATRIX_MOVES", "MatrixMoves"]

#: Targets with the shapes of bytes (PTX ISA, Target ISA Notes of ldmatrix and stmatrix).
_BYTE_TARGETS = {(n, suffix) for n in (100, 103, 107, 110, 120, 121) for suffix in "af"}


class MatrixMoves:
    """The variant ``ldstmatrix``: each register word is an 8x8 matrix with free row addresses."""

    name = "ldstmatrix"
    priority = 10

    def plan(self, problem: Copy) -> Plan | Decline:
        """Instructions of four, two and one matrices, as few as possible."""
        placement = problem.placement
        if isinstance(placement, Decline):
            return placement
        for check in (_space, _architecture, _coverage, _alignment):
            wrong = check(problem, placement)
            if wrong is not None:
                return wrong
        words = _words(problem, placement)
        if isinstance(words, Decline):
            return words
        moves: list[Move] = []
        for kind in ("plain", "trans", "trans8", "store8"):
            chosen = [w for w in words if w.kind == kind]
            moves += _moves(problem, kind, chosen)
        moves.sort(key=lambda m: min(p.word for p in m.parts))
        return Plan(self.name, problem, placement, tuple(moves), _notes(len(words), moves))


MATRIX_MOVES = MatrixMoves()


# --- predicates -----------------------------------------------------------------------------------


def _space(copy: Copy, placement: Placement) -> Decline | None:
    """Matrix instructions access shared memory only."""
    if copy.space == "shared":
        return None
    return Decline("SPACES", f"matrix instructions do not access {copy.space} memory")


def _architecture(copy: Copy, placement: Placement) -> Decline | None:
    """ldmatrix exists from sm_75 on, stmatrix from sm_90 on (PTX ISA, Target ISA Notes)."""
    need = 75 if copy.direction == "ld" else 90
    have = copy.parsed_target.number
    if have >= need:
        return None
    what = "ldmatrix" if copy.direction == "ld" else "stmatrix"
    return Decline(
        "ARCH", f"{what} needs sm_{need}, the target is {copy.target}",
        numbers={"need": need, "have": have},
    )  # fmt: skip


def _coverage(copy: Copy, placement: Placement) -> Decline | None:
    """All lanes of all warps hold a part of the tile."""
    used, total = len(placement.threads), copy.thread_count
    if used == total:
        return None
    return Decline(
        "COVERAGE",
        f"{used} of {total} threads hold the tile; a matrix instruction needs all lanes",
        "spread the tile over all lanes", {"used": used, "threads": total},
    )  # fmt: skip


def _alignment(copy: Copy, placement: Placement) -> Decline | None:
    """The shared array itself starts at a multiple of 16 bytes."""
    if copy.align % 16 == 0:
        return None
    return Decline(
        "ALIGN", f"the shared array is aligned to {copy.align} bytes, rows to 16",
        "raise the alignment of the array", {"align": copy.align},
    )  # fmt: skip


# --- fit ------------------------------------------------------------------------------------------


def _words(copy: Copy, placement: Placement) -> list[Word] | Decline:
    """Every used register word as a matrix."""
    addresses = byte_map(copy, placement)
    used = [n for n in range(placement.words) if (addresses[:, :, n] >= 0).any()]
    byte_kind = "trans8" if copy.direction == "ld" else "store8"
    target = copy.parsed_target
    has_bytes = (target.number, target.suffix) in _BYTE_TARGETS
    kinds = ("plain", "trans", byte_kind) if has_bytes else ("plain", "trans")
    words = []
    for number in used:
        found = fit_word(number, addresses[:, :, number], kinds)
        if isinstance(found, Word):
            words.append(found)
        elif has_bytes or not all(_is_byte_matrix(addresses[:, :, n], byte_kind) for n in used):
            return found
        else:
            return Decline(
                "ARCH", f"only the shapes of bytes fit; they need sm_100a, not {copy.target}",
                "choose a target of the sm_100 family or later with the suffix a or f",
                {"need": "100a", "have": copy.target},
            )  # fmt: skip
    return _paired(words)


def _is_byte_matrix(addresses: Table, kind: str) -> bool:
    return isinstance(fit_word(0, addresses, (kind,)), Word)


def _paired(words: list[Word]) -> list[Word] | Decline:
    """Words of 16x16 byte matrices in pairs: the left, then the right half of the same rows."""
    halves = [w for w in words if w.kind == "trans8"]
    if not halves:
        return words
    ordered: list[Word] = []
    right = [w for w in halves if (w.rows % 16).any()]
    for left in (w for w in halves if not (w.rows % 16).any()):
        match = next((w for w in right if np.array_equal(w.rows, left.rows + 8)), None)
        if match is None:
            return _unpaired(left)
        right.remove(match)
        ordered += [left, match]
    if right:
        return _unpaired(right[0])
    return [w for w in words if w.kind != "trans8"] + ordered


def _unpaired(word: Word) -> Decline:
    return Decline(
        "PAIR", f"register word {word.number} is half of a 16x16 matrix of bytes, and no word holds"
        " the other half", "let each lane hold two columns eight apart", {"word": word.number},
    )  # fmt: skip


# --- instructions ---------------------------------------------------------------------------------


def _moves(copy: Copy, kind: str, words: list[Word]) -> list[Move]:
    """The words of one kind in instructions; of the orders tried, the one with the least code."""
    if not words:
        return []
    orders = [words]
    if kind != "trans8":
        orders.append(sorted(words, key=lambda w: int(w.rows[0, 0])))
    plans = [[_move(copy, kind, group) for group in _groups(order)] for order in orders]
    return min(plans, key=lambda p: _cost(p, copy.byte_swizzle))


def _groups(words: Sequence[Word]) -> list[list[Word]]:
    """As few groups of four, two and one words as possible."""
    out = []
    at = 0
    while at < len(words):
        left = len(words) - at
        size = 4 if left >= 4 else 2 if left >= 2 else 1
        out.append(list(words[at : at + size]))
        at += size
    return out


def _cost(moves: list[Move], swizzle: Swizzle | None) -> int:
    """Integer instructions for the addresses: tables that differ by a constant share theirs."""
    known: list[Table] = []
    total = 0
    for move in moves:
        if any((move.address - k == (move.address - k)[0]).all() for k in known):
            continue
        if any((move.address ^ k == (move.address ^ k)[0]).all() for k in known):
            total += 2
            continue
        known.append(move.address)
        total += 1 + synthesize(move.address, swizzle).cost
    return total


def _move(copy: Copy, kind: str, words: list[Word]) -> Move:
    """One instruction; lanes whose address does not count repeat those of the low lanes."""
    if kind == "trans8":
        matrices, per = [w.rows for w in words[::2]], 16
    else:
        matrices, per = [w.rows for w in words], 8
    lane = np.arange(32)
    table = np.stack(matrices, axis=1)  # [warps, matrices, rows]
    address = table[:, (lane // per) % len(matrices), lane % per]
    name = "ldmatrix" if copy.direction == "ld" else "stmatrix"
    shape, tail = {
        "plain": ("m8n8", "shared.b16"),
        "trans": ("m8n8", "trans.shared.b16"),
        "trans8": ("m16n16", "trans.shared.b8"),
        "store8": ("m16n8", "trans.shared.b8"),
    }[kind]
    opcode = f"{name}.sync.aligned.{shape}.x{len(matrices)}.{tail}"
    parts = tuple(Part(w.number) for w in words)
    return Move(opcode, parts, address.reshape(-1), 16, per * len(matrices))


def _notes(words: int, moves: list[Move]) -> tuple[str, ...]:
    narrow = [m for m in moves if ".x4" not in m.opcode and ".m16n16" not in m.opcode]
    if not narrow:
        return ()
    return (f"not every instruction is x4: {words} register words are no multiple of 4",)

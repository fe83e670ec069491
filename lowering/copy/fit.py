"""The complete test whether a register word is a matrix of ldmatrix or stmatrix.

A 32-bit register word of a warp is an 8x8 matrix with eight free row addresses (PTX ISA 9.1, Warp
Level Matrix Instructions: ldmatrix, stmatrix).  With ``B(l, b)`` the shared address of byte ``b``
of the word in lane ``l``, it is one as it lies if ``B(l, b) = row(l / 4) + 4 * (l % 4) + b``, and
transposed if half ``h`` of lane ``l`` is the halfword ``l / 4`` of row ``2 * (l % 4) + h``; rows
start at multiples of 16.  The element type does not appear.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..dispatch import Decline
from .problem import Copy, Placement, Table

__all__ = ["KINDS", "Kind", "Word", "byte_map", "fit_word"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to see a word as a matrix: where byte ``b`` of lane ``l`` lies in which row."""

    name: str
    rows: int
    row: Table
    within: Table
    #: rows may start at 0 or 8 bytes past a multiple of 16
    halved: bool = False


def _kind(name: str, rows: int, row: Table, within: Table, halved: bool = False) -> Kind:
    shape = (32, 4)
    return Kind(name, rows, np.broadcast_to(row, shape), np.broadcast_to(within, shape), halved)


_LANE = np.arange(32)[:, None]
_BYTE = np.arange(4)[None, :]
_G, _T = _LANE // 4, _LANE % 4

#: The kinds by name; ``trans8`` is half of a 16x16 matrix of bytes, ``store8`` a stmatrix of bytes.
KINDS = {
    k.name: k
    for k in (
        _kind("plain", 8, _G, 4 * _T + _BYTE),
        _kind("trans", 8, 2 * _T + _BYTE // 2, 2 * _G + _BYTE % 2),
        _kind("trans8", 16, 4 * _T + _BYTE, _G + 0 * _BYTE, True),
        _kind("store8", 8, 2 * _T + _BYTE % 2, _G + 8 * (_BYTE // 2)),
    )
}


@dataclass(frozen=True, slots=True)
class Word:
    """A register word that is a matrix of a kind, with the address of each row [warps, rows]."""

    number: int
    kind: str
    rows: Table


def byte_map(copy: Copy, placement: Placement) -> Table:
    """The shared address of each byte [warps, 32, words, 4], -1 where no element is."""
    thread, within, address = placement.bytes(copy.width)
    out = np.full((copy.thread_count, placement.words * 4), -1, np.int64)
    out[thread, within] = address
    return out.reshape(-1, 32, placement.words, 4)


def fit_word(number: int, addresses: Table, kinds: tuple[str, ...]) -> Word | Decline:
    """The first kind that fits a word with byte addresses [warps, 32, 4], or why none does."""
    if (addresses < 0).any():
        warp, lane, byte = (int(i) for i in np.argwhere(addresses < 0)[0])
        return Decline(
            "PAIR", f"byte {byte} of register word {number} of lane {lane} holds no element",
            "a matrix instruction moves whole words", {"word": number, "lane": lane, "warp": warp},
        )  # fmt: skip
    reason: Decline | None = None
    for name in kinds:
        found = _fits(number, addresses, KINDS[name])
        if isinstance(found, Word):
            return found
        reason = _nearer(reason, found)
    assert reason is not None
    return reason


_ORDER = ("PAIR", "ROWBREAK", "LANEMAP", "ALIGN")


def _nearer(a: Decline | None, b: Decline) -> Decline:
    """The reason of the kind that came closer."""
    return b if a is None or _ORDER.index(b.code) > _ORDER.index(a.code) else a


def _fits(number: int, addresses: Table, kind: Kind) -> Word | Decline:
    starts = addresses - kind.within
    rows = np.zeros((len(addresses), kind.rows), np.int64)
    rows[:, kind.row.reshape(-1)] = starts.reshape(len(addresses), -1)
    wrong = np.argwhere(starts != rows[:, kind.row])
    if len(wrong):
        return _broken(number, addresses, kind)
    unaligned = rows % (8 if kind.halved else 16)
    if unaligned.any():
        warp, row = (int(i) for i in np.argwhere(unaligned)[0])
        address = int(rows[warp, row])
        return Decline(
            "ALIGN",
            f"row {row} of word {number} of warp {warp} starts at byte {address}, which is"
            f" {address % 16} past a multiple of 16",
            "rows of 16 bytes start at multiples of 16 bytes: pad the pitch, or move the tile",
            {"word": number, "warp": warp, "row": row, "address": address},
        )  # fmt: skip
    return Word(number, kind.name, rows)


def _broken(number: int, addresses: Table, kind: Kind) -> Decline:
    """The first byte that does not lie where its row has it."""
    first = np.zeros(kind.rows, np.int64)
    order = np.argsort(kind.row.reshape(-1) * 64 + kind.within.reshape(-1), kind="stable")
    for place in order[::-1]:
        first[kind.row.reshape(-1)[place]] = place
    base = addresses.reshape(len(addresses), -1)[:, first]
    step = kind.within.reshape(-1)
    expected = base[:, kind.row.reshape(-1)] + step - step[first][kind.row.reshape(-1)]
    got = addresses.reshape(len(addresses), -1)
    warp, place = (int(i) for i in np.argwhere(got != expected)[0])
    lane, byte = divmod(place, 4)
    row = int(kind.row[lane, byte])
    want, have = int(expected[warp, place]), int(got[warp, place])
    inside = np.diff(addresses[warp, lane])
    together = inside[0] == inside[2] == 1 if kind.name == "trans" else (inside == 1).all()
    code = "LANEMAP" if together or kind.name in ("trans8", "store8") else "PAIR"
    return Decline(
        code,
        f"{kind.name}: byte {byte} of word {number} in lane {lane} of warp {warp} lies at {have},"
        f" row {row} of the matrix would have it at {want}",
        "change the order of lanes or the strides of the shared tile",
        {"word": number, "warp": warp, "lane": lane, "got": have, "want": want},
    )  # fmt: skip

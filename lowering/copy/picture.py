"""A copy as a picture: its register tile and its shared tile side by side, coloured by lane.

The register tile is drawn as rows and columns, the shared tile as lines of all 32 banks, so that
padding, swizzles and bank conflicts can be seen.  Of several warps the first is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from ptxsim.cli.drawing import (
    BORDER,
    FAINT,
    INK,
    LANE_FILLS,
    lane_key,
    line,
    picture,
    rectangle,
    text,
)

from ..layout import ComposeLayout
from .api import Lowered
from .explain import head
from .plan import Plan, wavefronts
from .problem import Table
from .search import lane_digits

__all__ = ["copy_svg"]

_LINE = 128  # bytes of all banks
_MOST_ROWS, _MOST_COLUMNS = 32, 64
_EDGE, _GAP, _TOP, _MARGIN = 28.0, 44.0, 152.0, 44.0
_HEIGHT, _STRIP = 30.0, 15.0
#: Width of a cell by the bytes of it: narrow ones hold only the number of the lane.
_WIDTHS = {8: 36.0, 4: 34.0, 2: 28.0, 1: 26.0}


@dataclass(frozen=True, slots=True)
class _Grid:
    """Who holds what: thread (-1: nobody) and position in its registers, by row and column.

    A position is ``size`` bytes.  Squares of one word that follow each other from left to right, or
    else downward, are one cell.
    """

    thread: Table
    position: Table
    size: int

    def cell(self) -> tuple[int, int]:
        """Rows and columns of every cell."""
        for size in (4 // self.size, 2 // self.size):
            if size > 1 and self._runs(self.thread, self.position, size):
                return 1, size
            if size > 1 and self._runs(self.thread.T, self.position.T, size):
                return size, 1
        return 1, 1

    def _runs(self, thread: Table, position: Table, size: int) -> bool:
        if thread.shape[1] % size:
            return False
        owner = thread.reshape(len(thread), -1, size)
        where = position.reshape(len(position), -1, size)
        first = where[:, :, :1]
        used = owner[:, :, 0] >= 0
        same = (owner == owner[:, :, :1]).all() and (first[used] % size == 0).all()
        return bool(same and (where[used] == (first + np.arange(size))[used]).all())


def copy_svg(lowered: Lowered) -> str:
    """The picture of a lowered copy in SVG."""
    plan = lowered.plan
    left, right = _Panel.registers(plan), _Panel.memory(plan)
    x1 = _EDGE + _MARGIN
    x2 = x1 + max(left.width, left.heading) + _GAP + _MARGIN
    width = max(x2 + max(right.width, right.heading), 900.0) + _EDGE
    height = _TOP + max(left.height, right.height) + 84
    moves = list(dict.fromkeys(m.opcode for m in plan.moves))
    title = f"{len(plan.moves)} x {moves[0]}" if len(plan.moves) > 1 else moves[0]
    ways = [wavefronts(m) for m in plan.moves]
    cost = f"{sum(h for h, _ in ways)} wavefronts a warp, ideal {sum(i for _, i in ways)}"
    out = [
        text(_EDGE, 44, title + (", ..." if len(moves) > 1 else ""), 24, weight="bold"),
        text(_EDGE, 68, f"{head(plan)}; {cost}", 14, fill=FAINT),
        *left.drawn(x1),
        *right.drawn(x2),
        *lane_key(_EDGE, height - 48),
        text(_EDGE, height - 20, _words(plan, right), 12, fill=FAINT),
    ]
    return picture(width, height, title, out)


def _words(plan: Plan, right: _Panel) -> str:
    out = "T is the lane, r the word of its registers"
    if right.suppliers:
        out += "; above a row of 16 bytes: the lane whose address it is"
        out += " (after the number of the instruction)" if len(plan.moves) > 1 else ""
    return out


@dataclass(frozen=True, slots=True)
class _Panel:
    """One grid with its labels; ``suppliers`` are (row, column, label) of rows with an address."""

    title: str
    subtitle: str
    note: str
    grid: _Grid
    cell: tuple[int, int]
    step: tuple[int, int]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    corner: str
    lines: int
    suppliers: tuple[tuple[int, int, str], ...] = ()

    @classmethod
    def registers(cls, plan: Plan) -> _Panel:
        """The tile with rows and columns, cut down to what the first warp holds."""
        copy, placement = plan.copy, plan.placement
        shape = _shape(plan)
        order = _memory_order(plan, shape)
        thread = placement.thread.reshape(shape)[np.ix_(*order)]
        slot = placement.slot.reshape(shape)[np.ix_(*order)]
        own = thread < 32
        keep = np.flatnonzero(own.any(axis=1)), np.flatnonzero(own.any(axis=0))
        keep = keep[0][:_MOST_ROWS], keep[1][:_MOST_COLUMNS]
        thread, slot = thread[np.ix_(*keep)], slot[np.ix_(*keep)]
        grid = _Grid(np.where(thread < 32, thread, -1), slot, copy.width)
        cell = grid.cell()
        note = _note(plan, f"{shape[0]} x {shape[1]} elements", thread.shape, shape)
        rows, columns = (tuple(str(int(i)) for i in k) for k in keep)
        return cls(
            "Register tile", str(copy.register), note, grid, cell, cell, rows, columns, "column", 0
        )

    @classmethod
    def memory(cls, plan: Plan) -> _Panel:
        """The shared array, byte by byte, in lines of all banks that the first warp touches."""
        copy, placement = plan.copy, plan.placement
        thread, within, address = placement.bytes(copy.width)
        count = -(-(int(address.max()) + 1) // _LINE)
        holder = np.full(count * _LINE, -1, np.int64)
        position = np.zeros(count * _LINE, np.int64)
        own = thread < 32
        holder[address[own]], position[address[own]] = thread[own], within[own]
        keep = np.flatnonzero((holder.reshape(count, _LINE) >= 0).any(axis=1))[:_MOST_ROWS]
        columns = _LINE if count > 1 else -(-(int(address.max()) + 1) // 16) * 16
        shape = (count, _LINE)
        grid = _Grid(
            holder.reshape(shape)[keep, :columns], position.reshape(shape)[keep, :columns], 1
        )
        drawn = (len(keep), _LINE)
        note = _note(plan, f"{placement.shared_bytes} bytes in lines of 32 banks", drawn, shape)
        rows = tuple(str(_LINE * int(k)) for k in keep)
        banks = tuple(str(bank // 4) for bank in range(columns))
        suppliers = tuple(_suppliers(plan, [int(k) for k in keep]))
        cell = grid.cell()
        return cls(
            "Shared tile", str(copy.shared), note, grid, (1, cell[1]), (1, 4), rows, banks, "bank",
            16, suppliers,
        )  # fmt: skip

    @property
    def unit(self) -> tuple[float, float]:
        """Height and width of a square."""
        rows, columns = self.cell
        wide = _WIDTHS[columns * rows * self.grid.size]
        return _HEIGHT / rows, wide / columns

    @property
    def pitch(self) -> float:
        """From one row of the grid to the next."""
        return self.unit[0] + (_STRIP if self.suppliers else 0)

    @property
    def width(self) -> float:
        """Width of the grid."""
        return len(self.columns) * self.unit[1]

    @property
    def heading(self) -> float:
        """About the width of the text above the grid."""
        return max(6.8 * len(self.subtitle), 10 * len(self.title) + 4 + 6.8 * len(self.note))

    @property
    def height(self) -> float:
        """Height of the grid."""
        return len(self.rows) * self.pitch

    def drawn(self, x: float) -> Iterator[str]:
        """The panel with its first column at ``x``."""
        yield f'<g class="tile" data-name="{escape(self.title)}">'
        yield text(x, _TOP - 52, self.title, 17, weight="bold")
        yield text(x + 10 * len(self.title) + 4, _TOP - 52, self.note, 12, fill=FAINT)
        yield text(x, _TOP - 34, self.subtitle, 12)
        strip = self.pitch - self.unit[0]
        for column in range(0, len(self.columns), self.step[1]):
            middle = x + (column + self.step[1] / 2) * self.unit[1]
            yield text(middle, _TOP - 8, self.columns[column], 11, anchor="middle", fill=FAINT)
        yield text(x - 8, _TOP - 8, self.corner, 11, anchor="end", fill=FAINT)
        for row in range(0, len(self.rows), self.step[0]):
            y = _TOP + row * self.pitch + strip + self.step[0] * self.unit[0] / 2
            last = self.rows[row + self.step[0] - 1]
            label = self.rows[row] + (f"-{last}" if last != self.rows[row] else "")
            yield text(x - 8, y + 4, label, 12, anchor="end", fill=FAINT)
        for row, column, label in self.suppliers:
            y = _TOP + row * self.pitch + strip - 4
            yield text(x + column * self.unit[1] + 2, y, label, 10, fill=FAINT)
        yield from self._cells(x, strip)
        yield from self._frame(x, strip)
        yield "</g>"

    def _cells(self, x: float, strip: float) -> Iterator[str]:
        down, across = self.cell
        high, wide = self.unit[0] * down, self.unit[1] * across
        for row in range(0, len(self.grid.thread), down):
            y = _TOP + row * self.pitch + strip
            for column in range(0, self.grid.thread.shape[1], across):
                thread = int(self.grid.thread[row, column])
                at = x + column * self.unit[1]
                if thread < 0:
                    yield rectangle(at, y, wide, high, 'fill="#fafafa" stroke="#cccccc"')
                    continue
                word = int(self.grid.position[row, column]) * self.grid.size // 4
                yield _cell(at, y, wide, high, thread, word)

    def _frame(self, x: float, strip: float) -> Iterator[str]:
        """Heavy lines around rows of 16 bytes, or around the whole."""
        style = f'fill="none" stroke="{INK}" stroke-width="2"'
        if not strip:
            yield rectangle(x, _TOP, self.width, self.height, style)
        for row in range(len(self.grid.thread) if self.lines else 0):
            y = _TOP + row * self.pitch + strip
            if strip:
                yield rectangle(x, y, self.width, self.unit[0], style)
            for column in range(self.lines, self.grid.thread.shape[1], self.lines):
                at = x + column * self.unit[1]
                yield line(at, y, at, y + self.unit[0], 2, INK)


def _cell(x: float, y: float, wide: float, high: float, thread: int, word: int) -> str:
    box = rectangle(x, y, wide, high, f'fill="{LANE_FILLS[thread >> 2]}" stroke="{BORDER}"')
    lane = text(
        x + wide / 2, y + high / 2 - 1, f"T{thread}", 12 if wide > 30 else 11,
        anchor="middle", weight="bold",
    )  # fmt: skip
    register = text(x + wide / 2, y + high / 2 + 11, f"r{word}", 11, anchor="middle")
    return f'<g class="cell" data-lane="{thread}" data-register="{word}">{box}{lane}{register}</g>'


def _note(plan: Plan, what: str, drawn: tuple[int, ...], whole: tuple[int, ...]) -> str:
    """What a panel shows of the whole."""
    warps = plan.copy.thread_count // 32
    part = "" if tuple(drawn) == tuple(whole) else f", {drawn[0]} x {drawn[1]} shown"
    return what + part + (f", warp 0 of {warps}" if warps > 1 else "")


def _suppliers(plan: Plan, lines: list[int]) -> Iterator[tuple[int, int, str]]:
    """Line, byte in it, and label of each row whose address a lane of the first warp gives."""
    if plan.variant != "ldstmatrix":
        return
    at = {number: row for row, number in enumerate(lines)}
    seen: set[int] = set()
    for i, move in enumerate(plan.moves):
        for lane, address in enumerate(move.address[: move.suppliers].tolist()):
            if address in seen or address // _LINE not in at:
                continue
            seen.add(address)
            label = f"{i + 1}: T{lane}" if len(plan.moves) > 1 else f"T{lane}"
            yield at[address // _LINE], address % _LINE, label


# --- rows and columns of the tile -----------------------------------------------------------------


def _shape(plan: Plan) -> tuple[int, int]:
    """Rows and columns of the tile: where the digits of lane / 4 and of lane % 4 part."""
    copy = plan.copy
    extents, upper, lower = lane_digits(copy.register, copy.width)
    total = math.prod(extents)
    if upper and lower and max(upper) < min(lower):
        split = max(upper) + 1
        if plan.variant != "ldstmatrix" and not _beside(plan) and split + 1 < len(extents):
            split += 1  # each lane has a row of its own
    elif upper and lower and max(lower) < min(upper):
        split = max(lower) + 1
    else:
        tile = copy.shared.tile if isinstance(copy.shared, ComposeLayout) else copy.shared
        return tile.extents[0], total // tile.extents[0]
    rows = math.prod(extents[:split])
    return rows, total // rows


def _beside(plan: Plan) -> bool:
    """Whether the first words of lanes 0 and 1 are neighbours in memory before a swizzle."""
    shared, placement = plan.copy.shared, plan.placement
    tile = shared.tile if isinstance(shared, ComposeLayout) else shared
    offset = tile.evaluate().get("m", np.zeros(tile.size(), np.int64)) * plan.copy.width
    first = [offset[placement.thread == lane].min(initial=1 << 30) for lane in (0, 1)]
    return bool(first[1] - first[0] == max(4, plan.copy.width))


def _memory_order(plan: Plan, shape: tuple[int, int]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns in the order that they have in memory before a swizzle."""
    shared = plan.copy.shared
    tile = shared.tile if isinstance(shared, ComposeLayout) else shared
    offset = tile.evaluate(shape).get("m", np.zeros(shape, np.int64))
    return np.argsort(offset[:, 0], kind="stable"), np.argsort(offset[0], kind="stable")

"""Lane maps: which lane and register of a warp hold each cell of a matrix tile, drawn for people.

A map is shown as text for a terminal and as an SVG picture.  Neighbouring elements that lie in one
register of one lane are one cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..matrix import Fragment
from .drawing import (
    BORDER,
    FAINT,
    INK,
    LANE_FILLS,
    lane_key,
    line,
    number,
    picture,
    rectangle,
    text,
)

__all__ = ["Cell", "LaneMap", "cells", "lane_maps", "render_svg", "render_text"]

Array: TypeAlias = NDArray[Any]

#: Instructions that move 8x8 matrices (or wider ones) between registers and rows in memory.
_ROW_MOVERS = {"ldmatrix", "stmatrix"}

#: What rows and columns of the operands of a product run over.
_AXES = {"a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n"), "d": ("m", "n")}

#: Column and row of the operands of a product in a picture.
_PLACES = {"a": (0, 1), "b": (1, 0), "c": (2, 1), "d": (1, 1), "c and d": (1, 1), "d and c": (1, 1)}


# --- cells ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cell:
    """Neighbouring elements of a tile that lie in one register of one lane, low bits first.

    ``row`` and ``column`` are those of the first element, ``element`` is its place in the register.
    """

    row: int
    column: int
    rows: int
    columns: int
    lane: int
    register: int
    element: int

    @property
    def elements(self) -> int:
        """How many elements the cell has."""
        return self.rows * self.columns


def cells(fragment: Fragment, merge: bool = True) -> tuple[Cell, ...]:
    """The cells of a fragment in order of row and column.

    Every element of the tile is in exactly one cell; one that is held more than once is in the
    cell of its first holder.
    """
    per = fragment.register_bits // fragment.element_bits
    first = np.zeros(32 * fragment.elements, bool)
    first[fragment.holder] = True
    out: list[Cell] = []
    for held in np.flatnonzero(first).tolist():
        lane, index = divmod(held, fragment.elements)
        register, element = divmod(index, per)
        row, column = int(fragment.row[lane, index]), int(fragment.column[lane, index])
        cell = Cell(row, column, 1, 1, lane, register, element)
        longer = _joined(out[-1], cell) if merge and out else None
        if longer is None:
            out.append(cell)
        else:
            out[-1] = longer
    return tuple(sorted(out, key=lambda c: (c.row, c.column)))


def _joined(run: Cell, cell: Cell) -> Cell | None:
    """A run of elements with the next one, where that lies beside or below its last one."""
    same = (run.lane, run.register, run.element + run.elements)
    if same != (cell.lane, cell.register, cell.element):
        return None
    beside = run.rows == 1 and (cell.row, cell.column) == (run.row, run.column + run.columns)
    below = run.columns == 1 and (cell.row, cell.column) == (run.row + run.rows, run.column)
    if not (beside or below):
        return None
    rows, columns = run.rows + below, run.columns + beside
    return Cell(run.row, run.column, rows, columns, run.lane, run.register, run.element)


def _grid(fragment: Fragment, parts: Sequence[Cell]) -> tuple[int, int] | None:
    """Rows and columns of every cell where the cells form a regular grid, else None."""
    sizes = {(c.rows, c.columns) for c in parts}
    if len(sizes) != 1:
        return None
    ((rows, columns),) = sizes
    regular = all(c.row % rows == 0 and c.column % columns == 0 for c in parts)
    return (rows, columns) if regular else None


# --- maps -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LaneMap:
    """The lane map of one operand, or of one matrix of it.

    ``register`` is the first register of the operand that belongs to the map, ``supplier`` the
    lane that supplies the address of row 0 (None: no lane does), ``place`` the column and row of
    the map in a picture with several.  A ``square`` map is drawn alike in both directions, so that
    a transposition shows.
    """

    title: str
    fragment: Fragment
    place: tuple[int, int]
    axes: tuple[str, str] = ("", "")
    register: int = 0
    supplier: int | None = None
    compact: bool = False
    square: bool = False
    note: str = ""

    @property
    def per(self) -> int:
        """Elements of one register."""
        return self.fragment.register_bits // self.fragment.element_bits

    def label(self, cell: Cell) -> tuple[str, str]:
        """Lane and register of a cell; parts of a register have the places of their elements."""
        register = f"{self.register + cell.register}"
        if cell.elements != self.per:
            last = cell.element + cell.elements - 1
            register += f".{cell.element}" + (f"-{last}" if cell.elements > 1 else "")
        return f"{cell.lane}", register

    def notes(self) -> tuple[str, ...]:
        """Size, and what the cells do not show; a ``note`` of the map stands instead."""
        if self.note:
            return (self.note,)
        f = self.fragment
        size = f"{f.rows} x {f.columns}"
        if self.per > 1:
            of = f"of {self.per} x {f.element_bits} bits"
        else:
            of = f"of {f.register_bits} bits"
        out = [f"{size}, {f.registers} register{'s' * (f.registers > 1)} {of} a lane"]
        held = np.bincount(f.flat.reshape(-1))
        if held.max() > 1:
            times = f"{held.min()}" if held.min() == held.max() else f"{held.min()}-{held.max()}"
            out.append(f"each element is held {times} times; first holder shown")
        return tuple(out)


def lane_maps(
    name: str, modifiers: Mapping[str, str], fragments: Sequence[tuple[str, Fragment]]
) -> tuple[LaneMap, ...]:
    """The maps of an instruction from the register fragments of its operands.

    Operands of a product that lie alike (C and D of one type) share a map.
    """
    if name in _ROW_MOVERS:
        return tuple(_row_maps(fragments, bool(modifiers.get("trans"))))
    merged: dict[str, Fragment] = {}
    for title, fragment in fragments:
        alike = (t for t, f in merged.items() if _same_axes(t, title) and _equal(f, fragment))
        same = next(alike, "")
        if same:
            merged = {f"{t} and {title}" if t == same else t: f for t, f in merged.items()}
        else:
            merged[title] = fragment
    product = {title for title, _ in fragments} >= {"a", "b", "d"}
    out = []
    for i, (title, fragment) in enumerate(merged.items()):
        # as one multiplies by hand: B above the result, A at its left
        place = _PLACES.get(title, (i, 1)) if product else (i, 0)
        axes = _AXES.get(title[:1], ("", "")) if product else ("", "")
        if product and name.startswith("mma.sp") and title == "a":
            title += ", compressed"
        elif product and modifiers.get("shape") == "m8n8k4" and fragments[0][1].rows == 32:
            title += " of four products"  # one below the other: mma.m8n8k4 with f16
        out.append(LaneMap(title, fragment, place, axes, square=name == "movmatrix"))
    return tuple(out)


def _same_axes(one: str, other: str) -> bool:
    return one in _AXES and other in _AXES and _AXES[one] == _AXES[other]


def _equal(one: Fragment, other: Fragment) -> bool:
    return (one.element_bits, one.register_bits) == (
        other.element_bits, other.register_bits
    ) and np.array_equal(one.flat, other.flat)  # fmt: skip


def _row_maps(fragments: Sequence[tuple[str, Fragment]], transposed: bool) -> Iterator[LaneMap]:
    """Matrices as their rows lie in memory, and transposed ones also as registers see them."""
    for i, (title, fragment) in enumerate(fragments):
        first, lane = i * fragment.registers, i * fragment.rows
        if not transposed:
            yield LaneMap(title, fragment, (i, 0), register=first, supplier=lane, square=True)
            continue
        yield LaneMap(
            f"{title}, rows in memory", fragment, (i, 0),
            register=first, supplier=lane, compact=True, square=True,
        )  # fmt: skip
        turned = Fragment(
            fragment.columns, fragment.rows, fragment.element_bits, fragment.register_bits,
            fragment.column, fragment.row,
        )  # fmt: skip
        yield LaneMap(
            f"{title}, transposed", turned, (i, 1),
            register=first, compact=True, square=True, note="as the registers hold it",
        )  # fmt: skip


# --- text -----------------------------------------------------------------------------------------

_WIDTH = 100

#: Backgrounds of the eight lane groups among the 256 colours of a terminal, near LANE_FILLS.
_BACKGROUNDS = (110, 209, 222, 218, 72, 253, 149, 117)

#: A piece of a line and the lane group whose colour it has.
_Piece: TypeAlias = tuple[str, int | None]
_Line: TypeAlias = list[_Piece]


def render_text(maps: Sequence[LaneMap], colour: bool) -> str:
    """The maps as text of at most 100 columns where they fit, with a legend."""
    out = [*_legend(maps), ""]
    for row in _flow([_block(m) for m in maps]):
        out += ["".join(_painted(p, colour) for p in line).rstrip() for line in row]
        out.append("")
    return "\n".join(out[:-1]) + "\n"


def _legend(maps: Sequence[LaneMap]) -> list[str]:
    short = [_compact(m) for m in maps]
    shown = [(m, c) for m in maps for c in _shown(m)]
    out = []
    if not all(short):
        out.append("T5.r1 is register 1 of lane 5")
    if any(short):
        out.append("5:1 is register 1 of lane 5")
    if any("." in m.label(c)[1] for m, c in shown):
        out.append("register 1.0 is its lowest element")
    if any(c.elements > 1 for _, c in shown):
        out.append("a cell of several elements starts with the lowest bits")
    if any(m.supplier is not None for m in maps):
        out.append("lane 5 -> is the lane that supplies the address of a row")
    return out


def _painted(piece: _Piece, colour: bool) -> str:
    text, group = piece
    if group is None or not colour:
        return text
    return f"\x1b[38;5;16;48;5;{_BACKGROUNDS[group]}m{text}\x1b[0m"


def _shown(m: LaneMap) -> tuple[Cell, ...]:
    """The cells of the text: merged, unless rows of memory must stay apart."""
    parts = cells(m.fragment)
    size = _grid(m.fragment, parts)
    if size is None or (m.supplier is not None and size[0] > 1):
        return cells(m.fragment, merge=False)
    return parts


def _texts(m: LaneMap, parts: Sequence[Cell], compact: bool) -> list[str]:
    lane, register = ("", ":") if compact else ("T", ".r")
    return [f"{lane}{a}{register}{b}" for a, b in map(m.label, parts)]


def _compact(m: LaneMap) -> bool:
    """Whether cells are written short, because they must be or the map would be too wide."""
    parts = _shown(m)
    width = max(map(len, _texts(m, parts, False)))
    return m.compact or _margin(m) + (m.fragment.columns // parts[0].columns) * (width + 1) > _WIDTH


def _margin(m: LaneMap) -> int:
    """Width left of the cells."""
    rows = len(_range(m.fragment.rows - 2, 2)) if _shown(m)[0].rows > 1 else 2
    return max(rows, len("\\".join(m.axes)) if m.axes[0] else 0) + 1 + (
        len("lane 31 -> ") if m.supplier is not None else 0
    )  # fmt: skip


def _range(first: int, count: int) -> str:
    return f"{first}" if count == 1 else f"{first}-{first + count - 1}"


def _block(m: LaneMap) -> list[_Line]:
    """One map as lines: title, notes, and its grid in as many bands of columns as it needs."""
    parts = _shown(m)
    texts = _texts(m, parts, _compact(m))
    rows, columns = parts[0].rows, parts[0].columns
    at = {(c.row // rows, c.column // columns): i for i, c in enumerate(parts)}
    heads = [_range(c * columns, columns) for c in range(m.fragment.columns // columns)]
    width = max(map(len, [*texts, *heads]))
    margin = _margin(m)
    most = (_WIDTH - margin + 1) // (width + 1)
    bands = -(-len(heads) // most)
    most = -(-len(heads) // bands)
    lines: list[_Line] = [[(m.title, None)]]
    lines += [[("  " + note, None)] for note in m.notes()]
    for start in range(0, len(heads), most):
        band = range(start, min(start + most, len(heads)))
        corner = "\\".join(m.axes) if m.axes[0] else ""
        head = "".join(" " + heads[c].ljust(width) for c in band)
        lines.append([((corner + " ").rjust(margin)[:-1] + head, None)])
        for r in range(m.fragment.rows // rows):
            lines.append([(_row_head(m, r, rows).rjust(margin - 1), None)])
            for c in band:
                i = at[r, c]
                lines[-1] += [(" ", None), (texts[i].ljust(width), parts[i].lane >> 2)]
    return lines


def _row_head(m: LaneMap, index: int, rows: int) -> str:
    label = _range(index * rows, rows)
    return label if m.supplier is None else f"lane {m.supplier + index} -> {label:>2}"


def _flow(blocks: Sequence[list[_Line]]) -> list[list[_Line]]:
    """Blocks beside each other while they fit, else below."""
    rows: list[list[_Line]] = []
    for block in blocks:
        beside = rows[-1] if rows else []
        room = _length(beside) + 3
        if not rows or room + _length(block) > _WIDTH or len(beside) != len(block):
            rows.append(block)
            continue
        for i, words in enumerate(beside):
            pad = room - sum(len(word) for word, _ in words)
            rows[-1][i] = [*words, (" " * pad, None), *block[i]]
    return rows


def _length(block: Sequence[_Line]) -> int:
    return max((sum(len(text) for text, _ in line) for line in block), default=0)


# --- picture --------------------------------------------------------------------------------------

#: Smallest cell that holds a lane and a register on one line, and the unit of a square map.
_CELL = (62.0, 30.0)
_SQUARE = (38.0, 28.0)
#: About the width of a letter of the lane (bold, size 14) and of the register (size 13).
_LANE_LETTER = 9.3
_REGISTER_LETTER = 7.6
_EDGE = 28.0
_GAP = 36.0


@dataclass(frozen=True, slots=True)
class _Panel:
    """A map with its cells and the size of one element in the picture."""

    map: LaneMap
    cells: tuple[Cell, ...]
    unit: tuple[float, float]

    @property
    def width(self) -> float:
        return self.map.fragment.columns * self.unit[0]

    @property
    def height(self) -> float:
        return self.map.fragment.rows * self.unit[1]

    def heads(self, column: bool) -> list[tuple[float, str]]:
        """Labels of columns or rows and their middles, one for each element if there is room."""
        f = self.map.fragment
        count, unit = (f.columns, self.unit[0]) if column else (f.rows, self.unit[1])
        room = 7.5 * len(str(count - 1)) + 3 if column else 13
        step = 1 if unit >= room else min(c.columns if column else c.rows for c in self.cells)
        return [((i + step / 2) * unit, _range(i, step)) for i in range(0, count, step)]

    @property
    def left(self) -> float:
        """Room for what stands left of the cells."""
        labels = 7.0 * max(len(text) for _, text in self.heads(False)) + 8
        return max(labels, 26) + (84 if self.map.supplier is not None else 0)

    @property
    def top(self) -> float:
        """Room for what stands above the cells: title, notes and the labels of the columns."""
        return 24 + 16 * len(self.map.notes()) + 20


def _panels(maps: Sequence[LaneMap]) -> list[_Panel]:
    """Maps with sizes; maps that share an axis have the same size along it."""
    parts = [cells(m.fragment) for m in maps]
    shown = [m.label(c)[1] for m, own in zip(maps, parts, strict=True) for c in own]
    register = _REGISTER_LETTER * (1 + max(map(len, shown)))
    square = (max(_SQUARE[0], register + 2), _SQUARE[1])
    single = (max(_CELL[0], 3 * _LANE_LETTER + register + 8), _CELL[1])
    units: dict[tuple[str, int], float] = {}
    for m, own in zip(maps, parts, strict=True):
        for way, spans in enumerate(([c.columns for c in own], [c.rows for c in own])):
            size = square[way] if m.square else single[way] / min(spans)
            key = _axis(m, way)
            units[key] = max(size, units.get(key, 0.0))
    return [
        _Panel(m, own, (units[_axis(m, 0)], units[_axis(m, 1)]))
        for m, own in zip(maps, parts, strict=True)
    ]


def _axis(m: LaneMap, way: int) -> tuple[str, int]:
    """What the columns (0) or the rows (1) of a map share with those of other maps."""
    return (m.axes[1 - way] or m.title, way)


def render_svg(title: str, subtitle: str, maps: Sequence[LaneMap]) -> str:
    """The maps as an SVG picture that needs nothing else; a product lies as one multiplies."""
    panels = _panels(maps)
    across, xs = _tracks([(p.map.place[0], p.left, _wide(p)) for p in panels], _EDGE)
    down, ys = _tracks([(p.map.place[1], p.top, p.height) for p in panels], 76.0)
    width = max(across + _EDGE, 13.0 * len(title) + 2 * _EDGE, 7.0 * len(subtitle) + 2 * _EDGE, 740)
    height = down + 58 + 20 * len(_words(panels))
    out = [
        text(_EDGE, 42, title, 22, weight="bold"),
        text(_EDGE, 63, subtitle, 13, fill=FAINT),
    ]
    for p in panels:
        out += _drawn(p, xs[p.map.place[0]], ys[p.map.place[1]])
    out += _key(down + 34, panels)
    return picture(width, height, title, out)


def _wide(p: _Panel) -> float:
    """Width of a grid or of the text above it."""
    texts = [9.0 * len(p.map.title), *(6.6 * len(note) for note in p.map.notes())]
    return max(p.width, *texts)


def _tracks(
    items: Sequence[tuple[int, float, float]], start: float
) -> tuple[float, dict[int, float]]:
    """The end, and where the cells begin in each column or row: (index, room before, size)."""
    begins = {}
    for index in sorted({i for i, _, _ in items}):
        start += max(before for i, before, _ in items if i == index)
        begins[index] = start
        start += max(size for i, _, size in items if i == index) + _GAP
    return start - _GAP, begins


def _drawn(p: _Panel, x: float, y: float) -> list[str]:
    """One map with the first cell at a point."""
    m = p.map
    out = [f'<g class="map" data-name="{escape(m.title)}">']
    at = y - p.top + 18
    out.append(text(x, at, m.title, 16, weight="bold"))
    for note in m.notes():
        at += 16
        out.append(text(x, at, note, 12, fill=FAINT))
    out += [
        text(x + mid, y - 6, label, 12, anchor="middle", fill=FAINT) for mid, label in p.heads(True)
    ]
    out += [
        text(x - 6, y + mid + 4, label, 12, anchor="end", fill=FAINT)
        for mid, label in p.heads(False)
    ]
    if m.axes[0]:
        corner = "\\".join(m.axes)
        out.append(text(x - 6, y - 6, corner, 12, anchor="end", weight="bold"))
    if m.supplier is not None:
        out += _suppliers(p, x, y)
    out += [_cell(p, c, x, y) for c in p.cells]
    out += [*_wraps(p, x, y), "</g>"]
    return out


def _suppliers(p: _Panel, x: float, y: float) -> list[str]:
    """Which lane gives the address of each row."""
    out = []
    for row in range(p.map.fragment.rows):
        middle = y + (row + 0.5) * p.unit[1]
        lane = (p.map.supplier or 0) + row
        out.append(text(x - 66, middle + 4, f"lane {lane}", 12, anchor="end"))
        out.append(line(x - 61, middle, x - 34, middle, 1.5, FAINT))
        points = [(x - 26, middle), (x - 35, middle - 4), (x - 35, middle + 4)]
        tip = " ".join(f"{number(a)},{number(b)}" for a, b in points)
        out.append(f'<polygon points="{tip}" fill="{FAINT}"/>')
    return out


def _cell(p: _Panel, c: Cell, x: float, y: float) -> str:
    """One cell as a group: rectangle, marks between its elements, lane and register."""
    wide, high = c.columns * p.unit[0], c.rows * p.unit[1]
    x, y = x + c.column * p.unit[0], y + c.row * p.unit[1]
    lane, register = p.map.label(c)
    bits = p.map.fragment.element_bits
    low, high_bit = c.element * bits, (c.element + c.elements) * bits - 1
    where = f"row {_range(c.row, c.rows)}, column {_range(c.column, c.columns)}"
    out = [
        f'<g class="cell" data-lane="{lane}" data-register="{register}">'
        f"<title>{where}: lane {lane}, register {register}, bits {low}-{high_bit}</title>"
        + rectangle(x, y, wide, high, f'fill="{LANE_FILLS[c.lane >> 2]}" stroke="{BORDER}"')
    ]
    unit = p.unit[0] if c.columns > 1 else p.unit[1]
    for i in range(1, c.elements if unit >= 7 else 1):
        if c.columns > 1:
            out.append(line(x + i * unit, y, x + i * unit, y + 4, 1))
            out.append(line(x + i * unit, y + high, x + i * unit, y + high - 4, 1))
        else:
            out.append(line(x, y + i * unit, x + 4, y + i * unit, 1))
            out.append(line(x + wide, y + i * unit, x + wide - 4, y + i * unit, 1))
    centre, base = x + wide / 2, y + high / 2
    left, right = _LANE_LETTER * (1 + len(lane)), _REGISTER_LETTER * (1 + len(register))
    if wide >= 3 * _LANE_LETTER + right + 8:  # for lanes of two digits: all cells look alike
        # the two words stand together around the centre
        split = centre + (left - right) / 2
        out.append(text(split - 2, base + 5, f"T{lane}", 14, anchor="end", weight="bold"))
        out.append(text(split + 2, base + 5, f"r{register}", 13))
    else:
        out.append(text(centre, base - 2, f"T{lane}", 14, anchor="middle", weight="bold"))
        out.append(text(centre, base + 12, f"r{register}", 12, anchor="middle"))
    return "".join([*out, "</g>"])


def _wraps(p: _Panel, x: float, y: float) -> list[str]:
    """Heavy lines where the lanes start again, and around the whole."""
    f = p.map.fragment
    lanes = (f.holder // f.elements).reshape(f.rows, f.columns)
    out = [
        line(x, y + r * p.unit[1], x + p.width, y + r * p.unit[1], 2.5, INK)
        for r in range(4, f.rows, 4) if (lanes[r] < lanes[r - 1]).all()
    ]  # fmt: skip
    out += [
        line(x + c * p.unit[0], y, x + c * p.unit[0], y + p.height, 2.5, INK)
        for c in range(4, f.columns, 4) if (lanes[:, c] < lanes[:, c - 1]).all()
    ]  # fmt: skip
    out.append(rectangle(x, y, p.width, p.height, f'fill="none" stroke="{INK}" stroke-width="2.5"'))
    return out


def _key(y: float, panels: Sequence[_Panel]) -> list[str]:
    """What the colours and the words in the cells mean."""
    out = ['<g class="key">', *lane_key(_EDGE, y)]
    for words in _words(panels):
        y += 20
        out.append(text(_EDGE, y + 4, words, 12, fill=FAINT))
    return [*out, "</g>"]


def _words(panels: Sequence[_Panel]) -> list[str]:
    out = ["T is the lane, r the register"]
    if any(c.elements > 1 for p in panels for c in p.cells):
        out[0] += "; elements of a register from its low bits left to right or downward"
    if any(p.map.supplier is not None for p in panels):
        out.append("an arrow: the lane supplies the address of this row in shared memory")
    return out

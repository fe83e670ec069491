"""Search for layouts that matrix instructions can copy: padding, swizzles and register fragments.

One side of a copy is given, the other is proposed.  Every candidate is planned like any other copy
and its bank conflicts are counted from its addresses; nothing is concluded from its form.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ..layout import (
    ComposeLayout,
    Iter,
    LayoutError,
    Swizzle,
    TileLayout,
    canonicalize,
)
from .ldstmatrix import MATRIX_MOVES
from .plan import Plan, wavefronts
from .problem import DTYPES, SCOPES, Copy, shared_limit

__all__ = ["FAMILIES", "Proposal", "lane_digits", "register_layouts", "repairs", "shared_layouts"]

Shared: TypeAlias = TileLayout | ComposeLayout
Score: TypeAlias = tuple[int, int, int, int, int]

#: Bytes of a row of a matrix, and of all banks: the step and the end of the padding.
_ROW = 16
_BANKS = 128


@dataclass(frozen=True)
class Proposal:
    """A copy that matrix instructions do, with what it costs.

    ``conflicts`` are the wavefronts in shared memory over the fewest possible, ``wasted`` the bytes
    of the shared array that hold no element, ``swizzle`` the bits that its swizzle flips.
    ``moved`` is 0 if memory has the order that was asked for, 1 if that of the fragment's rows, 2
    if it is transposed.
    """

    plan: Plan
    instructions: int
    conflicts: int
    moved: int
    wasted: int
    swizzle: int

    @property
    def shared(self) -> Shared:
        """The layout of the shared side."""
        return self.plan.copy.shared

    @property
    def register(self) -> TileLayout:
        """The layout of the register side."""
        return self.plan.copy.register

    @property
    def score(self) -> Score:
        """What is compared, the most important first; less is better in each."""
        return self.instructions, self.conflicts, self.moved, self.wasted, self.swizzle

    def describe(self) -> str:
        """The costs as text."""
        forms = dict(Counter(".".join(_form(m.opcode)) for m in self.plan.moves))
        moves = " + ".join(f"{n} times {form}" if n > 1 else form for form, n in forms.items())
        ways = f"{self.conflicts} wavefronts over ideal" if self.conflicts else "conflict-free"
        waste = f"{self.wasted} bytes of padding" if self.wasted else "no padding"
        return f"{moves}, {ways}, {waste}"


def shared_layouts(
    register: TileLayout, shape: Sequence[int] | None = None, **options: Any
) -> tuple[Proposal, ...]:
    """Shared layouts for a register layout, the best first, none worse than another in all costs.

    ``shape`` has the rows and columns of the tile, whose logical order is row-major; without it
    rows and columns are those of the register fragment.  ``options`` are those of
    :class:`~lowering.copy.Copy`.

    >>> from lowering.layout import parse_tile
    >>> fragment = parse_tile("S[(8,4,2,2):(4@laneid,1@laneid,2,1)]")
    >>> for proposal in shared_layouts(fragment):
    ...     print(proposal.shared, "|", proposal.describe())
    swizzle(3,1,3) o S[(8,4,2,2):(16,2,8,1)] | x2, conflict-free, no padding
    S[(8,4,2,2):(24,2,8,1)] | x2, conflict-free, 112 bytes of padding
    S[(8,4,2,2):(1,16,64,8)] | x2.trans, conflict-free, no padding
    S[(8,4,2,2):(16,2,8,1)] | x2, 2 wavefronts over ideal, no padding
    """
    width = _width(options)
    frames = [_shaped(register, shape)] if shape is not None else _of_fragment(register, width)
    return _search(Copy(register, register, **options), frames, [])


def repairs(copy: Copy) -> tuple[Proposal, ...]:
    """Shared layouts for the register side of a copy, first those that lie like its shared side.

    None if no shared layout helps, for instance because the target has no such instruction.
    """
    if copy.dtype not in DTYPES:
        return ()
    fragment = _of_fragment(copy.register, copy.width)
    return _search(copy, _of_memory(copy.shared) or fragment, fragment)


def register_layouts(
    shared: Shared, shape: tuple[int, int], family: str = "any", **options: Any
) -> tuple[Proposal, ...]:
    """Register layouts for a shared layout of a tile of rows and columns in row-major order.

    ``family`` names the fragments to try, see :data:`FAMILIES`.
    """
    if family not in FAMILIES:
        raise ValueError(f"no fragment family '{family}'; there are: {', '.join(FAMILIES)}")
    rows, columns = shape
    if rows * columns != shared.size():
        raise LayoutError(f"shape {shape} does not hold the {shared.size()} elements of {shared}")
    scope, width = options.get("scope", "warp"), _width(options)
    if scope not in SCOPES:
        raise ValueError(f"no scope '{scope}'; there are: {', '.join(SCOPES)}")
    warps = (SCOPES[scope][0] or options.get("threads", 0)) // 32
    made = (
        _fragment(shape, width, warps, scope, *choice)
        for choice in itertools.product(FAMILIES[family], (False, True))
    )
    layouts = dict.fromkeys(layout for layout in made if layout is not None)
    best = _Best()
    for layout in layouts:
        best.add(Copy(layout, shared, **options), 0, str(layout))
    return best.proposals()


def _width(options: dict[str, Any]) -> int:
    dtype = options.get("dtype", "f16")
    if dtype not in DTYPES:
        raise ValueError(f"no type '{dtype}'; known: {', '.join(DTYPES)}")
    return DTYPES[dtype] // 8


# --- scores ---------------------------------------------------------------------------------------


class _Best:
    """The copies that can be planned and are not beaten in all costs."""

    def __init__(self) -> None:
        self._found: dict[tuple[Score, str], Proposal] = {}

    def add(self, copy: Copy, moved: int, name: str = "") -> None:
        """Take a copy if it can be planned; of equals with one name the first."""
        plan = MATRIX_MOVES.plan(copy)
        if isinstance(plan, Plan):
            proposal = _scored(plan, moved)
            self._found.setdefault((proposal.score, name), proposal)

    def beats(self, bound: Score) -> bool:
        """Whether what was found is at least as good as a score."""
        return any(_no_worse(score, bound) for score, _ in self._found)

    def proposals(self) -> tuple[Proposal, ...]:
        """All that are not beaten, the best first."""
        scores = {score for score, _ in self._found}
        kept = {s for s in scores if not any(o != s and _no_worse(o, s) for o in scores)}
        return tuple(p for key, p in sorted(self._found.items(), key=_key) if key[0] in kept)


def _key(item: tuple[tuple[Score, str], Proposal]) -> Score:
    return item[0][0]


def _no_worse(one: Score, other: Score) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True))


def _scored(plan: Plan, moved: int) -> Proposal:
    ways = [wavefronts(move) for move in plan.moves]
    shared = plan.copy.shared
    wasted = plan.placement.shared_bytes - shared.size() * plan.copy.width
    bits = shared.swizzle.b if isinstance(shared, ComposeLayout) else 0
    conflicts = sum(have - ideal for have, ideal in ways)
    return Proposal(plan, len(plan.moves), conflicts, moved, max(wasted, 0), bits)


def _form(opcode: str) -> list[str]:
    """What tells the forms of an instruction apart: the count of matrices, and trans."""
    return [word for word in opcode.split(".") if word in ("x1", "x2", "x4", "trans")]


# --- shared layouts -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Frame:
    """Digits of a tile in logical order, and which of them are rows and columns of memory.

    ``rows`` and ``columns`` are positions of digits, slowest in memory first.
    """

    extents: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]

    @property
    def across(self) -> int:
        """Elements of a row."""
        return math.prod(self.extents[d] for d in self.columns)

    @property
    def down(self) -> int:
        """Rows."""
        return math.prod(self.extents[d] for d in self.rows)

    def layout(self, pitch: int) -> TileLayout:
        """The tile with rows that far apart."""
        strides = dict.fromkeys(range(len(self.extents)), 0)
        for digits, step in ((self.columns, 1), (self.rows, pitch)):
            for digit in reversed(digits):
                strides[digit] = step
                step *= self.extents[digit]
        return TileLayout(tuple(Iter(e, strides[d]) for d, e in enumerate(self.extents)))

    def turned(self) -> _Frame:
        """The transposed tile."""
        return _Frame(self.extents, self.columns, self.rows)


def _search(copy: Copy, wanted: Sequence[_Frame], others: Sequence[_Frame]) -> tuple[Proposal, ...]:
    """The register side of a copy with all candidates of frames, and of their transpositions."""
    best = _Best()
    limit = shared_limit(copy.parsed_target)
    if copy.register.size() * copy.width > limit:
        return ()
    per_thread = copy.register.size("m") * copy.width
    fewest = max(1, -(-per_thread // 16))
    turned = [f.turned() for f in (*wanted, *others)]
    orders = ((0, wanted), (1, others), (2, turned))
    given = {frame: moved for moved, frames in reversed(orders) for frame in frames}
    for frame, moved in sorted(given.items(), key=lambda item: item[1]):
        for layout, wasted in _candidates(frame, copy.width, limit):
            bits = layout.swizzle.b if isinstance(layout, ComposeLayout) else 0
            if not best.beats((fewest, 0, moved, wasted, bits)):
                best.add(replace(copy, shared=layout), moved)
    return best.proposals()


def _candidates(frame: _Frame, width: int, limit: int) -> Iterator[tuple[Shared, int]]:
    """A frame with all paddings and swizzles, each with the least that it can waste, in bytes."""
    across = frame.across * width
    least = -(-across // _ROW) * _ROW  # rows start at multiples of 16 bytes
    pitches = [
        p for p in range(least, least + _BANKS + 1, _ROW)
        if p % width == 0 and (frame.down - 1) * p + across <= limit
    ]  # fmt: skip
    for bits in (0, 1, 2, 3):
        for pitch in pitches:
            tile = frame.layout(pitch // width)
            wasted = (frame.down - 1) * (pitch - across)
            if not bits:
                yield tile, wasted
            elif _ROW % width == 0:
                # the last row may move towards the start
                wasted = max(0, wasted - _BANKS)
                yield ComposeLayout(tile, Swizzle.hardware(16 << bits, 8 * width)), wasted


def _shaped(register: TileLayout, shape: Sequence[int]) -> _Frame:
    if len(shape) != 2 or math.prod(shape) != register.size():
        raise LayoutError(
            f"shape {tuple(shape)} is not the rows and columns of {register.size()} elements"
        )
    return _Frame(tuple(shape), (0,), (1,))


def _of_memory(shared: Shared) -> list[_Frame]:
    """The digits of a shared layout: columns are those that follow each other without a gap."""
    tile = shared.tile if isinstance(shared, ComposeLayout) else shared
    iters = tile.shard
    real = [d for d, i in enumerate(iters) if i.extent > 1 and i.stride > 0]
    if any(i.extent > 1 and i.stride <= 0 for i in iters):
        return []
    order = sorted(real, key=lambda d: -iters[d].stride)
    columns: list[int] = []
    step = 1
    while order and iters[order[-1]].stride == step:
        columns.insert(0, order.pop())
        step *= iters[columns[0]].extent
    extents = tile.extents
    # of a dense tile the slowest digits are rows, as many as there are choices
    splits = range(len(columns)) if not order else (0,)
    return [_Frame(extents, (*order, *columns[:n]), tuple(columns[n:])) for n in splits]


def _of_fragment(register: TileLayout, width: int) -> list[_Frame]:
    """The digits of a fragment: rows are what the upper bits of the lane count."""
    if width > 4:
        return []
    pieces = _pieces(register, width)
    lanes = [d for d, i in enumerate(pieces) if i.axis != "m" and i.stride >= 4]
    # lanes 0..3 with the elements of a word are 16 bytes; above them stand the other words
    words = [d for d, i in enumerate(pieces) if i.axis == "m" and i.stride >= 4 // width]
    low = [d for d, i in enumerate(pieces) if i.axis != "m" and i.stride < 4]
    inner = [d for d, i in enumerate(pieces) if i.axis == "m" and i.stride < 4 // width]
    columns = (words, low, inner)
    ordered = tuple(d for digits in columns for d in _descending(pieces, digits))
    return [_Frame(tuple(i.extent for i in pieces), _descending(pieces, lanes), ordered)]


def lane_digits(
    register: TileLayout, width: int
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The extents of a register layout cut into digits, and which of them are rows of a fragment.

    These are those of four lanes (lane / 4), and within them (lane % 4, elements of a word).
    """
    pieces = _pieces(register, width)
    upper = [d for d, i in enumerate(pieces) if i.axis != "m" and 4 <= i.stride < 32]
    low = [d for d, i in enumerate(pieces) if i.axis != "m" and i.stride < 4]
    inner = [d for d, i in enumerate(pieces) if i.axis == "m" and i.stride < 4 // width]
    return tuple(i.extent for i in pieces), tuple(upper), tuple(low + inner)


def _pieces(register: TileLayout, width: int) -> list[Iter]:
    """The digits of a register layout, cut where lanes reach four and elements fill a word."""
    per = max(4 // width, 1)
    return [piece for i in canonicalize(register).shard for piece in _split(i, per)]


def _split(it: Iter, per: int) -> Iterator[Iter]:
    """A digit in threads or elements, cut where lanes reach four and elements fill a word."""
    threads = SCOPES["cta"][1].get(it.axis)
    stride, limit = it.stride * (threads or 1), 4 if threads else per
    axis = "tx" if threads else it.axis
    inner = limit // stride if 0 < stride < limit and limit % stride == 0 else it.extent
    if inner < it.extent and it.extent % inner == 0:
        yield Iter(it.extent // inner, stride * inner, axis)
        yield Iter(inner, stride, axis)
    else:
        yield Iter(it.extent, stride, axis)


def _descending(pieces: Sequence[Iter], digits: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(digits, key=lambda d: -pieces[d].stride))


# --- register layouts -----------------------------------------------------------------------------

#: Fragments by name, each as (transposed, words by column first): how a matrix of a word lies in
#: the tile, and in which order the words of a thread go over the matrices.  ``a``, ``b`` and ``c``
#: are the operands of ``mma.m16n8k16``, B as k x n.
FAMILIES: dict[str, tuple[tuple[bool, bool], ...]] = {
    "a": ((False, True),),
    "b": ((True, False),),
    "c": ((False, True),),
    "plain": ((False, False), (False, True)),
    "transposed": ((True, False), (True, True)),
    "any": ((False, False), (False, True), (True, False), (True, True)),
}

#: The axis that counts the warps of a scope.
_WARP_AXES = {"warp": "laneid", "warpgroup": "wid_in_wg", "cta": "warpid"}


def _fragment(
    shape: tuple[int, int],
    width: int,
    warps: int,
    scope: str,
    choice: tuple[bool, bool],
    beside: bool,
) -> TileLayout | None:
    """A tile cut into matrices of eight rows of 16 bytes, or None if it is no multiple of one.

    The warps share the rows of the tile, or lie ``beside`` each other.
    """
    transposed, by_column = choice
    if width > 4 or (beside and warps == 1):
        return None
    per = 4 // width
    cell = (8, 4 * per)
    rows, columns = shape[::-1] if transposed else shape
    share = (1, warps) if beside else (warps, 1)
    down, down_left = divmod(rows, cell[0] * share[0])
    across, across_left = divmod(columns, cell[1] * share[1])
    if not down or not across or down_left or across_left:
        return None
    axis = _WARP_AXES[scope]
    step = (per, down * per) if by_column else (across * per, per)
    vertical = [Iter(share[0], 1, axis), Iter(down, step[0]), Iter(8, 4, "laneid")]
    horizontal = [
        Iter(share[1], 1, axis), Iter(across, step[1]), Iter(4, 1, "laneid"), Iter(per, 1),
    ]  # fmt: skip
    digits = horizontal + vertical if transposed else vertical + horizontal
    return TileLayout(tuple(i for i in digits if i.extent > 1))

"""What a circular-buffered matmul loop must execute: predicates, fills and copies as formulas.

The counts are those of threads, over all CTAs; divide by 32 for warps.  Both operands lie with the
reduced axis of extent K contiguous and are copied in tiles of L by cp.async, V elements at a time:
``nv = (tile_m + tile_n) * L / V`` copies a tile and CTA.  :mod:`.interpret` and the counters of the
simulator (:func:`measured`) must agree with the formulas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum

from .lower import Scheme

__all__ = ["SCHEMES", "Cost", "Problem", "Variant", "cost", "measured", "table"]


class Variant(Enum):
    """How the elements behind the end of the reduced axis are kept out.

    ``U0`` and ``U1`` have one loop over all tiles, a predicate at each copy and S - 1 tiles of
    masked copies at the end; ``P0`` peels the first tile in the same loop, ``P1`` and ``P2`` end
    the loads with a drain loop.
    """

    #: a predicate at every copy, behind a fill of all of the tile
    U0 = "U0"
    #: a predicate at every copy, which fills with zeros itself
    U1 = "U1"
    #: the first tile peeled, fills by stores, one uniform test a tile in the loop
    P0 = "P0"
    #: the first tile peeled, copies that fill with zeros, no test in the loop
    P1 = "P1"
    #: the same with one predicate a thread
    P2 = "P2"


#: How the lowering makes them.
SCHEMES: Mapping[Variant, Scheme] = {
    Variant.U0: Scheme("off", "explicit", "masked", "vector"),
    Variant.U1: Scheme("off", "zfill", "masked", "vector"),
    Variant.P0: Scheme("on", "explicit", "masked", "vector"),
    Variant.P1: Scheme("on", "zfill", "drain", "vector"),
    Variant.P2: Scheme("on", "zfill", "drain", "thread"),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """The problem and its schedule: extents, CTA tile, depth S and vector width V of the pipeline.

    A tile without columns has no operand B.  ``static_k`` and ``static_mn`` say which extents are
    constants of the kernel.
    """

    m: int
    n: int
    k: int
    tile_k: int
    depth: int
    vector: int
    tile: tuple[int, int] = (128, 128)
    threads: int = 128
    element_bytes: int = 2
    static_k: bool = False
    static_mn: bool = False

    @property
    def ctas(self) -> int:
        """CTAs of the grid."""
        return _ceil_div(self.m, self.tile[0]) * _ceil_div(self.n, self.tile[1] or 1)

    @property
    def tiles(self) -> int:
        """T, the tiles of the reduced axis."""
        return _ceil_div(self.k, self.tile_k)

    @property
    def residue(self) -> int:
        """r, the elements of the first tile."""
        return self.k - max(self.tiles - 1, 0) * self.tile_k

    @property
    def copies(self) -> int:
        """nv, the copies of a tile of both operands in a CTA."""
        return sum(self.tile) * self.tile_k // self.vector

    @property
    def lines(self) -> int:
        """Rows of A and columns of B that exist, each as often as a CTA copies it."""
        rows, columns = _ceil_div(self.m, self.tile[0]), _ceil_div(self.n, self.tile[1] or 1)
        return self.m * columns + (self.n * rows if self.tile[1] else 0)


@dataclass(frozen=True, slots=True)
class Cost:
    """Executions by threads; the names are those of the columns of :func:`table`."""

    #: tests whether an element of the reduced axis exists
    axis: int
    #: tests that all threads of a CTA agree on, by all of them
    uniform: int
    #: tests whether a row or column exists, once before the loop
    bound: int
    #: stores of zeros to shared memory
    fills: int
    fill_bytes: int
    #: of these stores, those whose elements no copy writes
    needed_fills: int
    #: cp.async that are reached, of which ...
    copies: int
    #: ... all elements are read,
    full: int
    #: ... some are,
    partial: int
    #: ... none is, since the reduced axis ends before (zero-filled or masked),
    masked: int
    #: ... none is, since the row or column does not exist
    outside: int
    commits: int
    #: wait_group; one wait_all is executed besides
    waits: int
    barriers: int


def cost(variant: Variant, problem: Problem) -> Cost:
    """The executions of a variant.

    >>> cost(Variant.P1, Problem(128, 128, 1000, tile_k=32, depth=3, vector=8)).axis
    1024
    """
    peeled = variant not in (Variant.U0, Variant.U1)
    drained = variant in (Variant.P1, Variant.P2)
    everyone = problem.ctas * problem.threads
    slots = problem.ctas * problem.copies
    # the residue tile is loaded also where it has no element
    loaded = max(problem.tiles, 1) if drained else problem.tiles + problem.depth - 1
    full, partial, masked = _outcomes(problem, loaded)
    fills = {Variant.U0: loaded, Variant.P0: problem.depth}.get(variant, 0) * slots
    complement = masked if variant is Variant.U0 else _outcomes(problem, max(problem.tiles, 1))[2]
    even = problem.static_mn and problem.lines == problem.ctas * sum(problem.tile)
    return Cost(
        axis=_axis_tests(variant, problem, slots, loaded),
        uniform=everyone * _uniform_tests(problem, drained) if peeled else 0,
        bound=0 if even else slots,
        fills=fills,
        fill_bytes=fills * problem.vector * problem.element_bytes,
        needed_fills=complement if fills else 0,
        copies=loaded * slots,
        full=full,
        partial=partial,
        masked=masked,
        outside=loaded * slots - full - partial - masked,
        commits=everyone * (problem.depth - 1 + problem.tiles),
        waits=everyone * (1 + problem.tiles),
        barriers=everyone * (1 + problem.tiles),
    )


def _axis_tests(variant: Variant, problem: Problem, slots: int, loaded: int) -> int:
    if variant in (Variant.U0, Variant.U1):
        return loaded * slots
    if problem.static_k and problem.k and problem.k % problem.tile_k == 0:
        return 0
    return problem.ctas * problem.threads if variant is Variant.P2 else slots


def _uniform_tests(problem: Problem, drained: bool) -> int:
    """Whether a tile exists: for those of the prolog but the first, or in each iteration."""
    if not drained:
        return problem.tiles
    return 0 if problem.static_k else max(problem.depth - 2, 0)


def _outcomes(problem: Problem, loaded: int) -> tuple[int, int, int]:
    """Copies of existing rows and columns with all, some and none of their elements."""
    vectors = problem.tile_k // problem.vector
    whole, rest = divmod(problem.residue, problem.vector)
    all_ = max(problem.tiles - 1, 0) * vectors + whole
    some = 1 if rest else 0
    return (
        all_ * problem.lines,
        some * problem.lines,
        (loaded * vectors - all_ - some) * problem.lines,
    )


def measured(counters: Mapping[str, int]) -> dict[str, int]:
    """The executions that a launch counted (tool ``advice``), by the names of :class:`Cost`.

    Copies that are masked and those of rows outside look alike: ``masked`` has both.
    """
    waits = [n for n in counters if n.startswith("cp.async.wait_group.")]
    names = {
        "axis": ["tag.axis.setp"], "uniform": ["tag.uniform.setp"], "bound": ["tag.bound.setp"],
        "fills": ["tag.fill.st"], "copies": ["cp.async", "cp.async.skipped"],
        "full": ["cp.async.full"], "partial": ["cp.async.partial"],
        "masked": ["cp.async.zero_filled", "cp.async.skipped"],
        "commits": ["cp.async.commit_group"], "barriers": ["barrier"],
        "waits": [n.removesuffix(".threads") for n in waits if n.endswith(".threads")],
    }  # fmt: skip
    found = {
        name: sum(counters.get(f"{counter}.threads", 0) for counter in parts)
        for name, parts in names.items()
    }
    return {**found, "fill_bytes": counters.get("tag.fill.st.bytes", 0)}


def table(problem: Problem, variants: Sequence[Variant] = tuple(Variant)) -> str:
    """The costs of variants as lines of text, one for each."""
    names = [f.name for f in fields(Cost)]
    rows = [["variant", *(name.replace("_", " ") for name in names)]]
    for variant in variants:
        value = cost(variant, problem)
        rows.append([variant.value, *(str(getattr(value, name)) for name in names)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ("  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(lines) + "\n"


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)

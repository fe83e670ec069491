"""The loop IR: what a scheduled fusion becomes, pass by pass, before it is PTX.

A :class:`Program` is a tree of loops with statements in it.  Indices are integer expressions over
the loop variables, the sizes (parameters) and the thread and block numbers ``tid.x`` .. ``tid.z``,
``ctaid.x`` .. ``ctaid.z``.  The passes rewrite this tree; :mod:`.interpret` runs it in NumPy and
:mod:`.emit` writes it as PTX.

Every thread executes the statements; those on fragments (:class:`LoadMatrix`, :class:`Mma`,
:class:`StoreMatrix`) are executed by the 32 threads of a warp together, ``tid.x`` is the lane.
Serial loops run; unrolled ones are written out, so that their variables are constants.  Axes of
threads and CTAs are no loops any more: their variables are ``tid.x`` .. ``ctaid.z``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, TypeAlias

from ..layout import Swizzle
from .integers import Expr, Int

__all__ = [
    "Access",
    "Block",
    "BlockSync",
    "Buffer",
    "Commit",
    "Compute",
    "Copy",
    "Define",
    "Fill",
    "Fragment",
    "If",
    "LoadMatrix",
    "Loop",
    "Memory",
    "Mma",
    "Node",
    "Parallel",
    "Peel",
    "Program",
    "Stage",
    "StoreMatrix",
    "Test",
    "Wait",
    "Why",
    "ZeroFill",
    "dump",
    "statements",
]


class Memory(Enum):
    """Where a tensor lives."""

    GLOBAL = "global"
    SHARED = "shared"
    LOCAL = "local"


class Parallel(Enum):
    """How the iterations of an axis are executed.

    ``MMA`` axes are distributed over the lanes of a warp by the matrix instruction.
    """

    SERIAL = "serial"
    UNROLL = "unroll"
    VECTORIZE = "vectorize"
    MMA = "mma"
    TIDX = "tid.x"
    TIDY = "tid.y"
    TIDZ = "tid.z"
    BIDX = "ctaid.x"
    BIDY = "ctaid.y"
    BIDZ = "ctaid.z"

    @property
    def thread(self) -> bool:
        """Whether the iterations are threads of a CTA."""
        return self.value.startswith("tid")

    @property
    def block(self) -> bool:
        """Whether the iterations are CTAs."""
        return self.value.startswith("ctaid")


class Stage(Enum):
    """Part of a circular-buffered loop."""

    NONE = ""
    PROLOG = "prolog"
    MAIN = "main"
    DRAIN = "drain"


class Peel(Enum):
    """Part of a peeled loop: the first tile, the tiles behind it, or both in one loop."""

    NONE = ""
    RESIDUE = "residue"
    STEADY = "steady"
    MIXED = "mixed"


class Why(Enum):
    """What a test is there for; the counters of the simulator tell them apart."""

    #: an element of the peeled (or peelable) axis exists
    AXIS = "axis"
    #: an element of another axis exists
    BOUND = "bound"
    #: all threads of the CTA agree: a tile exists
    UNIFORM = "uniform"


@dataclass(frozen=True, slots=True)
class Fragment:
    """How a warp holds a tile: as operand ``A``, ``B`` or accumulator ``C`` of a matrix shape.

    ``shape`` is (m, n, k) of one instruction; a buffer holds one or more such tiles in each of its
    last two axes: rows and columns (m, k) of A, (k, n) of B, (m, n) of C.
    """

    role: str
    shape: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory of a tensor: extents and strides in elements.

    Shared buffers that are circular have the slot as their first axis.  ``swizzle`` permutes the
    element offsets inside a slot.  Local buffers are registers of a thread; with ``fragment`` the
    last two axes are a matrix that the warp holds.
    """

    name: str
    dtype: str
    memory: Memory
    extents: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    #: promised alignment of the first element, in bytes
    align: int = 16
    swizzle: Swizzle | None = None
    fragment: Fragment | None = None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Access:
    """An element of a buffer, or the first one of a vector or tile; one index for each axis."""

    buffer: Buffer
    index: tuple[Expr, ...]

    @property
    def offset(self) -> Expr:
        """Elements from the start of the buffer, before a swizzle."""
        total: Expr = Int(0)
        for index, stride in zip(self.index, self.buffer.strides, strict=True):
            total = total + index * stride
        return total

    def __str__(self) -> str:
        return f"{self.buffer}[{', '.join(map(str, self.index))}]"


@dataclass(frozen=True, slots=True)
class Test:
    """A condition (not 0: true) and what it is for."""

    #: the name is that of a test class for pytest
    __test__: ClassVar[bool] = False

    condition: Expr
    why: Why

    def __str__(self) -> str:
        return f"{self.condition} ({self.why.value})"


@dataclass(frozen=True, slots=True)
class ZeroFill:
    """A copy that writes zeros for what it does not read.

    ``live`` is how many of its elements are read, from the first on: 0 to the width.  ``whole``:
    that is always 0 or the width, so that a predicate suffices (ignore-src).
    """

    live: Expr
    whole: bool
    why: Why = Why.AXIS


@dataclass(frozen=True, slots=True)
class Copy:
    """``out = source`` for ``width`` elements in a row.

    ``cache`` is ``ca`` or ``cg`` for cp.async, empty for a load and a store.  Where the guard is
    false nothing happens.
    """

    out: Access
    source: Access
    width: int = 1
    cache: str = ""
    guard: tuple[Test, ...] = ()
    zero: ZeroFill | None = None


@dataclass(frozen=True, slots=True)
class Fill:
    """``width`` elements get a value."""

    out: Access
    value: float | int
    width: int = 1
    guard: tuple[Test, ...] = ()


@dataclass(frozen=True, slots=True)
class Compute:
    """``out = op(sources)``; a reduction has ``out`` as its first source.

    ``op`` is ``add sub mul max min fma neg cast exp2 ...``; types are those of the buffers.
    """

    op: str
    out: Access
    sources: tuple[Access, ...]
    guard: tuple[Test, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadMatrix:
    """The matrix of a fragment buffer from shared memory; ``source`` is its element (0, 0).

    ``out`` has the indices of the other axes, and 0 for its rows and columns.  ``axes``: which axes
    of the source are the rows and columns.
    """

    out: Access
    source: Access
    axes: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Mma:
    """``acc += a * b`` on the whole matrices of fragment buffers.

    ``instruction`` is the shape of one mma, such as m16n8k16.
    """

    acc: Access
    a: Access
    b: Access
    instruction: str


@dataclass(frozen=True, slots=True)
class StoreMatrix:
    """The matrix of a fragment buffer to global memory; ``out`` is its element (0, 0).

    ``axes``: which axes of the target are the rows and columns.  ``left``: how many rows and
    columns exist from there on, None where all do.
    """

    out: Access
    source: Access
    axes: tuple[int, int]
    left: tuple[Expr | None, Expr | None] = (None, None)


@dataclass(frozen=True, slots=True)
class Commit:
    """cp.async.commit_group."""


@dataclass(frozen=True, slots=True)
class Wait:
    """cp.async.wait_group, or wait_all for None."""

    pending: int | None


@dataclass(frozen=True, slots=True)
class BlockSync:
    """A barrier of all threads of the CTA."""


@dataclass(frozen=True, slots=True)
class Define:
    """A value that is computed once, here; the rest of the block has it as a symbol.

    With ``why`` it is a condition for tests (``Test(Symbol(name), why)``).
    """

    name: str
    value: Expr
    why: Why | None = None


@dataclass(frozen=True, slots=True)
class If:
    """``body`` where all tests hold; they are the same for all threads of a CTA."""

    tests: tuple[Test, ...]
    body: Block


@dataclass(frozen=True, slots=True)
class Loop:
    """``var`` runs over [start, stop); of parallel axes each thread or CTA executes one value."""

    var: str
    start: Expr
    stop: Expr
    body: Block
    parallel: Parallel = Parallel.SERIAL
    stage: Stage = Stage.NONE
    peel: Peel = Peel.NONE


Node: TypeAlias = (
    "Loop | If | Define | Copy | Fill | Compute | LoadMatrix | Mma | StoreMatrix | Commit | Wait "
    "| BlockSync"
)
Block: TypeAlias = tuple[Node, ...]


@dataclass(frozen=True)
class Program:
    """A kernel: parameters are the global buffers in order, then the sizes (u32) in order."""

    name: str
    buffers: tuple[Buffer, ...]
    sizes: tuple[str, ...]
    body: Block
    #: threads of a CTA in x, y and z
    block: tuple[int, int, int]
    #: CTAs in x, y and z, as expressions of the sizes
    grid: tuple[Expr, Expr, Expr]

    def __str__(self) -> str:
        return dump(self)


def statements(block: Block) -> Iterator[Node]:
    """All nodes that are no loops and no branches, in order."""
    for node in block:
        if isinstance(node, (Loop, If)):
            yield from statements(node.body)
        else:
            yield node


def dump(program: Program) -> str:
    """The loop nest as indented text."""
    head = ", ".join([b.name for b in program.buffers if b.memory is Memory.GLOBAL])
    lines = [f"kernel {program.name}({', '.join([head, *program.sizes])})"]
    lines += [f"  {_buffer(b)}" for b in program.buffers]
    _dump(program.body, 1, lines)
    return "\n".join(lines) + "\n"


def _buffer(b: Buffer) -> str:
    shape = ", ".join(map(str, b.extents))
    strides = ", ".join(map(str, b.strides))
    swizzle = f" {b.swizzle}" if b.swizzle is not None else ""
    return f"{b.memory.value} {b.dtype} {b.name}[{shape}] strides ({strides}){swizzle}"


def _dump(block: Block, depth: int, lines: list[str]) -> None:
    for node in block:
        pad = "  " * depth
        if isinstance(node, Loop):
            marks = [m.value for m in (node.parallel, node.stage, node.peel) if m.value]
            lines.append(f"{pad}for {node.var} in [{node.start}, {node.stop}) {' '.join(marks)}:")
            _dump(node.body, depth + 1, lines)
        elif isinstance(node, If):
            lines.append(f"{pad}if {' and '.join(map(str, node.tests))}:")
            _dump(node.body, depth + 1, lines)
        else:
            lines.append(pad + _line(node))


def _line(node: Node) -> str:
    if isinstance(node, Define):
        why = f" ({node.why.value})" if node.why is not None else ""
        return f"{node.name} = {node.value}{why}"
    if isinstance(node, Copy):
        how = f"cp.async.{node.cache}" if node.cache else "copy"
        zero = f", live {node.zero.live} ({node.zero.why.value})" if node.zero is not None else ""
        return f"{node.out} = {how}({node.source}, {node.width}{zero}){_guard(node.guard)}"
    if isinstance(node, Fill):
        return f"{node.out} = fill({node.value}, {node.width}){_guard(node.guard)}"
    if isinstance(node, Compute):
        sources = ", ".join(map(str, node.sources))
        return f"{node.out} = {node.op}({sources}){_guard(node.guard)}"
    if isinstance(node, LoadMatrix):
        return f"{node.out} = load_matrix({node.source}, axes {node.axes})"
    if isinstance(node, StoreMatrix):
        limits = zip(("rows", "columns"), node.left, strict=True)
        left = ", ".join(f"{name} < {limit}" for name, limit in limits if limit is not None)
        where = f" where {left}" if left else ""
        return f"{node.out} = store_matrix({node.source}, axes {node.axes}){where}"
    if isinstance(node, Mma):
        return f"{node.acc} += {node.instruction}({node.a}, {node.b})"
    if isinstance(node, Commit):
        return "commit"
    if isinstance(node, Wait):
        return "wait_all" if node.pending is None else f"wait_group {node.pending}"
    return "barrier"


def _guard(tests: tuple[Test, ...]) -> str:
    return f" where {' and '.join(map(str, tests))}" if tests else ""

"""Matrix products: from a shape and a schedule to the fusion that is lowered.

``c = a @ b`` for each batch; K may be two axes, K1 and K2, that are contracted together.  The
layout letters say how ``a`` and ``b`` lie in memory, as in BLAS but row-major: ``N`` is a[m, k]
and b[k, n], ``T`` is a[k, m] and b[n, k].
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ptxsim.errors import UsageError
from ptxsim.matrix.layouts import parse_shape
from ptxsim.targets import TARGETS, parse_target

from ..copy.problem import shared_limit
from ..layout import Swizzle
from .integers import Expr, Int, Symbol, expr, multiple
from .loops import Memory, Parallel
from .lower import Scheme
from .statements import size_of
from .tensors import Axis, Fusion, Tensor

__all__ = ["DTYPES", "Matmul", "schedule", "width"]

#: Input type: type in memory, accumulator, and the mma shape; f32 has no mma, but fma.
DTYPES: Mapping[str, tuple[str, str, str]] = {
    "f16": ("f16", "f32", "m16n8k16"),
    "bf16": ("bf16", "f32", "m16n8k16"),
    "tf32": ("f32", "f32", "m16n8k8"),
    "f32": ("f32", "f32", ""),
    "s8": ("s8", "s32", "m16n8k32"),
}
#: Registers of a thread, and CTAs along y or z (CUDA C++ guide, Compute Capabilities).
MAX_REGISTERS = 255
MAX_CTAS = 65535
#: The shapes before sm_80.
_TURING = {"f16": "m16n8k8", "s8": "m8n8k16"}
#: Threads in x for products without mma.
_LANES = 16


@dataclass(frozen=True, slots=True)
class Matmul:
    """A matrix product and its schedule.

    ``k`` is one extent or two; ``symbolic`` has the letters of the sizes that the launch gives, and
    ``multiples`` what those are promised to be multiples of.  ``strides`` has, for ``a``, ``b`` or
    ``c``, the elements from one index to the next of each axis (batch first); dense by default.
    ``tile`` is M, N, K of a CTA, ``warps`` along M and N.  ``batch_loop``: batches are CTAs, or one
    CTA does them in turn.  With ``split_k`` parts of K have results of their own, along a leading
    axis of ``c``.
    """

    m: int
    n: int
    k: int | tuple[int, int]
    tile: tuple[int, int, int] = (128, 128, 32)
    warps: tuple[int, int] = (2, 2)
    stages: int = 3
    dtype: str = "f16"
    layout: str = "NN"
    batch: int | None = None
    batch_loop: Literal["grid", "serial"] = "grid"
    split_k: int = 1
    symbolic: frozenset[str] = frozenset()
    multiples: Mapping[str, int] = field(default_factory=dict)
    strides: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    target: str = "sm_80"
    scheme: Scheme = Scheme()

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UsageError(f"no matmul of '{self.dtype}'; there are: {', '.join(DTYPES)}")
        if len(self.layout) != 2 or set(self.layout) - set("NT"):
            raise UsageError(f"layout '{self.layout}' is none of NN, NT, TN, TT")
        self._check_sizes()
        if not 1 <= self.stages <= 6:
            raise UsageError(f"{self.stages} stages; a circular buffer has 1 to 6")
        self._check_parts()
        self._check_tile()
        self._check_grid()

    def _check_parts(self) -> None:
        """Parts of K are CTAs along z; without any there is nothing to launch."""
        if self.split_k < 1 or (self.split_k > 1 and isinstance(self.k, tuple)):
            raise UsageError("split_k is at least 1, and 1 where K is merged of two axes")
        if self.split_k > 1 and self.k == 0:
            raise UsageError("K = 0 has no parts; split_k is 1 there")
        if self.split_k > 1 and self.batch is not None and self.batch_loop == "grid":
            raise UsageError(
                "batches and parts of K are both CTAs along z; split_k is 1 for a batch, unless "
                "one CTA does the batches in turn (batch_loop)"
            )

    def _check_sizes(self) -> None:
        batch = 1 if self.batch is None else self.batch
        strides = [stride for row in self.strides.values() for stride in row]
        if min(self.m, self.n, batch) < 1 or min(*self.ks, *strides, 0) < 0:
            raise UsageError("M, N and a batch are at least 1; K and strides are not negative")
        if max(self.m, self.n, batch, math.prod(self.ks), *strides) >= 1 << 31:
            raise UsageError("sizes and strides are below 2^31 elements")
        if "k" in self.symbolic and isinstance(self.k, tuple):
            raise UsageError("K that is merged of two axes cannot be symbolic")
        for letter, factor in self.multiples.items():
            if letter in "mn" or isinstance(self.k, int):
                size = self.number(letter)
                if factor < 1 or size % factor:
                    raise UsageError(f"{letter} = {size} is no multiple of {factor}")

    def _check_tile(self) -> None:
        (m, n, k), (rows, columns) = self.tile, self.warps
        if min(*self.tile, *self.warps) < 1 or 32 * rows * columns > 1024:
            raise UsageError("tiles and warps are positive, with 1024 threads at most")
        if self.shape:
            sizes = parse_shape(self.shape)
            units = (rows * sizes[0], columns * sizes[1], sizes[2])
        else:
            units = (2 * rows * columns, _LANES, 1)
        if any(size % unit for size, unit in zip(self.tile, units, strict=True)):
            raise UsageError(
                f"a tile of {m}x{n}x{k} is not made of {'x'.join(map(str, units))}, which "
                f"{rows}x{columns} warps with {self.shape or 'fma'} cover"
            )

        threads = 32 * rows * columns
        if m * n > MAX_REGISTERS * threads:
            raise UsageError(
                f"a tile of {m}x{n} has {m * n // threads} sums for each of {threads} threads, "
                f"which have {MAX_REGISTERS} registers"
            )
        self.check_shared(self.stages * (m + n) * k * size_of(DTYPES[self.dtype][0]))

    def check_shared(self, needed: int) -> None:
        """:class:`UsageError` for more bytes of shared memory than a CTA can have."""
        target = parse_target(self.target)
        assert target is not None, "its instructions were looked up"
        limit = shared_limit(target)
        if needed > limit:
            slots = f"{self.stages} slot{'s' * (self.stages > 1)}"
            tile = "x".join(map(str, self.tile))
            raise UsageError(
                f"{slots} of a tile of {tile} take {needed} bytes of shared memory; a CTA of "
                f"{self.target} has at most {limit}"
            )

    def _check_grid(self) -> None:
        """CTAs along y and z; x has as many as there are columns."""
        rows = -(-self.m // self.tile[0])
        deep = self.batch or 1 if self.batch_loop == "grid" else 1
        for axis, count in (("y", rows), ("z", max(deep, self.split_k))):
            if count > MAX_CTAS:
                raise UsageError(f"{count} CTAs along {axis}; a grid has at most {MAX_CTAS} there")

    @property
    def ks(self) -> tuple[int, ...]:
        return self.k if isinstance(self.k, tuple) else (self.k,)

    @property
    def shape(self) -> str:
        """The mma instruction, empty for fma."""
        if self.asynchronous or self.dtype == "f32":
            return DTYPES[self.dtype][2]
        if self.dtype not in _TURING or self._number < 75:
            raise UsageError(f"{self.target} has no mma of {self.dtype} that is lowered to")
        return _TURING[self.dtype]

    @property
    def _number(self) -> int:
        target = parse_target(self.target)
        if target is None:
            raise UsageError(f"unknown target '{self.target}'; known: {', '.join(TARGETS)}")
        return target.number

    @property
    def asynchronous(self) -> bool:
        """Whether the target has cp.async."""
        return self._number >= 80

    def extent(self, letter: str) -> Expr:
        """A size: a number, or the parameter of the launch."""
        if letter in self.symbolic:
            return Symbol(letter.upper())
        return expr(self.number(letter))

    def number(self, letter: str) -> int:
        """A size, whether the kernel knows it or not."""
        ks = {"k": self.k} if isinstance(self.k, int) else {"k1": self.k[0], "k2": self.k[1]}
        return {"m": self.m, "n": self.n, "b": self.batch or 0, **ks}[letter]

    @property
    def sizes(self) -> dict[str, int]:
        """The values of the sizes that a launch may give, by parameter."""
        return {"M": self.m, "N": self.n, "K": math.prod(self.ks)}

    def axes(self, operand: str) -> tuple[str, ...]:
        """The axes of ``a``, ``b`` or ``c`` as they lie in memory, slowest first."""
        ks = ("k1", "k2") if isinstance(self.k, tuple) else ("k",)
        batch = ("b",) if self.batch is not None else ()
        if operand == "c":
            return (*batch, "m", "n")
        plain, kept = (
            (self.layout[0] == "N", "m") if operand == "a" else (self.layout[1] == "T", "n")
        )
        return (*batch, kept, *ks) if plain else (*batch, *ks, kept)

    def padded(self, operand: str, row: int) -> tuple[int, ...]:
        """The strides of an operand whose rows are this many elements apart."""
        extents = [self.number(axis) for axis in self.axes(operand)]
        if row < extents[-1]:
            raise UsageError(f"rows of {operand} have {extents[-1]} elements, not {row}")
        strides = [1, row]
        for extent in reversed(extents[1:-1]):
            strides.append(strides[-1] * extent)
        return tuple(reversed(strides))


def width(spec: Matmul, operand: str) -> int:
    """Elements that one cp.async of an operand moves: 16, 8 or 4 bytes of them, or 0.

    Rows must begin at multiples of it.  Along K, plain peeling moves tiles by the residue, which
    must be a multiple too; explicit zeros need vectors that exist as a whole.
    """
    tensor = _input(Fusion(""), spec, operand)
    size = size_of(tensor.dtype)
    contiguous = spec.axes(operand)[-1]
    along_k = contiguous.startswith("k")
    tile = spec.tile[2] if along_k else spec.tile["mn".index(contiguous)]
    known = {name.upper(): factor for name, factor in spec.multiples.items()}
    places = [multiple(stride, known) for stride in tensor.strides[:-1]]
    if contiguous == "k2":
        places.append(multiple(spec.extent("k2"), known))
    if along_k and spec.scheme.peel == "on":
        total = math.prod(
            multiple(spec.extent(k), known) for k in spec.axes(operand) if k[0] == "k"
        )
        places.append(math.gcd(total, spec.tile[2]))
    if spec.scheme.fill != "zfill":
        places.append(multiple(spec.extent(contiguous), known))
    if tensor.strides[-1] != Int(1):
        return 1 if size == 4 and spec.asynchronous else 0
    for wide in (16, 8, 4):
        elements = wide // size
        if elements and all(place % elements == 0 for place in (*places, tile)):
            return elements
    return 0


def schedule(spec: Matmul) -> Fusion:
    """The scheduled fusion of a matrix product."""
    known = {name.upper(): factor for name, factor in spec.multiples.items()}
    fusion = Fusion("matmul", known, ("M", "N", "K"))
    a, b = (_input(fusion, spec, operand) for operand in "ab")
    _, kept, shape = DTYPES[spec.dtype]
    over = [axis for axis in spec.axes("a") if axis[0] == "k"]
    copies = [_shared(fusion, spec, source, name) for source, name in ((a, "a"), (b, "b"))]
    factor = "tf32" if spec.dtype == "tf32" else ""
    operands = [fusion.copy(f"{s.name[0]}_r", s, dtype=factor) for s in copies]
    if shape:
        acc = fusion.mma(operands[0], operands[1], over, spec.shape, kept)
    else:
        acc = fusion.reduce("add", *operands, over=over, name="acc")
    plan = _Plan(spec)
    for t in (*copies, *operands, acc):
        plan.tile(t)
    if spec.split_k > 1:
        acc.keep(plan.part)
    c = fusion.output("c", acc, spec.strides.get("c", ()), _order(spec, plan))
    plan.tile(c)
    plan.place(copies, operands, acc, c)
    return fusion


def _order(spec: Matmul, plan: _Plan) -> tuple[str, ...]:
    return (plan.part, *spec.axes("c")) if spec.split_k > 1 else spec.axes("c")


def _input(fusion: Fusion, spec: Matmul, operand: str) -> Tensor:
    axes = {axis: spec.extent(axis) for axis in spec.axes(operand)}
    dtype = DTYPES[spec.dtype][0]
    return fusion.input(operand, dtype, axes, spec.strides.get(operand, ()))


def _shared(fusion: Fusion, spec: Matmul, source: Tensor, operand: str) -> Tensor:
    wide = width(spec, operand)
    cache = ""
    if wide and spec.asynchronous:
        cache = "cg" if wide * size_of(source.dtype) == 16 else "ca"
    return fusion.copy(f"{operand}_s", source, Memory.SHARED, cache)


class _Plan:
    """Splits the axes of all tensors alike, and places them on warps, threads and loops."""

    def __init__(self, spec: Matmul) -> None:
        self.spec = spec
        self.m, self.n, self.k = spec.tile
        self.rows, self.columns = spec.warps
        #: the axis of parts of K, the whole tiles of K, and a tile
        self.part = "k.o"
        inside = "k.i" if spec.split_k > 1 else "k"
        self.tiles, self.inner = f"{inside}.o", f"{inside}.i"
        self.batch = ["b"] if spec.batch is not None else []
        self.parts = [self.part] if spec.split_k > 1 else []
        self.blocks = [*self.batch, *self.parts, "m.o", "n.o"]

    def tile(self, t: Tensor) -> None:
        """Split the axes that a tensor has into tiles of a CTA."""
        names = {a.name for a in t.leaf}
        if "k1" in names:
            t.merge("k1", "k2", "k")
        if names & {"k", "k1"}:
            if self.spec.split_k > 1:
                t.split("k", self._part_size())
            t.split(self.tiles.removesuffix(".o"), self.k)
        for letter, size in (("m", self.m), ("n", self.n)):
            if letter in names:
                t.split(letter, size)

    def _part_size(self) -> int:
        assert isinstance(self.spec.k, int)
        share = -(-self.spec.k // self.spec.split_k)
        return max(-(-share // self.k), 1) * self.k

    def place(self, copies: list[Tensor], operands: list[Tensor], acc: Tensor, c: Tensor) -> None:
        """Choose loops, threads and memory of every tensor."""
        for t in copies:
            self._load(t)
        matrix = bool(self.spec.shape)
        for t in (*operands, acc, c):
            if matrix:
                self._warps(t)
            else:
                self._lanes(t)
        for t in (*copies, *operands, acc, c):
            self._grid(t)
        around = len(self.blocks)
        acc.inline_at(c, around)
        for t in copies:
            t.inline_at(acc, around + 1)
            t.circular_buffer(self.spec.stages)
        step = f"{self.inner}.o" if matrix else self.inner
        for t in operands:
            t.inline_at(acc, acc.leaf.index(acc.axis(step)) + 1)
        acc.peel(self.tiles)

    def _grid(self, t: Tensor) -> None:
        names = {a.name for a in t.leaf}
        blocks = {"m.o": Parallel.BIDY, "n.o": Parallel.BIDX, self.part: Parallel.BIDZ}
        if self.spec.split_k == 1:
            del blocks[self.part]
        if self.spec.batch_loop == "grid":
            blocks["b"] = Parallel.BIDZ
        for name, how in blocks.items():
            if name in names:
                t.parallelize(name, how)

    def _ordered(self, t: Tensor, *inner: str) -> None:
        """The loops of a tensor: of CTAs, of tiles, then those named, as far as it has them."""
        names = {a.name for a in t.leaf}
        t.reorder(*(n for n in (*self.blocks, self.tiles, *inner) if n in names))

    def _warps(self, t: Tensor) -> None:
        k = parse_shape(self.spec.shape)[2]
        names = {a.name for a in t.leaf}
        spread = (
            ("m.i", self.m // self.rows, Parallel.TIDZ),
            ("n.i", self.n // self.columns, Parallel.TIDY),
            (self.inner, k, Parallel.UNROLL),
        )
        for name, size, how in spread:
            if name in names:
                outer, inner = t.split(name, size)
                t.parallelize(outer, how)
                t.parallelize(inner, Parallel.MMA)
        ends = [f"{self.inner}.i"]
        rows = ["m.i.i", *ends] if t.name != "b_r" else [*ends, "n.i.i"]
        matrix = rows if t.name in ("a_r", "b_r") else ["m.i.i", "n.i.i", *ends]
        self._ordered(t, "m.i.o", "n.i.o", f"{self.inner}.o", *matrix)

    def _lanes(self, t: Tensor) -> None:
        names = {a.name for a in t.leaf}
        for name, size, how in (
            ("m.i", 2 * self.rows * self.columns, Parallel.TIDY), ("n.i", _LANES, Parallel.TIDX),
        ):  # fmt: skip
            if name in names:
                outer, inner = t.split(name, size)
                t.parallelize(inner, how)
                t.parallelize(outer, Parallel.UNROLL)
        self._ordered(t, "m.i.i", "n.i.i", self.inner, "m.i.o", "n.i.o")

    def _load(self, t: Tensor) -> None:
        """Spread a tile over all threads, in vectors along its contiguous axis."""
        spec, operand = self.spec, t.name[0]
        last = spec.axes(operand)[-1]
        kept = "m.i" if operand == "a" else "n.i"
        rows, columns = (kept, self.inner) if last[0] == "k" else (self.inner, kept)
        bytes_ = size_of(t.dtype)
        row, column = t.axis(rows), t.axis(columns)
        if spec.shape:
            t.lay_out(row, column, swizzle=_swizzle(column, bytes_))
        else:
            t.lay_out(row, column, pad=4)
        wide = max(width(spec, operand), 1)
        ends: list[Axis] = []
        inner = column
        if wide > 1:
            inner, vector = t.split(column, wide)
            t.parallelize(vector, Parallel.VECTORIZE)
            ends.append(vector)
        self._ordered(t, row.name, inner.name, *(a.name for a in ends))
        merged = t.merge(row, inner, "chunk")
        spread = [(32, Parallel.TIDX), (self.columns, Parallel.TIDY), (self.rows, Parallel.TIDZ)]
        if not spec.shape:
            spread = [(_LANES, Parallel.TIDX), (2 * self.rows * self.columns, Parallel.TIDY)]
        threads: list[Axis] = []
        for count, how in spread:
            merged, lane = t.split(merged, count)
            t.parallelize(lane, how)
            threads.insert(0, lane)
        t.parallelize(merged, Parallel.UNROLL)
        self._ordered(t, *(a.name for a in (merged, *threads, *ends)))


def _swizzle(column: Axis, size: int) -> Swizzle | None:
    """The permutation of 16-byte chunks that lets eight rows lie in different banks."""
    chunks = column.fixed * size // 16
    if chunks < 2 or chunks & (chunks - 1) or column.fixed * size % 16:
        return None
    return Swizzle((16 // size).bit_length() - 1, min(3, chunks.bit_length() - 1),
                   max(3, chunks.bit_length() - 1))  # fmt: skip

"""Fusions: tensors, the axes of their iteration domains, and the verbs that schedule them.

A fusion computes tensors of named root axes from each other, as in Einstein's notation: axes of one
name are one index, and an axis that a tensor lacks is broadcast.  Each tensor has its own iteration
domain, which verbs transform: ``split``, ``merge``, ``reorder``, ``parallelize``.  ``inline_at``
puts the loops of a producer into those of its consumer, ``circular_buffer`` gives it several slots,
and ``peel`` marks a split whose residue tile goes first.

>>> fusion = Fusion("twice")
>>> x = fusion.input("x", "f32", {"m": Symbol("M")})
>>> y = fusion.output("y", fusion.compute("add", x, x))
>>> outer, inner = y.split("m", 32)
>>> y.parallelize(outer, Parallel.BIDX)
>>> y.parallelize(inner, Parallel.TIDX)
>>> print(y)
y[m] = copy(add1); leaf (m.o ctaid.x, m.i tid.x)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ptxsim.errors import UsageError

from ..layout import Swizzle
from .integers import Expr, Int, Symbol, ceil_div, expr
from .loops import Memory, Parallel

__all__ = [
    "Axis",
    "Became",
    "Copied",
    "Definition",
    "Fusion",
    "Joined",
    "Merge",
    "Mma",
    "Pointwise",
]
__all__ += ["Split", "Symbol", "Tensor"]


@dataclass(frozen=True, slots=True)
class Split:
    """``source = outer * factor + inner``; the inner axis has the factor as its extent."""

    source: Axis
    factor: int
    part: str


@dataclass(frozen=True, slots=True)
class Merge:
    """``outer = merged // extent(inner)``, ``inner = merged % extent(inner)``."""

    outer: Axis
    inner: Axis


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of an iteration domain; equal axes of different tensors are one index.

    A root has a name and an extent; others come from a split or a merge.
    """

    name: str
    extent: Expr
    origin: Split | Merge | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def fixed(self) -> int:
        """The extent, where it is known at compile time; :class:`UsageError` else."""
        if not isinstance(self.extent, Int):
            raise UsageError(f"axis {self} has the extent {self.extent}; it must be a number here")
        return self.extent.value


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy; ``cache`` is ``ca`` or ``cg`` for cp.async."""

    source: Tensor
    cache: str = ""


@dataclass(frozen=True, slots=True)
class Pointwise:
    """``op`` of elements with the same index."""

    op: str
    sources: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Joined:
    """The reduction of products: ``add``, ``max``, ``min`` or ``mul`` over the reduced axes.

    With two sources their product is what is added up.
    """

    op: str
    sources: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Mma:
    """A matrix product, made by mma instructions of a shape such as m16n8k16."""

    a: Tensor
    b: Tensor
    instruction: str


Definition: TypeAlias = "Copied | Pointwise | Joined | Mma | None"

#: What a reduction starts from.
IDENTITY: Mapping[str, float | int] = {
    "add": 0, "mul": 1, "max": float("-inf"), "min": float("inf"),
}  # fmt: skip


#: What became of an axis: the two parts of a split, or what it was merged to, and as which part.
Became: TypeAlias = tuple[Axis, "Axis | bool"]


@dataclass(eq=False)
class Tensor:
    """A tensor of a fusion with its schedule; made by a :class:`Fusion`."""

    name: str
    dtype: str
    roots: tuple[Axis, ...]
    definition: Definition = None
    #: the axes that a reduction runs over
    reduced: tuple[Axis, ...] = ()
    memory: Memory = Memory.LOCAL
    #: elements from one index to the next in global memory, for each root
    strides: tuple[Expr, ...] = ()
    #: promised alignment of the first element in global memory, in bytes
    align: int = 16
    #: how the tensor lies in shared memory or registers: axes, elements added to a row, swizzle
    layout: tuple[Axis, ...] | None = None
    pad: int = 0
    swizzle: Swizzle | None = None
    leaf: list[Axis] = field(default_factory=list)
    parallel: dict[Axis, Parallel] = field(default_factory=dict)
    at: tuple[Tensor, int] | None = None
    slots: int = 1
    peeled: list[Axis] = field(default_factory=list)
    #: what became of the axes, kept for as long as they stay as they are
    derived: tuple[tuple[Axis, ...], dict[Axis, Became]] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.leaf = [*self.roots, *self.reduced]

    def __str__(self) -> str:
        axes = ", ".join(f"{a} {self.parallel[a].value}" if a in self.parallel else str(a)
                         for a in self.leaf)  # fmt: skip
        head = f"{self.name}[{', '.join(map(str, self.roots))}]"
        return f"{head}{self._made()}; leaf ({axes})"

    def _made(self) -> str:
        d = self.definition
        if d is None:
            return ""
        over = f" over {', '.join(map(str, self.reduced))}" if self.reduced else ""
        if isinstance(d, Mma):
            return f" = {d.instruction}({d.a.name}, {d.b.name}){over}"
        if isinstance(d, Copied):
            return f" = {f'cp.async.{d.cache}' if d.cache else 'copy'}({d.source.name})"
        return f" = {d.op}({', '.join(s.name for s in d.sources)}){over}"

    @property
    def sources(self) -> tuple[Tensor, ...]:
        """What the tensor is computed from."""
        d = self.definition
        if d is None:
            return ()
        if isinstance(d, Mma):
            return d.a, d.b
        return (d.source,) if isinstance(d, Copied) else d.sources

    # --- verbs ----------------------------------------------------------------------------------

    def axis(self, which: Axis | str) -> Axis:
        """A leaf axis by its name."""
        for axis in self.leaf:
            if which in (axis, axis.name):
                return axis
        raise UsageError(f"{self.name} has no leaf axis {which}: {', '.join(map(str, self.leaf))}")

    def split(self, which: Axis | str, factor: int) -> tuple[Axis, Axis]:
        """Split a leaf axis: outer has ``ceilDiv(extent, factor)`` values, inner ``factor``."""
        source = self.axis(which)
        if source in self.parallel:
            raise UsageError(f"{source} is {self.parallel[source].value} and cannot be split")
        if factor < 1:
            raise UsageError(f"cannot split {source} by {factor}")
        outer = Axis(f"{source}.o", ceil_div(source.extent, factor), Split(source, factor, "outer"))
        inner = Axis(f"{source}.i", Int(factor), Split(source, factor, "inner"))
        place = self.leaf.index(source)
        self.leaf[place : place + 1] = [outer, inner]
        return outer, inner

    def merge(self, first: Axis | str, second: Axis | str, name: str = "") -> Axis:
        """Merge two neighbouring leaf axes into one."""
        outer, inner = self.axis(first), self.axis(second)
        for axis in (outer, inner):
            if axis in self.parallel:
                raise UsageError(f"{axis} is {self.parallel[axis].value} and cannot be merged")
        place = self.leaf.index(outer)
        if self.leaf[place + 1 : place + 2] != [inner]:
            raise UsageError(f"{outer} and {inner} are no neighbours in {self.name}; reorder first")
        name = name or f"{outer}*{inner}"
        merged = Axis(name, outer.extent * inner.extent, Merge(outer, inner))
        self.leaf[place : place + 2] = [merged]
        return merged

    def reorder(self, *order: Axis | str) -> None:
        """Put the leaf axes into an order; all must be named."""
        axes = [self.axis(a) for a in order]
        if sorted(map(id, axes)) != sorted(map(id, self.leaf)):
            raise UsageError(f"reorder of {self.name} must name each of {self._names()} once")
        self.leaf = axes

    def _names(self) -> str:
        return ", ".join(map(str, self.leaf))

    def parallelize(self, which: Axis | str, how: Parallel) -> None:
        """Say how the iterations of a leaf axis are executed."""
        axis = self.axis(which)
        if how.thread or how in (Parallel.VECTORIZE, Parallel.UNROLL, Parallel.MMA):
            _ = axis.fixed
        if how is Parallel.VECTORIZE and not isinstance(self.definition, Copied):
            raise UsageError(f"{self.name} is no copy: only copies move vectors")
        if how.thread or how.block or how is Parallel.VECTORIZE:
            if any(p is how for a, p in self.parallel.items() if a != axis):
                raise UsageError(f"{self.name} has two axes on {how.value}; merge them")
        self.parallel[axis] = how

    def inline_at(self, consumer: Tensor, position: int) -> None:
        """Compute the tensor inside the first ``position`` loops of a consumer."""
        self.at = (consumer, position)

    def circular_buffer(self, slots: int) -> None:
        """Give a shared tensor this many slots; loads run ``slots - 1`` tiles ahead."""
        if not 1 <= slots <= 6:
            raise UsageError(f"a circular buffer has 1 to 6 slots, not {slots}")
        if self.memory is not Memory.SHARED or not isinstance(self.definition, Copied):
            raise UsageError(f"{self.name} is no copy in shared memory: it has no slots")
        self.slots = slots

    def lay_out(self, *axes: Axis, pad: int = 0, swizzle: Swizzle | None = None) -> None:
        """Say how the tensor lies in memory: these axes, row-major."""
        self.layout, self.pad, self.swizzle = axes, pad, swizzle

    def keep(self, which: Axis | str) -> None:
        """Do not reduce over this part of a reduced axis: each of its values has a result."""
        self.roots = (self.axis(which), *self.roots)

    def peel(self, which: Axis | str) -> None:
        """Ask for the residue tile of the outer axis of a split to go first."""
        self.peeled.append(self.axis(which))


class Fusion:
    """Tensors that are computed in one kernel.

    ``multiples``: what sizes are promised to be multiples of.  ``sizes``: the order in which the
    launch gives them, if it is not that of their first use.
    """

    def __init__(
        self, name: str, multiples: Mapping[str, int] | None = None, sizes: Sequence[str] = ()
    ) -> None:
        self.name = name
        self.sizes = tuple(sizes)
        self.tensors: list[Tensor] = []
        self.multiples = dict(multiples or {})

    def _add(self, tensor: Tensor) -> Tensor:
        if any(t.name == tensor.name for t in self.tensors):
            raise UsageError(f"two tensors are named {tensor.name}")
        self.tensors.append(tensor)
        return tensor

    def input(
        self, name: str, dtype: str, extents: Mapping[str, Expr | int],
        strides: Sequence[Expr | int] = (), align: int = 16,
    ) -> Tensor:  # fmt: skip
        """A tensor in global memory, by its axes; without strides it is dense, row-major."""
        roots = tuple(Axis(axis, expr(extent)) for axis, extent in extents.items())
        return self._add(Tensor(name, dtype, roots, memory=Memory.GLOBAL, align=align,
                                strides=_strides(roots, strides)))  # fmt: skip

    def output(
        self, name: str, source: Tensor, strides: Sequence[Expr | int] = (),
        order: Sequence[str] = (),
    ) -> Tensor:  # fmt: skip
        """A copy of a tensor to global memory; ``order`` is that of its axes there."""
        by_name = {a.name: a for a in source.roots}
        roots = tuple(by_name[n] for n in order) if order else source.roots
        return self._add(Tensor(name, source.dtype, roots, Copied(source), memory=Memory.GLOBAL,
                                strides=_strides(roots, strides)))  # fmt: skip

    def copy(
        self, name: str, source: Tensor, memory: Memory = Memory.LOCAL, cache: str = "",
        dtype: str = "",
    ) -> Tensor:  # fmt: skip
        """A copy in shared memory or registers; with ``cache`` by cp.async.

        Operands of a matrix product may be ``tf32``, rounded from f32.
        """
        if cache and (memory is not Memory.SHARED or source.memory is not Memory.GLOBAL):
            raise UsageError("cp.async copies from global to shared memory")
        return self._add(
            Tensor(name, dtype or source.dtype, source.roots, Copied(source, cache), memory=memory)
        )

    def compute(self, op: str, *sources: Tensor, name: str = "", dtype: str = "") -> Tensor:
        """``op`` of tensors, element by element."""
        roots = _union(sources)
        name = name or f"{op}{len(self.tensors)}"
        return self._add(Tensor(name, dtype or sources[0].dtype, roots, Pointwise(op, sources)))

    def reduce(
        self, op: str, *sources: Tensor, over: Sequence[str], name: str = "", dtype: str = ""
    ) -> Tensor:
        """The reduction of a tensor, or of the product of two, over axes."""
        if op not in IDENTITY:
            raise UsageError(f"no reduction '{op}'; there are: {', '.join(IDENTITY)}")
        kept, reduced = _divided(_union(sources), over)
        name = name or f"{op}{len(self.tensors)}"
        return self._add(
            Tensor(name, dtype or sources[0].dtype, kept, Joined(op, sources), reduced)
        )

    def mma(
        self, a: Tensor, b: Tensor, over: Sequence[str], instruction: str, dtype: str,
        name: str = "acc",
    ) -> Tensor:  # fmt: skip
        """The product of matrices in registers, by mma instructions."""
        kept, reduced = _divided(_union((a, b)), over)
        return self._add(Tensor(name, dtype, kept, Mma(a, b, instruction), reduced))


def _union(sources: Sequence[Tensor]) -> tuple[Axis, ...]:
    found: dict[str, Axis] = {}
    for source in sources:
        for root in source.roots:
            if found.setdefault(root.name, root) != root:
                raise UsageError(
                    f"axis {root} has the extents {found[root.name].extent} and {root.extent}"
                )
    return tuple(found.values())


def _divided(roots: tuple[Axis, ...], over: Sequence[str]) -> tuple[tuple[Axis, ...], ...]:
    missing = set(over) - {a.name for a in roots}
    if missing:
        raise UsageError(f"no axis {', '.join(sorted(missing))} to reduce over")
    kept = tuple(a for a in roots if a.name not in over)
    return kept, tuple(a for a in roots if a.name in over)


def _strides(roots: tuple[Axis, ...], strides: Sequence[Expr | int]) -> tuple[Expr, ...]:
    if strides:
        if len(strides) != len(roots):
            raise UsageError(f"{len(roots)} axes have {len(strides)} strides")
        return tuple(map(expr, strides))
    dense: list[Expr] = []
    total: Expr = Int(1)
    for root in reversed(roots):
        dense.append(total)
        total = total * root.extent
    return tuple(reversed(dense))

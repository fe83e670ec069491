"""The threads of the interpreter of loops: their values, their buffers and who executes what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from .integers import Expr, Int, Select, Symbol
from .interpret_memory import MANY, Array, Global, LoopError, Mask, Shared, Space
from .interpret_values import carrier
from .loops import Access, Buffer, Copy, Fill, Memory, Node, Program

__all__ = ["LANES", "Lanes", "Threads"]

#: Threads of a warp.
LANES = 32


@dataclass(frozen=True, slots=True)
class Lanes:
    """The threads, or warps, that execute a statement."""

    cta: Array
    #: thread or warp of its CTA
    number: Array
    warps: bool

    @property
    def count(self) -> int:
        return len(self.cta)


class Threads:
    """All threads, in arrays of shape (CTAs, threads of a CTA), with their memory."""

    def __init__(
        self,
        program: Program,
        arrays: Mapping[str, Array],
        sizes: Mapping[str, int],
        checked: bool,
    ) -> None:
        self.env: dict[str, Any] = {name: np.int64(value) for name, value in sizes.items()}
        grid = [int(self.value(e)) for e in program.grid]
        self.block = program.block
        self.shape = (prod(grid), prod(program.block))
        self._number(grid)
        #: barriers of each CTA so far
        self.epochs = np.zeros(self.shape[0], np.int64)
        self.spaces = {b.name: self._space(b, arrays, checked) for b in program.buffers}

    def _number(self, grid: list[int]) -> None:
        """The names of threads and CTAs, x running fastest."""
        for name, extents, shape in (("ctaid", grid, (-1, 1)), ("tid", self.block, (1, -1))):
            rest = np.arange(prod(extents)).reshape(shape)
            for axis, extent in zip("xyz", extents, strict=True):
                self.env[f"{name}.{axis}"] = rest % max(extent, 1)
                rest = rest // max(extent, 1)

    def _space(self, buffer: Buffer, arrays: Mapping[str, Array], checked: bool) -> Space:
        extents = [int(self.value(e)) for e in buffer.extents]
        strides = [int(self.value(s)) for s in buffer.strides]
        dtype = carrier(buffer.dtype)
        if buffer.memory is Memory.GLOBAL:
            array = arrays[buffer.name]
            if array.dtype.itemsize != dtype.itemsize:
                raise ValueError(f"'{buffer}' has elements of {buffer.dtype}, not {array.dtype}")
            return Global(buffer, extents, strides, np.array(array).reshape(-1).view(dtype))
        if buffer.memory is Memory.SHARED:
            return Shared(buffer, extents, strides, dtype, self.epochs, checked)
        owners = prod(self.shape)
        if buffer.fragment is not None:
            if self.block[0] != LANES:
                raise LoopError("unsupported", f"'{buffer}' needs CTAs of 32 threads in x")
            owners //= LANES
        return Space(buffer, extents, strides, owners, dtype)

    # --- values -----------------------------------------------------------------------------------

    def value(self, e: Expr | int) -> Any:
        """An integer expression: a number, or an array that broadcasts to all threads."""
        if isinstance(e, int):
            return np.int64(e)
        if isinstance(e, Int):
            return np.int64(e.value)
        if isinstance(e, Symbol):
            if e.name not in self.env:
                raise LoopError("undefined", f"'{e.name}' has no value")
            return self.env[e.name]
        if isinstance(e, Select):
            test = self.value(e.condition)
            if np.ndim(test) == 0:
                return self.value(e.yes if test else e.no)
            return np.where(test != 0, self.value(e.yes), self.value(e.no))
        left, right = self.value(e.left), self.value(e.right)
        if e.name in ("//", "%") and np.equal(right, 0).any():
            raise LoopError("undefined", f"division by zero in {e}")
        return _OPERATIONS[e.name](left, right)

    def of(self, e: Expr, lanes: Lanes, node: Node) -> Array:
        """The values for threads, or for warps, whose lanes must have the same."""
        value = np.broadcast_to(self.value(e), self.shape)
        if not lanes.warps:
            return np.asarray(value[lanes.cta, lanes.number])
        rows = value.reshape(self.shape[0], -1, LANES)[lanes.cta, lanes.number]
        if (rows != rows[:, :1]).any():
            raise LoopError("divergent", f"the lanes of a warp do not agree on {e}", node)
        return np.asarray(rows[:, 0])

    def index(self, access: Access, lanes: Lanes, node: Node) -> list[Array]:
        """The indices of an access, with an axis for the elements."""
        return [self.of(i, lanes, node)[:, None] for i in access.index]

    def lanes(self, mask: Mask, warps: bool, node: Node) -> Lanes:
        """Who executes a statement."""
        if not warps:
            cta, number = np.nonzero(mask)
            return Lanes(cta, number, False)
        if self.block[0] != LANES:
            raise LoopError("unsupported", "matrices need CTAs of 32 threads in x", node)
        together = mask.reshape(len(mask), -1, LANES)
        if (together.any(axis=2) != together.all(axis=2)).any():
            raise LoopError("divergent", "not all lanes of a warp execute this", node)
        cta, number = np.nonzero(together.all(axis=2))
        return Lanes(cta, number, True)

    def owner(self, space: Space, lanes: Lanes) -> Array:
        """Whose stretch of a buffer threads or warps access."""
        if isinstance(space, Global):
            return np.zeros_like(lanes.cta)
        if isinstance(space, Shared):
            return lanes.cta
        each = self.shape[1] // LANES if lanes.warps else self.shape[1]
        return lanes.cta * each + lanes.number

    def read(
        self, space: Space, lanes: Lanes, places: Array, alive: Mask, node: Node
    ) -> tuple[Array, Mask]:
        """Patterns of places, and which are defined."""
        who = np.full_like(lanes.cta, MANY) if lanes.warps else lanes.number
        return space.read(self.owner(space, lanes), who, places, alive, node)

    def write(
        self, space: Space, lanes: Lanes, places: Array, alive: Mask, bits: Array, defined: Mask,
        node: Node,
    ) -> None:  # fmt: skip
        """New patterns for places."""
        who = np.full_like(lanes.cta, MANY) if lanes.warps else lanes.number
        space.write(self.owner(space, lanes), who, places, alive, bits, defined, node)

    # --- places -----------------------------------------------------------------------------------

    def vector(
        self, space: Space, access: Access, lanes: Lanes, alive: Mask, node: Copy | Fill
    ) -> Array:
        """The places of a vector, which must be aligned where any of it is alive."""
        start = space.places(self.index(access, lanes, node), alive[:, :1], node)
        if node.width > 1 and space.buffer.memory is not Memory.LOCAL:
            size = node.width * space.bits.dtype.itemsize
            off = (start % node.width != 0) & alive[:, :1]
            if size & (size - 1) or space.buffer.align % size or off.any():
                raise LoopError("misaligned", f"{size} bytes of '{space.buffer}'", node)
            swizzle = space.buffer.swizzle
            if swizzle is not None and swizzle.chunk % node.width:
                raise LoopError("misaligned", f"{swizzle} parts {node.width} elements", node)
        return space.run(start, node.width, alive, node)

    def fragment(self, space: Space, access: Access, lanes: Lanes, node: Node) -> Array:
        """The places of the matrix that warps hold in a fragment buffer, row by row."""
        if space.buffer.fragment is None:
            raise LoopError("unsupported", f"'{space.buffer}' is no matrix of a warp", node)
        if access.index[-2:] != (Int(0), Int(0)):
            raise LoopError("unsupported", f"a part of the matrix '{space.buffer}'", node)
        axes = (len(space.extents) - 2, len(space.extents) - 1)
        alive = np.ones((lanes.count, space.extents[-2] * space.extents[-1]), bool)
        return self.matrix(space, access, lanes, axes, space.extents[-2:], alive, node)

    def matrix(
        self, space: Space, access: Access, lanes: Lanes, axes: tuple[int, int],
        shape: tuple[int, ...], alive: Mask, node: Node,
    ) -> Array:  # fmt: skip
        """The places of a matrix along two axes from an element on, row by row."""
        index = self.index(access, lanes, node)
        row, column = np.divmod(np.arange(shape[0] * shape[1]), shape[1])
        index[axes[0]] = index[axes[0]] + row
        index[axes[1]] = index[axes[1]] + column
        return space.places(index, alive, node)


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "//": np.floor_divide,
    "%": np.mod,
    "min": np.minimum,
    "max": np.maximum,
    "<": lambda a, b: np.less(a, b).astype(np.int64),
    "==": lambda a, b: np.equal(a, b).astype(np.int64),
    "&": lambda a, b: (np.not_equal(a, 0) & np.not_equal(b, 0)).astype(np.int64),
}

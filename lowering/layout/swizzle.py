"""XOR swizzles of memory offsets, and tile layouts that pass through one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .algebra import canonicalize, pack, storage, unpack
from .axes import MEMORY
from .errors import LayoutError
from .tile import Iter, TileLayout, check_extents

__all__ = ["ComposeLayout", "Swizzle", "is_trivial"]

#: bound on the bits that a swizzle covers
_MAX_BITS = 48

#: swizzle modes of the tensor copy: width in bytes -> number of XORed bits
_MODES = {32: 1, 64: 2, 128: 3}


@dataclass(frozen=True, slots=True)
class Swizzle:
    """A permutation of memory offsets, counted from the base of the buffer.

    With ``x = offset >> p``, ``b`` bits of ``x`` at distance ``a`` are XORed onto each other:
    the upper ones onto the lowest ``b`` bits (``inner``), or the lowest onto the upper ones.
    ``2**p`` neighbours stay together (the chunk). Applying it twice changes nothing.
    """

    p: int
    b: int
    a: int
    inner: bool = True

    def __post_init__(self) -> None:
        numbers = (self.p, self.b, self.a)
        if not all(isinstance(n, int) and not isinstance(n, bool) for n in numbers):
            raise LayoutError(f"a swizzle needs three integers, not {numbers}")
        if self.p < 0 or not 0 <= self.b <= self.a or sum(numbers) > _MAX_BITS:
            raise LayoutError(
                f"swizzle(p, b, a) needs p >= 0, 0 <= b <= a and p + b + a <= {_MAX_BITS}, "
                f"not {numbers}"
            )

    @classmethod
    def hardware(cls, width: int, element_bits: int) -> Swizzle:
        """The 32, 64 or 128 byte swizzle mode for elements of that many bits."""
        if width not in _MODES:
            raise LayoutError(f"swizzle width {width} is none of 32, 64, 128 bytes")
        return cls(_log2(128) - _log2(element_bits), _MODES[width], 3)

    def __str__(self) -> str:
        return f"swizzle({self.p},{self.b},{self.a}{'' if self.inner else ',outer'})"

    @property
    def chunk(self) -> int:
        """Offsets that stay neighbours."""
        return 1 << self.p

    @property
    def period(self) -> int:
        """The pattern repeats after this many offsets; a base aligned to it may be added first."""
        return 1 << (self.p + self.a + self.b)

    def apply(self, offset: int) -> int:
        """Where an offset goes."""
        bits = (1 << self.b) - 1
        if self.inner:
            return offset ^ ((offset >> (self.p + self.a) & bits) << self.p)
        return offset ^ ((offset >> self.p & bits) << (self.p + self.a))

    def apply_array(self, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where each offset goes."""
        bits = np.int64((1 << self.b) - 1)
        source = self.p + self.a if self.inner else self.p
        target = self.p if self.inner else self.p + self.a
        moved: NDArray[np.int64] = offsets ^ (((offsets >> source) & bits) << target)
        return moved

    def in_bytes(self, element_bits: int) -> Swizzle:
        """The same permutation on byte offsets, for elements of that many bits.

        Every hardware mode becomes (4, b, 3): address bits 7.. XORed onto bits 4.. .
        """
        p = self.p + _log2(element_bits) - 3
        if p < 0:
            raise LayoutError(f"{self} splits the bytes of {element_bits}-bit elements")
        return replace(self, p=p)


@dataclass(frozen=True, slots=True)
class ComposeLayout:
    """A tile layout whose memory offset, its own offset included, passes through a swizzle."""

    tile: TileLayout
    swizzle: Swizzle

    def __str__(self) -> str:
        return f"{self.swizzle} o {self.tile}"

    @property
    def is_bare(self) -> bool:
        """Whether the tile adds nothing, so that the swizzle alone is the layout."""
        return is_trivial(self.tile)

    def size(self, axis: str | None = None) -> int:
        """Elements of the tile; a swizzle changes none."""
        return self.tile.size(axis)

    def apply(
        self, coordinate: int | Sequence[int], shape: Sequence[int] | None = None
    ) -> dict[str, int]:
        """Physical coordinate of one element, by axis; see ``TileLayout.apply``."""
        result = self.tile.apply(coordinate, shape)
        if MEMORY in result:
            result[MEMORY] = self.swizzle.apply(result[MEMORY])
        return result

    def evaluate(self, shape: Sequence[int] | None = None) -> dict[str, NDArray[np.int64]]:
        """``apply`` over the whole tile: an array for each axis, of that shape, or flat."""
        result = self.tile.evaluate(shape)
        if MEMORY in result:
            result[MEMORY] = self.swizzle.apply_array(result[MEMORY])
        return result

    def strip(self, region: Sequence[int]) -> TileLayout:
        """The tile to use for a copy of that region once the swizzle is handled apart.

        A bare swizzle has a tile of the size of its buffer; for a region of another size the
        identity of the region stands in.
        """
        count = math.prod(check_extents(region, "region extent"))
        if self.is_bare and self.tile.size() != count:
            return TileLayout((Iter(count, 1),))
        return self.tile

    def unpack(self, count: int) -> ComposeLayout:
        """Every element becomes ``count`` neighbours; ``count`` is a power of two."""
        grown = replace(self.swizzle, p=self.swizzle.p + _log2(count))
        return ComposeLayout(unpack(self.tile, count), grown)

    def pack(self, count: int) -> ComposeLayout:
        """``count`` neighbours become one element; they must lie in one chunk."""
        if count > self.swizzle.chunk:
            raise LayoutError(f"{count} elements do not fit into a chunk of {self.swizzle.chunk}")
        shrunk = replace(self.swizzle, p=self.swizzle.p - _log2(count))
        return ComposeLayout(pack(self.tile, count), shrunk)

    def storage(self) -> ComposeLayout:
        """The layout without its thread axes."""
        return ComposeLayout(storage(self.tile), self.swizzle)


def is_trivial(layout: TileLayout) -> bool:
    """Whether the layout maps every index to the same offset in memory, and to nothing else."""
    plain = canonicalize(layout)
    (first, *rest) = plain.shard
    extra = rest or plain.replica or plain.offset
    return not extra and first.axis == MEMORY and first.stride == 1


def _log2(value: int) -> int:
    if not isinstance(value, int) or value < 1 or value & (value - 1):
        raise LayoutError(f"{value} is not a power of two")
    return value.bit_length() - 1

"""Register fragments of warp matrix instructions: (lane, register, element) <-> (row, column).

A fragment says which element of a matrix tile each lane of a warp holds in which part of which
register (PTX ISA 9.1, Warp Level Matrix Instructions).  Element ``i`` of a lane counts from the
lowest bits of its first register upward.  The maps are data; ``gather`` and ``scatter`` apply them
to whole stacks of warps at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Array",
    "Fragment",
    "element_dtype",
    "fragment",
    "pack_elements",
    "unpack_elements",
]

Array: TypeAlias = NDArray[Any]

_WARP = 32


def element_dtype(bits: int) -> np.dtype[Any]:
    """The unsigned NumPy type that holds an element; elements below eight bits have a byte each."""
    return np.dtype(f"<u{max(bits, 8) // 8}")


def unpack_elements(words: Array, bits: int) -> Array:
    """Words [..., n] as elements [..., n * per], from the low bits of each word upward."""
    if bits >= 8:
        return words.view(element_dtype(bits))
    octets = words.view(np.uint8)
    if bits == 1:
        return np.unpackbits(octets, axis=-1, bitorder="little")
    assert bits == 4
    return np.stack([octets & 15, octets >> 4], axis=-1).reshape(*octets.shape[:-1], -1)


def pack_elements(elements: Array, bits: int, word_bits: int) -> Array:
    """The inverse of :func:`unpack_elements`."""
    if bits == 1:
        elements = np.packbits(elements, axis=-1, bitorder="little")
    elif bits == 4:
        elements = elements[..., 0::2] | elements[..., 1::2] << np.uint8(4)
    return np.ascontiguousarray(elements).view(element_dtype(word_bits))


@dataclass(frozen=True, eq=False)
class Fragment:
    """How a tile of ``rows`` x ``columns`` elements lies in the registers of a warp.

    ``row`` and ``column`` are [32, elements]: what element ``i`` of lane ``l`` is.  An element may
    be held more than once; reading the tile then takes the first holder.
    """

    rows: int
    columns: int
    element_bits: int
    register_bits: int
    row: Array
    column: Array

    @property
    def elements(self) -> int:
        """How many elements a lane holds."""
        return int(self.row.shape[1])

    @property
    def registers(self) -> int:
        """How many registers a lane gives."""
        return self.elements * self.element_bits // self.register_bits

    @cached_property
    def flat(self) -> Array:
        """[32, elements]: the place of each held element in the row-major tile."""
        place: Array = self.row * self.columns + self.column
        return place

    @cached_property
    def holder(self) -> Array:
        """[rows * columns]: which held element (lane * elements + i) gives each tile element."""
        places, first = np.unique(self.flat.reshape(-1), return_index=True)
        assert len(places) == self.rows * self.columns, "a fragment covers its tile"
        return first

    @property
    def copies(self) -> int:
        """How many lanes and places hold each element of the tile."""
        return _WARP * self.elements // (self.rows * self.columns)

    def split(self, registers: Sequence[Array]) -> Array:
        """Registers [W, 32] to held elements [W, 32, elements]."""
        words = np.stack(registers, axis=-1).astype(element_dtype(self.register_bits), copy=False)
        return unpack_elements(words, self.element_bits)

    def join(self, elements: Array) -> list[Array]:
        """Held elements [W, 32, elements] to registers [W, 32]."""
        words = pack_elements(elements, self.element_bits, self.register_bits)
        return [words[..., k] for k in range(words.shape[-1])]

    def gather(self, registers: Sequence[Array]) -> Array:
        """The tiles [W, rows, columns] that registers [W, 32] hold."""
        held = self.split(registers)
        warps = held.shape[0]
        return held.reshape(warps, -1)[:, self.holder].reshape(warps, self.rows, self.columns)

    def scatter(self, tile: Array) -> list[Array]:
        """The registers [W, 32] that hold tiles [W, rows, columns]."""
        warps = tile.shape[0]
        return self.join(tile.reshape(warps, -1)[:, self.flat])


def fragment(
    rows: int,
    columns: int,
    elements: int,
    where: Callable[[Array, Array], tuple[Array, Array]],
    element_bits: int,
) -> Fragment:
    """A fragment whose map is the function ``where(lane, element) -> (row, column)``."""
    lane = np.arange(_WARP)[:, None]
    element = np.arange(elements)[None, :]
    row, column = np.broadcast_arrays(*where(lane, element), np.empty((_WARP, elements)))[:2]
    return Fragment(
        rows,
        columns,
        element_bits,
        max(element_bits, 32),
        np.ascontiguousarray(row, dtype=np.intp),
        np.ascontiguousarray(column, dtype=np.intp),
    )

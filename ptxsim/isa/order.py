"""How an instruction takes part in the memory model (PTX ISA 9.1, Memory Consistency Model)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FRAGMENT", "ROWS", "SCOPES", "WEAK", "MemoryOrder"]

#: The scopes, each within the next; a warp is none.
SCOPES = ("cta", "cluster", "gpu", "sys")

#: Accesses that a warp makes as one: of rows whose lane gives the address alone (ldmatrix,
#: stmatrix), or of a fragment whose layout is unspecified (wmma.load, wmma.store).
ROWS, FRAGMENT = 1, 2


@dataclass(frozen=True, slots=True)
class MemoryOrder:
    """The order that one access or fence has.

    ``scope`` is empty for a weak access.  ``atomic`` is a read-modify-write; one without a result
    (``reads`` false, as red) is no part of an acquire pattern.  ``coherent`` is false for accesses
    outside the model (ld.global.nc).  ``matrix`` is ROWS, FRAGMENT or, for what lanes access each
    by itself, 0.
    """

    scope: str = ""
    acquire: bool = False
    release: bool = False
    #: a fence.sc
    sequential: bool = False
    atomic: bool = False
    reads: bool = True
    coherent: bool = True
    matrix: int = 0

    @property
    def strong(self) -> bool:
        """Whether it is a strong operation."""
        return self.scope != ""


#: An access without order words.
WEAK = MemoryOrder()

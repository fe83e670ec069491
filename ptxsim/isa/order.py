"""How an instruction takes part in the memory model (PTX ISA 9.1, Memory Consistency Model)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SCOPES", "WEAK", "MemoryOrder"]

#: The scopes, each within the next; a warp is none.
SCOPES = ("cta", "cluster", "gpu", "sys")


@dataclass(frozen=True, slots=True)
class MemoryOrder:
    """The order that one access or fence has.

    ``scope`` is empty for a weak access.  ``atomic`` is a read-modify-write; one without a result
    (``reads`` false, as red) is no part of an acquire pattern.  ``coherent`` is false for accesses
    outside the model (ld.global.nc).
    """

    scope: str = ""
    acquire: bool = False
    release: bool = False
    #: a fence.sc
    sequential: bool = False
    atomic: bool = False
    reads: bool = True
    coherent: bool = True

    @property
    def strong(self) -> bool:
        """Whether it is a strong operation."""
        return self.scope != ""


#: An access without order words.
WEAK = MemoryOrder()

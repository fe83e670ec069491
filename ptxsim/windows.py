"""Windows of the generic address space (PTX ISA 9.1, Generic Addressing).

A generic address is global unless it lies in the shared or local window.  The shared window holds
the CTA's own shared memory at its start; behind it every CTA rank of the cluster has a stretch of
its own (``mapa``, ``.shared::cluster``).
"""

from __future__ import annotations

__all__ = ["CODE_BASE", "LOCAL_SIZE", "LOCAL_WINDOW", "SHARED_SIZE", "SHARED_WINDOW", "window_base"]

SHARED_WINDOW = 0x7E00_0000_0000
SHARED_SIZE = 1 << 32
LOCAL_WINDOW = 0x7E80_0000_0000
LOCAL_SIZE = 1 << 32
#: Function addresses (16 bytes apart); nothing can be loaded from there.
CODE_BASE = 0x7D00_0000_0000


def window_base(space: str) -> int:
    """What cvta adds to an address of ``space``: 0 for spaces whose addresses are generic.

    >>> hex(window_base("shared::cta"))
    '0x7e0000000000'
    """
    return {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(space.split("::")[0], 0)

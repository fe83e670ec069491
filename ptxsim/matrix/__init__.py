"""Fragment layouts of the warp matrix instructions as data: (lane, register, element) to tile."""

from .fragments import Fragment
from .layouts import (
    Shape,
    mma_a,
    mma_b,
    mma_c,
    parse_shape,
    row_fragment,
    wmma_fragment,
    wmma_registers,
)

__all__ = [
    "Fragment",
    "Shape",
    "mma_a",
    "mma_b",
    "mma_c",
    "parse_shape",
    "row_fragment",
    "wmma_fragment",
    "wmma_registers",
]

"""Fragment layouts of the warp matrix instructions as data: (lane, register, element) to tile."""

from .fragments import Fragment, pack_elements, unpack_elements
from .layouts import (
    Shape,
    byte_fragment,
    mma_a,
    mma_b,
    mma_c,
    parse_shape,
    quad_a,
    quad_b,
    quad_c,
    row_fragment,
    store_fragment,
    tall_fragment,
)
from .operands import Sparsity, scale_bytes, scale_lanes, selectors, sparsity
from .wmma_layouts import MAPPED_TARGETS, wmma_bits, wmma_fragment, wmma_registers

__all__ = [
    "MAPPED_TARGETS",
    "Fragment",
    "Shape",
    "Sparsity",
    "byte_fragment",
    "mma_a",
    "mma_b",
    "mma_c",
    "pack_elements",
    "parse_shape",
    "quad_a",
    "quad_b",
    "quad_c",
    "row_fragment",
    "scale_bytes",
    "scale_lanes",
    "selectors",
    "sparsity",
    "store_fragment",
    "tall_fragment",
    "unpack_elements",
    "wmma_bits",
    "wmma_fragment",
    "wmma_registers",
]

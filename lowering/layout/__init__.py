"""Layouts of tiles over lanes, warps and memory, and the algebra on them."""

from __future__ import annotations

from .algebra import (
    canonicalize,
    direct_sum,
    group,
    group_many,
    pack,
    permute_by_groups,
    permute_dims,
    slice_,
    storage,
    tile,
    unpack,
)
from .axes import AXES, MEMORY, Axis, axis, scope_pair
from .errors import LayoutError, LayoutTextError
from .swizzle import ComposeLayout, Swizzle, is_trivial
from .text import parse, parse_tile
from .tile import Iter, TileLayout, row_major

__all__ = [
    "AXES",
    "MEMORY",
    "Axis",
    "ComposeLayout",
    "Iter",
    "LayoutError",
    "LayoutTextError",
    "Swizzle",
    "TileLayout",
    "axis",
    "canonicalize",
    "direct_sum",
    "group",
    "group_many",
    "is_trivial",
    "pack",
    "parse",
    "parse_tile",
    "permute_by_groups",
    "permute_dims",
    "row_major",
    "scope_pair",
    "slice_",
    "storage",
    "tile",
    "unpack",
]

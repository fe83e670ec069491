"""Instruction records, one module per chapter of the PTX ISA; importing this loads them all."""

from . import (
    asynchronous_copy,
    atomics,
    comparison,
    control_flow,
    conversion,
    data_movement,
    floating_point,
    integer_arithmetic,
    logic_and_shift,
    matrix_multiply,
    parallel_synchronization,
    video,
    warp_matrix,
    warp_shuffle,
    wmma,
)
from .coverage import coverage_table, describe
from .record import Form, Instruction, Mods, Pure, instruction, registry

__all__ = [
    "Form",
    "Instruction",
    "Mods",
    "Pure",
    "asynchronous_copy",
    "atomics",
    "comparison",
    "control_flow",
    "conversion",
    "coverage_table",
    "data_movement",
    "describe",
    "floating_point",
    "instruction",
    "integer_arithmetic",
    "logic_and_shift",
    "matrix_multiply",
    "parallel_synchronization",
    "registry",
    "video",
    "warp_matrix",
    "warp_shuffle",
    "wmma",
]

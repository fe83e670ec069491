"""Instruction records, one module per chapter of the PTX ISA; importing this loads them all."""

from . import control_flow, data_movement
from .record import Form, Instruction, Mods, Pure, instruction, registry

__all__ = [
    "Form", "Instruction", "Mods", "Pure", "control_flow", "data_movement", "instruction", "registry",
]  # fmt: skip

"""From syntax trees to typed modules."""

from .. import isa as _isa  # the records must be there before a form is chosen
from .checker import InstructionChecker
from .dump import dump_module
from .resolver import CODES, resolve
from .typed import TypedFunction, TypedInstruction, TypedModule

__all__ = [
    "CODES",
    "InstructionChecker",
    "TypedFunction",
    "TypedInstruction",
    "TypedModule",
    "dump_module",
    "resolve",
]

del _isa

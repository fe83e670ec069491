"""From syntax trees to typed modules."""

from .. import isa as _isa  # the records must be there before a form is chosen
from .resolver import CODES, resolve
from .typed import TypedFunction, TypedInstruction, TypedModule

__all__ = ["CODES", "TypedFunction", "TypedInstruction", "TypedModule", "resolve"]

del _isa

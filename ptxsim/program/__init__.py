"""Compiled programs: what the machine runs."""

from .compile import compile_program, reachable_functions
from .control import Argument, CallPlan, ControlBinder
from .definedness import Origin, Origins
from .dump import dump_cfg, dump_program
from .model import Block, Counted, InstructionSite, Link, Program, Routine

__all__ = [
    "Argument",
    "Block",
    "CallPlan",
    "ControlBinder",
    "Counted",
    "InstructionSite",
    "Link",
    "Origin",
    "Origins",
    "Program",
    "Routine",
    "compile_program",
    "dump_cfg",
    "dump_program",
    "reachable_functions",
]

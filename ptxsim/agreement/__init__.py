"""Agreement of the simulator with hardware: what to compare, how closely, and where they part."""

from .backends import Backend, Provenance, Shape, gpu, simulate, simulator
from .bisect import Parting, first_parting
from .instrument import dumped, traced
from .states import StateDifference, compare_states

__all__ = [
    "Backend",
    "Parting",
    "Provenance",
    "Shape",
    "StateDifference",
    "compare_states",
    "dumped",
    "first_parting",
    "gpu",
    "simulate",
    "simulator",
    "traced",
]

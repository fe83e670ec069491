"""The race checker: happens-before by vector clocks, over shadow records of every granule."""

from .checker import RaceChecker
from .provenance import Provenance, provenance
from .scan import fences_in_order, orders_parts
from .shadow import MAX_LANES

__all__ = [
    "MAX_LANES",
    "Provenance",
    "RaceChecker",
    "fences_in_order",
    "orders_parts",
    "provenance",
]

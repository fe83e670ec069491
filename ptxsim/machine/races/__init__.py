"""The race checker: happens-before by vector clocks, over shadow records of every granule."""

from .checker import RaceChecker
from .provenance import Provenance, provenance
from .scan import orders_parts

__all__ = ["Provenance", "RaceChecker", "orders_parts", "provenance"]

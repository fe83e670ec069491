"""The race checker: happens-before by vector clocks, over shadow records of every granule."""

from .checker import RaceChecker
from .provenance import Provenance, provenance
from .scan import Traits, traits
from .shadow import MAX_LANES

__all__ = [
    "MAX_LANES",
    "Provenance",
    "RaceChecker",
    "Traits",
    "provenance",
    "traits",
]

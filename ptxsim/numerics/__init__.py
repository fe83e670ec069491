"""Pure arithmetic on bit patterns; no machine state."""

from ._elementwise import any_lane, select

__all__ = ["any_lane", "select"]

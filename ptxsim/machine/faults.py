"""How a launch ends early."""

from __future__ import annotations

__all__ = ["Stop"]


class Stop(Exception):
    """The launch is over: a trap, a fatal finding or a limit.  The finding is in the log."""

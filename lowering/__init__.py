"""Lowerings onto PTX: from tile-level descriptions to instructions that ptxsim proves right."""

from __future__ import annotations

from .copy import Copy, Lowered, copy_kernel, lower_copy, lower_memory_copy
from .dispatch import Decline, Declined
from .prove import Proof, ProofError

__all__ = [
    "Copy",
    "Decline",
    "Declined",
    "Lowered",
    "Proof",
    "ProofError",
    "copy_kernel",
    "lower_copy",
    "lower_memory_copy",
]

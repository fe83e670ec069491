"""Predicate-peeled, circular-buffered loops of cp.async."""

from __future__ import annotations

from .api import Lowered, lower_matmul
from .lower import Scheme, lower
from .matmul import DTYPES, Matmul, schedule
from .tensors import Fusion, Tensor

__all__ = [
    "DTYPES",
    "Fusion",
    "Lowered",
    "Matmul",
    "Scheme",
    "Tensor",
    "lower",
    "lower_matmul",
    "schedule",
]

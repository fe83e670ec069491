"""Advice on what a launch costs: bank conflicts, scattered accesses, idle barriers and lanes."""

from .advisor import Advisor
from .requests import Requests, Wavefronts, bank_words, by_warp, sectors, wavefronts

__all__ = [
    "Advisor",
    "Requests",
    "Wavefronts",
    "bank_words",
    "by_warp",
    "sectors",
    "wavefronts",
]

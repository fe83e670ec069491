"""PTX ISA versions and targets, and what a feature needs of both.

Versions and the version that introduced each target were measured with the assembler of CUDA 13
(PTX ISA, Release Notes chapter, says the same).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["ANY", "PTX_VERSIONS", "TARGETS", "Floor", "Target", "lacking", "parse_target"]

PTX_VERSIONS: frozenset[tuple[int, int]] = frozenset(
    [(1, n) for n in range(6)]
    + [(2, n) for n in range(4)]
    + [(3, n) for n in range(3)]
    + [(4, n) for n in range(4)]
    + [(5, 0)]
    + [(6, n) for n in range(6)]
    + [(7, n) for n in range(9)]
    + [(8, n) for n in range(9)]
    + [(9, n) for n in range(6)]
)

#: target -> PTX ISA version that introduced it
TARGETS: dict[str, tuple[int, int]] = {
    "sm_10": (1, 0), "sm_11": (1, 0), "sm_12": (1, 2), "sm_13": (1, 2),
    "sm_20": (2, 0), "sm_30": (3, 0), "sm_32": (4, 0), "sm_35": (3, 1), "sm_37": (4, 1),
    "sm_50": (4, 0), "sm_52": (4, 1), "sm_53": (4, 2), "sm_60": (5, 0), "sm_61": (5, 0),
    "sm_62": (5, 0), "sm_70": (6, 0), "sm_72": (6, 1), "sm_75": (6, 3), "sm_80": (7, 0),
    "sm_86": (7, 1), "sm_87": (7, 4), "sm_88": (9, 0), "sm_89": (7, 8), "sm_90": (7, 8),
    "sm_90a": (8, 0), "sm_100": (8, 6), "sm_100a": (8, 6), "sm_100f": (8, 8),
    "sm_103": (8, 8), "sm_103a": (8, 8), "sm_103f": (8, 8), "sm_107": (9, 4), "sm_107a": (9, 4),
    "sm_107f": (9, 4), "sm_110": (9, 0), "sm_110a": (9, 0), "sm_110f": (9, 0),
    "sm_120": (8, 7), "sm_120a": (8, 7), "sm_120f": (8, 8), "sm_121": (8, 8), "sm_121a": (8, 8),
    "sm_121f": (8, 8),
}  # fmt: skip

_TARGET = re.compile(r"sm_(\d+)([af]?)$")


@dataclass(frozen=True, slots=True)
class Target:
    """A target such as ``sm_90a``: its number and its ``a`` or ``f`` suffix."""

    number: int
    suffix: str = ""

    def __str__(self) -> str:
        return f"sm_{self.number}{self.suffix}"


def parse_target(text: str) -> Target | None:
    """The target that a word names, or None."""
    found = _TARGET.match(text)
    return Target(int(found[1]), found[2]) if found and text in TARGETS else None


@dataclass(frozen=True, slots=True)
class Floor:
    """What a feature needs: a PTX ISA version, and a target or one of some specific targets.

    ``sm`` is the lowest target number; ``only`` lists architecture- or family-specific targets
    (``100a``, ``120f``) of which one is needed instead.  ``until`` is the last PTX ISA version that
    has it, if it was removed, from the target number ``until_sm`` on; ``(0, 0)`` if there is none.
    """

    version: tuple[int, int] = (1, 0)
    sm: int = 0
    only: tuple[str, ...] = ()
    until: tuple[int, int] | None = None
    until_sm: int = 0

    @staticmethod
    def parse(text: str) -> Floor:
        """Read ``7.0+sm_80``, ``8.6+sm_100a/sm_120a``, ``6.0-6.4+sm_70``; parts may be missing.

        ``1.2-6.3:70`` ends with PTX ISA 6.3 from sm_70 on; with ``-:90`` no version has it there.

        >>> Floor.parse("7.0+sm_80")
        Floor(version=(7, 0), sm=80, only=(), until=None, until_sm=0)
        """
        version, sm, only, until, until_sm = (1, 0), 0, [], None, 0
        for part in text.split("+"):
            if part.startswith("sm_"):
                for word in part.split("/"):
                    if word[-1] in "af":
                        only.append(word[3:])
                    else:
                        sm = int(word[3:])
            else:
                first, ends, last = part.partition("-")
                version = _version(first) if first else version
                last, _, number = last.partition(":")
                until = _version(last or "0.0") if ends else None
                until_sm = int(number or 0)
        return Floor(version, sm, tuple(only), until, until_sm)

    def unmet(self, version: tuple[int, int], target: Target) -> str | None:
        """What is missing, in words, or None.

        A family target ``100f`` is met by sm_100f, sm_100a and the later members of its family
        (sm_103a, sm_103f); PTX ISA, Target directive.
        """
        above = self._target_above(target)
        if version < self.version:
            later = f"PTX ISA version {self.version[0]}.{self.version[1]} or later"
            return f"{later} and {above}" if above else later
        if self.until is not None and version > self.until and target.number >= self.until_sm:
            below = f"a target below sm_{self.until_sm}"
            if self.until == (0, 0):
                return below
            older = f"PTX ISA version {self.until[0]}.{self.until[1]} or earlier"
            return f"{older}, or {below}" if self.until_sm else older
        return above

    def _target_above(self, target: Target) -> str | None:
        """The targets that have it, or None if this is one of them."""
        if self.only and any(_meets(word, target) for word in self.only):
            return None
        if self.only and not self.sm:
            return "one of the targets " + ", ".join(f"sm_{word}" for word in self.only)
        if target.number < self.sm:
            others = "".join(f" or sm_{word}" for word in self.only)
            return f"target sm_{self.sm} or higher{others}"
        return None


def _version(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)


def _meets(word: str, target: Target) -> bool:
    number, suffix = int(word[:-1]), word[-1]
    if target.suffix == "":
        return False
    if suffix == "a":
        return target.suffix == "a" and target.number == number
    return target.number // 10 == number // 10 and target.number >= number


ANY = Floor()


def lacking(what: str, needs: str, version: tuple[int, int], target: Target) -> str:
    """The message that a module of this version and target does not meet a floor."""
    here = f"PTX ISA version {version[0]}.{version[1]} and target {target}"
    return f"{what} needs {needs}; this module has {here}"

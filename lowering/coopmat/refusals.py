"""Refusals: what the lowering of cooperative matrices does not lower, each with its code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["REFUSALS", "Refusal", "Refused", "refuse"]

#: What each code means.  R1 to R27 are those of the seed, in its order.
REFUSALS: dict[str, str] = {
    "R1": "the scope is not subgroup",
    "R2": "no instruction has the shape",
    "R3": "the component is none of A or B",
    "R4": "the component is none of an accumulator",
    "R5": "saturation is not legal",
    "R6": "A and B differ in sign",
    "R7": "C and the result differ",
    "R8": "accumulator and factors do not go together",
    "R9": "A and B are of different families",
    "R10": "one operand is loaded in both layouts",
    "R11": "the target is none",
    "R12": "the target is below the floor of cooperative matrices",
    "R13": "the target is below the floor of 8-bit factors",
    "R14": "a fragment or config of the kernel is refused (as R1 to R9)",
    "R15": "the layouts of the kernel conflict (as R10)",
    "R16": "the block is not a multiple of 32 threads",
    "R17": "a buffer of storage elements is used outside of cooperative matrices",
    "R18": "one buffer is accessed as two element types",
    "R19": "an operand may be used before it is loaded",
    "R20": "a fragment is declared twice in one scope",
    "R21": "the buffer is unknown",
    "R22": "the element types differ",
    "R23": "the buffer is in local memory",
    "R24": "the buffer is in constant memory",
    "R25": "the fragment is not declared",
    "R26": "the fragment has another use or component",
    "R27": "declaration and statement disagree about the fragment",
    # what goes beyond the seed
    "R28": "names or types of the kernel are wrong",
    "R29": "the modifier is not legal for the config",
    "R30": "the layout is not legal for elements below 8 bits",
    "R31": "the target or the PTX ISA version is below the floor of the config",
    "R32": "the chosen instructions cannot compute the config",
    "R33": "the index cannot be right",
    "R34": "the stride cannot be right",
    "R35": "lanes of a warp go different ways",
    "R36": "lanes of a warp name different tiles",
    "R37": "the arrays cannot be had",
    "R38": "the barrier is not reached by the whole block",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something is not lowered: code, what, reason, the line of the text (0: none), a cure."""

    code: str
    what: str
    reason: str
    line: int = 0
    help: str = ""

    @property
    def text(self) -> str:
        """Code, thing, reason and cure."""
        cure = f" ({self.help})" if self.help else ""
        return f"{self.code}: {self.what}: {self.reason}{cure}"

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


class Refused(Exception):
    """A kernel is not lowered; ``refusals`` has all the reasons."""

    def __init__(self, refusals: Iterable[Refusal]) -> None:
        self.refusals = tuple(refusals)
        super().__init__("cooperative matrices: " + "\n".join(map(str, self.refusals)))


def refuse(refusals: Iterable[Refusal]) -> None:
    """Raise :class:`Refused` if there is any refusal."""
    found = tuple(refusals)
    if found:
        raise Refused(found)

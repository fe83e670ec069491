"""A second opinion for ``ptxsim check``: where NVIDIA's assembler says something else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..diagnostics import Diagnostic, Severity, Source, Span
from ..nvidia import Assembler, Verdict, retarget, target_of

__all__ = ["CODES", "DISAGREEMENT", "Judgement", "judge"]

#: The code of a verdict that is not that of NVIDIA's assembler.
DISAGREEMENT = "PTX401"
CODES = {DISAGREEMENT: "NVIDIA's assembler says something else"}

_WORDS = {True: "accepted", False: "rejected", None: "not judged"}


@dataclass(frozen=True, slots=True)
class Judgement:
    """What an assembler says of a file, and each place where ptxsim says something else."""

    assembler: str
    verdict: Verdict
    disagreements: tuple[Diagnostic, ...]

    @property
    def unjudged(self) -> str | None:
        """Why there is no verdict; None if there is one."""
        if self.verdict.accepted is not None:
            return None
        return "; ".join(m.text for m in self.verdict.messages)

    def to_json(self) -> dict[str, Any]:
        """The verdict as an object of the JSON report."""
        return {
            "name": self.assembler,
            "verdict": _WORDS[self.verdict.accepted],
            "messages": [{"line": m.line, "message": m.text} for m in self.verdict.messages],
        }


def judge(
    assembler: Assembler,
    source: Source,
    target: str | None,
    valid: bool,
    diagnostics: tuple[Diagnostic, ...],
) -> Judgement:
    """Ask the assembler about a text of which ptxsim's own verdict is known.

    ``target`` is the one to check for instead of the text's own.
    """
    text = source.text if target is None else retarget(source.text, target)
    verdict = assembler.judge(text, target_of(text))
    found: tuple[Diagnostic, ...] = ()
    if verdict.accepted is False and valid:
        found = tuple(
            _disagreement(
                source.code_of(m.line or 1),
                f"ptxsim accepts, {assembler.name} rejects: {m.text}",
            )
            for m in verdict.messages
        )
    elif verdict.accepted and not valid:
        found = tuple(
            _disagreement(
                d.span, f"ptxsim rejects, {assembler.name} accepts: {d.message} [{d.code}]"
            )
            for d in diagnostics
            if d.severity is Severity.ERROR
        )
    return Judgement(assembler.name, verdict, found)


def _disagreement(span: Span, message: str) -> Diagnostic:
    return Diagnostic(
        DISAGREEMENT, message, span, help="what counts for a GPU is NVIDIA's assembler"
    )

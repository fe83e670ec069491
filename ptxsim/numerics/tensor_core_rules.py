"""Which float arithmetic each tensor-core instruction has on each architecture, as data.

The parameters are those of the machines, not of the PTX ISA, which leaves them open.  Evidence
names where a row comes from: ``hardware`` was reproduced on published outputs of real GPUs (the
data of the MATLAB-tensor-core project, arXiv 2512.07004), ``model`` is the parameter set of MMA-Sim
2.1.1 (arXiv 2511.10909), whose authors compared it with GPUs, ``machine code`` was read from what
the CUDA 13.0 assembler emits.  A row without evidence is the nearest one that has some.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

__all__ = ["ARCHITECTURES", "RULES", "Row", "Rule", "architecture", "float_rule"]

#: Targets by architecture; those behind the bar are not among the machines with evidence.
ARCHITECTURES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "Volta": ((70,), (72,)),
    "Turing": ((75,), ()),
    "Ampere": ((80, 86, 87), (88,)),
    "Ada": ((89,), ()),
    "Hopper": ((90,), ()),
    "Blackwell": ((100,), (103, 107, 110)),
    "RTX Blackwell": ((120,), (121,)),
}


@dataclass(frozen=True, slots=True)
class Rule:
    """The arithmetic of one instruction on one target.

    ``method`` is ``fused`` (steps of ``block`` products aligned with ``fraction`` bits), ``halves``
    (factors of eight bits unpacked to f16: two chained steps for the low and the high halves of
    registers, which hold ``pair`` neighbours in k, then one rounded addition of the accumulator),
    ``groups`` (exact sums of ``block`` products, scaled, then one fused step) or
    ``fma`` (rounded fused multiply-adds of f32).  ``zero`` is the exponent of a zero addend with
    f32 accumulators, ``kept`` the fraction bits of an f32 result.  An f16 accumulator of an f32
    result is widened first, unless the machine is ``mixed``: a subnormal one keeps its exponent.
    """

    method: str
    block: int
    fraction: int
    zero: int
    kept: int = 23
    evidence: str = ""
    mixed: bool = False
    pair: int = 2

    def zero_exponent(self, half: bool) -> int:
        """The exponent of a zero addend, also for f16 accumulators."""
        return self.zero + 112 if half else self.zero


@dataclass(frozen=True, slots=True)
class Row:
    """A rule with the instructions, factor types and architectures that it holds for."""

    instruction: str
    factors: str
    architectures: str
    rule: Rule


_VOLTA = Rule("fused", 4, 23, -131, mixed=True)
_AMPERE = Rule("fused", 8, 24, -132)
_HOPPER = Rule("fused", 16, 25, -133)
_FMA = Rule("fma", 4, 0, 0, evidence="machine code")
_EIGHT_BITS = "e4m3 e5m2"
_SMALL = "e4m3 e5m2 e3m2 e2m3 e2m1"


def _rule(base: Rule, block: int, evidence: str, **other: int) -> Rule:
    return replace(base, block=block, evidence=evidence, **other)  # type: ignore[arg-type]


#: The table.  The first row that names instruction, factor and architecture counts.
RULES: tuple[Row, ...] = (
    # mma.m8n8k4 of f16 exists as an instruction of the machine on Volta and Turing only
    Row("mma.m8n8k4", "f16", "Volta", _rule(_VOLTA, 4, "hardware")),
    Row("mma.m8n8k4", "f16", "Turing", _rule(_VOLTA, 4, "model")),
    Row("mma.m8n8k4", "f16", "Ampere,Ada,Hopper,Blackwell,RTX Blackwell", _FMA),
    # mma, dense
    Row("mma", "f16", "Turing", _rule(_AMPERE, 8, "model")),
    Row("mma", "f16 bf16", "Ampere,Ada", _rule(_AMPERE, 8, "hardware")),
    Row("mma", "tf32", "Ampere,Ada", _rule(_AMPERE, 4, "hardware")),
    Row("mma", "f16 bf16", "Hopper,Blackwell", _rule(_HOPPER, 16, "hardware")),
    Row("mma", "tf32", "Hopper,Blackwell", _rule(_HOPPER, 8, "hardware")),
    Row("mma", "f16 bf16", "RTX Blackwell", _rule(_HOPPER, 16, "model")),
    Row("mma", "tf32", "RTX Blackwell", _rule(_HOPPER, 8, "model")),
    Row("mma", _EIGHT_BITS, "Ada", _rule(_AMPERE, 16, "hardware", fraction=13, kept=13)),
    Row("mma", _EIGHT_BITS, "Hopper,Blackwell", Rule("halves", 16, 25, -133, 23, "hardware")),
    Row("mma", _EIGHT_BITS, "RTX Blackwell", _rule(_HOPPER, 32, "model")),
    Row("mma.kind::f8f6f4", _EIGHT_BITS, "Blackwell", Rule("halves", 16, 25, -133)),
    Row("mma.kind::f8f6f4", _SMALL, "RTX Blackwell", _rule(_HOPPER, 32, "model")),
    Row("mma.kind::mxf8f6f4", _SMALL, "RTX Blackwell", _rule(_HOPPER, 32, "model")),
    Row("mma.kind::mxf4", "e2m1", "RTX Blackwell", Rule("groups", 16, 35, -139, 23, "model")),
    Row("mma.kind::mxf4nvf4", "e2m1", "RTX Blackwell", Rule("groups", 16, 35, -139, 23, "model")),
    # mma.sp: no evidence.  As many products are added at once as in the dense instruction, so a
    # block spans twice the extent of k.
    Row("mma.sp", "f16 bf16", "Ampere,Ada", _rule(_AMPERE, 16, "")),
    Row("mma.sp", "tf32", "Ampere,Ada", _rule(_AMPERE, 8, "")),
    Row("mma.sp", "f16 bf16", "Hopper,Blackwell,RTX Blackwell", _rule(_HOPPER, 32, "")),
    Row("mma.sp", "tf32", "Hopper,Blackwell,RTX Blackwell", _rule(_HOPPER, 16, "")),
    Row("mma.sp", _EIGHT_BITS, "Ada", _rule(_AMPERE, 32, "", fraction=13, kept=13)),
    Row("mma.sp", _EIGHT_BITS, "Hopper,Blackwell", Rule("halves", 32, 25, -133, pair=4)),
    Row("mma.sp", _EIGHT_BITS, "RTX Blackwell", _rule(_HOPPER, 64, "")),
    Row("mma.sp.kind::f8f6f4", _EIGHT_BITS, "Blackwell", Rule("halves", 32, 25, -133, pair=4)),
    Row("mma.sp.kind::f8f6f4", _SMALL, "RTX Blackwell", _rule(_HOPPER, 64, "")),
    Row("mma.sp.kind::mxf8f6f4", _SMALL, "RTX Blackwell", _rule(_HOPPER, 64, "")),
    Row("mma.sp.kind::mxf4", "e2m1", "RTX Blackwell", Rule("groups", 32, 35, -139)),
    Row("mma.sp.kind::mxf4nvf4", "e2m1", "RTX Blackwell", Rule("groups", 32, 35, -139)),
    # wmma: the assembler makes it of the machine's instructions of the same factors
    Row("wmma", "f16", "Volta", _rule(_VOLTA, 4, "machine code")),
    Row("wmma", "f16", "Turing", _rule(_AMPERE, 8, "machine code")),
    Row("wmma", "f16 bf16", "Ampere,Ada", _rule(_AMPERE, 8, "machine code")),
    Row("wmma", "f16 bf16", "Hopper,Blackwell,RTX Blackwell", _rule(_HOPPER, 16, "machine code")),
    Row("wmma", "tf32", "Ampere,Ada", _rule(_AMPERE, 4, "machine code")),
    Row("wmma", "tf32", "Hopper,Blackwell,RTX Blackwell", _rule(_HOPPER, 4, "machine code")),
)


def architecture(number: int) -> tuple[str, bool]:
    """The architecture of a target number, and whether that very target has evidence.

    >>> architecture(86), architecture(121)
    (('Ampere', True), ('RTX Blackwell', False))
    """
    for name, (known, others) in ARCHITECTURES.items():
        if number in known or number in others:
            return name, number in known
    newest = list(ARCHITECTURES)[-1]
    return newest, False


@cache
def float_rule(instruction: str, factor: str, target: int) -> Rule:
    """The rule of an instruction (``mma``, ``mma.sp.kind::mxf4``, ``wmma``) on a target number.

    The evidence is empty where the target has none.  Raises :class:`KeyError` for an instruction
    that the target does not have.
    """
    name, known = architecture(target)
    for row in RULES:
        if row.instruction != instruction or factor not in row.factors.split():
            continue
        if name in row.architectures.split(","):
            return row.rule if known else replace(row.rule, evidence="")
    raise KeyError(f"no arithmetic of {instruction} with {factor} on sm_{target}")

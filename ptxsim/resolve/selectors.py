"""Part selectors and signs of video instruction operands, such as ``-%r1.b0``.

PTX ISA 9.1, "Video Instructions": a selector belongs to the operand, but like a modifier it says
what the instruction computes, so it is taken off here and joins the modifiers.
"""

from __future__ import annotations

from dataclasses import replace

from ..isa.record import SELECTORS, Form, Mods, OperandSpec
from ..syntax import ast

__all__ = ["detach_selectors", "has_selectors"]


def has_selectors(form: Form) -> bool:
    """Whether operands of the form may carry selectors or signs."""
    return any(s.selector or s.signable for s in form.operands)


def detach_selectors(form: Form, m: Mods, node: ast.Instruction) -> tuple[Mods, ast.Instruction]:
    """The instruction with plain operands, and its modifiers with their selectors and signs.

    A suffix that is no selector of the form stays, for the operand rules to refuse.
    """
    found: dict[str, str] = {}
    operands = list(node.operands)
    for at, (spec, operand) in enumerate(zip(form.operands, node.operands, strict=False)):
        operands[at] = _detached(spec, operand, found)
    if not found:
        return m, node
    return Mods({**m, **found}), replace(node, operands=tuple(operands))


def _detached(spec: OperandSpec, operand: ast.Operand, found: dict[str, str]) -> ast.Operand:
    inner = operand
    if spec.signable and isinstance(operand, ast.Unary) and operand.operator == "-":
        # The minus of a constant belongs to its value.
        if not isinstance(operand.operand, ast.Name | ast.Member):
            return operand
        inner = operand.operand
        found[f"{spec.name}_sign"] = "-"
    if spec.selector and isinstance(inner, ast.Name):
        base, dot, selector = inner.text.rpartition(".")
        if dot and SELECTORS[spec.selector].fullmatch(selector):
            found[f"{spec.name}_part"] = selector
            return ast.Name(base, inner.span)
    return inner

"""What is modelled, from the records alone."""

from __future__ import annotations

from typing import Any

from ..targets import ANY, Floor
from .record import STAND_IN, Form, Instruction, OperandSpec, registry

__all__ = ["coverage_table", "describe"]


def floor_text(floor: Floor) -> str:
    if floor is ANY:
        return ""
    parts = []
    if floor.version > (1, 0):
        parts.append(f"PTX {floor.version[0]}.{floor.version[1]}")
    if floor.sm:
        parts.append(f"sm_{floor.sm}")
    parts += [f"sm_{word}" for word in floor.only]
    if floor.until is not None:
        parts.append(f"up to PTX {floor.until[0]}.{floor.until[1]}")
    return ", ".join(parts)


def coverage_table() -> list[dict[str, Any]]:
    """One row a mnemonic: section, number of forms modelled and not, floor."""
    rows = []
    for name in registry.names():
        if name == STAND_IN:
            continue
        records = registry[name]
        forms = [f for r in records for f in r.forms]
        modelled = sum(not f.unsupported for f in forms)
        rows.append(
            {
                "name": name,
                "section": records[0].isa,
                "modelled": modelled,
                "unsupported": len(forms) - modelled,
                "floor": floor_text(records[0].floor),
                "approximate": any(r.approximate for r in records),
            }
        )
    return rows


def _operand_text(o: OperandSpec) -> str:
    if o.kind == "parts":
        return "[" + ", ".join(map(_operand_text, o.parts)) + "]"
    text = f"[{o.name}]" if o.kind == "address" else "[-]" * o.signable + o.name
    if o.selector:
        text += f"[.{o.selector}]"
    if o.count:
        text = "{" + text + ", ...}"
    return text + "|p" * o.pair


def form_text(record: Instruction, form: Form) -> str:
    words = []
    for slot in form.slots:
        text = (
            "." + slot.domain[0] if len(slot.domain) == 1 else "{." + " .".join(slot.domain) + "}"
        )
        words.append(f"[{text}]" if slot.optional else text)
    operands = []
    for o in form.operands:
        if not o.hidden:
            text = _operand_text(o)
            operands.append(f"[, {text}]" if o.optional or o.needs else text)
    line = f"  {record.name}{''.join(words)} {', '.join(operands)};".replace(", [, ", "[, ")
    notes = [t for t in (floor_text(form.floor), form.unsupported) if t]
    return line + (f"  // {'; '.join(notes)}" if notes else "")


def describe(name: str) -> str | None:
    """Forms, floors and traps of an instruction, or None for an unknown name."""
    if name not in registry:
        return None
    lines = []
    for record in registry[name]:
        lines.append(f"{name}: {(record.__doc__ or '').splitlines()[0]}")
        lines.append(f"  PTX ISA, {record.isa}")
        if record.floor is not ANY:
            lines.append(f"  needs {floor_text(record.floor)}")
        if record.traps:
            lines.append(f"  findings: {', '.join(record.traps)}")
        if record.approximate:
            lines.append("  approximate: within the documented error, not bit-exact")
        lines += [form_text(record, f) for f in record.forms]
    return "\n".join(lines) + "\n"

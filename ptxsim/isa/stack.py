"""The stack (PTX ISA 9.1, Stack Manipulation Instructions): checked, not executed."""

from __future__ import annotations

from .record import Form, Instruction, Mods, instruction

__all__: list[str] = []

_SECTION = "Stack Manipulation Instructions: "


class _Stack(Instruction):
    unsupported = "the stack is not modelled"


@instruction("stacksave", isa=_SECTION + "stacksave", floor="7.3+sm_52")
class Stacksave(_Stack):
    """Copy the stack pointer to a register."""

    forms = (Form("type:{u32 u64}", "=d.type"),)


@instruction("stackrestore", isa=_SECTION + "stackrestore", floor="7.3+sm_52")
class Stackrestore(_Stack):
    """Set the stack pointer to what a register holds."""

    forms = (Form("type:{u32 u64}", "a.type"),)

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """The pointer comes from a register (measured)."""
        return "a register is expected"


@instruction("alloca", isa=_SECTION + "alloca", floor="7.3+sm_52")
class Alloca(_Stack):
    """Allocate memory on the stack, at a multiple of an alignment."""

    forms = (Form("type:{u32 u64}", "=d.type, size.type, #align.u32?"),)

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """Alignments are powers of two."""
        if name == "align" and (value & (value - 1) or not value):
            return f"an alignment is a power of two, not {value}"
        return None

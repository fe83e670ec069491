"""The stack of a thread (PTX ISA 9.1, Stack Manipulation Instructions).

A stack pointer is an address of local memory that goes down.  What a function allocates is freed
when it returns.
"""

from __future__ import annotations

from typing import Any

from ..types import SCALAR_TYPES, bits_dtype
from .protocol import Registers, Step
from .record import Form, Instruction, Mods, instruction

__all__: list[str] = []

_SECTION = "Stack Manipulation Instructions: "

#: The alignment without an operand, and the largest (PTX ISA 9.1, alloca).
_ALIGN, _MOST = 8, 1 << 23


@instruction("stacksave", isa=_SECTION + "stacksave", floor="7.3+sm_52")
class Stacksave(Instruction):
    """Copy the stack pointer to a register."""

    forms = (Form("type:{u32 u64}", "=d.type"),)

    def bind(self, b: Any) -> Step:
        dtype = bits_dtype(SCALAR_TYPES[b.mods.type].bits)
        write, guard = b.write("d"), b.guard()

        def step(r: Registers, g: Any) -> None:
            write(r, g.service("stacks").save(g).astype(dtype), g.mask(guard(r)))

        return step


@instruction("stackrestore", isa=_SECTION + "stackrestore", floor="7.3+sm_52")
class Stackrestore(Instruction):
    """Set the stack pointer to what a register holds, which frees what was allocated since."""

    forms = (Form("type:{u32 u64}", "a.type"),)
    needs_defined = True
    traps = ("bad-stackrestore",)

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """The pointer comes from a register (measured)."""
        return "a register is expected"

    def bind(self, b: Any) -> Step:
        pointer, guard, site = b.source("a"), b.guard(), b.site

        def step(r: Registers, g: Any) -> None:
            g.service("stacks").restore(g, r[pointer], g.mask(guard(r)), site)

        return step


@instruction("alloca", isa=_SECTION + "alloca", floor="7.3+sm_52")
class Alloca(Instruction):
    """Allocate memory on the stack, at a multiple of an alignment: a local address."""

    forms = (Form("type:{u32 u64}", "=d.type, size.type, #align.u32?"),)
    needs_defined = True
    traps = ("stack-overflow",)

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """Alignments are powers of two up to 2^23 (PTX ISA 9.1, alloca)."""
        if name != "align" or (0 < value <= _MOST and not value & (value - 1)):
            return None
        return f"an alignment is a power of two up to {_MOST}, not {value}"

    def bind(self, b: Any) -> Step:
        dtype = bits_dtype(SCALAR_TYPES[b.mods.type].bits)
        size, write = b.source("size"), b.write("d")
        align = b.constant("align") if b.has("align") else _ALIGN
        guard, site = b.guard(), b.site

        def step(r: Registers, g: Any) -> None:
            mask = g.mask(guard(r))
            address = g.service("stacks").allocate(g, r[size], align, mask, site)
            write(r, address.astype(dtype), mask)

        return step

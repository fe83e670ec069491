"""Lowering a tile copy: choose a variant, prove what it emits, give it as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxsim.build import Kernel, Special

from ..dispatch import Decline, choose
from ..layout import ComposeLayout, TileLayout, parse, parse_tile
from ..prove import Proof, prove_copy, prove_kernel, prove_memory_copy
from .faithful import FAITHFUL_MOVES
from .kernel import copy_kernel, new_kernel, tile_base
from .ldstmatrix import MATRIX_MOVES
from .memory import MEMORY_VARIANTS, MemoryCopy, MemoryPlan
from .plan import Plan
from .problem import Copy
from .reg import REGISTER_MOVES

__all__ = ["COPY_VARIANTS", "Lowered", "LoweredMemory", "lower_copy", "lower_memory_copy"]

#: The variants for copies between registers and shared memory.
COPY_VARIANTS = (MATRIX_MOVES, REGISTER_MOVES)


@dataclass(frozen=True)
class Lowered:
    """A lowered copy: its plan, its proof (None if none was asked for), and why others declined."""

    plan: Plan
    proof: Proof | None
    declines: dict[str, Decline]

    def kernel(self, name: str = "tile_copy") -> Kernel:
        """A whole kernel that stages the tile from and to global memory.

        It is run once with tags if the copy is proved.  :class:`lowering.Declined` for a tile of
        which two elements share a place.
        """
        kernel = copy_kernel(self.plan, name)
        if self.proof is not None:
            prove_kernel(self.plan, kernel)
        return kernel

    def body(self) -> str:
        """The copy alone: declarations and instructions to paste into a kernel."""
        k, tile = new_kernel(self.plan, "body", [])
        thread = k.new("mov.u32", "b32", Special("%tid.x"))
        base = tile_base(k, tile)
        words = k.registers("b32", self.plan.placement.words)
        self.plan.emit(k, thread, base, words)
        named = f"words {words[0]} to {words[-1]}, thread {thread}, address of the tile {base}"
        return f"    // {named}\n{k.declarations()}\n{k.body_text()}"


def lower_copy(
    register: TileLayout | str,
    shared: TileLayout | ComposeLayout | str,
    *,
    dtype: str = "f16",
    scope: str = "warp",
    direction: str = "ld",
    target: str = "sm_90",
    variant: str | None = None,
    faithful: bool = False,
    prove: bool = True,
    **more: Any,
) -> Lowered:
    """The copy between a register tile and a shared tile as PTX.

    ``variant`` names the one to try; ``faithful`` keeps to the rule and order of TVM's dispatch for
    matrix moves.  :class:`lowering.Declined` if no variant applies, :class:`ValueError` (a
    ``LayoutError``) for a layout that is none.  ``prove=False`` leaves out the proof.
    """
    copy = Copy(
        parse_tile(register) if isinstance(register, str) else register,
        parse(shared) if isinstance(shared, str) else shared,
        dtype, scope, direction, target, **more,
    )  # fmt: skip
    if faithful and variant == "reg":
        raise ValueError("faithful is about ldstmatrix; leave it out with the variant reg")
    variants = (FAITHFUL_MOVES, REGISTER_MOVES) if faithful else COPY_VARIANTS
    plan, declines = choose(copy, variants, "the copy", variant)
    return Lowered(plan, prove_copy(plan) if prove else None, declines)


@dataclass(frozen=True)
class LoweredMemory:
    """A lowered copy between memories: its plan, its proof, and why others declined."""

    plan: MemoryPlan
    proof: Proof | None
    declines: dict[str, Decline]


def lower_memory_copy(
    global_: TileLayout | str,
    shared: TileLayout | ComposeLayout | str,
    *,
    variant: str | None = None,
    prove: bool = True,
    **options: Any,
) -> LoweredMemory:
    """The copy between a tile in global memory and one in shared memory.

    ``options`` are the fields of :class:`MemoryCopy`.  :class:`lowering.Declined` if no variant
    applies.
    """
    copy = MemoryCopy(
        parse_tile(global_) if isinstance(global_, str) else global_,
        parse(shared) if isinstance(shared, str) else shared,
        **options,
    )
    plan, declines = choose(copy, MEMORY_VARIANTS, "the copy", variant)
    return LoweredMemory(plan, prove_memory_copy(plan) if prove else None, declines)

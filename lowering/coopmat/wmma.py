"""Cooperative matrices as wmma (PTX ISA 9.1, Warp Level Matrix Instructions: wmma.load, wmma.store,
wmma.mma)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ptxsim.build import Address, Kernel, Operand, Register
from ptxsim.matrix import wmma_registers

from .forms import Floor, floor, fragment_floor, layout_suffix, ptx_type
from .via import Tile
from .vocabulary import Config, Fragment, Shape

__all__ = ["Wmma", "frag_reg_count"]

_USE = {"a": "a", "b": "b", "accumulator": "c"}
_REGISTER = {"f32": "f32", "f64": "f64"}


def _shape(shape: Shape) -> str:
    return f"m{shape.m}n{shape.n}k{shape.k}"


def frag_reg_count(fragment: Fragment) -> int:
    """Registers of each lane that hold a fragment.

    >>> frag_reg_count(Fragment("a", Shape(16, 16, 16), "f16"))
    8
    """
    s = fragment.shape
    return wmma_registers(_USE[fragment.use], (s.m, s.n, s.k), ptx_type(fragment.component))


class Wmma:
    """The instructions wmma of one kernel."""

    name: ClassVar[str] = "wmma"
    packs: ClassVar[bool] = True
    mixes: ClassVar[bool] = False

    def __init__(self, k: Kernel, target: int) -> None:
        self.k = k

    @classmethod
    def floor(cls, fragment: Fragment) -> Floor:
        """From where on there is a fragment."""
        return fragment_floor(fragment)

    @classmethod
    def decline(
        cls, config: Config, target: int, version: tuple[int, int]
    ) -> tuple[str, str] | None:
        """Code and reason why a config cannot be computed on a target number."""
        needs = floor(config)
        if version > needs.until:
            return "R31", f"saturating f16 ended with PTX ISA {needs.until[0]}.{needs.until[1]}"
        if target < needs.sm:
            return "R31", f"{config.a} needs sm_{needs.sm}"
        if version < needs.since:
            return "R31", f"{config.a} needs PTX ISA {needs.since[0]}.{needs.since[1]}"
        return None

    @classmethod
    def registers(cls, fragment: Fragment) -> tuple[str, int]:
        """Type and number of the registers that hold a fragment in each lane."""
        return _REGISTER.get(fragment.component, "b32"), frag_reg_count(fragment)

    @classmethod
    def alignment(cls, fragment: Fragment, layout: str, space: str, store: bool) -> int:
        """The size of a fragment in each lane (Matrix Storage for WMMA)."""
        type_, count = cls.registers(fragment)
        return count * (8 if type_ == "f64" else 4)

    def load(self, tile: Tile, registers: Sequence[Register]) -> None:
        """Write the load of a fragment."""
        f = tile.fragment
        opcode = self._opcode("load", _USE[f.use], tile)
        self.k.emit(opcode, tuple(registers), Address(tile.address), tile.stride)

    def store(self, tile: Tile, registers: Sequence[Register]) -> None:
        """Write the store of an accumulator."""
        self.k.emit(
            self._opcode("store", "d", tile), Address(tile.address), tuple(registers), tile.stride
        )

    def muladd(
        self,
        config: Config,
        layouts: tuple[str, str],
        d: Sequence[Register],
        a: Sequence[Register],
        b: Sequence[Register],
        c: Sequence[Register],
    ) -> None:
        """Write ``d = a * b + c``; ``layouts`` are those that A and B were loaded with."""
        bits = f".{config.modifier}.popc" if config.a == "b1" else ""
        rounding = f".{config.modifier}" if config.modifier and not bits else ""
        types = [ptx_type(config.result), ptx_type(config.c)]
        if config.a != "f16":  # PTX leaves f16 factors out
            types[1:1] = [config.a, config.b]
        opcode = ".".join(
            [
                f"wmma.mma{bits}.sync.aligned",
                *map(layout_suffix, layouts),
                _shape(config.shape) + rounding,
                *types,
            ]
        )
        opcode += ".satfinite" if config.saturating else ""
        operands: list[Operand] = [tuple(group) for group in (d, a, b, c)]
        self.k.emit(opcode, *operands)

    def _opcode(self, verb: str, use: str, tile: Tile) -> str:
        f = tile.fragment
        return (
            f"wmma.{verb}.{use}.sync.aligned.{layout_suffix(tile.layout)}.{_shape(f.shape)}"
            f".{tile.space}.{ptx_type(f.component)}"
        )

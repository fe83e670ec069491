"""A plan: the instructions of a copy with the shared address of each thread, and how to write it.

Addresses are tables over the threads of the scope, in bytes from the start of the shared array.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ptxsim.build import Address, Kernel, Register

from ..address import AddressCode, Emitter, swizzled, synthesize
from ..layout import Swizzle
from .problem import Copy, Placement, Table

__all__ = ["Move", "Part", "Plan", "placed", "wavefronts"]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a register word: ``bits`` bits from bit ``low`` on; a whole word has 32."""

    word: int
    low: int = 0
    bits: int = 32


@dataclass(frozen=True)
class Move:
    """One instruction: its opcode, the registers it moves in order, and the address of each thread.

    ``row`` is how many bytes an address stands for; ``suppliers`` is how many low lanes of a warp
    give an address that counts (ldmatrix and stmatrix read the others' registers only).
    """

    opcode: str
    parts: tuple[Part, ...]
    address: Table
    row: int
    suppliers: int = 32

    def phases(self) -> Iterator[Table]:
        """The addresses that reach shared memory together, [warps, lanes], 128 bytes at most."""
        lanes = self.address.reshape(-1, 32)[:, : self.suppliers]
        together = min(max(128 // self.row, 1), self.suppliers)
        for first in range(0, self.suppliers, together):
            yield lanes[:, first : first + together]


def wavefronts(move: Move) -> tuple[int, int]:
    """Shared-memory wavefronts of a move in its worst warp, and how many it has at best.

    32 banks of four bytes: a phase takes as many as the fullest bank has different words.
    """
    total = best = 0
    for phase in move.phases():
        words = (phase[:, :, None] // 4 + np.arange(max(move.row // 4, 1))).reshape(len(phase), -1)
        worst = 0
        for row in words:
            unique = np.unique(row)
            worst = max(worst, int(np.bincount(unique % 32).max()))
        total += worst
        best += 1
    return total, best


@dataclass(frozen=True)
class Plan:
    """What a variant emits for a copy; ``notes`` say what a reader may want to know.

    ``guard`` is false for threads that take no part; None if all do.
    """

    variant: str
    copy: Copy
    placement: Placement
    moves: tuple[Move, ...]
    notes: tuple[str, ...] = ()
    guard: Table | None = field(default=None)

    @property
    def words(self) -> tuple[int, ...]:
        """The register words that are moved."""
        return tuple(sorted({part.word for move in self.moves for part in move.parts}))

    def emit(
        self, k: Kernel, thread: Register, base: Register, words: Sequence[Register]
    ) -> list[Address]:
        """Write the copy; ``thread`` counts within the scope, ``base`` is the tile's address.

        ``words`` are ``.b32`` registers by word number.  Returns the address operand of each
        move.
        """
        emitter = Emitter(k, thread)
        guard = None
        if self.guard is not None:
            guard = k.new("setp.ne.u32", "pred", emitter.value(synthesize(self.guard)), 0)
        addresses = _Addresses(k, emitter, base, self.copy.byte_swizzle)
        pieces = _Pieces(k, words, guard)
        for move in self.moves:
            address = addresses.address(move.address)
            if self.copy.direction == "ld":
                k.emit(move.opcode, pieces.targets(move), address, guard=guard)
                pieces.join(move)
            else:
                k.emit(move.opcode, address, pieces.values(move), guard=guard)
        return addresses.given

    def codes(self) -> list[AddressCode]:
        """The address code of each move, for reading."""
        return [self.code(move) for move in self.moves]

    def code(self, move: Move) -> AddressCode:
        """The address code of one move."""
        return synthesize(move.address, self.copy.byte_swizzle)


def _based(k: Kernel, base: Register, offset: Register) -> Register:
    """The address ``offset`` bytes behind a shared (32 bits) or global (64 bits) base."""
    if base.type == "b32":
        return k.new("add.u32", "b32", base, offset)
    return k.new("add.u64", "b64", base, k.new("cvt.u64.u32", "b64", offset))


def placed(k: Kernel, emitter: Emitter, base: Register, table: Table) -> Address:
    """The operand for byte offsets behind a base, their least one as its constant."""
    low = int(table.min())
    return Address(_based(k, base, emitter.value(synthesize(table - low))), low)


class _Addresses:
    """Address operands; moves whose addresses differ by a constant (added, flipped) share code."""

    def __init__(
        self, k: Kernel, emitter: Emitter, base: Register, swizzle: Swizzle | None
    ) -> None:
        self.k, self.emitter, self.base, self.swizzle = k, emitter, base, swizzle
        #: table, offset register and address register of what was computed
        self._made: list[tuple[Table, Register, Register]] = []
        #: the same before the swizzle, where it is applied by code
        self._linear: list[tuple[Table, Register]] = []
        self.given: list[Address] = []

    def address(self, table: Table) -> Address:
        """The operand for a table of addresses."""
        self.given.append(self._known(table) or self._new(table))
        return self.given[-1]

    def _known(self, table: Table) -> Address | None:
        for known, _, register in self._made:
            offset = table - known
            if (offset == offset[0]).all():
                return Address(register, int(offset[0]))
        return None

    def _new(self, table: Table) -> Address:
        value = self._flipped(table)
        if value is None:
            code = synthesize(table)
            value = self._before_swizzle(table, code.cost)
            if value is None:
                value = self.emitter.value(code)
        register = _based(self.k, self.base, value)
        self._made.append((table, value, register))
        return Address(register)

    def _flipped(self, table: Table) -> Register | None:
        for known, offset, _ in self._made:
            flipped = table ^ known
            if (flipped == flipped[0]).all():
                return self.k.new("xor.b32", "b32", offset, int(flipped[0]))
        return None

    def _before_swizzle(self, table: Table, limit: int) -> Register | None:
        """The offset by way of the linear one, if that takes less than ``limit`` instructions."""
        if self.swizzle is None:
            return None
        linear = self.swizzle.apply_array(table)
        for known, register in self._linear:
            step = linear - known
            if (step == step[0]).all() and limit > 4:
                moved = self.k.new("add.u32", "b32", register, int(step[0]))
                return swizzled(self.k, moved, self.swizzle)
        code = synthesize(linear)
        if code.cost + 3 >= limit:
            return None
        value = self.emitter.value(code)
        self._linear.append((linear, value))
        return swizzled(self.k, value, self.swizzle)


class _Pieces:
    """Registers for whole words, and for halves and bytes that are joined to or cut from words.

    A piece travels in the low bits of a ``.b32`` register of its own.
    """

    def __init__(self, k: Kernel, words: Sequence[Register], guard: Register | None) -> None:
        self.k, self.words, self.guard = k, words, guard
        self._written: set[int] = set()
        self._pieces: dict[Part, Register] = {}

    def _group(self, registers: list[Register]) -> Register | tuple[Register, ...]:
        return registers[0] if len(registers) == 1 else tuple(registers)

    def targets(self, move: Move) -> Register | tuple[Register, ...]:
        """The destination of a load."""
        out = []
        for part in move.parts:
            if part.bits == 32:
                out.append(self.words[part.word])
            else:
                self._pieces[part] = self.k.register("b32")
                out.append(self._pieces[part])
        return tuple(out) if ".m" in move.opcode else self._group(out)

    def join(self, move: Move) -> None:
        """Put loaded pieces into their words."""
        for part in move.parts:
            if part.bits == 32:
                continue
            word, piece = self.words[part.word], self._pieces[part]
            if part.word in self._written:
                self.k.emit("bfi.b32", word, piece, word, part.low, part.bits, guard=self.guard)
            elif part.low:
                self.k.emit("shl.b32", word, piece, part.low, guard=self.guard)
            else:
                self.k.emit("mov.b32", word, piece, guard=self.guard)
            self._written.add(part.word)

    def values(self, move: Move) -> Register | tuple[Register, ...]:
        """The source of a store."""
        out = []
        for part in move.parts:
            word = self.words[part.word]
            out.append(self.k.new("shr.u32", "b32", word, part.low) if part.low else word)
        return tuple(out) if ".m" in move.opcode else self._group(out)

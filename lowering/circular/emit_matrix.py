"""Matrices that a warp holds: ldmatrix, mma.sync, and stores of accumulators.

Lane ``4 * g + t`` holds of A and B, for each register, the elements from ``per * t`` on along k in
row (of A) or column (of B) ``g`` of a block of 8 by ``4 * per`` (PTX ISA 9.1, Matrix Fragments for
mma); ``per`` elements are a register.  Such a block is one matrix of ldmatrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ptxsim.build import Address, Kernel, Register
from ptxsim.errors import UsageError
from ptxsim.targets import parse_target

from ..address import Table
from .emit_address import SIZES, Addresses, element_size
from .emit_data import Data, converted, number_bits
from .emit_values import Values
from .integers import Expr, Int, Op, Symbol
from .linear import Linear
from .loops import Access, Buffer, Fill, Fragment, LoadMatrix, Memory, Mma, StoreMatrix, Why

__all__ = ["Matrices"]

_LANE = np.arange(32)
#: The lane's g and t.
_G, _T = Symbol("tid.x") // 4, Symbol("tid.x") % 4


@dataclass(frozen=True)
class _Piece:
    """A register of A or B: its first row (A) or column (B), and its first k."""

    register: Register
    across: int
    along: int


@dataclass(frozen=True)
class _Stored:
    """A matrix in shared memory: bytes from one row or column to the next, and along k."""

    buffer: Buffer
    base: Linear
    across: int
    along: int
    size: int

    @property
    def per(self) -> int:
        """Elements of a register."""
        return 4 // self.size


class Matrices:
    """The matrix statements of one kernel."""

    def __init__(self, k: Kernel, values: Values, addresses: Addresses, data: Data) -> None:
        target = parse_target(k.target)
        assert target is not None
        self._k, self._values, self._addresses, self._data = k, values, addresses, data
        self._packs = target.number >= 80
        self._held: dict[tuple[str, tuple[int, ...], int, int], tuple[Register, ...]] = {}

    # --- registers ------------------------------------------------------------------------------

    def _tiles(self, access: Access) -> tuple[int, int]:
        """How many instruction tiles a matrix has down and across."""
        buffer = access.buffer
        extents = buffer.extents[-2:]
        tile = _tile(_fragment(buffer))
        counts = []
        for extent, size in zip(extents, tile, strict=True):
            if not isinstance(extent, Int) or extent.value % size:
                raise UsageError(f"{buffer}: {extent} is no multiple of {size}, the tile of mma")
            counts.append(extent.value // size)
        return counts[0], counts[1]

    def _registers(self, access: Access, down: int, beside: int) -> tuple[Register, ...]:
        """The registers of one tile of a matrix."""
        buffer = access.buffer
        fragment = _fragment(buffer)
        others = []
        for index in access.index[:-2]:
            if not isinstance(index, Int):
                raise UsageError(f"{access}: registers have no addresses; {index} is no constant")
            others.append(index.value)
        key = (buffer.name, tuple(others), down, beside)
        if key not in self._held:
            rows, columns = _tile(fragment)
            if fragment.role == "C":
                type_ = "f32" if buffer.dtype == "f32" else "b32"
                self._held[key] = self._k.registers(type_, rows * columns // 32)
            else:
                count = rows * columns * SIZES[buffer.dtype] // 128
                self._held[key] = self._k.registers("b32", count)
        return self._held[key]

    def fill(self, node: Fill) -> None:
        """Write a fill of the whole matrix."""
        guard = self._data.guard(node.guard)
        if guard is False:
            return
        assert not isinstance(guard, bool)
        dtype = node.out.buffer.dtype
        bits = number_bits(node.value, dtype)
        for shift in range(8 * SIZES[dtype], 32, 8 * SIZES[dtype]):
            bits |= number_bits(node.value, dtype) << shift
        down, beside = self._tiles(node.out)
        for n in range(down * beside):
            for register in self._registers(node.out, *divmod(n, beside)):
                value = float(node.value) if register.type == "f32" else bits
                self._k.emit(f"mov.{register.type}", register, value, guard=guard)

    # --- loads ----------------------------------------------------------------------------------

    def load(self, node: LoadMatrix) -> None:
        """Write the load of a matrix from shared memory."""
        self._check_lanes()
        stored = self._stored(node)
        pieces = self._pieces(node.out)
        kind = self._matrix_kind(stored)
        if kind is None:
            for piece in pieces:
                self._load_elements(stored, piece)
        else:
            first = 0
            while first < len(pieces):
                count = next(n for n in (4, 2, 1) if first + n <= len(pieces))
                self._load_matrices(stored, kind, pieces[first : first + count])
                first += count
        if node.out.buffer.dtype in ("tf32", "f32") and node.source.buffer.dtype == "f32":
            for piece in pieces:
                self._k.emit("cvt.rna.tf32.f32", piece.register, piece.register)

    def _check_lanes(self) -> None:
        if self._k.reqntid is None or self._k.reqntid[0] != 32:
            raise UsageError("matrices need warps whose lanes are tid.x: 32 threads in x")

    def _stored(self, node: LoadMatrix) -> _Stored:
        source, out = node.source.buffer, node.out.buffer
        if source.memory is not Memory.SHARED:
            raise UsageError(f"{node.source}: matrices are loaded from shared memory")
        if source.dtype != out.dtype and {source.dtype, out.dtype} != {"f32", "tf32"}:
            raise UsageError(
                f"a matrix of {out.dtype} is loaded from {source.dtype}: {node.source}"
            )
        size = element_size(source)
        strides = [source.strides[a] for a in node.axes]
        across, along = strides if _fragment(out).role == "A" else strides[::-1]
        assert isinstance(across, Int) and isinstance(along, Int), "strides in shared memory"
        base = self._addresses.shared_offset(node.source)
        return _Stored(source, base, across.value * size, along.value * size, size)

    def _pieces(self, out: Access) -> list[_Piece]:
        """The registers of A or B, those of tiles with the same k together."""
        fragment = _fragment(out.buffer)
        if fragment.role not in ("A", "B"):
            raise UsageError(f"{out}: a matrix {fragment.role} is not loaded")
        rows, columns = _tile(fragment)
        high, deep = (rows, columns) if fragment.role == "A" else (columns, rows)
        block = 16 // SIZES[out.buffer.dtype]
        down, beside = self._tiles(out)
        places = [(d, b) for d in range(down) for b in range(beside)]
        pieces = []
        for d, b in places:
            registers = iter(self._registers(out, d, b))
            across, along = (d, b) if fragment.role == "A" else (b, d)
            pieces += [
                _Piece(next(registers), across * high + 8 * y, along * deep + block * x)
                for x in range(deep // block)
                for y in range(high // 8)
            ]
        return pieces

    def _matrix_kind(self, stored: _Stored) -> str | None:
        """How ldmatrix loads it: as it is, transposed (``.trans``), or not at all."""
        if stored.along == stored.size:
            row, kind = stored.across, ""
        elif stored.across == stored.size == 2:
            row, kind = stored.along, ".trans"
        else:
            return None
        return kind if row % 16 == 0 and self._aligned(stored, 16) else None

    def _aligned(self, stored: _Stored, bytes_: int) -> bool:
        """Whether the first element and the pieces of a swizzle are multiples of some bytes."""
        swizzle = stored.buffer.swizzle
        if swizzle is not None and swizzle.chunk * stored.size % bytes_:
            return False
        factors = [f * self._values.multiple(a) for a, f in stored.base.terms]
        return all(f % bytes_ == 0 for f in (stored.base.const, *factors))

    def _load_matrices(self, stored: _Stored, kind: str, pieces: list[_Piece]) -> None:
        line = _LANE & 7
        table: Table = np.zeros(32, np.int64)
        for lane in range(32):
            piece = pieces[lane >> 3 & len(pieces) - 1]
            across, along = piece.across, piece.along
            if kind:
                along += int(line[lane])
            else:
                across += int(line[lane])
            table[lane] = across * stored.across + along * stored.along
        address = self._addresses.matrix_rows(stored.buffer, stored.base, table)
        self._k.emit(
            f"ldmatrix.sync.aligned.m8n8.x{len(pieces)}{kind}.shared.b16",
            tuple(p.register for p in pieces), address,
        )  # fmt: skip

    def _load_elements(self, stored: _Stored, piece: _Piece) -> None:
        """A register whose elements do not lie as a matrix of ldmatrix."""
        k = self._k
        if stored.per == 1 or (
            stored.along == stored.size and stored.across % 4 == 0 and self._aligned(stored, 4)
        ):
            k.emit("ld.shared.b32", piece.register, self._element(stored, piece, 0))
            return
        opcode, type_ = ("ld.shared.b16", "b16") if stored.per == 2 else ("ld.shared.u8", "b32")
        parts = [
            k.new(opcode, type_, self._element(stored, piece, e)) for e in range(stored.per)
        ]  # fmt: skip
        if stored.per == 2:
            k.emit("mov.b32", piece.register, tuple(parts))
            return
        low, high = (k.new("prmt.b32", "b32", *parts[i : i + 2], 0x0040) for i in (0, 2))
        k.emit("prmt.b32", piece.register, low, high, 0x5410)

    def _element(self, stored: _Stored, piece: _Piece, e: int) -> Address:
        across = piece.across + (_LANE >> 2)
        along = piece.along + stored.per * (_LANE & 3) + e
        table = across * stored.across + along * stored.along
        return self._addresses.matrix_rows(stored.buffer, stored.base, table)

    # --- products -------------------------------------------------------------------------------

    def multiply(self, node: Mma) -> None:
        """Write the products of all tiles, those of one k together."""
        opcode = _opcode(node)
        (m, k), (_, n) = self._tiles(node.a), self._tiles(node.b)
        if self._tiles(node.b)[0] != k or self._tiles(node.acc) != (m, n):
            raise UsageError(f"the matrices of {node.acc} += {node.a} * {node.b} do not fit")
        for z in range(k):
            for x in range(m):
                for y in range(n):
                    sum_ = self._registers(node.acc, x, y)
                    a, b = self._registers(node.a, x, z), self._registers(node.b, z, y)
                    self._k.emit(opcode, sum_, a, b, sum_)

    # --- stores ---------------------------------------------------------------------------------

    def store(self, node: StoreMatrix) -> None:
        """Write the stores of an accumulator, for the rows and columns that exist."""
        self._check_lanes()
        if _fragment(node.source.buffer).role != "C" or node.out.buffer.memory is Memory.LOCAL:
            raise UsageError(f"an accumulator is stored to memory, not {node.source} to {node.out}")
        down, beside = self._tiles(node.source)
        paired = self._paired(node)
        m = _tile(_fragment(node.source.buffer))[0]
        rows = [row for d in range(down) for row in range(m * d, m * d + m, 8)]
        columns = [
            8 * b + e for b in range(beside) for e in ((0,) if paired else (0, 1))
        ]  # fmt: skip
        first, second = node.left
        in_rows = self._existing(rows, None if first is None else first - _G)
        in_columns = self._existing(columns, None if second is None else second - 2 * _T)
        for row, exists in in_rows.items():
            if exists is not None and any(in_columns.values()):
                with self._values.where(exists):
                    self._store_row(node, row, in_columns, paired)
            else:
                both = {c: exists if p is None else p for c, p in in_columns.items()}
                self._store_row(node, row, both, paired)

    def _existing(self, places: list[int], left: Expr | None) -> dict[int, Register | None]:
        """By row or column of lane 0, whether that of the lane exists; None if it always does.

        Those that never exist are left out.
        """
        found: dict[int, Register | None] = {}
        for place in places:
            low, high = (None, None) if left is None else self._values.bounds(left)
            if left is None or (low is not None and low > place):
                found[place] = None
            elif high is None or high > place:
                test = Op("<", Int(place), left)
                found[place] = self._values.predicate(test, Why.BOUND.value)
        return found

    def _paired(self, node: StoreMatrix) -> bool:
        """Whether two neighbours can be stored at once."""
        out = node.out.buffer
        if out.strides[node.axes[1]] != Int(1):
            return False
        left = node.left[1]
        if left is not None and self._values.multiple(left) % 2:
            return False
        alignment = self._addresses.alignment(_moved(node, _G, 2 * _T))
        return alignment % (2 * element_size(out)) == 0

    def _store_row(
        self,
        node: StoreMatrix,
        row: int,
        guards: dict[int, Register | None],
        paired: bool,
    ) -> None:
        m = _tile(_fragment(node.source.buffer))[0]
        for column, guard in guards.items():
            registers = self._registers(node.source, row // m, column // 8)
            first = 2 * (row % m // 8) + column % 2
            address = self._addresses.address(_moved(node, _G + row, 2 * _T + column))
            held = registers[first : first + 1 + paired]
            self._store(node, held, address, guard)

    def _store(
        self,
        node: StoreMatrix,
        held: tuple[Register, ...],
        address: Address,
        guard: Register | None,
    ) -> None:
        k, of, to = self._k, node.source.buffer.dtype, node.out.buffer.dtype
        space = node.out.buffer.memory.value
        if len(held) == 2 and of == "f32" and to in ("f16", "bf16") and self._packs:
            pair = k.new(f"cvt.rn.{to}x2.f32", "b32", held[1], held[0])
            k.emit(f"st.{space}.b32", address, pair, guard=guard)
            return
        value = tuple(converted(k, r, of, to) for r in held)
        type_ = to if to in ("f32", "s8", "u8") else f"b{8 * SIZES[to]}"
        vector = ".v2" if len(value) == 2 else ""
        k.emit(
            f"st.{space}{vector}.{type_}", address, *((value,) if vector else value), guard=guard
        )


# --- shapes ---------------------------------------------------------------------------------------


def _fragment(buffer: Buffer) -> Fragment:
    if buffer.fragment is None:
        raise UsageError(f"{buffer} is no matrix of a warp")
    return buffer.fragment


def _tile(fragment: Fragment) -> tuple[int, int]:
    """Rows and columns of one instruction's operand."""
    m, n, k = fragment.shape
    tiles = {"A": (m, k), "B": (k, n), "C": (m, n)}
    if fragment.role not in tiles:
        raise UsageError(f"an operand of mma is A, B or C, not {fragment.role}")
    return tiles[fragment.role]


def _opcode(node: Mma) -> str:
    fragments = {_fragment(x.buffer).shape for x in (node.acc, node.a, node.b)}
    m, n, k = _fragment(node.acc.buffer).shape
    if len(fragments) != 1 or node.instruction != f"m{m}n{n}k{k}":
        raise UsageError(
            f"{node.instruction} is not the shape of {node.acc}, {node.a} and {node.b}"
        )
    a, b = ("tf32" if x.buffer.dtype == "f32" else x.buffer.dtype for x in (node.a, node.b))
    c = node.acc.buffer.dtype
    integers = a in ("s8", "u8")
    if c != ("s32" if integers else "f32"):
        raise UsageError(f"products of {a} are not summed in {c} here: {node.acc}")
    return f"mma.sync.aligned.{node.instruction}.row.col.{c}.{a}.{b}.{c}"


def _moved(node: StoreMatrix, rows: Expr, columns: Expr) -> Access:
    """The element so many rows and columns from the first one of the target."""
    index = list(node.out.index)
    for axis, by in zip(node.axes, (rows, columns), strict=True):
        index[axis] = index[axis] + by
    return replace(node.out, index=tuple(index))

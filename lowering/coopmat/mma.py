"""Cooperative matrices by ldmatrix and mma.sync (PTX ISA 9.1, Warp Level Matrix Instructions: mma).

The configs are those of wmma from sm_80 on.  Each wmma product is one or two ``mma.sync`` there, so
a fragment keeps wmma's distribution; m8n32k16 is computed as the transposed product, with the
transpose of B in the place of A.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ptxsim.build import Address, Kernel, Register, Special
from ptxsim.errors import UsageError

from .forms import Floor
from .mma_tiles import ACCUMULATORS, FACTORS, Spread, register_type, spread
from .via import Tile
from .vocabulary import COMPONENTS, Config, Fragment

__all__ = ["Mma"]

#: The first target number and version with the shapes used here (measured with ptxas).
_TARGET, _VERSION, _AND_VERSION = 80, (7, 0), (7, 1)
_MAX_STRIDE = (1 << 31) - 1
_ROUNDINGS = ("", "rn", "rz", "rm", "rp")


class Mma:
    """Loads, stores and products of cooperative matrices by mma.sync, in one kernel."""

    name: ClassVar[str] = "mma"
    packs: ClassVar[bool] = False
    mixes: ClassVar[bool] = True

    def __init__(self, k: Kernel, target: int) -> None:
        """Write the lane number, so this must come before any branch of the kernel."""
        if target < _TARGET:
            raise UsageError(_too_old(target))
        self._k, self._target = k, target
        self._lane = k.new("mov.u32", "b32", Special("%laneid"))
        self._g = k.new("shr.u32", "b32", self._lane, 2)
        self._t = k.new("and.b32", "b32", self._lane, 3)

    # --- what there is ----------------------------------------------------------------------------

    @classmethod
    def floor(cls, fragment: Fragment) -> Floor:
        """From where on there is a fragment."""
        return Floor(_TARGET, _VERSION)

    @classmethod
    def decline(
        cls, config: Config, target: int, version: tuple[int, int]
    ) -> tuple[str, str] | None:
        """Code and reason why a config cannot be computed on a target number."""
        if config.scope != "subgroup":
            return "R32", f"mma.sync multiplies in a subgroup, not in the scope {config.scope}"
        if target < _TARGET:
            return "R31", _too_old(target)
        need = _AND_VERSION if config.modifier == "and" else _VERSION
        if version < need:
            what = "with the modifier and" if config.modifier == "and" else f"of {config.shape}"
            floor, have = (f"{major}.{minor}" for major, minor in (need, version))
            return "R31", f"mma.sync {what} needs PTX ISA {floor}, not {have}"
        reason = _types_decline(config) or _modifier_decline(config)
        return ("R32", reason) if reason else None

    @classmethod
    def registers(cls, fragment: Fragment) -> tuple[str, int]:
        """Type and number of the registers that hold a fragment in each lane, each element once."""
        layout = "col" if fragment.use == "b" else "row"
        return register_type(fragment.component), len(spread(fragment, layout).places)

    @classmethod
    def alignment(cls, fragment: Fragment, layout: str, space: str, store: bool) -> int:
        """Bytes of which address and stride must be multiples: 16 for ldmatrix, or an access."""
        where = spread(fragment, layout)
        return 16 if where.matrix and space == "shared" and not store else where.access

    # --- memory -----------------------------------------------------------------------------------

    def load(self, tile: Tile, registers: Sequence[Register]) -> None:
        """Write the load of a fragment."""
        where = spread(tile.fragment, tile.layout)
        if where.matrix and tile.space == "shared":
            self._load_matrices(tile, where, registers)
        elif where.along or where.per == 1:
            self._move_registers("ld", tile, where, registers)
        else:
            self._load_elements(tile, where, registers)

    def store(self, tile: Tile, registers: Sequence[Register]) -> None:
        """Write the store of an accumulator."""
        if tile.fragment.use != "accumulator":
            raise UsageError(f"an accumulator is stored, not {tile.fragment}")
        where = spread(tile.fragment, tile.layout)
        if where.along or where.per == 1:
            self._move_registers("st", tile, where, registers)
        else:
            self._store_halves(tile, where, registers)

    def _load_matrices(self, tile: Tile, where: Spread, registers: Sequence[Register]) -> None:
        """By ldmatrix, up to four matrices at a time.

        In the order of positions, then lines, all instructions of a load address the same lines.
        """
        order = sorted(range(len(registers)), key=lambda r: where.places[r][::-1])
        size = min(len(order), 4)
        high = len({where.places[r][0] for r in order[:size]})
        wide = size // high
        address = self._row_address(_Lines(self._k, tile, where.bits), high, wide)
        per = 128 // where.bits
        for first in range(0, len(order), size):
            group = order[first : first + size]
            position = where.places[group[0]][1]
            assert [where.places[r] for r in group] == [
                (8 * y, position + per * x) for x in range(wide) for y in range(high)
            ], "matrices stand in a grid"
            self._k.emit(
                f"ldmatrix.sync.aligned.m8n8.x{size}{'' if where.along else '.trans'}.shared.b16",
                tuple(registers[r] for r in group),
                Address(address, position * where.bits // 8),
            )

    def _row_address(self, lines: _Lines, high: int, wide: int) -> Register:
        """The matrix row whose address the lane gives, in a grid that is counted down first.

        Lanes whose address does not count repeat those of the low ones.
        """
        k, lane = self._k, self._lane
        line = lane if high == 4 else k.new("and.b32", "b32", lane, 8 * high - 1)
        address = lines.address(line)
        if wide == 1:
            return address
        beside = k.new("shr.u32", "b32", lane, (8 * high).bit_length() - 1)
        if high * wide < 4:
            beside = k.new("and.b32", "b32", beside, wide - 1)
        return k.new("mad.wide.s32", "b64", beside, 16, address)

    def _lanes(self, tile: Tile, where: Spread) -> _Lines:
        """The lines of a tile, seen from the first element of each lane."""
        lines = _Lines(self._k, tile, where.bits)
        if where.along:
            lines.enter(self._g, 1, self._t, where.step * where.bits // 8)
        else:
            lines.enter(self._t, where.step, self._g, where.bits // 8)
        return lines

    def _move_registers(
        self, op: str, tile: Tile, where: Spread, registers: Sequence[Register]
    ) -> None:
        """Whole registers, two at a time where they follow one another."""
        lines = self._lanes(tile, where)
        count = 2 if where.paired else 1
        for first in range(0, len(registers), count):
            group = tuple(registers[first : first + count])
            at = lines.at(*where.place(first, 0))
            value = group if count > 1 else group[0]
            opcode = f"{op}.{tile.space}{'.v2' * (count > 1)}.{group[0].type}"
            self._k.emit(opcode, *((value, at) if op == "ld" else (at, value)))

    def _load_elements(self, tile: Tile, where: Spread, registers: Sequence[Register]) -> None:
        """Elements of 16 or 8 bits that lie on different lines."""
        k, lines = self._k, self._lanes(tile, where)
        kind, type_ = ("b16", "b16") if where.per == 2 else ("u8", "b32")
        opcode = f"ld.{tile.space}.{kind}"
        loaded = [
            [k.new(opcode, type_, lines.at(*where.place(r, e))) for e in range(where.per)]
            for r in range(len(registers))
        ]
        for register, parts in zip(registers, loaded, strict=True):
            if where.per == 2:
                k.emit("mov.b32", register, tuple(parts))
                continue
            low, high = (k.new("prmt.b32", "b32", *parts[i : i + 2], 0x0040) for i in (0, 2))
            k.emit("prmt.b32", register, low, high, 0x5410)

    def _store_halves(self, tile: Tile, where: Spread, registers: Sequence[Register]) -> None:
        """Elements of 16 bits that lie on different lines."""
        k, lines = self._k, self._lanes(tile, where)
        for r, register in enumerate(registers):
            parts = k.registers("b16", 2)
            k.emit("mov.b32", parts, register)
            for e, part in enumerate(parts):
                k.emit(f"st.{tile.space}.b16", lines.at(*where.place(r, e)), part)

    # --- products ---------------------------------------------------------------------------------

    def muladd(
        self,
        config: Config,
        layouts: tuple[str, str],
        d: Sequence[Register],
        a: Sequence[Register],
        b: Sequence[Register],
        c: Sequence[Register],
    ) -> None:
        """Write ``d = a * b + c``; fragments of both layouts are alike, so these do not matter."""
        m, n = config.shape.m, config.shape.n
        if m < n:  # the transposed product
            a, b = b, a
        opcode = _opcode(config)
        if m == n == 8:
            self._k.emit(opcode, tuple(d), tuple(a), tuple(b), tuple(c))
            return
        if config.a == "tf32" and self._target >= 90:
            self._by_fours(opcode, d, a, b, c)
            return
        # B has two halves where the result is square; else the operand of 32 rows has
        for half in (0, 1):
            factors = (tuple(a), _half(b, half)) if m == n else (_half(a, half), tuple(b))
            self._k.emit(opcode, _half(d, half), *factors, _half(c, half))

    def _by_fours(
        self,
        opcode: str,
        d: Sequence[Register],
        a: Sequence[Register],
        b: Sequence[Register],
        c: Sequence[Register],
    ) -> None:
        """A product of k = 8 as two of k = 4, the number of products that wmma adds at once.

        From sm_90 on one mma of k = 8 adds all eight at once, which rounds differently.
        """
        opcode = opcode.replace("m16n8k8", "m16n8k4")
        for half in (0, 1):
            total = _half(c, half)
            for step in (0, 1):
                factors = _half(a, step), (_half(b, half)[step],)
                self._k.emit(opcode, _half(d, half), *factors, total)
                total = _half(d, half)


def _half(registers: Sequence[Register], half: int) -> tuple[Register, ...]:
    middle = len(registers) // 2
    return tuple(registers[middle:] if half else registers[:middle])


def _opcode(config: Config) -> str:
    """The instruction for one part of a config."""
    shape = config.shape
    a, b = (config.b, config.a) if shape.m < shape.n else (config.a, config.b)
    m = min(max(shape.m, shape.n), 16)
    c, d = ("s32" if COMPONENTS[t][1] else t for t in (config.c, config.result))
    words = ["mma.sync.aligned", f"m{m}n8k{shape.k}", "row.col"]
    if config.saturating:
        words.append("satfinite")
    if config.modifier and a == "f64":
        words.append(config.modifier)
    words += [d, a, b, c]
    if a == "b1":
        words += [config.modifier, "popc"]
    return ".".join(words)


# --- addresses ------------------------------------------------------------------------------------


class _Lines:
    """The lines of a tile in memory, a constant or a register apart."""

    def __init__(self, k: Kernel, tile: Tile, bits: int) -> None:
        self._k = k
        self._bits = bits
        #: addresses by the line that they are on
        self._known = {0: tile.address}
        #: line n starts n * scale * pitch bytes on
        self._pitch, self._scale = _pitch(k, tile.stride, bits)

    def address(self, line: Register, times: int = 1) -> Register:
        """The address of a line whose number, over ``times``, depends on the lane."""
        k, pitch = self._k, self._pitch
        if isinstance(pitch, int):
            return k.new("mad.wide.s32", "b64", line, pitch * times, self._known[0])
        times *= self._scale
        if times > 1:
            line = k.new("shl.b32", "b32", line, times.bit_length() - 1)
        return k.new("mad.wide.s32", "b64", line, pitch, self._known[0])

    def enter(self, line: Register, times: int, beside: Register, bytes_: int) -> None:
        """Count from such a line, and from a number of steps of some bytes in it."""
        start = self.address(line, times)
        self._known = {0: self._k.new("mad.wide.s32", "b64", beside, bytes_, start)}

    def at(self, line: int, position: int) -> Address:
        """An element, so many lines and positions on."""
        offset = position * self._bits // 8
        if isinstance(self._pitch, int):
            return Address(self._known[0], line * self._pitch + offset)
        if line not in self._known:
            self._known[line] = self._k.new(
                "mad.wide.s32", "b64", self._pitch, line * self._scale, self._known[0]
            )
        return Address(self._known[line], offset)


def _pitch(k: Kernel, stride: Register | int, bits: int) -> tuple[Register | int, int]:
    """A factor that is a constant or a register, and a constant one: their product is the stride
    in bytes.  The constant alone is multiplied by line numbers, so 32 bits do not overflow.
    """
    if isinstance(stride, int):
        if stride * bits % 8:
            raise UsageError(f"a stride of {stride} elements of {bits} bits is no whole bytes")
        if abs(stride) > _MAX_STRIDE:
            raise UsageError(f"a stride of {stride} elements does not fit in 32 bits")
        bytes_ = stride * bits // 8
        if 64 * abs(bytes_) <= _MAX_STRIDE:  # any place of a tile is an offset of 32 bits
            return bytes_, 1
        stride = k.new("mov.b32", "b32", stride)
    if bits < 8:
        return k.new("shr.s32", "b32", stride, 4 - bits.bit_length()), 1
    return stride, bits // 8


# --- reasons --------------------------------------------------------------------------------------


def _too_old(target: int) -> str:
    return f"mma.sync of these shapes needs sm_{_TARGET}, the target is sm_{target}"


def _types_decline(config: Config) -> str:
    shape = (config.shape.m, config.shape.n, config.shape.k)
    if shape not in FACTORS:
        return f"no product by mma.sync has the shape {config.shape}"
    group = next((g for g in FACTORS[shape] if config.a in g and config.b in g), None)
    if group is None:
        return f"mma.sync does not multiply {config.a} by {config.b} in the shape {config.shape}"
    for type_ in (config.c, config.result):
        if type_ not in ACCUMULATORS[group[0]]:
            return f"mma.sync does not accumulate {config.a} * {config.b} in {type_}"
    if not COMPONENTS[config.c][1] and config.c != config.result:
        return (
            "mma.sync takes c and gives the result in one type, "
            f"not c in {config.c} and the result in {config.result}"
        )
    return ""


def _modifier_decline(config: Config) -> str:
    legal = {"b1": ("xor", "and"), "f64": _ROUNDINGS}.get(config.a, ("",))
    if config.modifier not in legal:
        if not config.modifier:
            return "a product of b1 needs the modifier xor or and"
        return f"a product of {config.a} has no modifier {config.modifier}"
    if not config.saturating:
        return ""
    if not COMPONENTS[config.result][1] or config.a == "b1":
        return f"a product of {config.a} has no .satfinite; only integers of 8 and 4 bits have it"
    if "u32" in (config.c, config.result):
        return "a saturating sum is s32; .satfinite does not clamp to u32"
    return ""

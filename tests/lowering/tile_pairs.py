"""Pairs of tiles for the tests of copies, and a model of the instructions apart from the product.

A pair is a list of digits, each with what it adds to the thread, to the register slot and to the
shared offset.  ``Pair`` evaluates itself with loops; nothing here uses ``lowering.layout`` but to
print text that it reads.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowering import Lowered, lower_copy
from lowering.copy import Plan

__all__ = [
    "WIDTH", "ByteMap", "Digit", "Pair", "correct", "digits", "fits", "lowered", "matrix_bytes",
    "moved", "roundtrip", "swizzled",
]  # fmt: skip

#: bytes of an element
WIDTH = {"u8": 1, "e4m3": 1, "f16": 2, "bf16": 2, "f32": 4, "f64": 8}

#: (thread, byte of its registers) -> shared byte
ByteMap = dict[tuple[int, int], int]


@dataclass(frozen=True)
class Digit:
    """``extent`` values; each step adds ``register`` on ``axis`` and ``shared`` elements."""

    extent: int
    register: int
    axis: str
    shared: int


@dataclass(frozen=True)
class Pair:
    """A register tile and a shared tile over the same digits, slowest first."""

    digits: tuple[Digit, ...]
    dtype: str = "f16"
    scope: str = "warp"
    threads: int = 32
    register_offset: int = 0
    shared_offset: int = 0
    #: (p, b, a, inner) or None
    swizzle: tuple[int, int, int, bool] | None = None
    target: str = "sm_90"
    direction: str = "ld"
    align: int = 1024

    def register_text(self) -> str:
        """The register tile as layout text."""
        extents = ",".join(str(d.extent) for d in self.digits)
        places = ",".join(
            str(d.register) if d.axis == "m" else f"{d.register}@{d.axis}" for d in self.digits
        )
        tail = f" + {self.register_offset}" if self.register_offset else ""
        return f"S[({extents}):({places})]{tail}"

    def shared_text(self) -> str:
        """The shared tile as layout text."""
        extents = ",".join(str(d.extent) for d in self.digits)
        places = ",".join(str(d.shared) for d in self.digits)
        tail = f" + {self.shared_offset}" if self.shared_offset else ""
        head = ""
        if self.swizzle is not None:
            p, b, a, inner = self.swizzle
            head = f"swizzle({p},{b},{a}{'' if inner else ',outer'}) o "
        return f"{head}S[({extents}):({places})]{tail}"

    def elements(self) -> Iterator[tuple[int, int, int]]:
        """Thread, register slot and shared offset (in elements) of each element, in order."""
        weight = {"laneid": 1, "tid_in_wg": 1, "tx": 1, "wid_in_wg": 32, "warpid": 32, "m": 0}
        for digits in itertools.product(*(range(d.extent) for d in self.digits)):
            thread, slot, offset = 0, self.register_offset, self.shared_offset
            for value, digit in zip(digits, self.digits, strict=True):
                thread += value * digit.register * weight[digit.axis]
                slot += value * digit.register * (digit.axis == "m")
                offset += value * digit.shared
            yield thread, slot, swizzled(offset, self.swizzle)

    def bytes(self) -> Iterator[tuple[tuple[int, int], int]]:
        """(thread, byte of its registers) and shared byte, for each byte of the tile."""
        width = WIDTH[self.dtype]
        for thread, slot, offset in self.elements():
            for b in range(width):
                yield (thread, slot * width + b), offset * width + b

    def arguments(self) -> dict[str, object]:
        """What ``lower_copy`` takes by keyword."""
        more: dict[str, object] = {"align": self.align}
        if self.scope == "cta":
            more["threads"] = self.threads
        return {
            "dtype": self.dtype, "scope": self.scope, "direction": self.direction,
            "target": self.target, **more,
        }  # fmt: skip


def swizzled(offset: int, swizzle: tuple[int, int, int, bool] | None) -> int:
    """The offset after the exclusive or of a swizzle."""
    if swizzle is None:
        return offset
    p, b, a, inner = swizzle
    mask = (1 << b) - 1
    x, low = offset >> p, offset & ((1 << p) - 1)
    x ^= (x >> a) & mask if inner else (x & mask) << a
    return (x << p) | low


# --- the instructions -----------------------------------------------------------------------------

_MATRIX = re.compile(r"(ld|st)matrix\.sync\.aligned\.(m8n8|m16n16|m16n8)\.x([124])\.(trans\.)?"
                     r"shared\.b(16|8)")  # fmt: skip
_VECTOR = re.compile(r"(ld|st)\.(?:shared|global)(\.v[24])?\.[bu](8|16|32)")


def matrix_bytes(
    shape: str, trans: bool, count: int, rows: list[int]
) -> Iterator[tuple[int, int, int, int]]:
    """Lane, register, byte of it, and shared byte, for the row addresses of the 32 lanes.

    ``rows[8 * j + i]`` is row ``i`` of matrix ``j`` (``16 * j + i`` for m16n16); origin: PTX ISA
    9.1, Warp-level matrix load/store instruction; the maps of the byte shapes are CUTLASS's.
    """
    for j, lane in itertools.product(range(count), range(32)):
        g, t = lane // 4, lane % 4
        if shape == "m8n8" and not trans:
            for byte in range(4):
                yield lane, j, byte, rows[8 * j + g] + 4 * t + byte
        elif shape == "m8n8":
            for half, byte in itertools.product(range(2), range(2)):
                yield lane, j, 2 * half + byte, rows[8 * j + 2 * t + half] + 2 * g + byte
        elif shape == "m16n16":
            for upper, byte in itertools.product(range(2), range(4)):
                yield lane, 2 * j + upper, byte, rows[16 * j + 4 * t + byte] + g + 8 * upper
        else:
            for upper, column in itertools.product(range(2), range(2)):
                yield lane, j, 2 * upper + column, rows[8 * j + 2 * t + column] + g + 8 * upper


def moved(plan: Plan) -> ByteMap:
    """Which register byte each instruction of a plan connects with which shared byte."""
    out: ByteMap = {}
    for move in plan.moves:
        table = [int(a) for a in move.address]
        for (thread, register, byte), address in _effects(move.opcode, table):
            part = move.parts[register]
            if 8 * byte >= part.bits:
                continue
            if plan.guard is not None and not plan.guard[thread]:
                continue
            place = (thread, 4 * part.word + part.low // 8 + byte)
            assert place not in out, f"{place} is moved twice"
            out[place] = address
    return out


def _effects(opcode: str, table: list[int]) -> Iterator[tuple[tuple[int, int, int], int]]:
    matrix = _MATRIX.fullmatch(opcode)
    if matrix is not None:
        shape, count, trans = matrix[2], int(matrix[3]), matrix[4] is not None
        for warp in range(len(table) // 32):
            rows = table[32 * warp : 32 * warp + 32]
            assert not any(r % 16 for r in rows), "a row is misaligned"
            for lane, register, byte, address in matrix_bytes(shape, trans, count, rows):
                yield (32 * warp + lane, register, byte), address
        return
    vector = _VECTOR.fullmatch(opcode)
    assert vector is not None, opcode
    count, size = int((vector[2] or ".v1")[2:]), int(vector[3]) // 8
    for thread, address in enumerate(table):
        assert address % (count * size) == 0, f"{opcode} of thread {thread} at {address}"
        for register, byte in itertools.product(range(count), range(size)):
            yield (thread, register, byte), address + register * size + byte


# --- the complete test ----------------------------------------------------------------------------


def fits(pair: Pair) -> bool:
    """Whether m8n8 moves can do the copy, found by trying: the rows follow from one byte each."""
    where = dict(pair.bytes())
    needed = {"ld": 75, "st": 90}[pair.direction]
    number = int(re.sub(r"\D", "", pair.target))
    held = {thread for thread, _ in where}
    if number < needed or pair.align % 16 or held != set(range(pair.threads)):
        return False
    words = {byte // 4 for _, byte in where}
    return all(
        any(_matrix_at(where, 32 * warp, word, trans) for trans in (False, True))
        for warp in range(pair.threads // 32)
        for word in words
    ) and all(_one_kind(where, pair.threads // 32, word) for word in words)


def _one_kind(where: ByteMap, warps: int, word: int) -> bool:
    """One instruction serves all warps: a word is transposed in all of them or in none."""
    return any(
        all(_matrix_at(where, 32 * warp, word, trans) for warp in range(warps))
        for trans in (False, True)
    )


def _matrix_at(where: ByteMap, first: int, word: int, trans: bool) -> bool:
    """Whether a word of a warp is what the instruction loads from rows taken from its corners."""
    corners = [(row // 2, 2 * (row % 2)) if trans else (4 * row, 0) for row in range(8)]
    rows = [where.get((first + lane, 4 * word + byte), -1) for lane, byte in corners]
    if any(row < 0 or row % 16 for row in rows):
        return False
    return all(
        where.get((first + lane, 4 * word + byte)) == address
        for lane, _, byte, address in matrix_bytes("m8n8", trans, 1, rows)
    )


# --- whole kernels --------------------------------------------------------------------------------


def lowered(pair: Pair, **more: object) -> Lowered:
    """The pair through the public entry."""
    options: dict[str, Any] = {**pair.arguments(), **more}
    return lower_copy(pair.register_text(), pair.shared_text(), **options)


def correct(pair: Pair, **more: object) -> Lowered:
    """Lowered and proved, checked by the model of the instructions, and run as a whole kernel."""
    done = lowered(pair, **more)
    assert done.proof is not None and done.proof.bytes > 0
    assert moved(done.plan) == dict(pair.bytes())
    roundtrip(done)
    return done


_ARRAY = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def roundtrip(lowered: Lowered) -> None:
    """Run the whole kernel in the simulator: ``dst`` equals ``src``, and nothing is reported."""
    copy = lowered.plan.copy
    count, kind = copy.register.size(), _ARRAY[copy.width]
    rng = np.random.default_rng(count)
    src = rng.integers(0, 2 ** (8 * copy.width), count, kind)
    dst = np.zeros(count, kind)
    size = lowered.plan.placement.shared_bytes
    tile = [] if copy.space == "shared" else [np.zeros(size, np.uint8)]
    module = lowered.kernel().assemble()
    report = module.kernel().launch(grid=1, block=copy.thread_count, args=[*tile, src, dst])
    assert report.clean, report.findings
    assert np.array_equal(src, dst)


def digits(*rows: tuple[int, int, str, int]) -> tuple[Digit, ...]:
    """Digits from (extent, register stride, axis, shared stride)."""
    return tuple(Digit(*row) for row in rows)

"""The front of the lowering: a matrix product and its schedule become a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from ptxsim.build import Kernel
from ptxsim.errors import UsageError
from ptxsim.targets import TARGETS

from ..dispatch import Declined
from .counts import NAMES, executions
from .emit import emit
from .integers import evaluate
from .loops import Buffer, Memory, Program
from .lower import Scheme, lower
from .matmul import DTYPES, Matmul, schedule, width
from .statements import size_of
from .timeline import timeline

__all__ = ["Lowered", "lower_matmul"]

#: The schemes that an explanation compares.
_SCHEMES = {
    "off": Scheme("off"), "on": Scheme("on"), "aligned": Scheme("aligned"),
}  # fmt: skip
#: Why copies may be narrow, and the fill and the peeling that make them wider.
_CAUSES: tuple[tuple[str, Literal["", "zfill"], Literal["", "aligned"]], ...] = (
    ("stores of zeros cannot complete a vector at the end", "zfill", ""),
    ("the tiles behind the residue begin at multiples of no more", "", "aligned"),
    ("neither stores of zeros nor the tiles behind the residue allow more", "zfill", "aligned"),
)
#: Iterations of a timeline that is printed.
_ROWS = 8


@dataclass(frozen=True)
class Lowered:
    """A matrix product as a loop nest and as a kernel."""

    spec: Matmul
    program: Program
    kernel: Kernel

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The sizes that the launch gives, by parameter."""
        return _given(self.spec, self.program)

    def text(self) -> str:
        """The whole module, with a header that ``ptxsim run`` reads."""
        return self.kernel.text()

    def explain(self) -> str:
        """The loop nest before and after, the timeline of the slots, and the cost."""
        before = replace(self.spec, stages=1, scheme=replace(self.spec.scheme, peel="off"))
        parts = [
            "the loop nest, one slot, nothing peeled:", str(_program(before)),
            f"the loop nest, {self.spec.stages} slots, peel {self.spec.scheme.peel}:",
            str(self.program), *self._timeline(), *_cost(self.spec),
        ]  # fmt: skip
        return "\n".join([*parts, *_notes(self.spec)]) + "\n"

    def _timeline(self) -> Iterator[str]:
        spec = self.spec
        tiles = -(-spec.sizes["K"] // spec.tile[2])
        if spec.stages == 1 or not spec.asynchronous:
            return
        peeled = spec.scheme.peel != "off"
        yield f"timeline of {tiles} tiles (L load, C commit, W wait, B barrier, M use):"
        lines = timeline(spec.stages, tiles, peeled=peeled, rows=max(_ROWS, 2 * spec.stages))
        yield from (f"  {line}" for line in (lines.prolog, *lines.iterations))
        yield ""


def _given(spec: Matmul, program: Program) -> dict[str, int]:
    return {name: spec.sizes[name] for name in program.sizes}


def _program(spec: Matmul) -> Program:
    return lower(schedule(spec), spec.scheme)


def _cost(spec: Matmul) -> Iterator[str]:
    """What each scheme executes."""
    yield "executions by threads:"
    rows: list[list[str]] = [["peel", "bytes of a copy of a, b", *NAMES]]
    for name, scheme in _SCHEMES.items():
        other = replace(spec, scheme=replace(scheme, predicate=spec.scheme.predicate))
        try:
            program = _program(other)
        except Declined as declined:
            yield f"  {name}: {declined}"
            continue
        found = executions(program, _given(other, program))
        copies = ", ".join(str(_bytes(other, operand)) for operand in "ab")
        mark = "*" if name == spec.scheme.peel else ""
        rows.append([f"{name}{mark}", copies, *(str(found[n]) for n in NAMES)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True))


def _bytes(spec: Matmul, operand: str) -> int:
    return max(width(spec, operand), 1) * size_of(DTYPES[spec.dtype][0])


def _notes(spec: Matmul) -> Iterator[str]:
    """What became narrower than it might be, and why."""
    for operand in "ab":
        size = _bytes(spec, operand)
        if size == 16 or not spec.asynchronous:
            continue
        how = "are cp.async" if width(spec, operand) else "are loads and stores"
        yield f"copies of {operand} move {size} bytes and {how}: {_cause(spec, operand)}"


def _cause(spec: Matmul, operand: str) -> str:
    """What an operand would need for wider copies."""
    if any(stride != 1 for stride in spec.strides.get(operand, ())[-1:]):
        return "its elements are apart"
    here = _bytes(spec, operand)
    for cause, fill, peel in _CAUSES:
        scheme = replace(spec.scheme, fill=fill or spec.scheme.fill, peel=peel or spec.scheme.peel)
        could = _bytes(replace(spec, scheme=scheme), operand)
        if (spec.scheme.peel == "on" or not peel) and could > here:
            words = [f"--fill {fill}"] * bool(fill) + [f"--peel {peel}"] * bool(peel)
            return f"{cause}; {' '.join(words)} moves {could} bytes"
    return "no more is known to divide the distance of its rows or the tile"


def lower_matmul(spec: Matmul, version: tuple[int, int] | None = None) -> Lowered:
    """Lower a matrix product to PTX.

    :class:`Declined` where an axis cannot be peeled as asked, :class:`ptxsim.UsageError` for
    schedules that make no sense.
    """
    least = max(TARGETS[spec.target], (6, 5) if spec.shape else (0, 0))
    if version is not None and version < least:
        raise UsageError(
            f"the kernel needs PTX ISA {least[0]}.{least[1]} on {spec.target}, "
            f"not {version[0]}.{version[1]}"
        )
    program = _program(spec)
    spec.check_shared(sum(_shared(buffer) for buffer in program.buffers))
    kernel = emit(program, spec.target, version, _header(spec, program))
    if kernel.dynamic_shared:
        place = next(i for i, line in enumerate(kernel.header) if line.startswith("launch:"))
        kernel.header[place] += f" smem={kernel.dynamic_shared}"
    return Lowered(spec, program, kernel)


def _shared(buffer: Buffer) -> int:
    """Bytes of shared memory of a buffer, with its padding."""
    if buffer.memory is not Memory.SHARED:
        return 0
    outer, stride = evaluate(buffer.extents[0], {}), evaluate(buffer.strides[0], {})
    return outer * stride * size_of(buffer.dtype)


def _header(spec: Matmul, program: Program) -> list[str]:
    given = _given(spec, program)
    grid = ",".join(str(evaluate(count, given)) for count in program.grid)
    block = ",".join(map(str, program.block))
    tile = "x".join(map(str, spec.tile))
    k = "x".join(map(str, spec.ks))
    lines = [
        f"c = a @ b: {spec.dtype}, layout {spec.layout}, M {spec.m}, N {spec.n}, K {k}",
        f"tile {tile}, {spec.stages} slots, peel {spec.scheme.peel}",
        f"launch: grid={grid} block={block}",
    ]
    for seed, buffer in enumerate((b for b in program.buffers if b.memory is Memory.GLOBAL), 1):
        count = _span(buffer, given)
        value = "undef" if buffer.name == "c" else _random(buffer.dtype, seed)
        lines.append(f"arg:    {buffer.name} {buffer.dtype}[{count}] = {value}")
    return lines + [f"arg:    {name} u32 = {value}" for name, value in given.items()]


def _random(dtype: str, seed: int) -> str:
    return f"randint(-128, 128, {seed})" if dtype == "s8" else f"randn({seed})"


def _span(buffer: Buffer, sizes: dict[str, int]) -> int:
    """Elements from the first to the last one of an operand; one where it has none.

    No launch has an array of no elements.
    """
    extents = [evaluate(extent, sizes) for extent in buffer.extents]
    if 0 in extents:
        return 1
    strides = [evaluate(stride, sizes) for stride in buffer.strides]
    return 1 + sum((e - 1) * s for e, s in zip(extents, strides, strict=True))

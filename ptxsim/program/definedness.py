"""What a step does to undefined bits, and where they matter; for programs that are checked.

A group of lanes keeps, beside its registers, the undefined bits of those that have any
(``undefined``: place -> :data:`Unknown`).  While there are none, blocks run their plain steps; from
the first one on every instruction is preceded by its part of this module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..isa.definedness import Rule, elements, everywhere, touched
from ..isa.protocol import Array, Registers, Site, Step, Unknown
from ..isa.record import Pure
from ..types import ScalarType, bits_dtype

if TYPE_CHECKING:
    from .binder import InstructionBinder

__all__ = [
    "CheckedSteps",
    "Origin",
    "Origins",
    "bind_definedness",
    "bind_guard",
    "bind_receipt",
    "bind_repeated",
    "merged_origin",
]

_PACKED = {"f16x2": 2, "bf16x2": 2, "f32x2": 2, "u16x2": 2, "s16x2": 2, "u8x4": 4, "s8x4": 4}


@dataclass(slots=True)
class Origin:
    """Where undefined bits came from: a register, a load from memory of a space, a shuffle, or an
    instruction that the ISA gives no result."""

    class_: str
    name: str
    site: Site | None = None
    #: the address in its space that each lane of the wave read last; -1: none
    at: Array | None = None
    #: which lane of the warp gave that address, or the value, where it was another; -1: none.  And
    #: what lies there
    given: Array | None = None
    describe: Callable[[int], str] | None = None
    #: whose register it is
    function: str = ""

    def addresses(self, lanes: int) -> Array:
        """``at`` for a wave of so many lanes, to be changed."""
        if self.at is None or len(self.at) != lanes:
            self.at = np.full(lanes, -1, np.int64)
        return self.at

    def give(self, lanes: Array, givers: Array, size: int) -> None:
        """Say whose address or value lanes of a wave of a size have taken."""
        if self.given is None or len(self.given) != size:
            self.given = np.full(size, -1)
        self.given[lanes] = givers


@dataclass
class Origins:
    """The origins of a program by number; number 0 is none."""

    known: list[Origin] = field(default_factory=lambda: [Origin("", "")])
    _numbers: dict[tuple[str, int], int] = field(default_factory=dict)

    def register(self, name: str, function: str) -> int:
        """A register of a function that is read before it is written."""
        self.known.append(Origin("uninit-register", name, function=function))
        return len(self.known) - 1

    def load(self, space: str, site: Site) -> int:
        """A load by an instruction."""
        return self._of(f"uninit-{space}", space, site)

    def absent(self, site: Site) -> int:
        """A shuffle that reads lanes which do not take part."""
        return self._of("mask-mismatch", "", site)

    def result(self, site: Site, fault: str) -> int:
        """An instruction that has no result for the sources it met."""
        return self._of("undefined-result", fault, site)

    def _of(self, class_: str, name: str, site: Site) -> int:
        key = (class_, id(site))
        if key not in self._numbers:
            self.known.append(Origin(class_, name, site))
            self._numbers[key] = len(self.known) - 1
        return self._numbers[key]


class CheckedSteps:
    """The steps of a block, with and without what they do to undefined bits.

    ``plain`` are stretches that end where undefined bits may come up; each knows at which of the
    ``tracked`` steps to go on then.
    """

    def __init__(
        self, plain: Sequence[tuple[tuple[Step, ...], int]], tracked: tuple[Step, ...]
    ) -> None:
        self.plain = tuple(plain)
        self.tracked = tracked
        self.live: frozenset[int] = frozenset()

    def run(self, r: Registers, g: Any) -> None:
        """Run the block for a group."""
        at = 0
        if g.undefined:
            g.undefined = {p: u for p, u in g.undefined.items() if p in self.live}
        if not g.undefined:
            for steps, after in self.plain:
                for step in steps:
                    step(r, g)
                if g.undefined:
                    at = after
                    break
            else:
                return
        for step in self.tracked[at:]:
            step(r, g)


def merged_origin(found: Sequence[Unknown]) -> Array:
    """The origin by lane of what several values are undefined by: that of the first that is."""
    bits, origin = found[0]
    if all(len(other) == 1 and other[0] == origin[0] for _, other in found):
        return origin
    have = touched([bits])
    for bits, other in found[1:]:
        origin = np.where(have, origin, other)
        have = have | touched([bits])
    return origin


def bind_definedness(b: InstructionBinder) -> tuple[list[Step], list[Step]]:
    """The steps before and behind an instruction when undefined bits are around."""
    i = b.instruction
    record = i.record
    steps: list[Step] = []
    if i.guard is not None:
        steps.append(bind_guard(b))
    if record.needs_defined:
        apart = {*record.propagates, *record.fragment_operands, *record.checks_lanes}
        names = [s.name for s in i.form.operands if s.name not in apart and b.reads(s)]
        if names:
            steps.append(b.observe_operands(names))
    own = record.definedness(b)
    if own is not None:
        return [*steps, own], []
    if isinstance(record, Pure):
        return [*steps, _transfer(b, _rule(b, record))], []
    places = b.written_registers()
    return steps, [_define(places, b.guard())] if places else []


def bind_guard(b: InstructionBinder) -> Step:
    """The check of a guard, which matters whatever it guards."""
    guard = b.instruction.guard
    assert guard is not None
    place, name, site = guard.index, guard.name, b.site

    def observe(r: Registers, g: Any) -> None:
        if place in g.undefined:
            g.observe(g.undefined[place], None, site, name)

    return observe


def bind_receipt(b: InstructionBinder) -> Step:
    """Behind an instruction that reads memory: the undefined bits it found go to its results."""
    record = b.instruction.record
    if not b.has(record.receives) or not any(b.register_names(record.receives)):
        return _discard
    marks = b.marks(record.receives)
    guard = b.guard()

    def receive(r: Registers, g: Any) -> None:
        if g.loaded is None:
            return
        found, g.loaded = g.loaded, None
        mask = g.mask(guard(r))
        for mark, unknown in zip(marks, found, strict=True):
            mark(g, unknown, mask)

    return receive


def bind_repeated(b: InstructionBinder) -> list[Step]:
    """Behind an instruction that names registers twice in a vector destination: they are undefined
    (PTX ISA 9.1, Vectors as Operands)."""
    i = b.instruction
    groups = [i.operands.get(s.name) for s in i.form.operands if s.written and s.count]
    counts = Counter(e.index for g in groups for e in b.elements_of(g))
    repeated = [place for place, count in counts.items() if count > 1]
    if not repeated:
        return []
    guard, site = b.guard(), b.site
    widths = [b.width_of(place) for place in repeated]

    def lose(r: Registers, g: Any) -> None:
        mask = g.mask(guard(r))
        lanes = np.ones(g.n, bool) if mask is None else np.broadcast_to(mask, (g.n,))
        fault = "names a register twice in its vector destination"
        for place, width in zip(repeated, widths, strict=True):
            g.mark(place, g.undefined_result(lanes, width, site, fault), mask)

    return [lose]


def _discard(r: Registers, g: Any) -> None:
    g.loaded = None


def _define(places: Sequence[int], guard: Callable[[Registers], Array | None]) -> Step:
    def define(r: Registers, g: Any) -> None:
        for place in places:
            if place in g.undefined:
                g.mark(place, None, guard(r))

    return define


def _cautious(types: Sequence[ScalarType], targets: Sequence[ScalarType]) -> Rule:
    counts = {_PACKED.get(t.name, 0) for t in (*types, *targets)}
    if len(counts) == 1 and len(targets) == 1 and 0 not in counts:
        return elements(counts.pop(), targets[0].bits)
    widths = [1 if t.kind == "p" else max(t.bits, 8) for t in targets]

    def rule(values: Sequence[Array], unknown: Sequence[Array]) -> tuple[Array, ...]:
        lost = touched(unknown)
        return tuple(everywhere(lost, width) for width in widths)

    return rule


def _rule(b: InstructionBinder, record: Pure) -> Rule | None:
    """The rule of a pure instruction; a register that is several sources has one value in all."""
    read = [(s.register, s.width) for s in b.pure_sources]
    alike = tuple(i if r[0] < 0 else read.index(r) for i, r in enumerate(read))
    if alike == tuple(range(len(read))):
        return record.undefined_bits(b.mods)
    return record.undefined_bits_alike(b.mods, alike)


def _nothing(width: int) -> Array:
    if width == 128:
        return np.zeros((2, 1), np.uint64)
    return np.zeros(1, bits_dtype(width))


def _transfer(b: InstructionBinder, rule: Rule | None) -> Step:
    """What a pure instruction does: the masks of its results from those of its sources."""
    sources = b.pure_sources
    targets = [t for t in b.pure_targets if t[0] >= 0]
    every = b.pure_targets
    if rule is None:
        rule = _cautious([s.type for s in sources], [t[1] for t in every])
    assert rule is not None
    apply: Rule = rule
    registers = [s.register for s in sources]
    zeros = [_nothing(s.width) for s in sources]
    guard = b.guard()

    def transfer(r: Registers, g: Any) -> None:
        known = g.undefined
        if not any(s in known for s in registers):
            for place, _, _ in targets:
                if place in known:
                    g.mark(place, None, guard(r))
            return
        masks, found = [], []
        for source, zero in zip(sources, zeros, strict=True):
            entry = known.get(source.register)
            if entry is None:
                masks.append(zero)
                continue
            mask = source.seen(entry[0])
            masks.append(mask)
            found.append((mask, entry[1]))
        result = apply([r[s.place] for s in sources], masks)
        if not isinstance(result, tuple):
            result = (result,)
        origin = merged_origin(found)
        p = guard(r)
        for (place, _, widen), bits in zip(every, result, strict=False):
            if place >= 0:
                g.mark(place, (bits if widen is None else widen(bits), origin), p)

    return transfer

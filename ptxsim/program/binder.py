"""Binds instructions to places in the register file (:class:`ptxsim.isa.protocol.Binder`).

The register file of a routine is a list of arrays: first the declared registers, then places for
constants (their value is in the template), for values derived just before an instruction (special
registers, negated predicates, truncations), and tags of registers that hold fragments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InternalError
from ..isa.protocol import Array, BoolArray, Registers, Step, Unknown
from ..isa.record import Mods, OperandSpec
from ..numerics import select
from ..resolve.typed import (
    AddressOperand,
    CallOperand,
    Constant,
    FunctionRef,
    Negated,
    PredicatePair,
    Register,
    RegisterGroup,
    SpecialRegister,
    Symbol,
    SymbolAddress,
    TypedFunction,
    TypedInstruction,
)
from ..types import SCALAR_TYPES, ScalarType, bits_dtype
from .model import InstructionSite, Link

__all__ = ["InstructionBinder", "Places", "Source", "constant_array", "registers_of"]

Write = Callable[[Registers, Array, "BoolArray | None"], None]


def constant_array(bits: int, width: int) -> Array:
    """A value that all lanes share."""
    if width == 128:
        return np.array([[bits & (2**64 - 1)], [bits >> 64]], np.uint64)
    return np.array([bits], bits_dtype(width))


class Places:
    """The register file of one routine while it is compiled."""

    def __init__(self, function: TypedFunction, link: Link) -> None:
        self.function = function
        self.link = link
        self.template: Registers = [constant_array(0, r.type.bits) for r in function.registers]
        self._constants: dict[tuple[int, int], int] = {}
        self.tags: dict[int, int] = {}

    def new(self, initial: Array) -> int:
        self.template.append(initial)
        return len(self.template) - 1

    def constant(self, bits: int, width: int) -> int:
        key = (bits, width)
        if key not in self._constants:
            self._constants[key] = self.new(constant_array(bits, width))
        return self._constants[key]

    def tag(self, register: int) -> None:
        """Give a register a tag that says which wmma fragment it holds."""
        self.tags[register] = self.new(np.array([0], np.int32))

    def in_frame(self, symbol: Symbol) -> bool:
        """Whether a variable lies in the local-memory frame of this function."""
        if symbol.space == "local":
            return True
        entry = self.function.kind == "entry"
        return symbol.space == "param" and not (entry and symbol in self.function.parameters)

    def symbol_address(self, symbol: Symbol) -> int:
        """The address of a variable outside the frame, within its own state space."""
        if symbol.space == "param":
            return self.link.parameters + symbol.offset
        if symbol.space == "shared":
            if not symbol.size:
                return self.link.shared.dynamic
            return symbol.offset + (self.link.shared.entry if symbol.entry else 0)
        return self.link.variables[symbol.name]


def registers_of(value: object) -> list[int]:
    """Indices of the registers in an operand."""
    match value:
        case Register():
            return [value.index]
        case Negated(register):
            return [register.index]
        case RegisterGroup(elements):
            return [e.index for e in elements if isinstance(e, Register)]
        case PredicatePair(first, second):
            return [r.index for r in (first, second) if isinstance(r, Register)]
        case AddressOperand(base) if isinstance(base, Register):
            return [base.index]
    return []


@dataclass(frozen=True, slots=True)
class Source:
    """A source as it is read: its place, and the register that it comes from (-1: none)."""

    place: int
    register: int
    type: ScalarType
    width: int
    #: the register has another width, and is cut or extended to ``width``
    resized: bool

    def seen(self, bits: Array) -> Array:
        """Bits of the register as bits of the source."""
        return bits.astype(bits_dtype(self.width)) if self.resized else bits


class InstructionBinder:
    """Binds one instruction; ``before`` and ``after`` collect the small steps around it."""

    def __init__(self, places: Places, instruction: TypedInstruction) -> None:
        self.places = places
        self.instruction = instruction
        self.mods: Mods = instruction.mods
        self.site = InstructionSite(
            instruction.text, instruction.span, places.function.name,
            instruction.record.memory_order(instruction.mods),
        )  # fmt: skip
        self.watched = places.link.watched
        self.target = places.link.target
        self.wmma_rule = places.link.wmma_rule
        self.before: list[Step] = []
        self.after: list[Step] = []
        #: of a pure instruction: what it reads, and the place, type and widening of its results
        self.pure_sources: list[Source] = []
        self.pure_targets: list[tuple[int, ScalarType, Callable[[Array], Array] | None]] = []
        self._specs = {s.name: s for s in instruction.form.operands}

    # --- operands -------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        return name in self.instruction.operands

    def operand(self, name: str) -> Any:
        """The typed operand."""
        return self.instruction.operands[name]

    def _type(self, spec: OperandSpec) -> ScalarType:
        return self.instruction.record.type_of(spec.type, self.mods)

    def constant(self, name: str) -> int:
        value = self.operand(name)
        if not isinstance(value, Constant):
            raise InternalError(f"operand {name} of {self.site.text} is not a constant")
        return value.bits

    def source(self, name: str, width: int | None = None) -> int:
        spec = self._specs[name]
        type_ = self._type(spec)
        return self._source_place(self.operand(name), type_, width)

    def sources(self, name: str) -> list[int]:
        spec = self._specs[name]
        type_ = self._type(spec)
        value = self.operand(name)
        elements = value.elements if isinstance(value, RegisterGroup) else (value,)
        return [self._source_place(e, type_, None) for e in elements]

    def _source_place(self, value: Any, type_: ScalarType, width: int | None) -> int:
        want = width or (1 if type_.kind == "p" else max(type_.bits, 8))
        match value:
            case Register():
                have = 1 if value.type.kind == "p" else value.type.bits
                return value.index if have == want else self._resized(value.index, want)
            case Constant(bits, have):
                return self.places.constant(bits & ((1 << want) - 1), want)
            case Negated(register):
                return self._derived(register.index, np.logical_not, np.array([False]))
            case SpecialRegister(name, have):
                place = self.places.new(constant_array(0, want))
                dtype = bits_dtype(want)

                def special(r: Registers, g: Any) -> None:
                    value = g.special(name)
                    r[place] = value if value.dtype == dtype else value.astype(dtype)

                self.before.append(special)
                return place
            case SymbolAddress(symbol, offset):
                return self._symbol_place(symbol, offset, want)
            case FunctionRef(name):
                return self.places.constant(self.places.link.functions.get(name, 0), want)
        raise InternalError(f"cannot read {value!r} in {self.site.text}")

    def _symbol_place(self, symbol: Symbol, offset: int, width: int) -> int:
        limit = (1 << width) - 1
        if not self.places.in_frame(symbol):
            address = self.places.symbol_address(symbol) + offset
            return self.places.constant(address & limit, width)
        place = self.places.new(constant_array(0, width))
        dtype = bits_dtype(width)
        at = symbol.offset + offset

        def frame_address(r: Registers, g: Any) -> None:
            r[place] = np.array([(g.stack + at) & limit], dtype)

        self.before.append(frame_address)
        return place

    def _derived(self, register: int, function: Callable[[Array], Array], initial: Array) -> int:
        place = self.places.new(initial)

        def derive(r: Registers, g: Any) -> None:
            r[place] = function(r[register])

        self.before.append(derive)
        return place

    def _resized(self, register: int, width: int) -> int:
        dtype = bits_dtype(width)
        return self._derived(register, lambda v: v.astype(dtype), constant_array(0, width))

    # --- destinations ---------------------------------------------------------------------------

    def second(self, name: str) -> int:
        """The place of the predicate of a pair ``d|p``, or -1."""
        value = self.instruction.operands.get(name)
        if isinstance(value, PredicatePair) and isinstance(value.second, Register):
            return value.second.index
        return -1

    def write(self, name: str) -> Write:
        return self.writes(name)[0]

    def writes(self, name: str) -> list[Write]:
        type_ = self._type(self._specs[name])
        value = self.operand(name)
        if isinstance(value, PredicatePair):
            value = value.first
        elements = value.elements if isinstance(value, RegisterGroup) else (value,)
        return [self._writer(e, type_) for e in elements]

    def write_second(self, name: str) -> Write:
        """Writes the predicate of a pair."""
        place = self.second(name)
        return self._plain_writer(place) if place >= 0 else _discard

    def _writer(self, element: Any, type_: ScalarType) -> Write:
        if not isinstance(element, Register):
            return _discard
        plain = self._plain_writer(element.index)
        have = element.type.bits
        if type_.kind == "p" or have == max(type_.bits, 8):
            return plain
        widen = _widener(type_, have)
        return lambda r, value, mask: plain(r, widen(value), mask)

    def _plain_writer(self, place: int) -> Write:

        def write(r: Registers, value: Array, mask: BoolArray | None) -> None:
            r[place] = value if mask is None else select(mask, value, r[place])

        return write

    # --- guard and address ----------------------------------------------------------------------

    def guard(self) -> Callable[[Registers], Array | None]:
        register = self.instruction.guard
        if register is None:
            return lambda r: None
        place = register.index
        if self.instruction.guard_negated:
            return lambda r: ~r[place]
        return lambda r: r[place]

    def space(self, name: str, declared: str) -> str:
        """The memory that an address operand refers to, given the space of the opcode."""
        operand = self.operand(name)
        base = operand.symbol or operand.base
        space = declared.split("::")[0] or "generic"
        if space == "generic" and isinstance(base, Symbol) and base.space != "global":
            space = base.space
        if space == "param":
            if isinstance(base, Symbol):
                return "local" if self.places.in_frame(base) else "param"
            return "param" if self.places.function.kind == "entry" else "local"
        return space

    def address(self, name: str) -> Callable[[Registers, Any], Array]:
        operand = self.operand(name)
        assert isinstance(operand, AddressOperand)
        base, offset = operand.base, operand.offset
        if operand.symbol is not None:
            return self._indexed(operand)
        if base is None:
            fixed = np.array([offset & (2**64 - 1)], np.uint64)
            return lambda r, g: fixed
        if isinstance(base, Symbol):
            if self.places.in_frame(base):
                at = base.offset + offset
                return lambda r, g: np.array([(g.stack + at) & (2**64 - 1)], np.uint64)
            fixed = np.array([(self.places.symbol_address(base) + offset) & (2**64 - 1)], np.uint64)
            return lambda r, g: fixed
        place = base.index
        if base.type.bits == 32:
            add32 = np.uint32(offset & 0xFFFFFFFF)
            if offset == 0:
                return lambda r, g: r[place].astype(np.uint64)
            return lambda r, g: (r[place] + add32).astype(np.uint64)
        if offset == 0:
            return lambda r, g: r[place]
        add64 = np.uint64(offset & (2**64 - 1))
        return lambda r, g: r[place] + add64

    def _indexed(self, operand: AddressOperand) -> Callable[[Registers, Any], Array]:
        """``sym[register + offset]``."""
        assert operand.symbol is not None and isinstance(operand.base, Register)
        place = operand.base.index
        in_frame = self.places.in_frame(operand.symbol)
        start = operand.symbol.offset if in_frame else self.places.symbol_address(operand.symbol)
        start += operand.offset

        def address(r: Registers, g: Any) -> Array:
            at = start + (g.stack if in_frame else 0)
            return r[place].astype(np.uint64) + np.uint64(at & (2**64 - 1))

        return address

    # --- pure instructions ----------------------------------------------------------------------

    def pure(self, function: Callable[..., Any]) -> Step:
        sources: list[int] = []
        targets: list[tuple[int, ScalarType, int]] = []
        for spec in self.instruction.form.operands:
            if spec.name not in self.instruction.operands:
                continue
            value = self.operand(spec.name)
            if spec.read:
                places = self.sources(spec.name)
                sources.extend(places)
                self._note_sources(spec, places)
            if spec.written:
                targets.extend(self._targets(value, self._type(spec)))
                if spec.pair and not isinstance(value, PredicatePair):
                    function = _first_of(function)
        for at, (place, type_, have) in enumerate(targets):
            widen = None
            if place >= 0 and type_.kind != "p" and have != max(type_.bits, 8):
                widen = _widener(type_, have)
                function = _widen_result(function, at, len(targets), widen)
            self.pure_targets.append((place, type_, widen))
        places = [t[0] for t in targets]
        step = _step(function, sources, places)
        guard = self.instruction.guard
        if guard is not None:
            step = _guarded(function, sources, places, guard.index, self.instruction.guard_negated)
        return step

    def _note_sources(self, spec: OperandSpec, places: list[int]) -> None:
        type_ = self._type(spec)
        for place, (register, resized) in zip(places, self._elements_read(spec), strict=True):
            self.pure_sources.append(Source(place, register, type_, _width(type_), resized))

    def _targets(self, value: Any, type_: ScalarType) -> list[tuple[int, ScalarType, int]]:
        if isinstance(value, PredicatePair):
            first = self._targets(value.first, type_)
            return first + self._targets(value.second, ScalarType("pred", "p", 1))
        elements = value.elements if isinstance(value, RegisterGroup) else (value,)
        return [
            (e.index, type_, e.type.bits) if isinstance(e, Register) else (-1, type_, 0)
            for e in elements
        ]

    # --- undefined bits -------------------------------------------------------------------------

    def reads(self, spec: OperandSpec) -> bool:
        """Whether the instruction has this operand and reads registers of it."""
        return spec.name in self.instruction.operands and (spec.read or spec.kind != "value")

    def read_registers(self) -> list[int]:
        """Registers that the instruction reads as operands, the guard not counted."""
        out = []
        for spec in self.instruction.form.operands:
            if self.reads(spec):
                out.extend(registers_of(self.instruction.operands[spec.name]))
        return out

    def written_registers(self) -> list[int]:
        """Registers that the instruction writes."""
        out = []
        for spec in self.instruction.form.operands:
            value = self.instruction.operands.get(spec.name)
            if isinstance(value, CallOperand):
                out += [p for result in value.results for p in registers_of(result)]
            elif spec.written:
                out += registers_of(value)
        return out

    def _elements(self, name: str) -> tuple[Any, ...]:
        value = self.operand(name)
        if isinstance(value, AddressOperand):
            return (value.base,)
        if isinstance(value, CallOperand):
            return (value.callee,)
        return value.elements if isinstance(value, RegisterGroup) else (value,)

    def _elements_read(self, spec: OperandSpec) -> list[tuple[int, bool]]:
        """For each element its register, or -1, and whether it is read in another width."""
        out = []
        for element in self._elements(spec.name):
            if isinstance(element, Negated):
                element = element.register
            if not isinstance(element, Register):
                out.append((-1, False))
                continue
            resized = spec.kind == "value" and (_width(element.type) != _width(self._type(spec)))
            out.append((element.index, resized))
        return out

    def _sources_of(self, name: str) -> list[Source]:
        spec = self._specs[name]
        type_ = self._type(spec) if spec.kind == "value" else SCALAR_TYPES["b64"]
        return [
            Source(-1, register, type_, _width(type_), resized)
            for register, resized in self._elements_read(spec)
        ]

    def register_names(self, name: str) -> list[str]:
        """The names of the elements of an operand, empty for those that are no registers."""
        elements = [e.register if isinstance(e, Negated) else e for e in self._elements(name)]
        return [e.name if isinstance(e, Register) else "" for e in elements]

    def unknown(self, name: str) -> Callable[[Registers, Any], list[Unknown | None] | None]:
        """The undefined bits of the elements of a source, where they come from; None: no bits."""
        sources = self._sources_of(name)
        registers = [s.register for s in sources]

        def unknown(r: Registers, g: Any) -> list[Unknown | None] | None:
            known = g.undefined
            if not known or not any(s in known for s in registers):
                return None
            out: list[Unknown | None] = []
            for source in sources:
                entry = known.get(source.register)
                out.append(None if entry is None else (source.seen(entry[0]), entry[1]))
            return out

        return unknown

    def elements_of(self, value: object) -> list[Register]:
        """The registers in a brace group."""
        elements = value.elements if isinstance(value, RegisterGroup) else ()
        return [e for e in elements if isinstance(e, Register)]

    def width_of(self, place: int) -> int:
        """The bits of a declared register."""
        return self.places.function.registers[place].type.bits

    def marks(self, name: str) -> list[Callable[[Any, Unknown | None, BoolArray | None], None]]:
        """Functions that say which bits of the elements of a destination are undefined."""
        type_ = self._type(self._specs[name])
        value = self.operand(name)
        elements = (value.first,) if isinstance(value, PredicatePair) else self._elements(name)
        return [self._marker(e, type_) for e in elements]

    def mark_second(self, name: str) -> Callable[[Any, Unknown | None, BoolArray | None], None]:
        """The same for the predicate of a pair."""
        value = self.operand(name)
        second = value.second if isinstance(value, PredicatePair) else None
        return self._marker(second, SCALAR_TYPES["pred"])

    def _marker(
        self, element: Any, type_: ScalarType
    ) -> Callable[[Any, Unknown | None, BoolArray | None], None]:
        if not isinstance(element, Register):
            return lambda g, unknown, mask: None
        place, have = element.index, element.type.bits
        if type_.kind == "p" or have == max(type_.bits, 8):
            return lambda g, unknown, mask: g.mark(place, unknown, mask)
        widen = _widener(type_, have)

        def mark(g: Any, unknown: Unknown | None, mask: BoolArray | None) -> None:
            g.mark(place, None if unknown is None else (widen(unknown[0]), unknown[1]), mask)

        return mark

    def observer(self, name: str) -> Callable[[Registers, Any, BoolArray | None], None]:
        """A check that an operand has no undefined bits in the lanes of a mask (None: all)."""
        if not self.places.link.initcheck:
            return lambda r, g, mask: None
        unknown = self.unknown(name)
        names = self.register_names(name)
        site = self.site

        def check(r: Registers, g: Any, mask: BoolArray | None) -> None:
            found = unknown(r, g)
            if found is not None:
                pairs = zip(found, names, strict=True)
                g.observe_all([(u, name) for u, name in pairs if u is not None], mask, site)

        return check

    def observe_operands(self, names: list[str]) -> Step:
        """The check of whole operands in the lanes that execute the instruction."""
        read = [(self.unknown(n), self.register_names(n)) for n in names]
        guard = self.guard()
        site = self.site

        def check(r: Registers, g: Any) -> None:
            bad = []
            for unknown, registers in read:
                for entry, name in zip(unknown(r, g) or (), registers, strict=False):
                    if entry is not None:
                        bad.append((entry, name))
            if bad:
                g.observe_all(bad, g.mask(guard(r)), site)

        return check

    def tags(self, name: str) -> list[int]:
        """Where the tags of the elements of a fragment operand are; -1 for a constant or sink."""
        return [
            self.places.tags.get(e.index, -1) if isinstance(e, Register) else -1
            for e in self._elements(name)
        ]


def _width(type_: ScalarType) -> int:
    return 1 if type_.kind == "p" else max(type_.bits, 8)


def _discard(r: Registers, value: Array, mask: BoolArray | None) -> None:
    """Writes to the sink."""


def _first_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function without its second result, for a destination pair that names only one."""
    return lambda *values: function(*values)[0]


def _widener(type_: ScalarType, width: int) -> Callable[[Array], Array]:
    dtype = bits_dtype(width)
    if width < type_.bits:
        return lambda v: v.astype(dtype)
    if type_.signed:
        narrow = np.dtype(f"i{type_.size}")
        wide = np.dtype(f"i{width // 8}")
        return lambda v: v.view(narrow).astype(wide).view(dtype)
    return lambda v: v.astype(dtype)


def _widen_result(
    function: Callable[..., Any], at: int, count: int, widen: Callable[[Array], Array]
) -> Callable[..., Any]:
    if count == 1:
        return lambda *values: widen(function(*values))

    def widened(*values: Array) -> tuple[Array, ...]:
        results = list(function(*values))
        results[at] = widen(results[at])
        return tuple(results)

    return widened


def _step(f: Callable[..., Any], sources: list[int], targets: list[int]) -> Step:
    """Closures for the common numbers of operands; ``r`` is the register file."""
    if targets == [-1]:
        return lambda r, g: None
    if len(targets) == 1:
        d = targets[0]
        if len(sources) == 1:
            a = sources[0]

            def step1(r: Registers, g: Any) -> None:
                r[d] = f(r[a])

            return step1
        if len(sources) == 2:
            a, b = sources

            def step2(r: Registers, g: Any) -> None:
                r[d] = f(r[a], r[b])

            return step2
        if len(sources) == 3:
            a, b, c = sources

            def step3(r: Registers, g: Any) -> None:
                r[d] = f(r[a], r[b], r[c])

            return step3

        def step_n(r: Registers, g: Any) -> None:
            r[d] = f(*[r[s] for s in sources])

        return step_n

    def step_many(r: Registers, g: Any) -> None:
        results = f(*[r[s] for s in sources])
        for place, value in zip(targets, results, strict=True):
            if place >= 0:
                r[place] = value

    return step_many


def _guarded(
    f: Callable[..., Any], sources: list[int], targets: list[int], guard: int, negated: bool
) -> Step:
    single = len(targets) == 1

    def step(r: Registers, g: Any) -> None:
        p = r[guard]
        if negated:
            p = ~p
        if p.shape[0] == 1 and not p[0]:
            return
        results = f(*[r[s] for s in sources])
        if single:
            results = (results,)
        for place, value in zip(targets, results, strict=True):
            if place >= 0:
                r[place] = value if p.shape[0] == 1 else select(p, value, r[place])

    return step

"""How one instruction is written down: forms, floors, checks and semantics in one class.

A record is a subclass of :class:`Instruction` under the decorator :func:`instruction`.  Its
``forms`` are written like the syntax lines of the PTX ISA and parsed once::

    Form("rnd?:{rn rz rm rp} ftz? sat? type:{f32}", "=d.type, a.type, b.type", floor="sm_20")

Modifiers, in ISA order:

* ``sync`` a word that must be there, ``ftz?`` one that may be there,
* ``type:{s32 u32}`` exactly one of a set, ``rnd?:{rn rz}`` at most one,
* ``half!:{lo hi}`` a word that belongs to the mnemonic: only such words may stand before it,
* ``f16@4.2+sm_53`` inside a set: this word needs PTX ISA 4.2 and sm_53.

Operands, in PTX order, separated by commas:

* ``a.type`` a source of the type in modifier slot ``type``; ``a.u32`` of a fixed type;
  ``a.wide`` of the type that the record's method ``wide(m)`` names,
* ``=d.type`` a destination, ``+d.type`` one that is also read,
* ``d.type*num`` a brace group of as many registers as slot ``num`` says (``x4``, ``v2``, empty for
  a plain operand), as a number or as the record's method says,
* ``=d.type|p`` a destination with an optional second, predicate destination (``|p!`` one that must
  be there, ``|p@7.1`` one that needs PTX ISA 7.1),
* ``^a.type`` a register wider than the type is legal (ld, st, cvt),
* ``%c.s32*n`` a group that may have two or four elements where fewer count,
* ``~d.type`` the sink ``_`` is legal, ``#n.u32`` only a constant is legal,
* ``'r.b32`` only a register that is declared untyped is legal,
* ``!p.pred`` a predicate that may be negated,
* ``[a]`` an address, ``@target`` left to the record (labels, functions, lists), ``@sink`` only
  the sink ``_``,
* ``[tensor c.s32*dims]`` several parts in one pair of brackets, separated by commas in the text: an
  address and a group, each an operand of its own; ``[tex.texref smp.samplerref? c.coordinates]``
  likewise, where a type of references takes a variable of that type or a 64-bit register,
* ``[&a.b32]`` an address in a register of that width alone,
* a type word whose method names several types (``"u32 f32 f32 f32"``) is a brace group of elements
  of these types,
* ``=$cc.pred`` the carry flag, which the text does not name,
* ``a.u32:part`` a register that may carry a part selector of the kind ``part`` (``%r1.b0``; the
  kinds are those of :data:`SELECTORS`), which becomes the modifier ``a_part``,
* ``-a.u32`` a source that may be negated (``-%r1``), which sets the modifier ``a_sign`` to ``-``,
* a trailing ``?`` makes an operand optional, ``?hint`` makes it stand exactly with the modifier in
  slot ``hint``.

The syntax lines are those of the PTX ISA; the sections are named on each record.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from ..errors import InternalError
from ..targets import ANY, Floor, Target
from ..types import SCALAR_TYPES, STATE_SPACES, ScalarType
from .order import WEAK, MemoryOrder

if TYPE_CHECKING:
    from ..matrix import Fragment
    from .definedness import Rule
    from .protocol import Binder, Step

__all__ = [
    "SELECTORS",
    "STAND_IN",
    "Form",
    "FormMismatch",
    "Instruction",
    "Mods",
    "OperandSpec",
    "Pure",
    "Registry",
    "Slot",
    "Tolerance",
    "instruction",
    "registry",
]


class Mods(Mapping[str, str]):
    """The modifiers of one instruction by slot name; an absent one is the empty string.

    >>> Mods({"type": "s32", "sat": ""}).type
    's32'
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __getattr__(self, name: str) -> Any:
        """The word in a slot: a str, of whatever literal type the slot's set is."""
        if name.startswith("_"):
            raise AttributeError(name)
        return self._values.get(name, "")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Mods({self._values})"


@dataclass(frozen=True, slots=True)
class Slot:
    """One place for a modifier: its legal words, and the floors of words that have one."""

    name: str
    domain: tuple[str, ...]
    optional: bool
    floors: Mapping[str, Floor] = field(default_factory=dict)
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class OperandSpec:
    """One operand of a form; see the module's text for the notation."""

    name: str
    kind: str  # "value", "address", "raw", "parts"
    type: str = ""
    written: bool = False
    read: bool = True
    count: str = ""
    pair: bool = False
    paired: bool = False
    relaxed: bool = False
    sink: bool = False
    constant: bool = False
    untyped: bool = False
    negatable: bool = False
    optional: bool = False
    needs: str = ""
    hidden: bool = False
    selector: str = ""
    signable: bool = False
    #: a group of two or four may stand for a shorter one, whose last elements do not matter
    padded: bool = False
    #: between brackets: an address in a register of the type's width
    pointer: bool = False
    #: the operands between one pair of brackets
    parts: tuple[OperandSpec, ...] = ()
    #: what the second destination of a pair needs
    pair_floor: Floor = ANY


#: The part selectors of video instructions by kind: a part of a scalar operand, the elements that
#: a SIMD operand takes from both sources, and the elements that a SIMD instruction computes.
SELECTORS: Final[Mapping[str, re.Pattern[str]]] = {
    "part": re.compile(r"b[0-3]|h[01]"),
    "halves": re.compile(r"h[0-3]{2}"),
    "bytes": re.compile(r"b[0-7]{4}"),
    "half_mask": re.compile(r"h(?=.)1?0?"),
    "byte_mask": re.compile(r"b(?=.)3?2?1?0?"),
}

_SLOT = re.compile(
    r"\s*(?P<name>\w+(?:::\w+)*)(?P<fixed>!)?(?P<opt>\?)?(?P<set>:\{(?P<words>[^}]*)\})?"
)

#: Words that may be given twice, which changes nothing (measured).
_REPEATABLE = frozenset(
    {"sat", "satfinite", "relu", "approx", "cc", "uni", "sync", "NaN", "shiftamt"}
)

_OPERAND = re.compile(
    r"(?P<flags>[=+^~#!$%&'-]*)(?P<name>\w+)\.(?P<type>\w+)(:(?P<selector>\w+))?"
    r"(\*(?P<count>\w+))?(?P<pair>\|p(?P<must>!)?(@(?P<floor>[\w.+]+))?)?"
    r"(?P<opt>\?(?P<needs>\w+)?)?$"
)
_BRACKET = re.compile(r"\[(?P<inner>[^]]*)\](?P<opt>\?\w*)?$")


def _parse_slots(text: str) -> tuple[Slot, ...]:
    slots = []
    at = 0
    text = text.strip()
    while at < len(text):
        found = _SLOT.match(text, at)
        assert found, f"bad form {text!r} at {at}"
        at = found.end()
        words = found["words"].split() if found["set"] else [found["name"]]
        floors = {}
        domain = []
        for word in words:
            word, _, floor = word.partition("@")
            domain.append(word)
            if floor:
                floors[word] = Floor.parse(floor)
        name = found["name"].replace("::", "__")
        fixed = bool(found["fixed"])
        slots.append(Slot(name, tuple(domain), bool(found["opt"]), floors, fixed))
    return tuple(slots)


def _parse_bracket(inner: list[str], opt: str) -> OperandSpec:
    needs = opt[1:]
    optional = bool(opt) and not needs
    if len(inner) == 1 and "." not in inner[0]:
        return OperandSpec(inner[0], "address", optional=optional, needs=needs)
    parts = tuple(_parse_operand(part if "." in part else f"[{part}]") for part in inner)
    return OperandSpec(parts[0].name, "parts", optional=optional, needs=needs, parts=parts)


def _parse_operand(text: str) -> OperandSpec:
    text = text.strip()
    bracket = _BRACKET.match(text)
    if bracket:
        return _parse_bracket(bracket["inner"].split(), bracket["opt"] or "")
    optional = text.endswith("?")
    if text.startswith("@"):
        return OperandSpec(text.rstrip("?")[1:], "raw", optional=optional)
    found = _OPERAND.match(text)
    assert found, f"bad operand {text!r}"
    flags = found["flags"]
    return OperandSpec(
        found["name"],
        "value",
        found["type"],
        written="=" in flags or "+" in flags,
        read="=" not in flags,
        count=found["count"] or "",
        pair=bool(found["pair"]),
        paired=bool(found["must"]),
        pair_floor=Floor.parse(found["floor"]) if found["floor"] else ANY,
        relaxed="^" in flags,
        sink="~" in flags,
        constant="#" in flags,
        untyped="'" in flags,
        negatable="!" in flags,
        optional=bool(found["opt"]) and not found["needs"],
        needs=found["needs"] or "",
        hidden="$" in flags,
        padded="%" in flags,
        pointer="&" in flags,
        selector=found["selector"] or "",
        signable="-" in flags,
    )


class FormMismatch(Exception):
    """Why a modifier list does not fit a form; ``score`` is how far it got."""

    def __init__(self, message: str, score: int, word: str | None = None) -> None:
        super().__init__(message)
        self.score = score
        self.word = word


#: Types of elements in memory and of how they are padded there, which stand in this order.
_CONTAINERS = frozenset({"b8x16", "b6x16_p32", "b4x16_p64"})


@cache
def _ordered(word: str) -> str:
    """Which words keep their order among themselves: types, state spaces, or (empty) none."""
    if word in SCALAR_TYPES or word in _CONTAINERS:
        return "type"
    return "space" if word.partition("::")[0] in STATE_SPACES else ""


class Form:
    """One syntax line of the ISA.

    ``floor`` is the lowest PTX ISA version and target (``"7.0+sm_80"``).  ``unsupported`` marks a
    form that is legal PTX and that ptxsim does not execute; it holds the reason.
    """

    def __init__(
        self, modifiers: str, operands: str, *, floor: str = "", unsupported: str = ""
    ) -> None:
        self.modifiers = modifiers
        self.slots = _parse_slots(modifiers)
        parts = [p for p in operands.split(",") if p.strip()]
        self.operands = tuple(_parse_operand(p) for p in parts)
        self.floor = Floor.parse(floor) if floor else ANY
        self.unsupported = unsupported
        self._places: dict[str, list[int]] = {}
        for index, slot in enumerate(self.slots):
            for word in slot.domain:
                self._places.setdefault(word, []).append(index)

    def __repr__(self) -> str:
        return f"Form({self.modifiers!r})"

    def match(self, words: tuple[str, ...]) -> Mods:
        """Assign modifier words to slots, or raise :class:`FormMismatch`.

        ptxas takes most modifiers in any order (only type words and state spaces keep theirs
        among themselves), and so do we: a word goes to the first free slot that knows it.
        """
        taken: dict[str, str] = {}
        last = {"type": -1, "space": -1, "": -1}
        fixed = last_fixed = 0
        for score, word in enumerate(words):
            places = self._places.get(word)
            if places is None:
                raise FormMismatch(f"modifier .{word} is not legal here", score, word)
            ordered = _ordered(word)
            for index in places:
                slot = self.slots[index]
                if slot.name in taken or index < last[ordered]:
                    continue
                if slot.fixed:
                    if fixed != score or index < last_fixed:
                        continue
                    fixed, last_fixed = fixed + 1, index
                taken[slot.name] = word
                if ordered:
                    last[ordered] = index
                break
            else:
                if word in _REPEATABLE and word in taken.values():
                    continue
                why = "appears too often or in the wrong place"
                raise FormMismatch(f"modifier .{word} {why}", score, word)
        for slot in self.slots:
            if slot.name not in taken:
                if not slot.optional:
                    wanted = " ".join("." + w for w in slot.domain)
                    raise FormMismatch(f"a modifier is missing: one of {wanted}", len(words))
                taken[slot.name] = ""
        return Mods(taken)

    def floors(self, m: Mods) -> Iterator[tuple[str, Floor]]:
        """The floors that these modifiers bring, each with the word that brings it."""
        if self.floor is not ANY:
            yield "", self.floor
        for slot in self.slots:
            word = m[slot.name]
            if word in slot.floors:
                yield word, slot.floors[word]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a machine's result may lie from the modelled one, which is rounded correctly.

    The larger of ``relative`` times the result and ``absolute``.  The bound of the ISA is from the
    exact value: half a unit of ours is added.
    """

    relative: float = 0.0
    absolute: float = 0.0

    @staticmethod
    def of(*, relative: float = 0.0, absolute: float = 0.0, bits: int = 23) -> Tolerance:
        """A bound of the ISA for results with ``bits`` stored mantissa bits.

        >>> Tolerance.of(relative=2**-22) == Tolerance(2**-22 + 2**-24, 0.0)
        True
        """
        return Tolerance(relative + 2.0 ** -(bits + 1), absolute)

    @staticmethod
    def ulp(n: int) -> Tolerance:
        """Units in the last place of an f32: one is at most 2^-23 of the number."""
        return Tolerance.of(relative=n * 2.0**-23)


class Instruction:
    """Base of all records: what resolve, compile and the coverage page need to know."""

    name: ClassVar[str]
    isa: ClassVar[str]
    floor: ClassVar[Floor] = ANY
    forms: tuple[Form, ...] = ()
    #: All forms are approximate: their results are within the documented error, not exact, which
    #: :meth:`tolerance` states.
    approximate: ClassVar[bool] = False
    #: Starts a basic block of its own because lanes may have to wait for others here.
    collective: ClassVar[bool] = False
    #: For collectives: the finding class when lanes wait here for ever.
    waits_as: ClassVar[str] = "collective-divergence"
    #: For collectives that exchange no data: lanes at different instructions of this name may meet.
    meets: ClassVar[str] = ""
    #: Ends a basic block: the record's ``transfer`` decides where lanes go.
    control: ClassVar[bool] = False
    #: A control instruction whose transfer looks at the guard itself (``bra``).
    reads_guard: ClassVar[bool] = False
    #: Undefined bits of registers matter here (addresses, branches, collectives): a finding.
    needs_defined: ClassVar[bool] = False
    #: Operands whose undefined bits do not matter all the same: they only pass through.
    propagates: ClassVar[tuple[str, ...]] = ()
    #: The operand that receives what was read from memory, undefined bits included.
    receives: ClassVar[str] = ""
    #: Its result can have undefined bits though its sources have none, which its step then marks.
    loses: ClassVar[bool] = False
    #: Operands that are wmma fragments, whose tags the record itself keeps.
    fragment_operands: ClassVar[tuple[str, ...]] = ()
    #: Operands of which only some lanes count, so that the record checks them by itself.
    checks_lanes: ClassVar[tuple[str, ...]] = ()
    #: The result is the source, bit for bit, when both are registers.
    copies: ClassVar[bool] = False
    #: Executions are counted even without a tag, since lanes with a false guard count too.
    counts_guard: ClassVar[bool] = False
    #: Findings and traps beyond those of memory operands, by class.
    traps: ClassVar[tuple[str, ...]] = ()
    #: Why ptxsim executes none of the forms; empty if each form says so itself.
    unsupported: ClassVar[str] = ""

    def check(self, m: Mods) -> str | None:
        """A reason why this combination of modifiers is illegal, or None."""
        return None

    def check_constant(self, name: str, value: int, m: Mods) -> str | None:
        """A reason why this constant is illegal as operand ``name``, or None.

        An element of a brace group is asked for as ``name[0]``.
        """
        return None

    def check_symbol(self, name: str, space: str, m: Mods) -> str | None:
        """A reason why the address of a variable in ``space`` is illegal as operand ``name``.

        Few instructions take one (measured).
        """
        return "a register is expected; mov the address to one first"

    def combined_floor(self, m: Mods) -> tuple[str, Floor] | None:
        """A floor that only a combination of modifiers has, with the words that bring it."""
        return None

    def type_of(self, spec_type: str, m: Mods) -> ScalarType:
        """The type that an operand's type word stands for under these modifiers."""
        return self.types_of(spec_type, m)[0]

    def types_of(self, spec_type: str, m: Mods) -> tuple[ScalarType, ...]:
        """The types of the elements of a group, of which there are several; otherwise one type."""
        if m.get(spec_type):
            return (SCALAR_TYPES[m[spec_type]],)
        if spec_type in SCALAR_TYPES:
            return (SCALAR_TYPES[spec_type],)
        return tuple(SCALAR_TYPES[word] for word in getattr(self, spec_type)(m).split())

    def count_of(self, spec_count: str, m: Mods) -> int:
        """How many registers a brace group has; 0 for a plain operand."""
        if spec_count == "":
            return 0
        if spec_count.isdigit():
            return int(spec_count)
        if spec_count in m:
            word = m[spec_count]
            return int(word[1:]) if word else 0
        return int(getattr(self, spec_count)(m))

    def fragments(self, m: Mods, target: Target) -> tuple[tuple[str, Fragment], ...]:
        """The register fragments of the operands, with what each is, for ``ptxsim isa``."""
        return ()

    def tolerance(self, m: Mods) -> Tolerance | None:
        """How far machines may differ from the result under these modifiers; None: not a bit."""
        return None

    def memory_order(self, m: Mods) -> MemoryOrder:
        """How it takes part in the memory model; weak if it says nothing."""
        return WEAK

    def lane_matters(self, m: Mods) -> bool:
        """Whether it matters which lane holds a value: it is stored or exchanged."""
        return False

    def waits(self, m: Mods) -> bool:
        """Whether it reads what other threads may write, so that a loop around it can be a wait."""
        return False

    def falls_through(self, m: Mods) -> bool:
        """For control instructions: whether lanes may go on behind it when the guard is true."""
        return False

    def bind(self, b: Binder) -> Step:
        """The step that executes one bound instruction."""
        raise InternalError(f"{self.name} has no semantics of this kind")

    def definedness(self, b: Binder) -> Step | None:
        """What it does to undefined bits, to run before the step, if it says so itself.

        By default the results of an instruction that is not pure are defined.  Only called, and
        run, where undefined bits are around.
        """
        return None

    def gate(self, b: Binder) -> Any:
        """For collectives: a function of registers and lanes that says which lanes can go now.

        It returns None for all, or a mask over the lane axis; the others wait for more lanes.
        """
        raise InternalError(f"{self.name} has no semantics of this kind")

    def promise(self, b: Any) -> Step | None:
        """For control instructions: what looks, before the guard acts, at what lanes agreed to."""
        return None

    def transfer(self, b: Any) -> Any:
        """For control instructions: the function of registers and lanes that moves them on."""
        raise InternalError(f"{self.name} has no semantics of this kind")


class Pure(Instruction):
    """An instruction whose results depend on its sources alone, lane by lane.

    ``evaluate(m)`` returns a function from the source values, in operand order, to the result (a
    tuple for several destinations).  Values are arrays of unsigned bit patterns of the operand's
    width with lanes last; a value that all lanes share has length 1.
    """

    @abstractmethod
    def evaluate(self, m: Mods) -> Callable[..., Any]:
        """The function of the source values for these modifiers."""

    def undefined_bits(self, m: Mods) -> Rule | None:
        """Which bits of the results are undefined (:mod:`ptxsim.isa.definedness`).

        None: packed elements one by one, any other result as a whole if a source has such a bit.
        """
        return None

    def undefined_bits_alike(self, m: Mods, alike: tuple[int, ...]) -> Rule | None:
        """The same where a register is several of the sources, which then have equal bits.

        ``alike[i]`` is the first source that is the register of source ``i``.
        """
        return self.undefined_bits(m)

    def bind(self, b: Binder) -> Step:
        return b.pure(self.evaluate(b.mods))


#: The record that stands for an instruction that is not executed; no text can name it.
STAND_IN: Final = "unsupported"

#: Mnemonics that end in ``sync``, which may stand behind other modifiers (measured).
_LATE_SYNC: Final = frozenset({"elect", "match", "redux", "shfl", "vote"})

#: The parts of the longest mnemonic (``multimem.cp.reduce.async.bulk``).
_LONGEST: Final = 5


class Registry:
    """All records by mnemonic; a mnemonic may have several (one per chapter of the ISA)."""

    def __init__(self) -> None:
        self._records: dict[str, list[Instruction]] = {}

    def add(self, record: Instruction) -> None:
        self._records.setdefault(record.name, []).append(record)

    def __contains__(self, name: str) -> bool:
        return name in self._records

    def __getitem__(self, name: str) -> list[Instruction]:
        return self._records[name]

    def get(self, name: str) -> list[Instruction]:
        """The records of a mnemonic, none for one that has no record."""
        return self._records.get(name, [])

    def names(self) -> list[str]:
        return sorted(self._records)

    @staticmethod
    def canonical(opcode: tuple[str, ...]) -> tuple[str, ...]:
        """The opcode with the parts of its mnemonic in front; sync may stand twice.

        >>> Registry.canonical(("match", "b32", "sync", "any"))
        ('match', 'any', 'sync', 'b32')
        """
        if opcode[0] not in _LATE_SYNC or "sync" not in opcode[1:]:
            return opcode
        head = [w for w in opcode if w in ("any", "all")][:1] if opcode[0] == "match" else []
        rest = [w for w in opcode[1:] if w != "sync" and w not in head]
        return (opcode[0], *head, "sync", *rest)

    def mnemonic(self, opcode: tuple[str, ...]) -> str | None:
        """The mnemonic that a dotted opcode begins with, or None if the ISA has none.

        It is the longest prefix that has a record: ``cp.async.bulk`` is not ``cp.async``.
        """
        for length in range(min(len(opcode), _LONGEST), 0, -1):
            name = ".".join(opcode[:length])
            if name in self._records and name != STAND_IN:
                return name
        return None

    def records(self) -> Iterator[Instruction]:
        for name in self.names():
            yield from self._records[name]


registry = Registry()

_R = TypeVar("_R", bound=type[Instruction])


def instruction(name: str, *, isa: str, floor: str = "") -> Callable[[_R], _R]:
    """Register a record under ``name``, the mnemonic with its fixed parts (``cp.async``).

    ``isa`` is the title of its section in the PTX ISA, ``floor`` what every form needs.
    """

    def add(cls: _R) -> _R:
        cls.name = name
        cls.isa = isa
        for form in cls.forms:
            form.unsupported = form.unsupported or cls.unsupported
        if floor:
            cls.floor = Floor.parse(floor)
        registry.add(cls())
        return cls

    return add

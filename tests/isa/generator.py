"""Random instructions from the records: legal ones, and near misses that one change makes.

Everything follows from a seeded ``random.Random``.  Lines are statements for the kernel of
:func:`module`, which declares registers of every type, one line of text each.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from form_samples import sample_words

from ptxsim.isa.record import Form, Instruction, Mods, OperandSpec, registry
from ptxsim.types import ScalarType

__all__ = ["CHANGES", "FIRST_LINE", "Drawn", "draw", "legal", "miss", "module"]

#: Register names by type; names of one type end in 0 to 15.
REGISTERS = {
    "pred": "%p", "b8": "%b", "u8": "%ub", "s8": "%sb", "b16": "%h", "u16": "%uh", "s16": "%sh",
    "f16": "%fh", "b32": "%r", "u32": "%u", "s32": "%s", "f32": "%f", "f16x2": "%fp", "b64": "%rd",
    "u64": "%ud", "s64": "%sd", "f64": "%fd", "b128": "%q",
}  # fmt: skip

_DECLARED = " ".join(f".reg .{type_} {name}<16>;" for type_, name in REGISTERS.items())
_HEAD = """.global .align 256 .b8 gv[4096]; .const .align 16 .b8 cv[256];
.shared .align 1024 .b8 sv[4096];
.func (.param .b32 rv) fn(.param .b32 pa){ ret; }
.entry kern(.param .u64 kp){
"""
#: The line of the first instruction of :func:`module`.
FIRST_LINE = 9


def module(lines: Sequence[str], version: str, target: str) -> str:
    """A module whose kernel holds the lines, one per line of text, each in a scope of its own."""
    declared = _DECLARED
    if tuple(map(int, version.split("."))) < (8, 3) or int(target[3:].rstrip("af")) < 70:
        declared = declared.replace(" .reg .b128 %q<16>;", "")
    body = "\n".join("{" + line + "}" for line in lines)
    head = f".version {version}\n.target {target}\n.address_size 64\n"
    return f"{head}{_HEAD}{declared} .local .align 16 .b8 lv[64];\nL0:{body}\nLE: ret;\n}}\n"


@dataclass(frozen=True, slots=True)
class Drawn:
    """An instruction in parts, with the record and form that it came from."""

    record: Instruction
    form: Form
    words: tuple[str, ...]
    operands: tuple[str, ...]
    guard: str = ""

    @property
    def text(self) -> str:
        opcode = ".".join((self.record.name, *self.words))
        return f"{self.guard}{opcode} {', '.join(self.operands)}".rstrip() + ";"


# --- legal ------------------------------------------------------------------------------------


def draw(rng: random.Random, names: Sequence[str]) -> Drawn | None:
    """An instruction of a mnemonic that is as likely as any other; None if it cannot be made up."""
    record = rng.choice(registry[rng.choice(names)])
    form = rng.choice(record.forms)
    found = next(sample_words(record, form, rng, 20), None)
    if found is None:
        return None
    words, m = found
    specs = [s for s in form.operands if not s.hidden and (not s.needs or m[s.needs])]
    optional = [s for s in specs if s.optional]
    gone = optional[: rng.randint(0, len(optional))]
    operands = []
    for spec in specs:
        if spec in gone:
            continue
        text = _operand(record, spec, m, rng)
        if text is None:
            return None
        operands.append(text)
    guard = rng.choice(("", "", "", "@%p9 ", "@!%p9 "))
    return Drawn(record, form, words, tuple(operands), guard)


def legal(rng: random.Random, names: Sequence[str]) -> Iterator[Drawn]:
    """Instructions without end."""
    while True:
        drawn = draw(rng, names)
        if drawn is not None:
            yield drawn


def _operand(record: Instruction, spec: OperandSpec, m: Mods, rng: random.Random) -> str | None:
    if spec.kind == "address":
        return _address(record, m, rng)
    if spec.kind == "raw":
        return {"label": "L0", "sink": "_"}.get(spec.name)
    type_ = record.type_of(spec.type, m)
    count = record.count_of(spec.count, m)
    if count:
        same = _registers(spec, type_, rng)
        one = rng.choice(same)
        untyped = f"b{one[1:]}" if f"b{one[1:]}" in same else one
        pair = (one, untyped)  # whatever may stand beside each other
        elements = (_scalar(record, spec, type_, m, rng, pair, i) for i in range(count))
        return "{" + ", ".join(elements) + "}"
    text = _scalar(record, spec, type_, m, rng, _registers(spec, type_, rng), None)
    if spec.paired or (spec.pair and rng.random() < 0.5):
        return f"{text}|%p{rng.randrange(8)}"
    return text


def _scalar(
    record: Instruction,
    spec: OperandSpec,
    type_: ScalarType,
    m: Mods,
    rng: random.Random,
    registers: Sequence[str],
    element: int | None,
) -> str:
    # ptxas expands constants within fragments, well or badly
    fragment = element is not None and record.name.startswith(("mma", "wmma", "stmatrix"))
    legal = not spec.written and not spec.untyped
    constant = legal and (spec.constant or (not fragment and rng.random() < 0.2))
    if constant and not spec.selector and type_.kind in "busf" and type_.bits <= 64:
        name = spec.name if element is None else f"{spec.name}[{element}]"
        found = _constant(record, name, type_, m, rng)
        if found:
            return found
    text = f"{REGISTERS[rng.choice(registers)]}{rng.randrange(8)}"
    if spec.negatable and rng.random() < 0.3:
        text = "!" + text
    return text


def _registers(spec: OperandSpec, type_: ScalarType, rng: random.Random) -> list[str]:
    """The types of registers that an operand takes: those of its size, or now and then wider."""
    if spec.untyped:
        return [f"b{type_.bits}"]
    if spec.relaxed and type_.kind != "a" and rng.random() < 0.3:
        wider = {8: ["b16", "b32", "b64"], 16: ["b32", "b64"], 32: ["b64"]}
        if type_.bits in wider:
            return [rng.choice(wider[type_.bits])]
    return [t for t in REGISTERS if _fits(type_, t)]


def _fits(type_: ScalarType, register: str) -> bool:
    if type_.kind == "p":
        return register == "pred"
    if type_.bits <= 8:
        return register == "b8"
    if register in (type_.name, f"b{type_.bits}"):
        return True
    if type_.kind in "us":
        return register in (f"u{type_.bits}", f"s{type_.bits}")
    return type_.kind == "b" and register[1:] == str(type_.bits) and register != "pred"


#: Constants of each kind, small ones more often, for an operand takes them more often.
_INTEGERS = ("0", "1", "2", "3", "4", "8", "16", "31", "32", "64", "128", "-1", "-5", "0xff", "255",
             "256", "65535", "0x7fffffff", "0xffffffff", "(2 + 3)")  # fmt: skip
_FLOATS = ("0f3f800000", "0d3ff0000000000000", "1.5", "-2.0", "0.5", "1e10")


def _constant(
    record: Instruction, name: str, type_: ScalarType, m: Mods, rng: random.Random
) -> str | None:
    """A constant that the operand takes, if there is one among those of a few lengths."""
    if type_.kind == "f" and (type_.bits < 32 or type_.name == "f16x2"):
        return None
    texts = list(_FLOATS if type_.kind == "f" else _INTEGERS)
    rng.shuffle(texts)
    for text in texts:
        if record.check_constant(name, _bits(text, type_), m) is None:
            return text
    return None


def _bits(text: str, type_: ScalarType) -> int:
    if type_.kind != "f":
        return (5 if text.startswith("(") else int(text, 0)) & ((1 << type_.bits) - 1)
    value = {"0f3f800000": 1.0, "0d3ff0000000000000": 1.0}.get(text) or float(text)
    kind = "<d" if type_.bits == 64 else "<f"
    return int.from_bytes(struct.pack(kind, value), "little")


def _address(record: Instruction, m: Mods, rng: random.Random) -> str:
    space = m.space.partition("::")[0]
    symbol = {"shared": "sv", "const": "cv", "local": "lv", "param": "kp"}.get(space, "gv")
    forms = ["[%rd1]", "[%rd2]", "[%rd1+16]", "[%ud1+-8]", f"[{symbol}]", f"[{symbol}+16]"]
    if space == "shared":
        forms += ["[%r1]", "[%r1+4]"]
    # ptxas 13.0 takes registers alone in st.bulk; an input parameter is not written
    named = space and record.name != "st.bulk" and (record.name, space) != ("st", "param")
    return rng.choice(forms if named else forms[:4])


# --- near misses --------------------------------------------------------------------------------

_WORDS = sorted({w for r in registry.records() for f in r.forms for s in f.slots for w in s.domain})
_TYPES = ("b8", "b16", "b32", "b64", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f16",
          "bf16", "f16x2", "bf16x2", "f32", "f64", "pred", "b128")  # fmt: skip


def _word_of(drawn: Drawn, rng: random.Random) -> str:
    """A word that the mnemonic knows, or now and then any other."""
    own = [w for f in drawn.record.forms for s in f.slots for w in s.domain]
    return rng.choice(own) if own and rng.random() < 0.85 else rng.choice(_WORDS)


def _replace_word(drawn: Drawn, rng: random.Random) -> Drawn | None:
    if not drawn.words:
        return None
    at = rng.randrange(len(drawn.words))
    old = drawn.words[at]
    new = rng.choice(_TYPES) if old in _TYPES else _word_of(drawn, rng)
    return _with_words(drawn, (*drawn.words[:at], new, *drawn.words[at + 1 :]))


def _drop_word(drawn: Drawn, rng: random.Random) -> Drawn | None:
    if not drawn.words:
        return None
    at = rng.randrange(len(drawn.words))
    return _with_words(drawn, (*drawn.words[:at], *drawn.words[at + 1 :]))


def _add_word(drawn: Drawn, rng: random.Random) -> Drawn | None:
    at = rng.randint(0, len(drawn.words))
    return _with_words(drawn, (*drawn.words[:at], _word_of(drawn, rng), *drawn.words[at:]))


def _double_word(drawn: Drawn, rng: random.Random) -> Drawn | None:
    if not drawn.words:
        return None
    at = rng.randrange(len(drawn.words))
    return _with_words(drawn, (*drawn.words[: at + 1], *drawn.words[at:]))


def _swap_words(drawn: Drawn, rng: random.Random) -> Drawn | None:
    if len(drawn.words) < 2:
        return None
    at = rng.randrange(len(drawn.words) - 1)
    words = list(drawn.words)
    words[at : at + 2] = words[at + 1], words[at]
    return _with_words(drawn, tuple(words))


def _with_words(drawn: Drawn, words: tuple[str, ...]) -> Drawn:
    return Drawn(drawn.record, drawn.form, words, drawn.operands, drawn.guard)


def _other_operand(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.65:
        return f"{rng.choice(list(REGISTERS.values()))}{rng.randrange(8)}"
    if kind < 0.8:
        return rng.choice(_INTEGERS + _FLOATS)
    return rng.choice(("_", "[%rd1]", "{%r1, %r2}", "{%h1, %h2}", "gv", "%tid.x", "%clock64", "L0"))


def _replace_operand(drawn: Drawn, rng: random.Random) -> Drawn | None:
    if not drawn.operands:
        return None
    at = rng.randrange(len(drawn.operands))
    new = _other_operand(rng)
    if drawn.operands[at].startswith("{"):
        elements = drawn.operands[at][1:-1].split(", ")
        elements[rng.randrange(len(elements))] = new if new[0] not in "{[" else "%fd1"
        new = "{" + ", ".join(elements) + "}"
    return _with_operands(drawn, (*drawn.operands[:at], new, *drawn.operands[at + 1 :]))


def _drop_operand(drawn: Drawn, rng: random.Random) -> Drawn | None:
    if not drawn.operands:
        return None
    at = rng.randrange(len(drawn.operands))
    return _with_operands(drawn, (*drawn.operands[:at], *drawn.operands[at + 1 :]))


def _add_operand(drawn: Drawn, rng: random.Random) -> Drawn | None:
    return _with_operands(drawn, (*drawn.operands, _other_operand(rng)))


def _with_operands(drawn: Drawn, operands: tuple[str, ...]) -> Drawn:
    return Drawn(drawn.record, drawn.form, drawn.words, operands, drawn.guard)


#: What a near miss changes: one modifier or one operand, which is the most frequent.
CHANGES: tuple[Callable[[Drawn, random.Random], Drawn | None], ...] = (
    _replace_word, _drop_word, _add_word, _double_word, _swap_words,
    _replace_operand, _replace_operand, _replace_operand, _drop_operand, _add_operand,
)  # fmt: skip


def miss(drawn: Drawn, rng: random.Random) -> Drawn:
    """The instruction after one change that need not make it illegal."""
    while True:
        changed = rng.choice(CHANGES)(drawn, rng)
        if changed is not None and changed != drawn:
            return changed

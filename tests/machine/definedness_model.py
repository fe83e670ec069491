"""A scalar model of 32-bit logic on bits that are 0, 1 or undefined (None), bit by bit.

Each step is written from the ISA text of its instruction, without the package's masks.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product

__all__ = ["STEPS", "Word", "words_of"]

Bit = int | None
#: bits from the lowest
Word = list[Bit]


def words_of(value: int, mask: int) -> Word:
    """The bits of a value of which those in the mask are undefined."""
    return [None if mask >> i & 1 else value >> i & 1 for i in range(32)]


def _each(function: Callable[..., int], *words: Word) -> Word:
    """A function of single bits: defined if every choice of the undefined ones agrees.

    A word that is given twice is one register, which has one value.
    """
    out: Word = []
    names = [id(word) for word in words]
    for bits in zip(*words, strict=True):
        of = dict(zip(names, bits, strict=True))
        choices = product(*((0, 1) if b is None else (b,) for b in of.values()))
        chosen = [dict(zip(of, choice, strict=True)) for choice in choices]
        results = {function(*(one[name] for name in names)) for one in chosen}
        out.append(results.pop() if len(results) == 1 else None)
    return out


def _lut(table: int) -> Callable[[int, int, int], int]:
    return lambda a, b, c: table >> (4 * a + 2 * b + c) & 1


def _choose(a: Word, b: Word, sign: Bit) -> Word:
    """a if the sign is one, else b."""
    if sign is not None:
        return a if sign else b
    return [x if x is not None and x == y else None for x, y in zip(a, b, strict=True)]


def _byte(word: Word, at: int) -> Word:
    return word[8 * at : 8 * at + 8]


def _prmt(a: Word, b: Word, selector: int) -> Word:
    out: Word = []
    for i in range(4):
        nibble = selector >> 4 * i & 15
        byte = _byte(a + b, nibble & 7)
        out += [byte[7]] * 8 if nibble & 8 else byte
    return out


def _field(a: Word, position: int, length: int, signed: bool) -> Word:
    field = a[position : min(position + length, 32)]
    return field + [field[-1] if signed else 0] * (32 - len(field))


def _insert(a: Word, b: Word, position: int, length: int) -> Word:
    inside = range(position, min(position + length, 32))
    return [a[i - position] if i in inside else b[i] for i in range(32)]


#: line and meaning by name: from a random source, the line's constants and the function of words
Step = Callable[[random.Random], tuple[str, Callable[[Word, Word, Word], Word]]]


def _fixed(line: str, function: Callable[[Word, Word, Word], Word]) -> Step:
    return lambda rng: (line, function)


def _counted(line: str, function: Callable[[Word, Word, int], Word], below: int = 32) -> Step:
    def step(rng: random.Random) -> tuple[str, Callable[[Word, Word, Word], Word]]:
        k = rng.randrange(below)
        return line.replace("{k}", str(k)), lambda a, b, c: function(a, b, k)

    return step


def _fielded(line: str, function: Callable[[Word, Word, int, int], Word]) -> Step:
    def step(rng: random.Random) -> tuple[str, Callable[[Word, Word, Word], Word]]:
        k, n = rng.randrange(32), rng.randrange(1, 33)
        text = line.replace("{k}", str(k)).replace("{n}", str(n))
        return text, lambda a, b, c: function(a, b, k, n)

    return step


def _lop3(rng: random.Random) -> tuple[str, Callable[[Word, Word, Word], Word]]:
    table = rng.randrange(256)
    return f"lop3.b32 {{d}}, {{a}}, {{b}}, {{c}}, {table};", lambda a, b, c: _each(
        _lut(table), a, b, c
    )


def _prmt_step(rng: random.Random) -> tuple[str, Callable[[Word, Word, Word], Word]]:
    selector = rng.randrange(1 << 16)
    return f"prmt.b32 {{d}}, {{a}}, {{b}}, {selector};", lambda a, b, c: _prmt(a, b, selector)


STEPS: list[Step] = [
    _fixed("and.b32 {d}, {a}, {b};", lambda a, b, c: _each(lambda x, y: x & y, a, b)),
    _fixed("or.b32 {d}, {a}, {b};", lambda a, b, c: _each(lambda x, y: x | y, a, b)),
    _fixed("xor.b32 {d}, {a}, {b};", lambda a, b, c: _each(lambda x, y: x ^ y, a, b)),
    _fixed("not.b32 {d}, {a};", lambda a, b, c: _each(lambda x: 1 - x, a)),
    _fixed("mov.b32 {d}, {a};", lambda a, b, c: a),
    _lop3,
    _counted("shl.b32 {d}, {a}, {k};", lambda a, b, k: ([0] * k + a)[:32]),
    _counted("shr.u32 {d}, {a}, {k};", lambda a, b, k: a[k:] + [0] * k),
    _counted("shr.s32 {d}, {a}, {k};", lambda a, b, k: a[k:] + [a[31]] * k),
    _counted("shf.l.wrap.b32 {d}, {a}, {b}, {k};", lambda a, b, k: (a + b)[32 - k : 64 - k]),
    _counted("shf.r.wrap.b32 {d}, {a}, {b}, {k};", lambda a, b, k: (a + b)[k : 32 + k]),
    _fielded("bfe.u32 {d}, {a}, {k}, {n};", lambda a, b, k, n: _field(a, k, n, False)),
    _fielded("bfe.s32 {d}, {a}, {k}, {n};", lambda a, b, k, n: _field(a, k, n, True)),
    _fielded("bfi.b32 {d}, {a}, {b}, {k}, {n};", lambda a, b, k, n: _insert(a, b, k, n)),
    _fixed("brev.b32 {d}, {a};", lambda a, b, c: a[::-1]),
    _prmt_step,
    _fixed("cvt.u32.u8 {d}, {a};", lambda a, b, c: a[:8] + [0] * 24),
    _fixed("cvt.s32.s8 {d}, {a};", lambda a, b, c: a[:8] + [a[7]] * 24),
    _fixed("cvt.s32.s16 {d}, {a};", lambda a, b, c: a[:16] + [a[15]] * 16),
    _fixed("{{ mov.b32 {{%h1, %h2}}, {a}; mov.b32 {d}, {{%h2, %h1}}; }}",
           lambda a, b, c: a[16:] + a[:16]),
    _fixed("{{ mov.b64 %d1, {{{a}, {b}}}; shr.u64 %d1, %d1, 12; mov.b64 {{{d}, _}}, %d1; }}",
           lambda a, b, c: (a + b)[12:44]),
    _fixed("{{ setp.lt.s32 %p1, {c}, 0; selp.b32 {d}, {a}, {b}, %p1; }}",
           lambda a, b, c: _choose(a, b, c[31])),
    _fixed("slct.b32.s32 {d}, {a}, {b}, {c};", lambda a, b, c: _choose(b, a, c[31])),
    _fixed("{{ st.shared.u32 [%s], {a}; ld.shared.s8 {d}, [%s+1]; }}",
           lambda a, b, c: a[8:16] + [a[15]] * 24),
]  # fmt: skip

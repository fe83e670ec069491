"""What is called defined does not depend on undefined bits; exact rules agree with a scalar model.

Lanes come in families of eight with equal values and masks and different noise in the undefined
bits: a bit that is called defined in one lane must be the same in all lanes of its family.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from .definedness_kernels import INPUTS, known_results
from .definedness_model import STEPS, Word, words_of

FAMILY = 8
FAMILIES = 32

#: instructions by result: {d} a new register, {a} {b} {c} sources, {k} {n} small constants
LOGIC = [
    "and.b32 {d}, {a}, {b};", "or.b32 {d}, {a}, {b};", "xor.b32 {d}, {a}, {b};",
    "not.b32 {d}, {a};", "mov.b32 {d}, {a};", "lop3.b32 {d}, {a}, {b}, {c}, {lut};",
    "shl.b32 {d}, {a}, {k};", "shr.u32 {d}, {a}, {k};", "shr.s32 {d}, {a}, {k};",
    "shf.l.wrap.b32 {d}, {a}, {b}, {k};", "shf.r.clamp.b32 {d}, {a}, {b}, {k};",
    "bfe.u32 {d}, {a}, {k}, {n};", "bfe.s32 {d}, {a}, {k}, {n};",
    "bfi.b32 {d}, {a}, {b}, {k}, {n};", "brev.b32 {d}, {a};", "prmt.b32 {d}, {a}, {b}, {lut};",
    "cvt.u32.u8 {d}, {a};", "cvt.s32.s8 {d}, {a};", "cvt.s32.s16 {d}, {a};",
    "szext.wrap.s32 {d}, {a}, {k};",
    "{{ mov.b32 {{%h1, %h2}}, {a}; mov.b32 {d}, {{%h2, %h1}}; }}",
    "{{ mov.b64 %d1, {{{a}, {b}}}; shr.u64 %d1, %d1, {k}; mov.b64 {{{d}, _}}, %d1; }}",
    "{{ setp.lt.s32 %p1, {x}, 0; selp.b32 {d}, {a}, {b}, %p1; }}",
    "{{ st.shared.u32 [%s], {a}; ld.shared.u8 {d}, [%s+{byte}]; }}",
    "{{ st.shared.u32 [%s], {a}; ld.shared.s16 {d}, [%s+2]; }}",
]  # fmt: skip
OTHER = [
    "cnot.b32 {d}, {a};", "shl.b32 {d}, {a}, {b};", "shr.s32 {d}, {a}, {b};",
    "shf.l.clamp.b32 {d}, {a}, {b}, {c};", "bfe.s32 {d}, {a}, {b}, {c};",
    "bfi.b32 {d}, {a}, {b}, {k}, {c};", "prmt.b32 {d}, {a}, {b}, {c};",
    "prmt.b32.f4e {d}, {a}, {b}, {c};", "prmt.b32.rc8 {d}, {a}, {b}, {c};",
    "popc.b32 {d}, {a};", "clz.b32 {d}, {a};", "bfind.u32 {d}, {a};",
    "szext.clamp.u32 {d}, {a}, {b};", "bmsk.clamp.b32 {d}, {a}, {b};",
    "add.u32 {d}, {a}, {b};", "sub.u32 {d}, {a}, {b};", "mul.lo.u32 {d}, {a}, {b};",
    "mul.hi.u32 {d}, {a}, {b};", "mad.lo.s32 {d}, {a}, {b}, {c};", "neg.s32 {d}, {a};",
    "abs.s32 {d}, {a};", "min.s32 {d}, {a}, {b};", "max.u32 {d}, {a}, {b};",
    "add.sat.s32 {d}, {a}, {b};", "sad.u32 {d}, {a}, {b}, {c};", "mul24.lo.u32 {d}, {a}, {b};",
    "dp4a.u32.u32 {d}, {a}, {b}, {c};", "div.u32 {d}, {a}, 7;", "rem.s32 {d}, {a}, 5;",
    "add.u16x2 {d}, {a}, {b};", "min.s16x2 {d}, {a}, {b};",
    "{{ add.cc.u32 %r150, {a}, {b}; addc.u32 {d}, {c}, 0; }}",
    "{{ mul.wide.u32 %d1, {a}, {b}; mov.b64 {{_, {d}}}, %d1; }}",
    "{{ mul.wide.s32 %d1, {a}, {b}; mov.b64 {{{d}, _}}, %d1; }}",
    "{{ mad.wide.u32 %d1, {a}, {n}, 7; mov.b64 {{{d}, _}}, %d1; }}",
    "{{ shl.b32 {d}, {b}, {k}; mul.lo.u32 {d}, {a}, {d}; }}",
    "{{ and.b32 {d}, {b}, 3; mad.hi.s32 {d}, {a}, {d}, {c}; }}",
    "{{ and.b32 {d}, {b}, 0xff000000; mul24.hi.s32 {d}, {a}, {d}; or.b32 {d}, {d}, {c}; }}",
    "{{ shl.b32 {d}, {b}, {k}; mad24.lo.s32 {d}, {d}, {a}, {c}; }}",
    "{{ sub.cc.u32 {d}, {a}, {b}; subc.cc.u32 {d}, {c}, {c}; subc.u32 {d}, {d}, {a}; }}",
    "add.f32 {d}, {a}, {b};", "fma.rn.f32 {d}, {a}, {b}, {c};", "neg.f32 {d}, {a};",
    "add.f16x2 {d}, {a}, {b};", "fma.rn.f16x2 {d}, {a}, {b}, {c};", "max.bf16x2 {d}, {a}, {b};",
    "cvt.sat.s8.s32 {d}, {a};", "cvt.rn.f32.u32 {d}, {a};", "cvt.rzi.s32.f32 {d}, {a};",
    "cvt.rn.f16x2.f32 {d}, {a}, {b};", "cvt.rn.bf16x2.f32 {d}, {a}, {b};",
    "{{ cvt.rn.satfinite.e4m3x2.f32 %h1, {a}, {b}; mov.b32 {d}, {{%h1, %h1}}; }}",
    "{{ cvt.rn.satfinite.e4m3x2.f16x2 %h1, {a}; cvt.rn.f16x2.e4m3x2 {d}, %h1; }}",
    "cvt.pack.sat.u8.s32.b32 {d}, {a}, {b}, {c};", "cvt.pack.sat.s16.s32 {d}, {a}, {b};",
    "{{ setp.lt.u32 %p1|%p2, {a}, {b}; selp.b32 {d}, {k}, {n}, %p1; selp.b32 {d}, {d}, 7, %p2; }}",
    "{{ setp.eq.s32 %p1, {a}, {b}; selp.b32 {d}, {a}, {c}, %p1; }}",
    "{{ setp.ge.and.s32 %p1, {a}, {b}, %p3; selp.b32 {d}, {c}, {b}, %p1; }}",
    "{{ setp.gt.f32 %p3, {a}, {b}; selp.b32 {d}, 1, 0, %p3; }}",
    "{{ setp.ne.u32 %p3, {a}, {k}; setp.le.or.u32 %p4, {b}, {n}, !%p3; selp.b32 {d}, 1, 0, %p4; }}",
    "{{ setp.eq.f16x2 %p1|%p2, {a}, {b}; selp.b32 {d}, {n}, {c}, %p2; }}",
    "set.lt.u32.s32 {d}, {a}, {b};", "set.gt.f16x2.f16x2 {d}, {a}, {b};",
    "slct.u32.s32 {d}, {a}, {b}, {c};", "slct.b32.f32 {d}, {a}, {b}, {c};",
    "{{ lop3.or.b32 {d}|%p1, {a}, {b}, {c}, {lut}, %p3; selp.b32 {d}, {d}, 3, %p1; }}",
    "vadd.s32.s32.s32 {d}, {a}, {b};",
    "shfl.sync.bfly.b32 {d}, {a}, 3, 31, -1;",
    "{{ setp.lt.s32 %p5, {x}, 0; mov.b32 {d}, {a}; @%p5 mov.b32 {d}, {b}; }}",
    "{{ setp.lt.s32 %p5, {x}, 0; @%p5 mov.b32 {d}, {a}; @!%p5 add.u32 {d}, {b}, 1; }}",
]  # fmt: skip


def _inputs(rng: random.Random) -> tuple[NDArray[np.uint32], ...]:
    """Values, masks and noise; half of the words are defined, the last one always."""
    shape = (FAMILIES, INPUTS)
    numbers = np.random.default_rng(rng.randrange(1 << 32))
    value = numbers.integers(0, 1 << 32, shape, np.uint32)
    value = np.where(numbers.random(shape) < 0.3, value & np.uint32(15), value)
    mask = numbers.integers(0, 1 << 32, shape, np.uint32)
    for shift in (0, 7):  # sparse masks, fields and bytes
        sparse = numbers.random(shape) < 0.4
        mask = np.where(sparse, mask & (mask << np.uint32(shift)) & np.uint32(0xFF00F0FF), mask)
    mask = np.where(numbers.random(shape) < 0.4, np.uint32(0), mask)
    mask[:, -1] = 0
    lanes = (FAMILIES * FAMILY, INPUTS)
    noise = numbers.integers(0, 1 << 32, lanes, np.uint32)
    return np.repeat(value, FAMILY, axis=0), np.repeat(mask, FAMILY, axis=0), noise


def _line(template: str, rng: random.Random, have: list[str], d: str) -> str:
    return "    " + template.format(
        d=d, a=rng.choice(have), b=rng.choice(have), c=rng.choice(have), x="%r3",
        lut=rng.randrange(256), k=rng.randrange(32), n=rng.randrange(1, 33), byte=rng.randrange(4),
    )  # fmt: skip


def _check_families(value: NDArray[np.uint32], lost: NDArray[np.uint32], lines: list[str]) -> None:
    values = value.reshape(len(value), FAMILIES, FAMILY)
    masks = lost.reshape(values.shape)
    differs = np.bitwise_or.reduce(values ^ values[:, :, :1], axis=2)
    called = np.bitwise_and.reduce(masks, axis=2)
    wrong = np.argwhere((differs & ~called) != 0)
    assert not len(wrong), lines[wrong[0][0]]


@pytest.mark.parametrize("template", [*LOGIC, *OTHER])
def test_one_instruction(template: str) -> None:
    rng = random.Random(template)
    for _ in range(2):
        inputs = _inputs(rng)
        sources = [f"%r{i}" for i in rng.sample(range(3), 3)]
        fixed = rng.randrange(2)  # also with a source that is defined
        line = "    " + template.format(
            d="%r9", a=sources[0], b="%r3" if fixed else sources[1], c=sources[2], x="%r3",
            lut=rng.randrange(256), k=rng.randrange(32), n=rng.randrange(1, 33), byte=1,
        )  # fmt: skip
        start = ["    setp.lt.s32 %p3, %r3, 5;"]
        value, lost = known_results([*start, line], ["%r9"], *inputs)
        _check_families(value, lost, [line])
        everywhere = (inputs[1] == 0).all(axis=1)
        assert not lost[:, everywhere].any()  # nothing undefined goes in
        assert lost.any()  # the test sees something


#: instructions whose results are one for every value of a register that they read twice
TWICE = [
    "xor.b32 {d}, {a}, {a};", "sub.u32 {d}, {a}, {a};", "sub.sat.s32 {d}, {a}, {a};",
    "sad.s32 {d}, {a}, {a}, 5;", "lop3.b32 {d}, {a}, {a}, {a}, 0x7e;",
    "{{ xor.b32 {d}, {a}, {a}; mul.lo.u32 {d}, {b}, {d}; }}",
    "{{ sub.cc.u32 {d}, {a}, {a}; subc.u32 {d}, {b}, {b}; }}",
    "{{ mov.b64 %d1, {{{a}, {b}}}; xor.b64 %d1, %d1, %d1; mov.b64 {{{d}, _}}, %d1; }}",
    "{{ cvt.u16.u32 %h1, {a}; sub.s16 %h1, %h1, %h1; cvt.u32.u16 {d}, %h1; }}",
    *(f"{{{{ setp.{test} %p1, {{a}}, {{a}}; selp.b32 {{d}}, 1, 2, %p1; }}}}"
      for test in ("eq.b32", "ne.s32", "lt.u32", "ge.s32", "hi.u32",
                   "ne.f32", "lt.f32", "gt.f32", "equ.f32", "leu.f32", "geu.f32")),
    "set.le.u32.s32 {d}, {a}, {a};", "set.gt.f32.u32 {d}, {a}, {a};",
    "{{ setp.lt.u32 %p1, {a}, {b}; xor.pred %p2, %p1, !%p1; selp.b32 {d}, 3, 4, %p2; }}",
    "{{ setp.lt.u32 %p1, {a}, {b}; and.pred %p2, %p1, !%p1; selp.b32 {d}, 3, 4, %p2; }}",
    "{{ setp.lt.u32 %p1, {a}, {b}; or.pred %p2, !%p1, %p1; selp.b32 {d}, 3, 4, %p2; }}",
]  # fmt: skip
#: those that stay undefined: NaN differs from itself, and only from itself
STILL = [
    "and.b32 {d}, {a}, {a};", "or.b32 {d}, {a}, {a};", "min.u32 {d}, {a}, {a};",
    "max.s16x2 {d}, {a}, {a};", "add.u32 {d}, {a}, {a};", "sub.f32 {d}, {a}, {a};",
    "div.u32 {d}, {a}, {a};", "rem.u32 {d}, {a}, {a};", "sad.u32 {d}, {a}, {b}, {a};",
    *(f"{{{{ setp.{test}.f32 %p1, {{a}}, {{a}}; selp.b32 {{d}}, 1, 2, %p1; }}}}"
      for test in ("eq", "neu", "le", "ge", "ltu", "gtu", "num", "nan")),
    "{{ mov.b32 {d}, {a}; xor.b32 {d}, {d}, {b}; }}",
]  # fmt: skip


@pytest.mark.parametrize("template", [*TWICE, *STILL])
def test_one_register_in_two_operands(template: str) -> None:
    """What is the same for every value of a register is defined, whatever is undefined in it."""
    rng = random.Random(template)
    line = "    " + template.format(d="%r9", a="%r0", b="%r1")
    value, lost = known_results([line], ["%r9"], *_inputs(rng))
    _check_families(value, lost, [line])
    assert bool(lost.any()) == (template in STILL)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed: int) -> None:
    rng = random.Random(seed)
    have = [f"%r{i}" for i in range(INPUTS)]
    lines = ["    setp.lt.s32 %p3, %r3, 5;"]
    results = []
    for n in range(24):
        lines.append(_line(rng.choice([*LOGIC, *OTHER]), rng, have, f"%r{10 + n}"))
        results.append(f"%r{10 + n}")
        have.append(results[-1])
    value, lost = known_results(lines, results, *_inputs(rng))
    _check_families(value, lost, lines[1:])


def _mask(word: Word) -> int:
    return sum(1 << i for i, bit in enumerate(word) if bit is None)


@pytest.mark.parametrize("seed", range(8))
def test_exact_rules_agree_with_the_scalar_model(seed: int) -> None:
    """Programs of logic, shifts, moves, selections and packing: masks are equal, bit for bit."""
    rng = random.Random(1000 + seed)
    value, mask, noise = _inputs(rng)
    first = range(0, FAMILIES * FAMILY, FAMILY)
    known: list[list[Word]] = [
        [words_of(int(value[at, i]), int(mask[at, i])) for at in first] for i in range(INPUTS)
    ]
    names = [f"%r{i}" for i in range(INPUTS)]
    lines, results = [], []
    for n in range(30):
        line, function = rng.choice(STEPS)(rng)
        a, b, c = (rng.randrange(len(known)) for _ in range(3))
        names.append(f"%r{10 + n}")
        lines.append("    " + line.format(d=names[-1], a=names[a], b=names[b], c=names[c]))
        results.append(names[-1])
        words = zip(known[a], known[b], known[c], strict=True)
        known.append([list(function(*w)) for w in words])  # a register of its own
    values, lost = known_results(lines, results, value, mask, noise)
    for n, line in enumerate(lines):
        expected = [_mask(word) for word in known[INPUTS + n]]
        assert lost[n, ::FAMILY].tolist() == expected, line
        bits = [sum(b << i for i, b in enumerate(w) if b) for w in known[INPUTS + n]]
        kept = values[n, ::FAMILY] & ~lost[n, ::FAMILY]
        assert kept.tolist() == bits, line

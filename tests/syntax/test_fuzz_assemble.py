"""Damaged files end in a module or in PtxError when they are assembled, never otherwise.

Most of the damage is within one statement, so that the text still parses and what is wrong
reaches the resolver: words are dropped, doubled, swapped, and replaced by words of other places.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from mutation import damaged
from samples import CORPUS

import ptxsim
from ptxsim.errors import PtxError

ROOT = Path(__file__).parents[2]
_SMALL = 3000  # characters; longer kernels are cut down to this, so that a text takes milliseconds
_WORD = re.compile(r"[.%]?[\w$]+|::|\S")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_STRANGE = [
    "0", "-1", "1.5", "0f3F800000", "0d7FF0000000000000", "1e999", "0xFFFFFFFFFFFFFFFFF", "99999",
    "%nosuch", "_", "WARP_SZ", "{%r1, %r2}", "[%rd1+4]", "[0]", "%tid.x", ".pred", ".b128",
    ".f16x2", ".v4", ".v8", ".shared", ".param", ".align 3", "[0][2]", "<0>", "<3>",
    "= {1, {2}, 3}", "= 1/0", "!%p1", "%p1|%p2", "generic(x)", "0xff(x)", "()", ".maxntid 0",
    ".reqntid 1, 2, 3, 4", "ret;", "call f;", "bra L;", "{ .reg .pred %z; }", ".texref", ".bf16",
    "-0f3f800000", "1?2:3", "(1, 2)",
]  # fmt: skip


_INSTRUCTION = re.compile(r"\s+(?:@\S+\s+)?[a-z][\w.:]*\s[^(]*;\s*")


def _shortened(text: str) -> str:
    """The module with fewer instructions: those of the middle go first, all else stays."""
    lines = text.split("\n")
    plain = [n for n, line in enumerate(lines) if _INSTRUCTION.fullmatch(line)]
    size = len(text)
    gone = set()
    for n in sorted(plain, key=lambda n: abs(n - len(lines) // 2)):
        if size <= _SMALL:
            break
        gone.add(n)
        size -= len(lines[n]) + 1
    return "\n".join(line for n, line in enumerate(lines) if n not in gone)


TEXTS = [
    path.read_text()
    for path in [
        *sorted((ROOT / "tests" / "cases").glob("*.ptx")),
        *sorted((ROOT / "examples").glob("*.ptx")),
    ]
]
TEXTS += [_shortened(path.read_text()) for path in CORPUS]
TEXTS = [text for text in (_COMMENT.sub("", text) for text in TEXTS) if len(text) < 2 * _SMALL]


def _kind(word: str) -> str:
    """Words of one kind may stand for each other without a syntax error."""
    if word[0] in ".%":
        return word[0]
    return "number" if word[0].isdigit() else "name" if word[0].isalpha() else word


def _twisted(text: str, seed: int) -> str:
    """The text with one to three words changed, the first ones (the header) left alone."""
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 3)):
        words = [m.span() for m in _WORD.finditer(text)][8:]
        if len(words) < 3:
            return text
        a, b = chance.choice(words)
        alike = [(c, d) for c, d in words if c > a and _kind(text[c:d]) == _kind(text[a:b])]
        c, d = chance.choice(alike or [(a, b)])
        edit = chance.random()
        if edit < 0.4:
            text = text[:a] + text[c:d] + text[b:]
        elif edit < 0.6:
            text = text[:a] + text[c:d] + text[b:c] + text[a:b] + text[d:] if c > a else text
        elif edit < 0.8 and text[a] in "%0123456789":
            text = text[:a] + chance.choice(_STRANGE) + text[b:]
        elif edit < 0.9:
            text = text[:a] + text[b:]
        else:
            text = text[:b] + " " + text[a:]
    return text


def _outcome(text: str) -> str:
    """``module``, or the code of the first message."""
    try:
        ptxsim.assemble(text + "\n")
    except PtxError as error:
        lines = text.split("\n")
        for d in error.diagnostics:
            assert re.fullmatch(r"PTX\d{3}", d.code)
            assert 1 <= d.span.line <= len(lines) + 1
        assert str(error)
        return error.diagnostics[0].code
    return "module"


def _run(seeds: range) -> set[str]:
    outcomes = set()
    for seed in seeds:
        text = TEXTS[seed % len(TEXTS)]
        outcomes.add(_outcome(damaged(text, seed) if seed % 5 == 0 else _twisted(text, seed)))
    return outcomes


@pytest.mark.parametrize("begin", range(0, 500, 100))
def test_damaged_files(begin: int) -> None:
    outcomes = _run(range(begin, begin + 100))
    # Damage of every depth occurs: harmless, syntax, names or types.
    assert {"module", "PTX001"} < outcomes
    assert any(code.startswith("PTX1") for code in outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("begin", range(500, 20_500, 1000))
def test_damaged_files_at_length(begin: int) -> None:
    _run(range(begin, begin + 1000))


def test_damage_is_repeatable() -> None:
    assert _twisted(TEXTS[0], 7) == _twisted(TEXTS[0], 7)
    assert _twisted(TEXTS[0], 7) != _twisted(TEXTS[0], 8)


def test_address_in_a_group() -> None:
    """Found by the damage above: a variable where a group needs a register."""
    head = ".version 9.5\n.target sm_100a\n.address_size 64\n.shared .b32 v;\n"
    assert _outcome(head + ".entry k() { st.shared.v2.u32 [v], {v, v}; ret; }") == "PTX106"
    assert _outcome(head + ".entry k() { st.shared.v2.u32 [v], {1, 2}; ret; }") == "module"

"""The rows of ``tests/data/mma-forms.tsv`` and kernels made of what they spell.

The table explains itself in its first lines.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ptxsim.targets import PTX_VERSIONS, TARGETS, Target, parse_target

__all__ = [
    "TRIED",
    "VERSIONS",
    "Line",
    "Row",
    "Version",
    "line_numbers",
    "module_text",
    "moves",
    "parse_version",
    "rows",
    "spelled",
]

Version = tuple[int, int]

_TABLE = Path(__file__).parents[1] / "data" / "mma-forms.tsv"
VERSIONS = sorted(PTX_VERSIONS)
#: What a list of targets that ends in "only" was tried on; see the first line of the table.
TRIED = [
    f"sm_{n}" for n in "75 80 86 89 90 100 100a 110a 120 120a 120f 121a".split()
]  # fmt: skip
_TESTED = ("mma.", "wmma.", "ldmatrix.", "stmatrix.", "movmatrix.")


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table: spellings that behave alike, and where they are legal."""

    pattern: str
    registers: str
    min_sm: str
    min_ptx: str
    how_checked: str

    @property
    def accepted(self) -> bool:
        """Whether ptxas makes code of it somewhere; what only its parser takes is rejected."""
        return self.min_sm != "none" and "CODEGEN REJECT" not in self.how_checked

    @property
    def version(self) -> Version:
        """The lowest PTX ISA version; rejected rows were tried with 9.0."""
        return (9, 0) if self.min_sm == "none" else parse_version(self.min_ptx)

    @property
    def until(self) -> Version | None:
        """The last PTX ISA version, if there is one."""
        if self.pattern.endswith("(no .aligned)"):
            return (6, 2)
        return (6, 4) if "only with .version <= 6.4" in self.min_sm else None

    @property
    def targets(self) -> tuple[str, ...]:
        """The lowest target, or all of a list; rejected rows were tried on sm_120a."""
        if self.min_sm == "none":
            return ("sm_120a",)
        return tuple(self.min_sm.removesuffix(" only").partition(" ")[0].split(","))

    @property
    def lower_targets(self) -> tuple[str, ...]:
        """The next lower target; or those tried and not in the list."""
        if self.min_sm.endswith(" only"):
            return tuple(t for t in TRIED if t not in self.targets)
        first = _number(self.targets[0])
        plain = [t for t in TARGETS if t[-1].isdigit() and _number(t) < first]
        return (max(plain, key=_number),)

    def spellings(self) -> list[str]:
        """The instruction in all its alternatives."""
        parts = re.split(r"\{([^}]*)\}", self.pattern.removesuffix(" (no .aligned)"))
        choices = [p.split("|") if k % 2 else [p] for k, p in enumerate(parts)]
        return [
            "".join("" if word == "-" else word for word in words)
            for words in itertools.product(*choices)
        ]


@dataclass(frozen=True, slots=True)
class Line:
    """A spelling to be tried, and its row."""

    spelling: str
    row: Row


_BYTES = "sm_100a,sm_100f,sm_103a,sm_110a,sm_120a,sm_120f,sm_121a only"
_PACKED = "b8x16.{b6x16_p32|b4x16_p64}"
_SPACE = "{-|.shared}"
_NONE = ("none", "none")

#: Pattern, with ``%`` for the count of matrices; these counts; registers per matrix; floors.
#: Verdicts of ptxas 13.0, which was given all of them with every target and PTX ISA version.
_MOVES = (
    (f"ldmatrix.sync.aligned.m8n8.x%{{-|.trans}}{_SPACE}.b16", "124", 1, ("sm_75", "6.5")),
    ("ldmatrix.sync.aligned.m8n8.x%{-|.trans}.shared::cta.b16", "124", 1, ("sm_75", "7.8")),
    (f"stmatrix.sync.aligned.m8n8.x%{{-|.trans}}{_SPACE}.b16", "124", 1, ("sm_90", "7.8")),
    (f"ldmatrix.sync.aligned.m16n16.x%.trans{_SPACE}.b8", "12", 2, (_BYTES, "8.6")),
    (f"ldmatrix.sync.aligned.m16n16.x%.trans{_SPACE}.{_PACKED}", "12", 2, (_BYTES, "8.6")),
    (f"ldmatrix.sync.aligned.m8n16.x%{_SPACE}.{_PACKED}", "124", 1, (_BYTES, "8.6")),
    (f"stmatrix.sync.aligned.m16n8.x%.trans{_SPACE}.b8", "124", 1, (_BYTES, "8.6")),
    ("movmatrix.sync.aligned.m8n8.trans.b16", "1", 1, ("sm_75", "7.8")),
    ("ldmatrix.sync.aligned.m8n8.x%{-|.trans}.shared.{b8|f16|b32}", "124", 1, _NONE),
    ("ldmatrix.sync.aligned.m16n16.x%.shared.b8", "12", 2, _NONE),
    ("ldmatrix.sync.aligned.m16n16.x%.trans.shared.b8", "4", 2, _NONE),
    ("ldmatrix.sync.aligned.m16n16.x%.trans.shared.b16", "12", 2, _NONE),
    (f"ldmatrix.sync.aligned.m8n16.x%.trans.shared.{_PACKED}", "124", 1, _NONE),
    ("stmatrix.sync.aligned.m16n8.x%.shared.b8", "124", 1, _NONE),
    ("{ldmatrix|stmatrix}.sync.m8n8.x%.shared.b16", "124", 1, _NONE),
    ("{ldmatrix|stmatrix}.sync.aligned.m8n8.shared.b16", "1", 1, _NONE),
    ("{ldmatrix|stmatrix}.sync.aligned.m8n8.x%.{global|shared::cluster}.b16", "124", 1, _NONE),
    ("movmatrix.sync.aligned.m8n8.b16", "1", 1, _NONE),
)  # fmt: skip


def moves() -> list[Row]:
    """Rows for ldmatrix, stmatrix and movmatrix."""
    return [
        Row(pattern.replace("%", n), f"R={int(n) * each}x.b32", *floor, "")
        for pattern, counts, each, floor in _MOVES
        for n in counts
    ]


def parse_version(text: str) -> Version:
    """A version such as ``8.7``."""
    major, minor = text.split(".")
    return int(major), int(minor)


def _number(target: str) -> int:
    found = parse_target(target)
    assert isinstance(found, Target)
    return found.number


@lru_cache(maxsize=1)
def rows() -> tuple[Row, ...]:
    """All rows of the table."""
    lines = _TABLE.read_text().splitlines()
    return tuple(Row(*t.split("\t")) for t in lines if not t.startswith(("#", "instruction\t")))


def spelled(some: Iterable[Row], seed: str | None) -> list[Line]:
    """One spelling of each row by a seed, or without a seed all."""
    rng = random.Random(seed)
    return [
        Line(text, row)
        for row in some
        for text in (row.spellings() if seed is None else [rng.choice(row.spellings())])
    ]


#: Letter of a register type in the names of the pools: ``%zf<i>`` are zero, ``%df<i>`` are written.
_POOL = {"b32": "b", "f32": "f", "s32": "s", "f64": "d"}
_GROUP = re.compile(r"(scaleA|scaleB|scaleA/B|D/C|[RABCDE])=(\d+)x\.(\w+)")


def _group(pool: str, counted: tuple[int, str]) -> str:
    count, type_ = counted
    return "{" + ", ".join(f"%{pool}{_POOL[type_]}{k}" for k in range(count)) + "}"


def _registers(line: Line) -> dict[str, tuple[int, str]]:
    """Count and type of the registers of each operand."""
    found = {m[1]: (int(m[2]), m[3]) for m in _GROUP.finditer(line.row.registers)}
    if "D/C" in found:  # 4x.b32 where the type is f16, 8x.f32 where it is f32
        d, c = line.spelling.split(".")[-2:]
        sizes = {"f16": (4, "b32"), "f32": (8, "f32")}
        found |= {"D": sizes[d], "C": sizes[c]}
    return found


def _address(word: str) -> str:
    """Where a load or store finds its tile; each lane has its own row for ld- and stmatrix."""
    by_row = not word.startswith("wmma.")
    space = "s" if ".shared" in word else "c" if by_row else "g"
    end = "out" if "st" in word.partition(".sync")[0] else "in"
    return f"[%{space}_{end}{'_row' if by_row else ''}]"


def _instruction(line: Line) -> str:
    """The line with operands: zeros to read, tiles at the start of a buffer."""
    word, used = line.spelling, _registers(line)
    name = word.partition(".sync")[0]
    if name == "movmatrix":
        return f"{word} %db0, %zb0;"
    if name in ("stmatrix", "wmma.store.d"):
        return f"{word} {_address(word)}, {_group('z', used.get('R') or used['D'])};"
    if "R" in used:
        return f"{word} {_group('d', used['R'])}, {_address(word)};"
    operands = [_group("d", used["D"]), *(_group("z", used[x]) for x in "ABC")]
    operands += ["%meta", "0"] if "E" in used else []
    scaled = any(name.startswith("scale") for name in used)
    operands += ["%zb0", "{0, 0}", "%zb0", "{0, 0}"] if scaled else []
    return f"{word} {', '.join(operands)};"


#: 0x44444444 names the first two of each four elements: legal metadata for all types.
_PROLOGUE = """.address_size 64
.visible .entry k(.param .u64 p_in, .param .u64 p_out)
{
.shared .align 128 .b8 tile_in[4096];
.shared .align 128 .b8 tile_out[4096];
.reg .b32 %zb<16>, %db<16>, %meta, %s_in, %s_out, %s_in_row, %s_out_row, %t, %row;
.reg .f32 %zf<16>, %df<16>;
.reg .s32 %zs<16>, %ds<16>;
.reg .f64 %zd<16>, %dd<16>;
.reg .b64 %g_in, %g_out, %c_in_row, %c_out_row;
ld.param.u64 %g_in, [p_in];
ld.param.u64 %g_out, [p_out];
mov.u32 %s_in, tile_in;
mov.u32 %s_out, tile_out;
mov.u32 %meta, 0x44444444;
mov.u32 %t, %tid.x;
shl.b32 %row, %t, 4;
add.u32 %s_in_row, %s_in, %row;
add.u32 %s_out_row, %s_out, %row;
cvt.u64.u32 %c_in_row, %s_in_row;
cvta.shared.u64 %c_in_row, %c_in_row;
cvt.u64.u32 %c_out_row, %s_out_row;
cvta.shared.u64 %c_out_row, %c_out_row;"""


def module_text(
    lines: Sequence[Line], target: str, version: Version, keep: bool = False
) -> list[str]:
    """A module's text by lines, with one instruction of a kernel for each of ``lines``.

    ``keep`` stores a register of every result, lest an assembler drops the instruction.
    """
    text = [f".version {version[0]}.{version[1]}", f".target {target}", *_PROLOGUE.split("\n")]
    for type_, letter in _POOL.items():
        zero = {"b32": "0", "s32": "0", "f32": "0f00000000", "f64": "0d0000000000000000"}[type_]
        text += [f"mov.{type_} %z{letter}{k}, {zero};" for k in range(16)]
    text += [
        f"st.shared.b32 [%s_in_row+{512 * i + 4 * k}], %zb0;" for i in range(8) for k in range(4)
    ]
    for line in lines:
        text += ["bar.warp.sync 0xffffffff;", _instruction(line)]
        used = _registers(line)
        if keep and "[%" not in text[-1].partition(",")[0]:
            type_ = (used.get("R") or used["D"])[1]
            text.append(f"st.global.{type_} [%g_out], %d{_POOL[type_]}0;")
    return [*text, "ret;", "}", ""]


def line_numbers(lines: Sequence[Line], text: Sequence[str]) -> dict[int, Line]:
    """The line of the text that holds each line."""
    places = [n for n, t in enumerate(text, 1) if t.startswith(_TESTED)]
    return dict(zip(places, lines, strict=True))

"""``ptxsim isa``: which instructions are modelled, what is known about one, and its lane maps."""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..diagnostics import did_you_mean
from ..errors import UsageError
from ..targets import PTX_VERSIONS, TARGETS, Target, parse_target
from .files import write_text

if TYPE_CHECKING:
    from ..isa import Form, Instruction, Mods

__all__ = ["DESCRIPTION", "HELP", "add_arguments", "execute"]

HELP = "which instructions are modelled; with NAME, all about one"
DESCRIPTION = (
    "Print the coverage table, or the forms, floors and traps of one instruction. For matrix"
    " instructions also the lane map: which lane and register hold each cell of the tile."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "name", nargs="?", metavar="NAME",
        help="an instruction, such as ldmatrix or mma.m16n8k16.f32.f16; modifiers that are left"
        " out take their first legal word",
    )  # fmt: skip
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--markdown", action="store_true", help="the coverage page, with all forms, in Markdown"
    )
    how.add_argument("--json", action="store_true", help="the table in JSON")
    how.add_argument("--svg", metavar="FILE", help="write the lane maps of NAME as a picture")
    parser.add_argument("--target", metavar="SM", help="the target of the lane maps (sm_80)")


def execute(args: argparse.Namespace) -> int:
    """Run the command."""
    if args.name is not None:
        if args.markdown or args.json:
            raise UsageError("--markdown and --json are for the table, not for one instruction")
        _one(args.name, _target(args.target or "sm_80"), args.svg)
        return 0
    if args.svg is not None or args.target is not None:
        raise UsageError("--svg and --target are for one instruction; give its NAME")
    from ..isa import coverage_table
    from ..isa.coverage_page import coverage_page

    if args.markdown:
        sys.stdout.write(coverage_page())
    elif args.json:
        print(json.dumps(coverage_table(), indent=2))
    else:
        sys.stdout.write(_table(coverage_table()))
    return 0


def _target(word: str) -> Target:
    target = parse_target(word)
    if target is None:
        raise UsageError(f"no target '{word}'; {did_you_mean(word, TARGETS) or 'such as sm_80'}")
    return target


# --- one instruction ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Choice:
    """One form of an instruction with all of its modifiers."""

    record: Instruction
    form: Form
    modifiers: Mods

    @property
    def spelling(self) -> str:
        words = [self.modifiers[slot.name] for slot in self.form.slots]
        return ".".join([self.record.name, *(w for w in words if w)])

    def unmet(self, target: Target) -> list[str]:
        """What the modifiers need and the target lacks, in the newest PTX ISA version."""
        floors = [self.record.floor, *(f for _, f in self.form.floors(self.modifiers))]
        combined = self.record.combined_floor(self.modifiers)
        if combined is not None:
            floors.append(combined[1])
        found = (floor.unmet(max(PTX_VERSIONS), target) for floor in floors)
        return list(dict.fromkeys(text for text in found if text is not None))


def _one(name: str, target: Target, picture: str | None) -> None:
    """Describe an instruction and draw its lane maps, or write them as a picture."""
    from ..isa import describe, registry

    mnemonic, words = _split(name)
    records = registry.get(mnemonic)
    _check_words(mnemonic, words, records)
    drawn = [r for r in records if _has_maps(r)]
    choice = _chosen(drawn, words, target) if drawn else None
    maps = _maps(choice, target) if choice is not None else ()
    if picture is not None:
        if choice is None or not maps:
            raise UsageError(f"--svg: '{choice.spelling if choice else name}' has no lane map")
        from .lane_map import render_svg

        about = f"{_summary(choice)} Lanes and registers on {target}."
        write_text(picture, render_svg(choice.spelling, about, maps))
        return
    if choice is None or not maps or not words:
        sys.stdout.write((describe(mnemonic) or "").rstrip("\n") + "\n")
    if choice is not None and maps:
        from .lane_map import render_text

        head = "" if words else "\n"
        head += "".join(line + "\n" for line in _heading(choice, target, bool(words)))
        sys.stdout.write(head + "\n" + render_text(maps, _coloured()))


def _split(name: str) -> tuple[str, list[str]]:
    """The mnemonic, with its fixed parts, and the modifiers that stand after it."""
    from ..isa import coverage_table, describe

    mnemonic = name.lstrip(".")
    while mnemonic:
        if describe(mnemonic) is not None:
            rest = name.lstrip(".")[len(mnemonic) :]
            return mnemonic, [word for word in rest.split(".") if word]
        mnemonic = mnemonic.rpartition(".")[0]
    known = [str(row["name"]) for row in coverage_table()]
    family, *words = name.lstrip(".").split(".")
    members = [m for m in known if m.startswith(f"{family}.")]
    if members:  # wmma stands for wmma.mma, whose picture has all operands
        return min(members, key=len), words
    raise UsageError(f"no instruction '{name}'; {did_you_mean(name, known) or 'see ptxsim isa'}")


def _check_words(mnemonic: str, words: Sequence[str], records: Sequence[Instruction]) -> None:
    """Every word is a modifier of some form; of an instruction without records all may be."""
    slots = [s for r in records for f in r.forms for s in f.slots]
    known = sorted({word for slot in slots for word in slot.domain})
    for word in words:
        if records and word not in known:
            hint = did_you_mean(word, known) or f"see ptxsim isa {mnemonic}"
            raise UsageError(f"{mnemonic} has no modifier '.{word}'; {hint}")


def _has_maps(record: Instruction) -> bool:
    from ..isa import Instruction

    return type(record).fragments is not Instruction.fragments


def _maps(choice: _Choice, target: Target) -> tuple[Any, ...]:
    from .lane_map import lane_maps

    fragments = choice.record.fragments(choice.modifiers, target)
    return lane_maps(choice.record.name, choice.modifiers, fragments)


def _summary(choice: _Choice) -> str:
    return (choice.record.__doc__ or "").splitlines()[0]


def _heading(choice: _Choice, target: Target, alone: bool) -> Iterator[str]:
    """The full spelling that the maps belong to, and what must be known about it."""
    yield choice.spelling
    if alone:
        yield f"  {_summary(choice)}"
    if choice.form.unsupported:
        yield f"  not executed: {choice.form.unsupported}"
    yield from (f"  {target} lacks it: it needs {text}" for text in choice.unmet(target))
    yield f"  lanes and registers on {target}"


def _coloured() -> bool:
    """Whether the output is a terminal and the user has not said otherwise (NO_COLOR)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


# --- modifiers that are left out ------------------------------------------------------------------


def _chosen(records: Sequence[Instruction], words: Sequence[str], target: Target) -> _Choice:
    """The first form with these modifiers that the target has, or else the first one at all."""
    first: _Choice | None = None
    for choice in _completed(records, tuple(words)):
        if not choice.unmet(target):
            return choice
        first = first or choice
    assert first is not None, "forms that do not fit are a usage error"
    return first


def _completed(records: Sequence[Instruction], words: tuple[str, ...]) -> Iterator[_Choice]:
    """All legal ways to complete the modifiers, those that are modelled first.

    Words that fit no form are a :class:`UsageError` with the reason of the form they fit best.
    """
    from ..isa.record import FormMismatch

    forms = [(r, f) for r in records for f in r.forms]
    reasons: list[tuple[int, str]] = []
    found = False
    for record, form in sorted(forms, key=lambda pair: bool(pair[1].unsupported)):
        try:
            given = _partial(form).match(words)
        except FormMismatch as mismatch:
            reasons.append((mismatch.score, str(mismatch)))
            continue
        for modifiers in _fillings(form, given):
            reason = record.check(modifiers)
            if reason is None:
                found = True
                yield _Choice(record, form, modifiers)
            else:
                reasons.append((len(words) + 1, reason))
    if not found:
        best = max(reasons, key=lambda pair: pair[0])[1]
        raise UsageError(f"{records[0].name}.{'.'.join(words)}: {best}")


def _partial(form: Form) -> Form:
    """The form with every modifier optional."""
    out = copy.copy(form)
    out.slots = tuple(replace(slot, optional=True) for slot in form.slots)
    return out


def _fillings(form: Form, given: Mods) -> Iterator[Mods]:
    """The modifiers with each legal word in the place of those that must stand and do not."""
    from ..isa import Mods

    missing = [s for s in form.slots if not s.optional and not given[s.name]]
    for chosen in itertools.product(*(slot.domain for slot in missing)):
        names = (slot.name for slot in missing)
        yield Mods({**given, **dict(zip(names, chosen, strict=True))})


# --- the table ------------------------------------------------------------------------------------


def _table(rows: list[dict[str, Any]]) -> str:
    """Rows with the columns of the first one, aligned."""
    if not rows:
        return ""
    columns = list(rows[0])
    cells = [columns, *([_cell(row.get(c)) for c in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    out = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) for line in cells]
    return "".join(line.rstrip() + "\n" for line in out)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)

"""``ptxsim explain``: what a diagnostic code means, a kernel that shows it, and the cure."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from textwrap import indent
from typing import TYPE_CHECKING

from ..diagnostics import did_you_mean
from ..errors import UsageError

if TYPE_CHECKING:
    from ..explanations import Explanation

__all__ = ["DESCRIPTION", "HELP", "add_arguments", "execute"]

HELP = "what a diagnostic code means: example, cure, section of the PTX ISA"
DESCRIPTION = """Explain diagnostic codes (PTX341) or classes of findings (oob-global); without one,
list them all. The example of a code runs: ptxsim explain PTX341 --example | ptxsim run -"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("codes", nargs="*", metavar="CODE", help="PTX341, or a class such as oob-global")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--example", action="store_true", help="print the faulty kernel alone")
    only.add_argument("--cured", action="store_true", help="print the corrected kernel alone")


def execute(args: argparse.Namespace) -> int:
    """Run the command."""
    chosen = [_find(word) for word in args.codes]
    if args.example or args.cured:
        if len(chosen) != 1:
            raise UsageError("--example and --cured print one kernel; give one CODE")
        sys.stdout.write(chosen[0].example if args.example else chosen[0].cured)
    elif chosen:
        sys.stdout.write("\n\n".join(_page(e) for e in dict.fromkeys(chosen)))
    else:
        sys.stdout.write(_table())
    return 0


def _find(word: str) -> Explanation:
    from ..explanations import explanations, find

    found = find(word)
    if found is None:
        known = explanations()
        names = [*known, *(e.class_ for e in known.values() if e.class_)]
        spelled = word.upper() if word[:3].upper() == "PTX" else word.lower()
        hint = did_you_mean(spelled, names) or "ptxsim explain lists all of them"
        raise UsageError(f"no code or class '{word}'; {hint}")
    return found


def _page(e: Explanation) -> str:
    return "\n".join(_paragraphs(e))


def _paragraphs(e: Explanation) -> Iterator[str]:
    from ..explanations import explanations

    yield f"{e.name}: {e.title}\n"
    yield indent(e.meaning, "  ") + "\n"
    yield f"example (ptxsim explain {e.code} --example | {e.command}):\n"
    if e.prepare:
        yield f"  first: {e.prepare}\n"
    yield indent(e.example, "    ")
    yield "cure:\n"
    yield indent(e.cure, "  ") + "\n"
    yield indent(e.difference, "    ")
    titles = ", ".join(f'"{title}"' for title in e.isa)
    sources = [f"PTX ISA 9.1, {titles}"] * bool(titles) + [e.elsewhere] * bool(e.elsewhere)
    yield "source: " + "; ".join(sources)
    if e.related:
        yield "related: " + ", ".join(explanations()[code].name for code in e.related)
    yield ""


def _table() -> str:
    from ..explanations import explanations

    known = explanations().values()
    width = max(len(e.name) for e in known)
    return "".join(f"{e.name:<{width}}  {e.title}\n" for e in known)

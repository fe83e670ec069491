"""``ptxsim isa``: which instructions are modelled, and what is known about one."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from ..diagnostics import did_you_mean
from ..errors import UsageError

__all__ = ["DESCRIPTION", "HELP", "add_arguments", "execute"]

HELP = "which instructions are modelled; with NAME, all about one"
DESCRIPTION = "Print the coverage table, or the forms, floors and traps of one instruction."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="an instruction, such as ldmatrix")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--markdown", action="store_true", help="the table in Markdown")
    how.add_argument("--json", action="store_true", help="the table in JSON")


def execute(args: argparse.Namespace) -> int:
    """Run the command."""
    if args.name is not None:
        if args.markdown or args.json:
            raise UsageError("--markdown and --json are for the table, not for one instruction")
        sys.stdout.write(_described(args.name).rstrip("\n") + "\n")
        return 0
    from ..isa import coverage_table

    rows = coverage_table()
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        sys.stdout.write(_table(rows, args.markdown))
    return 0


def _described(name: str) -> str:
    """The text about an instruction; its modifiers may stand after the name."""
    from ..isa import coverage_table, describe

    mnemonic = name.lstrip(".")
    while mnemonic:
        text = describe(mnemonic)
        if text is not None:
            return text
        mnemonic = mnemonic.rpartition(".")[0]
    known = [str(row["name"]) for row in coverage_table()]
    raise UsageError(f"no instruction '{name}'; {did_you_mean(name, known) or 'see ptxsim isa'}")


def _table(rows: list[dict[str, Any]], markdown: bool) -> str:
    """Rows with the columns of the first one, aligned."""
    if not rows:
        return ""
    columns = list(rows[0])
    cells = [columns, *([_cell(row.get(c)) for c in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    if markdown:
        cells = [[c.replace("|", "\\|") for c in line] for line in cells]
        cells.insert(1, ["---"] * len(columns))
        return "".join(f"| {' | '.join(line)} |\n" for line in cells)
    out = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) for line in cells]
    return "".join(line.rstrip() + "\n" for line in out)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)

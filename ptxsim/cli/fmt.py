"""``ptxsim fmt``: canonical text."""

from __future__ import annotations

import argparse
import difflib
import sys

from ..errors import PtxError, UsageError

__all__ = ["DESCRIPTION", "HELP", "add_arguments", "execute"]

HELP = "write PTX in its canonical form"
DESCRIPTION = "Print the canonical text of a file; with -i, write it back. Comments are kept."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="file, folder, or -")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--check", action="store_true", help="only say which files would change")
    how.add_argument("--diff", action="store_true", help="show what would change")
    how.add_argument("-i", "--in-place", action="store_true", help="write the files back")


def execute(args: argparse.Namespace) -> int:
    """Run the command: 0, or 1 if ``--check`` or ``--diff`` found something, or 3."""
    from ..syntax import format_text
    from .files import find_ptx, read_text, write_text

    files = find_ptx(args.files)
    quiet = args.check or args.diff or args.in_place
    if len(files) > 1 and not quiet:
        raise UsageError("several files need -i, --check or --diff")
    changed, invalid = 0, False
    for path in files:
        name, text = read_text(path)
        try:
            new = format_text(text)
        except PtxError as error:
            invalid = True
            _complain(error, name)
            continue
        if not quiet or (args.in_place and path == "-"):
            sys.stdout.write(new)
            continue
        if new == text:
            continue
        changed += 1
        if args.diff:
            sys.stdout.write(_difference(text, new, name))
        else:
            print(f"{'would change' if args.check else 'changed'} {name}")
        if args.in_place:
            write_text(path, new)
    if invalid:
        return 3
    return 1 if changed and not args.in_place else 0


def _complain(error: PtxError, name: str) -> None:
    """Show the messages under the name of the file, which the formatter does not know."""
    from ..diagnostics import Source, render

    source = Source(name, error.source.text)
    print("\n".join(render(d, source) for d in error.diagnostics), file=sys.stderr)


def _difference(old: str, new: str, name: str) -> str:
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), name, f"{name} (formatted)"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)

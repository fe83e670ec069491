"""The command ``ptxsim``: options are read, a subcommand runs, its exit code is returned.

Exit codes: 0 clean; 1 finding, trap or mismatch; 2 bad usage, missing or unreadable file; 3 the PTX
is invalid; 4 legal PTX that is not modelled.  Only what a subcommand needs is imported, and that
when it runs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from .._version import __version__
from ..diagnostics import did_you_mean
from ..errors import UsageError
from . import check, demo, diff, dump, explain, fmt, isa, lower, run

__all__ = ["COMMANDS", "main", "make_parser"]

COMMANDS = {
    "run": run,
    "check": check,
    "fmt": fmt,
    "dump": dump,
    "diff": diff,
    "isa": isa,
    "explain": explain,
    "lower": lower,
    "demo": demo,
}


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are exceptions, so that ``main`` never ends the interpreter."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(f"{message}\n{self.format_usage().rstrip()}")


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line, with all commands."""
    parser = _Parser(
        prog="ptxsim",
        description="Assemble PTX, run it on a simulator that checks it, and report faults.",
        epilog="exit codes: 0 clean, 1 finding, 2 usage, 3 invalid PTX, 4 not modelled",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"ptxsim {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, module in COMMANDS.items():
        sub = subparsers.add_parser(
            name, help=module.HELP, description=module.DESCRIPTION, allow_abbrev=False
        )
        module.add_arguments(sub)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = make_parser()
    try:
        if words and not words[0].startswith("-") and words[0] not in COMMANDS:
            hint = did_you_mean(words[0], COMMANDS)
            raise UsageError(
                f"unknown command '{words[0]}'; " + (hint or f"there are: {', '.join(COMMANDS)}")
            )
        args = parser.parse_args(words)
        if args.command is None:
            parser.print_help(sys.stderr)
            return 2
        code = COMMANDS[args.command].execute(args)
        sys.stdout.flush()
    except SystemExit as end:  # --help and --version
        return end.code if isinstance(end.code, int) else 0
    except UsageError as error:
        print(f"ptxsim: {error}", file=sys.stderr)
        return 2
    except MemoryError:
        print("ptxsim: not enough memory for this launch", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # the reader of our output has gone; keep the interpreter from complaining at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 2
    except OSError as error:  # files have their own messages; this is standard output
        print(f"ptxsim: cannot write the output: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 2
    except KeyboardInterrupt:
        return 130
    return int(code)

"""``ptxsim run``: launch a kernel on the simulator and report what it does wrong."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import PtxError, UsageError

if TYPE_CHECKING:
    from ..api import Kernel, Module
    from ..report import Finding, Report
    from .arguments import Binding
    from .header import Expected, Header, Launch

__all__ = ["DESCRIPTION", "HELP", "add_arguments", "execute"]

HELP = "assemble, launch on the simulator, check, report"
DESCRIPTION = """Launch a kernel on the simulator. The launch and the arguments come from the header
of the file, from --args, or from the options; options win."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("file", metavar="FILE.ptx", help="the file, or - for standard input")
    launch = parser.add_argument_group("launch")
    launch.add_argument("--entry", metavar="NAME", help="default: the only entry")
    for name in ("grid", "block", "cluster"):
        launch.add_argument(f"--{name}", metavar="X[,Y[,Z]]")
    launch.add_argument("--smem", metavar="BYTES", help="dynamic shared memory")
    launch.add_argument(
        "--arg", action="append", default=[], metavar="SPEC",
        help="[NAME=]TYPE[COUNT]:INIT or [NAME=]TYPE:VALUE, repeatable, in .param order",
    )  # fmt: skip
    launch.add_argument("--args", metavar="FILE.toml", help="launch and arguments from a file")
    launch.add_argument("--target", metavar="SM", help="default: the module's .target")
    results = parser.add_argument_group("results")
    for name, text in (
        ("out", "write a buffer after the run"),
        ("expect", "compare a buffer's bits with a file, when there is no error"),
    ):
        results.add_argument(
            f"--{name}", action="append", default=[], metavar="NAME=FILE.npy", help=text
        )
    results.add_argument("--print", action="append", default=[], metavar="NAME", dest="show")
    results.add_argument("--stats", action="store_true", help="print the counters")
    results.add_argument("--json", metavar="FILE", help="write the JSON report, - to output")
    results.add_argument("--format", default="full", help="full, concise, json, github")
    results.add_argument("--print-limit", default="100", metavar="N", help="findings; 0: all")
    results.add_argument("--quiet", action="store_true", help="findings only, no summary")
    results.add_argument("--strict", action="store_true", help="warnings change the exit code")
    how = parser.add_argument_group("simulation")
    how.add_argument("--tool", default="all", metavar="TOOLS", help="all, none, or a list of "
                     "memcheck, racecheck, initcheck, synccheck")  # fmt: skip
    how.add_argument("--schedule", default="default", metavar="S",
                     help="default, reverse, warp-serial, early-async, random:SEED")  # fmt: skip
    how.add_argument("--schedules", metavar="N", help="also N random ones; results are compared")
    how.add_argument("--max-instructions", metavar="N")
    how.add_argument("--jobs", default="1", metavar="N")
    how.add_argument("--backend", default="sim", metavar="sim|gpu")


@dataclass(frozen=True, slots=True)
class _Plan:
    """A launch that can be made: everything is known and checked."""

    module: Module
    kernel: Kernel
    launch: Launch
    bindings: list[Binding]
    expected: list[tuple[Binding, Path, str]]
    written: list[tuple[Binding, str]]
    shown: list[Binding]


def execute(args: argparse.Namespace) -> int:
    """Run the command."""
    from .check import assemble_text
    from .files import read_text
    from .header import parse_header, parse_size
    from .render import check_format

    check_format(args.format)
    if args.backend != "sim":
        what = "not available in this version" if args.backend == "gpu" else "unknown"
        raise UsageError(f"backend '{args.backend}' is {what}; use sim")
    if args.format == "json" and args.json == "-":
        raise UsageError("--format json and --json - would write the report twice; use one")
    for name in ("schedules", "max_instructions", "jobs", "print_limit"):
        text = getattr(args, name)
        option = f"--{name.replace('_', '-')}"
        setattr(args, name, None if text is None else parse_size(text, option))
    name, text = read_text(args.file)
    folder = Path() if args.file == "-" else Path(args.file).parent
    try:
        module = assemble_text(text, name, args.target)
    except PtxError as error:
        return _invalid(args, error)
    plan = _plan(args, module, parse_header(text, name, folder))
    if plan is None:
        return 2
    return _carry_out(args, plan)

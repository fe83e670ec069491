"""The options of the commands that launch a kernel."""

from __future__ import annotations

import argparse
import sys

from ..errors import UsageError

__all__ = ["add_launch_options", "check_launch_options"]

#: Options that are a number.
_NUMBERS = ("schedules", "max_instructions", "jobs", "print_limit", "timeout")


def add_launch_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a launch and of its report."""
    add = parser.add_argument
    add("file", metavar="FILE.ptx", help="PTX, CUDA C++ (FILE.cu), or - for PTX on standard input")
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
    cuda = parser.add_argument_group("CUDA C++")
    cuda.add_argument("-I", dest="include", action="append", default=[], metavar="FOLDER",
                      help="where headers are, repeatable")  # fmt: skip
    cuda.add_argument("-D", dest="define", action="append", default=[], metavar="NAME[=TEXT]",
                      help="define a macro, repeatable")  # fmt: skip
    results = parser.add_argument_group("results")
    for name, text in (
        ("out", "write a buffer after the run"),
        ("expect", "compare a buffer's bits with a file, when there is no error"),
    ):
        results.add_argument(
            f"--{name}", action="append", default=[], metavar="NAME=FILE.npy", help=text
        )
    results.add_argument("--print", action="append", default=[], metavar="NAME", dest="show")
    results.add_argument(
        "--stats", action="store_true", help="print the counters, and advice on speed"
    )
    results.add_argument("--json", metavar="FILE", help="write the JSON report, - to output")
    results.add_argument("--html", metavar="FILE", help="write the report as a page, - to output")
    results.add_argument("--format", default="full", metavar="FORMAT",
                         help="full, concise, json, sarif, github, junit, sanitizer")  # fmt: skip
    results.add_argument("--color", default="auto", metavar="WHEN", help="auto, always, never")
    results.add_argument("--print-limit", default="100", metavar="N", help="findings; 0: all")
    results.add_argument("--quiet", action="store_true", help="findings only, no summary")
    results.add_argument("--strict", action="store_true", help="warnings change the exit code")
    _add_known(parser.add_argument_group("known findings"))
    how = parser.add_argument_group("simulation")
    how.add_argument("--tool", default="all", metavar="TOOLS", help="all, none, or a list of "
                     "memcheck, racecheck, initcheck, synccheck; or with advice, which "
                     "all leaves out")  # fmt: skip
    how.add_argument("--schedule", default="default", metavar="S",
                     help="default, reverse, warp-serial, early-async, random:SEED")  # fmt: skip
    how.add_argument(
        "--schedules",
        metavar="N",
        help="also the adverse ones and N random ones; results are compared",
    )
    how.add_argument("--max-instructions", metavar="N")
    how.add_argument("--wmma-rule", default="ptx", metavar="ptx|cuda",
                     help="whose alignment rule wmma loads and stores have")  # fmt: skip
    how.add_argument("--jobs", default="1", metavar="N")
    how.add_argument("--backend", default="sim", metavar="sim|gpu",
                     help="where to launch; a GPU needs the driver and cuda-python")  # fmt: skip
    how.add_argument("--timeout", default="30", metavar="SECONDS", help="of a kernel on a GPU")


def _add_known(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--baseline", metavar="FILE", help="findings to leave out, from a file")
    group.add_argument("--write-baseline", metavar="FILE",
                       help="write the findings as a baseline; keeps what --baseline knows of "
                       "other files")  # fmt: skip
    group.add_argument("--suppress", action="append", default=[], metavar="CODE[:LINE-GLOB]",
                       help="leave out a code or class, on lines whose code fits a pattern; in the "
                       "text: // ptxsim: ignore[CODE] reason")  # fmt: skip


def check_launch_options(args: argparse.Namespace) -> None:
    """Refuse what is unknown or cannot be shown together, and read the numbers."""
    from .color import wants_color
    from .header import parse_size
    from .render import check_format

    check_format(args.format)
    wants_color(args.color, sys.stdout)
    if args.backend not in ("sim", "gpu"):
        raise UsageError(f"backend '{args.backend}' is unknown; use sim or gpu")
    if args.backend == "gpu" and args.schedules is not None:
        raise UsageError("--schedules needs the simulator; a GPU chooses its schedule itself")
    if args.format == "json" and args.json == "-":
        raise UsageError("--format json and --json - would write the report twice; use one")
    if args.json == "-" and args.html == "-":
        raise UsageError("--json - and --html - would mix two documents; use one")
    if args.write_baseline == "-":
        raise UsageError("--write-baseline needs a file")
    for name in _NUMBERS:
        text = getattr(args, name)
        option = f"--{name.replace('_', '-')}"
        setattr(args, name, None if text is None else parse_size(text, option))

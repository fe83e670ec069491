"""``ptxsim run``: launch a kernel on the simulator and report what it does wrong."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import PtxError, UsageError

if TYPE_CHECKING:
    from ..diagnostics import Source
    from ..report import Finding, Report
    from .header import Header
    from .known import Known
    from .plan import Plan

__all__ = ["DESCRIPTION", "HELP", "add_arguments", "execute"]

HELP = "assemble, launch on the simulator, check, report"
DESCRIPTION = """Launch a kernel on the simulator. The launch and the arguments come from the header
of the file, from --args, or from the options; options win."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
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
    how.add_argument("--backend", default="sim", metavar="sim|gpu")


def _add_known(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--baseline", metavar="FILE", help="findings to leave out, from a file")
    group.add_argument("--write-baseline", metavar="FILE",
                       help="write the findings as a baseline; keeps what --baseline knows of "
                       "other files")  # fmt: skip
    group.add_argument("--suppress", action="append", default=[], metavar="CODE[:LINE-GLOB]",
                       help="leave out a code or class, on lines whose code fits a pattern; in the "
                       "text: // ptxsim: ignore[CODE] reason")  # fmt: skip


def execute(args: argparse.Namespace) -> int:
    """Run the command."""
    from .check import assemble_text
    from .cuda import compile_module, is_cuda
    from .files import read_text
    from .header import parse_header, parse_size
    from .plan import make_plan

    _check_options(args)
    if args.backend != "sim":
        what = "not available in this version" if args.backend == "gpu" else "unknown"
        raise UsageError(f"backend '{args.backend}' is {what}; use sim")
    for name in ("schedules", "max_instructions", "jobs", "print_limit"):
        text = getattr(args, name)
        option = f"--{name.replace('_', '-')}"
        setattr(args, name, None if text is None else parse_size(text, option))
    name, text = read_text(args.file)
    folder = Path() if args.file == "-" else Path(args.file).parent
    lines = None
    try:
        known = _known(args, text, name)
        header = parse_header(text, name, folder)
        target = _target(args, header)
        if is_cuda(args.file):
            module, lines = compile_module(args, text, name, folder, target)
        else:
            module = assemble_text(text, name, target)
    except PtxError as error:
        return _invalid(args, error)
    plan = make_plan(args, module, header)
    if plan is None:
        return 2
    return _carry_out(args, replace(plan, lines=lines), known)


def _target(args: argparse.Namespace, header: Header) -> str | None:
    """The target that the options, the file of arguments or the header name."""
    from .arguments import read_toml

    file = None if args.args is None else read_toml(args.args).launch.target
    return args.target or file or header.launch.target


def _check_options(args: argparse.Namespace) -> None:
    """Refuse what is unknown or cannot be shown together."""
    from .color import wants_color
    from .render import check_format

    check_format(args.format)
    wants_color(args.color, sys.stdout)
    if args.format == "json" and args.json == "-":
        raise UsageError("--format json and --json - would write the report twice; use one")
    if args.json == "-" and args.html == "-":
        raise UsageError("--json - and --html - would mix two documents; use one")
    if args.write_baseline == "-":
        raise UsageError("--write-baseline needs a file")


def _known(args: argparse.Namespace, text: str, name: str) -> Known:
    """What is left out of the report; files and patterns are looked at before anything runs."""
    from ..diagnostics import Source
    from .baseline import read_baseline
    from .known import Known
    from .suppress import Suppressions, parse_option

    source = Source(name, text)
    options = [parse_option(word) for word in args.suppress]
    baseline = None if args.baseline is None else read_baseline(args.baseline)
    return Known(source, Suppressions(options, source), baseline)


def _invalid(args: argparse.Namespace, error: PtxError) -> int:
    """Report PTX that does not assemble."""
    from ..report import Report
    from .color import wants_color
    from .render import diagnostic_finding, render_diagnostics, render_report

    report = Report(
        file=error.source.name,
        entry=args.entry or "",
        target=args.target or "",
        findings=tuple(diagnostic_finding(d) for d in error.diagnostics),
    )
    _write_documents(args, report, error.source)
    if "-" in (args.json, args.html):
        return 3
    if args.format in ("json", "sarif", "junit", "sanitizer"):
        sys.stdout.write(render_report(report, error.source, args.format, args.print_limit))
        return 3
    stream = sys.stdout if args.format == "github" else sys.stderr
    color = wants_color(args.color, stream)
    stream.write(render_diagnostics(error.diagnostics, error.source, args.format, color))
    return 3


def _carry_out(args: argparse.Namespace, plan: Plan, known: Known) -> int:
    """Launch, compare, and show the results."""
    from .baseline import write_baseline
    from .files import save_npy

    report = _launch(args, plan, args.schedule, known)
    if report.clean and not report.stopped:
        known.add(report, _mismatches(plan, report) + _schedules(args, plan, report, known))
    for binding, path in plan.written:
        save_npy(path, report.outputs[binding.name].array)
    if args.write_baseline is not None:
        lasting = known.lasting(report)
        write_baseline(args.write_baseline, report, lasting, known.source, known.baseline)
    _write_documents(args, report, known.source)
    if "-" not in (args.json, args.html):
        _show(args, plan, report, known)
    return _exit_code(report, args.strict)


def _show(args: argparse.Namespace, plan: Plan, report: Report, known: Known) -> None:
    """What the kernel printed, the findings, and the buffers and counters that are asked for."""
    from .color import wants_color
    from .render import render_array, render_report

    color = wants_color(args.color, sys.stdout)
    write = sys.stdout.write
    if args.format == "github":
        write(_inert(report.printf))
    elif args.format in ("full", "concise", "sanitizer"):
        write(report.printf)
    write(
        render_report(
            report, known.source, args.format, args.print_limit, args.quiet, color,
            known.suppressions.advice(),
        )
    )  # fmt: skip
    if args.format in ("full", "concise"):
        for b in plan.shown:
            write(render_array(b.name, report.outputs[b.name].array, b.spec.type))
        if args.stats:
            write(_statistics(report))


def _inert(text: str) -> str:
    """What a kernel printed, in such a way that GitHub Actions obeys nothing in it."""
    if not text:
        return ""
    token = f"ptxsim-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:20]}"
    end = "" if text.endswith("\n") else "\n"
    return f"::stop-commands::{token}\n{text}{end}::{token}::\n"


def _exit_code(report: Report, strict: bool) -> int:
    from ..diagnostics import Severity

    warned = any(f.severity is Severity.WARNING for f in report.findings)
    return report.exit_code or (1 if strict and warned else 0)


def _launch(args: argparse.Namespace, plan: Plan, schedule: str, known: Known) -> Report:
    """One launch with fresh buffers; its outputs have the names and types of the arguments."""
    from ..report import Output

    arguments = [b.make() for b in plan.bindings]
    report = plan.kernel.launch(
        grid=plan.grid,
        block=plan.block,
        args=arguments,
        cluster=plan.cluster,
        smem=plan.smem,
        tools=f"{args.tool},advice" if args.stats else args.tool,
        schedule=schedule,
        max_instructions=args.max_instructions,
        jobs=args.jobs,
        wmma_rule=args.wmma_rule,
    )
    outputs = {}
    for b, value in zip(plan.bindings, arguments, strict=True):
        old = report.outputs.get(b.parameter.name)
        if b.is_buffer:
            undefined = 0 if old is None else old.undefined_bytes
            outputs[b.name] = Output(b.spec.type.token, value.shape, value, undefined)
    report.outputs = outputs
    if plan.lines is not None:
        report = plan.lines.apply(report, known.source.name)
    return known.apply(report)


def _mismatches(plan: Plan, report: Report) -> list[Finding]:
    from .compare import compare
    from .evaluate import load_elements

    found = []
    for e in plan.expected:
        type_, got = e.binding.spec.type, report.outputs[e.binding.name].array
        try:
            expected = load_elements(e.path, type_, got.size)
        except UsageError as error:
            raise UsageError(f"{e.where}: {error}") from None
        finding = compare(e.binding.name, got, expected, type_, str(e.path))
        if finding is not None:
            found.append(finding)
    return found


def _schedules(args: argparse.Namespace, plan: Plan, base: Report, known: Known) -> list[Finding]:
    """What further schedules show."""
    from .exploration import explore, further_schedules

    schedules = further_schedules(args.schedules or 0, args.schedule)
    types = {b.name: b.spec.type for b in plan.bindings if b.is_buffer}
    return explore(base, args.schedule, schedules, lambda s: _launch(args, plan, s, known), types)


def _statistics(report: Report) -> str:
    """The counters that are not zero, the first ones always, and their names in profilers."""
    always = ("thread_instructions", "warp_instructions")
    shown = {name: n for name, n in report.counters.items() if n or name in always}
    width = max((len(f"{n:,}") for n in shown.values()), default=0)
    lines = ["counters", *(f"  {n:>{width},} {name}" for name, n in shown.items())]
    named = {alias: name for alias, name in report.aliases.items() if name in shown}
    if named:
        lines.append("by the names of profilers (PTX level: instructions of PTX, not of the GPU)")
        lines += [f"  {shown[name]:>{width},} {alias}" for alias, name in named.items()]
    return "\n".join(lines) + "\n"


def _write_documents(args: argparse.Namespace, report: Report, source: Source) -> None:
    """The reports that go to files of their own."""
    from .files import write_text

    if args.json is not None:
        write_text(args.json, json.dumps(report.to_json(), indent=2) + "\n")
    if args.html is not None:
        from .html import render_html

        write_text(args.html, render_html(report, source))

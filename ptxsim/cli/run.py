"""``ptxsim run``: launch a kernel on the simulator and report what it does wrong."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..errors import PtxError
from .launch_options import add_launch_options, check_launch_options

if TYPE_CHECKING:
    from ..report import Finding, Report
    from .known import Known
    from .plan import Plan

__all__ = ["DESCRIPTION", "HELP", "add_arguments", "execute"]

HELP = "assemble, launch on the simulator, check, report"
DESCRIPTION = """Launch a kernel on the simulator. The launch and the arguments come from the header
of the file, from --args, or from the options; options win."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_launch_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Run the command."""
    from .loading import load
    from .outcome import show_invalid

    check_launch_options(args)
    try:
        loaded = load(args)
        plan = loaded.plan(args)
        return 2 if plan is None else _carry_out(args, plan, loaded.known)
    except PtxError as error:  # also of the assembler in the driver of a GPU
        return show_invalid(args, error)


def _carry_out(args: argparse.Namespace, plan: Plan, known: Known) -> int:
    """Launch, compare, and show the results."""
    from .outcome import finish, mismatches

    report = _launch(args, plan, args.schedule, known)
    if report.clean and not report.stopped:
        known.add(report, mismatches(plan, report) + _schedules(args, plan, report, known))
    return finish(args, plan, known, report)


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
        backend=args.backend,
        timeout=args.timeout,
    )
    outputs = {}
    lost = report.device is not None and report.stopped  # a fault of a GPU takes them along
    for b, value in zip(plan.bindings, arguments, strict=True):
        old = report.outputs.get(b.parameter.name)
        if b.is_buffer and not lost:
            undefined = 0 if old is None else old.undefined_bytes
            outputs[b.name] = Output(b.spec.type.token, value.shape, value, undefined)
    report.outputs = outputs
    return known.apply(plan.placed(report, known.source.name))


def _schedules(args: argparse.Namespace, plan: Plan, base: Report, known: Known) -> list[Finding]:
    """What further schedules show."""
    from .exploration import explore, further_schedules

    schedules = further_schedules(args.schedules or 0, args.schedule)
    types = {b.name: b.spec.type for b in plan.bindings if b.is_buffer}
    return explore(base, args.schedule, schedules, lambda s: _launch(args, plan, s, known), types)

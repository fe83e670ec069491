"""``ptxsim diff``: the same launch on the simulator and on a GPU, or against a recording."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import PtxError, UsageError
from . import run

if TYPE_CHECKING:
    from ..agreement import Backend, Provenance, Shape
    from ..agreement.recording import Recording, Reference
    from ..report import Finding, Report
    from .known import Known
    from .plan import Plan

__all__ = ["DESCRIPTION", "HELP", "add_arguments", "execute"]

HELP = "the same launch on the simulator and on a GPU, bits compared"
DESCRIPTION = """Launch a kernel on the simulator and on a GPU and compare whole buffers bit by bit.
Only what approximate instructions have led to may differ, within their tolerances. The launch is
given as for ptxsim run; --schedules and --backend have no meaning here."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options: those of ``ptxsim run``, and those of the comparison."""
    run.add_arguments(parser)
    group = parser.add_argument_group("comparison")
    group.add_argument("--bisect", action="store_true",
                       help="also find the first instruction whose result differs")  # fmt: skip
    group.add_argument("--state", metavar="LINE|exit",
                       help="also compare all registers before a line, or at the end")  # fmt: skip
    group.add_argument("--record", metavar="F.json", help="write the launch and the GPU's outputs")
    group.add_argument("--replay", metavar="F.json",
                       help="compare with what was recorded; needs no GPU")  # fmt: skip


def execute(args: argparse.Namespace, other: Backend | None = None) -> int:
    """Run the command; ``other`` launches in place of the GPU."""
    from ..agreement import gpu
    from .check import assemble_text
    from .files import read_text
    from .header import parse_header, parse_size
    from .plan import make_plan

    _check(args)
    run._check_options(args)
    for name in ("max_instructions", "jobs", "print_limit", "timeout"):
        text = getattr(args, name)
        option = f"--{name.replace('_', '-')}"
        setattr(args, name, None if text is None else parse_size(text, option))
    name, text = read_text(args.file)
    folder = Path() if args.file == "-" else Path(args.file).parent
    recording = None if args.replay is None else _load(args, text)
    try:
        known = run._known(args, text, name)
        header = parse_header(text, name, folder)
        module = assemble_text(text, name, run._target(args, header))
    except PtxError as error:
        return run._invalid(args, error)
    plan = make_plan(args, module, header)
    if plan is None:
        return 2
    try:
        return _carry_out(args, plan, known, recording, other or gpu)
    except PtxError as error:  # of the assembler in the driver of a GPU
        return run._invalid(args, error)


def _check(args: argparse.Namespace) -> None:
    if args.schedules is not None or args.backend != "sim":
        raise UsageError("--schedules and --backend have no meaning for diff")
    if args.replay is not None:
        for option in ("record", "bisect", "state", "grid", "block", "cluster", "smem", "arg",
                       "args", "entry", "target"):  # fmt: skip
            if getattr(args, option):
                raise UsageError(f"--replay takes the launch from its file: leave out --{option}")
    if args.state is not None and args.state != "exit" and not args.state.isdecimal():
        raise UsageError(f"--state is a line or 'exit', not '{args.state}'")


def _load(args: argparse.Namespace, text: str) -> Recording:
    """Read the recording; its launch takes the place of options."""
    from ..agreement.recording import digest, load

    r = load(args.replay)
    if digest(text) != r.ptx_sha256:
        raise UsageError(f"{args.replay} was recorded from another text than {args.file}")
    args.entry, args.target = r.entry, r.target
    for name in ("grid", "block", "cluster"):
        value = getattr(r, name)
        setattr(args, name, None if value is None else ",".join(map(str, value)))
    args.smem = str(r.smem)
    # in place of what is recorded as bytes zeros are named here, and never used
    args.arg = [a.spec if a.init is not None else a.spec + "0" for a in r.arguments]
    return r


def _carry_out(
    args: argparse.Namespace,
    plan: Plan,
    known: Known,
    recording: Recording | None,
    other: Backend,
) -> int:
    """Launch, compare, and show the results."""
    from ..agreement import Shape, simulate
    from .files import save_npy

    shape = Shape(plan.grid, plan.block, plan.cluster, plan.smem, {
        "tools": f"{args.tool},advice" if args.stats else args.tool,
        "schedule": args.schedule, "max_instructions": args.max_instructions, "jobs": args.jobs,
        "wmma_rule": args.wmma_rule,
    }, {"timeout": args.timeout})  # fmt: skip
    arguments = _arguments(plan, recording)
    report, provenance = simulate(plan.kernel, arguments, shape)
    _name_outputs(plan, arguments, report)
    known.apply(report)
    # what a faulty launch does on a GPU is evidence of nothing, and may cost it its context
    if report.clean and not report.stopped:
        if recording is not None:
            answer = {name: recording.reference(name) for name in recording.outputs}
            device = recording.device.name
            known.add(report, _compare(plan, report, answer, provenance, shape,
                                       f"the recording of {device}"))  # fmt: skip
        else:
            _ask(args, plan, known, report, provenance, shape, other)
    for binding, path in plan.written:
        save_npy(path, report.outputs[binding.name].array)
    run._write_documents(args, report, plan.module.source)
    if "-" not in (args.json, args.html):
        run._show(args, plan, report, known)
        if args.format in ("full", "concise") and not args.quiet:
            sys.stdout.write(_summary(report, recording))
    return run._exit_code(report, args.strict)


def _summary(report: Report, recording: Recording | None) -> str:
    """What was compared, so that silence is not taken for agreement."""
    near = report.counters.get("elements_within_tolerance")
    if near is None:
        return "not compared: what is reported comes first\n"
    side = "the GPU" if recording is None else f"the recording of {recording.device.name}"
    names = ", ".join(report.outputs if recording is None else recording.outputs)
    close = f"; {near} elements differ within their tolerances" if near else ""
    return f"compared with {side}: {names}{close}\n"


def _ask(
    args: argparse.Namespace,
    plan: Plan,
    known: Known,
    report: Report,
    provenance: Provenance,
    shape: Shape,
    other: Backend,
) -> None:
    """Launch on the other side and put what is different there into the report."""
    from ..agreement.recording import Reference
    from .inside import parting, states

    inputs = _arguments(plan, None)
    arguments = _arguments(plan, None)
    told = other(plan.kernel, arguments, shape)
    if not told.clean or told.stopped:
        known.add(report, [replace(f, message=f"on the GPU: {f.message}") for f in told.findings])
        return
    if args.record is not None:
        _record(args, plan, shape, inputs, arguments, told)
    answer = {
        b.name: Reference(value.reshape(-1), None, "")
        for b, value in zip(plan.bindings, arguments, strict=True) if b.is_buffer
    }  # fmt: skip
    known.add(report, _compare(plan, report, answer, provenance, shape, "the GPU"))

    def make() -> list[Any]:
        return _arguments(plan, None)

    try:
        if args.state is not None:
            line = None if args.state == "exit" else int(args.state)
            known.add(report, states(plan.kernel, make, shape, other, line))
        if args.bisect:
            known.add(report, parting(plan.kernel, make, shape, other))
    except UsageError as error:  # what was found so far is worth a report
        print(f"ptxsim: {error}", file=sys.stderr)


def _arguments(plan: Plan, recording: Recording | None) -> list[Any]:
    """Fresh arguments; those of a recording must be what they were."""
    import numpy as np

    from ..agreement.recording import digest

    if recording is None:
        return [b.make() for b in plan.bindings]
    found: list[Any] = []
    for b, a in zip(plan.bindings, recording.arguments, strict=True):
        if a.data is None:
            value = b.make()
            bytes_ = value if isinstance(value, bytes) else value.tobytes()
            if digest(bytes_) != a.sha256:
                raise UsageError(f"'{a.name}' = {a.init} is not what it was when recorded")
        else:
            value = a.data
            if b.is_buffer or a.count is None:
                value = np.frombuffer(a.data, b.spec.type.dtype).copy()
        found.append(value[0] if a.count is None and not isinstance(value, np.generic) else value)
    return found


def _name_outputs(plan: Plan, arguments: list[Any], report: Report) -> None:
    """Give the outputs the names and types of the arguments."""
    from ..report import Output

    undefined = {name: o.undefined_bytes for name, o in report.outputs.items()}
    report.outputs = {
        b.name: Output(
            b.spec.type.token, value.shape, value, undefined.get(b.parameter.name, 0)
        )
        for b, value in zip(plan.bindings, arguments, strict=True) if b.is_buffer
    }  # fmt: skip


def _compare(
    plan: Plan,
    report: Report,
    answer: Mapping[str, Reference],
    provenance: Provenance,
    shape: Shape,
    origin: str,
) -> list[Finding]:
    from .agree import differences

    found, near = [], 0
    for b in plan.bindings:
        if b.name in answer:
            got = report.outputs[b.name].array
            finding, some = differences(
                b.name,
                b.parameter.name,
                b.spec.type,
                got,
                answer[b.name],
                provenance,
                shape,
                origin,
            )
            near += some
            if finding is not None:
                found.append(finding)
    report.counters = {**report.counters, "elements_within_tolerance": near}
    return found


def _record(
    args: argparse.Namespace,
    plan: Plan,
    shape: Shape,
    inputs: list[Any],
    arguments: list[Any],
    told: Report,
) -> None:
    """Write the launch and the other side's outputs."""
    from ..agreement.recording import (
        RecordedArgument,
        Recording,
        device_of,
        digest,
        output_of,
        to_json,
    )
    from .files import write_text

    recorded = []
    for b, value in zip(plan.bindings, inputs, strict=True):
        data = value if isinstance(value, bytes) else value.tobytes()
        # a file may change or be gone when the recording is compared
        init = None if "@" in b.spec.text else b.spec.text
        kept = data if init is None else None
        recorded.append(RecordedArgument(
            b.name, b.spec.type.token, b.spec.count, init, kept, digest(data)))  # fmt: skip
    outputs = {
        b.name: output_of(b.spec.type.token, value)
        for b, value in zip(plan.bindings, arguments, strict=True) if b.is_buffer
    }  # fmt: skip
    recording = Recording(
        plan.kernel.name, plan.module.target, digest(plan.module.source.text), shape.grid,
        shape.block, shape.cluster, shape.smem, tuple(recorded), outputs, device_of(told),
    )  # fmt: skip
    write_text(args.record, json.dumps(to_json(recording), indent=1) + "\n")

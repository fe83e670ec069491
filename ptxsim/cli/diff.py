"""``ptxsim diff``: the same launch on the simulator and on a GPU, or against a recording."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import PtxError, UsageError
from .launch_options import add_launch_options, check_launch_options

if TYPE_CHECKING:
    from ..agreement import Backend, Provenance, Shape
    from ..agreement.recording import Recording, Reference
    from ..api import Module
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
    add_launch_options(parser)
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
    from .loading import load
    from .outcome import show_invalid

    _check(args)
    check_launch_options(args)
    recording = None if args.replay is None else _launch_of_recording(args)
    try:
        loaded = load(args)
        if recording is not None:
            _check_text(args, loaded.module, recording)
        plan = loaded.plan(args)
        return 2 if plan is None else _carry_out(args, plan, loaded.known, recording, other or gpu)
    except PtxError as error:  # also of the assembler in the driver of a GPU
        return show_invalid(args, error)


def _check(args: argparse.Namespace) -> None:
    if args.schedules is not None or args.backend != "sim":
        raise UsageError("--schedules and --backend have no meaning for diff")
    if args.record == "-":
        raise UsageError("--record needs a file")
    if args.replay is not None:
        for option in ("record", "bisect", "state", "grid", "block", "cluster", "smem", "arg",
                       "args", "entry", "target"):  # fmt: skip
            if getattr(args, option):
                raise UsageError(f"--replay takes the launch from its file: leave out --{option}")
    if args.state is not None and args.state != "exit":
        from .cuda import is_cuda

        if is_cuda(args.file):
            raise UsageError("--state of CUDA C++ is 'exit': a line of it is no place in the PTX")
        if not (args.state.isascii() and args.state.isdecimal() and len(args.state) <= 9):
            raise UsageError(f"--state is a line or 'exit', not '{args.state}'")


def _launch_of_recording(args: argparse.Namespace) -> Recording:
    """Read the recording; its launch takes the place of options."""
    from ..agreement.recording import load

    r = load(args.replay)
    args.entry, args.target = r.entry, r.target
    for name in ("grid", "block", "cluster"):
        value = getattr(r, name)
        setattr(args, name, None if value is None else ",".join(map(str, value)))
    args.smem = str(r.smem)
    # in place of what is recorded as bytes zeros are named here, and never used
    args.arg = [a.spec if a.init is not None else a.spec + "0" for a in r.arguments]
    return r


def _check_text(args: argparse.Namespace, module: Module, recording: Recording) -> None:
    from ..agreement.recording import digest
    from .cuda import is_cuda

    if digest(module.source.text) != recording.ptx_sha256:
        made = "; what NVRTC makes of it may have changed" if is_cuda(args.file) else ""
        raise UsageError(f"{args.replay} was recorded from another text than {args.file}{made}")


def _carry_out(
    args: argparse.Namespace,
    plan: Plan,
    known: Known,
    recording: Recording | None,
    other: Backend,
) -> int:
    """Launch, compare, and show the results."""
    from ..agreement import Shape, simulate
    from .outcome import finish, mismatches

    shape = Shape(plan.grid, plan.block, plan.cluster, plan.smem, {
        "tools": f"{args.tool},advice" if args.stats else args.tool,
        "schedule": args.schedule, "max_instructions": args.max_instructions, "jobs": args.jobs,
        "wmma_rule": args.wmma_rule,
    }, {"timeout": args.timeout})  # fmt: skip
    arguments = _arguments(plan, recording)
    report, provenance = simulate(plan.kernel, arguments, shape)
    _name_outputs(plan, arguments, report)
    report = known.apply(plan.placed(report, known.source.name))
    # what a faulty launch does on a GPU is evidence of nothing, and may cost it its context
    if report.clean and not report.stopped:
        expected = mismatches(plan, report)
        if recording is not None:
            answer = {name: recording.reference(name) for name in recording.outputs}
            device = recording.device.name
            found = _compare(plan, report, answer, provenance, shape, f"the recording of {device}")
        else:
            found = _ask(args, plan, report, provenance, shape, other)
        known.add(report, [*expected, *plan.placed_findings(found)])
    return finish(args, plan, known, report, _summary(report, recording))


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
    report: Report,
    provenance: Provenance,
    shape: Shape,
    other: Backend,
) -> list[Finding]:
    """Launch on the other side: what is different there, and inside if that is asked for."""
    from ..agreement.recording import Reference
    from .inside import parting, states

    inputs = _arguments(plan, None)
    arguments = _arguments(plan, None)
    told = other(plan.kernel, arguments, shape)
    if not told.clean or told.stopped:
        return [replace(f, message=f"on the GPU: {f.message}") for f in told.findings]
    if args.record is not None:
        _record(args, plan, shape, inputs, arguments, told)
    answer = {
        b.name: Reference(value.reshape(-1), None, "")
        for b, value in zip(plan.bindings, arguments, strict=True) if b.is_buffer
    }  # fmt: skip
    found = _compare(plan, report, answer, provenance, shape, "the GPU")

    def make() -> list[Any]:
        return _arguments(plan, None)

    try:
        if args.state is not None:
            line = None if args.state == "exit" else int(args.state)
            found += states(plan.kernel, make, shape, other, line)
        if args.bisect:
            found += parting(plan.kernel, make, shape, other)
    except UsageError as error:  # what was found so far is worth a report
        print(f"ptxsim: {error}", file=sys.stderr)
    return found


def _arguments(plan: Plan, recording: Recording | None) -> list[Any]:
    """Fresh arguments; those of a recording must be what they were."""
    import numpy as np

    from ..agreement.recording import digest

    if recording is None:
        return [b.make() for b in plan.bindings]
    if [b.name for b in plan.bindings] != [a.name for a in recording.arguments]:
        raise UsageError("the arguments of the recording are not in the order of the parameters")
    found: list[Any] = []
    for b, a in zip(plan.bindings, recording.arguments, strict=True):
        if a.data is None:
            value = b.make()
            bytes_ = value if isinstance(value, bytes) else value.tobytes()
            if digest(bytes_) != a.sha256:
                raise UsageError(f"'{a.name}' = {a.init} is not what it was when recorded")
        else:
            value = a.data
            if a.count is None and len(value) != b.spec.type.size:
                raise UsageError(f"'{a.name}' is recorded with {len(value)} bytes, {b.spec.type}"
                                 f" has {b.spec.type.size}")  # fmt: skip
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

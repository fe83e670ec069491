"""The plan of a launch: header, files and options together, checked before anything runs."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path

from ..api import Kernel, Module
from ..errors import UsageError
from ..report import Finding, Report
from .arguments import Binding, bind, position_of, read_toml, signature, suggestion
from .cuda import LineMap
from .header import Dimensions, Header, Launch, parse_dimensions, parse_size
from .source_text import SourceTexts
from .spec import parse_spec

__all__ = ["Expectation", "Plan", "make_plan"]


@dataclass(frozen=True, slots=True)
class Expectation:
    """A buffer and the file with the bits that it must hold."""

    binding: Binding
    path: Path
    where: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A launch that can be made; ``lines`` leads from the PTX to what it was compiled from.

    ``texts`` are the files beside the PTX that it names.
    """

    module: Module
    kernel: Kernel
    grid: Dimensions
    block: Dimensions
    cluster: Dimensions | None
    smem: int
    bindings: list[Binding]
    expected: list[Expectation]
    written: list[tuple[Binding, str]]
    shown: list[Binding]
    lines: LineMap | None = None
    texts: SourceTexts = field(default_factory=lambda: SourceTexts(None))

    def placed(self, report: Report, name: str) -> Report:
        """The report of a launch as one about the file ``name``, whose lines are known to users."""
        return self.texts.apply(report if self.lines is None else self.lines.apply(report, name))

    def placed_findings(self, findings: Iterable[Finding]) -> list[Finding]:
        """Findings about lines of the PTX as ones about the lines of the file."""
        return [f if self.lines is None else self.lines.finding(f) for f in findings]


def make_plan(args: argparse.Namespace, module: Module, header: Header) -> Plan | None:
    """The plan for the options, or None after printing what is missing and a command to paste."""
    file = Header() if args.args is None else read_toml(args.args)
    launch = _merged(_options(args), file.launch, header.launch)
    if launch.entry is None and len(module.entries) != 1:
        _ask_for_entry(args, module)
        return None
    kernel = module.kernel(launch.entry)
    # the entry of the header has the arguments of the header; another one has not
    about = header.launch.entry or (module.entries[0] if len(module.entries) == 1 else kernel.name)
    usual = header.args if about == kernel.name else []
    bound = bind(kernel, [parse_spec(text) for text in args.arg], file.args or usual)
    bindings = [b for b in bound if b is not None]
    if launch.grid is None or launch.block is None or len(bindings) < len(bound):
        _ask_for_launch(args, kernel, launch, bound)
        return None
    expected = [
        Expectation(_buffer(bindings, name, f"--expect {name}={path}"), Path(path), "--expect")
        for name, path in (_pair(text, "--expect") for text in args.expect)
    ]
    if about == kernel.name:
        done = [e.binding for e in expected]
        for out in header.outs:
            binding = _buffer(bindings, out.name, out.where)
            if binding not in done:
                expected.append(Expectation(binding, out.path, out.where))
    pairs = [_pair(text, "--out") for text in args.out]
    return Plan(
        module=module,
        kernel=kernel,
        grid=launch.grid,
        block=launch.block,
        cluster=launch.cluster,
        smem=launch.smem or 0,
        bindings=bindings,
        expected=expected,
        written=[(_buffer(bindings, name, f"--out {name}={path}"), path) for name, path in pairs],
        shown=[_buffer(bindings, name, f"--print {name}") for name in args.show],
    )


def _options(args: argparse.Namespace) -> Launch:
    launch = Launch(entry=args.entry)
    for name in ("grid", "block", "cluster"):
        text = getattr(args, name)
        if text is not None:
            setattr(launch, name, parse_dimensions(text, f"--{name}"))
    if args.smem is not None:
        launch.smem = parse_size(args.smem, "--smem")
    return launch


def _merged(*launches: Launch) -> Launch:
    """What the first launch that says anything about a value says."""
    out = Launch()
    for f in fields(Launch):
        given = (getattr(launch, f.name) for launch in launches)
        setattr(out, f.name, next((v for v in given if v is not None), None))
    return out


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise UsageError(f"{option} is NAME=FILE.npy, not '{text}'")
    return name, path


def _buffer(bindings: list[Binding], name: str, where: str) -> Binding:
    """The buffer that a name means: of an argument, or of a parameter."""
    buffers = [b for b in bindings if b.is_buffer]
    for b in buffers:
        if b.name == name:
            return b
    position = position_of(name, [b.parameter.name for b in buffers])
    if position is None:
        known = ", ".join(b.name for b in buffers) or "none"
        raise UsageError(f"{where}: no buffer '{name}'; there are: {known}")
    return buffers[position]


def _given(args: argparse.Namespace) -> list[str]:
    """The options about the launch as they were given."""
    out: list[str] = []
    for name in ("grid", "block", "cluster", "smem", "target", "args"):
        text = getattr(args, name)
        if text is not None:
            out += [f"--{name}", text]
    for text in args.arg:
        out += ["--arg", text]
    for option, name in (("-I", "include"), ("-D", "define")):
        for text in getattr(args, name, ()):
            out += [option, text]
    return out


def _ask_for_entry(args: argparse.Namespace, module: Module) -> None:
    file = args.file
    kernels = [module.kernel(name) for name in module.entries]
    if not kernels:
        raise UsageError(f"{file} has no entry: there is nothing to run")
    lines = [f"ptxsim: {file} has {len(kernels)} entries; say which one to run:"]
    lines += [f"  {signature(k)}" for k in kernels]
    lines.append("for example:")
    words = ["ptxsim", args.command, file, "--entry", kernels[0].name, *_given(args)]
    lines.append(f"  {shlex.join(words)}")
    print("\n".join(lines), file=sys.stderr)


def _ask_for_launch(
    args: argparse.Namespace, kernel: Kernel, launch: Launch, bound: list[Binding | None]
) -> None:
    missing = [n for n in ("grid", "block") if getattr(launch, n) is None]
    names = [p.name for p, b in zip(kernel.params, bound, strict=True) if b is None]
    if names:
        missing.append(f"argument{'s' if len(names) > 1 else ''} {', '.join(names)}")
    lines = [
        f"ptxsim: the launch of '{kernel.name}' is not known; missing: {'; '.join(missing)}",
        f"  {signature(kernel)}",
        "for example:",
        f"  {suggestion(args.command, args.file, kernel, _given(args), launch, bound)}",
        "or say it in the header of the file: // launch: ... and // arg: ...",
    ]
    print("\n".join(lines), file=sys.stderr)

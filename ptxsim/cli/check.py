"""``ptxsim check``: assemble files and say what is wrong with them."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .._version import __version__
from ..diagnostics import Diagnostic, Severity, Source
from ..errors import UsageError

if TYPE_CHECKING:
    from ..api import Module
    from ..nvidia import Assembler
    from ..report import Report
    from .judge import Judgement

__all__ = ["DESCRIPTION", "HELP", "UNSUPPORTED", "add_arguments", "assemble_text", "execute"]

HELP = "assemble only: syntax, types, target rules, instructions that are not modelled"
DESCRIPTION = (
    "Assemble files without running them. Folders are searched for *.ptx; - is standard input."
)

#: The code of legal instructions that ptxsim does not model.
UNSUPPORTED = "PTX400"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="file, folder, or -")
    parser.add_argument("--target", metavar="SM", help="check for this target (default: .target)")
    parser.add_argument(
        "--format", default="full", metavar="FORMAT",
        help="full, concise, json, sarif, github, junit, sanitizer",
    )  # fmt: skip
    parser.add_argument("--color", default="auto", metavar="WHEN", help="auto, always, never")
    parser.add_argument("--strict", action="store_true", help="warnings are errors")
    parser.add_argument("--quiet", action="store_true", help="no summary")
    parser.add_argument(
        "--ptxas", action="store_true",
        help="ask NVIDIA's assembler too (ptxas, else nvJitLink); exit code 1 if it disagrees",
    )  # fmt: skip
    parser.add_argument(
        "--cubin", metavar="FILE.cubin", help="write what NVIDIA's assembler makes; implies --ptxas"
    )


@dataclass(frozen=True, slots=True)
class _Checked:
    """A file with its messages; ``valid`` is whether it assembles."""

    source: Source
    target: str | None
    diagnostics: tuple[Diagnostic, ...]
    valid: bool
    judgement: Judgement | None = None

    @property
    def shown(self) -> tuple[Diagnostic, ...]:
        """The messages, and where NVIDIA's assembler says something else."""
        return (*self.diagnostics, *(self.judgement.disagreements if self.judgement else ()))

    def exit_code(self, strict: bool) -> int:
        """A disagreement comes first: then it is open what the other verdicts are worth."""
        if self.judgement and self.judgement.disagreements:
            return 1
        if not self.valid:
            return 3
        if any(d.code == UNSUPPORTED for d in self.diagnostics):
            return 4
        warned = any(d.severity is Severity.WARNING for d in self.diagnostics)
        return 1 if strict and warned else 0


def assemble_text(text: str, name: str, target: str | None) -> Module:
    """Assemble a text that was read from a file."""
    import ptxsim

    # a single line without an end could be taken for a path
    return ptxsim.assemble(text if "\n" in text else text + "\n", target=target, name=name)


def execute(args: argparse.Namespace) -> int:
    """Run the command."""
    from .color import wants_color
    from .files import find_ptx, read_text
    from .render import check_format, render_diagnostics, render_report, render_reports

    style = check_format(args.format)
    color = wants_color(args.color, sys.stdout)
    paths = find_ptx(args.files)
    assembler = _assembler(args, paths)
    checked = [_check(*read_text(path), args.target, assembler) for path in paths]
    if assembler is not None and args.cubin is not None:
        _write_cubin(args, checked[0], assembler)
    if style == "json":
        report = {"ptxsim": __version__, "files": [_to_json(c) for c in checked]}
        print(json.dumps(report, indent=2))
    elif style in ("sarif", "junit"):
        sys.stdout.write(render_reports([(_report(c), c.source) for c in checked], style))
    elif style == "sanitizer":
        for c in checked:
            sys.stdout.write(render_report(_report(c), c.source, style, 0, args.quiet))
    else:
        for c in checked:
            sys.stdout.write(render_diagnostics(c.shown, c.source, style, color))
    if style in ("full", "concise") and not args.quiet:
        print(_summary(checked))
    if any(c.judgement and c.judgement.disagreements for c in checked):
        return 1
    codes = {c.exit_code(args.strict) for c in checked}
    return next((code for code in (3, 4, 1) if code in codes), 0)


def _assembler(args: argparse.Namespace, paths: list[str]) -> Assembler | None:
    """NVIDIA's assembler if it is asked for."""
    if args.cubin is not None and (len(paths) != 1 or args.cubin == "-"):
        raise UsageError("--cubin needs one PTX file, and a file to write")
    if not args.ptxas and args.cubin is None:
        return None
    from ..nvidia import find_assembler

    return find_assembler()


def _check(name: str, text: str, target: str | None, assembler: Assembler | None) -> _Checked:
    from ..errors import PtxError

    try:
        module = assemble_text(text, name, target)
    except PtxError as error:
        c = _Checked(error.source, target, error.diagnostics, False)
    else:
        c = _Checked(module.source, module.target, tuple(module.diagnostics), True)
    if assembler is None:
        return c
    from .judge import judge

    # assemble_text may add a line end, which moves nothing
    said = judge(assembler, Source(name, text), target, c.valid, c.diagnostics)
    return replace(c, judgement=said)


def _write_cubin(args: argparse.Namespace, c: _Checked, assembler: Assembler) -> None:
    """Write the whole program where NVIDIA's assembler accepts the text."""
    from ..nvidia import retarget, target_of
    from .files import write_bytes

    if c.judgement is None or not c.judgement.verdict.accepted:
        print(f"ptxsim: {args.cubin} is not written", file=sys.stderr)
        return
    text = c.source.text if args.target is None else retarget(c.source.text, args.target)
    write_bytes(args.cubin, assembler.cubin(text, target_of(text)))


def _report(c: _Checked) -> Report:
    """The messages about a file as the findings of a report without an entry."""
    from ..report import Report
    from ..syntax.line_table import LineTable
    from .render import diagnostic_finding

    lines = LineTable(c.source.text)
    found = tuple(diagnostic_finding(d, lines) for d in c.shown)
    return Report(c.source.name, "", c.target or "", found)


def _to_json(c: _Checked) -> dict[str, Any]:
    from .render import diagnostic_json

    code = c.exit_code(strict=False)
    verdicts = {1: "disagreement", 3: "static-error", 4: "unsupported"}
    out = {
        "file": c.source.name,
        "target": c.target,
        "verdict": verdicts.get(code, "clean"),
        "diagnostics": [diagnostic_json(d) for d in c.shown],
    }
    return out if c.judgement is None else {**out, "assembler": c.judgement.to_json()}


def _summary(checked: list[_Checked]) -> str:
    from .clean import one_line

    own = [replace(c, judgement=None).exit_code(strict=False) for c in checked]
    total = f"{len(checked)} file{'s' if len(checked) != 1 else ''} checked"
    out = [f"{total}: {_counts((own.count(3), 'invalid'), (own.count(4), 'not modelled'))}"]
    said = [(c, c.judgement) for c in checked if c.judgement is not None]
    if said:
        out[:0] = [
            one_line(f"{c.source.name}: not judged by {j.assembler}: {j.unjudged}")
            for c, j in said
            if j.unjudged
        ]
        wrong = sum(bool(j.disagreements) for _, j in said)
        unjudged = sum(j.unjudged is not None for _, j in said)
        counts = _counts((wrong, "in disagreement"), (unjudged, "not judged"))
        out.append(f"{said[0][1].assembler}: {counts}")
    return "\n".join(out)


def _counts(*parts: tuple[int, str]) -> str:
    return ", ".join(f"{n} {what}" for n, what in parts if n) or "all good"

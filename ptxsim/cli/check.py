"""``ptxsim check``: assemble files and say what is wrong with them."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._version import __version__
from ..diagnostics import Diagnostic, Severity, Source

if TYPE_CHECKING:
    from ..api import Module
    from ..report import Report

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


@dataclass(frozen=True, slots=True)
class _Checked:
    """A file with its messages; ``valid`` is whether it assembles."""

    source: Source
    target: str | None
    diagnostics: tuple[Diagnostic, ...]
    valid: bool

    def exit_code(self, strict: bool) -> int:
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
    checked = [_check(*read_text(path), args.target) for path in find_ptx(args.files)]
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
            sys.stdout.write(render_diagnostics(c.diagnostics, c.source, style, color))
    if style in ("full", "concise") and not args.quiet:
        print(_summary(checked))
    codes = {c.exit_code(args.strict) for c in checked}
    return next((code for code in (3, 4, 1) if code in codes), 0)


def _check(name: str, text: str, target: str | None) -> _Checked:
    from ..errors import PtxError

    try:
        module = assemble_text(text, name, target)
    except PtxError as error:
        return _Checked(error.source, target, error.diagnostics, False)
    return _Checked(module.source, module.target, tuple(module.diagnostics), True)


def _report(c: _Checked) -> Report:
    """The messages about a file as the findings of a report without an entry."""
    from ..report import Report
    from .render import diagnostic_finding

    found = tuple(diagnostic_finding(d) for d in c.diagnostics)
    return Report(c.source.name, "", c.target or "", found)


def _to_json(c: _Checked) -> dict[str, Any]:
    from .render import diagnostic_json

    code = c.exit_code(strict=False)
    return {
        "file": c.source.name,
        "target": c.target,
        "verdict": {3: "static-error", 4: "unsupported"}.get(code, "clean"),
        "diagnostics": [diagnostic_json(d) for d in c.diagnostics],
    }


def _summary(checked: list[_Checked]) -> str:
    codes = [c.exit_code(strict=False) for c in checked]
    invalid, unsupported = codes.count(3), codes.count(4)
    total = f"{len(checked)} file{'s' if len(checked) != 1 else ''} checked"
    parts = [
        f"{n} {what}" for n, what in ((invalid, "invalid"), (unsupported, "not modelled")) if n
    ]
    return f"{total}: {', '.join(parts) or 'all good'}"

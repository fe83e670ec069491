"""The file of a launch, assembled, or compiled first; what its header says; what is known of it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

from ..api import Module
from ..diagnostics import Source
from .arguments import read_toml
from .baseline import read_baseline
from .check import assemble_text
from .cuda import LineMap, compile_module, is_cuda
from .files import read_text
from .header import Header, parse_header
from .known import Known
from .plan import Plan, make_plan
from .source_text import SourceTexts
from .suppress import Suppressions, parse_option

__all__ = ["Loaded", "load"]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A module with the header of its file; ``known`` is what its reports leave out."""

    module: Module
    header: Header
    known: Known
    lines: LineMap | None
    texts: SourceTexts

    def plan(self, args: argparse.Namespace) -> Plan | None:
        """The plan of a launch, or None after printing what is missing."""
        plan = make_plan(args, self.module, self.header)
        return None if plan is None else replace(plan, lines=self.lines, texts=self.texts)


def load(args: argparse.Namespace) -> Loaded:
    """Read and assemble the file that the options name; :class:`PtxError` if it is invalid."""
    name, text = read_text(args.file)
    folder = Path() if args.file == "-" else Path(args.file).parent
    known = _known(args, text, name)
    header = parse_header(text, name, folder)
    target = _target(args, header)
    lines = None
    if is_cuda(args.file):
        module, lines = compile_module(args, text, name, folder, target)
    else:
        module = assemble_text(text, name, target)
    return Loaded(module, header, known, lines, SourceTexts(None if args.file == "-" else folder))


def _target(args: argparse.Namespace, header: Header) -> str | None:
    """The target that the options, the file of arguments or the header name."""
    file = None if args.args is None else read_toml(args.args).launch.target
    return args.target or file or header.launch.target


def _known(args: argparse.Namespace, text: str, name: str) -> Known:
    """What is left out of the report; files and patterns are looked at before anything runs."""
    source = Source(name, text)
    options = [parse_option(word) for word in args.suppress]
    baseline = None if args.baseline is None else read_baseline(args.baseline)
    return Known(source, Suppressions(options, source), baseline)

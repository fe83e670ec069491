"""``ptxsim dump``: what each stage made of a file."""

from __future__ import annotations

import argparse
import sys

from ..errors import PtxError

__all__ = ["DESCRIPTION", "HELP", "STAGES", "add_arguments", "execute"]

HELP = "show what a stage made: syntax tree, typed module, program, control flow"
DESCRIPTION = "Print the result of a stage: ast, module, program or cfg."

STAGES = ("ast", "module", "program", "cfg")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("file", metavar="FILE", help="the file, or - for standard input")
    parser.add_argument("--stage", choices=STAGES, default="module", help="default: module")
    parser.add_argument("--entry", metavar="NAME", help="default: the only entry")
    parser.add_argument("--target", metavar="SM", help="default: the module's .target")


def execute(args: argparse.Namespace) -> int:
    """Run the command."""
    from ..diagnostics import render
    from .files import read_text

    name, text = read_text(args.file)
    try:
        shown = _text(args, text, name)
    except PtxError as error:
        print("\n".join(render(d, error.source) for d in error.diagnostics), file=sys.stderr)
        return 3
    sys.stdout.write(shown if shown.endswith("\n") else shown + "\n")
    return 0


def _text(args: argparse.Namespace, text: str, name: str) -> str:
    from .check import assemble_text

    if args.stage == "ast":
        from ..syntax import parse
        from ..syntax.dump import tree_text

        return tree_text(parse(text, name))
    module = assemble_text(text, name, args.target)
    if args.stage == "module":
        from ..resolve import dump_module

        return dump_module(module.typed)
    from ..program import dump_cfg, dump_program

    entry = module.kernel(args.entry).name
    return (dump_program if args.stage == "program" else dump_cfg)(module.typed, entry)

"""A compiled program and its control flow as text, for ``ptxsim dump``."""

from __future__ import annotations

from ..resolve.typed import TypedModule
from .compile import compile_program
from .model import Block, Link, Program, Routine

__all__ = ["dump_cfg", "dump_program"]


def _program(module: TypedModule, entry: str) -> Program:
    """The program with made-up addresses, one page a variable."""
    variables = {name: 0x1000 * n for n, name in enumerate(module.variables, 1)}
    functions = {name: 16 * n for n, name in enumerate(module.functions, 1)}
    link = Link(variables, functions, 0, module.shared_layout(entry), module.target, initcheck=True)
    return compile_program(module, entry, link)


def _routines(program: Program) -> list[Routine]:
    return list({r.index: r for r in program.routines.values()}.values())


def _block(block: Block) -> str:
    line = f"line {block.site.line}" if block.site else ""
    marks = " collective" if block.gate else ""
    marks += " waits" if block.waits else ""
    after = ", ".join(f"B{s}" for s in block.successors) or "end"
    return (
        f"  B{block.index:<4} order {block.order:<4} {block.length:3} instructions,"
        f" {len(block.steps):3} steps, {len(block.live):3} live{marks} -> {after}  {line}"
    )


def dump_program(module: TypedModule, entry: str) -> str:
    """Routines and blocks in the order in which lanes are picked."""
    lines = []
    for r in _routines(_program(module, entry)):
        lines.append(
            f"{r.name}: {len(r.template)} register places, {r.frame_size} bytes of frame,"
            f" {len(r.undefined)} registers that may be undefined"
        )
        lines += [_block(b) for b in sorted(r.blocks, key=lambda b: b.order)]
    return "\n".join(lines) + "\n"


def dump_cfg(module: TypedModule, entry: str) -> str:
    """The control flow graph in the language of Graphviz."""
    lines = ["digraph cfg {", "  node [shape=box, fontname=monospace];"]
    for r in _routines(_program(module, entry)):
        for b in r.blocks:
            line = f"line {b.site.line}: {b.site.text}" if b.site else "end"
            lines.append(f'  "{r.name}.{b.index}" [label="{r.name} B{b.index}\\n{line}"];')
            lines += [f'  "{r.name}.{b.index}" -> "{r.name}.{s}";' for s in b.successors]
    return "\n".join([*lines, "}"]) + "\n"

"""The head of a module: version, target and address size (PTX ISA 9.1, PTX Module Directives)."""

from __future__ import annotations

from ..diagnostics import did_you_mean
from ..syntax import ast
from ..targets import PTX_VERSIONS, TARGETS, parse_target
from .declarations import header_faults
from .state import ModuleState

__all__ = ["read_header"]


def read_header(module: ast.Module, state: ModuleState, wanted: str | None) -> None:
    """Read version, target and address size; ``wanted`` replaces the target of the text."""
    first = module.items[0] if module.items else None
    if not isinstance(first, ast.VersionDirective):
        state.log.error("PTX109", "a module begins with a .version directive", module.span)
        return
    state.version = (first.major, first.minor)
    state.version_span = first.span
    if state.version not in PTX_VERSIONS:
        state.log.error(
            "PTX107", f"PTX ISA version {first.major}.{first.minor} does not exist", first.span
        )
    directives = [i for i in module.items if isinstance(i, ast.TargetDirective)]
    if not directives:
        state.log.error("PTX109", "a .target directive is missing", first.span)
    for directive in directives:
        _target(directive, state, wanted)
    sizes = [i for i in module.items if isinstance(i, ast.AddressSizeDirective)]
    for size in sizes:
        if size.size not in (32, 64):
            state.log.error("PTX109", ".address_size is 32 or 64", size.span)
    state.address_size = sizes[0].size if sizes else 32
    state.report(
        header_faults(
            module, state.target_options, state.target, state.address_size, state.target_span
        )
    )


def _target(item: ast.TargetDirective, state: ModuleState, wanted: str | None) -> None:
    state.target_span = item.span
    names = [t for t in item.targets if t.startswith(("sm_", "compute_"))]
    state.target_options = tuple(t for t in item.targets if t not in names)
    for option in state.target_options:
        known = ("texmode_unified", "texmode_independent", "debug", "map_f64_to_f32")
        if option not in known:
            state.log.error(
                "PTX109", f"unknown .target option '{option}'", item.span,
                did_you_mean(option, (*known, *TARGETS)),
            )  # fmt: skip
    if not names:
        state.log.error("PTX109", "the .target directive names no target", item.span)
        return
    text = wanted or names[0]
    target = parse_target(text.replace("compute_", "sm_"))
    if target is None:
        state.log.error(
            "PTX107", f"unknown target '{text}'", item.span, did_you_mean(text, TARGETS)
        )
        return
    state.target = target
    since = TARGETS[str(target)]
    if state.version < since and not wanted:
        state.log.error(
            "PTX107",
            f"target {text} needs PTX ISA version {since[0]}.{since[1]} or later",
            item.span,
            notes=(("the version is set here", state.version_span),),
        )

"""Aliases of functions (PTX ISA 9.1, "Kernel and Function Directives: .alias").

What may be an alias of what was measured with ptxas 13.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

from ..diagnostics import did_you_mean
from ..targets import Floor, Target
from .typed import Register, Symbol, TypedFunction

__all__ = ["alias_fault"]

_FLOOR = Floor.parse("6.3+sm_30")


def alias_fault(
    name: str,
    target: str,
    functions: Mapping[str, TypedFunction],
    aliases: Mapping[str, str],
    version: tuple[int, int],
    machine: Target,
) -> tuple[str, str, str | None] | None:
    """Code, message and hint if a function cannot be an alias of ``target``, else None.

    An alias is declared as a function without a body; its target has the same head.
    """
    needs = _FLOOR.unmet(version, machine)
    if needs is not None:
        return "PTX107", f".alias needs {needs}", None
    for word in (name, target):
        if word not in functions:
            return "PTX101", f"unknown function '{word}'", did_you_mean(word, functions)
        if functions[word].kind == "entry":
            return "PTX102", f"'{word}' is an entry, and entries have no aliases", None
    alias, aliased = functions[name], functions[target]
    if alias.instructions is not None:
        return "PTX102", f"'{name}' has a body and is no alias", None
    if name == target:
        return "PTX102", f"'{name}' cannot be an alias of itself", None
    if name in aliases:
        return "PTX102", f"'{name}' is an alias of '{aliases[name]}' already", None
    differs = _difference(alias, aliased)
    if differs is not None:
        return "PTX102", f"'{name}' and '{target}' differ in {differs}", None
    return None


def _difference(one: TypedFunction, other: TypedFunction) -> str | None:
    """What the heads of two functions differ in."""
    if ("noreturn" in one.directives) != ("noreturn" in other.directives):
        return ".noreturn"
    for what in ("results", "parameters"):
        pairs = zip_longest(getattr(one, what), getattr(other, what))
        if any(a is None or b is None or _shape(a) != _shape(b) for a, b in pairs):
            return what
    return None


def _shape(parameter: Symbol | Register) -> tuple[object, ...]:
    if isinstance(parameter, Register):
        return "reg", parameter.type
    return "param", parameter.type, parameter.size, parameter.align

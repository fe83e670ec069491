"""Which argument belongs to which parameter, and what is missing for a launch."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from .files import read_text
from .header import Header, Launch, set_launch
from .spec import Spec, parse_spec

if TYPE_CHECKING:
    from ..api import Kernel, Parameter

__all__ = ["Binding", "bind", "position_of", "read_toml", "signature", "suggestion"]


@dataclass(frozen=True, slots=True)
class Binding:
    """A parameter with its argument and the name under which both are shown."""

    name: str
    parameter: Parameter
    spec: Spec

    @property
    def is_buffer(self) -> bool:
        """Whether the kernel gets a pointer to the elements, and not their bytes."""
        return self.spec.count is not None and self.parameter.count is None

    def make(self) -> Any:
        """The argument as ``kernel.launch`` takes it."""
        value = self.spec.make()
        return value if self.parameter.count is None else value.tobytes()


def _matches(name: str, parameter: str) -> bool:
    """Whether an argument name means a parameter: its name, or its name without ``_p``."""
    return parameter in (name, f"{name}_p")


def position_of(name: str, names: Sequence[str]) -> int | None:
    """The place of the parameter that a name means; an exact name comes first."""
    if name in names:
        return list(names).index(name)
    return next((i for i, p in enumerate(names) if _matches(name, p)), None)


def bind(kernel: Kernel, options: Sequence[Spec], fallback: Sequence[Spec]) -> list[Binding | None]:
    """Arguments by parameter; None where there is none.

    ``options`` are those of the command line: named ones first, the others fill the remaining
    parameters in order.  ``fallback`` are those of a file: by name if the names are those of
    parameters, otherwise in the order of the parameters.
    """
    names = [p.name for p in kernel.params]
    chosen: list[Spec | None] = _from_file(kernel.name, names, fallback)
    given: dict[int, Spec] = {}
    for spec in options:
        if spec.name is None:
            continue
        position = _position(spec, names, chosen)
        if position in given:
            raise UsageError(f"{spec.where}: '{spec.name}' is given twice")
        given[position] = spec
    free = (i for i in range(len(names)) if i not in given)
    for spec in options:
        if spec.name is not None:
            continue
        place = next(free, None)
        if place is None:
            raise UsageError(f"{spec.where}: '{kernel.name}' has only {len(names)} parameters")
        old = chosen[place]
        given[place] = replace(spec, name=old.name if old else names[place])
    out: list[Binding | None] = []
    for i, parameter in enumerate(kernel.params):
        spec_ = given.get(i, chosen[i])
        out.append(None if spec_ is None else _binding(parameter, spec_))
    return out


def _position(spec: Spec, names: list[str], chosen: list[Spec | None]) -> int:
    name = spec.name or ""
    position = position_of(name, names)
    if position is None:
        position = next((i for i, s in enumerate(chosen) if s and s.name == name), None)
    if position is None:
        raise UsageError(f"{spec.where}: no parameter '{name}'; there are: {', '.join(names)}")
    return position


def _from_file(kernel: str, names: list[str], specs: Sequence[Spec]) -> list[Spec | None]:
    chosen: list[Spec | None] = [None] * len(names)
    places = [None if s.name is None else position_of(s.name, names) for s in specs]
    if all(p is None for p in places):
        if len(specs) > len(names):
            raise UsageError(
                f"{specs[len(names)].where}: '{kernel}' has only {len(names)} parameters"
            )
        places = list(range(len(specs)))
    for spec, place in zip(specs, places, strict=True):
        if place is None:
            raise UsageError(
                f"{spec.where}: no parameter '{spec.name}'; there are: {', '.join(names)}"
            )
        if chosen[place] is not None:
            raise UsageError(f"{spec.where}: parameter '{names[place]}' has an argument already")
        chosen[place] = spec
    return chosen


def _binding(parameter: Parameter, spec: Spec) -> Binding:
    """Check what can be checked before anything is allocated."""
    p = parameter
    if p.count is not None:
        size = spec.type.size * (spec.count or 1)
        if size != p.size:
            raise UsageError(
                f"{spec.where}: parameter '{p.name}' has {p.size} bytes by value, {size} given"
            )
    elif spec.count is not None:
        if p.size not in (4, 8):
            raise UsageError(f"{spec.where}: parameter '{p.name}' is .{p.type}, not a pointer")
    elif spec.type.size != p.size:
        raise UsageError(
            f"{spec.where}: parameter '{p.name}' is .{p.type} with {p.size} bytes,"
            f" {spec.type} has {spec.type.size}"
        )
    return Binding(spec.name or p.name, p, spec)


def signature(kernel: Kernel) -> str:
    """The kernel with its parameters, as PTX declares them."""
    params = ", ".join(
        f".{p.type} {'.ptr ' if p.pointer else ''}{p.name}"
        + ("" if p.count is None else f"[{p.count}]")
        for p in kernel.params
    )
    return f"{kernel.name}({params})"


def suggestion(
    command: str,
    file: str,
    kernel: Kernel,
    given: Sequence[str],
    launch: Launch,
    bound: list[Binding | None],
) -> str:
    """A command to paste: the options that were given, and all that is missing for a launch."""
    words = ["ptxsim", command, file, "--entry", kernel.name, *given]
    if launch.grid is None:
        words += ["--grid", "1"]
    if launch.block is None:
        words += ["--block", "32"]
    for p, binding in zip(kernel.params, bound, strict=True):
        if binding is None:
            words += ["--arg", _example(p)]
    # brackets are patterns for most shells
    return shlex.join(words)


def _example(p: Parameter) -> str:
    name = p.name.removesuffix("_p")
    # 64-bit parameters are most often pointers, and a buffer shows how to give one
    if p.pointer or (p.type in ("u64", "b64") and p.count is None):
        return f"{name}=u32[1024]:zeros"
    return f"{name}={p.type}:1" if p.count is None else f"{name}=u8[{p.size}]:zeros"


def read_toml(path: str) -> Header:
    """The launch and arguments of a TOML file.

    ``grid``, ``block``, ``cluster`` (a number or a list), ``smem``, ``entry`` and ``target`` stand
    at the top or in ``[launch]``; ``[args]`` holds ``name = "TYPE[COUNT]:INIT"``, in the order of
    ``.param``.
    """
    _, text = read_text(path)
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: {error}") from None
    launch = data.pop("launch", {})
    args = data.pop("args", {})
    if not isinstance(launch, dict) or not isinstance(args, dict):
        raise UsageError(f"{path}: [launch] and [args] are tables")
    header = Header(launch=_toml_launch({**data, **launch}, path))
    folder = Path() if path == "-" else Path(path).parent
    for name, value in args.items():
        if not isinstance(value, str):
            raise UsageError(f'{path}: write {name} = "TYPE[COUNT]:INIT" or "TYPE:VALUE"')
        header.args.append(replace(parse_spec(value, folder, f"{path}: {name}"), name=name))
    return header


def _toml_launch(table: dict[str, Any], path: str) -> Launch:
    launch = Launch()
    for key, value in table.items():
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        try:
            set_launch(launch, key, text)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
    return launch

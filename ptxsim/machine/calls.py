"""Calls: arguments into the callee's frame, results back, indirect targets, built-in functions.

Parameter-space variables of a body lie in the local-memory frame of its function; a call copies
the bytes (PTX ISA 9.1, Function Declarations and Definitions; call).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..isa.protocol import Array, Registers, Site
from ..program import Argument, CallPlan, Routine
from . import builtins

if TYPE_CHECKING:
    from .group import Group
    from .scheduler import Scheduler

__all__ = ["call", "copy_results"]


def call(scheduler: Scheduler, group: Group, plan: CallPlan, site: Site) -> Group | None:
    """The group executes a call."""
    group.compact(_needed(plan))
    if isinstance(plan.target, str):
        program = scheduler.wave.program
        routine = program.routines.get(plan.target)
        return _enter(scheduler, group, plan, routine or plan.target, site)
    addresses = group.r[plan.target]
    choices = np.unique(addresses)
    for choice in choices[1:]:
        at = np.flatnonzero(group.full(addresses) == choice)
        other = group.subset(at, _needed(plan))
        rest = _enter(scheduler, other, plan, _at(scheduler, other, int(choice), site), site)
        if rest is not None:
            scheduler.push(rest)
    if len(choices) > 1:
        group = group.subset(np.flatnonzero(group.full(addresses) == choices[0]), _needed(plan))
    return _enter(scheduler, group, plan, _at(scheduler, group, int(choices[0]), site), site)


def _needed(plan: CallPlan) -> tuple[int, ...]:
    used = [a.place for a in plan.arguments if a.place >= 0]
    if isinstance(plan.target, int):
        used.append(plan.target)
    return (*plan.after.live, *(u for u in used if u not in plan.after.live))


def _at(scheduler: Scheduler, group: Group, address: int, site: Site) -> Routine | str:
    target = scheduler.wave.program.by_address.get(address)
    if target is None:
        group.finding(
            "bad-call",
            f"calls address {address:#x}, where no function begins",
            site,
            help="the function pointer was never set, or was overwritten",
            fatal=True,
            address=address,
        )
        raise AssertionError
    return target


def _enter(
    scheduler: Scheduler, group: Group, plan: CallPlan, target: Routine | str, site: Site
) -> Group | None:
    top = group.stack + group.routine.frame_size
    if isinstance(target, str):
        run = builtins.BUILTINS.get(target)
        if run is None:
            group.finding(
                "unsupported",
                f"calls '{target}', which has no body and is not a built-in function",
                site,
                fatal=True,
            )
            raise AssertionError
        arguments = [_argument_bytes(group, a) for a in plan.arguments]
        result = run(group, arguments, site)
        if plan.results and result is not None:
            _store_result(group, plan.results[0], result)
        return scheduler.jump(group, plan.after)
    if len(plan.arguments) != len(target.parameters) or len(plan.results) > len(target.results):
        group.finding(
            "bad-call",
            f"calls '{target.name}', which has {len(target.parameters)} parameters, with"
            f" {len(plan.arguments)} arguments",
            site,
            help="the prototype of the call must be that of the function",
            fatal=True,
        )
    group.wave.reserve_local(top + target.frame_size, site, group.lanes)
    r: Registers = list(target.template)
    for argument, parameter in zip(plan.arguments, target.parameters, strict=True):
        _pass(group, argument, parameter, top, r, target)
    return scheduler.call(group, target, plan, r, top)


def _rows(group: Group) -> Array:
    return group.wave.local.reshape(group.wave.size, group.wave.local_stride)


def _pass(
    group: Group,
    argument: Argument,
    parameter: tuple[int, int] | int,
    top: int,
    r: Registers,
    target: Routine,
) -> None:
    if isinstance(parameter, int):
        if argument.place >= 0:
            value = group.r[argument.place]
            r[parameter] = (
                value if value.dtype == r[parameter].dtype else value.astype(r[parameter].dtype)
            )
            return
        size = r[parameter].dtype.itemsize
        at = group.stack + argument.offset
        words = _rows(group)[group.lanes, at : at + size]
        r[parameter] = np.ascontiguousarray(words).view(r[parameter].dtype)[:, 0]
        return
    offset, size = parameter
    at = top + offset
    rows = _rows(group)
    if argument.place >= 0:
        value = group.full(group.r[argument.place])
        data = np.ascontiguousarray(value).view(np.uint8).reshape(group.n, -1)
        size = min(size, data.shape[1])
        rows[group.lanes, at : at + size] = data[:, :size]
        return
    size = min(size, argument.size)
    start = group.stack + argument.offset
    rows[group.lanes, at : at + size] = rows[group.lanes, start : start + size]


def copy_results(
    group: Group, plan: CallPlan, callee: Routine, top: int, values: list[Array | None]
) -> None:
    """After a return: results from the callee's frame (at ``top``) or registers to the caller."""
    for argument, result, value in zip(plan.results, callee.results, values, strict=False):
        if isinstance(result, int):
            assert value is not None
            if argument.place >= 0:
                old = group.r[argument.place]
                group.r[argument.place] = (
                    value if value.dtype == old.dtype else value.astype(old.dtype)
                )
            elif argument.offset >= 0:
                data = np.ascontiguousarray(group.full(value)).view(np.uint8).reshape(group.n, -1)
                at = group.stack + argument.offset
                _rows(group)[group.lanes, at : at + data.shape[1]] = data
            continue
        offset, size = result
        rows = _rows(group)
        data = rows[group.lanes, top + offset : top + offset + size]
        if argument.place >= 0:
            dtype = group.r[argument.place].dtype
            group.r[argument.place] = np.ascontiguousarray(data).view(dtype)[:, 0]
        elif argument.offset >= 0:
            size = min(size, argument.size)
            at = group.stack + argument.offset
            rows[group.lanes, at : at + size] = data[:, :size]


def _argument_bytes(group: Group, argument: Argument) -> Array:
    """uint8 [lanes, size]."""
    if argument.place >= 0:
        value = group.full(group.r[argument.place])
        return np.ascontiguousarray(value).view(np.uint8).reshape(group.n, -1)
    at = group.stack + argument.offset
    data: Array = _rows(group)[group.lanes, at : at + argument.size]
    return data


def _store_result(group: Group, argument: Argument, result: Array) -> None:
    if argument.place >= 0:
        dtype: Any = group.r[argument.place].dtype
        group.r[argument.place] = result.astype(dtype)
        return
    if argument.offset < 0:
        return
    data = np.ascontiguousarray(result).view(np.uint8).reshape(group.n, -1)[:, : argument.size]
    at = group.stack + argument.offset
    _rows(group)[group.lanes, at : at + data.shape[1]] = data

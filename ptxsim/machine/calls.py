"""Calls: arguments into the callee's frame, results back, indirect targets, built-in functions.

Parameter-space variables of a body lie in the local-memory frame of its function; a call copies
the bytes (PTX ISA 9.1, Function Declarations and Definitions; call).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..isa.protocol import Array, Registers, Site, Unknown
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
        arguments = [_argument_bytes(group, a, site) for a in plan.arguments]
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
    used = group.wave.stack_used(group.lanes)
    group.wave.reserve_local(top + target.frame_size, used, site, group.lanes)
    group.wave.forget_local(group.lanes, top, top + target.frame_size)
    r: Registers = list(target.template)
    undefined = dict(target.undefined)
    for argument, parameter in zip(plan.arguments, target.parameters, strict=True):
        _pass(group, argument, parameter, top, r, undefined)
    return scheduler.call(group, target, plan, r, top, undefined)


def _rows(group: Group) -> Array:
    return group.wave.local.reshape(group.wave.size, group.wave.local_stride)


def _shadow_rows(group: Group) -> Array | None:
    written = group.wave.local_written
    return None if written is None else written[1].reshape(group.wave.size, -1)


def _octets(group: Group, value: Array) -> Array:
    """A register as bytes: uint8 [lanes, size]."""
    return np.ascontiguousarray(group.full(value)).view(np.uint8).reshape(group.n, -1)


def _put(
    group: Group, at: int, data: Array, unknown: Unknown | None, size: int | None = None
) -> None:
    """Bytes of a register go to the frame, undefined bits with them."""
    data = data[:, :size]
    _rows(group)[group.lanes, at : at + data.shape[1]] = data
    written = _shadow_rows(group)
    if written is None:
        return
    written[group.lanes, at : at + data.shape[1]] = 0xFF
    if unknown is None:
        return
    bits = _octets(group, unknown[0])[:, :size]
    written[group.lanes, at : at + data.shape[1]] = ~bits
    kept = group.wave.keep_origins("local").reshape(group.wave.size, -1)
    for k in range(0, data.shape[1], 4):
        lost = bits[:, k : k + 4].any(axis=1)
        kept[group.lanes[lost], (at + k) // 4] = group.full(unknown[1])[lost]


def _taken(group: Group, at: int, size: int, dtype: Any, site: Site | None) -> Unknown | None:
    """The undefined bits of a value in the frame that becomes a register."""
    written = _shadow_rows(group)
    if written is None:
        return None
    bits = np.ascontiguousarray(~written[group.lanes, at : at + size]).view(dtype)[:, 0]
    if not bits.any():
        return None
    origin = np.zeros(group.n, np.int32)
    kept = group.wave.kept_origins.get("local")
    if kept is not None:
        origin = kept.reshape(group.wave.size, -1)[group.lanes, at // 4]
    if site is not None and (origin == 0).any():
        number = group.wave.origins.load("local", site)
        group.wave.origins.known[number].addresses(group.wave.size)[group.lanes] = at
        origin = np.where(origin == 0, np.int32(number), origin)
    return bits, origin


def _move(group: Group, to: int, start: int, size: int) -> None:
    """Bytes go from one place of the stack to another, with what is known of them."""
    for rows in (_rows(group), _shadow_rows(group)):
        if rows is not None:
            rows[group.lanes, to : to + size] = rows[group.lanes, start : start + size]
    kept = group.wave.kept_origins.get("local")
    if kept is not None:
        numbers = kept.reshape(group.wave.size, -1)
        for k in range(0, size, 4):
            numbers[group.lanes, (to + k) // 4] = numbers[group.lanes, (start + k) // 4]


def _pass(
    group: Group,
    argument: Argument,
    parameter: tuple[int, int] | int,
    top: int,
    r: Registers,
    undefined: dict[int, Unknown],
) -> None:
    unknown = group.undefined.get(argument.place)
    if isinstance(parameter, int):
        dtype = r[parameter].dtype
        if argument.place >= 0:
            value = group.r[argument.place]
            r[parameter] = value if value.dtype == dtype else value.astype(dtype)
            if unknown is not None:
                undefined[parameter] = unknown[0].astype(dtype), unknown[1]
            return
        at = group.stack + argument.offset
        words = _rows(group)[group.lanes, at : at + dtype.itemsize]
        r[parameter] = np.ascontiguousarray(words).view(dtype)[:, 0]
        taken = _taken(group, at, dtype.itemsize, dtype, None)
        if taken is not None:
            undefined[parameter] = taken
        return
    offset, size = parameter
    if argument.place >= 0:
        data = _octets(group, group.r[argument.place])
        _put(group, top + offset, data, unknown, size)
        return
    _move(group, top + offset, group.stack + argument.offset, min(size, argument.size))


def copy_results(
    group: Group,
    plan: CallPlan,
    callee: Routine,
    top: int,
    values: list[Array | None],
    unknown: list[Unknown | None],
) -> None:
    """After a return: results from the callee's frame (at ``top``) or registers to the caller."""
    for argument, result, value, lost in zip(
        plan.results, callee.results, values, unknown, strict=False
    ):
        if isinstance(result, int):
            assert value is not None
            if argument.place >= 0:
                dtype = group.r[argument.place].dtype
                group.r[argument.place] = value if value.dtype == dtype else value.astype(dtype)
                group.mark(
                    argument.place, None if lost is None else (lost[0].astype(dtype), lost[1]), None
                )
            elif argument.offset >= 0:
                _put(group, group.stack + argument.offset, _octets(group, value), lost)
            continue
        offset, size = result
        if argument.place >= 0:
            data = _rows(group)[group.lanes, top + offset : top + offset + size]
            dtype = group.r[argument.place].dtype
            group.r[argument.place] = np.ascontiguousarray(data).view(dtype)[:, 0]
            group.mark(argument.place, _taken(group, top + offset, size, dtype, None), None)
        elif argument.offset >= 0:
            _move(group, group.stack + argument.offset, top + offset, min(size, argument.size))


def _argument_bytes(group: Group, argument: Argument, site: Site) -> Array:
    """An argument of a built-in function, uint8 [lanes, size]; it must be defined."""
    unknown = group.undefined.get(argument.place)
    if argument.place < 0:
        begin = group.stack + argument.offset
        size = argument.size if argument.size in (1, 2, 4, 8) else 1
        unknown = _taken(group, begin, size, f"u{size}", site)
    if unknown is not None:
        group.observe(unknown, None, site)
    if argument.place >= 0:
        return _octets(group, group.r[argument.place])
    at = group.stack + argument.offset
    data: Array = _rows(group)[group.lanes, at : at + argument.size]
    return data


def _store_result(group: Group, argument: Argument, result: Array) -> None:
    if argument.place >= 0:
        dtype: Any = group.r[argument.place].dtype
        group.r[argument.place] = result.astype(dtype)
        group.mark(argument.place, None, None)
        return
    if argument.offset < 0:
        return
    _put(group, group.stack + argument.offset, _octets(group, result), None, argument.size)

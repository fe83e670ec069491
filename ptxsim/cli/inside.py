"""What happened inside a kernel whose outputs differ: findings about its registers."""

from __future__ import annotations

from ..agreement import Backend, Shape, StateDifference, compare_states, first_parting
from ..agreement.pair import MakeArguments
from ..api import Kernel
from ..report import FINDING_CODES, Finding
from .agree import CLASS, place_of

__all__ = ["parting", "states"]

#: Registers that are named; more would say nothing new.
_MOST = 16


def parting(kernel: Kernel, make: MakeArguments, shape: Shape, other: Backend) -> list[Finding]:
    """The finding of the first instruction whose result differs, none if no result does."""
    found = first_parting(kernel, make, shape, other)
    if found is None:
        return []
    if found.register is not None:
        digits = max(found.register.type.bits // 4, 1)
        message = (
            f"{found.text} is the first instruction whose result differs: {found.register.name} ="
            f" 0x{found.simulator:0{digits}x} on the simulator, 0x{found.device:0{digits}x} on the"
            f" GPU, result {found.step} of thread {found.thread}"
        )
    else:
        where = f"behind {found.text}" if found.line else "from its start"
        message = (
            f"thread {found.thread} goes another way {where}, after {found.step} results that are"
            " the same"
        )
    return [_finding(message, found.line, found.column, found.thread, shape)]


def states(
    kernel: Kernel, make: MakeArguments, shape: Shape, other: Backend, line: int | None
) -> list[Finding]:
    """The finding of the registers that differ before a line or at the end, none if none does."""
    found = compare_states(kernel, make, shape, other, line)
    if not found:
        return []
    where = "at the end" if line is None else f"before line {line}"
    shown = "; ".join(_shown(d) for d in found[:_MOST])
    more = f"; and {len(found) - _MOST} more" if len(found) > _MOST else ""
    what = "1 register differs" if len(found) == 1 else f"{len(found)} registers differ"
    message = f"{what} {where}: {shown}{more}"
    return [_finding(message, line or 0, 0, found[0].thread, shape)]


def _shown(d: StateDifference) -> str:
    if not d.register:
        return (
            f"{d.count} threads came here another number of times, thread {d.thread}"
            f" {d.simulator} times on the simulator and {d.device} on the GPU"
        )
    return (
        f"{d.register} in {d.count} threads, in thread {d.thread} 0x{d.simulator:x} on the"
        f" simulator and 0x{d.device:x} on the GPU"
    )


def _finding(message: str, line: int, column: int, thread: int, shape: Shape) -> Finding:
    x, y, z = shape.block
    cta, within = divmod(thread, x * y * z)
    padded = -(-x * y * z // 32) * 32
    place, warp, lane = place_of(cta * padded + within, shape)
    return Finding(
        class_=CLASS, code=FINDING_CODES[CLASS], message=message, line=line, column=column,
        ctas=(place,), warp=warp, lanes=(lane,),
    )  # fmt: skip

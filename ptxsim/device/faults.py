"""What an error of the driver after a launch means, in the classes of findings."""

from __future__ import annotations

from ..report import Finding
from .bindings import DriverError
from .request import finding

__all__ = ["fault", "timeout"]

#: Error -> class, and what is known.  The GPU tells neither the line nor always the state space.
_FAULTS: dict[str, tuple[str, str]] = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": (
        "oob-global", "an access to no memory, in a state space that it does not tell"),
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": (
        "oob-global", "an access to an address of another state space than the instruction's"),
    "CUDA_ERROR_MISALIGNED_ADDRESS": (
        "misaligned-global",
        "an access that is not aligned, in a state space that it does not tell"),
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": (
        "trap", "a trap, or an instruction with operands that the GPU refuses"),
    "CUDA_ERROR_LAUNCH_FAILED": (
        "trap", "a trap, or a fault that the driver does not name"),
    "CUDA_ERROR_ASSERT": ("trap", "an assertion failed"),
    "CUDA_ERROR_HARDWARE_STACK_ERROR": ("stack-overflow", "the stack is corrupt or used up"),
    "CUDA_ERROR_INVALID_PC": ("bad-call", "a call or branch to an address without code"),
    "CUDA_ERROR_LAUNCH_TIMEOUT": (
        "step-limit", "the driver's watchdog ended the kernel: an endless loop or a deadlock"),
}  # fmt: skip

_HELP = "run it on the simulator, which names the line"


def fault(error: DriverError) -> Finding | None:
    """The finding for an error that a kernel caused, None for an error that it did not."""
    known = _FAULTS.get(error.name)
    if known is None:
        return None
    class_, meaning = known
    return finding(class_, f"the GPU stopped at {meaning} ({error.name})", _HELP, error=error.name)


def timeout(seconds: float) -> Finding:
    """The finding for a kernel that does not end."""
    return finding(
        "step-limit",
        f"the kernel had not ended on the GPU after {seconds:g} s: an endless loop, a deadlock, or"
        " a time that is too short",
        "run it on the simulator, which tells a deadlock from a loop",
        seconds=f"{seconds:g}",
    )

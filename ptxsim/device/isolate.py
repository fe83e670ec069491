"""A launch in a process of its own: a fault there costs no later launch its context.

The process reads its request from files and writes its result to files: JSON, and arrays that are
loaded as plain numbers only.  What it prints is what the kernel printed.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from .faults import timeout
from .request import Request, Result, read_result, write_request

__all__ = ["execute_isolated"]

#: Seconds for the start of Python, context, assembler and copies, beside those of the kernel.
_OVERHEAD = 120.0
#: Seconds that a process which was killed may take to go.
_FAREWELL = 5.0


def execute_isolated(request: Request, overhead: float = _OVERHEAD) -> Result:
    """Carry out a launch in a new process; it is killed if it does not end."""
    with tempfile.TemporaryDirectory(prefix="ptxsim-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        write_request(request, folder)
        status = _run(folder, request.timeout + overhead)
        result = read_result(folder)
        if result is None and status is None:
            result = Result(findings=(timeout(request.timeout),), stopped=True)
        elif result is None:
            result = Result(refusal=_death(folder, status))
        result.printf = (folder / "stdout").read_text("utf-8", "replace")
        return result


def _run(folder: Path, seconds: float) -> int | None:
    """Run the process; its exit status, None if it had to be killed."""
    command = [sys.executable, "-P", "-m", "ptxsim.device", str(folder)]
    # the same modules as here, from a checkout too
    paths = [str(Path(__file__).parents[2]), *(p for p in sys.path if p)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            process.kill()
            # a process whose kernel runs on may be held by the system for a while
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_FAREWELL)


def _death(folder: Path, status: int | None) -> str:
    said = (folder / "stderr").read_text("utf-8", "replace").strip().splitlines()
    ending = f"the process of the launch ended with status {status}"
    return f"{ending}: {said[-1]}" if said else ending

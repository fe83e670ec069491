"""NVIDIA's assembler as a judge of the kernels that the lowerings make."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["assembled", "judged", "release"]


def _ptxas() -> str:
    path = shutil.which("ptxas")
    if path is None:
        pytest.skip("ptxas is not on PATH")
    return path


def release() -> str:
    """Its number."""
    told = subprocess.run([_ptxas(), "--version"], capture_output=True, text=True, check=True)
    (number,) = re.findall(r"release (\S+),", told.stdout)
    return str(number)


def assembled(text: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """ptxas of the PATH on a kernel, for the kernel's own target; skips if it has no such one."""
    path = folder / "kernel.ptx"
    path.write_text(text)
    (target,) = re.findall(r"^\.target (\w+)", text, re.MULTILINE)
    command = [_ptxas(), *options, f"-arch={target}", "-o", str(folder / "kernel.cubin"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if f"'{target}' is not defined" in done.stderr:
        pytest.skip(f"this ptxas does not know {target}")
    return done


def judged(text: str, folder: Path) -> str:
    """What it complains of; empty if of nothing."""
    done = assembled(text, folder)
    return done.stderr if done.returncode else ""

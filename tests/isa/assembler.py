"""What NVIDIA's assembler says of many lines at once."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

__all__ = ["LineJudge"]

_ERROR = re.compile(r"line (\d+); (?:error|fatal)\s*: (.*)")
_SUBJECT = re.compile(r"instruction '([\w.:]+)'")


class LineJudge:
    """``ptxas`` of the PATH as a judge of the lines of one module."""

    def __init__(self, folder: Path) -> None:
        path = shutil.which("ptxas")
        if path is None:
            pytest.skip("ptxas is not on PATH")
        self._path, self._folder = path, folder

    def errors(self, text: str, target: str) -> dict[int, str]:
        """The errors of a module by line; line 0 holds one that names none."""
        source = self._folder / "lines.ptx"
        source.write_text(text)
        arch = f"-arch=compute_{target.removeprefix('sm_')}"
        command = [self._path, arch, "-c", "-o", str(self._folder / "out"), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not done.returncode:
            return {}
        found: dict[int, str] = {}
        for line, message in _ERROR.findall(done.stderr + done.stdout):
            found.setdefault(int(line), message)
        return found or {0: done.stderr}

    def refused(
        self, lines: Sequence[str], module: Callable[[Sequence[str]], str], first: int, target: str
    ) -> dict[int, str]:
        """The lines that it refuses, by index, with its message.

        An instruction that it expands into others gives messages about these, at the wrong place:
        lines without a message of their own are judged in ever smaller groups.
        """
        out: dict[int, str] = {}
        groups = [list(range(len(lines)))]
        while groups:
            group = groups.pop()
            errors = self.errors(module([lines[i] for i in group]), target)
            if not errors:
                continue
            if len(group) == 1:
                out[group[0]] = next(iter(errors.values()))
                continue
            own = {
                group[n - first]: message
                for n, message in errors.items()
                if 0 <= n - first < len(group) and _is_about(message, lines[group[n - first]])
            }
            out.update(own)
            rest = [i for i in group if i not in own]
            half = len(rest) if own else len(rest) // 2
            groups += [g for g in (rest[:half], rest[half:]) if g]
        return out


def _is_about(message: str, line: str) -> bool:
    """Whether a message names an instruction or another word that the line has."""
    subject = _SUBJECT.search(message)
    if subject is not None:
        return re.search(rf"(?<![\w.]){subject[1].split('.')[0]}\b", line) is not None
    return any(word in line for word in re.findall(r"'(\.[\w:]+|%\w+)'", message))

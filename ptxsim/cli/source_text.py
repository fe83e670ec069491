"""The lines of CUDA C++ or Python that findings come from, read from the folder of the PTX alone.

PTX may come from anyone, and ``.file`` may name any file of this machine: what lies outside of the
folder is shown by name and number only, and is not even looked for.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from ..diagnostics import SourcePlace
from ..report import Report

__all__ = ["SourceTexts"]

#: Bytes of a file that are read; files that are larger are no program that people wrote.
_MOST_BYTES = 4 << 20
#: Files that are read for one report.
_MOST_FILES = 64
#: Characters of a line that are shown.
_LONGEST = 400


class SourceTexts:
    """The texts in the folder of a PTX file; without a folder (standard input) there are none."""

    def __init__(self, folder: Path | None) -> None:
        self._folders: tuple[str, ...] = ()
        if folder is not None:
            # compilers write resolved paths, and users need not be there by one
            self._folders = (os.path.abspath(folder), os.path.realpath(folder))
        self._lines: dict[str, tuple[str, ...]] = {}

    def apply(self, report: Report) -> Report:
        """The report, whose findings have the text of their places where it is here."""
        report.findings = tuple(
            replace(
                f,
                source=tuple(map(self.place, f.source)),
                other_source=tuple(map(self.place, f.other_source)),
            )
            for f in report.findings
        )
        return report

    def place(self, place: SourcePlace) -> SourcePlace:
        """The place with its text, if there is one."""
        lines = self._lines.get(place.file)
        if lines is None:
            full = len(self._lines) >= _MOST_FILES
            lines = () if full else self._read(place.file)
            if not full:
                self._lines[place.file] = lines
        if not 0 < place.line <= len(lines):
            return place
        return replace(place, text=lines[place.line - 1].rstrip("\r")[:_LONGEST])

    def _read(self, name: str) -> tuple[str, ...]:
        try:
            path = self._inside(name)
            # a pipe would be waited for
            if path is None or not os.path.isfile(path) or os.path.getsize(path) > _MOST_BYTES:
                return ()
            with open(path, "rb") as file:
                data = file.read(_MOST_BYTES)
        except (OSError, ValueError):  # no such file, or no name that a file can have
            return ()
        return tuple(data.decode("utf-8", "replace").split("\n"))

    def _inside(self, name: str) -> str | None:
        """The path of a file in the folder; links that lead out of it are outside."""
        for folder in self._folders:
            path = os.path.normpath(os.path.join(folder, name))
            if _below(path, folder):
                real = os.path.realpath(path)
                return real if _below(real, self._folders[-1]) else None
        return None


def _below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip(os.sep) + os.sep)

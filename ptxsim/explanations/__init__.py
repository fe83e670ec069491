"""What every diagnostic code and class of finding means, with a kernel that shows it and its cure.

One table of a TOML file holds all about one code; the files group codes by subject.  The kernel of
a table holds the faulty and the cured program at once, told apart by the first character of a line:
``-`` is in the faulty one only, ``+`` in the cured one only, a space in both.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["FAULT", "OTHER", "Explanation", "explanations", "find"]

#: Marks the line of a kernel that the report must point at.
FAULT = "// <-- fault"

#: Marks the second party of a pair of accesses.
OTHER = "// <-- other"


@dataclass(frozen=True, slots=True)
class Explanation:
    """All that is said about one code; ``class_`` is the class of the finding, if it is one.

    ``options`` and ``prepare`` are what the example needs beside its text: options of the command
    that shows it (``by``), and a shell command that makes its files.
    """

    code: str
    title: str
    meaning: str
    kernel: str
    cure: str
    isa: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    class_: str | None = None
    options: str = ""
    prepare: str = ""
    elsewhere: str = ""
    by: str = "run"

    @property
    def name(self) -> str:
        """The code, and the class if there is one."""
        return f"{self.code} {self.class_}" if self.class_ else self.code

    @property
    def command(self) -> str:
        """The command whose report shows the code when it reads the example."""
        command = self.by if self.class_ else "check"
        return f"ptxsim {command} - {self.options}".rstrip()

    @property
    def example(self) -> str:
        """The faulty program, with its marks."""
        return _text(line[1:] for line in self.kernel.splitlines() if line[:1] != "+")

    @property
    def cured(self) -> str:
        """The corrected program, without marks."""
        kept = (line[1:] for line in self.kernel.splitlines() if line[:1] != "-")
        return _text(line.removesuffix(FAULT).removesuffix(OTHER).rstrip() for line in kept)

    @property
    def difference(self) -> str:
        """The lines that the cure changes, each run of them with the line before and after."""
        lines = self.kernel.splitlines()
        near = [any(n[:1] in ("-", "+") for n in lines[max(i - 1, 0) : i + 2])
                for i in range(len(lines))]  # fmt: skip
        shown = (
            line if here else "..."
            for i, (line, here) in enumerate(zip(lines, near, strict=True))
            if here or (i and near[i - 1] and any(near[i:]))
        )  # fmt: skip
        return _text(shown)


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


@cache
def explanations() -> Mapping[str, Explanation]:
    """All explanations in the order of their codes."""
    found: dict[str, Explanation] = {}
    for path in files(__name__).iterdir():
        if path.name.endswith(".toml"):
            for code, fields in tomllib.loads(path.read_text("utf-8")).items():
                found[code] = _explanation(code, fields)
    return dict(sorted(found.items()))


def _explanation(code: str, fields: dict[str, Any]) -> Explanation:
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    return Explanation(code, class_=values.pop("class", None), **values)


def find(word: str) -> Explanation | None:
    """The explanation of a code or class, in upper or lower case, or None.

    >>> find("oob-global").code
    'PTX341'
    """
    known = explanations()
    if word.upper() in known:
        return known[word.upper()]
    return next((e for e in known.values() if e.class_ == word.lower()), None)

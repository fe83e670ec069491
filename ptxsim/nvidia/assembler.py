"""What NVIDIA's assembler says of a PTX text: ``ptxas``, or nvJitLink where there is none.

The verdict is about the text alone: functions that another module defines are no fault, and a
limit that only the linking of a whole program knows is none either.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..errors import UsageError

__all__ = [
    "INSTALL",
    "Assembler",
    "Message",
    "Ptxas",
    "Verdict",
    "find_assembler",
    "parse_messages",
    "retarget",
    "target_of",
    "verdict_of",
]

#: How what is missing gets here.
INSTALL = "pip install 'ptxsim[nvidia]'"

#: Seconds after which a text counts as not judged.
TIMEOUT = 120.0


@dataclass(frozen=True, slots=True)
class Message:
    """An error of the assembler; ``line`` 0 means that it names none."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the assembler accepts a text; None if it cannot tell, with the reason as message."""

    accepted: bool | None
    messages: tuple[Message, ...] = ()


class Assembler(Protocol):
    """An assembler of NVIDIA's with its version."""

    @property
    def name(self) -> str:
        """Name and version, such as ``ptxas 13.0.88``."""

    def judge(self, text: str, target: str | None) -> Verdict:
        """What it says of a text for a target; without one, the target is its own default."""

    def cubin(self, text: str, target: str | None) -> bytes:
        """The text as a whole program; :class:`UsageError` if there is none."""


_SKIPPED = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)|\.target\s+(\w+)", re.DOTALL)


def target_of(text: str) -> str | None:
    """The first word of the ``.target`` directive, also of a text that is not valid.

    >>> target_of("// .target sm_20\\n.version 8.0\\n.target sm_90a, debug")
    'sm_90a'
    """
    return next((found[1] for found in _SKIPPED.finditer(text) if found[1]), None)


def retarget(text: str, target: str) -> str:
    """The text with another target in its ``.target`` directive; lines stay where they are.

    >>> retarget(".version 8.0\\n.target sm_80, debug", "sm_90a")
    '.version 8.0\\n.target sm_90a, debug'
    """
    found = next((found for found in _SKIPPED.finditer(text) if found[1]), None)
    return text if found is None else text[: found.start(1)] + target + text[found.end(1) :]


_MESSAGE = re.compile(
    r"^(?:ptxas\s*)?(?:.*, line (?P<line>\d+);)?\s*(?:error|fatal)\s*:\s*(?P<text>.*?)\s*$",
    re.MULTILINE,
)
_ABORTED = "Ptx assembly aborted due to errors"


def parse_messages(log: str) -> tuple[Message, ...]:
    """The errors among what an assembler wrote; warnings and remarks are left out.

    >>> parse_messages("ptxas k.ptx, line 7; error   : Unknown modifier '.u99'")
    (Message(line=7, text="Unknown modifier '.u99'"),)
    """
    found = [_message(m["line"], m["text"]) for m in _MESSAGE.finditer(log)]
    telling = [m for m in found if m.text != _ABORTED]
    return tuple(dict.fromkeys(telling or found))


def _message(line: str | None, text: str) -> Message:
    """A message; a few name their line at the end instead."""
    late = re.search(r" on line (\d+)$", text)
    return Message(int(line or (late[1] if late else 0)), text)


#: What says more about the assembler than about the text.
_UNJUDGED = re.compile(
    r"is not defined for option 'gpu-name'|^Unsupported \.version |internal (compiler )?error"
    r"|memory allocation failure",
    re.IGNORECASE,
)


def verdict_of(log: str) -> Verdict:
    """The verdict when an assembler has failed: a rejection only where it says what is wrong."""
    messages = parse_messages(log)
    if not messages:
        return Verdict(None, (Message(0, " ".join(log.split())[:500] or "it failed in silence"),))
    unjudged = [m for m in messages if _UNJUDGED.search(m.text)]
    return Verdict(None, tuple(unjudged)) if unjudged else Verdict(False, messages)


class Ptxas:
    """The program ``ptxas``."""

    def __init__(self, path: str, timeout: float = TIMEOUT) -> None:
        self._path = path
        self._timeout = timeout
        try:
            shown = self._run(["--version"], ".").stdout
        except subprocess.TimeoutExpired:
            raise UsageError(f"{path} --version gives no answer") from None
        version = re.search(r"\bV(\d+(?:\.\d+)*)", shown)
        self.name = f"ptxas {version[1]}" if version else "ptxas"

    def judge(self, text: str, target: str | None) -> Verdict:
        """What it says of a text as a relocatable object."""
        with tempfile.TemporaryDirectory(prefix="ptxsim-") as folder:
            return self._assemble(text, target, ["--compile-only"], folder)

    def cubin(self, text: str, target: str | None) -> bytes:
        """The text as a whole program."""
        with tempfile.TemporaryDirectory(prefix="ptxsim-") as folder:
            verdict = self._assemble(text, target, [], folder)
            if not verdict.accepted:
                raise UsageError(f"no cubin: {self.name}: {verdict.messages[0].text}")
            return (Path(folder) / "module.cubin").read_bytes()

    def _assemble(self, text: str, target: str | None, options: list[str], folder: str) -> Verdict:
        (Path(folder) / "module.ptx").write_bytes(text.encode("utf-8", "surrogatepass"))
        arch = [] if target is None else [f"--gpu-name={target}"]
        words = [*options, *arch, "--output-file=module.cubin", "module.ptx"]
        try:
            done = self._run(words, folder)
        except subprocess.TimeoutExpired:
            return Verdict(None, (Message(0, f"no answer within {self._timeout:g} seconds"),))
        if done.returncode == 0:
            return Verdict(True)
        if done.returncode < 0:
            return Verdict(None, (Message(0, f"ended by {_signal(-done.returncode)}"),))
        return verdict_of(done.stderr + done.stdout)

    def _run(self, words: list[str], folder: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                [self._path, *words], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                encoding="utf-8", errors="replace", timeout=self._timeout, check=False,
            )  # fmt: skip
        except OSError as error:
            raise UsageError(f"cannot run {self._path}: {error.strerror}") from None


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def find_assembler() -> Assembler:
    """``ptxas`` of the PATH, otherwise nvJitLink; :class:`UsageError` if there is neither."""
    path = shutil.which("ptxas")
    if path is not None:
        # a relative entry of PATH means another file in another folder
        return Ptxas(str(Path(path).absolute()))
    from .nvjitlink import NvJitLink

    return NvJitLink()

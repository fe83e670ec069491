"""Reading and writing of files, with messages instead of tracebacks; `-` is a standard stream."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import tokenize
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ..errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["find_ptx", "load_npy", "read_text", "save_npy", "write_bytes", "write_text"]


def read_text(path: str) -> tuple[str, str]:
    """The name to show and the text of a PTX file, or of standard input for ``-``."""
    if path == "-":
        data = sys.stdin.buffer.read() if hasattr(sys.stdin, "buffer") else sys.stdin.read()
        return "<stdin>", data if isinstance(data, str) else _decoded(data, "<stdin>")
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {_reason(error)}") from None
    return path, _decoded(data, path)


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read {name}: not UTF-8 text (byte {error.start})") from None


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def find_ptx(paths: Iterable[str]) -> list[str]:
    """The files that are meant: folders stand for all ``*.ptx`` below them, in order of name."""
    out: list[str] = []
    for path in paths:
        if path != "-" and os.path.isdir(path):
            found = sorted(str(p) for p in Path(path).rglob("*.ptx") if p.is_file())
            if not found:
                raise UsageError(f"no *.ptx files in {path}")
            out.extend(found)
        else:
            out.append(path)
    return list(dict.fromkeys(out))


def load_npy(path: Path) -> NDArray[Any]:
    """The array of an ``.npy`` file; pickled objects are refused."""
    import numpy as np

    try:
        with open(path, "rb") as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
    except (
        OSError, ValueError, EOFError, SyntaxError, MemoryError, tokenize.TokenError,
    ) as error:  # fmt: skip
        reason = _reason(error) if isinstance(error, OSError | ValueError) else str(error)
        raise UsageError(f"cannot read {path}: {reason}") from None
    if array.dtype.hasobject or array.dtype.names:
        raise UsageError(f"cannot read {path}: it holds {array.dtype}, not plain numbers")
    # big-endian files are legal .npy
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False))


def save_npy(path: str, array: NDArray[Any]) -> None:
    """Write an ``.npy`` file whole or not at all."""
    import numpy as np

    _write(path, lambda file: np.lib.format.write_array(file, np.asarray(array)))


def write_text(path: str, text: str) -> None:
    """Write a text file whole or not at all; ``-`` is standard output."""
    if path == "-":
        sys.stdout.write(text)
        return
    _write(path, lambda file: file.write(text.encode("utf-8")))


def write_bytes(path: str, data: bytes) -> None:
    """Write a binary file whole or not at all."""
    _write(path, lambda file: file.write(data))


def _write(path: str, fill: Callable[[IO[bytes]], object]) -> None:
    temporary = None
    try:
        if _special(path):
            with open(path, "wb") as stream:
                fill(stream)
            return
        # what a link points to is written, and the link stays
        target = Path(os.path.realpath(path))
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with os.fdopen(handle, "wb") as file:
            fill(file)
        os.chmod(temporary, _mode(target))
        os.replace(temporary, target)
        temporary = None
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot write {path}: {_reason(error)}") from None
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _special(path: str) -> bool:
    """Whether a path is a device, pipe or folder: never replaced, opened as it is instead.

    What is below /dev and /proc may lead to a stream of this process that happens to be a file.
    """
    below = os.path.abspath(path).startswith(("/dev/", "/proc/"))
    return below or (os.path.exists(path) and not os.path.isfile(path))


def _mode(target: Path) -> int:
    """The permissions of the file that is replaced, or those that a new one would get."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask

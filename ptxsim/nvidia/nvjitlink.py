"""nvJitLink as an assembler: the library that assembles PTX inside of a process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import UsageError
from .assembler import INSTALL, Message, Verdict, target_of, verdict_of

__all__ = ["NvJitLink"]

#: nvJitLink has no default.
_TARGET = "sm_80"


class NvJitLink:
    """nvJitLink through cuda-python."""

    def __init__(self) -> None:
        try:
            from cuda.bindings import nvjitlink

            # a library that is missing shows at the first call
            major, minor = nvjitlink.version()
        except (ImportError, RuntimeError, OSError):
            raise UsageError(f"there is neither ptxas nor nvJitLink; {INSTALL}") from None
        self._library: Any = nvjitlink
        self.name = f"nvJitLink {major}.{minor}"

    def judge(self, text: str, target: str | None) -> Verdict:
        """What it says of a text; errors of linking are none of the text."""
        verdict, _ = self._assemble(text, target, lambda handle: None)
        return verdict

    def cubin(self, text: str, target: str | None) -> bytes:
        """The text as a whole program."""
        verdict, image = self._assemble(text, target, self._image)
        if image is None:
            why = verdict.messages[0].text if verdict.messages else "it cannot be linked"
            raise UsageError(f"no cubin: {self.name}: {why}")
        return image

    def _assemble(
        self, text: str, target: str | None, finish: Callable[[int], bytes | None]
    ) -> tuple[Verdict, bytes | None]:
        library, data = self._library, text.encode("utf-8", "surrogatepass")
        arch = target or target_of(text) or _TARGET
        try:
            handle = library.create(1, [f"-arch={arch}"])
        except library.nvJitLinkError as error:
            return Verdict(None, (Message(0, f"{error} ({arch})"),)), None
        try:
            try:
                library.add_data(
                    handle, library.InputType.PTX, data, len(data), "module.ptx"
                )  # fmt: skip
            except library.nvJitLinkError as error:
                return self._refusal(handle, str(error)), None
            try:
                library.complete(handle)
                return Verdict(True), finish(handle)
            except library.nvJitLinkError as error:
                # the linker speaks here, unless the assembler is named
                refusal = self._refusal(handle, str(error))
                parsed = "ptxas" in self._log(handle)
                return (refusal if parsed else Verdict(True, refusal.messages)), None
        finally:
            library.destroy(handle)

    def _refusal(self, handle: int, status: str) -> Verdict:
        log = self._log(handle)
        if log:
            found = verdict_of(log)
            # what is no PTX at all is refused in other words
            return found if found.messages and "bad input" not in log else _rejected(log)
        return _rejected(status)

    def _log(self, handle: int) -> str:
        log = bytearray(self._library.get_error_log_size(handle))
        if log:
            self._library.get_error_log(handle, log)
        return log.decode("utf-8", "replace").rstrip("\0\n")

    def _image(self, handle: int) -> bytes:
        image = bytearray(self._library.get_linked_cubin_size(handle))
        self._library.get_linked_cubin(handle, image)
        return bytes(image)


def _rejected(text: str) -> Verdict:
    return Verdict(False, (Message(0, " ".join(text.split())),))

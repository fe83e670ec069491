"""Buffers on a GPU with red zones: bytes around each of them that a kernel must leave alone.

A write past the end of a buffer is silent on a GPU as long as the page is mapped.  Here it changes
the pattern of a zone, which is looked at after the launch.  Reads leave no trace.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..report import Finding
from .bindings import Driver
from .request import DeviceBuffer, finding

__all__ = ["ZONE", "DeviceMemory"]

#: Bytes on either side; a multiple of the alignment that buffers have in the simulator.
ZONE = 1 << 16

Bytes = NDArray[np.uint8]


class DeviceMemory:
    """The buffers of a launch, uploaded; ``addresses`` are those of their first bytes."""

    def __init__(self, driver: Driver, buffers: tuple[DeviceBuffer, ...]) -> None:
        self._driver = driver
        self._buffers = buffers
        self._blocks: list[Any] = []
        self.addresses: list[int] = []
        # bytes without a pattern that a kernel would write by chance
        self._pattern: Bytes = np.random.default_rng(20).integers(0, 256, ZONE, np.uint8)
        for buffer in buffers:
            image = np.concatenate([self._pattern, buffer.data, self._pattern])
            block = driver.call("cuMemAlloc", image.size)
            self._blocks.append(block)
            driver.call("cuMemcpyHtoD", block, image.ctypes.data, image.size)
            self.addresses.append(int(block) + ZONE)

    def download(self) -> tuple[tuple[Bytes, ...], list[Finding]]:
        """The buffers after the launch, and what was written that must not be."""
        contents, findings = [], []
        for buffer, block in zip(self._buffers, self._blocks, strict=True):
            image = np.empty(buffer.data.size + 2 * ZONE, np.uint8)
            self._driver.call("cuMemcpyDtoH", image.ctypes.data, block, image.size)
            end = ZONE + buffer.data.size
            contents.append(image[ZONE:end].copy())
            findings += self._check_zones(buffer, image[:ZONE], image[end:])
            if buffer.readonly:
                findings += _check_readonly(buffer, contents[-1])
        return tuple(contents), findings

    def free(self) -> None:
        """Give the memory back."""
        while self._blocks:
            self._driver.call("cuMemFree", self._blocks.pop())

    def _check_zones(self, buffer: DeviceBuffer, before: Bytes, after: Bytes) -> list[Finding]:
        """Findings of the two zones; an offset is one from the start of the buffer."""
        size = buffer.data.size
        out = []
        for zone, start, place in (
            (before, -ZONE, "before the start"),
            (after, size, "past the end"),
        ):
            changed = np.flatnonzero(zone != self._pattern)
            if not changed.size:
                continue
            # of the zone before a buffer the byte that is nearest to it says most
            at = start + int(changed[0] if start >= 0 else changed[-1])
            distance = "just" if at == size else _count(at - size if start >= 0 else -at)
            out.append(
                finding(
                    "oob-global",
                    f"the kernel wrote {distance} {place} of '{buffer.name}' ({size} bytes):"
                    f" {_count(changed.size)} of its red zone changed, seen after the launch",
                    "run it on the simulator, which stops at the line of the access",
                    buffer=buffer.name,
                    offset=at,
                    bytes=int(changed.size),
                )
            )
        return out


def _count(number: int) -> str:
    return f"{number} byte" if number == 1 else f"{number} bytes"


def _check_readonly(buffer: DeviceBuffer, contents: Bytes) -> list[Finding]:
    changed = np.flatnonzero(contents != buffer.data)
    if not changed.size:
        return []
    return [
        finding(
            "write-to-readonly",
            f"the kernel wrote '{buffer.name}', which is read-only: {_count(changed.size)} changed,"
            f" the first at offset {int(changed[0])}",
            buffer=buffer.name,
            offset=int(changed[0]),
            bytes=int(changed.size),
        )
    ]

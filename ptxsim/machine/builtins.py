"""Functions that the CUDA run time provides to device code: vprintf, malloc, free, __assertfail.

Their names and parameters are those of CUDA's device-side system calls (CUDA C++ Programming
Guide, Formatted Output; Dynamic Global Memory Allocation; Assertion).  ``malloc`` serves a heap in
global memory whose blocks are undefined until written; ``free`` of anything else is a finding.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..isa.protocol import Array, BoolArray, Site
from .access import Access, load
from .memory import Allocation, OutOfMemory

if TYPE_CHECKING:
    from .group import Group

__all__ = ["BUILTINS", "Heap", "format_printf"]

_TEXT_LIMIT = 1 << 16


class Heap:
    """The device heap: blocks by address.  ``limit`` is CUDA's default heap size, 8 MB."""

    def __init__(self, limit: int = 8 << 20) -> None:
        self.limit = limit
        self.used = 0
        self.blocks: dict[int, Allocation] = {}


def _u64(argument: Array) -> Array:
    return np.ascontiguousarray(argument[:, :8]).view("<u8")[:, 0]


def _malloc(group: Group, arguments: list[Array], site: Site) -> Array:
    heap: Heap = group.service("heap")
    memory = group.wave.memory
    sizes = _u64(arguments[0])
    out = np.zeros(group.n, np.uint64)
    for lane, size in enumerate(sizes.tolist()):
        if size == 0 or heap.used + size > heap.limit:
            continue
        try:
            block = memory.allocate(size, f"malloc at line {site.line}", align=16, defined=False)
        except OutOfMemory:
            continue
        heap.used += size
        address = memory.address(block)
        heap.blocks[address] = block
        out[lane] = address
    memory.version += 1
    return out


def _free(group: Group, arguments: list[Array], site: Site) -> None:
    heap: Heap = group.service("heap")
    for lane, address in enumerate(_u64(arguments[0]).tolist()):
        if address == 0:
            continue
        block = heap.blocks.pop(address, None)
        if block is None:
            at = np.zeros(group.n, bool)
            at[lane] = True
            group.finding(
                "bad-free",
                f"frees address {address:#x}, which malloc did not return or which is free already",
                site,
                at,
                fatal=True,
                address=address,
            )
            continue
        heap.used -= block.size
        group.wave.memory.release(block)
    group.wave.memory.version += 1


def _bytes_at(group: Group, lane: int, address: int, size: int, site: Site) -> bytes:
    """``size`` bytes that one lane sees at a generic address."""
    mask = np.zeros(group.n, bool)
    mask[lane] = True
    at = np.array([address], np.uint64)
    words = load(group, Access("generic", 1, 1, site), at, mask)
    _defined(group, mask, site)
    out = bytearray([int(words[0][lane if len(words[0]) > 1 else 0])])
    for k in range(1, size):
        words = load(group, Access("generic", 1, 1, site), at + np.uint64(k), mask)
        _defined(group, mask, site)
        out.append(int(words[0][lane if len(words[0]) > 1 else 0]))
    return bytes(out)


def _defined(group: Group, mask: BoolArray, site: Site) -> None:
    """What a function reads for the host must be defined."""
    for unknown in group.take_loaded() or ():
        if unknown is not None:
            group.observe(unknown, mask, site)


def _string_at(group: Group, lane: int, address: int, site: Site) -> str:
    out = bytearray()
    while len(out) < _TEXT_LIMIT:
        byte = _bytes_at(group, lane, address + len(out), 1, site)
        if byte == b"\0":
            break
        out += byte
    return out.decode("utf-8", "replace")


def _vprintf(group: Group, arguments: list[Array], site: Site) -> Array:
    texts: list[str] = group.service("printf")
    formats, lists = _u64(arguments[0]), _u64(arguments[1])
    out = np.zeros(group.n, np.uint32)
    known: dict[int, str] = {}
    for lane in range(group.n):
        address = int(formats[lane])
        if address not in known:
            known[address] = _string_at(group, lane, address, site)
        at = int(lists[lane])

        def read(offset: int, size: int, lane: int = lane, at: int = at) -> bytes:
            return _bytes_at(group, lane, at + offset, size, site)

        def text(pointer: int, lane: int = lane) -> str:
            return _string_at(group, lane, pointer, site)

        line, count = format_printf(known[address], read, text)
        texts.append(line)
        out[lane] = count
    return out


def format_printf(
    format_: str, read: Callable[[int, int], bytes], text: Callable[[int], str]
) -> tuple[str, int]:
    """Format as device ``printf`` does; the text, and the number of arguments used.

    ``read(offset, size)`` gives bytes of the argument buffer, in which every argument lies at a
    multiple of its size; ``text(address)`` reads a string.
    """
    out: list[str] = []
    at = 0
    offset = 0
    count = 0

    def number(size: int, code: str) -> int | float:
        nonlocal offset
        offset = -(-offset // size) * size
        value = struct.unpack("<" + code, read(offset, size))[0]
        offset += size
        return value  # type: ignore[no-any-return]

    while at < len(format_):
        if format_[at] != "%":
            end = format_.find("%", at)
            end = len(format_) if end < 0 else end
            out.append(format_[at:end])
            at = end
            continue
        end = at + 1
        while end < len(format_) and format_[end] in "-+ #0123456789.*":
            end += 1
        flags = format_[at + 1 : end]
        while "*" in flags:
            flags = flags.replace("*", str(number(4, "i")), 1)
            count += 1
        length = ""
        while end < len(format_) and format_[end] in "hlLqjzt":
            length += format_[end]
            end += 1
        kind = format_[end : end + 1]
        at = end + 1
        flags = _bounded(flags)
        if kind == "%":
            out.append("%")
            continue
        count += 1
        long = length in ("l", "ll", "q", "j", "z", "t", "L")
        if kind in "di" and kind:
            value = int(number(8, "q") if long else number(4, "i"))
            out.append(f"%{flags}d" % value)
        elif kind in "uxXo" and kind:
            value = int(number(8, "Q") if long else number(4, "I"))
            out.append(f"%{flags}{'d' if kind == 'u' else kind}" % value)
        elif kind in "eEfFgGaA" and kind:
            real = float(number(8, "d"))
            out.append(_real(flags, kind, real))
        elif kind == "c":
            out.append(f"%{flags}s" % chr(int(number(4, "i")) & 0xFF))
        elif kind == "s":
            out.append(f"%{flags}s" % text(int(number(8, "Q"))))
        elif kind == "p":
            out.append(f"%{flags}s" % hex(int(number(8, "Q"))))
        else:
            count -= 1
            out.append(format_[at - 1 - len(length) - len(flags) - 1 : at])
    return "".join(out), count


def _bounded(flags: str) -> str:
    """Field widths a kernel asks for are cut at 4096 characters."""
    digits = "".join(c if c.isdigit() else " " for c in flags).split()
    return "" if any(int(d) > 4096 for d in digits) else flags


def _real(flags: str, kind: str, value: float) -> str:
    if kind in "aA":
        text = value.hex()
        return text.upper() if kind == "A" else text
    return f"%{flags}{kind}" % value


def _assertfail(group: Group, arguments: list[Array], site: Site) -> None:
    message = _string_at(group, 0, int(_u64(arguments[0])[0]), site)
    file = _string_at(group, 0, int(_u64(arguments[1])[0]), site)
    line = int(np.ascontiguousarray(arguments[2][:1, :4]).view("<u4")[0, 0])
    function = _string_at(group, 0, int(_u64(arguments[3])[0]), site)
    group.finding(
        "trap",
        f"assertion failed: {message} ({file}:{line}, {function})",
        site,
        fatal=True,
        assertion=message,
    )


BUILTINS: dict[str, Callable[[Group, list[Array], Site], Array | None]] = {
    "vprintf": _vprintf,
    "malloc": _malloc,
    "free": _free,
    "__assertfail": _assertfail,
}

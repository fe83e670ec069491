"""The shape of ``cuda.core`` over the simulator, so that one test body runs on both.

``Device``, ``ObjectCode``, ``LaunchConfig`` and ``launch`` accept what their namesakes accept.  Two
things differ, both so that faults are seen: a launch returns the report, and it raises
:class:`ptxsim.FindingsError` for a kernel with findings.  A launch is over when it returns; streams
are accepted and order nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from .api import Kernel, Module, Parameter, assemble, undefined
from .errors import UsageError
from .report import Report

__all__ = [
    "Buffer",
    "ComputeCapability",
    "Device",
    "LaunchConfig",
    "LegacyPinnedMemoryResource",
    "ObjectCode",
    "Stream",
    "launch",
]

#: Buffers by the address of their first byte: a kernel argument may be that number.
_BUFFERS: WeakValueDictionary[int, Buffer] = WeakValueDictionary()


class ComputeCapability(NamedTuple):
    """Which GPU a device claims to be."""

    major: int
    minor: int


class Stream:
    """A stream; everything in it is done at once."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 0

    @property
    def handle(self) -> int:
        """The number of the default stream."""
        return 0

    def sync(self) -> None:
        """Wait for nothing."""

    def close(self) -> None:
        """Give back nothing."""


class Buffer:
    """Bytes that kernels can use; the host sees them by DLPack, as ``int8``."""

    def __init__(self, size: int) -> None:
        self._data: NDArray[Any] | None = undefined(max(int(size), 1), np.uint8)[: int(size)]
        self.size = int(size)
        _BUFFERS[self.handle] = self

    @property
    def handle(self) -> int:
        """The address of the first byte."""
        return int(self.array.ctypes.data)

    @property
    def array(self) -> NDArray[Any]:
        """The bytes; undefined for kernels until the host or a kernel had access to them."""
        if self._data is None:
            raise UsageError("the buffer is closed")
        return self._data

    @property
    def is_closed(self) -> bool:
        """Whether the memory was given back."""
        return self._data is None

    is_device_accessible = is_host_accessible = True
    device_id = 0

    def host(self) -> NDArray[Any]:
        """The bytes as an array that the host may write."""
        self._data = self.array.view(np.ndarray)
        return self._data

    def __dlpack__(self, **options: Any) -> Any:
        options.pop("stream", None)
        return self.host().view(np.int8).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.host().__dlpack_device__()

    def copy_to(
        self, dst: Buffer | None = None, *, stream: Any = None, options: Any = None
    ) -> Buffer:
        """Copy to a buffer of the same size, a new one without ``dst``."""
        target = Buffer(self.size) if dst is None else dst
        target.copy_from(self, stream=stream)
        return target

    def copy_from(self, src: Buffer, *, stream: Any = None, options: Any = None) -> None:
        """Copy from a buffer of the same size."""
        if src.size != self.size:
            raise UsageError(f"a buffer of {src.size} bytes does not fit one of {self.size}")
        self.host()[:] = src.array
        # what is undefined stays so
        self._data = self.array.view(type(src.array))

    def fill(self, value: int | bytes, *, stream: Any = None) -> None:
        """Repeat an integer below 256, or 1, 2 or 4 bytes."""
        pattern = bytes([value]) if isinstance(value, int) else bytes(value)
        if len(pattern) not in (1, 2, 4) or self.size % len(pattern):
            raise UsageError(f"cannot fill {self.size} bytes with a pattern of {len(pattern)}")
        self.host()[:] = np.frombuffer(pattern * (self.size // len(pattern)), np.uint8)

    def close(self, stream: Any = None) -> None:
        """Give the memory back."""
        self._data = None

    def __enter__(self) -> Buffer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class LegacyPinnedMemoryResource:
    """Memory of the host that kernels can use; in the simulator all memory is."""

    def allocate(self, size: int, *, stream: Any = None) -> Buffer:
        """A new buffer."""
        return Buffer(size)


class Device:
    """The simulator as a device; there is one, number 0."""

    name = "ptxsim"
    device_id = 0
    compute_capability = ComputeCapability(9, 0)
    arch = "90"

    def __init__(self, device_id: int | None = None) -> None:
        if device_id not in (None, 0):
            raise UsageError(f"there is no device {device_id}; the simulator is device 0")
        self.memory_resource = LegacyPinnedMemoryResource()

    def set_current(self, ctx: Any = None) -> None:
        """Choose this device for what follows."""

    @property
    def default_stream(self) -> Stream:
        """A stream."""
        return Stream(self)

    def create_stream(self, obj: Any = None, options: Any = None) -> Stream:
        """A stream."""
        return Stream(self)

    def allocate(self, size: int, *, stream: Any = None) -> Buffer:
        """A new buffer."""
        return Buffer(size)

    def sync(self) -> None:
        """Wait for nothing."""


class ObjectCode:
    """An assembled module; :meth:`from_ptx` makes one."""

    code_type = "ptx"

    def __init__(self, module: Module, name: str, symbols: Mapping[str, str]) -> None:
        self.module = module
        self.name = name
        self._symbols = symbols

    @staticmethod
    def from_ptx(
        module: bytes | str | PathLike[str],
        *,
        name: str = "",
        symbol_mapping: Mapping[str, str] | None = None,
    ) -> ObjectCode:
        """Assemble PTX: bytes are the text, a string or path without a line end names a file.

        ``symbol_mapping`` gives names to use for :meth:`get_kernel` the names in the text.
        """
        if isinstance(module, bytes):
            text: str | Path = module.rstrip(b"\0").decode("utf-8", "replace")
            # a text of one line must not be taken for a path
            text = f"{text}\n"
        else:
            text = module if isinstance(module, str) and "\n" in module else Path(module)
        return ObjectCode(assemble(text, name=name or None), name, symbol_mapping or {})

    @property
    def code(self) -> bytes:
        """The text."""
        return self.module.source.text.encode()

    def get_kernel(self, name: str | bytes) -> Kernel:
        """An entry by its name."""
        text = name.decode() if isinstance(name, bytes) else name
        return self.module.kernel(self._symbols.get(text, text))


class LaunchConfig:
    """The shape of a launch.  With ``cluster`` the grid counts clusters, without it CTAs."""

    def __init__(
        self,
        grid: int | Sequence[int] | None = None,
        cluster: int | Sequence[int] | None = None,
        block: int | Sequence[int] | None = None,
        shmem_size: int | None = None,
        is_cooperative: bool = False,
    ) -> None:
        if grid is None or block is None:
            raise UsageError("a launch needs grid and block")
        self.grid = _triple(grid)
        self.cluster = None if cluster is None else _triple(cluster)
        self.block = _triple(block)
        self.shmem_size = shmem_size or 0
        self.is_cooperative = is_cooperative


def _triple(value: Any) -> tuple[int, int, int]:
    parts = (value,) if isinstance(value, int | np.integer) else tuple(value)
    if not 1 <= len(parts) <= 3:
        raise UsageError(f"one to three numbers are needed, not {value!r}")
    x, y, z = (*(int(p) for p in parts), 1, 1)[:3]
    return x, y, z


def launch(stream: Any, config: Any, kernel: Kernel, *args: Any) -> Report:
    """Launch a kernel; :class:`ptxsim.FindingsError` if the report has findings.

    ``stream`` may be None, or any stream.  ``config`` may be a ``LaunchConfig`` of ``cuda.core``.
    Arguments are buffers, their handles, NumPy scalars, ctypes, Python numbers (``int`` has 64 bits
    and ``float`` is a double, as in ``cuda.core``), and beyond those what
    :meth:`ptxsim.Kernel.launch` takes.
    """
    grid, cluster = _triple(config.grid), config.cluster
    if cluster is not None:
        cluster = _triple(cluster)
        grid = (grid[0] * cluster[0], grid[1] * cluster[1], grid[2] * cluster[2])
    if len(args) != len(kernel.params):
        raise UsageError(f"'{kernel.name}' has {len(kernel.params)} parameters, not {len(args)}")
    # the name that the field had before cuda.core 0.4
    older = getattr(config, "cooperative_launch", False)
    values = [_argument(p, a) for p, a in zip(kernel.params, args, strict=True)]
    report = kernel.launch(
        grid=grid,
        block=_triple(config.block),
        cluster=cluster,
        smem=config.shmem_size or 0,
        args=values,
        cooperative=bool(getattr(config, "is_cooperative", older)),
    )
    for parameter, value in zip(kernel.params, args, strict=True):
        buffer = value if isinstance(value, Buffer) else _buffer_of(parameter, value)
        if buffer is not None:
            buffer.host()
    report.raise_for_findings()
    return report


def _buffer_of(parameter: Parameter, value: Any) -> Buffer | None:
    """The open buffer whose handle a value is; an address inside of one cannot be passed."""
    if parameter.size != 8 or not isinstance(value, int | np.integer):
        return None
    address = int(value)
    for handle, buffer in list(_BUFFERS.items()):
        if buffer.is_closed or not handle <= address < handle + max(buffer.size, 1):
            continue
        if address > handle:
            raise UsageError(
                f"{address:#x} lies {address - handle} bytes inside a buffer: pass its handle and"
                " the offset"
            )
        return buffer
    return None


def _argument(parameter: Parameter, value: Any) -> Any:
    """An argument as :meth:`Kernel.launch` takes it."""
    if isinstance(value, Buffer):
        return value.array
    buffer = _buffer_of(parameter, value)
    if buffer is not None:
        return buffer.array
    if isinstance(value, bool):
        data = bytes([value])
    elif isinstance(value, int):
        data = _integer(parameter, value)
    elif isinstance(value, float):
        data = struct.pack("<d", value)
    elif isinstance(value, complex):
        data = struct.pack("<dd", value.real, value.imag)
    else:
        return value
    if len(data) != parameter.size:
        raise UsageError(
            f"parameter '{parameter.name}' has {parameter.size} bytes, a Python"
            f" {type(value).__name__} has {len(data)}: give a NumPy scalar"
        )
    return data


def _integer(parameter: Parameter, value: int) -> bytes:
    """64 bits, of which a smaller parameter takes the low ones if they say it all."""
    bits = 8 * min(parameter.size, 8)
    if not -(1 << (bits - 1)) <= value < 1 << bits:
        raise UsageError(f"{value} does not fit parameter '{parameter.name}' ({bits} bits)")
    return (value % (1 << bits)).to_bytes(bits // 8, "little")

"""An in-memory stand-in for ``cuda.bindings.driver``: kernels run on our simulator.

Buffers are blocks of bytes.  A kernel sees each from the address that it is given up to the end of
the block, with whatever lies behind the data: like on a GPU, nobody stops it there.  Errors are
injected by the name of a function; that of ``kernel`` appears when the launch is waited for, and
stays (a sticky error) until the context is made anew, which never happens.
"""

from __future__ import annotations

import ctypes
import os
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import numpy as np

import ptxsim


class CUresult(IntEnum):
    """Errors by the numbers of the driver's header."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NOT_INITIALIZED = 3
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_INVALID_IMAGE = 200
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209
    CUDA_ERROR_ECC_UNCORRECTABLE = 214
    CUDA_ERROR_INVALID_PTX = 218
    CUDA_ERROR_JIT_COMPILER_NOT_FOUND = 221
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222
    CUDA_ERROR_NOT_FOUND = 500
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701
    CUDA_ERROR_LAUNCH_TIMEOUT = 702
    CUDA_ERROR_ASSERT = 710
    CUDA_ERROR_HARDWARE_STACK_ERROR = 714
    CUDA_ERROR_ILLEGAL_INSTRUCTION = 715
    CUDA_ERROR_MISALIGNED_ADDRESS = 716
    CUDA_ERROR_INVALID_ADDRESS_SPACE = 717
    CUDA_ERROR_INVALID_PC = 718
    CUDA_ERROR_LAUNCH_FAILED = 719
    CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720


class _Names:
    """An enumeration whose members are their own names."""

    def __getattr__(self, name: str) -> str:
        return name


#: What a GPU says of the faults that end a launch in the simulator.
_ERRORS = {
    "trap": "CUDA_ERROR_LAUNCH_FAILED",
    "oob-global": "CUDA_ERROR_ILLEGAL_ADDRESS",
    "misaligned-global": "CUDA_ERROR_MISALIGNED_ADDRESS",
}


def _result(error: str) -> tuple[CUresult]:
    return (CUresult[error],)


class FakeDriver:
    """A driver with GPUs of one kind.

    ``errors`` gives functions the error that they return, ``log`` is what the assembler says,
    ``hang`` makes kernels endless, ``printf`` is what they print, ``crash`` ends the process at
    the launch, ``absent`` is the message of an ImportError-like failure to load the library.
    """

    CUresult = CUresult
    CUdevice_attribute = CUfunction_attribute = CUlaunchAttributeID = CUjit_option = _Names()
    CUevent_flags = SimpleNamespace(CU_EVENT_DISABLE_TIMING=2)
    CUstream = int

    def __init__(
        self,
        devices: int = 1,
        capability: tuple[int, int] = (9, 0),
        errors: dict[str, str] | None = None,
        log: str = "",
        hang: bool = False,
        printf: str = "",
        crash: bool = False,
        absent: str = "",
    ) -> None:
        self.devices = devices
        self.capability = capability
        self.errors = errors or {}
        self.log = log
        self.hang = hang
        self.printf = printf
        self.crash = crash
        self.absent = absent
        self.calls: list[tuple[Any, ...]] = []
        self.sticky = ""
        self.blocks: dict[int, Any] = {}
        self._next = 0x7F00_0000_0000
        self._running = False

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu") or name == "cuGetErrorString":
            raise AttributeError(name)

        def call(*args: Any) -> tuple[Any, ...]:
            if self.absent:
                raise RuntimeError(self.absent)
            self.calls.append((name, *args))
            if name in self.errors:
                return _result(self.errors[name])
            if self.sticky and name not in ("cuInit", "cuDriverGetVersion", "cuDeviceGetCount"):
                if not name.startswith("cuDeviceGet"):
                    return _result(self.sticky)
            body = getattr(type(self), f"_{name}", None)
            values = () if body is None else body(self, *args)
            if isinstance(values, CUresult):
                return (values,)
            return (CUresult.CUDA_SUCCESS, *values)

        return call

    @staticmethod
    def CUlaunchConfig() -> Any:
        return SimpleNamespace()

    @staticmethod
    def CUlaunchAttribute() -> Any:
        return SimpleNamespace(value=SimpleNamespace(clusterDim=SimpleNamespace()))

    @staticmethod
    def cuGetErrorString(error: CUresult) -> tuple[CUresult, bytes]:
        return CUresult.CUDA_SUCCESS, error.name.removeprefix("CUDA_ERROR_").lower().encode()

    def named(self, name: str) -> list[tuple[Any, ...]]:
        """The arguments of the calls of a function."""
        return [args for called, *args in self.calls if called == name]  # type: ignore[misc]

    # --- functions --------------------------------------------------------------------------------

    def _cuDriverGetVersion(self) -> tuple[int]:
        return (13000,)

    def _cuDeviceGetCount(self) -> tuple[int]:
        return (self.devices,)

    def _cuDeviceGet(self, ordinal: int) -> tuple[int]:
        return (ordinal,)

    def _cuDeviceGetName(self, length: int, device: int) -> tuple[bytes]:
        return (f"Fake GPU {device}".encode().ljust(length, b"\0"),)

    def _cuDeviceGetAttribute(self, attribute: str, device: int) -> tuple[int]:
        return (self.capability[attribute.endswith("MINOR")],)

    def _cuDevicePrimaryCtxRetain(self, device: int) -> tuple[str]:
        return ("context",)

    def _cuModuleLoadDataEx(
        self, image: bytes, count: int, options: list[str], values: list[Any]
    ) -> tuple[Any] | CUresult:
        assert count == len(options) == len(values) and image.endswith(b"\0")
        values[0][: len(self.log)] = self.log.encode()
        if self.log:
            return CUresult.CUDA_ERROR_INVALID_PTX
        return (ptxsim.assemble(image[:-1].decode()),)

    def _cuModuleGetFunction(self, module: ptxsim.Module, name: bytes) -> tuple[Any]:
        return (module.kernel(name.decode()),)

    def _cuMemAlloc(self, size: int) -> tuple[int]:
        address = self._next
        self._next += -(-size // 4096) * 4096 + (1 << 20)
        self.blocks[address] = np.zeros(size, np.uint8)
        return (address,)

    def _cuMemFree(self, address: int) -> tuple[()]:
        del self.blocks[address]
        return ()

    def _cuMemcpyHtoD(self, address: int, source: int, size: int) -> tuple[()]:
        ctypes.memmove(self.blocks[address].ctypes.data, source, size)
        return ()

    def _cuMemcpyDtoH(self, target: int, address: int, size: int) -> tuple[()]:
        ctypes.memmove(target, self.blocks[address].ctypes.data, size)
        return ()

    def _cuLaunchKernelEx(
        self, config: Any, kernel: ptxsim.Kernel, parameters: int, extra: int
    ) -> tuple[()]:
        if self.crash:
            os._exit(9)
        places = ctypes.cast(parameters, ctypes.POINTER(ctypes.c_void_p))
        args = [
            self._argument(ctypes.string_at(places[n] or 0, p.size))
            for n, p in enumerate(kernel.params)
        ]
        self._running = self.hang
        if self.hang or "kernel" in self.errors:
            return ()
        report = kernel.launch(
            grid=(config.gridDimX, config.gridDimY, config.gridDimZ),
            block=(config.blockDimX, config.blockDimY, config.blockDimZ),
            smem=config.sharedMemBytes, args=args, tools="none",
        )  # fmt: skip
        if report.stopped:
            self.errors["kernel"] = _ERRORS[report.verdict]
        os.write(1, self.printf.encode())
        return ()

    def _argument(self, data: bytes) -> Any:
        """A parameter: where it is an address, the block from there on."""
        value = int.from_bytes(data, "little")
        for address, block in self.blocks.items():
            if address <= value < address + block.size:
                return block[value - address :]
        return data

    def _cuEventCreate(self, flags: int) -> tuple[str]:
        assert flags == 2
        return ("event",)

    def _cuEventQuery(self, event: str) -> tuple[()] | CUresult:
        if self._running:
            return CUresult.CUDA_ERROR_NOT_READY
        if "kernel" in self.errors:
            self.sticky = self.errors["kernel"]
            return CUresult[self.sticky]
        return ()

    def _cuStreamQuery(self, stream: int) -> tuple[()] | CUresult:
        return CUresult.CUDA_ERROR_NOT_READY if self._running else ()

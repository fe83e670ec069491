"""Launches with a fake driver: results, red zones, faults, refusals, attributes, the log."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxsim.device import DeviceBuffer, Request, Result
from ptxsim.device.bindings import Driver
from ptxsim.device.execute import execute
from ptxsim.device.memory import ZONE
from ptxsim.device.module import jit_diagnostics

from .fake_driver import FakeDriver
from .kernels import ADD, EMPTY, POKE, TRAP


def word(value: int, size: int = 4) -> bytes:
    return (value % (1 << (8 * size))).to_bytes(size, "little")


def add(**changes: Any) -> Request:
    """x + 5 -> y for 64 elements in two CTAs."""
    x = np.arange(64, dtype=np.uint32).view(np.uint8)
    buffers = DeviceBuffer("x", x), DeviceBuffer("y", np.zeros(256, np.uint8))
    request = {
        "text": ADD, "target": "sm_80", "entry": "add", "grid": (2, 1, 1), "block": (32, 1, 1),
        "buffers": buffers, "arguments": (0, 1, word(5)),
    }  # fmt: skip
    return Request(**{**request, **changes})


def empty(**changes: Any) -> Request:
    request = {"text": EMPTY, "target": "sm_80", "entry": "k", "grid": (1, 1, 1),
               "block": (32, 1, 1)}  # fmt: skip
    return Request(**{**request, **changes})


def poke(offset: int, readonly: bool = False) -> Result:
    """The result of a byte that is stored at an offset from a buffer of 12 bytes."""
    buffer = DeviceBuffer("p", np.zeros(12, np.uint8), readonly)
    request = Request(POKE, "sm_80", "poke", (1, 1, 1), (1, 1, 1), buffers=(buffer,),
                      arguments=(0, word(offset, 8)))  # fmt: skip
    return execute(Driver(FakeDriver()), request)


class TestResults:
    def test_buffers_hold_what_the_kernel_wrote(self) -> None:
        fake = FakeDriver()
        result = execute(Driver(fake), add())
        assert result.refusal == "" and result.findings == () and not result.stopped
        assert result.device is not None and result.device.name == "Fake GPU 0"
        assert result.buffers is not None
        x, y = (b.view(np.uint32) for b in result.buffers)
        assert (x == np.arange(64)).all()
        assert (y == np.arange(5, 69)).all()

    def test_everything_is_given_back(self) -> None:
        fake = FakeDriver()
        execute(Driver(fake), add())
        assert fake.blocks == {}
        names = [name for name, *_ in fake.calls]
        assert names[-2:] == ["cuModuleUnload", "cuDevicePrimaryCtxRelease"]
        assert names.count("cuMemAlloc") == names.count("cuMemFree") == 2

    def test_one_buffer_twice(self) -> None:
        data = np.arange(64, dtype=np.uint32).view(np.uint8)
        request = add(buffers=(DeviceBuffer("x", data),), arguments=(0, 0, word(1)))
        result = execute(Driver(FakeDriver()), request)
        assert result.buffers is not None
        assert (result.buffers[0].view(np.uint32) == np.arange(1, 65)).all()

    def test_the_data_of_the_caller_are_not_touched(self) -> None:
        request = add()
        execute(Driver(FakeDriver()), request)
        assert not request.buffers[1].data.any()


class TestRedZones:
    @pytest.mark.parametrize(
        ("offset", "message"),
        [
            # 12 bytes: offset 12 is the first byte that is not theirs
            (12, "the kernel wrote just past the end of 'p' (12 bytes): 1 byte of its red"),
            (40, "the kernel wrote 28 bytes past the end of 'p' (12 bytes): 1 byte of its red"),
            (11 + ZONE, f"the kernel wrote {ZONE - 1} bytes past the end of 'p' (12 bytes)"),
        ],
    )
    def test_past_the_end(self, offset: int, message: str) -> None:
        result = poke(offset)
        (found,) = result.findings
        assert (found.class_, found.code, found.line) == ("oob-global", "PTX341", 0)
        assert found.message.startswith(message)
        assert found.values == {"buffer": "p", "offset": offset, "bytes": 1}
        # the launch went on, and the buffer itself is as it was
        assert not result.stopped and result.buffers is not None
        assert not result.buffers[0].any()

    def test_before_the_start(self) -> None:
        class Shifted(FakeDriver):
            def _argument(self, data: bytes) -> Any:
                value = super()._argument(data)
                if isinstance(value, bytes):
                    return value
                block = next(b for b in self.blocks.values() if np.shares_memory(b, value))
                return block[-value.size - 3 :]  # three bytes before the buffer

        buffer = DeviceBuffer("p", np.zeros(12, np.uint8))
        request = Request(POKE, "sm_80", "poke", (1, 1, 1), (1, 1, 1), buffers=(buffer,),
                          arguments=(0, word(0, 8)))  # fmt: skip
        (found,) = execute(Driver(Shifted()), request).findings
        assert found.message.startswith("the kernel wrote 3 bytes before the start of 'p'")
        assert found.values == {"buffer": "p", "offset": -3, "bytes": 1}

    @pytest.mark.parametrize("offset", [0, 11])
    def test_inside_is_no_finding(self, offset: int) -> None:
        result = poke(offset)
        assert result.findings == () and result.buffers is not None
        assert list(np.flatnonzero(result.buffers[0])) == [offset]

    def test_read_only(self) -> None:
        (found,) = poke(5, readonly=True).findings
        assert (found.class_, found.code) == ("write-to-readonly", "PTX345")
        assert found.values == {"buffer": "p", "offset": 5, "bytes": 1}

    def test_beyond_the_zone_is_a_fault(self) -> None:
        (found,) = poke(12 + ZONE).findings
        assert found.class_ == "oob-global"
        assert found.values == {"error": "CUDA_ERROR_ILLEGAL_ADDRESS"}


FAULTS = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": "oob-global",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": "oob-global",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "misaligned-global",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": "trap",
    "CUDA_ERROR_LAUNCH_FAILED": "trap",
    "CUDA_ERROR_ASSERT": "trap",
    "CUDA_ERROR_HARDWARE_STACK_ERROR": "stack-overflow",
    "CUDA_ERROR_INVALID_PC": "bad-call",
    "CUDA_ERROR_LAUNCH_TIMEOUT": "step-limit",
}


class TestFaults:
    @pytest.mark.parametrize(("error", "class_"), FAULTS.items())
    def test_of_a_kernel(self, error: str, class_: str) -> None:
        result = execute(Driver(FakeDriver(errors={"kernel": error})), add())
        (found,) = result.findings
        assert found.class_ == class_ and error in found.message
        assert result.stopped and result.buffers is None and result.refusal == ""

    @pytest.mark.parametrize("function", ["cuStreamSynchronize", "cuMemcpyDtoH"])
    def test_that_shows_late(self, function: str) -> None:
        fake = FakeDriver(errors={function: "CUDA_ERROR_ILLEGAL_ADDRESS"})
        assert [f.class_ for f in execute(Driver(fake), add()).findings] == ["oob-global"]

    def test_of_the_machine_is_no_finding(self) -> None:
        fake = FakeDriver(errors={"kernel": "CUDA_ERROR_ECC_UNCORRECTABLE"})
        result = execute(Driver(fake), add())
        assert result.findings == ()
        assert result.refusal.startswith("the GPU failed: cuEventQuery: CUDA_ERROR_ECC_UNCORRECT")

    def test_of_the_kernel_itself(self) -> None:
        result = execute(Driver(FakeDriver()), empty(text=TRAP))
        assert [f.class_ for f in result.findings] == ["trap"]

    def test_an_earlier_one_is_not_taken_for_one_of_this_launch(self) -> None:
        fake = FakeDriver()
        assert execute(Driver(fake), empty(text=TRAP)).findings
        result = execute(Driver(fake), empty())
        assert result.findings == () and "launch with isolate=True" in result.refusal
        assert "CUDA_ERROR_LAUNCH_FAILED" in result.refusal

    def test_a_kernel_that_does_not_end(self) -> None:
        fake = FakeDriver()
        fake.errors = {}
        fake.hang = True
        result = execute(Driver(fake), empty(timeout=0.01))
        (found,) = result.findings
        assert found.class_ == "step-limit" and result.hung and result.stopped
        assert found.message.startswith("the kernel had not ended on the GPU after 0.01 s")
        # nothing is asked of the driver that would wait for the kernel
        assert fake.calls[-1][0] == "cuEventQuery"
        again = execute(Driver(fake), empty(timeout=0.01))
        assert again.refusal.startswith("the GPU is still busy with an earlier launch")


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "changes", "reason"),
        [
            ({"devices": 0}, {}, "the driver finds no GPU"),
            ({}, {"ordinal": 1}, "there is no GPU 1; there are 1"),
            ({"capability": (7, 5)}, {},
             "the PTX is for sm_80, which Fake GPU 0 (sm_75, driver for CUDA 13.0) cannot run"),
            ({"capability": (10, 0)}, {"target": "sm_90a"}, "the PTX is for sm_90a, which"),
            ({"capability": (9, 0)}, {"target": "sm_100f"}, "the PTX is for sm_100f, which"),
            ({"errors": {"cuMemAlloc": "CUDA_ERROR_OUT_OF_MEMORY"}}, {},
             "the buffers do not fit on the GPU: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY"),
            ({"errors": {"cuLaunchKernelEx": "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"}}, {},
             "the GPU cannot make this launch: cuLaunchKernelEx: CUDA_ERROR_COOPERATIVE"),
            ({"errors": {"cuFuncSetAttribute": "CUDA_ERROR_INVALID_VALUE"}}, {"smem": 300_000},
             "the GPU cannot make this launch: cuFuncSetAttribute: CUDA_ERROR_INVALID_VALUE"),
            ({"errors": {"cuDevicePrimaryCtxRetain": "CUDA_ERROR_OUT_OF_MEMORY"}}, {},
             "the GPU cannot be used by this process (cuDevicePrimaryCtxRetain: "),
            ({"errors": {"cuModuleLoadDataEx": "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"}}, {},
             "the driver is older than the PTX version of the text (CUDA_ERROR_UNSUPPORTED"),
            ({"errors": {"cuModuleLoadDataEx": "CUDA_ERROR_OUT_OF_MEMORY"}}, {},
             "the driver cannot load the module: cuModuleLoadDataEx: CUDA_ERROR_OUT_OF_MEMORY"),
        ],
    )  # fmt: skip
    def test_reasons(self, options: dict[str, Any], changes: dict[str, Any], reason: str) -> None:
        result = execute(Driver(FakeDriver(**options)), add(**changes))
        assert result.refusal.startswith(reason)
        assert result.findings == () and result.diagnostics == () and result.buffers is None

    @pytest.mark.parametrize(
        ("target", "capability"),
        [("sm_80", (12, 0)), ("sm_90a", (9, 0)), ("sm_100f", (10, 3)), ("sm_100f", (10, 0))],
    )
    def test_targets_that_fit(self, target: str, capability: tuple[int, int]) -> None:
        fake = FakeDriver(capability=capability)
        assert execute(Driver(fake), add(target=target)).refusal == ""


class TestAttributes:
    def test_shape(self) -> None:
        fake = FakeDriver()
        request = empty(grid=(2, 3, 4), block=(8, 2, 1), smem=100)
        assert execute(Driver(fake), request).refusal == ""
        ((config, *_),) = fake.named("cuLaunchKernelEx")
        assert (config.gridDimX, config.gridDimY, config.gridDimZ) == (2, 3, 4)
        assert (config.blockDimX, config.blockDimY, config.blockDimZ) == (8, 2, 1)
        assert config.sharedMemBytes == 100 and config.numAttrs == 0
        assert fake.named("cuFuncSetAttribute") == []

    def test_cluster(self) -> None:
        fake = FakeDriver()
        execute(Driver(fake), empty(grid=(4, 2, 1), cluster=(2, 2, 1)))
        ((config, *_),) = fake.named("cuLaunchKernelEx")
        (attribute,) = config.attrs
        assert attribute.id == "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION"
        dims = attribute.value.clusterDim
        assert (dims.x, dims.y, dims.z, config.numAttrs) == (2, 2, 1, 1)

    def test_cooperative(self) -> None:
        fake = FakeDriver()
        execute(Driver(fake), empty(cooperative=True, cluster=(2, 1, 1), grid=(2, 1, 1)))
        ((config, *_),) = fake.named("cuLaunchKernelEx")
        assert [a.id for a in config.attrs] == [
            "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION", "CU_LAUNCH_ATTRIBUTE_COOPERATIVE",
        ]  # fmt: skip
        assert config.attrs[1].value.cooperative == 1 and config.numAttrs == 2

    def test_leave_for_much_shared_memory_and_large_clusters(self) -> None:
        fake = FakeDriver()
        execute(Driver(fake), empty(smem=49_153, grid=(16, 1, 1), cluster=(16, 1, 1)))
        assert [args[1:] for args in fake.named("cuFuncSetAttribute")] == [
            ["CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", 49_153],
            ["CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1],
        ]


# the form of messages is that of ptxas as CUDA prints it
LOG = """\
ptxas application ptx input, line 6; error   : Unknown symbol 'nowhere'
ptxas application ptx input, line 7; warning : something odd
ptxas fatal   : Ptx assembly aborted due to errors
"""


class TestLog:
    def test_lines(self) -> None:
        result = execute(Driver(FakeDriver(log=LOG)), empty())
        assert [(d.code, d.message, str(d.span), d.severity.value) for d in result.diagnostics] == [
            ("PTX190", "Unknown symbol 'nowhere'", "6:5", "error"),
        ]
        assert result.refusal == "" and result.findings == ()

    def test_a_name_without_a_line(self) -> None:
        log = "ptxas fatal   : Unresolved extern function 'far'\n"
        (found,) = jit_diagnostics(log, "// x\n.extern .func far_away;\n.extern .func far;\n")
        assert (found.message, found.span.line) == ("Unresolved extern function 'far'", 3)

    def test_nothing_but_the_summary(self) -> None:
        (found,) = jit_diagnostics("ptxas fatal   : Ptx assembly aborted due to errors", "a")
        assert found.message == "Ptx assembly aborted due to errors"

    def test_no_log(self) -> None:
        fake = FakeDriver(errors={"cuModuleLoadDataEx": "CUDA_ERROR_INVALID_PTX"})
        (found,) = execute(Driver(fake), empty()).diagnostics
        assert found.message.endswith("without a reason (CUDA_ERROR_INVALID_PTX)")

    def test_information_is_no_message(self) -> None:
        assert jit_diagnostics("ptxas info    : 0 bytes gmem\n", "a") == ()

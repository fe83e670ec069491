"""What the probe says, branch by branch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ptxsim.device import DeviceInfo, Probe, probe
from ptxsim.device.bindings import Driver, DriverError

from .conftest import FakeGpu
from .fake_driver import FakeDriver


def test_a_gpu(gpu: FakeGpu) -> None:
    gpu(devices=2, capability=(8, 6))
    found = probe()
    assert found.available and found.reason == ""
    # the driver says 13000, which is CUDA 13.0
    assert found.devices == (
        DeviceInfo(0, "Fake GPU 0", (8, 6), "13.0"),
        DeviceInfo(1, "Fake GPU 1", (8, 6), "13.0"),
    )
    assert found.devices[0].target == "sm_86"
    assert str(found.devices[0]) == "Fake GPU 0 (sm_86, driver for CUDA 13.0)"


def test_no_bindings(no_cuda: None) -> None:
    reason = "cuda-python is not installed (pip install cuda-python)"
    assert probe() == Probe(False, reason)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"absent": "Failed to dlopen libcuda.so.1\nand more"},
         "the CUDA driver cannot be loaded: Failed to dlopen libcuda.so.1"),
        ({"errors": {"cuInit": "CUDA_ERROR_NO_DEVICE"}},
         "the driver finds no GPU that can be used: cuInit: CUDA_ERROR_NO_DEVICE (no_device)"),
        ({"errors": {"cuDeviceGetCount": "CUDA_ERROR_NOT_INITIALIZED"}},
         "the driver finds no GPU that can be used: cuDeviceGetCount: "
         "CUDA_ERROR_NOT_INITIALIZED (not_initialized)"),
        ({"devices": 0}, "the driver finds no GPU"),
    ],
)  # fmt: skip
def test_reasons(options: dict[str, object], reason: str, gpu: FakeGpu) -> None:
    gpu(**options)
    assert probe() == Probe(False, reason)


def test_a_driver_without_a_function() -> None:
    found = probe(Driver(object()))
    assert not found.available
    assert found.reason.startswith("the CUDA driver cannot be loaded: 'object' object has no")


def test_an_error_that_the_bindings_do_not_know() -> None:
    class Bindings:
        @staticmethod
        def cuInit(flags: int) -> None:
            raise ValueError("4711 is not a valid CUresult")

    found = probe(Driver(Bindings))
    assert found.reason.endswith("cuInit: an error without a name (4711 is not a valid CUresult)")


def test_results_of_calls() -> None:
    driver = Driver(FakeDriver())
    assert driver.call("cuInit", 0) is None
    assert driver.call("cuDeviceGetCount") == 1
    driver = Driver(FakeDriver(errors={"cuMemAlloc": "CUDA_ERROR_OUT_OF_MEMORY"}))
    with pytest.raises(DriverError, match=r"^cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY \(out_of_mem"):
        driver.call("cuMemAlloc", 16)


def test_this_machine_is_probed_without_an_exception() -> None:
    found = probe()
    assert found.available == bool(found.devices) == (found.reason == "")


def test_the_package_imports_neither_cuda_nor_the_simulator() -> None:
    code = (
        "import sys, ptxsim.device;"
        "print([m for m in sys.modules if m.split('.')[0] in ('cuda', 'lark')"
        " or m.startswith('ptxsim.machine')])"
    )
    root = Path(__file__).parents[2]
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert out.stdout == "[]\n", out.stderr

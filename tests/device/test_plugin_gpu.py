"""``--ptxsim-gpu``: the fixture repeats launches on the GPU, here a fake one."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import ptxsim
from ptxsim.pytest_plugin import PtxLaunch

from .conftest import FakeGpu
from .fake_driver import FakeDriver
from .kernels import ADD, POKE, TRAP

pytest_plugins = ["pytester"]


class WrongGpu(FakeDriver):
    """A GPU that changes the last byte of every buffer behind the kernel's back."""

    def _cuLaunchKernelEx(self, *args: Any) -> tuple[()]:
        super()._cuLaunchKernelEx(*args)
        for block in self.blocks.values():
            block[-1 - (1 << 16)] ^= 1
        return ()


def launch(text: str, args: list[Any], **options: Any) -> ptxsim.Report:
    return PtxLaunch(gpu=True)(text, grid=1, block=4, args=args, isolate=False, **options)


def arguments() -> list[Any]:
    return [np.arange(4, dtype=np.uint32), ptxsim.undefined(4, np.uint32), np.uint32(5)]


def test_equal_bits(gpu: FakeGpu) -> None:
    fake = gpu()
    args = arguments()
    report = launch(ADD, args)
    # the report is that of the simulator: 14 instructions of 4 threads
    assert report.clean and report.device is None
    assert report.counters["thread_instructions"] == 4 * 14
    assert list(args[1]) == [5, 6, 7, 8]
    assert len(fake.named("cuLaunchKernelEx")) == 1


def test_other_bits_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", WrongGpu())  # type: ignore[arg-type]
    # 8 is 0x00000008; the GPU that changes bit 24 gives 2**24 + 8
    message = (
        r"ptxsim reports mismatch\n.*mismatch: 1 of 4 elements of 'x' differ from those of the GPU"
        r" \(Fake GPU 0\); the first is x\[3\]: 3 instead of 16777219"
    )
    with pytest.raises(AssertionError, match=message):
        launch(ADD, arguments())
    assert launch(ADD, arguments(), gpu=False).clean


def test_findings_of_the_gpu_fail(gpu: FakeGpu) -> None:
    gpu(errors={"kernel": "CUDA_ERROR_ILLEGAL_ADDRESS"})
    with pytest.raises(AssertionError, match=r"^ptxsim reports oob-global on the GPU\n"):
        launch(ADD, arguments())


def test_an_expected_fault_is_not_repeated(gpu: FakeGpu) -> None:
    fake = gpu()
    launch(TRAP, [], expect="trap")
    assert not fake.named("cuLaunchKernelEx")


def test_an_array_that_is_passed_twice(gpu: FakeGpu) -> None:
    fake = gpu()
    x = np.arange(4, dtype=np.uint32)
    launch(ADD, [x, x, np.uint32(1)])
    assert list(x) == [1, 2, 3, 4] and len(fake.named("cuMemAlloc")) == 1


def test_a_red_zone_counts(gpu: FakeGpu) -> None:
    gpu()
    with pytest.raises(AssertionError, match="oob-global"):
        launch(POKE, [np.zeros(3, np.uint32), np.uint64(12)])


def test_option_and_marker(gpu: FakeGpu, pytester: pytest.Pytester) -> None:
    fake = gpu()
    pytester.makepyfile(f"""
import pytest

@pytest.mark.ptxsim_gpu
def test_gpu(ptx_launch):
    ptx_launch({POKE!r}, grid=1, block=1, args=[None, bytes(8)], expect="oob-global")

def test_other():
    pass
""")
    plugin = "-p", "ptxsim.pytest_plugin", "-p", "no:cacheprovider", "-rs"
    result = pytester.runpytest(*plugin)
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["*needs a GPU: run with --ptxsim-gpu"])
    pytester.runpytest(*plugin, "--ptxsim-gpu").assert_outcomes(passed=2)
    assert fake.named("cuInit")

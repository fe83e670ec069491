"""Launches in a process of their own: files, faults, ends of every kind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ptxsim.device import DeviceBuffer, DeviceInfo, Request, Result, launch
from ptxsim.device.faults import timeout
from ptxsim.device.isolate import execute_isolated
from ptxsim.device.request import (
    finding,
    read_request,
    read_result,
    write_request,
    write_result,
)
from ptxsim.diagnostics import Diagnostic, Severity, Span
from ptxsim.errors import UsageError

from .conftest import FakeGpu
from .kernels import ADD, EMPTY, TRAP

X = np.arange(4, dtype=np.uint32).view(np.uint8)
REQUEST = Request(
    ADD, "sm_80", "add", (1, 1, 1), (4, 1, 1),
    buffers=(DeviceBuffer("x", X, True), DeviceBuffer("y", np.zeros(16, np.uint8))),
    arguments=(0, 1, b"\x05\0\0\0"), timeout=10.0,
)  # fmt: skip


def request(text: str, timeout: float = 10.0) -> Request:
    return Request(text, "sm_80", "k", (1, 1, 1), (1, 1, 1), timeout=timeout)


class TestFiles:
    def test_a_request_comes_back(self, tmp_path: Path) -> None:
        write_request(REQUEST, tmp_path)
        back = read_request(tmp_path)
        assert [b.name for b in back.buffers] == ["x", "y"]
        assert [b.readonly for b in back.buffers] == [True, False]
        assert (back.buffers[0].data == X).all() and back.buffers[1].data.size == 16
        for name in ("text", "target", "entry", "grid", "block", "cluster", "smem", "cooperative",
                     "arguments", "timeout", "ordinal"):  # fmt: skip
            assert getattr(back, name) == getattr(REQUEST, name)

    @pytest.mark.parametrize(
        "result",
        [
            Result(refusal="no"),
            Result(DeviceInfo(1, "G", (9, 0), "13.0"), None,
                   (finding("trap", "m", "h", error="E", n=1),), stopped=True, hung=True),
            Result(diagnostics=(Diagnostic("PTX190", "m", Span(1, 2, 3, 4), Severity.WARNING),)),
        ],
    )  # fmt: skip
    def test_a_result_comes_back(self, result: Result, tmp_path: Path) -> None:
        write_result(result, tmp_path)
        assert read_result(tmp_path) == result

    def test_buffers_of_a_result(self, tmp_path: Path) -> None:
        write_result(Result(buffers=(X, X[:3])), tmp_path)
        back = read_result(tmp_path)
        assert back is not None and back.buffers is not None
        assert [list(b) for b in back.buffers] == [list(X), [0, 0, 0]]

    def test_no_result(self, tmp_path: Path) -> None:
        assert read_result(tmp_path) is None

    def test_objects_are_not_loaded(self, tmp_path: Path) -> None:
        write_request(REQUEST, tmp_path)
        objects = np.array([{}], object)
        np.savez(tmp_path / "request.npz", b0=objects, b1=objects)
        with pytest.raises(ValueError, match="allow_pickle=False"):
            read_request(tmp_path)


class TestProcess:
    def test_results_and_text(self, gpu: FakeGpu) -> None:
        fake = gpu(printf="hello from lane 0\n")
        result = launch(REQUEST)
        assert result.buffers is not None and result.findings == ()
        assert list(result.buffers[1].view(np.uint32)) == [5, 6, 7, 8]
        assert result.printf == "hello from lane 0\n"
        # here nothing but the probe asked the driver
        assert not fake.named("cuDevicePrimaryCtxRetain")

    def test_a_fault_harms_no_later_launch(self, gpu: FakeGpu) -> None:
        gpu()
        assert [f.class_ for f in launch(request(TRAP)).findings] == ["trap"]
        assert launch(request(EMPTY)).findings == ()

    def test_without_isolation_it_does(self, gpu: FakeGpu) -> None:
        gpu()
        assert [f.class_ for f in launch(request(TRAP), isolate=False).findings] == ["trap"]
        with pytest.raises(UsageError, match="launch with isolate=True"):
            launch(request(EMPTY), isolate=False)

    def test_a_kernel_that_does_not_end(self, gpu: FakeGpu) -> None:
        gpu(hang=True)
        result = launch(request(EMPTY, 0.05))
        assert result.findings == (timeout(0.05),) and result.stopped

    def test_a_process_that_does_not_end_is_killed(self, gpu: FakeGpu) -> None:
        gpu(hang=True)
        # the kernel may run for long, the process may not
        result = execute_isolated(request(EMPTY, 300), overhead=-299)
        assert result.findings == (timeout(300),) and result.stopped

    def test_a_process_that_dies(self, gpu: FakeGpu) -> None:
        gpu(crash=True)
        with pytest.raises(UsageError, match=r"^the process of the launch ended with status 9$"):
            launch(request(EMPTY))

    def test_a_process_that_fails(self, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
        gpu()
        monkeypatch.setenv("FAKE_CUDA", "no JSON")
        message = r"ended with status 1: json\.decoder\.JSONDecodeError"
        with pytest.raises(UsageError, match=message):
            launch(request(EMPTY))

    def test_a_refusal(self, gpu: FakeGpu) -> None:
        gpu(errors={"cuLaunchKernelEx": "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"})
        with pytest.raises(UsageError, match=r"^the GPU cannot make this launch: "):
            launch(request(EMPTY))

"""``backend="gpu"`` of the Python interface and of ``ptxsim run``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptxsim
from ptxsim.cli import main

from .conftest import FakeGpu
from .kernels import ADD, EMPTY, POKE
from .test_execute import LOG

HEADER = """\
// launch: grid=1 block=4
// arg: x u32[4] = iota
// arg: y u32[4] = undef
// arg: n u32 = 5
"""


def launch(text: str, args: list[Any], **options: Any) -> ptxsim.Report:
    launch = {"grid": 1, "block": 4, "backend": "gpu", "isolate": False, **options}
    return ptxsim.assemble(text).kernel().launch(args=args, **launch)


class TestPython:
    @pytest.mark.parametrize("isolate", [False, True])
    def test_as_on_the_simulator(self, isolate: bool, gpu: FakeGpu) -> None:
        gpu()
        x = np.arange(4, dtype=np.uint32)
        y = ptxsim.undefined(4, np.uint32)
        report = launch(ADD, [x, y, np.uint32(5)], isolate=isolate)
        assert report.clean and not report.stopped and report.counters == {}
        assert list(y) == [5, 6, 7, 8]
        assert report.outputs["y"].array is y and list(report.outputs) == ["x", "y"]
        assert report.device == {
            "ordinal": 0, "name": "Fake GPU 0", "compute_capability": [9, 0], "driver": "13.0",
        }  # fmt: skip
        assert report.to_json()["device"]["name"] == "Fake GPU 0"
        simulated = launch(ADD, [x, y, np.uint32(5)], backend="sim")
        assert simulated.device is None and "device" not in simulated.to_json()

    def test_an_array_twice_and_a_null_pointer(self, gpu: FakeGpu) -> None:
        gpu()
        x = np.arange(4, dtype=np.uint32)
        launch(ADD, [x, x, np.uint32(1)])
        assert list(x) == [1, 2, 3, 4]
        report = launch(POKE, [None, np.uint64(0)])
        assert report.verdict == "oob-global" and report.stopped

    def test_a_red_zone(self, gpu: FakeGpu) -> None:
        gpu()
        report = launch(POKE, [np.zeros(3, np.uint32), np.uint64(12)])
        assert report.verdict == "oob-global" and not report.stopped
        assert "just past the end of 'p' (12 bytes)" in report.findings[0].message

    def test_a_fault_leaves_the_arrays(self, gpu: FakeGpu) -> None:
        gpu()
        x = np.arange(3, dtype=np.uint32)
        report = launch(POKE, [x, np.uint64(1 << 40)])
        assert report.verdict == "oob-global" and report.stopped and report.outputs == {}
        assert list(x) == [0, 1, 2]

    def test_a_read_only_array(self, gpu: FakeGpu) -> None:
        gpu()
        x = np.zeros(3, np.uint32)
        x.flags.writeable = False
        assert launch(POKE, [x, np.uint64(1)]).verdict == "write-to-readonly"
        assert not x.any()

    def test_the_log_is_on_our_lines(self, gpu: FakeGpu) -> None:
        gpu(log=LOG)
        with pytest.raises(ptxsim.PtxError) as caught:
            launch(EMPTY, [])
        (found,) = caught.value.diagnostics
        assert (found.span.line, found.message) == (6, "Unknown symbol 'nowhere'")

    def test_the_target_that_is_asked_for(self, gpu: FakeGpu) -> None:
        fake = gpu()
        module = ptxsim.assemble("// .target sm_75\n" + EMPTY, target="sm_90")
        module.kernel().launch(grid=1, block=1, backend="gpu", isolate=False)
        ((image, *_),) = fake.named("cuModuleLoadDataEx")
        assert image.decode().splitlines()[:3] == [
            "// .target sm_75", ".version 8.0", ".target sm_90",
        ]  # fmt: skip

    def test_cluster_and_cooperative(self, gpu: FakeGpu) -> None:
        fake = gpu()
        launch(EMPTY, [], grid=4, cluster=2, cooperative=True)
        ((config, *_),) = fake.named("cuLaunchKernelEx")
        assert config.numAttrs == 2 and config.attrs[0].value.clusterDim.x == 2

    def test_no_gpu(self, no_cuda: None) -> None:
        with pytest.raises(ptxsim.UsageError, match=r"^no GPU: cuda-python is not installed"):
            launch(EMPTY, [])

    @pytest.mark.parametrize("backend", ["sim", "gpu"])
    def test_wrong_arguments_are_the_same_error(self, backend: str, no_cuda: None) -> None:
        with pytest.raises(ptxsim.UsageError, match="3 parameters, 0 arguments"):
            launch(ADD, [], backend=backend)

    @pytest.mark.parametrize("seconds", [0, -1.0, float("inf"), float("nan")])
    def test_times_that_are_none(self, seconds: float, gpu: FakeGpu) -> None:
        gpu()
        with pytest.raises(ptxsim.UsageError, match="timeout is a positive number of seconds"):
            launch(EMPTY, [], timeout=seconds)

    def test_addresses_of_32_bits(self, gpu: FakeGpu) -> None:
        gpu()
        with pytest.raises(ptxsim.UsageError, match="address_size 64"):
            launch(EMPTY.replace(".address_size 64", ".address_size 32"), [])


class TestCommand:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "add.ptx"
        path.write_text(HEADER + ADD)
        return path

    def run(self, file: Path, *words: str) -> int:
        return main(["run", str(file), "--backend", "gpu", *words])

    def test_without_a_gpu_one_line_and_2(
        self, file: Path, no_cuda: None, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert self.run(file) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err == ("ptxsim: no GPU: cuda-python is not installed (pip install cuda-python)\n")

    def test_results(
        self, file: Path, gpu: FakeGpu, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        gpu()
        json_file = tmp_path / "r.json"
        np.save(tmp_path / "e.npy", np.array([5, 6, 7, 9], np.uint32))
        words = ["--out", f"y={tmp_path / 'y.npy'}", "--json", str(json_file),
                 "--expect", f"y={tmp_path / 'e.npy'}", "--format", "concise"]  # fmt: skip
        assert self.run(file, *words) == 1
        assert list(np.load(tmp_path / "y.npy")) == [5, 6, 7, 8]
        assert json.loads(json_file.read_text())["device"]["name"] == "Fake GPU 0"
        found, last = capsys.readouterr().out.splitlines()
        assert found.startswith(f"{file}: mismatch: 1 of 4 elements of 'y' differ from ")
        assert last == f"{file}: 'add' on sm_80, Fake GPU 0: mismatch (1 error)"

    def test_what_a_fault_lost_is_not_written(
        self, file: Path, gpu: FakeGpu, capsys: pytest.CaptureFixture[str]
    ) -> None:
        gpu(errors={"kernel": "CUDA_ERROR_ILLEGAL_ADDRESS"})
        assert self.run(file, "--out", f"y={file.parent / 'y.npy'}", "--print", "y") == 1
        assert not (file.parent / "y.npy").exists()
        assert "(CUDA_ERROR_ILLEGAL_ADDRESS)" in capsys.readouterr().out

    def test_ptx_that_the_driver_refuses(
        self, file: Path, gpu: FakeGpu, capsys: pytest.CaptureFixture[str]
    ) -> None:
        gpu(log=LOG)
        assert self.run(file) == 3
        assert ":6:1: error: Unknown symbol 'nowhere' [PTX190]" in capsys.readouterr().err

    def test_a_kernel_that_does_not_end(
        self, file: Path, gpu: FakeGpu, capsys: pytest.CaptureFixture[str]
    ) -> None:
        gpu(hang=True)
        assert self.run(file, "--timeout", "1") == 1
        assert (
            "step-limit: the kernel had not ended on the GPU after 1 s" in capsys.readouterr().out
        )

"""The shape of ``cuda.core``: one body, arguments, buffers, and what is refused."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ptxsim
from ptxsim import core

from .kernels import ADD, EMPTY, HEAD, POKE

#: stores a parameter of 4 bytes, one of 8 and one of 1 to out
STORE = (
    HEAD
    + """\
.visible .entry store(.param .u64 out, .param .f32 a, .param .f64 b, .param .u8 c)
{
    .reg .b64 %p;
    .reg .f32 %a;
    .reg .f64 %b;
    .reg .b16 %c;
    ld.param.u64 %p, [out];
    ld.param.f32 %a, [a];
    ld.param.f64 %b, [b];
    ld.param.u8 %c, [c];
    st.global.f64 [%p], %b;
    st.global.f32 [%p+8], %a;
    st.global.u8 [%p+12], %c;
    ret;
}
"""
)


def body(core: Any) -> list[int]:
    """What a test of a kernel does with ``cuda.core`` 0.4 and later."""
    device = core.Device()
    device.set_current()
    stream = device.create_stream()
    kernel = core.ObjectCode.from_ptx(ADD.encode(), name="add").get_kernel("add")
    memory = core.LegacyPinnedMemoryResource()
    with memory.allocate(256) as x, memory.allocate(256) as y:
        np.from_dlpack(x).view(np.uint32)[:] = np.arange(64)
        config = core.LaunchConfig(grid=2, block=32)
        core.launch(stream, config, kernel, x, y, np.uint32(5))
        stream.sync()
        result = np.from_dlpack(y).view(np.uint32).tolist()
    stream.close()
    return list(result)


def test_one_body() -> None:
    assert body(core) == list(range(5, 69))


def test_names_of_the_package() -> None:
    for name in ("Device", "LaunchConfig", "ObjectCode", "launch"):
        assert getattr(ptxsim, name) is getattr(core, name)


def test_the_package_loads_it_lazily() -> None:
    code = "import sys, ptxsim; print('ptxsim.core' in sys.modules, 'numpy' in sys.modules)"
    root = Path(__file__).parents[2]
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert out.stdout == "False False\n", out.stderr


class TestArguments:
    def test_of_all_kinds(self) -> None:
        out = core.Buffer(16)
        out.fill(0)
        kernel = core.ObjectCode.from_ptx(STORE.encode()).get_kernel(b"store")
        core.launch(
            None, core.LaunchConfig(grid=1, block=1), kernel,
            out.handle, ctypes.c_float(2), 0.5, True,
        )  # fmt: skip
        data = out.array
        assert data[:8].view(np.float64) == [0.5] and data[8:12].view(np.float32) == [2.0]
        assert data[12] == 1

    def launch(self, *args: Any) -> ptxsim.Report:
        kernel = ptxsim.assemble(POKE).kernel()
        return core.launch(None, core.LaunchConfig(grid=1, block=1), kernel, *args)

    def test_integers_are_addresses_of_buffers(self) -> None:
        data = core.Buffer(16)
        self.launch(data.handle, 3)
        assert data.array[3] == 7
        self.launch(np.uint64(data.handle), np.int64(4))
        assert data.array[4] == 7

    def test_arrays_are_taken_too(self) -> None:
        array = np.zeros(4, np.uint8)
        assert self.launch(array, 2).clean
        assert list(array) == [0, 0, 7, 0]

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            ((1.5, 1j), r"'d' has 8 bytes, a Python complex has 16"),
            ((1 << 64, 0), r"18446744073709551616 does not fit parameter 'p' \(64 bits\)"),
            ((-(1 << 63) - 1, 0), r"does not fit parameter 'p'"),
            ((0,), r"'poke' has 2 parameters, not 1"),
        ],
    )
    def test_that_do_not_fit(self, args: tuple[Any, ...], message: str) -> None:
        with pytest.raises(ptxsim.UsageError, match=message):
            self.launch(*args)

    def test_a_double_for_a_float(self) -> None:
        kernel = ptxsim.assemble(STORE).kernel()
        with pytest.raises(ptxsim.UsageError, match=r"'a' has 4 bytes, a Python float has 8"):
            core.launch(None, core.LaunchConfig(1, block=1), kernel, core.Buffer(16), 1.0, 1.0, 1)

    def test_an_address_inside_a_buffer(self) -> None:
        data = core.Buffer(16)
        with pytest.raises(ptxsim.UsageError, match="lies 4 bytes inside a buffer"):
            self.launch(data.handle + 4, 0)

    def test_findings_are_raised(self) -> None:
        with pytest.raises(ptxsim.FindingsError, match="oob-global"):
            self.launch(core.Buffer(16), 16)


class TestConfig:
    def shape(self, config: Any) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        kernel = ptxsim.assemble(EMPTY).kernel()
        kernel.launch = lambda **options: seen.update(options) or ptxsim.Report("", "", "")  # type: ignore
        core.launch(None, config, kernel)
        return seen

    def test_clusters_are_counted_by_the_grid(self) -> None:
        config = core.LaunchConfig(grid=(3, 2), cluster=2, block=(8, 4), shmem_size=64)
        assert self.shape(config) == {
            "grid": (6, 2, 1), "block": (8, 4, 1), "cluster": (2, 1, 1), "smem": 64, "args": [],
            "cooperative": False,
        }  # fmt: skip

    @pytest.mark.parametrize("name", ["is_cooperative", "cooperative_launch"])
    def test_those_of_others(self, name: str) -> None:
        config = SimpleNamespace(grid=(2, 1, 1), cluster=None, block=(32, 1, 1), shmem_size=0,
                                 **{name: True})  # fmt: skip
        assert self.shape(config)["cooperative"] is True

    def test_what_is_missing(self) -> None:
        with pytest.raises(ptxsim.UsageError, match="needs grid and block"):
            core.LaunchConfig(grid=1)
        with pytest.raises(ptxsim.UsageError, match="one to three numbers"):
            core.LaunchConfig(grid=(1, 1, 1, 1), block=1)


class TestBuffers:
    def test_are_undefined_until_the_host_writes(self) -> None:
        kernel = ptxsim.assemble(ADD).kernel()
        config = core.LaunchConfig(grid=1, block=4)
        x, y = core.Buffer(16), core.Buffer(16)
        with pytest.raises(ptxsim.FindingsError, match="uninit"):
            core.launch(None, config, kernel, x, y, np.uint32(1))
        x, z = core.Buffer(16), core.Buffer(16)
        z.copy_from(x)
        with pytest.raises(ptxsim.FindingsError, match="uninit"):
            core.launch(None, config, kernel, z, y, np.uint32(1))
        x.fill(b"\1\0\0\0")
        core.launch(None, config, kernel, x, y, np.uint32(1))
        core.launch(None, config, kernel, y, x, np.uint32(1))
        assert list(x.array.view(np.uint32)) == [3, 3, 3, 3]

    def test_copies(self) -> None:
        first = core.Buffer(4)
        first.fill(9)
        assert list(first.copy_to().array) == [9] * 4
        with pytest.raises(ptxsim.UsageError, match="4 bytes does not fit one of 5"):
            first.copy_to(core.Buffer(5))
        with pytest.raises(ptxsim.UsageError, match="cannot fill 4 bytes with a pattern of 3"):
            first.fill(b"abc")

    def test_closed(self) -> None:
        buffer = core.Device().allocate(4, stream=None)
        buffer.close()
        assert buffer.is_closed
        with pytest.raises(ptxsim.UsageError, match="the buffer is closed"):
            np.from_dlpack(buffer)


class TestCode:
    def test_sources(self, tmp_path: Path) -> None:
        path = tmp_path / "k.ptx"
        path.write_text(EMPTY)
        for source in (EMPTY.encode(), EMPTY.encode() + b"\0", path, str(path), EMPTY):
            assert core.ObjectCode.from_ptx(source).get_kernel("k").name == "k"

    def test_symbols_and_code(self) -> None:
        code = core.ObjectCode.from_ptx(EMPTY.encode(), symbol_mapping={"nice": "k"})
        assert code.get_kernel("nice").name == "k"
        assert code.code.decode().strip() == EMPTY.strip() and code.code_type == "ptx"

    def test_invalid(self) -> None:
        with pytest.raises(ptxsim.PtxError):
            core.ObjectCode.from_ptx(b"nonsense")
        with pytest.raises(ptxsim.UsageError, match="cannot read"):
            core.ObjectCode.from_ptx("absent.ptx")

    def test_devices(self) -> None:
        assert core.Device(0).compute_capability == (9, 0)
        with pytest.raises(ptxsim.UsageError, match="there is no device 1"):
            core.Device(1)

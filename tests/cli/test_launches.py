"""Launches through the command line: schedules, undefined results, and commands to paste."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from ptxsim.cli import main

# out[i] = src[i] + n for the threads of one CTA
ADD = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 src_p, .param .u64 out_p, .param .u32 n)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    mov.u32 %r0, %tid.x;
    ld.param.u64 %rd0, [src_p];
    ld.param.u64 %rd1, [out_p];
    ld.param.u32 %r1, [n];
    mul.wide.u32 %rd2, %r0, 4;
    add.u64 %rd0, %rd0, %rd2;
    add.u64 %rd1, %rd1, %rd2;
    ld.global.u32 %r2, [%rd0];
    add.u32 %r2, %r2, %r1;
    st.global.u32 [%rd1], %r2;
    ret;
}
"""
HEADER = """\
// launch: grid=1 block=32
// arg: src u32[32] = iota * 3
// arg: out u32[32] = undef
// arg: n u32 = 5
"""
EXPECTED = (np.arange(32) * 3 + 5).astype(np.uint32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "add.ptx").write_text(HEADER + ADD)
    (tmp_path / "bare.ptx").write_text(ADD)
    return tmp_path


@pytest.mark.usefixtures("folder")
class TestSchedules:
    @pytest.mark.parametrize(
        "name", ["default", "reverse", "warp-serial", "early-async", "random:3"]
    )
    def test_known(self, name: str) -> None:
        assert main(["run", "add.ptx", "--schedule", name, "--out", "out=o.npy"]) == 0
        assert np.array_equal(np.load("o.npy"), EXPECTED)

    def test_each_launch_starts_from_fresh_buffers(self) -> None:
        words = ["--arg", "out=u32[32]:zeros", "--arg", "src=u32[32]:iota", "--schedules", "2"]
        assert main(["run", "add.ptx", *words]) == 0


@pytest.mark.usefixtures("folder")
class TestBuffers:
    def test_bytes_never_written(self, capsys: pytest.CaptureFixture[str]) -> None:
        # 8 of 32 threads write a word each
        assert main(["run", "add.ptx", "--block", "8", "--json", "-"]) == 0
        out = json.loads(capsys.readouterr().out)["outputs"]["out"]
        assert out["undefined_bytes"] == 4 * 24

    def test_names_of_the_header_and_of_the_parameters(self) -> None:
        for name in ("out", "out_p"):
            assert main(["run", "add.ptx", "--out", f"{name}={name}.npy"]) == 0
            assert np.array_equal(np.load(f"{name}.npy"), EXPECTED)

    def test_a_failed_write_leaves_the_old_file(self, folder: Path) -> None:
        (folder / "o.npy").mkdir()
        assert main(["run", "add.ptx", "--out", "out=o.npy"]) == 2
        assert [p.name for p in folder.iterdir() if p.name.startswith(".")] == []

    def test_standard_input(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("sys.stdin", io.StringIO(HEADER + ADD))
        assert main(["run", "-"]) == 0
        assert capsys.readouterr().out == "<stdin>: 'add' on sm_80: clean\n"


@pytest.mark.usefixtures("folder")
class TestUnknownLaunch:
    def test_the_command_can_be_pasted(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", "bare.ptx"]) == 2
        lines = capsys.readouterr().err.split("\n")
        (command,) = (line.strip() for line in lines if line.startswith("  ptxsim run"))
        assert command == (
            "ptxsim run bare.ptx --entry add --grid 1 --block 32 --arg 'src=u32[1024]:zeros'"
            " --arg 'out=u32[1024]:zeros' --arg n=u32:1"
        )
        assert main(shlex.split(command)[1:]) == 0

    def test_only_what_is_missing_is_named(self, capsys: pytest.CaptureFixture[str]) -> None:
        words = ["--grid", "1", "--arg", "src=u32[32]:iota"]
        assert main(["run", "bare.ptx", *words]) == 2
        assert "missing: block; arguments out_p, n" in capsys.readouterr().err

    def test_a_file_name_with_a_space_is_quoted(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (folder / "my kernel.ptx").write_text(ADD)
        assert main(["run", "my kernel.ptx"]) == 2
        assert "ptxsim run 'my kernel.ptx' --entry" in capsys.readouterr().err

    def test_what_was_given_is_kept(self, capsys: pytest.CaptureFixture[str]) -> None:
        words = ["--block", "8", "--arg", "src=u32[8]:iota", "--arg", "out=u32[8]:undef"]
        assert main(["run", "bare.ptx", *words]) == 2
        lines = capsys.readouterr().err.split("\n")
        (command,) = (line.strip() for line in lines if line.startswith("  ptxsim run"))
        assert main(shlex.split(command)[1:]) == 0

    def test_entry_to_choose(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (folder / "two.ptx").write_text(ADD + ".entry other()\n{\n    ret;\n}\n")
        assert main(["run", "two.ptx", "--grid", "2", "--arg", "n=u32:1"]) == 2
        assert "ptxsim run two.ptx --entry add --grid 2 --arg n=u32:1\n" in capsys.readouterr().err

    def test_nothing_to_run(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (folder / "k.ptx").write_text(".version 8.0\n.target sm_80\n.address_size 64\n")
        assert main(["run", "k.ptx"]) == 2
        assert "k.ptx has no entry" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    ["grid = ", "[args]\nn = 5", "speed = 1", "args = 3", "grid = [0]", "x" * 10,
     'a = ' + "[" * 5000, "grid = 1e99", '[args]\nn = "u33:1"', '[args]\nzz = "u32:1"'],
)  # fmt: skip
def test_bad_toml(folder: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "l.toml").write_text(text)
    assert main(["run", "add.ptx", "--args", "l.toml"]) == 2
    assert "l.toml: " in capsys.readouterr().err

"""Files are written whole or not at all, and what is no plain file is never replaced."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from ptxsim import UsageError
from ptxsim.cli.demo import KERNELS
from ptxsim.cli.files import find_ptx, read_text, save_npy, write_text


class TestWrite:
    def test_new_file(self, tmp_path: Path) -> None:
        write_text(str(tmp_path / "a.txt"), "one\n")
        assert (tmp_path / "a.txt").read_text() == "one\n"
        assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]

    def test_permissions_stay(self, tmp_path: Path) -> None:
        path = tmp_path / "a.txt"
        path.write_text("old")
        path.chmod(0o640)
        write_text(str(path), "new")
        assert path.read_text() == "new"
        assert stat.S_IMODE(path.stat().st_mode) == 0o640

    def test_links_stay_links(self, tmp_path: Path) -> None:
        (tmp_path / "real.txt").write_text("old")
        (tmp_path / "link.txt").symlink_to("real.txt")
        write_text(str(tmp_path / "link.txt"), "new")
        assert (tmp_path / "link.txt").is_symlink()
        assert (tmp_path / "real.txt").read_text() == "new"

    def test_a_pipe_is_written_and_not_replaced(self, tmp_path: Path) -> None:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        got: list[str] = []
        reader = threading.Thread(target=lambda: got.append(pipe.read_text()), daemon=True)
        reader.start()
        write_text(str(pipe), "text")
        reader.join(10)
        assert got == ["text"]
        assert stat.S_ISFIFO(pipe.stat().st_mode)

    def test_folder(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="Is a directory"):
            write_text(str(tmp_path), "text")

    @pytest.mark.parametrize(
        ("error", "seen"),
        [(OSError(28, "No space left"), UsageError), (KeyboardInterrupt(), KeyboardInterrupt)],
    )
    def test_failure_leaves_the_old_file(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        error: BaseException,
        seen: type[BaseException],
    ) -> None:
        path = tmp_path / "a.npy"
        path.write_bytes(b"old")

        def fail(file: IO[bytes], array: object) -> None:
            file.write(b"half of it")
            raise error

        monkeypatch.setattr("numpy.lib.format.write_array", fail)
        with pytest.raises(seen):
            save_npy(str(path), np.zeros(4))
        assert path.read_bytes() == b"old"
        assert [p.name for p in tmp_path.iterdir()] == ["a.npy"]


class TestRead:
    def test_name_and_text(self, tmp_path: Path) -> None:
        path = tmp_path / "k.ptx"
        path.write_bytes("// ä\r\n".encode())
        assert read_text(str(path)) == (str(path), "// ä\r\n")

    def test_folders_are_searched(self, tmp_path: Path) -> None:
        (tmp_path / "b").mkdir()
        for name in ("z.ptx", "a.ptx", "b/c.ptx", "notes.txt"):
            (tmp_path / name).write_text("")
        found = find_ptx([str(tmp_path), str(tmp_path / "a.ptx"), "-"])
        names = [os.path.relpath(p, tmp_path) if p != "-" else p for p in found]
        assert names == ["a.ptx", "b/c.ptx", "z.ptx", "-"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "saxpy.ptx").write_text(KERNELS["saxpy.ptx"][0])
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ptxsim", "run", str(tmp_path / "saxpy.ptx"), "--print", "y"],
            stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "ptxsim: cannot write the output: No space left on device\n"

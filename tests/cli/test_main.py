"""The command itself: start-up, usage errors, exit codes, the subcommands other than run."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from ptxsim.cli import main

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
GOOD = HEAD + ".visible .entry k()\n{\n    ret;\n}\n"
# no instruction of the ISA has this name
BAD = HEAD + ".visible .entry k()\n{\n    frobnicate.u32 %r1;\n}\n"


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.ptx"
    path.write_text(GOOD)
    return path


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.ptx"
    path.write_text(BAD)
    return path


class TestStart:
    def test_version_imports_nothing_heavy(self) -> None:
        code = (
            "import sys; from ptxsim.cli import main; code = main(['--version']);"
            "print(code, sorted({m.split('.')[0] for m in sys.modules}"
            " & {'lark', 'numpy', 'cuda'}))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout == "ptxsim 0.1.0\n0 []\n"

    def test_the_check_above_can_fail(self) -> None:
        code = "import sys, numpy; print(sorted({'lark', 'numpy'} & set(sys.modules)))"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout == "['numpy']\n"

    def test_module_is_runnable(self) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "ptxsim", "nothing"], capture_output=True, text=True
        )
        assert done.returncode == 2
        assert "unknown command 'nothing'" in done.stderr
        assert "Traceback" not in done.stderr

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ([], "usage: ptxsim"),
            (["rum"], "unknown command 'rum'; did you mean 'run'?"),
            (["run"], "the following arguments are required: FILE.ptx"),
            (["run", "k.ptx", "--no-such"], "unrecognized arguments: --no-such"),
            (["run", "absent.ptx"], "cannot read absent.ptx: No such file or directory"),
            (["check", "absent.ptx"], "cannot read absent.ptx: No such file or directory"),
            (["fmt", "absent.ptx"], "cannot read absent.ptx: No such file or directory"),
            (["dump", "absent.ptx"], "cannot read absent.ptx: No such file or directory"),
            (["dump", "k.ptx", "--stage=all"], "invalid choice: 'all'"),
        ],
    )
    def test_usage(
        self, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(words) == 2
        assert message in capsys.readouterr().err

    def test_help_lists_the_commands_there_are(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--help"]) == 0
        text = capsys.readouterr().out
        for name in ("run", "check", "fmt", "dump", "diff", "isa", "explain", "lower", "demo"):
            assert f"\n    {name} " in text

    def test_folder_and_bytes_are_no_files(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["run", str(tmp_path)]) == 2
        assert "Is a directory" in capsys.readouterr().err
        (tmp_path / "x.ptx").write_bytes(b"\xff\xfe")
        assert main(["run", str(tmp_path / "x.ptx")]) == 2
        assert "not UTF-8 text (byte 0)" in capsys.readouterr().err


class TestCheck:
    def test_good(self, good: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", str(good)]) == 0
        assert capsys.readouterr().out == "1 file checked: all good\n"

    def test_invalid_in_a_folder(
        self, good: Path, bad: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["check", str(good.parent), "--format", "concise"]) == 3
        out = capsys.readouterr().out.splitlines()
        assert out[0].startswith(f"{bad}:6:5: error: ")
        assert out[0].endswith("[PTX103]")
        assert out[-1] == "2 files checked: 1 invalid"

    def test_json(self, good: Path, bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", str(good), str(bad), "--format", "json"]) == 3
        first, second = json.loads(capsys.readouterr().out)["files"]
        assert (first["verdict"], first["target"], first["diagnostics"]) == ("clean", "sm_80", [])
        assert second["verdict"] == "static-error"
        assert [(d["code"], d["line"]) for d in second["diagnostics"]] == [("PTX103", 6)]

    def test_github(self, bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", str(bad), "--format", "github"]) == 3
        assert capsys.readouterr().out.startswith(f"::error file={bad},line=6,col=5,title=PTX103::")

    def test_empty_folder(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", str(tmp_path)]) == 2
        assert f"no *.ptx files in {tmp_path}" in capsys.readouterr().err

    def test_standard_input(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("sys.stdin", io.StringIO(BAD))
        assert main(["check", "-", "--format", "concise", "--quiet"]) == 3
        assert capsys.readouterr().out.startswith("<stdin>:6:5: error: ")

    def test_format_that_is_not_there(self, good: Path, capsys: pytest.CaptureFixture[str]) -> None:
        known = "full, concise, json, sarif, github, junit, sanitizer"
        for command in ("check", "run"):
            assert main([command, str(good), "--format", "nonsense"]) == 2
            assert f"format 'nonsense' is not available; use one of {known}" in (
                capsys.readouterr().err
            )

    def test_unknown_target(self, good: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", str(good), "--target", "sm_1"]) == 2
        assert "unknown target 'sm_1'" in capsys.readouterr().err


class TestFmtDumpIsa:
    def test_fmt_changes_once(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "k.ptx"
        path.write_text(GOOD.replace("    ret;", "ret ;"))
        assert main(["fmt", str(path), "--check"]) == 1
        assert capsys.readouterr().out == f"would change {path}\n"
        assert main(["fmt", str(path), "--diff"]) == 1
        assert "-ret ;" in capsys.readouterr().out.splitlines()
        assert main(["fmt", str(path), "-i"]) == 0
        assert main(["fmt", str(path), "--check"]) == 0

    def test_fmt_invalid_file_stays(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "k.ptx"
        path.write_text(HEAD + ".entry k( {\n")
        assert main(["fmt", str(path), "-i"]) == 3
        assert path.read_text() == HEAD + ".entry k( {\n"
        assert f"{path}:4:" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("stage", "part"),
        [("ast", "Instruction @"), ("module", "ret"), ("program", "k: "), ("cfg", "ret")],
    )
    def test_dump(
        self, stage: str, part: str, good: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["dump", str(good), f"--stage={stage}"]) == 0
        out = capsys.readouterr().out
        assert part in out
        assert out.endswith("\n")

    def test_dump_invalid(self, bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["dump", str(bad), "--stage=module"]) == 3
        assert "frobnicate" in capsys.readouterr().err

    def test_isa_table_and_one(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["isa"]) == 0
        assert capsys.readouterr().out.splitlines()[0].split()[0] == "name"
        assert main(["isa", "--json"]) == 0
        assert "add" in {row["name"] for row in json.loads(capsys.readouterr().out)}
        assert main(["isa", "bar.sync"]) == 0
        assert capsys.readouterr().out.startswith("bar: ")

    def test_isa_unknown(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["isa", "ldmatrx"]) == 2
        assert "no instruction 'ldmatrx'; did you mean 'ldmatrix'" in capsys.readouterr().err

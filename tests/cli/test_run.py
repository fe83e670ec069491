"""``ptxsim run`` and ``ptxsim demo``: whole launches through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ptxsim.cli import main
from ptxsim.cli.demo import KERNELS
from ptxsim.isa import registry

# saxpy over 250 elements with x = iota, y = ones, a = 2: y[i] = 2 i + 1
SAXPY = KERNELS["saxpy.ptx"][0]
EXPECTED = (2 * np.arange(250) + 1).astype(np.float32)


@pytest.fixture
def saxpy(tmp_path: Path) -> Path:
    path = tmp_path / "saxpy.ptx"
    path.write_text(SAXPY)
    return path


def bare(path: Path) -> Path:
    """The same file without its header."""
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith("//")))
    return path


class TestResults:
    def test_clean(self, saxpy: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", str(saxpy)]) == 0
        assert capsys.readouterr().out == f"{saxpy}: 'saxpy' on sm_80: clean\n"

    def test_out_holds_the_result(self, saxpy: Path, tmp_path: Path) -> None:
        assert main(["run", str(saxpy), "--out", f"y={tmp_path / 'y.npy'}"]) == 0
        got = np.load(tmp_path / "y.npy")
        assert got.dtype == np.float32
        assert np.array_equal(got, EXPECTED)
        # nothing but the file: no leftovers of its making
        assert sorted(p.name for p in tmp_path.iterdir()) == ["saxpy.ptx", "y.npy"]

    def test_expect_agrees(self, saxpy: Path, tmp_path: Path) -> None:
        np.save(tmp_path / "e.npy", EXPECTED)
        assert main(["run", str(saxpy), "--expect", f"y={tmp_path / 'e.npy'}"]) == 0

    def test_mismatch(
        self, saxpy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        wrong = EXPECTED.copy()
        wrong[[7, 9]] = np.nextafter(wrong[[7, 9]], np.float32(np.inf))
        np.save(tmp_path / "e.npy", wrong)
        words = ["run", str(saxpy), "--expect", f"y={tmp_path / 'e.npy'}", "--format", "json"]
        assert main(words) == 1
        report = json.loads(capsys.readouterr().out)
        assert report["verdict"] == "mismatch"
        (finding,) = report["findings"]
        # 15.0 is 0x41700000; the next float has the next pattern
        assert finding["count"] == 2
        assert finding["values"] == {
            "buffer": "y",
            "index": 7,
            "got": "15 (0x41700000)",
            "expected": "15.000001 (0x41700001)",
            "ulp": 1,
        }

    def test_out_line_of_the_header(
        self, saxpy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        saxpy.write_text("// out: y = e.npy\n" + SAXPY)
        np.save(tmp_path / "e.npy", EXPECTED)
        assert main(["run", str(saxpy)]) == 0
        np.save(tmp_path / "e.npy", EXPECTED + np.float32(1))
        assert main(["run", str(saxpy)]) == 1
        assert "250 of 250 elements of 'y' differ" in capsys.readouterr().out

    def test_options_win(self, saxpy: Path, capsys: pytest.CaptureFixture[str]) -> None:
        words = ["run", str(saxpy), "--grid", "1", "--block", "4", "--arg", "a=f32:10"]
        assert main([*words, "--print", "y", "--quiet"]) == 0
        # only 4 threads run: 10 i + 1, then untouched ones
        assert capsys.readouterr().out.splitlines()[:2] == [
            "y f32[250]",
            "    0:  1 11 21 31  1  1  1  1",
        ]

    def test_json_report(
        self, saxpy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["run", str(saxpy), "--json", str(tmp_path / "r.json")]) == 0
        report = json.loads((tmp_path / "r.json").read_text())
        assert list(report) == [
            "ptxsim", "file", "entry", "target", "verdict", "findings", "outputs", "counters",
        ]  # fmt: skip
        assert report["outputs"]["y"]["dtype"] == "f32"
        assert report["outputs"]["y"]["shape"] == [250]
        assert "clean" in capsys.readouterr().out
        assert main(["run", str(saxpy), "--json", "-"]) == 0
        assert json.loads(capsys.readouterr().out) == report

    def test_stats(self, saxpy: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", str(saxpy), "--stats"]) == 0
        assert "thread_instructions" in capsys.readouterr().out

    def test_fault_is_shown(self, saxpy: Path, capsys: pytest.CaptureFixture[str]) -> None:
        # x has 2 elements, 250 threads read it
        assert main(["run", str(saxpy), "--arg", "x=f32[2]:iota"]) == 1
        out = capsys.readouterr().out
        assert f"{saxpy}:30:5: error: oob-global: " in out
        assert "   30 |     ld.global.f32   %f0, [%rd3];" in out
        assert "cta (0,0,0)" in out

    def test_invalid_ptx(self, saxpy: Path, capsys: pytest.CaptureFixture[str]) -> None:
        saxpy.write_text(SAXPY.replace("setp.ge.u32", "setq.ge.u32"))
        assert main(["run", str(saxpy)]) == 3
        assert "[PTX103]" in capsys.readouterr().err
        assert main(["run", str(saxpy), "--format", "json"]) == 3
        report = json.loads(capsys.readouterr().out)
        assert (report["verdict"], report["findings"][0]["class"]) == ("static-error",) * 2


class TestArguments:
    def test_by_position_and_from_toml(
        self, saxpy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "l.toml").write_text(
            'grid = [1, 1]\nblock = 32\n[args]\nx = "f32[4]:iota"\ny = "f32[4]:ones"\n'
            'a = "f32:3"\nn = "u32:4"\n'
        )
        words = ["run", str(bare(saxpy)), "--args", str(tmp_path / "l.toml"), "--quiet"]
        assert main([*words, "--print", "y"]) == 0
        assert capsys.readouterr().out == "y f32[4]\n  0:  1  4  7 10\n"
        assert main([*words, "--arg", "f32[4]:ones", "--print", "y"]) == 0
        assert capsys.readouterr().out == "y f32[4]\n  0: 4 4 4 4\n"

    def test_unknown_launch(self, saxpy: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", str(bare(saxpy)), "--grid", "2"]) == 2
        err = capsys.readouterr().err
        assert "missing: block; arguments x, y, a, n" in err
        assert "  saxpy(.u64 x, .u64 y, .f32 a, .u32 n)" in err
        assert (
            f"  ptxsim run {saxpy} --entry saxpy --grid 2 --block 32 --arg 'x=u32[1024]:zeros'"
            " --arg 'y=u32[1024]:zeros' --arg a=f32:1 --arg n=u32:1"
        ) in err

    def test_several_entries(self, saxpy: Path, capsys: pytest.CaptureFixture[str]) -> None:
        saxpy.write_text(SAXPY + ".visible .entry other()\n{\n    ret;\n}\n")
        assert main(["run", str(saxpy)]) == 2
        err = capsys.readouterr().err
        assert "has 2 entries" in err
        assert "  other()" in err
        assert main(["run", str(saxpy), "--entry", "saxpy"]) == 0
        assert main(["run", str(saxpy), "--entry", "other"]) == 2
        assert "'other' has only 0 parameters" in capsys.readouterr().err
        assert main(["run", str(saxpy), "--entry", "nix"]) == 2
        assert "no entry 'nix'" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["--arg", "z=f32[4]:iota"], "no parameter 'z'; there are: x, y, a, n"),
            (["--arg", "a=f64:1"], "parameter 'a' is .f32 with 4 bytes, f64 has 8"),
            (["--arg", "x=f32[9999999999]:iota"], "at most 2147483648 are allowed"),
            (["--arg", "a=f32:"], "the initial value is missing"),
            (["--arg", "n=u8:256"], "256 does not fit u8"),
            (["--arg", "x=f32[4]:@absent.npy"], "cannot read absent.npy"),
            (["--arg", "a=f32:1", "--arg", "a=f32:2"], "'a' is given twice"),
            (["--grid", "0"], "--grid is X[,Y[,Z]] with positive numbers, not '0'"),
            (["--smem", "-1"], "--smem is a number that is not negative, not '-1'"),
            (["--smem", "many"], "--smem is a number that is not negative"),
            (["--out", "y"], "--out is NAME=FILE.npy, not 'y'"),
            (["--out", "n=n.npy"], "no buffer 'n'; there are: x, y"),
            (["--out", "y=absent/y.npy"], "cannot write absent/y.npy: No such file"),
            (["--print", "z"], "no buffer 'z'"),
            (["--expect", "y=absent.npy"], "cannot read absent.npy"),
            (["--tool", "lint"], "unknown tool 'lint'"),
            (["--schedule", "fair"], "unknown schedule 'fair'"),
            (["--jobs", "x"], "--jobs is a number"),
            (["--backend", "gpu", "--schedules", "1"], "--schedules needs the simulator"),
            (["--backend", "tpu"], "backend 'tpu' is unknown"),
            (["--target", "sm_0"], "unknown target 'sm_0'"),
            (["--args", "absent.toml"], "cannot read absent.toml"),
            (["--format", "json", "--json", "-"], "would write the report twice"),
        ],
    )
    def test_usage(
        self, words: list[str], message: str, saxpy: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["run", str(saxpy), *words]) == 2
        captured = capsys.readouterr()
        assert message in captured.err
        assert "Traceback" not in captured.err

    def test_file_of_the_wrong_type(
        self, saxpy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        np.save(tmp_path / "e.npy", EXPECTED.astype(np.float64))
        assert main(["run", str(saxpy), "--expect", f"y={tmp_path / 'e.npy'}"]) == 2
        assert "holds float64; f32 needs float32" in capsys.readouterr().err


class TestDemo:
    @pytest.mark.parametrize("name", KERNELS)
    def test_verdict(self, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        text, verdict = KERNELS[name]
        if "ldmatrix" in text and "ldmatrix" not in registry:
            pytest.skip("ldmatrix has no record yet")
        (tmp_path / name).write_text(text)
        main(["run", str(tmp_path / name), "--format", "json"])
        assert json.loads(capsys.readouterr().out)["verdict"] == verdict

    def test_existing_files_are_kept(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "saxpy.ptx").write_text("mine")
        assert main(["demo", str(tmp_path)]) == 1
        assert (tmp_path / "saxpy.ptx").read_text() == "mine"
        out = capsys.readouterr().out
        assert f"keeping {tmp_path / 'saxpy.ptx'}, which is there already" in out
        assert f"wrote {tmp_path / 'shuffle-in-branch.ptx'}" in out

    def test_folder_that_is_a_file(self, saxpy: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["demo", str(saxpy)]) == 2
        assert f"cannot make {saxpy}" in capsys.readouterr().err

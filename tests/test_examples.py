"""The examples run through the command line and answer what examples/README.md says."""

from __future__ import annotations

import json
import re
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest

from ptxsim.cli import main

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
README = (EXAMPLES / "README.md").read_text()
ROW = re.compile(r"^\| `(\w+\.ptx)` \| .* \| `([\w-]+)` \| (\d) \|$", re.MULTILINE)
# file, verdict and exit code of each row of the table
ROWS = [(name, verdict, int(code)) for name, verdict, code in ROW.findall(README)]
CLEAN = [name for name, verdict, _ in ROWS if verdict == "clean"]


def run_json(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, object]]:
    """Exit code and JSON report of ``ptxsim run``."""
    code = main(["run", str(path), "--json", "-"])
    out = capsys.readouterr().out
    return code, json.loads(out[out.index("{") : out.rindex("}") + 1])


def test_table_lists_every_file() -> None:
    assert sorted(name for name, _, _ in ROWS) == sorted(p.name for p in EXAMPLES.glob("*.ptx"))


@pytest.mark.parametrize("source", sorted(EXAMPLES.glob("*.cu")), ids=lambda p: p.name)
def test_source_has_its_ptx_with_one_entry(source: Path) -> None:
    assert source.with_suffix(".ptx").read_text().count(".entry") == 1


@pytest.mark.parametrize(("name", "verdict", "code"), ROWS)
def test_verdict(name: str, verdict: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    got, report = run_json(EXAMPLES / name, capsys)
    assert (got, report["verdict"]) == (code, verdict)


@pytest.mark.parametrize("name", CLEAN)
def test_expected_output_is_checked(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One flipped bit in an expected output is a mismatch: the comparison can fail."""
    expected = re.findall(r"// out: .*= (\S+)", (EXAMPLES / name).read_text())
    assert expected
    shutil.copy(EXAMPLES / name, tmp_path)
    for file in expected:
        array = np.load(EXAMPLES / file)
        array.reshape(-1).view(np.uint8)[-1] ^= 1
        np.save(tmp_path / file, array)
    code, report = run_json(tmp_path / name, capsys)
    assert (code, report["verdict"]) == (1, "mismatch")


def test_faulty_example_answers_what_the_readme_quotes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(EXAMPLES.parent)
    assert main(["run", "examples/guard_off_by_one.ptx"]) == 1
    quoted = README.split("```text\n")[1].split("```")[0]
    captured = capsys.readouterr()
    assert captured.out + captured.err == quoted


def test_python_example(capsys: pytest.CaptureFixture[str]) -> None:
    # of the 20 instructions, the 7 up to the branch and ret run in all 1024 threads, 12 in 1000
    runpy.run_path(str(EXAMPLES / "saxpy.py"))
    assert capsys.readouterr().out == f"True clean {1024 * 8 + 1000 * 12}\n"


def test_tile_gemm(capsys: pytest.CaptureFixture[str]) -> None:
    # 64 x 64 halves are 512 chunks of 16 bytes, 64 x 32 are 256; A has 4 x 4 tiles of one x4, B and
    # D 4 x 4 tiles of half an x4.  A matrix without conflict is one wavefront.
    module = runpy.run_path(str(EXAMPLES / "tile_gemm.py"))
    module["main"]()
    assert capsys.readouterr().out.splitlines() == [
        "16 x cp_async of 16 bytes a thread",
        " 8 x cp_async of 16 bytes a thread",
        "16 x ldmatrix.sync.aligned.m8n8.x4.shared.b16, 64 wavefronts",
        " 8 x ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16, 32 wavefronts",
        " 8 x stmatrix.sync.aligned.m8n8.x4.shared.b16, 32 wavefronts",
        " 8 x vec of 16 bytes a thread",
        "equal",
    ]

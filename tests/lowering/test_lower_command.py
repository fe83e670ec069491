"""The command ``ptxsim lower copy``: what it prints, draws and refuses, and README's use of it."""

from __future__ import annotations

import ast
import io
import re
import runpy
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from lowering import lower_copy
from lowering.copy.explain import explain
from ptxsim.cli import main

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"
X2 = ["--register", "S[(8,4,2,2):(4@laneid,1@laneid,2,1)]"]
X2 += ["--shared", "swizzle(3,1,3) o S[(8,4,2,2):(16,2,8,1)]"]
#: rows of 40 bytes: no multiple of 16
PITCH_20 = [*X2[:3], "S[(8,4,2,2):(20,2,8,1)]"]

#: three warps
CTA = ["--scope", "cta", "--threads", "96", "--dtype", "bf16", "--shared", "S[(24,8):(8,1)]"]
CTA += ["--register", "S[(3,8,4,2):(1@warpid,4@laneid,1@laneid,1)]"]


def _lower(*words: str) -> int:
    return main(["lower", "copy", *words])


def _run(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> int:
    """``ptxsim run -`` with a text on standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    return main(["run", "-", *more, "--out", f"dst={folder / 'dst.npy'}"])


# --- the kernel -----------------------------------------------------------------------------------


def test_kernel_is_the_golden_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert _lower(*X2) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ((GOLDEN / "command_x2_swizzled.ptx").read_text(), "")


@pytest.mark.parametrize("direction", ["ld", "st"])
@pytest.mark.parametrize(
    ("options", "count"),
    [
        (X2, 128),
        (PITCH_20, 128),  # falls back to the variant reg
        (["--faithful", *X2], 128),
        (
            CTA,
            192,
        ),
    ],
)
def test_kernel_runs_with_its_header_and_dst_equals_src(
    options: list[str],
    count: int,
    direction: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _lower(*options, "--direction", direction) == 0
    text = capsys.readouterr().out
    assert _run(text, tmp_path, monkeypatch) == 0, capsys.readouterr().out
    assert np.load(tmp_path / "dst.npy").astype(int).tolist() == list(range(count))


def test_a_wrong_address_shows_in_dst(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """That dst equals src is no matter of course."""
    assert _lower(*X2) == 0
    text = capsys.readouterr().out
    wrong = re.sub(r"(ldmatrix.*\{)(%r\d+), (%r\d+)\}", r"\1\3, \2}", text)
    assert wrong != text
    assert _run(wrong, tmp_path, monkeypatch) == 0
    assert np.load(tmp_path / "dst.npy").astype(int).tolist() != list(range(128))


def test_body_only_is_the_fragment(capsys: pytest.CaptureFixture[str]) -> None:
    assert _lower(*X2, "--body-only") == 0
    out = capsys.readouterr().out
    assert out.rstrip("\n") == lower_copy(X2[1], X2[3]).body().rstrip("\n")
    assert ".entry" not in out and "ldmatrix.sync.aligned.m8n8.x2.shared.b16" in out


def test_module_lowering_is_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lowering", "copy", *X2], cwd=ROOT, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout == (GOLDEN / "command_x2_swizzled.ptx").read_text()


# --- explain --------------------------------------------------------------------------------------

#: Pitch 32 halves: 4 ways for each of 4 matrices (gcd(32 / 8, 8) = 4).
_EXPLAINED = """\
ldstmatrix: 256 elements of f16, shared memory to registers, warp of 32 threads, sm_90

  register  S[(8,4,4,2):(4@laneid,1@laneid,2,1)]
  shared    S[(8,4,4,2):(32,2,8,1)]

regrouped by warps 1, rows 8, pairs 4, outer 1, matrices 4, halves 2
  register  S[(1,8,4,1,4,2):(32@laneid,4@laneid,1@laneid,1@laneid,2,1)]
  shared    S[(1,8,4,1,4,2):(256,32,2,2,8,1)]
row pitch p = 32 elements = 64 bytes
trans: no

1 instruction a warp, byte address by lane t:
  1. ldmatrix.sync.aligned.m8n8.x4.shared.b16  {r0, r1, r2, r3}
     64*(t & 7) + 16*(t >> 3 & 3)
     x4: 4 matrices, 16 wavefronts, ideal 4 (4-way bank conflict)

proved by 2 simulated runs with tagged bytes; shared array of 512 bytes, 4 register words

shared layouts without bank conflicts:
  swizzle(3,2,3) o S[(8,4,4,2):(32,2,8,1)]  x4, conflict-free, no padding
  S[(8,4,4,2):(40,2,8,1)]                   x4, conflict-free, 112 bytes of padding
  S[(8,4,4,2):(1,16,64,8)]                  x4.trans, conflict-free, no padding
"""


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    layouts = ["S[(8,4,4,2):(4@laneid,1@laneid,2,1)]", "S[(8,4,4,2):(32,2,8,1)]"]
    assert _lower("--register", layouts[0], "--shared", layouts[1], "--explain") == 0
    assert capsys.readouterr().out == _EXPLAINED


def test_explain_of_a_swizzle_in_two_instructions() -> None:
    text = explain(
        lower_copy(
            "S[(8,4,8,2):(4@laneid,1@laneid,2,1)]", "swizzle(3,3,3) o S[(8,4,8,2):(64,2,8,1)]"
        )
    )
    assert "row pitch p = 64 elements = 128 bytes, before the swizzle\n" in text
    assert (
        "2. ldmatrix.sync.aligned.m8n8.x4.shared.b16  {r4, r5, r6, r7}\n     address 1 ^ 64" in text
    )
    assert text.count("x4: 4 matrices, 4 wavefronts, ideal 4\n") == 2
    assert "shared layouts" not in text


def test_explain_of_the_fallback_says_why_and_what_would_fit() -> None:
    text = explain(lower_copy(PITCH_20[1], PITCH_20[3]))
    assert text.startswith("reg: 128 elements of f16")
    assert "  ldstmatrix  ALIGN: row 1 of word 0 of warp 0 starts at byte 40, which is 8" in text
    assert "\nshared layouts that ldstmatrix would take:\n" in text
    assert "  S[(8,4,2,2):(24,2,8,1)]                   x2, conflict-free, 112 bytes" in text
    chosen = explain(lower_copy(X2[1], X2[3], variant="reg"))
    assert "shared layouts" not in chosen  # nobody asked for matrix instructions


def test_explain_without_a_common_structure_and_without_a_proof() -> None:
    # two words of 32-bit elements; rows of 48 bytes
    text = explain(
        lower_copy("S[(8,2,4):(4@laneid,1,1@laneid)]", "S[(8,8):(12,1)]", dtype="f32", prove=False)
    )
    assert "no common structure of both layouts: each register word is its own matrix" in text
    assert "row pitch p = 48 bytes\n" in text
    assert "\nnot proved; shared array of 368 bytes, 2 register words\n" in text


# --- declines and usage ---------------------------------------------------------------------------


def test_decline_is_a_table_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert _lower(*PITCH_20, "--variant", "ldstmatrix") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "no variant lowers the copy:\n"
        "  ldstmatrix  ALIGN: row 1 of word 0 of warp 0 starts at byte 40, which is 8 past a"
        " multiple of 16 (rows of 16 bytes start at multiples of 16 bytes: pad the pitch, or move"
        " the tile)\n"
    )
    assert _lower(*PITCH_20, "--variant", "ldstmatrix", "--explain") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[3] == "these shared layouts would fit:"
    assert err.splitlines()[5].split() == (
        "S[(8,4,2,2):(24,2,8,1)] x2, conflict-free, 112 bytes of padding".split()
    )


def test_decline_that_no_layout_cures(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--direction", "st", "--target", "sm_80", "--variant", "ldstmatrix", "--explain"]
    assert _lower(*X2, *words) == 1
    err = capsys.readouterr().err
    assert "ARCH: stmatrix needs sm_90, the target is sm_80" in err
    assert "would fit" not in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dtype", "f17"], "--dtype: no 'f17'; did you mean"),
        (["--scope", "block"], "--scope: no 'block'; there are: warp, warpgroup, cta"),
        (["--direction", "xx"], "--direction: no 'xx'; there are: ld, st"),
        (["--target", "sm_9"], "--target: no 'sm_9'; did you mean"),
        (["--variant", "x"], "--variant: no 'x'; there are: ldstmatrix, reg"),
        (["--threads", "64"], "--threads is the size of a CTA"),
        (["--scope", "cta"], "--scope cta needs the number of threads"),
        (["--scope", "cta", "--threads", "40"], "--threads 40: a CTA has 32 to 1024 threads"),
        (["--align", "24"], "--align 24: a power of two"),
        (["--align", "0"], "--align 0: a power of two"),
        (["--explain", "--body-only"], "not allowed with argument"),
    ],
)
def test_usage(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _lower(*X2, *words) == 2
    out, err = capsys.readouterr()
    assert out == "" and message in err


def test_layout_text_has_a_caret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "copy.svg"
    words = ["--register", "S[(8,4):(4@laneid,1@laned)]", "--shared", X2[3], "--svg", str(picture)]
    assert _lower(*words) == 2
    out, err = capsys.readouterr()
    assert out == "" and not picture.exists()
    assert err == (
        "ptxsim: --register: layout text, column 21: unknown axis 'laned'; did you mean"
        " 'laneid'?\n  S[(8,4):(4@laneid,1@laned)]\n" + " " * 22 + "^\n"
    )


def test_layouts_that_make_no_copy(capsys: pytest.CaptureFixture[str]) -> None:
    assert _lower("--register", X2[1], "--shared", "S[4:1]") == 1
    assert "EXTENTS: the register tile has 128 elements, the shared" in capsys.readouterr().err


def test_without_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.import_module", _missing)
    assert _lower(*X2) == 2
    assert "the package 'lowering' is not installed" in capsys.readouterr().err


def _missing(name: str) -> None:
    raise ModuleNotFoundError(f"No module named '{name}'", name="lowering")


def test_only_the_command_knows_the_package() -> None:
    """ptxsim never imports lowering; its one command looks it up by name, in one place."""
    mentions = []
    for path in sorted((ROOT / "ptxsim").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not any(a.name.split(".")[0] == "lowering" for a in node.names), path
            if isinstance(node, ast.ImportFrom) and not node.level:
                assert (node.module or "").split(".")[0] != "lowering", path
            if isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
                mentions.append((path.name, ast.unparse(node)))
    named = [m for m in mentions if "lowering" in m[1]]
    assert named == [("lower.py", "importlib.import_module('lowering.cli')")]


# --- picture --------------------------------------------------------------------------------------

_SVG = "{http://www.w3.org/2000/svg}"


def _cells(path: Path) -> dict[str, list[tuple[int, int]]]:
    """Lane and register of the cells of each tile, in order of rows and columns."""
    root = ElementTree.parse(path).getroot()
    assert root.tag == f"{_SVG}svg"
    return {
        tile.attrib["data-name"]: [
            (int(c.attrib["data-lane"]), int(c.attrib["data-register"]))
            for c in tile.iter(f"{_SVG}g")
            if c.attrib.get("class") == "cell"
        ]
        for tile in root.iter(f"{_SVG}g")
        if tile.attrib.get("class") == "tile"
    }


def test_picture_of_a_swizzle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "copy.svg"
    assert _lower(*X2, "--svg", str(picture)) == 0
    assert capsys.readouterr().out == (GOLDEN / "command_x2_swizzled.ptx").read_text()
    tiles = _cells(picture)
    # row i of the tile: lanes 4i..4i+3 with word 0, then with word 1
    rows = [[(4 * i + c % 4, c // 4) for c in range(8)] for i in range(8)]
    assert tiles["Register tile"] == [cell for row in rows for cell in row]
    # (3,1,3) exchanges the halves of rows 4..7, which lie from byte 128 on
    swapped = [row if i < 4 else row[4:] + row[:4] for i, row in enumerate(rows)]
    assert tiles["Shared tile"] == [cell for row in swapped for cell in row]


def test_picture_of_a_transposition_in_halves(tmp_path: Path) -> None:
    picture = tmp_path / "copy.svg"
    register, shared = "S[(2,4,2,8):(2,1@laneid,1,4@laneid)]", "S[(16,8):(8,1)]"
    assert _lower("--register", register, "--shared", shared, "--svg", str(picture)) == 0
    tiles = _cells(picture)
    # B of a product, 16 x 8: rows 2t and 2t + 1 of column g are one word of lane 4g + t
    words = [(4 * g + t, w) for w in (0, 1) for t in range(4) for g in range(8)]
    assert tiles["Register tile"] == words
    halves = [(4 * g + k // 2 % 4, k // 8) for k in range(16) for g in range(8)]
    assert tiles["Shared tile"] == halves


def test_picture_alone_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert _lower(*X2, "--svg", "-") == 0
    out = capsys.readouterr().out
    assert out.startswith("<svg ") and out.endswith("</svg>\n") and ".entry" not in out


@pytest.mark.parametrize(
    ("register", "shared", "more", "cells"),
    [
        # warp 0 of 4 alone: 8 rows of 8 words
        ("S[(4,8,4,2,2):(32@tid_in_wg,4@tid_in_wg,1@tid_in_wg,2,1)]",
         "S[(32,16):(16,1)]", ["--scope", "warpgroup"], (64, 64)),
        # elements of 8 bytes are one cell of the tile and two words of memory
        ("S[(32,2):(1@laneid,1)]", "S[(32,2):(2,1)]", ["--dtype", "f64"], (64, 128)),
        # bytes, four to a word
        ("S[(32,16):(1@laneid,1)]", "S[(32,16):(16,1)]", ["--dtype", "u8"], (128, 128)),
# half of the lanes, and gaps between the words
        ("S[(4,4,2):(4@laneid,1@laneid,2)]", "S[(16,2):(1,16)]", ["--dtype", "u32"], (32, 32)),
    ],
)  # fmt: skip
def test_pictures_of_other_sizes(
    register: str, shared: str, more: list[str], cells: tuple[int, int], tmp_path: Path
) -> None:
    picture = tmp_path / "copy.svg"
    assert _lower("--register", register, "--shared", shared, *more, "--svg", str(picture)) == 0
    tiles = _cells(picture)
    assert (len(tiles["Register tile"]), len(tiles["Shared tile"])) == cells


def test_decline_draws_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "copy.svg"
    assert _lower(*PITCH_20, "--variant", "ldstmatrix", "--svg", str(picture)) == 1
    assert not picture.exists() and capsys.readouterr().out == ""
    assert _lower(*X2, "--svg", str(tmp_path / "missing" / "copy.svg")) == 2
    out, err = capsys.readouterr()
    assert out == "" and "cannot write" in err


# --- README ---------------------------------------------------------------------------------------


def _section() -> str:
    return (ROOT / "README.md").read_text().split("\n## Lowering\n")[1].split("\n## ")[0]


def test_commands_of_readme_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = _section().split("```sh\n")[1].split("```")[0].replace("\\\n", "")
    first, _, second = (part.strip() for part in shell.partition("|"))
    words = shlex.split(first)
    assert words[0] == "ptxsim" and main(words[1:]) == 0
    text = capsys.readouterr().out
    assert shlex.split(second) == ["ptxsim", "run", "-"]
    assert _run(text, tmp_path, monkeypatch) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("'tile_copy' on sm_90: clean")
    count = re.search(r"arg: +dst b16\[(\d+)\]", text)
    assert count is not None
    assert np.load(tmp_path / "dst.npy").astype(int).tolist() == list(range(int(count[1])))


def test_python_of_readme_says_what_it_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = _section().split("```python\n")[1].split("```")[0]
    file = tmp_path / "readme.py"
    file.write_text(code)
    runpy.run_path(str(file))
    expected = re.findall(r"^# (.*)$", code, re.MULTILINE)
    assert expected and capsys.readouterr().out.splitlines() == expected

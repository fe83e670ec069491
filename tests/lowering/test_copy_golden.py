"""Whole kernels of representative copies, as text; ``PTXSIM_UPDATE_GOLDEN=1`` writes them anew."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
from kernel_judge import judged
from test_copy_upstream import WORKED
from tile_pairs import WIDTH, Pair, digits, lowered

import ptxsim

GOLDEN = Path(__file__).parent / "golden"
UPDATE = os.environ.get("PTXSIM_UPDATE_GOLDEN") == "1"

#: the rows of the table of worked expectations, copies by each thread, and the shapes for bytes
PAIRS: dict[str, Pair] = {
    **{f"copy_{name.replace(' ', '_')}": row[0] for name, row in WORKED.items()},
    "copy_reg_vectors": Pair(digits((32, 1, "laneid", 12), (8, 1, "m", 1))),
    "copy_reg_halves": Pair(
        digits((8, 4, "laneid", 16), (4, 1, "laneid", 2), (2, 1, "m", 8), (2, 2, "m", 1)),
        direction="st",
    ),
    "copy_reg_some_lanes": Pair(digits((16, 1, "laneid", 4), (4, 1, "m", 1)), "f32"),
    "copy_mixed_widths": Pair(
        digits((8, 4, "laneid", 56), (4, 1, "laneid", 2), (7, 2, "m", 8), (2, 1, "m", 1))
    ),
    "copy_bytes_m16n16": Pair(
        digits((8, 4, "laneid", 1), (4, 1, "laneid", 64), (2, 4, "m", 8), (4, 1, "m", 16)),
        "u8", target="sm_120a",
    ),
    "copy_bytes_m16n8": Pair(
        digits((2, 4, "m", 128), (8, 4, "laneid", 1), (2, 2, "m", 8), (4, 1, "laneid", 32),
               (2, 1, "m", 16)),
        "u8", target="sm_120a", direction="st",
    ),
}  # fmt: skip


def difference(name: str, text: str) -> str:
    """Where a kernel differs from its golden file; empty if nowhere."""
    path = GOLDEN / f"{name}.ptx"
    if UPDATE:
        path.write_text(text)
    if not path.exists():
        return f"{path.name} is missing"
    kept = path.read_text().splitlines()
    for number, (a, b) in enumerate(zip(kept, text.splitlines(), strict=False), 1):
        if a != b:
            return f"{path.name}:{number}: {a.strip()!r} is now {b.strip()!r}"
    return "" if kept == text.splitlines() else f"{path.name} has another length"


@pytest.mark.parametrize("name", PAIRS)
def test_text(name: str) -> None:
    assert difference(name, lowered(PAIRS[name]).kernel(name).text()) == ""


@pytest.mark.parametrize("name", PAIRS)
def test_file_runs(name: str) -> None:
    """The file itself assembles, runs without a finding, and copies."""
    text = (GOLDEN / f"{name}.ptx").read_text()
    (count,) = re.findall(r"^// arg: +src b\d+\[(\d+)\]", text, re.MULTILINE)
    (threads,) = re.findall(r"^// launch: grid=1 block=(\d+)$", text, re.MULTILINE)
    size = int(count) * WIDTH[PAIRS[name].dtype]
    src = np.frombuffer(np.random.default_rng(1).bytes(size), np.uint8).copy()
    dst = np.zeros(size, np.uint8)
    report = ptxsim.assemble(text).kernel(name).launch(grid=1, block=int(threads), args=[src, dst])
    assert report.clean and np.array_equal(src, dst)


def test_every_file_has_a_pair() -> None:
    assert {p.stem for p in GOLDEN.glob("copy_*.ptx")} == set(PAIRS)


def test_a_difference_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_copy_golden.UPDATE", False)
    text = lowered(PAIRS["copy_x2"]).kernel("copy_x2").text()
    told = difference("copy_x2", text.replace(".x2.", ".x4."))
    assert told.startswith("copy_x2.ptx:") and ".x4." in told
    assert difference("copy_x2", text + "\n") == "copy_x2.ptx has another length"
    assert difference("copy_of_nothing", text) == "copy_of_nothing.ptx is missing"


@pytest.mark.ptxas
class TestPtxas:
    """NVIDIA's assembler takes every file for its target."""

    @pytest.mark.parametrize("name", PAIRS)
    def test_accepts(self, name: str, tmp_path: Path) -> None:
        assert judged((GOLDEN / f"{name}.ptx").read_text(), tmp_path) == ""

    def test_refuses_another_target(self, tmp_path: Path) -> None:
        text = (GOLDEN / "copy_bytes_m16n16.ptx").read_text()
        assert "m16n16" in judged(text.replace("sm_120a", "sm_120"), tmp_path)

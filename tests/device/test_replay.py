"""Recorded answers of GPUs against the simulator; ``recorded/README.md`` says which there are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ptxsim
from ptxsim.agreement import simulator
from ptxsim.agreement.recording import from_json
from ptxsim.cli.replay import replay
from tests.device.jobs import file_jobs, run_job, settled
from tests.device.record import entry_of, read_entries
from tests.device.sides import bits_changed
from tests.device.sweeps import SWEEPS, answer_from_json, answer_to_json, ask, compare
from tests.numerics.tensor_core_vectors import outputs

RECORDED = Path(__file__).parent / "recorded"


def entries(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """All recordings below a folder, with a name for each."""
    for path in sorted(folder.rglob("*.jsonl")):
        for tree in read_entries(path):
            yield f"{path.relative_to(folder)}:{tree['job']}", tree


def judge(name: str, tree: dict[str, Any]) -> list[str]:
    """What the simulator answers differently."""
    if "ptxsim_sweep" in tree:
        wrong = compare(answer_from_json(tree, name))
        return [f"{wrong} results beyond the tolerance"] if wrong else []
    return [f.message for f in replay(from_json(tree.get("recording"), name), name).findings
            if f.severity.value == "error"]  # fmt: skip


@pytest.mark.parametrize(("name", "tree"), [pytest.param(n, t, id=n) for n, t in entries(RECORDED)])
def test_the_simulator_answers_as_recorded(name: str, tree: dict[str, Any]) -> None:
    assert judge(name, tree) == []


def test_the_recorded_evidence_there_is() -> None:
    """Without recordings of our own the published tensor-core vectors are all there is.

    They are run by tests/isa/test_tensor_core_vectors.py and by tests/numerics; their number is
    that of the outputs in the file.
    """
    told = (RECORDED / "README.md").read_text()
    assert "tests/data/tensorcore-vectors.json" in told
    assert sum(count for _, count in outputs()) == 77_248
    assert "77,248" in told
    if not list(entries(RECORDED)):
        assert "no recordings of our own yet" in told


class TestTheJudgeCanFail:
    def tree(self, **changes: Any) -> dict[str, Any]:
        job = settled(next(iter(file_jobs())))
        assert job is not None

        def change(bits: Any) -> None:
            bits[0] ^= changes.get("bit", 0)

        return json.loads(
            json.dumps(entry_of(job, run_job(job, bits_changed(1, change), "2026-01-02")))
        )

    def test_right(self) -> None:
        assert judge("r", self.tree()) == []

    def test_one_bit(self) -> None:
        (message,) = judge("r", self.tree(bit=1))
        assert message.startswith("1 of 128 elements of 'out_p' differ from the recording")

    def test_sweep(self) -> None:
        def change(bits: Any) -> None:
            bits[7] += 9

        good = answer_to_json(ask(SWEEPS[0], simulator, "2026-01-02", 256))
        wrong = answer_to_json(ask(SWEEPS[0], bits_changed(0, change), "2026-01-02", 256))
        assert judge("s", good) == []
        assert judge("s", wrong) == ["1 results beyond the tolerance"]

    def test_damaged(self) -> None:
        tree = self.tree()
        tree["recording"]["outputs"]["out_p"]["data"] = ""
        with pytest.raises(ptxsim.UsageError, match=r"r: outputs\.out_p"):
            judge("r", tree)

"""``--schedules``: what further schedules show, and with which schedule it can be seen again."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from ptxsim.cli import main
from ptxsim.cli.elements import ELEMENT_TYPES
from ptxsim.cli.exploration import differs_by_schedule, further_schedules

# 64 threads draw tickets; in a kernel {last} uses the ticket %v, and %first says whether this is
# warp 1 and came before warp 0
TICKETS = """\
// launch: grid=1 block=64
// arg: next u32[1] = zeros
// arg: y u32[64] = zeros
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 next, .param .u64 y)
{{
    .reg .b32 %t, %v, %w, %u;
    .reg .b64 %n, %p, %o;
    .reg .pred %first;
    ld.param.u64 %n, [next];
    ld.param.u64 %p, [y];
    mov.u32 %t, %tid.x;
    shr.u32 %w, %t, 5;
    mul.wide.u32 %o, %t, 4;
    add.u64 %p, %p, %o;
    atom.global.add.u32 %v, [%n], 1;
    shfl.sync.idx.b32 %u, %v, 0, 31, -1;
    setp.lt.u32 %first, %u, 32;
    setp.eq.and.u32 %first, %w, 1, %first;
    {last}
    ret;
}}
"""
STORE = "st.global.u32 [%p], %v;"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def kernel(folder: Path, last: str) -> str:
    (folder / "k.ptx").write_text(TICKETS.format(last=last))
    return "k.ptx"


def test_adverse_orders_come_before_random_ones_and_the_first_only_once() -> None:
    adverse = ["reverse", "warp-serial", "early-async"]
    assert further_schedules(0) == []
    assert further_schedules(1) == [*adverse, "random:0"]
    assert further_schedules(2, "random:1") == ["default", *adverse, "random:0"]
    assert further_schedules(1, "reverse") == ["default", *adverse[1:], "random:0"]


class TestBuffers:
    def test_both_schedules_the_place_and_the_values(
        self, write: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["run", kernel(write, STORE), "--schedules", "1", "--json", "-"]) == 1
        report = json.loads(capsys.readouterr().out)
        (found,) = report["findings"]
        assert report["verdict"] == found["class"] == "schedule-dependent"
        # in reverse the last of 64 threads draws ticket 0
        assert found["message"] == (
            "64 of 64 elements of 'y' depend on the schedule; the first is y[0]:"
            " 0 with --schedule default, 63 with --schedule reverse"
        )
        values = found["values"]
        assert values == {
            "buffer": "y", "index": 0, "schedule": "default", "value": "0",
            "other_schedule": "reverse", "other_value": "63",
        }  # fmt: skip
        for schedule, value in (("schedule", "value"), ("other_schedule", "other_value")):
            words = ["--schedule", values[schedule], "--out", "y=y.npy"]
            assert main(["run", "k.ptx", *words]) == 0
            assert str(np.load("y.npy")[0]) == values[value]

    def test_the_first_schedule_may_be_another(
        self, write: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = ["--schedules", "1", "--schedule", "reverse", "--format", "concise"]
        assert main(["run", kernel(write, STORE), *words]) == 1
        out = capsys.readouterr().out
        assert "y[0]: 63 with --schedule reverse, 0 with --schedule default" in out

    def test_every_format_names_both(self, write: Path, capsys: pytest.CaptureFixture[str]) -> None:
        name = kernel(write, STORE)
        for form in ("full", "concise", "json", "sarif", "github", "junit", "sanitizer"):
            capsys.readouterr()
            assert main(["run", name, "--schedules", "1", "--format", form]) == 1
            out = capsys.readouterr().out
            if form == "junit":
                (failure,) = ET.fromstring(out.encode()).iter("failure")
                out = failure.get("message", "")
            elif form == "sarif":
                (result,) = json.loads(out)["runs"][0]["results"]
                out = result["message"]["text"]
            assert "--schedule default" in out and "--schedule reverse" in out, form

    def test_atomics_whose_sum_is_fixed(self, write: Path) -> None:
        assert main(["run", kernel(write, "st.global.u32 [%p], %t;"), "--schedules", "3"]) == 0

    def test_one_finding_for_a_buffer(self) -> None:
        one, two = np.array([1, 2, 3], np.float32), np.array([1, 3, 2], np.float32)
        pair = "default", "random:3"
        found = differs_by_schedule("n", one, two, ELEMENT_TYPES["f32"], pair)
        assert found is not None
        # 2.0 and 3.0: half of the 2^23 numbers of their binade apart
        assert found.message == (
            "2 of 3 elements of 'n' depend on the schedule; the first is n[1]: 2 (0x40000000) with"
            " --schedule default, 3 (0x40400000) with --schedule random:3, 4194304 ulp apart"
        )
        assert found.values["ulp"] == 1 << 22
        assert differs_by_schedule("n", one, one, ELEMENT_TYPES["f32"], pair) is None


class TestFindings:
    @pytest.mark.parametrize(
        ("last", "class_"),
        [
            ("@%first bar.sync 1, 64;", "deadlock"),
            ("@%first trap;", "trap"),
            ("@%first st.global.u32 [%n+4096], %t;", "oob-global"),
            ("ld.param.u64 %o, [y]; @%first st.global.u32 [%o], %t;", "race-global"),
        ],
    )
    def test_an_error_of_one_schedule(
        self, write: Path, capsys: pytest.CaptureFixture[str], last: str, class_: str
    ) -> None:
        name = kernel(write, last)
        assert main(["run", name]) == 0
        capsys.readouterr()
        assert main(["run", name, "--schedules", "1", "--format", "json"]) == 1
        (found,) = json.loads(capsys.readouterr().out)["findings"]
        assert found["class"] == class_
        assert found["message"].endswith(" (seen with --schedule reverse)")
        assert found["values"]["schedule"] == "reverse"
        assert main(["run", name, "--schedule", "reverse"]) == 1

    def test_a_warning_of_another_schedule(
        self, write: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Warnings that only some schedule has count, each once, and the exploration goes on."""
        name = kernel(write, "ld.param.u64 %o, [y]; @%first st.global.u32 [%o], 0;")
        assert main(["run", name, "--strict"]) == 0
        capsys.readouterr()
        assert main(["run", name, "--schedules", "3", "--strict", "--json", "-"]) == 1
        (found,) = json.loads(capsys.readouterr().out)["findings"]
        assert (found["class"], found["values"]["schedule"]) == ("same-value-write", "reverse")

    def test_a_warning_that_every_schedule_has_is_one(
        self, write: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        name = kernel(write, "ld.param.u64 %o, [y]; st.global.u32 [%o], 0; @%first trap;")
        assert main(["run", name, "--schedules", "2", "--json", "-"]) == 1
        found = json.loads(capsys.readouterr().out)["findings"]
        assert [f["class"] for f in found] == ["same-value-write", "trap"]
        assert "schedule" not in found[0]["values"]

    def test_suppressed_on_every_schedule(
        self, write: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        name = kernel(write, "@%first trap;")
        words = ["--schedules", "1", "--suppress", "trap", "--format", "concise"]
        assert main(["run", name, *words]) == 0
        assert "seen with" not in capsys.readouterr().out

"""Every kernel of the corpus whose instructions are all modelled launches and comes to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

import ptxsim
from ptxsim.report import Report
from tests.smoke import launch, smoke

FILES = sorted((Path(__file__).parent / "corpus").glob("*.ptx"))

#: Features of which ptxsim knows the instructions and does not execute them.
NOT_MODELLED = {"surfaces", "textures"}
#: What ends a launch early: all lanes of warp_ops call __syncwarp(0xff), and index64 subtracts an
#: argument from an index that is 0 here ("o[r*ld[1]+c*ld[2]-s]").
FAULTS = {"warp_ops": "mask-mismatch", "index64": "oob-global"}


def _feature(path: Path) -> str:
    return path.stem.split("__")[0]


def _end(report: Report) -> str:
    """How a launch ended: with its last instruction, or at the fault of this class."""
    return report.findings[-1].class_ if report.stopped else "end"


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_assembles_and_runs(path: Path) -> None:
    module = ptxsim.assemble(path)
    unsupported = any(d.code == "PTX400" for d in module.diagnostics)
    assert unsupported == (_feature(path) in NOT_MODELLED)
    if unsupported:
        return
    ends = {entry: _end(report) for entry, report in smoke(module)}
    assert ends == dict.fromkeys(module.entries, FAULTS.get(_feature(path), "end"))
    assert ends


HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (".entry k() { trap; }", "trap"),
        (".entry k() { L: bra L; }", "deadlock"),
        (".entry k() { .reg .b32 %i; mov.u32 %i, 0; L: add.u32 %i, %i, 1; bra L; }", "step-limit"),
        # an array of 64 KiB, and 8 bytes behind it
        (".entry k(.param .u64 .ptr p) { .reg .b64 %a; ld.param.u64 %a, [p];\n"
         "st.global.u64 [%a+65536], %a; ret; }", "oob-global"),
        (".entry k(.param .u64 p) { .reg .b64 %a; ld.param.u64 %a, [p];\n"
         "st.global.u64 [%a+65528], 0; ret; }", "end"),
    ],
)  # fmt: skip
def test_what_does_not_end_well_is_seen(
    text: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.smoke.LIMIT", 10_000)
    assert _end(launch(ptxsim.assemble(HEAD + text).kernel())) == end


class TestLaunch:
    """The launcher heeds what a kernel says about its launch."""

    @pytest.mark.parametrize(
        ("directives", "threads"),
        [
            ("", 2 * 32),
            (".reqntid 8, 4, 2", 2 * 64),
            (".maxntid 16", 2 * 16),
            (".maxntid 1024", 2 * 64),
            (".reqnctapercluster 4", 4 * 32),
        ],
    )
    def test_threads(self, directives: str, threads: int) -> None:
        text = f"{HEAD}.entry k() {directives} {{ ret; }}"
        report = launch(ptxsim.assemble(text).kernel())
        assert report.counters["thread_instructions"] == threads

    def test_numbers(self) -> None:
        """An integer is 16, a float 1; their sum traps only where it is not 17."""
        text = f"""{HEAD}
            .entry k(.param .u32 n, .param .f32 x, .param .align 8 .b8 s[12]) {{
                .reg .b32 %n, %i; .reg .f32 %x; .reg .pred %p;
                ld.param.u32 %n, [n]; ld.param.f32 %x, [x];
                cvt.rzi.u32.f32 %i, %x; add.u32 %n, %n, %i;
                ld.param.u32 %i, [s+8]; add.u32 %n, %n, %i;
                setp.ne.u32 %p, %n, 17; @%p trap; ret;
            }}"""
        assert _end(launch(ptxsim.assemble(text).kernel())) == "end"

"""Instructions that are checked like the assembler checks them, executed or not.

``judged-lines.tsv`` holds hand-written lines about textures, surfaces, wgmma, tcgen05, tensor maps,
clusters, multimem addresses and others, judged by ptxas 13.0 at PTX ISA 9.0: what it accepts is
``legal``, what it refuses has the code of our diagnostic.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ptxsim
from ptxsim.targets import Floor, Target
from tests.accepted_lines import Place, verdicts

_DATA = Path(__file__).parents[1] / "data"
ROWS = [row.split("\t") for row in
        (_DATA / "judged-lines.tsv").read_text().rstrip("\n").split("\n")[1:]]  # fmt: skip


def test_judged_lines() -> None:
    found = verdicts([(line, Place("9.0", target)) for target, _, line in ROWS])
    codes = ["legal" if code == "unsupported" else code for code, _ in found]
    wrong = [(line, f) for (_, code, line), f, c in zip(ROWS, found, codes, strict=True)
             if c != code]  # fmt: skip
    assert not wrong


def test_the_table_is_complete() -> None:
    """Guards the test above against passing for want of rows."""
    assert (len(ROWS), sum(code == "legal" for _, code, _ in ROWS)) == (772, 410)


def _kernel(line: str, target: str = "sm_100a") -> str:
    return f"""\
.version 9.0
.target {target}
.address_size 64
.global .texref tx;
.global .surfref sf;
.visible .entry k(.param .u64 out)
{{
    .reg .pred %p<4>; .reg .b32 %r<8>; .reg .f32 %f<8>; .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [out];
    mov.u64 %rd2, 7;
    mov.u32 %r1, 3;
    {line}
    st.global.u64 [%rd1], %rd2;
    ret;
}}
"""


def _run(line: str, target: str = "sm_100a") -> tuple[ptxsim.Report, int]:
    out = np.zeros(1, np.uint64)
    report = ptxsim.assemble(_kernel(line, target))["k"].launch(grid=1, block=1, args=[out])
    return report, int(out[0])


#: One instruction of each family that is not executed, and a target that has it.
NOT_EXECUTED = [
    ("tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [tx, {%r1}];", "sm_80"),
    ("sust.b.1d.b32.trap [sf, {%r1}], %r1;", "sm_80"),
    ("wgmma.commit_group.sync.aligned;", "sm_90a"),
    ("tcgen05.wait::ld.sync.aligned;", "sm_100a"),
    ("cp.async.bulk.prefetch.tensor.1d.L2.global [%rd1, {%r1}];", "sm_90"),
    ("tensormap.replace.tile.rank.b1024.b32 [%rd1], 1;", "sm_90a"),
    ("mapa.u64 %rd2, %rd1, %r1;", "sm_90"),
    ("barrier.cluster.arrive;", "sm_90"),
    ("multimem.st.u32 [%rd1], %r1;", "sm_90"),
]


@pytest.mark.parametrize(("line", "target"), NOT_EXECUTED, ids=lambda text: text.split(" ")[0])
def test_reaching_it_is_unsupported(line: str, target: str) -> None:
    """Assembling gives no error, executing stops at the line (the twelfth of the module)."""
    report, out = _run(line, target)
    assert (report.verdict, report.exit_code) == ("unsupported", 4)
    opcode = line.rstrip(";").split(" ")[0]
    found = [(f.message, f.line) for f in report.findings]
    assert found == [(f"'{opcode}' is not modelled by ptxsim", 12)]
    assert out == 0


@pytest.mark.parametrize(("line", "target"), NOT_EXECUTED, ids=lambda text: text.split(" ")[0])
def test_not_reaching_it_is_no_finding(line: str, target: str) -> None:
    report, out = _run(f"bra over; {line} over:", target)
    assert (report.clean, out) == (True, 7)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # hints and resources: no effect on values
        ("setmaxnreg.inc.sync.aligned.u32 240;", 7),
        ("setmaxnreg.dec.sync.aligned.u32 24;", 7),
        ("griddepcontrol.wait;", 7),
        ("griddepcontrol.launch_dependents;", 7),
        ("prefetch.global.L2::evict_last [%rd1];", 7),
        ("applypriority.global.L2::evict_normal [%rd1], 128;", 7),
        # cache policies are opaque, ours are zero
        ("createpolicy.fractional.L2::evict_last.b64 %rd2, 0.5;", 0),
        ("createpolicy.range.global.L2::evict_last.b64 %rd2, [%rd1], 128, 128;", 0),
        ("createpolicy.cvt.L2.b64 %rd2, %rd1;", 0),
        # a false guard leaves the register
        ("setp.ne.u32 %p1, %r1, 3; @%p1 createpolicy.cvt.L2.b64 %rd2, %rd1;", 7),
        # generic addresses in 64 and in 32 bits: the buffer is global, 3 is in no window
        ("isspacep.global %p1, %rd1; selp.u64 %rd2, 1, 2, %p1;", 1),
        ("isspacep.shared %p1, %rd1; selp.u64 %rd2, 1, 2, %p1;", 2),
        ("isspacep.shared %p1, %r1; selp.u64 %rd2, 1, 2, %p1;", 2),
    ],
)
def test_executed(line: str, expected: int) -> None:
    report, out = _run(line)
    assert (report.verdict, out) == ("clean", expected)


class TestFloorsThatEnd:
    """``1.2-6.3:70`` ends with PTX ISA 6.3 from sm_70 on (vote and shfl without .sync)."""

    FLOOR = Floor.parse("1.2-6.3:70")

    @pytest.mark.parametrize(
        ("version", "number", "needs"),
        [
            ((6, 3), 75, None),
            ((6, 4), 75, "PTX ISA version 6.3 or earlier, or a target below sm_70"),
            ((9, 5), 62, None),
            ((1, 1), 20, "PTX ISA version 1.2 or later"),
        ],
    )
    def test_unmet(self, version: tuple[int, int], number: int, needs: str | None) -> None:
        assert self.FLOOR.unmet(version, Target(number)) == needs

    def test_an_end_for_all_versions(self) -> None:
        """``-:90``: no version has it from sm_90 on (addresses of 32 bits in cvta)."""
        floor = Floor.parse("-:90")
        assert floor.unmet((1, 0), Target(89)) is None
        assert floor.unmet((9, 5), Target(90)) == "a target below sm_90"

    def test_lines(self) -> None:
        """ptxas 13.0: without .sync up to PTX ISA 6.3 on sm_75, and still on sm_62 in 8.0."""
        line = "vote.all.pred %p1, %p2;"
        places = [Place("6.3", "sm_75"), Place("6.4", "sm_75"), Place("8.0", "sm_62")]
        found = [code for code, _ in verdicts([(line, place) for place in places])]
        assert found == ["legal", "PTX107", "legal"]

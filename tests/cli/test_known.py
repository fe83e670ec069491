"""What a run leaves out: the baseline, --suppress, and comments in the PTX."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ptxsim.cli.baseline import read_baseline, write_baseline
from ptxsim.cli.known import Known
from ptxsim.cli.suppress import Suppressions, comments, parse_option
from ptxsim.diagnostics import Source
from ptxsim.errors import UsageError
from ptxsim.report import Finding, Report
from tests.cli.reports import ADVICE, OOB, RACE, SOURCE, report


def classes(made: Report) -> tuple[list[str], list[tuple[str, str]]]:
    """Classes of what counts, and of what is left out with who did it."""
    return (
        [f.class_ for f in made.findings],
        [(known.finding.class_, known.by) for known in made.left_out],
    )


def known(source: Source, *options: str, baseline: Path | None = None) -> Known:
    suppressions = Suppressions([parse_option(o) for o in options], source)
    return Known(source, suppressions, None if baseline is None else read_baseline(str(baseline)))


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    """A baseline that holds the race and the access out of bounds."""
    path = tmp_path / "known.json"
    write_baseline(str(path), report(), [RACE, OOB], SOURCE)
    return path


class TestBaseline:
    def test_file(self, baseline: Path) -> None:
        assert json.loads(baseline.read_text()) == {
            "ptxsim-baseline": 1,
            "findings": [
                {
                    "file": "k.ptx", "entry": "k", "class": "oob-global",
                    "line": "st.global.u32 [%rd1], %r3;", "other_line": "", "times": 1,
                },
                {
                    "file": "k.ptx", "entry": "k", "class": "race-shared",
                    "line": "ld.shared.u32 %r3, [%r4];",
                    "other_line": "st.shared.u32 [%r1], %r2;", "times": 1,
                },
            ],
        }  # fmt: skip

    def test_round_trip(self, baseline: Path) -> None:
        made = known(SOURCE, baseline=baseline).apply(report(RACE, OOB, ADVICE))
        assert classes(made) == (
            ["bank-conflict"], [("race-shared", "baseline"), ("oob-global", "baseline")],
        )  # fmt: skip
        assert (made.verdict, made.exit_code) == ("clean", 0)
        assert [known["by"] for known in made.to_json()["left_out"]] == ["baseline", "baseline"]

    def test_moved_and_reindented_lines_stay_known(self, baseline: Path) -> None:
        text = "// new\n\n" + SOURCE.text.replace("    ", "  ").replace("// first", "// 1st")
        moved = [replace(RACE, line=7, other_line=6, message="x"), replace(OOB, line=8)]
        made = Report("other/k.ptx", "k", "sm_80", tuple(moved))
        assert known(Source("other/k.ptx", text), baseline=baseline).apply(made).clean

    @pytest.mark.parametrize(
        "new",
        [
            replace(RACE, class_="race-global"),
            replace(RACE, line=6),
            replace(RACE, other_line=3),
        ],
    )
    def test_new_findings_count(self, new: Finding, baseline: Path) -> None:
        made = known(SOURCE, baseline=baseline).apply(report(new))
        assert (made.findings, made.left_out) == ((new,), ())

    @pytest.mark.parametrize(("file", "entry"), [("j.ptx", "k"), ("k.ptx", "j")])
    def test_other_files_and_entries_count(self, file: str, entry: str, baseline: Path) -> None:
        made = known(SOURCE, baseline=baseline).apply(Report(file, entry, "sm_80", (RACE,)))
        assert not made.clean

    def test_one_more_of_the_same_code_is_new(self, tmp_path: Path) -> None:
        source = Source("k.ptx", "ld.u32 x;\nld.u32 x;\nld.u32 x;\n")
        at = [replace(OOB, line=n, column=1) for n in (1, 2, 3)]
        path = tmp_path / "b.json"
        write_baseline(str(path), report(), at[:2], source)
        (entry,) = json.loads(path.read_text())["findings"]
        assert entry["times"] == 2
        twice = known(source, baseline=path)
        assert [f.line for f in twice.apply(report(*at)).findings] == [3]
        # the same places in another launch are not new
        assert [f.line for f in twice.apply(report(*at)).findings] == [3]

    def test_results_that_differ_go_by_their_buffer(self, tmp_path: Path) -> None:
        y, z = (
            Finding("mismatch", "PTX302", "differs", 0, values={"buffer": name, "index": 7})
            for name in "yz"
        )
        path = tmp_path / "b.json"
        write_baseline(str(path), report(), [y], SOURCE)
        later = replace(y, values={"buffer": "y", "index": 9})
        assert known(SOURCE, baseline=path).apply(report(later, z)).findings == (z,)

    def test_what_is_known_of_other_files_is_kept(self, baseline: Path, tmp_path: Path) -> None:
        path = tmp_path / "next.json"
        there = Report("j.ptx", "k", "sm_80")
        write_baseline(str(path), there, [ADVICE], SOURCE, read_baseline(str(baseline)))
        entries = json.loads(path.read_text())["findings"]
        assert [(e["file"], e["class"]) for e in entries] == [
            ("j.ptx", "bank-conflict"), ("k.ptx", "oob-global"), ("k.ptx", "race-shared"),
        ]  # fmt: skip
        # what no longer occurs in this file goes
        write_baseline(str(path), report(), [], SOURCE, read_baseline(str(path)))
        assert [e["file"] for e in json.loads(path.read_text())["findings"]] == ["j.ptx"]

    def test_lasting_findings_are_old_and_new_but_not_suppressed(self, baseline: Path) -> None:
        filter_ = known(SOURCE, "oob-global", baseline=baseline)
        made = filter_.apply(report(RACE, OOB, ADVICE))
        assert [f.class_ for f in filter_.lasting(made)] == ["bank-conflict", "race-shared"]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", "not a baseline"),
            ("[]", "not a baseline of this version"),
            ('{"ptxsim-baseline": 2, "findings": []}', "not a baseline of this version"),
            ('{"ptxsim-baseline": 1}', "'findings' is a list"),
            ('{"ptxsim-baseline": 1, "findings": [{}]}', r"findings\[0\]: has the texts file,"),
            ("[" * 100000, "not a baseline"),
        ],
    )
    def test_other_files_are_refused(self, text: str, message: str, tmp_path: Path) -> None:
        path = tmp_path / "b.json"
        path.write_text(text)
        with pytest.raises(UsageError, match=message):
            read_baseline(str(path))

    @pytest.mark.parametrize("times", [0, -1, 1.5, True, "2"])
    def test_times_is_a_count(self, times: object, baseline: Path) -> None:
        data = json.loads(baseline.read_text())
        data["findings"][1]["times"] = times
        baseline.write_text(json.dumps(data))
        with pytest.raises(UsageError, match=r"findings\[1\]: 'times' is a positive number"):
            read_baseline(str(baseline))

    def test_a_folder_that_is_not_there_leaves_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="cannot write"):
            write_baseline(str(tmp_path / "no" / "b.json"), report(), [RACE], SOURCE)
        assert list(tmp_path.iterdir()) == []


class TestOption:
    @pytest.mark.parametrize(
        ("option", "left"),
        [
            ("race-shared", ["race-shared"]),
            ("PTX341", ["oob-global"]),
            ("race-shared:ld.shared.*", ["race-shared"]),
            ("PTX310:st.shared.*", ["race-shared"]),  # the other party
            ("race-shared:ld.shared", []),  # a pattern describes the whole line
            ("race-shared:st.global.*", []),
            ("race-shared:*// first", []),  # comments are no code
            ("race-shared:*, [%r?];", ["race-shared"]),
            ("race-global", []),
        ],
    )
    def test_code_and_pattern(self, option: str, left: list[str]) -> None:
        made = known(SOURCE, option).apply(report(RACE, OOB))
        assert [k.finding.class_ for k in made.left_out] == left
        assert {k.by for k in made.left_out} <= {"option"}

    def test_unknown_code(self) -> None:
        with pytest.raises(UsageError, match="--suppress race-shard: 'race-shard' is no code or"):
            parse_option("race-shard")
        with pytest.raises(UsageError, match="did you mean 'race-shared'"):
            parse_option("race-shard:x")
        with pytest.raises(UsageError, match="'' is no code"):
            parse_option("")

    def test_without_effect(self) -> None:
        filter_ = known(SOURCE, "race-shared", "race-global:x*")
        filter_.apply(report(RACE))
        assert filter_.suppressions.advice() == [
            "--suppress race-global:x*: advice: no finding race-global to ignore"
        ]


def commented(line: str) -> Source:
    """A kernel of three lines with a comment on, or before, the second one."""
    return Source("k.ptx", f"ld.u32 a;\n{line}\nst.u32 c;\n")


class TestComments:
    def test_on_the_line(self) -> None:
        source = commented("ld.u32 b; // ptxsim: ignore[PTX341] the guard is outside")
        filter_ = known(source)
        made = filter_.apply(report(*(replace(OOB, line=n, column=1) for n in (1, 2, 3))))
        assert [f.line for f in made.findings] == [1, 3]
        (left,) = made.left_out
        assert (left.by, left.reason) == ("comment", "the guard is outside")
        assert filter_.suppressions.advice() == []

    def test_on_the_line_before(self) -> None:
        source = commented("// ptxsim: ignore[oob-global]\n\n  // of the last element")
        # the line of the store is now the fifth
        made = known(source).apply(report(replace(OOB, line=1), replace(OOB, line=5)))
        assert [f.line for f in made.findings] == [1]

    def test_either_party(self) -> None:
        text = SOURCE.text.replace("// first", "// ptxsim: ignore[race-shared, PTX341]")
        made = known(Source("k.ptx", text)).apply(report(RACE, OOB))
        assert classes(made) == (["oob-global"], [("race-shared", "comment")])

    def test_other_codes_stay(self) -> None:
        filter_ = known(commented("ld.u32 b; // ptxsim: ignore[race-shared]"))
        assert filter_.apply(report(replace(OOB, line=2))).left_out == ()
        assert filter_.suppressions.advice() == [
            "k.ptx:2: advice: no finding race-shared to ignore"
        ]

    @pytest.mark.parametrize(
        ("comment", "advice"),
        [
            ("// ptxsim: ignore", "write ignore[CODE] with what to ignore"),
            ("// ptxsim: ignore[]", "write ignore[CODE] with what to ignore"),
            ("// ptxsim: ignore[oob-globl] x",
             "'oob-globl' is no code or class of a finding; did you mean"),
        ],
    )  # fmt: skip
    def test_wrong_ones_ignore_nothing_and_say_so(self, comment: str, advice: str) -> None:
        filter_ = known(commented(f"ld.u32 b; {comment}"))
        assert filter_.apply(report(replace(OOB, line=2))).left_out == ()
        (line,) = filter_.suppressions.advice()
        assert line.startswith(f"k.ptx:2: advice: {advice}")

    @pytest.mark.parametrize(
        "text", ["// ignore[PTX341]", "// ptxsim: ignored[PTX341]", "// ptxsim"]
    )
    def test_other_comments_mean_nothing(self, text: str) -> None:
        assert comments(Source("k.ptx", f"ld.u32 b; {text}\n")) == ([], [])

"""Findings in PTX with debug information: the source line stands beside the PTX line.

``inlined.cu`` of tests/debuginfo, compiled by nvcc 13.0 with -lineinfo and with -G, writes beyond
the buffer in its second CTA: ``y[i] = scaled(i)`` in line 6 of scale.cuh, called by line 5.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import ptxsim
from ptxsim.cli import main
from ptxsim.cli.clean import printable
from ptxsim.cli.html import render_html
from ptxsim.cli.render import render_report
from ptxsim.cli.source_text import SourceTexts
from ptxsim.diagnostics import SourcePlace
from tests.cli.reports import OOB, RACE, SOURCE, report
from tests.cli.test_formats import problems

DEBUGINFO = Path(__file__).parents[1] / "debuginfo"
LAUNCH = ["--grid", "2", "--block", "32", "--arg", "u32[32]:0"]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the PTX and what it was compiled from."""
    for path in DEBUGINFO.iterdir():
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _run(style: str, capsys: Capture, file: str = "inlined_line.ptx") -> str:
    assert main(["run", file, *LAUNCH, "--format", style]) == 1
    return capsys.readouterr().out


class TestFormats:
    def test_full(self, folder: Path, capsys: Capture) -> None:
        lines = _run("full", capsys).splitlines()
        assert lines[0].startswith("inlined_line.ptx:38:2: error: oob-global: ")
        assert lines[3:9] == [
            "  source: scale.cuh:6:5 in _Z3putPjj",
            "    6 |     y[i] = scaled(i);",
            "      |     ^",
            "  inlined at: inlined.cu:5:5",
            "    5 |     put(y, i);",
            "      |     ^",
        ]

    def test_full_of_a_debug_build(self, folder: Path, capsys: Capture) -> None:
        """-G inlines no function for the line table."""
        lines = _run("full", capsys, "inlined_debug.ptx").splitlines()
        assert lines[0].startswith("inlined_debug.ptx:55:2: error: oob-global: ")
        assert lines[3:6] == ["  source: scale.cuh:6:5", "    6 |     y[i] = scaled(i);",
                              "      |     ^"]  # fmt: skip
        assert lines[6].startswith("  where: ")

    def test_concise(self, folder: Path, capsys: Capture) -> None:
        (line, _) = _run("concise", capsys).splitlines()
        assert line.startswith("inlined_line.ptx:38:2: oob-global: ")
        assert line.endswith(" [PTX341] from scale.cuh:6:5")

    def test_json(self, folder: Path, capsys: Capture) -> None:
        (finding,) = json.loads(_run("json", capsys))["findings"]
        assert (finding["line"], finding["column"]) == (38, 2)
        assert finding["source"] == [
            {"file": "scale.cuh", "line": 6, "column": 5, "function": "_Z3putPjj",
             "text": "    y[i] = scaled(i);"},
            {"file": "inlined.cu", "line": 5, "column": 5, "text": "    put(y, i);"},
        ]  # fmt: skip
        assert "other_source" not in finding

    def test_sarif(self, folder: Path, capsys: Capture) -> None:
        log = json.loads(_run("sarif", capsys))
        (result,) = log["runs"][0]["results"]
        place = result["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == "inlined_line.ptx"
        assert place["region"]["startLine"] == 38
        assert result["relatedLocations"] == [
            {"id": 3, "message": {"text": "source: _Z3putPjj"}, "physicalLocation": {
                "artifactLocation": {"uri": "scale.cuh"},
                "region": {"startLine": 6, "startColumn": 5,
                           "snippet": {"text": "    y[i] = scaled(i);"}}}},
            {"id": 4, "message": {"text": "inlined at"}, "physicalLocation": {
                "artifactLocation": {"uri": "inlined.cu"},
                "region": {"startLine": 5, "startColumn": 5,
                           "snippet": {"text": "    put(y, i);"}}}},
        ]  # fmt: skip
        assert problems(log) == []

    def test_github(self, folder: Path, capsys: Capture) -> None:
        out = _run("github", capsys)
        assert out.startswith("::error file=inlined_line.ptx,line=38,col=2,")
        assert "%0Asource: scale.cuh:6:5 in _Z3putPjj%0Ainlined at: inlined.cu:5:5%0Ahelp: " in out

    def test_junit(self, folder: Path, capsys: Capture) -> None:
        failure = ElementTree.fromstring(_run("junit", capsys)).find(".//failure")
        assert failure is not None
        assert (failure.get("message") or "").endswith("[PTX341] from scale.cuh:6:5")
        assert "  inlined at: inlined.cu:5:5\n" in (failure.text or "")

    def test_sanitizer(self, folder: Path, capsys: Capture) -> None:
        assert _run("sanitizer", capsys).splitlines()[4:8] == [
            "=========     source scale.cuh:6:5 in _Z3putPjj",
            "=========         y[i] = scaled(i);",
            "=========     inlined at inlined.cu:5:5",
            "=========         put(y, i);",
        ]

    def test_html(self, folder: Path) -> None:
        assert main(["run", "inlined_line.ptx", *LAUNCH, "--html", "k.html"]) == 1
        page = Path("k.html").read_text()
        assert '<div class="dim">source <code>scale.cuh:6:5 in _Z3putPjj</code></div>' in page
        assert "<pre><i>5</i>      put(y, i);</pre>" in page

    @pytest.mark.parametrize("style", ["full", "sanitizer"])
    def test_both_parties(self, style: str) -> None:
        race = replace(
            RACE,
            source=(SourcePlace("a.cu", 7, 3),),
            other_source=(SourcePlace("b.h", 2, 1, "f"), SourcePlace("a.cu", 6, 3)),
        )
        text = render_report(report(race), SOURCE, style)
        at = [text.index(word) for word in ("a.cu:7:3", "b.h:2:1 in f", "a.cu:6:3")]
        assert at == sorted(at)

    def test_related_places_of_both_parties(self) -> None:
        race = replace(RACE, other_source=(SourcePlace("//host/a.cu", 6),))
        log = json.loads(render_report(report(race), SOURCE, "sarif"))
        related = log["runs"][0]["results"][0]["relatedLocations"]
        assert [r["id"] for r in related] == [1, 2, 3]
        assert related[2]["message"]["text"] == "source of the other party"
        # two slashes would stand for another machine
        assert related[2]["physicalLocation"]["artifactLocation"]["uri"] == "file:///host/a.cu"
        assert problems(log) == []


class TestInterface:
    def test_findings_have_places_without_texts(self) -> None:
        kernel = ptxsim.assemble(DEBUGINFO / "inlined_line.ptx").kernel()
        made = kernel.launch(grid=2, block=32, args=[np.zeros(32, np.uint32)])
        assert made.findings[0].source == (
            SourcePlace("scale.cuh", 6, 5, "_Z3putPjj"),
            SourcePlace("inlined.cu", 5, 5),
        )
        with pytest.raises(ptxsim.FindingsError, match=r"\[PTX341\] from scale.cuh:6:5$"):
            made.raise_for_findings()

    def test_a_module_without_debug_information(self) -> None:
        kernel = ptxsim.assemble(
            ".version 7.0\n.target sm_80\n.address_size 64\n.entry k() { trap; }\n"
        ).kernel()
        assert kernel.launch(grid=1, block=1).findings[0].source == ()


class TestOldModules:
    #: In the form of compilers before PTX ISA 2.0, whose debug information is in marked lines.
    TEXT = """\
.version 1.4
.target sm_10, map_f64_to_f32
.file 1 "k.cu"
.entry k (.param .u32 p)
{
    .reg .u32 %r<3>;
    .loc 1 4 0
$LBB1:
    ld.param.u32 %r1, [p];
    st.global.u32 [%r1+128], %r2;
    exit;
}
    @@DWARF .section .debug_info, "", @progbits
    @@DWARF .byte 0x2b, 0x00, 0x00
    @@DWARF .4byte .debug_info
    @@DWARF .4byte $LBB1
"""

    def test_dwarf_lines_are_passed_over(self, tmp_path: Path, capsys: Capture) -> None:
        path = tmp_path / "old.ptx"
        path.write_text(self.TEXT)
        words = ["--grid", "1", "--block", "1", "--arg", "u32[32]:0", "--format", "concise"]
        assert main(["run", str(path), *words, "--tool", "memcheck"]) == 1
        out = capsys.readouterr().out
        assert out.startswith(f"{path}:10:5: oob-global: ")
        assert out.split("\n")[0].endswith("from k.cu:4")


class TestMessages:
    """PTX that does not assemble names its source lines as well."""

    def test_run_and_check(self, folder: Path, capsys: Capture) -> None:
        text = Path("inlined_line.ptx").read_text().replace("mad.lo.s32", "mad.lo.s33")
        Path("k.ptx").write_text(text)
        want = "  source: scale.cuh:2:5 in _Z6scaledj\n  inlined at: scale.cuh:6:5 in _Z3putPjj\n"
        assert main(["run", "k.ptx", *LAUNCH]) == 3
        assert want in capsys.readouterr().err
        assert main(["check", "k.ptx"]) == 3
        assert want in capsys.readouterr().out
        assert main(["check", "k.ptx", "--format", "sanitizer"]) == 3
        assert "=========     source scale.cuh:2:5 in _Z6scaledj" in capsys.readouterr().out


class TestWhatIsRead:
    """PTX may come from anyone: it makes the program read nothing outside of its folder."""

    @pytest.fixture
    def texts(self, tmp_path: Path) -> SourceTexts:
        (tmp_path / "secret.cu").write_text("secret\n")
        inner = tmp_path / "in"
        (inner / "deep").mkdir(parents=True)
        (inner / "deep" / "a.cu").write_text("one\r\ntwo\n")
        os.symlink(tmp_path / "secret.cu", inner / "link.cu")
        os.symlink(inner / "deep" / "a.cu", inner / "friend.cu")
        os.mkfifo(inner / "pipe.cu")
        (inner / "large.cu").write_bytes(b"x" * ((4 << 20) + 1))
        (inner / "long.cu").write_text("x" * 1000)
        (inner / "bytes.cu").write_bytes(b"a\xff\x1b[31m\n")
        return SourceTexts(inner)

    @staticmethod
    def _text(texts: SourceTexts, file: str, line: int = 1) -> str | None:
        return texts.place(SourcePlace(file, line)).text

    def test_inside(self, texts: SourceTexts, tmp_path: Path) -> None:
        assert self._text(texts, "deep/a.cu") == "one"
        assert self._text(texts, "deep/a.cu", 2) == "two"
        assert self._text(texts, "./deep/../deep/a.cu") == "one"
        assert self._text(texts, str(tmp_path / "in" / "deep" / "a.cu")) == "one"
        assert self._text(texts, "friend.cu") == "one"

    def test_by_a_link_to_the_folder(self, texts: SourceTexts, tmp_path: Path) -> None:
        os.symlink(tmp_path / "in", tmp_path / "way")
        linked = SourceTexts(tmp_path / "way")
        assert self._text(linked, "deep/a.cu") == "one"
        assert self._text(linked, str(tmp_path / "in" / "deep" / "a.cu")) == "one"

    def test_outside(self, texts: SourceTexts, tmp_path: Path) -> None:
        secret = str(tmp_path / "secret.cu")
        for name in ("../secret.cu", "deep/../../secret.cu", secret, "link.cu", "/etc/passwd"):
            assert self._text(texts, name) is None

    def test_a_folder_whose_name_begins_alike(self, tmp_path: Path) -> None:
        (tmp_path / "ab").mkdir()
        (tmp_path / "ab" / "x.cu").write_text("x")
        assert self._text(SourceTexts(tmp_path / "a"), str(tmp_path / "ab" / "x.cu")) is None

    def test_nothing_outside_is_looked_for(
        self, texts: SourceTexts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def asked(path: str, **more: Any) -> str:
            raise AssertionError(path)

        monkeypatch.setattr(os.path, "realpath", asked)
        monkeypatch.setattr(os.path, "isfile", asked)
        assert self._text(texts, "/net/host/a.cu") is None
        with pytest.raises(AssertionError):
            self._text(texts, "deep/a.cu")

    @pytest.mark.parametrize(
        "name", ["", ".", "deep", "none.cu", "pipe.cu", "large.cu", "a\0b", "x" * 5000, "\ud800"]
    )
    def test_what_is_no_text(self, name: str, texts: SourceTexts) -> None:
        assert self._text(texts, name) is None

    def test_beyond_the_text(self, texts: SourceTexts) -> None:
        assert [self._text(texts, "deep/a.cu", n) for n in (0, 4, 1 << 70)] == [None] * 3

    def test_long_lines_are_cut(self, texts: SourceTexts) -> None:
        assert self._text(texts, "long.cu") == "x" * 400

    def test_without_a_folder(self, folder: Path) -> None:
        assert self._text(SourceTexts(None), "inlined.cu") is None

    def test_many_files(self, tmp_path: Path) -> None:
        for n in range(65):
            (tmp_path / f"{n}.cu").write_text("x")
        texts = SourceTexts(tmp_path)
        read = [self._text(texts, f"{n}.cu") for n in range(65)]
        assert read == ["x"] * 64 + [None]
        assert self._text(texts, "0.cu") == "x"

    @pytest.mark.parametrize("style", ["full", "concise", "sanitizer", "github"])
    def test_names_and_texts_obey_nothing(self, style: str) -> None:
        bad = "a\x1b[31m\n::error::b\u202e<i>"
        place = SourcePlace(bad, 3, 2, bad, bad)
        made = report(replace(OOB, source=(place, place)))
        text = render_report(made, SOURCE, style)
        assert text == printable(text)
        assert not any(line.startswith("::error::b") for line in text.splitlines())
        if style == "sanitizer":
            assert all(line.startswith("=========") for line in text.splitlines())
        page = render_html(made, SOURCE)
        assert "\x1b" not in page
        assert "<i>:3" not in page

"""The HTML report: self-contained, escaped, and the same in a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ptxsim.cli.html import render_html
from ptxsim.cli.html_maps import bank_map, lane_grid, words_of
from ptxsim.diagnostics import Source
from ptxsim.report import Finding, LeftOut
from tests.cli.reports import ADVICE, OOB, RACE, SOURCE, hostile, report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

#: Elements without an end.
VOID = {"meta", "br"}


class Page(HTMLParser):
    """Elements with their attributes, and the text outside of style and script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.source = text
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("style", "script"):
            self.text += data

    def all(self, tag: str, class_: str = "") -> list[dict[str, str | None]]:
        """The elements of a name that have a class."""
        wanted = set(class_.split())
        return [
            a
            for t, a in self.elements
            if t == tag and wanted <= set((a.get("class") or "").split())
        ]


def page(*findings: Finding, profile: dict[int, tuple[int, int]] | None = None) -> Page:
    made = report(*findings)
    made.profile = profile or {}
    return Page(render_html(made, SOURCE))


class TestFindings:
    def test_one_article_each(self) -> None:
        articles = page(RACE, OOB, ADVICE).all("article")
        assert [(a["id"], a["class"]) for a in articles] == [
            ("f1", "finding error"), ("f2", "finding error"), ("f3", "finding advice"),
        ]  # fmt: skip

    def test_race_has_both_parties(self) -> None:
        text = page(RACE).text
        for part in (
            "first access, dir/k.ptx:4:5, cta (0,0,0), warp 0, lane 3",
            "second access, dir/k.ptx:5:5, cta (0,0,0) and 1 other, warp 1, lanes 0-2,7",
            "last ordered by 'bar.sync 0' at line 3",
            "0x80 (shared, 4 bytes)",
            "0: 0x80, 1: 0x84, 2: 0x88, 7: 0x100",
            "put a barrier between the two accesses",
            "31 times",
        ):
            assert part in text

    def test_links_lead_to_lines_that_are_there(self) -> None:
        made = page(RACE, OOB, ADVICE)
        targets = {a.get("id") for _, a in made.elements}
        links = [a["href"] for a in made.all("a")]
        assert {"#L3", "#L4", "#L5", "#L6", "#f1", "#f3"} <= set(links)
        assert all((link or "")[1:] in targets for link in links)

    def test_lanes(self) -> None:
        made = page(OOB)
        assert [a["title"] for a in made.all("span", "on")] == ["lane 31"]

    def test_left_out(self) -> None:
        made = report(left_out=(LeftOut(RACE, "comment", "on purpose"),))
        text = Page(render_html(made, SOURCE)).text
        assert "1 finding not shown" in text
        assert "(comment: on purpose)" in text

    def test_without_source(self) -> None:
        text = Page(render_html(report(RACE), None)).text
        assert "first access, dir/k.ptx:4:5" in text
        assert "lanes a step" not in text

    def test_another_line_that_is_no_access(self) -> None:
        """The line of the finding comes first, the other behind it."""
        stuck = Finding("deadlock", "PTX303", "waits", 5, 5, other_line=4, other_column=5)
        text = Page(render_html(report(stuck), SOURCE)).text
        assert "access," not in text
        assert text.index("dir/k.ptx:5:5") < text.index("other, dir/k.ptx:4:5")

    def test_counters_that_are_zero_are_left_out(self) -> None:
        made = report()
        made.counters = {"thread_instructions": 4096, "ldmatrix_requests": 0}
        text = Page(render_html(made, SOURCE)).text
        assert "thread instructions" in text and "4,096" in text
        assert "ldmatrix" not in text


class TestMaps:
    def test_lanes_with_addresses(self) -> None:
        spans = re.findall(
            r'<span( class="on")? title="([^"]*)">(\d+)</span>', lane_grid((1,), (64,))
        )
        assert len(spans) == 32
        assert [s for s in spans if s[0]] == [(' class="on"', "lane 1, address 0x40", "1")]

    def test_words(self) -> None:
        # 8 bytes at 4 are words 1 and 2; 2 bytes at 7 cross from word 1 to 2
        base = replace(ADVICE, lanes=(5, 6))
        assert words_of(replace(base, addresses=(4, 128), size=8)) == {
            1: [5],
            2: [5],
            32: [6],
            33: [6],
        }
        assert words_of(replace(base, addresses=(7, 7), size=2)) == {1: [5, 6], 2: [5, 6]}

    def test_one_address_is_that_of_the_first_lane(self) -> None:
        assert words_of(replace(RACE, addresses=(), size=None)) == {32: [0]}

    def test_banks(self) -> None:
        # words 0, 32, 64 and 96 are all in bank 0
        table = Page(bank_map(ADVICE))
        assert [a["title"] for a in table.all("th", "many")] == ["bank 0: 4 different words"]
        assert [a["title"] for a in table.all("td", "on")] == [
            "address 0x0: lanes 0", "address 0x80: lanes 1",
            "address 0x100: lanes 2", "address 0x180: lanes 3",
        ]  # fmt: skip
        assert len(table.all("td")) == 4 * 32

    def test_many_rows_are_cut(self) -> None:
        spread = replace(ADVICE, lanes=tuple(range(20)), addresses=tuple(range(0, 20 * 128, 128)))
        assert "4 more rows" in bank_map(spread)

    def test_only_for_shared_memory(self) -> None:
        assert page(OOB).all("table", "bank") == []
        assert len(page(RACE).all("table", "bank")) == 1


class TestListing:
    PROFILE = {3: (4, 128), 4: (4, 128), 5: (8, 256), 6: (8, 64)}

    def test_heat(self) -> None:
        rows = page(profile=self.PROFILE).all("tr")[1:]
        # of the most executed line, which has 256: a half, a half, all, a quarter
        assert [(r["id"], r["class"], r["style"]) for r in rows[2:6]] == [
            ("L3", "ran", "--h:0.500"), ("L4", "ran", "--h:0.500"),
            ("L5", "ran", "--h:1.000"), ("L6", "ran", "--h:0.250"),
        ]  # fmt: skip
        assert [r["class"] for r in rows[:2]] == ["idle", "idle"]

    def test_divergence(self) -> None:
        made = page(profile=self.PROFILE)
        # 32 lanes a step is the widest of the launch; line 6 has 64 / 8
        assert [a["style"] for t, a in made.elements if t == "i" and "style" in a] == [
            "width:100%", "width:100%", "width:100%", "width:25%",
        ]  # fmt: skip
        assert len(made.all("span", "bar split")) == 1

    def test_lines_of_findings_are_marked(self) -> None:
        rows = page(RACE).all("tr", "found")
        assert [r["id"] for r in rows] == ["L4", "L5"]


class TestSelfContained:
    def test_nothing_is_loaded(self) -> None:
        made = page(RACE, OOB, ADVICE)
        for tag, attributes in made.elements:
            assert tag not in ("link", "img", "iframe", "object", "base")
            assert "src" not in attributes
            assert (attributes.get("href") or "#").startswith("#")
        (policy,) = (a for a in made.all("meta") if a.get("http-equiv"))
        assert (policy["content"] or "").startswith("default-src 'none';")
        assert "url(" not in render_html(report(), SOURCE)

    def test_hostile_text_makes_no_element(self) -> None:
        text = render_html(*hostile())
        text.encode("utf-8")
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
        made = Page(text)
        assert len(made.all("script")) == 1
        assert made.all("b") == [{}]  # that around the class of the finding
        assert "</script><script>alert(1)</script>&amp;" in made.text


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
class TestBrowser:
    def dom(self, text: str, folder: Path) -> Page:
        """The page as Chromium has it after its script ran."""
        file = folder / "report.html"
        file.write_text(text, encoding="utf-8")
        assert CHROMIUM is not None
        words = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 f"--user-data-dir={folder / 'profile'}", "--dump-dom", file.as_uri()]  # fmt: skip
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return Page(done.stdout)

    def test_findings_are_shown(self, tmp_path: Path) -> None:
        made = report(RACE, OOB, ADVICE)
        made.profile = TestListing.PROFILE
        # the script's only effect on its own: a button that was pressed hides the advice
        text = render_html(made, SOURCE).replace(
            "</script>", "document.querySelector('button[data-hides$=advice]').click();</script>"
        )
        dom = self.dom(text, tmp_path)
        assert [a["class"] for a in dom.all("article")] == [
            "finding error", "finding error", "finding advice hide",
        ]  # fmt: skip
        assert "last ordered by 'bar.sync 0' at line 3" in dom.text
        assert len(dom.all("tr", "ran")) == 4
        assert len(dom.all("table", "bank")) == 2

    def test_hostile_text_runs_nothing(self, tmp_path: Path) -> None:
        made, _ = hostile()
        evil = "<img src=x onerror=\"document.title='owned'\">"
        made.findings = (replace(made.findings[0], message=evil, help=evil, values={evil: evil}),)
        named = Source(f"{evil}.ptx", f"    ld.u32 x; // {evil}\n{evil}\n")
        made.file = named.name
        dom = self.dom(render_html(made, named), tmp_path)
        assert dom.all("img") == []
        assert len(dom.all("script")) == 1
        titles = re.findall("<title>(.*?)</title>", dom.source)
        assert titles == ["race-shared: &lt;img src=x onerror=\"document.title='owned'\"&gt;.ptx"]

"""Reports of real launches: profile, baseline, suppression and documents through ``ptxsim run``."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

import ptxsim
from ptxsim.cli import main

# 32 threads store to a buffer of 16 words; half of them go through a branch first
KERNEL = """\
// launch: grid=2 block=64
// arg: out u32[16] = zeros
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<4>;
    .reg .pred %p;
    mov.u32 %r0, %tid.x;
    setp.ge.u32 %p, %r0, 16;
@%p bra done;
    add.u32 %r1, %r0, 1;
    ld.param.u64 %rd0, [out];
    mul.wide.u32 %rd1, %r1, 4;
    add.u64 %rd2, %rd0, %rd1;
    st.global.u32 [%rd2], 7;
done:
    ret;
}
"""
STORE = 18
CLEAN = KERNEL.replace("add.u32 %r1, %r0, 1", "add.u32 %r1, %r0, 0").replace("grid=2", "grid=1")


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "k.ptx"
    path.write_text(KERNEL)
    return path


class TestProfile:
    def test_lanes_by_line(self) -> None:
        module = ptxsim.assemble(CLEAN)
        out = ptxsim.undefined(16, "u4")
        made = module.kernel().launch(grid=3, block=64, args=[out], tools="none")
        lanes = {line: lanes for line, (_, lanes) in made.profile.items()}
        # 3 CTAs of 64 threads, of which 16 pass the branch; all come to the branch
        assert lanes == {
            11: 192, 12: 192, 13: 192, 14: 48, 15: 48, 16: 48, 17: 48, 18: 48, 20: 192,
        }  # fmt: skip
        assert sum(lanes.values()) == made.counters["thread_instructions"]
        assert sum(steps for steps, _ in made.profile.values()) == made.counters["steps"]
        assert not made.stopped

    def test_stopped(self) -> None:
        out = ptxsim.undefined(16, "u4")
        made = ptxsim.assemble(KERNEL).kernel().launch(grid=1, block=64, args=[out])
        assert (made.verdict, made.stopped) == ("oob-global", True)


class TestKnownFindings:
    def test_baseline(
        self, kernel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = str(tmp_path / "known.json")
        assert main(["run", str(kernel), "--write-baseline", path]) == 1
        capsys.readouterr()
        assert main(["run", str(kernel), "--baseline", path]) == 0
        assert capsys.readouterr().out.splitlines() == [
            f"{kernel}: 'k' on sm_80: clean",
            f"{kernel}: 'k' on sm_80: 1 finding not shown: 1 in the baseline",
            f"{kernel}: 'k' on sm_80: the launch stopped at one of them; its results are"
            " incomplete",
        ]
        kernel.write_text("// one line more\n" + KERNEL)
        assert main(["run", str(kernel), "--baseline", path, "--write-baseline", path]) == 0
        assert main(["run", str(kernel), "--baseline", path]) == 0
        kernel.write_text(KERNEL.replace("[%rd2], 7", "[%rd2], 8"))
        assert main(["run", str(kernel), "--baseline", path]) == 1

    def test_incomplete_results_are_not_compared(self, kernel: Path) -> None:
        # the file that is not there is never read
        words = ["run", str(kernel), "--suppress", "oob-global", "--expect", "out=absent.npy"]
        assert main(words) == 0
        kernel.write_text(CLEAN)
        assert main(words) == 2

    def test_option(self, kernel: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", str(kernel), "--suppress", "PTX341:st.global.*"]) == 0
        assert "1 left out by --suppress" in capsys.readouterr().out
        assert main(["run", str(kernel), "--suppress", "PTX341:ld.*"]) == 1
        assert capsys.readouterr().out.splitlines()[-1] == (
            "--suppress PTX341:ld.*: advice: no finding PTX341 to ignore"
        )
        assert main(["run", str(kernel), "--suppress", "PTX341:ld.*", "--quiet"]) == 1
        assert "to ignore" not in capsys.readouterr().out

    def test_comment(self, kernel: Path, capsys: pytest.CaptureFixture[str]) -> None:
        kernel.write_text(
            KERNEL.replace("[%rd2], 7;", "[%rd2], 7; // ptxsim: ignore[PTX341] known")
        )
        assert main(["run", str(kernel)]) == 0
        assert "1 ignored by comments" in capsys.readouterr().out
        assert main(["run", str(kernel), "--format", "json"]) == 0
        (left,) = json.loads(capsys.readouterr().out)["left_out"]
        assert (left["by"], left["reason"]) == ("comment", "known")
        assert left["finding"]["line"] == STORE

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["--baseline", "absent.json"], "cannot read absent.json"),
            (["--baseline", "{kernel}"], "not a baseline"),
            (["--write-baseline", "absent/b.json"], "cannot write absent/b.json"),
            (["--write-baseline", "-"], "--write-baseline needs a file"),
            (["--suppress", "oob"], "'oob' is no code or class of a finding"),
            (["--color", "red"], "--color is one of auto, always, never, not 'red'"),
            (["--json", "-", "--html", "-"], "would mix two documents"),
            (["--html", "absent/r.html"], "cannot write absent/r.html"),
        ],
    )
    def test_usage(
        self, words: list[str], message: str, kernel: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["run", str(kernel), *(w.format(kernel=kernel) for w in words)]) == 2
        assert message in capsys.readouterr().err


class TestDocuments:
    def test_junit(self, kernel: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", str(kernel), "--format", "junit"]) == 1
        root = ElementTree.fromstring(capsys.readouterr().out)
        assert [f.get("type") for f in root.iter("failure")] == ["oob-global"]

    def test_sarif(self, kernel: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", str(kernel), "--format", "sarif"]) == 1
        (result,) = json.loads(capsys.readouterr().out)["runs"][0]["results"]
        place = result["locations"][0]
        assert place["logicalLocations"] == [{"name": "k", "kind": "function"}]
        assert place["physicalLocation"]["region"]["startLine"] == STORE

    def test_html(self, kernel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", str(kernel), "--html", str(tmp_path / "r.html"), "--quiet"]) == 1
        assert "oob-global" in capsys.readouterr().out
        text = (tmp_path / "r.html").read_text()
        assert f'href="#L{STORE}"' in text
        assert "The launch stopped at a fault" in text
        assert main(["run", str(kernel), "--html", "-"]) == 1
        assert capsys.readouterr().out == text

    @pytest.mark.parametrize("style", ["sarif", "junit", "sanitizer", "json"])
    def test_ptx_that_does_not_assemble(
        self, style: str, kernel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        kernel.write_text(KERNEL.replace("st.global", "sx.global"))
        words = ["run", str(kernel), "--format", style, "--html", str(tmp_path / "r.html")]
        assert main(words) == 3
        captured = capsys.readouterr()
        assert captured.err == ""
        assert "PTX103" in captured.out
        assert "PTX103" in (tmp_path / "r.html").read_text()

    def test_color_of_what_does_not_assemble(
        self, kernel: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        kernel.write_text(KERNEL.replace("st.global", "sx.global"))
        for when, colors in (("always", True), ("auto", False)):
            assert main(["run", str(kernel), "--color", when]) == 3
            assert ("\x1b[1;31merror\x1b[0m" in capsys.readouterr().err) is colors

    def test_color(self, kernel: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", str(kernel)]) == 1
        assert "\x1b" not in capsys.readouterr().out
        assert main(["run", str(kernel), "--color", "always"]) == 1
        assert "\x1b[1;31merror\x1b[0m" in capsys.readouterr().out


PRINTS = """\
// launch: grid=1 block=1
.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.global .align 1 .b8 text[14] = "::error::boo\\n";
.visible .entry k()
{
    .reg .b64 %rd<3>;
    .reg .b32 %r;
    cvta.global.u64 %rd0, text;
    mov.u64 %rd1, 0;
    {
        .param .b64 f;
        .param .b64 a;
        .param .b32 r;
        st.param.b64 [f], %rd0;
        st.param.b64 [a], %rd1;
        call (r), vprintf, (f, a);
    }
    ret;
}
"""


def test_github_does_not_obey_what_a_kernel_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "k.ptx"
    numbers = ", ".join(str(b) for b in b"::error::boo\n\0")
    path.write_text(PRINTS.replace('"::error::boo\\n"', f"{{{numbers}}}"))
    assert main(["run", str(path), "--format", "github"]) == 0
    first, text, last = capsys.readouterr().out.splitlines()
    assert text == "::error::boo"
    token = first.removeprefix("::stop-commands::")
    assert last == f"::{token}::"
    assert main(["run", str(path), "--quiet"]) == 0
    assert capsys.readouterr().out == "::error::boo\n"

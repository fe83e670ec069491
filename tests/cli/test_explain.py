"""``ptxsim explain``: every code has an explanation, and every example shows what it explains."""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ptxsim.cli import main
from ptxsim.cli.judge import CODES as JUDGE_CODES
from ptxsim.device.module import CODES as DRIVER_CODES
from ptxsim.explanations import FAULT, OTHER, Explanation, explanations, find
from ptxsim.report import FINDING_CODES
from ptxsim.resolve import CODES as ASSEMBLY_CODES
from ptxsim.syntax._messages import CODES as SYNTAX_CODES

#: Codes whose example does not show them yet; a code that does must be taken out.
PENDING: set[str] = set()  # fmt: skip

#: wgmma is not modelled, and nothing that is could show its rules; the driver of a GPU speaks only
#: where there is one, and PTX371 needs one that differs.
LATER: set[str] = {"PTX325", "PTX190", "PTX371"}

#: Findings about a whole launch, which belong to no line.
NO_LINE = {"PTX302", "PTX370"}

SOURCES = sorted((Path(__file__).parents[2] / "ptxsim").rglob("*.py"))
ALL = tuple(explanations().values())

Report = Callable[[Explanation, str], tuple[int, list[dict[str, Any]]]]


@pytest.fixture
def report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Report:
    """Runs the command that an explanation names on a text; its exit code and findings."""
    monkeypatch.chdir(tmp_path)

    def run(e: Explanation, text: str) -> tuple[int, list[dict[str, Any]]]:
        if e.prepare:
            words = shlex.split(e.prepare)
            assert words[0] == "python3"
            subprocess.run([sys.executable, *words[1:]], check=True)
        program, *words = e.command.split()
        assert program == "ptxsim"
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        capsys.readouterr()
        code = main([*words, "--format", "json"])
        out = capsys.readouterr().out
        if code == 2 and not out:  # the command needs a GPU
            return code, []
        answer = json.loads(out)
        return code, answer["findings"] if e.class_ else answer["files"][0]["diagnostics"]

    return run


def marked(text: str, mark: str) -> int:
    """The number of the line with a mark, 0 if no line has it."""
    numbers = [n for n, line in enumerate(text.splitlines(), 1) if mark in line]
    assert len(numbers) <= 1
    return numbers[0] if numbers else 0


def faults(e: Explanation, report: Report) -> list[str]:
    """What is wrong with the example of an explanation: nothing, if it shows what it should."""
    code, found = report(e, e.example)
    out = []
    if {f["code"] for f in found} != {e.code} or {f.get("class") for f in found} != {e.class_}:
        out.append(f"example: {[(f['code'], f['line'], f['message']) for f in found]}")
    elif found[0]["line"] != marked(e.example, FAULT):
        out.append(f"example: reported at line {found[0]['line']}")
    elif OTHER in e.example and found[0]["other_line"] != marked(e.example, OTHER):
        out.append(f"example: the other line is {found[0]['other_line']}")
    if code == 0 and found and any(f["severity"] == "error" for f in found):
        out.append("example: exit code 0")
    code, found = report(e, e.cured)
    if code or found:
        out.append(f"cured: {code}, {[(f['code'], f['line'], f['message']) for f in found]}")
    return out


@pytest.mark.parametrize("e", ALL, ids=lambda e: e.name.replace(" ", "-"))
def test_the_example_shows_the_code_and_the_cure_is_clean(e: Explanation, report: Report) -> None:
    if "--ptxas" in e.options and shutil.which("ptxas") is None:
        pytest.skip("ptxas is not on PATH")
    wrong = faults(e, report)
    if e.code in PENDING | LATER:
        assert wrong, f"{e.code} shows now: take it out of the list"
    else:
        assert wrong == []


class TestTheCheckCanFail:
    GOOD = explanations()["PTX341"]

    def test_a_kernel_without_fault(self, report: Report) -> None:
        kernel = "".join(f" {line}\n" for line in self.GOOD.cured.splitlines())
        assert faults(replace(self.GOOD, kernel=kernel), report) == ["example: []"]

    def test_a_mark_at_another_line(self, report: Report) -> None:
        kernel = self.GOOD.kernel.replace(FAULT, "").replace("ret;", f"ret; {FAULT}")
        assert faults(replace(self.GOOD, kernel=kernel), report) == [
            f"example: reported at line {marked(self.GOOD.example, FAULT)}"
        ]

    def test_a_cure_that_does_not_help(self, report: Report) -> None:
        kernel = "\n".join(line for line in self.GOOD.kernel.splitlines() if line[:1] != "+")
        wrong = faults(replace(self.GOOD, kernel=kernel.replace("-  ", "   ")), report)
        assert len(wrong) == 1
        assert wrong[0].startswith("cured: 1, [('PTX341', ")

    def test_another_code(self, report: Report) -> None:
        wrong = faults(replace(self.GOOD, code="PTX340", class_="oob-shared"), report)
        assert wrong[0].startswith("example: [('PTX341', ")


class TestCodes:
    def test_every_code_in_use_is_explained_and_no_other(self) -> None:
        used = {
            *FINDING_CODES.values(),
            *ASSEMBLY_CODES,
            *SYNTAX_CODES,
            *DRIVER_CODES,
            *JUDGE_CODES,
        }
        assert set(explanations()) == used

    def test_classes_are_those_of_findings(self) -> None:
        assert {e.class_: e.code for e in ALL if e.class_} == FINDING_CODES

    def test_no_code_is_written_elsewhere(self) -> None:
        written = {c for p in SOURCES for c in re.findall(r'"(PTX\d{3})"', p.read_text())}
        # PTX300 stands for a class without a code, and every class has one
        assert written - set(explanations()) == {"PTX300"}
        assert "PTX341" in written

    def test_lists_of_exceptions_hold_codes(self) -> None:
        assert set(explanations()) >= PENDING | LATER | NO_LINE
        assert not PENDING & LATER


@pytest.mark.parametrize("e", ALL, ids=lambda e: e.code)
class TestForm:
    def test_marks(self, e: Explanation) -> None:
        assert (marked(e.example, FAULT) == 0) == (e.code in NO_LINE)
        assert FAULT not in e.cured
        assert OTHER not in e.cured
        assert all(line[:1] in ("", " ", "-", "+") for line in e.kernel.splitlines())
        assert e.example != e.cured

    def test_header(self, e: Explanation) -> None:
        """An example that is run says how."""
        assert e.class_ is None or e.example.startswith("// launch: ")

    def test_words(self, e: Explanation) -> None:
        assert e.isa or e.elsewhere
        assert len(e.title) <= 60 and not e.title.endswith(".")
        assert all(s.endswith(".") for s in (e.meaning, e.cure))
        # a page indents them by two
        assert all(len(line) <= 98 for line in (e.meaning + "\n" + e.cure).splitlines())

    def test_related(self, e: Explanation) -> None:
        assert e.code not in e.related
        assert set(e.related) <= set(explanations())


class TestCommand:
    def test_page(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["explain", "PTX334"]) == 0
        e = explanations()["PTX334"]
        assert capsys.readouterr().out == (
            "PTX334 misaligned-const: misaligned access to constant memory\n\n"
            "  The address of an access must be a multiple of its size; a vector counts as a"
            " whole.\n\n"
            "example (ptxsim explain PTX334 --example | ptxsim run -):\n\n"
            + "".join(f"    {line}".rstrip() + "\n" for line in e.example.splitlines())
            + "\ncure:\n\n"
            "  Address whole elements.\n\n"
            "         mov.u64 %a, table;\n"
            "    -    ld.const.u32 %v, [%a+2];   // <-- fault\n"
            "    +    ld.const.u32 %v, [%a+4];\n"
            "         ret;\n\n"
            'source: PTX ISA 9.1, "Addresses as Operands", "Constant State Space"\n'
            "related: PTX344 oob-const\n"
        )

    def test_several_and_by_class(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["explain", "OOB-global", "ptx101", "PTX341"]) == 0
        heads = re.findall(r"^PTX\d+.*", capsys.readouterr().out, re.MULTILINE)
        # the class and the code of one explanation print it once
        assert heads == [
            "PTX341 oob-global: access outside of every allocation",
            "PTX101: unknown symbol",
        ]

    def test_what_an_example_needs(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["explain", "mismatch", "schedule-dependent"]) == 0
        out = capsys.readouterr().out
        assert "  first: python3 -c" in out
        assert "--example | ptxsim run - --schedules 4):" in out

    def test_table(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["explain"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == sorted(explanations())
        assert "PTX101                           unknown symbol" in lines
        assert "PTX341 oob-global                access outside of every allocation" in lines

    def test_example_and_cured(self, capsys: pytest.CaptureFixture[str]) -> None:
        e = explanations()["PTX341"]
        assert main(["explain", "PTX341", "--example"]) == 0
        assert capsys.readouterr().out == e.example
        assert main(["explain", "oob-global", "--cured"]) == 0
        assert capsys.readouterr().out == e.cured
        assert "    ld.global.u32 %v, [%p];   // <-- fault\n" in e.example
        assert "    @%in ld.global.u32 %v, [%p];\n" in e.cured

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["PTX3410"], "no code or class 'PTX3410'; did you mean 'PTX341' or "),
            (["oob-globl"], "no code or class 'oob-globl'; did you mean 'oob-global'"),
            (["zzz"], "no code or class 'zzz'; ptxsim explain lists all of them"),
            (["--example"], "--example and --cured print one kernel; give one CODE"),
            (["PTX341", "PTX340", "--cured"], "--example and --cured print one kernel"),
            (["PTX341", "--cured", "--example"], "not allowed with argument --cured"),
        ],
    )
    def test_usage(
        self, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["explain", *words]) == 2
        assert message in capsys.readouterr().err

    def test_imports_nothing_heavy(self) -> None:
        code = (
            "import sys; from ptxsim.cli import main; main(['explain', 'PTX341']);"
            "print(sorted({'lark', 'numpy', 'cuda'} & {m.split('.')[0] for m in sys.modules}))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines()[-1] == "[]"


def test_difference_leaves_out_what_is_far_from_a_change() -> None:
    e = Explanation("PTX999", "t", "m.", " a\n b\n-c\n+d\n e\n f\n g\n+h\n i\n j\n", "c.")
    assert e.difference == " b\n-c\n+d\n e\n...\n g\n+h\n i\n"
    assert (e.example, e.cured) == ("a\nb\nc\ne\nf\ng\ni\nj\n", "a\nb\nd\ne\nf\ng\nh\ni\nj\n")


def test_find() -> None:
    assert find("ptx341") is find("OOB-GLOBAL") is explanations()["PTX341"]
    assert find("") is None


@pytest.mark.ptxas
@pytest.mark.parametrize("e", ALL, ids=lambda e: e.code)
def test_ptxas_agrees(e: Explanation, tmp_path: Path) -> None:
    """NVIDIA's assembler takes all kernels but those that are here to be refused."""
    ptxas = shutil.which("ptxas")
    if ptxas is None:
        pytest.skip("ptxas is not on PATH")
    # how deep a text may be nested is a limit of each tool
    refused = e.class_ is None and e.code != "PTX004"
    for text, wanted in ((e.example, refused), (e.cured, False)):
        path = tmp_path / "k.ptx"
        path.write_text(text)
        (target,) = re.findall(r"^\.target (\w+)", text, re.MULTILINE)
        command = [ptxas, f"-arch={target}", "-o", str(tmp_path / "k.cubin"), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if f"'{target}' is not defined" in done.stderr:
            pytest.skip(f"this ptxas does not know {target}")
        assert (done.returncode != 0) == wanted, done.stderr

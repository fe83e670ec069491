"""The pytest plugin: each test runs pytest on a small file of its own, with the plugin loaded."""

from __future__ import annotations

import importlib
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

# loaded here, because what pytester's runs import is forgotten after each of them
import ptxsim.api
import ptxsim.cli.compare
import ptxsim.cli.run
from ptxsim import pytest_plugin
from ptxsim.pytest_plugin import PtxLaunch

pytest_plugins = ["pytester"]

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def numbers(*count: str, last: str = "") -> str:
    """A kernel that stores %v, which ``count`` computes, to y[t]; ``last`` is what it does last."""
    lines = "".join(f"    {line}\n" for line in count)
    return f"""{HEAD}.visible .entry k(.param .u64 next, .param .u64 y)
{{
    .reg .b32 %t, %v;
    .reg .b64 %n, %p, %o;
    .reg .pred %q;
    ld.param.u64 %n, [next];
    ld.param.u64 %p, [y];
    mov.u32 %t, %tid.x;
{lines}    mul.wide.u32 %o, %t, 4;
    add.u64 %p, %p, %o;
    st.global.u32 [%p], %v;
    {last}
    ret;
}}
"""


TICKET = "atom.global.add.u32 %v, [%n], 1;"
PLAIN = numbers("mov.u32 %v, %t;")
# who gets which number depends on who comes first
TICKETS = numbers(TICKET)
TRAP = HEAD + ".visible .entry k()\n{\n    trap;\n    ret;\n}\n"
GOOD = HEAD + ".visible .entry k()\n{\n    ret;\n}\n"

TESTS = f"""
import numpy as np
import pytest
import ptxsim

GOOD, TRAP, PLAIN, TICKETS = {GOOD!r}, {TRAP!r}, {PLAIN!r}, {TICKETS!r}

def buffers(n):
    return [np.zeros(1, np.uint32), ptxsim.undefined(n, np.uint32)]
"""


def run(pytester: pytest.Pytester, body: str, *options: str) -> pytest.RunResult:
    """Run a test file that has the kernels of ``TESTS`` before its body."""
    pytester.makepyfile(TESTS + body)
    return pytester.runpytest("-p", "ptxsim.pytest_plugin", "-p", "no:cacheprovider", *options)


class TestLaunch:
    def test_passes_and_returns_the_report(self, pytester: pytest.Pytester) -> None:
        result = run(
            pytester,
            """
def test_numbers(ptx_launch):
    args = buffers(64)
    report = ptx_launch(PLAIN, grid=1, block=64, args=args)
    assert report.clean and report.verdict == "clean"
    assert (args[1] == np.arange(64)).all()
    assert report.outputs["y"].undefined_bytes == 0
""",
        )
        result.assert_outcomes(passed=1)

    def test_fails_with_the_findings(self, pytester: pytest.Pytester) -> None:
        result = run(
            pytester,
            """
def test_bad(ptx_launch):
    ptx_launch(PLAIN, grid=1, block=64, args=buffers(63))
""",
        )
        result.assert_outcomes(failed=1)
        # 63 elements of 4 bytes; lane 31 of warp 1 stores the 64th
        result.stdout.fnmatch_lines(
            [
                ">*ptx_launch(PLAIN, grid=1, block=64, args=buffers(63))",
                "E*AssertionError: ptxsim reports oob-global",
                "E*<string>:15:5: error: oob-global: 4-byte access at global address *",
                "E*15 |     st.global.u32 [[]%p[]], %v;",
                "E*warp 1, lane 31*",
                "E*<string>: 'k' on sm_80: oob-global (1 error)",
            ],
            consecutive=False,
        )
        # the test's own frame is the last one that is shown
        assert "pytest_plugin.py" not in result.stdout.str()

    def test_a_path_names_the_file(self, pytester: pytest.Pytester) -> None:
        pytester.path.joinpath("trap.ptx").write_text(TRAP)
        result = run(
            pytester,
            """
from pathlib import Path

def test_word(ptx_launch):
    ptx_launch("trap.ptx", grid=1, block=1)

def test_path(ptx_launch):
    ptx_launch(Path(__file__).parent / "trap.ptx", grid=1, block=1)

def test_absent(ptx_launch):
    with pytest.raises(ptxsim.UsageError, match="cannot read absent.ptx"):
        ptx_launch("absent.ptx", grid=1, block=1)
""",
        )
        result.assert_outcomes(failed=2, passed=1)
        result.stdout.fnmatch_lines(["E*trap.ptx:6:5: error: trap: *", "E*/trap.ptx:6:5: error: *"])

    def test_invalid_ptx_and_usage(self, pytester: pytest.Pytester) -> None:
        result = run(
            pytester,
            """
def test_invalid(ptx_launch):
    ptx_launch(GOOD.replace("ret", "rett"), grid=1, block=1)

def test_invalid_is_an_error_of_ptxsim(ptx_launch):
    with pytest.raises(ptxsim.PtxError):
        ptx_launch(GOOD.replace("ret", "rett"), grid=1, block=1)

def test_usage(ptx_launch):
    ptx_launch(GOOD, grid=1, block=2000)
""",
        )
        result.assert_outcomes(failed=2, passed=1)
        result.stdout.fnmatch_lines(
            [
                "E*PtxError: <string>:6:5: error: unknown instruction 'rett' [[]PTX103[]]",
                "E*UsageError: a CTA has at most 1024 threads, *",
            ]
        )
        assert "pytest_plugin.py" not in result.stdout.str()

    def test_keywords_of_launch(self, pytester: pytest.Pytester) -> None:
        result = run(
            pytester,
            """
def test_tools(ptx_launch):
    uninit = GOOD.replace("ret;", ".reg .pred %p; @%p trap; ret;")
    ptx_launch(uninit, grid=1, block=1, tools="none")
    with pytest.raises(AssertionError, match="ptxsim reports uninit-register"):
        ptx_launch(uninit, grid=1, block=1)

def test_entry_and_target(ptx_launch):
    two = GOOD + GOOD[len(GOOD.partition(".visible")[0]):].replace("k()", "l()")
    report = ptx_launch(two, grid=1, block=1, entry="l", target="sm_90")
    assert (report.entry, report.target) == ("l", "sm_90")
""",
        )
        result.assert_outcomes(passed=2)


class TestExpect:
    def test_works(self, pytester: pytest.Pytester) -> None:
        result = run(
            pytester,
            """
def test_class(ptx_launch):
    report = ptx_launch(TRAP, grid=1, block=1, expect="trap")
    assert report.verdict == "trap"

def test_code_and_several(ptx_launch):
    ptx_launch(TRAP, grid=1, block=1, expect=["PTX301"])
""",
        )
        result.assert_outcomes(passed=2)

    def test_fails(self, pytester: pytest.Pytester) -> None:
        result = run(
            pytester,
            """
def test_clean(ptx_launch):
    ptx_launch(GOOD, grid=1, block=1, expect="oob-global")

def test_other(ptx_launch):
    ptx_launch(TRAP, grid=1, block=1, expect=["oob-global", "deadlock"])

def test_unknown(ptx_launch):
    ptx_launch(GOOD, grid=1, block=1, expect="oob-globl")
""",
        )
        result.assert_outcomes(failed=3)
        result.stdout.fnmatch_lines(
            [
                "E*AssertionError: expected oob-global; ptxsim reports no error",
                "E*<string>: 'k' on sm_80: clean",
                "E*AssertionError: expected deadlock, oob-global; ptxsim reports trap",
                "E*<string>:6:5: error: trap: *",
                "E*UsageError: expect: no class of findings 'oob-globl'; did you mean *",
            ]
        )


class TestSchedules:
    BODY = """
def test_plain(ptx_launch):
    ptx_launch(PLAIN, grid=1, block=64, args=buffers(64))

def test_tickets(ptx_launch):
    args = buffers(256)
    ptx_launch(TICKETS, grid=1, block=256, args=args)
    # the buffers are those of one launch
    assert args[0][0] == 256

def test_own_number(ptx_launch):
    args = buffers(256)
    ptx_launch(TICKETS, grid=1, block=256, args=args, schedules=0)

def test_expected(ptx_launch):
    ptx_launch(TICKETS, grid=1, block=256, args=buffers(256), schedules=4,
               expect="schedule-dependent")
"""

    def test_none_by_default(self, pytester: pytest.Pytester) -> None:
        run(pytester, self.BODY).assert_outcomes(passed=4)

    def test_buffers_are_compared(self, pytester: pytest.Pytester) -> None:
        result = run(pytester, self.BODY, "--ptxsim-schedules", "4")
        result.assert_outcomes(passed=3, failed=1)
        result.stdout.fnmatch_lines(
            [
                "*test_tickets*",
                "E*AssertionError: ptxsim reports schedule-dependent",
                # the first thread comes first, or last
                "E*error: schedule-dependent: 256 of 256 elements of 'y' depend on the schedule;"
                " the first is y[[]0]: 0 with --schedule default, 255 with --schedule reverse*",
            ]
        )

    def test_findings_of_other_schedules_count(self) -> None:
        """A launch that traps if its second warp comes first is found by some schedule."""
        text = numbers(TICKET, last="setp.ne.u32 %q, %v, %t;\n    @%q trap;")
        args = [np.zeros(1, np.uint32), np.zeros(64, np.uint32)]
        with pytest.raises(AssertionError) as error:
            PtxLaunch(8)(text, grid=1, block=64, args=args)
        assert str(error.value).startswith("ptxsim reports trap with schedule reverse")
        args = [np.zeros(1, np.uint32), np.zeros(64, np.uint32)]
        PtxLaunch(8)(text, grid=1, block=64, args=args, schedules=0)

    def test_arguments_are_as_they_were(self) -> None:
        """Repeated launches begin with the same bytes, definedness and access rights."""
        load = "ld.global.u32 %v, [%n];"
        reader, writer = numbers(load), numbers(load, last="st.global.u32 [%n], %v;")
        fixed = np.full(1, 7, np.uint32)
        fixed.flags.writeable = False
        launch = PtxLaunch(2)
        launch(reader, grid=1, block=1, args=[fixed, ptxsim.undefined(1, np.uint32)])
        launch(writer, grid=1, block=1, args=[fixed, fixed.copy()], expect="write-to-readonly")
        undefined = ptxsim.undefined(1, np.uint32)
        launch(reader, grid=1, block=1, args=[undefined, fixed.copy()], expect="uninit-global")

    def test_other_types_are_compared_as_bytes(self) -> None:
        pairs = np.zeros(128, np.dtype([("a", "u2"), ("b", "u2")]))
        with pytest.raises(AssertionError, match=r"schedule-dependent: .* of 512 elements of 'y'"):
            PtxLaunch(4)(TICKETS, grid=1, block=128, args=[np.zeros(1, np.uint32), pairs])

    def test_negative_number(self, pytester: pytest.Pytester) -> None:
        result = run(pytester, "", "--ptxsim-schedules=-1")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["ERROR: --ptxsim-schedules is a number that is not negative"])


class TestDevice:
    """No GPU, whatever the machine has; tests/device has those with one."""

    @pytest.fixture(autouse=True)
    def no_cuda(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)

    def test_marked_tests_are_skipped_with_the_reason(self, pytester: pytest.Pytester) -> None:
        body = """
@pytest.mark.ptxsim_gpu
def test_device():
    raise AssertionError

def test_other():
    pass
"""
        result = run(pytester, body, "--strict-markers", "-rs")
        result.assert_outcomes(skipped=1, passed=1)
        result.stdout.fnmatch_lines(["*no GPU: cuda-python is not installed *"])

    def test_the_marker_is_registered_by_the_plugin(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile("import pytest\n@pytest.mark.ptxsim_gp\ndef test_typo(): pass\n")
        result = pytester.runpytest("-p", "ptxsim.pytest_plugin", "--strict-markers")
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines(["*'ptxsim_gp' not found in `markers`*"])
        result = pytester.runpytest("-p", "ptxsim.pytest_plugin", "--markers")
        result.stdout.fnmatch_lines(["@pytest.mark.ptxsim_gpu: the test needs a GPU; it is *"])

    def test_the_option_is_refused_with_the_reason(self, pytester: pytest.Pytester) -> None:
        result = run(pytester, "def test_any(): pass", "--ptxsim-gpu")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(
            ["ERROR: --ptxsim-gpu: no GPU: cuda-python is not installed (*"]
        )


class TestParts:
    def test_a_text_is_assembled_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[str] = []

        def assemble(text: str, name: str, target: str | None) -> ptxsim.Module:
            made.append(name)
            return ptxsim.assemble(text, target, name)

        monkeypatch.setattr("ptxsim.cli.check.assemble_text", assemble)
        launch = PtxLaunch()
        for target in (None, None, "sm_90", None):
            launch(GOOD, grid=1, block=1, target=target)
        launch(TRAP, grid=1, block=1, expect="trap")
        # one text for two targets, and another text
        assert made == ["<string>"] * 3

    def test_advice_does_not_fail(self) -> None:
        """A sparse product of floats gives advice (PTX380), which leaves the verdict clean."""
        from ptxsim.explanations import explanations

        text = explanations()["PTX380"].example
        report = PtxLaunch()(text, grid=1, block=32)
        assert [f.class_ for f in report.findings] == ["rounding-not-established"]
        PtxLaunch()(text, grid=1, block=32, expect="rounding-not-established")

    def test_the_entry_point_leads_to_the_plugin(self) -> None:
        project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
        ((name, module),) = project["project"]["entry-points"]["pytest11"].items()
        assert importlib.import_module(module) is pytest_plugin
        # loading it by its module name as well must not register it twice
        assert name == module
        assert not any("pytest" in line for line in project["project"]["dependencies"])

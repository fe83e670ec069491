"""``ptxsim run FILE.cu``: NVRTC, faked or real, and the way back to the lines of the CUDA C++."""

from __future__ import annotations

import enum
import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ptxsim
from ptxsim.agreement import Backend, simulator
from ptxsim.cli import diff, main
from ptxsim.cli.cuda import LineMap, messages
from ptxsim.cli.main import make_parser
from ptxsim.diagnostics import Severity, Source
from ptxsim.syntax.line_table import LineTable
from tests.device.sides import rewritten

Capture = pytest.CaptureFixture[str]

#: Every thread writes its element, and those of the second CTA are beyond the buffer.
CUDA = """// launch: grid=2 block=32
// arg:    y u32[32] = undef
extern "C" __global__ void k(unsigned *y) {
    unsigned i = blockIdx.x * 32 + threadIdx.x;
    y[i] = i;
}
"""

#: What NVRTC 13.0 makes of it, shortened.
PTX = """.version 9.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 k_param_0)
{
    .reg .b32 %r<5>;
    .reg .b64 %rd<4>;
    .loc 1 3 0
    ld.param.u64 %rd1, [k_param_0];
    cvta.to.global.u64 %rd2, %rd1;
    .loc 1 4 5
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %tid.x;
    mad.lo.s32 %r3, %r1, 32, %r2;
    .loc 1 5 5
    mul.wide.u32 %rd3, %r3, 4;
    add.s64 %rd3, %rd2, %rd3;
    st.global.u32 [%rd3], %r3;
    .loc 1 6 1
    ret;
}
    .file 1 "k.cu"
"""


class _Result(enum.IntEnum):
    NVRTC_SUCCESS = 0
    NVRTC_ERROR_INVALID_OPTION = 5
    NVRTC_ERROR_COMPILATION = 6


class _Nvrtc:
    """NVRTC as cuda-python shows it, with one answer for every text."""

    nvrtcResult = _Result

    def __init__(self, status: int = 0, log: str = "", ptx: str = PTX) -> None:
        self.status, self.log, self.ptx = _Result(status), log.encode() + b"\0", ptx.encode()
        self.options: list[str] = []
        self.open = 0

    def nvrtcVersion(self) -> tuple[_Result, int, int]:
        return _Result(0), 13, 0

    def nvrtcCreateProgram(
        self, text: bytes, name: bytes, count: int, headers: list[bytes], names: list[bytes]
    ) -> tuple[_Result, object]:
        self.open += 1
        return _Result(0), self

    def nvrtcCompileProgram(
        self, program: object, count: int, options: list[bytes]
    ) -> tuple[_Result]:
        assert count == len(options)
        self.options = [o.decode() for o in options]
        return (self.status,)

    def nvrtcGetProgramLogSize(self, program: object) -> tuple[_Result, int]:
        return _Result(0), len(self.log)

    def nvrtcGetProgramLog(self, program: object, data: bytes) -> tuple[_Result]:
        return self._fill(data, self.log)

    def nvrtcGetPTXSize(self, program: object) -> tuple[_Result, int]:
        return _Result(0), len(self.ptx)

    def nvrtcGetPTX(self, program: object, data: bytes) -> tuple[_Result]:
        return self._fill(data, self.ptx)

    def nvrtcDestroyProgram(self, program: object) -> tuple[_Result]:
        self.open -= 1
        return (_Result(0),)

    @staticmethod
    def _fill(data: bytes, value: bytes) -> tuple[_Result]:
        # cuda-python writes into the memory of the bytes object
        import ctypes

        ctypes.memmove(data, value, len(value))
        return (_Result(0),)


Fake = Callable[..., _Nvrtc]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Puts a fake NVRTC in place, and ``k.cu`` into the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("k.cu").write_text(CUDA)

    def make(status: int = 0, log: str = "", ptx: str = PTX) -> _Nvrtc:
        library = _Nvrtc(status, log, ptx)
        bindings = types.ModuleType("cuda.bindings")
        monkeypatch.setattr(bindings, "nvrtc", library, raising=False)
        monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
        monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
        monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
        return library

    return make


class TestRun:
    def test_findings_stand_in_the_cuda_text(self, fake: Fake, capsys: Capture) -> None:
        library = fake()
        assert main(["run", "k.cu"]) == 1
        out = capsys.readouterr().out
        assert out.startswith("k.cu:5:5: error: oob-global: 4-byte access")
        assert "    5 |     y[i] = i;\n      |     ^~~~~~~~\n" in out
        assert "  values: ptx_line = 18\n" in out
        assert out.endswith("k.cu: 'k' on sm_80: oob-global (1 error)\n")
        assert library.options == [
            "--gpu-architecture=compute_80", "--generate-line-info", "--include-path=.",
        ]  # fmt: skip
        assert library.open == 0

    def test_json(self, fake: Fake, capsys: Capture) -> None:
        fake()
        assert main(["run", "k.cu", "--format", "json"]) == 1
        report = json.loads(capsys.readouterr().out)
        assert (report["file"], report["entry"]) == ("k.cu", "k")
        assert [(f["line"], f["column"]) for f in report["findings"]] == [(5, 5)]

    def test_suppressed_by_a_comment(self, fake: Fake, capsys: Capture) -> None:
        fake()
        ignored = CUDA.replace("y[i] = i;", "y[i] = i; // ptxsim: ignore[oob-global] known")
        Path("k.cu").write_text(ignored)
        assert main(["run", "k.cu"]) == 0
        assert "1 finding not shown: 1 ignored by comments" in capsys.readouterr().out

    def test_what_was_inlined_stands_at_its_call(self, fake: Fake, capsys: Capture) -> None:
        """The store belongs to a header, whose text lies beside the file."""
        place = ".loc 2 3 1, function_name $f, inlined_at 1 5 5\n    st.global"
        name = '.file 2 "h.cuh"\n.section .debug_str {\n$f: .b8 112, 117, 116, 0\n}\n'
        fake(ptx=PTX.replace("st.global", place) + name)
        Path("h.cuh").write_text("\n\np[i] = v;\n")
        assert main(["run", "k.cu"]) == 1
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("k.cu:5:5: error: oob-global: ")
        assert lines[3:8] == [
            "  source: h.cuh:3:1 in put",
            "    3 | p[i] = v;",
            "      | ^",
            "  inlined at: k.cu:5:5",
            "    5 |     y[i] = i;",
        ]

    def test_heat_of_the_cuda_lines(self, fake: Fake) -> None:
        fake()
        assert main(["run", "k.cu", "--grid", "1", "--html", "k.html"]) == 0
        page = Path("k.html").read_text()
        assert "unsigned i = blockIdx.x" in page
        assert "mad.lo.s32" not in page

    @pytest.mark.parametrize(
        ("words", "first", "want"),
        [
            ([], "", "compute_80"),
            ([], " target=sm_90a", "compute_90a"),
            (["--target", "sm_100"], " target=sm_90a", "compute_100"),
        ],
    )
    def test_target(self, words: list[str], first: str, want: str, fake: Fake) -> None:
        library = fake()
        Path("k.cu").write_text(CUDA.replace("block=32", f"block=32{first}"))
        assert main(["run", "k.cu", "--grid", "1", *words]) == 0
        assert library.options[0] == f"--gpu-architecture={want}"

    def test_headers_and_macros(self, fake: Fake) -> None:
        library = fake()
        words = ["-I", "include", "-D", "N=3", "-DM", "--grid", "1"]
        assert main(["run", "k.cu", *words]) == 0
        assert library.options[2:] == [
            "--include-path=include", "--include-path=.", "--define-macro=N=3", "--define-macro=M",
        ]  # fmt: skip

    def test_the_command_to_paste_has_them(self, fake: Fake, capsys: Capture) -> None:
        fake()
        Path("k.cu").write_text(CUDA.split("\n", 2)[2])
        assert main(["run", "k.cu", "-DM"]) == 2
        assert "ptxsim run k.cu --entry k -D M --grid 1" in capsys.readouterr().err

    def test_unknown_target(self, fake: Fake, capsys: Capture) -> None:
        fake()
        assert main(["run", "k.cu", "--target", "sm_1"]) == 2
        assert capsys.readouterr().err.startswith("ptxsim: unknown target 'sm_1'; known: sm_10,")

    def test_a_target_that_the_compiler_does_not_know(self, fake: Fake, capsys: Capture) -> None:
        library = fake(5, "nvrtc: error: invalid value for --gpu-architecture (-arch)\n")
        assert main(["run", "k.cu", "--target", "sm_50"]) == 2
        assert capsys.readouterr().err == (
            "ptxsim: NVRTC cannot compile k.cu for sm_50:"
            " nvrtc: error: invalid value for --gpu-architecture (-arch)\n"
        )
        assert library.open == 0

    def test_nul(self, fake: Fake, capsys: Capture) -> None:
        """NVRTC would stop reading there."""
        fake()
        Path("k.cu").write_text(CUDA + "\0")
        assert main(["run", "k.cu"]) == 2
        assert capsys.readouterr().err == "ptxsim: cannot compile k.cu: it holds a NUL character\n"

    def test_a_header_of_ptx_names_its_target_too(self, fake: Fake, capsys: Capture) -> None:
        Path("k.ptx").write_text("// launch: grid=1 block=1 target=sm_90\n.version 8.0\n"
                                 ".target sm_80\n.visible .entry k() { ret; }\n")  # fmt: skip
        assert main(["run", "k.ptx"]) == 0
        assert capsys.readouterr().out == "k.ptx: 'k' on sm_90: clean\n"


class TestDiff:
    """``ptxsim diff FILE.cu``, with a simulator that differs in the place of a GPU."""

    def diff(self, other: Backend, *options: str) -> int:
        words = ["diff", "k.cu", "--arg", "y=u32[64]:undef", *options]
        return diff.execute(make_parser().parse_args(words), other)

    def test_a_difference_stands_in_the_cuda_text(self, fake: Fake, capsys: Capture) -> None:
        fake()
        other = rewritten(lambda t: t.replace("mad.lo.s32 %r3, %r1, 32", "mad.lo.s32 %r3, %r1, 16"))

        def silent(*launch: Any) -> ptxsim.Report:
            report = other(*launch)
            report.findings = ()
            return report

        assert self.diff(silent, "--bisect", "--format", "concise") == 1
        out = capsys.readouterr().out.splitlines()
        assert out[0].startswith("k.cu:5:5: hardware-mismatch: ")
        assert out[1].startswith("k.cu:4:5: hardware-mismatch: mad.lo.s32 is the first instruction")
        assert out[2:] == ["k.cu: 'k' on sm_80: hardware-mismatch (2 errors)",
                           "compared with the GPU: y"]  # fmt: skip

    def test_recorded_and_compared(self, fake: Fake, capsys: Capture) -> None:
        fake()
        assert self.diff(simulator, "--record", "r.json") == 0
        assert main(["diff", "k.cu", "--replay", "r.json"]) == 0
        fake(ptx=PTX + "// another version\n")
        assert main(["diff", "k.cu", "--replay", "r.json"]) == 2
        told = capsys.readouterr().err
        assert told == (
            "ptxsim: r.json was recorded from another text than k.cu; what NVRTC makes of it may"
            " have changed\n"
        )

    def test_a_line_of_it_is_no_place_for_registers(self, fake: Fake, capsys: Capture) -> None:
        fake()
        assert main(["diff", "k.cu", "--state", "5"]) == 2
        assert "--state of CUDA C++ is 'exit'" in capsys.readouterr().err
        assert self.diff(simulator, "--state", "exit") == 0


class TestErrors:
    #: As NVRTC 13.0 writes it.
    LOG = (
        'k.cu(5): error: identifier "n" is undefined\n'
        "      y[i] = n;\n"
        "             ^\n\n"
        'inc.h(2): error: expected a ";"\n\n'
        '2 errors detected in the compilation of "k.cu".\n'
    )

    def test_they_are_shown_at_their_lines(self, fake: Fake, capsys: Capture) -> None:
        library = fake(6, self.LOG)
        assert main(["run", "k.cu"]) == 3
        assert capsys.readouterr().err == (
            'k.cu:5:12: error: identifier "n" is undefined [NVRTC]\n'
            "    5 |     y[i] = i;\n"
            "      |            ^\n"
            'k.cu:1:1: error: inc.h:2: expected a ";" [NVRTC]\n'
            "    1 | // launch: grid=2 block=32\n"
            "      | ^\n"
        )
        assert library.open == 0

    def test_json(self, fake: Fake, capsys: Capture) -> None:
        fake(6, self.LOG)
        assert main(["run", "k.cu", "--format", "json"]) == 3
        report = json.loads(capsys.readouterr().out)
        assert report["verdict"] == "static-error"
        assert [(f["line"], f["column"]) for f in report["findings"]] == [(5, 12), (1, 1)]

    def test_an_error_in_another_form(self, fake: Fake, capsys: Capture) -> None:
        fake(6, "out of\n memory")
        assert main(["run", "k.cu"]) == 3
        assert capsys.readouterr().err.startswith("k.cu:1:1: error: out of memory [NVRTC]\n")

    @pytest.mark.parametrize("quiet", [False, True])
    def test_warnings_change_nothing(self, quiet: bool, fake: Fake, capsys: Capture) -> None:
        fake(0, 'k.cu(4): warning #177-D: variable "unused" was declared\n')
        assert main(["run", "k.cu", "--grid", "1", *["--quiet"] * quiet]) == 0
        said = 'k.cu:4:5: warning: variable "unused" was declared\n'
        assert capsys.readouterr().err == ("" if quiet else said)

    def test_numbers_are_codes(self) -> None:
        log = "k.cu(1): error #20: no\nk.cu(2): catastrophic error: y\nk.cu(3): warning #39-D: z\n"
        found = messages(log, Source("k.cu", "a\nb\nc\n"))
        assert [(d.code, d.span.line, d.severity) for d in found] == [
            ("NVRTC20", 1, Severity.ERROR),
            ("NVRTC", 2, Severity.ERROR),
            ("NVRTC39", 3, Severity.WARNING),
        ]


class TestWithout:
    def test_no_bindings(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setitem(sys.modules, "cuda", None)
        Path("k.cu").write_text(CUDA)
        assert main(["run", "k.cu"]) == 2
        assert capsys.readouterr().err == (
            "ptxsim: CUDA C++ needs NVRTC, which is not here; pip install 'ptxsim[nvidia]'\n"
        )

    def test_bindings_without_the_library(
        self, fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: Capture
    ) -> None:
        def version() -> None:
            raise RuntimeError("libnvrtc.so.13 not found")

        monkeypatch.setattr(fake(), "nvrtcVersion", version)
        assert main(["run", "k.cu"]) == 2
        assert "pip install 'ptxsim[nvidia]'" in capsys.readouterr().err


class TestLineMap:
    def test_inlined_code_stands_where_the_call_is(self) -> None:
        ptx = "\n".join([
            ".func f()", "{", "add;",
            ".loc 2 9 9", "add;",
            ".loc 1 5 1", "add;",
            ".loc 2 7 3, function_name $L__info_string0, inlined_at 1 6 4", "add;",
            ".loc 2 8 3, function_name $L__info_string1+20, inlined_at 2 7 3", "add;",
            "}", ".visible .entry k()", "add;",
            '.file 1 "a.cu"', '.file 2 "/x/b.h"',
        ])  # fmt: skip
        lines = LineMap(LineTable(ptx), "a.cu")
        added = [n for n, line in enumerate(ptx.split("\n"), 1) if line == "add;"]
        assert [lines.place(n) for n in added] == [
            (0, 0), (0, 0), (5, 1), (6, 4), (6, 4), (0, 0),
        ]  # fmt: skip

    def test_names_beyond_ascii(self) -> None:
        ptx = '.loc 1 5 1\nadd;\n.file 1 "\\303\\251 \\"1\\".cu"\n'
        assert LineMap(LineTable(ptx), 'é "1".cu').place(2) == (5, 1)

    def test_words(self) -> None:
        lines = LineMap(LineTable('.loc 1 5 1\nadd;\n.file 1 "a.cu"'), "a.cu")
        assert lines._words("at line 2 and line 7") == "at line 5 and PTX line 7"


def test_real(tmp_path: Path, capsys: Capture) -> None:
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-python is not installed")
    try:
        nvrtc.nvrtcVersion()
    except RuntimeError:
        pytest.skip("the library NVRTC is not installed")
    path = tmp_path / "é.cu"
    path.write_text(CUDA)
    assert main(["run", str(path), "--format", "concise"]) == 1
    assert capsys.readouterr().out.startswith(f"{path}:5:5: oob-global: ")
    path.write_text(CUDA.replace("= i;", "= n;"))
    assert main(["run", str(path), "--format", "concise"]) == 3
    assert capsys.readouterr().err == (f'{path}:5:12: error: identifier "n" is undefined [NVRTC]\n')

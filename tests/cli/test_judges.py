"""``ptxsim check --ptxas`` and ``--cubin``: NVIDIA's assembler is asked, faked or real."""

from __future__ import annotations

import io
import json
import shutil
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from ptxsim.cli import main
from ptxsim.nvidia import find_assembler, retarget, target_of
from ptxsim.nvidia.assembler import Message, Ptxas, Verdict, parse_messages, verdict_of

GOOD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k()
{
    ret;
}
"""
BAD = GOOD.replace("ret;", "retire;")
#: Legal, and not modelled.
LATER = GOOD.replace("ret;", "barrier.cluster.arrive;\n    ret;").replace("sm_80", "sm_90")

Capture = pytest.CaptureFixture[str]
Fake = Callable[[str], Path]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Makes a Python text the ``ptxas`` of the PATH; it sees ``words`` and the PTX as ``text``."""

    def make(body: str) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        program = folder / "ptxas"
        log = folder / "log"
        program.write_text(
            f"#!{sys.executable}\n"
            "import os, signal, sys, time\n"
            "words = sys.argv[1:]\n"
            "if words == ['--version']:\n"
            "    print('Cuda compilation tools, release 13.0, V13.0.88'); sys.exit()\n"
            "text = open(words[-1], encoding='utf-8').read()\n"
            f"with open({str(log)!r}, 'a') as out: out.write(' '.join(words) + '\\n')\n"
            "def say(line): print(line, file=sys.stderr)\n" + body
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))
        return log

    return make


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], str]:
    monkeypatch.chdir(tmp_path)

    def make(name: str, text: str) -> str:
        Path(name).write_text(text, encoding="utf-8")
        return name

    return make


Write = Callable[[str, str], str]

#: As ptxas 13.0 writes it.
REJECT = (
    "say('ptxas module.ptx, line 6; error   : Not today')\n"
    "say('ptxas fatal   : Ptx assembly aborted due to errors'); sys.exit(255)\n"
)
ACCEPT = "open('module.cubin', 'wb').write(b'\\x7fELF' + text.encode())\n"


class TestMessages:
    """The lines are those that ptxas 13.0 and nvJitLink 13.0 wrote."""

    @pytest.mark.parametrize(
        ("log", "want"),
        [
            ("ptxas bad.ptx, line 7; error   : Unknown modifier '.u99'\n"
             "ptxas fatal   : Ptx assembly aborted due to errors\n",
             (Message(7, "Unknown modifier '.u99'"),)),
            ("ptxas application ptx input, line 5; fatal   : Parsing error near '': syntax error",
             (Message(5, "Parsing error near '': syntax error"),)),
            ("ptxas fatal   : Unexpected non-ASCII character encountered on line 12",
             (Message(12, "Unexpected non-ASCII character encountered on line 12"),)),
            ("ptxas error   : Entry function 'k' uses too much shared data (0x186a0 bytes)",
             (Message(0, "Entry function 'k' uses too much shared data (0x186a0 bytes)"),)),
            ("error   : Undefined reference to 'foo' in 'module.ptx'\nERROR 1: finish\n",
             (Message(0, "Undefined reference to 'foo' in 'module.ptx'"),)),
            ("ptxas a, line 2; b.ptx, line 3; error : x\r\nptxas a.ptx, line 3; error : x\n",
             (Message(3, "x"),)),
            ("ptxas fatal   : Ptx assembly aborted due to errors\n",
             (Message(0, "Ptx assembly aborted due to errors"),)),
            ("ptxas k.ptx, line 104; warning : '.satfinite' is deprecated: error : no\n"
             "ptxas warning : .loc directive without .file\nptxas info    : 0 bytes gmem\n", ()),
        ],
    )  # fmt: skip
    def test_errors(self, log: str, want: tuple[Message, ...]) -> None:
        assert parse_messages(log) == want

    @pytest.mark.parametrize(
        ("log", "accepted", "first"),
        [
            ("ptxas fatal   : Value 'sm_50' is not defined for option 'gpu-name'", None,
             "Value 'sm_50' is not defined for option 'gpu-name'"),
            ("ptxas k.ptx, line 9; fatal   : Unsupported .version 9.5; current version is '9.0'",
             None, "Unsupported .version 9.5; current version is '9.0'"),
            ("error while loading\nshared libraries", None, "error while loading shared libraries"),
            ("", None, "it failed in silence"),
            ("ptxas k.ptx, line 9; error : Unknown modifier '.x'", False, "Unknown modifier '.x'"),
        ],
    )  # fmt: skip
    def test_what_is_a_rejection(self, log: str, accepted: bool | None, first: str) -> None:
        verdict = verdict_of(log)
        assert (verdict.accepted, verdict.messages[0].text) == (accepted, first)


class TestTarget:
    @pytest.mark.parametrize(
        ("text", "want"),
        [
            (GOOD, "sm_80"),
            ("/* .target sm_70\n */ .version 8.0 .target\n sm_90a, debug\n", "sm_90a"),
            ("// .target sm_70\n", None),
            ("/* .target sm_70", None),
            ("", None),
        ],
    )
    def test_of_a_text(self, text: str, want: str | None) -> None:
        assert target_of(text) == want

    def test_another_one(self) -> None:
        text = "// .target sm_70\n.version 8.0\n.target sm_80, debug\n"
        assert retarget(text, "sm_90a") == "// .target sm_70\n.version 8.0\n.target sm_90a, debug\n"
        assert retarget("nothing", "sm_90a") == "nothing"


class TestCheck:
    def test_agreement_keeps_the_own_exit_code(
        self, fake: Fake, write: Write, capsys: Capture
    ) -> None:
        log = fake(f"if 'retire' in text:\n    {REJECT.replace(chr(10), chr(10) + '    ')}\n")
        files = [write("a.ptx", GOOD), write("b.ptx", LATER), write("c.ptx", BAD)]
        assert main(["check", "--ptxas", files[0]]) == 0
        assert capsys.readouterr().out == "1 file checked: all good\nptxas 13.0.88: all good\n"
        assert main(["check", "--ptxas", files[1]]) == 4
        assert main(["check", "--ptxas", *files]) == 3
        out = capsys.readouterr().out
        assert out.endswith("3 files checked: 1 invalid, 1 not modelled\nptxas 13.0.88: all good\n")
        assert log.read_text().splitlines()[1] == (
            "--compile-only --gpu-name=sm_90 --output-file=module.cubin module.ptx"
        )

    def test_not_asked(self, fake: Fake, write: Write, capsys: Capture) -> None:
        log = fake(REJECT)
        assert main(["check", write("a.ptx", GOOD)]) == 0
        assert not log.exists()
        assert capsys.readouterr().out == "1 file checked: all good\n"

    def test_it_rejects_what_is_accepted(self, fake: Fake, write: Write, capsys: Capture) -> None:
        fake(REJECT)
        assert main(["check", "--ptxas", write("a.ptx", GOOD)]) == 1
        assert capsys.readouterr().out == (
            "a.ptx:6:5: error: ptxsim accepts, ptxas 13.0.88 rejects: Not today [PTX401]\n"
            "    6 |     ret;\n"
            "      |     ^~~~\n"
            "  help: what counts for a GPU is NVIDIA's assembler\n"
            "1 file checked: all good\n"
            "ptxas 13.0.88: 1 in disagreement\n"
        )

    def test_it_accepts_what_is_rejected(self, fake: Fake, write: Write, capsys: Capture) -> None:
        """A disagreement comes before the exit code of another file that is invalid."""
        fake("if 'other' in text:\n    say('ptxas error : x'); sys.exit(1)\n")
        files = [write("a.ptx", BAD), write("b.ptx", BAD.replace("retire", "other"))]
        assert main(["check", "--ptxas", "--format", "concise", *files]) == 1
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("a.ptx:6:5: error: unknown instruction 'retire'")
        assert lines[1] == (
            "a.ptx:6:5: error: ptxsim rejects, ptxas 13.0.88 accepts: "
            + lines[0].split("error: ")[1].removesuffix(" [PTX103]")
            + " [PTX103] [PTX401]"
        )
        assert lines[-2:] == ["2 files checked: 2 invalid", "ptxas 13.0.88: 1 in disagreement"]

    def test_warnings_are_no_disagreement(self, fake: Fake, write: Write, capsys: Capture) -> None:
        fake("say('ptxas module.ptx, line 6; warning : old'); say('ptxas info    : 0 bytes gmem')")
        assert main(["check", "--ptxas", write("a.ptx", GOOD)]) == 0
        assert capsys.readouterr().out.endswith("ptxas 13.0.88: all good\n")

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            ("say(\"ptxas fatal   : Value 'sm_80' is not defined for option 'gpu-name'\")\n"
             "sys.exit(255)", "Value 'sm_80' is not defined for option 'gpu-name'"),
            ("os.kill(os.getpid(), signal.SIGSEGV)", "ended by SIGSEGV"),
            ("os.write(2, b'\\xff no library'); sys.exit(127)", "\ufffd no library"),
        ],
    )  # fmt: skip
    def test_not_judged(
        self, body: str, reason: str, fake: Fake, write: Write, capsys: Capture
    ) -> None:
        fake(body)
        assert main(["check", "--ptxas", write("a.ptx", GOOD)]) == 0
        assert capsys.readouterr().out == (
            f"a.ptx: not judged by ptxas 13.0.88: {reason}\n"
            "1 file checked: all good\nptxas 13.0.88: 1 not judged\n"
        )

    def test_no_answer(self, fake: Fake) -> None:
        log = fake("time.sleep(60)")
        verdict = Ptxas(str(log.parent / "ptxas"), timeout=1).judge(GOOD, "sm_80")
        assert verdict == Verdict(None, (Message(0, "no answer within 1 seconds"),))

    def test_json(self, fake: Fake, write: Write, capsys: Capture) -> None:
        fake(REJECT)
        assert main(["check", "--ptxas", "--format", "json", write("a.ptx", GOOD)]) == 1
        (file,) = json.loads(capsys.readouterr().out)["files"]
        assert file["verdict"] == "disagreement"
        assert file["assembler"] == {
            "name": "ptxas 13.0.88",
            "verdict": "rejected",
            "messages": [{"line": 6, "message": "Not today"}],
        }
        assert [(d["code"], d["line"]) for d in file["diagnostics"]] == [("PTX401", 6)]

    def test_sarif(self, fake: Fake, write: Write, capsys: Capture) -> None:
        fake(REJECT)
        assert main(["check", "--ptxas", "--format", "sarif", write("a.ptx", GOOD)]) == 1
        (run,) = json.loads(capsys.readouterr().out)["runs"]
        assert [r["ruleId"] for r in run["results"]] == ["PTX401"]

    def test_the_target_is_that_of_the_option(self, fake: Fake, write: Write) -> None:
        log = fake("assert '.target sm_90a\\n' in text\n" + ACCEPT)
        assert main(["check", "--ptxas", "--target", "sm_90a", write("a.ptx", GOOD)]) == 0
        assert "--gpu-name=sm_90a" in log.read_text()

    def test_standard_input_without_entry(
        self, fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: Capture
    ) -> None:
        fake(ACCEPT)
        monkeypatch.setattr(sys, "stdin", io.StringIO(".version 8.0\n.target sm_80\n"))
        assert main(["check", "--ptxas", "-"]) == 0

    def test_not_utf8(self, fake: Fake, tmp_path: Path, capsys: Capture) -> None:
        log = fake(ACCEPT)
        (tmp_path / "a.ptx").write_bytes(b"\xff" + GOOD.encode())
        assert main(["check", "--ptxas", str(tmp_path / "a.ptx")]) == 2
        assert "not UTF-8" in capsys.readouterr().err
        assert not log.exists()


class TestCubin:
    def test_written(self, fake: Fake, write: Write, tmp_path: Path) -> None:
        log = fake(ACCEPT)
        words = ["check", write("a.ptx", GOOD), "--cubin", "out.cubin", "--target", "sm_90"]
        assert main(words) == 0
        text = GOOD.replace("sm_80", "sm_90")
        assert Path("out.cubin").read_bytes() == b"\x7fELF" + text.encode()
        # one object to judge, one whole program to load
        assert [("--compile-only" in line) for line in log.read_text().splitlines()] == [
            True,
            False,
        ]
        assert sorted(p.name for p in tmp_path.iterdir()) == ["a.ptx", "bin", "out.cubin"]

    def test_nothing_is_written_of_what_is_rejected(
        self, fake: Fake, write: Write, capsys: Capture
    ) -> None:
        fake(REJECT)
        Path("out.cubin").write_bytes(b"old")
        assert main(["check", write("a.ptx", GOOD), "--cubin", "out.cubin"]) == 1
        assert Path("out.cubin").read_bytes() == b"old"
        assert capsys.readouterr().err == "ptxsim: out.cubin is not written\n"

    def test_what_cannot_be_linked(self, fake: Fake, write: Write, capsys: Capture) -> None:
        fake(
            "if '--compile-only' not in words:\n"
            "    say(\"ptxas fatal   : Unresolved extern function 'f'\"); sys.exit(255)\n"
        )
        assert main(["check", write("a.ptx", GOOD), "--cubin", "out.cubin"]) == 2
        assert capsys.readouterr().err == (
            "ptxsim: no cubin: ptxas 13.0.88: Unresolved extern function 'f'\n"
        )
        assert not Path("out.cubin").exists()

    @pytest.mark.parametrize(
        "words", [["a.ptx", "b.ptx", "--cubin", "x"], ["a.ptx", "--cubin", "-"]]
    )
    def test_usage(self, words: list[str], fake: Fake, write: Write, capsys: Capture) -> None:
        fake(ACCEPT)
        write("a.ptx", GOOD)
        write("b.ptx", GOOD)
        assert main(["check", *words]) == 2
        assert capsys.readouterr().err == (
            "ptxsim: --cubin needs one PTX file, and a file to write\n"
        )


class TestWithout:
    def test_neither(self, write: Write, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
        monkeypatch.setenv("PATH", "")
        monkeypatch.setitem(sys.modules, "cuda", None)
        assert main(["check", "--ptxas", write("a.ptx", GOOD)]) == 2
        assert capsys.readouterr().err == (
            "ptxsim: there is neither ptxas nor nvJitLink; pip install 'ptxsim[nvidia]'\n"
        )

    def test_a_ptxas_that_does_not_start(self, fake: Fake, write: Write, capsys: Capture) -> None:
        log = fake("")
        (log.parent / "ptxas").write_text("#!/no/such/program\n")
        assert main(["check", "--ptxas", write("a.ptx", GOOD)]) == 2
        assert capsys.readouterr().err.startswith("ptxsim: cannot run ")


class _Link:
    """nvJitLink as cuda-python shows it, with one answer for every text."""

    class nvJitLinkError(Exception):
        pass

    InputType = types.SimpleNamespace(PTX="PTX")

    def __init__(self, log: str = "", fails: str = "") -> None:
        self.said, self.fails = log.encode(), fails
        self.open = 0
        self.options: list[str] = []

    def version(self) -> tuple[int, int]:
        return 13, 0

    def _step(self, name: str, status: str) -> None:
        if self.fails == name:
            raise self.nvJitLinkError(status)

    def create(self, count: int, options: list[str]) -> int:
        assert count == len(options)
        self.options = options
        self._step("create", "ERROR_UNSUPPORTED_ARCH (17)")
        self.open += 1
        return 7

    def add_data(self, handle: int, kind: str, data: bytes, size: int, name: str) -> None:
        assert (handle, kind, size) == (7, "PTX", len(data))
        self._step("add_data", "ERROR_PTX_COMPILE (4)")

    def complete(self, handle: int) -> None:
        self._step("complete", "ERROR_INTERNAL (6)")

    def destroy(self, handle: int) -> None:
        self.open -= 1

    def get_error_log_size(self, handle: int) -> int:
        return len(self.said)

    def get_error_log(self, handle: int, log: bytearray) -> None:
        log[:] = self.said

    def get_linked_cubin_size(self, handle: int) -> int:
        return 4

    def get_linked_cubin(self, handle: int, image: bytearray) -> None:
        image[:] = b"\x7fELF"


class TestNvJitLink:
    @pytest.fixture
    def link(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., _Link]:
        def make(log: str = "", fails: str = "") -> _Link:
            library = _Link(log, fails)
            bindings = types.ModuleType("cuda.bindings")
            monkeypatch.setattr(bindings, "nvjitlink", library, raising=False)
            monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
            monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
            monkeypatch.setenv("PATH", "")
            return library

        return make

    @pytest.mark.parametrize(
        ("log", "fails", "want"),
        [
            ("", "", Verdict(True)),
            ("ptxas application ptx input, line 4; error   : No\n\0", "add_data",
             Verdict(False, (Message(4, "No"),))),
            ("", "add_data", Verdict(False, (Message(0, "ERROR_PTX_COMPILE (4)"),))),
            ("ERROR 1: bad input: does not match type NVJITLINK_INPUT_PTXmodule.ptx\n\0",
             "add_data", Verdict(False, (Message(0, "ERROR 1: bad input: does not match type"
                                                    " NVJITLINK_INPUT_PTXmodule.ptx"),))),
            ("", "create", Verdict(None, (Message(0, "ERROR_UNSUPPORTED_ARCH (17) (sm_80)"),))),
            # what another module defines is no fault of the text
            ("error   : Undefined reference to 'foo' in 'module.ptx'\nERROR 1: finish\n\0",
             "complete", Verdict(True, (Message(0, "Undefined reference to 'foo' in"
                                                   " 'module.ptx'"),))),
            ("ptxas application ptx input, line 4; error   : No\n\0", "complete",
             Verdict(False, (Message(4, "No"),))),
        ],
    )  # fmt: skip
    def test_verdict(self, log: str, fails: str, want: Verdict, link: Callable[..., _Link]) -> None:
        library = link(log, fails)
        assembler = find_assembler()
        assert assembler.name == "nvJitLink 13.0"
        assert assembler.judge(GOOD, "sm_80") == want
        assert library.options == ["-arch=sm_80"]
        assert library.open == 0

    def test_cubin(self, link: Callable[..., _Link], write: Write, capsys: Capture) -> None:
        link()
        assert main(["check", write("a.ptx", GOOD), "--cubin", "a.cubin"]) == 0
        assert Path("a.cubin").read_bytes() == b"\x7fELF"
        link("error   : Undefined reference to 'foo'\n\0", "complete")
        assert main(["check", "a.ptx", "--cubin", "b.cubin"]) == 2
        assert capsys.readouterr().err == (
            "ptxsim: no cubin: nvJitLink 13.0: Undefined reference to 'foo'\n"
        )

    def test_bindings_without_the_library(
        self, link: Callable[..., _Link], write: Write, monkeypatch: pytest.MonkeyPatch,
        capsys: Capture,
    ) -> None:  # fmt: skip
        library = link()

        def version() -> tuple[int, int]:
            raise RuntimeError("libnvJitLink.so.13 not found")

        monkeypatch.setattr(library, "version", version)
        assert main(["check", "--ptxas", write("a.ptx", GOOD)]) == 2
        assert "pip install 'ptxsim[nvidia]'" in capsys.readouterr().err


#: An extern function, too much shared memory for a GPU, and a deprecated modifier: all legal.
EXTERN = GOOD.replace(".visible", ".extern .func f();\n.visible").replace(
    "ret;", "call f;\n    ret;"
)


def _real(name: str) -> None:
    if name == "ptxas":
        if shutil.which("ptxas") is None:
            pytest.skip("ptxas is not on PATH")
        return
    library = pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-python is not installed")
    try:
        library.version()
    except RuntimeError:
        pytest.skip("the library nvJitLink is not installed")


@pytest.mark.ptxas
@pytest.mark.parametrize("name", ["ptxas", "nvJitLink"])
class TestReal:
    @pytest.fixture(autouse=True)
    def chosen(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        _real(name)
        if name == "nvJitLink":
            monkeypatch.setenv("PATH", "")

    def test_verdicts(self, name: str, write: Write, capsys: Capture) -> None:
        good, bad, extern = write("a.ptx", GOOD), write("b.ptx", BAD), write("c.ptx", EXTERN)
        assert main(["check", "--ptxas", good, extern]) == 0
        assert main(["check", "--ptxas", bad]) == 3
        assert f"\n{name} " in capsys.readouterr().out

    def test_it_rejects_what_is_accepted(self, name: str, write: Write, capsys: Capture) -> None:
        """``.const::0`` is what a later version knows."""
        body = ".reg .b32 %r; .const .b32 c; ld.const::0.b32 %r, [c]; ret;"
        assert main(["check", "--ptxas", write("a.ptx", GOOD.replace("ret;", body))]) == 1
        assert "a.ptx:6:5: error: ptxsim accepts, " in capsys.readouterr().out

    def test_cubin(self, name: str, write: Write, capsys: Capture) -> None:
        assert main(["check", write("a.ptx", GOOD), "--cubin", "a.cubin"]) == 0
        assert Path("a.cubin").read_bytes()[:4] == b"\x7fELF"
        assert main(["check", write("c.ptx", EXTERN), "--cubin", "c.cubin"]) == 2
        assert "'f'" in capsys.readouterr().err
        assert not Path("c.cubin").exists()


def _files() -> list[str]:
    root = Path(__file__).parents[1]
    return sorted(map(str, [*root.glob("corpus/*.ptx"), *root.glob("lowering/golden/*.ptx")]))


@pytest.mark.ptxas
@pytest.mark.parametrize(
    "files",
    [
        pytest.param(_files()[::12], id="sample"),
        pytest.param(_files(), id="all", marks=pytest.mark.slow),
    ],
)
def test_the_corpus_and_the_lowering_are_agreed_on(files: list[str], capsys: Capture) -> None:
    _real("ptxas")
    code = main(["check", "--ptxas", "--format", "json", *files])
    checked = json.loads(capsys.readouterr().out)["files"]
    assert [f["file"] for f in checked if f["verdict"] == "disagreement"] == []
    assert code in (0, 4)
    assert sum(f["assembler"]["verdict"] == "accepted" for f in checked) > len(files) // 2

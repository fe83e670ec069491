"""``ptxsim diff`` and what it rests on: last writers, tolerances and where they apply.

There is no GPU here: the other side is the simulator with deliberate differences.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptxsim
import ptxsim.isa
from ptxsim.agreement import Backend, Shape, simulate, simulator
from ptxsim.agreement.taint import approximate_sources, spread
from ptxsim.agreement.values import close
from ptxsim.cli import diff
from ptxsim.cli.main import main, make_parser
from ptxsim.isa.record import Mods, Tolerance, registry
from tests.device.sides import bits_changed, rewritten

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"

#: y = 2^x is approximate, z = x + x is not; x goes through shared memory first.
TWO = (
    """\
// launch: grid=2 block=32
// arg:    x f32[64] = iota / 8
// arg:    y f32[64] = undef
// arg:    z f32[64] = undef
"""
    + HEAD
    + """.visible .entry k(.param .u64 x, .param .u64 y, .param .u64 z)
{
    .shared .b32 s[32];
    .reg .b64 %x, %y, %z, %o;
    .reg .b32 %t, %c, %g, %a;
    .reg .f32 %v, %e, %w;
    ld.param.u64 %x, [x]; ld.param.u64 %y, [y]; ld.param.u64 %z, [z];
    mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x;
    mad.lo.u32 %g, %c, 32, %t;
    mul.wide.u32 %o, %g, 4;
    add.u64 %x, %x, %o; add.u64 %y, %y, %o; add.u64 %z, %z, %o;
    shl.b32 %a, %t, 2; mov.u32 %c, s; add.u32 %a, %a, %c;
    ld.global.f32 %v, [%x];
    st.shared.f32 [%a], %v;
    ld.shared.f32 %v, [%a];
    ex2.approx.f32 %e, %v;
    st.global.f32 [%y], %e;
    add.f32 %w, %v, %v;
    st.global.f32 [%z], %w;
    ret;
}
"""
)

Run = Callable[..., tuple[int, dict[str, Any]]]


def lines(text: str, word: str) -> list[int]:
    """The numbers of the lines that hold a word."""
    return [n for n, line in enumerate(text.splitlines(), 1) if word in line]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command on a text against another side; exit code and JSON report."""

    def run(text: str, other: Backend, *options: str) -> tuple[int, dict[str, Any]]:
        path = tmp_path / "k.ptx"
        path.write_text(text)
        args = make_parser().parse_args(["diff", str(path), "--format", "json", *options])
        code = diff.execute(args, other)
        return code, json.loads(capsys.readouterr().out)

    return run


def add_to(index: int, n: int) -> Callable[[Any], None]:
    """Move an element by ``n`` units in the last place."""

    def change(bits: Any) -> None:
        bits[index] += n

    return change


class TestCommand:
    def test_agreement(self, run: Run) -> None:
        code, report = run(TWO, simulator)
        assert (code, report["verdict"], report["findings"]) == (0, "clean", [])
        assert report["counters"]["elements_within_tolerance"] == 0

    def test_one_ulp_of_an_exact_result_is_a_difference(self, run: Run) -> None:
        # element 37 is of CTA 1, lane 5; z[37] = 2 * 37 / 8 = 9.25 = 0x41140000
        code, report = run(TWO, bits_changed(2, add_to(37, 1)))
        (f,) = report["findings"]
        assert (code, f["class"], f["code"]) == (1, "hardware-mismatch", "PTX371")
        assert f["line"] == lines(TWO, "[%z], %w")[0]
        assert f["message"] == (
            "1 of 64 elements of 'z' differ from the GPU; the first is z[37]: 9.25 (0x41140000)"
            " on the simulator instead of 9.25000095 (0x41140001), 1 ulp apart"
        )
        assert (f["ctas"], f["warp"], f["lanes"], f["count"]) == ([[1, 0, 0]], 0, [5], 1)
        assert f["help"] == "no approximate instruction leads to it: the bits must be equal"

    def test_two_ulp_of_an_approximate_result_are_within_its_tolerance(self, run: Run) -> None:
        # ex2.approx.f32: 2 ulp of the correctly rounded result (PTX ISA, ex2)
        code, report = run(TWO, bits_changed(1, add_to(37, 2)))
        assert (code, report["findings"]) == (0, [])
        assert report["counters"]["elements_within_tolerance"] == 1

    def test_more_ulp_are_not(self, run: Run) -> None:
        # y[8] = 2: there one ulp is 2^-23 of the number, so that 2.5 ulp are the most
        code, report = run(TWO, bits_changed(1, add_to(8, 3)))
        (f,) = report["findings"]
        assert (code, f["values"]["ulp"], f["values"]["index"]) == (1, 3, 8)
        assert f["line"] == lines(TWO, "[%y], %e")[0]
        assert f["help"] is not None and "ex2.approx.f32 (line" in f["help"]

    def test_what_is_within_is_not_counted_with_what_is_not(self, run: Run) -> None:
        def change(bits: Any) -> None:
            bits[8] += 1
            bits[16] += 100

        _, report = run(TWO, bits_changed(1, change))
        (f,) = report["findings"]
        assert (f["count"], f["values"]["index"]) == (1, 16)
        assert report["counters"]["elements_within_tolerance"] == 1

    def test_a_faulty_kernel_is_not_launched_on_the_other_side(self, run: Run) -> None:
        def never(*_: Any) -> Any:
            raise AssertionError("launched")

        text = TWO.replace("y f32[64]", "y f32[63]")
        code, report = run(text, never)
        assert (code, report["verdict"]) == (1, "oob-global")

    def test_a_fault_of_the_other_side_is_reported(self, run: Run) -> None:
        code, report = run(TWO, rewritten(lambda t: t.replace("[%y]", "[%y+64]")))
        assert (code, report["verdict"]) == (1, "oob-global")
        assert report["findings"][0]["message"].startswith("on the GPU: ")

    def test_bytes_that_nothing_stored(self, run: Run) -> None:
        text = TWO.replace("    st.global.f32 [%z], %w;\n", "")
        _, report = run(text, bits_changed(2, add_to(3, 7)))
        (f,) = report["findings"]
        assert (f["line"], f["lanes"]) == (0, [])
        assert f["help"] == "no instruction has stored the element on the simulator"

    def test_integers_have_no_tolerance(self, run: Run) -> None:
        text = TWO.replace("y f32[64] = undef", "y u32[64] = undef")
        code, report = run(text, bits_changed(1, add_to(8, 1)))
        assert code == 1
        assert "as u32 it has no tolerance" in report["findings"][0]["help"]

    def test_without_a_gpu_the_command_says_why(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def absent(*_: Any) -> Any:
            raise ptxsim.UsageError("no GPU: reason")

        path = tmp_path / "k.ptx"
        path.write_text(TWO)
        with pytest.raises(ptxsim.UsageError, match="no GPU: reason"):
            diff.execute(make_parser().parse_args(["diff", str(path)]), absent)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--backend", "gpu"], "have no meaning for diff"),
            (["--schedules", "2"], "have no meaning for diff"),
            (["--state", "x"], "--state is a line or 'exit', not 'x'"),
            (["--replay", "r.json", "--grid", "1"], "leave out --grid"),
            (["--replay", "r.json", "--record", "s.json"], "leave out --record"),
            (["--replay", "missing.json"], "cannot read missing.json"),
            (["--replay", "."], "cannot read .: Is a directory"),
            (["--record", "-"], "--record needs a file"),
        ],
    )
    def test_wrong_options(
        self, options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "k.ptx"
        path.write_text(TWO)
        assert main(["diff", str(path), *options]) == 2
        assert message in capsys.readouterr().err


class TestAsForRun:
    """What ``ptxsim run`` does with a launch beside launching it."""

    def test_expected_bits(self, run: Run, tmp_path: Path) -> None:
        z = np.arange(64, dtype=np.float32) / 4  # x = i / 8, z = x + x
        np.save(tmp_path / "z.npy", z)
        text = TWO.replace("// launch", "// out:    z = z.npy\n// launch")
        assert run(text, simulator)[0] == 0
        z[5] = 0
        np.save(tmp_path / "z.npy", z)
        for code, report in (
            run(text, simulator),
            run(TWO, simulator, "--expect", f"z={tmp_path / 'z.npy'}"),
        ):
            (f,) = report["findings"]
            assert (code, f["class"], f["values"]["index"]) == (1, "mismatch", 5)

    def test_expected_bits_hide_no_difference_of_the_gpu(self, run: Run, tmp_path: Path) -> None:
        np.save(tmp_path / "z.npy", np.zeros(64, np.float32))
        text = TWO.replace("// launch", "// out:    z = z.npy\n// launch")
        _, report = run(text, bits_changed(2, add_to(37, 1)))
        assert [f["class"] for f in report["findings"]] == ["mismatch", "hardware-mismatch"]

    def test_a_baseline(self, run: Run, tmp_path: Path) -> None:
        file = str(tmp_path / "known.json")
        other = bits_changed(2, add_to(37, 1))
        assert run(TWO, other, "--write-baseline", file)[0] == 1
        assert run(TWO, other, "--baseline", file)[0] == 0

    def test_a_launch_that_is_not_known_is_asked_for(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "k.ptx"
        path.write_text(TWO.replace("// launch:", "// no launch:"))
        assert main(["diff", str(path)]) == 2
        assert f"  ptxsim diff {path} --entry k --grid 1 --block 32" in capsys.readouterr().err

    @pytest.mark.parametrize("seconds", ["x", "-1", "0.5"])
    def test_a_time_that_is_none(
        self, seconds: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "k.ptx"
        path.write_text(TWO)
        assert main(["diff", str(path), f"--timeout={seconds}"]) == 2
        assert "--timeout is a number that is not negative" in capsys.readouterr().err


class TestReadme:
    """The walk-through, with the simulator in the place of a GPU."""

    @pytest.fixture(autouse=True)
    def checkout(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        shutil.copytree(ROOT / "examples", tmp_path / "examples")
        monkeypatch.chdir(tmp_path)

    def part(self, language: str) -> str:
        section = README.split("## Agreement with hardware\n")[1].split("\n## ")[0]
        return section.split(f"```{language}\n")[1].split("```")[0]

    def test_commands(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("ptxsim.agreement.gpu", simulator)
        commands = [shlex.split(line, comments=True) for line in self.part("sh").splitlines()]
        assert len(commands) == 3
        for command in commands:
            assert command[:2] == ["ptxsim", "diff"]
            assert main(command[1:]) == 0
        out = capsys.readouterr().out.splitlines()
        assert out[1::2] == [
            "compared with the GPU: x, y",
            "compared with the GPU: x, y",
            f"compared with the recording of ptxsim {ptxsim.__version__}: x, y",
        ]

    def test_a_difference_as_it_is_shown(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        other = rewritten(lambda t: t.replace("fma.rn.f32", "fma.rz.f32"))
        monkeypatch.setattr("ptxsim.agreement.gpu", other)
        command, shown = self.part("text").removeprefix("$ ").split("\n", 1)
        assert main(shlex.split(command)[1:]) == 1
        assert capsys.readouterr().out == shown


def test_a_trace_that_cannot_be_made_does_not_hide_the_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(TWO)
    words = ["diff", str(path), "--state", "1", "--format", "concise"]
    other = bits_changed(2, add_to(1, 1))
    assert diff.execute(make_parser().parse_args(words), other) == 1
    told = capsys.readouterr()
    assert "1 of 64 elements of 'z' differ" in told.out
    assert told.err == "ptxsim: line 1 has no instruction of 'k'\n"


def kernel_of(body: str, registers: str, entry: str = "k") -> ptxsim.Kernel:
    """A kernel of one buffer whose address is in %p."""
    return ptxsim.assemble(
        f"{HEAD}.visible .entry {entry}(.param .u64 a)\n{{ .reg .b64 %p; {registers}\n"
        f"ld.param.u64 %p, [a];\n{body}\nret;\n}}"
    ).kernel()


class TestTaint:
    """Which stores a tolerance reaches: the body's lines are 7, 8 and so on."""

    def reached(self, body: str, registers: str) -> set[int]:
        kernel = kernel_of(body, registers)
        _, provenance = simulate(kernel, [np.ones(64, np.float32)], Shape((1, 1, 1), (32, 1, 1)))
        spots = {s for s, mask in provenance._masks.items() if mask}
        return {line for line, _ in spots}

    def test_a_register_that_is_used_again_is_exact_again(self) -> None:
        body = "ex2.approx.f32 %f, 0f3F800000;\nst.global.f32 [%p], %f;\nmov.f32 %f, 0f00000000;\n"
        body += "st.global.f32 [%p+4], %f;"
        assert self.reached(body, ".reg .f32 %f;") == {7, 8}

    def test_a_guarded_write_keeps_what_was_there(self) -> None:
        body = "ex2.approx.f32 %f, 0f3F800000;\nsetp.ne.u32 %q, 1, 1;\n@%q mov.f32 %f, 0f00000000;"
        body += "\nst.global.f32 [%p], %f;"
        assert self.reached(body, ".reg .f32 %f; .reg .pred %q;") == {7, 10}

    def test_around_a_loop(self) -> None:
        body = "mov.f32 %f, 0f00000000;\nmov.u32 %n, 0;\nL: st.global.f32 [%p], %f;\n"
        body += "ex2.approx.f32 %f, %f;\nadd.u32 %n, %n, 1;\nsetp.lt.u32 %q, %n, 2;\n@%q bra L;"
        assert self.reached(body, ".reg .f32 %f; .reg .b32 %n; .reg .pred %q;") == {9, 10}

    def test_through_global_memory_by_place(self) -> None:
        """A load of what was stored exactly is exact, though another store is not."""
        body = "ex2.approx.f32 %f, 0f3F800000;\nst.global.f32 [%p], %f;\n"
        body += "mov.f32 %f, 0f3F800000; st.global.f32 [%p+4], %f;\n"
        body += "ld.global.f32 %f, [%p+4];\nld.global.f32 %f, [%p];"
        assert self.reached(body, ".reg .f32 %f;") == {7, 8, 11}

    def test_through_local_memory(self) -> None:
        body = ".local .b32 l[2];\nex2.approx.f32 %f, 0f3F800000;\nst.local.f32 [l], %f;\n"
        body += "ld.local.f32 %f, [l];\nst.global.f32 [%p], %f;"
        assert self.reached(body, ".reg .f32 %f;") == {8, 9, 10, 11}

    def test_through_a_shuffle_and_a_comparison(self) -> None:
        body = "ex2.approx.f32 %f, 0f3F800000;\nshfl.sync.bfly.b32 %f, %f, 1, 31, -1;\n"
        body += "setp.gt.f32 %q, %f, 0f00000000;\nselp.u32 %n, 1, 2, %q;"
        assert self.reached(body, ".reg .f32 %f; .reg .b32 %n; .reg .pred %q;") == {7, 8, 9, 10}

    def test_not_through_an_address(self) -> None:
        body = "ex2.approx.f32 %f, 0f3F800000;\ncvt.rzi.u64.f32 %o, %f;\nshl.b64 %o, %o, 2;\n"
        body += "add.u64 %o, %p, %o;\nld.global.f32 %f, [%o];"
        assert self.reached(body, ".reg .f32 %f; .reg .b64 %o;") == {7, 8, 9, 10}

    def test_exact_forms_of_the_same_mnemonics_are_no_sources(self) -> None:
        body = "div.rn.f32 %f, %f, %f;\nsqrt.rn.f32 %f, %f;\nrcp.rn.f32 %f, %f;\n"
        body += "div.approx.f32 %f, %f, %f;\nsqrt.approx.f32 %f, %f;"
        kernel = kernel_of(body, ".reg .f32 %f;")
        found = approximate_sources(kernel.module.typed, "k")
        assert [s.spot[0] for s in found] == [10, 11]

    @pytest.mark.parametrize("passing", ["reg", "param"])
    def test_through_a_call(self, passing: str) -> None:
        space = f".{passing} .f32"
        inner = {
            "reg": "add.f32 r, v, v;",
            "param": ".reg .f32 %x; ld.param.f32 %x, [v]; st.param.f32 [r], %x;",
        }[passing]
        outer = {
            "reg": "call (%f), two, (%f);",
            "param": "{ .param .f32 i, o; st.param.f32 [i], %f; call (o), two, (i);"
            " ld.param.f32 %f, [o]; }",
        }[passing]
        text = (
            f"{HEAD}.func ({space} r) two({space} v)\n{{ {inner} ret; }}\n"
            ".visible .entry k(.param .u64 a)\n{ .reg .b64 %p; .reg .f32 %f, %g;\n"
            f"ld.param.u64 %p, [a];\nex2.approx.f32 %f, 0f3F800000;\n{outer}\n"
            "st.global.f32 [%p], %f;\nmov.f32 %g, 0f3F800000; st.global.f32 [%p+4], %g;\nret; }"
        )
        kernel = ptxsim.assemble(text).kernel()
        _, provenance = simulate(kernel, [np.zeros(2, "f4")], Shape((1, 1, 1), (1, 1, 1)))
        assert provenance.masks("a", 8, np.array([0, 1]), 4) == [1, 0]

    def test_without_sources_nothing_is_reached(self) -> None:
        kernel = kernel_of("mov.f32 %f, 0f00000000;", ".reg .f32 %f;")
        assert spread(kernel.module.typed, "k", {}, []) == {}


class TestWriters:
    def writer(self, body: str, registers: str, at: int, **options: Any) -> tuple[int, int]:
        kernel = kernel_of(body, registers)
        shape = Shape((1, 1, 1), (32, 1, 1), options={"tools": "memcheck", **options})
        _, provenance = simulate(kernel, [np.zeros(64, np.uint32)], shape)
        spot, thread = provenance.writer("a", 256, at, 4)
        return (0 if spot is None else spot[0]), thread

    def test_of_lanes_that_collide_the_last(self) -> None:
        body = "mov.u32 %t, %tid.x;\nst.global.u32 [%p], %t;"
        assert self.writer(body, ".reg .b32 %t;", 0) == (8, 31)
        assert self.writer(body, ".reg .b32 %t;", 0, schedule="reverse") == (8, 0)
        assert self.writer(body, ".reg .b32 %t;", 4) == (0, -1)

    def test_vectors_atomics_and_inactive_lanes(self) -> None:
        body = "mov.u32 %t, %tid.x;\nsetp.lt.u32 %q, %t, 3;\n"
        body += "@%q st.global.v2.u32 [%p+8], {%t, %t};\n@%q red.global.add.u32 [%p+16], 1;"
        registers = ".reg .b32 %t; .reg .pred %q;"
        assert self.writer(body, registers, 12) == (9, 2)
        assert self.writer(body, registers, 16) == (10, 2)

    def test_a_variable_of_the_module_with_the_name_of_a_parameter(self) -> None:
        text = (
            f"{HEAD}.global .b32 b;\n.visible .entry k(.param .u64 b)\n"
            "{ .reg .b64 %p; ld.param.u64 %p, [b]; st.global.u32 [%p], 1; ret; }"
        )
        kernel = ptxsim.assemble(text).kernel()
        _, provenance = simulate(kernel, [np.zeros(1, "u4")], Shape((1, 1, 1), (1, 1, 1)))
        assert provenance.writer("b", 4, 0, 4)[0] is not None


class TestTolerance:
    def test_every_approximate_form_has_one_and_no_other(self) -> None:
        """``approx``, ``full`` and the f16 and bf16 forms of ex2 and tanh; div by ``how``."""
        for record in registry.records():
            for form in record.forms:
                if form.unsupported:
                    continue
                for word in next((s.domain for s in form.slots if s.name == "type"), ("",)):
                    filled = {s.name: s.domain[0] for s in form.slots} | {"type": word}
                    approximate = "approx" in form.modifiers or "full" in form.modifiers
                    tolerance = record.tolerance(Mods(filled))
                    assert (tolerance is not None) == approximate, (record.name, form)
                    assert not record.approximate or tolerance is not None

    @pytest.mark.parametrize(
        ("name", "mods", "ulp", "absolute"),
        [
            # bounds of the PTX ISA, in units of 2^-23; half a unit is that of our own rounding
            ("div", {"how": "approx", "type": "f32"}, 2.5, 0.0),
            ("rcp", {"approx": "approx", "type": "f32"}, 1.5, 0.0),
            ("sqrt", {"approx": "approx", "type": "f32"}, 1.5, 0.0),
            ("ex2", {"approx": "approx", "type": "f32"}, 2.5, 0.0),
            ("lg2", {"approx": "approx", "type": "f32"}, 2.5, 2**-22),
            ("sin", {"approx": "approx", "type": "f32"}, 0.5, 2**-20.5),
            ("tanh", {"approx": "approx", "type": "f32"}, 4096.5, 0.0),
        ],
    )
    def test_bounds(self, name: str, mods: dict[str, str], ulp: float, absolute: float) -> None:
        found = registry[name][0].tolerance(Mods(mods))
        assert found == Tolerance(ulp * 2**-23, absolute)

    def test_sums_of_sources_and_one_unit_of_a_narrower_type(self) -> None:
        kernel = kernel_of("rcp.approx.f32 %f, %f;\nrcp.approx.f32 %f, %f;", ".reg .f32 %f;")
        two = approximate_sources(kernel.module.typed, "k")
        one = np.array([0x3F800000], np.uint32)  # 1.0
        # 1.5 units each; a unit above 1.0 is 2^-23
        assert [bool(close(one, one + np.uint32(n), "f32", two[:1], False)[0]) for n in (1, 2)] == [
            True, False,
        ]  # fmt: skip
        assert [bool(close(one, one + np.uint32(n), "f32", two, False)[0]) for n in (3, 4)] == [
            True, False,
        ]  # fmt: skip
        assert bool(close(one, one + np.uint32(4), "f32", two, True)[0])
        half = np.array([0x3C00], np.uint16)  # 1.0
        assert [bool(close(half, half + np.uint16(n), "f16", two, False)[0]) for n in (1, 2)] == [
            True, False,
        ]  # fmt: skip

    def test_nan_and_infinity_are_close_to_themselves_alone(self) -> None:
        kernel = kernel_of("tanh.approx.f32 %f, %f;", ".reg .f32 %f;")
        sources = approximate_sources(kernel.module.typed, "k")
        a = np.array([0x7FFFFFFF, 0x7F800000, 0x7F800000, 0x00000000], np.uint32)
        b = np.array([0x7FC00000, 0x7F7FFFFF, 0x7F800000, 0x80000000], np.uint32)
        assert close(a, b, "f32", sources, False).tolist() == [False, False, True, True]
        assert close(a, b, "f32", (), False).tolist() == [False, False, True, False]

"""Traces and states: the text that stores registers is legal, keeps what the kernel does, and
shows where two machines part.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptxsim
from ptxsim.agreement import (
    Shape,
    compare_states,
    dumped,
    first_parting,
    simulator,
    traced,
)
from ptxsim.agreement.bisect import Parting
from ptxsim.agreement.instrument import ENTRY, HEAD, PARAMETER, SLOT
from ptxsim.cli import diff
from ptxsim.cli.header import parse_header
from ptxsim.cli.main import make_parser
from tests.device.sides import rewritten

ROOT = Path(__file__).parents[2]
TOP = ".version 8.3\n.target sm_90\n.address_size 64\n"
#: Kernels of every kind: loops, calls, barriers, matrices, copies, spinning; all of them clean.
KERNELS = [
    *(ROOT / "examples" / f"{name}.ptx" for name in ("histogram", "mma", "saxpy")),
    *sorted((ROOT / "tests" / "cases").glob("*-ok.ptx")),
    *sorted((ROOT / "tests" / "litmus").glob("*-ok.ptx")),
]

#: Registers of every type, groups, pairs, inner scopes and guards.
TYPES = (
    TOP
    + """.visible .entry k(.param .u64 a)
{
    .reg .b8 %b; .reg .b16 %h; .reg .f16 %q; .reg .f16x2 %hh; .reg .b32 %r<4>; .reg .f32 %f;
    .reg .b64 %d, %a; .reg .f64 %e; .reg .b128 %w; .reg .pred %p, %n; .reg .v2 .f32 %v;
    ld.param.u64 %a, [a];
    mov.u32 %r0, %laneid;
    cvt.u16.u32 %h, %r0;
    ld.global.u8 %b, [%a];
    cvt.rn.f16.u32 %q, %r0;
    mov.b32 %hh, {%q, %q};
    cvt.rn.f32.u32 %f, %r0; cvt.rn.f64.u32 %e, %r0;
    mov.f32 %v.x, %f; mov.f32 %v.y, %f;
    cvt.u64.u32 %d, %r0;
    mov.b128 %w, {%d, %d};
    setp.gt.u32 %p|%n, %r0, 15;
    @%p add.u32 %r1, %r0, 100;
    @!%p add.u32 %r1, %r0, 200;
    { .reg .b32 %r0; mov.u32 %r0, 7; add.u32 %r2, %r0, 1; }
    @%p setp.eq.u32 %p, %r2, 0;
    add.u32 %r3, %r1, %r2;
    ret;
}
"""
)

#: Each thread adds the numbers below 5 in a loop and stores the sum of its square and of that.
LOOP = (
    TOP
    + """.visible .entry k(.param .u64 a)
{
    .reg .b64 %a; .reg .b32 %i, %s, %t, %u; .reg .pred %p;
    ld.param.u64 %a, [a];
    mov.u32 %t, %tid.x;
    mov.u32 %i, 0; mov.u32 %s, 0;
L:
    mul.lo.u32 %u, %i, %t;
    add.u32 %s, %s, %u;
    add.u32 %i, %i, 1;
    setp.lt.u32 %p, %i, 5;
    @%p bra L;
    mad.wide.u32 %a, %t, 4, %a;
    st.global.u32 [%a], %s;
    ret;
}
"""
)
SHAPE = Shape((1, 1, 1), (32, 1, 1))


def line(text: str, word: str) -> int:
    """The number of the only line that holds a word."""
    (number,) = (n for n, text in enumerate(text.splitlines(), 1) if word in text)
    return number


def buffers(*sizes: int) -> Any:
    """Makes buffers of words that are zero."""
    return lambda: [np.zeros(n, np.uint32) for n in sizes or (32,)]


def part(text: str, old: str, new: str, **options: Any) -> Parting | None:
    """Where the simulator and a machine that reads ``new`` for ``old`` part."""
    kernel = ptxsim.assemble(text).kernel()
    return first_parting(
        kernel, buffers(), SHAPE, rewritten(lambda t: t.replace(old, new)), **options
    )


def launch_of(path: Path) -> tuple[ptxsim.Kernel, Any, Shape]:
    """The kernel of a file, its arguments and its launch."""
    text = path.read_text()
    header = parse_header(text, path.name, path.parent)
    assert header.launch.grid and header.launch.block
    shape = Shape(header.launch.grid, header.launch.block, header.launch.cluster)
    kernel = ptxsim.assemble(text, name=path.name).kernel()
    return kernel, lambda: [spec.make() for spec in header.args], shape


class TestText:
    @pytest.mark.parametrize(
        "path",
        [
            # every second one by default: their kinds recur
            pytest.param(p, id=p.stem, marks=[pytest.mark.slow] if n % 2 else [])
            for n, p in enumerate(KERNELS)
        ],
    )
    def test_it_stays_clean_and_computes_the_same(self, path: Path) -> None:
        kernel, make, shape = launch_of(path)
        plain = make()
        assert simulator(kernel, plain, shape).clean
        for stored in (
            traced(kernel.module.typed, kernel.name, 0, 8), dumped(kernel.module.typed, kernel.name)
        ):  # fmt: skip
            assert stored.text.count("\n") == kernel.source.text.count("\n")
            other = ptxsim.assemble(stored.text).kernel(kernel.name)
            assert [p.name for p in other.params] == [p.name for p in kernel.params] + [PARAMETER]
            args = [*make(), np.zeros(shape.threads * stored.stride, np.uint8)]
            report = simulator(other, args, shape)
            assert [f.message for f in report.findings if f.severity.value == "error"] == []
            for a, b in zip(plain, args[:-1], strict=True):
                assert np.asarray(a).tobytes() == np.asarray(b).tobytes()

    @pytest.mark.ptxas
    @pytest.mark.parametrize("path", [None, *KERNELS[:6]], ids=lambda p: p.stem if p else "types")
    def test_the_assembler_takes_it(self, path: Path | None, tmp_path: Path) -> None:
        ptxas = shutil.which("ptxas")
        if ptxas is None:
            pytest.skip("ptxas is not on the PATH")
        text = TYPES if path is None else path.read_text()
        module = ptxsim.assemble(text)
        for stored in (traced(module.typed, module.entries[0], 0, 8),
                       dumped(module.typed, module.entries[0])):  # fmt: skip
            file = tmp_path / "k.ptx"
            file.write_text(stored.text)
            done = subprocess.run(
                [ptxas, "-arch", module.target, "-o", str(tmp_path / "k.o"), str(file)],
                capture_output=True, text=True,
            )  # fmt: skip
            assert (done.returncode, done.stderr) == (0, "")

    @pytest.mark.parametrize(
        "head", ["k", "k()", "k( )", "k(.param .u32 n)", "k(.param .align 8 .b8 s[16])"]
    )
    def test_parameters(self, head: str) -> None:
        module = ptxsim.assemble(f"{TOP}.visible .entry {head} .maxntid 32, 1, 1 {{ ret; }}")
        text = traced(module.typed, "k", 0, 1).text
        assert ptxsim.assemble(text).kernel().params[-1].name == PARAMETER

    def test_refusals(self) -> None:
        narrow = ptxsim.assemble(
            TOP.replace("64", "32").replace("sm_90", "sm_80") + ".visible .entry k() { ret; }"
        )
        with pytest.raises(ptxsim.UsageError, match=r"\.address_size 64 only"):
            dumped(narrow.typed, "k")
        taken = ptxsim.assemble(TOP + ".visible .entry k() { .reg .b32 %ptxsim_x; ret; }")
        with pytest.raises(ptxsim.UsageError, match="uses names of ours"):
            dumped(taken.typed, "k")
        module = ptxsim.assemble(LOOP)
        with pytest.raises(ptxsim.UsageError, match="line 2 has no instruction of 'k'"):
            dumped(module.typed, "k", 2)


class TestRecords:
    """What is stored, word by word, for lanes 5 and 20."""

    def log(self, stored: Any) -> Any:
        out = np.zeros(32 * stored.stride, np.uint8)
        ptxsim.assemble(stored.text).kernel().launch(
            grid=1, block=32, args=[np.full(32, 0x11111142, np.uint32), out]
        ).raise_for_findings()
        return out.reshape(32, stored.stride)

    def test_state_has_every_type(self) -> None:
        stored = dumped(ptxsim.assemble(TYPES).typed, "k", line(TYPES, "add.u32 %r3"))
        log = self.log(stored)
        values = {
            r.name: [int.from_bytes(log[lane, at : at + SLOT].tobytes(), "little")
                     for lane in (5, 20)]
            for r, at in zip(stored.registers, range(HEAD, stored.stride, SLOT), strict=True)
        }  # fmt: skip
        del values["%a"]
        # f16 5 = 0x4500 and 20 = 0x4d00; f32 0x40a00000, 0x41a00000; f64 0x4014.., 0x4034..
        assert values == {
            "%b": [0x42, 0x42], "%h": [5, 20], "%q": [0x4500, 0x4D00],
            "%hh": [0x45004500, 0x4D004D00], "%r0": [5, 20], "%r2": [8, 8],
            "%f": [0x40A00000, 0x41A00000], "%d": [5, 20],
            "%e": [0x4014 << 48, 0x4034 << 48], "%w": [5 << 64 | 5, 20 << 64 | 20],
            "%p": [0, 0], "%n": [1, 0], "%v.x": [0x40A00000, 0x41A00000],
            "%v.y": [0x40A00000, 0x41A00000],
        }  # fmt: skip
        assert log[:, 0].tolist() == [1] * 32

    def test_state_in_an_inner_scope_has_the_inner_register(self) -> None:
        text = TYPES.replace(
            "{ .reg .b32 %r0; mov.u32 %r0, 7;", "{ .reg .b32 %r0;\nmov.u32 %r0, 7;\n"
        )
        stored = dumped(ptxsim.assemble(text).typed, "k", line(text, "add.u32 %r2"))
        at = [r.name for r in stored.registers].index("%r0")
        assert self.log(stored)[:, HEAD + SLOT * at].tolist() == [7] * 32

    def test_what_is_not_surely_written_is_left_out(self) -> None:
        stored = dumped(ptxsim.assemble(TYPES).typed, "k", line(TYPES, "cvt.u16"))
        assert [r.name for r in stored.registers] == ["%r0", "%a"]
        end = dumped(ptxsim.assemble(TYPES).typed, "k")
        # both writes of %r1 are under guards
        assert "%r1" not in [r.name for r in end.registers]

    def test_state_of_a_loop_is_the_last(self) -> None:
        stored = dumped(ptxsim.assemble(LOOP).typed, "k", line(LOOP, "add.u32 %i"))
        log = self.log(stored)
        at = HEAD + SLOT * [r.name for r in stored.registers].index("%i")
        assert (log[3, 0], log[3, at]) == (5, 4)

    def test_trace_goes_by_steps_and_windows(self) -> None:
        typed = ptxsim.assemble(LOOP).typed
        for start in (0, 9):
            stored = traced(typed, "k", start, 4)
            log = self.log(stored)
            # 4 before the loop, 5 times 4 in it, 1 behind it
            assert int(log[2, :4].view(np.uint32)[0]) == 25
            entries = log[2, HEAD:].reshape(4, ENTRY)
            found = [
                (stored.points[int(e[:4].view(np.uint32)[0]) - 1].register.name,
                 int(e[16:20].view(np.uint32)[0]))
                for e in entries
            ]  # fmt: skip
            if start == 9:  # the second turn, i = 1: u = 1 * 2 was step 8, s = 2
                assert found == [("%s", 2), ("%i", 2), ("%p", 1), ("%u", 4)]
            else:
                assert found[1:] == [("%t", 2), ("%i", 0), ("%s", 0)]

    def test_a_guarded_result_is_one_of_the_lanes_that_ran_it(self) -> None:
        stored = traced(ptxsim.assemble(TYPES).typed, "k", 0, 40)
        log = self.log(stored)
        names = []
        for lane in (5, 20):
            entries = log[lane, HEAD:].reshape(40, ENTRY)
            ids = [int(e[:4].view(np.uint32)[0]) for e in entries]
            names.append([
                stored.points[n - 1].instruction.span.line for n in ids if n
            ])  # fmt: skip
        low, high = line(TYPES, "@!%p add"), line(TYPES, "@%p add")
        assert (low in names[0], high in names[0]) == (True, False)
        assert (low in names[1], high in names[1]) == (False, True)
        # it writes its own guard: whether it ran is not known afterwards
        assert line(TYPES, "@%p setp") not in names[0] + names[1]


class TestParting:
    def test_no_difference(self) -> None:
        kernel = ptxsim.assemble(LOOP).kernel()
        assert first_parting(kernel, buffers(), SHAPE, simulator) is None

    def test_first_of_all_results(self) -> None:
        found = part(LOOP, "mul.lo.u32 %u, %i, %t", "add.u32 %u, %i, %t")
        # i = 0: lane 0 has 0 both times, lane 1 has 0 and 1; step 4 is the fifth result
        assert found is not None and found.register is not None
        assert (found.line, found.text, found.register.name) == (
            line(LOOP, "mul.lo"), "mul.lo.u32", "%u",
        )  # fmt: skip
        assert (found.thread, found.step, found.simulator, found.device) == (1, 4, 0, 1)

    @pytest.mark.parametrize("capacity", [5, 1000])
    def test_a_later_turn_of_a_loop_in_any_window(self, capacity: int) -> None:
        # min(i, 3) * t differs at i = 4 alone: 4 results before the loop, 4 in each turn
        found = part(
            LOOP, "mul.lo.u32 %u, %i, %t;", "min.u32 %u, %i, 3; mul.lo.u32 %u, %u, %t;",
            capacity=capacity,
        )  # fmt: skip
        assert found is not None and found.register is not None
        assert (found.line, found.thread, found.step) == (line(LOOP, "mul.lo"), 1, 4 + 4 * 4)
        assert (found.simulator, found.device) == (4, 3)
        found = part(LOOP, "mul.lo.u32 %u, %i, %t;", "mad.lo.u32 %u, %i, %t, 0;", capacity=capacity)
        assert found is None
        found = part(LOOP, "setp.lt.u32 %p, %i, 5", "setp.lt.u32 %p, %i, 4", capacity=capacity)
        assert found is not None and found.register is not None
        assert (found.line, found.thread, found.step) == (line(LOOP, "setp"), 0, 4 + 4 * 3 + 3)
        assert (found.simulator, found.device) == (1, 0)

    def test_addresses_may_differ(self) -> None:
        """%a holds an address: that it differs says nothing, the stored value does."""
        assert part(LOOP, "mad.wide.u32 %a, %t, 4, %a", "mad.wide.u32 %a, %t, 0, %a") is None

    def test_approximations_may_differ_a_little(self) -> None:
        text = LOOP.replace(
            "    mad.wide", "    .reg .f32 %f; add.u32 %s, %t, 1; cvt.rn.f32.u32 %f, %s;\n"
            "    rcp.approx.f32 %f, %f;\n"
            "    mov.b32 %u, %f;\n    mad.wide",
        )  # fmt: skip
        # the bound is one unit, and half a one for our rounding: three are too many
        kernel = ptxsim.assemble(text).kernel()
        for units, differs in ((1, False), (3, True)):
            found = first_parting(kernel, buffers(), SHAPE, off_by(text, units))
            assert (found is not None) == differs
        assert found is not None and found.line == line(text, "rcp.approx")

    def test_atomics_may_come_in_another_order(self) -> None:
        text = LOOP.replace("st.global.u32 [%a], %s;", "atom.global.add.u32 %s, [%a], 1;")
        assert part(text.replace("%t, 4, %a", "%t, 0, %a"), "atom.global.add.u32 %s, [%a], 1",
                    "atom.global.add.u32 %s, [%a], 2") is None  # fmt: skip

    def test_what_is_undefined_may_differ(self) -> None:
        text = LOOP.replace(
            "    mad.wide", "    .reg .b32 %never; add.u32 %u, %never, 1;\n    mad.wide"
        )
        assert part(text, "add.u32 %u, %never, 1", "mov.u32 %u, 77") is None
        told = text.replace("%never, 1", "%t, 1")
        assert part(told, "add.u32 %u, %t, 1", "mov.u32 %u, 77") is not None

    def test_too_many_threads(self) -> None:
        kernel = ptxsim.assemble(LOOP).kernel()
        shape = Shape((1 << 16, 1, 1), (1024, 1, 1), options={"tools": "none"})
        with pytest.raises(ptxsim.UsageError, match="launch fewer"):
            first_parting(kernel, buffers(), shape, simulator)


def off_by(text: str, units: int) -> Any:
    """A machine whose rcp.approx is off by some units in the last place: ``f`` comes from bits."""

    def edit(source: str) -> str:
        begin = source.index("rcp.approx.f32 %f, %f;") + len("rcp.approx.f32 %f, %f;")
        words = (
            f" {{ .reg .b32 %zz; mov.b32 %zz, %f; add.u32 %zz, %zz, {units}; mov.b32 %f, %zz; }}"
        )
        return source[:begin] + words + source[begin:]

    return rewritten(edit)


class TestStates:
    def compare(self, old: str, new: str, where: int | None) -> list[Any]:
        kernel = ptxsim.assemble(LOOP).kernel()
        other = rewritten(lambda t: t.replace(old, new)) if old else simulator
        return compare_states(kernel, buffers(), SHAPE, other, where)

    def test_equal(self) -> None:
        assert self.compare("", "", None) == []

    def test_registers_at_the_end_and_before_a_line(self) -> None:
        change = ("mul.lo.u32 %u, %i, %t", "add.u32 %u, %i, %t")
        found = {d.register: d for d in self.compare(*change, None)}
        # u = 4t and 4 + t are the same for no whole t but t = 4/3; s = 10t and 10 + 5t for t = 2
        assert {name: d.count for name, d in found.items()} == {"%s": 31, "%u": 32}
        assert (found["%s"].thread, found["%s"].simulator, found["%s"].device) == (0, 0, 10)
        assert self.compare(*change, line(LOOP, "mov.u32 %i")) == []

    def test_threads_that_come_another_number_of_times(self) -> None:
        found = self.compare("%p, %i, 5", "%p, %i, 4", line(LOOP, "add.u32 %i"))
        (counts,) = (d for d in found if d.register == "")
        assert (counts.count, counts.simulator, counts.device) == (32, 5, 4)


def test_findings_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = "// launch: grid=1 block=32\n// arg: a u32[32] = undef\n"
    path = tmp_path / "k.ptx"
    path.write_text(head + LOOP)
    words = ["diff", str(path), "--bisect", "--state", "exit", "--format", "json"]
    other = rewritten(lambda t: t.replace("mul.lo.u32 %u, %i, %t", "add.u32 %u, %i, %t"))
    assert diff.execute(make_parser().parse_args(words), other) == 1
    report = json.loads(capsys.readouterr().out)
    outputs, state, first = report["findings"]
    assert {f["code"] for f in report["findings"]} == {"PTX371"}
    assert outputs["line"] == line(head + LOOP, "st.global")
    assert state["message"].startswith("2 registers differ at the end: %s in 31 threads")
    assert (first["line"], first["lanes"]) == (line(head + LOOP, "mul.lo"), [1])
    assert first["message"] == (
        "mul.lo.u32 is the first instruction whose result differs: %u = 0x00000000 on the"
        " simulator, 0x00000001 on the GPU, result 4 of thread 1"
    )


def test_a_failure_of_the_launch_that_stores_is_said(tmp_path: Path) -> None:
    def fails(kernel: ptxsim.Kernel, args: Sequence[Any], shape: Shape) -> ptxsim.Report:
        return simulator(kernel, [np.zeros(1, np.uint8), *args[1:]], shape)

    kernel = ptxsim.assemble(LOOP).kernel()
    with pytest.raises(ptxsim.UsageError, match="the launch that stores registers failed"):
        first_parting(kernel, buffers(), SHAPE, fails)

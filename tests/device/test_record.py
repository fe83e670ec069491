"""Recordings: written, read without trust, compared; and a rehearsal of the hardware suite."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptxsim
from ptxsim.agreement import Shape, simulator
from ptxsim.agreement.recording import (
    SAMPLES,
    WHOLE,
    Device,
    Reference,
    digest,
    from_json,
    load,
    output_of,
    to_json,
)
from ptxsim.cli import diff
from ptxsim.cli.elements import ELEMENT_TYPES
from ptxsim.cli.main import main, make_parser
from ptxsim.cli.replay import replay
from tests.device import record
from tests.device.instructions import instruction_jobs, samples
from tests.device.jobs import captured, job_of, run_job, settled
from tests.device.sides import bits_changed
from tests.device.sweeps import SWEEPS, Answer, answer_from_json, answer_to_json, ask, compare

TEXT = """\
// launch: grid={grid} block=128
// arg:    x f32[{count}] = rand(7)
// arg:    y f32[{count}] = undef
// arg:    n u32 = {count}
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 n)
{{
    .reg .b64 %x, %y; .reg .b32 %i, %c; .reg .f32 %f;
    ld.param.u64 %x, [x]; ld.param.u64 %y, [y];
    mov.u32 %c, %ctaid.x; mov.u32 %i, %tid.x; mad.lo.u32 %i, %c, 128, %i;
    mad.wide.u32 %x, %i, 4, %x; mad.wide.u32 %y, %i, 4, %y;
    ld.global.f32 %f, [%x]; {operation} st.global.f32 [%y], %f;
    ret;
}}
"""
GPU = {"name": "A GPU", "compute_capability": [9, 0], "driver": "13.0"}


def text_of(count: int = 128, operation: str = "add.f32 %f, %f, %f;") -> str:
    return TEXT.format(grid=count // 128, count=count, operation=operation)


class _Told(ptxsim.Report):
    """A report of a machine that calls itself a GPU."""

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "device": GPU}


def a_gpu(backend: Any = simulator) -> Any:
    """A side whose reports name a GPU."""

    def launch(*args: Any) -> ptxsim.Report:
        r = backend(*args)
        return _Told(r.file, r.entry, r.target, r.findings, r.outputs, r.counters)

    return launch


Record = Callable[..., tuple[Path, Path]]


@pytest.fixture
def record_text(tmp_path: Path) -> Record:
    """Records the launch of a text; the paths of text and recording."""

    def write(text: str, other: Any = simulator) -> tuple[Path, Path]:
        path, out = tmp_path / "k.ptx", tmp_path / "r.json"
        path.write_text(text)
        args = make_parser().parse_args(["diff", str(path), "--record", str(out), "--quiet"])
        diff.execute(args, a_gpu(other))
        return path, out

    return write


class TestCommand:
    def test_what_was_recorded_is_met(
        self, record_text: Record, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path, out = record_text(text_of())
        recording = load(out)
        assert recording.device == Device("A GPU", (9, 0), "13.0")
        assert [a.init for a in recording.arguments] == ["rand(7)", "undef", "128"]
        assert recording.ptx_sha256 == digest(path.read_text())
        assert set(recording.outputs) == {"x", "y"}
        capsys.readouterr()
        assert main(["diff", str(path), "--replay", str(out)]) == 0

    def test_one_bit_of_another_machine_is_seen(
        self, record_text: Record, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def change(bits: Any) -> None:
            bits[77] ^= 1

        path, out = record_text(text_of(), bits_changed(1, change))
        capsys.readouterr()
        assert main(["diff", str(path), "--replay", str(out), "--format", "json"]) == 1
        (f,) = json.loads(capsys.readouterr().out)["findings"]
        assert (f["class"], f["values"]["index"], f["lanes"]) == ("hardware-mismatch", 77, [13])
        assert "differ from the recording of A GPU; the first is y[77]" in f["message"]

    @pytest.mark.parametrize(("at", "line"), [(0, 14), (5, 0)])
    def test_large_outputs_by_samples_and_hash(
        self, at: int, line: int, record_text: Record, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Element 0 is a sample; that of element 5 only the hash knows."""

        def change(bits: Any) -> None:
            bits[at] ^= 1

        path, out = record_text(text_of(1 << 16), bits_changed(1, change))
        recording = load(out)
        assert recording.outputs["y"].places is not None
        assert 5 not in recording.outputs["y"].places
        capsys.readouterr()
        assert main(["diff", str(path), "--replay", str(out), "--format", "json"]) == 1
        (f,) = json.loads(capsys.readouterr().out)["findings"]
        assert (f["line"], "only the hash" in f["message"]) == (line, at == 5)

    def test_of_a_large_approximate_output_the_hash_says_nothing(
        self, record_text: Record, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def change(bits: Any) -> None:
            bits[:] += 1

        text = text_of(1 << 16, "ex2.approx.f32 %f, %f;")
        path, out = record_text(text, bits_changed(1, change))
        capsys.readouterr()
        assert main(["diff", str(path), "--replay", str(out), "--format", "json"]) == 0
        counters = json.loads(capsys.readouterr().out)["counters"]
        assert counters["elements_within_tolerance"] == SAMPLES

    def test_another_text_is_refused(
        self, record_text: Record, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path, out = record_text(text_of())
        path.write_text(path.read_text() + "\n")
        assert main(["diff", str(path), "--replay", str(out)]) == 2
        assert "was recorded from another text" in capsys.readouterr().err

    def test_inputs_that_came_out_otherwise_are_refused(
        self, record_text: Record, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path, out = record_text(text_of())
        tree = json.loads(out.read_text())
        tree["arguments"][0]["sha256"] = "0" * 64
        out.write_text(json.dumps(tree))
        assert main(["diff", str(path), "--replay", str(out)]) == 2
        assert "'x' = rand(7) is not what it was when recorded" in capsys.readouterr().err

    def test_a_text_without_a_line_end(
        self, record_text: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        body = " ".join(line for line in text_of().split("\n") if not line.startswith("//"))
        path, file = tmp_path / "one.ptx", tmp_path / "one.json"
        path.write_text(body)
        launch = ["--grid", "1", "--block", "128", "--arg", "x=f32[128]:iota",
                  "--arg", "y=f32[128]:undef", "--arg", "n=u32:128"]  # fmt: skip
        words = ["diff", str(path), *launch, "--record", str(file)]
        assert diff.execute(make_parser().parse_args(words), simulator) == 0
        assert main(["diff", str(path), "--replay", str(file)]) == 0

    def test_arguments_in_another_order_are_refused(
        self, record_text: Record, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path, file = record_text(text_of())
        tree = json.loads(file.read_text())
        tree["arguments"][:2] = tree["arguments"][1::-1]
        file.write_text(json.dumps(tree))
        assert main(["diff", str(path), "--replay", str(file)]) == 2
        assert "not in the order of the parameters" in capsys.readouterr().err

    def test_a_scalar_of_another_size_is_refused(
        self, record_text: Record, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path, file = record_text(text_of())
        tree = json.loads(file.read_text())
        n = tree["arguments"][2]
        del n["init"]
        n |= {"data": packed(b"abc"), "bytes": 3, "sha256": hashlib.sha256(b"abc").hexdigest()}
        file.write_text(json.dumps(tree))
        assert main(["diff", str(path), "--replay", str(file)]) == 2
        assert "'n' is recorded with 3 bytes, u32 has 4" in capsys.readouterr().err

    def test_inputs_from_files_are_kept(
        self, record_text: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "x.npy"
        np.save(file, np.arange(128, dtype=np.float32))
        path, out = record_text(text_of().replace("rand(7)", "@x.npy"))
        file.unlink()
        capsys.readouterr()
        assert main(["diff", str(path), "--replay", str(out), "--print", "y"]) == 0
        assert "120: 240 242" in capsys.readouterr().out


def recording_json() -> dict[str, Any]:
    """A small recording with its own text and inputs."""
    kernel = ptxsim.assemble(text_of()).kernel()
    args = [np.arange(128, dtype="f4"), np.zeros(128, "f4"), np.uint32(128)]
    job = settled(job_of("g", "n", kernel, args, Shape((1, 1, 1), (128, 1, 1))))
    assert job is not None
    return to_json(run_job(job, a_gpu(), "2026-01-02"))


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


class TestFormat:
    def test_types_are_those_of_the_command_line(self) -> None:
        for token, type_ in ELEMENT_TYPES.items():
            kept = output_of(token, np.zeros(3, type_.dtype))
            assert Reference.of(kept).elements.dtype == type_.dtype, token

    def test_there_and_back(self) -> None:
        tree = recording_json()
        assert to_json(from_json(json.loads(json.dumps(tree)), "r")) == tree
        assert replay(from_json(tree, "r"), "r").clean

    def test_a_changed_output_fails(self) -> None:
        recording = from_json(recording_json(), "r")
        y = np.frombuffer(recording.outputs["y"].data, np.uint32).copy()
        y[3] ^= 1
        wrong = replace(recording, outputs={"y": output_of("f32", y.view(np.float32))})
        (finding,) = replay(wrong, "r").findings
        assert (finding.class_, finding.values["index"]) == ("hardware-mismatch", 3)

    def test_whole_or_samples(self) -> None:
        small = output_of("u8", np.zeros(WHOLE, np.uint8))
        large = output_of("u8", np.arange(WHOLE + 1, dtype=np.uint8))
        assert (small.places, len(small.data)) == (None, WHOLE)
        assert large.places is not None
        assert (large.places[0], large.places[-1], len(large.data)) == (0, WHOLE, SAMPLES)
        over = Reference.of(large).over(np.full(WHOLE + 1, 9, np.uint8))
        assert (over[0], over[1], over[WHOLE]) == (0, 9, 0)

    @pytest.mark.parametrize(
        ("path", "value", "message"),
        [
            ((), [], "an object is expected"),
            (("ptxsim_recording",), 2, "a recording of format 2"),
            (("ptxsim_recording",), "1", "must be a whole number"),
            (("entry",), "k j", "entry is no name"),
            (("arguments", 0, "name"), "x=f32[1]:@f", "name is no name"),
            (("arguments", 0, "init"), "@/etc/x.npy", "init names a file"),
            (("grid",), [1, 1], "grid has three entries"),
            (("grid",), [1, 0, 1], "grid holds whole numbers of 1"),
            (("grid",), [1, True, 1], "grid holds whole numbers"),
            (("smem",), 1 << 40, "smem is 0 to"),
            (("entry",), 3, "entry must be a string"),
            (("entry",), "k\x1b[31m", "not printable"),
            (("entry",), "k" * 5000, "too long"),
            (("ptx_sha256",), "12", "64 hexadecimal digits"),
            (("ptx",), packed(b"other"), "ptx does not have the hash"),
            (("ptx",), packed(b"\xff"), "ptx is not UTF-8"),
            (("ptx",), "!", "cannot be unpacked"),
            (("arguments",), {}, "arguments must be a list"),
            (("arguments",), [{}] * 5000, "more than 4352 entries"),
            (("arguments", 0, "type"), "f128", "unknown type 'f128'"),
            (("arguments", 0, "count"), 1 << 60, "count is 1 to"),
            (("arguments", 0, "data"), packed(b"x"), "does not hold the 512 bytes"),
            (("arguments", 0, "data"), packed(bytes(1 << 24)), "does not hold the 512 bytes"),
            (("arguments", 0, "bytes"), 4, "4 bytes are not 128 elements"),
            (("arguments", 0, "init"), "iota", "one of init and data"),
            (("outputs", "y", "count"), 127, "does not hold the 508 bytes"),
            (("outputs", "y", "sha256"), "0" * 64, "data does not have the hash"),
            (("outputs", "y", "type"), "u32", "is not of the argument's type"),
            (("outputs", "y", "places"), [3, 2], "indices in rising order"),
            (("outputs", "y", "places"), [128], "places holds whole numbers of 0 to 127"),
            (("outputs", "y", "places"), list(range(2000)), "more than 1024 entries"),
            (("outputs", "z"), 1, "outputs.z: an object is expected"),
            (("device",), None, "device: an object is expected"),
            (("device", "compute_capability"), [9, -1], "holds whole numbers of 0"),
        ],
    )
    def test_what_is_wrong_is_said(self, path: Any, value: Any, message: str) -> None:
        tree: Any = {"": copy.deepcopy(recording_json())}
        at, last = tree, ""
        for key in path:
            at, last = at[last], key
        at[last] = value
        with pytest.raises(ptxsim.UsageError) as error:
            from_json(tree[""], "r.json")
        assert message in str(error.value)
        assert str(error.value).startswith("r.json")

    @pytest.mark.parametrize(
        ("data", "message"),
        [(b"\xff", "not UTF-8"), (b"{", "no JSON"), (b"[" * 100_000, "no JSON")],
    )
    def test_files_that_are_none(self, data: bytes, message: str, tmp_path: Path) -> None:
        path = tmp_path / "r.json"
        path.write_bytes(data)
        with pytest.raises(ptxsim.UsageError, match=message):
            load(path)


class TestJobs:
    def job(self, body: str, registers: str = "") -> Any:
        text = (
            ".version 8.0\n.target sm_80\n.address_size 64\n"
            f".visible .entry k(.param .u64 a)\n{{ .reg .b64 %a, %o; .reg .b32 %t; {registers}\n"
            f"ld.param.u64 %a, [a]; mov.u32 %t, %tid.x;\n{body}\nret; }}"
        )
        kernel = ptxsim.assemble(text).kernel()
        args = [np.zeros(64, np.uint64)]
        return settled(job_of("g", "n", kernel, args, Shape((1, 1, 1), (64, 1, 1))))

    def test_what_every_machine_must_give_is_asked_for(self) -> None:
        body = "mad.wide.u32 %a, %t, 8, %a; st.global.u32 [%a], %t;"
        assert list(self.job(body).recording.outputs) == ["a"]

    @pytest.mark.parametrize(
        ("body", "registers"),
        [
            # the order in which threads come
            (
                "atom.global.add.u32 %t, [%a], 1; mad.wide.u32 %o, %t, 8, %a;\n"
                "mov.u32 %t, %tid.x; st.global.u32 [%o+8], %t;",
                "",
            ),
            ("mad.wide.u32 %o, %t, 8, %a; st.global.u64 [%o], %a;", ""),  # an address
            ("mad.wide.u32 %o, %t, 8, %a; mov.u32 %t, %smid; st.global.u32 [%o], %t;", ""),
            ("mad.wide.u32 %o, %t, 8, %a; mov.u32 %t, %clock; st.global.u32 [%o], %t;", ""),
            ("", ""),  # nothing
            ("mad.wide.u32 %o, %t, 80, %a; st.global.u32 [%o], %t;", ""),  # beyond the buffer
        ],
    )
    def test_what_need_not_be_the_same_is_not(self, body: str, registers: str) -> None:
        assert self.job(body, registers) is None

    def test_launches_are_taken_over_once(self) -> None:
        kernel = ptxsim.assemble(text_of()).kernel()
        with captured("g") as jobs:
            for size in (128, 128, 64):
                args = [np.ones(128, "f4"), np.zeros(128, "f4"), np.uint32(size)]
                kernel.launch(grid=1, block=128, args=args)
            kernel.launch(grid=1, block=128, args=[np.ones(1, "f4"), np.ones(1, "f4"), 1])
        # the last one is out of bounds
        assert [j.recording.arguments[2].data for j in jobs] == [
            (128).to_bytes(4, "little"), (64).to_bytes(4, "little"),
        ]  # fmt: skip
        assert kernel.launch.__func__ is ptxsim.Kernel.launch

    def test_few_launches_of_one_text_are_taken_over(self) -> None:
        kernel = ptxsim.assemble(text_of()).kernel()
        with captured("g") as jobs:
            for size in range(5):
                args = [np.ones(128, "f4"), np.zeros(128, "f4"), np.uint32(size)]
                kernel.launch(grid=1, block=128, args=args)
        assert len(jobs) == 3

    def test_after_a_fault_a_launch_gets_a_process_of_its_own(self) -> None:
        job = self.job("mad.wide.u32 %a, %t, 8, %a; st.global.u32 [%a], %t;")
        isolated = []

        def faulty(kernel: Any, args: Any, shape: Shape) -> ptxsim.Report:
            isolated.append(shape.device["isolate"])
            if not isolated[-1]:
                raise ptxsim.UsageError("the GPU cannot be used: launch with isolate=True")
            return simulator(kernel, args, shape)

        assert run_job(job, faulty, "2026-01-02").outputs == job.recording.outputs
        assert isolated == [False, True]

    def test_instructions_of_some_names(self) -> None:
        names = frozenset(("setp", "prmt", "ex2"))
        drawn = list(samples(1, names))
        assert {s.name.split(".")[0] for s in drawn} == set(names)
        jobs = [settled(j) for j in instruction_jobs(1, names)]
        assert all(j is not None and j.recording.outputs for j in jobs)


class TestSweeps:
    def test_there_and_back_and_a_machine_that_is_off(self) -> None:
        sweep = SWEEPS[0]  # rcp.approx.f32: one unit
        good = ask(sweep, simulator, "2026-01-02", 1024)
        assert not good.distances.any()
        assert compare(good) == 0

        def change(bits: Any) -> None:
            bits[10], bits[20], bits[30] = bits[10] + 1, bits[20] + 3, bits[30] - 1000

        wrong = ask(sweep, bits_changed(0, change), "2026-01-02", 1024)
        tree = json.loads(json.dumps(answer_to_json(wrong)))
        assert tree["width"] == 4
        back = answer_from_json(tree, "s")
        assert back.distances[[10, 20, 30]].tolist() == [1, 3, -1000]
        assert compare(back) == 2

    def test_it_is_refused_when_our_results_have_changed(self) -> None:
        good = ask(SWEEPS[2], simulator, "2026-01-02", 256)
        stale = Answer(good.sweep, 256, "0" * 64, good.distances, good.device, good.date)
        with pytest.raises(ptxsim.UsageError, match="record the sweep anew"):
            compare(stale)

    @pytest.mark.parametrize(
        ("field", "value"),
        [("opcode", "add.f32"), ("count", 1 << 40), ("count", 255), ("width", 2),
         ("distances", "A"), ("distances", 3), ("device", None)],
    )  # fmt: skip
    def test_other_objects_are_refused(self, field: str, value: Any) -> None:
        tree = answer_to_json(ask(SWEEPS[0], simulator, "2026-01-02", 256))
        with pytest.raises(ptxsim.UsageError, match="s: no sweep"):
            answer_from_json({**tree, field: value}, "s")


class TestScript:
    def run(self, *words: str) -> int:
        return record.main(list(words))

    def test_rehearsal_and_resumption(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        jobs, out = str(tmp_path / "jobs"), str(tmp_path / "out")
        only = ["--only", "cases", "--only", "litmus"]
        assert self.run("prepare", jobs, *only, "--limit", "2") == 0
        more = [*only, "--only", "sweeps", "--backend", "sim", "--sweep-count", "256"]
        assert self.run("run", jobs, out, *more, "--limit", "1") == 0
        file = tmp_path / "out" / "simulator" / "cases.jsonl"
        first = record.read_entries(file)
        assert [e["job"] for e in first] == ["001-ldmatrix-x4-tile-order-ok"]
        launched: list[str] = []
        plain = record.run_job

        def counted(job: Any, *rest: Any) -> Any:
            launched.append(job.name)
            return plain(job, *rest)

        monkeypatch.setattr(record, "run_job", counted)
        assert self.run("run", jobs, out, *more, "--limit", "2") == 0
        assert launched == ["002-ldmatrix-row-pitch-ok", "203-mp-release-acquire-ok"]
        assert record.read_entries(file)[0] == first[0]
        assert not [p for p in file.parent.iterdir() if p.suffix != ".jsonl"]

    def test_what_cannot_run_is_said_and_the_rest_goes_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        jobs, out = str(tmp_path / "jobs"), str(tmp_path / "out")
        assert self.run("prepare", jobs, "--only", "cases", "--limit", "3") == 0
        plain = record.run_job

        def fails(job: Any, *rest: Any) -> Any:
            if job.name.startswith("002"):
                raise ptxsim.UsageError("the GPU cannot run code for this target")
            return plain(job, *rest)

        monkeypatch.setattr(record, "run_job", fails)
        assert self.run("run", jobs, out, "--only", "cases", "--backend", "sim") == 1
        said = capsys.readouterr().out
        assert "cases/002-ldmatrix-row-pitch-ok: the GPU cannot run" in said
        assert "cases: 2 recorded" in said

    def test_the_time_is_kept(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        jobs, out = str(tmp_path / "jobs"), str(tmp_path / "out")
        self.run("prepare", jobs, "--only", "cases", "--limit", "1")
        words = ["run", jobs, out, "--only", "cases", "--backend", "sim", "--seconds", "-1"]
        assert self.run(*words) == 1
        assert "the time is over" in capsys.readouterr().out
        assert not (tmp_path / "out").exists()

    def test_an_interruption_leaves_what_was_done(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        jobs, out = str(tmp_path / "jobs"), str(tmp_path / "out")
        self.run("prepare", jobs, "--only", "cases", "--limit", "2")
        plain = record.run_job

        def interrupted(job: Any, *rest: Any) -> Any:
            if job.name.startswith("002"):
                raise KeyboardInterrupt
            return plain(job, *rest)

        monkeypatch.setattr(record, "run_job", interrupted)
        with pytest.raises(KeyboardInterrupt):
            self.run("run", jobs, out, "--only", "cases", "--backend", "sim")
        assert len(record.read_entries(tmp_path / "out" / "simulator" / "cases.jsonl")) == 1

    def test_damaged_files_and_wrong_use(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "cases.jsonl").write_text('{"job": "x"}\n{"jo')
        words = ["run", str(tmp_path), str(tmp_path / "out"), "--only", "cases"]
        assert self.run(*words, "--backend", "sim") == 2
        assert "cases.jsonl:2: no JSON" in capsys.readouterr().err
        assert self.run("run", str(tmp_path)) == 2

    def test_every_kind_of_job_has_a_group(self) -> None:
        assert {
            "cases",
            "litmus",
            "examples",
            "golden",
            "instructions",
            "corpus",
            "tensor-cores",
        } <= (set(record.GROUPS))
        for paths in record.TESTS.values():
            assert all((record.ROOT / path).is_file() for path in paths)

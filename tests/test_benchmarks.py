"""The benchmark kernels at small sizes against NumPy, in all orders; the command itself."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

import ptxsim
from benchmarks.__main__ import main
from benchmarks.cases import CASES, KERNELS, Case, kernel
from benchmarks.measure import large_text
from benchmarks.reference import fused_multiply_add
from benchmarks.tensor_unit import INSTRUCTIONS, PER_TURN, Instruction, Timed

# per entry a size that leaves more than one CTA, and for the vectors a last CTA that is not full;
# gemm_tile has one CTA, the size is the k of its product
SMALL = {
    "vecadd": 1000, "saxpy": 1000, "sgemm_naive": 32, "sgemm_tiled": 32, "block_reduce": 1280,
    "histogram": 5000, "mandelbrot": 32, "gemm_wmma": 64, "gemm_mma": 64,
    "gemm_tile": 64,
}  # fmt: skip
ENTRIES = list({case.entry: case for case in CASES}.values())
SCHEDULES = ("default", "reverse", "warp-serial", "early-async", "random:1", "random:2")


def result(case: Case, **options: object) -> bytes:
    """The bytes of the result of a clean launch at the small size."""
    launch = case.prepare(SMALL[case.entry])
    report = launch.run(kernel(case), **options)
    assert report.verdict == "clean", report.findings
    return bytes(launch.args[launch.result].tobytes())


@pytest.mark.parametrize("case", ENTRIES, ids=lambda c: c.entry)
class TestResults:
    def test_matches_numpy_to_the_bit(self, case: Case) -> None:
        expected = case.prepare(SMALL[case.entry]).expect()
        assert result(case) == expected.tobytes()

    def test_wrong_result_is_seen(self, case: Case) -> None:
        """One flipped bit makes ``matches`` false: the comparison can fail."""
        launch = case.prepare(SMALL[case.entry])
        launch.run(kernel(case))
        assert launch.matches()
        launch.args[launch.result].reshape(-1).view(np.uint8)[0] ^= 1
        assert not launch.matches()

    def test_waves_do_not_change_a_byte(self, case: Case) -> None:
        assert len({result(case, wave_ctas=ctas) for ctas in (1, 3, None)}) == 1

    def test_schedules_do_not_change_a_byte(self, case: Case) -> None:
        assert len({result(case, schedule=schedule) for schedule in SCHEDULES}) == 1


def test_missing_barrier_shows_in_some_schedule() -> None:
    """Without its first barrier the tiled product depends on the order: schedules do differ."""
    case = next(case for case in CASES if case.entry == "sgemm_tiled")
    head, entry, body = (KERNELS / case.file).read_text().partition(".entry sgemm_tiled")
    broken = ptxsim.assemble(head + entry + body.replace("bar.sync", "// bar.sync", 1))
    exact = []
    for schedule in SCHEDULES:
        launch = case.prepare(SMALL[case.entry])
        launch.run(broken[case.entry], schedule=schedule)
        exact.append(launch.matches())
    assert not all(exact)


class TestFusedMultiplyAdd:
    @staticmethod
    def exact(a: float, b: float, c: float) -> np.float32:
        """The float32 nearest the exact a * b + c, the even one of two; found among neighbours."""
        value = Fraction(a) * Fraction(b) + Fraction(c)
        guess = np.float32(float(value))
        near = [np.nextafter(guess, np.float32(s * np.inf)) for s in (-1, 1)]
        return min(
            [guess, *near],
            key=lambda f: (abs(Fraction(float(f)) - value), int(f.view(np.uint32)) & 1),
        )

    def test_random_values(self) -> None:
        rng = np.random.default_rng(5)
        a, b, c = rng.standard_normal((3, 500)).astype(np.float32)
        got = fused_multiply_add(a, b, c)
        assert got.tolist() == [
            float(self.exact(*map(float, abc))) for abc in zip(a, b, c, strict=True)
        ]

    def test_where_rounding_twice_is_wrong(self) -> None:
        # a * b = 2^-24 - 2^-70, so that a * b + c lies just below the tie between c and 1 + 2^-22;
        # float64 loses the 2^-70, and from the tie goes to the even neighbour, 1 + 2^-22
        a, b = np.float32((1 + 2.0**-23) * 2.0**-24), np.float32(1 - 2.0**-23)
        c = np.float32(1 + 2.0**-23)
        assert np.float32(np.float64(a) * np.float64(b) + np.float64(c)) == 1 + 2.0**-22
        assert fused_multiply_add(a, b, c) == c
        assert self.exact(float(a), float(b), float(c)) == c


class TestLargeText:
    def test_is_valid_and_every_entry_has_its_own_name(self) -> None:
        text = large_text(30_000)
        # kernels.ptx has 14334 characters and 7 entries: three copies exceed 30000
        assert len(text) > 30_000
        assert len(set(ptxsim.assemble(text).entries)) == 21


class TestTensorUnit:
    @pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=lambda i: i.entry)
    @pytest.mark.parametrize("turns", [1, 3])
    def test_every_turn_has_its_products(self, instruction: Instruction, turns: int) -> None:
        """With ones everywhere an element of D counts the products that went into it."""
        kernel = ptxsim.assemble(KERNELS / "tensor_unit.ptx")[instruction.entry]
        dtype = instruction.fragments(np.random.default_rng(0)).dtype
        fragments = np.ones(32 * 32 // dtype.itemsize, dtype)
        out = ptxsim.undefined(32 * 4, instruction.result)
        kernel.launch(grid=1, block=32, args=[fragments, out, np.uint32(turns)])
        depth = instruction.products // (16 * 8)
        assert out.tolist() == [turns * PER_TURN * depth] * 128

    def test_ratio_and_time_of_a_tile(self) -> None:
        timed = Timed("any", milliseconds=10.24, add_milliseconds=2.0, bound=30)
        assert (timed.ratio, timed.us_per_tile) == (5.12, 10.0)

    def test_report(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--only", "tensor", "--repeat", "1", "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)["tensor"]
        assert [(r["name"], r["bound"]) for r in rows] == [
            ("m16n8k16 f16->f32", 30), ("m16n8k32 s8->s32", 10),
        ]  # fmt: skip


class TestCommand:
    def test_json_of_one_kernel(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--only", "sgemm-tiled-128", "--repeat", "1", "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        (row,) = report["kernels"]
        assert (row["name"], row["exact"]) == ("sgemm-tiled-128", True)
        assert row["ratio"] > 0
        assert "parse" not in report

    def test_table_of_one_kernel(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--only", "sgemm-naive-128", "--repeat", "1"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[1].split()[0] == "kernel"
        assert lines[2].startswith("sgemm-naive-128") and lines[2].endswith("exact")

    def test_unknown_name(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as end:
            main(["--only", "nothing"])
        assert end.value.code == 2
        assert "sgemm-tiled-128" in capsys.readouterr().err

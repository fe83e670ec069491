"""Every spelling of wmma and mma that NVIDIA's assembler was asked about, and its verdict.

A kernel here holds many spellings of one target and PTX ISA version, each with the operands that
its row of ``tests/data/mma-forms.tsv`` names.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import mma_rows
import numpy as np
import pytest
from mma_rows import (
    TRIED,
    VERSIONS,
    Line,
    Row,
    Version,
    line_numbers,
    module_text,
    moves,
    parse_version,
    rows,
    spelled,
)

import ptxsim
from ptxsim.targets import TARGETS

#: The longest kernel: the resolver stops after 50 diagnostics.
_LINES = 40


def _split(lines: Sequence[Line]) -> list[Sequence[Line]]:
    return [lines[k : k + _LINES] for k in range(0, len(lines), _LINES)]


def _refused(lines: Sequence[Line], target: str, version: Version) -> dict[Line, str]:
    """The lines with an error of ptxsim, and its code; an error elsewhere is one of this file."""
    out: dict[Line, str] = {}
    for part in _split(lines):
        text = module_text(part, target, version)
        try:
            found = ptxsim.assemble("\n".join(text)).diagnostics
        except ptxsim.PtxError as error:
            found = error.diagnostics
        places = line_numbers(part, text)
        out |= {places[d.span.line]: d.code for d in found}
    return out


def _faults(lines: Sequence[Line], target: str, version: Version) -> list[str]:
    """What goes wrong when the lines are assembled and run by one warp."""
    out = [f"{line.spelling}: rejected" for line in _refused(lines, target, version)]
    if out:
        return out
    for part in _split(lines):
        text = module_text(part, target, version)
        buffers = [np.zeros(4096, np.uint8) for _ in range(2)]
        report = ptxsim.assemble("\n".join(text)).kernel().launch(grid=1, block=32, args=buffers)
        if not report.clean:
            places = line_numbers(part, text)
            out += [
                f"{places[f.line].spelling if f.line in places else f.line}: {f.message}"
                for f in report.findings
                if f.severity is ptxsim.Severity.ERROR
            ]
    return out


Group = dict[tuple[str, Version], list[Line]]


def _legal(lines: Iterable[Line]) -> Group:
    """By target and PTX ISA version: every listed target, its lowest version."""
    out: Group = defaultdict(list)
    for line in lines:
        for target in line.row.targets:
            out[target, max(line.row.version, TARGETS[target])].append(line)
    return out


def _too_early(lines: Iterable[Line]) -> Group:
    """One PTX ISA version below the floor, where a target of the row is that old."""
    out: Group = defaultdict(list)
    for line in lines:
        version = VERSIONS[VERSIONS.index(line.row.version) - 1]
        for target in line.row.targets:
            if TARGETS[target] <= version:
                out[target, version].append(line)
    return out


def _too_late(lines: Iterable[Line]) -> Group:
    """One PTX ISA version above the last."""
    out: Group = defaultdict(list)
    for line in lines:
        if line.row.until is not None:
            version = VERSIONS[VERSIONS.index(line.row.until) + 1]
            out[line.row.targets[0], version].append(line)
    return out


def _too_low(lines: Iterable[Line]) -> Group:
    """On targets that do not have it, at the lowest version of both."""
    out: Group = defaultdict(list)
    for line in lines:
        for target in line.row.lower_targets:
            out[target, max(line.row.version, TARGETS[target])].append(line)
    return out


def _taken(groups: Group, code: str) -> list[str]:
    """What is wrongly taken, or rejected with another code, among lines that are to be rejected."""
    out = []
    for (target, version), lines in groups.items():
        refused = _refused(lines, target, version)
        out += [
            f"{line.spelling} on {target} with {version[0]}.{version[1]}: {refused.get(line)}"
            for line in lines
            if refused.get(line) != code
        ]
    return out


def _other_counts(rows: Iterable[Row], seed: str | None) -> Group:
    """Each group of registers of each row with another count, by a seed or with all counts."""
    rng, out = random.Random(seed), defaultdict(list)
    for row in rows:
        for m in re.finditer(r"(?<![/\w])([RABCD]=)(\d+)x", row.registers):
            counts = [n for n in (1, 2, 4, 8, 16) if n != int(m[2])]
            for n in counts if seed is None else [rng.choice(counts)]:
                wrong = f"{row.registers[: m.start()]}{m[1]}{n}x{row.registers[m.end() :]}"
                line = Line(row.spellings()[0], replace(row, registers=wrong))
                out[row.targets[0], max(row.version, TARGETS[row.targets[0]])].append(line)
    return out


def _accepted() -> list[Row]:
    return [row for row in rows() if row.accepted]


def _rejected() -> list[Row]:
    return [row for row in rows() if not row.accepted]


#: A seed draws one spelling of each row, None stands for all spellings.
_EXTENT = pytest.mark.parametrize(
    "seed", ["rows", pytest.param(None, marks=pytest.mark.slow)], ids=["sample", "all"]
)


class TestTable:
    """Each row as it was measured."""

    @_EXTENT
    def test_accepted_rows_run(self, seed: str | None) -> None:
        for (target, version), lines in _legal(spelled(_accepted(), seed)).items():
            assert not _faults(lines, target, version), (target, version)

    @_EXTENT
    def test_rejected_rows(self, seed: str | None) -> None:
        """With the target and the PTX ISA version that the assembler was given."""
        assert not _taken(_legal(spelled(_rejected(), seed)), "PTX104")

    @_EXTENT
    def test_rejected_one_version_below_the_floor(self, seed: str | None) -> None:
        assert not _taken(_too_early(spelled(_accepted(), seed)), "PTX107")

    @_EXTENT
    def test_rejected_after_the_last_version(self, seed: str | None) -> None:
        """wmma without .aligned from 6.3, f16 with .satfinite from 6.5."""
        assert not _taken(_too_late(spelled(_accepted(), seed)), "PTX107")

    @_EXTENT
    def test_rejected_on_lower_targets(self, seed: str | None) -> None:
        assert not _taken(_too_low(spelled(_accepted(), seed)), "PTX107")

    @_EXTENT
    def test_other_register_counts(self, seed: str | None) -> None:
        """Also B of the eight-bit m16n8k16, of which ptxas 13.0 does not check the count."""
        plain = [row for row in _accepted() if "D/C" not in row.registers]
        assert not _taken(_other_counts(plain, seed), "PTX106")

    @pytest.mark.parametrize("target", ["sm_100f", "sm_103a", "sm_103f", "sm_110f"])
    def test_the_targets_of_the_family_of_sm_100a(self, target: str) -> None:
        """The table has sm_100a and sm_110a; ptxas 13.0 takes these lines on their families too."""
        lines = spelled([row for row in _accepted() if "sm_100a" in row.targets], None)
        assert len(lines) == 20  # 5 rows, two types each for A and B
        assert not _faults(lines, target, (9, 0))


class TestMoves:
    """ldmatrix, stmatrix and movmatrix in the same way."""

    LEGAL = spelled([row for row in moves() if row.accepted], None)

    def test_accepted_rows_run(self) -> None:
        for (target, version), lines in _legal(self.LEGAL).items():
            assert not _faults(lines, target, version), (target, version)

    def test_rejected_rows(self) -> None:
        lines = spelled([row for row in moves() if not row.accepted], None)
        assert not _taken(_legal(lines), "PTX104")

    def test_floors(self) -> None:
        """8.6 on sm_100a, 8.7 on sm_120a and 8.8 on sm_100f are when these targets came."""
        assert not _taken(_too_early(self.LEGAL), "PTX107")
        assert not _taken(_too_low(self.LEGAL), "PTX107")
        came = {(8, 6): "sm_100a", (8, 7): "sm_120a", (8, 8): "sm_100f"}
        assert {TARGETS[target]: target for target in came.values()} == came

    @pytest.mark.parametrize(
        "operands", ["%db0, [%s_in]", "{%db0}, [%s_in]", "{%db0, %db1, %db2, %db3}, [%s_in]"]
    )
    def test_other_registers_than_the_count(self, operands: str) -> None:
        line = f"ldmatrix.sync.aligned.m8n8.x2.shared.b16 {operands};"
        text = "\n".join([*module_text([], "sm_90", (7, 8))[:-3], line, "ret;", "}", ""])
        with pytest.raises(ptxsim.PtxError) as raised:
            ptxsim.assemble(text)
        assert [d.code for d in raised.value.diagnostics] == ["PTX106"]


#: A message of ptxas with its line.
_MESSAGE = re.compile(r"^ptxas [^,]*, line (\d+); error", re.MULTILINE)


def _judged(lines: Sequence[Line], target: str, version: Version, path: Path) -> set[Line]:
    """The lines that ptxas rejects: those with an error are left out until it takes the rest.

    A word that only its code generator rejects is reported when no other error is left.
    """
    rest, out = list(lines), set[Line]()
    while rest:
        text = module_text(rest, target, version, keep=True)
        path.write_text("\n".join(text))
        command = ["ptxas", f"-arch={target}", "-o", str(path.with_suffix(".cubin")), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not done.returncode:
            break
        places = line_numbers(rest, text)
        wrong = {places[int(n)] for n in _MESSAGE.findall(done.stderr)}
        assert wrong, done.stderr
        out |= wrong
        rest = [line for line in rest if line not in wrong]
    return out


def _release() -> Version | None:
    """The CUDA release of the ptxas on the PATH."""
    if shutil.which("ptxas") is None:
        return None
    done = subprocess.run(["ptxas", "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"release (\d+\.\d+)", done.stdout)
    return parse_version(found[1]) if found else None


#: What ptxas 13.0 knows: PTX ISA versions up to 9.0, targets from sm_75.
_JUDGED_VERSIONS = [v for v in VERSIONS if (6, 3) <= v <= (9, 0)]
_JUDGED_TARGETS = [t for t, v in TARGETS.items() if (6, 3) <= v <= (9, 0)]


def _disagreements(
    lines: Sequence[Line], target: str, version: Version, path: Path,
    judge: Callable[[Sequence[Line], str, Version, Path], set[Line]] = _judged,
) -> list[str]:  # fmt: skip
    mine, theirs = set(_refused(lines, target, version)), judge(lines, target, version, path)
    return [
        f"{line.spelling} on {target} with {version[0]}.{version[1]}: "
        f"{'rejected' if line in mine else 'taken'} here"
        for line in lines
        if (line in mine) != (line in theirs)
    ]


@pytest.mark.ptxas
class TestAgainstPtxas:
    """The verdict of NVIDIA's assembler on spellings with any target and PTX ISA version."""

    @pytest.fixture(autouse=True)
    def _judge(self) -> None:
        release = _release()
        if release is None:
            pytest.skip("ptxas is not on PATH")
        if release < (13, 0):
            pytest.skip("ptxas older than CUDA 13.0 does not know all targets of the table")

    @_EXTENT
    def test_spellings(self, seed: str | None, tmp_path: Path) -> None:
        """20 spellings with each target and one of its versions; or all, with the end versions."""
        rng, lines = random.Random(seed), spelled([*rows(), *moves()], None)
        for target in _JUDGED_TARGETS:
            known = [v for v in _JUDGED_VERSIONS if v >= TARGETS[target]]
            drawn = lines if seed is None else rng.sample(lines, 20)
            for version in {known[0], known[-1]} if seed is None else [rng.choice(known)]:
                assert not _disagreements(drawn, target, version, tmp_path / "lines.ptx")

    def test_what_the_judge_finds(self, tmp_path: Path) -> None:
        """A legal line, one of a later version, and one that its code generator rejects."""
        legal = _find("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32")
        later = _find("mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X"
                      ".f32.e2m1.e2m1.f32.ue8m0")  # fmt: skip
        small = _find("mma.sync.aligned.m16n8k16.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32")
        found = _judged([legal, later, small], "sm_120a", (9, 0), tmp_path / "lines.ptx")
        assert found == {later, small}


def _find(spelling: str) -> Line:
    (line,) = [line for line in spelled(rows(), None) if line.spelling == spelling]
    return line


class TestTheChecks:
    """What the checks above look at, and that they can fail."""

    MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"

    def test_alternatives(self) -> None:
        row = Row("a{-|.b}.c{.d|.e} (no .aligned)", "", "sm_70", "6.0", "")
        assert row.spellings() == ["a.c.d", "a.c.e", "a.b.c.d", "a.b.c.e"]

    def test_counts(self) -> None:
        """Rows, and products of the numbers of alternatives, counted apart from this code."""
        assert (len(rows()), len(_accepted()), len(_rejected())) == (396, 254, 142)
        assert len(spelled(rows(), None)) == 1554
        assert len(spelled(_accepted(), None)) == 1095

    def test_how_many_rows_have_a_version_below(self) -> None:
        """The other rows came with the first target that has them."""
        lines = spelled(_accepted(), "any")
        assert len({line.row for some in _too_early(lines).values() for line in some}) == 178
        assert len({line.row for some in _too_late(lines).values() for line in some}) == 15

    def test_limits_of_a_row(self) -> None:
        floors = [
            (line.row.version, line.row.until, line.row.targets, line.row.lower_targets)
            for line in map(_find, (
                "wmma.load.a.sync.row.m8n32k16.global.f16",
                "wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16.satfinite",
                "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4.block_scale"
                ".f32.e2m1.e2m1.f32.ue8m0",
            ))
        ]  # fmt: skip
        assert floors == [
            ((6, 1), (6, 2), ("sm_70",), ("sm_62",)),
            ((6, 3), (6, 4), ("sm_70",), ("sm_62",)),
            ((8, 7), None, ("sm_120a", "sm_121a"), (*TRIED[:9], "sm_120f")),
        ]

    def test_a_rejected_line_is_a_fault(self) -> None:
        assert _faults([_find(self.MMA)], "sm_75", (7, 0)) == [f"{self.MMA}: rejected"]

    def test_a_finding_is_a_fault(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Metadata that name an element twice."""
        lines = [_find(self.MMA), _find(self.SPARSE)]
        assert not _faults(lines, "sm_80", (7, 1))
        prologue = mma_rows._PROLOGUE.replace("0x44444444", "0")
        monkeypatch.setattr(mma_rows, "_PROLOGUE", prologue)
        (fault,) = _faults(lines, "sm_80", (7, 1))
        assert fault.startswith(self.SPARSE + ": ")

    def test_a_taken_line(self) -> None:
        lines = [_find(self.MMA), _find(self.SPARSE)]
        assert _taken({("sm_80", (7, 0)): lines}, "PTX107") == [
            f"{self.MMA} on sm_80 with 7.0: None"
        ]

    def test_a_line_rejected_for_another_reason(self) -> None:
        line = _find(self.MMA)
        assert _taken({("sm_75", (7, 0)): [line]}, "PTX104") == [
            f"{self.MMA} on sm_75 with 7.0: PTX107"
        ]

    def test_an_error_beside_the_lines(self) -> None:
        """The module of a target that its version does not have proves nothing about a line."""
        with pytest.raises(KeyError):
            _refused([_find(self.MMA)], "sm_80", (6, 5))

    def test_more_errors_than_the_resolver_lists(self) -> None:
        lines = spelled(_accepted(), None)[:200]
        assert set(_refused(lines, "sm_62", (7, 8))) == set(lines)

    def test_a_disagreement(self, tmp_path: Path) -> None:
        lines = [_find(self.MMA), _find(self.SPARSE)]
        found = _disagreements(lines, "sm_75", (7, 1), tmp_path, lambda *_: {lines[0]})
        assert found == [f"{self.SPARSE} on sm_75 with 7.1: rejected here"]
        found = _disagreements(lines, "sm_80", (7, 1), tmp_path, lambda *_: {lines[0]})
        assert found == [f"{self.MMA} on sm_80 with 7.1: taken here"]

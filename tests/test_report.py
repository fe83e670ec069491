"""Findings, their log, and the JSON report, whose shape scripts rely on."""

from __future__ import annotations

import hashlib
import json
from types import SimpleNamespace

import numpy as np
import pytest

from ptxsim import FindingsError, __version__
from ptxsim.diagnostics import Severity, Span
from ptxsim.report import (
    FINDING_CODES,
    Finding,
    FindingLog,
    LeftOut,
    Output,
    Report,
    compress_lanes,
)


def finding(class_: str = "race-shared", line: int = 36, **more: object) -> Finding:
    code = FINDING_CODES.get(class_, "PTX300")
    return Finding(class_=class_, code=code, message="two accesses", line=line, **more)  # type: ignore[arg-type]


def report(*findings: Finding, **more: object) -> Report:
    fields: dict[str, object] = {
        "file": "k.ptx", "entry": "k", "target": "sm_80", "findings": findings, "outputs": {},
        "counters": {}, **more,
    }  # fmt: skip
    return Report(**fields)  # type: ignore[arg-type]


class TestFindingLog:
    def test_one_entry_per_class_line_and_other_line(self) -> None:
        log = FindingLog()
        log.add(finding(other_line=32, count=31, ctas=((0, 0, 0),), lanes=(0, 1), warp=0))
        log.add(finding(other_line=32, count=2, ctas=((1, 0, 0),), lanes=(5,), warp=3))
        (merged,) = log.findings()
        assert merged.count == 33
        assert merged.ctas == ((0, 0, 0), (1, 0, 0))
        assert (merged.warp, merged.lanes) == (0, (0, 1))  # those of the first occurrence

    @pytest.mark.parametrize(
        "other", [finding(line=37), finding("race-global"), finding(other_line=33)]
    )
    def test_other_places_stay_apart(self, other: Finding) -> None:
        log = FindingLog()
        log.add(finding())
        log.add(other)
        assert len(log.findings()) == 2

    def test_order_is_that_of_the_first_occurrence(self) -> None:
        log = FindingLog()
        for line in (9, 4, 9, 1, 4):
            log.add(finding(line=line))
        assert [(f.line, f.count) for f in log.findings()] == [(9, 2), (4, 2), (1, 1)]

    def test_ctas_are_bounded_and_the_count_is_not(self) -> None:
        log = FindingLog()
        for x in range(100):
            log.add(finding(ctas=((x, 0, 0),)))
        (merged,) = log.findings()
        assert merged.count == 100
        assert merged.ctas == tuple((x, 0, 0) for x in range(8))

    @pytest.mark.parametrize("first", [Severity.ERROR, Severity.WARNING])
    def test_the_worst_severity_stays(self, first: Severity) -> None:
        second = Severity.WARNING if first is Severity.ERROR else Severity.ERROR
        log = FindingLog()
        log.add(finding(severity=first))
        log.add(finding(severity=second))
        assert report(*log.findings()).verdict == "race-shared"

    def test_raw_findings_of_the_machine(self) -> None:
        log = FindingLog()
        site = SimpleNamespace(text="ld.shared.u32", line=12, span=Span(12, 5, 12, 20))
        log.add_raw(
            "oob-shared", "beyond the end", site, ctas=((0, 0, 0),), warp=1, lanes=(3,),
            address=np.int64(64), space="shared", stride=np.uint32(4), name="tile",
        )  # fmt: skip
        (f,) = log.findings()
        assert (f.code, f.line, f.column, f.address) == ("PTX340", 12, 5, 64)
        assert f.values == {"stride": 4, "name": "tile"}
        json.dumps(f.to_json())  # NumPy numbers would not pass

    def test_second_party_of_a_race(self) -> None:
        log = FindingLog()
        log.add_raw(
            "race-shared", "two accesses", None, other_line=np.int64(4), other_column=5,
            other_cta=(np.int64(1), 0, 0), other_warp=np.int64(2), other_lanes=np.arange(2),
            ordering="last ordered by 'bar.sync 0' at line 3", ordering_line=np.int64(3),
            addresses=np.array([16, 20], np.uint64), size=np.int64(4),
        )  # fmt: skip
        (f,) = log.findings()
        assert f.values == {}
        more = json.loads(json.dumps(f.to_json()))
        assert {name: more[name] for name in list(more)[list(more).index("values") + 1 :]} == {
            "other_column": 5, "other_cta": [1, 0, 0], "other_warp": 2, "other_lanes": [0, 1],
            "ordering": "last ordered by 'bar.sync 0' at line 3", "ordering_line": 3,
            "addresses": [16, 20], "size": 4,
        }  # fmt: skip

    def test_raw_finding_without_an_instruction_or_a_known_class(self) -> None:
        log = FindingLog()
        log.add_raw("something-new", "message", None)
        (f,) = log.findings()
        assert (f.code, f.line, f.column) == ("PTX300", 0, 0)


class TestVerdict:
    def test_clean(self) -> None:
        r = report()
        assert (r.verdict, r.clean, r.exit_code) == ("clean", True, 0)
        r.raise_for_findings()

    def test_the_first_error_decides(self) -> None:
        r = report(
            finding("uninit-shared", severity=Severity.WARNING), finding(), finding("deadlock")
        )
        assert (r.verdict, r.clean, r.exit_code) == ("race-shared", False, 1)

    @pytest.mark.parametrize("severity", [Severity.WARNING, Severity.ADVICE])
    def test_lesser_findings_leave_a_run_clean(self, severity: Severity) -> None:
        r = report(finding(severity=severity))
        assert (r.verdict, r.exit_code) == ("clean", 0)
        r.raise_for_findings()

    def test_unsupported_has_its_own_exit_code(self) -> None:
        r = report(finding("unsupported"))
        assert (r.verdict, r.exit_code) == ("unsupported", 4)

    def test_raise_for_findings_names_place_class_and_code(self) -> None:
        with pytest.raises(FindingsError) as caught:
            report(finding(), finding("deadlock", line=40)).raise_for_findings()
        assert str(caught.value).split("\n") == [
            "k.ptx:36: race-shared: two accesses [PTX310]",
            "k.ptx:40: deadlock: two accesses [PTX303]",
        ]


class TestJson:
    def test_shape(self) -> None:
        # The key names are the interface that scripts use.
        array = np.arange(4, dtype=np.float32)
        r = report(
            finding(
                column=5, other_line=32, help="add a barrier", count=31, ctas=((0, 0, 0),), warp=0,
                lanes=(0, 1), address=16, space="shared", values={"stride": 4},
            ),
            outputs={"out": Output("f32", (4,), array, 8)},
            counters={"thread_instructions": 128},
        )  # fmt: skip
        assert r.to_json() == {
            "ptxsim": __version__,
            "file": "k.ptx",
            "entry": "k",
            "target": "sm_80",
            "verdict": "race-shared",
            "findings": [
                {
                    "class": "race-shared", "code": "PTX310", "severity": "error", "line": 36,
                    "column": 5, "other_line": 32, "message": "two accesses",
                    "help": "add a barrier", "count": 31, "ctas": [[0, 0, 0]], "warp": 0,
                    "lanes": [0, 1], "address": 16, "space": "shared", "values": {"stride": 4},
                }
            ],
            "outputs": {
                "out": {
                    "dtype": "f32", "shape": [4], "undefined_bytes": 8,
                    "sha256": hashlib.sha256(array.tobytes()).hexdigest(),
                }
            },
            "counters": {"thread_instructions": 128},
        }  # fmt: skip

    def test_printf_appears_only_if_something_was_printed(self) -> None:
        assert "printf" not in report().to_json()
        assert report(printf="hello\n").to_json()["printf"] == "hello\n"

    def test_findings_left_out_appear_with_who_left_them_out(self) -> None:
        assert "left_out" not in report().to_json()
        (left,) = report(left_out=(LeftOut(finding(), "comment", "known"),)).to_json()["left_out"]
        assert (left["by"], left["reason"]) == ("comment", "known")
        assert left["finding"]["class"] == "race-shared"

    def test_numpy_numbers_become_plain_ones(self) -> None:
        text = json.dumps(report(counters={"steps": np.int64(7)}).to_json())
        assert json.loads(text)["counters"] == {"steps": 7}


class TestOutput:
    @pytest.mark.parametrize(
        ("dtype", "token"),
        [("uint32", "u32"), ("int8", "s8"), ("float16", "f16"), ("f32", "f32"), ("bf16", "bf16")],
    )
    def test_type_tokens(self, dtype: str, token: str) -> None:
        assert Output(dtype, (1,), np.zeros(1)).dtype == token


class TestFindingCodes:
    def test_codes_are_unique_and_well_formed(self) -> None:
        codes = list(FINDING_CODES.values())
        assert len(set(codes)) == len(codes)
        assert all(c.startswith("PTX") and len(c) == 6 and c[3:].isdigit() for c in codes)


@pytest.mark.parametrize(
    ("lanes", "text"),
    [((), ""), ((5,), "5"), ((0, 1, 2, 3, 7), "0-3,7"), ((7, 3, 3, 2), "2-3,7"),
     (tuple(range(32)), "0-31"), ((0, 2, 4), "0,2,4")],
)  # fmt: skip
def test_compress_lanes(lanes: tuple[int, ...], text: str) -> None:
    assert compress_lanes(lanes) == text

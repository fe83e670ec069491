"""Every form has its floors: legal from there on, refused below with a message that names them.

The tables are ptxas' word (13.5): ``accepted-lines`` (see :mod:`tests.accepted_lines`) and
``specific-targets``, one line for each form that only architecture- or family-specific targets
have, with all of them.  A sample by default, everything under ``slow``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from ptxsim.targets import TARGETS
from tests.accepted_lines import (
    Line,
    Place,
    accepted_lines,
    lower_target,
    lower_version,
    verdicts,
)

_DATA = Path(__file__).parents[1] / "data"
_LEGAL = ("legal", "unsupported")

#: Every so manieth line is in the sample.
_STEP = 24

#: Accepted below their floor: what the directives of a prototype need is not looked at.
EXCEPTIONS = ("{ PD: ", "{ PE: ", "{ PF: ")

#: Families of which ptxsim executes nothing: how many lines of each.
NOT_EXECUTED = {
    "clusterlaunchcontrol": 8, "fabric": 52, "getctarank": 3, "istypep": 2, "mapa": 2,
    "multimem.ld_reduce": 794, "multimem.red": 490, "multimem.st": 372, "red.async": 38,
    "st.async": 121, "suld": 196, "suq": 11, "sured": 119, "sust": 221, "tcgen05": 220,
    "tensormap.cp_fenceproxy": 2, "tensormap.query": 3, "tensormap.replace": 30, "tex": 251,
    "tld4": 125, "txq": 44, "wgmma": 872,
}  # fmt: skip


def _not_legal(lines: Iterable[Line]) -> list[tuple[str, tuple[str, str]]]:
    lines = list(lines)
    found = verdicts([(line.text, line.at) for line in lines])
    return [(line.text, f) for line, f in zip(lines, found, strict=True) if f[0] not in _LEGAL]


def _taken_below(lines: Iterable[Line], below, floor) -> list[tuple[str, Place, tuple[str, str]]]:  # type: ignore[no-untyped-def]
    """Lines that ``below`` their place are not refused with a message that names the floor."""
    asked = [(line, place) for line in lines if (place := below(line.at)) is not None]
    assert asked
    found = verdicts([(line.text, place) for line, place in asked])
    return [
        (line.text, place, f)
        for (line, place), f in zip(asked, found, strict=True)
        if (f[0] != "PTX107" or not any(text in f[1] for text in floor(line.at)))
        and not line.text.startswith(EXCEPTIONS)
    ]


def _version_floor(at: Place) -> tuple[str, ...]:
    return (f"needs PTX ISA version {at.version} or later",)


def _target_floor(at: Place) -> tuple[str, ...]:
    if at.target[-1].isdigit():
        return (f"target {at.target} or higher",)
    return (f" {at.target},", f" {at.target};")


class TestSample:
    """Every so manieth line."""

    LINES = accepted_lines()[::_STEP]

    def test_legal_at_the_lowest_version_and_target(self) -> None:
        assert not _not_legal(self.LINES)

    def test_refused_at_the_version_before(self) -> None:
        assert not _taken_below(self.LINES, lower_version, _version_floor)

    def test_refused_at_the_target_before(self) -> None:
        assert not _taken_below(self.LINES, lower_target, _target_floor)


@pytest.mark.slow
class TestAll(TestSample):
    """All of them."""

    LINES = accepted_lines()

    def test_what_is_not_executed(self) -> None:
        """Checked lines of these families are known not to run; a new model shows up here."""
        found = verdicts([(line.text, line.at) for line in self.LINES])
        total = Counter(line.family for line in self.LINES)
        unsupported = Counter(
            line.family for line, f in zip(self.LINES, found, strict=True) if f[0] == "unsupported"
        )
        whole = {family: n for family, n in total.items() if unsupported[family] == n}
        assert whole == NOT_EXECUTED


class TestSpecificTargets:
    """Forms of architecture- and family-specific targets: these and no others have them."""

    ROWS = [row.split("\t") for row in
            (_DATA / "specific-targets.tsv").read_text().rstrip("\n").split("\n")[1:]]  # fmt: skip

    def test_legal_on_exactly_these(self) -> None:
        names = [t for t in TARGETS if int(t[3:].rstrip("af")) >= 89]
        asked = [(line, Place("9.5", target)) for _, _, line in self.ROWS for target in names]
        found = zip(asked, verdicts(asked), strict=True)
        legal = {(line, at.target) for (line, at), f in found if f[0] in _LEGAL}
        for _, targets, line in self.ROWS:
            assert [t[3:] for t in names if (line, t) in legal] == targets.split(" "), line

    def test_refusals_name_the_targets(self) -> None:
        asked = [
            (line, Place("9.5", "sm_" + targets.split(" ")[0].rstrip("af")))
            for _, targets, line in self.ROWS
        ]
        for (_, targets, line), (code, message) in zip(self.ROWS, verdicts(asked), strict=True):
            assert code == "PTX107", line
            assert f"sm_{targets.split(' ')[0]}" in message, (line, message)


class TestHarness:
    """The checks above can fail."""

    def test_the_tables_are_complete(self) -> None:
        assert (len(accepted_lines()), len(TestSpecificTargets.ROWS)) == (31655, 89)

    def test_an_illegal_line_is_found(self) -> None:
        lines = [Line("add", Place("2.0", "sm_20"), text) for text in
                 ("add.s32 %r1, %r2, %r3;", "add.s33 %r1, %r2, %r3;")]  # fmt: skip
        assert [text for text, _ in _not_legal(lines)] == ["add.s33 %r1, %r2, %r3;"]

    def test_a_syntax_error_does_not_hide_others(self) -> None:
        lines = [Line("add", Place("2.0", "sm_20"), text) for text in
                 ("add.s32 %r1, %r2, ;", "add.s33 %r1, %r2, %r3;")]  # fmt: skip
        assert len(_not_legal(lines)) == 2

    def test_a_line_that_is_legal_below_is_found(self) -> None:
        line = Line("add", Place("7.0", "sm_80"), "add.s32 %r1, %r2, %r3;")
        assert _taken_below([line], lower_target, _target_floor)

    def test_another_floor_is_found(self) -> None:
        line = Line("mapa", Place("8.0", "sm_90"), "mapa.u64 %rd1, %rd2, %r1;")
        assert not _taken_below([line], lower_target, _target_floor)
        line = Line("mapa", Place("8.0", "sm_100"), "mapa.u64 %rd1, %rd2, %r1;")
        assert _taken_below([line], lambda at: Place("9.5", "sm_89"), _target_floor)

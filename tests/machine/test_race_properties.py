"""The race checker against a slow model, on random programs.

Both see the same run.  A pair that the checker reports must be one of the model; and at every place
the model's first race must be reported when it happens.  After a race the checker's records are
replaced, so further pairs at the same place may be hidden; so are accesses that a write stands over
which is ordered after them, but not before the new store, and leaves the same value.
Which pairs a program has does not depend on the schedule as long as its control flow does not, so
all schedules are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import ptxsim
from ptxsim.diagnostics import Severity
from ptxsim.isa.order import MemoryOrder
from ptxsim.machine.launch import Buffer, LaunchRecord, run
from ptxsim.machine.races import RaceChecker, checker, judge, traits
from ptxsim.machine.races.fence_order import FenceOrder
from ptxsim.machine.races.judge import Judge
from ptxsim.machine.races.past import Past
from ptxsim.machine.races.phases import Phases
from ptxsim.machine.races.shadow import Shadow
from ptxsim.machine.watch import Watch, combine
from ptxsim.machine.wave import Geometry

from .race_events import Recorder
from .race_model import Model, Race
from .race_programs import KINDS, Program, make

SCHEDULES = ("default", "reverse", "warp-serial", "random:3")
#: seeds of the default run, by kind
SAMPLE = {
    "whole": 60, "parts": 70, "patterns": 70, "copies": 60, "readers": 60, "fences": 60,
    "strengths": 60, "phases": 40,
}  # fmt: skip
MANY = 2000

Pair = tuple[str, frozenset[int]]


@dataclass(frozen=True)
class Reported:
    """One finding of the checker, and the event during which it came."""

    pair: Pair
    event: int
    error: bool


def observe(
    program: Program,
    schedule: str,
    check_by: Callable[..., Watch] = RaceChecker,
    wave_ctas: int | None = None,
) -> tuple[list[Reported], list[Race]]:
    """Run a program under the checker and the model."""
    module = ptxsim.assemble(program.text).typed
    recorder = Recorder()
    reported: list[Reported] = []

    def sink(class_: str, message: str, site: Any, **more: Any) -> None:
        if class_ in ("unwaited-copy", "idle-wait"):  # no races
            return
        pair = class_, frozenset((site.line, more.get("other_line") or site.line))
        error = more.get("severity", Severity.ERROR) is Severity.ERROR
        reported.append(Reported(pair, len(recorder.events) - 1, error))

    geometry = Geometry((program.grid, 1, 1), (program.block, 1, 1))
    record = LaunchRecord(
        module, module.entries[0], geometry, (Buffer("g", np.zeros(8192, np.uint8)),),
        schedule=schedule, wave_ctas=wave_ctas,
        watch=combine([recorder, check_by(traits(module))]),
    )  # fmt: skip
    assert not run(record, sink).stopped
    model = Model(program.grid, geometry.warps * 32).run(recorder.events)
    return reported, model.races


def difference(reported: Sequence[Reported], races: Sequence[Race]) -> str:
    """What is wrong with a report, or nothing."""
    known = {(r.class_, r.lines) for r in races}
    sure = {(r.class_, r.lines) for r in races if not r.excused}
    for one in reported:
        if one.pair not in known:
            return f"false alarm: {_show(one.pair)}"
        if one.error and one.pair not in sure:
            return f"false alarm: {_show(one.pair)} is excused by fence.sc"
    errors = [r for r in races if r.class_ != "same-value-write"]
    wrong = missed(reported, errors)
    if not wrong:  # all is known at the end of the launch only
        last = [replace(r, event=0) for r in reported if r.error]
        wrong = missed(last, [r for r in errors if not r.excused])
    if wrong:
        return wrong
    advice = {(r.class_, r.lines) for r in races if r.whole}
    if not errors and advice and not reported:
        return f"missed: {', '.join(map(_show, advice))}"
    return ""


def missed(reported: Sequence[Reported], errors: Sequence[Race]) -> str:
    """At every place the first race must be there."""
    first = {r.block: r.event for r in reversed(errors)}
    for block, event in sorted(first.items()):
        now = [r for r in errors if (r.block, r.event) == (block, event)]
        here = {(r.class_, r.lines) for r in now}
        shown = not all(r.hidden for r in now)
        if shown and not here & {r.pair for r in reported if r.event <= event}:
            return f"missed at event {event}, {block}: {', '.join(map(_show, here))}"
    return ""


def _show(pair: Pair) -> str:
    return f"{pair[0]} of lines {sorted(pair[1])}"


def check(kind: str, seed: int, schedule: str, **options: Any) -> None:
    program = make(kind, seed)
    reported, races = observe(program, schedule, **options)
    wrong = difference(reported, races)
    if wrong:
        lines = enumerate(program.text.splitlines(), 1)
        text = "\n".join(f"{number:4} {line}" for number, line in lines)
        launch = f"grid={program.grid} block={program.block}"
        pytest.fail(f"{wrong}\n{kind} seed {seed} schedule {schedule} {launch}\n{text}")


@pytest.mark.parametrize(
    ("kind", "start"), [(kind, at) for kind in KINDS for at in range(0, SAMPLE[kind], 10)]
)
def test_the_checker_agrees_with_the_model(kind: str, start: int) -> None:
    for seed in range(start, start + 10):
        check(kind, seed, SCHEDULES[seed % len(SCHEDULES)])


@pytest.mark.parametrize("kind", KINDS)
def test_ctas_of_other_waves_are_concurrent(kind: str) -> None:
    """Waves run one after the other, which is no order; the model does not know of them."""
    several = [seed for seed in range(1000, 1030) if make(kind, seed).grid > 1]
    for seed in several[:5]:
        check(kind, seed, "default", wave_ctas=1)


@pytest.mark.parametrize("kind", ["parts", "fences", "strengths", "phases"])
def test_long_lists_are_compared_in_parts(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "_PAIRS", 3)
    for seed in range(12):
        check(kind, seed, "default")


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_checker_agrees_with_the_model_on_many(kind: str, schedule: str) -> None:
    for seed in range(MANY):
        check(kind, seed, schedule)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_sample_has_racy_and_clean_programs(kind: str) -> None:
    classes: list[set[str]] = []
    for seed in range(60):
        _, races = observe(make(kind, seed), "default")
        classes.append({r.class_ for r in races})
    clean = sum(not found for found in classes)
    assert 6 <= clean <= 48
    wanted = {"race-shared", "race-global", "same-value-write"}
    if kind in ("readers", "strengths"):
        wanted = {"race-global"}
    if kind in ("copies", "readers"):
        wanted.add("async-race")
    assert set().union(*classes) >= wanted


# --- the comparison can fail ------------------------------------------------------------------


class _ArriveTakes(RaceChecker):
    """bar.arrive takes order, as if it waited."""

    def barrier_arrived(
        self, wave: Any, barrier: int, lanes: Any, count: Any, waits: bool, site: Any
    ) -> None:
        super().barrier_arrived(wave, barrier, lanes, count, True, site)


class _NoWarpSync(RaceChecker):
    """bar.warp.sync orders nothing."""

    def warp_synced(self, group: Any, members: Any) -> None:
        """Forget it."""


class _WholeWarpSync(RaceChecker):
    """bar.warp.sync orders all lanes of the warp, whatever its mask."""

    def warp_synced(self, group: Any, members: Any) -> None:
        present = members.any(axis=2)
        super().warp_synced(group, present[:, :, None] & present[:, None, :])


class _CopiesLand(RaceChecker):
    """cp.async is complete for its thread when it is issued."""

    def copy_issued(
        self, wave: Any, lanes: Any, target: Any, source: Any, size: int, copied: Any,
        group: Any, site: Any,
    ) -> None:  # fmt: skip
        super().copy_issued(wave, lanes, target, source, size, copied, group, site)
        self.copies_waited(wave, lanes, group + 1, site)


class _NoWait(RaceChecker):
    """Waits for cp.async do nothing."""

    def copies_waited(self, wave: Any, lanes: Any, limit: Any, site: Any) -> None:
        """Forget it."""


class _NoFence(RaceChecker):
    """Fences do nothing."""

    def fence(self, wave: Any, lanes: Any, order: MemoryOrder, site: Any) -> None:
        """Forget it."""


class _WideFence(RaceChecker):
    """Every fence has the scope of the system."""

    def fence(self, wave: Any, lanes: Any, order: MemoryOrder, site: Any) -> None:
        super().fence(wave, lanes, replace(order, scope="sys"), site)


class _WeakIsRelaxed(RaceChecker):
    """Every load takes part as a relaxed one."""

    def load(self, group: Any, access: Any, place: Any) -> None:
        site = access.site
        if not site.order.strong:
            key = id(site)
            if key not in _SITES:
                _SITES[key] = _Site(site.text, site.line, MemoryOrder("sys"), site)
            access = replace(access, site=_SITES[key])
        super().load(group, access, place)


@dataclass(frozen=True)
class _Site:
    text: str
    line: int
    order: MemoryOrder
    #: keeps the instruction alive, whose identity is the key
    of: Any

    @property
    def span(self) -> Any:
        return self.of.span


_SITES: dict[int, _Site] = {}


@pytest.mark.parametrize(
    ("kind", "checker", "says"),
    [
        ("parts", _ArriveTakes, "missed"),
        ("whole", _NoWarpSync, "false alarm"),
        ("parts", _WholeWarpSync, "missed"),
        ("copies", _CopiesLand, "missed"),
        ("copies", _NoWait, "false alarm"),
        ("patterns", _NoFence, "false alarm"),
        ("patterns", _WideFence, "missed"),
        ("whole", _WeakIsRelaxed, "missed"),
    ],
)
def test_a_wrong_rule_is_noticed(kind: str, checker: type[RaceChecker], says: str) -> None:
    assert _noticed(kind, checker, says)


def _wide(self: FenceOrder, lanes: Any, times: Any, wide: bool) -> None:
    _ADD(self, lanes, times, True)


_ADD = FenceOrder.add


@pytest.mark.parametrize(
    ("of", "name", "wrong", "says"),
    [
        (FenceOrder, "add", lambda *_: None, "false alarm"),
        (FenceOrder, "add", _wide, "missed"),
        (FenceOrder, "excuses", lambda *_: True, "missed"),
        (FenceOrder, "_free", lambda *_: True, "missed"),
        (Past, "met", lambda *_: None, "missed"),
        (Past, "mixed", lambda *_: None, "false alarm"),
        (Judge, "_pairs", lambda self, shadow, index, twice: (
            np.flatnonzero(twice), shadow.last(index)[twice]), "missed"),
    ],
    ids=[
        "no fence", "every fence of all", "always", "fences in the wrong order", "no barriers",
        "no parts of warps", "lanes of one store with the last only",
    ],
)  # fmt: skip
def test_a_wrong_order_of_fences_is_noticed(
    of: type, name: str, wrong: Any, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of, name, wrong)
    assert _noticed("fences", RaceChecker, says)


def test_a_lost_reader_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two slots of reads are needed: with one, a race with the other reader is missed."""
    add = Shadow.add

    def one_slot(self: Shadow, slots: Any, at: Any, *rest: Any) -> None:
        add(self, slots, at, *rest)
        if slots is self.reads:
            self.reads[1].clear(at)

    monkeypatch.setattr(Shadow, "add", one_slot)
    assert _noticed("readers", RaceChecker, "missed")


def test_a_lost_copy_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where cp.async reads a place, a third reader is needed."""
    monkeypatch.setattr(Judge, "_keep_copies", lambda *_: None)
    assert _noticed("readers", RaceChecker, "missed")


def test_a_lost_lane_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where parts of warps meet, all that is unordered is needed."""
    monkeypatch.setattr(Judge, "_keep_all", lambda *_: None)
    assert _noticed("parts", RaceChecker, "missed")


def test_a_lost_strength_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A narrow access races with what a later one of the thread does not."""
    monkeypatch.setattr(Judge, "_keep_others", lambda *args: args[-1])
    assert _noticed("strengths", RaceChecker, "missed")


def test_a_lost_word_of_a_vector_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "_vector", lambda access, at: [at])
    assert _noticed("strengths", RaceChecker, "false alarm")


def test_a_lost_lane_of_a_large_step_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first and the last lane of a warp do not stand for those between."""
    add = judge.add_warp

    def ends(kept: Any, writes: bool, record: int, site: int, how: int, at: int, mask: int) -> None:
        add(kept, writes, record, site, how, at, mask & -mask | 1 << mask.bit_length() - 1)

    monkeypatch.setattr(judge, "add_warp", ends)
    assert _noticed("phases", RaceChecker, "missed")


def test_a_lost_arrival_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    arrived = Phases.arrived

    def first(self: Phases, lanes: Any, barrier: Any, phase: Any, order: MemoryOrder) -> None:
        arrived(self, lanes[:1], barrier[:1], phase[:1], order)

    monkeypatch.setattr(Phases, "arrived", first)
    assert _noticed("phases", RaceChecker, "false alarm")


def _noticed(kind: str, checker: type[RaceChecker], says: str) -> bool:
    """Whether the sample of the default run shows a difference that begins with these words."""
    for seed in range(SAMPLE[kind]):
        program = make(kind, seed)
        schedule = SCHEDULES[seed % len(SCHEDULES)]
        if difference(*observe(program, schedule, checker)).startswith(says):
            return True
    return False

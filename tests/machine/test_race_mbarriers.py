"""Objects and barriers of which some lanes are late, left out, or gone.

The verdicts follow PTX ISA 9.1: mbarrier, cp.async.mbarrier.arrive and barrier.  The parties of a
race are marked ``//!``; each faulty kernel has a clean twin.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.verdicts import SCHEDULES

from .test_race_pipelines import errors, run
from .test_race_proxies import check

LATE = [schedule for schedule in SCHEDULES if schedule != "early-async"]
WAIT = "W: mbarrier.try_wait.parity.shared.b64 %q, [%bar], 0; {mark}\n@!%q bra W;\n"
ARRIVE = "mbarrier.arrive.shared.b64 %state, [%bar];"


def begun(count: int) -> str:
    return f"@%zero mbarrier.init.shared.b64 [%bar], {count};\nbar.sync 0;\n"


READ, ADD = "ld.shared.u32 %r1, [%s];", "red.shared.or.b32 [%s], 8;"


@pytest.mark.parametrize(("access", "options"), [
    (READ, {"block": 1024}), (ADD, {"block": 1024}), (READ, {"block": 128, "grid": 8}),
    (READ, {"block": 128, "grid": 8, "wave_ctas": 1}),
], ids=["reads", "atomics", "reads of eight CTAs", "reads of eight waves"])  # fmt: skip
def test_one_lane_of_many_does_not_arrive(access: str, options: dict[str, Any]) -> None:
    """More lanes than are looked at one by one; the late one is neither first nor last."""
    body = f"""{access} //!
    setp.ne.u32 %p, %t, {{late}};
    @%p {ARRIVE}
    setp.ne.u32 %p, %t, 7;
    @%p bra END;
    {WAIT.format(mark="")}st.shared.u32 [%s], 5; //!
    END:"""
    count = options["block"]
    check(begun(count - 1) + body.format(late=69), "race-shared", **options)
    check(begun(count) + body.format(late=5000), **options)


class TestEndOfAnObject:
    """mbarrier.inval comes after all uses that give or take order."""

    END = "@%zero mbarrier.inval.shared.b64 [%bar];"

    def test_after_the_waits_of_others(self) -> None:
        """Others may still wait; in some schedules they then find no object any more."""
        for schedule in ("default", "reverse"):
            report, marked = run(
                f"{begun(64)}{ARRIVE}\n{WAIT.format(mark='//!')}{self.END} //!", schedule=schedule
            )
            assert errors(report) == {("race-shared", marked)}
        check(f"{begun(64)}{ARRIVE}\n{WAIT.format(mark='')}bar.sync 0;\n{self.END}")

    def test_after_the_arrivals_of_others(self) -> None:
        """The one that waits knows of all arrivals."""
        check(f"{begun(64)}{ARRIVE}\n@!%zero bra NO;\n{WAIT.format(mark='')}{self.END}\nNO:")


class TestCopiesThatArrive:
    """cp.async.mbarrier.arrive counts in the phase that is current when the copies have landed."""

    BODY = (
        """mad.lo.u32 %x, %l, 4, %s; mad.wide.u32 %d, %l, 4, %g;
    setp.eq.u32 %p, %w, 1;
    @%p bra TAKE;
    cp.async.ca.shared.global [%x], [%d], 4; //!
    cp.async.mbarrier.arrive{noinc}.shared.b64 [%bar];
    mbarrier.arrive.shared.b64 %state, [%bar];
    bra END;
    TAKE:
    """
        + WAIT.format(mark="")
        + "ld.shared.u32 %r1, [%x]; //!\nEND:"
    )

    @pytest.mark.parametrize("schedule", LATE)
    def test_not_counted(self, schedule: str) -> None:
        """The phase completes with the arrivals of the threads alone."""
        report, marked = run(begun(32) + self.BODY.format(noinc=".noinc"), schedule=schedule)
        assert errors(report) == {("async-race", marked)}

    @pytest.mark.parametrize(("count", "noinc"), [(64, ".noinc"), (32, "")])
    def test_counted(self, count: int, noinc: str) -> None:
        """By the count of the object, or by raising what is pending."""
        check(begun(count) + self.BODY.format(noinc=noinc))


HALVES = """setp.eq.u32 %p, %w, 1;
    @%p bra TAKE;
    setp.lt.u32 %q, %l, 16;
    @%q bra LOW;
    setp.eq.u32 %p, %l, 16;
    {first}
    {second}
    bra END;
LOW:add.u32 %i, %i, 1;
    setp.lt.u32 %q, %i, {rounds};
    @%q bra LOW;
    barrier.arrive 1, 64;
    bra END;
TAKE:
    barrier.sync 1, 64;
    setp.eq.u32 %p, %l, 0;
    @%p ld.shared.u32 %r2, [%s]; //!
END:"""


@pytest.mark.parametrize("rounds", [1, 20])
def test_halves_of_a_warp_arrive(rounds: int) -> None:
    """What a lane does after it has arrived is not given by those that arrive later."""
    parts = "barrier.arrive 1, 64;", "@%p st.shared.u32 [%s], 1; //!"
    late = HALVES.format(first=parts[0], second=parts[1], rounds=rounds)
    check(late, "race-shared")
    check(HALVES.format(first=parts[1], second=parts[0], rounds=rounds))

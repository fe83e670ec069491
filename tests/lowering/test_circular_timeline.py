"""The order of a circular-buffered loop: its timelines, and that the judge finds wrong orders.

The rows are worked out by hand for T = 1, 2, 3 and 5 tiles in S = 2, 3 and 4 slots: distance S - 1,
one commit a step, wait_group S - 2.  The faulty orders are those that were reported for nvFuser
(csarofeen/pytorch PR 2457: the commit behind the wait; fixed by PR 2470 and NVIDIA/Fuser 47) and
their relatives.
"""

from __future__ import annotations

import pytest

from lowering.circular.loops import BlockSync, Commit, Wait
from lowering.circular.timeline import (
    Event,
    Fault,
    Kind,
    Load,
    Order,
    Use,
    faults,
    timeline,
    trace,
)

ROWS = {
    (2, 1): ("L0r C0; W0[g<1] B", "- C1 M0 W0[g<2] B"),
    (2, 2): ("L0r C0; W0[g<1] B", "L1 C1 M0 W0[g<2] B", "- C2 M1 W0[g<3] B"),
    (2, 3): (
        "L0r C0; W0[g<1] B",
        "L1 C1 M0 W0[g<2] B", "L2 C2 M1 W0[g<3] B", "- C3 M2 W0[g<4] B",
    ),
    (2, 5): (
        "L0r C0; W0[g<1] B",
        "L1 C1 M0 W0[g<2] B", "L2 C2 M1 W0[g<3] B", "L3 C3 M2 W0[g<4] B", "L4 C4 M3 W0[g<5] B",
        "- C5 M4 W0[g<6] B",
    ),
    (3, 1): ("L0r C0; - C1; W1[g<1] B", "- C2 M0 W1[g<2] B"),
    (3, 2): ("L0r C0; L1 C1; W1[g<1] B", "- C2 M0 W1[g<2] B", "- C3 M1 W1[g<3] B"),
    (3, 3): (
        "L0r C0; L1 C1; W1[g<1] B",
        "L2 C2 M0 W1[g<2] B", "- C3 M1 W1[g<3] B", "- C4 M2 W1[g<4] B",
    ),
    (3, 5): (
        "L0r C0; L1 C1; W1[g<1] B",
        "L2 C2 M0 W1[g<2] B", "L3 C3 M1 W1[g<3] B", "L4 C4 M2 W1[g<4] B",
        "- C5 M3 W1[g<5] B", "- C6 M4 W1[g<6] B",
    ),
    (4, 1): ("L0r C0; - C1; - C2; W2[g<1] B", "- C3 M0 W2[g<2] B"),
    (4, 2): ("L0r C0; L1 C1; - C2; W2[g<1] B", "- C3 M0 W2[g<2] B", "- C4 M1 W2[g<3] B"),
    (4, 3): (
        "L0r C0; L1 C1; L2 C2; W2[g<1] B",
        "- C3 M0 W2[g<2] B", "- C4 M1 W2[g<3] B", "- C5 M2 W2[g<4] B",
    ),
    (4, 5): (
        "L0r C0; L1 C1; L2 C2; W2[g<1] B",
        "L3 C3 M0 W2[g<2] B", "L4 C4 M1 W2[g<3] B",
        "- C5 M2 W2[g<4] B", "- C6 M3 W2[g<5] B", "- C7 M4 W2[g<6] B",
    ),
}  # fmt: skip
DEPTHS = range(2, 7)
TILES = range(12)


@pytest.mark.parametrize(("depth", "tiles"), ROWS)
def test_rows(depth: int, tiles: int) -> None:
    shown = timeline(depth, tiles)
    assert (shown.prolog, *shown.iterations) == ROWS[depth, tiles]


def test_the_text_has_a_line_for_each_row() -> None:
    assert str(timeline(2, 1)) == "L0r C0; W0[g<1] B\n- C1 M0 W0[g<2] B\n"


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("tiles", TILES)
def test_the_reference_order_is_right(depth: int, tiles: int) -> None:
    events = trace(depth, tiles)
    assert faults(events, depth, tiles) == ()
    kinds = [type(e) for e in events]
    assert kinds.count(Load) == kinds.count(Use) == tiles
    assert kinds.count(Commit) == depth - 1 + tiles
    assert kinds.count(Wait) == tiles + 2  # and one of them is wait_all
    assert kinds.count(BlockSync) == tiles + 1


def _first(depth: int, tiles: int, order: Order) -> Fault | None:
    found = faults(trace(depth, tiles, order), depth, tiles)
    return found[0] if found else None


# --- the commit behind the wait -------------------------------------------------------------------


@pytest.mark.parametrize("depth", range(2, 7))
@pytest.mark.parametrize("tiles", range(2, 12))
def test_commit_behind_the_wait(depth: int, tiles: int) -> None:
    found = faults(trace(depth, tiles, Order(commit_last=True)), depth, tiles)
    # the prolog waits for tile 0 only; each later wait sees one group too few
    assert [(f.kind, f.tile) for f in found] == [(Kind.RAW, t) for t in range(1, tiles)]


@pytest.mark.parametrize("depth", range(2, 7))
@pytest.mark.parametrize("tiles", range(12))
def test_a_stray_commit_hides_it_until_tile_s_minus_1(depth: int, tiles: int) -> None:
    order = Order(commit_last=True, stray_commit=True)
    found = faults(trace(depth, tiles, order), depth, tiles)
    assert [(f.kind, f.tile) for f in found] == [(Kind.RAW, t) for t in range(depth - 1, tiles)]


def test_three_tiles_in_three_slots_lose_exactly_the_last() -> None:
    found = faults(trace(3, 3, Order(commit_last=True, stray_commit=True)), 3, 3)
    assert [(f.kind, f.tile) for f in found] == [(Kind.RAW, 2)]


@pytest.mark.parametrize("tiles", TILES)
def test_two_slots_escape_if_the_wait_is_for_all(tiles: int) -> None:
    order = Order(commit_last=True, zero_is_all=True)
    assert faults(trace(2, tiles, order), 2, tiles) == ()


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("tiles", TILES)
def test_a_stray_commit_alone_is_harmless(depth: int, tiles: int) -> None:
    assert faults(trace(depth, tiles, Order(stray_commit=True)), depth, tiles) == ()


# --- other faults ---------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("tiles", [1, 2, 5, 11])
def test_a_wait_that_leaves_one_group_more(depth: int, tiles: int) -> None:
    found = faults(trace(depth, tiles, Order(slack=1)), depth, tiles)
    assert (found[0].kind, found[0].tile) == (Kind.RAW, 0)
    assert {f.tile for f in found if f.kind is Kind.RAW} == set(range(tiles))


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_wait_for_more_than_needed_is_right(depth: int) -> None:
    events = [Wait(0) if isinstance(e, Wait) else e for e in trace(depth, 7)]
    assert faults(events, depth, 7) == ()


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("tiles", [2, 5, 11])
def test_no_barriers_in_the_loop(depth: int, tiles: int) -> None:
    found = faults(trace(depth, tiles, Order(barriers=False)), depth, tiles)
    # what the prolog's barrier made visible is tile 0 alone
    assert [f.tile for f in found if f.kind is Kind.RAW] == list(range(1, tiles))
    # tile S is the first that takes a slot that was used
    assert [f.tile for f in found if f.kind is Kind.WAR] == list(range(depth, tiles))


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("tiles", TILES)
def test_each_barrier_but_the_last_is_needed(depth: int, tiles: int) -> None:
    events = trace(depth, tiles)
    at = [i for i, e in enumerate(events) if isinstance(e, BlockSync)]
    for number, i in enumerate(at):
        found = faults(events[:i] + events[i + 1 :], depth, tiles)
        raw = [f.tile for f in found if f.kind is Kind.RAW]
        assert raw == ([number] if number < tiles else [])
        war = [f.tile for f in found if f.kind is Kind.WAR]
        assert war == ([number - 1 + depth] if 0 < number <= tiles - depth else [])


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("tiles", [1, 2, 5, 11])
def test_no_drain(depth: int, tiles: int) -> None:
    found = faults(trace(depth, tiles, Order(drain=False)), depth, tiles)
    lost = list(range(max(tiles - depth + 1, 0), tiles))
    assert [(f.kind, f.tile) for f in found] == [(Kind.USE, t) for t in lost]
    bare = faults(trace(depth, tiles, Order(drain=False, wait_all=False)), depth, tiles)
    # the last wait covers the first of them
    assert [f.tile for f in bare if f.kind is Kind.PENDING] == lost[1:]


def test_the_last_wait_covers_all_copies() -> None:
    assert faults(trace(4, 5, Order(wait_all=False)), 4, 5) == ()


def test_copies_that_nobody_waits_for() -> None:
    events: list[Event] = [Load(0), Commit(), Wait(0), BlockSync(), Load(1), Commit(), Use(0)]
    assert faults(events, 2, 1) == (Fault(Kind.PENDING, 1, 7),)


def test_a_load_over_a_copy_in_flight() -> None:
    events: list[Event] = [
        Load(0), Commit(), Load(2), Commit(), Wait(0), BlockSync(), Use(2), Wait(None),
    ]  # fmt: skip
    assert [(f.kind, f.tile) for f in faults(events, 2, 3)] == [(Kind.WAR, 2), (Kind.USE, 2)]


def test_copies_without_a_wait_pend_also_where_their_slot_was_given_away() -> None:
    events: list[Event] = [Load(0), Commit(), Load(2), Commit()]
    found = [(f.kind, f.tile) for f in faults(events, 2, 0)]
    assert found == [(Kind.WAR, 2), (Kind.PENDING, 0), (Kind.PENDING, 2)]


def test_a_load_too_far_ahead_takes_a_slot_in_use() -> None:
    events: list[Event] = [
        Load(0), Commit(), Wait(0), BlockSync(), Use(0), Load(2), Commit(), Wait(0), BlockSync(),
    ]  # fmt: skip
    assert [(f.kind, f.tile) for f in faults(events, 2, 1)] == [(Kind.WAR, 2)]


def test_wrong_slots() -> None:
    events: list[Event] = [
        Load(0), Load(1), Commit(), Wait(0), BlockSync(), Use(0, slot=1), Use(1, slot=0), Use(2, 2),
    ]  # fmt: skip
    found = faults(events, 3, 3)
    assert [(f.kind, f.tile) for f in found] == [(Kind.SLOT, t) for t in range(3)]
    assert faults([Load(0, slot=1), *events[2:5], Use(0, slot=1)], 3, 1) == ()


def test_tiles_that_are_used_twice_or_out_of_order() -> None:
    base: list[Event] = [Load(0), Load(1), Commit(), Wait(0), BlockSync()]
    twice = faults([*base, Use(0), Use(0), Use(1)], 2, 2)
    assert [(f.kind, f.tile) for f in twice] == [(Kind.USE, 0)]
    swapped = faults([*base, Use(1), Use(0)], 2, 2)
    assert [(f.kind, f.tile) for f in swapped[:2]] == [(Kind.USE, 1), (Kind.USE, 0)]


def test_a_single_slot_has_no_timeline() -> None:
    with pytest.raises(ValueError, match="2 or more slots"):
        trace(1, 3)


def test_the_first_fault_is_told_with_its_place() -> None:
    assert _first(3, 3, Order()) is None
    # L0 C L1 C W1 B | L2 M0 W1 B C | M1
    assert _first(3, 3, Order(commit_last=True)) == Fault(Kind.RAW, 1, 11)

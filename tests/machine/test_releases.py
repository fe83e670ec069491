"""Chains of released clocks: looking into one tells the same as putting its clocks together."""

from __future__ import annotations

import numpy as np
import pytest

from ptxsim.machine.races.clocks import Clock, Knowledge, Moment, joined
from ptxsim.machine.races.releases import Chain

LANES = 64


def filled(know: Knowledge, chain: Chain, lanes: list[int]) -> list[Clock]:
    """Lanes release to a chain one after the other, with a tick after each; their clocks."""
    clocks = []
    for lane in lanes:
        moment = Moment(know, np.array([lane]))
        chain.append(moment, lane)
        clocks.append(moment.clock(lane))
        know.tick(np.array([lane]))
    return clocks


def known(clock: Clock) -> list[int]:
    return [clock.newest(lane) for lane in range(LANES)]


@pytest.mark.parametrize("closed", [False, True])
def test_a_prefix_knows_what_its_clocks_know(closed: bool) -> None:
    know, chain = Knowledge(np.array([0]), LANES), Chain()
    clocks = filled(know, chain, [0, 40, 1, 0, 41, 2, 0, 63, 40])
    chain.closed = closed
    for count in range(1, len(clocks) + 1):
        whole = joined(clocks[:count])
        assert whole is not None
        assert known(chain.clock(count)) == known(whole)
        assert not (closed and chain.clock(count).tracks)
    # by hand: warp 0 ticks at its five releases, lane 0 releases at its times 1, 3 and 5
    assert [chain.clock(n).newest(0) for n in range(1, 10)] == [1, 1, 1, 3, 3, 3, 5, 5, 5]
    assert chain.clock(9).newest(40) == 4


@pytest.mark.parametrize("closed", [False, True])
def test_a_chain_in_a_chain(closed: bool) -> None:
    """Lane 50 acquires six clocks of one chain and releases to another, of which lane 51 takes."""
    know, one, other = Knowledge(np.array([0]), LANES), Chain(), Chain()
    filled(know, one, [0, 1, 2, 3, 4, 5])
    know.acquire(50, one.clock(6))
    filled(know, one, [6])
    filled(know, other, [40, 41, 42, 43, 50])
    one.closed = closed
    clock = other.clock(5)
    assert [clock.newest(lane) for lane in range(7)] == [1, 2, 3, 4, 5, 6, -1]
    assert clock.knows(5, 6)
    assert not clock.knows(5, 7)
    assert known(joined((clock, Clock())) or clock) == known(clock)


def test_a_clock_is_appended_once() -> None:
    """A lane that has not fenced again releases nothing new."""
    know, chain = Knowledge(np.array([0]), LANES), Chain()
    moment = Moment(know, np.array([3]))
    chain.append(moment, 3)
    chain.append(moment, 3)
    assert chain.count == 1

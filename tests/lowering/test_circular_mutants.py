"""Wrong loop nests: the interpreter says what is wrong, and ptxsim says it of the kernel.

Each is a lowered fusion with one statement changed: the defects that nvFuser's pipelines had, and
what the order of waits, commits and barriers is there for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
from circular_fusions import (
    LANDINGS,
    SCHEMES,
    Case,
    Change,
    case,
    crossed_sum,
    doubled,
    interpreted,
    launched,
    rewritten,
    row_sum,
    scheme_id,
    simulated,
)

from lowering.circular.emit import emit
from lowering.circular.integers import Symbol, select
from lowering.circular.interpret import LoopError
from lowering.circular.loops import (
    Access,
    Block,
    BlockSync,
    Commit,
    Compute,
    Copy,
    If,
    Loop,
    Node,
    Program,
    Stage,
    Test,
    Wait,
    Why,
    statements,
)
from lowering.circular.lower import Scheme
from lowering.circular.timeline import Kind, Order, faults, trace

B, K = Symbol("B"), Symbol("K")
SLOTS = [2, 3, 4]

LOAD, COPY = "ld.shared.f32", "cp.async.ca.shared.global"


def _without(kind: type) -> Change:
    return lambda node: [] if isinstance(node, kind) else None


def _in(stage: Stage, change: Change) -> Change:
    """A change of the loop of a stage only."""

    def outer(node: Node) -> Sequence[Node] | None:
        if not isinstance(node, Loop) or node.stage is not stage:
            return None
        program = Program("", (), (), node.body, (1, 1, 1), (select(1, 1, 1),) * 3)
        return [replace(node, body=rewritten(program, change).body)]

    return outer


def _body(change: Callable[[Block], Sequence[Node]]) -> Change:
    """A change of the bodies of the main loop and the drain."""

    def outer(node: Node) -> Sequence[Node] | None:
        if not isinstance(node, Loop) or node.stage is Stage.NONE:
            return None
        return [replace(node, body=tuple(change(node.body)))]

    return outer


def _committed_last(body: Block) -> list[Node]:
    rest = [n for n in body if not isinstance(n, Commit)]
    place = next(i for i, n in enumerate(rest) if isinstance(n, Wait)) + 1
    return [*rest[:place], Commit(), *rest[place:]]


def _mutant(made: Case, change: Change) -> Case:
    """The case with a changed program, which is another one."""
    program = rewritten(made.program, change)
    assert program.body != made.program.body
    return replace(made, program=program)


def _refused(made: Case) -> LoopError:
    """What the interpreter says, under both landings alike."""
    errors = []
    for landing in LANDINGS:
        with pytest.raises(LoopError) as caught:
            interpreted(made, landings=[landing])
        errors.append(caught.value)
    assert str(errors[0]) == str(errors[1])
    return errors[0]


def _found(made: Case) -> set[tuple[str, str, str]]:
    return launched(made).found()


@dataclass(frozen=True)
class Lines:
    """The lines of an emitted kernel by what stands there."""

    text: list[str]

    def of(self, opcode: str) -> list[int]:
        return [n for n, line in enumerate(self.text, 1) if opcode in line]


def _lines(made: Case) -> Lines:
    return Lines(emit(made.program).text().splitlines())


# --- unchanged ------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", SLOTS)
def test_nothing_is_wrong_with_what_is_changed_below(slots: int) -> None:
    made = case(crossed_sum(K, slots), K=45)
    interpreted(made)
    simulated(made)
    assert rewritten(made.program, lambda node: None) == made.program


def test_a_wrong_result_is_noticed() -> None:
    made = case(crossed_sum(K, 3), K=45)
    drained = _mutant(
        made, lambda n: [] if isinstance(n, Loop) and n.stage is Stage.DRAIN else None
    )
    # the tiles of the last S-1 iterations are not used: no tool can know that, the oracle does
    with pytest.raises(AssertionError, match="Arrays are not equal"):
        interpreted(drained)
    done = launched(drained)
    assert not done.report.findings
    with pytest.raises(AssertionError, match="Arrays are not equal"):
        drained.expect(done.arrays, range)


# --- order of the pipeline ------------------------------------------------------------------------


@pytest.mark.parametrize("slots", SLOTS)
def test_commit_behind_the_wait_b1(slots: int) -> None:
    mutant = _mutant(case(crossed_sum(K, slots), K=45), _body(_committed_last))
    error = _refused(mutant)
    assert error.kind == "in-flight"
    assert isinstance(error.node, Compute)
    # the first tile that races is 1, in slot 1: slots have 8 rows of 8 elements
    assert "element 64 of 'x_s'" in str(error)
    assert faults(trace(slots, 6, Order(commit_last=True)), slots, 6)[0].kind is Kind.RAW
    done = launched(mutant)
    assert done.found() == {("async-race", LOAD, COPY)}
    lines = _lines(mutant)
    for finding in done.report.findings:
        # all loads of shared memory against the copies of tiles from 1 on
        assert finding.line in lines.of(LOAD)
        assert finding.other_line in lines.of(COPY)[1:]


@pytest.mark.parametrize("slots", SLOTS)
def test_one_more_group_may_pend(slots: int) -> None:
    mutant = _mutant(
        case(crossed_sum(K, slots), K=45),
        lambda n: [Wait(slots - 1)] if n == Wait(slots - 2) else None,
    )
    error = _refused(mutant)
    assert error.kind == "in-flight"
    assert isinstance(error.node, Compute)
    # the prolog has not waited for tile 0
    assert "element 0 of 'x_s'" in str(error)
    # and its wait, which waits for nothing, is worth a word
    assert _found(mutant) == {("async-race", LOAD, COPY), ("idle-wait", "cp.async.wait_group", "")}


@pytest.mark.parametrize("slots", SLOTS)
def test_no_barrier_in_the_main_loop(slots: int) -> None:
    mutant = _mutant(case(crossed_sum(K, slots), K=45), _in(Stage.MAIN, _without(BlockSync)))
    error = _refused(mutant)
    assert error.kind == "race"
    # the next load overwrites what others may still read
    assert isinstance(error.node, Copy)
    assert "was read by another thread since the last barrier" in str(error)
    # in the kernel both directions: copies after reads, and reads of what others have copied
    assert _found(mutant) == {("async-race", LOAD, COPY), ("async-race", COPY, LOAD)}


@pytest.mark.parametrize("slots", [3, 4])
def test_no_barrier_in_the_drain(slots: int) -> None:
    mutant = _mutant(case(crossed_sum(K, slots), K=45), _in(Stage.DRAIN, _without(BlockSync)))
    error = _refused(mutant)
    assert error.kind == "race"
    assert isinstance(error.node, Compute)
    assert "was written by another thread since the last barrier" in str(error)
    assert _found(mutant) == {("async-race", LOAD, COPY)}


def test_the_last_barrier_guards_nothing() -> None:
    # with two slots the drain has one iteration, the last: its barrier may be dropped
    mutant = _mutant(case(crossed_sum(K, 2), K=45), _in(Stage.DRAIN, _without(BlockSync)))
    interpreted(mutant)
    simulated(mutant)


@pytest.mark.parametrize("slots", SLOTS)
def test_no_barrier_behind_the_prolog(slots: int) -> None:
    made = case(crossed_sum(K, slots), K=45)
    place = next(i for i, n in enumerate(made.program.body) if isinstance(n, BlockSync))
    body = (*made.program.body[:place], *made.program.body[place + 1 :])
    mutant = replace(made, program=replace(made.program, body=body))
    error = _refused(mutant)
    assert error.kind == "race"
    assert isinstance(error.node, Compute)
    assert _found(mutant) == {("async-race", LOAD, COPY)}


@pytest.mark.parametrize("place", [0, 1])
def test_one_slot_needs_two_barriers(place: int) -> None:
    # in front of the uses (RAW), and behind them, before the next tile is loaded (WAR)
    made = case(crossed_sum(K, 1), K=45)
    interpreted(made)

    def dropped(body: Block) -> list[Node]:
        barriers = [i for i, n in enumerate(body) if isinstance(n, BlockSync)]
        assert len(barriers) == 2
        return [n for i, n in enumerate(body) if i != barriers[place]]

    mutant = _mutant(made, _body(dropped))
    error = _refused(mutant)
    assert error.kind == "race"
    assert isinstance(error.node, Copy if place else Compute)
    assert {class_ for class_, _, _ in _found(mutant)} == {"async-race"}


# --- tiles that do not exist ----------------------------------------------------------------------


@pytest.mark.parametrize(("slots", "k"), [(3, 8), (4, 5), (4, 13), (6, 1)])
def test_prolog_without_tests_b3(slots: int, k: int) -> None:
    made = case(crossed_sum(K, slots), K=k)
    interpreted(made)
    mutant = _mutant(made, lambda n: n.body if isinstance(n, If) else None)
    error = _refused(mutant)
    assert error.kind == "range"
    assert f"index {k} of axis 1 of 'x' ({k})" in str(error)
    done = launched(mutant)
    assert done.found() == {("oob-global", COPY, "")}
    # the copies of the tiles T to S-2, which are written out
    tiles = -(-k // 8)
    assert {f.line for f in done.report.findings} <= set(_lines(mutant).of(COPY)[tiles : slots - 1])


@pytest.mark.parametrize("slots", SLOTS)
def test_main_loop_to_the_end_without_a_drain(slots: int) -> None:
    made = case(crossed_sum(K, slots), K=45)
    drain = next(n for n in made.program.body if isinstance(n, Loop) and n.stage is Stage.DRAIN)

    def longer(node: Node) -> Sequence[Node] | None:
        if not isinstance(node, Loop) or node.stage is Stage.NONE:
            return None
        return [] if node == drain else [replace(node, stop=drain.stop)]

    mutant = _mutant(made, longer)
    error = _refused(mutant)
    assert error.kind == "range"
    assert "index 45 of axis 1 of 'x' (45)" in str(error)
    done = launched(mutant)
    assert done.found() == {("oob-global", COPY, "")}
    assert {f.line for f in done.report.findings} == {_lines(mutant).of(COPY)[-1]}


def test_masked_loads_without_their_test() -> None:
    made = case(crossed_sum(K, 3), Scheme(tail="masked"), K=45)
    interpreted(made)
    simulated(made)
    mutant = _mutant(
        made, lambda n: [replace(n, guard=())] if isinstance(n, Copy) and n.cache else None
    )
    assert _refused(mutant).kind == "range"
    assert _found(mutant) == {("oob-global", COPY, "")}


def test_shifted_tiles_in_iteration_0_b5() -> None:
    # the steady rule for all iterations of a consumer: j - sigma is negative in iteration 0
    made = case(doubled(Symbol("N"), 3), N=45)
    interpreted(made)

    def shifted(node: Node) -> Sequence[Node] | None:
        if not isinstance(node, Copy) or node.out.buffer.name != "y":
            return None
        tile, place = Symbol("n.o"), Symbol("tid.x")
        index = (tile - 1) * 16 + place + Symbol("n.o.rest")
        return [replace(node, out=Access(node.out.buffer, (index,)), guard=())]

    mutant = _mutant(made, _in(Stage.MAIN, shifted))
    error = _refused(mutant)
    assert error.kind == "range"
    # r = 13: element -3
    assert "index -3 of axis 0 of 'y'" in str(error)
    assert _found(mutant) == {("oob-global", "st.global.f32", "")}


# --- groups ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", SLOTS)
@pytest.mark.parametrize("scheme", SCHEMES[::3], ids=scheme_id)
def test_no_stray_commit_b2(slots: int, scheme: Scheme) -> None:
    # S-1 groups in the prolog and one in each iteration, T = 6; those of the drain are empty
    made = case(crossed_sum(K, slots), scheme, K=45)
    counts = interpreted(made).counts
    assert counts.commits == 8 * (slots - 1 + 6)
    assert counts.waits == {slots - 2: 8 * (1 + 6), None: 8}
    if scheme.tail == "drain":
        # and where stores make the zeros, tile 0 of the threads whose columns are behind r = 5
        skipped = 3 if scheme.fill == "explicit" and scheme.peel != "off" else 0
        assert counts.empty_commits == 8 * (slots - 1) + skipped


@pytest.mark.parametrize("slots", [3, 4])
def test_groups_pend_when_the_loop_is_entered_again_b6(slots: int) -> None:
    # one loop over all tiles writes zeros for those that do not exist; without wait_all they are
    # on their way when the next matrix is loaded
    made = case(crossed_sum(K, slots, batches=B), Scheme("off", tail="masked"), B=3, K=21)
    interpreted(made)
    simulated(made)
    mutant = _mutant(made, lambda n: [] if n == Wait(None) else None)
    error = _refused(mutant)
    assert error.kind == "in-flight"
    assert isinstance(error.node, Copy)
    assert _found(mutant) == {("async-race", COPY, COPY)}


@pytest.mark.parametrize("slots", SLOTS)
def test_a_drain_leaves_nothing_pending_b6(slots: int) -> None:
    # the last groups are empty, so nothing can land late even without wait_all
    made = case(crossed_sum(K, slots, batches=B), B=3, K=21)
    mutant = _mutant(made, lambda n: [] if n == Wait(None) else None)
    assert interpreted(mutant).counts.pending_at_exit == 0
    simulated(mutant)


# --- zeros ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", SLOTS)
def test_a_residue_tile_without_zeros(slots: int) -> None:
    def skipped(node: Node) -> Sequence[Node] | None:
        if not isinstance(node, Copy) or node.zero is None:
            return None
        return [replace(node, zero=None, guard=(*node.guard, Test(node.zero.live, Why.AXIS)))]

    mutant = _mutant(case(crossed_sum(K, slots), K=45), skipped)
    error = _refused(mutant)
    assert error.kind == "undefined"
    assert "of 'y' gets no value" in str(error)
    assert _found(mutant) == {("uninit-shared", LOAD, "st.global.f32")}


def test_zeros_that_win_a_maximum() -> None:
    made = case(row_sum(4, 45, op="max", rows=4), low=-9, high=-1)
    mutant = _mutant(made, lambda n: [replace(n, guard=())] if isinstance(n, Compute) else None)
    with pytest.raises(AssertionError, match="Arrays are not equal"):
        interpreted(mutant)
    assert not any(isinstance(n, Compute) and n.guard for n in statements(mutant.program.body))

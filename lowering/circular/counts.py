"""How often the statements of a loop nest are executed, counted in its text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from .integers import Expr, Int, Op, Select, evaluate
from .loops import (
    Block,
    BlockSync,
    Commit,
    Copy,
    Define,
    Fill,
    If,
    Loop,
    Mma,
    Parallel,
    Program,
    Test,
    Wait,
)

__all__ = ["NAMES", "executions"]

#: What is counted, in the order of a table.
NAMES = (
    "axis tests", "uniform tests", "bound tests", "fills", "cp.async", "other copies",
    "commits", "waits", "barriers", "mma",
)  # fmt: skip


def executions(program: Program, sizes: Mapping[str, int]) -> dict[str, int]:
    """Executions by threads, over all CTAs, of a launch with these sizes.

    What stands under a test of one thread is counted for all, as a predicated instruction is.
    """
    ctas = 1
    for count in program.grid:
        ctas *= evaluate(count, sizes)
    x, y, z = program.block
    found: Counter[str] = Counter()
    values = {**sizes, **dict.fromkeys(("ctaid.x", "ctaid.y", "ctaid.z"), 0)}
    values.update(dict.fromkeys(("tid.x", "tid.y", "tid.z"), 0))
    _block(program.body, values, 1, found)
    return {name: found[name] * ctas * x * y * z for name in NAMES}


def _block(block: Block, values: dict[str, int], times: int, found: Counter[str]) -> None:
    for node in block:
        if isinstance(node, Loop):
            _loop(node, values, times, found)
        elif isinstance(node, If):
            _tests(node.tests, times, found)
            if all(evaluate(test.condition, values) for test in node.tests):
                _block(node.body, values, times, found)
        elif isinstance(node, Define):
            values[node.name] = evaluate(node.value, values)
            if node.why is not None:
                found[f"{node.why.value} tests"] += times * _comparisons(node.value)
        elif isinstance(node, Copy):
            found["cp.async" if node.cache else "other copies"] += times
            _tests(node.guard, times, found)
            if node.zero is not None:
                found[f"{node.zero.why.value} tests"] += times * _comparisons(node.zero.live)
        elif isinstance(node, Fill):
            if node.out.buffer.memory.value == "shared":
                found["fills"] += times
        else:
            for kind, name in (
                (Commit, "commits"), (Wait, "waits"), (BlockSync, "barriers"), (Mma, "mma"),
            ):  # fmt: skip
                if isinstance(node, kind):
                    found[name] += times * (_products(node) if isinstance(node, Mma) else 1)


def _products(node: Mma) -> int:
    """The mma instructions of one thread's warp for a product of whole matrices."""
    fragment = node.acc.buffer.fragment
    rows, columns = node.acc.buffer.extents[-2:]
    depth = node.a.buffer.extents[-1]
    assert fragment is not None
    m, n, k = fragment.shape
    return evaluate(rows, {}) // m * (evaluate(columns, {}) // n) * (evaluate(depth, {}) // k)


def _loop(node: Loop, values: dict[str, int], times: int, found: Counter[str]) -> None:
    start, stop = evaluate(node.start, values), evaluate(node.stop, values)
    if node.parallel is Parallel.UNROLL or not _inner(node.body):
        values[node.var] = start
        _block(node.body, values, times * max(stop - start, 0), found)
        return
    for i in range(start, stop):
        values[node.var] = i
        _block(node.body, values, times, found)


def _inner(block: Block) -> bool:
    """Whether how often something is executed may depend on the loop around it."""
    for node in block:
        if isinstance(node, If):
            return True
        if isinstance(node, Loop) and (
            not isinstance(node.start, Int) or not isinstance(node.stop, Int) or _inner(node.body)
        ):
            return True
    return False


def _tests(tests: Iterable[Test], times: int, found: Counter[str]) -> None:
    for test in tests:
        found[f"{test.why.value} tests"] += times * _comparisons(test.condition)


def _comparisons(e: Expr) -> int:
    """The comparisons in an expression; names stand for what was compared elsewhere."""
    if isinstance(e, Op):
        mine = 1 if e.name in ("<", "==") else 0
        return mine + _comparisons(e.left) + _comparisons(e.right)
    if isinstance(e, Select):
        return sum(map(_comparisons, (e.condition, e.yes, e.no)))
    return 0

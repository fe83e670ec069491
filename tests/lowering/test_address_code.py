"""Address code: any table of the thread has code, and the code computes the table when it runs."""

from __future__ import annotations

import doctest
import random
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from lowering import address
from lowering.address import Emitter, synthesize
from ptxsim.build import Address, Kernel, Special

Table = NDArray[np.int64]


def run(tables: Sequence[Table]) -> list[list[int]]:
    """What one kernel with the code of all tables (of one length) computes, by one emitter."""
    threads = len(tables[0])
    k = Kernel("addresses", target="sm_80")
    out = k.parameter("out", "u64")
    thread = k.new("mov.u32", "b32", Special("%tid.x"))
    there = k.new("ld.param.u64", "b64", Address(out))
    k.emit("mad.wide.u32", there, thread, 4, there)
    emitter = Emitter(k, thread)
    for number, table in enumerate(tables):
        value = emitter.value(synthesize(table))
        k.emit("st.global.b32", Address(there, 4 * threads * number), value)
    result = np.zeros((len(tables), threads), np.uint32)
    report = k.assemble().kernel().launch(grid=1, block=threads, args=[result])
    assert report.clean
    return [[int(x) for x in row] for row in result]


def instructions(table: Table) -> int:
    """How many instructions the code of a table takes, predicates and moves included."""
    k = Kernel("k", target="sm_80")
    thread = k.register("b32")
    Emitter(k, thread).value(synthesize(table))
    return len(k.body_text().splitlines())


def same(tables: Sequence[Table]) -> None:
    """Code equals table, evaluated and run."""
    for table in tables:
        assert synthesize(table).table().tolist() == table.tolist()
    assert run(tables) == [t.tolist() for t in tables]


T = np.arange(32)


class TestKnownForms:
    # by hand
    @pytest.mark.parametrize(
        ("table", "formula", "cost"),
        [
            (0 * T + 48, "48", 0),
            (16 * (T & 7), "16*(t & 7)", 1),
            (32 * (T & 7) + 16 * (T >> 3 & 1), "32*(t & 7) + 16*(t >> 3 & 1)", 3),
            (144 * (T & 15), "144*(t & 15)", 1),
            (T, "1*(t & 31)", 1),
        ],
        ids=["constant", "one field", "two fields", "no power of two", "the index"],
    )
    def test_formula(self, table: Table, formula: str, cost: int) -> None:
        code = synthesize(table)
        assert (code.describe(), code.cost) == (formula, cost)
        same([table])

    def test_swizzle_is_one_exclusive_or(self) -> None:
        """128 k + 16 (g ^ k): the form of the specification has five instructions without base."""
        table = 128 * (T & 7) + 16 * ((T >> 3) ^ (T & 7))
        assert instructions(table) <= 5
        assert "^" in synthesize(table).describe()
        same([table])

    def test_index_name(self) -> None:
        assert synthesize(4 * T).describe("lane") == "4*(lane & 31)"

    def test_select(self) -> None:
        """One irregular entry: a selection, nothing wider."""
        table = 16 * (T & 7)
        table[5] = 1000
        code = synthesize(table)
        assert "if t >> " in code.describe() and code.cost > 1
        same([table])

    def test_doctest(self) -> None:
        result = doctest.testmod(address)
        assert result.attempted >= 1 and result.failed == 0


def affine(rng: random.Random, count: int) -> Table:
    """A sum of fields of the index."""
    t = np.arange(count)
    return sum(
        (rng.choice([0, 1, 2, 16, 24, 72, 144, 1000]) * (t >> b & 1) for b in range(10)),
        np.full(count, rng.choice([0, 16, 4096])),
    )


def exclusive(rng: random.Random, count: int) -> Table:
    """Linear over exclusive or."""
    t = np.arange(count)
    out = np.full(count, rng.choice([0, 64]))
    for bit in range(10):
        out = out ^ (t >> bit & 1) * rng.randrange(1024)
    return out


def mixed(rng: random.Random, count: int) -> Table:
    """A swizzled sum."""
    table = affine(rng, count)
    result: Table = table ^ ((table >> 7 & rng.choice([1, 3, 7])) << 4)
    return result


def halves(rng: random.Random, count: int) -> Table:
    """One form for some threads, another for the rest."""
    cut = rng.choice([1, 8, 16, 24, count // 2, count - 1])
    return np.concatenate([affine(rng, count)[:cut], mixed(rng, count)[cut:]])


def arbitrary(rng: random.Random, count: int) -> Table:
    """No form."""
    return np.array([rng.randrange(1 << 16) for _ in range(count)])


KINDS = (affine, exclusive, mixed, halves, arbitrary)


class TestRandom:
    @pytest.mark.parametrize("count", [32, 64, 96, 160, 224, 1])
    def test_tables(self, count: int) -> None:
        rng = random.Random(count)
        same([kind(rng, count) for kind in KINDS[:4] for _ in range(6)])

    @pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 64])
    def test_arbitrary(self, count: int) -> None:
        rng = random.Random(count)
        same([arbitrary(rng, count) for _ in range(2)])

    @pytest.mark.parametrize("count", [3, 5, 7, 100, 1000, 1024])
    def test_odd_counts(self, count: int) -> None:
        """The code of threads that do not exist does not matter."""
        rng = random.Random(count)
        same([affine(rng, count), mixed(rng, count), np.arange(count) % 3])

    def test_sums_have_no_selection(self) -> None:
        """A sum of fields needs none, whatever the number of threads."""
        rng = random.Random(5)
        for count in (32, 96, 100, 128, 1000):
            for _ in range(10):
                assert " if " not in synthesize(affine(rng, count)).describe()

    def test_decreasing(self) -> None:
        """Terms that would be negative."""
        same([31 - T, 16 * (31 - T), 1024 - 8 * (T & 7), 16 * (T >> 3) + 112 - 16 * (T & 7)])

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(20))
    def test_many(self, seed: int) -> None:
        rng = random.Random(seed)
        for count in (32, 96, 128, rng.randrange(2, 300)):
            same([kind(rng, count) for kind in KINDS for _ in range(5)])


def test_the_comparison_can_fail() -> None:
    table = 16 * (T & 7)
    (got,) = run([table])
    assert got == table.tolist()
    table[31] += 1
    assert got != table.tolist()
    code = synthesize(table)
    assert code.table().tolist() != (16 * (T & 7)).tolist()


def test_fields_are_shared() -> None:
    """One emitter computes a field, and a whole table, once."""
    k = Kernel("k", target="sm_80")
    emitter = Emitter(k, k.register("b32"))
    first = emitter.value(synthesize(16 * (T & 7)))
    assert emitter.value(synthesize(16 * (T & 7))) == first
    emitter.value(synthesize(64 * (T & 7)))
    assert k.body_text().count("and.b32") == 1 and len(k.body_text().splitlines()) == 3

"""Damaged files end in a tree or in PtxError with places inside of the text, never otherwise."""

from __future__ import annotations

import pytest
from mutation import damaged
from samples import CORPUS

from ptxsim.errors import PtxError
from ptxsim.syntax import format_text, parse, to_text
from ptxsim.syntax.parser import CODES

TEXTS = [path.read_text() for path in CORPUS]


def _check(text: str) -> bool:
    """True if the text parses."""
    try:
        tree = parse(text)
    except PtxError as error:
        lines = text.split("\n")
        assert 1 <= len(error.diagnostics) <= 20
        for d in error.diagnostics:
            assert d.code in CODES
            assert 1 <= d.span.line <= len(lines)
            assert 1 <= d.span.column <= len(lines[d.span.line - 1]) + 1
            assert (d.span.end_line, d.span.end_column) > (d.span.line, d.span.column)
        return False
    assert parse(to_text(tree)) == tree
    formatted = format_text(text)
    assert parse(formatted) == tree
    assert format_text(formatted) == formatted
    return True


def _run(seeds: range) -> int:
    return sum(_check(damaged(TEXTS[seed % len(TEXTS)], seed)) for seed in seeds)


@pytest.mark.parametrize("begin", range(0, 500, 100))
def test_damaged_files(begin: int) -> None:
    parsed = _run(range(begin, begin + 100))
    assert 0 < parsed < 100  # both outcomes occur, so the damage is neither none nor total


@pytest.mark.slow
@pytest.mark.parametrize("begin", range(500, 20_500, 1000))
def test_damaged_files_at_length(begin: int) -> None:
    _run(range(begin, begin + 1000))


def test_damage_is_repeatable() -> None:
    assert damaged(TEXTS[0], 7) == damaged(TEXTS[0], 7)
    assert damaged(TEXTS[0], 7) != damaged(TEXTS[0], 8)

"""``format_text``: canonical layout that means the same and stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from samples import CORPUS

from ptxsim.errors import PtxError
from ptxsim.syntax import format_text, parse


@pytest.mark.parametrize("path", CORPUS, ids=lambda p: p.stem)
def test_corpus(path: Path) -> None:
    text = path.read_text()
    formatted = format_text(text)
    assert parse(formatted) == parse(text)
    assert format_text(formatted) == formatted


def test_comments_of_statements_are_kept_in_place() -> None:
    text = "// head\n.version 9.0 // v\n.entry k() {\n// alone\nret; // behind\n}\n"
    assert format_text(text) == (
        "// head\n.version 9.0  // v\n.entry k()\n{\n\t// alone\n\tret;  // behind\n}\n"
    )


def test_wrong_text_is_refused() -> None:
    with pytest.raises(PtxError):
        format_text(".version")

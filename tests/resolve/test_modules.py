"""Modules by hand, legal and not, each with the verdict of ptxas 13.0.

Declarations, initialisers, linkage, heads of functions and of modules, prototypes, labels, tables,
calls, ``.alias``, ``.file``, ``.pragma`` and ``.section``.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

import ptxsim

_FILE = Path(__file__).parents[1] / "data" / "verdicts" / "modules.tsv.gz"

#: Where ptxsim differs: what the text of a module has -> why.
KEPT = {
    r'^\.pragma "(?!nounroll|x)': "an unknown pragma is ignored, as the manual has it",
    r"(_|\ba)<[23]>\)": "ptxas 13.5 takes numbered parameters",
    r"\.language": "a directive of later versions",
    r"\.reg \.pred r; call": "a limit of code generation",
    r"^#line\n": "lines of a preprocessor are skipped",
    r"^@@DWARF": "debug lines of early compilers are skipped",
    r"= 18446744073709551616": "no 64 bits hold it",
    r"\.b(8|128) a(\[2\])? = \{?(1\.0|0f)": "no float has this size",
    r"\.f16x2 a = \{": "a scalar is no list",
    r"v\.z,1": "a vector of two has no third component",
    r"\.u64 \.align 16 a": "an alignment behind the type is documented nowhere",
}


def _rows() -> list[tuple[str, str]]:
    _, *lines = gzip.decompress(_FILE.read_bytes()).decode().rstrip("\n").split("\n")
    pairs = (line.split("\t") for line in lines)
    return [(verdict, json.loads(f'"{text}"')) for verdict, text in pairs]


ROWS = _rows()


def _differing(rows: Iterable[tuple[str, str]]) -> list[str]:
    out = []
    for verdict, text in rows:
        try:
            ptxsim.assemble(text)
            found = "legal"
        except ptxsim.PtxError:
            found = "refused"
        if found != verdict:
            out.append(text)
    return out


def test_modules() -> None:
    differing = _differing(ROWS)
    reasons = {p: [t for t in differing if re.search(p, t, re.MULTILINE)] for p in KEPT}
    known = {text for texts in reasons.values() for text in texts}
    assert [text for text in differing if text not in known] == []
    assert [pattern for pattern, texts in reasons.items() if not texts] == []
    assert len(differing) == 27


def test_the_table_is_complete() -> None:
    """Guards the test above against passing for want of rows."""
    assert len(ROWS) == 1903
    assert sum(verdict == "legal" for verdict, _ in ROWS) == 875


@pytest.mark.parametrize("row", [0, 7, 400], ids=str)
def test_a_wrong_verdict_is_noticed(row: int) -> None:
    verdict, text = ROWS[row]
    wrong = "refused" if verdict == "legal" else "legal"
    assert _differing([(verdict, text), (wrong, text)]) == [text]

"""``.loc`` and ``.file``: where an instruction comes from, and through which calls."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxsim.diagnostics import SourcePlace
from ptxsim.syntax.line_table import LineTable

TESTS = Path(__file__).parents[1]


def _at(text: str, line: int, column: int = 0) -> list[str]:
    return [str(place) for place in LineTable(text).at(line, column)]


class TestLines:
    def test_a_place_holds_up_to_the_next(self) -> None:
        text = ".entry k() {\nadd;\n.loc 1 5 3\nadd;\nadd;\n.loc 2 7 0\nadd;\n}\n"
        text += '.file 1 "a.cu"\n.file 2 "b.h", 1700000000, 99\n'
        assert [_at(text, n) for n in range(1, 8)] == [
            [], [], ["a.cu:5:3"], ["a.cu:5:3"], ["a.cu:5:3"], ["b.h:7"], ["b.h:7"],
        ]  # fmt: skip

    def test_the_next_function_begins_without(self) -> None:
        text = '.file 1 "a.cu"\n.func f() {\n.loc 1 5 3\nadd;\n}\n.visible .entry k() {\nadd;\n}\n'
        assert (_at(text, 4), _at(text, 7)) == (["a.cu:5:3"], [])

    def test_on_one_line_the_column_decides(self) -> None:
        text = '.file 1 "a.cu"\n.loc 1 5 3 add; .loc 1 6 3 sub;\n'
        columns = [text.split("\n")[1].index(word) + 1 for word in ("add", "sub")]
        assert [_at(text, 2, c) for c in columns] == [["a.cu:5:3"], ["a.cu:6:3"]]
        assert _at(text, 2) == ["a.cu:6:3"]

    def test_line_0_is_none(self) -> None:
        """Compilers write it for code of their own."""
        assert _at('.file 1 "a.cu"\n.loc 1 0 5\nadd;\n', 3) == []

    def test_comments_and_texts_say_nothing(self) -> None:
        text = (
            '.file 1 "a.cu"\n.loc 1 5 1\n// .loc 1 6 1\n/* .loc 1 7 1 */\n.pragma ".loc 1 8 1";\n'
        )
        assert _at(text + "add;\n", 6) == ["a.cu:5:1"]

    def test_words_that_begin_alike(self) -> None:
        assert _at('.file 1 "a.cu"\n.loc 1 5 1\n.local .b8 x[4];\nadd;\n', 4) == ["a.cu:5:1"]

    def test_outside_of_the_text(self) -> None:
        text = '.file 1 "a.cu"\n.loc 1 5 1'
        assert [_at(text, n) for n in (-1, 0, 3, 1 << 70)] == [[], [], [], []]

    def test_a_file_without_a_name(self) -> None:
        assert _at(".loc 3 5 1\nadd;\n", 2) == ["file 3:5:1"]

    def test_names_beyond_ascii_are_octal(self) -> None:
        assert _at('.file 1 "\\303\\251 \\"1\\".cu"\n.loc 1 5 1\n', 2) == ['é "1".cu:5:1']


class TestInlined:
    def test_what_nvcc_writes(self) -> None:
        """``y[i] = scaled(i)`` of scale.cuh stands inside put, which inlined.cu calls in line 5."""
        table = LineTable((TESTS / "debuginfo" / "inlined_line.ptx").read_text())
        put, scaled = "_Z3putPjj", "_Z6scaledj"
        call = SourcePlace("inlined.cu", 5, 5)
        multiply, store = (
            next(n for n, line in enumerate(table._text.split("\n"), 1) if word in line)
            for word in ("mad.lo", "st.global")
        )
        body = SourcePlace("scale.cuh", 6, 5, put)
        assert table.at(multiply, 2) == (SourcePlace("scale.cuh", 2, 5, scaled), body, call)
        assert table.at(store, 2) == (body, call)

    def test_the_call_is_the_last_one_of_its_place(self) -> None:
        text = "\n".join([
            ".loc 2 7 3, function_name $f, inlined_at 1 10 1",
            ".loc 2 8 3, function_name $g+2, inlined_at 2 7 3", "add;",
            ".loc 2 7 3, function_name $f, inlined_at 1 20 1",
            ".loc 2 8 3, function_name $g+2, inlined_at 2 7 3", "add;",
            '.file 1 "a.cu"', '.file 2 "b.h"',
            ".section .debug_str", "{", "$f:", ".b8 102", ".b8 0", "$g:", ".b8 0,0,103, 50,0", "}",
        ])  # fmt: skip
        assert _at(text, 3) == ["b.h:8:3", "b.h:7:3", "a.cu:10:1"]
        assert _at(text, 6) == ["b.h:8:3", "b.h:7:3", "a.cu:20:1"]
        assert [p.function for p in LineTable(text).at(6)] == ["g2", "f", ""]

    def test_a_call_that_nothing_describes(self) -> None:
        text = '.file 1 "a.cu"\n.loc 1 7 3, function_name $f, inlined_at 1 10 1\n'
        assert _at(text, 2) == ["a.cu:7:3", "a.cu:10:1"]

    def test_calls_have_an_end(self) -> None:
        """Each of these describes the call of the one after it; 32 are told."""
        text = '.file 1 "a.cu"\n' + ".loc 1 1 1, function_name $f, inlined_at 1 1 1\n" * 1000
        assert _at(text, 1001) == ["a.cu:1:1"] * 32

    def test_a_name_has_an_end(self) -> None:
        text = '.file 1 "a.cu"\n.loc 1 1 1, function_name $f, inlined_at 1 2 1\n'
        text += ".section .debug_str {\n$f:\n" + ".b8 65\n" * 2000 + "}\n"
        assert LineTable(text).at(2)[0].function == "A" * 256


@pytest.mark.parametrize(
    "rest",
    ["/*" * 200_000, '"' + '\\"' * 200_000, ".section .debug_str {" + "a" * 400_000 + "}",
     ".loc" + " " * 400_000, ".loc 1 1 1, function_name " + "a" * 400_000, '.file 2 "' * 100_000,
     ".section .debug_str {" + "a " * 200_000, ".loc " * 100_000],
    ids=["comment", "text", "label", "spaces", "function", "files", "labels", "locs"],
)  # fmt: skip
def test_long_texts_are_read_once(rest: str) -> None:
    """Where each beginning looked for its end anew, these would take hours."""
    text = '.file 1 "a.cu"\n.loc 1 5 1, function_name $f, inlined_at 1 6 1\nadd;\n' + rest
    assert _at(text, 3) == ["a.cu:5:1", "a.cu:6:1"]


_DIRECTIVES = ".loc .file .entry .section .debug_str .b8 function_name inlined_at .loc"
_WORDS = [*_DIRECTIVES.split(), *'1 2 "a" " , + : { } $f // /*'.split()]


@given(st.lists(st.sampled_from([*_WORDS, "*/", "\n", ".loc 1 2 2", "9" * 30]), max_size=60))
def test_any_text_has_an_answer(words: list[str]) -> None:
    text = " ".join(words)
    for line in range(text.count("\n") + 3):
        for place in LineTable(text).at(line):
            assert place.line > 0

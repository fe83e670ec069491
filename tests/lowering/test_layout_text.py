"""The text form of layouts: what is printed parses back, and bad text is refused with a column."""

from __future__ import annotations

import pytest

from lowering.layout import (
    ComposeLayout,
    Iter,
    LayoutError,
    LayoutTextError,
    Swizzle,
    TileLayout,
    parse,
    parse_tile,
    row_major,
)

# origin of the first entry: the specification's own example of the text form; others by hand
CANONICAL = [
    "S[(8,4,2,2):(4@laneid,1@laneid,2,1)] + R[2:4@warpid] + 5@warpid",
    "S[128:1]",
    "S[1:1@laneid]",
    "S[(2,3):(-100,1)] + -3",
    "S[8:0] + R[(2,4):(4@warpid,1@cbx)] + 2@laneid + 0 + 67@tid_in_wg",
    "swizzle(3,3,3) o S[(64,2,64):(64,4096,1)]",
    "swizzle(0,1,2,outer) o S[8:1] + 8",
]


@pytest.mark.parametrize("text", CANONICAL)
def test_canonical_text_is_printed_back(text: str) -> None:
    layout = parse(text)
    assert str(layout) == text
    assert parse(str(layout)) == layout


def test_parts() -> None:
    layout = parse(CANONICAL[0])
    assert layout == TileLayout.of(
        [Iter(8, 4, "laneid"), Iter(4, 1, "laneid"), Iter(2, 2), Iter(2, 1)],
        [Iter(2, 4, "warpid")],
        {"warpid": 5},
    )
    assert parse(CANONICAL[6]) == ComposeLayout(
        TileLayout.of([Iter(8, 1)], offset={"m": 8}), Swizzle(0, 1, 2, inner=False)
    )


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("S[(8,4,2)]", "S[(8,4,2):(8,2,1)]"),  # strides left out are row-major on memory
        ("S[16]", "S[16:1]"),
        ("S[(16)]", "S[16:1]"),
        ("S[(16,):(1,)]", "S[16:1]"),
        (" S [ ( 8 ,\t4 ) : ( 4 @ laneid,\n1@m ) ]\n", "S[(8,4):(4@laneid,1)]"),
        ("S[8:1] + 5@warpid + R[2:8] + R[2:16] + 1@warpid", "S[8:1] + R[(2,2):(8,16)] + 6@warpid"),
        ("swizzle(3,3,3,inner) o S[8]", "swizzle(3,3,3) o S[8:1]"),
        ("S[8:007]", "S[8:7]"),
    ],
)
def test_free_forms(text: str, printed: str) -> None:
    assert str(parse(text)) == printed


def test_parse_tile_refuses_a_swizzle() -> None:
    assert parse_tile("S[(8,4)]") == row_major((8, 4))
    with pytest.raises(LayoutTextError, match="column 1: expected 'S', found 'swizzle'"):
        parse_tile("swizzle(3,3,3) o S[8:1]")


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "expected 'S', found end of text"),
        ("  ", 1, "expected 'S', found end of text"),
        ("T[8:1]", 1, "expected 'S', found 'T'"),
        ("S(8:1)", 2, r"expected '\[', found '\('"),
        ("S[8:1", 6, r"expected '\]', found end of text"),
        ("S[8:1]]", 7, r"expected end of text, found '\]'"),
        ("S[8:1] - 3", 8, "expected end of text, found '-'"),
        ("S[8:1] +", 9, "expected a number, found end of text"),
        ("S[8:1] + + 3", 10, r"expected a number, found '\+'"),
        ("S[:1]", 3, "expected a number, found ':'"),
        ("S[():()]", 4, r"expected a number, found '\)'"),
        ("S[(8,4:(4,1)]", 7, r"expected '\)', found ':'"),
        ("S[(8,4):(4,1,1)]", 9, "3 strides for 2 extents"),
        ("S[(8,4):4]", 9, "1 strides for 2 extents"),
        ("S[((8,4),2):(1,1,1)]", 4, r"expected a number, found '\('"),
        ("S[-8:1]", 3, "expected a number, found '-'"),
        ("S[8:--1]", 6, "expected a number, found '-'"),
        ("S[0:1]", 2, "extent must lie in 1..281474976710656, not 0"),
        ("S[8:1] + R[2]", 13, r"expected ':', found '\]'"),
        ("S[8:1@lanid]", 7, r"unknown axis 'lanid'; did you mean 'laneid'\?"),
        ("S[8:1@]", 7, r"unknown axis '\]'; known are"),
        ("S[8:1@TCol]", 7, "'TCol' belongs to a memory that is not modelled"),
        ("S[8:1.5]", 6, "unexpected character '.'"),
        ("S[8:1] ; import os", 8, "unexpected character ';'"),
        ("S[8:٣]", 5, "unexpected character"),
        ("S[8:281474976710657]", 5, "number 281474976710657 is larger than 281474976710656"),
        ("S[8:0000000000000001]", 5, "number 0000000000000001 is larger"),
        ("swizzle(3,3) o S[8:1]", 12, r"expected ',', found '\)'"),
        ("swizzle(3,3,3,both) o S[8:1]", 15, "expected 'inner' or 'outer', found 'both'"),
        ("swizzle(3,3,3) S[8:1]", 16, "expected 'o', found 'S'"),
        ("swizzle(3,4,3) o S[8:1]", 1, r"needs p >= 0, 0 <= b <= a .* not \(3, 4, 3\)"),
    ],
)
def test_refused(text: str, column: int, message: str) -> None:
    with pytest.raises(LayoutTextError, match=message) as caught:
        parse(text)
    assert caught.value.column == column
    assert str(caught.value).startswith(f"layout text, column {column}: ")


def test_the_complaint_points_at_the_column() -> None:
    with pytest.raises(LayoutTextError) as caught:
        parse("S[(8,4):(4@lane,1)]")
    assert str(caught.value).splitlines()[1:] == ["  S[(8,4):(4@lane,1)]", "  " + " " * 11 + "^"]


def test_a_long_text_is_shown_in_part() -> None:
    with pytest.raises(LayoutTextError) as caught:
        parse("S[8:1]" + " + 1" * 100 + "\x1b?")
    message, excerpt, pointer = str(caught.value).splitlines()
    assert message == "layout text, column 407: unexpected character '\\x1b'"
    assert len(excerpt) <= 82
    assert excerpt[pointer.index("^")] == "?"


def test_the_text_is_bounded() -> None:
    with pytest.raises(LayoutError, match="layout text of 16385 characters, at most 16384"):
        parse("S" * 16385)
    with pytest.raises(LayoutTextError, match="more than 64 entries"):
        parse("S[(" + "1," * 65 + "1)]")
    with pytest.raises(LayoutTextError, match="80 iters in the replica, at most 64"):
        parse("S[8:1]" + " + R[2:1]" * 80)
    with pytest.raises(LayoutTextError, match=r"number 9{24} is larger"):
        parse("S[8:" + "9" * 5000 + "]")
    with pytest.raises(LayoutError, match="must be a string, not bytes"):
        parse(b"S[8:1]")  # type: ignore[arg-type]


def test_the_largest_layout_fits_into_the_bound() -> None:
    # every number at its bound, every axis with the longest name
    iters = tuple(Iter(2**48, -(2**48), "wid_in_wg") for _ in range(64))
    layout = TileLayout(iters, iters, (("m", -(2**48)),))
    assert parse(str(layout)) == layout


def test_row_major_strides_out_of_bounds_are_a_complaint_about_the_text() -> None:
    with pytest.raises(LayoutTextError, match="stride must lie in"):
        parse("S[(2,281474976710656,2)]")

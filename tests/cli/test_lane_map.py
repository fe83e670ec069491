"""Lane maps as text and as pictures.

The expected places are those of PTX ISA 9.1, Warp Level Matrix Instructions: ``g = lane >> 2``,
``t = lane & 3``; a row of an 8x8 matrix of ldmatrix is held by the four lanes of a ``g``.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from ptxsim.cli import main
from ptxsim.cli.lane_map import cells, lane_maps, render_svg, render_text
from ptxsim.matrix import Fragment, mma_a, mma_b, mma_c, row_fragment, wmma_fragment

SVG = "{http://www.w3.org/2000/svg}"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["isa", *words])
    out, err = capsys.readouterr()
    return code, out, err


def picture(name: str, modifiers: dict[str, str], *fragments: tuple[str, Fragment]) -> ET.Element:
    return ET.fromstring(render_svg(name, "a test", lane_maps(name, modifiers, fragments)))


def drawn(root: ET.Element, title: str) -> list[ET.Element]:
    """The cells of one map of a picture, in the order of rows and columns."""
    (group,) = (g for g in root.iter(SVG + "g") if g.get("data-name") == title)
    return [g for g in group.iter(SVG + "g") if g.get("class") == "cell"]


def holders(group: list[ET.Element]) -> list[str]:
    return ["".join(text.text or "" for text in g.iter(SVG + "text")) for g in group]


class TestCells:
    def test_two_halves_of_a_register_are_one_cell(self) -> None:
        first = cells(row_fragment(False))[0]
        assert (first.row, first.column, first.rows, first.columns) == (0, 0, 1, 2)
        assert (first.lane, first.register, first.element) == (0, 0, 0)
        assert len(cells(row_fragment(False))) == 32

    def test_transposed_halves_lie_below_each_other(self) -> None:
        assert {(c.rows, c.columns) for c in cells(row_fragment(True))} == {(2, 1)}

    def test_not_merged(self) -> None:
        assert len(cells(row_fragment(False), merge=False)) == 64

    @pytest.mark.parametrize(
        "fragment",
        [
            mma_a(16, 16, 16), mma_b(16, 16), mma_c(16, 32), mma_c(16, 16), mma_a(16, 32, 8),
            wmma_fragment("a", (16, 16, 16), "f16", 80, "row"),
            wmma_fragment("c", (8, 32, 16), "f16", 80, "row"),
            wmma_fragment("b", (8, 32, 16), "s8", 80, "row"),
        ],
    )  # fmt: skip
    def test_every_element_once_and_where_the_fragment_has_it(self, fragment: Fragment) -> None:
        per = fragment.register_bits // fragment.element_bits
        seen = np.zeros((fragment.rows, fragment.columns), int)
        for c in cells(fragment):
            for i in range(c.elements):
                row, column = (c.row + i, c.column) if c.rows > 1 else (c.row, c.column + i)
                index = c.register * per + c.element + i
                assert (fragment.row[c.lane, index], fragment.column[c.lane, index]) == (
                    row,
                    column,
                )
                seen[row, column] += 1
        assert (seen == 1).all()


class TestText:
    PLAIN = """\
T5.r1 is register 1 of lane 5
a cell of several elements starts with the lowest bits
lane 5 -> is the lane that supplies the address of a row

matrix 0
  8 x 8, 1 register of 2 x 16 bits a lane
              0-1    2-3    4-5    6-7
 lane 0 ->  0 T0.r0  T1.r0  T2.r0  T3.r0
 lane 1 ->  1 T4.r0  T5.r0  T6.r0  T7.r0
 lane 2 ->  2 T8.r0  T9.r0  T10.r0 T11.r0
 lane 3 ->  3 T12.r0 T13.r0 T14.r0 T15.r0
 lane 4 ->  4 T16.r0 T17.r0 T18.r0 T19.r0
 lane 5 ->  5 T20.r0 T21.r0 T22.r0 T23.r0
 lane 6 ->  6 T24.r0 T25.r0 T26.r0 T27.r0
 lane 7 ->  7 T28.r0 T29.r0 T30.r0 T31.r0
"""

    def test_ldmatrix(self, capsys: pytest.CaptureFixture[str]) -> None:
        code, out, err = run(capsys, "ldmatrix.x1")
        assert (code, err) == (0, "")
        assert out.splitlines()[0] == "ldmatrix.sync.aligned.m8n8.x1.b16"
        assert out.endswith("  lanes and registers on sm_80\n\n" + self.PLAIN)

    def test_ldmatrix_trans(self, capsys: pytest.CaptureFixture[str]) -> None:
        # memory row 2t + e, column g is element e of the register of lane 4g + t
        expected = """\
matrix 0, rows in memory                                                matrix 0, transposed
  8 x 8, 1 register of 2 x 16 bits a lane                                 as the registers hold it
              0      1      2      3      4      5      6      7           0-1  2-3  4-5  6-7
 lane 0 ->  0 0:0.0  4:0.0  8:0.0  12:0.0 16:0.0 20:0.0 24:0.0 28:0.0    0 0:0  1:0  2:0  3:0
 lane 1 ->  1 0:0.1  4:0.1  8:0.1  12:0.1 16:0.1 20:0.1 24:0.1 28:0.1    1 4:0  5:0  6:0  7:0
 lane 2 ->  2 1:0.0  5:0.0  9:0.0  13:0.0 17:0.0 21:0.0 25:0.0 29:0.0    2 8:0  9:0  10:0 11:0
 lane 3 ->  3 1:0.1  5:0.1  9:0.1  13:0.1 17:0.1 21:0.1 25:0.1 29:0.1    3 12:0 13:0 14:0 15:0
 lane 4 ->  4 2:0.0  6:0.0  10:0.0 14:0.0 18:0.0 22:0.0 26:0.0 30:0.0    4 16:0 17:0 18:0 19:0
 lane 5 ->  5 2:0.1  6:0.1  10:0.1 14:0.1 18:0.1 22:0.1 26:0.1 30:0.1    5 20:0 21:0 22:0 23:0
 lane 6 ->  6 3:0.0  7:0.0  11:0.0 15:0.0 19:0.0 23:0.0 27:0.0 31:0.0    6 24:0 25:0 26:0 27:0
 lane 7 ->  7 3:0.1  7:0.1  11:0.1 15:0.1 19:0.1 23:0.1 27:0.1 31:0.1    7 28:0 29:0 30:0 31:0
"""
        code, out, _ = run(capsys, "ldmatrix.m8n8.x1.trans")
        assert code == 0
        assert out.startswith("ldmatrix.sync.aligned.m8n8.x1.trans.b16\n")
        assert out.endswith("\n\n" + expected)

    def test_mma_of_f64(self, capsys: pytest.CaptureFixture[str]) -> None:
        expected = """\
T5.r1 is register 1 of lane 5

a
  8 x 4, 1 register of 64 bits a lane
m\\k 0      1      2      3
  0 T0.r0  T1.r0  T2.r0  T3.r0
  1 T4.r0  T5.r0  T6.r0  T7.r0
  2 T8.r0  T9.r0  T10.r0 T11.r0
  3 T12.r0 T13.r0 T14.r0 T15.r0
  4 T16.r0 T17.r0 T18.r0 T19.r0
  5 T20.r0 T21.r0 T22.r0 T23.r0
  6 T24.r0 T25.r0 T26.r0 T27.r0
  7 T28.r0 T29.r0 T30.r0 T31.r0

b
  4 x 8, 1 register of 64 bits a lane
k\\n 0      1      2      3      4      5      6      7
  0 T0.r0  T4.r0  T8.r0  T12.r0 T16.r0 T20.r0 T24.r0 T28.r0
  1 T1.r0  T5.r0  T9.r0  T13.r0 T17.r0 T21.r0 T25.r0 T29.r0
  2 T2.r0  T6.r0  T10.r0 T14.r0 T18.r0 T22.r0 T26.r0 T30.r0
  3 T3.r0  T7.r0  T11.r0 T15.r0 T19.r0 T23.r0 T27.r0 T31.r0

c and d
  8 x 8, 2 registers of 64 bits a lane
m\\n 0      1      2      3      4      5      6      7
  0 T0.r0  T0.r1  T1.r0  T1.r1  T2.r0  T2.r1  T3.r0  T3.r1
  1 T4.r0  T4.r1  T5.r0  T5.r1  T6.r0  T6.r1  T7.r0  T7.r1
  2 T8.r0  T8.r1  T9.r0  T9.r1  T10.r0 T10.r1 T11.r0 T11.r1
  3 T12.r0 T12.r1 T13.r0 T13.r1 T14.r0 T14.r1 T15.r0 T15.r1
  4 T16.r0 T16.r1 T17.r0 T17.r1 T18.r0 T18.r1 T19.r0 T19.r1
  5 T20.r0 T20.r1 T21.r0 T21.r1 T22.r0 T22.r1 T23.r0 T23.r1
  6 T24.r0 T24.r1 T25.r0 T25.r1 T26.r0 T26.r1 T27.r0 T27.r1
  7 T28.r0 T28.r1 T29.r0 T29.r1 T30.r0 T30.r1 T31.r0 T31.r1
"""
        code, out, _ = run(capsys, "mma.m8n8k4.f64")
        assert code == 0
        assert out.startswith("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64\n")
        assert out.endswith("\n\n" + expected)

    def test_plain_name_shows_forms_and_the_first_map(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, out, _ = run(capsys, "ldmatrix")
        assert code == 0
        assert out.startswith("ldmatrix: Load one, two or four")
        assert "[.trans]" in out
        assert out.endswith("\n\n" + self.PLAIN)

    def test_matrices_have_their_registers_and_rows(self) -> None:
        maps = lane_maps("ldmatrix", {}, [(f"matrix {i}", row_fragment(False)) for i in range(4)])
        text = render_text(maps, False)
        assert "lane 8 ->  0 T0.r1  T1.r1" in text
        assert "lane 31 ->  7 T28.r3 T29.r3 T30.r3 T31.r3\n" in text
        assert max(map(len, text.splitlines())) <= 100

    def test_wide_tiles_are_cut_into_bands(self) -> None:
        fragment = wmma_fragment("b", (8, 32, 16), "f16", 80, "row")
        text = render_text(lane_maps("wmma.load", {}, [("r", fragment)]), False)
        assert "\n  0-1 0:0  4:0  8:0 " in text
        assert "\n      16   17   18 " in text
        assert max(map(len, text.splitlines())) <= 100

    def test_an_element_held_twice_is_said(self) -> None:
        fragment = wmma_fragment("a", (16, 16, 16), "f16", 80, "row")
        text = render_text(lane_maps("wmma.load", {}, [("r", fragment)]), False)
        assert "  each element is held 2 times; first holder shown\n" in text
        once = render_text(lane_maps("wmma.load", {}, [("r", mma_a(16, 16, 16))]), False)
        assert "held" not in once

    def test_colours_change_nothing_else(self) -> None:
        maps = lane_maps("ldmatrix", {}, [("matrix 0", row_fragment(False))])
        coloured = render_text(maps, True)
        plain = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
        # the background of the last cell goes on where plain text has no spaces
        assert [line.rstrip() for line in plain.splitlines()] == self.PLAIN.splitlines()
        assert len(set(re.findall(r"48;5;(\d+)m", coloured))) == 8

    @pytest.mark.parametrize(("tty", "no_color", "coloured"), [
        (True, None, True), (True, "", True), (True, "1", False), (False, None, False),
    ])  # fmt: skip
    def test_when_to_colour(
        self,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        tty: bool,
        no_color: str | None,
        coloured: bool,
    ) -> None:
        monkeypatch.delenv("NO_COLOR", raising=False)
        if no_color is not None:
            monkeypatch.setenv("NO_COLOR", no_color)
        monkeypatch.setattr("sys.stdout.isatty", lambda: tty)
        assert ("\x1b[" in run(capsys, "ldmatrix.x1")[1]) is coloured


class TestWords:
    @pytest.mark.parametrize(
        ("name", "spelling"),
        [
            ("mma", "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16"),
            ("mma.m16n8k16.f32.f16.f16.f32", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
            (
                "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
                "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
            ),
            ("mma.m16n8k32.u8", "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32"),
            ("ldmatrix.m8n8.x4.trans", "ldmatrix.sync.aligned.m8n8.x4.trans.b16"),
            (
                "wmma.load.a.m16n16k16.row.f16",
                "wmma.load.a.sync.aligned.row.m16n16k16.f16",
            ),
        ],
    )
    def test_modifiers_left_out_are_completed(
        self, capsys: pytest.CaptureFixture[str], name: str, spelling: str
    ) -> None:
        code, out, _ = run(capsys, name)
        assert code == 0
        assert spelling in out.splitlines()

    def test_words_of_the_target_come_first(self, capsys: pytest.CaptureFixture[str]) -> None:
        # m16n8k16 of s8 needs sm_80, so sm_75 takes the other shape
        assert "m8n8k16" in run(capsys, "mma.s8", "--target", "sm_75")[1].splitlines()[0]

    def test_a_target_that_lacks_it_is_named(self, capsys: pytest.CaptureFixture[str]) -> None:
        code, out, _ = run(capsys, "stmatrix.x1")
        assert code == 0
        assert "  sm_80 lacks it: it needs target sm_90 or higher" in out.splitlines()
        assert "lacks" not in run(capsys, "stmatrix.x1", "--target", "sm_90")[1]

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (
                ["mma.m16n8k17"],
                "mma has no modifier '.m16n8k17'; did you mean 'm16n8k16' or 'm16n8k128' or"
                " 'm16n8k8'?",
            ),
            (["ldmatrix.x8"], "ldmatrix has no modifier '.x8'; see ptxsim isa ldmatrix"),
            (["add.s33"], "add has no modifier '.s33'; did you mean 's32'"),
            (["mma.m16n8k16.f32.s8"], "mma.m16n8k16.f32.s8: modifier .s8 is not legal here"),
            (
                ["mma.m16n8k16.row.row"],
                "mma.m16n8k16.row.row: the layouts .row.row are not legal here; use .row.col",
            ),
            (["ldmatrx.x4"], "no instruction 'ldmatrx.x4'"),
            (["ldmatrix", "--target", "sm_81"], "no target 'sm_81'; did you mean 'sm_8"),
            (["add.s32", "--svg", "FILE"], "--svg: 'add.s32' has no lane map"),
            (["mma.m16n8k17", "--svg", "FILE"], "mma has no modifier"),
            (["--svg", "FILE"], "--svg and --target are for one instruction; give its NAME"),
            (["--target", "sm_80"], "--svg and --target are for one instruction; give its NAME"),
            (["ldmatrix", "--json", "--svg", "FILE"], "not allowed with argument"),
        ],
    )
    def test_errors_write_nothing(
        self,
        capsys: pytest.CaptureFixture[str],
        tmp_path: Path,
        words: list[str],
        message: str,
    ) -> None:
        words = [str(tmp_path / "map.svg") if word == "FILE" else word for word in words]
        code, out, err = run(capsys, *words)
        assert (code, out) == (2, "")
        assert message in err
        assert list(tmp_path.iterdir()) == []


class TestEveryForm:
    @pytest.mark.parametrize(
        "name",
        [
            "mma.m8n8k4.f16", "mma.m16n8k256.b1", "mma.sp.m16n8k32.f16", "ldmatrix.m16n16.b8",
            "stmatrix.m16n8.x4", "movmatrix", "wmma.load.b.m8n32k16.bf16", "wmma.store.m8n32k16",
            "wmma.mma.m32n8k16",
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("target", ["sm_70", "sm_80"])
    def test_text_fits_and_the_picture_is_well_formed(
        self, capsys: pytest.CaptureFixture[str], name: str, target: str
    ) -> None:
        code, out, _ = run(capsys, name, "--target", target)
        assert code == 0
        # a plain name has the forms first, which have no such limit
        assert max(map(len, out[out.rindex("lanes and registers on ") :].splitlines())) <= 100
        code, out, _ = run(capsys, name, "--target", target, "--svg", "-")
        assert code == 0
        assert len([g for g in ET.fromstring(out).iter() if g.get("class") == "cell"]) >= 32

    def test_wmma_of_the_target(self, capsys: pytest.CaptureFixture[str]) -> None:
        name = "wmma.load.a.m16n16k16.row.f16"
        # below sm_75 a lane holds whole rows
        assert "\n 0 T0.r0  T0.r1  T0.r2 " in run(capsys, name, "--target", "sm_70")[1]
        assert "\n 0 T0.r0  T1.r0  T2.r0 " in run(capsys, name, "--target", "sm_80")[1]

    def test_four_products_and_compressed_a_are_said(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert "\na of four products\n  32 x 4" in run(capsys, "mma.m8n8k4.f16")[1]
        assert "\na, compressed\n  16 x 16" in run(capsys, "mma.sp.m16n8k32.f16")[1]


class TestPicture:
    def test_file_and_standard_output(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        file = tmp_path / "map.svg"
        assert run(capsys, "mma.m16n8k16.f32.f16", "--svg", str(file)) == (0, "", "")
        code, out, _ = run(capsys, "mma.m16n8k16.f32.f16", "--svg", "-")
        assert code == 0
        assert file.read_text() == out
        root = ET.fromstring(out)
        title = root.find(SVG + "title")
        assert title is not None
        assert title.text == "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"

    def test_one_group_for_each_register_of_a_product(self) -> None:
        a, b, c = mma_a(16, 16, 16), mma_b(16, 16), mma_c(16, 32)
        root = picture("mma", {}, ("a", a), ("b", b), ("c", c), ("d", c))
        # 32 lanes have 4, 2 and 4 registers
        assert [len(drawn(root, name)) for name in ("a", "b", "c and d")] == [128, 64, 128]
        # row g + 8*(r & 1), columns from 2t + 8*(r >> 1): 8 cells in a row
        assert holders(drawn(root, "a"))[:8] == [
            "T0r0", "T1r0", "T2r0", "T3r0", "T0r2", "T1r2", "T2r2", "T3r2",
        ]  # fmt: skip
        assert holders(drawn(root, "a"))[9 * 8 + 5] == "T5r3"
        assert holders(drawn(root, "b"))[8:10] == ["T1r0", "T5r0"]
        assert holders(drawn(root, "c and d"))[3] == "T1r1"

    def test_a_product_lies_as_one_multiplies(self) -> None:
        c = mma_c(16, 32)
        root = picture(
            "mma", {}, ("a", mma_a(16, 16, 16)), ("b", mma_b(16, 16)), ("c", c), ("d", c)
        )
        (ax, ay), (bx, by), (dx, dy) = (
            (float(rect.get("x", "")), float(rect.get("y", "")))
            for name in ("a", "b", "c and d")
            for rect in drawn(root, name)[0].iter(SVG + "rect")
        )
        assert ay == dy and bx == dx
        assert ax < dx and by < dy
        # rows of a and d are equally high, columns of b and d equally wide
        a_cell, b_cell, d_cell = (
            next(drawn(root, name)[0].iter(SVG + "rect")) for name in ("a", "b", "c and d")
        )
        assert a_cell.get("height") == d_cell.get("height")
        assert b_cell.get("width") == d_cell.get("width")

    def test_c_of_another_type_stands_apart(self) -> None:
        a, b = mma_a(16, 16, 16), mma_b(16, 16)
        root = picture("mma", {}, ("a", a), ("b", b), ("c", mma_c(16, 32)), ("d", mma_c(16, 16)))
        assert len(drawn(root, "c")) == 128
        assert len(drawn(root, "d")) == 64

    def test_wide_tiles_have_a_cell_for_each_register(self) -> None:
        root = picture(
            "mma", {}, ("a", mma_a(16, 256, 1)), ("b", mma_b(256, 1)), ("d", mma_c(16, 32))
        )
        assert len(drawn(root, "a")) == 128
        labels = {text.text for text in root.iter(SVG + "text")}
        assert {"0-31", "224-255"} <= labels

    def test_transposed_rows_and_their_lanes(self) -> None:
        matrices = [(f"matrix {i}", row_fragment(True)) for i in range(2)]
        root = picture("ldmatrix", {"trans": "trans"}, *matrices)
        # memory row 2t + e, column g; matrix 1 is in register 1
        memory = drawn(root, "matrix 1, rows in memory")
        assert holders(memory)[:3] == ["T0r1", "T4r1", "T8r1"]
        tip = memory[1].find(SVG + "title")
        assert tip is not None
        assert tip.text == "row 0-1, column 1: lane 4, register 1, bits 0-31"
        assert holders(drawn(root, "matrix 1, transposed"))[:3] == ["T0r1", "T1r1", "T2r1"]
        lanes = [t.text for t in root.iter(SVG + "text") if (t.text or "").startswith("lane ")]
        assert lanes == [f"lane {i}" for i in range(16)]

    def test_a_colour_for_each_group_of_four_lanes(self) -> None:
        root = picture("ldmatrix", {}, ("matrix 0", row_fragment(False)))
        fills: dict[int, set[str]] = {}
        for g in drawn(root, "matrix 0"):
            (rect,) = g.iter(SVG + "rect")
            fills.setdefault(int(g.get("data-lane", "")) >> 2, set()).add(rect.get("fill", ""))
        assert [len(used) for used in fills.values()] == [1] * 8
        assert len(set.union(*fills.values())) == 8
        used = {t.get("fill") for g in drawn(root, "matrix 0") for t in g.iter(SVG + "text")}
        assert used == {"#111111"}
        # dark text on them: 7 to 1 is the highest grade of the accessibility guidelines (WCAG 2)
        for (fill,) in fills.values():
            assert (_luminance(fill) + 0.05) / (_luminance("#111111") + 0.05) >= 7

    def test_text_stays_inside(self) -> None:
        root = picture("ldmatrix", {}, ("matrix 0", row_fragment(False)))
        width, height = float(root.get("width", "")), float(root.get("height", ""))
        # letters of such fonts take 0.57 of their size on average
        for text in root.iter(SVG + "text"):
            size = float(text.get("font-size", ""))
            assert float(text.get("y", "")) < height
            if text.get("text-anchor") == "start":
                assert float(text.get("x", "")) + 0.57 * size * len(text.text or "") <= width
        for rect in root.iter(SVG + "rect"):
            right = float(rect.get("x", "0")) + float(rect.get("width", ""))
            bottom = float(rect.get("y", "0")) + float(rect.get("height", ""))
            assert right <= width and bottom <= height


def _luminance(colour: str) -> float:
    """Relative luminance of WCAG 2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue

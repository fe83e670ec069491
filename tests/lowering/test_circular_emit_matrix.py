"""Products of matrices from the loop IR: results, code and counts; sizes leave residues."""

from __future__ import annotations

from pathlib import Path

import pytest
from circular_tiles import LANE, Tiles, at, global_, local, program, shared
from kernel_judge import judged

from lowering.circular.emit import emit
from lowering.circular.loops import (
    Buffer,
    Copy,
    Fill,
    Fragment,
    LoadMatrix,
    Mma,
    Node,
    Parallel,
    StoreMatrix,
)
from lowering.layout import Swizzle
from ptxsim.errors import UsageError

#: chunks of 16 bytes, four rows of 64 bytes: the banks of eight rows of 32 halves are different
_SWIZZLE = Swizzle(3, 2, 3)

_TURING = Tiles(shape=(16, 8, 8), stages=2)
_S8_TURING = Tiles("s8", shape=(8, 8, 16), sum_="s32", cta=(16, 16, 64))
_KINDS = {
    "f16": Tiles(),
    "f16 k8": _TURING,
    "f16 out": Tiles(out="f16"),
    "f16 a across": Tiles(a_across=True),
    "f16 b across": Tiles(b_across=True),
    "f16 swizzle": Tiles(swizzle=_SWIZZLE),
    "f16 swizzle across": Tiles(swizzle=_SWIZZLE, a_across=True, b_across=True, cta=(32, 32, 32)),
    "f16 three": Tiles(stages=3),
    "f16 four": Tiles(stages=4, swizzle=_SWIZZLE),
    "f16 steps": Tiles(steps=Parallel.SERIAL),
    "f16 steps swizzle": Tiles(steps=Parallel.SERIAL, swizzle=_SWIZZLE),
    "bf16": Tiles("bf16", out="bf16"),
    "tf32": Tiles("tf32", shape=(16, 8, 8)),
    "tf32 of f32": Tiles("f32", held="tf32", shape=(16, 8, 8)),
    "tf32 across": Tiles("f32", held="tf32", shape=(16, 8, 8), a_across=True, b_across=True),
    "s8": Tiles("s8", shape=(16, 8, 32), sum_="s32", cta=(32, 16, 64)),
    "s8 across": Tiles(
        "s8", shape=(16, 8, 32), sum_="s32", cta=(32, 16, 32), a_across=True, b_across=True
    ),
}


class TestResults:
    @pytest.mark.parametrize("kind", _KINDS)
    def test_equal_numpy(self, kind: str) -> None:
        # K of two whole tiles and a residue; M and N leave residues of whole vectors
        tiles = _KINDS[kind]
        tiles.run(48, 2 * tiles.cta[2] + 16, 32)

    @pytest.mark.parametrize(("stages", "k"), [
        pytest.param(s, k, marks=() if (s + k // 8) % 3 == 0 else pytest.mark.slow)
        for s in (2, 3, 4) for k in (0, 8, 32, 40, 64, 96, 136)
    ])  # fmt: skip
    def test_depths_and_residues(self, stages: int, k: int) -> None:
        Tiles(stages=stages).run(33, k, 17)

    @pytest.mark.parametrize("tiles", [_TURING, _S8_TURING], ids=["f16", "s8"])
    def test_turing(self, tiles: Tiles) -> None:
        ran = tiles.run(40, 2 * tiles.cta[2] + 16, 24, "sm_75")
        assert "cp.async" not in ran.text
        assert ran.copies == {}

    def test_many_tiles_of_a_warp_and_dynamic_memory(self) -> None:
        # two slots of 128 x 64 and 64 x 64 halves are 48 KiB, so static; three are 72 KiB
        tiles = Tiles(cta=(128, 64, 64), swizzle=Swizzle(3, 3, 3), stages=3)
        assert emit(tiles.program()).dynamic_shared == 3 * (128 + 64) * 64 * 2
        assert emit(Tiles(cta=(128, 64, 64)).program()).dynamic_shared == 0
        tiles.run(130, 136, 72)


class TestCode:
    def test_matrix_loads_of_four(self) -> None:
        # per step of 16: A of 16 x 16 is one x4, B of 16 x 16 one x4; two steps, two loops
        text = emit(Tiles().program()).text()
        assert text.count("ldmatrix.sync.aligned.m8n8.x4.shared.b16") == 8
        assert text.count("ldmatrix") == 8
        assert text.count("mma.sync") == 8
        assert "ld.shared" not in text

    def test_the_transposed_ones(self) -> None:
        text = emit(Tiles(a_across=True, b_across=True).program()).text()
        assert text.count("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16") == 8
        assert "ld.shared" not in text

    def test_no_conflicts_with_a_swizzle(self) -> None:
        ran = Tiles(swizzle=_SWIZZLE).run(32, 64, 16, tools="all")
        assert ran.advice == []
        assert "bank-conflict" in Tiles().run(32, 64, 16, tools="all,advice").advice

    def test_tf32_is_rounded_unless_it_is_already(self) -> None:
        # A of 16 x 8 has 4 registers, B of 8 x 16 also 4; four steps, two loops
        assert emit(_KINDS["tf32 of f32"].program()).text().count("cvt.rna.tf32.f32") == 64
        assert "cvt.rna" not in emit(_KINDS["tf32"].program()).text()

    def test_stores_in_pairs_where_columns_are_even(self) -> None:
        ran = Tiles(columns=24, out="f16").run(40, 40, 24)
        assert ran.text.count("st.global.b32") == 4
        assert ran.text.count("cvt.rn.f16x2.f32") == 4
        ran = Tiles(columns=24).run(40, 40, 24)
        assert ran.text.count("st.global.v2.f32") == 4
        assert Tiles(columns=23).program()
        assert "v2" not in emit(Tiles(columns=23).program()).text().split("$END_4")[1]

    def test_nothing_of_the_axis_in_the_main_loop(self) -> None:
        text = emit(Tiles(stages=3).program()).text()
        main = text.split("$LOOP_2:")[1].split("bra $LOOP_2")[0]
        assert "tag: axis" not in main
        assert "rem" not in main
        assert "mul.wide" not in main
        assert "tag: axis" in text

    def test_counts(self) -> None:
        # K = 72 = 8 + 2 * 32: three tiles, each of 128 + 64 vectors of 16 bytes, that is 3 for
        # each of the 64 threads; residue 8 of 32: a quarter of the vectors is read
        ran = Tiles().run(32, 72, 16)
        # 3 copies with two comparisons each in tile 0, 3 with one in tiles 1 and 2; at the end
        # 2 rows and 4 columns; the prolog tests for one tile
        assert ran.tags == {
            "axis.setp.threads": 6 * 64, "axis.setp.warps": 6 * 2,
            "bound.setp.threads": (6 + 6) * 64, "bound.setp.warps": (6 + 6) * 2,
            "uniform.setp.threads": 64, "uniform.setp.warps": 2,
        }  # fmt: skip
        assert ran.copies["threads"] == 3 * 192
        assert ran.copies["zero_filled.threads"] == 192 * 3 // 4
        assert ran.copies["commit_group.threads"] == (1 + 3) * 64
        assert ran.copies["wait_group.0.threads"] == (1 + 3) * 64


_SHAPE = (16, 8, 16)
_GLOBAL = global_("g", "f16", 16, 16)
_FA = local("fa", "f16", 16, 16, fragment=Fragment("A", _SHAPE))
_FB = local("fb", "f16", 16, 8, fragment=Fragment("B", _SHAPE))
_WIDE = local("fb", "f16", 16, 16, fragment=Fragment("B", _SHAPE))
_FC = local("fc", "f32", 16, 8, fragment=Fragment("C", _SHAPE))
_SUM = local("fc", "s32", 16, 8, fragment=Fragment("C", _SHAPE))


def _many(role: str) -> Buffer:
    return local("f", "f16", 2, 16, 16, fragment=Fragment(role, _SHAPE))


class TestRefusals:
    _A = Fragment("A", _SHAPE)

    def test_lanes_that_are_not_tid_x(self) -> None:
        s, a = shared("s", "f16", 16, 16), local("a", "f16", 16, 16, fragment=self._A)
        body = (LoadMatrix(at(a, 0, 0), at(s, 0, 0), (0, 1)),)
        with pytest.raises(UsageError, match=r"lanes are tid\.x"):
            emit(program((s, a), body, block=(64, 1, 1)))

    def test_extents_that_are_no_tiles(self) -> None:
        s, a = shared("s", "f16", 24, 16), local("a", "f16", 24, 16, fragment=self._A)
        body = (LoadMatrix(at(a, 0, 0), at(s, 0, 0), (0, 1)),)
        with pytest.raises(UsageError, match="24 is no multiple of 16"):
            emit(program((s, a), body))

    def test_a_shape_that_is_not_the_fragments(self) -> None:
        a = local("a", "f16", 16, 16, fragment=self._A)
        b = local("b", "f16", 16, 8, fragment=Fragment("B", (16, 8, 16)))
        c = local("c", "f32", 16, 8, fragment=Fragment("C", (16, 8, 16)))
        product = Mma(at(c, 0, 0), at(a, 0, 0), at(b, 0, 0), "m16n8k8")
        with pytest.raises(UsageError, match="m16n8k8 is not the shape"):
            emit(program((a, b, c), (product,)))

    @pytest.mark.parametrize(
        ("node", "match"),
        [
            (LoadMatrix(at(_FA, 0, 0), at(_GLOBAL, 0, 0), (0, 1)), "from shared memory"),
            (LoadMatrix(at(_FA, 0, 0), at(shared("s", "s8", 16, 16), 0, 0), (0, 1)),
             "a matrix of f16 is loaded from s8"),
            (LoadMatrix(at(_FC, 0, 0), at(shared("s", "f32", 16, 16), 0, 0), (0, 1)),
             "a matrix C is not loaded"),
            (LoadMatrix(at(local("r", "f16", 16, 16), 0, 0), at(shared("s", "f16", 16, 16), 0, 0),
                        (0, 1)), "is no matrix of a warp"),
            (LoadMatrix(at(_many("A"), LANE, 0, 0), at(shared("s", "f16", 16, 16), 0, 0), (0, 1)),
             "is no constant"),
            (Copy(at(local("r", "f32", 1), 0), at(_FC, 0, 0)), "a warp holds the matrix"),
            (Fill(at(_many("D"), 0, 0, 0), 0), "an operand of mma is A, B or C, not D"),
            (StoreMatrix(at(_GLOBAL, 0, 0), at(_FA, 0, 0), (0, 1)), "an accumulator is stored"),
            (Mma(at(_FC, 0, 0), at(_FA, 0, 0), at(_WIDE, 0, 0), "m16n8k16"), "do not fit"),
            (Mma(at(_SUM, 0, 0), at(_FA, 0, 0), at(_FB, 0, 0), "m16n8k16"),
             "products of f16 are not summed in s32"),
        ],
    )  # fmt: skip
    def test_what_has_no_code(self, node: Node, match: str) -> None:
        with pytest.raises(UsageError, match=match):
            emit(program((_GLOBAL, shared("s", "f16", 16, 16)), (node,)))

    def test_slots_that_a_swizzle_does_not_fit(self) -> None:
        s = shared("s", "f16", 2, 12, 32, swizzle=_SWIZZLE)
        with pytest.raises(UsageError, match="no multiples of 512 bytes"):
            emit(program((s,), ()))


_TARGETS = [(kind, target) for kind in _KINDS for target in ("sm_80", "sm_90")]


@pytest.mark.ptxas
@pytest.mark.parametrize(("kind", "target"), [*_TARGETS, ("f16 k8", "sm_75"), ("s8 75", "sm_75")])
def test_ptxas_takes_it(kind: str, target: str, tmp_path: Path) -> None:
    tiles = _S8_TURING if kind == "s8 75" else _KINDS[kind]
    assert judged(emit(tiles.program(), target).text(), tmp_path) == ""

"""The layout algebra on worked examples.

Origin of the numbers: the project's layout specification, whose tables were compared with an
independent model and with a compiler that uses the same algebra; cases marked *by hand* were
worked out from the definitions.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from lowering.layout import (
    AXES,
    ComposeLayout,
    Iter,
    LayoutError,
    Swizzle,
    TileLayout,
    axis,
    canonicalize,
    direct_sum,
    group,
    group_many,
    is_trivial,
    pack,
    parse_tile,
    permute_by_groups,
    permute_dims,
    row_major,
    scope_pair,
    slice_,
    storage,
    tile,
    unpack,
)

REGISTER = parse_tile("S[(8,4,2,2):(4@laneid,1@laneid,2,1)]")
SHARED = parse_tile("S[(8,4,2,2):(16,2,8,1)]")
#: the A fragment of mma.m16n8k16, seen as (16,16)
FRAGMENT_A = parse_tile("S[(2,8,2,4,2):(2,4@laneid,4,1@laneid,1)]")


def _text(layout: TileLayout) -> str:
    return str(layout).removeprefix("S[").removesuffix("]")


class TestAxes:
    # origin: table of axes
    @pytest.mark.parametrize(
        ("name", "scope", "subscope", "at_256_threads"),
        [
            ("laneid", "warp", "thread", 32),
            ("wid_in_wg", "warpgroup", "warp", 4),
            ("tid_in_wg", "warpgroup", "thread", 128),
            ("warpid", "cta", "warp", 8),
            ("wgid", "cta", "warpgroup", 2),
            ("tx", "cta", "thread", 256),
            ("cbx", "cluster", "cta", None),
            ("by", "grid", "cta", None),
        ],
    )
    def test_thread_axes(
        self, name: str, scope: str, subscope: str, at_256_threads: int | None
    ) -> None:
        found = axis(name)
        assert (found.scope, found.subscope, found.is_thread) == (scope, subscope, True)
        assert found.range(256) == at_256_threads

    def test_memory_has_no_scope(self) -> None:
        assert (AXES["m"].kind, AXES["m"].scope, AXES["m"].range(256)) == ("memory", None, None)

    def test_a_part_of_a_warp_counts_as_one(self) -> None:
        assert axis("warpid").range(33) == 2  # by hand
        assert axis("warpid").range() is None

    def test_unknown_axis_is_refused_with_a_suggestion(self) -> None:
        with pytest.raises(LayoutError, match=r"unknown axis 'lane_id'; did you mean 'laneid'\?"):
            Iter(8, 1, "lane_id")
        with pytest.raises(LayoutError, match="unknown axis 'zzz'; known are laneid, wid_in_wg"):
            axis("zzz")
        with pytest.raises(LayoutError, match="'TCol' belongs to a memory that is not modelled"):
            axis("TCol")

    # origin: the rule on scope pairs, and its example of an ill-formed mix
    @pytest.mark.parametrize(
        ("names", "pair"),
        [
            (["m"], None),
            (["laneid"], ("thread", "warp")),
            (["laneid", "wid_in_wg"], ("thread", "warpgroup")),
            (["laneid", "wid_in_wg", "wgid"], ("thread", "cta")),
            (["laneid", "warpid", "m"], ("thread", "cta")),
            (["wgid", "wid_in_wg"], ("warp", "cta")),
            (["tx", "bx", "by"], ("thread", "grid")),
        ],
    )
    def test_scope_pair(self, names: list[str], pair: tuple[str, str] | None) -> None:
        assert scope_pair(names) == pair

    @pytest.mark.parametrize(
        ("names", "message"),
        [
            (["laneid", "tid_in_wg"], "'laneid' counts threads of a warp and 'tid_in_wg' those"),
            (["wid_in_wg", "warpid"], "'wid_in_wg' counts warps of a warpgroup and 'warpid'"),
            (["laneid", "wgid"], "'wgid' counts warpgroups, but .* only from thread to warp"),
            (["cbx", "bx"], "'cbx' counts ctas of a cluster and 'bx' those of a grid"),
        ],
    )
    def test_ill_formed_mixes(self, names: list[str], message: str) -> None:
        with pytest.raises(LayoutError, match=message):
            scope_pair(names)


class TestValues:
    def test_immutable_and_hashable(self) -> None:
        same = parse_tile("S[(8,4,2,2):(4@laneid,1@laneid,2,1)]")
        assert same == REGISTER
        assert len({same, REGISTER}) == 1
        with pytest.raises(dataclasses.FrozenInstanceError):
            REGISTER.shard = ()  # type: ignore[misc]

    def test_offset_is_sorted(self) -> None:
        layout = TileLayout.of([Iter(8, 1)], offset={"m": 3, "laneid": 1})
        assert layout.offset == (("laneid", 1), ("m", 3))
        assert layout == TileLayout((Iter(8, 1),), (), (("m", 3), ("laneid", 1)))

    @pytest.mark.parametrize(
        ("extent", "stride", "message"),
        [
            (0, 1, "extent must lie in 1..281474976710656, not 0"),
            (-2, 1, "extent must lie in 1..281474976710656, not -2"),
            (8, 2**49, "stride must lie in .* not 562949953421312"),
            ("n", 1, "extent must be an integer, not 'n'"),
            (8, 1.5, "stride must be an integer, not '1.5'"),
            (True, 1, "extent must be an integer, not True"),
        ],
    )
    def test_bad_numbers(self, extent: int, stride: int, message: str) -> None:
        with pytest.raises(LayoutError, match=message):
            Iter(extent, stride)

    def test_bad_layouts(self) -> None:
        with pytest.raises(LayoutError, match="at least one iter"):
            TileLayout(())
        with pytest.raises(LayoutError, match="65 iters in the shard, at most 64"):
            TileLayout((Iter(1, 1),) * 65)
        with pytest.raises(LayoutError, match="an axis has two offsets"):
            TileLayout((Iter(1, 1),), (), (("m", 1), ("m", 2)))
        with pytest.raises(LayoutError, match="the replica must be a tuple of iters"):
            TileLayout((Iter(1, 1),), [Iter(2, 1)])  # type: ignore[arg-type]

    def test_numpy_integers_become_plain(self) -> None:
        assert type(Iter(np.int64(8), np.int64(2)).extent) is int  # type: ignore[arg-type]


class TestEvaluation:
    # origin: worked table of the register and the shared tile
    @pytest.mark.parametrize(
        ("coordinate", "flat", "lane", "register", "shared"),
        [
            ((0, 0, 0, 0), 0, 0, 0, 0),
            ((3, 2, 1, 1), 59, 14, 3, 61),
            ((7, 3, 1, 0), 126, 31, 2, 126),
        ],
    )
    def test_tile_pair(
        self, coordinate: tuple[int, ...], flat: int, lane: int, register: int, shared: int
    ) -> None:
        for given in (coordinate, flat):
            assert REGISTER.apply(given) == {"laneid": lane, "m": register}
            assert SHARED.apply(given) == {"m": shared}

    # origin: worked A fragment
    @pytest.mark.parametrize(
        ("coordinate", "lane", "register"), [((0, 0), 0, 0), ((9, 5), 6, 3), ((15, 14), 31, 6)]
    )
    def test_a_fragment(self, coordinate: tuple[int, int], lane: int, register: int) -> None:
        assert FRAGMENT_A.apply(coordinate, (16, 16)) == {"laneid": lane, "m": register}

    # origin: worked example with replica and offset
    @pytest.mark.parametrize(
        ("coordinate", "lane", "register", "warps"),
        [((1, 0), 4, 0, (5, 9)), ((0, 8), 0, 0, (6, 10)), ((7, 15), 31, 1, (6, 10))],
    )
    def test_replica_and_offset(
        self, coordinate: tuple[int, int], lane: int, register: int, warps: tuple[int, int]
    ) -> None:
        layout = parse_tile(
            "S[(8,2,4,2):(4@laneid,1@warpid,1@laneid,1)] + R[2:4@warpid] + 5@warpid"
        )
        images = layout.images(coordinate, (8, 16))
        assert images == tuple({"laneid": lane, "warpid": w, "m": register} for w in warps)
        assert layout.apply(coordinate, (8, 16)) == images[0]

    def test_evaluate_is_apply_everywhere(self) -> None:
        values = FRAGMENT_A.evaluate((16, 16))
        assert values["laneid"].dtype == np.int64
        assert (values["laneid"][9, 5], values["m"][9, 5]) == (6, 3)
        assert values["m"].reshape(-1).tolist() == [FRAGMENT_A.apply(x)["m"] for x in range(256)]
        assert FRAGMENT_A.evaluate()["m"].shape == (256,)

    def test_the_first_digit_does_not_wrap(self) -> None:
        # by hand: 128 = digit 8 of the first iter (no mod), -1 = digit -1 and the last others
        assert SHARED.apply(128) == {"m": 128}
        assert SHARED.apply(-1) == {"m": -16 + 3 * 2 + 8 + 1}

    def test_outside_of_the_shape_each_group_runs_on_alone(self) -> None:
        # by hand, shared tile seen as (8,4,2,2): tile index 2 is one more step of 8 halves
        assert SHARED.apply((0, 0, 2, 0), (8, 4, 2, 2)) == {"m": 16}
        # the flat index 8 instead moves to the next column pair
        assert SHARED.apply(8) == {"m": 4}

    def test_a_shape_that_does_not_group_is_flattened(self) -> None:
        # by hand: (4:6),(6:1) cannot be grouped by (3,8); (1,9) is flat 17 = digits (2,5)
        layout = parse_tile("S[(4,6):(6,1)]")
        assert layout.apply((1, 9), (3, 8)) == {"m": 2 * 6 + 5}

    @pytest.mark.parametrize(
        ("coordinate", "shape", "message"),
        [
            ((1, 2), (16, 8, 2), r"coordinate \(1, 2\) has 2 indices, shape \(16, 8, 2\) has 3"),
            ((1, 2), (16, 8), r"shape \(16, 8\) does not hold the 256 elements"),
            (3, (16, 16), "coordinate 3 needs one index for each of"),
        ],
    )
    def test_bad_coordinates(
        self, coordinate: tuple[int, ...] | int, shape: tuple[int, ...], message: str
    ) -> None:
        with pytest.raises(LayoutError, match=message):
            FRAGMENT_A.apply(coordinate, shape)

    def test_evaluation_is_bounded(self) -> None:
        with pytest.raises(LayoutError, match="33554432 elements, at most 16777216"):
            row_major((2**25,)).evaluate()
        with pytest.raises(LayoutError, match="do not fit into 64 bits"):
            TileLayout((Iter(2**20, 2**48),)).evaluate()
        with pytest.raises(LayoutError, match=r"shape \(3,\) does not hold the 128 elements"):
            SHARED.evaluate((3,))
        with pytest.raises(LayoutError, match="1073741824 replicas"):
            parse_tile("S[1:1] + R[1073741824:1]").images(0)

    # origin: examples of size and span
    @pytest.mark.parametrize(
        ("text", "size", "span"),
        [
            ("S[(8,4,2,2):(24,2,8,1)]", 128, 184),
            ("S[(32,2,2):(1@laneid,2,4)]", 128, 7),
            ("S[(2,3):(100,1)]", 6, 103),
            ("S[8:1] + R[2:16] + 5", 8, 1 + 7 + 16 + 5),  # by hand
            ("S[8:-1] + 7", 8, 8),  # by hand: offsets 0..7
        ],
    )
    def test_size_and_span(self, text: str, size: int, span: int) -> None:
        layout = parse_tile(text)
        assert (layout.size(), layout.span()) == (size, span)

    def test_size_and_span_of_one_axis(self) -> None:
        assert (REGISTER.size("laneid"), REGISTER.size("m"), REGISTER.size("tx")) == (32, 4, 1)
        assert (REGISTER.span("laneid"), REGISTER.span("m"), REGISTER.span("tx")) == (32, 4, 1)
        with pytest.raises(LayoutError, match="did you mean 'laneid'"):
            REGISTER.size("lane")


class TestGroup:
    # origin: worked groupings 1 to 5
    @pytest.mark.parametrize(
        ("text", "shape", "grouped", "separators"),
        [
            (
                "S[(32,8):(1@laneid,1)]",
                (1, 8, 4, 2, 2, 2),
                "(1,8,4,2,2,2):(32@laneid,4@laneid,1@laneid,4,2,1)",
                (0, 1, 2, 3, 4, 5, 6),
            ),
            (
                "S[(8,4,2,2):(16,2,8,1)]",
                (1, 8, 4, 1, 2, 2),
                "(1,8,4,1,2,2):(128,16,2,2,8,1)",
                (0, 1, 2, 3, 4, 5, 6),
            ),
            (
                "S[(32,2):(2,1)]",
                (1, 8, 4, 1, 1, 2),
                "(1,8,4,1,1,2):(64,8,2,2,2,1)",
                (0, 1, 2, 3, 4, 5, 6),
            ),
            (
                "S[(8,4,4):(4@laneid,1@laneid,1)]",
                (32, 4),
                "(8,4,4):(4@laneid,1@laneid,1)",
                (0, 2, 3),
            ),
            ("S[(4,6):(6,1)]", (8, 3), "(4,2,3):(6,3,1)", (0, 2, 3)),
        ],
    )
    def test_worked(
        self, text: str, shape: tuple[int, ...], grouped: str, separators: tuple[int, ...]
    ) -> None:
        layout, found = group(parse_tile(text), shape)
        assert (_text(layout), found) == (grouped, separators)

    # origin: worked grouping 6, and by hand
    @pytest.mark.parametrize(
        ("shape", "message"),
        [
            ((3, 8), r"entry 0 \(3\) leaves 8 of 24, which does not divide the extent of iter 6:1"),
            ((6, 4), r"entry 0 \(6\) leaves 4 of 24, which does not divide the extent of iter 6:1"),
            ((4,), "iter 6:1 is left over"),
            ((4, 6, 2), r"entry 2 \(2\) does not divide the 1 elements left for it"),
            ((0, 24), "shape entry must lie in 1.*, not 0"),
        ],
    )
    def test_rejected(self, shape: tuple[int, ...], message: str) -> None:
        with pytest.raises(LayoutError, match=message):
            group(parse_tile("S[(4,6):(6,1)]"), shape)

    def test_replica_and_offset_stay(self) -> None:
        layout, _ = group(parse_tile("S[8:1] + R[2:4@warpid] + 5@warpid"), (2, 4))
        assert str(layout) == "S[(2,4):(4,1)] + R[2:4@warpid] + 5@warpid"

    def test_many(self) -> None:
        # by hand: boundaries 1,2,12,24 and 1,4,24 of the shapes, 1,24 of the layout
        layout, (first, second) = group_many(row_major((24,)), [(2, 6, 2), (4, 6)])
        assert _text(layout) == "(2,2,3,2):(12,6,2,1)"
        assert (first, second) == ((0, 1, 3, 4), (0, 2, 4))

    def test_many_keeps_repeated_boundaries_as_unit_iters(self) -> None:
        # by hand: (1,8) repeats boundary 1, (8,1) repeats boundary 8
        layout, (first, second) = group_many(row_major((8,)), [(1, 8), (8, 1)])
        assert layout.extents == (1, 8, 1)
        assert (first, second) == ((0, 1, 3), (0, 2, 3))

    @pytest.mark.parametrize(
        ("shapes", "message"),
        [
            ([(4, 6), (6, 4)], "boundary 4 does not divide boundary 6"),
            ([(4, 5)], r"shape \(4, 5\) has 20 elements, the layout 24"),
            ([], "at least one shape"),
            ([()], "no empty one"),
        ],
    )
    def test_many_rejected(self, shapes: list[tuple[int, ...]], message: str) -> None:
        with pytest.raises(LayoutError, match=message):
            group_many(row_major((24,)), shapes)


class TestCanonicalize:
    # origin: worked examples; the last six by hand from the fusion table
    @pytest.mark.parametrize(
        ("text", "canonical"),
        [
            ("S[(8,4,4,2):(4@laneid,1@laneid,2,1)]", "S[(32,8):(1@laneid,1)]"),
            ("S[(4,8,4,2):(1@wid_in_wg,4@laneid,1@laneid,1)]", "S[(128,2):(1@tid_in_wg,1)]"),
            ("S[(4,32):(1@warpid,1@laneid)]", "S[128:1@tx]"),
            ("S[(8,4,1,2):(8,2,99,1)]", "S[64:1]"),
            ("S[(8,4,2,1):(1,16,8,5)]", "S[(8,8):(1,8)]"),
            ("S[(2,2):(1,2)]", "S[(2,2):(1,2)]"),
            ("S[(1,1):(7@laneid,3)]", "S[1:1@laneid]"),
            ("S[8:1] + R[(4,1,2):(1@warpid,5,8)] + 0@warpid", "S[8:1] + R[(2,4):(8,1@warpid)]"),
            ("S[(2,128):(1@wgid,1@tid_in_wg)]", "S[256:1@tx]"),
            (
                "S[(2,4,32):(1@wgid,1@wid_in_wg,1@laneid)]",
                "S[256:1@tx]",
            ),
            ("S[(2,32):(1@wid_in_wg,1@laneid)] + R[2:1@wgid]", "S[64:1@tx] + R[2:128@tx]"),
            ("S[(2,8,32):(1@bx,1@warpid,1@laneid)]", "S[(2,8,32):(1@bx,1@warpid,1@laneid)]"),
        ],
    )
    def test_worked(self, text: str, canonical: str) -> None:
        assert str(canonicalize(parse_tile(text))) == canonical

    def test_offsets_on_fused_axes_add(self) -> None:
        # origin: a defect found elsewhere, where one of the two offsets is lost
        layout = parse_tile("S[8:1] + 2@wid_in_wg + 3@laneid")
        assert str(canonicalize(layout)) == "S[8:1] + 67@tid_in_wg"

    def test_offsets_that_cancel_disappear(self) -> None:
        # by hand: 1 warp is 32 lanes
        layout = parse_tile("S[8:1] + 1@wid_in_wg + -32@laneid")
        assert str(canonicalize(layout)) == "S[8:1]"

    def test_warpgroups_become_warps(self) -> None:
        # origin: a defect found elsewhere, where the axis keeps the name wgid
        layout = parse_tile("S[(2,4):(1@wgid,1@wid_in_wg)]")
        assert str(canonicalize(layout)) == "S[8:1@warpid]"
        assert str(canonicalize(parse_tile("S[(2,4):(1@wgid,1@wid_in_wg)] + 1@wgid"))) == (
            "S[8:1@warpid] + 4@warpid"
        )

    def test_without_fusion_the_axes_keep_their_names(self) -> None:
        layout = parse_tile("S[(4,1,32):(1@warpid,9,1@laneid)]")
        assert str(canonicalize(layout, fuse_scopes=False)) == "S[(4,32):(1@warpid,1@laneid)]"

    def test_ill_formed(self) -> None:
        layout = parse_tile("S[(32,128):(1@laneid,1@tid_in_wg)]")
        with pytest.raises(LayoutError, match="one layout cannot use both"):
            canonicalize(layout)
        assert canonicalize(layout, fuse_scopes=False) == layout


class TestPermute:
    def test_groups(self) -> None:
        # origin: worked example
        layout = parse_tile("S[(8,4,2,2):(16,2,8,1)]")
        assert _text(permute_by_groups(layout, (0, 2, 4), (1, 0))) == "(2,2,8,4):(8,1,16,2)"

    def test_dims(self) -> None:
        # origin: worked example, threads first and then strides descending
        assert _text(permute_dims(FRAGMENT_A, (1, 3, 2, 0, 4))) == (
            "(8,4,2,2,2):(4@laneid,1@laneid,4,2,1)"
        )

    @pytest.mark.parametrize(
        ("separators", "order", "message"),
        [
            ((0, 2, 3), (1, 0), r"separators \(0, 2, 3\) do not partition 4 iters"),
            ((0, 3, 2, 4), (0, 1, 2), "do not partition 4 iters"),
            ((), (), "do not partition"),
            ((0, 2, 4), (1, 1), r"\(1, 1\) is not a permutation of 2 groups"),
        ],
    )
    def test_rejected(
        self, separators: tuple[int, ...], order: tuple[int, ...], message: str
    ) -> None:
        with pytest.raises(LayoutError, match=message):
            permute_by_groups(SHARED, separators, order)


class TestSlice:
    # origin: worked examples
    @pytest.mark.parametrize(
        ("text", "shape", "region", "sliced"),
        [
            ("S[(8,24):(24,1)]", (8, 24), [(0, 8), (8, 8)], "S[(8,8):(24,1)] + 8"),
            ("S[(8,2,4,2):(64,8,2,1)]", (8, 16), [(0, 8), (8, 8)], "S[(8,8):(64,1)] + 8"),
            ("S[(2,4):(100,1)]", (8,), [(2, 4)], "S[(2,2):(98,1)] + 2"),
            (
                str(FRAGMENT_A),
                (16, 16),
                [(8, 8), (0, 16)],
                "S[(1,8,2,4,2):(2,4@laneid,4,1@laneid,1)] + 2",
            ),
        ],
    )
    def test_worked(
        self, text: str, shape: tuple[int, ...], region: list[tuple[int, int]], sliced: str
    ) -> None:
        assert str(slice_(parse_tile(text), shape, region)) == sliced

    # origin: worked examples without a result; the (4,2,2) one is a defect found elsewhere,
    # where the slice answers 11,20 instead of 11,100
    @pytest.mark.parametrize(
        ("text", "shape", "region", "message"),
        [
            ("S[(2,4):(100,1)]", (8,), [(1, 4)], "no slice of 4 from 1 on: 4 steps of iter 4:1"),
            (str(FRAGMENT_A), (16, 16), [(4, 8), (0, 16)], "dimension 0: no slice of 8 from 4 on"),
            ("S[(4,2,2):(100,10,1)]", (16,), [(3, 2)], "from digit 1 on leave its extent 2"),
            ("S[(2,4):(100@laneid,1)]", (8,), [(2, 4)], "no slice of 4 from 2 on"),
            ("S[(8,24):(24,1)]", (8, 24), [(0, 8), (17, 8)], "8 elements from 17 on do not lie"),
            ("S[(8,24):(24,1)]", (8, 24), [(0, 8), (-1, 8)], "dimension 1: 8 elements from -1"),
            ("S[(8,24):(24,1)]", (8, 24), [(0, 0), (0, 8)], "dimension 0: 0 elements from 0 on"),
            ("S[(8,24):(24,1)]", (8, 24), [(0, 8)], "does not have 2 dimensions"),
            ("S[(8,24):(24,1)]", (10, 24), [(0, 8), (0, 8)], "cannot group by"),
        ],
    )
    def test_none(
        self, text: str, shape: tuple[int, ...], region: list[tuple[int, int]], message: str
    ) -> None:
        with pytest.raises(LayoutError, match=message):
            slice_(parse_tile(text), shape, region)

    def test_own_offset_counts_once(self) -> None:
        # origin: the rule that a layout's own offset is applied once
        layout = parse_tile("S[(8,24):(24,1)] + 8")
        assert str(slice_(layout, (8, 24), [(2, 4), (8, 8)])) == "S[(4,8):(24,1)] + 64"

    def test_a_region_inside_the_share_of_other_lanes_has_a_lane_offset(self) -> None:
        # by hand: rows 4..7 of the register tile start at lane 16
        sliced = slice_(REGISTER, (8, 16), [(4, 4), (0, 16)])
        assert str(sliced) == "S[(4,4,4):(4@laneid,1@laneid,1)] + 16@laneid"


class TestTile:
    # origin: table of tilings; the last two by hand
    @pytest.mark.parametrize(
        ("inner", "outer", "outer_shape", "inner_shape", "result"),
        [
            (
                "S[(8,64):(64,1)]",
                "S[(2,3):(3,1)]",
                (2, 3),
                (8, 64),
                "S[(2,8,3,64):(1536,64,512,1)]",
            ),
            (
                "S[(8,4):(4@laneid,1@laneid)]",
                "S[(2,1):(1@warpid,1)]",
                (2, 1),
                (8, 4),
                "S[64:1@tx]",
            ),
            ("S[(2,2):(2,1)]", "S[(2,2):(1,2)]", (2, 2), (2, 2), "S[(4,2,2):(2,8,1)]"),
            (
                "S[4:1] + R[2:4] + 1",
                "S[2:1] + R[3:100] + 2",
                (2,),
                (4,),
                "S[(2,4):(9,1)] + R[(2,3):(4,100)] + 3",
            ),
            ("S[4:1@laneid]", "S[2:1@warpid]", (2,), (4,), "S[(2,4):(32@tx,1@tx)]"),
        ],
    )
    def test_worked(
        self,
        inner: str,
        outer: str,
        outer_shape: tuple[int, ...],
        inner_shape: tuple[int, ...],
        result: str,
    ) -> None:
        found = tile(parse_tile(inner), parse_tile(outer), outer_shape, inner_shape)
        assert str(found) == result

    # origin: measured layouts of shared tiles for 16-bit matrix instructions, by swizzle width;
    # the atom is 8 rows of that width, and atoms go down the rows first (by hand)
    @pytest.mark.parametrize(
        ("atom", "outer_shape", "result"),
        [
            ((8, 64), (8, 1), "S[4096:1]"),  # (64,64), 128 bytes
            ((8, 32), (8, 2), "S[(64,2,32):(32,2048,1)]"),  # (64,64), 64 bytes
            ((8, 16), (8, 2), "S[(64,2,16):(16,1024,1)]"),  # (64,32), 32 bytes
            ((8, 64), (8, 2), "S[(64,2,64):(64,4096,1)]"),  # (64,128), 128 bytes
            ((8, 8), (8, 8), "S[(64,8,8):(8,512,1)]"),  # (64,64), no swizzle
        ],
    )
    def test_shared_tiles_of_matrix_instructions(
        self, atom: tuple[int, int], outer_shape: tuple[int, int], result: str
    ) -> None:
        columns_last = TileLayout((Iter(outer_shape[0], 1), Iter(outer_shape[1], 8)))
        assert str(tile(row_major(atom), columns_last, outer_shape, atom)) == result

    # origin: table of direct sums
    @pytest.mark.parametrize(
        ("right", "left", "left_shape", "right_shape", "result"),
        [
            (
                "S[(4,8):(8,1)]",
                "S[(2,2):(100,50)]",
                (2, 2),
                (4, 8),
                "S[(2,4,2,8):(100,8,50,1)]",
            ),
            ("S[8:1]", "S[4:8]", (4,), (8,), "S[32:1]"),
        ],
    )
    def test_direct_sum(
        self,
        right: str,
        left: str,
        left_shape: tuple[int, ...],
        right_shape: tuple[int, ...],
        result: str,
    ) -> None:
        found = direct_sum(parse_tile(right), parse_tile(left), left_shape, right_shape)
        assert str(found) == result

    def test_a_fragment_from_the_lane_atom(self) -> None:
        # origin: last row of the table of direct sums. The map to (lane, word) is the one of
        # the A fragment with registers counted in words; unpacking gives the halves.
        atom = parse_tile("S[(8,4):(4@laneid,1@laneid)]")
        words = direct_sum(atom, parse_tile("S[(2,2):(2,4)]"), (2, 2), (8, 4))
        assert str(words) == "S[(2,8,2,4):(2,4@laneid,4,1@laneid)]"
        single = direct_sum(atom, parse_tile("S[(2,2):(1,2)]"), (2, 2), (8, 4))
        assert unpack(single, 2) == FRAGMENT_A

    def test_shapes_of_different_rank(self) -> None:
        with pytest.raises(LayoutError, match=r"\(2, 1\) and \(8,\) differ"):
            tile(row_major((8,)), row_major((2,)), (2, 1), (8,))


class TestElements:
    def test_unpack_and_pack(self) -> None:
        # by hand: every memory stride and offset doubles, lanes stay
        words = parse_tile("S[(32,4):(1@laneid,1)] + R[2:4] + R[2:1@warpid] + 3 + 2@warpid")
        halves = unpack(words, 2)
        assert str(halves) == ("S[(32,4,2):(1@laneid,2,1)] + R[(2,2):(8,1@warpid)] + 6 + 2@warpid")
        packed = pack(halves, 2)
        assert packed.shard[:2] == words.shard
        assert (packed.replica, packed.offset) == (words.replica, words.offset)

    # by hand
    @pytest.mark.parametrize(
        ("text", "count", "message"),
        [
            ("S[(8,6):(6,1)]", 4, "the last iter 6:1 does not hold runs of 4 elements"),
            ("S[(8,8):(1,8)]", 4, "the last iter 8:8 does not hold"),
            ("S[(8,8):(9,1)]", 4, "stride of iter 8:9 is 9, not a multiple"),
            ("S[(8,8):(8,1)] + 2", 4, "offset is 2, not a multiple"),
            ("S[(8,32):(8,1@laneid)]", 4, "the last iter 32:1@laneid does not hold"),
        ],
    )
    def test_pack_rejected(self, text: str, count: int, message: str) -> None:
        with pytest.raises(LayoutError, match=message):
            pack(parse_tile(text), count)

    def test_storage(self) -> None:
        # origin: the gapped and permuted storage case: 4 slots, span 7, in the order 0,4,2,6
        held = storage(parse_tile("S[(32,2,2):(1@laneid,2,4)] + R[2:1@warpid] + 3@laneid"))
        assert str(held) == "S[(2,2):(2,4)]"
        assert (held.size(), held.span()) == (4, 7)
        assert held.evaluate()["m"].tolist() == [0, 4, 2, 6]
        assert str(storage(parse_tile("S[32:1@laneid]"))) == "S[1:1]"


class TestSwizzle:
    # origin: worked values for 16-bit elements
    @pytest.mark.parametrize(
        ("numbers", "values"),
        [
            ((3, 3, 3), {0: 0, 64: 72, 72: 64, 200: 208, 511: 455}),
            ((3, 1, 3), {64: 72, 72: 64, 200: 192}),
            ((3, 2, 3), {64: 72, 136: 152, 200: 208}),
        ],
    )
    def test_values(self, numbers: tuple[int, int, int], values: dict[int, int]) -> None:
        swizzle = Swizzle(*numbers)
        assert {x: swizzle.apply(x) for x in values} == values
        assert swizzle.apply_array(np.array(list(values))).tolist() == list(values.values())

    def test_closed_form_of_the_128_byte_mode(self) -> None:
        # origin: rows of 64 elements, row r, chunk c -> 64 r + 8 (c XOR (r mod 8))
        swizzle = Swizzle(3, 3, 3)
        for row in range(16):
            for chunk in range(8):
                assert swizzle.apply(64 * row + 8 * chunk) == 64 * row + 8 * (chunk ^ row % 8)

    def test_outer_moves_the_low_bits_up(self) -> None:
        # by hand: x = 1 -> x XOR (1 << 3) = 9
        assert Swizzle(3, 3, 3, inner=False).apply(8) == 72
        assert Swizzle(3, 3, 3, inner=False).apply(64) == 64

    # origin: hardware modes, p = log2(128 / width)
    @pytest.mark.parametrize(
        ("width", "bits", "numbers"),
        [
            (32, 16, (3, 1, 3)),
            (64, 16, (3, 2, 3)),
            (128, 16, (3, 3, 3)),
            (128, 8, (4, 3, 3)),
            (64, 32, (2, 2, 3)),
            (128, 4, (5, 3, 3)),
        ],
    )
    def test_hardware_modes(self, width: int, bits: int, numbers: tuple[int, int, int]) -> None:
        swizzle = Swizzle.hardware(width, bits)
        assert swizzle == Swizzle(*numbers)
        # address bits from 7 on are XORed onto those from 4 on; bases of 256, 512, 1024 bytes
        in_bytes = swizzle.in_bytes(bits)
        assert in_bytes == Swizzle(4, numbers[1], 3)
        assert in_bytes.period == {32: 256, 64: 512, 128: 1024}[width]
        assert in_bytes.apply(1 << 7) == (1 << 7) + (1 << 4)

    def test_bytes_form_of_a_small_chunk(self) -> None:
        assert Swizzle(3, 1, 3).in_bytes(1) == Swizzle(0, 1, 3)
        with pytest.raises(LayoutError, match=r"swizzle\(2,1,3\) splits the bytes of 1-bit"):
            Swizzle(2, 1, 3).in_bytes(1)

    @pytest.mark.parametrize(
        "numbers", [(-1, 1, 1), (3, 4, 3), (3, -1, 3), (3, 3, 60), (3.0, 1, 1)]
    )
    def test_rejected(self, numbers: tuple[int, int, int]) -> None:
        with pytest.raises(LayoutError, match=r"swizzle"):
            Swizzle(*numbers)
        with pytest.raises(LayoutError, match="256 is none of 32, 64, 128"):
            Swizzle.hardware(256, 16)
        with pytest.raises(LayoutError, match="24 is not a power of two"):
            Swizzle.hardware(128, 24)

    # origin: definition of a bare swizzle and of stripping
    @pytest.mark.parametrize(
        ("text", "bare", "stripped"),
        [
            ("S[4096:1]", True, "S[128:1]"),
            ("S[(64,64):(64,1)]", True, "S[128:1]"),
            ("S[128:1]", True, "S[128:1]"),
            ("S[(8,16):(16,1)]", True, "S[(8,16):(16,1)]"),
            ("S[(64,2,32):(32,2048,1)]", False, "S[(64,2,32):(32,2048,1)]"),
            ("S[4096:1] + 8", False, "S[4096:1] + 8"),
            ("S[4096:1] + R[2:4096]", False, "S[4096:1] + R[2:4096]"),
            ("S[32:1@laneid]", False, "S[32:1@laneid]"),
        ],
    )
    def test_bare_and_strip(self, text: str, bare: bool, stripped: str) -> None:
        layout = ComposeLayout(parse_tile(text), Swizzle(3, 3, 3))
        assert layout.is_bare is bare
        assert is_trivial(layout.tile) is bare
        assert str(layout.strip((8, 16))) == stripped

    def test_compose_evaluates_through_the_swizzle(self) -> None:
        # by hand: row 1 of 64 elements starts at chunk 1; the own offset goes through as well
        layout = ComposeLayout(parse_tile("S[(8,64):(64,1)]"), Swizzle(3, 3, 3))
        assert layout.apply((1, 0)) == {"m": 72}
        assert layout.evaluate((8, 64))["m"][1, 0] == 72
        assert layout.size() == 512
        moved = ComposeLayout(parse_tile("S[8:1] + 64"), Swizzle(3, 3, 3))
        assert moved.apply(0) == {"m": 72}
        lanes = ComposeLayout(parse_tile("S[4:1@laneid]"), Swizzle(3, 3, 3))
        assert lanes.apply(3) == {"laneid": 3}
        assert list(lanes.evaluate()) == ["laneid"]

    def test_compose_by_element_width(self) -> None:
        # origin: the chunk in elements follows the element width
        words = ComposeLayout(parse_tile("S[(8,32):(32,1)]"), Swizzle(2, 3, 3))
        halves = words.unpack(2)
        assert str(halves) == "swizzle(3,3,3) o S[(8,32,2):(64,2,1)]"
        assert str(halves.pack(2)) == "swizzle(2,3,3) o S[(8,32,1):(32,1,1)]"
        assert str(halves.storage()) == str(halves)
        with pytest.raises(LayoutError, match="16 elements do not fit into a chunk of 8"):
            halves.pack(16)
        with pytest.raises(LayoutError, match="3 is not a power of two"):
            words.unpack(3)

"""ldmatrix, stmatrix and movmatrix, lane by lane."""

from __future__ import annotations

import numpy as np
import pytest
from matrix_kernels import group, load_fragment, run, store_fragment, unmodelled
from numpy.typing import NDArray

import ptxsim

TILE = ".shared .align 16 .b8 tile[512];"
#: Copies 512 bytes from buffer 0 to shared memory and leaves the address of row %t in %r9.
FILL = """
add.u64 %d1, %b0, %mine;
ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%d1];
mov.u32 %r8, tile;
shl.b32 %r9, %t, 4;
add.u32 %r9, %r9, %r8;
st.shared.v4.b32 [%r9], {%r0, %r1, %r2, %r3};
bar.sync 0;
"""
ROWS = np.arange(256, dtype=np.uint16)


def expected(count: int, trans: bool) -> NDArray[np.uint32]:
    """Register m of lane l holds M_m[l/4][2(l%4) + (0, 1)], transposed with .trans (ISA table)."""
    tiles = ROWS.reshape(4, 8, 8).astype(np.uint32)
    out = np.zeros((32, count), np.uint32)
    for lane in range(32):
        for m in range(count):
            tile = tiles[m].T if trans else tiles[m]
            g, t = lane // 4, lane % 4
            out[lane, m] = tile[g, 2 * t] | (tile[g, 2 * t + 1] << 16)
    return out


def ldmatrix(count: int, trans: bool = False, space: str = ".shared") -> str:
    word = ".trans" if trans else ""
    return f"ldmatrix.sync.aligned.m8n8.x{count}{word}{space}.b16 {group('f', count)}, [%r9];"


class TestLdmatrix:
    @pytest.mark.parametrize("trans", [False, True])
    @pytest.mark.parametrize("count", [1, 2, 4])
    @pytest.mark.parametrize("space", [".shared", ".shared::cta"])
    def test_lane_by_lane(self, count: int, trans: bool, space: str) -> None:
        out = np.zeros((32, count), np.uint32)
        body = FILL + ldmatrix(count, trans, space) + store_fragment(1, "f", count)
        report = run(body, ROWS.copy(), out, declare=TILE)
        assert not report.findings
        assert out.tolist() == expected(count, trans).tolist()

    def test_generic_address(self) -> None:
        out = np.zeros((32, 4), np.uint32)
        body = FILL + (
            "cvt.u64.u32 %d2, %r9; cvta.shared.u64 %d2, %d2;"
            f"ldmatrix.sync.aligned.m8n8.x4.b16 {group('f', 4)}, [%d2];"
        )
        report = run(body + store_fragment(1, "f", 4), ROWS.copy(), out, declare=TILE)
        assert not report.findings
        assert out.tolist() == expected(4, False).tolist()

    def test_generic_address_of_global_memory(self) -> None:
        body = f"ldmatrix.sync.aligned.m8n8.x4.b16 {group('f', 4)}, [%b0];"
        (finding,) = run(body, ROWS.copy()).findings
        assert (finding.class_, finding.lanes) == ("oob-shared", tuple(range(32)))

    def test_two_warps(self) -> None:
        out = np.zeros((64, 1), np.uint32)
        rows = np.arange(512, dtype=np.uint16)
        body = FILL + ldmatrix(1) + store_fragment(1, "f", 1)
        report = run(body, rows, out, block=64, declare=TILE.replace("512", "1024"))
        assert not report.findings
        assert out[:32].tolist() == expected(1, False).tolist()
        assert out[32:].tolist() == (expected(1, False) + 0x0100_0100).tolist()

    @pytest.mark.parametrize("count", [1, 2])
    def test_other_lanes_supply_no_address(self, count: int) -> None:
        # Lanes from 8 * count on hold addresses that are misaligned and far out of bounds.
        out = np.zeros((32, count), np.uint32)
        spoil = f"setp.ge.u32 %p0, %t, {8 * count}; @%p0 mov.u32 %r9, 0x7ffffff1;\n"
        body = FILL + spoil + ldmatrix(count) + store_fragment(1, "f", count)
        report = run(body, ROWS.copy(), out, declare=TILE)
        assert not report.findings
        assert out.tolist() == expected(count, False).tolist()

    def test_undefined_address_in_lanes_that_supply_none(self) -> None:
        move = "setp.lt.u32 %p0, %t, 8; @%p0 mov.u32 %r10, %r9;\n"
        body = FILL + move + ldmatrix(1).replace("%r9", "%r10")
        assert not run(body, ROWS.copy(), declare=TILE).findings

    def test_undefined_address_in_a_supplying_lane(self) -> None:
        move = "setp.lt.u32 %p0, %t, 7; @%p0 mov.u32 %r10, %r9;\n"
        body = FILL + move + ldmatrix(1).replace("%r9", "%r10")
        (finding,) = run(body, ROWS.copy(), declare=TILE).findings
        assert (finding.class_, finding.lanes) == ("uninit-register", (7,))

    def test_misaligned_row_names_its_lane(self) -> None:
        body = FILL + "setp.eq.u32 %p0, %t, 11; @%p0 add.u32 %r9, %r9, 8;\n" + ldmatrix(2)
        (finding,) = run(body, ROWS.copy(), declare=TILE).findings
        assert (finding.class_, finding.lanes) == ("misaligned-shared", (11,))

    def test_out_of_bounds_row_names_its_lane(self) -> None:
        body = FILL + "setp.eq.u32 %p0, %t, 31; @%p0 add.u32 %r9, %r9, 16;\n" + ldmatrix(4)
        (finding,) = run(body, ROWS.copy(), declare=TILE).findings
        assert (finding.class_, finding.lanes) == ("oob-shared", (31,))

    def test_a_warp_without_all_lanes(self) -> None:
        (finding,) = run("mov.u32 %r9, tile;" + ldmatrix(1), block=48, declare=TILE).findings
        assert (finding.class_, finding.warp) == ("collective-divergence", 1)


class TestStmatrix:
    @pytest.mark.parametrize("trans", [False, True])
    @pytest.mark.parametrize("count", [1, 2, 4])
    def test_inverts_ldmatrix(self, count: int, trans: bool) -> None:
        word = ".trans" if trans else ""
        out = np.zeros(256, np.uint16)
        body = f"""
mov.u32 %r8, tile; shl.b32 %r9, %t, 4; add.u32 %r9, %r9, %r8;
st.shared.v4.b32 [%r9], {{0, 0, 0, 0}};
{load_fragment(0, "f", count)}
bar.sync 0;
stmatrix.sync.aligned.m8n8.x{count}{word}.shared.b16 [%r9], {group("f", count)};
bar.sync 0;
ld.shared.v4.b32 {group("r", 4)}, [%r9];
add.u64 %d1, %b1, %mine;
st.global.v4.b32 [%d1], {group("r", 4)};
"""
        report = run(body, expected(count, trans), out, declare=TILE)
        assert not report.findings
        stored = np.where(np.arange(256) < 64 * count, ROWS, 0)  # rows of the other lanes: kept
        assert out.tolist() == stored.tolist()

    def test_undefined_value(self) -> None:
        body = (
            "mov.u32 %r9, tile; mad.lo.u32 %r9, %t, 16, %r9;"
            "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r9], {%f0};"
        )
        assert not run(body, declare=TILE).findings
        out = np.zeros(256, np.uint16)
        use = "ld.shared.b32 %r8, [%r9]; add.u64 %d1, %b0, %mine;"
        use += "setp.lt.u32 %p0, %t, 8; @%p0 st.global.b32 [%d1], %r8;"
        (finding,) = run(body + "bar.sync 0;\n" + use, out, declare=TILE).findings
        assert (finding.class_, "%f0" in finding.message) == ("uninit-register", True)

    def test_needs_sm_90(self) -> None:
        line = "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r0], {%r1};"
        with pytest.raises(ptxsim.PtxError, match="sm_90"):
            unmodelled(line, ".reg .b32 %r<2>;", ".version 8.0\n.target sm_80\n")


def test_movmatrix() -> None:
    # output half e of lane 4g + t is X[2t + e][g] (ISA figure); X[i][j] = 8 i + j
    out = np.zeros((32, 1), np.uint32)
    body = load_fragment(0, "f", 1) + (
        "movmatrix.sync.aligned.m8n8.trans.b16 %f1, %f0;" + store_fragment(1, "f", 1, 1)
    )
    assert not run(body, expected(1, False), out).findings
    assert out.tolist() == expected(1, True).tolist()


@pytest.mark.parametrize(
    "line",
    [
        "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1, %r2}, [%r0];",
        "ldmatrix.sync.aligned.m8n16.x2.shared.b8x16.b6x16_p32 {%r1, %r2}, [%r0];",
        "ldmatrix.sync.aligned.m16n16.x2.trans.b8x16.b4x16_p64 {%r1, %r2, %r3, %r4}, [%r0];",
        "stmatrix.sync.aligned.m16n8.x2.trans.shared.b8 [%r0], {%r1, %r2};",
    ],
)
def test_byte_shapes_assemble(line: str) -> None:
    head = ".version 8.7\n.target sm_120a\n"
    assert unmodelled(line, ".reg .b32 %r<8>;", head) == ()

"""Every special register: its value in a launch, and the section of the manual that says so.

PTX ISA 9.1, chapter "Special Registers".  Where that leaves a value open, the row says "open" and
the value is ptxsim's choice (``docs/choices.md``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import ptxsim
from ptxsim.isa.special_registers import SPECIAL_REGISTERS

GRID, BLOCK, CLUSTER = (4, 3, 2), (5, 4, 3), (2, 1, 1)
THREADS, CTAS = 5 * 4 * 3, 4 * 3 * 2


@dataclass(frozen=True)
class Thread:
    """One thread of the launch: coordinates by their definition, x fastest."""

    index: int
    cta: int

    @property
    def tid(self) -> tuple[int, int, int, int]:
        return self.index % 5, self.index // 5 % 4, self.index // 20, 0

    @property
    def ctaid(self) -> tuple[int, int, int, int]:
        return self.cta % 4, self.cta // 4 % 3, self.cta // 12, 0

    @property
    def lane(self) -> int:
        return self.index % 32


Value = Callable[[Thread], int]

_MASK = 0xFFFFFFFF


def _vector(name: str, section: str, of: Callable[[Thread], tuple[int, ...]]) -> list[Any]:
    return [
        (f"{name}.{c}", section, lambda t, n=n: of(t)[n])  # type: ignore[misc]
        for n, c in enumerate("xyzw")
    ]


ROWS: list[tuple[str, str, Value]] = [
    *_vector("tid", "%tid", lambda t: t.tid),
    *_vector("ntid", "%ntid", lambda t: (*BLOCK, 0)),
    *_vector("ctaid", "%ctaid", lambda t: t.ctaid),
    *_vector("nctaid", "%nctaid", lambda t: (*GRID, 0)),
    *_vector("clusterid", "%clusterid", lambda t: (t.ctaid[0] // 2, *t.ctaid[1:3], 0)),
    *_vector("nclusterid", "%nclusterid", lambda t: (2, 3, 2, 0)),
    *_vector("cluster_ctaid", "%cluster_ctaid", lambda t: (t.ctaid[0] % 2, 0, 0, 0)),
    *_vector("cluster_nctaid", "%cluster_nctaid", lambda t: (2, 1, 1, 0)),
    ("cluster_ctarank", "%cluster_ctarank", lambda t: t.ctaid[0] % 2),
    ("cluster_nctarank", "%cluster_nctarank", lambda t: 2),
    ("is_explicit_cluster", "%is_explicit_cluster", lambda t: 1),
    ("laneid", "%laneid", lambda t: t.lane),
    ("warpid", "%warpid, open: it may change", lambda t: t.index // 32),
    ("nwarpid", "%nwarpid, open", lambda t: 64),
    ("smid", "%smid, open", lambda t: 0),
    ("nsmid", "%nsmid, open", lambda t: 132),
    ("gridid", "%gridid, open", lambda t: 0),
    ("lanemask_eq", "%lanemask_eq", lambda t: 1 << t.lane),
    ("lanemask_lt", "%lanemask_lt", lambda t: (1 << t.lane) - 1),
    ("lanemask_le", "%lanemask_le", lambda t: (2 << t.lane) - 1),
    ("lanemask_gt", "%lanemask_gt", lambda t: _MASK & -(2 << t.lane)),
    ("lanemask_ge", "%lanemask_ge", lambda t: _MASK & -(1 << t.lane)),
    # 40 static and 100 dynamic bytes; units of 128
    ("total_smem_size", "%total_smem_size", lambda t: 256),
    ("dynamic_smem_size", "%dynamic_smem_size", lambda t: 100),
    ("aggr_smem_size", "%aggr_smem_size", lambda t: 256),
    *((f"reserved_smem_offset_{n}", "%reserved_smem_offset_begin, open", lambda t: 0)
      for n in ("begin", "end", "cap", "0", "1")),
    ("current_graph_exec", "%current_graph_exec", lambda t: 0),
    *((f"pm{n}", "%pm0, open: undefined", lambda t: 0) for n in range(8)),
    *((f"pm{n}_64", "%pm0_64, open: undefined", lambda t: 0) for n in range(8)),
    *((f"envreg{n}", "%envreg0, open", lambda t: 0) for n in range(32)),
    ("locality_domain_id", "the manual (9.2) is silent", lambda t: 0),
]  # fmt: skip

#: registers of time, which have tests of their own
CLOCKS = {"clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi"}

_KERNEL = """
.version 9.5
.target {target}
.address_size 64
.extern .shared .align 4 .b8 dyn[];
.visible .entry k(.param .u64 out)
{{
    .shared .align 4 .b8 fixed[40];
    .reg .b16 %h; .reg .b32 %r<8>; .reg .b64 %d<4>; .reg .pred %p;
    ld.param.u64 %d1, [out];
    mov.u32 %r1, %ctaid.z; mad.lo.u32 %r1, %r1, 3, 0; mov.u32 %r2, %ctaid.y;
    add.u32 %r1, %r1, %r2; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r1, %r1, 4, %r2;
    mov.u32 %r2, %tid.z; mov.u32 %r3, %tid.y; mad.lo.u32 %r2, %r2, 4, %r3;
    mov.u32 %r3, %tid.x; mad.lo.u32 %r2, %r2, 5, %r3; mad.lo.u32 %r1, %r1, 60, %r2;
    mul.wide.u32 %d2, %r1, {stride}; add.u64 %d1, %d1, %d2;
    mov.u32 %r1, fixed; mov.u32 %r1, dyn;
{body}
    ret;
}}
"""


def _body(names: list[str]) -> str:
    out = []
    for n, name in enumerate(names):
        width = SPECIAL_REGISTERS[name][0]
        if width == 1:
            out.append(f"mov.pred %p, %{name}; selp.u64 %d3, 1, 0, %p;")
        elif width == 64:
            out.append(f"mov.u64 %d3, %{name};")
        else:
            out.append(f"mov.u32 %r7, %{name}; cvt.u64.u32 %d3, %r7;")
        out.append(f"st.global.u64 [%d1+{8 * n}], %d3;")
    return "\n".join(out)


def _read(names: list[str], target: str = "sm_100", **launch: Any) -> np.ndarray:
    text = _KERNEL.format(target=target, stride=8 * len(names), body=_body(names))
    out = np.zeros((CTAS * THREADS, len(names)), np.uint64)
    options = {"grid": GRID, "block": BLOCK, "cluster": CLUSTER, "smem": 100, **launch}
    report = ptxsim.assemble(text).kernel().launch(args=[out], **options)
    assert report.clean, report
    return out


def test_values() -> None:
    out = _read([name for name, _, _ in ROWS])
    for n, (name, section, value) in enumerate(ROWS):
        want = [value(Thread(i % THREADS, i // THREADS)) for i in range(CTAS * THREADS)]
        assert out[:, n].tolist() == want, (name, section)


def test_every_register_has_a_row() -> None:
    assert {name for name, _, _ in ROWS} | CLOCKS == set(SPECIAL_REGISTERS)


def test_a_wrong_value_is_noticed() -> None:
    """The rows differ between threads, so a register that is another's fails."""
    out = _read(["tid.x", "tid.y"])
    assert out[:, 0].tolist() != out[:, 1].tolist()


@pytest.mark.parametrize(
    ("target", "size"), [("sm_30", 256), ("sm_75", 256), ("sm_80", 128), ("sm_20", 128)]
)
def test_shared_memory_is_allocated_in_units(target: str, size: int) -> None:
    """40 bytes in units of 128, or of 256 from sm_30 to sm_75 (%total_smem_size)."""
    out = _read(["total_smem_size"], target, smem=0, cluster=None)
    assert set(out[:, 0].tolist()) == {size}


@pytest.mark.parametrize(("cluster", "named"), [(None, 0), (1, 1), ((2, 1, 1), 1)])
def test_a_cluster_may_be_named_of_one(cluster: Any, named: int) -> None:
    out = _read(["is_explicit_cluster"], cluster=cluster)
    assert set(out[:, 0].tolist()) == {named}


def test_clocks_go_on() -> None:
    """%clock64, %globaltimer: every reading is later; halves are those of the whole."""
    names = ["clock64", "clock", "clock_hi", "globaltimer", "globaltimer_lo", "globaltimer_hi"]
    first = [int(v) for v in _read(names)[0]]
    assert first[0] < first[1]  # the low half, read later
    assert first[2] == 0 and first[5] == 0
    assert first[3] < first[4]


_PARTS = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .b16 %h; .reg .b32 %r<8>; .reg .b64 %d<4>;
    ld.param.u64 %d1, [out];
    mov.v4.u32 {%r1, %r2, %r3, %r4}, %ntid;
    mov.u16 %h, %ntid.y;
    mov.u32 %r5, WARP_SZ;
    cvt.u32.u16 %r6, %h;
    st.global.v4.u32 [%d1], {%r1, %r2, %r3, %r4};
    st.global.v2.u32 [%d1+16], {%r5, %r6};
    ret;
}
"""


def test_whole_vectors_halves_and_the_warp_size() -> None:
    """mov.v4 of a vector, a 16-bit read of a component (%ntid), WARP_SZ ("Constants")."""
    out = np.zeros(6, np.uint32)
    ptxsim.assemble(_PARTS).kernel().launch(grid=1, block=(7, 2), args=[out]).raise_for_findings()
    assert out.tolist() == [7, 2, 1, 0, 32, 2]


def test_vectors_of_halves_and_of_registers() -> None:
    """All sources are read first, so that a vector move exchanges registers ("mov").

    The components are also called r, g, b and a ("Vectors").
    """
    text = """
.version 9.0
.target sm_90
.visible .entry k(.param .u64 p)
{
    .reg .b32 %r<6>; .reg .b16 %h<4>; .reg .b64 %d; .reg .v2 .f64 %v; .reg .f64 %f;
    ld.param.u64 %d, [p];
    mov.v4.u16 {%h0, %h1, %h2, %h3}, %ntid;
    mov.b32 %r0, {%h0, %h1};
    mov.u32 %r1, %ntid.g;
    mov.v2.u32 {%r2, %r3}, {5, 6};
    mov.v2.b32 {%r2, %r3}, {%r3, %r2};
    mov.v2.f64 %v, {1.0, 0.5};
    add.f64 %f, %v.x, %v.y;
    st.global.v4.u32 [%d], {%r0, %r1, %r2, %r3};
    st.global.f64 [%d+16], %f;
    ret;
}
"""
    out = np.zeros(6, np.uint32)
    ptxsim.assemble(text).kernel().launch(grid=1, block=(7, 2), args=[out]).raise_for_findings()
    assert out.tolist() == [0x20007, 2, 6, 5, 0, 0x3FF80000]


@pytest.mark.parametrize(("cluster", "named"), [(None, 0), (1, 1)])
def test_a_special_predicate_guards(cluster: Any, named: int) -> None:
    """``@%is_explicit_cluster``, also ``@!`` and behind a label; taken by ptxas 13.0."""
    text = """.version 7.8 .target sm_90 .address_size 64
    .visible .entry k(.param .u64 out) { .reg .b64 %d; .reg .b32 %r<3>;
    ld.param.u64 %d, [out]; mov.b32 %r0, 5; mov.b32 %r1, 0; mov.b32 %r2, 0;
    L: add.u32 %r1, %r1, 1;
    @%is_explicit_cluster mov.b32 %r0, 7;
    @!%is_explicit_cluster bra M;
    mov.b32 %r2, 9;
    M: st.global.b32 [%d], %r0; st.global.b32 [%d+4], %r1; st.global.b32 [%d+8], %r2; ret; }"""
    out = np.zeros(3, np.uint32)
    report = ptxsim.assemble(text).kernel().launch(grid=1, block=1, args=[out], cluster=cluster)
    assert report.clean, report
    assert out.tolist() == ([7, 1, 9] if named else [5, 1, 0])


@pytest.mark.parametrize(
    ("version", "target", "guard", "code"),
    [
        ("7.7", "sm_90", "%is_explicit_cluster", "PTX107"),
        ("7.8", "sm_80", "%is_explicit_cluster", "PTX107"),
        ("7.8", "sm_90", "%laneid", "PTX101"),
        ("7.8", "sm_90", "%tid", "PTX101"),
    ],
)
def test_what_cannot_guard(version: str, target: str, guard: str, code: str) -> None:
    text = f".version {version} .target {target} .entry k() {{ @{guard} ret; ret; }}"
    with pytest.raises(ptxsim.PtxError) as error:
        ptxsim.assemble(text)
    assert error.value.diagnostics[0].code == code

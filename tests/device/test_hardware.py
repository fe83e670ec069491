"""The same on a real GPU; skipped, with the reason, where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ptxsim
from ptxsim.device import probe

from .kernels import ADD, EMPTY, HEAD, POKE, TRAP

FOUND = probe()

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(not FOUND.available, reason=f"no GPU: {FOUND.reason}"),
]

LOOP = HEAD + ".visible .entry k()\n{\nL:\n    bra.uni L;\n}\n"
CLUSTER = (
    HEAD.replace("sm_80", "sm_90")
    + """\
.visible .entry k(.param .u64 out)
{
    .reg .b32 %r, %c;
    .reg .b64 %p, %o;
    ld.param.u64 %p, [out];
    mov.u32 %r, %cluster_ctarank;
    mov.u32 %c, %ctaid.x;
    mul.wide.u32 %o, %c, 4;
    add.u64 %p, %p, %o;
    st.global.u32 [%p], %r;
    ret;
}
"""
)
#: stores a word of dynamic shared memory at byte n, and what it reads there to out
SHARED = (
    HEAD
    + """\
.extern .shared .align 16 .b8 pool[];
.visible .entry k(.param .u64 out, .param .u32 n)
{
    .reg .b32 %a, %n, %v;
    .reg .b64 %p;
    ld.param.u64 %p, [out];
    ld.param.u32 %n, [n];
    mov.u32 %a, pool;
    add.u32 %a, %a, %n;
    st.shared.u32 [%a], %n;
    ld.shared.u32 %v, [%a];
    st.global.u32 [%p], %v;
    ret;
}
"""
)


def launch(text: str, args: list[Any], **options: Any) -> ptxsim.Report:
    launch = {"grid": 1, "block": 1, "backend": "gpu", **options}
    return ptxsim.assemble(text).kernel().launch(args=args, **launch)


@pytest.mark.parametrize("isolate", [True, False])
def test_results(isolate: bool) -> None:
    x, y = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    report = launch(ADD, [x, y, np.uint32(5)], grid=2, block=32, isolate=isolate)
    assert report.clean and report.device == FOUND.devices[0].to_json()
    assert (y == np.arange(5, 69)).all()


@pytest.mark.parametrize("offset", [12, -1])
def test_red_zones(offset: int) -> None:
    report = launch(POKE, [np.zeros(3, np.uint32), np.int64(offset)])
    assert report.verdict == "oob-global" and report.findings[0].values["offset"] == offset


def test_faults_do_not_stay() -> None:
    assert launch(TRAP, []).verdict == "trap"
    assert launch(POKE, [None, np.uint64(16)]).verdict == "oob-global"
    assert launch(EMPTY, []).clean


def test_a_kernel_that_does_not_end() -> None:
    assert launch(LOOP, [], timeout=0.5).verdict == "step-limit"
    assert launch(EMPTY, []).clean


def test_the_log_of_the_assembler() -> None:
    text = HEAD + ".extern .func far();\n.visible .entry k()\n{\n    call far, ();\n    ret;\n}\n"
    with pytest.raises(ptxsim.PtxError) as caught:
        launch(text, [])
    assert {d.code for d in caught.value.diagnostics} == {"PTX190"}


def test_much_shared_memory() -> None:
    out = np.zeros(1, np.uint32)
    # beyond 48 KB a kernel needs leave; 64 KB is what every GPU from sm_75 on can give
    assert launch(SHARED, [out, np.uint32(65532)], smem=65536).clean
    assert list(out) == [65532]


def test_cooperative() -> None:
    assert launch(EMPTY, [], grid=2, block=32, cooperative=True).clean


def test_clusters() -> None:
    if FOUND.devices[0].compute_capability < (9, 0):
        pytest.skip(f"clusters need sm_90; {FOUND.devices[0]}")
    out = np.zeros(4, np.uint32)
    assert launch(CLUSTER, [out], grid=4, cluster=2).clean
    assert list(out) == [0, 1, 0, 1]

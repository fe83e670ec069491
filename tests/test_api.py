"""The Python interface: arguments, errors, listeners."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ptxsim
from ptxsim.machine.group import Group
from ptxsim.machine.launch import Buffer, LaunchRecord, run
from ptxsim.machine.wave import Geometry

TEXT = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 n)
{
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    mad.wide.u32 %rd1, %r2, 4, %rd1;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""


class Tensor:
    """What a tensor of another library looks like: an array behind DLPack."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("n", [7, np.uint32(7), np.int32(7)])
def test_scalars(n: Any) -> None:
    out = np.zeros(32, np.uint32)
    report = ptxsim.assemble(TEXT)["k"].launch(grid=1, block=32, args=[out, n])
    assert report.clean and (out == 7).all()


def test_dlpack() -> None:
    out = np.zeros(32, np.uint32)
    ptxsim.assemble(TEXT)["k"].launch(grid=1, block=32, args=[Tensor(out), 5])
    assert (out == 5).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"args": []}, "2 parameters, 0 arguments"),
        ({"args": [None, 1.5]}, "no value for parameter 'n'"),
        ({"args": [None, 1 << 40]}, "does not fit parameter 'n'"),
        ({"args": [None, np.uint64(1)]}, "'n' has 4 bytes"),
        ({"args": [np.zeros((4, 4), np.uint32)[:, ::2], 1]}, "not C-contiguous"),
        ({"block": 1025}, "at most 1024 threads"),
        ({"block": 0}, "positive"),
        ({"schedule": "sideways"}, "unknown schedule"),
        ({"tools": "heapcheck"}, "unknown tool"),
        ({"backend": "tpu"}, "backend 'tpu' is unknown; use 'sim' or 'gpu'"),
    ],
)
def test_launches_that_cannot_be_made(options: dict[str, Any], message: str) -> None:
    launch = {"grid": 1, "block": 32, "args": [None, 1], **options}
    with pytest.raises(ptxsim.UsageError, match=message):
        ptxsim.assemble(TEXT)["k"].launch(**launch)


def test_raise_for_findings() -> None:
    report = ptxsim.assemble(TEXT)["k"].launch(grid=1, block=32, args=[None, 1])
    assert report.verdict == "oob-global"
    with pytest.raises(ptxsim.FindingsError):
        report.raise_for_findings()


def test_call_with_the_wrong_number_of_arguments() -> None:
    head = TEXT[: TEXT.index(".visible")]
    text = (
        head
        + ".func f(.param .b32 a) { ret; }\n.entry k() { .reg .b32 %r; call f, (%r, %r); ret; }"
    )
    with pytest.raises(ptxsim.PtxError) as error:
        ptxsim.assemble(text)
    assert [d.code for d in error.value.diagnostics] == ["PTX111"]


def test_a_listener_sees_the_accesses() -> None:
    seen: list[tuple[str, str, int]] = []

    class Listening(Group):
        def load(self, space: Any, address: Any, size: Any, *rest: Any) -> Any:
            seen.append(("load", space, size))
            return super().load(space, address, size, *rest)

        def store(self, space: Any, address: Any, size: Any, *rest: Any) -> None:
            seen.append(("store", space, size))
            super().store(space, address, size, *rest)

    module = ptxsim.assemble(TEXT)
    out = np.zeros(128, np.uint8)
    record = LaunchRecord(
        module.typed,
        "k",
        Geometry((1, 1, 1), (32, 1, 1)),
        (Buffer("out", out), (9).to_bytes(4, "little")),
        group_type=Listening,
    )
    outcome = run(record, lambda *a, **k: None)
    assert seen == [("load", "param", 8), ("load", "param", 4), ("store", "global", 4)]
    assert (outcome.contents(0).view(np.uint32) == 9).all()


@pytest.mark.parametrize(
    ("directive", "cluster", "message"),
    [
        (".reqnctapercluster 2", 4, r"requires clusters of \(2,\) CTAs"),
        (".maxclusterrank 2", 4, r"allows 2 CTAs a cluster"),
        (".explicitcluster", None, "requires a cluster to be given"),
    ],
)
def test_a_cluster_that_the_directives_exclude(
    directive: str, cluster: int | None, message: str
) -> None:
    text = f".version 8.0\n.target sm_90\n.address_size 64\n.entry k() {directive} {{ ret; }}\n"
    with pytest.raises(ptxsim.UsageError, match=message):
        ptxsim.assemble(text).kernel().launch(grid=8, block=1, cluster=cluster)
    assert ptxsim.assemble(text).kernel().launch(grid=8, block=1, cluster=2).verdict == "clean"


def test_ctas_of_a_cooperative_launch_run_at_the_same_time() -> None:
    """Each CTA waits for all; 17 of 1024 threads are one more than a wave of the machine has."""
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 count)
{
    .reg .pred %p;
    .reg .b32 %n, %v;
    .reg .b64 %a;
    mov.u32 %v, %tid.x;
    setp.ne.u32 %p, %v, 0;
    @%p ret;
    ld.param.u64 %a, [count];
    mov.u32 %n, %nctaid.x;
    atom.acq_rel.gpu.global.add.u32 %v, [%a], 1;
L:
    ld.acquire.gpu.global.u32 %v, [%a];
    setp.ne.u32 %p, %v, %n;
    @%p bra L;
    ret;
}
"""
    launch = {"grid": 17, "block": 1024, "tools": "none", "max_instructions": 1_000_000}
    kernel = ptxsim.assemble(text).kernel()
    assert kernel.launch(args=[np.zeros(1, np.uint32)], **launch).verdict == "deadlock"
    count = np.zeros(1, np.uint32)
    assert kernel.launch(args=[count], cooperative=True, **launch).clean
    assert list(count) == [17]

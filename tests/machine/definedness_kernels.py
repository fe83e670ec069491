"""Kernels whose registers have chosen undefined bits, and what the machine knows of their results.

Word ``i`` of a lane is ``value`` where ``mask`` is zero and undefined where it is one; undefined
bits hold ``noise``, so that lanes with equal values and masks show what depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ptxsim
from ptxsim.machine.group import Group
from ptxsim.machine.launch import Buffer, LaunchRecord, run
from ptxsim.machine.wave import Geometry

__all__ = ["INPUTS", "known_results"]

INPUTS = 4
HEAD = """.version 8.6
.target sm_100
.address_size 64
.visible .entry k(.param .u64 in_p, .param .u64 out_p)
{
    .reg .pred %p<64>; .reg .b16 %h<64>; .reg .b32 %r<200>, %t, %v, %m, %u; .reg .b64 %d<64>;
    .reg .b64 %in, %out, %at; .shared .align 8 .b8 s[8192]; .reg .b32 %s;
    ld.param.u64 %in, [in_p]; ld.param.u64 %out, [out_p];
    mov.u32 %t, %tid.x; mad.wide.u32 %at, %t, 48, %in;
    mov.u32 %s, s; mad.lo.u32 %s, %t, 8, %s;
"""
#: word i: value, mask and noise
INPUT = """
    ld.global.u32 %v, [%at+{0}]; ld.global.u32 %m, [%at+{1}]; ld.global.u32 %u, [%at+{2}];
    lop3.b32 %r{3}, %v, %u, %m, 0xd8;
"""


def known_results(
    lines: Sequence[str],
    results: Sequence[str],
    value: NDArray[np.uint32],
    mask: NDArray[np.uint32],
    noise: NDArray[np.uint32],
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Values and undefined bits ``[result, lane]`` of 32-bit registers after some instructions.

    The inputs are ``[lane, INPUTS]`` and become ``%r0`` to ``%r3``.
    """
    lanes = len(value)
    words = np.stack([value, mask, noise], axis=-1)
    defined = np.ones((lanes, INPUTS, 3, 4), bool)
    defined[:, :, 2] = False
    text = HEAD
    for i in range(INPUTS):
        text += INPUT.format(12 * i, 12 * i + 4, 12 * i + 8, i)
    text += "\n".join(lines) + "\n    mad.wide.u32 %at, %t, 4, %out;\n"
    for name in results:
        text += f"    st.global.u32 [%at], {name};\n"
    module = ptxsim.assemble(text + "    ret;\n}\n").typed
    seen: list[tuple[Any, Any]] = []

    class Spy(Group):
        def store(self, space: str, *rest: Any) -> None:
            if space == "global":
                (stored,) = rest[2]
                lost = self.storing[0] if self.storing else None
                seen.append(
                    (
                        self.full(stored),
                        self.full(np.zeros(1, np.uint32) if lost is None else lost[0]),
                    )
                )
            super().store(space, *rest)

    record = LaunchRecord(
        module, "k", Geometry((1, 1, 1), (lanes, 1, 1)),
        (
            Buffer("in_p", words.reshape(-1).view(np.uint8).copy(), False, defined.reshape(-1)),
            Buffer("out_p", np.zeros(4 * lanes, np.uint8)),
        ),
        group_type=Spy,
    )  # fmt: skip
    run(record, lambda *a, **k: None)
    assert len(seen) == len(results)
    return np.stack([s[0] for s in seen]), np.stack([s[1] for s in seen])
